"""Tasks over rows: loading partitions, clusters, and the rows to hold out.

A task depends on its arguments alone, so that Dask can repeat it. Arguments may be shared with other tasks or be
read-only, so a task never writes to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.base.products import column_counts
from ripml.distributed.partitions import Head, raw_of
from ripml.distributed.workers import Sized, alone, size_of
from ripml.labels.encoding import align_columns, encode_labels
from ripml.labels.label_sets import fingerprints
from ripml.model.clustering import assign, centres_of, sample_rows
from ripml.model.estimator import RIPML

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Block(Sized):
    """The labelled rows of a partition: X (n, d) and Y, CSR (n, L); `head` describes their columns."""

    X: Any
    Y: Any
    head: Head


@alone
def load(partition: Any, checker: RIPML) -> Block:
    """Read a partition and check it as `fit` does; rows without labels are left out."""
    raw = raw_of(partition)
    if raw is None:
        return Block(None, None, Head((0,)))
    checker = checker.cloned()  # validation writes to it, and threads of one worker share it
    X = raw.X
    if getattr(X, "shape", (1,))[0]:
        X = checker._scaled_part(checker._validated(X, reset=True))
        if not checker.stages().decoder.tunes_ridge:  # else the fit chooses how
            X = checker._scaling_of_parts().weighted(X)
    Y, names = encode_labels(raw.Y)
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"a partition has {X.shape[0]} rows of X and {Y.shape[0]} of Y; the numbers must be equal.")
    kind = "names" if getattr(raw.Y, "ndim", 1) != 2 else "an indicator"
    if raw.label_names is not None or hasattr(raw.Y, "columns"):
        kind = "columns" if raw.label_names is None else "columns of a file"
    labelled = np.diff(Y.indptr) > 0
    head = Head(
        rows=(int(labelled.sum()),),
        n_unlabelled=int((~labelled).sum()),
        n_entries=int(Y.nnz),
        n_bytes=size_of((X, Y)),
        n_missing=raw.promised - len(labelled) if raw.promised is not None else 0,
        sparse=scipy.sparse.issparse(X),
        dtype=str(X.dtype),
        n_features=X.shape[1],
        features=raw.feature_names,
        first_feature=raw.first_feature,
        frame=list(getattr(checker, "feature_names_in_", [])) or None,
        labels=kind,
        n_labels=Y.shape[1],
        names=None if kind == "an indicator" else raw.label_names or names.tolist(),
    )
    return Block(*((X, Y) if labelled.all() else (X[labelled], Y[labelled])), head)


def head_of(block: Block) -> Head:
    """The head of a partition, without its rows."""
    return block.head


def shard(blocks: Sequence[Block], head: Head) -> Block:
    """The rows of consecutive partitions as one block, with the columns of all partitions."""
    parts = [settled(block, head) for block in blocks]
    X, Y = (_stacked_rows([getattr(part, name) for part in parts]) for name in ("X", "Y"))
    return Block(X.astype(head.dtype, copy=False), Y, Head((X.shape[0],)))


def piece(block: Block, rows: slice) -> tuple[Any, Any]:
    """Some rows of a block: X, and Y if it has labels."""
    return block.X[rows], None if block.Y is None else block.Y[rows]


def settled(block: Block, head: Head) -> Block:
    """The rows of a partition with the columns of all partitions, which `head` describes."""
    X, Y, local = block.X, block.Y, block.head
    if head.features is not None:
        X = align_columns(X, local.features or [], head.features)[0]
    elif head.sparse:
        X = _widened(X[:, head.first_feature :] if head.first_feature else X, head.n_features)
    if head.names is not None and local.names != head.names:
        Y = align_columns(Y, local.names or [], head.names)[0]
    return Block(X, _widened(Y, head.n_labels), Head(local.rows))


def _widened(matrix: Any, width: int) -> Any:
    """A CSR matrix with empty columns added on the right."""
    if matrix.shape[1] == width:
        return matrix
    return scipy.sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))


def frequency_of(block: Block) -> Ints:
    """The number of rows that carry each label, (L,)."""
    return column_counts(block.Y)


def added(terms: Sequence[Any]) -> Any:
    """The sum of arrays, or of tuples of arrays member by member, from left to right; None where there is no row."""
    terms = [term for term in terms if term is not None] or [None]
    if isinstance(terms[0], tuple):
        return tuple(added(arrays) for arrays in zip(*terms, strict=True))
    total = terms[0]
    for number, term in enumerate(terms[1:]):
        total = np.add(total, term, out=total if number else None)  # the first term is an argument: not written to
    return total


# --------------------------------------------------------------------------------------------------------- clusters


def _stacked_rows(pieces: Sequence[Any]) -> Any:
    if scipy.sparse.issparse(pieces[0]):
        return scipy.sparse.vstack(pieces, format="csr")
    return np.concatenate(pieces)


def drawn(seed: int, sizes: Sequence[int]) -> list[Ints | None]:
    """The rows of each partition that are in the sample of k-means; None for all of them."""
    rows, _ = sample_rows(sum(sizes), seed)
    if rows is None:
        return [None] * len(sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    edges = np.searchsorted(rows, starts)  # rows are sorted
    return [rows[edges[p] : edges[p + 1]] - starts[p] for p in range(len(sizes))]


def sample(block: Block, drawn_rows: Sequence[Ints | None], number: int) -> Any:
    """The rows of partition `number` that are in the sample."""
    rows = drawn_rows[number]
    return block.X if rows is None else block.X[rows]


@alone
def centres(samples: Sequence[Any], n: int, n_clusters: int, seed: int) -> NDArray[Any]:
    """The centres that `ripml.model.clustering.partition` finds for all n rows."""
    return centres_of(_stacked_rows(samples), n_clusters, sample_rows(n, seed)[1])


@alone
def assigned(block: Block, means: NDArray[Any]) -> Ints:
    """The nearest centre of each row."""
    return assign(block.X, means, 1)


# ----------------------------------------------------------------------------------------------------- held-out rows


@dataclass(frozen=True)
class LeftOut(Sized):
    """Held-out rows of all clusters in the order of the data: the first ones of each cluster in a random order."""

    X: Any
    cluster: Ints
    rank: Ints  # position in the random order
    fingerprints: tuple[Keys, Keys, Ints]  # of their label sets: two halves and the number of labels

    def __getitem__(self, rows: Any) -> LeftOut:
        high, low, size = self.fingerprints
        return LeftOut(self.X[rows], self.cluster[rows], self.rank[rows], (high[rows], low[rows], size[rows]))

    def first(self, limits: Ints) -> LeftOut:
        """The `limits[c]` rows of each cluster c with the lowest ranks."""
        order = np.lexsort((self.rank, self.cluster))
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.cluster, minlength=len(limits)))])
        cluster = self.cluster[order]
        return self[np.sort(order[np.arange(len(order)) - starts[cluster] < limits[cluster]])]


def rank_slices(seed: int, sizes: Sequence[int]) -> list[Ints]:
    """The random order in which `fit` holds rows out: the rank of each row, by partition."""
    rank = np.random.default_rng(seed).permutation(sum(sizes))
    return [ranks.copy() for ranks in np.split(rank, np.cumsum(sizes)[:-1])]


def left_out(block: Block, cluster: Ints, rank: Ints, keys: Keys, limits: Ints) -> LeftOut:
    """The rows of a partition that may be held out."""
    high, low, size = fingerprints(block.Y, keys)
    return LeftOut(block.X, cluster, rank, (high, low, size.astype(np.int64))).first(limits)


def merged_left_out(groups: Sequence[LeftOut], limits: Ints) -> LeftOut:
    """The held-out rows of consecutive partitions."""
    high, low, size = (np.concatenate(arrays) for arrays in zip(*(group.fingerprints for group in groups), strict=True))
    return LeftOut(
        _stacked_rows([group.X for group in groups]),
        np.concatenate([group.cluster for group in groups]),
        np.concatenate([group.rank for group in groups]),
        (high, low, size),
    ).first(limits)
