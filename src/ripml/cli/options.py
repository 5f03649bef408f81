"""Arguments and options that several commands have."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "DataArgument",
    "Format",
    "FormatOption",
    "JobsOption",
    "JsonOption",
    "ModelArgument",
    "StoreArgument",
]


class Format(str, Enum):
    """File formats."""

    xmc = "xmc"
    arff = "arff"
    svmlight = "svmlight"
    jsonl = "jsonl"


FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="The file's format; told from its name or first line otherwise."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model or of a store.")]
StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a store; train --store makes one.")]
DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="A file, - for standard input, or a data set's name.")
]
JobsOption = Annotated[int | None, typer.Option("--jobs", help="Threads; all cores otherwise.")]
