"""Two numbers for each row that was added up, so that sums can tell whether a row was ever learnt with these features.

XᵀX and XᵀZ stay possible when another row is subtracted than the one that was added, so they cannot tell. The
signature of a row x is (⟨x, r₁⟩, ⟨x, r₂⟩) for fixed vectors of random signs: 8 bytes, the same to 7 digits however x is
computed, and different for different rows: of a million rows, one in 200 shares the signature of some other row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.base.parallel import blocks
from ripml.labels.ensembles import GOLDEN, mix

__all__ = ["RowSignatures"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_SAME = 1e-4  # times ‖x‖: by which the signature of the same row may differ
_ROUNDING = 1e-5  # of the square of a signature, relative; the errors of many rows cancel out
_UNSORTED = 1024  # rows that are looked through, at least
_ROWS = 8192  # rows at a time


class RowSignatures:
    """The signatures of the present rows; changed in place.

    >>> rows = RowSignatures.of(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> rows.places_of(np.array([[3.0, 4.0]])).tolist()
    [1]
    >>> rows.places_of(np.array([[3.0, 4.1]]))
    Traceback (most recent call last):
    ripml.base.errors.DataError: a row to be forgotten or relabelled was never learnt: no row has its features.
    """

    def __init__(self, values: Floats | None = None) -> None:
        self._values = np.empty((0, 2), np.float32) if values is None else np.array(values, np.float32)
        self._n = len(self._values)
        self._settle()

    def _settle(self) -> None:
        """Sort the present rows, so that most are found by bisection; the others are looked through."""
        present = self.values
        self._values, self._n, self._n_sorted = present, len(present), len(present)
        self._first = np.ascontiguousarray(present[:, 0])
        self._alive = np.ones(len(present), bool)

    @classmethod
    def of(cls, X: Any) -> RowSignatures:
        """Those of rows (n, d), dense or CSR."""
        return cls(_signatures(X)[0])

    @classmethod
    def of_blocks(cls, blocks: Iterable[Any]) -> RowSignatures:
        """Those of blocks of rows, at least one, which need not be in memory together."""
        return cls(np.concatenate([_signatures(X)[0] for X in blocks]))

    @property
    def values(self) -> Floats:
        """(n, 2), sorted, so that they do not tell in which order rows came."""
        present = self._values[: self._n]
        if hasattr(self, "_alive"):
            present = present[self._alive[: self._n]]
        return present[np.lexsort((present[:, 1], present[:, 0]))]

    def mismatch(self, gram: NDArray[np.floating[Any]]) -> float:
        """By how much XᵀX is not that of these rows, as a share of its trace; 0 if rounding explains it.

        rᵀXᵀX r is the sum of the squares of ⟨x, r⟩.
        """
        squares = np.square(self._values[: self._n][self._alive[: self._n]], dtype=np.float64)
        signs = _signs(len(gram)).astype(np.float64)
        off = float(np.abs(np.einsum("ij,ij->j", signs, gram @ signs) - squares.sum(axis=0)).max())
        rounding = _ROUNDING * float(np.linalg.norm(squares.sum(axis=1)))
        return off / float(gram.trace()) if off > rounding else 0.0

    def add(self, X: Any) -> None:
        """Add rows."""
        new = _signatures(X)[0]
        total = self._n + len(new)
        if total > len(self._values):
            more = max(total, 2 * len(self._values)) - self._n
            self._values = np.concatenate([self._values[: self._n], np.empty((more, 2), np.float32)])
            self._alive = np.concatenate([self._alive[: self._n], np.ones(more, bool)])
        self._values[self._n : total] = new
        self._n = total
        if total - self._n_sorted > max(_UNSORTED, total // 16):
            self._settle()

    def remove(self, places: Ints) -> None:
        """Remove the rows at places."""
        self._alive[places] = False
        self._values[places, 1] = 0  # nothing is left of them but the order of the others

    def places_of(self, X: Any) -> Ints:
        """The places of rows, each given once; DataError for a row that is not here."""
        wanted, allowed = _signatures(X)
        unsorted = self._values[self._n_sorted : self._n]
        places, taken = np.empty(len(wanted), np.int64), set[int]()
        for i, (signature, off) in enumerate(zip(wanted, allowed, strict=True)):
            least, most = signature[0] - off, signature[0] + off
            start = np.searchsorted(self._first, least, "left")
            near = np.arange(start, np.searchsorted(self._first, most, "right"))
            if len(unsorted):
                close = np.flatnonzero(np.abs(unsorted[:, 0] - signature[0]) <= off)
                near = np.concatenate([near, close + self._n_sorted])
            near = near[self._alive[near]]
            differences = np.abs(self._values[near] - signature).max(axis=1, initial=0)
            closest = near[np.argsort(differences, kind="stable")[: np.count_nonzero(differences <= off)]].tolist()
            place = next((place for place in closest if place not in taken), None)
            if place is None:
                raise DataError("a row to be forgotten or relabelled was never learnt: no row has its features.")
            taken.add(place)
            places[i] = place
        return places


def _signs(d: int) -> Floats:
    """r₁ and r₂, (d, 2)."""
    columns = np.arange(1, d + 1, dtype=np.uint64) * GOLDEN
    bits = mix(columns)[:, None] >> np.array([17, 43], np.uint64)
    signs: Floats = 1 - 2 * (bits & np.uint64(1)).astype(np.float32)
    return signs


def _signatures(X: Any) -> tuple[Floats, Floats]:
    """The signatures (n, 2) of rows, and by how much each may differ, (n,)."""
    signs = _signs(X.shape[1])
    values, allowed = np.empty((X.shape[0], 2), np.float32), np.empty(X.shape[0], np.float32)
    for rows in blocks(X.shape[0], _ROWS):
        some = X[rows]
        squares = some.multiply(some).sum(axis=1) if hasattr(some, "multiply") else np.einsum("ij,ij->i", some, some)
        values[rows], allowed[rows] = some @ signs, _SAME * np.sqrt(np.asarray(squares).ravel())
    return values, allowed
