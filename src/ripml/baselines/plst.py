"""PLST: principal label space transformation (Tai and Lin, 2012).

    min over V (L, m) with VᵀV = I    ‖Y_c − Y_c V Vᵀ‖²,        Y_c = Y − 1ȳᵀ, ȳ the mean of the rows of Y

V is the m leading right singular vectors of Y_c. Then ridge regression from features to Z = Y_c V, and labels are read
off by ŷ = ȳ + V ẑ. It keeps what a linear embedding of labels can keep, whatever the features can say about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray

from ripml.base.errors import check_count
from ripml.baselines.base import Baseline, Learner, Learnt, require_dense, with_constant
from ripml.regression import resolve_solver

__all__ = ["PLST", "leading", "principal_labels", "solve_ridge"]

_DENSE_SIDE = 4096  # up to here all eigenvectors at once, past it those that are wanted


class PLST(Baseline):
    """Principal components of the labels, predicted by ridge regression.

    Parameters
    ----------
    n_dims : int
        m, the number of components; L at most are there.
    ridge : float or "auto"
        The regularisation, scikit-learn's `alpha`.
    normalize : bool
        Scale feature rows to length 1 first; the authors do not.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the rows held out.

    Examples
    --------
    >>> PLST(n_dims=1, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def __init__(
        self,
        n_dims: int = 100,
        ridge: float | str = "auto",
        normalize: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_dims = n_dims
        self.ridge = ridge
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        check_count("n_dims", self.n_dims)
        super().check_settings()

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        mean = np.bincount(Y.indices, Y.data, minlength=Y.shape[1]) / Y.shape[0]
        V = principal_labels(Y, mean, self.n_dims)
        Z = Y @ V - mean @ V
        solve = solve_ridge(X, Z, self.n_jobs)
        return lambda ridge: {"Psi": solve(ridge), "V": V, "mean": mean}

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        return with_constant(X) @ learnt["Psi"] @ learnt["V"].T + learnt["mean"]

    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        m = learnt["V"].shape[1]
        return bool(learnt["V"].shape == (L, m) and learnt["Psi"].shape == (1 + d, m) and learnt["mean"].shape == (L,))


def principal_labels(Y: Any, mean: NDArray[np.float64], n_dims: int) -> NDArray[np.float64]:
    """V (L, m), the leading right singular vectors of Y_c = Y − 1ȳᵀ."""
    return leading(lambda: _covariance(Y, mean), lambda v: _covariance_times(Y, mean, v), Y.shape[1], n_dims)


def _covariance(Y: Any, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Y_cᵀY_c = YᵀY − n ȳȳᵀ, (L, L): dense, though Y_c never is."""
    n, L = Y.shape
    require_dense((L, L), "the covariance of the labels", f"set n_dims to at most {L // 4:,}")
    Y = Y.astype(np.float64)
    covariance: NDArray[np.float64] = (Y.T @ Y).toarray()
    covariance -= n * np.outer(mean, mean)
    return covariance


def _covariance_times(Y: Any, mean: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    product: NDArray[np.float64] = Y.T @ (Y @ v) - Y.shape[0] * mean * (mean @ v)
    return product


def leading(
    dense: Callable[[], NDArray[np.float64]],
    multiply: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    n: int,
    n_dims: int,
) -> NDArray[np.float64]:
    """The eigenvectors of the largest eigenvalues of a symmetric A ≥ 0 of side n, in descending order, (n, m).

    A is given as an array to be made, and as v ↦ Av; the latter is enough where few vectors of a large A are wanted.
    """
    m = min(n_dims, n)
    if n <= _DENSE_SIDE or 4 * m > n:
        vectors = scipy.linalg.eigh(dense(), subset_by_index=(n - m, n - 1), check_finite=False)[1]
    else:
        A = scipy.sparse.linalg.LinearOperator((n, n), matvec=multiply, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(n)
        vectors = scipy.sparse.linalg.eigsh(A, k=m, v0=start)[1]
    return np.ascontiguousarray(vectors[:, ::-1])


def solve_ridge(X: Any, Z: NDArray[np.float64], n_jobs: int | None) -> Any:
    """alpha ↦ Psi (1 + d, m) of ridge regression with an intercept, by whichever solver suits the size."""
    features = with_constant(X)
    solver, _ = resolve_solver("auto", *features.shape)
    solve = solver.prepare(features, Z, n_jobs)
    return lambda alpha: solve(alpha).Psi
