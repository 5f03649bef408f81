"""The contract of ridge solvers: a solver, its solution, and leave-one-out predictions in closed form."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.base.parallel import blocks, require_memory
from ripml.base.workspace import RowBlocks, Workspace

__all__ = ["CLOSED_FORM_LIMIT", "RidgeSolver", "Solution", "Solve", "predicted_without", "predicted_without_by"]

Floats = NDArray[np.floating[Any]]
Solve = Callable[[float], "Solution"]

_log = logging.getLogger("ripml")
_LEFT_OUT = 2048  # rows at a time

CLOSED_FORM_LIMIT = 12_000  # largest system that "auto" factorises: 2 × 1.2 GB, about 10 s on 2 cores


@dataclass(frozen=True)
class Solution:
    """Psi (d, M), its leave-one-out predictions, and facts about the solver."""

    Psi: Floats
    solver: str
    # numbers (r,) of training rows ↦ the prediction for each row by a fit without that row, (r, M)
    left_out: Callable[[NDArray[np.int64]], Floats] = field(repr=False)
    converged: bool = True
    steps: int = 0
    residual: float = 0.0  # of iterative solvers: the largest ‖b − A psi‖/‖b‖ over targets

    def facts(self, ridge: float, reason: str) -> dict[str, Any]:
        """How it was found, for reports."""
        return {
            "ridge": ridge,
            "solver": self.solver,
            "reason": reason,
            "converged": self.converged,
            "steps": self.steps,
            "residual": self.residual,
        }


def predicted_without(
    x: Floats, z: Floats, Psi: Floats, h: Floats, k_of: Callable[[NDArray[np.bool_]], Floats], accuracy: float
) -> Floats:
    """Leave-one-out predictions for training rows x (r, d) with targets z (r, M).

    With k = (XᵀX + alpha I)⁻¹xᵀ (d, r) and the leverages hᵢ = xᵢᵀkᵢ, they are ẑ₋ᵢ = zᵢ − (zᵢ − ẑᵢ)/(1 − hᵢ). For a row
    that is alone in its direction, hᵢ → 1 as alpha → 0, and the formula becomes 0/0. The limit is ẑᵢ − kᵢᵀPsi/‖kᵢ‖²,
    the solution of least norm without the row; `k_of` computes the columns of k that it needs. `accuracy` is the
    relative error of h: the limit is used where the formula would lose more than half of the digits.
    """
    fitted = x @ Psi
    slack = 1 - h
    alone = slack < accuracy**0.5
    held_out: Floats = z - (z - fitted) / np.where(alone, 1, slack)[:, None]
    if alone.any():
        k = k_of(alone)
        held_out[alone] = fitted[alone] - k.T @ Psi / np.einsum("ij,ij->j", k, k)[:, None]
    return held_out


def predicted_without_by(x: Floats, z: Floats, Psi: Floats, k: Floats, accuracy: float) -> Floats:
    """`predicted_without` where k (d, r) is known for all rows."""
    return predicted_without(x, z, Psi, np.einsum("ij,ji->i", x, k), lambda rows: k[:, rows], accuracy)


@dataclass(frozen=True)
class RidgeSolver(ABC):
    """A method to solve for Psi, with its options."""

    word: ClassVar[str]
    exact: ClassVar[bool] = True  # closed form, where leave-one-out predictions are cheap

    @property
    def solves_sums(self) -> bool:
        """Whether it can solve from sums over rows, see `Primal.of_sums`."""
        return False

    @abstractmethod
    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """Bytes needed in addition to X and Z, and what they are for."""

    def of_sums(self, sums: Any, rows_of: Any, remake: Any = None) -> Solve:
        """The function alpha ↦ `Solution` for rows that are summed already."""
        raise ParameterError(f"solver='{self.word}' cannot solve from sums over rows; use 'primal'.")

    @classmethod
    def leaving_out(cls) -> RidgeSolver:
        """With the options by which all training rows are left out, where few digits are enough."""
        return cls()

    def left_out(self, X: Any, Z: Any, ridge: float, seed: int, n_jobs: int | None) -> NDArray[np.float32]:
        """The prediction for each training row X (n, d), with targets Z (n, M), by a fit without that row, (n, M).

        Exact here. Where fits take iterations, each half of the rows, drawn with the `seed`, is predicted by the other.
        """
        n = X.shape[0]
        _log.info("leaving out each of %s rows", f"{n:,}")
        found, solution = np.empty((n, Z.shape[1]), np.float32), self.prepare(X, Z, n_jobs)(ridge)
        for rows in blocks(n, _LEFT_OUT):
            found[rows] = solution.left_out(np.arange(rows.start, rows.stop))
        return found

    @abstractmethod
    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool, workspace: Workspace) -> Solve: ...

    def prepare(
        self, X: Any, Z: Any, n_jobs: int | None = None, once: bool = False, workspace: Workspace | None = None
    ) -> Solve:
        """Do the work common to all alphas, and return the function alpha ≥ 0 ↦ `Solution`. X and Z are dense or CSR.

        With `once`, for a function that is called only once, the solver may work in place to save memory. X and Z may
        be `RowBlocks`, which are read block by block with large arrays in a workspace.

        >>> import ripml.regression
        >>> X, Z = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])
        >>> ripml.regression.Primal().prepare(X, Z)(5.0).Psi
        array([[1.]])
        """
        workspace = workspace or Workspace()
        if not isinstance(X, RowBlocks):
            needed, what = self.memory(X.shape[0], X.shape[1], Z.shape[1])
            remedy = "use solver='cg'" if self.exact else "use fewer dimensions or learners"
            require_memory(needed, what, remedy)
        return self._prepare(X, Z, n_jobs, once, workspace)
