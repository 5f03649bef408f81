"""Measures of a ranking of labels: P@k, RP@k, nDCG@k, recall@k, PSP@k, coverage@k; and F1 of a set of labels.

Every ranking metric compares the k best-scored labels r₁ … r_k of a row (``ranking``) with its true labels y:

    P@k       (1/k) Σⱼ y[rⱼ]
    RP@k      (1/min(k, |y|)) Σⱼ y[rⱼ]
    recall@k  (1/|y|) Σⱼ y[rⱼ]
    nDCG@k    Σⱼ y[rⱼ]/log₂(j+1)  divided by its largest possible value  Σ_{j ≤ min(k, |y|)} 1/log₂(j+1)
    PSP@k     Σ_rows Σⱼ y[rⱼ]/p[rⱼ]  divided by its largest possible value  Σ_rows (the k largest 1/p[l] with y[l] = 1)

The first four are means over rows. P, recall and nDCG are the measures in the paper's tables, RP is that of EURLEX57K.
All metrics follow these rules:

- In ``Y`` every non-zero cell is a true label. In sparse ``scores`` every stored cell is a candidate, including stored
  zeros (with score 0); cells that are not stored are never ranked. In dense ``scores`` every cell is a candidate.
- Equal scores are ordered by the lower label index.
- Rows without a true label are left out of the ranking metrics: no ranking could score there, and the published sizes
  of the data sets exclude them too. If no row is left, a ``DataError`` is raised.
- P@k divides by k even if a row has fewer than k candidates or labels; k may exceed L.

All values lie in [0, 1]. Sparse input is never made dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from ripml.base.errors import DataError, ParameterError, check_count

__all__ = [
    "coverage_at_k",
    "macro_f1",
    "micro_f1",
    "ndcg_at_k",
    "precision_at_k",
    "propensities",
    "propensities_of_counts",
    "psp_at_k",
    "r_precision_at_k",
    "ranking",
    "recall_at_k",
    "report",
]

Matrix: TypeAlias = "csr_array | NDArray[Any]"
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

# Rows are ranked in blocks padded to their longest row; a block has about this many cells (8 MB of keys).
_CELLS_PER_BLOCK = 1 << 20


def ranking(scores: Matrix, k: int) -> Ints:
    """Return the label indices of the k best candidates of each row, best first.

    ``scores`` is (n, L); the result is (n, k), with -1 if a row has fewer than k candidates.
    Ties go to the lower label index; a stored zero is a candidate with score 0.

    >>> from scipy.sparse import csr_array
    >>> scores = csr_array([[0.2, 0.0, 0.9, 0.2], [0.0, 0.0, 0.0, 0.5]])
    >>> ranking(scores, 3)
    array([[ 2,  0,  3],
           [ 3, -1, -1]])
    """
    check_count("k", k)
    candidates = _candidates(scores)
    starts = candidates.indptr[:-1].astype(np.int64)
    lengths = np.diff(candidates.indptr).astype(np.int64)
    top = np.full((len(lengths), k), -1, dtype=np.int64)
    # Longest rows first, so that the rows of a block have nearly one length and padding stays small.
    by_length = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    done = 0
    while done < len(by_length):
        width = lengths[by_length[done]]
        rows = by_length[done : done + max(1, _CELLS_PER_BLOCK // width)]
        done += len(rows)
        is_candidate = np.arange(width) < lengths[rows, None]
        cells = np.where(is_candidate, starts[rows, None] + np.arange(width), 0)
        # Stable, and indices are sorted: ties keep label order, and padding stays behind even a score of -inf.
        keys = np.where(is_candidate, -candidates.data[cells], np.inf)
        order = np.argsort(keys, axis=1, kind="stable")[:, :k]
        labels = candidates.indices[np.take_along_axis(cells, order, axis=1)]
        top[rows, : order.shape[1]] = np.where(order < lengths[rows, None], labels, -1)
    return top


def precision_at_k(Y: Matrix, scores: Matrix, k: int = 1) -> float:
    """Return the mean share of true labels among the k best-scored ones; ``Y`` and ``scores`` are (n, L).

    The divisor is always k, so a row with fewer than k true labels cannot reach 1.

    >>> from scipy.sparse import csr_array
    >>> Y = csr_array([[1, 0, 1], [0, 1, 0]])
    >>> precision_at_k(Y, csr_array([[0.9, 0.5, 0.1], [0.2, 0.8, 0.0]]), k=2)
    0.5
    """
    return _precision(_rank(Y, scores, k), k)


def r_precision_at_k(Y: Matrix, scores: Matrix, k: int = 1) -> float:
    """Return the mean share of true labels among the k best-scored ones, of as many as a row could have there.

    A row with fewer than k labels can reach 1, which it cannot with P@k.

    >>> from scipy.sparse import csr_array
    >>> Y = csr_array([[1, 0, 1], [0, 1, 0]])
    >>> r_precision_at_k(Y, csr_array([[0.9, 0.5, 0.1], [0.2, 0.8, 0.0]]), k=2)
    0.75
    """
    ranked = _rank(Y, scores, k)
    return float(np.mean(ranked.hits.sum(axis=1) / np.minimum(k, np.diff(ranked.truth.indptr))))


def recall_at_k(Y: Matrix, scores: Matrix, k: int = 1) -> float:
    """Return the mean share of a row's true labels that are among its k best-scored ones.

    >>> from scipy.sparse import csr_array
    >>> Y = csr_array([[1, 0, 1], [0, 1, 0]])
    >>> recall_at_k(Y, csr_array([[0.9, 0.5, 0.1], [0.2, 0.8, 0.0]]), k=2)
    0.75
    """
    return _recall(_rank(Y, scores, k), k)


def ndcg_at_k(Y: Matrix, scores: Matrix, k: int = 1) -> float:
    """Return the mean over rows of DCG@k = Σⱼ y[rⱼ]/log₂(j+1), divided by its largest possible value.

    >>> from scipy.sparse import csr_array
    >>> Y = csr_array([[1, 0, 0], [0, 1, 0]])
    >>> round(ndcg_at_k(Y, csr_array([[0.9, 0.5, 0.1], [0.8, 0.2, 0.1]]), k=3), 4)
    0.8155
    """
    return _ndcg(_rank(Y, scores, k), k)


def propensities(Y_train: Matrix, A: float = 0.55, B: float = 1.5) -> Floats:
    """Return each label's propensity p (L,): the probability that a label which applies was recorded.

    The model of Jain et al. (2016), with N rows and N_l rows that carry label l:

        p_l = 1 / (1 + C·exp(−A·log(N_l + B))),   C = (log N − 1)·(B + 1)^A

    The defaults suit most data sets; the usual exceptions are A = 0.5, B = 0.4 for Wikipedia
    and A = 0.6, B = 2.6 for Amazon. N counts every row of ``Y_train``. C must be positive, hence N ≥ 3.

    >>> from scipy.sparse import csr_array
    >>> propensities(csr_array([[1, 0], [1, 0], [1, 1]])).round(3)
    array([0.933, 0.91 ])
    """
    truth = _indicator(Y_train, "Y_train")
    return propensities_of_counts(_label_counts(truth), truth.shape[0], A, B)


def propensities_of_counts(counts: NDArray[Any], n_rows: int, A: float = 0.55, B: float = 1.5) -> Floats:
    """Return the propensities (L,) of labels that ``counts`` (L,) of the training rows have; see `propensities`.

    >>> propensities_of_counts([3, 1], n_rows=3).round(3)
    array([0.933, 0.91 ])
    """
    if not (np.isfinite(A) and A >= 0):
        raise ParameterError(f"`A` must be a number ≥ 0; got {A}.")
    if not (np.isfinite(B) and B > 0):
        raise ParameterError(f"`B` must be a number > 0; got {B}.")
    if n_rows < 3:
        raise DataError(f"propensities need at least 3 training rows, as log N − 1 must be positive; got {n_rows}.")
    # C·exp(−A·log(N_l + B)) with the two powers combined, as each alone could overflow.
    odds = (np.log(n_rows) - 1) * ((B + 1) / (np.asarray(counts, np.float64) + B)) ** A
    return np.asarray(1 / (1 + odds), dtype=np.float64)


def psp_at_k(Y: Matrix, scores: Matrix, k: int = 1, *, propensities: Floats) -> float:
    """Return the propensity-scored precision: a hit on label l counts 1/p_l, so rare labels count more.

    ``propensities`` (L,) come from the training labels. As in the extreme-classification repository, the sum over all
    rows is divided by the largest sum that a ranking could reach on the same rows.

    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> Y = csr_array([[1, 0, 1], [0, 1, 0]])
    >>> scores = csr_array([[0.9, 0.5, 0.1], [0.2, 0.8, 0.0]])
    >>> psp_at_k(Y, scores, k=1, propensities=np.array([1.0, 0.5, 0.25]))
    0.5
    """
    return _psp(_rank(Y, scores, k), [k], propensities)[0]


def coverage_at_k(Y: Matrix, scores: Matrix, k: int = 1) -> float:
    """Return the share of the labels that occur in ``Y`` which are correctly predicted at least once in a top k.

    >>> from scipy.sparse import csr_array
    >>> Y = csr_array([[1, 0, 0], [1, 1, 0]])
    >>> coverage_at_k(Y, csr_array([[0.9, 0.5, 0.1], [0.8, 0.2, 0.1]]), k=1)
    0.5
    """
    return _coverage(_rank(Y, scores, k), k)


def micro_f1(Y: Matrix, Y_pred: Matrix) -> float:
    """Return 2·TP/(2·TP + FP + FN) over all cells; non-zero cells of ``Y_pred`` (n, L) are the predicted labels.

    Every row counts, including rows without true labels: a label predicted there is an error.

    >>> from scipy.sparse import csr_array
    >>> micro_f1(csr_array([[1, 0, 1], [0, 1, 0]]), csr_array([[1, 1, 0], [0, 1, 0]]))
    0.6666666666666666
    """
    hits, total = _f1_counts(Y, Y_pred)
    return float(2 * hits.sum() / total.sum())


def macro_f1(Y: Matrix, Y_pred: Matrix) -> float:
    """Return the mean over labels of 2·TP/(2·TP + FP + FN).

    A label that is never true and never predicted has no F1 and is left out of the mean;
    one that is only true or only predicted counts 0. Every row counts.

    >>> from scipy.sparse import csr_array
    >>> macro_f1(csr_array([[1, 0, 1, 0], [1, 1, 0, 0]]), csr_array([[1, 1, 0, 0], [0, 1, 0, 0]]))
    0.4444444444444444
    """
    hits, total = _f1_counts(Y, Y_pred)
    present = total > 0
    return float(np.mean(2 * hits[present] / total[present]))


def report(
    Y: Matrix, scores: Matrix, *, propensities: Floats | None = None, ks: Sequence[int] = (1, 3, 5)
) -> dict[str, float]:
    """Return every ranking metric at every k of ``ks``, from one ranking: P, nDCG, recall, coverage, and PSP.

    PSP is included if ``propensities`` (L,) are given.

    >>> from scipy.sparse import csr_array
    >>> Y = csr_array([[1, 0, 1], [0, 1, 0]])
    >>> report(Y, csr_array([[0.9, 0.5, 0.1], [0.2, 0.8, 0.0]]), ks=[1])
    {'P@1': 1.0, 'nDCG@1': 1.0, 'recall@1': 0.75, 'coverage@1': 0.6666666666666666}
    """
    if len(ks) == 0:
        raise ParameterError("`ks` must name at least one k, such as (1, 3, 5); got none.")
    for k in ks:
        check_count("k", k)
    ranked = _rank(Y, scores, max(ks))
    values: dict[str, float] = {}
    for name, metric in (("P", _precision), ("nDCG", _ndcg), ("recall", _recall), ("coverage", _coverage)):
        values.update({f"{name}@{k}": metric(ranked, k) for k in ks})
    if propensities is not None:
        values.update({f"PSP@{k}": value for k, value in zip(ks, _psp(ranked, ks, propensities), strict=True)})
    return values


@dataclass(frozen=True)
class _Ranked:
    """The rows that have true labels, with their ranking of K labels, which serves every k ≤ K."""

    truth: csr_array  # (n, L), every row non-empty
    labels: Ints  # (n, K), -1 where there is no candidate
    hits: NDArray[np.bool_]  # (n, K): is this label true?


def _rank(Y: Matrix, scores: Matrix, k: int) -> _Ranked:
    check_count("k", k)
    truth = _indicator(Y, "Y")
    _check_same_shape(truth, scores, "scores")
    has_labels = np.diff(truth.indptr) > 0
    if not has_labels.any():
        raise DataError(f"none of the {truth.shape[0]} rows of Y has a true label, so there is nothing to score.")
    labels = ranking(scores, k)
    if not has_labels.all():
        truth, labels = truth[has_labels], labels[has_labels]
    n_labels = truth.shape[1]
    # Cells are numbered row·L + label; those of the truth are sorted. A label of -1 would be in the row before: masked.
    rows = np.arange(truth.shape[0], dtype=np.int64)
    true_cells = np.repeat(rows, np.diff(truth.indptr)) * n_labels + truth.indices
    cells = rows[:, None] * n_labels + labels
    found = np.minimum(np.searchsorted(true_cells, cells), len(true_cells) - 1)
    return _Ranked(truth, labels, (labels >= 0) & (true_cells[found] == cells))


def _precision(ranked: _Ranked, k: int) -> float:
    return float(np.mean(ranked.hits[:, :k].sum(axis=1) / k))


def _recall(ranked: _Ranked, k: int) -> float:
    return float(np.mean(ranked.hits[:, :k].sum(axis=1) / np.diff(ranked.truth.indptr)))


def _ndcg(ranked: _Ranked, k: int) -> float:
    discount = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.cumsum(discount)[np.minimum(k, np.diff(ranked.truth.indptr)) - 1]
    # Summed left to right like the ideal, so that a perfect ranking is exactly 1 and nothing exceeds it.
    gain = np.cumsum(ranked.hits[:, :k] * discount, axis=1)[:, -1]
    return float(np.mean(gain / ideal))


def _coverage(ranked: _Ranked, k: int) -> float:
    hit_labels = ranked.labels[:, :k][ranked.hits[:, :k]]
    return float(len(np.unique(hit_labels)) / len(np.unique(ranked.truth.indices)))


def _psp(ranked: _Ranked, ks: Sequence[int], propensities: Floats) -> list[float]:
    weight = 1 / _checked_propensities(propensities, ranked.truth.shape[1])
    truth = ranked.truth
    best_labels = ranking(csr_array((weight[truth.indices], truth.indices, truth.indptr), shape=truth.shape), max(ks))
    # A label of -1 reads the last weight; the mask makes it 0.
    gain = (ranked.hits * weight[ranked.labels]).sum(axis=0)
    best = ((best_labels >= 0) * weight[best_labels]).sum(axis=0)
    # The two sums take the same terms in different orders, so rounding could pass 1.
    return [min(1.0, float(gain[:k].sum() / best[:k].sum())) for k in ks]


def _f1_counts(Y: Matrix, Y_pred: Matrix) -> tuple[Ints, Ints]:
    """Return, per label, the true positives and the denominator 2·TP + FP + FN = (true) + (predicted)."""
    truth = _indicator(Y, "Y")
    _check_same_shape(truth, Y_pred, "Y_pred")
    predicted = _indicator(Y_pred, "Y_pred")
    total = _label_counts(truth) + _label_counts(predicted)
    if not total.any():
        raise DataError("neither Y nor Y_pred has a label, so F1 is not defined.")
    return _label_counts(csr_array(truth.multiply(predicted))), total


def _label_counts(indicator: csr_array) -> Ints:
    return np.bincount(indicator.indices, minlength=indicator.shape[1]).astype(np.int64)


def _candidates(scores: Matrix) -> csr_array:
    """Return the scores as canonical float CSR in which every stored cell is a candidate."""
    if issparse(scores):
        return _canonical(scores, "scores")
    dense = _dense(scores, "scores")
    n, n_labels = dense.shape
    # Not csr_array(dense): that drops zeros, and a zero outranks a negative score.
    every_cell = (dense.ravel(), np.tile(np.arange(n_labels), n), np.arange(n + 1) * n_labels)
    return _canonical(csr_array(every_cell, shape=dense.shape), "scores")


def _indicator(Y: Matrix, name: str) -> csr_array:
    """Return canonical CSR of ones whose stored cells are the labels; does not change Y."""
    matrix = _canonical(Y if issparse(Y) else csr_array(_dense(Y, name)), name)
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return csr_array((np.ones(matrix.nnz, dtype=np.int8), matrix.indices, matrix.indptr), shape=matrix.shape)


def _canonical(matrix: csr_array, name: str) -> csr_array:
    """Return float CSR with sorted indices, duplicates summed and no NaN; does not change its argument."""
    _check_matrix(matrix, name)
    matrix = csr_array(matrix)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    is_nan = np.isnan(matrix.data)
    if is_nan.any():
        cell = int(np.argmax(is_nan))
        row = int(np.searchsorted(matrix.indptr, cell, side="right")) - 1
        raise DataError(f"{name} must hold numbers; got NaN at row {row}, label {matrix.indices[cell]}.")
    return matrix


def _dense(matrix: Matrix, name: str) -> NDArray[Any]:
    array = np.asarray(matrix)
    _check_matrix(array, name)
    return array.astype(np.float32) if array.dtype == np.float16 else array  # scipy has no sparse float16


def _check_matrix(matrix: Matrix, name: str) -> None:
    if matrix.ndim != 2:
        raise DataError(f"{name} must be a matrix of n rows and L labels; got an array of shape {matrix.shape}.")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"{name} must hold numbers; got the type {matrix.dtype}.")


def _check_same_shape(truth: csr_array, other: Matrix, name: str) -> None:
    if np.shape(other) != truth.shape:
        raise DataError(f"{name} must have the shape of Y, {truth.shape}; got {np.shape(other)}.")


def _checked_propensities(values: Floats, n_labels: int) -> Floats:
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (n_labels,):
        raise DataError(
            f"propensities must have one value for each of the {n_labels} labels; got shape {values.shape}."
        )
    outside = ~((values > 0) & (values <= 1))
    if outside.any():
        label = int(np.argmax(outside))
        raise DataError(f"propensities must lie in (0, 1]; got {values[label]} for label {label}.")
    return values
