"""The data of the recorded cases: small worlds made of whole numbers, so that every machine has the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

__all__ = ["QUESTIONS", "World", "documents", "world"]


@dataclass(frozen=True)
class World:
    """Training rows, further rows to be learnt later, and queries."""

    X: Any  # (n, d), dense or CSR
    Y: NDArray[np.int64]  # (n, L) indicator; some rows are empty
    X_more: Any
    Y_more: NDArray[np.int64]
    queries: Any  # two of them are all zero, two are rows of X, one has a feature that is rare

    def names(self, Y: NDArray[np.int64] | None = None) -> list[list[str]]:
        """The labels of each row by name."""
        return [[f"label {label:02}" for label in np.flatnonzero(row)] for row in (self.Y if Y is None else Y)]


def _made(
    n: int, d: int, n_labels: int, n_kinds: int, sparse: bool, dtype: type[Any] = np.float64, seed: int = 0
) -> World:
    rng = np.random.RandomState(seed)
    kinds = np.zeros((n_kinds, n_labels), np.int64)
    for kind in kinds:
        kind[rng.randint(n_labels, size=rng.randint(1, 5))] = 1
        kind[rng.randint(1 + rng.randint(n_labels))] = 1  # small numbers are frequent
    total = n + 60 + 32
    which = np.concatenate([np.arange(n_kinds), rng.randint(n_kinds, size=total)])[:total]
    which = which[rng.permutation(total)]
    Y = kinds[which]
    directions = rng.randint(1, 9, size=(n_labels, d)) * (rng.randint(100, size=(n_labels, d)) < 22)
    noise = rng.randint(1, 7, size=(total, d)) * (rng.randint(100, size=(total, d)) < 12)
    X = (Y @ directions + noise) / 16.0
    X[:, d - 1] = 0
    X[[3, 30], d - 1] = 0.5
    Y[[5, 17, 40]] = 0
    queries = X[n + 60 :].copy()
    queries[[4, 20]] = 0
    queries[[6, 21]] = X[[0, 9]]
    queries[7] = 0
    queries[7, d - 1] = 1
    given = [part.astype(dtype) for part in (X[:n], X[n : n + 60], queries)]
    if sparse:
        given = [scipy.sparse.csr_array(part) for part in given]
    return World(given[0], Y[:n], given[1], Y[n : n + 60], given[2])


@cache
def world(name: str) -> World:
    """A world by its name.

    The blend learns trees of 200 left-out rows in each of two halves: of "sparse", "dense" and "wide-dense" with every
    solver that is exact, of "single" and "blended" where features are not weighed (relevance=0), of small ones never.
    """
    return {
        "sparse": lambda: _made(840, 40, 45, 220, True),
        "dense": lambda: _made(830, 24, 30, 120, False, seed=1),
        "single": lambda: _made(455, 30, 25, 60, True, np.float32, seed=2),
        "wide": lambda: _made(130, 210, 25, 60, True, seed=3),
        "wide-dense": lambda: _made(820, 860, 25, 90, False, seed=4),
        "many": lambda: _made(
            2340, 16, 60, 2432, True, seed=5
        ),  # above 2,048 label sets: approximate indexes are built
        "wide-small": lambda: _made(62, 80, 12, 25, True, seed=9),
        "small": lambda: _made(110, 12, 14, 30, False, seed=6),
        "small-sparse": lambda: _made(120, 16, 15, 30, True, seed=7),
        "blended": lambda: _made(412, 10, 12, 30, True, seed=8),
    }[name]()


_SUBJECTS = {
    "fruit": ["apple", "pear", "plum", "cherry", "orchard"],
    "weather": ["rain", "cloud", "storm", "wind", "frost"],
    "music": ["violin", "drum", "choir", "melody", "concert"],
    "travel": ["train", "harbour", "ticket", "journey", "border"],
    "money": ["bank", "price", "market", "coin", "budget"],
    "sport": ["goal", "race", "team", "medal", "stadium"],
}
_FILLING = ["the", "old", "new", "green", "quiet", "large", "city", "today", "people", "often", "never", "small"]

QUESTIONS = [
    "Rain and wind over the orchard",
    "The choir waits for the train",
    "A coin, a medal, a goal",
    "xyzzy",
    "the old market price of apple and plum today",
]


def documents(n: int = 60, start: int = 0) -> list[tuple[str, list[str]]]:
    """Texts with their tags, the same for the same numbers."""
    found = []
    subjects = list(_SUBJECTS)
    for i in range(start, start + n):
        tags = sorted({subjects[i % 6], subjects[(i * i + 1) % 6]})
        words = [_SUBJECTS[tag][(i // 2 + k * (i % 4 + 1)) % 5] for tag in tags for k in range(2)]
        words += [_FILLING[(i * 5 + k * 7) % 12] for k in range(3 + i % 3)]
        order = sorted(range(len(words)), key=lambda place: (place * 7 + i * 3) % 11)
        found.append((" ".join(words[place] for place in order) + f" {i}.", tags))
    return found
