"""What every fitted decoder does: scores of labels for feature rows, and what contributed to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks, one_blas_thread
from ripml.decoding.embedding import LabelEmbedding, SketchEmbedding
from ripml.decoding.evidence import Evidence
from ripml.decoding.names import NameModel
from ripml.decoding.scores import at_pairs
from ripml.decoding.training_rows import TrainingRows
from ripml.labels.vocabulary import Vocabulary
from ripml.regression.regression import Regression

__all__ = ["Choices", "Cluster", "Contributions", "FittedDecoder", "LeftOut", "Surroundings"]

Ints = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]

_QUERY_BLOCK = 8192


class Cluster(Protocol):
    """What a decoder sees of a cluster."""

    @property
    def regression(self) -> Regression:
        """Features ↦ ẑ."""

    @property
    def index(self) -> Any:
        """The label sets: a `PointIndex` or a `DirectionIndex`, as the decoder's embedding has it."""

    @property
    def rows(self) -> TrainingRows | None:
        """The training rows that are kept."""


@dataclass(frozen=True)
class Choices:
    """The numbers of a decoder with every choice made."""

    n_neighbors: int  # label sets near in the embedding that vote; 0 for none
    temperature: float  # of their votes, exp((cos − max)/temperature)
    n_similar: int  # rows of similar features that vote; 0 for none
    similar_temperature: float
    epsilon: float | None  # of least squares on the candidates; None to leave values as they are
    n_candidates: int  # kept for each row
    # Whether labels that occur together among near rows support each other, and how near these are is a signal as well.
    cooccurrence: bool = False

    def __post_init__(self) -> None:
        counts = (self.n_neighbors, self.n_similar, self.n_candidates)
        widths = [self.temperature, self.similar_temperature, *([] if self.epsilon is None else [self.epsilon])]
        whole = all(type(count) is int and count >= 0 for count in counts) and type(self.cooccurrence) is bool
        if not whole or not all(type(width) is float and 0 < width < np.inf for width in widths):
            raise ValueError(f"the choices of the decoder are out of their range: {self}")


@dataclass(frozen=True)
class LeftOut:
    """Training rows of one cluster that were left out in turn: their labels, and their scores or what predicts them.

    Where rows are left out with c copies of the same features, `rows` and `sets` are (r, c).
    """

    truth: Any  # CSR (r, L)
    scores: Any = None  # CSR (r, L), where they are known already
    X: Any = None  # features
    Z: Any = None  # embeddings predicted without each row
    rows: Any = None  # places in the cluster
    sets: Any = None  # numbers of their label sets
    evidence: Evidence | None = None  # of their texts

    def __getitem__(self, some: slice) -> LeftOut:
        fields = (self.truth, self.scores, self.X, self.Z, self.rows, self.sets, self.evidence)
        return LeftOut(*(None if field is None else field[some] for field in fields))


@dataclass(frozen=True)
class Contributions:
    """What contributed to the scores of one row.

    An example is a training row of the row's own cluster, by its place, or a label set, by −1 − its number, where the
    sets of all clusters are numbered end to end.
    """

    cluster: int
    examples: dict[str, tuple[Ints, NDArray[np.float64]]]  # of each signal, the examples and their weights
    likeness: NDArray[Any] | None  # the kernel with all rows of the cluster, where the regression is by kernel
    candidates: Ints | None  # the labels that least squares sees
    named: dict[int, float] = field(default_factory=dict)  # the probability of labels that have a name in the text


@dataclass(frozen=True)
class Surroundings:
    """What is known about all labels of a block of rows: ẑ, and the labels of what is near, see `decoding.beyond`."""

    Z: NDArray[np.float32]
    embedding: SketchEmbedding
    near: Any = None  # CSR (n, L), weighed shares of the nearest examples that carry each label
    wider: Any = None  # … and of more of them

    @cached_property
    def values(self) -> NDArray[np.float32]:
        """⟨Φ_l, ẑ⟩ of all labels, (n, L)."""
        if not self.embedding.own_dimensions:
            values = self.embedding.columns.values(self.Z)
            return np.asarray(values / np.float32(self.embedding.projection.n_learners))
        out = np.zeros((len(self.Z), len(self.embedding.keys)), np.float32)
        out[:, : self.Z.shape[1]] = self.Z
        return out

    def at(self, rows: Ints, labels: Ints) -> list[NDArray[Any]]:
        """The value and the two shares of labels (p,) of these rows."""
        nothing, shares = np.zeros(len(rows)), (self.near, self.wider)
        found = [nothing if some is None else at_pairs(some, rows, labels) for some in shares]
        return [self.embedding.values(self.Z, rows, labels), *found]


@dataclass(frozen=True)
class FittedDecoder(ABC):
    """A decoder with its choices, for the labels of its embedding."""

    embedding: LabelEmbedding
    choices: Choices
    frequency: Ints  # (L,) training rows of each label

    @abstractmethod
    def reads(self, signal: str) -> bool:
        """Whether a signal ("votes", "value", ...) has a part in the scores."""

    @abstractmethod
    def cluster_scores(self, cluster: Cluster, X: Any, n_jobs: int | None) -> Any:
        """Scores, CSR (n, L), of feature rows by one cluster."""

    @abstractmethod
    def contributions(
        self, clusters: Sequence[Cluster], X: Any, near: Ints, rows: Ints, n_jobs: int | None
    ) -> Iterator[tuple[int, Contributions]]:
        """For each of these `rows` of X what contributes to its scores; `near` has the clusters near to each row."""

    @abstractmethod
    def functionals(self, labels: Ints, candidates: Ints | None) -> NDArray[Any] | None:
        """g (len(labels), M) with value = ⟨g_l, ẑ⟩; None where it is the label's own dimension of ẑ."""

    def surroundings(self, cluster: Cluster, X: Any, left_out: LeftOut | None = None) -> Surroundings:
        """What is known about all labels of a block of feature rows; `left_out` says which training rows these are.

        Only for decoders whose `leaves_out` is true.
        """
        raise NotImplementedError(f"{type(self).__name__} says nothing of labels beyond the candidates")

    def arrays(self) -> Arrays:
        """What it learnt, beside its choices."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What it learnt, in numbers for people."""
        return {}

    def check(self, clusters: Sequence[Cluster]) -> None:  # noqa: B027 - most need no check
        """ValueError where it does not fit to the clusters of a model that was loaded."""

    @property
    def leaves_out(self) -> bool:
        """Whether it scores training rows as if they had not been learnt."""
        return False

    @property
    def can_do_without_similar_rows(self) -> bool:
        """Whether a kernel on similar rows takes most of the time, and neighbours propose labels without it."""
        return False

    def left_out_scores(self, cluster: Cluster, left_out: LeftOut, quick: bool, n_jobs: int | None) -> Any:
        """Scores, CSR (r, L), of training rows that are left out; `quick`, by the regression and its neighbours alone.

        Only for decoders whose `leaves_out` is true.
        """
        raise NotImplementedError(f"{type(self).__name__} leaves no rows out")

    @property
    def names(self) -> NameModel | None:
        """What training rows say of the names of labels, where their texts are evidence."""
        return None

    def with_names(self, names: NameModel) -> FittedDecoder:
        """With another model of names; a decoder that does not read evidence stays as it is."""
        return self

    def with_neighbors(self, n_neighbors: int) -> FittedDecoder:
        """With another number of neighbours."""
        return replace(self, choices=replace(self.choices, n_neighbors=n_neighbors))

    def grown(self, vocabulary: Vocabulary, frequency: Ints, n_carried: int) -> FittedDecoder:
        """For more labels, or labels that more rows carry."""
        embedding = self.embedding
        if len(vocabulary) > len(embedding.keys) or n_carried > embedding.n_targets:
            embedding = embedding.grown(vocabulary, n_carried)
        grown = replace(self, embedding=embedding, frequency=frequency)
        return grown if self.names is None else grown.with_names(self.names.wide(len(frequency)))

    def kept(self, embedding: LabelEmbedding, labels: Ints) -> FittedDecoder:
        """For these of the labels alone, whose embedding is given."""
        kept = replace(self, embedding=embedding, frequency=self.frequency[labels])
        return kept if self.names is None else kept.with_names(self.names.kept(labels))

    def emptied(self) -> FittedDecoder:
        """As it is without a training row."""
        emptied = replace(self, frequency=np.zeros_like(self.frequency))
        return emptied if self.names is None else emptied.with_names(self.names.emptied())

    def needs_blas(self, clusters: Sequence[Cluster], X: Any) -> bool:
        """Whether answers for feature rows X call BLAS, which then has to be kept on one thread."""
        return True

    def scores(self, clusters: Sequence[Cluster], X: Any, near: Ints, n_jobs: int | None) -> Any:
        """Scores, CSR (n, L), of feature rows; `near` (n, p) has the clusters near to each, −1 for none."""
        if not self.needs_blas(clusters, X):
            return self._scores(clusters, X, near, n_jobs)
        with one_blas_thread():  # once for all blocks
            return self._scores(clusters, X, near, n_jobs)

    def _scores(self, clusters: Sequence[Cluster], X: Any, near: Ints, n_jobs: int | None) -> Any:
        if len(clusters) == 1 and len(near) <= _QUERY_BLOCK and (near[:, 0] == 0).all():
            return self.cluster_scores(clusters[0], X, n_jobs)
        tasks = [
            (cluster, rows[block])
            for c, cluster in enumerate(clusters)
            for rows in [np.flatnonzero(near[:, 0] == c)]
            for block in blocks(len(rows), _QUERY_BLOCK)
        ]
        if len(tasks) == 1:
            cluster, rows = tasks[0]
            if len(rows) == X.shape[0]:
                return self.cluster_scores(cluster, X, n_jobs)
            found = [self.cluster_scores(cluster, X[rows], n_jobs)]
        else:  # each on a thread, with the searchers that they share made before
            for cluster, _ in tasks:
                cluster.index.searchers.get()
            found = map_blocks(lambda task: self.cluster_scores(task[0], X[task[1]], 1), tasks, n_jobs)
        return self._in_order(found, [rows for _, rows in tasks], near)

    def _in_order(self, found: list[Any], rows: list[Ints], near: Ints) -> Any:
        """Scores of some rows each, CSR, in the order of all rows; rows of no cluster have no scores."""
        silent = np.flatnonzero(near[:, 0] == -1)
        if len(silent):
            found, rows = [scipy.sparse.csr_array((len(silent), len(self.frequency))), *found], [silent, *rows]
        scores = scipy.sparse.vstack(found, format="csr")
        return scores if len(found) == 1 else scores[np.argsort(np.concatenate(rows), kind="stable")]
