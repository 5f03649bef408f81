"""`Rules`: which of the scored labels are suggested; the same in Python, on the command line and in the server."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ripml.base.errors import ModelFolderError, ParameterError, RipmlError, check_count, is_number
from ripml.decoding import scores as decoding
from ripml.decoding.guarantees import check_coverage
from ripml.labels.concepts import Concepts, is_group
from ripml.model.multilabel import Multilabel

__all__ = ["Rules", "Suggestion", "named"]

Suggestion: TypeAlias = tuple[str, float]


class _RuleValues(NamedTuple):
    n: int | None
    threshold: float | str | None
    stop_labels: frozenset[str]
    allowed_labels: frozenset[str] | None
    min_count: int
    max_count: int | None
    coverage: float | None
    per_label: bool


class Rules(_RuleValues):
    """Which of the labels that a model scores are suggested, best first.

    Parameters
    ----------
    n : int or None, default=5
        The largest number of labels; None for no limit.
    threshold : number, "auto" or None, default=None
        The lowest score; "auto" for the threshold that the model chose on held-out training rows.
    stop_labels : names, default=()
        Labels that are never suggested. With a vocabulary, "type:URI", "scheme:URI" and "branch:ID" stand for all
        labels of a type or scheme, and for a label with everything narrower.
    allowed_labels : names or None, default=None
        If given, the only labels that are suggested; names as for `stop_labels`.
    min_count : int, default=0
        The smallest number of documents that carry a label. Counts follow what is learnt and forgotten. A label that
        no document carries is suggested only where the vocabulary has a name for it that stands in the text.
    max_count : int or None, default=None
        The largest number of documents that carry a label; 0 for labels without any document. None for no limit.
    coverage : number or None, default=None
        If given, all labels of sets that hold on average this share of the right labels, see `RIPML.predict`; `n` and
        `threshold` do not apply. The other rules do: what they hide is not in a set.
    per_label : bool, default=False
        Whether `coverage` holds for each label with enough documents.

    >>> Rules(n=3).but(threshold=0.2, n=None).threshold
    0.2
    """

    __slots__ = ()

    def __new__(
        cls,
        n: int | None = 5,
        threshold: float | str | None = None,
        stop_labels: Collection[str] = (),
        allowed_labels: Collection[str] | None = None,
        min_count: int = 0,
        max_count: int | None = None,
        coverage: float | None = None,
        per_label: bool = False,
    ) -> Rules:
        """Check the values; NumPy numbers become Python's, which can be saved."""
        if n is not None:
            check_count("n", n, "None or ")
            n = int(n)
        check_count("min_count", min_count, least=0)
        if max_count is not None:
            check_count("max_count", max_count, "None or ", least=0)
            max_count = int(max_count)
        lowest: Any = threshold
        if is_number(lowest) and math.isfinite(lowest):
            threshold = float(lowest)
        elif lowest is not None and not (isinstance(lowest, str) and lowest == "auto"):
            raise ParameterError(f"`threshold` must be a number, 'auto' or None; got {threshold!r}.")
        if coverage is not None:
            check_coverage(coverage)
            coverage = float(coverage)
        stopped = _label_names("stop_labels", stop_labels)
        allowed = None if allowed_labels is None else _label_names("allowed_labels", allowed_labels)
        return super().__new__(
            cls, n, threshold, stopped, allowed, int(min_count), max_count, coverage, bool(per_label)
        )

    def but(self, **changes: Any) -> Rules:
        """The same rules with some of them changed."""
        for name in changes:
            if name not in self._fields:
                known = ", ".join(self._fields)
                raise ParameterError(f"`{name}` is not a rule for suggestions; the rules are {known}.")
        return Rules(**{**self._asdict(), **changes})

    def renamed(self, names: Mapping[str, str | None]) -> Rules:
        """The same rules after labels were renamed, old ↦ new; None for a label that was removed.

        >>> Rules(stop_labels=["a", "b"]).renamed({"a": "c", "b": None}).stop_labels
        frozenset({'c'})
        """
        branches = {f"branch:{old}": None if new is None else f"branch:{new}" for old, new in names.items()}
        names = {**branches, **names}

        def rename(labels: Collection[str]) -> list[str]:
            return [new for label in labels if (new := names.get(label, label)) is not None]

        allowed = None if self.allowed_labels is None else rename(self.allowed_labels)
        return self.but(stop_labels=rename(self.stop_labels), allowed_labels=allowed)

    @property
    def groups(self) -> list[str]:
        """The groups of a vocabulary that the rules name."""
        return [name for name in (*self.stop_labels, *(self.allowed_labels or ())) if is_group(name)]

    def resolved(self, concepts: Concepts) -> Rules:
        """The same rules with the labels of groups in place of the groups, see `ripml.labels.concepts`."""
        if not self.groups:
            return self
        allowed = None if self.allowed_labels is None else concepts.resolved(self.allowed_labels)
        return self._replace(stop_labels=concepts.resolved(self.stop_labels), allowed_labels=allowed)

    def kept(self, model: Multilabel, scores: Any, X: Any) -> Any:
        """The scores of the labels that are suggested for rows X, CSR (n, L), the best of each row first."""
        if self.coverage is not None:
            scores = model.covered(scores, X, self.coverage, self.per_label)
        columns, places = np.unique(scores.indices, return_inverse=True)
        counts = model.frequency_[columns]
        hidden = counts < self.min_count
        if self.max_count is not None:
            hidden |= counts > self.max_count
        if self.stop_labels or self.allowed_labels is not None:
            names = map(str, model.classes_[columns].tolist())
            allowed = self.allowed_labels
            hidden |= np.array(
                [name in self.stop_labels or not (allowed is None or name in allowed) for name in names], bool
            )
        if hidden.any():
            scores = decoding.only(scores, ~hidden[places])
        if self.coverage is not None:
            return decoding.top(scores, scores.shape[1])
        threshold = model.threshold_ if self.threshold == "auto" else self.threshold
        if threshold is not None:
            scores = decoding.only(scores, scores.data >= threshold)
        return decoding.top(scores, scores.shape[1] if self.n is None else self.n)

    def suggestions(self, model: Multilabel, scores: Any, X: Any) -> list[list[Suggestion]]:
        """The names and scores of the labels that are suggested for each row of X, by its scores, CSR (n, L)."""
        return named(model, self.kept(model, scores, X))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        values = self._asdict()
        for name in ("max_count", "coverage", "per_label"):  # earlier versions do not know them
            if values[name] in (None, False):
                del values[name]
        return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, values: Any) -> Rules:
        """The inverse of `to_json`."""
        try:
            return cls(**values)
        except (TypeError, RipmlError) as error:
            raise ModelFolderError(f"the saved rules for suggestions are damaged ({error}).") from None


def named(model: Multilabel, scores: Any) -> list[list[Suggestion]]:
    """The names and scores of the labels in each row of scores, CSR (n, L), in their order."""
    pairs = list(zip(map(str, model.classes_[scores.indices].tolist()), scores.data.tolist(), strict=True))
    return [pairs[start:end] for start, end in pairwise(scores.indptr)]


def _label_names(rule: str, names: Any) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ParameterError(f"`{rule}` must be a list of label names; got {names!r}.")
    return frozenset(map(str, names))
