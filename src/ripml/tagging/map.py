"""`DocumentMap`: documents in two dimensions, coloured by label or by doubt, with the names of its regions.

Positions come from the features alone, as the model weighs them: labels do not move a document, so that one whose
labels are wrong stands among documents of another colour. See `ripml.model.layout`.

The doubt about a document compares its labels with those of the most similar ones. With s_il the share of the documents
most similar to i that carry the label l, and s_l the mean of s_il over all carriers of l,

    doubt(i) = mean of max(0, 1 − s_il/s_l) over the labels l of i for which s_l > 0.

A rare label is not in doubt for being rare, since its other carriers stand alone as much. This is what a map can show
of all documents within a second; `audit` takes longer and knows better.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.model.layout import SIDE, Layout
from ripml.tagging.documents import DocumentModel

__all__ = ["DocumentMap", "Region", "doubt", "map_features", "regions"]

Ints = NDArray[np.int64]

_CELLS = (3, 6, 12, 24, 48)  # a side of the map, for the names of ever smaller regions
_LEAST_ROWS = 1.5  # in a cell on average
_LEAST_SHARE = 0.2  # of the documents of a cell that carry the label that names it
_COLOURED = 9


@dataclass(frozen=True)
class Region:
    """A part of the map that a label names: many of the documents there carry it, and few elsewhere."""

    label: str
    x: float  # the middle of these documents, from 0 to 1
    y: float
    n_documents: int  # that carry it there
    cells: int  # the side of the map has so many of this size


@dataclass(frozen=True)
class DocumentMap:
    """Documents on a square.

    Row i of `positions`, `carried` and `doubt` is the document `ids[i]`.
    """

    version: int  # of the store, 0 for a tagger
    ids: list[str]
    grid: NDArray[np.uint16]  # (n, 2), in 65,535 steps a side
    carried: Any  # (n, L), CSR: which labels a document carries
    label_names: list[str]
    doubt: NDArray[np.float32]  # (n,), from 0 to 1; NaN where nothing speaks for or against the labels
    regions: list[Region]
    stale: bool = False  # whether the map would now be another one, had it been computed again
    n_waiting: int = 0  # documents that are not on the map before it is computed again

    @classmethod
    def of(cls, X: Any, data: Dataset, seed: int = 0, n_jobs: int | None = None) -> DocumentMap:
        """The map of documents by features X (n, d); those without ids are "0", "1", …"""
        layout = Layout.of(X, seed, n_jobs)
        ids = data.ids or [str(i) for i in range(len(data))]
        carried = csr_array(data.Y)
        carried.sort_indices()
        named = regions(layout.positions, carried, data.label_names)
        return cls(0, ids, layout.positions, carried, data.label_names, doubt(layout.near, carried), named)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def positions(self) -> NDArray[np.float32]:
        """(n, 2), from 0 to 1."""
        return np.asarray(self.grid / np.float32(SIDE), np.float32)

    def labels(self, row: int) -> list[str]:
        """The labels of a document."""
        start, end = self.carried.indptr[row : row + 2]
        return [self.label_names[column] for column in self.carried.indices[start:end].tolist()]

    @cached_property
    def top(self) -> list[tuple[str, int]]:
        """The most frequent labels, and how many documents carry each: those that have a colour."""
        counts = np.bincount(self.carried.indices, minlength=len(self.label_names))
        order = np.lexsort((np.arange(len(counts)), -counts))[:_COLOURED]
        return [(self.label_names[column], int(counts[column])) for column in order.tolist() if counts[column]]

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """(n,), for each document the place of its label in `top`, of several the least frequent; 255 for none."""
        place = {name: i for i, (name, _) in enumerate(self.top)}
        of_label = np.array([place.get(name, -1) for name in self.label_names], np.int64)
        found = np.full(len(self), -1, np.int64)
        rows = np.repeat(np.arange(len(self)), np.diff(self.carried.indptr))
        np.maximum.at(found, rows, of_label[self.carried.indices])
        return found.astype(np.uint8)  # −1 is 255

    def carriers(self, label: str) -> Ints:
        """The rows of the documents that carry a label; none for an unknown one."""
        if label not in self.label_names:
            return np.zeros(0, np.int64)
        column = self.label_names.index(label)
        places = np.flatnonzero(self.carried.indices == column)
        return np.asarray(np.searchsorted(self.carried.indptr, places, side="right") - 1, np.int64)

    @cached_property
    def tag(self) -> str:
        """What identifies the map: another one, or another version, has another tag."""
        return f"{self.version}-{zlib.crc32(self.packed()):08x}"

    def packed(self) -> bytes:
        """All points in six bytes each: x and y as little-endian uint16, `codes`, and the doubt in steps of 1/254 with
        255 for NaN; first x of all points, then y, and so on."""
        steps = np.where(np.isnan(self.doubt), 255, np.round(np.nan_to_num(self.doubt) * 254)).astype(np.uint8)
        x, y = (np.ascontiguousarray(self.grid[:, i], "<u2").tobytes() for i in (0, 1))
        return x + y + self.codes.tobytes() + steps.tobytes()


def map_features(model: DocumentModel, data: Dataset, vectors: Any = None) -> Any:
    """The features (n, d) that documents are laid out by: as the regression sees them, without names in texts."""
    X = model.features(data) if model.text is None else model.text.transform(data.texts or [], vectors)
    return model.model.model_.features(X) if isinstance(model.model, RIPML) else X


def doubt(near: NDArray[Any], carried: Any) -> NDArray[np.float32]:
    """How little the most similar rows (n, k), −1 for none, speak for the labels of each row, CSR (n, L).

    >>> carried = csr_array(np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [0, 1]]))
    >>> near = np.array([[1, 2], [0, 2], [0, 1], [0, 1], [5, 6], [4, 6], [4, 5]])
    >>> doubt(near, carried).tolist()
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    """
    n, n_labels = carried.shape
    there = near >= 0
    ends = np.cumsum([0, *there.sum(1)])
    graph = csr_array((np.ones(int(ends[-1]), np.float32), near[there], ends), shape=(n, n))
    both = (graph @ carried.astype(np.float32)).multiply(carried).tocsr()
    rows = np.repeat(np.arange(n), np.diff(carried.indptr))
    counts = np.maximum(there.sum(1), 1)
    found = np.zeros(carried.nnz)
    keys = rows * n_labels + carried.indices
    order = np.argsort(keys)
    both_keys = np.repeat(np.arange(n), np.diff(both.indptr)) * n_labels + both.indices
    found[order[np.searchsorted(keys[order], both_keys)]] = both.data
    share = found / counts[rows]
    usual = np.bincount(carried.indices, share, n_labels) / np.maximum(
        np.bincount(carried.indices, minlength=n_labels), 1
    )
    told = usual[carried.indices] > 0
    lack = np.maximum(0, 1 - share[told] / usual[carried.indices[told]])
    told_of = np.bincount(rows[told], minlength=n)
    sums = np.bincount(rows[told], lack, n)
    return np.where(told_of > 0, sums / np.maximum(told_of, 1), np.nan).astype(np.float32)


def regions(grid: NDArray[np.uint16], carried: Any, names: Sequence[str]) -> list[Region]:
    """The names of regions, of large ones first: in each cell of a square grid, the label with the largest

        c·log((c/t)/(C/n)),    carried by c of the t documents there and by C of all n,

    but each label at one place of a size only, and not where a larger region has its name already.
    """
    n, found = len(grid), list[Region]()
    least = 2 if n < 1000 else 5
    frequency = np.maximum(np.bincount(carried.indices, minlength=len(names)), 1)
    rows = np.repeat(np.arange(n), np.diff(carried.indptr))
    for cells in _CELLS:
        if n < _LEAST_ROWS * cells * cells or not len(rows):
            break
        place = (grid.astype(np.int64) * cells) // (SIDE + 1)
        cell = place[:, 0] * cells + place[:, 1]
        total = np.bincount(cell, minlength=cells * cells)
        keys, of_pair, counts = np.unique(
            cell[rows] * len(names) + carried.indices, return_inverse=True, return_counts=True
        )
        where, label = keys // len(names), keys % len(names)
        share = counts / total[where]
        worth = counts * np.log(share * n / frequency[label])
        worth[(counts < least) | (share < _LEAST_SHARE) | (worth <= 0)] = -1
        best: dict[int, int] = {}  # the pair of a cell with the most worth
        taken: set[int] = set()
        for pair in np.lexsort((keys, -worth)).tolist():
            if worth[pair] < 0:
                break
            if where[pair] in best or label[pair] in taken:
                continue
            there = grid[rows[of_pair == pair]] / SIDE
            x, y = there[np.abs(there - np.median(there, axis=0)).sum(1).argmin()]  # one of them stands there
            name = names[label[pair]]
            best[where[pair]] = pair
            taken.add(label[pair])
            if all(one.label != name or max(abs(one.x - x), abs(one.y - y)) * one.cells > 1 for one in found):
                found.append(Region(name, float(x), float(y), int(counts[pair]), cells))
    return found
