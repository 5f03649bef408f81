"""X: feature rows of length 1, and features weighted by their relevance to labels; the paper leaves both open.

Feature j is relevant if rows that have it carry similar labels. With z the embeddings of label sets,

    ρ_j = ‖Σ_i x_ij (z_i − z̄)‖² / (Σ_i x_ij² · mean_i ‖z_i − z̄‖²)

is 1 on average for a feature that has nothing to do with the labels, and grows with the number of rows that agree.
Features are multiplied by max(ρ, 1)^power before rows are scaled to length 1. The restricted isometry keeps lengths, so
a few dozen dimensions of z are enough, and ρ costs one product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import csr_of
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import transposed_product

__all__ = ["is_empty", "relevance", "unit_rows", "weighted"]

# A row is divided by its largest entry, so that squares neither overflow nor vanish, and then by its length.
_SCALES: Any = ((np.maximum, np.abs, np.abs), (np.add, np.square, np.sqrt))
_FIRST = np.zeros(1, np.intp)  # where the entries of a single row begin
_ROW_BLOCK = 1024  # dense rows at a time: they stay in the cache from the first pass to the last


def unit_rows(X: Any, n_jobs: int | None = None) -> Any:
    """X (n, d), dense or CSR, with its rows scaled to length 1; rows of zeros stay.

    Where squares would overflow or vanish, rows are first divided by their largest entry.

    >>> unit_rows(np.array([[3e200, 4e200], [0, 0]])).round(3).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    if scipy.sparse.issparse(X):
        return _unit_rows(X)
    out = np.empty(X.shape, X.dtype)

    def fill(rows: slice) -> None:
        squares = np.einsum("ij,ij->i", X[rows], X[rows])
        usual = ((squares > 1e-30) & (squares < 1e30)).all()
        out[rows] = X[rows] / np.sqrt(squares)[:, None] if usual else _unit_rows(X[rows])

    map_blocks(fill, blocks(len(X), _ROW_BLOCK), n_jobs)
    return out


def _unit_rows(X: Any) -> Any:
    if scipy.sparse.issparse(X):
        return csr_of(_unit_entries(X.data, X.indptr), X.indices, X.indptr, X.shape[1])
    X = X / _or_one(np.abs(X).max(axis=1))[:, None]
    return X / _or_one(np.sqrt((X * X).sum(axis=1)))[:, None]


def _unit_entries(data: NDArray[Any], indptr: NDArray[Any]) -> NDArray[Any]:
    """The entries of CSR rows of length 1."""
    if len(indptr) == 2 and len(data):
        for operation, transform, finish in _SCALES:
            data = data / _or_one(finish(operation.reduceat(transform(data), _FIRST)))
        return data
    lengths = np.diff(indptr)
    filled = np.flatnonzero(lengths)
    for operation, transform, finish in _SCALES:
        scale = np.ones(len(lengths), data.dtype)
        if len(filled):
            scale[filled] = _or_one(finish(operation.reduceat(transform(data), indptr[filled])))
        data = data / np.repeat(scale, lengths)
    return data


def _or_one(scale: NDArray[Any]) -> NDArray[Any]:
    """Numbers to divide by: 1 in place of 0."""
    return np.where(scale == 0, scale.dtype.type(1), scale)


def is_empty(X: Any) -> NDArray[np.bool_]:
    """Whether all features of a row of X, dense or CSR, are zero, (n,).

    >>> is_empty(scipy.sparse.csr_array([[0, 2], [0, 0]])).tolist()
    [False, True]
    """
    if not scipy.sparse.issparse(X):
        return np.asarray(~X.any(axis=1))
    if X.data.all():
        return np.asarray(X.indptr[1:] == X.indptr[:-1])
    before = np.concatenate([[0], np.cumsum(X.data != 0)])
    return np.asarray(before[X.indptr[1:]] == before[X.indptr[:-1]])


def relevance(X: Any, Z: NDArray[Any], n_jobs: int | None = None) -> NDArray[np.float32]:
    """ρ (d,) of the features of X (n, d), dense or CSR, for label embeddings Z (n, m); 1 for features of zeros.

    >>> X = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> relevance(X, np.array([[1.0], [1.0], [-1.0], [-1.0]])).tolist()
    [2.0, 1.0]
    """
    if not len(Z):
        return np.ones(X.shape[1], np.float32)
    deviation = Z - Z.mean(axis=0, dtype=np.float64).astype(Z.dtype)
    spread = float(np.einsum("ij,ij->", deviation, deviation, dtype=np.float64)) / len(Z)
    moment = transposed_product(X, deviation, n_jobs)
    moments = np.einsum("ij,ij->i", moment, moment, dtype=np.float64)
    if scipy.sparse.issparse(X):
        squares = np.bincount(X.indices, np.square(X.data, dtype=np.float64), X.shape[1])
    else:
        squares = np.square(X).sum(axis=0, dtype=np.float64)
    chance = squares * spread
    ratio = np.divide(moments, chance, out=np.ones(len(chance)), where=chance > 0)
    return np.asarray(np.maximum(ratio, 1), np.float32)


def weighted(X: Any, weights: NDArray[Any], unit: bool = True) -> Any:
    """X with its features multiplied by these weights (d,), and its rows of length 1 again if `unit`."""
    weights = weights.astype(X.dtype, copy=False)
    if not scipy.sparse.issparse(X):
        return unit_rows(X * weights) if unit else X * weights
    data = X.data * weights[X.indices]
    return csr_of(_unit_entries(data, X.indptr) if unit else data, X.indices, X.indptr, X.shape[1])
