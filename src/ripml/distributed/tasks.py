"""What workers do: each function is a task that depends on its arguments alone, so it can be done again elsewhere.

What a task is given may be shared with other tasks or be read-only, so it is never written to.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from ripml.clusters import assign, centres_of, sample_rows
from ripml.distributed.columns import Head
from ripml.distributed.partitions import raw_of, widened
from ripml.ensembles import Embedder, Projection
from ripml.errors import DataError
from ripml.labels import align_columns, encode_labels, fingerprints
from ripml.multilabel import Multilabel
from ripml.neighbors import Exact
from ripml.passes import sums_by_cluster
from ripml.products import Taken, column_counts
from ripml.rooms import row_slice

__all__ = [
    "Block",
    "Bucket",
    "LeftOut",
    "Pass",
    "Plan",
    "added",
    "assigned",
    "bucket_of",
    "bucket_sizes",
    "bucketed",
    "centres",
    "drawn",
    "forget",
    "frequency_of",
    "given",
    "head_of",
    "left_out",
    "load",
    "member",
    "merged_left_out",
    "nearest",
    "one_pass",
    "placed",
    "rank_slices",
    "sample",
    "settled",
    "sizes_of",
    "sums_of",
]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
Result = TypeVar("Result")


def _alone(function: Callable[..., Result]) -> Callable[..., Result]:
    """The task with BLAS on one thread: a worker runs as many tasks as it has threads."""

    @functools.wraps(function)
    def task(*args: Any, **options: Any) -> Result:
        with threadpool_limits(1, user_api="blas"):
            return function(*args, **options)

    return task


def _bytes(thing: Any) -> int:
    if scipy.sparse.issparse(thing):
        return sum(_bytes(array) for array in (thing.data, thing.indices, thing.indptr))
    if isinstance(thing, (list, tuple)):
        return sum(map(_bytes, thing))
    return thing.__sizeof__() if isinstance(thing, _Sized) else int(getattr(thing, "nbytes", 0))


class _Sized:
    """Tells Dask how much memory it takes, so that it is moved to disk in time."""

    def __sizeof__(self) -> int:
        return sum(_bytes(value) for value in vars(self).values())


# ------------------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Block(_Sized):
    """Rows of a partition that carry labels: X (n, d) and Y, CSR (n, L), with columns that the head tells."""

    X: Any
    Y: Any
    head: Head


@_alone
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
        n_bytes=_bytes((X, Y)),
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


@_alone
def centres(samples: Sequence[Any], n: int, n_clusters: int, seed: int) -> NDArray[Any]:
    """The centres that `ripml.clusters.partition` finds for all n rows."""
    return centres_of(_stacked_rows(samples), n_clusters, sample_rows(n, seed)[1])


@_alone
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
class LeftOut(_Sized):
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


# ------------------------------------------------------------------------------------------------------------- pass


@dataclass(frozen=True)
class Plan:
    """What a pass does; the token is that of the fit, whose columns of Phi a worker holds."""

    token: str
    projection: Projection
    n_clusters: int
    bucket_bits: int  # of the fingerprints: 2^bits buckets
    table_bytes: int


@dataclass(frozen=True)
class Bucket(_Sized):
    """Distinct label sets whose fingerprints begin alike, by cluster and fingerprint, and their embeddings."""

    cluster: Ints
    marks: tuple[Keys, Keys]
    counts: Ints
    labels: Any  # CSR (e, L)
    Z: Floats  # (e, F·m) before partitions are merged, then (F, e, m)

    def ends(self, n_clusters: int) -> Ints:
        """Where each cluster begins, and the end: (C + 1,)."""
        return np.searchsorted(self.cluster, np.arange(n_clusters + 1))


@dataclass(frozen=True)
class Pass(_Sized):
    """What is made of a partition: XᵀX, XᵀZ and rows of all clusters, and its label sets in buckets."""

    sums: tuple[NDArray[np.float64], NDArray[np.float64], Ints]  # (C, d, d), (C, d, M), (C,)
    buckets: list[Bucket]


_lock = threading.Lock()
_embedders: dict[str, Embedder] = {}  # of the latest fit: its columns of Phi are wanted by every pass


def _embedder(plan: Plan, keys: Keys, frequency: Ints) -> Embedder:
    with _lock:
        if plan.token not in _embedders:
            _embedders.clear()
            _embedders[plan.token] = Embedder(plan.projection, keys, frequency, plan.table_bytes, 1)
        return _embedders[plan.token]


def forget(token: str) -> None:
    """Let go of the columns of Phi of this fit."""
    with _lock:
        _embedders.pop(token, None)


@_alone
def one_pass(block: Block, cluster: Ints, keys: Keys, set_keys: Keys, frequency: Ints, plan: Plan) -> Pass:
    """Embed the label sets of a partition, sum its rows with their embeddings, and sort the sets into buckets."""
    one, other, size = fingerprints(block.Y, set_keys)
    bucket = ((one >> np.uint64(1)) >> np.uint64(63 - plan.bucket_bits)).astype(np.int64)
    order = np.lexsort((size, other, one, cluster, bucket))
    new = _new(order, size, other, one, cluster)
    of_row = np.empty(len(order), np.int64)
    of_row[order] = np.cumsum(new) - 1
    first = order[new]
    labels = block.Y[first]
    Z = np.empty((len(first), plan.projection.n_learners * plan.projection.n_dims), np.float32)
    _embedder(plan, keys, frequency).fill(Z, labels)
    sums = sums_by_cluster(block.X, Taken(Z[None], of_row), cluster, [True] * plan.n_clusters, 1)
    edges = np.searchsorted(bucket[first], np.arange(2**plan.bucket_bits + 1))
    counts = np.bincount(of_row)
    buckets = []
    for start, end in pairwise(edges.tolist()):
        own, rows = slice(start, end), first[start:end]
        # Copies, so that a bucket that is done with lets go of its memory.
        some = row_slice(labels, own).copy()
        buckets.append(Bucket(cluster[rows], (one[rows], other[rows]), counts[own].copy(), some, Z[own].copy()))
    return Pass(_stacked(sums, block.X.shape[1], Z.shape[1]), buckets)


def _new(order: Ints, *fields: NDArray[Any]) -> NDArray[np.bool_]:
    """Where, in this order, the fields are not those of the one before."""
    new = np.ones(len(order), bool)
    new[1:] = np.any([field[order[1:]] != field[order[:-1]] for field in fields], axis=0)
    return new


def _stacked(sums: Sequence[Any], d: int, n_targets: int) -> tuple[Any, Any, Ints]:
    if len(sums) == 1:
        return sums[0].gram[None], sums[0].moment[None], np.array([sums[0].n_rows])
    grams, moments = np.zeros((len(sums), d, d)), np.zeros((len(sums), d, n_targets))
    for c, one in enumerate(sums):
        if one is not None:
            grams[c], moments[c] = one.gram, one.moment
    return grams, moments, np.array([0 if one is None else one.n_rows for one in sums])


def sums_of(passed: Pass) -> tuple[Any, Any, Ints]:
    """The sums of a partition."""
    return passed.sums


def bucket_of(passed: Pass, number: int) -> Bucket:
    """One of its buckets."""
    return passed.buckets[number]


def bucketed(pieces: Sequence[Bucket], n_learners: int) -> Bucket:
    """A bucket of all partitions: sets that several of them have become one."""
    cluster, counts = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("cluster", "counts"))
    one, other = (np.concatenate(marks) for marks in zip(*(piece.marks for piece in pieces), strict=True))
    labels = scipy.sparse.vstack([piece.labels for piece in pieces], format="csr")
    size = np.diff(labels.indptr)
    order = np.lexsort((size, other, one, cluster))
    new = _new(order, size, other, one, cluster)
    first = order[new]
    place = np.full(len(order), -1, np.int64)
    place[first] = np.arange(len(first))
    M = pieces[0].Z.shape[1]
    Z = np.empty((n_learners, len(first), M // n_learners), np.float32)
    start = 0
    for piece in pieces:
        at = place[start : start + len(piece.Z)]
        rows = piece.Z[at >= 0]
        Z[:, at[at >= 0]] = rows.reshape(len(rows), n_learners, -1).transpose(1, 0, 2)
        start += len(piece.Z)
    summed = np.add.reduceat(counts[order], np.flatnonzero(new)) if len(order) else counts
    return Bucket(cluster[first], (one[first], other[first]), summed, labels[first], Z)


def bucket_sizes(bucket: Bucket, n_clusters: int) -> tuple[Ints, Ints]:
    """Label sets of each cluster, and their labels."""
    ends = bucket.ends(n_clusters)
    return np.diff(ends), np.diff(bucket.labels.indptr[ends]).astype(np.int64)


@_alone
def nearest(bucket: Bucket, c: int, n_clusters: int, learner: int, Q: Floats, k: int, start: int) -> Any:
    """The k nearest embeddings of cluster c in a bucket, or all if they are fewer; the first has the number `start`."""
    ends = bucket.ends(n_clusters)
    Z = bucket.Z[learner, ends[c] : ends[c + 1]]
    if not len(Z):
        return np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0))
    ids, distances = Exact().build(Z, 1).query(Q, min(k, len(Z)), 1)
    return ids + start, distances


def given(value: Any) -> Any:
    """What the client sent."""
    return value
