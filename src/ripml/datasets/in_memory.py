"""`documents_given`: documents in whatever form somebody has them, as one `Dataset` of texts.

A table is known by its columns: a DataFrame of pandas or polars, a Table of pyarrow, a Dataset of Hugging Face. None of
these packages is imported here; their columns are asked for by name and turned into lists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ripml.base.errors import DataError, ParameterError
from ripml.datasets.dataset import Dataset, join
from ripml.datasets.formats import read
from ripml.datasets.records import Row, blocks, column_places, is_missing, row_of

__all__ = ["documents_given"]

_NAME = "the documents"
_WANTED = "a list of texts, dictionaries, a table or a path is needed"


def documents_given(
    source: Any, tags: Any = None, *, text: str = "text", labels: str = "labels", id: str = "id"
) -> Dataset:
    """Return documents as a data set with texts, labels and, where there are any, ids.

    A text that is missing (None, NaN) is "", labels that are missing are none. Labels get columns in the order in which
    they appear; a number is the label that it prints as, and a label that a document has twice counts once.

    Parameters
    ----------
    source : iterable of str, iterable of dict, table, Dataset, path or binary file
        A table is a DataFrame of pandas or polars, a Table of pyarrow or a Dataset of Hugging Face. A path is that of
        any file, or Annif's folder, that `read` reads.
    tags : iterable with a list of names for each text, optional
        The labels, where `source` is nothing but texts.
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
    if isinstance(source, Dataset) or _is_file(source):
        _no_tags(tags, "a file or a Dataset has its own")
        options = {option: name for option, name in columns.items() if option != name}
        data = source if isinstance(source, Dataset) else read(source, **options)
        if data.texts is None:
            raise DataError(f"{data.name or 'the Dataset'} has features but no texts.")
        return data
    names = _column_names(source)
    if names is not None:
        _no_tags(tags, f"a table has them in a column, which {labels=} names")
        return join(blocks(_NAME, map(_once, _table_rows(source, names, columns))))
    rows = _values(source, _WANTED)
    if any(isinstance(row, Mapping) for row in rows):
        _no_tags(tags, f"dictionaries have them under a key, which {labels=} names")
        return join(blocks(_NAME, map(_once, _dictionary_rows(rows, columns))))
    return join(blocks(_NAME, map(_once, _text_rows(rows, tags))))


def _is_file(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike)) or hasattr(source, "read")


def _no_tags(tags: Any, reason: str) -> None:
    if tags is not None:
        raise ParameterError(f"`tags` go with a list of texts; {reason}.")


def _once(row: Row) -> Row:
    return row._replace(labels=list(dict.fromkeys(row.labels)))


def _column_names(source: Any) -> list[str] | None:
    """Return the columns of a table; None if this is no table, or one that can only be gone through row by row."""
    if hasattr(source, "collect"):
        raise DataError(f"{type(source).__name__} is a table still to be computed; give what its .collect() gives.")
    names = getattr(source, "column_names", None)  # pyarrow and Hugging Face
    if names is None:
        names = getattr(source, "columns", None)  # pandas and polars
    if isinstance(names, Mapping):
        raise DataError(f"this holds several tables: {', '.join(map(str, names))}; give one of them.")
    return None if names is None or not hasattr(source, "__getitem__") else list(map(str, names))


def _table_rows(source: Any, names: list[str], columns: dict[str, str]) -> Iterator[Row]:
    places = column_places(names, (_NAME, None), **columns)
    texts, cells, ids = (
        None if place is None else _values(source[name], "a column of values is needed")
        for place, name in zip(places, columns.values(), strict=True)
    )
    assert texts is not None  # column_places asks for it
    none = [None] * len(texts)
    for row, values in enumerate(zip(texts, cells or none, ids or none, strict=True)):
        yield row_of((f"row {row}", None), *values, has_id=ids is not None)


def _dictionary_rows(rows: list[Any], columns: dict[str, str]) -> Iterator[Row]:
    first = next(row for row in rows if isinstance(row, Mapping))
    column_places(list(map(str, first)), ("row 0", None), **columns)
    has_id = any(columns["id"] in row for row in rows if isinstance(row, Mapping))
    for number, row in enumerate(rows):
        where = (f"row {number}", None)
        if not isinstance(row, Mapping) or columns["text"] not in row:
            raise DataError(f"row {number}: there is no '{columns['text']}' in {str(row)[:40]!r}.")
        yield row_of(where, *(row.get(key) for key in columns.values()), has_id=has_id)


def _text_rows(texts: list[Any], tags: Any) -> Iterator[Row]:
    if hasattr(tags, "toarray") or (getattr(tags, "ndim", 1) == 2 and str(getattr(tags, "dtype", "")) != "object"):
        raise DataError("`tags` must have a list of names for each text; got a matrix, whose columns have no names.")
    given = [None] * len(texts) if tags is None else _values(tags, "`tags` must have a list of names for each text")
    if len(given) != len(texts):
        raise DataError(
            f"there are {len(texts)} texts but {len(given)} lists of tags; there must be one for each text."
        )
    for row, (text, its_tags) in enumerate(zip(texts, given, strict=True)):
        if not (is_missing(its_tags) or (isinstance(its_tags, Iterable) and not isinstance(its_tags, str))):
            raise DataError(
                f"row {row}: the tags of a text must be a list of names; got {its_tags!r}, write [{its_tags!r}]."
            )
        yield row_of((f"row {row}", None), text, its_tags, has_id=False)


def _values(source: Any, wanted: str) -> list[Any]:
    """Return the elements of a list, an array, a Series or whatever a table calls a column."""
    for method in ("to_pylist", "to_list", "tolist"):  # pyarrow; polars and pandas; NumPy
        if hasattr(source, method):
            source = getattr(source, method)()
            break
    if not isinstance(source, Iterable) or isinstance(source, (str, bytes, Mapping)):
        raise DataError(f"{wanted}; got {str(source)[:40]!r} ({type(source).__name__}).")
    return list(source)
