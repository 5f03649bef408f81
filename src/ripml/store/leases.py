"""Leases: which documents somebody reviews at the moment, so that several people do not do the same work.

There are two queues, of documents without and with labels, each one JSON value in the table `meta`: the number of a
document ↦ who has it, and until when. A lease ends when the document is decided on or forgotten, or when its time is
over. A document that was reviewed and still has no labels, or that had labels, has an entry without an end, so that it
is not offered again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

__all__ = ["end", "read", "release", "take"]

Leases = dict[int, tuple[str | None, float | None]]  # who, and until when in seconds since 1970; None for ever

_KEYS = {False: "review", True: "review_labelled"}


def read(connection: sqlite3.Connection, labelled: bool, now: float) -> Leases:
    """The leases of one queue that are not over."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEYS[labelled],)).fetchone()
    entries = {} if row is None else json.loads(row[0])
    return {int(n): (who, until) for n, (who, until) in entries.items() if until is None or until > now}


def take(
    connection: sqlite3.Connection,
    labelled: bool,
    documents: Sequence[int],
    n: int,
    who: str | None,
    now: float,
    until: float,
) -> list[int]:
    """Lease at most n documents: those that this caller has already, then the first that nobody has."""
    leases = read(connection, labelled, now)
    mine = [number for number, (holder, end) in leases.items() if holder == who and end is not None]
    free = [number for number in documents if number not in leases]
    taken = [*mine, *free][:n]
    _write(connection, labelled, leases | dict.fromkeys(taken, (who, until)))
    return taken


def release(connection: sqlite3.Connection, documents: Iterable[int], now: float) -> None:
    """Give documents back, so that others get them."""
    given = set(documents)
    for labelled in _KEYS:
        leases = read(connection, labelled, now)
        kept = {number: lease for number, lease in leases.items() if number not in given or lease[1] is None}
        _write(connection, labelled, kept)


def end(connection: sqlite3.Connection, documents: Iterable[int], now: float) -> None:
    """The leases of documents that somebody decided on, or that were forgotten, are over."""
    ended = set(documents)
    waits = {
        False: "SELECT 1 FROM documents WHERE number = ? AND number NOT IN (SELECT document FROM document_labels)",
        True: "SELECT 1 FROM documents WHERE number = ?",
    }
    for labelled, is_waiting in waits.items():
        leases = read(connection, labelled, now)
        if not (decided := leases.keys() & ended):
            continue
        for number in decided:
            if connection.execute(is_waiting, (number,)).fetchone() is None:
                del leases[number]
            else:
                leases[number] = None, None
        _write(connection, labelled, leases)


def _write(connection: sqlite3.Connection, labelled: bool, leases: Leases) -> None:
    command = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
    connection.execute(command, (_KEYS[labelled], json.dumps(leases)))
