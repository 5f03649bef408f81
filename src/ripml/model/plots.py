"""`plot_quality`: what scores are worth, in one figure of three parts, with matplotlib (extra `plot`).

calibration   how often labels of a probability are right, in bins of equal numbers
frequency     precision and recall at the threshold, by how many training rows carry a label
automation    the precision of the labels that are applied unseen, by the share of all right labels that are found
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.base.figures import new_figure
from ripml.decoding.calibration import expected_calibration_error
from ripml.decoding.guarantees import Curve
from ripml.decoding.scores import keep_above, outcomes
from ripml.model.model import Model
from ripml.model.quality import BANDS

__all__ = ["plot_quality"]

_INK, _SOFT, _LINE, _ACCENT, _OTHER = "#1c1e20", "#4a4f53", "#e2dfd8", "#0a5c53", "#b4552d"
_BINS = 12
_PRECISIONS = (0.95, 0.9, 0.8)  # that are marked on the automation curve


def plot_quality(model: Model, truth: Any, scores: Any, title: str) -> Any:
    """A figure for rows with these labels and scores, both CSR (n, L), that the model did not learn from.

    It is a `matplotlib.figure.Figure` that notebooks show; `figure.axes` are its three parts.
    """
    if not truth.nnz or not scores.nnz:
        raise DataError("there is nothing to plot: the rows have no labels, or the model knows nothing about them.")
    L = scores.shape[1]
    frequency = np.zeros(L, np.int64)
    frequency[: len(model.frequency)] = model.frequency
    outcome = outcomes(truth, scores)
    probabilities = model.calibration.probabilities(scores.data)
    figure = new_figure(12, 3.9)
    calibration, by_frequency, automation = figure.subplots(1, 3)
    _calibration(calibration, probabilities, outcome)
    predicted = keep_above(scores, model.calibration.threshold)
    _frequency(by_frequency, truth, predicted, frequency)
    right = outcome.astype(np.float64)
    curve = Curve.of(scores.data.astype(np.float64), right, np.ones(scores.nnz), right, truth.nnz)
    _automation(automation, curve)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=_INK)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(_SOFT)
        axes.tick_params(colors=_SOFT, labelsize=9)
        axes.grid(color=_LINE, lw=0.8)
        axes.set_axisbelow(True)
        for name in (axes.xaxis.label, axes.yaxis.label):
            name.set(color=_SOFT, fontsize=9.5)
    return figure


def _titled(axes: Any, title: str, below: str) -> None:
    axes.set_title(f"{title}\n", loc="left", fontsize=10.5, color=_INK, fontweight="bold")
    axes.text(0, 1.03, below, transform=axes.transAxes, fontsize=9, color=_SOFT)


def _calibration(axes: Any, probabilities: NDArray[Any], outcome: NDArray[Any]) -> None:
    order = np.argsort(probabilities, kind="stable")
    # Bins of equal sums of probabilities: of equal numbers, nearly all would be at 0.
    sums = np.cumsum(probabilities[order])
    edges = np.searchsorted(sums, np.linspace(0, sums[-1], _BINS + 1)[1:-1])
    bins = [part for part in np.split(order, np.unique(edges)) if len(part)]
    mean, share = (np.array([values[part].mean() for part in bins]) for values in (probabilities, outcome))
    axes.plot([0, 1], [0, 1], color=_SOFT, lw=1, ls=(0, (4, 3)))
    axes.plot(mean, share, color=_ACCENT, lw=2, marker="o", ms=5)
    error = expected_calibration_error(probabilities, outcome)
    _titled(axes, "Calibration", f"expected error {error:.3f}; dashed: perfect")
    _percent(axes, "xy")
    axes.set(
        xlabel="probability of a label", ylabel="share of these that is right", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02)
    )


def _frequency(axes: Any, truth: Any, predicted: Any, frequency: NDArray[np.int64]) -> None:
    L = len(frequency)
    carried, said = (np.bincount(matrix.indices, minlength=L)[:L] for matrix in (truth, predicted))
    hits = np.bincount(predicted.indices[outcomes(truth, predicted)], minlength=L)[:L]
    names, precision, recall = [], [], []
    for least, below in zip(BANDS, (*BANDS[1:], np.inf), strict=True):
        mine = (frequency >= least) & (frequency < below)
        if not carried[mine].sum():
            continue
        last = f"{below - 1:,.0f}" if below < np.inf else ""
        names.append(f"{least:,}+" if not last else f"{least:,}" if last == str(least) else f"{least:,}–{last}")
        found, given = hits[mine].sum(), said[mine].sum()
        precision.append(found / given if given else np.nan)
        recall.append(found / carried[mine].sum())
    places = np.arange(len(names))
    axes.bar(places - 0.2, precision, 0.38, color=_ACCENT, label="precision")
    axes.bar(places + 0.2, recall, 0.38, color="white", edgecolor=_OTHER, hatch="////", lw=1, label="recall")
    axes.set_xticks(places, names)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.03, 0.99),
        ncols=2,
        frameon=False,
        fontsize=9,
        labelcolor=_SOFT,
        borderpad=0,
    )
    _titled(axes, "By frequency of the label", "")
    _percent(axes, "y")
    axes.set(xlabel="training rows that carry the label", ylim=(0, 1.02))


def _automation(axes: Any, curve: Curve) -> None:
    _titled(axes, "Automation", "labels applied unseen, the surest first")
    _percent(axes, "xy")
    low = 0.5
    if len(curve.share):
        low = min(low, float(np.floor(10 * curve.precision.min()) / 10))
        axes.plot(curve.share, curve.precision, color=_ACCENT, lw=2)
    else:
        words = "too few labels have a score\nfor a precision that means something"
        axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", fontsize=9, color=_SOFT)
    for precision in _PRECISIONS:
        found = curve.at(precision)
        if found is not None:
            axes.plot(found["share"], found["precision"], marker="o", ms=5, color=_OTHER)
            words = f"{100 * precision:.0f} %: {100 * found['share']:.0f} % found"
            place = {"xytext": (-7, -4), "textcoords": "offset points", "ha": "right", "va": "top"}
            axes.annotate(words, (found["share"], found["precision"]), **place, fontsize=9, color=_INK)
    axes.set(xlabel="share of all right labels that is found", ylabel="precision", xlim=(-0.02, 1.02), ylim=(low, 1.02))


def _percent(axes: Any, which: str) -> None:
    for name in which:
        axis = axes.xaxis if name == "x" else axes.yaxis
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
