"""X: how features are scaled, and weighted by their relevance to labels; the paper leaves both open.

Rows have length 1 where that suits the features, as it does those of texts. Columns of different units, such as
measurements, are divided by their standard deviations instead, or both. Rows may have several views, such as words and
an embedding side by side: then the part of each view has a length of its own. See `Scaling`.

Feature j is relevant if rows that have it carry similar labels. With z the embeddings of label sets,

    ρ_j = ‖Σ_i x_ij (z_i − z̄)‖² / (Σ_i x_ij² · mean_i ‖z_i − z̄‖²)

is 1 on average for a feature that has nothing to do with the labels, and grows with the number of rows that agree.
Features are multiplied by max(ρ, 1)^power before rows are scaled to length 1. The restricted isometry keeps lengths, so
a few dozen dimensions of z are enough, and ρ costs one product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import csr_of
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import dense, transposed_product, transposed_product_of_blocks
from ripml.base.workspace import RowBlocks, release

__all__ = ["FILLED", "Scaling", "is_empty", "is_filled", "relevance", "unit_rows"]

Floats = NDArray[Any]

# A row is divided by its largest entry, so that squares neither overflow nor vanish, and then by its length.
_SCALES: Any = ((np.maximum, np.abs, np.abs), (np.add, np.square, np.sqrt))
_FIRST = np.zeros(1, np.intp)  # where the entries of a single row begin
_CONSTANT = 1e-6  # relative deviation up to which a column does not vary but for rounding
FILLED = 0.5  # share of features that are not 0 from which rows are not sparse
_ROW_BLOCK = 1024  # dense rows at a time: they stay in the cache from the first pass to the last
_ROWS_SUMMED = 65536  # dense rows whose columns are added up at a time


def unit_rows(X: Any, n_jobs: int | None = None) -> Any:
    """X (n, d), dense or CSR, with its rows scaled to length 1; rows of zeros stay.

    Where squares would overflow or vanish, rows are first divided by their largest entry.

    >>> unit_rows(np.array([[3e200, 4e200], [0, 0]])).round(3).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    if scipy.sparse.issparse(X):
        return _unit_rows(X)
    out = np.empty(X.shape, X.dtype)

    def fill(rows: slice) -> None:
        squares = np.einsum("ij,ij->i", X[rows], X[rows])
        usual = ((squares > 1e-30) & (squares < 1e30)).all()
        out[rows] = X[rows] / np.sqrt(squares)[:, None] if usual else _unit_rows(X[rows])

    map_blocks(fill, blocks(len(X), _ROW_BLOCK), n_jobs)
    return out


def _unit_rows(X: Any) -> Any:
    if scipy.sparse.issparse(X):
        return csr_of(_unit_entries(X.data, X.indptr), X.indices, X.indptr, X.shape[1])
    X = X / _or_one(np.abs(X).max(axis=1))[:, None]
    return X / _or_one(np.sqrt((X * X).sum(axis=1)))[:, None]


def _unit_entries(data: NDArray[Any], indptr: NDArray[Any]) -> NDArray[Any]:
    """The entries of CSR rows of length 1."""
    if len(indptr) == 2 and len(data):
        for operation, transform, finish in _SCALES:
            data = data / _or_one(finish(operation.reduceat(transform(data), _FIRST)))
        return data
    lengths = np.diff(indptr)
    filled = np.flatnonzero(lengths)
    for operation, transform, finish in _SCALES:
        scale = np.ones(len(lengths), data.dtype)
        if len(filled):
            scale[filled] = _or_one(finish(operation.reduceat(transform(data), indptr[filled])))
        data = data / np.repeat(scale, lengths)
    return data


def _or_one(scale: NDArray[Any]) -> NDArray[Any]:
    """Numbers to divide by: 1 in place of 0."""
    return np.where(scale == 0, scale.dtype.type(1), scale)


def is_empty(X: Any) -> NDArray[np.bool_]:
    """Whether all features of a row of X, dense or CSR, are zero, (n,).

    >>> is_empty(scipy.sparse.csr_array([[0, 2], [0, 0]])).tolist()
    [False, True]
    """
    if not scipy.sparse.issparse(X):
        return np.asarray(~X.any(axis=1))
    if X.data.all():
        return np.asarray(X.indptr[1:] == X.indptr[:-1])
    before = np.concatenate([[0], np.cumsum(X.data != 0)])
    return np.asarray(before[X.indptr[1:]] == before[X.indptr[:-1]])


def is_filled(X: Any) -> bool:
    """Whether most features of X, dense or CSR, are not 0: measurements or embeddings rather than words."""
    n_filled = X.nnz if scipy.sparse.issparse(X) else sum(np.count_nonzero(part) for part in _dense_parts(X))
    return bool(n_filled >= FILLED * X.shape[0] * X.shape[1])


def _dense_parts(X: Any) -> Iterator[Any]:
    """Dense rows, some at a time; memory pages of those before are dropped, if they are mapped."""
    for rows in blocks(len(X), _ROWS_SUMMED):
        yield X[rows]
        release(X[rows])


def relevance(X: Any, Z: Any, n_jobs: int | None = None) -> NDArray[np.float32]:
    """ρ (d,) of the features of X (n, d), dense or CSR, for label embeddings Z (n, m); 1 for features of zeros.

    Both may be `RowBlocks`.

    >>> X = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> relevance(X, np.array([[1.0], [1.0], [-1.0], [-1.0]])).tolist()
    [2.0, 1.0]
    """
    if not X.shape[0]:
        return np.ones(X.shape[1], np.float32)
    if isinstance(X, RowBlocks):
        return _relevance_of_blocks(X, Z, n_jobs)
    mean = Z.mean(axis=0, dtype=np.float64).astype(Z.dtype)
    deviation = Z - mean
    if scipy.sparse.issparse(X):
        moment, squares = transposed_product(X, deviation, n_jobs), X.multiply(X).sum(axis=0)
    else:
        features = blocks(X.shape[1], 1024)
        moment = np.concatenate(map_blocks(lambda some: X.T[some] @ deviation, features, n_jobs))
        squares = np.square(X).sum(axis=0)
    return _ratio(moment, squares, _spread(Z, mean))


def _relevance_of_blocks(X: RowBlocks, Z: RowBlocks, n_jobs: int | None) -> NDArray[np.float32]:
    """The same in two passes over rows that are summed block by block; of sparse rows to the last bit."""
    mean = (Z.fold(_add_means) / Z.shape[0]).astype(Z.dtype)
    moment, squares, spread = X.fold(partial(_add_relevance, mean=mean, n_jobs=n_jobs), Z, in_order=True)
    return _ratio(moment.astype(X.dtype, copy=False), squares, float(spread) / Z.shape[0])


def _add_means(total: NDArray[Any] | None, z: NDArray[Any]) -> NDArray[Any]:
    """Σ z of rows, in float64."""
    more: NDArray[Any] = z.sum(axis=0, dtype=np.float64)
    return more if total is None else total + more


def _add_relevance(total: Any, x: Any, z: NDArray[Any], mean: NDArray[Any], n_jobs: int | None) -> Any:
    """Add Σ x_ij (z_i − z̄) (d, m), Σ x_ij² (d, 1) and Σ ‖z_i − z̄‖² of rows."""
    moment, squares, spread = total or (None, np.zeros((x.shape[1], 1), x.dtype), np.zeros(()))
    if scipy.sparse.issparse(x):
        squared = csr_of(x.data * x.data, x.indices, x.indptr, x.shape[1])
        transposed_product_of_blocks([(squared, np.ones((x.shape[0], 1), x.dtype))], n_jobs, squares)
        moment = np.zeros((x.shape[1], z.shape[1]), x.dtype) if moment is None else moment
    else:
        squares[:, 0] += np.square(x).sum(axis=0)
        moment = np.zeros((x.shape[1], z.shape[1])) if moment is None else moment  # of dense rows in float64
    deviation = z - mean
    spread = spread + np.einsum("ij,ij->", deviation, deviation, dtype=np.float64)
    return transposed_product_of_blocks([(x, deviation)], n_jobs, moment), squares, spread


def _spread(Z: NDArray[Any], mean: NDArray[Any]) -> float:
    """mean_i ‖z_i − z̄‖²."""
    total = 0.0
    for part in _dense_parts(Z):
        deviation = part - mean
        total += float(np.einsum("ij,ij->", deviation, deviation, dtype=np.float64))
    return total / len(Z)


def _ratio(moment: NDArray[Any], squares: Any, spread: float) -> NDArray[np.float32]:
    """max(ρ, 1) of Σ_i x_ij (z_i − z̄) (d, m), Σ_i x_ij² (d,) and mean_i ‖z_i − z̄‖²."""
    moments = np.einsum("ij,ij->i", moment, moment, dtype=np.float64)
    squares = np.asarray(squares, np.float64).ravel()
    chance = squares * spread
    ratio = np.divide(moments, chance, out=np.ones(len(chance)), where=chance > 0)
    return np.asarray(np.maximum(ratio, 1), np.float32)


@dataclass(frozen=True)
class Scaling:
    """How rows of features become those that the regression sees.

    In this order: `centre` is subtracted and columns are multiplied by `columns`; rows get length 1 (`unit`), or with
    several `views` the part of each view does; features are multiplied by `weights`, with rows of length 1 again; and
    the part of each view is multiplied by the root of its share.
    """

    unit: bool = True
    centre: Floats | None = None  # (d,)
    columns: Floats | None = None  # (d,)
    weights: Floats | None = None  # (d,)
    views: tuple[int, ...] = ()  # numbers of columns, if there is more than one view
    shares: tuple[float, ...] = ()  # of each view in the squared length of a row; together 1

    @classmethod
    def by_columns(cls, X: Any, unit: bool, deviation: bool = True) -> Scaling:
        """For dense rows X: centred, columns divided by their standard deviations or not, rows of length 1 or not.

        Without rows of length 1, the mean squared length of a row is 1. Columns that do not vary are left out.
        """
        n = len(X)
        centre = sum((part.sum(axis=0, dtype=np.float64) for part in _dense_parts(X)), np.zeros(X.shape[1])) / n
        off = (np.square(part - centre).sum(axis=0) for part in _dense_parts(X))
        spread = np.sqrt(sum(off, np.zeros(X.shape[1])) / n)
        varies = spread > _CONSTANT * np.abs(centre)
        scale = spread if deviation else np.full_like(spread, np.sqrt(np.square(spread[varies]).mean()))
        columns = np.divide(1, scale * varies.sum() ** 0.5, out=np.zeros_like(spread), where=varies)
        return cls(unit, centre, columns)

    @classmethod
    def options(cls, X: Any) -> list[Scaling]:
        """Those that may suit X, the usual one first: rows of length 1, the only one where most features are 0."""
        if X.shape[0] < 2 or not is_filled(X):
            return [cls()]
        X = X if isinstance(X, np.ndarray) else dense(X)
        return [cls(), cls.by_columns(X, False), cls.by_columns(X, True), cls.by_columns(X, True, deviation=False)]

    def __str__(self) -> str:
        """What is scaled, in a few words.

        >>> X = np.array([[1.0, 50.0], [2.0, 70.0], [2.0, 60.0]])
        >>> print(*Scaling.options(X), Scaling(unit=False), sep=", ")
        rows, columns, columns and rows, centred rows, nothing
        """
        if self.views:
            return "views"
        if self.columns is None:
            return "rows" if self.unit else "nothing"
        if self.unit and len(set(self.columns[self.columns > 0].tolist())) == 1:
            return "centred rows"
        return "columns and rows" if self.unit else "columns"

    # ------------------------------------------------------------------------------------------------------------ rows

    def __call__(self, X: Any, dtype: Any, n_jobs: int | None = None) -> Any:
        """Rows X (n, d), dense or CSR, as the regression sees them, of this type (None for that of X)."""
        return self.weighted(self.unweighted(X, dtype, n_jobs))

    def unweighted(self, X: Any, dtype: Any, n_jobs: int | None = None) -> Any:
        """The same before features are weighted, of this type (None for that of X)."""
        if self.columns is not None and self.centre is not None:
            X = (dense(X) - self.centre) * self.columns
        if self.unit:
            X = self._unit(X, n_jobs)
        return X if dtype is None else X.astype(dtype, copy=False)

    def weighted(self, X: Any) -> Any:
        """Unweighted rows with their features weighted."""
        if self.weights is not None:
            X = _multiplied(X, self.weights)
            X = self._unit(X) if self.unit else X
        if self.views:
            X = _multiplied(X, np.repeat(np.sqrt(self.shares), self.views))
        return X

    def with_weights(self, relevance: Floats, power: float, shares: tuple[float, ...] = ()) -> Scaling:
        """With features weighted by a power of their relevance, and with these shares of the views."""
        return replace(self, weights=relevance**power if power else None, shares=shares)

    def of_views(self, X: Any) -> list[Any]:
        """The columns of each view of X apart."""
        if not self.views:
            return [X]
        return [X[:, start:end] for start, end in pairwise([0, *np.cumsum(self.views).tolist()])]

    def _unit(self, X: Any, n_jobs: int | None = None) -> Any:
        if not self.views:
            return unit_rows(X, n_jobs)
        if not scipy.sparse.issparse(X):
            return np.concatenate([unit_rows(view, n_jobs) for view in self.of_views(X)], axis=1)
        # Row i's part in view v is number i·V + v.
        view = np.repeat(np.arange(len(self.views)), self.views)
        part = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)) * len(self.views) + view[X.indices]
        n_parts = X.shape[0] * len(self.views)
        largest = np.zeros(n_parts)
        np.maximum.at(largest, part, np.abs(X.data))
        data = X.data / _or_one(largest)[part]
        data /= _or_one(np.sqrt(np.bincount(part, data * data, n_parts)))[part]
        return csr_of(data.astype(X.dtype, copy=False), X.indices, X.indptr, X.shape[1])

    # ----------------------------------------------------------------------------------------------------------- state

    def to_state(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """As JSON values and arrays."""
        values = {"unit": self.unit, "views": list(self.views), "shares": list(self.shares)}
        arrays = {"weights": self.weights, "feature_centre": self.centre, "feature_scale": self.columns}
        return values, {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, Floats], n_features: int) -> Scaling:
        """The inverse of `to_state`; ValueError where values contradict each other."""
        views, shares = (tuple(values.get(name, ())) for name in ("views", "shares"))
        whole = all(type(width) is int and width > 0 for width in views)
        if type(values["unit"]) is not bool or not whole or (views and sum(views) != n_features):
            raise ValueError("the scaling of features does not fit to their number")
        if len(shares) != len(views) or not all(type(share) is float and 0 <= share <= 1 for share in shares):
            raise ValueError("the shares of views must be numbers between 0 and 1")
        centre, columns, weights = (arrays.get(name) for name in ("feature_centre", "feature_scale", "weights"))
        return cls(values["unit"], centre, columns, weights, views, shares)


def _multiplied(X: Any, weights: NDArray[Any]) -> Any:
    """X with its features multiplied by these weights (d,)."""
    weights = weights.astype(X.dtype, copy=False)
    if not scipy.sparse.issparse(X):
        return X * weights
    return csr_of(X.data * weights[X.indices], X.indices, X.indptr, X.shape[1])
