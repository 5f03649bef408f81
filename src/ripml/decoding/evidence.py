"""Evidence: what a text says about labels by their names, besides the features of its row.

    count       how often the names of the label stand in the text
    early       1 − first/length: how near to the beginning a name stands first
    spread      (last − first)/length
    near        the words of the name per words of the passage that has them all: 1 where they stand side by side
    n_words     the words of the longest of its names that stands there
    shared      the fewest labels that share one of these names
    preferred   whether one of them is the preferred name

These are known from the text alone. What training rows say of the names of label l is two counts, which are sums over
rows: `hits`, the rows whose text has a name of l, and `right`, those among them that carry l. Of them are made

    precision   (right + a·p)/(hits + a), with p the precision of all names together
    hits        how many rows have a name of the label

A left-out row is taken off both counts. So a label that only the left-out row carries is to the blend what a label that
no row carries will be to an answer, and as often as such labels come: the share of labels seen once among left-out rows
is Good and Turing's estimate of the share of labels never seen. That is how trees learn how far to trust the words of
labels without an example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec, check_arrays
from ripml.decoding import scores as scoring

__all__ = ["TEXT_SIGNALS", "WORD_SIGNALS", "Evidence", "FeatureRows", "NameCounts", "apart", "word_signals"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

TEXT_SIGNALS = ("count", "early", "spread", "near", "n_words", "shared", "preferred")
WORD_SIGNALS = (*TEXT_SIGNALS, "precision", "hits")
_PRIOR = 2.0  # rows that the precision of all names counts for in that of one label


@dataclass(frozen=True)
class Evidence:
    """The labels whose names stand in n texts: those of row i are `ends[i]` to `ends[i + 1]`, in ascending order."""

    ends: Ints  # (n + 1,)
    labels: Ints  # columns of the model
    signals: Floats  # (pairs, len(TEXT_SIGNALS))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, rows: Any) -> Evidence:
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            stop = max(start, stop)
            pairs = slice(int(self.ends[start]), int(self.ends[stop]))
            return Evidence(self.ends[start : stop + 1] - self.ends[start], self.labels[pairs], self.signals[pairs])
        numbers = np.arange(len(self))[rows]
        lengths = np.diff(self.ends)[numbers]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(ends[-1]) + np.repeat(self.ends[numbers] - ends[:-1], lengths)
        return Evidence(ends, self.labels[places], self.signals[places])

    @property
    def rows(self) -> Ints:
        """The row of each pair."""
        return np.repeat(np.arange(len(self)), np.diff(self.ends))

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


@dataclass(frozen=True)
class NameCounts:
    """For each label the training rows whose texts have one of its names, and those of them that carry the label."""

    hits: Ints  # (L,)
    right: Ints  # (L,)

    @classmethod
    def nothing(cls, n_labels: int) -> NameCounts:
        """Of no row."""
        return cls(np.zeros(n_labels, np.int64), np.zeros(n_labels, np.int64))

    def changed(self, evidence: Evidence | None, Y: Any, sign: int) -> NameCounts:
        """With rows of labels Y, CSR, counted (1) or taken back (−1); rows without a label are not training rows."""
        if evidence is None:
            return self
        labelled = (np.diff(Y.indptr) > 0)[evidence.rows]
        hits, right = self.hits.copy(), self.right.copy()
        np.add.at(hits, evidence.labels[labelled], sign)
        np.add.at(right, evidence.labels[labelled & evidence.carried(Y)], sign)
        return NameCounts(hits, right)

    def proposed(self, evidence: Evidence, sets: Any | None) -> tuple[Ints, Floats]:
        """The labels that evidence proposes for each row, (n, P), −1 for none, and the precision of their names.

        `sets`, CSR (n, L), are the labels of rows that are left out.
        """
        labels, _ = evidence.padded()
        precision, _ = self.precision(np.maximum(labels, 0), None if sets is None else scoring.carried(sets, labels))
        return labels, np.where(labels >= 0, precision, np.float32(0))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays."""
        return {"name_hits": self.hits, "name_right": self.right}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_labels: int) -> NameCounts | None:
        """The inverse of `to_arrays`; None where there are no counts, ValueError where they contradict each other."""
        if "name_hits" not in arrays and "name_right" not in arrays:
            return None
        spec = ArraySpec("iu", ("L",), least=0)
        hits, right = check_arrays({"name_hits": spec, "name_right": spec}, arrays, {"L": n_labels}).values()
        if (right > hits).any():
            raise ValueError("names of a label are right more often than they are found")
        return cls(hits.astype(np.int64), right.astype(np.int64))

    def wide(self, n_labels: int) -> NameCounts:
        """For more labels."""
        more = np.zeros(n_labels - len(self.hits), np.int64)
        return NameCounts(np.concatenate([self.hits, more]), np.concatenate([self.right, more]))

    def kept(self, labels: Ints) -> NameCounts:
        """For these of the labels alone."""
        return NameCounts(self.hits[labels], self.right[labels])

    def precision(self, labels: Ints, carried: Any = None) -> tuple[Floats, Ints]:
        """The precision of the names of labels, and their hits; with `carried`, without a left-out row that has a name.

        The counts are those of all rows but the left-out one, whose labels are `carried` or not.
        """
        hits, right = self.hits[labels], self.right[labels]
        if carried is not None:
            hits, right = np.maximum(hits - 1, 0), np.maximum(right - carried, 0)
        overall = self.right.sum() / max(int(self.hits.sum()), 1)
        return np.asarray((right + _PRIOR * overall) / (hits + _PRIOR), np.float32), hits


def word_signals(evidence: Evidence, counts: NameCounts, labels: Ints, sets: Any | None) -> dict[str, Floats]:
    """The signals of candidates (n, K), by name; 0 for a label that has no name in the text.

    `sets`, CSR (n, L), are the labels of rows that are left out.
    """
    place = evidence.places_of(labels)
    named = place >= 0
    found = {
        name: np.where(named, column[place], np.float32(0)) if len(column) else np.zeros(labels.shape, np.float32)
        for name, column in zip(TEXT_SIGNALS, evidence.signals.T, strict=True)
    }
    carried = None if sets is None else scoring.carried(sets, labels)
    precision, hits = counts.precision(np.maximum(labels, 0), carried)
    found["precision"] = np.where(named, precision, np.float32(0))
    found["hits"] = np.where(named, hits, 0).astype(np.float32)
    return found
