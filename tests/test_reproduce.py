"""The paper's experiments: measurements are made once, results and reports are complete, claims follow the figures."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from realdata import needs_data
from typer.testing import CliRunner

from ripml import RIPML
from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.baselines import PLST
from ripml.baselines.base import held_out_rows
from ripml.cli.app import app
from ripml.datasets.dataset import Dataset, numbered
from ripml.lab.generated import generate
from ripml.lab.reproduce import beyond, data, entities, precision, statistics
from ripml.lab.reproduce.data import dims_grid
from ripml.lab.reproduce.experiment import Claim, Experiment, Extent, Measurement, Row, Rows, Table
from ripml.lab.reproduce.laboratory import EXPERIMENTS, experiment_of, run
from ripml.lab.reproduce.methods import Chosen, Split, measure_method, ridge_by_rule

ZIPF = worlds.zipf(n=80, d=30, n_labels=20)
KS = (1, 2, 3, 5, 10, 15, 20, 30, 50)
TINY = Split(ZIPF.X, ZIPF.Y, ZIPF.X_new, ZIPF.Y_new)


def counting(made: list[str], fail_at: str | None = None) -> Experiment:
    """An experiment of three measurements that notes which are made, and can fail at one."""

    def make(name: str) -> list[Row]:
        if name == fail_at:
            raise RuntimeError("the power went")
        made.append(name)
        return [{"name": name, "P@1": len(made) + 0.5}]

    def draw(rows: Any) -> dict[str, Any]:
        from ripml.lab.reproduce.figures import panels

        points = ([0, 1, 2], [row["P@1"] for row in rows], None)
        return {"a <line>": panels({("P@1", "a"): {"RIPML": points}}, "x")}

    return Experiment(
        number=9,
        word="counting",
        title="Counting & <more>",
        protocol="Three things.",
        plan=lambda extent: [Measurement(name, lambda name=name: make(name)) for name in "abc"],  # type: ignore[misc]
        draw=draw,
        tables=lambda rows: [Table("All", ["name", "P@1"], [[row["name"], row["P@1"]] for row in rows])],
        claims=lambda rows: [
            Claim("It holds.", True, "1"),
            Claim("It does not.", False, "2"),
            Claim("Who knows.", None, "3"),
        ],
        sets=("numpydoc",),
    )


def run_one(monkeypatch: pytest.MonkeyPatch, experiment: Experiment, extent: Extent) -> Path:
    monkeypatch.setattr("ripml.lab.reproduce.laboratory.EXPERIMENTS", (experiment,))
    return run([experiment], extent)


# ----------------------------------------------------------------------------------------------------- running


def test_a_run_that_was_stopped_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    extent = Extent(tmp_path / "out")
    made: list[str] = []
    with pytest.raises(RuntimeError, match="the power went"):
        run_one(monkeypatch, counting(made, fail_at="c"), extent)
    assert made == ["a", "b"]
    assert not (tmp_path / "out" / "9-counting").exists()
    run_one(monkeypatch, counting(made), extent)
    assert made == ["a", "b", "c"]
    first = (tmp_path / "out" / "9-counting" / "result.json").read_text()
    run_one(monkeypatch, counting(made), extent)
    assert made == ["a", "b", "c"]
    assert (tmp_path / "out" / "9-counting" / "result.json").read_text() == first
    assert not list((tmp_path / "out").rglob("*.part"))


def test_an_experiment_writes_json_csv_png_svg_and_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = run_one(monkeypatch, counting([]), Extent(tmp_path / "out", quick=True, seed=3))
    place = tmp_path / "out" / "9-counting"
    result = json.loads((place / "result.json").read_text())
    assert (result["quick"], result["seed"], result["experiment"]) == (True, 3, "counting")
    assert [row["name"] for row in result["rows"]] == ["a", "b", "c"]
    assert [claim["holds"] for claim in result["claims"]] == [True, False, None]
    with (place / "result.csv").open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["a", "b", "c"]
    assert (place / "1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (place / "1.svg").read_text()
    page = report.read_text(encoding="utf-8")
    assert "Counting &amp; &lt;more&gt;" in page
    assert page.count("does not hold here") == 2  # in the summary and in its section
    assert page.count("cannot be decided here") == 2
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert "| It does not. | does not hold here | 2 |" in summary


class Links(HTMLParser):
    """The ids of a page, and what it refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.references.append(value or "")


def test_the_report_needs_nothing_else_and_its_ids_are_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = run_one(monkeypatch, counting([]), Extent(tmp_path / "out")).read_text(encoding="utf-8")
    links = Links()
    links.feed(page)
    assert len(links.ids) == len(set(links.ids))
    assert all(reference.startswith("#") for reference in links.references)
    assert {reference[1:] for reference in links.references} <= set(links.ids)
    assert not re.search(r"<script|<link|@import|url\((?!#)", page)


def test_a_folder_of_other_settings_or_of_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_one(monkeypatch, counting([]), Extent(tmp_path / "out"))
    with pytest.raises(ParameterError, match=r"holds a run with .*'quick': False.*; choose another folder"):
        run_one(monkeypatch, counting([]), Extent(tmp_path / "out", quick=True))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ParameterError, match="is not empty and not a run of `ripml reproduce`"):
        run_one(monkeypatch, counting([]), Extent(tmp_path / "mine"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    (tmp_path / "out" / "measurements" / "counting" / "b.json").write_text("{")
    with pytest.raises(DataError, match=r"b\.json is not JSON; remove the file to measure again"):
        run_one(monkeypatch, counting([]), Extent(tmp_path / "out"))
    (tmp_path / "out" / "measurements" / "counting" / "b.json").write_text("[1]")
    with pytest.raises(DataError, match=r"b\.json is not a measurement; remove the file to measure again"):
        run_one(monkeypatch, counting([]), Extent(tmp_path / "out"))
    (tmp_path / "out" / "settings.json").write_text("{")
    with pytest.raises(DataError, match=r"settings\.json is not JSON; choose another folder"):
        run_one(monkeypatch, counting([]), Extent(tmp_path / "out"))


def test_what_was_measured_by_another_protocol_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []
    run_one(monkeypatch, counting(made), Extent(tmp_path / "out"))
    other = replace(counting(made), protocol="Three other things.")
    run_one(monkeypatch, other, Extent(tmp_path / "out"))
    assert made == ["a", "b", "c"] * 2
    assert "Three other things." in (tmp_path / "out" / "report.html").read_text()


def test_missing_packages_and_data_sets_are_told_before_any_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []
    with pytest.raises(DataError, match="data sets not found: nowhere; set RIPML_DATA"):
        run_one(monkeypatch, replace(counting(made), sets=("nowhere",)), Extent(tmp_path / "out"))
    monkeypatch.setattr("ripml.lab.reproduce.laboratory.find_spec", lambda package: package != "rjieba" or None)
    with pytest.raises(MissingExtraError, match=r"rjieba is needed .* pip install 'ripml\[text\]'"):
        run_one(monkeypatch, replace(counting(made), needs_texts=True), Extent(tmp_path / "out"))
    assert not made
    assert not (tmp_path / "out").exists()


def test_experiments_are_known_by_number_and_word() -> None:
    assert [experiment.number for experiment in EXPERIMENTS] == [1, 2, 3, 4, 5, 6, 7]
    for experiment in EXPERIMENTS:
        assert experiment_of(experiment.word) is experiment_of(str(experiment.number)) is experiment
    with pytest.raises(ParameterError, match="there is no experiment '8'; choose one of 1 or statistics"):
        experiment_of("8")


def test_the_shell_lists_experiments_and_refuses_others(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["reproduce", "list", "--json"])
    assert [json.loads(line)["number"] for line in listed.stdout.splitlines()] == [1, 2, 3, 4, 5, 6, 7]
    refused = CliRunner().invoke(app, ["reproduce", "figure", "--folder", str(tmp_path / "out")])
    assert isinstance(refused.exception, ParameterError)
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------ the experiments, on tiny worlds


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every data set is one small world, and the grids are short."""
    documents = Dataset(X=None, Y=ZIPF.Y, label_names=numbered(20), texts=["" for _ in range(80)])
    sets = [
        Dataset(X=scipy.sparse.csr_array(X), Y=Y, label_names=numbered(20))
        for X, Y in ((ZIPF.X, ZIPF.Y), (ZIPF.X_new, ZIPF.Y_new))
    ]
    monkeypatch.setattr(statistics, "stock_news", lambda: documents)
    monkeypatch.setattr("ripml.datasets.load", lambda name: (sets[0], sets[1]))
    monkeypatch.setattr(data, "named", lambda extent, name: TINY)
    monkeypatch.setattr(data, "chinese", lambda extent, n_dims, tokens, split: TINY)
    monkeypatch.setattr(data, "entities", lambda extent, split: TINY)
    monkeypatch.setattr(entities, "generate", lambda n, random_state: generate(n, 20, 100, 4.0, 3, random_state))
    monkeypatch.setattr(entities, "_N_TRAIN", 2000)
    monkeypatch.setattr(entities, "_N_TEST", 50)
    monkeypatch.setattr(entities, "_CLUSTERS", (1, 43))
    monkeypatch.setattr(entities, "_SCALED", (1, 2))
    monkeypatch.setattr(data, "dims_grid", lambda n_labels, quick: [50, 100])
    names = {name for experiment in EXPERIMENTS for name in experiment.sets}
    monkeypatch.setattr("ripml.datasets.available", lambda: sorted(names))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.word)
def test_every_experiment_runs_to_its_report(experiment: Experiment, tmp_path: Path) -> None:
    extent = Extent(tmp_path / "out", quick=True)
    names = [measurement.name for measurement in experiment.plan(extent)]
    assert len(names) == len(set(names))
    seen: list[tuple[str, int, int]] = []
    report = run([experiment], extent, lambda *step: seen.append(step))
    assert seen[0] == (experiment.word, 0, len(names))
    assert seen[-1] == (experiment.word, len(names), len(names))
    result = json.loads((tmp_path / "out" / f"{experiment.number}-{experiment.word}" / "result.json").read_text())
    assert result["claims"]
    assert all(claim["evidence"] and "nan" not in claim["evidence"] for claim in result["claims"])
    assert len(result["figures"]) >= 1
    if experiment.word != "statistics":
        assert all("P@1" in row and "ridge" in row for row in result["rows"])
    page = report.read_text(encoding="utf-8")
    assert ">nan<" not in page
    assert page.count("<figure>") == len(result["figures"])


def test_the_full_plan_has_the_papers_grid(tmp_path: Path) -> None:
    extent = Extent(tmp_path)
    names = {measurement.name for measurement in precision.DIMENSIONS.plan(extent)}
    assert len(names) == 3 * 5 * 4
    assert {"bibtex-RIPML-127", "delicious-LEML-786", "eurlex-CSSP-2940"} <= names
    assert len(precision.CHINESE_DIMENSIONS.plan(extent)) == 3 * 5 * 5 * 4 + 1
    names = {measurement.name for measurement in beyond.EXPERIMENT.plan(extent)}
    assert {"eurlex-leml-400", "eurlex-plst-100", "delicious-cs-omp-393", "bibtex-bayesian-cs-50"} <= names
    assert not {"eurlex-cs-lasso-100", "eurlex-one-vs-all-logistic"} & names
    assert len(precision.CHINESE_NEIGHBORS.plan(extent)) == 3 * 5
    names = {measurement.name for measurement in entities.EXPERIMENT.plan(extent)}
    assert {f"speed-{clusters}-{m}" for clusters in (1, 43) for m in (50, 100, 250)} <= names
    assert {f"quality-{split}-{clusters}" for split in range(5) for clusters in (1, 2, 4, 5, 25, 43, 56)} <= names
    assert len(precision.NEIGHBORS.plan(extent)) == 3
    assert dims_grid(983, quick=False) == [50, 100, 197, 393, 786]


# ------------------------------------------------------------------------------------------------------- the claims


def precision_row(value: float) -> Row:
    return {f"P@{k}": value / k for k in (1, 3, 5)}


def test_claims_about_dimensions_follow_the_figures() -> None:
    def rows(ripml: float, delicious: float) -> list[Row]:
        made = []
        for name in data.SETS:
            for m in (50, 100, 200):
                for method, value, slope in (("RIPML", ripml, 0), ("LEML", 60, 2), ("CPLST", 60, 2), ("CSSP", 50, 9)):
                    level = delicious if (name, method) == ("Delicious", "RIPML") else value
                    made.append({"set": name, "method": method, "m": m, **precision_row(level + slope * (m > 100))})
        return made

    assert [claim.holds for claim in precision.DIMENSIONS.claims(Rows(rows(70, 55)))] == [True] * 9
    better = [claim.holds for claim in precision.DIMENSIONS.claims(Rows(rows(58, 65)))]
    assert better == [False, False, False, True, True, True, False, False, True]


def test_claims_about_neighbours_follow_the_figures() -> None:
    def rows(slope: float) -> list[Row]:
        return [
            {"set": name, "k": k, **precision_row(60 - slope * (k > 10) * (name == "EUR-Lex" or slope > 5))}
            for name in data.SETS
            for k in KS
        ]

    assert [claim.holds for claim in precision.NEIGHBORS.claims(Rows(rows(2)))] == [True, True]
    assert [claim.holds for claim in precision.NEIGHBORS.claims(Rows(rows(9)))] == [False, True]
    assert [claim.holds for claim in precision.NEIGHBORS.claims(Rows(rows(0)))] == [True, False]


def test_speed_at_a_tenth_of_the_size_decides_no_claim_about_the_size() -> None:
    quality = [
        {"data": "Wikispeedia", "split": 0, "clusters": c, "m": m, **precision_row(30 + c / 5 + m / 100)}
        for c in (1, 2, 4, 5, 25, 43, 56)
        for m in (50, 100, 250)
    ]

    def speed(rows: int) -> list[Row]:
        times = {1: (100.0, 60.0), 43: (400.0, 6.0)}
        return [
            {
                "data": "generated",
                "rows": rows,
                "clusters": c,
                "m": 100,
                "training_seconds": s,
                "ms_single": t,
                "cores": 2,
            }
            for c, (s, t) in times.items()
        ]

    assert [c.holds for c in entities.EXPERIMENT.claims(Rows(quality + speed(500_539)))] == [True] * 6
    at_a_tenth = entities.EXPERIMENT.claims(Rows(quality + speed(50_053)))
    assert [claim.holds for claim in at_a_tenth] == [True, True, None, None, None, None]


def test_claims_about_chinese_news_follow_the_figures() -> None:
    def rows(ripml: float, chars: float) -> list[Row]:
        values = {"RIPML": ripml, "LEML": 61, "CPLST": 60, "CSSP": 50}
        made = [
            {"d": d, "split": split, "method": method, "m": m, "P@1": value + m / 100, "P@3": 20, "P@5": value / 4}
            for d, m in (("d = 200", 50), ("d = 200", 100), ("d = 300", 50), ("d = 300", 100))
            for split in (0, 1)
            for method, value in values.items()
        ]
        return [*made, {"tokens": "chars", "d": "d = 200", "split": 0, "m": 100, "P@1": chars, "P@3": 20, "P@5": 13}]

    claims = precision.CHINESE_DIMENSIONS.claims(Rows(rows(60.5, 61)))
    assert [claim.holds for claim in claims] == [True, True, True, True]
    assert "RIPML 61.5 and 15.1" in claims[2].evidence
    assert [claim.holds for claim in precision.CHINESE_DIMENSIONS.claims(Rows(rows(59, 40)))] == [
        False,
        True,
        True,
        False,
    ]
    falling: list[Row] = [{"d": "d = 200", "split": 0, "k": k, **precision_row(60 - k / 10)} for k in KS]
    assert [claim.holds for claim in precision.CHINESE_NEIGHBORS.claims(Rows(falling))] == [True]
    rising = [{**row, "P@1": 60 + row["k"]} for row in falling]
    assert [claim.holds for claim in precision.CHINESE_NEIGHBORS.claims(Rows(rising))] == [False]


def test_the_dimensions_shown_are_chosen_on_training_rows_and_ties_are_not_ahead() -> None:
    def rows(default: float, sleec: float, vote: float) -> list[Row]:
        where = {"part": "sets", "set": "Bibtex"}
        made: list[Row] = [
            {**where, "method": method, "left_out": 1.0, "ms_per_row": 1.0, "P@1": value}
            for method, value in (("RIPML, default", default), ("SLEEC", sleec), ("popularity", 1.0))
        ]
        for m, value, left_out in ((50, 70.0, 1.0), (100, 60.0, 2.0)):
            for method in ("RIPML, paper", "LEML", "PLST", "CS, OMP"):
                ms = vote if method == "RIPML, paper" else 1.0
                made.append({**where, "method": method, "m": m, "left_out": left_out, "P@1": value, "ms_per_row": ms})
        return made

    claims = beyond.EXPERIMENT.claims(Rows(rows(65, 71, 0.5)))
    assert [claim.holds for claim in claims] == [False, True, True]
    assert claims[0].evidence.startswith("Bibtex: SLEEC 71.0, RIPML, default 65.0, RIPML, paper 60.0")
    assert [claim.holds for claim in beyond.EXPERIMENT.claims(Rows(rows(66, 65, 0.5)))] == [True, True, False]
    assert [claim.holds for claim in beyond.EXPERIMENT.claims(Rows(rows(60, 50, 2.0)))] == [False, False, False]


def test_a_ridge_chosen_at_another_m_is_the_same_in_a_run_that_was_stopped() -> None:
    both: Chosen = {}
    first = measure_method("PLST", 5, TINY, 0, both, chosen_at=5, set="tiny")
    after = measure_method("PLST", 9, TINY, 0, both, chosen_at=5, set="tiny")
    resumed = measure_method("PLST", 9, TINY, 0, {}, chosen_at=5, set="tiny")
    assert first["ridge"] == after["ridge"] == resumed["ridge"]
    assert after["P@1"] == resumed["P@1"]


def test_the_rule_asks_ripml_and_baselines_about_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def noted(truth: Any, scores: Any) -> float:
        seen.append(truth)
        return 0.5

    monkeypatch.setattr("ripml.lab.reproduce.methods.mean_precision", noted)
    empty = scipy.sparse.vstack([scipy.sparse.csr_array((5, 20)), ZIPF.Y], format="csr")
    part = Split(np.vstack([np.ones((5, 30)), ZIPF.X]), empty, ZIPF.X_new, ZIPF.Y_new)
    ridge_by_rule(RIPML.paper(n_dims=10, random_state=4), part, seed=4)
    rows = held_out_rows(80, PLST(random_state=4).fit(ZIPF.X, ZIPF.Y).seed_)[1]
    np.testing.assert_array_equal(seen[0].toarray(), ZIPF.Y[rows].toarray())


# ------------------------------------------------------------------------------------------------ on the real sets


@needs_data
def test_the_sizes_of_the_papers_sets_are_those_of_its_table(tmp_path: Path) -> None:
    run([statistics.EXPERIMENT], Extent(tmp_path / "out"))
    result = json.loads((tmp_path / "out" / "1-statistics" / "result.json").read_text())
    assert [claim["holds"] for claim in result["claims"]] == [True, True]
