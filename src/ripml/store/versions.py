"""Versions of a store's model, and how a document's body is kept.

A version is a model and the number of the last change that is in it; it never changes. `advance` makes the next one
out of a delta: labels that are new are added, the net edits of documents are forgotten, relabelled and learnt, and
labels that are gone are dropped. What the writer does in a call, what a reader does to follow it and what opening does
to bring a snapshot up to date is this one function over different deltas.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ripml.base.arrays import Growing
from ripml.base.errors import ModelFolderError, StoreError
from ripml.datasets import Dataset
from ripml.datasets.dataset import SparseRows, csr
from ripml.datasets.formats.rows import shortest
from ripml.store.journal import Delta, Edit, Label, State
from ripml.tagging.documents import DocumentModel

__all__ = ["Bodies", "Version", "advance", "load"]


@dataclass(frozen=True)
class Bodies:
    """How the documents of a store are kept: form "text" as UTF-8, "objects" as JSON, "lists" as the columns (int32)
    and values (float32) that are not 0; `width` is the length of lists.

    >>> from scipy.sparse import csr_array
    >>> data = Dataset(X=csr_array([[0, 0.5, 0]]), Y=csr_array((1, 0)), label_names=[])
    >>> bodies = Bodies("lists", 3)
    >>> bodies.shown(bodies.packed(data)[0])
    {'features': [0, 0.5, 0]}
    """

    form: str
    width: int = 0

    @classmethod
    def of(cls, model: DocumentModel) -> Bodies:
        """What the documents of a model are."""
        if model.text is not None:
            return cls("text")
        return cls("lists", model.model.n_features_in_) if model.feature_names is None else cls("objects")

    def packed(self, data: Dataset) -> list[bytes]:
        """The bodies of rows; equal features give equal bytes."""
        if self.form == "text":
            return [text.encode() for text in data.texts or ()]
        X = data.X
        bodies = []
        for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            columns, values = X.indices[start:end], np.asarray(X.data[start:end], np.float32)
            columns, values = columns[values != 0], values[values != 0]
            if data.feature_names is None:
                bodies.append(columns.astype("<i4").tobytes() + values.astype("<f4").tobytes())
            else:
                names = (data.feature_names[column] for column in columns)
                row = dict(sorted(zip(names, map(json.loads, shortest(values)), strict=True)))
                bodies.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode())
        return bodies

    def data(self, states: Sequence[State], labels: Sequence[Label] = ()) -> Dataset:
        """Documents as a data set whose columns of Y are these labels, in the order of their numbers."""
        numbers = np.array([label.number for label in labels], np.int64)
        carried = np.array([label for state in states for label in state.labels] if labels else [], np.int64)
        ends = np.cumsum([0, *(len(state.labels) if labels else 0 for state in states)], dtype=np.int64)
        known: dict[str, Any] = {
            "Y": csr(np.ones(len(carried)), np.searchsorted(numbers, carried), ends, len(labels)),
            "label_names": [str(label.name) for label in labels],
            "name": "the store",
        }
        if self.form == "text":
            return Dataset(X=None, texts=[state.body.decode() for state in states], **known)
        rows, columns = SparseRows(), dict[str, int]()
        for state in states:
            if self.form == "lists":
                rows.add(self._entries(state.body))
            else:
                features = json.loads(state.body)
                rows.add({columns.setdefault(name, len(columns)): value for name, value in features.items()})
        if self.form == "lists":
            return Dataset(X=rows.csr(self.width), **known)
        return Dataset(X=rows.csr(len(columns)), feature_names=list(columns), **known)

    def shown(self, body: bytes) -> dict[str, Any]:
        """The body as it is in JSONL."""
        if self.form == "text":
            return {"text": body.decode()}
        if self.form == "objects":
            return {"features": json.loads(body)}
        features: list[Any] = [0] * self.width
        for column, text in zip(*self._texts(body), strict=True):
            features[column] = json.loads(text)
        return {"features": features}

    def _entries(self, body: bytes) -> dict[int, float]:
        columns, texts = self._texts(body)
        return {column: float(text) for column, text in zip(columns, texts, strict=True)}

    def _texts(self, body: bytes) -> tuple[list[int], list[str]]:
        n = len(body) // 8
        columns = np.frombuffer(body, "<i4", n)
        if len(body) != 8 * n or (n and not 0 <= columns.min() <= columns.max() < self.width):
            raise ValueError("a document has features that its model cannot have")
        return columns.tolist(), shortest(np.frombuffer(body, "<f4", n, 4 * n))


@dataclass(frozen=True)
class Version:
    """A model that is up to date with a change. The arrays that grow are the writer's; its views are in `model`."""

    change: int
    model: DocumentModel
    rows: Growing  # row number ↦ document
    labels: Growing  # column ↦ label

    @classmethod
    def of(cls, change: int, model: DocumentModel, rows: Any, labels: Any) -> Version:
        """A model with the documents of its rows and the numbers of its labels."""
        numbers = [np.asarray(array, np.int64) for array in (rows, labels)]
        model = replace(model, row_documents=numbers[0], label_numbers=numbers[1])
        return cls(change, model, Growing(numbers[0]), Growing(numbers[1]))

    def features(self, states: Sequence[State]) -> Any:
        """The features of documents, CSR (n, d)."""
        return self.model.features(Bodies.of(self.model).data(states))


def load(path: Path, change: int, encoder: Any = None) -> Version:
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
        raise ModelFolderError(f"{path}: this model is not one of a store, or damaged.")
    return Version.of(change, model, rows, labels)


def advance(version: Version, delta: Delta) -> Version:
    """The version after a delta; the one before goes on to answer, but cannot be advanced any more."""
    model = copy.copy(version.model.model)
    naming = _Naming(model, version, delta)
    rules = version.model.rules.renamed(naming.renamed)
    naming.begin()
    documents = version.rows
    leave, change, come = _sorted_out(delta.edits)
    if leave:
        states = [edit.before for edit in leave if edit.before is not None]
        model.forget(version.features(states), naming.of(states), _row_numbers(version, leave))
    if change:
        old = [edit.before for edit in change if edit.before is not None]
        new = [edit.after for edit in change if edit.after is not None]
        model.relabel(version.features(old), naming.of(old), naming.of(new), _row_numbers(version, change))
    if come:
        states = [edit.after for edit in come if edit.after is not None]
        model.partial_fit(version.features(states), naming.of(states))
        documents.append(np.array([e.document for e, s in zip(come, states, strict=True) if s.labels], np.int64))
    if model.n_seen_ != len(documents.view):
        raise StoreError(f"the model learnt {model.n_seen_:,} rows in all, and not {len(documents.view):,}.")
    numbers = naming.finish()
    changed = replace(version.model, model=model, rules=rules, row_documents=documents.view, label_numbers=numbers.view)
    return Version(delta.change, changed, documents, numbers)


def _row_numbers(version: Version, edits: Sequence[Edit]) -> list[int]:
    """The numbers of the rows that documents were last learnt as, −1 for those that never were."""
    documents = version.rows.view
    rows = np.flatnonzero(np.isin(documents, [edit.document for edit in edits]))
    latest = dict(zip(documents[rows].tolist(), rows.tolist(), strict=True))
    return [latest.get(edit.document, -1) for edit in edits]


def _sorted_out(edits: Sequence[Edit]) -> tuple[list[Edit], list[Edit], list[Edit]]:
    """The edits whose document is forgotten, relabelled, learnt; one with another body is forgotten and learnt."""
    leave, change, come = [], [], []
    for edit in edits:
        before, after = edit.before, edit.after
        if before and after and before.body == after.body and before.labels and after.labels:
            change.append(edit)
            continue
        if before:
            leave.append(edit)
        if after:
            come.append(edit)
    return leave, change, come


class _Naming:
    """The labels of a model on their way from the names before a delta to those after it."""

    def __init__(self, model: Any, version: Version, delta: Delta) -> None:
        self._model, self.numbers = model, version.labels
        there = self.numbers.view
        touched = [(label.number, int(self._places(label.number))) for label in delta.labels]
        known = {number for number, place in touched if number in there[place : place + 1]}
        self._known = [label for label in delta.labels if label.number in known]
        self._new = [label for label in delta.labels if label.number not in known and label.name is not None]
        #: Labels whose names change: old ↦ new, None for one that goes.
        self.renamed = {str(self._name(label.number)): label.name for label in self._known}

    def _places(self, numbers: int | Sequence[int]) -> Any:
        """The columns of labels."""
        return np.searchsorted(self.numbers.view, numbers)

    def _name(self, number: int) -> Any:
        return self._model.classes_[self._places(number)]

    def of(self, states: Sequence[State]) -> list[list[Any]]:
        """The labels of documents by the names that the model has for them now."""
        names = self._model.classes_
        return [names[self._places(state.labels)].tolist() if state.labels else [] for state in states]

    def begin(self) -> None:
        """Add the new labels; one that has their name now, and will not keep it, is moved out of the way."""
        wanted = {label.name for label in (*self._known, *self._new)}
        for label in self._known:
            name = self._name(label.number)
            if name != label.name and name in wanted:
                self._model.rename_label(name, f"\ue000 {label.number}")
        if self._new:
            self._model.add_labels([label.name for label in self._new], [label.key for label in self._new])
            self.numbers.append(np.array([label.number for label in self._new], np.int64))

    def finish(self) -> Growing:
        """Rename, retire and drop."""
        gone = [label.number for label in self._known if label.name is None]
        for label in (*self._known, *self._new):
            if label.name is None:
                continue
            name = self._name(label.number)
            if name != label.name:
                self._model.rename_label(name, label.name)
            if bool(self._model.labels_.retired[self._places(label.number)]) != label.retired:
                change = self._model.retire_label if label.retired else self._model.reinstate_label
                change(label.name)
        if gone:
            self._model.drop_labels([self._name(number) for number in gone])
            self.numbers = Growing(np.delete(self.numbers.view, self._places(gone)))
        return self.numbers
