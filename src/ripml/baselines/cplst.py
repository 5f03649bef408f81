"""CPLST: conditional principal label space transformation (Chen and Lin, 2012).

    min over V (L, m) with VᵀV = I, Psi    ‖Y_c − Y_c V Vᵀ‖² + ‖X Psi − Y_c V‖² + alpha ‖Psi‖²

the error of the embedding and that of its ridge regression together; Y_c is Y without its mean ȳ, X has a column of
ones. V is the m leading eigenvectors of Y_cᵀ H Y_c with the hat matrix H = X (XᵀX + alpha I)⁻¹ Xᵀ; then as PLST,
ŷ = ȳ + V ẑ. H (n, n) is never made: regression is linear in its targets, so with B = (XᵀX + alpha I)⁻¹ XᵀY_c (1 + d, L)
the matrix is (XᵀY_c)ᵀ B, and Psi = B V. The authors' code has no ones in H, though it has them in the regression.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ripml.base.products import transposed_product
from ripml.baselines.base import Learner, Learnt, require_dense, with_constant
from ripml.baselines.plst import PLST, leading
from ripml.regression import resolve_solver

__all__ = ["CPLST"]


class CPLST(PLST):
    """Directions of the labels that keep much and can be predicted, predicted by ridge regression.

    Parameters
    ----------
    n_dims : int
        m, the number of directions; L at most are there.
    ridge : float or "auto"
        The regularisation, scikit-learn's `alpha`, of the hat matrix and the regression alike.
    normalize : bool
        Scale feature rows to length 1 first; the authors do not.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the rows held out.

    Examples
    --------
    >>> CPLST(n_dims=1, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        L = Y.shape[1]
        features = with_constant(X)
        require_dense((features.shape[1], L), "the weights of all labels", "use PLST, which needs no such array")
        targets = scipy.sparse.hstack([Y, np.ones((Y.shape[0], 1))], format="csr", dtype=np.float64)
        mean = np.asarray(targets[:, :L].mean(axis=0))
        solver, _ = resolve_solver("auto", *features.shape)
        solve = solver.prepare(features, targets, self.n_jobs)
        moment = _centred(transposed_product(features, targets, self.n_jobs), mean)

        def learn(ridge: float) -> Learnt:
            B = _centred(solve(ridge).Psi, mean)
            V = leading(lambda: _symmetric(moment.T @ B), lambda v: moment.T @ (B @ v), L, self.n_dims)
            return {"Psi": B @ V, "V": V, "mean": mean}

        return learn


def _centred(products: Any, mean: Any) -> Any:
    """A Y_c = A Y − (A 1) ȳᵀ, given A [Y 1]."""
    return products[:, :-1] - np.outer(products[:, -1], mean)


def _symmetric(A: Any) -> Any:
    return (A + A.T) / 2
