"""`ripml vocabulary`: show, convert, replace or extend the vocabulary that gives labels their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from ripml.base.errors import ParameterError
from ripml.cli import options, output
from ripml.cli.store import login_name, open_store

if TYPE_CHECKING:
    from ripml.labels.concepts import Concepts
    from ripml.tagging.documents import DocumentModel

__all__ = ["app"]

app = Typer(rich_markup_mode=None)

_SHOWN = 5  # of the types and schemes

Groups = list[str] | None
_GROUP = "type:URI, scheme:URI, branch:ID or the id of a concept; repeatable."


@app.command(short_help="Show, convert, replace or extend a vocabulary.")
def vocabulary(
    path: Annotated[str, Argument(metavar="PATH", help="A vocabulary file, or the folder of a model or a store.")],
    replace: Annotated[str | None, Option(metavar="FILE", help="Replace the vocabulary of the store.")] = None,
    add: Annotated[str | None, Option(metavar="FILE", help="Add concepts to the vocabulary of the store.")] = None,
    to: Annotated[
        str | None, Option(metavar="FILE", help="Write the vocabulary to a file, - for standard output.")
    ] = None,
    include: Annotated[Groups, Option(metavar="GROUP", help=f"Only these concepts: {_GROUP}")] = None,
    exclude: Annotated[Groups, Option(metavar="GROUP", help=f"Not these concepts: {_GROUP}")] = None,
    format: Annotated[
        str | None, options.stage_option("vocabulary", "The format of the file that is read.", "--format", "-f")
    ] = None,
    to_format: Annotated[
        str | None, options.stage_option("vocabulary", "The format of --to. Default: from its name.", "--to-format")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show a vocabulary: SKOS (Turtle, RDF/XML, JSON-LD), Annif's TSV or CSV, a table or JSON lines.

    --replace and --add change the vocabulary of a store at once, without a new fit; concepts of --add replace those
    with the same ids. --include and --exclude select concepts of the file that is read.

    Example: ripml vocabulary eurovoc.rdf --include scheme:http://eurovoc.europa.eu/100141 --to eurovoc.csv

    Example: ripml vocabulary store/ --add new-concepts.ttl
    """
    from ripml.cli.inputs import is_store, open_model
    from ripml.datasets import read_vocabulary, write_vocabulary

    def read(file: str) -> Concepts:
        with output.working("reading"):
            return read_vocabulary(file, format).only(include, exclude or ())

    folder, trained = Path(path), None
    if replace is not None or add is not None:
        if replace is not None and add is not None:
            raise ParameterError("--replace and --add are two ways to change a vocabulary; give one of them.")
        found = read(str(replace if add is None else add))
        with open_store(folder) as store:
            known = None if add is None else store.model.concepts
            store.set_vocabulary(found if known is None else known.updated(found), actor=login_name())
            trained = store.model
        concepts = trained.concepts
    elif is_store(folder) or (folder / "manifest.json").exists():
        trained, _ = open_model(folder)
        concepts = None if trained.concepts is None else trained.concepts.only(include, exclude or ())
    else:
        concepts = read(path)
    if concepts is None:
        raise ParameterError(f"{path} has no vocabulary; give a store one with ripml vocabulary {path} --replace FILE.")
    if to is not None:
        write_vocabulary(concepts, to, to_format)
        if to == "-":
            return
    summary = _summary(concepts, trained)
    if json:
        output.print_json(summary)
    else:
        output.print_facts(path, {name.replace("_", " "): _format(value) for name, value in summary.items()})


def _summary(concepts: Concepts, trained: DocumentModel | None) -> dict[str, Any]:
    """Sizes of a vocabulary as plain values, and how much of a model's labels it covers."""
    every = list(concepts.values())
    facts: dict[str, Any] = {
        "concepts": len(every),
        "names": _counts(tag or "no language" for concept in every for tag in concept.names),
        "synonyms": sum(len(texts) for concept in every for texts in concept.synonyms.values()),
        "with_broader": sum(bool(concept.broader) for concept in every),
        "with_related": sum(bool(concept.related) for concept in every),
        "with_notation": sum(concept.notation is not None for concept in every),
        "types": _counts(one for concept in every for one in concept.types),
        "schemes": _counts(one for concept in every for one in concept.schemes),
    }
    if trained is not None:
        labels = list(map(str, trained.model.classes_.tolist()))
        facts["labels"] = len(labels)
        facts["labels_with_names"] = len(concepts.named(labels))
    return facts


def _counts(values: Iterable[str]) -> dict[str, int]:
    return dict(Counter(values).most_common())


def _format(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{value:,}"
    shown = [f"{output.printable(name)} {n:,}" for name, n in list(value.items())[:_SHOWN]]
    more = [f"{len(value) - _SHOWN:,} more"] if len(value) > _SHOWN else []
    return ", ".join(shown + more) or "none"
