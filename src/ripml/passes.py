"""The passes over the rows: label sets become embeddings, which are searched, and rows are summed with theirs.

The label sets of all clusters lie end to end, as *entries*: a set that rows of two clusters carry is there twice. What
ridge regression remembers of a cluster is a sum over its rows, so a pass needs a block of rows at a time and nothing of
the rows before. The same passes run over arrays in memory and over files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.ensembles import Embedder, Projection
from ripml.labels import LabelSets
from ripml.products import Taken
from ripml.resources import blocks, map_blocks
from ripml.ridge import Sums
from ripml.rooms import Room, release, row_slice

__all__ = ["Entries", "embed_entries", "sum_rows", "sums_by_cluster"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

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
        pairs, of_row, counts = np.unique(cluster * u + sets.of_row, return_inverse=True, return_counts=True)
        return cls(sets.first[pairs % u], counts, of_row, np.searchsorted(pairs, np.arange(n_clusters + 1) * u))


def embed_entries(
    labels: Any, projection: Projection, keys: Keys, counts: Ints, Z: Floats, room: Room, n_jobs: int | None
) -> None:
    """Write the embeddings of label sets, CSR (e, L), to Z (F, e, m).

    `counts` (L,) has how often each label occurs. Where the columns of all learners do not fit into memory together,
    it is done a learner at a time.
    """
    L, (n_learners, e, m) = int(np.count_nonzero(counts)), Z.shape
    together = 4 * L * n_learners * m <= room.table_bytes
    for group in [range(n_learners)] if together else [range(f, f + 1) for f in range(n_learners)]:
        at = ["embeddings", str(projection), group.start, e]
        if room.kept(at) is not None:
            continue
        some = projection if together else projection.learner(group.start)
        embedder = Embedder(some, keys, counts, room.table_bytes, n_jobs)
        for rows in blocks(e, room.rows_at_a_time(4 * len(group) * m, _ROW_BLOCK)):
            embedder.fill(Z[group.start : group.stop, rows], row_slice(labels, rows))
            release(*Z[:, rows], labels.indices, labels.data)
        room.keep(at, {})


def sum_rows(
    X: Any,
    Z: Floats,
    projection: Projection,
    entries: Entries,
    cluster: Ints,
    summed: Sequence[bool],
    room: Room,
    n_jobs: int | None,
) -> list[Sums | None]:
    """The sums of each cluster that is `summed`: of rows of X and their embeddings by `projection`, which are in Z.

    The room keeps what was summed so far, so that a pass that was interrupted goes on from its last block.
    """
    (n_learners, e, m), d = Z.shape, X.shape[1]
    if not any(summed):
        return [None] * len(summed)
    height = room.rows_at_a_time(12 * (n_learners * m + (0 if scipy.sparse.issparse(X) else d)), _ROW_BLOCK)
    at = ["sums", str(projection), *X.shape, e, list(summed), height]
    done, totals = _kept_sums(room, at, len(summed))
    # Sums are kept as often as they are no larger than what they sum.
    often = -(-(8 * d * (d + n_learners * m) * len(summed)) // (4 * height * (n_learners * m + d)))
    for number, rows in enumerate(blocks(X.shape[0], height), 1):
        if number <= done:
            continue
        taken = Taken(Z, entries.of_row[rows])
        more = sums_by_cluster(X[rows], taken, cluster[rows], summed, n_jobs)
        totals = [_added(total, one) for total, one in zip(totals, more, strict=True)]
        release(*Z, *((X[rows],) if isinstance(X, np.ndarray) else (X.data, X.indices)))
        if number % often == 0:
            _keep_sums(room, at, number, totals)
    return totals


def _added(total: Sums | None, more: Sums | None) -> Sums | None:
    if total is None or more is None:
        return total if more is None else more
    total += more
    return total


def _kept_sums(room: Room, at: list[Any], n: int) -> tuple[int, list[Sums | None]]:
    kept = room.kept(at)
    if kept is None:
        return 0, [None] * n
    rows = kept["rows"]
    sums = [Sums(kept[f"gram{c}"], kept[f"moment{c}"], int(rows[c])) if rows[c] else None for c in range(n)]
    return int(kept["blocks"]), sums


def _keep_sums(room: Room, at: list[Any], n_blocks: int, sums: Sequence[Sums | None]) -> None:
    arrays = {"blocks": np.array(n_blocks), "rows": np.array([0 if s is None else s.n_rows for s in sums])}
    for c, one in enumerate(sums):
        if one is not None:
            arrays |= {f"gram{c}": one.gram, f"moment{c}": one.moment}
    room.keep(at, arrays)


def sums_by_cluster(X: Any, Z: Any, cluster: Ints, summed: Sequence[bool], n_jobs: int | None) -> list[Sums | None]:
    """The sums of the rows of each cluster that is `summed`; None where there is no such row."""
    if len(summed) == 1:
        return [Sums.of(X, Z, n_jobs) if summed[0] else None]

    def of_cluster(c: int) -> Sums | None:
        rows = np.flatnonzero(cluster == c)
        return Sums.of(X[rows], Z[rows], 1) if summed[c] and len(rows) else None

    return map_blocks(of_cluster, range(len(summed)), n_jobs)
