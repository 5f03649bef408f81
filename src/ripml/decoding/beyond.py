"""Labels beyond the candidates of a row, in an order that is better than their frequency.

A row has scores for some dozens of labels. Where a set must hold a given share of the right ones, it needs others too,
and the order of these decides how many. So each of them has a *level*, the logarithm of the probability that it is
right where it is no candidate, by a logistic regression on what costs little for all labels of a row:

    log f      of f rows that carry it
    value      ⟨Φ_l, ẑ⟩, what the regression says of it
    near       the share of the 200 and of the 1,000 training rows most similar to the query that carry it, weighed by
               the kernel; where no rows are kept, of the label sets of nearest direction

each of the last three also as its logarithm, as most of the difference is between little and nothing. Where none of the
1,000 carries a label, only its frequency and its value are left, and these mean more than elsewhere: such labels have
an intercept and weights of log f and of the value of their own, which put them on one scale with all others.

**Which rows learn, and which calibrate.** The regression is learnt once, on all left-out rows: their right labels that
were no candidates, and labels at random; answers use its weights. The levels that sets are calibrated on are those of
the same rows, but each row's by weights that were learnt without it: one Newton step from the weights of all, which for
a dozen weights and some thousands of rows is the regression without the row but for terms of the second order. So a
left-out row meets an order that all other left-out rows chose, and a new row one that all of them chose: the same
difference of one row as between the models that predict the two. (Weights of the one half for the other put labels that
nothing speaks for at two different levels, and a threshold that suits both takes nearly all labels.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.arrays import csr_of
from ripml.base.parallel import blocks, map_blocks
from ripml.decoding.fitted import Cluster, FittedDecoder, LeftOut, Surroundings

__all__ = ["N_WEIGHTS", "Others", "fit_others", "levels_of_labels", "logistic"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

N_WEIGHTS = 12  # of 1, log f, three signals with their logarithms, and the first four again without a near row
_LEAST = 1e-5  # below which a signal is as good as nothing
_FEWEST = 100  # right labels beyond the candidates, from which weights are learnt
_PENALTY = 10.0  # C of scikit-learn
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
    w = weights.astype(np.float32)
    log_f, values = np.log(np.maximum(frequency.astype(np.float32), 1)), around.values
    logs = np.log(np.maximum(values, np.float32(_LEAST)))
    total = w[0] + w[1] * log_f + w[2] * values + w[3] * logs
    far = w[8] + w[9] * log_f + w[10] * values + w[11] * logs
    for place, near in ((4, around.near), (6, around.wider)):
        # Of most labels no near row has any, so only what differs from that is added.
        total += w[place + 1] * np.float32(np.log(_LEAST))
        if near is not None:
            row = np.repeat(np.arange(near.shape[0]), np.diff(near.indptr))
            more = np.log(np.maximum(near.data, _LEAST)) - np.log(_LEAST)
            total[row, near.indices] += w[place] * near.data + w[place + 1] * more
            if place == 6:
                far[row, near.indices] *= near.data <= 0
    total += far
    levels: Floats = np.where(frequency > 0, -np.logaddexp(0, -total.astype(np.float64)), -np.inf)
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
    # Right labels that were no candidates, and labels at random, most of which are wrong.
    row = np.repeat(np.arange(n), np.diff(truth.indptr))
    stored = np.repeat(np.arange(n, dtype=np.int64), np.diff(scores.indptr)) * L + scores.indices
    carried = row * L + truth.indices
    missing = ~np.isin(carried, stored) & (frequency[truth.indices] > 1)  # labels that no other row carries are unknown
    row, label = row[missing], truth.indices[missing].astype(np.int64)
    if len(row) < _FEWEST:
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
    table[:, 8:] = table[:, :4] * (table[:, 6:7] <= 0)
    # Labels at random stand for all there are, so that levels are logarithms of probabilities.
    weights, without = logistic(table, right, np.where(right, 1.0, n * L / drawn), rows, n)
    levels = -np.logaddexp(0, -(table[right] * without[row]).sum(axis=1))
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    # Sizes are counted on rows of the largest cluster.
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


def logistic(table: Floats, right: NDArray[np.bool_], weight: Floats, row: Ints, n: int) -> tuple[Floats, Floats]:
    """The weights of a logistic regression, and those without each of n rows, (n, N_WEIGHTS).

    Weights of what is the same for all labels are 0.
    """
    from sklearn.linear_model import LogisticRegression

    mean, spread = table.mean(axis=0), table.std(axis=0)
    varied = spread > 0
    scaled, weight = (table[:, varied] - mean[varied]) / spread[varied], weight / weight.mean()
    fitted = LogisticRegression(C=_PENALTY, max_iter=500, solver="newton-cholesky")
    fitted.fit(scaled, right, sample_weight=weight)
    # Without a row, the gradient at these weights is that of its labels with the opposite sign.
    scaled = np.column_stack([scaled, np.ones(len(scaled))])
    found = np.append(fitted.coef_[0], fitted.intercept_)
    share = 1 / (1 + np.exp(-scaled @ found))
    curvature = (scaled * (weight * share * (1 - share))[:, None]).T @ scaled
    curvature[np.diag_indices(varied.sum())] += 1 / _PENALTY
    pull = csr_array((weight * (right - share), (row, np.arange(len(row)))), shape=(n, len(row))) @ scaled
    every = np.vstack([found, found - np.linalg.solve(curvature, pull.T).T])
    weights = np.zeros((1 + n, table.shape[1]))
    weights[:, varied] = every[:, :-1] / spread[varied]
    weights[:, 0] = every[:, -1] - weights @ mean
    return weights[0], weights[1:]
