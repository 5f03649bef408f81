"""Generated rows of any shape with topics and Zipf labels, to measure speed and memory at sizes without real data.

A row belongs to a subtopic of a topic. Its features are the topic's centre, half of the subtopic's centre and noise; of
its labels half come from the few of the subtopic, a third from those of the topic, the rest from all, each by Zipf's
law. So nearby rows share labels, as in an encyclopedia. Precision on these rows shows that a method works, not how well
it does on real data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.datasets.dataset import csr

__all__ = ["generate"]

_SUBTOPICS = 20  # per topic
_SHARES = (0.5, 0.83)  # cumulative shares of labels from the subtopic, and from the topic
_SPARE = 1.6  # labels drawn for each one kept, since some are drawn twice


def generate(
    n_rows: int,
    n_features: int = 400,
    n_labels: int = 359_524,
    labels_per_row: float = 32.55,
    n_topics: int | None = None,
    random_state: int = 0,
) -> tuple[NDArray[np.float32], Any]:
    """Return features (n, d), dense float32, and labels, CSR (n, L); every row has a label.

    The defaults are the shape of the paper's Wikipedia; there is a topic for every 1,000 rows.

    >>> X, Y = generate(500, n_features=8, n_labels=100, labels_per_row=4.0)
    >>> X.shape, Y.shape, round(Y.nnz / 500)
    ((500, 8), (500, 100), 4)
    """
    if min(n_rows, n_features, n_labels) < 1 or not 1 <= labels_per_row <= n_labels / 4:
        raise ParameterError(
            f"`n_rows`, `n_features` and `n_labels` must be ≥ 1 and `labels_per_row` from 1 to a quarter of the "
            f"labels; got {n_rows}, {n_features}, {n_labels} and {labels_per_row}."
        )
    rng = np.random.default_rng(random_state)
    topics = n_topics or max(1, n_rows // 1000)
    subtopic = rng.integers(topics * _SUBTOPICS, size=n_rows)
    X = rng.standard_normal((n_rows, n_features), np.float32)
    X *= 0.5
    X += rng.standard_normal((topics, n_features), np.float32)[subtopic // _SUBTOPICS]
    X += 0.5 * rng.standard_normal((topics * _SUBTOPICS, n_features), np.float32)[subtopic]
    return X, _labels(subtopic, topics, n_labels, labels_per_row, rng)


def _labels(subtopic: NDArray[Any], topics: int, n_labels: int, per_row: float, rng: np.random.Generator) -> Any:
    n = len(subtopic)
    wanted = np.minimum(1 + rng.poisson(per_row - 1, n), n_labels // 2)
    drawn = np.ceil(_SPARE * wanted).astype(np.int64) + 8
    row = np.repeat(np.arange(n, dtype=np.int64), drawn)
    subtopic_labels = rng.integers(n_labels, size=(topics * _SUBTOPICS, int(min(n_labels, 3 * per_row + 8))))
    topic_labels = rng.integers(n_labels, size=(topics, int(min(n_labels, 30 * per_row + 8))))
    origin = rng.random(len(row), np.float32)
    row_subtopic = subtopic[row]
    label = rng.permutation(n_labels)[_zipf(len(row), n_labels, rng)]
    for mask, pools, group in (
        (origin < _SHARES[0], subtopic_labels, row_subtopic),
        ((origin >= _SHARES[0]) & (origin < _SHARES[1]), topic_labels, row_subtopic // _SUBTOPICS),
    ):
        label[mask] = pools[group[mask], _zipf(int(mask.sum()), pools.shape[1], rng)]
    # Each label once per row; of these, a random choice of the wanted number.
    cells = np.unique(row * n_labels + label)
    row, label = cells // n_labels, cells % n_labels
    order = np.lexsort((rng.random(len(cells), np.float32), row))
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    kept = np.sort(order[np.arange(len(order)) - ends[row] < wanted[row]])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=n))])
    return csr(np.ones(len(kept)), label[kept], indptr, n_labels)


def _zipf(size: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return ranks 0 … n − 1 with probability about 1/(rank + 1): n^u − 1 for u uniform in [0, 1)."""
    ranks: NDArray[np.int64] = np.minimum(np.exp(np.log(n + 1) * rng.random(size)) - 1, n - 1).astype(np.int64)
    return ranks
