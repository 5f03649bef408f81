"""Kernel ridge regression: numpy's solution in float64, rows left out against refits, and what cannot be solved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import worlds
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

from ripml.base import parallel as resources
from ripml.base.errors import DataError, MemoryLimitError
from ripml.regression.kernel_ridge import leave_out, require_kernel_memory, solve_kernel, weights_of_rows
from ripml.regression.kernels import RBF, Kernel, Linear, Rows

SIZES = [(1, 3), (2, 1), (60, 7), (200, 30)]
KERNELS: list[Kernel] = [Linear(), RBF(0.5)]


def problem(n: int, n_targets: int, kernel: Kernel) -> tuple[Any, NDArray[np.float32], NDArray[np.float32]]:
    """Feature rows of length 1, their kernel matrix, and targets."""
    X, Z = worlds.regression(n, 12, n_targets)
    X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    X = X.astype(np.float32)
    return X, kernel.between(X, Rows(X)), Z.astype(np.float32)


def reference(K: Any, Z: Any, alpha: float) -> NDArray[np.float64]:
    """C by numpy in float64."""
    return np.asarray(np.linalg.solve(K.astype(np.float64) + alpha * np.eye(len(K)), Z.astype(np.float64)))


def refits(K: Any, Z: Any, alpha: float) -> NDArray[np.float64]:
    """What is predicted for each row by a regression that never saw it."""
    found = np.zeros(Z.shape)
    for row in range(len(K)):
        seen = np.arange(len(K)) != row
        found[row] = K[row, seen].astype(np.float64) @ reference(K[np.ix_(seen, seen)], Z[seen], alpha)
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("size", SIZES, ids=str)
class TestEverySize:
    @pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
    def test_it_is_the_solution(self, size: tuple[int, int], kernel: Kernel, alpha: float) -> None:
        _, K, Z = problem(*size, kernel)
        expected = reference(K, Z, alpha)
        C = solve_kernel(K.copy(), Z, alpha, 1).coefficients
        assert C.dtype == np.float32
        assert C.shape == Z.shape
        assert C.flags.c_contiguous
        assert np.abs(C - expected).max() <= 1e-4 * max(1, np.abs(expected).max())

    @pytest.mark.parametrize("alpha", [0.1, 1.0])
    def test_a_row_left_out_is_one_never_seen(self, size: tuple[int, int], kernel: Kernel, alpha: float) -> None:
        _, K, Z = problem(*size, kernel)
        found = solve_kernel(K.copy(), Z, alpha, len(K)).left_out
        assert np.abs(found - refits(K, Z, alpha)).max() <= 1e-3 * np.abs(Z).max()

    def test_the_rows_asked_about_are_the_last(self, size: tuple[int, int], kernel: Kernel) -> None:
        _, K, Z = problem(*size, kernel)
        everyone = solve_kernel(K.copy(), Z, 0.5, len(K))
        for n_asked in {1, -(-len(K) // 3)}:
            some = solve_kernel(K.copy(), Z, 0.5, n_asked)
            np.testing.assert_allclose(some.left_out, everyone.left_out[-n_asked:], atol=1e-4)
            np.testing.assert_array_equal(some.coefficients, everyone.coefficients)

    def test_leaving_out_alone_is_the_same(self, size: tuple[int, int], kernel: Kernel) -> None:
        _, K, Z = problem(*size, kernel)
        n_asked = -(-len(K) // 2)
        expected = solve_kernel(K.copy(), Z, 0.5, n_asked).left_out
        np.testing.assert_allclose(leave_out(K.copy(), Z, 0.5, n_asked), expected, atol=1e-5)

    def test_only_the_lower_triangle_is_read(self, size: tuple[int, int], kernel: Kernel) -> None:
        _, K, Z = problem(*size, kernel)
        half = K.copy()
        half[np.triu_indices(len(K), 1)] = np.nan
        found, expected = solve_kernel(half.copy(), Z, 0.5, 1), solve_kernel(K.copy(), Z, 0.5, 1)
        np.testing.assert_array_equal(found.coefficients, expected.coefficients)
        np.testing.assert_array_equal(found.left_out, expected.left_out)
        np.testing.assert_array_equal(leave_out(half, Z, 0.5, 1), leave_out(K, Z, 0.5, 1))

    def test_the_targets_stay_as_they_are(self, size: tuple[int, int], kernel: Kernel) -> None:
        _, K, Z = problem(*size, kernel)
        before = Z.copy()
        solve_kernel(K.copy(), Z, 0.5, 1)
        leave_out(K, Z, 0.5, 1)
        np.testing.assert_array_equal(Z, before)


@pytest.mark.parametrize("alpha", [0.1, 3.0])
def test_it_agrees_with_scikit_learn(alpha: float) -> None:
    X, K, Z = problem(80, 4, RBF(0.7))
    theirs = KernelRidge(alpha=alpha, kernel="rbf", gamma=0.7).fit(X.astype(np.float64), Z.astype(np.float64))
    np.testing.assert_allclose(solve_kernel(K, Z, alpha, 1).coefficients, theirs.dual_coef_, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.3, 3.0])
def test_a_linear_kernel_is_ridge_regression(alpha: float) -> None:
    X, K, Z = problem(80, 4, Linear())
    ours = X.T @ solve_kernel(K, Z, alpha, 1).coefficients
    theirs = Ridge(alpha=alpha, fit_intercept=False).fit(X.astype(np.float64), Z.astype(np.float64))
    np.testing.assert_allclose(ours, theirs.coef_.T, atol=2e-4)


def test_a_matrix_that_lower_triangle_made_is_solved_as_it_is() -> None:
    X, K, Z = problem(300, 4, RBF(0.5))
    found = solve_kernel(RBF(0.5).lower_triangle(X), Z, 0.2, 10)
    np.testing.assert_allclose(found.coefficients, reference(K, Z, 0.2), atol=1e-4 * np.abs(Z).max() / 0.2)


def test_targets_in_any_order_of_memory_are_solved() -> None:
    _, K, Z = problem(60, 7, RBF(0.5))
    expected = solve_kernel(K.copy(), Z, 0.5, 20)
    for targets in (np.asfortranarray(Z), np.repeat(Z, 2, axis=1)[:, ::2]):
        found = solve_kernel(K.copy(), targets, 0.5, 20)
        np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-5)
        np.testing.assert_allclose(found.left_out, expected.left_out, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 60, 200])
class TestTheWeightsOfRows:
    @pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
    def test_they_are_the_solution(self, n: int, kernel: Kernel, alpha: float) -> None:
        _, K, _ = problem(n + 1, 1, kernel)
        among, k = K[:n, :n].copy(), K[n, :n].copy()
        expected = np.linalg.solve(among.astype(np.float64) + alpha * np.eye(n), k.astype(np.float64))
        found = weights_of_rows(among.copy(), k, alpha)
        assert found.dtype == np.float32
        assert found.shape == (n,)
        np.testing.assert_allclose(found, expected, atol=1e-4)

    @pytest.mark.parametrize("alpha", [0.1, 3.0])
    def test_they_say_of_the_query_what_kernel_ridge_says(self, n: int, kernel: Kernel, alpha: float) -> None:
        _, K, Z = problem(n + 1, 4, kernel)
        expected = K[n, :n] @ solve_kernel(K[:n, :n].copy(), Z[:n], alpha, 1).coefficients
        found = weights_of_rows(K[:n, :n].copy(), K[n, :n], alpha) @ Z[:n]
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(Z).max())

    @pytest.mark.parametrize("every", [1, 2, 7])
    def test_rows_at_minus_infinity_are_not_there(self, n: int, kernel: Kernel, every: int) -> None:
        _, K, _ = problem(n + 1, 1, kernel)
        missing = np.arange(n) % every == 0
        k = np.where(missing, -np.inf, K[n, :n]).astype(np.float32)
        found = weights_of_rows(K[:n, :n].copy(), k, 0.5)
        np.testing.assert_array_equal(found[missing], 0)
        there = np.flatnonzero(~missing)
        if len(there):
            alone = weights_of_rows(K[np.ix_(there, there)].copy(), k[there], 0.5)
            np.testing.assert_allclose(found[there], alone, atol=1e-6)

    def test_only_the_upper_triangle_is_read_and_the_query_stays_as_it_is(self, n: int, kernel: Kernel) -> None:
        _, K, _ = problem(n + 1, 1, kernel)
        k = K[n, :n].copy()
        k[0] = -np.inf
        before = k.copy()
        half = K[:n, :n].copy()
        half[np.tril_indices(n, -1)] = np.nan
        np.testing.assert_array_equal(weights_of_rows(half, k, 0.5), weights_of_rows(K[:n, :n].copy(), k, 0.5))
        np.testing.assert_array_equal(k, before)


def test_weights_on_a_matrix_that_is_not_positive_definite_are_refused_with_the_remedy() -> None:
    K, k = np.array([[1.0, 2.0], [2.0, 1.0]], np.float32), np.ones(2, np.float32)
    with pytest.raises(DataError, match=r"^the kernel matrix is not positive definite at ridge = 0\.5; use a larger"):
        weights_of_rows(K.copy(), k, 0.5)
    np.testing.assert_allclose(weights_of_rows(K, k, 2.0), [0.2, 0.2], atol=1e-6)


@pytest.mark.parametrize("solve", [solve_kernel, leave_out])
def test_a_matrix_that_is_not_positive_definite_is_refused_with_the_remedy(solve: Any) -> None:
    K = np.array([[1.0, 2.0], [2.0, 1.0]], np.float32)
    sentence = r"^the kernel matrix is not positive definite at ridge = 0\.5; use a larger one\.$"
    with pytest.raises(DataError, match=sentence):
        solve(K.copy(), np.ones((2, 1), np.float32), 0.5, 1)
    assert np.isfinite(solve_kernel(K, np.ones((2, 1), np.float32), 1.5, 1).left_out).all()


def test_a_kernel_matrix_too_large_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "available_memory", lambda: 10**9)
    require_kernel_memory(10_000, 100)
    sentence = (
        r"^the kernel matrix of n = 20,000 rows would need \d+\.\d GB and 1\.0 GB are free; use kernel='linear'\.$"
    )
    with pytest.raises(MemoryLimitError, match=sentence):
        require_kernel_memory(20_000, 100)
    with pytest.raises(MemoryLimitError, match=r"the kernel matrix of n = 5,000 rows would need"):
        require_kernel_memory(5_000, 1_000_000)
