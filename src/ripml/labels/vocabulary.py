"""Vocabulary: the labels of a model, which can be added, renamed, retired and removed.

A label's *key* is computed from its first name (see `label_keys`), and its column of Phi depends on the key alone. So
adding a label leaves all other columns as they are, and a renamed label keeps its column. In ensembles of a fixed size
a column is chosen by a *slot*, a number that no two labels share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec, check_arrays
from ripml.base.errors import DataError
from ripml.labels.encoding import (
    check_one_kind,
    encode_labels,
    indicator_of,
    label_keys,
    label_name,
    names_array,
    names_from_arrays,
    names_to_arrays,
)
from ripml.labels.encoding import names_of_rows as labels_of_rows
from ripml.labels.ensembles import Ensemble

__all__ = ["Vocabulary"]

Ints = NDArray[np.int64]
Names = NDArray[Any]


@dataclass(frozen=True)
class Vocabulary:
    """L labels in the order of their columns. Changes return a new vocabulary.

    >>> labels = Vocabulary.of(np.array([3, 5])).added([8]).renamed(5, 7)
    >>> labels.names.tolist(), labels.keys.tolist()
    ([3, 7, 8], [3, 5, 8])
    """

    names: Names  # (L,) int64, or object holding str
    keys: NDArray[np.uint64]  # (L,)
    slots: NDArray[np.uint64]  # (L,)
    retired: NDArray[np.bool_]  # (L,) labels that are no longer suggested
    # Name → column, shared with the vocabularies made by `added`: columns from L on belong to those.
    _columns: dict[Any, int] = field(repr=False, compare=False)

    @classmethod
    def of(cls, names: Names) -> Vocabulary:
        """The labels of a fit, with the keys of their names and slots 0 … L − 1."""
        slots = np.arange(len(names), dtype=np.uint64)
        return cls(names, label_keys(names), slots, np.zeros(len(names), bool), _columns_of(names))

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: Any) -> bool:
        return self._columns.get(name, len(self)) < len(self)

    def column_of(self, name: Any) -> int:
        """The column of a label."""
        if not isinstance(name, (str, int, np.integer)) or name not in self:
            raise DataError(f"the model has no label {name!r}.")
        return self._columns[name]

    def column_keys(self, ensemble: Ensemble, n_dims: int) -> NDArray[np.uint64]:
        """What selects each label's column of Phi: its key, or its slot in an ensemble of a fixed size."""
        return self.keys if ensemble.capacity(n_dims) is None else self.slots

    def added(self, names: Sequence[Any], keys: Sequence[int] | None = None) -> Vocabulary:
        """With more labels at the end, optionally with these keys."""
        if isinstance(names, str):
            raise DataError(f"a list of label names is needed; got the string {names!r}.")
        names = [label_name(name) for name in names]
        if not names:
            return self
        check_one_kind(names, self.names[:1])
        if any(name in self for name in names) or len(set(names)) < len(names):
            duplicate = next(name for i, name in enumerate(names) if name in self or name in names[:i])
            raise DataError(f"the label {duplicate!r} already exists.")
        more = names_array(list(names)) if len(self) == 0 or self.names.dtype == object else np.array(names, np.int64)
        free = np.arange(len(self), len(self) + len(more), dtype=np.uint64)
        if len(self) and int(self.slots.max()) >= len(self):  # labels were removed, and their slots are free
            free = np.setdiff1d(np.arange(len(self) + len(more), dtype=np.uint64), self.slots)[: len(more)]
        columns = self._columns
        if len(columns) > len(self):  # another vocabulary made from this one uses the columns behind it
            columns = _columns_of(self.names)
        columns.update({name: len(self) + i for i, name in enumerate(more.tolist())})
        return replace(
            self,
            names=np.concatenate([self.names, more]) if len(self) else more,
            keys=np.concatenate([self.keys, self._new_keys(more) if keys is None else self._checked(keys, len(more))]),
            slots=np.concatenate([self.slots, free]),
            retired=np.concatenate([self.retired, np.zeros(len(more), bool)]),
            _columns=columns,
        )

    def _new_keys(self, names: Names) -> NDArray[np.uint64]:
        """The keys of names; where a renamed label has that key already, the hash of the name and a number."""
        keys = label_keys(names)
        for i in np.flatnonzero(np.isin(keys, self.keys)):
            attempt = 1
            while (keys[i] in self.keys) or (keys[i] in keys[:i]):
                text = f"{names[i]}\0{attempt}".encode("utf-8", "surrogatepass")
                keys[i] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
                attempt += 1
        return keys

    def _checked(self, keys: Sequence[int], n: int) -> NDArray[np.uint64]:
        found = np.array(keys, np.uint64)
        if found.shape != (n,) or len(np.unique(found)) < n or np.isin(found, self.keys).any():
            raise DataError(f"{n} new labels need {n} different keys that no other label has.")
        return found

    def renamed(self, old: Any, new: Any) -> Vocabulary:
        """With another name for one label."""
        column, new = self.column_of(old), label_name(new)
        check_one_kind([new], self.names[:1])
        if new in self:
            raise DataError(f"the label {new!r} already exists; relabel rows to merge labels.")
        names = self.names.copy()
        names[column] = new
        return replace(self, names=names, _columns=_columns_of(names))

    def with_retired(self, name: Any, retired: bool) -> Vocabulary:
        """With one label retired, or no longer retired."""
        flags = self.retired.copy()
        flags[self.column_of(name)] = retired
        return replace(self, retired=flags)

    def kept(self, columns: Ints) -> Vocabulary:
        """Only the labels of these columns, in this order."""
        names = self.names[columns]
        return Vocabulary(names, self.keys[columns], self.slots[columns], self.retired[columns], _columns_of(names))

    def encode(self, Y: Any) -> tuple[Any, Vocabulary]:
        """Y, in any form that `RIPML.fit` takes, as a CSR indicator (n, L), and the vocabulary with new labels added.

        An indicator has one column per label, in their order; where labels are named 0, 1, …, more columns are new
        labels.
        """
        if getattr(Y, "ndim", 1) == 2 and not hasattr(Y, "columns"):
            indicator, names = encode_labels(Y)
            numbered = np.array_equal(self.names, np.arange(len(self)))
            if len(names) < len(self) or (len(names) > len(self) and not numbered):
                raise DataError(f"Y has {len(names)} columns, but the model knows {len(self)} labels.")
            return indicator, self.added(list(range(len(self), len(names))))
        if hasattr(Y, "columns"):
            indicator, merged = encode_labels(Y, known=self.names)
            return indicator, self.added(merged[len(self) :].tolist())
        rows = labels_of_rows(Y)
        found = set().union(*rows) if rows else set()
        grown = self.added(sorted(name for name in found if name not in self))
        return indicator_of(rows, grown._columns, len(grown)), grown

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays: names, and the other arrays where they differ from those of a fit."""
        arrays = names_to_arrays(self.names)
        if not np.array_equal(self.keys, label_keys(self.names)):
            arrays["label_keys"] = self.keys
        if not np.array_equal(self.slots, np.arange(len(self), dtype=np.uint64)):
            arrays["label_slots"] = self.slots
        if self.retired.any():
            arrays["label_retired"] = self.retired
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Vocabulary:
        """The inverse of `arrays`; ValueError for arrays that do not come from there."""
        fitted = cls.of(names_from_arrays(arrays))
        if len(fitted._columns) < len(fitted):
            raise ValueError("the array 'names' has the same label twice")
        unique = ArraySpec("uint64", ("L",), distinct=True, optional=True)
        flags = ArraySpec("bool", ("L",), optional=True)
        specs = {"label_keys": unique, "label_slots": unique, "label_retired": flags}
        checked = check_arrays(specs, arrays, {"L": len(fitted)})
        # Copies, so that the vocabulary does not hold files open.
        values: dict[str, Any] = {name.removeprefix("label_"): np.array(array) for name, array in checked.items()}
        return replace(fitted, **values)


def _columns_of(names: Names) -> dict[Any, int]:
    return {name: column for column, name in enumerate(names.tolist())}
