"""Tuning: worlds whose best settings are known, and what holds for every choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ripml import metrics
from ripml.model import tuning
from ripml.model.features import Scaling, relevance, unit_rows
from ripml.model.tuning import Choice
from ripml.regression.kernels import RBF, Kernel, Linear

ALL = ("power", "kernel", "ridge")


def best_two(values: NDArray[Any]) -> Any:
    """CSR (n, L): each row carries the labels of its two largest values."""
    Y = np.zeros(values.shape, np.float32)
    np.put_along_axis(Y, np.argsort(-values, axis=1)[:, :2], 1, axis=1)
    return scipy.sparse.csr_array(Y)


def clean_world(seed: int) -> tuple[NDArray[np.float32], Any]:
    """Labels follow features that are exact but small, so that a ridge of any size hides them."""
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((300, 10))
    X = np.hstack([0.05 * signal, rng.standard_normal((300, 10))])
    return unit_rows(X).astype(np.float32), best_two(signal @ rng.standard_normal((10, 10)))


def noisy_world(seed: int) -> tuple[NDArray[np.float32], Any]:
    """Labels loosely follow a few of as many features as there are rows, so that no ridge at all learns noise."""
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((300, 10))
    X = np.hstack([signal, rng.standard_normal((300, 300))])
    values = signal @ rng.standard_normal((10, 10))
    return unit_rows(X).astype(np.float32), best_two(values + rng.standard_normal(values.shape))


def labelled_directions(n_noise: int, seed: int) -> tuple[NDArray[np.float32], Any]:
    """Features are the sum of one direction a label; `n_noise` features several times their size say nothing."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((300, 12), np.float32)
    for row in Y:
        row[rng.choice(12, rng.integers(1, 4), replace=False)] = 1
    X = Y @ rng.standard_normal((12, 40)) + 0.5 * rng.standard_normal((300, 40))
    X = np.hstack([X, 12 * rng.standard_normal((300, n_noise))])
    return unit_rows(X).astype(np.float32), scipy.sparse.csr_array(Y)


def zipf_world(seed: int, n: int = 120) -> tuple[Any, Any]:
    world = worlds.zipf(n, seed=seed)
    return unit_rows(scipy.sparse.csr_array(world.X)).astype(np.float32), world.Y


def relevant(X: Any, Y: Any) -> NDArray[np.float32]:
    """The relevance of features to the labels themselves."""
    return relevance(X, unit_rows(Y.toarray()))


def choose(
    X: Any,
    Y: Any,
    weights: NDArray[Any],
    start: Choice,
    free: Sequence[str],
    n_rows: int,
    seed: int,
    n_jobs: int | None = None,
    askable: NDArray[np.int64] | None = None,
) -> Choice:
    """The library's choice; all rows may be asked about unless some are given."""
    rows = np.arange(X.shape[0]) if askable is None else askable
    return tuning.choose(X, Y, weights, start, free, rows, n_rows, Scaling(), seed, n_jobs)


def settings_of(choice: Choice) -> tuple[float, Kernel, float]:
    return choice.power, choice.kernel, choice.ridge


def precision_of(start: Choice, choice: Choice) -> float:
    """What the start gave on the sample on which the choice was made."""
    tried = {(power, kernel, ridge): precision for power, kernel, ridge, _, precision in choice.tried}
    return float(tried[settings_of(start)])


# --------------------------------------------------------------------------------------------------- planted answers


@pytest.mark.parametrize("seed", range(3))
def test_a_noisy_world_wants_a_larger_ridge_than_a_clean_one(seed: int) -> None:
    start = Choice(0.0, Linear(), 0.1)
    found = {}
    for world in (clean_world, noisy_world):
        X, Y = world(seed)
        choice = choose(X, Y, np.ones(X.shape[1]), start, ["ridge"], n_rows=600, seed=0)
        found[world] = choice.ridge
        assert choice.precision > precision_of(start, choice)
    assert found[clean_world] <= 0.01
    assert found[noisy_world] >= 0.5


@pytest.mark.parametrize("seed", range(3))
def test_features_are_weighed_where_half_of_them_are_noise(seed: int) -> None:
    X, Y = labelled_directions(40, seed)
    start = Choice(0.0, RBF(0.5), 0.1)
    choice = choose(X, Y, relevant(X, Y), start, ["power"], n_rows=600, seed=0)
    assert choice.power > 0
    assert choice.precision > 1.05 * precision_of(start, choice)


@pytest.mark.parametrize("seed", range(3))
def test_weighing_features_gains_next_to_nothing_where_all_of_them_matter(seed: int) -> None:
    X, Y = labelled_directions(0, seed)
    start = Choice(0.0, RBF(0.5), 0.1)
    choice = choose(X, Y, relevant(X, Y), start, ["power"], n_rows=600, seed=0)
    assert precision_of(start, choice) <= choice.precision <= 1.02 * precision_of(start, choice)


def test_a_kernel_much_too_wide_is_made_narrower() -> None:
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 400)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    Y = scipy.sparse.csr_array(np.eye(16, dtype=np.float32)[(angle * 16 / (2 * np.pi)).astype(int)])  # sectors
    start = Choice(0.0, RBF(0.125), 0.1)
    choice = choose(X, Y, np.ones(2), start, ["kernel"], n_rows=800, seed=0)
    assert isinstance(choice.kernel, RBF)
    assert float(choice.kernel.gamma) >= 0.5
    assert choice.precision > 1.05 * precision_of(start, choice)


def test_a_sample_of_a_large_set_keeps_rows_of_a_label_together() -> None:
    # Each label has two rows, alike in their features; of 60 out of 20,000 rows drawn one by one no two would match.
    rng = np.random.default_rng(0)
    X = unit_rows(np.repeat(rng.standard_normal((10_000, 64)), 2, axis=0)).astype(np.float32)
    Y = scipy.sparse.csr_array((np.ones(20_000, np.float32), np.arange(20_000) // 2, np.arange(20_001)))
    for seed in range(5):
        choice = choose(X, Y, np.ones(64), Choice(0.0, RBF(1.0), 0.1), ["ridge"], n_rows=60, seed=seed)
        assert choice.precision == pytest.approx((1 + 1 / 3 + 1 / 5) / 3)


# ------------------------------------------------------------------------------------------------------- every choice


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.5)], ids=repr)
def test_precisions_are_those_of_rows_left_out(kernel: Kernel) -> None:
    X, Y = zipf_world(0, n=60)
    weights = relevant(X, Y)
    choice = choose(X, Y, weights, Choice(0.25, kernel, 1.0), ["power", "ridge"], n_rows=120, seed=0)
    Y = Y.toarray()[:, np.asarray(Y.sum(axis=0)).ravel() > 1].astype(np.float64)  # a label seen once cannot be learnt
    asked = Y.any(axis=1)
    assert len(choice.tried) >= 3
    for power, of, alpha, _, precision in choice.tried:
        features = Scaling(weights=weights.astype(np.float64) ** power).weighted(X.toarray().astype(np.float64))
        K = features @ features.T
        K = K + 1 if isinstance(of, Linear) else np.exp(-float(getattr(of, "gamma", 0)) * (2 - 2 * K))
        inverse = np.linalg.inv(K + alpha * np.eye(60))
        scores = Y - inverse @ Y / inverse.diagonal()[:, None]
        ranked = np.take_along_axis(Y, np.argsort(-scores, axis=1), axis=1)[asked]
        expected = np.mean([ranked[:, :k].sum() / (k * len(ranked)) for k in (1, 3, 5)])
        assert precision == pytest.approx(expected, abs=0.01)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from(ALL), unique=True),
    st.sampled_from([0.0, 0.25, 0.5]),
    st.sampled_from([Linear(), RBF(0.5), RBF(0.7)]),
    st.sampled_from([0.01, 0.1, 1.0, 2.0]),
    st.sampled_from([40, 70, 300]),
)
def test_a_choice_is_never_worse_on_its_sample_and_only_what_is_free_moves(
    seed: int, free: list[str], power: float, kernel: Kernel, ridge: float, n_rows: int
) -> None:
    if isinstance(kernel, Linear):
        free = [name for name in free if name != "kernel"]
    X, Y = zipf_world(seed % 5)
    start = Choice(power, kernel, ridge)
    choice = choose(X, Y, relevant(X, Y), start, free, n_rows, seed)
    assert "power" in free or choice.power == power
    assert "kernel" in free or choice.kernel == kernel
    assert "ridge" in free or choice.ridge == ridge
    if choice.tried:
        assert choice.precision >= precision_of(start, choice)
        assert choice.precision == precision_of(choice, choice)
        assert 0 <= choice.precision <= 1


@pytest.mark.parametrize("n_rows", [150, 2000])
def test_only_rows_that_may_be_asked_about_are(n_rows: int) -> None:
    X, Y = labelled_directions(0, seed=0)
    odd = np.arange(300) % 2 == 1
    dense = Y.toarray()
    dense[odd] = dense[odd][np.random.default_rng(0).permutation(150)]  # labels that nobody can know
    start = Choice(0.0, RBF(0.5), 1.0)
    good, bad = (
        choose(X, scipy.sparse.csr_array(dense), np.ones(40), start, ["ridge"], n_rows, 0, askable=np.flatnonzero(rows))
        for rows in (~odd, odd)
    )
    assert good.precision > 1.5 * bad.precision
    nobody = choose(X, Y, np.ones(40), start, ["ridge"], n_rows, 0, askable=np.zeros(0, np.int64))
    assert settings_of(nobody) == settings_of(start)


@pytest.mark.parametrize("n_rows", [60, 400])
def test_one_seed_gives_one_choice_whatever_the_threads(n_rows: int) -> None:
    X, Y = zipf_world(0)
    start = Choice(0.25, RBF(0.5), 0.1)
    one = choose(X, Y, relevant(X, Y), start, ALL, n_rows, seed=7, n_jobs=1)
    for n_jobs in (1, 2, 3):
        assert choose(X, Y, relevant(X, Y), start, ALL, n_rows, 7, n_jobs) == one


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.5)], ids=repr)
def test_dense_and_sparse_features_give_one_choice(kernel: Kernel) -> None:
    X, Y = zipf_world(0)
    sparse, dense = (
        choose(rows, Y, relevant(X, Y), Choice(0.25, kernel, 0.1), ["power", "ridge"], 400, seed=0)
        for rows in (X, X.toarray())
    )
    assert settings_of(sparse) == settings_of(dense)
    assert sparse.precision == pytest.approx(dense.precision, abs=0.01)


def test_the_data_stay_as_they_are() -> None:
    X, Y = zipf_world(0)
    before = X.toarray(), Y.toarray(), relevant(X, Y)
    weights = before[2].copy()
    choose(X, Y, weights, Choice(0.25, RBF(0.5), 0.1), ALL, 60, seed=0)
    for found, expected in zip((X.toarray(), Y.toarray(), weights), before, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_memory_that_was_used_before_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = zipf_world(0, n=300)  # more than one stripe of a kernel matrix
    start = Choice(0.25, RBF(0.5), 0.1)
    expected = choose(X, Y, relevant(X, Y), start, ALL, 400, seed=0)
    empty = np.empty

    def used(*arguments: Any, **options: Any) -> Any:
        array = empty(*arguments, **options)
        if array.dtype.kind == "f":
            array.fill(np.finfo(array.dtype).max)
        return array

    monkeypatch.setattr(np, "empty", used)
    assert choose(X, Y, relevant(X, Y), start, ALL, 400, seed=0) == expected


# --------------------------------------------------------------------------------------------------- next to nothing


@pytest.mark.parametrize(
    "Y",
    [
        np.ones((1, 1)),
        np.ones((2, 1)),
        np.ones((5, 1)),
        np.eye(2),
        np.eye(6),  # no label twice
        np.ones((3, 4)),  # every label everywhere
        np.array([[1, 0], [1, 0], [0, 1]]),
    ],
    ids=lambda Y: str(Y.tolist()),
)
@pytest.mark.parametrize("free", [ALL, ("ridge",)], ids=str)
@pytest.mark.parametrize("n_rows", [2, 4000])
def test_tiny_data_leave_the_settings_as_they_are(Y: NDArray[Any], free: Sequence[str], n_rows: int) -> None:
    X = unit_rows(np.random.default_rng(0).standard_normal((len(Y), 3))).astype(np.float32)
    start = Choice(0.25, RBF(0.5), 0.1)
    labels = scipy.sparse.csr_array(Y.astype(np.float32))
    for rows in (X, scipy.sparse.csr_array(X)):
        choice = choose(rows, labels, np.ones(3), start, free, n_rows, seed=0)
        if len(Y) < 3 or Y.min() == 1 or Y.sum(axis=0).max() == 1:
            assert settings_of(choice) == settings_of(start)
        assert 0 <= choice.precision <= 1


def test_nothing_free_leaves_the_settings_as_they_are() -> None:
    X, Y = zipf_world(0)
    start = Choice(0.25, RBF(0.5), 0.1)
    assert choose(X, Y, relevant(X, Y), start, [], 100, seed=0) == start


def test_rows_that_are_all_zero_do_no_harm() -> None:
    X, Y = zipf_world(0)
    dense = X.toarray()
    dense[::2] = 0
    for rows in (dense, scipy.sparse.csr_array(dense)):
        choice = choose(rows, Y, relevant(X, Y), Choice(0.25, RBF(0.5), 0.1), ALL, 400, seed=0)
        assert 0 < choice.precision < 1


def test_the_measure_is_the_precision_of_the_library() -> None:
    # All rows alike: scores are those of how frequent labels are, so that the precision is known.
    Y = worlds.zipf_labels(80, 10)
    X = np.ones((80, 1), np.float32)
    choice = choose(X, Y, np.ones(1), Choice(0.0, RBF(0.5), 100.0), ["ridge"], 200, seed=0)
    popular = np.tile(np.asarray(Y.sum(axis=0)).ravel(), (80, 1)) / 100
    expected = np.mean([metrics.precision_at_k(Y, scipy.sparse.csr_array(popular), k=k) for k in (1, 3, 5)])
    assert choice.precision == pytest.approx(expected, abs=0.03)
