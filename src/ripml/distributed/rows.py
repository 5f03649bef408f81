"""Rows on the workers: what a fit sums over them is summed where they are.

The rows of consecutive partitions are one `Block` on a worker, a shard. `RemoteRows` are `RowBlocks` whose sums are
tasks, one for each shard, added in a tree; a few rows by number, which settings are chosen on, are read from the files
of the client. `ClusterWorkspace` knows which matrices of the client are on the workers, too:

    rows as they came       X and Y
    rows as they are fitted X scaled and weighted, by one task for each shard, and written to files block by block

A fit therefore walks through the same code as one in files. A shard that is lost with its worker is made again from the
partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import MemoryLimitError
from ripml.base.parallel import blocks
from ripml.base.products import FactoredEmbedding
from ripml.base.workspace import DiskWorkspace, RowBlocks
from ripml.distributed import tasks
from ripml.distributed.partitions import Head
from ripml.distributed.tasks import Block
from ripml.distributed.workers import Workers, alone, received, title

__all__ = ["ClusterWorkspace", "RemoteRows", "Shards"]

Ints = NDArray[np.int64]
Change = Callable[[Any], Any]

_SHARD_BYTES = 1 << 28  # of the rows of a shard, about
_TARGET_BYTES = 1 << 28  # of targets that a task holds at a time
_CHAIN = 32  # shards at most whose totals are made one after the other: about as many blocks of targets are at work
_AHEAD = 3  # pieces of rows on their way to the client


@dataclass(frozen=True)
class Shards:
    """Blocks of consecutive rows on the workers."""

    workers: Workers
    futures: list[Any]
    starts: Ints  # (S + 1,) where each shard starts, and the end

    @classmethod
    def of(cls, workers: Workers, loaded: list[Any], columns: Any, head: Head) -> Shards:
        """Loaded partitions joined to shards of about equal size, one for each thread or more; `loaded` becomes empty.

        `columns` is the future of the head of all partitions.
        """
        limit, threads, all_threads = workers.memory()
        sizes = np.array([size for size in head.rows if size])
        ends = np.cumsum(sizes)
        wanted = max(all_threads, -(-len(sizes) * head.n_bytes // _SHARD_BYTES))
        _, first = np.unique((ends - sizes) * wanted // ends[-1], return_index=True)
        groups = np.split(np.arange(len(sizes)), first[1:])
        needed = 3 * threads * head.n_bytes * max(map(len, groups))
        if needed > limit:
            raise MemoryLimitError(
                f"shards of {max(map(len, groups))} partitions would need {needed / 1e9:,.1f} GB on a worker of "
                f"{threads} threads, which has {limit / 1e9:,.1f} GB; make smaller partitions, or give workers more "
                "memory."
            )
        futures = [workers.one(tasks.shard, [loaded[p] for p in group], columns, name="rows") for group in groups]
        loaded.clear()
        return cls(workers, futures, np.array([0, *(ends[group[-1]] for group in groups)]))

    def pieces(self, height: int, name: str) -> Iterator[tuple[slice, tuple[Any, Any]]]:
        """All rows in their order, at most `height` at a time, and where they are."""
        pending: deque[tuple[slice, Any]] = deque()
        for future, start, size in zip(self.futures, self.starts, np.diff(self.starts), strict=False):
            for rows in blocks(int(size), height):
                place = slice(int(start) + rows.start, int(start) + rows.stop)
                pending.append((place, self.workers.one(tasks.piece, future, rows, name=name)))
                if len(pending) > _AHEAD:
                    place, first = pending.popleft()
                    yield place, self.workers.fetched(first)
        for place, piece in pending:
            yield place, self.workers.fetched(piece)

    def numbers(self, rows: Ints | None) -> list[Ints | None]:
        """Those of `rows`, in ascending order, that are in each shard, counted from its start; None for all."""
        if rows is None:
            return [None] * len(self.futures)
        edges = np.searchsorted(rows, self.starts)
        return [rows[edges[s] : edges[s + 1]] - self.starts[s] for s in range(len(self.futures))]


@dataclass(frozen=True)
class RemoteRows(RowBlocks):
    """Rows of a matrix of the client that are summed by the workers, which have them as well."""

    shards: Shards = field(kw_only=True)
    part: str = field(kw_only=True)  # of a block: "X" or "Y"
    rows: Ints | None = field(default=None, kw_only=True)  # of the shards, in ascending order; None for all
    changes: tuple[Change, ...] = field(default=(), kw_only=True)  # of these, one after the other
    elsewhere: ClassVar[bool] = True

    def selected(self, height: int, numbers: Ints | None, change: Change | None) -> RemoteRows:
        """Some of these rows, changed."""
        rows = self.rows if numbers is None else numbers if self.rows is None else self.rows[numbers]
        changes = self.changes if change is None else (*self.changes, change)
        return RemoteRows(self, height, numbers, change, shards=self.shards, part=self.part, rows=rows, changes=changes)

    @property
    def n_places(self) -> int:  # type: ignore[override]
        """The number of shards."""
        return len(self.shards.futures)

    def fold(self, add: Callable[..., Any], *beside: RowBlocks, total: Any = None, in_order: bool = False) -> Any:
        """The totals of all shards, added in a tree; or of a chain of shards, each of which adds to that before."""
        height = min([self.height, *(_TARGET_BYTES // (4 * max(1, other.shape[1])) for other in beside)])
        views = [(other.part, other.changes) for other in (self, *beside) if isinstance(other, RemoteRows)]
        workers, name = self.shards.workers, title(add).removeprefix("add ")
        plan = workers.sent_object((add, max(1, height), views))
        numbers = self.shards.numbers(self.rows)
        if in_order:
            totals = []
            for chain in blocks(len(numbers), _CHAIN):
                last = None
                for future, some in zip(self.shards.futures[chain], numbers[chain], strict=True):
                    last = workers.one(_total, future, some, plan, last, name=name)
                totals.append(last)
        else:
            totals = workers.each(_total, self.shards.futures, numbers, [plan] * len(numbers), name=name)
        if len(totals) == 1:
            return workers.fetched(totals[0])
        return workers.fetched(workers.together(tasks.added, totals, name=f"{name} added"))

    def changed(self, change: Change, name: str) -> RemoteRows:
        """These rows after another change, which is made once, by the workers."""
        workers, numbers = self.shards.workers, self.shards.numbers(self.rows)
        plan = workers.sent_object((self.height, (self.part, (*self.changes, change)), self.rows is None))
        futures = workers.each(_changed, self.shards.futures, numbers, [plan] * len(numbers), name=name)
        starts = self.shards.starts if self.rows is None else np.searchsorted(self.rows, self.shards.starts)
        shards = replace(self.shards, futures=futures, starts=starts)
        return RemoteRows(self, self.height, None, change, shards=shards, part="X")


def _view(block: Block, view: tuple[str, tuple[Change, ...]], height: int, numbers: Ints | None) -> RowBlocks:
    part, changes = view
    rows = RowBlocks(getattr(block, part), height, numbers)
    for change in changes:
        rows = RowBlocks(rows, height, None, change)
    return rows


@alone
def _total(block: Block, numbers: Ints | None, plan: list[NDArray[np.uint8]], before: Any = None) -> Any:
    """What `fold` adds up of a shard, to the total `before`."""
    add, height, views = received(plan)
    first, *beside = (_view(block, view, height, numbers) for view in views)
    copied = tuple(map(np.copy, before)) if isinstance(before, tuple) else None if before is None else before.copy()
    return first.fold(add, *beside, total=copied)


@alone
def _changed(block: Block, numbers: Ints | None, plan: list[NDArray[np.uint8]]) -> Block:
    """A shard with its features changed; without labels where some rows are left out."""
    height, view, whole = received(plan)
    X = _view(block, view, height, numbers)[:]
    return Block(X, block.Y if whole else None, Head((X.shape[0],)))


@dataclass(frozen=True)
class ClusterWorkspace(DiskWorkspace):
    """A workspace in files of the client, for rows that the workers have as well."""

    held: dict[int, tuple[Any, RemoteRows]] = field(default_factory=dict, repr=False)  # by id: a matrix and its rows

    def hold(self, matrix: Any, shards: Shards, part: str) -> None:
        """Note that the rows of a matrix of the client are in shards."""
        self.held[id(matrix)] = matrix, RemoteRows(matrix, max(1, matrix.shape[0]), shards=shards, part=part)

    def row_blocks(self, X: Any, height: int, numbers: Ints | None = None, change: Change | None = None) -> RowBlocks:
        """Summed by the workers, if they have these rows."""
        if isinstance(X, RemoteRows):
            return X.selected(height, numbers, change)
        if isinstance(X, FactoredEmbedding) and id(X.Y) in self.held:
            labels, made = self.held[id(X.Y)][1], partial(_factored, embedding=replace(X, Y=X.Y[:0]))
            return labels.selected(height, None, made).selected(height, numbers, change)
        if id(X) in self.held:
            return self.held[id(X)][1].selected(height, numbers, change)
        return RowBlocks(X, height, numbers, change)

    def changed_rows(self, name: str, X: Any, change: Change) -> Any:
        """Changed by the workers, which keep them, and written to files."""
        if id(X) not in self.held:
            return super().changed_rows(name, X, change)
        made = self.row_blocks(X, X.shape[0]).changed(change, "features")
        assert isinstance(made, RemoteRows)

        def parts(height: int) -> Iterator[tuple[slice, Any]]:
            return ((rows, part) for rows, (part, _) in shards.pieces(height, "features to files"))

        shards = made.shards
        out = self._written(name, X, change, parts)
        for matrix, rows in list(self.held.values()):
            if rows.part == "Y":
                self.hold(matrix, shards, "Y")
        del self.held[id(X)]  # the workers may let go of the rows as they came
        self.hold(out, shards, "X")
        return out


def _factored(Y: Any, embedding: FactoredEmbedding) -> FactoredEmbedding:
    return replace(embedding, Y=Y)
