"""Kernel sums that do not touch every row: exact for near rows, and a line for the kernel of all others.

    Σ_i K(x, xᵢ) Cᵢ = Σ_i (a + b hᵢ) Cᵢ + Σ_i (K(x, xᵢ) − a − b hᵢ) Cᵢ,    hᵢ = ⟨x, xᵢ⟩ − ½‖xᵢ‖²

With K = exp(g(h − ½‖x‖²)), g = 2γ, the line a + b h is fitted to the values of distant rows, where K is nearly linear,
and the first sum is a ΣCᵢ + b (x·XᵀC − ½Σ‖xᵢ‖²Cᵢ): one product with x. Of the second sum the terms of near rows are
computed, and those of distant rows are left out. A row on the border is taken in gradually, so that the result does not
jump when rounding moves a row across it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import LazyArray, as_array, as_half, from_half
from ripml.base.compiled import loops
from ripml.base.parallel import blocks
from ripml.base.products import sparse_half_product, transposed_product
from ripml.regression.kernels import Kernel, Rows

__all__ = ["FarField"]

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Ints = NDArray[np.int64]

_BORDER = 0.01  # by how much the likeness of a row must exceed that of the border to be taken in as a whole
_BINS = 1024  # of the histogram that finds the border
_MANY = 2  # times `n_near` rows are too few for a far field
_SPREAD = 1e-12  # variance of the likeness of distant rows below which they are all alike
_ROW_BLOCK = 4096  # training rows processed at a time
_LEAST_ROWS = 6000  # rows from which "auto" has a far field
_TRIED = (500, 1000, 1500, 2000, 2500, 3000, 4000, 6000, 8000)  # numbers of near rows
_ERROR = 0.05  # of a kernel sum, relative to its length: half of what was seen to cost precision
_SAMPLE = 64  # rows on which it is measured
_UNIT = 1e-3  # by which the squared length of a row of length 1 may differ from 1


@dataclass(frozen=True)
class FarField:
    """Sums over all training rows, which stand for the distant ones."""

    total: Floats  # (M,) ΣCᵢ
    moment: Floats  # (M,) ½Σ‖xᵢ‖²Cᵢ
    slopes: Halves | LazyArray  # (d, M) XᵀC in units of `unit`
    unit: float
    follows: bool = False  # whether the slope is that of the rows and the rounded coefficients, to the last bit

    @classmethod
    def of(cls, squares: NDArray[Any], C: NDArray[Any], slope: Any, follows: bool = False) -> FarField:
        """Of rows of these squared lengths, their coefficients C (n, M) and the slope XᵀC."""
        slope, unit = as_half(slope)
        total = C.sum(axis=0, dtype=np.float64)
        moment = np.asarray(squares, np.float64) / 2 @ C
        return cls(total.astype(np.float32), moment.astype(np.float32), slope, unit, follows)

    @staticmethod
    def slope_of(X: Any, C: Halves, unit: float) -> Floats:
        """XᵀC (d, M) of rows X (n, d) and coefficients C (n, M), which are rounded, in units of `unit`."""
        return np.asarray(transposed_product(X, from_half(C), None) * np.float32(unit), np.float32)

    @property
    def slope(self) -> Halves:
        """XᵀC (d, M) in units of `unit`, which is made now if it was not needed before."""
        return as_array(self.slopes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that are saved, besides the slope."""
        return {"far_sums": np.stack([self.total, self.moment]), "far_unit": np.array([self.unit])}

    @staticmethod
    def serves(squares: NDArray[Any], kernel: Kernel) -> bool:
        """Whether rows of these squared lengths are many, and of length 1: then most are far from any query."""
        if kernel.n_near is None:
            return False
        if len(squares) <= (_LEAST_ROWS if isinstance(kernel.n_near, str) else _MANY * kernel.n_near):
            return False
        return bool(((np.abs(squares - 1) <= _UNIT) | (squares == 0)).all())

    def enough_near(
        self, kernel: Kernel, rows: Rows, C: NDArray[Any], rounded: Halves, unit: float, left_out: Ints, Z: Floats
    ) -> Kernel:
        """The kernel with the fewest near rows that change sums over rows, with coefficients C, by at most 5 %.

        That is measured on some of the rows, those `left_out`, relative to the length of the predictions Z for them.
        """
        sample = left_out[:_SAMPLE]
        X, squares = rows.take(sample), rows.squares[sample]
        likeness, allowed = kernel.likeness(X, rows), _ERROR * np.linalg.norm(Z, axis=1).mean()
        exact = kernel.of_likeness(likeness, squares) @ C.astype(np.float32, copy=False)
        for n_near in _TRIED:
            tried = kernel.with_near(n_near)
            if len(rows) > _MANY * n_near:
                found = self.kernel_sum(X, likeness, squares, tried, rounded, unit)
                if np.linalg.norm(found - exact, axis=1).mean() <= allowed:
                    return tried
        return kernel.with_near(len(rows))  # none are far

    def with_targets(self, kept: Any) -> FarField:
        """With only these targets."""
        slope = np.ascontiguousarray(self.slope[:, kept])
        return replace(self, total=self.total[kept], moment=self.moment[kept], slopes=slope, follows=False)

    def widened(self, n_targets: int) -> FarField:
        """With more targets, which are zero."""
        more = n_targets - len(self.total)
        total, moment = (np.pad(array, (0, more)) for array in (self.total, self.moment))
        slope = np.pad(self.slope, ((0, 0), (0, more)))
        return replace(self, total=total, moment=moment, slopes=slope, follows=False)

    def cleared(self, features: NDArray[np.bool_]) -> FarField:
        """Without what is left of features (d,) that no row has any more."""
        slope = self.slope.copy()
        slope[features] = 0
        return replace(self, slopes=slope, follows=False)

    def kernel_sum(self, X: Any, likeness: Floats, squares: Floats, kernel: Kernel, C: Halves, unit: float) -> Floats:
        """Σ_i K(x, xᵢ) Cᵢ (b, M) of rows X (b, d) with these squared lengths.

        `likeness` (b, n) is h, −∞ for rows that do not count; C (n, M) is in units of `unit`.
        """
        n_near, compiled, linear = kernel.n_near, loops(), self._products(X)
        assert isinstance(n_near, int)
        linear *= np.float32(self.unit / unit)
        total, moment = self.total / np.float32(unit), self.moment / np.float32(unit)
        if compiled is None:
            out = _near_and_far(likeness, squares, kernel.grade, n_near, C, total, moment, linear)
        else:
            out = np.empty((len(likeness), C.shape[1]), np.float32)
            compiled.near_sum(
                likeness, squares, kernel.grade, n_near, _BORDER, C.view(np.uint16), total, moment, linear, out
            )
        out *= np.float32(unit)
        return out

    def _products(self, X: Any) -> Floats:
        """x·XᵀC in units of `unit`, (b, M)."""
        if not scipy.sparse.issparse(X):
            return np.asarray(X @ from_half(self.slope), np.float32)
        return sparse_half_product(X, self.slope)


def _near_and_far(
    likeness: Floats,
    squares: Floats,
    grade: float,
    n_near: int,
    C: Halves,
    total: Floats,
    moment: Floats,
    linear: Floats,
) -> Floats:
    """The kernel sums of rows, which are fewer near than there are."""
    weights, lines = np.zeros(likeness.shape, np.float32), np.empty((2, len(likeness), 1), np.float32)
    for i, h in enumerate(likeness):
        values = h[h > -np.inf].astype(np.float64)
        border = _border(values, n_near)
        far = values[values <= border]
        # The least-squares line of the second-order expansion of K around the mean likeness of distant rows.
        mean = far.mean()
        apart = far - mean
        squared = apart * apart
        second, third = squared.mean(), (squared * apart).mean()
        level = np.exp(grade * (mean - squares[i] / 2))
        b = level * (grade + (grade**2 / 2 * third / second if second > _SPREAD else 0.0))
        a = level * (1 + grade**2 / 2 * second) - b * mean
        near = h > border
        K = np.exp(np.minimum(grade * (h[near] - squares[i] / 2), 0))
        weights[i, near] = (K - a - b * h[near]) * np.minimum(1, (h[near] - border) / _BORDER)
        lines[:, i, 0] = a, b
    out = lines[0] * total + lines[1] * (linear - moment)
    if len(likeness) == 1:
        near = weights[0] != 0
        return np.asarray(out + weights[:, near] @ from_half(C[near]), np.float32)
    for rows in blocks(len(C), _ROW_BLOCK):  # one product for all, as few rows are near to none of them
        out += weights[:, rows] @ from_half(C[rows])
    return np.asarray(out, np.float32)


def _border(values: NDArray[np.float64], n_near: int) -> float:
    """The likeness that about `n_near` of these exceed, by linear interpolation in a histogram."""
    low, high = values.min(), values.max()
    step = max((high - low) / _BINS, 1e-30)
    counts = np.bincount(np.minimum(((values - low) / step).astype(np.int64), _BINS - 1), minlength=_BINS)
    above = np.cumsum(counts[::-1])
    place = int(np.searchsorted(above, n_near, side="right"))  # bins from the top that are near as a whole
    if place == _BINS:
        return float(low)
    inside = (n_near - (above[place - 1] if place else 0)) / counts[_BINS - 1 - place]
    return float(low + step * (_BINS - place - inside))
