"""Locality-sensitive hashing by p-stable projections (Datar, Immorlica, Indyk and Mirrokni 2004), in NumPy.

    h(z) = ⌊(⟨a, z⟩ + b) / w⌋,  a normal, b uniform on [0, w)

Near rows have equal h more often than far ones. The key of a row in a hash table is K values of h, and there are L
tables. With multi-probe (Lv, Josephson, Wang, Charikar and Li 2007) `n_probes` buckets of each table are read: that of
the query, and those where some h differ by one, in the order of Σ x², x the distance from ⟨a, q⟩ + b to the edge that
is crossed. The order is that of the expected Σ x² over the ranks of the 2K edges, made once (their section 4.5).

w is twice the spread σ of ⟨a, z⟩ (σ² is the sum of the variances of the columns), so that two random rows agree in h
with probability 0.49. "auto" K makes buckets of about 64 rows: K = log(n/64) / log(1/0.49).

Hashing works where near distances are much smaller than typical ones, which those of label embeddings are not: among
100,000 generated rows of length 1, reading 7 % of them found 0.28 of the neighbours, in more time than exact search
takes in a batch (docs/dependencies.md).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec
from ripml.base.errors import check_count
from ripml.base.parallel import blocks, map_blocks
from ripml.neighbors.approximate import ApproximateIndex, ApproximateSearcher, unit_scale
from ripml.neighbors.base import Arrays, Floats, Ints
from ripml.neighbors.exact import ExactSearcher

__all__ = ["LSH"]

_WIDTH = 2.0  # of a bucket, in spreads of the projections
_AGREE = 0.49  # probability that two random rows agree in one hash: E max(0, 1 − |Δ|/w), Δ ~ N(0, 2σ²)
_BUCKET = 64  # rows
_BLOCK = 16_384
_MOST_HASHES = 64


@dataclass(frozen=True)
class LSH(ApproximateIndex):
    """Read the `n_probes` buckets of each of `n_tables` hash tables that a query is nearest to.

    `n_hashes` "auto" makes buckets of about 64 rows. The hash functions depend on `seed` alone.

    >>> LSH(n_tables=8)
    LSH(storage='float32', n_tables=8, n_hashes='auto', n_probes=64, seed=0)
    """

    n_tables: int = 16
    n_hashes: int | str = "auto"
    n_probes: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_tables", self.n_tables, most=1024)
        check_count("n_probes", self.n_probes, most=4096)
        check_count("seed", self.seed, least=0)
        if self.n_hashes != "auto":
            check_count("n_hashes", self.n_hashes, "'auto' or ", most=_MOST_HASHES)

    def _searcher(self, exact: ExactSearcher, arrays: Arrays | None) -> LSHSearcher:
        return LSHSearcher(exact, self, arrays)


class LSHSearcher(ApproximateSearcher):
    """For each table the sorted keys of rows and their places."""

    options: LSH

    def _specs(self) -> dict[str, ArraySpec]:
        # Scale, width and number of the hashes; with the seed they are the whole rule, so rows are hashed again.
        return {"lsh": ArraySpec("float64", (3,), above=0, finite=True)}

    def _build(self, arrays: Arrays | None) -> None:
        Z, options = self.exact.Z, self.options
        if arrays is None:
            scale = unit_scale(self.exact.half_norms)
            some = Z[:: max(1, len(Z) // _BLOCK)].astype(np.float64) * scale
            width = _WIDTH * float(np.sqrt(some.var(axis=0).sum())) or 1.0
            K = options.n_hashes
            if K == "auto":
                K = max(1, round(np.log(max(2.0, len(Z) / _BUCKET)) / np.log(1 / _AGREE)))
            self.rule = np.array([scale, width, float(K)])
        else:
            self.rule = arrays["lsh"]
            if self.rule[2] not in range(1, _MOST_HASHES + 1):
                raise ValueError(f"the array 'lsh' has {self.rule[2]} hashes, but 1 to {_MOST_HASHES} are expected")
        scale, width, K = self.rule[0], self.rule[1], int(self.rule[2])
        rng = np.random.default_rng(options.seed)
        shape = (options.n_tables, K)
        self.directions = rng.standard_normal((*shape, Z.shape[1])) * (scale / width)
        self.shifts = rng.random(shape)
        # A key is Σ r h modulo 2⁶⁴ with r odd: the key of a neighbouring bucket is a sum, and few keys meet by chance.
        self.factors = rng.integers(0, 2**63, shape, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self.probes = _probes(K, options.n_probes)
        self._extend()

    def _extend(self) -> None:
        flat = self.directions.reshape(-1, self.directions.shape[2]).T

        def block_keys(part: slice) -> NDArray[np.uint64]:
            at = (self.exact.Z[part].astype(np.float64) @ flat).reshape(-1, *self.shifts.shape)
            return self._keys(at.transpose(1, 0, 2))[0]

        keys = np.concatenate(map_blocks(block_keys, blocks(self.size, _BLOCK)), axis=1)
        self.places = np.argsort(keys, axis=1, kind="stable")
        self.keys = np.take_along_axis(keys, self.places, axis=1)

    def _keys(self, products: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
        """The keys (L, n) of rows with these ⟨a, z⟩/w, and where in their buckets they lie, from 0 to 1: (L, n, K)."""
        at = np.clip(products + self.shifts[:, None], -(2.0**40), 2.0**40)
        whole = np.floor(at)
        keys = (whole.astype(np.int64).astype(np.uint64) * self.factors[:, None]).sum(axis=2, dtype=np.uint64)
        return keys, at - whole

    def _candidates(self, Q: Floats, k: int) -> tuple[Ints, Ints]:
        # Sums, as a product by BLAS may round a query differently alone and in a batch.
        keys, inside = self._keys(np.stack([(self.directions * q).sum(axis=2) for q in Q.astype(np.float64)], axis=1))
        edges = np.concatenate([inside, 1 - inside], axis=2)  # down to the left edge, up to the right one
        order = np.argsort(edges, axis=2, kind="stable")
        step = np.concatenate([-self.factors.view(np.int64), self.factors.view(np.int64)], axis=1).view(np.uint64)
        queries, places = [], []
        for table in range(len(keys)):
            steps = np.append(step[table], np.uint64(0))
            ranked = np.concatenate([order[table], np.full((len(Q), 1), len(steps) - 1)], axis=1)
            probed = keys[table][:, None] + steps[ranked[:, self.probes]].sum(axis=2, dtype=np.uint64)
            first = np.searchsorted(self.keys[table], probed.ravel(), side="left")
            counts = np.searchsorted(self.keys[table], probed.ravel(), side="right") - first
            run = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            places.append(self.places[table][np.repeat(first, counts) + run])
            queries.append(np.repeat(np.arange(len(Q)).repeat(len(self.probes)), counts))
        return np.concatenate(queries), np.concatenate(places)

    def _structure(self) -> dict[str, NDArray[Any]]:
        return {"lsh": self.rule}


def _probes(K: int, n: int) -> Ints:
    """The first n sets of ranks of edges to cross, (n, K) filled up with 2K, in the order of expected Σ x².

    Ranks j = 0 … 2K − 1 go from the nearest edge to the farthest; 2K − 1 − j is the other edge of the same hash, and
    no set has both. The next sets after one are made by moving its last rank on, or by adding the rank after it.
    """
    j = np.arange(1, K + 1)
    near = j * (j + 1) / (4 * (K + 1) * (K + 2))
    i = K + 1 - j
    far = 1 - i / (K + 1) + i * (i + 1) / (4 * (K + 1) * (K + 2))
    cost = np.concatenate([near, far])
    found: list[tuple[int, ...]] = [()]
    heap: list[tuple[float, tuple[int, ...]]] = [(float(cost[0]), (0,))]
    while heap and len(found) < n:
        total, ranks = heapq.heappop(heap)
        last = ranks[-1]
        if not any(2 * K - 1 - rank in ranks for rank in ranks):
            found.append(ranks)
        if last + 1 < 2 * K:
            heapq.heappush(heap, (total - float(cost[last]) + float(cost[last + 1]), (*ranks[:-1], last + 1)))
            heapq.heappush(heap, (total + float(cost[last + 1]), (*ranks, last + 1)))
    probes = np.full((len(found), K), 2 * K)
    for row, ranks in enumerate(found):
        probes[row, : len(ranks)] = ranks
    return probes
