"""Plots of studies, with matplotlib (extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ripml.base.figures import new_figure, save_figure
from ripml.search.study import Study, Trial

__all__ = ["plot_study"]

_COLOURS = {"default": "tab:blue", "linear": "tab:orange", "paper": "tab:green"}
_LOGARITHMIC = ("ridge", "neighbors", "gamma", "dims")


def plot_study(study: Study, title: str, path: Path) -> None:
    """The trials of a study in order, with the best so far; below, the metric against each setting searched."""
    shown = [trial for trial in study.trials if trial.value is not None]
    searched = ("preset", "decoder", "ridge", "gamma", "relevance", "neighbors", "dims", "tail")
    names = [name for name in searched if len({trial.parameters.get(name) for trial in shown} - {None}) > 1]
    n_rows = -(-len(names) // 4)
    figure = new_figure(10, 3.2 + 2.2 * n_rows)
    grid = figure.add_gridspec(1 + n_rows, 4, height_ratios=[1.4, *[1] * n_rows])
    history = figure.add_subplot(grid[0, :])
    _history(history, study, shown)
    figure.legend(*history.get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    history.set_title(f"{title}: {study.metric} on held-out training rows", fontsize=11)
    # The lowest quarter of the trials may lie outside: they would flatten all others into a line.
    values = _percent(shown)
    low, high = min(np.quantile(values, 0.25), values[0]), max(values)
    reach = max(high - low, 0.5)
    for place, name in enumerate(names):
        axes = figure.add_subplot(grid[1 + place // 4, place % 4], sharey=history)
        _slice(axes, name, [trial for trial in shown if name in trial.parameters])
        if place % 4 == 0:
            axes.set_ylabel(f"{study.metric} (%)")
        else:
            axes.tick_params(labelleft=False)
    history.set_ylim(low - 0.25 * reach, high + 0.15 * reach)
    save_figure(figure, path)


def _percent(trials: Sequence[Trial]) -> list[float]:
    return [100 * (trial.value or 0) for trial in trials]


def _history(axes: Any, study: Study, shown: Sequence[Trial]) -> None:
    for preset, colour in _COLOURS.items():
        for state, face in (("complete", colour), ("pruned", "none")):
            some = [trial for trial in shown if trial.preset == preset and trial.state == state]
            label = preset if state == "complete" else None
            numbers = [trial.number for trial in some]
            axes.scatter(numbers, _percent(some), s=28, edgecolors=colour, facecolors=face, label=label, clip_on=True)
    axes.scatter([], [], s=28, edgecolors="grey", facecolors="none", label="pruned")
    complete = [trial for trial in shown if trial.state == "complete"]
    best = np.maximum.accumulate(_percent(complete))
    axes.step([trial.number for trial in complete], best, where="post", color="black", lw=1, label="best so far")
    axes.axhline(_percent(shown)[0], color="grey", lw=1, ls="--", label="default settings")
    axes.set_xlabel("trial")
    axes.set_ylabel(f"{study.metric} (%)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _slice(axes: Any, name: str, trials: Sequence[Trial]) -> None:
    values = [trial.parameters[name] for trial in trials]
    if isinstance(values[0], str):
        words = [word for word in (*_COLOURS, "blend", "least-squares", "sketch", "weighted") if word in values]
        values = [words.index(value) for value in values]
        axes.set_xticks(range(len(words)), [word.replace("-", "-\n") for word in words], fontsize=8)
        axes.set_xlim(-0.5, len(words) - 0.5)
    elif name in _LOGARITHMIC:
        axes.set_xscale("log")
    colours = [_COLOURS[trial.preset] for trial in trials]
    faces = [colour if trial.state == "complete" else "none" for colour, trial in zip(colours, trials, strict=True)]
    axes.scatter(values, _percent(trials), s=18, edgecolors=colours, facecolors=faces)
    axes.set_xlabel(name)
    axes.spines[["top", "right"]].set_visible(False)
