"""Ridge regression whose rows come and go: exact, and at the cost of the rows that change.

    linear   (XᵀX + alpha I) Psi = XᵀZ,    XᵀX ± xᵀx and XᵀZ ± xᵀz for a row       O(d² + d M) a row
    kernel   (K + alpha I) C = Z,          a row and column of K come or go         O(n² + n M) a row

It is recursive least squares with a memory that can be taken back (Plackett 1950), and for kernels the decremental
learning of Cauwenberghs and Poggio (2000). Rounding would add up, so that after `max_corrections` ranks the system is
factorised anew: on a thread, from what there was at that time, and taken over a quarter of as many ranks later with the
changes since. When that happens depends on the sequence of changes and not on the thread, and so do the results, to the
last bit. Two things move that point, and with it the last digits: `settle`, which whoever saves must call, takes over
early; and where there is no memory for a second factor of a kernel matrix, it is solved anew at once, without a thread.

A memory is private to one writer, who changes it in place.
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
    Inverse,
    Renewed,
    RowChange,
    add_product,
    doubles,
    measured,
    relative,
    solve_lower,
    started,
    widened,
)
from ripml.regression.sums import Factor, PackedSums, Sums

__all__ = ["IncrementalRidge"]

_CONDITION = 1e-10  # below, `Factor` takes the system for singular, and so does a memory
_EPS = float(np.finfo(np.float64).eps)
_LEFT = 256  # times the rounding of what was added up: a feature with less may have been forgotten
_CLEARLY = 1e-6  # of what was added up: an eigenvalue that far below zero is not rounding
_ROWS = 8192  # counted at a time


class IncrementalRidge(Renewed):
    """Psi (d, M) of (XᵀX + alpha I) Psi = XᵀZ, from sums over rows that come and go.

    The sums are taken over and changed in place. Where the system is singular, or alpha is 0, every change solves it
    from the sums; so does a batch of more than d/4 rows. It is for one thread at a time: reading may solve.

    >>> memory = IncrementalRidge.of(np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]]), alpha=5.0)
    >>> memory.change(learnt=(np.array([[1.0]]), np.array([[3.0]])), forgotten=(np.array([[1.0]]), np.array([[2.0]])))
    >>> memory.Psi.round(12)
    array([[1.1]])
    """

    sums_rows: ClassVar[bool] = True
    undoes_failures: ClassVar[bool] = True

    def __init__(self, sums: Sums, alpha: float, added_up: NDArray[Any] | None = None) -> None:
        super().__init__()
        if not is_number(alpha) or not 0 <= alpha < np.inf:
            raise ParameterError(f"`alpha` must be a finite number ≥ 0; got {alpha!r}.")
        gram, moment = (np.require(array, np.float64, ["C", "W"]) for array in (sums.gram, sums.moment))
        self.sums = Sums(gram, moment, sums.n_rows)
        self.alpha = float(alpha)
        self._Psi: Doubles | None = None
        self._since: list[tuple[int, Doubles, Doubles]] = []  # what changed since the factorisation under way
        self._moved: list[tuple[Doubles, Doubles | None]] = []
        # What was added up in the diagonal of XᵀX since it was zero, as the root of a sum of squares, and before that.
        self._noise, self._lost = np.abs(gram.diagonal()), np.zeros(len(gram))
        if added_up is not None:
            self._noise = np.asarray(np.maximum(self._noise, added_up), np.float64)
        self._having = np.zeros(len(gram), np.int64)  # rows that have the feature, but for those in the sums given
        self._counted = self._noise == 0  # whether there are none of these

    @classmethod
    def of(cls, X: Any, Z: Any, alpha: float, n_jobs: int | None = None) -> IncrementalRidge:
        """The memory of these rows, X (n, d) dense or CSR and Z (n, M)."""
        memory = cls(Sums.of(X, Z, n_jobs), alpha)
        memory._having, memory._counted[:] = _having(X), True
        return memory

    @property
    def solution(self) -> Doubles:
        """Psi (d, M)."""
        return self.Psi

    def apply(self, change: RowChange) -> None:
        """Learn, forget and retarget rows; what does not work is taken back."""
        forgotten, moved = change.forgotten, change.retargeted
        self.change(change.learnt, None if forgotten is None else forgotten[:2])
        if moved is not None:
            self.retarget(moved[0], moved[2] - moved[1])

    def packed_sums(self, needed: bool) -> PackedSums | None:
        """The sums at rest, once a factorisation under way is done."""
        self.settle()
        return PackedSums.of(self.sums, self.added_up) if needed else None

    @property
    def Psi(self) -> Doubles:
        """The solution for the rows there are, (d, M)."""
        if self._Psi is None:
            self._inverse, self._Psi = _solved_sums(self.sums.gram, self.sums.moment, self.alpha, self._added_up)
            self._n_solved += 1
        return self._Psi

    def _ready(self) -> bool:
        """Solve, if that was not done, and whether there is something that can be corrected."""
        return self.Psi is not None and self._inverse is not None

    def change(self, learnt: tuple[Any, Any] | None, forgotten: tuple[Any, Any] | None) -> None:
        """Learn rows (X (r, d) dense or CSR, Z (r, M)) and forget others, which were learnt before.

        That they were is not known of sums, but it is an error where it shows, and then nothing has changed.
        """
        changes = [(sign, *rows) for sign, rows in ((+1, learnt), (-1, forgotten)) if rows and rows[0].shape[0]]
        if not changes:
            return
        n_rows = self.sums.n_rows + sum(sign * X.shape[0] for sign, X, _ in changes)
        if n_rows < 0:
            raise DataError(f"{-n_rows:,} more rows were forgotten than learnt; forget rows that were learnt only.")
        few = sum(X.shape[0] for _, X, _ in changes) <= min(len(self.sums.gram) // 4 + 1, self._most())
        few = few and n_rows > 0 and self._ready()
        if few:
            changes = [(sign, doubles(X), doubles(Z)) for sign, X, Z in changes]
            if self._job is not None:
                self._since += changes
        else:
            self._drop()
        for sign, X, Z in changes:
            if few:
                self._correct(sign, X, Z)
            self._add(sign, X, Z, few)
        before, self.sums = self.sums, Sums(self.sums.gram, self.sums.moment, n_rows)
        try:
            self._clean()
            self._advance()
            self._ready()  # now, so that what comes of later changes does not depend on who asked in between
        except DataError:
            for sign, X, Z in changes:
                self._add(-sign, X, Z, few)
            self.sums = before
            self._drop()
            raise

    def _add(self, sign: int, X: Any, Z: Any, few: bool) -> None:
        """Rows come (+) or go (−) in the sums."""
        if few:
            add_product(self.sums.gram, X.T, X, sign)
            add_product(self.sums.moment, X.T, Z, sign)
        else:
            more = Sums.of(X, Z)
            self.sums.gram[:] += sign * more.gram
            self.sums.moment[:] += sign * more.moment
        self._having += sign * _having(X)
        self._noise = np.hypot(self._noise, self.sums.gram.diagonal())

    def retarget(self, X: Any, change: Any) -> None:
        """Rows X (r, d) keep their features, and their targets change by `change` (r, M)."""
        change = doubles(change)
        moment = np.asarray(X.T @ change)
        ready = self._ready()
        self.sums.moment[:] += moment
        if not ready:
            self._drop()
            return
        move = (doubles(X).T, change) if len(change) <= change.shape[1] else (moment, None)
        self._move(*move)
        if self._job is not None:
            self._moved.append(move)

    @property
    def n_targets(self) -> int:
        """M."""
        return int(self.sums.moment.shape[1])

    def widen(self, n_targets: int) -> None:
        """Have this many targets; new ones are zero for all rows so far, and those beyond are dropped."""
        self.settle()
        self.sums = Sums(self.sums.gram, widened(self.sums.moment, n_targets), self.sums.n_rows)
        self._Psi = None if self._Psi is None else widened(self._Psi, n_targets)

    @property
    def added_up(self) -> Doubles:
        """What was ever in the diagonal of XᵀX, (d,): rounding is in proportion to it, also once it was subtracted."""
        ever: Doubles = self._noise + self._lost
        return ever

    def drift(self) -> float:
        """How far rounding has come, measured: ‖(XᵀX + alpha I)Psi − XᵀZ‖ / ‖XᵀZ‖ of a few targets.

        What rounding left in the sums themselves, such as when a large row was forgotten, does not show there: it is
        estimated, feature by feature, from all that was ever added up in the diagonal of XᵀX and what is left, and
        is 1 where nothing is left and alpha is 0. The greater of the two counts. Neither knows the condition of XᵀX.
        """
        targets = measured(self.Psi.shape[1])
        Psi, moment = self.Psi[:, targets], self.sums.moment[:, targets]
        noise, left = self._noise + self._lost, np.maximum(self.sums.gram.diagonal(), 0) + self.alpha
        lost = np.divide(_EPS * noise, left, out=np.sign(noise), where=left > 0).max(initial=0)
        return max(relative(self.sums.gram @ Psi + self.alpha * Psi - moment, moment), float(lost))

    @property
    def _added_up(self) -> float:
        """The most that was ever added up for a feature."""
        return float((self._noise + self._lost).max(initial=0))

    def _most(self) -> int:
        return (
            int(np.clip(len(self.sums.gram) // 2, 64, 1024)) if self.max_corrections is None else self.max_corrections
        )

    def _clean(self) -> None:
        """Features that no row has any more, of which but rounding is left in the sums, become zeros.

        Where rows came with the sums, they are not counted, and small ones may be lost: the drift goes on to say so.
        """
        gram, moment = self.sums.gram, self.sums.moment
        if not self.sums.n_rows:
            self._having[:], self._counted[:], self._lost[:] = 0, True, 0
            gone = np.flatnonzero(self._noise > 0)
        else:
            allowed, size = _LEFT * _EPS, np.sqrt(self._noise)
            gone = np.flatnonzero((self._having <= 0) & (size > 0) & (gram.diagonal() <= allowed * self._noise))
            # xᵢxⱼ is far above rounding where xᵢ² is just below: small rows that are left show there.
            gone = gone[(np.abs(gram[gone]) <= allowed * size[gone, None] * size).all(axis=1)]
        if len(gone):
            sure = self._counted[gone] & (self._having[gone] == 0)
            self._lost[gone] = np.where(sure, 0, np.hypot(self._lost[gone], self._noise[gone]))
            gram[gone], gram[:, gone], moment[gone], self._noise[gone], self._having[gone] = 0, 0, 0, 0, 0

    def _drop(self) -> None:
        """Solve anew when asked."""
        self._inverse = self._Psi = self._job = None

    def _correct(self, sign: int, X: Doubles, Z: Doubles, summed: Sequence[tuple[int, Doubles]] = ()) -> None:
        """Psi ← Psi ± (G ± XᵀX)⁻¹Xᵀ(Z − X Psi) of rows that come (+) or go (−), by W T⁻¹ of the change of G⁻¹.

        What is `summed` is part of the sums, but not of the inverse yet.
        """
        if self._inverse is None:  # given up already
            return
        try:
            W, T = self._inverse.shifted(X, sign, lambda U: self._product(U, summed))
        except np.linalg.LinAlgError:
            self._drop()
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
        """GU."""
        total = np.asarray(self.sums.gram @ U + self.alpha * U, np.float64)
        for sign, rows in summed:
            total -= sign * (rows.T @ (rows @ U))
        return total

    def _begun(self) -> Future[Any]:
        gram, moment, alpha, added_up = self.sums.gram.copy(), self.sums.moment.copy(), self.alpha, self._added_up
        self._since, self._moved = [], []
        return started(lambda: _solved_sums(gram, moment, alpha, added_up))

    def _take_over(self, solved: tuple[Inverse | None, Doubles]) -> None:
        self._inverse, self._Psi = solved
        # The solution is one of the sums, whatever the order in which they were made: few large changes for many small.
        changes: list[tuple[int, Doubles, Doubles]] = []
        for sign in (+1, -1):
            rows = [(X, Z) for its, X, Z in self._since if its == sign]
            if rows:
                X, Z = (np.concatenate(arrays) for arrays in zip(*rows, strict=True))
                changes.append((sign, X, Z))
        for number, (sign, X, Z) in enumerate(changes):
            self._correct(sign, X, Z, [(its, rows) for its, rows, _ in changes[number:]])
        if self._inverse is None:
            self._drop()  # found to be singular
            return
        for left, right in self._moved:
            self._move(left, right)


def _solved_sums(
    gram: NDArray[Any], moment: NDArray[Any], alpha: float, added_up: float
) -> tuple[Inverse | None, Doubles]:
    """The inverse of gram + alpha I, where it is safely there, and the solution.

    An error where gram + alpha I has an eigenvalue below zero by more than the rounding of what was `added_up`. Of sums
    that were given this is taken to be what they have: that rows 10⁴ times as long came and went before is not known.
    """
    if alpha > 0 and len(gram):
        shifted = gram.copy()
        shifted.flat[:: len(gram) + 1] += alpha
        try:
            inverse = Inverse(shifted)
            if inverse.condition >= _CONDITION:
                return inverse, np.ascontiguousarray(inverse.apply(moment))
        except np.linalg.LinAlgError:
            _check_possible(gram, alpha + _CLEARLY * added_up)
    with np.errstate(invalid="ignore"):  # the root of a diagonal that is below zero by rounding: then by eigenvalues
        return None, np.ascontiguousarray(Factor(gram, alpha).solve(moment), np.float64)


def _check_possible(gram: NDArray[Any], shift: float) -> None:
    """An error if gram + shift I is not positive definite, and all of it is finite."""
    shifted = gram.copy()
    shifted.flat[:: len(gram) + 1] += shift
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        if np.isfinite(shifted).all():
            raise DataError(
                "the sums of rows are not those of any rows: something was forgotten that was never learnt; fit again."
            ) from None


def _having(X: Any) -> NDArray[np.int64]:
    """The number of rows that have each feature, (d,)."""
    if scipy.sparse.issparse(X):
        return np.bincount(X.indices[X.data != 0], minlength=X.shape[1]).astype(np.int64)
    counts = np.zeros(X.shape[1], np.int64)
    for rows in blocks(X.shape[0], _ROWS):
        counts += np.count_nonzero(X[rows], axis=0)
    return counts
