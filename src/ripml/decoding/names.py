"""What training rows say of the names of labels: how often a name that stands in a text is right.

For label l these are two counts, which are sums over rows: `hits`, the rows whose text has a whole name of l, and
`right`, those among them that carry l. With the signals of a text (`ripml.decoding.evidence`) they make

    precision   (right + a·p)/(hits + a), with p the precision of all names together
    hits        how many rows have a name of the label
    named       the probability that the label is right, by boosted trees over all of these and the label's frequency

A row that trees learn from is taken off the counts and off the frequency. So a label that only that row carries is to
them what a label that no row carries will be to an answer, and as often as such labels come: the share of labels seen
once is Good and Turing's estimate of the share of labels never seen. That is how they learn how far to trust the names
of labels without an example.

Names that came after the rows were counted have `expected` hits in the evidence. Their rows that are right are expected
too: of the rows that carry the label, as large a share as of those that carry any label has its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec, check_arrays
from ripml.decoding.blend import Trees, boosted_trees
from ripml.decoding.evidence import LATER_SIGNALS, NAME_SIGNALS, TEXT_SIGNALS, Evidence

__all__ = ["RARE", "NameModel", "candidate_signals", "proposed"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

# What trees see of a pair.
_COLUMNS = (*TEXT_SIGNALS[: -len(LATER_SIGNALS)], "precision", "hits", "frequency", *LATER_SIGNALS)
_PRIOR = 2.0  # rows that the precision of all names counts for in that of one label
_N_LATER = len(LATER_SIGNALS)
RARE = 16  # rows of a label up to which one more or less makes a difference
_LEAST_ROWS = 200  # below which trees would only learn noise


@dataclass(frozen=True)
class NameModel:
    """The counts of each label, and the trees; None where there were too few rows to learn them."""

    hits: Ints  # (L,)
    right: Ints  # (L,)
    trees: Trees | None = None

    @classmethod
    def empty(cls, n_labels: int) -> NameModel:
        """Of no row."""
        return cls(np.zeros(n_labels, np.int64), np.zeros(n_labels, np.int64))

    # --------------------------------------------------------------------------------------------------------- changing

    def changed(self, evidence: Evidence | None, Y: Any, sign: int) -> NameModel:
        """With rows of labels Y, CSR, counted (1) or taken back (−1); rows without a label are not training rows."""
        if evidence is None:
            return self
        labelled = (np.diff(Y.indptr) > 0)[evidence.rows] & evidence.whole
        hits, right = self.hits.copy(), self.right.copy()
        np.add.at(hits, evidence.labels[labelled], sign)
        np.add.at(right, evidence.labels[labelled & evidence.carried(Y)], sign)
        return replace(self, hits=hits, right=right)

    def emptied(self) -> NameModel:
        """The same trees, and counts of no row."""
        return replace(self, hits=np.zeros_like(self.hits), right=np.zeros_like(self.right))

    def wide(self, n_labels: int) -> NameModel:
        """For more labels."""
        more = np.zeros(n_labels - len(self.hits), np.int64)
        return replace(self, hits=np.concatenate([self.hits, more]), right=np.concatenate([self.right, more]))

    def kept(self, labels: Ints) -> NameModel:
        """For these of the labels alone."""
        return replace(self, hits=self.hits[labels], right=self.right[labels])

    def fitted(self, evidence: Evidence, Y: Any, frequency: Ints) -> NameModel:
        """With trees learnt from rows that were counted, each taken off the counts and the `frequency` (L,)."""
        carried = evidence.carried(Y)
        if len(evidence) < _LEAST_ROWS or carried.all() or not carried.any():
            return replace(self, trees=None)
        table = self._table(evidence, frequency, carried)
        rising = np.array([name == "precision" for name in _COLUMNS])
        return replace(self, trees=boosted_trees(table, carried, rising))

    # ---------------------------------------------------------------------------------------------------------- answers

    def signals(self, evidence: Evidence, frequency: Ints, left_out: Any | None) -> dict[str, Floats]:
        """The signals of each pair of evidence, by name; `left_out`, CSR (n, L), are the labels of left-out rows."""
        table = self._table(evidence, frequency, None if left_out is None else evidence.carried(left_out))
        columns = dict(zip(_COLUMNS, table.T, strict=True))
        del columns["frequency"]
        if self.trees is not None:
            named = self.trees.probabilities(table, 1)
        else:  # a name that does not stand in the text as a whole counts as far as it is like the text
            alike = np.minimum(np.maximum(columns["likeness"], columns["spelling"]), 1)
            named = np.where(evidence.whole, columns["precision"], columns["precision"] * alike)
        return {"named": named, **columns}

    def _table(self, evidence: Evidence, frequency: Ints, carried: NDArray[np.bool_] | None) -> Floats:
        """What the trees see of each pair, (pairs, len(_COLUMNS)); with `carried`, without the pair's own row."""
        labels = evidence.labels
        hits, right, seen = self.hits[labels], self.right[labels], frequency[labels]
        overall = self.right.sum() / max(int(self.hits.sum()), 1)
        if carried is not None:
            whole = evidence.whole
            hits, right = np.maximum(hits - whole, 0), np.maximum(right - (whole & carried), 0)
            seen = seen - (carried & (seen <= RARE))
        if evidence.expected is not None:
            later = evidence.expected >= 0
            expected = seen * (self.right.sum() / max(int(frequency.sum()), 1))
            right = np.where(later, expected, right)
            hits = np.where(later, evidence.expected + expected, hits)
        precision = (right + _PRIOR * overall) / (hits + _PRIOR)
        first, last = evidence.signals[:, :-_N_LATER], evidence.signals[:, -_N_LATER:]
        return np.column_stack([first, precision, hits, seen, last]).astype(np.float32)

    # ------------------------------------------------------------------------------------------------------------ state

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays."""
        trees = {} if self.trees is None else self.trees.to_arrays("name_tree")
        signals = np.array([len(NAME_SIGNALS)])
        return {"name_hits": self.hits, "name_right": self.right, "name_signals": signals, **trees}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_labels: int) -> NameModel | None:
        """The inverse of `to_arrays`; None where there are no counts, ValueError where they contradict each other."""
        if "name_hits" not in arrays and "name_right" not in arrays:
            return None
        if np.asarray(arrays.get("name_signals", ())).tolist() not in [
            [len(NAME_SIGNALS) - missing] for missing in range(_N_LATER + 1)
        ]:
            raise ValueError("the names of labels were learnt from other signals, by an earlier version; fit again")
        spec = ArraySpec("iu", ("L",), least=0)
        hits, right = check_arrays({"name_hits": spec, "name_right": spec}, arrays, {"L": n_labels}).values()
        if (right > hits).any():
            raise ValueError("names of a label are right more often than they are found")
        trees = Trees.from_arrays(arrays, len(_COLUMNS), "name_tree") if "name_tree_value" in arrays else None
        return cls(hits.astype(np.int64), right.astype(np.int64), trees)


def candidate_signals(evidence: Evidence, signals: Mapping[str, Floats], labels: Ints) -> dict[str, Floats]:
    """The signals of pairs, by name, at the candidates (n, K); 0 for a label that has no name in the text."""
    place = evidence.places_of(labels)
    return {
        name: np.where(place >= 0, column[place], np.float32(0)) if len(column) else np.zeros(labels.shape, np.float32)
        for name, column in signals.items()
    }


def proposed(evidence: Evidence, named: Floats) -> tuple[Ints, Floats]:
    """The labels that evidence proposes for each row, (n, P), −1 for none, and their probabilities."""
    labels, place = evidence.padded()
    return labels, np.where(place >= 0, named[place] if len(named) else np.float32(0), np.float32(0))
