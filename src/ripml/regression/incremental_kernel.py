"""Kernel ridge, and linear ridge by its dual, that learn and forget rows exactly; see `ripml.regression.incremental`.

    (K + alpha I) C = Z,    add or remove a row and column of K    O(n² + n M) per row

A row is added by bordering the inverse and removed by the reverse, the decremental learning of Cauwenberghs and Poggio
(2000). K is computed in float64 whatever the type of the rows, so that a row is as accurate whether it was added later
or fitted from the start.
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
from ripml.base.platform import trim_memory
from ripml.base.products import dense
from ripml.regression.inverse import (
    Doubles,
    IncrementalSystem,
    Ints,
    Inverse,
    RowChange,
    Triangle,
    add_product,
    measured,
    relative,
    solve_lower,
    started,
    widened,
)
from ripml.regression.kernels import Kernel, Linear, Rows

__all__ = ["IncrementalDualRidge", "IncrementalKernelRidge"]

_TILE = 1024  # rows processed at a time
_TILE_ROWS, _FEATURE_PARTS = 128, 8  # rows of a kernel matrix, and parts of their features, that are multiplied at once
_TARGETS = 128  # solved for at a time
_FEW = 64  # sparse rows up to which features are not split by frequency
_MEASURED_ROWS = 256  # rows whose residual `drift` measures


class IncrementalKernelRidge(IncrementalSystem):
    """C (n, M) with (K + alpha I) C = Z over the rows that are alive.

    A row keeps its place until `compact`. Targets keep their type, everything else is float64. Not thread-safe, even
    for reading: `coefficients` may solve.

    >>> from ripml.regression.kernels import Linear
    >>> ridge = IncrementalKernelRidge(Linear(), np.array([[1.0], [2.0]]), np.array([[1.0], [1.0]]), alpha=1.0)
    >>> places = ridge.learn(np.array([[3.0]]), np.array([[1.0]]))
    >>> ridge.forget(np.array([0, 1]))
    >>> ridge.coefficients.round(12)
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
        self._places: Ints = np.empty(0, np.int64)  # the place of each row of the inverse, -1 if it was removed
        self._stale = True  # whether C must be solved again
        self._pending_targets: dict[int, Doubles] = {}  # changes of targets since the background job started

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
        """Whether the row at each place is present, (n,)."""
        return self._alive.view

    @property
    def squares(self) -> Doubles:
        """The squared lengths of the rows at all places, (n,)."""
        return self._rows.squares

    @property
    def coefficients(self) -> Doubles:
        """C (n, M), zero at places without a row."""
        self._solve()
        return self._C.view

    def learn(self, X: Any, Z: Any) -> Ints:
        """Learn rows X (r, d) with targets Z (r, M), and return their places, which follow the last one."""
        n, r = len(self.alive), X.shape[0]
        few = self._few(r)
        self._rows.append(X)
        self._Z.append(np.asarray(Z))
        self._C.append(np.zeros(Z.shape))
        self._alive.append(np.ones(r, np.bool_))
        places = np.arange(n, n + r)
        self._change(self._border, places, few)
        return places

    def forget(self, places: Any) -> None:
        """Forget the rows at these places, which must be alive."""
        places = self._checked(places)
        few = self._few(len(places))
        self.alive[places] = False
        self._change(self._remove, places, few and bool(self.alive.any()))

    def retarget(self, places: Any, Z: Any) -> None:
        """Set the targets of the rows at these places, which must be alive, to Z (r, M)."""
        places = self._checked(places)
        self._solve()
        before = self._Z.view[places].astype(np.float64)
        self._Z.view[places] = Z
        change = self._Z.view[places] - before  # after rounding to the type of the targets
        if self._job is not None:
            for place, step in zip(places.tolist(), change, strict=True):
                self._pending_targets[place] = self._pending_targets.get(place, 0) + step
        if len(places):
            self._move(places, change)

    @property
    def n_targets(self) -> int:
        """M."""
        return int(self._Z.view.shape[1])

    def widen(self, n_targets: int) -> None:
        """Change to this many targets: new ones are zero for all present rows, and those beyond are dropped."""
        self.settle()
        self._Z, self._C = (GrowingArray(widened(part.view, n_targets)) for part in (self._Z, self._C))

    def posterior_terms(self, X: Any) -> Doubles:
        """(K + alpha I)⁻¹K(rows, X) (n, r), zero at places without a row."""
        self._solve()
        assert self._inverse is not None
        return self._spread(self._inverse.apply(self._known(X, self._places)))

    def mark(self) -> Any:
        """The inverse, how often it was corrected, the places of its rows, and the rows."""
        inverse = self._inverse
        return inverse, 0 if inverse is None else inverse.n_corrections, self._places.copy(), self._rows

    def followed_terms(self, X: Any, terms: NDArray[Any], mark: Any) -> NDArray[Any] | None:
        """With the corrections of the inverse since."""
        step = self._followed(X, mark)
        if step is None:
            return None
        step[: len(terms)] += terms
        step[~self.alive] = 0
        return step

    def _followed(self, X: Any, mark: Any) -> Doubles | None:
        """What (K + alpha I)⁻¹K(rows, X) (n, r) is more than at a state before, also at rows removed since."""
        inverse, since, before, rows = mark
        if inverse is None or inverse is not self._inverse or rows is not self._rows:
            return None
        assert isinstance(inverse, Inverse)
        places = self._places.copy()
        old = places[: len(before)]
        old[old < 0] = before[old < 0]
        step, present = np.zeros((len(self.alive), X.shape[0])), places >= 0
        step[places[present]] = inverse.correction(since, self._known(X, places))[present]
        return step

    def _known(self, X: Any, places: Ints) -> Doubles:
        """K(rows, X) of the rows at these places, 0 at −1."""
        queries = dense(X).astype(np.float64)
        K = np.empty((len(self.alive), len(queries)))
        for tile in blocks(len(K), _TILE):
            K[tile] = self._rows.X[tile] @ queries.T
        squares = np.einsum("ij,ij->i", queries, queries)
        self.kernel.of_products(cast(Any, K), cast(Any, self.squares), cast(Any, squares))
        K = K[places]
        K[places < 0] = 0
        return K

    def compact(self) -> None:
        """Remove the places of forgotten rows; the others keep their order."""
        self.settle()
        kept = np.flatnonzero(self.alive)
        new = np.full(len(self.alive) + 1, -1)  # the last entry maps -1, the rows removed from the inverse, to -1
        new[kept] = np.arange(len(kept))
        self._places = new[self._places]
        self._rows = GrowingRows(self._rows.X[kept])
        self._Z, self._C, self._alive = (GrowingArray(part.view[kept]) for part in (self._Z, self._C, self._alive))

    def drift(self) -> float:
        """The rounding error, measured: ‖(K + alpha I)C − Z‖ / ‖Z‖ for a sample of rows and targets.

        Each equation involves all rows of C, so an error anywhere in C shows in the sample.
        """
        places = np.flatnonzero(self.alive)
        places = places[measured(len(places), _MEASURED_ROWS)]
        C = self.coefficients[:, measured(self._C.view.shape[1])]
        Z = self._Z.view[np.ix_(places, measured(self._Z.view.shape[1]))]
        return relative(self._compared().values(places, len(C)) @ C + self.alpha * C[places] - Z, Z)

    def _max_ranks(self) -> int:
        n = np.count_nonzero(self.alive) if self._inverse is None else self._inverse.n_factorised
        return int(np.clip(n // 8, 64, 1024)) if self.max_corrections is None else self.max_corrections

    def _few(self, n_rows: int) -> bool:
        """Whether the inverse can be corrected for this number of rows; it is made if it is missing."""
        few = n_rows <= self._max_ranks()
        if few:
            self._solve()
        return few and self._inverse is not None

    def _checked(self, places: Any) -> Ints:
        places = np.asarray(places, np.int64)
        valid = places[(places >= 0) & (places < len(self.alive))]
        if len(np.unique(valid[self.alive[valid]])) < len(places):
            raise DataError(
                f"the places {places[:8].tolist()} include one without a row, or one twice; name each row once."
            )
        return cast(Ints, places)

    def _change(self, correct: Callable[[Ints], None], places: Ints, few: bool) -> None:
        """Correct the inverse for few rows; otherwise, or if that fails, solve again."""
        if not len(places):
            return
        if not few:
            self._invalidate()
        else:
            try:
                correct(places)
            except np.linalg.LinAlgError:
                self._invalidate()
        self._advance()
        self._solve()

    def _invalidate(self) -> None:
        self._inverse, self._job, self._stale = None, None, True

    def _solve(self) -> None:
        if self._stale:
            n = np.count_nonzero(self.alive)
            require_memory(4.0 * n * n, f"the kernel matrix of n = {n:,} rows", "use kernel='linear'")
            self._install(self._solver(lambda fill, panels: map_blocks(fill, panels, self._n_jobs))())
            self._n_solved += 1

    def _start_job(self) -> Future[Any] | None:
        if available_memory() < 4.0 * np.count_nonzero(self.alive) ** 2:  # too little for a second factor
            self._invalidate()
            self._solve()
            return None
        self._pending_targets = {}
        return started(self._solver(lambda fill, panels: [fill(panel) for panel in panels]))

    def _take_over(self, solved: tuple[Any, ...]) -> None:
        self._install(solved)
        solved_places = self._places
        new = self.alive.copy()
        new[solved_places] = False
        removed = solved_places[~self.alive[solved_places]]
        targets = {p: change for p, change in self._pending_targets.items() if self.alive[p] and not new[p]}
        try:
            self._border(np.flatnonzero(new))
            self._remove(removed)
            self._move(np.array([*targets], np.int64), np.array([*targets.values()]))
        except np.linalg.LinAlgError:
            self._invalidate()
            self._solve()

    def _solver(self, each: Callable[[Any, range], Any]) -> Callable[[], tuple[Any, ...]]:
        """A function that solves the system of the rows alive now: the inverse, the places of its rows, and C."""
        places, n, alpha = np.flatnonzero(self.alive), len(self.alive), self.alpha
        X, squares = self._rows.X, self._rows.squares
        if len(places) < n:
            X, squares = X[places], squares[places]
        kernel, Z = self.kernel, self._Z.view[places]

        def solve() -> tuple[Any, ...]:
            K, C = Compared(kernel, X, squares).matrix(each), np.zeros((n, Z.shape[1]))
            trim_memory()  # many arrays of a few megabytes were made for it
            K.add_to_diagonal(alpha)
            try:
                inverse = Inverse(K) if len(K) else None
            except np.linalg.LinAlgError:
                raise DataError(
                    f"the kernel matrix is not positive definite at ridge = {alpha:.3g}; use a larger one."
                ) from None
            if inverse is not None:
                for some in blocks(Z.shape[1], _TARGETS):
                    C[places, some] = inverse.apply(Z[:, some])
            return inverse, places, C

        return solve

    def _install(self, solved: tuple[Any, ...]) -> None:
        self._inverse, self._places, C = solved
        self._C = GrowingArray(C)
        self._C.append(np.zeros((len(self.alive) - len(C), C.shape[1])))  # rows learnt since the job started
        self._stale = False

    def _border(self, places: Ints) -> None:
        """Add rows: C ← C + W T⁻¹(Z − VᵀC) with V the kernel values between new and present rows."""
        if not len(places):
            return
        assert self._inverse is not None
        K = self._compared().values(places, len(self.alive))
        present = self._places >= 0
        V = np.zeros((self._inverse.size, len(places)))
        V[present] = K[:, self._places[present]].T
        D = K[:, places]
        residual = self._Z.view[places] - K @ self._C.view
        W, T = self._inverse.bordered(V, (D + D.T) / 2 + self.alpha * np.eye(len(D)))
        self._places = np.concatenate([self._places, places])
        self._step(self._spread(W), solve_lower(T, residual), +1)

    def _remove(self, places: Ints) -> None:
        """Remove rows: C ← C − W T⁻¹ C[places], which is zero at these places."""
        if not len(places):
            return
        assert self._inverse is not None
        index = self._index(places)
        W, T = self._inverse.removed(index)
        self._step(self._spread(W), solve_lower(T, self._C.view[places]), -1)
        self._places[index] = -1
        self._C.view[places] = 0

    def _move(self, places: Ints, change: Doubles) -> None:
        """Change targets: C ← C + G⁻¹ change."""
        if not len(places):
            return
        assert self._inverse is not None
        index = self._index(places)
        if len(places) <= change.shape[1]:  # solve for whichever has fewer columns
            self._step(self._spread(self._inverse.apply(self._inverse.unit(index))), change, +1)
        else:
            targets = np.zeros((self._inverse.size, change.shape[1]))
            targets[index] = change
            self._step(self._spread(self._inverse.apply(targets)), np.eye(change.shape[1]), +1)

    def _index(self, places: Ints) -> Ints:
        """The rows of the inverse that belong to these places."""
        present = np.flatnonzero(self._places >= 0)
        index = np.empty(len(self.alive), np.int64)
        index[self._places[present]] = present
        found: Ints = index[places]
        return found

    def _spread(self, W: Doubles) -> Doubles:
        """Move rows of the inverse to their places."""
        present = self._places >= 0
        out = np.zeros((len(self.alive), W.shape[1]))
        out[self._places[present]] = W[present]
        return out

    def _step(self, left: Doubles, right: Doubles, sign: int) -> None:
        """C ← C ± left right."""
        add_product(self._C.view, left, right, sign)

    def _compared(self) -> Compared:
        return Compared(self.kernel, self._rows.X, self._rows.squares)


class IncrementalDualRidge(IncrementalKernelRidge):
    """Kernel ridge that also keeps Psi (d, M) = XᵀC: the solution of linear ridge, for fewer rows than features.

    >>> from ripml.regression.kernels import Linear
    >>> ridge = IncrementalDualRidge(Linear(), np.array([[1.0, 2.0]]), np.array([[6.0]]), alpha=1.0)
    >>> ridge.Psi.round(12).tolist()
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
        """Extend to this many targets; new ones are zero for all present rows."""
        super().widen(n_targets)
        if not self._stale:
            self._Psi = widened(self._Psi, n_targets)

    def posterior_terms(self, X: Any) -> Doubles:
        """With a linear kernel alpha (XᵀX + alpha I)⁻¹ of rows, as of `IncrementalRidge`, (d, r)."""
        terms = super().posterior_terms(X)
        return dense(X).T - _transposed_product(self._rows.X, terms) if self.kernel.linear else terms

    def followed_terms(self, X: Any, terms: NDArray[Any], mark: Any) -> NDArray[Any] | None:
        """The same, with the corrections of the inverse since."""
        if not self.kernel.linear:
            return super().followed_terms(X, terms, mark)
        step = self._followed(X, mark)
        return None if step is None else terms - _transposed_product(self._rows.X, step)

    def _solver(self, each: Callable[[Any, range], Any]) -> Callable[[], tuple[Any, ...]]:
        X, solve_dual = self._rows.X, super()._solver(each)

        def solve() -> tuple[Any, ...]:
            solved = solve_dual()
            return (*solved, np.ascontiguousarray(_transposed_product(X, solved[2])))

        return solve

    def _install(self, solved: tuple[Any, ...]) -> None:
        super()._install(solved[:3])
        self._Psi = solved[3]

    def _step(self, left: Doubles, right: Doubles, sign: int) -> None:
        super()._step(left, right, sign)
        add_product(self._Psi, _transposed_product(self._rows.X, left), right, sign)


def _transposed_product(X: Any, V: Doubles) -> Doubles:
    """XᵀV in float64, for rows of any type."""
    if scipy.sparse.issparse(X):
        return np.asarray(X.T @ V)
    total = np.zeros((X.shape[1], V.shape[1]))
    for rows in blocks(X.shape[0], _TILE):
        total += X[rows].astype(np.float64, copy=False).T @ V[rows]
    return total


@dataclass(frozen=True)
class Compared:
    """Kernel values among rows, in float64 whatever the type of the rows."""

    kernel: Kernel
    X: Any  # dense, or CSR in float64
    squares: Doubles

    @cached_property
    def _prepared(self) -> Rows:
        return Rows(self.X)

    def values(self, rows: Any, n: int) -> Doubles:
        """The kernel of r rows (a slice or places) with the first n rows, (r, n)."""
        x = self.X[rows]
        out = np.empty((x.shape[0], n))
        if not scipy.sparse.issparse(x):
            x = x.astype(np.float64, copy=False)
            for tile in blocks(n, _TILE):
                out[:, tile] = x @ self.X[tile].astype(np.float64, copy=False).T
        elif x.shape[0] <= _FEW:
            out[:] = ((self.X if n == self.X.shape[0] else self.X[:n]) @ x.toarray().T).T
        else:
            self._prepared.first(n).products(x, cast(Any, out))
        self.kernel.of_products(cast(Any, out), cast(Any, self.squares[rows]), cast(Any, self.squares[:n]))
        return out

    def matrix(self, each: Callable[[Callable[[int], None], range], Any]) -> Triangle:
        """The kernel of all rows, (n, n); `each` maps a function over the numbers of panels."""
        triangle, d = Triangle(self.X.shape[0]), self.X.shape[1]
        n_parts = _FEATURE_PARTS if scipy.sparse.issparse(self.X) else 1
        for number, part in enumerate(blocks(d, max(1, -(-d // n_parts)))):
            self._add_products(triangle, self.X if n_parts == 1 else self.X[:, part], number == 0, each)

        def finish(panel: int) -> None:
            rows, out = triangle.rows[panel], cast(Any, triangle.panels[panel])
            self.kernel.of_products(out, cast(Any, self.squares[rows]), cast(Any, self.squares[: rows.stop]))

        each(finish, range(len(triangle.rows)))
        return triangle

    def _add_products(self, triangle: Triangle, X: Any, first: bool, each: Callable[..., Any]) -> None:
        """Add ⟨x, x'⟩ over some of the features to a matrix, or write it there if they are the first ones.

        Few rows and few features at a time: what products are computed from takes much more memory than the rows.
        """
        compared = Compared(Linear(), X, self.squares)

        def fill(panel: int) -> None:
            rows, out = triangle.rows[panel], triangle.panels[panel]
            for few in blocks(len(out), _TILE_ROWS):
                values = compared.values(slice(rows.start + few.start, rows.start + few.stop), rows.stop)
                if first:
                    out[few] = values
                else:
                    out[few] += values

        if scipy.sparse.issparse(X):
            compared._prepared.prepare()  # before threads need it
        each(fill, range(len(triangle.rows)))


class GrowingRows:
    """Rows that grow at the end. Arrays that were read before stay valid and unchanged."""

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
        """Append rows, dense or CSR, converted to the kind of the present ones."""
        X = scipy.sparse.csr_array(X) if self._sparse else dense(X).astype(self._parts[1].view.dtype, copy=False)
        for growing, part in zip(self._parts, self._parts_of(X), strict=True):
            growing.append(part)

    @property
    def squares(self) -> Doubles:
        """Squared lengths, (n,)."""
        return self._parts[0].view

    @property
    def X(self) -> Any:
        """All rows, dense in their original type, or CSR in float64."""
        if not self._sparse:
            return self._parts[1].view
        lengths, indices, data = (part.view for part in self._parts[1:])
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return scipy.sparse.csr_array((data, indices, indptr), shape=(len(lengths), self._d))
