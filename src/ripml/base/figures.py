"""Figures: drawn with matplotlib (extra `plot`), and saved as PNG, SVG or PDF."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ripml.base.errors import MissingExtraError, ParameterError

__all__ = ["check_picture", "new_figure", "save_figure"]


def new_figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches; MissingExtraError if matplotlib is not installed.

    Notebooks show it, also without pyplot, which needs a display and has global state.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    return ShownFigure(figsize=(width, height), layout="constrained")


def check_picture(path: Path) -> None:
    """Raise if a figure cannot be saved under this name; to be called before long work."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ParameterError(f"{path}: the name of a plot must end in .png, .svg or .pdf.")
    new_figure(1, 1)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file whose name `check_picture` accepts."""
    check_picture(path)
    figure.savefig(path, dpi=150)
