"""Partitions of the training rows, one task each: those of a Dask collection, delayed objects, or pieces of files.

A `Head` describes the rows and columns of a partition. The heads of all partitions, merged in order, give the columns:

    lists of names          all names that occur, sorted
    tables and JSON         all names, in the order of their first occurrence
    indicators              the numbers of the columns
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.datasets import Dataset
from ripml.datasets.formats import format_of, read
from ripml.datasets.source import open_source
from ripml.labels.encoding import check_names, encode_names

_PIECE_BYTES = 1 << 26  # of a file that is cut at line ends
_LINES = ("xmc", "svmlight", "jsonl")  # formats with one row per line


def dask_modules() -> tuple[Any, Any]:
    """The packages dask and distributed."""
    try:
        import dask
        import distributed
    except ImportError:
        raise MissingExtraError("distributed", "dask") from None
    return dask, distributed


# ------------------------------------------------------------------------------------------------- rows and columns


@dataclass(frozen=True)
class Head:
    """The size and the columns of one or more partitions."""

    rows: tuple[int, ...]  # labelled rows of each partition
    n_unlabelled: int = 0
    n_entries: int = 0  # labels of all rows, counted with repetition
    n_bytes: int = 0  # of the largest partition
    n_missing: int = 0  # rows that the headers of files announce but the files do not have
    sparse: bool | None = None  # None if no partition has rows
    dtype: str = "float32"
    n_features: int = 0
    features: list[str] | None = None  # keys of JSON objects
    first_feature: int | None = None  # of SVMLight files: 0 or 1
    frame: list[str] | None = None  # column names of data frames, which must be equal in all partitions
    labels: str = ""  # "names", "columns", "columns of a file" or "an indicator"
    n_labels: int = 0
    names: list[Any] | None = None  # None for an indicator

    @property
    def n_rows(self) -> int:
        """The number of labelled rows."""
        return sum(self.rows)

    def classes(self) -> NDArray[Any]:
        """The label names, as `RIPML.classes_` holds them."""
        if self.names is None:
            return np.arange(self.n_labels, dtype=np.int64)
        if self.labels == "columns of a file":
            return encode_names(self.names)
        strings = not self.names or isinstance(self.names[0], str)
        return check_names(self.names, self.n_labels) if strings else np.array(self.names, np.int64)


def merged_heads(heads: Sequence[Head]) -> Head:
    """The head of all these partitions together; DataError if their columns do not agree."""
    rows = tuple(n for head in heads for n in head.rows)
    heads = [head for head in heads if head.sparse is not None]
    if not heads:
        return Head(rows)
    first = heads[0]
    # Partitions must be of one kind.
    for head in heads:
        if head.labels != first.labels:
            raise DataError(f"the labels of a partition are {head.labels}, but those of others are {first.labels}.")
        if head.sparse != first.sparse:
            raise DataError("a partition has X dense where others have it sparse; use one of the two for all.")
        if head.frame != first.frame:
            raise DataError("the columns of X have other names in a partition than in others; they must be the same.")
        if (head.features is None) != (first.features is None):
            raise DataError("the features of a partition are in lists, but those of others in objects with names.")
        if head.n_features != first.n_features and (not first.sparse or first.frame is not None):
            raise DataError(
                f"a partition has {head.n_features} features, but others have {first.n_features}; use the same "
                "features in all partitions."
            )
        if head.n_labels != first.n_labels and head.names is None and first.first_feature is None:
            raise DataError(
                f"the labels of a partition have {head.n_labels} columns, but those of others have {first.n_labels}."
            )
    # Columns with names are united by name, those without by number.
    features = None if first.features is None else _unite([head.features or [] for head in heads])
    names = None if first.names is None else _unite([head.names or [] for head in heads])
    if names is not None and len({isinstance(name, str) for name in names}) > 1:
        raise DataError("label names must be all strings or all integers; got both.")
    return replace(
        first,
        rows=rows,
        n_unlabelled=sum(head.n_unlabelled for head in heads),
        n_entries=sum(head.n_entries for head in heads),
        n_bytes=max(head.n_bytes for head in heads),
        n_missing=sum(head.n_missing for head in heads),
        dtype=str(np.result_type(*(head.dtype for head in heads))),
        n_features=max(head.n_features for head in heads) if features is None else len(features),
        features=features,
        first_feature=None if first.first_feature is None else min(head.first_feature or 0 for head in heads),
        n_labels=max(head.n_labels for head in heads) if names is None else len(names),
        names=names,
    )


def finished(head: Head) -> Head:
    """The merged head with names sorted, and SVMLight features counted from the number of the first one."""
    if head.labels == "names" and head.names is not None:
        head = replace(head, names=sorted(head.names))
    if head.first_feature:
        head = replace(head, n_features=max(0, head.n_features - head.first_feature))
    return head


def _unite(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """All names once, in the order of their first occurrence."""
    return list(dict.fromkeys(name for names in lists for name in names))


# ------------------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class Raw:
    """Rows of a partition before they are checked."""

    X: Any
    Y: Any
    label_names: list[str] | None = None
    feature_names: list[str] | None = None
    first_feature: int | None = None  # of SVMLight: 0 if feature 0 occurs in these rows, else 1
    promised: int | None = None  # rows announced by the header: all of the file in its first piece, 0 in the others


@dataclass(frozen=True)
class Piece:
    """The lines of a file that begin in the bytes from `start` to `stop`, or the whole file if `stop` is None."""

    path: str
    format: str
    start: int = 0
    stop: int | None = None

    def opened(self) -> tuple[Any, int | None]:
        """A source for the readers, None if no line begins in this piece; and the rows that the header announces."""
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
            return (_NamedBytes(header + text, name) if text or self.start == 0 else None), None
        # The reader checks the number of rows against the header, so each piece gets a header with its own number.
        n_rows = text.count(b"\n") + (not text.endswith(b"\n") and text != b"")
        promised = int(numbers[0]) if self.start == 0 else 0
        return _NamedBytes(b"%d %s %s\n" % (n_rows, numbers[1], numbers[2]) + text, name), promised

    def read(self) -> Raw | None:
        """The training rows of this piece; None if no line begins in it."""
        source, promised = self.opened()
        if source is None:
            return None
        options = {"zero_based": True} if self.format == "svmlight" else {}
        data: Dataset = read(source, self.format, **options)
        if data.X is None:
            raise DataError(f"{self.path} has only texts, but workers need features; convert the texts first.")
        first = None
        if self.format == "svmlight":
            first = 0 if (data.X.indices == 0).any() else 1
        names = data.label_names if self.format in ("jsonl", "arff") else None
        return Raw(data.X, data.Y, names, data.feature_names, first, promised)


class _NamedBytes(io.BytesIO):
    """Bytes with the name of their file, for error messages."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name


def _line_start(file: Any, position: int) -> int:
    """The start of the first line that begins at byte `position` or later."""
    if position:
        file.seek(position - 1)
        file.readline()
        position = file.tell()
    return position


def pieces_of(paths: Sequence[str], format: str | None = None) -> list[Piece]:
    """Cut files at line ends into pieces of about 64 MB; compressed files and other formats stay whole."""
    pieces = []
    for path in paths:
        if path == "-":
            raise ParameterError("workers cannot read standard input; give the path of a file that all workers see.")
        with open_source(path) as source:
            file_format = format_of(source, format)
            if source.folder is not None:
                raise DataError(f"{path} has only texts, but workers need features; convert the texts first.")
        with open(path, "rb") as file:
            whole = file.read(2) == b"\x1f\x8b" or file_format not in _LINES  # gzip's magic number
        size = os.stat(path).st_size
        if whole or not size:
            pieces.append(Piece(path, file_format))
            continue
        edges = np.linspace(0, size, max(1, -(-size // _PIECE_BYTES)) + 1).astype(np.int64).tolist()
        pieces += [Piece(path, file_format, start, stop) for start, stop in pairwise(edges)]
    return pieces


# ------------------------------------------------------------------------------------------------------------- tasks


def delayed_partitions(
    partitions: Any, function: Callable[..., Any], argument: Any = None, format: str | None = None
) -> list[Any]:
    """`function(partition, argument)` for each partition, delayed; a partition of a file is a `Piece`."""
    dask, _ = dask_modules()
    task = dask.delayed(function, pure=False)
    if isinstance(partitions, (str, os.PathLike)):
        partitions = [partitions]
    members = _parts(partitions)
    if members is None and isinstance(partitions, (list, tuple)) and partitions:
        if all(isinstance(member, (str, os.PathLike)) for member in partitions):
            members = list(pieces_of([os.fspath(path) for path in partitions], format))
        elif len(partitions) == 2 and (X := _parts(partitions[0])) and (Y := _parts(partitions[1])):
            if len(X) != len(Y):
                raise DataError(
                    f"X has {len(X)} chunks of rows and Y has {len(Y)}; rechunk or repartition them to the same rows."
                )
            members = list(zip(X, Y, strict=True))
    if members is None:
        raise ParameterError(
            "`partitions` must be a pair (X, Y) of Dask arrays, data frames or lists of parts, a list of dask.delayed "
            f"objects or futures, or paths of files; got {type(partitions).__name__}."
        )
    return [task(member, argument) for member in members]


def _parts(value: Any) -> list[Any] | None:
    """The partitions of a Dask collection, or of a list of delayed objects or futures; None for anything else."""
    _, distributed = dask_modules()
    from dask.delayed import Delayed

    if isinstance(value, (list, tuple)) and value:
        return list(value) if all(isinstance(part, (Delayed, distributed.Future)) for part in value) else None
    if isinstance(value, Delayed) or not hasattr(value, "to_delayed"):  # a Delayed claims to have any attribute
        return None
    if hasattr(value, "numblocks") and (value.ndim != 2 or value.numblocks[1] != 1):
        raise DataError(
            f"a Dask array must have two dimensions and whole rows in a chunk; got chunks {value.numblocks}: "
            "rechunk({1: -1}) joins columns."
        )
    parts = value.to_delayed()
    return list(parts.ravel() if hasattr(parts, "ravel") else parts)


def raw_of(partition: Any) -> Raw | None:
    """The training rows of a partition; None if it has none."""
    if isinstance(partition, Piece):
        return partition.read()
    if not isinstance(partition, (tuple, list)) or len(partition) != 2:
        raise DataError(f"a partition must give a pair (X, Y); got {type(partition).__name__}.")
    X, Y = partition
    if str(getattr(Y, "dtype", "")) in ("string", "str") and Y.str.fullmatch(r"\[.*\]").any():
        raise DataError(
            "a data frame of Dask has lists of labels as strings; make it inside dask.config.set({"
            "'dataframe.convert-string': False}), which keeps them."
        )
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    return Raw(X, Y) if n else None
