"""Arguments and options that several commands have."""

from __future__ import annotations

import os
from enum import Enum
from glob import escape, glob
from pathlib import Path
from typing import Annotated

import typer

from ripml.cli.words import Format

__all__ = [
    "DataArgument",
    "FormatOption",
    "JobsOption",
    "JsonOption",
    "ModelArgument",
    "StoreArgument",
    "data_names",
    "set_names",
    "word",
]


FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="The file's format; told from its name or first line otherwise."),
]


def set_names(incomplete: str) -> list[str]:
    """The names of data sets that begin so: as `ripml.datasets.available`, without what takes long to import."""
    folder = os.environ.get("RIPML_DATA")
    found = [path.parent.name for path in Path(folder).glob("*/train.txt*")] if folder else []
    return sorted(name for name in {*found, "numpydoc"} if name.startswith(incomplete))


def data_names(incomplete: str) -> list[str]:
    """What a shell may complete DATA to: the names of data sets, and files."""
    files = [f"{name}/" if os.path.isdir(name) else name for name in glob(f"{escape(incomplete)}*")]
    return [*set_names(incomplete), *sorted(files)]


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model or of a store.")]
StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a store; train --store makes one.")]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A file, - for standard input, or a data set's name.", autocompletion=data_names
    ),
]
JobsOption = Annotated[int | None, typer.Option("--jobs", help="Threads; all cores otherwise.")]


def word(choice: Enum | None) -> str | None:
    """What was chosen, or None."""
    return None if choice is None else str(choice.value)
