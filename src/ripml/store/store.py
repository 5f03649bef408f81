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
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ripml.base import notebook
from ripml.base.errors import (
    DataError,
    ModelFolderError,
    NewerFormatError,
    ParameterError,
    RipmlError,
    StoreError,
    check_count,
    is_number,
)
from ripml.datasets import Dataset
from ripml.datasets.vocabularies import concepts_given
from ripml.decoding.evidence import apart
from ripml.labels.concepts import Concept, Concepts
from ripml.model.audit import Audit, Finding
from ripml.model.estimator import RIPML
from ripml.model.explain import Example
from ripml.model.learning_curve import LearningCurve
from ripml.model.multilabel import Multilabel
from ripml.model.quality import LabelQuality, Quality
from ripml.store import database, dismissals, drift, fits, forgetting, fulltext, journal, leases, maintenance, versions
from ripml.store.completion import LabelCompletion, LabelInfo, LabelOrder
from ripml.store.database import Database, WriterLock
from ripml.store.dismissals import Doubt
from ripml.store.documents import (
    Bodies,
    check_actor,
    check_data,
    check_id,
    check_ids,
    check_labels,
    check_text,
    encoder_vectors,
    parse_documents,
)
from ripml.store.forgetting import Certificate, Contents, Seal, Verification
from ripml.store.fulltext import Filters, Found
from ripml.store.journal import Delta, Draft, Label, Snapshot, State
from ripml.store.label_list import LabelDetail, LabelOrders, LabelPage, Merging, Undone, measured_again
from ripml.store.maintenance import Backup, Report
from ripml.store.maps import KeptMap, StoredDocuments
from ripml.store.recipe import Recipe, fit_documents, suggestable
from ripml.store.versions import Version
from ripml.tagging.documents import DocumentModel
from ripml.tagging.map import DocumentMap
from ripml.tagging.review import choose
from ripml.tagging.rules import Rules, Suggestion
from ripml.text import Doc2Vec, TextFeatures, TfIdf

__all__ = ["Review", "Store"]

T = TypeVar("T")

# A write takes a snapshot when there were more changes since the last one than both of these: opening the store after a
# crash makes them again, some milliseconds each.
SNAPSHOT_CHANGES = 1000
SNAPSHOT_SHARE = 100  # a hundredth of the rows
_SWITCH_SECONDS = 5e-4  # a tenth of Python's default
_ATTEMPTS = 5  # to verify a store that a writer keeps changing
_MAX_DAYS = 36_500
_COMPLETIONS = 3  # languages for which the index of labels is kept beside the one in use
_BLOCK = 10_000  # documents whose features are read together
_LIGHT_EQUATIONS = 2000  # the most that a light reader solves to follow a change: 16 MB, a tenth of a second
_OTHER_ENCODER = 0.1  # relative difference of vectors from which on they are not from the same encoder


_REVIEWED_ROWS = 10_000  # documents without labels, and with labels, that are compared for the review queue
_REVIEW_ORDER = 100  # documents that are put in order at once
_REVIEW_CHANGES = 50  # after which they are put in order again

_NOTHING = Delta(0, [], [])  # that a reader follows now


class _ModelLostError(StoreError):
    """The documents of a store can be read, but their model cannot."""

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(f"{folder}: {problem}; {database.remedy(folder)}.")
        self.problem = problem


@dataclass(frozen=True)
class _UnusedFeatures:
    """The features (d,) that no document had after a change."""

    change: int
    features: NDArray[np.bool_]


@dataclass(frozen=True)
class Review:
    """A document to look at, and why: what is expected to be gained by its labels."""

    id: str
    text: str | None  # None in a store of features
    labels: list[Suggestion]  # that the model suggests, with their scores
    probability: float  # that the first of them is right; of a document with labels, that none is wrong or missing
    gain: float  # of a document with labels, how many are expected to be wrong or missing
    n_like: int  # documents without labels to which it would be the nearest with labels
    until: str  # the end of the lease, in UTC
    carried: list[str]  # the labels that the document has
    findings: list[Finding]  # what is doubtful about them

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        labels = [{"label": label, "score": score} for label, score in self.labels]
        return {**vars(self), "labels": labels, "findings": [finding.to_json() for finding in self.findings]}


@dataclass(frozen=True)
class _Reason:
    """Why a document is to be reviewed, as `Review` has it."""

    probability: float = 0.0
    gain: float = 0.0
    n_like: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class _ReviewOrder:
    """Documents to review by their numbers, those to look at first at the start, by one version of the model."""

    change: int
    documents: dict[int, _Reason]


class Store:
    """Documents with their labels in a folder, and the model that is trained on them.

    One process at a time opens a store for writing, any number for reading. Methods may be called from any thread.
    Those that change the store take `actor`, the name of the person or program behind the change, for the history.

    >>> import tempfile
    >>> from scipy.sparse import csr_array
    >>> texts, Y = ["red apple", "green apple", "blue sky", "grey sky"], np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> data = Dataset(X=None, Y=csr_array(Y), label_names=["fruit", "weather"], texts=texts, name="tiny")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Store.create(folder + "/store", data, RIPML.paper(n_dims=8, n_neighbors=1)) as store:
    ...         ids = store.learn([{"id": "pear", "text": "green apple sky", "labels": ["fruit", "new"]}])
    ...         _ = store.forget(["0"])
    ...         len(store), store.document("pear")["labels"]
    (4, ['fruit', 'new'])
    """

    def __init__(self, folder: Path, lock: WriterLock | None, encoder: Any = None, light: bool = False) -> None:
        """Open the folder, for writing if `lock` is given; use `open` and `create` instead."""
        self._folder, self._lock, self._encoder, self._light = folder, lock, encoder, light
        self._database = Database(folder, writable=lock is not None)
        # One thread at a time saves the model, also beside writers; while it is held, the journal since the snapshot is
        # kept. It is taken before the next one.
        self._saving = threading.RLock()
        self._turn = threading.RLock()  # one thread at a time changes what follows
        self._closed = False
        # Whether an attempt to advance the version failed half way, so that it must be loaded before the next one.
        self._stale = False
        self._identity = self._database.identity()
        # The files of the store when a reader fitted the model for itself because that of the store is lost, or None.
        self._lost: frozenset[tuple[str, int, int]] | None = None
        try:
            self._version, self._chain = self._load_or_fit(light)  # the model, and the hash of its history
        except BaseException:
            self._database.close()
            raise
        self._counted: tuple[bytes | None, int] = None, 0  # the hash of a history, and how many documents there were
        self._completions: dict[str, LabelCompletion] = {}  # by language
        self._completion_turn = threading.Lock()
        self._label_orders = LabelOrders()
        self._measured: Mapping[str, LabelQuality] | None = None  # label ↦ its quality, by the last report
        self._review_orders: dict[bool, _ReviewOrder] = {}  # of documents without and with labels
        self._review_turns = {False: threading.Lock(), True: threading.Lock()}
        self._kept_map: KeptMap | None = None
        self._shown_map: DocumentMap | None = None
        self._map_turn, self._layout_turn = threading.Lock(), threading.Lock()
        self._changes = 0  # since the snapshot
        self._refit_turn = threading.Lock()
        self._refitting = False  # while True, the journal since the last snapshot must be kept for the new model
        if lock is not None:
            # The longest time that a thread which answers waits for one that learns to yield the interpreter.
            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
            snapshot = self._database.read(Snapshot.read)
            database.remove_leftovers(folder, snapshot.folder)
            self._changes = self._version.change - snapshot.change
            if self._database.read(Recipe.read) is None:  # the store was created by an early ripml
                with self._database.transaction() as connection:
                    Recipe.of(self.model).write(connection)
            if not self._database.read(fulltext.is_ready):  # it was created by an earlier ripml
                with self._database.transaction() as connection:
                    fulltext.fill(connection, self._bodies)
            if self._is_outdated(self._version):
                self._refit(None)
                reason = "does not have the features that its documents were learnt with, since it was created by an"
                remedy = "earlier version of ripml; the model was fitted again"
                warnings.warn(f"{folder}: {reason} {remedy} on {len(self):,} documents.", RuntimeWarning, 3)
        self._check_encoder()

    # ---------------------------------------------------------------------------------------------- create and open

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        data: Dataset,
        model: Multilabel | None = None,
        first_feature: int | None = None,
        *,
        features: Any = "auto",
        rules: Rules | None = None,
        vocabulary: Any = None,
    ) -> Store:
        """Create a store from a data set in a new or empty folder, fit the model, and open the store for writing.

        Documents get the ids of the data set, or else "0", "1", …. If a row has both features and a text, the features
        are learnt and kept. `first_feature`, `features` and `rules` are as for `DocumentModel.fit`, and `vocabulary` is
        as for `set_vocabulary`.
        """
        concepts = concepts_given(vocabulary)
        folder, settings = Path(path), RIPML() if model is None else model
        if not isinstance(settings, RIPML):
            raise ParameterError(f"a store needs a model that can forget, RIPML; got {type(settings).__name__}.")
        settings = settings.cloned()
        ids = check_data(data).ids or [str(i) for i in range(len(data))]
        if not database.is_unfinished(folder):
            database.check_free(folder)
        new_folders = [place for place in (folder, *folder.parents) if not place.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(database.PRIVATE)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be created ({error.strerror}).") from error
        lock = WriterLock(folder)
        try:
            database.remove_leftovers(folder)
            fitted, vectors = fit_documents(data, first_feature, settings, features, rules, concepts)
            bodies = Bodies.of(fitted).pack(data, vectors)
            rows = np.flatnonzero(np.diff(data.Y.indptr) > 0) + 1
            version = Version.of(0, fitted, rows, np.arange(1, len(settings.classes_) + 1))
            snapshot = database.save_model(folder, 0, version.model)

            def fill(connection: sqlite3.Connection) -> None:
                keys = map(journal.pack_key, settings.vocabulary_.keys)
                labels = [(*label, 0, 0, 0) for label in zip(settings.classes_.tolist(), keys, strict=True)]
                command = "INSERT INTO labels (name, key, declared, retired, changed) VALUES (?, ?, ?, ?, ?)"
                connection.executemany(command, labels)
                for number, (id, body) in enumerate(zip(ids, bodies, strict=True), 1):
                    carried = [column + 1 for column in data.label_columns(number - 1)]
                    row = (number, id, body, journal.hash_label_set(carried))
                    connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
                    pairs = [(number, label) for label in carried]
                    connection.executemany("INSERT INTO document_labels VALUES (?, ?)", pairs)
                if concepts:
                    journal.write_concepts(connection, concepts, 0)
                fits.write(connection, fits.with_fit([], settings, 0))
                fulltext.fill(connection, Bodies.of(fitted))
                snapshot.write(connection)
                Recipe.of(version.model).write(connection)

            database.create_database(folder, fill, new_folders)
            return cls(folder, lock, _encoders(fitted.text))
        except BaseException:
            database.remove_unfinished(folder, new_folders)
            lock.release()
            raise

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], readonly: bool = False, encoder: Any = None, *, light: bool = False
    ) -> Store:
        """Open an existing store. With `readonly` nothing is ever written, and a writer may be at work meanwhile.

        A store whose texts are turned into features by an encoder of yours needs that `encoder`. If the model is lost
        or damaged, it is fitted again on the documents, with a warning: by a writer for all, by a reader for itself. A
        reader that is `light` stays so: where its model could follow a change only by solving a large system of
        equations first, such as that of a kernel matrix, it answers from the last snapshot until the writer takes the
        next one.
        """
        folder = Path(path)
        if readonly:
            return cls(folder, None, encoder, light)
        if light:
            raise ParameterError("only readers can be light; pass readonly=True too.")
        database.check_store(folder)  # first, so that no lock file is created in a folder that is not a store
        lock = WriterLock(folder)
        try:
            return cls(folder, lock, encoder)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Take a last snapshot, so that opening is quick, and release the folder; the last model stays readable."""
        if self._lock is not None and not self._lock.held:  # closed; or connection and files are those of the parent
            self._closed = True
            return
        with self._saving, self._turn:
            if self._closed:
                return
            try:
                if self._lock is not None and self._changes and not self._stale:
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

    def _load_or_fit(self, light: bool = False) -> tuple[Version, bytes]:
        """The current version and the hash of its history; if the model is lost, fitted again on the documents."""
        files = database.file_states(self._folder)
        try:
            return self._load(light)
        except _ModelLostError as lost:
            try:
                if self._lock is not None:
                    maintenance.rebuild_model(self._database, self._folder, self._encoder, None)
                    found, remedy = self._load(), "the model was fitted again"
                else:
                    refit, chain = maintenance.fit_anew(self._database, self._folder, self._encoder)
                    found = refit.version, chain
                    remedy = (
                        f"this reader has fitted it again for itself; `ripml rebuild {self._folder}` does so for all"
                    )
                    self._lost = files
            except RipmlError as error:  # such as an encoder that is missing
                raise lost from error
            warnings.warn(f"{self._folder}: {lost.problem}; {remedy}.", RuntimeWarning, 4)
            return found

    def _load(self, light: bool = False) -> tuple[Version, bytes]:
        """The current version, from the last snapshot and the journal, and the hash of its history.

        If that is to be `light`, it may be the version of the snapshot.
        """

        def query(connection: sqlite3.Connection) -> tuple[Snapshot, tuple[Delta, list[bytes]]]:
            try:
                snapshot = Snapshot.read(connection)
                delta = journal.delta_since(connection, snapshot.change)
            except (KeyError, TypeError, ValueError) as error:
                raise _ModelLostError(self._folder, f"{database.FILE} is damaged ({error})") from error
            chains = [journal.chain_at(connection, n) or b"" for n in (snapshot.change, delta.change)]
            return snapshot, (delta, chains)

        try:
            version, (delta, (chain_of_snapshot, chain)) = Version.saved(
                self._database, self._folder, query, self._encoder
            )
        except NewerFormatError as error:  # the model is intact
            raise StoreError(f"{self._folder}: {error}") from error
        except ModelFolderError as error:
            state, newest = "The documents are intact, but the model is not", database.newest_model(self._folder)
            change = self._database.read(lambda connection: query(connection)[1][0].change)
            if newest > change + 1:  # the model of a refit that was killed has the number of the next change
                state = f"{database.FILE} ends with change {change}, but there was a change {newest}: its log is lost,"
                state += " with all changes since; a backup may have them"
            raise _ModelLostError(self._folder, f"{error} {state}") from error
        if light and self._waits_for_snapshot(version, delta):
            return version, chain_of_snapshot
        if self._is_outdated(version) and (delta.edits or self._lock is not None):
            # It cannot be advanced. A writer fits it again, see `__init__`; a reader does so for itself.
            model = replace(version.model, rules=version.renamed_rules(delta))
            model = model if delta.concepts is None else model.with_concepts(delta.concepts)
            version = replace(version, change=delta.change, model=model)
            if self._lock is not None:
                return version, chain
            documents, labels = self._database.read(_documents_and_labels)
            return Recipe.of(model).refit(delta.change, documents, labels).version, chain
        try:
            return version.advanced(delta), chain
        except (RipmlError, ValueError, TypeError, KeyError, IndexError) as error:
            raise _ModelLostError(self._folder, f"the model and the journal do not fit together ({error})") from error

    def _waits_for_snapshot(self, version: Version, delta: Delta) -> bool:
        """Whether a reader that is to stay light leaves it to the writer to bring its model up to date."""
        return self._light and bool(delta.edits) and version.estimator.model_.n_unprepared > _LIGHT_EQUATIONS

    def _is_outdated(self, version: Version) -> bool:
        """Whether the features of its documents cannot be had again, as in stores of early versions.

        Those with doc2vec learnt other vectors than it infers, and those with an encoder did not keep its vectors.
        """
        if version.model.text is None or not version.model.text.encoders:
            return not version.model.repeatable
        first = self._database.read(lambda c: c.execute("SELECT body FROM documents LIMIT 1").fetchone())
        return self._encoder is not None and first is not None and not Bodies.of(version.model).has_vector(first[0])

    def _check_encoder(self) -> None:
        """Warn if the encoder gives the first document another vector than the one that was learnt."""
        if self._encoder is None or self.model.text is None:
            return
        row = self._database.read(lambda c: c.execute("SELECT id, body FROM documents LIMIT 1").fetchone())
        learnt = None if row is None else self._bodies.vectors([State(bytes(row[1]), ())])
        if learnt is None:
            return
        found = self.model.text.encoded([self._bodies.text(bytes(row[1]))])
        assert found is not None
        difference = float(np.linalg.norm(found - learnt) / max(float(np.linalg.norm(learnt)), 1e-30))
        if difference > _OTHER_ENCODER:
            warnings.warn(
                f"{self._folder}: the encoder gives document {row[0]!r} another vector than the one that was learnt "
                f"(relative difference {difference:.2g}), so answers may be wrong; pass the encoder that the store was "
                "created with, or refit.",
                RuntimeWarning,
                4,
            )

    # --------------------------------------------------------------------------------------------------------- read

    @property
    def model(self) -> DocumentModel:
        """The current version of the model. It never changes: use the same one for questions that belong together."""
        return self._version.model

    @property
    def version(self) -> int:
        """The number of the last change that the model contains."""
        return self._version.change

    def __repr__(self) -> str:
        state = ", closed" if self._closed else "" if self._lock is not None else ", read-only"
        return f"<Store {self._folder}{state}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the counts of the store, and what its model learnt."""
        if self._closed:
            return notebook.card("Store", notebook.note(f"{self._folder}: closed."))
        access = "open for writing" if self._lock is not None else "read-only"
        counts = {"documents": len(self), "changes": self.version}
        return self.model.to_html(f"Store {self._folder.name}: {access}", counts)

    def refresh(self) -> DocumentModel:
        """Follow what a writer in another process has committed, and return the model."""
        with self._turn:
            if self._stale or self._lock is None:
                self._follow()
            return self.model

    def _follow(self) -> None:
        """Bring the version up to date: by what the journal has since then, or from the snapshot."""
        self._check_open()
        if self._lost is not None and (files := database.file_states(self._folder)) != self._lost:
            self._lost = files
            with suppress(_ModelLostError):  # still
                self._version, self._chain = self._load()
                self._lost = None
        change, chain, identity = self._version.change, self._chain, self._database.identity()
        waits = self._light and self._version.estimator.model_.n_unprepared > _LIGHT_EQUATIONS
        # A new identity: such as when the folder was replaced by a copy.
        reload = self._stale or identity != self._identity or self._is_outdated(self._version)

        def query(connection: sqlite3.Connection) -> tuple[Delta, bytes] | None:
            # The journal before a snapshot is cut. A store whose model is lost has none.
            if reload or (self._lost is None and Snapshot.read(connection).change > change):
                return None
            if journal.chain_at(connection, change) != chain:  # another history, such as that of a restored copy
                return None
            if journal.last_change(connection) == change or (waits and journal.edits_since(connection, change)):
                return _NOTHING, chain
            delta = journal.delta_since(connection, change)
            return delta, journal.chain_at(connection, delta.change) or b""

        found = self._database.read(query)
        if found is not None and found[0] is _NOTHING:
            return
        self._stale = True
        if found is None:
            self._version, self._chain = self._load(self._light)
        else:
            self._version, self._chain = self._version.advanced(found[0]), found[1]
        self._stale, self._identity = False, identity

    def labels(self, prefix: str = "", n: int = 20, *languages: str | None) -> list[LabelInfo]:
        """At most n labels whose names are, begin with or have a word that begins with `prefix`, ignoring case.

        They come in this order, each part by frequency. If there are none, `prefix` may have one typing mistake: a
        character too many, missing or wrong, or two exchanged. Labels of a vocabulary are found by their names and
        synonyms in the first of these languages that it has, and by their notations; also those that no document
        carries.
        """
        check_count("n", n)
        if not isinstance(prefix, str):
            raise ParameterError(f"`prefix` must be a string; got {prefix!r}.")
        _, current, completion = self._completion(*languages)
        return completion.complete(prefix, n, current.model.frequency_)

    def _completion(self, *languages: str | None) -> tuple[int, DocumentModel, LabelCompletion]:
        """The number and the model of a version, and the index of its labels' names in a language."""
        version = self._version
        current, estimator = version.model, version.estimator
        concepts, vocabulary = current.concepts, estimator.vocabulary_
        language = "" if concepts is None else concepts.language(*languages)
        with self._completion_turn:  # so that the index is made once
            known = self._completions.pop(language, None)
            completion = (
                LabelCompletion(vocabulary, concepts, language)
                if known is None
                else known.current(vocabulary, concepts)
            )
            self._completions = {**dict(list(self._completions.items())[-_COMPLETIONS:]), language: completion}
        return version.change, current, completion

    def browse_labels(
        self, order: LabelOrder = "name", n: int = 100, start: int = 0, *languages: str | None
    ) -> LabelPage:
        """The n labels of an order from a place on: by "name", by "count" (largest first), "rarest", "newest", or by
        "precision", lowest first, as the last `quality` since the store was opened has it; what it does not have comes
        last.

        Labels of a vocabulary are sorted by their names in the first of these languages that it has.
        """
        check_count("n", n)
        check_count("start", start, least=0)
        change, current, completion = self._completion(*languages)
        numbers, frequency = current.label_numbers, current.model.frequency_
        assert numbers is not None
        with self._completion_turn:
            columns = self._label_orders.columns(order, completion, frequency, numbers, self._measured)
        labels = [completion.info(column, frequency) for column in columns[start : start + n].tolist()]
        return LabelPage(change, len(columns), start, labels)

    def label(self, name: str, n_examples: int = 5) -> LabelDetail:
        """What is known about a label: documents, decisions, quality, and the first documents that carry it."""
        check_count("n_examples", n_examples, least=0)
        version, known = self._version, check_text("a label", name)
        vocabulary, concepts = version.estimator.vocabulary_, version.model.concepts
        if known not in vocabulary:
            if concepts is None or known not in concepts:
                raise DataError(f"there is no label {known!r}.")
            return LabelDetail(known, False, 0, 0, 0, False, False, [], None)
        column = vocabulary.column_of(known)
        declared, accepted, rejected, examples = self._read(lambda c: journal.label_facts(c, known, n_examples))
        counts = int(version.estimator.frequency_[column]), accepted, rejected
        quality = (self._measured or {}).get(known)
        return LabelDetail(known, True, *counts, bool(vocabulary.retired[column]), declared, examples, quality)

    def document(self, id: str) -> dict[str, Any]:
        """A document as in JSONL: "id", "labels", "text" or "features", and decisions as "accepted" and "rejected"."""
        check_id(id)

        def query(connection: sqlite3.Connection) -> dict[str, Any]:
            state = journal.require_document(connection, id)[1]
            names = journal.label_names(connection, state.labels)
            decided = {"accepted": state.accepted, "rejected": state.rejected} if state.is_decided else {}
            return {
                "id": id,
                "labels": names,
                **{name: journal.label_names(connection, numbers) for name, numbers in decided.items()},
                **self._bodies.to_json(state.body),
            }

        return self._read(query)

    def search(
        self,
        query: str = "",
        *,
        labels: Iterable[str] = (),
        rejected: Iterable[str] = (),
        undecided: Iterable[str] = (),
        state: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        prefix: str = "",
        sort: Literal["relevance", "newest"] = "relevance",
        n: int = 20,
        after: str | None = None,
    ) -> Found:
        """At most n documents with all words of a query, the most relevant first, or the newest.

        A query has words, "phrases in quotes", beginnings of words (`auto*`), and words or phrases that must not occur
        (`-draft`); every text is a query. Case, width and accents that are combined or not make no difference. Without
        words, all documents are found, the newest first. The others say which documents are wanted: see `Filters`. The
        `next` of what is found is where the page `after` it begins.
        """
        yes, no, open = (tuple(check_labels(some)) for some in (labels, rejected, undecided))
        filters = Filters(yes, no, open, state, since, until, prefix)
        return self._read(lambda c: fulltext.search(c, self._bodies, query, filters, sort, n, after))

    def decisions(self) -> Iterator[dict[str, Any]]:
        """The documents of which some labels are decided, each as `document` gives it and `decide` takes it."""
        query = "SELECT id FROM documents WHERE number = ?"
        ids = self._read(lambda c: [c.execute(query, (number,)).fetchone()[0] for number in journal.decisions(c)])
        for id in ids:
            yield self.document(id)

    def decided_labels(self, after: int = 0) -> list[tuple[int, str, int, int]]:
        """Of each change after this one that decided labels: number, time, and how many it accepted and rejected.

        A label counts when it was accepted or rejected, also if that was taken back later. `compact` deletes what was
        taken back.
        """
        return self._read(lambda c: journal.decided_labels(c, after))

    def ids(self) -> list[str]:
        """The ids of all documents, in the order in which they were added."""
        return self._read(lambda c: [id for (id,) in c.execute("SELECT id FROM documents ORDER BY number")])

    def numbered_ids(self, n: int = 1000, after: int = 0) -> dict[int, str]:
        """The ids of n documents by number, in the order in which they were added: the next ones after a number.

        The last number of a page is what the next one comes after. Documents that come or go do not shift pages.
        """
        check_count("n", n)
        check_count("after", after, least=0)
        command = "SELECT number, id FROM documents WHERE number > ? ORDER BY number LIMIT ?"
        return self._read(lambda c: dict(c.execute(command, (after, n)).fetchall()))

    def __len__(self) -> int:
        def query(connection: sqlite3.Connection) -> tuple[bytes | None, int]:
            chain = journal.chain_at(connection, journal.last_change(connection))
            if chain and chain == self._counted[0]:
                return self._counted
            return chain, int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])

        self._counted = self._read(query)  # which takes SQLite as long as there are documents
        return self._counted[1]

    def history(self, n: int = 20, before: int | None = None) -> list[dict[str, Any]]:
        """The last n changes, newest first: "number", "time" (UTC), "kind", "actor", and what is known about them.

        With the number of a change in `before`, the n changes before that one.

        The actor is who made the change, as the call said, or None. A change of a document has its "id" and its labels
        "before" and "after"; where not all labels were known, these are the accepted ones, and "rejected_before" and
        "rejected_after" are there too. `compact` deletes everything but the times, kinds and actors of changes.
        """
        check_count("n", n)
        if before is not None:
            check_count("before", before, "None or ")
        return self._read(lambda c: journal.history(c, n, before))

    def verify(
        self, certificates: Iterable[Certificate] = (), documents: Iterable[Mapping[str, Any]] = ()
    ) -> Verification:
        """Check, on the files as they are, that what was forgotten is gone; the report has a sentence for each check.

        The hash chain of the history is replayed, each certificate is compared with its entry, and the model is
        compared with one that has the same frozen parts and learns the documents that are there now. `documents` are
        what is known about forgotten ones: mappings with the "id", and optionally "text" or "features", and "labels"
        that no other document carries. The bytes of all files are searched for them. The store is only read.
        """
        wanted, known = list(certificates), list(documents)
        with self._turn:
            for _ in range(_ATTEMPTS):
                version, _ = self._load()
                contents = self._read(Contents.read)
                if contents.change == version.change:  # a writer may have committed in between
                    return forgetting.verify(self._folder, contents, version, wanted, known)
        raise StoreError(f"{self._folder}: this store changes faster than it can be verified; try again.")

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

    def audit(self, limit: int = 1000, n_examples: int = 3) -> Audit:
        """The labels of documents that are most probably wrong and missing, at most `limit` of each.

        Each document is scored by a model of all others but its copies. Documents are named by their ids. Findings that
        were dismissed are left out until their document changes. See `ripml.RIPML.audit`. What of it is
        `worth_reading` is also what `review(labelled=True)` offers.
        """
        check_count("limit", limit)
        version, model, hidden = self.version, self.model, self._read(dismissals.dismissed)
        found = model.audit(limit + len(hidden), n_examples, lambda rows: self._texts_of(model, rows))
        found = found.renamed(dict(self.rows(sorted(found.rows), model)))
        wrong, missing = (
            [finding for finding in findings if Doubt.of(finding) not in hidden][:limit]
            for findings in (found.wrong, found.missing)
        )
        found = replace(found, wrong=wrong, missing=missing)
        shown = found.worth_reading()
        self._review_orders[True] = self._order_by_doubt(version, [*shown.wrong, *shown.missing])
        return found

    def _order_by_doubt(self, version: int, findings: Iterable[Finding]) -> _ReviewOrder:
        """The documents of findings, those of which most labels are expected to be wrong or missing first."""
        of: dict[str, list[Finding]] = {}
        for finding in findings:
            of.setdefault(str(finding.document), []).append(finding)
        reasons = {
            id: _Reason(prod(1 - one.doubt for one in some), sum(one.doubt for one in some), 0, tuple(some))
            for id, some in sorted(of.items(), key=lambda pair: -sum(one.doubt for one in pair[1]))
        }
        numbers = self._read(lambda c: {id: found[0] for id in reasons if (found := journal.find_document(c, id))})
        return _ReviewOrder(version, {number: reasons[id] for id, number in numbers.items()})

    def quality(self, limit: int = 1000, n_examples: int = 3) -> Quality:
        """How well labels are predicted for documents that are left out with their copies; see `RIPML.quality`.

        With the figures of each fit, and drift. What was found of each label is also what `label` and `browse_labels`
        have, until the next report.
        """
        model = self.model
        found = model.quality(limit, n_examples, lambda rows: self._texts_of(model, rows))
        found = found.renamed(dict(self.rows(sorted(found.examples), model)))
        self._measured = {str(label.label): label for label in found.labels}
        return replace(found, fits=tuple(self.fits()), drift=self.drift())

    def fits(self) -> list[dict[str, Any]]:
        """The figures of each fit, oldest first: how the quality of the model went over versions.

        Each has the "change" that made it, its "time" (UTC; None where it is not known), the "documents" and "labels"
        that it was fitted on, and what rows that it left out showed: "precision", "calibration_error", and under
        "automation" the shares of labels and rows that can be applied unseen at a precision of 0.95, where there are
        enough. A store that was refitted by an earlier version of ripml has forgotten the fits before.
        """
        estimator = self._version.estimator
        return self._read(lambda c: fits.read(c, estimator))

    def drift(self) -> dict[str, Any]:
        """Whether what arrives is like what the model was fitted on, and whether people agree with it.

        "newest": the mean familiarity of the newest documents that were learnt since the fit, 0.5 without drift, and
        the share of those that are unlike anything known, in all and by month. "decided": how many labels were accepted
        and rejected, in all, newest ones and by month. Each is None where nothing is known of it.
        """
        model, newest = self.model, None
        n = min(drift.NEWEST, self._version.estimator.warm_["learnt"])
        if n and model.familiar is not None:
            added = self._read(lambda c: drift.newest_documents(c, n))
            read = {id: self.document(id).get("text") for id, _ in added}
            texts = {id: text for id, text in read.items() if isinstance(text, str)}
            found = model.familiarity([*texts.values()]) if texts else None
            if found:
                newest = drift.familiarity_of(found, [time for id, time in added if id in texts])
        return {"newest": newest, "decided": drift.decided_of(self.decided_labels())}

    def learning_curve(self) -> LearningCurve:
        """What more documents would bring, by models of parts of the documents; see `ripml.model.learning_curve`."""
        model, (documents, labels) = self.model, self._read(_documents_and_labels)
        form, states = Bodies.of(model), [state for _, state in documents]
        return model.learning_curve(form.to_dataset(states, labels), form.vectors(states))

    def _texts_of(self, model: DocumentModel, rows: NDArray[np.int64]) -> list[str]:
        """The texts of rows of a version of the model."""
        documents = model.row_documents
        assert documents is not None
        states = self._read(lambda c: dict(journal.all_documents(c)))
        if missing := [number for number in documents[rows].tolist() if number not in states]:
            raise StoreError(f"{self._folder}: {len(missing):,} documents were removed meanwhile; try again.")
        return [self._bodies.text(states[number].body) for number in documents[rows].tolist()]

    def map(self, progress: Callable[[float], None] = lambda share: None) -> DocumentMap:
        """All documents in two dimensions, similar ones near each other; see `ripml.tagging.map`.

        The map is computed once for a fit of the model, and kept beside it. After that documents come and go without
        moving others, until a fifth of them did. `progress` is told the share of the work that is done.
        """
        with self._layout_turn:
            found = self.known_map()
            if found is None or found.stale:
                documents, model = self._mapped(None)
                kept = KeptMap.make(documents, model, progress)
                with self._saving:  # `compact` waits
                    compacted = self._read(lambda c: journal.compacted_since(c, documents.change))
                    if self._lock is not None and not compacted:
                        self._keep_map(kept)
                with self._map_turn:
                    self._kept_map, self._shown_map = kept, None
                found = self.known_map()
            assert found is not None
            return found

    def known_map(self) -> DocumentMap | None:
        """The map as far as it is known without computing it again; it may be `stale`. None if there is none yet."""
        with self._map_turn:
            shown = self._shown_map
            if shown is not None and self.version == shown.version and not (shown.stale and self._lock is None):
                return shown
            if self._kept_map is None or (shown is not None and shown.stale):
                self._kept_map = KeptMap.load(self._folder) or self._kept_map
            if self._kept_map is None:
                return None
            self._shown_map = self._kept_map.current(*self._mapped(self._kept_map))
            return self._shown_map

    def _mapped(self, known: KeptMap | None) -> tuple[StoredDocuments, DocumentModel]:
        """All documents, with the texts of those that a map does not have, and the model that was fitted for them."""
        while True:
            documents = self._read(lambda c: StoredDocuments.read(c, known))
            with self._turn:  # not between the transaction of a refit and the new model
                if self._read(journal.last_fit) == documents.fit:
                    return documents, self.model

    def _keep_map(self, kept: KeptMap) -> None:
        """Write the file of the map; without it the map is computed again when the store is opened."""
        try:
            kept.save(self._folder)
        except OSError as error:
            warnings.warn(f"{self._folder}: the map was not saved ({error.strerror}).", RuntimeWarning, 3)

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

    def learn(self, documents: Iterable[Mapping[str, Any]] | Dataset, *, actor: str | None = None) -> list[str]:
        """Learn documents, all or none, and return their ids once they are on the disk.

        Each document is a mapping as in a line of JSONL, with "text" or "features", "labels" and optionally an "id"; or
        the documents are the rows of a data set. A document without an id gets a new one; a document with the id of an
        existing one replaces it.
        """
        data = self.model.same_form(parse_documents(documents))
        ids = data.ids or []
        self.model.check(data)
        form, model = self._bodies, self.model
        bodies = form.pack(data, encoder_vectors(model, data))

        def change(draft: Draft) -> None:
            nonlocal bodies
            if self.model.text is not model.text:  # a refit has fitted the encoder again meanwhile
                bodies = form.pack(data, encoder_vectors(self.model, data))
            numbers = {column: draft.label(data.label_names[column]) for column in np.unique(data.Y.indices).tolist()}
            for row, (id, body) in enumerate(zip(ids, bodies, strict=True)):
                kept = form.unchanged(draft.body(id), body) if form.has_vector(body) else body
                draft.put(id, kept, [numbers[column] for column in data.label_columns(row)])

        self._write(change, actor)
        return ids

    def forget(self, ids: Iterable[str], *, certify: bool = False, actor: str | None = None) -> list[Certificate]:
        """Forget documents, all or none: the model becomes what it would be without them.

        With `certify`, the history names the documents only by keyed hashes, from this call on, and the certificates
        that have the keys are returned, one for each id. The store does not keep them: with a certificate and the id,
        `verify` shows that the document was forgotten. Without `certify` the list is empty.
        """
        names = check_ids(ids)
        certificates: list[Certificate] = []

        def change(draft: Draft) -> None:
            for id in names:
                if not certify:
                    draft.remove(id)
                    continue
                seal = Seal(id, self._bodies)
                certificates.append(seal.certificate(draft.store, draft.remove(id, seal.digest)))

        self._write(change, actor)
        return certificates

    def relabel(
        self,
        documents: str | Mapping[str, Iterable[str]],
        labels: Iterable[str] | None = None,
        *,
        actor: str | None = None,
    ) -> None:
        """Replace the labels of one document, `relabel(id, labels)`, or of several, `relabel({id: labels, …})`."""
        if not isinstance(documents, Mapping):
            if labels is None:
                raise DataError(f"the new labels of document {check_id(documents)!r} are missing.")
            documents = {check_id(documents): labels}
        wanted = {check_id(id): check_labels(names) for id, names in documents.items()}

        def change(draft: Draft) -> None:
            for id, names in wanted.items():
                draft.relabel(id, [draft.label(name) for name in names])

        self._write(change, actor)

    def review(
        self, n: int = 10, *, labelled: bool = False, caller: str | None = None, minutes: float = 30
    ) -> list[Review]:
        """Lease the n documents without labels that the model is expected to learn most from, see `tagging.review`.

        With `labelled`, those with labels of which most are probably wrong or missing, by the last `audit` since the
        store was opened; without one, this makes it. For this time no other caller gets them. A caller that asks again
        gets first what it has not decided yet. To decide is to `relabel`, `learn` or `forget` a document, or to
        `accept` or `dismiss` its findings: that ends its lease, is in the model at once, and is exact. A document that
        is relabelled without labels, or had labels, is not offered again.
        """
        check_count("n", n)
        check_actor(caller)
        if not (is_number(minutes) and 0 < float(minutes) <= _MAX_DAYS * 1440):
            raise ParameterError(f"`minutes` must be a number above 0; got {minutes!r}.")
        with self._review_turns[labelled]:
            now, is_fresh = time.time(), labelled
            if labelled and True not in self._review_orders:
                with self._writing():
                    pass  # a reader is told before the audit that it cannot lease
                self.audit()
            order = self._review_orders.get(labelled)
            while True:
                if order is None or (not labelled and self.version - order.change > _REVIEW_CHANGES):
                    order, is_fresh = self._order_for_review(now, n), True
                with self._writing(), self._database.transaction() as connection:
                    waiting = self._waiting(connection, labelled, order)
                    taken = leases.take(connection, labelled, [*waiting], n, caller, now, now + 60 * float(minutes))
                    rows = [journal.document_of(connection, number) for number in taken]
                    carried = [journal.labels_of(connection, number) for number in taken]
                    names = [journal.label_names(connection, numbers) or [] for numbers in carried]
                self._review_orders[labelled] = order
                if is_fresh or len(taken) == n:
                    break
                order = None
        until = datetime.fromtimestamp(now + 60 * float(minutes), timezone.utc).isoformat(timespec="seconds")
        if not rows:
            return []
        model, form = self.model, self._bodies
        states = [State(body, ()) for _, body in rows]
        suggested = model.suggest(form.to_dataset(states))
        found = []
        for number, (id, body), labels, known in zip(taken, rows, suggested, names, strict=True):
            why = waiting.get(number) or order.documents.get(number, _Reason())
            text = form.to_json(body).get("text")
            findings = [*why.findings]
            found.append(Review(id, text, labels, why.probability, why.gain, why.n_like, until, known, findings))
        return found

    def _waiting(self, connection: sqlite3.Connection, labelled: bool, order: _ReviewOrder) -> dict[int, _Reason]:
        """The documents of an order that still wait, in the same order."""
        if not labelled:
            numbers = journal.without_labels(connection, order.documents)
            return {number: order.documents[number] for number in numbers}
        hidden, waiting = dismissals.dismissed(connection), {}
        for number in journal.unchanged_since(connection, order.documents, order.change):
            reason = order.documents[number]
            if findings := tuple(one for one in reason.findings if Doubt.of(one) not in hidden):
                waiting[number] = replace(reason, findings=findings)
        return waiting

    def release(self, ids: Iterable[str]) -> None:
        """Give documents of `review` back undecided, so that others get them."""
        names = check_ids(ids)
        with self._writing(), self._database.transaction() as connection:
            numbers = [journal.require_document(connection, id)[0] for id in names]
            leases.release(connection, numbers, time.time())

    def _order_for_review(self, now: float, n: int) -> _ReviewOrder:
        """A sample of the documents without labels, the most useful first."""
        version, model, form = self.version, self.model, self._bodies
        estimator: Any = model.model

        def query(connection: sqlite3.Connection) -> tuple[leases.Leases, Any, Any]:
            without, with_labels = (journal.sample(connection, _REVIEWED_ROWS, labelled) for labelled in (False, True))
            return leases.read(connection, False, now), without, with_labels

        taken, unlabelled, labelled = self._read(query)
        free = {number: state for number, state in unlabelled.items() if number not in taken}
        if not free:
            return _ReviewOrder(version, {})

        def features(states: Iterable[State]) -> Any:
            some = list(states)
            return model.features(form.to_dataset(some), form.vectors(some))

        X, states = features(free.values()), [*labelled.values()]
        states += [state for number, state in unlabelled.items() if number in taken]  # soon labelled
        known = apart(features(states))[0] if states else apart(X)[0][:0]
        _, probabilities = estimator.scores_and_probabilities(X)
        first = np.asarray(probabilities.max(axis=1).todense()).ravel() if probabilities.nnz else np.zeros(len(free))
        numbers = list(free)
        chosen = choose(apart(X)[0], known, first, max(_REVIEW_ORDER, n))
        return _ReviewOrder(
            version, {numbers[one.row]: _Reason(float(first[one.row]), one.gain, one.n_like) for one in chosen}
        )

    def decide(
        self,
        document: str | Mapping[str, Any],
        accepted: Iterable[str] = (),
        rejected: Iterable[str] = (),
        *,
        complete: bool = False,
        actor: str | None = None,
    ) -> str:
        """Accept and reject some labels of a document and leave the others open; its id, once that is on the disk.

        The document is the id of one in the store, or a mapping with "text" or "features" and optionally an "id", which
        is added if there is none with this id, and otherwise must have the same content. It may have "accepted" and
        "rejected" too. Earlier decisions on it stay; the last one on a label counts. With `complete`, the accepted
        labels are all that the document has: it is learnt with them. Of a document with labels, all are known: accepted
        ones are added and rejected ones removed. `forget` forgets the document with its decisions, and `withdraw` the
        decisions alone. See `RIPML.decide` for what is learnt.
        """
        given = document if isinstance(document, Mapping) else {}
        yes, no = (
            check_labels([*given.get(name, ()), *check_labels(labels)])
            for name, labels in (("accepted", accepted), ("rejected", rejected))
        )
        if both := sorted({*yes} & {*no}):
            raise DataError(f"the label {both[0]!r} is both accepted and rejected.")
        if not (yes or no or complete):
            raise DataError("there is no decision: name a label that is accepted or rejected.")
        body: bytes | None = None
        if isinstance(document, Mapping):
            content = {name: document[name] for name in ("id", "text", "features") if name in document}
            data = self.model.same_form(parse_documents([content]))
            self.model.check(data)
            (id,), (body,) = data.ids or [], self._bodies.pack(data, encoder_vectors(self.model, data))
        else:
            id = check_id(document)

        def change(draft: Draft) -> None:
            before = draft.body(id)
            if before is None and body is None:
                raise DataError(f"there is no document {id!r}.")
            if None not in (before, body) and self._bodies.unchanged(before, body or b"") != before:
                raise DataError(f"document {id!r} has another content; learn or forget it first.")
            for name in no:
                draft.require_label(name)
            draft.decide(id, map(draft.label, yes), map(draft.label, no), body, complete)

        self._write(change, actor)
        return id

    def withdraw(self, id: str, *, actor: str | None = None) -> None:
        """Take back all decisions on the labels of a document, which stays in the store without labels."""
        name = check_id(id)
        self._write(lambda draft: draft.withdraw(name), actor)

    def accept(self, findings: Iterable[Finding | Mapping[str, Any]], *, actor: str | None = None) -> None:
        """Take wrong labels from their documents, and give them the missing ones, all or none; see `audit`.

        A finding may be a mapping with its "kind", "document" and "label".
        """
        self._amend([Doubt.of(finding) for finding in findings], actor)

    def dismiss(self, findings: Iterable[Finding | Mapping[str, Any]]) -> None:
        """Do not show findings of `audit` again until their document changes."""
        doubts = [Doubt.of(finding) for finding in findings]
        with self._writing(), self._database.transaction() as connection:
            dismissals.dismiss(connection, doubts)
            documents = [journal.require_document(connection, doubt.document)[0] for doubt in doubts]
            leases.end(connection, documents, time.time())

    def undo(self, findings: Iterable[Finding | Mapping[str, Any]], *, actor: str | None = None) -> None:
        """Take back that findings were accepted or dismissed: labels are again as the findings had them."""
        doubts = {Doubt.of(finding) for finding in findings}
        with self._writing(), self._database.transaction() as connection:
            shown = dismissals.restore(connection, doubts)
        opposite = {"wrong": "missing", "missing": "wrong"}
        self._amend([replace(doubt, kind=opposite[doubt.kind]) for doubt in sorted(doubts - shown)], actor)

    def _amend(self, doubts: Iterable[Doubt], actor: str | None) -> None:
        """Give documents labels that are missing, and take wrong ones."""
        amended: dict[str, tuple[list[str], list[str]]] = {}
        for doubt in doubts:
            add, remove = amended.setdefault(check_id(doubt.document), ([], []))
            (add if doubt.kind == "missing" else remove).append(check_text("a label", doubt.label))

        def change(draft: Draft) -> None:
            for id, (add, remove) in amended.items():
                draft.amend(id, add, remove)

        if amended:
            self._write(change, actor)

    def add_labels(self, names: Iterable[str], *, actor: str | None = None) -> None:
        """Declare labels that no document carries yet; `compact` keeps them."""
        wanted = check_labels(names)
        self._write(lambda draft: draft.add_labels(wanted), actor)

    def add_label(
        self, name: str, words: Mapping[str, Iterable[str]] | None = None, *, actor: str | None = None
    ) -> None:
        """Declare a label by what it is called: language ↦ its name and other words for it, "" for any language.

        The words become a concept of the vocabulary. If the model was fitted with a vocabulary, they are looked for in
        texts at once, and the label is suggested before any document carries it; else from the next fit on.
        """
        label = check_text("a label", name)
        called = {language: check_labels(some) for language, some in (words or {}).items()}
        called = {language: some for language, some in called.items() if some}
        concept = Concept(
            label,
            {language: some[0] for language, some in called.items()},
            {language: tuple(some[1:]) for language, some in called.items() if some[1:]},
        )

        def change(draft: Draft) -> None:
            if called and label in (self.model.concepts or ()):
                raise DataError(f"the vocabulary has a concept {label!r} already.")
            draft.add_labels([label], [concept] if called else [])

        self._write(change, actor)

    def rename_label(self, old: str, new: str, *, actor: str | None = None) -> None:
        """Rename a label. Scores stay as they are, to the last bit."""
        names = check_text("a label", old), check_text("a label", new)
        self._write(lambda draft: draft.rename_label(*names), actor)
        self._rename_findings({names[0]: names[1]})

    def merge_labels(self, names: Iterable[str], into: str, *, actor: str | None = None) -> None:
        """Merge labels into one: documents that carry one of `names` carry `into` instead, and `names` are removed.

        What was decided on one of `names` is decided on `into`; where one was accepted and another one rejected, it is
        accepted.
        """
        wanted, target = check_labels(names), check_text("a label", into)
        self._write(lambda draft: draft.merge_labels(wanted, target), actor)
        self._rename_findings(dict.fromkeys(wanted))

    def merging(self, names: Iterable[str], into: str) -> Merging:
        """What `merge_labels` would change."""
        wanted, target = check_labels(names), check_text("a label", into)
        return self._read(lambda connection: Merging(*journal.carrying(connection, wanted, target)))

    def retire_label(self, name: str, *, actor: str | None = None) -> None:
        """Stop suggesting a label; documents keep it, people may still choose it, and it is still learnt."""
        known = check_text("a label", name)
        self._write(lambda draft: draft.retire_label(known, True), actor)

    def reinstate_label(self, name: str, *, actor: str | None = None) -> None:
        """Suggest a retired label again."""
        known = check_text("a label", name)
        self._write(lambda draft: draft.retire_label(known, False), actor)

    def undo_labels(self, change: int, *, actor: str | None = None) -> Undone:
        """Take back a change of labels that the history has: add, rename, merge, retire or reinstate.

        Documents that a merge changed carry again what they carried. One that was changed since carries the merged
        labels again in place of what they were merged into, if it still has that, and is else left as it is. How
        often names of the vocabulary that a merge removed are right is estimated until the next refit. What later
        changes stand in the way of, or `compact` deleted the details of, cannot be taken back.
        """
        check_count("change", change)
        if change > self.version:
            raise DataError(f"there is no change {change:,}.")
        counted: list[tuple[int, int]] = []
        returning = self._read(lambda connection: journal.kind_of(connection, change)) == "merge labels"
        self._write(lambda draft: counted.append(draft.undo_labels(change)), actor, returning=returning)
        self._review_orders.pop(True, None)  # findings may name labels that are gone
        return Undone(*counted[-1])

    def _rename_findings(self, renamed: Mapping[str, str | None]) -> None:
        """Let findings and figures follow labels that have another name now; None for labels that are gone."""
        self._measured = measured_again(self._measured, renamed)
        if (order := self._review_orders.get(True)) is None:
            return
        documents = {}
        for number, reason in order.documents.items():
            names = [(finding, renamed.get(str(finding.label), finding.label)) for finding in reason.findings]
            findings = tuple(replace(finding, label=name) for finding, name in names if name is not None)
            if findings:
                documents[number] = replace(reason, findings=findings)
        self._review_orders[True] = replace(order, documents=documents)

    def set_vocabulary(self, vocabulary: Any, *, actor: str | None = None) -> None:
        """Use another vocabulary from now on: a path that `datasets.read_vocabulary` reads, `Concepts`, or None.

        Nothing is fitted again. To add concepts, pass `store.model.concepts.updated(more)`. If the model was fitted
        with a vocabulary, the names of new concepts are looked for in texts at once, and those of concepts that are
        gone only as long as documents carry them.
        """
        concepts = concepts_given(vocabulary) or Concepts.of([])
        labels = check_labels(suggestable(concepts, self._version.estimator, self._bodies))
        self._write(lambda draft: draft.set_concepts(concepts, labels), actor)

    def _write(self, change: Callable[[Draft], None], actor: str | None, *, returning: bool = False) -> None:
        """Make the changes of one call: its rows in the database and the next version of the model, or neither.

        With `returning`, labels that were removed come back under their numbers.
        """
        check_actor(actor)
        # Replaying the journal adds new labels before it drops removed ones. If a new label takes the column of a
        # removed one, there would be no room for it, so a snapshot has to come between the two. And one has to come
        # before a label comes back: slots are given in the order of the labels' numbers, and the counts of its names
        # are gone, which a replay from before its removal would still have.
        fixed = self._version.estimator.model_.has_fixed_columns
        rests = returning and (fixed or self.model.words is not None)
        with self._saving if fixed or rests else nullcontext(), self._writing():
            if rests or (fixed and self._database.read(lambda c: Label.read(c, "name IS NULL"))):
                self._save(self._version)
            with self._database.transaction() as connection:
                draft = self._draft(connection, actor)
                change(draft)
                leases.end(connection, draft.decided, time.time())
                delta = draft.delta
                self._stale = True  # if this fails half way, the current version cannot be advanced again
                version = self._version.advanced(delta)
                if version.model.rules != self.model.rules:  # a label was renamed that they name
                    Recipe.of(version.model).write(connection)
            self._changes += delta.change - self._version.change
            self._version, self._chain, self._stale = version, draft.chain, False
            due = self._changes > max(SNAPSHOT_CHANGES, self.model.model.n_rows_ // SNAPSHOT_SHARE)
        if due and self._saving.acquire(blocking=False):  # another thread that saves takes a snapshot itself
            try:
                self._try_snapshot()
            finally:
                self._saving.release()

    def _draft(self, connection: sqlite3.Connection, actor: str | None) -> Draft:
        """A draft of changes that follow the last one in the model.

        Another process may have written in spite of the lock: some network file systems grant every lock.
        """
        index = fulltext.WordIndex(connection, self._bodies.text) if self._bodies.has_text else None
        draft = Draft(connection, actor, index)
        if (draft.last, draft.chain) != (self._version.change, self._chain):
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
        """Save the model, so that opening the store need not bring an older one up to date.

        Other threads may write while the files are written.
        """
        with self._saving:
            with self._writing():
                if not self._changes or self._refitting:  # a refit ends with a snapshot anyway
                    return
                self._database.check_in_place()
                version = self._version.at_rest()
            snapshot = database.save_model(self._folder, version.change, version.model)
            with self._writing():
                with self._database.transaction() as connection:
                    self._draft(connection, None)
                    snapshot.write(connection)
                    Recipe.of(self.model).write(connection)
                self._changes = self._version.change - version.change
                database.remove_leftovers(self._folder, snapshot.folder)

    def _try_snapshot(self) -> None:
        """Take a snapshot, and warn if that fails: the changes themselves are on the disk already."""
        try:
            self.snapshot()
        except Exception as error:
            known = isinstance(error, RipmlError)
            reason = str(error) if known else f"{self._folder}: no snapshot was taken ({error!r})."
            warnings.warn(f"{reason} All changes are stored, but opening will take longer.", RuntimeWarning, 3)

    def prepare_answers(self) -> None:
        """Make now what the first answer would make, so that it is as quick as later ones: also that of `labels`."""
        self._version.estimator.model_.prepare_rows()
        self._completion()

    def warm_up(self) -> None:
        """Compute now what the first change needs, so that it is as quick as later ones; see `RIPML.warm_up`."""
        with self._writing():
            estimator = copy.copy(self._version.estimator)
            self._version = replace(self._version, model=replace(self.model, model=estimator.warm_up()))

    def refit(self, *, actor: str | None = None) -> None:
        """Fit the model again on all documents, with the same settings and the same kind of features.

        Meanwhile the current model answers, and other threads may write: what they change is learnt before the new
        model replaces the current one.
        """
        check_actor(actor)
        if not self._refit_turn.acquire(blocking=False):
            raise StoreError(f"{self._folder}: a refit is already running.")
        try:
            if not self._refit(actor):  # the changes made meanwhile could not be learnt: fit again while nobody writes
                with self._saving, self._turn:
                    self._refit(actor)
        finally:
            self._refit_turn.release()

    def _refit(self, actor: str | None) -> bool:
        """Fit on the current documents and learn what changed meanwhile; False, with no effect, if that fails."""
        self._refitting = True
        try:
            with self._saving:  # `compact` waits, which cannot rewrite the database beside a reader
                start, before, documents, labels = self._read_all()
            refit = Recipe.of(before).refit(start, documents, labels)
            del documents, labels
            try:
                # Learn what was written during the fit, which takes what every first change does; then, while nobody
                # writes, the little that was written since.
                refit = refit.advanced(self._database.read(lambda c: journal.delta_since(c, start)))
            except RipmlError:  # such as labels that do not fit into Phi
                return False
            with self._saving, self._writing():
                if self._database.read(Snapshot.read).change > start:  # the journal before the snapshot was cut
                    return False
                try:
                    learnt = refit.version.change
                    refit = refit.advanced(self._database.read(lambda c: journal.delta_since(c, learnt)))
                except RipmlError:
                    return False
                version = replace(refit.version, change=refit.version.change + 1)
                known = fits.with_fit(self.fits(), version.estimator, version.change)

                def update(connection: sqlite3.Connection) -> None:
                    refit.write(connection)
                    fits.write(connection, known)

                self._save(version, "refit", update, actor, documents_of=start)
                self._encoder = _encoders(version.model.text)
            return True
        finally:
            self._refitting = False

    def _read_all(self) -> tuple[int, DocumentModel, list[tuple[int, State]], list[Label]]:
        """All documents and labels after one change, its number and its model. Others write while they are read."""
        while True:
            with ExitStack() as turn:
                turn.enter_context(self._writing())
                start, before = self._version.change, self.model

                def query(connection: sqlite3.Connection) -> tuple[int, list[tuple[int, State]], list[Label]]:
                    last = journal.last_change(connection)
                    turn.close()  # this transaction goes on to see the documents as they are now
                    return last, *_documents_and_labels(connection)

                last, documents, labels = self._database.read(query)
            if last == start:  # else the first write since the store was opened made `read` begin again
                return start, before, documents, labels

    def compact(self, *, keep_history: float = 0, actor: str | None = None) -> None:
        """Remove every trace of what was deleted: no byte of it is left in any file of the folder.

        Labels that no document carries and that were not declared are dropped. Words and feature names that no document
        has any more are removed from the model, whose columns stay. If documents were forgotten that doc2vec or the
        centres of clusters were computed from, the model is fitted again.

        The history keeps the number, time, kind, actor and certificate of each change. Ids and labels are deleted, but
        for changes of the last `keep_history` days, and there too where the document or a label is gone.
        """
        check_actor(actor)
        if not (is_number(keep_history) and 0 <= float(keep_history) <= _MAX_DAYS):
            raise ParameterError(
                f"`keep_history` must be a number of days from 0 to {_MAX_DAYS}; got {keep_history!r}."
            )
        since = datetime.now(timezone.utc) - timedelta(days=float(keep_history)) if keep_history else None
        with self._saving:
            unused = self._unused_features()
            with self._writing():
                if self._contains_forgotten():
                    if not self.model.model.n_rows_:
                        raise StoreError(
                            f"{self._folder}: no document with labels is left to fit the model on, which still "
                            "contains parts of forgotten ones; delete the folder, or learn documents and compact again."
                        )
                    self._refit(actor)
                    unused = self._unused_features()
                self._compact(unused, since, actor)

    def _compact(self, unused: _UnusedFeatures | None, since: datetime | None, actor: str | None) -> None:
        """`compact` while nobody writes; `unused` were found before that, beside writers."""
        labels = self._database.read(journal.unused_labels)
        if unused is not None:
            start = unused.change
            edits = self._database.read(lambda c: journal.delta_since(c, start)).edits
            if any(edit.before and (not edit.after or edit.after.body != edit.before.body) for edit in edits):
                unused = self._unused_features()  # documents went meanwhile
            else:
                came = [edit.after for edit in edits if edit.after]
                unused = replace(unused, features=unused.features & self._version.unused_features([came]))
        self._stale = True
        delta = Delta(self._version.change + 1, [replace(label, name=None) for label in labels], [])
        version = self._version.advanced(delta)
        if unused is not None:
            version = replace(version, model=version.model.without_features(unused.features))

        def clean(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM labels WHERE number = ?", [(label.number,) for label in labels])
            journal.redact(connection, since)
            fulltext.erase(connection)

        self._save(version, "compact", clean, actor)
        with self._map_turn:
            self._kept_map = self._shown_map = None
            KeptMap.remove(self._folder)
        self._database.shrink()
        try:
            database.remove_leftovers(self._folder, Snapshot(version.change).folder, ignore_errors=False)
        except OSError as error:
            raise StoreError(
                f"{self._folder}: {error.filename} cannot be removed ({error.strerror}), and deleted data may be "
                "left in it; compact again."
            ) from error

    def _contains_forgotten(self) -> bool:
        """Whether forgotten documents still have a part in what the fit made of all documents."""
        if versions.contains_forgotten_rows(self.model):
            return True
        # Doc2vec learns from all texts, also from those of documents without labels, which the model has no rows of.
        learns_texts = self.model.text is not None and self.model.text.has(Doc2Vec)
        return learns_texts and self._database.read(lambda c: journal.forgotten_since(c, journal.last_fit(c)))

    def backup(self, target: str | os.PathLike[str]) -> Backup:
        """Copy the store as it is at one moment to a new or empty folder, which is then a store itself.

        Other threads and processes may read and write meanwhile. The copy appears when it is complete.
        """
        self._check_open()
        return maintenance.backup(self._folder, target)

    def publish(self, target: str | os.PathLike[str]) -> Backup | None:
        """Make `target` a link to a copy of the store for readers on other machines, which follow it; see
        `maintenance.publish`."""
        self._check_open()
        return maintenance.publish(self._folder, target)

    @staticmethod
    def restore(backup: str | os.PathLike[str], target: str | os.PathLike[str], replace: bool = False) -> Backup:
        """Make a store from a backup, which is checked first, in a new or empty folder.

        With `replace` the target may be a store that nobody has open for writing; it stays if the restore fails.
        """
        return maintenance.restore(backup, target, replace)

    def check(self, full: bool = False) -> Report:
        """Check the tables, the journal, the documents, the files of the model, and the model against the documents.

        This reads what is on the disk, beside readers and writers. `full` also learns all documents anew, with the
        words, weights and choices of the model, and compares the scores.
        """
        self._check_open()
        return maintenance.check(self._folder, full, self._encoder)

    def export(self, path: str | os.PathLike[str], format: str | None = None) -> int:
        """Write all documents with their labels to a file, as they are at one moment, and return how many there are.

        The format is "jsonl", "csv" or "parquet", by default that of the name's suffix; features need "jsonl".
        """
        self._check_open()
        return maintenance.export(self._folder, path, format)

    @staticmethod
    def rebuild(path: str | os.PathLike[str], encoder: Any = None, *, actor: str | None = None) -> None:
        """Fit the model of a store that nobody has open for writing, when it is lost or damaged; then `open` works.

        Unlike `refit` this needs no old model: the settings are kept beside the documents.
        """
        maintenance.rebuild(path, encoder, actor)

    def _unused_features(self) -> _UnusedFeatures | None:
        """The features that no document has; None where there can be no new ones, or features are not cleared."""
        if not (self.model.text is None or self.model.text.has(TfIdf)):
            return None

        def query(connection: sqlite3.Connection) -> _UnusedFeatures | None:
            if journal.is_compacted(connection):
                return None
            bodies = connection.execute("SELECT body FROM documents")
            blocks = iter(lambda: [State(bytes(body), ()) for (body,) in bodies.fetchmany(_BLOCK)], [])
            return _UnusedFeatures(journal.last_change(connection), self._version.unused_features(blocks))

        return self._database.read(query)

    def _save(
        self,
        version: Version,
        kind: str | None = None,
        update: Callable[[sqlite3.Connection], None] | None = None,
        actor: str | None = None,
        **detail: Any,
    ) -> None:
        """Make a version the current one and its snapshot: write its folder, point to it, then remove older folders.

        The transaction that points to the folder also adds an entry of this `kind` to the journal, with this `detail`,
        and does `update`.
        """
        self._database.check_in_place()
        snapshot = database.save_model(self._folder, version.change, version.model)
        with self._database.transaction() as connection:
            draft = self._draft(connection, actor)
            if kind is not None:
                draft.note(kind, **detail)
            if update is not None:
                update(connection)
            snapshot.write(connection)
            Recipe.of(version.model).write(connection)
        self._version, self._chain, self._stale, self._changes = version, draft.chain, False, 0
        database.remove_leftovers(self._folder, snapshot.folder)


def _documents_and_labels(connection: sqlite3.Connection) -> tuple[list[tuple[int, State]], list[Label]]:
    return list(journal.all_documents(connection)), journal.all_labels(connection)


def _encoders(text: TextFeatures | None) -> Any:
    """The encoders of a model, for one that is loaded; None if it has none."""
    given = [encoder.given for encoder in text.encoders] if text is not None else []
    return given if given and None not in given else None
