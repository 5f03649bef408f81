"""Versions of a store's model.

A version is a model and the number of the last change that it contains; it never changes. `advanced` makes the next one
from a delta: new labels are added, the net edits of documents are forgotten, relabelled and learnt, and removed labels
are dropped. A call of the writer, a reader that follows the writer and a store that brings its snapshot up to date when
it is opened all use this one method, with different deltas.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ripml.base.arrays import GrowingArray
from ripml.base.errors import ModelFolderError, StoreError
from ripml.model.estimator import RIPML
from ripml.store.documents import Bodies
from ripml.store.journal import Delta, Edit, State
from ripml.tagging.documents import DocumentModel
from ripml.text import Doc2Vec

__all__ = ["Version", "contains_forgotten_rows"]


def contains_forgotten_rows(model: DocumentModel) -> bool:
    """Whether forgotten documents still have a part in what the fit made of all documents: doc2vec, or the centres."""
    estimator: Any = model.model
    clustered = len(estimator.clusters_) > 1 and estimator.n_rows_ > 0
    return estimator.warm_["forgotten"] > 0 and (clustered or isinstance(model.text, Doc2Vec))


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
            and bool((np.diff(labels) > 0).all())
        )
        if not consistent:
            raise ModelFolderError(f"{path}: is not the model of a store, or is damaged.")
        return cls.of(change, model, rows, labels)

    @property
    def estimator(self) -> RIPML:
        """The estimator, which is always RIPML in a store."""
        assert isinstance(self.model.model, RIPML)
        return self.model.model

    def features(self, states: Sequence[State]) -> Any:
        """The features of documents, CSR (n, d)."""
        return self.model.features(Bodies.of(self.model).to_dataset(states))

    def advanced(self, delta: Delta) -> Version:
        """The version after a delta. This version still answers questions, but cannot be advanced again."""
        if not (delta.labels or delta.edits):
            return replace(self, change=delta.change)
        estimator = copy.copy(self.estimator)
        changes = _LabelChanges(estimator, self.labels, delta)
        rules = self.model.rules.renamed(changes.renamed)
        changes.add()
        forgotten, relabelled, learnt = _sort_edits(delta.edits)
        if forgotten:
            states = [edit.before for edit in forgotten if edit.before is not None]
            estimator.forget(self.features(states), changes.names_of(states), self._row_numbers(forgotten))
        if relabelled:
            old = [edit.before for edit in relabelled if edit.before is not None]
            new = [edit.after for edit in relabelled if edit.after is not None]
            names = changes.names_of(old), changes.names_of(new)
            estimator.relabel(self.features(old), *names, self._row_numbers(relabelled))
        if learnt:
            states = [edit.after for edit in learnt if edit.after is not None]
            estimator.partial_fit(self.features(states), changes.names_of(states))
            labelled = [edit.document for edit in learnt if edit.after is not None and edit.after.labels]
            self.rows.append(np.array(labelled, np.int64))
        rows = self.rows.view
        if estimator.n_seen_ != len(rows):
            raise StoreError(f"the model has learnt {estimator.n_seen_:,} rows, but the store has {len(rows):,}.")
        labels = changes.finish()
        model = replace(self.model, model=estimator, rules=rules, row_documents=rows, label_numbers=labels.view)
        return Version(delta.change, model, self.rows, labels)

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
        if before and after and before.body == after.body and before.labels and after.labels:
            relabelled.append(edit)
            continue
        if before:
            forgotten.append(edit)
        if after:
            learnt.append(edit)
    return forgotten, relabelled, learnt


class _LabelChanges:
    """Takes the labels of a model from the names before a delta to those after it.

    Names are exchanged in two steps, because one label may get a name that another still has: `add` moves such names
    out of the way and adds the new labels, `finish` gives all labels their names after the documents were edited.
    """

    def __init__(self, model: RIPML, numbers: GrowingArray, delta: Delta) -> None:
        self._model, self._numbers = model, numbers
        touched = [(label.number, self._columns(label.number)) for label in delta.labels]
        known = {number for number, column in touched if number in numbers.view[column : column + 1]}
        self._known = [label for label in delta.labels if label.number in known]
        self._new = [label for label in delta.labels if label.number not in known and label.name is not None]
        #: Old name ↦ new name of the labels that were touched; None for a removed one.
        self.renamed = {str(self._name(label.number)): label.name for label in self._known}

    def _columns(self, numbers: int | Sequence[int]) -> Any:
        return np.searchsorted(self._numbers.view, numbers)

    def _name(self, number: int) -> Any:
        return self._model.classes_[self._columns(number)]

    def names_of(self, states: Sequence[State]) -> list[list[Any]]:
        """The labels of documents, by the names that the model has for them at present."""
        names = self._model.classes_
        return [names[self._columns(state.labels)].tolist() if state.labels else [] for state in states]

    def add(self) -> None:
        """Add the new labels, after moving labels that have a name which another label will get out of the way."""
        wanted = {label.name for label in (*self._known, *self._new)}
        for label in self._known:
            name = self._name(label.number)
            if name != label.name and name in wanted:
                self._model.rename_label(name, f"\ue000 {label.number}")
        if self._new:
            self._model.add_labels([label.name for label in self._new], [label.key for label in self._new])
            self._numbers.append(np.array([label.number for label in self._new], np.int64))

    def finish(self) -> GrowingArray:
        """Rename, retire and drop labels, and return the numbers of those that remain."""
        for label in (*self._known, *self._new):
            if label.name is None:
                continue
            name = self._name(label.number)
            if name != label.name:
                self._model.rename_label(name, label.name)
            if bool(self._model.vocabulary_.retired[self._columns(label.number)]) != label.retired:
                change = self._model.retire_label if label.retired else self._model.reinstate_label
                change(label.name)
        removed = [label.number for label in self._known if label.name is None]
        if removed:
            self._model.drop_labels([self._name(number) for number in removed])
            self._numbers = GrowingArray(np.delete(self._numbers.view, self._columns(removed)))
        return self._numbers
