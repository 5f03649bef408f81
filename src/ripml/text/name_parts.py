"""`NameParts`: how alike names and texts are by what they are made of, their stems or their runs of letters.

Each name is a set of parts, and each part s has a weight v(s), which is the larger the fewer texts have it. Of a text
with some of these parts,

    cover     Σ v(s) over the parts of the name that the text has, of the Σ v(s) of all its parts
    likeness  the cosine of name and text, with the weight v(s)·(1 + log count) of a part in the text

Parts list the names that have them, so that a text is compared with those names only that share a part with it.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripml.base.compiled import loops

__all__ = ["ROUNDING", "NameParts", "Spelling", "ends_of"]

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]

ROUNDING: Final = 1e-9  # of a likeness; in another order, the same terms have another sum
_DIGITS: Final = 9  # to which likeness is compared
_RUN: Final = 4  # letters, with a blank before and after a word
_MOST_READ: Final = 20_000  # entries of lists of names; beyond these, the most common runs of a text are not read
_LEAST_WEIGHT: Final = 0.01  # of a run that all texts have
_CACHED_WORDS: Final = 1 << 17


class NameParts:
    """N names and the parts of each: those of name i are `parts[ends[i]]` to `parts[ends[i + 1]]`, all different.

    `weights` are those of the parts that are numbered from 0.

    >>> index = NameParts(np.array([0, 1, 1]), np.array([0, 2, 3]), np.array([1.0, 0.5]))
    >>> nothing, sums = np.empty(0, np.int64), np.zeros((2, 2))
    >>> _, names, alike = index.alike(np.array([0]), np.array([1]), 1.0, nothing, 2, 0.5, sums)
    >>> names.tolist(), alike.round(2).tolist()
    ([0], [[0.67, 0.89]])
    """

    def __init__(self, parts: Ints, ends: Ints, weights: Doubles) -> None:
        self.parts, self.ends = parts, ends
        self._holder_ends = np.searchsorted(np.sort(parts), np.arange(len(weights) + 1))
        self._present = np.ones(len(self), bool)
        self._holders = np.repeat(np.arange(len(self)), np.diff(ends))[np.argsort(parts, kind="stable")]
        self._weigh(weights)

    def _weigh(self, weights: Doubles) -> None:
        self.weights = weights
        starts, of_parts = self.ends[:-1], weights[self.parts]
        totals, squares = (np.add.reduceat(x, starts) if len(self) else np.zeros(0) for x in (of_parts, of_parts**2))
        # A name that was removed is like no text.
        self._totals = np.where(self._present, totals, np.inf)
        self._lengths = np.where(self._present, np.sqrt(squares), np.inf)

    def weighted(self, weights: Doubles) -> NameParts:
        """The same names with other weights."""
        other = copy.copy(self)
        other._weigh(weights)
        return other

    def only(self, present: NDArray[np.bool_]) -> NameParts:
        """The names of a mask; the others keep their numbers, and are like no text."""
        other = copy.copy(self)
        other._present = present
        other._weigh(self.weights)
        return other

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def n_names(self) -> int:
        """Names that were not removed."""
        return int(np.count_nonzero(self._present))

    def n_holders(self) -> Ints:
        """How many names have each part."""
        return np.bincount(self.parts[np.repeat(self._present, np.diff(self.ends))], minlength=len(self.weights))

    def alike(
        self, parts: Ints, counts: Ints, length: float, whole: Ints, n: int, share: float, sums: Doubles
    ) -> tuple[Doubles, Ints, Doubles]:
        """Cover and likeness of the names `whole`; the `n` best of the other names that have parts of a text, by
        likeness + `share`·cover, and all that are as good as the last of these but for rounding; and cover and likeness
        of these.

        The text has distinct `parts` with `counts`, and this `length`. `sums` (N, 2) are zeros, before and after:
        Σ v(s) and Σ v(s)²(1 + log count) over the parts of each name.
        """
        weights = self.weights[parts]
        added = np.stack([weights, weights**2 * (1 + np.log(counts)) / length], axis=1)
        compiled = loops()
        if compiled is not None:
            index = self._holder_ends, self._holders, self._totals, self._lengths
            alike, others, more = compiled.alike_names(parts, added, *index, whole, n, share, ROUNDING, sums)
            return alike, others, more
        n_held = self._holder_ends[parts + 1] - self._holder_ends[parts]
        start = np.repeat(self._holder_ends[parts] - np.cumsum(n_held) + n_held, n_held)
        names = self._holders[start + np.arange(len(start))]
        np.add.at(sums, names, np.repeat(added, n_held, axis=0))
        others = np.setdiff1d(names, whole)
        sizes = np.stack([self._totals, self._lengths], axis=1)
        alike, more = sums[whole] / sizes[whole], sums[others] / sizes[others]
        sums[names] = 0
        score = more[:, 1] + share * more[:, 0]
        best = np.arange(len(others) if n else 0)
        if len(best) > n:
            best = np.flatnonzero(score >= np.partition(score, len(best) - n)[len(best) - n] - ROUNDING)
        return alike, others[best], more[best]

    def likeness(self, parts: Ints, counts: Ints, length: float, names: Ints) -> Doubles:
        """The likeness of these names with such a text, whose parts are in ascending order."""
        if not len(names) or not len(parts):
            return np.zeros(len(names))
        lengths = self.ends[names + 1] - self.ends[names]
        starts = np.cumsum(lengths) - lengths
        of_names = self.parts[np.arange(lengths.sum()) + np.repeat(self.ends[names] - starts, lengths)]
        place = np.minimum(np.searchsorted(parts, of_names), len(parts) - 1)
        weights = (self.weights[parts] ** 2 * (1 + np.log(counts)) / length)[place]
        shared = np.add.reduceat(np.where(parts[place] == of_names, weights, 0.0), starts)
        return np.asarray(shared / self._lengths[names])


class SpelledText(NamedTuple):
    """The runs of letters of a text that names have as well, in ascending order, with their counts; and its length."""

    runs: Ints
    counts: Ints
    length: float


class Spelling:
    """Names by their runs of four letters, which words of one family, compounds and related languages share.

    "Wärmepumpen" has no word of the name "Pumpe", and "photovoltaische Anlage" none of "Photovoltaics"; but they have
    runs of letters in common. `names` are pairs of a language and the words of a name.

    >>> spelling = Spelling([("", ["photovoltaics"]), ("", ["pump"]), ("", ["tea"])])
    >>> text = spelling.text(["photovoltaische", "wärmepumpe"], [""])
    >>> names = spelling.most_alike(text, 2, np.arange(3), np.zeros((3, 2)))
    >>> names.tolist(), spelling.likeness(text, names).round(1).tolist()
    ([0, 1], [0.5, 0.1])
    """

    def __init__(self, names: Iterable[tuple[str, Sequence[str]]]) -> None:
        self._runs: dict[str, _Runs] = {}  # of each language
        n_runs, runs, ends = 0, list[int](), [0]
        for language, words in names:
            if language not in self._runs:
                self._runs[language] = _Runs()
            known, of_name = self._runs[language].known, set[int]()
            for word in words:
                for run in runs_of(word):
                    number = known.setdefault(run, n_runs)
                    n_runs += number == n_runs
                    of_name.add(number)
            runs += sorted(of_name)
            ends.append(len(runs))
        self._parts = NameParts(np.array(runs, np.int64), np.array(ends, np.int64), np.ones(n_runs))
        self._weigh(None)

    def only(self, present: NDArray[np.bool_], words: Mapping[str, float] | None) -> Spelling:
        """The names of a mask, which are weighted by `words`."""
        other = copy.copy(self)
        other._parts = self._parts.only(present)
        other._weigh(words)
        return other

    def _weigh(self, words: Mapping[str, float] | None) -> None:
        """Set the weights of runs by the share of texts that has each of `words`.

        A run that a share p of texts has weighs log(p)/log(least p), and 1 if no text has it. None for texts of which
        that is not known: then p is the share of names.
        """
        self._n_holders = self._parts.n_holders()
        if not words:
            n = max(self._parts.n_names, 2)
            weights = 1 - np.log(np.maximum(self._n_holders, 1)) / np.log(n)
        else:
            shares = dict[str, float]()
            for word, share in words.items():
                for run in set(runs_of(word)):
                    shares[run] = shares.get(run, 0.0) + share
            least = min(*words.values(), 0.5)
            weights = np.ones(len(self._n_holders))
            for runs in self._runs.values():
                for run in runs.known.keys() & shares.keys():
                    weights[runs.known[run]] = np.log(min(shares[run], 1)) / np.log(least)
        self._parts = self._parts.weighted(np.maximum(weights, _LEAST_WEIGHT))

    def text(self, words: Sequence[str], languages: Iterable[str]) -> SpelledText:
        """A text of these words as it is compared with the names in these languages."""
        counted = Counter(words)
        parts = [self._runs[language] for language in languages if language in self._runs]
        found = [numbers[word] for numbers in parts for word in counted]
        times = np.array([*counted.values()] * len(parts), np.int64)
        runs = np.fromiter(chain.from_iterable(found), np.int64)
        order = np.argsort(runs, kind="stable")
        runs, counts = runs[order], np.repeat(times, [*map(len, found)])[order]
        starts = np.flatnonzero(np.diff(runs, prepend=-1))
        total = np.add.reduceat(counts, starts) if len(starts) else counts
        n_runs = sum(max(len(word) + 3 - _RUN, 1) for word in counted)
        return SpelledText(runs[starts], total, float(np.sqrt(max(n_runs, 1))))

    def most_alike(self, text: SpelledText, n: int, order: Ints, sums: Doubles) -> Ints:
        """The `n` names that are most alike to a text, best first, and of equal ones those that are first in `order`
        (N,); see `NameParts.alike` for `sums`.

        The runs that fewest texts have are read first, as long as not too many names have them; the names found by
        these are compared by all.
        """
        rarest = np.lexsort((text.runs, -self._parts.weights[text.runs]))
        read = np.sort(rarest[np.cumsum(self._n_holders[text.runs[rarest]]) <= _MOST_READ])
        nothing = np.empty(0, np.int64)
        _, names, _ = self._parts.alike(text.runs[read], text.counts[read], text.length, nothing, n, 0.0, sums)
        likeness = self.likeness(text, names).round(_DIGITS)
        best = np.lexsort((order[names], -likeness))[:n]
        alike: Ints = names[best[likeness[best] > 0]]
        return alike

    def likeness(self, text: SpelledText, names: Ints) -> Doubles:
        """The likeness of these names and a text."""
        return self._parts.likeness(text.runs, text.counts, text.length, names)

    def resembles(self, word: str, name: int) -> bool:
        """Whether a name has half of the runs of a word, or the word has half of those of the name."""
        of_name = set(self._parts.parts[self._parts.ends[name] : self._parts.ends[name + 1]].tolist())
        n_shared = max((len(of_name.intersection(runs[word])) for runs in self._runs.values()), default=0)
        return 2 * n_shared >= min(len(of_name), len(set(runs_of(word))))


class _Runs(dict[str, list[int]]):
    """The numbers of the runs of words of one language, for words that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, int] = {}  # run ↦ number

    def __missing__(self, word: str) -> list[int]:
        numbers = [self.known[run] for run in runs_of(word) if run in self.known]
        if len(self) < _CACHED_WORDS:
            self[word] = numbers
        return numbers


def runs_of(word: str) -> list[str]:
    """The runs of letters of a word.

    >>> runs_of("pump"), runs_of("a")
    ([' pum', 'pump', 'ump '], [' a '])
    """
    padded = f" {word} "
    return [padded[i : i + _RUN] for i in range(max(len(padded) - _RUN, 0) + 1)]


def ends_of(lengths: Sequence[int]) -> Ints:
    """Where each of consecutive lists of these lengths starts, and the end of the last."""
    return np.cumsum([0, *lengths], dtype=np.int64)
