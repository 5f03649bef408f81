"""The inverse of a positive definite matrix under low-rank changes, and the base of systems that use it.

The inverse keeps the Cholesky factor of the initial matrix G₀ = LLᵀ and adds the changes in product form,

    G⁻¹ = pad(G₀⁻¹) + Q D Qᵀ,        D = diag(±1), one column of Q per rank,

so that a change of rank r costs O(n²r) and writes no n × n array. Rows are added to or removed from a sum of squares by
the formula of Sherman, Morrison and Woodbury, and from a kernel matrix by the bordering method and its reverse.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ripml.base.parallel import blocks, one_blas_thread
from ripml.base.products import dense

if TYPE_CHECKING:
    from ripml.regression.sums import PackedSums

__all__ = [
    "IncrementalSystem",
    "Inverse",
    "RowChange",
    "Triangle",
    "add_product",
    "doubles",
    "measured",
    "relative",
    "solve_lower",
    "started",
    "widened",
]

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Result = TypeVar("Result")

_CONDITION = 1e-13  # smallest reciprocal condition of a matrix that is accepted, scaled to unit diagonal
_SAFE = 1e-3  # smallest pivot of S in `shifted`, relative to 1: below, too many digits are lost
_NEAR = 1e-2  # smallest pivot that needs no iterative refinement
_SAFE_BORDER = 1e-4  # smallest pivot in `bordered`, relative to the diagonal; there is no refinement
_BLOCK, _PANEL = 256, 1024  # columns of L that are computed at a time; rows that are stored together, a multiple
_FEW_COLUMNS = 8
_NORM_STEPS = 5  # of the estimate of ‖G⁻¹‖, as in LAPACK
_MEASURED = 8  # targets whose residual `drift` measures
_COLUMNS = 64  # columns of Q allocated initially


class Triangle:
    """The lower triangle of a symmetric float64 matrix G (n, n), or its factor: half of the memory of a square array.

    Panel p has the rows from p · `_PANEL` on, up to the last of its columns on the diagonal. Of the block of columns
    that contains the diagonal only the lower triangle counts.

    >>> triangle = Triangle.of(np.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> triangle.factorise()
    >>> triangle.solve(np.array([[8.0], [9.0]])).ravel().tolist()
    [1.375, 1.25]
    """

    def __init__(self, n: int) -> None:
        """Memory for G, whose rows are to be written into `panels`."""
        self.rows = blocks(n, _PANEL)  # of each panel
        self.panels = [np.empty((rows.stop - rows.start, rows.stop)) for rows in self.rows]

    @classmethod
    def of(cls, G: NDArray[Any]) -> Triangle:
        """A copy of a square matrix."""
        triangle = cls(len(G))
        for rows, panel in zip(triangle.rows, triangle.panels, strict=True):
            panel[:] = G[rows, : rows.stop]
        return triangle

    def __len__(self) -> int:
        return self.rows[-1].stop if self.rows else 0

    def diagonal(self) -> Doubles:
        """The diagonal, (n,)."""
        found = [panel.diagonal(rows.start) for rows, panel in zip(self.rows, self.panels, strict=True)]
        return np.concatenate(found) if found else np.empty(0)

    def add_to_diagonal(self, alpha: float) -> None:
        """G ← G + alpha I."""
        for rows, panel in zip(self.rows, self.panels, strict=True):
            panel[np.arange(len(panel)), np.arange(rows.start, rows.stop)] += alpha

    def scale(self, left: Doubles, right: Doubles) -> None:
        """G ← diag(left) G diag(right), in the lower triangle."""
        for rows, panel in zip(self.rows, self.panels, strict=True):
            np.multiply(panel, left[rows, None], out=panel)
            np.multiply(panel, right[: rows.stop], out=panel)

    def norm(self) -> float:
        """‖G‖₁, the largest sum of absolute values in a column."""
        sums = np.zeros(len(self))
        for block in blocks(len(self), _BLOCK):
            left, below = np.abs(self._left(block)), np.tril(self._diagonal(block), -1)
            sums[: block.start] += left.sum(axis=0)
            sums[block] += left.sum(axis=1) + np.abs(below + below.T).sum(axis=1)
        return float((sums + np.abs(self.diagonal())).max(initial=0))

    def factorise(self) -> None:
        """Overwrite G = LLᵀ by L; in blocks, because one LAPACK call would hold the interpreter lock."""
        for rows, panel in zip(self.rows, self.panels, strict=True):
            for block in blocks(rows.stop, _BLOCK):
                lower = panel[max(0, block.start - rows.start) :]  # the rows of this panel from the diagonal on
                lower[:, block] -= lower[:, : block.start] @ self._left(block).T
                if block.start >= rows.start:
                    size = block.stop - block.start
                    lower[:size, block] = np.linalg.cholesky(lower[:size, block])
                    lower = lower[size:]
                if len(lower):
                    lower[:, block] = _substituted(self._diagonal(block), lower[:, block].T).T

    def solve(self, V: Doubles) -> Doubles:
        """G⁻¹V, after `factorise`."""
        out = np.array(V, order="C")
        # Few columns are solved in the time that it takes to read L: threads would mostly wait for each other.
        with one_blas_thread() if V.shape[1] <= _FEW_COLUMNS and len(self.rows) > 1 else nullcontext():
            for block in blocks(len(self), _BLOCK):
                out[block] -= self._left(block) @ out[: block.start]
                out[block] = _substituted(self._diagonal(block), out[block])
            for block in reversed(blocks(len(self), _BLOCK)):
                out[block] = _substituted(self._diagonal(block), out[block], transposed=True)
                out[: block.start] -= self._left(block).T @ out[block]
        return out

    def inverse_norm(self) -> float:
        """About ‖G⁻¹‖₁, after `factorise`: the estimate of Hager (1984) and Higham (1988) that LAPACK uses."""
        n = len(self)
        x = np.full((n, 1), 1 / n)
        for _ in range(_NORM_STEPS):
            y = self.solve(x)
            z = self.solve(np.where(y < 0, -1.0, 1.0))
            largest = int(np.abs(z).argmax())
            if not abs(z[largest, 0]) > float(z[:, 0] @ x[:, 0]):
                break
            x = np.zeros((n, 1))
            x[largest] = 1
        wave = np.linspace(1, 2, n)[:, None]
        wave[1::2] *= -1
        return float(max(np.abs(y).sum(), 2 * np.abs(self.solve(wave)).sum() / (3 * n)))

    def _left(self, block: slice) -> Doubles:
        """The rows of a block, in the columns before its diagonal."""
        return self._rows(block)[:, : block.start]

    def _diagonal(self, block: slice) -> Doubles:
        return self._rows(block)[:, block]

    def _rows(self, block: slice) -> Doubles:
        panel = block.start // _PANEL
        rows: Doubles = self.panels[panel][block.start - panel * _PANEL : block.stop - panel * _PANEL]
        return rows


class Inverse:
    """G⁻¹ (size, size) of a symmetric positive definite float64 matrix; a `Triangle` is overwritten.

    A change for which G would not be safely positive definite raises `numpy.linalg.LinAlgError` and has no effect. Each
    change returns W (size, r) and lower T (r, r) with G⁻¹ ← G⁻¹ ± W Wᵀ, with which callers update their solutions.

    >>> inverse = Inverse(np.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> _ = inverse.shifted(np.array([[1.0, 0.0]]), +1, lambda U: np.diag([2.0, 4.0]) @ U)  # G[0, 0] becomes 3
    >>> inverse.apply(np.array([[3.0], [4.0]])).round(12)
    array([[1.],
           [1.]])
    """

    def __init__(self, G: Doubles | Triangle) -> None:
        factor = G if isinstance(G, Triangle) else Triangle.of(G)
        n, diagonal = len(factor), factor.diagonal()
        if not (diagonal > 0).all():  # also false for nan
            raise np.linalg.LinAlgError("the matrix is not positive definite: its diagonal is not positive")
        # Scaling does not change the accuracy of a Cholesky factor, but makes the condition number a measure of it.
        scale = np.sqrt(diagonal)
        factor.scale(1 / scale, 1 / scale)
        norm = factor.norm()
        factor.factorise()
        self._factor = factor
        #: The reciprocal condition of the initial matrix, scaled to unit diagonal.
        self.condition = 1 / (norm * factor.inverse_norm())
        if not self.condition >= _CONDITION:  # also true for nan
            raise np.linalg.LinAlgError(f"the matrix is not positive definite: condition {self.condition:.1g}")
        factor.scale(scale, np.ones(n))  # LLᵀ = S(S⁻¹GS⁻¹)S
        self.size = n
        self._Q = np.empty((n, _COLUMNS), order="F")  # with spare rows and columns
        self._signs = np.empty(0)  # D
        self._removed: Ints = np.empty(0, np.int64)
        self._inaccurate = False  # whether a change lost digits, so that solutions need refinement

    @property
    def n_factorised(self) -> int:
        """The size of the initial matrix."""
        return len(self._factor)

    @property
    def n_corrections(self) -> int:
        """The rank of the changes since the initial matrix."""
        return len(self._signs)

    def apply(self, V: Doubles) -> Doubles:
        """G⁻¹V for V (size, r)."""
        out = np.array(V, np.float64, order="F")
        out[self._removed] = 0
        Q = self._Q[: self.size, : self.n_corrections]
        corrected = Q.T @ out
        corrected *= self._signs[:, None]
        n = len(self._factor)
        out[:n] = self._factor.solve(out[:n])
        out[n:] = 0
        out += Q @ corrected
        out[self._removed] = 0
        return out

    def correction(self, since: int, V: Doubles) -> Doubles:
        """What the corrections after the first `since` add to G⁻¹V; V has values also for rows removed by them."""
        Q, signs = self._Q[: self.size, since : self.n_corrections], self._signs[since:]
        return np.asarray(Q @ (signs[:, None] * (Q.T @ V)))

    def bordered(self, V: Doubles, D: Doubles) -> tuple[Doubles, Doubles]:
        """Add rows and columns: G ← [[G, V], [Vᵀ, D]] with V (size, r), D (r, r), so that G⁻¹ ← pad(G⁻¹) + W Wᵀ.

        With U = G⁻¹V and S = D − VᵀU = TTᵀ, W = (−U; I)T⁻ᵀ.
        """
        U = self.apply(V)
        T = _lower(D - V.T @ U, _SAFE_BORDER * D.diagonal())
        W = np.empty((self.size + len(D), len(D)), order="F")
        np.negative(U, out=W[: self.size])
        W[self.size :] = np.eye(len(D))
        return self._corrected(_divided(W, T), +1), T

    def removed(self, places: Ints) -> tuple[Doubles, Doubles]:
        """Remove rows and columns of G, so that G⁻¹ ← G⁻¹ − W Wᵀ; they remain as zeros of G⁻¹.

        With A the columns of G⁻¹ at these places and TTᵀ their diagonal block of G⁻¹, W = A T⁻ᵀ.
        """
        A = self.apply(self.unit(places))
        block = A[places]
        T = _lower((block + block.T) / 2, np.zeros(len(places)))
        W = self._corrected(_divided(A, T), -1)
        self._removed = np.concatenate([self._removed, places])
        return W, T

    def solved(self, V: Doubles, product: Callable[[Doubles], Doubles]) -> Doubles:
        """G⁻¹V, with a step of iterative refinement if an earlier change lost digits; `product` is U ↦ GU."""
        U = self.apply(V)
        if self._inaccurate:
            U += self.apply(V - product(U))
        return U

    def shifted(self, X: Doubles, sign: int, product: Callable[[Doubles], Doubles]) -> tuple[Doubles, Doubles]:
        """Add or subtract a sum of squares: G ← G ± XᵀX with X (r, size), so that G⁻¹ ← G⁻¹ ∓ W Wᵀ.

        With U = G⁻¹Xᵀ and S = I ± XU = TTᵀ, W = U T⁻ᵀ. Where S is far from I, digits are lost both when a row is added
        and when it is removed; a step of refinement of U, with `product` U ↦ GU, restores them. A row of leverage 1,
        the only one in its direction, can be neither added nor removed: only rounding errors would remain of G⁻¹ in
        that direction, or of S.
        """
        U, unit = self.solved(X.T, product), np.eye(len(X))
        S = unit + sign * (X @ U)
        if not self._inaccurate and not ((S.diagonal() > _NEAR) & (S.diagonal() < 1 / _NEAR)).all():
            self._inaccurate = True
            U += self.apply(X.T - product(U))
            S = unit + sign * (X @ U)
        T = _lower(S, np.full(len(X), _SAFE))
        if not (T.diagonal() ** 2 < 1 / _SAFE).all():
            raise np.linalg.LinAlgError("a direction is lost in rounding errors")
        return self._corrected(_divided(U, T), -sign), T

    def unit(self, places: Ints) -> Doubles:
        """The columns of the identity at these places, (size, r)."""
        out = np.zeros((self.size, len(places)), order="F")
        out[places, np.arange(len(places))] = 1
        return out

    def _corrected(self, W: Doubles, sign: int) -> Doubles:
        """Append W to the columns of Q; old columns are zero in new rows. Returns W."""
        size, old = len(W), self.n_corrections
        new = old + W.shape[1]
        rows, columns = self._Q.shape
        if size > rows or new > columns:  # allocate more than needed, so that growth is rarely copied
            rows = rows if size <= rows else size + size // 8
            columns = columns if new <= columns else max(2 * columns, new)
            larger = np.empty((rows, columns), order="F")
            larger[: self.size, :old] = self._Q[: self.size, :old]
            self._Q = larger
        self._Q[self.size : size, :old] = 0
        self._Q[:size, old:new] = W
        self._signs = np.concatenate([self._signs, np.full(W.shape[1], float(sign))])
        self.size = size
        return W


@dataclass(frozen=True)
class RowChange:
    """A change of training rows: features X (r, d), targets Z (r, M), and places (r,) among the stored rows."""

    learnt: tuple[Any, Any] | None  # X, Z
    forgotten: tuple[Any, Any, Ints] | None  # X, Z, places
    retargeted: tuple[Any, Any, Any, Ints] | None  # X, Z before, Z after, places

    def with_features(self, convert: Callable[[Any], Any]) -> RowChange:
        """The same change with `convert` applied to the features."""
        learnt, forgotten, moved = self.learnt, self.forgotten, self.retargeted
        return RowChange(
            None if learnt is None else (convert(learnt[0]), learnt[1]),
            None if forgotten is None else (convert(forgotten[0]), *forgotten[1:]),
            None if moved is None else (convert(moved[0]), *moved[1:]),
        )


class IncrementalSystem(ABC):
    """A linear system whose inverse is corrected at each change, and factorised again after many changes."""

    max_corrections: int | None = None  # ranks after which a new factorisation starts; None: by the system's size
    sums_rows: ClassVar[bool] = False  # whether it keeps sums over rows instead of the rows
    undoes_failures: ClassVar[bool] = False  # whether a change that fails leaves the system unchanged

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held while the system is changed or measured
        self.version: int | None = 0  # counts changes; None during a change, or after one that failed
        self._inverse: Inverse | None = None
        self._job: Future[Any] | None = None
        self._n_solved = 0

    @property
    def n_refactorised(self) -> int:
        """How often the whole system was solved again after the first time."""
        return max(0, self._n_solved - 1)

    @property
    @abstractmethod
    def solution(self) -> Doubles:
        """The coefficients for the present rows."""

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """M."""

    @abstractmethod
    def apply(self, change: RowChange) -> None:
        """Learn, forget and retarget rows."""

    @abstractmethod
    def widen(self, n_targets: int) -> None:
        """Extend to this many targets; new ones are zero for all present rows."""

    @abstractmethod
    def posterior_terms(self, X: Any) -> Doubles:
        """What the posterior covariance with rows X (r, d) is made of, one column per row; see `Regression`."""

    @abstractmethod
    def mark(self) -> Any:
        """The present state, for `followed_terms`."""

    @abstractmethod
    def followed_terms(self, X: Any, terms: NDArray[Any], mark: Any) -> NDArray[Any] | None:
        """`posterior_terms` by those at a state before; None if the system was solved again, or compacted, since."""

    @abstractmethod
    def drift(self) -> float:
        """The relative error of the solution that rounding has caused."""

    def compact(self) -> None:  # noqa: B027 - nothing to do for sums
        """Remove the places of forgotten rows."""

    def packed_sums(self, needed: bool) -> PackedSums | None:
        """The sums in packed form, if they are needed and this system keeps sums."""
        return None

    @abstractmethod
    def _max_ranks(self) -> int:
        """The rank of the changes after which a new factorisation starts."""

    @abstractmethod
    def _start_job(self) -> Future[Any] | None:
        """Start to solve a copy of the system in the background; None if it was solved at once."""

    @abstractmethod
    def _take_over(self, solved: Any) -> None:
        """Replace the inverse by the result of the job, with all changes since its start."""

    def _advance(self) -> None:
        """After a correction: start a new factorisation if it is time, or take over its result."""
        limit = self._max_ranks()
        if self._inverse is not None and self._job is None and self._inverse.n_corrections >= limit:
            self._job = self._start_job()
        if self._inverse is not None and self._inverse.n_corrections >= limit + limit // 4:
            self.settle()

    def settle(self) -> None:
        """Wait for a background factorisation, if there is one, and take over its result or raise its error."""
        if self._job is not None:
            job, self._job = self._job, None
            solved = job.result()
            self._n_solved += 1
            self._take_over(solved)


def started(work: Callable[[], Result]) -> Future[Result]:
    """Run `work` on a daemon thread, which does not delay the end of the interpreter."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def doubles(rows: Any) -> Doubles:
    """A dense float64 copy: the caller may overwrite the rows before a background job is taken over."""
    return np.array(dense(rows), np.float64, order="C")


def widened(array: NDArray[Any], n_targets: int) -> NDArray[Any]:
    """The array with this many columns: new ones are zeros, and those beyond are dropped."""
    wider = np.zeros((len(array), n_targets), array.dtype)
    wider[:, : array.shape[1]] = array[:, :n_targets]
    return wider


def measured(n: int, limit: int = _MEASURED) -> Ints:
    """At most `limit` of n equations, evenly spread, for measuring residuals.

    >>> measured(5).tolist(), measured(5, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 2, 4])
    """
    return np.linspace(0, n - 1, min(n, limit)).astype(np.int64)


def relative(residual: NDArray[Any], target: NDArray[Any]) -> float:
    """‖residual‖/‖target‖."""
    return float(np.linalg.norm(residual) / (np.linalg.norm(target) or 1.0))


def solve_lower(T: Doubles, R: Doubles) -> Doubles:
    """T⁻¹R for lower triangular T.

    >>> solve_lower(np.array([[2.0]]), np.array([[4.0]]))
    array([[2.]])
    """
    if len(T) == 1:  # a division is faster than starting BLAS threads
        return np.asarray(R / T[0, 0])
    return np.asarray(scipy.linalg.blas.dtrsm(1.0, T, R, lower=1))


def add_product(out: Floats, left: Doubles, right: Doubles, factor: float = 1.0) -> None:
    """out (n, M) += factor · left (n, r) right (r, M), in place; `out` is C-contiguous.

    >>> out = np.ones((1, 1))
    >>> add_product(out, np.array([[2.0]]), np.array([[3.0]]))
    >>> out
    array([[7.]])
    """
    if out.size and left.size:
        # The transpose is in BLAS's column-major order, so BLAS writes to it without a copy.
        scipy.linalg.blas.dgemm(factor, right.T, left, beta=1.0, c=out.T, trans_b=True, overwrite_c=True)


def _substituted(L: Doubles, V: Doubles, transposed: bool = False) -> Doubles:
    """L⁻¹V, or L⁻ᵀV, for lower triangular L; its transpose is in the order of memory that BLAS expects."""
    return np.asarray(scipy.linalg.blas.dtrsm(1.0, L.T, V, trans_a=0 if transposed else 1))


def _lower(S: Doubles, least: Doubles) -> Doubles:
    """T with TTᵀ = S; LinAlgError if a pivot is not above `least` (r,)."""
    T = np.asarray(np.linalg.cholesky(S), np.float64)
    if not (T.diagonal() ** 2 > least).all():
        raise np.linalg.LinAlgError("a pivot is lost in rounding errors")
    return T


def _divided(W: Doubles, T: Doubles) -> Doubles:
    """W T⁻ᵀ."""
    if len(T) == 1:
        return np.asarray(W / T[0, 0])
    return np.asarray(scipy.linalg.blas.dtrsm(1.0, T, W, side=1, lower=1, trans_a=1, overwrite_b=1))
