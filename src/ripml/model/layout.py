"""Rows in two dimensions: near rows near each other, on a map that people can look at.

1. Rows X (n, d) are reduced to E (n, r), their coordinates along the first singular vectors of a sample, of length 1.
2. Each row has k nearest rows; the weight of a neighbour falls with its distance, from 1 for the nearest, and the graph
   is made symmetric and its rows sum to 1: W.
3. Positions p start at the two main directions of E. Each row is drawn to its neighbours and pushed off m rows drawn at
   random, again in each step:

    Δp_i = 2·Σ_j W_ij·(p_j − p_i)/(1 + d²) + (κ/m)·Σ_s (p_i − p_s)/((ε + d²)·(1 + d²)),    d the distance of the two.

These are the forces of UMAP (McInnes, Healy and Melville 2018) with the heavy-tailed similarity 1/(1 + d²) of t-SNE
(van der Maaten and Hinton 2008), for all rows at once: with many rows that push, a step is smooth, so that a few
hundred with momentum are enough, and as no row waits for another, the result does not depend on the number of threads.
The rows that push are a function of (seed, step, row), so that the same rows give the same map, with Numba and without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.compiled import loops
from ripml.base.parallel import blocks, map_blocks, one_blas_thread
from ripml.model.features import unit_rows
from ripml.neighbors import Auto

__all__ = ["Layout", "Reduction", "arrange", "neighbour_graph"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

SIDE = 65_535  # the map is a square of this many steps a side

_DIMENSIONS = 64  # r
_SAMPLE = 20_000  # rows that the singular vectors are computed of
_NEIGHBOURS = 15  # k
_STEPS = 400
_PUSHING = 50  # m
_REPULSION = 50.0  # κ
_NEAR = 0.05  # ε
_RATE, _MOMENTUM = 0.5, 0.7
_START = 10.0  # standard deviation of the first positions
_BLOCK = 4096
_EDGE = 0.002  # share of rows that may lie outside of the square, and are moved to its sides
_PLACED = 3  # neighbours among which a new row is placed

# Constants of splitmix64 (Steele, Lea and Flood 2014).
_GOLDEN, _MIX, _MIX_2 = (np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class Reduction:
    """The first singular vectors of rows, by which rows become few coordinates."""

    basis: NDArray[np.float16]  # (d, r)

    @classmethod
    def fit(cls, X: Any, seed: int = 0) -> Reduction:
        """Of the rows of X, dense or CSR, or of a sample of them."""
        from sklearn.utils.extmath import randomized_svd

        n, d = X.shape
        rng = np.random.default_rng(seed)
        sample = X if n <= _SAMPLE else X[np.sort(rng.choice(n, _SAMPLE, replace=False))]
        r = min(_DIMENSIONS, n, d)
        if not r or not (X.count_nonzero() if scipy.sparse.issparse(X) else np.count_nonzero(X)):
            return cls(np.zeros((d, 1), np.float16))
        with one_blas_thread():  # so that sums are in the same order on any machine
            _, _, basis = randomized_svd(sample, r, n_iter=3, random_state=seed)
        return cls(np.ascontiguousarray(basis.T, dtype=np.float16))

    def __call__(self, X: Any, n_jobs: int | None = None) -> Singles:
        """E (n, r) of rows: their coordinates, of length 1; rows of zeros stay."""
        basis = self.basis.astype(np.float32)
        parts = map_blocks(lambda rows: np.asarray(X[rows] @ basis, np.float32), blocks(X.shape[0], _BLOCK), n_jobs)
        E = np.concatenate([np.zeros((0, basis.shape[1]), np.float32), *parts])
        return np.ascontiguousarray(unit_rows(E, n_jobs), dtype=np.float32)


@dataclass(frozen=True)
class Layout:
    """Rows on a square map, and what places further rows on it."""

    reduction: Reduction
    embedded: NDArray[np.float16]  # (n, r)
    near: NDArray[np.int32]  # (n, k), the most similar rows, the most similar first
    positions: NDArray[np.uint16]  # (n, 2), in steps of a side

    @classmethod
    def of(
        cls, X: Any, seed: int = 0, n_jobs: int | None = None, progress: Callable[[float], None] = lambda share: None
    ) -> Layout:
        """Lay out the rows of X (n, d); `progress` is told the share of the work that is done.

        >>> X = np.array([[1, 0.1], [1, 0], [0.9, 0.1], [0, 1], [0.1, 1], [0.1, 0.9]])
        >>> p = Layout.of(X).positions.astype(float)
        >>> bool(np.ptp(p[:3], 0).max() < abs(p[:3].mean(0) - p[3:].mean(0)).max())
        True
        """
        n = X.shape[0]
        reduction = Reduction.fit(X, seed)
        progress(0.2)
        E = reduction(X, n_jobs)
        progress(0.3)
        near, squares = _nearest(E, E, min(_NEIGHBOURS, -(-(n - 1) // 3)) if n else 0, n_jobs, apart=True)
        progress(0.6)
        positions = arrange(neighbour_graph(near, squares), _main_directions(E), seed, n_jobs,
                            lambda share: progress(0.6 + 0.4 * share))  # fmt: skip
        return cls(reduction, E.astype(np.float16), near.astype(np.int32), _on_square(positions))

    def place(self, X: Any, n_jobs: int | None = None) -> tuple[NDArray[np.uint16], NDArray[np.int32]]:
        """Positions of further rows among the most similar of these, whose numbers come second; nothing moves."""
        E, k = self.reduction(X, n_jobs), min(_NEIGHBOURS, len(self.positions))
        if not k:
            return np.full((len(E), 2), SIDE // 2, np.uint16), np.zeros((len(E), 0), np.int32)
        near, squares = _nearest(self.embedded.astype(np.float32), E, k, n_jobs)
        few = near[:, :_PLACED]
        weights = 1 / (0.01 + squares[:, :_PLACED])
        placed = (self.positions[few] * (weights / weights.sum(1, keepdims=True))[:, :, None]).sum(1)
        return placed.round().astype(np.uint16), near.astype(np.int32)

    def kept(self, rows: Ints) -> Layout:
        """With these rows alone; neighbours that are gone are −1."""
        place = np.full(len(self.positions) + 1, -1, np.int32)
        place[rows] = np.arange(len(rows))
        near = place[self.near[rows]]
        return Layout(self.reduction, self.embedded[rows], near, self.positions[rows])


def _nearest(E: Singles, queries: Singles, k: int, n_jobs: int | None, apart: bool = False) -> tuple[Ints, Floats]:
    """The k rows of E nearest to each query, and their squared distances; `apart`: the queries are E, and a row is not
    its own neighbour."""
    if not k or not len(queries):
        return np.zeros((len(queries), 0), np.int64), np.zeros((len(queries), 0))
    ids, squares = Auto().build(E, n_jobs).query(queries, k + apart, n_jobs)
    if not apart:
        return ids, squares
    others = ids != np.arange(len(E))[:, None]
    others[others.all(1), -1] = False  # more equal rows than neighbours
    return ids[others].reshape(-1, k), squares[others].reshape(-1, k)


def neighbour_graph(near: Ints, squares: Floats) -> Any:
    """W (n, n), CSR: the weights of neighbours (n, k), symmetric before each row is divided by its sum.

    >>> neighbour_graph(np.array([[1], [0]]), np.ones((2, 1))).toarray().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    n, k = near.shape
    distances = np.sqrt(np.maximum(squares, 0))
    beyond = distances - distances[:, :1]
    weights = np.exp(-beyond / np.maximum(beyond.mean(1, keepdims=True), 1e-9)) if k else beyond
    one_way = scipy.sparse.csr_array((weights.ravel(), near.ravel(), np.arange(n + 1) * k), shape=(n, n))
    W = scipy.sparse.csr_array(one_way + one_way.T)
    W.sort_indices()
    W.data /= np.repeat(W.sum(1), np.diff(W.indptr))
    return W


def _main_directions(E: Singles) -> Floats:
    """The coordinates of rows along their two main directions, (n, 2), of a common scale."""
    centred = E.astype(np.float64) - (E.mean(0) if len(E) else 0)
    with one_blas_thread():
        _, vectors = np.linalg.eigh(centred.T @ centred)
        vectors = vectors[:, :-3:-1]
        vectors *= np.sign(vectors[np.abs(vectors).argmax(0), np.arange(vectors.shape[1])] + 1e-300)
        found = centred @ vectors
    out = np.zeros((len(E), 2))
    out[:, : found.shape[1]] = found
    scaled: Floats = out * (_START / max(float(out.std()), 1e-9)) if len(E) > 1 else out
    return scaled


def arrange(
    W: Any,
    start: Floats,
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Floats:
    """Positions (n, 2) after all steps from those at the start."""
    n = len(start)
    compiled = loops()
    step = _step if compiled is None else compiled.layout_step
    indptr, indices = W.indptr.astype(np.int64), W.indices.astype(np.int64)
    now, then, speed = start.copy(), start.copy(), np.zeros((n, 2))
    numbers = np.array([seed % 2**32], np.uint64)
    for number in range(_STEPS if n > 1 else 0):
        rate = _RATE * (1 - number / _STEPS)
        settings = np.array([2.0, _REPULSION / _PUSHING, _NEAR, rate, _MOMENTUM])

        def move(rows: slice, now: Floats = now, then: Floats = then, number: int = number, s: Any = settings) -> None:
            step(indptr, indices, W.data, now, speed, numbers[0], number, _PUSHING, s, rows.start, rows.stop, then)

        map_blocks(move, blocks(n, -(-n // 8)), n_jobs)
        now, then = then, now
        progress((number + 1) / _STEPS)
    return np.asarray(now)


def _step(
    indptr: Ints, indices: Ints, weights: Floats, now: Floats, speed: Floats, seed: Any, number: int, m: int,
    settings: Floats, start: int, stop: int, then: Floats,
) -> None:  # fmt: skip
    """`ripml.base.loops.layout_step` in NumPy: sums are in the same order."""
    pull, push, near, rate, momentum = settings.tolist()
    rows = np.arange(start, stop)
    entries = slice(indptr[start], indptr[stop])
    of = np.repeat(rows, np.diff(indptr[start : stop + 1]))
    by = now[indices[entries]] - now[of]
    c = weights[entries] / (1.0 + (by[:, 0] * by[:, 0] + by[:, 1] * by[:, 1]))
    drawn = np.stack([np.bincount(of - start, c * by[:, i], stop - start) for i in (0, 1)], axis=1)
    pushed = np.zeros((stop - start, 2))
    with np.errstate(over="ignore"):
        first = rows.astype(np.uint64) * _GOLDEN + seed * _MIX_2
        for s in range(m):
            word = first + np.uint64(number * m + s + 1) * _MIX
            word = (word ^ (word >> np.uint64(30))) * _MIX
            word = (word ^ (word >> np.uint64(27))) * _MIX_2
            other = ((word ^ (word >> np.uint64(31))) % np.uint64(len(now))).astype(np.int64)
            by = now[rows] - now[other]
            d2 = by[:, 0] * by[:, 0] + by[:, 1] * by[:, 1]
            pushed += (1.0 / ((near + d2) * (1.0 + d2)))[:, None] * by
    speed[rows] = momentum * speed[rows] + rate * (pull * drawn + push * pushed)
    then[rows] = now[rows] + speed[rows]


def _on_square(positions: Floats) -> NDArray[np.uint16]:
    """Positions on the square, in its middle and with the same scale both ways."""
    if len(positions) < 2:
        return np.full(positions.shape, SIDE // 2, np.uint16)
    share = _EDGE if len(positions) > 2 / _EDGE else 0.0
    low, high = np.quantile(positions, share, axis=0), np.quantile(positions, 1 - share, axis=0)
    width = max(float((high - low).max()), 1e-9) * 1.02
    found = ((positions - (low + high) / 2) / width + 0.5) * SIDE
    return np.asarray(np.clip(found.round(), 0, SIDE), np.uint16)
