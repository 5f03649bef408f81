"""`Store`: documents and their model in one folder, learning and forgetting while in use, safe against any crash.

A write        validate → rows of the tables in a transaction → the next version of the model → commit → swap
opening        the last snapshot of the model → the net difference of the journal behind it → the current version

The database is the truth, the model follows from it. A call that returned is on the disk; one that failed or was killed
left nothing. Readers in other threads hold a version, which never changes; readers in other processes follow by
`refresh`. See `ripml.store.database` for the files, `journal` for the tables and `versions` for the model.
"""

from __future__ import annotations

import copy
import os
import shutil
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ripml.base.errors import DataError, ModelFolderError, ParameterError, RipmlError, StoreError
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.model.multilabel import Multilabel
from ripml.store.database import (
    WriterLock,
    check_store,
    create_database,
    is_unfinished,
    remove_unfinished,
    sweep,
    sync_folders,
)
from ripml.store.entries import checked_data, checked_id, checked_ids, checked_name, label_names, parsed
from ripml.store.journal import (
    Delta,
    Draft,
    Label,
    Snapshot,
    State,
    all_documents,
    all_labels,
    gone_labels,
    labelset,
    packed_key,
    since,
    unused_labels,
)
from ripml.store.reading import Reader
from ripml.store.versions import Bodies, Version
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules
from ripml.text import Doc2Vec, Encoder, TfIdf

__all__ = ["Store"]

# A snapshot is taken after a write when more changes than both were made since the last one.
SNAPSHOT_LEAST, SNAPSHOT_SHARE = 1000, 10  # changes; one in so many rows
_TURN_SECONDS = 5e-4  # Python's own is ten times as long
_READ_BLOCK = 10_000  # documents whose words are looked at together


class Store(Reader):
    """Documents with their labels in a folder, and the model that they make.

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
        """Open the folder, with the lock to write or without; see `open` and `create`."""
        super().__init__(folder, lock, encoder)
        self._changes = 0  # since the snapshot
        self._refit_turn = threading.Lock()
        self._refitting = False  # whether what the journal says since a snapshot will be needed for another model
        if lock is not None:
            # A thread that answers waits so long for one that learns to let go of the interpreter.
            sys.setswitchinterval(min(sys.getswitchinterval(), _TURN_SECONDS))
            snapshot = self._database.read(Snapshot.read)
            sweep(folder, snapshot.folder)
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
        """Make a store of a data set in a new or empty folder, fit the model and open it for writing.

        Documents have the data's ids, or else "0", "1", …. Of a row that has both features and a text, the features
        are learnt from and kept. `first_feature`, `features` and `rules` are as for `DocumentModel.fit`.
        """
        folder, settings = Path(path), RIPML() if model is None else clone(model)
        if not isinstance(settings, RIPML):
            raise ParameterError(f"a store needs a model that can forget, RIPML; got {type(settings).__name__}.")
        ids = checked_data(data).ids or [str(i) for i in range(len(data))]
        if folder.exists() and not is_unfinished(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise StoreError(f"{folder}: there is something here already; choose a new or empty folder.")
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be created ({error.strerror}).") from error
        lock = WriterLock(folder)
        try:
            sweep(folder)
            fitted = _fitted(data, first_feature, settings, features, rules)
            bodies = Bodies.of(fitted).packed(data)
            rows = np.flatnonzero(np.diff(data.Y.indptr) > 0) + 1
            version = Version.of(0, fitted, rows, np.arange(1, data.Y.shape[1] + 1))
            snapshot = Snapshot(0, Snapshot.folder_of(0))
            version.model.save(folder / snapshot.folder)

            def fill(connection: sqlite3.Connection) -> None:
                keys = map(packed_key, settings.vocabulary_.keys)
                labels = [(*label, 0, 0, 0) for label in zip(data.label_names, keys, strict=True)]
                command = "INSERT INTO labels (name, key, declared, retired, changed) VALUES (?, ?, ?, ?, ?)"
                connection.executemany(command, labels)
                for number, (id, body) in enumerate(zip(ids, bodies, strict=True), 1):
                    carried = (data.Y.indices[data.Y.indptr[number - 1] : data.Y.indptr[number]] + 1).tolist()
                    row = (number, id, body, labelset(carried))
                    connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
                    pairs = [(number, label) for label in carried]
                    connection.executemany("INSERT INTO document_labels VALUES (?, ?)", pairs)
                snapshot.write(connection)

            create_database(folder, fill)
            sync_folders(made)
            return cls(folder, lock, fitted.text.encoder if isinstance(fitted.text, Encoder) else None)
        except BaseException:
            remove_unfinished(folder, made)
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], readonly: bool = False, encoder: Any = None) -> Store:
        """Open a store that is there. With `readonly`, nothing is ever written, and no writer is in the way.

        A store whose texts were turned into features by an encoder of yours needs that `encoder`.
        """
        folder = Path(path)
        if readonly:
            return cls(folder, None, encoder)
        check_store(folder)  # before the lock's file is made in a folder that is none
        lock = WriterLock(folder)
        try:
            return cls(folder, lock, encoder)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Take a last snapshot, so that opening is quick, and let go of the folder; the last model stays readable."""
        with self._turn:
            if self._closed:
                return
            if self._lock is not None and not self._lock.held:  # a fork: connection and files are its parent's
                self._closed = True
                return
            try:
                if self._lock is not None and self._changes:
                    self._snapshot_or_warn()
            finally:
                self._closed = True
                self._database.close()
                if self._lock is not None:
                    self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -------------------------------------------------------------------------------------------------------- write

    def learn(self, documents: Iterable[Mapping[str, Any]] | Dataset) -> list[str]:
        """Learn documents, all or none, and return their ids once they are on the disk.

        Each has "text" or "features", "labels", and an "id" or not, as a line of JSONL; or they are the rows of a data
        set. Without an id it gets a new one; the document that has the same id already is replaced.
        """
        data = self.model.same_form(parsed(documents))
        ids = data.ids or []
        self.model.check(data)
        bodies = self._bodies.packed(data)

        def plan(draft: Draft) -> None:
            numbers = {column: draft.label(data.label_names[column]) for column in np.unique(data.Y.indices).tolist()}
            for row, (id, body) in enumerate(zip(ids, bodies, strict=True)):
                columns = data.Y.indices[data.Y.indptr[row] : data.Y.indptr[row + 1]].tolist()
                draft.put(id, body, [numbers[column] for column in columns])

        self._write(plan)
        return ids

    def forget(self, ids: Iterable[str]) -> None:
        """Forget documents, all or none: the model becomes what it would be had it never seen them."""
        names = checked_ids(ids)

        def plan(draft: Draft) -> None:
            for id in names:
                draft.remove(id)

        self._write(plan)

    def relabel(self, documents: str | Mapping[str, Iterable[str]], labels: Iterable[str] | None = None) -> None:
        """Give a document other labels, or each of several: `relabel(id, labels)` or `relabel({id: labels, …})`."""
        if not isinstance(documents, Mapping):
            if labels is None:
                raise DataError(f"the new labels of document {checked_id(documents)!r} are missing.")
            documents = {checked_id(documents): labels}
        wanted = {checked_id(id): label_names(names) for id, names in documents.items()}

        def plan(draft: Draft) -> None:
            for id, names in wanted.items():
                draft.relabel(id, [draft.label(name) for name in names])

        self._write(plan)

    def add_labels(self, names: Iterable[str]) -> None:
        """Declare labels that no document carries yet; `compact` keeps them."""
        wanted = label_names(names)
        self._write(lambda draft: draft.add_labels(wanted))

    def rename_label(self, old: str, new: str) -> None:
        """Give a label another name."""
        names = checked_name(old), checked_name(new)
        self._write(lambda draft: draft.rename_label(*names))

    def merge_labels(self, names: Iterable[str], into: str) -> None:
        """Make one label of several: documents that carry one of `names` carry `into` instead, and these are gone."""
        wanted, target = label_names(names), checked_name(into)
        self._write(lambda draft: draft.merge_labels(wanted, target))

    def retire_label(self, name: str) -> None:
        """Suggest a label no more; documents keep it."""
        known = checked_name(name)
        self._write(lambda draft: draft.retire_label(known, True))

    def reinstate_label(self, name: str) -> None:
        """Suggest a retired label again."""
        known = checked_name(name)
        self._write(lambda draft: draft.retire_label(known, False))

    def _write(self, plan: Callable[[Draft], None]) -> None:
        """One call: its rows in the database and the next version of the model, or neither."""
        with self._changing():
            if self._has_slots and self._database.read(gone_labels):
                self._save(self._version)
            with self._database.transaction() as connection:
                draft = self._draft(connection)
                plan(draft)
                delta = draft.delta
                self._stale = True  # from here on the current version may be unable to learn on
                version = self._advanced(self._version, delta)
            self._changes += delta.change - self._version.change
            self._version, self._stale = version, False
            if self._changes > max(SNAPSHOT_LEAST, self.model.model.n_rows_ // SNAPSHOT_SHARE) and not self._refitting:
                self._snapshot_or_warn()

    def _draft(self, connection: sqlite3.Connection) -> Draft:
        """What will be written behind the last change, which must be in the model: another may have written after all.

        That cannot be where locks work; some file systems of networks say yes to everybody.
        """
        draft = Draft(connection)
        if draft.last != self._version.change:
            self._stale = True
            raise StoreError(
                f"{self._folder}: another process has written here meanwhile; nothing was changed, try again."
            )
        return draft

    @property
    def _has_slots(self) -> bool:
        """Whether a new label may take the column of Phi of one that is gone: who replays both has no room for it."""
        return self.model.model.model_.has_fixed_columns

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A writer's turn, with a version that can be advanced."""
        with self._turn:
            self._open()
            if self._lock is None:
                raise StoreError(f"{self._folder}: this store was opened with readonly=True; nothing was changed.")
            if not self._lock.held:
                raise StoreError(f"{self._folder}: was opened before this process was forked; open it again.")
            if self._stale:
                self._follow()
            yield

    # ------------------------------------------------------------------------------------------------------ upkeep

    def snapshot(self) -> None:
        """Save the model, so that the next opening need not bring an older one up to date."""
        with self._changing():
            if self._changes and not self._refitting:  # which ends with a snapshot
                self._save(self._version)

    def _snapshot_or_warn(self) -> None:
        """A snapshot that nobody asked for must not make a change that is on the disk look like a failure."""
        try:
            if not self._stale:
                self._save(self._version)
        except Exception as error:
            known = isinstance(error, RipmlError)
            reason = str(error) if known else f"{self._folder}: no snapshot was taken ({error!r})."
            warnings.warn(f"{reason} All changes are stored, but opening will take longer.", RuntimeWarning, 3)

    def warm_up(self) -> None:
        """Make now what the first change needs, so that it is as quick as the others; see `RIPML.warm_up`."""
        with self._changing():
            model = copy.copy(self.model.model)
            assert isinstance(model, RIPML)
            self._version = replace(self._version, model=replace(self.model, model=model.warm_up()))

    def refit(self) -> None:
        """Fit the model anew on all documents, with the same settings and features of the same kind.

        The one before answers meanwhile, and others go on writing: what they changed is learnt before the new model
        takes its place.
        """
        if not self._refit_turn.acquire(blocking=False):
            raise StoreError(f"{self._folder}: a refit is under way already.")
        try:
            if not self._refitted():  # what happened meanwhile cannot be learnt, so that nobody may write now
                with self._turn:
                    self._refitted()
        finally:
            self._refit_turn.release()

    def _refitted(self) -> bool:
        """Fit on what there is now and catch up; False if that cannot be done, and then nothing was."""
        with self._changing():
            start, before = self._version.change, self.model
            documents, labels = self._database.read(lambda c: (list(all_documents(c)), all_labels(c)))
            bodies, self._refitting = self._bodies, True
        try:
            return self._caught_up(start, before, bodies, documents, labels)
        finally:
            self._refitting = False

    def _caught_up(
        self,
        start: int,
        before: DocumentModel,
        bodies: Bodies,
        documents: Sequence[tuple[int, State]],
        labels: Sequence[Label],
    ) -> bool:
        data = bodies.data([state for _, state in documents], labels)
        settings = clone(before.model)
        features = "tfidf" if before.text is None else before.text  # of the same kind
        fitted = _fitted(data, before.first_feature, settings, features, before.rules)
        for label in labels:
            if label.retired:
                fitted.model.retire_label(label.name)
        rows = [number for number, state in documents if state.labels]
        numbers = [label.number for label in labels]
        keys = [(packed_key(key), number) for key, number in zip(settings.vocabulary_.keys, numbers, strict=True)]

        def enter(connection: sqlite3.Connection) -> None:
            connection.executemany("UPDATE labels SET key = ? WHERE number = ?", keys)

        with self._changing():
            if self._database.read(Snapshot.read).change > start:  # and what the journal said before it is gone
                return False
            version = Version.of(start, fitted, rows, numbers)
            try:
                version = self._advanced(version, self._database.read(lambda c: since(c, start)))
            except RipmlError:  # such as labels that have changed their names with others
                return False
            self._save(replace(version, change=version.change + 1), "refit", enter)
            if isinstance(fitted.text, Encoder):
                self._encoder = fitted.text.encoder
        return True

    def compact(self) -> None:
        """Leave no trace of what is gone: no byte of it is in any file of the folder afterwards.

        Labels that no document carries and nobody declared are dropped; words and names of features that no document
        has any more are taken out of the model, whose columns stay; what the journal says of the past is deleted.
        Where documents were forgotten that doc2vec or the centres of clusters were made of, the model is fitted anew.
        """
        with self._changing():
            model, doc2vec = self.model.model, isinstance(self.model.text, Doc2Vec)
            if model.warm_["forgotten"] and (doc2vec or (len(model.centres_) > 1 and model.n_rows_)):
                self._refitted()
            unused = self._database.read(unused_labels)
            self._stale = True
            delta = Delta(self._version.change + 1, [replace(label, name=None) for label in unused], [])
            version = self._advanced(self._version, delta)
            if self.model.text is None or isinstance(self.model.text, TfIdf):
                version = replace(version, model=version.model.without_features(self._unused_features()))

            def clean(connection: sqlite3.Connection) -> None:
                connection.executemany("DELETE FROM labels WHERE number = ?", [(label.number,) for label in unused])
                connection.execute("UPDATE changes SET detail = NULL, labels = NULL")

            self._save(version, "compact", clean)
            self._database.shrink()
            try:
                sweep(self._folder, Snapshot.folder_of(version.change), ignore_errors=False)
            except OSError as error:
                raise StoreError(
                    f"{self._folder}: {error.filename} cannot be removed ({error.strerror}), and deleted data may be "
                    "left in it; compact again."
                ) from error

    def _unused_features(self) -> NDArray[np.bool_]:
        """The features that no document has, (d,)."""
        unused = np.ones(self.model.model.n_features_in_, bool)

        def question(connection: sqlite3.Connection) -> None:
            bodies = connection.execute("SELECT body FROM documents")
            while block := bodies.fetchmany(_READ_BLOCK):
                states = [State(bytes(body), ()) for (body,) in block]
                unused[self._version.features(states).indices] = False

        self._database.read(question)
        return unused

    def _save(
        self, version: Version, kind: str | None = None, also: Callable[[sqlite3.Connection], None] | None = None
    ) -> None:
        """Make a version the snapshot and the current one: folder, then pointer, then older folders are removed."""
        snapshot = Snapshot(version.change, Snapshot.folder_of(version.change))
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
            if also is not None:
                also(connection)
            snapshot.write(connection)
        self._version, self._stale, self._changes = version, False, 0
        sweep(self._folder, snapshot.folder)


def _fitted(
    data: Dataset, first_feature: int | None, model: RIPML, features: Any, rules: Rules | None
) -> DocumentModel:
    """The model of documents, which must be one that learns and forgets exactly."""
    fitted = DocumentModel.fit(data, first_feature, model, features=features, rules=rules, always_named=True)
    model.model_.check_exact()
    return fitted
