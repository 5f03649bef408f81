"""Compressed sensing of labels (Hsu, Kakade, Langford and Zhang, 2009).

    z = Phi y,    Psi = argmin ‖Z − X Psi‖² + ridge ‖Psi‖²,    ŷ = a sparse y with Phi y ≈ ẑ = x Psi

Phi (m, L) is Gaussian, the labels are not scaled. Training costs m regressions instead of L, prediction a small inverse
problem per row. Labels are ranked by their coefficient; labels that are not recovered have no score. Three recoveries:

    omp      orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad, 1993): add the label whose column is most
             correlated with the residual, solve least squares on the chosen labels, k times
    cosamp   compressive sampling matching pursuit (Needell and Tropp, 2009): add the 2k most correlated labels to the
             current k, solve least squares, keep the k largest, as long as the residual falls
    lasso    min ½‖z − Phi y‖² + penalty ‖y‖₁ by FISTA (Beck and Teboulle, 2009), restarted where it overshoots

Rows are independent of each other, so they can be solved in any blocks. As in `labels.ensembles`, a column of Phi is a
row of the array: `Phi` is (L, m). Rows of Z are (n, m), results CSR (n, L).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.base.parallel import blocks, map_blocks
from ripml.baselines.base import Arrays, Baseline, FitAtRidge, prepare_ridge, with_constant
from ripml.decoding.calibration import mean_precision
from ripml.decoding.scores import largest
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import Projection

__all__ = ["CompressedSensing", "cosamp", "gaussian_columns", "lasso", "omp", "sparsity_penalty"]

Floats = NDArray[np.float64]

_RECOVERIES = ("omp", "cosamp", "lasso")
_MIN_NONZEROS = 5  # labels that P@5 needs
_ROWS = 300  # training rows on which k is chosen
_BLOCK_CELLS = 1 << 20  # of the largest array that a block of rows needs
_ROUNDING = 1e-10  # share of ‖z‖ below which a residual is rounding error, so that nothing is left to recover


@dataclass(eq=False, repr=False)
class CompressedSensing(Baseline):
    """Random projections of the labels, predicted by ridge regression and inverted by sparse recovery.

    Parameters
    ----------
    n_dims : int
        m, the number of projections. It may be larger than L; nothing is compressed then.
    recovery : "omp", "cosamp" or "lasso"
        How labels are recovered.
    n_nonzeros : int or "auto"
        k, the number of labels to recover in each row: exactly k by omp (at most m) and by cosamp (at most m/3), about
        k by the lasso. "auto" starts with 5 and doubles it as long as the mean of P@1, P@3 and P@5 rises on 300
        training rows, each predicted by leave-one-out.
    ridge, normalize, n_jobs, random_state
        As for every `Baseline`.

    Examples
    --------
    >>> model = CompressedSensing(n_dims=4, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["b"]])
    >>> model.recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    counts: ClassVar[tuple[str, ...]] = ("n_dims", "n_nonzeros")

    n_dims: int = 100
    recovery: str = "omp"
    n_nonzeros: int | str = "auto"
    ridge: float | str = "auto"

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first parameter that is out of range."""
        if self.recovery not in _RECOVERIES:
            raise ParameterError(f"`recovery` must be one of {', '.join(_RECOVERIES)}; got {self.recovery!r}.")
        super().check_settings()

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        Phi = gaussian_columns(Y.shape[1], self.n_dims, seed, self.n_jobs)
        solve = prepare_ridge(X, Y.astype(np.float64) @ Phi, self.n_jobs)
        rows = np.random.default_rng([seed, 1]).permutation(X.shape[0])[:_ROWS]

        def fit_at(ridge: float) -> Arrays:
            solution = solve(ridge)
            if self.n_nonzeros == "auto":
                k = self._choose_k(np.asarray(solution.left_out(rows), np.float64), Y[rows], Phi)
            else:
                k = int(self.n_nonzeros)
            return {"Psi": solution.Psi, "Phi": Phi, "n_nonzeros": np.array(k)}

        return fit_at

    def _choose_k(self, Z: Floats, truth: Any, Phi: Floats) -> int:
        """The first of 5, 10, 20 … whose double is not better, within the limits of L and m."""
        L, m = Phi.shape
        limit = L if self.recovery == "lasso" else min(L, m) // (3 if self.recovery == "cosamp" else 1)
        k = _MIN_NONZEROS
        best = mean_precision(truth, self._recover(Z, Phi, k))
        while 2 * k <= limit and (doubled := mean_precision(truth, self._recover(Z, Phi, 2 * k))) > best:
            k, best = 2 * k, doubled
        return k

    def _recover(self, Z: Floats, Phi: Floats, k: int) -> Any:
        if self.recovery == "lasso":
            return lasso(Z, Phi, sparsity_penalty(Z, Phi, k), self.n_jobs)
        return (omp if self.recovery == "omp" else cosamp)(Z, Phi, k, self.n_jobs)

    def _score(self, arrays: Arrays, X: Any) -> Any:
        Z = np.asarray(with_constant(X) @ arrays["Psi"], np.float64)
        return self._recover(Z, arrays["Phi"], int(arrays["n_nonzeros"]))

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        m = int(self.n_dims)
        if not 1 <= arrays["n_nonzeros"] <= max(L, _MIN_NONZEROS):
            raise ValueError("n_nonzeros is out of range")
        return {"Psi": (1 + d, m), "Phi": (L, m), "n_nonzeros": ()}

    @property
    def chosen_(self) -> dict[str, Any]:
        """The ridge and the number of labels to recover in each row."""
        return {**super().chosen_, "n_nonzeros": int(self.learnt_["n_nonzeros"])}


def gaussian_columns(n_labels: int, n_dims: int, seed: int, n_jobs: int | None) -> Floats:
    """The columns of a Gaussian Phi, (L, m) in float64, a function of the seed and each label's number.

    >>> gaussian_columns(3, 2, seed=0, n_jobs=1).shape
    (3, 2)
    """
    keys = np.arange(n_labels, dtype=np.uint64)
    return Projection(Gaussian(), n_dims, 1, seed).columns(keys, n_jobs).astype(np.float64)


# -------------------------------------------------------------------------------------------------- sparse recovery


def omp(Z: Floats, Phi: Floats, k: int, n_jobs: int | None = None) -> Any:
    """At most k labels in each row, and at most m; fewer where they explain z completely.

    A step costs O(L·m) for the correlations and O(k·m) for the least squares, which is kept as a QR factorisation.

    >>> omp(np.array([[0.0, 3.0]]), np.eye(2), k=1).toarray().tolist()
    [[0.0, 3.0]]
    """
    L, m = Phi.shape
    k = min(k, L, m)
    lengths = np.linalg.norm(Phi, axis=1)

    def solve(rows: slice) -> Any:
        z = Z[rows]
        b = len(z)
        labels = np.full((b, k), -1, np.int64)
        Q, R = np.zeros((b, k, m)), np.zeros((b, k, k))
        residual, free = z.copy(), np.ones((b, L), bool)
        size = np.linalg.norm(z, axis=1)
        for t in range(k):
            R[:, t, t] = 1
            unsolved = np.flatnonzero(np.linalg.norm(residual, axis=1) > _ROUNDING * size)
            if not len(unsolved):
                continue
            correlation = np.abs(residual[unsolved] @ Phi.T) / lengths
            chosen = np.argmax(np.where(free[unsolved], correlation, -1), axis=1)
            labels[unsolved, t], free[unsolved, chosen] = chosen, False
            q, before = Phi[chosen], Q[unsolved, :t]
            for _ in range(2):  # Gram–Schmidt twice is orthogonal up to rounding error
                along = (before @ q[:, :, None])[:, :, 0]
                R[unsolved, :t, t] += along
                q = q - (along[:, None, :] @ before)[:, 0]
            R[unsolved, t, t] = np.linalg.norm(q, axis=1)
            q /= R[unsolved, t, t, None]
            Q[unsolved, t] = q
            residual[unsolved] -= q * np.einsum("ij,ij->i", q, residual[unsolved])[:, None]
        return _to_csr(labels, np.asarray(np.linalg.solve(R, Q @ z[:, :, None])[:, :, 0], np.float64), L)

    return _solve_rows(solve, len(Z), L, (k + 1) * (m + L), n_jobs)


def cosamp(Z: Floats, Phi: Floats, k: int, n_jobs: int | None = None, max_steps: int = 20) -> Any:
    """k labels in each row, at most a third of m and of L, as each least squares has 3k labels.

    The result is the step with the smallest residual; the first step that does not lower it is the last.

    >>> cosamp(np.array([[0.0, 3.0, 0.0]]), np.eye(3), k=1).toarray().tolist()
    [[0.0, 3.0, 0.0]]
    """
    L, m = Phi.shape
    k = max(1, min(k, L // 3, m // 3))
    width = min(3 * k, L, m)

    def solve(block: slice) -> Any:
        z = Z[block]
        labels = np.full((len(z), k), -1, np.int64)
        values, residual = np.zeros((len(z), k)), z.copy()
        rows = np.flatnonzero(np.any(z != 0, axis=1))  # those still improving
        for _ in range(max_steps):
            correlation = np.abs(residual[rows] @ Phi.T)
            current = labels[rows]
            correlation[np.nonzero(current >= 0)[0], current[current >= 0]] = np.inf  # the current labels stay
            wide = largest(correlation, width)
            columns = Phi[wide]
            solved = np.linalg.solve(columns @ columns.transpose(0, 2, 1), columns @ z[rows, :, None])[:, :, 0]
            kept = largest(np.abs(solved), k)
            new, value = np.take_along_axis(wide, kept, axis=1), np.take_along_axis(solved, kept, axis=1)
            rest = z[rows] - (value[:, None, :] @ Phi[new])[:, 0]
            size = np.linalg.norm(residual[rows], axis=1)
            better = np.linalg.norm(rest, axis=1) < size * (1 - _ROUNDING)
            rows = rows[better]
            labels[rows], values[rows], residual[rows] = new[better], value[better], rest[better]
            rows = rows[np.linalg.norm(rest[better], axis=1) > _ROUNDING * np.linalg.norm(z[rows], axis=1)]
            if not len(rows):
                break
        return _to_csr(labels, values, L)

    return _solve_rows(solve, len(Z), L, width * (m + width) + L, n_jobs)


def lasso(
    Z: Floats, Phi: Floats, penalty: Floats, n_jobs: int | None = None, tol: float = 1e-4, max_steps: int = 500
) -> Any:
    """The labels that remain under a penalty (n,) on the sum of |y|; scikit-learn's `alpha` is penalty/m.

    A row is finished when no coefficient moves by more than `tol` times the largest.

    >>> lasso(np.array([[1.0, 3.0]]), np.eye(2), np.array([2.0])).toarray().tolist()
    [[0.0, 1.0]]
    """
    L = len(Phi)
    step = 1 / max(float(np.linalg.norm(Phi, 2)) ** 2, np.finfo(float).tiny)

    def solve(block: slice) -> Any:
        z = Z[block]
        y = np.zeros((len(z), L))
        rows = np.arange(len(z))  # those still moving
        current, ahead, momentum = y.copy(), y.copy(), np.ones(len(z))
        threshold = step * penalty[block, None]
        for _ in range(max_steps):
            moved = ahead + step * ((z - ahead @ Phi) @ Phi.T)
            moved = np.sign(moved) * np.maximum(np.abs(moved) - threshold, 0)
            change = moved - current
            # Momentum that points against the last step does harm: restart it (O'Donoghue and Candès, 2015).
            momentum[np.einsum("ij,ij->i", ahead - moved, change) > 0] = 1
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = moved + ((momentum - 1) / following)[:, None] * change
            current, momentum = moved, following
            moving = np.abs(change).max(axis=1) > tol * np.abs(moved).max(axis=1)
            y[rows[~moving]] = current[~moving]
            rows, z, threshold = rows[moving], z[moving], threshold[moving]
            current, ahead, momentum = current[moving], ahead[moving], momentum[moving]
            if not len(rows):
                break
        y[rows] = current
        return scipy.sparse.csr_array(y)

    return _solve_rows(solve, len(Z), L, 4 * L, n_jobs)


def sparsity_penalty(Z: Floats, Phi: Floats, k: int) -> Floats:
    """The lasso's penalty (n,) for about k labels in each row: the (k + 1)-th largest |⟨Phi_l, z⟩|, 0 for k ≥ L.

    If the columns of Phi were orthonormal, exactly the k labels above it would remain; by the restricted isometry they
    nearly are.

    >>> sparsity_penalty(np.array([[1.0, 3.0]]), np.eye(2), k=1).tolist()
    [1.0]
    """
    L = len(Phi)
    if k >= L:
        return np.zeros(len(Z))
    return np.asarray(np.partition(np.abs(Z @ Phi.T), L - k - 1, axis=1)[:, L - k - 1])


def _solve_rows(solve: Callable[[slice], Any], n: int, L: int, cells: int, n_jobs: int | None) -> Any:
    """CSR (n, L), solved on threads in blocks of rows that each need `cells` numbers per row."""
    parts = map_blocks(solve, blocks(n, max(1, _BLOCK_CELLS // cells)), n_jobs)
    return scipy.sparse.vstack([scipy.sparse.csr_array((0, L)), *parts], format="csr")


def _to_csr(labels: NDArray[np.int64], values: Floats, L: int) -> Any:
    """CSR (b, L) of labels (b, K), −1 for none, and their coefficients."""
    present = labels >= 0
    row = np.nonzero(present)[0]
    recovered = scipy.sparse.csr_array((values[present], (row, labels[present])), shape=(len(labels), L))
    recovered.sort_indices()
    return recovered
