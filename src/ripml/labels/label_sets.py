"""Distinct label sets: rows that carry the same labels share one embedding and one entry of the index.

A set is recognised by a fingerprint of its label keys, so finding the distinct sets of n rows takes one pass over the
labels and one sort, whatever the number of labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.parallel import blocks
from ripml.base.workspace import release
from ripml.labels.ensembles import GOLDEN

__all__ = ["LabelSets", "distinct_sets", "fingerprints"]

_ROW_BLOCK = 65536  # rows whose labels are hashed at a time


@dataclass(frozen=True)
class LabelSets:
    """The u distinct label sets of n rows."""

    first: NDArray[np.int64]  # (u,) the first row that carries each set
    counts: NDArray[np.int64]  # (u,) the number of rows that carry each set
    of_row: NDArray[np.int64]  # (n,) the set of each row


def distinct_sets(Y: Any, keys: NDArray[np.uint64]) -> LabelSets:
    """Group rows by label set, in an order that depends on the sets alone and not on the order of rows.

    A set is recognised by two independent 64-bit sums of hashes of its labels' keys and its size; the
    probability that two different sets of n rows agree in all three is about n²/2¹²⁸.
    """
    one, other, sizes = fingerprints(Y, keys)
    order = np.lexsort((sizes, other, one))
    new = np.ones(len(order), bool)
    new[1:] = np.any([field[order[1:]] != field[order[:-1]] for field in (one, other, sizes)], axis=0)
    of_row = np.empty(len(order), np.int64)
    of_row[order] = np.cumsum(new) - 1
    return LabelSets(order[new], np.bincount(of_row), of_row)


def fingerprints(Y: Any, keys: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[Any]]:
    """The two sums of hashes and the size of each row's label set, (n,) each.

    >>> import scipy.sparse
    >>> one, other, sizes = fingerprints(scipy.sparse.csr_array([[1, 1], [0, 1], [1, 1]]), np.array([5, 7], np.uint64))
    >>> bool(one[0] == one[2] != one[1]), sizes.tolist()
    (True, [2, 1, 2])
    """
    sizes = np.diff(Y.indptr)
    marks = [np.zeros(len(sizes), np.uint64) for _ in range(2)]
    few = Y.nnz < len(keys)
    for salt, mark in enumerate(marks):
        salted = np.uint64(int(GOLDEN) * (salt + 1) % 2**64)
        hashed = None if few else _mix(keys + salted)  # with few entries, only their labels are hashed
        for rows in blocks(len(sizes), _ROW_BLOCK):
            start, end = Y.indptr[rows.start], Y.indptr[rows.stop]
            labels = Y.indices[start:end]
            values = _mix(keys[labels] + salted) if hashed is None else hashed[labels]
            totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values)])  # modulo 2⁶⁴
            ends = totals[Y.indptr[rows.start : rows.stop + 1] - start]
            mark[rows] = ends[1:] - ends[:-1]
            release(Y.indices)
    return marks[0], marks[1], sizes


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    return x
