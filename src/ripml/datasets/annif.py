"""Annif's document corpora, so that what was indexed with Annif can be learnt here, and the other way round.

Three kinds, described in Annif's wiki under "Corpus formats", each told from the other by what is there:

::

    corpus.tsv(.gz)        text <tab> <uri> <uri> …                         one line a document
    corpus.csv(.gz)        columns text, subject_uris, perhaps document_id   URIs separated by blanks
    corpus/NAME.txt        the text; NAME is the id                          one file a document, beside it
           NAME.tsv        <uri> <tab> label                                 a line a subject, or
           NAME.key        label                                             a line a subject

A vocabulary is a TSV of `<uri> <tab> label`. With it labels are called by their names, and are written as URIs; without
it a subject is called by the label that stands beside its URI, or else by the URI. Angle brackets are no part of a URI.
A subject that is listed twice counts once, as in Annif.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, Literal

from ripml.base.errors import DataError
from ripml.datasets.dataset import Dataset, join
from ripml.datasets.delimited import cells, header_of, write_table
from ripml.datasets.records import BOM, Row, Where, blocks, decoded, encoded, names_of_row
from ripml.datasets.source import Place, Source, fault, open_source

__all__ = ["is_corpus", "is_line", "iter_blocks", "read", "write", "write_folder"]

_LINE: Final = re.compile(rb"[^\t]*\t\s*(<|https?:)")
_BREAK: Final = re.compile(r"[\t\n\r]")


def is_corpus(folder: Path) -> bool:
    """Whether a folder holds texts, and is not one of those that `load` reads."""
    return folder.is_dir() and not (folder / "train.txt").exists() and any(folder.glob("[!.]*.txt"))


def is_line(line: bytes) -> bool:
    """Whether this is a line of a TSV corpus.

    >>> is_line(b"The match\\t<http://example.org/sport>"), is_line(b"text\\tlabels")
    (True, False)
    """
    return _LINE.match(line) is not None


def read(source: Source, *, vocabulary: Place | None = None, label_names: Iterable[str] | None = None) -> Dataset:
    """Read a corpus.

    Parameters
    ----------
    vocabulary : path or binary file, optional
        A TSV of `<uri> <tab> label`: what the labels are to be called.
    label_names : iterable of str, optional
        The columns of Y, when they are to be those of another data set.
    """
    return join(iter_blocks(source, vocabulary=vocabulary, label_names=label_names))


def iter_blocks(
    source: Source, *, vocabulary: Place | None = None, label_names: Iterable[str] | None = None
) -> Iterator[Dataset]:
    """Yield blocks of rows; a block has a column for every label so far, or those of the given names."""
    subjects = _Subjects(vocabulary)
    if source.folder is not None:
        return blocks(source.name, _folder_rows(source.folder, subjects), label_names)
    columns = header_of(source.head().partition(b"\n")[0], source.name)
    if "subject_uris" in columns:
        id = "document_id" if "document_id" in columns else "id"
        return blocks(source.name, _csv_rows(source, id, subjects), label_names)
    return blocks(source.name, _tsv_rows(source, subjects), label_names)


def _tsv_rows(source: Source, subjects: _Subjects) -> Iterator[Row]:
    at = 0
    for at, line in source.lines():
        where = (source.name, at)
        text, tab, uris = decoded(line.removeprefix(BOM) if at == 1 else line, where).partition("\t")
        if not tab:
            raise fault(*where, f"there is no tab between text and subjects in '{text[:40]}'.")
        yield Row(where, text, _names(uris, subjects, where))
    if at == 0:
        raise fault(source.name, None, "the file is empty.")


def _csv_rows(source: Source, id: str, subjects: _Subjects) -> Iterator[Row]:
    for where, text, uris, row_id in cells(source, "text", "subject_uris", id):
        yield Row(where, text, _names(uris or "", subjects, where), row_id)


def _names(uris: str, subjects: _Subjects, where: Where) -> list[str]:
    for uri in uris.split():
        if ":" not in uri and _in_brackets(uri) is None:
            raise fault(
                *where, f"the subject '{uri[:40]}' is no URI; write it as <{uri[:40]}>, and a text without tabs."
            )
    return _once(subjects.name(_in_brackets(uri) or uri, None, where) for uri in uris.split())


def _folder_rows(folder: Path, subjects: _Subjects) -> Iterator[Row]:
    paths = sorted(folder.glob("[!.]*.txt"))  # Annif leaves out hidden files as well
    if not paths:
        raise fault(str(folder), None, "there is no .txt file in the folder.")
    for path in paths:
        labels: list[str] = []
        for beside in (path.with_suffix(".tsv"), path.with_suffix(".key")):
            if beside.exists():
                labels = _once(_subject_names(beside, subjects))
                break
        yield Row((str(path), None), _content(path), labels, path.stem)


def _subject_names(path: Path, subjects: _Subjects) -> Iterator[str]:
    for at, line in enumerate(_content(path).splitlines(), 1):
        uri, label = _subject(line)
        if uri is not None:
            yield subjects.name(uri, label, (str(path), at))
        elif label is not None:
            yield label


def _content(path: Path) -> str:
    with open_source(path) as source:
        lines = enumerate(source.read().split(b"\n"), 1)
    return "\n".join(decoded(line, (str(path), at)) for at, line in lines).removeprefix("\ufeff")


def _in_brackets(text: str) -> str | None:
    return text[1:-1] if len(text) > 2 and text[0] == "<" and text[-1] == ">" else None


def _subject(line: str) -> tuple[str | None, str | None]:
    """Return URI and label of `<uri> <tab> label`, either of which may be missing."""
    fields = [field for field in map(str.strip, line.split("\t")) if field]
    uri = _in_brackets(fields[0]) if fields else None
    label = next(iter(fields if uri is None else fields[1:]), None)
    return uri, label


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


class _Subjects:
    """Which URI is called what: no two have the same name."""

    def __init__(self, vocabulary: Place | None) -> None:
        self._names: dict[str, str] = {}
        self._given = vocabulary is not None
        if vocabulary is not None:
            labels = _vocabulary(vocabulary)
            often = Counter(labels.values())
            self._names = {uri: name if often[name] == 1 else f"{name} ({uri})" for uri, name in labels.items()}
        self._uris = {name: uri for uri, name in self._names.items()}

    def name(self, uri: str, label: str | None, where: Where) -> str:
        """Return what a subject is called; `label` is what stands beside it."""
        if uri not in self._names:
            name = label or uri
            if name in self._uris:
                both = f"<{self._uris[name]}> and of <{uri}>"
                raise fault(*where, f"'{name}' is the label of {both}; give them different names with vocabulary=….")
            self._names[uri], self._uris[name] = name, uri
        return self._names[uri]

    def uri(self, name: str, row: int) -> str:
        """Return the URI to write, in angle brackets."""
        uri = f"<{self._uris.get(name, name)}>"
        if uri.split() != [uri] or len(uri) == 2:
            remedy = "add it to the vocabulary" if self._given else "give its URI with vocabulary=…"
            raise DataError(f"row {row}: the label '{name}' cannot be written as a URI; {remedy}.")
        return uri


def _vocabulary(place: Place) -> dict[str, str]:
    labels: dict[str, str] = {}
    with open_source(place) as source:
        for at, line in source.lines():
            where = (source.name, at)
            text = decoded(line.removeprefix(BOM) if at == 1 else line, where).strip()
            first, _, rest = text.partition("\t")
            uri = _in_brackets(first.strip()) or first.strip()
            if not text:
                continue
            if ":" not in uri and not first.startswith("<"):
                raise fault(*where, f"'{text[:40]}' is no line '<uri> tab label' of a vocabulary.")
            if uri in labels:
                raise fault(*where, f"<{uri}> is listed twice.")
            labels[uri] = rest.partition("\t")[0].strip() or uri
    return labels


def write(
    dataset: Dataset, file: IO[bytes], *, vocabulary: Place | None = None, kind: Literal["tsv", "csv"] = "tsv"
) -> None:
    """Write a corpus of one file; of ids only the CSV has a place, of features none."""
    subjects = _Subjects(vocabulary)
    texts = dataset.texts or []
    uris = (" ".join(subjects.uri(name, row) for name in names_of_row(dataset, row)) for row in range(len(texts)))
    if kind == "csv":
        columns: dict[str, Iterable[str]] = {} if dataset.ids is None else {"document_id": dataset.ids}
        write_table(columns | {"text": texts, "subject_uris": uris}, file)
        return
    for row, (text, row_uris) in enumerate(zip(texts, uris, strict=True)):
        if _BREAK.search(text):
            raise DataError(
                f"row {row}: the text has a tab or a line break in it, for which Annif's TSV has no place; "
                "write a .csv file or a folder."
            )
        mark = BOM if row == 0 and text.startswith("\ufeff") else b""  # the first such sign is no part of the text
        file.write(mark + encoded(f"{text}\t{row_uris}\n", row))


def write_folder(dataset: Dataset, folder: Path, *, vocabulary: Place | None = None) -> None:
    """Write a corpus of a file a document into a new or empty folder; features have no place in it.

    Files are called by the ids, or else numbered. Subjects go to NAME.tsv if there is a vocabulary, else to NAME.key.
    """
    subjects = _Subjects(vocabulary)
    texts = dataset.texts or []
    width = len(str(len(texts)))
    ids = [f"{row:0{width}}" for row in range(len(texts))] if dataset.ids is None else dataset.ids
    _check_file_names(ids)
    try:
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise DataError(f"{folder}: the folder is not empty; name a new one.")
        for row, (id, text) in enumerate(zip(ids, texts, strict=True)):
            mark = BOM if text.startswith("\ufeff") else b""
            (folder / f"{id}.txt").write_bytes(mark + encoded(text, row))
            if names := names_of_row(dataset, row):
                lines = [_subject_line(name, row, subjects, vocabulary is not None) for name in names]
                beside = folder / f"{id}{'.key' if vocabulary is None else '.tsv'}"
                beside.write_bytes(encoded("".join(lines), row))
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error}).") from None


def _subject_line(name: str, row: int, subjects: _Subjects, with_uri: bool) -> str:
    line = f"{subjects.uri(name, row)}\t{name}" if with_uri else name
    if line.splitlines() != [line] or _subject(line)[1] != name or name.startswith("\ufeff"):
        raise DataError(f"row {row}: the label {name!r} would not be read back the same from a line of its own.")
    return line + "\n"


def _check_file_names(ids: list[str]) -> None:
    for row, id in enumerate(ids):
        if not id or id[0] == "." or "/" in id or "\0" in id or len(encoded(id, row)) > 250:
            raise DataError(f"row {row}: the id {id[:60]!r} cannot be the name of a file; write a .csv file.")
    if len(set(ids)) < len(ids):
        (twice, _), *_ = Counter(ids).most_common(1)
        raise DataError(f"the id {twice!r} is that of two rows, which cannot both be files of this name.")
