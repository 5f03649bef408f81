"""`Tagger`: texts in, tags out. Text cleaning, features, the model and the rules for suggestions in one object.

`load` reads the tagger, or the estimator, that a model folder holds.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base import model_folder
from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.base.estimator import Estimator
from ripml.base.model_folder import Contents
from ripml.base.parallel import exclusive
from ripml.datasets import Dataset, documents_given
from ripml.datasets.vocabularies import concepts_given
from ripml.model.estimator import AUTOMATION, RIPML
from ripml.model.multilabel import Multilabel
from ripml.tagging.documents import DocumentModel, Why, distinct, estimator_of
from ripml.tagging.rules import Rules, Suggestion
from ripml.text import Encoder

__all__ = ["Tagger", "load"]

_DIGEST_SIZE = 16  # bytes; known texts are kept as digests only


@dataclass(eq=False, repr=False)
class Tagger(Estimator):
    """Suggest tags for texts, explain the suggestions, and learn and forget texts while in use.

    Documents are identified by their texts: a text that occurs several times is learnt once, with all its tags. Blank
    texts are left out. To keep documents on the disk and identify them by ids, use `Store`.

    Parameters
    ----------
    features : str, object, or list of these, default="auto"
        How texts become features. "tfidf" counts words, or neighbouring characters in scripts without spaces, and
        groups of letters; "title" does the same for titles, the first lines of texts; "doc2vec" needs the extra `text`;
        "minilm" is an encoder of sentences, see `ripml.text.encoder` for others with a name. An object is a
        `ripml.text.TfIdf` or `Doc2Vec` with your settings, or any encoder with `encode(texts)` or `transform(texts)`.
        Several stand side by side, each with a weight that left-out texts choose: `["tfidf", "title", "minilm"]`.
        "auto" stands for "tfidf" and "title".
    model : estimator, default=None
        Any estimator of ripml; None for `RIPML(random_state=0)`.
    vocabulary : path, Concepts or None, default=None
        What is known about the tags besides the documents that carry them: a file that `datasets.read_vocabulary`
        reads, such as SKOS, or `ripml.labels.concepts.Concepts`. Tags are then the ids of its concepts.
    n, threshold, stop_labels, allowed_labels, min_count, max_count, coverage, per_label
        Which tags are suggested, see `ripml.tagging.rules.Rules`; each can also be changed for a single call.

    Attributes
    ----------
    documents_ : DocumentModel
        The features and the fitted model, `documents_.model`.
    tags_ : list of str
        All tags.
    n_documents_ : int
        The number of texts that were learnt.
    n_empty_, n_repeated_ : int
        The numbers of texts that `fit` left out because they were blank, or repeated another one.

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

    features: Any = "auto"
    model: Any = None
    _: KW_ONLY
    vocabulary: Any = None
    n: int | None = 5
    threshold: float | str | None = None
    stop_labels: Collection[str] = ()
    allowed_labels: Collection[str] | None = None
    min_count: int = 0
    max_count: int | None = None
    coverage: float | None = None
    per_label: bool = False

    # -------------------------------------------------------------------------------------------------------- learning

    @exclusive
    def fit(self, documents: Any, tags: Any = None, **columns: Any) -> Tagger:
        """Learn documents, and forget all that were learnt before.

        `documents` is a list of texts and `tags` has a list of tags for each of them; or `documents` is a DataFrame
        (pandas, polars), a Hugging Face `Dataset`, a pyarrow Table or a list of dictionaries with "text" and "labels",
        or the path of a table (CSV, Excel, JSONL, Parquet) or of a folder of documents. `columns` are options of
        `ripml.datasets.documents_given`, such as `text=["Title", "Body"], labels="Tags", tag_separator=","`. See
        docs/data-formats.md.
        """
        data = documents_given(documents, tags, **columns)
        kept = distinct(data)
        if len(data) and not len(kept):
            raise DataError(f"there is nothing to learn from: the {len(data):,} texts are empty.")
        if self.model is not None and not isinstance(self.model, Multilabel):
            raise ParameterError(f"`model` must be an estimator of ripml; got {self.model!r}.")
        model = RIPML(random_state=0) if self.model is None else self.model.cloned()
        concepts = concepts_given(self.vocabulary)
        fitted = DocumentModel.fit(
            kept, None, model, features=self.features, rules=self._rules(), always_named=True, concepts=concepts
        )
        self.n_empty_ = sum(not text.strip() for text in data.texts or ())
        self.n_repeated_ = len(data) - self.n_empty_ - len(kept)
        self.documents_ = fitted
        self._known = {digest: tags for digest, tags in _digests(kept) if tags}
        return self

    @exclusive
    def learn(self, documents: Any, tags: Any = None, **columns: Any) -> Tagger:
        """Learn more documents, given as for `fit`; the tags of a known text are replaced.

        If some texts have tags, known texts without tags are forgotten. Tags, also new ones, take effect at once,
        exactly as if all texts had been fitted together with the present features and settings. A call that fails
        changes nothing.
        """
        if not hasattr(self, "documents_"):
            return self.fit(documents, tags, **columns)
        data = distinct(documents_given(documents, tags, **columns))
        if not data.Y.nnz:
            raise DataError(f"none of the {len(data):,} texts has a tag; use `forget` to forget texts.")
        old, new = self._known, dict(_digests(data))
        removed = [digest for digest, tags in new.items() if digest in old and not tags]
        changed = [digest for digest, tags in new.items() if tags and old.get(digest, tags) != tags]
        added = [digest for digest, tags in new.items() if tags and digest not in old]
        model, row = copy.copy(self._online()), {digest: i for i, digest in enumerate(new)}
        if removed or changed:
            self._check_repeatable()

        def rows(digests: list[bytes]) -> Any:
            documents = replace(self.documents_, model=model)  # the columns of labels may have changed meanwhile
            return documents.features(data.take([row[digest] for digest in digests]), to_learn=True)

        if removed:
            model.forget(rows(removed), [old[digest] for digest in removed])
        if changed:
            model.relabel(rows(changed), [old[digest] for digest in changed], [new[digest] for digest in changed])
        if added:
            model.partial_fit(rows(added), [new[digest] for digest in added])
        known = old | {digest: tags for digest, tags in new.items() if tags}
        for digest in removed:
            del known[digest]
        self._known = known
        self.documents_ = replace(self.documents_, model=model)
        return self

    @exclusive
    def forget(self, documents: Any, tags: Any = None, **columns: Any) -> Tagger:
        """Forget documents: the tagger becomes what it would be without them.

        They are identified by their texts. If tags are given, they must be those that the texts were learnt with.
        """
        model = self._online()
        data = distinct(documents_given([documents] if isinstance(documents, str) else documents, tags, **columns))
        if not len(data):
            raise DataError("there is no text to be forgotten.")
        self._check_repeatable()
        wanted = dict(_digests(data))
        for text, (digest, expected) in zip(data.texts or (), wanted.items(), strict=True):
            if digest not in self._known:
                raise DataError(f"the text {text[:60]!r} was never learnt, or was forgotten already.")
            if expected and self._known[digest] != expected:
                raise DataError(f"a text was learnt with the tags {self._known[digest]}, and not with {expected}.")
        model.forget(self.documents_.features(data, to_learn=True), [self._known[digest] for digest in wanted])
        for digest in wanted:
            del self._known[digest]
        return self

    @exclusive
    def set_vocabulary(self, vocabulary: Any) -> Tagger:
        """Use another vocabulary from now on, or None; nothing is fitted again.

        If the tagger was fitted with a vocabulary, the names of new concepts are looked for in texts at once, and those
        of concepts that are gone only as long as documents carry them.
        """
        self.documents_ = self._fitted().with_concepts(concepts_given(vocabulary)).with_unseen_labels()
        self.vocabulary = self.documents_.concepts
        return self

    # ------------------------------------------------------------------------------------------------------ answering

    def name(self, tag: str, *languages: str | None) -> str:
        """What people call a tag in the first of these languages that the vocabulary has; without one, the tag."""
        return self._fitted().names([tag], *languages).get(tag, tag)

    def suggest(self, text: str, **rules: Any) -> list[Suggestion]:
        """The tags suggested for a text with their scores, best first; `rules` hold for this call only, such as n=3."""
        if not isinstance(text, str):
            raise DataError(f"a text is needed; got {type(text).__name__}. For several texts use suggest_many.")
        return self.suggest_many([text], **rules)[0]

    def suggest_many(
        self, documents: Any, *, text: str | Sequence[str] = "text", **rules: Any
    ) -> list[list[Suggestion]]:
        """The same for many texts, given as for `fit`; their tags are ignored, and `text` names columns of a table."""
        fitted = self._fitted()
        return fitted.suggest(documents_given(documents, text=text).texts or [], self._rules(**rules))

    def predict(self, documents: Any, coverage: float | None = None, per_label: bool = False) -> list[list[Suggestion]]:
        """The set of tags of each document, best first: tags above the threshold, or sets with a guarantee.

        With `coverage`, the set of a new document holds on average at least this share of its tags; with `per_label`,
        it holds each right tag with at least this probability. See `RIPML.predict`.
        """
        return self.suggest_many(documents, n=None, threshold="auto", coverage=coverage, per_label=per_label)

    def familiarity(self, documents: Any, *, text: str | Sequence[str] = "text") -> list[float]:
        """How familiar each document is, given as for `suggest_many`, in (0, 1].

        It is the share of training texts, each left out, that are no more familiar. Up to 0.01, a text is unlike
        anything known, and its suggestions are worth little.

        >>> texts = ["the cat sat on the mat", "the dog sat on the mat", "a cat and a dog on the mat"] * 40
        >>> tagger = Tagger().fit([f"{t} {i % 7} {i % 5}" for i, t in enumerate(texts)], [["pet"]] * 120)
        >>> familiar, strange = tagger.familiarity(["the cat on the mat", "qwx zzyv plomk"])
        >>> familiar > 0.1, strange <= 0.01
        (True, True)
        """
        found = self._fitted().familiarity(documents_given(documents, text=text).texts or [])
        if found is None:
            raise ParameterError(
                "this tagger does not know which texts are familiar; fit it again, with features='tfidf' and at least "
                "99 texts."
            )
        return found

    def automation(self, precision: Sequence[float] = AUTOMATION) -> dict[str, list[dict[str, float]]]:
        """How much can be applied unseen at each of these precisions, by left-out documents; see `RIPML.automation`."""
        model = self._fitted().model
        if not isinstance(model, RIPML):
            raise ParameterError(f"{type(model).__name__} keeps no scores of left-out documents; RIPML does.")
        return model.automation(precision)

    def explain(self, text: str, n_examples: int = 5, n_features: int = 10, **rules: Any) -> list[Why]:
        """Why each tag is suggested: examples with their shares of the score, words, and their places in the text."""
        if not isinstance(text, str):
            raise DataError(f"a text is needed; got {type(text).__name__}.")
        fitted = self._fitted()
        return fitted.explain([text], self._rules(**rules), n_examples, n_features)[0]

    def evaluate(self, documents: Any, tags: Any = None, **columns: Any) -> dict[str, float]:
        """P@k, nDCG@k and further metrics on documents with tags, given as for `fit`."""
        return self._fitted().evaluate(documents_given(documents, tags, **columns))

    @property
    def tags_(self) -> list[str]:
        """All tags."""
        return [str(name) for name in self._fitted().model.classes_]

    @property
    def n_documents_(self) -> int:
        """The number of texts that were learnt."""
        self._fitted()
        return len(self._known)

    # --------------------------------------------------------------------------------------------------- save and load

    def save(self, path: str | PathLike[str], compact: bool = False) -> None:
        """Write a model folder of JSON and plain arrays, without any text; `ripml.load` reads it.

        An encoder object is not saved; pass it to `Tagger.load` again. With `compact`, only what suggestions need is
        written, which is smaller: such a tagger cannot learn or forget, and does not know how many texts it has learnt.
        """
        fitted = replace(self._fitted(), rules=self._rules())
        parameters, arrays = fitted.to_state(compact)
        parameters["tagger"] = {"n_empty": self.n_empty_, "n_repeated": self.n_repeated_}
        if not compact:
            arrays |= self._known_to_arrays()
        model_folder.save(path, type(fitted.model).__name__, parameters, arrays)

    def _known_to_arrays(self) -> dict[str, NDArray[Any]]:
        """The texts that were learnt, by their digests, and their tags."""
        columns = {name: column for column, name in enumerate(self.tags_)}
        carried = [[columns[tag] for tag in tags] for tags in self._known.values()]
        return {
            "tagger_digests": np.frombuffer(b"".join(self._known), np.uint8).reshape(-1, _DIGEST_SIZE),
            "tagger_tags": np.array([column for tags in carried for column in tags], np.int32),
            "tagger_ends": np.cumsum([0, *map(len, carried)], dtype=np.int64),
        }

    @classmethod
    def load(cls, path: str | PathLike[str], encoder: Any = None) -> Tagger:
        """Read a tagger, or a model that the command line trained on texts; one that used an encoder needs it again.

        A model of the command line does not know its texts, so that the tagger can learn but not forget them.
        """
        return cls.from_contents(path, model_folder.load(path), encoder)

    @classmethod
    def from_contents(cls, path: str | PathLike[str], contents: Contents, encoder: Any = None) -> Tagger:
        """The tagger in the contents of a folder; `path` is for error messages."""
        fitted = DocumentModel.from_contents(path, contents, encoder)
        if fitted.text is None:
            raise ModelFolderError(f"{path}: this model was trained on features, not on texts; use ripml.load.")
        features = fitted.text.encoder or fitted.text if isinstance(fitted.text, Encoder) else fitted.text
        tagger = cls(features, fitted.model.cloned(), vocabulary=fitted.concepts, **fitted.rules.to_json())
        tagger.documents_ = fitted
        try:
            counts = contents.parameters.get("tagger", {})
            tagger.n_empty_, tagger.n_repeated_ = int(counts.get("n_empty", 0)), int(counts.get("n_repeated", 0))
            tagger._known = _load_known(contents.arrays, tagger.tags_)
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            raise ModelFolderError(f"{path}: the digests of its texts are damaged ({error}).") from None
        return tagger

    def _rules(self, **changes: Any) -> Rules:
        """The rules by the present parameters of this tagger, with changes for a call."""
        return Rules(**{name: getattr(self, name) for name in Rules._fields}).but(**changes)

    def _fitted(self) -> DocumentModel:
        if not hasattr(self, "documents_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this Tagger has not been fitted; call fit(texts, tags) first.")
        return self.documents_

    def _check_repeatable(self) -> None:
        if not self._fitted().repeatable:
            raise ParameterError(
                "this tagger was fitted by an earlier version of ripml on doc2vec vectors that cannot be computed "
                "again, so its texts cannot be forgotten or given other tags; fit it again."
            )

    def _online(self) -> RIPML:
        model = self._fitted().model
        if not isinstance(model, RIPML):
            raise ParameterError(f"{type(model).__name__} cannot learn or forget texts after its fit; RIPML can.")
        model.model_.check_exact()
        return model


def load(path: str | PathLike[str]) -> Any:
    """Load a saved estimator or `Tagger`; its arrays stay on disk and are read as they are needed.

    >>> load("no/such/model")
    Traceback (most recent call last):
    ripml.base.errors.ModelFolderError: no/such/model: this model folder cannot be opened (No such file or directory).
    """
    contents = model_folder.load(path)
    is_tagger = "tagger" in contents.parameters
    return Tagger.from_contents(path, contents) if is_tagger else estimator_of(path, contents)


def _digests(data: Dataset) -> Iterable[tuple[bytes, tuple[str, ...]]]:
    """The digest of each text, which identifies it, and its tags in order."""
    for row, text in enumerate(data.texts or ()):
        normal = " ".join(text.split()).encode("utf-8", "surrogatepass")
        yield hashlib.blake2b(normal, digest_size=_DIGEST_SIZE).digest(), tuple(sorted(data.row_labels(row)))


def _load_known(arrays: dict[str, NDArray[Any]], tags: list[str]) -> dict[bytes, tuple[str, ...]]:
    """The digests and tags of the known texts, as `save` wrote them."""
    if "tagger_digests" not in arrays:
        return {}
    digests, columns, ends = (np.asarray(arrays[f"tagger_{name}"]) for name in ("digests", "tags", "ends"))
    if digests.dtype != np.uint8 or digests.shape != (len(ends) - 1, _DIGEST_SIZE):
        raise ValueError("digests of another shape")
    carried = csr_array((np.ones(len(columns)), columns, ends), shape=(len(digests), len(tags)))
    carried.check_format(full_check=True)
    names = [tags[column] for column in columns.tolist()]
    return {bytes(digest): tuple(names[a:b]) for digest, a, b in zip(digests, ends[:-1], ends[1:], strict=True)}
