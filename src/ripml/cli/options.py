"""Arguments and options that several commands share, and how parameters of the library are called on the command line.

Options that name a stage (an index, a solver, a file format, …) take the words of `ripml.base.registry`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from glob import escape, glob
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from typer import Argument, BadParameter, Option

from ripml.base import registry

TextFeatures = Literal["doc2vec", "tfidf"]


def stage_option(kind: str, help: str, *flags: str, also: Sequence[str] = (), without: Sequence[str] = ()) -> Any:
    """An option whose values are the words that the registry has for one kind of stage."""

    def words() -> list[str]:
        return [*also, *(word for word in registry.words(kind) if word not in without)]

    def parse(word: str) -> str:
        if word not in words():
            raise BadParameter(f"{word!r} is not one of {', '.join(words())}.")
        return word

    def complete(incomplete: str) -> list[str]:
        return [word for word in words() if word.startswith(incomplete)]

    return Option(*flags, help=help, metavar=f"<{'|'.join(words())}>", parser=parse, autocompletion=complete)


def stage_word(kind: str, stage: Any) -> str:
    """The word for a stage in the registry, whatever its options are.

    >>> from ripml.regression.kernels import RBF
    >>> stage_word("kernel", RBF(gamma=0.5))
    'rbf'
    """
    words = dict(zip(registry.class_names(kind), registry.words(kind), strict=True))
    return words.get(type(stage).__name__, str(stage))


def complete_dataset(incomplete: str) -> list[str]:
    """Data sets whose names begin like this: as `ripml.datasets.available`, without its slow imports."""
    folder = os.environ.get("RIPML_DATA")
    names = [path.parent.name for path in Path(folder).glob("*/train.txt*")] if folder else []
    return sorted(name for name in {*names, "numpydoc"} if name.startswith(incomplete))


def complete_data(incomplete: str) -> list[str]:
    """Data sets and files whose names begin like this."""
    files = [f"{name}/" if os.path.isdir(name) else name for name in glob(f"{escape(incomplete)}*")]
    return [*complete_dataset(incomplete), *sorted(files)]


Json = Annotated[bool, Option("--json", help="Print JSON, for programs.")]
Jobs = Annotated[int | None, Option("--jobs", help="Number of threads. Default: one per core.")]
Model = Annotated[Path, Argument(metavar="MODEL", help="The folder of a model or a store.")]
Store = Annotated[Path, Argument(metavar="STORE", help="The folder of a store, made by ripml train --store.")]
Data = Annotated[
    str, Argument(metavar="DATA", help="A file, - for standard input, or a data set.", autocompletion=complete_data)
]
Format = Annotated[
    str | None,
    stage_option("format", "The file format. Default: detected from the name or the first line.", "--format", "-f"),
]
TextColumn = Annotated[
    list[str] | None,
    Option(
        "--text-column",
        "--text",
        metavar="NAME",
        help="The column or key of the texts; repeat it to join several, the title first. Default: text.",
    ),
]
LabelsColumn = Annotated[
    str | None,
    Option("--labels-column", "--labels", metavar="NAME", help="The column or key of the labels. Default: labels."),
]
TagSeparator = Annotated[
    str | None,
    Option("--tag-separator", metavar="TEXT", help="What separates labels in a cell, such as a comma. Default: found."),
]
Encoding = Annotated[
    str | None,
    Option("--encoding", metavar="NAME", help="The encoding of a CSV file. Default: UTF-8, UTF-16 or Windows-1252."),
]
Sheet = Annotated[
    str | None, Option("--sheet", metavar="NAME", help="The sheet of a spreadsheet. Default: the first with cells.")
]

Language = Annotated[
    str | None,
    Option("--language", metavar="TAG", help="The language of label names, such as de. Default: from the environment."),
]


def reader_languages(language: str | None) -> list[str]:
    """The languages that a reader prefers: the one given, or those that the environment names, as gettext reads it.

    >>> reader_languages("de-AT")
    ['de-AT']
    """
    if language is not None:
        return [language]
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((value for name in names if (value := os.environ.get(name))), "C")
    if locale.partition(".")[0] in ("C", "POSIX"):
        return []
    wanted = (os.environ.get("LANGUAGE") or locale).split(":")
    return [tag.partition(".")[0].partition("@")[0].replace("_", "-") for tag in wanted if tag]


class FileOptions(NamedTuple):
    """How a file is read: its format, the names of the columns and other options, or None for the defaults."""

    format: str | None = None
    text: Sequence[str] | None = None
    labels: str | None = None
    tag_separator: str | None = None
    encoding: str | None = None
    sheet: str | None = None

    def columns(self) -> dict[str, Any]:
        """The options that were given, as keyword arguments of the readers.

        >>> FileOptions("csv", text=["title", "body"], labels="tags").columns()
        {'text': ['title', 'body'], 'labels': 'tags'}
        """
        text = self.text[0] if self.text and len(self.text) == 1 else self.text or None
        given = {**self._asdict(), "text": text}
        return {name: value for name, value in given.items() if name != "format" and value is not None}

    def command_line(self) -> list[str]:
        """The same options as words of a command line.

        >>> FileOptions("csv", text=["body"]).command_line()
        ['--format', 'csv', '--text-column', 'body']
        """
        words = ["--format", self.format] if self.format else []
        for name, value in self.columns().items():
            option = option_name(name)
            assert option is not None
            words += [word for one in ([value] if isinstance(value, str) else value) for word in (option, one)]
        return words


# ----------------------------------------------------------------------------------- from parameters to options

_OPTIONS = {
    "allowed_labels", "clusters", "decoder", "dims", "documents", "encoding", "ensemble", "features", "folds", "format",
    "gamma", "index", "jobs", "kernel", "learners", "max_count", "memory", "metric", "min_count", "neighbors", "probe",
    "rate", "relevance", "ridge", "seed", "sheet", "solver", "stop_labels", "tag_separator", "tail", "targets", "test",
    "threshold", "trials", "vocabulary",
}  # fmt: skip
_RENAMED = {"random_state": "--seed", "text": "--text-column", "labels": "--labels-column"}
_QUOTED = re.compile(r"`([a-z_]+)`")
_ASSIGNED = re.compile(r"\b([a-z_]+)=(?:'((?:[^'\\\s]|\\[nt])+)'|…)")


def option_name(parameter: str) -> str | None:
    """The option for a parameter of the library, or None if there is none.

    >>> option_name("n_dims"), option_name("random_state"), option_name("storage")
    ('--dims', '--seed', None)
    """
    word = parameter.removeprefix("n_")
    return _RENAMED.get(parameter) or (f"--{word.replace('_', '-')}" if word in _OPTIONS else None)


def use_option_names(message: str) -> str:
    """A message of the library with options in place of Python's parameters.

    >>> use_option_names("`n_dims` must be 'auto' or an integer ≥ 1; got 0.")
    "--dims must be 'auto' or an integer ≥ 1; got 0."
    >>> use_option_names("use decoder='votes', or name the format with format=….")
    'use --decoder votes, or name the format with --format.'
    >>> use_option_names("tag_separator=','"), use_option_names("tag_separator=';'")
    ('--tag-separator ,', "--tag-separator ';'")
    """
    message = message.replace("Store.create", "ripml train DATA FOLDER --store")
    message = _QUOTED.sub(lambda match: option_name(match[1]) or match[0], message)
    return _ASSIGNED.sub(_as_option, message)


def _as_option(match: re.Match[str]) -> str:
    option = option_name(match[1])
    if option is None:
        return match[0]
    value = (match[2] or "").replace("\\n", "\n").replace("\\t", "\t")
    return f"{option} {shlex.quote(value)}" if value else option
