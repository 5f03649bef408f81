"""What notebooks show: fitted models, explanations and answers as HTML, figures, progress, and scikit-learn's tools."""

from __future__ import annotations

import functools
import json
import logging
import sys
import threading
import types
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from matplotlib.figure import Figure
from page_server import chromium, violations
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score

from ripml import RIPML, Store, Tagger
from ripml.base import progress
from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.baselines import Popularity
from ripml.datasets import documents_given
from ripml.model.forecast import Forecast
from ripml.model.shown import marked
from ripml.tagging.suggestions import Suggestions

TOPICS = {"fruit": "apple pear plum banana ripe juice", "weather": "rain sky cloud wind snow storm"}
EVIL = "<script>alert(1)</script>"


def corpus(n: int = 60, names: tuple[str, str] = ("fruit", "weather")) -> tuple[list[str], list[list[str]]]:
    """Texts of one topic each, of which every tenth has both."""
    random = np.random.default_rng(0)
    texts, tags = [], []
    for row in range(n):
        topics = list(TOPICS) if row % 10 == 9 else [list(TOPICS)[row % 2]]
        texts.append(f"{row} " + " ".join(word for topic in topics for word in random.choice(TOPICS[topic].split(), 4)))
        tags.append([names[list(TOPICS).index(topic)] for topic in topics])
    return texts, tags


@functools.cache
def fitted() -> Tagger:
    return Tagger(model=RIPML(n_dims=16, random_state=0)).fit(*corpus())


@functools.cache
def evil() -> Tagger:
    return Tagger(model=RIPML(n_dims=16, random_state=0)).fit(*corpus(names=(EVIL, "weather")))


class Tags(HTMLParser):
    """The tags of a piece of HTML, of which all that are opened are closed, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.names, self.open, self.text, self.attributes = list[str](), list[str](), "", list[tuple[str, Any]]()
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data.strip() + " "


def html_of(shown: Any) -> Tags:
    return Tags(shown._repr_html_())


# --------------------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("kind", [Tagger, RIPML])
def test_before_the_fit_the_parameters_are_shown_as_scikit_learn_shows_them(kind: Any) -> None:
    assert "sk-top-container" in kind()._repr_html_()


def test_after_the_fit_the_counts_the_left_out_precision_and_what_was_chosen_are_shown() -> None:
    shown = html_of(fitted())
    assert "svg" in shown.names
    for words in ("documents", "60", "labels", "P@1", "P@3", "P@5", "Chosen on training rows", "ridge", "n_dims"):
        assert words in shown.text
    model = fitted().documents_.model
    assert f"{100 * model.left_out_precision_['P@1']:.1f} %" in shown.text
    assert "kernel" in html_of(model).text


def test_few_rows_are_said_to_say_little() -> None:
    assert "mostly chance" in html_of(fitted()).text


def test_nothing_that_is_shown_runs_or_comes_from_elsewhere() -> None:
    tagger = evil()
    text = f"apple {EVIL} rain"
    answers = tagger.suggest_many(pandas.Series([text], index=[EVIL]))
    why = tagger.explain(text)
    for shown in (tagger, tagger.documents_.model, answers, why, why[0], tagger.documents_.model.explain(X_of(tagger))):
        found = html_of(shown)
        assert "script" not in found.names
        assert not [name for name, _ in found.attributes if name in ("src", "href", "xlink:href") or name[:2] == "on"]
        assert not any("url(" in str(value) for _, value in found.attributes)
    assert EVIL in html_of(why).text.replace(" ", "")
    assert EVIL in html_of(answers).text


def X_of(tagger: Tagger) -> Any:
    return tagger.documents_.features_of(["apple pear rain"])


def test_a_baseline_in_a_tagger_is_shown_with_its_counts() -> None:
    shown = html_of(Tagger(model=Popularity()).fit(*corpus()))
    assert "documents 60" in shown.text
    assert "Popularity" in shown.text


def test_the_papers_algorithm_is_shown_too() -> None:
    assert "P@1" in html_of(Tagger(model=RIPML.paper(n_dims=8, random_state=0)).fit(*corpus())).text


def test_a_store_shows_its_documents_and_how_it_is_open(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", documents_given(*corpus()), RIPML(n_dims=16, random_state=0)) as store:
        shown = html_of(store).text
        assert "store: open for writing" in shown
        assert "documents 60" in shown
        assert repr(store) == f"<Store {tmp_path / 'store'}>"
    assert "closed" in html_of(store).text
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert "store: read-only" in html_of(reader).text


# --------------------------------------------------------------------------------------------------------- explanations


def test_words_for_and_against_are_told_apart_without_colour() -> None:
    shown = marked("tea or ice", [(0, 3, 0.5), (7, 10, -0.25)])
    assert '<mark class="for"' in shown
    assert '<mark class="against" title="-0.250">ice</mark>' in shown
    assert "underline wavy" in fitted().explain("apple rain")._repr_html_()  # type: ignore[attr-defined]


def test_the_strengths_of_places_that_overlap_add_up() -> None:
    assert [part.split('"')[0] for part in marked("abc", [(0, 2, 0.2), (1, 3, 0.2)]).split('title="')[1:]] == [
        "+0.200",
        "+0.400",
        "+0.200",
    ]


def test_an_explanation_shows_its_text_its_examples_and_their_shares() -> None:
    why = fitted().explain("apple juice and rain", n=2)
    shown = html_of(why)
    assert shown.names.count("details") == len(why) == 2
    assert "mark" in shown.names
    assert {"apple", "juice"} <= set(shown.text.split())
    for example in why[0].examples:
        assert f"{example.share:.3f}" in shown.text
    assert html_of(why[0]).text.split()[0] == why[0].label
    assert why[0].text == "apple juice and rain"
    assert "text" not in why[0].to_json()
    json.dumps(why[0].to_json())


def test_explained_rows_of_an_estimator_are_shown_one_after_the_other() -> None:
    model: Any = fitted().documents_.model
    shown = html_of(model.explain(fitted().documents_.features_of(["apple", "rain", "zzz"]), n=2)).text
    assert "row 0" in shown
    assert "row 2" in shown
    assert "for (+) or against (−)" in shown
    assert "No label is suggested" in shown


# ---------------------------------------------------------------------------------------------------------- suggestions


def test_many_suggestions_become_a_frame_with_the_index_of_the_texts() -> None:
    frame = pandas.DataFrame({"text": ["apple juice", "rain and wind", ""], "n": [1, 2, 3]}, index=["x", "y", "z"])
    answers = fitted().suggest_many(frame, n=1)
    found = answers.to_frame()
    assert found.index.tolist() == ["x", "y", "z"]
    assert found["tags"].tolist() == [["fruit"], ["weather"], []]
    assert frame.join(found).columns.tolist() == ["text", "n", "tags", "scores"]
    assert found["scores"]["x"] == [answers[0][0][1]]
    assert fitted().suggest_many(frame["text"], n=1).to_frame().equals(found)
    assert fitted().suggest_many(["apple"]).to_frame().index.tolist() == [0]


def test_a_table_of_many_suggestions_ends_with_how_many_more_there_are() -> None:
    shown = html_of(Suggestions([[("tea", 0.5)]] * 25)).text
    assert "and 5 more texts" in shown


def test_a_frame_without_pandas_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pandas is needed for this; install it with: pip install pandas$"):
        Suggestions([[("tea", 0.5)]]).to_frame()


# --------------------------------------------------------------------------------------------------------- scikit-learn

FOLDS = KFold(3, shuffle=True, random_state=0)


def forms() -> dict[str, tuple[Any, Any]]:
    texts, tags = corpus()
    numbers = range(1000, 1060)
    as_objects = np.empty(len(tags), object)
    as_objects[:] = tags
    return {
        "lists": (texts, tags),
        "arrays": (np.array(texts), as_objects),
        "series": (pandas.Series(texts, numbers), pandas.Series(tags, numbers)),
    }


@pytest.mark.parametrize("form", forms())
def test_a_tagger_is_cross_validated_on_texts(form: str) -> None:
    texts, tags = forms()[form]
    tagger = Tagger(model=RIPML(n_dims=8, random_state=0))
    assert cross_val_score(tagger, texts, tags, cv=FOLDS).tolist() == [1.0, 1.0, 1.0]
    predicted = cross_val_predict(tagger, texts, tags, cv=FOLDS)
    assert predicted.shape == (60,)
    assert [tag for tag, _ in predicted[0]] == ["fruit"]


def test_the_score_of_a_tagger_is_that_of_its_evaluation() -> None:
    texts, tags = corpus(40)
    assert fitted().score(texts, tags) == fitted().evaluate(texts, tags)["P@1"]
    assert fitted().score(["apple", "apple"], [["unknown"], ["fruit"]]) == 0.5
    with pytest.raises(DataError, match="has no labels to compare with"):
        fitted().score(["apple"], [[]])


def test_a_grid_is_searched_over_features_and_nested_parameters() -> None:
    grid = {"features": ["tfidf", "auto"], "model__n_dims": [4, 8]}
    search = GridSearchCV(Tagger(model=RIPML(random_state=0)), grid, cv=FOLDS).fit(*corpus())
    assert search.best_score_ == 1.0
    assert set(search.best_params_) == set(grid)
    assert search.best_estimator_.suggest("apple", n=1)[0][0] == "fruit"


def test_the_parameters_of_a_tagger_come_back() -> None:
    tagger = Tagger(["tfidf"], RIPML(n_dims=8), n=3, stop_labels=["x"], verbose=1)
    other = clone(tagger)
    assert repr(other) == repr(tagger)
    assert repr(Tagger().set_params(**tagger.get_params(deep=False))) == repr(tagger)
    assert tagger.set_params(model__n_dims=4, n=2).get_params()["model__n_dims"] == 4


def test_a_parameter_of_a_model_that_is_not_given_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="`model` is None, which has no parameters; give an estimator"):
        Tagger().set_params(model__n_dims=8)


# --------------------------------------------------------------------------------------------------------------- figure


def test_the_figure_has_three_parts_of_left_out_rows_or_of_new_ones() -> None:
    for figure in (fitted().plot(), fitted().plot(*corpus(30)), fitted().documents_.model.plot()):
        assert isinstance(figure, Figure)
        titles = [axes.get_title(loc="left").strip() for axes in figure.axes]
        assert titles == ["Calibration", "By frequency of the label", "Automation"]
    assert "60 training rows, left out" in fitted().plot().get_suptitle()
    assert fitted().plot()._repr_png_()[:4] == b"\x89PNG"


def test_precision_and_recall_by_frequency_are_those_of_the_predicted_sets() -> None:
    texts, tags = corpus(30)
    bars = fitted().plot(texts, tags).axes[1].containers
    sets = [{tag for tag, _ in found} for found in fitted().predict(texts)]
    hits = sum(len(found & {*right}) for found, right in zip(sets, tags, strict=True))
    heights = [bar[0].get_height() for bar in bars]
    assert heights == pytest.approx([hits / sum(map(len, sets)), hits / sum(map(len, tags))])


def test_a_figure_of_nothing_or_of_a_model_without_left_out_rows_is_refused() -> None:
    with pytest.raises(DataError, match="there is nothing to plot"):
        fitted().plot(["zzz"], [["fruit"]])
    with pytest.raises(DataError, match=r"the labels of the rows are needed, too: plot\(X, Y\)"):
        fitted().documents_.model.plot(X_of(fitted()))
    with pytest.raises(ParameterError, match="keeps no training rows that could be left out"):
        Tagger(model=RIPML.paper(n_dims=8)).fit(*corpus()).plot()


def test_a_figure_without_matplotlib_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ripml\[plot\]'"):
        fitted().plot()


# ------------------------------------------------------------------------------------------------------------- progress


def test_a_fit_is_silent_unless_it_is_asked_to_say_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    Tagger(model=RIPML(n_dims=8, random_state=0)).fit(*corpus())
    assert capsys.readouterr() == ("", "")
    Tagger(model=RIPML(n_dims=8, random_state=0), verbose=1).fit(*corpus())
    out, err = capsys.readouterr()
    assert out == ""
    steps = [line.removeprefix("training").removeprefix(":").strip() for line in err.splitlines()]
    assert steps[:3] == ["…", "reading the words of 60 texts", "11 of 60 rows repeat another one"]
    assert steps[3] == "choosing settings on a sample of 60 rows"
    assert "factorising 60 × 60 similarities of rows" in steps
    assert steps[-1] == "learning from 30 left-out rows how far to trust a score"


def test_many_suggestions_say_how_many_texts_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    tagger = clone(fitted()).set_params(verbose=1)
    tagger.documents_, tagger._known = fitted().documents_, {}
    tagger.suggest_many(["apple"] * 1000)
    assert capsys.readouterr().err == ""
    assert len(tagger.suggest_many(["apple"] * 1001)) == 1001
    assert "suggesting: 1,000 of 1,001 texts are done" in capsys.readouterr().err


def test_an_estimator_says_what_it_does_too(capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).random((40, 6))
    RIPML.linear(n_clusters=2, random_state=0, verbose=1).fit(X, [["a"], ["b"]] * 20)
    err = capsys.readouterr().err
    assert "training: cluster 1 of 2: fitting the regression of" in err
    assert "training: factorising" in err


def test_how_much_is_shown_is_a_parameter_that_is_not_saved(tmp_path: Path) -> None:
    model = RIPML(n_dims=8, random_state=0, verbose=True).fit(np.eye(4), [["a"], ["b"], ["a"], ["b"]])
    model.save(tmp_path / "model")
    assert "verbose" not in (tmp_path / "model" / "manifest.json").read_text()
    with pytest.raises(ParameterError, match="`verbose` must be an integer ≥ 0; got -1"):
        RIPML(verbose=-1).fit(np.eye(2), [["a"], ["b"]])


def test_steps_of_another_thread_are_not_shown() -> None:
    heard = list[str]()
    with progress.listening("ripml", lambda record: heard.append(record.getMessage())):
        other = threading.Thread(target=progress.step, args=("of another",))
        other.start()
        other.join()
        progress.step("of this one")
    assert heard == ["of this one"]
    assert not logging.getLogger("ripml").handlers


def test_the_time_that_is_left_follows_how_long_earlier_steps_took() -> None:
    times = iter([0.0, 0.0, 30.0, 40.0, 70.0])
    clock = progress.Clock(lambda: next(times))
    clock.begin(10, 20)
    assert clock.left == 30
    clock.begin(0, 0)  # other words for the same step, which take no time
    clock.begin(15, 5)
    assert (clock.pace, clock.left, clock.step_seconds) == (3, 60, 45)
    assert clock.left_now() == 50
    assert clock.left_now() == 20


def test_a_forecast_drops_the_steps_that_are_passed_and_grows_with_the_rows() -> None:
    records = list[tuple[str, float, float]]()
    forecast = Forecast({"settings": 1.0, "cluster 0": 2.0, "cluster 1": 2.0, "left out": 3.0})

    def show(record: logging.LogRecord) -> None:
        records.append((record.getMessage(), *progress.estimates(record)))

    with progress.listening("ripml", show):
        forecast.step("cluster 0", "the first")  # settings were given
        forecast.step("left out", "the last")
    assert records == [("the first", 2.0, 5.0), ("the last", 3.0, 0.0)]
    sizes = (100, 1000, 10_000)
    whole = [Forecast.of(np.zeros((n, 50)), 20, 1, False, 0, min(n, 3000), 5000).seconds for n in sizes]
    for one, other in pairwise(whole):
        assert all(one[name] < other[name] for name in one)


class Cell:
    """A cell of a notebook that keeps all that was shown in it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, what: Any, display_id: bool) -> Cell:
        assert display_id
        self.shown.append(what._repr_html_())
        return self

    def update(self, what: Any) -> None:
        self.shown.append(what._repr_html_())


def test_in_a_notebook_a_bar_moves_and_leaves_the_cell_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell, IPython, display = Cell(), types.ModuleType("IPython"), types.ModuleType("IPython.display")
    IPython.get_ipython = lambda: types.SimpleNamespace(kernel=True)  # type: ignore[attr-defined]
    display.display = cell.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    Tagger(model=RIPML(n_dims=8, random_state=0), verbose=1).fit(*corpus())
    assert capsys.readouterr() == ("", "")
    assert cell.shown[-1] == ""
    words = [Tags(shown).text for shown in cell.shown]
    assert any("training: factorising 60 × 60" in one for one in words)
    assert all("role" in dict(Tags(shown).attributes) for shown in cell.shown[:-1])


# -------------------------------------------------------------------------------------------------------------- browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_shown_is_readable_in_light_and_dark_and_fits_a_phone(scheme: Any) -> None:
    colours = {"light": "background:#fff;color:#1c1e20", "dark": "background:#111;color:#ddd"}[scheme]
    why = fitted().explain("apple juice and rain")
    parts = [fitted(), why, fitted().suggest_many(["apple", "rain"])]
    source = "".join(f"<section>{part._repr_html_()}</section>" for part in parts)  # type: ignore[attr-defined]
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 360, "height": 700}, color_scheme=scheme)
        head = "<!doctype html><html lang=en><title>Notebook</title>"
        page.set_content(f"{head}<body style='{colours}'><main><h1>Notebook</h1><h2>Cells</h2>{source}</main></body>")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        found = violations(page)
        assert found == []
