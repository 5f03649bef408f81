"""SLEEC: sparse local embeddings for extreme classification (Bhatia, Jain, Kar, Varma and Jain, 2015), first named X1.

Rows are cut into C clusters by k-means on the features. In each, with u = y/‖y‖ and Ω each row's nearest rows by uᵀu,

    min over Z (n, m)      ‖P_Ω(UUᵀ) − P_Ω(ZZᵀ)‖²
    min over Psi (d, m)    ½‖Z − X Psi‖² + ½ ridge ‖Psi‖² + l1 ‖X Psi‖₁

first by singular value projection, then by ridge regression, or ADMM where l1 > 0 (`ripml.baselines.sleec_embedding`).
Only inner products between neighbours have to be kept, so that Z need not be a linear map of y. A new row goes to the
nearest centre; its scores are the mean y of the k rows whose X Psi is nearest to its own, averaged over learners with
different clusters. As in the authors' algorithm, neighbours are looked for among the training rows' X Psi and not among
Z: what the regression makes of a row is then compared with what it makes of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError, check_count, is_number
from ripml.base.products import product
from ripml.baselines.base import Baseline, Learner, Learnt, with_constant
from ripml.baselines.sleec_embedding import (
    Doubles,
    label_graph,
    project_singular_values,
    ridge_regression,
    sparse_regression,
    unseen_neighbors,
)
from ripml.decoding.calibration import mean_precision
from ripml.decoding.votes import tally, vote_weights
from ripml.model.clustering import assign, partition
from ripml.model.features import unit_rows
from ripml.neighbors import Exact

__all__ = ["SLEEC"]

_CLUSTER_ROWS = 6000  # of a cluster by the rule "auto", as the authors advise
_VOTERS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # what "auto" tries
_ASKED = 1000  # rows that it asks about
_KEPT = ("centres", "ends", "rows", "Psi", "Z")  # of each learner


class SLEEC(Baseline):
    """Embeddings that keep the inner products of neighbouring label sets, regression to them, nearest neighbours.

    Parameters
    ----------
    n_dims : int
        m, the length of an embedding; the number of rows at most.
    n_neighbors : int or "auto"
        k, the training rows that vote, in each learner; all rows of a cluster that has fewer. "auto" is the best of
        4 … 128 on training rows asked as if they were unseen (authors: 8 to 70, by hand for each data set).
    n_graph_neighbors : int
        The rows of a cluster whose inner product with a row is kept; all rows of a cluster that has fewer.
    n_clusters : int or "auto"
        C; "auto" is one for every 6,000 rows.
    n_learners : int
        Clusterings that are averaged.
    ridge : float or "auto"
        The regularisation, scikit-learn's `alpha`; the paper's λ is half of it.
    l1 : float
        The paper's μ, which makes predicted embeddings sparse. The default is none.
    normalize : bool
        Scale feature rows to length 1 first, as the authors do.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the clusters, ties between neighbours and the rows held out.

    Examples
    --------
    >>> X, Y = [[1, 0], [0.9, 0.1], [0, 1]], [["tea"], ["tea"], ["ice"]]
    >>> model = SLEEC(n_neighbors=1, random_state=0).fit(X, Y)
    >>> model.recommend([[1, 0.2]], n=1)
    [[('tea', 1.0)]]
    """

    def __init__(
        self,
        n_dims: int = 100,
        n_neighbors: int | str = "auto",
        n_graph_neighbors: int = 250,
        n_clusters: int | str = "auto",
        n_learners: int = 1,
        ridge: float | str = "auto",
        l1: float = 0.0,
        normalize: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_dims = n_dims
        self.n_neighbors = n_neighbors
        self.n_graph_neighbors = n_graph_neighbors
        self.n_clusters = n_clusters
        self.n_learners = n_learners
        self.ridge = ridge
        self.l1 = l1
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        for name in ("n_dims", "n_graph_neighbors", "n_learners"):
            check_count(name, getattr(self, name))
        for name in ("n_neighbors", "n_clusters"):
            if getattr(self, name) != "auto":
                check_count(name, getattr(self, name), "'auto' or ")
        if not (is_number(self.l1) and 0 <= float(self.l1) < np.inf):
            raise ParameterError(f"`l1` must be a finite number ≥ 0; got {self.l1!r}.")
        super().check_settings()

    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        learners = [self._embedded(X, Y, [seed, learner]) for learner in range(self.n_learners)]
        k = self._best_k(learners, X, Y, seed) if self.n_neighbors == "auto" else self.n_neighbors

        def learn(ridge: float) -> Learnt:
            learnt = {"Y": Y, "k": np.array(k)}
            for number, part in enumerate(learners):
                Psi = np.empty((len(part.centres), 1 + X.shape[1], part.Z.shape[1]), np.float32)
                Z = np.empty(part.Z.shape, np.float32)
                for cluster, here in enumerate(part.clusters()):
                    features = with_constant(X[part.rows[here]])
                    if self.l1 > 0:
                        Psi[cluster] = sparse_regression(features, part.Z[here], ridge, float(self.l1), self.n_jobs)
                    else:
                        Psi[cluster] = ridge_regression(features, part.Z[here], ridge, self.n_jobs).Psi
                    Z[here] = product(features, Psi[cluster], self.n_jobs)
                kept = (part.centres, part.ends, part.rows, Psi, Z)
                learnt |= {f"{name}_{number}": value for name, value in zip(_KEPT, kept, strict=True)}
            return learnt

        return learn

    def _embedded(self, X: Any, Y: Any, seed: list[int]) -> _Embedded:
        """The clusters of one learner and the embeddings of their rows."""
        n = X.shape[0]
        n_clusters = round(n / _CLUSTER_ROWS) if self.n_clusters == "auto" else int(self.n_clusters)
        draw = np.random.default_rng(seed)
        centres, cluster = partition(X, min(max(n_clusters, 1), n), int(draw.integers(2**31)), self.n_jobs)
        rows = np.argsort(cluster, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(cluster))])
        part = _Embedded(centres, ends, rows, np.zeros((n, min(self.n_dims, n))))
        U = unit_rows(Y.astype(np.float64))
        for here in part.clusters():
            graph = label_graph(U[rows[here]], self.n_graph_neighbors, int(draw.integers(2**31)), self.n_jobs)
            Z, _ = project_singular_values(graph, self.n_dims, int(draw.integers(2**31)), n_jobs=self.n_jobs)
            part.Z[here, : Z.shape[1]] = Z  # a small cluster has fewer dimensions: the others are 0
        return part

    def _best_k(self, learners: list[_Embedded], X: Any, Y: Any, seed: int) -> int:
        """The number of neighbours with the best mean of P@1, P@3 and P@5 on training rows, each asked as if unseen."""
        n = X.shape[0]
        ridge = 1.0 if self.ridge == "auto" else float(self.ridge)  # the best k hardly depends on it
        asked = np.sort(np.random.default_rng([seed, self.n_learners]).permutation(n)[:_ASKED])
        place = np.full(n, -1)
        place[asked] = np.arange(len(asked))
        ids = np.full((len(asked), self.n_learners, _VOTERS[-1]), -1)
        for number, part in enumerate(learners):
            for here in part.clusters():
                rows = part.rows[here]
                local = np.flatnonzero(place[rows] >= 0)
                found = unseen_neighbors(with_constant(X[rows]), part.Z[here], ridge, local, _VOTERS[-1], self.n_jobs)
                ids[place[rows[local]], number] = np.where(found < 0, -1, rows[found])
        return max(_VOTERS, key=lambda k: mean_precision(Y[asked], _votes(ids[..., :k], Y)))

    def _ask(self, learnt: Learnt, X: Any) -> Any:
        features, most = with_constant(X), int(learnt["k"])
        ids = np.full((X.shape[0], self.n_learners, most), -1)
        for number in range(self.n_learners):
            centres, ends, rows, Psi, Z = (learnt[f"{name}_{number}"] for name in _KEPT)
            cluster = assign(X, centres, self.n_jobs)
            for here in np.unique(cluster):
                asked, members = np.flatnonzero(cluster == here), slice(ends[here], ends[here + 1])
                k = min(most, len(Z[members]))
                embedded = product(features[asked], Psi[here], self.n_jobs).astype(np.float32, copy=False)
                found = Exact().build(Z[members]).query(embedded, k, self.n_jobs)[0]
                ids[asked, number, :k] = rows[members][found]
        return _votes(ids, learnt["Y"])

    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        n, k = learnt["Y"].shape[0], learnt["k"]
        return bool(
            learnt["Y"].shape == (n, L)
            and k.shape == ()
            and 1 <= k <= max(n, _VOTERS[-1])
            and all(_learner_fits([learnt[f"{name}_{i}"] for name in _KEPT], n, d) for i in range(self.n_learners))
        )

    @property
    def chosen_(self) -> dict[str, Any]:
        """The ridge, the neighbours that vote, and the clusters of the first learner."""
        return {
            **super().chosen_,
            "n_neighbors": int(self.learnt_["k"]),
            "n_clusters": len(self.learnt_[f"{_KEPT[0]}_0"]),
        }


def _learner_fits(kept: list[Any], n: int, d: int) -> bool:
    """Whether these arrays of one learner fit together."""
    centres, ends, rows, Psi, Z = kept
    n_clusters, m = len(centres), Z.shape[1]
    return bool(
        centres.shape == (n_clusters, d)
        and ends.shape == (n_clusters + 1,)
        and rows.shape == (n,)
        and Z.shape == (n, m)
        and Psi.shape == (n_clusters, 1 + d, m)
        and ends.dtype.kind == rows.dtype.kind == "i"
        and (ends[0], ends[-1]) == (0, n)
        and (np.diff(ends) >= 1).all()
        and np.array_equal(np.sort(rows), np.arange(n))
    )


def _votes(ids: NDArray[np.int64], Y: Any) -> Any:
    """The mean labels of the rows `ids` (n, learners, k), −1 for none, over k and then over learners, CSR (n, L)."""
    n, n_learners, k = ids.shape
    counts = np.append(np.ones(Y.shape[0], np.int64), 0)  # the last is that of −1
    weights = vote_weights(ids.reshape(-1, k), counts, k, n_learners)
    return tally(np.maximum(ids, 0).reshape(n, -1), weights.reshape(n, -1) / n_learners, Y)


@dataclass(frozen=True)
class _Embedded:
    """One learner: centres (C, d), and rows and their Z (n, m) in the order of their clusters, which end at `ends`."""

    centres: NDArray[Any]
    ends: NDArray[np.int64]
    rows: NDArray[np.int64]
    Z: Doubles

    def clusters(self) -> list[slice]:
        return [slice(start, end) for start, end in zip(self.ends[:-1], self.ends[1:], strict=True)]
