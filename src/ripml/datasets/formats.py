"""`read`, `iter_blocks` and `write`: one way into and out of every file format.

A format is a module with `read(source, **options)`, `iter_blocks(source, **options)` and `write(dataset, file)`. One
of them, "annif", can also be a folder.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import annif, arff, delimited, jsonl, parquet, svmlight, xmc
from ripml.datasets.dataset import Dataset
from ripml.datasets.records import BOM, UTF_16
from ripml.datasets.source import Place, Source, open_source, open_target

__all__ = ["FORMATS", "check_options", "format_of", "iter_blocks", "read", "suffix_format", "write"]

FORMATS: Final[dict[str, ModuleType]] = {
    "xmc": xmc,
    "arff": arff,
    "svmlight": svmlight,
    "jsonl": jsonl,
    "csv": delimited,
    "parquet": parquet,
    "annif": annif,
}
_OF_TEXTS: Final = ("csv", "parquet", "annif")  # no place for features

_SUFFIXES: Final = {
    ".arff": "arff",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".xmc": "xmc",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}


def read(place: Place, format: str | None = None, **options: Any) -> Dataset:
    """Read a whole file, or a folder of Annif's.

    Parameters
    ----------
    place : path, "-" or binary file
        "-" is standard input. Gzip is recognised and unpacked.
    format : "xmc", "arff", "svmlight", "jsonl", "csv", "parquet", "annif", or None
        None: by the suffix of the name, else by the first line.
    **options
        Of the format: `xml` (arff), `zero_based`, `n_features`, `n_labels` (svmlight), `feature_names` (jsonl), the
        columns or keys `text`, `labels`, `id` (csv, parquet, jsonl), `vocabulary` (annif), and `label_names` (jsonl,
        csv, parquet, annif).

    Examples
    --------
    >>> import io
    >>> read(io.BytesIO(b"2 3 4\\n0,3 0:1 2:0.5\\n1 1:2\\n"))
    <Dataset <file>: 2 rows, 3 features, 4 labels>
    """
    with open_source(place) as source:
        format = format_of(source, format)
        module = FORMATS[format]
        check_options(format, module.read, options)
        dataset: Dataset = module.read(source, **options)
        return dataset


def iter_blocks(place: Place, format: str | None = None, **options: Any) -> Iterator[Dataset]:
    """Yield a file as consecutive blocks of rows, some megabytes of text each; the rest is as in `read`.

    Examples
    --------
    >>> import io
    >>> [block.Y.shape for block in iter_blocks(io.BytesIO(b"2 3 4\\n0,3 0:1 2:0.5\\n1 1:2\\n"))]
    [(2, 4)]
    """
    with open_source(place) as source:
        format = format_of(source, format)
        module = FORMATS[format]
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
        None: by the suffix of the name, where .txt stands for "xmc".
    **options
        Of the format: `xml` (arff), the place of the label file; `delimiter` (csv); `vocabulary` and, where there is no
        name to tell, `kind`, "tsv" or "csv" (annif).

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> write(read(io.BytesIO(b"text;labels\\nRain.;news, weather\\n")), file, "jsonl")
    >>> file.getvalue()
    b'{"labels": ["news, weather"], "text": "Rain."}\\n'
    """
    name = os.fspath(place) if isinstance(place, (str, os.PathLike)) else ""
    suffix = _suffix(name)
    format = format or {**_SUFFIXES, ".txt": "xmc"}.get(suffix)
    if format is None:
        raise ParameterError(f"the format cannot be told from the name '{name}'; say format='xmc' or another.")
    module = FORMATS[_known(format)]
    if format == "annif" and name not in ("", "-") and suffix not in (".tsv", ".csv"):
        check_options(format, annif.write_folder, options)
        annif.write_folder(_checked(dataset, format), Path(name), **options)
        return
    check_options(format, module.write, options)
    if format == "arff" and name not in ("", "-"):
        options.setdefault("xml", arff.xml_path(name))
    elif format == "csv" and suffix == ".tsv":
        options.setdefault("delimiter", "\t")
    elif format == "annif" and suffix == ".csv":
        options.setdefault("kind", "csv")
    dataset = _checked(dataset, format)
    with open_target(place) as file:
        module.write(dataset, file, **options)


def format_of(source: Source, format: str | None) -> str:
    """The format of an open file or folder: as given, by the suffix of its name, or by its first line."""
    if format is not None:
        return _known(format)
    if source.folder is not None and annif.is_corpus(source.folder):
        return "annif"
    by_name = None if source.folder is not None else suffix_format(source.name)
    if by_name not in (None, "csv"):
        return by_name
    head = source.head()
    if not head:
        raise DataError(f"{source.name}: the file is empty.")
    if head.startswith(UTF_16):
        raise DataError(f"{source.name}: this is UTF-16; save the file as UTF-8.")
    line = head.removeprefix(BOM).split(b"\n", 1)[0]
    columns = delimited.header_of(line, source.name)
    if annif.is_line(line) or ("subject_uris" in columns and "labels" not in columns):
        return "annif"
    if by_name is not None or "text" in columns:
        return "csv"
    if head[:4] == b"PAR1":
        return "parquet"
    if head.lstrip()[:1] in (b"@", b"%"):
        return "arff"
    if line[:1] in (b"{", b"["):  # the latter is told that it is none
        return "jsonl"
    words = line.split()
    if len(words) == 3 and all(word.isdigit() for word in words):
        return "xmc"
    if line[:1] == b"#" or (b":" in line and b'"' not in line):
        return "svmlight"
    text = line[:40].decode("utf-8", "backslashreplace")
    raise DataError(
        f"{source.name}: the format cannot be told from the name or the first line {text!r}; say which of "
        f"{', '.join(FORMATS)} it is with format=…."
    )


def _known(format: str) -> str:
    if format not in FORMATS:
        raise ParameterError(f"`format` must be one of {', '.join(FORMATS)}; got {format!r}.")
    return format


def suffix_format(name: str) -> str | None:
    """The format that the suffix of a name stands for, if it does.

    >>> suffix_format("rows.JSONL.gz"), suffix_format("rows.txt")
    ('jsonl', None)
    """
    return _SUFFIXES.get(_suffix(name))


def _suffix(name: str) -> str:
    return os.path.splitext(name.removesuffix(".gz"))[1].lower()


def check_options(format: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise `ParameterError` for an option that a function of a format does not have."""
    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ParameterError(
                f"`{option}` is no option of the format {format}; it has {', '.join(known) or 'none'}."
            )


def _checked(dataset: Dataset, format: str) -> Dataset:
    """Return the data set with canonical matrices; raise where the format cannot hold it."""
    if format in _OF_TEXTS:
        if dataset.texts is None:
            raise DataError(f"the format {format} needs texts, but this data set has only features; write jsonl.")
        dataset = replace(dataset, X=None, feature_names=None)
    elif dataset.X is None and format != "jsonl":
        raise DataError(f"the format {format} needs features, but this data set has only texts; write jsonl.")
    if format == "arff":
        arff.attribute_names(dataset)  # raises before a file is opened
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
