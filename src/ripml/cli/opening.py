"""What the words of a command line stand for: DATA is a file or a data set, MODEL the folder of a model or a store."""

from __future__ import annotations

from pathlib import Path

from ripml import datasets
from ripml.cli.output import working
from ripml.datasets import Dataset
from ripml.documents import DocumentModel
from ripml.errors import ParameterError
from ripml.store import Store
from ripml.store.database import FILE, is_unfinished

__all__ = ["asked", "is_file", "is_store", "opened", "opened_store"]


def is_file(place: str) -> bool:
    """Whether DATA means a file rather than the name of a data set; a file that does not exist has a dot or a slash."""
    path = Path(place)
    return place == "-" or path.is_file() or (not path.is_dir() and ("." in place or "/" in place)) or path.is_fifo()


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


def asked(trained: DocumentModel, data: str, format: str | None) -> Dataset:
    """The rows of a file, or of the test part of a named set, that a model is asked about."""
    with working("reading"):
        return trained.read(data, format) if is_file(data) else datasets.load(data)[1]
