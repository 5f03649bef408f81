"""The paper's algorithm on the paper's sets: P@1/3/5 at m = 100, k = 5, F = 5, and stability in m on Bibtex.

    RIPML_DATA=folder python benchmarks/paper.py [--quick] [--json PATH]

`ridge` is chosen by leave-one-out on training rows; figures are percent, means over 3 seeds (--quick: 1, no EUR-Lex).
"""

from __future__ import annotations

import numpy as np
from harness import Row, finish, has_data, options

from ripml import RIPML, datasets, metrics

BOUNDS = {"bibtex": (62.0, 36.3, 25.8), "delicious": (59.5, 56.2, 52.2), "eurlex": (79.8, 68.2, 56.3)}
CUTS = (1, 3, 5)


def precision(train: datasets.Dataset, test: datasets.Dataset, n_dims: int, seed: int) -> list[float]:
    model = RIPML.paper(n_dims=n_dims, n_neighbors=5, random_state=seed).fit(train.X, train.Y)
    scores = model.decision_function(test.X)
    return [100 * metrics.precision_at_k(test.Y, scores, k=k) for k in CUTS]


def main() -> None:
    arguments = options(__doc__ or "")
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex, delicious and eurlex")
        return
    seeds = range(1 if arguments.quick else 3)
    rows: list[Row] = []
    for name, bounds in BOUNDS.items():
        if arguments.quick and name == "eurlex":
            continue
        train, test = datasets.load(name)
        found = np.mean([precision(train, test, 100, seed) for seed in seeds], axis=0)
        rows += [(f"{name} P@{k}", value, f"≥ {bound}") for k, value, bound in zip(CUTS, found, bounds, strict=True)]
    train, test = datasets.load("bibtex")
    n_labels = train.Y.shape[1]
    at_1 = []
    for n_dims in sorted({50, 100, *(round(share * n_labels) for share in (0.2, 0.4, 0.8))}):
        value = float(np.mean([precision(train, test, n_dims, seed)[0] for seed in seeds]))
        rows.append((f"bibtex P@1 at m = {n_dims}", value, ""))
        if 50 <= n_dims <= 0.8 * n_labels:
            at_1.append(value)
    rows.append(("bibtex P@1, spread over m = 50 … 80 % of L", max(at_1) - min(at_1), "≤ 2.5"))
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
