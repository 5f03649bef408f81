"""The concepts of a vocabulary in a request: validated, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from ripml.labels.concepts import Concept, Concepts
from ripml.server.problems import Problem
from ripml.server.schemas import NewConcept

__all__ = ["concepts_of", "concepts_of_lines"]


def concepts_of(given: Iterable[NewConcept]) -> Concepts:
    """The vocabulary of these concepts; 409 if two have the same id."""
    found: dict[str, Concept] = {}
    for concept in given:
        if concept.id in found:
            raise Problem(409, f"the concept {concept.id!r} is given twice.")
        found[concept.id] = Concept.from_json(concept.model_dump())
    return Concepts(found)


def concepts_of_lines(lines: bytes) -> Concepts:
    """The vocabulary in a file with one concept per line, as JSON; 422 for the first line that is not one.

    >>> concepts_of_lines(b'{"id": "c1", "names": {"en": "tea"}}\\n\\n').name("c1")
    'tea'
    """
    return concepts_of(_parsed(lines))


def _parsed(lines: bytes) -> Iterator[NewConcept]:
    for number, line in enumerate(lines.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield NewConcept.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(["line", str(number), *map(str, first["loc"])])
            raise Problem(422, f"{where}: {first['msg']}.") from None
