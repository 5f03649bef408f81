"""Plots of studies and of the isometry of Phi, with matplotlib (extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ripml.base.errors import MissingExtraError, ParameterError
from ripml.labels.isometry import Isometry
from ripml.search.study import Study, Trial

__all__ = ["check_picture", "plot_isometry", "plot_study"]

_COLOURS = {"default": "tab:blue", "linear": "tab:orange", "paper": "tab:green"}
_LOGARITHMIC = ("ridge", "neighbors", "gamma", "dims")


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure  # not pyplot, which needs a display and has global state
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    return Figure(figsize=(width, height), layout="constrained")


def check_picture(path: Path) -> None:
    """Raise if a plot cannot be saved under this name; to be called before long work."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ParameterError(f"{path}: the name of a plot must end in .png, .svg or .pdf.")
    _figure(1, 1)


def _save(figure: Any, path: Path) -> None:
    check_picture(path)
    figure.savefig(path, dpi=150)


def plot_isometry(measured: Isometry, quantile: float, title: str, path: Path) -> None:
    """A histogram of ‖Phi(u − v)‖²/‖u − v‖² with the band 1 ± δ that contains this share of the pairs."""
    figure = _figure(7, 4)
    axes = figure.add_subplot()
    delta = measured.delta(quantile)
    axes.axvspan(1 - delta, 1 + delta, color="tab:blue", alpha=0.12, lw=0)
    axes.hist(measured.ratios, bins=60, color="tab:blue", alpha=0.85)
    for edge in (1 - delta, 1 + delta):
        axes.axvline(edge, color="tab:blue", lw=1, ls="--")
    axes.axvline(1, color="black", lw=1)
    reach = 1.15 * max(float(np.abs(measured.ratios - 1).max()), delta)
    axes.set_xlim(1 - reach, 1 + reach)
    axes.set_xlabel("‖Φ(u − v)‖² / ‖u − v‖² (1: distance preserved)")
    axes.set_ylabel("pairs of label rows")
    axes.set_title(f"{title}\n{100 * quantile:g} % of pairs within 1 ± {delta:.2f}", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def plot_study(study: Study, title: str, path: Path) -> None:
    """The trials of a study in order, with the best so far; below, the metric against each setting searched."""
    shown = [trial for trial in study.trials if trial.value is not None]
    searched = ("preset", "decoder", "ridge", "gamma", "relevance", "neighbors", "dims", "tail")
    names = [name for name in searched if len({trial.parameters.get(name) for trial in shown} - {None}) > 1]
    n_rows = -(-len(names) // 4)
    figure = _figure(10, 3.2 + 2.2 * n_rows)
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
    _save(figure, path)


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
