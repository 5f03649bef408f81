"""Greedy search in a graph of near rows with several levels (Malkov and Yashunin 2018), by faiss.

Each row is linked to `n_links` near ones, 2·`n_links` on the lowest level. A search goes down from the sparse levels to
the dense one and there keeps the `ef` nearest rows seen; their distances are then computed in float64. The graph is
built on one thread, so that it is the same each time, and holds a float32 copy of the rows. It costs a search among
`ef_build` rows for each row: minutes for hundreds of thousands. Removed rows stay in the graph, as paths lead through
them. Label embeddings are nearly equidistant, so that a good answer needs a large `ef`: see docs/dependencies.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec
from ripml.base.errors import check_count
from ripml.base.parallel import blocks
from ripml.neighbors.approximate import ApproximateIndex, ApproximateSearcher, faiss, one_thread, unit_scale, widened
from ripml.neighbors.base import Arrays, Floats, Ints
from ripml.neighbors.exact import ExactSearcher

__all__ = ["HNSW"]

_BLOCK = 65_536
_FAR = np.float32(1e6)


@dataclass(frozen=True)
class HNSW(ApproximateIndex):
    """Search in a graph of near rows. Needs faiss: `pip install 'ripml[index]'`.

    `n_links` and `ef_build` make a better graph for more time and memory, `ef` a better answer for more time.

    >>> HNSW(ef=400)
    HNSW(storage='float32', n_links=16, ef_build=100, ef=400)
    """

    n_links: int = 16
    ef_build: int = 100
    ef: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_links", self.n_links, least=2, most=1024)
        check_count("ef_build", self.ef_build, most=1 << 20)
        check_count("ef", self.ef, most=1 << 20)

    def _searcher(self, exact: ExactSearcher, arrays: Arrays | None) -> HNSWSearcher:
        faiss()  # raises if it is not installed, also for few rows, which do not need it
        return HNSWSearcher(exact, self, arrays)


class HNSWSearcher(ApproximateSearcher):
    """A faiss graph."""

    options: HNSW

    def _specs(self) -> dict[str, ArraySpec]:
        n = self.size
        return {
            "hnsw_levels": ArraySpec("int32", (n,), least=1),
            "hnsw_links": ArraySpec("int32", (None,), least=-1, below=n),
            "hnsw_entry": ArraySpec("int32", (1,), least=0, below=n),
        }

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
        levels, links, entry = arrays["hnsw_levels"], arrays["hnsw_links"], int(arrays["hnsw_entry"][0])
        _check_graph(levels, links, entry, widths, int(self.options.n_links))
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
        # Removed rows are among the rows found, so look for more.
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


def _check_graph(
    levels: NDArray[np.int32], links: NDArray[np.int32], entry: int, widths: NDArray[np.int32], n_links: int
) -> None:
    """ValueError unless every walk along the links stays within the graph."""
    if levels.max() >= len(widths) or levels[entry] < levels.max():
        raise ValueError("the array 'hnsw_levels' has a level that is too high, or that the entry is below")
    starts = _starts(levels, widths)
    if len(links) != starts[-1]:
        raise ValueError(f"the array 'hnsw_links' has {len(links)} links, but its levels need {starts[-1]}")
    for part in blocks(len(levels), _BLOCK):
        targets = links[starts[part.start] : starts[part.stop]]
        first = starts[part.start : part.stop] - starts[part.start]
        slot = np.arange(len(targets)) - np.repeat(first, widths[levels[part]])
        # A link on level l must lead to a row that has level l. Level 0 has 2·n_links slots, the others n_links each.
        level = np.maximum(slot // n_links - 1, 0)
        if ((targets >= 0) & (levels[targets] <= level)).any():
            raise ValueError("the array 'hnsw_links' has a link to a row that does not have the level of the link")
