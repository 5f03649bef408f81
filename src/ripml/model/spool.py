"""Rows on disk: blocks of features and labels, appended one after the other, then mapped as two matrices.

    journal.json                     how many blocks, rows and entries are safely there, and a checksum of them
    X.bin                            dense rows, or
    X-values.bin X-columns.bin X-ends.bin    sparse ones
    Y-columns.bin Y-ends.bin         labels

A block counts from the moment that the journal says so, and the journal is replaced in one step: a process that dies
leaves whole blocks, and the next one goes on after them. It has to be given the same blocks again, which is checked.
Nothing waits for the disk: if the machine itself goes down, the rows are written anew.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.base.workspace import DiskWorkspace, boot_id, map_file

__all__ = ["Spool"]

_FORMAT = 1


@dataclass(frozen=True)
class _Journal:
    """What is safely there."""

    format: int = _FORMAT
    about: str = ""  # what the rows were prepared for: another purpose must not go on with them
    boot: str = ""
    blocks: int = 0
    checksum: int = 0
    rows: int = 0
    unlabelled: int = 0
    entries: int = 0  # of Y
    values: int = 0  # of a sparse X
    n_features: int = 0
    n_labels: int = 0
    sparse: bool = False
    dtype: str = "float32"


class Spool:
    """The rows in a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spool = Spool(Path(folder))
    ...     for _ in range(2):
    ...         spool.append(np.ones((3, 2), np.float32), scipy.sparse.csr_array(np.eye(3)))
    ...     X, Y = spool.matrices()
    ...     X.shape, Y.shape
    ((6, 2), (6, 3))
    """

    def __init__(self, folder: Path, about: str = "") -> None:
        """Open a folder, new or with the blocks of a run that was interrupted."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._journal = self._read_journal(about)
        if not self._journal.blocks:
            self._commit(self._journal)  # the folder is ours from now on
        self._given = 0  # blocks that this run was given
        self._checksum = 0  # of them

    def _read_journal(self, about: str) -> _Journal:
        path = self.folder / "journal.json"
        if not path.exists():
            if any(self.folder.iterdir()):
                raise DataError(f"{self.folder}: this folder holds other files; choose a new or empty one to work in.")
            return _Journal(about=about, boot=boot_id())
        try:
            journal = _Journal(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: this journal cannot be read; remove the folder to begin again.") from error
        if journal.format != _FORMAT or journal.about != about:
            raise DataError(
                f"{self.folder}: the rows here were prepared for other settings ({journal.about}); remove the folder "
                "to begin again."
            )
        return journal if journal.boot == boot_id() else _Journal(about=about, boot=boot_id())

    @property
    def n_unlabelled(self) -> int:
        """Rows that were left out because they have no label."""
        return self._journal.unlabelled

    @property
    def resumed(self) -> int:
        """Blocks that were there when the folder was opened and were not given again yet."""
        return max(0, self._journal.blocks - self._given)

    def append(self, X: Any, Y: Any) -> None:
        """Add a block: X (n, d) dense or CSR, Y CSR (n, L). Sparse columns and labels may become more, never fewer.

        A block that is there already is only compared.
        """
        self._given += 1
        self._checksum = _checksum(X, Y, self._checksum)
        there = self._journal
        if self._given <= there.blocks:
            if self._given == there.blocks and self._checksum != there.checksum:
                raise DataError(
                    f"{self.folder}: the blocks here are not those given now; remove the folder to begin again."
                )
            return
        labelled = np.diff(Y.indptr) > 0
        n_unlabelled = int(len(labelled) - labelled.sum())
        if n_unlabelled:
            X, Y = X[labelled], Y[labelled]
        sparse = scipy.sparse.issparse(X)
        if there.rows:
            self._check_form(X, Y)
        else:
            there = replace(there, sparse=sparse, dtype=str(X.dtype))
        labels = self._extend("Y", there.rows, there.entries, Y)
        if sparse:
            self._write("X-values", X.data.astype(there.dtype, copy=False), there.values)
            values = self._extend("X", there.rows, there.values, X)
        else:
            self._write("X", X.astype(there.dtype, copy=False), there.rows * X.shape[1])
            values = 0
        self._commit(
            replace(
                there,
                blocks=there.blocks + 1,
                checksum=self._checksum,
                rows=there.rows + X.shape[0],
                unlabelled=there.unlabelled + n_unlabelled,
                entries=labels,
                values=values,
                n_features=X.shape[1],
                n_labels=Y.shape[1],
            )
        )

    def _check_form(self, X: Any, Y: Any) -> None:
        there = self._journal
        if scipy.sparse.issparse(X) != there.sparse:
            raise DataError(f"block {self._given} has X dense or sparse where the blocks before have it otherwise.")
        grown = X.shape[1] >= there.n_features if there.sparse else X.shape[1] == there.n_features
        if not grown:
            raise DataError(
                f"block {self._given} has {X.shape[1]} features, but the blocks before have {there.n_features}."
            )
        if Y.shape[1] < there.n_labels:
            raise DataError(
                f"block {self._given} has {Y.shape[1]} labels, but the blocks before have {there.n_labels}."
            )

    def _extend(self, name: str, n_rows: int, n_entries: int, matrix: Any) -> int:
        """Append the columns of a CSR matrix and the ends of its rows; return where the last one ends."""
        self._write(f"{name}-columns", matrix.indices.astype(np.int32), n_entries)
        self._write(f"{name}-ends", matrix.indptr[1:].astype(np.int64) + n_entries, n_rows)
        return n_entries + int(matrix.indptr[-1])

    def _write(self, name: str, array: NDArray[Any], at: int) -> None:
        """Write an array after the first `at` numbers of a file, over what a dead process left there."""
        path = self.folder / f"{name}.bin"
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(at * array.itemsize)
            file.seek(0, os.SEEK_END)
            file.write(np.ascontiguousarray(array).data)

    def _commit(self, journal: _Journal) -> None:
        path = self.folder / "journal.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(journal), indent=1))
        part.replace(path)
        self._journal = journal

    def matrices(self) -> tuple[Any, Any]:
        """X and Y of all rows, mapped from their files."""
        there = self._journal
        if self._given < there.blocks:
            raise DataError(
                f"{self.folder}: {there.blocks} blocks are here, but only {self._given} were given now; remove the "
                "folder to begin again."
            )
        Y = self._matrix("Y", there.entries, there.n_labels, None)
        if not there.sparse:
            return map_file(self.folder / "X.bin", there.dtype, (there.rows, there.n_features)), Y
        return self._matrix("X", there.values, there.n_features, there.dtype), Y

    def _matrix(self, name: str, n_entries: int, width: int, dtype: str | None) -> Any:
        """A CSR matrix; an indicator where there is no type of values."""
        ends = map_file(self.folder / f"{name}-ends.bin", np.int64, (self._journal.rows,))
        indptr = np.concatenate([np.zeros(1, np.int64), ends])
        columns = map_file(self.folder / f"{name}-columns.bin", np.int32, (n_entries,))
        workspace = DiskWorkspace(folder=self.folder)
        if dtype is None:
            values = workspace.ones(n_entries)
        else:
            values = map_file(self.folder / f"{name}-values.bin", dtype, (n_entries,))
        return workspace.csr(name, values, columns, indptr, width)


def _checksum(X: Any, Y: Any, start: int) -> int:
    arrays = (X.indptr, X.indices, X.data) if scipy.sparse.issparse(X) else (X,)
    for array in (*arrays, Y.indptr, Y.indices):
        start = zlib.crc32(np.ascontiguousarray(array).data, start)
    return start
