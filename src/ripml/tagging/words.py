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
from scipy.sparse import csr_array

from ripml.decoding.evidence import TEXT_SIGNALS, Evidence
from ripml.labels.concepts import Concept, Concepts
from ripml.labels.vocabulary import Vocabulary
from ripml.model.model import Model
from ripml.text.matching import Name, NameMatcher

__all__ = ["LabelWords", "MatchedName"]

Ints = NDArray[np.int64]

_PARTLY = 30  # names of which a text has some words that are evidence, at most


@dataclass(frozen=True)
class MatchedName:
    """A name of a label that stands in a text, and the places of its words there: start and end of each."""

    name: str
    places: list[tuple[int, int]]


class _Names:
    """The names and synonyms of concepts, and the matcher that finds them.

    `words` are those of features, each with the share of documents that have it; None if they are not known.
    `other_languages` are those of names that are found by another matcher.
    """

    def __init__(
        self, concepts: Iterable[Concept], words: Mapping[str, float] | None, other_languages: Iterable[str] = ()
    ) -> None:
        self.concepts = [concept for concept in concepts if concept.texts()]
        self.ids = [concept.id for concept in self.concepts]  # as labels are called now
        self.words = words
        self.other_languages = other_languages

    @cached_property
    def languages(self) -> set[str]:
        """The languages of the names."""
        return {language for concept in self.concepts for language in (*concept.names, *concept.synonyms)}

    def with_words(self, words: Mapping[str, float] | None) -> _Names:
        """The same names with other words of features."""
        if words == self.words:
            return self
        other = copy.copy(self)
        other.words = words
        other.__dict__.pop("matcher", None)
        return other

    def renamed(self, names: Mapping[str, str | None]) -> _Names:
        """The same after labels were renamed, old ↦ new; None for a label that was removed, with its names."""
        other = copy.copy(self)
        other.ids = [names.get(id, id) or "" for id in self.ids]
        if other.ids.count("") != self.ids.count(""):
            other.__dict__.pop("matcher", None)
        return other

    @cached_property
    def _unweighted(self) -> NameMatcher:
        names = (
            Name(number, language, text, preferred)
            for number, concept in enumerate(self.concepts)
            for language, text, preferred in concept.texts()
        )
        return NameMatcher(names, self.other_languages)

    @cached_property
    def matcher(self) -> NameMatcher:
        """Finds the names; made when first needed."""
        return self._unweighted.without([number for number, id in enumerate(self.ids) if not id], self.words)

    def expected_shares(self) -> NDArray[np.float64] | None:
        """The share of texts that has a name of each concept, (n,); see `NameMatcher.expected_shares`."""
        if self.words is None:
            return None
        matcher = self.matcher
        others = np.ones(len(self.ids))
        name = np.repeat(np.arange(len(matcher)), np.diff(matcher.label_ends))
        np.multiply.at(others, matcher.labels, 1 - matcher.expected_shares(self.words)[name])
        return 1 - others

    def evidence(self, texts: Sequence[str], vocabulary: Vocabulary) -> tuple[Evidence, Ints]:
        """What the names in texts say about the labels of a model, and the number of the concept of each pair.

        Concepts that are not among the labels are left out.
        """
        matcher, found = self.matcher, self.matcher.find(texts, _PARTLY)
        # One line for each match and label of that name.
        n_owners = np.diff(matcher.label_ends)[found.names]
        line = np.repeat(np.arange(len(found.names)), n_owners)
        owner = np.arange(len(line)) - np.repeat(np.cumsum(n_owners) - n_owners, n_owners)
        owner += matcher.label_ends[found.names][line]
        label = self._columns_of(matcher.labels[owner], vocabulary)
        line, owner, label = (array[label >= 0] for array in (line, owner, label))
        # A label may have several of its names in a text: what is known of them becomes one line of signals. Where
        # there is no whole one among them, that is what is known of the one that comes first.
        key = found.rows[line] * len(vocabulary) + label
        order = np.argsort(key, kind="stable")
        line, owner, key = line[order], owner[order], key[order]
        kept = (found.count[line] > 0) | np.append(True, key[1:] != key[:-1])[: len(key)]
        line, owner, key = line[kept], owner[kept], key[kept]
        starts = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)
        row, label = np.divmod(key[starts], max(len(vocabulary), 1))
        name = found.names[line]
        columns = {
            "count": (np.add, found.count[line]),
            "first": (np.minimum, found.first[line]),
            "last": (np.maximum, found.last[line]),
            "near": (
                np.maximum,
                (found.count[line] > 0) * matcher.n_words[name] / np.maximum(found.width[line], matcher.n_words[name]),
            ),
            "n_words": (np.maximum, matcher.n_words[name]),
            "shared": (np.minimum, matcher.n_labels[name]),
            "preferred": (np.maximum, matcher.preferred[owner].astype(np.int64)),
            "cover": (np.maximum, found.cover[line]),
            "likeness": (np.maximum, found.likeness[line]),
            "spelling": (np.maximum, found.spelling[line]),
        }
        joined = {
            name: ufunc.reduceat(values, starts) if len(starts) else values for name, (ufunc, values) in columns.items()
        }
        length = np.maximum(found.lengths[row], 1)
        joined["early"] = np.where(joined["count"] > 0, 1 - joined["first"] / length, 0)
        joined["spread"] = (joined["last"] - joined["first"]) / length
        joined["relatives"] = np.zeros(len(row))  # see `LabelWords`
        signals = np.stack([joined[name] for name in TEXT_SIGNALS], axis=1).astype(np.float32)
        evidence = Evidence(np.searchsorted(row, np.arange(len(texts) + 1)), label, signals)
        return evidence, matcher.labels[owner[starts]]

    def _columns_of(self, numbers: Ints, vocabulary: Vocabulary) -> Ints:
        """The column of each concept of these numbers, −1 for one that is not a label."""
        used, place = np.unique(numbers, return_inverse=True)
        columns = [
            vocabulary.column_of(id) if (id := self.ids[number]) in vocabulary else -1 for number in used.tolist()
        ]
        return np.array(columns, np.int64)[place]


class LabelWords:
    """The names and synonyms of concepts: those of the last fit, which are counted, and those of the vocabulary now.

    How often a name is right is a sum over documents, and a document must count the same when it is learnt and when it
    is forgotten. So the names that are counted stay as they are until the next fit, like the words of features, which
    say how rare the words of names are in documents. Answers
    go by the present vocabulary. A concept that is new, or has other names than at the fit, is found by a matcher of
    its own, with the number of documents that have such a name estimated from the words of features. A concept that
    has left the vocabulary is found as long as documents carry it.

    >>> from ripml.labels.concepts import Concept
    >>> words = LabelWords([Concept("c1", {"en": "Airport construction"}), Concept("c2")])
    >>> words.ids, words.matched("They construct an airport.", "c1")
    (['c1'], [MatchedName(name='Airport construction', places=[(5, 14), (18, 25)])])
    >>> words = words.with_vocabulary(Concepts.of([Concept("c2", {"en": "red tea"})]), {"red": 0.5, "tea": 0.1})
    >>> words.later_ids, words.matched("Tea, and a red one", "c2")[0].name
    (['c2'], 'red tea')
    """

    def __init__(
        self, concepts: Iterable[Concept], words: Mapping[str, float] | None = None, languages: Iterable[str] = ()
    ) -> None:
        self._counted = _Names(concepts, words, languages)
        self._later: _Names | None = None
        self._shares: NDArray[np.float64] | None = None  # of documents that have a name of each later concept
        self._replaced = self._gone = np.zeros(len(self.ids), bool)  # of the counted concepts
        self._relatives = _relatives(self._counted.concepts)

    @classmethod
    def of(
        cls, concepts: Iterable[Concept], words: Mapping[str, float] | None, languages: Iterable[str] = ()
    ) -> LabelWords | None:
        """The words of these concepts, see `with_vocabulary`; None if no concept has a name.

        `languages` are those of all names at the fit, also of concepts that were removed since.
        """
        found = cls(concepts, words, languages)
        return found if found.ids else None

    @property
    def ids(self) -> list[str]:
        """The labels whose names are counted."""
        return self._counted.ids

    @property
    def languages(self) -> list[str]:
        """The languages of the names at the fit: a text is in one of these, or the language is not known."""
        return sorted({*self._counted.languages, *self._counted.other_languages})

    @property
    def later_ids(self) -> list[str]:
        """The labels whose names came after the last fit."""
        return [] if self._later is None else self._later.ids

    # --------------------------------------------------------------------------------------------------------- changing

    def renamed(self, names: Mapping[str, str | None]) -> LabelWords:
        """The same words after labels were renamed, old ↦ new; None for a label that was removed.

        `with_vocabulary` has to follow.
        """
        if not any(id in names for id in self.ids):
            return self
        other = copy.copy(self)
        other._counted = self._counted.renamed(names)
        return other

    def with_vocabulary(self, concepts: Concepts | None, words: Mapping[str, float] | None) -> LabelWords:
        """With this vocabulary for answers.

        `words` are those of features, each with the share of documents that have it; None if they are not known.
        """
        concepts = Concepts.of([]) if concepts is None else concepts
        counted = dict(zip(self.ids, self._counted.concepts, strict=True))
        later = _Names(
            (concept for id, concept in concepts.items() if id not in counted or not _same_names(concept, counted[id])),
            words,
            self.languages,
        )
        replaced, before = set(later.ids), self._later
        other = copy.copy(self)
        other._counted = self._counted.with_words(words)
        if before is not None and before.ids == later.ids and all(map(_same_names, before.concepts, later.concepts)):
            later = before.with_words(words)  # with its matcher
        other._later, other._shares = (later, later.expected_shares()) if later.ids else (None, None)
        other._replaced = np.array([id in replaced for id in self.ids], bool)
        other._gone = np.array([id not in concepts for id in self.ids], bool)
        other._relatives = _relatives(concepts.values())
        return other

    # --------------------------------------------------------------------------------------------------------- evidence

    def training_evidence(self, texts: Sequence[str], vocabulary: Vocabulary) -> Evidence:
        """What the counted names in texts say about the labels of a model: what is learnt and forgotten."""
        return self._with_relatives(self._counted.evidence(texts, vocabulary)[0], vocabulary)

    def evidence(self, texts: Sequence[str], model: Model) -> Evidence:
        """What the names in texts say about the labels of a model that answers."""
        evidence, number = self._counted.evidence(texts, model.vocabulary)
        if self._gone.any() or self._replaced.any():
            unused = self._replaced[number] | (self._gone[number] & (model.frequency[evidence.labels] == 0))
            evidence = evidence.only(~unused)
        if self._later is None:
            return self._with_relatives(evidence, model.vocabulary)
        later, number = self._later.evidence(texts, model.vocabulary)
        if self._shares is not None:
            expected = self._shares[number] * model.n_rows
        else:  # as many as have the names of another label
            hits = np.zeros(0) if model.decoder.names is None else model.decoder.names.hits
            expected = np.full(len(number), hits.sum() / max(np.count_nonzero(hits), 1))
        evidence = evidence.joined(replace(later, expected=expected.astype(np.float32)))
        return self._with_relatives(evidence, model.vocabulary)

    def _with_relatives(self, evidence: Evidence, vocabulary: Vocabulary) -> Evidence:
        """With the number of relatives that have a whole name in the text, for each label of evidence."""
        if not self._relatives:
            return evidence
        columns, place = np.unique(evidence.labels, return_inverse=True)
        number = {str(vocabulary.names[column]): i for i, column in enumerate(columns.tolist())}
        pairs = [
            (i, number[other]) for id, i in number.items() for other in self._relatives.get(id, ()) if other in number
        ]
        if not pairs:
            return evidence
        size, (one, other) = len(columns), np.array(pairs).T
        related = csr_array((np.ones(len(one), np.float32), (one, other)), shape=(size, size))
        rows, whole = evidence.rows, evidence.whole
        found = csr_array((np.ones(int(whole.sum()), np.float32), (rows[whole], place[whole])), (len(evidence), size))
        counts = csr_array(found @ related)
        signals = evidence.signals.copy()
        signals[:, TEXT_SIGNALS.index("relatives")] = counts[rows, place]
        return replace(evidence, signals=signals)

    def matched(self, text: str, label: str) -> list[MatchedName]:
        """The names of a label that stand in a text, with their places."""
        found = list[MatchedName]()
        parts = [self._counted] if self._later is None else [self._later, self._counted]
        part = next((part for part in parts if label in part.ids), None)
        if part is None:
            return found
        languages = part.matcher.languages_for(text)
        for language, name, preferred in part.concepts[part.ids.index(label)].texts():
            if language not in languages:
                continue
            places = NameMatcher([Name(0, language, name, preferred)]).places_of_label(text, 0)
            if places:
                found.append(MatchedName(name, places))
        return found

    # ------------------------------------------------------------------------------------------------------------ state

    def to_json_lines(self) -> bytes:
        """The counted concepts, one per line, see `Concepts`."""
        named = {id: concept for id, concept in zip(self.ids, self._counted.concepts, strict=True) if id}
        return Concepts.of(replace(concept, id=id) for id, concept in named.items()).to_json_lines()


def _relatives(concepts: Iterable[Concept]) -> dict[str, set[str]]:
    """The concepts that each one, by its id, is broader, narrower or related to.

    >>> {id: sorted(others) for id, others in _relatives([Concept("c1", broader=("c2",)), Concept("c2")]).items()}
    {'c1': ['c2'], 'c2': ['c1']}
    """
    found: dict[str, set[str]] = {}
    for concept in concepts:
        for other in {*concept.broader, *concept.related} - {concept.id}:
            found.setdefault(concept.id, set()).add(other)
            found.setdefault(other, set()).add(concept.id)
    return found


def _same_names(concept: Concept, other: Concept) -> bool:
    return concept.names == other.names and concept.synonyms == other.synonyms
