"""`iter_rows`: the rows of a table with all their cells, and the text of each; documents are rows with an id.

`columns_in` says which columns a table has, and which one holds the texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.datasets.documents import column_places, joined
from ripml.datasets.formats import check_options, iter_source
from ripml.datasets.source import Source, Where, fault

__all__ = ["Column", "TableColumns", "TableRow", "columns_in", "iter_rows"]

_SEEN: Final = 200  # rows from which columns are told
_HEADER_ROWS: Final = 20  # the header of a spreadsheet is one of these
_EXAMPLE: Final = 200  # characters


class Column(NamedTuple):
    """A column of a table: the share of cells that are not empty, their mean length, and the first of them."""

    name: str
    filled: float
    characters: float
    example: str


class TableColumns(NamedTuple):
    """The columns of a table, those that hold the texts, and the number of rows that were looked at."""

    columns: list[Column]
    text: list[str]
    rows: int


class TableRow(NamedTuple):
    """Where a row comes from, its cells by the names of their columns, and its text."""

    where: Where
    cells: dict[str, Any]
    text: str


def iter_rows(source: Source, format: str, text: str | Sequence[str] = "text", **options: Any) -> Iterator[TableRow]:
    """Yield the rows of an open file; `text` names the columns of the texts, and `options` are those of the format.

    >>> import io
    >>> from ripml.datasets.source import open_source
    >>> with open_source(io.BytesIO(b"id,text\\n7,Rain.\\n")) as source:
    ...     [row.cells for row in iter_rows(source, "csv")]
    [{'id': '7', 'text': 'Rain.'}]
    """
    module = registry.named("format", format)
    where: Where
    texts = [text] if isinstance(text, str) else list(text)
    if hasattr(module, "iter_table"):
        named = {"text": text, **options} if format == "xlsx" else options
        check_options(format, module.iter_table, named)
        table = module.iter_table(source, **named)
        where, header = next(table)
        if twice := [name for name in header if header.count(name) > 1]:
            raise fault(*where, f"two columns are called '{twice[0]}'; give them different names.")
        places = column_places(header, where, texts, "labels", "id").texts
        for place, row in table:
            cells = dict(zip(header, row, strict=True))
            yield TableRow(place, cells, joined([_text(row[column], place) for column in places]))
    elif format == "jsonl":
        for where, record in module.iter_records(source):
            found = [record[name] for name in texts if record.get(name) is not None]
            if not any(name in record for name in texts):
                present = ", ".join(map(repr, record))[:200]
                raise fault(
                    *where, f"there is no '{texts[0]}' among the keys {present}; name the right one with text=…."
                )
            yield TableRow(where, record, joined([_text(one, where) for one in found] or [""]))
    else:
        if module.CONTENT == "features":
            raise DataError(f"{source.name}: rows of features have no texts; ripml predict answers them.")
        if text != "text":
            raise ParameterError(f"`text` names a column of a table, but {source.name} is not a table; leave it out.")
        number = 0
        for block in iter_source(source, format, **options):
            for row, one in enumerate(block.texts or []):
                id = str(number) if block.ids is None else block.ids[row]
                yield TableRow((source.name, None), {"id": id}, one)
                number += 1


def _text(cell: Any, where: Where) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        raise fault(*where, f"a text must be a string; got {json.dumps(cell, default=str)[:40]}.")
    return cell


def columns_in(source: Source, format: str, **options: Any) -> TableColumns:
    """Look at the first rows of a table: its columns, and which one holds the texts.

    That is the column "text", or else the one with the longest cells. In a spreadsheet, the header is the row with the
    most cells among the first ones, so that a heading above it is not taken for it.

    >>> import io
    >>> from ripml.datasets.source import open_source
    >>> with open_source(io.BytesIO(b"nr,Body\\n7,It rains.\\n8,It pours.\\n")) as source:
    ...     columns_in(source, "csv").text
    ['Body']
    """
    module = registry.named("format", format)
    if hasattr(module, "iter_table"):
        named = {"text": (), **options} if format == "xlsx" else options
        check_options(format, module.iter_table, named)
        table = (row for _, row in module.iter_table(source, **named))
        first = list(islice(table, _HEADER_ROWS if format == "xlsx" else 1))
        at = max(range(len(first)), key=lambda row: (sum(map(bool, first[row])), -row))
        header = list(map(str, first[at]))
        rows = [dict(zip(header, row, strict=False)) for row in islice(chain(first[at + 1 :], table), _SEEN)]
    elif format == "jsonl":
        rows = [record for _, record in islice(module.iter_records(source), _SEEN)]
        header = list(dict.fromkeys(name for row in rows for name in row))
    else:
        raise DataError(f"{source.name} is not a table with columns.")
    columns = [_column(name, [row.get(name) for row in rows]) for name in header if name]
    if not columns or not rows:
        raise DataError(f"{source.name} has no rows.")
    longest = max(columns, key=lambda column: column.characters * column.filled)
    text = ["text"] if any(column.name == "text" for column in columns) else [longest.name]
    return TableColumns(columns, text, len(rows))


def _column(name: str, cells: list[Any]) -> Column:
    texts = [
        cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)
        for cell in cells
        if cell is not None
    ]
    texts = [text for text in texts if text.strip()]
    mean = sum(map(len, texts)) / max(1, len(texts))
    return Column(name, len(texts) / max(1, len(cells)), mean, texts[0][:_EXAMPLE] if texts else "")
