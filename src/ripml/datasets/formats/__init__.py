"""`read`, `iter_blocks` and `write`: one way into and out of every file format.

A format is a module named in the table `ripml.base.registry`, one line for each format. The module has

    SUFFIXES                          suffixes of file names, such as (".jsonl", ".ndjson")
    CONTENT                           what a row must have: "features", "texts", or "any" of the two
    recognises(source)                whether the beginning of a file is in this format
    iter_blocks(source, *, …)         yields the rows as `Dataset` blocks; keyword-only arguments are its options
    write_blocks(blocks, file, *, …)  writes blocks of rows whose matrices are canonical, one after the other; or
    write(dataset, file, *, …)        writes a whole data set, where a file cannot be written in blocks

(or none of the two if it is only read) and, where the format needs it,

    read(source, *, …)                reads the whole file; without it the blocks are joined
    WRITTEN_SUFFIXES                  suffixes that choose the format for `write`, if they are not SUFFIXES
    write_options(name)               default options of `write` for a file of this name
    check(dataset)                    raises if a data set cannot be written, before a file is opened
    is_folder(path)                   whether a folder is in this format
    write_folder(dataset, path, *, …) writes a folder; `write` calls it for names without one of the SUFFIXES
    iter_table(source, *, …)          yields where each row begins and all its cells, the names of the columns first

When a file's name does not tell its format, `recognises` of the format registered last is tried first.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.datasets.dataset import Dataset, join
from ripml.datasets.source import Place, Source, open_source, open_target

__all__ = ["format_of", "iter_blocks", "read", "read_source", "suffix_format", "write", "write_blocks"]


def read(place: Place, format: str | None = None, **options: Any) -> Dataset:
    """Read a whole file, or a folder of documents.

    Parameters
    ----------
    place : path, "-" or binary file
        "-" is standard input. Gzip is recognised and decompressed.
    format : "xmc", "arff", "svmlight", "jsonl", "csv", "parquet", "xlsx", "files", "annif", or None
        None: chosen by the suffix of the name, otherwise by the first line.
    **options
        Options of the format: `xml` (arff); `zero_based`, `n_features`, `n_labels` (svmlight); `feature_names`
        (jsonl); the columns or keys `text`, `labels`, `id`, and `tag_separator` (csv, parquet, xlsx, jsonl);
        `encoding` (csv); `sheet` (xlsx); `vocabulary` (annif); `label_names` (formats of texts).

    Examples
    --------
    >>> import io
    >>> read(io.BytesIO(b"2 3 4\\n0,3 0:1 2:0.5\\n1 1:2\\n"))
    <Dataset <file>: 2 rows, 3 features, 4 labels>
    """
    with open_source(place) as source:
        return read_source(source, format_of(source, format), **options)


def read_source(source: Source, format: str, **options: Any) -> Dataset:
    """Read an open file in a known format, with the options of that format."""
    module = _module(format)
    if hasattr(module, "read"):
        check_options(format, module.read, options)
        dataset: Dataset = module.read(source, **options)
        return dataset
    check_options(format, module.iter_blocks, options)
    return join(module.iter_blocks(source, **options))


def iter_blocks(place: Place, format: str | None = None, **options: Any) -> Iterator[Dataset]:
    """Yield a file as consecutive blocks of rows, a few megabytes of text each; parameters as in `read`.

    Examples
    --------
    >>> import io
    >>> [block.Y.shape for block in iter_blocks(io.BytesIO(b"2 3 4\\n0,3 0:1 2:0.5\\n1 1:2\\n"))]
    [(2, 4)]
    """
    with open_source(place) as source:
        yield from iter_source(source, format_of(source, format), **options)


def iter_source(source: Source, format: str, **options: Any) -> Iterator[Dataset]:
    """Yield an open file in a known format as blocks of rows, with the options of that format."""
    module = _module(format)
    check_options(format, module.iter_blocks, options)
    yield from module.iter_blocks(source, **options)


def write(dataset: Dataset, place: Place, format: str | None = None, **options: Any) -> None:
    """Write a whole file; a path that ends in .gz is compressed.

    Parameters
    ----------
    dataset : Dataset
    place : path, "-" or binary file
        "-" is standard output. "annif" writes a folder, unless the name ends in .tsv or .csv.
    format : "xmc", "arff", "svmlight", "jsonl", "csv", "parquet", "annif", or None
        None: chosen by the suffix of the name; .txt means "xmc".
    **options
        Options of the format: `xml` (arff), where to write the label file; `delimiter` (csv); `vocabulary`, and `kind`
        ("tsv" or "csv") if there is no file name (annif).

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> write(read(io.BytesIO(b"text;labels\\nRain.;news, weather\\n")), file, "jsonl")
    >>> file.getvalue()
    b'{"labels": ["news, weather"], "text": "Rain."}\\n'
    """
    name = os.fspath(place) if isinstance(place, (str, os.PathLike)) else ""
    format = format or next(iter(_with_suffix(name, "WRITTEN_SUFFIXES")), None)
    if format is None:
        raise ParameterError(f"the name '{name}' does not tell the format; pass format='xmc' or another.")
    module = _module(format)
    if name not in ("", "-") and hasattr(module, "write_folder") and suffix_of(name) not in module.SUFFIXES:
        check_options(format, module.write_folder, options)
        module.write_folder(_writable(dataset, format), Path(name), **options)
        return
    if not hasattr(module, "write") and not hasattr(module, "write_blocks"):
        raise ParameterError(f"the format {format} can only be read; write jsonl, csv or parquet.")
    dataset = _writable(dataset, format)  # raises before a file is opened
    if hasattr(module, "write"):
        _write(module.write, dataset, place, format, options)
    else:
        _write(module.write_blocks, [dataset], place, format, options)


def write_blocks(blocks: Iterable[Dataset], place: Place, format: str, **options: Any) -> None:
    """Write a file in "jsonl", "csv" or "parquet" with one block of rows in memory at a time; options as in `write`.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> write_blocks(iter_blocks(io.BytesIO(b"text;labels\\nRain.;weather\\n")), file, "jsonl")
    >>> file.getvalue()
    b'{"labels": ["weather"], "text": "Rain."}\\n'
    """
    module = _module(format)
    if not hasattr(module, "write_blocks"):
        raise ParameterError(f"the format {format} cannot be written in blocks; write jsonl, csv or parquet.")
    _write(module.write_blocks, (_writable(block, format) for block in blocks), place, format, options)


def _write(function: Callable[..., None], rows: Any, place: Place, format: str, options: dict[str, Any]) -> None:
    """Open the file and call `write` or `write_blocks` of a format, with default options for the name of the file."""
    check_options(format, function, options)
    module, name = _module(format), os.fspath(place) if isinstance(place, (str, os.PathLike)) else "-"
    if name != "-" and hasattr(module, "write_options"):
        options = {**module.write_options(name), **options}
    with open_target(place) as file:
        function(rows, file, **options)


def format_of(source: Source, format: str | None) -> str:
    """Return the format of an open file or folder: as given, by the suffix of its name, or by its first line."""
    if format is not None:
        _module(format)  # raises if there is no such format
        return format
    formats = registry.words("format")
    if source.folder is not None:
        for word in reversed(formats):
            module = _module(word)
            if hasattr(module, "is_folder") and module.is_folder(source.folder):
                return word
        raise DataError(f"{source.name}: there is no document in this folder; give a file, or a folder of documents.")
    by_suffix = _with_suffix(source.name)
    if len(by_suffix) == 1:
        return by_suffix[0]
    if not source.head():
        raise DataError(f"{source.name}: the file is empty.")
    for word in reversed(by_suffix or formats):
        if _module(word).recognises(source):
            return word
    if by_suffix:
        return by_suffix[0]
    line = source.first_line()[:40].decode("utf-8", "backslashreplace")
    raise DataError(
        f"{source.name}: neither the name nor the first line {line!r} tells the format; pass one of "
        f"{', '.join(formats)} with format=…."
    )


def suffix_format(name: str) -> str | None:
    """Return the format of files with the suffix of this name; None if no format has it.

    >>> suffix_format("rows.JSONL.gz"), suffix_format("rows.txt")
    ('jsonl', None)
    """
    return next(iter(_with_suffix(name)), None)


def _with_suffix(name: str, attribute: str = "SUFFIXES") -> list[str]:
    """Return the formats that have the suffix of this name, in the order of the registry."""
    suffix = suffix_of(name)
    modules = ((word, _module(word)) for word in registry.words("format"))
    return [word for word, module in modules if suffix in getattr(module, attribute, module.SUFFIXES)]


def suffix_of(name: str) -> str:
    return os.path.splitext(name.removesuffix(".gz"))[1].lower()


def _module(format: str) -> Any:
    try:
        return registry.named("format", format)
    except KeyError:
        known = ", ".join(registry.words("format"))
        raise ParameterError(f"`format` must be one of {known}; got {format!r}.") from None


def check_options(format: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise `ParameterError` for an option that a function of a format does not have."""
    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ParameterError(
                f"`{option}` is not an option of the format {format}; its options: {', '.join(known) or 'none'}."
            )


def _writable(dataset: Dataset, format: str) -> Dataset:
    """Return the data set with canonical matrices; raise if the format cannot hold it."""
    module = _module(format)
    if module.CONTENT == "texts":
        if dataset.texts is None:
            raise DataError(f"the format {format} needs texts, but this data set has only features; write jsonl.")
        dataset = replace(dataset, X=None, feature_names=None)
    elif module.CONTENT == "features" and dataset.X is None:
        raise DataError(f"the format {format} needs features, but this data set has only texts; write jsonl.")
    if hasattr(module, "check"):
        module.check(dataset)
    Y = csr_array(dataset.Y, dtype=np.float32, copy=True)
    Y.sum_duplicates()
    Y.eliminate_zeros()
    if not (Y.data == 1).all():
        raise DataError("Y must be an indicator of zeros and ones.")
    if dataset.X is None:
        return replace(dataset, Y=Y)
    X = csr_array(dataset.X, dtype=np.float32, copy=True)
    X.sum_duplicates()
    if not np.isfinite(X.data).all():
        raise DataError("X has a value that is not finite.")
    return replace(dataset, X=X, Y=Y)
