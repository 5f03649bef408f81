"""XᵀX and XᵀZ, the sums over rows that primal ridge regression needs (the paper's step 2), and their factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import FactoredEmbedding, dense, gram_of, transposed_product
from ripml.base.workspace import RowBlocks, Workspace

__all__ = ["Factor", "PackedSums", "Sums"]

Floats = NDArray[np.floating[Any]]

_LANES, _LANE_BYTES = 8, 1 << 28  # partial sums of dense rows, at most, and their memory
_LANE_ROWS = 2048  # rows added at a time
# Reciprocal condition below which a Cholesky factor is not accurate enough, for float64 and float32.
_CONDITION = {"d": 1e-10, "f": 1e-6}


@dataclass(frozen=True)
class Sums:
    """XᵀX, XᵀZ and n. Sums of different rows can be added, and subtracted again.

    >>> X, Z = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [0.0]])
    >>> (Sums.of(X[:1], Z[:1]) + Sums.of(X[1:], Z[1:])).gram
    array([[10., 14.],
           [14., 20.]])
    """

    gram: Floats
    moment: Floats
    n_rows: int
    signatures: NDArray[np.float32] | None = None  # (n, 2) of the rows, see `RowSignatures`; None if not known

    @classmethod
    def of(cls, X: Any, Z: Any, n_jobs: int | None = None, dtype: Any = np.float64, gram: bool = True) -> Sums:
        """The sums of rows of any type, computed in `dtype`. Z is dense or CSR.

        With gram=False XᵀX is left empty, for callers that know it already.
        """
        if not scipy.sparse.issparse(X) and not scipy.sparse.issparse(Z) and not isinstance(Z, FactoredEmbedding):
            return cls._of_dense(X, Z, n_jobs, np.dtype(dtype), gram)
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else None
        moment = np.asarray(transposed_product(X, Z.astype(dtype, copy=False), n_jobs, XT), dtype)
        return cls(gram_of(X, n_jobs, dtype, XT) if gram else np.zeros((0, 0), dtype), moment, X.shape[0])

    @classmethod
    def of_blocks(cls, X: RowBlocks, Z: Any, n_jobs: int | None, dtype: Any, workspace: Workspace) -> Sums:
        """The sums of rows that are read block by block; the workspace keeps them, so that an interrupted run goes on.

        They are kept about as often as they are smaller than the rows that were read since.
        """
        (n, d), n_targets = X.shape, Z.shape[1]
        if X.elsewhere:
            gram, moment, n_rows = X.fold(partial(_add_sums, dtype=np.dtype(dtype), n_jobs=n_jobs), Z)
            return cls(gram, moment, int(n_rows))
        step = [f"sums-{np.dtype(dtype).name}", n, d, n_targets, X.height]
        kept, total, done = workspace.load_checkpoint(step), None, 0
        if kept is not None:
            total, done = cls(kept["gram"], kept["moment"], int(kept["n_rows"])), int(kept["n_rows"])
        often = -(-np.dtype(dtype).itemsize * d * (d + n_targets) // (4 * X.height * (n_targets + d)))
        for number, rows in enumerate(blocks(n, X.height), 1):
            if rows.stop <= done:
                continue
            more = cls.of(X[rows], dense(Z[rows]).astype(dtype, copy=False), n_jobs, dtype)
            total = more if total is None else total.__iadd__(more)
            X.release()
            if number % often == 0 or rows.stop == n:
                arrays = {"gram": total.gram, "moment": total.moment, "n_rows": np.array(total.n_rows)}
                workspace.save_checkpoint(step, arrays)
        assert total is not None
        return total

    @classmethod
    def _of_dense(cls, X: Any, Z: Any, n_jobs: int | None, dtype: np.dtype[Any], gram: bool) -> Sums:
        """Partial sums (lanes), one per thread. Their number is fixed, so that rounding does not depend on threads."""
        d, n_targets = X.shape[1], Z.shape[1]
        lanes = max(1, min(_LANES, _LANE_BYTES // (dtype.itemsize * d * (d + n_targets))))

        def lane(first: int) -> Sums:
            empty = np.zeros((0, 0), dtype)
            total = cls(np.zeros((d, d), dtype) if gram else empty, np.zeros((d, n_targets), dtype), 0)
            for rows in blocks(X.shape[0], _LANE_ROWS)[first::lanes]:
                x, z = X[rows].astype(dtype, copy=False), dense(Z[rows]).astype(dtype, copy=False)
                total += cls(x.T @ x if gram else empty, x.T @ z, len(x))  # NumPy uses a symmetric product for xᵀx
            return total

        lanes = min(lanes, -(-X.shape[0] // _LANE_ROWS)) or 1
        if lanes == 1:
            return lane(0)  # BLAS uses all threads itself
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
        """Psi (d, M)."""
        return Factor(self.gram, alpha).solve(self.moment)


def _add_sums(total: Any, X: Any, Z: Any, dtype: np.dtype[Any], n_jobs: int | None) -> Any:
    """Add XᵀX, XᵀZ and the number of rows of a block."""
    more = Sums.of(X, dense(Z).astype(dtype, copy=False), n_jobs, dtype)
    if total is not None:
        more = Sums(*total).__iadd__(more)
    return more.gram, more.moment, more.n_rows


@dataclass(frozen=True)
class PackedSums:
    """Sums in the form in which they are stored: the lower triangle of XᵀX, row by row.

    >>> sums = Sums.of(np.array([[1.0, 2.0]]), np.array([[1.0]]))
    >>> PackedSums.of(sums).triangle.tolist(), PackedSums.of(sums).unpacked().gram.tolist()
    ([1.0, 2.0, 4.0], [[1.0, 2.0], [2.0, 4.0]])
    """

    triangle: Floats  # (d (d + 1) / 2,)
    moment: Floats
    n_rows: int
    added_up: Floats | None = None  # (d,) the scale of rounding errors, see `IncrementalRidge.added_up`
    signatures: NDArray[np.float32] | None = None  # (n, 2) of the rows, see `RowSignatures`; None if not known

    @classmethod
    def of(
        cls, sums: Sums, added_up: Floats | None = None, signatures: NDArray[np.float32] | None = None
    ) -> PackedSums:
        """Pack sums; the arrays are copies."""
        lines = [line[: i + 1] for i, line in enumerate(sums.gram)]
        triangle = np.concatenate(lines) if lines else np.empty(0)
        known = sums.signatures if signatures is None else signatures
        return cls(triangle, sums.moment.copy(), sums.n_rows, added_up, known)

    def unpacked(self) -> Sums:
        """The full sums; the arrays are copies."""
        d = len(self.moment)
        gram = np.empty((d, d))
        start = 0
        for i in range(d):
            gram[i, : i + 1] = gram[: i + 1, i] = self.triangle[start : start + i + 1]
            start += i + 1
        return Sums(gram, np.array(self.moment, np.float64), self.n_rows)

    def cleared(self, features: NDArray[np.bool_]) -> PackedSums:
        """Set these features (d,), which no row has any more, to zero, to remove rounding errors.

        `added_up` is rounded up to powers of two, so that it reveals nothing about forgotten rows.
        """
        sums, absent = self.unpacked(), np.flatnonzero(features)
        sums.gram[absent], sums.gram[:, absent], sums.moment[absent] = 0, 0, 0
        if self.added_up is None:
            return PackedSums.of(sums, None, self.signatures)
        scale = np.array(self.added_up, np.float64)
        scale[absent] = 0
        scale[scale > 0] = np.exp2(np.ceil(np.log2(scale[scale > 0])))
        return PackedSums.of(sums, scale, self.signatures)


class Factor:
    """(A + alpha I)⁻¹ for symmetric A ≥ 0 by Cholesky, or on the range of A only where it is numerically singular.

    The matrix is first scaled to unit diagonal, so that features of very different scale are not mistaken for linearly
    dependent ones. It works in the type of A. Where that is float32 and not accurate enough for the condition of
    A + alpha I, but alpha is above the rounding errors of A, it works in float64.
    """

    def __init__(self, A: Floats, alpha: float, remake: Callable[[], Floats] | None = None) -> None:
        """With `remake`, the factor overwrites A; `remake` computes A again in the rare case that it is needed."""
        self._scale = np.sqrt(A.diagonal() + A.dtype.type(alpha))[:, None]
        self.singular = not self._factorised(A, remake is not None)
        if not self.singular:
            return
        A = A if remake is None else remake()
        # Entries of the scaled matrix are at most 1, with errors of about eps: an error matrix of norm about √d eps.
        noise = 2 * len(A) ** 0.5 * np.finfo(A.dtype).eps
        if A.dtype == np.float32 and alpha > noise * float(self._scale.max()) ** 2:
            self.singular = not self._factorised(A.astype(np.float64), True)
        if self.singular:
            values, vectors = scipy.linalg.eigh(A.astype(np.float64), check_finite=False)
            kept = values > len(A) * np.finfo(A.dtype).eps * max(values.max(initial=0), 1e-300)
            # The inverse is H Hᵀ. Directions without data get no weight: right for every alpha, of least norm at 0.
            self._half = (vectors[:, kept] / np.sqrt(values[kept] + alpha)).astype(A.dtype)

    def _factorised(self, A: Floats, overwrite: bool) -> bool:
        """Make the Cholesky factor of A + alpha I, scaled to unit diagonal; whether it is accurate."""
        if not (self._scale > 0).all():
            return False
        inverse_scale = 1 / self._scale
        scaled = np.multiply(A, inverse_scale, out=A if overwrite else None)
        scaled *= inverse_scale.T
        scaled.flat[:: len(A) + 1] = 1
        potrf, pocon, lange = scipy.linalg.get_lapack_funcs(("potrf", "pocon", "lange"), (scaled,))
        norm = lange("1", scaled.T)
        self._lower, failed = potrf(scaled.T, lower=True, clean=False, overwrite_a=True)
        return not failed and bool(pocon(self._lower, norm, uplo="L")[0] >= _CONDITION[A.dtype.char])

    def solve(self, B: Floats) -> Floats:
        """(A + alpha I)⁻¹B; where the factor is singular, of the part of B in the range of A."""
        if self.singular:
            return np.asarray(self._half @ (self._half.T @ B))
        return np.asarray(self._second_half(self._solve_triangle(B / self._scale, 0)), B.dtype)

    def leverage(self, x: Floats) -> tuple[Floats, Callable[[NDArray[np.bool_]], Floats]]:
        """h (r,) = x (A + alpha I)⁻¹ xᵀ for each row of x (r, d), and a function for k = (A + alpha I)⁻¹ xᵀ of rows.

        h takes one triangular solve, half the cost of k, which is rarely needed.
        """
        if self.singular:
            k = self.solve(x.T)
            return np.einsum("ij,ji->i", x, k), lambda rows: k[:, rows]
        half = self._solve_triangle(x.T / self._scale, 0)
        return np.einsum("ij,ij->j", half, half), lambda rows: self._second_half(half[:, rows])

    def _solve_triangle(self, B: Floats, transposed: int) -> Floats:
        (trtrs,) = scipy.linalg.get_lapack_funcs(("trtrs",), (self._lower, B))
        solved: Floats = trtrs(self._lower, B, lower=True, trans=transposed)[0]
        return solved

    def _second_half(self, half: Floats) -> Floats:
        solved: Floats = self._solve_triangle(half, 1) / self._scale
        return solved
