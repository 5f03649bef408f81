"""Rows of any shape with topics and Zipf labels: speed and memory at sizes of which no real data is at hand.

A row belongs to a subtopic of a topic. Its features are the topic's centre, half of the subtopic's and noise; of its
labels half come from the subtopic's own few, a third from the topic's, the rest from all, each by Zipf's law. So rows
that are near each other share labels, as they do in an encyclopedia, and precision on these rows means that a method
works, not how well it would do elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.datasets.dataset import csr

__all__ = ["generate"]

_SUBTOPICS = 20  # a topic
_SHARES = (0.5, 0.83)  # of labels from the subtopic; from it or the topic
_SPARE = 1.6  # labels drawn for each that is kept, since some are drawn twice


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
    of_subtopic = rng.integers(n_labels, size=(topics * _SUBTOPICS, int(min(n_labels, 3 * per_row + 8))))
    of_topic = rng.integers(n_labels, size=(topics, int(min(n_labels, 30 * per_row + 8))))
    which = rng.random(len(row), np.float32)
    own = subtopic[row]
    label = rng.permutation(n_labels)[_zipf(len(row), n_labels, rng)]
    for chosen, pool, of in (
        (which < _SHARES[0], of_subtopic, own),
        ((which >= _SHARES[0]) & (which < _SHARES[1]), of_topic, own // _SUBTOPICS),
    ):
        label[chosen] = pool[of[chosen], _zipf(int(chosen.sum()), pool.shape[1], rng)]
    # Each label once a row; of those a random choice of as many as are wanted.
    cells = np.unique(row * n_labels + label)
    row, label = cells // n_labels, cells % n_labels
    order = np.lexsort((rng.random(len(cells), np.float32), row))
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    kept = np.sort(order[np.arange(len(order)) - ends[row] < wanted[row]])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=n))])
    return csr(np.ones(len(kept)), label[kept], indptr, n_labels)


def _zipf(size: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ranks 0 … n − 1 with chance about 1/(rank + 1): n^u − 1 for u even in [0, 1)."""
    ranks: NDArray[np.int64] = np.minimum(np.exp(np.log(n + 1) * rng.random(size)) - 1, n - 1).astype(np.int64)
    return ranks
