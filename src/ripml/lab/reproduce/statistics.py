"""Experiment 1: the statistics of the data sets, the paper's first table, and how well Phi keeps label distances."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from ripml import datasets
from ripml.lab.chinese import stock_news
from ripml.lab.reproduce.experiment import Claim, Experiment, Extent, Measurement, Row, Rows, Table
from ripml.lab.reproduce.figures import line, panels
from ripml.labels.encoding import label_keys
from ripml.labels.ensembles import Gaussian
from ripml.labels.isometry import measure_isometry

__all__ = ["EXPERIMENT"]

# The paper's table: d, features per row, L, labels per row, rows, training rows, test rows.
_PAPER: dict[str, tuple[str, str, int, float, int, int, int]] = {
    "Bibtex": ("1,836", "68.74", 159, 2.40, 7_395, 4_880, 2_515),
    "EURLex": ("5,000", "236.69", 3_993, 5.31, 19_314, 17_383, 1_931),
    "Delicious": ("500", "18.17", 983, 19.03, 16_091, 12_910, 3_181),
    "Chinese Relevance Modeling": ("100 – 400", "dense", 391, 1.02, 5_011, 4_511, 500),
    "Entity Recommendation": ("400", "dense", 359_524, 32.55, 510_539, 500_539, 10_000),
}
# The paper's name ↦ our data set and what it is.
_SETS = {
    "Bibtex": ("bibtex", "the same set, Mulan's split"),
    "EURLex": ("eurlex", "stand-in: EUR-Lex documents with EuroVoc concepts, tf-idf"),
    "Delicious": ("delicious", "the same set, Mulan's split"),
    "Chinese Relevance Modeling": ("zh_stock_news", "stand-in: Chinese finance news with tickers"),
    "Entity Recommendation": ("wikispeedia", "stand-in: Wikipedia articles with the articles they link to"),
}
_DIMS = (25, 50, 100, 200, 400)


def _plan(extent: Extent) -> list[Measurement]:
    return [Measurement(name, partial(_measure, paper_set, extent.seed)) for paper_set, (name, _) in _SETS.items()]


def _measure(paper_set: str, seed: int) -> list[Row]:
    name, what = _SETS[paper_set]
    if name == "zh_stock_news":
        Y, n_test, d, features = stock_news().Y, 500, "200, 300, 400", "dense"
    else:
        train, test = datasets.load(name)
        # Rows without labels are not counted: no method can learn from them or be right about them.
        labelled = [part.Y[np.diff(part.Y.indptr) > 0] for part in (train, test)]
        Y, n_test = scipy.sparse.vstack(labelled, format="csr"), labelled[1].shape[0]
        d = f"{train.X.shape[1]:,}"
        features = f"{(train.X.nnz + test.X.nnz) / (len(train) + len(test)):.2f}"
    facts = {
        "set": name,
        "paper_set": paper_set,
        "what": what,
        "d": d,
        "features_per_row": features,
        "L": int(Y.shape[1]),
        "labels_per_row": round(Y.nnz / Y.shape[0], 2),
        "rows": int(Y.shape[0]),
        "train": int(Y.shape[0] - n_test),
        "test": int(n_test),
    }
    rows: list[Row] = [facts]
    keys, gaussian = label_keys(np.arange(Y.shape[1])), Gaussian()
    for m in _DIMS:
        delta = measure_isometry(gaussian, m, Y, keys, seed=seed).delta(0.95)
        rows.append({"set": name, "paper_set": paper_set, "m": m, "delta": round(delta, 4)})
    return rows


def _tables(rows: Rows) -> list[Table]:
    names = ("d", "features_per_row", "L", "labels_per_row", "rows", "train", "test")
    sizes: list[list[Any]] = []
    for row in (row for row in rows if "L" in row):
        sizes.append([f"paper: {row['paper_set']}", *_PAPER[row["paper_set"]]])
        sizes.append([f"here: {row['set']} ({row['what']})", *(row[name] for name in names)])
    columns = ["set", "d", "features per row", "L", "labels per row", "rows", "train", "test"]
    deltas = [[name, *(rows.where(set=name, m=m)[0]["delta"] for m in _DIMS)] for name, _ in _SETS.values()]
    title = "δ: 95 % of ‖Φ(u − v)‖²/‖u − v‖² over pairs of label rows lie within 1 ± δ, Gaussian Φ"
    return [
        Table("Data sets; rows without labels are not counted", columns, sizes),
        Table(title, ["set", *(f"m = {m}" for m in _DIMS)], deltas),
    ]


def _draw(rows: Rows) -> Mapping[str, Any]:
    deltas = Rows(row for row in rows if "delta" in row)
    lines = {name: line(deltas.where(set=name), "m", "delta") for name, _ in _SETS.values()}
    figure = panels({("δ for 95 % of pairs", "How well Φ keeps distances between label rows"): lines}, "m")
    return {"The restricted isometry on the label rows of each set": figure}


def _claims(rows: Rows) -> list[Claim]:
    same = {row["paper_set"]: row for row in rows if "L" in row and row["paper_set"] in ("Bibtex", "Delicious")}
    agree = all(
        (row["L"], row["train"], row["test"]) == (_PAPER[name][2], _PAPER[name][5], _PAPER[name][6])
        for name, row in same.items()
    )
    sizes = "; ".join(f"{name} L = {row['L']}, {row['train']:,} + {row['test']:,}" for name, row in same.items())
    at_100 = {row["set"]: row["delta"] for row in rows.where(m=100)}
    return [
        Claim("The sizes of Bibtex and Delicious in the paper's table (rows without labels left out).", agree, sizes),
        Claim(
            "Random projection keeps the distances between sparse label vectors approximately, with m far below L "
            "(criterion: at m = 100, 95 % of the pairs within ± 35 %).",
            max(at_100.values()) <= 0.35,
            "δ at m = 100: " + ", ".join(f"{name} {delta:.2f}" for name, delta in at_100.items()),
        ),
    ]


EXPERIMENT = Experiment(
    number=1,
    word="statistics",
    title="The data sets",
    protocol="Sizes and means of the data sets used here next to the paper's table. Three of the paper's sets are not "
    "available and are replaced by stand-ins of the same kind. For each set, how well a Gaussian Φ with m rows keeps "
    "the distances between random pairs of label rows.",
    plan=_plan,
    draw=_draw,
    tables=_tables,
    claims=_claims,
    sets=tuple(name for name, _ in _SETS.values()),
)
