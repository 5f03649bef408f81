"""Workspace: where arrays of the size of the data are allocated, in memory or in memory-mapped files of a folder.

The system loads pages of a mapped file when they are read and can drop them again, so a fit whose large arrays are all
in files holds little more than the blocks it works on. `release` drops the pages of an array that is no longer needed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from ripml.base.errors import DataError
from ripml.base.parallel import blocks, require_memory
from ripml.base.platform import boot_id, read_at, trim_memory

__all__ = [
    "ColumnBlocks",
    "DiskWorkspace",
    "RowBlocks",
    "Workspace",
    "atomically",
    "boot_id",
    "empty_beside",
    "map_file",
    "read_rows",
    "release",
    "release_rows",
    "row_slice",
]

_ROW_BLOCK = 65536  # rows copied at a time
_LEAST_ROWS = 2048


@dataclass(frozen=True)
class Workspace:
    """A workspace in memory; columns of Phi may take `table_bytes` at a time."""

    table_bytes: int = 1 << 30
    in_memory: ClassVar[bool] = True

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """A new array, to be filled."""
        return np.empty(shape, dtype)

    def require_memory(self, needed: float, what: str) -> None:
        """Raise if an array of `needed` bytes does not fit."""
        require_memory(needed, what, "use fewer `n_dims`")

    def rows_per_block(self, row_bytes: int, most: int) -> int:
        """How many rows of `row_bytes` each to work on at a time, at most `most`."""
        return most

    def row_blocks(
        self,
        X: Any,
        height: int,
        numbers: NDArray[np.int64] | None = None,
        change: Callable[[Any], Any] | None = None,
    ) -> RowBlocks:
        """Rows of X, see `RowBlocks`; summed where the rows are, if that is elsewhere."""
        return RowBlocks(X, height, numbers, change)

    def take_rows(self, Y: Any, rows: NDArray[np.int64], name: str) -> Any:
        """These rows of a CSR indicator."""
        return Y[rows]

    def changed_rows(self, name: str, X: Any, change: Callable[[Any], Any]) -> Any:
        """`change(X)` of rows X, dense or CSR, that changes each row by itself and no index of a sparse one."""
        return change(X)

    def columns(self, name: str, X: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The columns of CSR rows X: where each begins (d + 1,), its rows in ascending order, and its values.

        Rows are numbered in as few bytes as possible: they are read for each query.
        """
        columns = X.tocsc()
        columns.sort_indices()
        rows = columns.indices.astype(np.uint16) if X.shape[0] <= 2**16 else columns.indices
        return columns.indptr, rows, columns.data

    def csr(self, name: str, values: NDArray[Any], columns: NDArray[Any], indptr: NDArray[Any], width: int) -> Any:
        """A CSR matrix of these arrays, with sorted indices."""
        matrix = csr_array((values, columns, indptr), shape=(len(indptr) - 1, width))
        matrix.has_canonical_format = True
        return matrix

    def trim_memory(self) -> None:
        """Return freed memory to the system, between two stages of the work."""

    def load_checkpoint(self, step: list[Any]) -> dict[str, NDArray[Any]] | None:
        """The arrays that an interrupted run saved at this step; None if there are none."""
        return None

    def save_checkpoint(self, step: list[Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Record that the work reached this step, with its arrays."""

    def discard_stale_files(self) -> None:
        """Delete the checkpoints and files of other work."""


@dataclass(frozen=True)
class DiskWorkspace(Workspace):
    """A workspace in files of a folder, with `memory` bytes for everything else, three quarters of it for columns of
    Phi. A step is named by a list whose first entry is the name of its checkpoint file."""

    folder: Path = Path()
    memory: int = 1 << 30
    work_id: str = ""  # identifies data and settings: checkpoints of other work are not used
    in_memory: ClassVar[bool] = False

    @classmethod
    def in_folder(cls, folder: Path, memory: int) -> DiskWorkspace:
        """The workspace in this folder."""
        return cls(table_bytes=3 * memory // 4, folder=folder, memory=memory)

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array in a file; one of the same size that an interrupted run left is opened with its content."""
        if 0 in shape:
            return np.empty(shape, dtype)
        path = self.folder / f"{name}.bin"
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if path.exists() and path.stat().st_size == size:
            return np.memmap(path, dtype, "r+", shape=shape)
        path.unlink(missing_ok=True)
        return np.memmap(path, dtype, "w+", shape=shape)

    def require_memory(self, needed: float, what: str) -> None:
        """Nothing to check: writing to a full disk raises an error."""

    def rows_per_block(self, row_bytes: int, most: int) -> int:
        """Rows that take an eighth of the memory, but at least 2048, so that the overhead per block stays small."""
        return int(np.clip(self.memory // 8 // max(row_bytes, 1), min(_LEAST_ROWS, most), most))

    def take_rows(self, Y: Any, rows: NDArray[np.int64], name: str) -> Any:
        """These rows of a CSR indicator, in files."""
        indptr = np.concatenate([[0], np.cumsum(np.diff(Y.indptr)[rows])])
        indices = self.empty(f"{name}-indices", (int(indptr[-1]),), Y.indices.dtype)
        for block in blocks(len(rows), _ROW_BLOCK):
            lengths = np.diff(indptr[block.start : block.stop + 1])
            within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            source = np.repeat(Y.indptr[rows[block]].astype(np.int64), lengths) + within
            indices[indptr[block.start] : indptr[block.stop]] = Y.indices[source]
            release(indices, Y.indices)
        return self.csr(name, self.ones(len(indices)), indices, indptr, Y.shape[1])

    def changed_rows(self, name: str, X: Any, change: Callable[[Any], Any]) -> Any:
        """The same in files; a sparse result has the indices of X."""
        return self._written(name, X, change, lambda height: RowBlocks(X, height, None, change).blocks())

    def _written(
        self,
        name: str,
        X: Any,
        change: Callable[[Any], Any],
        parts: Callable[[int], Iterator[tuple[slice, Any]]],
    ) -> Any:
        """`change(X)` in files; `parts(height)` are its rows, so many at a time, and where they are."""
        n, sparse = X.shape[0], issparse(X)
        first = change(row_slice(X, slice(0, min(n, 1))))
        if sparse and issparse(first):
            values = self.empty(f"{name}-values", X.data.shape, first.dtype)
            out: Any = csr_array((values, X.indices, X.indptr), shape=X.shape)
            out.has_canonical_format = True
        else:
            out = self.empty(name, (n, first.shape[1]), first.dtype)
        step = [f"{name}-changed", list(X.shape)]
        if self.load_checkpoint(step) is not None:
            return out
        width = X.data.nbytes // max(n, 1) if sparse else X.shape[1] * X.dtype.itemsize
        for rows, part in parts(self.rows_per_block(4 * width, _ROW_BLOCK)):
            if issparse(out):
                out.data[X.indptr[rows.start] : X.indptr[rows.stop]] = part.data
            else:
                out[rows] = part
            release_rows(out)
        self.save_checkpoint(step, {})
        return out

    def columns(self, name: str, X: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The same in files."""
        n, d = X.shape
        place = self.rows_per_block(16 * max(1, len(X.data) // max(n, 1)), _ROW_BLOCK)
        ends = np.zeros(d + 1, np.int64)
        for entries in blocks(len(X.indices), 1 << 22):
            ends[1:] += np.bincount(X.indices[entries], minlength=d)
            release(X.indices[entries])
        np.cumsum(ends, out=ends)
        rows = self.empty(f"{name}-rows", (len(X.indices),), np.uint16 if n <= 2**16 else X.indices.dtype)
        values = self.empty(f"{name}-values", (len(X.indices),), X.dtype)
        step = [f"{name}-columns", n, d, len(X.indices)]
        if self.load_checkpoint(step) is None:
            free = ends[:-1].copy()  # where the next entry of each column goes
            for block in blocks(n, place):
                part = row_slice(X, block).tocsc()
                lengths = np.diff(part.indptr)
                to = np.repeat(free - part.indptr[:-1], lengths) + np.arange(len(part.indices))
                rows[to] = part.indices + block.start
                values[to] = part.data
                free += lengths
                release(rows, values, X.data, X.indices)
            self.save_checkpoint(step, {})
        narrow = X.indices.dtype if len(X.indices) < 2**31 else np.int64
        return ends.astype(narrow), np.asarray(rows), np.asarray(values)

    def csr(self, name: str, values: NDArray[Any], columns: NDArray[Any], indptr: NDArray[Any], width: int) -> Any:
        """A CSR matrix of arrays in files; both index arrays get one dtype, or SciPy would copy them into memory."""
        if indptr[-1] < 2**31:
            ends = indptr.astype(columns.dtype, copy=False)
        else:
            wide = self.empty(f"{name}-columns64", columns.shape, np.int64)
            for block in blocks(len(columns), 1 << 20):
                wide[block] = columns[block]
                release(wide[block], columns[block])
            columns, ends = wide, indptr
        matrix = csr_array((values, columns, ends), shape=(len(ends) - 1, width))
        matrix.has_canonical_format = True
        return matrix

    def move_columns(self, Y: Any, column: NDArray[np.int64], name: str) -> Any:
        """The CSR indicator with column j moved to `column[j]`, in files."""
        indices = self.empty(f"{name}-indices", (len(Y.indices),), Y.indices.dtype)
        for rows in blocks(Y.shape[0], _ROW_BLOCK):
            part = row_slice(Y, rows)
            moved = csr_array((part.data.copy(), column[part.indices], part.indptr), shape=part.shape)
            moved.sort_indices()
            indices[Y.indptr[rows.start] : Y.indptr[rows.stop]] = moved.indices
            release(indices, Y.indices)
        return self.csr(name, Y.data, indices, Y.indptr, Y.shape[1])

    def ones(self, n: int) -> NDArray[np.float32]:
        """The values of an indicator with n entries; all indicators share one file."""
        path = self.folder / f"ones-{boot_id()}.bin"
        if not path.exists() or path.stat().st_size < 4 * n:
            with atomically(path) as part, part.open("wb") as file:
                for block in blocks(n, 1 << 20):
                    file.write(np.ones(block.stop - block.start, np.float32).tobytes())
        return map_file(path, np.float32, (n,))

    def trim_memory(self) -> None:
        """Return freed memory to the system, where its C library can."""
        trim_memory()

    def load_checkpoint(self, step: list[Any]) -> dict[str, NDArray[Any]] | None:
        """The arrays saved at the same step since the machine was started."""
        try:
            with (self.folder / f"{step[0]}.npz").open("rb") as file, np.load(file) as saved:
                arrays = {name: saved[name] for name in saved.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # missing, or cut short by a crash
            return None
        return arrays if arrays.pop("at").item() == self._mark(step) else None

    def discard_stale_files(self) -> None:
        """Delete all files unless the checkpoint of the whole work is that of this work."""
        if self.load_checkpoint(["work"]) is None:
            for file in [*self.folder.glob("*.npz"), *self.folder.glob("*.bin")]:
                file.unlink()  # an earlier model that has it mapped still reads it
            self.save_checkpoint(["work"], {})

    def save_checkpoint(self, step: list[Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Save to a file that is replaced atomically."""
        with atomically(self.folder / f"{step[0]}.npz") as part:
            np.savez(part, at=np.array(self._mark(step)), allow_pickle=False, **arrays)

    def _mark(self, step: list[Any]) -> str:
        return json.dumps([*step, self.work_id, boot_id()])


@contextlib.contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, in the same folder; it replaces `path` when the block ends without an error.

    Its name ends like that of `path`, as some writers choose the format by the ending.
    """
    unfinished = path.with_name(f"unfinished-{path.name}")
    try:
        yield unfinished
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.replace(path)


def map_file(path: Path, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """The array in a file, read-only."""
    if 0 in shape:
        return np.empty(shape, dtype)
    needed = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if (size := path.stat().st_size) < needed:
        raise DataError(f"{path}: this file has {size} bytes instead of {needed}; remove the folder and start again.")
    return np.memmap(path, dtype, "r", shape=shape)


@dataclass(frozen=True)
class RowBlocks:
    """Rows of a matrix that are made where they are used, some at a time: those of these numbers, changed.

    >>> rows = RowBlocks(np.eye(3), 2, np.array([0, 2]), lambda X: 5 * X)
    >>> rows.shape, rows[1:2].tolist(), rows[np.array([0])].tolist()
    ((2, 3), [[0.0, 0.0, 5.0]], [[5.0, 0.0, 0.0]])
    """

    X: Any  # anything whose rows can be taken by a slice and by numbers
    height: int  # rows to work on at a time
    numbers: NDArray[np.int64] | None = None  # None for all rows
    change: Callable[[Any], Any] | None = None  # which changes each row by itself
    shape: tuple[int, int] = field(init=False)
    dtype: Any = field(init=False)
    sparse: bool = field(init=False)
    elsewhere: ClassVar[bool] = False  # whether rows are summed where they are, and not here
    n_places: ClassVar[int] = 1  # where they are summed at the same time

    def __post_init__(self) -> None:
        some = self[:0]
        n = self.X.shape[0] if self.numbers is None else len(self.numbers)
        object.__setattr__(self, "shape", (int(n), int(some.shape[1])))
        object.__setattr__(self, "dtype", some.dtype)
        object.__setattr__(self, "sparse", issparse(some))

    def __getitem__(self, rows: Any) -> Any:
        numbers = rows if self.numbers is None else self.numbers[rows]
        if isinstance(numbers, slice):
            start, stop, _ = numbers.indices(self.X.shape[0])
            part = row_slice(self.X, slice(start, stop))
        else:
            part = read_rows(self.X, numbers)
        return part if self.change is None else self.change(part)

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """The rows, `height` at a time, and where they are; memory pages of those before are dropped."""
        for rows in blocks(self.shape[0], self.height):
            yield rows, self[rows]
            self.release()

    def fold(self, add: Callable[..., Any], *beside: RowBlocks, total: Any = None, in_order: bool = False) -> Any:
        """`add(total, block, …)` for one block after the other, with the same rows of `beside`, from None.

        Totals are arrays, or tuples of arrays. Rows elsewhere are summed at the same time and their totals added,
        or `in_order` one after the other, for sums that are rounded row by row as on one machine. `add` is a named
        function, or a partial of one, which can be pickled.

        >>> RowBlocks(np.eye(3), 2).fold(lambda total, block: block.sum(axis=0) + (0 if total is None else total))
        array([1., 1., 1.])
        """
        for rows, part in self.blocks():
            total = add(total, part, *(other[rows] for other in beside))
            for other in beside:
                other.release()
        return total

    def changed(self, change: Callable[[Any], Any], name: str) -> RowBlocks:
        """These rows after another change, which is made once if they are elsewhere, by tasks of this name."""
        return RowBlocks(self, self.height, None, change)

    def release(self) -> None:
        """Drop the memory pages of mapped rows."""
        if isinstance(self.X, RowBlocks):
            self.X.release()
        else:
            release_rows(self.X)


@dataclass(frozen=True)
class ColumnBlocks:
    """A matrix (d, M) in files, of which blocks of columns are used one at a time: each block is an array of its own.

    In an array of rows, every page of the file would have some numbers of each block.
    """

    columns: list[slice]
    parts: list[NDArray[Any]]  # (d, width) each

    @classmethod
    def empty(
        cls, name: str, shape: tuple[int, int], columns: list[slice], dtype: Any, workspace: Workspace
    ) -> ColumnBlocks:
        """To be filled, or with what an interrupted run left there."""
        whole = workspace.empty(name, (shape[0] * shape[1],), dtype)
        ends = np.cumsum([0, *(shape[0] * (some.stop - some.start) for some in columns)])
        parts = [whole[start:end].reshape(shape[0], -1) for start, end in pairwise(ends.tolist())]
        return cls(columns, parts)

    @property
    def shape(self) -> tuple[int, int]:
        """(d, M)."""
        return len(self.parts[0]), self.columns[-1].stop

    @property
    def dtype(self) -> Any:
        """That of its numbers."""
        return self.parts[0].dtype

    def toarray(self, name: str, workspace: Workspace) -> NDArray[Any]:
        """As one array, of this name in the workspace."""
        out = workspace.empty(name, self.shape, self.dtype)
        for rows in blocks(len(out), _ROW_BLOCK // 8):
            for columns, part in zip(self.columns, self.parts, strict=True):
                out[rows, columns] = part[rows]
                release(part[rows])
            release(out[rows])
        return out


def row_slice(Y: Any, rows: slice) -> Any:
    """Consecutive rows of a matrix, without a copy of the entries of a CSR matrix or an array."""
    if rows == slice(0, Y.shape[0]) and not isinstance(Y, RowBlocks):
        return Y
    if not issparse(Y):
        return Y[rows]
    ends = Y.indptr[rows.start : rows.stop + 1]
    entries = slice(int(ends[0]), int(ends[-1]))
    return type(Y)((Y.data[entries], Y.indices[entries], ends - ends[0]), shape=(len(ends) - 1, Y.shape[1]))


def read_rows(X: Any, rows: NDArray[np.int64]) -> Any:
    """X[rows]. Rows of a dense mapped array are read from its file: the mapping would load many pages for each row.

    >>> read_rows(np.eye(3), np.array([2])).tolist()
    [[0.0, 0.0, 1.0]]
    """
    readable = isinstance(X, np.memmap) and X.mode != "c" and X.filename is not None
    if not readable or X.ndim != 2 or not X.flags.c_contiguous or X.offset >= mmap.ALLOCATIONGRANULARITY:
        return X[rows]
    out = np.empty((len(rows), *X.shape[1:]), X.dtype)
    with open(X.filename, "rb", buffering=0) as file:
        start = X.__array_interface__["data"][0] - np.frombuffer(_owner(X), np.uint8).__array_interface__["data"][0]
        for row, line in zip(rows.tolist(), out, strict=True):
            if read_at(file.fileno(), line.data.cast("B"), start + row * X.strides[0]) != line.nbytes:
                raise DataError(f"{X.filename}: the file became shorter while it was read.")
    return out


def release_rows(X: Any) -> None:
    """Drop the memory pages of rows, dense or CSR, that are mapped from files."""
    release(*((X.data, X.indices) if issparse(X) else (X,)))


def empty_beside(array: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """A new array, to be filled: in memory, or in a file without a name in the folder of `array`, if that is mapped.

    >>> empty_beside(np.ones(3), (2,), np.int8).shape
    (2,)
    """
    while isinstance(array, np.ndarray) and not (isinstance(array, np.memmap) and array.filename is not None):
        array = array.base
    if not isinstance(array, np.memmap) or 0 in shape:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=Path(str(array.filename)).parent) as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def _private(array: Any) -> bool:
    """Whether writes to an array do not reach a file: it is in memory, or mapped copy-on-write."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.mode is not None:
            return array.mode == "c"
        array = array.base
    return True


def _owner(array: Any) -> Any:
    """The object that owns the memory of an array."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array


def release(*arrays: Any) -> None:
    """Drop the memory pages of contiguous arrays that are mapped from files; what was written to them is kept.

    Arrays in memory are left alone.

    >>> release(np.ones(3))
    """
    for array in arrays:
        if not isinstance(array, np.ndarray):
            continue
        owner = _owner(array)
        if _private(array):  # dropping its pages would undo what was written to them
            continue
        if not isinstance(owner, mmap.mmap) or not array.size or not hasattr(mmap, "MADV_DONTNEED"):
            continue
        start = array.__array_interface__["data"][0] - np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        owner.madvise(mmap.MADV_DONTNEED, first, start + array.nbytes - first)
