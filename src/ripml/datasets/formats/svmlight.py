"""SVMLight text with several labels per row: `l1,l2 f:v f:v # comment`, without a header.

::

    0,2 1:1 4:0.25   # a comment
     2:0.5

The grammar of a row is in `rows`. A line with only a comment is skipped; an empty line is a row without labels and
features (scikit-learn skips it). Labels count from 0. Features count from 1 by the format's convention, but from 0 in
many files: `zero_based` says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Final, Literal

import numpy as np

from ripml.base.errors import ParameterError
from ripml.datasets.dataset import Dataset, csr, join, numbered
from ripml.datasets.formats.rows import MAX_FEATURES, MAX_LABELS, format_rows, parse
from ripml.datasets.source import Source, fault

SUFFIXES: Final = (".svm", ".svmlight", ".libsvm")
CONTENT: Final = "features"

_COMMENT: Final = re.compile(rb"#[^\n]*")


def recognises(source: Source) -> bool:
    """Whether the first line is a comment or has `index:value` pairs."""
    line = source.first_line()
    return line[:1] == b"#" or (b":" in line and b'"' not in line)


def read(
    source: Source,
    *,
    zero_based: bool | Literal["auto"] = "auto",
    n_features: int | None = None,
    n_labels: int | None = None,
) -> Dataset:
    """Read all rows.

    Parameters
    ----------
    zero_based : bool or "auto"
        Whether features count from 0. "auto" is scikit-learn's rule: from 0 if feature 0 occurs, else from 1.
    n_features, n_labels : int, optional
        The widths of X and Y; by default one more than the largest index.
    """
    if zero_based != "auto":
        return join(iter_blocks(source, zero_based=zero_based, n_features=n_features, n_labels=n_labels))
    bound = None if n_features is None else n_features + 1
    whole = join(iter_blocks(source, zero_based=True, n_features=bound, n_labels=n_labels))
    X = whole.X
    zero_found = bool(len(X.indices)) and int(X.indices.min()) == 0
    if zero_found and bound is not None and int(X.indices.max()) == n_features:
        raise fault(source.name, None, f"feature {n_features} is not below d = {n_features}, and feature 0 occurs.")
    if not zero_found:
        X = csr(X.data, X.indices - 1, X.indptr, max(X.shape[1] - 1, 0))
    elif n_features is not None:
        X = csr(X.data, X.indices, X.indptr, n_features)
    return Dataset(X=X, Y=whole.Y, label_names=whole.label_names, name=whole.name)


def iter_blocks(
    source: Source,
    *,
    zero_based: bool | Literal["auto"] = "auto",
    n_features: int | None = None,
    n_labels: int | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows; without `n_features` and `n_labels` a block is as wide as the largest index so far.

    `zero_based` must be True or False: "auto" is only known at the end of the file.
    """
    if zero_based == "auto":
        raise ParameterError("zero_based='auto' needs the whole file; to stream, pass True or False.")
    shift = 0 if zero_based else 1
    feature_bound = MAX_FEATURES if n_features is None else n_features + shift
    width, first = n_features or 0, 0
    names = numbered(n_labels or 0, source.name)
    for first, chunk in source.chunks():
        comment_lines: list[int] = []
        text = chunk
        if b"#" in chunk:
            comment_lines = [i for i, line in enumerate(chunk.split(b"\n")) if line.lstrip().startswith(b"#")]
            text = _COMMENT.sub(b"", chunk if chunk.endswith(b"\n") else chunk + b"\n")
        rows = parse(text, source.name, first, feature_bound, MAX_LABELS if n_labels is None else n_labels)
        features = rows.features - shift
        if len(features):
            lowest = int(features.argmin())
            if features[lowest] < 0:
                line = first + int(np.searchsorted(rows.feature_ptr, lowest, side="right")) - 1
                raise fault(source.name, line, "feature 0 is below 1; pass zero_based=True if features count from 0.")
            width = max(width, int(features.max()) + 1)
        if (n_seen := int(rows.labels.max(initial=-1)) + 1) > len(names):
            names = numbered(n_seen, source.name, names)
        rows = rows.without_empty(comment_lines)
        X = csr(rows.values, features, rows.feature_ptr, width)
        yield Dataset(X=X, Y=rows.Y(len(names)), label_names=names, name=source.name)
    if first == 0:
        raise fault(source.name, None, "the file is empty.")


def write(dataset: Dataset, file: IO[bytes]) -> None:
    """Write all rows, with features counted from 1 so that "auto" reads them back; names are not written."""
    file.writelines(format_rows(dataset, first_feature=1))
