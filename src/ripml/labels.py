"""Y: label sets in any shape a user has them, as one CSR indicator with names, keys and distinct sets.

A label is known by its name, a string or an integer. Its *key* is a 64-bit number that depends on the name alone, so
that its column of Phi does not depend on which other labels exist or in which order they came. Rows with the same
label set share one embedding; `distinct_sets` finds them, so that the index holds each set once with its count.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.errors import DataError

__all__ = ["LabelSets", "distinct_sets", "encode_labels", "label_keys", "names_from_arrays", "names_to_arrays"]

Names = NDArray[Any]  # int64, or object holding str


def encode_labels(Y: Any, known: Names | None = None) -> tuple[Any, Names]:
    """Y as a CSR indicator (n, L) of float32 ones, and the L label names.

    Y is a CSR or dense indicator (names 0 … L − 1; a DataFrame's columns), a sequence with one collection of names a
    row, or a one-dimensional sequence with one name a row. Names found in sequences are sorted. With `known`, columns
    are those names first and then, sorted, names that are new.

    >>> Y, names = encode_labels([["b", "a"], [], ["a"]])
    >>> Y.toarray().tolist(), names.tolist()
    ([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]], ['a', 'b'])
    """
    if scipy.sparse.issparse(Y) or getattr(Y, "ndim", 1) == 2:
        return _encode_indicator(Y, known)
    return _encode_names(Y, known)


def _encode_indicator(Y: Any, known: Names | None) -> tuple[Any, Names]:
    names = np.arange(Y.shape[1], dtype=np.int64)
    if hasattr(Y, "columns"):  # a DataFrame: its columns are the labels
        if all(isinstance(column, str) for column in Y.columns):
            names = np.array([*Y.columns, None], object)[:-1]  # the None keeps NumPy from making fixed-width strings
        Y = Y.to_numpy()
    if known is not None and len(names) != len(known):
        raise DataError(f"Y has {len(names)} columns, but the model knows {len(known)} labels.")
    try:
        indicator = scipy.sparse.csr_array(Y, dtype=np.float32, copy=True)
    except (TypeError, ValueError):
        raise DataError(
            "a two-dimensional Y must be an indicator of 0s and 1s; got values that are no numbers."
        ) from None
    indicator.sum_duplicates()
    indicator.eliminate_zeros()
    wrong = indicator.data[indicator.data != 1]
    if len(wrong):
        raise DataError(f"a two-dimensional Y must be an indicator of 0s and 1s; got the value {wrong[0]:g}.")
    return indicator, names if known is None else known


def _encode_names(Y: Any, known: Names | None) -> tuple[Any, Names]:
    rows = [_row_names(row, number) for number, row in enumerate(_as_sequence(Y))]
    found = set().union(*rows) if rows else set()
    kinds = {str if isinstance(name, str) else int for name in found}
    if known is not None and len(known):
        kinds.add(str if known.dtype == object else int)
    if len(kinds) > 1:
        raise DataError("label names must be all strings or all integers; got both.")
    start = [] if known is None else known.tolist()
    columns = {name: column for column, name in enumerate(start)}
    for name in sorted(found.difference(columns)):
        columns[name] = len(columns)
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    indices = np.fromiter((column for row in rows for column in sorted(columns[name] for name in row)), np.int64)
    ones = np.ones(len(indices), np.float32)
    names = np.array([*columns, None], object)[:-1] if str in kinds else np.array(list(columns), np.int64)
    return scipy.sparse.csr_array((ones, indices, indptr), shape=(len(rows), len(columns))), names


def _as_sequence(Y: Any) -> Sequence[Any]:
    if isinstance(Y, (str, bytes)) or not (hasattr(Y, "__len__") and hasattr(Y, "__iter__")):
        raise DataError(
            f"Y must be an indicator matrix or a sequence of label names for each row; got {type(Y).__name__}."
        )
    return Y.tolist() if hasattr(Y, "tolist") else list(Y)


def _row_names(row: Any, number: int) -> set[str | int]:
    """The label names of one row: a collection of names, or a single name."""
    single = isinstance(row, (str, numbers.Number))
    if not single and not hasattr(row, "__iter__"):
        raise DataError(f"the labels of row {number} must be a name or a collection of names; got {row!r}.")
    names: set[str | int] = set()
    for name in [row] if single else row:
        whole = isinstance(name, numbers.Integral) or (isinstance(name, float) and name.is_integer())
        if isinstance(name, str):
            names.add(name)
        elif whole and not isinstance(name, bool):
            names.add(int(name))
        else:
            raise DataError(f"row {number} has the label {name!r}; a label name is a string or an integer.")
    return names


def label_keys(names: Names) -> NDArray[np.uint64]:
    """The 64-bit key of each name: an integer itself, a string by its BLAKE2 hash.

    >>> label_keys(np.array([3, 5]))
    array([3, 5], dtype=uint64)
    """
    if names.dtype != object:
        return names.astype(np.int64).view(np.uint64)
    digests = b"".join(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


@dataclass(frozen=True)
class LabelSets:
    """The distinct label sets of some rows: CSR `sets` (u, L), `counts` (u,), and each row's set, `of_row` (n,)."""

    sets: Any
    counts: NDArray[np.int64]
    of_row: NDArray[np.int64]


def distinct_sets(Y: Any, keys: NDArray[np.uint64]) -> LabelSets:
    """Group rows by label set, in an order that depends on the sets alone and not on the order of rows.

    A set is recognised by two independent 64-bit sums of hashes of its labels' keys and its size; that two different
    sets agree in all of it has a chance of about n²/2¹²⁸.
    """
    sizes = np.diff(Y.indptr)
    marks = [np.zeros(len(sizes), np.uint64) for _ in range(2)]
    for salt, mark in enumerate(marks):
        hashed = _mix(keys + np.uint64(0x9E3779B97F4A7C15 * (salt + 1) % 2**64))
        occupied = sizes > 0
        if occupied.any():
            mark[occupied] = np.add.reduceat(hashed[Y.indices], Y.indptr[:-1][occupied])
    fingerprints = np.stack([marks[0], marks[1], sizes.astype(np.uint64)], axis=1)
    _, first, of_row, counts = np.unique(
        fingerprints, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return LabelSets(Y[first], counts, of_row.ravel())


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(33))


def names_to_arrays(names: Names) -> dict[str, NDArray[Any]]:
    """Names as plain arrays: integers as they are, strings as UTF-8 bytes with offsets."""
    if names.dtype != object:
        return {"names": names}
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return {"names": np.frombuffer(b"".join(encoded), np.uint8), "name_ends": ends}


def names_from_arrays(arrays: dict[str, NDArray[Any]]) -> Names:
    """The inverse of `names_to_arrays`."""
    if "name_ends" not in arrays:
        return np.array(arrays["names"], np.int64)
    text, ends = arrays["names"].tobytes(), arrays["name_ends"].tolist()
    starts = [0, *ends[:-1]]
    names = [text[start:end].decode("utf-8", "surrogatepass") for start, end in zip(starts, ends, strict=True)]
    return np.array([*names, None], object)[:-1]
