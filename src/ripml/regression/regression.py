"""A fitted regression: features ↦ predicted embeddings ẑ (the paper's step 2), as a value that learns and forgets rows.

    linear   ẑ = x Psi + intercept
    kernel   ẑ = K(x, rows) C

`changed` gives the next value after rows came, went or got other targets, exactly as if all rows had been fitted at
once. What that takes (sums over rows, or the factor of a kernel matrix, see `incremental`) is made when it is first
needed and then changed in place, so a change costs what its rows touch and not the model. It belongs to the newest
value: an older one goes on answering, and says so if it is to be changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError
from ripml.base.parallel import blocks
from ripml.base.products import dense, predict_embedding
from ripml.regression.incremental import IncrementalRidge
from ripml.regression.incremental_kernel import IncrementalDualRidge, IncrementalKernelRidge
from ripml.regression.inverse import RowChange
from ripml.regression.kernels import Kernel, Linear, Rows
from ripml.regression.solver import CLOSED_FORM_LIMIT
from ripml.regression.sums import PackedSums, Sums

__all__ = ["KernelRegression", "LinearRegression", "Regression", "RowChange", "with_ones"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
System = IncrementalRidge | IncrementalKernelRidge
Read = Callable[[Any], NDArray[Any]]
Training = Callable[[], tuple[Any, Any]]  # all training rows X (n, d) and their targets (n, M)

_SUMMED_FEATURES = 2_000  # up to here sums are kept however few the rows are
_ROW_BLOCK = 4096  # training rows whose features are compared at a time


@dataclass(frozen=True)
class Regression(ABC):
    """Predicts embeddings and can be changed row by row."""

    kernel: Kernel
    ridge: float
    sums: Sums | PackedSums | None = field(default=None, kw_only=True)  # at rest: all that the next change needs
    system: System | None = field(default=None, kw_only=True)  # in use: what changes are made in, of the newest value
    version: int = field(default=0, kw_only=True)  # the state of `system` that this value is the solution of

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """M."""

    @abstractmethod
    def predict(self, X: Any, likeness: Floats | None, n_jobs: int | None) -> Any:
        """ẑ (n, M) of feature rows; `likeness` (n, n_rows) is their kernel with the training rows, if it is known."""

    @abstractmethod
    def contributions(
        self, x: Any, read: Read, rows: Rows | None, likeness: NDArray[Any] | None
    ) -> tuple[Ints, NDArray[Any], NDArray[Any], tuple[Ints, NDArray[Any]] | None]:
        """What makes up the prediction for x (1, d): features, how far each pulls towards each label, and intercepts.

        Last come the training rows by their places and the terms of each, where the prediction is a sum over rows.
        `read` maps lines of coefficients (r, M) to what they say about the labels, (r, labels).
        """

    @abstractmethod
    def with_targets(self, kept: Ints) -> Regression:
        """With these targets alone, and nothing in use."""

    @abstractmethod
    def widened(self, n_targets: int) -> Regression:
        """With more targets, which are zero for all rows so far; a system in use gets them with the next change."""

    def compacted(self, alive: Ints) -> Regression:
        """Where only these rows have a place."""
        if self.in_use is not None:
            self.in_use.compact()
        return self

    @abstractmethod
    def emptied(self) -> Regression:
        """Of no row at all."""

    @abstractmethod
    def cleared(self, features: NDArray[np.bool_]) -> Regression:
        """Without what rounding left of features (d,) that no row has any more."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The coefficients as they are saved, "Psi", and the "intercept"."""

    @abstractmethod
    def _made(self, training: Training | None, n_jobs: int | None) -> System: ...

    @abstractmethod
    def _solution(self, system: System) -> dict[str, Any]:
        """The arrays of this value for what the system has now."""

    # -------------------------------------------------------------------------------------------------------- changing

    @property
    def in_use(self) -> System | None:
        """The system in use, if it is in the state of this value."""
        return self.system if self.system is not None and self.system.version == self.version else None

    def prepared(self, training: Training | None, n_jobs: int | None) -> Regression:
        """The same regression, ready to be changed: with its system made from sums, or from the training rows."""
        if self.in_use is not None:
            return self
        system = self._made(training, n_jobs)
        system.version = self.version
        return replace(self, sums=None, system=system)

    def warm(self) -> None:
        """Solve the system now, so that the first change is as quick as the others."""
        if self.in_use is not None:
            with self.in_use.lock:
                self._solution(self.in_use)

    def changed(self, change: RowChange) -> Regression:
        """The regression after a change; `prepared` comes first. A change that fails leaves this value as it was."""
        system = self.in_use
        assert system is not None
        with system.lock:
            self._match_targets(system)
            system.version = None  # until the change is whole
            try:
                system.apply(change.with_features(self._features))
            except DataError:
                if system.undoes_failures:
                    system.version = self.version
                raise
            # Solve before the version counts: nobody goes on from a system that could not be solved.
            solution = self._solution(system)
            system.version = self.version + 1
            return replace(self, **solution, sums=None, system=system, version=system.version)

    def _match_targets(self, system: System) -> None:
        """Have the targets of this value: a change that failed may have left more of them, which no row has."""
        if system.n_targets != self.n_targets:
            system.widen(self.n_targets)

    def _features(self, X: Any) -> Any:
        """Feature rows as the system has them."""
        return X

    # ------------------------------------------------------------------------------------------------------ at rest

    @property
    def sums_rows(self) -> bool:
        """Whether sums are all that it needs to go on learning, so that rows need not be kept for it."""
        return self.sums is not None or (self.system is not None and self.system.sums_rows)

    def at_rest(self, rows_are_stored: bool) -> Regression:
        """The same regression with nothing in use: with its sums, unless the stored rows are enough to learn on."""
        if self.system is None:
            return self
        sums = None
        if self.in_use is not None:
            with self.in_use.lock:
                self._match_targets(self.in_use)
                sums = self.in_use.packed_sums(needed=not rows_are_stored)
        return replace(self, sums=sums, system=None)

    def packed_sums(self) -> PackedSums | None:
        """The sums at rest, in the form in which they are saved."""
        return PackedSums.of(self.sums) if isinstance(self.sums, Sums) else self.sums

    @property
    def drift(self) -> float:
        """How far the solution is off its equations, relative to their right side."""
        if self.system is None:
            return 0.0
        with self.system.lock:
            return self.system.drift() if self.in_use is not None else 0.0

    @property
    def n_refactorised(self) -> int:
        """How often the system was factorised again after the first time."""
        return 0 if self.in_use is None else self.in_use.n_refactorised


@dataclass(frozen=True)
class LinearRegression(Regression):
    """ẑ = x Psi + intercept. With `with_intercept` a column of ones is part of the equations; else it is zero."""

    Psi: Floats  # (d, M), C-contiguous: a product is rounded by the order of its numbers in memory
    intercept: Floats  # (M,)
    with_intercept: bool

    @property
    def n_targets(self) -> int:
        """M."""
        return int(self.Psi.shape[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Psi (d, M) and the intercept (M,)."""
        return {"Psi": self.Psi, "intercept": self.intercept}

    def predict(self, X: Any, likeness: Floats | None, n_jobs: int | None) -> Any:
        """x Psi + intercept."""
        return predict_embedding(X, self.Psi, n_jobs) + self.intercept

    def contributions(
        self, x: Any, read: Read, rows: Rows | None, likeness: NDArray[Any] | None
    ) -> tuple[Ints, NDArray[Any], NDArray[Any], tuple[Ints, NDArray[Any]] | None]:
        """x_j·⟨Psi_j, g_l⟩ of each feature of x; it keeps no examples."""
        features, values = _entries(x)
        return features, values[:, None] * read(self.Psi[features]), read(self.intercept[None])[0], None

    def with_targets(self, kept: Ints) -> Regression:
        """With these targets alone."""
        sums = None if self.sums is None else replace(self.sums, moment=self.sums.moment[:, kept])
        Psi = np.ascontiguousarray(self.Psi[:, kept])
        return replace(self, Psi=Psi, intercept=self.intercept[kept], sums=sums, system=None)

    def widened(self, n_targets: int) -> Regression:
        """With more targets."""
        more, sums = n_targets - self.n_targets, self.sums
        if sums is not None:
            sums = replace(sums, moment=np.pad(sums.moment, ((0, 0), (0, more))))
        Psi = np.pad(self.Psi, ((0, 0), (0, more)))
        return replace(self, Psi=Psi, intercept=np.pad(self.intercept, (0, more)), sums=sums)

    def emptied(self) -> Regression:
        """Zeros."""
        sums = None
        if self.sums is not None:
            d = len(self.sums.moment)
            sums = Sums(np.zeros((d, d)), np.zeros((d, self.n_targets)), 0)
        Psi, intercept = np.zeros_like(self.Psi), np.zeros_like(self.intercept)
        return replace(self, Psi=Psi, intercept=intercept, sums=sums, system=None)

    def cleared(self, features: NDArray[np.bool_]) -> Regression:
        """Their coefficients are zero, and so are their sums; the intercept stays."""
        Psi, packed = self.Psi.copy(), self.packed_sums()
        Psi[features] = 0
        if packed is not None:
            packed = packed.cleared(np.pad(features, (0, len(packed.moment) - len(features))))
        return replace(self, Psi=Psi, sums=packed, system=None)

    def _features(self, X: Any) -> Any:
        return with_ones(X) if self.with_intercept else X

    def _made(self, training: Training | None, n_jobs: int | None) -> System:
        packed = self.packed_sums()
        if packed is not None:
            system = IncrementalRidge(packed.unpacked(), self.ridge, packed.added_up)
            system.widen(self.n_targets)
            return system
        X, Z = _training(training)
        X = self._features(X)
        n, d = X.shape
        if d <= CLOSED_FORM_LIMIT and (d <= n or d <= _SUMMED_FEATURES):
            return IncrementalRidge.of(X, Z, self.ridge, n_jobs)
        if n <= CLOSED_FORM_LIMIT:
            return IncrementalDualRidge(Linear(), X, dense(Z), self.ridge, n_jobs)
        raise ParameterError(
            f"n = {n:,} rows and d = {d:,} features are both above {CLOSED_FORM_LIMIT:,}, too many to learn on "
            "exactly; use n_clusters, fewer features, or fit again."
        )

    def _solution(self, system: System) -> dict[str, Any]:
        Psi = system.solution.astype(np.float32)
        if not self.with_intercept:
            return {"Psi": np.ascontiguousarray(Psi)}
        return {"Psi": np.ascontiguousarray(Psi[:-1]), "intercept": Psi[-1]}


@dataclass(frozen=True)
class KernelRegression(Regression):
    """ẑ = K(x, rows) C, with one line of coefficients for each training row; those of forgotten rows are zero."""

    coefficients: Floats  # (n, M)

    @property
    def n_targets(self) -> int:
        """M."""
        return int(self.coefficients.shape[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The coefficients (n, M), and no intercept."""
        return {"Psi": self.coefficients, "intercept": np.zeros(self.n_targets, np.float32)}

    def predict(self, X: Any, likeness: Floats | None, n_jobs: int | None) -> Any:
        """K(x, rows) C."""
        assert likeness is not None
        return likeness @ self.coefficients

    def contributions(
        self, x: Any, read: Read, rows: Rows | None, likeness: NDArray[Any] | None
    ) -> tuple[Ints, NDArray[Any], NDArray[Any], tuple[Ints, NDArray[Any]] | None]:
        """The integrated gradients of Σ_i K(x, xᵢ)⟨C_i, g_l⟩ at lengths held fixed, and the terms of the sum.

        See `ripml.model.explain` for the formula; the terms are the representer values of Yeh et al. (2018).
        """
        assert rows is not None
        assert likeness is not None
        coefficients = read(self.coefficients)
        features, values = _entries(x)
        X, squares = rows.all(), values @ values
        pulls, intercepts = np.zeros((len(features), coefficients.shape[1])), np.zeros(coefficients.shape[1])
        for block in blocks(len(coefficients), _ROW_BLOCK):
            shared = X[block][:, features]
            products = np.asarray(shared @ values)
            apart, rising = self.kernel.gradient_terms(products, squares, rows.squares[block], coefficients[block])
            pulls += values[:, None] * (shared.T @ rising)
            intercepts += apart.sum(axis=0)
        finite = np.where(np.isfinite(likeness), likeness, 0)  # −∞ for rows that were forgotten
        return features, pulls, intercepts, (np.arange(len(finite)), finite[:, None] * coefficients)

    def with_targets(self, kept: Ints) -> Regression:
        """With these targets alone."""
        return replace(self, coefficients=np.ascontiguousarray(self.coefficients[:, kept]), system=None)

    def widened(self, n_targets: int) -> Regression:
        """With more targets."""
        return replace(self, coefficients=np.pad(self.coefficients, ((0, 0), (0, n_targets - self.n_targets))))

    def compacted(self, alive: Ints) -> Regression:
        """With the lines of these rows alone."""
        super().compacted(alive)
        return replace(self, coefficients=np.ascontiguousarray(self.coefficients[alive]))

    def emptied(self) -> Regression:
        """No line at all."""
        return replace(self, coefficients=np.zeros((0, self.n_targets), np.float32), system=None)

    def cleared(self, features: NDArray[np.bool_]) -> Regression:
        """It keeps nothing of features that no row has."""
        return self

    def _made(self, training: Training | None, n_jobs: int | None) -> System:
        X, Z = _training(training)
        return IncrementalKernelRidge(self.kernel, X, dense(Z), self.ridge, n_jobs)

    def _solution(self, system: System) -> dict[str, Any]:
        return {"coefficients": system.solution.astype(np.float32)}


def with_ones(X: Any) -> Any:
    """X with a column of ones behind the others, for the intercept.

    >>> with_ones(np.array([[2.0]])).tolist()
    [[2.0, 1.0]]
    """
    one = np.ones((X.shape[0], 1), np.float32)
    return scipy.sparse.hstack([X, one], format="csr") if scipy.sparse.issparse(X) else np.hstack([X, one])


def _training(training: Training | None) -> tuple[Any, Any]:
    if training is None:
        raise ParameterError(
            "this version of the model has nothing to learn on from; take the newest one, or fit again."
        )
    return training()


def _entries(x: Any) -> tuple[Ints, NDArray[np.float64]]:
    """The features that a row (1, d) has, and their values."""
    if scipy.sparse.issparse(x):
        nonzero = x.data != 0
        return x.indices[nonzero].astype(np.int64), x.data[nonzero].astype(np.float64)
    features = np.flatnonzero(x[0])
    return features, np.asarray(x[0, features], np.float64)
