"""Latency and throughput of a server under load from another process, and the gain by batching.

    python benchmarks/serving.py [--quick] [--store FOLDER] [--json PATH]

One process serves a store of EUR-Lex's raw training texts with the default settings (generated texts with --quick or
without RIPML_DATA). 1, 8 and 64 clients, each with one connection, send test texts one after another without pause.
For comparison, another process serves the same store with `max_batch=1`, which scores each request alone. The two take
turns, and the best turn of each counts. --store uses the store in a folder, or creates it there.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data

from ripml import RIPML
from ripml.store import Store
from ripml.store.documents import parse_documents

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from served import Connection, ServerProcess, request_bytes

CLIENTS = (1, 8, 64)
PATH = "/v1/stores/store/suggest"


def documents(split: str) -> Iterator[dict[str, Any]]:
    """EUR-Lex as raw text."""
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "eurlex" / "docs.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            document = json.loads(line)
            if document["split"] == split:
                yield document


def generated(n: int, seed: int) -> list[dict[str, Any]]:
    """Documents of 300 words, half of them typical of their label."""
    rng = random.Random(seed)
    labels = [rng.randrange(200) for _ in range(n)]
    return [
        {
            "text": " ".join(f"w{rng.randrange(50) + (50 * label if rng.random() < 0.5 else 0)}" for _ in range(300)),
            "labels": [f"label {label}"],
        }
        for label in labels
    ]


@dataclass
class Load:
    """The responses to some clients."""

    milliseconds: list[float]
    errors: int
    seconds: float

    @property
    def per_second(self) -> float:
        return len(self.milliseconds) / self.seconds

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.milliseconds, q))


async def load(port: int, n_clients: int, texts: list[bytes], seconds: float) -> Load:
    """Clients that send requests without pause for some seconds, and wait for the last response."""
    seen, errors = list[float](), 0
    begin = time.perf_counter()

    async def client(number: int) -> None:
        nonlocal errors
        async with await Connection.to(port) as connection:
            for turn in range(number, 10**9, n_clients):
                start = time.perf_counter()
                if start > begin + seconds:
                    return
                try:
                    status, _ = await connection.send(texts[turn % len(texts)])
                except ConnectionError:
                    errors += 1
                    return
                errors += status != 200
                seen.append(1000 * (time.perf_counter() - start))

    await asyncio.gather(*map(client, range(n_clients)))
    return Load(seen, errors, time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="a generated store, and shorter turns")
    parser.add_argument("--store", type=Path, help="the folder of the store")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    real = has_data() and not arguments.quick
    seconds, turns = (8.0, 3) if real else (1.5, 2)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.store or Path(scratch) / "store"
        found: list[Row] = []
        if not folder.exists():
            data = parse_documents(documents("train") if real else generated(2000, 0))
            start = time.perf_counter()
            Store.create(folder, data, RIPML(random_state=0)).close()
            found.append(("seconds to make the store", time.perf_counter() - start, ""))
        queries = documents("test") if real else generated(300, 1)
        bodies = (json.dumps({"text": document["text"]}).encode() for document in queries)
        texts = [request_bytes("POST", PATH, body) for body in bodies]
        before = os.getloadavg()[0]
        best: dict[str, Load] = {}
        errors = 0
        options: dict[str, dict[str, Any]] = {"batched": {}, "one by one": {"max_batch": 1}}
        servers = {name: ServerProcess(f"store={folder}", read_only=True, **more) for name, more in options.items()}
        try:
            for server in servers.values():
                asyncio.run(load(server.port, 8, texts, seconds / 4))  # warm-up
            for _ in range(turns):
                for n_clients in CLIENTS:
                    for name, server in servers.items():
                        seen = asyncio.run(load(server.port, n_clients, texts, seconds))
                        errors += seen.errors
                        case = f"{name}, {n_clients} client{'s' if n_clients > 1 else ''}"
                        best[case] = max(best.get(case, seen), seen, key=lambda load: load.per_second)
        finally:
            for server in servers.values():
                server.end()
        for case, seen in best.items():
            found += [
                (f"{case}: p50, ms", seen.quantile(0.5), ""),
                (f"{case}: p99, ms", seen.quantile(0.99), ""),
                (f"{case}: responses per second", seen.per_second, ""),
            ]
        slow = best["batched, 8 clients"].quantile(0.99) / best["batched, 1 client"].quantile(0.5)
        gain = best["batched, 64 clients"].per_second / best["one by one, 64 clients"].per_second
        found += [
            ("load average before", before, ""),
            ("errors", errors, "0"),
            ("p99 at 8 clients / p50 at 1", slow, "≤ 4"),
            ("throughput at 64 clients / one by one", gain, "≥ 3"),
        ]
        finish(found, arguments.json)


if __name__ == "__main__":
    main()
