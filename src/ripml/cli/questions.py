"""The texts or rows that suggest and explain are asked about, whichever way they come."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripml.base.errors import ParameterError
from ripml.cli.opening import asked, blocks
from ripml.cli.options import Form
from ripml.cli.output import bar
from ripml.datasets import Dataset
from ripml.datasets.source import fault, open_source
from ripml.tagging.documents import DocumentModel

__all__ = ["Questions", "Words"]


@dataclass(frozen=True)
class Words:
    """What the command line says of them; `check` before a model is opened, then `read`."""

    texts: Sequence[str]
    files: Sequence[str]
    data: str | None
    form: Form

    def check(self) -> Words:
        """Raise where there are several kinds of them, or none."""
        if bool(self.texts) + bool(self.files) + (self.data is not None) > 1:
            raise ParameterError(
                "give texts, or files of texts with --file, or rows with --data; not several of these."
            )
        if not (self.texts or self.files or self.data) and sys.stdin.isatty():
            raise ParameterError(
                "give a text, a file with --file, rows with --data, or write the text to standard input."
            )
        return self

    def read(self, trained: DocumentModel, folder: Path) -> Questions:
        """The questions to the model of a folder."""
        if self.data is not None:
            rows = asked(trained, self.data, self.form)
            return Questions(rows, rows.ids)
        if trained.text is None:
            raise ParameterError(f"{folder} was trained on features, not on texts; ask it about rows with --data.")
        texts = [_text(word) for word in self.texts] or [_read_text(file) for file in self.files or ("-",)]
        return Questions(texts, list(self.files) if len(self.files) > 1 else None)


@dataclass(frozen=True)
class Questions:
    """Rows of a file, or texts; with the ids of the rows, or the names of the files, if they have any."""

    rows: Dataset | list[str]
    ids: list[str] | None

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, size: int) -> Iterable[Dataset | list[str]]:
        """The rows of a file, so many at a time; a few texts at once."""
        return [self.rows] if isinstance(self.rows, list) else blocks(self.rows, size)

    def progress(self) -> AbstractContextManager[Callable[[int], None]]:
        """A bar for the rows of a file; a few texts need none."""
        return nullcontext(lambda _: None) if isinstance(self.rows, list) else bar("asking the model", len(self.rows))

    def id(self, number: int) -> str | None:
        """The id of a row."""
        return None if self.ids is None else self.ids[number]

    def record(self, number: int) -> dict[str, Any]:
        """What the JSON of a row begins with."""
        return {} if self.ids is None else {"id": self.ids[number]}


def _text(word: str) -> str:
    """A text of the command line, - for standard input."""
    return _read_text("-") if word == "-" else _decoded(os.fsencode(word), "the text")


def _read_text(place: str) -> str:
    with open_source(place) as source:
        return _decoded(source.read(), source.name)


def _decoded(content: bytes, name: str) -> str:
    """The text of these bytes; the newline in its end is the file's, not the text's."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise fault(name, None, "this is not UTF-8; save the text as UTF-8.") from None
    return text.removesuffix("\n").removesuffix("\r")
