"""LEML: low-rank empirical risk minimisation for multi-label learning (Yu, Jain, Kar and Dhillon, 2014).

    min over W (d, m), H (L, m)    ½ Σ_{(i,j) ∈ Ω} (Y_ij − x_iᵀ W h_j)² + ½ ridge (‖W‖² + ‖H‖²)

A linear model of rank m for all labels at once, learnt from the cells Ω of Y that are known: labels that are known to
be there, and labels that are known not to be. Its regularisation is ridge times the trace norm of W Hᵀ. W and H are
found by turns from a random start (`ripml.baselines.leml_steps`). An intercept, penalised like any other weight, is
added to the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse

from ripml.base.errors import DataError, check_count
from ripml.baselines.base import Baseline, Learner, Learnt, held_out_rows, with_constant
from ripml.baselines.leml_steps import Problem, factorise
from ripml.labels.encoding import encode_labels
from ripml.model.multilabel import TrainingData

__all__ = ["LEML"]

Self = TypeVar("Self", bound="LEML")


class LEML(Baseline):
    """A low-rank linear model of all labels, also where some cells of Y are not known.

    Parameters
    ----------
    n_dims : int
        m, the rank; at most the smaller of L and 1 + d is used.
    n_iter : int
        How many times W and H are improved by turns. The objective never rises, but past 3 times rows held out of
        Bibtex and Delicious were not ranked better.
    ridge : float or "auto"
        The regularisation of both factors, as above.
    normalize : bool
        Scale feature rows to length 1 first; the authors do not.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the rows held out and the start.

    Examples
    --------
    >>> LEML(n_dims=1, random_state=0).fit([[1, 0], [0, 1]], [["a"], ["a", "b"]]).recommend([[1, 0.2]], n=1)[0][0][0]
    'a'
    """

    def __init__(
        self,
        n_dims: int = 100,
        n_iter: int = 3,
        ridge: float | str = "auto",
        normalize: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_dims = n_dims
        self.n_iter = n_iter
        self.ridge = ridge
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        check_count("n_dims", self.n_dims)
        check_count("n_iter", self.n_iter)
        super().check_settings()

    def fit(self: Self, X: Any, Y: Any, label_names: Sequence[str] | None = None, observed: Any = None) -> Self:
        """Learn from features X (n, d) and labels Y, of which the cells `observed` are known.

        `observed` is Ω, an indicator (n, L), dense or sparse, for a Y that is an indicator; None means that all is
        known. What Y holds elsewhere plays no part, and rows without a label that is known to be there are left out.
        On the rows held out, a label that is not known counts as absent.

        >>> X, Y = [[1, 0], [1, 0.1], [0, 1]], np.array([[1, 0], [0, 1], [0, 1]])
        >>> known = np.array([[1, 1], [0, 1], [1, 1]])
        >>> LEML(ridge=0.01, random_state=0).fit(X, Y, observed=known).recommend([[1, 0]], n=1)[0][0][0]
        0
        """
        self.check_settings()
        fitted = self._unfitted()
        fitted._observed = observed
        fitted._fit(fitted._training_data(X, Y, label_names))
        del fitted._observed
        return self._adopt(fitted)

    def _training_data(self, X: Any, Y: Any, label_names: Sequence[str] | None) -> TrainingData:
        if self._observed is None:
            return super()._training_data(X, Y, label_names)
        if getattr(Y, "ndim", 1) != 2:
            raise DataError(
                "`observed` marks cells of an indicator; give Y as an indicator (n, L), not as label names."
            )
        Y, names = encode_labels(Y)
        observed = _checked(self._observed, Y.shape)
        Y = (Y * observed).tocsr()
        data = super()._training_data(X, Y, label_names)
        self._observed = observed[np.diff(Y.indptr) > 0]
        return data if label_names is not None else replace(data, names=names)  # those of a DataFrame

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        observed = self._observed
        if observed is not None and observed.shape[0] != X.shape[0]:
            observed = observed[held_out_rows(observed.shape[0], seed)[0]]
        problem = Problem.of(with_constant(X), Y, observed, self.n_jobs)
        return lambda ridge: dict(zip("WH", factorise(problem, self.n_dims, ridge, self.n_iter, seed), strict=True))

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        return (with_constant(X) @ learnt["W"]) @ learnt["H"].T

    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        m = learnt["W"].shape[1]
        return bool(learnt["W"].shape == (1 + d, m) and learnt["H"].shape == (L, m))


def _checked(observed: Any, shape: tuple[int, int]) -> Any:
    """Ω as a CSR indicator of float32 ones in the shape of Y."""
    if getattr(observed, "ndim", 0) != 2 or observed.shape != shape:
        got = getattr(observed, "shape", type(observed).__name__)
        raise DataError(f"`observed` must be an indicator in the shape of Y, {shape}; got {got}.")
    cells = scipy.sparse.csr_array(observed, dtype=np.float32, copy=True)
    cells.sum_duplicates()
    cells.eliminate_zeros()
    wrong = cells.data[cells.data != 1]
    if len(wrong):
        raise DataError(f"`observed` must be an indicator of 0s and 1s; got the value {wrong[0]:g}.")
    return cells
