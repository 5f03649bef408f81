"""Honest clients beside a hostile one: their latency and the server's memory, with and without it.

    python benchmarks/hostile.py [--quick] [--json PATH]

Eight clients, each with a key of its own, send texts without pause to a server with keys. One more key, within its
rate, attacks from another process: with bodies that never arrive, with large answers that it does not read, with long
look-ups (histories, explanations of long texts), or with all of these. One server that is not attacked and new ones
that are attacked take turns.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, options
from serving import PATH, Load, generated, load

from ripml import RIPML
from ripml.server import add_key
from ripml.store import Store
from ripml.store.documents import parse_documents

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from served import ServerProcess, request_bytes

N_HONEST = 8
RATE = 100.0  # requests per second and key
MAX_OPEN = 400  # connections of the hostile client
LOOK_UPS = 12  # at the same time
STORE = "/v1/stores/store"
ATTACKS = ("slow bodies", "unread answers", "long look-ups", "all of these")


def memory(process: int) -> float:
    """The resident memory of a process in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


class Attack:
    """A hostile client, within its rate."""

    def __init__(self, port: int, token: str, requests: Any) -> None:
        self._port, self._headers = port, {"Authorization": f"Bearer {token}"}
        self._requests = requests  # a number that is shared with the other process
        self._open: list[asyncio.StreamWriter] = []

    async def run(self, kind: str) -> None:
        """Attack until cancelled."""
        attacks = {"slow bodies": self._slow_bodies, "unread answers": self._unread, "long look-ups": self._look_ups}
        chosen = list(attacks.values()) if kind == ATTACKS[-1] else [attacks[kind]]
        await asyncio.gather(*(attack(RATE / len(chosen)) for attack in chosen))

    async def _send_unread(self, request: bytes, rate: float) -> None:
        """Send a request again and again, each on a new connection from which nothing is read."""
        while True:
            with suppress(OSError):
                _reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(request)
                self._open.append(writer)
                self._requests.value += 1
            if len(self._open) > MAX_OPEN:
                self._open.pop(0).transport.abort()
            await asyncio.sleep(1 / rate)

    async def _slow_bodies(self, rate: float) -> None:
        headers = {**self._headers, "Content-Length": "1000000"}
        await self._send_unread(request_bytes("POST", PATH, b"{", headers), rate)

    async def _unread(self, rate: float) -> None:
        body = json.dumps({"texts": [f"w{i}" for i in range(1000)], "n": 1000}).encode()
        await self._send_unread(request_bytes("POST", f"{STORE}/suggest/batch", body, self._headers), rate)

    async def _look_ups(self, rate: float) -> None:
        text = " ".join(f"w{i % 9000}" for i in range(8000))
        explain = json.dumps({"text": text, "n": 100, "examples": 50, "features": 200}).encode()
        requests = [
            request_bytes("GET", f"{STORE}/history?limit=1000", headers={**self._headers, "Connection": "close"}),
            request_bytes("POST", f"{STORE}/explain", explain, {**self._headers, "Connection": "close"}),
        ]

        async def client(number: int) -> None:
            while True:
                with suppress(OSError):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                    writer.write(requests[number % 2])
                    self._requests.value += 1
                    await reader.read(-1)
                    writer.close()
                await asyncio.sleep(LOOK_UPS / rate)

        await asyncio.gather(*map(client, range(LOOK_UPS)))


def attack(kind: str, port: int, token: str, requests: Any) -> None:
    """The process of a hostile client."""
    asyncio.run(Attack(port, token, requests).run(kind))


async def measure(server: ServerProcess, texts: list[bytes], seconds: float) -> tuple[Load, float, float]:
    """The responses to the honest clients, the most memory of the server, and the slowest /health in ms."""
    peak = slowest = 0.0

    async def watch() -> None:
        nonlocal peak, slowest
        while True:
            begin = time.perf_counter()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            await reader.read(-1)
            writer.close()
            slowest = max(slowest, 1000 * (time.perf_counter() - begin))
            peak = max(peak, memory(server.process.pid))
            await asyncio.sleep(0.1)

    watcher = asyncio.create_task(watch())
    seen = await load(server.port, N_HONEST, texts, seconds)
    watcher.cancel()
    return seen, peak, slowest


def main() -> None:
    arguments = options(__doc__ or "")
    seconds, turns = (4.0, 1) if arguments.quick else (10.0, 4)
    with tempfile.TemporaryDirectory() as scratch:
        folder, keys = Path(scratch) / "store", Path(scratch) / "keys.jsonl"
        with Store.create(folder, parse_documents(generated(2000, 0)), RIPML(random_state=0)) as store:
            ids = store.ids()[:20]
            for turn in range(50):  # a history with many labels
                store.relabel({id: [f"label {(turn + i) % 200}" for i in range(100)] for id in ids})
        tokens = [add_key(keys, f"honest {number}") for number in range(N_HONEST)]
        hostile = add_key(keys, "hostile")
        bodies = [json.dumps({"text": document["text"]}).encode() for document in generated(N_HONEST * 40, 1)]
        texts = [
            request_bytes("POST", PATH, body, {"Authorization": f"Bearer {tokens[number % N_HONEST]}"})
            for number, body in enumerate(bodies)
        ]
        calm: list[Load] = []
        attacked: dict[str, list[Load]] = {kind: [] for kind in ATTACKS}
        memories: dict[str, float] = {}
        slowest: dict[str, float] = {}
        sent: dict[str, int] = {}
        before = os.getloadavg()[0]
        options_of = {"keys": str(keys), "rate": RATE, "read_only": True}
        with ServerProcess(f"store={folder}", **options_of) as peaceful:  # never attacked
            asyncio.run(load(peaceful.port, N_HONEST, texts, seconds))  # warm-up
            for _ in range(turns):
                for kind in ATTACKS:
                    seen, peak, health = asyncio.run(measure(peaceful, texts, seconds))
                    calm.append(seen)
                    memories["calm"] = max(peak, memories.get("calm", 0.0))
                    slowest["calm"] = max(health, slowest.get("calm", 0.0))
                    with ServerProcess(f"store={folder}", **options_of) as server:
                        asyncio.run(load(server.port, N_HONEST, texts, seconds / 2))  # warm-up
                        context = multiprocessing.get_context("fork")  # begins at once
                        requests = context.Value("i", 0)
                        attacker = (kind, server.port, hostile, requests)
                        process = context.Process(target=attack, args=attacker, daemon=True)
                        process.start()
                        asyncio.run(load(server.port, N_HONEST, texts, seconds / 2))  # until the attack has begun
                        seen, peak, health = asyncio.run(measure(server, texts, seconds))
                        process.kill()
                        process.join()
                    sent[kind] = sent.get(kind, 0) + requests.value
                    attacked[kind].append(seen)
                    memories[kind] = max(peak, memories.get(kind, 0.0))
                    slowest[kind] = max(health, slowest.get(kind, 0.0))
        p99 = float(np.median([seen.quantile(0.99) for seen in calm]))
        found: list[Row] = [
            ("load average before", before, ""),
            ("calm: p50, ms", float(np.median([seen.quantile(0.5) for seen in calm])), ""),
            ("calm: p99, ms", p99, ""),
            ("calm: memory, MB", memories["calm"], ""),
            ("calm: slowest /health, ms", slowest["calm"], ""),
        ]
        for kind, loads in attacked.items():
            found += [
                (f"{kind}: hostile requests", sent[kind], ""),
                (f"{kind}: errors of honest clients", sum(seen.errors for seen in loads), "0"),
                (f"{kind}: p99 / calm", float(np.median([seen.quantile(0.99) for seen in loads])) / p99, "≤ 3"),
                (f"{kind}: memory / calm", memories[kind] / memories["calm"], "≤ 2"),
                (f"{kind}: slowest /health, ms", slowest[kind], ""),
            ]
        finish(found, arguments.json)


if __name__ == "__main__":
    main()
