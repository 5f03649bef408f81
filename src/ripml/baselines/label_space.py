"""Linear reductions of the label space: few numbers stand for all labels and are predicted by ridge regression.

Y_c = Y − 1ȳᵀ is Y (n, L) without the mean ȳ of its rows; X has a column of ones.

    PLST     min over V (L, m) with VᵀV = I          ‖Y_c − Y_c V Vᵀ‖²
    CPLST    min over V with VᵀV = I, and Psi        ‖Y_c − Y_c V Vᵀ‖² + ‖X Psi − Y_c V‖² + alpha ‖Psi‖²
    CSSP     min over sets C of m labels             ‖Y_c − Y_C (Y_C⁺ Y_c)‖²,    Y_C the columns C of Y_c

PLST (Tai and Lin, 2012): V is the m leading right singular vectors of Y_c, the best linear embedding of the labels,
whatever the features can predict. Ridge regression predicts Z = Y_c V from the features, and ŷ = ȳ + V ẑ.

CPLST (Chen and Lin, 2012): V is the m leading eigenvectors of Y_cᵀ H Y_c with the hat matrix H = X (XᵀX + alpha I)⁻¹
Xᵀ; the rest is as in PLST. H (n, n) is never formed: regression is linear in its targets, so with B = (XᵀX + alpha I)⁻¹
XᵀY_c (1 + d, L) the matrix is (XᵀY_c)ᵀ B, and Psi = B V. The authors' code has the column of ones in the regression but
not in H.

CSSP (Bi and Kwok, 2013): C is drawn without replacement with probabilities p_j = ‖V_j‖²/m, the leverage of label j in
PLST's V; with high probability that is near the best choice. Ridge regression predicts the labels in C, and all labels
follow by ŷ = ȳ + (ŷ_C − ȳ_C) D with D = (Y_CᵀY_C + 10⁻⁶ I)⁻¹ Y_CᵀY_c. The authors use labels of ±1 and do not centre
them. As most are −1, their first singular vector is nearly constant; here the mean takes that part, and all m labels
serve the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray

from ripml.base.products import transposed_product
from ripml.baselines.base import Arrays, Baseline, FitAtRidge, prepare_ridge, require_dense, with_constant

__all__ = ["CPLST", "CSSP", "PLST"]

Floats = NDArray[np.float64]

_DENSE_SIDE = 4096  # matrices up to this side are decomposed whole, larger ones only as far as needed
_DECODING_RIDGE = 1e-6


@dataclass(eq=False, repr=False)
class PLST(Baseline):
    """Principal label space transformation: principal components of the labels, predicted by ridge regression.

    Parameters
    ----------
    n_dims : int
        m, the number of components; at most L.
    ridge, normalize, n_jobs, random_state
        As for every `Baseline`.

    Examples
    --------
    >>> PLST(n_dims=1, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    counts: ClassVar[tuple[str, ...]] = ("n_dims",)

    n_dims: int = 100
    ridge: float | str = "auto"

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        mean = np.bincount(Y.indices, Y.data, minlength=Y.shape[1]) / Y.shape[0]
        V = _principal_labels(Y, mean, self.n_dims)
        Z = Y @ V - mean @ V
        solve = prepare_ridge(X, Z, self.n_jobs)
        return lambda ridge: {"Psi": solve(ridge).Psi, "V": V, "mean": mean}

    def _score(self, arrays: Arrays, X: Any) -> Any:
        return with_constant(X) @ arrays["Psi"] @ arrays["V"].T + arrays["mean"]

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        m = arrays["V"].shape[1]
        return {"V": (L, m), "Psi": (1 + d, m), "mean": (L,)}


class CPLST(PLST):
    """Conditional PLST: directions of the label space that keep much of the labels and can be predicted.

    Parameters
    ----------
    n_dims : int
        m, the number of directions; at most L.
    ridge : float or "auto"
        The regularisation, scikit-learn's `alpha`, of both the hat matrix and the regression.
    normalize, n_jobs, random_state
        As for every `Baseline`.

    Examples
    --------
    >>> CPLST(n_dims=1, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        L = Y.shape[1]
        require_dense((1 + X.shape[1], L), "the weights of all labels", "use PLST, which does not need this array")
        # A column of ones among the targets gives A 1 with A Y, and so A Y_c without centring Y.
        targets = scipy.sparse.hstack([Y, np.ones((Y.shape[0], 1))], format="csr", dtype=np.float64)
        mean = np.asarray(targets[:, :L].mean(axis=0))

        def centred(products: Any) -> Any:
            """A Y_c = A Y − (A 1) ȳᵀ from A [Y 1]."""
            return products[:, :-1] - np.outer(products[:, -1], mean)

        solve = prepare_ridge(X, targets, self.n_jobs)
        moment = centred(transposed_product(with_constant(X), targets, self.n_jobs))

        def fit_at(ridge: float) -> Arrays:
            B = centred(solve(ridge).Psi)

            def whole() -> Any:
                A = moment.T @ B
                return (A + A.T) / 2  # it is symmetric up to rounding

            V = _leading_eigenvectors(whole, lambda v: moment.T @ (B @ v), L, self.n_dims)
            return {"Psi": B @ V, "V": V, "mean": mean}

        return fit_at


class CSSP(PLST):
    """Column subset selection: labels drawn by their leverage are predicted, the others by regression on those.

    Parameters
    ----------
    n_dims : int
        m, the number of labels drawn; at most L.
    ridge, normalize, n_jobs, random_state
        As for every `Baseline`.

    Examples
    --------
    >>> CSSP(n_dims=1, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        Y = Y.astype(np.float64)
        n, L = Y.shape
        mean = np.asarray(Y.mean(axis=0))
        V = _principal_labels(Y, mean, self.n_dims)
        leverage = np.einsum("ij,ij->i", V, V)
        m = V.shape[1]
        chosen = np.sort(np.random.default_rng([seed, 0]).choice(L, m, replace=False, p=leverage / leverage.sum()))
        require_dense((m, L), "the products of the drawn labels with all labels", "set a smaller n_dims")
        products = (Y[:, chosen].T @ Y).toarray() - n * np.outer(mean[chosen], mean)
        D = scipy.linalg.solve(products[:, chosen] + _DECODING_RIDGE * np.eye(m), products, assume_a="pos")
        solve = prepare_ridge(X, Y[:, chosen], self.n_jobs)
        fixed = {"chosen": chosen, "D": D, "offset": mean - mean[chosen] @ D}
        return lambda ridge: {"Psi": solve(ridge).Psi, **fixed}

    def _score(self, arrays: Arrays, X: Any) -> Any:
        return with_constant(X) @ arrays["Psi"] @ arrays["D"] + arrays["offset"]

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        m = len(arrays["chosen"])
        return {"D": (m, L), "Psi": (1 + d, m), "offset": (L,), "chosen": (m,)}


def _principal_labels(Y: Any, mean: Floats, n_dims: int) -> Floats:
    """V (L, m), the leading right singular vectors of Y_c, as eigenvectors of Y_cᵀY_c = YᵀY − n ȳȳᵀ."""
    n, L = Y.shape

    def whole() -> Floats:
        require_dense((L, L), "the covariance of the labels", f"set n_dims to at most {L // 4:,}")
        doubles = Y.astype(np.float64)
        covariance: Floats = (doubles.T @ doubles).toarray()
        covariance -= n * np.outer(mean, mean)
        return covariance

    def multiply(v: Floats) -> Floats:
        return np.asarray(Y.T @ (Y @ v) - n * mean * (mean @ v))

    return _leading_eigenvectors(whole, multiply, L, n_dims)


def _leading_eigenvectors(
    whole: Callable[[], Floats], multiply: Callable[[Floats], Floats], n: int, n_dims: int
) -> Floats:
    """The eigenvectors of the largest eigenvalues of a symmetric A ≥ 0 of side n, in descending order, (n, m).

    `whole` makes A, `multiply` is v ↦ Av, which is enough where few vectors of a large A are needed.
    """
    m = min(n_dims, n)
    if n <= _DENSE_SIDE or 4 * m > n:
        vectors = scipy.linalg.eigh(whole(), subset_by_index=(n - m, n - 1), check_finite=False)[1]
    else:
        A = scipy.sparse.linalg.LinearOperator((n, n), matvec=multiply, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(n)
        vectors = scipy.sparse.linalg.eigsh(A, k=m, v0=start)[1]
    return np.ascontiguousarray(vectors[:, ::-1])
