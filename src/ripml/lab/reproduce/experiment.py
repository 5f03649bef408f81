"""What an experiment is: measurements to make, figures to draw, and claims of the paper to judge by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CUTS", "Claim", "Experiment", "Extent", "Measurement", "Row", "Rows", "Table"]

CUTS = (1, 3, 5)
Row = dict[str, Any]  # a flat record of strings and numbers


class Rows(list[Row]):
    """The rows of measurements, which can be selected and averaged.

    >>> rows = Rows([{"m": 50, "P@1": 60.0}, {"m": 50, "P@1": 61.0}, {"m": 100, "P@1": 70.0}])
    >>> rows.values("m"), rows.where(m=50).mean("P@1"), rows.where(m=50).spread("P@1")
    ([50, 100], 60.5, 0.5)
    """

    def where(self, **wanted: Any) -> Rows:
        """The rows that have all these values."""
        return Rows(row for row in self if all(row.get(name) == value for name, value in wanted.items()))

    def values(self, name: str) -> list[Any]:
        """The distinct values of a column, in order of appearance."""
        return list(dict.fromkeys(row[name] for row in self))

    def mean(self, name: str) -> float:
        """The mean of a column; NaN without rows."""
        return float(np.mean([row[name] for row in self])) if self else float("nan")

    def spread(self, name: str) -> float:
        """The standard deviation of a column."""
        return float(np.std([row[name] for row in self]))

    def precisions(self) -> str:
        """The means of P@1, P@3 and P@5 as a table cell."""
        return " / ".join(f"{self.mean(f'P@{k}'):.1f}" for k in CUTS) if self else "–"


@dataclass(frozen=True)
class Extent:
    """How much is measured (everything, or a quick look at everything), the folder of the run, and the seed."""

    folder: Path
    quick: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Measurement:
    """A piece of work that is done once and kept in a file of this name."""

    name: str
    make: Callable[[], list[Row]]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, whether it holds here (None: cannot be decided), and the figures that show it."""

    text: str
    holds: bool | None
    evidence: str


@dataclass(frozen=True)
class Table:
    """A table of a report: title, column names, rows of strings and numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or an extension of it."""

    number: int
    word: str  # its name on the shell
    title: str
    protocol: str  # what was done, in a few sentences
    plan: Callable[[Extent], list[Measurement]]
    draw: Callable[[Rows], Mapping[str, Any]]  # caption ↦ figure
    tables: Callable[[Rows], list[Table]]
    claims: Callable[[Rows], list[Claim]]
    sets: tuple[str, ...]  # the data sets it needs
    needs_texts: bool = False  # learns document vectors, with the extra `text`
