"""How time and memory grow with rows, features, labels, dimensions and labels per row, varied one at a time.

    python benchmarks/growth.py [--quick] [--json PATH]

The paper's preset with `ridge` given, on generated rows; the base case is n = 50,000, d = 200, L = 50,000, m = 50,
F = 5 and 10 labels per row. Seconds are the minimum over several rounds in which all sizes take turns. Processor
seconds, of all cores together, are reported as well, because they vary less on a busy machine. Peak memory is what a
fit adds to a fresh process: VmHWM afterwards minus VmRSS before, measured after a small fit that loads everything
that is loaded once.

An exponent p is that of a + b·vᵖ, fitted by least squares on logarithms. The constant a is the part that does not
depend on v; a much smaller size (the anchor, at most a twentieth of the smallest) determines it. The share says how
much of the figure at the largest v grows with v at all; if it is small, p is noise. The plain slope is that of the
logarithms, without a constant and without the anchor. A bound applies to p; it applies to the plain slope if less
than a quarter grows, if a figure must not depend on v, and for an index.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.optimize
import scipy.sparse
from harness import Row, finish, options, side_by_side

from ripml import RIPML, neighbors
from ripml.lab.generated import generate
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import Projection

Result = TypeVar("Result")

TOPICS = 50  # the same at every n, so that more rows are more of the same
K, LEARNERS = 5, 5
NEW_ROWS, ASKED = 1000, 40  # rows to predict: in a batch, and how many of them one by one
SHARE_OF_ROOT = 1 / 8  # clusters: √n times this
WIDTHS = (20_000, 200_000, 2_000_000, 20_000_000)  # L of the embedded label matrices
IN_USE = 20_000  # labels that occur in them


class World(NamedTuple):
    """The sizes of a generated data set."""

    n: int = 50_000
    d: int = 200
    L: int = 50_000
    m: int = 50
    labels: float = 10.0


# The first value of each is the anchor.
AXES: dict[str, tuple[Any, ...]] = {
    "n": (1_000, 25_000, 50_000, 100_000, 200_000),
    "d": (2, 100, 200, 400, 800),
    "L": (100, 25_000, 50_000, 100_000, 200_000),
    "m": (2, 25, 50, 100, 200),
    "labels": (4, 10, 20, 40, 80),  # with fewer, many rows share a label set
}
QUICK = 1 / 10  # of n and L
GROWS = 1 / 4  # the smallest share for which an exponent is meaningful


# ------------------------------------------------------------------------------------------------ a process of its own


def in_own_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a fresh process that has only imported modules."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["ripml.model.estimator", "sklearn.cluster", "scipy.optimize"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def resident(field: str) -> int:
    """Resident bytes of this process: now (VmRSS) or at the peak (VmHWM)."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def store(folder: Path, X: Any, Y: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "X.npy", X)
    scipy.sparse.save_npz(folder / "Y.npz", Y, compressed=False)


def stored(folder: Path) -> tuple[Any, Any]:
    return np.load(folder / "X.npy"), scipy.sparse.csr_array(scipy.sparse.load_npz(folder / "Y.npz"))


def measured_fit(folder: Path, settings: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of a fit on the rows stored in a folder, and the memory that it added, in bytes."""
    X, Y = stored(folder)
    RIPML.paper(**{**settings, "n_dims": 2, "n_clusters": 2}).fit(X[:600], Y[:600])
    before, start = resident("VmRSS"), time.perf_counter()
    RIPML.paper(**settings).fit(X, Y)
    seconds = time.perf_counter() - start
    return seconds, float(resident("VmHWM") - before)


# ----------------------------------------------------------------------------------------------------------- exponents


def power_law(values: Sequence[float], figures: Sequence[float]) -> tuple[float, float]:
    """p of a + b·vᵖ with a ≥ 0, and the share of b·vᵖ in the figure at the largest v."""
    v, t = np.log(np.array(values) / max(values)), np.log(np.array(figures) / figures[-1])

    def off(guess: Any) -> Any:
        share, p = guess[1] * (1 - guess[0]), guess[2]
        return np.log(guess[1] * guess[0] + share * np.exp(p * v)) - t

    starts = [(constant, 1.0, p) for constant in (0.01, 0.3, 0.9) for p in (0.5, 1.0, 2.0)]
    fits = [scipy.optimize.least_squares(off, start, bounds=([0, 0.1, 0], [1, 10, 4])) for start in starts]
    constant, _, p = min(fits, key=lambda fit: float(fit.cost)).x
    return float(p), float(1 - constant)


def slope(values: Sequence[float], figures: Sequence[float]) -> float:
    """The slope of the logarithms."""
    return float(np.polyfit(np.log(values), np.log(figures), 1)[0])


def exponent_rows(what: str, axis: str, values: Sequence[float], figures: Sequence[float], bound: str) -> list[Row]:
    """The exponent, the growing share and the plain slope; the first value is the anchor."""
    p, share = power_law(values, figures)
    return [
        (f"{what}: exponent in {axis}", p, bound if share >= GROWS else ""),
        (f"{what}: share that grows with {axis}", share, ""),
        (f"{what}: plain slope in {axis}", slope(values[1:], figures[1:]), "" if share >= GROWS else bound),
    ]


# ---------------------------------------------------------------------------------------------------------------- fit


def turns(functions: Mapping[Any, Callable[[], Any]], rounds: int) -> tuple[dict[Any, float], dict[Any, float]]:
    """The minimum of elapsed and of processor seconds of each function, over rounds in which all take turns."""
    wall, busy = dict.fromkeys(functions, float("inf")), dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start, start_busy = time.perf_counter(), time.process_time()
            function()
            wall[name] = min(wall[name], time.perf_counter() - start)
            busy[name] = min(busy[name], time.process_time() - start_busy)
    return wall, busy


def training(quick: bool, rounds: int) -> list[Row]:
    axes = {
        axis: [int(v * QUICK) if quick and axis in "nL" and v >= 10_000 else v for v in values]
        for axis, values in AXES.items()
    }
    base = World(n=int(World().n * QUICK), L=int(World().L * QUICK)) if quick else World()
    worlds = {(axis, v): base._replace(**{axis: v}) for axis, values in axes.items() for v in values}
    different = dict.fromkeys(worlds.values())
    with tempfile.TemporaryDirectory() as folder:
        data: dict[Any, tuple[Any, Any]] = {}  # the same for every m
        for world in different:
            shape = world._replace(m=0)
            if shape not in data:
                data[shape] = generate(world.n, world.d, world.L, world.labels, n_topics=TOPICS)
                store(Path(folder, str(hash(shape))), *data[shape])

        def settings(world: World) -> dict[str, Any]:
            return {"n_dims": world.m, "ridge": 1.0, "random_state": 0}

        def fit(world: World) -> Callable[[], Any]:
            return lambda: RIPML.paper(**settings(world)).fit(*data[world._replace(m=0)])

        def peak(world: World) -> float:
            return in_own_process(measured_fit, Path(folder, str(hash(world._replace(m=0)))), settings(world))[1]

        wall, busy = turns({world: fit(world) for world in different}, rounds)
        peaks = {world: peak(world) for world in different}
    rows: list[Row] = []
    for axis, values in axes.items():
        for name, figures, unit in (
            ("s", wall, 1.0),
            ("processor s", busy, 1.0),
            ("peak MB", peaks, 1e6),
        ):
            of_axis = [figures[worlds[axis, v]] / unit for v in values]
            rows += [(f"fit, {axis} = {v:,}, {name}", figure, "") for v, figure in zip(values, of_axis, strict=True)]
            bound = "≤ 1.05" if axis == "n" and name != "peak MB" else ""
            rows += exponent_rows(f"fit, {name}", axis, values, of_axis, bound)
    return rows


# --------------------------------------------------------------------------------------------------------- prediction


def one_by_one(ask: Callable[[Any], Any], queries: Any) -> tuple[float, float]:
    """Seconds of a single query: the median of elapsed and the mean of processor seconds."""
    seconds, start_busy = [], time.process_time()
    for i in range(ASKED):
        start = time.perf_counter()
        ask(queries[i : i + 1])
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)), (time.process_time() - start_busy) / ASKED


def prediction(quick: bool, rounds: int) -> list[Row]:
    sizes = [int(n * QUICK if quick and n >= 10_000 else n) for n in AXES["n"]]
    base = World()
    X, Y = generate(sizes[-1] + NEW_ROWS, base.d, base.L, base.labels, n_topics=TOPICS)
    X, Y, X_new = X[:-NEW_ROWS], Y[:-NEW_ROWS], X[-NEW_ROWS:]
    Z = Projection(Gaussian(), base.m, 1, seed=0).embed(Y, np.arange(base.L, dtype=np.uint64))
    Psi = np.linalg.solve(X.T @ X + np.eye(base.d, dtype=np.float32), X.T @ Z)
    # The function that answers queries, by name and size, and the queries for it.
    asks: dict[tuple[str, int], tuple[Callable[[Any], Any], Any]] = {}
    for n in sizes:
        for name, clusters in (("exact", 1), ("clusters", max(2, round(n**0.5 * SHARE_OF_ROOT)))):
            model = RIPML.paper(n_dims=base.m, ridge=1.0, n_clusters=clusters, random_state=0).fit(X[:n], Y[:n])
            asks[name, n] = (model.decision_function, X_new)
    for word in ("IVF", "HNSW"):
        index = getattr(neighbors, word, None)
        if index is None:
            print(f"ripml.neighbors has no {word}: not measured")
            continue
        for n in sizes:
            searcher = index().build(np.ascontiguousarray(Z[:n]))
            asks[f"{word}, search alone", n] = (partial(searcher.query, k=K), X_new @ Psi)
    figures = {key: np.full(4, np.inf) for key in asks}
    for _ in range(3 * rounds):
        for key, (ask, queries) in asks.items():
            wall, busy = turns({0: partial(ask, queries)}, 1)
            together = [wall[0] / NEW_ROWS, busy[0] / NEW_ROWS]
            figures[key] = np.minimum(figures[key], [*one_by_one(ask, queries), *together])
    rows: list[Row] = []
    kinds = ("ms a row alone", "processor ms a row alone", "ms a row in a batch", "processor ms a row in a batch")
    for name in dict.fromkeys(name for name, _ in asks):
        for i, kind in enumerate(kinds):
            of_name = [float(1e3 * figures[name, n][i]) for n in sizes]
            rows += [(f"{name}, n = {n:,}, {kind}", ms, "") for n, ms in zip(sizes, of_name, strict=True)]
            if name in ("exact", "clusters"):
                rows += exponent_rows(f"{name}, {kind}", "n", sizes, of_name, "≤ 0.6" if name == "clusters" else "")
            else:  # at the anchor, an index may search all of the few rows
                rows.append((f"{name}, {kind}: plain slope in n", slope(sizes[1:], of_name[1:]), "≤ 0.6"))
    return rows


# ---------------------------------------------------------------------------------------------------------- embedding


def embedding(quick: bool, rounds: int) -> list[Row]:
    """Embed the same number of labels and rows for every L: `IN_USE` of the L labels, or all of them evenly."""
    n, labels = 20_000 if quick else 50_000, 10
    projection = Projection(Gaussian(), World().m, LEARNERS, seed=0)
    rng = np.random.default_rng(0)
    indptr = np.arange(n + 1) * labels

    def embed(L: int, in_use: int) -> Callable[[], Any]:
        pool = np.sort(rng.choice(L, in_use, replace=False)) if in_use < L else np.arange(L)
        drawn = pool[np.sort(rng.integers(in_use, size=(n, labels)), axis=1)].ravel()
        Y = scipy.sparse.csr_array((np.ones(n * labels, np.float32), drawn, indptr), shape=(n, L))
        keys = np.arange(L, dtype=np.uint64)
        return lambda: projection.embed(Y, keys)

    rows: list[Row] = []
    few = side_by_side({f"{L:,}": embed(L, IN_USE) for L in WIDTHS}, 2 * rounds)
    rows += [(f"embedding, {IN_USE:,} labels in use of L = {L}, s", seconds, "") for L, seconds in few.items()]
    rows.append(("embedding: exponent in L, labels in use fixed", slope(WIDTHS, list(few.values())), "within ± 0.1"))
    every = side_by_side({f"{L:,}": embed(L, L) for L in WIDTHS}, rounds)
    rows += [(f"embedding, labels drawn evenly from L = {L}, s", seconds, "") for L, seconds in every.items()]
    return rows


def main() -> None:
    arguments = options(__doc__ or "")
    rounds = 2 if arguments.quick else 3
    rows: list[Row] = [("load of the machine before", os.getloadavg()[0], f"{os.cpu_count()} cores")]
    rows += embedding(arguments.quick, rounds)
    rows += training(arguments.quick, rounds)
    rows += prediction(arguments.quick, rounds)
    rows.append(("load of the machine after", os.getloadavg()[0], "this run is 1 to 2 of it"))
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
