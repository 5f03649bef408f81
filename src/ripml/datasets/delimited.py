"""CSV and TSV: a header, then a document a row; columns for the text, its labels and perhaps an id.

::

    id,text,labels
    a1,"The match, won.",sport|news
    a2,"He said ""no"".","[""news""]"

RFC 4180: a cell in double quotes may hold delimiters, line breaks and quotes, the last doubled. The delimiter is the
one of comma, tab and semicolon that the header has most of; in a file called .tsv it is the tab. The grammar of a cell
of labels is in `records`. Other columns are left alone, and so are blank lines.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Final

from ripml.datasets.dataset import Dataset, join
from ripml.datasets.records import (
    BOM,
    Row,
    Where,
    blocks,
    cell_of,
    column_places,
    decoded,
    encoded,
    names_of_row,
    row_of,
)
from ripml.datasets.source import Source, fault

__all__ = ["cells", "header_of", "iter_blocks", "read", "write", "write_table"]

_LONGEST_CELL: Final = 2**31 - 1  # of characters; Python's own limit, 2¹⁷, is less than a long document has


def read(
    source: Source,
    *,
    text: str = "text",
    labels: str = "labels",
    id: str = "id",
    label_names: Iterable[str] | None = None,
) -> Dataset:
    """Read all rows.

    Parameters
    ----------
    text, labels, id : str
        The names of the columns. The columns "labels" and "id" may be missing.
    label_names : iterable of str, optional
        The columns of Y, when they are to be those of another data set.
    """
    return join(iter_blocks(source, text=text, labels=labels, id=id, label_names=label_names))


def iter_blocks(
    source: Source,
    *,
    text: str = "text",
    labels: str = "labels",
    id: str = "id",
    label_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows; a block has a column for every label so far, or those of the given names."""
    return blocks(source.name, _rows(source, text, labels, id), label_names)


def _rows(source: Source, text: str, labels: str, id: str) -> Iterator[Row]:
    for where, *row in cells(source, text, labels, id):
        yield row_of(where, *row, has_id=row[2] is not None)


def cells(source: Source, text: str, labels: str, id: str) -> Iterator[tuple[Where, str, str | None, str | None]]:
    """Yield where a row begins and its cells of text, labels and id; None for those that have no column."""
    csv.field_size_limit(_LONGEST_CELL)  # of the process; to set it back would be a race with other readers
    lines = _lines(source)
    first = next(lines, None)
    if first is None:
        raise fault(source.name, None, "the file is empty.")
    reader = csv.reader(chain([first], lines), delimiter=_delimiter(first, source.name), strict=True)
    places: list[int | None] = []
    n_columns = 0
    while True:
        where = (source.name, reader.line_num + 1)
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise fault(*where, f"this is not CSV ({error}).") from None
        if not row:
            continue
        if not places:
            places = column_places([name.strip() for name in row], where, text, labels, id)
            n_columns = len(row)
            continue
        if len(row) != n_columns:
            raise fault(
                *where,
                f"there are {len(row)} cells, but {n_columns} columns; put a cell with the delimiter in it in quotes.",
            )
        row_text, row_labels, row_id = (None if place is None else row[place] for place in places)
        yield where, row_text or "", row_labels, row_id


def header_of(line: bytes, name: str = "") -> list[str]:
    """Return the names of the columns if this is the first line of a table.

    >>> header_of(b"id;text;labels")
    ['id', 'text', 'labels']
    """
    text = line.removeprefix(BOM).decode("utf-8", "replace")
    try:
        return [column.strip() for column in next(csv.reader([text], delimiter=_delimiter(text, name)), [])]
    except csv.Error:
        return []


def _delimiter(header: str, name: str) -> str:
    if name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    return max(",\t;", key=header.count)


def _lines(source: Source) -> Iterator[str]:
    for at, line in source.lines():
        yield decoded(line.removeprefix(BOM) if at == 1 else line, (source.name, at)) + "\n"


def write(dataset: Dataset, file: IO[bytes], *, delimiter: str = ",") -> None:
    """Write texts, labels and ids, with this delimiter; features have no place in this format."""
    texts = dataset.texts or []
    columns: dict[str, Iterable[str]] = {} if dataset.ids is None else {"id": dataset.ids}
    columns |= {"text": texts, "labels": (cell_of(names_of_row(dataset, row)) for row in range(len(texts)))}
    write_table(columns, file, delimiter)


def write_table(columns: dict[str, Iterable[str]], file: IO[bytes], delimiter: str = ",") -> None:
    """Write columns of strings under a header."""
    line = io.StringIO(newline="")
    writer = csv.writer(line, delimiter=delimiter)  # whose "\r\n" makes it quote both characters in cells
    for row, values in enumerate(chain([tuple(columns)], zip(*columns.values(), strict=True)), -1):
        writer.writerow(values)
        file.write(encoded(line.getvalue(), row))
        line.seek(0)
        line.truncate()
