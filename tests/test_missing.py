"""Missing labels: the laws of hiding, weighting and completion, with refits as the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from realdata import data_folder, needs_data
from scipy.sparse import coo_array, csr_array
from worlds import blocks, regression, zipf, zipf_labels

from ripml import metrics
from ripml.base.errors import DataError, MemoryLimitError, ParameterError
from ripml.lab import missing_labels as missing

KINDS = ["random", "popularity"]
SHARES = [0.2, 0.4, 0.6]


def cells(Y: Any) -> set[tuple[int, int]]:
    found = coo_array(Y)
    return set(zip(found.coords[0].tolist(), found.coords[1].tolist(), strict=True))


def counts(Y: Any) -> NDArray[np.int64]:
    return np.bincount(csr_array(Y).indices, minlength=Y.shape[1])


def is_clean(matrix: Any) -> bool:
    """CSR with sorted indices, no duplicates and no stored zeros."""
    return bool(matrix.format == "csr" and csr_array(matrix).has_canonical_format and np.all(matrix.data != 0))


# ------------------------------------------------------------------------------------------------------------- hiding


@pytest.mark.parametrize("by", KINDS)
@pytest.mark.parametrize("share", SHARES)
def test_hiding_removes_the_given_share_of_the_labels(share: float, by: str) -> None:
    Y = zipf_labels(n=4000)
    left = missing.hide_labels(Y, share, by, seed=3)
    assert is_clean(left)
    assert set(left.data) == {1}
    assert cells(left) < cells(Y)
    assert 1 - left.nnz / Y.nnz == pytest.approx(share, abs=4 * (share * (1 - share) / Y.nnz) ** 0.5)


@pytest.mark.parametrize("by", KINDS)
def test_hiding_is_a_function_of_its_seed_and_leaves_its_argument_alone(by: str) -> None:
    Y = zipf_labels()
    before = Y.copy()
    one, same, other = (cells(missing.hide_labels(Y, 0.4, by, seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert cells(Y) == cells(before)


@pytest.mark.parametrize("by", KINDS)
def test_hiding_nothing_leaves_everything(by: str) -> None:
    Y = zipf_labels()
    assert cells(missing.hide_labels(Y, 0, by)) == cells(Y)


def test_popularity_hides_rare_labels_more_and_random_hides_all_alike() -> None:
    Y = zipf_labels(n=6000)
    rare = counts(Y) < np.median(counts(Y))

    def kept(by: str) -> tuple[float, float]:
        share = [counts(missing.hide_labels(Y, 0.4, by))[some].sum() / counts(Y)[some].sum() for some in (rare, ~rare)]
        return share[0], share[1]

    rare_kept, frequent_kept = kept("popularity")
    assert rare_kept < frequent_kept - 0.2
    assert kept("random") == pytest.approx((0.6, 0.6), abs=0.04)


@pytest.mark.parametrize("share", SHARES)
def test_assumed_propensities_recover_the_chances_by_which_labels_were_hidden(share: float) -> None:
    Y = zipf_labels(n=40_000, n_labels=20)
    left = missing.hide_labels(Y, share, "popularity")
    kept = counts(left) / counts(Y)
    assert missing.assumed_propensities(left, share, "popularity") == pytest.approx(kept, rel=0.1)
    assert missing.assumed_propensities(left, share, "random") == pytest.approx(np.full(20, 1 - share))


@pytest.mark.parametrize("by", KINDS)
@pytest.mark.parametrize("share", [0, *SHARES, 0.99])
def test_assumed_propensities_add_up_to_the_assumed_share_and_rise_with_frequency(share: float, by: str) -> None:
    Y = zipf_labels()
    p = missing.assumed_propensities(Y, share, by)
    assert counts(Y).sum() == pytest.approx((1 - share) * (counts(Y) / p).sum())
    assert np.all(np.diff(p[np.argsort(counts(Y))]) >= -1e-12)


# ---------------------------------------------------------------------------------------------------------- weighting


@pytest.mark.parametrize("by", KINDS)
def test_weighted_labels_are_the_true_ones_in_the_mean(by: str) -> None:
    Y = zipf_labels(n=200, n_labels=15)
    p = missing._propensities(counts(Y).astype(float), 0.4, by, observed=False)
    rounds = 400
    mean = sum(missing.weigh(missing.hide_labels(Y, 0.4, by, seed), p) for seed in range(rounds)) / rounds
    noise = np.sqrt((1 - p) / p / rounds)  # of one cell: the standard deviation of seen/p, over the rounds
    assert np.all(np.abs((mean - Y).toarray()) <= 6 * noise)
    assert mean.sum() == pytest.approx(Y.sum(), rel=0.01)


def test_weighting_the_targets_of_ridge_is_weighting_its_scores() -> None:
    world = zipf()
    p = np.linspace(0.2, 1, world.Y.shape[1])
    scores, of_weighted = (missing.left_out_scores(world.X, Y, 1.0, 40) for Y in (world.Y, missing.weigh(world.Y, p)))
    assert of_weighted.toarray() == pytest.approx(missing.weigh(scores, p).toarray())


def test_weighting_with_equal_propensities_changes_no_ranking() -> None:
    scores = csr_array(np.random.default_rng(0).random((20, 9)))
    weighed = missing.weigh(scores, np.full(9, 0.3))
    assert np.array_equal(metrics.ranking(weighed, 9), metrics.ranking(scores, 9))


def test_power_goes_from_the_scores_as_they_are_to_unbiased_ones() -> None:
    scores, p = csr_array([[0.4, 0.0, 0.1]]), np.array([0.5, 0.5, 0.04])
    assert missing.weigh(scores, p, 0).toarray() == pytest.approx(scores.toarray())
    assert missing.weigh(scores, p, 0.5).toarray() == pytest.approx(np.array([[0.4 / 0.5**0.5, 0, 0.5]]))
    assert missing.weigh(scores, p).toarray() == pytest.approx(np.array([[0.8, 0, 2.5]]))


# --------------------------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("make", [np.asarray, csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("n", "d"), [(30, 12), (12, 30)], ids=["primal", "dual"])
@pytest.mark.parametrize("block_bytes", [1, 64e6], ids=["row by row", "one block"])
def test_left_out_scores_are_those_of_a_refit_without_the_row(
    n: int, d: int, make: Callable[[Any], Any], block_bytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, "_BLOCK_BYTES", block_bytes)
    X, _ = regression(n, d)
    Y = zipf_labels(n, 8).toarray()
    refits = np.zeros_like(Y, np.float64)
    for i in range(n):
        rest = np.arange(n) != i
        refits[i] = X[i] @ np.linalg.solve(X[rest].T @ X[rest] + 0.7 * np.eye(d), X[rest].T @ Y[rest])
    scores = missing.left_out_scores(make(X), csr_array(Y), ridge=0.7, n_candidates=8)
    assert is_clean(scores)
    assert scores.toarray() == pytest.approx(np.maximum(refits, 0))


def test_left_out_scores_keep_the_best_candidates_of_a_row_and_ties_go_to_the_lower_label() -> None:
    X, Y = np.ones((5, 1)), csr_array([[1, 1, 1, 0]] * 4 + [[1, 0, 0, 1]])
    every, two = (missing.left_out_scores(X, Y, n_candidates=k) for k in (4, 2))
    assert (np.diff(two.indptr) == 2).all()
    assert np.array_equal(metrics.ranking(two, 2), metrics.ranking(every, 2))
    assert two.multiply(every != 0).sum() == pytest.approx(two.sum())


@pytest.mark.parametrize("by", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_completion_keeps_every_observed_label_and_adds_weights_below_one(by: str, seed: int) -> None:
    world = zipf(seed=seed)
    left = missing.hide_labels(world.Y, 0.4, by, seed)
    p = missing.assumed_propensities(left, 0.4, by)
    completed = missing.complete(left, missing.left_out_scores(world.X, left), p)
    assert is_clean(completed)
    assert completed.nnz > left.nnz
    assert ((completed.data > 0) & (completed.data <= 1)).all()
    assert cells(completed == 1) == cells(left)


@pytest.mark.parametrize("by", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_rounded_completion_is_binary_keeps_observed_labels_and_adds_the_expected_number(
    by: str, seed: int
) -> None:
    world = zipf(seed=seed)
    left = missing.hide_labels(world.Y, 0.4, by, seed)
    p = missing.assumed_propensities(left, 0.4, by)
    rounded = missing.to_indicator(missing.complete(left, missing.left_out_scores(world.X, left), p), p)
    assert is_clean(rounded)
    assert set(rounded.data) == {1}
    assert cells(left) < cells(rounded)
    assert rounded.nnz == pytest.approx(left.nnz / 0.6, abs=1)


def test_where_nothing_is_missing_nothing_is_added() -> None:
    world = zipf()
    p = missing.assumed_propensities(world.Y, 0)
    completed = missing.complete(world.Y, missing.left_out_scores(world.X, world.Y), p)
    assert np.array_equal(completed.toarray(), world.Y.toarray())
    assert np.array_equal(missing.to_indicator(completed, p).toarray(), world.Y.toarray())
    without_scores = missing.complete(world.Y, csr_array(world.Y.shape), np.full(world.Y.shape[1], 0.5))
    assert np.array_equal(without_scores.toarray(), world.Y.toarray())


def test_a_score_of_one_where_nothing_is_missing_adds_nothing() -> None:
    completed = missing.complete(csr_array([[0, 1]]), csr_array([[1.0, 1.0]]), np.ones(2))
    assert completed.toarray().tolist() == [[0, 1]]


def test_the_chance_of_a_missing_label_is_bayes_rule() -> None:
    rng = np.random.default_rng(0)
    f, p, n = 0.7, 0.4, 200_000
    true = rng.random(n) < f
    seen = true & (rng.random(n) < p)
    completed = missing.complete(csr_array((1, 1)), csr_array([[f * p]]), np.array([p]))
    assert completed.toarray()[0, 0] == pytest.approx(true[~seen].mean(), abs=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_hidden_labels_of_a_block_are_found(seed: int) -> None:
    """Every row of a block carries all the labels of the block; those that were hidden are the likeliest additions."""
    X = blocks(seed=seed).X
    block = np.argmax(X.reshape(len(X), 4, 3).sum(axis=2), axis=1)
    Y = csr_array((np.arange(12) // 3 == block[:, None]).astype(np.float32))
    left = missing.hide_labels(Y, 0.3, seed=seed)
    p = missing.assumed_propensities(left, 0.3)
    completed = missing.complete(left, missing.left_out_scores(X, left), p)
    added = cells(missing.to_indicator(completed, p)) - cells(left)
    hidden = cells(Y) - cells(left)
    assert len(added & hidden) >= 0.95 * len(added)
    assert len(added & hidden) >= 0.7 * len(hidden)


@needs_data
def test_completion_of_bibtex_is_closer_to_the_complete_labels_than_what_was_seen() -> None:
    from ripml import datasets
    from ripml.model.features import unit_rows

    assert data_folder().is_dir()
    train, _ = datasets.load("bibtex")
    X, Y = unit_rows(train.X[:1500]), csr_array(train.Y[:1500])
    left = missing.hide_labels(Y, 0.6)
    completed = missing.complete(left, missing.left_out_scores(X, left), missing.assumed_propensities(left, 0.6))
    distance, before = (((labels - Y).toarray() ** 2).sum() for labels in (completed, left))
    assert distance < 0.95 * before


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, float("nan"), "half", True])
def test_a_share_out_of_range_is_refused(share: Any) -> None:
    with pytest.raises(ParameterError, match="`share` must be a number from 0 to below 1; got"):
        missing.hide_labels(zipf_labels(), share)
    with pytest.raises(ParameterError, match="`share` must be a number from 0 to below 1; got"):
        missing.assumed_propensities(zipf_labels(), share)


def test_an_unknown_kind_of_hiding_is_refused() -> None:
    with pytest.raises(ParameterError, match="`by` must be one of 'random', 'popularity'; got 'size'"):
        missing.hide_labels(zipf_labels(), 0.4, by="size")


@pytest.mark.parametrize("ridge", [0, -1, float("inf"), float("nan"), "auto"])
def test_a_ridge_out_of_range_is_refused(ridge: Any) -> None:
    with pytest.raises(ParameterError, match="`ridge` must be a finite number > 0; got"):
        missing.left_out_scores(np.eye(2), np.eye(2), ridge=ridge)


@pytest.mark.parametrize("n_candidates", [0, -1, 2.5, True])
def test_a_number_of_candidates_out_of_range_is_refused(n_candidates: Any) -> None:
    with pytest.raises(ParameterError, match="`n_candidates` must be an integer ≥ 1; got"):
        missing.left_out_scores(np.eye(2), np.eye(2), n_candidates=n_candidates)


@pytest.mark.parametrize("power", [float("nan"), "half"])
def test_a_power_that_is_not_a_number_is_refused(power: Any) -> None:
    with pytest.raises(ParameterError, match="`power` must be a number; got"):
        missing.weigh(np.eye(2), np.ones(2), power)


def test_rows_that_do_not_match_are_refused() -> None:
    with pytest.raises(DataError, match="X has 3 rows and Y has 2; they must have the same number"):
        missing.left_out_scores(np.eye(3), np.eye(2))
    with pytest.raises(DataError, match=r"scores must have the shape of Y, \(2, 2\); got \(3, 3\)"):
        missing.complete(np.eye(2), np.eye(3), np.ones(2))


def test_features_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match="X must hold finite numbers"):
        missing.left_out_scores(np.array([[1.0], [np.nan]]), np.eye(2))


def test_labels_that_are_not_an_indicator_are_refused() -> None:
    with pytest.raises(DataError, match=r"Y must be an indicator of 0s and 1s; got the value 0\.5"):
        missing.complete(csr_array([[1, 0.5]]), csr_array((1, 2)), np.ones(2))
    with pytest.raises(DataError, match="Y must be an indicator matrix of n rows and L labels"):
        missing.hide_labels([["a"], ["b"]], 0.4)


@pytest.mark.parametrize("use", [missing.weigh, missing.to_indicator])
def test_propensities_out_of_range_are_refused(use: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(DataError, match=r"one propensity for each of the 2 labels; got shape \(3,\)"):
        use(np.eye(2), np.ones(3))
    with pytest.raises(DataError, match=r"must lie in \(0, 1\]; got 0.0 for label 1"):
        use(np.eye(2), np.array([1.0, 0.0]))


def test_a_regression_too_large_for_memory_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ripml.base.parallel.available_memory", lambda: 50)
    with pytest.raises(MemoryLimitError, match=r"ridge regression of 2 rows on 2 features would need .*; complete"):
        missing.left_out_scores(np.eye(2), np.eye(2))
