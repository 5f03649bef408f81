"""Parquet: a table of documents with columns for the text, its labels and perhaps an id.

The columns are those of CSV. Labels are a list of strings, or a string as in CSV; other columns are left alone and not
even read. `write` makes `text: string`, `labels: list<string>` and, where there are ids, `id: string`. pyarrow does the
work; it comes with `pip install 'ripml[parquet]'`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from ripml.base.errors import MissingExtraError
from ripml.datasets.dataset import Dataset, join
from ripml.datasets.records import Row, blocks, column_places, encoded, names_of_row, row_of
from ripml.datasets.source import Source, fault

__all__ = ["iter_blocks", "read", "write"]

_ROWS_PER_BATCH: Final = 1024
_ROWS_PER_GROUP: Final = 2**16


def read(
    source: Source,
    *,
    text: str = "text",
    labels: str = "labels",
    id: str = "id",
    label_names: Iterable[str] | None = None,
) -> Dataset:
    """Read all rows; the options are those of CSV."""
    return join(iter_blocks(source, text=text, labels=labels, id=id, label_names=label_names))


def iter_blocks(
    source: Source,
    *,
    text: str = "text",
    labels: str = "labels",
    id: str = "id",
    label_names: Iterable[str] | None = None,
) -> Iterator[Dataset]:
    """Yield blocks of rows, with no more than a row group and a block in memory; the rest is as in CSV."""
    return blocks(source.name, _rows(source, text, labels, id), label_names)


def _rows(source: Source, text: str, labels: str, id: str) -> Iterator[Row]:
    pyarrow, parquet = _pyarrow()
    # The end of the file says where everything is: all but a plain file is read whole.
    plain = isinstance(source.stream.raw, io.FileIO) and os.path.isfile(source.name)
    try:
        file = parquet.ParquetFile(source.name if plain else io.BytesIO(source.read()))
        names = file.schema_arrow.names
        places = column_places(names, (source.name, None), text, labels, id)
        columns = [None if place is None else names[place] for place in places]
        at = 0
        for batch in file.iter_batches(_ROWS_PER_BATCH, columns=[name for name in columns if name is not None]):
            lists = [[None] * len(batch) if name is None else batch.column(name).to_pylist() for name in columns]
            for cells in zip(*lists, strict=True):
                yield row_of((f"{source.name}: row {at}", None), *cells, has_id=columns[2] is not None)
                at += 1
        file.close()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise fault(source.name, None, f"this is not Parquet that can be read ({reason}).") from None


def write(dataset: Dataset, file: IO[bytes]) -> None:
    """Write texts, labels and ids; features have no place in this format."""
    pyarrow, parquet = _pyarrow()
    texts = dataset.texts or []
    names = [names_of_row(dataset, row) for row in range(len(texts))]
    columns: dict[str, list[Any]] = {} if dataset.ids is None else {"id": dataset.ids}
    for row, text in enumerate(texts):
        encoded("".join((text, *names[row])), row)
    columns |= {"text": texts, "labels": names}
    kinds = {"id": pyarrow.string(), "text": pyarrow.string(), "labels": pyarrow.list_(pyarrow.string())}
    table = pyarrow.table({name: pyarrow.array(values, kinds[name]) for name, values in columns.items()})
    parquet.write_table(table, file, row_group_size=_ROWS_PER_GROUP)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet
