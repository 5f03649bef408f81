"""Nearest neighbours in feature space: votes of the k most similar training rows, without any learning.

    D = Σ_i s_i y_i / Σ_i s_i    over the k rows with the largest cosine s_i = ⟨x_i, x⟩/(‖x_i‖ ‖x‖) > 0

This is RIPML without its embedding and regression: neighbours are searched among features instead of label embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import dense
from ripml.baselines.base import Arrays, Baseline, FitAtRidge
from ripml.decoding import scores as decoding
from ripml.model.features import unit_rows

__all__ = ["FeatureNeighbors"]

_BLOCK_CELLS = 1 << 22  # similarities held by one thread: 32 MB


@dataclass(eq=False, repr=False)
class FeatureNeighbors(Baseline):
    """Votes of the most similar rows, weighted by similarity; ties go to the earlier row.

    Rows that share no feature with the query do not vote, and a query without features has no scores.

    Parameters
    ----------
    n_neighbors : int
        k, at most the number of training rows.
    normalize, n_jobs, random_state
        As for every `Baseline`; `normalize` does not change a cosine.

    Examples
    --------
    >>> model = FeatureNeighbors(n_neighbors=2).fit([[1, 0], [0, 1], [4, 3]], [["a"], ["b"], ["a", "c"]])
    >>> [(name, round(score, 2)) for name, score in model.recommend([[1, 0]])[0]]
    [('a', 1.0), ('c', 0.44)]
    """

    counts: ClassVar[tuple[str, ...]] = ("n_neighbors",)

    n_neighbors: int = 10

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        unit = unit_rows(X.astype(np.float64))
        columns = unit.T.tocsr() if scipy.sparse.issparse(unit) else np.ascontiguousarray(unit.T)
        return lambda ridge: {"columns": columns, "Y": Y}

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        n = arrays["Y"].shape[0]
        if n < 1:
            raise ValueError("there are no training rows")
        return {"Y": (n, L), "columns": (d, n)}

    def _score(self, arrays: Arrays, X: Any) -> Any:
        columns, Y = arrays["columns"], arrays["Y"]
        X = unit_rows(X.astype(np.float64))
        n = Y.shape[0]
        k = min(self.n_neighbors, n)

        def vote(rows: slice) -> Any:
            # In float32, so that equal rows tie in whatever order their products are summed.
            similarity = dense(X[rows] @ columns).astype(np.float32)
            smallest = np.partition(similarity, n - k, axis=1)[:, n - k, None]
            similarity[(similarity < smallest) | (similarity < 0)] = 0
            W = decoding.top(scipy.sparse.csr_array(similarity, dtype=np.float64), k)
            W.data /= np.repeat(W.sum(axis=1), np.diff(W.indptr))
            return W @ Y

        parts = map_blocks(vote, blocks(X.shape[0], max(1, _BLOCK_CELLS // n)), self.n_jobs)
        return scipy.sparse.vstack(parts, format="csr")
