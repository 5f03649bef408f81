"""What primal ridge remembers of its rows, as sums, and the factor that solves for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import FactoredEmbedding, dense, gram_of, transposed_product

__all__ = ["Factor", "PackedSums", "Sums"]

Floats = NDArray[np.floating[Any]]

_LANES, _LANE_BYTES, _LANE_ROWS = 8, 1 << 28, 2048  # in which dense rows are summed, and how many at a time
# Reciprocal condition below which the digits of a Cholesky factor are not trusted, for float64 and float32.
_CONDITION = {"d": 1e-10, "f": 1e-6}


@dataclass(frozen=True)
class Sums:
    """All that primal ridge remembers of its rows: XᵀX, XᵀZ and n. They add, and what was added can be subtracted.

    >>> X, Z = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [0.0]])
    >>> (Sums.of(X[:1], Z[:1]) + Sums.of(X[1:], Z[1:])).gram
    array([[10., 14.],
           [14., 20.]])
    """

    gram: Floats
    moment: Floats
    n_rows: int

    @classmethod
    def of(cls, X: Any, Z: Any, n_jobs: int | None = None, dtype: Any = np.float64, gram: bool = True) -> Sums:
        """The sums of these rows in float64, whatever the type of X, or in float32 if asked. Z is dense or CSR.

        Without `gram`, where XᵀX is known already, it is left empty.
        """
        if not scipy.sparse.issparse(X) and not scipy.sparse.issparse(Z) and not isinstance(Z, FactoredEmbedding):
            return cls._of_dense(X, Z, n_jobs, np.dtype(dtype), gram)
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else None
        moment = np.asarray(transposed_product(X, Z.astype(dtype, copy=False), n_jobs, XT), dtype)
        return cls(gram_of(X, n_jobs, dtype, XT) if gram else np.zeros((0, 0), dtype), moment, X.shape[0])

    @classmethod
    def _of_dense(cls, X: Any, Z: Any, n_jobs: int | None, dtype: np.dtype[Any], gram: bool) -> Sums:
        """In lanes of blocks, a lane on a thread: their number is fixed, so that the sum does not depend on threads."""
        d, n_targets = X.shape[1], Z.shape[1]
        lanes = max(1, min(_LANES, _LANE_BYTES // (dtype.itemsize * d * (d + n_targets))))

        def lane(first: int) -> Sums:
            nothing = np.zeros((0, 0), dtype)
            total = cls(np.zeros((d, d), dtype) if gram else nothing, np.zeros((d, n_targets), dtype), 0)
            for rows in blocks(X.shape[0], _LANE_ROWS)[first::lanes]:
                x, z = X[rows].astype(dtype, copy=False), dense(Z[rows]).astype(dtype, copy=False)
                total += cls(x.T @ x if gram else nothing, x.T @ z, len(x))  # xᵀx is NumPy's symmetric product
            return total

        lanes = min(lanes, -(-X.shape[0] // _LANE_ROWS)) or 1
        if lanes == 1:
            return lane(0)  # BLAS on all its threads
        first, *others = map_blocks(lane, range(lanes), n_jobs)
        for other in others:
            first += other
        return first

    def __iadd__(self, other: Sums) -> Sums:
        self.gram[:] += other.gram
        self.moment[:] += other.moment
        return Sums(self.gram, self.moment, self.n_rows + other.n_rows)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.moment + other.moment, self.n_rows + other.n_rows)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.gram - other.gram, self.moment - other.moment, self.n_rows - other.n_rows)

    def solve(self, alpha: float) -> Floats:
        """Psi (d, M) of the rows summed here."""
        return Factor(self.gram, alpha).solve(self.moment)


@dataclass(frozen=True)
class PackedSums:
    """Sums at rest: of XᵀX the lower triangle alone, row by row.

    >>> sums = Sums.of(np.array([[1.0, 2.0]]), np.array([[1.0]]))
    >>> PackedSums.of(sums).triangle.tolist(), PackedSums.of(sums).unpacked().gram.tolist()
    ([1.0, 2.0, 4.0], [[1.0, 2.0], [2.0, 4.0]])
    """

    triangle: Floats  # (d (d + 1) / 2,)
    moment: Floats
    n_rows: int
    added_up: Floats | None = None  # (d,) in the diagonal ever, with what was subtracted later: the scale of rounding

    @classmethod
    def of(cls, sums: Sums, added_up: Floats | None = None) -> PackedSums:
        """The same sums in arrays of their own."""
        lines = [line[: i + 1] for i, line in enumerate(sums.gram)]
        return cls(np.concatenate(lines) if lines else np.empty(0), sums.moment.copy(), sums.n_rows, added_up)

    def unpacked(self) -> Sums:
        """The same sums in arrays of their own."""
        d = len(self.moment)
        gram = np.empty((d, d))
        start = 0
        for i in range(d):
            gram[i, : i + 1] = gram[: i + 1, i] = self.triangle[start : start + i + 1]
            start += i + 1
        return Sums(gram, np.array(self.moment, np.float64), self.n_rows)

    def cleared(self, features: NDArray[np.bool_]) -> PackedSums:
        """Without what rounding left of these features (d,), which no row has any more.

        What was ever added up is told in powers of two from then on, so that nothing can be read off it.
        """
        sums, gone = self.unpacked(), np.flatnonzero(features)
        sums.gram[gone], sums.gram[:, gone], sums.moment[gone] = 0, 0, 0
        if self.added_up is None:
            return PackedSums.of(sums)
        ever = np.array(self.added_up, np.float64)
        ever[gone] = 0
        ever[ever > 0] = np.exp2(np.ceil(np.log2(ever[ever > 0])))
        return PackedSums.of(sums, ever)


class Factor:
    """(A + alpha I)⁻¹ for symmetric A ≥ 0: Cholesky, or on the range of A alone where that is numerically singular.

    Rows and columns are first divided by the root of the diagonal, so that features of very different scale are not
    mistaken for linear dependence. It works in the type of A; where that is float32 and too short for the condition of
    A + alpha I, but alpha above the rounding error of A, in float64.
    """

    def __init__(self, A: Floats, alpha: float, remake: Callable[[], Floats] | None = None) -> None:
        """With `remake` the factor takes the place of A, which is made anew in the rare case that it is needed."""
        self._scale = np.sqrt(A.diagonal() + A.dtype.type(alpha))[:, None]
        self.singular = not self._factorised(A, remake is not None)
        if not self.singular:
            return
        A = A if remake is None else remake()
        # Entries of the scaled matrix are at most 1, each off by eps or so: together that is a matrix of norm √d eps.
        noise = 2 * len(A) ** 0.5 * np.finfo(A.dtype).eps
        if A.dtype == np.float32 and alpha > noise * float(self._scale.max()) ** 2:
            self.singular = not self._factorised(A.astype(np.float64), True)
        if self.singular:
            values, vectors = scipy.linalg.eigh(A.astype(np.float64), check_finite=False)
            kept = values > len(A) * np.finfo(A.dtype).eps * max(values.max(initial=0), 1e-300)
            # H Hᵀ: directions without data get no weight, which is right for every alpha and of least norm at 0.
            self._half = (vectors[:, kept] / np.sqrt(values[kept] + alpha)).astype(A.dtype)

    def _factorised(self, A: Floats, overwrite: bool) -> bool:
        """Whether the Cholesky factor of A + alpha I, rows and columns scaled, was found and can be trusted."""
        if not (self._scale > 0).all():
            return False
        shrunk = 1 / self._scale
        shifted = np.multiply(A, shrunk, out=A if overwrite else None)
        shifted *= shrunk.T
        shifted.flat[:: len(A) + 1] = 1
        potrf, pocon, lange = scipy.linalg.get_lapack_funcs(("potrf", "pocon", "lange"), (shifted,))
        norm = lange("1", shifted.T)
        self._lower, failed = potrf(shifted.T, lower=True, clean=False, overwrite_a=True)
        return not failed and bool(pocon(self._lower, norm, uplo="L")[0] >= _CONDITION[A.dtype.char])

    def solve(self, B: Floats) -> Floats:
        """(A + alpha I)⁻¹B, of B its part in the range of A where the factor is singular."""
        if self.singular:
            return np.asarray(self._half @ (self._half.T @ B))
        return np.asarray(self._both(self._solve_triangle(B / self._scale, 0)), B.dtype)

    def leverage(self, x: Floats) -> tuple[Floats, Callable[[NDArray[np.bool_]], Floats]]:
        """h (r,) = x (A + alpha I)⁻¹ xᵀ of each row of x (r, d), and k = (A + alpha I)⁻¹ xᵀ of those asked for.

        h needs one triangle of the factor, at half the cost of k, which is rarely wanted.
        """
        if self.singular:
            k = self.solve(x.T)
            return np.einsum("ij,ji->i", x, k), lambda rows: k[:, rows]
        half = self._solve_triangle(x.T / self._scale, 0)
        return np.einsum("ij,ij->j", half, half), lambda rows: self._both(half[:, rows])

    def _solve_triangle(self, B: Floats, transposed: int) -> Floats:
        (trtrs,) = scipy.linalg.get_lapack_funcs(("trtrs",), (self._lower, B))
        solved: Floats = trtrs(self._lower, B, lower=True, trans=transposed)[0]
        return solved

    def _both(self, half: Floats) -> Floats:
        solved: Floats = self._solve_triangle(half, 1) / self._scale
        return solved
