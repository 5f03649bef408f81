"""The review queue against a random order: decisions that are needed for the same P@1, from 500 documents.

    python benchmarks/review.py [--quick] [--json PATH] [--set eurlex|tibkat]

A linear model is fitted on 500 documents with labels. From a pool of 10,000 without labels, 125 at a time are chosen,
get their labels and are learnt by `partial_fit`: 1,000 in random order, or as `ripml.tagging.review.choose` says.
The figure is how many decisions the queue needs for the P@1 of 500 and of 1,000 random ones, on test documents, with
points of a curve joined by straight lines; the mean over three draws of start and pool is taken. The rule was chosen on
training documents of the first draw, of which 2,000 were kept apart.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data, options

from ripml import RIPML, datasets
from ripml.tagging.review import choose
from ripml.text import TfIdf

START, POOL, BATCH, STEPS, DRAWS = 500, 10_000, 125, 8, 3
Data = tuple[Any, list[list[str]], Any, list[list[str]]]  # features and labels, of training and test documents


def eurlex() -> Data:
    """Features of EUR-Lex."""
    train, test = datasets.load("eurlex")
    return train.X, [train.row_labels(i) for i in range(len(train))], test.X, [
        test.row_labels(i) for i in range(len(test))
    ]  # fmt: skip


def tibkat() -> Data:
    """Words and groups of letters of library records; they are known of all records, also of those without labels."""
    parts: dict[str, list[tuple[str, list[str]]]] = {"train": [], "test": []}
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "tibkat" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["labels"]:
                parts[row["split"]].append((row["text"], row["labels"]))
    random = np.random.default_rng(0)
    train = [parts["train"][i] for i in random.permutation(len(parts["train"]))[:12_000]]
    test = [parts["test"][i] for i in random.permutation(len(parts["test"]))[:3000]]
    words = TfIdf(tokens="any", letters=4, min_df=2, max_features=30_000)
    X = words.fit_transform([text for text, _ in train])
    return (
        X,
        [labels for _, labels in train],
        words.transform([text for text, _ in test]),
        [labels for _, labels in test],
    )


def precision(model: RIPML, X: Any, labels: list[list[str]]) -> float:
    """P@1."""
    best = model.recommend(X, n=1)
    return float(np.mean([bool(row) and row[0][0] in names for row, names in zip(best, labels, strict=True)]))


def curve(data: Data, draw: int, by_queue: bool) -> list[float]:
    """P@1 on test documents after each batch."""
    X, labels, X_test, test_labels = data
    random = np.random.default_rng(draw)
    order = random.permutation([row for row, names in enumerate(labels) if names])
    known, pool = order[:START], order[START : START + POOL]
    model = RIPML.linear(random_state=0).fit(X[known], [labels[row] for row in known])
    found = [precision(model, X_test, test_labels)]
    for _ in range(STEPS):
        chosen = random.permutation(len(pool))[:BATCH]
        if by_queue:
            _, probabilities = model.scores_and_probabilities(X[pool])
            first = np.asarray(probabilities.max(axis=1).todense()).ravel()
            chosen = np.array([one.row for one in choose(X[pool], X[known], first, BATCH)])
        rows = pool[chosen]
        model = model.partial_fit(X[rows], [labels[row] for row in rows])
        known, pool = np.concatenate([known, rows]), np.delete(pool, chosen)
        found.append(precision(model, X_test, test_labels))
    return found


def needed(queue: list[float], wanted: float) -> float:
    """Decisions until the queue has this P@1; infinite if it never has."""
    best = np.maximum.accumulate(queue)
    if best[-1] < wanted:
        return float("inf")
    return float(np.interp(wanted, best, BATCH * np.arange(len(queue))))


def main() -> None:
    arguments = options(__doc__ or "", set="")
    rows: list[Row] = []
    names = [arguments.set] if arguments.set else ["eurlex", "tibkat"]
    for name in names if has_data() else []:
        data = {"eurlex": eurlex, "tibkat": tibkat}[name]()
        draws = 1 if arguments.quick else DRAWS
        curves = {
            way: np.mean([curve(data, draw, way == "queue") for draw in range(draws)], axis=0).tolist()
            for way in ("random", "queue")
        }
        for step in (0, STEPS // 2, STEPS):
            for way, values in curves.items():
                bound = "" if way == "random" else f"random order: {100 * curves['random'][step]:.2f}"
                rows.append((f"{name}: P@1 after {BATCH * step} decisions, {way}", 100 * values[step], bound))
        for step in (STEPS // 2, STEPS):
            decisions = needed(curves["queue"], curves["random"][step])
            what = f"{name}: decisions for the P@1 of {BATCH * step} random ones"
            rows.append((what, decisions, f"bound {BATCH * step // 2}"))
    finish(rows or [("without RIPML_DATA nothing is measured", 0.0, "")], arguments.json)


if __name__ == "__main__":
    main()
