"""Proof of forgetting: certificates of forgotten documents, and the checks that they hold.

A certificate is what `Store.forget(ids, certify=True)` returns for a document. Its key is random and is kept nowhere
else. The journal keeps only the digest, a keyed hash (HMAC-SHA256) of the id and the content, as part of the hash chain
of all changes. Whoever has the certificate and knows the id can show that this id was forgotten; without the key, the
digest says nothing about the id, not even to somebody who tries all ids.

`verify` replays the chain, compares certificates with their entries, compares the model with one that learns the
documents that are there now, and searches the bytes of all files for what is known about the forgotten documents.
"""

from __future__ import annotations

import hmac
import json
import mmap
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ripml.base.errors import DataError, StoreError
from ripml.decoding.evidence import apart
from ripml.model.estimator import RIPML
from ripml.store import journal
from ripml.store.database import SCHEMA
from ripml.store.documents import Bodies, check_id, encoder_vectors, parse_documents
from ripml.store.fulltext import words_of
from ripml.store.journal import Entry, Label, Snapshot, State
from ripml.store.maintenance import Finding
from ripml.store.versions import Version
from ripml.tagging.documents import DocumentModel
from ripml.text import Doc2Vec, TfIdf

__all__ = ["Certificate", "Contents", "Seal", "Trace", "Verification", "find_traces", "verify"]

_HEX = re.compile(r"[0-9a-f]{64}")
_PIECE = 16  # bytes of a piece of a text, or of a row of features, that is searched for
_CHANCE = 1e-6  # a needle is too short if random bytes of the size of the files contain it with this probability
_MAX_COMPARED = 1000  # about this many documents are compared by their scores


# --------------------------------------------------------------------------------------------------------- certificates


@dataclass(frozen=True)
class Certificate:
    """Evidence that a store forgot a document, for whoever holds it and knows the id of the document.

    >>> seal = Seal("ticket-17", Bodies("text"))
    >>> digest = seal.digest(b"red apple")
    >>> entry = Entry(3, "2026-01-01T00:00:00.000+00:00", "forget", None, 17, digest, bytes(16), bytes(32))
    >>> certificate = seal.certificate(bytes(32), entry)
    >>> certificate.names("ticket-17"), certificate.names("ticket-18"), certificate.describes(b"red apple")
    (True, False, True)
    >>> Certificate.from_json(certificate.to_json()) == certificate
    True
    """

    store: str  # the id of the store
    change: int  # the number of the change that forgot the document
    time: str
    key: str  # random, and kept nowhere else
    content: str  # the keyed hash of the content of the document
    digest: str  # the keyed hash of its id and content, which the journal has too
    chain: str  # the hash of the history up to this change

    def names(self, id: str) -> bool:
        """Whether this is the certificate of the document with this id."""
        digest = _digest(bytes.fromhex(self.key), id, bytes.fromhex(self.content))
        return hmac.compare_digest(digest.hex(), self.digest)

    def describes(self, content: bytes) -> bool:
        """Whether the document had this content."""
        return hmac.compare_digest(_keyed(bytes.fromhex(self.key), b"content", content).hex(), self.content)

    def to_json(self) -> dict[str, Any]:
        """The certificate as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Certificate:
        """The inverse of `to_json`; raise `DataError` if the value is not a certificate.

        >>> Certificate.from_json({"store": "x"})
        Traceback (most recent call last):
        ripml.base.errors.DataError: not a certificate: the fields must be store, change, time, key, content, ....
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(value, dict) or sorted(value) != sorted(names):
            raise DataError(f"not a certificate: the fields must be {', '.join(names)}.")
        for name in ("store", "key", "content", "digest", "chain"):
            if not isinstance(value[name], str) or not _HEX.fullmatch(value[name]):
                raise DataError(f"not a certificate: {name!r} must be 64 hexadecimal digits.")
        if type(value["change"]) is not int or not isinstance(value["time"], str):
            raise DataError("not a certificate: 'change' must be a whole number and 'time' a string.")
        return cls(**value)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> list[Certificate]:
        """The certificates of a file, one JSON object per line."""
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            certificates = [cls.from_json(json.loads(line)) for line in lines if line.strip()]
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
        except (ValueError, DataError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
            raise DataError(f"{path}: is not a file of certificates ({str(error).rstrip('.')}).") from error
        if not certificates:
            raise DataError(f"{path}: has no certificate.")
        return certificates


class Seal:
    """The key of a certificate that is about to be made: first the digest for the journal, then the certificate."""

    def __init__(self, id: str, bodies: Bodies) -> None:
        self._id, self._bodies, self._key, self._content = id, bodies, os.urandom(32), b""

    def digest(self, body: bytes) -> bytes:
        """What the journal keeps of the document."""
        self._content = _keyed(self._key, b"content", self._bodies.content(body))
        return _digest(self._key, self._id, self._content)

    def certificate(self, store: bytes, entry: Entry) -> Certificate:
        """The certificate, once the entry is in the journal."""
        assert entry.certificate is not None
        digests = (self._key, self._content, entry.certificate, entry.chain)
        return Certificate(store.hex(), entry.number, entry.time, *(digest.hex() for digest in digests))


def _keyed(key: bytes, purpose: bytes, message: bytes) -> bytes:
    return hmac.digest(key, b"ripml " + purpose + b"\0" + message, "sha256")


def _digest(key: bytes, id: str, content: bytes) -> bytes:
    return _keyed(key, b"document", content + id.encode())


# --------------------------------------------------------------------------------------------------------------- traces


@dataclass(frozen=True)
class Trace:
    """A needle that was found in a file."""

    what: str  # the description of the needle
    needle: bytes
    file: str  # relative to the folder
    offset: int


def find_traces(folder: Path, needles: Mapping[bytes, str]) -> list[Trace]:
    """Search the bytes of all files below a folder; for each needle and file the first occurrence.

    `needles` maps bytes to descriptions of them. Files that are removed during the search are skipped.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "notes").write_bytes(b"a red apple")
    ...     find_traces(Path(folder), {b"apple": "the text", b"pear": "another text"})
    [Trace(what='the text', needle=b'apple', file='notes', offset=6)]
    """
    traces = []
    for path in _files(folder):
        try:
            with path.open("rb") as file:
                if not os.fstat(file.fileno()).st_size:
                    continue
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    places = ((needle, what, content.find(needle)) for needle, what in needles.items())
                    name = path.relative_to(folder).as_posix()
                    traces += [Trace(what, needle, name, place) for needle, what, place in places if place >= 0]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{path}: cannot be searched ({error.strerror}).") from error
    return traces


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _pieces(content: bytes) -> Iterator[bytes]:
    """Content in pieces, so that what is left of a part of it is found; a short content as it is."""
    if len(content) < _PIECE:
        yield content
    for start in range(0, len(content) - _PIECE + 1, _PIECE):
        yield content[start : start + _PIECE]


def _spellings(text: str) -> set[bytes]:
    """The bytes of a text, plain and within JSON."""
    return {text.encode(), json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}


@dataclass(frozen=True)
class _Known:
    """What is known about a forgotten document: its id, and optionally its content and its labels."""

    id: str
    content: bytes | None
    body: bytes | None  # the content, with the vector of an encoder
    labels: tuple[str, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any], model: DocumentModel) -> _Known:
        """A document as in JSONL, of which "id" is required."""
        if not isinstance(document, Mapping) or "id" not in document:
            raise DataError("a known document must be a mapping with an 'id', and optionally 'text' and 'labels'.")
        id, content, body = check_id(document["id"]), None, None
        if "text" in document or "features" in document:
            data = model.same_form(parse_documents([document]))
            model.check(data)
            bodies = Bodies.of(model)
            (body,) = bodies.pack(data, encoder_vectors(model, data))
            content = bodies.content(body)
        return cls(id, content, body, tuple(document.get("labels", ())))

    def needles(self, version: Version) -> dict[bytes, str]:
        """The bytes that would be traces of the document, with descriptions."""
        found = dict.fromkeys(_spellings(self.id), f"The id {self.id!r}")
        for label in self.labels:
            found |= dict.fromkeys(_spellings(label), f"The label {label!r}")
        if self.content is not None and self.body is not None:
            found |= dict.fromkeys(_pieces(self.content), f"Content of {self.id!r}")
            row = _seen_rows(version, [State(self.body, ())])
            for values in (row.astype(np.float32), row.astype(np.float64)):
                found |= dict.fromkeys(_pieces(values.tobytes()), f"A part of the features of {self.id!r}")
        return {needle: what for needle, what in found.items() if any(needle)}


def _seen_rows(version: Version, states: Sequence[State]) -> Any:
    """The features of documents as the regression sees them, without zeros, one after the other."""
    estimator = version.estimator
    X, _ = apart(estimator.model_.features(estimator._validated(version.features(states), reset=False)))
    values = X.data if hasattr(X, "indptr") else np.asarray(X).ravel()
    return values[values != 0]


# --------------------------------------------------------------------------------------------------------------- report


@dataclass(frozen=True)
class Verification:
    """The result of `verify`: the findings of the checks, and notes about what no check can decide."""

    store: str  # the id of the store
    change: int  # the number of the last change
    chain: str  # the hash of the whole history; a copy of it that is kept elsewhere proves the history up to here
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is in order."""
        return all(finding.ok for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True)
class Contents:
    """What the tables have at one moment."""

    store: bytes
    entries: dict[int, Entry]  # by number
    broken: str  # where the hash chain is broken, or ""
    snapshot: Snapshot
    ids: list[str]
    documents: list[tuple[int, State]]
    labels: list[Label]
    unused_labels: int
    unredacted: list[int]  # entries that still have details of documents that are gone
    learnt: dict[int, int]  # document that is gone ↦ the change that added it, if it was not there from the creation
    fit: int  # the change whose documents the model was last fitted on; 0 for those from the creation

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> Contents:
        """The current contents."""

        def column(query: str) -> list[Any]:
            return [value for (value,) in connection.execute(query)]

        if not journal.store_id(connection):
            raise StoreError("this store is of format 1, whose history has no hash chain; open it for writing once.")
        try:
            journal.replay_chain(connection)
            broken = ""
        except StoreError as error:
            broken = str(error)
        details = "(labels NOT NULL OR body NOT NULL OR detail NOT NULL)"
        added = f"SELECT document, min(number) FROM changes WHERE kind = 'learn' AND {journal.GONE} GROUP BY document"
        return cls(
            journal.store_id(connection),
            {entry.number: entry for entry in Entry.read(connection)},
            broken,
            Snapshot.read(connection),
            column("SELECT id FROM documents ORDER BY number"),
            list(journal.all_documents(connection)),
            journal.all_labels(connection),
            len(journal.unused_labels(connection)),
            column(f"SELECT number FROM changes WHERE {journal.GONE} AND {details} ORDER BY number"),
            dict(connection.execute(added)),
            journal.last_fit(connection),
        )

    @property
    def change(self) -> int:
        """The number of the last change."""
        return max(self.entries, default=0)

    @property
    def chain(self) -> bytes:
        """The hash of the whole history."""
        return self.entries[self.change].chain if self.entries else self.store

    def last(self, *kinds: str) -> int:
        """The number of the last change of one of these kinds; 0 if there is none."""
        return max((entry.number for entry in self.entries.values() if entry.kind in kinds), default=0)


# --------------------------------------------------------------------------------------------------------------- checks


def verify(
    folder: Path,
    contents: Contents,
    version: Version,
    certificates: Sequence[Certificate],
    documents: Iterable[Mapping[str, Any]],
) -> Verification:
    """Check a store as it is on the disk; see `Store.verify`."""
    known = [_Known.of(document, version.model) for document in documents]
    findings = [_check_chain(contents), _check_erased(contents)]
    for certificate in certificates:
        findings += [
            _check_certificate(contents, certificate),
            *_check_named(certificate, known),
            _check_absent(contents, certificate, known),
        ]
    if known:
        findings += [_check_known_absent(contents, known), _check_traces(folder, contents, version, known)]
    findings += [_check_vocabulary(contents, version), *_check_model(contents, version, known)]
    return Verification(
        contents.store.hex(),
        contents.change,
        contents.chain.hex(),
        tuple(findings),
        tuple(_notes(contents, version, certificates, known)),
    )


def _check_chain(contents: Contents) -> Finding:
    if contents.broken:
        return Finding("chain", False, f"The hash chain of the history is broken: {contents.broken}.")
    n, chain = len(contents.entries), contents.chain.hex()
    return Finding("chain", True, f"The hash chain of all {n:,} changes is intact; it ends with {chain}.")


def _check_certificate(contents: Contents, certificate: Certificate) -> Finding:
    """Compare a certificate with its entry."""
    name, number = f"certificate {certificate.change}", certificate.change
    if certificate.store != contents.store.hex():
        return Finding(
            name, False, f"The certificate of change {number} belongs to another store, {certificate.store}."
        )
    entry = contents.entries.get(number)
    if entry is None:
        return Finding(name, False, f"The history has no change {number}, which the certificate names.")
    if entry.kind != "forget" or entry.certificate is None:
        return Finding(name, False, f"Change {number} is not one that forgot a document with a certificate.")
    pairs = {
        "digest": (entry.certificate.hex(), certificate.digest),
        "time": (entry.time, certificate.time),
        "hash of the history": (entry.chain.hex(), certificate.chain),
    }
    for what, (found, expected) in pairs.items():
        if found != expected:
            return Finding(name, False, f"Change {number} has another {what} than the certificate.")
    return Finding(name, True, f"The certificate is that of change {number}, made at {entry.time}.")


def _check_named(certificate: Certificate, known: Sequence[_Known]) -> Iterator[Finding]:
    """Compare a certificate with the ids and contents that its holder knows."""
    if not known:
        return
    name, number = f"document {certificate.change}", certificate.change
    document = next((document for document in known if certificate.names(document.id)), None)
    if document is None:
        yield Finding(name, False, f"The certificate of change {number} belongs to none of the ids that were given.")
    elif document.content is not None and not certificate.describes(document.content):
        yield Finding(name, False, f"The document {document.id!r} that change {number} forgot had another content.")
    else:
        content = "" if document.content is None else " with the content that was given"
        yield Finding(name, True, f"The document that change {number} forgot is {document.id!r}{content}.")


def _check_absent(contents: Contents, certificate: Certificate, known: Sequence[_Known]) -> Finding:
    """No document has the id of the certificate: with its key, an id that is not known can be compared too."""
    name, number = f"absent {certificate.change}", certificate.change
    named = {document.id for document in known if certificate.names(document.id)}
    if named.intersection(contents.ids) if named else any(map(certificate.names, contents.ids)):
        return Finding(name, False, f"The document that change {number} forgot is in the store again.")
    return Finding(name, True, f"None of the {len(contents.ids):,} documents has the id that change {number} forgot.")


def _check_known_absent(contents: Contents, known: Sequence[_Known]) -> Finding:
    present = set(contents.ids)
    if found := [document.id for document in known if document.id in present]:
        return Finding("absent", False, f"The document {found[0]!r} is in the store.")
    return Finding("absent", True, "No document of the store has one of the ids that were given.")


def _check_erased(contents: Contents) -> Finding:
    """All that was forgotten was erased by a later `compact`."""
    forgotten, compacted = contents.last("forget"), contents.last("compact")
    if forgotten > compacted:
        sentence = f"Change {forgotten} forgot a document, and the store has not been compacted since; compact it."
    elif forgotten > contents.snapshot.change:
        sentence = f"The saved model is that of change {contents.snapshot.change}, before the last forgotten document."
    elif contents.unredacted:
        sentence = f"Change {contents.unredacted[0]} still has details of a document that was forgotten; compact again."
    else:
        after = f" by change {compacted}" if compacted else ""
        return Finding("erased", True, f"The details of all forgotten documents were erased from the history{after}.")
    return Finding("erased", False, sentence)


def _check_vocabulary(contents: Contents, version: Version) -> Finding:
    """No label and no feature has a name that is known only from documents that are gone."""
    if contents.unused_labels:
        sentence = f"Labels that no document carries are in the store: {contents.unused_labels:,}; compact it."
        return Finding("names", False, sentence)
    names = version.model.columns
    if names is not None:
        unused = version.unused_features([[state for _, state in contents.documents]])
        text = version.model.text
        cleared = " " if text is not None and text.has(TfIdf) else "\0"
        n_left = sum(1 for name, gone in zip(names, unused, strict=True) if gone and not name.startswith(cleared))
        if n_left:
            return Finding(
                "names", False, f"Words that no document has are in the model: {n_left:,}; compact the store."
            )
    return Finding("names", True, "All names of labels and features in the model are those of documents in the store.")


def _check_traces(folder: Path, contents: Contents, version: Version, known: Sequence[_Known]) -> Finding:
    """Search all files for what is known about the forgotten documents."""
    needles: dict[bytes, str] = {}
    for document in known:
        needles |= document.needles(version)
    size = sum(path.stat().st_size for path in _files(folder))
    decisive = {needle: what for needle, what in needles.items() if size / 256 ** len(needle) < _CHANCE}
    found = find_traces(folder, decisive)
    if found:
        present = _present(contents, version)
        found = [trace for trace in found if not any(trace.needle in content for content in present)]
    if found:
        files = ", ".join(sorted({trace.file for trace in found}))
        return Finding("traces", False, f"{found[0].what} is left in {files}; compact the store, or remove the file.")
    what = f"{len(decisive):,} ids, labels and pieces of content and features"
    n_short = len(needles) - len(decisive)
    short = f"; too short to be told from chance, and not searched for: {n_short:,}" if n_short else ""
    return Finding("traces", True, f"The {size:,} bytes of all files have no trace of {what}{short}.")


def _present(contents: Contents, version: Version) -> list[bytes]:
    """What the documents that are in the store explain: bytes within it are not a trace of another document."""
    states = [state for _, state in contents.documents]
    labels = [str(label.name) for label in contents.labels]
    rows = _seen_rows(version, states) if states else np.empty(0)
    return [
        *(spelling for text in (*contents.ids, *labels) for spelling in _spellings(text)),
        *(state.body for state in states),
        *(rows.astype(dtype).tobytes() for dtype in (np.float32, np.float64)),
        *(statement.encode() for statement in SCHEMA),
        words_of(Bodies.of(version.model), (state.body for state in states)).encode(),
    ]


def _check_model(contents: Contents, version: Version, known: Sequence[_Known]) -> Iterator[Finding]:
    """Compare the model with one that has the same frozen parts and learns the documents that are there now."""
    model, states = version.estimator, [state for _, state in contents.documents]
    reference = version.relearnt(contents.documents, {label.number: label.name for label in contents.labels})
    label_sets, expected = _label_sets(model), _label_sets(reference)
    if label_sets != expected:
        n, more = model.n_rows_, sum((label_sets - expected).values())
        sentence = (
            f"The model has {n:,} rows for the {reference.n_rows_:,} documents with labels, {more:,} of them with "
            "labels that no document has; rebuild or refit it."
        )
        yield Finding("rows", False, sentence)
    else:
        yield Finding(
            "rows", True, f"The model has the {model.n_rows_:,} rows and label sets of the documents, no other."
        )
    # Votes are computed in float64, the other scores and what decisions change in float32.
    votes = model.model_.decoder.embedding.feature_type is None and not model.n_decided_
    tolerance = 1e-8 if votes else 1e-4
    asked = states[:: max(1, len(states) // _MAX_COMPARED)]
    asked += [State(document.body, ()) for document in known if document.body is not None]
    difference = version.difference(reference, version.features(asked)) if asked else 0.0
    sentence = (
        f"With the same frozen parts, the scores of {len(asked):,} documents differ from those of a model that learnt "
        f"only the documents in the store by {difference:.1g} at most; {tolerance:g} is allowed."
    )
    yield Finding("model", difference <= tolerance, sentence)


def _label_sets(model: RIPML) -> Counter[tuple[str, ...]]:
    """How many rows a model has with each label set, by names."""
    names, Y = model.classes_, model.training_labels()
    rows = np.split(Y.indices, Y.indptr[1:-1]) if Y.shape[0] else []
    return Counter(tuple(sorted(str(names[label]) for label in row)) for row in rows)


# ---------------------------------------------------------------------------------------------------------------- notes


def frozen_parts(version: Version) -> list[str]:
    """What the last fit chose from the documents of that time, and later changes leave as it is.

    `docs/in-use.md` has the whole table; parts that do not depend on documents, such as the seed, are left out.
    """
    model, estimator = version.model, version.estimator
    settings, tuned = estimator.get_params(deep=False), ("n_dims", "n_neighbors", "kernel", "relevance", "ridge")
    automatic = [name for name in tuned if isinstance(settings[name], str) and settings[name] == "auto"]
    parts = {
        "the words and weights of tf-idf": model.text is not None and model.text.has(TfIdf),
        "doc2vec": model.text is not None and model.text.has(Doc2Vec),
        "the feature weights": estimator.scaling_.weights is not None,
        "the means and deviations of features": estimator.scaling_.columns is not None,
        "the weights of views": bool(estimator.scaling_.views),
        "the cluster centres": len(estimator.clusters_) > 1,
        f"the settings {', '.join(automatic)}": bool(automatic),
        "the scale of 8-bit embeddings": "int8" in repr(estimator.index),
        "what the decoder chose, the threshold and the calibration": True,
    }
    return [part for part, present in parts.items() if present]


def _notes(
    contents: Contents, version: Version, certificates: Sequence[Certificate], known: Sequence[_Known]
) -> Iterator[str]:
    """What the checks do not show."""
    fit, parts = contents.fit, ", ".join(frozen_parts(version))
    at = f"on the documents of change {fit}" if fit else "when the store was created"
    yield f"Frozen since the last fit, {at}: {parts}. Learning and forgetting leave them as they are."
    for certificate in certificates:
        change = certificate.change
        entry = contents.entries.get(change)
        learnt = 0 if entry is None or entry.document is None else contents.learnt.get(entry.document, 0)
        if fit >= change:
            yield f"That fit came after change {change}: the frozen parts were chosen without its document."
        elif learnt > fit:
            yield f"The document of change {change} was learnt after that fit: they were chosen without it."
        else:
            yield f"The document of change {change} was there at that fit: they were chosen with it. Refit the model."
    if certificates and not known:
        yield "No id was given, so the files were not searched, and it was not checked whose certificates these are."
    yield "Backups and other copies of the folder are out of reach of this check, and the history does not list them."
    for certificate in certificates:
        yield f"Copies made before {certificate.time} may contain the document of change {certificate.change}."
