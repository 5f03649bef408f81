"""Psi: ridge regression from features to label embeddings (the paper's training step 2).

    Psi = argmin ‖Z − X Psi‖² + alpha ‖Psi‖²,        X (n, d), Z (n, M), Psi (d, M), M = F·m targets at once

The paper writes ½ Σ‖z − Ψx‖² + λ‖Ψ‖² with Ψ = Psiᵀ, so alpha = 2λ; alpha is scikit-learn's. Four ways to the same Psi:

    primal   (XᵀX + alpha I) Psi = XᵀZ, one d × d factorisation; XᵀX and XᵀZ are sums over rows, see `Sums`
    dual     (XXᵀ + alpha I) C = Z, Psi = XᵀC, one n × n factorisation, for n < d
    cg       conjugate gradients on the primal equations with X kept sparse: all targets at once, Jacobi-preconditioned
    gd       plain gradient descent, as the paper names it

A solver is a value with its options; `prepare(X, Z)` does what does not depend on alpha and returns a function
alpha ↦ `Solution`, so that a path of alphas shares it. A solution also knows what it would have predicted for a row
that it had not seen, without another fit (see `_left_out`).
"""

from __future__ import annotations

import numbers
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, cast

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml.errors import ParameterError
from ripml.products import Embedded, by_frequency, dense, gram_of, product, target_blocks, transposed_product
from ripml.resources import blocks, map_blocks, require_memory

__all__ = [
    "ConjugateGradient",
    "Dual",
    "GradientDescent",
    "Primal",
    "RidgeSolver",
    "Solution",
    "Solve",
    "Sums",
    "choose_solver",
    "resolve_solver",
]

Floats = NDArray[np.floating[Any]]
Solve = Callable[[float], "Solution"]

_LINES = 512  # of directions and residuals that iterative solvers work on at a time, to find them in the cache again
_CLOSED_FORM_LIMIT = 12_000  # the side of the largest system that `auto` factorises: 2 × 1.2 GB, about 10 s on 2 cores
_LANES, _LANE_BYTES, _LANE_ROWS = 8, 1 << 28, 2048  # in which dense rows are summed, and how many at a time
# Reciprocal condition below which the digits of a Cholesky factor are not trusted, for float64 and float32.
_CONDITION = {"d": 1e-10, "f": 1e-6}


@dataclass(frozen=True)
class Solution:
    """Psi (d, M), how it was found, and its leave-one-out predictions."""

    Psi: Floats
    solver: str
    # numbers (r,) of training rows ↦ what would be predicted for each had the regression not seen that row, (r, M)
    left_out: Callable[[NDArray[np.int64]], Floats] = field(repr=False)
    converged: bool = True
    steps: int = 0
    residual: float = 0.0  # the largest ‖b − A psi‖/‖b‖ over targets, for iterative solvers

    def facts(self, ridge: float, reason: str) -> dict[str, Any]:
        """How it was found, as plain values."""
        return {
            "ridge": ridge,
            "solver": self.solver,
            "reason": reason,
            "converged": self.converged,
            "steps": self.steps,
            "residual": self.residual,
        }


# ------------------------------------------------------------------------------------------------------------ sums


@dataclass(frozen=True)
class Sums:
    """All that primal ridge remembers of its rows: XᵀX, XᵀZ and n. They add, and what was added can be subtracted.

    >>> X, Z = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [0.0]])
    >>> (Sums.of(X[:1], Z[:1]) + Sums.of(X[1:], Z[1:])).gram
    array([[10., 14.],
           [14., 20.]])
    """

    gram: Floats
    moment: Floats
    n_rows: int

    @classmethod
    def of(cls, X: Any, Z: Any, n_jobs: int | None = None, dtype: Any = np.float64) -> Sums:
        """The sums of these rows in float64, whatever the type of X, or in float32 if asked. Z is dense or CSR."""
        if not scipy.sparse.issparse(X) and not scipy.sparse.issparse(Z) and not isinstance(Z, Embedded):
            return cls._of_dense(X, Z, n_jobs, np.dtype(dtype))
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else None
        moment = np.asarray(transposed_product(X, Z.astype(dtype, copy=False), n_jobs, XT), dtype)
        return cls(gram_of(X, n_jobs, dtype, XT), moment, X.shape[0])

    @classmethod
    def _of_dense(cls, X: Any, Z: Any, n_jobs: int | None, dtype: np.dtype[Any]) -> Sums:
        """In lanes of blocks, a lane on a thread: their number is fixed, so that the sum does not depend on threads."""
        d, n_targets = X.shape[1], Z.shape[1]
        lanes = max(1, min(_LANES, _LANE_BYTES // (dtype.itemsize * d * (d + n_targets))))

        def lane(first: int) -> Sums:
            total = cls(np.zeros((d, d), dtype), np.zeros((d, n_targets), dtype), 0)
            for rows in islice(blocks(X.shape[0], _LANE_ROWS), first, None, lanes):
                x, z = X[rows].astype(dtype, copy=False), dense(Z[rows]).astype(dtype, copy=False)
                total += cls(x.T @ x, x.T @ z, len(x))  # NumPy takes the symmetric product for the first
            return total

        lanes = min(lanes, -(-X.shape[0] // _LANE_ROWS)) or 1
        if lanes == 1:
            return lane(0)  # BLAS on all its threads
        first, *others = map_blocks(lane, range(lanes), n_jobs)
        for other in others:
            first += other
        return first

    def __iadd__(self, other: Sums) -> Sums:
        self.gram[:] += other.gram
        self.moment[:] += other.moment
        return Sums(self.gram, self.moment, self.n_rows + other.n_rows)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.moment + other.moment, self.n_rows + other.n_rows)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.gram - other.gram, self.moment - other.moment, self.n_rows - other.n_rows)

    def solve(self, alpha: float) -> Floats:
        """Psi (d, M) of the rows summed here."""
        return _Factor(self.gram, alpha).solve(self.moment)


class _Factor:
    """(A + alpha I)⁻¹ for symmetric A ≥ 0: Cholesky, or on the range of A alone where that is numerically singular.

    Rows and columns are first divided by the root of the diagonal, so that features of very different scale are not
    mistaken for linear dependence. It works in the type of A; where that is float32 and too short for the condition of
    A + alpha I, but alpha above the rounding error of A, in float64.
    """

    def __init__(self, A: Floats, alpha: float, remake: Callable[[], Floats] | None = None) -> None:
        """With `remake` the factor takes the place of A, which is made anew in the rare case that it is needed."""
        self._scale = np.sqrt(A.diagonal() + A.dtype.type(alpha))[:, None]
        self.singular = not self._factorised(A, remake is not None)
        if not self.singular:
            return
        A = A if remake is None else remake()
        # Entries of the scaled matrix are at most 1, each off by eps or so: together that is a matrix of norm √d eps.
        noise = 2 * len(A) ** 0.5 * np.finfo(A.dtype).eps
        if A.dtype == np.float32 and alpha > noise * float(self._scale.max()) ** 2:
            self.singular = not self._factorised(A.astype(np.float64), True)
        if self.singular:
            values, vectors = scipy.linalg.eigh(A.astype(np.float64), check_finite=False)
            kept = values > len(A) * np.finfo(A.dtype).eps * max(values.max(initial=0), 1e-300)
            # H Hᵀ: directions without data get no weight, which is right for every alpha and of least norm at 0.
            self._half = (vectors[:, kept] / np.sqrt(values[kept] + alpha)).astype(A.dtype)

    def _factorised(self, A: Floats, overwrite: bool) -> bool:
        """Whether the Cholesky factor of A + alpha I, rows and columns scaled, was found and can be trusted."""
        if not (self._scale > 0).all():
            return False
        shrunk = 1 / self._scale
        shifted = np.multiply(A, shrunk, out=A if overwrite else None)
        shifted *= shrunk.T
        shifted.flat[:: len(A) + 1] = 1
        potrf, pocon, lange = scipy.linalg.get_lapack_funcs(("potrf", "pocon", "lange"), (shifted,))
        norm = lange("1", shifted.T)
        self._lower, failed = potrf(shifted.T, lower=True, clean=False, overwrite_a=True)
        return not failed and bool(pocon(self._lower, norm, uplo="L")[0] >= _CONDITION[A.dtype.char])

    def solve(self, B: Floats) -> Floats:
        """(A + alpha I)⁻¹B, of B its part in the range of A where the factor is singular."""
        if self.singular:
            return np.asarray(self._half @ (self._half.T @ B))
        return np.asarray(self._both(self._solve_triangle(B / self._scale, 0)), B.dtype)

    def leverage(self, x: Floats) -> tuple[Floats, Callable[[NDArray[np.bool_]], Floats]]:
        """h (r,) = x (A + alpha I)⁻¹ xᵀ of each row of x (r, d), and k = (A + alpha I)⁻¹ xᵀ of those asked for.

        h needs one triangle of the factor, at half the cost of k, which is rarely wanted.
        """
        if self.singular:
            k = self.solve(x.T)
            return np.einsum("ij,ji->i", x, k), lambda rows: k[:, rows]
        half = self._solve_triangle(x.T / self._scale, 0)
        return np.einsum("ij,ij->j", half, half), lambda rows: self._both(half[:, rows])

    def _solve_triangle(self, B: Floats, transposed: int) -> Floats:
        (trtrs,) = scipy.linalg.get_lapack_funcs(("trtrs",), (self._lower, B))
        solved: Floats = trtrs(self._lower, B, lower=True, trans=transposed)[0]
        return solved

    def _both(self, half: Floats) -> Floats:
        solved: Floats = self._solve_triangle(half, 1) / self._scale
        return solved


def _left_out(
    x: Floats, z: Floats, Psi: Floats, h: Floats, k_of: Callable[[NDArray[np.bool_]], Floats], accuracy: float
) -> Floats:
    """What would be predicted for training rows x (r, d) had each not been seen.

    With k = (XᵀX + alpha I)⁻¹xᵀ (d, r), of which `k_of` gives the columns asked for, and the leverage hᵢ = xᵢᵀkᵢ it is
    ẑ₋ᵢ = zᵢ − (zᵢ − ẑᵢ)/(1 − hᵢ). As hᵢ → 1 (a row that alone speaks of its direction, as alpha → 0) that is 0/0, and
    its limit is ẑᵢ − kᵢᵀPsi/‖kᵢ‖², the solution of least norm without the row. `accuracy` is that of h; where one
    formula takes over from the other, half of its digits are left.
    """
    fitted = x @ Psi
    rest = 1 - h
    alone = rest < accuracy**0.5
    held_out: Floats = z - (z - fitted) / np.where(alone, 1, rest)[:, None]
    if alone.any():
        k = k_of(alone)
        held_out[alone] = fitted[alone] - k.T @ Psi / np.einsum("ij,ij->j", k, k)[:, None]
    return held_out


def _left_out_by(x: Floats, z: Floats, Psi: Floats, k: Floats, accuracy: float) -> Floats:
    return _left_out(x, z, Psi, np.einsum("ij,ji->i", x, k), lambda rows: k[:, rows], accuracy)


# --------------------------------------------------------------------------------------------------------- solvers


@dataclass(frozen=True)
class RidgeSolver(ABC):
    """A way to Psi, with its options."""

    word: ClassVar[str]
    exact: ClassVar[bool] = True  # closed form, with leave-one-out at little cost

    @abstractmethod
    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """Bytes taken beyond X and Z, and what for."""

    @abstractmethod
    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool) -> Solve: ...

    def prepare(self, X: Any, Z: Any, n_jobs: int | None = None, once: bool = False) -> Solve:
        """What is common to all alphas; the result maps alpha ≥ 0 to a `Solution`. X and Z are dense or CSR.

        If that is asked for `once` only, memory is taken once, too.

        >>> X, Z = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])
        >>> Primal().prepare(X, Z)(5.0).Psi
        array([[1.]])
        """
        n, d = X.shape
        needed, what = self.memory(n, d, Z.shape[1])
        remedy = "use solver='cg'" if self.exact else "use fewer dimensions or learners"
        require_memory(needed, what, remedy)
        return self._prepare(X, Z, n_jobs, once)


@dataclass(frozen=True)
class _ClosedForm(RidgeSolver):
    """Solvers that factorise, in float64, or in float32 at half the time and memory and to four digits or so."""

    precision: str = "float64"

    def __post_init__(self) -> None:
        if self.precision not in ("float64", "float32"):
            raise ParameterError(f"`precision` must be 'float64' or 'float32'; got {self.precision!r}.")


@dataclass(frozen=True)
class Primal(_ClosedForm):
    """One Cholesky factorisation of XᵀX + alpha I."""

    word: ClassVar[str] = "primal"

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """XᵀX and its factor, Z, XᵀZ and Psi."""
        size = np.dtype(self.precision).itemsize
        return float(size) * (2 * d * d + (n + 2 * d) * n_targets), f"XᵀX for d = {d:,}"

    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool) -> Solve:
        dtype = np.dtype(self.precision)
        remake = (lambda: gram_of(X, n_jobs, dtype)) if once else None
        return self.of_sums(Sums.of(X, Z, n_jobs, dtype), lambda rows: (dense(X[rows]), dense(Z[rows])), remake)

    def of_sums(
        self,
        sums: Sums,
        rows_of: Callable[[NDArray[np.int64]], tuple[Floats, Floats]],
        remake: Callable[[], Floats] | None = None,
    ) -> Solve:
        """What `prepare` gives for rows that were summed already; `rows_of` has the x and z of the rows asked for.

        With `remake`, which gives XᵀX anew, the sums may be overwritten.
        """
        dtype = np.dtype(self.precision)

        def solve(alpha: float) -> Solution:
            factor = _Factor(sums.gram, alpha, remake)
            Psi = factor.solve(sums.moment)

            def left_out(rows: NDArray[np.int64]) -> Floats:
                x, z = rows_of(rows)
                x = x.astype(dtype, copy=False)
                return _left_out(x, z, Psi, *factor.leverage(x), float(np.finfo(dtype).eps))

            return Solution(Psi, "primal", left_out)

        return solve


@dataclass(frozen=True)
class Dual(_ClosedForm):
    """One Cholesky factorisation of XXᵀ + alpha I."""

    word: ClassVar[str] = "dual"

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """XXᵀ and its factor, Z, the dual coefficients and Psi."""
        size = np.dtype(self.precision).itemsize
        return float(size) * (2 * n * n + (2 * n + d) * n_targets), f"XXᵀ for n = {n:,}"

    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool) -> Solve:
        dtype = np.dtype(self.precision)
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else X.T
        gram = gram_of(XT, n_jobs, dtype)
        targets = dense(Z).astype(dtype, copy=False)

        def solve(alpha: float) -> Solution:
            factor = _Factor(gram, alpha)
            C = factor.solve(targets)
            Psi = transposed_product(X, C, n_jobs, XT)

            def left_out(rows: NDArray[np.int64]) -> Floats:
                unit = np.zeros((len(gram), len(rows)), dtype)
                unit[rows, np.arange(len(rows))] = 1
                inverse = factor.solve(unit)
                if factor.singular:
                    k = transposed_product(X, inverse, n_jobs, XT)
                    return _left_out_by(dense(X[rows]), targets[rows], Psi, k, float(np.finfo(dtype).eps))
                # zᵢ − ẑᵢ = alpha cᵢ and 1 − hᵢ = alpha [(XXᵀ + alpha I)⁻¹]ᵢᵢ: alpha cancels, and no digits are lost.
                return targets[rows] - C[rows] / inverse[rows, np.arange(len(rows))][:, None]

            return Solution(Psi, "dual", left_out)

        return solve


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
                return _left_out_by(x, dense(Z[rows]), Psi, k, accuracy)

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
    """Conjugate gradients for all targets at once, preconditioned by the diagonal."""

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


_WORDS: dict[str, type[RidgeSolver]] = {
    solver.word: solver for solver in (Primal, Dual, ConjugateGradient, GradientDescent)
}


def choose_solver(n: int, d: int) -> tuple[RidgeSolver, str]:
    """The rule of solver="auto" and its reason, by size alone so that it is the same on every machine.

    >>> choose_solver(n=17_383, d=5_000)
    (Primal(precision='float64'), 'd = 5,000 ≤ n = 17,383 and ≤ 12,000: factorise XᵀX')
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
