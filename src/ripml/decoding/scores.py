"""Scores of labels: one CSR matrix (n, L) with the candidates of each row only is all that a prediction ever is."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import csr_of
from ripml.base.compiled import loops

__all__ = [
    "as_scores",
    "at_pairs",
    "best_of_rows",
    "carried",
    "keep_above",
    "largest",
    "only",
    "outcomes",
    "top",
    "values_at",
    "without_labels",
]


def top(scores: Any, n: int) -> Any:
    """The n largest scores of each row, CSR; ties go to the lower label index."""
    row = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, row))
    rank = np.arange(len(order)) - scores.indptr[:-1][row]  # order keeps rows together, so row is sorted already
    kept = order[rank < n]
    lengths = np.minimum(np.diff(scores.indptr), n)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return scipy.sparse.csr_array((scores.data[kept], scores.indices[kept], indptr), shape=scores.shape)


def keep_above(scores: Any, threshold: float) -> Any:
    """The indicator of the labels whose score is at least the threshold, CSR."""
    kept = scores.data >= threshold
    row = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=scores.shape[0]))])
    ones = np.ones(int(kept.sum()), np.float32)
    return scipy.sparse.csr_array((ones, scores.indices[kept], indptr), shape=scores.shape)


def without_labels(scores: Any, labels: NDArray[np.bool_]) -> Any:
    """Scores, CSR (n, L), but for those of these labels (L,).

    >>> without_labels(scipy.sparse.csr_array([[0.5, 0.2]]), np.array([True, False])).toarray().tolist()
    [[0.0, 0.2]]
    """
    return only(scores, ~labels[scores.indices])


def only(scores: Any, kept: NDArray[np.bool_]) -> Any:
    """These of the stored scores of a CSR matrix."""
    ends = np.concatenate([[0], np.cumsum(kept)])[scores.indptr]
    return scipy.sparse.csr_array((scores.data[kept], scores.indices[kept], ends), shape=scores.shape)


def as_scores(labels: NDArray[np.int64], values: NDArray[Any], n_labels: int) -> Any:
    """Scores, CSR (n, L), of candidates `labels` (n, K), −1 for none, with these values."""
    compiled = loops()
    if compiled is not None:
        size = int(np.count_nonzero(labels >= 0))
        ends, indices, rounded = np.zeros(len(labels) + 1, np.int64), np.empty(size, np.int64), np.empty(size)
        compiled.as_scores(labels, values, indices, rounded, ends)
        return csr_of(rounded, indices, ends, n_labels)
    there = labels >= 0
    row = np.nonzero(there)[0]
    order = np.lexsort((labels[there], row))
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    data = np.round(values[there][order].astype(np.float64), 6)  # float32 has no more to say
    return scipy.sparse.csr_array((data, labels[there][order], indptr), shape=(len(labels), n_labels))


def outcomes(Y: Any, scores: Any) -> NDArray[np.bool_]:
    """Whether each stored score of a CSR matrix is that of a label in Y, in the order of its data."""
    L = max(scores.shape[1], 1)
    row = np.repeat(np.arange(scores.shape[0], dtype=np.int64), np.diff(scores.indptr))
    true_row = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    return np.isin(row * L + scores.indices, true_row * L + Y.indices)


def carried(sets: Any, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether row i of `sets` (CSR) has label labels[i, j], (n, K)."""
    L = max(sets.shape[1], 1)
    row = np.repeat(np.arange(sets.shape[0], dtype=np.int64), np.diff(sets.indptr))
    places = np.sort(row * L + sets.indices)
    asked = np.arange(len(labels))[:, None] * L + labels
    found = np.searchsorted(places, asked)
    there = found < len(places)
    there[there] = places[found[there]] == asked[there]
    return np.asarray(there & (labels >= 0))


def values_at(matrix: Any, labels: NDArray[np.int64]) -> NDArray[Any]:
    """The entries of row i of a CSR matrix at labels[i, j], (n, K); 0 where there is none.

    >>> values_at(scipy.sparse.csr_array([[0.5, 0, 0.25]]), np.array([[2, 1, -1]])).tolist()
    [[0.25, 0.0, 0.0]]
    """
    row = np.broadcast_to(np.arange(len(labels))[:, None], labels.shape)
    found = at_pairs(matrix, row.ravel(), labels.ravel()).reshape(labels.shape)
    return np.where(labels >= 0, found, 0)


def at_pairs(matrix: Any, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[Any]:
    """The entries of a CSR matrix at pairs (rows[i], columns[i]); 0 where there is none.

    >>> at_pairs(scipy.sparse.csr_array([[0.5, 0, 0.25]]), np.array([0, 0]), np.array([2, 1])).tolist()
    [0.25, 0.0]
    """
    L = max(matrix.shape[1], 1)
    places = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr)) * L + matrix.indices
    order, asked = np.argsort(places, kind="stable"), rows * L + columns
    if not len(places):
        return np.zeros(len(asked), matrix.dtype)
    found = order[np.minimum(np.searchsorted(places, asked, sorter=order), len(places) - 1)]
    return np.where(places[found] == asked, matrix.data[found], 0)


def largest(values: NDArray[Any], k: int) -> NDArray[np.int64]:
    """The places of the k largest values of each line, (n, k), in no order."""
    if k >= values.shape[1]:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.argpartition(values, values.shape[1] - k, axis=1)[:, -k:]


def best_of_rows(score: NDArray[Any], ends: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The places of at most k best scores of each row, best first, (n, k) with −1 for none; row i is ends[i]:ends[i+1].

    >>> best_of_rows(np.array([0.1, 0.3, 0.2]), np.array([0, 3, 3]), 2).tolist()
    [[1, 2], [-1, -1]]
    """
    n = len(ends) - 1
    row = np.repeat(np.arange(n), np.diff(ends))
    order = np.lexsort((-score, row))
    rank = np.arange(len(order)) - ends[:-1][row]
    kept = rank < k
    out = np.full((n, k), -1, np.int64)
    out[row[kept], rank[kept]] = order[kept]
    return out


def margins(score: NDArray[Any], best: NDArray[np.int64]) -> NDArray[np.float32]:
    """By how much the first k of the k + 1 best scores of each row are ahead of the last one, (n, k); ∞ if it is none.

    >>> margins(np.array([0.1, 0.3, 0.2]), np.array([[1, 2, 0], [1, 2, -1]])).tolist()
    [[0.20000000298023224, 0.10000000149011612], [inf, inf]]
    """
    if not len(score):
        return np.full((len(best), best.shape[1] - 1), np.inf, np.float32)
    last = np.where(best[:, -1:] >= 0, score[best[:, -1:]], -np.inf)
    return np.asarray(score[best[:, :-1]] - last, np.float32)
