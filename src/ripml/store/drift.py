"""Drift: whether what arrives is still like what the model was fitted on, and whether people still agree with it.

Texts like those of the fit have familiarities that are uniform between 0 and 1, so that their mean is 0.5, and one in a
hundred is unlike anything known. The share of decided labels that were accepted falls when the model gets worse.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ripml.tagging.familiarity import UNFAMILIAR

__all__ = ["NEWEST", "decided_of", "familiarity_of", "newest_documents"]

NEWEST = 500  # documents learnt since the fit that are compared with those of the fit, and decided labels


def newest_documents(connection: sqlite3.Connection, n: int) -> list[tuple[str, str | None]]:
    """The ids of the n documents that were added last, oldest first, and when each was; None if that is not known."""
    query = (
        "SELECT id, (SELECT min(time) FROM changes WHERE document = documents.number) FROM documents "
        "ORDER BY number DESC LIMIT ?"
    )
    return [(id, time) for id, time in reversed(connection.execute(query, (n,)).fetchall())]


def familiarity_of(found: Sequence[float], times: Sequence[str | None]) -> dict[str, Any]:
    """The familiarity of documents in all, and by the month in which they came."""
    months: dict[str, list[float]] = {}
    for value, time in zip(found, times, strict=True):
        if time is not None:
            months.setdefault(time[:7], []).append(value)
    return {**_familiar(found), "months": {month: _familiar(some) for month, some in sorted(months.items())}}


def decided_of(changes: Sequence[tuple[int, str, int, int]]) -> dict[str, Any] | None:
    """How many labels were accepted and rejected, in all, of the newest ones and by month; None if none were.

    `changes` are as `Store.decided_labels` gives them.
    """
    if not changes:
        return None
    newest, n = [], 0
    for _, _, accepted, rejected in reversed(changes):
        if n >= NEWEST:
            break
        newest.append((accepted, rejected))
        n += accepted + rejected
    months: dict[str, list[tuple[int, int]]] = {}
    for _, time, accepted, rejected in changes:
        months.setdefault(time[:7], []).append((accepted, rejected))
    return {
        **_counted([(accepted, rejected) for _, _, accepted, rejected in changes]),
        "newest": _counted(newest),
        "months": {month: _counted(some) for month, some in months.items()},
    }


def _familiar(found: Sequence[float]) -> dict[str, Any]:
    strange = sum(value <= UNFAMILIAR for value in found) / len(found)
    return {"documents": len(found), "familiarity": round(fmean(found), 4), "unfamiliar": round(strange, 4)}


def _counted(decisions: Sequence[tuple[int, int]]) -> dict[str, Any]:
    accepted, rejected = map(sum, zip(*decisions, strict=True))
    n = accepted + rejected
    return {"labels": n, "accepted": accepted, "rejected": rejected, "acceptance": round(accepted / n, 4)}
