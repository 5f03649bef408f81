"""Compressed sensing of labels (Hsu, Kakade, Langford and Zhang, 2009).

    z = Phi y,    Psi = argmin ‖Z − X Psi‖² + ridge ‖Psi‖²,    ŷ = the sparse y that Phi y ≈ ẑ = x Psi speaks for

Phi (m, L) is Gaussian, the labels are not scaled. y is recovered by one of `ripml.baselines.recovery`, and labels are
ranked by their coefficient; what is not recovered has no score. Training costs m regressions in place of L, prediction
a small inverse problem a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml import metrics
from ripml.base.errors import ParameterError, check_count
from ripml.baselines.base import Baseline, Learner, Learnt, with_constant
from ripml.baselines.recovery import cosamp, lasso, omp, sparsity_penalty
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import Projection
from ripml.regression import resolve_solver

__all__ = ["CompressedSensing", "gaussian_columns"]

_RECOVERIES = ("omp", "cosamp", "lasso")
_FEWEST = 5  # labels that P@5 needs
_ROWS = 300  # training rows on which k is chosen


class CompressedSensing(Baseline):
    """Random projections of the labels, predicted by ridge regression and undone by sparse recovery.

    Parameters
    ----------
    n_dims : int
        m, the number of projections; it may be above L, where nothing is compressed.
    recovery : "omp", "cosamp" or "lasso"
        How labels are recovered.
    n_nonzeros : int or "auto"
        k, how many labels a row is taken to have: exactly so many are recovered by omp (at most m) and by cosamp (at
        most m/3), about so many by the lasso. "auto": 5, doubled for as long as the mean of P@1, P@3 and P@5 rises on
        300 training rows, each predicted without itself.
    ridge : float or "auto"
        The regularisation, scikit-learn's `alpha`.
    normalize : bool
        Scale feature rows to length 1 first; the authors do not.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws Phi and the rows held out.

    Examples
    --------
    >>> model = CompressedSensing(n_dims=4, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]])
    >>> model.recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def __init__(
        self,
        n_dims: int = 100,
        recovery: str = "omp",
        n_nonzeros: int | str = "auto",
        ridge: float | str = "auto",
        normalize: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_dims = n_dims
        self.recovery = recovery
        self.n_nonzeros = n_nonzeros
        self.ridge = ridge
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        check_count("n_dims", self.n_dims)
        if self.recovery not in _RECOVERIES:
            raise ParameterError(f"`recovery` must be one of {', '.join(_RECOVERIES)}; got {self.recovery!r}.")
        if self.n_nonzeros != "auto":
            check_count("n_nonzeros", self.n_nonzeros, "'auto' or ")
        super().check_settings()

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        Phi = gaussian_columns(Y.shape[1], self.n_dims, seed, self.n_jobs)
        features = with_constant(X)
        solve = resolve_solver("auto", *features.shape)[0].prepare(features, Y.astype(np.float64) @ Phi, self.n_jobs)
        rows = np.random.default_rng([seed, 1]).permutation(X.shape[0])[:_ROWS]

        def learn(ridge: float) -> Learnt:
            solution = solve(ridge)
            if self.n_nonzeros == "auto":
                k = self._choose_k(np.asarray(solution.left_out(rows), np.float64), Y[rows], Phi)
            else:
                k = int(self.n_nonzeros)
            return {"Psi": solution.Psi, "Phi": Phi, "n_nonzeros": np.array(k)}

        return learn

    def _choose_k(self, Z: NDArray[np.float64], truth: Any, Phi: NDArray[np.float64]) -> int:
        """The first of 5, 10, 20 … that twice as many do not better, within what L and m allow."""

        def precision(k: int) -> float:
            scores = self._recover(Z, Phi, k)
            return float(np.mean([metrics.precision_at_k(truth, scores, k=top) for top in (1, 3, 5)]))

        L, m = Phi.shape
        limit = L if self.recovery == "lasso" else min(L, m) // (3 if self.recovery == "cosamp" else 1)
        k = _FEWEST
        best = precision(k)
        while 2 * k <= limit and (following := precision(2 * k)) > best:
            k, best = 2 * k, following
        return k

    def _recover(self, Z: NDArray[np.float64], Phi: NDArray[np.float64], k: int) -> Any:
        if self.recovery == "lasso":
            return lasso(Z, Phi, sparsity_penalty(Z, Phi, k), self.n_jobs)
        return (omp if self.recovery == "omp" else cosamp)(Z, Phi, k, self.n_jobs)

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        Z = np.asarray(with_constant(X) @ learnt["Psi"], np.float64)
        return self._recover(Z, learnt["Phi"], int(learnt["n_nonzeros"]))

    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        m, k = int(self.n_dims), learnt["n_nonzeros"]
        return bool(
            learnt["Psi"].shape == (1 + d, m)
            and learnt["Phi"].shape == (L, m)
            and k.shape == ()
            and 1 <= k <= max(L, 5)
        )

    @property
    def chosen_(self) -> dict[str, Any]:
        """The ridge, and how many labels a row is taken to have."""
        return {**super().chosen_, "n_nonzeros": int(self.learnt_["n_nonzeros"])}


def gaussian_columns(n_labels: int, n_dims: int, seed: int, n_jobs: int | None) -> NDArray[np.float64]:
    """The columns of a Gaussian Phi, (L, m) in float64, a function of the seed and each label's number.

    >>> gaussian_columns(3, 2, seed=0, n_jobs=1).shape
    (3, 2)
    """
    keys = np.arange(n_labels, dtype=np.uint64)
    return Projection(Gaussian(), n_dims, 1, seed).columns(keys, n_jobs).astype(np.float64)
