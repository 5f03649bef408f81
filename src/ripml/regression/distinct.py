"""Training rows of which copies count as one: what a regression leaves out together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

__all__ = ["DistinctRows"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DistinctRows:
    """The u distinct feature rows of n training rows.

    A row that occurs c times is √c times the row and its mean target to a ridge regression: leaving that out leaves out
    all copies.
    """

    X: Any  # (u, d)
    counts: Ints  # (u,)
    ordered: Ints  # (n,) the places of all rows, copies side by side
    embed: Callable[[Any], Any]  # labels, CSR (u, L), ↦ their targets (u, M)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def repeated(self) -> bool:
        """Whether any row occurs several times."""
        return len(self) < len(self.ordered)

    @property
    def roots(self) -> Floats:
        """√c, (u,)."""
        return np.sqrt(self.counts).astype(np.float32)

    def mean(self, rows: Any, numbers: Ints) -> Any:
        """The mean of `rows[numbers]`, CSR or dense, over the copies of each distinct row; `numbers` as `ordered`.

        >>> rows = DistinctRows(None, np.array([2, 1]), np.array([0, 2, 1]), lambda labels: labels)
        >>> rows.mean(np.array([[1.0], [5.0], [3.0]], np.float32), rows.ordered)
        array([[2.], [5.]], dtype=float32)
        """
        n, u = len(numbers), len(self)
        if n == u:
            return rows[numbers]
        weights = np.repeat(1 / self.counts, self.counts).astype(np.float32)
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        return scipy.sparse.csr_array((weights, np.arange(n), ends), shape=(u, n)) @ rows[numbers]

    def scaled(self, rows: Any) -> Any:
        """Rows (u, k), dense or CSR, times √c each."""
        if not self.repeated:
            return rows
        if not scipy.sparse.issparse(rows):
            return rows * self.roots[:, None]
        scaled = rows.copy()
        scaled.data *= np.repeat(self.roots, np.diff(rows.indptr))
        return scaled
