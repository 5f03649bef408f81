"""How often tokens occur, and in how many texts: counted in memory, or past a limit in sorted files that are merged.

A million texts have millions of different words. A limit on what is held makes the rest a run: a file of tokens in
alphabetical order with their counts. The counts of a token are those of all runs together, so the result does not
depend on the limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray
from ripml.base.workspace import atomically

__all__ = ["TOKEN_BYTES", "Frequencies", "WordCounts"]

TOKEN_BYTES: Final = 250  # of a token that is held with its counts


class Frequencies:
    """Document frequencies and total counts of tokens; `runs` are the files of those that are not held.

    >>> frequencies = Frequencies()
    >>> frequencies.add(["tea", "red"], np.array([2, 1]), np.array([5, 1]))
    >>> frequencies.add(["tea"], np.array([1]), np.array([1]))
    >>> frequencies.most_frequent(1, 1, 9)
    [('tea', 3)]
    """

    def __init__(self, runs: list[Path] | None = None) -> None:
        self.runs = runs or []
        self._clear()

    def _clear(self) -> None:
        self._number: dict[str, int] = {}
        self._counts = GrowingArray(np.empty((0, 2), np.int64))  # document frequency and total of each

    def __len__(self) -> int:
        """Tokens that are held in memory."""
        return len(self._number)

    def add(self, tokens: list[str], df: NDArray[Any], totals: NDArray[Any]) -> None:
        """Add the counts of different tokens."""
        held, number = len(self._number), self._number
        places = np.array([number.setdefault(token, len(number)) for token in tokens], np.int64)
        self._counts.append(np.zeros((len(number) - held, 2), np.int64))
        self._counts.view[places] += np.stack([df, totals], axis=1).astype(np.int64)

    def write_run(self, path: Path) -> None:
        """Move what is held to a file."""
        with atomically(path) as part, part.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
            file.writelines(f"{token}\t{df}\t{total}\n" for token, df, total in self._held())
        self.runs = [*self.runs, path]
        self._clear()

    def most_frequent(self, n: int | None, min_df: int, max_df: int) -> list[tuple[str, int]]:
        """The n tokens of the highest totals among those with min_df ≤ df ≤ max_df, and the df of each.

        They are in alphabetical order, as are tokens of the same total.
        """
        kept = ((-total, token, df) for token, df, total in self if min_df <= df <= max_df)
        chosen = kept if n is None else heapq.nsmallest(n, kept)
        return sorted((token, df) for _, token, df in chosen)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Each token with its document frequency and its total, in alphabetical order."""
        if not self.runs:
            yield from self._held()
            return
        merged = heapq.merge(self._held(), *map(_read_run, self.runs), key=itemgetter(0))
        for token, parts in groupby(merged, key=itemgetter(0)):
            counts = list(parts)
            yield token, sum(df for _, df, _ in counts), sum(total for _, _, total in counts)

    def _held(self) -> Iterator[tuple[str, int, int]]:
        counts = self._counts.view.tolist()
        for token in sorted(self._number):
            yield token, *counts[self._number[token]]


@dataclass
class WordCounts:
    """Counts of the words and groups of letters in so many texts."""

    n_texts: int = 0
    words: Frequencies = field(default_factory=Frequencies)
    groups: Frequencies = field(default_factory=Frequencies)


def _read_run(path: Path) -> Iterator[tuple[str, int, int]]:
    with path.open(encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for line in file:
            token, df, total = line.removesuffix("\n").split("\t")
            yield token, int(df), int(total)
