"""`Store`: documents and their model in one folder, learning and forgetting while in use, safe against any crash.

A write    validate → rows of the tables in a transaction → the next version of the model → commit → swap
Opening    the last snapshot of the model → the net difference of the journal since then → the current version

The database is the truth, and the model follows from it. The changes of a call that returned are on the disk; a call
that failed or was killed changed nothing. Readers in other threads hold a version, which never changes; readers in
other processes follow the writer with `refresh`. See `ripml.store.database` for the files, `ripml.store.journal` for
the tables and `ripml.store.versions` for the model.
"""

from __future__ import annotations

import copy
import os
import shutil
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ripml.base.errors import DataError, ModelFolderError, ParameterError, RipmlError, StoreError, check_count
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.model.explain import Example
from ripml.model.multilabel import Multilabel
from ripml.store import database, journal, versions
from ripml.store.completion import LabelCompletion, LabelInfo
from ripml.store.database import Database, WriterLock
from ripml.store.documents import Bodies, check_data, check_id, check_ids, check_labels, check_text, parse_documents
from ripml.store.journal import Delta, Draft, Label, Snapshot, State
from ripml.store.versions import Version
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules
from ripml.text import Encoder, TfIdf

__all__ = ["Store"]

T = TypeVar("T")

# A write takes a snapshot when there were more changes since the last one than both of these.
SNAPSHOT_CHANGES = 1000
SNAPSHOT_SHARE = 10  # one tenth of the rows
_SWITCH_SECONDS = 5e-4  # a tenth of Python's default
_BLOCK = 10_000  # documents whose features are read together


class Store:
    """Documents with their labels in a folder, and the model that is trained on them.

    One process at a time opens a store for writing, any number for reading. Methods may be called from any thread.

    >>> import tempfile
    >>> from scipy.sparse import csr_array
    >>> texts, Y = ["red apple", "green apple", "blue sky", "grey sky"], np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> data = Dataset(X=None, Y=csr_array(Y), label_names=["fruit", "weather"], texts=texts, name="tiny")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Store.create(folder + "/store", data, RIPML.paper(n_dims=8, n_neighbors=1)) as store:
    ...         ids = store.learn([{"id": "pear", "text": "green apple sky", "labels": ["fruit", "new"]}])
    ...         store.forget(["0"])
    ...         len(store), store.document("pear")["labels"]
    (4, ['fruit', 'new'])
    """

    def __init__(self, folder: Path, lock: WriterLock | None, encoder: Any = None) -> None:
        """Open the folder, for writing if `lock` is given; use `open` and `create` instead."""
        self._folder, self._lock, self._encoder = folder, lock, encoder
        self._database = Database(folder, writable=lock is not None)
        self._turn = threading.RLock()  # one thread at a time changes what follows
        self._closed = False
        # Whether an attempt to advance the version failed half way, so that it must be loaded before the next one.
        self._stale = False
        self._identity = self._database.identity()
        self._version = self._load()
        self._completion: LabelCompletion | None = None
        self._changes = 0  # since the snapshot
        self._refit_turn = threading.Lock()
        self._refitting = False  # while True, the journal since the last snapshot must be kept for the new model
        if lock is not None:
            # The longest time that a thread which answers waits for one that learns to yield the interpreter.
            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
            snapshot = self._database.read(Snapshot.read)
            database.remove_leftovers(folder, snapshot.folder)
            self._changes = self._version.change - snapshot.change

    # ---------------------------------------------------------------------------------------------- create and open

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        data: Dataset,
        model: Multilabel | None = None,
        first_feature: int | None = None,
        *,
        features: Any = "tfidf",
        rules: Rules | None = None,
    ) -> Store:
        """Create a store from a data set in a new or empty folder, fit the model, and open the store for writing.

        Documents get the ids of the data set, or else "0", "1", …. If a row has both features and a text, the features
        are learnt and kept. `first_feature`, `features` and `rules` are as for `DocumentModel.fit`.
        """
        folder, settings = Path(path), RIPML() if model is None else clone(model)
        if not isinstance(settings, RIPML):
            raise ParameterError(f"a store needs a model that can forget, RIPML; got {type(settings).__name__}.")
        ids = check_data(data).ids or [str(i) for i in range(len(data))]
        if folder.exists() and not database.is_unfinished(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise StoreError(f"{folder}: already exists and is not an empty folder; choose a new or empty one.")
        new_folders = [place for place in (folder, *folder.parents) if not place.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be created ({error.strerror}).") from error
        lock = WriterLock(folder)
        try:
            database.remove_leftovers(folder)
            fitted = _fit(data, first_feature, settings, features, rules)
            bodies = Bodies.of(fitted).pack(data)
            rows = np.flatnonzero(np.diff(data.Y.indptr) > 0) + 1
            version, snapshot = Version.of(0, fitted, rows, np.arange(1, data.Y.shape[1] + 1)), Snapshot(0)
            version.model.save(folder / snapshot.folder)

            def fill(connection: sqlite3.Connection) -> None:
                keys = map(journal.pack_key, settings.vocabulary_.keys)
                labels = [(*label, 0, 0, 0) for label in zip(data.label_names, keys, strict=True)]
                command = "INSERT INTO labels (name, key, declared, retired, changed) VALUES (?, ?, ?, ?, ?)"
                connection.executemany(command, labels)
                for number, (id, body) in enumerate(zip(ids, bodies, strict=True), 1):
                    carried = [column + 1 for column in data.label_columns(number - 1)]
                    row = (number, id, body, journal.hash_label_set(carried))
                    connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
                    pairs = [(number, label) for label in carried]
                    connection.executemany("INSERT INTO document_labels VALUES (?, ?)", pairs)
                snapshot.write(connection)

            database.create_database(folder, fill, new_folders)
            return cls(folder, lock, fitted.text.encoder if isinstance(fitted.text, Encoder) else None)
        except BaseException:
            database.remove_unfinished(folder, new_folders)
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], readonly: bool = False, encoder: Any = None) -> Store:
        """Open an existing store. With `readonly` nothing is ever written, and a writer may be at work meanwhile.

        A store whose texts are turned into features by an encoder of yours needs that `encoder`.
        """
        folder = Path(path)
        if readonly:
            return cls(folder, None, encoder)
        database.check_store(folder)  # first, so that no lock file is created in a folder that is not a store
        lock = WriterLock(folder)
        try:
            return cls(folder, lock, encoder)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Take a last snapshot, so that opening is quick, and release the folder; the last model stays readable."""
        with self._turn:
            if self._closed:
                return
            if self._lock is not None and not self._lock.held:  # after a fork: connection and files are the parent's
                self._closed = True
                return
            try:
                if self._lock is not None and self._changes:
                    self._try_snapshot()
            finally:
                self._closed = True
                self._database.close()
                if self._lock is not None:
                    self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> Version:
        """The current version, from the last snapshot and the journal."""

        def query(connection: sqlite3.Connection) -> tuple[Snapshot, Delta]:
            snapshot = Snapshot.read(connection)
            return snapshot, journal.delta_since(connection, snapshot.change)

        while True:
            snapshot, delta = self._database.read(query)
            try:
                version = Version.load(self._folder / snapshot.folder, snapshot.change, self._encoder)
            except ModelFolderError as error:
                if self._database.read(Snapshot.read) != snapshot:  # a writer has replaced and removed this one
                    continue
                remedy = "The documents are intact, but their model is not; restore the folder from a copy"
                raise StoreError(f"{self._folder}: {error} {remedy}.") from error
            try:
                return version.advanced(delta)
            except (RipmlError, ValueError, TypeError, KeyError, IndexError) as error:
                raise StoreError(f"{self._folder}: the model and the journal do not fit together ({error}).") from error

    # --------------------------------------------------------------------------------------------------------- read

    @property
    def model(self) -> DocumentModel:
        """The current version of the model. It never changes: use the same one for questions that belong together."""
        return self._version.model

    @property
    def version(self) -> int:
        """The number of the last change that the model contains."""
        return self._version.change

    def refresh(self) -> DocumentModel:
        """Follow what a writer in another process has committed, and return the model."""
        with self._turn:
            if self._stale or self._lock is None:
                self._follow()
            return self.model

    def _follow(self) -> None:
        """Bring the version up to date: by what the journal has since then, or from the snapshot."""
        self._check_open()
        change, identity = self._version.change, self._database.identity()
        reload = self._stale or identity != self._identity  # such as when the folder was replaced by a copy

        def query(connection: sqlite3.Connection) -> Delta | None:
            if reload or Snapshot.read(connection).change > change:  # the journal before the snapshot was cut
                return None
            return journal.delta_since(connection, change)

        delta = self._database.read(query)
        self._stale = True
        self._version = self._load() if delta is None else self._version.advanced(delta)
        self._stale, self._identity = False, identity

    def labels(self, prefix: str = "", n: int = 20) -> list[LabelInfo]:
        """At most n labels that begin with `prefix`, or have a word that does, ignoring case; most frequent first."""
        check_count("n", n)
        if not isinstance(prefix, str):
            raise ParameterError(f"`prefix` must be a string; got {prefix!r}.")
        model, completion = copy.copy(self._version.estimator), self._completion
        if completion is None or completion.vocabulary is not model.vocabulary_:
            self._completion = completion = LabelCompletion(model.vocabulary_)
        return completion.complete(prefix, n, model.frequency_)

    def document(self, id: str) -> dict[str, Any]:
        """A document as in JSONL: "id", "labels", and "text" or "features"."""
        check_id(id)

        def query(connection: sqlite3.Connection) -> dict[str, Any]:
            state = journal.require_document(connection, id)[1]
            names = journal.label_names(connection, state.labels)
            return {"id": id, "labels": names, **self._bodies.to_json(state.body)}

        return self._read(query)

    def ids(self) -> list[str]:
        """The ids of all documents, in the order in which they were added."""
        return self._read(lambda c: [id for (id,) in c.execute("SELECT id FROM documents ORDER BY number")])

    def __len__(self) -> int:
        return self._read(lambda c: int(c.execute("SELECT count(*) FROM documents").fetchone()[0]))

    def history(self, n: int = 20) -> list[dict[str, Any]]:
        """The last n changes, newest first: "number", "time" (UTC), "kind", and what is still known about them.

        A change of a document has its "id" and its labels "before" and "after". `compact` deletes everything but the
        kinds and times of changes.
        """
        check_count("n", n)
        return self._read(lambda c: journal.history(c, n))

    def rows(self, numbers: Iterable[int], model: DocumentModel | None = None) -> dict[int, str]:
        """The ids of the documents of rows, which are numbered as in a version of the model, by default the current.

        A row belongs to the document that it was learnt from; rows of documents that were removed are left out.
        """
        documents = (self.model if model is None else model).row_documents
        assert documents is not None
        wanted = [int(number) for number in numbers]
        if outside := [number for number in wanted if not 0 <= number < len(documents)]:
            raise ParameterError(f"row numbers must be from 0 to {len(documents) - 1}; got {outside[0]}.")

        def query(connection: sqlite3.Connection) -> dict[int, str]:
            command = "SELECT id FROM documents WHERE number = ?"
            ids = {row: connection.execute(command, (int(documents[row]),)).fetchone() for row in wanted}
            return {row: id[0] for row, id in ids.items() if id is not None}

        return self._read(query)

    def carriers(self, labels: Iterable[str], n: int = 20) -> list[str]:
        """The ids of the first n documents that carry exactly these labels."""
        check_count("n", n)
        names = check_labels(labels)

        def query(connection: sqlite3.Connection) -> list[str]:
            label_set = journal.hash_label_set(journal.require_label(connection, name) for name in names)
            command = "SELECT id FROM documents WHERE labelset = ? ORDER BY number LIMIT ?"
            return [id for (id,) in connection.execute(command, (label_set, n))]

        return self._read(query)

    def example_documents(self, example: Example, model: DocumentModel, n: int) -> list[str]:
        """The id of the document that an example of an explanation is, or the ids of the first n with its labels."""
        if example.row is not None:
            return list(self.rows([example.row], model).values())
        with suppress(DataError):  # a writer can have renamed one of the labels since
            return self.carriers(example.labels, n)
        return []

    @property
    def _bodies(self) -> Bodies:
        return Bodies.of(self.model)

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        return self._database.read(query)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self._folder}: this store was closed; open it again.")

    # -------------------------------------------------------------------------------------------------------- write

    def learn(self, documents: Iterable[Mapping[str, Any]] | Dataset) -> list[str]:
        """Learn documents, all or none, and return their ids once they are on the disk.

        Each document is a mapping as in a line of JSONL, with "text" or "features", "labels" and optionally an "id"; or
        the documents are the rows of a data set. A document without an id gets a new one; a document with the id of an
        existing one replaces it.
        """
        data = self.model.same_form(parse_documents(documents))
        ids = data.ids or []
        self.model.check(data)
        bodies = self._bodies.pack(data)

        def change(draft: Draft) -> None:
            numbers = {column: draft.label(data.label_names[column]) for column in np.unique(data.Y.indices).tolist()}
            for row, (id, body) in enumerate(zip(ids, bodies, strict=True)):
                draft.put(id, body, [numbers[column] for column in data.label_columns(row)])

        self._write(change)
        return ids

    def forget(self, ids: Iterable[str]) -> None:
        """Forget documents, all or none: the model becomes what it would be without them."""
        names = check_ids(ids)

        def change(draft: Draft) -> None:
            for id in names:
                draft.remove(id)

        self._write(change)

    def relabel(self, documents: str | Mapping[str, Iterable[str]], labels: Iterable[str] | None = None) -> None:
        """Replace the labels of one document, `relabel(id, labels)`, or of several, `relabel({id: labels, …})`."""
        if not isinstance(documents, Mapping):
            if labels is None:
                raise DataError(f"the new labels of document {check_id(documents)!r} are missing.")
            documents = {check_id(documents): labels}
        wanted = {check_id(id): check_labels(names) for id, names in documents.items()}

        def change(draft: Draft) -> None:
            for id, names in wanted.items():
                draft.relabel(id, [draft.label(name) for name in names])

        self._write(change)

    def add_labels(self, names: Iterable[str]) -> None:
        """Declare labels that no document carries yet; `compact` keeps them."""
        wanted = check_labels(names)
        self._write(lambda draft: draft.add_labels(wanted))

    def rename_label(self, old: str, new: str) -> None:
        """Rename a label."""
        names = check_text("a label", old), check_text("a label", new)
        self._write(lambda draft: draft.rename_label(*names))

    def merge_labels(self, names: Iterable[str], into: str) -> None:
        """Merge labels into one: documents that carry one of `names` carry `into` instead, and `names` are removed."""
        wanted, target = check_labels(names), check_text("a label", into)
        self._write(lambda draft: draft.merge_labels(wanted, target))

    def retire_label(self, name: str) -> None:
        """Stop suggesting a label; documents keep it."""
        known = check_text("a label", name)
        self._write(lambda draft: draft.retire_label(known, True))

    def reinstate_label(self, name: str) -> None:
        """Suggest a retired label again."""
        known = check_text("a label", name)
        self._write(lambda draft: draft.retire_label(known, False))

    def _write(self, change: Callable[[Draft], None]) -> None:
        """Make the changes of one call: its rows in the database and the next version of the model, or neither."""
        with self._writing():
            # Replaying the journal adds new labels before it drops removed ones. If a new label takes the column of a
            # removed one, there would be no room for it, so a snapshot has to come between the two.
            fixed = self._version.estimator.model_.has_fixed_columns
            if fixed and self._database.read(lambda c: Label.read(c, "name IS NULL")):
                self._save(self._version)
            with self._database.transaction() as connection:
                draft = self._draft(connection)
                change(draft)
                delta = draft.delta
                self._stale = True  # if this fails half way, the current version cannot be advanced again
                version = self._version.advanced(delta)
            self._changes += delta.change - self._version.change
            self._version, self._stale = version, False
            limit = max(SNAPSHOT_CHANGES, self.model.model.n_rows_ // SNAPSHOT_SHARE)
            if self._changes > limit and not self._refitting:
                self._try_snapshot()

    def _draft(self, connection: sqlite3.Connection) -> Draft:
        """A draft of changes that follow the last one in the model.

        Another process may have written in spite of the lock: some network file systems grant every lock.
        """
        draft = Draft(connection)
        if draft.last != self._version.change:
            self._stale = True
            raise StoreError(f"{self._folder}: another process has changed this store; nothing was changed, try again.")
        return draft

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A block in which this thread alone changes the store, starting from an up-to-date version."""
        with self._turn:
            self._check_open()
            if self._lock is None:
                raise StoreError(f"{self._folder}: this store was opened with readonly=True; nothing was changed.")
            if not self._lock.held:
                raise StoreError(f"{self._folder}: was opened before this process was forked; open it again.")
            if self._stale:
                self._follow()
            yield

    # -------------------------------------------------------------------------------------------------- maintenance

    def snapshot(self) -> None:
        """Save the model, so that opening the store need not bring an older one up to date."""
        with self._writing():
            if self._changes and not self._refitting:  # a refit ends with a snapshot anyway
                self._save(self._version)

    def _try_snapshot(self) -> None:
        """Take a snapshot, and warn if that fails: the changes themselves are on the disk already."""
        try:
            if not self._stale:
                self._save(self._version)
        except Exception as error:
            known = isinstance(error, RipmlError)
            reason = str(error) if known else f"{self._folder}: no snapshot was taken ({error!r})."
            warnings.warn(f"{reason} All changes are stored, but opening will take longer.", RuntimeWarning, 3)

    def warm_up(self) -> None:
        """Compute now what the first change needs, so that it is as quick as later ones; see `RIPML.warm_up`."""
        with self._writing():
            estimator = copy.copy(self._version.estimator)
            self._version = replace(self._version, model=replace(self.model, model=estimator.warm_up()))

    def refit(self) -> None:
        """Fit the model again on all documents, with the same settings and the same kind of features.

        Meanwhile the current model answers, and other threads may write: what they change is learnt before the new
        model replaces the current one.
        """
        if not self._refit_turn.acquire(blocking=False):
            raise StoreError(f"{self._folder}: a refit is already running.")
        try:
            if not self._refit():  # the changes made meanwhile could not be learnt: fit again while nobody writes
                with self._turn:
                    self._refit()
        finally:
            self._refit_turn.release()

    def _refit(self) -> bool:
        """Fit on the current documents and learn what changed meanwhile; False, with no effect, if that fails."""
        with self._writing():
            start, before = self._version.change, self.model
            documents, labels = self._database.read(lambda c: (list(journal.all_documents(c)), journal.all_labels(c)))
            self._refitting = True
        try:
            data = Bodies.of(before).to_dataset([state for _, state in documents], labels)
            settings = clone(before.model)
            features = "tfidf" if before.text is None else before.text
            fitted = _fit(data, before.first_feature, settings, features, before.rules)
            for label in labels:
                if label.retired:
                    settings.retire_label(label.name)
            rows = [number for number, state in documents if state.labels]
            version = Version.of(start, fitted, rows, [label.number for label in labels])
            keys = zip(map(journal.pack_key, settings.vocabulary_.keys), version.labels.view.tolist(), strict=True)

            def update_keys(connection: sqlite3.Connection) -> None:
                connection.executemany("UPDATE labels SET key = ? WHERE number = ?", keys)

            with self._writing():
                if self._database.read(Snapshot.read).change > start:  # the journal before the snapshot was cut
                    return False
                try:
                    version = version.advanced(self._database.read(lambda c: journal.delta_since(c, start)))
                except RipmlError:  # such as labels that exchanged their names
                    return False
                self._save(replace(version, change=version.change + 1), "refit", update_keys)
                if isinstance(fitted.text, Encoder):
                    self._encoder = fitted.text.encoder
            return True
        finally:
            self._refitting = False

    def compact(self) -> None:
        """Remove every trace of what was deleted: no byte of it is left in any file of the folder.

        Labels that no document carries and that were not declared are dropped. Words and feature names that no document
        has any more are removed from the model, whose columns stay. The details of the history are deleted. If
        documents were forgotten that doc2vec or the centres of clusters were computed from, the model is fitted again.
        """
        with self._writing():
            if versions.contains_forgotten_rows(self.model):
                self._refit()
            carried = "EXISTS (SELECT 1 FROM document_labels WHERE label = number)"
            condition = f"NOT declared AND name NOT NULL AND NOT {carried}"
            unused = self._database.read(lambda c: Label.read(c, condition))
            self._stale = True
            delta = Delta(self._version.change + 1, [replace(label, name=None) for label in unused], [])
            version = self._version.advanced(delta)
            if self.model.text is None or isinstance(self.model.text, TfIdf):
                version = replace(version, model=version.model.without_features(self._unused_features()))

            def clean(connection: sqlite3.Connection) -> None:
                connection.executemany("DELETE FROM labels WHERE number = ?", [(label.number,) for label in unused])
                connection.execute("UPDATE changes SET detail = NULL, labels = NULL")

            self._save(version, "compact", clean)
            self._database.shrink()
            try:
                database.remove_leftovers(self._folder, Snapshot(version.change).folder, ignore_errors=False)
            except OSError as error:
                raise StoreError(
                    f"{self._folder}: {error.filename} cannot be removed ({error.strerror}), and deleted data may be "
                    "left in it; compact again."
                ) from error

    def _unused_features(self) -> NDArray[np.bool_]:
        """A mask of the features that no document has, (d,)."""
        unused = np.ones(self.model.model.n_features_in_, bool)

        def query(connection: sqlite3.Connection) -> None:
            bodies = connection.execute("SELECT body FROM documents")
            while block := bodies.fetchmany(_BLOCK):
                states = [State(bytes(body), ()) for (body,) in block]
                unused[self._version.features(states).indices] = False

        self._database.read(query)
        return unused

    def _save(
        self, version: Version, kind: str | None = None, update: Callable[[sqlite3.Connection], None] | None = None
    ) -> None:
        """Make a version the current one and its snapshot: write its folder, point to it, then remove older folders.

        The transaction that points to the folder also adds an entry of this `kind` to the journal and does `update`.
        """
        snapshot = Snapshot(version.change)
        place = self._folder / snapshot.folder
        self._database.check_in_place()
        try:
            version.model.save(place)
        except BaseException as error:
            shutil.rmtree(place, ignore_errors=True)
            if isinstance(error, ModelFolderError):
                raise StoreError(f"{self._folder}: no snapshot was taken: {error}") from error
            raise
        with self._database.transaction() as connection:
            if kind is not None:
                self._draft(connection).note(kind)
            if update is not None:
                update(connection)
            snapshot.write(connection)
        self._version, self._stale, self._changes = version, False, 0
        database.remove_leftovers(self._folder, snapshot.folder)


def _fit(data: Dataset, first_feature: int | None, model: RIPML, features: Any, rules: Rules | None) -> DocumentModel:
    """The model of documents, which must be able to learn and forget exactly."""
    fitted = DocumentModel.fit(data, first_feature, model, features=features, rules=rules, always_named=True)
    model.model_.check_exact()
    return fitted
