"""`Rules`: which of the scored labels are suggested, the same for Python, the shell and the server."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from ripml.base.errors import ModelFolderError, ParameterError, RipmlError, check_count, is_number
from ripml.decoding import scores as decoding
from ripml.model.multilabel import Multilabel

__all__ = ["Rules", "Suggestion"]

Suggestion: TypeAlias = tuple[str, float]


@dataclass(frozen=True)
class Rules:
    """Of the labels that a model scores, suggest those that hold to these rules, best first.

    Parameters
    ----------
    n : int or None, default=5
        At most so many; None for all.
    threshold : number, "auto" or None, default=None
        Only labels whose score reaches it; "auto" for the threshold that the model learnt on training rows left out.
    stop_labels : names, default=()
        Never these.
    allowed_labels : names or None, default=None
        Only these, if given.
    min_count : int, default=1
        Only labels that so many documents carry. Counts follow what is learnt and forgotten.

    >>> Rules(n=3).but(threshold=0.2, n=None)
    Rules(n=None, threshold=0.2, stop_labels=frozenset(), allowed_labels=None, min_count=1)
    """

    n: int | None = 5
    threshold: float | str | None = None
    stop_labels: Collection[str] = frozenset()
    allowed_labels: Collection[str] | None = None
    min_count: int = 1

    def __post_init__(self) -> None:
        if self.n is not None:
            check_count("n", self.n, "None or ")
            object.__setattr__(self, "n", int(self.n))  # NumPy's are not saved
        check_count("min_count", self.min_count, least=0)
        object.__setattr__(self, "min_count", int(self.min_count))
        threshold: Any = self.threshold
        if is_number(threshold) and math.isfinite(threshold):
            object.__setattr__(self, "threshold", float(threshold))
        elif threshold is not None and not (isinstance(threshold, str) and threshold == "auto"):
            raise ParameterError(f"`threshold` must be a number, 'auto' or None; got {self.threshold!r}.")
        for name in ("stop_labels", "allowed_labels"):
            names = getattr(self, name)
            if names is None and name == "allowed_labels":
                continue
            if isinstance(names, str) or not isinstance(names, Collection):
                raise ParameterError(f"`{name}` must be a list of label names; got {names!r}.")
            object.__setattr__(self, name, frozenset(map(str, names)))

    def but(self, **changes: Any) -> Rules:
        """The same rules but for these."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise ParameterError(f"`{name}` is no rule for suggestions; there are {', '.join(known)}.")
        return replace(self, **changes)

    def renamed(self, names: Mapping[str, str | None]) -> Rules:
        """The same rules after labels got other names, old ↦ new; None for a label that is gone.

        >>> Rules(stop_labels=["a", "b"]).renamed({"a": "c", "b": None}).stop_labels
        frozenset({'c'})
        """

        def after(labels: Collection[str]) -> list[str]:
            return [new for label in labels if (new := names.get(label, label)) is not None]

        allowed = None if self.allowed_labels is None else after(self.allowed_labels)
        return self.but(stop_labels=after(self.stop_labels), allowed_labels=allowed)

    def kept(self, model: Multilabel, scores: Any) -> Any:
        """The scores that are suggested, CSR (n, L), the best of each row first."""
        columns, places = np.unique(scores.indices, return_inverse=True)
        hidden = model.frequency_[columns] < self.min_count
        if self.stop_labels or self.allowed_labels is not None:
            names = map(str, model.classes_[columns].tolist())
            allowed = self.allowed_labels
            hidden |= np.array(
                [name in self.stop_labels or not (allowed is None or name in allowed) for name in names], bool
            )
        if hidden.any():
            scores = decoding.only(scores, ~hidden[places])
        threshold = model.threshold_ if self.threshold == "auto" else self.threshold
        if threshold is not None:
            scores = decoding.only(scores, scores.data >= threshold)
        return decoding.top(scores, scores.shape[1] if self.n is None else self.n)

    def suggestions(self, model: Multilabel, scores: Any) -> list[list[Suggestion]]:
        """The names and scores that are suggested for each row of scores, CSR (n, L)."""
        best = self.kept(model, scores)
        pairs = list(zip(map(str, model.classes_[best.indices].tolist()), best.data.tolist(), strict=True))
        return [pairs[start:end] for start, end in zip(best.indptr[:-1], best.indptr[1:], strict=True)]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        lists = {name: sorted(names) for name, names in asdict(self).items() if isinstance(names, frozenset)}
        return {**asdict(self), **lists}

    @classmethod
    def from_json(cls, values: Any) -> Rules:
        """The inverse of `to_json`."""
        try:
            return cls(**values)
        except (TypeError, RipmlError) as error:
            raise ModelFolderError(f"the saved rules for suggestions are damaged ({error}).") from None
