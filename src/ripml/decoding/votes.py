"""Votes of the nearest training rows: D = 1/(Fk) Σ_f Σ_i y_i over the k nearest rows of each learner (the paper's
inference, step 3).

Neighbours are label sets with counts, standing for the rows that carry them; they become a sparse matrix W whose rows
sum to 1, and the scores are W·sets. Votes tie all the time (there are only Fk + 1 values), so a ten-thousandth of each
score is given by nearness, Σ 1/rank in place of Σ 1: too little to outvote anything, enough to put the label of nearer
rows first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.compiled import loops
from ripml.base.parallel import blocks
from ripml.decoding.fitted import Cluster, Contributions, FittedDecoder

__all__ = ["FittedVotes", "entries", "identity", "softmax", "tally", "vote_weights"]

Ints = NDArray[np.int64]

_NEARNESS = 1e-4  # its share of a score
_QUERY_BLOCK = 8192


def vote_weights(
    ids: Ints, counts: Ints, k: int, n_learners: int = 1, left_out: Ints | None = None
) -> NDArray[np.float64]:
    """The weight of each of these nearest label sets among the k nearest rows, (n, K) like `ids`, summing to 1.

    Sets come nearest first; each stands for the rows that carry it until k are reached. The share of nearness stays
    below one of the k · `n_learners` votes that are averaged. With `left_out` (n,), one row of that set does not count
    (the query itself, when it is a training row).

    >>> vote_weights(np.array([[4, 2, 0]]), counts=np.array([9, 9, 1, 9, 2]), k=5).round(2).tolist()
    [[0.4, 0.2, 0.4]]
    """
    rows = counts[ids]
    if left_out is not None:
        rows = rows - (ids == left_out[:, None])
    until = np.minimum(np.cumsum(rows, axis=1), k)  # rows taken up to and including each set
    before = np.concatenate([np.zeros((len(ids), 1), np.int64), until[:, :-1]], axis=1)
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1.0, k + 1))])
    total = np.maximum(until[:, -1:], 1)
    votes, nearness = (until - before) / total, (harmonic[until] - harmonic[before]) / harmonic[total]
    share = min(_NEARNESS, 0.5 / (k * n_learners))
    return np.asarray((1 - share) * votes + share * nearness)


def softmax(similarity: NDArray[Any], temperature: float, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Weights rows·exp(similarity/temperature), (n, K), summing to 1 in each line that has rows at all.

    >>> softmax(np.array([[1.0, 1.0, 0.0]]), 1.0, np.array([[1, 1, 0]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    compiled = loops()
    if compiled is not None:
        out = np.empty(similarity.shape)
        compiled.softmax(similarity, temperature, rows, out)
        return out
    present = rows > 0
    highest = np.max(similarity, axis=1, where=present, initial=-np.inf, keepdims=True)
    below = np.subtract(similarity, highest, out=np.zeros_like(similarity), where=present)
    weights = np.where(present, rows * np.exp(below / temperature), 0)
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(total > 0, total, 1))


def tally(ids: Ints, weights: NDArray[np.float64], sets: Any) -> Any:
    """Scores W·sets: ids and weights (n, K) of label `sets` (u, L) → CSR (n, L) float64 in [0, 1]."""
    n, width = ids.shape
    used, place = np.unique(ids, return_inverse=True)  # of many sets few are near, and the others are not touched
    W = scipy.sparse.csr_array((weights.ravel(), place.ravel(), np.arange(n + 1) * width), shape=(n, len(used)))
    near, labels = sets[used], None
    if near.nnz < near.shape[1]:  # SciPy's product clears arrays of the length of a row
        labels, column = np.unique(near.indices, return_inverse=True)
        near = scipy.sparse.csr_array((near.data, column, near.indptr), shape=(len(used), len(labels)))
    scores = (W @ near).tocsr()
    if labels is not None:
        scores = scipy.sparse.csr_array((scores.data, labels[scores.indices], scores.indptr), shape=(n, sets.shape[1]))
    scores.data = np.round(scores.data, 12)  # the same votes added in another order are the same score
    scores.eliminate_zeros()
    scores.sort_indices()
    return scores


@dataclass(frozen=True)
class FittedVotes(FittedDecoder):
    """Equal votes of the k nearest rows in each learner, of the nearest cluster or of several."""

    def reads(self, signal: str) -> bool:
        """Votes alone."""
        return signal == "votes"

    def functionals(self, labels: Ints, candidates: Ints | None) -> NDArray[Any] | None:
        """Φ_l/F."""
        return np.asarray(self.embedding.columns(labels) / np.float32(self.embedding.projection.n_learners))

    def votes(self, cluster: Cluster, embedding: Any, n_jobs: int | None, left_out: Ints | None = None) -> Any:
        """Scores, CSR (n, L), for predicted embeddings (n, F·m).

        `left_out` has the set of each query's own training row, if it is one.
        """
        index, k = cluster.index, self.choices.n_neighbors
        reach = min(k if left_out is None else k + 1, index.n_sets)  # leaving a row out may empty one set
        if not reach:
            return scipy.sparse.csr_array((len(embedding), index.sets.shape[1]))
        n_learners = self.embedding.projection.n_learners
        ids, weights = [], []
        for nearest, _ in index.nearest(embedding, reach, n_jobs):
            ids.append(nearest)
            weights.append(vote_weights(nearest, index.counts, k, n_learners, left_out))
        return tally(np.hstack(ids), np.hstack(weights) / n_learners, index.sets)

    def cluster_scores(self, cluster: Cluster, X: Any, n_jobs: int | None) -> Any:
        """Votes for ẑ."""
        return self.votes(cluster, cluster.regression.predict(X, None, None, n_jobs), n_jobs)

    def _scores(self, clusters: Sequence[Cluster], X: Any, near: Ints, n_jobs: int | None) -> Any:
        """Of the nearest cluster, or of all that are `near`, (n, p)."""
        if near.shape[1] == 1:
            return super()._scores(clusters, X, near, n_jobs)
        rows = np.flatnonzero(near[:, 0] >= 0)
        parts = [rows[block] for block in blocks(len(rows), _QUERY_BLOCK)]
        sets = [cluster.index.sets for cluster in clusters]
        return self._in_order(
            [self._probed(clusters, sets, X[some], near[some], n_jobs) for some in parts], parts, near
        )

    def _probed(self, clusters: Sequence[Cluster], sets: Sequence[Any], X: Any, near: Ints, n_jobs: int | None) -> Any:
        """Votes of the nearest rows of several clusters, CSR, for what their sets carry: `sets` (u, …) of each cluster.

        ẑ is that of a row's own cluster. All clusters share Phi, so their embeddings can be compared: a row near the
        border of its cluster has neighbours across it.
        """
        (n, p), k = near.shape, self.choices.n_neighbors
        F = self.embedding.projection.n_learners
        embedding = np.empty((n, self.embedding.n_targets), np.float32)
        for c, cluster in enumerate(clusters):
            nearest = near[:, 0] == c
            if nearest.any():
                embedding[nearest] = cluster.regression.predict(X[nearest], None, None, n_jobs)
        # The k nearest sets of each of the p clusters, in each learner, and how many training rows carry each.
        ids = np.zeros((F, n, p, k), np.int64)
        distance = np.full((F, n, p, k), np.inf)
        carried = np.zeros((F, n, p, k), np.int64)
        for c, cluster in enumerate(clusters):
            row, slot = np.nonzero(near == c)
            reach = min(k, cluster.index.n_sets)
            if len(row):
                for f, (found, at) in enumerate(cluster.index.nearest(embedding[row], reach, n_jobs)):
                    ids[f, row, slot, :reach], distance[f, row, slot, :reach] = found, at
                    carried[f, row, slot, :reach] = cluster.index.counts[found]
        # Among these p·k sets the k nearest rows vote.
        flat = distance.reshape(F * n, p * k)
        order = np.lexsort((np.broadcast_to(np.arange(p * k), flat.shape), flat), axis=1)
        nearest_first = np.take_along_axis(carried.reshape(F * n, p * k), order, axis=1)
        weights = np.empty(flat.shape)
        numbered = np.arange(nearest_first.size).reshape(nearest_first.shape)
        np.put_along_axis(weights, order, vote_weights(numbered, nearest_first.ravel(), k, F), axis=1)
        weights = weights.reshape(F, n, p, k) / F
        total = scipy.sparse.csr_array((n, sets[0].shape[1]))
        for c, of_cluster in enumerate(sets):
            row, slot = np.nonzero(near == c)
            if len(row):
                some, shares = (np.hstack(list(array[:, row, slot])) for array in (ids, weights))
                votes = tally(some, shares, of_cluster)
                spread = scipy.sparse.csr_array((np.ones(len(row)), (row, np.arange(len(row)))), (n, len(row)))
                total = total + spread @ votes
        total.eliminate_zeros()
        total.sort_indices()
        return total

    def contributions(
        self, clusters: Sequence[Cluster], X: Any, near: Ints, rows: Ints, n_jobs: int | None
    ) -> Iterator[tuple[int, Contributions]]:
        """The weights of the votes themselves."""
        starts = np.cumsum([0, *(cluster.index.sets.shape[0] for cluster in clusters)])
        each = [
            identity(start, cluster.index.sets.shape[0], starts[-1])
            for start, cluster in zip(starts[:-1].tolist(), clusters, strict=True)
        ]
        weights = self._probed(clusters, each, X[rows], near[rows], n_jobs)
        for i, row in enumerate(rows.tolist()):
            numbers, values = entries(weights, i)
            yield row, Contributions(int(near[row, 0]), {"votes": (-1 - numbers, values)}, None, None)


def identity(start: int, n: int, width: int) -> Any:
    """The identity (n, n) from column `start` of `width`, CSR: in place of label sets, a tally gives W itself."""
    return scipy.sparse.csr_array((np.ones(n), np.arange(start, start + n), np.arange(n + 1)), shape=(n, width))


def entries(weights: Any, row: int) -> tuple[Ints, NDArray[np.float64]]:
    """The columns and values of a row of W, CSR."""
    stored = slice(weights.indptr[row], weights.indptr[row + 1])
    return weights.indices[stored].astype(np.int64), weights.data[stored]
