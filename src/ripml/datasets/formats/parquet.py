"""Parquet: a table of documents with columns for the text, its labels and perhaps an id.

The columns are those of CSV. Labels are a list of strings, or a string as in CSV; other columns are not even read.
Files are written with `text: string`, `labels: list<string>` and, if there are ids, `id: string`. This needs pyarrow,
which comes with `pip install 'ripml[parquet]'`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Any, Final

from ripml.base.errors import MissingExtraError
from ripml.datasets.dataset import Dataset
from ripml.datasets.documents import Row, blocks, column_places, row_of
from ripml.datasets.source import Source, encode, fault

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
    text: str = "text",
    labels: str = "labels",
    id: str = "id",
    label_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows, with at most a row group and a block in memory; the options are those of CSV."""
    return blocks(source.name, _rows(source, text, labels, id), label_names)


def _rows(source: Source, text: str, labels: str, id: str) -> Iterator[Row]:
    pyarrow, parquet = _import_pyarrow()
    # Parquet's directory is at the end of the file: everything but an uncompressed file on disk is read whole.
    on_disk = isinstance(source.stream.raw, io.FileIO) and os.path.isfile(source.name)
    try:
        file = parquet.ParquetFile(source.name if on_disk else io.BytesIO(source.read()))
        names = file.schema_arrow.names
        places = column_places(names, (source.name, None), text, labels, id)
        columns = [None if place is None else names[place] for place in places]
        number = 0
        for batch in file.iter_batches(_ROWS_PER_BATCH, columns=[name for name in columns if name is not None]):
            lists = [[None] * len(batch) if name is None else batch.column(name).to_pylist() for name in columns]
            for cells in zip(*lists, strict=True):
                yield row_of((f"{source.name}: row {number}", None), *cells, has_id=columns[2] is not None)
                number += 1
        file.close()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise fault(source.name, None, f"this is not a readable Parquet file ({reason}).") from None


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
