"""`tag_file`: the rows of a table with the labels that a model suggests, in a new table.

All columns are kept; "tags" and "scores" are added. Finished blocks are in FILE.part, and FILE.part.json says how many
rows and bytes these are:

    write a block → fsync → replace FILE.part.json → next block;    at the end, FILE.part becomes FILE

so that after a kill at any moment the same call cuts FILE.part to the bytes of whole blocks and goes on with the next
row: each row is there once, in order. One block of rows is in memory at a time, and a spreadsheet as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final

from ripml.base import platform
from ripml.base.errors import DataError, ParameterError
from ripml.datasets.documents import format_labels
from ripml.datasets.formats import format_of
from ripml.datasets.formats.delimited import write_table
from ripml.datasets.source import fault, open_source
from ripml.datasets.tables import TableRow, iter_rows
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules, Suggestion

__all__ = ["Tagged", "tag_file"]

_BLOCK: Final = 500  # rows between two commits; about a second of work
_SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class Tagged:
    """What `tag_file` did: all rows of the table, those that an earlier call had done, and those without any label."""

    rows: int
    resumed: int
    without_labels: int


def tag_file(
    model: DocumentModel,
    place: Any,
    target: str | os.PathLike[str],
    format: str | None = None,
    *,
    rules: Rules | None = None,
    version: str = "",
    languages: Sequence[str | None] = (),
    progress: Callable[[int], object] = lambda n: None,
    text: str | Sequence[str] = "text",
    **options: Any,
) -> Tagged:
    """Write the rows of a table, or the documents of a folder, with suggested labels and their scores to a new file.

    Parameters
    ----------
    model : DocumentModel
    place : path, "-" or binary file
        A table (CSV, Excel, JSONL, Parquet), or a document or a folder of them; then "id" is the name of a file.
    target : path
        A name with the suffix .csv, .tsv or .jsonl; the file must not exist yet. A call that was interrupted is
        continued if the table and the options are the same.
    rules : Rules, optional
        Which labels are suggested. Default: those of the model.
    version : str
        What tells this model from others, such as the version of a store: a call that continues with another one warns.
    languages : sequence of str
        If the model has a vocabulary, a column "names" has the names of the labels, in the first of these languages.
    progress : callable
        Called with the number of rows that were done.
    text, **options
        The columns of the texts, and further options of `ripml.datasets.read`.
    """
    path = Path(target)
    if path.suffix.lower() not in _SUFFIXES:
        raise ParameterError(f"{path}: tags are written to a file with one of the suffixes {', '.join(_SUFFIXES)}.")
    if path.exists():
        raise DataError(f"{path} already exists; delete it, or choose another name.")
    if model.text is None:
        raise ParameterError("the model was trained on features, not on texts; ripml predict answers rows of features.")
    rules = model.rules if rules is None else rules
    settings = {"text": text, "format": format, "rules": rules.to_json(), **options}
    with open_source(place) as source, _Part(path, _identity(place, settings), version) as part:
        rows = iter_rows(source, format_of(source, format), text, **options)
        resumed = sum(1 for _ in islice(rows, part.rows))
        if resumed < part.rows:
            raise DataError(f"{source.name}: there are fewer rows than when {part.path} was begun; delete that.")
        progress(resumed)
        added: list[str] = []
        if (first := next(rows, None)) is None:
            if not part.rows:
                raise DataError(f"{source.name} has no rows.")
        else:
            added = part.begin(list(first.cells), model.concepts is not None)
            rows = chain([first], rows)
        while block := list(islice(rows, _BLOCK)):
            suggested = model.suggest([row.text for row in block], rules)
            names = model.names((label for labels in suggested for label, _ in labels), *languages)
            part.write([
                {**row.cells, **_new_cells(added, labels, names)} for row, labels in zip(block, suggested, strict=True)
            ], sum(not labels for labels in suggested), block)  # fmt: skip
            progress(len(block))
        part.finish()
        return Tagged(part.rows, resumed, part.without_labels)


def _new_cells(added: Sequence[str], labels: Sequence[Suggestion], names: Mapping[str, str]) -> dict[str, list[Any]]:
    found = [label for label, _ in labels]
    values: list[list[Any]] = [
        found,
        [round(score, 4) for _, score in labels],
        [names.get(label, label) for label in found],
    ]
    return dict(zip(added, values, strict=False))


def _identity(place: Any, settings: dict[str, Any]) -> str | None:
    """What says whether a call is the same as before; None where the input cannot be read again."""
    if not isinstance(place, (str, os.PathLike)) or os.fspath(place) == "-":
        return None
    path = Path(place)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    states = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256(json.dumps([states, settings], default=str).encode()).hexdigest()


class _Part:
    """The finished rows of a file that is being written."""

    def __init__(self, path: Path, identity: str | None, version: str) -> None:
        self._target, self._identity, self._version = path, identity, version
        self.path = path.with_name(f"{path.name}.part")
        self._journal = path.with_name(f"{path.name}.part.json")
        self.rows = self.without_labels = 0
        self._columns: list[str] = []
        self._added: list[str] = []
        self._is_json = path.suffix.lower() in (".jsonl", ".ndjson")

    def __enter__(self) -> _Part:
        n_bytes = self._saved()
        try:
            self._file: IO[bytes] = self.path.open("r+b" if n_bytes else "wb")
            self._file.truncate(n_bytes)  # a block that was not finished
            self._file.seek(n_bytes)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written ({error.strerror or error}).") from None
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def _saved(self) -> int:
        """Take over what an earlier call has finished; return its bytes."""
        if not self._journal.exists() or not self.path.exists():
            return 0
        try:
            saved = json.loads(self._journal.read_bytes())
            same = saved["identity"] == self._identity
            n_bytes, version = int(saved["bytes"]), saved["version"]
            if self.path.stat().st_size < n_bytes:
                raise ValueError
            rows, without = int(saved["rows"]), int(saved["without_labels"])
            columns, added = list(saved["columns"]), list(saved["added"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{self._journal} is damaged; delete it and {self.path} to begin again.") from None
        if self._identity is None:
            return 0  # standard input cannot be read again
        if not same:
            raise DataError(f"{self.path} was begun with another table or other options; delete it to begin again.")
        if version != self._version:
            warnings.warn(f"the model has changed since the first {rows:,} rows were tagged.", RuntimeWarning, 4)
        self.rows, self.without_labels, self._columns, self._added = rows, without, columns, added
        return n_bytes

    def begin(self, columns: list[str], has_names: bool) -> list[str]:
        """Set the columns, unless an earlier call did; return the names of those that are added."""
        if not self._columns:
            names = ["tags", "scores", *(["names"] if has_names else [])]
            taken = not set(names).isdisjoint(columns)
            self._added = [f"suggested {name}" for name in names] if taken else names
            self._columns = [*columns, *self._added]
        return self._added

    def write(self, rows: list[dict[str, Any]], without_labels: int, block: list[TableRow]) -> None:
        """Write a block of rows, and then that it is finished."""
        if self._is_json:
            lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
            self._file.write("".join(lines).encode("utf-8", "surrogatepass"))
        else:
            for row, given in zip(rows, block, strict=True):
                if new := [name for name in row if name not in self._columns]:
                    raise fault(*given.where, f"'{new[0]}' is not in the first row; write a file with .jsonl.")
            cells: dict[str, Iterable[str]] = {
                name: [self._cell(name, row.get(name)) for row in rows] for name in self._columns
            }
            table = io.BytesIO()
            delimiter = "\t" if self._target.suffix.lower() == ".tsv" else ","
            write_table(cells, table, delimiter, header=not self.rows)
            self._file.write(table.getvalue())
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows += len(rows)
        self.without_labels += without_labels
        saved = {
            "identity": self._identity, "version": self._version, "rows": self.rows, "bytes": self._file.tell(),
            "without_labels": self.without_labels, "columns": self._columns, "added": self._added,
        }  # fmt: skip
        fresh = self._journal.with_name(f"{self._journal.name}.new")
        fresh.write_text(json.dumps(saved))
        platform.sync_file(fresh)
        os.replace(fresh, self._journal)

    def _cell(self, name: str, value: Any) -> str:
        if name in self._added:
            return "|".join(map(str, value)) if name.endswith("scores") else format_labels(value)
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

    def finish(self) -> None:
        """Give the file its name."""
        self._file.close()
        os.replace(self.path, self._target)
        self._journal.unlink(missing_ok=True)
