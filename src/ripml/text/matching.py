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

Words of one family, compounds and related languages have no stem in common, but runs of letters: "Wärmepumpe" and
"pump". How alike name and text are by these is `spelling`, see `ripml.text.name_parts.Spelling`.
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
from ripml.text.name_parts import NameParts, Spelling, ends_of
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
    spelling: Doubles

    @property
    def rows(self) -> Ints:
        """The text of each match."""
        return np.repeat(np.arange(len(self.lengths)), np.diff(self.ends))


class NameMatcher:
    """Finds names in texts.

    `n_labels` (N,) says how many labels share each of the N distinct sets of stems (0 if they were removed), `n_words`
    (N,) of how many stems it consists, `labels` and `preferred` whose names it is: those of set s are `label_ends[s]`
    to `label_ends[s + 1]`.
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
        spelled = list[tuple[str, list[str]]]()  # language and words of each
        for name in names:
            stems = self._stems.get(name.language)
            if stems is None:
                stems = self._stems[name.language] = _Stems(name.language)
            for text in dict.fromkeys((name.text, _BRACKETS.sub("", name.text))):
                words = tokens(text)
                if 0 < len(words) <= _MOST_WORDS:
                    parts = {self._ids.setdefault((name.language, stems.of(word)), len(self._ids)) for word in words}
                    key = tuple(sorted(parts))
                    if key not in owners:
                        spelled.append((name.language, words))
                    of_name = owners.setdefault(key, {})
                    of_name[name.label] = of_name.get(name.label, False) or (name.preferred and text == name.text)
        for language, stems in self._stems.items():
            stems.known = {stem: number for (of, stem), number in self._ids.items() if of == language}
        spoken = {_without_region(language) for language in (*self._stems, *other_languages)} - {""}
        self._detected = detectable(spoken) if len(spoken) > 1 else set[str]()
        self.label_ends = ends_of([len(labels) for labels in owners.values()])
        self.labels = np.array([label for labels in owners.values() for label in labels], np.int64)
        self.preferred = np.array([first for labels in owners.values() for first in labels.values()], bool)
        self.n_labels = np.diff(self.label_ends)
        # Of names that are equally alike to a text the first in this order are kept, whatever their numbers are.
        by_words = sorted(range(len(spelled)), key=lambda name: spelled[name])
        self._order = np.argsort(np.array(by_words, np.int64))
        self.n_words = np.array([len(key) for key in owners], np.int64)
        # Each name is listed under its rarest stem.
        self._word_ends = ends_of(self.n_words.tolist())
        self._words = np.array([number for key in owners for number in key], np.int64)
        frequency = Counter(self._words.tolist())
        listed = np.array([min(key, key=lambda number: (frequency[number], number)) for key in owners], np.int64)
        self._listed = np.argsort(listed, kind="stable")
        self._list_ends = np.searchsorted(listed[self._listed], np.arange(len(self._ids) + 1))
        # For names that stand in a text in part.
        self._parts = NameParts(self._words, self._word_ends, np.ones(len(self._ids)))
        self._spelling = Spelling(spelled)
        self._weigh(None)

    def _weigh(self, words: Mapping[str, float] | None) -> None:
        """Set v, which is 1 for a stem of one name that no text has."""
        n = self._parts.n_names or 1
        weights = np.log1p(n / np.maximum(self._parts.n_holders(), 1)) / np.log1p(n)
        if words:
            least = min(words.values())
            weights = weights * (1 - np.log(np.maximum(self._shares(words), least))) / (1 - np.log(least))
        self._parts = self._parts.weighted(weights)

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
        return self.without([], words)

    def without(self, labels: Sequence[int], words: Mapping[str, float] | None) -> NameMatcher:
        """The same, without names that belong to these labels alone; other names keep their numbers.

        >>> matcher = NameMatcher([Name(0, "en", "red tea", True), Name(1, "en", "ice", True)])
        >>> matcher.without([0], None).find(["Iced tea"], 5).names.tolist()
        [1]
        """
        other = copy.copy(self)
        kept = ~np.isin(self.labels, labels)
        other.n_labels = np.add.reduceat(kept, self.label_ends[:-1]) if len(self) else self.n_labels
        present = other.n_labels > 0
        other._parts, other._spelling = self._parts.only(present), self._spelling.only(present, words)
        other._weigh(words)
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
        """The names that stand in each text, in the order of their numbers; after them up to `n_partly` of which it
        has some words, the most alike first; and then up to `n_partly` that are spelled most alike."""
        sums = np.zeros((len(self), 2))
        parts = [self._find(text, n_partly, sums) for text in texts]
        found = np.concatenate([np.empty((0, 5), np.int64), *(part for part, _, _ in parts)])
        alike = np.concatenate([np.empty((0, 3)), *(some for _, some, _ in parts)])
        lengths = np.array([length for _, _, length in parts], np.int64)
        return Matches(ends_of([len(part) for part, _, _ in parts]), lengths, *found.T.copy(), *alike.T.copy())

    def _find(self, text: str, n_partly: int, sums: Doubles) -> tuple[Ints, Doubles, int]:
        """Lines of a name's number, count, first, last and width, and of its cover, likeness and spelling; and how
        many words."""
        words = sentence_tokens(text)
        languages = self._languages_for(words)
        numbers = [self._stems[language].numbers(words) for language in languages]
        found = [self._in_sentences(some) for some in numbers]
        joined = found[0] if len(found) == 1 else np.concatenate([np.empty((0, 5), np.int64), *found])
        joined = joined[np.argsort(joined[:, 0], kind="stable")]
        joined = joined[self.n_labels[joined[:, 0]] > 0]
        whole = joined[:, 0].copy()
        all_numbers = numbers[0] if len(numbers) == 1 else np.concatenate([np.empty(0, np.int64), *numbers])
        stems, counts = np.unique(all_numbers[all_numbers >= 0], return_counts=True)
        length = float(np.sqrt(max(len(set(words)), 1)))
        letters = self._spelling.text([word for word in words if word != SENTENCE_END], languages)
        spelled = self._spelling.most_alike(letters, n_partly, self._order, sums) if n_partly else np.empty(0, np.int64)
        standing = set(whole.tolist())
        spelled = spelled[[name not in standing for name in spelled.tolist()]]
        known = np.concatenate([whole, spelled])
        alike, partly, more = self._parts.alike(stems, counts, length, known, n_partly, _SHARE_OF_COVER, sums)
        # The names of which the text has some words, best first, and after them those that are only spelled alike.
        others, of_others = np.concatenate([partly, spelled]), np.concatenate([more, alike[len(whole) :]])
        score = (of_others[:, 1] + _SHARE_OF_COVER * of_others[:, 0]).round(9)
        best = np.lexsort((self._order[others], -score))
        best = best[score[best] > 0][:n_partly]
        chosen = set(best.tolist())
        only_spelled = [place for place in range(len(partly), len(others)) if place not in chosen]
        rest = np.concatenate([best, np.array(only_spelled, np.int64)])
        # One line for each name.
        names = np.concatenate([whole, others[rest]])
        lines = np.zeros((len(names), 5), np.int64)
        lines[:, 0], lines[: len(whole)] = names, joined
        by_words = np.concatenate([alike[: len(whole)], of_others[rest]])
        return lines, np.column_stack([by_words, self._spelling.likeness(letters, names)]), len(words)

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

        Of a name that does not stand in the text as a whole, those are the words that do, if they are half of them, or
        else the words that are spelled alike.

        >>> matcher = NameMatcher([Name(0, "en", "red tea", True)])
        >>> [matcher.places_of_label(text, 0) for text in ("Tea? Tea, red.", "Black tea.", "Teas, redder.")]
        [[(5, 8), (10, 13)], [(6, 9)], [(0, 4)]]
        """
        owner = np.repeat(np.arange(len(self)), np.diff(self.label_ends))
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
        if found or 2 * len(set(anywhere.values())) >= len(words):
            return found or list(anywhere)
        return [(piece.start, piece.end) for piece in pieces(text) if self._spelling.resembles(piece.token, name)]


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
