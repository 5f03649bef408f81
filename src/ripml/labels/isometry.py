"""Isometry: how well an ensemble keeps the distances between label rows, and the dimensions that a given δ needs.

The restricted isometry property bounds ‖Phi(u − v)‖²/‖u − v‖² for all sparse u and v. Here the ratio is measured over
pairs of rows of the data, which is what the neighbours of a query depend on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError
from ripml.base.figures import new_figure, save_figure
from ripml.labels.ensembles import Ensemble
from ripml.labels.projection import Projection

__all__ = ["Isometry", "measure_isometry", "plot_isometry", "smallest_dims"]

Keys = NDArray[np.uint64]

_MOST_DIMS = 16384


@dataclass(frozen=True)
class Isometry:
    """How well Phi keeps distances: ‖Phi(u − v)‖²/‖u − v‖² over pairs of label rows u, v scaled to length 1."""

    n_dims: int
    ratios: NDArray[np.float64]

    def delta(self, quantile: float = 0.95) -> float:
        """The δ with 1 − δ ≤ ratio ≤ 1 + δ for this share of the pairs."""
        return float(np.quantile(np.abs(self.ratios - 1), quantile))


def measure_isometry(
    ensemble: Ensemble, n_dims: int, Y: Any, keys: Keys, n_pairs: int = 2000, seed: int = 0
) -> Isometry:
    """The distribution of ‖Phi(u − v)‖²/‖u − v‖² over random pairs of rows of Y (CSR) with different labels.

    >>> import scipy.sparse
    >>> from ripml.labels import Gaussian
    >>> Y = scipy.sparse.csr_array(np.eye(50))
    >>> measure_isometry(Gaussian(), 1000, Y, np.arange(50, dtype=np.uint64)).delta(0.5) < 0.1
    True
    """
    left, right, shared = _different_pairs(Y, n_pairs, seed)
    rows, where = np.unique(np.concatenate([left, right]), return_inverse=True)
    Z = Projection(ensemble, n_dims, 1, seed).embed(Y[rows], keys).astype(np.float64)
    difference = Z[where[: len(left)]] - Z[where[len(left) :]]
    sizes = np.diff(Y.indptr).astype(np.float64)
    distance = 2 - 2 * shared / np.sqrt(sizes[left] * sizes[right])  # ‖u − v‖² of rows of length 1
    return Isometry(n_dims, np.einsum("ij,ij->i", difference, difference) / distance)


def smallest_dims(
    ensemble: Ensemble, delta: float, Y: Any, keys: Keys, quantile: float = 0.95, n_pairs: int = 2000, seed: int = 0
) -> int:
    """The smallest m (within 2 %) at which the measured δ of this share of pairs is at most `delta`.

    δ falls like 1/√m but not evenly (by chance, and from prime to prime in the deterministic family), so bisection may
    miss the smallest m: m is doubled until δ is reached, and the values since the last doubling are tried in order.
    Where the ensemble does not hold all labels, δ counts as not reached.
    """
    if not 0 < delta < 1:
        raise ParameterError(f"`delta` must be between 0 and 1; got {delta}.")

    def reached(m: int) -> bool:
        capacity = ensemble.capacity(m)
        if capacity is not None and int(keys.max(initial=0)) >= capacity:
            return False
        return measure_isometry(ensemble, m, Y, keys, n_pairs, seed).delta(quantile) <= delta

    high = 1
    while not reached(high):
        high *= 2
        if high > _MOST_DIMS:
            raise ParameterError(f"δ = {delta} is not reached with {_MOST_DIMS:,} dimensions; choose a larger δ.")
    return next((m for m in range(high // 2 + 1, high, max(1, high // 100)) if reached(m)), high)


def _different_pairs(Y: Any, n_pairs: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """Random pairs of labelled rows with different label sets, and how many labels each pair shares."""
    labelled = np.flatnonzero(np.diff(Y.indptr) > 0)
    if len(labelled) < 2:
        raise DataError(f"the isometry needs two rows with labels; got {len(labelled)}.")
    rng = np.random.default_rng(seed)
    left, right = rng.choice(labelled, n_pairs), rng.choice(labelled, n_pairs)
    sizes = np.diff(Y.indptr)
    shared = np.asarray(Y[left].multiply(Y[right]).sum(axis=1)).ravel()
    different = (shared < sizes[left]) | (shared < sizes[right])
    if not different.any():
        raise DataError("the isometry needs rows with different labels; all rows drawn carry the same.")
    return left[different], right[different], shared[different]


def plot_isometry(measured: Isometry, quantile: float, title: str, path: Path) -> None:
    """Save a histogram of the ratios with the band 1 ± δ that contains this share of the pairs; needs matplotlib."""
    figure = new_figure(7, 4)
    axes = figure.add_subplot()
    delta = measured.delta(quantile)
    axes.axvspan(1 - delta, 1 + delta, color="tab:blue", alpha=0.12, lw=0)
    axes.hist(measured.ratios, bins=60, color="tab:blue", alpha=0.85)
    for edge in (1 - delta, 1 + delta):
        axes.axvline(edge, color="tab:blue", lw=1, ls="--")
    axes.axvline(1, color="black", lw=1)
    reach = 1.15 * max(float(np.abs(measured.ratios - 1).max()), delta)
    axes.set_xlim(1 - reach, 1 + reach)
    axes.set_xlabel("‖Φ(u − v)‖² / ‖u − v‖² (1: distance preserved)")
    axes.set_ylabel("pairs of label rows")
    axes.set_title(f"{title}\n{100 * quantile:g} % of pairs within 1 ± {delta:.2f}", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
