"""CSV and TSV: a header, then one document per row; columns for the text, its labels and perhaps an id.

::

    id,text,labels
    a1,"The match, won.",sport|news
    a2,"He said ""no"".","[""news""]"

RFC 4180: a cell in double quotes may hold delimiters, line breaks and quotes, which are doubled. The delimiter is the
comma, tab or semicolon, whichever the header has most of; in a file named .tsv it is the tab. How a cell holds labels
is in `ripml.datasets.documents`. Other columns and blank lines are ignored.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any, Final

from ripml.datasets.dataset import Dataset
from ripml.datasets.documents import Row, blocks, column_places, format_labels, row_of
from ripml.datasets.source import MAX_LINE_BYTES, Source, Where, decode, encode, fault

SUFFIXES: Final = (".csv", ".tsv")
CONTENT: Final = "texts"

_MAX_CELL: Final = MAX_LINE_BYTES  # characters; the default of Python, 2¹⁷, is less than a long document has


def recognises(source: Source) -> bool:
    """Whether the first line is a header with a column "text"."""
    return "text" in header_of(source)


def iter_blocks(
    source: Source,
    *,
    text: str = "text",
    labels: str = "labels",
    id: str = "id",
    label_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows; a block has a column for every label so far.

    Parameters
    ----------
    text, labels, id : str
        The names of the columns. The columns "labels" and "id" may be missing.
    label_names : iterable of str, optional
        The columns of Y, to match those of another data set.
    """

    def rows() -> Iterator[Row]:
        for where, *row in cells(source, text, labels, id):
            yield row_of(where, *row, has_id=row[2] is not None)

    return blocks(source.name, rows(), label_names)


def cells(source: Source, text: str, labels: str, id: str) -> Iterator[tuple[Where, str, str | None, str | None]]:
    """Yield where a row begins and its cells of text, labels and id; None for those that have no column."""
    rows = table_rows(source)
    where, header = next(rows)
    places = column_places(header, where, text, labels, id)
    for where, row in rows:
        row_text, row_labels, row_id = (None if place is None else row[place] for place in places)
        yield where, row_text or "", row_labels, row_id


def table_rows(source: Source) -> Iterator[tuple[Where, list[str]]]:
    """Yield where a row begins and its cells, the names of the columns first; all rows have the same length."""
    csv.field_size_limit(_MAX_CELL)  # of the process; to reset it would be a race with other readers
    lines = (decode(line, (source.name, number)) + "\n" for number, line in source.lines())
    first = next(lines, None)
    if first is None:
        raise fault(source.name, None, "the file is empty.")
    reader = csv.reader(chain([first], lines), delimiter=_delimiter(first, source.name), strict=True)
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
        if not n_columns:
            n_columns = len(row)
            yield where, [name.strip() for name in row]
            continue
        if len(row) != n_columns:
            raise fault(
                *where, f"there are {len(row)} cells, but {n_columns} columns; quote cells that contain the delimiter."
            )
        yield where, row


def header_of(source: Source) -> list[str]:
    """Return the names of the columns, if the first line is the header of a table."""
    text = source.first_line().decode("utf-8", "replace")
    try:
        return [column.strip() for column in next(csv.reader([text], delimiter=_delimiter(text, source.name)), [])]
    except csv.Error:
        return []


def _delimiter(header: str, name: str) -> str:
    return "\t" if _is_tsv(name) else max(",\t;", key=header.count)


def _is_tsv(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(".tsv")


def write_options(name: str) -> dict[str, Any]:
    """Return the delimiter of a file of this name."""
    return {"delimiter": "\t"} if _is_tsv(name) else {}


def write_blocks(blocks: Iterable[Dataset], file: IO[bytes], *, delimiter: str = ",") -> None:
    """Write texts, labels and ids under one header."""
    for number, block in enumerate(blocks):
        texts = block.texts or []
        columns: dict[str, Iterable[str]] = {} if block.ids is None else {"id": block.ids}
        columns |= {"text": texts, "labels": (format_labels(block.row_labels(row)) for row in range(len(texts)))}
        write_table(columns, file, delimiter, header=not number)


def write_table(columns: dict[str, Iterable[str]], file: IO[bytes], delimiter: str = ",", header: bool = True) -> None:
    """Write columns of strings, by default under a header."""
    line = io.StringIO(newline="")
    writer = csv.writer(line, delimiter=delimiter)  # its line end "\r\n" makes it quote both characters in cells
    names = [tuple(columns)] if header else []
    for row, values in enumerate(chain(names, zip(*columns.values(), strict=True)), -len(names)):
        writer.writerow(values)
        file.write(encode(line.getvalue(), row))
        line.seek(0)
        line.truncate()
