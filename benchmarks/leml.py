"""LEML: its time against plain ridge regression on all labels, and its precision against the published one.

    RIPML_DATA=folder python benchmarks/leml.py [--quick] [--json PATH]

Time: on EUR-Lex with m = 100 and a given `ridge`, a complete fit (without the held-out rows, then with all rows)
against one ridge regression from features to all labels: XᵀX, its Cholesky factor and a solution for each label.
Precision: percent on the test rows of Bibtex and Delicious, features not scaled, `ridge` chosen on held-out training
rows; the bounds are the figures of the Extreme Classification Repository for the authors' code, minus one point.
(--quick: a quarter of the rows of EUR-Lex, Bibtex with m = 100 only.)
"""

from __future__ import annotations

import time

from harness import Row, finish, has_data, options, side_by_side

from ripml import datasets, metrics
from ripml.baselines import LEML
from ripml.regression import Primal

PUBLISHED = {"bibtex": (62.54, 38.41, 28.21), "delicious": (65.67, 60.55, 56.08)}
SHARES = (0.2, 0.4, 0.8)
RIDGE = 1.0


def speed(quick: bool) -> list[Row]:
    train, _ = datasets.load("eurlex")
    X, Y = (train.X[::4], train.Y[::4]) if quick else (train.X, train.Y)
    model = LEML(n_dims=100, ridge=RIDGE, random_state=0)
    found = side_by_side(
        {"LEML": lambda: model.fit(X, Y), "plain ridge": lambda: Primal().prepare(X, Y, once=True)(RIDGE)},
        rounds=1 if quick else 2,
    )
    rows: list[Row] = [(f"eurlex, {name}, s", value, "") for name, value in found.items()]
    return [*rows, ("eurlex, LEML / plain ridge", found["LEML"] / found["plain ridge"], "≤ 10")]


def precision(name: str, quick: bool) -> list[Row]:
    train, test = datasets.load(name)
    sizes = {50, 100, *(round(share * train.Y.shape[1]) for share in SHARES)}
    rows: list[Row] = []
    for m in [100] if quick else sorted(sizes):
        start = time.perf_counter()
        model = LEML(n_dims=m, random_state=0).fit(train.X, train.Y)
        rows += [(f"{name}, m = {m}, fit, s", time.perf_counter() - start, "")]
        rows += [(f"{name}, m = {m}, ridge", model.ridge_, "")]
        scores = model.decision_function(test.X)
        for k, published in zip((1, 3, 5), PUBLISHED[name], strict=True):
            kept = 100 * model.left_out_precision_[f"P@{k}"]
            rows += [(f"{name}, m = {m}, P@{k} held out", kept, "")]
            found = 100 * metrics.precision_at_k(test.Y, scores, k=k)
            rows += [(f"{name}, m = {m}, P@{k}", found, f"≥ {published - 1:.2f} (published minus 1)")]
    return rows


def main() -> None:
    arguments = options(__doc__ or "")
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex, delicious and eurlex")
        return
    rows = [row for name in (["bibtex"] if arguments.quick else PUBLISHED) for row in precision(name, arguments.quick)]
    finish([*rows, *speed(arguments.quick)], arguments.json)


if __name__ == "__main__":
    main()
