"""What an audit and a report found, kept true while documents and labels change.

A job measures once, and its result is shown until the next one. Meanwhile it must not show a document that is gone, a
label by an earlier name, or a finding that was decided. `now` gives the present name of a label, None if it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from ripml.server.schemas import AuditStatus, ReportStatus

__all__ = ["Now", "audit_renamed", "audit_without", "report_renamed", "report_without"]

Now = Callable[[str], str | None]


def audit_without(
    found: AuditStatus, decided: Collection[tuple[str, str, str]] = (), gone: Collection[str] = ()
) -> AuditStatus:
    """Without findings that were decided, by kind, document and label, and without documents that are gone."""
    kept: dict[str, list[Any]] = {
        kind: [
            one.model_copy(
                update={
                    side: [near for near in getattr(one, side) if near.document not in gone]
                    for side in ("carriers", "others")
                }
            )
            for one in getattr(found, kind)
            if (one.kind, one.document, one.label) not in decided and one.document not in gone
        ]
        for kind in ("wrong", "missing")
    }
    for name in ("conflicts", "near_copies"):
        kept[name] = [one for one in getattr(found, name) if not set(one.documents) & set(gone)]
    return found.model_copy(update=kept)


def audit_renamed(found: AuditStatus, now: Now) -> AuditStatus:
    """With the present names of labels; what only named labels that are gone goes with them."""
    kept: dict[str, list[Any]] = {
        kind: [
            one.model_copy(update={"label": name})
            for one in getattr(found, kind)
            if (name := now(one.label)) is not None
        ]
        for kind in ("wrong", "missing")
    }
    conflicts = [one.model_copy(update={"labels": _present(one.labels, now)}) for one in found.conflicts]
    near = [
        one.model_copy(update={"only": tuple(_present(labels, now) for labels in one.only)})
        for one in found.near_copies
    ]
    kept["conflicts"] = [one for one in conflicts if one.labels]
    kept["near_copies"] = [one for one in near if any(one.only)]
    return found.model_copy(update=kept)


def report_without(found: ReportStatus, gone: Collection[str]) -> ReportStatus:
    """Without documents that are gone as examples."""

    def left(ids: Iterable[str]) -> list[str]:
        return [id for id in ids if id not in gone]

    labels = [
        one.model_copy(update={"missed": left(one.missed), "mistaken": left(one.mistaken)}) for one in found.labels
    ]
    splits = [
        one.model_copy(
            update={
                "groups": tuple(group.model_copy(update={"examples": left(group.examples)}) for group in one.groups)
            }
        )
        for one in found.splits
    ]
    return found.model_copy(update={"labels": labels, "splits": splits})


def report_renamed(found: ReportStatus, now: Now) -> ReportStatus:
    """With the present names of labels, without those that are gone."""
    labels = [
        one.model_copy(update={"label": name, "confused_with": _present_pairs(one.confused_with, now)})
        for one in found.labels
        if (name := now(one.label)) is not None
    ]
    pairs = [
        one.model_copy(update={"label": name, "other": other})
        for one in found.pairs
        if (name := now(one.label)) is not None and (other := now(one.other)) is not None
    ]
    splits = [
        one.model_copy(
            update={
                "label": name,
                "groups": tuple(
                    group.model_copy(update={"labels": _present_pairs(group.labels, now)}) for group in one.groups
                ),
            }
        )
        for one in found.splits
        if (name := now(one.label)) is not None
    ]
    return found.model_copy(update={"labels": labels, "pairs": pairs, "splits": splits})


def _present(labels: Iterable[str], now: Now) -> list[str]:
    return [name for name in map(now, labels) if name is not None]


def _present_pairs(pairs: Iterable[tuple[str, Any]], now: Now) -> list[tuple[str, Any]]:
    return [(name, value) for label, value in pairs if (name := now(label)) is not None]
