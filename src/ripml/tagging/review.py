"""`choose`: the documents without labels that a model is expected to learn most from, one after the other.

A document teaches about those that are like it, and most where the model is likely to be wrong. With k_ij the square
root of the cosine of two rows, c_j the largest k_ij over the rows i that have labels, and p_j the probability that the
first suggestion for row j is right,

    gain(i) = Σ_j (1 − p_j)·max(0, k_ij − c_j)    over all rows j without labels,

and once i is chosen, c_j is at least k_ij. So uncertain rows count more, rows in dense regions stand for many, rows
near those that were chosen for few, and rows with rare labels are uncertain and unlike the labelled ones. Gains only
fall as more rows are chosen (facility location): the greedy choice reaches 1 − 1/e of the best possible sum (Nemhauser,
Wolsey and Fisher 1978), and an old gain is a bound on the present one, so that few are computed again (Minoux 1978).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from ripml.base.parallel import blocks
from ripml.model.features import unit_rows

__all__ = ["Choice", "choose"]

Floats = NDArray[np.float32]

_BLOCK = 1000  # rows whose cosines are computed together
_MOST = 1000  # rows that one row is compared with after that


@dataclass(frozen=True)
class Choice:
    """A row that was chosen, what is expected to be gained by its labels, and for how many rows it is the nearest."""

    row: int
    gain: float
    n_like: int


def choose(X: Any, labelled: Any, probabilities: NDArray[Any], n: int) -> list[Choice]:
    """Choose n of the rows of X (rows, d), the most useful first.

    `labelled` (m, d) are rows that have labels, or soon will, and `probabilities` (rows,) those that the first
    suggestion for a row of X is right.

    >>> X = np.array([[1, 0], [1, 0.1], [0.9, 0], [0, 1], [0.5, 0.5]])
    >>> [choice.row for choice in choose(X, np.array([[0, 1.0]]), np.array([0.5, 0.5, 0.5, 0.1, 0.5]), 2)]
    [1, 4]
    >>> choose(X, X, np.zeros(5), 2)[0].gain
    0.0
    """
    rows, known = _unit(X), _unit(labelled)
    doubt = (1 - np.clip(probabilities, 0, 1)).astype(np.float32)
    nearest = np.zeros(len(doubt), np.float32)
    for block in blocks(known.shape[0], _BLOCK):
        nearest = np.maximum(nearest, _likeness(rows, known[block]).max(axis=1))
    parts = [_nearer(_likeness(rows[block], rows), nearest) for block in blocks(len(doubt), _BLOCK)]
    like = vstack([csr_array((0, len(doubt)), dtype=np.float32), *parts], format="csr")

    def others(row: int) -> tuple[NDArray[Any], Floats]:
        """The rows for which this one may be nearer than all that have labels, and how like they are."""
        part = slice(like.indptr[row], like.indptr[row + 1])
        return like.indices[part], like.data[part]

    def gain_of(row: int) -> float:
        columns, values = others(row)
        return float(np.maximum(values - nearest[columns], 0) @ doubt[columns])

    queue = [(-gain_of(row), row, 0) for row in range(len(doubt))]
    heapq.heapify(queue)
    chosen: list[Choice] = []
    while queue and len(chosen) < n:
        gain, row, when = heapq.heappop(queue)
        if when < len(chosen):  # the gain was that before the last choices
            heapq.heappush(queue, (-gain_of(row), row, len(chosen)))
            continue
        columns, values = others(row)
        chosen.append(Choice(row, abs(gain), int(np.count_nonzero(values > nearest[columns]))))
        nearest[columns] = np.maximum(nearest[columns], values)
    return chosen


def _nearer(like: Floats, nearest: Floats) -> csr_array:
    """Of a block of likenesses those that are above the nearest row with labels, at most `_MOST` a row, as CSR.

    The others add nothing to any gain. Where very few rows have labels, that is nearly all, and the smallest are left
    out.
    """
    like[like <= nearest] = 0
    if np.count_nonzero(like, axis=1).max(initial=0) > _MOST:
        like[like < np.partition(like, -_MOST, axis=1)[:, -_MOST, None]] = 0
    return csr_array(like)


def _unit(X: Any) -> Any:
    """Rows of length 1."""
    return unit_rows(X.astype(np.float32) if issparse(X) else np.asarray(X, np.float32))


def _likeness(a: Any, b: Any) -> Floats:
    """The square root of the cosine of each pair of rows of length 1, 0 where the cosine is negative."""
    cosines = a @ b.T
    dense = cosines.toarray() if issparse(cosines) else np.asarray(cosines)
    likeness: Floats = np.sqrt(np.maximum(dense, 0))
    return likeness
