"""One pass over the rows: their labels become embeddings, which are laid down where they are searched and summed with
their features.

The label sets of all clusters lie end to end, as *entries*: a set that rows of two clusters carry is there twice. What
ridge regression remembers of a cluster is a sum over its rows, so a pass needs a block of rows at a time and nothing of
the rows before. The same pass runs over arrays in memory, over files, and over the partitions of a cluster of machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.ensembles import Embedder
from ripml.labels import LabelSets
from ripml.resources import blocks, map_blocks
from ripml.ridge import Sums
from ripml.rooms import Room, release, row_slice

__all__ = ["Entries", "embed_and_sum", "sums_by_cluster"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ROW_BLOCK = 65536  # rows of a block, or fewer where memory is short


@dataclass(frozen=True)
class Entries:
    """The label sets of all clusters, end to end."""

    first: Ints  # (e,) a row that carries the set
    counts: Ints  # (e,) rows of the cluster that do
    of_row: Ints  # (n,)
    ends: Ints  # (C + 1,) where each cluster starts, and the end

    @classmethod
    def of(cls, sets: LabelSets, cluster: Ints, n_clusters: int) -> Entries:
        """Those of rows in these clusters (n,)."""
        u = len(sets.first)
        if n_clusters == 1:
            return cls(sets.first, sets.counts, sets.of_row, np.array([0, u]))
        pairs, first, of_row, counts = np.unique(
            cluster * u + sets.of_row, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(first, counts, of_row, np.searchsorted(pairs, np.arange(n_clusters + 1) * u))


def embed_and_sum(
    X: Any,
    Y: Any,
    embedder: Embedder,
    entries: Entries,
    cluster: Ints,
    summed: Sequence[bool],
    Z: Floats,
    room: Room,
    n_jobs: int | None,
) -> list[Sums | None]:
    """Write the embeddings of all entries to Z (F, e, m), and return the sums of each cluster that is `summed`.

    The room keeps what was summed so far, so that a pass that was stopped goes on from its last block.
    """
    n_learners, _, m = Z.shape
    height = room.rows_at_a_time(4 * n_learners * m + (0 if scipy.sparse.issparse(X) else 12 * X.shape[1]), _ROW_BLOCK)
    done, totals = room.kept_sums(len(summed))
    for number, rows in enumerate(blocks(Y.shape[0], height)):
        if number < done:
            continue
        z = np.empty((rows.stop - rows.start, n_learners * m), np.float32)
        embedder.fill(z, row_slice(Y, rows))
        of_row = entries.of_row[rows]
        new = np.flatnonzero(entries.first[of_row] == np.arange(rows.start, rows.stop))
        for Z_of_learner, columns in zip(Z, np.split(z, n_learners, axis=1), strict=True):
            Z_of_learner[of_row[new]] = columns[new]
        more = sums_by_cluster(X[rows], z, cluster[rows], summed, n_jobs)
        totals = [_added(total, one) for total, one in zip(totals, more, strict=True)]
        release(Z, *((X[rows],) if isinstance(X, np.ndarray) else (X.data, X.indices)), Y.indices)
        room.keep_sums(number + 1, totals)
    return totals


def _added(total: Sums | None, more: Sums | None) -> Sums | None:
    if total is None or more is None:
        return total if more is None else more
    total += more
    return total


def sums_by_cluster(X: Any, Z: Floats, cluster: Ints, summed: Sequence[bool], n_jobs: int | None) -> list[Sums | None]:
    """The sums of the rows of each cluster that is `summed`; None where there is no such row."""
    if len(summed) == 1:
        return [Sums.of(X, Z, n_jobs) if summed[0] else None]

    def of_cluster(c: int) -> Sums | None:
        rows = np.flatnonzero(cluster == c)
        return Sums.of(X[rows], Z[rows], 1) if summed[c] and len(rows) else None

    return map_blocks(of_cluster, range(len(summed)), n_jobs)
