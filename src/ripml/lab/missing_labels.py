"""Labels that were not written down: how to simulate them, and two ways to lose less by them.

A true label l of a row is seen with chance p_l, its propensity, and is otherwise missing. With y the seen labels and
f(x) the chance that the label is true,

    E[y/p | x] = f(x)                          weighting: divide by p, and the mean is right again        `weigh`
    P(true | x, not seen) = f(1−p)/(1−f·p)     completion: put that chance where no label was seen         `complete`

Ridge scores and votes are linear in the labels of a fixed set of rows, so dividing the targets by p and dividing the
scores by p are the same; `weigh` does either. Where all labels go missing alike it changes no ranking.

Completion takes f from scores of each training row by a model that has not seen that row (`left_out_scores`, or any
other), f ≈ score/p. Its result has a 1 where a label was seen and a weight below 1 where one is probably missing.

What p is cannot be learnt from the labels alone: a label that is rare and one that is often forgotten look the same.
`assumed_propensities` gives p for an assumed share of missing labels, the same for all labels or by the rule of Jain
et al. (2016), after which the rare ones are forgotten more often.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError
from ripml.base.parallel import blocks, map_blocks, require_memory
from ripml.labels.propensity import check_propensities, weigh

__all__ = ["assumed_propensities", "complete", "hide_labels", "left_out_scores", "to_indicator", "weigh"]

Floats = NDArray[np.float64]

# The odds of being hidden are C·(N + B)^−A for a label of N rows; A = 0 is the same for all. A and B of popularity are
# those that Jain et al. fitted.
_EXPONENTS, _OFFSET = {"random": 0.0, "popularity": 0.55}, 1.5
_BLOCK_BYTES = 20e6  # of each dense array in a block of rows; a thread holds about six of them


# ---------------------------------------------------------------------------------------------------- what is missing


def hide_labels(Y: Any, share: float, by: str = "random", seed: int = 0) -> Any:
    """Hide each label of Y (n, L) with chance 1 − p_l, independently: what is left, CSR (n, L).

    With N_l rows that carry label l, the odds of being hidden are (1 − p_l)/p_l = C·(N_l + 1.5)^−A. A = 0 for
    `by="random"`; A = 0.55 for `by="popularity"`, which hides rare labels more. C is such that Σ N_l(1 − p_l) is
    `share` of all labels. Rows may be left without any.

    >>> Y = scipy.sparse.csr_array(np.ones((1000, 2)))
    >>> hide_labels(Y, 0.4).nnz / Y.nnz
    0.6045
    """
    Y = _labels(Y)
    p = _propensities(_counts(Y), share, by, seen=False)
    kept = np.random.default_rng(seed).random(Y.nnz) < p[Y.indices]
    return _cells(Y, kept)


def assumed_propensities(Y: Any, share: float, by: str = "random") -> Floats:
    """The chance p (L,) that a true label is among the seen labels Y (n, L), if `share` of all labels is missing.

    p_l = 1/(1 + C·(T_l + 1.5)^−A) as in `hide_labels`; the true count T_l = N_l/p_l is solved for beside it, and C is
    such that Σ N_l = (1 − share)·Σ T_l.

    >>> Y = scipy.sparse.csr_array([[1, 0], [1, 0], [1, 1]])
    >>> assumed_propensities(Y, 0.5), assumed_propensities(Y, 0.5, by="popularity").round(2)
    (array([0.5, 0.5]), array([0.53, 0.44]))
    """
    return _propensities(_counts(_labels(Y)), share, by, seen=True)


def _propensities(counts: Floats, share: float, by: str, seen: bool) -> Floats:
    """p (L,) by the rule of `hide_labels`; `counts` are of seen labels, or of true ones."""
    if not _is_number(share) or not 0 <= share < 1:
        raise ParameterError(f"`share` must be a number from 0 to below 1; got {share!r}.")
    if by not in _EXPONENTS:
        raise ParameterError(f"`by` must be one of {', '.join(map(repr, _EXPONENTS))}; got {by!r}.")
    if share == 0 or not counts.any():
        return np.full(len(counts), 1.0 - share)

    def of(log_c: float) -> Floats:
        true = counts
        # T = N(1 + C·(T + B)^−A): the right side falls in T, so halfway steps close in on the one solution.
        for _ in range(60 if seen else 0):
            true = (true + counts * (1 + np.exp(log_c) * (true + _OFFSET) ** -_EXPONENTS[by])) / 2
        return np.asarray(1 / (1 + np.exp(log_c) * (true + _OFFSET) ** -_EXPONENTS[by]))

    def missed(log_c: float) -> float:
        p = of(log_c)
        found = 1 - counts.sum() / (counts / p).sum() if seen else 1 - (counts * p).sum() / counts.sum()
        return float(found - share)

    return of(scipy.optimize.brentq(missed, -40, 40, xtol=1e-12))


# --------------------------------------------------------------------------------------------------------- completion


def left_out_scores(X: Any, Y: Any, ridge: float = 1.0, n_candidates: int = 20, n_jobs: int | None = None) -> Any:
    """One-vs-all ridge scores of each training row by a regression without that row; the best of each row, CSR (n, L).

        ŷ₋ᵢ = (ŷᵢ − hᵢyᵢ)/(1 − hᵢ),    ŷ = H Y,    H = X(XᵀX + ridge·I)⁻¹Xᵀ = I − ridge·(XXᵀ + ridge·I)⁻¹,    hᵢ = Hᵢᵢ

    That is exact: no row is fitted again. H comes in blocks of rows from the smaller of the two inverses. The default
    `ridge` suits feature rows X (n, d) of length 1; Y (n, L) may hold weights. Only positive scores are kept, and at
    most `n_candidates` of a row; ties go to the lower label.

    >>> X, Y = np.eye(3)[[0, 0, 1, 1]], scipy.sparse.csr_array([[1, 0], [1, 0], [0, 1], [0, 0]])
    >>> left_out_scores(X, Y).toarray()
    array([[0.5, 0. ],
           [0.5, 0. ],
           [0. , 0. ],
           [0. , 0.5]])
    """
    if not _is_number(ridge) or not 0 < ridge < np.inf:
        raise ParameterError(f"`ridge` must be a number > 0; got {ridge!r}.")
    if not _is_number(n_candidates, numbers.Integral) or n_candidates < 1:
        raise ParameterError(f"`n_candidates` must be an integer ≥ 1; got {n_candidates!r}.")
    Y = _labels(Y, weights=True)
    X = scipy.sparse.csr_array(X, dtype=np.float64) if scipy.sparse.issparse(X) else np.asarray(X, np.float64)
    if not np.isfinite(X.sum()):
        raise DataError("X must hold finite numbers; got infinity or NaN.")
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}; they must have the same number.")
    n, n_labels = Y.shape
    hat = _hat(X, float(ridge))

    def best(rows: slice) -> Any:
        H = hat(rows)
        at = np.arange(len(H)), np.arange(rows.start, rows.stop)
        h, H[at] = H[at][:, None], 0  # without its own label, what is left of H Y is ŷ − h·y
        return _largest((Y.T @ H.T).T / (1 - h), n_candidates)

    size = max(1, int(_BLOCK_BYTES / 8 / max(n, n_labels)))
    found = map_blocks(best, blocks(n, size), n_jobs)
    return scipy.sparse.csr_array(scipy.sparse.vstack(found, format="csr")) if found else Y


def _hat(X: Any, ridge: float) -> Callable[[slice], Floats]:
    """Rows ↦ those of H, dense (rows, n)."""
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


def _largest(scores: Floats, k: int) -> Any:
    """The k largest positive scores of each row of a dense block, CSR; ties go to the lower label."""
    scores = np.ascontiguousarray(scores)
    if k < scores.shape[1]:
        least = np.partition(scores, -k, axis=1)[:, -k, None]
        above = scores > least
        tied = scores == least
        above |= tied & (np.cumsum(tied, axis=1) <= k - above.sum(axis=1, keepdims=True))
        scores[~above] = 0
    scores[scores < 0] = 0
    return scipy.sparse.csr_array(scores)


def complete(Y: Any, scores: Any, p: Floats) -> Any:
    """Y with P(true | not seen) = f(1 − p)/(1 − f·p) where no label was seen, f = score/p; CSR (n, L) in (0, 1].

    Y (n, L) are the seen labels, which stay 1; `scores` (n, L) estimate the chance that a label is seen and must come
    from models that have not seen the row, such as `left_out_scores`; p (L,) is the chance that a true label is seen.
    With p = 1 nothing is missing, and the result is Y.

    >>> Y, scores = scipy.sparse.csr_array([[1, 0, 0]]), scipy.sparse.csr_array([[0.9, 0.4, 0.1]])
    >>> complete(Y, scores, p=np.array([0.5, 0.5, 0.5])).toarray().round(3)
    array([[1.   , 0.667, 0.111]])
    """
    Y, scores = _labels(Y), scipy.sparse.csr_array(scores)
    if scores.shape != Y.shape:
        raise DataError(f"scores must have the shape of Y, {Y.shape}; got {scores.shape}.")
    p_of = check_propensities(p, Y.shape[1])[scores.indices]
    true = np.clip(scores.data / p_of, 0, 1 - 1e-6)  # below 1, so that a weight of 1 is a seen label and no other
    chance = true * (1 - p_of) / (1 - true * p_of)
    weights = scipy.sparse.csr_array((chance, scores.indices, scores.indptr), shape=Y.shape)
    completed = scipy.sparse.csr_array(Y.maximum(weights))  # no chance exceeds the 1 of a seen label
    completed.eliminate_zeros()
    completed.sort_indices()
    return completed


def to_indicator(completed: Any, p: Floats) -> Any:
    """The result of `complete` as 0s and 1s: as many labels are added as are expected to be missing, likeliest first.

    With N_l seen labels they are Σ N_l(1 − p_l)/p_l. For estimators that take no weights; rounding costs precision.

    >>> completed = scipy.sparse.csr_array([[1, 0.667, 0.111]])
    >>> to_indicator(completed, p=np.array([0.5, 0.5, 0.5])).toarray()
    array([[1., 1., 0.]], dtype=float32)
    """
    completed = scipy.sparse.csr_array(completed)
    p = check_propensities(p, completed.shape[1])
    seen = completed.data == 1
    n_missing = round(float((1 / p[completed.indices[seen]] - 1).sum()))
    kept = np.zeros(completed.nnz, bool)
    kept[np.argsort(-completed.data, kind="stable")[: seen.sum() + n_missing]] = True
    return _cells(completed, kept)


# --------------------------------------------------------------------------------------------------------------- cells


def _is_number(value: object, kind: type = numbers.Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _labels(Y: Any, weights: bool = False) -> Any:
    """Y as canonical CSR, its argument untouched; of 0s and 1s, if weights are not allowed."""
    if getattr(Y, "ndim", 0) != 2:
        raise DataError("Y must be an indicator matrix of n rows and L labels, sparse or dense.")
    Y = scipy.sparse.csr_array(Y, dtype=np.float64, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    wrong = Y.data[Y.data != 1]
    if len(wrong) and not weights:
        raise DataError(f"Y must be an indicator of 0s and 1s; got the value {wrong[0]:g}.")
    return Y


def _counts(Y: Any) -> Floats:
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)


def _cells(matrix: Any, kept: NDArray[np.bool_]) -> Any:
    """The indicator of the stored cells that are kept, CSR of float32 ones."""
    indptr = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    ones = np.ones(int(kept.sum()), np.float32)
    return scipy.sparse.csr_array((ones, matrix.indices[kept], indptr), shape=matrix.shape)
