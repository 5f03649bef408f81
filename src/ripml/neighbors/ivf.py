"""Inverted lists of four-bit codes: a quick scan of small codes proposes, the verdict of float64 decides.

The nearest rows have the largest score ⟨z, q⟩ − ½‖z‖². Rows (z, −½‖z‖²) are cut into pairs of columns and each pair is
replaced by one of 16 (product quantisation, Jégou, Douze and Schmid 2011), half a byte a pair. A score is then a sum of
table entries, made in the registers of the processor for 32 rows at a time (André, Kermarrec and Le Scouarnec 2015, as
in faiss). −½‖z‖² is written in two digits of 16 levels. The rows of the best scores are the candidates.

ẑ is shorter than z, and the shorter it is the more a distance depends on ‖z‖ alone. So the shortest rows are
candidates of every query of less than half their length: a score of rounded entries cannot tell them apart.

Rows may further lie in lists around k-means centres, of which the nearest `n_probe` are scanned. Label embeddings have
little such structure: on the sets measured, 0.95 of the neighbours lie in the nearest sixth to nine tenths of the rows
(docs/dependencies.md). Hence one list, unless `n_probe` is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError, check_count
from ripml.base.parallel import blocks, map_blocks
from ripml.neighbors.approximate import LEAST, ApproximateSearcher, faiss, one_thread, unit_scale, widened
from ripml.neighbors.base import Arrays, Floats, Index, Ints, Stored
from ripml.neighbors.exact import Exact

__all__ = ["IVF"]

_SAMPLE = 32_768  # rows that codes are learnt from
_POINTS = 64  # rows a list that centres are learnt from
_LEVELS = 16
_BLOCK = 16_384
_ARRAYS = ("ivf_codes", "ivf_centres", "ivf_levels")


@dataclass(frozen=True)
class IVF(Index):
    """Scan four-bit codes, then compare with the best `n_candidates` rows.

    `n_lists` "auto" is one list, or √n where `n_probe` is given; `n_probe` "auto" is all of them. `n_candidates` grows
    to 10 k where more neighbours are asked for. Needs faiss: `pip install 'ripml[index]'`.

    >>> IVF(n_probe=8)
    IVF(storage='float32', n_lists='auto', n_probe=8, n_candidates=500)
    """

    n_lists: int | str = "auto"
    n_probe: int | str = "auto"
    n_candidates: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_lists", "n_probe"):
            if getattr(self, name) != "auto":
                check_count(name, getattr(self, name), "'auto' or ")
        check_count("n_candidates", self.n_candidates)
        if isinstance(self.n_lists, int) and isinstance(self.n_probe, int) and self.n_probe > self.n_lists:
            raise ParameterError(f"`n_probe` must not exceed `n_lists`; got {self.n_probe} of {self.n_lists} lists.")

    def build(self, Z: Stored, n_jobs: int | None = None) -> IVFSearcher:
        """Learn centres and codes from Z and encode its rows; the same for any number of threads."""
        faiss()
        return IVFSearcher(Exact().build(Z, n_jobs), self)

    def restore(self, Z: Stored, arrays: Arrays, n_jobs: int | None = None) -> IVFSearcher:
        """Encode the rows of Z by the centres and codes that were learnt."""
        faiss()
        plain = {name: array for name, array in arrays.items() if name not in _ARRAYS}
        own = {name: array for name, array in arrays.items() if name in _ARRAYS}
        return IVFSearcher(Exact().restore(Z, plain, n_jobs), self, own or None)


class IVFSearcher(ApproximateSearcher):
    """A faiss index of codes, one call a query: so a batch has the answers of its queries one by one."""

    options: IVF

    def _build(self, arrays: Arrays | None) -> None:
        m = self.exact.Z.shape[1]
        self.width = m + m % 2 + 4
        if arrays is None:
            self.scale = unit_scale(self.exact.half_norms)
            self.levels = self._learnt_levels()
            self.centres, self.codes = map_blocks(lambda _: self._learnt(), [0], 1)[0]
        else:
            self._take(arrays)
        package = faiss()
        self.quantizer = package.IndexFlatL2(self.width)
        self.quantizer.add(self.centres)
        self.index = package.IndexIVFPQFastScan(
            self.quantizer, self.width, len(self.centres), self.width // 2, 4, package.METRIC_INNER_PRODUCT
        )
        self.index.by_residual = False
        package.copy_array_to_vector(self.codes.ravel(), self.index.pq.centroids)
        self.index.is_trained = True
        lists = len(self.centres)
        self.index.nprobe = lists if self.options.n_probe == "auto" else min(int(self.options.n_probe), lists)
        self._extend()

    def _take(self, arrays: Arrays) -> None:
        fitting = set(arrays) == set(_ARRAYS) and all(array.dtype == np.float32 for array in arrays.values())
        if fitting:
            codes, centres, levels = (np.ascontiguousarray(arrays[name]) for name in _ARRAYS)
            fitting = (
                codes.shape == (self.width // 2, _LEVELS, 2)
                and centres.ndim == 2
                and centres.shape[1:] == (self.width,)
                and self._may_have(len(centres))
                and levels.shape == (3,)
                and all(np.isfinite(array).all() and np.abs(array).max() <= 1e30 for array in (codes, centres, levels))
                and levels[0] > 0
            )
        if not fitting:
            raise ValueError("the lists and codes of the index do not fit")
        self.scale = float(levels[0])
        self.codes, self.centres, self.levels = codes, centres, levels[1:]

    def _structure(self) -> dict[str, NDArray[Any]]:
        levels = np.array([self.scale, *self.levels], np.float32)
        return {"ivf_codes": self.codes, "ivf_centres": self.centres, "ivf_levels": levels}

    # ------------------------------------------------------------------------------------------------------- learning

    def _learnt_levels(self) -> Floats:
        """The least and the largest ½‖z‖² in the units of the index."""
        half = self.exact.half_norms[np.isfinite(self.exact.half_norms)] * self.scale**2
        return np.array([half.min(), half.max()], np.float32)

    def _lists(self) -> int:
        """How many lists the options ask for, as many as rows at most."""
        n_lists, n_probe = self.options.n_lists, self.options.n_probe
        if n_lists == "auto":
            n_lists = 1 if n_probe == "auto" else max(int(n_probe), round(np.sqrt(self.size)))
        return min(int(n_lists), self.size)

    def _may_have(self, lists: int) -> bool:
        """Whether these options may give so many lists: there may have been fewer rows when they were made."""
        n_lists, n_probe = self.options.n_lists, self.options.n_probe
        if n_lists == "auto":
            return lists == 1 if n_probe == "auto" else int(n_probe) <= lists <= self.size
        return lists == n_lists or LEAST <= lists < min(int(n_lists), self.size + 1)

    def _learnt(self) -> tuple[Floats, Floats]:
        package = faiss()
        n, m = self.exact.Z.shape
        n_lists = self._lists()
        centres = np.zeros((n_lists, self.width), np.float32)
        with one_thread():
            if n_lists > 1:
                some = widened(self.exact.Z[_spread(n, _POINTS * n_lists)], self.scale)
                means = package.Kmeans(m, n_lists, niter=10, seed=1, min_points_per_centroid=1)
                means.train(some)
                centres[:, :m] = means.centroids
            coder = package.ProductQuantizer(self.width, self.width // 2, 4)
            coder.cp.min_points_per_centroid = 1  # no warning where rows are few
            coder.train(self._rows(_spread(n, _SAMPLE)))
        codes = package.vector_to_array(coder.centroids).reshape(self.width // 2, _LEVELS, 2).copy()
        # The digits of −½‖z‖²: sixteen levels from least to largest, then sixteen steps between two of them.
        low, high = self.levels
        step = (high - low) / (_LEVELS - 1)
        codes[-2:] = 0
        codes[-2, :, 0] = -np.linspace(low, high, _LEVELS)
        codes[-1, :, 0] = np.linspace(-step / 2, step / 2, _LEVELS)
        return centres, codes

    def _rows(self, places: Any) -> Floats:
        """(z, 0 …, −½‖z‖² in two digits) of rows at these places."""
        Z = widened(self.exact.Z[places], self.scale)
        low, high = self.levels
        half = np.einsum("ij,ij->i", Z, Z) / 2
        step = max((high - low) / (_LEVELS - 1), np.float32(1e-30))
        coarse = low + step * np.clip(np.round((half - low) / step), 0, _LEVELS - 1)
        rows = np.zeros((len(Z), self.width), np.float32)
        rows[:, : Z.shape[1]] = Z
        rows[:, -4], rows[:, -2] = -coarse, coarse - half
        return rows

    def _extend(self) -> None:
        with one_thread():
            for part in blocks(self.size - self.covered, _BLOCK):
                self.index.add(self._rows(slice(self.covered + part.start, self.covered + part.stop)))
        wanted = min(self.options.n_candidates, self.size)
        self.shortest = np.argpartition(self.exact.half_norms, wanted - 1)[:wanted]

    # ------------------------------------------------------------------------------------------------------ searching

    def _candidates(self, Q: Floats, k: int) -> tuple[Ints, Ints]:
        queries = np.zeros((len(Q), self.width))
        queries[:, : Q.shape[1]] = Q.astype(np.float64) * self.scale
        length = np.linalg.norm(queries, axis=1, keepdims=True)
        queries[:, [-4, -2]] = 1
        queries /= np.maximum(length, 1)  # the order of scores stays, and a long query does not overflow
        wide = queries.astype(np.float32)
        # Removed rows keep their codes and take places among the candidates.
        wanted = min(self.n_known, max(self.options.n_candidates, 10 * k) * self.n_known // self.n_known_left)
        with one_thread():
            found = np.stack([self.index.search(wide[row : row + 1], wanted)[1][0] for row in range(len(Q))])
        query, column = np.nonzero(found >= 0)
        low = np.flatnonzero(length[:, 0] ** 2 < self.levels[0] / 2)  # ‖q‖ < ½ min ‖z‖ as built
        shortest = np.broadcast_to(self.shortest, (len(low), len(self.shortest)))
        return (
            np.concatenate([query, np.repeat(low, len(self.shortest))]),
            np.concatenate([found[query, column], shortest.ravel()]),
        )


def _spread(n: int, most: int) -> Ints:
    """At most `most` places, spread evenly over n."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64))
