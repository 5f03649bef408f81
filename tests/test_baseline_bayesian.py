"""Bayesian compressed sensing: its updates written out, its bound, and what its uncertainty knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import digamma, gammaln
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from worlds import planted

from ripml.base.errors import MemoryLimitError, ParameterError
from ripml.baselines import BayesianCompressedSensing
from ripml.baselines.bayesian import deviations, infer
from ripml.baselines.compressed_sensing import gaussian_columns

Floats = NDArray[np.float64]
A0 = B0 = 1e-6
CHI2, START = 0.01, 0.1


def problem(n: int = 12, L: int = 30, m: int = 15, k: int = 2, seed: int = 0) -> tuple[Floats, Floats, Floats, Floats]:
    """ẑ of sparse y, its variance a row, Phi and y."""
    rng = np.random.default_rng(seed)
    Phi = gaussian_columns(L, m, seed, None)
    Y = np.zeros((n, L))
    for row in Y:
        row[rng.choice(L, k, replace=False)] = 1
    variance = rng.uniform(0.005, 0.02, n)
    return Y @ Phi + np.sqrt(variance + CHI2)[:, None] * rng.standard_normal((n, m)), variance, Phi, Y


def covariance(D: Floats, Phi: Floats, noise: float) -> Floats:
    return np.asarray(np.linalg.inv(np.diag(1 / D) + Phi @ Phi.T / noise))


def settle(z: Floats, s2: float, D: Floats, Phi: Floats) -> tuple[Floats, Floats, Floats]:
    """μ, Σ and E[z] for a D by the paper's two updates in turn, until they rest."""
    S = covariance(D, Phi, CHI2)
    expected = z
    for _ in range(200):
        mu = S @ Phi @ expected / CHI2
        expected = (z / s2 + mu @ Phi / CHI2) / (1 / s2 + 1 / CHI2)
    return mu, S, expected


def bound(z: Floats, s2: float, D: Floats, Phi: Floats) -> float:
    """The variational bound at Q(α_j) = Γ(a0 + ½, (a0 + ½)D_j) and the best Q(y)Q(z), without constants."""
    mu, S, expected = settle(z, s2, D, Phi)
    m = len(z)
    v = 1 / (1 / s2 + 1 / CHI2)
    a, b = A0 + 0.5, (A0 + 0.5) * D
    log_alpha, second = digamma(a) - np.log(b), mu**2 + np.diag(S)
    likelihood = -(np.sum((expected - z) ** 2) + m * v) / (2 * s2)
    likelihood -= (np.sum((expected - mu @ Phi) ** 2) + m * v + np.trace(Phi.T @ S @ Phi)) / (2 * CHI2)
    prior = np.sum(0.5 * log_alpha - 0.5 * second / D + (A0 - 1) * log_alpha - B0 / D)
    entropy = 0.5 * np.linalg.slogdet(S)[1] + np.sum(a - np.log(b) + gammaln(a) + (1 - a) * digamma(a))
    return float(likelihood + prior + entropy)


def test_the_rounds_are_those_of_the_paper_written_out_with_full_matrices() -> None:
    Z, variance, Phi, _ = problem()
    mean, D = infer(Z, Phi, variance, CHI2, START, n_steps=4)
    deviation = deviations(D, Phi, CHI2 + variance)
    for i, (z, s2) in enumerate(zip(Z, variance, strict=True)):
        d = np.full(len(Phi), START)
        for _ in range(3):
            mu, S, _ = settle(z, s2, d, Phi)
            d = (B0 + 0.5 * (mu**2 + np.diag(S))) / (A0 + 0.5)
        np.testing.assert_allclose(D[i], d, rtol=1e-7)
        np.testing.assert_allclose(mean[i], settle(z, s2, d, Phi)[0], atol=1e-8)
        np.testing.assert_allclose(deviation[i] ** 2, np.diag(covariance(d, Phi, CHI2 + s2)), rtol=1e-7)


def test_the_equations_hold_where_the_rounds_end() -> None:
    Z, variance, Phi, _ = problem(n=2, L=20, m=10)
    mean, D = infer(Z, Phi, variance, CHI2, START, n_steps=2000)
    for z, s2, mu, d in zip(Z, variance, mean, D, strict=True):
        S = covariance(d, Phi, CHI2)
        expected = (z / s2 + mu @ Phi / CHI2) / (1 / s2 + 1 / CHI2)
        np.testing.assert_allclose(mu, S @ Phi @ expected / CHI2, atol=1e-9)
        np.testing.assert_allclose(d, (B0 + 0.5 * (mu**2 + np.diag(S))) / (A0 + 0.5), atol=1e-7)


def test_no_round_lowers_the_variational_bound() -> None:
    Z, variance, Phi, _ = problem(n=3)
    rounds = [infer(Z, Phi, variance, CHI2, START, n_steps)[1] for n_steps in range(1, 15)]
    for i in range(len(Z)):
        bounds = [bound(Z[i], variance[i], D[i], Phi) for D in rounds]
        assert (np.diff(bounds) >= -1e-9).all()
        assert bounds[-1] > bounds[0] + 1


def test_sparse_vectors_are_found_and_the_rest_is_switched_off() -> None:
    _, variance, Phi, Y = problem(n=20, L=60, m=40)
    mean, D = infer(Y @ Phi, Phi, variance / 10, CHI2 / 10, START, n_steps=50)
    np.testing.assert_allclose(mean, Y, atol=0.1)
    assert np.median(D[Y == 0]) < 1e-2
    assert D[Y == 1].min() > 0.5


def test_deviations_are_calibrated_where_the_prior_is_true() -> None:
    rng = np.random.default_rng(0)
    Phi = gaussian_columns(40, 25, 0, None)
    Y = np.sqrt(START) * rng.standard_normal((400, 40))
    Z = Y @ Phi + np.sqrt(0.02 + CHI2) * rng.standard_normal((400, 25))
    mean, D = infer(Z, Phi, np.full(400, 0.02), CHI2, START, n_steps=1)
    deviation = deviations(D, Phi, np.full(400, 0.02 + CHI2))
    assert np.mean(((Y - mean) / deviation) ** 2) == pytest.approx(1, abs=0.05)
    assert np.mean(np.abs(Y - mean) < 1.96 * deviation) == pytest.approx(0.95, abs=0.01)


def test_rows_do_not_know_of_each_other_nor_of_threads() -> None:
    Z, variance, Phi, _ = problem()
    together = infer(Z, Phi, variance, CHI2, START, 5)
    for i in range(len(Z)):
        alone = infer(Z[i : i + 1], Phi, variance[i : i + 1], CHI2, START, 5, n_jobs=1)
        np.testing.assert_allclose(np.array(alone)[:, 0], np.array(together)[:, i], atol=1e-10)


# -------------------------------------------------------------------------------------------------------- estimator


@pytest.mark.parametrize("d", [20, 200], ids=["more rows than features", "more features than rows"])
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_the_regression_and_its_uncertainty_are_those_of_bayes(d: int, make: Any) -> None:
    world = planted(n=60, d=d)
    model = BayesianCompressedSensing(n_dims=10, ridge=2.0, random_state=0).fit(make(world.X), world.Y)
    F = np.hstack([np.ones((60, 1)), world.X])
    Z = world.Y @ model.learnt_["Phi"]
    np.testing.assert_allclose(model.learnt_["Psi"], Ridge(2.0, fit_intercept=False).fit(F, Z).coef_.T, atol=1e-8)
    inverse = np.linalg.inv(F.T @ F + 2 * np.eye(d + 1))
    h = np.einsum("ij,jk,ik->i", F, inverse, F)
    noise = np.mean(((Z - F @ inverse @ F.T @ Z) / (1 - h)[:, None]) ** 2 / (2 + h / (1 - h))[:, None])
    assert float(model.learnt_["noise"]) == pytest.approx(noise, rel=1e-6)
    new = np.hstack([np.ones((60, 1)), world.X_new])
    variance = noise * (1 + np.einsum("ij,jk,ik->i", new, inverse, new))
    density = world.Y.nnz / (60 * world.Y.shape[1])
    mean, D = infer(new @ model.learnt_["Psi"], model.learnt_["Phi"], variance, noise, density, model.n_steps)
    scores, spreads = model.predict_with_uncertainty(make(world.X_new))
    np.testing.assert_allclose(scores.toarray(), mean, atol=1e-7)
    np.testing.assert_allclose(spreads.toarray(), deviations(D, model.learnt_["Phi"], variance + noise), atol=1e-7)


def test_planted_labels_are_found() -> None:
    world = planted()
    model = BayesianCompressedSensing(n_dims=40, random_state=0).fit(world.X, world.Y)
    assert model.score(world.X_new, world.Y_new) == 1


def test_scores_with_uncertainty_are_the_scores_and_share_their_pattern() -> None:
    world = planted()
    model = BayesianCompressedSensing(n_dims=15, random_state=0).fit(world.X, world.Y)
    scores, spreads = model.predict_with_uncertainty(world.X_new)
    np.testing.assert_allclose(scores.toarray(), model.decision_function(world.X_new).toarray(), atol=1e-10)
    np.testing.assert_array_equal(scores.indices, spreads.indices)
    np.testing.assert_array_equal(scores.indptr, spreads.indptr)
    assert (spreads.data > 0).all()


def noisy_world(n: int, seed: int = 0) -> tuple[Floats, Any]:
    """Labels that are the signs of features seen through noise."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n, 12)) < 0.2
    Y[np.arange(n), rng.integers(12, size=n)] = True
    return Y @ np.eye(12, 20) + 0.3 * rng.standard_normal((n, 20)), scipy.sparse.csr_array(Y.astype(float))


def mean_deviation(n: int, asked: Floats) -> float:
    model = BayesianCompressedSensing(n_dims=24, ridge=1.0, random_state=0).fit(*noisy_world(n))
    return float(model.predict_with_uncertainty(asked)[1].data.mean())


def test_uncertainty_shrinks_with_more_rows() -> None:
    asked = noisy_world(50, seed=1)[0]
    few, more, many = (mean_deviation(n, asked) for n in (25, 60, 1000))
    assert few > more > many


def test_rows_far_from_all_that_was_seen_are_less_certain() -> None:
    X, Y = noisy_world(200)
    model = BayesianCompressedSensing(n_dims=24, ridge=1.0, random_state=0).fit(X, Y)
    away = X[:50].copy()
    away[:, 12:] += 10 * np.random.default_rng(2).standard_normal((50, 8))  # where features say nothing of labels
    near, far = (model.predict_with_uncertainty(rows)[1].data.mean() for rows in (X[:50], away))
    assert far > 1.2 * near


def test_errors_are_of_the_size_that_was_said() -> None:
    model = BayesianCompressedSensing(n_dims=24, ridge=1.0, random_state=0).fit(*noisy_world(1000))
    X, Y = noisy_world(300, seed=1)
    scores, spreads = model.predict_with_uncertainty(X)
    ratio = np.sqrt(np.mean((Y.toarray() - scores.toarray()) ** 2 / spreads.toarray() ** 2))
    assert 0.6 < ratio < 1.6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_dims": 0}, r"`n_dims` must be an integer ≥ 1; got 0\."),
        ({"n_steps": 0}, r"`n_steps` must be an integer ≥ 1; got 0\."),
        ({"ridge": "none"}, r"`ridge` must be 'auto' or a finite number ≥ 0; got 'none'\."),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        BayesianCompressedSensing(**settings).fit([[1], [2]], [["a"], ["b"]])


def test_uncertainty_is_refused_before_a_fit_and_after_a_change() -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        BayesianCompressedSensing().predict_with_uncertainty([[1.0]])
    model = BayesianCompressedSensing(n_dims=4, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]])
    with pytest.raises(ParameterError, match="`n_steps` was changed after the fit"):
        model.set_params(n_steps=9).predict_with_uncertainty([[1, 0]])


def test_no_ridge_at_all_still_gives_a_proper_posterior() -> None:
    model = BayesianCompressedSensing(n_dims=6, ridge=0, random_state=0)
    model.fit([[1, 0, 1], [0, 1, 1]] * 5, [["a"], ["b"]] * 5)
    assert np.isfinite(model.predict_with_uncertainty([[1, 0, 5]])[1].data).all()


def test_a_covariance_too_large_for_memory_is_refused() -> None:
    X = scipy.sparse.eye_array(20_000, 40_000, format="csr")
    with pytest.raises(MemoryLimitError, match="use fewer features or rows"):
        BayesianCompressedSensing(n_dims=2, random_state=0).fit(X, scipy.sparse.csr_array(np.ones((20_000, 1))))
