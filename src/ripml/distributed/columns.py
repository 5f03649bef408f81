"""What partitions say of their rows and columns, and what all of them say together, in the order of the partitions.

rows of names           columns are all names that occur, sorted
tables and JSON         columns are all names in the order in which they first occur
indicators              columns are numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.labels.encoding import check_names, encode_names

__all__ = ["Head", "finished", "merged_heads"]


@dataclass(frozen=True)
class Head:
    """Of one partition or of several: how many rows they have, and which columns."""

    rows: tuple[int, ...]  # with labels, of each partition
    n_unlabelled: int = 0
    n_entries: int = 0  # labels of all rows
    n_bytes: int = 0  # of the largest partition
    n_missing: int = 0  # rows that headers of files promise and that are not there
    sparse: bool | None = None  # None if no partition has rows
    dtype: str = "float32"
    n_features: int = 0
    features: list[str] | None = None  # of JSON objects
    first_feature: int | None = None
    frame: list[str] | None = None  # columns of tables, which must be the same in all of them
    labels: str = ""  # "names", "columns", "columns of a file" or "an indicator"
    n_labels: int = 0
    names: list[Any] | None = None

    @property
    def n_rows(self) -> int:
        """Rows with labels."""
        return sum(self.rows)

    def classes(self) -> NDArray[Any]:
        """The label names, as an estimator has them."""
        if self.names is None:
            return np.arange(self.n_labels, dtype=np.int64)
        if self.labels == "columns of a file":
            return encode_names(self.names)
        strings = not self.names or isinstance(self.names[0], str)
        return check_names(self.names, self.n_labels) if strings else np.array(self.names, np.int64)


def merged_heads(heads: Sequence[Head]) -> Head:
    """Of all partitions of these heads. What does not fit together: DataError."""
    rows = tuple(n for head in heads for n in head.rows)
    full = [head for head in heads if head.sparse is not None]
    if not full:
        return Head(rows)
    first = full[0]
    for head in full:
        if head.labels != first.labels:
            raise DataError(f"the labels of a partition are {head.labels}, but those of others are {first.labels}.")
        if head.sparse != first.sparse:
            raise DataError("a partition has X dense where others have it sparse; they must be alike.")
        if head.frame != first.frame:
            raise DataError("the columns of X have other names in a partition than in others; they must be the same.")
        if (head.features is None) != (first.features is None):
            raise DataError("the features of a partition are in lists, but those of others in objects with names.")
        if head.n_features != first.n_features and (not first.sparse or first.frame is not None):
            raise DataError(
                f"a partition has {head.n_features} features, but others have {first.n_features}; they must be as many."
            )
        if head.n_labels != first.n_labels and head.names is None and first.first_feature is None:
            raise DataError(
                f"the labels of a partition have {head.n_labels} columns, but those of others have {first.n_labels}."
            )
    features = None if first.features is None else _united([head.features or [] for head in full])
    names = None if first.names is None else _united([head.names or [] for head in full])
    if names is not None and len({isinstance(name, str) for name in names}) > 1:
        raise DataError("label names must be all strings or all integers; got both.")
    return replace(
        first,
        rows=rows,
        n_unlabelled=sum(head.n_unlabelled for head in full),
        n_entries=sum(head.n_entries for head in full),
        n_bytes=max(head.n_bytes for head in full),
        n_missing=sum(head.n_missing for head in full),
        dtype=str(np.result_type(*(head.dtype for head in full))),
        n_features=max(head.n_features for head in full) if features is None else len(features),
        features=features,
        first_feature=None if first.first_feature is None else min(head.first_feature or 0 for head in full),
        n_labels=max(head.n_labels for head in full) if names is None else len(names),
        names=names,
    )


def finished(head: Head) -> Head:
    """Of all partitions: names sorted, and features of SVMLight counted from the number where they begin."""
    if head.labels == "names" and head.names is not None:
        head = replace(head, names=sorted(head.names))
    if head.first_feature:
        head = replace(head, n_features=max(0, head.n_features - head.first_feature))
    return head


def _united(lists: Sequence[Sequence[Any]]) -> list[Any]:
    return list(dict.fromkeys(name for names in lists for name in names))
