"""The labels of a store as lists and one by one: their orders, what is known about each, and what a change would do.

An order is an array of all columns. That by name is the order of the index that completion has anyway; the others are
stable sorts of it, so that labels that tie come by name. Pages are slices of an order: any page of a million labels
takes as long as the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.model.quality import LabelQuality
from ripml.store.completion import LabelCompletion, LabelInfo, LabelOrder

__all__ = ["LabelDetail", "LabelOrders", "LabelPage", "Merging", "Undone", "measured_again"]

Ints = NDArray[np.int64]
Measured = Mapping[str, LabelQuality]

_ORDERS: tuple[str, ...] = get_args(LabelOrder)


@dataclass(frozen=True)
class LabelPage:
    """Some labels of an order, from the place `start` on; `total` is how many there are in all."""

    version: int
    total: int
    start: int
    labels: list[LabelInfo]


@dataclass(frozen=True)
class LabelDetail:
    """What is known about one label.

    `is_label` is False for a concept of the vocabulary that the model does not know. The quality is that of the last
    report since the store was opened, None without one or where the label was not among the most frequent ones.
    """

    name: str
    is_label: bool
    count: int  # documents that carry it
    accepted: int  # documents with open labels on which it was accepted, or rejected
    rejected: int
    retired: bool
    declared: bool  # it is kept even if no document carries it
    examples: list[str]  # ids of the first documents that carry it
    quality: LabelQuality | None


@dataclass(frozen=True)
class Merging:
    """What a merge would change: documents that carry a label, those of them that have the target already, and
    documents with decisions on a label."""

    documents: int
    both: int
    decided: int


@dataclass(frozen=True)
class Undone:
    """How many documents have the labels again that they had before a change, and how many were changed since."""

    documents: int
    changed_since: int


class LabelOrders:
    """The orders of a store's labels, each made when it is first wanted and kept until what it depends on changes."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[LabelCompletion, Any, Ints]] = {}

    def columns(
        self, order: str, completion: LabelCompletion, frequency: Ints, numbers: Ints, measured: Measured | None
    ) -> Ints:
        """All columns in an order; `frequency` (L,) and `numbers` (L,), higher for newer labels, by column."""
        if order not in _ORDERS:
            raise ParameterError(f"`order` must be one of {', '.join(_ORDERS)}; got {order!r}.")
        if order == "name":
            return completion.by_name
        depends = {"count": frequency, "rarest": frequency, "newest": numbers, "precision": measured}[order]
        known = self._kept.get(order)
        if known is not None and known[0] is completion and known[1] is depends:
            return known[2]
        columns = completion.by_name
        if order == "newest":
            keys: NDArray[Any] = -numbers[columns]
        elif order == "precision":
            keys = _precisions(completion, measured or {})[columns]
        else:
            keys = frequency[columns] if order == "rarest" else -frequency[columns]
        found = columns[np.argsort(keys, kind="stable")]
        self._kept[order] = completion, depends, found
        return found


def _precisions(completion: LabelCompletion, measured: Measured) -> NDArray[np.float64]:
    """The precision of each column; infinite where it is not known, so that these come last."""
    found = np.full(len(completion.by_name), np.inf)
    for name, quality in measured.items():
        if quality.precision is not None and name in completion.vocabulary:
            found[completion.vocabulary.column_of(name)] = quality.precision
    return found


def measured_again(measured: Measured | None, renamed: Mapping[str, str | None]) -> Measured | None:
    """What was measured of labels, after some were renamed; without those that are None, which are gone."""
    if measured is None:
        return None
    found = {}
    for name, quality in measured.items():
        now = renamed.get(name, name)
        others = [(renamed.get(other, other), n) for other, n in quality.confused_with]
        confused = tuple((other, n) for other, n in others if other is not None)
        if now is not None:
            found[now] = replace(quality, label=now, confused_with=confused)
    return found
