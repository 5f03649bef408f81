"""A study: seeded, kept on the disk, continued as if it had never been interrupted, measured on training rows only."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from ripml import RIPML, metrics
from ripml.base.errors import DataError, MemoryLimitError, MissingExtraError, ParameterError
from ripml.datasets import Dataset
from ripml.regression.kernels import RBF
from ripml.search.space import METRICS, Objective
from ripml.search.study import Study, Trial, tune

pytest.importorskip("optuna", reason="the extra `tune` is not installed")


def world(n: int = 60) -> Dataset:
    """Noisy features determine which of four labels a row has; every tenth row has none."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 4, n)
    X = rng.random((n, 6)).astype(np.float32)
    X[np.arange(n), kind] += 0.7
    Y = np.eye(4, dtype=np.float32)[kind]
    Y[::10] = 0
    return Dataset(X=csr_array(X), Y=csr_array(Y), label_names=list("abcd"), name="world")


def timeless(study: Study) -> list[Any]:
    """The trials without their times, which differ between runs."""
    return [replace(trial, seconds=0) for trial in study.trials]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[[RIPML, int], float]:
    """Values by a formula in place of models."""

    def value(_: Objective, model: RIPML, fold: int) -> float:
        if model.ridge == "auto":
            return 0.5 + fold / 100
        return float(1 / (1 + abs(np.log(model.ridge))) + fold / 100)

    usual = {"preset": "default", "decoder": "blend", "ridge": 0.1, "neighbors": 10, "gamma": 0.5, "relevance": 0.5}
    monkeypatch.setattr(Objective, "value", value)
    monkeypatch.setattr(Objective, "parameters_of", lambda *_: {**usual, "dims": 100, "tail": 0.0})
    return lambda model, fold: value(None, model, fold)  # type: ignore[arg-type]


def test_trial_0_has_the_default_settings_and_every_trial_gives_its_value_again(tmp_path: Path) -> None:
    data, calls = world(), list[int]()
    study = tune(data, tmp_path / "s", n_trials=3, folds=2, progress=lambda trial, _: calls.append(trial.number))
    assert calls == [0, 1, 2]
    assert (study.trials[0].settings, study.trials[0].preset) == ({"random_state": 0}, "default")
    assert set(study.trials[0].parameters) == {"preset", "ridge", "neighbors", "gamma", "relevance", "decoder"}
    objective = Objective(data, "P@1", 2, 0)
    for trial in study.trials:
        assert trial.state == "complete"
        assert trial.value == np.mean([objective.value(trial.model(), fold) for fold in range(2)])
    best = study.best
    assert best is not None
    assert best.value == max(trial.value or 0 for trial in study.trials)
    assert json.loads(study.best_path.read_text()) == best.settings
    assert timeless(Study.open(tmp_path / "s")) == timeless(study)


@pytest.mark.parametrize("metric", METRICS)
def test_the_metric_is_that_of_held_out_rows(metric: str) -> None:
    data = world()
    objective = Objective(data, metric, 1, 0)
    X, Y, X_held_out, truth = objective._fold(0)
    everything = {tuple(row) for row in data.X.toarray().tolist()}
    training, held_out = ({tuple(row) for row in part.toarray().tolist()} for part in (X, X_held_out))
    assert len(training) + len(held_out) == 54
    assert training | held_out < everything
    assert not training & held_out
    model = RIPML.paper(n_dims=16, n_neighbors=3, ridge=1, random_state=0).fit(X, Y, label_names=data.label_names)
    scores = model.decision_function(X_held_out)
    expected = {
        "nDCG@5": lambda: metrics.ndcg_at_k(truth, scores, k=5),
        "PSP@5": lambda: metrics.psp_at_k(truth, scores, k=5, propensities=metrics.propensities(Y)),
        "micro-F1": lambda: metrics.micro_f1(truth, model.predict(X_held_out)),
    }.get(metric, lambda: metrics.precision_at_k(truth, scores, k=int(metric[-1])))()
    assert objective.value(RIPML.paper(n_dims=16, n_neighbors=3, ridge=1, random_state=0), 0) == expected


def test_the_features_of_texts_are_fitted_on_the_training_rows() -> None:
    texts = [f"{word} word{i}" for i, word in enumerate(["purr", "bark"] * 15)]
    Y = csr_array(np.tile(np.eye(2, dtype=np.float32), (15, 1)))
    objective = Objective(Dataset(X=None, Y=Y, label_names=["cat", "dog"], texts=texts), "P@1", 1, 0)
    assert objective.value(RIPML.paper(n_dims=8, n_neighbors=1, ridge=1, random_state=0), 0) == 1
    with pytest.raises(DataError, match="neither features nor texts"):
        Objective(Dataset(X=None, Y=Y, label_names=["cat", "dog"]), "P@1", 1, 0).value(RIPML(), 0)


def test_a_study_that_is_continued_equals_one_that_was_never_interrupted(
    quick: Callable[[RIPML, int], float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tune(world(), tmp_path / "whole", n_trials=25)
    assert {trial.state for trial in whole.trials} == {"complete", "pruned"}
    usual, n_calls = Objective.value, 0

    def interrupted(self: Objective, model: RIPML, fold: int) -> float:
        nonlocal n_calls
        n_calls += 1
        if n_calls % 7 == 0:
            raise KeyboardInterrupt
        return usual(self, model, fold)

    monkeypatch.setattr(Objective, "value", interrupted)
    n_stops = 0
    while True:
        try:
            parts = tune(world(), tmp_path / "parts", n_trials=25)
            break
        except KeyboardInterrupt:
            n_stops += 1
    assert n_stops > 3
    monkeypatch.setattr(Objective, "value", usual)
    assert timeless(parts) == timeless(whole)
    assert (parts.best_path).read_text() == whole.best_path.read_text()
    assert timeless(tune(world(), tmp_path / "parts", n_trials=20)) == timeless(whole)  # nothing is left to do
    other = tune(world(), tmp_path / "other", n_trials=3, random_state=1)
    assert timeless(other) != timeless(whole)[:3]


def _tune_and_die(folder: Path, data: Dataset) -> None:
    def die(*_: Any) -> None:
        import os

        os._exit(9)

    Objective.propose = die  # type: ignore[assignment]
    tune(data, folder, n_trials=3, folds=1)


def test_a_trial_of_a_process_that_was_killed_does_not_count(tmp_path: Path) -> None:
    data = world(30)
    tune(data, tmp_path / "s", n_trials=1, folds=1)
    process = multiprocessing.get_context("fork").Process(target=_tune_and_die, args=(tmp_path / "s", data))
    process.start()
    process.join()
    assert process.exitcode == 9
    study = tune(data, tmp_path / "s", n_trials=2)
    assert timeless(study) == timeless(tune(data, tmp_path / "whole", n_trials=2, folds=1))


def test_settings_that_fail_are_recorded_and_the_search_goes_on(
    quick: Callable[[RIPML, int], float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value(_: Objective, model: RIPML, fold: int) -> float:
        if model.decoder == "votes":
            raise MemoryLimitError("this would need 9 GB and 1 GB are free; use a smaller `n_dims`.")
        return quick(model, fold)

    monkeypatch.setattr(Objective, "value", value)
    study = tune(world(), tmp_path / "s", n_trials=8)
    failed = [trial for trial in study.trials if trial.state == "failed"]
    assert failed == [trial for trial in study.trials if trial.preset == "paper"] != []
    assert failed[0].error == "this would need 9 GB and 1 GB are free; use a smaller `n_dims`."
    assert failed[0].value is None


def test_no_trial_is_started_after_the_timeout(quick: Callable[[RIPML, int], float], tmp_path: Path) -> None:
    study = tune(world(), tmp_path / "s", timeout=0)
    assert (study.trials, study.best) == ([], None)


def test_tail_is_searched_where_rare_labels_count_and_dimensions_where_labels_are_many(
    quick: Callable[[RIPML, int], float], tmp_path: Path
) -> None:
    data = world()
    study = tune(data, tmp_path / "s", n_trials=6, metric="PSP@5")
    assert all("tail" in trial.parameters for trial in study.trials)
    assert all(trial.settings.get("tail", 0) == float(f"{trial.parameters['tail']:.3g}") for trial in study.trials)
    many = replace(data, Y=csr_array((data.Y.data, data.Y.indices, data.Y.indptr), shape=(60, 5000)),
                   label_names=[str(i) for i in range(5000)])  # fmt: skip
    assert all("dims" in trial.parameters for trial in tune(many, tmp_path / "many", n_trials=4).trials)
    gammas = {
        trial.parameters["gamma"]: trial.model().kernel for trial in study.trials[1:] if trial.preset == "default"
    }
    assert all(kernel == RBF(float(f"{gamma:.3g}")) for gamma, kernel in gammas.items())


def test_a_study_is_of_one_data_set_metric_and_seed(quick: Callable[[RIPML, int], float], tmp_path: Path) -> None:
    tune(world(), tmp_path / "s", n_trials=1, metric="P@5", random_state=3)
    assert tune(world(), tmp_path / "s", n_trials=2).metric == "P@5"
    for changes, was in (({"metric": "P@1"}, "metric = P@5"), ({"folds": 2}, "folds = 3"),
                         ({"random_state": 0}, "random_state = 3")):  # fmt: skip
        with pytest.raises(ParameterError, match=f"this study was begun with {was}; choose another folder"):
            tune(world(), tmp_path / "s", **changes)
    with pytest.raises(ParameterError, match="this study was begun with other rows"):
        tune(world(61), tmp_path / "s")


def test_wrong_arguments_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"n_trials": 0}, "`n_trials` must be an integer ≥ 1; got 0"),
        ({"metric": "P@2"}, "`metric` must be one of P@1, .*; got 'P@2'"),
        ({"folds": 6}, "`folds` must be an integer from 1 to 5; got 6"),
        ({"random_state": -1}, "`random_state` must be an integer ≥ 0; got -1"),
        ({"folder": tmp_path / "file"}, "a study needs a folder, but this is a file"),
        ({"folder": tmp_path}, "is not empty and has no study; choose a new or empty folder"),
    ]
    for changes, sentence in wrong:
        with pytest.raises(ParameterError, match=sentence):
            tune(world(), **{"folder": tmp_path / "s", **changes})
    with pytest.raises(DataError, match="at least 5 rows with labels are needed"):
        tune(world(5), tmp_path / "few")
    with pytest.raises(ParameterError, match="there is no study in this folder"):
        Study.open(tmp_path / "nothing")
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ripml\[tune\]'"):
        tune(world(), tmp_path / "s")


def test_one_process_at_a_time_works_on_a_study(quick: Callable[[RIPML, int], float], tmp_path: Path) -> None:
    def meanwhile(_: Trial, study: Study) -> None:
        assert len(Study.open(study.folder).trials) == 1  # it can be read
        with pytest.raises(ParameterError, match="another process is working on this study"):
            tune(world(), study.folder)

    tune(world(), tmp_path / "s", n_trials=1, progress=meanwhile)
