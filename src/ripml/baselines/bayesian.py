"""Bayesian compressed sensing of labels (Kapoor, Viswanathan and Jain, 2012).

    w_i ~ N(0, (σ²/ridge) I),   z | x ~ N(Wᵀx, σ² I),   z | y ~ N(Phi y, χ² I),   y_j ~ N(0, 1/α_j),   α_j ~ Γ(a0, b0)

The labels of training rows are all known, so that z = Phi y for them, and joint training is one regression: the
posterior of W is Gaussian around the ridge solution Psi, and for a new row z ~ N(x Psi, s² I), s² = σ²(1 + h), with the
leverage h = x(XᵀX + ridge I)⁻¹xᵀ: this is how the uncertainty of W enters a prediction. The variational posterior
Q(y)Q(z)Q(α) of the row is then, with D = 1/E[α] and M = χ²I + Phi D Phiᵀ (m × m, by Woodbury),

    Q(y) = N(μ, Σ),   Σ = (D⁻¹ + Phiᵀ Phi/χ²)⁻¹ = D − D Phiᵀ M⁻¹ Phi D,      μ = Σ Phiᵀ E[z]/χ²
    E[z] = (ẑ/s² + Phi μ/χ²)/(1/s² + 1/χ²),                                   E[α_j] = (a0 + ½)/(b0 + ½(μ_j² + Σ_jj))

The equations of μ and E[z] are linear in each other and are solved together: μ = D Phiᵀ(M + s²I)⁻¹ẑ, E[z] = M(M +
s²I)⁻¹ẑ. Every round raises the variational bound and costs O(L·m²) per row.

Σ underestimates the uncertainty of y, as a mean-field Q(y) takes z as known; the reported standard deviations are those
of y given α with z integrated out, D − D Phiᵀ(M + s²I)⁻¹Phi D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import check_count
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import gram_of, transposed_product
from ripml.baselines.base import Arrays, Baseline, FitAtRidge, best_candidates, require_dense, with_constant
from ripml.baselines.compressed_sensing import gaussian_columns

__all__ = ["BayesianCompressedSensing", "deviations", "infer"]

Floats = NDArray[np.float64]

_SHAPE = _RATE = 1e-6  # a0 and b0: an almost flat prior of α
_ROWS = 1000  # training rows on which the noise is measured
_LEAST_RIDGE = 1e-9  # in units of the mean square of a feature: with ridge 0 the posterior of W would be improper
_CELLS = 1 << 18  # of Phi D for a block of rows
_MAX_STEPS = 1000
_ROW_BLOCK = 1024  # rows whose leverage is computed at a time


@dataclass(eq=False, repr=False)
class BayesianCompressedSensing(Baseline):
    """Random projections of the labels, recovered by variational inference with a sparse prior.

    The noise is measured on leave-one-out predictions of training rows and shared evenly between σ² and χ². E[1/α]
    starts at the share of labels that a row carries.

    Parameters
    ----------
    n_dims : int
        m, the number of projections. It may be larger than L; nothing is compressed then.
    n_steps : int
        Rounds of inference. The first is shared by all rows and costs almost nothing. On held-out rows of Bibtex, two
        to sixteen more rounds differ by less than a point.
    ridge, normalize, n_jobs, random_state
        As for every `Baseline`.

    Examples
    --------
    >>> model = BayesianCompressedSensing(n_dims=4, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]])
    >>> model.recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    counts: ClassVar[tuple[str, ...]] = ("n_dims",)

    n_dims: int = 100
    n_steps: int = 4
    ridge: float | str = "auto"

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first parameter that is out of range."""
        super().check_settings()
        check_count("n_steps", self.n_steps, most=_MAX_STEPS)

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        Phi = gaussian_columns(Y.shape[1], self.n_dims, seed, self.n_jobs)
        features, Z = with_constant(X).astype(np.float64), Y.astype(np.float64) @ Phi
        n, d = features.shape
        require_dense((d, min(n, d)), "the covariance of the regression", "use fewer features or rows")
        primal = d <= n
        side = features if primal else features.T
        gram = gram_of(side.tocsr() if scipy.sparse.issparse(side) else side, self.n_jobs)
        right = transposed_product(features, Z, self.n_jobs) if primal else Z
        rows = np.sort(np.random.default_rng([seed, 1]).permutation(n)[:_ROWS])
        sample, targets = features[rows], Z[rows]
        density = np.array(Y.nnz / (n * Y.shape[1]))

        def fit_at(ridge: float) -> Arrays:
            ridge = max(ridge, _LEAST_RIDGE * float(np.trace(gram)) / d)
            lower = scipy.linalg.cholesky(gram + ridge * np.eye(len(gram)), lower=True, check_finite=False)
            solved = scipy.linalg.solve_triangular(lower, right, lower=True, check_finite=False)
            if primal:  # (XᵀX + ridge I)⁻¹ = half halfᵀ
                half = scipy.linalg.lapack.dtrtri(lower, lower=1)[0].T
                prior, sign = 0.0, 1.0
            else:  # = (I − half halfᵀ)/ridge
                inverse = scipy.linalg.lapack.dtrtri(lower, lower=1)[0]
                half = np.asarray(transposed_product(features, np.ascontiguousarray(inverse.T), self.n_jobs))
                prior, sign = 1 / ridge, -1 / ridge
            arrays = {"Psi": half @ solved, "half": half, "leverage": np.array([prior, sign]), "Phi": Phi}
            h = np.minimum(_leverage(arrays, sample), 1 - 1e-9)[:, None]
            # zᵢ − ẑ₋ᵢ = (zᵢ − ẑᵢ)/(1 − hᵢ) has variance χ² + σ²(1 + hᵢ/(1 − hᵢ)), with χ² = σ².
            squares = ((targets - sample @ arrays["Psi"]) / (1 - h)) ** 2
            noise = float(np.mean(squares / (2 + h / (1 - h))))
            return {**arrays, "noise": np.array(max(noise, 1e-9)), "density": density}

        return fit_at

    def _score(self, arrays: Arrays, X: Any) -> Any:
        return self._infer(arrays, X)[0]

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        m, width = int(self.n_dims), arrays["half"].shape[1]
        if not (arrays["noise"] > 0 and arrays["density"] >= 0):
            raise ValueError("noise or density is out of range")
        regression = {"Psi": (1 + d, m), "half": (1 + d, width), "leverage": (2,)}
        return {**regression, "Phi": (L, m), "noise": (), "density": ()}

    def _infer(self, arrays: Arrays, X: Any) -> tuple[Floats, Floats, Floats]:
        """μ and D, (b, L) each, and s² + χ² (b,), the noise of ẑ as an observation of Phi y."""
        features = with_constant(X).astype(np.float64)
        Z, chi2, start = features @ arrays["Psi"], float(arrays["noise"]), float(arrays["density"])
        variance = chi2 * (1 + _leverage(arrays, features))
        mean, D = infer(Z, arrays["Phi"], variance, chi2, start, self.n_steps, self.n_jobs)
        return mean, D, variance + chi2

    def predict_with_uncertainty(self, X: Any) -> tuple[Any, Any]:
        """The scores of `decision_function` and the standard deviation of each, CSR (n, L) with the same cells.

        >>> X, Y = [[1, 0], [0, 1]] * 10, [["a"], ["b"]] * 10
        >>> model = BayesianCompressedSensing(n_dims=9, random_state=0).fit(X, Y)
        >>> scores, spreads = model.predict_with_uncertainty([[1, 0], [50, -50]])
        >>> bool(spreads[1, 0] > spreads[0, 0])
        True
        """
        X = self._validated_queries(X)
        scores, spreads = [], []
        for block in blocks(X.shape[0], _ROW_BLOCK):
            mean, D, variance = self._infer(self.learnt_, X[block])
            best = best_candidates(mean)
            row = np.repeat(np.arange(len(mean)), np.diff(best.indptr))
            spread = deviations(D, self.learnt_["Phi"], variance, self.n_jobs)[row, best.indices]
            scores.append(best)
            spreads.append(type(best)((spread, best.indices, best.indptr), shape=best.shape))
        return scipy.sparse.vstack(scores, format="csr"), scipy.sparse.vstack(spreads, format="csr")


def _leverage(arrays: Arrays, features: Any) -> Floats:
    """h (b,) = x(XᵀX + ridge I)⁻¹xᵀ of each row."""
    prior, sign = arrays["leverage"]
    out = np.empty(features.shape[0])
    for rows in blocks(features.shape[0], _ROW_BLOCK):
        x = features[rows]
        image = x @ arrays["half"]
        squares = np.asarray(x.multiply(x).sum(axis=1)).ravel() if scipy.sparse.issparse(x) else (x * x).sum(axis=1)
        out[rows] = prior * squares + sign * np.einsum("ij,ij->i", image, image)
    return np.maximum(out, 0)


def infer(
    Z: Floats, Phi: Floats, variance: Floats, chi2: float, start: float, n_steps: int, n_jobs: int | None = None
) -> tuple[Floats, Floats]:
    """The variational posterior of y given ẑ: rows Z (n, m) of s² = `variance` (n,), and Phi (L, m), label-major.

    Returns the means μ and the D = 1/E[α] that they follow from, (n, L) each. D is `start` in the first round.

    >>> mean, D = infer(np.array([[2.0, 0.0]]), np.eye(2), np.array([0.01]), 0.01, 0.5, n_steps=20)
    >>> mean.round(1).tolist()
    [[2.0, 0.0]]
    """
    L, m = Phi.shape
    # In the first round M is the same for all rows, and M + s²I has the same eigenvectors.
    values, vectors = np.linalg.eigh(start * (Phi.T @ Phi) + chi2 * np.eye(m))
    means = start * (((Z @ vectors) / (values + variance[:, None])) @ (Phi @ vectors).T)
    D = np.full((len(Z), L), start)
    if n_steps == 1:
        return means, D
    spread = start - start**2 * np.einsum("lm,lm->l", Phi @ (vectors / values), Phi @ vectors)

    def solve(rows: slice) -> None:
        d = _updated(means[rows], spread)
        for step in range(1, n_steps):
            M = _small_system(d, Phi, chi2 + variance[rows])
            mean = d * (np.linalg.solve(M, Z[rows, :, None])[:, :, 0] @ Phi.T)
            if step < n_steps - 1:
                M[:, range(m), range(m)] -= variance[rows, None]
                d = _updated(mean, _diagonal(d, M, Phi))
        means[rows], D[rows] = mean, d

    map_blocks(solve, blocks(len(Z), max(1, _CELLS // (m * L))), n_jobs)
    return means, D


def deviations(D: Floats, Phi: Floats, variance: Floats, n_jobs: int | None = None) -> Floats:
    """The standard deviations (n, L) of y ~ N(0, D) after Phi y was observed with noise of this `variance` (n,).

    >>> deviations(np.array([[1.0, 1.0]]), np.eye(2), np.array([1 / 3])).tolist()
    [[0.5, 0.5]]
    """
    out = np.empty_like(D)

    def fill(rows: slice) -> None:
        out[rows] = np.sqrt(_diagonal(D[rows], _small_system(D[rows], Phi, variance[rows]), Phi))

    map_blocks(fill, blocks(len(D), max(1, _CELLS // Phi.size)), n_jobs)
    return out


def _updated(mean: Floats, spread: Floats) -> Floats:
    """1/E[α] for the mean and variance of y."""
    return (_RATE + 0.5 * (mean**2 + spread)) / (_SHAPE + 0.5)


def _small_system(D: Floats, Phi: Floats, variance: Floats) -> Floats:
    """Phi D Phiᵀ + variance·I of each row, (b, m, m)."""
    M: Floats = (Phi.T * D[:, None, :]) @ Phi
    M[:, range(Phi.shape[1]), range(Phi.shape[1])] += variance[:, None]
    return M


def _diagonal(D: Floats, M: Floats, Phi: Floats) -> Floats:
    """The diagonal of D − D Phiᵀ M⁻¹ Phi D of each row, (b, L)."""
    quadratic = np.einsum("blm,lm->bl", Phi @ np.linalg.inv(M), Phi)
    return np.asarray(np.maximum(D - D * D * quadratic, 0))
