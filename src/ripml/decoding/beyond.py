"""Labels beyond the candidates of a row, in an order that is better than their frequency.

A row has scores for some dozens of labels. Where a set must hold a given share of the right ones, it needs others too,
and the order of these decides how many. So each of them has a *level*, the logarithm of the probability that it is
right where it is no candidate, by a logistic regression on what costs little for all labels of a row:

    log f      of f rows that carry it
    value      ⟨Φ_l, ẑ⟩, what the regression says of it
    near       the share of the 200 and of the 1,000 training rows most similar to the query that carry it, weighed by
               the kernel; where no rows are kept, of the label sets of nearest direction

each of the last three also as its logarithm, as most of the difference is between little and nothing. The regression
is learnt on left-out rows: their right labels that were no candidates, and labels at random. It is learnt on each half
of these rows, the levels of each half are those by the weights of the other, and answers use the mean of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import csr_of
from ripml.base.parallel import blocks, map_blocks
from ripml.decoding.fitted import Cluster, FittedDecoder, LeftOut, Surroundings

__all__ = ["N_WEIGHTS", "Others", "fit_others", "levels_of_labels"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

N_WEIGHTS = 8  # of the intercept, log f, and three signals with their logarithms
_LEAST = 1e-5  # below which a signal is as good as nothing
_FEWEST = 50  # right labels beyond the candidates of half the rows, from which weights are learnt
_AT_RANDOM = 20  # labels at random for each of these
_ROW_BLOCK = 256
_COUNTED, _COUNTED_LEVELS = 300, 6_000_000  # left-out rows, and labels of them, that sizes of sets are counted on


@dataclass(frozen=True)
class Others:
    """What left-out rows say of labels that were none of their candidates."""

    weights: Floats  # (N_WEIGHTS,)
    right: Any  # CSR (n, L), the levels of the right ones
    counted: Floats  # the levels of all of them in some of the rows, rising …
    n_counted: int  # … and how many rows these are

    def more(self, levels: Floats) -> Floats:
        """The mean number of them in a row at or above each of these levels."""
        return (len(self.counted) - np.searchsorted(self.counted, levels, "left")) / max(self.n_counted, 1)


def levels_of_labels(weights: Floats, around: Surroundings, frequency: Ints) -> Floats:
    """The levels of all labels for a block of rows, (n, L); −∞ for those that no row carries."""
    f = frequency.astype(np.float32)
    w = weights.astype(np.float32)
    total = around.values * w[2]
    total += w[3] * np.log(np.maximum(around.values, np.float32(_LEAST)))
    total += w[0] + w[1] * np.log(np.maximum(f, 1))
    for place, near in ((4, around.near), (6, around.wider)):
        # Of most labels no near row has any, so only what differs from that is added.
        total += w[place + 1] * np.float32(np.log(_LEAST))
        if near is not None:
            row = np.repeat(np.arange(near.shape[0]), np.diff(near.indptr))
            logs = np.log(np.maximum(near.data, _LEAST)) - np.log(_LEAST)
            total[row, near.indices] += w[place] * near.data + w[place + 1] * logs
    levels: Floats = np.where(f > 0, -np.logaddexp(0, -total.astype(np.float64)), -np.inf)
    return levels


def fit_others(
    decoder: FittedDecoder,
    clusters: Sequence[Cluster],
    left_out: Sequence[LeftOut],
    truth: Any,
    scores: Any,
    frequency: Ints,
    n_jobs: int | None,
) -> Others | None:
    """From left-out rows of clusters, their labels and scores, CSR (n, L); None where there is too little to learn."""
    if not decoder.leaves_out:
        return None
    starts = np.cumsum([0, *(rows.truth.shape[0] for rows in left_out)])
    n, L = truth.shape
    half = np.arange(n) % 2
    # Right labels that were no candidates, and labels at random, most of which are wrong.
    row = np.repeat(np.arange(n), np.diff(truth.indptr))
    stored = np.repeat(np.arange(n, dtype=np.int64), np.diff(scores.indptr)) * L + scores.indices
    carried = row * L + truth.indices
    missing = ~np.isin(carried, stored) & (frequency[truth.indices] > 1)  # labels that no other row carries are unknown
    row, label = row[missing], truth.indices[missing].astype(np.int64)
    if np.bincount(half[row], minlength=2).min() < _FEWEST:
        return None
    random = np.random.default_rng(0)
    drawn = _AT_RANDOM * len(row)
    some_row, some_label = random.integers(0, n, drawn), random.integers(0, L, drawn)
    taken = np.concatenate([stored, carried])
    is_other = ~np.isin(some_row * L + some_label, taken) & (frequency[some_label] > 0)
    rows = np.concatenate([row, some_row[is_other]])
    labels = np.concatenate([label, some_label[is_other]])
    right = np.arange(len(rows)) < len(row)
    table = np.empty((len(rows), N_WEIGHTS))
    table[:, 0], table[:, 1] = 1, np.log(frequency[labels] - right)
    order = np.argsort(rows, kind="stable")
    tasks = [
        (c, part, slice(start + part.start, start + part.stop))
        for c, start in enumerate(starts[:-1].tolist())
        for part in blocks(left_out[c].truth.shape[0], _ROW_BLOCK)
    ]

    def fill(task: tuple[int, slice, slice]) -> None:
        c, part, place = task
        found = decoder.surroundings(clusters[c], left_out[c].X[part], left_out[c][part])
        mine = order[slice(*np.searchsorted(rows[order], (place.start, place.stop)))]
        for i, signal in enumerate(found.at(rows[mine] - place.start, labels[mine])):
            table[mine, 2 + 2 * i], table[mine, 3 + 2 * i] = signal, np.log(np.maximum(signal, _LEAST))

    map_blocks(fill, tasks, n_jobs)
    # The share of labels at random among all there are makes levels of both halves comparable.
    weight = np.where(right, 1.0, n * L / drawn)
    learnt = [_logistic(table[half[rows] == h], right[half[rows] == h], weight[half[rows] == h]) for h in (0, 1)]
    crossed = np.where(half[row][:, None] == 0, learnt[1], learnt[0])
    levels = -np.logaddexp(0, -(table[right] * crossed).sum(axis=1))
    weights = (learnt[0] + learnt[1]) / 2
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    # Sizes are counted on rows of the largest cluster, with the weights of the other half.
    c = int(np.argmax(np.diff(starts)))
    n_counted = min(_COUNTED, max(1, _COUNTED_LEVELS // L), left_out[c].truth.shape[0])
    counted = []
    for part in blocks(n_counted, _ROW_BLOCK):
        found = decoder.surroundings(clusters[c], left_out[c].X[part], left_out[c][part])
        every = levels_of_labels(weights, found, frequency)
        mine = scores[starts[c] + part.start : starts[c] + part.stop]
        every[np.repeat(np.arange(mine.shape[0]), np.diff(mine.indptr)), mine.indices] = -np.inf
        counted.append(every[np.isfinite(every)])
    return Others(weights, csr_of(levels, label, ends, L), np.sort(np.concatenate(counted)), n_counted)


def _logistic(table: Floats, right: NDArray[np.bool_], weight: Floats) -> Floats:
    """The weights of a logistic regression; those of signals that are the same for all labels are 0."""
    from sklearn.linear_model import LogisticRegression

    mean, spread = table.mean(axis=0), table.std(axis=0)
    varied = spread > 0
    fitted = LogisticRegression(C=10.0, max_iter=500)
    fitted.fit((table[:, varied] - mean[varied]) / spread[varied], right, sample_weight=weight / weight.mean())
    weights = np.zeros(table.shape[1])
    weights[varied] = fitted.coef_[0] / spread[varied]
    weights[0] = fitted.intercept_[0] - weights @ mean
    return weights
