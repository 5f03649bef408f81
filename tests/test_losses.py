"""Losses: every loss reaches its minimum, and never goes up, for every shape, type, kernel and block size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import worlds
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from ripml.base.errors import DataError, MemoryLimitError, ParameterError
from ripml.lab import losses
from ripml.lab.losses import Huber, Logistic, Loss, LossSolution, SquaredHinge, Squares, fit_loss

LOSSES: list[Loss] = [Squares(), Huber(0.3), Logistic(), SquaredHinge()]
SHAPES = [(60, 12), (25, 40), (20, 20)]

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
with_and_without_intercept = pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "no intercept"])


def labelled(n: int, d: int, n_labels: int = 5, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features (n, d) and labels (n, L) of 0 and 1 that follow them with noise, from common to rare."""
    X, scores = worlds.regression(n, d, n_labels, seed)
    noise = np.random.default_rng(seed).standard_normal(scores.shape)
    scores = scores / scores.std(axis=0) + noise
    return X, (scores > np.linspace(0, 1.5, n_labels)).astype(float)


def objective(loss: Loss, X: Any, Y: Any, alpha: float, Psi: Any, b: Any) -> float:
    return float(loss.value(X @ Psi + b, Y).sum() + 0.5 * alpha * np.sum(Psi**2))


def exactly(*arguments: Any, **options: Any) -> LossSolution:
    """The solution after as many steps as it takes."""
    solution = fit_loss(*arguments, steps=5000, tol=1e-11, **options)
    assert solution.converged
    return solution


# ------------------------------------------------------------------------------------------------------- one loss


@every_loss
def test_targets_move_against_the_slope(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    scores, Y = 2 * rng.standard_normal((50, 4)), rng.integers(0, 2, (50, 4)).astype(float)
    slope = (loss.value(scores + 1e-6, Y) - loss.value(scores - 1e-6, Y)) / 2e-6
    np.testing.assert_allclose(loss.moved(scores, Y), scores - slope / loss.curvature, atol=1e-5)


@every_loss
def test_the_parabola_through_the_moved_target_lies_above_the_loss(loss: Loss) -> None:
    f, g = np.meshgrid(np.linspace(-4, 4, 81), np.linspace(-4, 4, 81))
    for y in (0.0, 1.0):
        Y = np.full(f.shape, y)
        t = loss.moved(f, Y)
        above = loss.value(f, Y) + 0.5 * loss.curvature * ((g - t) ** 2 - (f - t) ** 2)
        assert (loss.value(g, Y) <= above + 1e-12).all()


@pytest.mark.parametrize("sign", [-1, 1])
def test_huge_scores_neither_overflow_nor_become_nan(sign: int) -> None:
    Y = np.array([0.0, 1.0])
    for loss in LOSSES:
        scores = np.full(2, sign * 1e6)
        assert np.isfinite(loss.value(scores, Y)).all()
        assert np.isfinite(loss.moved(scores, Y)).all()


# ------------------------------------------------------------------------------------------------ known solutions


@with_and_without_intercept
@every_shape
@pytest.mark.parametrize("alpha", [0.1, 1, 30])
def test_squares_are_the_ridge_of_scikit_learn_in_one_step(
    shape: tuple[int, int], alpha: float, intercept: bool
) -> None:
    X, Y = worlds.regression(*shape)
    expected = Ridge(alpha=alpha, fit_intercept=intercept, solver="svd").fit(X, Y)
    found = fit_loss(X, Y, Squares(), alpha, intercept=intercept)
    np.testing.assert_allclose(found.weights, expected.coef_.T, atol=1e-8)
    np.testing.assert_allclose(found.intercept, expected.intercept_, atol=1e-8)
    assert found.converged
    assert found.steps == 1


@with_and_without_intercept
@every_shape
def test_the_logistic_loss_is_that_of_scikit_learn(shape: tuple[int, int], intercept: bool) -> None:
    X, Y = labelled(*shape)
    found = exactly(X, Y, Logistic(), 0.7, intercept=intercept)
    for label, y in enumerate(Y.T):
        expected = LogisticRegression(C=1 / 0.7, fit_intercept=intercept, tol=1e-10, max_iter=10_000).fit(X, y)
        np.testing.assert_allclose(found.weights[:, label], expected.coef_[0], atol=1e-5)
        np.testing.assert_allclose(found.intercept[label], expected.intercept_.sum(), atol=1e-5)


@every_shape
def test_the_squared_hinge_is_that_of_scikit_learn(shape: tuple[int, int]) -> None:
    X, Y = labelled(*shape)
    found = exactly(X, Y, SquaredHinge(), 0.7, intercept=False)
    for label, y in enumerate(Y.T):
        svc = LinearSVC(C=1 / 1.4, fit_intercept=False, dual=False, tol=1e-10, max_iter=10_000).fit(X, y)
        np.testing.assert_allclose(found.weights[:, label], svc.coef_[0], atol=1e-5)


@every_shape
def test_huber_without_a_bound_is_squares(shape: tuple[int, int]) -> None:
    X, Y = worlds.regression(*shape)
    squares, huber = fit_loss(X, Y, Squares(), 0.5), fit_loss(X, Y, Huber(delta=1e9), 0.5)
    np.testing.assert_allclose(huber.weights, squares.weights, atol=1e-10)
    assert huber.objective[-1] == pytest.approx(squares.objective[-1])


def test_huber_ignores_outliers_that_squares_follow() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    planted = np.array([[1.0], [-2.0], [0.5]])
    Y = X @ planted
    Y[:5] += 100
    assert np.abs(exactly(X, Y, Huber(0.01), 1e-3).weights - planted).max() < 0.01
    assert np.abs(fit_loss(X, Y, Squares(), 1e-3).weights - planted).max() > 0.5


# -------------------------------------------------------------------------------------------------------- descent


@every_loss
@every_shape
@with_and_without_intercept
class TestEveryLoss:
    def test_the_objective_never_rises_and_is_what_it_says(
        self, loss: Loss, shape: tuple[int, int], intercept: bool
    ) -> None:
        X, Y = labelled(*shape)
        for alpha in (1e-3, 1.0):
            found = fit_loss(X, Y, loss, alpha, intercept=intercept, steps=60, tol=1e-9)
            assert (np.diff(found.objective) <= 1e-12 * found.objective[0]).all()
            assert len(found.objective) == found.steps + 1
            expected = objective(loss, X, Y, alpha, found.weights, found.intercept)
            assert found.objective[-1] == pytest.approx(expected, rel=1e-8)

    def test_nothing_near_the_solution_is_lower(self, loss: Loss, shape: tuple[int, int], intercept: bool) -> None:
        X, Y = labelled(*shape)
        found = exactly(X, Y, loss, 0.3, intercept=intercept)
        d = shape[1]

        def at(parameters: Any) -> float:
            Psi, b = np.split(parameters.reshape(d + 1, -1), [d])
            return objective(loss, X, Y, 0.3, Psi, b if intercept else 0)

        solution = np.concatenate([found.weights.ravel(), found.intercept])
        gradient = scipy.optimize.approx_fprime(solution, at, 1e-7)
        assert np.abs(gradient).max() <= 1e-4

    def test_sparse_equals_dense(self, loss: Loss, shape: tuple[int, int], intercept: bool) -> None:
        X, Y = labelled(*shape)
        dense = fit_loss(X, Y, loss, 0.5, intercept=intercept)
        for features in (scipy.sparse.csr_array(X), scipy.sparse.csr_matrix(X)):
            for labels in (Y, scipy.sparse.csr_array(Y), scipy.sparse.csc_matrix(Y), Y.astype(np.int8)):
                found = fit_loss(features, labels, loss, 0.5, intercept=intercept)
                np.testing.assert_allclose(found.weights, dense.weights, atol=1e-9)
                np.testing.assert_allclose(found.scores(features), dense.scores(X), atol=1e-9)

    def test_primal_dual_and_kernel_agree(self, loss: Loss, shape: tuple[int, int], intercept: bool) -> None:
        X, Y = labelled(*shape)
        found = fit_loss(X, Y, loss, 0.5, intercept=intercept)
        kernel = fit_loss(X @ X.T, Y, loss, 0.5, kernel=True, intercept=intercept)
        np.testing.assert_allclose(kernel.objective, found.objective, rtol=1e-9)
        np.testing.assert_allclose(X.T @ kernel.weights, found.weights, atol=1e-8)
        np.testing.assert_allclose(kernel.scores(X[:3] @ X.T), found.scores(X[:3]), atol=1e-8)
        # Columns of zeros make the wide problem that is solved in the dual the same as the narrow one.
        padded = np.hstack([X, np.zeros((len(X), 2 * len(X)))])
        dual = fit_loss(padded, Y, loss, 0.5, intercept=intercept)
        np.testing.assert_allclose(dual.weights[: shape[1]], found.weights, atol=1e-8)

    def test_blocks_of_labels_and_threads_do_not_matter(
        self, loss: Loss, shape: tuple[int, int], intercept: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, Y = labelled(*shape)
        whole = fit_loss(X, Y, loss, 0.5, intercept=intercept)
        monkeypatch.setattr(losses, "_BLOCK_BYTES", 2 * 10 * 8 * max(shape))  # two labels a block
        for n_jobs in (1, 2):
            found = fit_loss(X, Y, loss, 0.5, intercept=intercept, n_jobs=n_jobs)
            np.testing.assert_allclose(found.weights, whole.weights, atol=1e-10)
            np.testing.assert_allclose(found.objective, whole.objective, rtol=1e-12)
            assert (found.steps, found.converged) == (whole.steps, whole.converged)

    def test_float32_stays_float32_and_is_near_float64(
        self, loss: Loss, shape: tuple[int, int], intercept: bool
    ) -> None:
        X, Y = labelled(*shape)
        wide = fit_loss(X, Y, loss, 0.5, intercept=intercept)
        narrow = fit_loss(X.astype(np.float32), Y, loss, 0.5, intercept=intercept)
        assert narrow.weights.dtype == narrow.intercept.dtype == np.float32
        assert (np.diff(narrow.objective) <= 1e-12 * narrow.objective[0]).all()
        np.testing.assert_allclose(narrow.weights, wide.weights, atol=2e-3 * np.abs(wide.weights).max())


@every_loss
def test_a_path_cut_short_says_so_and_is_the_start_of_the_longer_one(loss: Loss) -> None:
    X, Y = labelled(60, 12)
    short, long = fit_loss(X, Y, loss, 0.01, steps=1, tol=1e-9), fit_loss(X, Y, loss, 0.01, steps=9, tol=1e-9)
    assert short.steps == 1
    assert short.converged == (loss == Squares())
    np.testing.assert_allclose(short.objective, long.objective[:2])


@every_loss
def test_labels_do_not_see_each_other(loss: Loss) -> None:
    X, Y = labelled(60, 12)
    whole = fit_loss(X, Y, loss, 0.5)
    for label in range(Y.shape[1]):
        alone = fit_loss(X, Y[:, [label]], loss, 0.5)
        np.testing.assert_allclose(alone.weights[:, 0], whole.weights[:, label], atol=1e-10)
        np.testing.assert_allclose(alone.intercept[0], whole.intercept[label], atol=1e-10)


@every_loss
def test_a_label_of_no_row_or_of_every_row_gives_finite_scores_on_its_side(loss: Loss) -> None:
    X, Y = labelled(60, 12)
    Y[:, 0], Y[:, 1] = 0, 1
    scores = fit_loss(X, Y, loss, 0.5).scores(X)
    assert np.isfinite(scores).all()
    middle = 0 if loss.binary else 0.5
    assert (scores[:, 0] < middle).all()
    assert (scores[:, 1] > middle).all()


@every_loss
def test_the_intercept_is_not_penalised(loss: Loss) -> None:
    X, Y = labelled(60, 12)
    found = exactly(X, Y, loss, 1e7)
    constant = exactly(np.zeros((60, 1)), Y, loss, 1.0)
    np.testing.assert_allclose(found.intercept, constant.intercept, atol=1e-3)


# ---------------------------------------------------------------------------------------------------------- errors


def test_a_loss_is_an_object_and_anything_else_is_refused() -> None:
    X, Y = labelled(10, 3)
    for wrong in ("hinge", None, 3, Huber):
        with pytest.raises(ParameterError, match=r"`loss` must be a Loss such as Huber\(delta=0\.5\); got"):
            fit_loss(X, Y, wrong)  # type: ignore[arg-type]


def test_settings_outside_their_range_are_refused() -> None:
    X, Y = labelled(10, 3)
    for wrong in (0, -1.0, float("nan"), float("inf"), "much", None, True):
        for name in ("alpha", "tol"):
            with pytest.raises(ParameterError, match=f"`{name}` must be a finite number > 0; got"):
                fit_loss(X, Y, **{name: wrong})  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match="`delta` must be a finite number > 0; got"):
            Huber(delta=wrong)  # type: ignore[arg-type]
    for steps in (0, -1, 2.5, "many", True):
        with pytest.raises(ParameterError, match="`steps` must be an integer ≥ 1; got"):
            fit_loss(X, Y, steps=steps)  # type: ignore[arg-type]


def test_shapes_that_do_not_agree_are_refused() -> None:
    X, Y = labelled(10, 3)
    for features, labels, kernel in ((X[:9], Y, False), (X, Y[:, 0], False), (X, Y, True), (X, Y[:, :0], False)):
        with pytest.raises(DataError, match=r"X \(n, d\), \(n, n\) for a kernel, and Y \(n, L\) must agree; got"):
            fit_loss(features, labels, kernel=kernel)


@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge()], ids=lambda loss: type(loss).__name__)
def test_losses_of_a_margin_need_zeros_and_ones(loss: Loss) -> None:
    X, Y = labelled(10, 3)
    for labels in (2 * Y - 1, scipy.sparse.csr_array(2 * Y), np.where(Y == 1, np.nan, 0)):
        with pytest.raises(DataError, match=f"Y must hold only 0 and 1 for the loss {type(loss).__name__}"):
            fit_loss(X, labels, loss)


@pytest.mark.parametrize("shape", [(10, 3), (3, 10)], ids=["primal", "dual"])
def test_features_that_are_not_finite_are_refused(shape: tuple[int, int]) -> None:
    X, Y = labelled(*shape)
    for wrong in (np.nan, np.inf):
        X[0, 0] = wrong
        with np.errstate(invalid="ignore"), pytest.raises(DataError, match="X must hold finite numbers"):
            fit_loss(X, Y)


def test_a_regularisation_lost_in_rounding_is_refused() -> None:
    X = np.ones((50, 4), np.float32) * 1e3
    with pytest.raises(ParameterError, match="`alpha` is below the rounding of float32; raise it or pass X as float64"):
        fit_loss(X, np.ones((50, 1)), alpha=1e-9)


def test_a_factor_too_large_is_refused_before_anything_is_allocated() -> None:
    X = scipy.sparse.csr_array((10**7, 10**7))
    with pytest.raises(MemoryLimitError, match=r"A factor of side 10,000,000 would need 1,6\d\d,\d{3} GB"):
        fit_loss(X, scipy.sparse.csr_array((10**7, 1)))
