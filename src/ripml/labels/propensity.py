"""Propensities: the chance that a true label of a row was written down, and scores weighed by it (Jain et al. 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError, is_number

__all__ = ["check_propensities", "weigh"]

Floats = NDArray[np.float64]


def weigh(scores: Any, p: Floats, power: float = 1.0) -> Any:
    """Scores or labels (n, L), CSR, times p_l^−power: with `power=1`, E[y/p] is the true label.

    A power between 0 and 1 raises rare labels less, where noise in rare labels costs more than their bias.

    >>> weigh(scipy.sparse.csr_array([[0.5, 0.2]]), np.array([1.0, 0.25])).toarray()
    array([[0.5, 0.8]])
    """
    scores = scipy.sparse.csr_array(scores)
    if not is_number(power) or not np.isfinite(power):
        raise ParameterError(f"`power` must be a number; got {power!r}.")
    factor = check_propensities(p, scores.shape[1]) ** -power
    return scipy.sparse.csr_array((scores.data * factor[scores.indices], scores.indices, scores.indptr), scores.shape)


def check_propensities(p: Floats, n_labels: int) -> Floats:
    """The propensities p (L,) as float64; DataError unless there is one in (0, 1] for each label."""
    p = np.asarray(p, np.float64)
    if p.shape != (n_labels,):
        raise DataError(f"`p` must have one propensity for each of the {n_labels} labels; got shape {p.shape}.")
    outside = ~((p > 0) & (p <= 1))
    if outside.any():
        label = int(np.argmax(outside))
        raise DataError(f"propensities must lie in (0, 1]; got {p[label]} for label {label}.")
    return p
