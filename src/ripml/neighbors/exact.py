"""Exact search: blocked matrix products, a selection that reads each product once, and final float64 distances.

‖z − q‖² = ‖q‖² − 2(⟨z, q⟩ − ½‖z‖²), so the nearest rows have the largest score ⟨z, q⟩ − ½‖z‖². Scores are made in
float32 panels of rows × queries, whatever the rows are stored in. Within a panel, rows are split into groups of
`_GROUP`; only groups whose maximum reaches the bound of their query are searched. The bound is a k-th largest score
so far, less the rounding error: of the panel's maxima where too many pass, as in the first panel, and of the
candidates whenever many have accumulated. The distances of candidates are computed again in float64 from differences:
the answer, ties included, does not depend on blocks, threads or the BLAS. Where float32 would overflow or underflow,
scores are made in float64.

Many queries are split over threads; for few queries the rows are split. A removed row has ½‖z‖² = ∞, hence the score
−∞. Embeddings in several pieces (blocks of a mapped file, workers of a cluster) are searched piece by piece, and
`merge_nearest` keeps the k nearest of all pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray, from_half
from ripml.base.compiled import loops
from ripml.base.errors import DataError, ParameterError
from ripml.base.parallel import blocks, map_blocks, thread_count
from ripml.base.products import RoundedRows
from ripml.base.workspace import release
from ripml.neighbors.base import Floats, Index, Ints, Neighbours, Searcher, Stored

__all__ = ["BlockwiseExact", "Exact", "ExactSearcher", "merge_nearest"]

_QUERIES = 1024  # a panel of scores is at most _QUERIES × _PANEL float32, 4 MB per thread: more rows for fewer queries
_PANEL = 1024
_PRODUCT = 2048  # rows of one product: few enough that they are still in the cache when their norms are taken off
_GROUP = 32
_FEW = 16  # queries that are compared one by one where loops are compiled
_SHARE = 1 << 22  # multiplications per thread at least: a millisecond or two
_CANDIDATES = 1 << 20  # pairs (query, row) kept before they are cut down to the k nearest: many rows may tie
_CELLS = 1 << 22  # differences held at a time in float64: 32 MB

Found = tuple[Ints, Ints, NDArray[Any]]  # queries, places of rows, and their scores or squared distances


@dataclass(frozen=True)
class Exact(Index):
    """Compare each query with every row.

    >>> searcher = Exact().build(np.array([[0.0], [3.0], [1.0]], np.float32))
    >>> ids, distances = searcher.query(np.array([[0.9]], np.float32), 2)
    >>> ids.tolist(), distances.round(2).tolist()
    ([[2, 0]], [[0.01, 0.81]])
    """

    def build(self, Z: Stored, n_jobs: int | None = None) -> ExactSearcher:
        """Keep Z, without a copy where it is C-contiguous, and half the squared row norms."""
        half_norms = _half_norms(Z, n_jobs)
        # A single query reads rows that lie end to end more than twice as fast as slices of wider rows.
        return ExactSearcher(np.ascontiguousarray(Z), half_norms)


class ExactSearcher(Searcher):
    """The rows Z (n, m) and ½‖z‖² (n,), which is ∞ for removed rows."""

    def __init__(self, Z: Stored, half_norms: NDArray[np.float64]) -> None:
        self.Z, self.half_norms, self.n_rows = Z, half_norms, len(Z)
        self._growing = GrowingArray(half_norms)  # what `half_norms` is the start of
        self._longest: float | None = None  # max ‖z‖, computed when first needed
        self._rounded = RoundedRows(Z)  # for a few queries at a time

    def changed(self, Z: Stored, removed: Ints) -> ExactSearcher:
        """Share Z where it is C-contiguous. One more row costs reading that row; a removed row costs a copy of all
        ½‖z‖².

        >>> Z = np.array([[0.0], [3.0], [1.0]], np.float32)
        >>> before = Exact().build(Z[:2])
        >>> after = before.changed(Z, np.array([0]))
        >>> [searcher.query(np.zeros((1, 1), np.float32), 2)[0].tolist() for searcher in (before, after)]
        [[[0, 1]], [[2, 1]]]
        """
        n, m = self.Z.shape
        if Z.ndim != 2 or Z.shape[1] != m or Z.dtype != self.Z.dtype:
            raise DataError(
                f"the embeddings to be searched must be {self.Z.dtype} of shape (n, {m}); got {Z.dtype} of shape "
                f"{Z.shape}."
            )
        if len(Z) < n:
            raise DataError(f"the embeddings to be searched must begin with the {n} present ones; got {len(Z)}.")
        new = _half_norms(Z[n:], 1)
        # Append to the memory that earlier searchers share, unless another searcher was made from this one before.
        growing = self._growing if self._growing.size == n else GrowingArray(self.half_norms)
        half_norms = growing.append(new)
        longest: float | None = max(self._reach(), _longest(new))
        removed = _check_removed(removed, half_norms)
        if len(removed):
            if _longest(half_norms[removed]) == longest:
                longest = None
            half_norms = half_norms.copy()
            half_norms[removed] = np.inf
            growing = GrowingArray(half_norms)
        other = ExactSearcher(np.ascontiguousarray(Z), half_norms)
        other._growing, other._longest, other._rounded = growing, longest, self._rounded.followed(other.Z)
        other.n_rows = self.n_rows + len(new) - len(removed)
        return other

    def packed(self, places: Any) -> ExactSearcher:
        """Search of the rows at these places alone, which are numbered from 0."""
        return ExactSearcher(self.Z[places], self.half_norms[places])

    def count_left(self, places: Any = slice(None)) -> int:
        """How many of the rows at these places are not removed."""
        return int(np.count_nonzero(np.isfinite(self.half_norms[places])))

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> Neighbours:
        """The k nearest rows for each row of Q, (q, k), and their squared distances."""
        if not 1 <= k <= self.n_rows:
            raise ParameterError(f"`k` must be from 1 to {self.n_rows}, the rows that can be found; got {k!r}.")
        if not np.isfinite(Q).all():
            raise DataError("the embeddings to search for must be finite; got NaN or infinity.")
        ids, distances = np.empty((len(Q), k), np.int64), np.empty((len(Q), k))
        if len(Q) <= _FEW and self.Z.dtype == np.float32 and loops() is not None and self.in_usual_range(Q):
            return self._rounded.best(Q, self.half_norms, self._reach(), k, by_distance=True)
        queries = blocks(len(Q), -(-len(Q) // max(1, -(-len(Q) // _QUERIES))) or 1)
        threads = thread_count(n_jobs)
        shares = 1 if len(queries) % threads == 0 else min(threads, max(1, len(Q) * self.Z.size // _SHARE))
        parts = blocks(len(self.Z), -(-len(self.Z) // shares))
        found = map_blocks(lambda it: self.nearest(Q[it[0]], k, it[1]), itertools.product(queries, parts), n_jobs)
        for i, block in enumerate(queries):
            share = found[i * len(parts) : (i + 1) * len(parts)]
            query, place, distance = share[0]
            if len(share) > 1:
                query, place, distance = _joined(share)
                first = _first(k, query, distance, place)
                place, distance = place[first], distance[first]
            ids[block], distances[block] = place.reshape(-1, k), distance.reshape(-1, k)
        return ids, distances

    def in_usual_range(self, Q: Floats) -> bool:
        """Whether queries and rows are far from the ends of the range of float32."""
        largest = np.abs(Q).max(axis=1, initial=0)
        return bool(1e-15 < self._reach() < 1e15 and ((largest > 1e-15) & (largest < 1e15)).all())

    def _reach(self) -> float:
        """max ‖z‖ of the rows that are not removed."""
        if self._longest is None:
            self._longest = _longest(self.half_norms)
        return self._longest

    def nearest(self, Q: Floats, k: int, part: slice) -> Found:
        """The k nearest rows of a part for each query, or all if they are fewer: queries, places, squared distances."""
        length, longest = np.linalg.norm(Q.astype(np.float64), axis=1), self._reach()
        scale = length * longest + longest**2 / 2
        dtype = np.float32 if scale.min() > 1e-30 and length.max() + longest < 1e15 else np.float64
        # Twice a bound on the error of a score, (m + 2) eps (‖q‖ max‖z‖ + ½ max‖z‖²), and on that of a float64
        # distance, so that all rows whose distances may be equal are candidates.
        error = np.finfo(dtype).eps * scale + np.finfo(np.float64).eps * (length + longest) ** 2
        margin = (2 * (Q.shape[1] + 2) * error).astype(dtype)
        wide_Q = np.ascontiguousarray(Q, dtype)

        height = min(part.stop - part.start, max(1, _PANEL * _QUERIES // len(Q)))
        group = max(1, min(_GROUP, height // (4 * k)))  # of the first panel, which makes the bound
        scores = np.empty((height + _GROUP, len(Q)), dtype)
        bound = np.full(len(Q), -np.inf, dtype)
        n_found, limit = 0, 4 * k * len(Q)
        found: list[Found] = []
        for start in range(part.start, part.stop, height):
            stop = min(start + height, part.stop)
            self._fill(scores, wide_Q, start, stop)
            padded = -(-(stop - start) // group) * group
            scores[stop - start : padded] = -np.inf
            grouped = scores[:padded].reshape(group, -1, len(Q))  # group g holds rows g, g + padded/group, …
            maxima = grouped.max(axis=0)
            passing = maxima >= bound
            if np.count_nonzero(passing) > 2 * k * len(Q) and len(maxima) >= k:
                np.maximum(bound, np.partition(maxima, -k, axis=0)[-k] - margin, out=bound)
                passing = maxima >= bound
            column, query = np.divmod(np.flatnonzero(passing), len(Q))
            values = grouped[:, column, query]
            member, hit = np.nonzero((values >= bound[query]) & (values > -np.inf))  # neither padding nor removed
            found.append((query[hit], start + member * len(maxima) + column[hit], values[member, hit]))
            group = _GROUP
            n_found += len(hit)
            if n_found > limit or stop == part.stop:
                query, place, value = _joined(found)
                order, rank = _ranked(query, -value)
                last = order[rank == k - 1]
                bound[query[last]] = np.maximum(bound[query[last]], value[last] - margin[query[last]])
                kept = value >= bound[query]
                query, place, value = query[kept], place[kept], value[kept]
                if len(query) > _CANDIDATES or stop == part.stop:
                    distance = self.distances(Q, query, place, _CELLS)
                    first = _first(k, query, distance, place)
                    query, place, value, distance = query[first], place[first], value[first], distance[first]
                found = [(query, place, value)]
                n_found, limit = len(query), max(limit, 2 * len(query))
        return query, place, distance

    def _fill(self, scores: NDArray[Any], Q: NDArray[Any], start: int, stop: int) -> None:
        """Write ⟨z, q⟩ − ½‖z‖² of rows start … stop to the first rows of `scores`."""
        Z, half_norms = self.Z, self.half_norms
        for first in range(start, stop, _PRODUCT):
            rows = slice(first, min(first + _PRODUCT, stop))
            out = scores[rows.start - start : rows.stop - start]
            np.matmul(_widened(Z[rows], scores.dtype), Q.T, out=out)
            out -= half_norms[rows, None].astype(scores.dtype)

    def distances(self, Q: Floats, query: Ints, place: Ints, cells: int) -> NDArray[np.float64]:
        """Squared distances of pairs (query, row) from float64 differences, of which `cells` are held at a time."""
        distance = np.empty(len(place))
        compiled = loops()
        if compiled is not None and self.Z.dtype == np.float32:  # as `RoundedRows` does
            compiled.squared_distances(self.Z, Q, place, query, distance)
            return distance
        for part in blocks(len(place), max(1, cells // self.Z.shape[1])):
            difference = self.Z[place[part]].astype(np.float64)
            difference -= Q[query[part]]
            distance[part] = np.einsum("ij,ij->i", difference, difference)
        return distance


def _joined(found: list[Found]) -> Found:
    query, place, value = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return query, place, value


def _ranked(query: Ints, *keys: NDArray[Any]) -> tuple[Ints, Ints]:
    """The order of pairs by query, then by keys, and the rank within its query of each in that order."""
    order = np.lexsort(keys[::-1]) if len(keys) > 1 else np.argsort(keys[0])
    short = query.astype(np.uint16)  # queries come in blocks of _QUERIES; NumPy sorts 16 bits by their digits
    order = order[np.argsort(short[order], kind="stable")]
    counts = np.bincount(short)
    starts = np.cumsum(counts) - counts
    return order, np.arange(len(order)) - starts[short[order]]


def _first(k: int, query: Ints, *keys: NDArray[Any]) -> Ints:
    """The k first pairs of each query by keys, in that order."""
    order, rank = _ranked(query, *keys)
    return order[rank < k]


def _half_norms(Z: Stored, n_jobs: int | None) -> NDArray[np.float64]:
    """½‖z‖² of rows, which must be finite."""
    half_norms = np.empty(len(Z))

    def fill(rows: slice) -> None:
        wide = Z[rows].astype(np.float64)
        half_norms[rows] = np.einsum("ij,ij->i", wide, wide) / 2

    map_blocks(fill, blocks(len(Z), max(1, _CELLS // max(1, Z.shape[1]))), n_jobs)
    if not np.isfinite(half_norms).all():
        raise DataError("the embeddings to be searched must be finite; got NaN or infinity.")
    return half_norms


def _check_removed(rows: Ints, half_norms: NDArray[np.float64]) -> Ints:
    """The numbers of rows to remove; DataError unless they are different and none is removed already."""
    rows = np.asarray(rows, np.int64)
    present = (rows >= 0) & (rows < len(half_norms))
    present[present] = np.isfinite(half_norms[rows[present]])
    if not present.all():
        raise DataError(f"row {rows[~present][0]} cannot be removed: it does not exist, or is removed already.")
    if len(np.unique(rows)) < len(rows):
        raise DataError("a row can be removed only once; got the same number twice.")
    return rows


def _longest(half_norms: NDArray[np.float64]) -> float:
    """max ‖z‖ of rows that are not removed."""
    return float(np.sqrt(2 * half_norms.max(where=np.isfinite(half_norms), initial=0)))


def _widened(Z: Stored, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows as `dtype`."""
    return from_half(Z) if Z.dtype == np.float16 and dtype == np.float32 else Z.astype(dtype, copy=False)


# -------------------------------------------------------------------------------------------- rows in several pieces


def merge_nearest(pieces: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest of the neighbours found in each piece, ties by the lower number.

    >>> one, other = (np.array([[0, 1]]), np.array([[1.0, 4.0]])), (np.array([[2]]), np.array([[2.0]]))
    >>> merge_nearest([one, other], 2)[0].tolist()
    [[0, 2]]
    """
    ids, distances = (np.concatenate(arrays, axis=1) for arrays in zip(*pieces, strict=True))
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)


@dataclass(frozen=True)
class BlockwiseExact(Index):
    """Exact search of a mapped file, `n_rows` rows at a time, whose pages are then dropped."""

    n_rows: int = 65536

    def build(self, Z: Stored, n_jobs: int | None = None) -> Searcher:
        """Keep a reference to Z."""
        return _BlockwiseSearcher(Z, self.n_rows)


class _BlockwiseSearcher(Searcher):
    def __init__(self, Z: Stored, height: int) -> None:
        self.n_rows, self._Z, self._height = len(Z), Z, height

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> Neighbours:
        found: list[Neighbours] = []
        for rows in blocks(self.n_rows, self._height):
            ids, distances = Exact().build(self._Z[rows], n_jobs).query(Q, min(k, rows.stop - rows.start), n_jobs)
            found = [merge_nearest([*found, (ids + rows.start, distances)], k)]
            release(self._Z[rows])
        return found[0]
