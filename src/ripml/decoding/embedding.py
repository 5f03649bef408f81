"""What labels become: the targets of the regression, and the embeddings in which neighbours are searched.

unit     z = Phi y/‖y‖₂, searched as it is, learner by learner: the paper's step 1
sketch   Y Phiᵀ, or Y itself where the ensemble is the identity; searched by direction in at most 256 dimensions
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.products import FactoredEmbedding, dense_rows_product
from ripml.decoding.label_set_index import DirectionIndex, LabelSetIndex, PointIndex
from ripml.decoding.sketch import sketch_values
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import LabelVectors, Projection
from ripml.labels.vocabulary import Vocabulary

__all__ = ["SEARCHED", "LabelEmbedding", "SketchEmbedding", "UnitEmbedding"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

SEARCHED = 256  # dimensions in which neighbours are searched: distances settle long before values do


@dataclass(frozen=True)
class LabelEmbedding(ABC):
    """How labels become numbers, for all labels of a vocabulary."""

    index_type: ClassVar[type[LabelSetIndex]]
    with_intercept: ClassVar[bool]  # whether the regression has one
    feature_type: ClassVar[Any]  # of the rows that the regression sees; None for the type in which they come

    keys: Keys  # (L,) of the labels, see `Vocabulary`
    columns: LabelVectors  # labels ↦ their columns of Phi, (len, M)

    @property
    def projection(self) -> Projection:
        """F matrices Phi."""
        return self.columns.projection

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """M, the targets of the regression."""

    @property
    @abstractmethod
    def own_dimensions(self) -> bool:
        """Whether each label is a target of its own: ẑ has the values of labels themselves."""

    @property
    @abstractmethod
    def search_shape(self) -> tuple[int, int]:
        """The number of searches, and the dimensions of each."""

    @property
    @abstractmethod
    def searches_targets(self) -> bool:
        """Whether what is searched are the targets themselves, so that more targets change it."""

    @abstractmethod
    def targets(self, Y: Any, n_jobs: int | None) -> Any:
        """The targets (r, M) of rows with labels Y, CSR (r, L); dense, CSR or factors."""

    def changed_targets(self, Y: Any, n_jobs: int | None) -> Any:
        """The targets of rows that come or go while the model is in use, in the precision in which they are summed."""
        return self.targets(Y, n_jobs)

    def values(self, Z: Floats, rows: Ints, labels: Ints) -> Floats:
        """What ẑ (n, M) says of pairs of a row and a label, (p,): ⟨Φ_l, ẑ⟩/F, or the label's own dimension."""
        if self.own_dimensions:
            known = labels < Z.shape[1]
            return np.asarray(np.where(known, Z[rows, np.where(known, labels, 0)], np.float32(0)))
        return np.asarray(sketch_values(Z, rows, labels, self.columns) / np.float32(self.projection.n_learners))

    @abstractmethod
    def searched(self, sets: Any) -> Floats:
        """The embeddings (F, r, m) of label sets, CSR (r, L), as they are searched."""

    @abstractmethod
    def grown(self, vocabulary: Vocabulary, n_carried: int) -> LabelEmbedding:
        """For more labels, of which the first `n_carried` need a target. Nothing changes for the others."""

    @abstractmethod
    def kept(self, vocabulary: Vocabulary, kept: Ints) -> LabelEmbedding:
        """For these of the labels alone, whose vocabulary is given."""

    def reordered(self, order: Ints) -> LabelEmbedding:
        """For the same labels in another order."""
        return replace(self, keys=self.keys[order], columns=self.columns.reordered(order))


@dataclass(frozen=True)
class UnitEmbedding(LabelEmbedding):
    """z = Phi y/‖y‖₂ in each learner (the paper's step 1)."""

    index_type: ClassVar[type[LabelSetIndex]] = PointIndex
    with_intercept: ClassVar[bool] = False
    feature_type: ClassVar[Any] = None

    @classmethod
    def of(cls, projection: Projection, vocabulary: Vocabulary) -> UnitEmbedding:
        """Of all labels of a vocabulary."""
        return cls(vocabulary.keys, LabelVectors(projection, _column_keys(projection, vocabulary)))

    @property
    def n_targets(self) -> int:
        """F·m."""
        return self.projection.n_learners * self.projection.n_dims

    @property
    def own_dimensions(self) -> bool:
        """Never: embeddings have length 1."""
        return False

    @property
    def search_shape(self) -> tuple[int, int]:
        """F searches in m dimensions."""
        return self.projection.n_learners, self.projection.n_dims

    @property
    def searches_targets(self) -> bool:
        """Always."""
        return True

    def targets(self, Y: Any, n_jobs: int | None) -> Any:
        """z of each row."""
        return self.projection.embed(Y, self.columns.keys, n_jobs)

    def searched(self, sets: Any) -> Floats:
        """The same, learner by learner."""
        Z = self.targets(sets, 1)
        return np.ascontiguousarray(
            Z.reshape(len(Z), self.projection.n_learners, self.projection.n_dims).transpose(1, 0, 2)
        )

    def grown(self, vocabulary: Vocabulary, n_carried: int) -> LabelEmbedding:
        """More columns of Phi."""
        self.projection.check_capacity(int(vocabulary.slots.max()) + 1)
        columns = self.columns.extended(_column_keys(self.projection, vocabulary))
        return replace(self, keys=vocabulary.keys, columns=columns)

    def kept(self, vocabulary: Vocabulary, kept: Ints) -> LabelEmbedding:
        """Of fewer labels."""
        return UnitEmbedding.of(self.projection, vocabulary)


@dataclass(frozen=True)
class SketchEmbedding(LabelEmbedding):
    """Y Phiᵀ, a sketch of the labels, or Y itself."""

    index_type: ClassVar[type[LabelSetIndex]] = DirectionIndex
    with_intercept: ClassVar[bool] = True
    feature_type: ClassVar[Any] = np.float32

    exact: bool  # the embedding is Y itself
    n_labels: int  # labels with a target, where it is
    searches: bool  # whether neighbours are searched at all
    squeeze: Floats | None  # (L, m) where Y is squeezed before the search; None where ẑ is cut to its first dimensions

    @classmethod
    def of(
        cls, projection: Projection, vocabulary: Vocabulary, searches: bool, n_labels: int | None = None
    ) -> SketchEmbedding:
        """Of all labels of a vocabulary; with the identity, the first `n_labels` of them have a target."""
        exact, squeeze, slots = projection.ensemble.exact, None, int(vocabulary.slots.max(initial=0))
        if exact and n_labels is not None and n_labels > min(len(vocabulary), projection.n_dims):
            raise ValueError(f"there are targets of {n_labels} labels, but {len(vocabulary)} labels")
        if not exact and slots >= (projection.ensemble.capacity(projection.n_dims) or np.inf):
            raise ValueError(f"Phi has no column for label {slots}")
        if exact and projection.n_dims > SEARCHED:
            squeeze = _squeeze(projection).columns(vocabulary.keys)
        columns = LabelVectors(projection, _column_keys(projection, vocabulary))
        known = len(vocabulary) if n_labels is None else n_labels
        return cls(vocabulary.keys, columns, exact, known, searches, squeeze)

    @property
    def n_targets(self) -> int:
        """L where the embedding is Y itself, else F·m."""
        return self.n_labels if self.exact else self.projection.n_learners * self.projection.n_dims

    @property
    def own_dimensions(self) -> bool:
        """Where the embedding is Y itself."""
        return self.exact

    @property
    def search_shape(self) -> tuple[int, int]:
        """One search in at most 256 dimensions, 0 for none at all."""
        width = SEARCHED if self.squeeze is not None else min(self.n_targets, SEARCHED)
        return 1, width if self.searches else 0

    @property
    def searches_targets(self) -> bool:
        """Unless they are squeezed for the search."""
        return self.squeeze is None

    def targets(self, Y: Any, n_jobs: int | None) -> Any:
        """Y itself, or Y Phiᵀ as its factors."""
        if self.exact:
            return Y if Y.shape[1] == self.n_labels else Y[:, : self.n_labels]
        return FactoredEmbedding(Y, self.columns, self.n_targets, n_jobs)

    def changed_targets(self, Y: Any, n_jobs: int | None) -> Any:
        """In float64."""
        return self.targets(Y, n_jobs).astype(np.float64)

    def searched(self, sets: Any) -> Floats:
        """The first dimensions, or the squeezed ones; none where neighbours are not searched."""
        if not self.searches:
            return np.empty((1, sets.shape[0], 0), np.float32)
        if self.squeeze is not None:
            return np.asarray(sets @ self.squeeze, np.float32)[None]
        if self.exact:
            return np.asarray(sets[:, : self.n_labels].toarray(), np.float32)[None]
        width = min(SEARCHED, self.n_targets)
        return FactoredEmbedding(sets, lambda labels: self.columns(labels)[:, :width], width, None).toarray()[None]

    def queries(self, Z: Floats, width: int) -> Floats:
        """Predicted embeddings (n, M) as they are searched, (n, width)."""
        return Z[:, :width] if self.squeeze is None else dense_rows_product(Z, self.squeeze[: Z.shape[1]])

    def grown(self, vocabulary: Vocabulary, n_carried: int) -> LabelEmbedding:
        """More columns; where the embedding is Y itself, more targets once rows carry a label that has none."""
        projection = self.projection
        if not self.exact:
            projection.check_capacity(int(vocabulary.slots.max()) + 1)
        squeeze = self.squeeze
        if squeeze is not None and len(squeeze) < len(vocabulary):
            squeeze = np.concatenate([squeeze, _squeeze(projection).columns(vocabulary.keys[len(squeeze) :])])
        columns = self.columns
        if len(vocabulary) > len(self.keys):
            columns = columns.extended(_column_keys(projection, vocabulary))
        grown = replace(self, keys=vocabulary.keys, columns=columns, squeeze=squeeze)
        if not self.exact or n_carried <= self.n_labels:
            return grown
        wider = replace(projection, n_dims=max(projection.n_dims, n_carried))
        if squeeze is None:  # what is searched is Y itself, or the squeezed Y, as wide as it is now
            return SketchEmbedding.of(wider, vocabulary, self.searches, n_carried)
        columns = replace(columns, projection=wider)
        return replace(grown, columns=columns, n_labels=n_carried)

    def reordered(self, order: Ints) -> LabelEmbedding:
        """What is searched goes with the labels."""
        squeeze = None if self.squeeze is None else self.squeeze[order]
        return replace(self, keys=self.keys[order], columns=self.columns.reordered(order), squeeze=squeeze)

    def kept(self, vocabulary: Vocabulary, kept: Ints) -> LabelEmbedding:
        """Of fewer labels; where the embedding is Y itself, of fewer dimensions."""
        projection, n_labels = self.projection, None
        if self.exact:
            n_labels = int(np.count_nonzero(kept < self.n_labels))
            projection = replace(projection, n_dims=n_labels)
        return SketchEmbedding.of(projection, vocabulary, self.searches, n_labels)


def _column_keys(projection: Projection, vocabulary: Vocabulary) -> NDArray[np.uint64]:
    return vocabulary.column_keys(projection.ensemble, projection.n_dims)


def _squeeze(projection: Projection) -> Projection:
    return Projection(Gaussian(), SEARCHED, 1, projection.seed)
