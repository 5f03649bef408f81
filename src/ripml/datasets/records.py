"""Rows of texts: what CSV, Parquet, Annif's corpora and objects in memory share on their way to a `Dataset`.

A row is a text, the names of its labels, and perhaps an id. A cell of a table that holds labels is a list of names, or
one string:

::

    ["sport", "news"]      JSON
    sport|news             separated by |
    sport; news            separated by ; where there is no |

Blanks around a separated name are no part of it, and an empty piece is no name. A number is the name that it prints as.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import source as files
from ripml.datasets.dataset import Dataset, SparseRows
from ripml.datasets.source import fault

__all__ = [
    "BOM",
    "UTF_16",
    "Columns",
    "Row",
    "Where",
    "as_name",
    "blocks",
    "cell_of",
    "column_places",
    "decoded",
    "encoded",
    "is_missing",
    "names_in",
    "names_of_row",
    "row_of",
    "text_in",
]

BOM: Final = b"\xef\xbb\xbf"  # that some programs begin UTF-8 with
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")  # how that begins, which UTF-8 never does
Where: TypeAlias = "tuple[str, int | None]"  # what `fault` wants: a file, and a line of it


class Row(NamedTuple):
    """A document: where it stands, its text, its labels, and its id if the source has any."""

    where: Where
    text: str
    labels: Sequence[str]
    id: str | None = None


class Columns:
    """Names and their columns: given beforehand and closed, or growing as names appear.

    >>> columns = Columns("label", None)
    >>> columns.row(["news", "sport"], ("file", 1)), columns.row(["sport"], ("file", 2)), columns.names()
    ({0: 1.0, 1: 1.0}, {1: 1.0}, ['news', 'sport'])
    """

    def __init__(self, what: str, names: Iterable[str] | None) -> None:
        self._what = what
        self._closed = names is not None
        self._names = list(names or ())
        self._at = {name: column for column, name in enumerate(self._names)}
        if len(self._at) < len(self._names):
            raise ParameterError(f"`{what}_names` must have no name twice.")

    def __len__(self) -> int:
        return len(self._at)

    def names(self) -> list[str]:
        """Return the names in order of their columns; a list that later growth does not change."""
        if len(self._names) < len(self._at):
            self._names = list(self._at)
        return self._names

    def at(self, name: str, where: Where) -> int:
        """Return the column of a name; raise if it is new and the names are closed."""
        column = self._at.get(name)
        if column is None:
            if self._closed:
                raise fault(*where, f"{self._what} '{name}' is not among the {len(self._at)} names given.")
            column = self._at[name] = len(self._at)
        return column

    def row(self, names: Iterable[str], where: Where) -> dict[int, float]:
        """Return the indicator {column: 1.0} of a row's names; raise if one is there twice."""
        row: dict[int, float] = {}
        for name in names:
            column = self.at(name, where)
            if column in row:
                raise fault(*where, f"{self._what} '{name}' is given twice.")
            row[column] = 1.0
        return row


def blocks(name: str, rows: Iterable[Row], label_names: Iterable[str] | None = None) -> Iterator[Dataset]:
    """Yield the rows in blocks of some megabytes of text, at least one; either all rows have an id or none has.

    >>> [block.texts for block in blocks("tiny", [Row(("tiny", 1), "A match.", ["sport"])])]
    [['A match.']]
    """
    labels = Columns("label", label_names)
    rows = iter(rows)
    group: list[Row] | None = None
    while (some := list(_some(rows))) or group is None:
        group = some
        indicator = SparseRows()
        for row in group:
            indicator.add(labels.row(row.labels, row.where))
        ids = [row.id for row in group if row.id is not None]
        yield Dataset(
            X=None,
            Y=indicator.csr(len(labels)),
            label_names=labels.names(),
            texts=[row.text for row in group],
            ids=ids or None,
            name=name,
        )


def _some(rows: Iterator[Row]) -> Iterator[Row]:
    size = 0
    for row in rows:
        yield row
        size += len(row.text)
        if size >= files.CHUNK_BYTES:
            return


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, or the NA and NaT of pandas.

    >>> is_missing(float("nan")), is_missing("")
    (True, False)
    """
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def as_name(value: Any, what: str = "a label") -> str:
    """Return a name as a string; a number is what it prints as, without ".0". Raise `ValueError` for anything else.

    >>> as_name("news"), as_name(7), as_name(7.0)
    ('news', '7', '7')
    """
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, bool):
        if isinstance(value, numbers.Integral):
            return str(int(value))
        if isinstance(value, numbers.Real) and math.isfinite(value):
            return str(float(value)).removesuffix(".0")
    raise ValueError(f"{what} must be a string or a number; got {str(value)[:40]!r}.")


def names_in(cell: Any) -> list[str]:
    """Return the label names of a cell: a list, a string that is one, or nothing. Raise `ValueError` for anything else.

    >>> names_in('["sport", "news"]'), names_in("sport; news"), names_in(["sport", 7]), names_in(None)
    (['sport', 'news'], ['sport', 'news'], ['sport', '7'], [])
    """
    if isinstance(cell, str):
        if cell.lstrip().startswith("["):
            return [as_name(name) for name in _json_list(cell)]
        pieces = (piece.strip() for piece in cell.split("|" if "|" in cell else ";"))
        return [piece for piece in pieces if piece]
    if isinstance(cell, (set, frozenset)):
        return sorted(map(as_name, cell))
    if isinstance(cell, Iterable) and not isinstance(cell, (bytes, dict)):
        return [as_name(name) for name in cell]
    return [] if is_missing(cell) else [as_name(cell)]


def _json_list(cell: str) -> list[Any]:
    try:
        names = json.loads(cell)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list):
        raise ValueError(f'the labels {cell[:40]!r} are no JSON list; write them as ["a", "b"] or as a|b.')
    return names


def cell_of(names: Sequence[str]) -> str:
    """Return the string that `names_in` reads as these names: separated by | where that will do, or else JSON.

    >>> cell_of(["sport", "news"]), cell_of(["either|or"])
    ('sport|news', '["either|or"]')
    """
    cell = "|".join(names)
    if not cell.lstrip().startswith("[") and names_in(cell) == list(names):
        return cell
    return json.dumps(names, ensure_ascii=False)


def text_in(cell: Any) -> str:
    """Return the text of a cell, "" where there is none. Raise `ValueError` if it holds something else.

    >>> text_in("A match."), text_in(None)
    ('A match.', '')
    """
    if isinstance(cell, str):
        return str(cell)
    if is_missing(cell):
        return ""
    raise ValueError(f"a text must be a string; got {str(cell)[:40]!r} ({type(cell).__name__}).")


def row_of(where: Where, text: Any, labels: Any, id: Any = None, *, has_id: bool) -> Row:
    """Return the row of a table's cells; raise, with the place, where one is not what it should be.

    >>> row_of(("row 0", None), "A match.", "sport; news", 7, has_id=True)
    Row(where=('row 0', None), text='A match.', labels=['sport', 'news'], id='7')
    """
    try:
        if has_id and is_missing(id):
            raise ValueError("the id is missing, but there is a column of ids.")
        return Row(where, text_in(text), names_in(labels), as_name(id, "an id") if has_id else None)
    except ValueError as error:
        raise fault(*where, str(error)) from None


def column_places(names: Sequence[str], where: Where, text: str, labels: str, id: str) -> list[int | None]:
    """Return where the columns of text, labels and id stand; None if there is no "labels" or no "id".

    A column that was named must be there; so must the text.

    >>> column_places(["text", "year"], ("file", 1), "text", "labels", "id")
    [0, None, None]
    """
    places: list[int | None] = []
    for option, name in (("text", text), ("labels", labels), ("id", id)):
        found = [place for place, other in enumerate(names) if other == name]
        if len(found) > 1:
            raise fault(*where, f"there are {len(found)} columns '{name}'.")
        if not found and (option == "text" or option != name):
            shown = ", ".join(names)[:200]
            raise fault(*where, f"there is no column '{name}' among {shown}; name the right one with {option}=….")
        places.append(found[0] if found else None)
    return places


def names_of_row(dataset: Dataset, row: int) -> list[str]:
    """Return the label names of a row, in the order of their columns.

    >>> names_of_row(next(blocks("tiny", [Row(("tiny", 1), "A match.", ["sport"])])), 0)
    ['sport']
    """
    Y = dataset.Y
    return [dataset.label_names[j] for j in Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()]


def decoded(line: bytes, where: Where) -> str:
    """Return a line as text; raise where it is not UTF-8.

    >>> decoded(b"ma\\xc3\\xb1ana", ("file", 1))
    'mañana'
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if line.startswith(UTF_16):
            raise fault(*where, "this is UTF-16; save the file as UTF-8.") from None
        raise fault(*where, f"byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8.") from None


def encoded(text: str, row: int) -> bytes:
    """Return what a row is written as; raise where UTF-8 cannot hold it.

    >>> encoded("mañana", 0)
    b'ma\\xc3\\xb1ana'
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"row {row} has half of a surrogate pair in it, which UTF-8 cannot hold.") from None
