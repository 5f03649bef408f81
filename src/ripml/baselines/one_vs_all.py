"""One-vs-all: a linear model for each label, without an embedding; embeddings try to be as good at a lower cost.

    ridge       min over w_l  ‖y_l − X w_l‖² + alpha ‖w_l‖²                            all labels by one factorisation
    logistic    min over w_l, b_l  2 Σ_i log(1 + exp(−t_il (x_i w_l + b_l))) + alpha ‖w_l‖²,  t = ±1, label by label

An older name is binary relevance. The logistic form is solved by scikit-learn's L-BFGS, starting at w = 0 and b = the
log-odds of the label, which is almost the solution for a rare label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from ripml.base.errors import ParameterError
from ripml.base.parallel import map_blocks
from ripml.base.products import predict_embedding
from ripml.baselines.base import Arrays, Baseline, FitAtRidge, prepare_ridge, require_dense, with_constant

__all__ = ["OneVsAllLogistic", "OneVsAllRidge"]

# The tolerance of a label's gradient on one row, times the square root of the number of rows with the label. On
# held-out rows of Bibtex, a tenth of it changed no precision by more than 0.2 points and took 1.5 times as long.
_TOLERANCE = 1e-2
_MAX_STEPS = 1000


@dataclass(eq=False, repr=False)
class OneVsAllRidge(Baseline):
    """Ridge regression from the features to every label.

    Parameters
    ----------
    ridge, normalize, n_jobs, random_state
        As for every `Baseline`.

    Examples
    --------
    >>> OneVsAllRidge(random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    ridge: float | str = "auto"

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        self._require_weights(X.shape[1], Y.shape[1])
        solve = prepare_ridge(X, Y, self.n_jobs)
        return lambda ridge: {"Psi": solve(ridge).Psi}

    def _require_weights(self, d: int, L: int) -> None:
        require_dense((1 + d, L), "the weights of all labels", "use a method with label embeddings, such as RIPML")

    def _score(self, arrays: Arrays, X: Any) -> Any:
        return predict_embedding(with_constant(X), arrays["Psi"], self.n_jobs)

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        return {"Psi": (1 + d, L)}


class OneVsAllLogistic(OneVsAllRidge):
    """Logistic regression for each label; a score is the label's probability.

    A label that all rows carry, or none, gets the log-odds of n_l + ½ against n − n_l + ½ rows and no weights.

    Parameters
    ----------
    ridge : float or "auto"
        The regularisation, 1/`C` of scikit-learn's LogisticRegression. It must be above 0: a label that the features
        separate perfectly has no optimum without it.
    normalize, n_jobs, random_state
        As for every `Baseline`.

    Examples
    --------
    >>> OneVsAllLogistic(random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first parameter that is out of range."""
        super().check_settings()
        if self.ridge == 0:
            raise ParameterError("`ridge` must be 'auto' or a finite number > 0 for logistic regression; got 0.")

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        (n, d), L = X.shape, Y.shape[1]
        self._require_weights(d, L)
        X = scipy.sparse.csr_matrix(X, dtype=np.float64)
        columns = Y.tocsc()
        count = np.diff(columns.indptr)
        log_odds = np.log((count + 0.5) / (n - count + 0.5))

        def fit_at(ridge: float) -> Arrays:
            Psi = np.zeros((1 + d, L))
            Psi[0] = log_odds

            def fill(label: int) -> None:
                carries = np.zeros(n, bool)
                carries[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = True
                Psi[:, label] = _logistic(X, carries, ridge, log_odds[label])

            map_blocks(fill, np.flatnonzero((count > 0) & (count < n)).tolist(), self.n_jobs)
            return {"Psi": Psi}

        return fit_at

    def _score(self, arrays: Arrays, X: Any) -> Any:
        return scipy.special.expit(super()._score(arrays, X))


def _logistic(X: Any, carries: NDArray[np.bool_], ridge: float, start: float) -> NDArray[np.float64]:
    """The intercept and the weights (1 + d,) of one label."""
    n, d = X.shape
    # scikit-learn's tolerance applies to the gradient of the mean over rows, which is 1/n for a label of a single row.
    tolerance = _TOLERANCE * carries.sum() ** 0.5 / n
    model = LogisticRegression(C=1 / ridge, tol=tolerance, max_iter=_MAX_STEPS, warm_start=True)
    model.coef_, model.intercept_ = np.zeros((1, d)), np.array([start])
    model.fit(X, carries)
    return np.concatenate([model.intercept_, model.coef_[0]])
