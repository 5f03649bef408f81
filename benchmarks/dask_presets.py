"""The default and `linear` on a Dask cluster of two worker processes, compared with one fit in memory.

    RIPML_DATA=folder python benchmarks/dask_presets.py [--quick] [--json PATH]

The training rows of acl_authors (91,818 × 32,956, 45,576 labels), or a third of them, in .npy files that both sides
map: more features than a factorisation takes, so that Psi comes from conjugate gradients. Starting the cluster does not
count, nor does a small first fit that loads what each side loads once. Both sides take turns on the same two cores.
Then a worker is killed in each step. CPU seconds, of the client and all workers, far below cores × seconds tell that
the machine was busy.

Bounds: 1.3 times the fit in memory, also with killed workers, and the same scores of 1,000 test rows.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dask
import numpy as np
import psutil  # comes with distributed
import scipy.sparse
from distributed import Client, LocalCluster, wait
from harness import Row, finish, has_data, options

from ripml import RIPML, datasets
from ripml.distributed import fit
from ripml.distributed.workers import Workers

PRESETS: dict[str, Callable[..., RIPML]] = {"default": RIPML, "linear": RIPML.linear}
STEPS = ("rows", "rows to files", "relevance", "features", "features to files", "moment", "product")
PARTITIONS, WARM, ASKED = 16, 15_000, 1_000


def store(folder: Path, matrix: Any, name: str) -> None:
    for part in ("data", "indices", "indptr"):
        np.save(folder / f"{name}-{part}.npy", getattr(matrix, part))


def rows(folder: str, start: int, stop: int, widths: tuple[int, int]) -> tuple[Any, Any]:
    """A range of rows, mapped from the files."""
    found = []
    for name, width in zip("XY", widths, strict=True):
        data, indices, indptr = (
            np.load(f"{folder}/{name}-{part}.npy", mmap_mode="r") for part in ("data", "indices", "indptr")
        )
        ends = np.array(indptr[start : stop + 1])
        entries = slice(ends[0], ends[-1])
        arrays = np.array(data[entries]), np.array(indices[entries]), ends - ends[0]
        found.append(scipy.sparse.csr_array(arrays, shape=(stop - start, width)))
    return found[0], found[1]


class Killing(Workers):
    """Kill a worker, once, when the first task of this name has finished."""

    at = ""
    lock = threading.Lock()

    def each(self, function: Any, *arguments: Any, name: str | None = None) -> list[Any]:
        return self._kill(super().each(function, *arguments, name=name))

    def one(self, function: Any, *arguments: Any, name: str | None = None) -> Any:
        return self._kill([super().one(function, *arguments, name=name)])[0]

    def _kill(self, futures: list[Any]) -> list[Any]:
        with Killing.lock:
            if dask.utils.key_split(futures[0].key) == Killing.at:
                Killing.at = ""
                wait(futures, return_when="FIRST_COMPLETED")
                os.kill(next(iter(self._client.run(os.getpid).values())), signal.SIGKILL)
        return futures


def processor(client: Any) -> float:
    """CPU seconds of the client and its workers so far."""

    def own() -> float:
        return float(sum(psutil.Process().cpu_times()[:2]))

    return own() + float(sum(client.run(own).values()))


def timed(function: Any, *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def main() -> None:
    args = options(__doc__ or "")
    if not has_data():
        print("RIPML_DATA is not set, so acl_authors cannot be loaded: nothing is measured.")
        return
    train, test = datasets.load("acl_authors")
    n = train.X.shape[0] // (3 if args.quick else 1)
    widths, asked = (train.X.shape[1], train.Y.shape[1]), test.X[:ASKED]
    table: list[Row] = [("rows", n, "")]
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, direct_to_workers=True) as client,
    ):
        store(Path(name), train.X, "X")
        store(Path(name), train.Y, "Y")
        del train

        def in_memory(preset: str, n_rows: int) -> Any:
            return PRESETS[preset](random_state=0).fit(*rows(name, 0, n_rows, widths)).decision_function(asked)

        def on_workers(preset: str, n_rows: int) -> Any:
            edges = np.linspace(0, n_rows, PARTITIONS + 1).astype(int).tolist()
            parts = [dask.delayed(rows)(name, start, stop, widths) for start, stop in pairwise(edges)]
            with tempfile.TemporaryDirectory(dir=name) as work:
                return fit(PRESETS[preset](random_state=0), parts, client, work).decision_function(asked)

        for preset in PRESETS:
            in_memory(preset, WARM)
            on_workers(preset, WARM)
            start = processor(client)
            memory, expected = timed(in_memory, preset, n)
            between = processor(client)
            spent, found = timed(on_workers, preset, n)
            end = processor(client)
            table += [
                (f"{preset}: fit in memory, s", memory, ""),
                (f"{preset}: fit in memory, CPU s", between - start, ""),
                (f"{preset}: two workers, s", spent, ""),
                (f"{preset}: two workers, CPU s", end - between, ""),
                (f"{preset}: two workers / in memory", spent / memory, "≤ 1.3"),
                (f"{preset}: two workers / in memory, CPU", (end - between) / (between - start), ""),
                (f"{preset}: largest difference of a score", abs(found - expected).max(), "≤ 1e-4"),
            ]
            with patch("ripml.distributed.fitting.Workers", Killing):
                for step in STEPS if preset == "default" and not args.quick else STEPS[-1:]:
                    Killing.at = step
                    spent, found = timed(on_workers, preset, n)
                    table += [
                        (f"{preset}: killed in {step!r} / in memory", spent / memory, "≤ 1.3"),
                        (f"{preset}: difference then", abs(found - expected).max(), "≤ 1e-4"),
                    ]
    table.append(("load of the machine at the end", os.getloadavg()[0], "below 3"))
    finish(table, args.json)


if __name__ == "__main__":
    main()
