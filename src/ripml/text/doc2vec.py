"""`Doc2Vec`: texts to dense rows, the paragraph vectors of Le and Mikolov (2014) in their distributed-memory form.

The mean of a text's vector x and the vectors v of the words around a position predicts the word w at that position,

    h = (x + Σ_c v_c) / (1 + |c|),    P(w | h) = Π_b σ(± ⟨u_b, h⟩)  over the branches b on w's path in a Huffman tree

(hierarchical softmax). x, v and u are trained by gradient ascent; a new text gets its x with v and u held fixed.

As in the paper, words are trained by skip-gram with hierarchical softmax, documents by distributed memory. gensim
trains skip-gram only together with the other form of paragraph vectors (`dbow_words`), so here skip-gram runs first:
Word2Vec on the same texts and words, whose v initialises the paragraph-vector model (its u starts at 0 as usual).

Vectors depend only on text, settings and `random_state`. For that, three things differ from gensim's defaults: words
are ordered by count, then by spelling; every x starts at 0 and not at a random point (gensim derives it from Python's
`hash`, which differs between processes); and each new text has a separate random stream. A text without a known word
stays at 0.
"""

from __future__ import annotations

import copy
import importlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, MissingExtraError, ModelFolderError, ParameterError
from ripml.base.parallel import map_blocks, thread_count
from ripml.text.base import TextFeatures
from ripml.text.tokens import packed, strings, tokenizer, unpacked

__all__ = ["Doc2Vec"]

_MAX_SEED: Final = 2**31 - 1


@dataclass(kw_only=True, eq=False, repr=False)
class Doc2Vec(TextFeatures):
    """Turn texts into dense paragraph vectors; needs gensim, which the extra `text` installs.

    Parameters
    ----------
    n_dims : int, default=200
        Length d of the vectors.
    tokens : "words", "chars" or "jieba", default="words"
        What counts as a word, see `ripml.text.tokens`. gensim uses the first 10,000 known words of a text.
    window : int, default=10
        The context is up to this many words on either side.
    epochs : int, default=10
        Passes over the training texts, and over each new text.
    word_epochs : int, default=1
        Passes of skip-gram before. It predicts every word of the window where distributed memory predicts one, so an
        epoch takes several times as long; on 2,500 Chinese news articles, 3 were no better than 1.
    min_count : int, default=5
        A word must occur this many times in total; 5 is also the default of word2vec.
    random_state : int, default=0
    n_jobs : int or None, default=1
        Threads; None for one per core. With more than one, *training* differs from run to run, since threads write to
        the same vectors; `transform` does not depend on the number.

    Examples
    --------
    >>> doc2vec = Doc2Vec(n_dims=8, min_count=1)
    >>> doc2vec.fit_transform(["red apple", "green apple", ""]).shape
    (3, 8)
    >>> bool(doc2vec.transform(["blue plum"]).any())
    False
    """

    kind: ClassVar[str] = "doc2vec"  # in model folders

    n_dims: int = 200
    tokens: str = "words"
    window: int = 10
    epochs: int = 10
    word_epochs: int = 1
    min_count: int = 5
    random_state: int = 0
    n_jobs: int | None = 1

    def __post_init__(self) -> None:
        tokenizer(self.tokens)  # raises if the rule is unknown
        thread_count(self.n_jobs)  # raises if it is not a number of threads
        for name in ("n_dims", "window", "epochs", "word_epochs", "min_count"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:  # only Python's integers: the state is JSON
                raise ParameterError(f"`{name}` must be an integer ≥ 1; got {value!r}.")
        if type(self.random_state) is not int or not 0 <= self.random_state <= _MAX_SEED:
            raise ParameterError(f"`random_state` must be an integer from 0 to {_MAX_SEED}; got {self.random_state!r}.")

    def fit(self, texts: Iterable[str]) -> Doc2Vec:
        """Train on the texts."""
        self.fit_transform(texts)
        return self

    def learn(self, texts: list[str], vectors: Any = None) -> NDArray[np.float32]:
        """`fit` and `transform`: vectors that are trained are not those that are inferred, and cannot be had again."""
        return self.fit(texts).transform(texts)

    def fit_transform(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Train on the texts and return their trained vectors: float32, shape (n, d)."""
        documents = self._tokenize(texts)
        counts = Counter(word for document in documents for word in document)
        kept = sorted((-count, word) for word, count in counts.items() if count >= self.min_count)
        if len(kept) < 2:  # a Huffman tree of one leaf has no branch to learn
            raise DataError(
                f"at least 2 words must occur min_count = {self.min_count} times in the {len(documents)} texts, but "
                f"{len(kept)} do; lower it or pass more text."
            )
        vocabulary = {word: -count for count, word in kept}
        words = self._new_model("Word2Vec", vocabulary, sg=1)
        words.train(documents, total_examples=len(documents), epochs=self.word_epochs)
        model = self._new_model("Doc2Vec", vocabulary, dm=1)
        model.wv.vectors[:] = words.wv.vectors
        del words
        model.dv.index_to_key = list(range(len(documents)))
        model.dv.vectors = np.zeros((len(documents), self.n_dims), np.float32)
        tagged = _gensim().doc2vec.TaggedDocument
        rows = [tagged(document, [row]) for row, document in enumerate(documents)]
        model.train(rows, total_examples=len(rows), epochs=self.epochs)
        vectors: NDArray[np.float32] = model.dv.vectors
        # The caller has the vectors; new texts do not need them.
        model.dv.index_to_key, model.dv.vectors = [], vectors[:0].copy()
        self._model = model
        return vectors

    def transform(self, texts: Iterable[str], vectors: Any = None) -> NDArray[np.float32]:
        """Return inferred vectors of the texts, float32, shape (n, d); all zero for a text without a known word.

        The vector of a text depends neither on the other texts nor on the number of threads, and is the same whenever
        it is asked for. It is close to, but not the same as, the one of `fit_transform`, where the words were still
        being trained. To be able to forget texts later, learn from `fit(texts).transform(texts)`.
        """
        model = self._fitted()
        documents = self._tokenize(texts)
        inferred = np.zeros((len(documents), self.n_dims), np.float32)
        rates = np.linspace(model.alpha, model.min_alpha, self.epochs).tolist()

        def infer(row: int) -> None:
            shallow = copy.copy(model)  # shares the arrays, which are only read here
            shallow.random = np.random.RandomState(self.random_state)
            for rate in rates:
                _gensim().doc2vec.train_document_dm(
                    shallow, documents[row], [row], rate, learn_words=False, learn_hidden=False, doctag_vectors=inferred
                )

        map_blocks(infer, range(len(documents)), self.n_jobs)
        return inferred

    @property
    def n_features(self) -> int:
        """`n_dims`."""
        return self.n_dims

    def recipe(self) -> dict[str, Any]:
        """The settings."""
        parameters = asdict(self)
        del parameters["n_jobs"]  # belongs to the machine, not to the model
        return parameters

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (parameters for JSON, arrays), from which `from_state` makes the same object."""
        model = self._fitted()
        arrays = {
            **packed(model.wv.index_to_key),
            "counts": np.asarray(model.wv.expandos["count"], np.int64),  # the Huffman tree follows from them
            "word_vectors": model.wv.vectors,
            "branch_vectors": model.syn1,
        }
        return self.recipe(), arrays

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Doc2Vec:
        """Return the object whose `to_state` this is."""
        try:
            doc2vec = cls(**parameters)
            words = unpacked(arrays)
            counts = np.asarray(arrays["counts"], np.int64)
            if counts.shape != (len(words),) or len(words) < 2 or counts.min() < 1:
                raise ValueError("counts must be one number ≥ 1 per word")
            vectors = [np.ascontiguousarray(arrays[name], np.float32) for name in ("word_vectors", "branch_vectors")]
            if any(part.shape != (len(words), doc2vec.n_dims) or not np.isfinite(part).all() for part in vectors):
                raise ValueError("vectors must be n_dims finite numbers per word")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFolderError(f"the saved doc2vec is damaged ({error}).") from None
        model = doc2vec._new_model("Doc2Vec", dict(zip(words, counts.tolist(), strict=True)), dm=1)
        model.wv.vectors, model.syn1 = vectors
        doc2vec._model = model
        return doc2vec

    def _tokenize(self, texts: Iterable[str]) -> list[list[str]]:
        cut = tokenizer(self.tokens)
        return [cut(text) for text in strings(texts)]

    def _new_model(self, kind: str, vocabulary: dict[str, int], **form: int) -> Any:
        model = getattr(_gensim(), kind)(
            vector_size=self.n_dims,
            window=self.window,
            hs=1,
            negative=0,
            min_count=1,  # rare words are dropped already
            sorted_vocab=0,  # and the others sorted
            seed=self.random_state,
            workers=thread_count(self.n_jobs),
            **form,
        )
        model.build_vocab_from_freq(vocabulary)
        return model

    def _fitted(self) -> Any:
        if not hasattr(self, "_model"):
            raise ParameterError("this Doc2Vec has not been fitted; call fit(texts) first.")
        return self._model


def _gensim() -> Any:
    try:
        return importlib.import_module("gensim.models")
    except ImportError:
        raise MissingExtraError("gensim", "text") from None
