"""The sketch decodes itself: values of labels from ẑ, and least squares on a small support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.compiled import loops
from ripml.base.parallel import blocks, map_blocks

__all__ = ["least_squares", "sketch_values"]

_PAIRS = 2048  # columns of Phi held at a time by a thread

Columns = Callable[[Any], NDArray[np.float32]]  # labels, as numbers or a slice ↦ their columns of Phi


def sketch_values(
    Z: Any, row: NDArray[np.int64], label: NDArray[np.int64], columns: Columns, n_jobs: int | None = None
) -> NDArray[np.float32]:
    """⟨Φ_l, ẑ⟩ for pairs (row, label): an unbiased sketch of what the regression would say of label l itself."""
    out = np.empty(len(row), np.float32)

    def fill(part: slice) -> None:
        out[part] = np.einsum("ij,ij->i", columns(label[part]), Z[row[part]])

    map_blocks(fill, blocks(len(row), _PAIRS), n_jobs)
    return out


def least_squares(
    Z: Any, labels: NDArray[np.int64], columns: Columns, epsilons: Sequence[float], n_jobs: int | None = None
) -> NDArray[np.float32]:
    """(Φ_SᵀΦ_S + εI)⁻¹Φ_Sᵀẑ on the candidates S of each row, for each ε, (E, n, K): the sketch without its cross-talk.

    With the restricted isometry Φ_SᵀΦ_S is close to I, so the system is well posed. `labels` (n, K) is −1 for none.
    Of more candidates than dimensions the same values are Φ_Sᵀ(Φ_SΦ_Sᵀ + εI)⁻¹ẑ, a system of m equations and not of K.
    """
    n, k = labels.shape
    out = np.zeros((len(epsilons), n, k), np.float32)
    compiled = loops()
    if compiled is not None and k <= Z.shape[1]:
        filled = labels >= 0
        used, place = np.unique(labels[filled], return_inverse=True)
        numbers = np.full(labels.shape, -1, np.int64)
        numbers[filled] = place
        Phi = columns(used)
        for solved, epsilon in zip(out, epsilons, strict=True):
            compiled.least_squares(numbers, Phi, Z, np.float32(epsilon), solved)
        return out

    def fill(part: slice) -> None:
        there = labels[part] >= 0
        Phi = columns(np.where(there, labels[part], 0).ravel()).reshape(*there.shape, -1) * there[..., None]
        wide = k > Phi.shape[2]
        right = Z[part, :, None] if wide else Phi @ Z[part, :, None]
        gram = Phi.transpose(0, 2, 1) @ Phi if wide else Phi @ Phi.transpose(0, 2, 1)
        diagonal = np.arange(gram.shape[1])
        for solved, epsilon in zip(out, epsilons, strict=True):
            shifted = gram.copy()
            shifted[:, diagonal, diagonal] += np.float32(epsilon)
            found = np.linalg.solve(shifted, right)
            solved[part] = (Phi @ found if wide else found)[..., 0]

    map_blocks(fill, blocks(n, max(1, _PAIRS // max(k, 1))), n_jobs)
    return out
