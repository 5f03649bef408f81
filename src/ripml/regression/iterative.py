"""Psi by steps that only multiply by X and Xᵀ: conjugate gradients and gradient descent."""

from __future__ import annotations

import numbers
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import by_frequency, dense, product, target_blocks, transposed_product
from ripml.regression.solver import RidgeSolver, Solution, Solve, predicted_without_by

__all__ = ["ConjugateGradient", "GradientDescent"]

Floats = NDArray[np.floating[Any]]

_LINES = 512  # of directions and residuals that are worked on at a time, to find them in the cache again


@dataclass(frozen=True)
class _Iterative(RidgeSolver):
    """Solvers that only multiply by X and Xᵀ; the residual of each target falls below `tol` times its right side."""

    exact: ClassVar[bool] = False

    tol: float = 1e-7
    max_steps: int = 1000

    def __post_init__(self) -> None:
        tol, steps = cast(Any, self.tol), cast(Any, self.max_steps)
        if not isinstance(tol, numbers.Real) or not float(tol) > 0:
            raise ParameterError(f"`tol` must be a number > 0; got {tol!r}.")
        if isinstance(steps, bool) or not isinstance(steps, numbers.Integral) or steps < 1:
            raise ParameterError(f"`max_steps` must be an integer ≥ 1; got {steps!r}.")

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """At most five (d, M) arrays and one (n, M); where X is sparse, two and one, and those of a block a thread."""
        return 8.0 * (5 * d + n) * n_targets, f"solver='{self.word}' for d = {d:,} and {n_targets:,} targets"

    @abstractmethod
    def _iterate(self, system: _System, B: Floats) -> tuple[Floats, int, float]:
        """An approximate solution of (XᵀX + alpha I) V = B, the steps taken and the relative residual."""

    def _solved(self, system: _System, order: Any, B: Floats) -> tuple[Floats, int, float]:
        """The same for targets of any number and features in their own order, which is `order` in the system.

        Targets have nothing to do with each other. Where X is sparse a block of them goes all its steps on one thread,
        so that its directions and residuals stay in the cache and nobody waits for anybody.
        """
        if not scipy.sparse.issparse(system.X):
            return self._iterate(system, B)
        V = np.zeros_like(B)  # and so it stays for features that no row has, which have no place in `order`

        def fill(columns: slice) -> tuple[int, float]:
            V[order, columns], steps, residual = self._iterate(system, B[order, columns])
            return steps, residual

        _ = system.diagonal  # made before threads ask for it
        done = map_blocks(fill, target_blocks(len(order), B.shape[1]), system.n_jobs)
        return V, max((steps for steps, _ in done), default=0), max((worst for _, worst in done), default=0.0)

    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool) -> Solve:
        moment = transposed_product(X, Z, n_jobs).astype(X.dtype, copy=False)
        ordered, order = by_frequency(X) if scipy.sparse.issparse(X) else (X, slice(None))

        def solve(alpha: float) -> Solution:
            system = _System(ordered, alpha, n_jobs)
            Psi, steps, residual = self._solved(system, order, moment)
            converged = residual <= self._tolerance(X.dtype)
            if not converged:
                _warn(
                    f"solver='{self.word}' stopped after {steps} steps at a relative residual of {residual:.1e} ", self
                )

            def left_out(rows: NDArray[np.int64]) -> Floats:
                x = dense(X[rows])
                k, _, accuracy = self._solved(system, order, x.T)
                return predicted_without_by(x, dense(Z[rows]), Psi, k, accuracy)

            return Solution(Psi, self.word, left_out, converged, steps, residual)

        return solve

    def _tolerance(self, dtype: Any) -> float:
        return max(self.tol, 20 * float(np.finfo(dtype).eps))  # float32 cannot reach 1e-7


def _warn(message: str, solver: _Iterative) -> None:
    from sklearn.exceptions import ConvergenceWarning

    remedy = f"(wanted {solver.tol:.1e}); raise `max_steps`, `tol` or `ridge`."
    warnings.warn(message + remedy, ConvergenceWarning, stacklevel=5)


@dataclass(frozen=True)
class _System:
    """V ↦ (XᵀX + alpha I) V without forming XᵀX."""

    X: Any
    alpha: float
    n_jobs: int | None  # of dense X; sparse X is multiplied on the thread that asks

    def __matmul__(self, V: Floats) -> Floats:
        if scipy.sparse.issparse(self.X):
            image = self.X.T @ (self.X @ V)
        else:
            image = transposed_product(self.X, product(self.X, V, self.n_jobs), self.n_jobs)
        result: Floats = image.astype(V.dtype, copy=False)
        for few in blocks(len(V), _LINES):
            result[few] += V.dtype.type(self.alpha) * V[few]
        return result

    @cached_property
    def diagonal(self) -> Floats:
        if scipy.sparse.issparse(self.X):
            squares = np.bincount(self.X.indices, np.square(self.X.data, dtype=np.float64), self.X.shape[1])
        else:
            squares = np.asarray((self.X**2).sum(axis=0))
        return squares + self.alpha


@dataclass(frozen=True)
class ConjugateGradient(_Iterative):
    """Conjugate gradients for many targets at once (in blocks where X is sparse), preconditioned by the diagonal."""

    word: ClassVar[str] = "cg"

    def _iterate(self, system: _System, B: Floats) -> tuple[Floats, int, float]:
        # Without preconditioning the iteration stays in the span of the rows, where the solution is. With it only alpha
        # brings it back, so it is used where alpha weighs enough for that.
        diagonal = system.diagonal
        if system.alpha * len(B) <= self.tol**0.5 * diagonal.sum():
            diagonal = np.ones(len(B))
        scale = (1 / diagonal).astype(B.dtype)[:, None]
        V, R = np.zeros_like(B), B.copy()
        P = scale * R
        target = np.maximum(np.linalg.norm(B, axis=0), np.finfo(B.dtype).tiny)
        fit = _dots(R, P)
        tolerance, steps, residual = self._tolerance(B.dtype), 0, _worst(R, target)
        while steps < self.max_steps and residual > tolerance:
            AP = system @ P
            # A target that is there stays, so that its solution does not depend on what it is solved with.
            step = np.where(_residuals(R, target) > tolerance, _ratio(fit, _dots(P, AP), B.dtype), 0).astype(B.dtype)
            for few in blocks(len(B), _LINES):
                V[few] += step * P[few]
                R[few] -= step * AP[few]
                np.multiply(scale[few], R[few], out=AP[few])  # the preconditioned residual in its place
            previous, fit = fit, _dots(R, AP)
            onward = _ratio(fit, previous, B.dtype)
            for few in blocks(len(B), _LINES):
                P[few] *= onward
                P[few] += AP[few]
            steps, residual = steps + 1, _worst(R, target)
        return V, steps, residual


def _ratio(a: Floats, b: Floats, dtype: Any) -> Floats:
    """a/b, and 0 where b is not above 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0).astype(dtype)


def _dots(A: Floats, B: Floats) -> Floats:
    """⟨a, b⟩ for each column of two matrices, (M,) float64."""
    total = np.zeros(A.shape[1])
    for few in blocks(len(A), _LINES):
        total += np.einsum("ij,ij->j", A[few], B[few])
    return total


@dataclass(frozen=True)
class GradientDescent(_Iterative):
    """Steps of fixed length 1/(λmax + alpha) against the gradient: the paper's alternative to the closed form."""

    word: ClassVar[str] = "gd"

    max_steps: int = 20_000

    def _iterate(self, system: _System, B: Floats) -> tuple[Floats, int, float]:
        step = B.dtype.type(1 / _largest_eigenvalue(system, len(B), B.dtype))
        V, R = np.zeros_like(B), B.copy()
        target = np.maximum(np.linalg.norm(B, axis=0), np.finfo(B.dtype).tiny)
        tolerance, steps, residual = self._tolerance(B.dtype), 0, _worst(R, target)
        while steps < self.max_steps and residual > tolerance:
            # A target that is there stays, so that its solution does not depend on what it is solved with.
            V += np.where(_residuals(R, target) > tolerance, step, 0).astype(B.dtype) * R
            R = B - system @ V
            steps, residual = steps + 1, _worst(R, target)
        return V, steps, residual


def _residuals(R: Floats, target: Floats) -> Floats:
    return np.asarray(np.sqrt(_dots(R, R)) / target)


def _worst(R: Floats, target: Floats) -> float:
    return float(np.max(_residuals(R, target), initial=0))


def _largest_eigenvalue(system: _System, d: int, dtype: Any) -> float:
    """A little above the largest eigenvalue of XᵀX + alpha I: 30 power steps from a fixed start, plus 5 %."""
    v = np.random.default_rng(0).standard_normal((d, 1)).astype(dtype)
    value = 0.0
    for _ in range(30):
        v /= max(float(np.linalg.norm(v)), np.finfo(dtype).tiny)
        v = system @ v
        value = float(np.linalg.norm(v))
    return 1.05 * value if value > 0 else 1.0
