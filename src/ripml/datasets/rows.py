"""The row grammar shared by XMC-repository text and SVMLight: its specification, and its writer.

A row is one line of ASCII text::

    row      = [labels] { blank feature ":" value } [blank] newline
    labels   = label { "," label }         first on the line; a line that begins with a blank has none
    label, feature = digits                a leading "+" is allowed
    value    = what Python's float() accepts, finite in float32, without "_"

`parse_slowly` walks the lines and *is* the specification: it accepts every legal row and raises the sentence for an
illegal one. What readers use is `fast_rows.parse`, which gives the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ripml.datasets.dataset import Dataset, csr
from ripml.datasets.source import fault

__all__ = ["FLOAT32_BOUND", "MOST_FEATURES", "MOST_LABELS", "Rows", "format_rows", "parse_slowly", "shortest"]

Ints = NDArray[np.int64]

MOST_FEATURES: Final = 2**31 - 1  # so that column indices fit int32
MOST_LABELS: Final = 50_000_000  # every label has a name in memory; a stray huge number must not ask for terabytes

FLOAT32_BOUND: Final = 2.0**128 - 2.0**103  # what is below it rounds to a finite float32
_UNSIGNED: Final = re.compile(rb"\+?[0-9]+")


@dataclass(frozen=True)
class Rows:
    """Parsed rows: row i has labels[label_ptr[i]:label_ptr[i+1]] and the same for features and values."""

    label_ptr: Ints
    labels: Ints
    feature_ptr: Ints
    features: Ints
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.label_ptr) - 1

    def X(self, n_features: int) -> Any:
        """Features as CSR float32, shape (n, n_features)."""
        return csr(self.values, self.features, self.feature_ptr, n_features)

    def Y(self, n_labels: int) -> Any:
        """Labels as a CSR float32 indicator, shape (n, n_labels)."""
        return csr(np.ones(len(self.labels)), self.labels, self.label_ptr, n_labels)

    def without_empty(self, rows: list[int]) -> Rows:
        """Return the rows without these, which must have neither labels nor features."""
        after = np.array(rows, np.int64) + 1
        return replace(self, label_ptr=np.delete(self.label_ptr, after), feature_ptr=np.delete(self.feature_ptr, after))


def parse_slowly(
    chunk: bytes, name: str, first_line: int, n_features: int | None = None, n_labels: int | None = None
) -> Rows:
    """Parse whole lines; features and labels of a row come out sorted.

    Parameters
    ----------
    chunk : bytes
        Whole lines; only the last one may lack its newline.
    name, first_line : str, int
        Where the chunk comes from, for messages.
    n_features, n_labels : int, optional
        Exclusive upper bounds of the indices; unbounded if None.
    """
    label_ptr, feature_ptr = [0], [0]
    labels: list[int] = []
    features: list[int] = []
    values: list[float] = []
    lines = chunk.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for at, line in enumerate(lines, first_line):
        tokens = line.split()
        row_labels: list[int] = []
        if tokens and not line[:1].isspace() and b":" not in tokens[0]:
            row_labels = [_index(t, "label", "L", n_labels, name, at) for t in tokens.pop(0).split(b",")]
        row_features: dict[int, float] = {}
        for token in tokens:
            index, colon, value = token.partition(b":")
            if not colon:
                raise fault(name, at, f"{_show(token)} is not feature:value.")
            feature = _index(index, "feature", "d", n_features, name, at)
            if feature in row_features:
                raise fault(name, at, f"feature {feature} is given twice.")
            row_features[feature] = _value(value, feature, name, at)
        if len(set(row_labels)) < len(row_labels):
            twice = next(label for label in row_labels if row_labels.count(label) > 1)
            raise fault(name, at, f"label {twice} is given twice.")
        labels += sorted(row_labels)
        features += sorted(row_features)
        values += [row_features[feature] for feature in sorted(row_features)]
        label_ptr.append(len(labels))
        feature_ptr.append(len(features))
    return Rows(
        np.array(label_ptr, np.int64),
        np.array(labels, np.int64),
        np.array(feature_ptr, np.int64),
        np.array(features, np.int64),
        np.array(values, np.float64).astype(np.float32),
    )


def _index(token: bytes, what: str, bound_name: str, bound: int | None, name: str, line: int) -> int:
    if not _UNSIGNED.fullmatch(token):
        if token[:1] == b"-" and _UNSIGNED.fullmatch(token[1:]):
            raise fault(name, line, f"{what} {_plain(token)} is negative.")
        raise fault(name, line, f"{what} {_show(token)} is not an integer.")
    if len(token) > 18 and len(token.lstrip(b"+0")) > 18:  # int64 holds every number of 18 digits
        raise fault(name, line, f"{what} {_plain(token)} is too large.")
    index = int(token)
    if bound is not None and index >= bound:
        raise fault(name, line, f"{what} {index} is not below {bound_name} = {bound}.")
    return index


def _value(token: bytes, feature: int, name: str, line: int) -> float:
    try:
        value = float(token) if b"_" not in token else None
    except ValueError:
        value = None
    if value is None:
        raise fault(name, line, f"value {_show(token)} of feature {feature} is not a number.")
    if not abs(value) < FLOAT32_BOUND:
        raise fault(name, line, f"value {_plain(token)} of feature {feature} is not a finite float32 number.")
    return value


def _plain(token: bytes) -> str:
    text = token.decode("utf-8", "backslashreplace")
    return text if len(text) <= 40 else text[:40] + "…"


def _show(token: bytes) -> str:
    return f"'{_plain(token)}'"


def format_rows(dataset: Dataset, first_feature: int) -> Iterator[bytes]:
    """Yield lines for all rows of a data set that has features; its column 0 is written as `first_feature`."""
    for start in range(0, len(dataset), 10_000):
        X, Y = dataset.X[start : start + 10_000], dataset.Y[start : start + 10_000]
        labels = list(map(str, Y.indices.tolist()))
        pairs = [f"{i}:{v}" for i, v in zip((X.indices + first_feature).tolist(), shortest(X.data), strict=True)]
        yield "".join(
            f"{','.join(labels[a:b])} {' '.join(pairs[c:d])}\n"
            for (a, b), (c, d) in zip(pairwise(Y.indptr.tolist()), pairwise(X.indptr.tolist()), strict=True)
        ).encode()


def shortest(values: NDArray[np.float32]) -> list[str]:
    """Return the shortest decimal of each value that reads back as the same float32; integers without ".0"."""
    return [text.removesuffix(".0") for text in np.asarray(values, np.float32).astype(str).tolist()]
