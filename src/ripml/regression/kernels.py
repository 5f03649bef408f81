"""Kernels: the similarity of two feature rows. Kernel ridge regression predicts ẑ = K(x, rows) C.

    linear   K(x, x') = ⟨x, x'⟩
    rbf      K(x, x') = exp(−γ‖x − x'‖²)
    local    linear for all rows, and rbf among the rows most similar to a query, see `Local`

‖x − x'‖² = ‖x‖² + ‖x'‖² − 2⟨x, x'⟩, so both kernels cost one product of rows. For sparse rows that product is split:
frequent features go through a dense matrix product and the rest through a sparse one, which takes an order of magnitude
less time than either alone.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.compiled import loops
from ripml.base.errors import ParameterError, check_count, check_positive
from ripml.base.parallel import blocks, map_blocks, thread_count
from ripml.base.products import FREQUENT, BitCodes, column_counts
from ripml.base.workspace import Workspace, release, row_slice

__all__ = ["RBF", "Kernel", "Linear", "Local", "Rows", "most_alike", "squared_lengths"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ROW_BLOCK = 128  # queries processed at a time by a thread
_ROWS_SQUARED = 65536  # rows whose entries are squared at a time
_CACHED = 1 << 18  # kernel values processed at a time: 1 MB, which stays in a core's cache
_GROUPS = 8  # groups per value to find, see `most_alike`
_LATE = 256  # rows added later, or a sixteenth of all rows, up to which they are kept apart from the prepared ones
_SINGLE = 16  # sparse queries up to which only their nonzero features are multiplied, which reads less memory
_DENSE = 1 / 5  # share of rows past which adding a line of all rows is faster than adding a list
_MANY_ROWS = 24  # rows among a few hundred that have a feature, from which it goes through a dense matrix
_FREQUENT_LAST = 0.3  # share of rows past which a feature is multiplied only with rows that may be nearest
_EXACT_ROWS = 20_000  # sparse rows up to which a query is compared with all: as many as have a kernel matrix
_EXACT_DENSE = 16_000_000  # numbers of dense rows up to which a query is compared with all
_LONGEST = 1e28  # squared length of a row up to which scores of bits stay in the range of float32
_EXACT_TERMS = 1_500_000  # of the products of a query with all rows, on average, up to which all are added up
_TERMS = 256_000  # that are added up where there are more
_COMPARED = 3  # likely rows that are compared exactly, for each row to be found
_LEVEL = 23  # low bits of a float32 that are dropped, so that lists are ordered by exponents
_EQUAL = 1e-3  # relative difference up to which squared lengths count as equal
_NEAR = 3000  # near rows of a model that has no far field yet
_STRIPES = 8  # stripes of rows in which the lower triangle of a kernel matrix is computed


@dataclass(frozen=True)
class Rows:
    """Feature rows (n, d), prepared for products with other rows.

    Rows that were added later are in `more`, so that learning a row does not repeat the preparation of all others.
    """

    X: Any  # dense or CSR, float32
    more: Rows | None = None
    prepared: _Prepared | None = field(default=None, repr=False, compare=False)  # if that is known already

    @classmethod
    def in_workspace(cls, X: Any, workspace: Workspace) -> Rows:
        """The rows X, with what is prepared of them in a workspace on disk."""
        return (
            cls(X) if workspace.in_memory or not scipy.sparse.issparse(X) else cls(X, None, _Prepared.of(X, workspace))
        )

    def __len__(self) -> int:
        return int(self.X.shape[0]) + (0 if self.more is None else len(self.more))

    def all(self) -> Any:
        """The features of all rows, as one array."""
        return self.X if self.more is None else _stacked([self.X, self.more.all()])

    def take(self, ids: Ints) -> Any:
        """The features of these rows."""
        if self.more is None:
            return self.X[ids]
        late = ids >= self.X.shape[0]
        found = _stacked([self.X[ids[~late]], self.more.take(ids[late] - self.X.shape[0])])
        return found[np.argsort(np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)]))]

    def followed_by(self, X: Any) -> Rows:
        """These rows and then X. The preparation is reused, until enough rows were added to prepare all again."""
        late = X if self.more is None else _stacked([self.more.all(), X])
        if late.shape[0] > max(_LATE, self.X.shape[0] // 16):
            rows = Rows(_stacked([self.X, late]))
        else:
            rows = Rows(self.X, Rows(late), self._prepared)
        return rows

    def prepare(self) -> None:
        """Fill the caches, before threads start."""
        if self.more is not None:
            self.more.prepare()
        _ = self.squares
        self._prepared.prepare()

    @cached_property
    def _prepared(self) -> _Prepared:
        return self.prepared or _Prepared.of(self.X)

    def first(self, n: int) -> Rows:
        """The first n of these rows, with the preparation of all where that has rows in order."""
        reused = scipy.sparse.issparse(self.X) and not self._prepared.misses
        return Rows(self.X[:n], prepared=self._prepared if reused else None)

    @cached_property
    def squares(self) -> Floats:
        """Squared lengths, (n,)."""
        squares = squared_lengths(self.X)
        return squares if self.more is None else np.concatenate([squares, self.more.squares])

    def products(self, X: Any, out: Floats) -> None:
        """⟨x, row⟩ for each of X (b, d) and each row, into `out` (b, n)."""
        if self.more is not None:
            late = out[:, self.X.shape[0] :]
            self.more.products(X, late)
            out = out[:, : self.X.shape[0]]
        self._prepared.products(X, out)

    def nearest(
        self,
        X: Any,
        k: int,
        halves: Floats,
        numbers: Ints,
        alive: NDArray[np.bool_] | None,
        left_out: Ints | None,
        tied: np.float32,
        exact: bool = False,
    ) -> tuple[Ints, Floats] | None:
        """The k < n rows of the largest ⟨x, row⟩ − `halves`, the largest first, and these values: both (b, k).

        Rows whose values differ by at most `tied` are equal, and those of the lowest `numbers` are taken. None where
        the values of all rows have to be computed first. Of very many rows a few may be missed, see
        `_LargestFirst` and `_Coded`, unless it is to be `exact`.
        """
        n, prepared = int(self.X.shape[0]), self._prepared
        if not prepared.searches or (exact and not scipy.sparse.issparse(self.X)):
            return None
        X = prepared.as_queries(X)
        late = np.empty((X.shape[0], len(self) - n), np.float32)
        if self.more is not None:
            self.more.prepare()
            self.more.products(X, late)
            late -= halves[n:]
        ids, values = np.empty((X.shape[0], k), np.int64), np.empty((X.shape[0], k), np.float32)
        gone = np.empty(0, bool) if alive is None else ~alive
        own = np.empty(0, np.int64) if left_out is None else left_out
        prepared.nearest(X, halves[:n], gone, own, late, numbers, tied, exact, ids, values)
        return ids, values

    @property
    def misses(self) -> bool:
        """Whether `nearest` may miss some rows."""
        return self._prepared.misses

    def products_among(self, ids: Ints) -> Floats:
        """⟨row, row'⟩ for all pairs of these rows, (k, k)."""
        compiled = loops()
        if compiled is not None and scipy.sparse.issparse(self.X):
            among, places = (self.X, ids) if self.more is None else (self.take(ids), np.arange(len(ids)))
            products = np.empty((len(ids), len(ids)), np.float32)
            compiled.products_among(
                among.indptr, among.indices, among.data, places, among.shape[1], _MANY_ROWS, products
            )
            np.fill_diagonal(products, self.squares[ids])
            return products
        rows = self.take(ids)
        if scipy.sparse.issparse(rows):
            # Most features occur in one of the rows only and affect just the diagonal. The others are few enough for
            # a dense matrix.
            shared = np.bincount(rows.indices, minlength=rows.shape[1]) > 1
            place = np.cumsum(shared) - 1
            kept = shared[rows.indices]
            row = np.repeat(np.arange(len(ids)), np.diff(rows.indptr))
            values = np.zeros((len(ids), int(place[-1]) + 1), np.float32)
            values[row[kept], place[rows.indices[kept]]] = rows.data[kept]
            rows = values
        products = np.asarray(rows @ rows.T, np.float32)
        np.fill_diagonal(products, self.squares[ids])
        return products


class _Prepared(ABC):
    """Rows, prepared for products with others."""

    misses: ClassVar[bool] = False  # whether the search of near rows may miss some
    searches: ClassVar[bool] = False  # whether there is a search, `nearest`, that does not compute all products

    @abstractmethod
    def products(self, X: Any, out: Floats) -> None:
        """⟨x, row⟩ for each of X (b, d) and the first rows, as many as `out` (b, n) has columns."""

    @abstractmethod
    def prepare(self) -> None:
        """Make what products need, before threads start."""

    def as_queries(self, X: Any) -> Any:
        """Rows as `nearest` takes them."""
        return X if scipy.sparse.issparse(X) else scipy.sparse.csr_array(X)

    def nearest(
        self,
        X: Any,
        halves: Floats,
        gone: NDArray[np.bool_],
        left_out: Ints,
        late: Floats,
        numbers: Ints,
        tied: np.float32,
        exact: bool,
        ids: Ints,
        likeness: Floats,
    ) -> None:
        """Write the nearest rows of rows X, and their likeness (`ripml.base.loops.nearest_rows`)."""
        raise NotImplementedError

    @staticmethod
    def of(X: Any, workspace: Workspace | None = None) -> _Prepared:
        """Dense rows as they are, or coded where they are many; sparse ones by lists where loops are compiled, else
        split by features."""
        if not scipy.sparse.issparse(X):
            return _Coded(X, BitCodes(X)) if _Coded.suits(X) else _Dense(X)
        if loops() is None:
            return _Split.made(X)
        kind = _LargestFirst if _LargestFirst.suits(X) else _Lists
        return kind.made(X, workspace or Workspace())


@dataclass(frozen=True)
class _Dense(_Prepared):
    """Dense rows."""

    X: Floats

    def prepare(self) -> None:
        """Nothing."""

    def products(self, X: Any, out: Floats) -> None:
        np.matmul(self.as_queries(X), self.X[: out.shape[1]].T, out=out)

    def as_queries(self, X: Any) -> Any:
        return X.toarray() if scipy.sparse.issparse(X) else X


@dataclass(frozen=True)
class _Coded(_Dense):
    """Dense rows with a code of two bits for each dimension, by which rows are proposed and then compared exactly.

    A search reads a sixteenth of the bytes, and may miss rows whose products with a query are nearly the same as those
    of many others.
    """

    codes: BitCodes

    misses: ClassVar[bool] = True
    searches: ClassVar[bool] = True

    @staticmethod
    def suits(X: Any) -> bool:
        """Whether comparing all rows with a query takes longer than to scan their codes."""
        if loops() is None or X.dtype != np.float32 or len(X) <= _EXACT_ROWS or X.size <= _EXACT_DENSE:
            return False
        return bool(squared_lengths(X).max() < _LONGEST)

    def nearest(
        self,
        X: Any,
        halves: Floats,
        gone: NDArray[np.bool_],
        left_out: Ints,
        late: Floats,
        numbers: Ints,
        tied: np.float32,
        exact: bool,
        ids: Ints,
        likeness: Floats,
    ) -> None:
        """See `ripml.base.loops.similar_by_bits`; never `exact`."""
        k, X = ids.shape[1], np.ascontiguousarray(X, np.float32)
        loops().similar_by_bits(
            X, self.X, halves, *self.codes.arrays(), gone, left_out, late, numbers, *BitCodes.counts(k), k, tied, ids,
            likeness,
        )  # fmt: skip


@dataclass(frozen=True)
class _Lists(_Prepared):
    """Sparse rows by features: a list of the rows that have it, or a line of all rows where many have it."""

    shape: tuple[int, int]
    starts: NDArray[Any]  # (d + 1,) where the list of each feature begins
    rows: NDArray[Any]
    values: Floats
    X: Any  # the rows themselves

    searches: ClassVar[bool] = True

    @classmethod
    def made(cls, X: Any, workspace: Workspace) -> _Lists:
        starts, rows, values = workspace.columns("lists", X)
        return cls(X.shape, starts, rows, values, X)

    @cached_property
    def _lines(self) -> tuple[NDArray[np.int32], Floats]:
        """The line (d,) of each frequent feature, −1 for others, and these lines, (F, n)."""
        place, frequent = self._more_frequent(_DENSE)
        return place, self.X[:, frequent].T.toarray(order="C")

    @cached_property
    def _block(self) -> tuple[NDArray[np.int32], Floats, Floats]:
        """The place (d,) of each very frequent feature, −1 for others, the rows of these, (n, F), and their lengths."""
        place, frequent = self._more_frequent(_FREQUENT_LAST)
        block = self.X[:, frequent].toarray(order="C")
        return place, block, np.sqrt(squared_lengths(block))

    def _more_frequent(self, share: float) -> tuple[NDArray[np.int32], Ints]:
        """The features that more than a share of the rows have, and the place (d,) of each among them, else −1."""
        frequent = np.flatnonzero(np.diff(self.starts) > share * self.shape[0])
        place = np.full(self.shape[1], -1, np.int32)
        place[frequent] = np.arange(len(frequent))
        return place, frequent

    def prepare(self) -> None:
        _ = self._lines

    def products(self, X: Any, out: Floats) -> None:
        if not scipy.sparse.issparse(X):
            X = scipy.sparse.csr_array(X)
        loops().sparse_products(X.indptr, X.indices, X.data, self.starts, self.rows, self.values, *self._lines, out)

    def nearest(
        self,
        X: Any,
        halves: Floats,
        gone: NDArray[np.bool_],
        left_out: Ints,
        late: Floats,
        numbers: Ints,
        tied: np.float32,
        exact: bool,
        ids: Ints,
        likeness: Floats,
    ) -> None:
        """The nearest rows of CSR rows X, see `ripml.base.loops.nearest_rows`; always `exact`."""
        loops().nearest_rows(
            X.indptr, X.indices, X.data, self.starts, self.rows, self.values, *self._block, halves, gone, left_out,
            late, numbers, ids.shape[1], tied, ids, likeness
        )  # fmt: skip


@dataclass(frozen=True)
class _LargestFirst(_Lists):
    """The same lists with the largest entries first, so that the nearest rows are found without reading most of them.

    ⟨x, x'⟩ is a sum of terms x_j x'_j, and of all terms of a query with n rows a few make up most of the products of
    near rows. The `_TERMS` largest are added up; rows with the largest sums are compared exactly, `_COMPARED` for each
    to be found. So a search takes the same time for any number of rows, and may miss rows that share many features
    with the query but none that weighs much. A query that has no more terms than `_TERMS` misses none.
    """

    misses: ClassVar[bool] = True

    @staticmethod
    def suits(X: Any) -> bool:
        """Whether a query like these rows has more terms than are cheap, and the largest products are the nearest rows.

        They are where rows have the same length, and the largest terms tell them where no term is negative.
        """
        n, count = X.shape[0], column_counts(X).astype(np.float64)
        count = count[count <= _FREQUENT_LAST * n]  # the others are seldom multiplied
        if n <= _EXACT_ROWS or float(count @ count) <= _EXACT_TERMS * n:
            return False
        squares = squared_lengths(X)
        squares = squares[squares > 0]
        release(X.data)
        same = len(squares) > 0 and squares.max() - squares.min() <= _EQUAL * squares.max()
        return bool(same and X.data.min() >= 0)

    @classmethod
    def made(cls, X: Any, workspace: Workspace) -> _LargestFirst:
        starts, rows, values = workspace.columns("lists", X)
        ordered = (workspace.empty(f"largest-{array.dtype}", array.shape, array.dtype) for array in (rows, values))
        first_rows, first_values = map(np.asarray, ordered)
        loops().largest_first(starts, rows, values, _LEVEL, first_rows, first_values)
        return cls(X.shape, starts, first_rows, first_values, X)

    def nearest(
        self,
        X: Any,
        halves: Floats,
        gone: NDArray[np.bool_],
        left_out: Ints,
        late: Floats,
        numbers: Ints,
        tied: np.float32,
        exact: bool,
        ids: Ints,
        likeness: Floats,
    ) -> None:
        """See `ripml.base.loops.likely_rows`; with all terms it is `exact`."""
        k = ids.shape[1]
        loops().likely_rows(
            X.indptr, X.indices, X.data, self.starts, self.rows, self.values, _LEVEL, self.X.indptr,
            self.X.indices.view(np.uint32 if self.X.indices.itemsize == 4 else np.uint64), self.X.data, halves, gone,
            left_out, late, numbers, len(self.values) if exact else _TERMS, _COMPARED * k, k, tied, ids, likeness,
        )  # fmt: skip


@dataclass(frozen=True)
class _Split(_Prepared):
    """Sparse rows, split by features: the frequent ones dense, (F, n), and the rare ones CSR, (n, R)."""

    frequent: Ints
    rare: Ints
    dense: Floats
    sparse: Any

    @classmethod
    def made(cls, X: Any) -> _Split:
        n, d = X.shape
        share = np.bincount(X.indices, minlength=d) / max(n, 1)
        frequent, rare = np.flatnonzero(share > FREQUENT), np.flatnonzero(share <= FREQUENT)
        columns = X.tocsc()
        return cls(frequent, rare, columns[:, frequent].T.toarray(order="C"), columns[:, rare].tocsr())

    @cached_property
    def _sparse_transposed(self) -> Any:
        return self.sparse.T.tocsr()

    def prepare(self) -> None:
        _ = self._sparse_transposed

    def products(self, X: Any, out: Floats) -> None:
        n = out.shape[1]
        if not scipy.sparse.issparse(X):
            np.matmul(X[:, self.frequent], self.dense[:, :n], out=out)
            out += (self.sparse[:n] @ X[:, self.rare].T).T
            return
        if X.shape[0] <= _SINGLE:
            out[:] = X[:, self.frequent] @ self.dense[:, :n]
        else:
            np.matmul(X[:, self.frequent].toarray(), self.dense[:, :n], out=out)
        out += (X[:, self.rare] @ (self._sparse_transposed[:, :n])).toarray()


def _stacked(parts: list[Any]) -> Any:
    """Rows stacked, dense or CSR like the first part."""
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.vstack([scipy.sparse.csr_array(part) for part in parts], format="csr")
    return np.concatenate([part.toarray() if scipy.sparse.issparse(part) else part for part in parts])


def squared_lengths(X: Any) -> Floats:
    """‖x‖² of each row, (n,)."""
    if scipy.sparse.issparse(X):
        compiled = loops()
        if compiled is not None:
            out = np.empty(X.shape[0], np.float32)
            compiled.squared_lengths(X.indptr, X.data, out)
            return out
        out = np.empty(X.shape[0], np.float32)
        for rows in blocks(X.shape[0], _ROWS_SQUARED):
            part = row_slice(X, rows)
            summed = np.concatenate([[0.0], np.cumsum(np.square(part.data, dtype=np.float64))])
            out[rows] = np.diff(summed[part.indptr])
        return out
    return np.asarray(np.einsum("ij,ij->i", X, X), np.float32)


def most_alike(values: NDArray[Any], k: int) -> Ints:
    """The places of the k largest values in each line, (b, k), in no particular order.

    The k-th largest maximum of groups of values is a lower bound of the k-th largest value. It is found in one pass,
    and few values above it remain to be sorted.

    >>> most_alike(np.array([[3.0, 1.0, 2.0]]), 1)
    array([[0]])
    """
    n = values.shape[1]
    if k >= n:
        return np.broadcast_to(np.arange(n), values.shape)
    n_groups = _GROUPS * k
    if not 0 < 2 * n_groups <= n:  # too few values for groups
        return np.argpartition(values, n - k, axis=1)[:, n - k :]
    size = n // n_groups
    maxima = values[:, : size * n_groups].reshape(len(values), size, n_groups).max(axis=1)
    bounds = np.partition(maxima, n_groups - k, axis=1)[:, n_groups - k]
    out = np.empty((len(values), k), np.int64)
    for line, bound, places in zip(values, bounds, out, strict=True):
        candidates = np.flatnonzero(line >= bound)
        places[:] = candidates[np.argpartition(line[candidates], len(candidates) - k)[len(candidates) - k :]]
    return out


@dataclass(frozen=True)
class Kernel(ABC):
    """A similarity measure, with its options."""

    word: ClassVar[str]
    linear: ClassVar[bool] = False  # whether the regression with it is linear in the features

    @property
    def nearby(self) -> Local | None:
        """The kernel among rows near a query, if it differs from the kernel of all rows."""
        return None

    @property
    def tunable(self) -> bool:
        """Whether an option is "auto", which is tuned on a sample before the fit."""
        return False

    def start(self) -> Kernel:
        """The kernel from which tuning starts."""
        return self

    def likeness(self, X: Any, rows: Rows, n_jobs: int | None = None) -> Floats:
        """How near rows of X are to training rows, (len(X), n); a larger value means nearer."""
        return self.between(X, rows, n_jobs)

    def halves(self, rows: Rows) -> Floats:
        """What the likeness of a linear regression is less than ⟨x, x'⟩: ½‖x'‖² where distances count, else 0, (n,)."""
        return np.zeros(len(rows), np.float32)

    def of_likeness(self, likeness: NDArray[Any], left: Floats) -> Floats:
        """The similarity that belongs to a likeness (b, k) of rows of squared lengths `left` (b,)."""
        return likeness

    @property
    def n_near(self) -> int | str | None:
        """Rows near to a query whose kernel is summed exactly, see `RBF`; None for all rows."""
        return None

    def with_near(self, n_near: int = _NEAR) -> Kernel:
        """With this number of near rows, where `n_near` is not None."""
        return self

    @property
    def grade(self) -> float:
        """By how much log K grows with the likeness, where `n_near` is not None."""
        return 0.0

    @abstractmethod
    def of_products(self, products: Floats, left: Floats, right: Floats) -> None:
        """Turn products (b, n) into kernel values, in place; `left` (b,) and `right` (n,) are squared lengths."""

    def gradient_terms(
        self, products: NDArray[np.float64], left: Any, right: NDArray[Any], coefficients: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """K₀·C and (K − K₀)/⟨x, x'⟩·C (n, labels) of coefficients C, with K₀ the kernel of rows that share nothing.

        `products` (n,) are ⟨x, x'⟩ for one row x of squared length `left` and rows of squared lengths `right` (n,).
        """
        apart, values = np.zeros((1, len(products))), products[None].copy()
        for some in (apart, values):
            self.of_products(cast(Any, some), cast(Any, np.array([left])), cast(Any, right))
        slope = np.divide(values - apart, products, out=np.zeros_like(values), where=products != 0)
        return apart[0][:, None] * coefficients, slope[0][:, None] * coefficients

    def between(self, X: Any, rows: Rows, n_jobs: int | None = None, out: Floats | None = None) -> Floats:
        """K(x, row), (len(X), n) float32, in blocks on threads; written to `out` if it is given.

        >>> Linear().between(np.array([[1.0, 2.0]], np.float32), Rows(np.array([[3.0, 4.0]], np.float32)))
        array([[11.]], dtype=float32)
        """
        if out is None:
            out = np.empty((X.shape[0], len(rows)), np.float32)
        rows.prepare()
        left, right = squared_lengths(X), rows.squares

        def fill(block: slice) -> None:
            rows.products(X if block == slice(0, X.shape[0]) else X[block], out[block])
            for part in blocks(block.stop - block.start, max(1, _CACHED // max(out.shape[1], 1))):
                self.of_products(out[block][part], left[block][part], right)

        if X.shape[0] <= _SINGLE and scipy.sparse.issparse(rows.X) and loops() is not None:
            fill(slice(0, X.shape[0]))
            return out
        size = _ROW_BLOCK if X.shape[0] > _SINGLE else max(1, -(-X.shape[0] // thread_count(n_jobs)))
        map_blocks(fill, blocks(X.shape[0], size), n_jobs)
        return out

    def lower_triangle(self, X: Any, n_jobs: int | None = None) -> Floats:
        """K(x, x') of all pairs of rows of X, (n, n) float32. Only the lower triangle is filled, for Cholesky."""
        n = X.shape[0]
        out = np.zeros((n, n), np.float32)
        rows = Rows(X)
        for stripe in blocks(n, max(_ROW_BLOCK, -(-n // _STRIPES))):
            self.between(X[stripe], rows.first(stripe.stop), n_jobs, out[stripe, : stripe.stop])
        return out


@dataclass(frozen=True)
class Linear(Kernel):
    """⟨x, x'⟩: the paper's ridge regression."""

    word: ClassVar[str] = "linear"
    linear: ClassVar[bool] = True

    def of_products(self, products: Floats, left: Floats, right: Floats) -> None:
        """Products are the kernel values."""


@dataclass(frozen=True)
class RBF(Kernel):
    """exp(−γ‖x − x'‖²); with "auto", γ is chosen on held-out training rows.

    Where there are more than twice `n_near` training rows, all of length 1, a prediction sums the kernel of about
    `n_near` rows exactly, the nearest ones. For the others it takes a line, fitted to their kernel values: from far
    away the kernel is nearly linear in ⟨x, x'⟩, so that their sum is one product with x. "auto" is for more than 6,000
    rows, and takes the fewest near rows that change predictions for left-out rows by at most 5 %. None sums all rows.
    """

    word: ClassVar[str] = "rbf"

    gamma: float | str = "auto"
    n_near: int | str | None = "auto"

    def __post_init__(self) -> None:
        check_positive("gamma", self.gamma)
        if self.n_near is not None and self.n_near != "auto":
            check_count("n_near", self.n_near, "None, 'auto' or ")

    @property
    def tunable(self) -> bool:
        """Whether γ is "auto"."""
        return self.gamma == "auto"

    def start(self) -> Kernel:
        """γ = 0.5."""
        return replace(self, gamma=0.5)

    def likeness(self, X: Any, rows: Rows, n_jobs: int | None = None) -> Floats:
        """⟨x, x'⟩ − ½‖x'‖², which ranks rows as the kernel does and needs no exponential."""
        return _less_distant(X, rows, n_jobs)

    def halves(self, rows: Rows) -> Floats:
        """½‖x'‖²."""
        return np.asarray(rows.squares / 2, np.float32)

    def of_likeness(self, likeness: NDArray[Any], left: Floats) -> Floats:
        """exp(2γ(likeness − ½‖x‖²)); rounding must not take it above 1."""
        values = np.asarray(np.float32(self.grade) * (likeness - left[:, None] / 2))
        np.minimum(values, 0, out=values)
        return np.asarray(np.exp(values, out=values))

    def with_near(self, n_near: int = _NEAR) -> Kernel:
        """With this number of near rows."""
        return replace(self, n_near=n_near)

    @property
    def grade(self) -> float:
        """2γ."""
        return 2 * float(self.gamma)

    def of_products(self, products: Floats, left: Floats, right: Floats) -> None:
        """exp(γ(2⟨x, x'⟩ − ‖x‖² − ‖x'‖²)); rounding must not take it above 1."""
        gamma = np.float32(self.gamma)
        products *= 2 * gamma
        products -= gamma * left[:, None]
        products -= gamma * right
        np.minimum(products, 0, out=products)
        np.exp(products, out=products)

    def gradient_terms(
        self, products: NDArray[np.float64], left: Any, right: NDArray[Any], coefficients: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """In closed form: K = K₀·exp(2γ⟨x, x'⟩), whose slope has a limit where rows share nothing."""
        gamma = float(self.gamma)
        slope = np.divide(
            np.expm1(2 * gamma * products), products, np.full(len(products), 2 * gamma), where=products != 0
        )
        apart = np.exp(-gamma * (left + right))[:, None] * coefficients
        return apart, slope[:, None] * apart


@dataclass(frozen=True)
class Local(Linear):
    """Linear for all rows, RBF near the query: for more rows than a kernel matrix can have.

        ŷ = k (K + ridge·I)⁻¹ Y

    is kernel ridge on the r = `n_rows` rows most similar to x, with k (1, r) their RBF kernel values with x, K (r, r)
    those among each other, and Y (r, L) their labels. Distant rows have little weight in an RBF kernel, so the result
    is close to kernel ridge on all rows. It needs no training, and a few hundred rows per query. The blend combines it
    with the linear regression. With "auto", γ and ridge are chosen on held-out rows.
    """

    word: ClassVar[str] = "local"

    gamma: float | str = "auto"
    ridge: float | str = "auto"
    n_rows: int = 200

    def __post_init__(self) -> None:
        check_positive("gamma", self.gamma)
        check_positive("ridge", self.ridge)
        n = cast(Any, self.n_rows)
        if isinstance(n, bool) or not isinstance(n, numbers.Integral) or n < 1:
            raise ParameterError(f"`n_rows` must be an integer ≥ 1; got {n!r}.")

    @property
    def nearby(self) -> Local | None:
        """This kernel."""
        return self

    def halves(self, rows: Rows) -> Floats:
        """½‖x'‖², so that rows are ranked by their distance from x."""
        return np.asarray(rows.squares / 2, np.float32)

    def likeness(self, X: Any, rows: Rows, n_jobs: int | None = None) -> Floats:
        """⟨x, x'⟩ − ½‖x'‖², which ranks rows by their distance from x."""
        return _less_distant(X, rows, n_jobs)


def _less_distant(X: Any, rows: Rows, n_jobs: int | None) -> Floats:
    """⟨x, x'⟩ − ½‖x'‖²."""
    values = Linear().between(X, rows, n_jobs)
    values -= rows.squares / 2
    return values
