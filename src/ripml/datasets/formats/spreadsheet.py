"""Spreadsheets: Excel's .xlsx, .xlsb and .xls, and .ods; the columns are those of CSV.

The table begins with the first row that has the named columns; rows above it, such as a heading, are not part of it. A
number is what it prints as, a date is 2026-11-18, and a cell that is merged over several rows counts for each of them.
This needs python-calamine, which comes with `pip install 'ripml[files]'`.
"""

from __future__ import annotations

import datetime
import importlib
import io
import logging
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Any, Final
from xml.sax.saxutils import escape

from ripml.base.errors import DataError, MissingExtraError
from ripml.datasets.dataset import Dataset
from ripml.datasets.document_files import unzipped
from ripml.datasets.documents import blocks, column_places, rows_of
from ripml.datasets.source import Source, Where, fault

SUFFIXES: Final = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
WRITTEN_SUFFIXES: Final = ()
CONTENT: Final = "texts"

_HEADER_ROWS: Final = 20  # the header of the table is one of these

_log = logging.getLogger("ripml.reading")


def recognises(source: Source) -> bool:
    """Whether the file is a zip archive with the parts of a spreadsheet, or of a program before Excel 2007."""
    head = source.head()
    return head.startswith(b"\xd0\xcf\x11\xe0") or (
        head.startswith(b"PK\x03\x04") and (b"xl/" in head or b"opendocument.spreadsheet" in head)
    )


def iter_blocks(
    source: Source,
    *,
    text: str | Sequence[str] = "text",
    labels: str = "labels",
    id: str = "id",
    tag_separator: str | None = None,
    sheet: str | None = None,
    label_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows; the options are those of CSV.

    Parameters
    ----------
    sheet : str, optional
        The name of the sheet. Default: the first sheet with a cell that is not empty.
    """
    table = iter_table(source, text=text, sheet=sheet)
    where, header = next(table)
    places = column_places(header, where, text, labels, id)
    cells = (places.cells(where, row) for where, row in table)
    rows = rows_of(source.name, cells, has_id=places.id is not None, tag_separator=tag_separator)
    return blocks(source.name, rows, label_names)


def iter_table(
    source: Source, *, text: str | Sequence[str] = "text", sheet: str | None = None
) -> Iterator[tuple[Where, list[str]]]:
    """Yield where a row begins and its cells, the names of the columns first; `text` are columns of the table."""
    rows = _rows(source, sheet)
    wanted = {text} if isinstance(text, str) else set(text)
    above: list[tuple[Where, list[str]]] = []
    for where, row in rows:
        above.append((where, row))
        if wanted.issubset(row):
            if len(above) > 1:
                _log.info("%s: the table begins in row %s", source.name, where[1])
            above = above[-1:]
            break
        if len(above) == _HEADER_ROWS:
            break
    if not above:
        raise fault(source.name, None, "the sheet is empty.")
    yield from chain(above, rows)


def _rows(source: Source, sheet: str | None) -> Iterator[tuple[Where, list[str]]]:
    """The rows that are not empty, as strings."""
    calamine = _import_calamine()
    content = source.read()
    if content.startswith(b"PK\x03\x04"):
        unzipped(source.name, content)
    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
        table = _sheet(source.name, book, sheet)
        merged = [(top, left, bottom) for (top, left), (bottom, _) in table.merged_cell_ranges or () if bottom > top]
        rows = iter(table.to_python(skip_empty_area=False))
    except calamine.CalamineError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        if content.startswith(b"\xd0\xcf\x11\xe0"):  # a container, which encrypted files are in
            reason += "; if it has a password, save it without"
        raise fault(source.name, None, f"this spreadsheet cannot be read ({reason}).") from None
    before: list[str] = []
    for number, row in enumerate(rows):
        cells = list(map(_text, row))
        for top, left, bottom in merged:
            if top < number <= bottom:
                cells[left] = before[left]
        before = cells
        if any(cells):
            yield (source.name, number + 1), cells


def _sheet(name: str, book: Any, sheet: str | None) -> Any:
    """The sheet of this name, or the first that is not empty."""
    names: list[str] = book.sheet_names
    if sheet is not None:
        if sheet not in names:
            raise fault(name, None, f"there is no sheet '{sheet}' among {', '.join(names)[:200]}.")
        return book.get_sheet_by_name(sheet)
    filled = [table for table in map(book.get_sheet_by_name, names) if table.height]
    if not filled:
        raise fault(name, None, "the spreadsheet is empty.")
    if len(filled) > 1:
        others = ", ".join(table.name for table in filled[1:])[:200]
        _log.warning("%s: sheet '%s' is read; name another with sheet=…: %s", name, filled[0].name, others)
    return filled[0]


def _text(cell: Any) -> str:
    """A cell as it prints.

    >>> _text(7.0), _text(0.5), _text(True), _text(datetime.date(2026, 11, 18))
    ('7', '0.5', 'TRUE', '2026-11-18')
    """
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float):
        return str(cell).removesuffix(".0")
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    return str(cell)


def _import_calamine() -> Any:
    try:
        return importlib.import_module("python_calamine")
    except ImportError:
        raise MissingExtraError("python-calamine", "files") from None


_SHEET_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
)
_PACKAGE: Final = "http://schemas.openxmlformats.org/package/2006/"
_OFFICE: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_SHEET_TYPE: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_PARTS: Final = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_SHEET_TYPE}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_SHEET_TYPE}.worksheet+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}relationships">'
    f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    f'xmlns:r="{_OFFICE}"><sheets><sheet name="Tags" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}relationships">'
    f'<Relationship Id="rId1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
}
_MAX_CELL: Final = 32_767  # characters that Excel takes
_MAX_ROWS: Final = 1_048_576
_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write_sheet(rows: Iterable[Sequence[str]], file: IO[bytes]) -> None:
    """Write rows of strings as one sheet of an Excel file; every cell is text, so that none is taken for a formula."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _PARTS.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>{content}')
        with archive.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            sheet.write(_SHEET_HEAD.encode())
            for number, row in enumerate(rows):
                if number == _MAX_ROWS:
                    raise DataError(f"a sheet of Excel has at most {_MAX_ROWS:,} rows; use CSV.")
                texts = (escape(_NOT_XML.sub("", cell)[:_MAX_CELL]) for cell in row)
                cells = "".join(f'<c t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>' for text in texts)
                sheet.write(f"<row>{cells}</row>".encode())
            sheet.write(b"</sheetData></worksheet>")
