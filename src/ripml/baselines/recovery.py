"""Sparse recovery: a sparse y (L,) from few numbers z = Phi y + noise, for many rows at once.

    omp      orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad, 1993): add the label whose column is most
             correlated with the residual, solve least squares on the labels chosen, k times
    cosamp   compressive sampling matching pursuit (Needell and Tropp, 2009): add the 2k most correlated labels to the k
             at hand, solve least squares, keep the k largest, for as long as the residual falls
    lasso    min ½‖z − Phi y‖² + penalty ‖y‖₁ by FISTA (Beck and Teboulle, 2009), restarted where it overshoots

Rows do not know of each other, so they may come in any blocks. As in `labels.ensembles` a column of Phi is a row here:
`Phi` is (L, m). Rows of Z are (n, m), answers CSR (n, L).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks
from ripml.decoding.scores import largest

__all__ = ["cosamp", "lasso", "omp", "sparsity_penalty"]

Floats = NDArray[np.float64]
Found = tuple[NDArray[np.int64], Floats]  # labels (b, K), −1 for none, and their coefficients

_BLOCK_CELLS = 1 << 20  # of the largest array that a block of rows needs
_EXPLAINED = 1e-10  # share of ‖z‖ below which a residual is rounding error, and nothing is left to recover


def omp(Z: Floats, Phi: Floats, k: int, n_jobs: int | None = None) -> Any:
    """At most k labels a row, and no more than m; fewer where they explain z altogether.

    One step costs O(L·m) for the correlations and O(k·m) for the least squares, which is kept as a QR factorisation.

    >>> omp(np.array([[0.0, 3.0]]), np.eye(2), k=1).toarray().tolist()
    [[0.0, 3.0]]
    """
    L, m = Phi.shape
    k = min(k, L, m)
    lengths = np.linalg.norm(Phi, axis=1)

    def solve(z: Floats) -> Found:
        b = len(z)
        labels = np.full((b, k), -1, np.int64)
        Q, R = np.zeros((b, k, m)), np.zeros((b, k, k))
        residual, free = z.copy(), np.ones((b, L), bool)
        size = np.linalg.norm(z, axis=1)
        for t in range(k):
            R[:, t, t] = 1
            open_rows = np.flatnonzero(np.linalg.norm(residual, axis=1) > _EXPLAINED * size)
            if not len(open_rows):
                continue
            fit = np.abs(residual[open_rows] @ Phi.T) / lengths
            chosen = np.argmax(np.where(free[open_rows], fit, -1), axis=1)
            labels[open_rows, t], free[open_rows, chosen] = chosen, False
            q, before = Phi[chosen], Q[open_rows, :t]
            for _ in range(2):  # Gram–Schmidt twice is orthogonal to rounding error
                along = (before @ q[:, :, None])[:, :, 0]
                R[open_rows, :t, t] += along
                q = q - (along[:, None, :] @ before)[:, 0]
            R[open_rows, t, t] = np.linalg.norm(q, axis=1)
            q /= R[open_rows, t, t, None]
            Q[open_rows, t] = q
            residual[open_rows] -= q * np.einsum("ij,ij->i", q, residual[open_rows])[:, None]
        return labels, np.asarray(np.linalg.solve(R, Q @ z[:, :, None])[:, :, 0], np.float64)

    return _by_blocks(solve, Z, L, (k + 1) * (m + L), n_jobs)


def cosamp(Z: Floats, Phi: Floats, k: int, n_jobs: int | None = None, max_steps: int = 20) -> Any:
    """k labels a row, and no more than a third of m and L, as least squares is solved on 3k labels at a time.

    The answer is the step with the smallest residual; the first step that does not lower it is the last.

    >>> cosamp(np.array([[0.0, 3.0, 0.0]]), np.eye(3), k=1).toarray().tolist()
    [[0.0, 3.0, 0.0]]
    """
    L, m = Phi.shape
    k = max(1, min(k, L // 3, m // 3))
    width = min(3 * k, L, m)

    def solve(z: Floats) -> Found:
        labels = np.full((len(z), k), -1, np.int64)
        values, residual = np.zeros((len(z), k)), z.copy()
        rows = np.flatnonzero(np.any(z != 0, axis=1))
        for _ in range(max_steps):
            fit = np.abs(residual[rows] @ Phi.T)
            old = labels[rows]
            fit[np.nonzero(old >= 0)[0], old[old >= 0]] = np.inf  # those at hand stay
            wide = largest(fit, width)
            columns = Phi[wide]
            solved = np.linalg.solve(columns @ columns.transpose(0, 2, 1), columns @ z[rows, :, None])[:, :, 0]
            kept = largest(np.abs(solved), k)
            new, value = np.take_along_axis(wide, kept, axis=1), np.take_along_axis(solved, kept, axis=1)
            rest = z[rows] - (value[:, None, :] @ Phi[new])[:, 0]
            size = np.linalg.norm(residual[rows], axis=1)
            better = np.linalg.norm(rest, axis=1) < size * (1 - _EXPLAINED)
            rows = rows[better]
            labels[rows], values[rows], residual[rows] = new[better], value[better], rest[better]
            rows = rows[np.linalg.norm(rest[better], axis=1) > _EXPLAINED * np.linalg.norm(z[rows], axis=1)]
            if not len(rows):
                break
        return labels, values

    return _by_blocks(solve, Z, L, width * (m + width) + L, n_jobs)


def lasso(
    Z: Floats,
    Phi: Floats,
    penalty: Floats,
    n_jobs: int | None = None,
    tol: float = 1e-4,
    max_steps: int = 500,
) -> Any:
    """The labels that a penalty (n,) on the sum of |y| leaves; scikit-learn's `alpha` is penalty/m.

    A row is done when no coefficient moves by more than `tol` times the largest.

    >>> lasso(np.array([[1.0, 3.0]]), np.eye(2), np.array([2.0])).toarray().tolist()
    [[0.0, 1.0]]
    """
    L = len(Phi)
    step = 1 / max(float(np.linalg.norm(Phi, 2)) ** 2, np.finfo(float).tiny)

    def solve(z: Floats, limit: Floats) -> Any:
        y = np.zeros((len(z), L))
        rows = np.arange(len(z))
        current, ahead, momentum = y.copy(), y.copy(), np.ones(len(z))
        threshold = step * limit[:, None]
        for _ in range(max_steps):
            moved = ahead + step * ((z - ahead @ Phi) @ Phi.T)
            moved = np.sign(moved) * np.maximum(np.abs(moved) - threshold, 0)
            change = moved - current
            # Momentum that points against the last step does harm: start it anew (O'Donoghue and Candès, 2015).
            momentum[np.einsum("ij,ij->i", ahead - moved, change) > 0] = 1
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = moved + ((momentum - 1) / following)[:, None] * change
            current, momentum = moved, following
            going = np.abs(change).max(axis=1) > tol * np.abs(moved).max(axis=1)
            y[rows[~going]] = current[~going]
            rows, z, threshold = rows[going], z[going], threshold[going]
            current, ahead, momentum = current[going], ahead[going], momentum[going]
            if not len(rows):
                break
        y[rows] = current
        return scipy.sparse.csr_array(y)

    parts = list(blocks(len(Z), max(1, _BLOCK_CELLS // (4 * L))))
    found = map_blocks(lambda part: solve(Z[part], penalty[part]), parts, n_jobs)
    return scipy.sparse.vstack([scipy.sparse.csr_array((0, L)), *found], format="csr")


def sparsity_penalty(Z: Floats, Phi: Floats, k: int) -> Floats:
    """The lasso's penalty (n,) for about k labels a row: the (k + 1)-th largest |⟨Phi_l, z⟩|, 0 for k ≥ L.

    Were the columns of Phi orthonormal, exactly the k labels above it would be left; the restricted isometry is that
    they nearly are.

    >>> sparsity_penalty(np.array([[1.0, 3.0]]), np.eye(2), k=1).tolist()
    [1.0]
    """
    L = len(Phi)
    if k >= L:
        return np.zeros(len(Z))
    return np.asarray(np.partition(np.abs(Z @ Phi.T), L - k - 1, axis=1)[:, L - k - 1])


def _by_blocks(solve: Callable[[Floats], Found], Z: Floats, L: int, cells: int, n_jobs: int | None) -> Any:
    """The rows of Z solved on threads, so many at a time as `cells` numbers a row allow, CSR (n, L)."""
    parts = list(blocks(len(Z), max(1, _BLOCK_CELLS // cells)))
    found = map_blocks(lambda part: _as_csr(*solve(Z[part]), L), parts, n_jobs)
    return scipy.sparse.vstack([scipy.sparse.csr_array((0, L)), *found], format="csr")


def _as_csr(labels: NDArray[np.int64], values: Floats, L: int) -> Any:
    there = labels >= 0
    row = np.nonzero(there)[0]
    found = scipy.sparse.csr_array((values[there], (row, labels[there])), shape=(len(labels), L))
    found.sort_indices()
    return found
