"""The laws of the estimators over every baseline, and the rule by which they choose their regularisation."""

from __future__ import annotations

import functools
import json
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
import worlds
from laws import assert_same_scores, saved_scores_equal_loaded
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from ripml import baselines, metrics
from ripml.base import model_folder, registry
from ripml.base.errors import DataError, MemoryLimitError, ModelFolderError, NoLabelsError, ParameterError
from ripml.baselines.base import (
    Arrays,
    Baseline,
    FitAtRidge,
    best_candidates,
    choose_ridge,
    held_out_rows,
    require_dense,
)
from ripml.cli import main

PLANTED, ZIPF = worlds.planted(), worlds.zipf(n=90, d=40, n_labels=20)
BASELINES = [name for name in registry.class_names("estimator") if name != "RIPML"]
EVERY = pytest.mark.parametrize("name", BASELINES)


def baseline(name: str, **settings: Any) -> Baseline:
    made: Baseline = getattr(baselines, name)(**{"random_state": 0, **settings})
    return made


@functools.cache
def fitted(name: str) -> Baseline:
    """The baseline on the Zipf world; tests must not change it."""
    return baseline(name).fit(ZIPF.X, ZIPF.Y)


def assert_close(found: Any, expected: Any, bound: float) -> None:
    """Two matrices of scores have the same candidates and agree to `bound` of the largest score."""
    assert found.shape == expected.shape
    difference = np.abs(found.toarray() - expected.toarray())
    assert difference.max() <= bound * np.abs(expected.data).max()


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "Popularity"])
def test_planted_labels_are_found_again(name: str) -> None:
    model = baseline(name).fit(PLANTED.X, PLANTED.Y)
    assert model.score(PLANTED.X_new, PLANTED.Y_new) >= 0.97
    assert metrics.micro_f1(PLANTED.Y_new, model.predict(PLANTED.X_new)) >= 0.85
    assert model.left_out_precision_["P@1"] >= 0.9


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "Popularity"])
def test_every_baseline_beats_popularity(name: str) -> None:
    popular = fitted("Popularity").score(ZIPF.X_new, ZIPF.Y_new)
    assert fitted(name).score(ZIPF.X_new, ZIPF.Y_new) > popular


@EVERY
def test_sparse_equals_dense(name: str) -> None:
    """Features give the same scores dense, as CSR array or matrix."""
    expected = fitted(name).decision_function(ZIPF.X_new)
    sparse = baseline(name).fit(scipy.sparse.csr_array(ZIPF.X), ZIPF.Y)
    assert_close(sparse.decision_function(scipy.sparse.csr_array(ZIPF.X_new)), expected, 1e-6)
    assert_close(fitted(name).decision_function(scipy.sparse.csr_matrix(ZIPF.X_new)), expected, 1e-6)


@EVERY
def test_one_by_one_equals_batch(name: str) -> None:
    """A row has the same scores alone as among others."""
    together = fitted(name).decision_function(ZIPF.X_new[:20])
    singly = scipy.sparse.vstack([fitted(name).decision_function(ZIPF.X_new[i : i + 1]) for i in range(20)])
    assert_close(singly.tocsr(), together, 1e-8)


@EVERY
def test_threads_do_not_matter(name: str) -> None:
    """For one random_state a model is the same whatever n_jobs is."""
    one, two = (baseline(name, n_jobs=n_jobs).fit(ZIPF.X, ZIPF.Y) for n_jobs in (1, 2))
    assert_close(two.decision_function(ZIPF.X_new), one.decision_function(ZIPF.X_new), 1e-9)
    assert one.ridge_ == two.ridge_
    assert one.threshold_ == pytest.approx(two.threshold_)


@EVERY
def test_the_same_seed_gives_the_same_model(name: str) -> None:
    again = clone(fitted(name)).fit(ZIPF.X, ZIPF.Y)
    assert_same_scores(again.decision_function(ZIPF.X_new), fitted(name).decision_function(ZIPF.X_new))
    assert again.left_out_precision_ == fitted(name).left_out_precision_


@EVERY
def test_saved_equals_loaded_and_memory_mapped(name: str, tmp_path: Path) -> None:
    model = baseline(name).fit(pandas.DataFrame(ZIPF.X).add_prefix("f"), ZIPF.names)
    X_new = pandas.DataFrame(ZIPF.X_new).add_prefix("f")
    loaded = saved_scores_equal_loaded(model, X_new, tmp_path / "model")
    for value in ("ridge_", "tried_"):
        assert getattr(loaded, value) == getattr(model, value)
    learnt = [value for value in loaded.learnt_.values() if isinstance(value, np.ndarray)]
    assert all(isinstance(value, np.memmap) or isinstance(value.base, np.memmap) for value in learnt if value.ndim)
    with pytest.raises(ValueError, match="feature names"):
        loaded.decision_function(X_new.rename(columns={"f0": "other"}))


@EVERY
def test_arrays_that_do_not_fit_together_are_refused(name: str) -> None:
    parameters, arrays = fitted(name).to_state()
    for damaged in (
        (parameters | {"n_features": 7}, arrays) if name != "Popularity" else ({}, arrays),
        ({key: value for key, value in parameters.items() if key != "ridge"}, arrays),
        (parameters, {key: value for key, value in arrays.items() if not key.startswith("learnt_")}),
        (parameters, arrays | {"names": np.zeros(len(arrays["names"]), np.int64)}),
        (parameters | {"settings": {**parameters["settings"], "n_jobs": 0}}, arrays),
    ):
        with pytest.raises(ModelFolderError, match="do not fit together"):
            type(fitted(name)).from_state(*damaged)


HOSTILE: dict[str, list[Any]] = {
    "n_features": [10**10, -1, 7, None, "x", 40.0],
    "n_rows": [None, "x", -3, 1.5],
    "threshold": [None, "x", [1, 2]],
    "ridge": [None, "x"],
    "left_out_precision": [None, 3, {"P@1": "x"}],
    "tried": [None, [[1.0, "x"]], 5],
    "feature_names": [7, ["one"], None],
    "sparse": [None, {"nothing": [1, 2]}],
    "seed": ["x", -1],
}


@EVERY
def test_hostile_values_of_a_folder_are_refused_before_they_are_used(name: str) -> None:
    parameters, arrays = fitted(name).to_state()
    for key, values in HOSTILE.items():
        for value in values:
            if name == "Popularity" and key == "n_features" and value in (7, 10**10):
                continue  # popularity ignores the features, so that any number of them is right
            with pytest.raises(ModelFolderError, match="do not fit together"):
                type(fitted(name)).from_state(parameters | {key: value}, arrays)
    for key, array in arrays.items():
        for damaged in (array[:-1] if array.ndim else array[None], array.astype(complex), array.astype(bool)):
            if damaged.dtype.kind == array.dtype.kind and damaged.shape == array.shape:
                continue
            with pytest.raises(ModelFolderError, match="do not fit together"):
                type(fitted(name)).from_state(parameters, arrays | {key: damaged})


def test_hostile_settings_of_a_folder_are_refused_before_any_work() -> None:
    for name, settings in (
        ("BayesianCompressedSensing", {"n_steps": 10**10}),
        ("SLEEC", {"n_learners": 10**10}),
        ("CompressedSensing", {"n_dims": 10**10}),
    ):
        parameters, arrays = fitted(name).to_state()
        with pytest.raises(ModelFolderError, match="do not fit together"):
            type(fitted(name)).from_state(parameters | {"settings": parameters["settings"] | settings}, arrays)
    parameters, arrays = fitted("SLEEC").to_state()
    with pytest.raises(ModelFolderError, match="do not fit together"):
        type(fitted("SLEEC")).from_state(parameters, arrays | {"learnt_k": np.array(10**12)})


def test_the_same_value_in_another_type_is_not_a_change() -> None:
    model = baseline("PLST", n_dims=np.int64(5), ridge=1.0).fit(ZIPF.X, ZIPF.Y)
    expected = model.decision_function(ZIPF.X_new)
    assert_same_scores(model.set_params(n_dims=5, ridge=1).decision_function(ZIPF.X_new), expected)


@pytest.mark.parametrize("name", ["PLST", "CPLST", "CSSP"])
def test_thousands_of_labels_with_one_per_row_give_finite_scores(name: str) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(5000, size=600)
    Y = scipy.sparse.csr_array((np.ones(600), (np.arange(600), label)), shape=(600, 5000))
    X = rng.standard_normal((600, 8)) + 0.01 * label[:, None]
    model = baseline(name, n_dims=10, ridge=1.0).fit(X, Y)
    assert np.isfinite(model.decision_function(X[:5]).data).all()


@EVERY
def test_the_order_of_labels_does_not_matter(name: str) -> None:
    """Labels by name are the same labels in any order of their columns, for methods that draw nothing by column."""
    if name in ("CSSP", "LEML", "SLEEC", "CompressedSensing", "BayesianCompressedSensing"):
        pytest.skip("draws by column or in iterations, so that scores agree in distribution only")
    names = [f"l{column}" for column in range(20)]
    shuffled = np.random.default_rng(0).permutation(20)
    model = clone(fitted(name)).set_params(random_state=0)
    model.fit(ZIPF.X, ZIPF.Y[:, shuffled], label_names=[names[column] for column in shuffled])
    scores = model.decision_function(ZIPF.X_new).toarray()
    expected = fitted(name).decision_function(ZIPF.X_new).toarray()[:, shuffled]
    assert np.abs(scores - expected).max() <= 1e-6 * np.abs(expected).max()


@EVERY
def test_rows_without_labels_change_nothing(name: str) -> None:
    X = np.vstack([ZIPF.X[:50], np.ones((30, 40)), ZIPF.X[50:]])
    Y = scipy.sparse.vstack([ZIPF.Y[:50], scipy.sparse.csr_array((30, 20)), ZIPF.Y[50:]], format="csr")
    model = baseline(name).fit(X, Y)
    assert_same_scores(model.decision_function(ZIPF.X_new), fitted(name).decision_function(ZIPF.X_new))
    assert (model.n_rows_, model.n_unlabelled_) == (90, 30)


@EVERY
@pytest.mark.parametrize("n", [1, 2, 6])
def test_a_few_rows_are_enough(name: str, n: int) -> None:
    model = baseline(name).fit(PLANTED.X[:n], PLANTED.Y[:n])
    scores = model.decision_function(PLANTED.X[:n])
    assert scores.shape == (n, 25)
    assert np.isfinite(scores.data).all()


@EVERY
def test_labels_that_no_row_or_every_row_carries_do_no_harm(name: str) -> None:
    dense = np.hstack([np.ones((90, 1)), np.zeros((90, 2)), ZIPF.Y.toarray()])
    truth = np.hstack([np.ones((90, 1)), np.zeros((90, 2)), ZIPF.Y_new.toarray()])
    scores = baseline(name).fit(ZIPF.X, dense).decision_function(ZIPF.X_new)
    assert np.isfinite(scores.data).all()
    assert metrics.precision_at_k(truth, scores, k=1) >= 0.8


@EVERY
def test_a_single_label_is_always_predicted(name: str) -> None:
    model = baseline(name).fit(ZIPF.X, np.ones((90, 1)))
    assert model.score(ZIPF.X_new, np.ones((90, 1))) == 1


@EVERY
def test_a_row_without_features_has_finite_scores_or_none(name: str) -> None:
    scores = fitted(name).decision_function(np.zeros((2, 40)))
    assert scores.shape == (2, 20)
    assert np.isfinite(scores.data).all()


@EVERY
def test_a_prediction_without_rows_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="0 sample"):
        fitted(name).decision_function(np.zeros((0, 40)))


@EVERY
def test_it_follows_scikit_learns_rules(name: str) -> None:
    model = baseline(name)
    assert clone(model).get_params() == model.get_params()
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    assert repr(model).startswith(f"{name}(")
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.decision_function(ZIPF.X_new)
    pipeline = make_pipeline(MaxAbsScaler(), model).fit(ZIPF.X, ZIPF.Y)
    assert 0 < pipeline.score(ZIPF.X_new, ZIPF.Y_new) <= 1


@EVERY
def test_wrong_training_rows_are_refused_and_the_model_stays_as_it_was(name: str) -> None:
    model = deepcopy(fitted(name))
    before = model.decision_function(ZIPF.X_new)
    with pytest.raises(DataError, match="X has 90 rows and Y has 89"):
        model.fit(ZIPF.X, ZIPF.Y[:89])
    with pytest.raises(NoLabelsError, match="none of the 90 rows carries a label"):
        model.fit(ZIPF.X, np.zeros((90, 3)))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((90, 40), np.nan), ZIPF.Y)
    assert_same_scores(model.decision_function(ZIPF.X_new), before)
    with pytest.raises(ValueError, match="40 features"):
        model.decision_function(np.ones((2, 3)))


@EVERY
def test_settings_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="`normalize` must be True or False; got 3"):
        baseline(name, normalize=3).fit(ZIPF.X, ZIPF.Y)
    with pytest.raises(ParameterError, match="`n_jobs` must be"):
        baseline(name, n_jobs=0).fit(ZIPF.X, ZIPF.Y)
    known = baseline(name).get_params()
    if "ridge" in known:
        with pytest.raises(ParameterError, match="`ridge` must be 'auto' or a finite number ≥ 0; got -1"):
            baseline(name, ridge=-1).fit(ZIPF.X, ZIPF.Y)
    for setting in {"n_dims", "n_neighbors", "n_learners", "n_clusters"} & set(known):
        with pytest.raises(ParameterError, match=f"`{setting}` must be .*an integer ≥ 1; got 0"):
            baseline(name, **{setting: 0}).fit(ZIPF.X, ZIPF.Y)


@EVERY
def test_settings_changed_after_the_fit_are_refused(name: str) -> None:
    model = deepcopy(fitted(name))
    model.set_params(normalize=not model.normalize)
    with pytest.raises(ParameterError, match="`normalize` was changed after the fit; fit again"):
        model.decision_function(ZIPF.X_new)


def test_every_registered_baseline_is_a_name_of_the_package() -> None:
    assert set(BASELINES) == set(baselines.__all__)
    assert all(getattr(baselines, name).__name__ == name for name in BASELINES)
    assert dir(baselines) == sorted({*vars(baselines), *baselines.__all__})
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = baselines.Nothing


# ------------------------------------------------------------------------------------------------------- the rule


def test_rows_are_held_out_once_at_random_and_at_most_two_thousand() -> None:
    for n, expected in ((5, 1), (99, 19), (30_000, 2000)):
        train, held_out = held_out_rows(n, seed=3)
        assert len(held_out) == expected
        np.testing.assert_array_equal(np.sort(np.concatenate([train, held_out])), np.arange(n))
    assert not np.array_equal(held_out_rows(99, 0)[1], held_out_rows(99, 1)[1])


@pytest.mark.parametrize("best", [0.0001, 0.01, 0.316, 1.0, 3.16, 1000.0, 10000.0])
def test_the_search_finds_the_maximum_and_returns_what_it_tried(best: float) -> None:
    found, tried = choose_ridge(lambda ridge: -abs(np.log(ridge / best)))
    assert found == best
    assert tried[0][0] == 1.0
    assert max(tried, key=lambda pair: pair[1])[0] == best


def test_the_ridge_is_the_best_on_held_out_rows_and_then_fitted_to_all() -> None:
    model = baseline("PLST").fit(ZIPF.X, ZIPF.Y)
    train, held_out = held_out_rows(90, model.seed_)
    for ridge, precision in model.tried_:
        scores = baseline("PLST", ridge=ridge).fit(ZIPF.X[train], ZIPF.Y[train]).decision_function(ZIPF.X[held_out])
        mean = np.mean([metrics.precision_at_k(ZIPF.Y[held_out], scores, k=k) for k in (1, 3, 5)])
        assert mean == pytest.approx(precision)
    assert model.ridge_ == max(model.tried_, key=lambda pair: pair[1])[0]
    given = baseline("PLST", ridge=model.ridge_).fit(ZIPF.X, ZIPF.Y)
    assert given.tried_ == []
    assert_same_scores(given.decision_function(ZIPF.X_new), model.decision_function(ZIPF.X_new))
    assert given.threshold_ == model.threshold_


def test_the_best_hundred_labels_of_a_row_are_its_candidates() -> None:
    scores = np.random.default_rng(0).standard_normal((3, 250))
    found = best_candidates(scores)
    assert np.diff(found.indptr).tolist() == [100] * 3
    np.testing.assert_array_equal(metrics.ranking(found, 100), metrics.ranking(scores, 100))


def test_a_dense_array_of_more_than_two_gigabytes_is_refused() -> None:
    require_dense((15_000, 16_000), "this", "use less")
    with pytest.raises(
        MemoryLimitError,
        match=r"this would be a dense array of 20,000 × 20,000, 3\.2 GB, but a baseline may use at most 2 GB; use less",
    ):
        require_dense((20_000, 20_000), "this", "use less")


# ----------------------------------------------------------------------------------------------------- a new baseline


class Centroids(Baseline):
    """A toy: each label is scored by the inner product with the mean of its rows."""

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        means = np.asarray(X.T @ Y / np.maximum(Y.sum(axis=0), 1))
        return lambda ridge: {"means": means}

    def _score(self, arrays: Arrays, X: Any) -> Any:
        return X @ arrays["means"]

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        return {"means": (d, L)}


def test_a_new_baseline_is_one_class_and_one_line_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._STAGES, "estimator", dict(registry._STAGES["estimator"]))  # undone after the test
    monkeypatch.setitem(sys.modules, "toy_baseline", SimpleNamespace(Centroids=Centroids))
    registry.register("estimator", "centroids", "toy_baseline:Centroids")
    assert registry.words("estimator")[-1] == "centroids"  # the shell's list of methods
    assert baselines.Centroids is Centroids
    model = baselines.Centroids(random_state=0).fit(ZIPF.X, ZIPF.names)
    assert model.score(ZIPF.X_new, ZIPF.Y_new) > 0
    saved_scores_equal_loaded(model, ZIPF.X_new, tmp_path / "model")


# ------------------------------------------------------------------------------------------------------- the shell


def test_the_shell_trains_predicts_and_inspects_a_baseline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def run(*words: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        out, err = capfd.readouterr()
        assert stop.value.code == code, err
        return err if code else out

    rows = [{"text": "red round apple", "labels": ["fruit"]}, {"text": "green leek soup", "labels": ["dish"]}] * 4
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    data, folder = str(tmp_path / "rows.jsonl"), str(tmp_path / "model")
    summary = json.loads(run("train", data, folder, "--method", "plst", "--dims", "1", "--json"))
    assert (summary["method"], summary["n_dims"]) == ("PLST", 1)
    assert isinstance(summary["ridge"], float)
    local = json.loads(run("train", data, str(tmp_path / "other"), "--method", "sleec", "--json"))
    assert all(isinstance(local[name], int) for name in ("n_neighbors", "n_clusters"))
    predicted = run("predict", folder, data, "--top", "1", "--json")
    assert [json.loads(line)["labels"][0]["label"] for line in predicted.splitlines()] == ["fruit", "dish"] * 4
    assert json.loads(run("evaluate", folder, data, "--json"))["P@1"] == 1
    assert "PLST" in run("inspect", folder)
    assert model_folder.load(folder).kind == "PLST"
    for words, message in (
        (
            ("train", data, folder, "--method", "plst", "--clusters", "3"),
            "--method plst does not take --clusters; it takes --dims, --jobs, --seed, --ridge.",
        ),
        (("train", data, folder, "--method", "plst", "--preset", "linear"), "--preset is for RIPML only"),
        (("predict", folder, data, "--probabilities"), "--probabilities requires a RIPML model"),
    ):
        assert message in run(*words, code=2)
