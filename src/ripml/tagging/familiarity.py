"""How familiar a text is: whether the model has seen texts like it, whatever labels it suggests.

Two things are measured on the words of a text, in their order. How many of its pairs of neighbouring words have two
known words: letters at random and other languages have few. And how much more often these pairs stand in training texts
than words as frequent would by chance: the mean of log((1 + r)/2), where r is the ratio of the two, at most 100. Words
in random order, and texts of familiar words about something else, have pairs that nobody wrote. Words and pairs in
fewer than two training texts count as unknown. Both are compared with texts of about the same length, because short
texts vary more: training texts, and a beginning of each, whose lengths are spread evenly on a logarithmic scale between
ten words and the whole text. Without these a question of ten words, to a store of long texts, would often be strange by
its length alone. Texts of fewer words are compared with beginnings of ten: letters at random must stay strange, and in
two words they look like a heading. A text without a known word is strange, however short.

The less familiar of the two decides: a text's familiarity is the share of training texts and their beginnings, each
left out, for which it is at most that. Texts like those are uniform in [0, 1], and about one in a hundred of them is
called unlike anything known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec, check_arrays
from ripml.text import TextFeatures

__all__ = ["UNFAMILIAR", "Familiarity"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNFAMILIAR = 0.01  # up to which a text is unlike anything known
_FEWEST = 99  # texts, of which 1/(n + 1) is the least familiarity
_TEXTS = 2000  # that are left out
_PAIR_TEXTS = 10_000  # whose pairs are counted …
_PAIR_LETTERS = 20_000_000  # … or fewer, of so many letters in all
_MOST = 100.0  # times as often as by chance; more says no more
_ALIKE = 400  # texts and beginnings of about the same length
_SHORTEST = 10  # words of beginnings
_GOLDEN = 0.6180339887498949  # whose multiples are spread evenly
# Chosen on left-out texts of three sets against training texts with words in random order, words of other letters, rare
# words, or some words replaced by others.
_KNOWN = 2  # few known words must be this many times as rare as weak ties to be as strange


SPECS = {
    "familiarity": ArraySpec("f", (3, "left-out texts"), finite=True),
    "familiarity_pairs": ArraySpec("iu", ("pairs",), least=0),
    "familiarity_counts": ArraySpec("iu", ("pairs",), least=1),
    "familiarity_texts": ArraySpec("iu", (2,), least=1),
}


class Familiarity:
    """The pairs of neighbouring words in training texts, and what such texts have of them when they are left out.

    `levels` (3, t) are the numbers of words of left-out texts and beginnings, rising, the strengths of the ties between
    their neighbouring words, and the shares of pairs of known words. `pairs` (2, p) are a·2³² + b for words in columns
    a and b, rising, and the numbers of texts that have them. `n_texts` are those of the fit and those whose pairs were
    counted.
    """

    def __init__(self, text: TextFeatures, levels: NDArray[np.float32], pairs: Ints, n_texts: tuple[int, int]) -> None:
        shares = text.shares
        assert shares is not None
        self.levels, self.pairs, self.n_texts = levels, pairs, n_texts
        counts = np.fromiter(shares.values(), np.float64, len(shares)) * (1 + n_texts[0]) - 1
        self._counts = np.round(counts).astype(np.int64)
        self._total = float(_rate(self._counts, n_texts[0]).sum())
        # The means and the deviations of both among texts that are as long as the i-th or, if none are, nearly.
        t, rows = levels.shape[1], levels.astype(np.float64)
        width = min(_ALIKE, t)
        sums = np.cumsum(np.pad(np.concatenate([rows[1:], rows[1:] ** 2]), ((0, 0), (1, 0))), axis=1)
        first = np.clip(np.arange(t + 1) - width // 2, 0, t - width)
        means = (sums[:, first + width] - sums[:, first]) / max(width, 1)
        self._mean, self._deviation = means[:2], np.sqrt(np.maximum(means[2:] - means[:2] ** 2, 1e-6))
        self._ties, self._known = np.sort(self._compared(rows), axis=1)
        self._least = np.sort(self._less(rows))

    @classmethod
    def fit(cls, text: TextFeatures, texts: Sequence[str]) -> Familiarity | None:
        """From texts that features were fitted on; None where these know no words, or are too few to tell."""
        if len(texts) < _FEWEST or text.shares is None:
            return None
        fitting = _PAIR_LETTERS * len(texts) // max(sum(map(len, texts)), 1)
        chosen = _spread(len(texts), min(_PAIR_TEXTS, max(fitting, _FEWEST)))
        words = _Words.of(text, [texts[i] for i in chosen])
        pairs = np.stack(words.pair_counts())
        bare = cls(text, np.zeros((3, 0), np.float32), pairs[:, pairs[1] > 1], (len(texts), len(chosen)))
        some = _spread(len(chosen), _TEXTS)
        words = _Words.of(text, [texts[i] for i in chosen[some]])
        rows = np.concatenate([bare._measured(part, True) for part in (words, words.beginnings())], axis=1)
        levels = rows[:, np.argsort(rows[0], kind="stable")].astype(np.float32)
        return cls(text, levels, bare.pairs, bare.n_texts)

    def of(self, text: TextFeatures, texts: Sequence[str]) -> list[float]:
        """The familiarity of texts, in (0, 1]."""
        words = _Words.of(text, texts)
        rows = self._measured(words).astype(np.float32).astype(np.float64)
        less = np.where(words.any_known(), np.searchsorted(self._least, self._less(rows), "right"), 0)
        return [round(float(share), 4) for share in (1 + less) / (1 + len(self._least))]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays."""
        return {
            "familiarity": self.levels,
            "familiarity_pairs": self.pairs[0],
            "familiarity_counts": self.pairs[1].astype(np.uint16),
            "familiarity_texts": np.array(self.n_texts),
        }

    @classmethod
    def from_arrays(cls, text: TextFeatures, arrays: Mapping[str, NDArray[Any]]) -> Familiarity | None:
        """The inverse; None where a folder has none, or that of an earlier version. ValueError for damaged ones."""
        if not SPECS.keys() <= arrays.keys() or text.shares is None:
            return None
        found = check_arrays(SPECS, arrays)
        levels, keys = found["familiarity"], found["familiarity_pairs"].astype(np.int64)
        if (np.diff(levels[0]) < 0).any() or levels.shape[1] < _FEWEST or (np.diff(keys) <= 0).any():
            raise ValueError("they must rise")
        pairs = np.stack([keys, found["familiarity_counts"].astype(np.int64)])
        n_texts, n_counted = found["familiarity_texts"].tolist()
        if len(keys) and not pairs[1].max() <= n_counted <= n_texts:
            raise ValueError("more texts have a pair than there are")
        return cls(text, levels, pairs, (n_texts, n_counted))

    def _less(self, rows: Floats) -> Ints:
        """How many left-out texts have ties as weak, or twice as many as have as few known words, if that is less."""
        ties, known = self._compared(rows)
        less = np.searchsorted(self._ties, ties, "right"), _KNOWN * np.searchsorted(self._known, known, "right")
        return np.asarray(np.minimum(*less), np.int64)

    def _compared(self, rows: Floats) -> Floats:
        """Ties, 0 without a known pair, and shares, (2, n), in deviations from those of texts as long."""
        place = np.searchsorted(self.levels[0], rows[0])
        compared = (rows[1:] - self._mean[:, place]) / self._deviation[:, place]
        compared[0, rows[2] <= 0] = 0.0
        return np.asarray(compared)

    def measured(self, text: TextFeatures, texts: Sequence[str], left_out: bool = False) -> Floats:
        """What `levels` has, of texts in their order; with `left_out`, of counted texts, each without itself."""
        return self._measured(_Words.of(text, texts), left_out)

    def _measured(self, words: _Words, left_out: bool = False) -> Floats:
        counts = np.append(self._counts, 0) - left_out
        known = np.append(counts[:-1] >= self._counts.min(initial=2), False)  # texts with a word that has a feature
        of_text, before, after = words.neighbours()
        both = known[before] & known[after]
        n = len(words.starts) - 1
        n_pairs, n_known = np.bincount(of_text, minlength=n), np.bincount(of_text[both], minlength=n)
        before, after = before[both], after[both]
        place = np.minimum(
            np.searchsorted(self.pairs[0], keys := _keys(before, after)), max(self.pairs.shape[1] - 1, 0)
        )
        together = np.zeros(len(keys), np.int64)
        if self.pairs.shape[1]:
            together = np.where(self.pairs[0][place] == keys, self.pairs[1][place] - left_out, 0)
        rates = _rate(np.maximum(counts, 1), self.n_texts[0] - left_out)
        chance = rates[before] * rates[after] / max(self._total, 1e-9)
        ratio = np.where(together > 1, _rate(np.maximum(together, 0), self.n_texts[1] - left_out) / chance, 0)
        tie = np.log((1 + np.minimum(ratio, _MOST)) / 2)
        lengths = np.diff(words.starts)
        # A text of one word has no pairs; its word is known or not.
        single = np.zeros(n)
        single[lengths > 0] = known[words.columns[words.starts[:-1][lengths > 0]]]
        share = np.where(n_pairs > 0, n_known / np.maximum(n_pairs, 1), single)
        strength = np.bincount(of_text[both], tie, minlength=n) / np.maximum(n_known, 1)
        return np.stack([lengths.astype(np.float64), np.where(n_known > 0, strength, 0.0), share])


class _Words:
    """The columns of the words of texts in their order, −1 for unknown ones, end to end."""

    def __init__(self, columns: Ints, starts: Ints) -> None:
        self.columns, self.starts = columns, starts

    @classmethod
    def of(cls, text: TextFeatures, texts: Sequence[str]) -> _Words:
        found = text.word_sequences(texts)
        assert found is not None
        return cls(*found)

    def neighbours(self) -> tuple[Ints, Ints, Ints]:
        """Of each pair of neighbouring words, its text and their columns."""
        of_word = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        same = of_word[1:] == of_word[:-1]
        return of_word[1:][same], self.columns[:-1][same], self.columns[1:][same]

    def any_known(self) -> NDArray[np.bool_]:
        """Whether each text has a known word."""
        known = np.concatenate([[0], np.cumsum(self.columns >= 0)])
        return np.asarray(known[self.starts[1:]] > known[self.starts[:-1]])

    def beginnings(self) -> _Words:
        """The first words of each text, ten or more; the logarithms of how many are spread evenly up to that of all."""
        lengths = np.diff(self.starts)
        spread = np.arange(len(lengths)) * _GOLDEN % 1
        kept = _SHORTEST * np.maximum(lengths / _SHORTEST, 1) ** spread
        kept = np.minimum(np.floor(kept).astype(np.int64), lengths)
        place = np.arange(len(self.columns)) - np.repeat(self.starts[:-1], lengths)
        return _Words(self.columns[place < np.repeat(kept, lengths)], np.concatenate([[0], np.cumsum(kept)]))

    def pair_counts(self) -> tuple[Ints, Ints]:
        """The keys of pairs of known words, rising, and how many texts have each."""
        of_text, before, after = self.neighbours()
        both = (before >= 0) & (after >= 0)
        keys, of_text = _keys(before[both], after[both]), of_text[both]
        order = np.lexsort((of_text, keys))
        keys, of_text = keys[order], of_text[order]
        new = np.append(True, (keys[1:] != keys[:-1]) | (of_text[1:] != of_text[:-1]))[: len(keys)]
        found, counts = np.unique(keys[new], return_counts=True)
        return found, counts.astype(np.int64)


def _keys(before: Ints, after: Ints) -> Ints:
    return (before << 32) + after


def _rate(counts: Ints, n: int) -> Floats:
    """How often a text has what so many of n texts have, if it occurs at random: −ln(1 − share)."""
    return np.asarray(-np.log1p(-counts / (n + 1)), np.float64)


def _spread(n: int, most: int) -> Ints:
    """At most so many of n places, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(np.int64))
