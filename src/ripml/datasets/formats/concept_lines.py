"""Vocabularies as JSONL: one JSON object per line, with all that a `Concept` has. What is empty is left out.

::

    {"id": "http://example.org/1", "names": {"en": "tea", "de": "Tee"}, "synonyms": {"en": ["cha"]},
     "notation": "T1", "broader": ["http://example.org/2"], "related": [], "types": [], "schemes": []}

A model folder keeps its vocabulary in this form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Final

from ripml.datasets.source import Source, decode, fault
from ripml.labels.concepts import Concept, Concepts

SUFFIXES: Final = (".jsonl", ".ndjson")


def recognises(source: Source) -> bool:
    """Whether the first line is a whole JSON object with an id, and not JSON-LD."""
    try:
        first = json.loads(source.first_line())
        return isinstance(first.get("id"), str) and "@context" not in first
    except (ValueError, AttributeError, RecursionError):
        return False


def read(source: Source) -> Concepts:
    """Read a whole file."""

    def concepts() -> Iterator[Concept]:
        seen: set[str] = set()
        for number, line in source.lines():
            where = (source.name, number)
            text = decode(line, where)
            if not text.strip():
                continue
            try:
                concept = Concept.from_json(json.loads(text))
            except json.JSONDecodeError as error:
                raise fault(*where, f"this is not JSON ({error.msg} at column {error.colno}).") from None
            except RecursionError:
                raise fault(*where, "the JSON is nested too deeply.") from None
            except ValueError as error:
                raise fault(*where, f"{error}.") from None
            if not concept.id or concept.id in seen:
                raise fault(*where, f"<{concept.id}> is listed twice." if concept.id else "the id is empty.")
            seen.add(concept.id)
            yield concept

    return Concepts.of(concepts())


def write(concepts: Concepts, file: IO[bytes]) -> None:
    """Write a whole file."""
    file.write(concepts.to_json_lines())
