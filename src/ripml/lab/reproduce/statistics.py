"""Experiment 1: the statistics of the data sets, the paper's first table, and how well Phi keeps label distances."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from ripml import datasets
from ripml.base.registry import resolve
from ripml.lab.chinese import stock_news
from ripml.lab.reproduce.experiment import Claim, Experiment, Extent, Measurement, Row, Table
from ripml.lab.reproduce.figures import panels
from ripml.lab.reproduce.paper import STATISTICS
from ripml.labels.encoding import label_keys
from ripml.labels.isometry import measure_isometry

__all__ = ["EXPERIMENT"]

# The paper's name ↦ our set and what it is
_SETS = {
    "Bibtex": ("bibtex", "the same set, Mulan's own split"),
    "EURLex": ("eurlex", "stand-in: EUR-Lex documents with EuroVoc concepts, tf-idf"),
    "Delicious": ("delicious", "the same set, Mulan's own split"),
    "Chinese Relevance Modeling": ("zh_stock_news", "stand-in: Chinese finance news with tickers"),
    "Entity Recommendation": ("wikispeedia", "stand-in: Wikipedia articles with the articles they link to"),
}
_DIMS = (25, 50, 100, 200, 400)


def _measure(paper_name: str, seed: int) -> list[Row]:
    name, what = _SETS[paper_name]
    if name == "zh_stock_news":
        data = stock_news()
        Y, n_test, width, dense = data.Y, 500, "200, 300, 400", "dense"
    else:
        train, test = datasets.load(name)
        # Rows without labels are counted by nobody: no method can learn from them or be right on them.
        kept = [part.Y[np.diff(part.Y.indptr) > 0] for part in (train, test)]
        Y, n_test = scipy.sparse.vstack(kept, format="csr"), kept[1].shape[0]
        mean_features = (train.X.nnz + test.X.nnz) / (len(train) + len(test))
        width, dense = f"{train.X.shape[1]:,}", f"{mean_features:.2f}"
    keys = label_keys(np.arange(Y.shape[1]))
    family = resolve("ensemble", "gaussian")
    rows: list[Row] = []
    for n_dims in _DIMS:
        delta = measure_isometry(family, n_dims, Y, keys, seed=seed).delta(0.95)
        rows.append({"set": name, "paper_set": paper_name, "m": n_dims, "delta": round(delta, 4)})
    facts = {
        "set": name,
        "paper_set": paper_name,
        "what": what,
        "d": width,
        "features_per_row": dense,
        "L": int(Y.shape[1]),
        "labels_per_row": round(Y.nnz / Y.shape[0], 2),
        "rows": int(Y.shape[0]),
        "train": int(Y.shape[0] - n_test),
        "test": int(n_test),
    }
    return [facts, *rows]


def _plan(extent: Extent) -> list[Measurement]:
    return [Measurement(name, functools.partial(_measure, paper, extent.seed)) for paper, (name, _) in _SETS.items()]


def _tables(rows: Sequence[Row]) -> list[Table]:
    columns = ["set", "d", "features a row", "L", "labels a row", "rows", "train", "test"]
    lines: list[list[Any]] = []
    for row in (row for row in rows if "L" in row):
        d, features, n_labels, per_row, total, train, test = STATISTICS[row["paper_set"]]
        lines.append([f"paper: {row['paper_set']}", d, features, n_labels, per_row, total, train, test])
        names = ("d", "features_per_row", "L", "labels_per_row", "rows", "train", "test")
        lines.append([f"here: {row['set']} ({row['what']})", *(row[name] for name in names)])
    distances = [
        [name, *(next(r["delta"] for r in rows if r["set"] == name and r.get("m") == m) for m in _DIMS)]
        for name, _ in _SETS.values()
    ]
    title = "δ: 95 % of ‖Φ(u − v)‖²/‖u − v‖² over pairs of label rows lie within 1 ± δ, Gaussian Φ"
    return [
        Table("Data sets; rows without labels are not counted", columns, lines),
        Table(title, ["set", *(f"m = {m}" for m in _DIMS)], distances),
    ]


def _draw(rows: Sequence[Row]) -> Mapping[str, Any]:
    lines = {}
    for name, _ in _SETS.values():
        points = [row for row in rows if row["set"] == name and "delta" in row]
        lines[name] = ([row["m"] for row in points], [row["delta"] for row in points], None)
    figure = panels({("δ for 95 % of pairs", "How well Φ keeps distances between label rows"): lines}, "m")
    return {"The restricted isometry on the label rows of each set": figure}


def _claims(rows: Sequence[Row]) -> list[Claim]:
    same = {row["paper_set"]: row for row in rows if "L" in row and row["paper_set"] in ("Bibtex", "Delicious")}
    agree = all(
        (row["L"], row["train"], row["test"]) == (STATISTICS[name][2], STATISTICS[name][5], STATISTICS[name][6])
        for name, row in same.items()
    )
    shown = "; ".join(f"{name} L = {row['L']}, {row['train']:,} + {row['test']:,}" for name, row in same.items())
    at_100 = {row["set"]: row["delta"] for row in rows if row.get("m") == 100}
    return [
        Claim("The sizes of Bibtex and Delicious in the paper's table (rows without labels left out).", agree, shown),
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
    protocol="Sizes and means of the sets used here beside the paper's table. Three of the paper's sets cannot be had, "
    "so stand-ins of the same kind take their place. For each, how far a Gaussian Φ with m rows keeps the distances of "
    "label rows that were drawn in pairs.",
    plan=_plan,
    draw=_draw,
    tables=_tables,
    claims=_claims,
    sets=tuple(name for name, _ in _SETS.values()),
)
