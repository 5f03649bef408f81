"""A folder of documents, or a single one: PDF, DOCX, HTML, e-mail, Markdown and plain text.

::

    letters/billing/17.pdf       a document with the label "billing" and the id "billing/17.pdf"
    letters/18.docx              a document; its labels are beside it
            18.key               one label per line

The labels of a document are those in a file NAME.key beside it, or else the names of the folders that it is in. How
texts are read is in `ripml.datasets.document_files`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ripml.datasets.dataset import Dataset
from ripml.datasets.document_files import SUFFIXES as DOCUMENTS
from ripml.datasets.document_files import document_text, is_document
from ripml.datasets.documents import Row, blocks
from ripml.datasets.source import Source, fault, open_source, text_lines

SUFFIXES: Final = tuple(suffix for suffix in DOCUMENTS if suffix not in (".txt", ".text"))  # those hold rows of XMC too
WRITTEN_SUFFIXES: Final = ()
CONTENT: Final = "texts"

_LABELS: Final = ".key"

_log = logging.getLogger("ripml.reading")


def recognises(source: Source) -> bool:
    """Whether the file is a PDF or a page of HTML."""
    return source.head().lstrip()[:9].lower().startswith((b"%pdf-", b"<!doctype", b"<html"))


def is_folder(path: Path) -> bool:
    """Whether there are documents in a folder, and not the files of a data set."""
    return path.is_dir() and not (path / "train.txt").exists() and next(_documents(path), None) is not None


def iter_blocks(source: Source, *, label_names: Iterable[str] | None = None) -> Iterator[Dataset]:
    """Yield blocks of documents; a block has a column for every label so far.

    Parameters
    ----------
    label_names : iterable of str, optional
        The columns of Y, to match those of another data set.
    """
    if source.folder is None:
        return blocks(source.name, iter([Row((source.name, None), document_text(source), [])]), label_names)
    return blocks(source.name, _rows(source.folder), label_names)


def _rows(folder: Path) -> Iterator[Row]:
    paths = list(_documents(folder))
    if not paths:
        raise fault(
            str(folder), None, f"there is no document in this folder; documents end with {', '.join(DOCUMENTS)}."
        )
    if left_out := sorted(set(_files(folder)).difference(paths, (path.with_suffix(_LABELS) for path in paths))):
        names = ", ".join(str(path.relative_to(folder)) for path in left_out)[:200]
        _log.warning("%s: left out, because they are not documents: %s (%d)", folder, names, len(left_out))
    if any(path.parent != folder for path in paths):
        _log.info("%s: the names of folders are labels", folder)
    for path in paths:
        with open_source(path) as source:
            text = document_text(source)
        beside, within = path.with_suffix(_LABELS), path.relative_to(folder)
        yield Row((str(path), None), text, _lines(beside) if beside.exists() else within.parts[:-1], within.as_posix())


def _files(folder: Path) -> Iterator[Path]:
    """All files in a folder and its folders that are not hidden, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _documents(folder: Path) -> Iterator[Path]:
    return (path for path in _files(folder) if is_document(path.name))


def _lines(path: Path) -> list[str]:
    """The lines of a file that are not blank, each once."""
    with open_source(path) as source:
        return list(dict.fromkeys(line.strip() for _, line in text_lines(source) if line.strip()))
