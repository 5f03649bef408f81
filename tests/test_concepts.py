"""Concepts: names by language, groups, and what happens to them when labels are renamed or merged."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ripml.base.errors import DataError, ParameterError
from ripml.labels.concepts import Concept, Concepts, is_group

DRINKS = Concepts.of(
    [
        Concept("drinks", {"en": "drinks", "de": "Getränke"}),
        Concept("hot", {"en": "hot drinks"}, broader=("drinks",), schemes=("menu",)),
        Concept("tea", {"en": "tea", "de": "Tee"}, {"en": ("cha",)}, ("hot",), ("cup",), types=("Plant",)),
        Concept("cup", {"": "cup"}, related=("tea",), notation="C1"),
    ]
)


def test_a_name_is_in_the_first_language_that_has_one_then_without_language_then_english_then_any() -> None:
    names = {"fr": "thé", "en": "tea", "pt-br": "chá"}
    assert Concept("c", names).name("de", "fr") == "thé"
    assert Concept("c", names).name("FR-ca") == "thé"
    assert Concept("c", names).name("pt-BR") == "chá"
    assert Concept("c", names).name("pt") == "tea"
    assert Concept("c", names).name(None) == "tea"
    assert Concept("c", {"": "none", "en": "tea"}).name("de") == "none"
    assert Concept("c", {"fi": "tee", "sv": "te"}).name("de") == "tee"
    assert Concept("c").name("de") == "c"
    assert DRINKS.name("tea", "de") == "Tee"
    assert DRINKS.name("unknown", "de") == "unknown"


def test_only_labels_with_names_are_named() -> None:
    concepts = DRINKS.updated(Concepts.of([Concept("nameless")]))
    assert concepts.named(["tea", "nameless", "unknown"], "de") == {"tea": "Tee"}
    assert concepts.texts("tea") == [("en", "tea", True), ("de", "Tee", True), ("en", "cha", False)]
    assert concepts.texts("unknown") == []


def test_a_name_of_one_concept_alone_leads_to_its_id() -> None:
    concepts = DRINKS.updated(Concepts.of([Concept("other", {"en": "hot  Drinks"})]))
    assert [concepts.id_of(name) for name in ("TEE", "cha", "hot drinks", "")] == ["tea", None, None, None]


def test_the_language_in_use_is_one_that_the_vocabulary_has() -> None:
    assert DRINKS.language("fr", "de-CH", "en") == "de"
    assert DRINKS.language("fr") == ""
    assert Concepts.of([Concept("c", {"fi": "tee", "sv": "te"}), Concept("d", {"sv": "öl"})]).language("fr") == "sv"
    assert Concepts.of([Concept("c")]).language("fr") == ""
    assert DRINKS.languages == ["en", "de", ""]


def test_a_group_has_the_concepts_of_a_type_a_scheme_or_a_branch() -> None:
    assert DRINKS.members("type:Plant") == {"tea"}
    assert DRINKS.members("scheme:menu") == {"hot"}
    assert DRINKS.members("branch:drinks") == {"drinks", "hot", "tea"}
    assert DRINKS.members("branch:unknown") == {"unknown"}
    assert DRINKS.members("type:unknown") == set()
    assert [is_group(name) for name in ("type:x", "branch:", "http://x", "branch")] == [True, False, False, False]
    with pytest.raises(
        ParameterError, match=r"^a group of concepts is type:URI, scheme:URI or branch:ID; got 'kind:x'"
    ):
        DRINKS.members("kind:x")


def test_a_branch_ends_where_broader_terms_form_a_circle() -> None:
    circle = Concepts.of([Concept("a", broader=("b",)), Concept("b", broader=("a",)), Concept("c", broader=("a",))])
    assert circle.members("branch:b") == {"a", "b", "c"}


def test_concepts_are_selected_by_ids_and_groups() -> None:
    assert list(DRINKS.only(["branch:hot", "cup"])) == ["hot", "tea", "cup"]
    assert list(DRINKS.only(exclude=["type:Plant", "drinks"])) == ["hot", "cup"]
    assert list(DRINKS.only(["branch:drinks"], ["scheme:menu"])) == ["drinks", "tea"]
    assert DRINKS.only() == DRINKS


def test_a_renamed_label_keeps_its_concept_and_others_refer_to_it_by_the_new_id() -> None:
    renamed = DRINKS.renamed("hot", "warm")
    assert list(renamed) == ["drinks", "warm", "tea", "cup"]
    assert renamed["warm"].names == {"en": "hot drinks"}
    assert renamed.narrower("warm") == ("tea",)
    assert DRINKS.narrower("hot") == ("tea",), "the old value is what it was"
    assert DRINKS.renamed("unknown", "x") is DRINKS


def test_the_names_of_a_merged_label_become_synonyms_and_it_is_gone() -> None:
    merged = DRINKS.renamed("tea", "hot")
    assert "tea" not in merged
    assert merged["hot"].names == {"en": "hot drinks"}
    assert merged["hot"].synonyms == {"en": ("tea", "cha"), "de": ("Tee",)}
    assert merged["hot"].broader == ("drinks",), "not itself"
    assert merged["cup"].related == ("hot",)


def test_a_concept_that_others_refer_to_can_be_unknown() -> None:
    concepts = Concepts.of([Concept("a", broader=("top",))]).renamed("top", "root")
    assert concepts["a"].broader == ("root",)
    assert concepts.members("branch:root") == {"root", "a"}


def test_an_id_is_there_once() -> None:
    with pytest.raises(DataError, match=r"^the concept 'a' is listed twice\.$"):
        Concepts.of([Concept("a"), Concept("a")])
    with pytest.raises(DataError, match=r"^a concept has no id\.$"):
        Concepts.of([Concept("")])


def test_a_vocabulary_is_a_value() -> None:
    assert copy.deepcopy(DRINKS) is DRINKS
    assert DRINKS.updated(Concepts.of([Concept("tea", {"en": "green tea"})])).name("tea") == "green tea"
    assert DRINKS.name("tea") == "tea"
    assert repr(DRINKS) == "<Concepts: 4 in en, de, >"


strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
languages = st.sampled_from(["", "en", "de", "pt-br"])
some = st.lists(strings, max_size=3).map(tuple)


@st.composite
def concepts(draw: st.DrawFn) -> Concepts:
    ids = draw(st.lists(strings.filter(bool), unique=True, max_size=4))
    return Concepts.of(
        Concept(
            id,
            draw(st.dictionaries(languages, strings, max_size=3)),
            draw(st.dictionaries(languages, some.filter(bool), max_size=2)),
            draw(some),
            draw(some),
            draw(strings | st.none()),
            draw(some),
            draw(some),
        )
        for id in ids
    )


@settings(max_examples=60, deadline=None)
@given(given=concepts())
def test_json_lines_read_back_the_same(given: Concepts) -> None:
    back = Concepts.from_json_lines(given.to_json_lines())
    assert back == given
    assert list(back) == list(given)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'{"id":"a"}\n{"id":"a"}\n', "listed twice"),
        (b'{"id":""}\n', "has no id"),
        (b'{"id":1}\n', "has a value of the wrong type"),
        (b'{"id":"a","names":{"en":["x"]}}\n', "has a value of the wrong type"),
        (b'{"id":"a","broader":"b"}\n', "has a value of the wrong type"),
        (b'{"id":"a","colour":"red"}\n', "must be an object with"),
        (b"[]\n", "must be an object with"),
        (b"{\n", "Expecting"),
        (b"\xff\n", "invalid start byte"),
    ],
)
def test_other_lines_are_refused(lines: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Concepts.from_json_lines(lines)
