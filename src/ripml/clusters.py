"""The k-means partition of the features, one RIPML a cluster (the paper's "Scaling to Large Datasets").

A query goes to the nearest centre. Clusters that end up without a row are dropped, so every centre has rows behind it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.resources import blocks, map_blocks
from ripml.rooms import release

__all__ = ["assign", "partition"]

_SAMPLE = 50_000  # rows that the centres are learnt from: means settle long before that


def partition(X: Any, n_clusters: int, seed: int, n_jobs: int | None = None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Centres (C, d) and the cluster of each row (n,), with C ≤ `n_clusters` and no empty cluster."""
    if n_clusters == 1:
        return np.zeros((1, X.shape[1]), X.dtype), np.zeros(X.shape[0], np.int64)
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    rng = np.random.RandomState(seed % 2**32)
    sample = X if X.shape[0] <= _SAMPLE else X[np.sort(rng.choice(X.shape[0], _SAMPLE, replace=False))]
    if scipy.sparse.issparse(sample) and sample.nnz < 2**31:  # k-means takes 32-bit indices only
        indices, indptr = sample.indices.astype(np.int32), sample.indptr.astype(np.int32)
        sample = scipy.sparse.csr_array((sample.data, indices, indptr), shape=sample.shape)
    # One thread, because sums over threads come out differently for different numbers of them.
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer distinct rows than clusters: the empty ones are dropped below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        centres = KMeans(n_clusters, n_init=1, random_state=rng).fit(sample).cluster_centers_
    cluster = assign(X, centres, n_jobs)
    occupied, cluster = np.unique(cluster, return_inverse=True)
    return centres[occupied], cluster


def assign(X: Any, centres: NDArray[Any], n_jobs: int | None = None) -> NDArray[np.int64]:
    """The nearest centre of each row, (n,): argmin ½‖c‖² − ⟨x, c⟩, ties to the lower number."""
    if len(centres) == 1:
        return np.zeros(X.shape[0], np.int64)
    half = np.einsum("ij,ij->i", centres, centres) / 2

    def nearest(rows: slice) -> NDArray[np.int64]:
        near = np.asarray(np.argmin(half - X[rows] @ centres.T, axis=1))
        release(X[rows] if isinstance(X, np.ndarray) else X.data)
        return near

    return np.concatenate(map_blocks(nearest, blocks(X.shape[0], 4096), n_jobs))
