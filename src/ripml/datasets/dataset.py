"""`Dataset`: rows with their labels, and features or texts or both; and how its matrices are put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from ripml.base.errors import DataError
from ripml.base.parallel import require_memory

__all__ = ["Dataset", "SparseRows", "csr", "join", "numbered"]

_NAME_BYTES = 64  # of a short string and its place in a list


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Dataset:
    """n examples with their labels, and features or texts or both.

    Attributes
    ----------
    X : CSR float32, shape (n, d), or None
        Features; None if the source has only texts.
    Y : CSR float32, shape (n, L)
        Labels: 1 where row i has label j.
    label_names : list of L strings
    feature_names : list of d strings, or None
    texts : list of n strings, or None
    ids : list of n strings, or None
        The names that the source has for the rows.
    name : str

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> Dataset(X=csr_array([[0.5, 0], [0, 1]]), Y=csr_array([[1], [0]]), label_names=["news"], name="tiny")
    <Dataset tiny: 2 rows, 2 features, 1 labels>
    """

    X: Any
    Y: Any
    label_names: list[str]
    feature_names: list[str] | None = None
    texts: list[str] | None = None
    ids: list[str] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        n, n_labels = self.Y.shape
        _check_equal(len(self.label_names), n_labels, "label names", "columns of Y")
        if self.X is not None:
            _check_equal(self.X.shape[0], n, "rows of X", "rows of Y")
            if self.feature_names is not None:
                _check_equal(len(self.feature_names), self.X.shape[1], "feature names", "columns of X")
        for values, name in ((self.texts, "texts"), (self.ids, "ids")):
            if values is not None:
                _check_equal(len(values), n, name, "rows of Y")

    def __len__(self) -> int:
        return int(self.Y.shape[0])

    def label_columns(self, row: int) -> list[int]:
        """Return the columns of the labels of a row."""
        columns: list[int] = self.Y.indices[self.Y.indptr[row] : self.Y.indptr[row + 1]].tolist()
        return columns

    def row_labels(self, row: int) -> list[str]:
        """Return the label names of a row, in the order of their columns."""
        return [self.label_names[column] for column in self.label_columns(row)]

    def take(self, rows: slice | Sequence[int] | NDArray[np.int64]) -> Dataset:
        """Return the data set of these rows, with the same columns.

        >>> Dataset(X=None, Y=csr_array([[1], [0]]), label_names=["news"], texts=["A vote.", "Rain."]).take([1]).texts
        ['Rain.']
        """
        numbers = range(len(self))[rows] if isinstance(rows, slice) else rows
        return replace(
            self,
            X=None if self.X is None else self.X[rows],
            Y=self.Y[rows],
            texts=None if self.texts is None else [self.texts[row] for row in numbers],
            ids=None if self.ids is None else [self.ids[row] for row in numbers],
        )

    def blocks(self, size: int) -> Iterator[Dataset]:
        """Yield the rows in blocks of at most `size`."""
        for start in range(0, len(self), size):
            yield self if size >= len(self) else self.take(slice(start, start + size))

    def __repr__(self) -> str:
        content = "texts" if self.X is None else f"{self.X.shape[1]} features"
        return f"<Dataset {self.name}: {len(self)} rows, {content}, {self.Y.shape[1]} labels>"


def csr(data: ArrayLike, indices: NDArray[Any], indptr: NDArray[Any], n_columns: int) -> Any:
    """Return the float32 CSR array of these parts, with int32 indices if they fit; indices must be sorted."""
    fits = max(n_columns, int(indptr[-1])) <= np.iinfo(np.int32).max
    kind = np.int32 if fits else np.int64
    parts = (np.asarray(data, np.float32), indices.astype(kind, copy=False), indptr.astype(kind, copy=False))
    matrix = csr_array(parts, shape=(len(indptr) - 1, n_columns))
    matrix.has_sorted_indices = True
    return matrix


class SparseRows:
    """Builds a CSR matrix from rows {column: value}."""

    def __init__(self) -> None:
        self._indices: list[int] = []
        self._values: list[float] = []
        self._ptr = [0]

    def __len__(self) -> int:
        return len(self._ptr) - 1

    def add(self, row: dict[int, float]) -> None:
        """Append a row."""
        columns = sorted(row)
        self._indices += columns
        self._values += [row[column] for column in columns]
        self._ptr.append(len(self._indices))

    def csr(self, n_columns: int) -> Any:
        """Return the rows so far: CSR float32, shape (rows, n_columns)."""
        return csr(self._values, np.array(self._indices, np.int64), np.array(self._ptr, np.int64), n_columns)


def numbered(n: int, file: str = "the data", known: Sequence[str] = ()) -> list[str]:
    """Return the names "0", "1", … for the labels of a file, of which some may be known; raise if memory is too small.

    >>> numbered(3)
    ['0', '1', '2']
    """
    require_memory(_NAME_BYTES * n, f"{file}: names for {n:,} labels", "number the labels from 0 without gaps")
    return [*known, *map(str, range(len(known), n))]


def join(blocks: Iterable[Dataset]) -> Dataset:
    """Return all rows of the blocks, at least one block, as one data set.

    Names come from the last block: a later block may have more columns than an earlier one, never fewer.
    """
    X, Y = _Stack(), _Stack()
    texts: list[str] = []
    ids: list[str] = []
    for block in blocks:
        if block.X is not None:
            X.push(block.X)
        Y.push(block.Y)
        texts += block.texts or ()
        ids += block.ids or ()
        last = block
    return Dataset(
        X=None if last.X is None else X.pop(),
        Y=Y.pop(),
        label_names=last.label_names,
        feature_names=last.feature_names,
        texts=None if last.texts is None else texts,
        ids=None if last.ids is None else ids,
        name=last.name,
    )


class _Stack:
    """Stacks CSR blocks; frees data, indices and counts in turn, so that the peak is 1.5 times the result."""

    def __init__(self) -> None:
        self._data: list[NDArray[np.float32]] = []
        self._indices: list[NDArray[Any]] = []
        self._counts: list[NDArray[Any]] = []
        self._width = 0

    def push(self, block: Any) -> None:
        self._data.append(block.data)
        self._indices.append(block.indices)
        self._counts.append(np.diff(block.indptr))
        self._width = block.shape[1]

    def pop(self) -> Any:
        data = _concatenate_and_clear(self._data)
        indices = _concatenate_and_clear(self._indices)
        indptr = np.concatenate(([0], np.cumsum(_concatenate_and_clear(self._counts), dtype=np.int64)))
        return csr(data, indices, indptr, self._width)


def _concatenate_and_clear(parts: list[NDArray[Any]]) -> NDArray[Any]:
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _check_equal(n: int, expected: int, name: str, expected_name: str) -> None:
    if n != expected:
        raise DataError(f"there are {n} {name} but {expected} {expected_name}; the numbers must be equal.")
