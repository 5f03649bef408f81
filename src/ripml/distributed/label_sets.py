"""The distinct label sets of all rows and their embeddings, in buckets on the workers.

Each partition embeds its label sets and sums its rows with their embeddings (`one_pass`). Label sets are ordered by
cluster, then by fingerprint. A bucket holds the sets of all clusters whose fingerprints begin with the same bits, so
the sets of a cluster are its sets of the first bucket, then of the second, and so on. The client writes the buckets to
files one by one. A search takes the k nearest sets of each bucket, and of those the k nearest.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.products import IndexedEmbedding
from ripml.base.workspace import DiskWorkspace, release, row_slice
from ripml.distributed.tasks import Block, LeftOut
from ripml.distributed.workers import Sized, Workers, alone
from ripml.labels.label_sets import fingerprints
from ripml.labels.projection import Embedder, Projection
from ripml.model.streaming import sums_by_cluster
from ripml.neighbors import Exact, Searcher
from ripml.neighbors.exact import merge_nearest

BUCKET_BYTES = 1 << 27  # of embeddings in one bucket, which the client holds at a time

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]


# ------------------------------------------------------------------------------------------------ one pass over rows


@dataclass(frozen=True)
class Plan:
    """The settings of a pass over the rows."""

    token: str  # of the fit; workers keep its columns of Phi under this key
    projection: Projection
    n_clusters: int
    bucket_bits: int  # leading bits of the fingerprints: there are 2^bits buckets
    table_bytes: int  # of columns of Phi that a worker keeps

    def buckets(self, high: Keys) -> Keys:
        """The bucket of each label set, from the first half of its fingerprint."""
        return np.asarray((high >> np.uint64(1)) >> np.uint64(63 - self.bucket_bits))


@dataclass(frozen=True)
class Bucket(Sized):
    """Distinct label sets whose fingerprints begin with the same bits, by cluster and fingerprint."""

    cluster: Ints
    fingerprints: tuple[Keys, Keys]
    counts: Ints  # rows with each label set
    labels: Any  # CSR (e, L)
    Z: Floats  # embeddings, (e, F·m) in a partition, (F, e, m) after partitions are merged

    def ends(self, n_clusters: int) -> Ints:
        """The start of each cluster and the end of the last, (C + 1,)."""
        return np.searchsorted(self.cluster, np.arange(n_clusters + 1))


@dataclass(frozen=True)
class Pass(Sized):
    """The result of a partition: XᵀX, XᵀZ and the number of rows of each cluster, and its label sets in buckets."""

    sums: tuple[NDArray[np.float64], NDArray[np.float64], Ints]  # (C, d, d), (C, d, M), (C,)
    buckets: list[Bucket]


_lock = threading.Lock()
_embedders: dict[str, Embedder] = {}  # of the latest fit: all its passes on this worker share the columns of Phi


def _embedder(plan: Plan, keys: Keys, frequency: Ints) -> Embedder:
    with _lock:
        if plan.token not in _embedders:
            _embedders.clear()
            _embedders[plan.token] = Embedder(plan.projection, keys, frequency, plan.table_bytes, 1)
        return _embedders[plan.token]


def forget(token: str) -> None:
    """Release the columns of Phi that this worker keeps for a fit."""
    with _lock:
        _embedders.pop(token, None)


@alone
def one_pass(block: Block, cluster: Ints, keys: Keys, set_keys: Keys, frequency: Ints, plan: Plan) -> Pass:
    """Embed the label sets of a partition, sum its rows with their embeddings, and sort the sets into buckets."""
    # Find the distinct label sets of each cluster: equal fingerprints and sizes are next to each other in `order`.
    high, low, size = fingerprints(block.Y, set_keys)
    bucket = plan.buckets(high).astype(np.int64)
    order = np.lexsort((size, low, high, cluster, bucket))
    new = _differs(order, size, low, high, cluster)
    set_of_row = np.empty(len(order), np.int64)
    set_of_row[order] = np.cumsum(new) - 1
    first = order[new]
    # Embed each of them once (the paper's step 1).
    labels = block.Y[first]
    Z = np.empty((len(first), plan.projection.n_learners * plan.projection.n_dims), np.float32)
    _embedder(plan, keys, frequency).fill(Z, labels)
    # Sum XᵀX and XᵀZ (the paper's step 2).
    sums = sums_by_cluster(block.X, IndexedEmbedding(Z[None], set_of_row), cluster, [True] * plan.n_clusters, 1)
    # Cut the sets at the edges of the buckets.
    edges = np.searchsorted(bucket[first], np.arange(2**plan.bucket_bits + 1))
    counts = np.bincount(set_of_row)
    buckets = []
    for start, end in pairwise(edges.tolist()):
        some, rows = slice(start, end), first[start:end]
        # Copies, so that each bucket's memory can be freed on its own.
        bucket_labels = row_slice(labels, some).copy()
        buckets.append(
            Bucket(cluster[rows], (high[rows], low[rows]), counts[some].copy(), bucket_labels, Z[some].copy())
        )
    return Pass(_stacked(sums, block.X.shape[1], Z.shape[1]), buckets)


def _differs(order: Ints, *fields: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each member, in this order, differs from the one before in any field."""
    new = np.ones(len(order), bool)
    new[1:] = np.any([field[order[1:]] != field[order[:-1]] for field in fields], axis=0)
    return new


def _stacked(sums: Sequence[Any], d: int, n_targets: int) -> tuple[Any, Any, Ints]:
    """The sums of all clusters as three arrays, with zeros for clusters that have no row here."""
    if len(sums) == 1:
        return sums[0].gram[None], sums[0].moment[None], np.array([sums[0].n_rows])
    grams, moments, n_rows = np.zeros((len(sums), d, d)), np.zeros((len(sums), d, n_targets)), np.zeros(len(sums), int)
    for c, cluster_sums in enumerate(sums):
        if cluster_sums is not None:
            grams[c], moments[c], n_rows[c] = cluster_sums.gram, cluster_sums.moment, cluster_sums.n_rows
    return grams, moments, n_rows


def sums_of(passed: Pass) -> tuple[Any, Any, Ints]:
    """The sums of a partition, without its buckets."""
    return passed.sums


def bucket_of(passed: Pass, number: int) -> Bucket:
    """One bucket of a partition."""
    return passed.buckets[number]


# ------------------------------------------------------------------------------------------------- tasks of a bucket


@alone
def bucketed(pieces: Sequence[Bucket], n_learners: int) -> Bucket:
    """Merge the pieces of a bucket from all partitions; a label set that occurs in several becomes one."""
    cluster, counts = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("cluster", "counts"))
    high, low = (np.concatenate(halves) for halves in zip(*(piece.fingerprints for piece in pieces), strict=True))
    labels = scipy.sparse.vstack([piece.labels for piece in pieces], format="csr")
    size = np.diff(labels.indptr)
    order = np.lexsort((size, low, high, cluster))
    new = _differs(order, size, low, high, cluster)
    first = order[new]
    # Copy the embedding of the first occurrence of each set to the set's new place.
    place = np.full(len(order), -1, np.int64)
    place[first] = np.arange(len(first))
    m = pieces[0].Z.shape[1] // n_learners
    Z = np.empty((n_learners, len(first), m), np.float32)
    start = 0
    for piece in pieces:
        places = place[start : start + len(piece.Z)]
        rows = piece.Z[places >= 0]
        Z[:, places[places >= 0]] = rows.reshape(len(rows), n_learners, m).transpose(1, 0, 2)
        start += len(piece.Z)
    total_counts = np.add.reduceat(counts[order], np.flatnonzero(new)) if len(order) else counts
    return Bucket(cluster[first], (high[first], low[first]), total_counts, labels[first], Z)


def bucket_sizes(bucket: Bucket, n_clusters: int) -> tuple[Ints, Ints]:
    """The number of label sets of each cluster, and of their labels."""
    ends = bucket.ends(n_clusters)
    return np.diff(ends), np.diff(bucket.labels.indptr[ends]).astype(np.int64)


@alone
def nearest(bucket: Bucket, start: int, Q: Floats, k: int, c: int, n_clusters: int, learner: int) -> Any:
    """The k nearest embeddings of cluster c in a bucket, or all if there are fewer; ids count from `start`."""
    ends = bucket.ends(n_clusters)
    Z = bucket.Z[learner, ends[c] : ends[c + 1]]
    if not len(Z):
        return np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0))
    ids, distances = Exact().build(Z, 1).query(Q, min(k, len(Z)), 1)
    return ids + start, distances


# -------------------------------------------------------------------------------------------- all buckets, for a client


@dataclass(frozen=True)
class Written:
    """The index in files: embeddings Z (F, e, m), label sets, CSR (e, L), and the rows of each."""

    workspace: DiskWorkspace
    Z: Floats
    sets: Any
    counts: Ints
    ends: Ints  # (C + 1,) the start of each cluster and the end of the last
    entries: Ints  # the label set of each held-out row, counted within its cluster

    def of_cluster(self, c: int) -> slice:
        """The label sets of a cluster."""
        return slice(int(self.ends[c]), int(self.ends[c + 1]))


@dataclass(frozen=True)
class Buckets:
    """The buckets on the workers; bucket b has `sizes[b, c]` label sets of cluster c, with `labels[b, c]` labels."""

    workers: Workers
    plan: Plan
    futures: list[Any]
    sizes: Ints
    labels: Ints

    @classmethod
    def of(cls, workers: Workers, passed: Sequence[Any], plan: Plan) -> Buckets:
        """Merge the buckets of all partitions."""
        futures = []
        for b in range(2**plan.bucket_bits):
            pieces = workers.each(bucket_of, passed, [b] * len(passed))
            futures.append(workers.one(bucketed, pieces, plan.projection.n_learners))
        sizes = workers.each(bucket_sizes, futures, [plan.n_clusters] * len(futures))
        set_counts, label_counts = zip(*workers.fetched(sizes), strict=True)
        return cls(workers, plan, futures, np.array(set_counts), np.array(label_counts))

    def write(self, workspace: DiskWorkspace, n_labels: int, left_out: LeftOut) -> Written:
        """Fetch the buckets one by one, write their sets to files, and find the sets of held-out rows."""
        starts, label_starts = _starts(self.sizes), _starts(self.labels)
        n_sets, projection = int(self.sizes.sum()), self.plan.projection
        Z = workspace.empty("Z", (projection.n_learners, n_sets, projection.n_dims), np.float32)
        counts = workspace.empty("counts", (n_sets,), np.int64)
        indices = workspace.empty("sets-indices", (int(self.labels.sum()),), np.int32)
        indptr = np.zeros(n_sets + 1, np.int64)
        entries = np.empty(len(left_out.rank), np.int64)
        row_bucket = self.plan.buckets(left_out.fingerprints[0])
        for b, future in enumerate(self.futures):
            bucket: Bucket = self.workers.fetched(future)
            ends = bucket.ends(self.plan.n_clusters)
            for c in np.flatnonzero(self.sizes[b]):
                source, target = slice(ends[c], ends[c + 1]), slice(starts[b, c], starts[b, c] + self.sizes[b, c])
                Z[:, target], counts[target] = bucket.Z[:, source], bucket.counts[source]
                sets = row_slice(bucket.labels, source)
                label_start = label_starts[b, c]
                indices[label_start : label_start + self.labels[b, c]] = sets.indices
                indptr[target.start + 1 : target.stop + 1] = label_start + np.cumsum(np.diff(sets.indptr))
                rows = np.flatnonzero((left_out.cluster == c) & (row_bucket == b))
                found = _places(bucket, source, [part[rows] for part in left_out.fingerprints])
                entries[rows] = target.start - starts[0, c] + found
            release(*Z, counts, indices)
        sets = workspace.csr("sets", workspace.ones(len(indices)), indices, indptr, n_labels)
        return Written(workspace, Z, sets, counts, np.append(starts[0], n_sets), entries)

    def searchers(self, c: int) -> list[Searcher]:
        """Searchers of the embeddings of cluster c, one per learner."""
        return [_BucketSearcher(self, c, learner) for learner in range(self.plan.projection.n_learners)]


def _starts(sizes: Ints) -> Ints:
    """The start of bucket b in cluster c, (B, C), where members are ordered by cluster and then by bucket."""
    ends = np.cumsum(sizes.T).reshape(sizes.T.shape).T
    return np.asarray(ends - sizes)


def _places(bucket: Bucket, sets: slice, wanted: Sequence[NDArray[Any]]) -> Ints:
    """The places of the wanted fingerprints (halves and sizes) among these sets of a bucket; all must occur."""
    high, low = (half[sets] for half in bucket.fingerprints)
    sizes = np.diff(bucket.labels.indptr[sets.start : sets.stop + 1])
    place = np.searchsorted(high, wanted[0])
    while (wrong := (low[place] != wanted[1]) | (sizes[place] != wanted[2])).any():
        place[wrong] += 1  # two sets rarely share the first half
    return place


class _BucketSearcher(Searcher):
    """Exact search in the embeddings of one cluster and learner, over the buckets on all workers."""

    def __init__(self, buckets: Buckets, c: int, learner: int) -> None:
        self.n_rows, self._buckets, self._c, self._learner = int(buckets.sizes[:, c].sum()), buckets, c, learner

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> tuple[Ints, NDArray[np.float64]]:
        """Search all buckets that have sets of the cluster, and merge their results."""
        buckets, c = self._buckets, self._c
        sizes = buckets.sizes[:, c]
        occupied, starts = np.flatnonzero(sizes), np.cumsum(sizes) - sizes
        task = partial(nearest, k=k, c=c, n_clusters=buckets.plan.n_clusters, learner=self._learner)
        futures, queries = [buckets.futures[b] for b in occupied], [buckets.workers.sent(Q)] * len(occupied)
        found = buckets.workers.each(task, futures, starts[occupied].tolist(), queries)
        return merge_nearest(buckets.workers.fetched(found), k)
