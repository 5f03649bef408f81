"""Training rows that are kept: compared with queries, so that similar rows vote, or only to go on learning from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray
from ripml.base.compiled import loops
from ripml.base.errors import DataError
from ripml.base.parallel import blocks
from ripml.base.products import dense
from ripml.regression.kernel_ridge import weights_of_rows
from ripml.regression.kernels import RBF, Kernel, Local, Rows, most_alike

__all__ = ["TrainingRows"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ROW_BLOCK = 256
_LIKENESSES = 1 << 24  # of queries and training rows that a thread holds at a time: 64 MB
_TIED = np.float32(1e-6)  # by which the similarity of two rows that are equally similar may differ
_SAME = 1e-5  # by which the features of a row to be forgotten may differ from those that were learnt
_COMPARED = 1024  # rows at a time


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a cluster with the number of the label set of each, and its number among all rows ever learnt.

    A row that was forgotten keeps its place until `compacted`, and is similar to no other. Nor is a row without
    features: by distance it would be nearer to most queries than any row of length 1 that shares little with them.
    """

    X: Rows
    set_of_row: Ints  # (n,)
    numbers: Ints  # (n,); empty where rows are kept only to go on learning
    kernel: Kernel
    searched: bool = True  # similar rows vote, or the regression is by kernel
    alive: NDArray[np.bool_] | None = None  # (n,); None for all of them
    _growing: tuple[GrowingArray, GrowingArray] | None = None

    def __len__(self) -> int:
        return len(self.set_of_row)

    # --------------------------------------------------------------------------------------------------------- queries

    @property
    def rows_at_a_time(self) -> int:
        """Queries that a thread compares with all rows at a time."""
        return min(_ROW_BLOCK, max(16, _LIKENESSES // max(len(self), 1)))

    def likeness(self, X: Any, n_jobs: int | None) -> Floats:
        """How similar feature rows are to those here, (n, n_rows)."""
        return self.kernel.likeness(X, self.X, n_jobs)

    def nearest(self, X: Any, k: int, left_out: Ints | None = None) -> tuple[Ints, Floats]:
        """The k rows that feature rows are most similar to, the most similar first, and their likeness: both (n, k).

        `left_out` has each query's own row, which is left out, or (n, c) all copies of its features. The same as
        `most_similar` of the likeness, most of which need not be computed where loops are compiled. Of very many sparse
        rows, some may be missed: see `recall`.
        """
        if left_out is None or left_out.ndim == 1:
            return self._nearest(X, k, left_out)
        more = left_out.shape[1] - 1  # copies are among the nearest of all
        return _without(*self._nearest(X, k + more, left_out[:, 0]), left_out, k)

    def _nearest(self, X: Any, k: int, left_out: Ints | None, exact: bool = False) -> tuple[Ints, Floats]:
        found = None
        if 0 < k < len(self):
            found = self.X.nearest(X, k, self._halves, self.numbers, self._findable, left_out, _TIED, exact)
        return self.most_similar(self.likeness(X, 1), k, left_out) if found is None else found

    def recall(self, X: Any, k: int, left_out: Ints | None = None) -> float | None:
        """The share of the k most similar rows of feature rows that `nearest` finds; None where that is always all."""
        if not self.X.misses or not 0 < k < len(self) or not X.shape[0]:
            return None
        least = self._nearest(X, k, left_out, exact=True)[1][:, -1:] - _TIED
        return float(np.mean(self.nearest(X, k, left_out)[1] >= least))

    @cached_property
    def _halves(self) -> Floats:
        return self.kernel.halves(self.X)

    @cached_property
    def _findable(self) -> NDArray[np.bool_] | None:
        """Rows that may be similar to others, (n,); None for all of them."""
        filled = self.X.squares > 0
        if filled.all() or not filled.any():
            return self.alive
        return filled if self.alive is None else filled & self.alive

    def most_similar(self, likeness: Floats, k: int, left_out: Ints | None = None) -> tuple[Ints, Floats]:
        """The k rows of the largest likeness, the largest first, and their likeness: both (n, k).

        `likeness` (n, n_rows) is that of the queries with all rows; `left_out` has each query's own row, which is left
        out, or (n, c) several.
        """
        if left_out is not None:
            likeness[np.arange(len(likeness))[:, None], left_out.reshape(len(likeness), -1)] = -np.inf
        if self._findable is not None:
            likeness[:, ~self._findable] = -np.inf
        compiled = loops()
        if compiled is not None and 0 < k < likeness.shape[1]:
            ids, values = np.empty((len(likeness), k), np.int64), np.empty((len(likeness), k), np.float32)
            compiled.most_similar(likeness, self.numbers, k, _TIED, ids, values)
            return ids, values
        ids = most_alike(likeness, min(k, likeness.shape[1]))
        values = np.take_along_axis(likeness, ids, axis=1)
        if 0 < k < likeness.shape[1]:
            ids = _earliest(likeness, ids, values.min(axis=1), self.numbers)
            values = np.take_along_axis(likeness, ids, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)

    def first(self, ids: Ints, similarity: Floats, k: int) -> tuple[Ints, Floats]:
        """The first k of rows that `most_similar` found."""
        if not 0 < k < ids.shape[1]:
            return ids[:, :k], similarity[:, :k]
        start = np.tile(np.arange(k), (len(ids), 1))
        places = _earliest(similarity, start, similarity[:, k - 1], self.numbers[ids])
        return np.take_along_axis(ids, places, axis=1), np.take_along_axis(similarity, places, axis=1)

    def local_weights(
        self, ids: Ints, likeness: Floats, squares: Floats, kernels: Sequence[Local]
    ) -> NDArray[np.float64]:
        """For each of these kernels, the weights (K, n, k) of rows `ids` (n, k) in kernel ridge on these rows alone.

        `likeness` (n, k) is that of queries, of squared lengths `squares` (n,), with these rows.
        """
        weights = np.empty((len(kernels), *ids.shape), np.float64)
        for i, near in enumerate(ids):
            among, lengths = self.X.products_among(near), self.X.squares[near]
            present = np.isfinite(likeness[i])
            products = np.where(present, likeness[i], 0) + lengths / 2
            for gamma in {local.gamma for local in kernels}:
                kernel, K, k = RBF(gamma), among.copy(), products[None].copy()
                kernel.of_products(K, lengths, lengths)
                kernel.of_products(k, squares[i : i + 1], lengths)
                near_k = np.where(present, k[0], -np.inf)
                for j, local in enumerate(kernels):
                    if local.gamma == gamma:
                        weights[j, i] = weights_of_rows(K.copy(), near_k, float(local.ridge))
        return weights

    # -------------------------------------------------------------------------------------------------------- changing

    def places_of(self, X: Any, sets: Ints, numbers: Ints, taken: set[int]) -> Ints:
        """The places of rows with these features (r, d) and label sets, and of these numbers where they are not −1.

        Each place is given once: `taken` has those that are given already. DataError for a row that is not here.
        """
        return np.array(
            [self._place(X[i : i + 1], *row, taken) for i, row in enumerate(zip(sets, numbers, strict=True))], np.int64
        )

    def _place(self, x: Any, label_set: int, number: int, taken: set[int]) -> int:
        matching = self.set_of_row == label_set
        if self.alive is not None:
            matching &= self.alive
        if number >= 0 and self.searched:
            matching &= self.numbers == number
        allowed = _SAME * float(abs(x).max())
        candidates = np.flatnonzero(matching)
        for some in blocks(len(candidates), _COMPARED):
            off = _largest_differences(self.X.take(candidates[some]), x)
            closest = candidates[some][np.argsort(off, kind="stable")[: np.count_nonzero(off <= allowed)]]
            for place in closest.tolist():
                if place not in taken:
                    taken.add(place)
                    return int(place)
        raise DataError(
            "a row to be forgotten or relabelled was never learnt: no row with these labels has its features."
        )

    def changed(self, forgotten: Ints, moved: Ints, moved_to: Ints, X: Any, sets: Ints, numbers: Ints) -> TrainingRows:
        """Without the rows at `forgotten`, with those at `moved` in other label sets, and with rows X at the end."""
        set_of_row, growing = self.set_of_row, self._growing
        if len(moved):
            set_of_row, growing = set_of_row.copy(), None
            set_of_row[moved] = moved_to
        alive = np.ones(len(self), bool) if self.alive is None else self.alive
        alive = np.concatenate([alive, np.ones(X.shape[0], bool)])
        alive[forgotten] = False
        rows, row_numbers = self.X, self.numbers
        if X.shape[0]:
            sparse = scipy.sparse.issparse(rows.X)
            X = X if scipy.sparse.issparse(X) == sparse else scipy.sparse.csr_array(X) if sparse else X.toarray()
            rows = rows.followed_by(X.astype(rows.X.dtype))  # a copy: these may be the caller's
            growing = growing or (GrowingArray(set_of_row), GrowingArray(row_numbers))
            growing = growing[0].appended(sets), growing[1].appended(numbers if self.searched else numbers[:0])
            set_of_row, row_numbers = growing[0].view, growing[1].view
        return replace(
            self,
            X=rows,
            set_of_row=set_of_row,
            numbers=row_numbers,
            alive=None if alive.all() else alive,
            _growing=growing,
        )

    def renumbered(self, order: Ints) -> TrainingRows:
        """With the row of number i as that of number `order[i]`."""
        return replace(self, numbers=order[self.numbers], _growing=None)

    @property
    def n_alive(self) -> int:
        """Rows that were not forgotten."""
        return len(self) if self.alive is None else int(np.count_nonzero(self.alive))

    def compacted(self, place_of_set: Ints) -> tuple[TrainingRows, Ints]:
        """Without the places of forgotten rows, and the places that stay; set s is `place_of_set[s]` from now on."""
        kept = np.arange(len(self)) if self.alive is None else np.flatnonzero(self.alive)
        rows = self.X if self.alive is None and not self.searched else Rows(self.X.take(kept))
        numbers = self.numbers[kept] if self.searched else self.numbers
        sets = place_of_set[self.set_of_row[kept]]
        return replace(self, X=rows, set_of_row=sets, numbers=numbers, alive=None, _growing=None), kept

    def emptied(self) -> TrainingRows:
        """Without any row."""
        nothing = np.empty(0, np.int64)
        rows = Rows(self.X.X[:0])
        return replace(self, X=rows, set_of_row=nothing, numbers=nothing, alive=None, _growing=None)


def _without(ids: Ints, values: Floats, rows: Ints, k: int) -> tuple[Ints, Floats]:
    """The first k of found rows (n, K) and their values, without the `rows` (n, c) of each line."""
    unwanted = (ids[:, :, None] == rows[:, None, :]).any(axis=2)
    order = np.argsort(unwanted, axis=1, kind="stable")[:, :k]
    values = np.where(unwanted, np.float32(-np.inf), values)
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)


def _earliest(values: Floats, places: Ints, least: Floats, numbers: Ints) -> Ints:
    """The places (n, k) of the largest values (n, N), `least` (n,) the least of these, with the earliest among equals.

    Which rows vote must not depend on the order in which rows are stored, nor on how products were rounded: rows that
    share nothing with a query are all equally similar to it. `numbers`, of the rows, are (N,) or (n, N).
    """
    count = np.count_nonzero(values >= (least - _TIED)[:, None], axis=1)
    for line in np.flatnonzero((count > places.shape[1]) & np.isfinite(least)):
        row, number = values[line], numbers if numbers.ndim == 1 else numbers[line]
        sure = np.flatnonzero(row > least[line] + _TIED)
        tied = np.flatnonzero(np.abs(row - least[line]) <= _TIED)
        tied = tied[np.argsort(number[tied], kind="stable")][: places.shape[1] - len(sure)]
        places[line] = np.concatenate([sure, tied])
    return places


def _largest_differences(X: Any, x: Any) -> NDArray[Any]:
    """max |x_j − x'_j| of each row of X with the one row x."""
    if scipy.sparse.issparse(X):
        difference = X - scipy.sparse.csr_array(scipy.sparse.vstack([scipy.sparse.csr_array(x)] * X.shape[0]))
        return np.asarray(abs(difference).max(axis=1).toarray(), np.float64).ravel()
    return np.asarray(abs(X - dense(x)).max(axis=1), np.float64)
