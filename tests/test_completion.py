"""Completion of labels: the order of what is found, typing mistakes, and labels that come, go or are renamed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ripml.labels.concepts import Concept, Concepts
from ripml.labels.vocabulary import Vocabulary
from ripml.store import completion
from ripml.store.completion import LabelCompletion

LETTERS = "abcdé 界_-"


def vocabulary_of(labels: list[str]) -> Vocabulary:
    return Vocabulary.of(np.array([*labels, None], object)[:-1])


def some_labels(seed: int) -> list[str]:
    """Names of several lengths, some with a long common beginning."""
    rng = random.Random(seed)
    short = {"".join(rng.choices(LETTERS, k=rng.choice([1, 2, 3, 6, 9, 20, 30]))) for _ in range(150)}
    return sorted(short | {"a" * 24 + "".join(rng.choices("ab", k=rng.randint(0, 9))) for _ in range(30)} | {"Größe"})


def parts(name: str) -> list[str]:
    """A name, and what is left of it from each later word on."""
    name = name.casefold()
    return [name, *(name[i:] for i in range(1, len(name)) if name[i].isalnum() and not name[i - 1].isalnum())]


def in_order(labels: list[str], counts: Any, prefix: str) -> list[str]:
    """The labels that are called so, begin so, and have such a word, each by counts: the definition."""
    typed, found = prefix.casefold(), dict[str, None]()
    stages: tuple[Callable[[str], bool], ...] = (
        lambda name: parts(name)[0] == typed,
        lambda name: parts(name)[0].startswith(typed),
        lambda name: any(part.startswith(typed) for part in parts(name)[1:]),
    )
    for holds in stages:
        some = [i for i, name in enumerate(labels) if holds(name)]
        found |= dict.fromkeys(labels[i] for i in sorted(some, key=lambda i: (-counts[i], i)))
    return list(found)


def is_mistaken(name: str, typed: str) -> bool:
    """Whether a part of a name begins like a prefix but for one character more, less or other, or two exchanged."""

    def begins(part: str) -> bool:
        for i in range(len(typed)):
            wanted = {typed[:i] + typed[i + 1 :], typed[:i] + typed[i : i + 2][::-1] + typed[i + 2 :]}
            if i < len(part):
                wanted |= {typed[:i] + part[i] + typed[i + 1 :], typed[:i] + part[i] + typed[i:]}
            if any(part.startswith(prefix) for prefix in wanted):
                return True
        return False

    return any(map(begins, parts(name)))


def names(found: list[completion.LabelInfo]) -> list[str]:
    return [label.name for label in found]


@pytest.mark.parametrize("seed", range(4))
def test_exact_names_come_first_then_beginnings_then_words_each_by_frequency(seed: int) -> None:
    rng, labels = random.Random(seed), some_labels(seed)
    counts = np.array([rng.randrange(4) for _ in labels])
    complete = LabelCompletion(vocabulary_of(labels)).complete
    prefixes = [
        "",
        "a",
        "é",
        "界",
        "a" * 24,
        "a" * 25 + "b",
        "gröss",
        *("".join(rng.choices(LETTERS, k=2)) for _ in range(40)),
    ]
    for prefix in [*prefixes, *rng.sample(labels, 20)]:
        expected = in_order(labels, counts, prefix)
        assert names(complete(prefix, 1000, counts)) == expected or not expected
        assert names(complete(prefix, 3, counts)) == expected[:3] or not expected


@pytest.mark.parametrize("seed", range(4))
def test_one_typing_mistake_is_forgiven_where_nothing_else_is_found(seed: int) -> None:
    rng, labels = random.Random(seed), some_labels(seed)
    counts, n_found = np.ones(len(labels), np.int64), 0
    complete = LabelCompletion(vocabulary_of(labels)).complete
    for _ in range(60):
        typed = "".join(rng.choices("abcdé界", k=rng.randint(4, 6)))
        if not in_order(labels, counts, typed):
            expected = {name for name in labels if is_mistaken(name, typed)}
            assert set(names(complete(typed, 1000, counts))) == expected
            n_found += bool(expected)
    assert n_found > 5


def test_a_short_prefix_may_not_be_mistaken() -> None:
    complete = LabelCompletion(vocabulary_of(["green tea"])).complete
    assert names(complete("grx", 5, np.array([1]))) == []
    assert names(complete("grxe", 5, np.array([1]))) == ["green tea"]


def test_the_most_frequent_are_found_among_many_labels_that_have_several_names() -> None:
    concepts = Concepts.of(
        [Concept(f"c{i}", {"en": f"tea {i}"}, {"en": tuple(f"tea {i} {j}" for j in range(30))}) for i in range(50)]
    )
    vocabulary, counts = vocabulary_of(list(concepts)), np.arange(50)
    complete = LabelCompletion(vocabulary, concepts, "en").complete
    assert names(complete("tea", 5, counts)) == ["c49", "c48", "c47", "c46", "c45"]


@pytest.mark.parametrize("with_concepts", [False, True])
@pytest.mark.parametrize("recent", [0, 4096])
def test_labels_that_come_go_or_are_renamed_are_found_as_by_a_new_index(
    with_concepts: bool, recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "_RECENT", recent)
    rng, labels = random.Random(0), some_labels(0)
    known = [Concept(id, {"en": f"name of {id}"}) for id in (*labels[::3], "unknown 1", "unknown 2")]
    concepts = Concepts.of(known) if with_concepts else None
    vocabulary = vocabulary_of(labels)
    found = LabelCompletion(vocabulary, concepts, "en")
    for step in range(12):
        if step % 3 == 0:
            vocabulary = vocabulary.added([f"new {step}", *(["unknown 1"] if step == 6 else [])])
        elif step % 3 == 1:
            old = rng.choice(vocabulary.names.tolist())
            vocabulary = vocabulary.renamed(old, f"renamed {step}").with_retired(f"renamed {step}", True)
        else:
            vocabulary = vocabulary.kept(np.delete(np.arange(len(vocabulary)), rng.sample(range(len(vocabulary)), 2)))
        found = found.current(vocabulary, concepts)
        assert found.current(vocabulary, concepts) is found
        fresh = LabelCompletion(vocabulary, concepts, "en")
        counts = np.array([rng.randrange(1000) * 1000 + i for i in range(len(vocabulary))])
        for prefix in ("", "new", "renamed", "name of", "unknown", "a", "界", "renaned"):
            one, other = (some.complete(prefix, 1000, counts) for some in (found, fresh))
            assert sorted(one, key=str) == sorted(other, key=str)
            assert [info for info in one if info.count] == [info for info in other if info.count]


def test_other_concepts_are_found_by_their_names() -> None:
    vocabulary, counts = vocabulary_of(["c1"]), np.array([1])
    found = LabelCompletion(vocabulary, Concepts.of([Concept("c1", {"en": "tea"})]), "en")
    assert names(found.complete("tea", 5, counts)) == ["c1"]
    other = found.current(vocabulary, Concepts.of([Concept("c1", {"en": "coffee"})]))
    assert (names(other.complete("tea", 5, counts)), names(other.complete("coff", 5, counts))) == ([], ["c1"])
