"""`TfIdf`: texts to sparse rows, x_w = (1 + ln tf_w) · (1 + ln((1 + n) / (1 + df_w))), each row of length 1.

scikit-learn's TfidfVectorizer with settings that suit ridge regression on text, and a state of JSON and plain arrays,
so that it is saved without pickle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

from ripml.errors import DataError, ModelFolderError, ParameterError
from ripml.text.words import packed, strings, tokenizer, unpacked

__all__ = ["TfIdf"]


class TfIdf:
    """Turn texts into tf-idf rows.

    Parameters
    ----------
    max_features : int or None, default=100_000
        At most this many words, those with the most occurrences; None for all. Bounds d, and with it the memory of a
        regression on these features.
    min_df : int, default=2
        A word must occur in at least this many texts: one seen once cannot generalise.
    ngrams : int, default=1
        Also take up to this many successive words as one.
    tokens : "words", "chars" or "jieba", default="words"
        What counts as a word, see `ripml.text.words`: for Chinese, single characters, these and their pairs, or the
        words that jieba finds.

    Examples
    --------
    >>> vectorizer = TfIdf(min_df=1)
    >>> vectorizer.fit_transform(["red apple", "green apple", ""]).shape
    (3, 3)
    >>> vectorizer.feature_names
    ['apple', 'green', 'red']
    >>> vectorizer.transform(["blue plum"]).nnz
    0
    """

    def __init__(
        self, *, max_features: int | None = 100_000, min_df: int = 2, ngrams: int = 1, tokens: str = "words"
    ) -> None:
        for name, value in (("max_features", max_features), ("min_df", min_df), ("ngrams", ngrams)):
            if value is None and name == "max_features":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ParameterError(f"`{name}` must be an integer ≥ 1; got {value!r}.")
        tokenizer(tokens)
        self.max_features = max_features
        self.min_df = min_df
        self.ngrams = ngrams
        self.tokens = tokens

    def fit(self, texts: Iterable[str]) -> TfIdf:
        """Learn words and their weights from the texts."""
        self.fit_transform(texts)
        return self

    def fit_transform(self, texts: Iterable[str]) -> Any:
        """Learn from the texts and return their rows: CSR float32, shape (n, d)."""
        texts = strings(texts)
        vectorizer = self._new_vectorizer()
        if self.min_df > len(texts):
            raise DataError(f"`min_df` = {self.min_df} is above the number of texts, {len(texts)}; lower it.")
        try:
            rows = vectorizer.fit_transform(texts)
        except ValueError:  # scikit-learn's word for an empty vocabulary
            raise DataError(f"no word occurs in at least min_df = {self.min_df} of the {len(texts)} texts.") from None
        self._vectorizer = vectorizer
        return _sorted_csr(rows)

    def fit_blocks(self, blocks: Iterable[Iterable[str]]) -> TfIdf:
        """Learn from blocks of texts, of which one is in memory at a time; what is kept are counts of words.

        >>> TfIdf(min_df=1).fit_blocks([["red apple"], ["green apple", ""]]).feature_names
        ['apple', 'green', 'red']
        """
        words = self._new_vectorizer().build_analyzer()
        occurrences, documents, n = Counter[str](), Counter[str](), 0
        for block in blocks:
            for text in strings(block):
                found = Counter(words(text))
                occurrences.update(found)
                documents.update(found.keys())
                n += 1
        kept = sorted(word for word, count in documents.items() if count >= self.min_df)
        if not kept:
            raise DataError(f"no word occurs in at least min_df = {self.min_df} of the {n} texts.")
        if self.max_features is not None and len(kept) > self.max_features:
            most = np.argsort(-np.array([occurrences[word] for word in kept]))[: self.max_features]
            kept = [kept[i] for i in np.sort(most)]
        self._vectorizer = self._new_vectorizer(kept)
        self._vectorizer.idf_ = np.log((1 + n) / (1 + np.array([documents[word] for word in kept]))) + 1
        return self

    def transform(self, texts: Iterable[str]) -> Any:
        """Return the rows of the texts: CSR float32, shape (n, d); all zero where no word is known."""
        return _sorted_csr(self._fitted().transform(strings(texts)))

    def without(self, gone: NDArray[np.bool_]) -> TfIdf:
        """The same columns, but those of these words (d,) have in place of the word what no text can contain.

        >>> vectorizer = TfIdf(min_df=1).fit(["red apple", "green apple"]).without(np.array([False, True, False]))
        >>> vectorizer.feature_names, vectorizer.transform(["red 1 green"]).nnz
        (['apple', ' 1', 'red'], 1)
        """
        # No token begins with a space, nor do several that are joined by one.
        words = [f" {i}" if out else word for i, (word, out) in enumerate(zip(self.feature_names, gone, strict=True))]
        parameters, arrays = self.to_state()
        return self.from_state(parameters, {**arrays, **packed(words)})

    @property
    def feature_names(self) -> list[str]:
        """The d words, in the order of the columns."""
        return [str(word) for word in self._fitted().get_feature_names_out()]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (parameters for JSON, arrays); `from_state` makes the same object of them."""
        parameters = {name: getattr(self, name) for name in ("max_features", "min_df", "ngrams", "tokens")}
        idf = np.asarray(self._fitted().idf_, np.float32)
        return parameters, {**packed(self.feature_names), "idf": idf}

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> TfIdf:
        """Return the object that `to_state` was asked of."""
        try:
            tfidf = cls(**parameters)
            words = unpacked(arrays)
            idf = np.array(arrays["idf"], np.float32)
            if idf.shape != (len(words),) or not np.isfinite(idf).all():
                raise ValueError("idf must be one finite number a word")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFolderError(f"the saved tf-idf is damaged ({error}).") from None
        vectorizer = tfidf._new_vectorizer(words)
        vectorizer.idf_ = idf
        tfidf._vectorizer = vectorizer
        return tfidf

    def _new_vectorizer(self, vocabulary: Sequence[str] | None = None) -> Any:
        return TfidfVectorizer(
            tokenizer=tokenizer(self.tokens),
            token_pattern=None,
            lowercase=False,  # the tokenizer does it
            ngram_range=(1, self.ngrams),
            min_df=self.min_df,
            max_features=self.max_features,
            sublinear_tf=True,
            dtype=np.float32,
            vocabulary=vocabulary,
        )

    def _fitted(self) -> Any:
        if not hasattr(self, "_vectorizer"):
            raise ParameterError("this TfIdf has not been fitted; call fit(texts) first.")
        return self._vectorizer


def _sorted_csr(rows: Any) -> Any:
    rows = csr_array(rows, dtype=np.float32)
    rows.sort_indices()
    return rows
