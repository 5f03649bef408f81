"""A scan of two bits per dimension: it proposes candidates, float64 distances rank them.

The nearest rows have the largest score ⟨z, q⟩ − ½‖z‖². `ripml.base.products.BitCodes` estimates the product of a query
with all rows from the signs of turned entries, an eighth of the bytes that exact search reads. The rows with the
largest estimates (2,000 for k = 50) are estimated again by two bits per dimension, and the distances of the best of
these (325) are computed.

The code of a row depends on that row alone, and whether search is exact on the number of rows: what is found does not
depend on how the rows came here. Search is exact up to `EXACT_VALUES` numbers that a query has to read, n·m, without
Numba, and in float16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripml.base.compiled import loops
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import BitCodes
from ripml.neighbors.base import Floats, Index, Ints, Neighbours, Searcher, Stored
from ripml.neighbors.exact import Exact, ExactSearcher

__all__ = ["EXACT_VALUES", "BitSearcher", "Bits"]

EXACT_VALUES = 30_000_000  # 117,000 rows of 256 dimensions, where the scan takes half the time
_QUERIES = 64  # that a thread answers at a time
_MORE = 3  # times as many candidates as for rows of features: the distances of label sets differ less
_FEW = 4  # queries that are not worth a thread


@dataclass(frozen=True)
class Bits(Index):
    """Scan two bits per dimension, then compare with the best candidates. Needs Numba (`pip install 'ripml[fast]'`),
    without which search is exact.

    >>> Bits()
    Bits(storage='float32')
    """

    def build(self, Z: Stored, n_jobs: int | None = None) -> BitSearcher:
        """Codes are made with the first query."""
        exact = Exact().build(Z, n_jobs)
        return BitSearcher(exact, BitCodes(exact.Z))


class BitSearcher(Searcher):
    """Exact search over all rows, and their codes."""

    def __init__(self, exact: ExactSearcher, codes: BitCodes) -> None:
        self.exact, self.codes, self.n_rows = exact, codes, exact.n_rows

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> Neighbours:
        """The k nearest of the candidates."""
        if not self._scans or not 1 <= k <= self.n_rows or not len(Q) or not self.exact.in_usual_range(Q):
            return self.exact.query(Q, k, n_jobs)
        ids, distances = np.empty((len(Q), k), np.int64), np.empty((len(Q), k))
        Q, codes = np.ascontiguousarray(Q, np.float32), self.codes.arrays(n_jobs)

        def search(part: slice) -> None:
            rows = self.exact.Z, self.exact.half_norms
            loops().nearest_by_bits(Q[part], *rows, *codes, *BitCodes.counts(_MORE * k), k, ids[part], distances[part])

        if len(Q) <= _FEW:
            search(slice(0, len(Q)))
        else:
            map_blocks(search, blocks(len(Q), _QUERIES), n_jobs)
        return ids, distances

    def recall(self, Q: Floats, k: int, n_jobs: int | None = None) -> float | None:
        """The share of the k nearest rows of each query that is found; None where search is exact."""
        if not self._scans:
            return None
        found, nearest = self.query(Q, k, n_jobs)[1], self.exact.query(Q, k, n_jobs)[1]
        return float(np.mean(found <= nearest[:, -1:]))

    @property
    def _scans(self) -> bool:
        Z = self.exact.Z
        return loops() is not None and Z.dtype != np.float16 and self.n_rows * Z.shape[1] > EXACT_VALUES

    def changed(self, Z: Stored, removed: Ints) -> BitSearcher:
        """Codes of rows that follow are added to those that are shared; a removed row is not found."""
        exact = self.exact.changed(Z, removed)
        return BitSearcher(exact, self.codes.followed(exact.Z))
