"""Titles of texts: what they are, and that their words have a weight of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ripml import RIPML, Tagger, load
from ripml.base.errors import DataError, ParameterError
from ripml.baselines import PLST
from ripml.text import TfIdf, Title, Views
from ripml.text.title import title_of

WORDS = [
    f"{a}{b}" for a in ("ba", "de", "fi", "go", "lu", "mo", "ra", "su", "ti", "ve") for b in ("nk", "rt", "sp", "lm")
]


def titled_world(n: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Texts whose label is a word of their title; all words are equally frequent in the lines below it."""
    random = np.random.default_rng(seed)
    texts, tags = [], []
    for _ in range(n):
        label, second = str(random.choice(WORDS[:12])), str(random.choice(WORDS[12:]))
        texts.append(f"{label} {second}\n" + " ".join(random.choice(WORDS, 40).tolist()))
        tags.append([f"about {label}"])
    return texts, tags


def test_a_title_is_the_first_line_that_is_not_blank() -> None:
    assert title_of(" \n\n Airports and ports \nThey are built.") == "Airports and ports"
    assert title_of("Airports") == "Airports"
    assert title_of("") == title_of(" \n") == ""


def test_lines_without_a_word_are_no_title() -> None:
    assert title_of("---\n***\n<!DOCTYPE html>\n<h1>Airports</h1>\nThey are built.") == "<h1>Airports</h1>"
    assert title_of("---\n") == "---"


@pytest.mark.parametrize("first", ["---", "<html>", "id-{}"])
def test_texts_whose_titles_say_nothing_are_learnt_all_the_same(first: str, tmp_path: Path) -> None:
    texts = [f"{first.format(i)}\n" + ("red apple" if i % 2 else "blue sky") for i in range(24)]
    tags = [["fruit" if i % 2 else "weather"] for i in range(24)]
    fitted = Tagger().fit(texts, tags)
    assert fitted.suggest("an apple", n=1)[0][0] == "fruit"
    fitted.save(tmp_path / "model")
    assert load(tmp_path / "model").suggest("an apple", n=1)[0][0] == "fruit"


def test_titles_alone_need_a_word_that_some_of_them_share() -> None:
    texts = [f"unique{i}\nred apple" for i in range(24)]
    with pytest.raises(DataError, match="titles, the first lines of texts: no word occurs in at least min_df = 2"):
        Tagger(features="title").fit(texts, [["fruit"]] * 24)


def test_a_long_line_is_cut_between_words_or_anywhere_if_it_has_no_spaces() -> None:
    cut = title_of("terminal " * 80)
    assert 390 < len(cut) <= 400
    assert set(cut.split()) == {"terminal"}
    assert title_of("a" * 400 + " b") == "a" * 400
    assert title_of("机" * 500) == "机" * 400
    assert title_of("Python " + "机" * 500) == "Python " + "机" * 393


def test_features_of_titles_do_not_depend_on_the_lines_below() -> None:
    titles = Title(min_df=1).fit(["red tea\ngreen", "green tea\nblack"])
    assert titles.feature_names == ["green", "red", "tea"]
    one, other = titles.transform(["red tea\nwith milk and green sugar"]), titles.transform(["red tea"])
    assert (one != other).nnz == 0


def test_words_of_titles_have_a_weight_of_their_own() -> None:
    texts, tags = titled_world(600, 0)
    asked, truth = titled_world(200, 1)

    def precision(features: str) -> float:
        suggested = Tagger(features=features).fit(texts, tags).suggest_many(asked, n=1)
        return float(np.mean([row[0][0] in right for row, right in zip(suggested, truth, strict=True)]))

    assert precision("auto") > 0.97
    assert precision("tfidf") < 0.9


def test_titles_that_say_nothing_are_left_out() -> None:
    random = np.random.default_rng(0)
    texts = [
        " ".join(random.choice(WORDS, 8).tolist())
        + "\n"
        + " ".join(random.choice(WORDS[20 * (i % 2) :][:20], 30).tolist())
        for i in range(400)
    ]
    tagger = Tagger().fit(texts, [[f"kind {i % 2}"] for i in range(400)])
    assert tagger.documents_.model.scaling_.shares[1] <= 0.1


def test_models_that_cannot_weigh_titles_count_the_words_of_texts_alone() -> None:
    texts, tags = titled_world(60, 0)
    for model in (RIPML.paper(n_dims=8), PLST(4)):
        text = Tagger(model=model).fit(texts, tags).documents_.text
        assert isinstance(text, TfIdf)
        assert not isinstance(text, Title)
    assert isinstance(Tagger().fit(texts, tags).documents_.text, Views)


def test_what_is_learnt_with_a_title_is_forgotten_with_it() -> None:
    texts, tags = titled_world(120, 0)
    fitted = Tagger().fit(texts[:100], tags[:100])
    before = fitted.documents_.model.decision_function(fitted.documents_.features_of(texts))
    fitted.learn(texts[100:], tags[100:]).forget(texts[100:])
    after = fitted.documents_.model.decision_function(fitted.documents_.features_of(texts))
    assert abs(before - after).max() < 1e-4


def test_a_saved_tagger_reads_titles_as_before(tmp_path: Path) -> None:
    texts, tags = titled_world(80, 0)
    fitted = Tagger().fit(texts, tags)
    fitted.save(tmp_path / "model")
    assert load(tmp_path / "model").suggest_many(texts[:10]) == fitted.suggest_many(texts[:10])


def test_an_explanation_marks_words_of_the_title_as_such_and_at_their_places() -> None:
    texts, tags = titled_world(300, 0)
    asked = "\n" + texts[0]
    why = Tagger().fit(texts, tags).explain(asked, n=1)[0]
    word = tags[0][0].removeprefix("about ")
    assert f"{word} (title)" in [name for name, _ in why.features]
    start, end, _ = max(why.spans, key=lambda span: span[2])
    assert asked[start:end] == word


def test_a_text_that_is_nothing_but_a_title_has_each_word_once_in_its_explanation() -> None:
    texts, tags = titled_world(300, 0)
    tagger = Tagger().fit(texts, tags)
    line = texts[0].partition("\n")[0]
    why = tagger.explain(line, n=1, n_features=100)[0]
    names = [name for name, _ in why.features]
    assert line.split()[0] in names
    assert not any(name.endswith("(title)") for name in names)
    pulls = [abs(pull) for _, pull in why.features]
    assert pulls == sorted(pulls, reverse=True)
    whole = sum(pull for _, pull in tagger.explain(line + "\n ", n=1, n_features=1000)[0].features)
    assert sum(pull for _, pull in why.features) == pytest.approx(whole)
    assert why.value == pytest.approx(whole + why.intercept, abs=1e-4)


def test_nested_views_stand_side_by_side() -> None:
    views = Views([Views([TfIdf(min_df=1), Title(min_df=1)]), TfIdf(min_df=1, letters=3)])
    assert [part.kind for part in views.parts] == ["tfidf", "title", "tfidf"]
    with pytest.raises(ParameterError, match="several kinds of features are needed"):
        Views([TfIdf()])
