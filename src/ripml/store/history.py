"""What was done to a store, as far as its journal still says so."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from ripml.store.journal import labels_of

__all__ = ["history"]


def history(connection: sqlite3.Connection, n: int) -> list[dict[str, Any]]:
    """The last changes, newest first, with as much of them as is still known."""
    rows = connection.execute(
        "SELECT c.number, c.time, c.kind, c.document, c.labels, c.detail, d.id FROM changes AS c "
        "LEFT JOIN documents AS d ON d.number = c.document ORDER BY c.number DESC LIMIT ?",
        (n,),
    )
    found = []
    for number, time, kind, document, labels, detail, id in rows.fetchall():
        entry: dict[str, Any] = {"number": number, "time": time, "kind": kind}
        if document is None:
            entry |= json.loads(detail) if detail else {}
        else:
            entry["id"] = id if id is not None else _forgotten_id(connection, document)
            entry["before"] = _names(connection, None if labels is None else json.loads(labels))
            entry["after"] = _labels_after(connection, number, document)
        found.append(entry)
    return found


def _forgotten_id(connection: sqlite3.Connection, document: int) -> str | None:
    query = "SELECT detail FROM changes WHERE document = ? AND kind = 'forget'"
    row = connection.execute(query, (document,)).fetchone()
    return None if row is None else row[0]


def _labels_after(connection: sqlite3.Connection, number: int, document: int) -> list[str] | None:
    """What a document carried after a change: what it did before the next one, or what it does now."""
    query = "SELECT labels FROM changes WHERE document = ? AND number > ? ORDER BY number LIMIT 1"
    following = connection.execute(query, (document, number)).fetchone()
    if following is not None:
        return _names(connection, None if following[0] is None else json.loads(following[0]))
    here = connection.execute("SELECT 1 FROM documents WHERE number = ?", (document,)).fetchone()
    return _names(connection, None if here is None else labels_of(connection, document))


def _names(connection: sqlite3.Connection, numbers: Iterable[int] | None) -> list[str] | None:
    """The names of labels, also of those that are gone; None where they are not known any more."""
    if numbers is None:
        return None
    query = "SELECT coalesce(name, was) FROM labels WHERE number = ?"
    found = [connection.execute(query, (number,)).fetchone() for number in numbers]
    return None if None in found else [name for (name,) in found]
