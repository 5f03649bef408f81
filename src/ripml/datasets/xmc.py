"""XMC-repository text: a header `N d L`, then N rows `l1,l2 f:v f:v`, all indices from 0.

::

    3 5 4
    0,2 0:1 3:0.25
     1:0.5
    3

The second row has no label (it begins with a space), the third no feature. The grammar of a row is in `rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from ripml.datasets.dataset import Dataset, join, numbered
from ripml.datasets.fast_rows import parse
from ripml.datasets.rows import MOST_FEATURES, MOST_LABELS, format_rows
from ripml.datasets.source import Source, fault

__all__ = ["iter_blocks", "read", "write"]


def read(source: Source) -> Dataset:
    """Read all rows."""
    return join(iter_blocks(source))


def iter_blocks(source: Source) -> Iterator[Dataset]:
    """Yield blocks of rows, each with X of shape (rows, d) and Y of shape (rows, L); the first may have no rows."""
    name = source.name
    n = d = n_labels = seen = 0
    label_names: list[str] = []
    at = 0
    for at, chunk in source.chunks():
        first, body = at, chunk
        if at == 1:
            header, _, body = chunk.partition(b"\n")
            n, d, n_labels = _header(header, name)
            label_names = numbered(n_labels)
            first = 2
        rows = parse(body, name, first, d, n_labels)
        if seen + len(rows) > n:
            raise fault(name, 2 + n, f"the header says N = {n} rows, but here is one more.")
        seen += len(rows)
        yield Dataset(X=rows.X(d), Y=rows.Y(n_labels), label_names=label_names, name=name)
    if at == 0:
        raise fault(name, None, "the file is empty; its first line must be a header 'N d L'.")
    if seen < n:
        raise fault(name, 1, f"the header says N = {n} rows, but the file has {seen}.")


def write(dataset: Dataset, file: IO[bytes]) -> None:
    """Write header and rows; label and feature names have no place in this format."""
    file.write(f"{len(dataset)} {dataset.X.shape[1]} {dataset.Y.shape[1]}\n".encode())
    file.writelines(format_rows(dataset, first_feature=0))


def _header(line: bytes, name: str) -> tuple[int, int, int]:
    numbers = line.split()
    if len(numbers) != 3 or not all(number.isdigit() and len(number) < 19 for number in numbers):
        text = line[:40].decode("utf-8", "backslashreplace").strip()
        raise fault(name, 1, f"'{text}' is not a header; it must be three integers 'N d L'.")
    n, d, n_labels = map(int, numbers)
    if d > MOST_FEATURES:
        raise fault(name, 1, f"d = {d} is above {MOST_FEATURES}, the most that can be read.")
    if n_labels > MOST_LABELS:
        raise fault(name, 1, f"L = {n_labels} is above {MOST_LABELS}, the most that can be read.")
    return n, d, n_labels
