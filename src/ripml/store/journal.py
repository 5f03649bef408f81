"""What is in the tables of a store: documents, labels, and the journal of changes that can be undone.

A change of a document leaves an entry with what it was *before* (`labels`, and `body` where that changed too). So a
model as of change c becomes that of now by the net difference alone: of each document that was touched since, what it
was at c (the `before` of its first entry behind c) is forgotten, and what it is now is learnt. Labels carry the number
of the change that last touched them, and the key that they have in the model: whoever gets there by other steps gives
them the same columns of Phi. A snapshot makes the entries up to it unnecessary: their bodies are deleted then, and
their labels, which are the history, by `compact`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np

from ripml.base.errors import DataError
from ripml.labels.encoding import label_keys, names_array

__all__ = [
    "Delta",
    "Draft",
    "Edit",
    "Label",
    "Snapshot",
    "State",
    "all_documents",
    "all_labels",
    "find",
    "gone_labels",
    "labels_of",
    "labelset",
    "names_of",
    "numbers_of",
    "packed_key",
    "since",
    "unused_labels",
]


@dataclass(frozen=True)
class State:
    """What a model learns of a document: its body, and its labels by their numbers, ascending."""

    body: bytes
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Edit:
    """A document before and after; None where it is not there."""

    document: int
    before: State | None
    after: State | None


@dataclass(frozen=True)
class Label:
    """A label of the table; without a name it is gone. Its key is what its column of Phi is made from."""

    number: int
    name: str | None
    retired: bool
    key: int

    @classmethod
    def read(cls, connection: sqlite3.Connection, where: str, *values: int) -> list[Label]:
        """Those for which an expression of SQL is true, in the order of numbers."""
        query = f"SELECT number, name, retired, key FROM labels WHERE {where} ORDER BY number"
        rows = connection.execute(query, values)
        return [cls(number, name, bool(retired), int.from_bytes(key, "little")) for number, name, retired, key in rows]


@dataclass(frozen=True)
class Delta:
    """The way from one change to a later one: the labels that were touched, and the net edits."""

    change: int
    labels: list[Label]
    edits: list[Edit]


@dataclass(frozen=True)
class Snapshot:
    """The saved model: the change it is up to date with, and its folder."""

    change: int
    folder: str

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Snapshot:
        """The one that the table names."""
        values = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('change', 'folder')"))
        snapshot = cls(int(values["change"]), str(values["folder"]))
        if snapshot.folder != cls.folder_of(snapshot.change):
            raise ValueError(f"the model of change {snapshot.change} cannot be in {snapshot.folder!r}")
        return snapshot

    @staticmethod
    def folder_of(change: int) -> str:
        """The name of the folder of a model.

        >>> Snapshot.folder_of(42)
        'model-000000000042'
        """
        return f"model-{change:012d}"

    def write(self, connection: sqlite3.Connection) -> None:
        """Make this the saved model; what only an older one needs is deleted."""
        connection.execute(
            "UPDATE changes SET body = NULL WHERE body NOT NULL AND number <= ? "
            "AND number > coalesce((SELECT value FROM meta WHERE key = 'change'), 0)",
            (self.change,),
        )
        pairs = [("change", self.change), ("folder", self.folder)]
        connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", pairs)
        connection.execute("DELETE FROM labels WHERE name IS NULL")


def last_change(connection: sqlite3.Connection) -> int:
    """The number of the last change; 0 where there was none."""
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM changes").fetchone()
    return int(number)


def labelset(labels: Iterable[int]) -> bytes:
    """What a set of labels is found by."""
    return hashlib.blake2b(np.array(sorted(labels), "<i8").tobytes(), digest_size=16).digest()


def packed_key(key: Any) -> bytes:
    """The key of a label as it is kept.

    >>> packed_key(5).hex()
    '0500000000000000'
    """
    return int(key).to_bytes(8, "little")


def labels_of(connection: sqlite3.Connection, document: int) -> tuple[int, ...]:
    """The labels of a document, by their numbers."""
    found = connection.execute("SELECT label FROM document_labels WHERE document = ? ORDER BY label", (document,))
    return tuple(number for (number,) in found)


def find(connection: sqlite3.Connection, id: str) -> tuple[int, State] | None:
    """The number of a document and what it is."""
    row = connection.execute("SELECT number, body FROM documents WHERE id = ?", (id,)).fetchone()
    return None if row is None else (row[0], State(bytes(row[1]), labels_of(connection, row[0])))


def number_of(connection: sqlite3.Connection, name: str) -> int | None:
    """The number of a label."""
    row = connection.execute("SELECT number FROM labels WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def numbers_of(connection: sqlite3.Connection, names: Iterable[str]) -> list[int]:
    """The numbers of labels that must be there."""
    numbers = []
    for name in names:
        number = number_of(connection, name)
        if number is None:
            raise DataError(f"there is no label {name!r}.")
        numbers.append(number)
    return numbers


def names_of(connection: sqlite3.Connection, numbers: Iterable[int]) -> list[str]:
    """The names of labels that are there."""
    return [connection.execute("SELECT name FROM labels WHERE number = ?", (n,)).fetchone()[0] for n in numbers]


def all_documents(connection: sqlite3.Connection) -> Iterator[tuple[int, State]]:
    """Every document in the order of numbers, with the labels that it carries."""
    rows = connection.execute(
        "SELECT number, body, (SELECT group_concat(label) FROM document_labels WHERE document = number) "
        "FROM documents ORDER BY number"
    )
    for number, body, labels in rows:
        yield number, State(bytes(body), tuple(sorted(map(int, labels.split(",")))) if labels else ())


def all_labels(connection: sqlite3.Connection) -> list[Label]:
    """Every label in the order of numbers."""
    return Label.read(connection, "name NOT NULL")


def gone_labels(connection: sqlite3.Connection) -> list[Label]:
    """Labels that are gone since the snapshot."""
    return Label.read(connection, "name IS NULL")


def unused_labels(connection: sqlite3.Connection) -> list[Label]:
    """Labels that no document carries and nobody declared."""
    carried = "EXISTS (SELECT 1 FROM document_labels WHERE label = number)"
    return Label.read(connection, f"NOT declared AND name NOT NULL AND NOT {carried}")


def since(connection: sqlite3.Connection, change: int) -> Delta:
    """What happened behind a change that is not older than the last snapshot."""
    labels = Label.read(connection, "changed > ?", change)
    first: dict[int, str | None] = {}  # the labels before, None for a document that was not there
    bodies: dict[int, bytes] = {}
    entries = connection.execute(
        "SELECT document, labels, body FROM changes WHERE number > ? AND document NOT NULL ORDER BY number", (change,)
    )
    for document, before, body in entries:
        first.setdefault(document, before)
        if body is not None:
            bodies.setdefault(document, bytes(body))
    edits = []
    for document, before in first.items():
        row = connection.execute("SELECT body FROM documents WHERE number = ?", (document,)).fetchone()
        after = None if row is None else State(bytes(row[0]), labels_of(connection, document))
        was = None
        if before is not None:
            body = bodies.get(document, None if after is None else after.body)
            if body is None:
                raise ValueError(f"the journal does not say what document {document} was")
            was = State(body, tuple(json.loads(before)))
        if was != after:
            edits.append(Edit(document, was, after))
    return Delta(last_change(connection), labels, edits)


class Draft:
    """The changes of one call, in a transaction that is open: rows of the tables, and the delta of the model.

    >>> from ripml.store.database import SCHEMA
    >>> connection = sqlite3.connect(":memory:")
    >>> for statement in SCHEMA:
    ...     _ = connection.execute(statement)
    >>> draft = Draft(connection)
    >>> draft.put("a", b"red apple", [draft.label("fruit")])
    >>> draft.delta.edits
    [Edit(document=1, before=None, after=State(body=b'red apple', labels=(1,)))]
    >>> since(connection, 0) == draft.delta
    True
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.last = last_change(connection)  # the number of the last change
        self._first = self.last + 1
        self._labels: dict[int, Label] = {}
        self._edits: list[Edit] = []

    @property
    def delta(self) -> Delta:
        """All of it, for the model."""
        return Delta(self.last, sorted(self._labels.values(), key=lambda label: label.number), self._edits)

    # ---------------------------------------------------------------------------------------------------- documents

    def put(self, id: str, body: bytes, labels: Iterable[int]) -> None:
        """Add a document, or change the one that has this id."""
        after = State(body, tuple(sorted(labels)))
        found = find(self._connection, id)
        if found is None:
            cursor = self._connection.execute(
                "INSERT INTO documents (id, body, labelset) VALUES (?, ?, ?)", (id, body, labelset(after.labels))
            )
            number, before, kind = int(cursor.lastrowid or 0), None, "learn"
        else:
            number, before = found
            if before == after:
                return
            kind = "relabel" if before.body == body else "replace"
            self._connection.execute(
                "UPDATE documents SET body = ?, labelset = ? WHERE number = ?", (body, labelset(after.labels), number)
            )
            self._connection.execute("DELETE FROM document_labels WHERE document = ?", (number,))
        self._connection.executemany(
            "INSERT INTO document_labels (document, label) VALUES (?, ?)", [(number, label) for label in after.labels]
        )
        self._enter(kind, Edit(number, before, after))

    def remove(self, id: str) -> None:
        """Take a document out."""
        number, before = self._found(id)
        self._connection.execute("DELETE FROM document_labels WHERE document = ?", (number,))
        self._connection.execute("DELETE FROM documents WHERE number = ?", (number,))
        self._enter("forget", Edit(number, before, None), id)

    def relabel(self, id: str, labels: Iterable[int]) -> None:
        """Give a document other labels."""
        self.put(id, self._found(id)[1].body, labels)

    def _found(self, id: str) -> tuple[int, State]:
        found = find(self._connection, id)
        if found is None:
            raise DataError(f"there is no document {id!r}.")
        return found

    def _enter(self, kind: str, edit: Edit, detail: str | None = None) -> None:
        before = edit.before
        changed = before is not None and (edit.after is None or edit.after.body != before.body)
        labels = None if before is None else json.dumps(before.labels)
        self._entry(kind, edit.document, labels, before.body if before is not None and changed else None, detail)
        self._edits.append(edit)

    # ------------------------------------------------------------------------------------------------------- labels

    def label(self, name: str, declared: bool = False) -> int:
        """The number of a label, which is made if there is none of this name."""
        number = number_of(self._connection, name)
        if number is None:
            key = packed_key(label_keys(names_array([name]))[0])
            taken = self._connection.execute("SELECT 1 FROM labels WHERE key = ?", (key,)).fetchone()
            cursor = self._connection.execute(
                "INSERT INTO labels (name, key, declared, retired, changed) VALUES (?, ?, ?, 0, ?)",
                (name, key, declared, self._first),
            )
            number = int(cursor.lastrowid or 0)
            if taken:  # by a label that had this name before
                key = hashlib.blake2b(f"{name}\0{number}".encode(), digest_size=8).digest()
                self._connection.execute("UPDATE labels SET key = ? WHERE number = ?", (key, number))
            self._touch(number)
        return number

    def add_labels(self, names: Sequence[str]) -> None:
        """Declare labels: they stay, even if no document carries them."""
        for name in names:
            self._connection.execute("UPDATE labels SET declared = 1 WHERE number = ?", (self.label(name, True),))
        self.note("add labels", labels=list(names))

    def rename_label(self, old: str, new: str) -> None:
        """Give a label another name."""
        (number,) = numbers_of(self._connection, [old])
        if number_of(self._connection, new) is not None:
            raise DataError(f"there is a label {new!r} already; merge the labels to make one of two.")
        self._connection.execute("UPDATE labels SET name = ? WHERE number = ?", (new, number))
        self._touch(number)
        self.note("rename label", old=old, new=new)

    def merge_labels(self, names: Sequence[str], into: str) -> None:
        """Give every document that carries one of the labels another one instead."""
        if not names:
            raise DataError(f"there are no labels to be merged into {into!r}.")
        gone = set(numbers_of(self._connection, names))
        target = self.label(into)
        if target in gone:
            raise DataError(f"the label {into!r} cannot be merged into itself.")
        carriers = "SELECT DISTINCT id FROM documents JOIN document_labels ON document = number WHERE label = ?"
        for label in sorted(gone):
            for (id,) in self._connection.execute(carriers, (label,)).fetchall():
                labels = self._found(id)[1].labels
                self.relabel(id, {target}.union(labels) - gone)
            self._connection.execute("UPDATE labels SET name = NULL, was = name WHERE number = ?", (label,))
            self._touch(label)
        self.note("merge labels", labels=list(names), into=into)

    def retire_label(self, name: str, retired: bool) -> None:
        """Say whether a label may be suggested."""
        (number,) = numbers_of(self._connection, [name])
        self._connection.execute("UPDATE labels SET retired = ? WHERE number = ?", (retired, number))
        self._touch(number)
        self.note("retire label" if retired else "reinstate label", label=name)

    def _touch(self, number: int) -> None:
        self._connection.execute("UPDATE labels SET changed = ? WHERE number = ?", (self._first, number))
        (self._labels[number],) = Label.read(self._connection, "number = ?", number)

    # ------------------------------------------------------------------------------------------------------ entries

    def note(self, kind: str, **detail: Any) -> None:
        """Enter a change that is not of one document."""
        self._entry(kind, detail=json.dumps(detail, ensure_ascii=False) if detail else None)

    def _entry(
        self,
        kind: str,
        document: int | None = None,
        labels: str | None = None,
        body: bytes | None = None,
        detail: str | None = None,
    ) -> None:
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self.last += 1
        self._connection.execute(
            "INSERT INTO changes (number, time, kind, document, labels, body, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self.last, time, kind, document, labels, body, detail),
        )
