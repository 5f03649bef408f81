"""The tables of a store: documents, labels, and the journal of changes.

Each change of a document adds an entry to the journal with the state of the document *before* the change: its `labels`,
and its `body` if that changed too. A model as of change c is brought up to date by the net difference alone: of each
document that was touched after c, the state at c (the one before its first entry after c) is forgotten and the current
state is learnt. Labels carry the number of the change that last touched them, and the key that determines their column
of Phi, so that every way to the same change gives the same columns. A snapshot makes earlier entries unnecessary: their
bodies are then deleted. Their labels are the history, which is kept until `compact`.

The entries form a hash chain. The `chain` of an entry is the SHA-256 of the chain before it (the id of the store before
the first entry) and of what `compact` keeps of the entry, with a random nonce. Two stores, or two states of one store,
that have the same chain at a change have the same history up to it, even where one is a restored copy of the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ripml.base.errors import DataError, ModelFolderError, StoreError
from ripml.labels.concepts import Concept, Concepts
from ripml.labels.encoding import label_keys, names_array

if TYPE_CHECKING:
    from ripml.store.fulltext import WordIndex

_IN_VOCABULARY = 2  # `declared` of labels that the vocabulary has a name for

_DOCUMENTS_WITH_LABELS = "SELECT document FROM document_labels UNION SELECT document FROM document_decisions"
_UNDONE = "add labels", "rename label", "merge labels", "retire label", "reinstate label"  # by `Draft.undo_labels`
_NO_CHANGE = 1 << 62  # above the number of any change

# The condition for entries of the journal whose document is no longer in the store.
GONE = "document NOT NULL AND document NOT IN (SELECT number FROM documents)"


@dataclass(frozen=True)
class State:
    """What a model learns of a document: its body, and the numbers of its labels in ascending order.

    Of a document of which not all labels are known, there are no labels, and those that were decided are in `accepted`
    and `rejected`.
    """

    body: bytes
    labels: tuple[int, ...]
    accepted: tuple[int, ...] = field(default=(), repr=False)
    rejected: tuple[int, ...] = field(default=(), repr=False)

    @property
    def is_decided(self) -> bool:
        """Whether some of its labels are decided."""
        return bool(self.accepted or self.rejected)

    def pack(self) -> str:
        """The labels and decisions as an entry of the journal has them: JSON."""
        if not self.is_decided:
            return json.dumps(self.labels)
        return json.dumps({"accepted": self.accepted, "rejected": self.rejected})

    @classmethod
    def unpack(cls, packed: str, body: bytes = b"") -> State:
        """The inverse of `pack`."""
        found = json.loads(packed)
        return cls(body, tuple(found)) if isinstance(found, list) else cls(body, (), *map(tuple, found.values()))


@dataclass(frozen=True)
class Edit:
    """A document before and after a change; None where it does not exist."""

    document: int
    before: State | None
    after: State | None
    #: Whether its row was forgotten and learnt again in between, although the body is the same as before.
    learnt_again: bool = field(default=False, repr=False)


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
    """The difference between two changes: the labels that were touched, and the net edits of documents.

    Edits are in the order in which the documents were last learnt: it decides between rows that are equally similar.
    """

    change: int
    labels: list[Label]
    edits: list[Edit]
    concepts: Concepts | None = field(default=None, repr=False)  # the vocabulary, if that changed


@dataclass(frozen=True)
class Entry:
    """An entry of the journal as far as `compact` keeps it."""

    number: int
    time: str
    kind: str
    actor: str | None
    document: int | None
    certificate: bytes | None  # the keyed digest of a document that was forgotten with a certificate
    nonce: bytes
    chain: bytes

    @classmethod
    def read(cls, connection: sqlite3.Connection, where: str = "1", *values: int) -> Iterator[Entry]:
        """The entries that fulfil a condition in SQL, by number."""
        columns = "number, time, kind, actor, document, certificate, nonce, chain"
        query = f"SELECT {columns} FROM changes WHERE {where} ORDER BY number"
        for number, time, kind, actor, document, certificate, nonce, chain in connection.execute(query, values):
            digest = None if certificate is None else bytes(certificate)
            yield cls(number, time, kind, actor, document, digest, bytes(nonce), bytes(chain))

    def follow(self, previous: bytes) -> bytes:
        """The chain that this entry must have after one with the chain `previous`."""
        return chain_entry(previous, self.number, self.time, self.kind, self.actor, self.certificate, self.nonce)


@dataclass(frozen=True)
class Snapshot:
    """The saved model of a change.

    >>> Snapshot(42).folder
    'model-000000000042'
    """

    change: int
    #: The SHA-256 of its manifest, which has those of all other files; None in a store of format 1.
    manifest: str | None = None

    @property
    def folder(self) -> str:
        """The name of the model folder."""
        return f"model-{self.change:012d}"

    @classmethod
    def saved(cls, change: int, store: Path) -> Snapshot:
        """The snapshot of a change whose model folder was just saved in a store."""
        snapshot = cls(change)
        return replace(snapshot, manifest=snapshot._digest(store))

    def check(self, store: Path) -> None:
        """Raise `ModelFolderError` unless the model folder is the one that was saved, and not that of another store."""
        if self.manifest not in (None, self._digest(store)):
            raise ModelFolderError(f"{store / self.folder}: is not the model that was saved here.")

    def _digest(self, store: Path) -> str:
        try:
            return hashlib.sha256((store / self.folder / "manifest.json").read_bytes()).hexdigest()
        except OSError as error:
            reason = f"manifest.json cannot be read ({error.strerror})"
            raise ModelFolderError(f"{store / self.folder}: {reason}.") from error

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Snapshot:
        """The current snapshot."""
        query = "SELECT key, value FROM meta WHERE key IN ('change', 'folder', 'manifest')"
        values = dict(connection.execute(query))
        snapshot = cls(int(values["change"]), values.get("manifest"))
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
        pairs = [("change", self.change), ("folder", self.folder), ("manifest", self.manifest)]
        connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", pairs)
        connection.execute("DELETE FROM labels WHERE name IS NULL AND changed <= ?", (self.change,))


# -------------------------------------------------------------------------------------------------------------- reading


def last_change(connection: sqlite3.Connection) -> int:
    """The number of the last change; 0 if there is none."""
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM changes").fetchone()
    return int(number)


def kind_of(connection: sqlite3.Connection, change: int) -> str | None:
    """The kind of a change; None if there is no such change."""
    row = connection.execute("SELECT kind FROM changes WHERE number = ?", (change,)).fetchone()
    return None if row is None else str(row[0])


def edits_since(connection: sqlite3.Connection, change: int) -> bool:
    """Whether a document was changed since a change."""
    query = "SELECT 1 FROM changes WHERE number > ? AND document NOT NULL LIMIT 1"
    return connection.execute(query, (change,)).fetchone() is not None


def forgotten_since(connection: sqlite3.Connection, change: int) -> bool:
    """Whether a document that was there at a change was forgotten or replaced by another text since."""
    later = "SELECT document FROM changes WHERE kind = 'learn' AND number > :change"
    query = f"kind IN ('forget', 'replace') AND number > :change AND document NOT IN ({later})"
    found = connection.execute(f"SELECT 1 FROM changes WHERE {query} LIMIT 1", {"change": change})
    return found.fetchone() is not None


def is_compacted(connection: sqlite3.Connection) -> bool:
    """Whether no document was forgotten or replaced, and no model fitted, since the store was compacted last."""
    kinds = "('compact', 'refit', 'rebuild', 'forget', 'replace')"
    query = f"SELECT kind FROM changes WHERE kind IN {kinds} ORDER BY number DESC LIMIT 1"
    return [kind for (kind,) in connection.execute(query)] == ["compact"]


def store_id(connection: sqlite3.Connection) -> bytes:
    """The random id of the store, which its hash chain starts from; b"" in a store of format 1."""
    return chain_at(connection, 0) or b""


def compacted_since(connection: sqlite3.Connection, change: int) -> bool:
    """Whether the store was compacted after a change."""
    query = "SELECT 1 FROM changes WHERE kind = 'compact' AND number > ? LIMIT 1"
    return connection.execute(query, (change,)).fetchone() is not None


def last_fit(connection: sqlite3.Connection) -> int:
    """The change whose documents the model was last fitted on; 0 for those that the store was created with."""
    query = "SELECT number, detail FROM changes WHERE kind IN ('refit', 'rebuild') ORDER BY number DESC LIMIT 1"
    row = connection.execute(query).fetchone()
    if row is None:
        return 0
    number, detail = row
    return int(json.loads(detail)["documents_of"]) if detail else int(number) - 1


def chain_at(connection: sqlite3.Connection, change: int) -> bytes | None:
    """The hash of the history up to a change: None if there is no such change, b"" in a store of format 1."""
    if _format(connection) < 2:
        return b""
    query = (
        "SELECT value FROM meta WHERE key = 'store'" if change == 0 else "SELECT chain FROM changes WHERE number = ?"
    )
    row = connection.execute(query, (change,) if change else ()).fetchone()
    return None if row is None else bytes(row[0])


def replay_chain(connection: sqlite3.Connection) -> int:
    """The number of entries of the journal; raise `StoreError` at the first that does not continue the hash chain."""
    chain, last = store_id(connection), 0
    for entry in Entry.read(connection):
        if entry.number != last + 1:
            raise StoreError(f"entry {last + 1:,} of the journal is missing")
        chain, last = entry.follow(chain), entry.number
        if chain != entry.chain:
            raise StoreError(f"entry {last:,} of the journal was altered, or belongs to another history")
    (highest,) = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    if last < (highest or 0):
        raise StoreError(f"the journal ends with entry {last:,}, but there was an entry {highest:,}")
    return last


def chain_entry(
    previous: bytes, number: int, time: str, kind: str, actor: str | None, certificate: bytes | None, nonce: bytes
) -> bytes:
    """The `chain` of an entry of the journal that follows the entry with the chain `previous`.

    >>> chain_entry(b"store", 1, "2026-01-01T00:00:00.000+00:00", "learn", None, None, bytes(16)).hex()[:16]
    'ef280193a62c4e66'
    """
    entry = [number, time, kind, actor, None if certificate is None else certificate.hex(), nonce.hex()]
    return hashlib.sha256(previous + json.dumps(entry, separators=(",", ":")).encode()).digest()


def _format(connection: sqlite3.Connection) -> int:
    (format,) = connection.execute("PRAGMA user_version").fetchone()
    return int(format)


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
    return None if row is None else (row[0], _state(connection, row[0], bytes(row[1])))


def _state(connection: sqlite3.Connection, document: int, body: bytes) -> State:
    """The state of a document with this body."""
    decided = decisions(connection, document).get(document, ((), ()))
    return State(body, labels_of(connection, document), *decided)


def decisions(
    connection: sqlite3.Connection, document: int | None = None
) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Number ↦ accepted and rejected labels, of one document or of all that have decisions."""
    if _format(connection) < 3:
        return {}
    where, values = ("", ()) if document is None else ("WHERE document = ?", (document,))
    found: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    query = f"SELECT document, label, accepted FROM document_decisions {where} ORDER BY document, label"
    for number, label, accepted in connection.execute(query, values):
        yes, no = found.get(number, ((), ()))
        found[number] = ((*yes, label), no) if accepted else (yes, (*no, label))
    return found


def require_document(connection: sqlite3.Connection, id: str) -> tuple[int, State]:
    """The number and the state of a document, which must exist."""
    found = find_document(connection, id)
    if found is None:
        first = connection.execute("SELECT id FROM documents ORDER BY number LIMIT 1").fetchone()
        such = "the store has no documents" if first is None else f"ids here are such as {first[0]!r}"
        raise DataError(f"there is no document {id!r}; {such}.")
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


def label_facts(connection: sqlite3.Connection, name: str, n: int) -> tuple[bool, int, int, list[str]]:
    """Whether a label is declared, how many documents accepted and rejected it, and the ids of the first n carriers."""
    number = require_label(connection, name)
    (declared,) = connection.execute("SELECT declared FROM labels WHERE number = ?", (number,)).fetchone()
    decided = {0: 0, 1: 0}
    if _format(connection) >= 3:
        query = "SELECT accepted, count(*) FROM document_decisions WHERE label = ? GROUP BY accepted"
        decided |= dict(connection.execute(query, (number,)).fetchall())
    query = "SELECT id FROM documents JOIN document_labels ON document = number WHERE label = ? ORDER BY number LIMIT ?"
    ids = [id for (id,) in connection.execute(query, (number, n))]
    return bool(declared), decided[1], decided[0], ids


def carrying(connection: sqlite3.Connection, names: Collection[str], into: str) -> tuple[int, int, int]:
    """How many documents carry one of these labels, how many of them another one too, and how many have decisions."""
    if into in names:
        raise DataError(f"the label {into!r} cannot be merged into itself.")
    numbers = json.dumps([require_label(connection, name) for name in names])
    some = "label IN (SELECT value FROM json_each(?))"
    query = f"SELECT count(DISTINCT document) FROM document_labels WHERE {some}"
    (documents,) = connection.execute(query, (numbers,)).fetchone()
    also = "AND document IN (SELECT document FROM document_labels WHERE label = ?)"
    (both,) = connection.execute(f"{query} {also}", (numbers, find_label(connection, into) or -1)).fetchone()
    decided = 0
    if _format(connection) >= 3:
        query = f"SELECT count(DISTINCT document) FROM document_decisions WHERE {some}"
        (decided,) = connection.execute(query, (numbers,)).fetchone()
    return int(documents), int(both), int(decided)


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
    decided = decisions(connection)
    for number, body, labels in rows:
        carried = tuple(sorted(map(int, labels.split(",")))) if labels else ()
        yield number, State(bytes(body), carried, *decided.get(number, ((), ())))


def without_labels(connection: sqlite3.Connection, documents: Iterable[int]) -> list[int]:
    """Those of these documents that are there and have neither labels nor decisions, in the same order."""
    query = f"SELECT 1 FROM documents WHERE number = ? AND number NOT IN ({_DOCUMENTS_WITH_LABELS})"
    return [number for number in documents if connection.execute(query, (number,)).fetchone() is not None]


def unchanged_since(connection: sqlite3.Connection, documents: Iterable[int], change: int) -> list[int]:
    """Those of these documents that are there and that no later change names, in the same order."""
    changed = "SELECT 1 FROM changes WHERE document = documents.number AND changes.number > ?"
    query = f"SELECT 1 FROM documents WHERE number = ? AND NOT EXISTS ({changed})"
    return [number for number in documents if connection.execute(query, (number, change)).fetchone() is not None]


def document_of(connection: sqlite3.Connection, number: int) -> tuple[str, bytes]:
    """The id and the body of a document that is there."""
    id, body = connection.execute("SELECT id, body FROM documents WHERE number = ?", (number,)).fetchone()
    return id, bytes(body)


def sample(connection: sqlite3.Connection, n: int, labelled: bool) -> dict[int, State]:
    """At most n documents with labels, or with neither labels nor decisions, by number: always the same of the same."""
    having = "IN (SELECT document FROM document_labels)" if labelled else f"NOT IN ({_DOCUMENTS_WITH_LABELS})"
    query = (
        f"SELECT number, body FROM documents WHERE number {having} ORDER BY (number * 2654435761) % 4294967296 LIMIT ?"
    )
    return {number: State(bytes(body), ()) for number, body in connection.execute(query, (n,))}


def all_labels(connection: sqlite3.Connection) -> list[Label]:
    """All labels, by number."""
    return Label.read(connection, "name NOT NULL")


def unused_labels(connection: sqlite3.Connection) -> list[Label]:
    """The labels that no document or decision names and that neither were declared nor are in the vocabulary."""
    unused = "NOT EXISTS (SELECT 1 FROM document_labels WHERE label = number)"
    if _format(connection) >= 3:
        unused += " AND NOT EXISTS (SELECT 1 FROM document_decisions WHERE label = number)"
    return Label.read(connection, f"NOT declared AND name NOT NULL AND {unused}")


def read_concepts(connection: sqlite3.Connection, after: int = -1) -> Concepts | None:
    """The vocabulary; None if there is none, or if it was not changed after this change."""
    query = "SELECT value FROM meta WHERE key = ?"
    changed = connection.execute(query, ("vocabulary_change",)).fetchone()
    if changed is None or changed[0] <= after:
        return None
    (lines,) = connection.execute(query, ("vocabulary",)).fetchone()
    try:
        return Concepts.from_json_lines(zlib.decompress(lines))
    except zlib.error as error:
        raise ValueError(f"the vocabulary cannot be read ({error})") from error


def write_concepts(connection: sqlite3.Connection, concepts: Concepts, change: int) -> None:
    """Make this the vocabulary from a change on; an empty one means that there is none.

    Labels that it has a name for are kept, even if no document carries them.
    """
    pairs = [("vocabulary", zlib.compress(concepts.to_json_lines())), ("vocabulary_change", change)]
    connection.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", pairs)
    labels = connection.execute("SELECT name, declared FROM labels WHERE name NOT NULL AND declared != 1").fetchall()
    declared = [(_IN_VOCABULARY if concepts.texts(name) else 0, name, before) for name, before in labels]
    changed = [(now, name) for now, name, before in declared if now != before]
    connection.executemany("UPDATE labels SET declared = ? WHERE name = ?", changed)


def delta_since(connection: sqlite3.Connection, change: int) -> Delta:
    """The difference between a change and now; the change must not be older than the snapshot."""
    labels = Label.read(connection, "changed > ?", change)
    # The state before comes from the first entries of a document after the change: the labels from the very first one
    # (NULL if the document did not exist), the body from the first one that changed it.
    labels_before: dict[int, str | None] = {}
    bodies: dict[int, bytes] = {}
    learnt: dict[int, None] = {}  # documents by the last change that learnt them, which a change of labels does not do
    entries = connection.execute(
        "SELECT document, labels, body FROM changes WHERE number > ? AND document NOT NULL ORDER BY number", (change,)
    )
    for document, packed, body in entries:
        labels_before.setdefault(document, packed)
        if body is not None:
            bodies.setdefault(document, bytes(body))
        if body is not None or packed is None or not State.unpack(packed).labels:
            learnt.pop(document, None)
            learnt[document] = None
    edits = []
    for document in (*(number for number in labels_before if number not in learnt), *learnt):
        packed = labels_before[document]
        row = connection.execute("SELECT body FROM documents WHERE number = ?", (document,)).fetchone()
        after = None if row is None else _state(connection, document, bytes(row[0]))
        before = None
        if packed is not None:
            body = bodies.get(document, None if after is None else after.body)
            if body is None:
                raise ValueError(f"the journal lacks the earlier body of document {document}")
            before = State.unpack(packed, body)
        again = False
        if before is not None and after is not None and before.labels and after.labels:
            again = document in learnt and before.body == after.body
        if before != after or again:
            edits.append(Edit(document, before, after, again))
    return Delta(last_change(connection), labels, edits, read_concepts(connection, change))


def history(connection: sqlite3.Connection, n: int, before: int | None = None) -> list[dict[str, Any]]:
    """The last n changes, newest first, with all that is still known about them; those before a change, if it is given.

    The labels of a document after a change are those before its next change, or else its current ones. Without `before`
    the next change is among the last n as well, so that one statement for each table suffices.
    """
    format = _format(connection)
    columns = "c.actor, c.certificate" if format >= 2 else "NULL, NULL"
    rows = connection.execute(
        f"SELECT c.number, c.time, c.kind, {columns}, c.document, c.labels, c.detail, d.id FROM changes AS c "
        "LEFT JOIN documents AS d ON d.number = c.document WHERE c.number < ? ORDER BY c.number DESC LIMIT ?",
        (_NO_CHANGE if before is None else before, n),
    ).fetchall()
    known = "SELECT document, label, 0 FROM document_labels"
    if format >= 3:
        known += " UNION ALL SELECT document, label, 2 - accepted FROM document_decisions"
    current: dict[int, tuple[list[int], ...]]  # labels, and those that are accepted and rejected
    current = {document: ([], [], []) for *_, document, _, _, id in rows if id is not None}
    carried = connection.execute(
        f"SELECT * FROM ({known}) WHERE document IN (SELECT value FROM json_each(?)) ORDER BY document, label",
        (json.dumps(list(current)),),
    )
    for document, label, part in carried:
        current[document][part].append(label)
    after: dict[int, State | None] = {document: State(b"", *map(tuple, parts)) for document, parts in current.items()}
    ids: dict[int, str | None] = {}  # of forgotten documents; their newest entry has it
    if before is not None:
        documents = {document for *_, document, _, _, _ in rows if document is not None}
        later = "SELECT kind, labels, detail FROM changes WHERE document = ? AND number >= ? ORDER BY number DESC"
        for document in documents:
            for kind, labels, detail in connection.execute(later, (document, before)):
                after[document] = None if labels is None else State.unpack(labels)
                if kind == "forget":
                    ids[document] = detail
    entries = []
    for number, time, kind, actor, certificate, document, labels, detail, id in rows:
        entry: dict[str, Any] = {"number": number, "time": time, "kind": kind, "actor": actor}
        if certificate is not None:
            entry["certificate"] = bytes(certificate).hex()
        if document is None:
            entry |= json.loads(detail) if detail else {}
            entry.pop("restores", None)  # for `undo_labels` alone
        else:
            earlier = None if labels is None else State.unpack(labels)
            entry["id"] = ids.setdefault(document, detail if kind == "forget" else None) if id is None else id
            entry |= {"before": None, "after": None}
            if entry["id"] is not None:  # else it was forgotten with a certificate, or the history was compacted
                for name, state in (("before", earlier), ("after", after.get(document))):
                    if state is not None:
                        entry[name] = [*state.labels, *state.accepted]
                        if state.is_decided:
                            entry[f"rejected_{name}"] = list(state.rejected)
            after[document] = earlier
        entries.append(entry)
    _name_labels(connection, [entry for entry in entries if "before" in entry])
    return entries


def decided_labels(connection: sqlite3.Connection, after: int = 0) -> list[tuple[int, str, int, int]]:
    """The number and time of each change that decided labels, and how many it newly accepted and rejected.

    Decisions that `redact` took from the history are counted at the last one on their document, if they still stand.
    """
    rows = connection.execute(
        "SELECT c.number, c.time, c.labels, c.document, n.number, n.labels FROM changes AS c LEFT JOIN changes AS n "
        "ON n.number = (SELECT min(number) FROM changes WHERE document = c.document AND number > c.number) "
        "WHERE c.number > ? AND c.document NOT NULL AND (c.kind = 'decide' OR c.labels LIKE '{%') ORDER BY c.number",
        (after,),
    )
    found = []
    for number, time, labels, document, later, packed in rows.fetchall():
        if later is None:
            left = State(b"", labels_of(connection, document), *decisions(connection, document).get(document, ((), ())))
        elif packed is None:
            continue
        else:
            left = State.unpack(packed)
        before = set() if labels is None else set(_signed(State.unpack(labels)))
        new = set(_signed(left)) - before
        accepted = sum(label > 0 for label in new)
        if new:
            found.append((number, time, accepted, len(new) - accepted))
    return found


def _signed(state: State) -> list[int]:
    """The labels that a document carries, or those that were accepted, and those that were rejected as −number."""
    return [*state.labels, *state.accepted, *(-label for label in state.rejected)]


def _name_labels(connection: sqlite3.Connection, entries: Sequence[dict[str, Any]]) -> None:
    """Replace the numbers of labels by names, also of removed ones; a list with a number that is unknown by None."""
    states = ("before", "after", "rejected_before", "rejected_after")
    numbers = {number for entry in entries for state in states for number in entry.get(state) or ()}
    query = "SELECT number, coalesce(name, was) FROM labels WHERE number IN (SELECT value FROM json_each(?))"
    names = dict(connection.execute(query, (json.dumps(list(numbers)),)))
    for entry in entries:
        for state in [state for state in states if state in entry]:
            labels = entry[state]
            known = labels is not None and all(number in names for number in labels)
            entry[state] = [names[number] for number in labels] if known else None


# -------------------------------------------------------------------------------------------------------------- writing


class Draft:
    """The changes of one call by one actor, written in an open transaction, and the delta that they make for the model.

    >>> from ripml.store.database import write_schema
    >>> connection = sqlite3.connect(":memory:")
    >>> write_schema(connection)
    >>> draft = Draft(connection)
    >>> draft.put("a", b"red apple", [draft.label("fruit")])
    >>> draft.delta.edits
    [Edit(document=1, before=None, after=State(body=b'red apple', labels=(1,)))]
    >>> delta_since(connection, 0) == draft.delta
    True
    """

    def __init__(
        self, connection: sqlite3.Connection, actor: str | None = None, index: WordIndex | None = None
    ) -> None:
        self._connection, self._actor, self._index = connection, actor, index
        self.store = store_id(connection)
        self.last = last_change(connection)  # the number of the last change
        self.chain = chain_at(connection, self.last) or b""  # the hash of the history up to it
        self._first = self.last + 1
        self._labels: dict[int, Label] = {}
        self._edits: list[Edit] = []
        self.decided: list[int] = []  # documents that this call was about, changed or not
        self._concepts: Concepts | None = None  # the vocabulary, if this call changed it

    @property
    def delta(self) -> Delta:
        """All changes so far, for the model."""
        labels = sorted(self._labels.values(), key=lambda label: label.number)
        return Delta(self.last, labels, self._edits, self._concepts)

    def put(
        self, id: str, body: bytes, labels: Iterable[int], accepted: Iterable[int] = (), rejected: Iterable[int] = ()
    ) -> None:
        """Add a document, or replace the one with this id; with decisions if not all its labels are known."""
        after = State(body, *(tuple(sorted(numbers)) for numbers in (labels, accepted, rejected)))
        found = find_document(self._connection, id)
        label_set = hash_label_set(after.labels)
        if found is None:
            command = "INSERT INTO documents (id, body, labelset) VALUES (?, ?, ?)"
            number = int(self._connection.execute(command, (id, body, label_set)).lastrowid or 0)
            before, kind = None, "learn"
            if self._index is not None:
                self._index.add(number, body)
        else:
            number, before = found
            self.decided.append(number)
            if before == after:
                return
            kind = "relabel" if before.body == body else "replace"
            command = "UPDATE documents SET body = ?, labelset = ? WHERE number = ?"
            self._connection.execute(command, (body, label_set, number))
            self._delete_labels(number)
            if self._index is not None:
                self._index.replace(number, before.body, body)
        if after.is_decided:
            kind = "decide"
        self._connection.executemany(
            "INSERT INTO document_labels (document, label) VALUES (?, ?)", [(number, label) for label in after.labels]
        )
        self._connection.executemany(
            "INSERT INTO document_decisions (document, label, accepted) VALUES (?, ?, ?)",
            [(number, label, yes) for yes, some in ((0, after.rejected), (1, after.accepted)) for label in some],
        )
        self._record(kind, edit=Edit(number, before, after))

    def _delete_labels(self, number: int) -> None:
        for table in ("document_labels", "document_decisions"):
            self._connection.execute(f"DELETE FROM {table} WHERE document = ?", (number,))

    def decide(
        self, id: str, accepted: Iterable[int], rejected: Iterable[int], body: bytes | None, complete: bool
    ) -> None:
        """Accept and reject labels of a document, which is added with this body if it does not exist.

        If they are `complete`, or it has labels already, all its labels are known after that: those that are accepted.
        """
        found = find_document(self._connection, id)
        state = State(body or b"", ()) if found is None else found[1]
        yes, no = set(accepted), set(rejected)
        yes, no = {*state.labels, *state.accepted, *yes} - no, {*state.rejected, *no} - yes
        if not (state.labels or complete):
            self.put(id, state.body, (), yes, no)
        elif yes:
            self.put(id, state.body, yes)
        else:
            raise DataError(f"document {id!r} would have no label left; forget it, or accept one.")

    def withdraw(self, id: str) -> None:
        """Take back all decisions on the labels of a document."""
        _, state = require_document(self._connection, id)
        if not state.is_decided:
            raise DataError(f"no label of document {id!r} is decided.")
        self.put(id, state.body, ())

    def body(self, id: str) -> bytes | None:
        """The body of a document; None if there is none with this id."""
        found = find_document(self._connection, id)
        return None if found is None else found[1].body

    def remove(self, id: str, digest: Callable[[bytes], bytes] | None = None) -> Entry:
        """Remove a document. With `digest`, the entry does not have its id, but what this makes of its body."""
        number, before = require_document(self._connection, id)
        self.decided.append(number)
        self._delete_labels(number)
        self._connection.execute("DELETE FROM documents WHERE number = ?", (number,))
        if self._index is not None:
            self._index.remove(number, before.body)
        certificate = None if digest is None else digest(before.body)
        self._record("forget", id if digest is None else None, Edit(number, before, None), certificate)
        (entry,) = Entry.read(self._connection, "number = ?", self.last)
        return entry

    def relabel(self, id: str, labels: Iterable[int]) -> None:
        """Replace the labels of a document."""
        self.put(id, require_document(self._connection, id)[1].body, labels)

    def amend(self, id: str, add: Iterable[str], remove: Iterable[str]) -> None:
        """Give some labels to a document, and take others, which must exist."""
        labels = require_document(self._connection, id)[1].labels
        taken = {require_label(self._connection, name) for name in remove}
        self.relabel(id, {*labels, *map(self.label, add)} - taken)

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

    def require_label(self, name: str) -> int:
        """The number of a label, which must exist."""
        return require_label(self._connection, name)

    def add_labels(self, names: Sequence[str], concepts: Sequence[Concept] = ()) -> None:
        """Declare labels, which are then kept even if no document carries them, and add concepts that name them."""
        last = self._last_label()
        self._add_many(names)
        self._connection.executemany("UPDATE labels SET declared = 1 WHERE name = ?", [(name,) for name in names])
        changed = {}
        if concepts:
            before = read_concepts(self._connection) or Concepts.of([])
            after = before.updated(Concepts.of(concepts))
            self._write_concepts(after)
            changed = _difference(before, after)
        restores = {"created": [last + 1, self._last_label()], "concepts": changed}
        self.note("add labels", labels=list(names), restores=restores)

    def rename_label(self, old: str, new: str) -> None:
        """Rename a label."""
        number = require_label(self._connection, old)
        if old == new:
            raise DataError(f"the label is called {new!r} already.")
        if find_label(self._connection, new) is not None:
            raise DataError(f"there is a label {new!r} already; merge the two labels instead.")
        self._connection.execute("UPDATE labels SET name = ? WHERE number = ?", (new, number))
        self._touch(number)
        restores = {"number": number, "concepts": self._rename_concepts([old], new)}
        self.note("rename label", old=old, new=new, restores=restores)

    def merge_labels(self, names: Sequence[str], into: str) -> None:
        """Replace labels by another one in all documents, and remove them."""
        if not names:
            raise DataError(f"there are no labels to be merged into {into!r}.")
        merged = {require_label(self._connection, name) for name in names}
        first, last = self.last + 1, self._last_label()
        target = self.label(into)
        if target in merged:
            raise DataError(f"the label {into!r} cannot be merged into itself.")
        query = "SELECT number, name, hex(key), declared, retired FROM labels WHERE number = ?"
        rows = [self._connection.execute(query, (label,)).fetchone() for label in sorted(merged)]
        carriers = "SELECT DISTINCT id FROM documents JOIN document_labels ON document = number WHERE label = ?"
        for label in sorted(merged):
            for (id,) in self._connection.execute(carriers, (label,)).fetchall():
                labels = require_document(self._connection, id)[1].labels
                self.relabel(id, {target}.union(labels) - merged)
            decided = "SELECT DISTINCT id FROM documents JOIN document_decisions ON document = number WHERE label = ?"
            for (id,) in self._connection.execute(decided, (label,)).fetchall():
                _, state = require_document(self._connection, id)
                yes, no = (
                    {target if one in merged else one for one in some} for some in (state.accepted, state.rejected)
                )
                self.put(id, state.body, (), yes, no - yes)
            self._connection.execute("UPDATE labels SET name = NULL, was = name WHERE number = ?", (label,))
            self._touch(label)
        restores = {
            "first": first,  # the entries from here on are those of the documents
            "target": target,
            "merged": rows,
            "created": [last + 1, self._last_label()],
            "concepts": self._rename_concepts(names, into),
        }
        self.note("merge labels", labels=list(names), into=into, restores=restores)

    def undo_labels(self, change: int) -> tuple[int, int]:
        """Take back a change of labels; how many documents have their labels back, and how many were changed since.

        Labels have their earlier names, and the keys that select their columns. A document that was changed since has
        the labels of now, but those of a merge in place of what they were merged into, if it still carries that.
        """
        kind, detail = self._undoable(change)
        restores: dict[str, Any] = detail.get("restores", {})
        documents = 0, 0
        if kind == "rename label":
            self._rename_back(restores["number"], detail["old"], detail["new"])
        elif kind in ("retire label", "reinstate label"):
            number = require_label(self._connection, detail["label"])
            flag = kind == "reinstate label"
            self._connection.execute("UPDATE labels SET retired = ? WHERE number = ?", (flag, number))
            self._touch(number)
        elif kind == "merge labels":
            documents = self._divide(change, **{name: restores[name] for name in ("first", "target", "merged")})
        if "created" in restores:
            low, high = restores["created"]
            self._remove_unused(low, high, strict=kind == "add labels")
        self._restore_concepts(restores.get("concepts") or {})
        self.note("undo labels", undone=change, **{name: value for name, value in detail.items() if name != "restores"})
        return documents

    def _undoable(self, change: int) -> tuple[str, dict[str, Any]]:
        """The kind and the details of a change of labels that was not taken back yet."""
        query = "SELECT kind, detail FROM changes WHERE number = ?"
        row = self._connection.execute(query, (change,)).fetchone()
        if row is None:
            raise DataError(f"there is no change {change:,}.")
        kind, detail = row[0], None if row[1] is None else json.loads(row[1])
        if kind not in _UNDONE:
            raise DataError(
                f"change {change:,} is not one of labels but {kind!r}, which `undo_labels` cannot take back."
            )
        if detail is None or not ("restores" in detail or kind in ("retire label", "reinstate label")):
            raise DataError(f"change {change:,} cannot be taken back: what it changed is no longer in the history.")
        later = "SELECT detail FROM changes WHERE kind = 'undo labels' AND number > ? AND detail NOT NULL"
        if any(json.loads(text)["undone"] == change for (text,) in self._connection.execute(later, (change,))):
            raise DataError(f"change {change:,} was taken back already.")
        return kind, detail

    def _rename_back(self, number: int, old: str, new: str) -> None:
        if find_label(self._connection, new) != number:
            raise DataError(f"the label {new!r} was renamed or merged since; take that back first.")
        self._check_free(old)
        self._connection.execute("UPDATE labels SET name = ? WHERE number = ?", (old, number))
        self._touch(number)

    def _check_free(self, name: str) -> None:
        if find_label(self._connection, name) is not None:
            raise DataError(f"there is a label {name!r} again; rename it first.")

    def _divide(self, change: int, first: int, target: int, merged: Sequence[tuple[int, str, str, int, int]]) -> Any:
        """Take back a merge: the labels come back under their numbers, and documents carry them again."""
        for number, name, key, declared, retired in merged:
            self._check_free(name)
            command = (
                "INSERT OR REPLACE INTO labels (number, name, key, declared, retired, changed) VALUES (?,?,?,?,?,?)"
            )
            self._connection.execute(command, (number, name, bytes.fromhex(key), declared, retired, self._first))
            self._touch(number)
        gone, restored, changed = {number for number, *_ in merged}, 0, 0
        entries = self._connection.execute(
            "SELECT document, labels FROM changes WHERE number >= ? AND number < ? AND document NOT NULL",
            (first, change),
        ).fetchall()
        for document, packed in entries:
            row = self._connection.execute("SELECT id FROM documents WHERE number = ?", (document,)).fetchone()
            if row is None or packed is None:  # forgotten since
                changed += row is None
                continue
            before, (_, state) = State.unpack(packed), require_document(self._connection, row[0])
            if unchanged_since(self._connection, [document], change):
                self.put(row[0], state.body, before.labels, before.accepted, before.rejected)
                restored += 1
                continue
            changed += 1
            if target in state.labels and before.labels:
                kept = set(state.labels) - ({target} - {*before.labels})
                self.put(row[0], state.body, kept | (gone & {*before.labels}))
        return restored, changed

    def _remove_unused(self, low: int, high: int, strict: bool) -> None:
        """Remove the labels with these numbers that no document or decision names; with `strict`, all must be so."""
        query = (
            "SELECT number, name, EXISTS (SELECT 1 FROM document_labels WHERE label = number) OR "
            "EXISTS (SELECT 1 FROM document_decisions WHERE label = number) FROM labels "
            "WHERE number BETWEEN ? AND ? AND name NOT NULL"
        )
        for number, name, used in self._connection.execute(query, (low, high)).fetchall():
            if used and strict:
                raise DataError(f"documents carry the label {name!r} by now; merge or retire it instead.")
            if not used:
                self._connection.execute("UPDATE labels SET name = NULL, was = name WHERE number = ?", (number,))
                self._touch(number)

    def _restore_concepts(self, changed: dict[str, list[Any]]) -> None:
        """Concepts as they were before a change, if nobody has changed them since."""
        if not changed:
            return
        concepts = dict(read_concepts(self._connection) or {})
        for id, (_, after) in changed.items():
            if (concepts[id].to_json() if id in concepts else None) != after:
                raise DataError(f"the concept {id!r} was changed in the vocabulary since; nothing was taken back.")
        known = {id: Concept.from_json(before) for id, (before, _) in changed.items() if before is not None}
        new = iter([known[id] for id in known if id not in concepts])
        restored = []
        for id, concept in concepts.items():
            if id not in changed:
                restored.append(concept)
            elif id in known:
                restored.append(known[id])
            else:  # one that was renamed keeps its place
                restored += [one for one in (next(new, None),) if one is not None]
        self._write_concepts(Concepts.of([*restored, *new]))

    def _last_label(self) -> int:
        """The highest number that a label has or had."""
        row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'labels'").fetchone()
        return 0 if row is None else int(row[0])

    def retire_label(self, name: str, retired: bool) -> None:
        """Set whether a label is retired, that is, no longer suggested."""
        number = require_label(self._connection, name)
        self._connection.execute("UPDATE labels SET retired = ? WHERE number = ?", (retired, number))
        self._touch(number)
        self.note("retire label" if retired else "reinstate label", label=name)

    def set_concepts(self, concepts: Concepts, labels: Sequence[str] = ()) -> None:
        """Replace the vocabulary; those of its concepts that are to be `labels` are added where they are not yet."""
        self._add_many(labels)
        self._write_concepts(concepts)
        self.note("vocabulary", concepts=len(concepts))

    def _add_many(self, names: Sequence[str]) -> None:
        """What `label` does, for many names."""
        known = {name for (name,) in self._connection.execute("SELECT name FROM labels WHERE name NOT NULL")}
        new = [name for name in names if name not in known]
        keys = [pack_key(key) for key in label_keys(names_array(new))]
        taken = {bytes(key) for (key,) in self._connection.execute("SELECT key FROM labels")}
        free = [(name, key) for name, key in zip(new, keys, strict=True) if key not in taken]
        self._connection.executemany(
            "INSERT INTO labels (name, key, declared, retired, changed) VALUES (?, ?, 0, 0, ?)",
            [(name, key, self._first) for name, key in free],
        )
        added = {name for name, _ in free}
        self._labels |= {
            label.number: label
            for label in Label.read(self._connection, "changed = ?", self._first)
            if label.name in added
        }
        for name in new:  # those whose key an earlier label of this name has
            self.label(name)

    def _rename_concepts(self, names: Sequence[str], new: str) -> dict[str, list[Any]]:
        """The vocabulary follows labels that were renamed or merged; what that changed in it, see `_difference`."""
        before = after = read_concepts(self._connection)
        for old in names:
            after = None if after is None else after.renamed(old, new)
        if before is None or after is None or after is before:
            return {}
        self._write_concepts(after)
        return _difference(before, after)

    def _write_concepts(self, concepts: Concepts) -> None:
        write_concepts(self._connection, concepts, self._first)
        self._concepts = concepts

    def _touch(self, number: int) -> None:
        self._connection.execute("UPDATE labels SET changed = ? WHERE number = ?", (self._first, number))
        (self._labels[number],) = Label.read(self._connection, "number = ?", number)

    def note(self, kind: str, **detail: Any) -> None:
        """Add an entry that does not concern a single document."""
        self._record(kind, json.dumps(detail, ensure_ascii=False) if detail else None)

    def _record(
        self, kind: str, detail: str | None = None, edit: Edit | None = None, certificate: bytes | None = None
    ) -> None:
        """Add an entry to the journal; the body of a document is kept only if it changed."""
        document = labels = body = None
        if edit is not None:
            self._edits.append(edit)
            document, before, after = edit.document, edit.before, edit.after
            if before is not None:
                labels = before.pack()
                body = None if after is not None and after.body == before.body else before.body
        self.last += 1
        time = _utc(datetime.now(timezone.utc))
        nonce = os.urandom(16)
        self.chain = chain_entry(self.chain, self.last, time, kind, self._actor, certificate, nonce)
        self._connection.execute(
            "INSERT INTO changes "
            "(number, time, kind, actor, document, labels, body, detail, certificate, nonce, chain) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (self.last, time, kind, self._actor, document, labels, body, detail, certificate, nonce, self.chain),
        )


def _difference(before: Concepts, after: Concepts) -> dict[str, list[Any]]:
    """Id ↦ the concept before and after a change, as JSON values or None, of those that it changed."""
    changed = [id for id in dict.fromkeys([*before, *after]) if before.get(id) != after.get(id)]
    return {id: [None if one is None else one.to_json() for one in (before.get(id), after.get(id))] for id in changed}


def _utc(time: datetime) -> str:
    """A time as the journal has it; such strings sort by time."""
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds")


def redact(connection: sqlite3.Connection, since: datetime | None = None) -> None:
    """Delete the details of all changes, or only of those before a time and of what is no longer in the store.

    Of a change of labels nothing is kept if one of the names that it mentions is no longer that of a label.
    """
    if since is None:
        connection.execute("UPDATE changes SET detail = NULL, labels = NULL WHERE kind != 'refit'")
        return
    connection.execute(
        f"UPDATE changes SET detail = NULL, labels = NULL WHERE kind != 'refit' AND (time < ? OR {GONE})",
        (_utc(since),),
    )
    names = {name for (name,) in connection.execute("SELECT name FROM labels WHERE name NOT NULL")}
    notes = "SELECT number, detail FROM changes WHERE kind LIKE '% label%' AND detail NOT NULL"
    for number, detail in connection.execute(notes).fetchall():
        values = [json.loads(detail).get(key, []) for key in ("labels", "label", "old", "new", "into")]
        mentioned = {name for value in values for name in (value if isinstance(value, list) else [value])}
        if not mentioned <= names:
            connection.execute("UPDATE changes SET detail = NULL WHERE number = ?", (number,))
