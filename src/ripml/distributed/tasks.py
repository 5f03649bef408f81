"""What workers do with rows: each function is a task that depends on its arguments alone, so it can be done again.

What a task is given may be shared with other tasks or be read-only, so it is never written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import clone

from ripml.base.errors import DataError
from ripml.base.products import column_counts
from ripml.distributed.columns import Head
from ripml.distributed.memory import Sized, alone, size_of
from ripml.distributed.partitions import raw_of, widened
from ripml.labels.encoding import align_columns, encode_labels
from ripml.labels.label_sets import fingerprints
from ripml.model.clustering import assign, centres_of, sample_rows
from ripml.model.multilabel import Multilabel

__all__ = [
    "Block",
    "LeftOut",
    "added",
    "assigned",
    "centres",
    "drawn",
    "frequency_of",
    "given",
    "head_of",
    "left_out",
    "load",
    "member",
    "merged_left_out",
    "placed",
    "rank_slices",
    "sample",
    "settled",
    "sizes_of",
]

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Block(Sized):
    """Rows of a partition that carry labels: X (n, d) and Y, CSR (n, L), with columns that the head tells."""

    X: Any
    Y: Any
    head: Head


@alone
def load(given: Any, checker: Multilabel) -> Block:
    """Read a partition and check it as `fit` does; rows without labels are left out."""
    raw = raw_of(given)
    if raw is None:
        return Block(None, None, Head((0,)))
    checker = clone(checker)  # tasks on threads of one process may share what they are given
    X = checker._validated(raw.X, reset=True) if getattr(raw.X, "shape", (1,))[0] else raw.X
    Y, names = encode_labels(raw.Y)
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"a partition has {X.shape[0]} rows of X and {Y.shape[0]} of Y; they must be as many.")
    kind = "names" if getattr(raw.Y, "ndim", 1) != 2 else "an indicator"
    if raw.label_names is not None or hasattr(raw.Y, "columns"):
        kind = "columns" if raw.label_names is None else "columns of a file"
    known = raw.label_names or names.tolist()
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
        names=None if kind == "an indicator" else known,
    )
    return Block(*((X, Y) if labelled.all() else (X[labelled], Y[labelled])), head)


def head_of(block: Block) -> Head:
    """What is said of a partition."""
    return block.head


def settled(block: Block, head: Head) -> Block:
    """The rows with the columns that all partitions have together."""
    X, Y, own = block.X, block.Y, block.head
    if head.features is not None:
        X = align_columns(X, own.features or [], head.features)[0]
    elif head.sparse:
        X = widened(X[:, head.first_feature :] if head.first_feature else X, head.n_features)
    if head.names is not None and own.names != head.names:
        Y = align_columns(Y, own.names or [], head.names)[0]
    return Block(X, widened(Y, head.n_labels), Head(own.rows))


def frequency_of(block: Block) -> Ints:
    """Rows of each label, (L,)."""
    return column_counts(block.Y)


def added(terms: Sequence[Any]) -> Any:
    """The sum of arrays, or of tuples of them; it is the same whoever adds, since the order is."""
    if isinstance(terms[0], tuple):
        return tuple(added(of_place) for of_place in zip(*terms, strict=True))
    total = terms[0]
    for number, term in enumerate(terms[1:]):
        total = np.add(total, term, out=total if number else None)
    return total


def member(groups: Any, number: int) -> Any:
    """One of several results."""
    return groups[number]


# --------------------------------------------------------------------------------------------------------- clusters


def _stacked_rows(pieces: Sequence[Any]) -> Any:
    if scipy.sparse.issparse(pieces[0]):
        return scipy.sparse.vstack(pieces, format="csr")
    return np.concatenate(pieces)


def _cut(rows: Ints, sizes: Sequence[int]) -> list[Ints]:
    """Sorted numbers of rows of all partitions as numbers in each."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    edges = np.searchsorted(rows, starts)
    return [rows[edges[p] : edges[p + 1]] - starts[p] for p in range(len(sizes))]


def drawn(seed: int, sizes: Sequence[int]) -> list[Ints | None]:
    """The rows of each partition that k-means learns from, None for all of them."""
    rows, _ = sample_rows(sum(sizes), seed)
    return [None] * len(sizes) if rows is None else list(_cut(rows, sizes))


def sample(block: Block, rows: Sequence[Ints | None], number: int) -> Any:
    """These rows of partition `number`."""
    own = rows[number]
    return block.X if own is None else block.X[own]


@alone
def centres(samples: Sequence[Any], n: int, n_clusters: int, seed: int) -> NDArray[Any]:
    """The centres that `ripml.model.clustering.partition` finds for all n rows."""
    return centres_of(_stacked_rows(samples), n_clusters, sample_rows(n, seed)[1])


@alone
def assigned(block: Block, means: NDArray[Any]) -> Ints:
    """The nearest centre of each row."""
    return assign(block.X, means, 1)


def sizes_of(cluster: Ints, n_clusters: int) -> Ints:
    """Rows of each cluster."""
    return np.bincount(cluster, minlength=n_clusters)


def placed(cluster: Ints, occupied: Ints) -> Ints:
    """Numbers of clusters as places among those that have rows."""
    return np.searchsorted(occupied, cluster)


# ---------------------------------------------------------------------------------------------------- rows left out


@dataclass(frozen=True)
class LeftOut(Sized):
    """The first rows of each cluster in the order in which rows are left out; here they lie as in the data."""

    X: Any
    cluster: Ints
    rank: Ints
    marks: tuple[Keys, Keys, Ints]  # of their label sets

    def __getitem__(self, rows: Any) -> LeftOut:
        one, other, size = self.marks
        return LeftOut(self.X[rows], self.cluster[rows], self.rank[rows], (one[rows], other[rows], size[rows]))

    def first(self, most: Ints) -> LeftOut:
        """The `most[c]` rows of each cluster c with the lowest ranks."""
        order = np.lexsort((self.rank, self.cluster))
        ends = np.concatenate([[0], np.cumsum(np.bincount(self.cluster, minlength=len(most)))])
        of = self.cluster[order]
        return self[np.sort(order[np.arange(len(order)) - ends[of] < most[of]])]


def rank_slices(seed: int, sizes: Sequence[int]) -> list[Ints]:
    """The place of each row in the order in which rows are left out, by partition."""
    rank = np.random.default_rng(seed).permutation(sum(sizes))
    return [piece.copy() for piece in np.split(rank, np.cumsum(sizes)[:-1])]


def left_out(block: Block, cluster: Ints, rank: Ints, keys: Keys, most: Ints) -> LeftOut:
    """The rows of a partition that may be left out."""
    one, other, size = fingerprints(block.Y, keys)
    return LeftOut(block.X, cluster, rank, (one, other, size.astype(np.int64))).first(most)


def merged_left_out(groups: Sequence[LeftOut], most: Ints) -> LeftOut:
    """Those of several partitions, which follow each other."""
    one, other, size = (np.concatenate(arrays) for arrays in zip(*(group.marks for group in groups), strict=True))
    return LeftOut(
        _stacked_rows([group.X for group in groups]),
        np.concatenate([group.cluster for group in groups]),
        np.concatenate([group.rank for group in groups]),
        (one, other, size),
    ).first(most)


def given(value: Any) -> Any:
    """What the client sent."""
    return value
