"""Matrix products of features, embeddings and coefficients on all cores: nearly all the cost of training.

Rows are dense or CSR. A sparse product needs one operation per nonzero but runs at a hundredth of the speed of BLAS, so
dense products are used where they are faster: for features that many rows have, and for labels before embedding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray, from_bytes, from_half
from ripml.base.compiled import loops
from ripml.base.parallel import blocks, map_blocks
from ripml.base.workspace import ColumnBlocks, RowBlocks, Workspace, read_rows, release, release_rows, row_slice

__all__ = [
    "BLAS_GAIN",
    "FREQUENT",
    "BitCodes",
    "FactoredEmbedding",
    "IndexedEmbedding",
    "RoundedRows",
    "add_gram_product",
    "add_transposed_product",
    "by_frequency",
    "column_counts",
    "dense",
    "dense_rows_product",
    "gram_of",
    "predict_embedding",
    "product",
    "target_blocks",
    "transposed_product",
    "transposed_product_of_blocks",
]

Floats = NDArray[np.floating[Any]]

BLAS_GAIN = 16  # operations of a dense product in the time of one of a sparse product
_COMPILED_GAIN = 2  # by which a sparse product is faster in compiled loops
FREQUENT = 1 / 25  # share of rows past which a feature is cheaper in a dense product than in a sparse one
_ROWS = 512  # rows of a product on one thread
_ROW_BLOCK = 4096  # rows multiplied at a time; sums over blocks are kept in float64
_COMMON = 1 / 10  # the same for products of features with features
_FEATURE_BLOCKS = 32  # in which rare features are multiplied, by sparse products
_LINES = 256  # lines of a result that compiled loops add up at a time
_EMBEDDED_ROWS = 1 << 16  # whose labels' columns are held at a time
_TARGETS, _LONG_TARGETS = 64, 128  # columns of V that a sparse matrix is multiplied with at a time, at most
_CODED_ROWS = 1 << 12  # that a thread turns into bits at a time; whole blocks of 64
_CACHED_LINES = 1 << 16  # of 64 columns: 16 MB


@dataclass(frozen=True)
class FactoredEmbedding:
    """Z = Y Phiᵀ, (n, M), kept as its factors: labels Y (n, L), CSR, and the function `columns` from label numbers to
    columns of Phi, (len, M)."""

    Y: Any
    columns: Callable[[Any], NDArray[np.float32]]
    n_dims: int
    n_jobs: int | None = None
    dtype: Any = np.float32  # of the result

    @property
    def shape(self) -> tuple[int, int]:
        """(n, M)."""
        return self.Y.shape[0], self.n_dims

    def __getitem__(self, rows: Any) -> FactoredEmbedding:
        return replace(self, Y=self.Y[rows])

    def astype(self, dtype: Any, copy: bool = True) -> FactoredEmbedding:
        """The same in another type."""
        return replace(self, dtype=dtype)

    def toarray(self) -> Floats:
        """Z itself. Only the columns of Phi that a block of rows needs are held at a time."""
        out = np.empty(self.shape, self.dtype)
        for rows in blocks(self.shape[0], _EMBEDDED_ROWS):
            Y = self.Y[rows]
            used, place = np.unique(Y.indices, return_inverse=True)
            local = type(Y)((Y.data.astype(self.dtype), place, Y.indptr), shape=(Y.shape[0], len(used)))
            out[rows] = predict_embedding(local, self.columns(used), self.n_jobs)
        return out


@dataclass(frozen=True)
class IndexedEmbedding:
    """The embeddings (n, F·m) of rows, kept as the embeddings Z (F, u, m) of u label sets and the set `of_row` (n,) of
    each row; rows are copied only where they are used."""

    Z: Floats
    of_row: NDArray[np.int64]
    dtype: Any = np.float32

    @property
    def shape(self) -> tuple[int, int]:
        """(n, F·m)."""
        return len(self.of_row), self.Z.shape[0] * self.Z.shape[2]

    def __getitem__(self, rows: Any) -> IndexedEmbedding:
        return replace(self, of_row=self.of_row[rows])

    def astype(self, dtype: Any, copy: bool = True) -> IndexedEmbedding:
        """The same in another type."""
        return replace(self, dtype=dtype)

    def toarray(self) -> Floats:
        """The embeddings of all rows."""
        out = np.empty(self.shape, self.dtype)
        for Z, columns in zip(self.Z, np.split(out, len(self.Z), axis=1), strict=True):
            columns[:] = read_rows(Z, self.of_row)
        return out


class RoundedRows:
    """Rows Z (n, m), float32, with a copy rounded to 8 bits, in which the best of them are found for a few queries.

    The copy is a quarter of the rows to read, and bounds on its error leave few rows to be compared exactly. It is
    made when it is first needed, and continued when rows follow. Only where loops are compiled.
    """

    def __init__(self, Z: NDArray[np.float32]) -> None:
        self.Z = Z
        self._copy = GrowingArray(np.empty((0, Z.shape[1]), np.int8)), GrowingArray(np.empty(0, np.float32)), 0.0

    def followed(self, Z: NDArray[np.float32]) -> RoundedRows:
        """Of rows that begin with the present ones."""
        other = RoundedRows(Z)
        other._copy = self._copy
        return other

    def best(
        self, queries: NDArray[np.float32], penalty: NDArray[np.float64], longest: float, k: int, by_distance: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k rows with the largest ⟨z, q⟩ − penalty, (q, k), and their squared distances or negative products.

        `longest` is the largest length of a row.
        """
        ids, costs = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
        queries = np.ascontiguousarray(queries)
        loops().best_rows(queries, self.Z, penalty, *self._rounded(), longest, by_distance, k, ids, costs)
        return ids, costs

    def _rounded(self) -> tuple[NDArray[np.int8], NDArray[np.float32], float]:
        """The copy, the unit of each row, (n,), and the largest length of what was cut off."""
        rounded, units, cut = self._copy
        while rounded.size < len(self.Z):
            Z = self.Z[rounded.size : rounded.size + _EMBEDDED_ROWS]
            unit = np.abs(Z).max(axis=1, initial=0) / np.float32(127) + np.float32(1e-30)
            steps = np.rint(Z / unit[:, None]).astype(np.int8)
            off = np.linalg.norm(Z - steps * unit[:, None], axis=1).max(initial=0)
            rounded, units, cut = rounded.appended(steps), units.appended(unit), max(cut, float(off))
            release(Z)
        self._copy = rounded, units, cut
        return rounded.view, units.view, cut


class BitCodes:
    """Rows Z (n, m) in two bits for each of D dimensions, D the power of two from m on, by which a scan proposes the
    rows that may be nearest to a query.

    A row is turned, z' = HF₂HF₁z/D with F random signs and H the Walsh–Hadamard transform, so that its entries are like
    normal ones whatever they were. Of each entry its sign b and whether it is the larger of two steps are kept. With
    q' the turned query, in three bits per entry, ⟨z, q⟩ ≈ ⟨b, q'⟩ ‖z‖² / ⟨b, z'⟩, an estimate whose error is about
    ¾ ‖z‖ ‖q‖ / √D, or ⅓ by both bits (RaBitQ: Gao and Long 2024). Products of signs are counts of equal bits.

    The code of a row is a function of that row alone. Codes are made when they are first needed, and continued when
    rows follow; only where loops are compiled.
    """

    def __init__(self, Z: NDArray[Any]) -> None:
        self.Z = Z
        n_bits = max(64, 1 << (Z.shape[1] - 1).bit_length())
        self.flips = np.random.default_rng(n_bits).choice(np.array([-1, 1], np.float32), (2, n_bits))
        self._whole = tuple(GrowingArray(array) for array in self._empty(0))  # blocks of 64 rows that are full
        self._made: tuple[NDArray[Any], ...] | None = None
        self._lock = threading.Lock()

    def followed(self, Z: NDArray[Any]) -> BitCodes:
        """Of rows that begin with the present ones."""
        other = BitCodes(Z)
        with self._lock:
            other._whole = self._whole
        return other

    def arrays(self, n_jobs: int | None = None) -> tuple[NDArray[Any], ...]:
        """The flips F; of full blocks of 64 rows the signs (n // 64, D/64, 64), both bits of each row side by side
        (n // 64, 64, 2, D/64), and the factors ‖z‖² / ⟨b, z'⟩ of signs and of both; then the same of the last block."""
        with self._lock:
            if self._made is None:
                known = 64 * self._whole[0].size
                more, n_whole = self._of(self.Z[known:], n_jobs), (len(self.Z) - known) // 64
                self._whole = tuple(old.appended(new[:n_whole]) for old, new in zip(self._whole, more, strict=True))
                # The block that is not full is not in the memory that is shared with later values.
                last = (new[n_whole:].copy() for new in more)
                self._made = (self.flips, *(array.view for array in self._whole), *last)
            return self._made

    @staticmethod
    def counts(k: int) -> tuple[int, int]:
        """How many rows signs propose so that k are found, and how many of these both bits.

        >>> BitCodes.counts(200)
        (2400, 400)
        """
        return 800 + 8 * k, 100 + 3 * k // 2

    def _empty(self, n_blocks: int) -> tuple[NDArray[Any], ...]:
        n_words = self.flips.shape[1] // 64
        shapes = (n_blocks, n_words, 64), (n_blocks, 64, 2, n_words), (n_blocks, 2, 64)
        return tuple(np.zeros(shape, dtype) for shape, dtype in zip(shapes, "QQf", strict=True))

    def _of(self, Z: NDArray[Any], n_jobs: int | None) -> tuple[NDArray[Any], ...]:
        made = self._empty(-(-len(Z) // 64))

        def fill(rows: slice) -> None:
            at = slice(rows.start // 64, -(-rows.stop // 64))
            some = np.ascontiguousarray(Z[rows], np.float32)
            loops().bit_codes(some, self.flips, *(array[at] for array in made))
            release(Z[rows])

        map_blocks(fill, blocks(len(Z), _CODED_ROWS), n_jobs)
        return made


def dense(matrix: Any) -> Floats:
    """A dense, sparse or factored matrix as an array."""
    return np.asarray(matrix) if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray())


def column_counts(Y: Any) -> NDArray[np.int64]:
    """The entries in each column of a CSR matrix (n, L), (L,)."""
    counts = np.zeros(Y.shape[1], np.int64)
    for part in blocks(len(Y.indices), 1 << 20):
        counts += np.bincount(Y.indices[part], minlength=Y.shape[1])
        release(Y.indices[part])
    return counts


def gram_of(X: Any, n_jobs: int | None, dtype: Any = np.float64, XT: Any = None) -> Floats:
    """XᵀX, (d, d). Where X is sparse, `XT` is its transpose in CSR, if that is known already."""
    d = X.shape[1]
    if not scipy.sparse.issparse(X):
        out = np.zeros((d, d), dtype)
        for rows in blocks(X.shape[0], _ROW_BLOCK):
            block = X[rows].astype(dtype, copy=False)
            out += block.T @ block  # BLAS on all its threads; NumPy takes the symmetric product here
        return out
    X = X.astype(dtype, copy=False)
    XT = X.T.tocsr() if XT is None else XT.astype(dtype, copy=False)
    frequent = np.bincount(X.indices, minlength=d) > _COMMON * X.shape[0]
    common, rare = np.flatnonzero(frequent), np.flatnonzero(~frequent)
    dense_part, transposed = XT[common].T.toarray(order="C"), XT[rare]
    sparse_part = transposed.T.tocsr()
    out = np.empty((d, d), dtype)
    out[np.ix_(common, common)] = gram_of(dense_part, n_jobs, dtype)
    compiled = loops()

    def fill_compiled(features: slice) -> None:
        rows = sparse_part.indptr, sparse_part.indices, sparse_part.data
        compiled.gram_lines(*rows, dense_part, features.start, features.stop, rare, common, out)

    def fill(features: slice) -> None:
        block, others = rare[features], rare[features.start :]
        some = transposed[features]
        with_common = some @ dense_part
        out[np.ix_(block, common)], out[np.ix_(common, block)] = with_common, with_common.T
        # The products with rare features before these are the transpose of ones computed already.
        with_rare = (some @ sparse_part[:, features.start :]).toarray()
        out[np.ix_(block, others)], out[np.ix_(others, block)] = with_rare, with_rare.T

    if compiled is None:
        map_blocks(fill, blocks(len(rare), max(64, len(rare) // _FEATURE_BLOCKS)), n_jobs)
    else:
        map_blocks(fill_compiled, blocks(len(rare), _LINES), n_jobs)
        map_blocks(lambda lines: compiled.mirror(out, lines.start, lines.stop), blocks(d, _LINES), n_jobs)
    return out


def product(X: Any, V: Floats, n_jobs: int | None) -> Floats:
    """X V in blocks of rows on threads."""
    out = np.empty((X.shape[0], V.shape[1]), np.result_type(X.dtype, V.dtype))
    V = V.astype(out.dtype, copy=False)  # once, not in every block

    def fill(rows: slice) -> None:
        out[rows] = X[rows] @ V

    map_blocks(fill, blocks(X.shape[0], _ROWS), n_jobs)
    return out


def target_blocks(d: int, n_targets: int) -> list[slice]:
    """Blocks of columns of V (d, M) for computing XᵀXV with sparse X; they depend on these sizes alone.

    Every nonzero reads or writes one row of a block, in nearly random order. A narrow block stays in the cache;
    where d is too large for that, wider blocks use each access to memory better.

    >>> target_blocks(1000, 40)
    [slice(0, 16, None), slice(16, 32, None), slice(32, 40, None)]
    """
    width = min(max(-(-n_targets // 8), 16), _TARGETS) if d <= _CACHED_LINES else _LONG_TARGETS
    return blocks(n_targets, width)


def by_frequency(X: Any, workspace: Workspace | None = None) -> tuple[Any, NDArray[np.int64]]:
    """CSR X[:, order] with features by falling frequency and without those that no row has, and that `order`.

    The rows of V that most rows of X need then lie side by side, in few pages. With a workspace, the result is there.

    >>> by_frequency(scipy.sparse.csr_array([[0, 5, 0], [7, 6, 0]]))[1]
    array([1, 0])
    """
    parts = X if isinstance(X, RowBlocks) else RowBlocks(X, max(X.shape[0], 1))
    counts = parts.fold(_add_counts) if X.shape[0] else np.zeros(X.shape[1], np.int64)
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    place = np.zeros(X.shape[1], np.int32)
    place[order] = np.arange(len(order))

    def ordered(part: Any) -> Any:
        moved = type(part)((part.data.copy(), place[part.indices], part.indptr), shape=(part.shape[0], len(order)))
        moved.sort_indices()
        return moved

    if parts.elsewhere:
        return parts.changed(ordered, "features by frequency"), order
    if workspace is None or workspace.in_memory:
        return ordered(parts[:]), order
    n_entries = int(counts.sum())
    values = workspace.empty("ordered-values", (n_entries,), X.dtype)
    columns = workspace.empty("ordered-columns", (n_entries,), np.int32)
    ends = workspace.empty("ordered-ends", (X.shape[0] + 1,), np.int64)
    step = ["ordered", list(X.shape), n_entries]
    if workspace.load_checkpoint(step) is None:
        ends[0] = 0
        for rows, part in parts.blocks():
            moved, start = ordered(part), int(ends[rows.start])
            ends[rows.start + 1 : rows.stop + 1] = start + moved.indptr[1:]
            entries = slice(start, start + len(moved.data))
            values[entries], columns[entries] = moved.data, moved.indices
            release(values, columns)
        workspace.save_checkpoint(step, {})
    return workspace.csr("ordered", values, columns, ends, len(order)), order


def _add_counts(total: NDArray[np.int64] | None, X: Any) -> NDArray[np.int64]:
    """Add the entries in each column of a block of CSR rows."""
    counts = np.bincount(X.indices, minlength=X.shape[1])
    return counts if total is None else total + counts


def transposed_product(X: Any, V: Any, n_jobs: int | None, XT: Any = None) -> Floats:
    """XᵀV in the wider of the two types, on threads; dense X in blocks of rows.

    With sparse X the rows of V are read one after the other and added to those of the result, a block of columns at a
    time; where `XT`, its transpose in CSR, is known, in blocks of features, by gathering rows of V.
    Both may be `RowBlocks`.
    """
    if isinstance(X, RowBlocks):
        return transposed_product_of_blocks(((part, V[rows]) for rows, part in X.blocks()), n_jobs)
    if isinstance(V, FactoredEmbedding):
        return _factored_product(X, V, n_jobs, XT)
    if isinstance(V, IndexedEmbedding):
        return _indexed_product(X, V, n_jobs)
    if scipy.sparse.issparse(V):
        return (V.T.tocsr() @ X).T.toarray() if scipy.sparse.issparse(X) else np.asarray((V.T.tocsr() @ X).T)
    if scipy.sparse.issparse(X):
        return _scattered(X, V, n_jobs) if XT is None else _by_features(X, V, n_jobs, XT)
    total = np.zeros((X.shape[1], V.shape[1]))
    for rows in blocks(X.shape[0], _ROW_BLOCK):
        total += X[rows].T @ V[rows]
    return total.astype(np.result_type(X.dtype, V.dtype), copy=False)


def transposed_product_of_blocks(
    parts: Iterable[tuple[Any, Any]], n_jobs: int | None, out: Floats | None = None
) -> Floats:
    """XᵀV, the sum over blocks of rows x of X and v of V; where X is sparse, added up row by row as of one block.

    It is added to `out`, if that is given.
    """
    total = out
    for some, targets in parts:
        lines = dense(targets)
        dtype = np.result_type(some.dtype, lines.dtype)
        if not scipy.sparse.issparse(some):  # sums of dense rows in float64
            total = np.zeros((some.shape[1], lines.shape[1])) if total is None else total
            total += transposed_product(some, lines, n_jobs)
            continue
        total = np.zeros((some.shape[1], lines.shape[1]), dtype) if total is None else total
        made = some.astype(dtype, copy=False), np.ascontiguousarray(lines, dtype)

        def add(columns: slice, made: Any = made, total: Any = total) -> None:
            x, v = made
            _add_transposed(x, v, columns, total)

        map_blocks(add, target_blocks(*total.shape), n_jobs)
    assert total is not None
    return total if total.dtype == dtype or out is not None else total.astype(dtype)


def add_transposed_product(parts: Iterable[tuple[Any, Any]], out: ColumnBlocks, n_jobs: int | None) -> None:
    """Add XᵀV to `out`, of blocks of sparse rows x of X and v of V, with some columns of `out` in memory at a time."""
    for some, targets in parts:
        x, lines = some.astype(out.dtype, copy=False), dense(targets)

        def add(block: tuple[slice, Floats], x: Any = x, lines: Any = lines) -> None:
            columns, total = block
            part = np.ascontiguousarray(lines[:, columns], total.dtype)
            _add_transposed(x, part, slice(0, part.shape[1]), total)
            release(total)

        map_blocks(add, list(zip(out.columns, out.parts, strict=True)), n_jobs)


def _add_transposed(X: Any, V: Floats, columns: slice, out: Floats) -> None:
    """Add these columns of XᵀV to those of `out`, in the order of rows."""
    compiled = loops()
    if compiled is None:
        out[:, columns] += X.T @ V[:, columns]
    else:
        compiled.add_transposed(X.indptr, X.indices, X.data, V, columns.start, columns.stop, out)


def add_gram_product(X: Any, V: Floats, out: Floats, height: int) -> None:
    """Add XᵀXV to `out`, of CSR rows X that may be mapped, `height` rows at a time."""
    compiled = loops()
    for rows in blocks(X.shape[0], height):
        part = row_slice(X, rows)
        if compiled is None:
            out += part.T @ (part @ V)
        else:
            compiled.add_gram_product(part.indptr, part.indices, part.data, V, out)
        release_rows(part)


def _scattered(X: Any, V: Floats, n_jobs: int | None) -> Floats:
    out = np.empty((X.shape[1], V.shape[1]), np.result_type(X.dtype, V.dtype))

    def fill(columns: slice) -> None:
        out[:, columns] = X.T @ V[:, columns].astype(out.dtype, copy=False)

    map_blocks(fill, target_blocks(*out.shape), n_jobs)
    return out


def _by_features(X: Any, V: Floats, n_jobs: int | None, XT: Any) -> Floats:
    compiled = loops()
    if compiled is None or not X.has_sorted_indices:
        return product(XT, V, n_jobs)
    out = np.empty((X.shape[1], V.shape[1]), np.result_type(X.dtype, V.dtype))
    X, V = X.astype(out.dtype, copy=False), np.ascontiguousarray(V, out.dtype)

    def fill(features: slice) -> None:
        compiled.scattered(X.indptr, X.indices, X.data, V, features.start, features.stop, out)

    map_blocks(fill, blocks(X.shape[1], _LINES), n_jobs)
    return out


def _factored_product(X: Any, Z: FactoredEmbedding, n_jobs: int | None, XT: Any) -> Floats:
    """XᵀZ = (XᵀY)Phiᵀ where that is less work: features are summed per label before labels are embedded."""
    d, L = X.shape[1], Z.Y.shape[1]
    gain = BLAS_GAIN if loops() is None else BLAS_GAIN / _COMPILED_GAIN
    cost = X.nnz if scipy.sparse.issparse(X) else X.size / gain
    if d * L > gain * cost:
        return transposed_product(X, Z.toarray(), n_jobs, XT)
    Phi = Z.columns(slice(None)).astype(Z.dtype, copy=False)
    Y = Z.Y.astype(Phi.dtype)
    out = np.empty((d, Z.n_dims), np.result_type(X.dtype, Phi.dtype))
    XT = X.T if not scipy.sparse.issparse(X) else X.T.tocsr() if XT is None else XT

    def fill(features: slice) -> None:
        out[features] = dense(XT[features] @ Y) @ Phi

    map_blocks(fill, blocks(d, max(64, d // 32)), n_jobs)
    return out


def _indexed_product(X: Any, V: IndexedEmbedding, n_jobs: int | None) -> Floats:
    """XᵀZ[of_row] = (SᵀX)ᵀZ, where S maps rows to their rows of Z: rows of X that share one are summed first."""
    n, (n_learners, _, m) = X.shape[0], V.Z.shape
    if not scipy.sparse.issparse(X):
        return transposed_product(X, V.toarray(), n_jobs)
    dtype = np.result_type(X.dtype, V.dtype)
    used, place = np.unique(V.of_row, return_inverse=True)
    S = scipy.sparse.csr_array((np.ones(n, dtype), place, np.arange(n + 1)), shape=(n, len(used))).T.tocsr()
    summed = (S @ X).T.tocsr()
    out = np.empty((X.shape[1], n_learners * m), dtype)
    for learner, Z in enumerate(V.Z):
        out[:, learner * m : (learner + 1) * m] = product(summed, Z[used], n_jobs)
    return out


def sparse_half_product(X: Any, V: NDArray[np.float16]) -> Floats:
    """X V (n, M) float32 of CSR rows X and a matrix of float16, of which only the rows that X needs are read."""
    compiled = loops()
    if compiled is None:
        used = np.unique(X.indices)
        return np.asarray(X[:, used] @ from_half(V[used]), np.float32)
    out = np.empty((X.shape[0], V.shape[1]), np.float32)
    compiled.sparse_half(X.indptr, X.indices, X.data, V.view(np.uint16), out)
    return out


def dense_rows_product(Z: NDArray[np.float32], V: NDArray[np.float32]) -> Floats:
    """Z V (n, M) of a few dense rows; with compiled loops a row has the same product alone and among others."""
    compiled = loops()
    if compiled is None:
        return Z @ V
    out = np.empty((len(Z), V.shape[1]), np.float32)
    compiled.dense_rows(np.ascontiguousarray(Z), V, out)
    return out


def sparse_bytes_product(X: Any, V: NDArray[np.int8], units: NDArray[np.float32]) -> Floats:
    """X V (n, M) float32 of CSR rows X and a matrix in 8 bits, see `as_bytes`; only the lines that X needs are read."""
    compiled = loops()
    if compiled is None:
        used = np.unique(X.indices)
        return np.asarray(X[:, used] @ from_bytes(V[used], units[used]), np.float32)
    out = np.empty((X.shape[0], V.shape[1]), np.float32)
    compiled.sparse_bytes(X.indptr, X.indices, X.data, V, units, out)
    return out


def predict_embedding(X: Any, Psi: Floats, n_jobs: int | None = None) -> Floats:
    """Ẑ = X Psi, (n, M), in blocks of rows on threads; with sparse X only the rows of Psi that it needs are read."""
    compiled = loops()
    if compiled is not None and scipy.sparse.issparse(X) and X.dtype == Psi.dtype:
        out = np.empty((X.shape[0], Psi.shape[1]), X.dtype)
        if X.shape[0] <= _ROWS:
            compiled.sparse_dense(X.indptr, X.indices, X.data, Psi, out)
            return out

        def fill(rows: slice) -> None:
            some = X.indptr[rows.start : rows.stop + 1]
            compiled.sparse_dense(some, X.indices, X.data, Psi, out[rows])

        map_blocks(fill, blocks(X.shape[0], _ROWS), n_jobs)
        return out
    if scipy.sparse.issparse(X) and X.nnz < X.shape[1]:
        used = np.unique(X.indices)
        X = type(X)((X.data, np.searchsorted(used, X.indices), X.indptr), shape=(X.shape[0], len(used)))
        Psi = Psi[used]
    return product(X, Psi, n_jobs)
