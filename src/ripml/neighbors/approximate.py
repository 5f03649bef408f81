"""What approximate indexes share: candidates from a structure, the verdict of float64, exact search where they fail.

An index proposes some rows for each query. Their squared distances are computed in float64 from the stored values, as
in exact search, so that an answer is right in all but what was never proposed. A query with fewer than k candidates,
and every query while there are fewer than `LEAST` rows, is answered by exact search. That search also holds the rows,
their numbers and which of them are removed; when it drops removed rows, the structure is built again.

Rows behind those that the structure covers wait in a tail, whose k nearest rows are candidates of every query. So
searchers made by `changed` share one structure, which is never written to, until the tail is long or half of what the
structure knows is removed; then the next one has a structure of its own.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import MissingExtraError
from ripml.base.parallel import blocks, map_blocks
from ripml.neighbors.base import Arrays, Floats, Ints, Searcher, Stored
from ripml.neighbors.exact import ExactSearcher

__all__ = ["LEAST", "ApproximateSearcher", "faiss", "one_thread", "unit_scale", "widened"]

LEAST = 2048  # rows below which a structure is not worth building
_TAIL, _SHARE = 1024, 16  # rows, or one in so many of those covered, that wait before a structure is made anew
_QUERIES = 64  # that a thread answers at a time
_CELLS = 1 << 17  # differences held at a time in float64: 1 MB, which stays in the cache


class ApproximateSearcher(Searcher):
    """Exact search over the same rows, and a structure that proposes candidates among the first of them."""

    patience = 0.0  # share of the rows that may wait in the tail when they are added

    def __init__(self, exact: ExactSearcher, options: Any, arrays: Arrays | None = None) -> None:
        """Build the structure, or take it from `arrays`."""
        self.exact, self.options = exact, options
        self.n_rows = self.n_known_left = exact.n_rows
        self.built = False
        self.covered = 0  # places that the structure was made of; those from here on are the tail
        self.known: Ints | None = None  # the places of the rows in the structure, in its order; None for all covered
        self._renew(arrays)

    @abstractmethod
    def _build(self, arrays: Arrays | None) -> None:
        """Make the structure over all rows of `self.exact`, or from what `_structure` gave."""

    @abstractmethod
    def _extend(self) -> None:
        """Take in the rows from `covered` on."""

    @abstractmethod
    def _candidates(self, Q: Floats, k: int) -> tuple[Ints, Ints]:
        """Pairs (query, row of the structure), in any order; doubles and removed rows may be among them."""

    @abstractmethod
    def _structure(self) -> dict[str, NDArray[Any]]:
        """The structure as plain arrays."""

    @property
    def size(self) -> int:
        """Places in use, removed rows included."""
        return len(self.exact.Z)

    @property
    def n_known(self) -> int:
        """Rows in the structure; `n_known_left` of them are not removed."""
        return self.covered if self.known is None else len(self.known)

    def _renew(self, arrays: Arrays | None = None) -> None:
        self.built = self.size >= LEAST
        if self.built:
            self.covered = 0
            self._build(arrays)
            self.covered = self.size
        elif arrays:
            raise ValueError("an index of so few rows has no arrays")

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> tuple[Ints, NDArray[np.float64]]:
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
        query, place = self._candidates(Q, k)
        if self.known is not None:
            place = self.known[place]
        if self.covered < self.size:
            asked, tail, _ = self.exact.nearest(Q, k, slice(self.covered, self.size))
            query, place = np.append(query, asked), np.append(place, tail)
        pairs = np.sort(query * self.size + place)
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique hashes, which takes ten times as long
        query, place = np.divmod(pairs, self.size)
        there = np.isfinite(self.exact.half_norms[place])
        query, place = query[there], place[there]
        distance = np.empty(len(place))
        for part in blocks(len(place), max(1, _CELLS // Q.shape[1])):
            difference = self.exact.Z[place[part]].astype(np.float64)
            difference -= Q[query[part]]
            distance[part] = np.einsum("ij,ij->i", difference, difference)
        order = np.lexsort((place, distance, query))
        counts = np.bincount(query, minlength=len(Q))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        short = counts < k
        kept = order[(rank < k) & ~short[query]]
        ids, distances = np.zeros((len(Q), k), np.int64), np.zeros((len(Q), k))
        ids[~short] = self.exact.numbers[place[kept]].reshape(-1, k)
        distances[~short] = distance[kept].reshape(-1, k)
        return short, ids, distances

    def add(self, Z: Stored) -> Ints:
        """Append rows to the exact search and to the structure."""
        numbers = self.exact.add(Z)
        self.n_rows = self.n_known_left = self.exact.n_rows
        if not self.built:
            self._renew()
        elif self.size - self.covered > self.patience * self.size:
            self._extend()
            self.covered = self.size
        return numbers

    def remove(self, rows: Ints) -> None:
        """Mark rows as removed; when more than half are, they are dropped and the structure is built again."""
        before = self.size
        self.exact.remove(rows)
        self.n_rows = self.n_known_left = self.exact.n_rows
        if self.size < before:
            self._renew()

    def changed(self, Z: Stored, removed: Ints) -> ApproximateSearcher:
        """Share the structure; make another where the tail is long, or half of what the structure knows is removed."""
        exact = self.exact.changed(Z, removed)
        if not self.built and exact.n_rows >= LEAST:
            return self._rebuilt(exact)
        other = copy.copy(self)
        other.exact, other.n_rows = exact, exact.n_rows
        if self.built and len(removed):
            other.n_known_left = _left(exact, self._known)
            if 2 * other.n_known_left < other.n_known:
                return self._rebuilt(exact)
        if self.built and other.size - self.covered > max(_TAIL, self.covered // _SHARE):
            return self._extended(exact)
        return other

    @property
    def _known(self) -> Ints | slice:
        return slice(self.covered) if self.known is None else self.known

    def _rebuilt(self, exact: ExactSearcher) -> ApproximateSearcher:
        """Of all these rows, with a new structure of those that are there."""
        known = None if exact.n_rows == len(exact.Z) else np.flatnonzero(np.isfinite(exact.half_norms))
        other = type(self)(exact if known is None else _packed(exact, known), self.options)
        return other._over(exact, known)

    def _extended(self, exact: ExactSearcher) -> ApproximateSearcher:
        """Of all these rows, with a copy of the structure that takes in the tail."""
        known = None if self.known is None else np.append(self.known, np.arange(self.covered, len(exact.Z)))
        other = type(self)(_packed(exact, self._known), self.options, self._structure())
        other.exact = exact if known is None else _packed(exact, known)
        other._extend()
        return other._over(exact, known)

    def _over(self, exact: ExactSearcher, known: Ints | None) -> ApproximateSearcher:
        """Search these rows, of which those at the places `known`, or all, are in the structure."""
        self.exact, self.known, self.covered, self.n_rows = exact, known, len(exact.Z), exact.n_rows
        self.n_known_left = _left(exact, self._known)
        return self

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Numbers as in exact search, and the structure; built again first where rows are marked as removed."""
        current = self
        if self.n_rows < self.size:
            exact = _packed(self.exact, np.isfinite(self.exact.half_norms), self.exact.arrays()["numbers"])
            if self.exact.shared:
                return type(self)(exact, self.options).arrays()
            self.exact = exact
            self._renew()
        elif self.built and self.covered < self.size:
            current = self._extended(self.exact)
        return {**self.exact.arrays(), **(current._structure() if self.built else {})}


def _packed(exact: ExactSearcher, places: Any, numbers: Ints | None = None) -> ExactSearcher:
    """Search of the rows at these places alone."""
    Z = exact.Z[places]
    return ExactSearcher(Z, exact.half_norms[places], np.arange(len(Z) + 1) if numbers is None else numbers)


def _left(exact: ExactSearcher, places: Ints | slice) -> int:
    """How many of the rows at these places are not removed."""
    return int(np.count_nonzero(np.isfinite(exact.half_norms[places])))


def unit_scale(half_norms: NDArray[np.float64]) -> float:
    """A power of two that brings the longest row to a length between a half and 1: exact, and safe in float32."""
    longest = float(np.sqrt(2 * half_norms.max(where=np.isfinite(half_norms), initial=0)))
    return 2.0 ** -int(np.clip(np.ceil(np.log2(longest)), -120, 120)) if longest > 0 else 1.0


def widened(Z: Stored, scale: float) -> Floats:
    """Rows as float32 in the units of an index."""
    return np.clip(Z.astype(np.float64) * scale, -1e6, 1e6).astype(np.float32)


def faiss() -> Any:
    """The package faiss, or what to install."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        raise MissingExtraError("faiss", "index") from None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """faiss on one thread in this thread of ours: results do not depend on their number."""
    package = faiss()
    before = package.omp_get_max_threads()
    package.omp_set_num_threads(1)
    try:
        yield
    finally:
        package.omp_set_num_threads(before)
