"""Annif's vocabularies, described in Annif's wiki under "Subject vocabulary formats".

::

    vocabulary.tsv    <uri> <tab> label <tab> notation     one concept per line, one language; the notation is optional
    vocabulary.csv    uri,notation,label_en,label_fi       one concept per row, a column per language

The CSV is a table, which `concept_table` reads. Angle brackets are not part of a URI, and codes are read as well as
URIs. Annif's formats have no synonyms and no broader terms: to keep them, write SKOS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Any, Final, Literal

from ripml.base.errors import DataError
from ripml.datasets.formats import concept_table
from ripml.datasets.formats.concept_table import in_brackets
from ripml.datasets.formats.delimited import header_of, write_table
from ripml.datasets.source import Source, decode, encode, fault
from ripml.labels.concepts import Concept, Concepts

SUFFIXES: Final = (".tsv",)

_BREAK: Final = re.compile(r"[\t\n\r]")


def recognises(source: Source) -> bool:
    """True: this is the format of files that no other one recognises."""
    return True


def read(source: Source, *, language: str = "") -> Concepts:
    """Read a whole file; `language` is that of the names in a TSV."""
    if "uri" in header_of(source):
        return concept_table.read(source, language=language)

    def concepts() -> Iterator[Concept]:
        seen: set[str] = set()
        for number, line in source.lines():
            where = (source.name, number)
            text = decode(line, where).strip()
            if not text:
                continue
            fields = [field.strip() for field in text.split("\t")]
            id, is_uri = in_brackets(fields[0]), ":" in fields[0] or fields[0].startswith("<")
            if len(fields[0].split()) != 1 or (len(fields) == 1 and not is_uri):
                raise fault(*where, f"'{text[:40]}' is not a line '<uri> tab label' of a vocabulary.")
            if id in seen:
                raise fault(*where, f"<{id}> is listed twice.")
            seen.add(id)
            name, notation = (*fields[1:3], "", "")[:2]
            yield Concept(id, {language.lower(): name} if name else {}, notation=notation or None)

    return Concepts.of(concepts())


def write_options(name: str) -> dict[str, Any]:
    """The kind of a file of this name."""
    return {"kind": "csv"} if name.lower().removesuffix(".gz").endswith(".csv") else {}


def write(
    concepts: Concepts, file: IO[bytes], *, kind: Literal["tsv", "csv"] = "tsv", language: str | None = None
) -> None:
    """Write a whole file: a TSV with the names in one language, see `Concept.name`, or a CSV with those of all."""
    if kind == "csv":
        # A column needs a language: names without one are written as those of `language`, which is English by default.
        default = language or "en"
        columns = {"uri": [f"<{id}>" for id in concepts], "notation": [c.notation or "" for c in concepts.values()]}
        for tag in dict.fromkeys(tag or default for tag in concepts.languages):
            spoken = (tag, "") if tag == default else (tag,)
            names = [next((c.names[one] for one in spoken if one in c.names), "") for c in concepts.values()]
            columns[f"label_{tag}"] = names
        write_table(dict(columns), file)
        return
    for row, concept in enumerate(concepts.values()):
        fields = [concept.name(language) if concept.names else "", concept.notation or ""]
        if any(map(_BREAK.search, (concept.id, *fields))):
            raise DataError(f"the concept {concept.id!r} has a tab or a line break, which Annif's TSV cannot hold.")
        line = "\t".join([f"<{concept.id}>", *fields]).rstrip("\t")
        file.write(encode(f"{line}\n", row))
