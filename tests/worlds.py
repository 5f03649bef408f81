"""Small worlds with known answers, each a function of its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray


@dataclass(frozen=True)
class World:
    """Feature rows, their labels, and rows of the same world to be asked about."""

    X: NDArray[np.float64]
    Y: Any  # CSR (n, L)
    X_new: NDArray[np.float64]
    Y_new: Any

    @property
    def names(self) -> list[list[str]]:
        """The labels of each row by name."""
        return names_of(self.Y)


def names_of(Y: Any) -> list[list[str]]:
    """The labels of each row of an indicator, by names whose order is that of the columns."""
    width = len(str(Y.shape[1]))
    return [[f"label {label:0{width}}" for label in np.flatnonzero(row)] for row in Y.toarray()]


def planted(n: int = 120, d: int = 40, n_labels: int = 25, seed: int = 0) -> World:
    """Features are a sum of one direction a label, so that Z = X Psi exactly for a Psi that the seed plants.

    There are only ten label sets, so that each new row has neighbours that carry exactly its labels.
    """
    rng = np.random.default_rng(seed)
    kinds = np.zeros((10, n_labels))
    for kind in kinds:
        kind[rng.choice(n_labels, rng.integers(1, 4), replace=False)] = 1
    directions = rng.standard_normal((n_labels, d))
    rows = np.concatenate([np.arange(10), rng.integers(10, size=2 * n - 10)])
    X = kinds[rows] @ directions + 0.01 * rng.standard_normal((2 * n, d))
    Y = kinds[rows]
    return World(X[:n], scipy.sparse.csr_array(Y[:n]), X[n:], scipy.sparse.csr_array(Y[n:]))


def blocks(n_blocks: int = 4, rows: int = 15, seed: int = 0) -> World:
    """Blocks of features, each with its own pair of labels, of which a row carries the first, the second or both."""
    rng = np.random.default_rng(seed)
    block = np.repeat(np.arange(n_blocks), 2 * rows)
    X = np.abs(rng.standard_normal((len(block), 3 * n_blocks))) * (np.arange(3 * n_blocks) // 3 == block[:, None])
    Y = np.zeros((len(block), 2 * n_blocks))
    which = rng.integers(1, 4, len(block))
    Y[np.arange(len(block)), 2 * block] = which & 1
    Y[np.arange(len(block)), 2 * block + 1] = which >> 1
    odd = np.arange(len(block)) % 2 == 1
    return World(X[~odd], scipy.sparse.csr_array(Y[~odd]), X[odd], scipy.sparse.csr_array(Y[odd]))


def separable_clusters(n_clusters: int = 3, rows: int = 20, d: int = 6, seed: int = 0) -> World:
    """Clusters far from each other, and a label for each that no other cluster has."""
    rng = np.random.default_rng(seed)
    cluster = np.tile(np.arange(n_clusters), 2 * rows)
    X = 10 * np.eye(n_clusters, d)[cluster] + 0.1 * rng.standard_normal((len(cluster), d))
    Y = np.eye(n_clusters)[cluster]
    half = n_clusters * rows
    return World(X[:half], scipy.sparse.csr_array(Y[:half]), X[half:], scipy.sparse.csr_array(Y[half:]))


def zipf_labels(n: int = 300, n_labels: int = 100, mean_labels: float = 3, seed: int = 0) -> Any:
    """CSR (n, L): label l is about as frequent as 1/(l + 1), and no row is empty."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, n_labels + 1)
    Y = rng.random((n, n_labels)) < np.minimum(0.9, mean_labels * chance / chance.sum())
    Y[np.arange(n), rng.choice(n_labels, n, p=chance / chance.sum())] = True
    return scipy.sparse.csr_array(Y.astype(np.float32))


def zipf(n: int = 150, d: int = 60, n_labels: int = 40, seed: int = 0) -> World:
    """Zipf labels and sparse non-negative features that only loosely follow them: votes of every size, many sets."""
    rng = np.random.default_rng(seed)
    Y = zipf_labels(2 * n, n_labels, seed=seed)
    X = Y @ (rng.random((n_labels, d)) * (rng.random((n_labels, d)) < 0.2)) + (rng.random((2 * n, d)) < 0.05)
    X[:, 0] += 0.1  # no empty feature row
    return World(X[:n], Y[:n], X[n:], Y[n:])


def regression(n: int, d: int, n_targets: int = 7, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sparse features (n, d) and targets (n, M) of a planted Psi with noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    return X, X @ rng.standard_normal((d, n_targets)) + 0.1 * rng.standard_normal((n, n_targets))
