"""Decoders: how a predicted embedding ẑ becomes scores of labels. Neighbours propose the candidates in all of them.

    votes          the share of the k nearest rows of each learner that carry the label: the paper's inference
    weighted       the same, weighed by exp((cos − max cos)/temperature)
    sketch         ⟨Φ_l, ẑ⟩, an unbiased sketch of the one-vs-all ridge score of label l
    least-squares  (Φ_SᵀΦ_S + εI)⁻¹Φ_Sᵀẑ on the candidates S: the sketch without its cross-talk
    blend          all of them, the votes of rows with similar features and how often a label was seen, weighed into a
                   probability by boosted trees that were learnt on left-out rows

Where the ensemble is the identity (few enough labels), ẑ is the one-vs-all ridge score itself, and `sketch` and
`least-squares` are both exact. A decoder is a value with its options; "auto" is chosen on left-out training rows.

There are two families. *Votes* learn and search z = Phi y/‖y‖₂ as the paper does; all others are made of *signals*
(`ripml.decoding.signals`). A new decoder of signals says how signals become a score, and inherits the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import ParameterError, check_count, check_positive
from ripml.decoding import scores as scoring
from ripml.decoding.blend import Candidates, Trees, fit_blend
from ripml.decoding.calibration import mean_precision
from ripml.decoding.embedding import LabelEmbedding, SketchEmbedding, UnitEmbedding
from ripml.decoding.evidence import NAME_SIGNALS
from ripml.decoding.fitted import Choices, Cluster, FittedDecoder, LeftOut
from ripml.decoding.names import NameModel
from ripml.decoding.signals import CLOSENESS, DENSE_LABELS, FittedBlend, FittedSignals, SingleSignal
from ripml.decoding.sketch import least_squares
from ripml.decoding.votes import FittedVotes, softmax, tally
from ripml.labels.projection import Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.regression.kernels import RBF, Kernel, Linear, Local

__all__ = ["Blend", "Decoder", "DecoderParts", "LeastSquares", "SignalDecoder", "Sketch", "Votes", "WeightedVotes"]

Ints = NDArray[np.int64]

_CANDIDATES = 32  # kept for each row, or three times the mean number of labels
_EPSILONS = (0.1, 0.3, 1.0)
_ROWS_TO_TUNE = 300  # left-out rows that numbers of neighbours and temperatures are chosen on


@dataclass(frozen=True)
class DecoderParts:
    """What a decoder is made of once labels are embedded, and for a saved model what it learnt."""

    embedding: LabelEmbedding
    choices: Choices
    frequency: Ints  # (L,) training rows of each label
    labels_at_fit: int
    kernel: Kernel
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def common(self) -> tuple[LabelEmbedding, Choices, Ints, bool]:
        """What all decoders of signals have."""
        return self.embedding, self.choices, self.frequency, self.labels_at_fit <= DENSE_LABELS


@dataclass(frozen=True)
class Decoder(ABC):
    """A way to read an embedding."""

    embedding_type: ClassVar[type[LabelEmbedding]]
    tunes_ridge: ClassVar[bool]  # whether the ridge is tuned on a sample first, or else by the scores of left-out rows
    recounts: ClassVar[bool] = False  # whether a fitted model can take another number of neighbours
    reads_evidence: ClassVar[bool] = False  # whether what texts say of labels by their names is among its signals

    @abstractmethod
    def default_kernel(self, few_rows: bool) -> Kernel:
        """The kernel that "auto" stands for."""

    @abstractmethod
    def check(self, kernel: Kernel | None, n_probe: int) -> None:
        """ParameterError for settings that contradict the decoder; `kernel` is None for "auto"."""

    @abstractmethod
    def embedding(
        self, projection: Projection, vocabulary: Vocabulary, n_neighbors: int, n_targets: int | None = None
    ) -> LabelEmbedding:
        """What labels become; of a model that was loaded, the regression has `n_targets`."""

    @abstractmethod
    def start(
        self, kernel: Kernel, exact: bool, n_labels: int, labels_per_row: float, n_neighbors: int | None
    ) -> Choices:
        """The choices before anything is tuned; `exact` where the ensemble is the identity."""

    @abstractmethod
    def fitted(self, parts: DecoderParts) -> FittedDecoder:
        """The decoder made of these parts."""

    @abstractmethod
    def fit(
        self,
        draft: Any,
        n_neighbors: int | None,
        clusters: Sequence[Cluster],
        left_out: Sequence[LeftOut],
        n_jobs: int | None,
    ) -> tuple[FittedDecoder, Any]:
        """The decoder with its choices made on left-out rows of all clusters, and the scores of these rows, CSR.

        `n_neighbors` is None where it may be chosen.
        """


@dataclass(frozen=True)
class Votes(Decoder):
    """Equal votes of the k nearest rows in each learner."""

    embedding_type: ClassVar[type[LabelEmbedding]] = UnitEmbedding
    tunes_ridge: ClassVar[bool] = False
    recounts: ClassVar[bool] = True

    def default_kernel(self, few_rows: bool) -> Kernel:
        """The paper's."""
        return Linear()

    def check(self, kernel: Kernel | None, n_probe: int) -> None:
        """Votes go with the linear kernel."""
        _refuse_local(kernel, self)
        if kernel is not None and not kernel.linear:
            raise ParameterError(
                f"decoder='votes' is the paper's, with kernel='linear'; got kernel={kernel!r}: use 'weighted'."
            )

    def embedding(
        self, projection: Projection, vocabulary: Vocabulary, n_neighbors: int, n_targets: int | None = None
    ) -> LabelEmbedding:
        """z = Phi y/‖y‖₂."""
        return UnitEmbedding.of(projection, vocabulary)

    def start(
        self, kernel: Kernel, exact: bool, n_labels: int, labels_per_row: float, n_neighbors: int | None
    ) -> Choices:
        """k = 5."""
        return _choices(n_neighbors or 5, labels_per_row, epsilon=None if exact else 0.3)

    def fitted(self, parts: DecoderParts) -> FittedVotes:
        """There is nothing to learn."""
        return FittedVotes(parts.embedding, parts.choices, parts.frequency)

    def fit(
        self,
        draft: FittedVotes,
        n_neighbors: int | None,
        clusters: Sequence[Cluster],
        left_out: Sequence[LeftOut],
        n_jobs: int | None,
    ) -> tuple[FittedDecoder, Any]:
        """The scores were made when the ridge was chosen."""
        return draft, scipy.sparse.vstack([rows.scores for rows in left_out], format="csr")


@dataclass(frozen=True)
class SignalDecoder(Decoder):
    """A decoder whose scores are made of signals; one of them is the score unless `fitted` says otherwise."""

    embedding_type: ClassVar[type[LabelEmbedding]] = SketchEmbedding
    tunes_ridge: ClassVar[bool] = True
    signal: ClassVar[str] = "value"

    def default_kernel(self, few_rows: bool) -> Kernel:
        """RBF where its closed form is within reach."""
        return RBF() if few_rows else Linear()

    def check(self, kernel: Kernel | None, n_probe: int) -> None:
        """Only the blend has a signal for the local kernel, and only votes search several clusters."""
        if not self._blends:
            _refuse_local(kernel, self)
        if n_probe > 1:
            raise ParameterError(f"`n_probe` > 1 is for decoder='votes'; got n_probe={n_probe} and decoder={self!r}.")

    @property
    def _blends(self) -> bool:
        return False

    def embedding(
        self, projection: Projection, vocabulary: Vocabulary, n_neighbors: int, n_targets: int | None = None
    ) -> LabelEmbedding:
        """Y Phiᵀ, or Y itself."""
        return SketchEmbedding.of(projection, vocabulary, n_neighbors > 0, n_targets)

    def start(
        self, kernel: Kernel, exact: bool, n_labels: int, labels_per_row: float, n_neighbors: int | None
    ) -> Choices:
        """50 neighbours, and values as they are."""
        return _choices(n_neighbors or 50, labels_per_row)

    def fitted(self, parts: DecoderParts) -> FittedSignals:
        """One signal is the score."""
        return SingleSignal(*parts.common, None, self.signal)

    def fit(
        self,
        draft: FittedSignals,
        n_neighbors: int | None,
        clusters: Sequence[Cluster],
        left_out: Sequence[LeftOut],
        n_jobs: int | None,
    ) -> tuple[FittedDecoder, Any]:
        """Choices are made on the cluster that has most left-out rows, then scores are combined for all of them."""
        largest = int(np.argmax([rows.truth.shape[0] for rows in left_out]))
        sample = left_out[largest][:_ROWS_TO_TUNE]
        if sample.truth.shape[0]:
            draft = self._tuned(draft, n_neighbors, clusters[largest], sample, n_jobs)
        candidates = Candidates.joined(
            [draft.candidates(cluster, rows.X, n_jobs, rows) for cluster, rows in zip(clusters, left_out, strict=True)]
        )
        truth = scipy.sparse.vstack([rows.truth for rows in left_out], format="csr")
        fitted, values = self._learnt(draft, candidates, truth, n_jobs)
        return fitted, scoring.as_scores(candidates.labels, values, truth.shape[1])

    def _learnt(
        self, draft: FittedSignals, candidates: Candidates, truth: Any, n_jobs: int | None
    ) -> tuple[FittedSignals, Any]:
        """What is learnt from the candidates of left-out rows with labels `truth`, and the scores of these."""
        return draft, draft.combined(candidates, n_jobs)

    def _tuned(
        self, draft: FittedSignals, n_neighbors: int | None, cluster: Cluster, sample: LeftOut, n_jobs: int | None
    ) -> FittedSignals:
        """With the ε of least squares that is best on left-out rows of one cluster, unless it is given."""
        if draft.choices.epsilon is None or self._given_epsilon is not None:
            return draft
        labels = _with(draft, epsilon=None).candidates(cluster, sample.X, n_jobs, sample).labels
        solved = least_squares(sample.Z, labels, draft.sketch.columns, _EPSILONS, n_jobs)
        scores = (scoring.as_scores(labels, values, sample.truth.shape[1]) for values in solved)
        return _best([_with(draft, epsilon=epsilon) for epsilon in _EPSILONS], scores, sample.truth)

    @property
    def _given_epsilon(self) -> float | None:
        return None


@dataclass(frozen=True)
class WeightedVotes(SignalDecoder):
    """Votes of the k label sets of nearest direction, weighed by exp((cos − max cos)/temperature)."""

    signal: ClassVar[str] = "votes"

    temperature: float | str = "auto"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def start(
        self, kernel: Kernel, exact: bool, n_labels: int, labels_per_row: float, n_neighbors: int | None
    ) -> Choices:
        """At the temperature that is given, or 0.1."""
        temperature = 0.1 if isinstance(self.temperature, str) else float(self.temperature)
        return _choices(n_neighbors or 50, labels_per_row, temperature=temperature)

    def _tuned(
        self, draft: FittedSignals, n_neighbors: int | None, cluster: Cluster, sample: LeftOut, n_jobs: int | None
    ) -> FittedSignals:
        """The number of neighbours and the temperature. (In the blend the trees weigh the votes, and to choose these
        there as well was measured to add more noise than precision.)"""
        ks = (10, 20, 50) if n_neighbors is None else (n_neighbors,)
        temperatures = (0.03, 0.1, 0.3) if self.temperature == "auto" else (draft.choices.temperature,)
        options = [_with(draft, n_neighbors=k, temperature=t) for k in ks for t in temperatures]
        queries = draft.sketch.queries(sample.Z, cluster.index.search_shape[1])
        near = cluster.index.nearest(queries, max(ks), n_jobs, sample.sets)

        def votes(option: FittedSignals) -> Any:
            k = option.choices.n_neighbors
            weights = softmax(near.similarity[:, :k], option.choices.temperature, near.rows[:, :k])
            return tally(near.sets[:, :k], weights, cluster.index.sets)

        return _best(options, (votes(option) for option in options), sample.truth)


@dataclass(frozen=True)
class Sketch(SignalDecoder):
    """⟨Φ_l, ẑ⟩ of the candidates."""


@dataclass(frozen=True)
class LeastSquares(SignalDecoder):
    """Least squares on the candidates, with a ridge ε of its own."""

    epsilon: float | str = "auto"

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

    @property
    def _given_epsilon(self) -> float | None:
        return None if isinstance(self.epsilon, str) else float(self.epsilon)

    def start(
        self, kernel: Kernel, exact: bool, n_labels: int, labels_per_row: float, n_neighbors: int | None
    ) -> Choices:
        """With the ε that is given, or 0.3, where labels share dimensions."""
        epsilon = None if exact else 0.3 if self._given_epsilon is None else self._given_epsilon
        return _choices(n_neighbors or 50, labels_per_row, epsilon=epsilon)


@dataclass(frozen=True)
class Blend(SignalDecoder):
    """Everything weighed into one probability. `n_similar` rows of similar features vote; 0 stores no rows for that."""

    reads_evidence: ClassVar[bool] = True

    n_similar: int | str = "auto"

    def __post_init__(self) -> None:
        if self.n_similar != "auto":
            check_count("n_similar", self.n_similar, "'auto' or ", least=0)

    @property
    def _blends(self) -> bool:
        return True

    def default_kernel(self, few_rows: bool) -> Kernel:
        """RBF, or its local form where there are many rows."""
        return RBF() if few_rows else Local()

    def start(
        self, kernel: Kernel, exact: bool, n_labels: int, labels_per_row: float, n_neighbors: int | None
    ) -> Choices:
        """50 neighbours and 50 similar rows."""
        # The values of a sketch of few labels propose candidates alone: neighbours would cost as much as all the rest.
        alone = not exact and n_labels <= DENSE_LABELS and self.n_similar == 0
        similar = 50 if isinstance(self.n_similar, str) else int(self.n_similar)
        k = n_neighbors or (0 if alone else 50)
        # Where all rows are compared by their kernel, these signals were measured to add nothing.
        cooccurrence = kernel.nearby is not None
        return _choices(k, labels_per_row, n_similar=similar, epsilon=None if exact else 0.3, cooccurrence=cooccurrence)

    def fitted(self, parts: DecoderParts) -> FittedBlend:
        """With the trees, if they were learnt already."""
        choices, local = parts.choices, parts.kernel.nearby
        names = NameModel.from_arrays(parts.arrays, len(parts.frequency))
        n_signals = (
            6
            + (1 + len(CLOSENESS)) * choices.cooccurrence
            + (choices.n_neighbors > 0)
            + (choices.n_similar > 0)
            + (local is not None)
        )
        n_signals += 0 if names is None else len(NAME_SIGNALS)
        saved = any(name.startswith("tree_") for name in parts.arrays)
        trees = Trees.from_arrays(parts.arrays, n_signals) if saved else None
        return FittedBlend(*parts.common, local, trees, names)

    def _learnt(
        self, draft: FittedSignals, candidates: Candidates, truth: Any, n_jobs: int | None
    ) -> tuple[FittedSignals, Any]:
        """Trees on each half of the rows, and the scores of each half by the trees of the other."""
        assert isinstance(draft, FittedBlend)
        trees, values = fit_blend(candidates, scoring.carried(truth, candidates.labels), n_jobs)
        return replace(draft, trees=trees), values


def _refuse_local(kernel: Kernel | None, decoder: Decoder) -> None:
    if kernel is not None and kernel.nearby is not None:
        raise ParameterError(f"kernel='local' is a signal among others, with decoder='blend'; got decoder={decoder!r}.")


def _choices(
    n_neighbors: int,
    labels_per_row: float,
    temperature: float = 0.1,
    n_similar: int = 0,
    epsilon: float | None = None,
    cooccurrence: bool = False,
) -> Choices:
    n_candidates = max(_CANDIDATES, int(3 * labels_per_row))
    return Choices(n_neighbors, temperature, n_similar, 0.1, epsilon, n_candidates, cooccurrence)


def _with(draft: FittedSignals, **choices: Any) -> FittedSignals:
    return replace(draft, choices=replace(draft.choices, **choices))


def _best(options: Sequence[FittedSignals], scores: Iterable[Any], truth: Any) -> FittedSignals:
    """The option whose scores are the most precise."""
    return options[int(np.argmax([mean_precision(truth, of_option) for of_option in scores]))]
