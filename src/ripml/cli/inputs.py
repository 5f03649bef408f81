"""What DATA, MODEL, STORE and TEXT on the command line stand for, and how they are read.

DATA is a file, a folder of an Annif corpus, - for standard input, or the name of a data set. MODEL is the folder of a
model or of a store.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ripml import datasets
from ripml.base.errors import DataError, ParameterError
from ripml.cli.options import FileOptions
from ripml.cli.output import progress_bar, working
from ripml.datasets import Dataset
from ripml.datasets.annif import is_corpus
from ripml.datasets.formats import suffix_format
from ripml.datasets.source import fault, open_source
from ripml.store import Store
from ripml.store.database import FILE, is_unfinished
from ripml.tagging.documents import DocumentModel

__all__ = [
    "Queries",
    "QueryArguments",
    "folder_megabytes",
    "is_file",
    "is_store",
    "is_unfinished",
    "open_model",
    "open_store",
    "read_lines",
    "read_rows",
    "row_blocks",
    "training_rows",
]

_LARGE_FILE = 1 << 24  # bytes; reading a larger file shows a progress bar


# ----------------------------------------------------------------------------------------------------------------- DATA


def is_file(data: str) -> bool:
    """Whether DATA means a file or an Annif corpus and not a data set: a file that is missing has a dot or a slash."""
    path = Path(data)
    if path.is_dir():
        return is_corpus(path)
    return data == "-" or path.is_file() or "." in data or "/" in data or path.is_fifo()


def _named_dataset(name: str) -> tuple[Dataset, Dataset]:
    """The training and test rows of a data set."""
    if name in datasets.available():
        return datasets.load(name)
    if Path(name).is_dir():
        raise DataError(
            f"{name}: this folder is not an Annif corpus; give a file, a folder of documents with their subjects, or a "
            "name from ripml datasets list."
        )
    raise DataError(f"there is no file and no data set {name!r}; ripml datasets list shows the data sets.")


def read_rows(data: str, options: FileOptions, model: DocumentModel | None = None, test: bool = False) -> Dataset:
    """The rows of a file, read as the model expects them if one is given; or of one part of a data set."""
    with _reading(data) as source:
        if not is_file(data):
            return _named_dataset(data)[test]
        read = datasets.read if model is None else model.read
        return read(source, options.format, **options.columns())


def training_rows(data: str, options: FileOptions) -> tuple[Dataset, int | None]:
    """The rows to train on, and the number of the first feature, which `DocumentModel.fit` needs for SVMLight files."""
    with _reading(data) as source:
        if not is_file(data):
            return _named_dataset(data)[0], None
        rows, first_feature = DocumentModel.read_training(source, options.format, **options.columns())
    if len(rows) and not rows.label_names:
        raise DataError(f"{rows.name}: no row has labels; name their column or key with --labels-column.")
    return rows, first_feature


def row_blocks(rows: Dataset, size: int) -> Iterator[Dataset]:
    """The rows in blocks of at most `size`."""
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        yield replace(
            rows,
            X=None if rows.X is None else rows.X[block],
            Y=rows.Y[block],
            texts=None if rows.texts is None else rows.texts[block],
            ids=None if rows.ids is None else rows.ids[block],
        )


def read_lines(place: str) -> list[str]:
    """The lines of a text file that are not blank."""
    return [line.removesuffix("\r") for line in _read_text(place).split("\n") if line.strip()]


@contextlib.contextmanager
def _reading(data: str) -> Iterator[Any]:
    """What the readers should open for DATA; shows that it is being read, with a progress bar for a large file."""
    path = Path(data)
    if data == "-" or not path.is_file() or path.stat().st_size < _LARGE_FILE:
        with working("reading"):
            yield data
        return
    with progress_bar("reading", path.stat().st_size, "bytes") as advance, _CountingFile(path, advance) as file:
        yield file


class _CountingFile(io.FileIO):
    """A file that reports the number of bytes that were read."""

    def __init__(self, path: Path, advance: Callable[[int], None]) -> None:
        super().__init__(str(path), "rb")
        self._advance = advance

    def readinto(self, buffer: Any) -> int | None:
        n = super().readinto(buffer)
        self._advance(n or 0)
        return n


# ------------------------------------------------------------------------------------------------------ MODEL and STORE


def is_store(folder: Path) -> bool:
    """Whether a folder holds a store, even if its creation was interrupted."""
    return (folder / FILE).is_file() or is_unfinished(folder)


def open_model(folder: Path) -> tuple[DocumentModel, Store | None]:
    """The model in a folder, and the store if the folder is one, opened for reading beside any writer.

    A store opened for reading holds no lock or file between two calls, so it need not be closed.
    """
    if not is_store(folder):
        return DocumentModel.load(folder), None
    store = Store.open(folder, readonly=True)
    return store.model, store


def open_store(folder: Path, readonly: bool = False) -> Store:
    """The store in a folder."""
    if not is_store(folder):
        raise ParameterError(f"{folder} is not a store; create one with ripml train DATA {folder} --store.")
    return Store.open(folder, readonly)


def folder_megabytes(folder: Path) -> float:
    """The size of the files in a folder."""
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 2)


# ----------------------------------------------------------------------------------------------------------------- TEXT


@dataclass(frozen=True)
class QueryArguments:
    """The arguments of suggest and explain that say which texts or rows to answer.

    They are checked before a model is opened, and read afterwards.
    """

    texts: Sequence[str]
    files: Sequence[str]
    data: str | None
    options: FileOptions

    def check(self) -> None:
        """Raise `ParameterError` if there is no query, or if they come in more than one way."""
        if bool(self.texts) + bool(self.files) + (self.data is not None) > 1:
            raise ParameterError("give either texts, or files of texts with --file, or rows with --data.")
        if not (self.texts or self.files or self.data) and sys.stdin.isatty():
            raise ParameterError("give a text, a file with --file, rows with --data, or a text on standard input.")

    def with_text_as_data(self) -> QueryArguments:
        """The same arguments, with a single text that names a file or a data set taken as --data."""
        if len(self.texts) != 1 or self.data is not None:
            return self
        word = self.texts[0]
        if os.path.exists(word):
            named = is_file(word)
        else:
            named = word in datasets.available() or (" " not in word and suffix_format(word) is not None)
        return replace(self, texts=[], data=word) if named else self

    def read(self, model: DocumentModel, folder: Path) -> Queries:
        """The queries for the model in a folder."""
        if self.data is not None:
            rows = read_rows(self.data, self.options, model, test=True)
            return Queries(rows, rows.ids)
        if model.text is None:
            raise ParameterError(f"{folder} was trained on features, not on texts; give it rows with --data.")
        texts = [_argument_text(word) for word in self.texts] or [_read_text(file) for file in self.files or ("-",)]
        texts = [text.removesuffix("\n").removesuffix("\r") for text in texts]  # an editor adds the last newline
        return Queries(texts, list(self.files) if len(self.files) > 1 else None)


@dataclass(frozen=True)
class Queries:
    """Texts, or rows of a file; `ids` are the ids of the rows or the names of the files, if there are any."""

    rows: Dataset | list[str]
    ids: list[str] | None

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, size: int) -> Iterable[Dataset | list[str]]:
        """The rows of a file in blocks; texts, which are few, all at once."""
        return [self.rows] if isinstance(self.rows, list) else row_blocks(self.rows, size)

    def progress(self) -> AbstractContextManager[Callable[[int], None]]:
        """A progress bar for the rows of a file; a few texts need none."""
        return nullcontext(lambda _: None) if isinstance(self.rows, list) else progress_bar("predicting", len(self))

    def id(self, number: int) -> str | None:
        """The id of a query."""
        return None if self.ids is None else self.ids[number]

    def record(self, number: int) -> dict[str, Any]:
        """The first fields of a query's JSON."""
        return {} if self.ids is None else {"id": self.ids[number]}


def _argument_text(word: str) -> str:
    return _read_text("-") if word == "-" else _decode(os.fsencode(word), "TEXT")


def _read_text(place: str) -> str:
    with open_source(place) as source:
        return _decode(source.read(), source.name)


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise fault(name, None, "the text is not UTF-8; save it as UTF-8.") from None
