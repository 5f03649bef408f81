"""Other losses for one regression per label: P@1/3/5 and seconds next to squares, linear and with an RBF kernel.

    RIPML_DATA=folder python benchmarks/losses.py [--quick] [--json PATH]

alpha is chosen on a held-out fifth of the training rows by the mean of P@1/3/5; then all training rows are fitted and
the test rows measured. Of Delicious 5,000 training rows are used; --quick measures Bibtex only. Rows of length 1,
float32, an unpenalised intercept, at most 20 steps. Seconds are those of the last fit, including the factorisation.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
from harness import Row, finish, has_data, options

from ripml import datasets, metrics
from ripml.lab.losses import Huber, Logistic, Loss, LossSolution, SquaredHinge, Squares, fit_loss
from ripml.model.features import unit_rows

CUTS = (1, 3, 5)
ROWS = 5000
GAMMA = 0.5
# The losses and where the search for alpha begins: lower for the logistic loss, which is flatter, and for the RBF
# kernel, whose entries vary less. It goes on by factors of 3 as long as that helps, so that no grid limits a loss.
LOSSES: dict[str, tuple[Loss, float]] = {
    "squares": (Squares(), 1.0),
    "huber": (Huber(0.5), 1.0),
    "logistic": (Logistic(), 0.1),
    "squared_hinge": (SquaredHinge(), 1.0),
}
RBF_SHARE = 0.3


def products(kernel: str, A: Any, B: Any) -> Any:
    """K(a, b) for rows of length 1: their cosine, or exp(−gamma ‖a − b‖²) = exp(2 gamma (cosine − 1))."""
    cosine = (A @ B.T).toarray()
    return cosine if kernel == "linear" else np.exp(2 * GAMMA * (cosine - 1))


def measured(Y: Any, scores: Any) -> list[float]:
    return [100 * metrics.precision_at_k(Y, scores, k=k) for k in CUTS]


class Problem:
    """Rows to fit and rows to measure: as features where the linear primal is cheaper, otherwise as a kernel."""

    def __init__(self, kernel: str, X: Any, Y: Any, X_new: Any, Y_new: Any) -> None:
        self.by_kernel = kernel != "linear" or X.shape[1] >= X.shape[0]
        self.X = products(kernel, X, X) if self.by_kernel else X
        self.X_new = products(kernel, X_new, X) if self.by_kernel else X_new
        self.Y, self.Y_new = Y, Y_new

    def solve(self, loss: Loss, alpha: float) -> tuple[LossSolution, list[float], float]:
        """The solution, its P@1/3/5 and its seconds."""
        start = time.perf_counter()
        solution = fit_loss(self.X, self.Y, loss, alpha, kernel=self.by_kernel, tol=1e-3)
        seconds = time.perf_counter() - start
        return solution, measured(self.Y_new, solution.scores(self.X_new)), seconds

    def best_alpha(self, loss: Loss, start: float) -> float:
        """The alpha, among start · 3^i, past which the mean of P@1/3/5 falls on either side."""
        quality = functools.cache(lambda power: float(np.mean(self.solve(loss, start * 3.0**power)[1])))
        power = 0
        for direction in (1, -1):
            while quality(power + direction) > quality(power):
                power += direction
        return start * 3.0**power


def compared(name: str, kernel: str) -> list[Row]:
    """The rows of the table for a data set and a kernel."""
    train, test = datasets.load(name)
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.permutation(train.X.shape[0])[:ROWS])
    X, Y, X_test = unit_rows(train.X[chosen]), train.Y[chosen], unit_rows(test.X)
    held_out = rng.random(X.shape[0]) < 0.2
    trial = Problem(kernel, X[~held_out], Y[~held_out], X[held_out], Y[held_out])
    whole = Problem(kernel, X, Y, X_test, test.Y)
    rows: list[Row] = []
    rival, unit = [0.0], 0.0
    for word, (loss, start) in LOSSES.items():
        alpha = trial.best_alpha(loss, start * (RBF_SHARE if kernel == "rbf" else 1))
        solution, found, seconds = whole.solve(loss, alpha)
        if word == "squares":  # the first
            rival, unit = found, seconds
        title = f"{name}, {kernel}, {word}"
        rows += [
            (f"{title}: P@{k}", value, f"squares {other:.2f}")
            for k, value, other in zip(CUTS, found, rival, strict=True)
        ]
        state = "converged" if solution.converged else "cut short"
        rows.append((f"{title}: seconds / squares", seconds / unit, f"{solution.steps} steps, {state}"))
        rows.append((f"{title}: alpha", alpha, "chosen on training rows"))
    return rows


def main() -> None:
    arguments = options(__doc__ or "")
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex, delicious and wikispeedia")
        return
    rows: list[Row] = []
    for name in ("bibtex",) if arguments.quick else ("bibtex", "delicious", "wikispeedia"):
        for kernel in ("linear", "rbf"):
            rows += compared(name, kernel)
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
