"""Parquet: a table of documents with columns for the text, its labels and perhaps an id.

The columns are those of CSV. Labels are a list of strings, or a string as in CSV; other columns are not even read.
Files are written with `text: string`, `labels: list<string>` and, if there are ids, `id: string`. This needs pyarrow,
which comes with `pip install 'ripml[parquet]'`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, Final

from ripml.base.errors import MissingExtraError
from ripml.datasets.dataset import Dataset
from ripml.datasets.documents import Cells, blocks, column_places, rows_of
from ripml.datasets.source import Source, Where, encode, fault

SUFFIXES: Final = (".parquet",)
CONTENT: Final = "texts"

_ROWS_PER_BATCH: Final = 1024
_ROWS_PER_GROUP: Final = 2**16


def recognises(source: Source) -> bool:
    """Whether the file begins with Parquet's four bytes."""
    return source.head()[:4] == b"PAR1"


def iter_blocks(
    source: Source,
    *,
    text: str | Sequence[str] = "text",
    labels: str = "labels",
    id: str = "id",
    tag_separator: str | None = None,
    label_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows, with at most a row group and a block in memory; the options are those of CSV."""
    with _opened(source) as file:
        names = file.schema_arrow.names
        places = column_places(names, (source.name, None), text, labels, id)

        def cells() -> Iterator[Cells]:
            used = [names[place] for place in (*places.texts, places.labels, places.id) if place is not None]
            for where, row in _rows(source, file, list(dict.fromkeys(used))):
                yield places.cells(where, [row.get(name) for name in names])

        rows = rows_of(source.name, cells(), has_id=places.id is not None, tag_separator=tag_separator)
        yield from blocks(source.name, rows, label_names)


def iter_table(source: Source) -> Iterator[tuple[Where, list[Any]]]:
    """Yield where a row begins and its cells, the names of the columns first."""
    with _opened(source) as file:
        names = file.schema_arrow.names
        yield (source.name, None), names
        for where, row in _rows(source, file, names):
            yield where, list(row.values())


@contextmanager
def _opened(source: Source) -> Iterator[Any]:
    """The file, opened by pyarrow, whose errors become sentences."""
    pyarrow, parquet = _import_pyarrow()
    # Parquet's directory is at the end of the file: everything but an uncompressed file on disk is read whole.
    on_disk = isinstance(source.stream.raw, io.FileIO) and os.path.isfile(source.name)
    try:
        with parquet.ParquetFile(source.name if on_disk else io.BytesIO(source.read())) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise fault(source.name, None, f"this is not a readable Parquet file ({reason}).") from None


def _rows(source: Source, file: Any, columns: list[str]) -> Iterator[tuple[Where, dict[str, Any]]]:
    number = 0
    for batch in file.iter_batches(_ROWS_PER_BATCH, columns=columns):
        lists = [batch.column(name).to_pylist() for name in columns]
        for cells in zip(*lists, strict=True):
            yield (f"{source.name}: row {number}", None), dict(zip(columns, cells, strict=True))
            number += 1


def write_blocks(blocks: Iterable[Dataset], file: IO[bytes]) -> None:
    """Write texts, labels and ids, with at least one row group for each block."""
    pyarrow, parquet = _import_pyarrow()
    with ExitStack() as stack:
        writer: Any = None
        for block in blocks:
            table = _table(block, pyarrow)
            if writer is None:
                writer = stack.enter_context(parquet.ParquetWriter(file, table.schema))
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)


def _table(dataset: Dataset, pyarrow: Any) -> Any:
    texts = dataset.texts or []
    labels = [dataset.row_labels(row) for row in range(len(texts))]
    for row, text in enumerate(texts):
        encode("".join((text, *labels[row])), row)  # raises where pyarrow's message would not name the row
    columns: dict[str, Any] = {} if dataset.ids is None else {"id": pyarrow.array(dataset.ids, pyarrow.string())}
    columns["text"] = pyarrow.array(texts, pyarrow.string())
    columns["labels"] = pyarrow.array(labels, pyarrow.list_(pyarrow.string()))
    return pyarrow.table(columns)


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet
