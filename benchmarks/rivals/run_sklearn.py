"""scikit-learn: exact one-vs-rest ridge (all labels as targets of one `Ridge`), and votes of cosine neighbours.

Ridge: alpha = 1 (the default), by Cholesky factorisation, without an intercept, which
this solver does not support for sparse X.
Neighbours: the 20 nearest rows by cosine, exact; a neighbour's vote is its cosine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from protocol import TOP, Method, NotPossibleError, run
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestNeighbors

NEIGHBORS = 20
ROWS_AT_A_TIME = 1024


def best(dense: Any) -> Any:
    """The TOP best cells of each row as (labels, values)."""
    n_best = min(TOP, dense.shape[1])
    labels = np.argpartition(-dense, n_best - 1, axis=1)[:, :n_best]
    return labels, np.take_along_axis(dense, labels, axis=1)


class OneVsRestRidge(Method):
    def train(self) -> None:
        (n, d), n_labels = self.X.shape, self.Y.shape[1]
        side = min(n, d)
        # Targets twice (scikit-learn copies them), coefficients twice, and the matrix that is factorised.
        needed = 4 * (2 * n * n_labels + 2 * d * n_labels + 2 * side * side)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > 0.8 * memory:
            raise NotPossibleError(f"would need about {needed / 1e9:,.0f} GB of memory")
        self.model = Ridge(solver="cholesky", fit_intercept=False).fit(self.X, self.Y.toarray())

    def save(self, folder: Path) -> None:
        np.save(folder / "coefficients.npy", self.model.coef_)

    def predict(self, queries: Any) -> Any:
        starts = range(0, queries.shape[0], ROWS_AT_A_TIME)
        parts = [best(self.model.predict(queries[start : start + ROWS_AT_A_TIME])) for start in starts]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def scores(self, answer: Any, n_labels: int) -> Any:
        labels, values = answer
        starts = np.arange(len(labels) + 1) * labels.shape[1]
        return scipy.sparse.csr_matrix((values.ravel(), labels.ravel(), starts), shape=(len(labels), n_labels))


class CosineNeighbors(Method):
    def train(self) -> None:
        self.model = NearestNeighbors(n_neighbors=NEIGHBORS, metric="cosine", algorithm="brute").fit(self.X)

    def save(self, folder: Path) -> None:
        scipy.sparse.save_npz(folder / "X.npz", self.X, compressed=False)
        scipy.sparse.save_npz(folder / "Y.npz", self.Y, compressed=False)

    def predict(self, queries: Any) -> Any:
        self.model.n_jobs = -1 if queries.shape[0] > 1 else 1  # starting threads takes longer than predicting a row
        distances, rows = self.model.kneighbors(queries)
        starts = np.arange(len(rows) + 1) * NEIGHBORS
        # Slightly above zero, so that a neighbour without common features still proposes its labels.
        weights = np.maximum(1 - distances, 1e-6).ravel()
        W = scipy.sparse.csr_matrix((weights, rows.ravel(), starts), shape=(len(rows), self.Y.shape[0]))
        return W @ self.Y


if __name__ == "__main__":
    run({"ridge": OneVsRestRidge, "cosine kNN": CosineNeighbors})
