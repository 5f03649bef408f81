"""The paper's regression and votes of one cluster, with the ridge that is best on training rows left out.

Rows that are left out are predicted without each (see `regression`), their own row does not vote, and the ridge is
found on a walk by half decades; where it is given, fewer rows are asked, for the threshold and the calibration alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.workspace import release
from ripml.model.decisions import mean_precision
from ripml.model.part import Part
from ripml.regression import RidgeSolver, Solution, Solve

__all__ = ["SMALL", "Asked", "Voted", "most_left_out", "vote"]

_log = logging.getLogger("ripml")

Ints = NDArray[np.int64]

# A ridge tuned alone starts here (times the mean squared length of a row) and walks by half decades.
_RIDGE_START, _RIDGE_STEP, _RIDGE_MOST_STEPS = 0.3, 10**0.5, 8
# Training rows that are left out one by one: to choose `ridge`, and where only the threshold needs them. Each costs a
# solve, so there are more of them where the side of the factorised matrix is SMALL.
SMALL = 2500
_LEFT_OUT_TO_TUNE, _LEFT_OUT_TO_TUNE_SMALL, _LEFT_OUT_TO_CUT = 2000, 5000, 500
_LEFT_OUT_ITERATIVE = 200  # where the leverage of a row costs as much as a target


@dataclass(frozen=True)
class Asked:
    """Training rows that are left out: their numbers, as the solution knows them, and the label sets they carry."""

    rows: Ints
    sets: Ints


@dataclass(frozen=True)
class Voted:
    """A regularisation tried, and what it gave on the rows left out."""

    ridge: float
    quality: float
    solution: Solution
    truth: Any  # CSR, the labels of these rows
    scores: Any  # CSR


def most_left_out(n: int, d: int, ridge: float | None, solver: RidgeSolver) -> int:
    """How many of n rows are left out; `ridge` is None where it is to be chosen."""
    if not solver.exact:
        return _LEFT_OUT_ITERATIVE
    if ridge is not None:
        return _LEFT_OUT_TO_CUT
    return _LEFT_OUT_TO_TUNE_SMALL if min(n, d) <= SMALL else _LEFT_OUT_TO_TUNE


def vote(
    part: Part, solve: Solve, asked: Asked, ridge: float | None, mean_square: float, k: int, n_jobs: int | None
) -> Voted:
    """Ask for the rows left out, at this ridge or at the best of several; `mean_square` is that of a feature row."""
    truth = part.sets[asked.sets]

    def attempt(ridge: float) -> Voted:
        solution = solve(ridge)
        release(part.sets.indices, part.sets.data)
        scores = part.votes(solution.left_out(asked.rows), k, n_jobs, left_out=asked.sets)
        quality = mean_precision(truth, scores)
        _log.info("ridge %.3g: mean P@1, 3, 5 on rows left out %.2f %%", ridge, 100 * quality)
        return Voted(ridge, quality, solution, truth, scores)

    return attempt(ridge) if ridge is not None else _climb(attempt, _RIDGE_START * (mean_square or 1.0))


def _climb(attempt: Callable[[float], Voted], start: float) -> Voted:
    """The best of the values met on a walk by factors of `_RIDGE_STEP` from `start`, first up, else down."""
    best = attempt(start)
    for factor in (_RIDGE_STEP, 1 / _RIDGE_STEP):
        for _ in range(_RIDGE_MOST_STEPS):
            candidate = attempt(best.ridge * factor)
            if candidate.quality <= best.quality:
                break
            best = candidate
        if best.ridge > start:
            break
    return best
