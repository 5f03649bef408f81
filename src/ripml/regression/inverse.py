"""The inverse of a positive definite matrix that changes by a few ranks at a time.

A Cholesky factor G₀ = UᵀU of the matrix as it was is kept, and after it a product form of what came since,

    G⁻¹ = pad(G₀⁻¹) + Q D Qᵀ,        D = ±1, one column of Q a rank,

so that a change of rank r costs O(n²r) and no n × n array is ever written. The three changes are those of Sherman,
Morrison and Woodbury (rows of a sum of squares) and of the bordering method and its reverse (rows of a kernel matrix).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ripml.base.parallel import blocks
from ripml.base.products import dense

if TYPE_CHECKING:
    from ripml.regression.sums import PackedSums

__all__ = [
    "Inverse",
    "Renewed",
    "RowChange",
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

_CONDITION = 1e-13  # the least reciprocal condition, rows and columns scaled to unit diagonal, of a factor
_SAFE = 1e-3  # the least pivot that may be left of 1: digits are lost once a change, and twice in the worst case
_NEAR = 1e-2  # the least that needs no refinement
_SAFE_BORDER = 1e-4  # the least part of a diagonal that may be left as a pivot, without refinement
_BLOCK, _COLUMNS_AT_ONCE = 256, 8  # of a factorisation, and solved for by one call
_MEASURED = 8  # targets that the drift is measured by
_COLUMNS = 64  # room for corrections to begin with


class Inverse:
    """G⁻¹ (size, size) of a symmetric positive definite float64 matrix, C-contiguous, which it takes over.

    `numpy.linalg.LinAlgError` is raised, and nothing changed, where G is not safely positive definite. Each change
    returns W (size, r) and lower T (r, r) with G⁻¹ ← G⁻¹ ± W Wᵀ, from which callers update what they solved for.

    >>> inverse = Inverse(np.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> _ = inverse.shifted(np.array([[1.0, 0.0]]), +1, lambda U: np.diag([2.0, 4.0]) @ U)  # G[0, 0] is 3 now
    >>> inverse.apply(np.array([[3.0], [4.0]])).round(12)
    array([[1.],
           [1.]])
    """

    def __init__(self, G: Doubles) -> None:
        n = len(G)
        if not (G.diagonal() > 0).all():  # nan, too
            raise np.linalg.LinAlgError("the matrix is not positive definite: its diagonal is not")
        # Scaled rows and columns change nothing in the digits of a Cholesky factor, but the condition then tells them.
        scale = np.sqrt(G.diagonal())
        G /= scale[:, None]
        G /= scale
        norm = scipy.linalg.lapack.dlange("1", G.T)
        _factorise(G)
        self._upper = G.T
        #: The reciprocal condition of G, rows and columns scaled, as it was made.
        self.condition = float(scipy.linalg.lapack.dpocon(self._upper, norm)[0])
        if not self.condition >= _CONDITION:  # nan, too
            raise np.linalg.LinAlgError(f"the matrix is not positive definite: condition {self.condition:.1g}")
        self._upper *= scale  # UᵀU = S(S⁻¹GS⁻¹)S
        self.size = n
        self._room = np.empty((n, _COLUMNS), order="F")
        self._signs = np.empty(0)
        self._gone: Ints = np.empty(0, np.int64)
        self._worn = False  # whether there was a change that digits were lost in

    @property
    def n_factorised(self) -> int:
        """The size that the matrix had when it was factorised."""
        return len(self._upper)

    @property
    def n_corrections(self) -> int:
        """The ranks that came after the factor."""
        return len(self._signs)

    def apply(self, V: Doubles) -> Doubles:
        """G⁻¹V of V (size, r)."""
        out = np.array(V, np.float64, order="F")
        out[self._gone] = 0
        Q = self._room[: self.size, : self.n_corrections]
        corrected = Q.T @ out
        corrected *= self._signs[:, None]
        n = len(self._upper)
        out[:n] = _solve(self._upper, out[:n])
        out[n:] = 0
        out += Q @ corrected
        out[self._gone] = 0
        return out

    def bordered(self, V: Doubles, D: Doubles) -> tuple[Doubles, Doubles]:
        """Let G become [[G, V], [Vᵀ, D]], V (size, r) and D (r, r): G⁻¹ ← pad(G⁻¹) + W Wᵀ.

        With U = G⁻¹V and S = D − VᵀU = TTᵀ it is W = (−U; I)T⁻ᵀ.
        """
        U = self.apply(V)
        T = _lower(D - V.T @ U, _SAFE_BORDER * D.diagonal())
        W = np.empty((self.size + len(D), len(D)), order="F")
        np.negative(U, out=W[: self.size])
        W[self.size :] = np.eye(len(D))
        return self._corrected(_divided(W, T), +1), T

    def removed(self, places: Ints) -> tuple[Doubles, Doubles]:
        """Let these rows and columns leave G: they stay as zeros of G⁻¹ ← G⁻¹ − W Wᵀ.

        With columns A of G⁻¹ at these places and TTᵀ their own block of it, W = A T⁻ᵀ.
        """
        A = self.apply(self.unit(places))
        block = A[places]
        T = _lower((block + block.T) / 2, np.zeros(len(places)))
        W = self._corrected(_divided(A, T), -1)
        self._gone = np.concatenate([self._gone, places])
        return W, T

    def solved(self, V: Doubles, product: Callable[[Doubles], Doubles]) -> Doubles:
        """G⁻¹V as it is where all changes were small, and after a step of refinement with `product`, U ↦ GU, if not."""
        U = self.apply(V)
        if self._worn:
            U += self.apply(V - product(U))
        return U

    def shifted(self, X: Doubles, sign: int, product: Callable[[Doubles], Doubles]) -> tuple[Doubles, Doubles]:
        """Let G, of which `product` is U ↦ GU, become G ± XᵀX, X (r, size): G⁻¹ ← G⁻¹ ∓ W Wᵀ.

        With U = G⁻¹Xᵀ and S = I ± XU = TTᵀ it is W = U T⁻ᵀ. Where S is far from I, its digits are lost when a row comes
        and once more when it goes, but for refinement of U. A row of leverage 1, which alone speaks of its direction,
        can neither come nor go: nothing but rounding would be left of G⁻¹ there, or of S.
        """
        U, unit = self.solved(X.T, product), np.eye(len(X))
        S = unit + sign * (X @ U)
        if not self._worn and not ((S.diagonal() > _NEAR) & (S.diagonal() < 1 / _NEAR)).all():
            self._worn = True
            U += self.apply(X.T - product(U))
            S = unit + sign * (X @ U)
        T = _lower(S, np.full(len(X), _SAFE))
        if not (T.diagonal() ** 2 < 1 / _SAFE).all():
            raise np.linalg.LinAlgError("a direction is lost in rounding")
        return self._corrected(_divided(U, T), -sign), T

    def unit(self, places: Ints) -> Doubles:
        """The columns of the identity at these places, (size, r)."""
        out = np.zeros((self.size, len(places)), order="F")
        out[places, np.arange(len(places))] = 1
        return out

    def _corrected(self, W: Doubles, sign: int) -> Doubles:
        """W, remembered as columns of Q in room that is doubled when it runs out; new rows of old columns are zeros."""
        size, old = len(W), self.n_corrections
        new = old + W.shape[1]
        rows, columns = self._room.shape
        if size > rows or new > columns:
            wider = np.empty(
                (rows if size <= rows else size + size // 8, columns if new <= columns else max(2 * columns, new)),
                order="F",
            )
            wider[: self.size, :old] = self._room[: self.size, :old]
            self._room = wider
        self._room[self.size : size, :old] = 0
        self._room[:size, old:new] = W
        self._signs = np.concatenate([self._signs, np.full(W.shape[1], float(sign))])
        self.size = size
        return W


@dataclass(frozen=True)
class RowChange:
    """What one change does to rows: features X (r, d), targets Z (r, M), and places (r,) where rows are kept."""

    learnt: tuple[Any, Any] | None  # X, Z
    forgotten: tuple[Any, Any, Ints] | None  # X, Z, places
    retargeted: tuple[Any, Any, Any, Ints] | None  # X, Z before, Z after, places

    def with_features(self, convert: Callable[[Any], Any]) -> RowChange:
        """The same change with features as a system has them."""
        learnt, forgotten, moved = self.learnt, self.forgotten, self.retargeted
        return RowChange(
            None if learnt is None else (convert(learnt[0]), learnt[1]),
            None if forgotten is None else (convert(forgotten[0]), *forgotten[1:]),
            None if moved is None else (convert(moved[0]), *moved[1:]),
        )


class Renewed(ABC):
    """A system that is corrected, change by change, and factorised anew once there were many of them."""

    max_corrections: int | None = None  # ranks after which that is begun; None is by the size of the system
    sums_rows: ClassVar[bool] = False  # whether it keeps sums over rows and not the rows
    undoes_failures: ClassVar[bool] = False  # whether a change that fails leaves it as it was

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held while it is changed or measured
        self.version: int | None = 0  # counts changes; None in the middle of one, or after one that failed
        self._inverse: Inverse | None = None
        self._job: Future[Any] | None = None
        self._n_solved = 0

    @property
    def n_refactorised(self) -> int:
        """How often the system was solved anew, after the first time."""
        return max(0, self._n_solved - 1)

    @property
    @abstractmethod
    def solution(self) -> Doubles:
        """The coefficients for the rows there are now."""

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """M."""

    @abstractmethod
    def apply(self, change: RowChange) -> None:
        """Learn, forget and retarget rows."""

    @abstractmethod
    def widen(self, n_targets: int) -> None:
        """Have this many targets; new ones are zero for all rows so far."""

    @abstractmethod
    def drift(self) -> float:
        """How far the solution is off its equations."""

    def compact(self) -> None:  # noqa: B027 - sums have no places
        """Drop the places of rows that were forgotten."""

    def packed_sums(self, needed: bool) -> PackedSums | None:
        """Its sums at rest, if they are needed and it keeps sums."""
        return None

    @abstractmethod
    def _most(self) -> int: ...

    @abstractmethod
    def _begun(self) -> Future[Any] | None: ...

    @abstractmethod
    def _take_over(self, solved: Any) -> None: ...

    def _advance(self) -> None:
        """After a change by corrections: begin to factorise, or take over what was begun."""
        most = self._most()
        if self._inverse is not None and self._job is None and self._inverse.n_corrections >= most:
            self._job = self._begun()
        if self._inverse is not None and self._inverse.n_corrections >= most + most // 4:
            self.settle()

    def settle(self) -> None:
        """Wait for a factorisation under way, if there is one, and take it over; what failed there is raised here."""
        if self._job is not None:
            job, self._job = self._job, None
            solved = job.result()
            self._n_solved += 1
            self._take_over(solved)


def started(work: Callable[[], Result]) -> Future[Result]:
    """The result to be of this work, on a thread that does not keep the interpreter from its end."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def doubles(rows: Any) -> Doubles:
    """A copy: the caller may write to the rows before a factorisation under way asks for them again."""
    return np.array(dense(rows), np.float64, order="C")


def widened(array: NDArray[Any], n_targets: int) -> NDArray[Any]:
    """The array with this many columns: new ones are zeros, and those beyond are dropped."""
    wider = np.zeros((len(array), n_targets), array.dtype)
    wider[:, : array.shape[1]] = array[:, :n_targets]
    return wider


def measured(n: int, most: int = _MEASURED) -> Ints:
    """Of so many equations those that are looked at for the drift: a few, evenly spread.

    >>> measured(5).tolist(), measured(5, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 2, 4])
    """
    return np.linspace(0, n - 1, min(n, most)).astype(np.int64)


def relative(rest: NDArray[Any], whole: NDArray[Any]) -> float:
    """‖rest‖/‖whole‖."""
    return float(np.linalg.norm(rest) / (np.linalg.norm(whole) or 1.0))


def solve_lower(T: Doubles, R: Doubles) -> Doubles:
    """T⁻¹R of lower triangular T.

    >>> solve_lower(np.array([[2.0]]), np.array([[4.0]]))
    array([[2.]])
    """
    if len(T) == 1:  # not worth the threads of BLAS
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
        # Its transpose is what BLAS calls a matrix, and is written to where it is.
        scipy.linalg.blas.dgemm(factor, right.T, left, beta=1.0, c=out.T, trans_b=True, overwrite_c=True)


def _factorise(G: Doubles) -> None:
    """The lower triangle of G = LLᵀ becomes L, in blocks: LAPACK's would hold the interpreter lock until it is done."""
    n = len(G)
    for block in blocks(n, _BLOCK):
        G[block.start :, block] -= G[block.start :, : block.start] @ G[block, : block.start].T
        G[block, block] = np.linalg.cholesky(G[block, block])
        for rows in blocks(n - block.stop, 8 * _BLOCK):
            below = G[block.stop :][rows, block]
            below[:] = scipy.linalg.blas.dtrsm(1.0, G[block, block], below, side=1, lower=1, trans_a=1)


def _solve(upper: Doubles, V: Doubles) -> Doubles:
    """(UᵀU)⁻¹V; of many columns in blocks, for the same reason."""
    if V.shape[1] <= _COLUMNS_AT_ONCE:
        half, _ = scipy.linalg.lapack.dtrtrs(upper, V, lower=False, trans=1)
        return np.asarray(scipy.linalg.lapack.dtrtrs(upper, half, lower=False, overwrite_b=True)[0])
    L, out = upper.T, np.array(V, order="C")
    for block in blocks(len(L), _BLOCK):
        out[block] -= L[block, : block.start] @ out[: block.start]
        out[block] = scipy.linalg.blas.dtrsm(1.0, L[block, block], out[block], lower=1)
    for block in reversed(blocks(len(L), _BLOCK)):
        out[block] -= L[block.stop :, block].T @ out[block.stop :]
        out[block] = scipy.linalg.blas.dtrsm(1.0, L[block, block], out[block], lower=1, trans_a=1)
    return out


def _lower(S: Doubles, least: Doubles) -> Doubles:
    """T with TTᵀ = S; an error if a pivot is below `least` (r,)."""
    T = np.asarray(np.linalg.cholesky(S), np.float64)
    if not (T.diagonal() ** 2 > least).all():
        raise np.linalg.LinAlgError("a pivot is lost in rounding")
    return T


def _divided(W: Doubles, T: Doubles) -> Doubles:
    """W T⁻ᵀ."""
    if len(T) == 1:
        return np.asarray(W / T[0, 0])
    return np.asarray(scipy.linalg.blas.dtrsm(1.0, T, W, side=1, lower=1, trans_a=1, overwrite_b=1))
