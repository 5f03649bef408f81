"""The index in buckets on the workers: written to files bucket by bucket, and searched by all workers at once.

Label sets are ordered by cluster, then by fingerprint. A bucket has those of all clusters whose
fingerprints begin with the same bits, so the sets of a cluster are its sets of the first bucket, of the second, and so
on; of the k nearest of each bucket the k nearest remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.workspace import DiskWorkspace, release
from ripml.distributed import passing
from ripml.distributed.passing import Bucket, Plan
from ripml.distributed.tasks import LeftOut
from ripml.distributed.workers import Workers
from ripml.neighbors import Searcher
from ripml.neighbors.exact import merge_nearest

__all__ = ["BUCKET_BYTES", "Buckets", "Written"]

BUCKET_BYTES = 1 << 27  # of embeddings, which the client holds at a time

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Written:
    """The index in files: Z (F, e, m), label sets, CSR (e, L), and their rows, with the entry of each row left out."""

    workspace: DiskWorkspace
    Z: Floats
    sets: Any
    counts: Ints
    ends: Ints  # (C + 1,) where each cluster begins, and the end
    entries: Ints  # of rows left out, among those of their cluster

    def own(self, c: int) -> slice:
        """The entries of a cluster."""
        return slice(int(self.ends[c]), int(self.ends[c + 1]))


@dataclass(frozen=True)
class Buckets:
    """Buckets on the workers; bucket b has `sizes[b, c]` label sets of cluster c with `labels[b, c]` labels in all."""

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
            pieces = workers.each(passing.bucket_of, passed, [b] * len(passed))
            futures.append(workers.one(passing.bucketed, pieces, plan.projection.n_learners))
        measured = workers.each(passing.bucket_sizes, futures, [plan.n_clusters] * len(futures))
        sizes, labels = zip(*workers.fetched(measured), strict=True)
        return cls(workers, plan, futures, np.array(sizes), np.array(labels))

    def write(self, workspace: DiskWorkspace, n_labels: int, left_out: LeftOut) -> Written:
        """Fetch one bucket after the other and put its sets where they belong."""
        starts, label_starts = _starts(self.sizes), _starts(self.labels)
        e, projection = int(self.sizes.sum()), self.plan.projection
        Z = workspace.empty("Z", (projection.n_learners, e, projection.n_dims), np.float32)
        counts = workspace.empty("counts", (e,), np.int64)
        indices = workspace.empty("sets-indices", (int(self.labels.sum()),), np.int32)
        indptr = np.zeros(e + 1, np.int64)
        entries = np.empty(len(left_out.rank), np.int64)
        bucket_of = (left_out.marks[0] >> np.uint64(1)) >> np.uint64(63 - self.plan.bucket_bits)
        for b, future in enumerate(self.futures):
            bucket: Bucket = self.workers.fetched(future)
            ends = bucket.ends(self.plan.n_clusters)
            for c in np.flatnonzero(self.sizes[b]):
                own, at = slice(ends[c], ends[c + 1]), slice(starts[b, c], starts[b, c] + self.sizes[b, c])
                of_labels = bucket.labels.indptr[[own.start, own.stop]]
                lengths = np.diff(bucket.labels.indptr[own.start : own.stop + 1])
                Z[:, at], counts[at] = bucket.Z[:, own], bucket.counts[own]
                label_start = label_starts[b, c]
                indices[label_start : label_start + self.labels[b, c]] = bucket.labels.indices[slice(*of_labels)]
                indptr[at.start + 1 : at.stop + 1] = label_start + np.cumsum(lengths)
                asked = np.flatnonzero((left_out.cluster == c) & (bucket_of == b))
                entries[asked] = at.start - starts[0, c] + _places(bucket, own, [m[asked] for m in left_out.marks])
            release(*Z, counts, indices)
        sets = workspace.csr("sets", workspace.ones(len(indices)), indices, indptr, n_labels)
        return Written(workspace, Z, sets, counts, np.append(starts[0], e), entries)

    def searchers(self, c: int) -> list[Searcher]:
        """Of the embeddings of cluster c, one a learner."""
        return [_Spread(self, c, learner) for learner in range(self.plan.projection.n_learners)]


def _starts(sizes: Ints) -> Ints:
    """Where the sets of bucket b and cluster c begin, (B, C), if they lie by cluster and then by bucket."""
    ends = np.cumsum(sizes.T).reshape(sizes.T.shape).T
    return np.asarray(ends - sizes)


def _places(bucket: Bucket, own: slice, marks: Sequence[NDArray[Any]]) -> Ints:
    """Where label sets with these fingerprints are among the bucket's `own`; all of them are there."""
    one, other = (mark[own] for mark in bucket.marks)
    sizes = np.diff(bucket.labels.indptr[own.start : own.stop + 1])
    place = np.searchsorted(one, marks[0])
    while (wrong := (other[place] != marks[1]) | (sizes[place] != marks[2])).any():
        place[wrong] += 1  # half of the fingerprint alone is hardly ever shared
    return place


class _Spread(Searcher):
    """The embeddings of a cluster and a learner on all workers."""

    def __init__(self, buckets: Buckets, c: int, learner: int) -> None:
        self.n_rows, self._buckets, self._c, self._learner = int(buckets.sizes[:, c].sum()), buckets, c, learner

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> tuple[Ints, NDArray[np.float64]]:
        """Ask all buckets that have sets of the cluster, and merge."""
        buckets, c = self._buckets, self._c
        sizes = buckets.sizes[:, c]
        full, starts = np.flatnonzero(sizes), np.cumsum(sizes) - sizes
        task = partial(passing.nearest, k=k, c=c, n_clusters=buckets.plan.n_clusters, learner=self._learner)
        futures, queries = [buckets.futures[b] for b in full], [buckets.workers.sent(Q)] * len(full)
        found = buckets.workers.each(task, futures, starts[full].tolist(), queries)
        return merge_nearest(buckets.workers.fetched(found), k)
