"""The contract of an index: `Index` is a setting, `Searcher` the embeddings that it made searchable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError

__all__ = ["STORAGES", "Index", "Neighbours", "Searcher"]

STORAGES = ("float32", "float16", "int8")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Stored = NDArray[Any]  # float32, float16 or int8
Arrays = Mapping[str, NDArray[Any]]
Neighbours = tuple[Ints, NDArray[np.float64]]  # row numbers and squared distances, (q, k) each, nearest first


class Searcher(ABC):
    """Embeddings Z that can be searched; a row keeps its number in Z, also when other rows are removed."""

    n_rows: int  # rows that can be found: all rows of Z that are not removed

    @abstractmethod
    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> Neighbours:
        """The k nearest rows for each row of Q, (q, k), nearest first, ties by the lower number, and their squared
        distances. k must not exceed `n_rows`. An approximate index, too, returns k different rows, none of them
        removed.
        """

    def recall(self, Q: Floats, k: int, n_jobs: int | None = None) -> float | None:
        """The share of the k nearest rows of each query that `query` finds; None where it finds all of them."""
        return None

    def changed(self, Z: Stored, removed: Ints) -> Searcher:
        """A searcher of the embeddings Z, which begin with the present ones, without the rows `removed` and those
        removed before.

        This searcher stays as it is and can be queried while the other one is made and used: that is how a model learns
        while others read it. Z may be a longer view of the same memory. Only one thread at a time may call `changed` on
        searchers that come from each other.
        """
        raise DataError(f"{type(self).__name__} cannot take in changes; build the index again.")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `Index.restore` needs beside the rows that are left to give the same searcher without building it."""
        return {}


@dataclass(frozen=True)
class Index(ABC):
    """A way to search, with its options.

    `storage` is how embeddings are kept, in memory and in a model folder: "float32", "float16" or "int8". The caller
    converts them; an index takes them as they are.
    """

    storage: str = field(default="float32", kw_only=True)

    def __post_init__(self) -> None:
        if self.storage not in STORAGES:
            raise ParameterError(f"`storage` must be one of {', '.join(STORAGES)}; got {self.storage!r}.")

    @abstractmethod
    def build(self, Z: Stored, n_jobs: int | None = None) -> Searcher:
        """Make the embeddings Z (n, m), float32, float16 or int8, searchable."""

    def restore(self, Z: Stored, arrays: Arrays, n_jobs: int | None = None) -> Searcher:
        """The searcher over Z that gave `arrays`; ValueError for arrays that no searcher over Z gives."""
        if arrays:
            raise ValueError(f"{type(self).__name__} has no arrays to restore; got {', '.join(arrays)}")
        return self.build(Z, n_jobs)
