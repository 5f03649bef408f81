"""Psi: ridge regression from features to label embeddings (the paper's training step 2).

    Psi = argmin ‖Z − X Psi‖² + alpha ‖Psi‖²,        X (n, d), Z (n, M), Psi (d, M), M = F·m targets at once

The paper writes ½ Σ‖z − Ψx‖² + λ‖Ψ‖² with Ψ = Psiᵀ, so alpha = 2λ; alpha is scikit-learn's. Four ways to the same Psi:

    primal   (XᵀX + alpha I) Psi = XᵀZ, one d × d factorisation; XᵀX and XᵀZ are sums over rows, see `Sums`
    dual     (XXᵀ + alpha I) C = Z, Psi = XᵀC, one n × n factorisation, for n < d
    cg       conjugate gradients on the primal equations with X kept sparse: all targets at once, Jacobi-preconditioned
    gd       plain gradient descent, as the paper names it

A solver is a value with its options; `prepare(X, Z)` does what does not depend on alpha and returns a function
alpha ↦ `Solution`, so that a path of alphas shares it. A solution also knows the leverage hᵢ of any row, and with it
the exact leave-one-out prediction ẑ₋ᵢ = zᵢ − (zᵢ − ẑᵢ)/(1 − hᵢ).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml.errors import ParameterError
from ripml.resources import blocks, map_blocks, require_memory

__all__ = [
    "ConjugateGradient",
    "Dual",
    "GradientDescent",
    "Primal",
    "RidgeSolver",
    "Solution",
    "Sums",
    "choose_solver",
    "leave_one_out",
    "predict_embedding",
    "resolve_solver",
]

Floats = NDArray[np.floating[Any]]
Solve = Callable[[float], "Solution"]

_ROW_BLOCK = 4096  # rows multiplied at a time; sums over blocks are kept in float64
_CLOSED_FORM_LIMIT = 12_000  # the side of the largest system that `auto` factorises: 2 × 1.2 GB, about 10 s on 2 cores
_DENSE_PRODUCT = 1 / 300  # mean (nnz/d)² past which a dense product of blocks beats the sparse one


@dataclass(frozen=True)
class Solution:
    """Psi (d, M), how it was found, and the leverages that leave-one-out needs."""

    Psi: Floats
    solver: str
    converged: bool = True
    steps: int = 0
    residual: float = 0.0  # the largest ‖b − A psi‖/‖b‖ over targets, for iterative solvers
    # xᵢᵀ(XᵀX + alpha I)⁻¹xᵢ for given rows, each of which must be a row of the training X
    leverage: Callable[[Any], Floats] = field(repr=False, default=lambda rows: np.zeros(rows.shape[0]))


def leave_one_out(solution: Solution, X: Any, Z: Floats, n_jobs: int | None = None) -> Floats:
    """What the regression would predict for each of these training rows had it not seen that row, (n, M).

    A row of leverage 1 is fitted by itself alone, and without it its prediction is undetermined: zero is returned.
    """
    residual = Z - predict_embedding(X, solution.Psi, n_jobs)
    left = 1 - np.clip(solution.leverage(X), 0, 1)
    alone = left < 1e-9
    held_out: Floats = Z - residual / np.where(alone, 1, left)[:, None]
    held_out[alone] = 0
    return held_out


def predict_embedding(X: Any, Psi: Floats, n_jobs: int | None = None) -> Floats:
    """Ẑ = X Psi, (n, M), in blocks of rows on threads."""
    return _product(X, Psi, n_jobs)


# ------------------------------------------------------------------------------------------------------------ sums


@dataclass(frozen=True)
class Sums:
    """All that primal ridge remembers of its rows: XᵀX, XᵀZ and n. They add, and what was added can be subtracted.

    >>> X, Z = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [0.0]])
    >>> (Sums.of(X[:1], Z[:1]) + Sums.of(X[1:], Z[1:])).gram
    array([[10., 14.],
           [14., 20.]])
    """

    gram: NDArray[np.float64]
    moment: NDArray[np.float64]
    n_rows: int

    @classmethod
    def of(cls, X: Any, Z: Floats, n_jobs: int | None = None) -> Sums:
        """The sums of these rows, float64 whatever the type of X."""
        return cls(_gram(X, n_jobs), _transposed_product(X, Z, n_jobs).astype(np.float64, copy=False), X.shape[0])

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.moment + other.moment, self.n_rows + other.n_rows)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.gram - other.gram, self.moment - other.moment, self.n_rows - other.n_rows)

    def solve(self, alpha: float) -> Solution:
        """Psi of the rows summed here."""
        factor = _Factor(self.gram, alpha)
        return Solution(factor.solve(self.moment), "primal", leverage=lambda X: factor.quadratic(_dense(X).T))


def _dense(X: Any) -> Floats:
    dense: Floats = X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)
    return dense


def _gram(X: Any, n_jobs: int | None) -> NDArray[np.float64]:
    """XᵀX, (d, d) float64."""
    d = X.shape[1]
    gram = np.zeros((d, d))
    if scipy.sparse.issparse(X):
        row_lengths = np.diff(X.indptr)
        if np.mean((row_lengths / d) ** 2) < _DENSE_PRODUCT:
            X = X.astype(np.float64, copy=False)
            XT = X.T.tocsr()

            def fill(features: slice) -> None:
                gram[features] = (XT[features] @ X).toarray()

            map_blocks(fill, blocks(d, max(64, d // 32)), n_jobs)
            return gram
    for rows in blocks(X.shape[0], _ROW_BLOCK):
        block = _dense(X[rows])
        gram += block.T @ block  # BLAS on all its threads; NumPy takes the symmetric product here
    return gram


def _product(X: Any, V: Floats, n_jobs: int | None) -> Floats:
    """X V in blocks of rows on threads."""
    out = np.empty((X.shape[0], V.shape[1]), np.result_type(X.dtype, V.dtype))

    def fill(rows: slice) -> None:
        out[rows] = X[rows] @ V

    map_blocks(fill, blocks(X.shape[0], 512), n_jobs)
    return out


def _transposed_product(X: Any, V: Floats, n_jobs: int | None, XT: Any = None) -> Floats:
    """XᵀV; for sparse X in blocks of features on threads, for dense X in blocks of rows summed in float64."""
    if scipy.sparse.issparse(X):
        return _product(X.T.tocsr() if XT is None else XT, V.astype(X.dtype, copy=False), n_jobs)
    total = np.zeros((X.shape[1], V.shape[1]))
    for rows in blocks(X.shape[0], _ROW_BLOCK):
        total += X[rows].T @ V[rows].astype(X.dtype, copy=False)
    return total


class _Factor:
    """(A + alpha I)⁻¹ for symmetric A ≥ 0: Cholesky, or the pseudo-inverse where that is numerically singular."""

    def __init__(self, A: NDArray[np.float64], alpha: float) -> None:
        shifted = A.copy()
        shifted.flat[:: len(A) + 1] += alpha
        scale = np.abs(shifted).sum(axis=0).max()  # ‖A + alpha I‖₁
        lower, failed = scipy.linalg.lapack.dpotrf(shifted.T, lower=True, clean=False, overwrite_a=True)
        if not failed:
            rcond, _ = scipy.linalg.lapack.dpocon(lower, scale, uplo="L")
            failed = rcond < len(A) * np.finfo(np.float64).eps
        self._lower = None if failed else lower
        if failed:
            values, vectors = scipy.linalg.eigh(A, check_finite=False)
            values = values + alpha
            kept = values > len(A) * np.finfo(np.float64).eps * max(np.abs(values).max(initial=0), 1e-300)
            # (A + alpha I)⁺ = H Hᵀ; directions without data get no weight: the solution of least norm
            self._half = vectors[:, kept] / np.sqrt(values[kept])

    def solve(self, B: Floats) -> NDArray[np.float64]:
        """(A + alpha I)⁻¹B."""
        if self._lower is None:
            return np.asarray(self._half @ (self._half.T @ B))
        return np.asarray(scipy.linalg.cho_solve((self._lower, True), B, check_finite=False))

    def quadratic(self, B: Floats) -> NDArray[np.float64]:
        """diag(Bᵀ(A + alpha I)⁻¹B)."""
        if self._lower is None:
            half = self._half.T @ B
        else:
            half = scipy.linalg.solve_triangular(self._lower, B, lower=True, check_finite=False)
        return np.asarray(np.einsum("ij,ij->j", half, half))


# --------------------------------------------------------------------------------------------------------- solvers


@dataclass(frozen=True)
class RidgeSolver(ABC):
    """A way to Psi, with its options."""

    word: ClassVar[str]
    exact: ClassVar[bool] = True  # closed form, with leverages at little cost

    @abstractmethod
    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """Bytes taken beyond X and Z, and what for."""

    @abstractmethod
    def _prepare(self, X: Any, Z: Floats, n_jobs: int | None) -> Solve: ...

    def prepare(self, X: Any, Z: Floats, n_jobs: int | None = None) -> Solve:
        """What is common to all alphas; the result maps alpha ≥ 0 to a `Solution`.

        >>> X, Z = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])
        >>> Primal().prepare(X, Z)(5.0).Psi
        array([[1.]])
        """
        needed, what = self.memory(*X.shape, Z.shape[1])
        remedy = "use solver='cg'" if self.exact else "use fewer dimensions or learners"
        require_memory(needed, what, remedy)
        return self._prepare(X, Z, n_jobs)


@dataclass(frozen=True)
class Primal(RidgeSolver):
    """One Cholesky factorisation of XᵀX + alpha I."""

    word: ClassVar[str] = "primal"

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """XᵀX and its factor, XᵀZ and Psi."""
        return 8.0 * (2 * d * d + 2 * d * n_targets), f"XᵀX for d = {d:,}"

    def _prepare(self, X: Any, Z: Floats, n_jobs: int | None) -> Solve:
        return Sums.of(X, Z, n_jobs).solve


@dataclass(frozen=True)
class Dual(RidgeSolver):
    """One Cholesky factorisation of XXᵀ + alpha I."""

    word: ClassVar[str] = "dual"

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """XXᵀ and its factor, the dual coefficients and Psi."""
        return 8.0 * (2 * n * n + (n + d) * n_targets), f"XXᵀ for n = {n:,}"

    def _prepare(self, X: Any, Z: Floats, n_jobs: int | None) -> Solve:
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else np.ascontiguousarray(X.T)
        gram = _gram(XT, n_jobs)
        targets = Z.astype(np.float64, copy=False)

        def solve(alpha: float) -> Solution:
            factor = _Factor(gram, alpha)
            Psi = _transposed_product(X, factor.solve(targets), n_jobs, XT if scipy.sparse.issparse(X) else None)

            def leverage(rows: Any) -> Floats:
                # With K = XXᵀ and k = X x:  xᵀ(XᵀX + alpha I)⁻¹x = (xᵀx − kᵀ(K + alpha I)⁻¹k)/alpha.
                cross = _dense(X @ rows.T).astype(np.float64, copy=False)
                length = np.asarray((rows.multiply(rows) if scipy.sparse.issparse(rows) else rows * rows).sum(axis=1))
                if alpha > 1e-10 * length.max(initial=0):
                    return np.asarray((length.ravel() - factor.quadratic(cross)) / alpha)
                # As alpha → 0 that difference cancels; its limit is xᵀ(XᵀX)⁺x = ‖K⁺k‖².
                return np.asarray(np.square(factor.solve(cross)).sum(axis=0))

            return Solution(Psi, "dual", leverage=leverage)

        return solve


@dataclass(frozen=True)
class _Iterative(RidgeSolver):
    """Solvers that only multiply by X and Xᵀ; the residual of each target falls below `tol` times its right side."""

    exact: ClassVar[bool] = False

    tol: float = 1e-7
    max_steps: int = 1000

    def __post_init__(self) -> None:
        if not self.tol > 0 or self.max_steps < 1:
            raise ParameterError(f"`tol` must be > 0 and `max_steps` ≥ 1; got {self.tol} and {self.max_steps}.")

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """Five (d, M) arrays and one (n, M)."""
        return 8.0 * (5 * d + n) * n_targets, f"solver='{self.word}' for d = {d:,} and {n_targets:,} targets"

    @abstractmethod
    def _iterate(self, system: _System, B: Floats) -> tuple[Floats, int, float]:
        """An approximate solution of (XᵀX + alpha I) V = B, the steps taken and the relative residual."""

    def _prepare(self, X: Any, Z: Floats, n_jobs: int | None) -> Solve:
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else None
        moment = _transposed_product(X, Z, n_jobs, XT).astype(X.dtype, copy=False)

        def solve(alpha: float) -> Solution:
            system = _System(X, XT, alpha, n_jobs)
            Psi, steps, residual = self._iterate(system, moment)
            converged = residual <= self._tolerance(X.dtype)
            if not converged:
                _warn(
                    f"solver='{self.word}' stopped after {steps} steps at a relative residual of {residual:.1e} ", self
                )

            def leverage(rows: Any) -> Floats:
                B = _dense(rows).T.astype(X.dtype, copy=False)
                return np.asarray(np.einsum("ij,ij->j", B, self._iterate(system, B)[0]))

            return Solution(Psi, self.word, converged, steps, residual, leverage)

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
    XT: Any
    alpha: float
    n_jobs: int | None

    def __matmul__(self, V: Floats) -> Floats:
        image = _transposed_product(self.X, _product(self.X, V, self.n_jobs), self.n_jobs, self.XT)
        result: Floats = image.astype(V.dtype, copy=False) + V.dtype.type(self.alpha) * V
        return result

    def diagonal(self) -> Floats:
        squares = self.X.multiply(self.X) if scipy.sparse.issparse(self.X) else self.X**2
        return np.asarray(squares.sum(axis=0)).ravel() + self.alpha


@dataclass(frozen=True)
class ConjugateGradient(_Iterative):
    """Conjugate gradients for all targets at once, preconditioned by the diagonal."""

    word: ClassVar[str] = "cg"

    def _iterate(self, system: _System, B: Floats) -> tuple[Floats, int, float]:
        # At alpha = 0 many solutions fit; the unpreconditioned iteration from zero finds the one of least norm.
        diagonal = system.diagonal() if system.alpha > 0 else np.ones(len(B))
        scale = (1 / diagonal).astype(B.dtype)[:, None]
        V, R = np.zeros_like(B), B.copy()
        P = scale * R
        target = np.maximum(np.linalg.norm(B, axis=0), np.finfo(B.dtype).tiny)
        fit = np.einsum("ij,ij->j", R, P)
        tolerance, steps, residual = self._tolerance(B.dtype), 0, _worst(R, target)
        while steps < self.max_steps and residual > tolerance:
            AP = system @ P
            curvature = np.einsum("ij,ij->j", P, AP)
            step = np.divide(fit, curvature, out=np.zeros_like(fit), where=curvature > 0)
            V += step * P
            R -= step * AP
            scaled = scale * R
            previous, fit = fit, np.einsum("ij,ij->j", R, scaled)
            P *= np.divide(fit, previous, out=np.zeros_like(fit), where=previous > 0)
            P += scaled
            steps, residual = steps + 1, _worst(R, target)
        return V, steps, residual


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
            V += step * R
            R = B - system @ V
            steps, residual = steps + 1, _worst(R, target)
        return V, steps, residual


def _worst(R: Floats, target: Floats) -> float:
    return float(np.max(np.linalg.norm(R, axis=0) / target, initial=0))


def _largest_eigenvalue(system: _System, d: int, dtype: Any) -> float:
    """A little above the largest eigenvalue of XᵀX + alpha I: 30 power steps from a fixed start, plus 5 %."""
    v = np.random.default_rng(0).standard_normal((d, 1)).astype(dtype)
    value = 0.0
    for _ in range(30):
        v /= max(float(np.linalg.norm(v)), np.finfo(dtype).tiny)
        v = system @ v
        value = float(np.linalg.norm(v))
    return 1.05 * value if value > 0 else 1.0


_WORDS: dict[str, type[RidgeSolver]] = {
    solver.word: solver for solver in (Primal, Dual, ConjugateGradient, GradientDescent)
}


def choose_solver(n: int, d: int) -> tuple[RidgeSolver, str]:
    """The rule of solver="auto" and its reason, by size alone so that it is the same on every machine.

    >>> choose_solver(n=17_383, d=5_000)
    (Primal(), 'd = 5,000 ≤ n = 17,383 and ≤ 12,000: factorise XᵀX')
    >>> choose_solver(n=3_668, d=20_000)[1]
    'n = 3,668 < d = 20,000 and ≤ 12,000: factorise XXᵀ'
    >>> choose_solver(n=91_818, d=32_956)[1]
    'n = 91,818 and d = 32,956 are both above 12,000: conjugate gradients'
    """
    limit = _CLOSED_FORM_LIMIT
    if d <= min(n, limit):
        return Primal(), f"d = {d:,} ≤ n = {n:,} and ≤ {limit:,}: factorise XᵀX"
    if n <= limit:
        return Dual(), f"n = {n:,} < d = {d:,} and ≤ {limit:,}: factorise XXᵀ"
    return ConjugateGradient(), f"n = {n:,} and d = {d:,} are both above {limit:,}: conjugate gradients"


def resolve_solver(solver: str | RidgeSolver, n: int, d: int) -> tuple[RidgeSolver, str]:
    """A solver from its word or itself, and why."""
    if isinstance(solver, RidgeSolver):
        return solver, "given"
    if solver == "auto":
        return choose_solver(n, d)
    if isinstance(solver, str) and solver in _WORDS:
        return _WORDS[solver](), "given"
    raise ParameterError(f"`solver` must be auto, {', '.join(_WORDS)} or a RidgeSolver; got {solver!r}.")
