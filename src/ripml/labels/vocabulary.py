"""The labels of a model: names that can be added, changed and retired, and what stays a label's own whatever its name.

A label's *key* is made of the name it was given first (see `label_keys`), and its column of Phi depends on
the key alone. So a label that is added leaves all other columns as they are, and one that is renamed keeps its own. In
ensembles of a fixed size a column is chosen by a *slot*, a number that two labels never share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.labels.encoding import (
    check_one_kind,
    encode_labels,
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
    """L labels in the order of their columns.

    >>> labels = Vocabulary.of(np.array([3, 5])).added([8]).renamed(5, 7)
    >>> labels.names.tolist(), labels.keys.tolist()
    ([3, 7, 8], [3, 5, 8])
    """

    names: Names  # (L,) int64, or object holding str
    keys: NDArray[np.uint64]  # (L,)
    slots: NDArray[np.uint64]  # (L,)
    retired: NDArray[np.bool_]  # (L,) labels that are not suggested
    # Name ↦ place, shared with the versions made by `added`: places past the end of this one are not its own.
    _places: dict[Any, int] = field(repr=False, compare=False)

    @classmethod
    def of(cls, names: Names) -> Vocabulary:
        """Labels as a fit finds them."""
        slots = np.arange(len(names), dtype=np.uint64)
        return cls(names, label_keys(names), slots, np.zeros(len(names), bool), _places_of(names))

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: Any) -> bool:
        return self._places.get(name, len(self)) < len(self)

    def column_of(self, name: Any) -> int:
        """The column of a label."""
        if not isinstance(name, (str, int, np.integer)) or name not in self:
            raise DataError(f"the model has no label {name!r}.")
        return self._places[name]

    def column_keys(self, ensemble: Ensemble, n_dims: int) -> NDArray[np.uint64]:
        """What chooses each label's column of Phi: its key, or its slot in a family of a fixed size."""
        return self.keys if ensemble.capacity(n_dims) is None else self.slots

    # ------------------------------------------------------------------------------------------------------- changing

    def added(self, names: Sequence[Any], keys: Sequence[int] | None = None) -> Vocabulary:
        """With further labels behind these, of these keys if they are given."""
        if isinstance(names, str):
            raise DataError(f"a list of label names is needed; got the string {names!r}.")
        names = [label_name(name) for name in names]
        if not names:
            return self
        check_one_kind(names, self.names[:1])
        if any(name in self for name in names) or len(set(names)) < len(names):
            again = next(name for i, name in enumerate(names) if name in self or name in names[:i])
            raise DataError(f"the label {again!r} is there already.")
        more = names_array(list(names)) if len(self) == 0 or self.names.dtype == object else np.array(names, np.int64)
        free = np.arange(len(self), len(self) + len(more), dtype=np.uint64)
        if len(self) and int(self.slots.max()) >= len(self):  # labels were dropped, and theirs are free again
            free = np.setdiff1d(np.arange(len(self) + len(more), dtype=np.uint64), self.slots)[: len(more)]
        places = self._places
        if len(places) > len(self):  # another version grew out of this one, and has the places behind it
            places = _places_of(self.names)
        places.update({name: len(self) + i for i, name in enumerate(more.tolist())})
        return replace(
            self,
            names=np.concatenate([self.names, more]) if len(self) else more,
            keys=np.concatenate([self.keys, self._new_keys(more) if keys is None else self._checked(keys, len(more))]),
            slots=np.concatenate([self.slots, free]),
            retired=np.concatenate([self.retired, np.zeros(len(more), bool)]),
            _places=places,
        )

    def _new_keys(self, names: Names) -> NDArray[np.uint64]:
        """The keys of names; where a renamed label has that key already, one made of the name and a number."""
        keys = label_keys(names)
        for i in np.flatnonzero(np.isin(keys, self.keys)):
            turn = 1
            while (keys[i] in self.keys) or (keys[i] in keys[:i]):
                text = f"{names[i]}\0{turn}".encode("utf-8", "surrogatepass")
                keys[i] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
                turn += 1
        return keys

    def _checked(self, keys: Sequence[int], n: int) -> NDArray[np.uint64]:
        found = np.array(keys, np.uint64)
        if found.shape != (n,) or len(np.unique(found)) < n or np.isin(found, self.keys).any():
            raise DataError(f"the keys of {n} labels must be as many, and of no other label.")
        return found

    def renamed(self, old: Any, new: Any) -> Vocabulary:
        """With another name for one label."""
        place, new = self.column_of(old), label_name(new)
        check_one_kind([new], self.names[:1])
        if new in self:
            raise DataError(f"the label {new!r} is there already; labels are merged by relabelling rows.")
        names = self.names.copy()
        names[place] = new
        return replace(self, names=names, _places=_places_of(names))

    def with_retired(self, name: Any, retired: bool) -> Vocabulary:
        """With one label retired, or suggested again."""
        flags = self.retired.copy()
        flags[self.column_of(name)] = retired
        return replace(self, retired=flags)

    def kept(self, places: Ints) -> Vocabulary:
        """The labels of these places alone, in this order."""
        names = self.names[places]
        return Vocabulary(names, self.keys[places], self.slots[places], self.retired[places], _places_of(names))

    def encode(self, Y: Any) -> tuple[Any, Vocabulary]:
        """Y, as `RIPML.fit` takes it, as a CSR indicator (n, L), and the labels with those that are new.

        An indicator has a column for each label, in their order; where labels are called 0, 1, …, further columns are
        new labels.
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
        ends = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        places = [place for row in rows for place in sorted(grown._places[name] for name in row)]
        ones = np.ones(len(places), np.float32)
        return scipy.sparse.csr_array((ones, np.array(places, np.int64), ends), shape=(len(rows), len(grown))), grown

    # -------------------------------------------------------------------------------------------------- save and load

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays: names, and the rest where it is not what a fit makes of them."""
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
        """The inverse of `arrays`. Arrays that cannot come from there: ValueError."""
        fitted = cls.of(names_from_arrays(arrays))
        keys = arrays.get("label_keys", fitted.keys)
        slots = arrays.get("label_slots", fitted.slots)
        retired = arrays.get("label_retired", fitted.retired)
        shape = (len(fitted),)
        consistent = (
            len(fitted._places) == len(fitted)
            and keys.shape == slots.shape == retired.shape == shape
            and keys.dtype == slots.dtype == np.uint64
            and retired.dtype == bool
            and len(np.unique(keys)) == len(np.unique(slots)) == len(fitted)
        )
        if not consistent:
            raise ValueError("the labels do not fit together")
        return replace(fitted, keys=np.array(keys), slots=np.array(slots), retired=np.array(retired))


def _places_of(names: Names) -> dict[Any, int]:
    return {name: place for place, name in enumerate(names.tolist())}
