"""Concepts: what is known about labels besides their columns, as a vocabulary such as EuroVoc or a thesaurus says it.

A `Concept` has an id, which is the label as documents carry it, and names that people read, by language. `Concepts` is
a whole vocabulary as a value. It may know labels that no document carries, and documents may carry labels that it does
not know: a label without a concept is shown as it is.

Some of its concepts can be selected by *groups*, written as strings:

    type:URI      the concepts of a type
    scheme:URI    the concepts of a scheme, such as one microthesaurus of EuroVoc
    branch:ID     a concept and everything narrower, at any depth
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final

from ripml.base.errors import DataError, ParameterError

__all__ = ["GROUPS", "Concept", "Concepts", "is_group"]

GROUPS: Final = ("type", "scheme", "branch")
_MAX_RESOLVED: Final = 64  # lists whose labels are remembered


@dataclass(frozen=True)
class Concept:
    """A label of a vocabulary. Languages are tags in lower case such as "de" or "pt-br", and "" if not known."""

    id: str  # the label as documents carry it: a URI or a code
    names: Mapping[str, str] = field(default_factory=dict)  # language ↦ the preferred name
    synonyms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # language ↦ other names
    broader: tuple[str, ...] = ()  # ids
    related: tuple[str, ...] = ()  # ids
    notation: str | None = None  # a code that people write, such as a class mark
    types: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()

    def name(self, *languages: str | None) -> str:
        """The name in the first of these languages that has one; else without a language, in English, any, or the id.

        >>> tea = Concept("c1", {"de": "Tee", "en": "tea"})
        >>> tea.name("fr", "de-AT"), tea.name("fr"), Concept("c2").name()
        ('Tee', 'tea', 'c2')
        """
        tags = [language.lower() for language in languages if language]
        wanted = [part for tag in tags for part in (tag, tag.partition("-")[0])]
        for language in (*wanted, "", "en"):
            if language in self.names:
                return self.names[language]
        return next(iter(self.names.values()), self.id)

    def texts(self) -> list[tuple[str, str, bool]]:
        """All names and synonyms as (language, text, whether it is the preferred name), preferred names first."""
        preferred = [(language, name, True) for language, name in self.names.items()]
        return preferred + [(language, text, False) for language, texts in self.synonyms.items() for text in texts]

    def to_json(self) -> dict[str, Any]:
        """As JSON values, without what is empty.

        >>> Concept("c1", {"en": "tea"}, broader=("c9",)).to_json()
        {'id': 'c1', 'names': {'en': 'tea'}, 'broader': ['c9']}
        """
        values: dict[str, Any] = {"id": self.id}
        if self.names:
            values["names"] = dict(self.names)
        if self.synonyms:
            values["synonyms"] = {language: list(texts) for language, texts in self.synonyms.items()}
        if self.notation is not None:
            values["notation"] = self.notation
        return values | {name: list(value) for name in _ID_LISTS if (value := getattr(self, name))}

    @classmethod
    def from_json(cls, values: Any) -> Concept:
        """The inverse of `to_json`; ValueError for values that do not come from there."""
        if not isinstance(values, dict) or not values.keys() <= _FIELDS:
            raise ValueError(f"a concept must be an object with {', '.join(sorted(_FIELDS))}")
        rest = dict(values)  # what is left of it are lists of ids
        id, names, synonyms = rest.pop("id", None), rest.pop("names", {}), rest.pop("synonyms", {})
        notation = rest.pop("notation", None)
        try:
            by_language = {language.lower(): _string(name) for language, name in names.items()}
            other_names = {language.lower(): _strings(texts) for language, texts in synonyms.items() if texts}
            lists = {name: _strings(ids) for name, ids in rest.items()}
            return cls(
                _string(id), by_language, other_names, notation=None if notation is None else _string(notation), **lists
            )
        except (TypeError, AttributeError):
            raise ValueError(f"the concept {str(id)[:60]!r} has a value of the wrong type") from None


_ID_LISTS: Final = ("broader", "related", "types", "schemes")
_FIELDS: Final = frozenset(item.name for item in fields(Concept))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _strings(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError
    return tuple(map(_string, values))


class Concepts(Mapping[str, Concept]):
    """A vocabulary: id ↦ concept, in the order of the file. It never changes; changes return a new one.

    >>> concepts = Concepts.of([Concept("c1", {"en": "tea"}, broader=("c2",)), Concept("c2", {"en": "drinks"})])
    >>> concepts.name("c1"), concepts.name("c3"), concepts.narrower("c2"), sorted(concepts.members("branch:c2"))
    ('tea', 'c3', ('c1',), ['c1', 'c2'])
    """

    def __init__(self, concepts: Mapping[str, Concept]) -> None:
        self._concepts = concepts
        # What was asked for: the members of groups, and the labels of lists with groups in them.
        self._members: dict[str, frozenset[str]] = {}
        self._resolved: dict[frozenset[str], frozenset[str]] = {}

    @classmethod
    def of(cls, concepts: Iterable[Concept]) -> Concepts:
        """The vocabulary of these concepts; no two may have the same id."""
        found: dict[str, Concept] = {}
        for concept in concepts:
            if not concept.id or concept.id in found:
                raise DataError(
                    f"the concept {concept.id!r} is listed twice." if concept.id else "a concept has no id."
                )
            found[concept.id] = concept
        return cls(found)

    def __getitem__(self, id: str) -> Concept:
        return self._concepts[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._concepts)

    def __len__(self) -> int:
        return len(self._concepts)

    def __repr__(self) -> str:
        languages = [language or "no language" for language in self.languages]
        return f"<Concepts: {len(self):,} with names in {', '.join(languages) or 'no language'}>"

    def __deepcopy__(self, memo: Any) -> Concepts:
        return self  # it never changes, and scikit-learn's `clone` copies parameters deeply

    # --------------------------------------------------------------------------------------------------------- reading

    def name(self, id: str, *languages: str | None) -> str:
        """What people call a label, see `Concept.name`; the id itself if the vocabulary does not know it."""
        concept = self._concepts.get(id)
        return id if concept is None else concept.name(*languages)

    def named(self, ids: Iterable[str], *languages: str | None) -> dict[str, str]:
        """Id ↦ name for those of these labels that the vocabulary has a name for."""
        return {id: self[id].name(*languages) for id in ids if id in self and self[id].names}

    def texts(self, id: str) -> list[tuple[str, str, bool]]:
        """The names and synonyms of a label in all languages, see `Concept.texts`."""
        concept = self._concepts.get(id)
        return [] if concept is None else concept.texts()

    def narrower(self, id: str) -> tuple[str, ...]:
        """The ids of the concepts that have this one as a broader one."""
        return self._narrower.get(id, ())

    @cached_property
    def languages(self) -> list[str]:
        """The languages of the names, the most frequent first."""
        counts: dict[str, int] = {}
        for concept in self.values():
            for language in concept.names:
                counts[language] = counts.get(language, 0) + 1
        return sorted(counts, key=lambda language: (-counts[language], language))

    def language(self, *languages: str | None) -> str:
        """The first of these languages that the vocabulary has names in; else "", English or the most frequent.

        >>> Concepts.of([Concept("c1", {"de": "Tee", "en": "tea"})]).language("fr", "de-AT")
        'de'
        """
        tags = [language.lower() for language in languages if language]
        wanted = [*(part for tag in tags for part in (tag, tag.partition("-")[0])), "", "en"]
        return next((tag for tag in wanted if tag in self.languages), next(iter(self.languages), ""))

    @cached_property
    def _narrower(self) -> dict[str, tuple[str, ...]]:
        return _inverse(self.values(), lambda concept: concept.broader)

    @cached_property
    def _ids_by_name(self) -> dict[str, tuple[str, ...]]:
        return _inverse(self.values(), lambda concept: dict.fromkeys(map(_folded, concept.names.values())))

    def id_of(self, name: str) -> str | None:
        """The id of the only concept that has this preferred name, in any language and case; else None."""
        ids = self._ids_by_name.get(_folded(name), ())
        return ids[0] if len(ids) == 1 else None

    def path(self, id: str) -> tuple[str, ...]:
        """The concepts above this one, the broadest first, along the first broader one of each.

        >>> Concepts.of([Concept("c1"), Concept("c2", broader=("c1",)), Concept("c3", broader=("c2",))]).path("c3")
        ('c1', 'c2')
        """
        above = [id]
        while above[-1] in self and (next(iter(self[above[-1]].broader), id) not in above):
            above.append(self[above[-1]].broader[0])
        return tuple(above[:0:-1])

    # ------------------------------------------------------------------------------------------------------- selecting

    def members(self, group: str) -> frozenset[str]:
        """The ids of the concepts in a group: "type:URI", "scheme:URI" or "branch:ID"."""
        if group not in self._members:
            kind, _, name = group.partition(":")
            if kind not in GROUPS or not name:
                raise ParameterError(f"a group of concepts is type:URI, scheme:URI or branch:ID; got {group!r}.")
            self._members[group] = self._branch(name) if kind == "branch" else self._with(f"{kind}s", name)
        return self._members[group]

    def _with(self, attribute: str, name: str) -> frozenset[str]:
        return frozenset(concept.id for concept in self.values() if name in getattr(concept, attribute))

    def _branch(self, root: str) -> frozenset[str]:
        found, waiting = {root}, [root]
        while waiting:
            below = [id for id in self.narrower(waiting.pop()) if id not in found]
            found.update(below)
            waiting += below
        return frozenset(found)

    def resolved(self, names: Iterable[str]) -> frozenset[str]:
        """Ids of labels: those given, and the members of the groups among them."""
        given = frozenset(names)
        if given not in self._resolved:
            if len(self._resolved) >= _MAX_RESOLVED:
                self._resolved.clear()
            self._resolved[given] = given.union(*(self.members(name) for name in given if is_group(name)))
        return self._resolved[given]

    def only(self, include: Sequence[str] | None = None, exclude: Sequence[str] = ()) -> Concepts:
        """The concepts that `include` names, by ids or groups (None: all), without those that `exclude` names.

        >>> concepts = Concepts.of([Concept("c1", types=("Place",)), Concept("c2"), Concept("c3", broader=("c2",))])
        >>> list(concepts.only(exclude=["type:Place"])), list(concepts.only(["branch:c2"], exclude=["c3"]))
        (['c2', 'c3'], ['c2'])
        """
        kept = self.keys() if include is None else self.resolved(include)
        dropped = self.resolved(exclude)
        return Concepts({id: concept for id, concept in self.items() if id in kept and id not in dropped})

    # -------------------------------------------------------------------------------------------------------- changing

    def updated(self, other: Concepts) -> Concepts:
        """With the concepts of another vocabulary added; where both know an id, the other one's replaces this one's."""
        return Concepts({**self._concepts, **other._concepts})

    def renamed(self, old: str, new: str) -> Concepts:
        """After the label `old` was renamed to `new`, or merged into it.

        If the vocabulary knows both, `new` keeps what is said of it, and the names of `old` become synonyms. Concepts
        that referred to `old` refer to `new`.

        >>> concepts = Concepts.of([Concept("c1", {"en": "tea"}), Concept("c2", {"en": "chai"}, broader=("c1",))])
        >>> concepts.renamed("c1", "c9")["c2"].broader, concepts.renamed("c2", "c1")["c1"].synonyms
        (('c9',), {'en': ('chai',)})
        """
        if old not in self and old not in self._referred:
            return self
        concepts = dict(self._concepts)
        if old in concepts and new in concepts:
            concepts[new] = _joined(concepts[new], concepts.pop(old))
        changed = {}
        for id, concept in concepts.items():
            name = new if id == old else id
            changed[name] = concept
            if name == new or old in concept.broader or old in concept.related:
                broader, related = (_referring(ids, name, old, new) for ids in (concept.broader, concept.related))
                changed[name] = replace(concept, id=name, broader=broader, related=related)
        return Concepts(changed)

    @cached_property
    def _referred(self) -> frozenset[str]:
        """The ids that concepts refer to."""
        return frozenset(id for concept in self.values() for id in (*concept.broader, *concept.related))

    # --------------------------------------------------------------------------------------------------- save and load

    def to_json_lines(self) -> bytes:
        """One JSON object per line, see `Concept.to_json`."""
        lines = (json.dumps(concept.to_json(), ensure_ascii=False, separators=(",", ":")) for concept in self.values())
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")

    @classmethod
    def from_json_lines(cls, lines: bytes) -> Concepts:
        """The inverse of `to_json_lines`; ValueError for bytes that do not come from there."""
        text = lines.decode("utf-8", "surrogatepass")
        try:
            return cls.of(Concept.from_json(json.loads(line)) for line in text.split("\n") if line)
        except (DataError, RecursionError) as error:
            raise ValueError(str(error)) from None


def is_group(name: str) -> bool:
    """Whether a string is written as a group: "type:…", "scheme:…" or "branch:…".

    >>> is_group("branch:c2"), is_group("http://example.org/c2")
    (True, False)
    """
    kind, colon, rest = name.partition(":")
    return kind in GROUPS and bool(colon and rest)


def _inverse(concepts: Iterable[Concept], keys: Callable[[Concept], Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Key ↦ the ids of the concepts that have it."""
    found: dict[str, list[str]] = {}
    for concept in concepts:
        for key in keys(concept):
            found.setdefault(key, []).append(concept.id)
    return {key: tuple(ids) for key, ids in found.items()}


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _joined(concept: Concept, other: Concept) -> Concept:
    """A concept that also has the names and the place of another one, which is merged into it."""
    synonyms = {language: list(texts) for language, texts in concept.synonyms.items()}
    for language, text, _ in other.texts():
        texts = synonyms.setdefault(language, [])
        if text != concept.names.get(language) and text not in texts:
            texts.append(text)
    known = {language: tuple(texts) for language, texts in synonyms.items() if texts}
    broader, related = (
        tuple(dict.fromkeys(ids)) for ids in ((*concept.broader, *other.broader), (*concept.related, *other.related))
    )
    return replace(concept, synonyms=known, broader=broader, related=related)


def _referring(ids: tuple[str, ...], id: str, old: str, new: str) -> tuple[str, ...]:
    """Other concepts that a concept refers to, after one of them was renamed."""
    return tuple(dict.fromkeys(name for other in ids if (name := new if other == old else other) != id))
