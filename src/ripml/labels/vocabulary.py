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
    check_indicator,
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

_FEW = 16  # numbers that are looked for one by one
_MANY = 10_000  # names whose keys are stored rather than computed when a model is loaded


@dataclass(frozen=True)
class Vocabulary:
    """L labels in the order of their columns. Changes return a new vocabulary.

    >>> labels = Vocabulary.of(np.array([3, 5])).added([8]).renamed(5, 7)
    >>> labels.names.tolist(), labels.keys.tolist()
    ([3, 7, 8], [3, 5, 8])
    """

    names: Names  # (L,) int64, or object holding str; None for a label that is about to be removed
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

    def free_slots(self, n: int) -> NDArray[np.uint64]:
        """The slots of the next n labels: those of removed labels first."""
        if len(self) and int(self.slots.max()) >= len(self):  # labels were removed, and their slots are free
            return np.setdiff1d(np.arange(len(self) + n, dtype=np.uint64), self.slots)[:n]
        return np.arange(len(self), len(self) + n, dtype=np.uint64)

    def added(
        self, names: Sequence[Any], keys: Sequence[int] | None = None, slots: Sequence[int] | None = None
    ) -> Vocabulary:
        """With more labels at the end, optionally with these keys and slots."""
        if isinstance(names, str):
            raise DataError(f"a list of label names is needed; got the string {names!r}.")
        names = [label_name(name) for name in names]
        if not names:
            return self
        check_one_kind(names, self._first_name())
        if any(name in self for name in names) or len(set(names)) < len(names):
            duplicate = next(name for i, name in enumerate(names) if name in self or name in names[:i])
            raise DataError(f"the label {duplicate!r} already exists.")
        more = names_array(list(names)) if len(self) == 0 or self.names.dtype == object else np.array(names, np.int64)
        free = self.free_slots(len(more)) if slots is None else self._checked("slots", slots, self.slots, len(more))
        new_keys = self._new_keys(more) if keys is None else self._checked("keys", keys, self.keys, len(more))
        columns = self._columns
        if len(columns) > len(self):  # another vocabulary made from this one uses the columns behind it
            columns = _columns_of(self.names)
        columns.update({name: len(self) + i for i, name in enumerate(more.tolist())})
        return replace(
            self,
            names=np.concatenate([self.names, more]) if len(self) else more,
            keys=np.concatenate([self.keys, new_keys]),
            slots=np.concatenate([self.slots, free]),
            retired=np.concatenate([self.retired, np.zeros(len(more), bool)]),
            _columns=columns,
        )

    def _new_keys(self, names: Names) -> NDArray[np.uint64]:
        """The keys of names; where a renamed label has that key already, the hash of the name and a number."""
        keys = label_keys(names)
        for i in np.flatnonzero(_among(keys, self.keys)):
            attempt = 1
            while (keys[i] in self.keys) or (keys[i] in keys[:i]):
                text = f"{names[i]}\0{attempt}".encode("utf-8", "surrogatepass")
                keys[i] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
                attempt += 1
        return keys

    @staticmethod
    def _checked(what: str, given: Sequence[int], taken: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
        found = np.array(given, np.uint64)
        if found.shape != (n,) or len(set(found.tolist())) < n or _among(found, taken).any():
            raise DataError(f"{n} new labels need {n} different {what} that no other label has.")
        return found

    def _first_name(self) -> list[Any]:
        """A name that says whether names are strings or integers."""
        return next(([name] for name in self.names if name is not None), [])

    def renamed(self, old: Any, new: Any) -> Vocabulary:
        """With another name for one label."""
        column, name = self.column_of(old), label_name(new)
        check_one_kind([name], self._first_name())
        return self.with_names({column: name})

    def with_names(self, names: Mapping[int, Any]) -> Vocabulary:
        """With other names, column ↦ name, all of them at once; None for a label that is about to be removed.

        >>> Vocabulary.of(np.array([3, 5])).with_names({0: 5, 1: 3}).names.tolist()
        [5, 3]
        """
        if not names:
            return self
        changed = self.names.copy()
        for column, name in names.items():
            changed[column] = name
        columns = self._columns.copy() if len(self._columns) == len(self) else _columns_of(self.names)
        for column in names:
            del columns[_entry(self.names[column], column)]
        for column, name in names.items():
            if columns.setdefault(_entry(name, column), column) != column:
                raise DataError(f"the label {name!r} already exists; relabel rows to merge labels.")
        return replace(self, names=changed, _columns=columns)

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
            if Y.shape[1] == len(self):
                return check_indicator(Y, "a two-dimensional Y"), self
            indicator, names = encode_labels(Y)
            numbered = np.array_equal(self.names, np.arange(len(self)))
            if len(names) < len(self) or not numbered:
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
        """As plain arrays: names, and the other arrays where they differ from those of a fit.

        The keys of many names are always stored: hashing a million of them would add seconds to loading.
        """
        arrays = names_to_arrays(self.names)
        hashed = self.names.dtype == object
        if (hashed and len(self) > _MANY) or not np.array_equal(self.keys, label_keys(self.names)):
            arrays["label_keys"] = self.keys
        if not np.array_equal(self.slots, np.arange(len(self), dtype=np.uint64)):
            arrays["label_slots"] = self.slots
        if self.retired.any():
            arrays["label_retired"] = self.retired
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Vocabulary:
        """The inverse of `arrays`; ValueError for arrays that do not come from there."""
        names = names_from_arrays(arrays)
        L, columns = len(names), _columns_of(names)
        if len(columns) < L:
            raise ValueError("the array 'names' has the same label twice")
        unique = ArraySpec("uint64", ("L",), distinct=True, optional=True)
        flags = ArraySpec("bool", ("L",), optional=True)
        specs = {"label_keys": unique, "label_slots": unique, "label_retired": flags}
        checked = check_arrays(specs, arrays, {"L": L})
        # Copies, so that the vocabulary does not hold files open.
        given = {name: np.array(array) for name, array in checked.items()}
        keys = given["label_keys"] if "label_keys" in given else label_keys(names)
        slots = given.get("label_slots", np.arange(L, dtype=np.uint64))
        return cls(names, keys, slots, given.get("label_retired", np.zeros(L, bool)), columns)


def _columns_of(names: Names) -> dict[Any, int]:
    return {_entry(name, column): column for column, name in enumerate(names.tolist())}


def _entry(name: Any, column: int) -> Any:
    """What a label is found by in the dictionary of columns.

    One without a name has an entry too, which no name finds: the number of entries tells who owns the dictionary.
    """
    return (column,) if name is None else name


def _among(some: NDArray[np.uint64], many: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of some numbers are among others; a few are looked for without sorting these."""
    if len(some) > _FEW:
        return np.isin(some, many)
    return np.array([bool((many == number).any()) for number in some], bool)
