"""`TfIdf`: texts to sparse rows, x_w = (1 + ln tf_w) · (1 + ln((1 + n) / (1 + df_w))), each row of length 1.

The formula and its names are those of scikit-learn. Beside words it can count groups of letters within them, which
inflected, compound and misspelt words share: with C the occurrences of words in texts, (n, V), and G those of groups in
words, (V, groups), the groups of letters of texts are the sparse product C·G, so that no text is gone through twice.
The state is JSON and plain arrays, so that it is saved without pickle.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.text.pieces import is_apart, pieces
from ripml.text.words import packed, strings, tokenizer, unpacked

__all__ = ["TfIdf"]

# Chosen on training rows left out of EUR-Lex: a group that more texts have says little and costs much, and half the
# length of words gave the best precision.
_COMMON: Final = 0.1  # share of the texts that a group may be in
_FEW: Final = 10  # texts that it always may be in
_LENGTH: Final = 0.5  # of the groups' part of a row, that of words being 1
_FEW_TEXTS: Final = 20
_REMEMBERED: Final = 1 << 17  # words
_HANGUL: Final = ("\uac00", "\ud7a3")  # syllables of several letters each


class _Counted(NamedTuple):
    """Occurrences in texts, CSR (n, V), of tokens, in the order in which they were met."""

    counts: Any
    tokens: list[str]


class TfIdf:
    """Turn texts into tf-idf rows.

    Parameters
    ----------
    max_features : int or None, default=100_000
        At most this many words, those with the most occurrences; None for all. Bounds d, and with it the memory of a
        regression on these features.
    min_df : int or "auto", default=2
        A word must occur in at least this many texts: one seen once cannot generalise. "auto" is 2, but 1 of
        fewer than 20 texts.
    ngrams : int, default=1
        Also take up to this many successive words as one.
    tokens : "words", "chars", "jieba" or "any", default="words"
        What counts as a word, see `ripml.text.words`: for Chinese, single characters, these and their pairs, or the
        words that jieba finds; "any" is for texts of all scripts, also in HTML.
    letters : int, default=0
        Also count the groups of so many successive letters within words, their ends included, which at most a tenth of
        the texts have; 0 for none. Of Korean syllables two count as a group. At most half of `max_features`.

    Examples
    --------
    >>> vectorizer = TfIdf(min_df=1)
    >>> vectorizer.fit_transform(["red apple", "green apple", ""]).shape
    (3, 3)
    >>> vectorizer.feature_names
    ['apple', 'green', 'red']
    >>> vectorizer.transform(["blue plum"]).nnz
    0
    >>> TfIdf(min_df=1, letters=4).fit(["green"]).feature_names
    ['green', '-een', '-gree-'...'-reen-', 'gre-']
    """

    def __init__(
        self,
        *,
        max_features: int | None = 100_000,
        min_df: int | str = 2,
        ngrams: int = 1,
        tokens: str = "words",
        letters: int = 0,
    ) -> None:
        for name, value in (("max_features", max_features), ("min_df", min_df), ("ngrams", ngrams)):
            if (name, value) in (("max_features", None), ("min_df", "auto")):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ParameterError(f"`{name}` must be an integer ≥ 1; got {value!r}.")
        if not isinstance(letters, int) or isinstance(letters, bool) or letters < 0 or letters == 1:
            raise ParameterError(f"`letters` must be 0 or an integer ≥ 2; got {letters!r}.")
        tokenizer(tokens)
        self.max_features = max_features
        self.min_df = min_df
        self.ngrams = ngrams
        self.tokens = tokens
        self.letters = letters
        self._columns: dict[str, list[int]] = {}  # of groups, by the word

    def fit(self, texts: Iterable[str]) -> TfIdf:
        """Learn words and their weights from the texts."""
        return self.fit_blocks([texts])

    def fit_transform(self, texts: Iterable[str]) -> Any:
        """Learn from the texts and return their rows: CSR float32, shape (n, d)."""
        counted = self._counted(texts)
        self._learn([counted])
        return self._rows(counted)

    def fit_blocks(self, blocks: Iterable[Iterable[str]]) -> TfIdf:
        """Learn from blocks of texts, of which one is in memory at a time; what is kept are counts of words.

        >>> TfIdf(min_df=1).fit_blocks([["red apple"], ["green apple", ""]]).feature_names
        ['apple', 'green', 'red']
        """
        self._learn(map(self._counted, blocks))
        return self

    def transform(self, texts: Iterable[str]) -> Any:
        """Return the rows of the texts: CSR float32, shape (n, d); all zero where no word is known."""
        self._fitted()
        return self._rows(self._counted(texts))

    def spans(self, text: str) -> list[tuple[int, int, list[int]]]:
        """The pieces of a text that have features: their places, [start, end), and the columns of these.

        >>> TfIdf(min_df=1, tokens="any").fit(["red apple"]).spans("An apple!")
        [(3, 8, [0])]
        """
        if self.tokens != "any" or self.ngrams > 1:
            return []
        words, found = self._fitted()[0], []
        for piece in pieces(text):
            columns = [words[token] for token in (piece.token,) if token in words]
            columns += [len(words) + column for column in self._known_groups(piece.token)]
            if columns:
                found.append((piece.start, piece.end, sorted(set(columns))))
        return found

    def without(self, gone: NDArray[np.bool_]) -> TfIdf:
        """The same columns, but those of these words (d,) have in place of the word what no text can contain.

        >>> vectorizer = TfIdf(min_df=1).fit(["red apple", "green apple"]).without(np.array([False, True, False]))
        >>> vectorizer.feature_names, vectorizer.transform(["red 1 green"]).nnz
        (['apple', ' 1', 'red'], 1)
        """
        # No token begins with a space, nor do several that are joined by one.
        names = [f" {i}" if out else name for i, (name, out) in enumerate(zip(self.feature_names, gone, strict=True))]
        parameters, arrays = self.to_state()
        return self.from_state(parameters, {**arrays, **packed(names)})

    @property
    def feature_names(self) -> list[str]:
        """The d words, in the order of the columns, and then the groups of letters, with - where the word goes on."""
        return [*self._fitted()[0], *self._groups]

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (parameters for JSON, arrays); `from_state` makes the same object of them."""
        parameters = {name: getattr(self, name) for name in ("max_features", "min_df", "ngrams", "tokens", "letters")}
        words, idf = self._fitted()
        return parameters, {**packed(self.feature_names), "idf": idf, "n_words": np.array([len(words)])}

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> TfIdf:
        """Return the object that `to_state` was asked of."""
        try:
            tfidf = cls(**parameters)
            names = unpacked(arrays)
            idf = np.array(arrays["idf"], np.float32)
            if idf.shape != (len(names),) or not np.isfinite(idf).all():
                raise ValueError("idf must be one finite number a word")
            # Folders without groups of letters, which are older, do not say that there are none.
            n_words = np.asarray(arrays.get("n_words", [len(names)]))
            if n_words.shape != (1,) or n_words.dtype.kind != "i" or not 0 <= n_words[0] <= len(names):
                raise ValueError("n_words must be their number")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFolderError(f"the saved tf-idf is damaged ({error}).") from None
        tfidf._keep(names[: int(n_words[0])], names[int(n_words[0]) :], idf)
        return tfidf

    # ------------------------------------------------------------------------------------------------------------ how

    def _counted(self, texts: Iterable[str]) -> _Counted:
        cut, numbers = tokenizer(self.tokens), dict[str, int]()
        columns, values, ends = list[int](), list[int](), [0]
        for text in strings(texts):
            words = cut(text)
            counts = Counter(words)
            for size in range(2, min(self.ngrams, len(words)) + 1):
                counts.update([" ".join(words[i : i + size]) for i in range(len(words) - size + 1)])
            columns += [numbers.setdefault(token, len(numbers)) for token in counts]
            values += counts.values()
            ends.append(len(columns))
        arrays = np.array(values, np.float32), np.array(columns, np.int32), np.array(ends, np.int64)
        return _Counted(csr_array(arrays, shape=(len(ends) - 1, len(numbers))), list(numbers))

    def _letters_of(self, token: str) -> tuple[str, ...]:
        return _groups_of(token, self.letters) if self.letters else ()

    def _grouped(self, counted: _Counted) -> tuple[Any, dict[str, int]]:
        """C·G, CSR (n, groups), of all groups there are, and their numbers."""
        numbers = dict[str, int]()
        columns = [[numbers.setdefault(group, len(numbers)) for group in self._letters_of(t)] for t in counted.tokens]
        return counted.counts @ _ones(columns, len(numbers)), numbers

    def _known_groups(self, token: str) -> list[int]:
        """The columns of the groups of a word that have one, behind those of words; remembered, as words come again."""
        found = self._columns.get(token)
        if found is None:
            found = [self._groups[group] for group in self._letters_of(token) if group in self._groups]
            if len(self._columns) >= _REMEMBERED:
                self._columns = {}
            self._columns[token] = found
        return found

    def _learn(self, blocks: Iterable[_Counted]) -> None:
        n, words, groups = 0, _Statistics(), _Statistics()
        for counted in blocks:
            n += counted.counts.shape[0]
            words.add(counted.counts, counted.tokens)
            if self.letters:
                groups.add(*self._grouped(counted))
        least = self.min_df if isinstance(self.min_df, int) else 1 if n < _FEW_TEXTS else 2
        if least > n:
            raise DataError(f"`min_df` = {least} is above the number of texts, {n}; lower it.")
        kept = words.most(self.max_features, least, n)
        if not kept:
            raise DataError(f"no word occurs in at least min_df = {least} of the {n} texts.")
        half = None if self.max_features is None else self.max_features // 2
        parts = groups.most(half, least, max(_FEW, int(_COMMON * n)))
        documents = [words.documents[word] for word in kept] + [groups.documents[part] for part in parts]
        idf = np.log((1 + n) / (1 + np.array(documents))) + 1
        self._keep(kept, parts, np.asarray(idf, np.float32))

    def _keep(self, words: Sequence[str], groups: Sequence[str], idf: NDArray[np.float32]) -> None:
        self._words = {word: column for column, word in enumerate(words)}
        self._groups = {group: column for column, group in enumerate(groups)}
        self._idf = idf
        self._columns = {}

    def _rows(self, counted: _Counted) -> Any:
        """Weighted rows of texts."""
        counts, d = counted.counts, len(self._words)
        columns = np.array([self._words.get(token, -1) for token in counted.tokens], np.int32)
        known = columns[counts.indices] >= 0
        ends = np.concatenate([[0], np.cumsum(known)])[counts.indptr]
        rows = csr_array((counts.data[known], columns[counts.indices[known]], ends), shape=(counts.shape[0], d))
        rows = _weighted(rows, self._idf[:d])
        if self._groups:
            grouped = counts @ _ones(list(map(self._known_groups, counted.tokens)), len(self._groups))
            groups = _weighted(grouped, self._idf[d:])
            rows = _unit(csr_array(hstack([rows, _LENGTH * groups], format="csr", dtype=np.float32)))
        return rows

    def _fitted(self) -> tuple[dict[str, int], NDArray[np.float32]]:
        if not hasattr(self, "_words"):
            raise ParameterError("this TfIdf has not been fitted; call fit(texts) first.")
        return self._words, self._idf


@functools.lru_cache(maxsize=1 << 17)
def _groups_of(token: str, size: int) -> tuple[str, ...]:
    """The groups of letters of a word between its ends, of which each counts as a letter; none of Chinese."""
    if " " in token or not is_apart(token):
        return ()
    if not token.isascii() and any(_HANGUL[0] <= c <= _HANGUL[1] for c in token):
        size = 2
    if len(token) < size - 1:  # it would be the word itself
        return ()
    inner = [f"-{token[i : i + size]}-" for i in range(len(token) - size + 1)]
    return (f"{token[: size - 1]}-", *inner, f"-{token[len(token) - size + 1 :]}")


class _Statistics:
    """How often tokens occur, and in how many texts."""

    def __init__(self) -> None:
        self.documents, self._occurrences = Counter[str](), Counter[str]()

    def add(self, counts: Any, tokens: Iterable[str]) -> None:
        """Count these texts, CSR (n, V), too."""
        n_tokens = counts.shape[1]
        documents = np.bincount(counts.indices, minlength=n_tokens).tolist()
        occurrences = np.bincount(counts.indices, counts.data, n_tokens).tolist()
        tokens = list(tokens)
        self.documents.update(dict(zip(tokens, documents, strict=True)))
        self._occurrences.update(dict(zip(tokens, occurrences, strict=True)))

    def most(self, n: int | None, least: int, most: int) -> list[str]:
        """The n tokens of the most occurrences that at least and at most so many texts have, in order."""
        kept = sorted(token for token, count in self.documents.items() if least <= count <= most)
        if n is not None and len(kept) > n:
            kept = sorted(sorted(kept, key=lambda token: -self._occurrences[token])[:n])
        return kept


def _ones(columns: list[list[int]], width: int) -> Any:
    """Rows with ones in these columns, CSR."""
    ends = np.cumsum([0, *map(len, columns)], dtype=np.int64)
    places = np.fromiter(chain.from_iterable(columns), np.int32, int(ends[-1]))
    return csr_array((np.ones(len(places), np.float32), places, ends), shape=(len(columns), width))


def _weighted(counts: Any, idf: NDArray[np.float32]) -> Any:
    """Rows of length 1, with sorted columns."""
    counts.sort_indices()
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    return _unit(counts)


def _unit(rows: Any) -> Any:
    lengths = np.sqrt(np.add.reduceat(np.append(rows.data, 0) ** 2, rows.indptr[:-1])) if rows.shape[0] else np.empty(0)
    lengths[np.diff(rows.indptr) == 0] = 1
    rows.data = (rows.data / np.repeat(lengths, np.diff(rows.indptr))).astype(np.float32)
    return rows
