"""Ridge regression (the paper's step 2) that learns and forgets rows exactly, at a cost per changed row.

    linear   (XᵀX + alpha I) Psi = XᵀZ,    XᵀX ± xᵀx and XᵀZ ± xᵀz              O(d² + d M) per row
    kernel   (K + alpha I) C = Z,          add or remove a row and column of K  O(n² + n M) per row

The linear case is recursive least squares that can also remove rows (Plackett 1950), the kernel case is the decremental
learning of Cauwenberghs and Poggio (2000). To bound rounding errors, the system is factorised again after
`max_corrections` rank-one changes: a thread factorises a copy of it, and max_corrections / 4 changes later the result
replaces the old factor, with those changes applied. The moment depends on the sequence of changes and not on the speed
of the thread, so results are reproducible to the last bit. Two things move that moment, and with it the last digits:
`settle`, which must be called before saving, waits for the thread at once; and where memory is too short for a second
factor of a kernel matrix, the system is solved at once, without a thread.

A system belongs to one writer, which changes it in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError, is_number
from ripml.base.parallel import blocks
from ripml.regression.inverse import (
    Doubles,
    IncrementalSystem,
    Inverse,
    RowChange,
    Triangle,
    add_product,
    doubles,
    measured,
    relative,
    solve_lower,
    started,
    widened,
)
from ripml.regression.signatures import RowSignatures
from ripml.regression.sums import Factor, PackedSums, Sums

__all__ = ["IncrementalRidge"]

_CONDITION = 1e-10  # reciprocal condition below which the system counts as singular, as in `Factor`
_EPS = float(np.finfo(np.float64).eps)
_CANCELLED = 256  # times eps times the magnitude of a sum: what is below may be rounding only
_NEGATIVE = 1e-6  # times the magnitude of a sum: an eigenvalue further below zero is not explained by rounding
_ROWS = 8192  # dense rows counted at a time


class IncrementalRidge(IncrementalSystem):
    """Psi (d, M) with (XᵀX + alpha I) Psi = XᵀZ, kept up to date from sums over the rows.

    It takes over the sums and changes them in place. If the system is singular or alpha is 0, and for a batch of more
    than d/4 rows, a change solves the whole system from the sums. Not thread-safe, even for reading: `Psi` may solve.

    >>> ridge = IncrementalRidge.of(np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]]), alpha=5.0)
    >>> ridge.change(learnt=(np.array([[1.0]]), np.array([[3.0]])), forgotten=(np.array([[1.0]]), np.array([[2.0]])))
    >>> ridge.Psi.round(12)
    array([[1.1]])
    """

    sums_rows: ClassVar[bool] = True
    undoes_failures: ClassVar[bool] = True

    def __init__(
        self,
        sums: Sums,
        alpha: float,
        added_up: NDArray[Any] | None = None,
        signatures: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__()
        if not is_number(alpha) or not 0 <= alpha < np.inf:
            raise ParameterError(f"`alpha` must be a finite number ≥ 0; got {alpha!r}.")
        gram, moment = (np.require(array, np.float64, ["C", "W"]) for array in (sums.gram, sums.moment))
        self.sums = Sums(gram, moment, sums.n_rows)
        self.alpha = float(alpha)
        self._Psi: Doubles | None = None
        # Changes made since the background factorisation started: rows with their sign, and targets.
        self._pending_rows: list[tuple[int, Doubles, Doubles]] = []
        self._pending_targets: list[tuple[Doubles, Doubles | None]] = []
        # The scale of rounding errors: the root of the sum of squares of all values that each diagonal entry of XᵀX
        # has had since it was last zero, and the same for the time before.
        self._scale, self._cleared_scale = np.abs(gram.diagonal()), np.zeros(len(gram))
        if added_up is not None:
            self._scale = np.asarray(np.maximum(self._scale, added_up), np.float64)
        self._row_counts = np.zeros(len(gram), np.int64)  # rows with each feature, without rows of the initial sums
        self._counts_exact = self._scale == 0  # whether the initial sums have no row with the feature
        # Of all rows; None where those of the initial sums are not known.
        self._signatures = None if signatures is None and sums.n_rows else RowSignatures(signatures)

    @classmethod
    def of(cls, X: Any, Z: Any, alpha: float, n_jobs: int | None = None) -> IncrementalRidge:
        """The system of these rows, X (n, d) dense or CSR and Z (n, M)."""
        ridge = cls(Sums.of(X, Z, n_jobs), alpha)
        ridge._row_counts, ridge._counts_exact[:] = _feature_counts(X), True
        ridge._signatures = RowSignatures.of(X)
        return ridge

    @property
    def solution(self) -> Doubles:
        """Psi (d, M)."""
        return self.Psi

    def apply(self, change: RowChange) -> None:
        """Learn, forget and retarget rows; a change that fails is undone."""
        forgotten, moved = change.forgotten, change.retargeted
        if self._signatures is not None and moved is not None:
            self._signatures.places_of(moved[0])
        self.change(change.learnt, None if forgotten is None else forgotten[:2])
        if moved is not None:
            self.retarget(moved[0], moved[2] - moved[1])

    def packed_sums(self, needed: bool) -> PackedSums | None:
        """The sums in packed form, if needed, after a background factorisation has finished."""
        self.settle()
        if not needed:
            return None
        signatures = None if self._signatures is None else self._signatures.values
        return PackedSums.of(self.sums, self.added_up, signatures)

    @property
    def Psi(self) -> Doubles:
        """The solution for the present rows, (d, M)."""
        if self._Psi is None:
            self._inverse, self._Psi = _solve_sums(self.sums.gram, self.sums.moment, self.alpha, self._max_scale)
            self._n_solved += 1
        return self._Psi

    def _ready(self) -> bool:
        """Solve if necessary; whether there is an inverse that can be corrected."""
        return self.Psi is not None and self._inverse is not None

    def change(self, learnt: tuple[Any, Any] | None, forgotten: tuple[Any, Any] | None) -> None:
        """Learn rows (X (r, d) dense or CSR, Z (r, M)) and forget others, which must have been learnt before.

        DataError is raised, and nothing has changed, for a row that was not learnt with these features. Where the rows
        of the initial sums are not known, that is noticed only if the sums become impossible.
        """
        changes = [(sign, *rows) for sign, rows in ((+1, learnt), (-1, forgotten)) if rows and rows[0].shape[0]]
        if not changes:
            return
        n_rows = self.sums.n_rows + sum(sign * X.shape[0] for sign, X, _ in changes)
        if n_rows < 0:
            raise DataError(f"{-n_rows:,} more rows were forgotten than learnt; forget only rows that were learnt.")
        gone = None
        if self._signatures is not None and forgotten and forgotten[0].shape[0]:
            gone = self._signatures.places_of(forgotten[0])
        # Correct the inverse for few rows; otherwise solve again from the sums.
        few = sum(X.shape[0] for _, X, _ in changes) <= min(len(self.sums.gram) // 4 + 1, self._max_ranks())
        few = few and n_rows > 0 and self._ready()
        if few:
            changes = [(sign, doubles(X), doubles(Z)) for sign, X, Z in changes]
            if self._job is not None:
                self._pending_rows += changes
        else:
            self._invalidate()
        for sign, X, Z in changes:
            if few:
                self._correct(sign, X, Z)
            self._add(sign, X, Z, few)
        before, self.sums = self.sums, Sums(self.sums.gram, self.sums.moment, n_rows)
        try:
            self._clear_absent_features()
            self._advance()
            self._ready()  # solve now: later results must not depend on whether Psi was read in between
        except DataError:
            for sign, X, Z in changes:
                self._add(-sign, X, Z, few)
            self.sums = before
            self._invalidate()
            raise
        if not n_rows:
            self._signatures = RowSignatures()
        elif self._signatures is not None:
            if gone is not None:
                self._signatures.remove(gone)
            if learnt and learnt[0].shape[0]:
                self._signatures.add(learnt[0])

    def _add(self, sign: int, X: Any, Z: Any, few: bool) -> None:
        """Add rows to the sums (+1) or subtract them (−1)."""
        if few:
            add_product(self.sums.gram, X.T, X, sign)
            add_product(self.sums.moment, X.T, Z, sign)
        else:
            batch = Sums.of(X, Z)
            self.sums.gram[:] += sign * batch.gram
            self.sums.moment[:] += sign * batch.moment
        self._row_counts += sign * _feature_counts(X)
        self._scale = np.hypot(self._scale, self.sums.gram.diagonal())

    def retarget(self, X: Any, change: Any) -> None:
        """Change the targets of rows X (r, d) by `change` (r, M)."""
        change = doubles(change)
        moment = np.asarray(X.T @ change)
        ready = self._ready()
        self.sums.moment[:] += moment
        if not ready:
            self._invalidate()
            return
        move = (doubles(X).T, change) if len(change) <= change.shape[1] else (moment, None)
        self._move(*move)
        if self._job is not None:
            self._pending_targets.append(move)

    @property
    def n_targets(self) -> int:
        """M."""
        return int(self.sums.moment.shape[1])

    def widen(self, n_targets: int) -> None:
        """Change to this many targets: new ones are zero for all present rows, and those beyond are dropped."""
        self.settle()
        self.sums = Sums(self.sums.gram, widened(self.sums.moment, n_targets), self.sums.n_rows)
        self._Psi = None if self._Psi is None else widened(self._Psi, n_targets)

    def posterior_terms(self, X: Any) -> Doubles:
        """alpha G⁻¹Xᵀ (d, r) with G = XᵀX + alpha I of the training rows."""
        if not self._ready():
            raise DataError("the regression is singular, so no decision can be weighed; use a larger ridge.")
        assert self._inverse is not None
        return self.alpha * self._inverse.solved(np.ascontiguousarray(doubles(X).T), self._product)

    def mark(self) -> Any:
        """The inverse, and how often it was corrected."""
        return self._inverse, 0 if self._inverse is None else self._inverse.n_corrections

    def followed_terms(self, X: Any, terms: NDArray[Any], mark: Any) -> NDArray[Any] | None:
        """With the corrections of the inverse since."""
        inverse, since = mark
        if inverse is None or inverse is not self._inverse:
            return None
        assert isinstance(inverse, Inverse)
        return np.asarray(terms + self.alpha * inverse.correction(since, doubles(X).T))

    @property
    def added_up(self) -> Doubles:
        """The magnitude of all values that the diagonal of XᵀX ever had, (d,).

        Rounding errors are proportional to it, even after the values were subtracted.
        """
        total: Doubles = self._scale + self._cleared_scale
        return total

    def drift(self) -> float:
        """The error of the solution: the largest of a measured and an estimated rounding error, and of what is wrong.

        Measured is the residual ‖(XᵀX + alpha I)Psi − XᵀZ‖ / ‖XᵀZ‖ of a few targets. It does not see errors in the sums
        themselves, such as those left by a large row that was forgotten. These are estimated for each feature as
        eps · `added_up` / (diagonal of XᵀX + alpha), or 1 where the denominator is 0. Neither takes the condition of
        XᵀX into account. What is wrong is the share of XᵀX that is not of the rows whose signatures are known: another
        row was subtracted than the one that was added.
        """
        targets = measured(self.Psi.shape[1])
        Psi, moment = self.Psi[:, targets], self.sums.moment[:, targets]
        scale, diagonal = self.added_up, np.maximum(self.sums.gram.diagonal(), 0) + self.alpha
        estimate = np.divide(_EPS * scale, diagonal, out=np.sign(scale), where=diagonal > 0).max(initial=0)
        wrong = 0.0 if self._signatures is None else self._signatures.mismatch(self.sums.gram)
        return max(relative(self.sums.gram @ Psi + self.alpha * Psi - moment, moment), float(estimate), wrong)

    @property
    def _max_scale(self) -> float:
        return float(self.added_up.max(initial=0))

    def _max_ranks(self) -> int:
        by_size = int(np.clip(len(self.sums.gram) // 2, 64, 1024))
        return by_size if self.max_corrections is None else self.max_corrections

    def _clear_absent_features(self) -> None:
        """Set the sums of features that no row has any more to zero, where only rounding errors remain.

        Rows of the initial sums are not counted, so small ones may be lost here: `drift` keeps reporting them.
        """
        gram, moment = self.sums.gram, self.sums.moment
        if not self.sums.n_rows:
            self._row_counts[:], self._counts_exact[:], self._cleared_scale[:] = 0, True, 0
            absent = np.flatnonzero(self._scale > 0)
        else:
            allowed, size = _CANCELLED * _EPS, np.sqrt(self._scale)
            absent = np.flatnonzero((self._row_counts <= 0) & (size > 0) & (gram.diagonal() <= allowed * self._scale))
            # A small remaining row shows in xᵢxⱼ, which is far above rounding even where xᵢ² is just below it.
            absent = absent[(np.abs(gram[absent]) <= allowed * size[absent, None] * size).all(axis=1)]
        if len(absent):
            sure = self._counts_exact[absent] & (self._row_counts[absent] == 0)
            magnitude = np.hypot(self._cleared_scale[absent], self._scale[absent])
            self._cleared_scale[absent] = np.where(sure, 0, magnitude)
            gram[absent], gram[:, absent], moment[absent] = 0, 0, 0
            self._scale[absent], self._row_counts[absent] = 0, 0

    def _invalidate(self) -> None:
        """Discard the solution: the next read solves the system from the sums."""
        self._inverse = self._Psi = self._job = None

    def _correct(self, sign: int, X: Doubles, Z: Doubles, summed: Sequence[tuple[int, Doubles]] = ()) -> None:
        """Psi ← Psi ± (G ± XᵀX)⁻¹Xᵀ(Z − X Psi) for rows to learn (+1) or forget (−1), with W and T of `shifted`.

        The sums already contain the rows in `summed`, the inverse does not.
        """
        if self._inverse is None:  # an earlier correction failed
            return
        try:
            W, T = self._inverse.shifted(X, sign, lambda U: self._product(U, summed))
        except np.linalg.LinAlgError:
            self._invalidate()
            return
        add_product(self.Psi, W, solve_lower(T, Z - X @ self.Psi), sign)

    def _move(self, left: Doubles, right: Doubles | None) -> None:
        """Psi ← Psi + G⁻¹ left right."""
        assert self._inverse is not None
        step = self._inverse.solved(left, self._product)
        if right is None:
            self.Psi[:] += step
        else:
            add_product(self.Psi, step, right)

    def _product(self, U: Doubles, summed: Sequence[tuple[int, Doubles]] = ()) -> Doubles:
        """G U, where G = XᵀX + alpha I is the matrix that the inverse belongs to."""
        total = np.asarray(self.sums.gram @ U + self.alpha * U, np.float64)
        for sign, rows in summed:
            total -= sign * (rows.T @ (rows @ U))
        return total

    def _start_job(self) -> Future[Any]:
        gram, moment, alpha, scale = self.sums.gram.copy(), self.sums.moment.copy(), self.alpha, self._max_scale
        self._pending_rows, self._pending_targets = [], []
        return started(lambda: _solve_sums(gram, moment, alpha, scale))

    def _take_over(self, solved: tuple[Inverse | None, Doubles]) -> None:
        self._inverse, self._Psi = solved
        # The order of changes does not matter to the sums, so one large correction per sign replaces many small ones.
        changes: list[tuple[int, Doubles, Doubles]] = []
        for sign in (+1, -1):
            rows = [(X, Z) for change_sign, X, Z in self._pending_rows if change_sign == sign]
            if rows:
                X, Z = (np.concatenate(arrays) for arrays in zip(*rows, strict=True))
                changes.append((sign, X, Z))
        for number, (sign, X, Z) in enumerate(changes):
            self._correct(sign, X, Z, [(later_sign, later_X) for later_sign, later_X, _ in changes[number:]])
        if self._inverse is None:  # a correction found the system singular
            self._invalidate()
            return
        for left, right in self._pending_targets:
            self._move(left, right)


def _solve_sums(gram: NDArray[Any], moment: NDArray[Any], alpha: float, scale: float) -> tuple[Inverse | None, Doubles]:
    """The inverse of gram + alpha I, None if it is ill-conditioned, and the solution.

    DataError if gram + alpha I has an eigenvalue further below zero than rounding of numbers of size `scale` explains.
    For sums that were passed to the constructor, `scale` is their present size: rows 10⁴ times as long that were added
    and removed before are not known.
    """
    if alpha > 0 and len(gram):
        shifted = Triangle.of(gram)
        shifted.add_to_diagonal(alpha)
        try:
            inverse = Inverse(shifted)
            if inverse.condition >= _CONDITION:
                return inverse, np.ascontiguousarray(inverse.apply(moment))
        except np.linalg.LinAlgError:
            _check_possible(gram, alpha + _NEGATIVE * scale)
    # A diagonal below zero by rounding has no root: `Factor` then uses eigenvalues.
    with np.errstate(invalid="ignore"):
        return None, np.ascontiguousarray(Factor(gram, alpha).solve(moment), np.float64)


def _check_possible(gram: NDArray[Any], shift: float) -> None:
    """DataError if gram + shift I is finite and not positive definite."""
    shifted = gram.copy()
    shifted.flat[:: len(gram) + 1] += shift
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        if np.isfinite(shifted).all():
            raise DataError(
                "the sums over rows are impossible: rows were forgotten that were never learnt; fit again."
            ) from None


def _feature_counts(X: Any) -> NDArray[np.int64]:
    """The number of rows in which each feature is not zero, (d,)."""
    if scipy.sparse.issparse(X):
        return np.bincount(X.indices[X.data != 0], minlength=X.shape[1]).astype(np.int64)
    counts = np.zeros(X.shape[1], np.int64)
    for rows in blocks(X.shape[0], _ROWS):
        counts += np.count_nonzero(X[rows], axis=0)
    return counts
