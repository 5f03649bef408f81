"""CPLST against its objective with the hat matrix written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from numpy.typing import NDArray

from ripml.base.errors import MemoryLimitError
from ripml.baselines import CPLST, PLST

ZIPF = worlds.zipf()
WIDE = worlds.zipf(n=40, d=90)


def with_ones(X: NDArray[Any]) -> NDArray[Any]:
    return np.hstack([np.ones((len(X), 1)), X])


def hat(X: NDArray[Any], alpha: float) -> NDArray[Any]:
    X = with_ones(X)
    return np.asarray(X @ np.linalg.inv(X.T @ X + alpha * np.eye(X.shape[1])) @ X.T)


def objective(V: NDArray[Any], Y: NDArray[Any], X: NDArray[Any], alpha: float) -> float:
    """‖Y_c − Y_c V Vᵀ‖² + ‖X Psi − Y_c V‖² + alpha ‖Psi‖² at the best Psi."""
    Z, X = Y @ V, with_ones(X)
    Psi = np.linalg.solve(X.T @ X + alpha * np.eye(X.shape[1]), X.T @ Z)
    terms = (Y - Z @ V.T, X @ Psi - Z, alpha**0.5 * Psi)
    return float(sum(np.linalg.norm(term) ** 2 for term in terms))


@pytest.mark.parametrize("world", [ZIPF, WIDE], ids=["primal", "dual"])
def test_scores_are_those_of_the_dense_formulas_for_labels_of_plus_and_minus_one(world: worlds.World) -> None:
    signs = 2 * world.Y.toarray().astype(np.float64) - 1
    mean = signs.mean(axis=0)
    H = hat(world.X, 0.5)
    V = np.linalg.svd((signs - mean).T @ H @ (signs - mean))[0][:, :6]
    X, X_new = with_ones(world.X), with_ones(world.X_new)
    weights = np.linalg.inv(X.T @ X + 0.5 * np.eye(X.shape[1])) @ X.T @ (signs - mean) @ V
    expected = mean + X_new @ weights @ V.T
    model = CPLST(n_dims=6, ridge=0.5, random_state=0).fit(world.X, world.Y)
    np.testing.assert_allclose(2 * model.decision_function(world.X_new).toarray() - 1, expected, atol=1e-6)


@pytest.mark.parametrize("ridge", [0.1, 10.0])
def test_no_other_embedding_has_a_lower_objective(ridge: float) -> None:
    Y = ZIPF.Y.toarray() - ZIPF.Y.toarray().mean(axis=0)
    ours = CPLST(n_dims=6, ridge=ridge, random_state=0).fit(ZIPF.X, ZIPF.Y).learnt_["V"]
    plain = PLST(n_dims=6, ridge=ridge, random_state=0).fit(ZIPF.X, ZIPF.Y).learnt_["V"]
    rng = np.random.default_rng(0)
    others = [plain, *(np.linalg.qr(ours + 0.1 * rng.standard_normal(ours.shape))[0] for _ in range(20))]
    assert objective(ours, Y, ZIPF.X, ridge) < min(objective(V, Y, ZIPF.X, ridge) for V in others)


def test_without_regularisation_and_with_as_many_features_as_rows_it_is_plst() -> None:
    world = worlds.zipf(n=60, d=60)
    X = world.X + 0.1 * np.random.default_rng(0).standard_normal(world.X.shape)  # invertible, so H is the identity
    scores = [
        method(n_dims=5, ridge=0, random_state=0).fit(X, world.Y).decision_function(X).toarray()
        for method in (CPLST, PLST)
    ]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)


def test_dimensions_that_features_say_nothing_about_are_not_taken() -> None:
    """Two labels of noise vary most; the features speak of the third alone."""
    rng = np.random.default_rng(0)
    Y = rng.random((200, 3)) < [0.5, 0.5, 0.2]
    X = np.outer(Y[:, 2], rng.standard_normal(5)) + 0.01 * rng.standard_normal((200, 5))
    rows = Y.any(axis=1)
    found = [
        abs(method(n_dims=1, ridge=1, random_state=0).fit(X[rows], Y[rows]).learnt_["V"][2, 0])
        for method in (CPLST, PLST)
    ]
    assert found[0] > 0.9
    assert found[1] < 0.5


def test_weights_that_do_not_fit_are_refused_before_they_are_made() -> None:
    Y = scipy.sparse.csr_array((np.ones(6), np.arange(6), np.arange(7)), shape=(6, 1_000_000))
    with pytest.raises(MemoryLimitError, match=r"the weights of all labels would be a dense array of 301 × 1,000,000"):
        CPLST(random_state=0).fit(np.ones((6, 300)), Y)
