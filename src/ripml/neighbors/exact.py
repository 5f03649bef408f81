"""Exact search: blocked matrix products, a selection that reads each product once, and a float64 verdict.

‖z − q‖² = ‖q‖² − 2(⟨z, q⟩ − ½‖z‖²), so the nearest rows have the largest score ⟨z, q⟩ − ½‖z‖². Scores are made in
float32 panels of queries × rows. Within a panel, rows are dealt into groups of `_GROUP`; the k-th largest group maximum
seen so far bounds the k-th largest score from below, so that only the few groups that reach it are looked into.
Candidates within the rounding error of that bound are kept, and their distances are computed again in float64 from the
differences: the answer, ties included, does not depend on blocks, threads or the BLAS. Where float32 would overflow or
underflow, scores are made in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.errors import DataError
from ripml.neighbors.base import Floats, Index
from ripml.resources import blocks, map_blocks, thread_count

__all__ = ["Exact"]

_QUERIES = 256  # a panel of scores is at most _QUERIES × _PANEL float32: 4 MB a thread
_PANEL = 4096
_GROUP = 32
_CANDIDATES = 1 << 20  # pairs (query, row) kept before they are cut down to the k nearest: many rows may tie
_VERDICT_CELLS = 1 << 22  # differences held at a time in float64: 32 MB


@dataclass(frozen=True)
class Exact(Index):
    """Compare each query with every row."""

    def build(self, Z: Floats) -> ExactSearcher:
        """Remember Z and half its squared row norms."""
        half_norms = np.einsum("ij,ij->i", Z, Z, dtype=np.float64) / 2
        if not np.isfinite(half_norms).all():
            raise DataError("the embeddings to be searched must be finite; got NaN or infinity.")
        return ExactSearcher(Z, half_norms)


@dataclass(frozen=True)
class ExactSearcher:
    """Z (n, m) and ½‖z‖² (n,)."""

    Z: Floats
    half_norms: NDArray[np.float64]

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k nearest rows for each row of Q, (q, k), and their squared distances.

        >>> ids, distances = Exact().build(np.array([[0.0], [3.0], [1.0]], np.float32)).query(
        ...     np.array([[0.9]], np.float32), 2)
        >>> ids.tolist(), distances.round(2).tolist()
        ([[2, 0]], [[0.01, 0.81]])
        """
        if not np.isfinite(Q).all():
            raise DataError("the embeddings to search for must be finite; got NaN or infinity.")
        ids = np.empty((len(Q), k), np.int64)
        distances = np.empty((len(Q), k))
        size = min(_QUERIES, max(1, -(-len(Q) // thread_count(n_jobs))))

        def search(start: int) -> None:
            rows = slice(start, min(start + size, len(Q)))
            ids[rows], distances[rows] = self._search(Q[rows], k)

        map_blocks(search, range(0, len(Q), size), n_jobs)
        return ids, distances

    def _search(self, Q: Floats, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        n = len(self.Z)
        longest = np.sqrt(2 * self.half_norms.max())
        length = np.linalg.norm(Q.astype(np.float64), axis=1)
        scale = length * longest + longest**2 / 2
        dtype = np.float32 if scale.min() > 1e-30 and length.max() + longest < 1e15 else np.float64
        # Twice a bound on the error of a score, (m + 2) eps (‖q‖ max‖z‖ + ½ max‖z‖²), and on that of a distance in the
        # verdict, so that all rows whose distances it cannot tell apart are candidates.
        error = np.finfo(dtype).eps * scale + np.finfo(np.float64).eps * (length + longest) ** 2
        margin = (2 * (self.Z.shape[1] + 2) * error).astype(dtype)
        wide_Q, half_norms = Q.astype(dtype, copy=False), self.half_norms.astype(dtype)
        best = np.full((len(Q), k), -np.inf, dtype)  # distinct scores seen; their least bounds the k-th largest
        found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.floating[Any]]]] = []
        for panel in blocks(n, _PANEL):
            width = panel.stop - panel.start
            group = _GROUP if width >= _GROUP * k else 1
            scores = np.full((len(Q), -(-width // group) * group), -np.inf, dtype)
            np.matmul(wide_Q, self.Z[panel].T, out=scores[:, :width])
            scores[:, :width] -= half_norms[panel]
            grouped = scores.reshape(len(Q), group, -1)  # group g holds rows g, g + width/group, …: maxima are SIMD
            maxima = grouped.max(axis=1)
            seen = np.concatenate([best, maxima], axis=1)
            best = np.partition(seen, seen.shape[1] - k, axis=1)[:, -k:]
            bound = best.min(axis=1) - margin
            query, column = np.nonzero(maxima >= bound[:, None])
            values = grouped[query, :, column]
            hit, member = np.nonzero(values >= bound[query, None])
            rows = panel.start + member * maxima.shape[1] + column[hit]
            real = rows < panel.stop  # padding has score −inf and passes only while fewer than k rows were seen
            found.append((query[hit][real], rows[real], values[hit, member][real]))
            if sum(len(value) for _, _, value in found) > _CANDIDATES or panel.stop == n:
                query, rows, value = (np.concatenate(parts) for parts in zip(*found, strict=True))
                kept = value >= bound[query]
                query, rows, distance = self._nearest(Q, query[kept], rows[kept], k)
                found = [(query, rows, np.full(len(rows), np.inf, dtype))]
        return rows.reshape(-1, k), distance.reshape(-1, k)

    def _nearest(
        self, Q: Floats, query: NDArray[np.int64], rows: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Of the candidates (query, row), at most k nearest for each query by float64 distances, ties by row number."""
        distance = np.empty(len(rows))
        for part in blocks(len(rows), max(1, _VERDICT_CELLS // self.Z.shape[1])):
            difference = self.Z[rows[part]].astype(np.float64)
            difference -= Q[query[part]]
            distance[part] = np.einsum("ij,ij->i", difference, difference)
        order = np.lexsort((rows, distance, query))
        first = np.searchsorted(query[order], np.arange(len(Q)))
        rank = np.arange(len(order)) - first[query[order]]
        chosen = order[rank < k]
        return query[chosen], rows[chosen], distance[chosen]
