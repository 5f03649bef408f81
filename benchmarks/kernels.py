"""Approximations of kernel ridge for when the kernel matrix of all rows is too large, compared with it in one run.

    RIPML_DATA=folder python benchmarks/kernels.py [--quick] [--json PATH]

The reference is one-vs-all ridge on Y with an RBF kernel in closed form. On the same rows it is compared with linear
ridge, random Fourier features, Nyström features of landmarks drawn evenly or by leverage, the features together with
Nyström features, and kernel ridge on the rows nearest to each query (`Local`). Rows have length 1; kernel width and
ridge are those that the default chose on Bibtex, Delicious and EUR-Lex. Times of training and of one test row are
multiples of the reference's. --quick uses Bibtex only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from harness import Row, finish, has_data, options
from sklearn.kernel_approximation import RBFSampler

from ripml import datasets, metrics
from ripml.base.parallel import blocks, map_blocks
from ripml.decoding.training_rows import TrainingRows
from ripml.decoding.votes import tally
from ripml.model.features import unit_rows
from ripml.regression import Primal
from ripml.regression.kernel_ridge import solve_kernel
from ripml.regression.kernels import RBF, Local, Rows, squared_lengths

CUTS = (1, 3, 5)
GAMMA, ALPHA = 0.5, {"bibtex": 0.3, "delicious": 1.0, "eurlex": 0.1}
LANDMARKS, RANDOM, PILOT = 3000, 4000, 1000
WEIGHT = 2.0  # of the Nyström features next to the features themselves
NEAREST = (50, 200, 400)

Fit = Callable[[], Any]  # trains and returns a function from test rows to scores


def rbf(X: Any, rows: Any) -> Any:
    return RBF(GAMMA).between(X, Rows(rows))


def mark(X: Any, Y: Any, alpha: float) -> Any:
    """Kernel ridge in closed form on all rows."""
    C = solve_kernel(RBF(GAMMA).lower_triangle(X), Y.toarray(), alpha, 0).coefficients
    return lambda X_new: rbf(X_new, X) @ C


def on_features(X: Any, Y: Any, alpha: float, features: Callable[[Any], Any]) -> Any:
    """Ridge in closed form on features computed from the rows."""
    Psi = Primal("float32").prepare(features(X), Y)(alpha).Psi
    return lambda X_new: np.asarray(features(X_new) @ Psi)


def nystroem(landmarks: Any) -> Callable[[Any], Any]:
    """x ↦ K(x, C) G⁻ᵀ with GGᵀ = K(C, C): their products are the kernel, except for what C does not span."""
    K = rbf(landmarks, landmarks)
    K.flat[:: len(K) + 1] += 1e-4
    G = np.linalg.cholesky(K)
    return lambda X: scipy.linalg.solve_triangular(G, rbf(X, landmarks).T, lower=True).T


def by_leverage(X: Any, alpha: float, rng: np.random.Generator) -> Any:
    """Rows drawn by ridge leverage, estimated from a pilot of evenly drawn landmarks."""
    B = nystroem(X[rng.permutation(X.shape[0])[:PILOT]])(X)
    half = scipy.linalg.solve_triangular(np.linalg.cholesky(B.T @ B + alpha * np.eye(PILOT)), B.T, lower=True)
    # The diagonal of K is 1; the part that the pilot does not span counts in full.
    leverage = np.einsum("ij,ij->j", half, half) + np.maximum(1 - np.einsum("ij,ij->i", B, B), 0) / (1 + alpha)
    return X[rng.choice(X.shape[0], LANDMARKS, replace=False, p=leverage / leverage.sum())]


def nearby(X: Any, Y: Any, alpha: float, n_rows: int) -> Any:
    """Kernel ridge on the rows nearest to each query."""
    numbers, kernel = np.arange(X.shape[0]), Local(GAMMA, alpha, n_rows)
    rows = TrainingRows(Rows(X), numbers, numbers, kernel)  # row i carries the label set i

    def scores(X_new: Any) -> Any:
        def of_block(block: slice) -> Any:
            some = X_new[block]
            ids, likeness = rows.most_similar(rows.likeness(some, 1), n_rows)
            (weights,) = rows.local_weights(ids, likeness, squared_lengths(some), [kernel])
            return tally(ids, weights, Y)

        rows.likeness(X_new[:1], 1)  # made before threads need it
        return scipy.sparse.vstack(map_blocks(of_block, blocks(X_new.shape[0], 128)), format="csr")

    return scores


def compared(name: str) -> list[Row]:
    """The rows of the table for one data set."""
    train, test = datasets.load(name)
    labelled = np.diff(train.Y.indptr) > 0
    X, Y = unit_rows(train.X[labelled].astype(np.float32)), train.Y[labelled].astype(np.float32)
    X_test, alpha, rng = unit_rows(test.X.astype(np.float32)), ALPHA[name], np.random.default_rng(0)
    evenly = X[rng.permutation(X.shape[0])[:LANDMARKS]]

    def added() -> Any:
        features = nystroem(evenly)
        both = lambda X: np.hstack([X.toarray(), WEIGHT * features(X)])  # noqa: E731
        return on_features(X, Y, alpha * (1 + WEIGHT**2), both)  # the combined kernel is larger by this factor

    methods: dict[str, Fit] = {
        "kernel ridge": lambda: mark(X, Y, alpha),
        "linear ridge": lambda: on_features(X, Y, 1.0, lambda X: X),
        f"{RANDOM} random features": lambda: on_features(
            X, Y, alpha, RBFSampler(gamma=GAMMA, n_components=RANDOM, random_state=0).fit(X).transform
        ),
        f"{LANDMARKS} landmarks": lambda: on_features(X, Y, alpha, nystroem(evenly)),
        f"{LANDMARKS} landmarks by leverage": lambda: on_features(X, Y, alpha, nystroem(by_leverage(X, alpha, rng))),
        f"features and {LANDMARKS} landmarks": added,
        **{f"{n} nearest rows": lambda n=n: nearby(X, Y, alpha, n) for n in NEAREST},  # type: ignore[misc]
    }
    rows: list[Row] = []
    marks: list[float] = []
    for method, fit in methods.items():
        start = time.perf_counter()
        scores_of = fit()
        trained = time.perf_counter()
        scores = scores_of(X_test)
        seconds = [trained - start, (time.perf_counter() - trained) / X_test.shape[0]]
        found = [100 * metrics.precision_at_k(test.Y, scores, k=k) for k in CUTS] + seconds
        marks = marks or found
        what = [*(f"P@{k}" for k in CUTS), "training / kernel ridge", "a row / kernel ridge"]
        for n, (title, figure, rival) in enumerate(zip(what, found, marks, strict=True)):
            if n < len(CUTS):
                rows.append((f"{name}, {method}: {title}", figure, f"kernel ridge {rival:.2f}"))
            else:
                rows.append((f"{name}, {method}: {title}", figure / rival, f"{rival:.3g} s"))
    return rows


def main() -> None:
    arguments = options(__doc__ or "")
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex, delicious and eurlex")
        return
    rows: list[Row] = []
    for name in ("bibtex",) if arguments.quick else ("bibtex", "delicious", "eurlex"):
        rows += compared(name)
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
