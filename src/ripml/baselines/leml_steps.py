"""The alternating steps of LEML: labels' factors H exactly, features' factors W by conjugate gradients.

    J(W, H) = ½ Σ_{(i,j) ∈ Ω} (Y_ij − x_iᵀ W h_j)² + ½ ridge (‖W‖² + ‖H‖²),        W (d, m), H (L, m), E = X W (n, m)

    H given W    (Σ_{i: (i,j) ∈ Ω} e_i e_iᵀ + ridge I) h_j = Eᵀ y_j        one m × m system for all labels if Ω is all
    W given H    Xᵀ P_Ω(X W Hᵀ) H + ridge W = Xᵀ Y H                       P_Ω sets what is not in Ω to 0

P_Ω is summed over the fewer of the cells in Ω and the cells outside, so that nothing of size n × L is made: either
P_Ω(M) itself, or M − P_C(M) with C the rest, where M Hᵀ H needs HᵀH alone. Between the two steps, the factors are
changed to those of least norm with the same product (the singular vectors of W Hᵀ, each scaled by the root of its
value). That lowers J for nothing, and as HᵀH is then diagonal, the columns of W are separate systems if Ω is all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import gram_of, product, transposed_product
from ripml.regression import Sums

__all__ = ["Problem", "factorise"]

Floats = NDArray[np.float64]

_CG_STEPS = 5
_BLAS_GAIN = 16  # operations of a dense product in the time of one of a sparse product
_GRAM_SIDE = 12_000  # the largest XᵀX that is made: 1.2 GB
_BLOCK_CELLS = 1 << 20
_LABELS = 16  # solved for in one task


@dataclass(frozen=True)
class Problem:
    """Rows, their labels, and which cells of the labels are known."""

    X: Any  # (n, d), dense or CSR
    XT: Any  # its transpose in CSR, None where X is dense
    gram: Any  # XᵀX, None where it is not worth its while
    Y: Any  # (n, L) CSR, nothing outside Ω
    cells: Any  # (n, L) CSR: those outside Ω if `mostly_known`, else Ω
    mostly_known: bool
    n_jobs: int | None

    @classmethod
    def of(cls, X: Any, Y: Any, observed: Any, n_jobs: int | None) -> Problem:
        """From rows X, labels Y and Ω, an indicator (n, L) in CSR; None is all of it."""
        X, Y = X.astype(np.float64), Y.astype(np.float64)
        cells, mostly_known = scipy.sparse.csr_array(Y.shape), True
        if observed is not None:
            mostly_known = 2 * observed.nnz >= Y.shape[0] * Y.shape[1]
            cells = _others(observed) if mostly_known else observed.astype(np.float64)
            Y = (Y * observed).tocsr()
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else None
        work = X.size * (1 if XT is None else _BLAS_GAIN)
        pays = X.shape[1] <= _GRAM_SIDE and X.shape[1] ** 2 <= 2 * work and mostly_known and not cells.nnz
        return cls(X, XT, gram_of(X, n_jobs, XT=XT) if pays else None, Y, cells, mostly_known, n_jobs)

    def forward(self, V: Floats) -> Floats:
        """X V."""
        return np.asarray(product(self.X, V, self.n_jobs), np.float64)

    def backward(self, E: Any) -> Floats:
        """Xᵀ E."""
        return np.asarray(transposed_product(self.X, E, self.n_jobs, self.XT), np.float64)

    def curvature(self, V: Floats, H: Floats) -> Floats:
        """Xᵀ P_Ω(X V Hᵀ) H, (d, m)."""
        if self.gram is not None:
            return np.asarray(self.gram @ (V @ (H.T @ H)))
        E = self.forward(V)
        known = E @ (H.T @ H) if self.mostly_known else np.zeros_like(E)
        if self.cells.nnz:
            known += self._sign * product(_at_cells(E, H, self.cells, self.n_jobs), H, self.n_jobs)
        return self.backward(known)

    def scale(self, H: Floats) -> Floats:
        """About the diagonal of V ↦ `curvature(V, H)`, (d, m); exact if Ω is all."""
        squares = self.X.multiply(self.X) if self.XT is not None else self.X**2
        share = self.cells.nnz / max(self.Y.shape[0] * self.Y.shape[1], 1)
        known = 1 - share if self.mostly_known else share
        return np.outer(known * np.asarray(squares.sum(axis=0)).ravel(), (H**2).sum(axis=0))

    def best_labels(self, W: Floats, ridge: float) -> Floats:
        """H (L, m), the minimum of J for this W."""
        E = self.forward(W)
        gram = E.T @ E if self.mostly_known else np.zeros((E.shape[1], E.shape[1]))
        moment = np.asarray(self.Y.T.tocsr() @ E)
        H = np.ascontiguousarray(Sums(gram, moment.T, len(E)).solve(ridge).T)
        columns = self.cells.tocsc()

        def solve(labels: NDArray[np.int64]) -> None:
            for label in labels:
                some = E[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]]
                own = Sums(gram + self._sign * (some.T @ some), moment[label, :, None], len(E))
                H[label] = own.solve(ridge)[:, 0]

        partly = np.flatnonzero(np.diff(columns.indptr))
        map_blocks(solve, [partly[block] for block in blocks(len(partly), _LABELS)], self.n_jobs)
        return H

    @property
    def _sign(self) -> int:
        return -1 if self.mostly_known else 1


def factorise(problem: Problem, n_dims: int, ridge: float, n_iter: int, seed: int) -> tuple[Floats, Floats]:
    """W (d, m) and H (L, m) after some iterations from a random start, m at most the rank that X W Hᵀ can have."""
    d, L = problem.X.shape[1], problem.Y.shape[1]
    m = min(n_dims, d, L)
    W, H = np.zeros((d, m)), np.linalg.qr(np.random.default_rng([seed, 1]).standard_normal((L, m)))[0]
    for _ in range(n_iter):
        W = _descend(problem, W, H, ridge)
        W, H = _balanced(W, problem.best_labels(W, ridge))
    return W, H


def _descend(problem: Problem, W: Floats, H: Floats, ridge: float) -> Floats:
    """A few steps of conjugate gradients on W, preconditioned by the diagonal."""
    # Columns that are separate systems take steps of their own.
    inner = "ij,ij->" if problem.cells.nnz else "ij,ij->j"
    shrink = _ratio(np.float64(1), problem.scale(H) + ridge)
    R = problem.backward(problem.Y @ H) - problem.curvature(W, H) - ridge * W
    P = shrink * R
    fit = np.einsum(inner, R, P)
    for _ in range(_CG_STEPS):
        image = problem.curvature(P, H) + ridge * P
        step = _ratio(fit, np.einsum(inner, P, image))
        W = W + step * P
        R -= step * image
        scaled = shrink * R
        previous, fit = fit, np.einsum(inner, R, scaled)
        P = scaled + _ratio(fit, previous) * P
    return W


def _ratio(a: Any, b: Any) -> Any:
    """a/b, and 0 where b is not positive: there is nothing left to do in that direction."""
    b = np.asarray(b)
    return np.divide(a, b, out=np.zeros(b.shape), where=b > 0)


def _balanced(W: Floats, H: Floats) -> tuple[Floats, Floats]:
    """The factors of W Hᵀ with the least ‖W‖² + ‖H‖²: Q √S and V √S of its singular value decomposition Q S Vᵀ.

    By the eigenvectors of two m × m matrices: W = Q₀ root Uᵀ, so that W Hᵀ = Q₀ Gᵀ with G = H U root, and GᵀG gives S².
    Directions below the rounding error of WᵀW are 0.
    """
    squares, U = scipy.linalg.eigh(W.T @ W, driver="evd", check_finite=False)
    there = squares > len(U) * np.finfo(np.float64).eps * squares.max(initial=0)
    root = np.sqrt(np.where(there, squares, 0))
    G = H @ (U * root)
    values, right = scipy.linalg.eigh(G.T @ G, driver="evd", check_finite=False)
    S = np.sqrt(np.maximum(values, 0))[::-1]
    right = right[:, ::-1]
    return (W @ (U * _ratio(1.0, root))) @ (right * np.sqrt(S)), (G @ right) * _ratio(1.0, np.sqrt(S))


def _others(observed: Any) -> Any:
    """The cells that are not in a CSR indicator, as one; of its complement a block of rows is dense at a time."""
    n, L = observed.shape
    parts = (observed[rows].toarray() == 0 for rows in blocks(n, max(16, _BLOCK_CELLS // L)))
    return scipy.sparse.vstack([scipy.sparse.csr_array(part, dtype=np.float64) for part in parts], format="csr")


def _at_cells(E: Floats, H: Floats, cells: Any, n_jobs: int | None) -> Any:
    """E Hᵀ at the cells of a CSR indicator, in its shape."""
    data = np.empty(cells.nnz)

    def fill(rows: slice) -> None:
        ends = cells.indptr[rows.start : rows.stop + 1]
        labels = cells.indices[ends[0] : ends[-1]]
        row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        if len(labels) * _BLAS_GAIN > (len(ends) - 1) * len(H):
            data[ends[0] : ends[-1]] = (E[rows] @ H.T)[row, labels]
        else:
            data[ends[0] : ends[-1]] = np.einsum("ij,ij->i", E[rows][row], H[labels])

    map_blocks(fill, blocks(len(E), min(512, max(16, _BLOCK_CELLS // len(H)))), n_jobs)
    return scipy.sparse.csr_array((data, cells.indices, cells.indptr), shape=cells.shape)
