"""XMC-repository text: a header `N d L`, then N rows `l1,l2 f:v f:v`; all indices count from 0.

::

    3 5 4
    0,2 0:1 3:0.25
     1:0.5
    3

The second row has no label (it begins with a space), the third no feature. The grammar of a row is in `rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

from ripml.datasets.dataset import Dataset, numbered
from ripml.datasets.formats.rows import MAX_FEATURES, MAX_LABELS, format_rows, parse
from ripml.datasets.source import Source, fault

SUFFIXES: Final = (".xmc",)
WRITTEN_SUFFIXES: Final = (".xmc", ".txt")
CONTENT: Final = "features"


def recognises(source: Source) -> bool:
    """Whether the first line is three integers."""
    words = source.first_line().split()
    return len(words) == 3 and all(word.isdigit() for word in words)


def iter_blocks(source: Source) -> Iterator[Dataset]:
    """Yield blocks of rows, each with X of shape (rows, d) and Y of shape (rows, L); the first may have no rows."""
    name = source.name
    n = d = n_labels = n_read = first = 0
    label_names: list[str] = []
    for first, chunk in source.chunks():
        body, body_line = chunk, first
        if first == 1:
            header, _, body = chunk.partition(b"\n")
            n, d, n_labels = _parse_header(header, name)
            label_names = numbered(n_labels, name)
            body_line = 2
        rows = parse(body, name, body_line, d, n_labels)
        n_read += len(rows)
        if n_read > n:
            raise fault(name, 2 + n, f"the header says N = {n} rows, but there are more.")
        yield Dataset(X=rows.X(d), Y=rows.Y(n_labels), label_names=label_names, name=name)
    if first == 0:
        raise fault(name, None, "the file is empty; its first line must be a header 'N d L'.")
    if n_read < n:
        raise fault(name, 1, f"the header says N = {n} rows, but the file has {n_read}.")


def write(dataset: Dataset, file: IO[bytes]) -> None:
    """Write header and rows; the format cannot hold the names of labels and features."""
    file.write(f"{len(dataset)} {dataset.X.shape[1]} {dataset.Y.shape[1]}\n".encode())
    file.writelines(format_rows(dataset, first_feature=0))


def _parse_header(line: bytes, name: str) -> tuple[int, int, int]:
    numbers = line.split()
    if len(numbers) != 3 or not all(number.isdigit() and len(number) < 19 for number in numbers):
        text = line[:40].decode("utf-8", "backslashreplace").strip()
        raise fault(name, 1, f"'{text}' is not a header; it must be three integers 'N d L'.")
    n, d, n_labels = map(int, numbers)
    for symbol, value, limit in (("d", d, MAX_FEATURES), ("L", n_labels, MAX_LABELS)):
        if value > limit:
            raise fault(name, 1, f"{symbol} = {value} is above {limit}, the largest number that can be read.")
    return n, d, n_labels
