"""Popularity: every row gets the same scores, score_l = n_l/n, the share of training rows that carry label l."""

from __future__ import annotations

from typing import Any

import numpy as np

from ripml.baselines.base import Arrays, Baseline, FitAtRidge

__all__ = ["Popularity"]


class Popularity(Baseline):
    """Recommends the most frequent labels to every row: any useful method must do better.

    >>> Popularity().fit([[1], [2], [3]], [["a"], ["a", "b"], ["a"]]).recommend([[0]])[0][0]
    ('a', 1.0)
    """

    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        share = np.bincount(Y.indices, minlength=Y.shape[1]) / Y.shape[0]
        return lambda ridge: {"share": share}

    def _score(self, arrays: Arrays, X: Any) -> Any:
        return np.broadcast_to(arrays["share"], (X.shape[0], len(arrays["share"])))

    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        return {"share": (L,)}
