"""Pictures, with matplotlib (the extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ripml.ensembles import Isometry
from ripml.errors import MissingExtraError, ParameterError

__all__ = ["plot_isometry"]


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure  # no pyplot: no screen, no global state
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def plot_isometry(measured: Isometry, quantile: float, title: str, path: Path) -> None:
    """A histogram of ‖Phi(u − v)‖²/‖u − v‖² with the band 1 ± δ that holds this share of the pairs."""
    figure, axes = _figure(7, 4)
    delta = measured.delta(quantile)
    axes.axvspan(1 - delta, 1 + delta, color="tab:blue", alpha=0.12, lw=0)
    axes.hist(measured.ratios, bins=60, color="tab:blue", alpha=0.85)
    for edge in (1 - delta, 1 + delta):
        axes.axvline(edge, color="tab:blue", lw=1, ls="--")
    axes.axvline(1, color="black", lw=1)
    reach = 1.15 * max(float(np.abs(measured.ratios - 1).max()), delta)
    axes.set_xlim(1 - reach, 1 + reach)
    axes.set_xlabel("‖Φ(u − v)‖² / ‖u − v‖², distances kept = 1")
    axes.set_ylabel("pairs of label rows")
    axes.set_title(f"{title}\n{100 * quantile:g} % of pairs within 1 ± {delta:.2f}", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=150)
    except ValueError:
        raise ParameterError(f"{path}: a picture ends in .png, .svg or .pdf.") from None
