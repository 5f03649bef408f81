"""`read_vocabulary` and `write_vocabulary`: files that give labels names, synonyms and broader terms.

A format is a module named under "vocabulary" in the table `ripml.base.registry`. The module has

    SUFFIXES                     suffixes of file names, such as (".ttl", ".rdf")
    recognises(source)           whether the beginning of a file is in this format
    read(source, *, …)           reads a whole file; keyword-only arguments are its options
    write(concepts, file, *, …)  writes a whole file
    write_options(name)          default options of `write` for a file of this name, where the format needs it

When a file's name does not tell its format, `recognises` of the format registered last is tried first; the first one,
"annif", takes what no other recognises.
"""

from __future__ import annotations

import os
from collections.abc import Container
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.datasets.dataset import Dataset
from ripml.datasets.formats import check_options, suffix_of
from ripml.datasets.source import Place, Source, open_source, open_target
from ripml.labels.concepts import Concepts

__all__ = ["concepts_given", "read_vocabulary", "with_ids", "write_vocabulary"]


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


def with_ids(data: Dataset, concepts: Concepts, known: Container[str] = ()) -> Dataset:
    """A data set whose labels are ids: a label that is the name of one concept becomes its id.

    Labels stay as they are if they are ids, if they are among the `known` ones, or if no concept or several have that
    name.

    >>> from ripml.datasets import documents_given
    >>> import io
    >>> concepts = read_vocabulary(io.BytesIO(b"id,name\\nc1,tea\\n"))
    >>> with_ids(documents_given(["Green", "Black"], [["Tea", "new"], ["c1"]]), concepts).label_names
    ['c1', 'new']
    """
    named = {name: concepts.id_of(name) for name in data.label_names if name not in concepts and name not in known}
    ids = [named.get(name) or name for name in data.label_names]
    if ids == list(data.label_names):
        return data
    columns = {id: column for column, id in enumerate(dict.fromkeys(ids))}
    # Row l of `moved` has a one in the new column of label l, so Y @ moved has the labels in their new columns.
    places = np.array([columns[id] for id in ids])
    moved = csr_array((np.ones(len(ids), np.float32), (np.arange(len(ids)), places)), shape=(len(ids), len(columns)))
    Y = csr_array(data.Y @ moved, dtype=np.float32)
    Y.sum_duplicates()
    Y.data[:] = 1
    return replace(data, Y=Y, label_names=list(columns))


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
    words = reversed(by_suffix or registry.words("vocabulary"))
    return next(word for word in words if _module(word).recognises(source))


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
