"""Columns of Phi for the paper's Wikipedia (360,000 labels × 500), and the embedding of label rows.

    python benchmarks/ensembles.py [--quick] [--json PATH]

Columns are compared with NumPy filling an array of that size with normal numbers (one thread, no rule by label); the
embedding with reading the same bytes once: every label of every row is one column of 500 float32.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse
from harness import Row, finish, options

from ripml.base.registry import resolve
from ripml.labels.projection import Projection


def seconds(start: float) -> float:
    return time.perf_counter() - start


def main() -> None:
    arguments = options(__doc__ or "")
    n_labels, n_dims = (36_000 if arguments.quick else 360_000), 500
    keys = np.arange(n_labels, dtype=np.uint64)
    start = time.perf_counter()
    np.random.default_rng(0).standard_normal((n_labels, n_dims), dtype=np.float32)
    plain = seconds(start)
    rows: list[Row] = [("NumPy standard_normal, s", plain, f"{n_labels:,} × {n_dims}")]
    for word in ("gaussian", "bernoulli", "sparse", "structured", "deterministic"):
        start = time.perf_counter()
        resolve("ensemble", word).columns(keys, n_dims, seed=0)
        taken = seconds(start)
        rows += [(f"{word}, s", taken, ""), (f"{word} / NumPy", taken / plain, "")]

    rng = np.random.default_rng(0)
    n_rows, per_row = n_labels // 10, 32
    labels = np.minimum(rng.zipf(1.3, n_rows * per_row) - 1, n_labels - 1)
    Y = scipy.sparse.csr_array((np.ones(len(labels), np.float32), labels, np.arange(n_rows + 1) * per_row), shape=(n_rows, n_labels))  # fmt: skip  # noqa: E501
    Y.sum_duplicates()
    Y.data[:] = 1
    projection = Projection(resolve("ensemble", "gaussian"), 100, 5, seed=0)
    start = time.perf_counter()
    projection.columns(keys[np.unique(Y.indices)])
    making = seconds(start)
    start = time.perf_counter()
    projection.embed(Y, keys)
    embedding = seconds(start) - making
    table = rng.standard_normal((20_000, 500), dtype=np.float32)
    start = time.perf_counter()
    for _ in range(10):
        table.sum()
    bandwidth = 10 * table.nbytes / seconds(start)
    bound = 4.0 * Y.nnz * 500 / bandwidth
    rows += [
        ("embedding without columns, s", embedding, f"{Y.nnz:,} labels × 500"),
        ("embedding / reading its columns once", embedding / bound, f"at {bandwidth / 1e9:.1f} GB/s on one core"),
    ]
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
