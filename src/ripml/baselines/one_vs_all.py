"""One-vs-all: a linear model for each label, without an embedding; what embeddings try to reach at less cost.

    ridge       min over w_l  ‖y_l − X w_l‖² + alpha ‖w_l‖²                            all labels by one factorisation
    logistic    min over w_l, b_l  2 Σ_i log(1 + exp(−t_il (x_i w_l + b_l))) + alpha ‖w_l‖²,  t = ±1, label by label

Binary relevance is the older name. The logistic form is solved by L-BFGS, which scikit-learn provides, from w = 0 and
b the log-odds of the label, where a rare label almost is already.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from ripml.base.errors import ParameterError
from ripml.base.parallel import map_blocks
from ripml.base.products import predict_embedding
from ripml.baselines.base import Baseline, Learner, Learnt, require_dense, with_constant
from ripml.baselines.plst import solve_ridge

__all__ = ["OneVsAllLogistic", "OneVsAllRidge"]

_TOLERANCE = 1e-2  # of the gradient of a label on one row, times the root of the number of rows that carry it; on
# rows of Bibtex held out, a tenth of it changed no precision by more than 0.2 points and took half as long again
_MAX_STEPS = 1000


class _OneVsAll(Baseline):
    """A column of weights for each label, the intercept first."""

    def __init__(
        self,
        ridge: float | str = "auto",
        normalize: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.ridge = ridge
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _require_weights(self, d: int, L: int) -> None:
        require_dense((1 + d, L), "the weights of all labels", "use a method with label embeddings, such as RIPML")

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        return predict_embedding(with_constant(X), learnt["Psi"], self.n_jobs)

    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        return bool(learnt["Psi"].shape == (1 + d, L))


class OneVsAllRidge(_OneVsAll):
    """Ridge regression of the labels themselves.

    Parameters
    ----------
    ridge : float or "auto"
        The regularisation, scikit-learn's `alpha`.
    normalize : bool
        Scale feature rows to length 1 first.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the rows held out.

    Examples
    --------
    >>> OneVsAllRidge(random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        self._require_weights(X.shape[1], Y.shape[1])
        solve = solve_ridge(X, Y, self.n_jobs)
        return lambda ridge: {"Psi": solve(ridge)}


class OneVsAllLogistic(_OneVsAll):
    """Logistic regression of each label; a score is the label's probability.

    A label that all rows carry, or none, has no weights but the log-odds of n_l + ½ against n − n_l + ½ rows.

    Parameters
    ----------
    ridge : float or "auto"
        The regularisation, 1/`C` in scikit-learn's words; above 0, as labels that can be told apart have no optimum.
    normalize : bool
        Scale feature rows to length 1 first.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the rows held out.

    Examples
    --------
    >>> OneVsAllLogistic(random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        super().check_settings()
        if self.ridge == 0:
            raise ParameterError("`ridge` must be 'auto' or a finite number > 0 for logistic regression; got 0.")

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        (n, d), L = X.shape, Y.shape[1]
        self._require_weights(d, L)
        X = scipy.sparse.csr_matrix(X, dtype=np.float64)
        columns = Y.tocsc()
        count = np.diff(columns.indptr)
        log_odds = np.log((count + 0.5) / (n - count + 0.5))

        def learn(ridge: float) -> Learnt:
            Psi = np.zeros((1 + d, L))
            Psi[0] = log_odds

            def fill(label: int) -> None:
                carries = np.zeros(n, bool)
                carries[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = True
                Psi[:, label] = _logistic(X, carries, ridge, log_odds[label])

            map_blocks(fill, np.flatnonzero((count > 0) & (count < n)).tolist(), self.n_jobs)
            return {"Psi": Psi}

        return learn

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        return scipy.special.expit(super()._ask(learnt, X))


def _logistic(X: Any, carries: NDArray[np.bool_], ridge: float, start: float) -> NDArray[np.float64]:
    """The intercept and the weights (1 + d,) of one label."""
    n, d = X.shape
    # scikit-learn's tolerance is of the gradient of the mean over rows, which is 1/n for a label that one row carries.
    tolerance = _TOLERANCE * carries.sum() ** 0.5 / n
    model = LogisticRegression(C=1 / ridge, tol=tolerance, max_iter=_MAX_STEPS, warm_start=True)
    model.coef_, model.intercept_ = np.zeros((1, d)), np.array([start])
    model.fit(X, carries)
    return np.concatenate([model.intercept_, model.coef_[0]])
