"""LEML: low-rank empirical risk minimisation for multi-label learning (Yu, Jain, Kar and Dhillon, 2014).

    min over W (d, m), H (L, m)    J = ½ Σ_{(i,j) ∈ Ω} (Y_ij − x_iᵀ W h_j)² + ½ ridge (‖W‖² + ‖H‖²)

A linear model of rank m for all labels together, learnt from the known cells Ω of Y: those where the label is known to
be present or known to be absent. The regularisation equals ridge times the trace norm of W Hᵀ. The features get a
column of ones for the intercept, penalised like any other weight. W and H are improved in turns from a random start,
with E = X W (n, m) and P_Ω setting cells outside Ω to 0:

    H given W    (Σ_{i: (i,j) ∈ Ω} e_i e_iᵀ + ridge I) h_j = Eᵀ y_j    exactly; one system for all labels if Ω is all
    W given H    Xᵀ P_Ω(X W Hᵀ) H + ridge W = Xᵀ Y H                   a few steps of conjugate gradients

P_Ω is summed over the cells in Ω or over the cells outside, whichever are fewer, so that nothing of size n × L is made:
either P_Ω(M) itself, or M − P_C(M) with the complement C, where M Hᵀ H needs only HᵀH. Between the two steps, the
factors are replaced by those of least norm with the same product (the singular vectors of W Hᵀ, each scaled by the root
of its singular value). This lowers J at no cost, and as HᵀH is then diagonal, the columns of W are separate systems if
Ω is all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import BLAS_GAIN, gram_of, product, transposed_product
from ripml.baselines.base import Arrays, Baseline, FitAtRidge, at_cells, held_out_rows, with_constant
from ripml.labels.encoding import check_indicator, encode_labels
from ripml.model.multilabel import TrainingData
from ripml.regression import Sums

__all__ = ["LEML"]

Floats = NDArray[np.float64]
Self = TypeVar("Self", bound="LEML")

_CG_STEPS = 5
_GRAM_SIDE = 12_000  # side of the largest XᵀX that is made: 1.2 GB
_BLOCK_CELLS = 1 << 20
_LABELS = 16  # solved in one task


@dataclass(eq=False, repr=False)
class LEML(Baseline):
    """A low-rank linear model of all labels, which can learn from a partly known Y.

    Parameters
    ----------
    n_dims : int
        m, the rank; at most the smaller of L and 1 + d.
    n_iter : int
        How often W and H are improved in turns. The objective never rises, but after 3 iterations the ranking of
        held-out rows of Bibtex and Delicious did not improve.
    ridge : float or "auto"
        The regularisation of both factors, as above.
    normalize, n_jobs, random_state
        As for every `Baseline`.

    Examples
    --------
    >>> LEML(n_dims=1, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["a", "b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    counts: ClassVar[tuple[str, ...]] = ("n_dims", "n_iter")

    n_dims: int = 100
    n_iter: int = 3
    ridge: float | str = "auto"

    def fit(self: Self, X: Any, Y: Any, label_names: Sequence[str] | None = None, observed: Any = None) -> Self:
        """Learn from features X (n, d) and labels Y, of which the cells `observed` are known.

        `observed` is Ω, an indicator (n, L), dense or sparse, and needs Y as an indicator; None means that all cells
        are known. The other cells of Y are ignored, and rows without a label that is known to be present are left out.
        In held-out rows, an unknown label counts as absent.

        >>> X, Y = [[1, 0], [1, 0.1], [0, 1]], np.array([[1, 0], [0, 1], [0, 1]])
        >>> known = np.array([[1, 1], [0, 1], [1, 1]])
        >>> LEML(ridge=0.01, random_state=0).fit(X, Y, observed=known).recommend([[1, 0]], n=1)[0][0][0]
        0
        """
        self.check_settings()
        fitted = self._unfitted()
        fitted._observed = observed
        fitted._fit(fitted._training_data(X, Y, label_names))
        del fitted._observed
        return self._adopt(fitted)

    def _training_data(self, X: Any, Y: Any, label_names: Sequence[str] | None) -> TrainingData:
        mask = getattr(self, "_observed", None)
        if mask is None:
            return super()._training_data(X, Y, label_names)
        if getattr(Y, "ndim", 1) != 2:
            raise DataError("`observed` marks cells of Y; pass Y as an indicator (n, L), not as label names.")
        Y, names = encode_labels(Y)
        observed = _checked_mask(mask, Y.shape)
        Y = (Y * observed).tocsr()
        data = super()._training_data(X, Y, label_names)
        self._observed = observed[np.diff(Y.indptr) > 0]
        return data if label_names is not None else replace(data, names=names)  # the columns of a DataFrame

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        observed = self._observed
        if observed is not None and observed.shape[0] != X.shape[0]:
            observed = observed[held_out_rows(observed.shape[0], seed)[0]]
        problem = Problem.of(with_constant(X), Y, observed, self.n_jobs)
        return lambda ridge: dict(zip("WH", factorise(problem, self.n_dims, ridge, self.n_iter, seed), strict=True))

    def _score(self, arrays: Arrays, X: Any) -> Any:
        return (with_constant(X) @ arrays["W"]) @ arrays["H"].T

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        m = arrays["W"].shape[1]
        return {"W": (1 + d, m), "H": (L, m)}


def _checked_mask(observed: Any, shape: tuple[int, int]) -> Any:
    """Ω as a CSR indicator of float32 ones in the shape of Y."""
    if getattr(observed, "ndim", 0) != 2 or observed.shape != shape:
        got = getattr(observed, "shape", type(observed).__name__)
        raise DataError(f"`observed` must be an indicator in the shape of Y, {shape}; got {got}.")
    return check_indicator(observed, "`observed`")


# -------------------------------------------------------------------------------------------------- alternating steps


@dataclass(frozen=True)
class Problem:
    """Feature rows, their labels, and the known cells of the labels."""

    X: Any  # (n, d), dense or CSR
    XT: Any  # its transpose in CSR; None if X is dense
    gram: Any  # XᵀX; None if making it would cost more than it saves
    Y: Any  # (n, L) CSR, empty outside Ω
    cells: Any  # (n, L) CSR: the cells outside Ω if `mostly_known`, else Ω
    mostly_known: bool
    n_jobs: int | None

    @classmethod
    def of(cls, X: Any, Y: Any, observed: Any, n_jobs: int | None) -> Problem:
        """From rows X, labels Y and Ω as a CSR indicator (n, L); None means all cells."""
        X, Y = X.astype(np.float64), Y.astype(np.float64)
        cells, mostly_known = scipy.sparse.csr_array(Y.shape), True
        if observed is not None:
            mostly_known = 2 * observed.nnz >= Y.shape[0] * Y.shape[1]
            cells = _complement(observed) if mostly_known else observed.astype(np.float64)
            Y = (Y * observed).tocsr()
        XT = X.T.tocsr() if scipy.sparse.issparse(X) else None
        work = X.size * (1 if XT is None else BLAS_GAIN)
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
            known += self._sign * product(_products_at(E, H, self.cells, self.n_jobs), H, self.n_jobs)
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
                rows = E[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]]
                sums = Sums(gram + self._sign * (rows.T @ rows), moment[label, :, None], len(E))
                H[label] = sums.solve(ridge)[:, 0]

        # Labels with cells to add or subtract have a separate system.
        separate = np.flatnonzero(np.diff(columns.indptr))
        map_blocks(solve, [separate[block] for block in blocks(len(separate), _LABELS)], self.n_jobs)
        return H

    @property
    def _sign(self) -> int:
        return -1 if self.mostly_known else 1


def factorise(problem: Problem, n_dims: int, ridge: float, n_iter: int, seed: int) -> tuple[Floats, Floats]:
    """W (d, m) and H (L, m) after `n_iter` iterations from a random start; m is at most the possible rank of W Hᵀ."""
    d, L = problem.X.shape[1], problem.Y.shape[1]
    m = min(n_dims, d, L)
    W, H = np.zeros((d, m)), np.linalg.qr(np.random.default_rng([seed, 1]).standard_normal((L, m)))[0]
    for _ in range(n_iter):
        W = _descend(problem, W, H, ridge)
        W, H = _balanced(W, problem.best_labels(W, ridge))
    return W, H


def _descend(problem: Problem, W: Floats, H: Floats, ridge: float) -> Floats:
    """A few steps of conjugate gradients on W, preconditioned by the diagonal."""
    # Columns that are separate systems take separate step lengths.
    inner = "ij,ij->" if problem.cells.nnz else "ij,ij->j"
    inverse = _ratio(np.float64(1), problem.scale(H) + ridge)
    R = problem.backward(problem.Y @ H) - problem.curvature(W, H) - ridge * W
    P = inverse * R
    decrease = np.einsum(inner, R, P)
    for _ in range(_CG_STEPS):
        image = problem.curvature(P, H) + ridge * P
        step = _ratio(decrease, np.einsum(inner, P, image))
        W = W + step * P
        R -= step * image
        scaled = inverse * R
        previous, decrease = decrease, np.einsum(inner, R, scaled)
        P = scaled + _ratio(decrease, previous) * P
    return W


def _ratio(a: Any, b: Any) -> Any:
    """a/b, and 0 where b is not positive: nothing is left to do in that direction."""
    b = np.asarray(b)
    return np.divide(a, b, out=np.zeros(b.shape), where=b > 0)


def _balanced(W: Floats, H: Floats) -> tuple[Floats, Floats]:
    """The factors of W Hᵀ with the least ‖W‖² + ‖H‖²: Q √S and V √S of its singular value decomposition Q S Vᵀ.

    By the eigenvectors of two m × m matrices: W = Q₀ root Uᵀ, so that W Hᵀ = Q₀ Gᵀ with G = H U root, and GᵀG gives S².
    Directions below the rounding error of WᵀW are 0.
    """
    squares, U = scipy.linalg.eigh(W.T @ W, driver="evd", check_finite=False)
    significant = squares > len(U) * np.finfo(np.float64).eps * squares.max(initial=0)
    root = np.sqrt(np.where(significant, squares, 0))
    G = H @ (U * root)
    values, right = scipy.linalg.eigh(G.T @ G, driver="evd", check_finite=False)
    S = np.sqrt(np.maximum(values, 0))[::-1]
    right = right[:, ::-1]
    return (W @ (U * _ratio(1.0, root))) @ (right * np.sqrt(S)), (G @ right) * _ratio(1.0, np.sqrt(S))


def _complement(observed: Any) -> Any:
    """The indicator of all cells that are not in a CSR indicator; only a block of rows is dense at a time."""
    n, L = observed.shape
    parts = (observed[rows].toarray() == 0 for rows in blocks(n, max(16, _BLOCK_CELLS // L)))
    return scipy.sparse.vstack([scipy.sparse.csr_array(part, dtype=np.float64) for part in parts], format="csr")


def _products_at(E: Floats, H: Floats, cells: Any, n_jobs: int | None) -> Any:
    """E Hᵀ at the cells of a CSR indicator, in its shape."""

    def products(rows: slice, row: NDArray[Any], labels: NDArray[Any]) -> Floats:
        if len(labels) * BLAS_GAIN > len(E[rows]) * len(H):
            return np.asarray((E[rows] @ H.T)[row, labels])
        return np.asarray(np.einsum("ij,ij->i", E[rows][row], H[labels]))

    return at_cells(cells, products, min(512, max(16, _BLOCK_CELLS // len(H))), n_jobs)
