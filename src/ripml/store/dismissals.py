"""Findings of an audit that people have dismissed: they are not shown again until their document changes.

They are kept in the table `meta`, by the numbers of documents and labels, with the change after which they were
dismissed. A document that a later entry of the journal names has changed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ripml.base.errors import DataError
from ripml.model.audit import Finding
from ripml.store import journal

__all__ = ["Doubt", "dismiss", "dismissed", "restore"]

_KEY = "dismissed"


@dataclass(frozen=True, order=True)
class Doubt:
    """What a finding is about."""

    document: str
    label: str
    kind: str  # "wrong" or "missing"

    @classmethod
    def of(cls, finding: Finding | Mapping[str, Any]) -> Doubt:
        """Of a finding, or a mapping with the same "kind", "document" and "label".

        >>> Doubt.of({"kind": "wrong", "document": "ticket-17", "label": "billing"})
        Doubt(document='ticket-17', label='billing', kind='wrong')
        """
        values = finding if isinstance(finding, Mapping) else vars(finding)
        try:
            document, label, kind = (values[name] for name in ("document", "label", "kind"))
        except KeyError as error:
            raise DataError(f"a finding needs a kind, a document and a label; {error} is missing.") from None
        if kind not in ("wrong", "missing"):
            raise DataError(f"the kind of a finding is 'wrong' or 'missing'; got {kind!r}.")
        return cls(str(document), str(label), kind)


def dismissed(connection: sqlite3.Connection) -> set[Doubt]:
    """The findings that are not to be shown."""
    found = set()
    for document, label, kind, change in _read(connection):
        row = connection.execute("SELECT id FROM documents WHERE number = ?", (document,)).fetchone()
        name = connection.execute("SELECT name FROM labels WHERE number = ?", (label,)).fetchone()
        later = "SELECT 1 FROM changes WHERE document = ? AND number > ? LIMIT 1"
        if row and name and name[0] and connection.execute(later, (document, change)).fetchone() is None:
            found.add(Doubt(row[0], name[0], kind))
    return found


def dismiss(connection: sqlite3.Connection, doubts: Iterable[Doubt]) -> None:
    """Do not show these findings again; those of documents that are gone or have changed are dropped."""
    last = journal.last_change(connection)
    kept = dict.fromkeys(sorted({*dismissed(connection), *doubts}), last)
    _write(connection, kept)


def restore(connection: sqlite3.Connection, doubts: Iterable[Doubt]) -> set[Doubt]:
    """Show these findings again; those of them that were dismissed."""
    known, wanted = dismissed(connection), set(doubts)
    if known & wanted:
        last = journal.last_change(connection)
        _write(connection, dict.fromkeys(sorted(known - wanted), last))
    return known & wanted


def _read(connection: sqlite3.Connection) -> list[list[Any]]:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    return [] if row is None else list(json.loads(row[0]))


def _write(connection: sqlite3.Connection, doubts: Mapping[Doubt, int]) -> None:
    rows = [
        [
            journal.require_document(connection, doubt.document)[0],
            journal.require_label(connection, doubt.label),
            doubt.kind,
            change,
        ]
        for doubt, change in doubts.items()
    ]
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (_KEY, json.dumps(rows)))
