"""The choice of an index by the number of rows, the installed packages and the free memory.

1. Storage is float32 where all embeddings take at most a quarter of the free memory, else float16, else int8.
2. Search is exact up to `EXACT_VALUES` numbers that a query has to read, n·m: 120 MB as float32. In a batch it runs
   near the speed of a matrix product; up to there no index here is clearly faster at a recall of 0.95.
3. Above that, a scan of bits if Numba is installed, else exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from ripml.base.compiled import loops
from ripml.base.errors import check_count
from ripml.base.parallel import available_memory
from ripml.neighbors.base import STORAGES, Arrays, Index, Searcher, Stored
from ripml.neighbors.bits import EXACT_VALUES, Bits
from ripml.neighbors.exact import Exact
from ripml.neighbors.ivf import IVF

__all__ = ["EXACT_VALUES", "Auto", "choose_index"]

_BYTES = dict(zip(STORAGES, (4, 2, 1), strict=True))


def choose_index(n: int, m: int, n_learners: int = 1, free_bytes: int | None = None) -> tuple[Exact | Bits, str]:
    """The index for n rows of m dimensions in each learner, and the reason for the choice.

    >>> choose_index(10_000, 100, 5, 8 * 2**30)
    (Exact(storage='float32'), '1,000,000 numbers per query, at most 30,000,000; 0.02 GB of 8.6 GB free as float32')
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
    if loops() is None or storage == "float16":
        reason = "float16 is searched exactly" if storage == "float16" else "Numba is not installed (ripml[fast])"
        return Exact(storage=storage), f"{more}, but {reason}; {held}"
    return Bits(storage=storage), f"{more}; {held}"


@dataclass(frozen=True)
class Auto(Index):
    """The index that `choose_index` names for the size of the embeddings as it is: `Bits`, which is exact up to there.

    >>> import numpy as np
    >>> type(Auto().build(np.zeros((3, 2), np.float32))).__name__
    'BitSearcher'
    """

    def build(self, Z: Stored, n_jobs: int | None = None) -> Searcher:
        """Z stays as it is stored."""
        return Bits().build(Z, n_jobs)

    def restore(self, Z: Stored, arrays: Arrays, n_jobs: int | None = None) -> Searcher:
        """Restore the index that gave the arrays: a model of an earlier version may have lists."""
        index: Bits | IVF = IVF() if any(name.startswith("ivf_") for name in arrays) else Bits()
        return index.restore(Z, arrays, n_jobs)
