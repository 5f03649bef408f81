"""How long a fit takes, step by step, by the operations that each needs: for the time that is left, see `progress`.

The estimates are rough, and seconds of one machine with two cores; the steps that are done say how fast another one is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse

from ripml.base import progress

__all__ = ["Forecast"]

_DENSE, _SPARSE = 1e11, 3e9  # operations a second: of BLAS and LAPACK, and with the stored entries of sparse rows
_TRIES, _TARGETS = 10, 512  # settings that are tried on a sample, and labels there
_ROW = 3e-4  # seconds to score a left-out row and learn from it


@dataclass
class Forecast:
    """The estimated seconds of the steps of a fit that are still to come."""

    seconds: dict[str, float]

    @classmethod
    def of(
        cls, X: Any, n_targets: int, n_clusters: int, linear: bool, steps: int, n_sample: int, n_left_out: int
    ) -> Forecast:
        """For rows X (n, d): `steps` are those of an iterative solver, 0 for a factorisation.

        `n_sample` rows are fitted to choose settings, 0 where all are given.
        """
        n, d = X.shape[0] / n_clusters, X.shape[1]
        stored = X.nnz if scipy.sparse.issparse(X) else X.shape[0] * d
        side = min(n, d) if linear else n
        products = min(stored * side / n_clusters, n * side * d) / _SPARSE
        factor = (side**3 / 3 + 2 * side**2 * n_targets) / _DENSE
        iterations = 4 * steps * stored / n_clusters * n_targets / _DENSE
        one = iterations if steps else products + factor
        tried = _TRIES * (2 / 3 * n_sample**3 + 2 * n_sample**2 * _TARGETS) / _DENSE
        clusters = {f"cluster {c}": one + 0.1 for c in range(n_clusters)}
        return cls({"settings": tried, **clusters, "left out": 0.1 + _ROW * min(n_left_out, X.shape[0] / 2)})

    def step(self, name: str, message: str) -> None:
        """Say that a step begins; those before it are over."""
        seconds, names = 0.0, list(self.seconds)
        for passed in names[: names.index(name) + 1]:
            seconds = self.seconds.pop(passed)
        progress.step(message, seconds, sum(self.seconds.values()))
