"""`TfIdf`: texts to sparse rows, x_w = (1 + ln tf_w) · (1 + ln((1 + n) / (1 + df_w))), each row of length 1.

The formula is that of scikit-learn's TfidfVectorizer with `sublinear_tf=True`; values differ in the last bit. Counting
words is faster here (about as fast with tokens="any"), and the result does not depend on the version of
scikit-learn. Besides words, groups of letters within them can be counted, which inflected, compound and misspelt words
share: with C the counts of words in texts, (n, V), and G those of groups in words, (V, groups), the groups of letters
of texts are the sparse product C·G, so each distinct word is cut only once. The state is JSON and plain arrays, so that
it is saved without pickle.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.arrays import GrowingArray
from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.text.base import TextFeatures
from ripml.text.counts import Frequencies, WordCounts
from ripml.text.tokens import clear_caches, has_spaces, packed, pieces, strings, tokenizer, unpacked

__all__ = ["TfIdf"]

# Chosen on held-out training rows of EUR-Lex: a group that more texts have says little and costs much, and weighting
# the groups half as much as words gave the best precision.
_GROUP_MAX_DF: Final = 0.1  # share of the texts that may have a group …
_GROUP_MAX_DF_FLOOR: Final = 10  # … but this number of texts always may
_GROUP_WEIGHT: Final = 0.5  # length of the groups' part of a row; the words' part has length 1
_FEW_TEXTS: Final = 20  # below this number, min_df="auto" is 1
_CACHED_WORDS: Final = 1 << 17
_HANGUL: Final = ("\uac00", "\ud7a3")  # syllables of several letters each


class _Counts(NamedTuple):
    """Counts of tokens in texts, the arrays of CSR (n, V), and the V tokens in order of appearance."""

    data: NDArray[np.float32]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    tokens: list[str]

    @property
    def matrix(self) -> Any:
        shape = len(self.indptr) - 1, len(self.tokens)
        return csr_array((self.data, self.indices, self.indptr), shape=shape)


@dataclass(kw_only=True, eq=False, repr=False)
class TfIdf(TextFeatures):
    """Turn texts into tf-idf rows.

    Parameters
    ----------
    max_features : int or None, default=100_000
        At most this many words, those with the most occurrences; None for all. Bounds d, and with it the memory of a
        regression on these features.
    min_df : int or "auto", default=2
        A word must occur in at least this many texts: one seen once cannot generalise. "auto" is 2, but 1 for
        fewer than 20 texts.
    ngrams : int, default=1
        Also count sequences of up to this many words.
    tokens : "words", "chars", "jieba" or "any", default="words"
        What counts as a word, see `ripml.text.tokens`: for Chinese, single characters, these and their pairs, or the
        words that jieba finds; "any" is for texts of all scripts, also in HTML.
    letters : int, default=0
        Also count the groups of this many successive letters within words, including their ends, that at most a tenth
        of the texts have; 0 for none. Groups of Korean have two syllables. At most half of `max_features`.

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

    kind: ClassVar[str] = "tfidf"  # in model folders

    max_features: int | None = 100_000
    min_df: int | str = 2
    ngrams: int = 1
    tokens: str = "words"
    letters: int = 0

    def __post_init__(self) -> None:
        for name in ("max_features", "min_df", "ngrams"):
            value = getattr(self, name)
            if (name, value) in (("max_features", None), ("min_df", "auto")):
                continue
            if type(value) is not int or value < 1:  # only Python's integers: the state is JSON
                raise ParameterError(f"`{name}` must be an integer ≥ 1; got {value!r}.")
        if type(self.letters) is not int or self.letters < 0 or self.letters == 1:
            raise ParameterError(f"`letters` must be 0 or an integer ≥ 2; got {self.letters!r}.")
        tokenizer(self.tokens)  # raises if the rule is unknown
        self._seen = _SeenWords()

    def fit(self, texts: Iterable[str]) -> TfIdf:
        """Learn words and their weights from the texts."""
        return self.fit_blocks([texts])

    def narrowed(self, most: int) -> TfIdf:
        """With at most so many words and groups of letters, the most frequent ones.

        >>> TfIdf(letters=4).narrowed(9000).max_features
        6000
        """
        words = max(2 * most // 3 if self.letters else most, 1)
        return replace(self, max_features=words if self.max_features is None else min(self.max_features, words))

    def learn(self, texts: list[str], vectors: Any = None) -> Any:
        """`fit_transform`."""
        return self.fit_transform(texts)

    def fit_transform(self, texts: Iterable[str]) -> Any:
        """Learn from the texts and return their rows: CSR float32, shape (n, d)."""
        found, counts = self._count(texts), WordCounts()
        self._add(found, counts)
        self.learn_counts(counts)
        return self._weigh(found)

    def fit_blocks(self, blocks: Iterable[Iterable[str]]) -> TfIdf:
        """Learn from blocks of texts, with one block and the counts of words in memory.

        >>> TfIdf(min_df=1).fit_blocks([["red apple"], ["green apple", ""]]).feature_names
        ['apple', 'green', 'red']
        """
        counts = WordCounts()
        for texts in blocks:
            self.add_texts(texts, counts)
        self.learn_counts(counts)
        return self

    def transform(self, texts: Iterable[str], vectors: Any = None) -> Any:
        """Return the rows of the texts: CSR float32, shape (n, d); all zero for a text without a known word."""
        self._check_fitted()
        return self._weigh(self._count(texts))

    def clear_caches(self) -> None:
        """Free what is kept of words that occurred, once very many texts were read."""
        self._seen = _SeenWords()
        _letter_groups.cache_clear()
        clear_caches()

    def spans(self, text: str) -> list[tuple[int, int, list[int]]]:
        """Return the pieces of a text that have features: their places, [start, end), and their columns.

        >>> TfIdf(min_df=1, tokens="any").fit(["red apple"]).spans("An apple!")
        [(3, 8, [0])]
        """
        if self.tokens != "any" or self.ngrams > 1:
            return []
        self._check_fitted()
        words, found = self._words, []
        for start, end, token in pieces(text):
            columns = [words[token]] if token in words else []
            columns += [len(words) + column for column in self._group_columns(token)]
            if columns:
                found.append((start, end, sorted(set(columns))))
        return found

    def without(self, removed: NDArray[np.bool_]) -> TfIdf:
        """Return a vectoriser with the same columns, of which the removed ones, a mask (d,), match no text.

        >>> vectorizer = TfIdf(min_df=1).fit(["red apple", "green apple"]).without(np.array([False, True, False]))
        >>> vectorizer.feature_names, vectorizer.transform(["red 1 green"]).nnz
        (['apple', ' 1', 'red'], 1)
        """
        # No token begins with a space, and n-grams are joined by one, so these names occur in no text.
        names = zip(self.feature_names, removed, strict=True)
        kept = [f" {column}" if is_removed else name for column, (name, is_removed) in enumerate(names)]
        parameters, arrays = self.to_state()
        return self.from_state(parameters, {**arrays, **packed(kept)})

    @property
    def feature_names(self) -> list[str]:
        """The d words in the order of the columns, then the groups of letters, with - where the word goes on."""
        self._check_fitted()
        return [*self._words, *self._groups]

    @property
    def shares(self) -> dict[str, float] | None:
        """The share of texts that each word was found in at the fit, nearly: (1 + df)/(1 + n)."""
        self._check_fitted()
        return dict(zip(self._words, np.exp(1 - self._idf.astype(np.float64)).tolist(), strict=False))

    def word_sequences(self, texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The columns of the words of texts in their order, −1 for unknown ones, end to end, and where texts start.

        >>> TfIdf(min_df=1).fit(["red apple", "green apple"]).word_sequences(["a red apple", "apple"])
        (array([-1,  2,  0,  0]), array([0, 3, 4]))
        """
        self._check_fitted()
        cut, column, starts = tokenizer(self.tokens), self._words.get, [0]
        columns = list[int]()
        for text in strings(texts):
            columns += [column(word, -1) for word in cut(text)]
            starts.append(len(columns))
        return np.array(columns, np.int64), np.array(starts, np.int64)

    @property
    def names(self) -> list[str]:
        """The words and groups of letters."""
        return self.feature_names

    @property
    def n_features(self) -> int:
        """The number of words and groups of letters."""
        self._check_fitted()
        return len(self._words) + len(self._groups)

    def recipe(self) -> dict[str, Any]:
        """The settings."""
        return asdict(self)

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (parameters for JSON, arrays), from which `from_state` makes the same object."""
        names = packed(self.feature_names)
        return asdict(self), {**names, "idf": self._idf, "n_words": np.array([len(self._words)])}

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> TfIdf:
        """Return the object whose `to_state` this is."""
        try:
            tfidf = cls(**parameters)
            names = unpacked(arrays)
            idf = np.array(arrays["idf"], np.float32)
            if idf.shape != (len(names),) or not np.isfinite(idf).all():
                raise ValueError("idf must be one finite number per word")
            # Older folders have no groups of letters, and no n_words.
            n_words = np.asarray(arrays.get("n_words", [len(names)]))
            if n_words.shape != (1,) or n_words.dtype.kind != "i" or not 0 <= n_words[0] <= len(names):
                raise ValueError("n_words must be the number of words")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ModelFolderError(f"the saved tf-idf is damaged ({error}).") from None
        tfidf._set_features(names[: int(n_words[0])], names[int(n_words[0]) :], idf)
        return tfidf

    def _check_fitted(self) -> None:
        if not hasattr(self, "_words"):
            raise ParameterError("this TfIdf has not been fitted; call fit(texts) first.")

    def _set_features(self, words: Sequence[str], groups: Sequence[str], idf: NDArray[np.float32]) -> None:
        self._words = {word: column for column, word in enumerate(words)}
        self._groups = {group: column for column, group in enumerate(groups)}
        self._idf = idf
        self._seen = _SeenWords()

    def _count(self, texts: Iterable[str]) -> _Counts:
        """Count the words and n-grams of each text."""
        cut, columns = tokenizer(self.tokens), dict[str, int]()
        indices, values, indptr = list[int](), list[int](), [0]
        for text in strings(texts):
            words = cut(text)
            counts = Counter(words)
            for size in range(2, min(self.ngrams, len(words)) + 1):
                counts.update([" ".join(words[i : i + size]) for i in range(len(words) - size + 1)])
            indices += [columns.setdefault(token, len(columns)) for token in counts]
            values += counts.values()
            indptr.append(len(indices))
        arrays = np.array(values, np.float32), np.array(indices, np.int32), np.array(indptr, np.int64)
        return _Counts(*arrays, list(columns))

    def add_texts(self, texts: Iterable[str], counts: WordCounts) -> None:
        """Add the words and groups of texts to counts, which `learn_counts` makes features of."""
        self._add(self._count(texts), counts)

    def _add(self, found: _Counts, counts: WordCounts) -> None:
        matrix = found.matrix
        counts.n_texts += matrix.shape[0]
        _add_columns(counts.words, matrix, found.tokens)
        if self.letters:
            columns = dict[str, int]()
            lists = [[columns.setdefault(g, len(columns)) for g in self._groups_of(t)] for t in found.tokens]
            _add_columns(counts.groups, matrix @ _indicator(lists, len(columns)), list(columns))

    def learn_counts(self, counts: WordCounts) -> None:
        """Choose the words and groups, and weigh them by their document frequencies."""
        n = counts.n_texts
        min_df = self.min_df if isinstance(self.min_df, int) else 1 if n < _FEW_TEXTS else 2
        if min_df > n:
            raise DataError(f"`min_df` = {min_df} is above the number of texts, {n}; lower it.")
        words = counts.words.most_frequent(self.max_features, min_df, n)
        if not words:
            raise DataError(f"no word occurs in at least min_df = {min_df} of the {n} texts.")
        half = None if self.max_features is None else self.max_features // 2
        groups = counts.groups.most_frequent(half, min_df, max(_GROUP_MAX_DF_FLOOR, int(_GROUP_MAX_DF * n)))
        idf = np.log((1 + n) / (1 + np.array([df for _, df in (*words, *groups)]))) + 1
        self._set_features([word for word, _ in words], [group for group, _ in groups], np.asarray(idf, np.float32))

    def _weigh(self, counts: _Counts) -> Any:
        """Return the tf-idf rows of counted texts.

        Rows are entries (row, column, value) until the end: SciPy's matrices would take longer to make than to fill.
        """
        n_words, n = len(self._words), len(counts.indptr) - 1
        d = n_words + len(self._groups)
        row = np.repeat(np.arange(n), np.diff(counts.indptr))
        if not self._groups:
            columns = np.array([self._words.get(token, -1) for token in counts.tokens], np.int64)
            return _csr(n, d, *self._weigh_words(d, row, columns[counts.indices], counts.data))
        seen = self._columns_of(counts.tokens)
        words = self._weigh_words(d, row, seen.words[counts.indices], counts.data)
        # The groups of each word of a text, as often as the text has the word; then their sums.
        length = seen.n_groups[counts.indices]
        place = np.repeat(seen.first_group[counts.indices] - np.cumsum(length) + length, length)
        group = n_words + seen.groups[place + np.arange(len(place))]
        key = np.repeat(row, length) * d + group
        order = np.argsort(key)
        key, count = key[order], np.repeat(counts.data, length)[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        sums = np.add.reduceat(count, first) if len(first) else count
        row, column = np.divmod(key[first], d)
        groups = _weighted(d, row, column, sums, self._idf)
        # Both parts of each row, one after the other.
        row = np.concatenate([words.row, groups.row])
        order = np.argsort(row, kind="stable")
        column = np.concatenate([words.column, groups.column])[order]
        value = np.concatenate([words.value, np.float32(_GROUP_WEIGHT) * groups.value])[order]
        row = row[order]
        return _csr(n, d, row, column, _normalised(row, value))

    def _weigh_words(self, d: int, row: NDArray[Any], column: NDArray[Any], count: NDArray[np.float32]) -> _Entries:
        known = column >= 0
        return _weighted(d, row[known], column[known], count[known], self._idf)

    def _columns_of(self, tokens: list[str]) -> _Columns:
        """Return the columns of words and of their groups, which are looked up once for each word."""
        seen = self._seen
        if len(seen.numbers) > _CACHED_WORDS:
            self._seen = seen = _SeenWords()
        new = [token for token in tokens if token not in seen.numbers]
        if new:
            seen.add(new, [self._words.get(token, -1) for token in new], list(map(self._group_columns, new)))
        return seen.columns(tokens)

    def _groups_of(self, token: str) -> tuple[str, ...]:
        return _letter_groups(token, self.letters) if self.letters else ()

    def _group_columns(self, token: str) -> list[int]:
        """Return the columns of the known groups of a word, counted from the first group."""
        return [self._groups[group] for group in self._groups_of(token) if group in self._groups]


class _Entries(NamedTuple):
    """Entries of a matrix, sorted by row and column."""

    row: NDArray[Any]
    column: NDArray[Any]
    value: NDArray[np.float32]


class _Columns(NamedTuple):
    """The column of each of V words, −1 if it has none, and its groups: `groups[first : first + n]`."""

    words: NDArray[np.int64]
    first_group: NDArray[np.int64]
    n_groups: NDArray[np.int64]
    groups: NDArray[np.int64]


class _SeenWords:
    """Words that occurred, with their columns; several threads may use it."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._table = GrowingArray(np.empty((0, 3), np.int64))  # of each word: its column, its first group, how many
        self._groups = GrowingArray(np.empty(0, np.int64))

    def add(self, words: list[str], columns: list[int], groups: list[list[int]]) -> None:
        """Add words, with their columns and the columns of their groups."""
        with self._lock:
            table, ends = np.empty((len(words), 3), np.int64), np.cumsum([0, *map(len, groups)])
            table[:, 0], table[:, 1], table[:, 2] = columns, self._groups.size + ends[:-1], np.diff(ends)
            first = self._table.size
            self._groups.append(np.fromiter(chain.from_iterable(groups), np.int64, int(ends[-1])))
            self._table.append(table)
            self.numbers.update(zip(words, range(first, first + len(words)), strict=True))  # last: now they are found

    def columns(self, words: list[str]) -> _Columns:
        """Return the columns of words that were added."""
        numbers = np.fromiter(map(self.numbers.__getitem__, words), np.int64, len(words))
        table = self._table.view[numbers]
        return _Columns(table[:, 0], table[:, 1], table[:, 2], self._groups.view)


@functools.lru_cache(maxsize=_CACHED_WORDS)
def _letter_groups(token: str, size: int) -> tuple[str, ...]:
    """Return the groups of letters of a word, whose ends count as a letter each; none for Chinese and n-grams."""
    if " " in token or not has_spaces(token):
        return ()
    if not token.isascii() and any(_HANGUL[0] <= c <= _HANGUL[1] for c in token):
        size = 2
    if len(token) < size - 1:  # the group would be the word itself
        return ()
    inner = [f"-{token[i : i + size]}-" for i in range(len(token) - size + 1)]
    return (f"{token[: size - 1]}-", *inner, f"-{token[len(token) - size + 1 :]}")


def _add_columns(frequencies: Frequencies, counts: Any, tokens: list[str]) -> None:
    """Add the counts, CSR (n, V), of V tokens in n texts."""
    df = np.bincount(counts.indices, minlength=len(tokens))
    frequencies.add(tokens, df, np.bincount(counts.indices, counts.data, len(tokens)))


def _indicator(columns: list[list[int]], width: int) -> Any:
    """Return CSR rows with ones in these columns."""
    indptr = np.cumsum([0, *map(len, columns)], dtype=np.int64)
    indices = np.fromiter(chain.from_iterable(columns), np.int32, int(indptr[-1]))
    return csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(columns), width))


def _weighted(
    d: int, row: NDArray[Any], column: NDArray[Any], count: NDArray[Any], idf: NDArray[np.float32]
) -> _Entries:
    """Return entries, sorted by row and column, with counts weighted, and rows scaled to length 1."""
    order = np.argsort(row * d + column)
    row, column = row[order], column[order]
    value = (1 + np.log(count[order])) * idf[column]
    return _Entries(row, column, _normalised(row, value))


def _normalised(row: NDArray[Any], value: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the values of entries, sorted by row, with the rows scaled to length 1."""
    first = np.flatnonzero(np.diff(row, prepend=-1))
    lengths = np.sqrt(np.add.reduceat(value.astype(np.float64) ** 2, first)) if len(first) else np.empty(0)
    return np.asarray(value / np.repeat(lengths, np.diff(first, append=len(row))), np.float32)


def _csr(n: int, d: int, row: NDArray[Any], column: NDArray[Any], value: NDArray[np.float32]) -> Any:
    """Return entries that are sorted by row and column as CSR (n, d)."""
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    index = np.int32 if len(row) < 2**31 else np.int64
    return csr_array((value, column.astype(index), indptr.astype(index)), shape=(n, d))
