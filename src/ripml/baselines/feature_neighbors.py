"""Nearest neighbours in feature space: votes of the k most similar training rows, nothing learnt.

    D = Σ_i s_i y_i / Σ_i s_i    over the k rows with the largest cosine s_i = ⟨x_i, x⟩/(‖x_i‖ ‖x‖) > 0

It is what RIPML is without its embedding and regression: neighbours are sought among features and not among labels.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from ripml.base.errors import check_count
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import dense
from ripml.baselines.base import Baseline, Learner, Learnt
from ripml.decoding import scores as decoding
from ripml.model.features import unit_rows

__all__ = ["FeatureNeighbors"]

_BLOCK_CELLS = 1 << 22  # of similarities that a thread holds: 32 MB


class FeatureNeighbors(Baseline):
    """Votes of the most similar rows, weighted by similarity; ties go to the earlier row.

    Rows that share no feature with a query have no vote, and a query without features has no scores.

    Parameters
    ----------
    n_neighbors : int
        k; all training rows where there are no more.
    normalize : bool
        Scale feature rows to length 1 first, as every method can; the cosine stays the same.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the rows held out, which set the threshold.

    Examples
    --------
    >>> model = FeatureNeighbors(n_neighbors=2).fit([[1, 0], [0, 1], [4, 3]], [["a"], ["b"], ["a", "c"]])
    >>> [(name, round(score, 2)) for name, score in model.recommend([[1, 0]])[0]]
    [('a', 1.0), ('c', 0.44)]
    """

    regularised: ClassVar[bool] = False

    def __init__(
        self, n_neighbors: int = 10, normalize: bool = False, n_jobs: int | None = None, random_state: Any = None
    ) -> None:
        self.n_neighbors = n_neighbors
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        check_count("n_neighbors", self.n_neighbors)
        super().check_settings()

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        unit = unit_rows(X.astype(np.float64))
        columns = unit.T.tocsr() if scipy.sparse.issparse(unit) else np.ascontiguousarray(unit.T)
        return lambda ridge: {"columns": columns, "Y": Y}

    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        n = learnt["Y"].shape[0]
        return bool(n >= 1 and learnt["Y"].shape == (n, L) and learnt["columns"].shape == (d, n))

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        columns, Y = learnt["columns"], learnt["Y"]
        X = unit_rows(X.astype(np.float64))
        n = Y.shape[0]
        k = min(self.n_neighbors, n)

        def votes(rows: slice) -> Any:
            # In float32, so that rows that are alike tie however their products are summed.
            similarity = dense(X[rows] @ columns).astype(np.float32)
            least = np.partition(similarity, n - k, axis=1)[:, n - k, None]
            similarity[(similarity < least) | (similarity < 0)] = 0
            W = decoding.top(scipy.sparse.csr_array(similarity, dtype=np.float64), k)
            W.data /= np.repeat(W.sum(axis=1), np.diff(W.indptr))
            return W @ Y

        parts = map_blocks(votes, blocks(X.shape[0], max(1, _BLOCK_CELLS // n)), self.n_jobs)
        return scipy.sparse.vstack(parts, format="csr")
