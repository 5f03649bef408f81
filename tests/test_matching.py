"""Names found in texts: what counts as standing in a text, where, and how often."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ripml.text.matching import Matches, Name, NameMatcher

pytest.importorskip("Stemmer")

WORDS = st.lists(st.sampled_from(["tea", "red", "cup", "leaf", "sun"]), min_size=1, max_size=3, unique=True)
SENTENCES = st.lists(st.lists(st.sampled_from(["tea", "red", "cup", "leaf", "sun", "of"]), max_size=8), max_size=4)


def names(*texts: str, language: str = "en") -> list[Name]:
    return [Name(number, language, text, True) for number, text in enumerate(texts)]


def found(matcher: NameMatcher, text: str) -> list[int]:
    """The labels with a name in a text."""
    matches = matcher.find([text])
    return sorted(
        {int(label) for name in matches.names for label in matcher.labels[slice(*matcher.label_ends[name:][:2])]}
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Airport construction", "Constructing airports"),
        ("construction of airports", "of the airport's construction"),
        ("Lock (device)", "Two locks."),
        ("Lock (device)", "A locking device"),
        ("Café", "CAFÉ"),
        ("C++", "c++ and others"),
    ],
)
def test_a_name_is_found_in_any_order_and_inflected_form(name: str, text: str) -> None:
    assert found(NameMatcher(names(name)), text) == [0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Airport construction", "The airport. Its construction."),
        ("Airport construction", "airport\nconstruction"),
        ("Airport construction", "an airport"),
        ("art", "party"),
        ("", "anything"),
        ("(of)", "art"),
    ],
)
def test_a_name_is_not_found_across_sentences_or_within_words(name: str, text: str) -> None:
    assert found(NameMatcher(names(name)), text) == []


def test_stems_are_those_of_the_language_of_a_name() -> None:
    german = NameMatcher(names("Häuser", "Gleichung", language="de"))
    assert found(german, "Das Haus und die Gleichungen") == [0, 1]
    assert found(NameMatcher(names("Häuser", language="xx")), "Das Haus") == []
    both = NameMatcher([Name(0, "en", "nations", True), Name(1, "de", "Nationen", True)])
    assert both.languages == ["en", "de"]
    assert found(both, "a nation") == [0, 1]
    assert found(both, "die Nationen") == [1]


def test_scripts_without_spaces_need_no_words() -> None:
    matcher = NameMatcher(names("腾讯", "财报", language="zh"))
    assert found(matcher, "腾讯发布。财务") == [0]


def test_labels_may_share_a_name_and_have_several() -> None:
    matcher = NameMatcher([Name(0, "en", "bank", True), Name(1, "en", "banks", True), Name(1, "en", "shore", False)])
    assert found(matcher, "a bank") == [0, 1]
    assert found(matcher, "the shores") == [1]
    assert matcher.n_labels.tolist() == [2, 1]
    assert matcher.preferred.tolist() == [True, True, False]


def test_what_is_said_of_a_match() -> None:
    matches = NameMatcher(names("red tea", "cup")).find(["A cup of tea, so red, with red tea. Red", "tea", "a cup"])
    assert matches.ends.tolist() == [0, 2, 2, 3]
    assert matches.rows.tolist() == [0, 0, 2]
    assert matches.count.tolist() == [2, 1, 1]
    assert matches.first.tolist() == [3, 1, 1]
    assert matches.last.tolist() == [8, 1, 1]
    assert matches.width.tolist() == [2, 1, 1]


@settings(deadline=None, max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=8), SENTENCES)
def test_a_name_stands_where_one_sentence_has_all_its_words(words: list[list[str]], sentences: list[list[str]]) -> None:
    matcher = NameMatcher(names(*map(" ".join, words)))
    text = ". ".join(map(" ".join, sentences))
    stems = {"leaf": "leaf"}
    expected = [
        number
        for number, name in enumerate(words)
        if any({stems.get(word, word) for word in name} <= set(sentence) for sentence in sentences)
    ]
    assert found(matcher, text) == expected


def test_a_text_alone_is_as_in_a_batch() -> None:
    matcher = NameMatcher(names("red tea", "cup", "leaf"))
    texts = ["Red tea in a cup", "", "leaf by leaf. Red", "cups of red tea"]
    together, alone = matcher.find(texts), [matcher.find([text]) for text in texts]

    def lines(matches: Matches) -> list[list[int]]:
        columns = (matches.names, matches.count, matches.first, matches.last, matches.width)
        return [list(map(int, line)) for line in zip(*columns, strict=True)]

    assert lines(together) == [line for one in alone for line in lines(one)]
    assert together.lengths.tolist() == [int(one.lengths[0]) for one in alone]


def test_the_places_of_the_words_of_a_label() -> None:
    text = "Red&nbsp;tea? Blue tea. <b>Teas</b>, red"
    matcher = NameMatcher(names("red tea"))
    assert [text[a:b] for a, b in matcher.places_of_label(text, 0)] == ["Red", "tea", "Teas", "red"]
