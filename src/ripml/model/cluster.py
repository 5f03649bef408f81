"""One cluster of a model: a regression, an index of label sets and training rows, changed together.

    learn    another row of the regression, and of its label set, which is added if it is the first
    forget   the same, taken back; a set that no row carries any more is not found any more
    relabel  the same features with another target and another label set

A change has two steps. `plan` finds the rows that are to be forgotten or relabelled and raises if one of them was never
learnt; `changed` then makes the next value.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError, RipmlError
from ripml.base.products import dense
from ripml.decoding.embedding import LabelEmbedding
from ripml.decoding.evidence import Evidence, FeatureRows, apart
from ripml.decoding.label_set_index import LabelSetIndex, wide
from ripml.decoding.training_rows import TrainingRows
from ripml.regression.inverse import RowChange
from ripml.regression.regression import Regression

__all__ = ["Cluster", "ClusterChange", "LabelledRows"]

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

_DEAD = 1024  # places of what was forgotten that are given back once they are more, and the greater part


@dataclass(frozen=True)
class LabelledRows:
    """Features (r, d) as the regression sees them, labels, CSR (r, L), and numbers (r,) among all rows ever learnt, −1
    where they are not known."""

    X: Any
    Y: Any
    numbers: Ints

    def __len__(self) -> int:
        return int(self.Y.shape[0])

    def apart(self) -> tuple[LabelledRows, Evidence | None]:
        """The rows with their features alone, and the evidence that came with these."""
        X, evidence = apart(self.X)
        return replace(self, X=X), evidence

    def reordered(self, order: Ints) -> LabelledRows:
        """With label l in the column `order[l]`."""
        X, evidence = apart(self.X)
        if evidence is not None:
            X = FeatureRows(X, replace(evidence, labels=order[evidence.labels]))
        Y = scipy.sparse.csr_array((self.Y.data, order[self.Y.indices], self.Y.indptr), (len(self), len(order)))
        Y.sort_indices()
        return replace(self, X=X, Y=Y)


@dataclass(frozen=True)
class ClusterChange:
    """What happens to the rows of one cluster at once."""

    forgotten: LabelledRows
    relabelled: LabelledRows
    new_labels: Any  # CSR, of the relabelled rows
    learnt: LabelledRows


@dataclass(frozen=True)
class _Plan:
    """Where the rows that leave or change are: their label sets, and their places where rows are kept."""

    forgotten: Ints
    relabelled: Ints
    forgotten_places: Ints
    relabelled_places: Ints


@dataclass(frozen=True)
class Cluster:
    """A regression into the embedding, the label sets to be found there, and training rows where they are kept."""

    regression: Regression
    index: LabelSetIndex
    rows: TrainingRows | None = None

    @property
    def n_sets(self) -> int:
        """Distinct label sets that rows carry."""
        return self.index.n_sets

    @property
    def searched_rows(self) -> TrainingRows | None:
        """The training rows, where answers need them."""
        return self.rows if self.rows is not None and self.rows.searched else None

    # -------------------------------------------------------------------------------------------------------- changing

    def located(self, keys: Keys) -> Cluster:
        """The same cluster, ready to find rows and label sets, whose labels have these keys."""
        cluster = self if self.regression.in_use is not None else self.compacted()
        return replace(cluster, index=cluster.index.prepared(keys))

    def prepared(self, embedding: LabelEmbedding, n_jobs: int | None) -> Cluster:
        """The same cluster, located and with the regression ready to be changed."""
        cluster = self.located(embedding.keys)
        regression = cluster.regression.prepared(cluster._training(embedding, n_jobs), n_jobs)
        rows = cluster.rows
        if rows is not None and not rows.searched and regression.sums_rows:
            rows = None  # the sums are enough
        return Cluster(regression, cluster.index, rows)

    def _training(self, embedding: LabelEmbedding, n_jobs: int | None) -> Any:
        """What gives all training rows with their targets, if rows are kept."""
        rows = self.rows
        if rows is None:
            return None
        sets = wide(self.index.sets, len(embedding.keys))
        return lambda: (rows.X.all(), embedding.changed_targets(sets[rows.set_of_row], n_jobs))

    def plan(self, change: ClusterChange, keys: Keys) -> _Plan:
        """Find the rows that are to be forgotten or relabelled; DataError if one of them was never learnt."""
        forgotten, relabelled = change.forgotten, change.relabelled
        gone, moved = self.index.numbers_of(forgotten.Y, keys), self.index.numbers_of(relabelled.Y, keys)
        numbers, counts = np.unique(np.concatenate([gone, moved]), return_counts=True)
        if (numbers < 0).any() or (counts > self.index.counts[numbers]).any():
            raise DataError("a row to be forgotten or relabelled was never learnt: no row is left with these labels.")
        if self.rows is None:
            nothing = np.empty(0, np.int64)
            return _Plan(gone, moved, nothing, nothing)
        taken: set[int] = set()
        gone_places = self.rows.places_of(forgotten.X, gone, forgotten.numbers, taken)
        return _Plan(gone, moved, gone_places, self.rows.places_of(relabelled.X, moved, relabelled.numbers, taken))

    def changed(self, change: ClusterChange, plan: _Plan, embedding: LabelEmbedding, n_jobs: int | None) -> Cluster:
        """The cluster after a change that was planned; a change that proves impossible leaves this one as it was."""
        arriving = _stacked(change.new_labels, change.learnt.Y)
        sets = self.index.plan(np.concatenate([plan.forgotten, plan.relabelled]), arriving, embedding.keys)
        index = self.index.changed(sets, embedding.searched)
        n_moved = len(plan.relabelled)
        moved_to, learnt_sets = sets.arriving[:n_moved], sets.arriving[n_moved:]

        def targets(Y: Any, numbers: Ints) -> Any:
            known = index.targets(numbers)
            return dense(embedding.changed_targets(Y, n_jobs)) if known is None else known

        learnt, forgotten, relabelled = change.learnt, change.forgotten, change.relabelled
        regression = self.regression.changed(
            RowChange(
                learnt=(learnt.X, targets(learnt.Y, learnt_sets)) if len(learnt) else None,
                forgotten=(forgotten.X, targets(forgotten.Y, plan.forgotten), plan.forgotten_places)
                if len(forgotten)
                else None,
                retargeted=(
                    relabelled.X,
                    targets(relabelled.Y, plan.relabelled),
                    targets(change.new_labels, moved_to),
                    plan.relabelled_places,
                )
                if n_moved
                else None,
            )
        )
        rows = self.rows
        if rows is not None:
            rows = rows.changed(
                plan.forgotten_places, plan.relabelled_places, moved_to, learnt.X, learnt_sets, learnt.numbers
            )
        return Cluster(regression, index, rows)._without_many_dead()

    def _without_many_dead(self) -> Cluster:
        """Give back the places of what was forgotten, once they are the greater part."""
        n_sets, n_rows = len(self.index.counts), 0 if self.rows is None else len(self.rows)
        many_sets = n_sets - self.n_sets > max(_DEAD, n_sets // 2)
        many_rows = self.rows is not None and n_rows - self.rows.n_alive > max(_DEAD, n_rows // 2)
        return self.compacted() if many_sets or many_rows else self

    def renumbered(self, order: Ints) -> Cluster:
        """With the row of number i as that of number `order[i]`."""
        return self if self.rows is None else replace(self, rows=self.rows.renumbered(order))

    def widened(self, n_targets: int) -> Cluster:
        """With more targets, of which nothing is known yet."""
        return replace(self, regression=self.regression.widened(n_targets))

    def embedded_again(self, embedding: LabelEmbedding) -> Cluster:
        """With the embeddings of its label sets made again."""
        return replace(self, index=self.index.embedded_again(embedding.searched(self.index.sets)))

    # -------------------------------------------------------------------------------------------------------- at rest

    def compacted(self) -> Cluster:
        """Without the places of sets and rows that were forgotten."""
        index, place = self.index.compacted()
        rows = self.rows
        if index is self.index and (rows is None or rows.alive is None):
            return self
        regression = self.regression
        if rows is not None:
            rows, kept = rows.compacted(place)
            regression = regression.compacted(kept)
        return Cluster(regression, index, rows)

    def settled(self, embedding: LabelEmbedding, n_jobs: int | None) -> Cluster:
        """At rest, as it is saved: without places of what was forgotten, and with what it needs to go on learning."""
        cluster = self
        if self._smaller_as_sums():
            with suppress(RipmlError):  # else the rows will do
                cluster = self.prepared(embedding, n_jobs)
        resting = replace(cluster, regression=cluster.regression.at_rest(cluster.searched_rows is not None))
        return resting.compacted()

    def answering(self) -> Cluster:
        """At rest, with only what answers need."""
        return Cluster(self.regression.answering(), self.index, self.searched_rows).compacted()

    def _smaller_as_sums(self) -> bool:
        """Whether rows are kept only to go on learning, nothing was learnt yet, and their sums would take less room."""
        if self.rows is None or self.rows.searched or self.regression.in_use is not None:
            return False
        X = self.rows.X.all()
        size = 2 * X.data.nbytes if scipy.sparse.issparse(X) else X.nbytes
        n, d = X.shape
        return bool(d <= n and 8 * d * (d / 2 + self.regression.n_targets) < size)

    def emptied(self) -> Cluster:
        """Without a row."""
        rows = None if self.rows is None else self.rows.emptied()
        return Cluster(self.regression.emptied(), self.index.emptied(), rows)


def _stacked(one: Any, other: Any) -> Any:
    """Rows one after the other; SciPy takes its time to put nothing before something."""
    if not one.shape[0] or not other.shape[0]:
        return one if one.shape[0] else other
    return scipy.sparse.vstack([one, other], format="csr")
