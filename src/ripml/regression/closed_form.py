"""Psi by one factorisation: of XᵀX (primal) or of XXᵀ (dual)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.base.products import dense, gram_of, transposed_product
from ripml.base.workspace import RowBlocks, Workspace
from ripml.regression.solver import RidgeSolver, Solution, Solve, predicted_without, predicted_without_by
from ripml.regression.sums import Factor, Sums

__all__ = ["Dual", "Primal"]

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class _ClosedForm(RidgeSolver):
    """Solvers by factorisation, in float64, or in float32: half the time and memory, and about four digits."""

    precision: str = "float64"

    def __post_init__(self) -> None:
        if self.precision not in ("float64", "float32"):
            raise ParameterError(f"`precision` must be 'float64' or 'float32'; got {self.precision!r}.")

    @classmethod
    def leaving_out(cls) -> RidgeSolver:
        """In float32."""
        return cls(precision="float32")


@dataclass(frozen=True)
class Primal(_ClosedForm):
    """One Cholesky factorisation of XᵀX + alpha I."""

    word: ClassVar[str] = "primal"

    @property
    def solves_sums(self) -> bool:
        """True in float64."""
        return self.precision == "float64"

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """For XᵀX and its factor, Z, XᵀZ and Psi."""
        size = np.dtype(self.precision).itemsize
        return float(size) * (2 * d * d + (n + 2 * d) * n_targets), f"XᵀX for d = {d:,}"

    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool, workspace: Workspace) -> Solve:
        dtype = np.dtype(self.precision)
        if isinstance(X, RowBlocks):
            return self.of_sums(
                Sums.of_blocks(X, Z, n_jobs, dtype, workspace),
                lambda rows: (dense(X[rows]), dense(Z[rows])),
                (lambda: Sums.of_blocks(X, Z, n_jobs, dtype, workspace).gram) if once else None,
            )
        remake = (lambda: gram_of(X, n_jobs, dtype)) if once else None
        return self.of_sums(Sums.of(X, Z, n_jobs, dtype), lambda rows: (dense(X[rows]), dense(Z[rows])), remake)

    def of_sums(
        self,
        sums: Sums,
        rows_of: Callable[[NDArray[np.int64]], tuple[Floats, Floats]],
        remake: Callable[[], Floats] | None = None,
    ) -> Solve:
        """The function alpha ↦ `Solution` for rows that are summed already; `rows_of` gives x and z of rows.

        If `remake` is given, a function that computes XᵀX again, the sums may be overwritten.
        """
        dtype = np.dtype(self.precision)

        def solve(alpha: float) -> Solution:
            factor = Factor(sums.gram, alpha, remake)
            Psi = factor.solve(sums.moment)

            def left_out(rows: NDArray[np.int64]) -> Floats:
                x, z = rows_of(rows)
                x = x.astype(dtype, copy=False)
                return predicted_without(x, z, Psi, *factor.leverage(x), float(np.finfo(dtype).eps))

            return Solution(Psi, "primal", left_out)

        return solve


@dataclass(frozen=True)
class Dual(_ClosedForm):
    """One Cholesky factorisation of XXᵀ + alpha I."""

    word: ClassVar[str] = "dual"

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """For XXᵀ and its factor, Z, the dual coefficients and Psi."""
        size = np.dtype(self.precision).itemsize
        return float(size) * (2 * n * n + (2 * n + d) * n_targets), f"XXᵀ for n = {n:,}"

    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool, workspace: Workspace) -> Solve:
        dtype = np.dtype(self.precision)
        if isinstance(X, RowBlocks):  # as many rows as can be factorised are held in memory
            X, Z = X[:], Z[:]
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else X.T
        gram = gram_of(XT, n_jobs, dtype)
        targets = dense(Z).astype(dtype, copy=False)

        def solve(alpha: float) -> Solution:
            factor = Factor(gram, alpha)
            C = factor.solve(targets)
            Psi = transposed_product(X, C, n_jobs, XT)

            def left_out(rows: NDArray[np.int64]) -> Floats:
                unit = np.zeros((len(gram), len(rows)), dtype)
                unit[rows, np.arange(len(rows))] = 1
                inverse = factor.solve(unit)
                if factor.singular:
                    k = transposed_product(X, inverse, n_jobs, XT)
                    return predicted_without_by(dense(X[rows]), targets[rows], Psi, k, float(np.finfo(dtype).eps))
                # zᵢ − ẑᵢ = alpha cᵢ and 1 − hᵢ = alpha [(XXᵀ + alpha I)⁻¹]ᵢᵢ: alpha cancels without loss of digits.
                return targets[rows] - C[rows] / inverse[rows, np.arange(len(rows))][:, None]

            return Solution(Psi, "dual", left_out)

        return solve
