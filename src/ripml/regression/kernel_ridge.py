"""Kernel ridge regression in closed form: (K + alpha I) C = Z, ẑ = K(x, rows) C, in float32.

One Cholesky factorisation K + alpha I = G Gᵀ, made in place, serves all targets. The rows to leave out come last: the
lower right block of (G Gᵀ)⁻¹ is then (B Bᵀ)⁻¹ with B the lower right block of G, so that the leave-one-out predictions

    ẑ₋ᵢ = zᵢ − cᵢ / [(K + alpha I)⁻¹]ᵢᵢ

only need the inverse of that small block. float32 is enough because alpha bounds the condition number by
λmax(K)/alpha ≤ n/alpha for kernels with unit diagonal: a residual of 1e-7·n/alpha does not change label scores visibly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.base.parallel import blocks, require_memory

__all__ = [
    "KernelSolution",
    "inverse_diagonal",
    "leave_out",
    "require_kernel_memory",
    "solve_kernel",
    "weights_of_rows",
]

Floats = NDArray[np.float32]

_ROWS = 256  # of a triangular matrix squared at a time


@dataclass(frozen=True)
class KernelSolution:
    """C (n, M), and the leave-one-out predictions for the last rows, (r, M)."""

    coefficients: Floats
    left_out: Floats


def require_kernel_memory(n: int, n_targets: int) -> None:
    """MemoryLimitError if the kernel matrix of n rows and the targets do not fit into memory."""
    require_memory(4.0 * n * (n + 3 * n_targets), f"the kernel matrix of n = {n:,} rows", "use kernel='linear'")


def solve_kernel(K: Floats, targets: Floats, alpha: float, n_left_out: int) -> KernelSolution:
    """Solve (K + alpha I) C = targets (n, M), and predict each of the last `n_left_out` rows without it.

    Only the lower triangle of K (n, n) is read; K is overwritten.

    >>> K = np.array([[1.0, 0.5], [0.5, 1.0]], np.float32)
    >>> solve_kernel(K, np.array([[1.0], [0.0]], np.float32), 1.0, 1).left_out.round(3)
    array([[0.25]], dtype=float32)
    """
    upper, half = _halfway(K, targets, alpha)
    C, _ = scipy.linalg.lapack.strtrs(upper, half, lower=False, overwrite_b=True)
    last = slice(len(K) - n_left_out, len(K))
    corner = np.asfortranarray(upper[last, last])
    left_out = _left_out(corner, C[last], targets[last]) if n_left_out else targets[:0]
    return KernelSolution(np.ascontiguousarray(C), left_out)


def leave_out(K: Floats, targets: Floats, alpha: float, n_left_out: int) -> Floats:
    """Only the `left_out` of `solve_kernel`, at half the cost; `n_left_out` is at least 1."""
    upper, half = _halfway(K, targets, alpha)
    last = slice(len(K) - n_left_out, len(K))
    corner = np.asfortranarray(upper[last, last])
    C, _ = scipy.linalg.lapack.strtrs(corner, half[last], lower=False)  # its last rows need no others
    return _left_out(corner, C, targets[last])


def inverse_diagonal(K: Floats, alpha: float) -> Floats:
    """The diagonal of (K + alpha I)⁻¹, (n,): all that leaves out every row where the coefficients C are known.

    Only the lower triangle of K (n, n) is read; K is overwritten.

    >>> inverse_diagonal(np.array([[1.0, 0.0], [0.0, 3.0]], np.float32), 1.0).round(3)
    array([0.5 , 0.25], dtype=float32)
    """
    return _inverse_diagonal(_factor(K, alpha))


def _factor(K: Floats, alpha: float) -> Floats:
    """U with UᵀU = K + alpha I."""
    K.flat[:: len(K) + 1] += np.float32(alpha)
    upper, failed = scipy.linalg.lapack.spotrf(K.T, lower=False, clean=False, overwrite_a=True)
    _check_definite(failed, alpha)
    return np.asarray(upper)


def _halfway(K: Floats, targets: Floats, alpha: float) -> tuple[Floats, Floats]:
    """U with UᵀU = K + alpha I, and U⁻ᵀ targets."""
    upper = _factor(K, alpha)
    return upper, scipy.linalg.lapack.strtrs(upper, targets, lower=False, trans=1)[0]


def _left_out(upper: Floats, C: Floats, targets: Floats) -> Floats:
    """targets − C/diagonal of (UᵀU)⁻¹ for the last rows and their block U of the factor, which is overwritten."""
    left_out: Floats = targets - C / _inverse_diagonal(upper)[:, None]
    return left_out


def _inverse_diagonal(upper: Floats) -> Floats:
    """The diagonal of (UᵀU)⁻¹ for the upper triangle U, which is overwritten."""
    inverse, _ = scipy.linalg.lapack.strtri(upper, lower=False, overwrite_c=True)
    diagonal = np.empty(len(upper), np.float32)  # of U⁻¹U⁻ᵀ, without what is left of K below the diagonal of U⁻¹
    for rows in blocks(len(upper), _ROWS):
        square, right = np.triu(inverse[rows, rows]), inverse[rows, rows.stop :]
        diagonal[rows] = np.einsum("ij,ij->i", square, square) + np.einsum("ij,ij->i", right, right)
    return diagonal


def weights_of_rows(K: Floats, k: Floats, alpha: float) -> Floats:
    """k (K + alpha I)⁻¹, (r,): the weight of each of r rows in the prediction for a query with kernel values k (r,).

    A row with k = −∞ is absent: its weight is 0. Only the upper triangle of K (r, r) is read; K is overwritten.

    >>> K, k = np.array([[1.0, 0.5], [0.5, 1.0]], np.float32), np.array([1.0, -np.inf], np.float32)
    >>> weights_of_rows(K, k, 1.0).round(3)
    array([0.5, 0. ], dtype=float32)
    """
    missing = ~np.isfinite(k)
    if missing.any():
        K[missing] = 0
        K[:, missing] = 0
        k = np.where(missing, np.float32(0), k)
    K.flat[:: len(K) + 1] += np.float32(alpha)
    _, weights, failed = scipy.linalg.lapack.sposv(K.T, k, lower=True, overwrite_a=True)
    _check_definite(failed, alpha)
    return np.asarray(weights, np.float32)


def _check_definite(failed: int, alpha: float) -> None:
    if failed:
        raise DataError(f"the kernel matrix is not positive definite at ridge = {alpha:.3g}; use a larger one.")
