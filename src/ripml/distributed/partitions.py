"""What is given to the workers, as one task a partition: chunks of Dask arrays, delayed objects, or pieces of files."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.datasets import Dataset
from ripml.datasets.formats import format_of, read
from ripml.datasets.source import open_source

__all__ = ["Piece", "Raw", "dask_modules", "delayed_partitions", "pieces_of", "raw_of", "widened"]

_PIECE_BYTES = 1 << 26  # of a file that is cut at line ends
_LINES = ("xmc", "svmlight", "jsonl")  # formats with a row a line


def dask_modules() -> tuple[Any, Any]:
    """The packages dask and distributed."""
    try:
        import dask
        import distributed
    except ImportError:
        raise MissingExtraError("distributed", "dask") from None
    return dask, distributed


@dataclass(frozen=True)
class Raw:
    """Rows as they are given; those of files have names of columns, or numbers from 0 or 1, we do not know which."""

    X: Any
    Y: Any
    label_names: list[str] | None = None
    feature_names: list[str] | None = None
    first_feature: int | None = None  # of SVMLight: 0 if feature 0 occurs, else 1
    promised: int | None = None  # by the header: all rows of the file with its first piece, none with the others


@dataclass(frozen=True)
class Piece:
    """The lines of a file that begin from byte `start` up to byte `stop`, or all of a file that is not cut."""

    path: str
    format: str
    start: int = 0
    stop: int | None = None

    def opened(self) -> tuple[Any, int | None]:
        """What the readers take, None if no line begins here, and the rows that a header promises with this piece."""
        if self.stop is None:
            return self.path, None
        try:
            with open(self.path, "rb") as file:
                header = file.readline() if self.format == "xmc" else b""
                begin, end = max(_line_start(file, self.start), len(header)), _line_start(file, self.stop)
                file.seek(begin)
                text = file.read(max(0, end - begin))
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot be read by a worker ({error.strerror}); all workers must see the file."
            ) from None
        name = self.path if self.start == 0 else f"{self.path} (from byte {begin:,})"
        numbers = header.split()
        if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
            return (_Named(header + text, name) if text or self.start == 0 else None), None
        rows = text.count(b"\n") + (not text.endswith(b"\n") and text != b"")
        promised = int(numbers[0]) if self.start == 0 else 0
        return _Named(b"%d %s %s\n" % (rows, numbers[1], numbers[2]) + text, name), promised

    def read(self) -> Raw | None:
        """The rows to be learnt from."""
        place, promised = self.opened()
        if place is None:
            return None
        options = {"zero_based": True} if self.format == "svmlight" else {}
        data: Dataset = read(place, self.format, **options)
        if data.X is None:
            raise DataError(f"{self.path} has only texts, and workers learn from features; make them features first.")
        first = None
        if self.format == "svmlight":
            first = 0 if (data.X.indices == 0).any() else 1
        named = self.format in ("jsonl", "arff")
        return Raw(data.X, data.Y, data.label_names if named else None, data.feature_names, first, promised)


class _Named(io.BytesIO):
    """Bytes with a name for messages."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name


def _line_start(file: Any, at: int) -> int:
    """Where the first line begins that does not begin before byte `at`."""
    if at:
        file.seek(at - 1)
        file.readline()
        at = file.tell()
    return at


def pieces_of(paths: Sequence[str], format: str | None = None) -> list[Piece]:
    """Files in pieces of some 64 MB; those that are compressed or have no row a line stay whole."""
    pieces = []
    for path in paths:
        if path == "-":
            raise ParameterError("workers cannot read standard input; give the path of a file that all of them see.")
        with open_source(path) as source:
            kind = format_of(source, format)
            if source.folder is not None:
                raise DataError(f"{path} has only texts, and workers learn from features; make features of them first.")
        with open(path, "rb") as file:
            whole = file.read(2) == b"\x1f\x8b" or kind not in _LINES
        size = os.stat(path).st_size
        if whole or not size:
            pieces.append(Piece(path, kind))
            continue
        edges = np.linspace(0, size, max(1, -(-size // _PIECE_BYTES)) + 1).astype(np.int64).tolist()
        pieces += [Piece(path, kind, *edge) for edge in pairwise(edges)]
    return pieces


def delayed_partitions(
    partitions: Any, function: Callable[..., Any], more: Any = None, format: str | None = None
) -> list[Any]:
    """`function(given, more)` of each partition, delayed; given is a `Piece` of a file or what Dask computes."""
    dask, _ = dask_modules()
    delayed = dask.delayed(function, pure=False)

    def task(given: Any) -> Any:
        return delayed(given, more)

    if _is_array(partitions):
        return [task(x) for x in _row_chunks(partitions)]
    if isinstance(partitions, tuple) and len(partitions) == 2 and all(_is_array(array) for array in partitions):
        X, Y = partitions
        if X.numblocks[0] != Y.numblocks[0]:
            raise DataError(
                f"X has {X.numblocks[0]} chunks of rows and Y has {Y.numblocks[0]}; rechunk them to the same rows."
            )
        return [task((x, y)) for x, y in zip(_row_chunks(X), _row_chunks(Y), strict=True)]
    if isinstance(partitions, (str, os.PathLike)):
        partitions = [partitions]
    if isinstance(partitions, (list, tuple)) and partitions:
        if all(isinstance(one, (str, os.PathLike)) for one in partitions):
            return [task(piece) for piece in pieces_of([os.fspath(one) for one in partitions], format)]
        if all(dask.is_dask_collection(one) for one in partitions):
            return [task(one) for one in partitions]
    raise ParameterError(
        "`partitions` must be a pair of Dask arrays, a list of dask.delayed objects, or paths of files; got "
        f"{type(partitions).__name__}."
    )


def _is_array(given: Any) -> bool:
    return hasattr(given, "to_delayed") and hasattr(given, "numblocks")


def _row_chunks(array: Any) -> list[Any]:
    if array.ndim != 2 or array.numblocks[1] != 1:
        raise DataError(
            f"a Dask array must have two dimensions and whole rows in a chunk; got chunks {array.numblocks}: "
            "rechunk({1: -1}) joins columns."
        )
    return list(array.to_delayed().ravel())


def raw_of(given: Any) -> Raw | None:
    """What a partition gives to be learnt from; None if it has no rows."""
    if isinstance(given, Piece):
        return given.read()
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise DataError(f"a partition must give a pair (X, Y); got {type(given).__name__}.")
    X, Y = given
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    return Raw(X, Y) if n else None


def widened(matrix: Any, width: int) -> Any:
    """A CSR matrix with columns added on the right."""
    if matrix.shape[1] == width:
        return matrix
    return scipy.sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))
