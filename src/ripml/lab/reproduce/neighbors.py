"""Experiment 3: P@1/3/5 of RIPML against k at m = 100 on Bibtex, Delicious and EUR-Lex."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ripml import RIPML
from ripml.lab.reproduce import data
from ripml.lab.reproduce.data import SETS, Split
from ripml.lab.reproduce.experiment import CUTS, Claim, Experiment, Extent, Measurement, Row, Table, mean, select
from ripml.lab.reproduce.figures import panels
from ripml.lab.reproduce.methods import asked, by_rule

__all__ = ["EXPERIMENT", "NEIGHBORS", "against_neighbors", "asked_with", "neighbors_table", "range_of"]

NEIGHBORS = (1, 2, 3, 5, 10, 15, 20, 30, 50)


def asked_with(part: Split, seed: int, **facts: Any) -> list[Row]:
    """RIPML at m = 100 asked with every k: one fit, since votes can be counted anew."""
    model = RIPML.paper(n_dims=100, n_neighbors=5, random_state=seed)
    ridge = by_rule(model, part, seed)
    model.set_params(ridge=ridge).fit(part.X, part.Y)
    return [
        {**facts, "k": k, "ridge": ridge, **asked(model.set_params(n_neighbors=k), part, learn=False)}
        for k in NEIGHBORS
    ]


def _plan(extent: Extent) -> list[Measurement]:
    return [Measurement(name, functools.partial(_measure, extent, shown)) for shown, name in SETS.items()]


def _measure(extent: Extent, shown: str) -> list[Row]:
    return asked_with(data.named(extent, SETS[shown]), extent.seed, set=shown)


def against_neighbors(rows: Sequence[Row], column: str) -> Any:
    """A figure of P@1/3/5 against k: a panel for each value of `column`."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for value in dict.fromkeys(row[column] for row in rows):
        points = [select(rows, **{column: value, "k": k}) for k in NEIGHBORS]
        panel = lines.setdefault(("precision (%)", str(value)), {})
        for cut in CUTS:
            panel[f"P@{cut}"] = (NEIGHBORS, [mean(group, f"P@{cut}") for group in points], None)
    return panels(lines, "k")


def neighbors_table(rows: Sequence[Row], column: str, title: str) -> Table:
    """P@1/3/5 by k, a line for each value of `column`."""
    values = list(dict.fromkeys(row[column] for row in rows))
    lines = [
        [k, *(" / ".join(f"{mean(select(rows, **{column: v, 'k': k}), f'P@{c}'):.1f}" for c in CUTS) for v in values)]
        for k in NEIGHBORS
    ]
    return Table(title, ["k", *map(str, values)], lines)


def range_of(rows: Sequence[Row], least: int = 3) -> float:
    """The largest less the smallest P@1 over k from `least` on."""
    values = [mean(select(rows, k=k), "P@1") for k in NEIGHBORS if k >= least]
    return max(values) - min(values)


def _claims(rows: Sequence[Row]) -> list[Claim]:
    ranges = {shown: range_of(select(rows, set=shown)) for shown in SETS}
    first = select(rows, set="EUR-Lex")
    peak = max(NEIGHBORS, key=lambda k: mean(select(first, k=k), "P@1"))
    last = {k: mean(select(first, k=k), "P@1") for k in (5, 50)}
    return [
        Claim(
            "Bibtex and Delicious are quite stable with the choice of k (criterion: P@1 moves by less than 4 points "
            "from k = 3 to 50).",
            ranges["Bibtex"] < 4 and ranges["Delicious"] < 4,
            ", ".join(f"{shown} {value:.1f} points" for shown, value in ranges.items()),
        ),
        Claim(
            "EURLex performs better with a smaller number of neighbours (criterion: P@1 is best at k ≤ 10 and lower at "
            "k = 50 than at 5).",
            peak <= 10 and last[50] < last[5],
            f"best at k = {peak}; P@1 {last[5]:.1f} at k = 5, {last[50]:.1f} at k = 50",
        ),
    ]


def _draw(rows: Sequence[Row]) -> Mapping[str, Any]:
    return {"P@1, P@3 and P@5 of RIPML against k, m = 100": against_neighbors(rows, "set")}


EXPERIMENT = Experiment(
    number=3,
    word="neighbors",
    title="Precision against the number of neighbours",
    protocol="RIPML with m = 100 and F = 5, asked with k from 1 to 50; regularisation as in experiment 2, at k = 5.",
    plan=_plan,
    draw=_draw,
    tables=lambda rows: [neighbors_table(rows, "set", "P@1 / 3 / 5 by k")],
    claims=_claims,
    sets=tuple(SETS.values()),
)
