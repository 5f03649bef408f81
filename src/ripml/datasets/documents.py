"""Documents from tables and from memory: texts with label names, on their way to a `Dataset`.

A document is a text, the names of its labels, and perhaps an id. A cell of a table that holds labels is a list of
names, or one string:

::

    ["sport", "news"]      JSON
    sport|news             separated by |
    sport; news            separated by ; if there is no |

Blanks around a separated name are dropped, and so are empty names. A number is the name that it prints as.

CSV, Parquet and Annif's corpora are read with `Row`, `row_of` and `blocks`; `documents_given` takes lists and tables in
memory. A table is recognised by its columns: a DataFrame of pandas or polars, a Table of pyarrow, a Dataset of Hugging
Face. None of these packages is imported here; their columns are accessed by name and turned into lists.
"""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import source as files
from ripml.datasets.dataset import Dataset, SparseRows, join
from ripml.datasets.formats import read
from ripml.datasets.source import Where, fault

_NAME = "the documents"


class Row(NamedTuple):
    """A document: where it comes from, its text, its labels, and its id if the source has ids."""

    where: Where
    text: str
    labels: Sequence[str]
    id: str | None = None


class Columns:
    """Names and their columns: fixed beforehand, or growing as names appear.

    >>> columns = Columns("label", None)
    >>> columns.row(["news", "sport"], ("file", 1)), columns.row(["sport"], ("file", 2)), columns.names()
    ({0: 1.0, 1: 1.0}, {1: 1.0}, ['news', 'sport'])
    """

    def __init__(self, kind: str, names: Iterable[str] | None) -> None:
        self._kind = kind
        self._fixed = names is not None
        self._names = list(names or ())
        self._columns = {name: column for column, name in enumerate(self._names)}
        if len(self._columns) < len(self._names):
            raise ParameterError(f"`{kind}_names` must not contain a name twice.")

    def __len__(self) -> int:
        return len(self._columns)

    def names(self) -> list[str]:
        """Return the names in order of their columns; later growth does not change the list."""
        if len(self._names) < len(self._columns):
            self._names = list(self._columns)
        return self._names

    def at(self, name: str, where: Where) -> int:
        """Return the column of a name; raise if it is new and the names are fixed."""
        column = self._columns.get(name)
        if column is None:
            if self._fixed:
                raise fault(*where, f"{self._kind} '{name}' is not among the {len(self)} names given.")
            column = self._columns[name] = len(self)
        return column

    def row(self, names: Iterable[str], where: Where) -> dict[int, float]:
        """Return the indicator {column: 1.0} of a row's names; raise if one is given twice."""
        row: dict[int, float] = {}
        for name in names:
            column = self.at(name, where)
            if column in row:
                raise fault(*where, f"{self._kind} '{name}' is given twice.")
            row[column] = 1.0
        return row


def blocks(name: str, rows: Iterable[Row], label_names: Iterable[str] | None = None) -> Iterator[Dataset]:
    """Yield the rows in blocks of a few megabytes of text, at least one block; all rows have an id or none has.

    Y of a block has a column for every label so far, or the columns of `label_names`.

    >>> [block.texts for block in blocks("tiny", [Row(("tiny", 1), "A match.", ["sport"])])]
    [['A match.']]
    """
    labels = Columns("label", label_names)
    rows = iter(rows)
    group: list[Row] | None = None
    while (next_group := list(_one_block(rows))) or group is None:
        group = next_group
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


def _one_block(rows: Iterator[Row]) -> Iterator[Row]:
    size = 0
    for row in rows:
        yield row
        size += len(row.text)
        if size >= files.CHUNK_BYTES:
            return


def row_of(where: Where, text: Any, labels: Any, id: Any = None, *, has_id: bool) -> Row:
    """Return the row of a table's cells; raise, with the place, if a cell has the wrong type.

    >>> row_of(("row 0", None), "A match.", "sport; news", 7, has_id=True)
    Row(where=('row 0', None), text='A match.', labels=['sport', 'news'], id='7')
    """
    try:
        if has_id and _is_missing(id):
            raise ValueError("the id is missing, but there is a column of ids.")
        return Row(where, _parse_text(text), parse_labels(labels), _parse_name(id, "an id") if has_id else None)
    except ValueError as error:
        raise fault(*where, str(error)) from None


def parse_labels(cell: Any) -> list[str]:
    """Return the label names of a cell: a list, a string as described above, or nothing; else raise `ValueError`.

    >>> parse_labels('["sport", "news"]'), parse_labels("sport; news"), parse_labels(["sport", 7]), parse_labels(None)
    (['sport', 'news'], ['sport', 'news'], ['sport', '7'], [])
    """
    if isinstance(cell, str):
        if cell.lstrip().startswith("["):
            return [_parse_name(name) for name in _json_list(cell)]
        names = (name.strip() for name in cell.split("|" if "|" in cell else ";"))
        return [name for name in names if name]
    if isinstance(cell, (set, frozenset)):
        return sorted(map(_parse_name, cell))
    if isinstance(cell, Iterable) and not isinstance(cell, (bytes, dict)):
        return [_parse_name(name) for name in cell]
    return [] if _is_missing(cell) else [_parse_name(cell)]


def format_labels(names: Sequence[str]) -> str:
    """Return the string that `parse_labels` reads as these names: separated by | if possible, otherwise JSON.

    >>> format_labels(["sport", "news"]), format_labels(["either|or"])
    ('sport|news', '["either|or"]')
    """
    cell = "|".join(names)
    if not cell.lstrip().startswith("[") and parse_labels(cell) == list(names):
        return cell
    return json.dumps(names, ensure_ascii=False)


def _json_list(cell: str) -> list[Any]:
    try:
        names = json.loads(cell)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list):
        raise ValueError(f'the labels {cell[:40]!r} are not a JSON list; write them as ["a", "b"] or as a|b.')
    return names


def _parse_text(cell: Any) -> str:
    if isinstance(cell, str):
        return str(cell)
    if _is_missing(cell):
        return ""
    raise ValueError(f"a text must be a string; got {str(cell)[:40]!r} ({type(cell).__name__}).")


def _parse_name(value: Any, kind: str = "a label") -> str:
    """Return a name as a string; a number is what it prints as, without ".0"."""
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, bool):
        if isinstance(value, numbers.Integral):
            return str(int(value))
        if isinstance(value, numbers.Real) and math.isfinite(value):
            return str(float(value)).removesuffix(".0")
    raise ValueError(f"{kind} must be a string or a number; got {str(value)[:40]!r}.")


def _is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, NaN, or the NA and NaT of pandas."""
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def column_places(names: Sequence[str], where: Where, text: str, labels: str, id: str) -> list[int | None]:
    """Return the positions of the columns of text, labels and id; None if there is no "labels" or no "id".

    The text must have a column, and so must labels and ids if they are given another name than "labels" and "id".

    >>> column_places(["text", "year"], ("file", 1), "text", "labels", "id")
    [0, None, None]
    """
    places: list[int | None] = []
    for option, name in (("text", text), ("labels", labels), ("id", id)):
        found = [place for place, other in enumerate(names) if other == name]
        if len(found) > 1:
            raise fault(*where, f"there are {len(found)} columns '{name}'.")
        if not found and (option == "text" or option != name):
            known = ", ".join(names)[:200]
            raise fault(*where, f"there is no column '{name}' among {known}; name the right one with {option}=….")
        places.append(found[0] if found else None)
    return places


def documents_given(
    source: Any, tags: Any = None, *, text: str = "text", labels: str = "labels", id: str = "id"
) -> Dataset:
    """Return documents as a data set with texts, labels and, if the source has them, ids.

    A missing text (None, NaN) is "", missing labels are no labels. Labels get columns in the order in which they
    appear; a number is the label that it prints as, and a label that a document has twice counts once.

    Parameters
    ----------
    source : iterable of str, iterable of dict, table, Dataset, path or binary file
        A table is a DataFrame of pandas or polars, a Table of pyarrow or a Dataset of Hugging Face. A path is that of
        any file, or folder of Annif, that `read` reads.
    tags : iterable with a list of names for each text, optional
        The labels, if `source` has only texts.
    text, labels, id : str
        The keys of dictionaries, or columns of a table. "labels" and "id" may be missing. Labels are lists of names, or
        strings as in CSV.

    Examples
    --------
    >>> data = documents_given(["The match was won.", "The vote was lost."], [["sport", "news"], ["news"]])
    >>> data, data.label_names
    (<Dataset the documents: 2 rows, texts, 2 labels>, ['sport', 'news'])
    >>> documents_given([{"text": "Rain.", "labels": ["weather"], "id": 7}]).ids
    ['7']
    """
    columns = {"text": text, "labels": labels, "id": id}
    if isinstance(source, (Dataset, str, os.PathLike)) or hasattr(source, "read"):
        _refuse_tags(tags, "a file or a Dataset has labels of its own")
        options = {option: name for option, name in columns.items() if option != name}
        data = source if isinstance(source, Dataset) else read(source, **options)
        if data.texts is None:
            raise DataError(f"{data.name or 'the Dataset'} has features but no texts.")
        return data
    names = _column_names(source)
    if names is not None:
        _refuse_tags(tags, f"a table has them in a column, which {labels=} names")
        rows = _table_rows(source, names, columns)
    else:
        values = _values(source, "expected a list of texts, dictionaries, a table or a path")
        if any(isinstance(row, Mapping) for row in values):
            _refuse_tags(tags, f"dictionaries have them under a key, which {labels=} names")
            rows = _dictionary_rows(values, columns)
        else:
            rows = _text_rows(values, tags)
    return join(blocks(_NAME, (row._replace(labels=list(dict.fromkeys(row.labels))) for row in rows)))


def _refuse_tags(tags: Any, reason: str) -> None:
    if tags is not None:
        raise ParameterError(f"`tags` go with a list of texts; {reason}.")


def _column_names(source: Any) -> list[str] | None:
    """Return the columns of a table; None if this is not a table, or can only be iterated row by row."""
    if hasattr(source, "collect"):
        raise DataError(f"{type(source).__name__} is a table that is not computed yet; pass the result of .collect().")
    names = getattr(source, "column_names", None)  # pyarrow and Hugging Face
    if names is None:
        names = getattr(source, "columns", None)  # pandas and polars
    if isinstance(names, Mapping):
        raise DataError(f"this holds several tables: {', '.join(map(str, names))}; pass one of them.")
    return None if names is None or not hasattr(source, "__getitem__") else list(map(str, names))


def _table_rows(source: Any, names: list[str], columns: dict[str, str]) -> Iterator[Row]:
    places = column_places(names, (_NAME, None), **columns)
    texts, cells, ids = (
        None if place is None else _values(source[name], "expected a column of values")
        for place, name in zip(places, columns.values(), strict=True)
    )
    assert texts is not None  # column_places raises if there is no such column
    none = [None] * len(texts)
    for row, values in enumerate(zip(texts, cells or none, ids or none, strict=True)):
        yield row_of((f"row {row}", None), *values, has_id=ids is not None)


def _dictionary_rows(rows: list[Any], columns: dict[str, str]) -> Iterator[Row]:
    first = next(row for row in rows if isinstance(row, Mapping))
    column_places(list(map(str, first)), ("row 0", None), **columns)
    has_id = any(columns["id"] in row for row in rows if isinstance(row, Mapping))
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or columns["text"] not in row:
            raise DataError(f"row {number}: there is no '{columns['text']}' in {str(row)[:40]!r}.")
        yield row_of((f"row {number}", None), *(row.get(key) for key in columns.values()), has_id=has_id)


def _text_rows(texts: list[Any], tags: Any) -> Iterator[Row]:
    if hasattr(tags, "toarray") or (getattr(tags, "ndim", 1) == 2 and str(getattr(tags, "dtype", "")) != "object"):
        raise DataError("`tags` must have a list of names for each text; got a matrix, whose columns have no names.")
    tag_lists = [None] * len(texts) if tags is None else _values(tags, "`tags` must have a list of names for each text")
    if len(tag_lists) != len(texts):
        raise DataError(
            f"there are {len(texts)} texts but {len(tag_lists)} lists of tags; there must be one for each text."
        )
    for row, (text, names) in enumerate(zip(texts, tag_lists, strict=True)):
        if not (_is_missing(names) or (isinstance(names, Iterable) and not isinstance(names, str))):
            raise DataError(f"row {row}: the tags of a text must be a list of names; got {names!r}, write [{names!r}].")
        yield row_of((f"row {row}", None), text, names, has_id=False)


def _values(source: Any, expected: str) -> list[Any]:
    """Return the elements of a list, an array, a Series or a table's column."""
    for method in ("to_pylist", "to_list", "tolist"):  # pyarrow; polars and pandas; NumPy
        if hasattr(source, method):
            source = getattr(source, method)()
            break
    if not isinstance(source, Iterable) or isinstance(source, (str, bytes, Mapping)):
        raise DataError(f"{expected}; got {str(source)[:40]!r} ({type(source).__name__}).")
    return list(source)
