"""The coefficients of labels themselves, Psi Phiᵀ (d, L), which find the labels of the largest ⟨Φ_l, ẑ⟩ quickly.

The product of a sparse row with them reads one line for each of its features, where ⟨Φ_l, ẑ⟩ of all labels reads all
columns of Phi. They are kept in 16 bits; a bound on what that changes leaves a few labels more than were asked for,
whose values are then computed exactly. So the result is the same with and without them, and they are made only when a
model has answered so many rows that they pay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import as_half, from_half
from ripml.base.compiled import loops
from ripml.base.parallel import blocks

__all__ = ["LabelCoefficients", "LazyLabelCoefficients"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Lines = Callable[[slice], Floats]  # features ↦ their lines of Psi

_MOST = 1 << 26  # coefficients: 128 MB
_PAYS = 4  # they are made after as many rows as a fourth of the features: about what the product costs
_FEATURES = 256  # made at a time
_LARGEST = 2.0**15  # float16 ends at 65,504
_ROUNDING = np.float32(1e-6)  # of a float32 sum, relative to the sum of absolute values


class LabelCoefficients:
    """Psi Phiᵀ in float16, in units of `unit`, of regressions with `lines` of Psi (d, M) and columns Phi (L, M)."""

    def __init__(self, lines: Lines, d: int, intercept: Floats, Phi: Floats) -> None:
        parts = blocks(d, _FEATURES)
        longest = max((float(np.linalg.norm(lines(part), axis=1).max()) for part in parts), default=0.0)
        # A coefficient is at most the product of two lengths, so that none exceeds the range of float16.
        most = longest * float(np.linalg.norm(Phi, axis=1).max(initial=0))
        self.unit = 2.0 ** np.ceil(np.log2(max(most, 1e-30) / _LARGEST))
        self.matrix = np.empty((d, len(Phi)), np.float16)
        self.errors = np.empty(d, np.float32)  # the most that a coefficient of each feature is off
        self.intercept = Phi @ intercept
        for features in parts:
            exact = lines(features) @ Phi.T
            self.matrix[features] = as_half(exact, self.unit)[0]
            off = np.abs(from_half(self.matrix[features]) * np.float32(self.unit) - exact).max(axis=1, initial=0)
            self.errors[features] = off + _ROUNDING * np.abs(exact).max(axis=1, initial=0)

    def largest(self, X: Any, Z: Floats, Phi: Floats, present: NDArray[np.bool_], k: int) -> Ints:
        """The k labels of the largest ⟨Φ_l, ẑ⟩ (n, k) of CSR rows X with predictions Z, of those `present` (L,)."""
        out = np.empty((len(Z), k), np.int64)
        loops().likely_labels(
            X.indptr, X.indices, X.data, self.matrix.view(np.uint16), np.float32(self.unit), self.errors,
            self.intercept, Phi, Z, present, out,
        )  # fmt: skip
        return out


class LazyLabelCoefficients:
    """The coefficients of one regression, once they pay."""

    def __init__(self) -> None:
        self._made: tuple[Floats, LabelCoefficients] | None = None
        self._n_rows, self._making, self._lock = 0, False, threading.Lock()

    def get(self, Phi: Floats) -> LabelCoefficients | None:
        """The coefficients for labels of these columns, if they were made."""
        made = self._made
        return made[1] if made is not None and made[0] is Phi else None

    def expect(self, n_rows: int, lines: Lines, d: int, intercept: Floats, Phi: Floats) -> None:
        """Make the coefficients if they pay with `n_rows` more rows: for a large batch now, else beside the answers."""
        if self.get(Phi) is not None or loops() is None or d * len(Phi) > _MOST:
            return
        with self._lock:
            self._n_rows += n_rows
            if self._making or self._n_rows * _PAYS <= d:
                return
            self._making = True

        def make() -> None:
            self._made = Phi, LabelCoefficients(lines, d, intercept, Phi)
            self._making = False

        if n_rows * _PAYS > d:
            make()
        else:
            threading.Thread(target=make, name="ripml label coefficients", daemon=True).start()
