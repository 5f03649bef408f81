"""Kernel ridge regression in closed form: (K + alpha I) C = Z, ẑ = K(x, rows) C, in float32.

One Cholesky factorisation K + alpha I = G Gᵀ, made in place, serves every target. The rows asked about are put last:
the lower right block of (G Gᵀ)⁻¹ is then (B Bᵀ)⁻¹ with B the lower right block of G, so that what would be predicted
for each of them had it not been seen,

    ẑ₋ᵢ = zᵢ − cᵢ / [(K + alpha I)⁻¹]ᵢᵢ,

costs the inverse of that small block and nothing else. float32 is enough because alpha bounds the condition number,
λmax(K)/alpha ≤ n/alpha for kernels of unit diagonal: a residual of 1e-7·n/alpha, below what a label score is read to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.base.parallel import require_memory

__all__ = ["KernelSolution", "leave_out", "require_kernel_memory", "solve_kernel", "weights_of_rows"]

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class KernelSolution:
    """C (n, M), and the predictions for the last rows had each not been seen, (r, M)."""

    coefficients: Floats
    left_out: Floats


def require_kernel_memory(n: int, n_targets: int) -> None:
    """Raise if the kernel matrix of n rows and the targets do not fit into memory."""
    require_memory(4.0 * n * (n + 3 * n_targets), f"the kernel matrix of n = {n:,} rows", "use kernel='linear'")


def solve_kernel(K: Floats, targets: Floats, alpha: float, n_asked: int) -> KernelSolution:
    """Solve (K + alpha I) C = targets (n, M) and leave out each of the last `n_asked` rows.

    Of K (n, n) only the lower triangle is read; it is overwritten.

    >>> K = np.array([[1.0, 0.5], [0.5, 1.0]], np.float32)
    >>> solve_kernel(K, np.array([[1.0], [0.0]], np.float32), 1.0, 1).left_out.round(3)
    array([[0.25]], dtype=float32)
    """
    upper, half = _halfway(K, targets, alpha)
    left_out = _left_out(upper, half, targets, n_asked)
    C, _ = scipy.linalg.lapack.strtrs(upper, half, lower=False, overwrite_b=True)
    return KernelSolution(np.ascontiguousarray(C), left_out)


def leave_out(K: Floats, targets: Floats, alpha: float, n_asked: int) -> Floats:
    """The `left_out` of `solve_kernel` alone, at half the cost."""
    return _left_out(*_halfway(K, targets, alpha), targets, n_asked)


def _halfway(K: Floats, targets: Floats, alpha: float) -> tuple[Floats, Floats]:
    """U with UᵀU = K + alpha I, and U⁻ᵀ targets."""
    K.flat[:: len(K) + 1] += np.float32(alpha)
    upper, failed = scipy.linalg.lapack.spotrf(K.T, lower=False, clean=False, overwrite_a=True)
    if failed:
        raise DataError(f"the kernel matrix is not positive definite at ridge = {alpha:.3g}; use a larger one.")
    return upper, scipy.linalg.lapack.strtrs(upper, targets, lower=False, trans=1)[0]


def _left_out(upper: Floats, half: Floats, targets: Floats, n_asked: int) -> Floats:
    if not n_asked:
        return targets[:0]
    last = slice(len(upper) - n_asked, len(upper))
    inverse, _ = scipy.linalg.lapack.strtri(np.asfortranarray(upper[last, last]), lower=False)
    inverse = np.triu(inverse)
    diagonal = np.einsum("ij,ij->i", inverse, inverse)  # of (UᵀU)⁻¹ = U⁻¹U⁻ᵀ
    left_out: Floats = targets[last] - (inverse @ half[last]) / diagonal[:, None]
    return left_out


def weights_of_rows(K: Floats, k: Floats, alpha: float) -> Floats:
    """k (K + alpha I)⁻¹, (r,): how much each of r rows says about a query whose kernel with them is k (r,).

    A row of which k is −∞ is not there: its weight is 0. Of K (r, r) the upper triangle is read; it is overwritten.

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
    if failed:
        raise DataError(f"the kernel matrix is not positive definite at ridge = {alpha:.3g}; use a larger one.")
    return np.asarray(weights, np.float32)
