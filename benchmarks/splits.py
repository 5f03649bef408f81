"""Labels that may be two: how often labels are named that are one cloud, and labels that were joined of two.

    RIPML_DATA=… .venv/bin/python benchmarks/splits.py [--quick] [--json FILE]

One cloud is made of a real label by permuting each feature among its rows: what is left is how often each word occurs.
Two labels of the 200 most frequent are joined at random, equally many rows of each; some pairs are about the same, so
that not all joined labels are two. Of the labels as they are nobody knows the truth. Nothing is fitted.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse
from harness import Row, finish, has_data, options

from ripml import datasets
from ripml.model.splits import LEAST_ROWS, LEVEL, halves_of, two_groups_are_there

MOST_ROWS, LABELS, JOINED = 400, 200, 100


def is_named(X: Any, random: np.random.Generator) -> bool:
    """Whether rows, CSR, are taken for two groups."""
    p, _, agreement = two_groups_are_there(halves_of(X, random), random)
    return p <= LEVEL and agreement >= 0.5


def measured(name: str) -> list[Row]:
    """The figures of a data set."""
    train, random = datasets.load(name)[0], np.random.default_rng(0)
    X, Y = scipy.sparse.csr_array(train.X, dtype=np.float64), scipy.sparse.csc_array(train.Y)
    lengths = np.sqrt(np.bincount(np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.data**2, X.shape[0]))
    X.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(X.indptr))
    frequency = np.diff(Y.indptr)
    labels = [label for label in np.argsort(-frequency)[:LABELS].tolist() if frequency[label] >= LEAST_ROWS]

    def rows_of(label: int, most: int = MOST_ROWS) -> Any:
        rows = Y.indices[Y.indptr[label] : Y.indptr[label + 1]]
        return rows if len(rows) <= most else np.sort(random.choice(rows, most, False))

    def permuted(label: int) -> Any:
        mine = X[rows_of(label)].toarray()
        return scipy.sparse.csr_array(random.permuted(mine[:, mine.any(axis=0)], axis=0))

    def joined() -> Any:
        one, other = random.choice(labels, 2, False).tolist()
        n = int(min(frequency[one], frequency[other], MOST_ROWS // 2))
        return X[np.unique(np.concatenate([rows_of(one, n), rows_of(other, n)]))]

    start = time.process_time()
    own = [is_named(X[rows_of(label)], random) for label in labels]
    cpu = time.process_time() - start
    clouds = [is_named(permuted(label), random) for label in labels]
    two = [is_named(joined(), random) for _ in range(JOINED)]
    return [
        (f"{name}: share of {len(labels)} labels of one cloud that are named", float(np.mean(clouds)), "≤ 0.02"),
        (f"{name}: share of {JOINED} labels joined of two that are named", float(np.mean(two)), "≥ 0.2"),
        (f"{name}: share of {len(labels)} labels as they are that are named", float(np.mean(own)), ""),
        (f"{name}: milliseconds of CPU per label", 1000 * cpu / len(labels), "≤ 100"),
    ]


def main() -> None:
    arguments = options(__doc__ or "")
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex and eurlex")
        return
    names = ["bibtex"] if arguments.quick else ["bibtex", "eurlex"]
    finish([row for name in names for row in measured(name)], arguments.json)


if __name__ == "__main__":
    main()
