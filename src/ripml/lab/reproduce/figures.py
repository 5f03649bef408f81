"""Figures: panels of lines against m, k or the number of clusters, and bars; with matplotlib (extra `plot`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ripml.base.figures import new_figure
from ripml.lab.reproduce.experiment import Rows

__all__ = ["Line", "bars", "line", "panels", "save"]

# Colours that the colour-blind can tell apart; the paper's markers for the methods of its figures.
_STYLES: dict[str, dict[str, Any]] = {
    "RIPML": {"color": "#d62728", "marker": "^", "linestyle": "--"},
    "LEML": {"color": "#222222", "marker": "s"},
    "CPLST": {"color": "#1f77b4", "marker": "o"},
    "CSSP": {"color": "#2ca02c", "marker": "D"},
    "P@1": {"color": "#1f77b4", "marker": ">"},
    "P@3": {"color": "#e08214", "marker": "s"},
    "P@5": {"color": "#7b3294", "marker": "o"},
}
_COLOURS = ("#e08214", "#7b3294", "#17becf", "#8c564b", "#e377c2", "#bcbd22", "#7f7f7f", "#1b9e77", "#a6761d")
_MARKERS = ("*", "P", "v", "X", "<", "h", "d", "p", ">")

Line = tuple[Sequence[float], Sequence[float], Sequence[float] | None]  # x, y, and the spread of y


def line(rows: Rows, x: str, y: str, with_spread: bool = True) -> Line:
    """The means of a column `y` at the values of a column `x`, with their spread where a value has several rows.

    >>> line(Rows([{"m": 50, "P@1": 60.0}, {"m": 100, "P@1": 61.0}]), "m", "P@1")
    ([50, 100], [60.0, 61.0], None)
    """
    xs = sorted({row[x] for row in rows})
    groups = [rows.where(**{x: value}) for value in xs]
    several = with_spread and any(len(group) > 1 for group in groups)
    return xs, [group.mean(y) for group in groups], [group.spread(y) for group in groups] if several else None


def panels(lines: Mapping[tuple[str, str], Mapping[str, Line]], x_label: str) -> Any:
    """A grid of panels by (row, column), each with named lines.

    Columns are usually data sets, rows P@1, P@3 and P@5. The values of x are spaced equally, in ascending order.
    """
    rows = list(dict.fromkeys(row for row, _ in lines))
    columns = list(dict.fromkeys(column for _, column in lines))
    width = max(6.5, 3.5 * len(columns) + 0.4)
    figure = new_figure(width, 2.3 * len(rows) + (0.9 if len(rows) > 1 else 1.6))
    axes = figure.subplots(len(rows), len(columns), squeeze=False, sharex="col")
    styles = _styles(list(dict.fromkeys(name for panel in lines.values() for name in panel)))
    for (row, column), panel in lines.items():
        ax = axes[rows.index(row)][columns.index(column)]
        ticks = sorted({x for xs, _, _ in panel.values() for x in xs})
        for name, (xs, ys, errors) in panel.items():
            places = [ticks.index(x) for x in xs]
            ax.errorbar(places, ys, yerr=errors, label=name, lw=1.6, ms=5, capsize=2.5, **styles[name])
        ax.set_xticks(range(len(ticks)), [f"{x:g}" for x in ticks])
        ax.grid(axis="y", alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(y=0.12)
        if row == rows[0]:
            ax.set_title(column, fontsize=11)
        if row == rows[-1]:
            ax.set_xlabel(x_label)
        if column == columns[0]:
            ax.set_ylabel(f"{row} (%)" if row.startswith("P@") else row)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=int(width // 1.6), frameon=False)
    return figure


def bars(values: Mapping[str, Mapping[str, float]], title: str) -> Any:
    """Horizontal bars of group ↦ name ↦ value, one panel per group, sorted by the first group, longest first."""
    groups = list(values)
    names = sorted(values[groups[0]], key=lambda name: values[groups[0]][name])
    figure = new_figure(2.9 * len(groups) + 2.2, 0.36 * len(names) + 1.3)
    axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
    for ax, group in zip(axes, groups, strict=True):
        known = [values[group].get(name) for name in names]
        colours = ["#d62728" if name.startswith("RIPML") else "#9aa5b1" for name in names]
        ax.barh(range(len(names)), [value or 0 for value in known], color=colours)
        for place, value in enumerate(known):
            ax.text(value or 0, place, " not run" if value is None else f" {value:.1f}", va="center", fontsize=8)
        ax.set_title(group, fontsize=11)
        ax.set_xlim(0, 1.18 * max([value or 1e-9 for value in known]))
        ax.set_xticks([])
        ax.spines[["top", "right", "bottom"]].set_visible(False)
    axes[0].set_yticks(range(len(names)), names)
    figure.suptitle(title, fontsize=11)
    return figure


def save(figure: Any, path: Path, caption: str) -> None:
    """Write `path`.png and `path`.svg; equal figures give equal files."""
    from matplotlib import rc_context

    figure.savefig(path.with_suffix(".png"), dpi=130)
    with rc_context({"svg.hashsalt": "ripml"}):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Title": caption})


def _styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    others = iter(zip(_COLOURS, _MARKERS, strict=True))
    styles = {}
    for name in names:
        color, marker = ("", "") if name in _STYLES else next(others, ("#444444", "."))
        styles[name] = _STYLES.get(name) or {"color": color, "marker": marker}
    return styles
