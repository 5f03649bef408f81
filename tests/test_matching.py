"""Names found in texts: what counts as standing in a text, where, and how often."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ripml.base.errors import MissingExtraError
from ripml.text import languages
from ripml.text.languages import detect_language
from ripml.text.matching import Matches, Name, NameMatcher
from ripml.text.name_parts import Spelling, runs_of
from ripml.text.tokens import tokens

pytest.importorskip("Stemmer")
pytest.importorskip("py3langid")

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


def lines(matches: Matches) -> list[list[float]]:
    """What is known of each match."""
    columns = (getattr(matches, field.name) for field in fields(matches) if field.name not in ("ends", "lengths"))
    return [list(map(float, line)) for line in zip(*columns, strict=True)]


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
    together, alone = matcher.find(texts, 2), [matcher.find([text], 2) for text in texts]
    assert lines(together) == [line for one in alone for line in lines(one)]
    assert together.lengths.tolist() == [int(one.lengths[0]) for one in alone]


def test_the_places_of_the_words_of_a_label() -> None:
    text = "Red&nbsp;tea? Blue tea. <b>Teas</b>, red"
    matcher = NameMatcher(names("red tea"))
    assert [text[a:b] for a, b in matcher.places_of_label(text, 0)] == ["Red", "tea", "Teas", "red"]


@settings(deadline=None, max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=12), SENTENCES)
def test_compiled_loops_find_what_numpy_finds(words: list[list[str]], sentences: list[list[str]]) -> None:
    matcher = NameMatcher(names(*map(" ".join, words)))
    text = ". ".join(map(" ".join, sentences))
    compiled = matcher.find([text, text], 3)
    with (
        patch("ripml.text.matching.loops", return_value=None),
        patch("ripml.text.name_parts.loops", return_value=None),
    ):
        plain = matcher.find([text, text], 3)
    assert lines(plain) == lines(compiled)


def test_names_of_which_a_text_has_some_words_come_after_whole_ones() -> None:
    matcher = NameMatcher(names("red tea", "tea", "red cup", "sun"))
    matches = matcher.find(["Red, red tea"], n_partly=5)
    assert matches.names.tolist() == [0, 1, 2]
    assert matches.count.tolist() == [1, 1, 0]
    assert matches.cover[:2].tolist() == [1, 1]
    assert 0 < matches.cover[2] < 1
    assert (matches.likeness > 0).all()
    assert matcher.find(["Red, red tea"]).names.tolist() == [0, 1]


@given(st.lists(WORDS, min_size=1, max_size=12), SENTENCES, st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_cover_and_likeness_by_their_formulas(given_names: list[list[str]], sentences: Any, n_partly: int) -> None:
    matcher = NameMatcher(names(*(" ".join(name) for name in given_names)))
    text = ". ".join(" ".join(sentence) for sentence in sentences)
    distinct = list({frozenset(name): None for name in given_names})
    weight = {
        word: np.log1p(len(distinct) / sum(word in name for name in distinct)) / np.log1p(len(distinct))
        for name in distinct
        for word in name
    }
    count = Counter(word for sentence in sentences for word in sentence)
    n_tokens = len(set(tokens(text.replace(". ", " _ "))))

    def formulas(name: frozenset[str]) -> tuple[float, float]:
        there = [word for word in name if count[word]]
        product = sum(weight[word] ** 2 * (1 + np.log(count[word])) for word in there)
        length = np.sqrt(sum(weight[word] ** 2 for word in name) * max(n_tokens, 1))
        return sum(weight[word] for word in there) / sum(weight[word] for word in name), float(product / length)

    found = matcher.find([text, text], n_partly)
    half = len(found.names) // 2
    assert found.names[:half].tolist() == found.names[half:].tolist(), "no text leaves a trace"
    for i in range(half):
        assert (found.cover[i], found.likeness[i]) == pytest.approx(formulas(distinct[found.names[i]]))
    whole = found.count[:half] > 0
    score = found.likeness[:half] + found.cover[:half] / 2
    others = [sum(formulas(name)) for name in distinct]
    partly = [n for n, name in enumerate(distinct) if others[n] > 0 and n not in found.names[:half][whole]]
    assert np.count_nonzero(~whole) >= min(n_partly, len(partly))
    assert np.count_nonzero(~whole & (score == 0)) <= n_partly, "those that are only spelled alike"
    assert (np.diff(score[~whole][:n_partly]) <= 1e-12).all()


def test_words_that_most_texts_have_make_a_name_less_alike() -> None:
    matcher = NameMatcher(names("theory of matter", "state of rest"))
    weighted = matcher.weighted({"of": 0.9, "theories": 0.05, "theory": 0.05, "rest": 0.4})
    plain, rare = (some.find(["The rest of it", "A theory"], 2) for some in (matcher, weighted))
    assert plain.names.tolist() == rare.names.tolist() == [1, 0, 0]
    # "of" and "rest" stand in many texts, "theory" in few, and "matter" and "state" in none.
    assert (rare.cover > plain.cover).tolist() == [False, False, True]
    assert rare.likeness[1] / rare.likeness[2] < 0.5 * plain.likeness[1] / plain.likeness[2]
    assert lines(matcher.weighted(None).find(["The rest of it"], 2)) == lines(matcher.find(["The rest of it"], 2))


@given(SENTENCES)
def test_how_rare_words_are_does_not_change_which_names_stand_in_a_text(sentences: list[list[str]]) -> None:
    text = ". ".join(" ".join(sentence) for sentence in sentences)
    matcher = NameMatcher(names("red tea", "cup", "sun of leaf"))
    assert [line[:5] for line in lines(matcher.weighted({"tea": 0.5, "of": 0.9}).find([text]))] == [
        line[:5] for line in lines(matcher.find([text]))
    ]


# -------------------------------------------------------------------------------------------------- several languages

BILINGUAL = [
    Name(0, "en", "die", True),
    Name(1, "en", "house", True),
    Name(1, "de", "Haus", True),
    Name(2, "de", "großer Würfel", True),
    Name(3, "", "ISO 9001", True),
    Name(4, "tlh", "nuq", True),
    Name(5, "de-AT", "Paradeiser", True),
]
GERMAN = "Die Würfel in diesem Haus waren größer als die Paradeiser. Nuq, nach der Norm ISO 9001."
ENGLISH = "All that is in this house was cast with a die of the norm ISO 9001, and not with a Haus or a nuq."
UNSURE = [
    "",
    "die",
    "9001",
    "9001 9001 9001 9001",
    "house Haus",
    "Les dés de cette maison sont conformes à la norme ISO 9001",
    "這個房子 die",
]


def test_names_in_other_languages_than_that_of_the_text_are_not_looked_for() -> None:
    matcher = NameMatcher(BILINGUAL)
    assert matcher.languages_for(GERMAN) == ["de", "", "tlh", "de-AT"]
    assert found(matcher, GERMAN) == [1, 2, 3, 4, 5]
    assert matcher.languages_for(ENGLISH) == ["en", "", "tlh"]
    assert found(matcher, ENGLISH) == [0, 1, 3, 4]


def test_names_in_the_language_of_the_text_are_found_as_if_there_were_no_others() -> None:
    both, german = (NameMatcher(some) for some in (BILINGUAL, [name for name in BILINGUAL if name.language != "en"]))
    mine, theirs = (some.find([GERMAN]) for some in (both, german))
    assert both.labels[mine.names].tolist() == german.labels[theirs.names].tolist()
    assert [line[1:5] for line in lines(mine)] == [line[1:5] for line in lines(theirs)]


@pytest.mark.parametrize("text", UNSURE)
def test_all_names_are_looked_for_where_the_language_is_not_certain(text: str) -> None:
    matcher = NameMatcher(BILINGUAL)
    assert matcher.languages_for(text) == matcher.languages
    with patch("ripml.text.matching.detect_language", return_value=None):
        undetected = matcher.find([text], 5)
    assert lines(matcher.find([text], 5)) == lines(undetected)


@pytest.mark.parametrize("codes", [["en"], ["en", ""], ["en", "en-GB"], [""]])
def test_nothing_is_detected_where_names_are_in_one_language(codes: list[str]) -> None:
    with patch("ripml.text.languages._identifier", side_effect=AssertionError):
        matcher = NameMatcher(Name(0, code, "die", True) for code in codes)
        assert len(matcher.find([GERMAN]).names) == len(codes)


def test_the_language_of_a_text_may_be_that_of_names_which_another_matcher_looks_for() -> None:
    names = [Name(0, "en", "die", True)]
    assert found(NameMatcher(names), GERMAN) == [0]
    assert found(NameMatcher(names, ["de"]), GERMAN) == []
    assert found(NameMatcher(names, ["de"]), ENGLISH) == [0]


def test_the_language_of_a_text_alone_is_that_in_a_batch() -> None:
    matcher, texts = NameMatcher(BILINGUAL), [GERMAN, *UNSURE, ENGLISH, GERMAN]
    together, alone = matcher.find(texts, 3), [NameMatcher(BILINGUAL).find([text], 3) for text in texts]
    assert lines(together) == [line for one in alone for line in lines(one)]


@given(st.text(max_size=200), st.sets(st.sampled_from(["bg", "de", "en", "mt", "zh"]), min_size=2))
@settings(max_examples=60, deadline=None)
def test_any_text_has_one_of_the_languages_or_none(text: str, codes: set[str]) -> None:
    language = detect_language(tokens(text), codes)
    assert language is None or language in codes
    assert detect_language(tokens(text), sorted(codes)) == language


def test_names_in_several_languages_need_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages, "_identifier", languages._identifier.__wrapped__)  # not the one that is loaded
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(
        MissingExtraError, match=r"py3langid is needed for this; install it with: pip install 'ripml\[words\]'"
    ):
        NameMatcher(BILINGUAL)
    assert found(NameMatcher(names("tea")), "Teas") == [0]


# ----------------------------------------------------------------------------------------------------------- spelling


def test_names_that_are_spelled_alike_are_found_without_a_common_word() -> None:
    matcher = NameMatcher(names("photovoltaics", "heat pump", "tea", "computer aided design"))
    matches = matcher.find(["Photovoltaische Wärmepumpen"], 2)
    assert matches.names.tolist() == [0, 1]
    assert matches.count.tolist() == [0, 0]
    assert matches.cover.tolist() == [0, 0]
    assert (np.diff(matches.spelling) < 0).all()
    assert matches.spelling[-1] > 0
    assert not len(matcher.find(["Photovoltaische Wärmepumpen"]).names)


@given(st.lists(WORDS, min_size=1, max_size=12), SENTENCES, st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_spelling_by_its_formula(given_names: list[list[str]], sentences: Any, n: int) -> None:
    distinct = list({frozenset(name): None for name in given_names})
    spelling = Spelling(("", sorted(name)) for name in distinct)
    shares = {"tea": 0.5, "tear": 0.25, "of": 0.9, "cups": 0.1}
    weighted = spelling.only(np.ones(len(distinct), bool), shares)
    words = [word for sentence in sentences for word in sentence]
    in_texts = Counter[str]()
    for word, share in shares.items():
        in_texts.update(dict.fromkeys(runs_of(word), share))

    def weight(run: str) -> float:
        return 1.0 if run not in in_texts else max(np.log(min(in_texts[run], 1)) / np.log(0.1), 0.01)

    count = Counter(run for word in words for run in runs_of(word))
    n_runs = max(sum(len(runs_of(word)) for word in set(words)), 1)

    def formula(name: frozenset[str]) -> float:
        runs = {run for word in name for run in runs_of(word)}
        product = sum(weight(run) ** 2 * (1 + np.log(count[run])) for run in runs if count[run])
        return float(product / np.sqrt(n_runs * sum(weight(run) ** 2 for run in runs)))

    text = weighted.text(words, [""])
    likeness = weighted.likeness(text, np.arange(len(distinct)))
    assert likeness.tolist() == pytest.approx([formula(name) for name in distinct])
    found = weighted.most_alike(text, n, np.arange(len(distinct)), np.zeros((len(distinct), 2)))
    assert len(found) == min(n, np.count_nonzero(likeness))
    assert sorted(likeness[found], reverse=True) == pytest.approx(sorted(likeness, reverse=True)[: len(found)])


def test_the_rarest_runs_of_a_text_are_read_first() -> None:
    common = [("", ["station" + "abcdefghij"[i % 10]]) for i in range(200)]
    spelling = Spelling([*common, ("", ["zeppelin"])])
    text = spelling.text(["stations", "zeppelins"], [""])
    everything = spelling.most_alike(text, 3, np.arange(201), np.zeros((201, 2)))
    with patch("ripml.text.name_parts._MOST_READ", 20):
        some = spelling.most_alike(text, 3, np.arange(201), np.zeros((201, 2)))
    assert len(everything) == 3
    assert some.tolist() == [200]
    assert spelling.likeness(text, some) == spelling.likeness(text, np.array([200]))


def test_spelling_is_compared_with_names_in_the_language_of_the_text() -> None:
    bilingual = [Name(0, "de", "Heizwärmepumpe", True), Name(1, "en", "warmepumper", True)]
    text = "Die Wärmepumpen in diesem Haus waren größer als alle, die ich bis heute gesehen habe"
    matcher = NameMatcher(bilingual)
    assert matcher.labels[matcher.find([text], 3).names].tolist() == [0]
    with patch("ripml.text.matching.detect_language", return_value=None):
        assert sorted(matcher.labels[matcher.find([text], 3).names].tolist()) == [0, 1]
