"""Parsing of `l1,l2 f:v` rows: ripml against a Python line loop and scikit-learn, on the same bytes in one run.

All three make CSR matrices of features and labels (scikit-learn leaves labels as tuples). The bounds: at least 3 times
as fast as the loop, and never slower than scikit-learn.

    python benchmarks/parsing.py [--quick] [--json PATH]
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file

from ripml.datasets import read


def ours(rows: bytes) -> tuple[Any, Any]:
    data = read(io.BytesIO(rows), "svmlight", zero_based=True)
    return data.X, data.Y


def line_loop(rows: bytes) -> tuple[Any, Any]:
    labels: list[int] = []
    indices, values, indptr, label_ptr = [], [], [0], [0]
    for line in io.BytesIO(rows):
        row_labels, _, features = line.partition(b" ")
        if row_labels:
            labels += map(int, row_labels.split(b","))
        for pair in features.split():
            index, value = pair.split(b":")
            indices.append(int(index))
            values.append(float(value))
        indptr.append(len(indices))
        label_ptr.append(len(labels))
    ones = np.ones(len(labels), np.float32)
    return csr_array((np.array(values, np.float32), indices, indptr)), csr_array((ones, labels, label_ptr))


def scikit_learn(rows: bytes) -> tuple[Any, Any]:
    X, Y = load_svmlight_file(io.BytesIO(rows), multilabel=True, zero_based=True, dtype=np.float32)
    return X, Y


def generated(n: int, format_value: Callable[[float], str]) -> bytes:
    """Return n rows of 5 labels and 60 of 50,000 features."""
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(0, 10_000, (n, 5)) * 5 + np.arange(5), axis=1)
    features = np.sort(rng.integers(0, 800, (n, 60)) + 800 * np.arange(60), axis=1)
    values = rng.random((n, 60), np.float32)
    return "".join(
        f"{','.join(map(str, row))} {' '.join(f'{i}:{format_value(v)}' for i, v in zip(x, w, strict=True))}\n"
        for row, x, w in zip(labels.tolist(), features.tolist(), values.tolist(), strict=True)
    ).encode()


def best_times(rows: bytes, rounds: int) -> dict[str, float]:
    """Return the best time of each parser; the parsers alternate, so that a busy machine slows all of them."""
    parsers = {"ripml": ours, "line loop": line_loop, "scikit-learn": scikit_learn}
    times = {name: float("inf") for name in parsers}
    results = {}
    for _ in range(rounds):
        for name, parser in parsers.items():
            start = time.perf_counter()
            results[name] = parser(rows)
            times[name] = min(times[name], time.perf_counter() - start)
    for name in ("line loop", "scikit-learn"):
        if (results["ripml"][0] != results[name][0]).nnz:
            raise SystemExit(f"ripml and {name} read different values.")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    n = 1000 if arguments.quick else 10_000
    files = {
        "generated, 5 decimals": generated(n, "{:.5f}".format),
        "generated, 16 digits": generated(n, "{:.16g}".format),
        "generated, signed": generated(n, lambda value: f"{value - 0.5:.7f}"),
    }
    if "RIPML_DATA" in os.environ:
        with gzip.open(Path(os.environ["RIPML_DATA"]) / "eurlex" / "train.txt.gz") as file:
            next(file)
            files["eurlex train"] = b"".join(line for line, _ in zip(file, range(2 * n), strict=False))
    figures: dict[str, float] = {}
    print(f"{'file':<24}{'MB':>6}{'ripml':>11}{'line loop':>20}{'scikit-learn':>20}")
    for name, rows in files.items():
        times = best_times(rows, rounds=3)
        key = name.replace(",", "").replace(" ", "_")
        ratios = {rival: times[rival] / times["ripml"] for rival in ("line loop", "scikit-learn")}
        figures[f"{key}_mb_per_s"] = len(rows) / 1e6 / times["ripml"]
        figures[f"{key}_times_line_loop"] = ratios["line loop"]
        figures[f"{key}_times_sklearn"] = ratios["scikit-learn"]
        columns = (f"{times[rival] * 1e3:>10.0f} ms {ratio:>5.1f}×" for rival, ratio in ratios.items())
        print(f"{name:<24}{len(rows) / 1e6:>6.1f}{times['ripml'] * 1e3:>8.0f} ms{''.join(columns)}")
    print("bounds: 3× the line loop, 1× scikit-learn")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
