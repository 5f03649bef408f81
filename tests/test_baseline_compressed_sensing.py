"""Compressed sensing: recovery against single-row references and scikit-learn, and the estimator's own settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from realdata import needs_data
from sklearn.linear_model import Lasso, orthogonal_mp_gram
from worlds import planted

from ripml import datasets, metrics
from ripml.base.errors import ParameterError
from ripml.baselines import CompressedSensing
from ripml.baselines.compressed_sensing import cosamp, gaussian_columns, lasso, omp, sparsity_penalty

Floats = NDArray[np.float64]


def problem(n: int = 30, L: int = 60, m: int = 25, k: int = 4, noise: float = 0.05, seed: int = 0) -> Any:
    """Rows Z = Y Phi + noise for k-sparse Y; returns Z, Phi and Y."""
    rng = np.random.default_rng(seed)
    Phi = gaussian_columns(L, m, seed, None)
    Y = np.zeros((n, L))
    for row in Y:
        row[rng.choice(L, k, replace=False)] = rng.uniform(0.5, 1.5, k) * rng.choice([-1, 1], k)
    return Y @ Phi + noise * rng.standard_normal((n, m)), Phi, Y


def least_squares_on(support: list[int], z: Floats, Phi: Floats) -> Floats:
    y = np.zeros(len(Phi))
    y[support] = np.linalg.lstsq(Phi[support].T, z, rcond=None)[0]
    return y


def naive_omp(z: Floats, Phi: Floats, k: int) -> Floats:
    support: list[int] = []
    y = np.zeros(len(Phi))
    for _ in range(k):
        fit = np.abs(Phi @ (z - y @ Phi)) / np.linalg.norm(Phi, axis=1)
        fit[support] = -1
        support.append(int(np.argmax(fit)))
        y = least_squares_on(support, z, Phi)
    return y


def naive_cosamp(z: Floats, Phi: Floats, k: int, steps: int) -> Floats:
    y = np.zeros(len(Phi))
    for _ in range(steps):
        residual = z - y @ Phi
        at_hand = np.flatnonzero(y).tolist()
        fit = np.abs(Phi @ residual)
        fit[at_hand] = -1
        wide = least_squares_on(at_hand + np.argsort(-fit)[: 3 * k - len(at_hand)].tolist(), z, Phi)
        new = np.where(np.abs(wide) >= np.sort(np.abs(wide))[-k], wide, 0)
        if np.linalg.norm(z - new @ Phi) >= np.linalg.norm(residual):
            break
        y = new
    return y


def test_omp_is_that_of_one_row_at_a_time() -> None:
    Z, Phi, _ = problem()
    expected = [naive_omp(z, Phi, 7) for z in Z]
    np.testing.assert_allclose(omp(Z, Phi, 7).toarray(), expected, atol=1e-10)


def test_omp_is_that_of_scikit_learn() -> None:
    Z, Phi, _ = problem()
    Phi /= np.linalg.norm(Phi, axis=1, keepdims=True)  # scikit-learn does not divide by the length of columns
    expected = orthogonal_mp_gram(Phi @ Phi.T, Phi @ Z.T, n_nonzero_coefs=6).T
    np.testing.assert_allclose(omp(Z, Phi, 6).toarray(), expected, atol=1e-8)


def test_cosamp_is_that_of_one_row_at_a_time() -> None:
    Z, Phi, _ = problem(m=30)
    expected = [naive_cosamp(z, Phi, 5, steps=20) for z in Z]
    np.testing.assert_allclose(cosamp(Z, Phi, 5, max_steps=20).toarray(), expected, atol=1e-8)


def test_the_lasso_is_that_of_scikit_learn() -> None:
    Z, Phi, _ = problem(n=10)
    penalty = sparsity_penalty(Z, Phi, 15)
    found = lasso(Z, Phi, penalty, tol=1e-12, max_steps=20_000).toarray()
    for z, one, y in zip(Z, penalty, found, strict=True):
        reference = Lasso(alpha=one / len(z), fit_intercept=False, tol=1e-12, max_iter=100_000).fit(Phi.T, z)
        np.testing.assert_allclose(y, reference.coef_, atol=1e-6)


def test_the_lasso_at_its_usual_tolerance_ranks_as_the_exact_one_does() -> None:
    Z, Phi, _ = problem()
    penalty = sparsity_penalty(Z, Phi, 15)
    quick, exact = lasso(Z, Phi, penalty), lasso(Z, Phi, penalty, tol=1e-10, max_steps=20_000)
    np.testing.assert_allclose(quick.toarray(), exact.toarray(), atol=5e-3)


@pytest.mark.parametrize("recover", [omp, cosamp], ids=["omp", "cosamp"])
def test_sparse_vectors_are_found_exactly_where_there_are_enough_dimensions(recover: Any) -> None:
    Z, Phi, Y = problem(L=200, m=80, k=4, noise=0)
    np.testing.assert_allclose(recover(Z, Phi, 4).toarray(), Y, atol=1e-10)


def test_the_lasso_finds_sparse_vectors_as_its_penalty_goes_to_zero() -> None:
    Z, Phi, Y = problem(L=200, m=80, k=4, noise=0)
    found = lasso(Z, Phi, np.full(len(Z), 1e-4), tol=1e-9, max_steps=20_000).toarray()
    np.testing.assert_allclose(found, Y, atol=2e-3)


def test_omp_stops_where_nothing_is_left_to_explain() -> None:
    Z, Phi, Y = problem(L=200, m=80, k=4, noise=0)
    found = omp(Z, Phi, 30)
    assert np.diff(found.indptr).max() < 30
    np.testing.assert_allclose(found.toarray(), Y, atol=1e-8)


def test_the_residual_of_omp_falls_with_every_label() -> None:
    Z, Phi, _ = problem()
    sizes = [np.linalg.norm(Z - omp(Z, Phi, k) @ Phi, axis=1) for k in range(1, 12)]
    assert (np.diff(sizes, axis=0) < 0).all()


def test_the_residual_of_cosamp_never_rises() -> None:
    Z, Phi, _ = problem(m=30)
    sizes = [np.linalg.norm(Z - cosamp(Z, Phi, 6, max_steps=steps) @ Phi, axis=1) for steps in range(1, 8)]
    assert (np.diff(sizes, axis=0) <= 1e-12).all()
    assert (sizes[0] < np.linalg.norm(Z, axis=1)).all()


def test_orthonormal_columns_leave_the_lasso_exactly_k_labels() -> None:
    Z = np.random.default_rng(0).standard_normal((20, 12))
    found = lasso(Z, np.eye(12), sparsity_penalty(Z, np.eye(12), 5))
    assert (np.diff(found.indptr) == 5).all()
    assert not sparsity_penalty(Z, np.eye(12), 12).any()


@pytest.mark.parametrize("word", ["omp", "cosamp", "lasso"])
def test_rows_do_not_know_of_each_other_nor_of_threads(word: str) -> None:
    Z, Phi, _ = problem(n=12)

    def recover(rows: Floats, n_jobs: int | None) -> Floats:
        if word == "lasso":
            return np.asarray(lasso(rows, Phi, sparsity_penalty(rows, Phi, 8), n_jobs).toarray())
        return np.asarray((omp if word == "omp" else cosamp)(rows, Phi, 5, n_jobs).toarray())

    together = recover(Z, None)
    np.testing.assert_allclose(np.vstack([recover(Z[i : i + 1], 1) for i in range(len(Z))]), together, atol=1e-10)


@pytest.mark.parametrize("recover", [omp, cosamp], ids=["omp", "cosamp"])
def test_a_row_of_zeros_has_no_labels(recover: Any) -> None:
    _, Phi, _ = problem()
    assert recover(np.zeros((2, 25)), Phi, 3).nnz == 0
    assert lasso(np.zeros((2, 25)), Phi, np.zeros(2)).nnz == 0
    assert recover(np.zeros((0, 25)), Phi, 3).shape == (0, 60)


@pytest.mark.parametrize("recover", [omp, cosamp], ids=["omp", "cosamp"])
@pytest.mark.parametrize(("L", "m"), [(1, 1), (2, 1), (1, 4), (3, 2)])
def test_more_labels_are_never_asked_for_than_the_system_holds(recover: Any, L: int, m: int) -> None:
    Z, Phi, _ = problem(n=5, L=L, m=m, k=1)
    found = recover(Z, Phi, 10)
    assert np.diff(found.indptr).max() <= min(L, m)
    assert (np.linalg.norm(Z - found @ Phi, axis=1) <= np.linalg.norm(Z, axis=1) + 1e-12).all()


# -------------------------------------------------------------------------------------------------------- estimator


@pytest.mark.parametrize("recovery", ["omp", "cosamp", "lasso"])
def test_planted_labels_are_found(recovery: str) -> None:
    world = planted()
    model = CompressedSensing(n_dims=40, recovery=recovery, random_state=0).fit(world.X, world.Y)
    assert model.score(world.X_new, world.Y_new) == 1


def test_so_many_labels_are_recovered_as_were_asked_for() -> None:
    world = planted()
    model = CompressedSensing(n_dims=20, n_nonzeros=3, random_state=0).fit(world.X, world.Y)
    assert np.diff(model.decision_function(world.X_new).indptr).max() == 3


def test_the_number_of_labels_is_chosen_by_doubling() -> None:
    world = planted()
    model = CompressedSensing(n_dims=20, random_state=0).fit(world.X, world.Y)
    assert int(model.learnt_["n_nonzeros"]) in (5, 10, 20)


def test_the_same_state_gives_the_same_matrix_and_another_another() -> None:
    world = planted()
    one, same, other = (
        CompressedSensing(n_dims=8, ridge=1.0, random_state=seed).fit(world.X, world.Y).learnt_["Phi"]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_dims": 0}, r"`n_dims` must be an integer ≥ 1; got 0\."),
        ({"recovery": "magic"}, r"`recovery` must be one of omp, cosamp, lasso; got 'magic'\."),
        ({"n_nonzeros": 0}, r"`n_nonzeros` must be 'auto' or an integer ≥ 1; got 0\."),
        ({"ridge": -1}, r"`ridge` must be 'auto' or a finite number ≥ 0; got -1\."),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        CompressedSensing(**settings).fit([[1], [2]], [["a"], ["b"]])


@needs_data
def test_bibtex_is_tagged_as_well_as_published() -> None:
    train, test = datasets.load("bibtex")
    # The Extreme Classification Repository has 58.87 / 33.53 / 23.72, at the best of several m.
    model = CompressedSensing(n_dims=127, ridge=10.0, random_state=0).fit(train.X, train.Y)
    scores = model.decision_function(test.X)
    found = [100 * metrics.precision_at_k(test.Y, scores, k=k) for k in (1, 3, 5)]
    assert (np.array(found) >= np.array([58.87, 33.53, 23.72]) - 3).all()
