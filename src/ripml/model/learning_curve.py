"""What more rows would bring: models of 1/8, 1/4 and 1/2 of the rows and of all, on the same held-out rows.

The parts are nested, and each is fitted as all rows are, with everything that a fit chooses. Each doubling gains a
little less than the one before it, as errors fall with a power of n. So what twice the rows would bring is told as
three quarters of the mean of the last two gains, one of which alone is too uncertain:

    y(2n) ≈ y(n) + 3/4 · (y(n) − y(n/4))/2

The factor was chosen on bibtex. The same rule predicts y(n) from the smaller parts; by how much that `missed` is told
with each curve. Errors are standard errors over held-out rows, which all models share; what the rule itself may be off
comes on top.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, check_count
from ripml.decoding.scores import keep_above, outcomes
from ripml.model.left_out import ENOUGH_ROWS

__all__ = ["CurvePoint", "LearningCurve", "Outcome", "extrapolated", "measure_learning_curve"]

_log = logging.getLogger("ripml")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Outcome = tuple[Any, Any, float]  # labels and scores of held-out rows, CSR (h, L), and the threshold of the model
FitPart = Callable[[Ints, Ints], Outcome]  # numbers of training rows and of held-out rows

_HELD_OUT = 0.2  # of all rows, at most
_MOST_HELD_OUT = 3000
_SAMPLES = 200  # of held-out rows, for standard errors
_SHRINKING = 0.75  # what a doubling gains, of the mean of the two before it


@dataclass(frozen=True)
class CurvePoint:
    """Figures of a model of so many rows, and their standard errors."""

    rows: int
    figures: dict[str, float]  # P@1, P@3, P@5, and micro-F1 of the labels above the threshold
    errors: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class LearningCurve:
    """Figures by the number of training rows."""

    held_out: int  # rows, which no model was fitted on
    points: tuple[CurvePoint, ...]  # of ever more rows
    twice: CurvePoint  # what is to be expected of twice as many rows as the last
    missed: dict[str, float]  # of the last point, how much it is above what the points before it predicted

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def measure_learning_curve(n: int, group: Ints, fit: FitPart, parts: int = 4, seed: int = 0) -> LearningCurve:
    """The curve of n rows, of which those of the same `group` are copies: copies of held-out rows are not learnt.

    `fit` gives what a model of some rows makes of others.
    """
    check_count("parts", parts, least=3)
    random = np.random.default_rng(seed)
    order = random.permutation(n)
    held = np.sort(order[: min(int(_HELD_OUT * n), _MOST_HELD_OUT)])
    rest = order[len(held) :]
    rest = rest[~np.isin(group[rest], group[held])]
    if len(rest) >> (parts - 1) < ENOUGH_ROWS or len(held) < ENOUGH_ROWS:
        raise DataError(
            f"{n:,} rows are too few for a learning curve: its smallest part must have {ENOUGH_ROWS} rows, so about "
            f"{ENOUGH_ROWS * 5 * 2 ** (parts - 1) // 4:,} rows are needed."
        )
    weights = random.multinomial(len(held), np.full(len(held), 1 / len(held)), _SAMPLES).astype(np.float64)
    weights = np.concatenate([np.ones((1, len(held))), weights])  # the first is of the rows themselves
    sizes, samples = [len(rest) >> shift for shift in range(parts)][::-1], []
    for size in sizes:
        _log.info("a model of %s of %s rows", f"{size:,}", f"{len(rest):,}")
        samples.append(_figures(*fit(np.sort(rest[:size]), held), weights))
    return _curve(len(held), sizes, samples)


def _curve(held: int, sizes: Sequence[int], samples: Sequence[dict[str, Floats]]) -> LearningCurve:
    names = list(samples[0])
    table = np.array([[point[name] for name in names] for point in samples])  # (points, figures, 1 + samples)

    def point(rows: int, values: Floats) -> CurvePoint:
        figures, errors = values[:, 0], values[:, 1:].std(axis=1)
        return CurvePoint(
            rows,
            {name: round(float(value), 4) for name, value in zip(names, figures, strict=True)},
            {name: round(float(error), 4) for name, error in zip(names, errors, strict=True)},
        )

    before = extrapolated(table[:-1])
    return LearningCurve(
        held_out=held,
        points=tuple(point(size, values) for size, values in zip(sizes, table, strict=True)),
        twice=point(2 * sizes[-1], extrapolated(table)),
        missed={name: round(float(off), 4) for name, off in zip(names, (table[-1] - before)[:, 0], strict=True)},
    )


def extrapolated(table: Floats) -> Floats:
    """Figures for twice the rows of the last point, (f, s), from those (p, f, s) of points that double.

    >>> extrapolated(np.array([0.5, 0.6, 0.68])[:, None, None]).round(4).tolist()
    [[0.7475]]
    """
    steps = min(len(table) - 1, 2)
    return np.asarray(np.clip(table[-1] + _SHRINKING * (table[-1] - table[-1 - steps]) / steps, 0, 1))


def _figures(truth: Any, scores: Any, threshold: float, weights: Floats) -> dict[str, Floats]:
    """P@k, and F1 of all predicted labels, for rows that count by these weights (s, h).

    Not their precision and recall: each fit trades one for the other by its own threshold, which says nothing of rows.
    """
    n, found = truth.shape[0], {}
    right = outcomes(truth, scores)
    row = np.repeat(np.arange(n), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, row))
    place = np.arange(len(order)) - scores.indptr[row]
    for k in (1, 3, 5):
        first = order[place < k]
        hits = np.bincount(row[first], right[first], n)
        found[f"P@{k}"] = weights @ hits / (k * n)
    predicted = keep_above(scores, threshold)
    hits = np.bincount(np.repeat(np.arange(n), np.diff(predicted.indptr)), outcomes(truth, predicted), n)
    right_ones, said, carried = (
        weights @ counts for counts in (hits, np.diff(predicted.indptr), np.diff(truth.indptr).astype(np.float64))
    )
    found["micro-F1"] = 2 * right_ones / np.maximum(said + carried, 1)
    return found
