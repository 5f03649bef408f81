"""Evidence: what a text says about labels by their names, besides the features of its row.

    count       how often the names of the label stand in the text
    early       1 − first/length: how near to the beginning a name stands first
    spread      (last − first)/length
    near        the words of the name per words of the passage that has them all: 1 where they stand side by side
    n_words     the words of the longest of its names that stands there
    shared      the fewest labels that share one of these names
    preferred   whether one of them is the preferred name
    cover       how much of the name stands in the text, 1 for all of it
    likeness    the cosine of name and text
    relatives   how many concepts that are broader, narrower or related have a whole name in the text
    spelling    the cosine of name and text by their runs of letters

Where a text has only some words of the names of a label, count, early, spread and near are 0, and the others are those
of the name that is most alike. All of these are known from the text alone. What training rows make of them is in
`ripml.decoding.names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LATER_SIGNALS", "NAME_SIGNALS", "TEXT_SIGNALS", "Evidence", "FeatureRows", "apart"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

TEXT_SIGNALS = (
    "count", "early", "spread", "near", "n_words", "shared", "preferred", "cover", "likeness", "relatives",
    "spelling",
)  # fmt: skip
# With what training rows say of names. Those that models of earlier versions do not know come last.
LATER_SIGNALS = TEXT_SIGNALS[-2:]
NAME_SIGNALS = ("named", *TEXT_SIGNALS[:-2], "precision", "hits", *LATER_SIGNALS)


@dataclass(frozen=True)
class Evidence:
    """The labels whose names stand in n texts, at least in part: those of row i are `ends[i]` to `ends[i + 1]`, in
    ascending order."""

    ends: Ints  # (n + 1,)
    labels: Ints  # columns of the model
    signals: Floats  # (pairs, len(TEXT_SIGNALS))
    # (pairs,) how many training rows are expected to have a name of the label; −1 where they were counted, as they all
    # are if this is None.
    expected: Floats | None = None

    @classmethod
    def none(cls, n: int) -> Evidence:
        """That no name stands in n texts."""
        return cls(np.zeros(n + 1, np.int64), np.empty(0, np.int64), np.empty((0, len(TEXT_SIGNALS)), np.float32))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, rows: Any) -> Evidence:
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            stop = max(start, stop)
            pairs = slice(int(self.ends[start]), int(self.ends[stop]))
            return self._taken(self.ends[start : stop + 1] - self.ends[start], pairs)
        numbers = np.arange(len(self))[rows]
        lengths = np.diff(self.ends)[numbers]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(ends[-1]) + np.repeat(self.ends[numbers] - ends[:-1], lengths)
        return self._taken(ends, places)

    def only(self, kept: NDArray[np.bool_]) -> Evidence:
        """The pairs, of a mask, that are kept."""
        return self._taken(np.concatenate([[0], np.cumsum(kept)])[self.ends], kept)

    def _taken(self, ends: Ints, pairs: Any) -> Evidence:
        expected = None if self.expected is None else self.expected[pairs]
        return Evidence(ends, self.labels[pairs], self.signals[pairs], expected)

    def renumbered(self, column: Ints) -> Evidence:
        """With label l in the column `column[l]`; all of it was counted."""
        labels = column[self.labels]
        order = np.lexsort((labels, self.rows))
        return Evidence(self.ends, labels[order], self.signals[order])

    def followed_by(self, other: Evidence) -> Evidence:
        """With the evidence of further rows; all of it was counted."""
        ends = np.concatenate([self.ends, self.ends[-1] + other.ends[1:]])
        signals = np.concatenate([self.signals, other.signals])
        return Evidence(ends, np.concatenate([self.labels, other.labels]), signals)

    def joined(self, other: Evidence) -> Evidence:
        """With what another evidence, about the same rows, says of other labels."""
        row, labels = (np.concatenate(pair) for pair in ((self.rows, other.rows), (self.labels, other.labels)))
        order = np.lexsort((labels, row))
        expected = [
            np.full(len(one.labels), -1, np.float32) if one.expected is None else one.expected for one in (self, other)
        ]
        signals = np.concatenate([self.signals, other.signals])
        return Evidence(self.ends + other.ends, labels[order], signals[order], np.concatenate(expected)[order])

    @property
    def rows(self) -> Ints:
        """The row of each pair."""
        return np.repeat(np.arange(len(self)), np.diff(self.ends))

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Whether a whole name of the label of each pair stands in the text."""
        return np.asarray(self.signals[:, TEXT_SIGNALS.index("count")] > 0)

    def carried(self, Y: Any) -> NDArray[np.bool_]:
        """Whether the row of each pair carries its label, for labels Y, CSR (n, L)."""
        row = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
        wide = int(max(Y.shape[1], self.labels.max(initial=0) + 1))
        return np.isin(self.rows * wide + self.labels, row * wide + Y.indices)

    def padded(self) -> tuple[Ints, Ints]:
        """The labels of each row, (n, P), and the places of its pairs, (n, P); −1 where there are fewer."""
        lengths = np.diff(self.ends)
        place = np.arange(int(lengths.max(initial=0)))[None] + self.ends[:-1, None]
        there = place < self.ends[1:, None]
        place = np.where(there, place, -1)
        return np.where(there, self.labels[place] if len(self.labels) else -1, -1), place

    def places_of(self, labels: Ints) -> Ints:
        """The place of the pair of row i and label labels[i, j], (n, K), −1 for none."""
        wide = int(max(self.labels.max(initial=0), labels.max(initial=0))) + 1
        keys = self.rows * wide + self.labels
        asked = np.where(labels >= 0, np.arange(len(labels))[:, None] * wide + labels, -1)
        found = np.minimum(np.searchsorted(keys, asked), max(len(keys) - 1, 0))
        return np.where(keys[found] == asked, found, -1) if len(keys) else np.full(labels.shape, -1)


@dataclass(frozen=True)
class FeatureRows:
    """The features of rows, (n, d), with the evidence of their texts.

    To fit a model, `unseen` names the labels that evidence speaks of and no row carries: those of the columns after
    the last one of Y.
    """

    X: Any
    evidence: Evidence
    unseen: Sequence[str] = field(default=(), repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.X.shape
        return int(n), int(d)

    def __getitem__(self, rows: Any) -> FeatureRows:
        return replace(self, X=self.X[rows], evidence=self.evidence[rows])

    def with_features(self, X: Any) -> FeatureRows:
        """The same rows with other features."""
        return replace(self, X=X)


def apart(X: Any) -> tuple[Any, Evidence | None]:
    """Features, and the evidence that comes with them, if any."""
    return (X.X, X.evidence) if isinstance(X, FeatureRows) else (X, None)
