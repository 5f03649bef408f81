"""Leases: which documents somebody reviews at the moment, so that several people do not do the same work.

They are one JSON value in the table `meta`: the number of a document ↦ who has it, and until when. A lease ends when
the document is changed or forgotten, or when its time is over. A document that was reviewed and still has no labels has
an entry without an end, so that it is not offered again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

__all__ = ["end", "read", "release", "take"]

Leases = dict[int, tuple[str | None, float | None]]  # who, and until when in seconds since 1970; None for ever

_KEY = "review"


def read(connection: sqlite3.Connection, now: float) -> Leases:
    """The leases that are not over."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    entries = {} if row is None else json.loads(row[0])
    return {int(n): (who, until) for n, (who, until) in entries.items() if until is None or until > now}


def take(
    connection: sqlite3.Connection, documents: Sequence[int], n: int, who: str | None, now: float, until: float
) -> list[int]:
    """Lease at most n documents: those that this caller has already, then the first that nobody has."""
    leases = read(connection, now)
    mine = [number for number, (holder, end) in leases.items() if holder == who and end is not None]
    free = [number for number in documents if number not in leases]
    taken = [*mine, *free][:n]
    _write(connection, leases | dict.fromkeys(taken, (who, until)))
    return taken


def release(connection: sqlite3.Connection, documents: Iterable[int], now: float) -> None:
    """Give documents back, so that others get them."""
    leases, given = read(connection, now), set(documents)
    _write(connection, {number: lease for number, lease in leases.items() if number not in given or lease[1] is None})


def end(connection: sqlite3.Connection, documents: Iterable[int], now: float) -> None:
    """The leases of documents that somebody decided on, or that were forgotten, are over."""
    leases = read(connection, now)
    decided = leases.keys() & set(documents)
    if not decided:
        return
    unlabelled = "SELECT 1 FROM documents WHERE number = ? AND number NOT IN (SELECT document FROM document_labels)"
    for number in decided:
        if connection.execute(unlabelled, (number,)).fetchone() is None:
            del leases[number]
        else:
            leases[number] = None, None
    _write(connection, leases)


def _write(connection: sqlite3.Connection, leases: Leases) -> None:
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (_KEY, json.dumps(leases)))
