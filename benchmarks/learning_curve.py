"""How far the extrapolation of learning curves is off: the figures of n rows, predicted from n/2 rows and less.

    RIPML_DATA=… .venv/bin/python benchmarks/learning_curve.py [--quick] [--json FILE] [--set NAME] [--rows N]

Training rows alone: each set is cut into nested parts, and every part is predicted from the smaller ones by the rule of
`ripml.model.learning_curve`, by the last step again (a straight line over the logarithm of n), and by no gain at all.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from harness import Row, finish, has_data, options
from numpy.typing import NDArray

from ripml import RIPML, Tagger, datasets
from ripml.model.copies import Copies
from ripml.model.learning_curve import LearningCurve, Outcome, extrapolated, measure_learning_curve

Ints = NDArray[np.int64]
PARTS = {"bibtex": 6, "eurlex": 6, "tibkat": 5}


def of_features(name: str, rows: int) -> LearningCurve:
    """A set of feature rows."""
    train = datasets.load(name)[0]
    filled = np.flatnonzero(np.diff(train.Y.indptr) > 0)[: rows or None]
    X, Y = train.X[filled], scipy.sparse.csr_array(train.Y[filled])

    def fit(learnt: Ints, held: Ints) -> Outcome:
        model = RIPML(random_state=0).fit(X[learnt], Y[learnt])
        scores = model.decision_function(X[held]).tocoo()
        columns = np.asarray(model.classes_, np.int64)[scores.col]
        found = scipy.sparse.csr_array((scores.data, (scores.row, columns)), shape=(len(held), Y.shape[1]))
        return Y[held], found, model.threshold_

    return measure_learning_curve(len(filled), Copies.of(X).group, fit, PARTS[name])


def of_texts(name: str, rows: int) -> LearningCurve:
    """A set of texts."""
    with gzip.open(Path(os.environ["RIPML_DATA"]) / name / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        pages = [page for page in map(json.loads, file) if page["split"] == "train" and page["labels"]]
    pages = list({" ".join(page["text"].split()): page for page in pages if page["text"].strip()}.values())
    pages = [pages[i] for i in np.random.default_rng(0).permutation(len(pages))[: rows or None].tolist()]
    names = sorted({label for page in pages for label in page["labels"]})
    number = {label: i for i, label in enumerate(names)}

    def fit(learnt: Ints, held: Ints) -> Outcome:
        tagger = Tagger().fit([pages[i]["text"] for i in learnt], [pages[i]["labels"] for i in learnt])
        model: Any = tagger.documents_.model
        scores = model.decision_function(tagger.documents_.features_of([pages[i]["text"] for i in held])).tocoo()
        columns = np.array([number[label] for label in model.classes_.tolist()])[scores.col]
        shape = len(held), len(names)
        pairs = [(i, number[label]) for i, row in enumerate(held.tolist()) for label in set(pages[row]["labels"])]
        truth = scipy.sparse.csr_array((np.ones(len(pairs)), tuple(np.array(pairs).T)), shape=shape)
        return truth, scipy.sparse.csr_array((scores.data, (scores.row, columns)), shape=shape), model.threshold_

    return measure_learning_curve(len(pages), np.arange(len(pages)), fit, PARTS[name])


def figures(name: str, curve: LearningCurve, cpu: float) -> list[Row]:
    """How far off the points of a curve were, in percentage points."""
    names = list(curve.points[0].figures)
    table = np.array([[point.figures[figure] for figure in names] for point in curve.points])[:, :, None]
    rows: list[Row] = []
    for point in curve.points:
        print(f"{name}: {point.rows:,} rows", point.figures, point.errors)
    print(f"{name}: twice", curve.twice.figures, curve.twice.errors, curve.missed)
    off = {"the rule": [], "a straight line": [], "no gain": []}  # type: dict[str, list[NDArray[Any]]]
    for last in range(3, len(table)):
        truth = table[last, :, 0]
        off["the rule"].append(np.abs(truth - extrapolated(table[:last])[:, 0]))
        off["a straight line"].append(np.abs(truth - (2 * table[last - 1] - table[last - 2])[:, 0]))
        off["no gain"].append(np.abs(truth - table[last - 1, :, 0]))
    for what, found in off.items():
        bound = "< no gain" if what == "the rule" else ""
        rows.append((f"{name}, {what}: mean error, points", 100 * float(np.mean(found)), bound))
        rows.append((f"{name}, {what}: largest error, points", 100 * float(np.max(found)), ""))
    return [*rows, (f"{name}: seconds of CPU", cpu, "")]


def main() -> None:
    arguments = options(__doc__ or "", set="", rows=0)
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex, eurlex and tibkat")
        return
    names = [arguments.set] if arguments.set else ["bibtex"] if arguments.quick else list(PARTS)
    rows: list[Row] = []
    for name in names:
        start = time.process_time()
        curve = (of_texts if name == "tibkat" else of_features)(name, arguments.rows or 0)
        rows += figures(name, curve, time.process_time() - start)
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
