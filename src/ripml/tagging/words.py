"""`LabelWords`: the names of the labels of a vocabulary, found in texts.

What is found in a text becomes `Evidence` about labels, which travels with the features of the text. Labels are named
by their ids here, and by the columns of a model there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ripml.decoding.evidence import TEXT_SIGNALS, Evidence
from ripml.labels.concepts import Concept, Concepts
from ripml.labels.vocabulary import Vocabulary
from ripml.text.matching import Name, NameMatcher

__all__ = ["LabelWords", "MatchedName"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MatchedName:
    """A name of a label that stands in a text, and the places of its words there: start and end of each."""

    name: str
    places: list[tuple[int, int]]


class LabelWords:
    """The names and synonyms of the concepts of a vocabulary, as they were when a model was fitted.

    A document must be the same when it is learnt and when it is forgotten, and what its names count for is a sum over
    documents. So the words of a model stay as they are until the next fit, like the words of its features.

    >>> from ripml.labels.concepts import Concept
    >>> words = LabelWords([Concept("c1", {"en": "Airport construction"}), Concept("c2")])
    >>> words.ids, words.matched("They construct an airport.", "c1")
    (['c1'], [MatchedName(name='Airport construction', places=[(5, 14), (18, 25)])])
    """

    def __init__(self, concepts: Iterable[Concept]) -> None:
        self._concepts = [concept for concept in concepts if concept.texts()]
        self.ids = [concept.id for concept in self._concepts]  # as labels are called now

    @classmethod
    def of(cls, concepts: Iterable[Concept]) -> LabelWords | None:
        """The words of these concepts; None if no concept has a name."""
        words = cls(concepts)
        return words if words.ids else None

    @cached_property
    def matcher(self) -> NameMatcher:
        """Finds the names; made when first needed."""
        return NameMatcher(
            Name(number, language, text, preferred)
            for number, concept in enumerate(self._concepts)
            for language, text, preferred in concept.texts()
        )

    def renamed(self, names: Mapping[str, str | None]) -> LabelWords:
        """The same words after labels were renamed, old ↦ new; None for a label that was removed."""
        if not any(id in names for id in self.ids):
            return self
        other = copy.copy(self)
        other.ids = [names.get(id, id) or "" for id in self.ids]
        return other

    def to_json_lines(self) -> bytes:
        """One concept per line, see `Concepts`."""
        named = {id: concept for id, concept in zip(self.ids, self._concepts, strict=True) if id}
        return Concepts.of(replace(concept, id=id) for id, concept in named.items()).to_json_lines()

    def evidence(self, texts: Sequence[str], vocabulary: Vocabulary) -> Evidence:
        """What the names in texts say about the labels of a model; ids that are not among its labels are left out."""
        matcher, found = self.matcher, self.matcher.find(texts)
        # One line for each match and label of that name.
        n_owners = matcher.n_labels[found.names]
        line = np.repeat(np.arange(len(found.names)), n_owners)
        owner = np.arange(len(line)) - np.repeat(np.cumsum(n_owners) - n_owners, n_owners)
        owner += matcher.label_ends[found.names][line]
        label = self._columns(matcher.labels[owner], vocabulary)
        line, owner, label = (array[label >= 0] for array in (line, owner, label))
        # A label may have several of its names in a text: what is known of them becomes one line of signals.
        key = found.rows[line] * len(vocabulary) + label
        order = np.argsort(key, kind="stable")
        line, owner, key = line[order], owner[order], key[order]
        starts = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)
        row, label = np.divmod(key[starts], max(len(vocabulary), 1))
        name = found.names[line]
        columns = {
            "count": (np.add, found.count[line]),
            "first": (np.minimum, found.first[line]),
            "last": (np.maximum, found.last[line]),
            "near": (np.maximum, matcher.n_words[name] / np.maximum(found.width[line], matcher.n_words[name])),
            "n_words": (np.maximum, matcher.n_words[name]),
            "shared": (np.minimum, matcher.n_labels[name]),
            "preferred": (np.maximum, matcher.preferred[owner].astype(np.int64)),
        }
        joined = {
            name: ufunc.reduceat(values, starts) if len(starts) else values for name, (ufunc, values) in columns.items()
        }
        length = np.maximum(found.lengths[row], 1)
        joined["early"] = 1 - joined["first"] / length
        joined["spread"] = (joined["last"] - joined["first"]) / length
        signals = np.stack([joined[name] for name in TEXT_SIGNALS], axis=1).astype(np.float32)
        return Evidence(np.searchsorted(row, np.arange(len(texts) + 1)), label, signals)

    def _columns(self, numbers: Ints, vocabulary: Vocabulary) -> Ints:
        """The column of each concept of these numbers, −1 for one that is not a label."""
        used, place = np.unique(numbers, return_inverse=True)
        columns = [
            vocabulary.column_of(id) if (id := self.ids[number]) in vocabulary else -1 for number in used.tolist()
        ]
        return np.array(columns, np.int64)[place]

    def matched(self, text: str, label: str) -> list[MatchedName]:
        """The names of a label that stand in a text, with their places."""
        found = list[MatchedName]()
        texts = self._concepts[self.ids.index(label)].texts() if label in self.ids else []
        for language, name, preferred in texts:
            places = NameMatcher([Name(0, language, name, preferred)]).places_of_label(text, 0)
            if places:
                found.append(MatchedName(name, places))
        return found
