"""The RIPML of one cluster: ẑ for feature rows, the label sets and rows that are near, and what they say of labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import predict_embedding
from ripml.base.workspace import release
from ripml.decoding import scores as decoding
from ripml.decoding.blend import Candidates
from ripml.labels.projection import LabelVectors
from ripml.neighbors import Index, Searcher
from ripml.regression import PackedSums, Sums
from ripml.regression.kernel_ridge import weights_of_rows
from ripml.regression.kernels import RBF, Kernel, Linear, Local, Rows, most_alike, squared_lengths

__all__ = [
    "DENSE_LABELS",
    "SEARCHED",
    "Decode",
    "Part",
    "as_stored",
    "storage_scale",
    "unit",
]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ROW_BLOCK = 256
_PARTS, _LEAST_BLOCK = 4, 4  # into which a batch is cut at least, but not smaller than so many rows
_STORED_ROWS = 65536
_LIKENESSES = 1 << 24  # of queries and training rows that a thread holds at a time: 64 MB
_TIED = np.float32(1e-6)  # by which two rows that are as like a query may differ
_ROUNDING = 1e-6  # by which the length of a row of length 1 may differ from it
_RARE = 16  # rows of a label up to which one more or less makes a difference
DENSE_LABELS = 8192  # up to here the values of all labels cost less than looking up the columns of candidates
SEARCHED = 256  # dimensions in which neighbours are searched: distances settle long before values do


@dataclass(frozen=True)
class Decode:
    """How an embedding is read: the settings of the decoder with every choice made."""

    n_neighbors: int  # label sets near in the embedding that vote; 0 for none
    temperature: float  # of their votes, exp((cos − max)/temperature)
    n_similar: int  # rows of similar features that vote; 0 for none
    similar_temperature: float
    epsilon: float | None  # of least squares on the candidates; None to leave values as they are
    n_candidates: int  # kept of each row
    exact: bool  # the embedding is Y itself
    dense: bool  # the values of all labels are made, else those of candidates alone
    columns: LabelVectors  # labels ↦ their columns of Phi, (len, M)
    searched: (
        Floats | None
    )  # (L, m) where ẑ is squeezed before the search; None where it is cut to its first dimensions
    frequency: Ints  # (L,) training rows of each label
    n_jobs: int | None

    @cached_property
    def unseen(self) -> Ints:
        """Labels that no row carries, which are no candidates."""
        return np.flatnonzero(self.frequency == 0)


class Near(NamedTuple):
    """Label sets near to queries, their similarity and how many rows each stands for: all (n, K)."""

    sets: Ints
    similarity: NDArray[np.float64]
    rows: Ints


@dataclass(frozen=True)
class KeptRows:
    """Training rows that a linear model keeps to go on learning where their sums would be larger."""

    X: Any  # (n, d), as the regression saw them, without a column of ones
    set_of_row: Ints  # (n,)


@dataclass(frozen=True)
class Part:
    """The regression of one cluster into the embedding, and the label sets and rows to be found there.

    Sets and rows that were forgotten may still have a place: a set that no row carries has the count 0 and is not found
    any more, a row that is not `alive` has no coefficients and is like no other.
    """

    Psi: Floats  # (d, M), or (n, M) on the kernel with `rows`
    intercept: Floats  # (M,)
    Z: NDArray[Any]  # (F, u, m), for each learner the embeddings of the label sets to be searched, in units of `scale`
    sets: Any  # CSR (u, L)
    counts: Ints  # (u,) training rows that carry each set
    index: Index
    n_learners: int
    kernel: Kernel = field(default_factory=Linear)
    rows: Rows | None = None  # the training rows, where the kernel or the decoder wants them
    set_of_row: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # (n,), of `rows`
    row_numbers: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # (n,), of `rows` among all ever learnt
    alive: NDArray[np.bool_] | None = None  # (n,), of `rows`; None for all of them
    kept: Sums | PackedSums | KeptRows | None = None  # what it can go on learning from, where that is not `rows`
    scale: float = 1.0
    index_arrays: Sequence[Mapping[str, NDArray[Any]]] = ()  # of each learner, what the index was saved with

    def __post_init__(self) -> None:
        # A product is rounded by the order of its numbers in memory: it must be that of a model which was loaded.
        object.__setattr__(self, "Psi", np.ascontiguousarray(self.Psi))

    @cached_property
    def searchers(self) -> list[Searcher]:
        """One a learner."""
        return [self._searcher(f, Z) for f, Z in enumerate(self.Z)]

    @cached_property
    def searcher(self) -> Searcher:
        """Of directions."""
        return self._searcher(0, unit(self.Z, self.index.storage)[0])

    def _searcher(self, learner: int, Z: NDArray[Any]) -> Searcher:
        if not self.index_arrays:
            return self.index.build(Z)
        return self.index.restore(Z, self.index_arrays[learner])

    def prepare(self, plain: bool) -> None:
        """Make what is made when it is first asked for, before threads ask for it: for the paper's votes, or others."""
        _ = self.searchers if plain else self.searcher if self.Z.shape[2] else None

    @property
    def built_searchers(self) -> list[Searcher]:
        """Those that were asked for already."""
        there = vars(self)
        return there.get("searchers") or [there["searcher"]] if "searcher" in there or "searchers" in there else []

    def with_searchers_of(self, other: Part) -> Part:
        """The same part with the searchers that another one has of the same embeddings."""
        vars(self).update({name: one for name, one in vars(other).items() if name in ("searchers", "searcher")})
        return self

    @cached_property
    def n_sets(self) -> int:
        """Distinct label sets that rows carry."""
        return int(np.count_nonzero(self.counts))

    @property
    def rows_at_a_time(self) -> int:
        """Queries that a thread compares with all rows at a time."""
        return _ROW_BLOCK if self.rows is None else min(_ROW_BLOCK, max(16, _LIKENESSES // max(len(self.rows), 1)))

    def embed(self, X: Any, n_jobs: int | None, likeness: Floats | None = None) -> Any:
        """ẑ (n, M) of feature rows; `likeness` is their kernel with the rows of the part, if it is known already."""
        if isinstance(self.kernel, Linear):
            return predict_embedding(X, self.Psi, n_jobs) + self.intercept
        return (self.likeness(X, n_jobs) if likeness is None else likeness) @ self.Psi

    def likeness(self, X: Any, n_jobs: int | None) -> Floats:
        """The kernel of feature rows with those of the part, (n, n_rows).

        For a local one ⟨x, x'⟩ − ½‖x'‖², which ranks rows by their distance from x, of whatever length they are.
        """
        assert self.rows is not None
        values = self.kernel.between(X, self.rows, n_jobs)
        if isinstance(self.kernel, Local):
            values -= self.rows.squares / 2
        return values

    # ---------------------------------------------------------------------------------------------- the paper's votes

    def votes(self, embedding: Any, k: int, n_jobs: int | None, left_out: Ints | None = None) -> Any:
        """Equal votes of the k nearest rows in each learner for predicted embeddings (n, F·m), CSR (n, L).

        `left_out` has the set of each query's own training row, if it is one.
        """
        reach = min(k if left_out is None else k + 1, self.n_sets)  # leaving a row out may empty one set
        if not reach:
            return scipy.sparse.csr_array((len(embedding), self.sets.shape[1]))
        ids, weights = [], []
        for nearest, _ in self.nearest_sets(embedding, reach, n_jobs):
            ids.append(nearest)
            weights.append(decoding.vote_weights(nearest, self.counts, k, self.n_learners, left_out))
        return decoding.tally(np.hstack(ids), np.hstack(weights) / self.n_learners, self.sets)

    def nearest_sets(self, embedding: Any, k: int, n_jobs: int | None) -> Iterator[tuple[Ints, NDArray[np.float64]]]:
        """For each learner the k label sets nearest to predicted embeddings (n, F·m), and squared distances."""
        queries = np.split((embedding / self.scale).astype(np.float32, copy=False), self.n_learners, axis=1)
        for searcher, query in zip(self.searchers, queries, strict=True):
            yield searcher.query(query, k, n_jobs)

    # ------------------------------------------------------------------------------------------------- all the others

    def nearest(self, Z: Floats, how: Decode, left_out: Ints | None = None) -> Near:
        """The label sets of nearest direction to embeddings Z, nearest first, and the rows that carry them.

        `left_out` has the set of each query's own training row, if it is one: that row does not count.
        """
        reach = min(how.n_neighbors + (left_out is not None), self.n_sets)  # leaving a row out may empty one set
        if not reach:
            nothing = np.empty((len(Z), 0), np.int64)
            return Near(nothing, nothing.astype(np.float64), nothing)
        squeezed = Z[:, : self.Z.shape[2]] if how.searched is None else Z @ how.searched[: Z.shape[1]]
        step = storage_scale(1.0, self.index.storage)
        ids, distances = self.searcher.query(_unit(squeezed) / np.float32(step), reach, how.n_jobs)
        distances = distances * step**2
        rows = self.counts[ids] if left_out is None else self.counts[ids] - (ids == left_out[:, None])
        return Near(ids, 1 - distances / 2, rows)

    def alike(self, likeness: Floats, k: int, left_out: Ints | None = None) -> tuple[Ints, Floats]:
        """The k training rows whose features are most alike, most alike first, and how alike: both (n, k).

        `likeness` (n, n_rows) is that of the queries with all rows; `left_out` has each query's own row, which is not
        alike at all.
        """
        if left_out is not None:
            likeness[np.arange(len(likeness)), left_out] = -np.inf
        if self.alive is not None:
            likeness[:, ~self.alive] = -np.inf
        ids = most_alike(likeness, min(k, likeness.shape[1]))
        values = np.take_along_axis(likeness, ids, axis=1)
        if 0 < k < likeness.shape[1]:
            ids = _earliest(likeness, ids, values.min(axis=1), self.row_numbers)
            values = np.take_along_axis(likeness, ids, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)

    def first_alike(self, ids: Ints, similarity: Floats, k: int) -> tuple[Ints, Floats]:
        """The first k of rows that `alike` found."""
        if not 0 < k < ids.shape[1]:
            return ids[:, :k], similarity[:, :k]
        start = np.tile(np.arange(k), (len(ids), 1))
        places = _earliest(similarity, start, similarity[:, k - 1], self.row_numbers[ids])
        return np.take_along_axis(ids, places, axis=1), np.take_along_axis(similarity, places, axis=1)

    def near_rows(self, ids: Ints, similarity: Floats) -> Near:
        """The label sets of rows `ids` (n, k)."""
        return Near(self.set_of_row[ids], similarity.astype(np.float64), np.isfinite(similarity).astype(np.int64))

    def solved_nearby(self, ids: Ints, likeness: Floats, squares: Floats, kernels: Sequence[Local]) -> list[Any]:
        """For each of these kernels, kernel ridge on the rows `ids` (n, k) alone: CSR (n, L).

        `likeness` (n, k) is that of queries, of squared lengths `squares` (n,), with these rows.
        """
        assert self.rows is not None
        weights = np.empty((len(kernels), *ids.shape), np.float64)
        for i, near in enumerate(ids):
            among, lengths = self.rows.products_among(near), self.rows.squares[near]
            there = np.isfinite(likeness[i])
            products = np.where(there, likeness[i], 0) + lengths / 2
            for gamma in {local.gamma for local in kernels}:
                kernel, K, k = RBF(gamma), among.copy(), products[None].copy()
                kernel.of_products(K, lengths, lengths)
                kernel.of_products(k, squares[i : i + 1], lengths)
                near_k = np.where(there, k[0], -np.inf)
                for j, local in enumerate(kernels):
                    if local.gamma == gamma:
                        weights[j, i] = weights_of_rows(K.copy(), near_k, float(local.ridge))
        return [decoding.tally(self.set_of_row[ids], some, self.sets) for some in weights]

    def vote(self, near: Near, k: int, temperature: float) -> Any:
        """Votes of the k nearest, rows·exp((similarity − max)/temperature) scaled to sum to 1: CSR (n, L)."""
        weights = decoding.softmax(near.similarity[:, :k], temperature, near.rows[:, :k])
        return decoding.tally(near.sets[:, :k], weights, self.sets)

    def candidates(
        self, X: Any, how: Decode, embedding: Floats | None = None, left_out: Ints | None = None
    ) -> Candidates:
        """The best candidates of feature rows X and all that is known of them.

        For training rows that are asked about, `embedding` has what was predicted without each and `left_out` (n,)
        their numbers in the part.
        """
        alone = replace(how, n_jobs=1)  # a block stays on one thread from its kernel to its candidates
        if how.n_neighbors:
            _ = self.searcher  # made before threads ask for it

        def of_block(block: slice) -> Candidates:
            own = None if left_out is None else left_out[block]
            likeness = self.likeness(X[block], 1) if self.rows is not None else None
            Z = self.embed(X[block], 1, likeness) if embedding is None else embedding[block]
            squares = squared_lengths(X[block]) if isinstance(self.kernel, Local) else np.empty(0, np.float32)
            return self._candidates(Z.astype(np.float32, copy=False), likeness, squares, alone, own)

        # Few rows are cut into parts, too, by their number alone: how they are rounded must not depend on the threads.
        size = min(self.rows_at_a_time, max(_LEAST_BLOCK, -(-X.shape[0] // _PARTS)))
        return Candidates.joined(map_blocks(of_block, blocks(X.shape[0], size), how.n_jobs))

    def _candidates(
        self, Z: Floats, likeness: Floats | None, squares: Floats, how: Decode, own: Ints | None
    ) -> Candidates:
        said: dict[str, Any] = {}
        own_set = None if own is None else self.set_of_row[own]
        if how.n_neighbors:
            said["votes"] = self.vote(self.nearest(Z, how, own_set), self.n_sets, how.temperature)
        local = self.kernel if isinstance(self.kernel, Local) else None
        if likeness is not None and (how.n_similar or local):
            ids, similarity = self.alike(likeness, max(how.n_similar, local.n_rows if local else 0), own)
            if how.n_similar:
                near = self.near_rows(*self.first_alike(ids, similarity, how.n_similar))
                said["similar"] = self.vote(near, how.n_similar, how.similar_temperature)
            if local:
                nearest = self.first_alike(ids, similarity, local.n_rows)
                (said["local"],) = self.solved_nearby(*nearest, squares, [local])
        L = self.sets.shape[1]
        keys = [_places(matrix) for matrix in said.values()]
        values = Z if how.exact else None
        if not how.exact and how.dense:
            values = how.columns.values(Z) / np.float32(self.n_learners)
        if values is not None and (how.exact or not said):
            offered = values
            if len(how.unseen):
                offered = values.copy()
                offered[:, how.unseen[how.unseen < values.shape[1]]] = -np.inf
            best = decoding.largest(offered, min(how.n_candidates, values.shape[1]))
            key = np.arange(len(Z))[:, None] * L + best
            keys.append(np.sort(key[np.isfinite(np.take_along_axis(offered, best, axis=1))]))
        places = np.sort(np.concatenate(keys), kind="stable")  # runs that are sorted already
        places = places[np.append(True, places[1:] != places[:-1])] if len(places) else places
        row, label = np.divmod(places, L)
        if values is not None:
            value = values[row, label]
        else:
            value = decoding.sketch_values(Z, row, label, how.columns, how.n_jobs) / np.float32(self.n_learners)
        signals = {"value": value}
        for (name, matrix), key in zip(said.items(), keys, strict=False):
            signals[name] = np.zeros(len(places), np.float32)
            signals[name][np.searchsorted(places, key)] = matrix.data
        ends = np.searchsorted(row, np.arange(len(Z) + 1))
        worth = np.sum(list(signals.values()), axis=0)
        kept = decoding.best_of_rows(worth, ends, how.n_candidates)  # (n, K) places, −1 for none
        labels = np.where(kept >= 0, label[kept], -1)
        table = {name: np.where(kept >= 0, signal[kept], np.float32(0)) for name, signal in signals.items()}
        if how.epsilon is not None:
            table["value"] = decoding.least_squares(Z, labels, how.columns, [how.epsilon], how.n_jobs)[0]
        seen = how.frequency[labels]
        if own_set is not None:
            # A label of a row that is left out was seen once less. Where few labels are seen as often as that, one less
            # would give it away; and there it hardly matters.
            seen = seen - (decoding.carried(self.sets[own_set], labels) & (seen <= _RARE))
        return Candidates(labels, table | _standing(table["value"], labels, seen))


def _earliest(values: Floats, places: Ints, least: Floats, numbers: Ints) -> Ints:
    """The places (n, k) of the largest values (n, N), `least` (n,) the least of these, with the earliest among equals.

    Who is heard must not depend on the order in which rows are stored, nor on how products were rounded: rows that
    share nothing with a query are all as like to it. `numbers`, of the rows, are (N,) or (n, N).
    """
    count = np.count_nonzero(values >= (least - _TIED)[:, None], axis=1)
    for line in np.flatnonzero((count > places.shape[1]) & np.isfinite(least)):
        own, number = values[line], numbers if numbers.ndim == 1 else numbers[line]
        sure = np.flatnonzero(own > least[line] + _TIED)
        tied = np.flatnonzero(np.abs(own - least[line]) <= _TIED)
        tied = tied[np.argsort(number[tied], kind="stable")][: places.shape[1] - len(sure)]
        places[line] = np.concatenate([sure, tied])
    return places


def _standing(value: Floats, labels: Ints, seen: Ints) -> dict[str, Floats]:
    """How often a label was seen, and where its value stands among those of its row."""
    there = labels >= 0
    value = np.where(there, value, -np.inf)
    order = np.argsort(-value, axis=1, kind="stable")
    rank = np.empty(value.shape, np.float32)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(value.shape[1], dtype=np.float32), rank.shape), axis=1)
    ordered = np.take_along_axis(value, order, axis=1)
    of_row = {
        "best": ordered[:, 0],
        "third": ordered[:, min(2, value.shape[1] - 1)],
        "total": np.maximum(ordered, 0).sum(axis=1),
    }
    wide = {name: np.broadcast_to(np.where(np.isfinite(c), c, 0)[:, None], rank.shape) for name, c in of_row.items()}
    return {"frequency": seen.astype(np.float32), "rank": rank, **wide}


def _places(matrix: Any) -> Ints:
    """row·L + column of the entries of a CSR matrix with sorted indices."""
    row = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return np.asarray(row * matrix.shape[1] + matrix.indices)


def storage_scale(largest: float, storage: str) -> float:
    """The unit of embeddings whose entries reach up to `largest`: 8 bits have 127 steps to either side."""
    return (largest or 1.0) / 127 if storage == "int8" else 1.0


def as_stored(Z: Floats, scale: float, storage: str, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Embeddings (F, u, m) in units of `scale`, as `storage` has them."""
    if storage == "float32":
        return Z
    out = np.empty(Z.shape, storage) if out is None else out
    for target, source in zip(out, Z, strict=True):
        for rows in blocks(len(source), _STORED_ROWS):
            values = source[rows] / np.float32(scale)
            # Rows that came after the unit was fixed may reach past its last step.
            target[rows] = np.clip(np.rint(values), -127, 127) if storage == "int8" else values
            release(source[rows], target[rows])
    return out


def unit(Z: NDArray[Any], storage: str) -> NDArray[Any]:
    """The directions of embeddings (1, u, m), as `storage` has them."""
    directions = _unit(Z[0].astype(np.float32, copy=False))[None]
    return as_stored(directions, storage_scale(1.0, storage), storage)


def _unit(Z: Floats) -> Floats:
    """Rows of length 1; those that have it already stay to the bit."""
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where((length > 0) & (np.abs(length - 1) > _ROUNDING), length, 1), np.float32)
