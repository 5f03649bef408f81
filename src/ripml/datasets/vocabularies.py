"""`read_vocabulary` and `write_vocabulary`: files that give labels names, synonyms and broader terms.

A format is a module named under "vocabulary" in the table `ripml.base.registry`. The module has

    SUFFIXES                     suffixes of file names, such as (".ttl", ".rdf")
    recognises(source)           whether the beginning of a file is in this format
    read(source, *, …)           reads a whole file; keyword-only arguments are its options
    write(concepts, file, *, …)  writes a whole file
    write_options(name)          default options of `write` for a file of this name, where the format needs it

When a file's name does not tell its format, `recognises` of the format registered last is tried first.
"""

from __future__ import annotations

import os
from typing import Any

from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.datasets.formats import check_options, suffix_of
from ripml.datasets.source import UTF_16, Place, Source, open_source, open_target
from ripml.labels.concepts import Concepts

__all__ = ["concepts_given", "read_vocabulary", "write_vocabulary"]


def read_vocabulary(place: Place, format: str | None = None, **options: Any) -> Concepts:
    """Read a vocabulary.

    Parameters
    ----------
    place : path, "-" or binary file
        "-" is standard input. Gzip is recognised and decompressed.
    format : "skos", "annif", "table", "jsonl", or None
        SKOS is RDF/XML, Turtle, N-Triples or JSON-LD and needs the extra `skos`. None: chosen by the suffix of the
        name, otherwise by the first line.
    **options
        Options of the format: `syntax` (skos), if neither the name nor the beginning of the file tells it; `language`
        of the names (annif, table), where the file does not say it.

    Examples
    --------
    >>> import io
    >>> concepts = read_vocabulary(io.BytesIO(b"id,name,synonyms,broader\\nc1,tea,chai|cha,c2\\nc2,drinks,,\\n"))
    >>> concepts["c1"].synonyms, concepts.narrower("c2")
    ({'': ('chai', 'cha')}, ('c1',))
    """
    with open_source(place) as source:
        format = _format_of(source, format)
        module = _module(format)
        check_options(format, module.read, options)
        concepts: Concepts = module.read(source, **options)
    return concepts


def write_vocabulary(concepts: Concepts, place: Place, format: str | None = None, **options: Any) -> None:
    """Write a vocabulary; a path that ends in .gz is compressed.

    Parameters
    ----------
    concepts : Concepts
    place : path, "-" or binary file
        "-" is standard output.
    format : "skos", "annif", "table", "jsonl", or None
        None: chosen by the suffix of the name; .csv means "table" and .tsv means "annif".
    **options
        Options of the format: `syntax` (skos), "turtle" by default; `kind` ("tsv" or "csv") and `language` (annif).

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> write_vocabulary(read_vocabulary(io.BytesIO(b"<http://example.org/1>\\tfruit\\n")), file, "jsonl")
    >>> file.getvalue()
    b'{"id":"http://example.org/1","names":{"":"fruit"}}\\n'
    """
    name = os.fspath(place) if isinstance(place, (str, os.PathLike)) else ""
    format = format or next(iter(_with_suffix(name)), None)
    if format is None:
        raise ParameterError(f"the name '{name}' does not tell the format; pass format='skos' or another.")
    module = _module(format)
    check_options(format, module.write, options)
    if hasattr(module, "write_options"):
        options = {**module.write_options(name), **options}
    with open_target(place) as file:
        module.write(concepts, file, **options)


def concepts_given(vocabulary: Any) -> Concepts | None:
    """A vocabulary that is given as `Concepts`, as the path of a file, or as None."""
    if vocabulary is None or isinstance(vocabulary, Concepts):
        return vocabulary
    if isinstance(vocabulary, (str, os.PathLike)) or hasattr(vocabulary, "read"):
        return read_vocabulary(vocabulary)
    raise ParameterError(f"`vocabulary` must be a path, Concepts or None; got {vocabulary!r}.")


def _format_of(source: Source, format: str | None) -> str:
    """The format of an open file: as given, by the suffix of its name, or by its beginning."""
    if format is not None:
        _module(format)  # raises if there is no such format
        return format
    by_suffix = _with_suffix(source.name)
    if len(by_suffix) == 1:
        return by_suffix[0]
    head = source.head()
    if not head:
        raise DataError(f"{source.name}: the file is empty.")
    if head.startswith(UTF_16):
        raise DataError(f"{source.name}: this is UTF-16; save the file as UTF-8.")
    for word in reversed(by_suffix or registry.words("vocabulary")):
        if _module(word).recognises(source):
            return word
    if by_suffix:
        return by_suffix[0]
    line = source.first_line()[:40].decode("utf-8", "backslashreplace")
    raise DataError(
        f"{source.name}: neither the name nor the first line {line!r} tells the format of this vocabulary; pass one of "
        f"{', '.join(registry.words('vocabulary'))} with format=…."
    )


def _with_suffix(name: str) -> list[str]:
    """The formats that have the suffix of this name, in the order of the registry."""
    suffix = suffix_of(name)
    return [word for word in registry.words("vocabulary") if suffix in _module(word).SUFFIXES]


def _module(format: str) -> Any:
    try:
        return registry.named("vocabulary", format)
    except KeyError:
        known = ", ".join(registry.words("vocabulary"))
        raise ParameterError(f"`format` of a vocabulary must be one of {known}; got {format!r}.") from None
