"""Labels ↦ their columns of Phi, and what an embedding says of every label: ⟨Φ_l, ẑ⟩."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import Growing
from ripml.labels.ensembles import Projection

__all__ = ["LabelVectors"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_TABLE_BYTES = 1 << 30
_LABELS_AT_A_TIME = 512


@dataclass(frozen=True)
class LabelVectors:
    """Labels ↦ their columns of Phi: out of a table where that fits into a gigabyte, else made anew."""

    projection: Projection
    keys: NDArray[np.uint64]
    _growing: Growing | None = field(default=None, repr=False, compare=False)  # what `table` is the start of

    @cached_property
    def table(self) -> Floats | None:
        """The columns of all labels, (L, M)."""
        size = 4 * len(self.keys) * self.projection.n_dims * self.projection.n_learners
        return self.projection.columns(self.keys) if size <= _TABLE_BYTES else None

    def __call__(self, labels: Ints | slice) -> Floats:
        """The columns of these labels."""
        if self.table is not None:
            return self.table[labels]
        used, place = np.unique(np.arange(len(self.keys))[labels], return_inverse=True)
        return self.projection.columns(self.keys[used])[place]

    @cached_property
    def _last(self) -> Floats:
        """The columns of the last labels, filled up with zeros."""
        rest = len(self.keys) % _LABELS_AT_A_TIME
        last = np.zeros((_LABELS_AT_A_TIME, self.projection.n_learners * self.projection.n_dims), np.float32)
        last[:rest] = self(slice(len(self.keys) - rest, len(self.keys)))
        return last

    def values(self, Z: Floats) -> Floats:
        """⟨Φ_l, ẑ⟩ of all labels, (n, L).

        Always by blocks of as many labels: the last bits of a product depend on the shape of its factors, and those of
        one label must not depend on how many others there are.
        """
        L = len(self.keys)
        out = np.empty((len(Z), -(-L // _LABELS_AT_A_TIME) * _LABELS_AT_A_TIME), np.float32)
        for start in range(0, L, _LABELS_AT_A_TIME):
            whole = start + _LABELS_AT_A_TIME <= L
            columns = self(slice(start, start + _LABELS_AT_A_TIME)) if whole else self._last
            np.matmul(Z, columns.T, out=out[:, start : start + _LABELS_AT_A_TIME])
        return out[:, :L]

    def extended(self, keys: NDArray[np.uint64]) -> LabelVectors:
        """For more labels, of these keys; those of this one come first."""
        table = vars(self).get("table")
        if table is None:
            return LabelVectors(self.projection, keys)
        growing = self._growing
        if growing is None or len(growing.view) > len(table):  # others came of this one before
            growing = Growing(table)
        more = LabelVectors(self.projection, keys, growing)
        vars(more)["table"] = growing.append(self.projection.columns(keys[len(table) :]))
        return more
