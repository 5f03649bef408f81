"""`DocumentModel`: an estimator, how documents become its features, and how its scores become suggestions.

`Tagger`, `Store`, the command line and the server all train, save and query this class. Rows have numbered features
(XMC text, SVMLight, ARFF, JSON lists), named features (JSON objects), or texts, from which tf-idf, doc2vec or an
encoder makes features. `save` writes an ordinary model folder, which `ripml.load` reads too.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from ripml import metrics
from ripml.base import model_folder, notebook, progress, registry
from ripml.base.errors import DataError, ModelFolderError, ParameterError, check_count
from ripml.base.model_folder import Contents
from ripml.datasets import Dataset, iter_blocks
from ripml.datasets.formats import format_of, read_source
from ripml.datasets.source import open_source
from ripml.datasets.vocabularies import with_ids
from ripml.decoding import scores as decoding
from ripml.decoding.calibration import errors_by_frequency, expected_calibration_error
from ripml.decoding.evidence import Evidence, FeatureRows, apart
from ripml.decoding.label_set_index import wide
from ripml.labels.concepts import Concepts
from ripml.labels.encoding import align_columns, encode_names, names_array
from ripml.labels.vocabulary import Vocabulary
from ripml.model.audit import Audit, audit
from ripml.model.budget import WORD_BYTES, Sizes
from ripml.model.copies import Copies
from ripml.model.estimator import RIPML
from ripml.model.explain import Explanation, explained
from ripml.model.learning_curve import LearningCurve, Outcome, measure_learning_curve
from ripml.model.left_out import ENOUGH_ROWS, row_numbers, training_labels
from ripml.model.multilabel import Multilabel
from ripml.model.plots import plot_quality
from ripml.model.quality import Quality, quality
from ripml.model.shown import Explained, fitted_html
from ripml.tagging.familiarity import Familiarity
from ripml.tagging.rules import Rules, Suggestion
from ripml.tagging.streaming import count_texts, estimate_sizes
from ripml.tagging.words import LabelWords, MatchedName
from ripml.text import Doc2Vec, Encoder, TextFeatures, TfIdf, Title, Views
from ripml.text.encoder import is_encoder_name
from ripml.text.title import TITLE_MARK, title_of
from ripml.text.tokens import strings
from ripml.text.views import TEXT_KINDS

__all__ = ["DocumentModel", "Why", "check_texts", "distinct", "estimator_of", "reads_names", "text_features"]

_BLOCK: Final = 1000  # rows that are scored together
_PACKED: Final = 4  # bytes of a compressed file unpacked
_COMMON: Final = 0.2  # of texts have a word such as "the", which tells little, however strongly it pulls
_FEW_TEXTS: Final = 3  # times as many as the rarest word has
_LEAST_PULL: Final = 5e-4  # less is printed as 0.000


def text_features(features: Any = "auto", model: Multilabel | None = None) -> TextFeatures:
    """What turns texts into features: a word, the name of an encoder, an object, or a list of these.

    "tfidf" works for texts in any script: it counts words or neighbouring characters, and groups of four letters;
    "title" does the same for the titles of texts. "auto" stands for these two side by side, and for "tfidf" alone if
    `model` cannot weigh them. "doc2vec" is the paper's. An object is a `TextFeatures` or any encoder of texts, see
    `ripml.text.encoder`.

    >>> [part.kind for part in text_features().parts], text_features("auto", RIPML.paper()).kind
    (['tfidf', 'title'], 'tfidf')
    """
    if isinstance(features, TextFeatures):
        return copy.copy(features)
    if isinstance(features, (list, tuple)):
        parts = [text_features(part, model) for part in features]
        return parts[0] if len(parts) == 1 else Views(parts)
    if features == "auto":
        words = TfIdf(tokens="any", letters=4, min_df="auto")
        if model is not None and not _weighs_views(model):
            return words
        return Views([words, Title(tokens="any", letters=4, min_df="auto", optional=True)])
    if features in ("tfidf", "title"):
        return (TfIdf if features == "tfidf" else Title)(tokens="any", letters=4, min_df="auto")
    if features == "doc2vec":
        return Doc2Vec(tokens="any")
    if features is None or (isinstance(features, str) and not is_encoder_name(features)):
        raise ParameterError(
            "`features` must be 'auto', 'tfidf', 'title', 'doc2vec', the name of an encoder such as 'minilm', an "
            f"encoder of texts, or a list of these; got {features!r}."
        )
    return Encoder(features)


def reads_names(model: Multilabel) -> bool:
    """Whether an estimator that is fitted on texts takes the names of labels in them as evidence.

    >>> reads_names(RIPML()), reads_names(RIPML.paper())
    (True, False)
    """
    return isinstance(model, RIPML) and model.stages().decoder.reads_evidence


def distinct(data: Dataset) -> Dataset:
    """A data set in which each text occurs once, with all labels of its copies; blank texts are left out.

    Texts that differ only in white space are copies. If copies stayed, leave-one-out would be too optimistic: the copy
    of a held-out row would still be among the training rows.

    >>> Y = csr_array(np.array([[1, 0], [0, 1], [1, 1]]))
    >>> distinct(Dataset(X=None, Y=Y, label_names=["a", "b"], texts=["red  tea", "red tea", " "])).Y.toarray().tolist()
    [[1.0, 1.0]]
    """
    group_of: dict[str, int] = {}
    first, groups = list[int](), list[int]()
    for row, text in enumerate(data.texts or ()):
        normal = " ".join(text.split())
        if normal and normal not in group_of:
            group_of[normal] = len(first)
            first.append(row)
        groups.append(group_of.get(normal, -1))
    if len(first) == len(data):
        return data
    # Row g of `same` has ones at the copies of text g, so same @ Y adds up their labels.
    group = np.array(groups)
    rows = np.flatnonzero(group >= 0)
    same = csr_array((np.ones(len(rows), np.float32), (group[rows], rows)), shape=(len(first), len(data)))
    Y = csr_array(same @ data.Y, dtype=np.float32)
    Y.sum_duplicates()
    Y.data[:] = 1
    return replace(data.take(first), Y=Y)


def check_texts(data: Dataset) -> None:
    """Raise if all texts are blank."""
    if data.texts and not any(text.strip() for text in data.texts):
        raise DataError("there is nothing to learn from: all texts are empty; text=… names another column.")


@dataclass(frozen=True)
class Why(Explanation):
    """Why a label was suggested for a text, with the names of its features.

    The features of a text are its words: what groups of letters pull is added to the words that have these letters.
    """

    #: The places of the text that support the label (> 0) or count against it (< 0): start, end, and strength.
    spans: list[tuple[int, int, float]]
    #: The names of the label that stand in the text, and where.
    matched: list[MatchedName] = field(default_factory=list)
    #: The text itself, for notebooks.
    text: str = field(default="", repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """As JSON values, without the text."""
        values = super().to_json()
        del values["text"]
        return values


@dataclass(frozen=True)
class DocumentModel:
    """A fitted estimator and the meaning of its columns: words of texts, named features, or plain numbers."""

    model: Multilabel
    text: TextFeatures | None = None
    feature_names: list[str] | None = None
    first_feature: int | None = None  # whether the features of SVMLight files count from 0 or 1
    rules: Rules = field(default_factory=Rules)
    # In a store: the document of each row that was ever learnt, and the number of each label, ascending.
    row_documents: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    label_numbers: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    # Whether `features` gives what a text was learnt with. Early versions learnt the vectors that doc2vec had trained.
    repeatable: bool = field(default=True, repr=False, compare=False)
    # What a vocabulary says of labels, also of some that no document carries; None without a vocabulary.
    concepts: Concepts | None = field(default=None, repr=False, compare=False)
    # The names of labels that are evidence where they stand in a text; None where the model knows no names.
    words: LabelWords | None = field(default=None, repr=False, compare=False)
    # How common the words of training texts are; None without words, and in folders of early versions.
    familiar: Familiarity | None = field(default=None, repr=False, compare=False)

    # --------------------------------------------------------------------------------------------------------- fitting

    @classmethod
    def fit(
        cls,
        data: Dataset,
        first_feature: int | None,
        model: Multilabel,
        *,
        features: Any = "auto",
        rules: Rules | None = None,
        always_named: bool = False,
        concepts: Concepts | None = None,
        unseen: Container[str] | None = None,
        vectors: NDArray[np.float32] | None = None,
    ) -> DocumentModel:
        """Fit `model` on a data set; if it has no features, they are made from the texts, see `text_features`.

        Labels are strings, unless the data has features and its labels are called "0", "1", …: then they are integers.
        `always_named` keeps them strings, which a model needs that is to learn labels with new names. `concepts` is the
        vocabulary of the labels: their names are evidence where they stand in a text. Concepts that no row carries
        become labels that can be suggested, all of them or, if they are given, those in `unseen`. `vectors` are those
        of the texts that an encoder has given already.
        """
        if not len(data):
            raise DataError(f"there is nothing to learn from: {data.name or 'the data set'} has no rows.")
        if data.X is None:
            check_texts(data)
        text, X, words = None, data.X, None
        numbered = X is not None and not always_named and encode_names(data.label_names).dtype != object
        if X is None:
            text = text_features(features, model)
            progress.step(
                f"reading the words of {len(data):,} texts" if not text.encoders else f"reading {len(data):,} texts"
            )
            X = text.learn(_texts(data), vectors)
            _tell_views(model, text)
            if concepts and reads_names(model):
                known = set(data.label_names)
                words = LabelWords.of(
                    (concept for id, concept in concepts.items() if id in known or unseen is None or id in unseen),
                    text.shares,
                )
            if words is not None:
                more = [id for id in words.ids if id not in known]
                labels = Vocabulary.of(names_array(data.label_names)).added(more)
                X = FeatureRows(X, words.training_evidence(_texts(data), labels), more)
        model.fit(X, data.Y, label_names=None if numbered else data.label_names)
        names = data.feature_names if text is None else None
        familiar = None if text is None else Familiarity.fit(text, _texts(data))
        return cls(
            model, text, names, first_feature, rules or Rules(), concepts=concepts or None, words=words,
            familiar=familiar,
        )  # fmt: skip

    @staticmethod
    def sizes_of_blocks(place: Any, format: str | None, model: RIPML, features: Any = "auto", **columns: str) -> Sizes:
        """About the sizes of a file for `fit_blocks`, by its beginning; see `ripml.model.budget.needs`."""
        n_bytes, options = Path(place).stat().st_size, dict[str, Any](columns)
        with open_source(place) as source:
            kind = format_of(source, format)
        if kind == "svmlight":
            options["zero_based"] = True
        if kind == "parquet" or str(place).endswith(".gz"):
            n_bytes *= _PACKED
        return estimate_sizes(iter_blocks(place, format, **options), n_bytes, lambda: text_features(features, model))

    @classmethod
    def fit_blocks(
        cls,
        place: Any,
        format: str | None,
        model: RIPML,
        folder: Path,
        memory: int,
        concepts: Concepts | None = None,
        features: Any = "auto",
        **columns: str,
    ) -> DocumentModel:
        """Fit `model` on a file that may be larger than memory, working in `folder`; see `RIPML.fit_blocks`.

        Texts are read twice: to count their words, and to learn from them; copies of a text are one row. `columns` are
        options of the format.
        Labels that are names in the vocabulary `concepts` become ids, see `with_ids`; as in `fit`, the names of all
        concepts are evidence where they stand in a text.
        """
        options: dict[str, Any] = dict(columns)
        with open_source(place) as source:
            is_svmlight = format_of(source, format) == "svmlight"
        if is_svmlight:
            options["zero_based"] = True

        def read() -> Iterator[Dataset]:
            found = iter_blocks(place, format, **options)
            return found if concepts is None else (with_ids(block, concepts) for block in found)

        first = next(read(), None)
        first_feature, text, counted, words = None, None, None, None
        if first is None:
            raise DataError(f"{place} has no rows.")
        if first.X is None:
            _texts(first)
            text = text_features(features, model)
            about = f"{_identity(place)} {format} {sorted(options.items())} {concepts is not None}"
            counted = count_texts(read, text, folder / "texts", memory // 4, about)
            memory = max(memory - WORD_BYTES * text.n_features, memory // 4, min(memory, 1 << 20))
            _tell_views(model, text)
        elif is_svmlight:
            zero = any((block.X.indices == 0).any() for block in iter_blocks(place, format, zero_based=True))
            first_feature = 0 if zero else 1
            options = {"zero_based": zero}
        names: dict[str, list[str] | None] = {"labels": [], "features": None}

        def noted() -> Iterator[Dataset]:
            for block in read():
                names.update(labels=block.label_names, features=block.feature_names)
                yield block

        def label_names() -> list[str] | None:
            numbered = text is None and encode_names(names["labels"] or []).dtype != object
            return None if numbered else names["labels"]

        if counted is None or text is None:
            rows: Iterator[tuple[Any, Any]] = ((block.X, block.Y) for block in noted())
        else:
            if concepts and reads_names(model):
                words = LabelWords.of(concepts.values(), text.shares)
            rows = counted.rows(noted(), text, _evidence_of(words, counted.label_names))
        model.fit_blocks(rows, folder, memory, label_names)
        return cls(model, text, names["features"], first_feature, concepts=concepts or None, words=words)

    # --------------------------------------------------------------------------------------------------------- reading

    @staticmethod
    def read_training(place: Any, format: str | None = None, **options: Any) -> tuple[Dataset, int | None]:
        """Read a file to train on, with options of its format; the result is what `fit` needs.

        The number is the first feature of SVMLight files, which count from 0 or 1, and None for other formats.
        """
        data, format = _read(place, format, options, {"zero_based": True})
        if format != "svmlight":
            return data, None
        first = 0 if (data.X.indices == 0).any() else 1
        return replace(data, X=data.X[:, first:]), first

    def read(self, place: Any, format: str | None = None, **options: Any) -> Dataset:
        """Read a file whose rows are to be scored, with options of its format."""
        # SVMLight files say neither how many features there are nor whether they count from 0; the model knows.
        known = {"zero_based": self.first_feature == 0, "n_features": self.model.n_features_in_}
        data, format = _read(place, format, options, known)
        return self.same_form(data) if format == "jsonl" else data

    def same_form(self, data: Dataset) -> Dataset:
        """`data`, if its features have names or numbers like those of the model; else raise `DataError`."""
        if data.X is not None and self.text is None and (data.feature_names is None) != (self.feature_names is None):
            forms = {True: "lists", False: "objects with names"}
            learnt, found = forms[self.feature_names is None], forms[data.feature_names is None]
            raise DataError(f"the model was trained on features in {learnt}, but {data.name} has them in {found}.")
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

    def features(self, data: Dataset, vectors: NDArray[np.float32] | None = None, *, to_learn: bool = False) -> Any:
        """The rows of `data` as features of the model, (n, d); unknown words and feature names are left out.

        `vectors` are those of the texts that an encoder has given already. Rows that are learnt or forgotten must be
        made with `to_learn`, see `LabelWords`.
        """
        self.check(data)
        if self.text is not None:
            return self.features_of(data.texts or [], vectors, to_learn=to_learn)
        if self.feature_names is not None and data.feature_names is not None:
            return align_columns(data.X, data.feature_names, self.feature_names)[0][:, : self.model.n_features_in_]
        return data.X

    def features_of(
        self, texts: Sequence[str], vectors: NDArray[np.float32] | None = None, *, to_learn: bool = False
    ) -> Any:
        """Texts as features of the model, with the evidence of names that stand in them; see `features`."""
        if self.text is None:
            raise DataError("the model was trained on features, and not on texts.")
        X = self.text.transform(texts, vectors)
        if self.words is None or not isinstance(self.model, RIPML):
            return X
        model = self.model.model_
        if to_learn:
            return FeatureRows(X, self.words.training_evidence(texts, model.vocabulary))
        return FeatureRows(X, self.words.evidence(texts, model))

    def labels(self, data: Dataset) -> Any:
        """The labels of `data` in the columns of the model, CSR (n, ≥ L); unknown labels come last."""
        return align_columns(data.Y, data.label_names, [str(name) for name in self.model.classes_])[0]

    @property
    def columns(self) -> list[str] | None:
        """The names of the features, if they have any: words, or the names in the training file."""
        return self.feature_names if self.text is None else self.text.names

    # ------------------------------------------------------------------------------------------------------ vocabulary

    def with_concepts(
        self, concepts: Concepts | None, renamed: Mapping[str, str | None] | None = None
    ) -> DocumentModel:
        """The same model with another vocabulary, or without one.

        Its names are looked for from now on, of concepts that are labels of the model; see `with_unseen_labels`.
        `renamed` are labels that were renamed meanwhile, old ↦ new, None for a removed one.
        """
        words = self.words
        if words is not None:
            shares = None if self.text is None else self.text.shares
            words = words.renamed(renamed or {}).with_vocabulary(concepts, shares)
        return replace(self, concepts=concepts or None, words=words)

    def with_unseen_labels(self) -> DocumentModel:
        """The same model with all concepts whose names are looked for as labels, also those that no row carries."""
        if self.words is None or not isinstance(self.model, RIPML):
            return self
        more = [id for id in self.words.later_ids if id not in self.model.vocabulary_]
        return replace(self, model=copy.copy(self.model).add_labels(more)) if more else self

    def names(self, labels: Iterable[str], *languages: str | None) -> dict[str, str]:
        """Label ↦ what people call it, for those that the vocabulary has a name for, see `Concept.name`."""
        return {} if self.concepts is None else self.concepts.named(labels, *languages)

    def resolved(self, rules: Rules) -> Rules:
        """Rules in which groups of the vocabulary, such as "branch:ID", are replaced by the labels in them."""
        return rules if self.concepts is None else rules.resolved(self.concepts)

    # ------------------------------------------------------------------------------------------------------------------

    def without_features(self, unused: NDArray[np.bool_]) -> DocumentModel:
        """The model without any trace of features (d,) that no document has any more, including their names."""
        model = self.model
        if isinstance(model, RIPML):
            model = copy.copy(model).clear_features(unused)
        if self.text is not None:
            cleared = replace(self, model=model, text=self.text.without(unused))
            return cleared.with_concepts(self.concepts)  # estimates depend on the words of features
        if self.feature_names is None:
            return replace(self, model=model)
        pairs = enumerate(zip(self.feature_names, unused, strict=True))
        return replace(self, model=model, feature_names=[f"\0{i}" if gone else name for i, (name, gone) in pairs])

    # ------------------------------------------------------------------------------------------------------- answering

    def suggest(self, rows: Dataset | Sequence[str], rules: Rules | None = None) -> list[list[Suggestion]]:
        """The labels that are suggested for each text, or row of a data set, with their scores, best first."""
        rules = self.resolved(self.rules if rules is None else rules)
        suggestions: list[list[Suggestion]] = []
        for X in self._feature_blocks(rows):
            if (left := -(-(len(rows) - len(suggestions)) // _BLOCK)) > 1 or suggestions:
                # One second for each block, until the first one says how long it takes.
                progress.step(f"{len(suggestions):,} of {len(rows):,} texts are done", 1.0, left - 1.0)
            suggestions += rules.suggestions(self.model, self.model.decision_function(X), X)
        return suggestions

    def familiarity(self, rows: Dataset | Sequence[str]) -> list[float] | None:
        """How familiar each text is, in (0, 1], see `Familiarity`; None where the model does not know that."""
        if self.familiar is None or self.text is None:
            return None
        texts = rows.texts if isinstance(rows, Dataset) else strings(rows)
        return None if texts is None else self.familiar.of(self.text, texts)

    def explain(
        self, rows: Dataset | Sequence[str], rules: Rules | None = None, n_examples: int = 5, n_features: int = 10
    ) -> list[list[Why]]:
        """Why each label that `suggest` gives is suggested."""
        check_count("n_examples", n_examples)
        check_count("n_features", n_features)
        model = copy.copy(self.model)  # one version throughout, even if another thread learns meanwhile
        if not isinstance(model, RIPML):
            raise ParameterError(f"{type(model).__name__} cannot explain its answers; RIPML can.")
        texts = rows.texts if isinstance(rows, Dataset) else strings(rows)
        rules = (self.rules if rules is None else rules).but(coverage=None)  # sets may hold labels without a score
        names, rules = self.columns, self.resolved(rules)
        shares = (None if self.text is None else self.text.shares) or {}
        explanations = Explained[list[Why]]()
        for X in self._feature_blocks(rows):
            best = rules.kept(model, model.decision_function(X), X)
            # All features of a text are needed to mark the places where they occur.
            features, _ = apart(X)
            lengths = np.diff(features.indptr) if hasattr(features, "indptr") else np.array([features.shape[1]])
            most = max(n_features, int(lengths.max(initial=0)))
            for row in explained(model, X, best, n_examples, most):
                text = "" if texts is None else texts[len(explanations)]
                spans = [] if self.text is None else self.text.spans(text)
                explanations.append(Explained(self._why(one, names, n_features, spans, text, shares) for one in row))
        return explanations

    def _why(
        self,
        explanation: Explanation,
        names: list[str] | None,
        n_features: int,
        spans: list[tuple[int, int, list[int]]],
        text: str,
        shares: Mapping[str, float],
    ) -> Why:
        """An explanation with the names of features, and with `spans`: (start, end, features) of the text.

        `shares` are those of texts that have each word; features come in the order of `_telling_first`.
        """
        # The pull of a feature is divided equally among the places where it occurs.
        pulls = dict(explanation.features)
        counts = Counter(feature for *_, features in spans for feature in features)
        strengths = [
            (start, end, float(sum(pulls.get(feature, 0) / counts[feature] for feature in features)))
            for start, end, features in spans
        ]
        first = self.first_feature or 0

        def name(feature: Any) -> Any:
            if not isinstance(feature, int):  # the estimator has named it already
                return feature
            return feature + first if names is None else names[feature]

        named = [(name(feature), pull) for feature, pull in explanation.features]
        features = _in_words(named, ((text[start:end], [name(f) for f in some]) for start, end, some in spans))
        if self.text is not None and self.text.has(Title) and title_of(text) == text.strip():
            features = _without_titles(features)
        features = _telling_first(features, shares)[:n_features]
        values = {**vars(explanation), "label": str(explanation.label), "features": features}
        matched = [] if self.words is None else self.words.matched(text, values["label"])
        return Why(**values, spans=[span for span in strengths if span[2]], matched=matched, text=text)

    def _feature_blocks(self, rows: Dataset | Sequence[str]) -> Iterator[Any]:
        """The features of rows, in blocks of limited size."""
        if not isinstance(rows, Dataset):
            texts = strings(rows)
            Y = csr_array((len(texts), 0), dtype=np.float32)
            rows = Dataset(X=None, Y=Y, label_names=[], texts=texts, name="these texts")
        self.check(rows)
        for block in rows.blocks(_BLOCK):
            yield self.features(block)

    def scores(self, data: Dataset) -> Any:
        """The scores of the rows of `data`, CSR (n, L)."""
        return self.model.decision_function(self.features(data))

    def audit(self, limit: int, n_examples: int, texts: Callable[[NDArray[np.int64]], Sequence[str]]) -> Audit:
        """Labels of training rows that are probably wrong or missing, see `RIPML.audit`.

        `texts` gives the texts of rows by their numbers; it is called for models of texts.
        """
        model = self._leaving_out()
        known = () if self.text is None else texts(row_numbers(model.model_))
        evidence = self._training_evidence(lambda _: known)
        return audit(model.model_, limit, n_examples, model.n_jobs, evidence, known)

    def quality(self, limit: int, n_examples: int, texts: Callable[[NDArray[np.int64]], Sequence[str]]) -> Quality:
        """How well labels are predicted for training rows that are left out, see `RIPML.quality`; `texts` as above."""
        model = self._leaving_out()
        found = quality(model.model_, limit, n_examples, model.n_jobs, self._training_evidence(texts))
        return found if self.columns is None else found.with_words(self.columns)

    def learning_curve(self, data: Dataset, vectors: NDArray[np.float32] | None = None) -> LearningCurve:
        """What more documents than `data` would bring, by fits like this one on parts of them.

        See `ripml.model.learning_curve`. `vectors` are those of the texts that an encoder has given already.
        """
        self.check(data)
        labelled = np.flatnonzero(np.diff(data.Y.indptr) > 0)
        data, vectors = data.take(labelled), None if vectors is None else vectors[labelled]

        def fit(learnt: NDArray[np.int64], held: NDArray[np.int64]) -> Outcome:
            model, mine, others = self.model.cloned(), data.take(learnt), data.take(held)
            text, some = None if self.text is None else text_features(self.text), None
            if text is not None:
                some = text.fit_encoders(mine.texts or [], None if vectors is None else vectors[learnt])
            part = DocumentModel.fit(
                mine, self.first_feature, model, features=text or "auto", always_named=True, concepts=self.concepts,
                vectors=some
            )  # fmt: skip
            X = part.features(others, None if vectors is None else vectors[held])
            truth, scores = part.labels(others), csr_array(model.decision_function(X))
            scores.resize(truth.shape)
            return truth, scores, float(model.threshold_)

        if data.X is not None:
            group = Copies.of(csr_array(data.X)).group
        else:
            group = np.unique([" ".join(text.split()) for text in data.texts or ()], return_inverse=True)[1]
        return measure_learning_curve(len(data), group, fit)

    def _leaving_out(self) -> RIPML:
        if not isinstance(self.model, RIPML):
            raise ParameterError(f"{type(self.model).__name__} cannot leave out its training rows; RIPML can.")
        return self.model

    def _training_evidence(self, texts: Callable[[NDArray[np.int64]], Sequence[str]]) -> Evidence | None:
        model = self._leaving_out().model_
        if self.words is None or model.decoder.names is None:
            return None
        return self.words.training_evidence(texts(row_numbers(model)), model.vocabulary)

    def audit_rows(self, data: Dataset, limit: int = 1000, n_examples: int = 3) -> Audit:
        """The same for a model that was fitted on `data`: findings name documents by their ids, or rows from 1 on."""
        self.check(data)
        kept = data if self.text is None else distinct(data)
        labelled = np.flatnonzero(np.diff(kept.Y.indptr) > 0)
        model = self.model
        if isinstance(model, RIPML) and not self._learnt_from(kept.take(labelled)):
            raise DataError(
                f"{data.name or 'the data'} has other rows or labels than the model was trained on; train it again on "
                "them, or keep documents in a store, which knows what its model has learnt."
            )
        found = self.audit(limit, n_examples, lambda _: [(kept.texts or ())[row] for row in labelled.tolist()])
        if data.ids is not None and kept.ids is not None:
            names: list[int | str] = [kept.ids[row] for row in labelled.tolist()]
        else:
            first: dict[Any, int] = {}
            for row, text in enumerate(data.texts or () if self.text is not None else ()):
                first.setdefault(" ".join(text.split()), row)
            rows = labelled.tolist()
            if self.text is not None:
                rows = [first[" ".join((kept.texts or ())[row].split())] for row in rows]
            names = [row + 1 for row in rows]
        return found.renamed(dict(enumerate(names)))

    def _learnt_from(self, data: Dataset) -> bool:
        """Whether the training rows of the model have the labels of these rows, in their order."""
        model = cast(RIPML, self.model)
        numbers, learnt = row_numbers(model.model_), training_labels(model.model_)
        Y = self.labels(data)
        if len(numbers) != len(data) or numbers[-1] != len(data) - 1 or Y.shape[1] < learnt.shape[1]:
            return False
        Y = csr_array((Y.data > 0, Y.indices, Y.indptr), shape=Y.shape)
        return bool(Y.nnz == learnt.nnz and (wide(learnt, Y.shape[1]).astype(bool) != Y).nnz == 0)

    def precision_at_1(self, data: Dataset) -> float:
        """P@1 on rows with labels; labels that the model has never seen can only be missed."""
        truth = self.labels(data)
        if not truth.nnz:
            raise DataError(f"{data.name or 'the data'} has no labels to compare with.")
        scores = vstack([self.model.decision_function(X) for X in self._feature_blocks(data)], format="csr")
        scores.resize(truth.shape)
        return float(metrics.precision_at_k(truth, scores, k=1))

    def plot(self, data: Dataset | None = None) -> Any:
        """A figure of how good scores are, see `RIPML.plot`: on rows that were not learnt, or on training rows."""
        model = self._leaving_out()
        if data is None:
            if self.words is not None and model.model_.decoder.names is not None:
                raise ParameterError(
                    "this model reads the names of labels in texts, which it does not keep; give documents with labels "
                    "that it has not learnt."
                )
            return model.plot()
        truth = self.labels(data)
        scores = vstack([model.decision_function(X) for X in self._feature_blocks(data)], format="csr")
        scores.resize(truth.shape)
        return plot_quality(model.model_, truth, scores, f"{len(data):,} documents that were not learnt")

    def evaluate(self, data: Dataset) -> dict[str, float]:
        """Metrics on rows with labels: P@k, nDCG@k, … of the scores, and F1 of the labels above the threshold.

        Labels that the model has never seen count as missed. Rules are not applied: the model itself is measured. RIPML
        has the expected calibration error of its probabilities, too, of all labels that it gives a score, and apart for
        those that no training row carries ("unseen"), up to five ("rare") and more ("frequent").
        """
        truth = self.labels(data)
        model, name = self.model, data.name or "the data"
        if not truth.nnz:
            raise DataError(f"{name} has no labels to compare with.")
        carried = sorted({data.label_names[column] for column in data.Y.indices.tolist()})
        if set(map(str, model.classes_.tolist())).isdisjoint(carried):
            raise DataError(
                f"{name}: no label here, such as {carried[0]!r}, is one of the model's, so there is nothing to "
                "measure; labels must be spelled and separated as in the training data."
            )
        calibration: dict[str, float] = {}
        if isinstance(model, RIPML):
            answers = [model.scores_and_probabilities(X) for X in self._feature_blocks(data)]
            scores, probabilities = (vstack(parts, format="csr") for parts in zip(*answers, strict=True))
            probabilities.resize(truth.shape)
            calibration = _calibration_errors(truth, probabilities, model.frequency_)
        else:
            scores = vstack([model.decision_function(X) for X in self._feature_blocks(data)], format="csr")
        sets = decoding.keep_above(scores, model.threshold_)
        for matrix in (scores, sets):
            matrix.resize(truth.shape)
        known = model.propensities()
        propensities = None if known is None else np.concatenate([known, np.ones(truth.shape[1] - len(known))])
        report = metrics.report(truth, scores, propensities=propensities)
        f1 = {"micro F1": metrics.micro_f1(truth, sets), "macro F1": metrics.macro_f1(truth, sets)}
        return {**report, **f1, **calibration}

    def to_html(self, title: str, counts: Mapping[str, int], parameters: Mapping[str, Any] | None = None) -> str:
        """What a notebook shows of the model, under a title and with these counts."""
        n_words = 0 if self.text is None else len(self.text.shares or ())
        counts = {**counts, "labels": len(self.model.classes_), "words": n_words}
        counts["concepts"] = 0 if self.concepts is None else len(self.concepts)
        if isinstance(self.model, RIPML):
            return fitted_html(title, self.model, counts, parameters)
        figures = [(name, f"{count:,}") for name, count in counts.items() if count]
        return notebook.card(title, notebook.figures(figures), notebook.note(f"The model is {self.model!r}."))

    # ---------------------------------------------------------------------------------------------------- save and load

    @property
    def left_out_precision(self) -> dict[str, float]:
        """P@1, P@3 and P@5 on left-out rows; empty for a model of few rows, where they are mostly chance."""
        model: Any = self.model
        return dict(model.left_out_precision_) if model.n_rows_ >= ENOUGH_ROWS else {}

    def save(self, path: str | PathLike[str], compact: bool = False) -> None:
        """Write a model folder; `compact`, with only what answers need."""
        model_folder.save(path, type(self.model).__name__, *self.to_state(compact))

    def to_state(self, compact: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything that is saved, as JSON values and arrays; `compact`, only what answers need."""
        parameters, arrays = self.model.to_state(compact)
        parameters |= {
            "columns": self.feature_names,
            "first_feature": self.first_feature,
            "rules": self.rules.to_json(),
        }
        if self.text is not None:
            parameters["text"], words = self.text.to_state()
            parameters["text_kind"] = self.text.kind
            arrays |= {f"text_{name}": array for name, array in words.items()}
        if self.text is not None and self.text.has(Doc2Vec):
            parameters["repeatable"] = self.repeatable
        if self.concepts is not None:
            arrays["concepts"] = np.frombuffer(self.concepts.to_json_lines(), np.uint8)
        if self.words is not None:
            arrays["label_words"] = np.frombuffer(self.words.to_json_lines(), np.uint8)
            arrays["label_languages"] = np.frombuffer(json.dumps(self.words.languages).encode(), np.uint8)
        if self.familiar is not None:
            arrays |= self.familiar.to_arrays()
        numbers = {"row_documents": self.row_documents, "label_numbers": self.label_numbers}
        arrays |= {f"store_{name}": array for name, array in numbers.items() if array is not None}
        return parameters, arrays

    @classmethod
    def load(cls, path: str | PathLike[str], encoder: Any = None) -> DocumentModel:
        """Read a folder that this class or an estimator saved; a model that used an encoder needs it again."""
        return cls.from_contents(path, model_folder.load(path), encoder)

    @classmethod
    def from_contents(cls, path: str | PathLike[str], contents: Contents, encoder: Any = None) -> DocumentModel:
        """The model in the contents of a folder; `path` is for error messages."""
        model, parameters = estimator_of(path, contents), contents.parameters
        names = parameters.get("columns")
        is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if names is not None and (not is_list or len(names) != model.n_features_in_):
            raise ModelFolderError(f"{path}: the feature names do not match the number of features.")
        text = None
        if "text" in parameters:
            words = {name[5:]: array for name, array in contents.arrays.items() if name.startswith("text_")}
            kind = TEXT_KINDS.get(parameters.get("text_kind", "tfidf"))  # early folders have no kind
            if kind is None or not isinstance(parameters["text"], dict):
                raise ModelFolderError(f"{path}: its text features are of a kind that ripml does not know.")
            text = kind.from_state(parameters["text"], words)
            if text.n_features != model.n_features_in_:
                raise ModelFolderError(f"{path}: the number of words does not match the number of features.")
        if encoder is not None:
            if text is None:
                raise ParameterError(f"{path}: this model was trained without an encoder; leave `encoder` out.")
            try:
                text = text.with_encoder(encoder)
            except ParameterError as error:
                raise ParameterError(f"{path}: {error}") from None
        first_feature = parameters.get("first_feature")
        if first_feature not in (None, 0, 1):
            raise ModelFolderError(f"{path}: `first_feature` must be 0 or 1; got {first_feature!r}.")
        rules = Rules.from_json(parameters.get("rules", {}))
        rows, labels = (contents.arrays.get(f"store_{name}") for name in ("row_documents", "label_numbers"))
        repeatable = text is None or not text.has(Doc2Vec) or parameters.get("repeatable") is True
        concepts = _load_concepts(path, contents.arrays.get("concepts"))
        named = _load_concepts(path, contents.arrays.get("label_words"))
        label_words = None
        if named is not None:
            languages = _load_languages(path, contents.arrays.get("label_languages"))
            label_words = LabelWords.of(named.values(), None if text is None else text.shares, languages)
        familiar = _load_familiarity(path, text, contents.arrays)
        loaded = cls(
            model, text, names, first_feature, rules, rows, labels, repeatable, concepts, label_words, familiar
        )
        return loaded.with_concepts(concepts)


def _calibration_errors(truth: Any, probabilities: Any, frequency: NDArray[np.int64]) -> dict[str, float]:
    """The expected calibration error of probabilities, CSR (n, L), of all labels and by their frequency."""
    outcome = decoding.outcomes(truth, probabilities)
    groups = errors_by_frequency(probabilities.data, outcome, frequency[probabilities.indices])
    error = expected_calibration_error(probabilities.data, outcome)
    return {"calibration error": error, **{f"calibration error, {name}": one for name, one in groups.items()}}


def _without_titles(features: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Features of a text that is nothing but its title: each word once, with both pulls, the largest first.

    >>> _without_titles([("tea (title)", 0.5), ("red", -0.4), ("tea", 0.25)])
    [('tea', 0.75), ('red', -0.4)]
    """
    pulls: dict[str, float] = {}
    for name, pull in features:
        word = name.removesuffix(TITLE_MARK)
        pulls[word] = pulls.get(word, 0.0) + pull
    return sorted(pulls.items(), key=lambda pair: -abs(pair[1]))


def _in_words(
    features: Iterable[tuple[Any, float]], pieces: Iterable[tuple[str, Sequence[Any]]]
) -> list[tuple[Any, float]]:
    """Features with the pulls of groups of letters added to the words that have them, the largest pull first.

    `pieces` are the words of the text, each with the names of its features.

    >>> _in_words([("mail", 0.25), ("mai-", 0.5), ("red", -1.0)], [("Mail", ["mail", "mai-"]), ("maid", ["mai-"])])
    [('red', -1.0), ('mail', 0.5), ('maid', 0.25)]
    """
    words: dict[Any, list[Any]] = {}
    for piece, names in pieces:
        groups = [name for name in names if _is_group(name)]
        whole = next((name for name in names if not _is_group(name)), None)
        for group in groups:
            mark = TITLE_MARK if group.endswith(TITLE_MARK) else ""
            words.setdefault(group, []).append(whole or piece.casefold() + mark)
    pulls: dict[Any, float] = {}
    for name, pull in features:
        places = words.get(name, [name])
        for place in places:
            pulls[place] = pulls.get(place, 0.0) + pull / len(places)
    return sorted(pulls.items(), key=lambda pair: -abs(pair[1]))


def _is_group(name: Any) -> bool:
    """Whether a feature is a group of letters, which has a hyphen where the word goes on."""
    word = str(name).removesuffix(TITLE_MARK)
    return len(word) > 1 and (word.startswith("-") or word.endswith("-"))


def _telling_first(features: Iterable[tuple[Any, float]], shares: Mapping[str, float]) -> list[tuple[Any, float]]:
    """Words that tell labels apart, then words of many texts, each with the largest pull first.

    >>> _telling_first([("the", 0.5), ("mail", 0.2), ("i", 0.1), ("tea", 0.0)], {"the": 0.6, "mail": 0.1})
    [('mail', 0.2), ('the', 0.5), ('i', 0.1)]
    """
    if not shares:
        return list(features)
    few = _FEW_TEXTS * min(shares.values())  # a word of so few texts is common by chance

    def is_common(feature: tuple[Any, float]) -> bool:
        word = str(feature[0]).removesuffix(TITLE_MARK)
        is_particle = len(word) < 3 and word.isascii() and word.isalpha()
        return is_particle or shares.get(word, 0.0) > max(_COMMON, few)

    return sorted((one for one in features if abs(one[1]) >= _LEAST_PULL), key=is_common)


def _weighs_views(model: Multilabel) -> bool:
    """Whether an estimator chooses the weights of several kinds of features."""
    return isinstance(model, RIPML) and model.stages().decoder.tunes_ridge


def _tell_views(model: Multilabel, text: TextFeatures) -> None:
    """Tell an estimator which columns are of which kind of features."""
    if isinstance(model, RIPML):
        model.set_params(views=list(text.views) or None)
    elif text.views:
        raise ParameterError(f"{type(model).__name__} cannot weigh several kinds of features; RIPML can.")


def estimator_of(path: str | PathLike[str], contents: Contents) -> Multilabel:
    """The estimator in the contents of a folder; `path` is for error messages."""
    words = dict(zip(registry.class_names("estimator"), registry.words("estimator"), strict=True))
    if contents.kind not in words:
        raise ModelFolderError(f"{path}: holds a model of kind {contents.kind!r}, which ripml does not know.")
    kind: type[Multilabel] = registry.named("estimator", words[contents.kind])
    return kind.from_state(contents.parameters, contents.arrays)


def _load_concepts(path: str | PathLike[str], lines: NDArray[Any] | None) -> Concepts | None:
    if lines is None:
        return None
    try:
        if lines.dtype != np.uint8 or lines.ndim != 1:
            raise ValueError("it must be bytes")
        return Concepts.from_json_lines(lines.tobytes())
    except ValueError as error:
        raise ModelFolderError(f"{path}: its vocabulary is damaged ({error}).") from None


def _load_familiarity(
    path: str | PathLike[str], text: TextFeatures | None, arrays: Mapping[str, NDArray[Any]]
) -> Familiarity | None:
    try:
        return None if text is None else Familiarity.from_arrays(text, arrays)
    except ValueError as error:
        raise ModelFolderError(f"{path}: the levels of familiar texts are damaged ({error}).") from None


def _load_languages(path: str | PathLike[str], text: NDArray[Any] | None) -> list[str]:
    """The languages of names at the fit; folders of earlier versions do not have them."""
    if text is None:
        return []
    try:
        languages = json.loads(text.astype(np.uint8, casting="no").tobytes())
    except (TypeError, ValueError) as error:
        raise ModelFolderError(f"{path}: the languages of its names are damaged ({error}).") from None
    if not isinstance(languages, list) or not all(isinstance(language, str) for language in languages):
        raise ModelFolderError(f"{path}: the languages of its names are damaged (they must be a list of strings).")
    return languages


def _evidence_of(words: LabelWords | None, label_names: list[str]) -> Callable[[list[str], Any], Any]:
    """What adds evidence to the features of training texts."""
    if words is None:
        return lambda texts, X: X
    known = set(label_names)
    more = [id for id in words.ids if id not in known]
    labels = Vocabulary.of(names_array(label_names)).added(more)
    return lambda texts, X: FeatureRows(X, words.training_evidence(texts, labels), more)


def _identity(place: Any) -> str:
    """A file, its size and the time of its last change; nothing of what is not the path of a file."""
    if not isinstance(place, (str, PathLike)) or not Path(place).is_file():
        return ""
    status = Path(place).stat()
    return f"{Path(place).resolve()} {status.st_size} {status.st_mtime_ns}"


def _texts(data: Dataset) -> list[str]:
    if data.texts is None:
        raise DataError(f"{data.name} has neither features nor texts.")
    return data.texts


def _read(place: Any, format: str | None, options: dict[str, Any], svmlight: dict[str, Any]) -> tuple[Dataset, str]:
    """A file and its format; `svmlight` are options for SVMLight files alone."""
    with open_source(place) as source:
        format = format_of(source, format)
        if format == "svmlight":
            options = {"n_features": None, "n_labels": None, **options, **svmlight}
        return read_source(source, format, **options), format
