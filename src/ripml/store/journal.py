"""The tables of a store: documents, labels, and the journal of changes.

Each change of a document adds an entry to the journal with the state of the document *before* the change: its `labels`,
and its `body` if that changed too. A model as of change c is brought up to date by the net difference alone: of each
document that was touched after c, the state at c (the one before its first entry after c) is forgotten and the current
state is learnt. Labels carry the number of the change that last touched them, and the key that determines their column
of Phi, so that every way to the same change gives the same columns. A snapshot makes earlier entries unnecessary: their
bodies are then deleted. Their labels are the history, which is kept until `compact`.
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

__all__ = ["Delta", "Draft", "Edit", "Label", "Snapshot", "State", "delta_since", "history"]


@dataclass(frozen=True)
class State:
    """What a model learns of a document: its body, and the numbers of its labels in ascending order."""

    body: bytes
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Edit:
    """A document before and after a change; None where it does not exist."""

    document: int
    before: State | None
    after: State | None


@dataclass(frozen=True)
class Label:
    """A row of the table of labels; a removed label has no name. The key determines its column of Phi."""

    number: int
    name: str | None
    retired: bool
    key: int

    @classmethod
    def read(cls, connection: sqlite3.Connection, where: str, *values: int) -> list[Label]:
        """The labels that fulfil a condition in SQL, by number."""
        query = f"SELECT number, name, retired, key FROM labels WHERE {where} ORDER BY number"
        rows = connection.execute(query, values)
        return [cls(number, name, bool(retired), int.from_bytes(key, "little")) for number, name, retired, key in rows]


@dataclass(frozen=True)
class Delta:
    """The difference between two changes: the labels that were touched, and the net edits of documents."""

    change: int
    labels: list[Label]
    edits: list[Edit]


@dataclass(frozen=True)
class Snapshot:
    """The saved model of a change.

    >>> Snapshot(42).folder
    'model-000000000042'
    """

    change: int

    @property
    def folder(self) -> str:
        """The name of the model folder."""
        return f"model-{self.change:012d}"

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Snapshot:
        """The current snapshot."""
        values = dict(connection.execute("SELECT key, value FROM meta WHERE key IN ('change', 'folder')"))
        snapshot = cls(int(values["change"]))
        if values["folder"] != snapshot.folder:
            raise ValueError(f"the model of change {snapshot.change} cannot be in {values['folder']!r}")
        return snapshot

    def write(self, connection: sqlite3.Connection) -> None:
        """Make this the current snapshot, and delete what only an older one needs."""
        connection.execute(
            "UPDATE changes SET body = NULL WHERE body NOT NULL AND number <= ? "
            "AND number > coalesce((SELECT value FROM meta WHERE key = 'change'), 0)",
            (self.change,),
        )
        pairs = [("change", self.change), ("folder", self.folder)]
        connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", pairs)
        connection.execute("DELETE FROM labels WHERE name IS NULL")


# -------------------------------------------------------------------------------------------------------------- reading


def last_change(connection: sqlite3.Connection) -> int:
    """The number of the last change; 0 if there is none."""
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM changes").fetchone()
    return int(number)


def hash_label_set(labels: Iterable[int]) -> bytes:
    """The hash by which documents with the same label set are found."""
    return hashlib.blake2b(np.array(sorted(labels), "<i8").tobytes(), digest_size=16).digest()


def pack_key(key: Any) -> bytes:
    """The key of a label as bytes."""
    return int(key).to_bytes(8, "little")


def labels_of(connection: sqlite3.Connection, document: int) -> tuple[int, ...]:
    """The numbers of the labels of a document."""
    rows = connection.execute("SELECT label FROM document_labels WHERE document = ? ORDER BY label", (document,))
    return tuple(number for (number,) in rows)


def find_document(connection: sqlite3.Connection, id: str) -> tuple[int, State] | None:
    """The number and the state of a document."""
    row = connection.execute("SELECT number, body FROM documents WHERE id = ?", (id,)).fetchone()
    return None if row is None else (row[0], State(bytes(row[1]), labels_of(connection, row[0])))


def require_document(connection: sqlite3.Connection, id: str) -> tuple[int, State]:
    """The number and the state of a document, which must exist."""
    found = find_document(connection, id)
    if found is None:
        raise DataError(f"there is no document {id!r}.")
    return found


def find_label(connection: sqlite3.Connection, name: str) -> int | None:
    """The number of a label."""
    row = connection.execute("SELECT number FROM labels WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


def require_label(connection: sqlite3.Connection, name: str) -> int:
    """The number of a label, which must exist."""
    number = find_label(connection, name)
    if number is None:
        raise DataError(f"there is no label {name!r}.")
    return number


def label_names(connection: sqlite3.Connection, numbers: Iterable[int]) -> list[str] | None:
    """The names of labels, also of removed ones; None if one of them is no longer known."""
    query = "SELECT coalesce(name, was) FROM labels WHERE number = ?"
    rows = [connection.execute(query, (number,)).fetchone() for number in numbers]
    return None if None in rows else [name for (name,) in rows]


def all_documents(connection: sqlite3.Connection) -> Iterator[tuple[int, State]]:
    """The numbers and states of all documents, by number."""
    rows = connection.execute(
        "SELECT number, body, (SELECT group_concat(label) FROM document_labels WHERE document = number) "
        "FROM documents ORDER BY number"
    )
    for number, body, labels in rows:
        yield number, State(bytes(body), tuple(sorted(map(int, labels.split(",")))) if labels else ())


def all_labels(connection: sqlite3.Connection) -> list[Label]:
    """All labels, by number."""
    return Label.read(connection, "name NOT NULL")


def delta_since(connection: sqlite3.Connection, change: int) -> Delta:
    """The difference between a change and now; the change must not be older than the snapshot."""
    labels = Label.read(connection, "changed > ?", change)
    # The state before comes from the first entries of a document after the change: the labels from the very first one
    # (NULL if the document did not exist), the body from the first one that changed it.
    labels_before: dict[int, str | None] = {}
    bodies: dict[int, bytes] = {}
    entries = connection.execute(
        "SELECT document, labels, body FROM changes WHERE number > ? AND document NOT NULL ORDER BY number", (change,)
    )
    for document, packed, body in entries:
        labels_before.setdefault(document, packed)
        if body is not None:
            bodies.setdefault(document, bytes(body))
    edits = []
    for document, packed in labels_before.items():
        row = connection.execute("SELECT body FROM documents WHERE number = ?", (document,)).fetchone()
        after = None if row is None else State(bytes(row[0]), labels_of(connection, document))
        before = None
        if packed is not None:
            body = bodies.get(document, None if after is None else after.body)
            if body is None:
                raise ValueError(f"the journal lacks the earlier body of document {document}")
            before = State(body, tuple(json.loads(packed)))
        if before != after:
            edits.append(Edit(document, before, after))
    return Delta(last_change(connection), labels, edits)


def history(connection: sqlite3.Connection, n: int) -> list[dict[str, Any]]:
    """The last n changes, newest first, with all that is still known about them."""
    rows = connection.execute(
        "SELECT c.number, c.time, c.kind, c.document, c.labels, c.detail, d.id FROM changes AS c "
        "LEFT JOIN documents AS d ON d.number = c.document ORDER BY c.number DESC LIMIT ?",
        (n,),
    )
    entries = []
    for number, time, kind, document, labels, detail, id in rows.fetchall():
        entry: dict[str, Any] = {"number": number, "time": time, "kind": kind}
        if document is None:
            entry |= json.loads(detail) if detail else {}
        else:
            if id is None:  # the document was forgotten; the entry that did so has its id
                query = "SELECT detail FROM changes WHERE document = ? AND kind = 'forget'"
                row = connection.execute(query, (document,)).fetchone()
                entry["id"] = None if row is None else row[0]
            else:
                entry["id"] = id
            entry["before"] = None if labels is None else label_names(connection, json.loads(labels))
            entry["after"] = _labels_after(connection, number, document)
        entries.append(entry)
    return entries


def _labels_after(connection: sqlite3.Connection, number: int, document: int) -> list[str] | None:
    """The labels of a document after a change: those before its next change, or else its current ones."""
    query = "SELECT labels FROM changes WHERE document = ? AND number > ? ORDER BY number LIMIT 1"
    following = connection.execute(query, (document, number)).fetchone()
    if following is not None:
        return None if following[0] is None else label_names(connection, json.loads(following[0]))
    exists = connection.execute("SELECT 1 FROM documents WHERE number = ?", (document,)).fetchone()
    return None if exists is None else label_names(connection, labels_of(connection, document))


# -------------------------------------------------------------------------------------------------------------- writing


class Draft:
    """The changes of one call, written in an open transaction, and the delta that they make for the model.

    >>> from ripml.store.database import SCHEMA
    >>> connection = sqlite3.connect(":memory:")
    >>> for statement in SCHEMA:
    ...     _ = connection.execute(statement)
    >>> draft = Draft(connection)
    >>> draft.put("a", b"red apple", [draft.label("fruit")])
    >>> draft.delta.edits
    [Edit(document=1, before=None, after=State(body=b'red apple', labels=(1,)))]
    >>> delta_since(connection, 0) == draft.delta
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
        """All changes so far, for the model."""
        return Delta(self.last, sorted(self._labels.values(), key=lambda label: label.number), self._edits)

    def put(self, id: str, body: bytes, labels: Iterable[int]) -> None:
        """Add a document, or replace the one with this id."""
        after, found = State(body, tuple(sorted(labels))), find_document(self._connection, id)
        label_set = hash_label_set(after.labels)
        if found is None:
            command = "INSERT INTO documents (id, body, labelset) VALUES (?, ?, ?)"
            number = int(self._connection.execute(command, (id, body, label_set)).lastrowid or 0)
            before, kind = None, "learn"
        else:
            number, before = found
            if before == after:
                return
            kind = "relabel" if before.body == body else "replace"
            command = "UPDATE documents SET body = ?, labelset = ? WHERE number = ?"
            self._connection.execute(command, (body, label_set, number))
            self._connection.execute("DELETE FROM document_labels WHERE document = ?", (number,))
        self._connection.executemany(
            "INSERT INTO document_labels (document, label) VALUES (?, ?)", [(number, label) for label in after.labels]
        )
        self._record(kind, edit=Edit(number, before, after))

    def remove(self, id: str) -> None:
        """Remove a document."""
        number, before = require_document(self._connection, id)
        self._connection.execute("DELETE FROM document_labels WHERE document = ?", (number,))
        self._connection.execute("DELETE FROM documents WHERE number = ?", (number,))
        self._record("forget", id, Edit(number, before, None))

    def relabel(self, id: str, labels: Iterable[int]) -> None:
        """Replace the labels of a document."""
        self.put(id, require_document(self._connection, id)[1].body, labels)

    def label(self, name: str) -> int:
        """The number of a label, which is added if it does not exist."""
        number = find_label(self._connection, name)
        if number is None:
            key = pack_key(label_keys(names_array([name]))[0])
            taken = self._connection.execute("SELECT 1 FROM labels WHERE key = ?", (key,)).fetchone()
            cursor = self._connection.execute(
                "INSERT INTO labels (name, key, declared, retired, changed) VALUES (?, ?, 0, 0, ?)",
                (name, key, self._first),
            )
            number = int(cursor.lastrowid or 0)
            if taken:  # by a label that had this name earlier
                key = hashlib.blake2b(f"{name}\0{number}".encode(), digest_size=8).digest()
                self._connection.execute("UPDATE labels SET key = ? WHERE number = ?", (key, number))
            self._touch(number)
        return number

    def add_labels(self, names: Sequence[str]) -> None:
        """Declare labels, which are then kept even if no document carries them."""
        for name in names:
            self._connection.execute("UPDATE labels SET declared = 1 WHERE number = ?", (self.label(name),))
        self.note("add labels", labels=list(names))

    def rename_label(self, old: str, new: str) -> None:
        """Rename a label."""
        number = require_label(self._connection, old)
        if find_label(self._connection, new) is not None:
            raise DataError(f"there is a label {new!r} already; merge the two labels instead.")
        self._connection.execute("UPDATE labels SET name = ? WHERE number = ?", (new, number))
        self._touch(number)
        self.note("rename label", old=old, new=new)

    def merge_labels(self, names: Sequence[str], into: str) -> None:
        """Replace labels by another one in all documents, and remove them."""
        if not names:
            raise DataError(f"there are no labels to be merged into {into!r}.")
        merged = {require_label(self._connection, name) for name in names}
        target = self.label(into)
        if target in merged:
            raise DataError(f"the label {into!r} cannot be merged into itself.")
        carriers = "SELECT DISTINCT id FROM documents JOIN document_labels ON document = number WHERE label = ?"
        for label in sorted(merged):
            for (id,) in self._connection.execute(carriers, (label,)).fetchall():
                labels = require_document(self._connection, id)[1].labels
                self.relabel(id, {target}.union(labels) - merged)
            self._connection.execute("UPDATE labels SET name = NULL, was = name WHERE number = ?", (label,))
            self._touch(label)
        self.note("merge labels", labels=list(names), into=into)

    def retire_label(self, name: str, retired: bool) -> None:
        """Set whether a label is retired, that is, no longer suggested."""
        number = require_label(self._connection, name)
        self._connection.execute("UPDATE labels SET retired = ? WHERE number = ?", (retired, number))
        self._touch(number)
        self.note("retire label" if retired else "reinstate label", label=name)

    def _touch(self, number: int) -> None:
        self._connection.execute("UPDATE labels SET changed = ? WHERE number = ?", (self._first, number))
        (self._labels[number],) = Label.read(self._connection, "number = ?", number)

    def note(self, kind: str, **detail: Any) -> None:
        """Add an entry that does not concern a single document."""
        self._record(kind, json.dumps(detail, ensure_ascii=False) if detail else None)

    def _record(self, kind: str, detail: str | None = None, edit: Edit | None = None) -> None:
        """Add an entry to the journal; the body of a document is kept only if it changed."""
        document = labels = body = None
        if edit is not None:
            self._edits.append(edit)
            document, before, after = edit.document, edit.before, edit.after
            if before is not None:
                labels = json.dumps(before.labels)
                body = None if after is not None and after.body == before.body else before.body
        self.last += 1
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._connection.execute(
            "INSERT INTO changes (number, time, kind, document, labels, body, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self.last, time, kind, document, labels, body, detail),
        )
