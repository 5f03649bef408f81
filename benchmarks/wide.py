"""Wide sparse features: a step of conjugate gradients against its bounds, fits against omikuji, and d = 200,000.

    RIPML_DATA=folder python benchmarks/wide.py [--quick] [--json PATH]

A step for all M = 512 targets multiplies every nonzero of X with a row of M numbers twice, for X V and for Xᵀ(X V).
It is compared with the same two products by SciPy in one thread, divided by the number of threads, and with the bytes
of those rows over the memory bandwidth of all threads together. Rows that are in a cache can be faster than that.

On acl_authors (n = 91,818, d = 32,956, L = 45,576) ripml's default and omikuji's default take turns, each in its own
process, and the best run of each counts. Generated rows (words and labels of a topic, and some from everywhere, by
Zipf's law) show time and memory at d = 200,000; memory is the peak that the fit adds, including X and Y. --quick uses
a tenth of the generated rows and skips acl_authors.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import rivals
from harness import Row, finish, has_data, options, side_by_side
from scipy.sparse import csr_array

from ripml import RIPML, metrics
from ripml.base.parallel import map_blocks, thread_count
from ripml.base.products import by_frequency
from ripml.regression import ConjugateGradient

N, D, L, WORDS, LABELS = 100_000, 200_000, 50_000, 50, 3
TARGETS, STEPS = 512, 3
TOPIC_ROWS, TOPIC_WORDS, TOPIC_LABELS = 50, 60, 6
ROUNDS, LIMIT = 2, 1800


def drawn(rng: np.random.Generator, topic: Any, width: int, per_row: int, own: int) -> csr_array:
    """A binary matrix: half of each row from the `own` columns of its topic, half from all columns by Zipf's law."""
    half = -(-per_row * 5 // 8)  # more than half, because some are drawn twice
    names = rng.permutation(width)
    common = names[np.minimum(width ** rng.random((len(topic), half)), width - 1).astype(np.int64)]
    pool = rng.integers(width, size=(topic.max() + 1, own))
    mine = pool[topic[:, None], rng.integers(own, size=(len(topic), half))]
    columns = np.hstack([mine, common]).astype(np.int32)
    row = np.repeat(np.arange(len(topic), dtype=np.int32), columns.shape[1])
    cells = csr_array((np.ones(columns.size, np.float32), (row, columns.ravel())), shape=(len(topic), width))
    cells.sum_duplicates()
    cells.data[:] = 1
    return cells


def world(n: int) -> tuple[csr_array, csr_array]:
    """Features and labels of n rows; rarer words have larger weights."""
    rng = np.random.default_rng(0)
    topic = rng.integers(max(1, n // TOPIC_ROWS), size=n)
    X, Y = drawn(rng, topic, D, WORDS, TOPIC_WORDS), drawn(rng, topic, L, LABELS, TOPIC_LABELS)
    X.data *= np.log(n / np.bincount(X.indices, minlength=D).clip(1)).astype(np.float32)[X.indices]
    return X, Y


# ----------------------------------------------------------------------------------------------------------- a step


def bandwidth(threads: int) -> float:
    """Bytes per second that all threads together read."""
    parts = np.array_split(np.ones(1 << 27, np.float32), threads)
    seconds = side_by_side({"read": lambda: map_blocks(np.max, parts, threads)}, 4)["read"]
    return 4 * sum(len(part) for part in parts) / seconds


def step(X: csr_array, rounds: int) -> list[Row]:
    rng = np.random.default_rng(1)
    threads = thread_count(None)
    few = rng.standard_normal((X.shape[0], TARGETS), np.float32)
    solve = ConjugateGradient(max_steps=STEPS).prepare(X, few)
    V, XT = rng.standard_normal((X.shape[1], TARGETS), np.float32), X.T.tocsr()

    def solved() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it stops early on purpose
            solve(1.0)

    seconds = side_by_side(
        {"step": solved, "product": lambda: X @ V, "transposed": lambda: XT @ few, "order": lambda: by_frequency(X)},
        rounds,
    )
    took = seconds["step"] / STEPS
    bare = (seconds["product"] + seconds["transposed"]) / threads
    gathered = 2 * X.nnz * TARGETS * 4 / bandwidth(threads)
    shape = f"n = {X.shape[0]:,}, d = {X.shape[1]:,}, {X.nnz / X.shape[0]:.0f} nonzeros a row"
    return [
        (f"a step of conjugate gradients, {TARGETS} targets, s", took, shape),
        (f"a step / SciPy's products in one thread / {threads} threads", took / bare, "≤ 1.2"),
        ("a step / bytes of lines over the memory's bandwidth", took / gathered, "1 if no line were in a cache"),
        ("features in order of frequency, steps", seconds["order"] / took, "once a fit"),
    ]


# ------------------------------------------------------------------------------------------------------- acl_authors


def against_omikuji() -> list[Row]:
    environment = rivals.HERE.parent / ".rivals"
    if not has_data():
        print("acl_authors is skipped: set RIPML_DATA to the folder that has it")
        return []
    if not (environment / "omikuji" / "installed").exists():
        print("acl_authors is skipped: there is no omikuji; python benchmarks/rivals.py --quick installs it")
        return []
    python = rivals.interpreter(environment, "omikuji")
    runs: dict[str, list[rivals.Figures]] = {"omikuji": [], "default": []}
    with tempfile.TemporaryDirectory() as place:
        problem = rivals.written("acl_authors", Path(place) / "acl_authors")
        for turn in range(ROUNDS):
            for name, done in runs.items():
                own = Path(sys.executable) if name == "default" else python
                figures = rivals.measured(name, problem, own, LIMIT, 0)
                if rivals.outcome(figures):
                    print(f"acl_authors is skipped: {name} {rivals.outcome(figures)}")
                    return []
                print(f"round {turn + 1}, {name}: {figures['train s']:.1f} s, P@1 {figures['P@1']:.2f}", flush=True)
                done.append(figures)
    theirs, ours = (min(runs[name], key=lambda run: run["train s"]) for name in ("omikuji", "default"))
    return [
        ("acl_authors, training: omikuji, s", theirs["train s"], ""),
        ("acl_authors, training: default, s", ours["train s"], ""),
        ("acl_authors, training: default / omikuji", ours["train s"] / theirs["train s"], "≤ 1"),
        ("acl_authors, P@1: omikuji", theirs["P@1"], ""),
        ("acl_authors, P@1: default", ours["P@1"], "≥ omikuji's"),
        ("acl_authors, peak MB of the process: default", ours["peak MB"], f"omikuji {theirs['peak MB']:,.0f}"),
    ]


# ------------------------------------------------------------------------------------------------------- d = 200,000


def resident(field: str) -> float:
    """Resident megabytes of this process: VmRSS (now) or VmHWM (peak)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def fitted(preset: str, n: int) -> tuple[float, float, float]:
    """Seconds, megabytes and P@1 of a fit on generated rows; P@1 is measured on a thousand new rows."""
    X, Y = world(n + 1000)
    before = resident("VmRSS") - (X.data.nbytes + X.indices.nbytes + Y.data.nbytes + Y.indices.nbytes) / 1e6
    start = time.perf_counter()
    model = (RIPML if preset == "default" else getattr(RIPML, preset))(random_state=0).fit(X[:n], Y[:n])
    seconds = time.perf_counter() - start
    peak = resident("VmHWM") - before
    return seconds, peak, 100 * metrics.precision_at_k(Y[n:], model.decision_function(X[n:]), k=1)


def generated(n: int) -> list[Row]:
    rows: list[Row] = []
    for preset in ("default", "linear"):
        with ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn")
        ) as fresh:  # so that the peak belongs to this fit
            seconds, peak, precision = fresh.submit(fitted, preset, n).result()
        shape = f"n = {n:,}, L = {L:,}"
        rows += [
            (f"d = {D:,}, {preset}: fit, s", seconds, shape),
            (f"d = {D:,}, {preset}: memory of the fit, MB", peak, f"Psi alone {4 * D * TARGETS / 1e6:,.0f}"),
            (f"d = {D:,}, {preset}: P@1", precision, ""),
        ]
    return rows


def main() -> None:
    arguments = options(__doc__ or "")
    n = N // 10 if arguments.quick else N
    rows = step(world(n)[0], 2 if arguments.quick else 4)
    if arguments.quick:
        print("acl_authors is skipped: --quick")
    else:
        rows += against_omikuji()
    finish([*rows, *generated(n)], arguments.json)


if __name__ == "__main__":
    main()
