"""Inverted lists of four-bit codes: a fast scan of the codes proposes candidates, float64 distances rank them.

The nearest rows have the largest score ⟨z, q⟩ − ½‖z‖². Rows (z, −½‖z‖²) are cut into pairs of columns and each pair is
replaced by one of 16 values (product quantisation, Jégou, Douze and Schmid 2011), half a byte per pair. A score is then
a sum of table entries, made in the registers of the processor for 32 rows at a time (André, Kermarrec and Le Scouarnec
2015, as in faiss). −½‖z‖² is written in two digits of 16 levels. The rows with the best scores are the candidates.

ẑ is shorter than z, and the shorter it is the more a distance depends on ‖z‖ alone. So the shortest rows are
candidates of every query of less than half their length: a score of rounded entries cannot tell them apart.

Rows may further lie in lists around k-means centres, of which the nearest `n_probe` are scanned. Label embeddings
hardly form clusters: on the sets measured, 0.95 of the neighbours lie in the nearest sixth to nine tenths of the rows
(docs/dependencies.md). Hence one list, unless `n_probe` is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec
from ripml.base.errors import ParameterError, check_count
from ripml.base.parallel import blocks, one_blas_thread
from ripml.neighbors.approximate import (
    LEAST,
    ApproximateIndex,
    ApproximateSearcher,
    faiss,
    one_thread,
    unit_scale,
    widened,
)
from ripml.neighbors.base import Arrays, Floats, Ints
from ripml.neighbors.exact import ExactSearcher

__all__ = ["IVF"]

_SAMPLE = 32_768  # rows that codes are learnt from
_POINTS = 64  # rows per list that centres are learnt from
_LEVELS = 16
_BLOCK = 16_384


@dataclass(frozen=True)
class IVF(ApproximateIndex):
    """Scan four-bit codes, then compare with the best `n_candidates` rows.

    `n_lists` "auto" is one list, or √n where `n_probe` is given; `n_probe` "auto" is all of them. `n_candidates` grows
    to 10 k where k is large. Needs faiss: `pip install 'ripml[index]'`.

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

    def _searcher(self, exact: ExactSearcher, arrays: Arrays | None) -> IVFSearcher:
        faiss()  # raises if it is not installed, also for few rows, which do not need it
        return IVFSearcher(exact, self, arrays)


class IVFSearcher(ApproximateSearcher):
    """A faiss index of codes, called for one query at a time, so that a batch gives the answers of single queries."""

    options: IVF

    @property
    def width(self) -> int:
        """Columns of an encoded row: the embedding, filled up to an even number, and two digits of −½‖z‖²."""
        m: int = self.exact.Z.shape[1]
        return m + m % 2 + 4

    def _specs(self) -> dict[str, ArraySpec]:
        bounds: Any = {"least": -1e30, "most": 1e30}
        return {
            "ivf_codes": ArraySpec("float32", (self.width // 2, _LEVELS, 2), **bounds),
            "ivf_centres": ArraySpec("float32", (None, self.width), **bounds),
            "ivf_levels": ArraySpec("float32", (3,), **bounds),
        }

    def _build(self, arrays: Arrays | None) -> None:
        if arrays is None:
            self.scale = unit_scale(self.exact.half_norms)
            self.levels = self._norm_levels()
            with one_blas_thread():
                self.centres, self.codes = self._learn_codes()
        else:
            self.codes, self.centres = arrays["ivf_codes"], arrays["ivf_centres"]
            self.scale, self.levels = float(arrays["ivf_levels"][0]), arrays["ivf_levels"][1:]
            if self.scale <= 0 or not self._may_have(len(self.centres)):
                raise ValueError("the arrays 'ivf_levels' and 'ivf_centres' do not fit the options of the index")
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

    def _structure(self) -> dict[str, NDArray[Any]]:
        levels = np.array([self.scale, *self.levels], np.float32)
        return {"ivf_codes": self.codes, "ivf_centres": self.centres, "ivf_levels": levels}

    def _norm_levels(self) -> Floats:
        """The least and the largest ½‖z‖² in the units of the index."""
        half = self.exact.half_norms[np.isfinite(self.exact.half_norms)] * self.scale**2
        return np.array([half.min(), half.max()], np.float32)

    def _lists(self) -> int:
        """The number of lists by the options, at most one per row."""
        n_lists, n_probe = self.options.n_lists, self.options.n_probe
        if n_lists == "auto":
            n_lists = 1 if n_probe == "auto" else max(int(n_probe), round(np.sqrt(self.size)))
        return min(int(n_lists), self.size)

    def _may_have(self, lists: int) -> bool:
        """Whether these options can have given this number of lists, perhaps when there were fewer rows."""
        n_lists, n_probe = self.options.n_lists, self.options.n_probe
        if n_lists == "auto":
            return lists == 1 if n_probe == "auto" else int(n_probe) <= lists <= self.size
        return lists == n_lists or LEAST <= lists < min(int(n_lists), self.size + 1)

    def _learn_codes(self) -> tuple[Floats, Floats]:
        """The centres of the lists, and the 16 values of each pair of columns."""
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
            coder.cp.min_points_per_centroid = 1  # no warning for few rows
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
