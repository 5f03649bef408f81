"""The contract of an index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Index", "Searcher"]

Floats = NDArray[np.float32]


class Searcher(Protocol):
    """Embeddings made ready to be searched."""

    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k nearest rows for each row of Q, (q, k), and their squared distances; k must not exceed the rows."""
        ...


class Index(ABC):
    """A way to search, with its options."""

    @abstractmethod
    def build(self, Z: Floats) -> Searcher:
        """Make the embeddings Z (n, m) searchable."""
