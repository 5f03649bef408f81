"""Exact search: blocked matrix products, a selection that reads each product once, and a float64 verdict.

‖z − q‖² = ‖q‖² − 2(⟨z, q⟩ − ½‖z‖²), so the nearest rows have the largest score ⟨z, q⟩ − ½‖z‖². Scores are made in
float32 panels of queries × rows. Within a panel, rows are dealt into groups of `_GROUP`; the k-th largest group maximum
seen so far bounds the k-th largest score from below, so that only the few groups that reach it are looked into.
Candidates within the rounding error of that bound are kept, and their distances are computed again in float64 from the
differences: the answer, ties included, does not depend on blocks, threads or the BLAS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ripml.neighbors.base import Floats, Index
from ripml.resources import map_blocks, thread_count

__all__ = ["Exact"]

_QUERIES = 256  # a panel of scores is at most _QUERIES × _PANEL float32: 4 MB a thread
_PANEL = 4096
_GROUP = 32


@dataclass(frozen=True)
class Exact(Index):
    """Compare each query with every row."""

    def build(self, Z: Floats) -> ExactSearcher:
        """Remember Z and half its squared row norms."""
        return ExactSearcher(Z, np.einsum("ij,ij->i", Z, Z, dtype=np.float32) / 2)


@dataclass(frozen=True)
class ExactSearcher:
    """Z (n, m) and ½‖z‖² (n,)."""

    Z: Floats
    half_norms: Floats

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k nearest rows for each row of Q, (q, k), and their squared distances.

        >>> ids, distances = Exact().build(np.array([[0.0], [3.0], [1.0]], np.float32)).query(
        ...     np.array([[0.9]], np.float32), 2)
        >>> ids.tolist(), distances.round(2).tolist()
        ([[2, 0]], [[0.01, 0.81]])
        """
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
        best = np.full((len(Q), k), -np.inf, np.float32)  # distinct scores seen; their least bounds the k-th largest
        margin = self._rounding(Q)
        found: list[tuple[NDArray[np.int64], NDArray[np.int64], Floats]] = []
        for start in range(0, n, _PANEL):
            panel = slice(start, min(start + _PANEL, n))
            width = panel.stop - start
            group = _GROUP if width >= _GROUP * k else 1
            scores = np.full((len(Q), -(-width // group) * group), -np.inf, np.float32)
            np.matmul(Q, self.Z[panel].T, out=scores[:, :width])
            scores[:, :width] -= self.half_norms[panel]
            grouped = scores.reshape(len(Q), group, -1)  # group g holds rows g, g + width/group, …: maxima are SIMD
            maxima = grouped.max(axis=1)
            seen = np.concatenate([best, maxima], axis=1)
            best = np.partition(seen, seen.shape[1] - k, axis=1)[:, -k:]
            bound = best.min(axis=1) - margin
            query, column = np.nonzero(maxima >= bound[:, None])
            values = grouped[query, :, column]
            hit, member = np.nonzero(values >= bound[query, None])
            rows = start + member * maxima.shape[1] + column[hit]
            real = rows < panel.stop  # padding has score −inf and passes only while fewer than k rows were seen
            found.append((query[hit][real], rows[real], values[hit, member][real]))
        query, rows, value = (np.concatenate(parts) for parts in zip(*found, strict=True))
        kept = value >= bound[query]
        return self._verdict(Q, query[kept], rows[kept], k)

    def _rounding(self, Q: Floats) -> Floats:
        """Twice a bound on the error of a float32 score: (m + 2) eps (‖q‖ max‖z‖ + ½ max‖z‖²)."""
        longest = np.sqrt(2 * self.half_norms.max())
        scale = np.linalg.norm(Q, axis=1) * longest + longest**2 / 2
        error: Floats = 2 * (self.Z.shape[1] + 2) * np.finfo(np.float32).eps * scale
        return error

    def _verdict(
        self, Q: Floats, query: NDArray[np.int64], rows: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k nearest of the candidates (query, row) of each query by float64 distances, ties by row number."""
        difference = self.Z[rows].astype(np.float64)
        difference -= Q[query]
        distance = np.einsum("ij,ij->i", difference, difference)
        order = np.lexsort((rows, distance, query))
        first = np.searchsorted(query[order], np.arange(len(Q)))
        chosen = order[first[:, None] + np.arange(k)]
        return rows[chosen], distance[chosen]
