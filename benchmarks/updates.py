"""Learning and forgetting while in use: as exact as a fresh fit, without drift, fast, and without delaying readers.

    python benchmarks/updates.py [--quick] [--only mixes,drift,speed,readers] [--rows FOLDER] [--json PATH]

    mixes    1,000 random mixes of five changes (rows learnt, forgotten, relabelled, new labels) over all settings that
             promise exactness: the largest difference of a score from a fresh fit, which has the same frozen choices
             where a fit makes choices
    drift    100,000 single rows learnt or forgotten one after another: the relative error of Psi against a fresh
             solution in float64, the largest of ten checks
    speed    a fit at the paper's Wikipedia shape, M = 500, against learning and forgetting single rows; with
             RIPML_DATA, also the default on Delicious and EUR-Lex
    readers  latency of single rows in one thread, with and without a writer, in turns: a thread that writes in memory
             as fast as it can, a store with 20 writes per second, and another process that writes into a store as fast
             as it can

--quick does a twentieth to a tenth of the work. --rows names a folder with rows of `ripml.lab.generated.generate`
(X.npy, indices.npy and indptr.npy of at least 501,039 rows), which are generated otherwise. All times are from one run,
with the load of the machine next to them.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from harness import Row, finish, has_data
from numpy.typing import NDArray

from ripml import RIPML, datasets
from ripml.datasets import Dataset
from ripml.lab.generated import generate
from ripml.model.features import unit_rows
from ripml.regression import Sums
from ripml.regression.incremental import IncrementalRidge
from ripml.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from test_update import CHOSEN, FIXED, World, rows, scores_by_name

N_ROWS, N_LABELS, SINGLE = 500_539, 359_524, 200
EXACT, ROUNDED, DRIFT = 1e-8, 1e-4, 1e-6  # bounds: float64, float32, Psi
STEPS, QUERIES = 5, 25
FEW, MANY = 90, 1200  # rows at the start; the blend has trees from 200 rows
LOOKS = 10  # checks of the drift
SECONDS, TURNS, WRITES = 20.0, 4, 20  # seconds of reading, divided into TURNS; writes per second into the store


@contextmanager
def loaded(found: list[Row], section: str) -> Iterator[None]:
    """Record the load of the machine before and after."""
    before = os.getloadavg()[0]
    yield
    found += [(f"{section}: load before", before, ""), (f"{section}: load after", os.getloadavg()[0], "")]


# --------------------------------------------------------------------------------------------------------------- mixes


class TypedWorld(World):
    """The same data with features in float32 or float64, and optionally more rows."""

    def __init__(self, model: RIPML, seed: int, sparse: bool, dtype: str, n_start: int) -> None:
        self.random = np.random.default_rng(seed)
        self.X, self.Y = rows(n_start + 70, seed, sparse)
        self.X = self.X.astype(dtype)
        self.inside = list(range(n_start))
        self.model = model.fit(*self.known())
        self.new_labels = 0


def difference_of_a_mix(
    settings: RIPML, seed: int, dtype: str, chooses: bool, n_start: int = FEW
) -> tuple[float, float]:
    """After a few changes, the largest difference of a score from a fresh fit, and from the score before them."""
    sparse = bool(seed % 2)
    world = TypedWorld(copy.deepcopy(settings).set_params(random_state=seed), seed, sparse, dtype, n_start)
    before = copy.copy(world.model)
    for _ in range(STEPS):
        world.step()
    if chooses:
        fresh = world.model.without_rows().partial_fit(*world.known())
    else:
        fresh = copy.deepcopy(settings).set_params(random_state=seed).fit(*world.known())
    names = sorted({*world.model.classes_.tolist(), *fresh.classes_.tolist()})
    X = rows(QUERIES, 10_000 + seed, sparse)[0].astype(dtype)
    found, expected, earlier = (scores_by_name(model, X, names) for model in (world.model, fresh, before))
    return float(np.abs(found - expected).max()), float(np.abs(found - earlier).max())


def mixes(arguments: argparse.Namespace) -> list[Row]:
    n_mixes = 50 if arguments.quick else 1000
    cases: list[tuple[str, RIPML, str, bool, int]] = []
    for name, (settings, _) in FIXED.items():
        kinds = ("float64", "float32") if name.startswith("paper") else ("float64",)
        cases += [(name, settings, dtype, settings.n_clusters > 1, FEW) for dtype in kinds]
    cases += [(name, settings, "float64", True, FEW) for name, settings in CHOSEN.items()]
    cases += [(f"{name}, with trees", CHOSEN[name], "float64", True, MANY) for name in ("default", "linear")]
    differences: list[list[float]] = [[] for _ in cases]
    changes: list[float] = []
    for seed in range(n_mixes):
        case = seed % len(cases)
        difference, change = difference_of_a_mix(cases[case][1], seed // len(cases), *cases[case][2:])
        differences[case].append(difference)
        changes.append(change)
    found: list[Row] = []
    above = 0
    for (name, _, dtype, _, _), of in zip(cases, differences, strict=True):
        plain = name.startswith("paper")
        bar = EXACT if plain and dtype == "float64" else ROUNDED
        above += sum(difference > bar for difference in of)
        title = f"{name}, {dtype}" if plain else name
        found.append((f"mixes: {title}, largest difference of {len(of)}", max(of), f"≤ {bar:g}"))
    return [
        *found,
        (f"mixes: above their bar of {n_mixes:,}", above, "0"),
        ("mixes: largest change of a score by a mix, least of all mixes", min(changes), ""),
        ("mixes: largest change of a score by a mix, median", float(np.median(changes)), ""),
    ]


# --------------------------------------------------------------------------------------------------------------- drift


def coming_and_going(n_all: int, n_inside: int, n_changes: int, seed: int) -> Iterator[tuple[bool, int]]:
    """Changes (learn, row) that learn and forget equally often; the first rows are already learnt at the start."""
    random = np.random.default_rng(seed)
    inside, outside = list(range(n_inside)), list(range(n_inside, n_all))
    for _ in range(n_changes):
        learn = bool(random.random() < 0.5 + (n_inside - len(inside)) / n_inside)
        source, target = (outside, inside) if learn else (inside, outside)
        at = int(random.integers(len(source)))
        source[at], source[-1] = source[-1], source[at]
        target.append(source.pop())
        yield learn, target[-1]


def relative_error(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.linalg.norm(one.astype(np.float64) - other) / np.linalg.norm(other))


def solution(sums: Sums, ridge: float) -> Any:
    return scipy.linalg.solve(sums.gram + ridge * np.eye(len(sums.gram)), sums.moment, assume_a="pos")


def drift_of_sums(d: int, n_targets: int, n_inside: int, n_changes: int, ridge: float) -> tuple[float, ...]:
    """The largest error of Psi and its largest estimate; the number of factorisations; seconds per change."""
    X = unit_rows(generate(4 * n_inside, d, 1000, 5.0)[0].astype(np.float64), None)
    Z = np.random.default_rng(1).normal(size=(len(X), n_targets)) / np.sqrt(n_targets)
    there = np.arange(len(X)) < n_inside
    memory = IncrementalRidge.of(X[there], Z[there], ridge)
    errors, said, seconds = [], [], 0.0
    for number, (learn, row) in enumerate(coming_and_going(len(X), n_inside, n_changes, 2), 1):
        there[row] = learn
        one = X[row : row + 1], Z[row : row + 1]
        start = time.perf_counter()
        memory.change(one if learn else None, None if learn else one)
        seconds += time.perf_counter() - start
        if number % (n_changes // LOOKS) == 0:
            sums = Sums.of(X[there], Z[there])
            errors.append(relative_error(memory.Psi, solution(sums, ridge)))
            said.append(memory.drift())
    return max(errors), max(said), memory.n_refactorised, seconds / n_changes


def drift_of_a_model(d: int, n_inside: int, n_changes: int) -> tuple[float, float, float, float]:
    """The largest error of Psi (float32), the model's estimate of it, the error of scores, seconds per change."""
    X, Y = generate(4 * n_inside, d, 1000, 5.0)
    X = X.astype(np.float64)
    settings = RIPML.paper(n_dims=10, n_learners=5, ridge=1.0, random_state=0)
    there = np.arange(len(X)) < n_inside
    model = copy.deepcopy(settings).fit(X[there], Y[there])
    errors, said, scores, seconds = [], [], [], 0.0
    for number, (learn, row) in enumerate(coming_and_going(len(X), n_inside, n_changes, 3), 1):
        there[row] = learn
        start = time.perf_counter()
        (model.partial_fit if learn else model.forget)(X[row : row + 1], Y[row : row + 1])
        seconds += time.perf_counter() - start
        if number % (n_changes // LOOKS) == 0:
            fresh = copy.deepcopy(settings).fit(X[there], Y[there])
            packed = fresh.model_.settled(None).clusters[0].regression.packed_sums()
            assert packed is not None
            errors.append(
                relative_error(model.clusters_[0].regression.arrays()["Psi"], solution(packed.unpacked(), 1.0))
            )
            said.append(model.warm_["drift"])
            queries = X[:200]
            scores.append(float(abs(model.decision_function(queries) - fresh.decision_function(queries)).max()))
    return max(errors), max(said), max(scores), seconds / n_changes


def drift(arguments: argparse.Namespace) -> list[Row]:
    share = 20 if arguments.quick else 1
    found: list[Row] = []
    with loaded(found, "drift"):
        for n_targets, ridge in ((50, 1.0), (50, 1e-3), (500, 1.0)):
            n_changes = 100_000 // share
            error, said, solved, seconds = drift_of_sums(400, n_targets, 5000, n_changes, ridge)
            name = f"drift: {n_changes:,} changes, M = {n_targets}, ridge {ridge:g}"
            found += [
                (f"{name}, error of Psi", error, f"≤ {DRIFT:g}"),
                (f"{name}, drift() said", said, ""),
                (f"{name}, solved anew", solved, ""),
                (f"{name}, ms a change", 1e3 * seconds, ""),
            ]
        n_changes = 20_000 // share
        error, said, score, seconds = drift_of_a_model(50, 5000, n_changes)
        name = f"drift: {n_changes:,} changes of a model"
        found += [
            (f"{name}, error of Psi (float32)", error, f"≤ {DRIFT:g}"),
            (f"{name}, warm_ said", said, ""),
            (f"{name}, difference of scores", score, f"≤ {EXACT:g}"),
            (f"{name}, ms a change", 1e3 * seconds, ""),
        ]
    return found


# --------------------------------------------------------------------------------------------------------------- speed


def wikipedia_shape(n: int, folder: Path | None) -> tuple[Any, Any]:
    """Rows of the paper's Wikipedia shape, read from the folder if one is given."""
    if folder is None:
        return generate(n)
    X, indices, indptr = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "indices", "indptr"))
    ends = np.array(indptr[: n + 1])
    ones = np.ones(ends[-1], np.float32)
    return np.array(X[:n]), scipy.sparse.csr_array((ones, np.array(indices[: ends[-1]]), ends), shape=(n, N_LABELS))


def seconds_of(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def speed_of(name: str, model: RIPML, X: Any, Y: Any, n: int, bar: str, size: int) -> list[Row]:
    """Time a fit on the first n rows, then learning the rows after them and forgetting some of them, one by one."""
    of_fit = seconds_of(lambda: model.fit(X[:n], Y[:n]))
    first = seconds_of(lambda: model.partial_fit(X[n : n + 1], Y[n : n + 1]))
    learn = [seconds_of(lambda row=row: model.partial_fit(X[row : row + 1], Y[row : row + 1]))  # type: ignore[misc]
             for row in range(n + 1, n + 1 + size)]  # fmt: skip
    leaving = np.random.default_rng(0).permutation(n)[:size].tolist()
    forget = [seconds_of(lambda row=row: model.forget(X[row : row + 1], Y[row : row + 1]))  # type: ignore[misc]
              for row in leaving]  # fmt: skip
    found: list[Row] = [(f"{name}: fit, s", of_fit, ""), (f"{name}: first update, s", first, "")]
    for kind, seconds in (("learn", learn), ("forget", forget)):
        found += [
            (f"{name}: {kind} a row, median ms", 1e3 * float(np.median(seconds)), ""),
            (f"{name}: {kind} a row, mean ms", 1e3 * float(np.mean(seconds)), ""),
            (f"{name}: {kind} a row, 99 % ms", 1e3 * float(np.quantile(seconds, 0.99)), ""),
        ]
    return [*found, (f"{name}: fit / median update", of_fit / float(np.median(learn + forget)), bar)]


def speed(arguments: argparse.Namespace) -> list[Row]:
    n = N_ROWS // 10 if arguments.quick else N_ROWS
    size = SINGLE // 10 if arguments.quick else SINGLE
    found: list[Row] = []
    with loaded(found, "speed"):
        X, Y = wikipedia_shape(n + size + 1, arguments.rows)
        paper = RIPML.paper(n_dims=100, n_neighbors=5, n_learners=5, ridge=1.0, random_state=0)
        found += speed_of(f"speed: {n:,} × 400", paper, X, Y, n, "≥ 2,000 at 500,539 rows", size)
        del X, Y, paper
        if not has_data():
            print("the default is left out: RIPML_DATA is not set", file=sys.stderr)
            return found
        sizes = [("delicious", 4000)] if arguments.quick else [("delicious", 4000), ("delicious", 12_000)]
        for name, n_kernel in sizes if arguments.quick else [*sizes, ("eurlex", 12_000)]:
            train = datasets.load(name)[0]
            model = RIPML(random_state=0)
            found += speed_of(f"speed: default, {name}, {n_kernel:,}", model, train.X, train.Y, n_kernel, "", size)
    return found


# ------------------------------------------------------------------------------------------------------------- readers


def asked(ask: Callable[[Any], Any], X: Any, seconds: float) -> list[float]:
    """Seconds of each single-row prediction, one after another."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        row = len(taken) % X.shape[0]
        x = X[row : row + 1]
        taken.append(seconds_of(lambda x=x: ask(x)))  # type: ignore[misc]
    return taken


class Thread:
    """A writer in a thread of this process; `pace` is the seconds between writes, 0 for no pause."""

    def __init__(self, write: Callable[[], None], pace: float) -> None:
        self._write, self._pace, self.written = write, pace, 0
        write()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write until the block ends."""
        stop = threading.Event()

        def work() -> None:
            due = time.perf_counter()
            while not stop.is_set():
                self._write()
                self.written += 1
                due += self._pace
                stop.wait(max(0.0, due - time.perf_counter()) if self._pace else 0)

        writer = threading.Thread(target=work)
        writer.start()
        yield
        stop.set()
        writer.join()


class Process:
    """A writer in another process, which writes into a store without pause."""

    def __init__(self, folder: Path, documents: list[dict[str, Any]]) -> None:
        spawned = multiprocessing.get_context("spawn")
        self._go, self._end, self._count = spawned.Event(), spawned.Event(), spawned.Value("q", 0)
        ready, arguments = spawned.Event(), (folder, documents, self._go, self._end, self._count)
        self._process = spawned.Process(target=write_on, args=(*arguments, ready))
        self._process.start()
        ready.wait()

    @property
    def written(self) -> int:
        return int(self._count.value)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write until the block ends."""
        self._go.set()
        yield
        self._go.clear()

    def end(self) -> None:
        self._end.set()
        self._go.set()
        self._process.join()


def write_on(folder: Path, documents: list[dict[str, Any]], go: Any, end: Any, count: Any, ready: Any) -> None:
    """Learn and forget documents in turn while `go` is set."""
    with Store.open(folder) as store:
        store.warm_up()
        ready.set()
        number = 0
        while go.wait() and not end.is_set():
            document = documents[number // 2 % len(documents)]
            if number % 2:
                store.forget([document["id"]])
            else:
                store.learn([document])
            number += 1
            count.value = number


def of_readers(name: str, ask: Callable[[Any], Any], X: Any, writer: Thread | Process, span: float) -> list[Row]:
    """Latency of single rows without and with a writer, in turns, and the number of writes per second."""
    taken: dict[str, list[float]] = {"alone": [], "beside": []}
    asked(ask, X, 1.0)
    before = writer.written
    for _ in range(TURNS):
        taken["alone"] += asked(ask, X, span / TURNS)
        with writer.writing():
            taken["beside"] += asked(ask, X, span / TURNS)
    found: list[Row] = [(f"{name}: writes a second", (writer.written - before) / span, "")]
    for kind, seconds in taken.items():
        half, most = (1e3 * float(np.quantile(seconds, q)) for q in (0.5, 0.99))
        found += [(f"{name}: p50 {kind}, ms", half, ""), (f"{name}: p99 {kind}, ms", most, "")]
    return [*found, (f"{name}: p99 beside / alone", found[-1][1] / found[-3][1], "≤ 2")]


def readers(arguments: argparse.Namespace) -> list[Row]:
    n, more, span = (5000, 500, SECONDS / 10) if arguments.quick else (50_000, 5000, SECONDS)
    X, Y = wikipedia_shape(n + more, arguments.rows)
    Y = Y[:, np.flatnonzero(Y.sum(axis=0) > 0)]
    queries = X[:500] + np.float32(0.1)
    settings = RIPML.paper(n_dims=100, n_neighbors=5, n_learners=5, ridge=1.0, random_state=0)
    found: list[Row] = []
    sys.setswitchinterval(5e-4)  # the value that a store sets when it is open for writing
    with loaded(found, "readers"), tempfile.TemporaryDirectory() as folder:
        current = [copy.deepcopy(settings).fit(X[:n], Y[:n])]
        calls = 0

        def write() -> None:
            """Learn a row, or forget the last one."""
            nonlocal calls
            row = n + calls // 2 % more
            version = copy.copy(current[0])
            (version.forget if calls % 2 else version.partial_fit)(X[row : row + 1], Y[row : row + 1])
            current[0], calls = version, calls + 1

        def ask(x: Any) -> Any:
            return current[0].decision_function(x)

        found += of_readers("readers", ask, queries, Thread(write, 0), span)
        calls = 0
        current.clear()
        names = [f"label {j}" for j in range(Y.shape[1])]
        data = Dataset(X=scipy.sparse.csr_array(X[:n]), Y=Y[:n], label_names=names)
        with Store.create(Path(folder) / "store", data, settings) as store:

            def commit() -> None:
                nonlocal calls
                row = n + calls // 2 % more
                if calls % 2:
                    store.forget([str(row)])
                else:
                    labels = [names[j] for j in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]]
                    store.learn([{"id": str(row), "features": X[row].tolist(), "labels": labels}])
                calls += 1

            def ask_store(x: Any) -> Any:
                return store.model.model.decision_function(x)

            found += of_readers("readers of a store", ask_store, queries, Thread(commit, 1 / WRITES), span)
        documents = [
            {"id": str(n + i), "features": X[n + i].tolist(), "labels": [names[j] for j in Y[[n + i]].indices]}
            for i in range(min(more, 200))
        ]
        process = Process(Path(folder) / "store", documents)
        with Store.open(Path(folder) / "store", readonly=True) as store:
            following = store.model.model
            found += of_readers("readers beside a writing process", following.decision_function, queries, process, span)
        process.end()
    return found


SECTIONS = {"mixes": mixes, "drift": drift, "speed": speed, "readers": readers}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="smaller and faster")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--rows", type=Path, help="a folder with generated rows")
    arguments = parser.parse_args()
    found: list[Row] = []
    for name in arguments.only.split(","):
        found += SECTIONS[name](arguments)
    finish(found, arguments.json)


if __name__ == "__main__":
    main()
