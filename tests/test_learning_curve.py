"""Learning curves: nested parts, held-out rows that no part learns, and what twice the rows would bring."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from ripml import RIPML, Store, Tagger, metrics
from ripml.base.errors import DataError, ParameterError
from ripml.cli import main
from ripml.datasets import documents_given
from ripml.decoding.scores import keep_above
from ripml.model.learning_curve import Outcome, extrapolated, measure_learning_curve
from ripml.server import create_app

Ints = NDArray[np.int64]
STORE = "/v1/stores/tiny"


def noisy_rows(n: int, share: float, rows: int) -> Outcome:
    """Labels of rows and scores that are right for this share of them."""
    truth = scipy.sparse.csr_array(np.eye(5, dtype=np.float32)[np.arange(n) % 5])
    right = np.random.default_rng(rows).random(n) < share
    scores = scipy.sparse.csr_array(np.eye(5)[(np.arange(n) + ~right) % 5])
    return truth, scores, 0.5


def texts_of(n: int) -> tuple[list[str], list[list[str]]]:
    """Texts of three topics, some of whose words are those of others."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(60)])
    topics = rng.integers(0, 3, n)
    own = [rng.choice(words[20 * topic : 20 * topic + 20], 4) for topic in topics]
    texts = [" ".join([*some, *rng.choice(words, 5)]) for some in own]
    return texts, [[f"topic{topic}"] for topic in topics]


def test_parts_are_nested_and_know_neither_held_out_rows_nor_their_copies() -> None:
    group, seen = np.arange(2000) // 2, list[set[int]]()

    def fit(learnt: Ints, held: Ints) -> Outcome:
        assert not set(group[learnt]) & set(group[held])
        assert not seen or seen[-1] < set(learnt.tolist())
        seen.append(set(learnt.tolist()))
        return noisy_rows(len(held), 0.8, len(learnt))

    curve = measure_learning_curve(2000, group, fit, parts=3)
    assert [point.rows for point in curve.points] == [len(rows) for rows in seen]
    assert curve.points[-1].rows == 4 * curve.points[0].rows + curve.points[-1].rows % 4
    assert curve.held_out == 400
    assert curve.twice.rows == 2 * curve.points[-1].rows


def test_figures_are_those_of_the_metrics_with_standard_errors() -> None:
    outcomes = list[Outcome]()

    def fit(learnt: Ints, held: Ints) -> Outcome:
        outcomes.append(noisy_rows(len(held), 0.7, len(learnt)))
        return outcomes[-1]

    curve = measure_learning_curve(2000, np.arange(2000), fit)
    for point, (truth, scores, threshold) in zip(curve.points, outcomes, strict=True):
        p = metrics.precision_at_k(truth, scores, k=1)
        assert point.figures["P@1"] == round(p, 4)
        assert point.figures["P@3"] == round(metrics.precision_at_k(truth, scores, k=3), 4)
        assert point.figures["micro-F1"] == round(metrics.micro_f1(truth, keep_above(scores, threshold)), 4)
        assert point.errors["P@1"] == pytest.approx((p * (1 - p) / 400) ** 0.5, rel=0.2)


def test_twice_the_rows_gain_three_quarters_of_the_mean_of_two_doublings() -> None:
    gains = {200: 0.40, 400: 0.60, 800: 0.70, 1600: 0.78}

    def fit(learnt: Ints, held: Ints) -> Outcome:
        truth, _, _ = noisy_rows(len(held), 1, 0)
        right = np.arange(len(held)) < round(gains[len(learnt)] * len(held))
        return truth, scipy.sparse.csr_array(np.eye(5)[(np.arange(len(held)) + ~right) % 5]), 0.5

    curve = measure_learning_curve(2000, np.arange(2000), fit)
    assert curve.twice.figures["P@1"] == round(0.78 + 0.75 * (0.78 - 0.60) / 2, 4)
    assert curve.missed["P@1"] == round(0.78 - (0.70 + 0.75 * (0.70 - 0.40) / 2), 4)
    assert extrapolated(np.array([0.9, 0.99])[:, None, None])[0, 0] == 1


def test_too_few_rows_for_a_curve_are_said_to_be_so() -> None:
    with pytest.raises(DataError, match=r"700 rows are too few for a learning curve: .* about 1,000 rows are needed"):
        measure_learning_curve(700, np.arange(700), lambda learnt, held: noisy_rows(len(held), 1, 0))
    with pytest.raises(ParameterError, match="`parts` must be an integer ≥ 3; got 2"):
        measure_learning_curve(700, np.arange(700), lambda learnt, held: noisy_rows(len(held), 1, 0), parts=2)


def test_python_the_shell_and_a_server_measure_the_same_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, tags = texts_of(1010)
    data = replace(documents_given(texts, tags), ids=[f"d{i}" for i in range(len(texts))])
    model = RIPML(random_state=0, kernel="rbf")
    with Store.create(tmp_path / "store", data, model) as store:
        curve = store.learning_curve()
        expected: dict[str, Any] = json.loads(json.dumps(curve.to_json()))
    assert [point.rows for point in curve.points] == [len(texts) * 4 // 5 >> shift for shift in (3, 2, 1, 0)]
    assert curve.points[-1].figures["P@1"] > curve.points[0].figures["P@1"] - 0.05
    assert Tagger(model=RIPML(random_state=0, kernel="rbf")).fit(texts, tags).learning_curve(texts, tags) == curve

    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "store"), "--curve", "--json"])
    assert json.loads(capsys.readouterr().out)["curve"] == expected
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "store"), "--curve"])
    printed = capsys.readouterr()
    assert f"Learning curve, in % of {curve.held_out} held-out rows" in printed.out
    assert f"{curve.twice.rows:,}, expected" in printed.out
    assert "a model of 101 of 808 rows" in printed.err

    served = Store.open(tmp_path / "store")
    with TestClient(create_app({"tiny": served}), base_url="http://localhost:8000") as client:
        assert client.get(f"{STORE}/learning-curve").json()["version"] is None
        assert client.post(f"{STORE}/learning-curve").status_code == 202
        while (found := client.get(f"{STORE}/learning-curve").json())["status"] == "running":
            pass
        assert {name: found[name] for name in expected} == expected


def test_a_model_without_its_documents_has_no_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, tags = texts_of(60)
    Tagger().fit(texts, tags).save(tmp_path / "model")
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "model"), "--curve"])
    assert "documents must be kept in a store" in capsys.readouterr().err
