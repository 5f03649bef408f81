"""Iterative solvers, which only multiply by X and Xᵀ: conjugate gradients and gradient descent."""

from __future__ import annotations

import logging
import numbers
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.base.parallel import blocks, map_blocks, thread_count
from ripml.base.products import (
    add_gram_product,
    add_transposed_product,
    by_frequency,
    dense,
    predict_embedding,
    product,
    target_blocks,
    transposed_product,
    transposed_product_of_blocks,
)
from ripml.base.workspace import ColumnBlocks, RowBlocks, Workspace, release
from ripml.regression.solver import RidgeSolver, Solution, Solve, predicted_without_by

__all__ = ["ConjugateGradient", "GradientDescent"]

Floats = NDArray[np.floating[Any]]

_log = logging.getLogger("ripml")

_LEFT_OUT_STEPS = 12  # of a fit that leaves rows out: as many as fits on all rows take
_ARRAYS = 6  # of the size of a block of targets that an iteration has
_WAITING = 2  # blocks of targets that are at work here while others are elsewhere
_NARROWEST = 8  # targets of a block, where memory is short
_ROW_BYTES = 4096  # about what a sparse row takes
_ENTRIES = 1 << 22  # of sparse rows that are squared at a time
_IN_MEMORY = Workspace()
_LINES = 512  # lines of directions and residuals processed at a time, so that they stay in the cache


@dataclass(frozen=True)
class _Iterative(RidgeSolver):
    """Iterate until the residual of each target is at most `tol` times its right-hand side."""

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
        """For five (d, M) arrays and one (n, M), an upper bound: sparse X needs two and one, and a block per thread."""
        return 8.0 * (5 * d + n) * n_targets, f"solver='{self.word}' for d = {d:,} and {n_targets:,} targets"

    @classmethod
    def leaving_out(cls) -> RidgeSolver:
        """By as many steps as a fit takes."""
        return cls(max_steps=_LEFT_OUT_STEPS)

    def left_out(self, X: Any, Z: Any, ridge: float, seed: int, n_jobs: int | None) -> NDArray[np.float32]:
        """Each half of the rows by a fit on the other one."""
        n = X.shape[0]
        found = np.empty((n, Z.shape[1]), np.float32)
        half = np.random.default_rng(seed).permutation(n) % 2 == 0
        for held in (np.flatnonzero(half), np.flatnonzero(~half)):
            _log.info("fitting again without %s of %s rows", f"{len(held):,}", f"{n:,}")
            seen = np.setdiff1d(np.arange(n), held)
            with warnings.catch_warnings():
                from sklearn.exceptions import ConvergenceWarning

                warnings.simplefilter("ignore", ConvergenceWarning)  # stopped on purpose, as by the fit
                Psi = np.asarray(self.prepare(X[seen], Z[seen], n_jobs, True)(ridge).Psi, np.float32)
            found[held] = predict_embedding(X[held], Psi, n_jobs)
        return found

    @abstractmethod
    def _iterate(self, system: _System, B: Floats) -> tuple[Floats, int, float]:
        """An approximate solution of (XᵀX + alpha I) V = B, the steps taken and the relative residual."""

    def _solved(
        self, system: _System, order: Any, B: Floats | ColumnBlocks, workspace: Workspace = _IN_MEMORY
    ) -> tuple[Floats, int, float]:
        """`_iterate` for any number of targets; `order` are the features of B in the order of the system.

        Targets are independent. Where X is sparse, one thread iterates a block of them to the end, so that its
        directions and residuals stay in the cache and threads do not wait for each other. In a workspace on disk, the
        solution is in files, and a block of targets that an interrupted run solved is not solved again.
        """
        if not isinstance(B, ColumnBlocks) and not system.sparse:
            return self._iterate(system, B)
        _ = system.diagonal  # fill the cache before threads start
        if isinstance(B, ColumnBlocks):
            return self._solved_on_disk(system, order, B, workspace)
        # The solution stays zero for features that no row has: they are not in `order`.
        V = np.zeros_like(B)

        def fill(columns: slice) -> tuple[int, float]:
            V[order, columns], steps, residual = self._iterate(system, B[order, columns])
            return steps, residual

        results = map_blocks(fill, target_blocks(len(order), B.shape[1]), system.n_threads)
        return V, *_most(results)

    def _solved_on_disk(
        self, system: _System, order: Any, B: ColumnBlocks, workspace: Workspace
    ) -> tuple[Floats, int, float]:
        V = ColumnBlocks.empty("solution", B.shape, B.columns, B.dtype, workspace)

        def fill(block: tuple[slice, Floats, Floats]) -> tuple[int, float]:
            columns, b, v = block
            step = [f"solution-{columns.start}", columns.stop, str(self), system.alpha, *B.shape]
            if (known := workspace.load_checkpoint(step)) is not None:
                return int(known["steps"]), float(known["residual"])
            found, steps, residual = self._iterate(system, b[order])
            v[:] = 0
            v[order] = found
            release(b, v)
            del found
            workspace.trim_memory()
            workspace.save_checkpoint(step, {"steps": np.array(steps), "residual": np.array(residual)})
            return steps, residual

        results = map_blocks(fill, list(zip(B.columns, B.parts, V.parts, strict=True)), system.n_threads)
        return V.toarray("coefficients", workspace), *_most(results)

    def _columns_at_a_time(self, X: RowBlocks, n_targets: int, n_threads: int, memory: int) -> list[slice]:
        """Blocks of targets to solve for on disk; they do not depend on each other, so they may be narrow."""
        d = X.shape[1]
        widest = max(_NARROWEST, memory // 2 // max(_ARRAYS * d * X.dtype.itemsize * n_threads, 1))
        if X.n_places > 1:  # each place has a block of targets to work on
            widest = min(widest, max(_NARROWEST, -(-n_targets // X.n_places)))
        return blocks(n_targets, min(widest, target_blocks(d, n_targets)[0].stop))

    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool, workspace: Workspace) -> Solve:
        moment = self._moment(X, Z, n_jobs, workspace)
        sparse = X.sparse if isinstance(X, RowBlocks) else scipy.sparse.issparse(X)
        ordered, order = by_frequency(X, workspace) if sparse else (X, slice(None))

        def solve(alpha: float) -> Solution:
            system = _System(ordered, alpha, n_jobs, workspace.rows_per_block(_ROW_BYTES, max(X.shape[0], 1)))
            Psi, steps, residual = self._solved(system, order, moment, workspace)
            converged = residual <= self._tolerance(X.dtype)
            if not converged:
                self._warn(steps, residual)

            def left_out(rows: NDArray[np.int64]) -> Floats:
                x = dense(X[rows])
                k, _, accuracy = self._solved(system, order, x.T)
                return predicted_without_by(x, dense(Z[rows]), Psi, k, accuracy)

            return Solution(Psi, self.word, left_out, converged, steps, residual)

        return solve

    def _moment(self, X: Any, Z: Any, n_jobs: int | None, workspace: Workspace) -> Floats | ColumnBlocks:
        """XᵀZ, (d, M), in the type of X."""
        if not isinstance(X, RowBlocks):
            return transposed_product(X, Z, n_jobs).astype(X.dtype, copy=False)
        d, n_targets, step = X.shape[1], Z.shape[1], ["moment", *X.shape, Z.shape[1]]
        parts = ((part, Z[rows]) for rows, part in X.blocks())
        if not X.sparse:
            whole = np.asarray(workspace.empty("moment", (d, n_targets), X.dtype))
            if workspace.load_checkpoint(step) is None:
                whole[:] = 0
                if X.elsewhere:
                    whole += X.fold(partial(_add_moment, n_jobs=n_jobs), Z)
                else:
                    transposed_product_of_blocks(parts, n_jobs, whole)
                workspace.save_checkpoint(step, {})
            return whole
        columns = self._columns_at_a_time(X, n_targets, _threads(X, n_jobs), workspace.table_bytes)
        step.append(columns[0].stop)
        out = ColumnBlocks.empty("moment", (d, n_targets), columns, X.dtype, workspace)
        if workspace.load_checkpoint(step) is None:
            if X.elsewhere:
                total = X.fold(partial(_add_moment, n_jobs=n_jobs), Z, in_order=True)
                for some, part in zip(out.columns, out.parts, strict=True):
                    part[:] = total[:, some]
                    release(part)
                del total
            else:
                for part in out.parts:
                    part[:] = 0
                    release(part)
                add_transposed_product(parts, out, n_jobs)
            workspace.save_checkpoint(step, {})
            workspace.trim_memory()
        return out

    def _tolerance(self, dtype: Any) -> float:
        return max(self.tol, 20 * float(np.finfo(dtype).eps))  # float32 cannot reach 1e-7

    def _warn(self, steps: int, residual: float) -> None:
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(
            f"solver='{self.word}' stopped after {steps} steps at a relative residual of {residual:.1e} "
            f"(wanted {self.tol:.1e}); raise `max_steps`, `tol` or `ridge`.",
            ConvergenceWarning,
            stacklevel=5,
        )


@dataclass(frozen=True)
class _System:
    """V ↦ (XᵀX + alpha I) V without forming XᵀX."""

    X: Any
    alpha: float
    n_jobs: int | None  # for dense X; sparse X is multiplied on the calling thread
    height: int  # rows of a sparse X that are multiplied at a time

    @property
    def sparse(self) -> bool:
        return self.X.sparse if isinstance(self.X, RowBlocks) else scipy.sparse.issparse(self.X)

    @property
    def n_threads(self) -> int:
        """Blocks of targets to iterate at a time."""
        return _threads(self.X, self.n_jobs)

    def __matmul__(self, V: Floats) -> Floats:
        if scipy.sparse.issparse(self.X):
            image = np.zeros_like(V)
            add_gram_product(self.X, V, image, self.height)
        elif isinstance(self.X, RowBlocks):
            add = partial(_add_product, V=V, height=self.height, n_jobs=self.n_jobs)
            image = self.X.fold(add, in_order=self.sparse)
        else:
            image = transposed_product(self.X, product(self.X, V, self.n_jobs), self.n_jobs)
        result: Floats = image.astype(V.dtype, copy=False)
        for rows in blocks(len(V), _LINES):
            result[rows] += V.dtype.type(self.alpha) * V[rows]
        return result

    @cached_property
    def diagonal(self) -> Floats:
        if scipy.sparse.issparse(self.X):
            squares = np.zeros(self.X.shape[1])
            for entries in blocks(len(self.X.data), _ENTRIES):
                indices, data = self.X.indices[entries], self.X.data[entries]
                squares += np.bincount(indices, np.square(data, dtype=np.float64), self.X.shape[1])
                release(indices, data)
        elif isinstance(self.X, RowBlocks):
            squares = self.X.fold(_add_squares)
        else:
            squares = np.asarray((self.X**2).sum(axis=0))
        return squares + self.alpha


def _threads(X: Any, n_jobs: int | None) -> int:
    """Threads for targets: one for each place of rows, and some for what is done here."""
    n_places = X.n_places if isinstance(X, RowBlocks) else 1
    return thread_count(n_jobs) if n_places == 1 else n_places + _WAITING


def _add_moment(total: Floats | None, X: Any, Z: Any, n_jobs: int | None) -> Floats:
    """Add XᵀZ of a block of rows."""
    total = np.zeros((X.shape[1], Z.shape[1]), _summed_in(X)) if total is None else total
    return transposed_product_of_blocks([(X, Z)], n_jobs, total)


def _add_product(total: Floats | None, X: Any, V: Floats, height: int, n_jobs: int | None) -> Floats:
    """Add XᵀXV of a block of rows."""
    total = np.zeros(V.shape, _summed_in(X)) if total is None else total
    if not scipy.sparse.issparse(X):
        return transposed_product_of_blocks([(X, product(X, V, n_jobs))], n_jobs, total)
    add_gram_product(X, V, total, height)
    return total


def _summed_in(X: Any) -> Any:
    """The type in which products of rows are added up: that of sparse rows, float64 for dense ones."""
    return X.dtype if scipy.sparse.issparse(X) else np.float64


def _add_squares(total: Floats | None, X: Any) -> Floats:
    """Add Σ x_ij² of a block of rows, (d,)."""
    if scipy.sparse.issparse(X):
        squares = np.asarray(np.bincount(X.indices, np.square(X.data, dtype=np.float64), X.shape[1]), np.float64)
    else:
        squares = np.square(X, dtype=np.float64).sum(axis=0)
    return squares if total is None else total + squares


@dataclass(frozen=True)
class ConjugateGradient(_Iterative):
    """Conjugate gradients for many targets at once (in blocks where X is sparse), preconditioned by the diagonal."""

    word: ClassVar[str] = "cg"

    def _iterate(self, system: _System, B: Floats) -> tuple[Floats, int, float]:
        # Without preconditioning the iterates stay in the span of the rows, where the solution lies. With it, only the
        # alpha term keeps them close to it, so precondition only where alpha is large enough.
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
            # A converged target is not changed, so that its solution does not depend on the other targets.
            step = np.where(_residuals(R, target) > tolerance, _ratio(fit, _dots(P, AP), B.dtype), 0).astype(B.dtype)
            for rows in blocks(len(B), _LINES):
                V[rows] += step * P[rows]
                R[rows] -= step * AP[rows]
                np.multiply(scale[rows], R[rows], out=AP[rows])  # AP is reused for the preconditioned residual
            previous, fit = fit, _dots(R, AP)
            beta = _ratio(fit, previous, B.dtype)
            for rows in blocks(len(B), _LINES):
                P[rows] *= beta
                P[rows] += AP[rows]
            steps, residual = steps + 1, _worst(R, target)
        return V, steps, residual


def _most(results: list[tuple[int, float]]) -> tuple[int, float]:
    """The most steps and the largest residual."""
    return max((steps for steps, _ in results), default=0), max((worst for _, worst in results), default=0.0)


def _ratio(a: Floats, b: Floats, dtype: Any) -> Floats:
    """a/b, or 0 where b ≤ 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0).astype(dtype)


def _dots(A: Floats, B: Floats) -> Floats:
    """⟨a, b⟩ for each pair of columns, (M,) float64."""
    total = np.zeros(A.shape[1])
    for rows in blocks(len(A), _LINES):
        total += np.einsum("ij,ij->j", A[rows], B[rows])
    return total


@dataclass(frozen=True)
class GradientDescent(_Iterative):
    """Gradient descent with the fixed step 1/(λmax + alpha): the paper's alternative to the closed form."""

    word: ClassVar[str] = "gd"

    max_steps: int = 20_000

    def _iterate(self, system: _System, B: Floats) -> tuple[Floats, int, float]:
        step = B.dtype.type(1 / _largest_eigenvalue(system, len(B), B.dtype))
        V, R = np.zeros_like(B), B.copy()
        target = np.maximum(np.linalg.norm(B, axis=0), np.finfo(B.dtype).tiny)
        tolerance, steps, residual = self._tolerance(B.dtype), 0, _worst(R, target)
        while steps < self.max_steps and residual > tolerance:
            # A converged target is not changed, so that its solution does not depend on the other targets.
            V += np.where(_residuals(R, target) > tolerance, step, 0).astype(B.dtype) * R
            R = B - system @ V
            steps, residual = steps + 1, _worst(R, target)
        return V, steps, residual


def _residuals(R: Floats, target: Floats) -> Floats:
    return np.asarray(np.sqrt(_dots(R, R)) / target)


def _worst(R: Floats, target: Floats) -> float:
    return float(np.max(_residuals(R, target), initial=0))


def _largest_eigenvalue(system: _System, d: int, dtype: Any) -> float:
    """An upper estimate of the largest eigenvalue of XᵀX + alpha I: 30 power steps from a fixed start, plus 5 %."""
    v = np.random.default_rng(0).standard_normal((d, 1)).astype(dtype)
    value = 0.0
    for _ in range(30):
        v /= max(float(np.linalg.norm(v)), np.finfo(dtype).tiny)
        v = system @ v
        value = float(np.linalg.norm(v))
    return 1.05 * value if value > 0 else 1.0
