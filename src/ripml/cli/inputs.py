"""What DATA, MODEL, STORE and TEXT on the command line stand for, and how they are read.

DATA is a file, a folder of documents, - for standard input, or the name of a data set. MODEL is the folder of a
model or of a store.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ripml import datasets
from ripml.base.errors import DataError, ParameterError
from ripml.cli.options import FileOptions
from ripml.cli.output import progress_bar, reading_notes, warnings_as_lines, working
from ripml.datasets import Dataset
from ripml.datasets.document_files import document_text, is_document
from ripml.datasets.formats import annif, suffix_format
from ripml.datasets.formats.files import is_folder as holds_documents
from ripml.datasets.source import fault, open_source
from ripml.datasets.vocabularies import with_ids
from ripml.store import Store
from ripml.store.database import FILE, is_unfinished
from ripml.tagging.documents import DocumentModel

Answer = TypeVar("Answer")

_LARGE_FILE = 1 << 24  # bytes; reading a larger file shows a progress bar


# ----------------------------------------------------------------------------------------------------------------- DATA


def is_file(data: str) -> bool:
    """Whether DATA means a file or a folder of documents and not a data set.

    A file that is missing has a dot or a slash.
    """
    path = Path(data)
    if path.is_dir():
        return annif.is_folder(path) or holds_documents(path)
    return data == "-" or path.is_file() or "." in data or "/" in data or path.is_fifo()


def _named_dataset(name: str) -> tuple[Dataset, Dataset]:
    """The training and test rows of a data set."""
    if name in datasets.available():
        return datasets.load(name)
    if Path(name).is_dir():
        raise DataError(
            f"{name}: there is no document in this folder; give a file, a folder of documents, or a name from "
            "ripml datasets list."
        )
    raise DataError(f"there is no file and no data set {name!r}; ripml datasets list shows the data sets.")


def read_rows(data: str, file: FileOptions, model: DocumentModel | None = None, test: bool = False) -> Dataset:
    """The rows of a file, read as the model expects them if one is given; or of one part of a data set."""
    with _reading(data) as source:
        if not is_file(data):
            return _named_dataset(data)[test]
        read = datasets.read if model is None else model.read
        rows = read(source, file.format, **file.columns())
    if model is None or model.concepts is None:
        return rows
    return with_ids(rows, model.concepts, set(map(str, model.model.classes_.tolist())))


def training_rows(data: str, file: FileOptions) -> tuple[Dataset, int | None]:
    """The rows to train on, and the number of the first feature, which `DocumentModel.fit` needs for SVMLight files."""
    with _reading(data) as source:
        if not is_file(data):
            return _named_dataset(data)[0], None
        rows, first_feature = DocumentModel.read_training(source, file.format, **file.columns())
    if len(rows) and not rows.label_names:
        raise DataError(f"{rows.name}: no row has labels; name their column or key with --labels-column.")
    return rows, first_feature


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
    bar = progress_bar("reading", path.stat().st_size, "bytes")
    with reading_notes(), bar as advance, _CountingFile(path, advance) as file:
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
    with warnings_as_lines():
        store = Store.open(folder, readonly=True)
    return store.model, store


def model_version(folder: Path, store: Store | None) -> str:
    """What tells the model in a folder from its predecessors."""
    if store is not None:
        return str(store.version)
    return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


def folder_megabytes(folder: Path) -> float:
    """The size of the files in a folder."""
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 2)


# ----------------------------------------------------------------------------------------------------------------- TEXT


@dataclass(frozen=True)
class Queries:
    """Texts, or rows of a file; `ids` are the ids of the rows or the names of the files, if there are any."""

    rows: Dataset | list[str]
    ids: list[str] | None

    def __len__(self) -> int:
        return len(self.rows)

    def answers(self, answer: Callable[[Dataset | list[str]], list[Answer]], size: int) -> Iterator[Answer]:
        """The answers to all queries: texts, which are few, at once; rows in blocks, with a progress bar."""
        if isinstance(self.rows, list):
            yield from answer(self.rows)
            return
        with progress_bar("predicting", len(self)) as advance:
            for block in self.rows.blocks(size):
                yield from answer(block)
                advance(len(block))

    def id(self, number: int) -> str | None:
        """The id of a query."""
        return None if self.ids is None else self.ids[number]

    def record(self, number: int) -> dict[str, Any]:
        """The first fields of a query's JSON."""
        return {} if self.ids is None else {"id": self.ids[number]}


def open_queries(
    folder: Path, texts: Sequence[str] | None, files: Sequence[str] | None, data: str | None, file: FileOptions
) -> tuple[DocumentModel, Store | None, Queries]:
    """Open the model in a folder, and read the texts or rows that it is asked about.

    A text that names a file stands for it: a document is read as a text, and a single file of rows as `data`.
    """
    texts, files = texts or [], files or []
    if bool(texts) + bool(files) + (data is not None) > 1:
        raise ParameterError("give either texts, or files of texts with --file, or rows with --data.")
    if not (texts or files or data) and sys.stdin.isatty():
        raise ParameterError("give a text, a file with --file, rows with --data, or a text on standard input.")
    model, store = open_model(folder)
    if rows := [text for text in texts if _names_rows(text, model)]:
        if len(texts) > 1:
            raise ParameterError(f"{rows[0]} is a file of rows; give nothing beside it.")
        data = rows[0]
    if data is not None:
        dataset = read_rows(data, file, model, test=True)
        return model, store, Queries(dataset, dataset.ids)
    if model.text is None:
        raise ParameterError(f"{folder} was trained on features, not on texts; give it rows with --data.")
    if not texts:
        texts = files or ["-"]
    names = [text if files or _names_file(text) else None for text in texts]
    found = [
        _decode(os.fsencode(text), "TEXT") if name is None and text != "-" else _read_document(text)
        for name, text in zip(names, texts, strict=True)
    ]
    found = [text.removesuffix("\n").removesuffix("\r") for text in found]  # an editor adds the last newline
    ids = [name for name in names if name is not None]
    return model, store, Queries(found, ids if len(ids) == len(found) > 1 else None)


def _names_file(text: str) -> bool:
    """Whether a text names a file that exists, or a missing one with the ending of a document or of rows."""
    if os.path.exists(text):
        return os.path.isfile(text) or "/" in text
    return not any(map(str.isspace, text)) and (suffix_format(text) is not None or is_document(text))


def _names_rows(text: str, model: DocumentModel) -> bool:
    """Whether a text names a data set, or a file of rows or a folder of documents."""
    if text in datasets.available() and not os.path.exists(text):
        return True
    is_rows = suffix_format(text) not in (None, "files") or os.path.isdir(text) or model.text is None
    return is_rows and _names_file(text)


def _read_document(place: str) -> str:
    if place == "-":
        return _read_text(place)
    with reading_notes(), open_source(place) as source:
        return document_text(source)


def _read_text(place: str) -> str:
    with open_source(place) as source:
        return _decode(source.read(), source.name)


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise fault(name, None, "the text is not UTF-8; save it as UTF-8.") from None
