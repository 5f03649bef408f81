"""What approximate indexes share: candidates from a structure, exact float64 distances, exact search as a fallback.

An index proposes some rows for each query. Their squared distances are computed in float64 from the stored values, as
in exact search, so that an answer is wrong only in rows that were never proposed. A query with fewer than k candidates,
and every query while there are fewer than `LEAST` rows, is answered by exact search, which also holds the rows and
knows which of them are removed.

Rows behind those that the structure covers wait in a tail, whose k nearest rows are candidates of every query. So
searchers made by `changed` share one structure, which is never written to, until the tail is long or half of the rows
in the structure are removed; then the next searcher gets a new structure.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec, check_arrays
from ripml.base.errors import MissingExtraError
from ripml.base.parallel import blocks, map_blocks
from ripml.neighbors.base import Arrays, Floats, Index, Ints, Neighbours, Searcher, Stored
from ripml.neighbors.exact import Exact, ExactSearcher

__all__ = ["LEAST", "ApproximateIndex", "ApproximateSearcher", "faiss", "one_thread", "unit_scale", "widened"]

LEAST = 2048  # rows below which a structure is not worth building
_TAIL, _SHARE = 1024, 16  # a structure takes in its tail past 1024 rows and a sixteenth of the rows it covers
_QUERIES = 64  # queries that a thread answers at a time
_CELLS = 1 << 17  # differences held at a time in float64: 1 MB, which stays in the cache


@dataclass(frozen=True)
class ApproximateIndex(Index):
    """An index whose searcher is an `ApproximateSearcher`."""

    @abstractmethod
    def _searcher(self, exact: ExactSearcher, arrays: Arrays | None) -> ApproximateSearcher:
        """The searcher over the rows of `exact`, with the structure of `arrays` or a new one."""

    def build(self, Z: Stored, n_jobs: int | None = None) -> ApproximateSearcher:
        """Build the structure over Z; it is the same for any number of threads."""
        return self._searcher(Exact().build(Z, n_jobs), None)

    def restore(self, Z: Stored, arrays: Arrays, n_jobs: int | None = None) -> ApproximateSearcher:
        """Take the structure from checked arrays; without arrays, build it."""
        return self._searcher(Exact().build(Z, n_jobs), arrays or None)


class ApproximateSearcher(Searcher):
    """Exact search over all rows, and a structure that proposes candidates among the first of them."""

    def __init__(self, exact: ExactSearcher, options: Any, arrays: Arrays | None = None) -> None:
        """Build the structure, or take it from `arrays`."""
        self.exact, self.options = exact, options
        self.n_rows = self.n_known_left = exact.n_rows
        self.covered = 0  # rows that the structure was made from; those from here on are the tail
        self.known: Ints | None = None  # the rows in the structure, in its order; None for all covered rows
        self.built = self.size >= LEAST
        if self.built:
            self._build(None if arrays is None else self._checked(arrays))
            self.covered = self.size
        elif arrays:
            raise ValueError(f"an index of fewer than {LEAST} rows has no arrays; got {', '.join(arrays)}")

    @abstractmethod
    def _specs(self) -> dict[str, ArraySpec]:
        """What the arrays of the structure must be."""

    @abstractmethod
    def _build(self, arrays: Arrays | None) -> None:
        """Make the structure over all rows of `self.exact`, or from what `_structure` gave."""

    @abstractmethod
    def _extend(self) -> None:
        """Take in the rows from `covered` on."""

    @abstractmethod
    def _candidates(self, Q: Floats, k: int) -> tuple[Ints, Ints]:
        """Pairs (query, row of the structure), in any order; duplicates and removed rows may be among them."""

    @abstractmethod
    def _structure(self) -> dict[str, NDArray[Any]]:
        """The structure as plain arrays."""

    def _checked(self, arrays: Arrays) -> Arrays:
        specs = self._specs()
        if unknown := arrays.keys() - specs.keys():
            raise ValueError(f"the index has no array {min(unknown)!r}")
        return {name: np.ascontiguousarray(array) for name, array in check_arrays(specs, arrays).items()}

    @property
    def size(self) -> int:
        """The number of rows, removed ones included."""
        return len(self.exact.Z)

    @property
    def n_known(self) -> int:
        """Rows in the structure; `n_known_left` of them are not removed."""
        return self.covered if self.known is None else len(self.known)

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> Neighbours:
        """The k nearest of the candidates, and exact search for queries that have fewer."""
        if not self.built or not 1 <= k <= self.n_rows or not np.isfinite(Q).all():
            return self.exact.query(Q, k, n_jobs)
        ids, distances = np.empty((len(Q), k), np.int64), np.empty((len(Q), k))
        short = np.zeros(len(Q), bool)

        def search(part: slice) -> None:
            short[part], ids[part], distances[part] = self._search(Q[part], k)

        map_blocks(search, blocks(len(Q), _QUERIES), n_jobs)
        if short.any():
            ids[short], distances[short] = self.exact.query(Q[short], k, n_jobs)
        return ids, distances

    def _search(self, Q: Floats, k: int) -> tuple[NDArray[np.bool_], Ints, NDArray[np.float64]]:
        """Which queries have fewer than k candidates, and the k nearest candidates of the others."""
        query, place = self._candidates(Q, k)
        if self.known is not None:
            place = self.known[place]
        if self.covered < self.size:
            tail_query, tail, _ = self.exact.nearest(Q, k, slice(self.covered, self.size))
            query, place = np.append(query, tail_query), np.append(place, tail)
        # Drop duplicates and removed rows. np.unique hashes, which takes ten times as long as sorting.
        pairs = np.sort(query * self.size + place)
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        query, place = np.divmod(pairs, self.size)
        present = np.isfinite(self.exact.half_norms[place])
        query, place = query[present], place[present]
        distance = self.exact.distances(Q, query, place, _CELLS)
        # Rank the candidates of each query by distance, then by number, and keep the first k.
        order = np.lexsort((place, distance, query))
        counts = np.bincount(query, minlength=len(Q))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        short = counts < k
        kept = order[(rank < k) & ~short[query]]
        ids, distances = np.zeros((len(Q), k), np.int64), np.zeros((len(Q), k))
        ids[~short] = place[kept].reshape(-1, k)
        distances[~short] = distance[kept].reshape(-1, k)
        return short, ids, distances

    def recall(self, Q: Floats, k: int, n_jobs: int | None = None) -> float | None:
        """The share of the k nearest rows that is found; None while there are too few rows for a structure."""
        if not self.built:
            return None
        found, nearest = self.query(Q, k, n_jobs)[1], self.exact.query(Q, k, n_jobs)[1]
        return float(np.mean(found <= nearest[:, -1:]))

    def changed(self, Z: Stored, removed: Ints) -> ApproximateSearcher:
        """Share the structure; make a new one where the tail is long, or half of the structure's rows are removed."""
        exact = self.exact.changed(Z, removed)
        if not self.built and exact.n_rows >= LEAST:
            return self._rebuilt(exact)
        other = copy.copy(self)
        other.exact, other.n_rows = exact, exact.n_rows
        if self.built and len(removed):
            other.n_known_left = exact.count_left(self._known)
            if 2 * other.n_known_left < other.n_known:
                return self._rebuilt(exact)
        if self.built and other.size - self.covered > max(_TAIL, self.covered // _SHARE):
            return self._extended(exact)
        return other

    @property
    def _known(self) -> Ints | slice:
        return slice(self.covered) if self.known is None else self.known

    def _rebuilt(self, exact: ExactSearcher) -> ApproximateSearcher:
        """Search of all these rows, with a new structure of those that are not removed."""
        known = None if exact.n_rows == len(exact.Z) else np.flatnonzero(np.isfinite(exact.half_norms))
        other = type(self)(exact if known is None else exact.packed(known), self.options)
        return other._over(exact, known)

    def _extended(self, exact: ExactSearcher) -> ApproximateSearcher:
        """Search of all these rows, with a copy of the structure that takes in the tail."""
        known = None if self.known is None else np.append(self.known, np.arange(self.covered, len(exact.Z)))
        other = type(self)(exact.packed(self._known), self.options, self._structure())
        other.exact = exact if known is None else exact.packed(known)
        other._extend()
        return other._over(exact, known)

    def _over(self, exact: ExactSearcher, known: Ints | None) -> ApproximateSearcher:
        """Search these rows, of which `known`, or all, are in the structure."""
        self.exact, self.known, self.covered, self.n_rows = exact, known, len(exact.Z), exact.n_rows
        self.n_known_left = exact.count_left(self._known)
        return self

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The structure over all rows that are left; it is built again where rows are removed."""
        if self.n_rows < self.size:
            return type(self)(self.exact.packed(np.isfinite(self.exact.half_norms)), self.options).arrays()
        if not self.built:
            return {}
        current = self._extended(self.exact) if self.covered < self.size else self
        return current._structure()


def unit_scale(half_norms: NDArray[np.float64]) -> float:
    """A power of two that brings the longest row to a length between a half and 1: exact, and safe in float32."""
    longest = float(np.sqrt(2 * half_norms.max(where=np.isfinite(half_norms), initial=0)))
    return 2.0 ** -int(np.clip(np.ceil(np.log2(longest)), -120, 120)) if longest > 0 else 1.0


def widened(Z: Stored, scale: float) -> Floats:
    """Rows as float32, multiplied by the scale of an index."""
    return np.clip(Z.astype(np.float64) * scale, -1e6, 1e6).astype(np.float32)


def faiss() -> Any:
    """The package faiss; MissingExtraError with the `pip install` line where it is missing."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        raise MissingExtraError("faiss", "index") from None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """faiss on one thread, so that results do not depend on the number of threads."""
    package = faiss()
    before = package.omp_get_max_threads()
    package.omp_set_num_threads(1)
    try:
        yield
    finally:
        package.omp_set_num_threads(before)
