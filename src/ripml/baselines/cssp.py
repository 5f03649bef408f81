"""CSSP: a few labels that stand for all, by column subset selection (Bi and Kwok, 2013).

    min over C, |C| = m    ‖Y_c − Y_C (Y_C⁺ Y_c)‖²,        Y_c = Y − 1ȳᵀ, Y_C the columns C of Y_c

C is drawn without replacement with probabilities p_j = ‖V_j‖²/m, the leverage of label j in the m leading right
singular vectors V (L, m) of Y_c; that is near the best choice with high probability. Ridge regression from features to
the labels in C; all labels are read off by ŷ = ȳ + (ŷ_C − ȳ_C) D with D = (Y_CᵀY_C + 10⁻⁶ I)⁻¹ Y_CᵀY_c.

The authors take labels of ±1 and do not centre them. As most are −1, their first singular vector is nearly constant and
a constant nearly in the span of any few columns; here the mean does that, and all m labels are left for the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from ripml.baselines.base import Learner, Learnt, require_dense, with_constant
from ripml.baselines.plst import PLST, principal_labels, solve_ridge

__all__ = ["CSSP"]

_DECODING_RIDGE = 1e-6


class CSSP(PLST):
    """Labels drawn by their leverage, predicted by ridge regression; the others by regression on those.

    Parameters
    ----------
    n_dims : int
        m, the number of labels drawn; all L where there are no more.
    ridge : float or "auto"
        The regularisation of the regression on features, scikit-learn's `alpha`.
    normalize : bool
        Scale feature rows to length 1 first; the authors do not.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the labels and the rows held out.

    Examples
    --------
    >>> CSSP(n_dims=1, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        Y = Y.astype(np.float64)
        n, L = Y.shape
        mean = np.asarray(Y.mean(axis=0))
        V = principal_labels(Y, mean, self.n_dims)
        leverage = np.einsum("ij,ij->i", V, V)
        m = V.shape[1]
        chosen = np.sort(np.random.default_rng([seed, 0]).choice(L, m, replace=False, p=leverage / leverage.sum()))
        require_dense((m, L), "the products of the labels drawn with all labels", "set a smaller n_dims")
        products = (Y[:, chosen].T @ Y).toarray() - n * np.outer(mean[chosen], mean)
        D = scipy.linalg.solve(products[:, chosen] + _DECODING_RIDGE * np.eye(m), products, assume_a="pos")
        solve = solve_ridge(X, Y[:, chosen], self.n_jobs)
        learnt = {"chosen": chosen, "D": D, "offset": mean - mean[chosen] @ D}
        return lambda ridge: {"Psi": solve(ridge), **learnt}

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        return with_constant(X) @ learnt["Psi"] @ learnt["D"] + learnt["offset"]

    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        m = len(learnt["chosen"])
        return bool(
            learnt["D"].shape == (m, L) and learnt["Psi"].shape == (1 + d, m) and learnt["offset"].shape == (L,)
        )
