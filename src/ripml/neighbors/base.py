"""The contract of an index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError

__all__ = ["STORAGES", "Finder", "Index", "Searcher"]

STORAGES = ("float32", "float16", "int8")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Stored = NDArray[Any]  # float32, float16 or int8
Arrays = Mapping[str, NDArray[Any]]


class Finder(ABC):
    """Embeddings made ready to be searched. Each has a number: 0 … n − 1 as built."""

    n_rows: int  # that can be found

    @abstractmethod
    def query(self, Q: Floats, k: int, n_jobs: int | None = None) -> tuple[Ints, NDArray[np.float64]]:
        """The k nearest rows for each row of Q, (q, k), nearest first, ties by the lower number, and their squared
        distances. k must not exceed `n_rows`; the k rows are always there, different, and none of them removed, also
        where the index is approximate.
        """

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `Index.restore` needs beside the embeddings to have the same searcher without the work of `build`."""
        return {}


class Searcher(Finder):
    """Embeddings that come and go. A number stays that of its row: those of rows to come follow the last one."""

    @abstractmethod
    def add(self, Z: Stored) -> Ints:
        """Take in more rows; their numbers follow the last one ever given."""

    @abstractmethod
    def remove(self, rows: Ints) -> None:
        """Forget the rows of these numbers; all must be there. No other number changes."""

    @abstractmethod
    def changed(self, Z: Stored, removed: Ints) -> Searcher:
        """A searcher of rows Z, of which the first are those given so far and the others are new, without the rows of
        numbers `removed` and those removed before. Row i of Z has the number i, so it must have been so till now.

        This one stays as it is, and can be asked while the other is made and used: it is how a model learns while
        others read it. One writer at a time makes them. Z may be an array that lies around the one so far. What two
        searchers share is never written to: neither of them can `add` or `remove` any more.
        """


@dataclass(frozen=True)
class Index(ABC):
    """A way to search, with its options.

    `storage` is how embeddings are kept, in memory and in a model folder: "float32", "float16" or "int8". Whoever owns
    them keeps them so; an index takes them as they are.
    """

    storage: str = field(default="float32", kw_only=True)

    def __post_init__(self) -> None:
        if self.storage not in STORAGES:
            raise ParameterError(f"`storage` must be one of {', '.join(STORAGES)}; got {self.storage!r}.")

    @abstractmethod
    def build(self, Z: Stored, n_jobs: int | None = None) -> Finder:
        """Make the embeddings Z (n, m), float32, float16 or int8, searchable."""

    def restore(self, Z: Stored, arrays: Arrays, n_jobs: int | None = None) -> Finder:
        """The searcher that was built over Z and gave `arrays`. Arrays that cannot come from there: ValueError."""
        return self.build(Z, n_jobs)
