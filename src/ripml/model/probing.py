"""Votes of the nearest rows of several clusters: ẑ by the regression of a row's own cluster, neighbours of those near.

All clusters share Phi, so their embeddings can be compared. A row near the border of its cluster has neighbours across
it; searching the n nearest clusters finds them, at n times the price.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.decoding import scores as decoding
from ripml.model.part import Part

__all__ = ["probed_votes"]

Ints = NDArray[np.int64]


def probed_votes(parts: Sequence[Part], X: Any, near: Ints, k: int, n_jobs: int | None) -> Any:
    """Equal votes of the k nearest rows in each learner, CSR (n, L), of the clusters `near` (n, p) to each row."""
    n, p = near.shape
    F = parts[0].n_learners
    embedding = np.empty((n, parts[0].Psi.shape[1]), np.float32)
    for c, part in enumerate(parts):
        own = near[:, 0] == c
        if own.any():
            embedding[own] = part.embed(X[own], n_jobs)
    ids = np.zeros((F, n, p, k), np.int64)
    distance = np.full((F, n, p, k), np.inf)
    rows_of = np.zeros((F, n, p, k), np.int64)  # training rows that carry each set; none where there is no set
    for c, part in enumerate(parts):
        row, slot = np.nonzero(near == c)
        reach = min(k, part.n_sets)
        if len(row):
            for f, (found, at) in enumerate(part.nearest_sets(embedding[row], reach, n_jobs)):
                ids[f, row, slot, :reach], distance[f, row, slot, :reach] = found, at
                rows_of[f, row, slot, :reach] = part.counts[found]
    flat = distance.reshape(F * n, p * k)
    order = np.lexsort((np.broadcast_to(np.arange(p * k), flat.shape), flat), axis=1)
    nearest = np.take_along_axis(rows_of.reshape(F * n, p * k), order, axis=1)
    weights = np.empty(flat.shape)
    numbered = np.arange(nearest.size).reshape(nearest.shape)
    np.put_along_axis(weights, order, decoding.vote_weights(numbered, nearest.ravel(), k, F), axis=1)
    weights = weights.reshape(F, n, p, k) / F
    total = scipy.sparse.csr_array((n, parts[0].sets.shape[1]))
    for c, part in enumerate(parts):
        row, slot = np.nonzero(near == c)
        if len(row):
            sets, shares = (np.hstack(list(array[:, row, slot])) for array in (ids, weights))
            votes = decoding.tally(sets, shares, part.sets)
            total = (
                total + scipy.sparse.csr_array((np.ones(len(row)), (row, np.arange(len(row)))), (n, len(row))) @ votes
            )
    total.eliminate_zeros()
    total.sort_indices()
    return total
