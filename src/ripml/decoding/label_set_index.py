"""The distinct label sets of a cluster, searchable by their embeddings (the paper's inference, step 2).

Rows with the same labels have the same embedding, so an index holds each label set once, with the number of training
rows that carry it. Two kinds of search:

    points       the embeddings themselves, one search for each learner: the paper's
    directions   their directions, by the cosine, all learners at once

An index is a value. `changed` gives the next one: new sets follow the last, and a set that no row carries any more
keeps its number with the count 0 and is not found. Arrays grow behind those of the value before (see `GrowingArray`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray, LazyArray, as_array, csr_of
from ripml.base.parallel import blocks
from ripml.base.workspace import release, row_slice
from ripml.labels.label_sets import fingerprints
from ripml.neighbors.base import Index, Searcher

__all__ = [
    "DirectionIndex",
    "LabelSetIndex",
    "NearSets",
    "PointIndex",
    "SetChange",
    "as_stored",
    "storage_scale",
    "wide",
]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
Fingerprint = tuple[int, int, int]

_STORED_ROWS = 65536
_ROUNDING = 1e-6  # by which the length of a row of length 1 may differ from it


class NearSets(NamedTuple):
    """Label sets near to queries, their similarity and how many rows each stands for: all (n, K)."""

    sets: Ints
    similarity: NDArray[np.float64]
    rows: Ints


@dataclass(frozen=True)
class SetChange:
    """Label sets that lose a row, those that gain one, and the sets among these that are new."""

    leaving: Ints  # numbers of sets, one for each row that goes
    arriving: Ints  # the same for each row that comes; numbers of new sets follow the last
    new: Any  # CSR, the new sets


@dataclass(frozen=True)
class LabelSetIndex(ABC):
    """Label sets with counts and embeddings."""

    sets: Any  # CSR (u, L)
    counts: Ints  # (u,) training rows that carry each set
    embeddings: NDArray[Any] | LazyArray  # (F, u, m), for each search those of the sets, in units of `scale`
    searchers: Searchers
    scale: float = 1.0
    _lookup: Lookup | None = field(default=None, repr=False, compare=False)
    _growing: tuple[GrowingArray, ...] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        sets: Any,
        counts: Ints,
        Z: NDArray[Any] | LazyArray,
        index: Index,
        scale: float = 1.0,
        arrays: Sequence[Mapping[str, NDArray[Any]]] = (),
        made: Sequence[Searcher] | None = None,
    ) -> LabelSetIndex:
        """Of these sets; `arrays` has what the searchers of a saved index need, `made` are searchers made elsewhere."""
        return cls(
            sets, counts, Z, Searchers(index, lambda: cls.searched(as_array(Z), index.storage), arrays, made), scale
        )

    @staticmethod
    @abstractmethod
    def searched(Z: NDArray[Any], storage: str) -> Sequence[NDArray[Any]]:
        """What is searched of the embeddings Z (F, u, m): one array (u, m) for each search."""

    @classmethod
    def fill_searched(cls, out: NDArray[Any], embed: Callable[[Any], Floats], sets: Any) -> None:
        """Write what is searched of label sets, CSR (u, L), to `out` (F, u, m), some sets at a time."""
        for rows in blocks(sets.shape[0], _STORED_ROWS // 4):
            Z = embed(row_slice(sets, rows))
            out[:, rows] = np.stack(cls.searched(Z, "float32") or [*Z])
            release(*out[:, rows], sets.indices)

    @abstractmethod
    def _appendable(self) -> NDArray[Any]:
        """The embeddings as those of new sets are appended to them."""

    @abstractmethod
    def _stored(self, Z: Floats) -> NDArray[Any]:
        """Embeddings (F, r, m) of new sets as they are stored."""

    def targets(self, numbers: Ints) -> Floats | None:
        """The regression's targets of rows with these sets, where the embeddings are the targets; else None."""
        return None

    @property
    def Z(self) -> NDArray[Any]:
        """The embeddings, which are made now if they were not needed before."""
        return as_array(self.embeddings)

    @property
    def search_shape(self) -> tuple[int, int]:
        """The number of searches, and the dimensions of each."""
        n_searches, _, width = self.embeddings.shape
        return n_searches, width

    @cached_property
    def n_sets(self) -> int:
        """Distinct label sets that rows carry."""
        return int(np.count_nonzero(self.counts))

    @property
    def index(self) -> Index:
        """How the embeddings are searched."""
        return self.searchers.index

    # -------------------------------------------------------------------------------------------------------- changing

    def prepared(self, keys: Keys) -> LabelSetIndex:
        """The same index, ready to find sets by their labels, whose columns have these keys."""
        if self._lookup is not None and self._lookup.n_sets == len(self.counts):
            return self
        return replace(self, _lookup=Lookup(self.sets, keys))

    def numbers_of(self, Y: Any, keys: Keys) -> Ints:
        """The number of the label set of each row of Y, CSR (r, L); −1 where no training row carries it."""
        assert self._lookup is not None
        return self._lookup.numbers_of(Y, keys, self.counts)

    def plan(self, leaving: Ints, Y: Any, keys: Keys) -> SetChange:
        """The change in which rows of the sets `leaving` go and rows with labels Y, CSR (r, L), come."""
        assert self._lookup is not None
        numbers = self._lookup.numbers_of(Y, keys, self.counts)
        fresh = self._lookup.add_missing(Y, keys, numbers)
        return SetChange(leaving, numbers, Y if len(fresh) == Y.shape[0] else Y[fresh])

    def changed(self, change: SetChange, embed: Callable[[Any], Floats]) -> LabelSetIndex:
        """The index after a change; `embed` maps label sets, CSR (r, L), to their embeddings (F, r, m)."""
        new, n_labels = change.new, change.new.shape[1]
        counts = np.concatenate([self.counts, np.zeros(new.shape[0], np.int64)])
        np.subtract.at(counts, change.leaving, 1)
        np.add.at(counts, change.arriving, 1)
        dead = np.unique(change.leaving)
        dead = dead[counts[dead] == 0]
        if not new.shape[0] and not len(dead) and self.sets.shape[1] == n_labels:
            return replace(self, counts=counts)
        growing = self._growing or (
            GrowingArray(self.sets.indices.astype(np.int64)),
            GrowingArray(self.sets.data),
            GrowingArray(self.sets.indptr.astype(np.int64)),
            GrowingArray(self._appendable(), axis=1),
        )
        labels, ones, ends, Z = growing
        more = (new.indices, new.data, ends.view[-1] + new.indptr[1:], self._stored(embed(new)))
        growing = tuple(array.appended(some) for array, some in zip(growing, more, strict=True))
        labels, ones, ends, Z = growing
        return replace(
            self,
            sets=csr_of(ones.view, labels.view, ends.view, n_labels),
            counts=counts,
            embeddings=Z.view,
            searchers=self.searchers.changed(list(Z.view) if Z.view.shape[2] else [], dead),
            _growing=growing,
        )

    def with_labels(self, n_labels: int) -> LabelSetIndex:
        """The same sets where there are more labels."""
        return replace(self, sets=wide(self.sets, n_labels))

    def renumbered(self, columns: Ints, n_labels: int) -> LabelSetIndex:
        """The same sets with label j in column `columns[j]`."""
        sets = csr_of(self.sets.data, columns[self.sets.indices], self.sets.indptr, n_labels)
        return replace(self, sets=sets, _lookup=None, _growing=None)

    def embedded_again(self, Z: Floats) -> LabelSetIndex:
        """The same sets with other embeddings Z (F, u, m); those that no row carries are not found."""
        Z = as_stored(Z, self.scale, self.index.storage)
        fresh = replace(type(self).of(self.sets, self.counts, Z, self.index, self.scale), _lookup=self._lookup)
        dead = np.flatnonzero(self.counts == 0)
        if not len(dead) or not Z.shape[2]:
            return fresh
        return replace(fresh, searchers=fresh.searchers.changed(self.searched(Z, self.index.storage), dead))

    def compacted(self) -> tuple[LabelSetIndex, Ints]:
        """Without the places of sets that no row carries, and where each set is now."""
        kept = self.counts > 0
        place: Ints = np.cumsum(kept) - 1
        if kept.all():
            return self, place
        sets = self.sets[np.flatnonzero(kept)]
        return type(self).of(sets, self.counts[kept], self.Z[:, kept], self.index, self.scale), place

    def emptied(self) -> LabelSetIndex:
        """Without any set."""
        return type(self).of(self.sets[:0], self.counts[:0], self.Z[:, :0], self.index, self.scale)


@dataclass(frozen=True)
class PointIndex(LabelSetIndex):
    """Searches the embeddings themselves, one search for each learner."""

    @staticmethod
    def searched(Z: NDArray[Any], storage: str) -> Sequence[NDArray[Any]]:
        """The embeddings of each learner."""
        return list(Z)

    def _appendable(self) -> NDArray[Any]:
        return self.Z

    def _stored(self, Z: Floats) -> NDArray[Any]:
        return as_stored(Z, self.scale, self.index.storage)

    def targets(self, numbers: Ints) -> Floats | None:
        """What is searched is what was learnt, where it is stored in full."""
        if self.Z.dtype != np.float32:
            return None
        return np.asarray(self.Z[:, numbers].transpose(1, 0, 2).reshape(len(numbers), -1))

    def nearest(self, embedding: Any, k: int, n_jobs: int | None) -> Iterator[tuple[Ints, NDArray[np.float64]]]:
        """For each learner the k sets nearest to predicted embeddings (n, F·m), and their squared distances."""
        queries = np.split((embedding / self.scale).astype(np.float32, copy=False), self.search_shape[0], axis=1)
        for searcher, query in zip(self.searchers.get(), queries, strict=True):
            yield searcher.query(query, k, n_jobs)


@dataclass(frozen=True)
class DirectionIndex(LabelSetIndex):
    """Searches directions, with the cosine as similarity."""

    @staticmethod
    def searched(Z: NDArray[Any], storage: str) -> Sequence[NDArray[Any]]:
        """Their directions, unless there is nothing to search."""
        return [_directions(Z, storage)[0]] if Z.shape[2] else []

    def _appendable(self) -> NDArray[Any]:
        return _directions(self.Z, self.index.storage)

    def _stored(self, Z: Floats) -> NDArray[Any]:
        storage = self.index.storage
        return _directions(as_stored(Z, self.scale, storage), storage)

    def nearest(self, queries: Floats, k: int, n_jobs: int | None, left_out: Ints | None = None) -> NearSets:
        """The k sets of nearest direction to queries (n, m), nearest first, and the rows that carry them.

        `left_out` has the set of each query's own training row, if it is one, or (n, c) those of all its copies: these
        rows do not count.
        """
        reach = min(k + (left_out is not None), self.n_sets)  # leaving a row out may empty one set
        if not reach:
            nothing = np.empty((len(queries), 0), np.int64)
            return NearSets(nothing, nothing.astype(np.float64), nothing)
        step = storage_scale(1.0, self.index.storage)
        ids, distances = self.searchers.get()[0].query(_unit(queries) / np.float32(step), reach, n_jobs)
        distances = distances * step**2
        rows = self.counts[ids]
        if left_out is not None:
            rows = rows - (ids[:, :, None] == left_out.reshape(len(ids), 1, -1)).sum(axis=2)
        return NearSets(ids, 1 - distances / 2, rows)

    def recall(self, queries: Floats, k: int, n_jobs: int | None) -> float | None:
        """The share of the k sets of nearest direction that `nearest` finds; None where that is always all."""
        if not 0 < k <= self.n_sets or not len(queries) or not self.search_shape[1]:
            return None
        step = storage_scale(1.0, self.index.storage)
        return self.searchers.get()[0].recall(_unit(queries) / np.float32(step), k, n_jobs)


class Searchers:
    """The searchers of an index, made when they are first needed."""

    def __init__(
        self,
        index: Index,
        searched: Callable[[], Sequence[NDArray[Any]]],
        arrays: Sequence[Mapping[str, NDArray[Any]]] = (),
        made: Sequence[Searcher] | None = None,
    ) -> None:
        self.index, self._searched, self._arrays = index, searched, arrays
        self._made = made
        self._lock = threading.Lock()

    @property
    def restorable(self) -> bool:
        """Whether they are restored from saved arrays."""
        return bool(self._arrays)

    def get(self) -> Sequence[Searcher]:
        """One for each search."""
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = [self._build(f, Z) for f, Z in enumerate(self._searched())]
        return self._made

    def _build(self, f: int, Z: NDArray[Any]) -> Searcher:
        return self.index.restore(Z, self._arrays[f]) if self._arrays else self.index.build(Z)

    def made(self) -> Sequence[Searcher]:
        """Those that were made already."""
        return self._made or ()

    def changed(self, searched: Sequence[NDArray[Any]], removed: Ints) -> Searchers:
        """Of more embeddings, without those of these numbers."""
        made = [searcher.changed(Z, removed) for searcher, Z in zip(self.get(), searched, strict=False)]
        return Searchers(self.index, lambda: searched, (), made)


class Lookup:
    """The number of each label set by its fingerprint: a sorted table of the first sets, a dict of those that came."""

    def __init__(self, sets: Any, keys: Keys) -> None:
        first, others, sizes = fingerprints(sets, keys)
        order = np.argsort(first, kind="stable")
        self._known = first[order], order, others[order], sizes[order]
        self._recent: dict[Fingerprint, int] = {}
        self.n_sets = int(sets.shape[0])

    def numbers_of(self, Y: Any, keys: Keys, counts: Ints) -> Ints:
        """The number of the set of each row of Y; −1 if it is not known, or no row carries it."""
        first, order, others, sizes = self._known
        found = np.full(Y.shape[0], -1, np.int64)
        for row, mark in enumerate(_fingerprints(Y, keys)):
            number = self._recent.get(mark, -1)
            at = int(np.searchsorted(first, np.uint64(mark[0]))) if number < 0 else len(first)
            while number < 0 and at < len(first) and int(first[at]) == mark[0]:
                if int(others[at]) == mark[1] and int(sizes[at]) == mark[2] and counts[order[at]]:
                    number = int(order[at])
                at += 1
            found[row] = number if number >= 0 and counts[number] else -1
        return found

    def add_missing(self, Y: Any, keys: Keys, numbers: Ints) -> Ints:
        """Number the sets of rows whose number is −1, in place, and return the rows that are the first of a new set."""
        fresh: list[int] = []
        marks = _fingerprints(Y, keys) if (numbers < 0).any() else []
        start = self.n_sets
        for row in np.flatnonzero(numbers < 0).tolist():
            number = self._recent.get(marks[row], -1)
            if number < start:  # not one of those that came just now
                number = self._recent[marks[row]] = start + len(fresh)
                fresh.append(row)
            numbers[row] = number
        self.n_sets += len(fresh)
        return np.array(fresh, np.int64)


def _fingerprints(Y: Any, keys: Keys) -> list[Fingerprint]:
    """The fingerprint of each row's labels."""
    return list(zip(*(array.tolist() for array in fingerprints(Y, keys)), strict=True)) if Y.shape[0] else []


# ------------------------------------------------------------------------------------------------------------- storage


def storage_scale(largest: float, storage: str) -> float:
    """The unit of embeddings whose entries reach up to `largest`: 8 bits have 127 steps to either side."""
    return (largest or 1.0) / 127 if storage == "int8" else 1.0


def as_stored(Z: Floats, scale: float, storage: str, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Embeddings (F, u, m) in units of `scale`, as `storage` has them."""
    if storage == "float32":
        return Z
    out = np.empty(Z.shape, storage) if out is None else out
    for target, source in zip(out, Z, strict=True):
        for rows in blocks(len(source), _STORED_ROWS):
            values = source[rows] / np.float32(scale)
            # Rows that came after the unit was fixed may reach past its last step.
            target[rows] = np.clip(np.rint(values), -127, 127) if storage == "int8" else values
            release(source[rows], target[rows])
    return out


def _directions(Z: NDArray[Any], storage: str) -> NDArray[Any]:
    """The directions of embeddings (1, u, m), as `storage` has them."""
    directions = _unit(Z[0].astype(np.float32, copy=False))[None]
    return as_stored(directions, storage_scale(1.0, storage), storage)


def _unit(Z: Floats) -> Floats:
    """Rows of length 1; those that have it already stay to the bit, and where all have it they are not copied."""
    length = np.empty((len(Z), 1), Z.dtype)
    for rows in blocks(len(Z), _STORED_ROWS):
        length[rows] = np.linalg.norm(Z[rows], axis=1, keepdims=True)
        release(Z[rows])
    off = (length > 0) & (np.abs(length - 1) > _ROUNDING)
    return np.asarray(Z / np.where(off, length, 1) if off.any() else Z, np.float32)


def wide(Y: Any, n_labels: int) -> Any:
    """The same label sets where there are more labels."""
    return Y if Y.shape[1] == n_labels else csr_of(Y.data, Y.indices, Y.indptr, n_labels)
