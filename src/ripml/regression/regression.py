"""A fitted regression from features to embeddings ẑ (the paper's step 2), as a value that learns and forgets rows.

    linear   ẑ = x Psi + intercept
    kernel   ẑ = K(x, rows) C

`changed` returns the next value after rows are learnt, forgotten or given other targets, equal to a fit on all rows at
once. It uses a system of equations (sums over rows, or the factor of a kernel matrix, see `incremental`), which is made
when it is first needed and then changed in place, so that the cost depends on the changed rows and not on the model.
The system belongs to the newest value: older values still predict, but cannot be changed.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base import registry
from ripml.base.arrays import as_bytes, as_half, from_bytes, from_half
from ripml.base.errors import DataError, ParameterError
from ripml.base.parallel import blocks
from ripml.base.products import dense, predict_embedding, sparse_bytes_product, sparse_half_product
from ripml.regression.distinct import DistinctRows
from ripml.regression.far_field import FarField
from ripml.regression.incremental import IncrementalRidge
from ripml.regression.incremental_kernel import IncrementalDualRidge, IncrementalKernelRidge
from ripml.regression.inverse import RowChange
from ripml.regression.kernel_ridge import inverse_diagonal, require_kernel_memory
from ripml.regression.kernels import Kernel, Linear, Rows, squared_lengths
from ripml.regression.label_coefficients import LazyLabelCoefficients
from ripml.regression.solver import CLOSED_FORM_LIMIT
from ripml.regression.sums import PackedSums, Sums

__all__ = ["KernelRegression", "LinearRegression", "Regression", "RowChange", "with_ones"]

_log = logging.getLogger("ripml")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
System = IncrementalRidge | IncrementalKernelRidge
Read = Callable[[Any], NDArray[Any]]
Training = Callable[[], tuple[Any, Any]]  # all training rows X (n, d) and their targets (n, M)
Contributions = tuple[Ints, NDArray[Any], NDArray[Any], tuple[Ints, NDArray[Any]] | None]

_SUMMED_FEATURES = 2_000  # features up to which sums are kept even for fewer rows than features
_ROW_BLOCK = 4096  # training rows processed at a time
_LARGE = 1 << 24  # coefficients of a linear regression, 64 MB, from which they are held in 8 bits


@dataclass(frozen=True)
class Regression(ABC):
    """Predicts embeddings, and can be changed row by row."""

    kernel: Kernel
    ridge: float
    sums: Sums | PackedSums | None = field(default=None, kw_only=True)  # at rest: enough for the next change
    system: System | None = field(default=None, kw_only=True)  # in use: changed in place, for the newest value
    version: int = field(default=0, kw_only=True)  # the version of `system` that this value is the solution of

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """M."""

    @property
    @abstractmethod
    def n_equations(self) -> int:
        """About the number of equations that the first change solves."""

    @property
    def needs_blas(self) -> bool:
        """Whether predictions for sparse rows call BLAS."""
        return False

    @property
    def far(self) -> FarField | None:
        """The part of a sum over training rows that is made at once for all far rows, if there is one."""
        return None

    @abstractmethod
    def predict(self, X: Any, likeness: Floats | None, alive: NDArray[np.bool_] | None, n_jobs: int | None) -> Any:
        """ẑ (n, M) of feature rows; `likeness` (n, n_rows) is theirs with the training rows, if these are kept.

        `alive` (n_rows,) says which of these were not forgotten; None for all of them.
        """

    def likely_labels(self, X: Any, Z: Floats, Phi: Floats, present: NDArray[np.bool_], k: int) -> Ints | None:
        """The k labels of the largest ⟨Φ_l, ẑ⟩ (n, k), of those `present` (L,), by the coefficients of labels.

        X are feature rows with predictions Z, and Phi (L, M) the columns of labels. None where there are no such
        coefficients: then the values of all labels are compared.
        """
        return None

    def expect(self, n_rows: int, Phi: Floats) -> None:  # noqa: B027 - most have nothing to make
        """Make what `likely_labels` needs, if it pays with so many more rows."""

    @abstractmethod
    def left_out(self, rows: DistinctRows, labels: Any, solver: str, seed: int, n_jobs: int | None) -> Floats:
        """ẑ₋ᵢ of each distinct training row, by this regression without the row and its copies, (u, M).

        `labels`, CSR (u, L), are the mean labels of copies; `solver` is the word for the method that solved it.
        """

    @abstractmethod
    def contributions(self, x: Any, read: Read, rows: Rows | None, likeness: NDArray[Any] | None) -> Contributions:
        """The parts of the prediction for x (1, d): features, their contributions to each label, and intercepts.

        The last item, for predictions that are sums over training rows, are the places of these rows and their terms.
        `read` maps lines of coefficients (r, M) to scores of labels, (r, labels).
        """

    @abstractmethod
    def posterior(self, X: Any, others: Rows, terms: Floats, rows: Rows | None, n_jobs: int | None) -> Floats:
        """The posterior covariance (n, r) of rows X with r others, given the training rows.

            linear   alpha x (XᵀX + alpha I)⁻¹ x'        kernel   K(x, x') − K(x, rows) (K + alpha I)⁻¹ K(rows, x')

        `terms` are those of the others by `posterior_terms`, and `rows` the training rows, if these are kept.
        """

    @property
    @abstractmethod
    def n_posterior_terms(self) -> int:
        """The number of terms of each row."""

    def posterior_terms(self, X: Any) -> Floats:
        """What `posterior` with rows X (r, d) is made of, one column per row; call `prepared` first."""
        if not X.shape[0]:
            return np.empty((self.n_posterior_terms, 0), np.float32)
        system = self.in_use
        assert system is not None
        with system.lock:
            return np.ascontiguousarray(system.posterior_terms(self._features(X)), np.float32)

    def followed_terms(self, X: Any, terms: Floats, mark: Any) -> Floats:
        """`posterior_terms`, from those of the same rows before a change, at whose begin the system had this `mark`."""
        system = self.in_use
        assert system is not None
        if not X.shape[0]:
            return self.posterior_terms(X)
        with system.lock:
            found = system.followed_terms(self._features(X), terms, mark)
        return self.posterior_terms(X) if found is None else np.ascontiguousarray(found, np.float32)

    def mark(self) -> Any:
        """The state of the system before a change, for `followed_terms`."""
        system = self.in_use
        assert system is not None
        with system.lock:
            return system.mark()

    @abstractmethod
    def with_targets(self, kept: Ints) -> Regression:
        """With only these targets, and without a system in use."""

    @abstractmethod
    def widened(self, n_targets: int) -> Regression:
        """With more targets, which are zero for all present rows; a system in use gets them with the next change."""

    def compacted(self, alive: Ints) -> Regression:
        """Without the places of forgotten rows; `alive` are the others."""
        if self.in_use is not None:
            self.in_use.compact()
        return self

    @abstractmethod
    def emptied(self) -> Regression:
        """The regression on no rows."""

    @abstractmethod
    def cleared(self, features: NDArray[np.bool_]) -> Regression:
        """Without rounding errors in features (d,) that no row has any more."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that are saved: the coefficients, "Psi", the "intercept", and what a kind of regression adds."""

    def answering(self) -> Regression:
        """Only what predictions need: a value that cannot be changed."""
        return replace(self, sums=None, system=None)

    @abstractmethod
    def _make_system(self, training: Training | None, n_jobs: int | None) -> System: ...

    @abstractmethod
    def _solution(self, system: System) -> dict[str, Any]:
        """The fields of this value for the present state of the system."""

    # -------------------------------------------------------------------------------------------------------- changing

    @property
    def in_use(self) -> System | None:
        """The system, if it is in the state of this value."""
        return self.system if self.system is not None and self.system.version == self.version else None

    def prepared(self, training: Training | None, n_jobs: int | None) -> Regression:
        """The same regression, ready for `changed`: the system is made from sums, or from the training rows."""
        if self.in_use is not None:
            return self
        system = self._make_system(training, n_jobs)
        system.version = self.version
        return replace(self, sums=None, system=system)

    def warm(self) -> None:
        """Solve the system now, so that the first change is as fast as later ones."""
        if self.in_use is not None:
            with self.in_use.lock:
                self._solution(self.in_use)

    def changed(self, change: RowChange) -> Regression:
        """The regression after a change; call `prepared` first. A change that fails leaves this value unchanged."""
        system = self.in_use
        assert system is not None
        with system.lock:
            self._match_targets(system)
            system.version = None  # until the change is complete
            try:
                system.apply(change.with_features(self._features))
            except DataError:
                if system.undoes_failures:
                    system.version = self.version
                raise
            # Solve before the version is set: a system that cannot be solved must not be used for another change.
            solution = self._solution(system)
            system.version = self.version + 1
            return replace(self, **solution, sums=None, system=system, version=system.version)

    def _match_targets(self, system: System) -> None:
        """Have the targets of this value: a change that failed may have left more of them, which no row has."""
        if system.n_targets != self.n_targets:
            system.widen(self.n_targets)

    def _features(self, X: Any) -> Any:
        """Feature rows in the form that the system uses."""
        return X

    # ------------------------------------------------------------------------------------------------------ at rest

    @property
    def sums_rows(self) -> bool:
        """Whether sums are enough to keep learning, so that the training rows need not be stored."""
        return self.sums is not None or (self.system is not None and self.system.sums_rows)

    def at_rest(self, rows_are_stored: bool) -> Regression:
        """The same regression without a system: with its sums, unless the stored rows make them unnecessary."""
        if self.system is None:
            return self
        sums = None
        if self.in_use is not None:
            with self.in_use.lock:
                self._match_targets(self.in_use)
                sums = self.in_use.packed_sums(needed=not rows_are_stored)
        return replace(self, sums=sums, system=None)

    def packed_sums(self) -> PackedSums | None:
        """The sums in the form in which they are saved."""
        return PackedSums.of(self.sums) if isinstance(self.sums, Sums) else self.sums

    @property
    def drift(self) -> float:
        """The relative error of the solution that rounding has caused."""
        if self.system is None:
            return 0.0
        with self.system.lock:
            return self.system.drift() if self.in_use is not None else 0.0

    @property
    def n_refactorised(self) -> int:
        """How often the system was solved again after the first time."""
        return 0 if self.in_use is None else self.in_use.n_refactorised


@dataclass(frozen=True)
class LinearRegression(Regression):
    """ẑ = x Psi + intercept. The intercept is fitted by a column of ones, or 0 without `with_intercept`."""

    Psi: NDArray[Any]  # (d, M), C-contiguous: the memory order affects the rounding of products
    intercept: Floats  # (M,)
    with_intercept: bool
    units: Floats | None = None  # (d,) of lines of Psi in 8 bits, (1,) of all Psi in float16; None for float32
    _of_labels: LazyLabelCoefficients = field(
        default_factory=LazyLabelCoefficients, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, kernel: Kernel, ridge: float, Psi: Floats, intercept: Floats) -> LinearRegression:
        """With an intercept, and Psi (d, M) in 8 bits if it is large."""
        return cls(kernel, ridge, *_in_few_bytes(Psi, intercept, _LARGE))

    @property
    def n_targets(self) -> int:
        """M."""
        return int(self.Psi.shape[1])

    @property
    def n_equations(self) -> int:
        """d, or the number of features that sums are kept of."""
        return len(self.Psi if self.sums is None else self.sums.moment)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Psi (d, M), its units if it has any, and the intercept (M,)."""
        arrays: dict[str, NDArray[Any]] = {"Psi": self.Psi, "intercept": self.intercept}
        if self.units is None:
            return arrays
        return arrays | ({"units": self.units} if self.Psi.dtype == np.int8 else {"unit": self.units.astype(float)})

    def answering(self) -> Regression:
        """With Psi in float16, unless it is in 8 bits: votes of few neighbours need more than these."""
        if self.units is not None:
            return replace(self, sums=None, system=None)
        Psi, unit = as_half(self.Psi)
        return replace(self, Psi=Psi, units=np.array([unit], np.float32), sums=None, system=None)

    def predict(self, X: Any, likeness: Floats | None, alive: NDArray[np.bool_] | None, n_jobs: int | None) -> Any:
        """x Psi + intercept."""
        if self.units is None:
            return predict_embedding(X, self.Psi, n_jobs) + self.intercept
        if not scipy.sparse.issparse(X):
            return predict_embedding(X, self._wide, n_jobs) + self.intercept
        if self.Psi.dtype == np.float16:
            return sparse_half_product(X, self.Psi) * self.units + self.intercept
        return sparse_bytes_product(X, self.Psi, self.units) + self.intercept

    def left_out(self, rows: DistinctRows, labels: Any, solver: str, seed: int, n_jobs: int | None) -> Floats:
        """As `RidgeSolver.left_out` does for the solver that the regression was fitted with."""
        targets = rows.embed(rows.scaled(labels))
        method = registry.named("solver", solver).leaving_out()
        Z = method.left_out(rows.scaled(with_ones(rows.X)), targets, self.ridge, seed, n_jobs)
        return np.asarray(Z / rows.roots[:, None]) if rows.repeated else Z

    def likely_labels(self, X: Any, Z: Floats, Phi: Floats, present: NDArray[np.bool_], k: int) -> Ints | None:
        """By x Psi Phiᵀ, for sparse X."""
        if not scipy.sparse.issparse(X) or X.dtype != np.float32:
            return None
        made = self._of_labels.get(Phi)
        return None if made is None else made.largest(X, Z, Phi, present, k)

    def expect(self, n_rows: int, Phi: Floats) -> None:
        """Make the coefficients of labels once they pay."""
        self._of_labels.expect(n_rows, self._lines, len(self.Psi), self.intercept, Phi)

    @cached_property
    def _wide(self) -> Floats:
        """Psi in float32."""
        return self._lines(slice(None))

    def _lines(self, features: Any) -> Floats:
        """The lines of Psi of these features."""
        lines = self.Psi[features]
        if self.units is None:
            return np.asarray(lines)
        return from_half(lines) * self.units if lines.dtype == np.float16 else from_bytes(lines, self.units[features])

    def contributions(self, x: Any, read: Read, rows: Rows | None, likeness: NDArray[Any] | None) -> Contributions:
        """x_j·⟨Psi_j, g_l⟩ for each feature j of x and label l; there are no terms of rows."""
        features, values = _entries(x)
        return features, values[:, None] * read(self._lines(features)), read(self.intercept[None])[0], None

    @property
    def n_posterior_terms(self) -> int:
        """d, and one for the intercept."""
        return len(self.Psi) + self.with_intercept

    def posterior(self, X: Any, others: Rows, terms: Floats, rows: Rows | None, n_jobs: int | None) -> Floats:
        """x times the terms, (d, r)."""
        d = len(self.Psi)
        return np.asarray(predict_embedding(X, terms[:d], n_jobs) + terms[d:].sum(axis=0))

    def with_targets(self, kept: Ints) -> Regression:
        """With only these targets."""
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
        """All coefficients and sums are zero."""
        sums = None
        if self.sums is not None:
            d = len(self.sums.moment)
            sums = Sums(np.zeros((d, d)), np.zeros((d, self.n_targets)), 0)
        Psi, intercept = np.zeros_like(self.Psi), np.zeros_like(self.intercept)
        return replace(self, Psi=Psi, intercept=intercept, sums=sums, system=None)

    def cleared(self, features: NDArray[np.bool_]) -> Regression:
        """Set their coefficients and sums to zero; the intercept stays."""
        Psi, packed = self.Psi.copy(), self.packed_sums()
        Psi[features] = 0
        if packed is not None:
            packed = packed.cleared(np.pad(features, (0, len(packed.moment) - len(features))))
        return replace(self, Psi=Psi, sums=packed, system=None)

    def _features(self, X: Any) -> Any:
        return with_ones(X) if self.with_intercept else X

    def _make_system(self, training: Training | None, n_jobs: int | None) -> System:
        packed = self.packed_sums()
        if packed is not None:
            system = IncrementalRidge(packed.unpacked(), self.ridge, packed.added_up, packed.signatures)
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
        Psi, intercept, _, units = _in_few_bytes(Psi[:-1], Psi[-1], _LARGE if self.units is None else 0)
        return {"Psi": Psi, "intercept": intercept, "units": units}


@dataclass(frozen=True)
class KernelRegression(Regression):
    """ẑ = K(x, rows) C, with one line of coefficients per training row; those of forgotten rows are zero."""

    coefficients: NDArray[Any]  # (n, M)
    unit: float | None = None  # of coefficients in float16, where there is a far field; None for float32
    far: FarField | None = None

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        ridge: float,
        C: NDArray[Any],
        rows: Rows,
        left_out: Ints | None = None,
        Z: Floats | None = None,
    ) -> KernelRegression:
        """With coefficients C (n, M) of training rows.

        With the predictions Z for rows that were left out, as few rows are near as these need, if that is "auto".
        """
        auto = kernel.n_near == "auto"
        if not FarField.serves(rows.squares, kernel):
            return cls(kernel.with_near() if auto else kernel, ridge, np.ascontiguousarray(C, np.float32))
        coefficients, unit = as_half(C)
        far = FarField.of(rows.squares, C, FarField.slope_of(rows.all(), coefficients, unit), follows=True)
        if auto:
            if left_out is None or Z is None or not len(left_out):
                kernel = kernel.with_near()
            else:
                kernel = far.enough_near(kernel, rows, C, coefficients, unit, left_out, Z)
            if not FarField.serves(rows.squares, kernel):
                return cls(kernel, ridge, np.ascontiguousarray(C, np.float32))
        return cls(kernel, ridge, coefficients, unit, far)

    @property
    def n_targets(self) -> int:
        """M."""
        return int(self.coefficients.shape[1])

    @property
    def n_equations(self) -> int:
        """n."""
        return len(self.coefficients)

    @property
    def needs_blas(self) -> bool:
        """The sum over all rows is a product of matrices, the one over near rows a compiled loop."""
        return self.far is None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The coefficients (n, M), no intercept, and if there is a far field, that and the unit of the coefficients."""
        arrays = {"Psi": self.coefficients, "intercept": np.zeros(self.n_targets, np.float32)}
        return arrays if self.far is None else arrays | {"unit": np.array([self.unit])} | self.far.arrays()

    def predict(self, X: Any, likeness: Floats | None, alive: NDArray[np.bool_] | None, n_jobs: int | None) -> Any:
        """K(x, rows) C, see `FarField`; or (K(x, rows) − k) C + k ΣC, where k is about the mean of K(x, rows).

        Most rows are about equally far from x, so that the terms of the plain sum nearly cancel, and its rounding error
        would depend on the order in which rows were learnt: enough to take another way through a tree of the blend.
        Blocks of rows are added up in float64 for the same reason.
        """
        assert likeness is not None
        squares = squared_lengths(X)
        if self.far is not None and self.unit is not None:
            counted = likeness if alive is None else np.where(alive, likeness, np.float32(-np.inf))
            return self.far.kernel_sum(X, counted, squares, self.kernel, self.coefficients, self.unit)
        K = self.kernel.of_likeness(likeness, squares)
        level = np.round(64 * K.mean(axis=1, keepdims=True)) / np.float32(64)  # short, so that K − k is exact
        apart = K - level
        total = level * self._totals
        for rows in blocks(len(self.coefficients), _ROW_BLOCK):
            total += apart[:, rows] @ self.coefficients[rows]
        return total.astype(np.float32)

    def left_out(self, rows: DistinctRows, labels: Any, solver: str, seed: int, n_jobs: int | None) -> Floats:
        """zᵢ − cᵢ / aᵢ with a the diagonal of (K + alpha I)⁻¹, by one factorisation."""
        require_kernel_memory(len(rows), self.n_targets)
        _log.info("leaving out each of %s rows, by kernel", f"{len(rows):,}")
        K = self.kernel.lower_triangle(rows.X, n_jobs)
        if rows.repeated:
            K *= rows.roots
            K *= rows.roots[:, None]
        diagonal = inverse_diagonal(K, self.ridge)
        del K
        coefficients = rows.mean(self.coefficients, rows.ordered).astype(np.float32, copy=False)
        coefficients *= np.float32(self.unit or 1) / diagonal[:, None]
        return np.asarray(dense(rows.embed(labels)) - coefficients, np.float32)

    @cached_property
    def _totals(self) -> NDArray[np.float64]:
        """ΣC over all rows, (M,)."""
        return np.asarray(self.coefficients.sum(axis=0, dtype=np.float64))

    def contributions(self, x: Any, read: Read, rows: Rows | None, likeness: NDArray[Any] | None) -> Contributions:
        """The integrated gradients of Σ_i K(x, xᵢ)⟨C_i, g_l⟩ at fixed lengths ‖x‖, ‖xᵢ‖, and the terms of the sum.

        See `ripml.model.explain` for the formula; the terms are the representer values of Yeh et al. (2018).
        """
        assert rows is not None
        assert likeness is not None
        parts = blocks(len(self.coefficients), _ROW_BLOCK)
        wide = (self.coefficients[part].astype(np.float32, copy=False) for part in parts)
        coefficients = (self.unit or 1.0) * np.concatenate([read(some) for some in wide])
        features, values = _entries(x)
        X, squares = rows.all(), values @ values
        pulls, intercepts = np.zeros((len(features), coefficients.shape[1])), np.zeros(coefficients.shape[1])
        for block in blocks(len(coefficients), _ROW_BLOCK):
            # K = exp(−γ(‖x‖² + ‖xᵢ‖²)) exp(2γ⟨x, xᵢ⟩): the first factor is constant along the path from 0 to x.
            shared = X[block][:, features]
            products = np.asarray(shared @ values)
            apart, rising = self.kernel.gradient_terms(products, squares, rows.squares[block], coefficients[block])
            pulls += values[:, None] * (shared.T @ rising)
            intercepts += apart.sum(axis=0)
        alive = np.isfinite(likeness)  # −∞ for rows that were forgotten
        K = self.kernel.of_likeness(np.where(alive, likeness, 0)[None], np.array([squares], np.float32))[0]
        return features, pulls, intercepts, (np.arange(len(K)), np.where(alive, K, 0)[:, None] * coefficients)

    @property
    def n_posterior_terms(self) -> int:
        """n."""
        return len(self.coefficients)

    def posterior(self, X: Any, others: Rows, terms: Floats, rows: Rows | None, n_jobs: int | None) -> Floats:
        """K(x, others) less what the training rows say of it, K(x, rows) times the terms (n, r)."""
        assert rows is not None
        squares = squared_lengths(X)
        found, known = (
            self.kernel.of_likeness(self.kernel.likeness(X, some, n_jobs), squares) for some in (others, rows)
        )
        return np.asarray(found - known @ terms)

    def with_targets(self, kept: Ints) -> Regression:
        """With only these targets."""
        far = None if self.far is None else self.far.with_targets(kept)
        return replace(self, coefficients=np.ascontiguousarray(self.coefficients[:, kept]), far=far, system=None)

    def widened(self, n_targets: int) -> Regression:
        """With more targets."""
        far = None if self.far is None else self.far.widened(n_targets)
        coefficients = np.pad(self.coefficients, ((0, 0), (0, n_targets - self.n_targets)))
        return replace(self, coefficients=coefficients, far=far)

    def compacted(self, alive: Ints) -> Regression:
        """With only the lines of these rows."""
        super().compacted(alive)
        return replace(self, coefficients=np.ascontiguousarray(self.coefficients[alive]))

    def emptied(self) -> Regression:
        """No lines."""
        return replace(self, coefficients=np.zeros((0, self.n_targets), np.float32), unit=None, far=None, system=None)

    def cleared(self, features: NDArray[np.bool_]) -> Regression:
        """Only the far field has anything for each feature."""
        return self if self.far is None else replace(self, far=self.far.cleared(features))

    def _make_system(self, training: Training | None, n_jobs: int | None) -> System:
        X, Z = _training(training)
        system = IncrementalKernelRidge if self.kernel.n_near is None else IncrementalDualRidge
        return system(self.kernel, X, dense(Z), self.ridge, n_jobs)

    def _solution(self, system: System) -> dict[str, Any]:
        assert isinstance(system, IncrementalKernelRidge)
        C = system.coefficients
        if not FarField.serves(system.squares[system.alive], self.kernel):
            return {"coefficients": C.astype(np.float32), "unit": None, "far": None}
        assert isinstance(system, IncrementalDualRidge)
        coefficients, unit = as_half(C)
        return {"coefficients": coefficients, "unit": unit, "far": FarField.of(system.squares, C, system.Psi)}


def _in_few_bytes(Psi: Floats, intercept: Floats, large: int) -> tuple[NDArray[Any], Floats, bool, Floats | None]:
    """Psi, the intercept, that there is one, and the units of the lines of Psi, which are in 8 bits if it is large."""
    if Psi.size >= large:
        rounded, units = as_bytes(Psi)
        return rounded, intercept, True, units
    return np.ascontiguousarray(Psi), intercept, True, None


def with_ones(X: Any) -> Any:
    """X with a column of ones added at the end, for the intercept.

    >>> with_ones(np.array([[2.0]])).tolist()
    [[2.0, 1.0]]
    """
    ones = np.ones((X.shape[0], 1), np.float32)
    return scipy.sparse.hstack([X, ones], format="csr") if scipy.sparse.issparse(X) else np.hstack([X, ones])


def _training(training: Training | None) -> tuple[Any, Any]:
    if training is None:
        raise ParameterError(
            "this version of the model has nothing to learn on from; take the newest one, or fit again."
        )
    return training()


def _entries(x: Any) -> tuple[Ints, NDArray[np.float64]]:
    """The nonzero features of a row (1, d), and their values."""
    if scipy.sparse.issparse(x):
        nonzero = x.data != 0
        return x.indices[nonzero].astype(np.int64), x.data[nonzero].astype(np.float64)
    features = np.flatnonzero(x[0])
    return features, np.asarray(x[0, features], np.float64)
