"""Versions of a store's model.

A version is a model and the number of the last change that it contains; it never changes. `advanced` makes the next one
from a delta: new labels are added, the net edits of documents are forgotten, relabelled and learnt, and removed labels
are dropped. A call of the writer, a reader that follows the writer and a store that brings its snapshot up to date when
it is opened all use this one method, with different deltas.
"""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray
from ripml.base.errors import ModelFolderError, StoreError
from ripml.datasets.dataset import csr
from ripml.decoding.evidence import FeatureRows, apart
from ripml.model.estimator import RIPML
from ripml.store.database import Database
from ripml.store.documents import Bodies
from ripml.store.journal import Delta, Edit, Snapshot, State
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules

__all__ = ["Version", "contains_forgotten_rows", "with_decisions"]

T = TypeVar("T")

_ATTEMPTS = 20  # to load a snapshot that writers keep replacing


def contains_forgotten_rows(model: DocumentModel) -> bool:
    """Whether forgotten documents still have a part in means of rows: the centres of clusters, or of all features."""
    estimator: Any = model.model
    has_means = len(estimator.clusters_) > 1 or estimator.scaling_.centre is not None
    return estimator.warm_["forgotten"] > 0 and has_means and estimator.n_rows_ > 0


def with_decisions(version: Version, states: Iterable[State], names: Mapping[int, str | None]) -> Version:
    """A version that has learnt the labels of documents and now learns the decisions on others; `names` by number."""
    decided = [state for state in states if state.is_decided]
    if decided:
        accepted, rejected = (
            [[names[n] for n in numbers] for numbers in some]
            for some in ([state.accepted for state in decided], [state.rejected for state in decided])
        )
        version.estimator.decide(version.features(decided), accepted, rejected)
    return version


@dataclass(frozen=True)
class Version:
    """A model that contains all changes up to `change`.

    The growing arrays belong to the writer, who appends to them; `model` has views of them, which never change.
    """

    change: int
    model: DocumentModel
    rows: GrowingArray  # row number ↦ number of its document
    labels: GrowingArray  # column ↦ number of its label

    @classmethod
    def of(cls, change: int, model: DocumentModel, rows: Any, labels: Any) -> Version:
        """A model with the numbers of the documents of its rows, and those of its labels."""
        rows, labels = np.asarray(rows, np.int64), np.asarray(labels, np.int64)
        return cls(
            change, replace(model, row_documents=rows, label_numbers=labels), GrowingArray(rows), GrowingArray(labels)
        )

    @classmethod
    def load(cls, path: Path, change: int, encoder: Any = None) -> Version:
        """The version that was saved in a model folder, with the encoder of its texts, if it has one."""
        model = DocumentModel.load(path, encoder)
        rows, labels, estimator = model.row_documents, model.label_numbers, model.model
        consistent = (
            rows is not None
            and labels is not None
            and rows.dtype == labels.dtype == np.int64
            and rows.shape == (getattr(estimator, "n_seen_", -1),)
            and labels.shape == estimator.classes_.shape
            and len(np.unique(labels)) == len(labels)
        )
        if not consistent:
            raise ModelFolderError(f"{path}: is not the model of a store, or is damaged.")
        return cls.of(change, model, rows, labels)

    @classmethod
    def saved(
        cls, store: Database, folder: Path, read: Callable[[sqlite3.Connection], tuple[Snapshot, T]], encoder: Any
    ) -> tuple[Version, T]:
        """The version of the snapshot in a store, and the other contents of the database that `read` finds with it."""
        for _ in range(_ATTEMPTS):
            snapshot, contents = store.read(read)
            try:
                snapshot.check(folder)
                return cls.load(folder / snapshot.folder, snapshot.change, encoder), contents
            except ModelFolderError:
                if store.read(Snapshot.read) == snapshot:  # otherwise a writer has replaced and removed it meanwhile
                    raise
        raise StoreError(f"{folder}: this store changes faster than it can be read; try again.")

    @property
    def estimator(self) -> RIPML:
        """The estimator, which is always RIPML in a store."""
        assert isinstance(self.model.model, RIPML)
        return self.model.model

    def features(self, states: Sequence[State]) -> Any:
        """The features that documents were, or are to be, learnt with: CSR or dense, (n, d)."""
        bodies = Bodies.of(self.model)
        return self.model.features(bodies.to_dataset(states), bodies.vectors(states), to_learn=True)

    def relearnt(self, documents: Iterable[tuple[int, State]], names: Mapping[int, str | None]) -> RIPML:
        """A model with the same frozen parts that learns documents anew, in the same order; `names` of labels by
        number."""
        empty = self.estimator.without_rows()
        place = {document: row for row, document in enumerate(self.rows.view.tolist())}
        states = [state for _, state in sorted(documents, key=lambda pair: place.get(pair[0], -1))]
        if not states:
            return empty
        empty.partial_fit(self.features(states), [[names[n] for n in state.labels] for state in states])
        return with_decisions(replace(self, model=replace(self.model, model=empty)), states, names).estimator

    def difference(self, other: RIPML, X: Any) -> float:
        """The largest difference between the scores that this and another model with the same labels give to rows."""
        models = (self.estimator, other)
        scores = [model.decision_function(X).toarray()[:, np.argsort(model.classes_.astype(str))] for model in models]
        return float(np.abs(scores[0] - scores[1]).max(initial=0))

    def unused_features(self, blocks: Iterable[Sequence[State]]) -> NDArray[np.bool_]:
        """A mask of the features that none of the documents has, (d,)."""
        unused = np.ones(self.model.model.n_features_in_, bool)
        for states in blocks:
            if states:
                unused[apart(self.features(states))[0].indices] = False
            if not unused.any():
                break
        return unused

    def at_rest(self) -> Version:
        """The same version without what the next changes write to, to be saved beside them."""
        estimator = copy.copy(self.estimator)
        estimator.model_ = estimator.model_.settled(estimator.n_jobs)
        return replace(self, model=replace(self.model, model=estimator))

    def advanced(self, delta: Delta) -> Version:
        """The version after a delta. This version still answers questions, but cannot be advanced again."""
        if not (delta.labels or delta.edits):
            model = self.model if delta.concepts is None else self.model.with_concepts(delta.concepts)
            return replace(self, change=delta.change, model=model)
        estimator = copy.copy(self.estimator)
        changes = _LabelChanges(estimator, self.labels, delta)
        rules = self.model.rules.renamed(changes.renamed)
        changes.add()
        forgotten, relabelled, learnt = _sort_edits(delta.edits)
        withdrawn = [edit.before for edit in delta.edits if edit.before is not None and edit.before.is_decided]
        decided = [edit.after for edit in delta.edits if edit.after is not None and edit.after.is_decided]
        if withdrawn:  # first, so that what follows from them is not made again before
            estimator.withdraw(self.features(withdrawn), *changes.decisions(withdrawn))
        if forgotten:
            states = [edit.before for edit in forgotten if edit.before is not None]
            estimator.forget(self.features(states), changes.indicator(states), self._row_numbers(forgotten))
        if relabelled:
            old = [edit.before for edit in relabelled if edit.before is not None]
            new = [edit.after for edit in relabelled if edit.after is not None]
            labels = changes.indicator(old), changes.indicator(new)
            estimator.relabel(self.features(old), *labels, self._row_numbers(relabelled))
            changes.align()
        if learnt:
            states = [edit.after for edit in learnt if edit.after is not None]
            estimator.partial_fit(changes.aligned(self.features(states)), changes.indicator(states))
            changes.align()
            labelled = [edit.document for edit in learnt if edit.after is not None and edit.after.labels]
            self.rows.append(np.array(labelled, np.int64))
        if decided:
            estimator.decide(changes.aligned(self.features(decided)), *changes.decisions(decided))
        rows = self.rows.view
        if estimator.n_seen_ != len(rows):
            raise StoreError(f"the model has learnt {estimator.n_seen_:,} rows, but the store has {len(rows):,}.")
        numbers = changes.finish()
        model = replace(self.model, model=estimator, rules=rules, row_documents=rows, label_numbers=numbers.view)
        if changes.renamed or delta.concepts is not None:
            concepts = model.concepts if delta.concepts is None else delta.concepts
            model = model.with_concepts(concepts, changes.renamed)
        return Version(delta.change, model, self.rows, numbers)

    def renamed_rules(self, delta: Delta) -> Rules:
        """The rules for suggestions, after the labels of a delta were renamed."""
        return self.model.rules.renamed(_LabelChanges(self.estimator, self.labels, delta).renamed)

    def _row_numbers(self, edits: Sequence[Edit]) -> list[int]:
        """The number of the row that each document was last learnt as; −1 for documents that never were."""
        documents = self.rows.view
        rows = np.flatnonzero(np.isin(documents, [edit.document for edit in edits]))
        latest = dict(zip(documents[rows].tolist(), rows.tolist(), strict=True))
        return [latest.get(edit.document, -1) for edit in edits]


def _sort_edits(edits: Sequence[Edit]) -> tuple[list[Edit], list[Edit], list[Edit]]:
    """The edits that forget, relabel and learn a document; a changed body is both forgotten and learnt."""
    forgotten, relabelled, learnt = [], [], []
    for edit in edits:
        before, after = edit.before, edit.after
        same_row = before and after and before.body == after.body and not edit.learnt_again
        if same_row and before and after and before.labels and after.labels:
            relabelled.append(edit)
            continue
        if before:
            forgotten.append(edit)
        if after:
            learnt.append(edit)
    return forgotten, relabelled, learnt


class _LabelChanges:
    """Takes the labels of a model from the names before a delta to those after it.

    `add` gives all labels their new names at once and adds the new labels. A label that is to be removed has no name
    from then on, since another label may have taken it; it keeps its column until the documents were edited, and
    `finish` drops it.
    """

    def __init__(self, estimator: RIPML, numbers: GrowingArray, delta: Delta) -> None:
        self._estimator, self._numbers = estimator, numbers
        self._columns_before = self._columns = estimator.vocabulary_.keys
        columns = _places(numbers.view, np.array([label.number for label in delta.labels], np.int64)).tolist()
        pairs = list(zip(delta.labels, columns, strict=True))
        self._known = [(label, column) for label, column in pairs if column >= 0]
        self._new = [label for label, column in pairs if column < 0]
        #: Old name ↦ new name of the labels that were touched; None for a removed one.
        self.renamed = {str(estimator.classes_[column]): label.name for label, column in self._known}

    def add(self) -> None:
        """Give labels their new names, and add the new ones."""
        model = self._estimator.model_
        names = model.vocabulary.names
        vocabulary = model.vocabulary.with_names(
            {column: label.name for label, column in self._known if label.name != names[column]}
        )
        model = replace(model, vocabulary=vocabulary)
        # A label that came and went since has no column, but took a slot: the columns of the labels after it must not
        # depend on whether its coming was seen.
        slots = zip(self._new, vocabulary.free_slots(len(self._new)).tolist(), strict=True)
        new = [(label, slot) for label, slot in slots if label.name is not None]
        if new:
            keys = [label.key for label, _ in new]
            model = model.with_labels([label.name for label, _ in new], keys, [slot for _, slot in new])
            self._numbers.append(np.array([label.number for label, _ in new], np.int64))
        self._estimator.model_ = model
        self._columns = model.vocabulary.keys

    def align(self) -> None:
        """Follow the columns of labels, which may change when labels get their first document."""
        before, self._columns = self._columns, self._estimator.vocabulary_.keys
        if not np.array_equal(before, self._columns):
            self._numbers = GrowingArray(self._numbers.view[_places(before, self._columns)])

    def aligned(self, X: Any) -> Any:
        """Features that were made with the columns before the delta, with those of now."""
        features, evidence = apart(X)
        before = self._columns_before
        if evidence is None or np.array_equal(before, self._columns[: len(before)]):
            return X
        return FeatureRows(features, replace(evidence, labels=_places(self._columns, before)[evidence.labels]))

    def indicator(self, states: Sequence[State]) -> Any:
        """The labels of documents in the columns of the model, CSR (n, L)."""
        return self._indicator([state.labels for state in states])

    def decisions(self, states: Sequence[State]) -> tuple[Any, Any]:
        """The accepted and the rejected labels of documents, both CSR (n, L)."""
        accepted, rejected = ([state.accepted for state in states], [state.rejected for state in states])
        return self._indicator(accepted), self._indicator(rejected)

    def _indicator(self, numbers: Sequence[tuple[int, ...]]) -> Any:
        columns = _places(self._numbers.view, np.array([label for some in numbers for label in some], np.int64))
        if (columns < 0).any():
            raise StoreError("a document has a label that the model does not know.")
        lengths = np.array([len(some) for some in numbers], np.int64)
        order = np.lexsort((columns, np.repeat(np.arange(len(numbers)), lengths)))
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return csr(np.ones(len(columns)), columns[order], ends, self._numbers.size)

    def finish(self) -> GrowingArray:
        """Retire and drop labels, and return the numbers of those that remain."""
        vocabulary = self._estimator.vocabulary_
        for label in (*(label for label, _ in self._known), *self._new):
            if label.name is not None and bool(vocabulary.retired[vocabulary.column_of(label.name)]) != label.retired:
                vocabulary = vocabulary.with_retired(label.name, label.retired)
        model = replace(self._estimator.model_, vocabulary=vocabulary)
        gone = np.array([label.number for label, _ in self._known if label.name is None], np.int64)
        removed = _places(self._numbers.view, gone).tolist()
        if removed:
            model = model.without_labels(removed, self._estimator.n_jobs)
            self._numbers = GrowingArray(np.delete(self._numbers.view, removed))
        self._estimator.model_ = model
        return self._numbers


def _places(numbers: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """Where each of the `wanted` is among different numbers, −1 for nowhere."""
    if not len(numbers):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(numbers, kind="stable")
    found = order[np.minimum(np.searchsorted(numbers, wanted, sorter=order), len(numbers) - 1)]
    return np.where(numbers[found] == wanted, found, -1)
