"""How long an answer takes and how large a model is: the default and `linear`, one row alone and rows in a batch.

    RIPML_DATA=folder python benchmarks/answers.py [--quick] [--json PATH] [--rounds N]

Each model is fitted once, saved and loaded, and answers the test rows alone (the median over rows) and in a batch, with
compiled loops and with NumPy alone, in turns. The first answer of a fresh process includes the import and loading the
compiled loops; that of a fresh installation also compiles them. Load and CPU seconds tell whether the machine was busy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data, options

from ripml import RIPML, datasets, metrics

ASK = """
import json, sys, time
start = time.perf_counter()
import numpy as np
import ripml
from ripml import datasets
test = datasets.load(sys.argv[2])[1]
imported = time.perf_counter()
model = ripml.load(sys.argv[1])
loaded = time.perf_counter()
model.decision_function(test.X[:1])
first = time.perf_counter()
n, rounds, single, batch = int(sys.argv[3]), int(sys.argv[4]), [], []
cpu = time.process_time()
for _ in range(rounds):
    for i in range(n):
        row = test.X[i : i + 1]
        begin = time.perf_counter()
        model.decision_function(row)
        single.append(time.perf_counter() - begin)
cpu_single = (time.process_time() - cpu) / len(single)
cpu = time.process_time()
for _ in range(rounds):
    begin = time.perf_counter()
    model.decision_function(test.X)
    batch.append((time.perf_counter() - begin) / test.X.shape[0])
cpu_batch = (time.process_time() - cpu) / rounds / test.X.shape[0]
print(json.dumps({
    "load, s": loaded - imported, "first answer, s": first - loaded, "single, ms": 1e3 * float(np.median(single)),
    "single, ms of CPU": 1e3 * cpu_single, "batch, µs a row": 1e6 * min(batch),
    "batch, µs of CPU a row": 1e6 * cpu_batch,
}))
"""


def asked(folder: Path, data: str, n: int, rounds: int, **environment: str) -> dict[str, float]:
    """The figures of a fresh process that loads the model and answers."""
    command = [sys.executable, "-c", ASK, str(folder), data, str(n), str(rounds)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure."""
    given = options(__doc__ or "", rounds=3)
    if not has_data():
        sys.exit("RIPML_DATA is not set.")
    rounds, n = given.rounds or (1 if given.quick else 3), 50 if given.quick else 200
    presets: dict[str, Callable[..., Any]] = {"default": RIPML, "linear": RIPML.linear}
    rows: list[Row] = [("load at the start", os.getloadavg()[0], "below 0.5 is idle")]
    for data in ("bibtex",) if given.quick else ("eurlex", "delicious"):
        train, test = datasets.load(data)[:2]
        for preset, make in presets.items():
            name = f"{data} {preset}"
            start, cpu = time.perf_counter(), time.process_time()
            model = make(random_state=0).fit(train.X, train.Y)
            rows += [
                (f"{name} fit, s", time.perf_counter() - start, ""),
                (f"{name} fit, s of CPU", time.process_time() - cpu, "at most cores × wall"),
            ]
            scores = model.decision_function(test.X)
            rows += [(f"{name} P@{k}", 100 * metrics.precision_at_k(test.Y, scores, k=k), "") for k in (1, 3, 5)]
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                model.save(folder / "model")
                size = sum(file.stat().st_size for file in (folder / "model").iterdir())
                rows.append((f"{name} on disk, MB", size / 1e6, ""))
                compiling = asked(folder / "model", data, 1, 1, NUMBA_CACHE_DIR=str(folder / "cache"))
                rows.append((f"{name} first answer ever, s", compiling["first answer, s"], "with compiling"))
                compiled = asked(folder / "model", data, n, rounds)
                plain = asked(folder / "model", data, n, rounds, RIPML_COMPILED="0")
            rows += [
                (f"{name} {what}", value, f"{plain[what]:.4g} with NumPy alone") for what, value in compiled.items()
            ]
    rows.append(("load at the end", os.getloadavg()[0], f"{np.__version__} NumPy"))
    finish(rows, given.json)


if __name__ == "__main__":
    main()
