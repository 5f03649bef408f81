"""CSV and TSV: a header, then one document per row; columns for the text, its labels and perhaps an id.

::

    id,text,labels
    a1,"The match, won.",sport|news
    a2,"He said ""no"".","[""news""]"

RFC 4180: a cell in double quotes may hold delimiters, line breaks and quotes, which are doubled. The delimiter is the
comma, tab, semicolon or |, whichever the header has most of outside of quotes; in a file named .tsv it is the tab, and
a first line such as "sep=;" names it. The text is UTF-8, UTF-16 or Windows-1252. How a cell holds labels is in
`ripml.datasets.documents`. Other columns and blank lines are ignored.
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any, Final

from ripml.datasets.dataset import Dataset
from ripml.datasets.documents import blocks, column_places, format_labels, rows_of
from ripml.datasets.source import MAX_LINE_BYTES, Source, Where, check_no_other_kind, encode, fault, text_lines

SUFFIXES: Final = (".csv", ".tsv")
CONTENT: Final = "texts"

_DELIMITERS: Final = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "|"}  # the first of those that are as many
_QUOTED: Final = re.compile(r'"[^"]*"')
_SEP: Final = re.compile(r'"?sep=(.)"?\s*')
_REMEDY: Final = "save the file as UTF-8, or name its encoding with encoding=…"
_MAX_CELL: Final = MAX_LINE_BYTES  # characters; the default of Python, 2¹⁷, is less than a long document has

_log = logging.getLogger("ripml.reading")


def recognises(source: Source) -> bool:
    """Whether the first line is a header with a column "text"."""
    return "text" in header_of(source)


def iter_blocks(
    source: Source,
    *,
    text: str | Sequence[str] = "text",
    labels: str = "labels",
    id: str = "id",
    tag_separator: str | None = None,
    encoding: str | None = None,
    label_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows; a block has a column for every label so far.

    Parameters
    ----------
    text, labels, id : str
        The names of the columns. The columns "labels" and "id" may be missing. The texts of several columns are joined
        with line breaks, so put a title first.
    tag_separator : str, optional
        What separates labels in a cell. Default: found in the cells, see `ripml.datasets.documents`.
    encoding : str, optional
        Default: UTF-8, UTF-16 or Windows-1252, as the bytes show.
    label_names : iterable of str, optional
        The columns of Y, to match those of another data set.
    """
    table = iter_table(source, encoding=encoding)
    where, header = next(table)
    places = column_places(header, where, text, labels, id)
    cells = (places.cells(where, row) for where, row in table)
    rows = rows_of(source.name, cells, has_id=places.id is not None, tag_separator=tag_separator)
    return blocks(source.name, rows, label_names)


def iter_table(source: Source, *, encoding: str | None = None) -> Iterator[tuple[Where, list[str]]]:
    """Yield where a row begins and its cells, the names of the columns first; all rows have the same length."""
    csv.field_size_limit(_MAX_CELL)  # of the process; to reset it would be a race with other readers
    check_no_other_kind(source)
    texts = text_lines(source, encoding, _REMEDY)
    if b"\r" in source.head() and b"\n" not in source.head():  # as old programs for the Macintosh write them
        texts = enumerate((line for _, joined in texts for line in joined.removesuffix("\r").split("\r")), 1)
    lines = ((number, line + "\n") for number, line in texts)
    number, first = next(((number, line) for number, line in lines if line.strip()), (0, None))
    if (named := _named_delimiter(first or "")) is not None:
        number, first = next(lines, (0, None))
    if first is None:
        raise fault(source.name, None, "the file is empty.")
    delimiter = named or _delimiter(first, source.name)
    if delimiter != ",":
        _log.info("%s: cells are separated by %s", source.name, _DELIMITERS.get(delimiter, delimiter))
    reader = csv.reader(chain([first], (line for _, line in lines)), delimiter=delimiter, strict=True)
    n_columns = 0
    while True:
        where = (source.name, reader.line_num + number)
        try:
            row = next(reader)
        except StopIteration:
            if not n_columns:
                raise fault(source.name, None, "the table has no header.") from None
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
    if _is_tsv(name):
        return "\t"
    outside = _QUOTED.sub("", header)
    return max(_DELIMITERS, key=outside.count)


def _named_delimiter(line: str) -> str | None:
    """The delimiter in a first line such as "sep=;", which Excel writes and reads."""
    match = _SEP.fullmatch(line)
    return None if match is None else match[1]


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
