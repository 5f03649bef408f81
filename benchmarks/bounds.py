"""Training and exact batch prediction, compared with the bare BLAS and SciPy calls that they need, in one run.

    python benchmarks/bounds.py [--quick] [--json PATH]

Uses EUR-Lex if RIPML_DATA has it, otherwise random sparse data of the same shape (--quick: a quarter of the rows and
features). Linear, m = 100, F = 5, so M = 500 targets; `ridge` is given, so that one solution is compared with one
solution. A fit needs at least Z = Y Phiᵀ, XᵀX and XᵀZ as sparse products, one Cholesky factorisation and one solve. A
prediction needs X Psi as one sparse product, and for each learner a product of all queries with all distinct label
sets. BLAS runs on all cores; SciPy's sparse products use one thread.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from harness import Row, finish, has_data, options, side_by_side

from ripml import RIPML, datasets
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import Projection

M, F, K, RIDGE = 100, 5, 5, 0.3


def eurlex(quick: bool) -> tuple[Any, Any, Any]:
    if has_data():
        train, test = datasets.load("eurlex")
        X, Y, X_new = train.X, train.Y, test.X
    else:
        rng = np.random.default_rng(0)
        X = scipy.sparse.random_array((17_383, 5_000), density=0.024, rng=rng, format="csr", dtype=np.float32)
        X_new = scipy.sparse.random_array((1_931, 5_000), density=0.024, rng=rng, format="csr", dtype=np.float32)
        Y = scipy.sparse.random_array((17_383, 3_675), density=0.0014, rng=rng, format="csr", dtype=np.float32)
        Y.data[:] = 1
    return (X[::4, ::4], Y[::4], X_new[:, ::4]) if quick else (X, Y, X_new)


def main() -> None:
    arguments = options(__doc__ or "")
    X, Y, X_new = eurlex(arguments.quick)
    columns = Projection(Gaussian(), M, F, seed=0).columns(np.arange(Y.shape[1], dtype=np.uint64))
    scale = scipy.sparse.diags_array(1 / np.sqrt(np.maximum(Y.sum(axis=1), 1)), dtype=np.float32)
    parts: dict[str, float] = {}

    def timed(name: str, start: float) -> float:
        now = time.perf_counter()
        parts[name] = min(parts.get(name, float("inf")), now - start)
        return now

    def bare_fit() -> None:
        start = time.perf_counter()
        Z = (scale @ Y).tocsr() @ columns
        start = timed("bare embedding", start)
        wide = X.astype(np.float64)
        gram = (wide.T.tocsr() @ wide).toarray()
        start = timed("bare XᵀX", start)
        moment = wide.T @ Z
        start = timed("bare XᵀZ", start)
        gram.flat[:: len(gram) + 1] += RIDGE
        factor = scipy.linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
        start = timed("bare factorisation", start)
        scipy.linalg.cho_solve(factor, moment, check_finite=False)
        timed("bare solve", start)

    model = RIPML.paper(n_dims=M, n_neighbors=K, ridge=RIDGE, random_state=0)
    rounds = 2 if arguments.quick else 3
    fits = side_by_side({"fit": lambda: model.fit(X, Y), "bare fit": bare_fit}, rounds)
    cluster = model.clusters_[0]
    Psi, embeddings = cluster.regression.arrays()["Psi"], cluster.index.Z

    def bare_prediction() -> None:
        queries = np.split((X_new @ Psi).astype(np.float32), F, axis=1)
        for query, Z in zip(queries, embeddings, strict=True):
            query @ Z.T

    predictions = side_by_side(
        {"prediction": lambda: model.decision_function(X_new), "bare prediction": bare_prediction}, 2 * rounds
    )
    rows: list[Row] = [(f"{name}, s", value, "") for name, value in {**parts, **fits, **predictions}.items()]
    rows += [
        ("fit / bare calls", fits["fit"] / fits["bare fit"], "≤ 1.5"),
        ("prediction / bare product", predictions["prediction"] / predictions["bare prediction"], "≤ 2"),
        ("µs a row", 1e6 * predictions["prediction"] / X_new.shape[0], ""),
    ]
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
