"""The k-means partition of the features, one RIPML a cluster (the paper's "Scaling to Large Datasets").

A query goes to the nearest centre. Clusters that end up without a row are dropped, so every centre has rows behind it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks
from ripml.base.workspace import read_rows, release

__all__ = ["assign", "centres_of", "nearest_centres", "partition", "sample_rows"]

_SAMPLE = 50_000  # rows that the centres are learnt from: means settle long before that


def partition(X: Any, n_clusters: int, seed: int, n_jobs: int | None = None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Centres (C, d) and the cluster of each row (n,), with C ≤ `n_clusters` and no empty cluster."""
    if n_clusters == 1:
        return np.zeros((1, X.shape[1]), X.dtype), np.zeros(X.shape[0], np.int64)
    rows, random = sample_rows(X.shape[0], seed)
    centres = centres_of(X if rows is None else read_rows(X, rows), n_clusters, random)
    occupied, cluster = np.unique(assign(X, centres, n_jobs), return_inverse=True)
    return centres[occupied], cluster


def sample_rows(n: int, seed: int) -> tuple[NDArray[np.int64] | None, np.random.RandomState]:
    """The rows, of n, that centres are learnt from, None for all of them, and what draws the first centres."""
    random = np.random.RandomState(seed % 2**32)
    return (None if n <= _SAMPLE else np.sort(random.choice(n, _SAMPLE, replace=False))), random


def centres_of(sample: Any, n_clusters: int, random: np.random.RandomState) -> NDArray[Any]:
    """The means (`n_clusters`, d) that k-means finds; where few rows are distinct, some of them are of no row."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    if scipy.sparse.issparse(sample) and sample.nnz < 2**31:  # k-means takes 32-bit indices only
        indices, indptr = sample.indices.astype(np.int32), sample.indptr.astype(np.int32)
        sample = scipy.sparse.csr_array((sample.data, indices, indptr), shape=sample.shape)
    # One thread, because sums over threads come out differently for different numbers of them.
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer distinct rows than clusters: whoever asks drops the empty ones.
        warnings.simplefilter("ignore", ConvergenceWarning)
        means: NDArray[Any] = KMeans(n_clusters, n_init=1, random_state=random).fit(sample).cluster_centers_
    return means


def assign(X: Any, centres: NDArray[Any], n_jobs: int | None = None) -> NDArray[np.int64]:
    """The nearest centre of each row, (n,): argmin ½‖c‖² − ⟨x, c⟩, ties to the lower number."""
    return nearest_centres(X, centres, 1, n_jobs)[:, 0]


def nearest_centres(X: Any, centres: NDArray[Any], n: int, n_jobs: int | None = None) -> NDArray[np.int64]:
    """The n nearest centres of each row, (rows, n), nearest first, ties to the lower number."""
    if len(centres) == 1 or not X.shape[0]:
        return np.zeros((X.shape[0], 1), np.int64)
    half = np.einsum("ij,ij->i", centres, centres) / 2

    def nearest(rows: slice) -> NDArray[np.int64]:
        distance = half - X[rows] @ centres.T
        release(X[rows] if isinstance(X, np.ndarray) else X.data)
        if n == 1:
            return np.asarray(np.argmin(distance, axis=1)[:, None])
        return np.asarray(np.argsort(distance, axis=1, kind="stable")[:, :n])

    return np.concatenate(map_blocks(nearest, blocks(X.shape[0], 4096), n_jobs))
