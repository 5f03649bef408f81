"""Vocabularies as a table: CSV or TSV with a header and one concept per row.

::

    id,name,synonyms,broader
    c1,tea,cha|chai,c2
    c2,drinks,,

Only `id` and one column of names are needed. Names and synonyms may have one column per language (`name_de`,
`synonyms_pt-BR`); `broader`, `related`, `notation`, `types` and `schemes` are optional. Several values in a cell are
separated by | or ;, or are a JSON list. Annif's CSV, which has `uri` and `label_en`, is read as well. Other columns are
ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Final

from ripml.datasets.documents import format_labels, parse_labels
from ripml.datasets.formats.delimited import header_of, iter_table, write_options, write_table
from ripml.datasets.source import Source, Where, fault
from ripml.labels.concepts import Concept, Concepts

__all__ = ["in_brackets", "read", "recognises", "write", "write_options"]

SUFFIXES: Final = (".csv", ".tsv")

_IDS: Final = ("id", "uri")
_NAMES: Final = ("name", "label")
_LISTS: Final = ("broader", "related", "types", "schemes")


def recognises(source: Source) -> bool:
    """Whether the first line is a header with a column of ids and a column of names."""
    columns = header_of(source)
    return any(name in columns for name in _IDS) and any(_language(column, _NAMES) is not None for column in columns)


def read(source: Source, *, language: str = "") -> Concepts:
    """Read a whole file; `language` is that of the names and synonyms whose columns do not say it."""
    rows = iter_table(source)
    where, columns = next(rows)
    ids = [place for place, column in enumerate(columns) if column in _IDS]
    names = _languages(columns, _NAMES, language)
    if not ids or not names:
        missing = "column 'id'" if not ids else "column 'name'"
        raise fault(*where, f"there is no {missing} among {', '.join(columns)[:200]}.")
    synonyms = _languages(columns, ("synonyms",), language)
    lists = {name: columns.index(name) for name in _LISTS if name in columns}
    notations = columns.index("notation") if "notation" in columns else None

    def concept(where: Where, row: Sequence[str]) -> Concept:
        id = in_brackets(row[ids[0]].strip())
        if not id:
            raise fault(*where, "the id is empty.")
        try:
            return Concept(
                id,
                {tag: name for place, tag in names if (name := row[place].strip())},
                {tag: tuple(texts) for place, tag in synonyms if (texts := parse_labels(row[place]))},
                notation=None if notations is None else row[notations].strip() or None,
                **{name: tuple(map(in_brackets, parse_labels(row[place]))) for name, place in lists.items()},
            )
        except ValueError as error:
            raise fault(*where, str(error)) from None

    def concepts() -> Iterator[Concept]:
        seen: set[str] = set()
        for where, row in rows:
            found = concept(where, row)
            if found.id in seen:
                raise fault(*where, f"<{found.id}> is listed twice.")
            seen.add(found.id)
            yield found

    return Concepts.of(concepts())


def write(concepts: Concepts, file: IO[bytes], *, delimiter: str = ",") -> None:
    """Write a whole file, with the columns that some concept fills."""
    every = list(concepts.values())
    spoken = sorted({language for concept in every for language in concept.synonyms})
    columns: dict[str, Iterable[str]] = {"id": [concept.id for concept in every]}
    for tag in concepts.languages or [""]:
        columns[_column("name", tag)] = [concept.names.get(tag, "") for concept in every]
    for tag in spoken:
        columns[_column("synonyms", tag)] = [format_labels(concept.synonyms.get(tag, ())) for concept in every]
    if any(concept.notation is not None for concept in every):
        columns["notation"] = [concept.notation or "" for concept in every]
    for name in _LISTS:
        if any(getattr(concept, name) for concept in every):
            columns[name] = [format_labels(getattr(concept, name)) for concept in every]
    write_table(columns, file, delimiter)


def in_brackets(text: str) -> str:
    """A URI without the angle brackets around it.

    >>> in_brackets("<http://example.org/1>"), in_brackets("c1")
    ('http://example.org/1', 'c1')
    """
    return text[1:-1] if len(text) > 2 and text[0] == "<" and text[-1] == ">" else text


def _column(name: str, language: str) -> str:
    return f"{name}_{language}" if language else name


def _languages(columns: Sequence[str], names: Sequence[str], default: str) -> list[tuple[int, str]]:
    """The places of the columns with one of these names, and the language of each."""
    found: list[tuple[int, Any]] = [(place, _language(column, names)) for place, column in enumerate(columns)]
    return [(place, tag or default) for place, tag in found if tag is not None]


def _language(column: str, names: Sequence[str]) -> str | None:
    """The language of a column: "de" of "name_de", "" of "name"; None for other columns."""
    name, _, tag = column.partition("_")
    return tag.lower() if name in names else None
