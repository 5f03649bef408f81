"""A graph of near rows in levels, walked greedily (Malkov and Yashunin 2018), by faiss.

Each row is linked to `n_links` near ones, 2·`n_links` on the lowest level. A search goes down from the sparse levels to
the dense one and there keeps the `ef` nearest rows seen; their distances are then computed in float64. The graph is
built on one thread, so that it is the same each time, and holds a float32 copy of the rows. It costs a search among
`ef_build` rows for each row: minutes for hundreds of thousands. Removed rows stay in the graph as ways to others.

Label embeddings are nearly equidistant, and a walk among them needs a large `ef`: see docs/dependencies.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError, check_count
from ripml.base.parallel import blocks
from ripml.neighbors.approximate import ApproximateSearcher, faiss, one_thread, unit_scale, widened
from ripml.neighbors.base import Arrays, Floats, Index, Ints, Stored
from ripml.neighbors.exact import Exact

__all__ = ["HNSW"]

_ARRAYS = ("hnsw_levels", "hnsw_links", "hnsw_entry")
_BLOCK = 65_536
_FAR = np.float32(1e6)


@dataclass(frozen=True)
class HNSW(Index):
    """Walk a graph of near rows. Needs faiss: `pip install 'ripml[index]'`.

    `n_links` and `ef_build` make a better graph for more time and memory, `ef` a better answer for more time.

    >>> HNSW(ef=400)
    HNSW(storage='float32', n_links=16, ef_build=100, ef=400)
    """

    n_links: int = 16
    ef_build: int = 100
    ef: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_links", self.n_links, least=2)
        check_count("ef_build", self.ef_build)
        check_count("ef", self.ef)
        for name, limit in {"n_links": 1024, "ef_build": 1 << 20, "ef": 1 << 20}.items():
            if getattr(self, name) > limit:
                raise ParameterError(f"`{name}` must be at most {limit}; got {getattr(self, name)}.")

    def build(self, Z: Stored, n_jobs: int | None = None) -> HNSWSearcher:
        """Link the rows of Z, one after the other."""
        faiss()
        return HNSWSearcher(Exact().build(Z, n_jobs), self)

    def restore(self, Z: Stored, arrays: Arrays, n_jobs: int | None = None) -> HNSWSearcher:
        """The graph as it was, after a check of every link."""
        faiss()
        plain = {name: array for name, array in arrays.items() if name not in _ARRAYS}
        own = {name: array for name, array in arrays.items() if name in _ARRAYS}
        return HNSWSearcher(Exact().restore(Z, plain, n_jobs), self, own or None)


class HNSWSearcher(ApproximateSearcher):
    """A faiss graph."""

    options: HNSW

    def _build(self, arrays: Arrays | None) -> None:
        package = faiss()
        self.scale = unit_scale(self.exact.half_norms)
        self.index = package.IndexHNSWFlat(self.exact.Z.shape[1], int(self.options.n_links))
        self.index.hnsw.efConstruction = int(self.options.ef_build)
        if arrays is None:
            self._extend()
            return
        graph = self.index.hnsw
        widths = package.vector_to_array(graph.cum_nneighbor_per_level)
        levels, links, entry = _checked(arrays, self.size, widths, int(self.options.n_links))
        for part in blocks(self.size, _BLOCK):
            self.index.storage.add(widened(self.exact.Z[part], self.scale))
        package.copy_array_to_vector(levels, graph.levels)
        package.copy_array_to_vector(_starts(levels, widths).astype(np.uint64), graph.offsets)
        package.copy_array_to_vector(links, graph.neighbors)
        graph.entry_point, graph.max_level = entry, int(levels.max()) - 1
        self.index.ntotal = self.size

    def _extend(self) -> None:
        with one_thread():
            self.index.add(widened(self.exact.Z[self.covered :], self.scale))

    def _candidates(self, Q: Floats, k: int) -> tuple[Ints, Ints]:
        wide = Q.astype(np.float64) * self.scale
        wide /= np.maximum(np.linalg.norm(wide, axis=1, keepdims=True) / _FAR, 1)
        # Removed rows take places among what is found.
        ef = min(self.n_known, max(int(self.options.ef), 2 * k) * self.n_known // self.n_known_left)
        with one_thread():
            options = faiss().SearchParametersHNSW(efSearch=ef)
            _, found = self.index.search(wide.astype(np.float32), ef, params=options)
        query, column = np.nonzero(found >= 0)
        return query, found[query, column]

    def _structure(self) -> dict[str, NDArray[Any]]:
        package, graph = faiss(), self.index.hnsw
        return {
            "hnsw_levels": package.vector_to_array(graph.levels),
            "hnsw_links": package.vector_to_array(graph.neighbors),
            "hnsw_entry": np.array([graph.entry_point], np.int32),
        }


def _starts(levels: NDArray[np.int32], widths: NDArray[np.int32]) -> Ints:
    """Where the links of each row begin, and where the last end."""
    return np.concatenate([[0], np.cumsum(widths[levels], dtype=np.int64)])


def _checked(arrays: Arrays, n: int, widths: NDArray[np.int32], n_links: int) -> tuple[Any, Any, int]:
    """Levels, links and the entry, if a walk along them stays within them."""
    fitting = set(arrays) == set(_ARRAYS) and all(array.dtype == np.int32 for array in arrays.values())
    if fitting:
        levels, links, entry = (np.ascontiguousarray(arrays[name]) for name in _ARRAYS)
        fitting = (
            levels.shape == (n,)
            and entry.shape == (1,)
            and links.ndim == 1
            and levels.min() >= 1
            and levels.max() < len(widths)
            and 0 <= entry[0] < n
            and levels[entry[0]] == levels.max()
            and len(links) == _starts(levels, widths)[-1]
            and links.min() >= -1
            and links.max() < n
        )
    if fitting:
        starts = _starts(levels, widths)
        for part in blocks(n, _BLOCK):
            own = links[starts[part.start] : starts[part.stop]]
            first = starts[part.start : part.stop] - starts[part.start]
            slot = np.arange(len(own)) - np.repeat(first, widths[levels[part]])
            # A link on level l must lead to a row that has that level.
            level = np.maximum(slot // n_links - 1, 0)
            fitting = fitting and not ((own >= 0) & (levels[own] <= level)).any()
    if not fitting:
        raise ValueError("the graph of the index does not fit")
    return levels, links, int(entry[0])
