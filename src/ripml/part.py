"""The RIPML of one cluster: ẑ for feature rows, the label sets and rows that are near, and what they say of labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml import decoding
from ripml.blending import Candidates
from ripml.decoding import Columns
from ripml.kernel_ridge import weights_of_rows
from ripml.kernels import RBF, Kernel, Linear, Local, Rows, most_alike, squared_lengths
from ripml.neighbors import Index, Searcher
from ripml.products import predict_embedding
from ripml.resources import blocks, map_blocks
from ripml.rooms import release, row_slice

__all__ = [
    "DENSE_LABELS",
    "SEARCHED",
    "Decode",
    "Part",
    "as_stored",
    "parts_from_arrays",
    "parts_to_arrays",
    "storage_scale",
]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_ROW_BLOCK = 256
_STORED_ROWS = 65536
_LIKENESSES = 1 << 24  # of queries and training rows that a thread holds at a time: 64 MB
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
    columns: Columns  # labels ↦ their columns of Phi, (len, M)
    searched: (
        Floats | None
    )  # (L, m) where ẑ is squeezed before the search; None where it is cut to its first dimensions
    frequency: Ints  # (L,) training rows of each label
    n_jobs: int | None


class Near(NamedTuple):
    """Label sets near to queries, their similarity and how many rows each stands for: all (n, K)."""

    sets: Ints
    similarity: NDArray[np.float64]
    rows: Ints


@dataclass(frozen=True)
class Part:
    """The regression of one cluster into the embedding, and the label sets and rows to be found there."""

    Psi: Floats  # (d, M), or (n, M) on the kernel with `rows`
    intercept: Floats  # (M,)
    Z: NDArray[Any]  # (F, u, m), for each learner the embeddings of the label sets to be searched, in units of `scale`
    sets: Any  # CSR (u, L)
    counts: Ints  # (u,) training rows that carry each set
    index: Index
    n_learners: int
    kernel: Kernel = field(default_factory=Linear)
    rows: Rows | None = None  # the training rows, where the kernel or the decoder wants them
    set_of_row: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # (n,), of all training rows
    scale: float = 1.0
    index_arrays: Sequence[Mapping[str, NDArray[Any]]] = ()  # of each learner, what the index was saved with

    @cached_property
    def searchers(self) -> list[Searcher]:
        """One a learner."""
        return [self._searcher(f, Z) for f, Z in enumerate(self.Z)]

    @cached_property
    def searcher(self) -> Searcher:
        """Of directions."""
        unit = _unit(self.Z[0].astype(np.float32, copy=False))[None]
        step = storage_scale(1.0, self.index.storage)
        return self._searcher(0, as_stored(unit, step, self.index.storage)[0])

    def _searcher(self, learner: int, Z: NDArray[Any]) -> Searcher:
        if not self.index_arrays:
            return self.index.build(Z)
        return self.index.restore(Z, self.index_arrays[learner])

    def prepare(self, plain: bool, how: Decode) -> None:
        """Make what is made when it is first asked for, before threads ask for it: for the paper's votes, or others."""
        _ = self.searchers if plain else self.searcher if how.n_neighbors else None

    @property
    def built_searchers(self) -> list[Searcher]:
        """Those that were asked for already."""
        there = vars(self)
        return there.get("searchers") or [there["searcher"]] if "searcher" in there or "searchers" in there else []

    def with_searchers_of(self, other: Part) -> Part:
        """The same part with the searchers that another one has of the same embeddings."""
        vars(self).update({name: one for name, one in vars(other).items() if name in ("searchers", "searcher")})
        return self

    @property
    def n_sets(self) -> int:
        """Distinct label sets."""
        return int(self.Z.shape[1])

    @property
    def rows_at_a_time(self) -> int:
        """Queries that a thread compares with all rows at a time."""
        return _ROW_BLOCK if self.rows is None else min(_ROW_BLOCK, max(16, _LIKENESSES // self.rows.X.shape[0]))

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
        squeezed = Z[:, : self.Z.shape[2]] if how.searched is None else Z @ how.searched
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
        ids = most_alike(likeness, min(k, likeness.shape[1]))
        values = np.take_along_axis(likeness, ids, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)

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

        return Candidates.joined(map_blocks(of_block, blocks(X.shape[0], self.rows_at_a_time), how.n_jobs))

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
                near = self.near_rows(ids[:, : how.n_similar], similarity[:, : how.n_similar])
                said["similar"] = self.vote(near, how.n_similar, how.similar_temperature)
            if local:
                few = slice(local.n_rows)
                (said["local"],) = self.solved_nearby(ids[:, few], similarity[:, few], squares, [local])
        L = self.sets.shape[1]
        keys = [_places(matrix) for matrix in said.values()]
        values = Z if how.exact else None
        if not how.exact and L <= DENSE_LABELS:
            values = Z @ how.columns(slice(None)).T / np.float32(self.n_learners)
        if values is not None and (how.exact or not said):
            best = decoding.largest(values, min(how.n_candidates, L))
            keys.append(np.sort((np.arange(len(Z))[:, None] * L + best).ravel()))
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
            target[rows] = np.rint(values) if storage == "int8" else values
            release(source[rows], target[rows])
    return out


def _end_to_end(pieces: Sequence[NDArray[Any]], axis: int = 0) -> NDArray[Any]:
    """The pieces joined; where they are those of one array, that array itself."""
    shape = list(pieces[0].shape)
    shape[axis] = sum(piece.shape[axis] for piece in pieces)
    whole: Any = pieces[0]
    while isinstance(whole, np.ndarray) and list(whole.shape) != shape:
        whole = whole.base
    if isinstance(whole, np.ndarray) and all(np.may_share_memory(whole, piece) for piece in pieces):
        return whole
    return np.concatenate(pieces, axis=axis)


def _unit(Z: Floats) -> Floats:
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(length > 0, length, 1), np.float32)


# ---------------------------------------------------------------------------------------------------- save and load


def parts_to_arrays(parts: Sequence[Part]) -> dict[str, NDArray[Any]]:
    """The parts of a model end to end, with `part_ends` marking where the label sets of each part end.

    Psi is (C, d, M) for a linear kernel, else the coefficients of all rows, (n, M); Z is (F, u, m); rows are sparse or
    dense.
    """
    linear = isinstance(parts[0].kernel, Linear)
    arrays = {
        "Psi": (np.stack if linear else np.concatenate)([part.Psi for part in parts]),
        "intercept": np.stack([part.intercept for part in parts]),
        "Z": _end_to_end([part.Z for part in parts], axis=1),
        **({"scale": np.array([parts[0].scale])} if parts[0].scale != 1 else {}),
        "counts": _end_to_end([part.counts for part in parts]),
        "part_ends": np.cumsum([part.n_sets for part in parts], dtype=np.int64),
        "sets_indices": _end_to_end([part.sets.indices for part in parts]),
        "sets_indptr": np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.sets.indptr) for part in parts]))]),
    }
    for c, part in enumerate(parts):
        for f, searcher in enumerate(part.built_searchers):
            arrays |= {f"index_{c}_{f}_{name}": array for name, array in searcher.to_arrays().items()}
    if parts[0].rows is None:
        return arrays
    arrays["set_of_row"] = np.concatenate([part.set_of_row for part in parts])
    arrays["row_ends"] = np.cumsum([len(part.set_of_row) for part in parts], dtype=np.int64)
    rows = [part.rows.X for part in parts if part.rows is not None]
    if not scipy.sparse.issparse(rows[0]):
        return arrays | {"rows": np.concatenate(rows)}
    sparse = scipy.sparse.vstack(rows, format="csr")
    return arrays | {"rows_data": sparse.data, "rows_indices": sparse.indices, "rows_indptr": sparse.indptr}


def parts_from_arrays(
    arrays: Mapping[str, NDArray[Any]], n_labels: int, n_features: int, index: Index, n_learners: int, kernel: Kernel
) -> list[Part]:
    """The inverse of `parts_to_arrays`; large arrays are not copied. Arrays that contradict each other: ValueError."""
    Psi, intercept, Z = arrays["Psi"], arrays["intercept"], arrays["Z"]
    scale = arrays.get("scale", np.ones(1))
    if Z.ndim == 2:  # of older models: the learners side by side
        Z = Z.reshape(len(Z), n_learners, -1).transpose(1, 0, 2)
    linear = isinstance(kernel, Linear)
    counts, ends = _whole_numbers(arrays, "counts"), _whole_numbers(arrays, "part_ends")
    consistent = (
        Psi.dtype.kind == intercept.dtype.kind == "f"
        and Z.dtype.name == index.storage
        and scale.shape == (1,)
        and scale.dtype == np.float64
        and 0 < scale[0] < np.inf
        and Psi.ndim == (3 if linear else 2)
        and ends.ndim == 1
        and len(ends) > 0
        and (not linear or ends.shape == (len(Psi),))
        and (np.diff(ends, prepend=0) > 0).all()
        and Z.ndim == 3
        and len(Z) in (1, n_learners)
        and Z.shape[1] == ends[-1]
        and intercept.shape == (len(ends), Psi.shape[-1])
        and counts.shape == (Z.shape[1],)
        and (counts > 0).all()
    )
    if not consistent:
        raise ValueError("shapes or ranges of the arrays disagree")
    sets = _csr(arrays, "sets", np.ones(len(arrays["sets_indices"]), np.float32), (Z.shape[1], n_labels))
    bounds = [slice(start, end) for start, end in pairwise([0, *ends.tolist()])]
    parts = [
        Part(
            Psi=Psi[c] if linear else Psi,
            intercept=intercept[c],
            Z=Z[:, b],
            sets=row_slice(sets, b),
            counts=counts[b],
            index=index,
            n_learners=n_learners,
            kernel=kernel,
            scale=float(scale[0]),
            index_arrays=_index_arrays(arrays, c, len(Z)),
        )
        for c, b in enumerate(bounds)
    ]
    if "set_of_row" not in arrays:
        if not linear:
            raise ValueError("a kernel needs its rows")
        return parts
    set_of_row, row_ends = _whole_numbers(arrays, "set_of_row"), _whole_numbers(arrays, "row_ends")
    n = len(set_of_row)
    if not (row_ends.shape == ends.shape and (np.diff(row_ends, prepend=0) > 0).all() and row_ends[-1] == n):
        raise ValueError("the ends of the rows disagree")
    rows = arrays["rows"] if "rows" in arrays else _csr(arrays, "rows", arrays["rows_data"], (n, n_features))
    if rows.shape != (n, n_features) or rows.dtype != np.float32 or (not linear and len(Psi) != n):
        raise ValueError("the rows do not fit")
    with_rows = []
    for part, start, end in zip(parts, [0, *row_ends[:-1]], row_ends, strict=True):
        of = set_of_row[start:end]
        if of.min() < 0 or of.max() >= part.n_sets:
            raise ValueError("a row has a label set that is not there")
        coefficients = part.Psi if linear else Psi[start:end]
        with_rows.append(replace(part, Psi=coefficients, rows=Rows(rows[start:end]), set_of_row=of))
    return with_rows


def _index_arrays(arrays: Mapping[str, NDArray[Any]], cluster: int, n_learners: int) -> list[dict[str, NDArray[Any]]]:
    of_learners = []
    for f in range(n_learners):
        start = f"index_{cluster}_{f}_"
        of_learners.append({name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)})
    if any("numbers" in of_learner for of_learner in of_learners):
        raise ValueError("the rows of a model's index are numbered from 0")
    return of_learners if any(of_learners) else []


def _whole_numbers(arrays: Mapping[str, NDArray[Any]], name: str) -> Ints:
    return arrays[name].astype(np.int64, casting="safe")


def _csr(arrays: Mapping[str, NDArray[Any]], name: str, data: NDArray[Any], shape: tuple[int, int]) -> Any:
    """A CSR matrix from `{name}_indices` and `{name}_indptr`, checked: a wrong index would read past an array."""
    indices, indptr = _whole_numbers(arrays, f"{name}_indices"), _whole_numbers(arrays, f"{name}_indptr")
    consistent = (
        indptr.shape == (shape[0] + 1,)
        and indptr[0] == 0
        and (np.diff(indptr) >= 0).all()
        and indices.shape == data.shape == (int(indptr[-1]),)
        and ((indices >= 0) & (indices < shape[1])).all()
    )
    if not consistent:
        raise ValueError("shapes or ranges of the arrays disagree")
    return scipy.sparse.csr_array((data, indices, indptr), shape=shape)
