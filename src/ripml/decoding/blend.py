"""The blend: the signals about a candidate label, combined into one score.

For every candidate label of a row there are a few signals: the value ŷ_l of the regression, the votes of neighbours in
the embedding, the votes of similar rows, how often the label was seen, and where its value stands among the row's
others. How they combine (a rare label needs fewer votes than a common one, a low value means more in a row where all
values are low) is learnt by boosted trees on left-out training rows, whose true labels are known. The score of a label
is the probability that it is right.

Few trees of small depth are kept as plain arrays, full binary trees laid out level by level: node i has the children
2i + 1 and 2i + 2, so a model is saved without pickle and evaluated with array look-ups alone.

A score must not jump when a signal moves by rounding alone: a model that learnt and forgot a row would differ from one
that never held it. So the step of a node is a short slope, on which a candidate takes both ways in part; the rank of a
value changes gradually where two values are almost equal; and a candidate that barely became one has a score near 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec, check_arrays
from ripml.base.compiled import loops
from ripml.base.parallel import blocks, map_blocks
from ripml.decoding.boosting import Boosting
from ripml.decoding.evidence import NAME_SIGNALS

__all__ = ["Candidates", "Trees", "boosted_trees", "fit_blend", "fit_trees"]

Floats = NDArray[np.float32]

_BOOSTING = Boosting(n_trees=40, depth=4, leaf=40)  # of each half
# Names bring more signals and more candidates, most of them wrong: that takes more and smaller steps. More trees
# also help where there are many rows, and cost little beside the kernel of the nearest ones.
_MORE_TREES = Boosting(n_trees=150, depth=5, leaf=40, rate=0.05)
_LEAST_ROWS = 100  # left-out rows of a half below which trees would only learn noise
LEARNT = np.float32(1 - 1e-4)  # the share of the trees in a score; the rest breaks ties
# Width of the slope at the threshold of a node: some thousand times the rounding error of a signal.
SLOPE = np.float32(2e-3)
# Those of other signals; frequencies, and what is counted in texts, are not subject to rounding.
_SLOPES = {"rank": 1.0, "frequency": 0.0, **dict.fromkeys(NAME_SIGNALS, 0.0)}
_MONOTONE = ("value", "votes", "similar", "local", "named")  # signals of which more never lowers a score
_ROWS_AT_A_TIME = 4096  # candidates; nodes of all trees for them stay in the cache
_PAIRS_AT_A_TIME = 2048  # candidates on a slope of a tree; arrays of all its nodes for them stay in the cache


@dataclass(frozen=True)
class Candidates:
    """The best candidate labels of each row: `labels` (n, K), −1 where there are fewer, and signals by name, (n, K)."""

    labels: NDArray[np.int64]
    signals: dict[str, Floats]
    margin: Floats | None = None  # (n, K) by how much a candidate is ahead of the best label that is not one

    @classmethod
    def joined(cls, parts: Sequence[Candidates]) -> Candidates:
        """The rows of these, one after the other."""
        if len(parts) == 1:
            return parts[0]
        signals = {name: np.concatenate([part.signals[name] for part in parts]) for name in parts[0].signals}
        margins = [part.margin for part in parts if part.margin is not None]
        margin = np.concatenate(margins) if margins else None
        return cls(np.concatenate([part.labels for part in parts]), signals, margin)

    def table(self) -> Floats:
        """One line per candidate, one column per signal: (n·K, S), with lines for missing candidates too."""
        return np.stack([signal.ravel() for signal in self.signals.values()], axis=1)

    def __getitem__(self, rows: Any) -> Candidates:
        signals = {name: signal[rows] for name, signal in self.signals.items()}
        return Candidates(self.labels[rows], signals, None if self.margin is None else self.margin[rows])

    def simple_score(self) -> Floats:
        """The mean of the signals of regression and neighbours, in [0, 1].

        It is the score where there are too few rows to learn trees, and breaks ties elsewhere.
        """
        found = [np.clip(self.signals[name], 0, 1) for name in _MONOTONE if name in self.signals]
        mean: Floats = np.mean(found, axis=0, dtype=np.float32)
        return mean

    def scores(self, trees: Trees | None, n_jobs: int | None = None) -> Floats:
        """The score of each candidate, (n, K) in [0, 1]."""
        scores = simple = self.simple_score()
        border = 25 * SLOPE  # rounding is not averaged by trees here, so the slope is wider
        if trees is not None:
            border = SLOPE
            learnt = trees.probabilities(self.table(), n_jobs, _widths(self.signals)).reshape(simple.shape)
            scores = np.asarray(LEARNT * learnt + (1 - LEARNT) * simple, np.float32)
        return scores if self.margin is None else scores * np.clip(self.margin / border, 0, 1)


@dataclass(frozen=True)
class Trees:
    """T trees of depth D: `feature` and `threshold` (T, 2^D − 1), `value` (T, 2^D), and the log-odds at the start."""

    feature: NDArray[np.uint8]
    threshold: Floats
    value: Floats
    start: float

    def averaged(self, other: Trees) -> Trees:
        """Trees whose log-odds are the mean of these and the others'."""
        value = np.concatenate([self.value, other.value]) / np.float32(2)
        feature = np.concatenate([self.feature, other.feature])
        threshold = np.concatenate([self.threshold, other.threshold])
        return Trees(feature, threshold, value, (self.start + other.start) / 2)

    def to_arrays(self, prefix: str = "tree") -> dict[str, NDArray[Any]]:
        """As plain arrays, whose names begin with `prefix`."""
        parts: dict[str, NDArray[Any]] = {
            "feature": self.feature, "threshold": self.threshold, "value": self.value,
            "start": np.array([self.start]),
        }  # fmt: skip
        return {f"{prefix}_{name}": array for name, array in parts.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_signals: int, prefix: str = "tree") -> Trees:
        """The inverse of `to_arrays`; ValueError where they contradict each other."""
        specs = {
            f"{prefix}_value": ArraySpec("f", ("trees", "leaves"), finite=True),
            f"{prefix}_feature": ArraySpec("uint8", ("trees", "inner nodes"), below=n_signals),
            f"{prefix}_threshold": ArraySpec("f", ("trees", "inner nodes"), most=np.inf),  # not NaN
            f"{prefix}_start": ArraySpec("f", (1,), finite=True),
        }
        value, feature, threshold, start = check_arrays(specs, arrays).values()
        leaves = value.shape[1]
        if leaves < 1 or leaves & (leaves - 1) or feature.shape[1] != leaves - 1:
            raise ValueError(f"trees with {leaves} leaves and {feature.shape[1]} inner nodes are not full binary trees")
        return cls(feature, threshold, value, float(start[0]))

    def probabilities(self, table: Floats, n_jobs: int | None = None, slopes: Floats | None = None) -> Floats:
        """σ(start + Σ_t value_t), (n,), for signals (n, S); thresholds are steps, or slopes of these widths, (S,)."""
        out = np.empty(len(table), np.float32)
        widths = np.zeros(table.shape[1], np.float32) if slopes is None else slopes
        compiled = loops()

        def fill_compiled(rows: slice) -> None:
            trees = self.feature, self.threshold, self.value, self.start
            compiled.tree_probabilities(np.ascontiguousarray(table[rows].T), *trees, *_steps(widths), out[rows])

        if compiled is not None:
            map_blocks(fill_compiled, blocks(len(table), _ROWS_AT_A_TIME), n_jobs)
            return out
        n_trees, inner = self.feature.shape
        base = np.arange(n_trees, dtype=np.intp) * inner
        feature, threshold = self.feature.ravel().astype(np.intp), self.threshold.ravel()
        half = widths / 2
        value, leaf_base = self.value.ravel(), np.arange(n_trees, dtype=np.intp) * self.value.shape[1]

        def fill(rows: slice) -> None:
            part = table[rows]
            line = (np.arange(len(part), dtype=np.intp) * part.shape[1])[:, None]
            flat = np.ascontiguousarray(part).ravel()
            node = np.zeros((len(part), n_trees), np.intp)
            on_slope = np.zeros(node.shape, bool)
            for _ in range(_depth(self.value)):
                at = node + base
                signal = feature.take(at)
                above = flat.take(line + signal) - threshold.take(at)
                on_slope |= np.abs(above) < half.take(signal)
                node += node + 1
                node += above > 0
            values = value.take(node - inner + leaf_base)
            at_slope, tree = np.nonzero(on_slope)
            values[at_slope, tree] = self._on_slopes(part[at_slope], tree, widths)
            log_odds = values.sum(axis=1, dtype=np.float64) + self.start
            out[rows] = 1 / (1 + np.exp(-log_odds))

        map_blocks(fill, blocks(len(table), _ROWS_AT_A_TIME), n_jobs)
        return out

    def _on_slopes(self, lines: Floats, trees: NDArray[np.intp], widths: Floats) -> Floats:
        """The values of lines of signals (p, S) in one tree each (p,), as the mean of all leaves that they reach."""
        out, feature = np.empty(len(lines), np.float32), self.feature.astype(np.intp)
        slope = np.divide(1, widths, out=np.zeros_like(widths), where=widths > 0)
        for pairs in blocks(len(lines), _PAIRS_AT_A_TIME):
            part, tree = lines[pairs], trees[pairs]
            place = feature.take(tree, axis=0)
            steepness = slope.take(place)
            place += (np.arange(len(part)) * part.shape[1])[:, None]
            above = part.ravel().take(place)
            above -= self.threshold.take(tree, axis=0)
            step = above > 0
            above *= steepness
            above += np.float32(0.5)
            # A signal without a slope is a step; its threshold may be one of its values.
            right = np.where(steepness > 0, np.minimum(np.maximum(above, 0, out=above), 1, out=above), step)
            share = np.ones((len(part), 1), np.float32)
            for level in range(_depth(self.value)):
                below = np.empty((len(part), 2**level, 2), np.float32)
                np.multiply(share, right[:, 2**level - 1 : 2 ** (level + 1) - 1], out=below[:, :, 1])
                np.subtract(share, below[:, :, 1], out=below[:, :, 0])
                share = below.reshape(len(part), 2 ** (level + 1))
            out[pairs] = np.einsum("pl,pl->p", share, self.value.take(tree, axis=0))
        return out


@cache
def steps_of(signals: tuple[str, ...]) -> tuple[Floats, Floats]:
    """The steepness and the offset of the slopes of these signals, see `_steps`."""
    return _steps(_widths(signals))


def _widths(signals: Iterable[str]) -> Floats:
    """The widths of the slopes of these signals."""
    return np.array([_SLOPES.get(name, SLOPE) for name in signals], np.float32)


def _steps(widths: Floats) -> tuple[Floats, Floats]:
    """The steepness and the offset of slopes of these widths: s above a threshold, s·steepness + offset of a candidate
    goes to the right, between 0 and 1. A width of 0 is a step."""
    sloped = widths > 0
    steepness = np.divide(1, widths, out=np.full(len(widths), 1e30, np.float32), where=sloped)
    return steepness, np.where(sloped, np.float32(0.5), np.float32(0))


def _depth(value: Floats) -> int:
    return int(value.shape[1]).bit_length() - 1


def fit_trees(candidates: Candidates, right: NDArray[np.bool_]) -> Trees | None:
    """Trees for these candidates of rows left out, `right` (n, K) where a candidate is one of the row's labels.

    None where there are too few rows to learn from. More votes or a larger value never lower a score.
    """
    filled = candidates.labels.ravel() >= 0
    outcome = right.ravel()[filled]
    if len(candidates.labels) < _LEAST_ROWS or outcome.all() or not outcome.any():
        return None
    rising = np.array([name in _MONOTONE for name in candidates.signals])
    boosting = _MORE_TREES if not candidates.signals.keys().isdisjoint(("named", "local")) else _BOOSTING
    return boosted_trees(candidates.table()[filled], outcome, rising, boosting)


def boosted_trees(
    table: Floats, outcome: NDArray[np.bool_], rising: NDArray[np.bool_], boosting: Boosting = _BOOSTING
) -> Trees:
    """Trees for the probability of an outcome (n,) by signals (n, S), of which `rising` ones never lower it."""
    return Trees(*boosting.fit(table, outcome, rising))


def fit_blend(candidates: Candidates, right: NDArray[np.bool_], n_jobs: int | None) -> tuple[Trees | None, Floats]:
    """The mean of trees learnt on each half of the rows, and the scores of each half by the trees of the other."""
    half = np.arange(len(right)) % 2 == 0
    first, second = map_blocks(lambda rows: fit_trees(candidates[rows], right[rows]), (half, ~half), n_jobs)
    if first is None or second is None:
        return None, candidates.scores(None)
    values = np.empty(candidates.labels.shape, np.float32)
    values[~half] = candidates[~half].scores(first, n_jobs)
    values[half] = candidates[half].scores(second, n_jobs)
    return first.averaged(second), values
