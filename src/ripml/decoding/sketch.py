"""The sketch decodes itself: values of labels from ẑ, and least squares on a small support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """
    n, k = labels.shape
    out = np.zeros((len(epsilons), n, k), np.float32)

    def fill(part: slice) -> None:
        there = labels[part] >= 0
        Phi = columns(np.where(there, labels[part], 0).ravel()).reshape(*there.shape, -1) * there[..., None]
        gram, right = Phi @ Phi.transpose(0, 2, 1), Phi @ Z[part, :, None]
        for solved, epsilon in zip(out, epsilons, strict=True):
            shifted = gram.copy()
            shifted[:, np.arange(k), np.arange(k)] += np.float32(epsilon)
            solved[part] = np.linalg.solve(shifted, right)[..., 0]

    map_blocks(fill, blocks(n, max(1, _PAIRS // max(k, 1))), n_jobs)
    return out
