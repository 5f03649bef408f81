"""`Tagger`: raw texts in, tags out. Cleaning, features, the model and the choice of what to suggest in one object."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from ripml.base import model_folder
from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.base.model_folder import Contents
from ripml.datasets import Dataset, documents_given
from ripml.model.estimator import RIPML
from ripml.model.multilabel import Multilabel
from ripml.tagging.documents import DocumentModel, Why, distinct
from ripml.tagging.rules import Rules, Suggestion
from ripml.text import Encoder

__all__ = ["Tagger"]

_DIGEST = 16  # bytes that a text is known by


class Tagger(BaseEstimator):  # type: ignore[misc]
    """Suggest tags for texts, learn and forget texts while in use, and say why.

    A document is its text: of texts that occur several times one is learnt, with all their tags, and blank texts are
    left out. To keep documents by their ids, and safe on the disk, use `Store`.

    Parameters
    ----------
    features : "tfidf", "doc2vec" or object, default="tfidf"
        What texts become. "tfidf" counts words, or neighbouring characters where words are not written apart, and
        groups of letters; "doc2vec" needs the extra `text`. An object is a `ripml.text.TfIdf` or `Doc2Vec` of your own
        settings, or any encoder that has `encode(texts)` or `transform(texts)`, such as one of sentence embeddings.
    model : estimator, default=None
        `RIPML(random_state=0)` if not given; any estimator of ripml.
    n, threshold, stop_labels, allowed_labels, min_count
        Which tags are suggested, see `ripml.tagging.rules.Rules`; each can be given to a single call, too.

    Attributes
    ----------
    documents_ : DocumentModel
        The features and the fitted model, `documents_.model`.
    tags_ : list of str
        All tags that are known.
    n_documents_ : int
        Texts that are known.
    n_empty_, n_repeated_ : int
        Texts given to `fit` that were left out as blank, or as repetitions.

    Examples
    --------
    >>> texts = ["The red apple is ripe", "A green apple fell", "Grey sky and rain", "Blue sky, no rain"]
    >>> tagger = Tagger().fit(texts, [["fruit"], ["fruit", "green"], ["weather"], ["weather"]])
    >>> tagger.suggest("Rain from a dark sky", n=1)[0][0]
    'weather'
    >>> tagger.learn(["Snow on the hills"], [["weather", "winter"]]).n_documents_
    5
    >>> tagger.forget(["Snow on the hills"]).n_documents_
    4
    """

    def __init__(
        self,
        features: Any = "tfidf",
        model: Any = None,
        *,
        n: int | None = 5,
        threshold: float | str | None = None,
        stop_labels: Collection[str] = (),
        allowed_labels: Collection[str] | None = None,
        min_count: int = 1,
    ) -> None:
        self.features = features
        self.model = model
        self.n = n
        self.threshold = threshold
        self.stop_labels = stop_labels
        self.allowed_labels = allowed_labels
        self.min_count = min_count

    # ------------------------------------------------------------------------------------------------------- learning

    def fit(self, documents: Any, tags: Any = None) -> Tagger:
        """Learn from documents, in place of any that were learnt before.

        `documents` is a list of texts, and `tags` a list of tags for each; or a DataFrame (pandas, polars), a Hugging
        Face `Dataset`, a pyarrow Table or a list of dictionaries with "text" and "labels"; or the path of a file in
        JSONL, CSV, Parquet or a format of Annif's. See docs/data-formats.md.
        """
        data = documents_given(documents, tags)
        kept = distinct(data)
        if self.model is not None and not isinstance(self.model, Multilabel):
            raise ParameterError(f"`model` must be an estimator of ripml; got {self.model!r}.")
        model = RIPML(random_state=0) if self.model is None else clone(self.model)
        fitted = DocumentModel.fit(kept, None, model, features=self.features, rules=self._rules(), always_named=True)
        self.n_empty_ = sum(not _visible(text) for text in data.texts or ())
        self.n_repeated_ = len(data) - self.n_empty_ - len(kept)
        self.documents_ = fitted
        self._known = {digest: tags for digest, tags in _tagged(kept) if tags}
        return self

    def learn(self, documents: Any, tags: Any = None) -> Tagger:
        """Learn more documents, given as to `fit`; a text that is known gets these tags in place of its own.

        One that is known and has no tags here, beside others that have, is forgotten. What fails changes nothing.
        The tags are there at once, also new ones, exactly as if all texts had been fitted together with the features
        and settings there are.
        """
        if not hasattr(self, "documents_"):
            return self.fit(documents, tags)
        data = distinct(documents_given(documents, tags))
        if not data.Y.nnz:
            raise DataError(
                f"none of the {len(data):,} texts has a tag; `forget` is for texts that are to be forgotten."
            )
        given = dict(_tagged(data))
        gone = [digest for digest, new in given.items() if digest in self._known and not new]
        moved = [digest for digest, new in given.items() if new and self._known.get(digest, new) != new]
        come = [digest for digest, new in given.items() if new and digest not in self._known]
        model, row = copy.copy(self._online()), {digest: i for i, digest in enumerate(given)}
        X = self.documents_.features(data)

        def rows(digests: list[bytes]) -> Any:
            return X[[row[digest] for digest in digests]]

        if gone:
            model.forget(rows(gone), [self._known[digest] for digest in gone])
        if moved:
            model.relabel(rows(moved), [self._known[digest] for digest in moved], [given[digest] for digest in moved])
        if come:
            model.partial_fit(rows(come), [given[digest] for digest in come])
        known = {**self._known, **{digest: new for digest, new in given.items() if new}}
        self._known = {digest: its for digest, its in known.items() if given.get(digest, its)} if gone else known
        self.documents_ = replace(self.documents_, model=model)
        return self

    def forget(self, documents: Any, tags: Any = None) -> Tagger:
        """Forget documents: the tagger becomes what it would be had it never learnt them.

        They are known by their texts. Tags may be given as well, and must then be those they were learnt with.
        """
        model = self._online()
        given = documents_given([documents] if isinstance(documents, str) else documents, tags)
        data = distinct(given)
        if not len(data):
            raise DataError("there is no text to be forgotten.")
        known = dict(_tagged(data))
        for digest, its in known.items():
            if digest not in self._known:
                text = (data.texts or [])[list(known).index(digest)]
                raise DataError(f"the text {text[:60]!r} was never learnt, or was forgotten already.")
            if its and self._known[digest] != its:
                raise DataError(f"a text was learnt with the tags {self._known[digest]}, and not with {its}.")
        model.forget(self.documents_.features(data), [self._known[digest] for digest in known])
        for digest in known:
            del self._known[digest]
        return self

    # ------------------------------------------------------------------------------------------------------ answering

    def suggest(self, text: str, **rules: Any) -> list[Suggestion]:
        """The tags of a text and their scores, best first; `n`, `threshold` and other rules for this call only."""
        if not isinstance(text, str):
            raise DataError(f"a text is needed; got {type(text).__name__}. suggest_many takes many.")
        return self.suggest_many([text], **rules)[0]

    def suggest_many(self, documents: Any, **rules: Any) -> list[list[Suggestion]]:
        """The same for many texts, given as to `fit`; their tags, if they have any, are not looked at."""
        fitted = self._fitted()
        return fitted.suggest(documents_given(documents).texts or [], self._rules(**rules))

    def explain(self, text: str, n_examples: int = 5, n_features: int = 10, **rules: Any) -> list[Why]:
        """Why each tag is suggested: examples with their shares of the score, words, and where the text has them."""
        if not isinstance(text, str):
            raise DataError(f"a text is needed; got {type(text).__name__}.")
        fitted = self._fitted()
        return fitted.explain([text], self._rules(**rules), n_examples, n_features)[0]

    def evaluate(self, documents: Any, tags: Any = None) -> dict[str, float]:
        """P@k, nDCG@k and further metrics of the scores for documents with their tags, given as to `fit`."""
        return self._fitted().evaluate(documents_given(documents, tags))

    @property
    def tags_(self) -> list[str]:
        """All tags that are known."""
        return [str(name) for name in self._fitted().model.classes_]

    @property
    def n_documents_(self) -> int:
        """Texts that are known."""
        self._fitted()
        return len(self._known)

    # --------------------------------------------------------------------------------------------------- save and load

    def save(self, path: str | PathLike[str]) -> None:
        """Write a model folder of JSON and plain arrays, which holds no text; `ripml.load` reads it.

        An encoder of your own is not saved, and must be given to `Tagger.load` again.
        """
        fitted = replace(self._fitted(), rules=self._rules())
        parameters, arrays = fitted.to_state()
        columns = {name: column for column, name in enumerate(self.tags_)}
        carried = [[columns[tag] for tag in tags] for tags in self._known.values()]
        parameters["tagger"] = {"n_empty": self.n_empty_, "n_repeated": self.n_repeated_}
        arrays |= {
            "tagger_digests": np.frombuffer(b"".join(self._known), np.uint8).reshape(-1, _DIGEST),
            "tagger_tags": np.array([column for tags in carried for column in tags], np.int32),
            "tagger_ends": np.cumsum([0, *map(len, carried)], dtype=np.int64),
        }
        model_folder.save(path, type(fitted.model).__name__, parameters, arrays)

    @classmethod
    def load(cls, path: str | PathLike[str], encoder: Any = None) -> Tagger:
        """Read what `save` wrote, or a model that the shell trained on texts; with its encoder, if it had one.

        Of a model of the shell the texts are not known, so that it can learn, but not forget.
        """
        return cls.from_contents(path, model_folder.load(path), encoder)

    @classmethod
    def from_contents(cls, path: str | PathLike[str], contents: Contents, encoder: Any = None) -> Tagger:
        """The tagger of a folder's contents; the path is for errors."""
        fitted = DocumentModel.from_contents(path, contents, encoder)
        if fitted.text is None:
            raise ModelFolderError(f"{path}: this model was trained on features, not on texts; use ripml.load.")
        features = fitted.text.encoder if isinstance(fitted.text, Encoder) else fitted.text
        rules = fitted.rules
        tagger = cls(
            features,
            clone(fitted.model),
            n=rules.n,
            threshold=rules.threshold,
            stop_labels=sorted(rules.stop_labels),
            allowed_labels=None if rules.allowed_labels is None else sorted(rules.allowed_labels),
            min_count=rules.min_count,
        )
        tagger.documents_ = fitted
        try:
            counts = contents.parameters.get("tagger", {})
            tagger.n_empty_, tagger.n_repeated_ = int(counts.get("n_empty", 0)), int(counts.get("n_repeated", 0))
            tagger._known = _known_of(contents.arrays, tagger.tags_)
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            raise ModelFolderError(f"{path}: what is known of the texts is damaged ({error}).") from None
        return tagger

    # ------------------------------------------------------------------------------------------------------------ how

    def _rules(self, **changes: Any) -> Rules:
        """The rules of this tagger, as its parameters are now, with changes for a call."""
        own = {name: getattr(self, name) for name in ("n", "threshold", "stop_labels", "allowed_labels", "min_count")}
        return Rules(**own).but(**changes)

    def _fitted(self) -> DocumentModel:
        if not hasattr(self, "documents_"):
            raise NotFittedError("this Tagger has not been fitted; call fit(texts, tags) first.")
        return self.documents_

    def _online(self) -> RIPML:
        model = self._fitted().model
        if not isinstance(model, RIPML):
            raise ParameterError(f"{type(model).__name__} cannot learn or forget texts after its fit; RIPML can.")
        return model


def _visible(text: str) -> bool:
    return bool(text.strip())


def _tagged(data: Dataset) -> Iterable[tuple[bytes, tuple[str, ...]]]:
    """What each text is known by, and its tags in order."""
    names = data.label_names
    for text, start, end in zip(data.texts or (), data.Y.indptr[:-1], data.Y.indptr[1:], strict=True):
        digest = hashlib.blake2b(" ".join(text.split()).encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
        yield digest, tuple(sorted(names[column] for column in data.Y.indices[start:end]))


def _known_of(arrays: dict[str, NDArray[Any]], tags: list[str]) -> dict[bytes, tuple[str, ...]]:
    """The inverse of what `save` writes of texts."""
    if "tagger_digests" not in arrays:
        return {}
    digests, columns, ends = (np.asarray(arrays[f"tagger_{name}"]) for name in ("digests", "tags", "ends"))
    if digests.dtype != np.uint8 or digests.shape != (len(ends) - 1, _DIGEST):
        raise ValueError("digests of another shape")
    carried = csr_array((np.ones(len(columns)), columns, ends), shape=(len(digests), len(tags)))
    carried.check_format(full_check=True)
    names = [tags[column] for column in columns.tolist()]
    return {bytes(digest): tuple(names[a:b]) for digest, a, b in zip(digests, ends[:-1], ends[1:], strict=True)}
