"""Rows whose features are equal to those of another row.

The copy of a row that is left out tells its labels: a file that holds every row twice would show a precision of 100 %.
So what is chosen and measured on left-out rows is chosen on rows that have no copy among the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks
from ripml.base.workspace import release_rows, row_slice
from ripml.labels.ensembles import GOLDEN, mix
from ripml.model.features import is_empty

__all__ = ["Copies"]

Ints = NDArray[np.int64]

_ROWS = 8192  # that are hashed at a time


@dataclass(frozen=True)
class Copies:
    """Which rows are equal, by a hash of 64 bits. Rows without features say nothing of each other, so they are not.

    >>> copies = Copies.of(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    >>> copies.n_repeated, copies.single.tolist(), copies.first.tolist(), copies.repeated.tolist()
    (1, [False, True, False], [0, 1], [2])
    """

    first: Ints  # rows that repeat none before them
    repeated: Ints  # the others
    single: NDArray[np.bool_]  # (n,), rows that occur once
    group: Ints  # (n,) the place in `first` of the row that each is equal to

    @classmethod
    def of(cls, X: Any) -> Copies:
        """Those among feature rows (n, d), dense or CSR."""
        hashes, filled = _hashes(X)
        _, first, group, counts = np.unique(hashes[filled], return_index=True, return_inverse=True, return_counts=True)
        single, is_first = np.ones(len(hashes), bool), np.ones(len(hashes), bool)
        single[filled] = counts[group] == 1
        is_first[filled] = False
        is_first[filled[first]] = True
        equal = np.arange(len(hashes))  # the first row that each is equal to
        equal[filled] = filled[first][group]
        return cls(np.flatnonzero(is_first), np.flatnonzero(~is_first), single, np.cumsum(is_first)[equal] - 1)

    @property
    def n_repeated(self) -> int:
        """Rows that repeat an earlier one."""
        return len(self.repeated)

    def singles_first(self, rank: Ints) -> Ints:
        """Ranks (n,) in the same order, but that of rows which occur several times comes after all others.

        >>> Copies.of(np.array([[1.0], [2.0], [1.0], [3.0]])).singles_first(np.array([0, 3, 2, 1])).tolist()
        [2, 1, 3, 0]
        """
        out = np.empty_like(rank)
        out[np.lexsort((rank, ~self.single))] = np.arange(len(rank))
        return out


def _hashes(X: Any) -> tuple[NDArray[np.uint64], Ints]:
    """A number for each row, which is the same for equal rows, and the rows that have features."""
    out, empty = np.empty(X.shape[0], np.uint64), np.empty(X.shape[0], bool)
    column = mix(np.arange(1, X.shape[1] + 1, dtype=np.uint64) * GOLDEN)
    for rows in blocks(X.shape[0], _ROWS):
        part = row_slice(X, rows)
        sparse = scipy.sparse.issparse(part)
        values = part.data if sparse else np.asarray(part)
        bits = values.view(f"u{values.itemsize}").astype(np.uint64)
        mixed = np.where(values != 0, mix(bits ^ (column[part.indices] if sparse else column)), np.uint64(0))
        if sparse:
            total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
            out[rows] = total[part.indptr[1:]] - total[part.indptr[:-1]]
        else:
            out[rows] = mixed.sum(axis=1, dtype=np.uint64)
        empty[rows] = is_empty(part)
        release_rows(part)
    return out, np.flatnonzero(~empty)
