"""The paper's shape on a Dask cluster of two worker processes, compared with one fit in memory on the same cores.

    python benchmarks/dask_scale.py [--quick] [--json PATH]

Generated rows (`ripml.lab.generated`): 500,539 with 400 features and 359,524 labels, or a tenth of them, in .npy files
that both sides map. The paper's preset with m = 100, F = 5 and `ridge` given. Starting the cluster does not count, nor
does a small first fit that loads what each side loads once. Seconds are the minimum over rounds in which both take
turns. The client fetches results from the workers directly (`direct_to_workers`); the time through the scheduler is
reported as well. Then a worker is killed in the middle of the pass over the rows, and again while the index is merged.

Bounds: 1.3 times the fit in memory, and a relative difference of Psi of 1e-5, also with killed workers.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dask
import numpy as np
import scipy.sparse
from distributed import Client, LocalCluster, wait
from harness import Row, finish, options

from ripml import RIPML
from ripml.distributed import fit
from ripml.distributed.workers import Workers
from ripml.lab.generated import generate

ROWS, L = 500_539, 359_524
PARTITIONS, ROUNDS = 16, 2
WARM = 2_000  # rows of the first fit


def store(folder: Path, n: int) -> None:
    X, Y = generate(n)
    np.save(folder / "X.npy", X)
    np.save(folder / "indices.npy", Y.indices)
    np.save(folder / "indptr.npy", Y.indptr)


def rows(folder: str, start: int, stop: int) -> tuple[Any, Any]:
    """A range of rows, mapped from the files."""
    X, indices, indptr = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in ("X", "indices", "indptr"))
    ends = np.array(indptr[start : stop + 1])
    labels = np.array(indices[ends[0] : ends[-1]])
    ones = np.ones(len(labels), np.float32)
    return X[start:stop], scipy.sparse.csr_array((ones, labels, ends - ends[0]), shape=(stop - start, L))


def untrained() -> RIPML:
    return RIPML.paper(ridge=1.0, random_state=0)


def in_memory(folder: Path, n: int) -> RIPML:
    return untrained().fit(*rows(str(folder), 0, n))


def on_workers(folder: Path, n: int, client: Any) -> Any:
    """Return Psi and delete the folder of the index, which is not needed."""
    edges = np.linspace(0, n, PARTITIONS + 1).astype(int).tolist()
    partitions = [dask.delayed(rows)(str(folder), start, stop) for start, stop in pairwise(edges)]
    with tempfile.TemporaryDirectory(dir=folder) as work:
        return fit(untrained(), partitions, client, work).clusters_[0].regression.arrays()["Psi"]


class Killing(Workers):
    """Kill a worker when the first task of a function has finished."""

    at = ""

    def each(self, function: Any, *arguments: Any, name: str | None = None) -> list[Any]:
        futures = super().each(function, *arguments, name=name)
        if getattr(function, "func", function).__name__ == Killing.at:
            Killing.at = ""
            wait(futures, return_when="FIRST_COMPLETED")
            os.kill(next(iter(self._client.run(os.getpid).values())), signal.SIGKILL)
        return futures


def timed(function: Any, *arguments: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def main() -> None:
    args = options(__doc__ or "")
    n = ROWS // 10 if args.quick else ROWS
    with (
        tempfile.TemporaryDirectory() as name,
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, direct_to_workers=True) as client,
        Client(cluster) as by_scheduler,
    ):
        folder = Path(name)
        store(folder, n)
        in_memory(folder, WARM)
        for each in (client, by_scheduler):
            on_workers(folder, WARM, each)
        seconds: dict[str, list[float]] = {"memory": [], "workers": [], "scheduler": []}
        for _ in range(ROUNDS):
            spent, model = timed(in_memory, folder, n)
            seconds["memory"].append(spent)
            Psi = model.clusters_[0].regression.arrays()["Psi"]
            del model
            spent, found = timed(on_workers, folder, n, client)
            seconds["workers"].append(spent)
            seconds["scheduler"].append(timed(on_workers, folder, n, by_scheduler)[0])
        differences, killed = [float(np.abs(found - Psi).max() / np.abs(Psi).max())], []
        with patch("ripml.distributed.fitting.Workers", Killing):
            for Killing.at in ("one_pass", "bucket_of"):
                spent, found = timed(on_workers, folder, n, client)
                killed.append(spent)
                differences.append(float(np.abs(found - Psi).max() / np.abs(Psi).max()))
    best = {name: min(of) for name, of in seconds.items()}
    table: list[Row] = [
        ("rows", n, ""),
        ("fit in memory, s", best["memory"], "reads the files, both cores"),
        ("two workers, s", best["workers"], "the same files, the same cores"),
        ("two workers / in memory", best["workers"] / best["memory"], "≤ 1.3"),
        ("results by way of the scheduler / in memory", best["scheduler"] / best["memory"], ""),
        ("relative difference of Psi", differences[0], "≤ 1e-5"),
        ("a worker killed in the pass, s", killed[0], ""),
        ("relative difference of Psi then", differences[1], "≤ 1e-5"),
        ("a worker killed in the index, s", killed[1], ""),
        ("relative difference of Psi there", differences[2], "≤ 1e-5"),
    ]
    finish(table, args.json)


if __name__ == "__main__":
    main()
