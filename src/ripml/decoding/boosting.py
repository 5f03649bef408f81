"""Boosted trees: a probability as the logistic function of a sum of small trees, fitted by Newton steps.

Every tree is fitted to the gradients g and the second derivatives h of the logistic loss at the sum of the trees before
it. A leaf with the sums G and H has the value −G/H, and a node is split where ΣG·value of its two children falls most.
Signals are first cut into at most 255 bins at their quantiles, so that the sums of all possible splits are histograms
(Friedman 2001; Ke et al. 2017). Trees grow level by level and are full binary trees, laid out as `ripml.decoding.blend`
keeps them: node i has the children 2i + 1 and 2i + 2, and one that is not split sends everything to its left child.

A signal of which more must never lower the result is split only where the right child has the larger value, and the
values below each side stay on their side of the mean of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.compiled import loops

__all__ = ["Boosting", "Tree", "grow_tree"]

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Fitted = tuple[NDArray[np.uint8], Floats, Floats, float]

_BINS = 255
_LEAST_HESSIAN = 1e-3  # of a child
_TINY = 1e-15  # added to H


@dataclass(frozen=True)
class Boosting:
    """How trees are grown: their number and depth, the least lines of a leaf, and the share of a step that is taken."""

    n_trees: int
    depth: int
    leaf: int
    rate: float = 0.1

    def fit(self, table: Floats, outcome: NDArray[np.bool_], rising: NDArray[np.bool_]) -> Fitted:
        """Trees for lines of signals (n, S): features and thresholds (T, 2^D − 1), values (T, 2^D), and the start.

        `rising` (S,) says which signals must never lower the result. `outcome` (n,) has both values.
        """
        cuts = [_cuts(column) for column in table.T]
        bins = np.empty(table.shape, np.uint8)
        for s, between in enumerate(cuts):
            bins[:, s] = np.searchsorted(between, table[:, s])
        inner = 2**self.depth - 1
        feature = np.zeros((self.n_trees, inner), np.uint8)
        threshold = np.full((self.n_trees, inner), np.inf, np.float32)  # everything goes left
        value = np.empty((self.n_trees, inner + 1), np.float32)
        mean = float(outcome.mean())
        start = float(np.log(mean / (1 - mean)))
        log_odds = np.full(len(table), start)
        for t in range(self.n_trees):
            probability = 1 / (1 + np.exp(-log_odds))
            g, h = np.float32(probability - outcome), np.float32(probability * (1 - probability))
            tree = grow_tree(bins, g, h, rising, self.depth, self.leaf)
            for place in np.flatnonzero(tree.cut >= 0):
                feature[t, place] = tree.feature[place]
                threshold[t, place] = _not_above(cuts[tree.feature[place]][tree.cut[place]])
            value[t] = self.rate * tree.value
            log_odds += value[t][tree.leaf]
        return feature, threshold, value, start


@dataclass(frozen=True)
class Tree:
    """The signal of each inner node and the last bin that goes left, −1 for no split, and the value of each leaf."""

    feature: Ints  # (2^D − 1,)
    cut: Ints
    value: Doubles  # (2^D,)
    leaf: Ints  # (n,) of each line


def grow_tree(bins: NDArray[np.uint8], g: Floats, h: Floats, rising: NDArray[np.bool_], depth: int, leaf: int) -> Tree:
    """A tree for binned signals (n, S), with leaves of at least `leaf` lines."""
    compiled, inner = loops(), 2**depth - 1
    tree = Tree(np.zeros(inner, np.int64), np.full(inner, -1), np.zeros(inner + 1), np.zeros(len(bins), np.int64))
    if compiled is not None:
        out = tree.feature, tree.cut, tree.value, tree.leaf
        compiled.grow_tree(bins, g, h, rising, leaf, _LEAST_HESSIAN, _TINY, *out)
        return tree
    level, node = _Level(np.zeros(1), np.zeros(1), np.full(1, -np.inf), np.full(1, np.inf)), tree.leaf
    for first in (2**d - 1 for d in range(depth)):
        sums = _histograms(bins, node, g, h, first + 1)
        signal, cut = level.best_splits(sums, rising, leaf)
        tree.feature[first : 2 * first + 1], tree.cut[first : 2 * first + 1] = signal, cut
        to_right = (cut >= 0)[node] & (bins[np.arange(len(bins)), signal[node]] > cut[node])
        node = 2 * node + to_right
        level = level.children(sums, signal, cut, rising)
    return Tree(tree.feature, tree.cut, level.value, node)


@dataclass(frozen=True)
class _Level:
    """The N nodes of one level of a tree: ΣG, their values, and the bounds of the values below them; all (N,)."""

    gradient: Doubles
    value: Doubles
    lower: Doubles
    upper: Doubles

    def best_splits(self, sums: Doubles, rising: NDArray[np.bool_], leaf: int) -> tuple[Ints, Ints]:
        """By which signal each node is split, and the last bin that goes left, −1 for no split; both (N,).

        `sums` (N, S, B, 3) has Σg, Σh and the number of lines of each bin and all bins below it.
        """
        left = sums[:, :, :-1]
        right = sums[:, :, -1:] - left
        of_left, of_right = (self._values(side, (slice(None), None, None)) for side in (left, right))
        gain = (self.gradient * self.value)[:, None, None] - left[..., 0] * of_left - right[..., 0] * of_right
        least = np.array([_LEAST_HESSIAN, leaf])
        allowed = (left[..., 1:] >= least).all(axis=-1) & (right[..., 1:] >= least).all(axis=-1)
        allowed &= ~rising[:, None] | (of_left <= of_right)
        flat = np.where(allowed, gain, 0).reshape(len(gain), -1)
        best = flat.argmax(axis=1)
        split = flat[np.arange(len(flat)), best] > 0
        signal, cut = np.divmod(best, gain.shape[2])
        return np.where(split, signal, 0), np.where(split, cut, -1)

    def children(self, sums: Doubles, signal: Ints, cut: Ints, rising: NDArray[np.bool_]) -> _Level:
        """The next level. Of a node that is not split, both children have its value, and the left one its lines."""
        nodes, split = np.arange(len(cut)), cut >= 0
        left = sums[nodes, signal, cut]
        right = sums[nodes, signal, -1] - left
        values = [np.where(split, self._values(side, slice(None)), self.value) for side in (left, right)]
        gradients = [np.where(split, left[:, 0], self.gradient), np.where(split, right[:, 0], 0)]
        middle, bounded = (values[0] + values[1]) / 2, split & rising[signal]
        lower = [self.lower, np.where(bounded, middle, self.lower)]
        upper = [np.where(bounded, middle, self.upper), self.upper]
        return _Level(*(np.stack(pair, axis=1).ravel() for pair in (gradients, values, lower, upper)))

    def _values(self, sums: Doubles, nodes: Any) -> Doubles:
        """−G/H, within the bounds."""
        return np.clip(-sums[..., 0] / (sums[..., 1] + _TINY), self.lower[nodes], self.upper[nodes])


def _histograms(bins: NDArray[np.uint8], node: Ints, g: Floats, h: Floats, n_nodes: int) -> Doubles:
    """Σg, Σh and the number of lines of each node, signal and bin and all bins below it, (N, S, B, 3)."""
    n_signals = bins.shape[1]
    shape = n_nodes, n_signals, _BINS
    cells = ((node[:, None] * n_signals + np.arange(n_signals)) * _BINS + bins).ravel()
    weights = (np.repeat(g, n_signals), np.repeat(h, n_signals), None)
    found = [np.bincount(cells, some, int(np.prod(shape))).reshape(shape) for some in weights]
    return np.cumsum(np.stack(found, axis=-1), axis=2)


def _cuts(column: Floats) -> Doubles:
    """Rising thresholds between the bins of a signal: between all its values, or else at quantiles.

    >>> _cuts(np.array([3.0, 1.0, 1.0], np.float32))
    array([2.])
    """
    values = np.sort(column)
    distinct = values[np.append(True, values[1:] != values[:-1])].astype(np.float64)
    if len(distinct) <= _BINS:
        return np.asarray((distinct[:-1] + distinct[1:]) / 2)
    # The quantiles i/255; one between two values is in their middle.
    ranks = len(values) * np.arange(1, _BINS) / _BINS
    below, above = np.ceil(ranks).astype(np.int64) - 1, np.floor(ranks).astype(np.int64)
    return np.unique((values[below].astype(np.float64) + values[above]) / 2)


def _not_above(threshold: float) -> Any:
    """The largest float32 ≤ threshold, which splits float32 signals exactly as the threshold itself does."""
    rounded = np.float32(threshold)
    return rounded if float(rounded) <= threshold else np.float32(np.nextafter(rounded, np.float32(-np.inf)))
