"""Label completion: the labels of a store that begin with a typed prefix, or contain a word that does."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ripml.labels.vocabulary import Vocabulary

__all__ = ["LabelCompletion", "LabelInfo"]

_LAST = "\U0010ffff"  # sorts after every other character
_MAX_LENGTH = 100  # characters of a name that are indexed


@dataclass(frozen=True)
class LabelInfo:
    """A label, the number of documents that carry it, and whether it is retired, that is, no longer suggested."""

    name: str
    count: int
    retired: bool


class LabelCompletion:
    """The labels of a vocabulary in alphabetical order, once by their whole names and once by each later word.

    >>> vocabulary = Vocabulary.of(np.array(["green tea", "Tea", "coffee"], object))
    >>> [label.name for label in LabelCompletion(vocabulary).complete("te", 5, np.array([5, 3, 2]))]
    ['Tea', 'green tea']
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        names = [str(name).casefold()[:_MAX_LENGTH] for name in vocabulary.names.tolist()]
        whole, later = list[tuple[str, int]](), list[tuple[str, int]]()
        for column, name in enumerate(names):
            whole.append((name, column))
            starts = [i for i in range(1, len(name)) if name[i].isalnum() and not name[i - 1].isalnum()]
            later += [(name[i:], column) for i in starts]
        self._orders = [
            ([text for text, _ in order], np.array([column for _, column in order], np.int64))
            for order in (sorted(whole), sorted(later))
        ]

    def complete(self, prefix: str, n: int, counts: NDArray[np.int64]) -> list[LabelInfo]:
        """At most n labels that begin with `prefix`, then those with such a word; by `counts` (L,), largest first."""
        prefix = prefix.casefold()[:_MAX_LENGTH]
        columns: dict[int, None] = {}
        for texts, places in self._orders:
            matches = np.unique(places[bisect_left(texts, prefix) : bisect_left(texts, prefix + _LAST)])
            if len(matches) > 2 * n:  # sort only the n most frequent, with all that tie with the last of them
                least = -np.partition(-counts[matches], n - 1)[n - 1]
                matches = matches[counts[matches] >= least]
            columns |= dict.fromkeys(matches[np.argsort(-counts[matches], kind="stable")].tolist())
            if len(columns) >= n:
                break
        names, retired = self.vocabulary.names, self.vocabulary.retired
        return [LabelInfo(str(names[c]), int(counts[c]), bool(retired[c])) for c in islice(columns, n)]
