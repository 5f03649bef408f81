"""`iter_rows`: the rows of a table with all their cells, and the text of each; documents are rows with an id."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.datasets.documents import column_places, joined
from ripml.datasets.formats import check_options, iter_source
from ripml.datasets.source import Source, Where, fault

__all__ = ["TableRow", "iter_rows"]


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
