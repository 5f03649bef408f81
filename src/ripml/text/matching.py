"""`NameMatcher`: which of many names stand in a text.

A name stands in a text if one sentence has all of its words, in any order and in any inflected form: "airports under
construction" has the name "Airport construction". Words are the tokens of `ripml.text.tokens`, reduced to their stems
by Snowball's rules for the language of the name (the extra `words`); names without a language are taken as English, and
scripts without spaces need no stems. What is in brackets at the end of a name tells it from others, as in "Lock
(device)", and texts do not say it: the name without it counts too.

Where names are in several languages, the language of a text is detected (`ripml.text.languages`), and names in the
other languages are not looked for: "die" in a German text is not the English verb. All names are looked for if the
language of the text is not certain or not among those of the names. Names without a language, and in languages that
cannot be detected, are looked for in every text.

A name is a set of stems. It is listed under its rarest stem, so that a sentence is compared with few names: for every
stem of the sentence, with those listed under it.

A name of which a text has only some words may be meant all the same. How much of it stands there is told by two
numbers, with v(s) the weight of a stem s, which is the larger the fewer names have it, and the fewer texts if it is
known how many do:

    cover     Σ v(s) of its stems that stand anywhere in the text, of the Σ v(s) of all its stems
    likeness  the cosine of name and text, with the weight v(s)·(1 + log count) of a stem in the text
"""

from __future__ import annotations

import copy
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripml.base.compiled import loops
from ripml.base.errors import MissingExtraError
from ripml.text.languages import detect_language, detectable
from ripml.text.tokens import ENDS, SENTENCE_END, WIDE_ENDS, has_spaces, pieces, sentence_tokens, tokens

__all__ = ["Matches", "Name", "NameMatcher"]

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]

_SENTENCE: Final = re.compile(f"[{ENDS}] |[\n{WIDE_ENDS}]")  # its end
_BRACKETS: Final = re.compile(r"\s*\([^()]*\)\s*$")
_MOST_WORDS: Final = 12  # of a name; longer ones are sentences, which no text repeats
_CACHED_WORDS: Final = 1 << 19
_SHARE_OF_COVER: Final = 0.5  # beside likeness, in the order of names of which a text has some words
_UNKNOWN, _END = -1, -2  # the numbers of a stem that no name has, and of the end of a sentence


class Name(NamedTuple):
    """A name of a label: the label's number, the language ("" if not known), and whether it is the preferred name."""

    label: int
    language: str
    text: str
    preferred: bool


@dataclass(frozen=True)
class Matches:
    """The names that stand in n texts; those of text i are `ends[i]` to `ends[i + 1]`.

    `names` numbers the sets of stems, see `NameMatcher`. A name stands `count` times in the text, first at word `first`
    and last at word `last`; `width` is the number of words of the shortest passage that has all its words. These are 0
    for a name of which the text has only some words, or has them in different sentences.
    """

    ends: Ints  # (n + 1,)
    lengths: Ints  # (n,) words of each text
    names: Ints
    count: Ints
    first: Ints
    last: Ints
    width: Ints
    cover: Doubles
    likeness: Doubles

    @property
    def rows(self) -> Ints:
        """The text of each match."""
        return np.repeat(np.arange(len(self.lengths)), np.diff(self.ends))


class NameMatcher:
    """Finds names in texts.

    `n_labels` (N,) says how many labels share each of the N distinct sets of stems, `n_words` (N,) of how many stems it
    consists, `labels` and `preferred` whose names it is: those of set s are `label_ends[s]` to `label_ends[s + 1]`.
    `other_languages` are those of names that another matcher looks for in the same texts, which are therefore
    possible languages of a text.

    >>> matcher = NameMatcher([Name(0, "en", "Airport construction", True), Name(1, "en", "Lock (device)", True)])
    >>> found = matcher.find(["The construction of airports.\\nLocks, locks and locks."])
    >>> found.count.tolist(), found.width.tolist(), matcher.labels[found.names].tolist()
    ([1, 3], [3, 1], [0, 1])
    """

    def __init__(self, names: Iterable[Name], other_languages: Iterable[str] = ()) -> None:
        self._ids: dict[tuple[str, str], int] = {}  # (language, stem) ↦ number
        self._stems: dict[str, _Stems] = {}
        owners: dict[tuple[int, ...], dict[int, bool]] = {}
        for name in names:
            stems = self._stems.get(name.language)
            if stems is None:
                stems = self._stems[name.language] = _Stems(name.language)
            for text in dict.fromkeys((name.text, _BRACKETS.sub("", name.text))):
                words = [stems.of(word) for word in tokens(text)]
                if 0 < len(words) <= _MOST_WORDS:
                    key = {self._ids.setdefault((name.language, word), len(self._ids)) for word in words}
                    of_name = owners.setdefault(tuple(sorted(key)), {})
                    of_name[name.label] = of_name.get(name.label, False) or (name.preferred and text == name.text)
        for language, stems in self._stems.items():
            stems.known = {stem: number for (of, stem), number in self._ids.items() if of == language}
        spoken = {_without_region(language) for language in (*self._stems, *other_languages)} - {""}
        self._detected = detectable(spoken) if len(spoken) > 1 else set[str]()
        self.label_ends = _ends([len(labels) for labels in owners.values()])
        self.labels = np.array([label for labels in owners.values() for label in labels], np.int64)
        self.preferred = np.array([first for labels in owners.values() for first in labels.values()], bool)
        self.n_labels = np.diff(self.label_ends)
        self.n_words = np.array([len(key) for key in owners], np.int64)
        # Each name is listed under its rarest stem.
        self._word_ends = _ends(self.n_words.tolist())
        self._words = np.array([number for key in owners for number in key], np.int64)
        frequency = Counter(self._words.tolist())
        listed = np.array([min(key, key=lambda number: (frequency[number], number)) for key in owners], np.int64)
        self._listed = np.argsort(listed, kind="stable")
        self._list_ends = np.searchsorted(listed[self._listed], np.arange(len(self._ids) + 1))
        # For names that stand in a text in part: all names of each stem, and v, which is 1 for a stem of one name.
        self._holder_ends = np.searchsorted(np.sort(self._words), np.arange(len(self._ids) + 1))
        self._holders = np.repeat(np.arange(len(owners)), self.n_words)[np.argsort(self._words, kind="stable")]
        self._weigh(np.ones(len(self._ids)))

    def _weigh(self, rarity: Doubles) -> None:
        """Set v of each stem, for its `rarity` in texts, and what is summed over the stems of each name."""
        n = len(self) or 1
        self._weights = np.log1p(n / np.maximum(np.diff(self._holder_ends), 1)) / np.log1p(n) * rarity
        starts, weights = self._word_ends[:-1], self._weights[self._words]
        self._totals = np.add.reduceat(weights, starts) if len(self) else np.zeros(0)
        self._lengths = np.sqrt(np.add.reduceat(weights**2, starts)) if len(self) else np.zeros(0)

    def weighted(self, words: Mapping[str, float] | None) -> NameMatcher:
        """The same names, with the weights of stems by the share of texts that has each of `words`.

        The weight of a stem that few names have is multiplied by 1 − log(share), relative to that of the rarest word,
        which is also that of a stem that is in none of these words. None for texts of which that is not known.

        >>> matcher = NameMatcher([Name(0, "en", "state of matter", True)])
        >>> matcher.find(["of"], 1).cover.round(2).tolist()
        [0.33]
        >>> matcher.weighted({"of": 0.99, "state": 0.01, "matter": 0.01}).find(["of"], 1).cover.round(2).tolist()
        [0.08]
        """
        rarity = np.ones(len(self._ids))
        if words:
            least = min(words.values())
            rarity = (1 - np.log(np.maximum(self._shares(words), least))) / (1 - np.log(least))
        other = copy.copy(self)
        other._weigh(rarity)
        return other

    def __len__(self) -> int:
        return len(self.n_words)

    @property
    def languages(self) -> list[str]:
        """The languages of the names."""
        return list(self._stems)

    def languages_for(self, text: str) -> list[str]:
        """The languages of the names that are looked for in a text.

        >>> matcher = NameMatcher([Name(0, "de", "Tee", True), Name(0, "en", "tea", True), Name(1, "", "ISO", True)])
        >>> matcher.languages_for("Der Tee ist nach ISO geprüft"), matcher.languages_for("ISO")
        (['de', ''], ['de', 'en', ''])
        """
        return self._languages_for(sentence_tokens(text))

    def _languages_for(self, words: list[str]) -> list[str]:
        found = detect_language(words, self._detected) if len(self._detected) > 1 else None
        if found is None:
            return self.languages
        others = self._detected - {found}
        return [language for language in self._stems if _without_region(language) not in others]

    def find(self, texts: Sequence[str], n_partly: int = 0) -> Matches:
        """The names that stand in each text, in the order of their numbers, and after them up to `n_partly` of which it
        has some words, the most alike first."""
        sums = np.zeros((len(self), 2))
        parts = [self._find(text, n_partly, sums) for text in texts]
        found = np.concatenate([np.empty((0, 5), np.int64), *(part for part, _, _ in parts)])
        alike = np.concatenate([np.empty((0, 2)), *(some for _, some, _ in parts)])
        lengths = np.array([length for _, _, length in parts], np.int64)
        return Matches(_ends([len(part) for part, _, _ in parts]), lengths, *found.T.copy(), *alike.T.copy())

    def _find(self, text: str, n_partly: int, sums: Doubles) -> tuple[Ints, Doubles, int]:
        """Lines of a name's number, count, first, last and width, and of its cover and likeness; and how many words."""
        words = sentence_tokens(text)
        numbers = [self._stems[language].numbers(words) for language in self._languages_for(words)]
        found = [self._in_sentences(some) for some in numbers]
        joined = found[0] if len(found) == 1 else np.concatenate([np.empty((0, 5), np.int64), *found])
        joined = joined[np.argsort(joined[:, 0], kind="stable")]
        all_numbers = numbers[0] if len(numbers) == 1 else np.concatenate([np.empty(0, np.int64), *numbers])
        length = float(np.sqrt(max(len(set(words)), 1)))
        alike, partly, more = self._alike(all_numbers, length, joined[:, 0].copy(), n_partly, sums)
        score = more[:, 1] + _SHARE_OF_COVER * more[:, 0]
        best = np.lexsort((partly, -score))[:n_partly]
        others = np.zeros((len(best), 5), np.int64)
        others[:, 0] = partly[best]
        return np.concatenate([joined, others]), np.concatenate([alike, more[best]]), len(words)

    def _alike(
        self, numbers: Ints, length: float, whole: Ints, n_partly: int, sums: Doubles
    ) -> tuple[Doubles, Ints, Doubles]:
        """Cover and likeness of the names `whole`; the `n_partly` best of the other names that have stems of the text,
        and all that are as good as the last of these; and cover and likeness of these.

        `sums` (N, 2) are zeros, before and after: Σ v(s) and Σ v(s)²(1 + log count) over the stems of each name.
        """
        stems, counts = np.unique(numbers[numbers >= 0], return_counts=True)
        weights = self._weights[stems]
        added = np.stack([weights, weights**2 * (1 + np.log(counts)) / length], axis=1)
        compiled = loops()
        if compiled is not None:
            index = self._holder_ends, self._holders, self._totals, self._lengths
            alike, partly, more = compiled.alike_names(stems, added, *index, whole, n_partly, _SHARE_OF_COVER, sums)
            return alike, partly, more
        n_held = self._holder_ends[stems + 1] - self._holder_ends[stems]
        start = np.repeat(self._holder_ends[stems] - np.cumsum(n_held) + n_held, n_held)
        names = self._holders[start + np.arange(len(start))]
        np.add.at(sums, names, np.repeat(added, n_held, axis=0))
        partly = np.setdiff1d(names, whole)
        sizes = np.stack([self._totals, self._lengths], axis=1)
        alike, more = sums[whole] / sizes[whole], sums[partly] / sizes[partly]
        sums[names] = 0
        score = more[:, 1] + _SHARE_OF_COVER * more[:, 0]
        best = np.arange(len(partly) if n_partly else 0)
        if len(best) > n_partly:
            best = np.flatnonzero(score >= np.partition(score, len(best) - n_partly)[len(best) - n_partly])
        return alike, partly[best], more[best]

    def _in_sentences(self, numbers: Ints) -> Ints:
        """The lines of `_find` for the stems of a text in one language, with `_END` after each sentence."""
        compiled = loops()
        if compiled is not None:
            index = self._list_ends, self._listed, self._word_ends, self._words
            return np.asarray(compiled.names_in_text(numbers, *index))
        found: dict[int, list[int]] = {}
        for start, end in pairwise([-1, *np.flatnonzero(numbers == _END).tolist(), len(numbers)]):
            sentence = numbers[start + 1 : end].tolist()
            counts = Counter(number for number in sentence if number != _UNKNOWN)
            for number in counts:
                for name in self._listed[self._list_ends[number] : self._list_ends[number + 1]].tolist():
                    words = self._words[self._word_ends[name] : self._word_ends[name + 1]].tolist()
                    if all(word in counts for word in words):
                        places = [i for i, word in enumerate(sentence) if word in words]
                        count, width = min(counts[word] for word in words), _width(sentence, places, len(words))
                        first, last = start + 1 + places[0], start + 1 + places[-1]
                        old = found.setdefault(name, [name, 0, first, last, width])
                        old[1:] = [old[1] + count, old[2], last, min(old[4], width)]
        return np.array(list(found.values()), np.int64).reshape(-1, 5)

    def expected_shares(self, words: Mapping[str, float]) -> NDArray[np.float64]:
        """The share of texts that each name stands in, (N,), as far as the share of texts with each of `words` tells.

        Words are taken to be independent of each other, but for the tokens of scripts without spaces, which overlap.

        >>> names = [Name(0, "en", "red tea", True), Name(1, "en", "ice", True), Name(2, "en", "cup", True)]
        >>> NameMatcher(names).expected_shares({"red": 0.5, "tea": 0.125, "teas": 0.125, "ice": 0.25}).tolist()
        [0.125, 0.25, 0.0]
        """
        if not len(self):
            return np.zeros(0)
        share = self._shares(words)
        spaced = np.array([has_spaces(stem) for _, stem in self._ids])
        starts = self._word_ends[:-1]
        together = np.multiply.reduceat(np.where(spaced, share, 1)[self._words], starts)
        return np.asarray(together * np.minimum.reduceat(np.where(spaced, 1, share)[self._words], starts))

    def _shares(self, words: Mapping[str, float]) -> Doubles:
        """The share of texts that has each stem, at most, by the shares of those with each of `words`."""
        share = np.zeros(len(self._ids))
        for stems in self._stems.values():
            for word, part in words.items():
                number = stems[word]
                if number >= 0:
                    share[number] += part
        return np.minimum(share, 1)

    def places_of_label(self, text: str, label: int) -> list[tuple[int, int]]:
        """Where in the text the words of the names of a label stand: start and end of each, in order.

        Of a name that does not stand in the text as a whole, those are the words that do, if they are half of them.

        >>> matcher = NameMatcher([Name(0, "en", "red tea", True)])
        >>> matcher.places_of_label("Tea? Tea, red.", 0), matcher.places_of_label("Black tea.", 0)
        ([(5, 8), (10, 13)], [(6, 9)])
        """
        owner = np.repeat(np.arange(len(self)), self.n_labels)
        names = owner[self.labels == label]
        return sorted({place for name in names.tolist() for place in self._places(text, name)})

    def _places(self, text: str, name: int) -> list[tuple[int, int]]:
        """The places of the words of one name, in sentences that have all of them or else in all sentences."""
        words = set(self._words[self._word_ends[name] : self._word_ends[name + 1]].tolist())
        stems = next(stems for stems in self._stems.values() if words <= set(stems.known.values()))
        found, anywhere, start = list[tuple[int, int]](), dict[tuple[int, int], int](), 0
        for end in [*(match.end() for match in _SENTENCE.finditer(text)), len(text)]:
            sentence = text[start:end]
            some = [(start + p.start, start + p.end, stems[p.token]) for p in pieces(sentence)]
            places = {(a, b): number for a, b, number in some if number in words}
            if words == set(places.values()):
                found += places
            anywhere |= places
            start = end
        return found or (list(anywhere) if 2 * len(set(anywhere.values())) >= len(words) else [])


class _Stems(dict[str, int]):
    """The numbers of words of one language by their stems, for words that were asked for."""

    def __init__(self, language: str) -> None:
        super().__init__({SENTENCE_END: _END})
        self._stem = _stemmer(language)
        self.known: dict[str, int] = {}  # stem ↦ number

    def of(self, word: str) -> str:
        """The stem of a word."""
        return self._stem(word) if has_spaces(word) else word

    def __missing__(self, word: str) -> int:
        number = self.known.get(self.of(word), _UNKNOWN)
        if len(self) < _CACHED_WORDS:
            self[word] = number
        return number

    def numbers(self, words: list[str]) -> Ints:
        """Those of all words of a text."""
        return np.fromiter(map(self.__getitem__, words), np.int64, len(words))


def _stemmer(language: str) -> Callable[[str], str]:
    """What reduces words of a language to their stems; words of a language without rules stay as they are."""
    try:
        stemmer: Any = importlib.import_module("Stemmer")
    except ImportError:
        raise MissingExtraError("PyStemmer", "words") from None
    try:
        stem: Callable[[str], str] = stemmer.Stemmer(_without_region(language) or "en", 0).stemWord
    except KeyError:
        return str
    return stem


def _without_region(language: str) -> str:
    return language.partition("-")[0]


def _width(sentence: list[int], places: list[int], n_words: int) -> int:
    """The number of words of the shortest passage that has all words of a name, which stand at these places."""
    width = len(sentence)
    for i, start in enumerate(places):
        seen = set[int]()
        for place in places[i:]:
            seen.add(sentence[place])
            if len(seen) == n_words:
                width = min(width, place - start + 1)
                break
    return width


def _ends(lengths: list[int]) -> Ints:
    return np.cumsum([0, *lengths], dtype=np.int64)
