"""Other losses for the regression, an open question of the paper: all on one ridge factorisation.

    min  J(Psi, b) = Σ_il loss(f_il, y_il) + (alpha/2) ‖Psi‖²,      f = X Psi + b,  X (n, d), Y (n, L), b not penalised

With loss = ½(f − y)² this is ridge regression with scikit-learn's alpha. A loss whose second derivative is at most κ
lies below the parabola of that curvature that touches it at the current score f,

    loss(g, y) ≤ (κ/2)(g − t)² + constant,      t = f − loss'(f, y)/κ,

so a ridge fit of the moved targets t, with alpha/κ, never raises J: one factorisation serves all steps and labels.
Nesterov's momentum, kept for each label and dropped where J would rise, reaches the minimum in a fraction of the steps.
"""
# ruff: noqa: D102 (the methods of a loss are documented in `Loss`, the formulas in each class)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import expit, logit

from ripml.base.errors import DataError, ParameterError, check_count, check_positive
from ripml.base.parallel import blocks, map_blocks, require_memory

__all__ = ["Huber", "Logistic", "Loss", "LossSolution", "SquaredHinge", "Squares", "fit_loss"]

Floats = NDArray[np.floating[Any]]
Fit = Callable[[Floats], tuple[Floats, Floats, Floats]]  # T (n, l) ↦ weights, intercepts (l,), T − scores (n, l)
_BLOCK_BYTES = 1 << 27  # for about ten dense (n, l) arrays of a block of l ≤ 128 labels; one block per thread


@dataclass(frozen=True)
class Loss(ABC):
    """loss(f, y), convex in f, with second derivative ≤ `curvature` = κ. In the formulas below s = 2y − 1.

    >>> [float(loss().moved(np.array(0.0), np.array(1.0))) for loss in (Squares, Huber, Logistic, SquaredHinge)]
    [1.0, 0.5, 2.0, 1.0]
    """

    curvature: ClassVar[float] = 1.0
    binary: ClassVar[bool] = False  # whether Y must be 0 and 1

    @abstractmethod
    def value(self, scores: Floats, Y: Floats) -> Floats:
        """loss(f, y), cell by cell."""

    @abstractmethod
    def moved(self, scores: Floats, Y: Floats) -> Floats:
        """t = f − loss'(f, y)/κ, the targets of the next ridge fit."""

    def start(self, mean: Floats) -> Floats:
        """The intercepts before the first step, from the means of the labels."""
        return mean


class Squares(Loss):
    """½(f − y)²; t = y, so that a single step is enough: ridge regression."""

    def value(self, scores: Floats, Y: Floats) -> Floats:
        return 0.5 * (scores - Y) ** 2

    def moved(self, scores: Floats, Y: Floats) -> Floats:
        return Y


@dataclass(frozen=True)
class Huber(Loss):
    """q(r − q/2) with r = |f − y|, q = min(r, delta); t = f + clip(y − f, ±delta): outliers pull no harder."""

    delta: float = 0.5

    def __post_init__(self) -> None:
        check_positive("delta", self.delta, otherwise="")

    def value(self, scores: Floats, Y: Floats) -> Floats:
        q = np.minimum(np.abs(scores - Y), self.delta)
        return q * (np.abs(scores - Y) - 0.5 * q)

    def moved(self, scores: Floats, Y: Floats) -> Floats:
        return scores + np.clip(Y - scores, -self.delta, self.delta)


class Logistic(Loss):
    """log(1 + exp(−sf)), κ = ¼; t = f + 4(y − σ(f)). alpha is 1/C of scikit-learn's LogisticRegression."""

    curvature: ClassVar[float] = 0.25
    binary: ClassVar[bool] = True

    def value(self, scores: Floats, Y: Floats) -> Floats:
        return np.logaddexp(0, (1 - 2 * Y) * scores)

    def moved(self, scores: Floats, Y: Floats) -> Floats:
        return np.asarray(scores + 4 * (Y - expit(scores)))

    def start(self, mean: Floats) -> Floats:
        # Starting from 0, the log-odds of a rare label are about 1/(4 mean) steps away. They are infinite for a label
        # that no row carries, hence the limits.
        return np.asarray(logit(np.clip(mean, 1e-4, 1 - 1e-4)))


class SquaredHinge(Loss):
    """½ max(0, 1 − sf)²; t = s where sf < 1, else f. alpha is 1/(2C) of scikit-learn's LinearSVC."""

    binary: ClassVar[bool] = True

    def value(self, scores: Floats, Y: Floats) -> Floats:
        return 0.5 * np.maximum(0, 1 + (1 - 2 * Y) * scores) ** 2

    def moved(self, scores: Floats, Y: Floats) -> Floats:
        return np.where((2 * Y - 1) * scores < 1, 2 * Y - 1, scores)


@dataclass(frozen=True)
class LossSolution:
    """The minimum of J, or the last step towards it; a path that was cut short is a usable model too."""

    weights: Floats  # Psi (d, L); with a kernel the dual coefficients C (n, L)
    intercept: Floats  # b (L,)
    objective: NDArray[np.float64]  # J before the first step and after each step, (steps + 1,); it never rises
    steps: int  # the largest number of steps that a label took
    converged: bool  # in the last step each label's targets moved by ≤ tol of their length, or J only by rounding

    def scores(self, X: Any) -> Floats:
        """X Psi + b, (r, L) dense; with a kernel X holds K(new row, training row), (r, n)."""
        return np.asarray(X @ self.weights) + self.intercept


def fit_loss(
    X: Any,
    Y: Any,
    loss: Loss = Squares(),  # noqa: B008 (a frozen value)
    alpha: float = 1.0,
    *,
    kernel: bool = False,
    intercept: bool = True,
    steps: int = 20,
    tol: float = 1e-4,
    n_jobs: int | None = None,
) -> LossSolution:
    """Psi, b = argmin Σ loss(X Psi + b, Y) + (alpha/2) ‖Psi‖², for X (n, d) and Y (n, L), each dense or sparse.

    With `kernel`, X is the kernel K (n, n) of the training rows: C, b = argmin Σ loss(KC + b, Y) + (alpha/2) tr CᵀKC.
    Factorises XᵀX where d < n, else XXᵀ or K, in the type of X; of Y only blocks of labels are ever dense.

    >>> X, Y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([[0], [0], [1], [1]])
    >>> fit_loss(X, Y, SquaredHinge(), alpha=0.5).scores(X).ravel().round(2)
    array([-1.5, -0.5,  0.5,  1.5])
    """
    if not isinstance(loss, Loss):
        raise ParameterError(f"`loss` must be a Loss such as Huber(delta=0.5); got {loss!r}.")
    check_positive("alpha", alpha, otherwise="")
    check_positive("tol", tol, otherwise="")
    check_count("steps", steps)
    X, Y = (M if scipy.sparse.issparse(M) else np.asarray(M) for M in (X, Y))
    if X.ndim != 2 or Y.ndim != 2 or X.shape[0] != Y.shape[0] or 0 in Y.shape or (kernel and X.shape[0] != X.shape[1]):
        raise DataError(f"X (n, d), (n, n) for a kernel, and Y (n, L) must agree; got {X.shape} and {Y.shape}.")
    if loss.binary and not np.isin(Y.data if scipy.sparse.issparse(Y) else Y, (0, 1)).all():
        raise DataError(f"Y must hold only 0 and 1 for the loss {type(loss).__name__}.")
    X = X if X.dtype == np.float32 else X.astype(np.float64)
    XT, Y = (M.tocsr() if scipy.sparse.issparse(M) else M for M in (X.T, Y.T))
    (n, d), n_labels, side, dtype, ridge = X.shape, Y.shape[0], min(X.shape), X.dtype, alpha / loss.curvature
    require_memory(dtype.itemsize * (2 * side**2 + d * n_labels), f"A factor of side {side:,}", "use fewer rows")
    # One factorisation for all labels and steps: XᵀX (primal), or XXᵀ or K (dual).
    primal = d < n
    factor = _factor(X.copy() if kernel else XT @ X if primal else X @ XT, ridge)

    def without_intercept(T: Floats) -> tuple[Floats, Floats]:
        W = scipy.linalg.cho_solve(factor, XT @ T if primal else T, check_finite=False)
        return W, T - X @ W if primal else ridge * W

    # Weights and residuals are linear in T, so the b with residuals of mean 0 follows from those of a target of ones.
    W_ones, rest_ones = without_intercept(np.ones((n, 1), dtype))

    def fit(T: Floats) -> tuple[Floats, Floats, Floats]:
        W, rest = without_intercept(T)
        b = intercept * rest.sum(axis=0) / rest_ones.sum()
        return W - W_ones * b, b, rest - rest_ones * b

    weights, b, J = np.empty((d, n_labels), dtype), np.empty(n_labels, dtype), np.empty((steps + 1, n_labels))

    def fill(labels: slice) -> tuple[int, bool]:
        block = (Y[labels].toarray() if scipy.sparse.issparse(Y) else Y[labels]).T.astype(dtype)
        b[labels] = intercept * loss.start(block.mean(axis=0))
        W = np.zeros((side, block.shape[1]), dtype)
        end = _descend(fit, loss, block, W, b[labels], J[:, labels], tol)
        weights[:, labels] = W if kernel or primal else XT @ W
        return end

    ends = map_blocks(fill, blocks(n_labels, min(128, max(1, _BLOCK_BYTES // (80 * max(n, d))))), n_jobs)
    n_steps = max(end[0] for end in ends)
    return LossSolution(weights, b, J[: n_steps + 1].sum(axis=1), n_steps, all(end[1] for end in ends))


def _descend(fit: Fit, loss: Loss, Y: Floats, W: Floats, b: Floats, J: Floats, tol: float) -> tuple[int, bool]:
    """Fill W, b and J (steps + 1, l) for labels Y (n, l), from W = 0; return the steps and whether all converged."""
    F = before = np.tile(b, (len(Y), 1))
    J[:] = loss.value(F, Y).sum(axis=0, dtype=np.float64)
    active, age = np.arange(len(b)), np.zeros(len(b), int)  # labels that still move; their steps since a restart
    for step in range(1, len(J)):
        T = loss.moved(F + (age / (age + 3)).astype(Y.dtype) * (F - before), Y)
        new_W, new_b, rest = fit(T)
        G = T - rest
        # Psi = (κ/alpha) Xᵀrest, hence alpha‖Psi‖² = κ rest·(X Psi), in primal and dual alike.
        new_J = (loss.value(G, Y) + 0.5 * loss.curvature * rest * (G - new_b)).sum(axis=0, dtype=np.float64)
        better = new_J <= J[step, active]
        moved = active[better]
        W[:, moved], b[moved], J[step:, moved] = new_W[:, better], new_b[better], new_J[better]
        # The gradient at G is κXᵀ(T − moved(G)). Without momentum (age 0) only rounding can keep J from falling.
        still = np.linalg.norm(loss.moved(G, Y) - T, axis=0) <= tol * np.linalg.norm(T, axis=0)
        go = ~np.where(better, still, age == 0)
        if not go.any():
            return step, True
        F, before, age = np.where(better, G, F)[:, go], F[:, go], np.where(better, age + 1, 0)[go]
        Y, active = Y[:, go], active[go]
    return step, False


def _factor(A: Any, ridge: float) -> Any:
    A = A.toarray() if scipy.sparse.issparse(A) else A
    if not np.isfinite(A).all():
        raise DataError("X must hold finite numbers with finite squares.")
    A.flat[:: len(A) + 1] += ridge
    try:
        return scipy.linalg.cho_factor(A.T, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise ParameterError(f"`alpha` is below the rounding of {A.dtype}; raise it or pass X as float64.") from None
