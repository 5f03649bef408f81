"""The labels of a store by the beginnings of their words, for completion while somebody types."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ripml.labels.vocabulary import Vocabulary
from ripml.model.multilabel import Multilabel

__all__ = ["LabelFinder", "LabelInfo"]

_LAST = "\U0010ffff"
_LONGEST = 100  # letters of a name that are looked at


@dataclass(frozen=True)
class LabelInfo:
    """A label, how many documents carry it, and whether it is retired, that is, not suggested any more."""

    name: str
    count: int
    retired: bool


class LabelFinder:
    """The labels of one vocabulary in the order of the alphabet: once as they are, and once from each later word on.

    >>> labels = Vocabulary.of(np.array(["green tea", "Tea", "coffee"], object))
    >>> [labels.names[place] for place in LabelFinder(labels).places("te", 5, np.array([5, 3, 2]))]
    ['Tea', 'green tea']
    """

    def __init__(self, labels: Vocabulary) -> None:
        self.labels = labels
        names = [str(name).casefold()[:_LONGEST] for name in labels.names.tolist()]
        whole, later = list[tuple[str, int]](), list[tuple[str, int]]()
        for place, name in enumerate(names):
            whole.append((name, place))
            later += [(name[i:], place) for i in range(1, len(name)) if name[i].isalnum() and not name[i - 1].isalnum()]
        orders = [sorted(pairs) for pairs in (whole, later)]
        self._orders = [([name for name, _ in o], np.array([place for _, place in o], np.int64)) for o in orders]

    def places(self, prefix: str, n: int, counts: NDArray[np.int64]) -> list[int]:
        """The columns of n labels that begin so, the most carried first; then of those with a word that does."""
        prefix = prefix.casefold()[:_LONGEST]
        found: dict[int, None] = {}
        for names, places in self._orders:
            near = np.unique(places[bisect_left(names, prefix) : bisect_left(names, prefix + _LAST)])
            if len(near) > 2 * n:  # the n largest, with all that are as large as the last of them
                least = -np.partition(-counts[near], n - 1)[n - 1]
                near = near[counts[near] >= least]
            found |= dict.fromkeys(near[np.argsort(-counts[near], kind="stable")].tolist())
            if len(found) >= n:
                break
        return list(islice(found, n))

    def infos(self, model: Multilabel, prefix: str, n: int) -> list[LabelInfo]:
        """The same with what a model of this vocabulary knows of them."""
        labels, counts = self.labels, model.frequency_
        return [
            LabelInfo(str(labels.names[place]), int(counts[place]), bool(labels.retired[place]))
            for place in self.places(prefix, n, counts)
        ]
