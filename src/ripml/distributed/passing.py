"""What workers do in the pass over the rows, and with the index: tasks as in `ripml.distributed.tasks`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.products import IndexedEmbedding
from ripml.base.workspace import row_slice
from ripml.distributed.memory import Sized, alone
from ripml.distributed.tasks import Block
from ripml.labels.label_sets import fingerprints
from ripml.labels.projection import Embedder, Projection
from ripml.model.streaming import sums_by_cluster
from ripml.neighbors import Exact

__all__ = [
    "Bucket",
    "Pass",
    "Plan",
    "bucket_of",
    "bucket_sizes",
    "bucketed",
    "forget",
    "nearest",
    "one_pass",
    "sums_of",
]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Plan:
    """What a pass does; the token is that of the fit, whose columns of Phi a worker holds."""

    token: str
    projection: Projection
    n_clusters: int
    bucket_bits: int  # of the fingerprints: 2^bits buckets
    table_bytes: int


@dataclass(frozen=True)
class Bucket(Sized):
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
class Pass(Sized):
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


@alone
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
    sums = sums_by_cluster(block.X, IndexedEmbedding(Z[None], of_row), cluster, [True] * plan.n_clusters, 1)
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


@alone
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
    m = pieces[0].Z.shape[1] // n_learners
    Z = np.empty((n_learners, len(first), m), np.float32)
    start = 0
    for piece in pieces:
        at = place[start : start + len(piece.Z)]
        rows = piece.Z[at >= 0]
        Z[:, at[at >= 0]] = rows.reshape(len(rows), n_learners, m).transpose(1, 0, 2)
        start += len(piece.Z)
    summed = np.add.reduceat(counts[order], np.flatnonzero(new)) if len(order) else counts
    return Bucket(cluster[first], (one[first], other[first]), summed, labels[first], Z)


def bucket_sizes(bucket: Bucket, n_clusters: int) -> tuple[Ints, Ints]:
    """Label sets of each cluster, and their labels."""
    ends = bucket.ends(n_clusters)
    return np.diff(ends), np.diff(bucket.labels.indptr[ends]).astype(np.int64)


@alone
def nearest(bucket: Bucket, start: int, Q: Floats, k: int, c: int, n_clusters: int, learner: int) -> Any:
    """The k nearest embeddings of cluster c in a bucket, or all if they are fewer; the first has the number `start`."""
    ends = bucket.ends(n_clusters)
    Z = bucket.Z[learner, ends[c] : ends[c + 1]]
    if not len(Z):
        return np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0))
    ids, distances = Exact().build(Z, 1).query(Q, min(k, len(Z)), 1)
    return ids + start, distances
