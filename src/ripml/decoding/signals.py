"""Signals about candidate labels: what the regression, the neighbours and the label itself say.

    value      ⟨Φ_l, ẑ⟩ of the regression, by least squares on the candidates where labels share dimensions
    votes      of the label sets near in the embedding
    similar    of training rows with similar features
    local      kernel ridge on the rows most similar to the query, see `ripml.regression.kernels.Local`
    frequency, rank, best, third, total
               how often the label was seen, and where its value stands among those of its row
    cooccurrence
               how strongly the other candidates a support the label: max_a s_a · p(l | a), with s_a the mean of the
               signals above, and p(l | a) the share of the near rows with label a that have l as well
    nearest, tenth
               the kernel of the query with the most similar row, and with the tenth: what near rows say is worth less
               where none is very near
    named, count, early, …, precision, hits
               the names of the label in the text, see `ripml.decoding.evidence` and `ripml.decoding.names`

Votes, similar rows and local rows are sums over examples, signal_l = Σ_i w_i y_il. `Examples` holds the weights w once:
a signal is their tally, and an explanation reads the same weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import csr_of
from ripml.base.compiled import loops
from ripml.base.parallel import blocks, map_blocks
from ripml.decoding import scores as scoring
from ripml.decoding.blend import LEARNT, SLOPE, Candidates, Trees, steps_of
from ripml.decoding.embedding import SketchEmbedding
from ripml.decoding.evidence import Evidence, apart
from ripml.decoding.fitted import Arrays, Cluster, Contributions, FittedDecoder, LeftOut, Surroundings
from ripml.decoding.names import RARE, NameModel, candidate_signals
from ripml.decoding.names import proposed as proposed_by_names
from ripml.decoding.sketch import least_squares, sketch_values
from ripml.decoding.training_rows import TrainingRows
from ripml.decoding.votes import entries, identity, softmax, tally
from ripml.labels.projection import LabelVectors
from ripml.regression.kernels import Local, squared_lengths

__all__ = ["DENSE_LABELS", "FittedBlend", "FittedSignals", "SingleSignal"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Result = TypeVar("Result")

CLOSENESS = ("nearest", "tenth")
OF_LABEL_AND_ROW = ("frequency", "rank", "best", "third", "total")  # the signals of `_standing`
_TENTH = 10
_NEAR, _WIDER, _WIDER_TEMPERATURE = 200, 1000, 0.3  # examples that speak of labels beyond the candidates
_COOCCURRENCE_PRIOR = np.float32(0.05)  # weight of near rows in which a label occurs with no other
_PARTS, _LEAST_BLOCK = 4, 4  # into which a batch is cut at least, but not smaller than so many rows
_ROW_BLOCK = 256
_LIFT_OF_UNSEEN = np.float32(0.05)  # of labels without a row among the candidates, where names propose them
TIE = np.float32(4e-3)  # twice the difference of values below which their ranks are shared
DENSE_LABELS = 8192  # up to here the values of all labels cost less than looking up the columns of candidates


@dataclass(frozen=True)
class Examples:
    """Examples that vote for their labels: numbers (n, k) of label sets or of rows, and their weights (n, k)."""

    numbers: Ints
    weights: NDArray[np.float64]
    sets: Ints  # (n, k) the label set of each
    nearness: NDArray[np.float64] | None = None  # (n, k) weights ≥ 0, where others may be negative
    closeness: Floats | None = None  # (n, 2) the kernel of the most similar of them, and of the tenth

    def tally(self, sets: Any) -> Any:
        """The signal, CSR (n, L), of label `sets` (u, L)."""
        return tally(self.sets, self.weights, sets)

    def weights_of(self, n: int) -> Any:
        """The weights of all n examples, CSR (rows, n)."""
        return tally(self.numbers, self.weights, identity(0, n, n))


@dataclass(frozen=True)
class FittedSignals(FittedDecoder):
    """Scores of the candidate labels of each row, made of signals."""

    few_labels: bool  # the values of all labels are made, else those of candidates alone
    local: Local | None

    @abstractmethod
    def combined(self, candidates: Candidates, n_jobs: int | None) -> Floats:
        """The score of each candidate, (n, K) in [0, 1]."""

    @property
    def sketch(self) -> SketchEmbedding:
        """The embedding, of which signals are read."""
        assert isinstance(self.embedding, SketchEmbedding)
        return self.embedding

    @cached_property
    def _seen(self) -> NDArray[np.bool_]:
        """Labels that rows carry, (L,); others are never candidates."""
        return self.frequency > 0

    @cached_property
    def _unseen(self) -> Ints:
        """Labels that no row carries."""
        return np.flatnonzero(~self._seen)

    @property
    def leaves_out(self) -> bool:
        """Always."""
        return True

    @property
    def can_do_without_similar_rows(self) -> bool:
        """Where there is a kernel on similar rows, and neither names nor missing neighbours need it."""
        return self.local is not None and self.choices.n_neighbors > 0 and self.names is None

    def left_out_scores(self, cluster: Cluster, left_out: LeftOut, quick: bool, n_jobs: int | None) -> Any:
        """By all signals, or by those that need no similar rows."""
        decoder = self._without_similar_rows() if quick else self
        candidates = decoder.candidates(cluster, left_out.X, n_jobs, left_out)
        scores = candidates.simple_score() if quick else decoder.combined(candidates, n_jobs)
        return scoring.as_scores(candidates.labels, scores, len(self.frequency))

    def _without_similar_rows(self) -> FittedSignals:
        return replace(self, local=None, choices=replace(self.choices, n_similar=0, cooccurrence=False))

    def check(self, clusters: Sequence[Cluster]) -> None:
        """Something must propose candidates, and rows must be there where they vote."""
        choices = self.choices
        if choices.n_candidates < 1 or (not choices.n_neighbors and not self.sketch.exact and not self.few_labels):
            raise ValueError("nothing proposes candidates")
        if (choices.n_similar or self.local) and any(c.rows is None or not c.rows.searched for c in clusters):
            raise ValueError("the rows that vote are missing")
        if choices.cooccurrence and not self.local:
            raise ValueError("there are no near rows in which labels could occur together")

    def _expect(self, cluster: Cluster, n_rows: int) -> None:
        """Have the regression make what proposes candidates, once that pays."""
        if not self.choices.n_neighbors and self.few_labels and self.sketch.columns.table is not None:
            cluster.regression.expect(n_rows, self.sketch.columns.table)

    def cluster_scores(self, cluster: Cluster, X: Any, n_jobs: int | None) -> Any:
        """Scores of the candidates."""
        self._expect(cluster, X.shape[0])
        candidates = self.candidates(cluster, X, n_jobs)
        return scoring.as_scores(candidates.labels, self.combined(candidates, n_jobs), len(self.frequency))

    def candidates(
        self,
        cluster: Cluster,
        X: Any,
        n_jobs: int | None,
        left_out: LeftOut | None = None,
    ) -> Candidates:
        """The best candidates of feature rows X with their signals; `left_out` says which training rows these are."""
        X, evidence = apart(X) if left_out is None else (X, left_out.evidence)

        def of_block(rows: Any, block: slice) -> Candidates:
            some = None if left_out is None else left_out[block]
            Z, likeness = self._predicted(cluster, rows, None if some is None else some.Z, 1)
            return self._candidates(cluster, rows, Z, likeness, some, None if evidence is None else evidence[block])

        return Candidates.joined(self._map_blocks(of_block, cluster, X, n_jobs))

    def _map_blocks(
        self, function: Callable[[Any, slice], Result], cluster: Cluster, X: Any, n_jobs: int | None
    ) -> list[Result]:
        """`function` of blocks of rows of X, and of where these are in X.

        Small batches are cut as well, by their number of rows alone: rounding must not depend on the threads. A block
        stays on one thread from its kernel to its candidates.
        """
        n = X.shape[0]
        if self.choices.n_neighbors:
            cluster.index.searchers.get()  # made before threads need them
        if n <= _LEAST_BLOCK:
            return [function(X, slice(0, n))]
        size = min(self._rows_at_a_time(cluster), max(_LEAST_BLOCK, -(-n // _PARTS)))
        return map_blocks(lambda block: function(X[block], block), blocks(n, size), n_jobs)

    @staticmethod
    def _rows_at_a_time(cluster: Cluster) -> int:
        searched = cluster.rows is not None and cluster.rows.searched
        return cluster.rows.rows_at_a_time if searched and cluster.rows is not None else _ROW_BLOCK

    @staticmethod
    def _predicted(
        cluster: Cluster, X: Any, embedding: Floats | None, n_jobs: int | None
    ) -> tuple[Floats, Floats | None]:
        """ẑ, unless it is given, and the likeness of rows X with the training rows, where the regression needs it."""
        rows = cluster.rows
        likeness = None if rows is None or cluster.regression.kernel.linear else rows.likeness(X, n_jobs)
        if embedding is None:
            embedding = cluster.regression.predict(X, likeness, None if rows is None else rows.alive, n_jobs)
        return embedding.astype(np.float32, copy=False), likeness

    # --------------------------------------------------------------------------------------------------------- signals

    def _examples(
        self, cluster: Cluster, X: Any, Z: Floats, likeness: Floats | None, left_out: LeftOut | None
    ) -> dict[str, Examples]:
        """The examples that vote: label sets near to ẑ, and training rows near to x."""
        choices, rows, found = self.choices, cluster.rows, dict[str, Examples]()
        if choices.n_neighbors:
            queries = self.sketch.queries(Z, cluster.index.search_shape[1])
            own_sets = None if left_out is None else left_out.sets
            near = cluster.index.nearest(queries, choices.n_neighbors, 1, own_sets)
            weights = softmax(near.similarity, choices.temperature, near.rows)
            found["votes"] = Examples(near.sets, weights, near.sets)
        local = self.local
        if rows is not None and rows.searched and (choices.n_similar or local):
            k = max(choices.n_similar, local.n_rows if local else 0)
            own = None if left_out is None else left_out.rows
            ids, similarity = rows.nearest(X, k, own) if likeness is None else rows.most_similar(likeness, k, own)
            lengths = squared_lengths(X)
            if choices.n_similar:
                near_ids, value = rows.first(ids, similarity, choices.n_similar)
                weights = self._nearness(rows, value, lengths)
                found["similar"] = Examples(near_ids, weights, rows.set_of_row[near_ids])
            if local:
                near_ids, value = rows.first(ids, similarity, local.n_rows)
                (weights,) = rows.local_weights(near_ids, value, lengths, [local])
                nearness = closeness = None
                if choices.cooccurrence:
                    nearness = self._nearness(rows, value, lengths)
                    closeness = _closeness(rows.kernel.of_likeness(value, lengths))
                found["local"] = Examples(near_ids, weights, rows.set_of_row[near_ids], nearness, closeness)
        return found

    def _nearness(self, rows: TrainingRows, likeness: Floats, lengths: Floats) -> NDArray[np.float64]:
        """The weights of rows by their likeness (n, k) to queries of these squared lengths; together 1."""
        present = np.isfinite(likeness).astype(np.int64)
        value = rows.kernel.of_likeness(likeness, lengths).astype(np.float64)
        return softmax(value, self.choices.similar_temperature, present)

    def _candidates(
        self,
        cluster: Cluster,
        X: Any,
        Z: Floats,
        likeness: Floats | None,
        left_out: LeftOut | None,
        evidence: Evidence | None,
    ) -> Candidates:
        """The candidates of one block of rows."""
        choices, embedding, sets = self.choices, self.sketch, cluster.index.sets
        n_learners = np.float32(embedding.projection.n_learners)
        examples = self._examples(cluster, X, Z, likeness, left_out)
        values, proposed = self._proposals(cluster, X if left_out is None else None, Z, examples)
        lifts, own_labels = np.zeros(proposed.shape, np.float32), None
        if left_out is not None:
            first, *copies = left_out.sets.reshape(len(Z), -1).T
            own_labels = sum((sets[some] for some in copies), sets[first])
        said = None
        if evidence is not None and self.names is not None:
            said = self.names.signals(evidence, self.frequency, own_labels)
            named, probability = proposed_by_names(evidence, said["named"])
            # A name alone weighs as much as all other signals together. A label without a row has no other signal, so
            # that hundreds of labels with a few votes each would be ahead of it.
            lift = np.float32(1 + len(examples)) * probability
            lift[self._seen_by_others(named, own_labels) == 0] += _LIFT_OF_UNSEEN
            proposed, lifts = np.hstack([proposed, named]), np.hstack([lifts, lift])
        labels, table, margin = best_candidates(
            examples, sets, proposed, lifts, values, Z, embedding.columns, n_learners, choices.n_candidates
        )
        seen = self._seen_by_others(labels, own_labels)
        valued = labels
        if said is not None:  # the regression knows nothing of labels without a row
            valued = np.where(seen > 0, labels, -1)
            table["value"] = np.where(seen > 0, table["value"], np.float32(0))
        if choices.epsilon is not None:
            table["value"] = least_squares(Z, valued, embedding.columns, [choices.epsilon])[0]
        table |= _standing(table["value"], labels, seen)
        if choices.cooccurrence:
            simple = Candidates(labels, table).simple_score()
            table["cooccurrence"] = cooccurrence(labels, simple, *near_sets(examples), sets)
            closeness = closeness_of(examples, len(Z))
            table |= {
                name: np.broadcast_to(column[:, None], labels.shape)
                for name, column in zip(CLOSENESS, closeness.T, strict=False)
            }
        if evidence is not None and said is not None:
            table |= candidate_signals(evidence, said, labels)
        return Candidates(labels, table, margin)

    def _seen_by_others(self, labels: Ints, own_labels: Any | None) -> Ints:
        """How many rows have labels (n, K); CSR `own_labels` (n, L) are those of rows that are left out, with their
        copies."""
        seen: Ints = self.frequency[labels]
        if own_labels is not None:
            # A label of a row that is left out was seen once less. Where few labels are seen that often, one less would
            # give it away; and there it hardly matters.
            seen = seen - np.where(seen <= RARE, scoring.values_at(own_labels, labels), 0).astype(np.int64)
        return seen

    def _proposals(
        self, cluster: Cluster, X: Any, Z: Floats, examples: Mapping[str, Examples]
    ) -> tuple[Floats | None, Ints]:
        """The values of labels, (n, ≤ L), where they are known or nothing else proposes candidates; and the labels that
        they propose, (n, P). X is None for rows that are left out: their ẑ is not that of the regression."""
        embedding, k = self.sketch, self.choices.n_candidates + 1
        if embedding.exact:
            return Z, self._proposed(Z)
        if examples or not self.few_labels:
            return None, np.empty((len(Z), 0), np.int64)
        columns = embedding.columns
        if loops() is not None and columns.table is not None and k <= int(np.count_nonzero(self._seen)):
            likely = None if X is None else cluster.regression.likely_labels(X, Z, columns.table, self._seen, k)
            likely = columns.largest(Z, k, self._unseen) if likely is None else likely
            if likely is not None:
                return None, likely
        values = columns.values(Z) / np.float32(embedding.projection.n_learners)
        return values, self._proposed(values)

    def _proposed(self, values: Floats) -> Ints:
        """The labels of the largest values, one more than are kept, (n, K + 1): the margin of the last is known then.

        −1 in place of a label that no row carries.
        """
        offered = values
        if len(self._unseen):
            offered = values.copy()
            offered[:, self._unseen[self._unseen < values.shape[1]]] = -np.inf
        best = scoring.largest(offered, min(self.choices.n_candidates + 1, values.shape[1]))
        return np.where(np.isfinite(np.take_along_axis(offered, best, axis=1)), best, -1)

    # ------------------------------------------------------------------------------------------- beyond the candidates

    def surroundings(self, cluster: Cluster, X: Any, left_out: LeftOut | None = None) -> Surroundings:
        """ẑ, and the labels of many similar rows; or of many label sets near in the embedding, without such rows."""
        X, _ = apart(X)
        rows, sets = cluster.rows, cluster.index.sets
        Z, likeness = self._predicted(cluster, X, None if left_out is None else left_out.Z, 1)
        if rows is not None and rows.searched:
            own = None if left_out is None else left_out.rows
            found = rows.nearest(X, _WIDER, own) if likeness is None else rows.most_similar(likeness, _WIDER, own)
            kernel = rows.kernel.of_likeness(found[1], squared_lengths(X)).astype(np.float64)
            near, weights = rows.set_of_row[found[0]], np.where(np.isfinite(found[1]), np.maximum(kernel, 0), 0)
        elif self.choices.n_neighbors:
            queries = self.sketch.queries(Z, cluster.index.search_shape[1])
            nearest = cluster.index.nearest(queries, _WIDER, 1, None if left_out is None else left_out.sets)
            near, weights = nearest.sets, softmax(nearest.similarity, _WIDER_TEMPERATURE, nearest.rows)
        else:
            return Surroundings(Z, self.sketch)
        shares = [
            tally(some, weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-12), sets)
            for some, weight in ((near[:, :_NEAR], weights[:, :_NEAR]), (near, weights))
        ]
        return Surroundings(Z, self.sketch, *shares)

    # ---------------------------------------------------------------------------------------------------- explanations

    def contributions(
        self, clusters: Sequence[Cluster], X: Any, near: Ints, rows: Ints, n_jobs: int | None
    ) -> Iterator[tuple[int, Contributions]]:
        """The weights of the examples, cluster by cluster."""
        starts = np.cumsum([0, *(cluster.index.sets.shape[0] for cluster in clusters)])
        for c, cluster in enumerate(clusters):
            mine = rows[near[rows, 0] == c]
            for block in blocks(len(mine), self._rows_at_a_time(cluster)):
                some = mine[block]
                yield from zip(some.tolist(), self._of_block(c, cluster, int(starts[c]), X[some], n_jobs), strict=True)

    def _of_block(self, c: int, cluster: Cluster, start: int, X: Any, n_jobs: int | None) -> Iterator[Contributions]:
        features, evidence = apart(X)
        Z, likeness = self._predicted(cluster, features, None, n_jobs)
        # Examples are chosen in a copy, where rows that cannot be found are marked.
        found = self._examples(cluster, features, Z, None if likeness is None else likeness.copy(), None)
        weights = {}
        for name, examples in found.items():
            n = cluster.index.sets.shape[0] if name == "votes" else len(cluster.rows or ())
            if name != "votes" or self.reads("votes"):
                weights[name] = examples.weights_of(n)
        labels = self.candidates(cluster, X, n_jobs).labels if self.choices.epsilon is not None else None
        for i in range(X.shape[0]):
            said = {name: entries(matrix, i) for name, matrix in weights.items()}
            if "votes" in said:
                said["votes"] = (-1 - (said["votes"][0] + start), said["votes"][1])
            yield Contributions(
                cluster=c,
                examples=said,
                likeness=None if likeness is None else likeness[i],
                candidates=None if labels is None else self._valued(labels[i]),
                named=self._named(evidence, i),
            )

    def _valued(self, labels: Ints) -> Ints:
        """Of the candidates of a row, those that the regression has a value for."""
        labels = labels[labels >= 0]
        return labels[self.frequency[labels] > 0]

    def _named(self, evidence: Evidence | None, row: int) -> dict[int, float]:
        """The labels that have a name in the text of a row, and the probabilities that these are right."""
        if evidence is None or self.names is None:
            return {}
        mine = evidence[row : row + 1]
        named = self.names.signals(mine, self.frequency, None)["named"]
        return dict(zip(mine.labels.tolist(), named.tolist(), strict=True))

    def functionals(self, labels: Ints, candidates: Ints | None) -> NDArray[Any] | None:
        """A unit vector (identity), Φ_l/F (sketch), or a row of (Φ_SᵀΦ_S + εI)⁻¹Φ_Sᵀ (least squares on S)."""
        embedding, epsilon = self.sketch, self.choices.epsilon
        if candidates is None or epsilon is None:
            if embedding.own_dimensions:
                return None
            return np.asarray(embedding.columns(labels) / np.float32(embedding.projection.n_learners))
        S = np.union1d(candidates, labels)
        Phi: NDArray[Any] = embedding.columns(S).astype(np.float64)
        solved = np.linalg.solve(Phi @ Phi.T + epsilon * np.eye(len(S)), Phi)
        return np.asarray(solved[np.searchsorted(S, labels)], np.float32)


@dataclass(frozen=True)
class SingleSignal(FittedSignals):
    """One signal is the score."""

    signal: str

    def reads(self, signal: str) -> bool:
        """That signal alone."""
        return signal == self.signal

    def combined(self, candidates: Candidates, n_jobs: int | None) -> Floats:
        """The signal, in [0, 1]."""
        return np.clip(candidates.signals[self.signal], 0, 1)


@dataclass(frozen=True)
class FittedBlend(FittedSignals):
    """All signals weighed by trees into the probability that the label is right."""

    trees: Trees | None
    name_model: NameModel | None = None

    @property
    def names(self) -> NameModel | None:
        """The model of names, where evidence came with the training rows."""
        return self.name_model

    def with_names(self, names: NameModel) -> FittedBlend:
        """With this model of names."""
        return replace(self, name_model=names)

    def reads(self, signal: str) -> bool:
        """Every signal."""
        return True

    def combined(self, candidates: Candidates, n_jobs: int | None) -> Floats:
        """The trees' probability."""
        return candidates.scores(self.trees, n_jobs)

    @cached_property
    def _compiled(self) -> bool:
        """Whether there is one call for all that follows the examples."""
        known = self.sketch.exact or self.sketch.columns.kept is not None
        few = self.choices.n_candidates <= self.sketch.n_targets
        return loops() is not None and self.trees is not None and self.names is None and known and few

    def needs_blas(self, clusters: Sequence[Cluster], X: Any) -> bool:
        """Not for sparse rows, where loops are compiled and the regression does without."""
        if self.local is not None or not self._compiled or not scipy.sparse.issparse(X):
            return True
        return any(cluster.regression.needs_blas for cluster in clusters)

    def cluster_scores(self, cluster: Cluster, X: Any, n_jobs: int | None) -> Any:
        """Scores of the candidates; where loops are compiled, from the examples on in one call."""
        if not self._compiled:
            return super().cluster_scores(cluster, X, n_jobs)
        X, _ = apart(X)
        self._expect(cluster, X.shape[0])
        compiled, trees, choices, sets = loops(), self.trees, self.choices, cluster.index.sets
        n_kept, nothing = choices.n_candidates, np.empty((0, 0), np.float32)
        Phi = nothing if self.sketch.exact else self.sketch.columns.kept
        assert trees is not None

        def of_block(rows: Any, block: slice) -> tuple[Ints, NDArray[np.float64], Ints]:
            Z, likeness = self._predicted(cluster, rows, None, 1)
            examples = self._examples(cluster, rows, Z, likeness, None)
            values, proposed = self._proposals(cluster, rows, Z, examples)
            n, near, nearness = len(Z), np.empty((len(Z), 0), np.int64), np.empty((len(Z), 0))
            closeness, later = np.empty((n, 0), np.float32), tuple[str, ...]()
            if choices.cooccurrence:
                near, nearness = near_sets(examples)
                closeness = closeness_of(examples, n)
                later = ("cooccurrence", *CLOSENESS[: closeness.shape[1]])
            indices, data, ends = np.empty(n * n_kept, np.int64), np.empty(n * n_kept), np.zeros(n + 1, np.int64)
            compiled.blended_scores(
                sets.indptr, sets.indices, *_side_by_side(examples, n), proposed, nothing if values is None else values,
                Z, Phi, np.float32(self.sketch.projection.n_learners), np.float32(choices.epsilon or 0),
                self.frequency, TIE, trees.feature, trees.threshold, trees.value, trees.start,
                *steps_of(("value", *examples, *OF_LABEL_AND_ROW, *later)), LEARNT, SLOPE, near, nearness, closeness,
                choices.cooccurrence, _COOCCURRENCE_PRIOR, n_kept, indices, data, ends,
            )  # fmt: skip
            return indices[: ends[-1]], data[: ends[-1]], ends

        return _joined_scores(self._map_blocks(of_block, cluster, X, n_jobs), len(self.frequency))

    def arrays(self) -> Arrays:
        """The trees, and the model of names."""
        trees = {} if self.trees is None else self.trees.to_arrays()
        return trees if self.names is None else trees | self.names.to_arrays()

    def facts(self) -> dict[str, Any]:
        """The number of trees."""
        return {"trees": 0 if self.trees is None else len(self.trees.value)}


def best_candidates(
    examples: Mapping[str, Examples],
    sets: Any,
    proposed: Ints,
    lifts: Floats,
    values: Floats | None,
    Z: Floats,
    columns: LabelVectors,
    n_learners: Any,
    n_kept: int,
) -> tuple[Ints, dict[str, Floats], Floats]:
    """The labels that examples carry or that are `proposed` (n, P), the `n_kept` best by the sum of their signals.

    To the sum of a proposed label its `lifts` (n, P) are added.

    Returns the labels (n, K), −1 for none; their signals; and by how much each is ahead of the best that is not kept.
    `values` (n, ≤ L) has the values of labels; without it they are ⟨Φ_l, ẑ⟩ by the `columns` of Phi.
    """
    n, compiled = len(Z), loops()
    if compiled is None or (values is None and columns.kept is None):
        return _best_candidates(examples, sets, proposed, lifts, values, Z, columns, n_learners, n_kept)
    labels, margin = np.empty((n, n_kept), np.int64), np.empty((n, n_kept), np.float32)
    signals = np.empty((len(examples) + 1, n, n_kept), np.float32)
    nothing = np.empty((0, 0), np.float32)
    compiled.candidates(
        sets.indptr, sets.indices, *_side_by_side(examples, n), proposed, lifts, nothing if values is None else values,
        Z, nothing if values is not None else columns.kept, n_learners, labels, signals, margin,
    )  # fmt: skip
    return labels, dict(zip(("value", *examples), signals, strict=True)), margin


def near_sets(examples: Mapping[str, Examples]) -> tuple[Ints, NDArray[np.float64]]:
    """The label sets of the rows near to each query, (n, k), by which co-occurrence is judged, and their weights."""
    found = examples["local"]
    return found.sets, found.weights if found.nearness is None else found.nearness


def closeness_of(examples: Mapping[str, Examples], n: int) -> Floats:
    """How near the near rows of n queries are, see `Examples`: (n, 2), or (n, 0) where it is not known."""
    found = examples["local"].closeness if "local" in examples else None
    return np.empty((n, 0), np.float32) if found is None else found


def _closeness(kernel: Floats) -> Floats:
    """The largest and the tenth largest value of each line of (n, k); 0 where there are fewer.

    >>> _closeness(np.array([[0.5, 0.75, np.nan]], np.float32)).tolist()
    [[0.75, 0.0]]
    """
    values = np.zeros((len(kernel), max(kernel.shape[1], _TENTH)), np.float32)
    values[:, : kernel.shape[1]] = np.where(np.isfinite(kernel), kernel, 0)
    places = [values.shape[1] - _TENTH, values.shape[1] - 1]
    return np.partition(values, places, axis=1)[:, places[::-1]]


def cooccurrence(labels: Ints, simple: Floats, near: Ints, weights: NDArray[np.float64], sets: Any) -> Floats:
    """max_a s_a · p(l | a) for the candidates (n, K), of scores s = `simple`, and 0 for missing ones.

    With w the weights of the label sets `near` (n, k), p(l | a) = Σ w [a and l] / (Σ w [a] + 0.05).
    """
    out, compiled = np.zeros(labels.shape, np.float32), loops()
    if compiled is not None:
        compiled.cooccurrence(labels, simple, near, weights, sets.indptr, sets.indices, _COOCCURRENCE_PRIOR, out)
        return out
    for i, mine in enumerate(labels):
        present = mine >= 0
        has = sets[near[i]][:, np.where(present, mine, 0)].toarray().astype(bool) & present
        together = (has * weights[i][:, None]).T @ has
        share = together / (together.diagonal()[:, None] + _COOCCURRENCE_PRIOR)
        np.fill_diagonal(share, 0)
        out[i] = (np.clip(simple[i], 0, 1)[:, None] * share).max(axis=0, initial=0)
    return out


def _side_by_side(examples: Mapping[str, Examples], n: int) -> tuple[Ints, NDArray[np.float64], Ints]:
    """The label sets and weights of all examples of n rows, (n, k), and where those of each signal begin and end."""
    if not examples:
        return np.empty((n, 0), np.int64), np.empty((n, 0)), np.zeros(1, np.int64)
    sets = [some.sets for some in examples.values()]
    bounds = np.cumsum([0, *(some.shape[1] for some in sets)])
    return np.concatenate(sets, axis=1), np.concatenate([some.weights for some in examples.values()], axis=1), bounds


def _joined_scores(parts: Sequence[tuple[Ints, NDArray[np.float64], Ints]], n_labels: int) -> Any:
    """Scores, CSR (n, L), of the columns, values and ends of blocks of rows."""
    if len(parts) == 1:
        return csr_of(parts[0][1], parts[0][0], parts[0][2], n_labels)
    starts = np.cumsum([0, *(ends[-1] for _, _, ends in parts)])
    ends = np.concatenate([[0], *(ends[1:] + start for (_, _, ends), start in zip(parts, starts, strict=False))])
    indices, data = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return csr_of(data, indices, ends, n_labels)


def _best_candidates(
    examples: Mapping[str, Examples],
    sets: Any,
    proposed: Ints,
    lifts: Floats,
    values: Floats | None,
    Z: Floats,
    columns: LabelVectors,
    n_learners: Any,
    n_kept: int,
) -> tuple[Ints, dict[str, Floats], Floats]:
    tallies = {name: some.tally(sets) for name, some in examples.items()}
    L = sets.shape[1]
    keys = [_places(matrix) for matrix in tallies.values()]
    given = (np.arange(len(Z))[:, None] * L + proposed)[proposed >= 0]
    keys.append(np.sort(given))
    # The union of what each signal proposes, as sorted places row·L + label.
    places = np.sort(np.concatenate(keys), kind="stable")  # runs that are sorted already
    places = places[np.append(True, places[1:] != places[:-1])] if len(places) else places
    row, label = np.divmod(places, L)
    if values is None:
        value = sketch_values(Z, row, label, columns) / n_learners
    else:  # labels that no row carries may have no value
        value = np.where(label < values.shape[1], values[row, np.minimum(label, values.shape[1] - 1)], np.float32(0))
    signals = {"value": value}
    for (name, matrix), key in zip(tallies.items(), keys, strict=False):
        signals[name] = np.zeros(len(places), np.float32)
        signals[name][np.searchsorted(places, key)] = matrix.data
    # Of these the best are kept, by the sum of the signals.
    ends = np.searchsorted(row, np.arange(len(Z) + 1))
    total = np.sum(list(signals.values()), axis=0)
    np.add.at(total, np.searchsorted(places, given), lifts[proposed >= 0])
    best = scoring.best_of_rows(total, ends, n_kept + 1)
    kept = best[:, :n_kept]
    # −1, for none, is the place of what is appended; a row may have no candidate at all.
    labels = np.append(label, -1)[kept]
    table = {name: np.append(signal, np.float32(0))[kept] for name, signal in signals.items()}
    return labels, table, scoring.margins(total, best)


def _standing(value: Floats, labels: Ints, seen: Ints) -> dict[str, Floats]:
    """How often a label was seen, and where its value stands among those of its row."""
    compiled = loops()
    if compiled is not None:
        rank, (best, third, total) = np.empty(value.shape, np.float32), np.empty((3, len(value)), np.float32)
        compiled.standing(np.ascontiguousarray(value), labels, TIE, rank, best, third, total)
        of_row = {"best": best, "third": third, "total": total}
        wide = {name: np.broadcast_to(column[:, None], rank.shape) for name, column in of_row.items()}
        return {"frequency": seen.astype(np.float32), "rank": rank, **wide}
    value = np.where(labels >= 0, value, -np.inf)
    order = np.argsort(-value, axis=1, kind="stable")
    rank = np.empty(value.shape, np.float32)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(value.shape[1], dtype=np.float32), rank.shape), axis=1)
    ordered = np.take_along_axis(value, order, axis=1)
    np.put_along_axis(rank, order, np.take_along_axis(rank, order, axis=1) + _near_ties(ordered), axis=1)
    of_row = {
        "best": ordered[:, 0],
        "third": ordered[:, min(2, value.shape[1] - 1)],
        "total": np.maximum(ordered, 0).sum(axis=1),
    }
    wide = {name: np.broadcast_to(np.where(np.isfinite(c), c, 0)[:, None], rank.shape) for name, c in of_row.items()}
    return {"frequency": seen.astype(np.float32), "rank": rank, **wide}


def _near_ties(ordered: Floats) -> Floats:
    """What to add to the ranks 0, 1, … of values in descending order (n, K), so that ranks change gradually.

    Of two values that differ by less than half of `TIE`, each ranks partly before the other, and equal ones half.
    """
    added = np.zeros(ordered.shape, np.float32)
    for shift in range(1, ordered.shape[1]):
        with np.errstate(invalid="ignore"):  # −∞ − −∞ of missing candidates
            apart = ordered[:, :-shift] - ordered[:, shift:]
        share = np.where(apart < TIE / 2, 0.5 - apart / TIE, np.float32(0))
        if not share.any():
            break
        added[:, :-shift] += share
        added[:, shift:] -= share
    return added


def _places(matrix: Any) -> Ints:
    """row·L + column of the entries of a CSR matrix with sorted indices."""
    row = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return np.asarray(row * matrix.shape[1] + matrix.indices)
