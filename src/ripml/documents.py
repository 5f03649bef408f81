"""An estimator together with the way from files to its features and labels: what the shell trains, saves and asks.

Rows come as numbered features (XMC text, SVMLight, ARFF, JSON lists), as named features (JSON objects), or as texts,
which become tf-idf rows. The folder that `save` writes is a model folder like any other; `ripml.load` reads it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml import model_folder
from ripml.datasets import Dataset, svmlight
from ripml.datasets.formats import FORMATS, format_of, iter_blocks
from ripml.datasets.source import open_source
from ripml.errors import DataError, ModelFolderError
from ripml.estimator import RIPML
from ripml.labels import align_columns, encode_names
from ripml.loading import estimator_of
from ripml.multilabel import Multilabel
from ripml.text import TfIdf

__all__ = ["DocumentModel"]


def _numbered_from(place: Any, format: str | None, first: int) -> dict[str, Any]:
    """The option of SVMLight files that says where their features count from; none for other formats."""
    with open_source(place) as source:
        return {"zero_based": first == 0} if format_of(source, format) == "svmlight" else {}


@dataclass(frozen=True)
class DocumentModel:
    """A fitted estimator, and what its columns mean: words of texts, named features, or just numbers."""

    model: Multilabel
    tfidf: TfIdf | None = None
    feature_names: list[str] | None = None
    first_feature: int | None = None  # of SVMLight files: 0 or 1
    # In a store: the document of each row that was ever learnt, and the number of each label, ascending.
    row_documents: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    label_numbers: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def fit(
        cls, data: Dataset, first_feature: int | None, model: Multilabel, *, always_named: bool = False
    ) -> DocumentModel:
        """Fit `model` on a data set; texts are turned into tf-idf rows where there are no features.

        Labels whose names are just their numbers become integers, or else strings: a model has labels of one kind, and
        one that is to take on new names needs strings.
        """
        numbered = not always_named and encode_names(data.label_names).dtype != object
        if not len(data):
            raise DataError(f"{data.name} has no rows.")
        tfidf = None
        X = data.X
        if X is None:
            if data.texts is None:
                raise DataError(f"{data.name} has neither features nor texts.")
            tfidf = TfIdf(min_df=min(2, len(data)))
            X = tfidf.fit_transform(data.texts)
        model.fit(X, data.Y, label_names=None if numbered else data.label_names)
        return cls(model, tfidf, data.feature_names if tfidf is None else None, first_feature)

    @classmethod
    def fit_blocks(cls, place: Any, format: str | None, model: RIPML, folder: Path, memory: int) -> DocumentModel:
        """Fit `model` on a file that may be larger than memory, in this folder; see `RIPML.fit_blocks`.

        Texts are read twice: for their words, and to be learnt from.
        """
        options: dict[str, Any] = {}
        first = next(iter_blocks(place, format, **_numbered_from(place, format, 0)), None)
        first_feature, tfidf = None, None
        if first is None:
            raise DataError(f"{place} has no rows.")
        if first.X is None:
            if first.texts is None:
                raise DataError(f"{first.name} has neither features nor texts.")
            tfidf = TfIdf().fit_blocks(block.texts or [] for block in iter_blocks(place, format))
        elif options := _numbered_from(place, format, 0):
            zero = any((block.X.indices == 0).any() for block in iter_blocks(place, format, **options))
            first_feature = 0 if zero else 1
            options = _numbered_from(place, format, first_feature)
        names: dict[str, list[str] | None] = {"labels": [], "features": None}

        def blocks() -> Iterator[tuple[Any, Any]]:
            for block in iter_blocks(place, format, **options):
                names.update(labels=block.label_names, features=block.feature_names)
                yield block.X if tfidf is None else tfidf.transform(block.texts or []), block.Y

        def label_names() -> list[str] | None:
            numbered = encode_names(names["labels"] or []).dtype != object
            return None if numbered else names["labels"]

        model.fit_blocks(blocks(), folder, memory, label_names)
        return cls(model, tfidf, names["features"], first_feature)

    @staticmethod
    def read_training(place: Any, format: str | None = None) -> tuple[Dataset, int | None]:
        """Read a file to train on; also, of SVMLight, whether its features count from 0 or 1: what `fit` wants."""
        with open_source(place) as source:
            format = format_of(source, format)
            if format != "svmlight":
                return FORMATS[format].read(source), None
            data = svmlight.read(source, zero_based=True)
            first = 0 if (data.X.indices == 0).any() else 1
            return replace(data, X=data.X[:, first:]), first

    def read(self, place: Any, format: str | None = None) -> Dataset:
        """Read a file to be asked about. SVMLight files say neither their width nor where they count from; we know."""
        with open_source(place) as source:
            format = format_of(source, format)
            if format == "jsonl":
                return self.same_form(FORMATS[format].read(source))
            if format != "svmlight":
                data: Dataset = FORMATS[format].read(source)
                return data
            return svmlight.read(source, zero_based=self.first_feature == 0, n_features=self.model.n_features_in_)

    def same_form(self, data: Dataset) -> Dataset:
        """`data`, if its features are as the model's: the names of one file say nothing of the places of another."""
        if data.X is not None and self.tfidf is None and (data.feature_names is None) != (self.feature_names is None):
            forms = {True: "lists", False: "objects with names"}
            learnt, given = forms[self.feature_names is None], forms[data.feature_names is None]
            raise DataError(f"the model was trained on features in {learnt}, but {data.name} has them in {given}.")
        return data

    def check(self, data: Dataset) -> None:
        """Raise `DataError` unless the rows of `data` are of the kind that the model was trained on."""
        d = self.model.n_features_in_
        if self.tfidf is not None:
            if data.texts is None:
                raise DataError(f"the model was trained on texts, but {data.name} has none.")
        elif data.X is None:
            raise DataError(f"the model was trained on {d} features, but {data.name} has only texts.")
        elif (self.feature_names is None or data.feature_names is None) and data.X.shape[1] != d:
            raise DataError(f"the model was trained on {d} features, but {data.name} has {data.X.shape[1]}.")

    def features(self, data: Dataset) -> Any:
        """The rows of `data` as the model's features, CSR (n, d); words and names it never saw are left out."""
        self.check(data)
        if self.tfidf is not None:
            return self.tfidf.transform(data.texts or [])
        if self.feature_names is not None and data.feature_names is not None:
            return align_columns(data.X, data.feature_names, self.feature_names)[0][:, : self.model.n_features_in_]
        return data.X

    def labels(self, data: Dataset) -> Any:
        """The labels of `data` by the model's columns, CSR (n, ≥ L): names that it never saw come after its own."""
        return align_columns(data.Y, data.label_names, [str(name) for name in self.model.classes_])[0]

    def without_features(self, gone: NDArray[np.bool_]) -> DocumentModel:
        """The model without the words, or names, of these features (d,), for texts that do not have them any more."""
        if self.tfidf is not None:
            return replace(self, tfidf=self.tfidf.without(gone))
        if self.feature_names is None:
            return self
        names = [f"\0{i}" if out else name for i, (name, out) in enumerate(zip(self.feature_names, gone, strict=True))]
        return replace(self, feature_names=names)

    def scores(self, data: Dataset) -> Any:
        """Scores for the rows of `data`, CSR (n, L)."""
        return self.model.decision_function(self.features(data))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the folder."""
        parameters, arrays = self.model.to_state()
        parameters["columns"] = self.feature_names
        parameters["first_feature"] = self.first_feature
        if self.tfidf is not None:
            text, words = self.tfidf.to_state()
            parameters["text"] = text
            arrays |= {f"text_{name}": array for name, array in words.items()}
        numbers = {"row_documents": self.row_documents, "label_numbers": self.label_numbers}
        arrays |= {f"store_{name}": array for name, array in numbers.items() if array is not None}
        model_folder.save(path, type(self.model).__name__, parameters, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> DocumentModel:
        """Read a folder written by `save`, or by an estimator's own."""
        contents = model_folder.load(path)
        model = estimator_of(path, contents)
        names = contents.parameters.get("columns")
        strings = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if names is not None and (not strings or len(names) != model.n_features_in_):
            raise ModelFolderError(f"{path}: the names of the features do not fit their number.")
        tfidf = None
        if "text" in contents.parameters:
            words = {name[5:]: array for name, array in contents.arrays.items() if name.startswith("text_")}
            tfidf = TfIdf.from_state(contents.parameters["text"], words)
            if len(tfidf.feature_names) != model.n_features_in_:
                raise ModelFolderError(f"{path}: the number of words is not that of the features.")
        first_feature = contents.parameters.get("first_feature")
        if first_feature not in (None, 0, 1):
            raise ModelFolderError(f"{path}: `first_feature` must be 0 or 1; got {first_feature!r}.")
        rows, labels = (contents.arrays.get(f"store_{name}") for name in ("row_documents", "label_numbers"))
        return cls(model, tfidf, names, first_feature, rows, labels)
