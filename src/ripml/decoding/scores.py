"""From neighbours to scores: D = 1/(Fk) Σ_f Σ_i y_i over the k nearest rows of each learner (the paper's inference).

Neighbours are label sets with counts, standing for the rows that carry them; they become a sparse matrix W whose rows
sum to 1, and the scores are W·sets. Votes tie all the time (there are only Fk + 1 values), so a ten-thousandth of each
score is given by nearness, Σ 1/rank in place of Σ 1: too little to outvote anything, enough to put the label of nearer
rows first. One CSR of scores (n, L), candidates only, is all that a prediction ever is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks

__all__ = [
    "as_scores",
    "best_of_rows",
    "best_threshold",
    "carried",
    "keep_above",
    "largest",
    "least_squares",
    "only",
    "outcomes",
    "sketch_values",
    "softmax",
    "tally",
    "top",
    "vote_weights",
    "without_labels",
]

_NEARNESS = 1e-4  # its share of a score
_PAIRS = 2048  # columns of Phi held at a time by a thread

Columns = Callable[[Any], NDArray[np.float32]]  # labels, as numbers or a slice ↦ their columns of Phi


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


def softmax(similarity: NDArray[Any], temperature: float, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Weights rows·exp(similarity/temperature), (n, K), summing to 1 in each line that has rows at all.

    >>> softmax(np.array([[1.0, 1.0, 0.0]]), 1.0, np.array([[1, 1, 0]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    there = rows > 0
    highest = np.max(similarity, axis=1, where=there, initial=-np.inf, keepdims=True)
    below = np.subtract(similarity, highest, out=np.zeros_like(similarity), where=there)  # of those that count
    weights = np.where(there, rows * np.exp(below / temperature), 0)
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(total > 0, total, 1))


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


def sketch_values(
    Z: Any, row: NDArray[np.int64], label: NDArray[np.int64], columns: Columns, n_jobs: int | None = None
) -> NDArray[np.float32]:
    """⟨Φ_l, ẑ⟩ for pairs (row, label): an unbiased sketch of what the regression would say of label l itself."""
    out = np.empty(len(row), np.float32)

    def fill(part: slice) -> None:
        out[part] = np.einsum("ij,ij->i", columns(label[part]), Z[row[part]])

    map_blocks(fill, blocks(len(row), _PAIRS), n_jobs)
    return out


def least_squares(
    Z: Any, labels: NDArray[np.int64], columns: Columns, epsilons: Sequence[float], n_jobs: int | None = None
) -> NDArray[np.float32]:
    """(Φ_SᵀΦ_S + εI)⁻¹Φ_Sᵀẑ on the candidates S of each row, for each ε, (E, n, K): the sketch without its cross-talk.

    With the restricted isometry Φ_SᵀΦ_S is close to I, so the system is well posed. `labels` (n, K) is −1 for none.
    """
    n, k = labels.shape
    out = np.zeros((len(epsilons), n, k), np.float32)

    def fill(part: slice) -> None:
        there = labels[part] >= 0
        Phi = columns(np.where(there, labels[part], 0).ravel()).reshape(*there.shape, -1) * there[..., None]
        gram, right = Phi @ Phi.transpose(0, 2, 1), Phi @ Z[part, :, None]
        for solved, epsilon in zip(out, epsilons, strict=True):
            shifted = gram.copy()
            shifted[:, np.arange(k), np.arange(k)] += np.float32(epsilon)
            solved[part] = np.linalg.solve(shifted, right)[..., 0]

    map_blocks(fill, blocks(n, max(1, _PAIRS // max(k, 1))), n_jobs)
    return out


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


def tally(ids: NDArray[np.int64], weights: NDArray[np.float64], sets: Any) -> Any:
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


def as_scores(labels: NDArray[np.int64], values: NDArray[Any], n_labels: int) -> Any:
    """Scores, CSR (n, L), of candidates `labels` (n, K), −1 for none, with these values."""
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


def best_threshold(Y: Any, scores: Any) -> float:
    """The threshold on scores with the best micro F1 = 2·hits/(predicted + true) against Y.

    >>> Y = scipy.sparse.csr_array([[1, 0, 1]])
    >>> best_threshold(Y, scipy.sparse.csr_array([[0.9, 0.2, 0.6]]))
    0.6
    """
    if not scores.nnz:
        return 1.0
    hit = outcomes(Y, scores)
    order = np.argsort(-scores.data, kind="stable")
    values = scores.data[order]
    f1 = 2 * np.cumsum(hit[order]) / (np.arange(1, len(order) + 1) + Y.nnz)
    last_of_its_value = np.append(values[1:] != values[:-1], True)
    return float(values[last_of_its_value][np.argmax(f1[last_of_its_value])])
