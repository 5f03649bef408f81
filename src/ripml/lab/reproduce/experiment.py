"""What an experiment is: measurements to be made, a drawing of them, and claims to be judged by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CUTS", "Claim", "Experiment", "Extent", "Measurement", "Row", "Table", "mean", "select"]

CUTS = (1, 3, 5)
Row = dict[str, Any]  # a flat record of words and numbers
Rows = Sequence[Row]


@dataclass(frozen=True)
class Extent:
    """How much is measured, all of it or a quick look at everything, and the folder that things are kept in."""

    folder: Path
    quick: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Measurement:
    """A piece of work that is done once, kept in a file of this name, and never repeated."""

    name: str
    make: Callable[[], list[Row]]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper in its sense, whether it holds here, and by which figures. None: it cannot be told."""

    text: str
    holds: bool | None
    evidence: str


@dataclass(frozen=True)
class Table:
    """A table for people: a title, names of columns, rows of words and numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper, or what goes beyond it."""

    number: int
    word: str  # its name on the shell
    title: str
    protocol: str  # what was done, in a few sentences
    plan: Callable[[Extent], list[Measurement]]
    draw: Callable[[Rows], Mapping[str, Any]]  # caption ↦ figure
    tables: Callable[[Rows], list[Table]]
    claims: Callable[[Rows], list[Claim]]
    sets: tuple[str, ...]  # data sets it needs
    from_texts: bool = False  # learns vectors of texts, with the extra `text`


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have all these values.

    >>> select([{"m": 50, "k": 5}, {"m": 100, "k": 5}], m=100)
    [{'m': 100, 'k': 5}]
    """
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def mean(rows: Iterable[Row], name: str) -> float:
    """The mean of a value over rows; NaN over none.

    >>> mean([{"P@1": 60.0}, {"P@1": 61.0}], "P@1")
    60.5
    """
    values = [row[name] for row in rows]
    return float(np.mean(values)) if values else float("nan")
