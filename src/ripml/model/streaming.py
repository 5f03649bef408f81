"""Rows that pass by in blocks: files that hold more rows than memory, and the passes that embed and sum them.

Rows on disk are blocks of features and labels, appended one after the other, then mapped as two matrices:

    journal.json                     how many blocks, rows and entries are complete, and a checksum of them
    X.bin                            dense rows, or
    X-values.bin X-columns.bin X-ends.bin    sparse ones
    Y-columns.bin Y-ends.bin         labels
    evidence-signals.bin evidence-labels.bin evidence-ends.bin    what texts say of labels by their names

A block counts from the moment that the journal says so, and the journal is replaced in one step: a process that dies
leaves whole blocks, and the next one goes on after them. It has to be given the same blocks again, which is checked.
Nothing waits for the disk: if the machine itself goes down, the rows are written again.

The label sets of all clusters lie end to end: a set that rows of two clusters carry is in the list twice. What ridge
regression remembers of a cluster is a sum over its rows, so a pass needs a block of rows at a time and nothing of the
rows before. The same passes run over arrays in memory and over files.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import IndexedEmbedding
from ripml.base.workspace import DiskWorkspace, Workspace, boot_id, map_file, release, row_slice
from ripml.decoding.evidence import TEXT_SIGNALS, Evidence, FeatureRows, apart
from ripml.labels.label_sets import LabelSets
from ripml.labels.projection import Embedder, Projection
from ripml.regression import Sums

__all__ = ["ClusterSets", "RowFiles", "embed_and_sum", "sums_by_cluster"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

_FORMAT = 1
_ROW_BLOCK = 65536  # rows of a block, or fewer where memory is short


# --------------------------------------------------------------------------------------------------------- rows on disk


@dataclass(frozen=True)
class _Journal:
    """What is complete."""

    format: int = _FORMAT
    about: str = ""  # what the rows were prepared for: rows prepared for another purpose cannot be used
    boot: str = ""
    blocks: int = 0
    checksum: int = 0
    rows: int = 0
    unlabelled: int = 0
    entries: int = 0  # of Y
    values: int = 0  # of a sparse X
    pairs: int = 0  # of rows and labels that evidence speaks of
    n_features: int = 0
    n_labels: int = 0
    sparse: bool = False
    dtype: str = "float32"


class RowFiles:
    """The rows in a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = RowFiles(Path(folder))
    ...     for _ in range(2):
    ...         files.append(np.ones((3, 2), np.float32), scipy.sparse.csr_array(np.eye(3)))
    ...     X, Y = files.matrices()
    ...     X.shape, Y.shape
    ((6, 2), (6, 3))
    """

    def __init__(self, folder: Path, about: str = "") -> None:
        """Open a folder, new or with the blocks of a run that was interrupted."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._journal = self._read_journal(about)
        if not self._journal.blocks:
            self._commit(self._journal)  # the folder belongs to this run from now on
        self._n_given = 0  # blocks that this run was given
        self._unseen: Sequence[str] | None = None  # labels that evidence alone speaks of; None without evidence
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
        """Blocks of an earlier run that were not given again yet."""
        return max(0, self._journal.blocks - self._n_given)

    def append(self, X: Any, Y: Any) -> None:
        """Add a block: X (n, d) dense or CSR, perhaps with evidence, Y CSR (n, L).

        Later blocks may have more sparse columns and labels, never fewer. A block that an earlier run wrote is only
        compared.
        """
        self._n_given += 1
        self._unseen = X.unseen if isinstance(X, FeatureRows) else None
        X, evidence = apart(X)
        self._checksum = _checksum(X, Y, self._checksum, evidence)
        journal = self._journal
        if self._n_given <= journal.blocks:
            if self._n_given == journal.blocks and self._checksum != journal.checksum:
                raise DataError(
                    f"{self.folder}: the blocks here are not those given now; remove the folder to begin again."
                )
            return
        labelled = np.diff(Y.indptr) > 0
        n_unlabelled = int(len(labelled) - labelled.sum())
        if n_unlabelled:
            X, Y = X[labelled], Y[labelled]
            evidence = None if evidence is None else evidence[labelled]
        sparse = scipy.sparse.issparse(X)
        if journal.rows:
            self._check_form(X, Y)
        else:
            journal = replace(journal, sparse=sparse, dtype=str(X.dtype))
        labels = self._extend("Y", journal.rows, journal.entries, Y)
        if evidence is not None:
            self._write("evidence-signals", evidence.signals, journal.pairs * len(TEXT_SIGNALS))
            self._write("evidence-labels", evidence.labels.astype(np.int64), journal.pairs)
            self._write("evidence-ends", evidence.ends[1:].astype(np.int64) + journal.pairs, journal.rows)
        if sparse:
            self._write("X-values", X.data.astype(journal.dtype, copy=False), journal.values)
            values = self._extend("X", journal.rows, journal.values, X)
        else:
            self._write("X", X.astype(journal.dtype, copy=False), journal.rows * X.shape[1])
            values = 0
        self._commit(
            replace(
                journal,
                blocks=journal.blocks + 1,
                checksum=self._checksum,
                rows=journal.rows + X.shape[0],
                unlabelled=journal.unlabelled + n_unlabelled,
                entries=labels,
                values=values,
                pairs=journal.pairs + (0 if evidence is None else int(evidence.ends[-1])),
                n_features=X.shape[1],
                n_labels=Y.shape[1],
            )
        )

    def _check_form(self, X: Any, Y: Any) -> None:
        journal = self._journal
        if scipy.sparse.issparse(X) != journal.sparse:
            raise DataError(
                f"block {self._n_given} has X dense where the blocks before have it sparse, or the reverse."
            )
        grown = X.shape[1] >= journal.n_features if journal.sparse else X.shape[1] == journal.n_features
        if not grown:
            raise DataError(
                f"block {self._n_given} has {X.shape[1]} features, but the blocks before have {journal.n_features}."
            )
        if Y.shape[1] < journal.n_labels:
            raise DataError(
                f"block {self._n_given} has {Y.shape[1]} labels, but the blocks before have {journal.n_labels}."
            )

    def _extend(self, name: str, n_rows: int, n_entries: int, matrix: Any) -> int:
        """Append the columns of a CSR matrix and the ends of its rows; return where the last one ends."""
        self._write(f"{name}-columns", matrix.indices.astype(np.int32), n_entries)
        self._write(f"{name}-ends", matrix.indptr[1:].astype(np.int64) + n_entries, n_rows)
        return n_entries + int(matrix.indptr[-1])

    def _write(self, name: str, array: NDArray[Any], at: int) -> None:
        """Write an array after the first `at` numbers of a file, over what an interrupted run left behind."""
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
        journal = self._journal
        if self._n_given < journal.blocks:
            raise DataError(
                f"{self.folder}: {journal.blocks} blocks are here, but only {self._n_given} were given now; remove the "
                "folder to begin again."
            )
        Y = self._matrix("Y", journal.entries, journal.n_labels, None)
        if not journal.sparse:
            X: Any = map_file(self.folder / "X.bin", journal.dtype, (journal.rows, journal.n_features))
        else:
            X = self._matrix("X", journal.values, journal.n_features, journal.dtype)
        return X if self._unseen is None else FeatureRows(X, self._evidence(), self._unseen), Y

    def _evidence(self) -> Evidence:
        journal = self._journal
        ends = map_file(self.folder / "evidence-ends.bin", np.int64, (journal.rows,))
        labels = map_file(self.folder / "evidence-labels.bin", np.int64, (journal.pairs,))
        shape = (journal.pairs, len(TEXT_SIGNALS))
        signals = map_file(self.folder / "evidence-signals.bin", np.float32, shape)
        return Evidence(np.concatenate([np.zeros(1, np.int64), ends]), labels, signals)

    def _matrix(self, name: str, n_entries: int, width: int, dtype: str | None) -> Any:
        """A CSR matrix; an indicator if `dtype` is None."""
        ends = map_file(self.folder / f"{name}-ends.bin", np.int64, (self._journal.rows,))
        indptr = np.concatenate([np.zeros(1, np.int64), ends])
        columns = map_file(self.folder / f"{name}-columns.bin", np.int32, (n_entries,))
        workspace = DiskWorkspace(folder=self.folder)
        if dtype is None:
            values = workspace.ones(n_entries)
        else:
            values = map_file(self.folder / f"{name}-values.bin", dtype, (n_entries,))
        return workspace.csr(name, values, columns, indptr, width)


def _checksum(X: Any, Y: Any, start: int, evidence: Evidence | None = None) -> int:
    arrays = (X.indptr, X.indices, X.data) if scipy.sparse.issparse(X) else (X,)
    said = () if evidence is None else (evidence.ends, evidence.labels, evidence.signals)
    for array in (*arrays, Y.indptr, Y.indices, *said):
        start = zlib.crc32(np.ascontiguousarray(array).data, start)
    return start


# -------------------------------------------------------------------------------------------------------------- passes


@dataclass(frozen=True)
class ClusterSets:
    """The label sets of all clusters, end to end."""

    first: Ints  # (e,) a row that carries the set
    counts: Ints  # (e,) rows of the cluster that do
    of_row: Ints  # (n,)
    ends: Ints  # (C + 1,) where each cluster starts, and the end

    @classmethod
    def of(cls, sets: LabelSets, cluster: Ints, n_clusters: int) -> ClusterSets:
        """Those of rows in these clusters (n,)."""
        u = len(sets.first)
        if n_clusters == 1:
            return cls(sets.first, sets.counts, sets.of_row, np.array([0, u]))
        pairs, of_row, counts = np.unique(cluster * u + sets.of_row, return_inverse=True, return_counts=True)
        return cls(sets.first[pairs % u], counts, of_row, np.searchsorted(pairs, np.arange(n_clusters + 1) * u))


def embed_and_sum(
    X: Any,
    Y: Any,
    labels: Any,
    projection: Projection,
    keys: Keys,
    counts: Ints,
    cluster_sets: ClusterSets,
    cluster: Ints,
    summed: Sequence[bool],
    Z: Floats,
    workspace: Workspace,
    n_jobs: int | None,
) -> list[Sums | None]:
    """Write the embeddings of the label sets, CSR (e, L), to Z (F, e, m), and return the sums of clusters `summed`.

    `counts` (L,) is how often each label occurs. Where the columns of all learners do not fit into memory together,
    learners are processed one by one. In memory, rows take their embeddings from Z; in files, where that would mean
    random reads, they are embedded once more in their order. The workspace keeps the sums so far, so that a pass that
    was interrupted goes on from its last block.
    """
    n_learners, e, m = Z.shape
    together = 4 * int(np.count_nonzero(counts)) * n_learners * m <= workspace.table_bytes
    groups = [range(n_learners)] if together else [range(f, f + 1) for f in range(n_learners)]
    sums: list[Sums | None] = []
    for group in groups:
        some = projection if together else projection.learner(group.start)
        embedder = Embedder(some, keys, counts, workspace.table_bytes, n_jobs)
        at = [f"embeddings-{group.start}", str(some), list(Z.shape)]
        if workspace.load_checkpoint(at) is None:
            for rows in blocks(e, workspace.rows_per_block(4 * len(group) * m, _ROW_BLOCK)):
                embedder.fill(Z[group.start : group.stop, rows], row_slice(labels, rows))
                release(*Z[group.start : group.stop, rows], labels.indices, labels.data)
            workspace.save_checkpoint(at, {})
        if not workspace.in_memory:
            at = [f"sums-{group.start}", str(some), *X.shape, e, list(summed)]
            made = _Rows(Y, embedder, len(group) * m)
            sums = _side_by_side(sums, _sum_rows(X, made, cluster, summed, at, workspace, n_jobs, gram=not sums))
            del made
        del embedder  # and its table, before the next one is made
        workspace.trim_memory()
    if workspace.in_memory:
        sums = _sum_rows(X, IndexedEmbedding(Z, cluster_sets.of_row), cluster, summed, ["sums"], workspace, n_jobs)
    return sums


@dataclass(frozen=True)
class _Rows:
    """Embeddings of rows, made from their labels block by block."""

    Y: Any
    embedder: Embedder
    n_targets: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.Y.shape[0], self.n_targets

    def __getitem__(self, rows: slice) -> Floats:
        z = np.empty((rows.stop - rows.start, self.n_targets), np.float32)
        self.embedder.fill(z, row_slice(self.Y, rows))
        release(self.Y.indices)
        return z


def _side_by_side(left: Sequence[Sums | None], right: Sequence[Sums | None]) -> list[Sums | None]:
    """The sums of some targets and of further ones of the same rows."""
    return [
        one if other is None else other if one is None
        else Sums(one.gram, np.hstack([one.moment, other.moment]), one.n_rows)
        for one, other in zip(left or [None] * len(right), right, strict=True)
    ]  # fmt: skip


def _sum_rows(
    X: Any,
    Z: Any,
    cluster: Ints,
    summed: Sequence[bool],
    at: list[Any],
    workspace: Workspace,
    n_jobs: int | None,
    gram: bool = True,
) -> list[Sums | None]:
    """The sums of each cluster that is `summed`, of rows of X and of Z (n, M), with or without XᵀX."""
    if not any(summed):
        return [None] * len(summed)
    d, n_targets = X.shape[1], Z.shape[1]
    height = workspace.rows_per_block(12 * (n_targets + (0 if scipy.sparse.issparse(X) else d)), _ROW_BLOCK)
    at = [*at, height]
    done, totals = _kept_sums(workspace, at, len(summed))
    # Sums are kept as often as they are no larger than what they sum.
    often = -(-(8 * d * (d + n_targets) * len(summed)) // (4 * height * (n_targets + d)))
    n_blocks = -(-X.shape[0] // height)
    for number, rows in enumerate(blocks(X.shape[0], height), 1):
        if number <= done:
            continue
        more = sums_by_cluster(X[rows], Z[rows], cluster[rows], summed, n_jobs, gram)
        totals = [_added(total, one) for total, one in zip(totals, more, strict=True)]
        release(*((X[rows],) if isinstance(X, np.ndarray) else (X.data, X.indices)))
        if number % often == 0 or number == n_blocks:
            _keep_sums(workspace, at, number, totals)
    return totals


def _added(total: Sums | None, more: Sums | None) -> Sums | None:
    if total is None or more is None:
        return total if more is None else more
    total += more
    return total


def _kept_sums(workspace: Workspace, at: list[Any], n: int) -> tuple[int, list[Sums | None]]:
    kept = workspace.load_checkpoint(at)
    if kept is None:
        return 0, [None] * n
    rows = kept["rows"]
    sums = [Sums(kept[f"gram{c}"], kept[f"moment{c}"], int(rows[c])) if rows[c] else None for c in range(n)]
    return int(kept["blocks"]), sums


def _keep_sums(workspace: Workspace, at: list[Any], n_blocks: int, sums: Sequence[Sums | None]) -> None:
    arrays = {"blocks": np.array(n_blocks), "rows": np.array([0 if s is None else s.n_rows for s in sums])}
    for c, one in enumerate(sums):
        if one is not None:
            arrays |= {f"gram{c}": one.gram, f"moment{c}": one.moment}
    workspace.save_checkpoint(at, arrays)


def sums_by_cluster(
    X: Any, Z: Any, cluster: Ints, summed: Sequence[bool], n_jobs: int | None, gram: bool = True
) -> list[Sums | None]:
    """The sums of the rows of each cluster that is `summed`, with or without XᵀX; None where there is no such row."""
    if len(summed) == 1:
        return [Sums.of(X, Z, n_jobs, gram=gram) if summed[0] else None]

    def of_cluster(c: int) -> Sums | None:
        rows = np.flatnonzero(cluster == c)
        return Sums.of(X[rows], Z[rows], 1, gram=gram) if summed[c] and len(rows) else None

    return map_blocks(of_cluster, range(len(summed)), n_jobs)
