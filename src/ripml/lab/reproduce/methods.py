"""Fitting and asking one method, by the protocol that is the same for all.

Feature rows have length 1. Regularisation is chosen on a fifth of the training rows by the rule of
`ripml.baselines.base`, for RIPML too; where that costs too much, the value chosen at another m is kept.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ripml import RIPML, baselines, metrics
from ripml.baselines.base import choose_ridge, drawn_seed, held_out_rows
from ripml.decoding.calibration import mean_precision
from ripml.lab.reproduce.data import Split
from ripml.lab.reproduce.experiment import CUTS, Row
from ripml.model.multilabel import Multilabel

__all__ = ["COMPARED", "Chosen", "asked", "by_rule", "measured", "paper_model"]

COMPARED = ("RIPML", "LEML", "CPLST", "CSSP")  # of the paper's figures
Chosen = dict[tuple[Any, ...], float]  # ridges that were chosen, by whatever tells them apart


def paper_model(method: str, n_dims: int, seed: int, ridge: float | str = "auto") -> Multilabel:
    """A method of the paper's figures at m dimensions, with k = 5 and F = 5 for RIPML."""
    if method == "RIPML":
        return RIPML.paper(n_dims=n_dims, n_neighbors=5, ridge=ridge, random_state=seed)
    made: Multilabel = getattr(baselines, method)(n_dims=n_dims, ridge=ridge, normalize=True, random_state=seed)
    return made


def by_rule(model: RIPML, part: Split, seed: int) -> float:
    """The ridge of a RIPML by the baselines' rule and on their rows, in place of its own leave-one-out."""
    labelled = np.flatnonzero(np.diff(part.Y.indptr))
    seen, held_out = (labelled[rows] for rows in held_out_rows(len(labelled), drawn_seed(seed)))

    def precision(ridge: float) -> float:
        fitted = model.set_params(ridge=ridge).fit(part.X[seen], part.Y[seen])
        return mean_precision(part.Y[held_out], fitted.decision_function(part.X[held_out]))

    return choose_ridge(precision)[0]


def measured(method: str, n_dims: int, part: Split, seed: int, chosen: Chosen, chosen_at: int, **facts: Any) -> Row:
    """Fit a method of the paper's figures at m, with the ridge chosen at m = `chosen_at`, and say what came out.

    `chosen` remembers the ridge of (method, m, values of `facts`), so that it is chosen once.
    """
    key = (method, chosen_at, *facts.values())
    if key not in chosen:
        model = paper_model(method, chosen_at, seed)
        if isinstance(model, RIPML):
            chosen[key] = by_rule(model, part, seed)
        else:
            chosen[key] = model.fit(part.X, part.Y).ridge_
    model = paper_model(method, n_dims, seed, chosen[key])
    return {**facts, "method": method, "m": n_dims, "ridge": chosen[key], **asked(model, part)}


def asked(model: Multilabel, part: Split, learn: bool = True) -> Row:
    """P@1, P@3 and P@5 in percent, seconds to train, and milliseconds a row in one batch."""
    start = time.perf_counter()
    if learn:
        model.fit(part.X, part.Y)
    trained = time.perf_counter()
    scores = model.decision_function(part.X_new)
    answered = time.perf_counter()
    precision = {f"P@{k}": round(100 * metrics.precision_at_k(part.Y_new, scores, k=k), 2) for k in CUTS}
    return {
        **precision,
        "training_seconds": round(trained - start, 3) if learn else None,
        "ms_per_row": round(1000 * (answered - trained) / part.X_new.shape[0], 4),
    }
