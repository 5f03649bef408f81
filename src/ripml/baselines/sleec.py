"""SLEEC: sparse local embeddings for extreme classification (Bhatia, Jain, Kar, Varma and Jain, 2015), first named X1.

Rows are split into C clusters by k-means on the features. In each, with u = y/‖y‖ and Ω each row's nearest rows by uᵀu,

    min over Z (n, m)      ‖P_Ω(UUᵀ) − P_Ω(ZZᵀ)‖²                               by singular value projection
    min over Psi (d, m)    ½‖Z − X Psi‖² + ½ ridge ‖Psi‖² + l1 ‖X Psi‖₁         by ridge regression; by ADMM if l1 > 0

Only inner products between neighbours have to be kept, so Z need not be a linear map of y. A new row goes to the
nearest centre; its scores are the mean y of the k rows whose X Psi is nearest to its own, averaged over learners with
different clusters. As in the authors' algorithm, neighbours are searched among the training rows' X Psi and not among
Z, so that predictions are compared with predictions.

Singular value projection (Jain, Meka and Dhillon, 2010) for  min over M ⪰ 0 of rank m  ½‖P_Ω(G) − P_Ω(M)‖²,  G = UUᵀ:

    M ← the projection onto rank m of  M + η P_Ω(G − M),        M = ZZᵀ, kept as Z (n, m)

The gradient is Lipschitz with constant 1, so a step of η = 1 cannot raise the objective, even if the projection is only
the best within a subspace, as long as this contains the range of Z. Here it is span[Z, AZ], A = M + η P_Ω(G − M): two
products with a sparse matrix per step, and no array of side n. Longer steps are taken as long as they lower it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripml.base.errors import ParameterError, is_number
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import dense, gram_of, product
from ripml.baselines.base import Arrays, Baseline, FitAtRidge, at_cells, with_constant
from ripml.decoding.calibration import mean_precision
from ripml.decoding.votes import tally, vote_weights
from ripml.model.clustering import assign, partition
from ripml.model.features import unit_rows
from ripml.neighbors import Exact
from ripml.regression import Solution, resolve_solver

__all__ = ["SLEEC"]

Floats = NDArray[np.float64]

_CLUSTER_ROWS = 6000  # rows per cluster for n_clusters="auto", as the authors advise
_K_GRID = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # tried by n_neighbors="auto"
_K_ROWS = 1000  # training rows on which it is chosen
_ARRAYS = ("centres", "ends", "rows", "Psi", "Z")  # of each learner
_BLOCK_CELLS = 1 << 22  # of a dense block of inner products: 32 MB per thread
_JITTER = 1e-7  # smaller than any relevant difference between inner products of label sets
_GROWTH = 1.5  # of η after a step that lowered the objective
_RELAXATION = 1.6  # of ADMM: 1.5 to 1.8 is known to be faster than 1
_ADMM_STEPS = 2000
_TINY = np.finfo(np.float64).tiny


@dataclass(eq=False, repr=False)
class SLEEC(Baseline):
    """Embeddings that keep the inner products of neighbouring label sets, regression to them, nearest neighbours.

    Parameters
    ----------
    n_dims : int
        m, the length of an embedding; at most the number of rows.
    n_neighbors : int or "auto"
        k, the number of training rows that vote in each learner; at most the rows of the cluster. "auto" takes the best
        of 4 … 128 on training rows, predicted by leave-one-out (the authors set 8 to 70 by hand for each data set).
    n_graph_neighbors : int
        The number of rows of the cluster whose inner product with a row is kept; at most the rows of the cluster.
    n_clusters : int or "auto"
        C; "auto" makes one cluster for every 6,000 rows.
    n_learners : int
        The number of clusterings that are averaged.
    ridge : float or "auto"
        The regularisation, scikit-learn's `alpha`; the paper's λ is half of it.
    l1 : float
        The paper's μ, which makes predicted embeddings sparse; default 0.
    normalize, n_jobs, random_state
        As for every `Baseline`; the authors normalise.

    Examples
    --------
    >>> X, Y = [[1, 0], [0.9, 0.1], [0, 1]], [["tea"], ["tea"], ["ice"]]
    >>> model = SLEEC(n_neighbors=1, random_state=0).fit(X, Y)
    >>> model.recommend([[1, 0.2]], n=1)
    [[('tea', 1.0)]]
    """

    counts: ClassVar[tuple[str, ...]] = ("n_dims", "n_neighbors", "n_graph_neighbors", "n_clusters", "n_learners")

    n_dims: int = 100
    n_neighbors: int | str = "auto"
    n_graph_neighbors: int = 250
    n_clusters: int | str = "auto"
    n_learners: int = 1
    ridge: float | str = "auto"
    l1: float = 0.0
    normalize: bool = True

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first parameter that is out of range."""
        if not (is_number(self.l1) and 0 <= float(self.l1) < np.inf):
            raise ParameterError(f"`l1` must be a finite number ≥ 0; got {self.l1!r}.")
        super().check_settings()

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        learners = [self._embed(X, Y, [seed, learner]) for learner in range(self.n_learners)]
        k = self._choose_k(learners, X, Y, seed) if self.n_neighbors == "auto" else self.n_neighbors

        def fit_at(ridge: float) -> Arrays:
            arrays = {"Y": Y, "k": np.array(k)}
            for number, learner in enumerate(learners):
                Psi = np.empty((len(learner.centres), 1 + X.shape[1], learner.Z.shape[1]), np.float32)
                Z = np.empty(learner.Z.shape, np.float32)
                for cluster, members in enumerate(learner.clusters()):
                    features = with_constant(X[learner.rows[members]])
                    targets = learner.Z[members]
                    if self.l1 > 0:
                        Psi[cluster] = sparse_regression(features, targets, ridge, float(self.l1), self.n_jobs)
                    else:
                        Psi[cluster] = _ridge_regression(features, targets, ridge, self.n_jobs).Psi
                    Z[members] = product(features, Psi[cluster], self.n_jobs)
                values = (learner.centres, learner.ends, learner.rows, Psi, Z)
                arrays |= {f"{name}_{number}": value for name, value in zip(_ARRAYS, values, strict=True)}
            return arrays

        return fit_at

    def _embed(self, X: Any, Y: Any, seed: list[int]) -> _Embedding:
        """The clusters of one learner and the embeddings of their rows."""
        n = X.shape[0]
        n_clusters = round(n / _CLUSTER_ROWS) if self.n_clusters == "auto" else int(self.n_clusters)
        random = np.random.default_rng(seed)
        centres, cluster = partition(X, min(max(n_clusters, 1), n), int(random.integers(2**31)), self.n_jobs)
        rows = np.argsort(cluster, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(cluster))])
        embedding = _Embedding(centres, ends, rows, np.zeros((n, min(self.n_dims, n))))
        U = unit_rows(Y.astype(np.float64))
        for members in embedding.clusters():
            graph = label_graph(U[rows[members]], self.n_graph_neighbors, int(random.integers(2**31)), self.n_jobs)
            Z, _ = project_singular_values(graph, self.n_dims, int(random.integers(2**31)), n_jobs=self.n_jobs)
            embedding.Z[members, : Z.shape[1]] = Z  # a small cluster has fewer dimensions: the others stay 0
        return embedding

    def _choose_k(self, learners: list[_Embedding], X: Any, Y: Any, seed: int) -> int:
        """The number of neighbours with the best mean of P@1, P@3 and P@5 on training rows, by leave-one-out."""
        n = X.shape[0]
        ridge = 1.0 if self.ridge == "auto" else float(self.ridge)  # the best k hardly depends on it
        queries = np.sort(np.random.default_rng([seed, self.n_learners]).permutation(n)[:_K_ROWS])
        place = np.full(n, -1)
        place[queries] = np.arange(len(queries))
        ids = np.full((len(queries), self.n_learners, _K_GRID[-1]), -1)
        for number, learner in enumerate(learners):
            for members in learner.clusters():
                rows = learner.rows[members]
                local = np.flatnonzero(place[rows] >= 0)
                nearest = left_out_neighbors(
                    with_constant(X[rows]), learner.Z[members], ridge, local, _K_GRID[-1], self.n_jobs
                )
                ids[place[rows[local]], number] = np.where(nearest < 0, -1, rows[nearest])
        return max(_K_GRID, key=lambda k: mean_precision(Y[queries], _votes(ids[..., :k], Y)))

    def _score(self, arrays: Arrays, X: Any) -> Any:
        features, k = with_constant(X), int(arrays["k"])
        ids = np.full((X.shape[0], self.n_learners, k), -1)
        for number in range(self.n_learners):
            centres, ends, rows, Psi, Z = (arrays[f"{name}_{number}"] for name in _ARRAYS)
            cluster = assign(X, centres, self.n_jobs)
            for c in np.unique(cluster):
                queries, members = np.flatnonzero(cluster == c), slice(ends[c], ends[c + 1])
                width = min(k, len(Z[members]))
                embedded = product(features[queries], Psi[c], self.n_jobs).astype(np.float32, copy=False)
                nearest = Exact().build(Z[members]).query(embedded, width, self.n_jobs)[0]
                ids[queries, number, :width] = rows[members][nearest]
        return _votes(ids, arrays["Y"])

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        n = arrays["Y"].shape[0]
        if not 1 <= arrays["k"] <= max(n, _K_GRID[-1]):
            raise ValueError("k is out of range")
        shapes: dict[str, tuple[int, ...]] = {"Y": (n, L), "k": ()}
        for number in range(self.n_learners):
            centres, ends, rows, _, Z = (arrays[f"{name}_{number}"] for name in _ARRAYS)
            C, m = len(centres), Z.shape[1]
            valid = (
                ends.dtype.kind == rows.dtype.kind == "i"
                and (ends[0], ends[-1]) == (0, n)
                and (np.diff(ends) >= 1).all()
                and np.array_equal(np.sort(rows), np.arange(n))
            )
            if not valid:
                raise ValueError(f"the clusters of learner {number} do not partition the rows")
            expected = ((C, d), (C + 1,), (n,), (C, 1 + d, m), (n, m))
            shapes |= {f"{name}_{number}": shape for name, shape in zip(_ARRAYS, expected, strict=True)}
        return shapes

    @property
    def chosen_(self) -> dict[str, Any]:
        """The ridge, the number of neighbours, and the number of clusters of the first learner."""
        return {
            **super().chosen_,
            "n_neighbors": int(self.learnt_["k"]),
            "n_clusters": len(self.learnt_["centres_0"]),
        }


def _votes(ids: NDArray[np.int64], Y: Any) -> Any:
    """The mean labels of the rows `ids` (n, learners, k), −1 for none, over k and then over learners, CSR (n, L)."""
    n, n_learners, k = ids.shape
    counts = np.append(np.ones(Y.shape[0], np.int64), 0)  # the last is the count of −1
    weights = vote_weights(ids.reshape(-1, k), counts, k, n_learners)
    return tally(np.maximum(ids, 0).reshape(n, -1), weights.reshape(n, -1) / n_learners, Y)


@dataclass(frozen=True)
class _Embedding:
    """One learner: centres (C, d), and rows and their Z (n, m) in the order of their clusters, which end at `ends`."""

    centres: NDArray[Any]
    ends: NDArray[np.int64]
    rows: NDArray[np.int64]
    Z: Floats

    def clusters(self) -> list[slice]:
        return [slice(start, end) for start, end in zip(self.ends[:-1], self.ends[1:], strict=True)]


# ---------------------------------------------------------------------------------------- graph and embedding


def label_graph(U: Any, n_neighbors: int, seed: int, n_jobs: int | None = None) -> Any:
    """P_Ω(UUᵀ), CSR (n, n): each row of U (n, L) with its `n_neighbors` rows of largest inner product, both ways.

    Zeros are stored too: that two rows have nothing in common is information. Many rows tie, those with the same labels
    and those with none in common; ties are broken at random, so that no row becomes the neighbour of all.

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

    columns = np.concatenate(map_blocks(nearest, blocks(n, max(1, _BLOCK_CELLS // n)), n_jobs)).ravel()
    chosen = scipy.sparse.csr_array((np.ones(len(columns), np.int8), columns, np.arange(n + 1) * k), shape=(n, n))
    omega = (chosen + chosen.T).tocsr()
    omega.sort_indices()
    return _products_at(omega, U, transposed, n_jobs)


def _products_at(omega: Any, A: Any, B: Any, n_jobs: int | None) -> Any:
    """A B at the cells of Ω, a CSR matrix (n, n); only a block of rows of the product is dense."""
    height = max(1, _BLOCK_CELLS // omega.shape[0])
    return at_cells(omega, lambda rows, row, columns: dense(A[rows] @ B)[row, columns], height, n_jobs)


def project_singular_values(
    graph: Any, n_dims: int, seed: int, max_steps: int = 10, tol: float = 1e-3, n_jobs: int | None = None
) -> tuple[Floats, list[float]]:
    """Z (n, m) with P_Ω(ZZᵀ) ≈ `graph`, m = min(`n_dims`, n), and ‖P_Ω(G) − P_Ω(ZZᵀ)‖² before each step and at the end.

    Stops when a step lowers the objective by less than `tol` of it, or when less than `tol`² of ‖P_Ω(G)‖² is left.

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
        moved, new_basis = _projected_step(Z, basis, residual, eta, n_jobs)
        rest = _products_at(graph, moved, moved.T, n_jobs)
        rest.data = graph.data - rest.data  # P_Ω(G − ZZᵀ)
        value = float(rest.data @ rest.data)
        if value > objective[-1] and eta > 1:  # the longer step was too long
            eta = max(1.0, eta / (2 * _GROWTH))
            continue
        Z, basis, residual, eta = moved, new_basis, rest, _GROWTH * eta
        objective.append(value)
        if objective[-2] - value <= tol * objective[-2] or value <= tol**2 * objective[0]:
            break
    return Z, objective


def _projected_step(Z: Floats, basis: Floats, residual: Any, eta: float, n_jobs: int | None) -> tuple[Floats, Floats]:
    """The best rank m within span[basis, A basis] for A = ZZᵀ + η·residual, as its factor and its Ritz vectors."""

    def times(V: Floats) -> Floats:
        return np.asarray(Z @ (Z.T @ V) + eta * product(residual, V, n_jobs))

    Q = scipy.linalg.qr(np.hstack([basis, times(basis)]), mode="economic", check_finite=False)[0]
    small = Q.T @ times(Q)
    values, vectors = scipy.linalg.eigh((small + small.T) / 2, check_finite=False)
    m = basis.shape[1]
    ritz = Q @ vectors[:, ::-1][:, :m]
    return ritz * np.sqrt(np.maximum(values[::-1][:m], 0)), ritz


# -------------------------------------------------------------------------------------------------- regression


def sparse_regression(
    X: Any, Z: Floats, ridge: float, l1: float, n_jobs: int | None = None, tol: float = 1e-5
) -> Floats:
    """Psi (d, m) = argmin ½‖Z − X Psi‖² + ½ ridge ‖Psi‖² + l1 ‖X Psi‖₁, by ADMM on the split A = X Psi.

    With the multiplier B of weight 1, Psi is the ridge regression of (Z + A − B)/2 at ridge/2, whose system is
    factorised once, XᵀX or XXᵀ, whichever is smaller; A is X Psi + B shrunk by l1, over-relaxed. Stops when A and X Psi
    agree and stand still to `tol` of the length of Z.

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
        ahead = _RELAXATION * fitted + (1 - _RELAXATION) * A + B
        before, A = A, np.sign(ahead) * np.maximum(np.abs(ahead) - l1, 0)
        B = ahead - A
        moved = max(np.linalg.norm(A - before), np.linalg.norm(A - fitted))
        if moved <= tol * max(np.linalg.norm(Z), _TINY):
            return np.asarray(Psi)
    warnings.warn(
        f"ADMM stopped after {_ADMM_STEPS} steps at {moved / np.linalg.norm(Z):.1e}, above the tolerance {tol:.0e}; "
        "raise `ridge` or lower `l1`.",
        ConvergenceWarning,
        stacklevel=2,
    )
    return np.asarray(Psi)


def _ridge_regression(X: Any, Z: Floats, ridge: float, n_jobs: int | None) -> Solution:
    """The same without l1. The Gram matrix is computed for each ridge again: keeping one per cluster would take too
    much memory."""
    return resolve_solver("auto", *X.shape)[0].prepare(X, Z, n_jobs, once=True)(ridge)


def left_out_neighbors(
    X: Any, Z: Floats, ridge: float, queries: NDArray[np.int64], k: int, n_jobs: int | None = None
) -> NDArray[np.int64]:
    """The k rows whose X Psi is nearest to the leave-one-out prediction of each of the rows `queries`.

    A row is not its own neighbour; −1 where there are fewer than k others.

    >>> X = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> left_out_neighbors(X, X, 0.1, np.array([0]), k=3).tolist()
    [[1, 2, -1]]
    """
    ids = np.full((len(queries), k), -1)
    if not len(queries):
        return ids
    solution = _ridge_regression(X, Z, ridge, n_jobs)
    searcher = Exact().build(product(X, solution.Psi, n_jobs).astype(np.float32))
    # Search for one neighbour more, and drop the row itself, or the last where it is not among them.
    width = min(k + 1, X.shape[0])
    nearest = searcher.query(solution.left_out(queries).astype(np.float32), width, n_jobs)[0]
    dropped = nearest == queries[:, None]
    dropped[:, -1] |= ~dropped.any(axis=1)
    ids[:, : width - 1] = nearest[~dropped].reshape(len(queries), width - 1)
    return ids
