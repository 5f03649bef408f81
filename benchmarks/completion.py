"""Completion over HTTP: a server whose store has a million labels, asked with what people type.

    python benchmarks/completion.py [--quick] [--labels N] [--json PATH]

The names are real ones: the English names of subject headings in `tibkat`, the labels of `msdocs`, and pairs of two of
them, as in "Airport construction / Molybdenum compounds", up to the number of labels. The store has 2,000 documents;
the server is `ripml serve` in a process of its own, and the client asks on loopback, one request after the other over
one connection. Without RIPML_DATA, names are made of syllables.
"""

from __future__ import annotations

import gzip
import http.client
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
from harness import Row, finish, options
from scipy.sparse import csr_array

from ripml import RIPML, Store
from ripml.datasets import Dataset

LABELS, DOCUMENTS, ASKED = 1_000_000, 2000, 300
SYLLABLES = [f"{c}{v}" for c in "bcdfghklmnprstvwz" for v in "aeiou"]


def real_names() -> list[str]:
    """Names of subject headings and labels, each once."""
    if not (folder := os.environ.get("RIPML_DATA")):
        rng = np.random.default_rng(0)
        return ["".join(rng.choice(SYLLABLES, size)).title() for size in rng.integers(3, 7, 30_000)]
    names: dict[str, None] = {}
    with gzip.open(Path(folder) / "tibkat" / "names-en.tsv.gz", "rt", encoding="utf-8") as file:
        names |= dict.fromkeys(line.rstrip("\n").split("\t")[1] for line in file)
    with gzip.open(Path(folder) / "msdocs" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            names |= dict.fromkeys(json.loads(line)["labels"])
    return list(names)


def names_of(n: int) -> list[str]:
    """n different names."""
    real, rng = list(dict.fromkeys(real_names())), np.random.default_rng(1)
    names = dict.fromkeys(real[:n])
    while len(names) < n:
        pairs = rng.integers(len(real), size=(n - len(names), 2)).tolist()
        names |= dict.fromkeys(f"{real[a]} / {real[b]}" for a, b in pairs)
    return list(names)


def create(folder: Path, n: int) -> tuple[list[str], float]:
    """A store with n labels, most of which no document carries; their names, and the seconds to add them."""
    names, rng = names_of(n), np.random.default_rng(2)
    carried = names[: n // 100]
    places = np.minimum(rng.zipf(1.4, (DOCUMENTS, 3)) - 1, len(carried) - 1)
    rows, columns = np.repeat(np.arange(DOCUMENTS), 3), places.ravel()
    Y = csr_array((np.ones(len(rows)), (rows, columns)), shape=(DOCUMENTS, len(carried)))
    Y.data[:] = 1
    texts = [" ".join(carried[place] for place in row) for row in places.tolist()]
    used = np.flatnonzero(np.asarray(Y.sum(axis=0)).ravel())
    data = Dataset(X=None, Y=Y[:, used], label_names=[carried[i] for i in used], texts=texts, name="completion")
    with Store.create(folder, data, RIPML.linear(random_state=0)) as store:
        start = time.perf_counter()
        store.add_labels(names)
        return names, time.perf_counter() - start


class Client:
    """One connection to the server."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def get(self, path: str) -> bytes:
        self.connection.request("GET", path)
        response = self.connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return body


def memory(process: int) -> float:
    """MB that a process has now."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


def cpu_seconds(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(store: Path) -> Iterator[tuple[int, int, float]]:
    """`ripml serve` of a store: its process and port, and the seconds until it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ripml", "serve", str(store), "--port", str(port)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    Client(port).get("/ready")
                    break
                except (OSError, AssertionError):
                    assert server.poll() is None, "the server did not start"
                    time.sleep(0.02)
            yield server.pid, port, time.perf_counter() - start
        finally:
            server.terminate()


def asked(names: list[str], n: int) -> dict[str, list[str]]:
    """Paths to ask for, by kind."""
    rng = np.random.default_rng(3)
    picked = [names[i] for i in rng.integers(len(names), size=n)]
    words = [name.split() for name in picked]
    typed = {
        "1 character": [name[:1] for name in picked],
        "3 characters": [name[:3] for name in picked],
        "a later word": [some[-1][:4] for some in words],
        "a name": picked,
        "a typing mistake": [f"{name[:4]}q{name[4:14]}" for name in picked],
        "nothing like it": [f"q{i}zxj{name[::-1][:8]}" for i, name in enumerate(picked)],
    }
    base = "/v1/stores/store/labels"
    paths = {
        f"complete {kind}": [f"{base}?limit=8&prefix={quote(one)}" for one in some] for kind, some in typed.items()
    }
    for order in ("name", "count", "newest"):
        starts = rng.integers(len(names), size=n).tolist()
        paths[f"100 labels by {order}"] = [f"{base}?limit=100&order={order}&start={start}" for start in starts]
    return paths


def measured(client: Client, paths: list[str], pid: int) -> tuple[float, float, float]:
    """Milliseconds of requests at p50 and p95, and CPU milliseconds of the server for each."""
    taken, cpu = [], cpu_seconds(pid)
    for path in paths:
        start = time.perf_counter()
        client.get(path)
        taken.append(1000 * (time.perf_counter() - start))
    return *np.quantile(taken, [0.5, 0.95]).tolist(), 1000 * (cpu_seconds(pid) - cpu) / len(paths)


def main() -> None:
    arguments = options(__doc__ or "", labels=LABELS)
    n = arguments.labels or (20_000 if arguments.quick else LABELS)
    rows: list[Row] = [("load average before", os.getloadavg()[0], "")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "store"
        names, seconds = create(folder, n)
        rows.append((f"add {n:,} labels to a store, s", seconds, ""))
        with serving(folder) as (pid, port, ready):
            rows += [("server ready after, s", ready, ""), ("  CPU seconds until then", cpu_seconds(pid), "")]
            rows.append(("  memory then, MB", memory(pid), ""))
            client = Client(port)
            start = time.perf_counter()
            client.get("/v1/stores/store/labels?prefix=a")
            rows.append(("first completion, ms", 1000 * (time.perf_counter() - start), "≤ 50"))
            rows.append(("  memory then, MB", memory(pid), ""))
            for kind, paths in asked(names, 50 if arguments.quick else ASKED).items():
                p50, p95, cpu = measured(client, paths, pid)
                rows += [(f"{kind}: p50, ms", p50, ""), ("  p95, ms", p95, "≤ 50"), ("  CPU ms each", cpu, "")]
    rows.append(("load average after", os.getloadavg()[0], ""))
    finish([row for row in rows if not math.isnan(row[1])], arguments.json)


if __name__ == "__main__":
    main()
