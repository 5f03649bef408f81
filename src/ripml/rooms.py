"""Where arrays of the size of the data are made: in memory, or in files of a folder that are mapped into it.

Pages of a mapped file come in when they are read and can go again, so a fit whose large arrays are all in files holds
little more than the blocks it works on. `release` lets go of the pages of an array that is done with.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.resources import blocks, require_memory

__all__ = ["DiskRoom", "Room", "release", "row_slice"]

_ROW_BLOCK = 65536  # rows copied at a time


@dataclass(frozen=True)
class Room:
    """Memory; `table_bytes` of columns of Phi may be held at a time."""

    table_bytes: int = 1 << 30

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array to be filled."""
        return np.empty(shape, dtype)

    def require(self, needed: float, what: str) -> None:
        """Raise if an array of `needed` bytes does not fit."""
        require_memory(needed, what, "use fewer `n_dims`")

    def rows_at_a_time(self, row_bytes: int, most: int) -> int:
        """Rows of a block, each of which takes `row_bytes`."""
        return most

    def kept_sums(self, n: int) -> tuple[int, list[Any]]:
        """How many blocks were summed before, and n sums of them."""
        return 0, [None] * n

    def keep_sums(self, n_blocks: int, sums: list[Any]) -> None:
        """Remember the sums of so many blocks."""

    def rows_of(self, Y: Any, rows: NDArray[np.int64], name: str) -> Any:
        """These rows of an indicator, CSR."""
        return Y[rows]


@dataclass(frozen=True)
class DiskRoom(Room):
    """Files in a folder."""

    folder: Path = Path()

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array in a new file of the folder."""
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(self.folder / f"{name}.bin", dtype, "w+", shape=shape)

    def require(self, needed: float, what: str) -> None:
        """Nothing: the disk itself says when it is full."""

    def rows_of(self, Y: Any, rows: NDArray[np.int64], name: str) -> Any:
        """These rows of an indicator, CSR, in files."""
        indptr = np.concatenate([[0], np.cumsum(np.diff(Y.indptr)[rows])])
        indices = self.empty(f"{name}-indices", (int(indptr[-1]),), Y.indices.dtype)
        for block in blocks(len(rows), _ROW_BLOCK):
            lengths = np.diff(indptr[block.start : block.stop + 1])
            within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            at = np.repeat(Y.indptr[rows[block]].astype(np.int64), lengths) + within
            indices[indptr[block.start] : indptr[block.stop]] = Y.indices[at]
        return csr_array((self.ones(len(indices)), indices, indptr), shape=(len(rows), Y.shape[1]))

    def ones(self, n: int) -> NDArray[np.float32]:
        """The values of an indicator with n entries: one file for all, as long as the longest."""
        path = self.folder / "ones.bin"
        if not path.exists() or path.stat().st_size < 4 * n:
            with path.open("wb") as file:
                for block in blocks(n, 1 << 20):
                    file.write(np.ones(block.stop - block.start, np.float32).tobytes())
        return np.memmap(path, np.float32, "r", shape=(n,)) if n else np.empty(0, np.float32)


def row_slice(Y: Any, rows: slice) -> Any:
    """Consecutive rows of a CSR matrix, without a copy of their entries."""
    if rows == slice(0, Y.shape[0]):
        return Y
    ends = Y.indptr[rows.start : rows.stop + 1]
    own = slice(int(ends[0]), int(ends[-1]))
    return type(Y)((Y.data[own], Y.indices[own], ends - ends[0]), shape=(len(ends) - 1, Y.shape[1]))


def release(*arrays: Any) -> None:
    """Let go of the pages of arrays, each in one piece, that are mapped from files; what was written to them stays.

    Arrays in memory stay as they are.

    >>> release(np.ones(3))
    """
    for array in arrays:
        owner = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        if not isinstance(owner, mmap.mmap) or not array.size or not hasattr(mmap, "MADV_DONTNEED"):
            continue
        start = array.__array_interface__["data"][0] - np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        owner.madvise(mmap.MADV_DONTNEED, first, start + array.nbytes - first)
