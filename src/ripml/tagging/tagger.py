"""`Tagger`: texts in, tags out. Text cleaning, features, the model and the rules for suggestions in one object.

`load` reads the tagger, or the estimator, that a model folder holds.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base import model_folder, progress
from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.base.estimator import Estimator
from ripml.base.model_folder import Contents
from ripml.base.parallel import exclusive
from ripml.datasets import Dataset, documents_given
from ripml.datasets.vocabularies import concepts_given
from ripml.model.audit import Audit
from ripml.model.estimator import AUTOMATION, RIPML
from ripml.model.learning_curve import LearningCurve
from ripml.model.left_out import row_numbers
from ripml.model.multilabel import Multilabel
from ripml.tagging.documents import DocumentModel, Why, check_texts, distinct, estimator_of
from ripml.tagging.map import DocumentMap, map_features
from ripml.tagging.rules import Rules, Suggestion
from ripml.tagging.suggestions import Suggestions
from ripml.text import Encoder

__all__ = ["Tagger", "load"]

_MANY = 1000  # texts that take long enough to show how far they are
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
    verbose : int, default=0
        1 shows the steps of `fit` and of long answers with the time that is left; 0 shows nothing.

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
    verbose: int = 0

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
        check_texts(data)
        kept = distinct(data)
        if self.model is not None and not isinstance(self.model, Multilabel):
            raise ParameterError(f"`model` must be an estimator of ripml; got {self.model!r}.")
        model = RIPML(random_state=0) if self.model is None else self.model.cloned()
        concepts = concepts_given(self.vocabulary)
        with progress.shown("training", self.verbose):
            fitted = DocumentModel.fit(
                kept, None, model, features=self.features, rules=self._rules(), always_named=True, concepts=concepts
            )
        self.n_empty_ = sum(not text.strip() for text in data.texts or ())
        self.n_repeated_ = len(data) - self.n_empty_ - len(kept)
        self.documents_ = fitted
        self._known = {digest: tags for digest, tags in _digests(kept) if tags}
        self._decided = dict[bytes, dict[str, bool]]()
        return self

    @exclusive
    def learn(self, documents: Any, tags: Any = None, **columns: Any) -> Tagger:
        """Learn more documents, given as for `fit`; the tags of a known text are replaced.

        If some texts have tags, known texts without tags are forgotten. Tags, also new ones, take effect at once,
        exactly as if all texts had been fitted together with the present features and settings. Decisions on a text
        that is learnt are withdrawn: all its tags are known now. A call that fails changes nothing.
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
        settled = [digest for digest in new if digest in self._decided]
        model, row = copy.copy(self._online()), {digest: i for i, digest in enumerate(new)}
        if removed or changed:
            self._check_repeatable()

        def rows(digests: list[bytes]) -> Any:
            documents = replace(self.documents_, model=model)  # the columns of labels may have changed meanwhile
            return documents.features(data.take([row[digest] for digest in digests]), to_learn=True)

        if settled:
            model.withdraw(rows(settled), *_as_rows([self._decided[digest] for digest in settled]))
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
        self._decided = {digest: decision for digest, decision in self._decided.items() if digest not in new}
        self.documents_ = replace(self.documents_, model=model)
        return self

    @exclusive
    def forget(self, documents: Any, tags: Any = None, **columns: Any) -> Tagger:
        """Forget documents, and decisions on their tags: the tagger becomes what it would be without them.

        They are identified by their texts. If tags are given, they must be those that the texts were learnt with.
        """
        model = self._online()
        data = distinct(documents_given([documents] if isinstance(documents, str) else documents, tags, **columns))
        if not len(data):
            raise DataError("there is no text to be forgotten.")
        self._check_repeatable()
        wanted = dict(_digests(data))
        for text, (digest, expected) in zip(data.texts or (), wanted.items(), strict=True):
            if digest not in self._known and (expected or digest not in self._decided):
                raise DataError(f"the text {text[:60]!r} was never learnt, or was forgotten already.")
            if expected and self._known[digest] != expected:
                raise DataError(f"a text was learnt with the tags {self._known[digest]}, and not with {expected}.")
        model, X = copy.copy(model), self.documents_.features(data, to_learn=True)
        learnt = [i for i, digest in enumerate(wanted) if digest in self._known]
        decided = [i for i, digest in enumerate(wanted) if digest in self._decided]
        if learnt:
            model.forget(X[learnt], [self._known[digest] for digest in wanted if digest in self._known])
        if decided:
            decisions = [self._decided[digest] for digest in wanted if digest in self._decided]
            model.withdraw(X[decided], *_as_rows(decisions))
        self._known = {digest: tags for digest, tags in self._known.items() if digest not in wanted}
        self._decided = {digest: decision for digest, decision in self._decided.items() if digest not in wanted}
        self.documents_ = replace(self.documents_, model=model)
        return self

    @exclusive
    def decide(self, text: str, accepted: Collection[str] = (), rejected: Collection[str] = ()) -> Tagger:
        """Learn that some tags of a text are right and others wrong; nothing is learnt of its other tags.

        Tags that were decided before stay decided, and the last decision on a tag counts. Of a text that was learnt,
        all tags are known: those accepted are added to them, and those rejected removed. `learn` is for texts of which
        all tags are known; see `RIPML.decide` for what is learnt.
        """
        model, digest = self._online(), self._digest_of(text)
        if isinstance(accepted, str) or isinstance(rejected, str):
            raise DataError("`accepted` and `rejected` must be lists of tags.")
        if both := {*accepted} & {*rejected}:
            raise DataError(f"the tag {min(both)!r} is both accepted and rejected.")
        if digest in self._known:
            tags = sorted(({*self._known[digest]} | {*accepted}) - {*rejected})
            if not tags:
                raise DataError("without the rejected tags the text has none left; use `forget` to forget it.")
            return self.learn([text], [tags])
        model, before = copy.copy(model), self._decided.get(digest, {})
        decision = before | dict.fromkeys(accepted, True) | dict.fromkeys(rejected, False)
        X = self.documents_.features_of([text], to_learn=True)
        if before:
            model.withdraw(X, *_as_rows([before]))
        model.decide(X, *_as_rows([decision]))
        self._decided = self._decided | {digest: decision}
        self.documents_ = replace(self.documents_, model=model)
        return self

    @exclusive
    def withdraw(self, text: str) -> Tagger:
        """Take back all decisions on the tags of a text: the tagger is the one that never had them."""
        model, digest = copy.copy(self._online()), self._digest_of(text)
        if digest not in self._decided:
            raise DataError(f"no tag of the text {text[:60]!r} is decided.")
        decision = self._decided[digest]
        model.withdraw(self.documents_.features_of([text], to_learn=True), *_as_rows([decision]))
        self._decided = {other: known for other, known in self._decided.items() if other != digest}
        self.documents_ = replace(self.documents_, model=model)
        return self

    def _digest_of(self, text: str) -> bytes:
        if not isinstance(text, str):
            raise DataError(f"a text is needed; got {type(text).__name__}.")
        if not text.strip():
            raise DataError("the text is blank.")
        self._check_repeatable()
        return _digest(text)

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

    def map(self, documents: Any, tags: Any = None, *, seed: int = 0, **columns: Any) -> DocumentMap:
        """Documents in two dimensions, similar ones near each other; they are given as for `fit`.

        `positions` (n, 2) are from 0 to 1, `regions` have names, and `doubt` (n,) says how little the most similar
        documents speak for the tags of each. The same documents and seed give the same map; see `ripml.tagging.map`.
        """
        fitted, data = self._fitted(), documents_given(documents, tags, **columns)
        return DocumentMap.of(map_features(fitted, data), data, seed, fitted.model.n_jobs)

    def suggest(self, text: str, **rules: Any) -> list[Suggestion]:
        """The tags suggested for a text with their scores, best first; `rules` hold for this call only, such as n=3."""
        if not isinstance(text, str):
            raise DataError(f"a text is needed; got {type(text).__name__}. For several texts use suggest_many.")
        return self.suggest_many([text], **rules)[0]

    def suggest_many(self, documents: Any, *, text: str | Sequence[str] = "text", **rules: Any) -> Suggestions:
        """The same for many texts, given as for `fit`; their tags are ignored, and `text` names columns of a table.

        The answer is a list of lists; its `to_frame()` is a DataFrame of pandas with the index of the documents.

        >>> texts = ["The red apple is ripe", "A green apple fell", "Grey sky and rain", "Blue sky, no rain"]
        >>> tagger = Tagger().fit(texts, [["fruit"], ["fruit", "green"], ["weather"], ["weather"]])
        >>> tagger.suggest_many(["A ripe apple", "Rain"], n=1).to_frame()["tags"].tolist()
        [['fruit'], ['weather']]
        """
        fitted, index = self._fitted(), getattr(documents, "index", None)
        texts = documents_given(documents, text=text).texts or []
        with progress.shown("suggesting", self.verbose if len(texts) > _MANY else 0):
            return Suggestions(fitted.suggest(texts, self._rules(**rules)), None if callable(index) else index)

    def predict(self, documents: Any, coverage: float | None = None, per_label: bool = False) -> Suggestions:
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
        >>> familiar, strange = tagger.familiarity(["the dog sat on the mat", "qwx zzyv plomk"])
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

    def score(self, documents: Any, tags: Any = None, **columns: Any) -> float:
        """P@1 on documents with tags, given as for `fit`: the share of those whose best tag is right.

        It is what `cross_val_score` and `GridSearchCV` of scikit-learn maximise. Documents without tags do not count.

        >>> from sklearn.model_selection import KFold, cross_val_score
        >>> texts = [f"the {animal} sat on the {place}" for animal in ("cat", "dog") for place in "abcdef"]
        >>> cross_val_score(Tagger(), texts, [["cat"]] * 6 + [["dog"]] * 6, cv=KFold(3, shuffle=True, random_state=0))
        array([1., 1., 1.])
        """
        return self._fitted().precision_at_1(documents_given(documents, tags, **columns))

    def evaluate(self, documents: Any, tags: Any = None, **columns: Any) -> dict[str, float]:
        """P@k, nDCG@k and further metrics on documents with tags, given as for `fit`."""
        return self._fitted().evaluate(documents_given(documents, tags, **columns))

    def plot(self, documents: Any = None, tags: Any = None, **columns: Any) -> Any:
        """A figure of calibration, of precision and recall by tag frequency, and of what can be applied unseen.

        It is about documents with tags that the tagger has not learnt, given as for `fit`; without them, about those it
        has learnt, each left out. Needs matplotlib, the extra `plot`; `figure.savefig("quality.png")` keeps it. A
        tagger that reads the names of a vocabulary in texts needs documents.
        """
        fitted = self._fitted()
        return fitted.plot(None if documents is None else documents_given(documents, tags, **columns))

    def learning_curve(self, documents: Any, tags: Any = None, **columns: Any) -> LearningCurve:
        """What more documents than these, given as for `fit`, would bring; see `ripml.model.learning_curve`."""
        return self._fitted().learning_curve(documents_given(documents, tags, **columns))

    def audit(
        self, documents: Any, tags: Any = None, *, limit: int = 1000, n_examples: int = 3, **columns: Any
    ) -> Audit:
        """The tags of known texts that are most probably wrong and missing, at most `limit` of each.

        `documents`, given as for `fit`, are the texts that were learnt, and findings are named by their places in them;
        their tags are ignored, since the tagger knows its own. See `ripml.RIPML.audit`.
        """
        fitted, first, texts = self._fitted(), dict[bytes, int](), list[str]()
        for row, text in enumerate(documents_given(documents, tags, **columns).texts or ()):
            texts.append(text)
            first.setdefault(_digest(text), row)
        if not self._known:
            raise DataError("this tagger does not know its texts: it was trained by the command line; use ripml audit.")
        absent = sum(digest not in first for digest in self._known)
        if absent:
            raise DataError(f"{absent:,} of {len(self._known):,} texts that were learnt are not among the documents.")
        # Known texts are in the order in which they were learnt.
        rows = [first[digest] for digest in self._known]
        found = fitted.audit(limit, n_examples, lambda _: [texts[row] for row in rows])
        numbers = row_numbers(self._online().model_)
        return found.renamed(dict(zip(numbers.tolist(), rows, strict=True)))

    # ------------------------------------------------------------------------------------------------------- notebooks

    def _repr_html_(self) -> str:
        """The diagram of scikit-learn before the fit, and what was learnt after it."""
        if not hasattr(self, "documents_"):
            return super()._repr_html_()
        counts = {"documents": self.n_documents_, "with decided tags": self.n_decided_}
        counts |= {"blank": self.n_empty_, "repeated": self.n_repeated_}
        return self.documents_.to_html("Tagger", counts, self.get_params(deep=False))

    @property
    def tags_(self) -> list[str]:
        """All tags."""
        return [str(name) for name in self._fitted().model.classes_]

    @property
    def n_documents_(self) -> int:
        """The number of texts that were learnt."""
        self._fitted()
        return len(self._known)

    @property
    def n_decided_(self) -> int:
        """The number of texts of which some tags are decided."""
        self._fitted()
        return len(self._decided)

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
            **self._decided_to_arrays(columns),
        }

    def _decided_to_arrays(self, columns: dict[str, int]) -> dict[str, NDArray[Any]]:
        """The texts of which some tags are decided, by their digests, and these tags."""
        if not self._decided:
            return {}
        decisions = self._decided.values()
        return {
            "tagger_decided_digests": np.frombuffer(b"".join(self._decided), np.uint8).reshape(-1, _DIGEST_SIZE),
            "tagger_decided_tags": np.array([columns[tag] for decision in decisions for tag in decision], np.int32),
            "tagger_decided_accepted": np.array([yes for decision in decisions for yes in decision.values()], bool),
            "tagger_decided_ends": np.cumsum([0, *map(len, decisions)], dtype=np.int64),
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
            tagger._known = dict(_load_tags(contents.arrays, "tagger", tagger.tags_))
            tagger._decided = _load_decided(contents.arrays, tagger.tags_)
        except (AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
            raise ModelFolderError(f"{path}: the digests of its texts are damaged ({error}).") from None
        return tagger

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = tags.target_tags.multi_output = True
        return tags

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


def _as_rows(decisions: Iterable[dict[str, bool]]) -> tuple[list[list[str]], list[list[str]]]:
    """The accepted and the rejected tags of each decision."""
    decisions = list(decisions)
    accepted, rejected = (
        [[tag for tag, yes in decision.items() if yes == wanted] for decision in decisions] for wanted in (True, False)
    )
    return accepted, rejected


def _digest(text: str) -> bytes:
    """What identifies a text; white space makes no difference."""
    normal = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(normal, digest_size=_DIGEST_SIZE).digest()


def _digests(data: Dataset) -> Iterable[tuple[bytes, tuple[str, ...]]]:
    """The digest of each text, and its tags in order."""
    for row, text in enumerate(data.texts or ()):
        yield _digest(text), tuple(sorted(data.row_labels(row)))


def _load_tags(
    arrays: dict[str, NDArray[Any]], prefix: str, tags: list[str]
) -> Iterator[tuple[bytes, tuple[str, ...]]]:
    """The digests of texts and their tags, as `save` wrote them."""
    if f"{prefix}_digests" not in arrays:
        return
    digests, columns, ends = (np.asarray(arrays[f"{prefix}_{name}"]) for name in ("digests", "tags", "ends"))
    if digests.dtype != np.uint8 or digests.shape != (len(ends) - 1, _DIGEST_SIZE):
        raise ValueError("digests of another shape")
    carried = csr_array((np.ones(len(columns)), columns, ends), shape=(len(digests), len(tags)))
    carried.check_format(full_check=True)
    names = [tags[column] for column in columns.tolist()]
    for digest, a, b in zip(digests, ends[:-1], ends[1:], strict=True):
        yield bytes(digest), tuple(names[a:b])


def _load_decided(arrays: dict[str, NDArray[Any]], tags: list[str]) -> dict[bytes, dict[str, bool]]:
    """The digests of texts and the decisions on their tags, as `save` wrote them."""
    decided = dict(_load_tags(arrays, "tagger_decided", tags))
    if not decided:
        return {}
    accepted, ends = arrays["tagger_decided_accepted"].tolist(), np.cumsum([0, *map(len, decided.values())]).tolist()
    return {
        digest: dict(zip(of_text, accepted[a:b], strict=True))
        for (digest, of_text), a, b in zip(decided.items(), ends[:-1], ends[1:], strict=True)
    }
