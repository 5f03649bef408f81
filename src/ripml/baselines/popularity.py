"""Popularity: every row gets the same scores, score_l = n_l/n, the share of training rows that carry label l."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ripml.baselines.base import Baseline, Learner, Learnt

__all__ = ["Popularity"]


class Popularity(Baseline):
    """The most frequent labels for everything: what a method must beat to have learnt anything.

    >>> Popularity().fit([[1], [2], [3]], [["a"], ["a", "b"], ["a"]]).recommend([[0]])[0][0]
    ('a', 1.0)
    """

    regularised: ClassVar[bool] = False

    def __init__(self, normalize: bool = False, n_jobs: int | None = None, random_state: Any = None) -> None:
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        share = np.bincount(Y.indices, minlength=Y.shape[1]) / Y.shape[0]
        return lambda ridge: {"share": share}

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        return np.broadcast_to(learnt["share"], (X.shape[0], len(learnt["share"])))

    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        return bool(learnt["share"].shape == (L,))
