"""The four ways to Psi on the same data: how far apart they are, and what each costs beside the closed form.

    python benchmarks/solvers.py [--quick] [--json PATH]

Bibtex where RIPML_DATA has it, else random sparse data of its shape; float64, rows of length 1, alpha = 10, 10 targets.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse
from harness import Row, finish, has_data, options, side_by_side
from sklearn.preprocessing import normalize

from ripml import datasets
from ripml.regression import ConjugateGradient, Dual, GradientDescent, Primal, RidgeSolver, Solution


def main() -> None:
    arguments = options(__doc__ or "")
    if has_data():
        X = datasets.load("bibtex")[0].X
    else:
        X = scipy.sparse.random_array((4880, 1836), density=0.037, rng=np.random.default_rng(0), format="csr")
    X = normalize(X.astype(np.float64))
    if arguments.quick:
        X = X[::4]
    Z = np.random.default_rng(1).standard_normal((X.shape[0], 10))
    solvers = (Primal(), Dual(), ConjugateGradient(), GradientDescent())
    found: dict[str, Solution] = {}

    def solve(solver: RidgeSolver) -> None:
        found[solver.word] = solver.prepare(X, Z)(10.0)

    taken = side_by_side({solver.word: partial(solve, solver) for solver in solvers}, 1)
    reference = found["primal"].Psi
    rows: list[Row] = []
    for word, solution in found.items():
        error = float(np.linalg.norm(solution.Psi - reference) / np.linalg.norm(reference))
        rows += [
            (f"{word}: relative distance to primal", error, "≤ 1e-4"),
            (f"{word}: seconds / primal", taken[word] / taken["primal"], f"{solution.steps} steps"),
        ]
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
