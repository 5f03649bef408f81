"""Psi: four solvers, one solution, whatever the shape, type, rank, scale and regularisation."""

from __future__ import annotations

import warnings
from typing import Any

import laws
import numpy as np
import pytest
import scipy.sparse
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from ripml.base import products
from ripml.base.errors import MemoryLimitError, ParameterError
from ripml.base.products import FactoredEmbedding, predict_embedding
from ripml.regression import (
    ConjugateGradient,
    Dual,
    GradientDescent,
    Primal,
    RidgeSolver,
    Sums,
    choose_solver,
    resolve_solver,
)
from ripml.regression.solver import predicted_without
from ripml.regression.sums import Factor

CLOSED: list[RidgeSolver] = [Primal(), Dual()]
ITERATIVE: list[RidgeSolver] = [ConjugateGradient(), GradientDescent()]
SOLVERS = CLOSED + ITERATIVE
SHAPES = [(80, 30), (30, 80), (40, 40), (1, 5), (5, 1)]


def bound(solver: RidgeSolver, dtype: Any = np.float64) -> float:
    """The relative error that a solver may have."""
    if solver.exact:
        return 1e-9
    return 1e-4 if dtype == np.float64 else 1e-3


def left_out_bound(solver: RidgeSolver) -> float:
    """The error of a leave-one-out prediction: half of the digits of an iterative solver are left, see `_left_out`."""
    return 1e-9 if solver.exact else 1e-3


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.word)
class TestEverySolver:
    @pytest.mark.parametrize("alpha", [0.3, 10, 1e6])
    def test_it_finds_the_ridge_solution(self, solver: RidgeSolver, shape: tuple[int, int], alpha: float) -> None:
        laws.a_solver_finds_the_ridge_solution(solver, *worlds.regression(*shape), alpha, bound(solver))

    @pytest.mark.parametrize("alpha", [0.3, 10])
    def test_it_finds_it_in_float32(self, solver: RidgeSolver, shape: tuple[int, int], alpha: float) -> None:
        X, Z = (array.astype(np.float32) for array in worlds.regression(*shape))
        laws.a_solver_finds_the_ridge_solution(solver, X, Z, alpha, bound(solver, np.float32))

    @pytest.mark.parametrize("alpha", [0.3, 10])
    @pytest.mark.parametrize("method", ["cholesky", "svd"])
    def test_it_agrees_with_scikit_learn(
        self, solver: RidgeSolver, shape: tuple[int, int], alpha: float, method: str
    ) -> None:
        X, Z = worlds.regression(*shape)
        expected = Ridge(alpha=alpha, fit_intercept=False, solver=method).fit(X, Z).coef_.T
        assert laws.relative_error(solver.prepare(X, Z)(alpha).Psi, expected) <= bound(solver)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_targets_of_the_other_type_do_no_harm(
        self, solver: RidgeSolver, shape: tuple[int, int], dtype: Any
    ) -> None:
        X, Z = worlds.regression(*shape)
        X, Z = X.astype(dtype), Z.astype(np.float32 if dtype == np.float64 else np.float64)
        laws.a_solver_finds_the_ridge_solution(solver, X, Z, 0.3, bound(solver, dtype))

    @pytest.mark.parametrize("alpha", [1, 100])
    def test_leaving_out_equals_refitting(self, solver: RidgeSolver, shape: tuple[int, int], alpha: float) -> None:
        laws.leaving_out_equals_refitting(solver, *worlds.regression(*shape), alpha, left_out_bound(solver))


@pytest.mark.parametrize("alpha", [0.01, 0.1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("solver", [*CLOSED, ConjugateGradient()], ids=lambda solver: solver.word)
def test_leaving_out_equals_refitting_where_gradient_descent_is_too_slow(
    solver: RidgeSolver, shape: tuple[int, int], alpha: float
) -> None:
    laws.leaving_out_equals_refitting(solver, *worlds.regression(*shape), alpha, left_out_bound(solver))


def deficient(n: int = 60, d: int = 25, seed: int = 1) -> tuple[Any, Any]:
    """Features with a duplicate, a sum, a constant and an empty column, and with duplicate and empty rows."""
    X, Z = worlds.regression(n, d, seed=seed)
    X = np.round(X * 64) / 64  # so that the sum is exact in float32 too
    X[:, 3] = X[:, 2]
    X[:, 4] = X[:, 5] + X[:, 6]
    X[:, 7] = 1
    X[:, 8] = 0
    X[1] = X[0]
    X[9] = 0
    return X, Z


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(60, 25), (25, 60)], ids=str)
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.word)
class TestWhereManySolutionsFit:
    def test_no_regularisation_gives_the_solution_of_least_norm(
        self, solver: RidgeSolver, shape: tuple[int, int], dtype: Any
    ) -> None:
        X, Z = (array.astype(dtype) for array in deficient(*shape))
        expected = np.linalg.lstsq(X.astype(np.float64), Z.astype(np.float64), rcond=1e-6)[0]
        for features in (X, scipy.sparse.csr_array(X)):
            Psi = solver.prepare(features, Z)(0.0).Psi
            assert laws.relative_error(Psi, expected) <= bound(solver, dtype)

    @pytest.mark.parametrize("alpha", [1e-12, 1e-9, 1e-6])
    def test_a_tiny_regularisation_is_next_to_none(
        self, solver: RidgeSolver, shape: tuple[int, int], dtype: Any, alpha: float
    ) -> None:
        X, Z = (array.astype(dtype) for array in deficient(*shape))
        expected = laws.reference_ridge(X, Z, alpha)
        assert laws.relative_error(solver.prepare(X, Z)(alpha).Psi, expected) <= max(1e-6, bound(solver, dtype))

    @pytest.mark.parametrize("alpha", [0, 1e-9, 1e-3])
    def test_leaving_out_equals_refitting(
        self, solver: RidgeSolver, shape: tuple[int, int], dtype: Any, alpha: float
    ) -> None:
        X, Z = (array.astype(dtype).astype(np.float64) for array in deficient(*shape))
        rows = np.arange(shape[0])
        seen = [rows != row for row in rows]
        expected = np.stack([X[row] @ laws.reference_ridge(X[seen[row]], Z[seen[row]], alpha) for row in rows])
        found = solver.prepare(X.astype(dtype), Z.astype(dtype))(alpha).left_out(rows)
        bound = 1e-6 if solver.exact else 1e-3 if dtype == np.float64 else 5e-3
        assert np.abs(found - expected).max() <= bound * np.abs(Z).max()


@pytest.mark.parametrize(("solver", "shape"), [(Primal(), (80, 20)), (Dual(), (20, 80))], ids=["primal", "dual"])
def test_features_of_very_different_scale_are_not_mistaken_for_dependence(
    solver: RidgeSolver, shape: tuple[int, int]
) -> None:
    X, Z = worlds.regression(*shape)
    X = X * 10.0 ** np.linspace(-6, 6, shape[1])
    expected = laws.reference_ridge(X, Z, 1e-3)
    solution = solver.prepare(X, Z)(1e-3)
    fitted = X @ expected
    assert laws.relative_error(X @ solution.Psi, fitted) <= 1e-6
    if solver.word == "primal":  # each feature's weight has all its digits, however small its scale
        np.testing.assert_allclose(solution.Psi, expected, rtol=1e-5, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.word)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_scale_of_all_features_together_does_not_matter(solver: RidgeSolver, scale: float) -> None:
    X, Z = worlds.regression(50, 20)
    plain, scaled = solver.prepare(X, Z)(0.3).Psi, solver.prepare(X * scale, Z)(0.3 * scale**2).Psi
    assert laws.relative_error(scaled * scale, plain) <= bound(solver)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.word)
def test_a_huge_regularisation_gives_next_to_nothing(solver: RidgeSolver) -> None:
    X, Z = worlds.regression(50, 20)
    laws.a_solver_finds_the_ridge_solution(solver, X, Z, 1e15, bound(solver))


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.word)
def test_features_that_are_all_zero_give_zero(solver: RidgeSolver) -> None:
    for alpha in (0.0, 1.0):
        for X in (np.zeros((6, 4)), scipy.sparse.csr_array((6, 4))):
            solution = solver.prepare(X, np.ones((6, 2)))(alpha)
            np.testing.assert_array_equal(solution.Psi, np.zeros((4, 2)))
            np.testing.assert_array_equal(solution.left_out(np.arange(6)), np.zeros((6, 2)))


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.word)
def test_threads_do_not_matter(solver: RidgeSolver) -> None:
    X, Z = worlds.regression(1100, 70)
    for features in (X, scipy.sparse.csr_array(X)):
        one = solver.prepare(features, Z, n_jobs=1)(1.0)
        for n_jobs in (2, 3):
            other = solver.prepare(features, Z, n_jobs=n_jobs)(1.0)
            np.testing.assert_array_equal(other.Psi, one.Psi)
            np.testing.assert_array_equal(other.left_out(np.arange(50)), one.left_out(np.arange(50)))


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.word)
def test_one_preparation_serves_many_regularisations(solver: RidgeSolver) -> None:
    X, Z = worlds.regression(60, 20)
    solve = solver.prepare(X, Z)
    for alpha in (10.0, 0.1, 10.0):
        np.testing.assert_array_equal(solve(alpha).Psi, solver.prepare(X, Z)(alpha).Psi)


@pytest.mark.parametrize("density", [0.002, 0.5, "both"], ids=["rare", "frequent", "both"])
def test_many_blocks_are_one(density: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    chance = np.where(np.arange(90) % 3, 0.002, 0.5) if density == "both" else np.full(90, density)
    X = rng.standard_normal((700, 90)) * (rng.random((700, 90)) < chance)
    Z = rng.standard_normal((700, 3))
    frequent = (X != 0).mean(axis=0) > products.FREQUENT
    np.testing.assert_array_equal(frequent, chance > products.FREQUENT)
    expected = {solver: solver.prepare(X, Z)(1.0).Psi for solver in CLOSED}
    monkeypatch.setattr(products, "_ROW_BLOCK", 64)
    for solver in CLOSED:
        for features in (X, scipy.sparse.csr_array(X)):
            assert laws.relative_error(solver.prepare(features, Z)(1.0).Psi, expected[solver]) <= 1e-12


# ------------------------------------------------------------------------------------------------------------ sums


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 39), st.integers(0, 1000), st.booleans())
def test_sums_add_and_subtract(cut: int, seed: int, sparse: bool) -> None:
    X, Z = worlds.regression(40, 12, seed=seed)
    features = scipy.sparse.csr_array(X) if sparse else X
    whole, first, rest = Sums.of(features, Z), Sums.of(features[:cut], Z[:cut]), Sums.of(features[cut:], Z[cut:])
    for found, expected in ((first + rest, whole), (whole - first, rest)):
        assert found.n_rows == expected.n_rows
        np.testing.assert_allclose(found.gram, expected.gram, atol=1e-10)
        np.testing.assert_allclose(found.moment, expected.moment, atol=1e-10)
        assert laws.relative_error(found.solve(0.5), expected.solve(0.5)) <= 1e-9
    assert laws.relative_error((first + rest).solve(0.5), Primal().prepare(X, Z)(0.5).Psi) <= 1e-9


def test_sums_are_float64_to_the_last_digit_for_float32_features() -> None:
    X, Z = (array.astype(np.float32) for array in worlds.regression(5000, 20))
    X64, Z64 = X.astype(np.float64), Z.astype(np.float64)
    for features in (X, scipy.sparse.csr_array(X)):
        sums = Sums.of(features, Z)
        np.testing.assert_allclose(sums.gram, X64.T @ X64, atol=1e-9)
        np.testing.assert_allclose(sums.moment, X64.T @ Z64, atol=1e-9)


# ------------------------------------------------------------------------------------------- products, convergence


@pytest.mark.parametrize("n", [1, 3, 600])
def test_predictions_are_the_product_whatever_the_types(n: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 200)) * (rng.random((n, 200)) < 0.1)
    Psi = rng.standard_normal((200, 6)).astype(np.float32)
    expected = X @ Psi.astype(np.float64)
    for features in (X, scipy.sparse.csr_array(X), scipy.sparse.csr_matrix(X)):
        for n_jobs in (1, 2):
            found = predict_embedding(features, Psi, n_jobs)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, expected, atol=1e-12)
    assert predict_embedding(X.astype(np.float32), Psi).dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", [ConjugateGradient(max_steps=2), GradientDescent(max_steps=2)], ids=repr)
def test_a_solver_that_does_not_converge_says_so(solver: RidgeSolver, dtype: Any) -> None:
    X, Z = (array.astype(dtype) for array in worlds.regression(60, 40))
    solve = solver.prepare(X, Z)
    with pytest.warns(
        ConvergenceWarning, match=rf"solver='{solver.word}' stopped after 2 steps at a relative residual"
    ):
        solution = solve(1e-3)
    assert not solution.converged
    assert solution.steps == 2
    assert solution.residual == pytest.approx(true_residual(X, Z, 1e-3, solution.Psi), rel=1e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ITERATIVE, ids=repr)
def test_a_solver_that_converges_reports_the_residual_that_it_has(solver: Any, dtype: Any) -> None:
    X, Z = (array.astype(dtype) for array in worlds.regression(60, 40))
    solution = solver.prepare(X, Z)(0.5)
    assert solution.converged
    assert 0 < solution.steps <= solver.max_steps
    assert solution.residual > 0
    assert true_residual(X, Z, 0.5, solution.Psi) <= 3 * max(solver.tol, 20 * np.finfo(dtype).eps)


def true_residual(X: Any, Z: Any, alpha: float, Psi: Any) -> float:
    """The largest ‖b − A psi‖/‖b‖ over targets, in float64."""
    X, Z, Psi = (array.astype(np.float64) for array in (X, Z, Psi))
    residual = X.T @ Z - X.T @ (X @ Psi) - alpha * Psi
    return float((np.linalg.norm(residual, axis=0) / np.linalg.norm(X.T @ Z, axis=0)).max())


def test_targets_that_are_zero_or_orthogonal_do_not_stop_the_others() -> None:
    X, Z = worlds.regression(60, 20)
    Z[:, 2] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for solver in SOLVERS:
            Psi = solver.prepare(X, Z)(0.5).Psi
            assert laws.relative_error(Psi, laws.reference_ridge(X, Z, 0.5)) <= bound(solver)
            np.testing.assert_array_equal(Psi[:, 2], 0)


# -------------------------------------------------------------------------------------- float32, and sparse targets


FLOAT32 = [Primal(precision="float32"), Dual(precision="float32")]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(200, 30), (30, 200), (1, 5), (5, 1)], ids=str)
@pytest.mark.parametrize("solver", FLOAT32, ids=lambda solver: solver.word)
class TestFactorsInFloat32:
    @pytest.mark.parametrize("alpha", [1.0, 30.0])
    def test_they_are_those_of_float64_to_three_digits(
        self, solver: RidgeSolver, shape: tuple[int, int], dtype: Any, alpha: float
    ) -> None:
        X, Z = (array.astype(dtype) for array in worlds.regression(*shape))
        laws.a_solver_finds_the_ridge_solution(solver, X, Z, alpha, 1e-3)

    @pytest.mark.parametrize("alpha", [1.0, 30.0])
    def test_leaving_out_equals_refitting(
        self, solver: RidgeSolver, shape: tuple[int, int], dtype: Any, alpha: float
    ) -> None:
        X, Z = (array.astype(dtype) for array in worlds.regression(*shape))
        laws.leaving_out_equals_refitting(solver, X, Z, alpha, 2e-3)


@pytest.mark.parametrize("alpha", [0.0, 1e-9])
@pytest.mark.parametrize("shape", [(60, 25), (25, 60)], ids=str)
@pytest.mark.parametrize("solver", FLOAT32, ids=lambda solver: solver.word)
def test_float32_gives_the_solution_of_least_norm_where_many_fit(
    solver: RidgeSolver, shape: tuple[int, int], alpha: float
) -> None:
    X, Z = (array.astype(np.float32) for array in deficient(*shape))
    expected = laws.reference_ridge(X, Z, alpha)
    for features in (X, scipy.sparse.csr_array(X)):
        solution = solver.prepare(features, Z)(alpha)
        assert np.isfinite(solution.Psi).all()
        assert laws.relative_error(solution.Psi, expected) <= 2e-2
        assert np.isfinite(solution.left_out(np.arange(shape[0]))).all()


@pytest.mark.parametrize("solver", FLOAT32, ids=lambda solver: solver.word)
def test_float32_wants_half_the_memory(solver: Any) -> None:
    whole = type(solver)().memory(1000, 2000, 30)
    half = solver.memory(1000, 2000, 30)
    assert half[0] == whole[0] / 2
    assert half[1] == whole[1]


def test_other_precisions_are_refused() -> None:
    for wrong in ("float16", "double", "", None, 32, np.float32):
        with pytest.raises(ParameterError, match=r"`precision` must be 'float64' or 'float32'; got "):
            Primal(precision=wrong)  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match=r"`precision` must be 'float64' or 'float32'; got "):
            Dual(precision=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(80, 30), (30, 80)], ids=str)
@pytest.mark.parametrize("solver", [*SOLVERS, *FLOAT32], ids=repr)
def test_sparse_targets_give_what_dense_ones_give(solver: RidgeSolver, shape: tuple[int, int], dtype: Any) -> None:
    X, _ = worlds.regression(*shape)
    X = X.astype(dtype)
    Y = worlds.zipf_labels(shape[0], 15)
    rows = np.arange(0, shape[0], 3)
    exact = 1e-9 if solver not in FLOAT32 else 1e-4
    for features in (X, scipy.sparse.csr_array(X)):
        dense = solver.prepare(features, Y.toarray())(1.0)
        sparse = solver.prepare(features, Y)(1.0)
        assert isinstance(sparse.Psi, np.ndarray)
        assert sparse.Psi.dtype == dense.Psi.dtype
        assert laws.relative_error(sparse.Psi, dense.Psi) <= (exact if solver.exact else bound(solver, dtype))
        assert isinstance(sparse.left_out(rows), np.ndarray)
        np.testing.assert_allclose(
            sparse.left_out(rows), dense.left_out(rows), atol=1e-3 if not solver.exact else exact
        )
        assert laws.relative_error(sparse.Psi, laws.reference_ridge(X, Y.toarray(), 1.0)) <= 1e-3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_of_sparse_targets_are_those_of_dense_ones(dtype: Any) -> None:
    X, _ = worlds.regression(50, 12)
    Y = worlds.zipf_labels(50, 15)
    for features in (X, scipy.sparse.csr_array(X)):
        dense, sparse = (Sums.of(features, Z, dtype=dtype) for Z in (Y.toarray(), Y))
        assert sparse.moment.dtype == sparse.gram.dtype == dtype
        np.testing.assert_allclose(sparse.moment, dense.moment, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(sparse.gram, dense.gram)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(80, 30), (30, 80)], ids=str)
@pytest.mark.parametrize("solver", [*SOLVERS, *FLOAT32], ids=repr)
def test_targets_kept_as_factors_give_what_their_product_gives(
    solver: RidgeSolver, shape: tuple[int, int], dtype: Any
) -> None:
    X = worlds.regression(*shape)[0].astype(dtype)
    rows = np.arange(0, shape[0], 3)
    for n_labels in (4, 3000):  # labels are summed before they are embedded, or after
        Y = worlds.zipf_labels(shape[0], n_labels)
        Phi = np.random.default_rng(0).standard_normal((n_labels, 5)).astype(np.float32)
        targets = FactoredEmbedding(Y, Phi.__getitem__, 5)
        for features in (X, scipy.sparse.csr_array(X)):
            found, expected = (solver.prepare(features, Z)(1.0) for Z in (targets, targets.toarray()))
            assert found.Psi.dtype == expected.Psi.dtype
            assert laws.relative_error(found.Psi, expected.Psi) <= (1e-6 if solver in CLOSED else 1e-3)
            np.testing.assert_allclose(found.left_out(rows), expected.left_out(rows), atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("singular", [False, True])
def test_leverage_is_the_diagonal_of_the_hat_matrix_and_its_columns_are_solutions(
    singular: bool, alpha: float, dtype: Any
) -> None:
    X = (deficient(60, 25) if singular else worlds.regression(60, 25))[0]
    factor = Factor((X.T @ X).astype(dtype), alpha)
    assert factor.singular == (singular and not alpha)
    inverse = np.linalg.pinv(X.T @ X + alpha * np.eye(25), rcond=1e-6, hermitian=True)
    h, k_of = factor.leverage(X.astype(dtype))
    exact = 1e-9 if dtype == np.float64 else 2e-3
    np.testing.assert_allclose(h, np.einsum("ij,jk,ik->i", X, inverse, X), atol=exact)
    for asked in (np.arange(60) % 7 == 0, np.zeros(60, bool), np.ones(60, bool)):
        np.testing.assert_allclose(k_of(asked), inverse @ X[asked].T, atol=exact)
        np.testing.assert_allclose(k_of(asked), factor.solve(X[asked].T.astype(dtype)), atol=exact)


@pytest.mark.parametrize("once", [False, True])
def test_float32_keeps_small_directions_that_a_large_common_one_hides(once: bool) -> None:
    """What all rows share makes the condition too bad for float32, but the ridge is far above its rounding error."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 60)).astype(np.float32) / 30 + 3
    Psi = rng.standard_normal((60, 4)).astype(np.float32)
    Z = X @ Psi
    expected = Primal().prepare(X.astype(np.float64), Z.astype(np.float64))(0.1)
    found = Primal("float32").prepare(X, Z, once=once)(0.1)
    assert laws.relative_error(found.Psi, expected.Psi) <= 0.02
    rows = np.arange(0, 4000, 400)
    np.testing.assert_allclose(found.left_out(rows), expected.left_out(rows), atol=0.02)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_solved_once_is_solved_again(dtype: str) -> None:
    for X, Z in (worlds.regression(60, 25)[:2], deficient(60, 25)[:2]):
        for alpha in (0.0, 0.5):
            once = Primal(dtype).prepare(X, Z, once=True)(alpha)
            again = Primal(dtype).prepare(X, Z)(alpha)
            np.testing.assert_allclose(once.Psi, again.Psi, atol=1e-12)


def test_only_rows_that_are_alone_in_their_direction_ask_for_a_column() -> None:
    x, z, Psi = np.eye(3), np.array([[1.0], [2.0], [3.0]]), np.array([[0.5], [1.0], [3.0]])
    asked: list[list[bool]] = []

    def k_of(rows: Any) -> Any:
        asked.append(rows.tolist())
        return np.eye(3)[:, rows]

    found = predicted_without(x, z, Psi, np.array([0.5, 0.5, 1.0]), k_of, 1e-12)
    np.testing.assert_allclose(found, [[0.0], [0.0], [0.0]])
    assert asked == [[False, False, True]]
    predicted_without(x, z, Psi, np.full(3, 0.5), k_of, 1e-12)
    assert len(asked) == 1


# ---------------------------------------------------------------------------------------------- the rule, the limits


@pytest.mark.parametrize(
    ("n", "d", "solver", "reason"),
    [
        (12_000, 12_000, Primal(), "d = 12,000 ≤ n = 12,000 and ≤ 12,000: factorise XᵀX"),
        (10**9, 12_000, Primal(), "d = 12,000 ≤ n = 1,000,000,000 and ≤ 12,000: factorise XᵀX"),
        (5, 5, Primal(), "d = 5 ≤ n = 5 and ≤ 12,000: factorise XᵀX"),
        (4, 5, Dual(), "n = 4 < d = 5 and ≤ 12,000: factorise XXᵀ"),
        (12_000, 12_001, Dual(), "n = 12,000 < d = 12,001 and ≤ 12,000: factorise XXᵀ"),
        (12_001, 12_001, ConjugateGradient(), "n = 12,001 and d = 12,001 are both above 12,000: conjugate gradients"),
    ],
)
def test_the_rule_of_auto_goes_by_size_and_says_why(n: int, d: int, solver: RidgeSolver, reason: str) -> None:
    assert choose_solver(n, d) == (solver, reason)
    assert resolve_solver("auto", n, d) == (solver, reason)


def test_words_name_solvers_and_others_are_refused() -> None:
    for word, solver in (
        ("primal", Primal()),
        ("dual", Dual()),
        ("cg", ConjugateGradient()),
        ("gd", GradientDescent()),
    ):
        assert resolve_solver(word, 1, 1) == (solver, "given")
        assert resolve_solver(solver, 1, 1) == (solver, "given")
    for wrong in ("lsqr", None, 3, Primal):
        with pytest.raises(ParameterError, match="`solver` must be one of auto, primal, dual, cg, gd or a Rid"):
            resolve_solver(wrong, 1, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", [ConjugateGradient, GradientDescent])
def test_options_of_solvers_are_checked(family: Any) -> None:
    for wrong in (0, -1e-3, float("nan"), "tight", None):
        with pytest.raises(ParameterError, match="`tol` must be a number > 0; got"):
            family(tol=wrong)
    for wrong in (0, -1, 2.5, "many", True):
        with pytest.raises(ParameterError, match="`max_steps` must be an integer ≥ 1; got"):
            family(max_steps=wrong)


@pytest.mark.parametrize(
    ("solver", "shape", "sentence"),
    [
        (
            Primal(),
            (3, 30_000_000),
            r"^XᵀX for d = 30,000,000 would need 14,400,0\d\d GB and .* are free; use solver='cg'\.$",
        ),
        (
            Dual(),
            (30_000_000, 3),
            r"^XXᵀ for n = 30,000,000 would need 14,400,0\d\d GB and .* are free; use solver='cg'\.$",
        ),
        (
            ConjugateGradient(),
            (3, 2**40),
            r"^solver='cg' for d = 1,099,511,627,776 and 1 targets would need 43,980 GB .*; use fewer dimensions",
        ),
    ],
    ids=["primal", "dual", "cg"],
)
def test_a_problem_too_large_is_refused_before_anything_is_allocated(
    solver: RidgeSolver, shape: tuple[int, int], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = scipy.sparse.coo_array(([1.0], ([0], [0])), shape=shape)
    Z = np.broadcast_to(np.float32(0), (shape[0], 1))

    def forbidden(*arguments: Any) -> Any:
        raise AssertionError("the solver began its work")

    monkeypatch.setattr(type(solver), "_prepare", forbidden)
    with pytest.raises(MemoryLimitError, match=sentence):
        solver.prepare(X, Z)


# --------------------------------------------------------------------------------------- targets in blocks on threads


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ITERATIVE, ids=lambda solver: solver.word)
def test_many_targets_of_sparse_features_are_solved_as_each_alone_on_any_number_of_threads(
    solver: RidgeSolver, dtype: Any
) -> None:
    X, _ = worlds.regression(90, 40)
    X[np.abs(X) < 0.7] = 0
    X[:, 5] = 0  # a feature that no row has
    X, Z = X.astype(dtype), np.random.default_rng(3).standard_normal((90, 70)).astype(dtype)
    sparse = scipy.sparse.csr_array(X)
    one = solver.prepare(sparse, Z, 1)(1.0)
    assert one.converged
    assert one.Psi.dtype == dtype
    assert laws.relative_error(one.Psi, laws.reference_ridge(X, Z, 1.0)) <= bound(solver, dtype)
    assert not one.Psi[5].any()
    for n_jobs in (2, 3):
        several = solver.prepare(sparse, Z, n_jobs)(1.0)
        np.testing.assert_array_equal(several.Psi, one.Psi)
        assert (several.steps, several.residual) == (one.steps, one.residual)
        np.testing.assert_array_equal(several.left_out(np.arange(5)), one.left_out(np.arange(5)))


@pytest.mark.parametrize("solver", ITERATIVE, ids=lambda solver: solver.word)
def test_sparse_features_without_a_nonzero_and_no_targets_at_all_have_a_solution(solver: RidgeSolver) -> None:
    empty = scipy.sparse.csr_array((6, 4))
    np.testing.assert_array_equal(solver.prepare(empty, np.ones((6, 3)))(1.0).Psi, np.zeros((4, 3)))
    assert solver.prepare(scipy.sparse.csr_array(np.eye(4)), np.ones((4, 0)))(1.0).Psi.shape == (4, 0)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.word)
def test_leaving_out_all_rows_is_a_fit_without_each_or_without_its_half(solver: RidgeSolver) -> None:
    X, Z = worlds.regression(60, 20)
    found = solver.left_out(X, Z, 2.0, 3, None)
    half = np.random.default_rng(3).permutation(60) % 2 == 0
    for row in (0, 17, 59):
        seen = np.arange(60) != row if solver.exact else half != half[row]
        Psi = np.linalg.solve(X[seen].T @ X[seen] + 2.0 * np.eye(20), X[seen].T @ Z[seen])
        np.testing.assert_allclose(found[row], X[row] @ Psi, atol=1e-3)
