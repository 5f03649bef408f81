"""Every training row, left out of the model that scores it.

Rows with the same features are copies, and a row is left out together with its copies: else its own labels would speak
for it under another number, see `DistinctRows`. The regression says how it leaves out rows: with K + alpha I the matrix
of distinct rows, C their coefficients and a the diagonal of its inverse,

    kernel   ẑ₋ᵢ = zᵢ − cᵢ / aᵢ
    linear   ẑ₋ᵢ = zᵢ − (zᵢ − ẑᵢ)/(1 − hᵢ),   by the solver that the model was fitted with
    linear, solved by iterations   ẑ₋ᵢ by a regression on the half of the rows without i

Neighbours, similar rows and frequencies then count without the row, as for the rows that a fit leaves out.

Above 20,000 rows most of the time goes to similar rows: finding them, and a kernel among the nearest of each. `quick`
scores do without, and `LeftOutRows.scored` makes the others for those rows alone for which they matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError
from ripml.decoding.embedding import LabelEmbedding
from ripml.decoding.evidence import Evidence
from ripml.decoding.fitted import LeftOut
from ripml.decoding.label_set_index import wide
from ripml.decoding.training_rows import TrainingRows
from ripml.model.cluster import Cluster
from ripml.model.copies import Copies
from ripml.model.model import Model
from ripml.regression.distinct import DistinctRows

__all__ = ["ENOUGH_ROWS", "LeftOutRows", "leave_out_rows", "row_numbers", "training_labels"]

_log = logging.getLogger("ripml")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

ENOUGH_ROWS = 100  # what left-out rows of a model of fewer rows show is mostly chance

_FEW = 20_000  # rows up to which all signals are made of all


@dataclass(frozen=True)
class LeftOutRows:
    """All training rows in the order in which they were learnt, and the scores of each without it and its copies."""

    numbers: Ints  # (n,) among all rows ever learnt, ascending
    Y: Any  # CSR (n, L), their labels
    group: Ints  # (n,) equal for copies
    cluster: Ints  # (n,) of each row
    place: Ints  # (n,) of each row in its cluster
    embeddings: Floats  # (u, M), ẑ of each group
    embedding: LabelEmbedding
    scores: Any = None  # CSR (n, L), of the candidates of each
    quick: bool = False  # whether these are of the regression and its neighbours alone

    def values(self, rows: Ints, labels: Ints) -> Floats:
        """What the regression says of pairs of a row and a label, (p,), also of labels that are not candidates."""
        return self.embedding.values(self.embeddings, self.group[rows], labels)

    def scored(
        self, model: Model, rows: Ints, n_jobs: int | None, evidence: Evidence | None = None, quick: bool = False
    ) -> Any:
        """Scores of these rows, CSR (r, L), by all signals; or by the regression and its neighbours alone."""
        decoder, L = model.decoder, len(model.vocabulary)
        groups, of_row = np.unique(self.group[rows], return_inverse=True)
        by_group, counts = np.argsort(self.group, kind="stable"), np.bincount(self.group)
        starts = np.cumsum(counts) - counts
        cluster = self.cluster[by_group[starts[groups]]]
        found, order = [scipy.sparse.csr_array((0, L), dtype=np.float32)], [np.empty(0, np.int64)]
        for c, size in np.unique(np.column_stack([cluster, counts[groups]]), axis=0).tolist():
            some = np.flatnonzero((cluster == c) & (counts[groups] == size))
            copies = by_group[starts[groups[some]][:, None] + np.arange(size)]
            kept = model.clusters[c].rows
            assert kept is not None
            places = self.place[copies if size > 1 else copies[:, 0]]
            X, said = kept.X.take(self.place[copies[:, 0]]), None if evidence is None else evidence[copies[:, 0]]
            left_out = LeftOut(None, None, X, self.embeddings[groups[some]], places, kept.set_of_row[places], said)
            found.append(decoder.left_out_scores(model.clusters[c], left_out, quick, n_jobs))
            order.append(some)
        return scipy.sparse.vstack(found, format="csr")[np.argsort(np.concatenate(order), kind="stable")][of_row]


def leave_out_rows(
    model: Model, n_jobs: int | None = None, evidence: Evidence | None = None, quick: bool = False
) -> LeftOutRows:
    """Score each training row by a model of all others; `evidence` is that of their texts, in the order of the rows.

    What a fit chose (the weights of features, the kernel, the ridge, the trees) stays as it was. Where there are many
    rows, scores may be `quick`.
    """
    decoder = model.decoder
    row_numbers(model)  # an error where it keeps none
    if decoder.names is not None and evidence is None:
        raise ParameterError(
            "this model reads the names of labels in texts, so it cannot leave out rows without them; use "
            "Tagger.audit, or Store.audit."
        )
    parts, done = [], 0
    for c, (cluster, solution) in enumerate(zip(model.clusters, model.solutions, strict=True)):
        found = _cluster_rows(model, cluster, str(solution["solver"]), n_jobs)
        parts.append(replace(found, group=found.group + done, cluster=np.full(len(found.group), c)))
        done += len(found.embeddings)
    order = np.argsort(np.concatenate([part.numbers for part in parts]), kind="stable")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])[order]
        for name in ("numbers", "group", "cluster", "place")
    }
    Y = scipy.sparse.vstack([part.Y for part in parts], format="csr")[order]
    embeddings = np.concatenate([part.embeddings for part in parts])
    rows = LeftOutRows(**joined, Y=Y, embeddings=embeddings, embedding=decoder.embedding)
    quick = quick and len(order) > _FEW and decoder.can_do_without_similar_rows
    _log.info("scoring %s rows without their own labels", f"{len(order):,}")
    return replace(rows, scores=rows.scored(model, np.arange(len(order)), n_jobs, evidence, quick), quick=quick)


def row_numbers(model: Model) -> Ints:
    """The numbers of the training rows that a model keeps, ascending; ParameterError if it keeps none."""
    kept = [cluster.searched_rows for cluster in model.clusters if cluster.searched_rows is not None]
    if not model.decoder.leaves_out or len(kept) < len(model.clusters):
        raise ParameterError(
            "this model keeps no training rows that could be left out; fit one with decoder='blend', as by default."
        )
    if not model.n_rows:
        raise DataError("this model has no training rows: all were forgotten.")
    return np.sort(np.concatenate([rows.numbers[_alive_places(rows)] for rows in kept]))


def training_labels(model: Model) -> Any:
    """The labels of the training rows that a model keeps, CSR (n, L), in the order of `row_numbers`."""
    sets, numbers = [], []
    for cluster in model.clusters:
        if cluster.rows is not None:
            places = _alive_places(cluster.rows)
            sets.append(wide(cluster.index.sets, len(model.vocabulary))[cluster.rows.set_of_row[places]])
            numbers.append(cluster.rows.numbers[places])
    return scipy.sparse.vstack(sets, format="csr")[np.argsort(np.concatenate(numbers), kind="stable")]


def _cluster_rows(model: Model, cluster: Cluster, solver: str, n_jobs: int | None) -> LeftOutRows:
    """The rows of one cluster, without scores."""
    rows, embedding = cluster.rows, model.decoder.embedding
    assert rows is not None
    alive, sets = _alive_places(rows), wide(cluster.index.sets, len(model.vocabulary))
    group = Copies.of(rows.X.take(alive)).group
    distinct = _distinct(rows, alive, group, lambda labels: embedding.targets(labels, n_jobs))
    labels = scipy.sparse.csr_array(distinct.mean(sets, rows.set_of_row[distinct.ordered]))
    return LeftOutRows(
        numbers=rows.numbers[alive],
        Y=sets[rows.set_of_row[alive]],
        group=group,
        cluster=np.zeros(len(alive), np.int64),
        place=alive,
        embeddings=cluster.regression.left_out(distinct, labels, solver, model.seed % 2**32, n_jobs),
        embedding=embedding,
    )


def _alive_places(rows: TrainingRows) -> Ints:
    """The places of rows that were not forgotten."""
    return np.arange(len(rows)) if rows.alive is None else np.flatnonzero(rows.alive)


def _distinct(rows: TrainingRows, alive: Ints, group: Ints, embed: Callable[[Any], Any]) -> DistinctRows:
    """The distinct ones of rows at the places `alive`, of which those of the same group are copies."""
    counts, order = np.bincount(group), np.argsort(group, kind="stable")
    first = alive[order[np.cumsum(counts) - counts]]
    return DistinctRows(rows.X.take(first), counts, alive[order], embed)
