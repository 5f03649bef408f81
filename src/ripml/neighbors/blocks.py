"""Exact search of embeddings that lie in pieces: each piece has its k nearest rows, and the k nearest of these remain.

It is how files larger than memory are searched, block by block, and how the workers of a cluster search together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ripml.base.parallel import blocks
from ripml.base.workspace import release
from ripml.neighbors.base import Finder, Floats, Index, Ints, Stored
from ripml.neighbors.exact import Exact

__all__ = ["InBlocks", "merged"]

Found = tuple[Ints, NDArray[np.float64]]  # ids and squared distances, (q, k) each, nearest first


def merged(pieces: Sequence[Found], k: int) -> Found:
    """The k nearest of what was found in each piece, ties by the lower number.

    >>> one, other = (np.array([[0, 1]]), np.array([[1.0, 4.0]])), (np.array([[2]]), np.array([[2.0]]))
    >>> merged([one, other], 2)[0].tolist()
    [[0, 2]]
    """
    ids, distances = (np.concatenate(arrays, axis=1) for arrays in zip(*pieces, strict=True))
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)


@dataclass(frozen=True)
class InBlocks(Index):
    """Exact search of a mapped file, a block of `n_rows` rows at a time, whose pages are let go."""

    n_rows: int = 65536

    def build(self, Z: Stored, n_jobs: int | None = None) -> Finder:
        """Remember where Z is."""
        return _BlockFinder(Z, self.n_rows)


class _BlockFinder(Finder):
    def __init__(self, Z: Stored, height: int) -> None:
        self.n_rows, self._Z, self._height = len(Z), Z, height

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> Found:
        found: list[Found] = []
        for rows in blocks(self.n_rows, self._height):
            ids, distances = Exact().build(self._Z[rows], n_jobs).query(Q, min(k, rows.stop - rows.start), n_jobs)
            found = [merged([*found, (ids + rows.start, distances)], k)]
            release(self._Z[rows])
        return found[0]
