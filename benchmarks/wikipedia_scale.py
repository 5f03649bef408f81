"""The shape of the paper's largest experiment, in one run: 500,539 rows, 400 features, 359,524 labels, 32.55 per row.

    python benchmarks/wikipedia_scale.py [--quick] [--json PATH] [--preset default|linear]

Generated rows (`ripml.lab.generated`), the paper's preset with m = 100, F = 5, `ridge` given, and C = 1 and C = 43
clusters as in the paper. --quick uses a tenth of the rows. Needs 7 GB of memory and 2 GB for temporary files.
With --preset, only that preset is measured: its fit, the recall of what it does not search exactly, and its answers.

Bounds, each the minimum over rounds in which they take turns with the fit, on all cores, one thread per core:

    reading        a table with rows of 2 KB, sequentially or at random, whichever is faster
    projection     nnz(Y)·M·4 bytes read and n·M·4 written at that rate; frequent columns stay in the cache, so it is
                   possible to be faster than this bound
    row lengths    X read and written once at that rate
    sums           bare BLAS XᵀX and XᵀZ in the solver's type, on a block of rows, times n / block
    solve          bare Cholesky factorisation and solve
    rows left out  500 × m by m × n for each learner, in panels: the search that finds the threshold
    prediction     X Psi, and the same product for all queried rows; for a single row, Z read once

Finding distinct label sets, checks and copies count as zero. On a busy machine, threads that wait for each other wait
long, so the ratio of the fit to its bounds is also given in processor seconds.
"""

from __future__ import annotations

import inspect
import os
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from growth import in_own_process, measured_fit, store, turns
from harness import Row, finish, options, side_by_side

from ripml import RIPML, metrics
from ripml.base.parallel import blocks, map_blocks
from ripml.lab.generated import generate
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import Projection
from ripml.regression import resolve_solver

ROWS, NEW_ROWS, L = 500_539, 2_000, 359_524
DIMS, LEARNERS, RIDGE, CLUSTERS = 100, 5, 1.0, 43
ALONE, LEFT_OUT = 20, 500  # rows predicted one by one, and rows that the fit leaves out
PANEL, BLOCK = 4_096, 65_536
PROBES = (1, 2, 4, 8)


def settings(clusters: int) -> dict[str, Any]:
    return {"n_dims": DIMS, "n_learners": LEARNERS, "ridge": RIDGE, "n_clusters": clusters, "random_state": 0}


def products(Q: Any, Z: list[Any]) -> None:
    """Compute Q Zᵀ for each learner in panels and discard it."""
    queries = np.split(Q, LEARNERS, axis=1)

    def panel(place: tuple[int, slice]) -> None:
        learner, rows = place
        queries[learner] @ Z[learner][rows].T

    map_blocks(panel, [(f, rows) for f in range(LEARNERS) for rows in blocks(len(Z[f]), PANEL)])


def readings(table: Any) -> dict[str, Callable[[], Any]]:
    """Ways to read all bytes of a table with rows of 2 KB."""
    order = np.random.default_rng(0).permutation(len(table))

    def gather(rows: slice) -> None:
        out = np.empty((256, table.shape[1]), table.dtype)
        for start in range(rows.start, rows.stop, 256):
            some = order[start : min(start + 256, rows.stop)]
            table.take(some, axis=0, out=out[: len(some)], mode="clip")

    def in_order(rows: slice) -> None:
        flat = table[rows].ravel()
        flat.dot(flat)

    parts = list(blocks(len(table), 16_384))
    return {"gather": lambda: map_blocks(gather, parts), "in order": lambda: map_blocks(in_order, parts)}


def bare_training(X: Any, Z: list[Any], dtype: Any) -> dict[str, tuple[Callable[[], Any], float]]:
    """The calls that a fit cannot avoid, and how many times it needs each."""
    x, z = X[:BLOCK].astype(dtype), np.hstack([of_learner[:BLOCK] for of_learner in Z]).astype(dtype)
    gram, moment = x.T @ x + np.eye(X.shape[1], dtype=dtype), x.T @ z
    Q = z[:LEFT_OUT].astype(np.float32)

    def summed(left: Any, right: Any) -> Callable[[], Any]:
        return lambda: map_blocks(lambda rows: left[rows].T @ right[rows], blocks(len(left), 2048))

    def solve() -> None:
        scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram, lower=True, check_finite=False), moment)

    return {
        "XᵀX": (summed(x, x), len(X) / len(x)),
        "XᵀZ": (summed(x, z), len(X) / len(x)),
        "factorisation and solve": (solve, 1),
        "rows left out": (lambda: products(Q, Z), 1),
    }


def alone(model: Any, X: Any) -> float:
    """Median seconds of a single-row prediction."""
    seconds = []
    for i in range(ALONE):
        start = time.perf_counter()
        model.decision_function(X[i : i + 1])
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def training(X: Any, Y: Any, rounds: int) -> tuple[list[Row], dict[int, Any], list[Any], float]:
    """Fits against their bounds; also the models, the embeddings of each learner and the seconds to read them."""
    n, M = len(X), DIMS * LEARNERS
    keys = np.arange(L, dtype=np.uint64)
    projection = Projection(Gaussian(), DIMS, LEARNERS, seed=0)
    Z = [np.ascontiguousarray(z) for z in np.split(projection.embed(Y, keys), LEARNERS, axis=1)]
    solver, _ = resolve_solver("auto", *X.shape)
    dtype = np.dtype(getattr(solver, "precision", "float64"))
    table = projection.columns(keys)
    bare = bare_training(X, Z, dtype)
    models = {c: RIPML.paper(**settings(c)) for c in (1, CLUSTERS)}
    wall, busy = turns(
        {
            **readings(table),
            **{name: call for name, (call, _) in bare.items()},
            "columns": lambda: projection.columns(keys),
            "embed": lambda: projection.embed(Y, keys),
            "fit": lambda: models[1].fit(X, Y),
        },
        rounds,
    )
    with_clusters = side_by_side({"": lambda: models[CLUSTERS].fit(X, Y)}, 1)[""]

    def bounds(seconds: Mapping[str, float]) -> dict[str, float]:
        reading = min(seconds["gather"], seconds["in order"]) / table.nbytes  # seconds per byte
        return {
            "projection": (Y.nnz + n) * M * 4 * reading,
            "row lengths": 2 * X.nbytes * reading,
            **{name: seconds[name] * times for name, (_, times) in bare.items()},
        }

    of_wall, names = bounds(wall), {"XᵀX": f"XᵀX, {dtype}", "XᵀZ": f"XᵀZ, {dtype}"}
    rows: list[Row] = [
        ("reading 2 KB rows at random, GB/s", table.nbytes / wall["gather"] / 1e9, ""),
        ("reading in order, GB/s", table.nbytes / wall["in order"] / 1e9, ""),
        *[(f"bound: {names.get(name, name)}, s", seconds, "") for name, seconds in of_wall.items()],
        ("bound: sum, s", sum(of_wall.values()), ""),
        ("projection with its columns made, s", wall["embed"], ""),
        ("projection / its bound", wall["embed"] / of_wall["projection"], ""),
        ("fit, C = 1, s", wall["fit"], "the paper: < 180, on another machine"),
        ("fit, C = 1 / sum of bounds", wall["fit"] / sum(of_wall.values()), "≤ 2"),
        ("fit, C = 1 / sum of bounds, s of the processor", busy["fit"] / sum(bounds(busy).values()), "≤ 2"),
        (f"fit, C = {CLUSTERS}, s", with_clusters, "the paper: 420, on another machine"),
        # Rates of one core, from which the costs at other sizes are estimated.
        ("a core: float32 product, GFLOP/s", 2e-9 * LEFT_OUT * n * M / busy["rows left out"], ""),
        (f"a core: {dtype} product, GFLOP/s", 2e-9 * min(n, BLOCK) * X.shape[1] * M / busy["XᵀZ"], ""),
        ("a core: reading, GB/s", 1e-9 * table.nbytes / min(busy["gather"], busy["in order"]), ""),
        ("a core: entries of Phi made, millions/s", 1e-6 * table.size / busy["columns"], ""),
        ("a core: entries added in a projection, millions/s", 1e-6 * Y.nnz * M / (busy["embed"] - busy["columns"]), ""),
    ]
    reading_Z = min(wall["gather"], wall["in order"]) / table.nbytes * sum(z.nbytes for z in Z)
    return rows, models, Z, reading_Z


def prediction(models: dict[int, Any], Z: list[Any], X: Any, Y: Any, reading_Z: float, rounds: int) -> list[Row]:
    Psi = np.random.default_rng(0).standard_normal((X.shape[1], DIMS * LEARNERS), np.float32)
    batch, _ = turns(
        {
            "bare": lambda: products(X @ Psi, Z),
            "one": lambda: models[1].decision_function(X),
            "many": lambda: models[CLUSTERS].decision_function(X),
        },
        rounds,
    )
    bare, one, many = (1e3 * seconds / len(X) for seconds in batch.values())
    one_alone, many_alone = (1e3 * min(alone(models[c], X) for _ in range(rounds)) for c in (1, CLUSTERS))
    P1, name = 100 * models[1].score(X, Y), f"C = {CLUSTERS}"
    rows: list[Row] = [
        ("bare product, ms a row", bare, ""),
        ("C = 1, ms a row in a batch", one, ""),
        ("C = 1, batch / bare product", one / bare, "≤ 1.5"),
        ("Z read once, ms", 1e3 * reading_Z, ""),
        ("C = 1, ms a row alone", one_alone, "the paper: 72, on another machine"),
        ("C = 1, row alone / Z read once", one_alone / (1e3 * reading_Z), ""),
        (f"{name}, ms a row in a batch", many, ""),
        (f"{name}, ms a row alone", many_alone, "the paper: 6.5, on another machine"),
        (f"{name} / C = 1: batch", many / one, "≤ 1/15 = 0.0667"),
        (f"{name} / C = 1: row alone", many_alone / one_alone, "≤ 1/15 = 0.0667"),
        ("C = 1, P@1", P1, ""),
        (f"{name}, P@1", 100 * models[CLUSTERS].score(X, Y), f"≥ {P1:.2f}, that of C = 1"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        models[CLUSTERS].save(folder)
        rows.append((f"{name}, GB on disk", sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e9, ""))
    return rows + probing(models[CLUSTERS], X, Y, rounds)


def probing(model: Any, X: Any, Y: Any, rounds: int) -> list[Row]:
    """Precision and time of queries that probe more than one cluster."""
    if "n_probe" not in inspect.signature(RIPML).parameters:
        print("RIPML has no `n_probe`: not measured")
        return []
    rows: list[Row] = []
    for probes in PROBES:
        model.set_params(n_probe=probes)
        batch = side_by_side({"": lambda: model.decision_function(X)}, rounds)[""]
        name = f"C = {CLUSTERS}, n_probe = {probes}"
        rows += [
            (f"{name}, P@1", 100 * model.score(X, Y), ""),
            (f"{name}, ms a row in a batch", 1e3 * batch / len(X), ""),
            (f"{name}, ms a row alone", 1e3 * min(alone(model, X) for _ in range(rounds)), ""),
        ]
    return rows


def of_preset(name: str, X: Any, Y: Any, X_new: Any, Y_new: Any) -> list[Row]:
    """The fit of a preset, its answers, and their precision."""
    start, cpu = time.perf_counter(), time.process_time()
    model = (RIPML.linear if name == "linear" else RIPML)(random_state=0).fit(X, Y)
    rows: list[Row] = [
        (f"{name}: fit, s", time.perf_counter() - start, "linear ≤ 300"),
        (f"{name}: fit, s of CPU", time.process_time() - cpu, "at most cores × wall"),
        (f"{name}: peak GB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, "with X and Y"),
    ]
    found = [(fact, value) for fact, value in model.solutions_[0].items() if fact.endswith("recall")]
    rows += [(f"{name}: {fact}", float(value), "") for fact, value in found]
    model.decision_function(X_new[:50])
    start, cpu = time.perf_counter(), time.process_time()
    scores = model.decision_function(X_new)
    rows += [
        (f"{name}: ms a row in a batch", 1e3 * (time.perf_counter() - start) / len(X_new), "≤ 2; linear ≤ 0.5"),
        (f"{name}: ms of CPU a row in a batch", 1e3 * (time.process_time() - cpu) / len(X_new), ""),
    ]
    cpu = time.process_time()
    rows.append((f"{name}: ms a row alone", 1e3 * alone(model, X_new), "≤ 10"))
    rows.append((f"{name}: ms of CPU a row alone", 1e3 * (time.process_time() - cpu) / ALONE, ""))
    return rows + [(f"{name}: P@{k}", 100 * metrics.precision_at_k(Y_new, scores, k=k), "") for k in (1, 3, 5)]


def main() -> None:
    arguments = options(__doc__ or "", preset="")
    n, rounds = ROWS // 10 if arguments.quick else ROWS, 2
    rows: list[Row] = [("load of the machine before", os.getloadavg()[0], f"{os.cpu_count()} cores")]
    X, Y = generate(n + NEW_ROWS)
    rows.append(("labels per row", Y.nnz / len(X), "32.55 in the paper"))
    X, Y, X_new, Y_new = X[:n], Y[:n], X[n:].copy(), Y[n:]
    if arguments.preset:
        rows += of_preset(arguments.preset, X, Y, X_new, Y_new)
        rows.append(("load of the machine after", os.getloadavg()[0], "this run is 1 to 2 of it"))
        finish(rows, arguments.json)
        return
    with tempfile.TemporaryDirectory() as folder:
        store(Path(folder), X, Y)
        peaks = {c: in_own_process(measured_fit, Path(folder), settings(c))[1] for c in (1, CLUSTERS)}
    trained, models, Z, reading_Z = training(X, Y, rounds)
    rows += trained
    rows += [(f"fit, C = {c}, peak GB beyond X and Y", peak / 1e9, "≤ 8") for c, peak in peaks.items()]
    rows += prediction(models, Z, X_new, Y_new, reading_Z, rounds)
    rows.append(("load of the machine after", os.getloadavg()[0], "this run is 1 to 2 of it"))
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
