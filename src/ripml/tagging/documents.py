"""An estimator together with the way from documents to its features, and from its scores to suggestions.

It is what `Tagger`, the shell and the server train, save and ask. Rows come as numbered features (XMC text, SVMLight,
ARFF, JSON lists), as named features (JSON objects), or as texts, which become rows of tf-idf, of doc2vec or of an
encoder's. The folder that `save` writes is a model folder like any other; `ripml.load` reads it too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ripml import metrics
from ripml.base import model_folder
from ripml.base.errors import DataError, ModelFolderError, ParameterError, check_count
from ripml.base.model_folder import Contents
from ripml.baselines.loading import estimator_of
from ripml.datasets import Dataset
from ripml.datasets.formats import format_of, iter_blocks, read_source
from ripml.datasets.source import open_source
from ripml.decoding import scores as decoding
from ripml.labels.encoding import align_columns, encode_names
from ripml.model.estimator import RIPML
from ripml.model.explain import Explanation, explained
from ripml.model.multilabel import Multilabel
from ripml.tagging.rules import Rules, Suggestion
from ripml.text import Doc2Vec, Encoder, TfIdf
from ripml.text.tokens import strings

__all__ = ["DocumentModel", "Text", "Why", "distinct", "text_features"]

Text: TypeAlias = TfIdf | Doc2Vec | Encoder
_KINDS: Final[dict[str, type[Any]]] = {"tfidf": TfIdf, "doc2vec": Doc2Vec, "encoder": Encoder}
_ROWS_AT_A_TIME: Final = 1000  # that are asked about


def text_features(given: Any = "tfidf") -> Text:
    """What turns texts into features: "tfidf", "doc2vec", or an object of these kinds, or any encoder of texts.

    The word "tfidf" is for texts of any script: words or neighbouring characters, and groups of four letters.

    >>> text_features().letters
    4
    """
    if isinstance(given, (TfIdf, Doc2Vec, Encoder)):
        return copy.copy(given)
    if given == "tfidf":
        return TfIdf(tokens="any", letters=4, min_df="auto")
    if given == "doc2vec":
        return Doc2Vec(tokens="any")
    if isinstance(given, str) or given is None:
        raise ParameterError(f"`features` must be 'tfidf', 'doc2vec' or an encoder of texts; got {given!r}.")
    return Encoder(given)


def distinct(data: Dataset) -> Dataset:
    """A data set of texts with each text once, whatever its spaces, and all labels it has; without blank texts.

    A row that is left out while its copy stays would look as if it had been told right.

    >>> Y = csr_array(np.array([[1, 0], [0, 1], [1, 1]]))
    >>> distinct(Dataset(X=None, Y=Y, label_names=["a", "b"], texts=["red  tea", "red tea", " "])).Y.toarray().tolist()
    [[1.0, 1.0]]
    """
    places: dict[str, int] = {}
    first, groups = list[int](), list[int]()
    for row, text in enumerate(data.texts or ()):
        known = " ".join(text.split())
        if known and known not in places:
            places[known] = len(first)
            first.append(row)
        groups.append(places.get(known, -1))
    if len(first) == len(data):
        return data
    group = np.array(groups)
    given = np.flatnonzero(group >= 0)
    same = csr_array((np.ones(len(given), np.float32), (group[given], given)), shape=(len(first), len(data)))
    Y = csr_array(same @ data.Y, dtype=np.float32)
    Y.sum_duplicates()
    Y.data[:] = 1
    texts, ids = [(data.texts or [])[row] for row in first], data.ids and [data.ids[row] for row in first]
    return replace(data, X=None if data.X is None else data.X[first], Y=Y, texts=texts, ids=ids)


@dataclass(frozen=True)
class Why(Explanation):
    """Why a label was suggested for a text, its features by name."""

    #: Where the text speaks for the label (> 0) or against it: from and to which character, and how much.
    spans: list[tuple[int, int, float]]


def _numbered_from(place: Any, format: str | None, first: int) -> dict[str, Any]:
    """The option of SVMLight files that says where their features count from; none for other formats."""
    with open_source(place) as source:
        return {"zero_based": first == 0} if format_of(source, format) == "svmlight" else {}


@dataclass(frozen=True)
class DocumentModel:
    """A fitted estimator, and what its columns mean: words of texts, named features, or just numbers."""

    model: Multilabel
    text: Text | None = None
    feature_names: list[str] | None = None
    first_feature: int | None = None  # of SVMLight files: 0 or 1
    rules: Rules = field(default_factory=Rules)
    # In a store: the document of each row that was ever learnt, and the number of each label, ascending.
    row_documents: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    label_numbers: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def fit(
        cls,
        data: Dataset,
        first_feature: int | None,
        model: Multilabel,
        *,
        features: Any = "tfidf",
        rules: Rules | None = None,
        always_named: bool = False,
    ) -> DocumentModel:
        """Fit `model` on a data set; where there are no features they are made of the texts, see `text_features`.

        Labels are strings; only those of features, whose names are just their numbers, become integers, unless the
        model is to take on new names.
        """
        if not len(data):
            raise DataError(f"there is nothing to learn from: {data.name or 'the data set'} has no rows.")
        text, X = None, data.X
        numbered = X is not None and not always_named and encode_names(data.label_names).dtype != object
        if X is None:
            if data.texts is None:
                raise DataError(f"{data.name} has neither features nor texts.")
            text = text_features(features)
            X = text.fit_transform(data.texts)
        model.fit(X, data.Y, label_names=None if numbered else data.label_names)
        return cls(model, text, data.feature_names if text is None else None, first_feature, rules or Rules())

    @classmethod
    def fit_blocks(
        cls, place: Any, format: str | None, model: RIPML, folder: Path, memory: int, **columns: str
    ) -> DocumentModel:
        """Fit `model` on a file that may be larger than memory, in this folder; see `RIPML.fit_blocks`.

        Texts are read twice: for their words, and to be learnt from. `columns` are options of the format.
        """
        options: dict[str, Any] = dict(columns)
        first = next(iter_blocks(place, format, **columns, **_numbered_from(place, format, 0)), None)
        first_feature, text = None, None
        if first is None:
            raise DataError(f"{place} has no rows.")
        if first.X is None:
            if first.texts is None:
                raise DataError(f"{first.name} has neither features nor texts.")
            text = text_features()
            assert isinstance(text, TfIdf)
            text.fit_blocks(block.texts or [] for block in iter_blocks(place, format, **options))
        elif numbered := _numbered_from(place, format, 0):
            zero = any((block.X.indices == 0).any() for block in iter_blocks(place, format, **numbered))
            first_feature = 0 if zero else 1
            options = _numbered_from(place, format, first_feature)
        names: dict[str, list[str] | None] = {"labels": [], "features": None}

        def blocks() -> Iterator[tuple[Any, Any]]:
            for block in iter_blocks(place, format, **options):
                names.update(labels=block.label_names, features=block.feature_names)
                yield block.X if text is None else text.transform(block.texts or []), block.Y

        def label_names() -> list[str] | None:
            numbered = text is None and encode_names(names["labels"] or []).dtype != object
            return None if numbered else names["labels"]

        model.fit_blocks(blocks(), folder, memory, label_names)
        return cls(model, text, names["features"], first_feature)

    @staticmethod
    def read_training(place: Any, format: str | None = None, **options: Any) -> tuple[Dataset, int | None]:
        """Read a file to train on; also, of SVMLight, whether its features count from 0 or 1: what `fit` wants.

        `options` are those of the format.
        """
        with open_source(place) as source:
            format = format_of(source, format)
            if format != "svmlight":
                return read_source(source, format, **options), None
            data = read_source(source, format, **{**options, "zero_based": True, "n_features": None, "n_labels": None})
            first = 0 if (data.X.indices == 0).any() else 1
            return replace(data, X=data.X[:, first:]), first

    def read(self, place: Any, format: str | None = None, **options: Any) -> Dataset:
        """Read a file to be asked about, with options of its format.

        SVMLight files say neither their width nor where they count from; we know.
        """
        with open_source(place) as source:
            format = format_of(source, format)
            if format == "svmlight":
                zero_based, n_features = self.first_feature == 0, self.model.n_features_in_
                options |= {"zero_based": zero_based, "n_features": n_features, "n_labels": None}
            data = read_source(source, format, **options)
            return self.same_form(data) if format == "jsonl" else data

    def same_form(self, data: Dataset) -> Dataset:
        """`data`, if its features are as the model's: the names of one file say nothing of the places of another."""
        if data.X is not None and self.text is None and (data.feature_names is None) != (self.feature_names is None):
            forms = {True: "lists", False: "objects with names"}
            learnt, given = forms[self.feature_names is None], forms[data.feature_names is None]
            raise DataError(f"the model was trained on features in {learnt}, but {data.name} has them in {given}.")
        return data

    def check(self, data: Dataset) -> None:
        """Raise `DataError` unless the rows of `data` are of the kind that the model was trained on."""
        d = self.model.n_features_in_
        if self.text is not None:
            if data.texts is None:
                raise DataError(f"the model was trained on texts, but {data.name} has none.")
        elif data.X is None:
            raise DataError(f"the model was trained on {d} features, but {data.name} has only texts.")
        elif (self.feature_names is None or data.feature_names is None) and data.X.shape[1] != d:
            raise DataError(f"the model was trained on {d} features, but {data.name} has {data.X.shape[1]}.")

    def features(self, data: Dataset) -> Any:
        """The rows of `data` as the model's features, (n, d); words and names it never saw are left out."""
        self.check(data)
        if self.text is not None:
            return self.text.transform(data.texts or [])
        if self.feature_names is not None and data.feature_names is not None:
            return align_columns(data.X, data.feature_names, self.feature_names)[0][:, : self.model.n_features_in_]
        return data.X

    def labels(self, data: Dataset) -> Any:
        """The labels of `data` by the model's columns, CSR (n, ≥ L): names that it never saw come after its own."""
        return align_columns(data.Y, data.label_names, [str(name) for name in self.model.classes_])[0]

    @property
    def columns(self) -> list[str] | None:
        """The names of the features, if they have any: words, or those of the file."""
        return self.text.feature_names if isinstance(self.text, TfIdf) else self.feature_names

    def without_features(self, gone: NDArray[np.bool_]) -> DocumentModel:
        """The model without anything of these features (d,), which no document has any more, not even their names."""
        model = self.model
        if isinstance(model, RIPML):
            model = copy.copy(model).clear_features(gone)
        if isinstance(self.text, TfIdf):
            return replace(self, model=model, text=self.text.without(gone))
        if self.feature_names is None:
            return replace(self, model=model)
        names = [f"\0{i}" if out else name for i, (name, out) in enumerate(zip(self.feature_names, gone, strict=True))]
        return replace(self, model=model, feature_names=names)

    # ------------------------------------------------------------------------------------------------------- answering

    def suggest(self, rows: Dataset | Sequence[str], rules: Rules | None = None) -> list[list[Suggestion]]:
        """The labels that are suggested for each text, or row of a data set, and their scores, best first."""
        rules = self.rules if rules is None else rules
        found: list[list[Suggestion]] = []
        for X in self._asked(rows):
            found += rules.suggestions(self.model, self.model.decision_function(X))
        return found

    def explain(
        self, rows: Dataset | Sequence[str], rules: Rules | None = None, n_examples: int = 5, n_features: int = 10
    ) -> list[list[Why]]:
        """Why each of the labels that `suggest` gives is suggested; features are by name where they have one."""
        check_count("n_examples", n_examples)
        check_count("n_features", n_features)
        model = copy.copy(self.model)  # one version throughout, whoever writes meanwhile
        if not isinstance(model, RIPML):
            raise ParameterError(f"RIPML explains its answers; this is {type(model).__name__}, which does not.")
        texts = rows.texts if isinstance(rows, Dataset) else strings(rows)
        names, rules, found = self.columns, self.rules if rules is None else rules, list[list[Why]]()
        for X in self._asked(rows):
            best = rules.kept(model, model.decision_function(X))
            # All features of a text are needed to say where it speaks.
            most = max(n_features, int(np.diff(X.indptr).max(initial=0)) if hasattr(X, "indptr") else X.shape[1])
            for why in explained(model, X, best, n_examples, most):
                spans = self._marks(texts[len(found)]) if texts is not None else None
                found.append([self._named(each, names, n_features, spans) for each in why])
        return found

    def _asked(self, rows: Dataset | Sequence[str]) -> Iterator[Any]:
        """The features of rows, some at a time, (≤ r, d)."""
        if not isinstance(rows, Dataset):
            rows = _unlabelled(strings(rows))
        self.check(rows)
        features: Any = self.features(rows) if self.text is None else None
        for start in range(0, len(rows), _ROWS_AT_A_TIME):
            some = slice(start, start + _ROWS_AT_A_TIME)
            yield self.text.transform((rows.texts or [])[some]) if self.text is not None else features[some]

    def _marks(self, text: str) -> list[tuple[int, int, list[int]]]:
        return self.text.spans(text) if isinstance(self.text, TfIdf) else []

    def _named(
        self, why: Explanation, names: list[str] | None, n_features: int, marks: list[tuple[int, int, list[int]]] | None
    ) -> Why:
        pulls, counts = dict(why.features), dict[int, int]()
        for _, _, columns in marks or ():
            for column in columns:
                counts[column] = counts.get(column, 0) + 1
        spans = [
            (start, end, float(sum(pulls.get(column, 0) / counts[column] for column in columns)))
            for start, end, columns in marks or ()
        ]
        first = self.first_feature or 0

        def name(feature: Any) -> Any:
            if not isinstance(feature, int):  # the estimator knows it by name
                return feature
            return feature + first if names is None else names[feature]

        features = [(name(feature), pull) for feature, pull in why.features[:n_features]]
        values = {**vars(why), "label": str(why.label), "features": features}
        return Why(**values, spans=[span for span in spans if span[2]])

    def evaluate(self, data: Dataset) -> dict[str, float]:
        """Metrics of the answers to rows with labels: P@k, nDCG@k, … and F1 of the sets above the threshold.

        Labels that the model never saw count as missed. Rules are not applied: this is about the model.
        """
        truth = self.labels(data)
        if not truth.nnz:
            raise DataError(f"{data.name or 'the data'} has no labels to compare with.")
        model = self.model
        scores = vstack([model.decision_function(X) for X in self._asked(data)], format="csr")
        sets = decoding.keep_above(scores, model.threshold_)
        for matrix in (scores, sets):
            matrix.resize(truth.shape)
        known = model.propensities()
        propensities = None if known is None else np.concatenate([known, np.ones(truth.shape[1] - len(known))])
        report = metrics.report(truth, scores, propensities=propensities)
        return {**report, "micro F1": metrics.micro_f1(truth, sets), "macro F1": metrics.macro_f1(truth, sets)}

    def scores(self, data: Dataset) -> Any:
        """Scores for the rows of `data`, CSR (n, L)."""
        return self.model.decision_function(self.features(data))

    # ---------------------------------------------------------------------------------------------------- save and load

    def save(self, path: str | PathLike[str]) -> None:
        """Write the folder."""
        model_folder.save(path, type(self.model).__name__, *self.to_state())

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that is saved, as JSON values and arrays."""
        parameters, arrays = self.model.to_state()
        parameters |= {
            "columns": self.feature_names,
            "first_feature": self.first_feature,
            "rules": self.rules.to_json(),
        }
        if self.text is not None:
            parameters["text"], words = self.text.to_state()
            parameters["text_kind"] = next(kind for kind, its in _KINDS.items() if isinstance(self.text, its))
            arrays |= {f"text_{name}": array for name, array in words.items()}
        numbers = {"row_documents": self.row_documents, "label_numbers": self.label_numbers}
        arrays |= {f"store_{name}": array for name, array in numbers.items() if array is not None}
        return parameters, arrays

    @classmethod
    def load(cls, path: str | PathLike[str], encoder: Any = None) -> DocumentModel:
        """Read a folder written by `save`, or by an estimator's own; with its encoder, if there was one."""
        return cls.from_contents(path, model_folder.load(path), encoder)

    @classmethod
    def from_contents(cls, path: str | PathLike[str], contents: Contents, encoder: Any = None) -> DocumentModel:
        """The model of a folder's contents; the path is for errors."""
        model, parameters = estimator_of(path, contents), contents.parameters
        names = parameters.get("columns")
        strings = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if names is not None and (not strings or len(names) != model.n_features_in_):
            raise ModelFolderError(f"{path}: the names of the features do not fit their number.")
        text = None
        if "text" in parameters:
            words = {name[5:]: array for name, array in contents.arrays.items() if name.startswith("text_")}
            kind = _KINDS.get(parameters.get("text_kind", "tfidf"))  # of old there was no other
            if kind is None or not isinstance(parameters["text"], dict):
                raise ModelFolderError(f"{path}: its features of texts are of a kind that ripml does not know.")
            text = kind.from_state(parameters["text"], words)
            n_features = len(text.feature_names) if isinstance(text, TfIdf) else text.n_dims
            if n_features != model.n_features_in_:
                raise ModelFolderError(f"{path}: the number of words is not that of the features.")
        if encoder is not None:
            if not isinstance(text, Encoder):
                raise ParameterError(f"{path}: this model was trained without an encoder; leave `encoder` out.")
            text = Encoder(encoder, text.n_dims, text.name)
        first_feature = parameters.get("first_feature")
        if first_feature not in (None, 0, 1):
            raise ModelFolderError(f"{path}: `first_feature` must be 0 or 1; got {first_feature!r}.")
        rules = Rules.from_json(parameters.get("rules", {}))
        rows, labels = (contents.arrays.get(f"store_{name}") for name in ("row_documents", "label_numbers"))
        return cls(model, text, names, first_feature, rules, rows, labels)


def _unlabelled(texts: list[str]) -> Dataset:
    return Dataset(
        X=None, Y=csr_array((len(texts), 0), dtype=np.float32), label_names=[], texts=texts, name="these texts"
    )
