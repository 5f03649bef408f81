"""The blend: trees against scikit-learn's, the promises about scores, and calibration where it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from ripml.decoding import blend as blending
from ripml.decoding.blend import Candidates, Trees, fit_blend, fit_trees
from ripml.decoding.calibration import expected_calibration_error, fit_steps, in_steps
from ripml.decoding.signals import TIE, _standing

RISING = ("value", "votes", "similar")


def simulated(n: int = 600, k: int = 8, seed: int = 0) -> tuple[Candidates, NDArray[np.bool_]]:
    """Candidates whose chance to be right is a function of value, votes and similar; a fifth of places is empty."""
    rng = np.random.default_rng(seed)
    signals = {name: rng.random((n, k)).astype(np.float32) for name in RISING}
    signals["frequency"] = rng.integers(1, 500, (n, k)).astype(np.float32)
    signals["rank"] = np.broadcast_to(np.arange(k, dtype=np.float32), (n, k))
    log_odds = 6 * signals["value"] + 4 * signals["votes"] * signals["similar"] - np.log(signals["frequency"]) / 2 - 3
    right = rng.random((n, k)) < 1 / (1 + np.exp(-log_odds))
    there = rng.random((n, k)) < 0.8
    labels = np.where(there, rng.integers(1000, size=(n, k)), -1)
    return Candidates(labels, {name: np.where(there, s, np.float32(0)) for name, s in signals.items()}), right & there


Fit = Callable[[Candidates, NDArray[np.bool_]], tuple[Trees, Any]]


@pytest.fixture
def both() -> Fit:
    """Candidates and outcomes ↦ the trees, and scikit-learn's for the same signals with the same settings."""

    def fit(candidates: Candidates, right: NDArray[np.bool_]) -> tuple[Trees, Any]:
        trees = fit_trees(candidates, right)
        assert trees is not None
        filled = candidates.labels.ravel() >= 0
        booster = HistGradientBoostingClassifier(
            max_iter=40,
            max_depth=4,
            max_leaf_nodes=16,
            min_samples_leaf=40,
            early_stopping=False,
            monotonic_cst=[int(name in RISING) for name in candidates.signals],
        )
        return trees, booster.fit(candidates.table()[filled], right.ravel()[filled])

    return fit


def assert_same(trees: Trees, booster: Any, table: NDArray[np.float32]) -> None:
    found = trees.probabilities(table)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, booster.predict_proba(table)[:, 1], atol=1e-6)


# ---------------------------------------------------------------------------------------------------- scikit-learn's


@pytest.mark.parametrize("n", [200, 600, 2000])
def test_array_trees_predict_what_scikit_learn_predicts(n: int, both: Fit) -> None:
    candidates, right = simulated(n)
    trees, booster = both(candidates, right)
    assert_same(trees, booster, candidates.table())
    assert_same(trees, booster, simulated(300, seed=9)[0].table())
    far = np.random.default_rng(1).standard_normal((500, 5)).astype(np.float32) * 1e4
    assert_same(trees, booster, far)


def test_trees_with_leaves_that_end_early_predict_the_same(both: Fit) -> None:
    candidates, right = simulated(200, k=4)
    trees, booster = both(candidates, right)
    leaves = [predictor.get_n_leaf_nodes() for (predictor,) in booster._predictors]
    assert min(leaves) < 2**4
    assert_same(trees, booster, candidates.table())


def test_trees_of_a_single_leaf_predict_the_same(both: Fit) -> None:
    candidates, _ = simulated(200, k=1)
    same = Candidates(np.zeros((200, 1), np.int64), {n: np.ones((200, 1), np.float32) for n in candidates.signals})
    right = np.arange(200)[:, None] % 4 == 0
    trees, booster = both(same, right)
    assert_same(trees, booster, same.table())
    np.testing.assert_allclose(trees.probabilities(same.table()), 0.25, atol=1e-3)


def test_a_signal_on_the_very_edge_of_a_leaf_goes_where_scikit_learn_sends_it(both: Fit) -> None:
    candidates, right = simulated()
    trees, booster = both(candidates, right)
    table = np.repeat(candidates.table()[:200], 3, axis=0)
    edges = np.unique(trees.threshold[np.isfinite(trees.threshold) & (trees.feature == 0)])
    table[:, 0] = np.resize(np.concatenate([edges, np.nextafter(edges, np.float32(2))]), len(table))
    assert_same(trees, booster, table)


def test_few_values_of_a_signal_are_split_between_them(both: Fit) -> None:
    candidates, right = simulated()
    coarse = Candidates(candidates.labels, {n: np.round(3 * s, 0) for n, s in candidates.signals.items()})
    assert_same(*both(coarse, right), coarse.table())


def test_empty_places_are_not_learnt_from(both: Fit) -> None:
    candidates, right = simulated()
    empty = candidates.labels < 0
    assert empty.any()
    noise = np.random.default_rng(5).standard_normal(empty.shape).astype(np.float32)
    dirty = Candidates(candidates.labels, {n: np.where(empty, noise, s) for n, s in candidates.signals.items()})
    clean, _ = both(candidates, right)
    other, _ = both(dirty, right | empty)
    for name, array in clean.to_arrays().items():
        np.testing.assert_array_equal(array, other.to_arrays()[name])


# -------------------------------------------------------------------------------------------------------- promises


@pytest.mark.parametrize("name", RISING)
@pytest.mark.parametrize("learnt", [True, False], ids=["trees", "mean"])
def test_a_larger_signal_never_lowers_a_score(name: str, learnt: bool) -> None:
    candidates, right = simulated()
    trees = fit_trees(candidates, right) if learnt else None
    before = candidates.scores(trees)
    for more in (1e-6, 0.01, 0.2, 5):
        raised = Candidates(
            candidates.labels, {**candidates.signals, name: candidates.signals[name] + np.float32(more)}
        )
        assert (raised.scores(trees) >= before).all()


def test_trees_learn_more_than_the_mean_of_the_signals() -> None:
    candidates, right = simulated()
    trees = fit_trees(candidates, right)
    assert trees is not None
    new, truth = simulated(seed=1)
    there = new.labels >= 0

    def error(scores: NDArray[np.float32]) -> float:
        return float(np.square(scores - truth)[there].mean())

    assert error(new.scores(trees)) < 0.85 * error(new.scores(None))


@pytest.mark.parametrize("learnt", [True, False], ids=["trees", "mean"])
def test_scores_are_between_zero_and_one_whatever_the_signals(learnt: bool) -> None:
    candidates, right = simulated()
    trees = fit_trees(candidates, right) if learnt else None
    wild = {n: s * np.float32(1e6) - np.float32(3e5) for n, s in candidates.signals.items()}
    for queried in (candidates, Candidates(candidates.labels, wild)):
        scores = queried.scores(trees)
        assert scores.shape == queried.labels.shape
        assert scores.dtype == np.float32
        assert scores.min() >= 0
        assert scores.max() <= 1


def test_the_mean_is_taken_over_the_signals_that_are_present() -> None:
    one = np.array([[0.5, -1.0, 3.0]], np.float32)
    labels = np.array([[4, 5, -1]])
    alone = Candidates(labels, {"value": one, "rank": one})
    np.testing.assert_allclose(alone.simple_score(), [[0.5, 0, 1]])
    voted = Candidates(labels, {"value": one, "votes": np.array([[0.1, 0.2, 0.3]], np.float32), "rank": one})
    np.testing.assert_allclose(voted.simple_score(), [[0.3, 0.1, 0.65]], rtol=1e-6)


def test_candidates_of_one_leaf_are_told_apart_by_the_mean() -> None:
    candidates, _ = simulated()
    flat = Trees(np.zeros((1, 1), np.uint8), np.zeros((1, 1), np.float32), np.zeros((1, 2), np.float32), start=0.0)
    scores, mean = candidates.scores(flat), candidates.simple_score()
    np.testing.assert_allclose(scores, 0.5, atol=1e-3)
    assert np.corrcoef(scores.ravel(), mean.ravel())[0, 1] > 0.9


def test_too_few_rows_or_outcomes_give_no_trees() -> None:
    candidates, right = simulated(99)
    assert fit_trees(candidates, right) is None
    candidates, right = simulated(100)
    assert fit_trees(candidates, right) is not None
    assert fit_trees(candidates, np.zeros_like(right)) is None
    assert fit_trees(candidates, np.ones_like(right)) is None
    all_right_where_filled = candidates.labels >= 0
    assert fit_trees(candidates, all_right_where_filled) is None
    nothing = Candidates(np.full_like(candidates.labels, -1), candidates.signals)
    assert fit_trees(nothing, right) is None


def test_nothing_about_a_blend_is_left_to_chance() -> None:
    candidates, right = simulated(200)
    one, other = (fit_trees(candidates, right) for _ in range(2))
    assert one is not None
    assert other is not None
    for name, array in one.to_arrays().items():
        np.testing.assert_array_equal(array, other.to_arrays()[name])


def test_threads_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates, right = simulated()
    trees = fit_trees(candidates, right)
    assert trees is not None
    table = candidates.table()
    expected = trees.probabilities(table, n_jobs=1)
    monkeypatch.setattr(blending, "_ROWS_AT_A_TIME", 7)
    for n_jobs in (1, 2, 3):
        np.testing.assert_array_equal(trees.probabilities(table, n_jobs), expected)
    for row in (0, 5, len(table) - 1):
        np.testing.assert_array_equal(trees.probabilities(table[row : row + 1]), expected[row : row + 1])
    assert trees.probabilities(table[:0]).shape == (0,)


def test_some_rows_of_candidates_are_candidates() -> None:
    candidates, _ = simulated(20)
    for rows in (slice(3, 9), np.array([5, 0]), np.arange(20) % 2 == 0):
        some = candidates[rows]
        np.testing.assert_array_equal(some.labels, candidates.labels[rows])
        assert list(some.signals) == list(candidates.signals)
        for name, signal in some.signals.items():
            np.testing.assert_array_equal(signal, candidates.signals[name][rows])
        np.testing.assert_array_equal(some.simple_score(), candidates.simple_score()[rows])


# ----------------------------------------------------------------------------------------------------------- arrays


def test_trees_come_back_from_their_arrays() -> None:
    candidates, right = simulated(200)
    trees = fit_trees(candidates, right)
    assert trees is not None
    again = Trees.from_arrays(trees.to_arrays(), n_signals=5)
    assert again.start == trees.start
    np.testing.assert_array_equal(again.probabilities(candidates.table()), trees.probabilities(candidates.table()))


def good_arrays() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    return {
        "tree_feature": rng.integers(5, size=(6, 7)).astype(np.uint8),
        "tree_threshold": rng.random((6, 7), np.float32),
        "tree_value": rng.standard_normal((6, 8)).astype(np.float32),
        "tree_start": np.array([-1.0]),
    }


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tree_feature", lambda a: a + np.uint8(5)),  # signals that are not there
        ("tree_feature", lambda a: a.astype(np.int64)),
        ("tree_feature", lambda a: a.astype(np.float32)),
        ("tree_feature", lambda a: a[:, :-1]),
        ("tree_feature", lambda a: a[:-1]),
        ("tree_feature", lambda a: a.ravel()),
        ("tree_threshold", lambda a: a[:, 1:]),
        ("tree_threshold", lambda a: a[0]),
        ("tree_threshold", lambda a: a.astype(np.int32)),
        ("tree_value", lambda a: a[:, :-1]),
        ("tree_value", lambda a: a[:-1]),
        ("tree_value", lambda a: a[:, :0]),
        ("tree_value", lambda a: a.ravel()),
        ("tree_value", lambda a: a[0, 0]),
        ("tree_value", lambda a: a[None]),
        ("tree_value", lambda a: a.astype("U8")),
        ("tree_start", lambda a: a[:0]),
        ("tree_start", lambda a: a[0]),
        ("tree_start", lambda a: a.astype(int)),
        ("tree_start", lambda a: np.zeros(2)),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(name: str, change: Any) -> None:
    arrays = good_arrays()
    assert Trees.from_arrays(arrays, n_signals=5).start == -1
    arrays[name] = np.asarray(change(arrays[name]))
    with pytest.raises(ValueError, match=r"^the array 'tree_\w+' has |are not full binary trees$"):
        Trees.from_arrays(arrays, n_signals=5)


def test_the_mean_of_two_blends_has_the_mean_of_their_log_odds() -> None:
    (one, right), (other, wrong) = simulated(300, seed=1), simulated(300, seed=2)
    first, second = fit_trees(one, right), fit_trees(other, wrong)
    assert first is not None
    assert second is not None
    table = one.table()

    def log_odds(trees: Trees) -> NDArray[np.float64]:
        chance = trees.probabilities(table).astype(np.float64)
        return np.asarray(np.log(chance / (1 - chance)))

    mean = first.averaged(second)
    np.testing.assert_allclose(log_odds(mean), (log_odds(first) + log_odds(second)) / 2, atol=1e-3)
    np.testing.assert_allclose(first.averaged(first).probabilities(table), first.probabilities(table), atol=1e-6)
    again = Trees.from_arrays(mean.to_arrays(), n_signals=5)
    np.testing.assert_array_equal(again.probabilities(table), mean.probabilities(table))


def test_the_scores_of_each_half_of_the_rows_are_those_of_the_trees_of_the_other_half() -> None:
    candidates, right = simulated(600)
    even = np.arange(600) % 2 == 0
    first, second = (fit_trees(candidates[half], right[half]) for half in (even, ~even))
    assert first is not None
    assert second is not None
    for n_jobs in (1, 2):
        trees, scores = fit_blend(candidates, right, n_jobs)
        assert trees is not None
        np.testing.assert_array_equal(scores[~even], candidates[~even].scores(first))
        np.testing.assert_array_equal(scores[even], candidates[even].scores(second))
        for name, array in first.averaged(second).to_arrays().items():
            np.testing.assert_array_equal(trees.to_arrays()[name], array)


def test_a_half_with_too_few_rows_leaves_the_mean_of_the_signals() -> None:
    candidates, right = simulated(199)
    trees, scores = fit_blend(candidates, right, 1)
    assert trees is None
    np.testing.assert_array_equal(scores, candidates.simple_score())


def test_trees_are_walked_level_by_level() -> None:
    trees = Trees(
        feature=np.array([[0, 1, 1]], np.uint8),
        threshold=np.array([[0.5, 0.2, np.inf]], np.float32),
        value=np.array([[-2, -1, 1, 9]], np.float32),
        start=0.5,
    )
    table = np.array([[0.5, 0.2], [0.5, 0.3], [0.6, 0.0], [0.6, 1e9]], np.float32)
    expected = 1 / (1 + np.exp(-(0.5 + np.array([-2, -1, 1, 1]))))
    np.testing.assert_allclose(trees.probabilities(table), expected, rtol=1e-6)


# ------------------------------------------------------------------------------------------------------ calibration


@pytest.mark.parametrize("name", ["value", "votes", "similar", "rank"])
def test_a_signal_that_moves_by_rounding_moves_no_score_by_more_than_a_ten_thousandth(name: str) -> None:
    """Also where it is right at the threshold of a node: there a step would let the score jump."""
    candidates, right = simulated()
    trees = fit_trees(candidates, right)
    assert trees is not None
    read = trees.feature == list(candidates.signals).index(name)
    thresholds = np.unique(trees.threshold[read & np.isfinite(trees.threshold)])[:600]
    rounding, start = np.float32(1e-6 if name != "rank" else 5e-4), np.float32(0)
    at_threshold = candidates.signals[name].copy()
    at_threshold[: len(thresholds), 0] = thresholds
    found = []
    for moved in (start, rounding):
        signals = candidates.signals | {name: at_threshold + moved}
        found.append(Candidates(candidates.labels, signals).scores(trees))
    assert len(thresholds) > 3
    assert np.abs(found[0] - found[1]).max() < 1e-4
    table = [
        Candidates(candidates.labels, candidates.signals | {name: at_threshold + m}).table() for m in (0, rounding)
    ]
    steps = [trees.probabilities(np.asarray(some, np.float32)) for some in table]
    assert np.abs(steps[0] - steps[1]).max() > 1e-4  # without slopes it would


def test_away_from_thresholds_slopes_are_steps() -> None:
    candidates, right = simulated()
    trees = fit_trees(candidates, right)
    assert trees is not None
    table = candidates.table()
    slopes = np.full(table.shape[1], 0.01, np.float32)
    away = np.ones(len(table), bool)
    for signal, column in enumerate(table.T):
        thresholds = trees.threshold[trees.feature == signal]
        away &= (np.abs(column[:, None] - thresholds[None, np.isfinite(thresholds)]) > 0.005).all(axis=1)
    found, expected = trees.probabilities(table, None, slopes), trees.probabilities(table)
    np.testing.assert_array_equal(found[away], expected[away])
    assert 0 < away.mean() < 1
    assert (found[~away] != expected[~away]).any()


def test_a_candidate_that_is_hardly_ahead_of_the_next_label_has_a_score_near_zero() -> None:
    candidates, right = simulated()
    trees = fit_trees(candidates, right)
    assert trees is not None
    whole = candidates.scores(trees)
    for margin, share in ((0.0, 0.0), (1e-3, 0.5), (0.1, 1.0), (np.inf, 1.0)):
        margins = np.full(whole.shape, margin, np.float32)
        scores = Candidates(candidates.labels, candidates.signals, margins).scores(trees)
        np.testing.assert_allclose(scores, share * whole, rtol=1e-5)


def test_ranks_of_many_almost_equal_values_do_not_jump() -> None:
    random = np.random.default_rng(0)
    values = np.full((1, 30), 0.8, np.float32)
    labels, seen = np.arange(30)[None], np.ones((1, 30), np.int64)
    equal = _standing(values, labels, seen)["rank"]
    moved = _standing(values + random.uniform(-1e-6, 1e-6, values.shape).astype(np.float32), labels, seen)["rank"]
    np.testing.assert_allclose(equal, 14.5, atol=1e-4)
    np.testing.assert_allclose(moved, equal, atol=0.02)


def test_ranks_of_almost_equal_values_change_gradually() -> None:
    half = float(TIE) / 2
    values = np.array(
        [[0.9, 0.5, 0.5, 0.2], [0.9, 0.5 + half / 2, 0.5, 0.2], [0.9, 0.5 + half, 0.5, -np.inf]], np.float32
    )
    labels = np.where(np.isfinite(values), 7, -1)
    seen = np.ones(values.shape, np.int64)
    rank = _standing(values, labels, seen)["rank"]
    expected = np.array([[0, 1.5, 1.5, 3], [0, 1.25, 1.75, 3], [0, 1, 2, 3]])
    np.testing.assert_allclose(rank, expected, atol=1e-3)
    np.testing.assert_array_equal(_standing(values[:, ::-1], labels[:, ::-1], seen)["rank"], rank[:, ::-1])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_the_line_from_score_to_probability_rises_and_stays_between_zero_and_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.round(rng.random(rng.integers(1, 60)), 2)
    corners = fit_steps(scores, rng.random(len(scores)) < 0.5)
    queries = np.sort(np.concatenate([rng.random(50), scores, [-5, 0, 1, 5]]))
    probabilities = in_steps(queries, corners)
    assert (np.diff(probabilities) >= 0).all()
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1


def test_scores_that_are_too_confident_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((2, 20_000))
    outcome = rng.random(scores.shape) < scores**3  # the true probability of each score
    corners = fit_steps(scores[0], outcome[0])
    found = in_steps(scores[1], corners)
    assert np.abs(found - scores[1] ** 3).mean() < 0.02
    assert expected_calibration_error(found, outcome[1]) < 0.015
    assert expected_calibration_error(scores[1], outcome[1]) == pytest.approx(0.25, abs=0.02)


def test_one_outcome_gives_one_probability() -> None:
    scores = np.linspace(0, 1, 9)
    for outcome in (0, 1):
        corners = fit_steps(scores, np.full(9, outcome))
        np.testing.assert_array_equal(in_steps(np.linspace(-1, 2, 31), corners), outcome)


def test_equal_scores_have_the_share_of_right_ones() -> None:
    corners = fit_steps(np.full(4, 0.3, np.float32), np.array([1, 0, 0, 0], bool))
    np.testing.assert_allclose(in_steps(np.array([0.0, 0.3, 1.0]), corners), 0.25)


def test_the_calibration_error_of_certain_and_right_predictions_is_zero() -> None:
    outcome = np.array([0, 1, 1, 0, 1, 0, 0], bool)
    assert expected_calibration_error(outcome.astype(float), outcome) == 0
    assert expected_calibration_error(1 - outcome.astype(float), outcome, n_bins=2) > 0.7


@pytest.mark.parametrize(
    ("probabilities", "outcome", "n_bins", "expected"),
    [
        ([0.5, 0.5, 0.5, 0.5], [0, 1, 0, 1], 1, 0.0),
        ([0.5, 0.5, 0.5, 0.5], [1, 1, 0, 1], 1, 0.25),
        ([0.9, 0.1], [1, 0], 2, 0.1),
        ([0.9, 0.1], [0, 1], 2, 0.9),
        ([0.9, 0.1], [0, 1], 1, 0.0),
        ([0.3], [1], 15, 0.7),
        ([0.8, 0.2, 0.4], [1, 0, 1], 2, (2 * 0.2 + 0.2) / 3),
    ],
)
def test_the_calibration_error_of_a_few_is_that_by_hand(
    probabilities: list[float], outcome: list[int], n_bins: int, expected: float
) -> None:
    found = expected_calibration_error(np.array(probabilities), np.array(outcome), n_bins)
    assert found == pytest.approx(expected, abs=1e-12)


def test_the_calibration_error_of_nothing_is_zero() -> None:
    assert expected_calibration_error(np.zeros(0), np.zeros(0)) == 0
