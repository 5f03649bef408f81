"""Every training row, left out of the model that scores it.

Rows with the same features are copies, and a row is left out together with its copies: else its own labels would speak
for it under another number. A row that occurs c times is √c times the row and its mean target to a ridge regression,
so that leaving out one such row leaves out all copies. With K + alpha I the matrix of distinct rows, C their
coefficients and a the diagonal of its inverse,

    kernel   ẑ₋ᵢ = zᵢ − cᵢ / aᵢ
    linear   ẑ₋ᵢ = zᵢ − (zᵢ − ẑᵢ)/(1 − hᵢ),   by the solver that the model was fitted with
    linear, solved by iterations   ẑ₋ᵢ by a regression on the half of the rows without i

Neighbours, similar rows and frequencies then count without the row, as for the rows that a fit leaves out.

Above 20,000 rows most of the time goes to similar rows: finding them, and a kernel among the nearest of each. `quick`
scores do without, and `LeftOutRows.scored` makes the others for those rows alone for which they matter.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.base.parallel import blocks
from ripml.base.products import dense, predict_embedding
from ripml.decoding.embedding import SketchEmbedding
from ripml.decoding.evidence import Evidence
from ripml.decoding.fitted import LeftOut
from ripml.decoding.label_set_index import wide
from ripml.decoding.scores import as_scores
from ripml.decoding.signals import FittedSignals
from ripml.decoding.sketch import sketch_values
from ripml.decoding.training_rows import TrainingRows
from ripml.model.cluster import Cluster
from ripml.model.copies import Copies
from ripml.model.model import Model
from ripml.regression.kernel_ridge import inverse_diagonal, require_kernel_memory
from ripml.regression.regression import KernelRegression, with_ones

__all__ = ["ENOUGH_ROWS", "LeftOutRows", "leave_out_rows", "row_numbers", "training_labels"]

_log = logging.getLogger("ripml")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

ENOUGH_ROWS = 100  # what left-out rows of a model of fewer rows show is mostly chance

_SOLVED = 2048  # rows that are left out of a closed form at a time
_CG_STEPS = 12  # as many as a fit takes
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
    embedding: SketchEmbedding
    scores: Any = None  # CSR (n, L), of the candidates of each
    quick: bool = False  # whether these are of the regression and its neighbours alone

    def values(self, rows: Ints, labels: Ints) -> Floats:
        """What the regression says of pairs of a row and a label, (p,), also of labels that are not candidates."""
        Z, groups = self.embeddings, self.group[rows]
        if self.embedding.own_dimensions:
            known = labels < Z.shape[1]
            return np.asarray(np.where(known, Z[groups, np.where(known, labels, 0)], np.float32(0)))
        values = sketch_values(Z, groups, labels, self.embedding.columns)
        return np.asarray(values / np.float32(self.embedding.projection.n_learners))

    def scored(
        self, model: Model, rows: Ints, n_jobs: int | None, evidence: Evidence | None = None, quick: bool = False
    ) -> Any:
        """Scores of these rows, CSR (r, L), by all signals; or by the regression and its neighbours alone."""
        decoder, L = model.decoder, len(model.vocabulary)
        assert isinstance(decoder, FittedSignals)
        if quick:
            decoder = decoder.without_similar_rows()
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
            candidates = decoder.candidates(model.clusters[c], X, n_jobs, left_out)
            scores = candidates.simple_score() if quick else decoder.combined(candidates, n_jobs)
            found.append(as_scores(candidates.labels, scores, L))
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
    assert isinstance(decoder, FittedSignals)
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
    rows = LeftOutRows(**joined, Y=Y, embeddings=embeddings, embedding=decoder.sketch)
    quick = quick and len(order) > _FEW and decoder.can_do_without_similar_rows
    _log.info("scoring %s rows without their own labels", f"{len(order):,}")
    return replace(rows, scores=rows.scored(model, np.arange(len(order)), n_jobs, evidence, quick), quick=quick)


def row_numbers(model: Model) -> Ints:
    """The numbers of the training rows that a model keeps, ascending; ParameterError if it keeps none."""
    kept = [cluster.searched_rows for cluster in model.clusters if cluster.searched_rows is not None]
    if not isinstance(model.decoder, FittedSignals) or len(kept) < len(model.clusters):
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
    rows, decoder = cluster.rows, model.decoder
    assert rows is not None
    assert isinstance(decoder, FittedSignals)
    alive, sets = _alive_places(rows), wide(cluster.index.sets, len(model.vocabulary))
    distinct = _Distinct.of(rows, alive)
    return LeftOutRows(
        numbers=rows.numbers[alive],
        Y=sets[rows.set_of_row[alive]],
        group=distinct.of_row,
        cluster=np.zeros(len(alive), np.int64),
        place=alive,
        embeddings=_left_out_embeddings(model, cluster, solver, distinct, sets, n_jobs),
        embedding=decoder.sketch,
    )


def _alive_places(rows: TrainingRows) -> Ints:
    """The places of rows that were not forgotten."""
    return np.arange(len(rows)) if rows.alive is None else np.flatnonzero(rows.alive)


@dataclass(frozen=True)
class _Distinct:
    """The u distinct feature rows of n rows."""

    first: Ints  # (u,) the place of one row of each
    counts: Ints  # (u,)
    of_row: Ints  # (n,) the number of each row
    ordered: Ints  # (n,) the places of rows, copies side by side

    @classmethod
    def of(cls, rows: TrainingRows, alive: Ints) -> _Distinct:
        of_row = Copies.of(rows.X.take(alive)).group
        counts = np.bincount(of_row)
        order = np.argsort(of_row, kind="stable")
        starts = np.cumsum(counts) - counts
        return cls(alive[order[starts]], counts, of_row, alive[order])

    @property
    def roots(self) -> Floats:
        """√c, (u,)."""
        return np.sqrt(self.counts).astype(np.float32)

    def mean(self, rows: Any, numbers: Ints) -> Any:
        """The mean of `rows[numbers]`, CSR or dense, over the copies of each distinct row; `numbers` as `ordered`."""
        n, u = len(numbers), len(self.counts)
        if n == u:
            return rows[numbers]
        weights = np.repeat(1 / self.counts, self.counts).astype(np.float32)
        ends = np.concatenate([[0], np.cumsum(self.counts)])
        return scipy.sparse.csr_array((weights, np.arange(n), ends), shape=(u, n)) @ rows[numbers]


def _left_out_embeddings(
    model: Model, cluster: Cluster, solver: str, distinct: _Distinct, sets: Any, n_jobs: int | None
) -> Floats:
    """ẑ of each distinct row by a regression without it, (u, M)."""
    rows, regression, embedding = cluster.rows, cluster.regression, model.decoder.embedding
    assert rows is not None
    X, copied = rows.X.take(distinct.first), len(distinct.first) < len(distinct.of_row)
    labels = scipy.sparse.csr_array(distinct.mean(sets, rows.set_of_row[distinct.ordered]))
    n_targets = embedding.n_targets
    if isinstance(regression, KernelRegression):
        require_kernel_memory(len(distinct.first), n_targets)
        _log.info("leaving %s rows out of kernel ridge regression", f"{len(distinct.first):,}")
        K = regression.kernel.lower_triangle(X, n_jobs)
        if copied:
            K *= distinct.roots
            K *= distinct.roots[:, None]
        diagonal = inverse_diagonal(K, regression.ridge)
        del K
        coefficients = distinct.mean(regression.coefficients, distinct.ordered).astype(np.float32, copy=False)
        coefficients *= np.float32(regression.unit or 1) / diagonal[:, None]
        return np.asarray(dense(embedding.targets(labels, n_jobs)) - coefficients, np.float32)
    wide_X = with_ones(X)
    if copied:
        wide_X, labels = (_scaled(matrix, distinct.roots) for matrix in (wide_X, labels))
    targets = embedding.targets(labels, n_jobs)
    Z = np.empty((len(distinct.first), n_targets), np.float32)
    method = registry.named("solver", solver)
    if method.exact:
        _log.info("leaving %s rows out of ridge regression", f"{len(Z):,}")
        solution = method(precision="float32").prepare(wide_X, targets, n_jobs)(regression.ridge)
        for some in blocks(len(Z), _SOLVED):
            Z[some] = solution.left_out(np.arange(some.start, some.stop))
    else:
        half = np.random.default_rng(model.seed % 2**32).permutation(len(Z)) % 2 == 0
        for held in (np.flatnonzero(half), np.flatnonzero(~half)):
            _log.info("ridge regression without %s of %s rows", f"{len(held):,}", f"{len(Z):,}")
            seen = np.setdiff1d(np.arange(len(Z)), held)
            with warnings.catch_warnings():
                from sklearn.exceptions import ConvergenceWarning

                warnings.simplefilter("ignore", ConvergenceWarning)  # stopped on purpose, as by the fit
                solve = method(max_steps=_CG_STEPS).prepare(wide_X[seen], targets[seen], n_jobs, True)
                Psi = np.asarray(solve(regression.ridge).Psi, np.float32)
            Z[held] = predict_embedding(wide_X[held], Psi, n_jobs)
    return Z / distinct.roots[:, None] if copied else Z


def _scaled(rows: Any, factors: Floats) -> Any:
    """Rows, dense or CSR, times a factor each."""
    if not scipy.sparse.issparse(rows):
        return rows * factors[:, None]
    scaled = rows.copy()
    scaled.data *= np.repeat(factors, np.diff(rows.indptr))
    return scaled
