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

from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import IndexedEmbedding
from ripml.base.workspace import Workspace, release, row_slice
from ripml.labels.label_sets import LabelSets
from ripml.labels.projection import Embedder, Projection
from ripml.regression import Sums

__all__ = ["Entries", "embed_and_sum", "sums_by_cluster"]

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


def embed_and_sum(
    X: Any,
    Y: Any,
    labels: Any,
    projection: Projection,
    keys: Keys,
    counts: Ints,
    entries: Entries,
    cluster: Ints,
    summed: Sequence[bool],
    Z: Floats,
    workspace: Workspace,
    n_jobs: int | None,
) -> list[Sums | None]:
    """Write the embeddings of the label sets, CSR (e, L), to Z (F, e, m), and return the sums of clusters `summed`.

    `counts` (L,) has how often each label occurs. Where the columns of all learners do not fit into memory together, it
    is done a learner at a time. In memory rows take their embeddings from Z; in files, where that would be reading here
    and there, they are embedded once more in their order. The workspace keeps the sums so far, so that a pass that
    was interrupted goes on from its last block.
    """
    n_learners, e, m = Z.shape
    together = 4 * int(np.count_nonzero(counts)) * n_learners * m <= workspace.table_bytes
    groups = [range(n_learners)] if together else [range(f, f + 1) for f in range(n_learners)]
    sums: list[Sums | None] = []
    for group in groups:
        some = projection if together else projection.learner(group.start)
        embedder = Embedder(some, keys, counts, workspace.table_bytes, n_jobs)
        at = [f"embeddings-{group.start}", str(some), list(Z.shape)]
        if workspace.load_checkpoint(at) is None:
            for rows in blocks(e, workspace.rows_per_block(4 * len(group) * m, _ROW_BLOCK)):
                embedder.fill(Z[group.start : group.stop, rows], row_slice(labels, rows))
                release(*Z[group.start : group.stop, rows], labels.indices, labels.data)
            workspace.save_checkpoint(at, {})
        if not workspace.in_memory:
            at = [f"sums-{group.start}", str(some), *X.shape, e, list(summed)]
            made = _Rows(Y, embedder, len(group) * m)
            sums = _side_by_side(sums, _sum_rows(X, made, cluster, summed, at, workspace, n_jobs, gram=not sums))
            del made
        del embedder  # and its table, before the next one is made
        workspace.trim_memory()
    if workspace.in_memory:
        sums = _sum_rows(X, IndexedEmbedding(Z, entries.of_row), cluster, summed, ["sums"], workspace, n_jobs)
    return sums


@dataclass(frozen=True)
class _Rows:
    """Embeddings that are made of labels when they are asked for."""

    Y: Any
    embedder: Embedder
    n_targets: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.Y.shape[0], self.n_targets

    def __getitem__(self, rows: slice) -> Floats:
        z = np.empty((rows.stop - rows.start, self.n_targets), np.float32)
        self.embedder.fill(z, row_slice(self.Y, rows))
        release(self.Y.indices)
        return z


def _side_by_side(left: Sequence[Sums | None], right: Sequence[Sums | None]) -> list[Sums | None]:
    """The sums of some targets and of further ones of the same rows."""
    return [
        one if other is None else other if one is None
        else Sums(one.gram, np.hstack([one.moment, other.moment]), one.n_rows)
        for one, other in zip(left or [None] * len(right), right, strict=True)
    ]  # fmt: skip


def _sum_rows(
    X: Any,
    Z: Any,
    cluster: Ints,
    summed: Sequence[bool],
    at: list[Any],
    workspace: Workspace,
    n_jobs: int | None,
    gram: bool = True,
) -> list[Sums | None]:
    """The sums of each cluster that is `summed`, of rows of X and of Z (n, M), with or without XᵀX."""
    if not any(summed):
        return [None] * len(summed)
    d, n_targets = X.shape[1], Z.shape[1]
    height = workspace.rows_per_block(12 * (n_targets + (0 if scipy.sparse.issparse(X) else d)), _ROW_BLOCK)
    at = [*at, height]
    done, totals = _kept_sums(workspace, at, len(summed))
    # Sums are kept as often as they are no larger than what they sum.
    often = -(-(8 * d * (d + n_targets) * len(summed)) // (4 * height * (n_targets + d)))
    n_blocks = -(-X.shape[0] // height)
    for number, rows in enumerate(blocks(X.shape[0], height), 1):
        if number <= done:
            continue
        more = sums_by_cluster(X[rows], Z[rows], cluster[rows], summed, n_jobs, gram)
        totals = [_added(total, one) for total, one in zip(totals, more, strict=True)]
        release(*((X[rows],) if isinstance(X, np.ndarray) else (X.data, X.indices)))
        if number % often == 0 or number == n_blocks:
            _keep_sums(workspace, at, number, totals)
    return totals


def _added(total: Sums | None, more: Sums | None) -> Sums | None:
    if total is None or more is None:
        return total if more is None else more
    total += more
    return total


def _kept_sums(workspace: Workspace, at: list[Any], n: int) -> tuple[int, list[Sums | None]]:
    kept = workspace.load_checkpoint(at)
    if kept is None:
        return 0, [None] * n
    rows = kept["rows"]
    sums = [Sums(kept[f"gram{c}"], kept[f"moment{c}"], int(rows[c])) if rows[c] else None for c in range(n)]
    return int(kept["blocks"]), sums


def _keep_sums(workspace: Workspace, at: list[Any], n_blocks: int, sums: Sequence[Sums | None]) -> None:
    arrays = {"blocks": np.array(n_blocks), "rows": np.array([0 if s is None else s.n_rows for s in sums])}
    for c, one in enumerate(sums):
        if one is not None:
            arrays |= {f"gram{c}": one.gram, f"moment{c}": one.moment}
    workspace.save_checkpoint(at, arrays)


def sums_by_cluster(
    X: Any, Z: Any, cluster: Ints, summed: Sequence[bool], n_jobs: int | None, gram: bool = True
) -> list[Sums | None]:
    """The sums of the rows of each cluster that is `summed`, with or without XᵀX; None where there is no such row."""
    if len(summed) == 1:
        return [Sums.of(X, Z, n_jobs, gram=gram) if summed[0] else None]

    def of_cluster(c: int) -> Sums | None:
        rows = np.flatnonzero(cluster == c)
        return Sums.of(X[rows], Z[rows], 1, gram=gram) if summed[c] and len(rows) else None

    return map_blocks(of_cluster, range(len(summed)), n_jobs)
