"""Annif's document corpora: what was indexed with Annif can be learnt here, and the other way round.

Three kinds, described in Annif's wiki under "Corpus formats" and recognised by their content:

::

    corpus.tsv(.gz)        text <tab> <uri> <uri> …                         one document per line
    corpus.csv(.gz)        columns text, subject_uris, perhaps document_id   URIs separated by blanks
    corpus/NAME.txt        the text; NAME is the id                          one document per file, beside it
           NAME.tsv        <uri> <tab> label                                 one subject per line, or
           NAME.key        label                                             one subject per line

With a vocabulary, in any format of `read_vocabulary`, labels are called by their names and written as URIs; without
one, a subject is called by the label beside its URI, or else by the URI. Angle brackets are not part of a URI. A
subject that is listed twice counts once, as in Annif.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Literal

from ripml.base.errors import DataError
from ripml.datasets.dataset import Dataset
from ripml.datasets.document_files import is_document
from ripml.datasets.documents import Row, blocks, column_places
from ripml.datasets.formats.delimited import header_of, iter_table, write_table
from ripml.datasets.source import BOM, Place, Source, Where, decode, encode, fault, open_source
from ripml.datasets.vocabularies import concepts_given
from ripml.labels.concepts import Concepts

SUFFIXES: Final = (".tsv", ".csv")
WRITTEN_SUFFIXES: Final = ()  # a table is written as CSV, unless format="annif"
CONTENT: Final = "texts"

_TSV_LINE: Final = re.compile(rb"[^\t]*\t\s*(<|https?:)")
_BREAK: Final = re.compile(r"[\t\n\r]")


def recognises(source: Source) -> bool:
    """Whether the first line is text, tab and a URI, or a header with "subject_uris" and without "labels"."""
    columns = header_of(source)
    is_table = "subject_uris" in columns and "labels" not in columns
    return is_table or _TSV_LINE.match(source.first_line()) is not None


def is_folder(path: Path) -> bool:
    """Whether a folder holds texts and no other documents, and is not one of those that `ripml.datasets.load` reads."""
    if not path.is_dir() or (path / "train.txt").exists() or not any(path.glob("[!.]*.txt")):
        return False
    return all(file.suffix.lower() == ".txt" for file in path.rglob("[!.]*") if is_document(file.name))


def iter_blocks(
    source: Source, *, vocabulary: Place | Concepts | None = None, label_names: Iterable[str] | None = None
) -> Iterator[Dataset]:
    """Yield blocks of rows; a block has a column for every label so far.

    Parameters
    ----------
    vocabulary : path, binary file or Concepts, optional
        The names of the labels; a file in any format of `read_vocabulary`.
    label_names : iterable of str, optional
        The columns of Y, to match those of another data set.
    """
    subjects = _Subjects(vocabulary)
    rows: Iterable[Row]
    if source.folder is not None:
        rows = _folder_rows(source.folder, subjects)
    elif "subject_uris" in header_of(source):
        rows = _csv_rows(source, subjects)
    else:
        rows = _tsv_rows(source, subjects)
    return blocks(source.name, rows, label_names)


def _csv_rows(source: Source, subjects: _Subjects) -> Iterator[Row]:
    table = iter_table(source)
    where, header = next(table)
    places = column_places(header, where, "text", "subject_uris", "document_id" if "document_id" in header else "id")
    for where, row in table:
        _, (text,), uris, id = places.cells(where, row)
        yield Row(where, text, _names(uris or "", subjects, where), id)


def _tsv_rows(source: Source, subjects: _Subjects) -> Iterator[Row]:
    number = 0
    for number, line in source.lines():
        where = (source.name, number)
        text, tab, uris = decode(line, where).partition("\t")
        if not tab:
            raise fault(*where, f"there is no tab between text and subjects in '{text[:40]}'.")
        yield Row(where, text, _names(uris, subjects, where))
    if number == 0:
        raise fault(source.name, None, "the file is empty.")


def _names(uris: str, subjects: _Subjects, where: Where) -> list[str]:
    for uri in uris.split():
        if ":" not in uri and _in_brackets(uri) is None:
            raise fault(
                *where, f"the subject '{uri[:40]}' is not a URI; write it as <{uri[:40]}>, and texts without tabs."
            )
    return _unique(subjects.name(_in_brackets(uri) or uri, None, where) for uri in uris.split())


def _folder_rows(folder: Path, subjects: _Subjects) -> Iterator[Row]:
    paths = sorted(folder.glob("[!.]*.txt"))  # Annif ignores hidden files too
    if not paths:
        raise fault(str(folder), None, "there is no .txt file in the folder.")
    for path in paths:
        labels: list[str] = []
        for subject_file in (path.with_suffix(".tsv"), path.with_suffix(".key")):
            if subject_file.exists():
                labels = _unique(_subject_names(subject_file, subjects))
                break
        yield Row((str(path), None), _content(path), labels, path.stem)


def _subject_names(path: Path, subjects: _Subjects) -> Iterator[str]:
    for number, line in enumerate(_content(path).splitlines(), 1):
        uri, label = _parse_subject(line)
        if uri is not None:
            yield subjects.name(uri, label, (str(path), number))
        elif label is not None:
            yield label


def _content(path: Path) -> str:
    with open_source(path) as source:
        lines = enumerate(source.read().split(b"\n"), 1)
    return "\n".join(decode(line, (str(path), number)) for number, line in lines)


def _in_brackets(text: str) -> str | None:
    return text[1:-1] if len(text) > 2 and text[0] == "<" and text[-1] == ">" else None


def _parse_subject(line: str) -> tuple[str | None, str | None]:
    """Return URI and label of `<uri> <tab> label`, either of which may be missing."""
    fields = [field for field in map(str.strip, line.split("\t")) if field]
    uri = _in_brackets(fields[0]) if fields else None
    label = next(iter(fields if uri is None else fields[1:]), None)
    return uri, label


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


class _Subjects:
    """The name of each URI; no two URIs have the same name."""

    def __init__(self, vocabulary: Place | Concepts | None) -> None:
        self._names: dict[str, str] = {}
        self.has_vocabulary = vocabulary is not None
        if vocabulary is not None:
            names = {uri: concept.name() for uri, concept in (concepts_given(vocabulary) or {}).items()}
            counts = Counter(names.values())
            self._names = {uri: name if counts[name] == 1 else f"{name} ({uri})" for uri, name in names.items()}
        self._uris = {name: uri for uri, name in self._names.items()}

    def name(self, uri: str, label: str | None, where: Where) -> str:
        """Return the name of a subject; `label` is the label beside its URI."""
        if uri not in self._names:
            name = label or uri
            if name in self._uris:
                both = f"<{self._uris[name]}> and of <{uri}>"
                raise fault(*where, f"'{name}' is the label of {both}; give them different names with vocabulary=….")
            self._names[uri], self._uris[name] = name, uri
        return self._names[uri]

    def uri(self, name: str, row: int) -> str:
        """Return the URI of a name, in angle brackets."""
        uri = f"<{self._uris.get(name, name)}>"
        if uri.split() != [uri] or len(uri) == 2:
            remedy = "add it to the vocabulary" if self.has_vocabulary else "give its URI with vocabulary=…"
            raise DataError(f"row {row}: the label '{name}' cannot be written as a URI; {remedy}.")
        return uri


def write_options(name: str) -> dict[str, Any]:
    """Return the kind of a file of this name."""
    return {"kind": "csv"} if name.lower().removesuffix(".gz").endswith(".csv") else {}


def write(
    dataset: Dataset,
    file: IO[bytes],
    *,
    vocabulary: Place | Concepts | None = None,
    kind: Literal["tsv", "csv"] = "tsv",
) -> None:
    """Write a corpus as one file; only the CSV can hold ids."""
    subjects = _Subjects(vocabulary)
    texts = dataset.texts or []
    uris = (" ".join(subjects.uri(name, row) for name in dataset.row_labels(row)) for row in range(len(texts)))
    if kind == "csv":
        columns: dict[str, Iterable[str]] = {} if dataset.ids is None else {"document_id": dataset.ids}
        write_table(columns | {"text": texts, "subject_uris": uris}, file)
        return
    for row, (text, row_uris) in enumerate(zip(texts, uris, strict=True)):
        if _BREAK.search(text):
            raise DataError(
                f"row {row}: the text contains a tab or a line break, which Annif's TSV cannot hold; write a .csv "
                "file or a folder."
            )
        mark = BOM if row == 0 and text.startswith("\ufeff") else b""  # a reader drops the first one
        file.write(mark + encode(f"{text}\t{row_uris}\n", row))


def write_folder(dataset: Dataset, folder: Path, *, vocabulary: Place | Concepts | None = None) -> None:
    """Write a corpus with one file per document into a new or empty folder.

    Files are named by the ids, or numbered. Subjects go to NAME.tsv if there is a vocabulary, else to NAME.key.
    """
    subjects = _Subjects(vocabulary)
    texts = dataset.texts or []
    width = len(str(len(texts)))
    ids = [f"{row:0{width}}" for row in range(len(texts))] if dataset.ids is None else dataset.ids
    _check_file_names(ids)
    try:
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise DataError(f"{folder}: the folder is not empty; choose a new one.")
        for row, (id, text) in enumerate(zip(ids, texts, strict=True)):
            mark = BOM if text.startswith("\ufeff") else b""
            (folder / f"{id}.txt").write_bytes(mark + encode(text, row))
            if names := dataset.row_labels(row):
                lines = "".join(_subject_line(name, row, subjects) for name in names)
                subject_file = folder / f"{id}{'.tsv' if subjects.has_vocabulary else '.key'}"
                subject_file.write_bytes(encode(lines, row))
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error}).") from None


def _subject_line(name: str, row: int, subjects: _Subjects) -> str:
    line = f"{subjects.uri(name, row)}\t{name}" if subjects.has_vocabulary else name
    if line.splitlines() != [line] or _parse_subject(line)[1] != name or name.startswith("\ufeff"):
        raise DataError(f"row {row}: the label {name!r} on a line of its own would not read back the same.")
    return line + "\n"


def _check_file_names(ids: list[str]) -> None:
    for row, id in enumerate(ids):
        if not id or id[0] == "." or "/" in id or "\0" in id or len(encode(id, row)) > 250:
            raise DataError(f"row {row}: the id {id[:60]!r} cannot be a file name; write a .csv file.")
    if len(set(ids)) < len(ids):
        (twice, _), *_ = Counter(ids).most_common(1)
        raise DataError(f"two rows have the id {twice!r}, but they cannot both be files of this name.")
