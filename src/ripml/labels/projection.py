"""Projection: z = Phi y/‖y‖₂, the paper's step 1, for F stacked matrices Phi.

`Projection` is the rule itself. `Embedder` applies it to many rows while it holds a limited number of columns of Phi,
and `LabelVectors` gives the columns of labels and the inner products ⟨Φ_l, ẑ⟩ of a predicted embedding with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.arrays import GrowingArray, as_half, from_half
from ripml.base.compiled import loops
from ripml.base.parallel import blocks, map_blocks, thread_count
from ripml.base.products import RoundedRows, column_counts
from ripml.labels.ensembles import COLUMN_BLOCK, GOLDEN, Ensemble, check_capacity, mix

__all__ = ["Embedder", "LabelVectors", "Projection", "kept_as"]

Keys = NDArray[np.uint64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_TABLE_BYTES = 1 << 30  # columns of Phi held at a time
_ROW_BLOCK = 2048  # rows embedded at a time by a thread
_LABEL_BLOCK = 512  # labels multiplied at a time
_FEW = 16  # embeddings for which the best labels are found without the values of all


@dataclass(frozen=True)
class Projection:
    """F matrices of one ensemble, stacked: y ↦ (Phi₁ y, …, Phi_F y), F·m numbers."""

    ensemble: Ensemble
    n_dims: int
    n_learners: int
    seed: int

    def check_capacity(self, n_labels: int) -> None:
        """Raise if the ensemble has fewer columns than there are labels."""
        check_capacity(self.ensemble, self.n_dims, n_labels)

    def learner(self, f: int) -> Projection:
        """Matrix f alone."""
        # Learner f has the seed mix(seed + f·golden), so that F learners are the first F of any larger number.
        return Projection(self.ensemble, self.n_dims, 1, (self.seed + f * int(GOLDEN)) % 2**64)

    def columns(self, keys: Keys, n_jobs: int | None = None) -> Floats:
        """The stacked columns of `keys`, (len(keys), F·m)."""
        out = np.empty((len(keys), self.n_learners * self.n_dims), np.float32)
        steps = [self.learner(f).seed for f in range(self.n_learners)]
        seeds = mix(np.array(steps, np.uint64)).tolist()

        def fill(rows: slice) -> None:
            for learner, seed in enumerate(seeds):
                part = slice(learner * self.n_dims, (learner + 1) * self.n_dims)
                out[rows, part] = self.ensemble.rule(keys[rows], self.n_dims, seed)

        map_blocks(fill, blocks(len(keys), COLUMN_BLOCK), n_jobs)
        return out

    def embed(self, Y: Any, keys: Keys, n_jobs: int | None = None) -> Floats:
        """Z = Y Phiᵀ with each row of Y scaled to length 1: (n, F·m) float32, in O(nnz(Y)·F·m).

        `Y` is CSR (n, L) with `keys[j]` the key of column j; a row without labels becomes zero.
        """
        Z = np.empty((Y.shape[0], self.n_learners * self.n_dims), np.float32)
        if Y.nnz < len(keys):  # the work then depends on the labels that occur, not on L
            used, place = np.unique(Y.indices, return_inverse=True)
            Y, keys = csr_array((Y.data, place, Y.indptr), shape=(Y.shape[0], len(used))), keys[used]
        Embedder(self, keys, column_counts(Y), n_jobs=n_jobs).fill(Z, Y)
        return Z


class Embedder:
    """Embeds rows of labels block by block, with at most `table_bytes` of columns of Phi in memory.

    `counts` (L,) is how often each label occurs. Where the columns of all labels that occur do not fit, those of the
    most frequent labels are kept, and the others are computed again for every block of rows.
    """

    def __init__(
        self,
        projection: Projection,
        keys: Keys,
        counts: NDArray[np.int64],
        table_bytes: int = _TABLE_BYTES,
        n_jobs: int | None = None,
    ) -> None:
        self._projection, self._keys, self._n_jobs = projection, keys, n_jobs
        capacity = max(2, table_bytes // (4 * projection.n_learners * projection.n_dims))
        kept = np.flatnonzero(counts)
        self._most: int | None = None  # entries of a block, where some columns are computed for it
        if len(kept) > capacity:
            kept = np.sort(kept[np.argsort(-counts[kept], kind="stable")[: 3 * capacity // 4]])
            self._most = max(1, capacity // 4 // thread_count(n_jobs))
        self._table = projection.columns(keys[kept], n_jobs)
        self._place = np.full(len(keys), -1, np.int32)
        self._place[kept] = np.arange(len(kept), dtype=np.int32)

    def fill(self, Z: Floats, Y: Any) -> None:
        """Write the embeddings of the rows of Y, CSR (n, L), to Z: (n, F·m), or (F, n, m) with the learners apart."""
        most = Y.nnz if self._most is None else self._most

        def fill(rows: slice) -> None:
            z = self._of_rows(Y, rows)
            if Z.ndim == 2:
                Z[rows] = z
            else:
                Z[:, rows] = z.reshape(len(z), len(Z), -1).transpose(1, 0, 2)

        map_blocks(fill, _row_blocks(Y.indptr, most), self._n_jobs)

    def _of_rows(self, Y: Any, rows: slice) -> Floats:
        ends = Y.indptr[rows.start : rows.stop + 1] - Y.indptr[rows.start]
        labels = Y.indices[Y.indptr[rows.start] : Y.indptr[rows.stop]]
        lengths = np.diff(ends)
        weights = np.repeat(np.maximum(lengths, 1) ** -0.5, lengths).astype(np.float32)
        place = self._place[labels]
        if self._most is None:
            return _weighted_sums(weights, place, ends, self._table)
        known = place >= 0  # whose columns are in the table
        known_ends = np.concatenate([[0], np.cumsum(known)])[ends]
        others, other_place = np.unique(labels[~known], return_inverse=True)
        made = self._projection.columns(self._keys[others], 1)
        out = _weighted_sums(weights[known], place[known], known_ends, self._table)
        out += _weighted_sums(weights[~known], other_place, ends - known_ends, made)
        return out


def _weighted_sums(weights: Floats, place: NDArray[Any], ends: NDArray[Any], table: Floats) -> Floats:
    """Σ weight·line of the lines of a table at these places, for the rows that end at `ends`."""
    compiled = loops()
    if compiled is None:
        return np.asarray(csr_array((weights, place, ends), shape=(len(ends) - 1, len(table))) @ table)
    out = np.empty((len(ends) - 1, table.shape[1]), np.float32)
    compiled.sparse_dense(ends, place, weights, table, out)
    return out


def _row_blocks(indptr: NDArray[Any], most: int) -> Iterator[slice]:
    """Consecutive blocks of at most `_ROW_BLOCK` rows and `most` entries, but of one row at least."""
    start, n = 0, len(indptr) - 1
    while start < n:
        limit = indptr.dtype.type(min(int(indptr[start]) + most, int(indptr[-1])))
        end = int(np.searchsorted(indptr, limit, side="right")) - 1
        end = min(max(end, start + 1), start + _ROW_BLOCK, n)
        yield slice(start, end)
        start = end


@dataclass(frozen=True)
class LabelVectors:
    """The columns of Phi of labels: from a table where that takes at most a gigabyte, else computed on demand.

    Where it would take up to two gigabytes, the table has them as float16.
    """

    projection: Projection
    keys: Keys
    _columns: GrowingArray | None = field(default=None, repr=False, compare=False)  # the table and what follows it

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the table, which is computed again."""
        return LabelVectors, (self.projection, self.keys)

    @cached_property
    def kept(self) -> Floats | NDArray[np.uint16] | None:
        """The columns of all labels, (L, M), in float32 or as bits of float16; None where they take too much memory."""
        if self._columns is not None:
            return self._columns.view[: len(self.keys)]
        kept = kept_as(len(self.keys), self.projection.n_dims * self.projection.n_learners)
        if kept != np.uint16:
            return None if kept is None else self.projection.columns(self.keys)
        table = np.empty((len(self.keys), self.projection.n_dims * self.projection.n_learners), np.uint16)
        for rows in blocks(len(table), _ROW_BLOCK * 8):
            table[rows] = _as_bits(self.projection.columns(self.keys[rows]))
        return table

    @property
    def table(self) -> Floats | None:
        """The columns of all labels, (L, M), where they are kept in float32."""
        return None if self.kept is None or self.kept.dtype != np.float32 else cast("Floats", self.kept)

    def reordered(self, order: Ints) -> LabelVectors:
        """Of the same labels in another order; the table is made again when it is needed."""
        return LabelVectors(self.projection, self.keys[order])

    def __call__(self, labels: Ints | slice) -> Floats:
        """The columns of these labels, (len(labels), M)."""
        if self.kept is not None:
            found: Any = self.kept[labels]
            return found if found.dtype == np.float32 else from_half(found)
        used, place = np.unique(np.arange(len(self.keys))[labels], return_inverse=True)
        return self.projection.columns(self.keys[used])[place]

    @cached_property
    def _last(self) -> Floats:
        """The columns of the last, incomplete block of labels, padded with zeros."""
        rest = len(self.keys) % _LABEL_BLOCK
        last = np.zeros((_LABEL_BLOCK, self.projection.n_learners * self.projection.n_dims), np.float32)
        last[:rest] = self(slice(len(self.keys) - rest, len(self.keys)))
        return last

    def values(self, Z: Floats) -> Floats:
        """⟨Φ_l, ẑ⟩ of all labels l, (n, L).

        Always by blocks of the same number of labels: the last bits of a product depend on the shape of its factors,
        and the value of one label must not depend on how many others there are.
        """
        L = len(self.keys)
        out = np.empty((len(Z), -(-L // _LABEL_BLOCK) * _LABEL_BLOCK), np.float32)
        for start in range(0, L, _LABEL_BLOCK):
            complete = start + _LABEL_BLOCK <= L
            columns = self(slice(start, start + _LABEL_BLOCK)) if complete else self._last
            np.matmul(Z, columns.T, out=out[:, start : start + _LABEL_BLOCK])
        return out[:, :L]

    def largest(self, Z: Floats, k: int, absent: Ints) -> Ints | None:
        """The k labels of the largest ⟨Φ_l, ẑ⟩ for a few ẑ, (n, k), without those that are `absent`.

        None where the values of all labels have to be computed for that.
        """
        if len(Z) > _FEW or loops() is None or self.table is None or k > len(self.keys) - len(absent):
            return None
        rows, longest = self._rounded
        penalty = np.zeros(len(self.keys))
        penalty[absent] = np.inf
        return rows.best(Z, penalty, longest, k, by_distance=False)[0]

    @cached_property
    def _rounded(self) -> tuple[RoundedRows, float]:
        """The table for a few queries, and the length of its longest line."""
        assert self.table is not None
        return RoundedRows(self.table), float(np.linalg.norm(self.table, axis=1).max(initial=0))

    def extended(self, keys: Keys) -> LabelVectors:
        """For more labels; `keys` begin with the present ones. A table that was computed is continued."""
        if "kept" not in vars(self) or self.kept is None:
            return LabelVectors(self.projection, keys)
        columns, n = self._columns, len(self.keys)
        if columns is None or columns.size != n:  # the memory behind the table is taken by another extension
            columns = GrowingArray(self.kept)
        new = self.projection.columns(keys[n:])
        columns.append(new if self.kept.dtype == np.float32 else _as_bits(new))
        return LabelVectors(self.projection, keys, columns)


def kept_as(n_labels: int, n_dims: int) -> type[np.float32 | np.uint16] | None:
    """The type of a table of the columns of all labels: float32, or the bits of float16; None for no table.

    >>> kept_as(100_000, 1024).__name__, kept_as(360_000, 1024).__name__, kept_as(10**6, 1024)
    ('float32', 'uint16', None)
    """
    return next((kind for kind in (np.float32, np.uint16) if n_labels * n_dims * kind().itemsize <= _TABLE_BYTES), None)


def _as_bits(columns: Floats) -> NDArray[np.uint16]:
    return as_half(columns, 1.0)[0].view(np.uint16)
