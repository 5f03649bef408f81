"""What the words of a command line stand for: DATA is a file or a data set, MODEL the folder of a model or a store."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ripml import datasets
from ripml.base.errors import DataError, ParameterError
from ripml.cli.options import Form
from ripml.cli.output import bar, working
from ripml.datasets import Dataset
from ripml.datasets.formats.annif import is_folder
from ripml.datasets.source import fault, open_source
from ripml.store import Store
from ripml.store.database import FILE, is_unfinished
from ripml.tagging.documents import DocumentModel

__all__ = [
    "asked",
    "blocks",
    "is_file",
    "is_store",
    "lines",
    "named_set",
    "opened",
    "opened_store",
    "reading",
    "training_rows",
]

_LARGE = 1 << 24  # bytes from which reading a file is long work


def is_file(place: str) -> bool:
    """Whether DATA means a file, or a folder of texts, and not the name of a data set.

    A file that does not exist has a dot or a slash.
    """
    path = Path(place)
    if path.is_dir():
        return is_folder(path)
    return place == "-" or path.is_file() or "." in place or "/" in place or path.is_fifo()


def named_set(name: str) -> tuple[Dataset, Dataset]:
    """The training and the test part of a data set; raise where DATA is neither its name nor a file."""
    if name in datasets.available():
        return datasets.load(name)
    if Path(name).is_dir():
        raise DataError(
            f"{name}: this folder is no data; give a file, a folder of Annif's, or a name of ripml datasets list."
        )
    raise DataError(f"there is no file {name!r}, nor a data set of that name; ripml datasets list shows the names.")


def lines(place: str) -> list[str]:
    """The lines of a file that have something in them."""
    with open_source(place) as source:
        try:
            text = source.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise fault(source.name, None, "this is not UTF-8; save the file as UTF-8.") from None
    return [line.removesuffix("\r") for line in text.split("\n") if line.strip()]


def is_store(folder: Path) -> bool:
    """Whether a folder is that of a store, finished or not."""
    return (folder / FILE).is_file() or is_unfinished(folder)


def opened(folder: Path) -> tuple[DocumentModel, Store | None]:
    """The model of a folder, and the store if it is one, to be read: no writer is in the way, and nothing is written.

    A store that is only read holds nothing open between two questions, so it need not be closed.
    """
    if not is_store(folder):
        return DocumentModel.load(folder), None
    store = Store.open(folder, readonly=True)
    return store.model, store


def opened_store(folder: Path, readonly: bool = False) -> Store:
    """The store of a folder, to be written unless said otherwise."""
    if not is_store(folder):
        raise ParameterError(f"{folder}: this is no store; ripml train DATA {folder} --store makes one.")
    return Store.open(folder, readonly)


def asked(trained: DocumentModel, data: str, form: Form) -> Dataset:
    """The rows of a file, or of the test part of a named set, that a model is asked about."""
    with reading(data) as place:
        return trained.read(place, form.format, **form.columns()) if is_file(data) else named_set(data)[1]


def blocks(rows: Dataset, size: int) -> Iterator[Dataset]:
    """The rows, so many at a time."""
    for start in range(0, len(rows), size):
        some = slice(start, start + size)
        yield replace(
            rows,
            X=None if rows.X is None else rows.X[some],
            Y=rows.Y[some],
            texts=None if rows.texts is None else rows.texts[some],
            ids=None if rows.ids is None else rows.ids[some],
        )


def training_rows(data: str, form: Form) -> tuple[Dataset, int | None]:
    """The rows of a file, or of the training part of a named set, and what else `DocumentModel.fit` wants to know."""
    if not is_file(data):
        with working("reading"):
            return named_set(data)[0], None
    with reading(data) as place:
        rows, first_feature = DocumentModel.read_training(place, form.format, **form.columns())
    if len(rows) and not rows.label_names:
        raise DataError(f"{rows.name}: no row has labels; name their column or key with --labels-column.")
    return rows, first_feature


@contextlib.contextmanager
def reading(data: str) -> Iterator[Any]:
    """What DATA is read from; says that it is read, and of a large file how far."""
    path = Path(data)
    if data == "-" or not path.is_file() or path.stat().st_size < _LARGE:
        with working("reading"):
            yield data
        return
    with bar("reading", path.stat().st_size, unit="bytes") as advance, _Counted(path, advance) as file:
        yield file


class _Counted(io.FileIO):
    """A file that tells how many bytes of it were read."""

    def __init__(self, path: Path, tell: Callable[[int], None]) -> None:
        super().__init__(str(path), "rb")
        self._tell = tell

    def readinto(self, buffer: Any) -> int | None:
        n = super().readinto(buffer)
        self._tell(n or 0)
        return n
