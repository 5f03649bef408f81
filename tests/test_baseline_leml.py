"""LEML: its objective written naively, closed forms of special cases, and cells that are not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import worlds
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.errors import DataError, NoLabelsError, ParameterError
from ripml.baselines import LEML
from ripml.baselines.leml import Problem, factorise

Floats = NDArray[np.float64]
WORLD = worlds.zipf()
SHARES = [None, 0.9, 0.3]  # of cells that are known; None: all, without a mask


def some_cells(share: float, seed: int = 0) -> NDArray[np.bool_]:
    return np.asarray(np.random.default_rng(seed).random(WORLD.Y.shape) < share)


def problem(share: float | None, X: Any = None) -> tuple[Problem, NDArray[np.bool_]]:
    known = np.ones(WORLD.Y.shape, bool) if share is None else some_cells(share)
    observed = None if share is None else csr_array(known.astype(np.float32))
    return Problem.of(WORLD.X if X is None else X, WORLD.Y, observed, n_jobs=1), known


def objective(known: NDArray[np.bool_], W: Floats, H: Floats, ridge: float) -> float:
    missed = np.where(known, WORLD.Y.toarray() - WORLD.X @ W @ H.T, 0)
    return float(0.5 * (missed**2).sum() + 0.5 * ridge * ((W**2).sum() + (H**2).sum()))


def scores_of(model: LEML, X: Any = WORLD.X_new) -> Floats:
    return np.asarray(model.decision_function(X).toarray())


# ------------------------------------------------------------------------------------------------------ the objective


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("ridge", [0.01, 1.0, 30.0])
def test_the_objective_never_rises(share: float | None, ridge: float) -> None:
    rows, known = problem(share)
    values = [objective(known, *factorise(rows, 7, ridge, n_iter, seed=3), ridge) for n_iter in (1, 2, 3, 5, 8)]
    assert np.all(np.diff(values) <= 1e-9 * values[0])
    assert values[-1] < values[0]


@pytest.mark.parametrize("share", SHARES)
def test_after_many_iterations_its_gradient_vanishes(share: float | None) -> None:
    rows, known = problem(share)
    W, H = factorise(rows, 5, 2.0, n_iter=60, seed=0)
    wrong = np.where(known, WORLD.X @ W @ H.T - WORLD.Y.toarray(), 0)
    size = np.abs(WORLD.X.T @ WORLD.Y.toarray() @ H).max()
    assert np.abs(WORLD.X.T @ wrong @ H + 2.0 * W).max() < 1e-3 * size
    assert np.abs(wrong.T @ WORLD.X @ W + 2.0 * H).max() < 1e-3 * size


@pytest.mark.parametrize("share", SHARES)
def test_the_labels_factors_solve_their_normal_equations(share: float | None) -> None:
    rows, known = problem(share)
    W = np.random.default_rng(1).standard_normal((WORLD.X.shape[1], 6))
    H, E, Y = rows.best_labels(W, 0.5), WORLD.X @ W, WORLD.Y.toarray()
    for label, cells in enumerate(known.T):
        expected = np.linalg.solve(E[cells].T @ E[cells] + 0.5 * np.eye(6), E[cells].T @ Y[cells, label])
        np.testing.assert_allclose(H[label], expected, atol=1e-9)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_curvature_is_that_of_the_objective(share: float | None, sparse: bool) -> None:
    rows, known = problem(share, csr_array(WORLD.X) if sparse else None)
    rng = np.random.default_rng(2)
    V, H = rng.standard_normal((WORLD.X.shape[1], 4)), rng.standard_normal((WORLD.Y.shape[1], 4))
    expected = WORLD.X.T @ np.where(known, WORLD.X @ V @ H.T, 0) @ H
    np.testing.assert_allclose(rows.curvature(V, H), expected, atol=1e-9)


def test_cells_that_are_few_are_multiplied_one_by_one() -> None:
    rows, known = problem(0.01)
    V, H = np.ones((WORLD.X.shape[1], 2)), np.ones((WORLD.Y.shape[1], 2))
    expected = WORLD.X.T @ np.where(known, WORLD.X @ V @ H.T, 0) @ H
    np.testing.assert_allclose(rows.curvature(V, H), expected, atol=1e-9)


def test_more_features_than_pay_for_a_gram_matrix_change_nothing() -> None:
    rng = np.random.default_rng(0)
    X = csr_array(rng.random((40, 900)) * (rng.random((40, 900)) < 0.01))
    rows = Problem.of(X, WORLD.Y[:40], None, n_jobs=1)
    assert rows.gram is None
    V, H = rng.standard_normal((900, 3)), rng.standard_normal((WORLD.Y.shape[1], 3))
    np.testing.assert_allclose(rows.curvature(V, H), (X.T @ (X @ V)) @ (H.T @ H), atol=1e-10)


# -------------------------------------------------------------------------------------------------------- closed forms


def test_of_full_rank_and_with_hardly_any_regularisation_it_is_least_squares() -> None:
    rows, _ = problem(None)
    W, H = factorise(rows, 1000, 1e-7, n_iter=60, seed=0)
    assert W.shape[1] == WORLD.Y.shape[1]
    expected = np.linalg.lstsq(WORLD.X, WORLD.Y.toarray(), rcond=None)[0]
    np.testing.assert_allclose(WORLD.X @ W @ H.T, WORLD.X @ expected, atol=1e-3)


def test_with_hardly_any_regularisation_it_is_reduced_rank_regression() -> None:
    rows, _ = problem(None)
    W, H = factorise(rows, 4, 1e-7, n_iter=150, seed=0)
    fitted = WORLD.X @ np.linalg.lstsq(WORLD.X, WORLD.Y.toarray(), rcond=None)[0]
    left, values, right = np.linalg.svd(fitted, full_matrices=False)
    np.testing.assert_allclose(WORLD.X @ W @ H.T, (left[:, :4] * values[:4]) @ right[:4], atol=1e-3)


def test_with_orthogonal_features_it_lowers_singular_values_by_the_ridge() -> None:
    X = np.linalg.qr(WORLD.X)[0]
    rows = Problem.of(X, WORLD.Y, None, n_jobs=1)
    W, H = factorise(rows, 40, 0.7, n_iter=100, seed=0)
    left, values, right = np.linalg.svd(X.T @ WORLD.Y.toarray(), full_matrices=False)
    np.testing.assert_allclose(W @ H.T, (left * np.maximum(values - 0.7, 0)) @ right, atol=1e-3)


@pytest.mark.parametrize("ridge", [0, 1e-12])
def test_without_regularisation_features_and_labels_that_never_occur_get_no_weight(ridge: float) -> None:
    X, Y = WORLD.X.copy(), WORLD.Y.toarray()
    X[:, 3] = 0
    Y[:, 5] = 0
    W, H = factorise(Problem.of(X, csr_array(Y), None, n_jobs=1), 60, ridge, n_iter=4, seed=0)
    assert np.isfinite(W).all()
    assert np.isfinite(H).all()
    assert np.abs(W[3]).max() < 1e-9
    assert np.abs((X @ W @ H.T)[:, 5]).max() < 1e-6


# ------------------------------------------------------------------------------------------------- cells not known


@pytest.mark.parametrize("ridge", [1.0, "auto"])
def test_what_is_outside_the_known_cells_plays_no_part(ridge: float | str) -> None:
    known = some_cells(0.5)
    other = np.where(known, WORLD.Y.toarray(), some_cells(0.5, seed=7))
    models = [LEML(8, ridge=ridge, random_state=0).fit(WORLD.X, Y, observed=known) for Y in (WORLD.Y, other)]
    assert models[0].n_rows_ == models[1].n_rows_ == ((WORLD.Y.toarray() * known).sum(axis=1) > 0).sum()
    np.testing.assert_array_equal(scores_of(models[0]), scores_of(models[1]))
    assert models[0].ridge_ == models[1].ridge_
    assert models[0].threshold_ == models[1].threshold_


def test_that_all_cells_are_known_is_the_same_as_no_mask() -> None:
    with_mask = LEML(8, random_state=0).fit(WORLD.X, WORLD.Y, observed=np.ones(WORLD.Y.shape, bool))
    np.testing.assert_array_equal(scores_of(with_mask), scores_of(LEML(8, random_state=0).fit(WORLD.X, WORLD.Y)))


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_mask_and_features_may_be_sparse_or_dense(share: float) -> None:
    known = some_cells(share)
    dense = LEML(8, ridge=1.0, random_state=0).fit(WORLD.X, WORLD.Y, observed=known)
    sparse = LEML(8, ridge=1.0, n_jobs=2, random_state=0).fit(csr_array(WORLD.X), WORLD.Y, observed=csr_array(known))
    np.testing.assert_allclose(scores_of(dense), scores_of(sparse, csr_array(WORLD.X_new)), atol=1e-8)


def test_known_cells_alone_find_labels_that_unknown_ones_taken_for_absent_would_lose() -> None:
    world = worlds.planted(n=400)
    known = np.random.default_rng(0).random(world.Y.shape) < 0.4
    seen = world.Y.toarray() * known
    by_mask = LEML(ridge=0.1, random_state=0).fit(world.X, world.Y, observed=known)
    as_absent = LEML(ridge=0.1, random_state=0).fit(world.X, seen)
    missed = [np.abs(scores_of(model, world.X_new) - world.Y_new.toarray()).mean() for model in (by_mask, as_absent)]
    assert missed[0] < 0.2 * missed[1]


def test_the_mask_is_not_kept() -> None:
    model = LEML(4, ridge=1.0, random_state=0).fit(WORLD.X, WORLD.Y, observed=some_cells(0.5))
    assert not hasattr(model, "_observed")
    plain = LEML(4, ridge=1.0, random_state=0).fit(WORLD.X, WORLD.Y)
    np.testing.assert_array_equal(scores_of(model.fit(WORLD.X, WORLD.Y)), scores_of(plain))


def test_label_names_go_with_a_mask() -> None:
    names = [f"label {label}" for label in range(WORLD.Y.shape[1])]
    model = LEML(4, ridge=1.0, random_state=0).fit(WORLD.X, WORLD.Y, names, observed=some_cells(0.5))
    assert model.classes_.tolist() == names


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (np.ones((3, 2)), r"in the shape of Y, \(150, 40\); got \(3, 2\)"),
        ([[1, 0]], r"in the shape of Y, \(150, 40\); got list"),
        (np.full(WORLD.Y.shape, 0.5), "an indicator of 0s and 1s; got the value 0.5"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_and_the_model_stays_as_it_was(observed: Any, message: str) -> None:
    model = LEML(4, ridge=1.0, random_state=0).fit(WORLD.X, WORLD.Y)
    before = scores_of(model)
    with pytest.raises(DataError, match=message):
        model.fit(WORLD.X, WORLD.Y, observed=observed)
    np.testing.assert_array_equal(scores_of(model), before)
    assert not hasattr(model, "_observed")


def test_a_mask_needs_an_indicator() -> None:
    with pytest.raises(DataError, match="`observed` marks cells of Y; pass Y as an indicator"):
        LEML().fit(WORLD.X, WORLD.names, observed=some_cells(0.5))


def test_a_mask_that_hides_all_labels_leaves_nothing_to_learn() -> None:
    with pytest.raises(NoLabelsError, match="none of the 150 rows carries a label"):
        LEML().fit(WORLD.X, WORLD.Y, observed=WORLD.Y.toarray() == 0)


@pytest.mark.parametrize(("model", "setting"), [(LEML(n_dims=0), "n_dims"), (LEML(n_iter=0), "n_iter")])
def test_counts_are_positive(model: LEML, setting: str) -> None:
    with pytest.raises(ParameterError, match=f"`{setting}` must be an integer ≥ 1; got 0"):
        model.fit(WORLD.X, WORLD.Y)
