"""Parts of another shape: with more or fewer targets, without what was forgotten, or without any row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.model.part import KeptRows, Part
from ripml.regression import PackedSums, Sums
from ripml.regression.kernels import Linear, Rows

__all__ = ["compacted", "csr_of", "emptied", "smaller_as_sums", "wide", "widened", "with_targets"]

Ints = NDArray[np.int64]


def csr_of(data: NDArray[Any], indices: Ints, indptr: Ints, n_columns: int) -> Any:
    """A CSR matrix of these arrays. SciPy's constructor would read all numbers to see how few bits they need."""
    matrix = scipy.sparse.csr_array((len(indptr) - 1, n_columns), dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


def wide(Y: Any, n_labels: int) -> Any:
    """The same label sets where there are more labels."""
    return Y if Y.shape[1] == n_labels else csr_of(Y.data, Y.indices, Y.indptr, n_labels)


def compacted(part: Part) -> Part:
    """The same part without the places of sets and rows that were forgotten."""
    there = part.counts > 0
    if there.all() and part.alive is None:
        return part
    place = np.cumsum(there) - 1
    sets = part.sets[np.flatnonzero(there)]
    changes: dict[str, Any] = {"sets": sets, "counts": part.counts[there], "Z": part.Z[:, there], "index_arrays": ()}
    if isinstance(part.kept, KeptRows):
        changes["kept"] = KeptRows(part.kept.X, place[part.kept.set_of_row])
    if part.rows is not None:
        alive = np.flatnonzero(part.alive) if part.alive is not None else np.arange(len(part.set_of_row))
        changes |= {
            "rows": Rows(part.rows.take(alive)),
            "set_of_row": place[part.set_of_row[alive]],
            "row_numbers": part.row_numbers[alive],
            "alive": None,
        }
        if not isinstance(part.kernel, Linear):
            changes["Psi"] = part.Psi[alive]
    return replace(part, **changes)


def widened(part: Part, n_targets: int) -> Part:
    """The part with more targets, of which nothing is known yet."""
    more, kept = n_targets - part.Psi.shape[1], part.kept
    if isinstance(kept, (Sums, PackedSums)):
        kept = replace(kept, moment=np.pad(kept.moment, ((0, 0), (0, more))))
    Psi, intercept = np.pad(part.Psi, ((0, 0), (0, more))), np.pad(part.intercept, (0, more))
    return replace(part, Psi=Psi, intercept=intercept, kept=kept)


def with_targets(part: Part, kept: Ints) -> Part:
    """The part with these targets alone."""
    memory = part.kept
    if isinstance(memory, (Sums, PackedSums)):
        memory = replace(memory, moment=memory.moment[:, kept])
    return replace(part, Psi=part.Psi[:, kept], intercept=part.intercept[kept], kept=memory)


def cleared(part: Part, features: NDArray[np.bool_]) -> Part:
    """The part without what rounding left of features (d,) that no row has any more: their coefficients are zero."""
    if not isinstance(part.kernel, Linear):
        return part
    Psi, kept = part.Psi.copy(), part.kept
    Psi[features] = 0
    if isinstance(kept, (Sums, PackedSums)):
        packed = kept if isinstance(kept, PackedSums) else PackedSums.of(kept)
        kept = packed.cleared(np.pad(features, (0, len(packed.moment) - len(features))))  # the intercept's stays
    return replace(part, Psi=Psi, kept=kept).with_searchers_of(part)


def smaller_as_sums(part: Part) -> bool:
    """Whether the sums of the rows take less room than the rows."""
    assert isinstance(part.kept, KeptRows)
    X = part.kept.X
    size = 2 * X.data.nbytes if scipy.sparse.issparse(X) else X.nbytes
    n, d = X.shape
    return bool(d <= n and 8 * d * (d / 2 + part.Psi.shape[1]) < size)


def emptied(part: Part) -> Part:
    """The part without a row."""
    linear = isinstance(part.kernel, Linear)
    d, n_targets = part.Psi.shape
    nothing = np.empty(0, np.int64)
    kept: Sums | KeptRows | None = None
    if isinstance(part.kept, (Sums, PackedSums)):
        n_features = len(part.kept.moment)
        kept = Sums(np.zeros((n_features, n_features)), np.zeros((n_features, n_targets)), 0)
    elif isinstance(part.kept, KeptRows):
        kept = KeptRows(part.kept.X[:0], nothing)
    return replace(
        part,
        Psi=np.zeros((d if linear else 0, n_targets), np.float32),
        intercept=np.zeros(n_targets, np.float32),
        Z=part.Z[:, :0],
        sets=scipy.sparse.csr_array((0, part.sets.shape[1]), dtype=np.float32),
        counts=nothing,
        rows=None if part.rows is None else Rows(part.rows.X[:0]),
        set_of_row=nothing,
        row_numbers=nothing,
        kept=kept,
        index_arrays=(),
    )
