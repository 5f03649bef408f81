"""What a solver is, what it finds, and what it would have predicted for a row that it had not seen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.base.parallel import require_memory

__all__ = ["CLOSED_FORM_LIMIT", "RidgeSolver", "Solution", "Solve", "predicted_without", "predicted_without_by"]

Floats = NDArray[np.floating[Any]]
Solve = Callable[[float], "Solution"]

CLOSED_FORM_LIMIT = 12_000  # the side of the largest system that "auto" factorises: 2 × 1.2 GB, about 10 s on 2 cores


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


def predicted_without(
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


def predicted_without_by(x: Floats, z: Floats, Psi: Floats, k: Floats, accuracy: float) -> Floats:
    """The same, with k (d, r) of all rows known."""
    return predicted_without(x, z, Psi, np.einsum("ij,ji->i", x, k), lambda rows: k[:, rows], accuracy)


@dataclass(frozen=True)
class RidgeSolver(ABC):
    """A way to Psi, with its options."""

    word: ClassVar[str]
    exact: ClassVar[bool] = True  # closed form, with leave-one-out at little cost

    @property
    def solves_sums(self) -> bool:
        """Whether sums over rows are all that it needs, see `Primal.of_sums`."""
        return False

    @abstractmethod
    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        """Bytes taken beyond X and Z, and what for."""

    def of_sums(self, sums: Any, rows_of: Any, remake: Any = None) -> Solve:
        """What `prepare` gives for rows that were summed already."""
        raise ParameterError(f"solver='{self.word}' cannot solve from sums over rows; use 'primal'.")

    @abstractmethod
    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool) -> Solve: ...

    def prepare(self, X: Any, Z: Any, n_jobs: int | None = None, once: bool = False) -> Solve:
        """What is common to all alphas; the result maps alpha ≥ 0 to a `Solution`. X and Z are dense or CSR.

        If that is asked for `once` only, memory is taken once, too.

        >>> import ripml.regression
        >>> X, Z = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])
        >>> ripml.regression.Primal().prepare(X, Z)(5.0).Psi
        array([[1.]])
        """
        n, d = X.shape
        needed, what = self.memory(n, d, Z.shape[1])
        remedy = "use solver='cg'" if self.exact else "use fewer dimensions or learners"
        require_memory(needed, what, remedy)
        return self._prepare(X, Z, n_jobs, once)
