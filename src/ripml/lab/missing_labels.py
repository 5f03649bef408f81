"""Missing labels: simulating them, and two ways to reduce the damage.

A true label l of a row is observed with probability p_l, its propensity, and is missing otherwise. With y the observed
labels and f(x) the probability that the label is true,

    E[y/p | x] = f(x)                               weighting: dividing by p corrects the mean                  `weigh`
    P(true | x, not observed) = f(1−p)/(1−f·p)      completion: this weight where no label was observed      `complete`

Ridge scores and votes are linear in the labels of a fixed set of rows, so dividing the targets by p and dividing the
scores by p are the same; `weigh` does either. If all labels have the same p, it changes no ranking.

Completion estimates f ≈ score/p from leave-one-out scores of each training row (`left_out_scores`, or any other model
that has not seen the row). Its result is 1 where a label was observed and a weight below 1 where one may be missing.

p cannot be learnt from the labels alone: a rare label and one that is often forgotten look the same.
`assumed_propensities` gives p for an assumed share of missing labels, the same for all labels or by the rule of Jain
et al. (2016), by which rare labels are forgotten more often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError, check_count, check_positive, is_number
from ripml.base.parallel import blocks, map_blocks, require_memory
from ripml.decoding import scores as decoding
from ripml.labels.encoding import check_indicator
from ripml.labels.propensity import check_propensities, weigh

__all__ = ["assumed_propensities", "complete", "hide_labels", "left_out_scores", "to_indicator", "weigh"]

Floats = NDArray[np.float64]

# The odds that a label of N rows is hidden are C·(N + B)^−A; with A = 0 they are equal for all labels. For
# "popularity", A and B are the values that Jain et al. fitted.
_EXPONENTS, _OFFSET = {"random": 0.0, "popularity": 0.55}, 1.5
_BLOCK_BYTES = 20e6  # of each dense array of a block of rows; a thread holds about six


def hide_labels(Y: Any, share: float, by: str = "random", seed: int = 0) -> Any:
    """Hide each label of Y (n, L) independently with probability 1 − p_l; returns the remaining labels, CSR (n, L).

    If N_l rows carry label l, the odds that it is hidden are (1 − p_l)/p_l = C·(N_l + 1.5)^−A, with A = 0 for
    `by="random"` and A = 0.55 for `by="popularity"`, which hides rare labels more. C is chosen so that Σ N_l(1 − p_l)
    is `share` of all labels. Rows may lose all their labels.

    >>> Y = scipy.sparse.csr_array(np.ones((1000, 2)))
    >>> hide_labels(Y, 0.4).nnz / Y.nnz
    0.6045
    """
    Y = _labels(Y)
    p = _propensities(_counts(Y), share, by, observed=False)
    kept = np.random.default_rng(seed).random(Y.nnz) < p[Y.indices]
    return _cells(Y, kept)


def assumed_propensities(Y: Any, share: float, by: str = "random") -> Floats:
    """The propensities p (L,) of the observed labels Y (n, L), if `share` of all true labels is missing.

    p_l = 1/(1 + C·(T_l + 1.5)^−A) as in `hide_labels`. The true counts T_l = N_l/p_l are solved for as well, and C is
    chosen so that Σ N_l = (1 − share)·Σ T_l.

    >>> Y = scipy.sparse.csr_array([[1, 0], [1, 0], [1, 1]])
    >>> assumed_propensities(Y, 0.5), assumed_propensities(Y, 0.5, by="popularity").round(2)
    (array([0.5, 0.5]), array([0.53, 0.44]))
    """
    return _propensities(_counts(_labels(Y)), share, by, observed=True)


def _propensities(counts: Floats, share: float, by: str, observed: bool) -> Floats:
    """p (L,) by the rule of `hide_labels`; `counts` are those of observed labels, or of true ones."""
    if not is_number(share) or not 0 <= share < 1:
        raise ParameterError(f"`share` must be a number from 0 to below 1; got {share!r}.")
    if by not in _EXPONENTS:
        raise ParameterError(f"`by` must be one of {', '.join(map(repr, _EXPONENTS))}; got {by!r}.")
    if share == 0 or not counts.any():
        return np.full(len(counts), 1.0 - share)

    def at(log_c: float) -> Floats:
        true = counts
        # T = N(1 + C·(T + B)^−A): the right side falls in T, so steps of half the way converge to the only solution.
        for _ in range(60 if observed else 0):
            true = (true + counts * (1 + np.exp(log_c) * (true + _OFFSET) ** -_EXPONENTS[by])) / 2
        return np.asarray(1 / (1 + np.exp(log_c) * (true + _OFFSET) ** -_EXPONENTS[by]))

    def excess(log_c: float) -> float:
        p = at(log_c)
        missing = 1 - counts.sum() / (counts / p).sum() if observed else 1 - (counts * p).sum() / counts.sum()
        return float(missing - share)

    return at(scipy.optimize.brentq(excess, -40, 40, xtol=1e-12))


def left_out_scores(X: Any, Y: Any, ridge: float = 1.0, n_candidates: int = 20, n_jobs: int | None = None) -> Any:
    """Leave-one-out scores of each training row by one-vs-all ridge regression; the best of each row, CSR (n, L).

        ŷ₋ᵢ = (ŷᵢ − hᵢyᵢ)/(1 − hᵢ),    ŷ = H Y,    H = X(XᵀX + ridge·I)⁻¹Xᵀ = I − ridge·(XXᵀ + ridge·I)⁻¹,    hᵢ = Hᵢᵢ

    This is exact and needs no refits. H is made in blocks of rows from the smaller of the two inverses. The default
    `ridge` suits feature rows X (n, d) of length 1; Y (n, L) may hold weights. Only positive scores are kept, at most
    `n_candidates` per row; ties go to the lower label.

    >>> X, Y = np.eye(3)[[0, 0, 1, 1]], scipy.sparse.csr_array([[1, 0], [1, 0], [0, 1], [0, 0]])
    >>> left_out_scores(X, Y).toarray()
    array([[0.5, 0. ],
           [0.5, 0. ],
           [0. , 0. ],
           [0. , 0.5]])
    """
    check_positive("ridge", ridge, otherwise="")
    check_count("n_candidates", n_candidates)
    Y = _labels(Y, weights=True)
    X = scipy.sparse.csr_array(X, dtype=np.float64) if scipy.sparse.issparse(X) else np.asarray(X, np.float64)
    if not np.isfinite(X.sum()):
        raise DataError("X must hold finite numbers; got infinity or NaN.")
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}; they must have the same number.")
    n, n_labels = Y.shape
    k = min(n_candidates, n_labels)
    hat = _hat(X, float(ridge))

    def best(rows: slice) -> Any:
        H = hat(rows)
        diagonal = np.arange(len(H)), np.arange(rows.start, rows.stop)
        h, H[diagonal] = H[diagonal][:, None], 0  # without its diagonal, H Y is ŷ − h·y
        scores = np.ascontiguousarray((Y.T @ H.T).T / (1 - h))
        smallest = np.partition(scores, -k, axis=1)[:, -k, None]
        scores[(scores < smallest) | (scores < 0)] = 0
        largest = decoding.top(scipy.sparse.csr_array(scores), k)  # of the ties at the smallest, the lower labels
        largest.sort_indices()
        return largest

    found = map_blocks(best, blocks(n, max(1, int(_BLOCK_BYTES / 8 / max(n, n_labels)))), n_jobs)
    return scipy.sparse.csr_array(scipy.sparse.vstack(found, format="csr")) if found else Y


def _hat(X: Any, ridge: float) -> Callable[[slice], Floats]:
    """The function from a slice of rows to those rows of H, dense (rows, n)."""
    n, d = X.shape
    side = min(n, d)
    require_memory(
        24.0 * side * side, f"ridge regression of {n:,} rows on {d:,} features", "complete parts of the rows"
    )
    gram = X @ X.T if n <= d else X.T @ X
    inverse = gram.toarray() if scipy.sparse.issparse(gram) else gram
    inverse.flat[:: side + 1] += ridge
    inverse = scipy.linalg.inv(inverse, overwrite_a=True, check_finite=False)

    def dual(rows: slice) -> Floats:
        H = -ridge * inverse[rows]
        H[np.arange(len(H)), np.arange(rows.start, rows.stop)] += 1
        return np.asarray(H)

    def primal(rows: slice) -> Floats:
        return np.asarray((X @ (X[rows] @ inverse).T).T)

    return dual if n <= d else primal


def complete(Y: Any, scores: Any, p: Floats) -> Any:
    """Y with the weight P(true | not observed) = f(1 − p)/(1 − f·p), f = score/p, where no label was observed.

    The result is CSR (n, L) with values in (0, 1]. Y (n, L) are the observed labels, which stay 1; `scores` (n, L)
    estimate the probability that a label is observed and must come from models that have not seen the row, such as
    `left_out_scores`; p (L,) are the propensities. With p = 1 nothing is missing, and the result is Y.

    >>> Y, scores = scipy.sparse.csr_array([[1, 0, 0]]), scipy.sparse.csr_array([[0.9, 0.4, 0.1]])
    >>> complete(Y, scores, p=np.array([0.5, 0.5, 0.5])).toarray().round(3)
    array([[1.   , 0.667, 0.111]])
    """
    Y, scores = _labels(Y), scipy.sparse.csr_array(scores)
    if scores.shape != Y.shape:
        raise DataError(f"scores must have the shape of Y, {Y.shape}; got {scores.shape}.")
    p_of = check_propensities(p, Y.shape[1])[scores.indices]
    true = np.clip(scores.data / p_of, 0, 1 - 1e-6)  # below 1, so that only observed labels have the weight 1
    probability = true * (1 - p_of) / (1 - true * p_of)
    weights = scipy.sparse.csr_array((probability, scores.indices, scores.indptr), shape=Y.shape)
    completed = scipy.sparse.csr_array(Y.maximum(weights))
    completed.eliminate_zeros()
    completed.sort_indices()
    return completed


def to_indicator(completed: Any, p: Floats) -> Any:
    """The result of `complete` rounded to 0s and 1s, for estimators that take no weights; rounding costs precision.

    The Σ N_l(1 − p_l)/p_l labels that are expected to be missing are added, the most probable first.

    >>> completed = scipy.sparse.csr_array([[1, 0.667, 0.111]])
    >>> to_indicator(completed, p=np.array([0.5, 0.5, 0.5])).toarray()
    array([[1., 1., 0.]], dtype=float32)
    """
    completed = scipy.sparse.csr_array(completed)
    p = check_propensities(p, completed.shape[1])
    observed = completed.data == 1
    n_missing = round(float((1 / p[completed.indices[observed]] - 1).sum()))
    kept = np.zeros(completed.nnz, bool)
    kept[np.argsort(-completed.data, kind="stable")[: observed.sum() + n_missing]] = True
    return _cells(completed, kept)


def _labels(Y: Any, weights: bool = False) -> Any:
    """A copy of Y as canonical CSR, of 0s and 1s unless weights are allowed."""
    if getattr(Y, "ndim", 0) != 2:
        raise DataError("Y must be an indicator matrix of n rows and L labels, sparse or dense.")
    if not weights:
        return check_indicator(Y, "Y", np.float64)
    Y = scipy.sparse.csr_array(Y, dtype=np.float64, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    return Y


def _counts(Y: Any) -> Floats:
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)


def _cells(matrix: Any, kept: NDArray[np.bool_]) -> Any:
    """The stored cells that are kept, as a CSR indicator of float32 ones."""
    indptr = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    ones = np.ones(int(kept.sum()), np.float32)
    return scipy.sparse.csr_array((ones, matrix.indices[kept], indptr), shape=matrix.shape)
