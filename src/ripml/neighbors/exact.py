"""Exact search: blocked matrix products, a selection that reads each product once, and a float64 verdict.

‖z − q‖² = ‖q‖² − 2(⟨z, q⟩ − ½‖z‖²), so the nearest rows have the largest score ⟨z, q⟩ − ½‖z‖². Scores are made in
float32 panels of rows × queries, whatever the rows are stored in. Within a panel, rows are dealt into groups of
`_GROUP`; only groups whose maximum reaches the bound of their query are looked into. The bound is a k-th largest score
of what was seen, less the rounding error: of the panel's maxima where too many pass, as in the first panel, and of the
candidates whenever they have piled up. Candidates have their distances computed again in float64 from the differences:
the answer, ties included, does not depend on blocks, threads or the BLAS. Where float32 would overflow or underflow,
scores are made in float64.

Many queries are split over threads, few queries have the rows split. A removed row gets ½‖z‖² = ∞, hence the score −∞,
and is dropped from memory when it is one of more than half; where numbers are to stay places, as in `changed`, never.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray
from ripml.base.errors import DataError, ParameterError
from ripml.base.parallel import blocks, map_blocks, thread_count
from ripml.base.workspace import release
from ripml.neighbors.base import Arrays, Finder, Floats, Index, Ints, Searcher, Stored

__all__ = ["BlockwiseExact", "Exact", "ExactSearcher", "merge_nearest"]

_QUERIES = 1024  # a panel of scores is at most _QUERIES × _PANEL float32, 4 MB a thread: more rows for fewer queries
_PANEL = 1024
_PRODUCT = 2048  # rows of one product: few enough that they are still in the cache when their norms are taken off
_GROUP = 32
_SHARE = 1 << 22  # multiplications that are worth a thread of their own: a millisecond or two
_CANDIDATES = 1 << 20  # pairs (query, row) kept before they are cut down to the k nearest: many rows may tie
_VERDICT_CELLS = 1 << 22  # differences held at a time in float64: 32 MB

Neighbours = tuple[Ints, NDArray[np.float64]]  # ids and squared distances, (q, k) each, nearest first
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
        """Remember Z, in place where its rows lie end to end, and half the squared row norms."""
        half_norms = _half_norms(Z, "searched", n_jobs)
        # A single query reads rows that lie end to end more than twice as fast as slices of wider rows.
        return ExactSearcher(np.ascontiguousarray(Z), half_norms, np.arange(len(Z) + 1))

    def restore(self, Z: Stored, arrays: Arrays, n_jobs: int | None = None) -> ExactSearcher:
        """As built over Z, with the numbers that the rows had; Z has those that are there, by their numbers."""
        searcher = self.build(Z, n_jobs)
        if not arrays:
            return searcher
        numbers = arrays.get("numbers", np.empty(0))
        fitting = set(arrays) == {"numbers"} and numbers.dtype == np.int64 and numbers.shape == (len(Z) + 1,)
        if not fitting or numbers[0] < 0 or (numbers[1:] <= numbers[:-1]).any():
            raise ValueError("the numbers of the rows do not fit")
        return ExactSearcher(searcher.Z, searcher.half_norms, np.array(numbers))


class ExactSearcher(Searcher):
    """Rows Z (n, m) in the order of their numbers, and ½‖z‖² (n,), which is ∞ for those removed."""

    def __init__(self, Z: Stored, half_norms: NDArray[np.float64], numbers: Ints) -> None:
        """`numbers` (n + 1,) increase: of the rows, then the one to be given next."""
        self.n_rows = len(Z)
        self._next = int(numbers[-1])
        self._columns = {"Z": Z, "half_norms": half_norms, "numbers": numbers[:-1]}
        self._size = len(Z)  # rows in use, removed ones included; there may be room for more
        self._longest: float | None = None
        self._shared: dict[str, GrowingArray] = {}  # columns that searchers made by `changed` continue

    @property
    def Z(self) -> Stored:
        """The rows (n, m) that are held, those removed but not yet dropped included."""
        return self._columns["Z"][: self._size]

    @property
    def half_norms(self) -> NDArray[np.float64]:
        """½‖z‖² of each, ∞ if removed."""
        return self._columns["half_norms"][: self._size]

    @property
    def numbers(self) -> Ints:
        """The number of each."""
        return self._columns["numbers"][: self._size]

    @property
    def shared(self) -> bool:
        """Whether another searcher has the same rows, so that these must stay."""
        return bool(self._shared)

    # ---------------------------------------------------------------------------------------------- adding, removing

    def add(self, Z: Stored) -> Ints:
        """Append rows; room is doubled when it runs out, so that one by one costs little more than all at once.

        >>> searcher = Exact().build(np.zeros((2, 1), np.float32))
        >>> searcher.add(np.ones((1, 1), np.float32)).tolist()
        [2]
        """
        self._check_unshared()
        self._check_alike(Z, "added")
        numbers = np.arange(self._next, self._next + len(Z))
        more = {"Z": Z, "half_norms": _half_norms(Z, "added", 1), "numbers": numbers}
        size = self._size + len(Z)
        if size > len(self._columns["Z"]):
            for name, column in self._columns.items():
                room = np.empty((max(size, 2 * len(column)), *column.shape[1:]), column.dtype)
                room[: self._size] = column[: self._size]
                self._columns[name] = room
        if size > self._size:  # what was built on is not written to, not even nothing
            for name, column in self._columns.items():
                column[self._size : size] = more[name]
        self._size, self._next, self._longest = size, self._next + len(Z), None
        self.n_rows += len(Z)
        return numbers

    def remove(self, rows: Ints) -> None:
        """Mark rows as removed; when more than half are, they are dropped.

        >>> searcher = Exact().build(np.zeros((3, 1), np.float32))
        >>> searcher.remove(np.array([0]))
        >>> searcher.query(np.zeros((1, 1), np.float32), 2)[0].tolist()
        [[1, 2]]
        """
        self._check_unshared()
        self.half_norms[self._places(rows)] = np.inf
        self.n_rows -= len(rows)
        self._longest = None
        if 2 * self.n_rows < self._size:
            kept = np.isfinite(self.half_norms)
            self._columns = {name: column[: self._size][kept] for name, column in self._columns.items()}
            self._size = self.n_rows

    def changed(self, Z: Stored, removed: Ints) -> ExactSearcher:
        """Share Z, where its rows lie end to end. One more row costs what it takes to read it, a removed one a copy of
        all ½‖z‖².

        >>> Z = np.array([[0.0], [3.0], [1.0]], np.float32)
        >>> before = Exact().build(Z[:2])
        >>> after = before.changed(Z, np.array([0]))
        >>> [searcher.query(np.zeros((1, 1), np.float32), 2)[0].tolist() for searcher in (before, after)]
        [[[0, 1]], [[2, 1]]]
        """
        if self._next != self._size:
            raise DataError(
                f"rows must have the numbers 0 … n − 1 to be changed; got {self._size} rows, and {self._next} as the "
                "next number: build the index again."
            )
        self._check_alike(Z, "searched")
        if len(Z) < self._size:
            raise DataError(f"the embeddings to be searched must begin with the {self._size} so far; got {len(Z)}.")
        half_norms = _half_norms(Z[self._size :], "searched", 1)
        grown = {
            "half_norms": self._grown("half_norms", half_norms),
            "numbers": self._grown("numbers", np.arange(self._size, len(Z))),
        }
        other = copy.copy(self)
        other._size = other._next = len(Z)
        other._columns = {"Z": np.ascontiguousarray(Z), **{name: column.view for name, column in grown.items()}}
        other._longest = max(self._reach(), _longest(half_norms))
        place = other._places(removed)
        if len(place):
            if _longest(other.half_norms[place]) == other._longest:
                other._longest = None
            other._columns["half_norms"] = other.half_norms.copy()
            other.half_norms[place] = np.inf
            grown["half_norms"] = GrowingArray(other.half_norms)
        other.n_rows = self.n_rows + len(half_norms) - len(place)
        other._shared = grown
        return other

    def _grown(self, name: str, more: NDArray[Any]) -> GrowingArray:
        """A column with more behind it, in the room behind its last row unless another searcher has taken that."""
        growing = self._shared.get(name)
        if growing is None or len(growing.view) != self._size:
            growing = GrowingArray(self._columns[name][: self._size])
        self._shared[name] = growing
        growing.append(more)
        return growing

    def _check_unshared(self) -> None:
        if self.shared:
            raise DataError("a searcher that shares rows with another cannot change in place; use `changed`.")

    def _check_alike(self, Z: Stored, what: str) -> None:
        own = self.Z
        if Z.ndim != 2 or Z.shape[1] != own.shape[1] or Z.dtype != own.dtype:
            raise DataError(
                f"the embeddings to be {what} must be {own.dtype} of shape (n, {own.shape[1]}); got {Z.dtype} of "
                f"shape {Z.shape}."
            )

    def _places(self, rows: Ints) -> Ints:
        """Where the rows of these numbers are; they must be there, and different."""
        rows = np.asarray(rows, np.int64)
        place = np.searchsorted(self.numbers, rows)
        there = np.flatnonzero(place < self._size)
        there = there[(self.numbers[place[there]] == rows[there]) & np.isfinite(self.half_norms[place[there]])]
        if len(there) < len(rows):
            missing = np.delete(rows, there)[0]
            raise DataError(f"a row to be removed must be there; got {missing}, which was never given or is removed.")
        if len(np.unique(rows)) < len(rows):
            raise DataError("each row can be removed once; got the same number twice.")
        return place

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers of the rows that are there and the next one, where they are not 0 … n."""
        if self._next == self.n_rows:
            return {}
        return {"numbers": np.append(self.numbers[np.isfinite(self.half_norms)], self._next)}

    # ------------------------------------------------------------------------------------------------------ searching

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> tuple[Ints, NDArray[np.float64]]:
        """The k nearest rows for each row of Q, (q, k), and their squared distances."""
        if not 1 <= k <= self.n_rows:
            raise ParameterError(f"`k` must be from 1 to {self.n_rows}, the rows that can be found; got {k!r}.")
        if not np.isfinite(Q).all():
            raise DataError("the embeddings to search for must be finite; got NaN or infinity.")
        ids, distances = np.empty((len(Q), k), np.int64), np.empty((len(Q), k))
        queries = list(blocks(len(Q), -(-len(Q) // max(1, -(-len(Q) // _QUERIES))) or 1))
        threads = thread_count(n_jobs)
        shares = 1 if len(queries) % threads == 0 else min(threads, max(1, len(Q) * self.Z.size // _SHARE))
        parts = list(blocks(self._size, -(-self._size // shares)))
        found = map_blocks(lambda it: self.nearest(Q[it[0]], k, it[1]), itertools.product(queries, parts), n_jobs)
        for i, block in enumerate(queries):
            share = found[i * len(parts) : (i + 1) * len(parts)]
            query, place, distance = share[0]
            if len(share) > 1:
                query, place, distance = _joined(share)
                first = _first(k, query, distance, place)
                place, distance = place[first], distance[first]
            ids[block], distances[block] = self.numbers[place].reshape(-1, k), distance.reshape(-1, k)
        return ids, distances

    def _reach(self) -> float:
        """max ‖z‖ of the rows that are there."""
        if self._longest is None:
            self._longest = _longest(self.half_norms)
        return self._longest

    def nearest(self, Q: Floats, k: int, part: slice) -> Found:
        """The k nearest rows of a part for each query, or all if they are fewer: queries, places, squared distances."""
        length, longest = np.linalg.norm(Q.astype(np.float64), axis=1), self._reach()
        scale = length * longest + longest**2 / 2
        dtype = np.float32 if scale.min() > 1e-30 and length.max() + longest < 1e15 else np.float64
        # Twice a bound on the error of a score, (m + 2) eps (‖q‖ max‖z‖ + ½ max‖z‖²), and on that of a distance in the
        # verdict, so that all rows whose distances it cannot tell apart are candidates.
        error = np.finfo(dtype).eps * scale + np.finfo(np.float64).eps * (length + longest) ** 2
        margin = (2 * (Q.shape[1] + 2) * error).astype(dtype)
        wide_Q = np.ascontiguousarray(Q, dtype)

        height = min(part.stop - part.start, max(1, _PANEL * _QUERIES // len(Q)))
        group = max(1, min(_GROUP, height // (4 * k)))  # of the first panel, which makes the bound
        scores = np.empty((height + _GROUP, len(Q)), dtype)
        bound = np.full(len(Q), -np.inf, dtype)
        piled, limit = 0, 4 * k * len(Q)
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
            piled += len(hit)
            if piled > limit or stop == part.stop:
                query, place, value = _joined(found)
                order, rank = _ranked(query, -value)
                last = order[rank == k - 1]
                bound[query[last]] = np.maximum(bound[query[last]], value[last] - margin[query[last]])
                kept = value >= bound[query]
                query, place, value = query[kept], place[kept], value[kept]
                if len(query) > _CANDIDATES or stop == part.stop:
                    distance = self._distances(Q, query, place)
                    first = _first(k, query, distance, place)
                    query, place, value, distance = query[first], place[first], value[first], distance[first]
                found = [(query, place, value)]
                piled, limit = len(query), max(limit, 2 * len(query))
        return query, place, distance

    def _fill(self, scores: NDArray[Any], Q: NDArray[Any], start: int, stop: int) -> None:
        """⟨z, q⟩ − ½‖z‖² of rows start … stop into the first of `scores`."""
        Z, half_norms = self.Z, self.half_norms
        for here in range(start, stop, _PRODUCT):
            rows = slice(here, min(here + _PRODUCT, stop))
            out = scores[rows.start - start : rows.stop - start]
            np.matmul(_widened(Z[rows], scores.dtype), Q.T, out=out)
            out -= half_norms[rows, None].astype(scores.dtype)

    def _distances(self, Q: Floats, query: Ints, place: Ints) -> NDArray[np.float64]:
        """Squared distances of pairs (query, row), by float64 differences."""
        Z = self.Z
        distance = np.empty(len(place))
        for part in blocks(len(place), max(1, _VERDICT_CELLS // Z.shape[1])):
            difference = Z[place[part]].astype(np.float64)
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


def _half_norms(Z: Stored, what: str, n_jobs: int | None) -> NDArray[np.float64]:
    """½‖z‖² of rows, which must be finite."""
    half_norms = np.empty(len(Z))

    def fill(rows: slice) -> None:
        wide = Z[rows].astype(np.float64)
        half_norms[rows] = np.einsum("ij,ij->i", wide, wide) / 2

    map_blocks(fill, blocks(len(Z), max(1, _VERDICT_CELLS // max(1, Z.shape[1]))), n_jobs)
    if not np.isfinite(half_norms).all():
        raise DataError(f"the embeddings to be {what} must be finite; got NaN or infinity.")
    return half_norms


def _longest(half_norms: NDArray[np.float64]) -> float:
    """max ‖z‖ of rows that are not removed."""
    return float(np.sqrt(2 * half_norms.max(where=np.isfinite(half_norms), initial=0)))


def _widened(Z: Stored, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows as `dtype`. NumPy takes five times as long to widen float16 as these whole-number operations do."""
    if Z.dtype != np.float16 or dtype != np.float32:
        return Z.astype(dtype, copy=False)
    # The sign to bit 31, exponent and fraction to where those of float32 end; exponents count from 2⁻¹⁵, not 2⁻¹²⁷.
    bits = Z.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)
    wide = bits.view(np.float32)
    wide *= np.float32(2.0**112)
    return wide


# -------------------------------------------------------------------------------------------- rows in several pieces


def merge_nearest(pieces: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest of what was found in each piece, ties by the lower number.

    >>> one, other = (np.array([[0, 1]]), np.array([[1.0, 4.0]])), (np.array([[2]]), np.array([[2.0]]))
    >>> merge_nearest([one, other], 2)[0].tolist()
    [[0, 2]]
    """
    ids, distances = (np.concatenate(arrays, axis=1) for arrays in zip(*pieces, strict=True))
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)


@dataclass(frozen=True)
class BlockwiseExact(Index):
    """Exact search of a mapped file, a block of `n_rows` rows at a time, whose pages are let go."""

    n_rows: int = 65536

    def build(self, Z: Stored, n_jobs: int | None = None) -> Finder:
        """Remember where Z is."""
        return _BlockwiseFinder(Z, self.n_rows)


class _BlockwiseFinder(Finder):
    def __init__(self, Z: Stored, height: int) -> None:
        self.n_rows, self._Z, self._height = len(Z), Z, height

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> Neighbours:
        found: list[Neighbours] = []
        for rows in blocks(self.n_rows, self._height):
            ids, distances = Exact().build(self._Z[rows], n_jobs).query(Q, min(k, rows.stop - rows.start), n_jobs)
            found = [merge_nearest([*found, (ids + rows.start, distances)], k)]
            release(self._Z[rows])
        return found[0]
