"""What a store answers: its current model, its documents and its history; for readers in threads and processes."""

from __future__ import annotations

import copy
import sqlite3
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ripml.base.errors import DataError, ModelFolderError, ParameterError, RipmlError, StoreError, check_count
from ripml.model.estimator import RIPML
from ripml.store import journal
from ripml.store.database import Database, WriterLock
from ripml.store.entries import checked_id, label_names
from ripml.store.history import history
from ripml.store.journal import Delta, Snapshot, since
from ripml.store.labels import LabelFinder, LabelInfo
from ripml.store.versions import Bodies, Version, advance, load
from ripml.tagging.documents import DocumentModel

__all__ = ["Reader"]

T = TypeVar("T")


class Reader:
    """An open store, as far as reading goes."""

    def __init__(self, folder: Path, lock: WriterLock | None, encoder: Any = None) -> None:
        self._folder, self._lock, self._encoder = folder, lock, encoder
        self._database = Database(folder, writable=lock is not None)
        self._turn = threading.RLock()
        self._closed = False
        # Whether the model must be loaded before it can be advanced, as an attempt to do so did not come to its end.
        self._stale = False
        self._identity = self._database.identity()
        self._version = self._loaded()
        self._finder: LabelFinder | None = None

    def _loaded(self) -> Version:
        """The current version, from the last snapshot and the journal."""
        while True:
            snapshot, delta = self._database.read(_from_snapshot)
            try:
                version = load(self._folder / snapshot.folder, snapshot.change, self._encoder)
            except ModelFolderError as error:
                if self._database.read(Snapshot.read) != snapshot:  # a writer moved on and removed this one
                    continue
                remedy = "The documents are intact, but their model is not; restore the folder from a copy"
                raise StoreError(f"{self._folder}: {error} {remedy}.") from error
            try:
                return self._advanced(version, delta)
            except (RipmlError, ValueError, TypeError, KeyError, IndexError) as error:
                raise StoreError(f"{self._folder}: the model and the journal do not fit together ({error}).") from error

    def _advanced(self, version: Version, delta: Delta) -> Version:
        if not (delta.labels or delta.edits):
            return replace(version, change=delta.change)
        return advance(version, delta)

    @property
    def model(self) -> DocumentModel:
        """The current version of the model. It never changes: take it once, and ask it all that belongs together."""
        return self._version.model

    @property
    def version(self) -> int:
        """The number of the last change that is in the model."""
        return self._version.change

    def labels(self, prefix: str = "", n: int = 20) -> list[LabelInfo]:
        """The first n labels that begin so, or have a word that does, in any case; the most carried come first."""
        check_count("n", n)
        if not isinstance(prefix, str):
            raise ParameterError(f"`prefix` must be a string; got {prefix!r}.")
        model, finder = self.model.model, self._finder
        assert isinstance(model, RIPML)
        model = copy.copy(model)
        if finder is None or finder.labels is not model.vocabulary_:
            self._finder = finder = LabelFinder(model.vocabulary_)
        return finder.infos(model, prefix, n)

    def refresh(self) -> DocumentModel:
        """Follow what a writer in another process committed, and return the model."""
        with self._turn:
            if self._stale or self._lock is None:
                self._follow()
            return self.model

    def _follow(self) -> None:
        self._open()
        change, identity = self._version.change, self._database.identity()
        again = self._stale or identity != self._identity  # such as a copy that was put in its place
        delta = None if again else self._database.read(lambda c: _delta_since(c, change))
        self._stale = True
        self._version = self._loaded() if delta is None else self._advanced(self._version, delta)
        self._stale, self._identity = False, identity

    def document(self, id: str) -> dict[str, Any]:
        """A document as it is in JSONL: "id", "labels", and "text" or "features"."""
        checked_id(id)

        def question(connection: sqlite3.Connection) -> dict[str, Any]:
            found = journal.find(connection, id)
            if found is None:
                raise DataError(f"there is no document {id!r}.")
            state = found[1]
            return {"id": id, "labels": journal.names_of(connection, state.labels), **self._bodies.shown(state.body)}

        return self._ask(question)

    def ids(self) -> list[str]:
        """The ids of all documents, in the order in which they came."""
        return self._ask(lambda c: [id for (id,) in c.execute("SELECT id FROM documents ORDER BY number")])

    def __len__(self) -> int:
        return self._ask(lambda c: int(c.execute("SELECT count(*) FROM documents").fetchone()[0]))

    def history(self, n: int = 20) -> list[dict[str, Any]]:
        """The last n changes, newest first: "number", "time" (UTC), "kind", and what is still known of them.

        Of a document that is its "id", and its labels "before" and "after". `compact` forgets all but the
        kinds of changes and their times.
        """
        check_count("n", n)
        return self._ask(lambda c: history(c, n))

    def rows(self, numbers: Iterable[int], model: DocumentModel | None = None) -> dict[int, str]:
        """The ids of the documents behind row numbers of a version of the model, by default the current one.

        A row is that of the document it was learnt from; rows whose documents are gone are left out.
        """
        documents = (self.model if model is None else model).row_documents
        assert documents is not None
        wanted = [int(number) for number in numbers]
        if outside := [number for number in wanted if not 0 <= number < len(documents)]:
            raise ParameterError(f"row numbers must be from 0 to {len(documents) - 1}; got {outside[0]}.")

        def question(connection: sqlite3.Connection) -> dict[int, str]:
            query = "SELECT id FROM documents WHERE number = ?"
            found = {row: connection.execute(query, (int(documents[row]),)).fetchone() for row in wanted}
            return {row: id[0] for row, id in found.items() if id is not None}

        return self._ask(question)

    def carriers(self, labels: Iterable[str], n: int = 20) -> list[str]:
        """The ids of the first n documents that carry exactly these labels."""
        check_count("n", n)
        names = label_names(labels)

        def question(connection: sqlite3.Connection) -> list[str]:
            key = journal.labelset(journal.numbers_of(connection, names))
            query = "SELECT id FROM documents WHERE labelset = ? ORDER BY number LIMIT ?"
            return [id for (id,) in connection.execute(query, (key, n))]

        return self._ask(question)

    @property
    def _bodies(self) -> Bodies:
        return Bodies.of(self.model)

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        self._open()
        return self._database.read(question)

    def _open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._folder}: this store was closed; open it again.")


def _from_snapshot(connection: sqlite3.Connection) -> tuple[Snapshot, Delta]:
    snapshot = Snapshot.read(connection)
    return snapshot, since(connection, snapshot.change)


def _delta_since(connection: sqlite3.Connection, change: int) -> Delta | None:
    """None where a snapshot was taken since: what the journal said before it is gone."""
    return None if Snapshot.read(connection).change > change else since(connection, change)
