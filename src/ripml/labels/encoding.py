"""Label encoding: Y in any of the forms users have it becomes one CSR indicator with label names and keys.

A label is identified by its name, a string or an integer. Its *key* is a 64-bit number that depends on the name alone,
so that its column of Phi does not depend on which other labels exist or on their order.
"""

from __future__ import annotations

import hashlib
import numbers
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec, check_arrays
from ripml.base.errors import DataError

__all__ = [
    "LabelColumns",
    "align_columns",
    "check_indicator",
    "check_names",
    "check_one_kind",
    "encode_labels",
    "encode_names",
    "indicator_of",
    "label_keys",
    "label_name",
    "names_array",
    "names_from_arrays",
    "names_of_rows",
    "names_to_arrays",
]

Names = NDArray[Any]  # int64, or object holding str


def encode_labels(Y: Any, known: Names | None = None) -> tuple[Any, Names]:
    """Y as a CSR indicator (n, L) of float32 ones, and the L label names.

    Y is a CSR or dense indicator (names 0 … L − 1, or the columns of a DataFrame), a sequence with one collection of
    names per row, or a one-dimensional sequence with one name per row. Names found in sequences are sorted. With
    `known`, those names come first and new names follow; an indicator without names must have `len(known)` columns.

    >>> Y, names = encode_labels([["b", "a"], [], ["a"]])
    >>> Y.toarray().tolist(), names.tolist()
    ([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]], ['a', 'b'])
    """
    if getattr(Y, "ndim", 1) == 2:
        return _encode_indicator(Y, known)
    return _encode_names(Y, known)


def _encode_indicator(Y: Any, known: Names | None) -> tuple[Any, Names]:
    if hasattr(Y, "columns"):  # a DataFrame: its columns are the labels
        names = _column_names(Y.columns.tolist())
        indicator, _ = _encode_indicator(Y.to_numpy(), None)
        if known is None:
            return indicator, names
        check_one_kind(names, known)
        indicator, merged = align_columns(indicator, names.tolist(), known.tolist())
        return indicator, names_array(merged)
    if known is not None and Y.shape[1] != len(known):
        raise DataError(f"Y has {Y.shape[1]} columns, but the model knows {len(known)} labels.")
    indicator = check_indicator(Y, "a two-dimensional Y")
    return indicator, np.arange(Y.shape[1], dtype=np.int64) if known is None else known


def check_indicator(matrix: Any, name: str, dtype: Any = np.float32) -> Any:
    """A copy of a matrix of 0s and 1s as CSR with ones; DataError, which begins with `name`, for other values.

    >>> check_indicator([[1, 0], [0, 2]], "Y")
    Traceback (most recent call last):
    ripml.base.errors.DataError: Y must be an indicator of 0s and 1s; got the value 2.
    """
    try:
        indicator = scipy.sparse.csr_array(matrix, dtype=dtype, copy=True)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be an indicator of 0s and 1s; got values that are not numbers.") from None
    indicator.sum_duplicates()
    indicator.eliminate_zeros()
    wrong = indicator.data[indicator.data != 1]
    if len(wrong):
        raise DataError(f"{name} must be an indicator of 0s and 1s; got the value {wrong[0]:g}.")
    return indicator


def _column_names(columns: list[Any]) -> Names:
    if all(isinstance(column, str) for column in columns):
        return check_names(columns, len(columns))
    check_one_kind(columns)
    if len(_row_names(columns, number=0)) != len(columns):
        raise DataError("two columns of Y have the same name.")
    return names_array([int(column) for column in columns])


def names_array(names: Sequence[str | int]) -> Names:
    """Label names, all strings or all integers, as an array."""
    # The None keeps NumPy from making fixed-width strings.
    return np.array([*names, None], object)[:-1] if names and isinstance(names[0], str) else np.array(names, np.int64)


def check_one_kind(*names: Sequence[str | int] | Names) -> None:
    """Raise `DataError` where some names are strings and others integers."""
    if len({isinstance(name, str) for group in names for name in group}) > 1:
        raise DataError("label names must be all strings or all integers; got both.")


def _encode_names(Y: Any, known: Names | None) -> tuple[Any, Names]:
    rows = names_of_rows(Y)
    found = set().union(*rows) if rows else set()
    start = [] if known is None else known.tolist()
    check_one_kind([*found], start[:1])
    columns = {name: column for column, name in enumerate(start)}
    for name in sorted(found.difference(columns)):
        columns[name] = len(columns)
    return indicator_of(rows, columns, len(columns)), names_array(list(columns))


def indicator_of(rows: Sequence[Set[str | int]], columns: Mapping[Any, int], n_labels: int) -> Any:
    """The CSR indicator (n, L) of rows of label names, from the column of each name."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    indices = np.fromiter((column for row in rows for column in sorted(columns[name] for name in row)), np.int64)
    return scipy.sparse.csr_array((np.ones(len(indices), np.float32), indices, ends), shape=(len(rows), n_labels))


def names_of_rows(Y: Any) -> list[set[str | int]]:
    """The label names of each row, from a sequence with a collection of names or a single name per row.

    >>> names_of_rows(["a", ["c", "b", "c"]]) == [{"a"}, {"b", "c"}]
    True
    """
    rows = _as_sequence(Y)
    _refuse_nested_indicator(rows)
    return [_row_names(row, number) for number, row in enumerate(rows)]


class LabelColumns:
    """Encodes the labels of rows that arrive in blocks: one column per name so far, or per column of indicators.

    >>> columns = LabelColumns()
    >>> [columns.encode(block).toarray().tolist() for block in ([["b"]], [["a"], ["b"]])]
    [[[1.0]], [[0.0, 1.0], [1.0, 0.0]]]
    >>> columns.names.tolist()
    ['b', 'a']
    """

    def __init__(self) -> None:
        self._columns: dict[str | int, int] = {}
        self._width = 0  # of indicators, whose columns have no names
        self._kind: str | None = None

    @property
    def named(self) -> bool:
        """Whether rows have label names; the caller sorts these at the end."""
        return self._kind == "names"

    @property
    def names(self) -> Names:
        """The names so far, in the order of their columns."""
        return names_array(list(self._columns)) if self._columns else np.arange(self._width, dtype=np.int64)

    def encode(self, Y: Any) -> Any:
        """The labels of the next rows, CSR (n, L so far)."""
        kind = "names" if getattr(Y, "ndim", 1) != 2 else "columns" if hasattr(Y, "columns") else "an indicator"
        if self._kind not in (None, kind):
            raise DataError(f"the labels of this block are {kind}, but those of earlier blocks are {self._kind}.")
        self._kind = kind
        indicator, names = encode_labels(Y)
        if kind == "an indicator":
            grows = scipy.sparse.issparse(Y) and len(names) >= self._width
            if self._width not in (0, len(names)) and not grows:
                raise DataError(
                    f"the labels of this block have {len(names)} columns, but earlier blocks have {self._width}."
                )
            self._width = len(names)
            return indicator
        if self._columns and len(names):
            check_one_kind([next(iter(self._columns))], names[:1])
        return _move_columns(indicator, names.tolist(), self._columns)


def _refuse_nested_indicator(rows: Sequence[Any]) -> None:
    """Lists of 0s and 1s, all of one length and with repeats, are an indicator; as names they would be nonsense."""
    lists = bool(rows) and all(isinstance(row, list) and len(row) == len(rows[0]) > 1 for row in rows)
    zeros_and_ones = lists and all(type(value) is int and value in (0, 1) for row in rows for value in row)
    if zeros_and_ones and any(len(set(row)) < len(row) for row in rows):
        raise DataError("Y looks like an indicator in nested lists; pass it as an array, or give label names.")


def _as_sequence(Y: Any) -> Sequence[Any]:
    if Y is None:
        raise DataError("learning requires y to be passed, but the target y is None; give the labels of each row.")
    unordered = isinstance(Y, (str, bytes, Set, Mapping)) or not (hasattr(Y, "__len__") and hasattr(Y, "__iter__"))
    if unordered or getattr(Y, "ndim", 1) == 0 or scipy.sparse.issparse(Y):
        raise DataError(
            f"Y must be an indicator matrix or a sequence of label names for each row; got {type(Y).__name__}."
        )
    return Y.tolist() if hasattr(Y, "tolist") else list(Y)


def _row_names(row: Any, number: int) -> set[str | int]:
    """The label names of one row: a collection of names, or a single name."""
    single = isinstance(row, (str, bytes, numbers.Number))
    if not single and not hasattr(row, "__iter__"):
        raise DataError(f"the labels of row {number} must be a name or a collection of names; got {row!r}.")
    return {label_name(name, f"row {number} has the label") for name in ([row] if single else row)}


def label_name(name: Any, where: str = "got") -> str | int:
    """A label name as a plain str or int; `where` begins the error message if it is neither.

    >>> label_name(np.float64(3.0))
    3
    """
    whole = isinstance(name, numbers.Integral) or (isinstance(name, float) and name.is_integer())
    if isinstance(name, str):
        return str(name)  # also a NumPy string
    if whole and not isinstance(name, bool) and -(2**63) <= int(name) < 2**63:
        return int(name)
    raise DataError(f"{where} {name!r}; a label name is a string or a 64-bit integer.")


def check_names(names: Sequence[str], n_labels: int) -> Names:
    """The names of the columns of Y as an array; DataError unless they are strings, one per column, all different."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise DataError("label names must be strings.")
    if len(names) != n_labels:
        raise DataError(f"there are {len(names)} label names for {n_labels} columns of Y.")
    if len(set(names)) != n_labels:
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise DataError(f"the label name {twice!r} stands for more than one column.")
    return names_array([str(name) for name in names])


def encode_names(names: Sequence[str]) -> Names:
    """The label names of a data set; names that are just the column numbers "0", "1", … become integers.

    >>> encode_names(["0", "1"]).tolist(), encode_names(["1", "0"]).tolist()
    ([0, 1], ['1', '0'])
    """
    if all(name == str(number) for number, name in enumerate(names)):
        return np.arange(len(names), dtype=np.int64)
    return check_names(names, len(names))


def align_columns(matrix: Any, names: Sequence[Any], known: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The columns of a CSR matrix moved to where `known` has their names; new names follow, in their order.

    >>> moved, names = align_columns(scipy.sparse.csr_array([[1, 2, 3]]), ["b", "new", "a"], ["a", "b"])
    >>> moved.toarray().tolist(), names
    ([[3, 1, 2]], ['a', 'b', 'new'])
    """
    columns = {name: column for column, name in enumerate(known)}
    return _move_columns(matrix, names, columns), list(columns)


def _move_columns(matrix: Any, names: Sequence[Any], columns: dict[Any, int]) -> Any:
    """The CSR matrix with column j moved to `columns[names[j]]`; names that are new are added to `columns`."""
    target = np.array([columns.setdefault(name, len(columns)) for name in names], np.int64)
    shape = matrix.shape[0], len(columns)
    moved = scipy.sparse.csr_array((matrix.data, target[matrix.indices], matrix.indptr), shape=shape)
    moved.sort_indices()
    return moved


def label_keys(names: Names) -> NDArray[np.uint64]:
    """The 64-bit key of each name: an integer itself, a string by its BLAKE2 hash.

    >>> label_keys(np.array([3, 5]))
    array([3, 5], dtype=uint64)
    """
    if names.dtype != object:
        return names.astype(np.int64).view(np.uint64)
    digests = b"".join(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def names_to_arrays(names: Names) -> dict[str, NDArray[Any]]:
    """Names as plain arrays: integers as they are, strings as UTF-8 bytes with offsets."""
    if names.dtype != object:
        return {"names": names}
    # All names at once: a call for each of a million would take a second.
    text = np.frombuffer("".join(names.tolist()).encode("utf-8", "surrogatepass"), np.uint8)
    ends = np.cumsum([len(name) for name in names.tolist()], dtype=np.int64)
    first_bytes = np.append(np.flatnonzero(_begins_character(text)), len(text))
    return {"names": text, "name_ends": first_bytes[ends]}


def _begins_character(text: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The bytes of UTF-8 that begin a character."""
    begins: NDArray[np.bool_] = (text & 0xC0) != 0x80
    return begins


def names_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Names:
    """The inverse of `names_to_arrays`; ValueError for arrays that do not come from there."""
    if "name_ends" not in arrays:
        return check_arrays({"names": ArraySpec("iu", ("L",))}, arrays)["names"]
    ends = ArraySpec("iu", ("L",), least=0, rising=True)
    checked = check_arrays({"names": ArraySpec("uint8", ("bytes",)), "name_ends": ends}, arrays)
    text, bounds = checked["names"], np.concatenate([[0], checked["name_ends"]])
    if bounds[-1] != len(text):
        raise ValueError(f"the array 'name_ends' ends at {bounds[-1]}, but 'names' has {len(text)} bytes")
    begins = np.append(_begins_character(text), True)
    if not begins[bounds].all():
        raise ValueError("the array 'name_ends' has an end within a character")
    joined = text.tobytes().decode("utf-8", "surrogatepass")
    places = np.concatenate([[0], np.cumsum(begins)])[bounds].tolist()
    names = [joined[start:end] for start, end in pairwise(places)]
    return np.array([*names, None], object)[:-1]
