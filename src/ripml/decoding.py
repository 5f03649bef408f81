"""From neighbours to scores: D = 1/(Fk) Σ_f Σ_i y_i over the k nearest rows of each learner (the paper's inference).

Neighbours are label sets with counts, standing for the rows that carry them; they become a sparse matrix W whose rows
sum to 1, and the scores are W·sets. Votes tie all the time (there are only Fk + 1 values), so a ten-thousandth of each
score is given by nearness, Σ 1/rank in place of Σ 1: too little to outvote anything, enough to put the label of nearer
rows first. One CSR of scores (n, L), candidates only, is all that a prediction ever is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

__all__ = ["best_threshold", "keep_above", "tally", "top", "vote_weights"]

_NEARNESS = 1e-4  # its share of a score


def vote_weights(
    ids: NDArray[np.int64],
    counts: NDArray[np.int64],
    k: int,
    n_learners: int = 1,
    left_out: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """The weight of each of these nearest label sets among the k nearest rows, (n, K) like `ids`, summing to 1.

    Sets come nearest first; each stands for as many rows as carry it until k are reached. The share of nearness stays
    below one of the k · `n_learners` votes that are averaged. With `left_out` (n,), one row of that set is not there
    (the query itself, when a training row is asked about).

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


def tally(ids: NDArray[np.int64], weights: NDArray[np.float64], sets: Any) -> Any:
    """Scores W·sets: ids and weights (n, K) of label `sets` (u, L) → CSR (n, L) float64 in [0, 1]."""
    n, width = ids.shape
    W = scipy.sparse.csr_array((weights.ravel(), ids.ravel(), np.arange(n + 1) * width), shape=(n, sets.shape[0]))
    scores = (W @ sets).tocsr()
    scores.data = np.round(scores.data, 12)  # the same votes added in another order are the same score
    scores.eliminate_zeros()
    scores.sort_indices()
    return scores


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


def best_threshold(Y: Any, scores: Any) -> float:
    """The threshold on scores with the best micro F1 = 2·hits/(predicted + true) against Y.

    >>> Y = scipy.sparse.csr_array([[1, 0, 1]])
    >>> best_threshold(Y, scipy.sparse.csr_array([[0.9, 0.2, 0.6]]))
    0.6
    """
    if not scores.nnz:
        return 1.0
    position = scipy.sparse.csr_array(
        (np.arange(1.0, scores.nnz + 1), scores.indices, scores.indptr), shape=scores.shape
    )
    hit = np.zeros(scores.nnz)
    hit[position.multiply(Y).tocsr().data.astype(np.int64) - 1] = 1
    order = np.argsort(-scores.data, kind="stable")
    values = scores.data[order]
    f1 = 2 * np.cumsum(hit[order]) / (np.arange(1, len(order) + 1) + Y.nnz)
    last_of_its_value = np.append(values[1:] != values[:-1], True)
    return float(values[last_of_its_value][np.argmax(f1[last_of_its_value])])
