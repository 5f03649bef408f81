"""Fitting and measuring a method, by the same protocol in every experiment.

Feature rows have length 1. The regularisation is chosen on a fifth of the training rows by the rule of
`ripml.baselines.base`, for RIPML too; where that would cost too much, the value chosen at another m is used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ripml import RIPML, baselines, metrics
from ripml.baselines.base import choose_ridge, draw_seed, held_out_rows
from ripml.decoding.calibration import mean_precision
from ripml.lab.reproduce.experiment import CUTS, Row
from ripml.model.multilabel import Multilabel

__all__ = ["COMPARED", "Chosen", "Split", "measure", "measure_method", "ridge_by_rule"]

COMPARED = ("RIPML", "LEML", "CPLST", "CSSP")  # the methods in the paper's figures
Chosen = dict[tuple[Any, ...], float]  # ridges that were chosen, by what they depend on


@dataclass(frozen=True)
class Split:
    """Training rows and test rows."""

    X: Any
    Y: Any
    X_new: Any
    Y_new: Any


def measure(model: Multilabel, split: Split, fit: bool = True) -> Row:
    """P@1, P@3 and P@5 in percent, seconds of training, and milliseconds per row in one batch."""
    start = time.perf_counter()
    if fit:
        model.fit(split.X, split.Y)
    trained = time.perf_counter()
    scores = model.decision_function(split.X_new)
    predicted = time.perf_counter()
    precision = {f"P@{k}": round(100 * metrics.precision_at_k(split.Y_new, scores, k=k), 2) for k in CUTS}
    return {
        **precision,
        "training_seconds": round(trained - start, 3) if fit else None,
        "ms_per_row": round(1000 * (predicted - trained) / split.X_new.shape[0], 4),
    }


def measure_method(
    method: str, n_dims: int, rows: Split, seed: int, chosen: Chosen, chosen_at: int, **facts: Any
) -> Row:
    """Fit and measure a method of the paper's figures at m dimensions, with the ridge chosen at m = `chosen_at`.

    `chosen` remembers the ridge of (method, m, values of `facts`), so that it is chosen once.
    """
    key = (method, chosen_at, *facts.values())
    if key not in chosen:
        model = _compared(method, chosen_at, seed)
        if isinstance(model, RIPML):
            chosen[key] = ridge_by_rule(model, rows, seed)
        else:
            chosen[key] = model.fit(rows.X, rows.Y).ridge_
    model = _compared(method, n_dims, seed, chosen[key])
    return {**facts, "method": method, "m": n_dims, "ridge": chosen[key], **measure(model, rows)}


def _compared(method: str, n_dims: int, seed: int, ridge: float | str = "auto") -> Any:
    """A method of the paper's figures at m dimensions, with k = 5 and F = 5 for RIPML."""
    if method == "RIPML":
        return RIPML.paper(n_dims=n_dims, n_neighbors=5, ridge=ridge, random_state=seed)
    return getattr(baselines, method)(n_dims=n_dims, ridge=ridge, normalize=True, random_state=seed)


def ridge_by_rule(model: RIPML, split: Split, seed: int) -> float:
    """The ridge of a RIPML by the baselines' rule and on their held-out rows, instead of exact leave-one-out."""
    labelled = np.flatnonzero(np.diff(split.Y.indptr))
    train, held_out = (labelled[rows] for rows in held_out_rows(len(labelled), draw_seed(seed)))

    def precision(ridge: float) -> float:
        fitted = model.set_params(ridge=ridge).fit(split.X[train], split.Y[train])
        return mean_precision(split.Y[held_out], fitted.decision_function(split.X[held_out]))

    return choose_ridge(precision)[0]
