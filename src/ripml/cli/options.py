"""Arguments and options that several commands have."""

from __future__ import annotations

import os
from enum import Enum
from glob import escape, glob
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ripml.cli.words import Format

__all__ = [
    "DataArgument",
    "Form",
    "FormatOption",
    "JobsOption",
    "JsonOption",
    "LabelsColumnOption",
    "ModelArgument",
    "StoreArgument",
    "TextColumnOption",
    "data_names",
    "form",
    "set_names",
    "word",
]


FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="The file's format; told from its name or first line otherwise."),
]


class Form(NamedTuple):
    """How a file is read: its format, and the columns or keys of texts and labels, where they have other names."""

    format: str | None = None
    text: str | None = None
    labels: str | None = None

    def columns(self) -> dict[str, str]:
        """The names that were given, as the readers take them.

        >>> Form("csv", text="body").columns()
        {'text': 'body'}
        """
        return {name: value for name, value in (("text", self.text), ("labels", self.labels)) if value is not None}

    def words(self) -> list[str]:
        """The options that say it.

        >>> Form("csv", text="body").words()
        ['--format', 'csv', '--text-column', 'body']
        """
        columns = [word for name, value in self.columns().items() for word in (f"--{name}-column", value)]
        return [*(["--format", self.format] if self.format else []), *columns]


def form(format: Format | None, text: str | None = None, labels: str | None = None) -> Form:
    """The form that the options say."""
    return Form(word(format), text, labels)


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


TextColumnOption = Annotated[
    str | None, typer.Option("--text-column", metavar="NAME", help="The column or key of the texts; text otherwise.")
]
LabelsColumnOption = Annotated[
    str | None,
    typer.Option("--labels-column", metavar="NAME", help="The column or key of the labels; labels otherwise."),
]


def word(choice: Enum | None) -> str | None:
    """What was chosen, or None."""
    return None if choice is None else str(choice.value)
