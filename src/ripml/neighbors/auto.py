"""The choice of an index by the number of rows, the installed packages and the free memory.

1. Storage is float32 where all embeddings take at most a quarter of the free memory, else float16, else int8.
2. Search is exact up to `EXACT_VALUES` numbers that a query has to read, n·m: 80 MB as float32. In a batch it runs near
   the speed of a matrix product; no index here is clearly faster at a recall of 0.95.
3. Above that, IVF if faiss is installed, as it answers single queries faster, else exact.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from ripml.base.errors import check_count
from ripml.base.parallel import available_memory
from ripml.neighbors.base import STORAGES, Arrays, Index, Searcher, Stored
from ripml.neighbors.exact import Exact
from ripml.neighbors.ivf import IVF

__all__ = ["EXACT_VALUES", "Auto", "choose_index"]

EXACT_VALUES = 20_000_000  # 200,000 rows of 100 dimensions
_BYTES = dict(zip(STORAGES, (4, 2, 1), strict=True))


def choose_index(n: int, m: int, n_learners: int = 1, free_bytes: int | None = None) -> tuple[Exact | IVF, str]:
    """The index for n rows of m dimensions in each learner, and the reason for the choice.

    >>> choose_index(10_000, 100, 5, 8 * 2**30)
    (Exact(storage='float32'), '1,000,000 numbers per query, at most 20,000,000; 0.02 GB of 8.6 GB free as float32')
    """
    for name, value in {"n": n, "m": m, "n_learners": n_learners}.items():
        check_count(name, value)
    free = available_memory() if free_bytes is None else free_bytes
    numbers = n * m * n_learners
    storage = next((word for word in STORAGES if numbers * _BYTES[word] <= free / 4), STORAGES[-1])
    held = f"{numbers * _BYTES[storage] / 1e9:.2g} GB of {free / 1e9:.2g} GB free as {storage}"
    if n * m <= EXACT_VALUES:
        return Exact(storage=storage), f"{n * m:,} numbers per query, at most {EXACT_VALUES:,}; {held}"
    more = f"{n * m:,} numbers per query, more than {EXACT_VALUES:,}"
    if importlib.util.find_spec("faiss") is None:
        return Exact(storage=storage), f"{more}, but faiss is not installed (ripml[index]); {held}"
    return IVF(storage=storage), f"{more}; {held}"


@dataclass(frozen=True)
class Auto(Index):
    """The index that `choose_index` names for the size of the embeddings.

    >>> import numpy as np
    >>> type(Auto().build(np.zeros((3, 2), np.float32))).__name__
    'ExactSearcher'
    """

    def build(self, Z: Stored, n_jobs: int | None = None) -> Searcher:
        """Build the chosen index; Z stays as it is stored."""
        return choose_index(max(1, len(Z)), max(1, Z.shape[1]))[0].build(Z, n_jobs)

    def restore(self, Z: Stored, arrays: Arrays, n_jobs: int | None = None) -> Searcher:
        """Restore the index that gave the arrays."""
        index: Exact | IVF = IVF() if any(name.startswith("ivf_") for name in arrays) else Exact()
        return index.restore(Z, arrays, n_jobs)
