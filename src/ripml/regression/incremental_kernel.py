"""Kernel ridge regression, and linear by its dual, whose rows come and go; see `ripml.regression.incremental`.

    (K + alpha I) C = Z,    a row and column of K come or go    O(n² + n M) a row

A row is added by bordering the factor and removed by the reverse, the decremental learning of Cauwenberghs and Poggio
(2000). K is made in float64, whatever the rows are in, so that a row which was added is as good as one from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray
from ripml.base.errors import DataError, ParameterError, is_number
from ripml.base.parallel import available_memory, blocks, map_blocks, require_memory
from ripml.base.products import dense
from ripml.regression.inverse import (
    Doubles,
    Ints,
    Inverse,
    Renewed,
    RowChange,
    add_product,
    measured,
    relative,
    solve_lower,
    started,
    widened,
)
from ripml.regression.kernels import Kernel, Rows

__all__ = ["IncrementalDualRidge", "IncrementalKernelRidge"]

_TILE, _FEW = 1024, 64  # rows worked on at a time, and those for which sparse rows are not split by frequency
_MEASURED_ROWS = 256  # that the drift is measured by


class IncrementalKernelRidge(Renewed):
    """C (n, M) of (K + alpha I) C = Z over the rows that are alive.

    A row keeps its place until `compact`. Targets are kept in the type that they have, and everything else is float64.
    It is for one thread at a time: reading may solve.

    >>> from ripml.regression.kernels import Linear
    >>> memory = IncrementalKernelRidge(Linear(), np.array([[1.0], [2.0]]), np.array([[1.0], [1.0]]), alpha=1.0)
    >>> memory.forget(memory.learn(np.array([[3.0]]), np.array([[1.0]]))[:0])
    >>> memory.forget(np.array([0, 1]))
    >>> memory.coefficients.round(12)
    array([[0. ],
           [0. ],
           [0.1]])
    """

    def __init__(self, kernel: Kernel, X: Any, Z: Any, alpha: float, n_jobs: int | None = None) -> None:
        super().__init__()
        if not is_number(alpha) or not 0 < alpha < np.inf:
            got = f"{alpha:g}" if is_number(alpha) else repr(alpha)
            raise ParameterError(f"`ridge` must be above 0 for rows of a kernel to be learnt or forgotten; got {got}.")
        self.kernel, self.alpha = kernel, float(alpha)
        self._n_jobs = n_jobs
        self._rows = GrowingRows(X)
        self._Z = GrowingArray(np.array(Z))
        self._C = GrowingArray(np.zeros(Z.shape))
        self._alive = GrowingArray(np.ones(X.shape[0], np.bool_))
        self._at: Ints = np.empty(0, np.int64)  # the places of the rows of the inverse, -1 for those that left
        self._stale = True
        self._moved: dict[int, Doubles] = {}  # by how much targets changed since the factorisation under way

    @property
    def solution(self) -> Doubles:
        """C (n, M)."""
        return self.coefficients

    def apply(self, change: RowChange) -> None:
        """Forget, retarget and learn rows, by their places."""
        if change.forgotten is not None:
            self.forget(change.forgotten[2])
        if change.retargeted is not None:
            self.retarget(change.retargeted[3], change.retargeted[2])
        if change.learnt is not None:
            self.learn(*change.learnt)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Whether the row of each place is there, (n,)."""
        return self._alive.view

    @property
    def coefficients(self) -> Doubles:
        """C (n, M), zeros where no row is alive."""
        self._solve()
        return self._C.view

    def learn(self, X: Any, Z: Any) -> Ints:
        """Learn rows X (r, d) with targets Z (r, M); their places follow the last."""
        n, r = len(self.alive), X.shape[0]
        few = self._few(r)
        self._rows.append(X)
        self._Z.append(np.asarray(Z))
        self._C.append(np.zeros(Z.shape))
        self._alive.append(np.ones(r, np.bool_))
        places = np.arange(n, n + r)
        self._changed(self._border, places, few)
        return places

    def forget(self, places: Any) -> None:
        """Forget the rows of these places, which must be alive."""
        places = self._checked(places)
        few = self._few(len(places))
        self.alive[places] = False
        self._changed(self._remove, places, few and bool(self.alive.any()))

    def retarget(self, places: Any, Z: Any) -> None:
        """Let the rows of these places, which must be alive, have the targets Z (r, M)."""
        places = self._checked(places)
        self._solve()
        before = self._Z.view[places].astype(np.float64)
        self._Z.view[places] = Z
        change = self._Z.view[places] - before  # as rounded to the type of the targets
        if self._job is not None:
            for place, its in zip(places.tolist(), change, strict=True):
                self._moved[place] = self._moved.get(place, 0) + its
        if len(places):
            self._move(places, change)

    @property
    def n_targets(self) -> int:
        """M."""
        return int(self._Z.view.shape[1])

    def widen(self, n_targets: int) -> None:
        """Have this many targets; new ones are zero for all rows so far, and those beyond are dropped."""
        self.settle()
        self._Z, self._C = (GrowingArray(widened(part.view, n_targets)) for part in (self._Z, self._C))

    def compact(self) -> None:
        """Drop the places of rows that were forgotten; those that stay keep their order."""
        self.settle()
        kept = np.flatnonzero(self.alive)
        new = np.full(len(self.alive) + 1, -1)  # the last is that of rows that left the inverse
        new[kept] = np.arange(len(kept))
        self._at = new[self._at]
        self._rows = GrowingRows(self._rows.X[kept])
        self._Z, self._C, self._alive = (GrowingArray(part.view[kept]) for part in (self._Z, self._C, self._alive))

    def drift(self) -> float:
        """How far rounding has come, measured: ‖(K + alpha I)C − Z‖ / ‖Z‖ of some rows and a few targets.

        Their rows of K are made again for it, with all rows: what is wrong anywhere in C shows in each of them.
        """
        places = np.flatnonzero(self.alive)
        places = places[measured(len(places), _MEASURED_ROWS)]
        C = self.coefficients[:, measured(self._C.view.shape[1])]
        Z = self._Z.view[np.ix_(places, measured(self._Z.view.shape[1]))]
        return relative(self._compared().values(places, len(C)) @ C + self.alpha * C[places] - Z, Z)

    def _most(self) -> int:
        n = np.count_nonzero(self.alive) if self._inverse is None else self._inverse.n_factorised
        return int(np.clip(n // 8, 64, 1024)) if self.max_corrections is None else self.max_corrections

    def _few(self, n_rows: int) -> bool:
        """Whether so many rows are a matter of corrections; if so, there is something to be corrected."""
        few = n_rows <= self._most()
        if few:
            self._solve()
        return few and self._inverse is not None

    def _checked(self, places: Any) -> Ints:
        asked: Ints = np.asarray(places, np.int64)
        known = asked[(asked >= 0) & (asked < len(self.alive))]
        if len(np.unique(known[self.alive[known]])) < len(asked):
            raise DataError(f"a row of the places {asked[:8].tolist()} is not there; name rows that are alive, once.")
        return asked

    def _changed(self, how: Callable[[Ints], None], places: Ints, few: bool) -> None:
        """Correct by these rows, or solve anew."""
        if not len(places):
            return
        if not few:
            self._drop()
        else:
            try:
                how(places)
            except np.linalg.LinAlgError:
                self._drop()
        self._advance()
        self._solve()

    def _drop(self) -> None:
        self._inverse, self._job, self._stale = None, None, True

    def _solve(self) -> None:
        if self._stale:
            n = np.count_nonzero(self.alive)
            require_memory(8.0 * n * n, f"the kernel matrix of n = {n:,} rows", "use kernel='linear'")
            self._install(self._work(lambda fill, rows: map_blocks(fill, rows, self._n_jobs))())
            self._n_solved += 1

    def _begun(self) -> Future[Any] | None:
        if available_memory() < 8.0 * np.count_nonzero(self.alive) ** 2:  # for a second factor
            self._drop()
            self._solve()
            return None
        self._moved = {}
        return started(self._work(lambda fill, rows: [fill(some) for some in rows]))

    def _take_over(self, solved: tuple[Any, ...]) -> None:
        self._install(solved)
        then = self._at
        fresh = self.alive.copy()
        fresh[then] = False
        gone = then[~self.alive[then]]
        moved = {place: change for place, change in self._moved.items() if self.alive[place] and not fresh[place]}
        try:
            self._border(np.flatnonzero(fresh))
            self._remove(gone)
            self._move(np.array([*moved], np.int64), np.array([*moved.values()]))
        except np.linalg.LinAlgError:
            self._drop()
            self._solve()

    def _work(self, each: Callable[[Any, list[slice]], Any]) -> Callable[[], tuple[Any, ...]]:
        """What solves the system of the rows that are alive now: the inverse, the places of its rows, and C."""
        places, n, alpha = np.flatnonzero(self.alive), len(self.alive), self.alpha
        X, squares = self._rows.X, self._rows.squares
        if len(places) < n:
            X, squares = X[places], squares[places]
        compared, Z = Compared(self.kernel, X, squares), self._Z.view[places]

        def work() -> tuple[Any, ...]:
            K, C = compared.matrix(each), np.zeros((n, Z.shape[1]))
            K.flat[:: len(K) + 1] += alpha
            try:
                inverse = Inverse(K) if len(K) else None
            except np.linalg.LinAlgError:
                raise DataError(
                    f"the kernel matrix is not positive definite at ridge = {alpha:.3g}; use a larger one."
                ) from None
            if inverse is not None:
                C[places] = inverse.apply(Z)
            return inverse, places, C

        return work

    def _install(self, solved: tuple[Any, ...]) -> None:
        self._inverse, self._at, C = solved
        self._C = GrowingArray(C)
        self._C.append(np.zeros((len(self.alive) - len(C), C.shape[1])))  # of rows that came meanwhile
        self._stale = False

    def _border(self, places: Ints) -> None:
        """Rows come: C ← C + W T⁻¹(Z − VᵀC) with V the kernel values between them and those that are there."""
        if not len(places):
            return
        assert self._inverse is not None
        among = self._compared().values(places, len(self.alive))
        there = self._at >= 0
        V = np.zeros((self._inverse.size, len(places)))
        V[there] = among[:, self._at[there]].T
        D = among[:, places]
        rest = self._Z.view[places] - among @ self._C.view
        W, T = self._inverse.bordered(V, (D + D.T) / 2 + self.alpha * np.eye(len(D)))
        self._at = np.concatenate([self._at, places])
        self._step(self._spread(W), solve_lower(T, rest), +1)

    def _remove(self, places: Ints) -> None:
        """Rows go: C ← C − W T⁻¹ C of these rows, which is zero at them."""
        if not len(places):
            return
        assert self._inverse is not None
        index = self._index(places)
        W, T = self._inverse.removed(index)
        self._step(self._spread(W), solve_lower(T, self._C.view[places]), -1)
        self._at[index] = -1
        self._C.view[places] = 0

    def _move(self, places: Ints, change: Doubles) -> None:
        """Targets change: C ← C + G⁻¹ change."""
        if not len(places):
            return
        assert self._inverse is not None
        index = self._index(places)
        if len(places) <= change.shape[1]:
            self._step(self._spread(self._inverse.apply(self._inverse.unit(index))), change, +1)
        else:
            targets = np.zeros((self._inverse.size, change.shape[1]))
            targets[index] = change
            self._step(self._spread(self._inverse.apply(targets)), np.eye(change.shape[1]), +1)

    def _index(self, places: Ints) -> Ints:
        """The rows of the inverse that these places have."""
        there = np.flatnonzero(self._at >= 0)
        index = np.empty(len(self.alive), np.int64)
        index[self._at[there]] = there
        found: Ints = index[places]
        return found

    def _spread(self, W: Doubles) -> Doubles:
        """Rows of the inverse at their places."""
        there = self._at >= 0
        out = np.zeros((len(self.alive), W.shape[1]))
        out[self._at[there]] = W[there]
        return out

    def _step(self, left: Doubles, right: Doubles, sign: int) -> None:
        add_product(self._C.view, left, right, sign)

    def _compared(self) -> Compared:
        return Compared(self.kernel, self._rows.X, self._rows.squares)


class IncrementalDualRidge(IncrementalKernelRidge):
    """Kernel ridge with the linear kernel, and Psi (d, M) = XᵀC of it, for fewer rows than features.

    >>> from ripml.regression.kernels import Linear
    >>> memory = IncrementalDualRidge(Linear(), np.array([[1.0, 2.0]]), np.array([[6.0]]), alpha=1.0)
    >>> memory.Psi.round(12).tolist()
    [[1.0], [2.0]]
    """

    _Psi: Doubles

    @property
    def solution(self) -> Doubles:
        """Psi (d, M)."""
        return self.Psi

    @property
    def Psi(self) -> Doubles:
        """The weights of the features, (d, M)."""
        self._solve()
        return self._Psi

    def widen(self, n_targets: int) -> None:
        """Have this many targets; those that come are zero for all rows so far."""
        super().widen(n_targets)
        if not self._stale:
            self._Psi = widened(self._Psi, n_targets)

    def _work(self, each: Callable[[Any, list[slice]], Any]) -> Callable[[], tuple[Any, ...]]:
        X, work = self._rows.X, super()._work(each)

        def both() -> tuple[Any, ...]:
            solved = work()
            return (*solved, np.ascontiguousarray(_transposed(X, solved[2])))

        return both

    def _install(self, solved: tuple[Any, ...]) -> None:
        super()._install(solved[:3])
        self._Psi = solved[3]

    def _step(self, left: Doubles, right: Doubles, sign: int) -> None:
        super()._step(left, right, sign)
        add_product(self._Psi, _transposed(self._rows.X, left), right, sign)


def _transposed(X: Any, V: Doubles) -> Doubles:
    """XᵀV in float64, of rows in any type."""
    if scipy.sparse.issparse(X):
        return np.asarray(X.T @ V)
    total = np.zeros((X.shape[1], V.shape[1]))
    for rows in blocks(X.shape[0], _TILE):
        total += X[rows].astype(np.float64, copy=False).T @ V[rows]
    return total


@dataclass(frozen=True)
class Compared:
    """Rows and their kernel values with each other, in float64 whatever their type."""

    kernel: Kernel
    X: Any  # dense, or CSR in float64
    squares: Doubles

    @cached_property
    def _prepared(self) -> Rows:
        return Rows(self.X)

    def values(self, some: Any, n: int) -> Doubles:
        """Of these rows (a slice or places) with the first n, (r, n)."""
        x = self.X[some]
        out = np.empty((x.shape[0], n))
        if not scipy.sparse.issparse(x):
            x = x.astype(np.float64, copy=False)
            for tile in blocks(n, _TILE):
                out[:, tile] = x @ self.X[tile].astype(np.float64, copy=False).T
        elif x.shape[0] <= _FEW:
            out[:] = ((self.X if n == self.X.shape[0] else self.X[:n]) @ x.toarray().T).T
        else:
            self._prepared.first(n).products(x, cast(Any, out))
        self.kernel.of_products(cast(Any, out), cast(Any, self.squares[some]), cast(Any, self.squares[:n]))
        return out

    def matrix(self, each: Callable[[Callable[[slice], None], list[slice]], Any]) -> Doubles:
        """Of all rows, (n, n); `each` maps a function to blocks of rows."""
        n = self.X.shape[0]
        out = np.empty((n, n))

        def fill(rows: slice) -> None:
            out[rows, : rows.stop] = self.values(rows, rows.stop)
            out[: rows.start, rows] = out[rows, : rows.start].T

        if scipy.sparse.issparse(self.X):
            self._prepared.products(self.X[:0], cast(Any, out[:0]))  # before threads ask for it
        each(fill, blocks(n, _TILE))
        return out


class GrowingRows:
    """Rows that grow at their end, with what is never changed handed out."""

    def __init__(self, X: Any) -> None:
        self._d = X.shape[1]
        self._sparse = scipy.sparse.issparse(X)
        self._parts = [GrowingArray(part) for part in self._parts_of(X)]

    def _parts_of(self, X: Any) -> list[NDArray[Any]]:
        if not self._sparse:
            return [np.einsum("ij,ij->i", X, X, dtype=np.float64), np.asarray(X)]
        X = X.astype(np.float64)
        squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
        return [squares, np.diff(X.indptr).astype(np.int64), X.indices, X.data]

    def append(self, X: Any) -> None:
        """Rows like those here, or of the other kind."""
        X = scipy.sparse.csr_array(X) if self._sparse else dense(X).astype(self._parts[1].view.dtype, copy=False)
        for growing, part in zip(self._parts, self._parts_of(X), strict=True):
            growing.append(part)

    @property
    def squares(self) -> Doubles:
        """Squared lengths, (n,)."""
        return self._parts[0].view

    @property
    def X(self) -> Any:
        """All rows, dense in their own type, or CSR in float64."""
        if not self._sparse:
            return self._parts[1].view
        lengths, indices, data = (part.view for part in self._parts[1:])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return scipy.sparse.csr_array((data, indices, indptr), shape=(len(lengths), self._d))
