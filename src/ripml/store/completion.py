"""Label completion: the labels of a store whose names begin with a typed prefix, or contain a word that does."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ripml.labels.concepts import Concept, Concepts
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

    With concepts, labels have their names, synonyms and notation in one language in place of their ids, and concepts
    that the model does not know come after its labels.

    >>> vocabulary = Vocabulary.of(np.array(["green tea", "Tea", "coffee"], object))
    >>> [label.name for label in LabelCompletion(vocabulary).complete("te", 5, np.array([5, 3, 2]))]
    ['Tea', 'green tea']
    >>> concepts = Concepts.of([Concept("coffee", {"fr": "café"}), Concept("c9", {"fr": "thé vert"})])
    >>> completion = LabelCompletion(vocabulary, concepts, "fr")
    >>> [label.name for label in completion.complete("vert", 5, np.array([5, 3, 2]))]
    ['c9']
    """

    def __init__(self, vocabulary: Vocabulary, concepts: Concepts | None = None, language: str = "") -> None:
        self._vocabulary, self._concepts = vocabulary, concepts
        self._labels = [str(name) for name in vocabulary.names.tolist()]
        self._labels += [id for id in concepts or () if id not in vocabulary]
        whole, later = list[tuple[str, int]](), list[tuple[str, int]]()
        for column, label in enumerate(self._labels):
            concept = None if concepts is None else concepts.get(label)
            for text in [label] if concept is None else _texts(concept, language):
                name = text.casefold()[:_MAX_LENGTH]
                whole.append((name, column))
                starts = [i for i in range(1, len(name)) if name[i].isalnum() and not name[i - 1].isalnum()]
                later += [(name[i:], column) for i in starts]
        self._orders = [
            ([text for text, _ in order], np.array([column for _, column in order], np.int64))
            for order in (sorted(whole), sorted(later))
        ]

    def is_of(self, vocabulary: Vocabulary, concepts: Concepts | None) -> bool:
        """Whether this is the index of these labels."""
        return self._vocabulary is vocabulary and self._concepts is concepts

    def complete(self, prefix: str, n: int, counts: NDArray[np.int64]) -> list[LabelInfo]:
        """At most n labels that begin with `prefix`, then those with such a word; by `counts` (L,), largest first."""
        prefix = prefix.casefold()[:_MAX_LENGTH]
        n_known = len(counts)
        counts = np.concatenate([counts, np.zeros(len(self._labels) - n_known, counts.dtype)])
        columns: dict[int, None] = {}
        for texts, places in self._orders:
            matches = np.unique(places[bisect_left(texts, prefix) : bisect_left(texts, prefix + _LAST)])
            if len(matches) > 2 * n:  # sort only the n most frequent, with all that tie with the last of them
                least = -np.partition(-counts[matches], n - 1)[n - 1]
                matches = matches[counts[matches] >= least]
            columns |= dict.fromkeys(matches[np.argsort(-counts[matches], kind="stable")].tolist())
            if len(columns) >= n:
                break
        retired = self._vocabulary.retired
        return [
            LabelInfo(self._labels[c], int(counts[c]), c < n_known and bool(retired[c])) for c in islice(columns, n)
        ]


def _texts(concept: Concept, language: str) -> list[str]:
    """What a concept is found by."""
    notation = () if concept.notation is None else (concept.notation,)
    return [concept.name(language), *concept.synonyms.get(language, ()), *notation]
