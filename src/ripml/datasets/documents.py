"""Documents from tables and from memory: texts with label names, on their way to a `Dataset`.

A document is a text, the names of its labels, and perhaps an id. A cell of a table that holds labels is a list of
names, or one string:

::

    ["sport", "news"]      JSON
    sport|news             separated by |
    sport; news            separated by ; if there is no |
    sport, news            separated by commas, or by line breaks, if the first cells of the column show it

Blanks around a separated name are dropped, and so are empty names. A number is the name that it prints as. A comma may
also be a part of names ("London, Ontario"). It is read as a separator where the same names stand in different places of
cells without | and ; (`are_lists`); `tag_separator` says it outright.

Tables are read with `Cells`, `rows_of` and `blocks`; `documents_given` takes lists and tables in memory. A table is
recognised by its columns: a DataFrame of pandas or polars, a Table of pyarrow, a Dataset of Hugging Face. None of these
packages is imported here; their columns are accessed by name and turned into lists.
"""

from __future__ import annotations

import json
import logging
import math
import numbers
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import source as files
from ripml.datasets.dataset import Dataset, SparseRows, join
from ripml.datasets.formats import read
from ripml.datasets.source import Where, fault

SEPARATORS: Final = ("|", ";")  # the first of these that is in a cell separates its labels

_NAME = "the documents"
_SAMPLE_ROWS: Final = 1000  # whose labels show what separates them
_SAMPLE_CHARACTERS: Final = 2**22  # of their texts, which are in memory meanwhile
_LONGEST_TAG: Final = 60  # characters: between the commas of a sentence there are often more

_log = logging.getLogger("ripml.reading")


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


class Cells(NamedTuple):
    """The cells of a document in a table: where it comes from, its texts, and what holds its labels and its id."""

    where: Where
    texts: Sequence[Any]
    labels: Any = None
    id: Any = None


def rows_of(name: str, documents: Iterable[Cells], *, has_id: bool, tag_separator: str | None = None) -> Iterator[Row]:
    """Yield the documents of a table as rows; raise, with the place, if a cell has the wrong type.

    >>> cells = [Cells(("row 0", None), ["Final", "A match."], "sport, news"), Cells(("row 1", None), ["Vote"], "news")]
    >>> list(rows_of("a table", cells, has_id=False, tag_separator=","))[0]
    Row(where=('row 0', None), text='Final\\nA match.', labels=['sport', 'news'], id=None)
    """
    rest = iter(documents)
    sample = list(_sample(rest)) if tag_separator is None else []
    strings = [document.labels for document in sample if isinstance(document.labels, str)]
    separators = separators_in(strings) if tag_separator is None else (tag_separator,)
    if strings:
        say_separators(name, separators)
    for where, texts, labels, id in chain(sample, rest):
        try:
            if has_id and _is_missing(id):
                raise ValueError("the id is missing, but there is a column of ids.")
            text, names = joined(list(map(_parse_text, texts))), parse_labels(labels, separators)
            if tag_separator is not None:  # the names of a list may hold several, too
                names = [one for name in names for one in _divided(name, tag_separator)]
            row = Row(where, text, names, _parse_name(id, "an id") if has_id else None)
        except ValueError as error:
            raise fault(*where, str(error)) from None
        yield row


def _sample(documents: Iterator[Cells]) -> Iterator[Cells]:
    size = 0
    for document in islice(documents, _SAMPLE_ROWS):
        yield document
        size += sum(len(text) for text in document.texts if isinstance(text, str))
        if size > _SAMPLE_CHARACTERS:
            return


def joined(texts: Sequence[str]) -> str:
    """Return the texts of a document as one: each begins on a new line, so that the first one is its title.

    >>> joined(["Refund", "", "I was charged twice."])
    'Refund\\nI was charged twice.'
    """
    return texts[0] if len(texts) == 1 else "\n".join(text for text in texts if text.strip())


def separators_in(cells: Iterable[str]) -> Sequence[str]:
    """Return what separates labels in cells like these: | and ;, and a line break or a comma if the cells show it.

    >>> separators_in(["tea, red", "red", "green, tea"]), separators_in(["London, Ontario", "Paris, Ontario"])
    (('|', ';', ','), ('|', ';'))
    """
    different = {cell for cell in cells if not cell.lstrip().startswith("[")}
    plain = [cell for cell in different if not any(separator in cell for separator in SEPARATORS)]
    for separator in ("\n", ","):
        if len(plain) < len(different) and any(separator in cell for cell in different.difference(plain)):
            continue  # there it is a part of names
        divided = [names for cell in plain if (names := _divided(cell, separator))]
        longest = max((len(name) for names in divided if len(names) > 1 for name in names), default=0)
        if longest < _LONGEST_TAG and are_lists(divided):
            return (*SEPARATORS, separator)
    return SEPARATORS


def are_lists(divided: Collection[Sequence[str]]) -> bool:
    """Whether cells that were divided there hold several names each, rather than names of several parts.

    Parts of a name keep their places, counted from its beginning or from its end: "London, Ontario" and
    "York, Toronto, Ontario". Names of lists do not, even where each list is sorted. At least half of the names in
    lists of several must be seen to stand in different places.

    >>> are_lists([["red", "tea"], ["green", "red", "tea", "white"], ["green", "tea"]])
    True
    >>> are_lists([["London", "Ontario"], ["York", "Toronto", "Ontario"], ["London", "England"]])
    False
    """
    places: defaultdict[str, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for names in divided:
        for place, name in enumerate(names):
            from_start, from_end = places[name]
            from_start.add(place)
            from_end.add(len(names) - place)
    several = [names for names in divided if len(names) > 1]
    moved = [all(len(seen) > 1 for seen in places[name]) for names in several for name in names]
    return len(several) > 1 and 2 * sum(moved) >= len(moved)


def say_separators(name: str, separators: Sequence[str]) -> None:
    """Log what separates the labels of a table."""
    words = " or ".join({"\n": "line breaks"}.get(separator, separator) for separator in separators)
    _log.info("%s: labels are separated by %s", name, words)


def _divided(cell: str, separator: str) -> list[str]:
    return [name for part in cell.split(separator) if (name := part.strip())]


def parse_labels(cell: Any, separators: Sequence[str] | None = SEPARATORS) -> list[str]:
    """Return the label names of a cell: a list, a string as described above, or nothing; else raise `ValueError`.

    The first of the separators that is in a string divides it.

    >>> parse_labels('["sport", "news"]'), parse_labels("sport; news"), parse_labels(["sport", 7]), parse_labels(None)
    (['sport', 'news'], ['sport', 'news'], ['sport', '7'], [])
    """
    if isinstance(cell, str):
        if cell.lstrip().startswith("["):
            return [_parse_name(name) for name in _json_list(cell)]
        separators = separators or SEPARATORS
        return _divided(cell, next((separator for separator in separators if separator in cell), separators[-1]))
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
    # A comma or a line break in a name that is alone could be taken for a separator.
    is_safe = len(names) > 1 or not any(mark in cell for mark in ",\n")
    if is_safe and not cell.lstrip().startswith("[") and parse_labels(cell) == list(names):
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


class Places(NamedTuple):
    """The positions of the columns of texts, of labels and of ids; None if there is no such column."""

    texts: list[int]
    labels: int | None
    id: int | None

    def cells(self, where: Where, row: Sequence[Any]) -> Cells:
        """The cells of a document."""
        labels, id = (None if place is None else row[place] for place in self[1:])
        return Cells(where, [row[place] for place in self.texts], labels, id)


def column_places(names: Sequence[str], where: Where, text: str | Sequence[str], labels: str, id: str) -> Places:
    """Return the positions of the columns of texts, labels and id; None if there is no "labels" or no "id".

    Texts must have a column, and so must labels and ids if they are given another name than "labels" and "id".

    >>> column_places(["title", "text", "year"], ("file", 1), ["title", "text"], "labels", "id")
    Places(texts=[0, 1], labels=None, id=None)
    """
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise ParameterError("`text` must name at least one column.")
    found: list[int | None] = []
    for option, name in [*(("text", name) for name in texts), ("labels", labels), ("id", id)]:
        places = [place for place, other in enumerate(names) if other == name]
        if len(places) > 1:
            raise fault(*where, f"there are {len(places)} columns '{name}'.")
        if not places and (option == "text" or option != name):
            known = ", ".join(names)[:200]
            raise fault(*where, f"there is no column '{name}' among {known}; name the right one with {option}=….")
        found.append(places[0] if places else None)
    return Places([place for place in found[: len(texts)] if place is not None], *found[len(texts) :])


def documents_given(
    source: Any,
    tags: Any = None,
    *,
    text: str | Sequence[str] = "text",
    labels: str = "labels",
    id: str = "id",
    tag_separator: str | None = None,
    **options: Any,
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
        strings as in CSV. The texts of several columns, such as `text=["title", "body"]`, are joined with line breaks.
    tag_separator : str, optional
        What separates labels in a string. Default: found in the strings.
    **options
        Further options of `read`, if `source` is a file.

    Examples
    --------
    >>> data = documents_given(["The match was won.", "The vote was lost."], [["sport", "news"], ["news"]])
    >>> data, data.label_names
    (<Dataset the documents: 2 rows, texts, 2 labels>, ['sport', 'news'])
    >>> documents_given([{"text": "Rain.", "labels": ["weather"], "id": 7}]).ids
    ['7']
    """
    columns: dict[str, Any] = {"text": text, "labels": labels, "id": id}
    if isinstance(source, (Dataset, str, os.PathLike)) or hasattr(source, "read"):
        _refuse_tags(tags, "a file or a Dataset has labels of its own")
        options |= {option: name for option, name in columns.items() if option != name}
        if tag_separator is not None:
            options["tag_separator"] = tag_separator
        data = source if isinstance(source, Dataset) else read(source, **options)
        if data.texts is None:
            raise DataError(f"{data.name or 'the Dataset'} has features but no texts.")
        return data
    if options:
        raise ParameterError(f"`{next(iter(options))}` is an option for files; leave it out.")
    names = _column_names(source)
    if names is not None:
        _refuse_tags(tags, f"a table has them in a column, which {labels=} names")
        cells, has_id = _table_cells(source, names, columns)
    else:
        values = _values(source, "expected a list of texts, dictionaries, a table or a path")
        if any(isinstance(row, Mapping) for row in values):
            _refuse_tags(tags, f"dictionaries have them under a key, which {labels=} names")
            cells, has_id = _dictionary_cells(values, columns)
        else:
            cells, has_id = _text_cells(values, tags), False
    rows = rows_of(_NAME, cells, has_id=has_id, tag_separator=tag_separator)
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


def _table_cells(source: Any, names: list[str], columns: dict[str, Any]) -> tuple[Iterable[Cells], bool]:
    """The documents of a table in memory, and whether they have ids."""
    places = column_places(names, (_NAME, None), **columns)
    used = dict.fromkeys(place for place in (*places.texts, places.labels, places.id) if place is not None)
    values = {place: _values(source[names[place]], "expected a column of values") for place in used}
    rows = zip(*values.values(), strict=True)
    moved = {place: number for number, place in enumerate(used)}
    texts = [moved[place] for place in places.texts]
    narrow = Places(texts, *(None if place is None else moved[place] for place in places[1:]))
    return (narrow.cells((f"row {row}", None), cells) for row, cells in enumerate(rows)), places.id is not None


def _dictionary_cells(rows: list[Any], columns: dict[str, Any]) -> tuple[Iterable[Cells], bool]:
    """The same for dictionaries."""
    first = next(row for row in rows if isinstance(row, Mapping))
    column_places(list(map(str, first)), ("row 0", None), **columns)
    texts = [columns["text"]] if isinstance(columns["text"], str) else columns["text"]

    def cells() -> Iterator[Cells]:
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping) or texts[0] not in row:
                raise DataError(f"row {number}: there is no '{texts[0]}' in {str(row)[:40]!r}.")
            found = [row.get(key) for key in texts]
            yield Cells((f"row {number}", None), found, row.get(columns["labels"]), row.get(columns["id"]))

    return cells(), any(columns["id"] in row for row in rows if isinstance(row, Mapping))


def _text_cells(texts: list[Any], tags: Any) -> Iterator[Cells]:
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
        yield Cells((f"row {row}", None), [text], names)


def _values(source: Any, expected: str) -> list[Any]:
    """Return the elements of a list, an array, a Series or a table's column."""
    for method in ("to_pylist", "to_list", "tolist"):  # pyarrow; polars and pandas; NumPy
        if hasattr(source, method):
            source = getattr(source, method)()
            break
    if not isinstance(source, Iterable) or isinstance(source, (str, bytes, Mapping)):
        raise DataError(f"{expected}; got {str(source)[:40]!r} ({type(source).__name__}).")
    return list(source)
