"""The numerics of SLEEC: which rows are neighbours, embeddings that keep their inner products, and sparse regression.

Singular value projection (Jain, Meka and Dhillon, 2010) for  min over M ⪰ 0 of rank m  ½‖P_Ω(G) − P_Ω(M)‖²,  G = UUᵀ:

    M ← the projection onto rank m of  M + η P_Ω(G − M),        M = ZZᵀ, kept as Z (n, m)

The gradient is Lipschitz with constant 1, so a step of η = 1 cannot raise the objective, even if the projection is only
the best within some subspace, as long as that holds the range of Z. Here it is span[Z, AZ], A = M + η P_Ω(G − M): two
products with a sparse matrix a step, and no array of side n. Longer steps are taken while they pay.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import dense, gram_of, product
from ripml.neighbors import Exact
from ripml.regression import Solution, resolve_solver

__all__ = ["label_graph", "project_singular_values", "ridge_regression", "sparse_regression", "unseen_neighbors"]

Doubles = NDArray[np.float64]

_CELLS = 1 << 22  # of a dense block of inner products: 32 MB a thread
_JITTER = 1e-7  # below any difference between the inner products of two label sets that matters
_GROWTH = 1.5  # of η after a step that paid
_RELAXED = 1.6  # of ADMM: between 1.5 and 1.8 is known to be faster than 1
_ADMM_STEPS = 2000
_TINY = np.finfo(np.float64).tiny


def label_graph(U: Any, n_neighbors: int, seed: int, n_jobs: int | None = None) -> Any:
    """P_Ω(UUᵀ), CSR (n, n): each row of U (n, L) with its `n_neighbors` rows of largest inner product, both ways.

    Many rows tie, those with the same labels and those with none in common, and zeros are kept as entries, too: that
    two rows are unlike is worth knowing. Ties are broken at random, so that no row becomes the neighbour of all.

    >>> U = scipy.sparse.csr_array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    >>> label_graph(U, 2, seed=0).toarray().tolist()
    [[1.0, 0.6, 0.0], [0.6, 1.0, 0.8], [0.0, 0.8, 1.0]]
    """
    n = U.shape[0]
    k = min(n_neighbors, n)
    transposed = U.T.tocsr()

    def nearest(rows: slice) -> NDArray[np.int64]:
        inner = dense(U[rows] @ transposed)
        inner += _JITTER * np.random.default_rng([seed, rows.start]).random(inner.shape)
        return np.argpartition(inner, n - k, axis=1)[:, n - k :]

    size = max(1, _CELLS // n)
    columns = np.concatenate(map_blocks(nearest, blocks(n, size), n_jobs)).ravel()
    chosen = scipy.sparse.csr_array((np.ones(len(columns), np.int8), columns, np.arange(n + 1) * k), shape=(n, n))
    omega = (chosen + chosen.T).tocsr()
    omega.sort_indices()

    def values(rows: slice) -> Doubles:
        return _entries(omega, rows, dense(U[rows] @ transposed))

    data = np.concatenate(map_blocks(values, blocks(n, size), n_jobs))
    return scipy.sparse.csr_array((data, omega.indices, omega.indptr), shape=(n, n))


def _entries(omega: Any, rows: slice, block: NDArray[Any]) -> Doubles:
    """Of a dense block of rows (b, n), the entries that Ω has there, in its order."""
    ends = omega.indptr[rows.start : rows.stop + 1]
    line = np.repeat(np.arange(len(block)), np.diff(ends))
    return np.asarray(block[line, omega.indices[ends[0] : ends[-1]]])


def project_singular_values(
    graph: Any, n_dims: int, seed: int, max_steps: int = 10, tol: float = 1e-3, n_jobs: int | None = None
) -> tuple[Doubles, list[float]]:
    """Z (n, m) with P_Ω(ZZᵀ) ≈ `graph`, m = min(`n_dims`, n), and ‖P_Ω(G) − P_Ω(ZZᵀ)‖² before each step and at the end.

    It stops when a step takes off less than `tol` of what is left, or less than that of ‖P_Ω(G)‖² is left.

    >>> graph = scipy.sparse.csr_array([[1.0, 0.6], [0.6, 1.0]])
    >>> Z, objective = project_singular_values(graph, n_dims=2, seed=0)
    >>> (Z @ Z.T).round(6).tolist(), len(objective)
    ([[1.0, 0.6], [0.6, 1.0]], 2)
    """
    n = graph.shape[0]
    m = min(n_dims, n)
    Z, basis = np.zeros((n, m)), np.random.default_rng(seed).standard_normal((n, m))
    residual, eta = graph, 1.0
    objective = [float(graph.data @ graph.data)]
    for _ in range(max_steps):
        moved, turned = _projected_step(Z, basis, residual, eta, n_jobs)
        left = _residual(graph, moved, n_jobs)
        value = float(left.data @ left.data)
        if value > objective[-1] and eta > 1:
            eta = max(1.0, eta / (2 * _GROWTH))
            continue
        Z, basis, residual, eta = moved, turned, left, _GROWTH * eta
        objective.append(value)
        if objective[-2] - value <= tol * objective[-2] or value <= tol**2 * objective[0]:
            break
    return Z, objective


def _projected_step(
    Z: Doubles, basis: Doubles, residual: Any, eta: float, n_jobs: int | None
) -> tuple[Doubles, Doubles]:
    """The best rank m within span[basis, A basis] for A = ZZᵀ + η·residual, as its factor and its Ritz vectors."""

    def times(V: Doubles) -> Doubles:
        return np.asarray(Z @ (Z.T @ V) + eta * product(residual, V, n_jobs))

    Q = scipy.linalg.qr(np.hstack([basis, times(basis)]), mode="economic", check_finite=False)[0]
    small = Q.T @ times(Q)
    values, vectors = scipy.linalg.eigh((small + small.T) / 2, check_finite=False)
    m = basis.shape[1]
    ritz = Q @ vectors[:, ::-1][:, :m]
    return ritz * np.sqrt(np.maximum(values[::-1][:m], 0)), ritz


def _residual(graph: Any, Z: Doubles, n_jobs: int | None) -> Any:
    """P_Ω(G − ZZᵀ), CSR."""

    def entries(rows: slice) -> Doubles:
        return _entries(graph, rows, Z[rows] @ Z.T)

    n = graph.shape[0]
    data = graph.data - np.concatenate(map_blocks(entries, blocks(n, max(1, _CELLS // n)), n_jobs))
    return scipy.sparse.csr_array((data, graph.indices, graph.indptr), shape=graph.shape)


def sparse_regression(
    X: Any, Z: Doubles, ridge: float, l1: float, n_jobs: int | None = None, tol: float = 1e-5
) -> Doubles:
    """Psi (d, m) = argmin ½‖Z − X Psi‖² + ½ ridge ‖Psi‖² + l1 ‖X Psi‖₁, by ADMM on the split A = X Psi.

    With the multiplier B and its weight 1, Psi is the ridge regression of (Z + A − B)/2 at ridge/2, whose system is
    factorised once, XᵀX or XXᵀ, whichever is smaller; A is X Psi + B shrunk by l1, over-relaxed. It stops when A and
    X Psi agree and stand still to `tol` of the length of Z.

    >>> sparse_regression(np.eye(2), np.array([[3.0], [0.5]]), ridge=0.0, l1=1.0).round(3).tolist()
    [[2.0], [0.0]]
    """
    transposed = X.T.tocsr() if scipy.sparse.issparse(X) else X.T
    primal = X.shape[1] <= X.shape[0]
    gram = gram_of(X if primal else transposed, n_jobs)
    gram.flat[:: len(gram) + 1] += max(ridge / 2, np.finfo(np.float64).eps * np.trace(gram), _TINY)
    factor = scipy.linalg.cho_factor(gram, overwrite_a=True, check_finite=False)
    A, B = np.zeros_like(Z), np.zeros_like(Z)
    for _ in range(_ADMM_STEPS):
        target = (Z + A - B) / 2
        if primal:
            Psi = scipy.linalg.cho_solve(factor, transposed @ target, check_finite=False)
        else:
            Psi = transposed @ scipy.linalg.cho_solve(factor, target, check_finite=False)
        fitted = X @ Psi
        ahead = _RELAXED * fitted + (1 - _RELAXED) * A + B
        before, A = A, np.sign(ahead) * np.maximum(np.abs(ahead) - l1, 0)
        B = ahead - A
        moved = max(np.linalg.norm(A - before), np.linalg.norm(A - fitted))
        if moved <= tol * max(np.linalg.norm(Z), _TINY):
            return np.asarray(Psi)
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"ADMM stopped after {_ADMM_STEPS} steps at {moved / np.linalg.norm(Z):.1e} (wanted {tol:.0e}); raise "
        "`ridge` or lower `l1`.",
        ConvergenceWarning,
        stacklevel=2,
    )
    return np.asarray(Psi)


def ridge_regression(X: Any, Z: Doubles, ridge: float, n_jobs: int | None = None) -> Solution:
    """The same without l1. Gram matrices are made anew for each ridge: one for every cluster would be too much to keep.

    >>> ridge_regression(np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]]), ridge=5.0).Psi
    array([[1.]])
    """
    return resolve_solver("auto", *X.shape)[0].prepare(X, Z, n_jobs, once=True)(ridge)


def unseen_neighbors(
    X: Any, Z: Doubles, ridge: float, asked: NDArray[np.int64], k: int, n_jobs: int | None = None
) -> NDArray[np.int64]:
    """The k rows whose X Psi is nearest to what ridge regression would say of rows `asked` had it not seen them.

    That is known in closed form. A row is not its own neighbour; −1 where there are fewer than k others.

    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> unseen_neighbors(X, X, 0.1, np.array([0]), k=3).tolist()
    [[1, 2, -1]]
    """
    ids = np.full((len(asked), k), -1)
    if not len(asked):
        return ids
    solution = ridge_regression(X, Z, ridge, n_jobs)
    searcher = Exact().build(product(X, solution.Psi, n_jobs).astype(np.float32))
    most = min(k + 1, X.shape[0])
    found = searcher.query(solution.left_out(asked).astype(np.float32), most, n_jobs)[0]
    dropped = found == asked[:, None]
    dropped[:, -1] |= ~dropped.any(axis=1)  # one too many was asked for
    ids[:, : most - 1] = found[~dropped].reshape(len(asked), most - 1)
    return ids
