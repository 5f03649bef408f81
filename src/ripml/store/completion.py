"""Label completion: the labels of a store whose names begin with what was typed, or contain a word that does.

All names of labels, case folded, lie end to end in one text. A `_SortedNames` is an array of places in it, sorted by
what stands there: one of the beginnings of names, and one of the beginnings of their later words. The names with a
prefix are a range of it, found by bisection, of which the most frequent labels are taken. A name that begins with the
prefix but for one typing mistake is found by bisection too: from the range of each correct part of the prefix on, only
the characters that occur there are tried. That takes no other index, and 20 to 60 bytes per label in all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ripml.labels.concepts import Concept, Concepts
from ripml.labels.vocabulary import Vocabulary

__all__ = ["LabelCompletion", "LabelInfo", "LabelOrder"]

Ints = NDArray[np.int64]
LabelOrder = Literal["name", "count", "rarest", "newest", "precision"]

_MAX_LENGTH = 100  # characters of a name that are indexed
_BLOCK = 65536  # names whose words are found together
_STEP = 8  # bytes of names that are compared at once
_RECENT = 4096  # labels that came or were renamed since, up to which they have an index beside that of all others
_MISTAKE_LENGTH = 4  # of a prefix, from which on one typing mistake is forgiven
_MAX_CHARACTERS = 256  # that are tried at one place of the prefix
_GONE = -2  # column of a label that has another name now, or is no longer there
_UTF8 = "utf-8", "surrogatepass"


@dataclass(frozen=True)
class LabelInfo:
    """A label, the number of documents that carry it, and whether it is retired, that is, no longer suggested."""

    name: str
    count: int
    retired: bool


class LabelCompletion:
    """The labels of a vocabulary by what they are called.

    With concepts, labels have their names, synonyms and notation in one language in place of their ids, and concepts
    that the model does not know come after its labels.

    >>> vocabulary = Vocabulary.of(np.array(["green tea", "Tea", "coffee", "teapot"], object))
    >>> completion, counts = LabelCompletion(vocabulary), np.array([5, 3, 2, 4])
    >>> [label.name for label in completion.complete("tea", 5, counts)]
    ['Tea', 'teapot', 'green tea']
    >>> [label.name for label in completion.complete("cofee", 5, counts)]
    ['coffee']
    >>> concepts = Concepts.of([Concept("coffee", {"fr": "café"}), Concept("c9", {"fr": "thé vert"})])
    >>> completion = LabelCompletion(vocabulary, concepts, "fr")
    >>> [label.name for label in completion.complete("vert", 5, counts)]
    ['c9']
    """

    def __init__(self, vocabulary: Vocabulary, concepts: Concepts | None = None, language: str = "") -> None:
        self._vocabulary, self._indexed = vocabulary, vocabulary  # of now, and that of the first index
        self._concepts, self._language = concepts, language
        self._labels: list[str] = [str(name) for name in vocabulary.names.tolist()]
        self._labels += [id for id in concepts or () if id not in vocabulary]
        self._columns = np.arange(len(self._labels))  # of each place: its column; −1 where the model has none
        self._columns[len(vocabulary) :] = -1
        self._indexes = [_NameIndex(self._labels, 0, concepts, language)]

    @property
    def vocabulary(self) -> Vocabulary:
        """The labels of the model."""
        return self._vocabulary

    @cached_property
    def by_name(self) -> Ints:
        """The columns of the labels (L,) in the order of their names, without regard to case."""
        names = self._indexes[0].preferred
        places = names.owners
        for index in self._indexes[1:]:
            recent = index.preferred
            at = [names.range(recent.name(i))[0] for i in range(len(recent.starts))]
            places = np.insert(places, at, recent.owners)
        columns = self._columns[places]
        return columns[columns >= 0]

    def info(self, column: int, counts: Ints) -> LabelInfo:
        """What is listed of the label of a column."""
        names, retired = self._vocabulary.names, self._vocabulary.retired
        return LabelInfo(str(names[column]), int(counts[column]), bool(retired[column]))

    def current(self, vocabulary: Vocabulary, concepts: Concepts | None) -> LabelCompletion:
        """The completion of these labels: this one, or one that has few changes beside what it has, or a new one."""
        if self._vocabulary is vocabulary and self._concepts is concepts:
            return self
        fresh = self._changes(vocabulary) if self._concepts is concepts else None
        return LabelCompletion(vocabulary, concepts, self._language) if fresh is None else fresh

    def _changes(self, vocabulary: Vocabulary) -> LabelCompletion | None:
        """This completion with labels that came, went or were renamed since it was made; None if there are too many."""
        before, now, concepts = self._indexed, vocabulary, self._concepts
        n, names = len(before), vocabulary.names
        if not len(now):
            return None
        stayed = np.array_equal(before.keys, now.keys[:n])
        columns = np.arange(n) if stayed else _places(now.keys, before.keys)
        columns[(columns >= 0) & (names[columns] != before.names)] = _GONE
        columns[columns < 0] = _GONE
        is_new = np.ones(len(now), bool)
        is_new[columns[columns >= 0]] = False
        new = np.flatnonzero(is_new)
        if len(new) > _RECENT:
            return None
        index, labels = self._indexes[0], [str(name) for name in names[new].tolist()]
        others = self._columns[n : index.n_labels].copy()  # concepts that the model did not know
        if concepts is not None:
            if any(str(name) in concepts and name not in now for name in before.names[columns == _GONE].tolist()):
                return None  # a concept that was a label is none any more
            came = set(labels)
            others[[i for i, id in enumerate(self._labels[n : index.n_labels]) if id in came]] = _GONE
        changed = object.__new__(LabelCompletion)
        changed._vocabulary, changed._indexed, changed._concepts, changed._language = (
            now,
            before,
            concepts,
            self._language,
        )
        changed._labels = [*self._labels[: index.n_labels], *labels]
        changed._columns = np.concatenate([columns, others, new])
        changed._indexes = [index, _NameIndex(labels, index.n_labels, concepts, self._language)]
        return changed

    def complete(self, prefix: str, n: int, counts: Ints) -> list[LabelInfo]:
        """At most n labels: first those with the name `prefix`, then those with a name that begins with it, then those
        with such a word, each by `counts` (L,), largest first. If there are none, the prefix may have one mistake."""
        typed = _folded(prefix)
        found: dict[int, None] = {}
        stages = [_NameIndex.called, _NameIndex.beginning, _NameIndex.containing]
        for stage in stages if len(typed) < _MISTAKE_LENGTH else [*stages, _NameIndex.mistaken]:
            if len(found) >= n or (found and stage is _NameIndex.mistaken):
                break
            places = np.concatenate([stage(index, typed) for index in self._indexes])
            found |= dict.fromkeys(self._most_frequent(places, n, counts))
        retired = self._vocabulary.retired
        infos = []
        for place in islice(found, n):
            column = int(self._columns[place])
            known = (int(counts[column]), bool(retired[column])) if column >= 0 else (0, False)
            infos.append(LabelInfo(self._labels[place], *known))
        return infos

    def _most_frequent(self, places: NDArray[Any], n: int, counts: Ints) -> list[int]:
        """At least n of these places, if they are as many, or all; those of the most frequent labels first."""
        columns = self._columns[places]
        present = columns != _GONE
        if not present.all():
            places, columns = places[present], columns[present]
        frequency = np.where(columns < 0, 0, counts[columns]) if len(counts) else np.zeros(len(columns), np.int64)
        wanted, some = 2 * n, places
        while True:
            own = frequency
            if len(places) > wanted:  # sort only the most frequent, and of those that tie with the last the first
                least = -np.partition(-frequency, wanted - 1)[wanted - 1]
                more, ties = frequency > least, places[frequency == least]
                ties = np.partition(ties, wanted - 1)[:wanted] if len(ties) > wanted else ties
                some = np.concatenate([places[more], ties])
                own = np.concatenate([frequency[more], np.full(len(ties), least)])
            distinct, first = np.unique(some, return_index=True)  # a label may have several names with the prefix
            if len(distinct) >= n or len(places) <= wanted:
                return [int(place) for place in distinct[np.argsort(-own[first], kind="stable")]]
            wanted *= 4
            some = places


class _NameIndex:
    """The names of labels whose places are numbered from `start` on."""

    def __init__(self, labels: Sequence[str], start: int, concepts: Concepts | None, language: str) -> None:
        self.n_labels = len(labels)
        texts, owners = list[str](), list[int]()
        for place, label in enumerate(labels, start):
            concept = None if concepts is None else concepts.get(label)
            for text in [label] if concept is None else _texts(concept, language):
                texts.append(_folded(text))
                owners.append(place)
        self._whole, self._words = _sorted_names(texts, np.array(owners, np.int32))

    @cached_property
    def preferred(self) -> _SortedNames:
        """One name of each label: its preferred one, which is the first in the text."""
        names = self._whole
        if len(names.starts) == self.n_labels:
            return names
        order = np.argsort(names.starts)
        owners = names.owners[order]
        chosen = np.zeros(len(order), bool)
        chosen[order[np.flatnonzero(np.diff(owners, prepend=owners[:1] - 1))]] = True
        return _SortedNames(names.text, names.starts[chosen], names.owners[chosen])

    def called(self, typed: str) -> NDArray[np.int32]:
        """The places of the labels that have this name."""
        return self._whole.owners[slice(*self._whole.range(typed.encode(*_UTF8) + b"\0"))]

    def beginning(self, typed: str) -> NDArray[np.int32]:
        """Of the labels with a name that begins so."""
        return self._whole.owners[slice(*self._whole.range(typed.encode(*_UTF8)))]

    def containing(self, typed: str) -> NDArray[np.int32]:
        """Of the labels with a name of which a later word begins so."""
        return self._words.owners[slice(*self._words.range(typed.encode(*_UTF8)))]

    def mistaken(self, typed: str) -> NDArray[np.int32]:
        """Of the labels with a name, or a later word in one, that begins so but for one typing mistake."""
        found = [names.owners[slice(*some)] for names in (self._whole, self._words) for some in names.mistaken(typed)]
        return np.concatenate(found) if found else np.empty(0, np.int32)


@dataclass(frozen=True)
class _SortedNames:
    """Places in a text where names, or words of names, begin, in the order of what stands there up to the next zero."""

    text: bytes  # UTF-8; each name ends with a zero
    starts: NDArray[np.uint32]
    owners: NDArray[np.int32]  # whose name it is

    def name(self, i: int) -> bytes:
        """One of the names, with the zero that ends it."""
        start = int(self.starts[i])
        return self.text[start : self.text.index(b"\0", start) + 1]

    def range(self, prefix: bytes, low: int = 0, high: int | None = None) -> tuple[int, int]:
        """The first of the names with a prefix, and the first after them, within a range."""
        text, starts, length = self.text, memoryview(self.starts.data), len(prefix)
        high = len(starts) if high is None else high

        def beginning(start: int) -> bytes:
            return text[start : start + length]

        first = bisect_left(starts, prefix, low, high, key=beginning)
        return first, bisect_right(starts, prefix, first, high, key=beginning)

    def mistaken(self, typed: str) -> Iterator[tuple[int, int]]:
        """The ranges of names that begin so but for one character more, less or other, or two that were exchanged."""
        low, high = 0, len(self.starts)
        for i in range(len(typed)):
            correct, rest = typed[:i], typed[i:]
            if i:
                low, high = self.range(correct.encode(*_UTF8), low, high)
            if low == high:
                return
            tried = {correct + rest[1:]} | ({correct + rest[1] + rest[0] + rest[2:]} if len(rest) > 1 else set())
            for character in islice(self._characters(correct.encode(*_UTF8), low, high), _MAX_CHARACTERS):
                tried |= {correct + character + rest[1:], correct + character + rest}
            for prefix in sorted(tried - {typed}):
                some = self.range(prefix.encode(*_UTF8), low, high)
                if some[0] < some[1]:
                    yield some

    def _characters(self, prefix: bytes, low: int, high: int) -> Iterator[str]:
        """The characters that follow a prefix in its range."""
        place = len(prefix)
        while low < high:
            start = int(self.starts[low]) + place
            first = self.text[start]
            length = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            character = self.text[start : start + length]
            if first:
                yield character.decode(*_UTF8)
            _, low = self.range(prefix + character, low, high)


def _texts(concept: Concept, language: str) -> list[str]:
    """What a concept is found by."""
    notation = () if concept.notation is None else (concept.notation,)
    return [concept.name(language), *concept.synonyms.get(language, ()), *notation]


def _folded(name: str) -> str:
    return name.casefold()[:_MAX_LENGTH].replace("\0", " ")


def _sorted_names(texts: Sequence[str], owners: NDArray[np.int32]) -> tuple[_SortedNames, _SortedNames]:
    """Names of these owners, sorted by what they begin with, and by what each of their later words begins with."""
    parts, starts, lengths = list[bytes](), list[NDArray[Any]](), list[NDArray[Any]]()
    offset, whole, whose = 0, list[NDArray[Any]](), list[NDArray[Any]]()
    for first in range(0, len(texts), _BLOCK):
        joined = "\0".join(texts[first : first + _BLOCK]) + "\0"
        part = joined.encode(*_UTF8)
        points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        ends = np.flatnonzero(points == 0)
        known, which = np.unique(points, return_inverse=True)
        in_word = np.array([chr(point).isalnum() for point in known.tolist()], bool)[which]
        after_name = np.concatenate([[True], points[:-1] == 0])
        later = np.flatnonzero(in_word & ~np.concatenate([[False], in_word[:-1]]) & ~after_name)
        begins = np.concatenate([[0], ends[:-1] + 1])
        size = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
        place = np.concatenate([[0], np.cumsum(size)])
        some = np.concatenate([begins, later])
        name = np.searchsorted(ends, some)
        starts.append(offset + place[some])
        lengths.append(place[ends[name]] - place[some])
        whole.append(np.arange(len(some)) < len(begins))
        whose.append(owners[first + name])
        parts.append(part)
        offset += len(part)
    text, sorted_names = b"".join(parts), list[_SortedNames]()
    for wanted in (True, False):
        chosen = [np.flatnonzero(part == wanted) for part in whole]
        some_starts, some_lengths, some_owners = (
            np.concatenate(
                [part[places] for part, places in zip(arrays, chosen, strict=True)] or [np.empty(0, np.int64)]
            )
            for arrays in (starts, lengths, whose)
        )
        order = _order(text, some_starts, some_lengths)
        found = some_starts[order].astype(np.uint32), some_owners[order].astype(np.int32)
        sorted_names.append(_SortedNames(text, *found))
    return sorted_names[0], sorted_names[1]


def _order(text: bytes, starts: Ints, lengths: Ints) -> Ints:
    """The order of the parts of a text, by their bytes: by eight at a time, and where these are equal by the next."""
    padded = np.frombuffer(text + bytes(_MAX_LENGTH * 4 + _STEP), np.uint8)
    words = np.ndarray((len(padded) - _STEP + 1,), ">u8", padded, strides=(1,))  # of eight bytes, from each place on
    order, group = np.arange(len(starts)), np.zeros(len(starts), np.int64)
    tied = np.arange(len(starts))  # positions in `order` whose order is not known yet
    for offset in range(0, 4 * _MAX_LENGTH, _STEP):
        if not len(tied):
            break
        members = order[tied]
        left = np.clip(lengths[members] - offset, 0, _STEP)
        bits = (8 * (_STEP - left)).astype(np.uint64)
        key = words[starts[members] + offset].astype(np.uint64)
        key = np.where(left > 0, key >> bits << bits, 0) if len(key) else key
        by = np.lexsort((key, group[tied]))
        order[tied], key = members[by], key[by]
        new = np.concatenate([[True], (np.diff(group[tied]) != 0) | (key[1:] != key[:-1])])
        number = np.cumsum(new) - 1
        size = np.bincount(number)
        undecided = (size[number] > 1) & (left[by] == _STEP)
        group[tied] = tied[np.flatnonzero(new)][number]  # the first position of the group names it
        tied = tied[undecided]
    return order


def _places(numbers: NDArray[Any], wanted: NDArray[Any]) -> Ints:
    """Where each of the `wanted` is among different numbers, −1 for nowhere."""
    if not len(numbers):
        return np.full(len(wanted), -1)
    order = np.argsort(numbers)
    found = order[np.minimum(np.searchsorted(numbers, wanted, sorter=order), len(numbers) - 1)]
    return np.where(numbers[found] == wanted, found, -1)
