"""Faults: a server gets invalid requests, replaces its model under load, and is killed.

    python benchmarks/server_faults.py [--quick] [--only described,mutated,swaps,kills] [--json PATH]

    described  schemathesis with all checks on the OpenAPI description: failures, and responses of 500
    mutated    10,000 valid bodies with random damage: responses of 500, and none within ten seconds
    swaps      20 refits while clients suggest and learn: failed requests
    kills      20 times kill -9 and a restart while clients learn: acknowledged documents that are lost

All on a small store; --quick runs a tenth of it. All bounds are 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from harness import Row, finish

from ripml.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from mutations import ODD_VALUES
from served import Connection, ServerProcess, request_bytes
from store_writer import WORDS, example, settings

STORE = "/v1/stores/store"
HANG = 10.0  # seconds
CLIENTS = 8
CASES, BODIES, SWAPS, KILLS = 2000, 10_000, 20, 20
VALID: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/suggest", {"text": "word1 word2", "n": 3, "threshold": 0.1}),
    ("POST", "/suggest/batch", {"texts": ["word1", "word2 word3"], "n": 3, "threshold": "auto"}),
    ("POST", "/explain", {"text": "word1 word2", "n": 2, "examples": 2, "features": 3}),
    ("POST", "/documents", {"documents": [{"id": "m", "text": "word4", "labels": ["label 1", "new"]}]}),
    ("PUT", "/documents/1/labels", {"labels": ["label 1"]}),
    ("POST", "/forget", {"ids": ["m"]}),
]
PIECES = [
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"NaN", b"-Infinity", b"1e999", b"-0", b"9" * 400),
    *(b"[" * 2000, b'{"a":' * 500, b"]", b"}", b'"', b"\\", b",", b":", b"null", b"true", b"\xef\xbb\xbf", b"//"),
]


# ----------------------------------------------------------------------------------------------------------- described


def described(port: int, share: float) -> list[Row]:
    """The failures that schemathesis finds."""
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--no-color", "run"),
        f"http://127.0.0.1:{port}/openapi.json",
        *("--checks", "all", "--max-examples", str(int(150 * share)), "--seed", "1", "--workers", "2"),
        *("--continue-on-failure", "--request-timeout", str(HANG), "--generation-database", "none"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    cases = re.search(r"([\d,]+) generated", done.stdout)
    failures = re.search(r"([\d,]+) unique failure", done.stdout)
    servers = len(re.findall(r"Server error", done.stdout))
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:])
    return [
        ("described: cases", int(cases[1].replace(",", "")) if cases else 0, f"≥ {int(CASES * share):,}"),
        ("described: failures", int(failures[1]) if failures else float(done.returncode), "0"),
        ("described: kinds of responses of 500", servers, "0"),
    ]


# ------------------------------------------------------------------------------------------------------------- mutated


def mutated(body: dict[str, Any], rng: random.Random) -> bytes:
    """A body with random damage to its values or its bytes."""
    if rng.random() < 0.6:
        changed: Any = json.loads(json.dumps(body))
        inside = changed["documents"][0] if "documents" in changed and rng.random() < 0.7 else changed
        name = rng.choice([*inside, "extra"])
        inside[name] = rng.choice([*ODD_VALUES, [rng.choice(ODD_VALUES)], "a" * rng.randrange(10**5)])
        return json.dumps(changed).encode()
    content = bytearray(json.dumps(body).encode())
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(content) + 1), rng.randrange(4)
        if kind == 0:
            content[at:at] = rng.choice(PIECES)
        elif kind == 1:
            del content[at : at + rng.randint(1, 10)]
        elif kind == 2 and at < len(content):
            content[at] = rng.randrange(256)
        else:
            content[at:at] = content[: rng.randint(1, 40)]
    return bytes(content)


async def send_mutated(port: int, n: int, seed: int) -> tuple[Counter[int], int]:
    """The statuses of the responses, and the number of timeouts."""
    rng, statuses, hangs = random.Random(seed), Counter[int](), 0
    connection = await Connection.to(port)
    for _ in range(n):
        method, path, body = rng.choice(VALID)
        content = mutated(body, rng)
        headers = {
            "Content-Type": rng.choice(["application/json"] * 18 + ["text/plain", "application/json; charset=x"])
        }
        if rng.random() < 0.05:
            headers["Content-Length"] = str(len(content) // 2)  # the rest is not HTTP
        try:
            request = request_bytes(method, STORE + path, content, headers)
            status, _ = await asyncio.wait_for(connection.send(request), HANG)
        except asyncio.TimeoutError:
            hangs += 1
            status = 0
        except ConnectionError:
            status = 0
        statuses[status] += 1
        if status == 0 or "Content-Length" in headers or status == 413:
            async with connection:
                pass
            connection = await Connection.to(port)
    async with connection:
        return statuses, hangs


def send_all_mutated(port: int, share: float) -> list[Row]:
    async def run() -> list[tuple[Counter[int], int]]:
        n = int(BODIES * share) // CLIENTS
        return await asyncio.gather(*(send_mutated(port, n, seed) for seed in range(CLIENTS)))

    found = asyncio.run(run())
    statuses = sum((each for each, _ in found), Counter[int]())
    return [
        ("mutated: bodies", statuses.total(), ""),
        *((f"mutated: responses of {status or 'none'}", n, "") for status, n in sorted(statuses.items())),
        ("mutated: responses of 500 and more", sum(n for status, n in statuses.items() if status >= 500), "0"),
        ("mutated: no response in ten seconds", sum(hangs for _, hangs in found), "0"),
    ]


# --------------------------------------------------------------------------------------------------------------- swaps


def swaps(port: int, share: float) -> list[Row]:
    """Refits under load."""
    statuses, over = Counter[int](), False

    async def ask(number: int) -> None:
        rng = random.Random(number)
        async with await Connection.to(port) as connection:
            while not over:
                text = " ".join(rng.choices(WORDS, k=6))
                new = {"documents": [{"id": f"s{number}", "text": text, "labels": [f"label {number % 6}"]}]}
                learns = number == 0 and rng.random() < 0.2
                path, body = ("/documents", new) if learns else ("/suggest", {"text": text})
                try:
                    status, _ = await connection.ask("POST", STORE + path, body)
                except ConnectionError:
                    statuses[0] += 1
                    return
                statuses[status] += 1

    async def swap() -> int:
        nonlocal over
        async with await Connection.to(port) as connection:
            first = (await connection.ask("GET", STORE))[1]["version"]
            for _ in range(int(SWAPS * share)):
                await connection.ask("POST", f"{STORE}/refit")
                while (await connection.ask("GET", f"{STORE}/refit"))[1]["status"] == "running":
                    await asyncio.sleep(0.01)
            _, history = await connection.ask("GET", f"{STORE}/history?limit=1000")
        over = True
        return sum(change["kind"] == "refit" and change["number"] > first for change in history["changes"])

    async def run() -> int:
        asking = asyncio.gather(*map(ask, range(CLIENTS)))
        swapped = await swap()
        await asking
        return swapped

    swapped = asyncio.run(run())
    failed = sum(n for status, n in statuses.items() if status not in {200, 201})
    return [
        ("swaps: models replaced", swapped, ""),
        ("swaps: requests", statuses.total(), ""),
        ("swaps: failed requests", failed, "0"),
    ]


# --------------------------------------------------------------------------------------------------------------- kills


async def learn(port: int, name: str, acknowledged: dict[str, list[str]]) -> None:
    """Learn and relabel documents until the connection breaks, and record what the server acknowledged."""
    rng = random.Random(name)
    try:
        async with await Connection.to(port) as connection:
            for number in range(10**6):
                id, labels = f"{name}.{number}", [rng.choice(["label 1", "label 2", f"new {number % 9}"])]
                new = {"id": id, "text": " ".join(rng.choices(WORDS, k=6)), "labels": labels}
                status, _ = await connection.ask("POST", f"{STORE}/documents", {"documents": [new]})
                if status == 201:
                    acknowledged[id] = labels
                if number % 3 == 0:
                    acknowledged.pop(id, None)  # until the response, either label is right
                    status, _ = await connection.ask("PUT", f"{STORE}/documents/{id}/labels", {"labels": ["label 3"]})
                    if status == 200:
                        acknowledged[id] = ["label 3"]
    except ConnectionError:
        pass


def kills(folder: Path, share: float) -> list[Row]:
    """Documents that are lost after kill -9."""
    acknowledged: dict[str, list[str]] = {}
    rng, lost, n = random.Random(0), 0, int(KILLS * share)
    for kill in range(n):
        with ServerProcess(folder) as server:

            async def until_killed(server: ServerProcess = server, kill: int = kill) -> None:
                writers = asyncio.gather(*(learn(server.port, f"{kill}.{i}", acknowledged) for i in range(CLIENTS)))
                await asyncio.sleep(rng.uniform(0.3, 3.0))
                server.process.kill()
                await writers

            asyncio.run(until_killed())
            server.end(signal.SIGKILL)
        with Store.open(folder, readonly=True) as store:
            ids = set(store.ids())
            lost += sum(id not in ids for id in acknowledged)
    with Store.open(folder) as store:
        wrong = sum(id in ids and store.document(id)["labels"] != labels for id, labels in acknowledged.items())
    return [
        ("kills: kills", n, ""),
        ("kills: acknowledged documents", len(acknowledged), ""),
        ("kills: acknowledged documents lost", lost, "0"),
        ("kills: acknowledged labels lost", wrong, "0"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="run a tenth of it")
    parser.add_argument("--only", default="described,mutated,swaps,kills", help="some of the four, separated by commas")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    share, start = 0.1 if arguments.quick else 1.0, time.perf_counter()
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "store"
        Store.create(folder, example(200), settings()).close()
        for name in arguments.only.split(","):
            if name == "kills":
                found += kills(folder, share)
                continue
            with ServerProcess(folder) as server:
                measure = {"described": described, "mutated": send_all_mutated, "swaps": swaps}[name]
                found += measure(server.port, share)
                code = server.end()
            found.append((f"{name}: exit code of the server", code, "0"))
            errors = [line for line in server.log if re.search(r"ERROR|Traceback", line)]
            found.append((f"{name}: errors in its log", len(errors), ""))
            print("".join(errors[:5]), end="")
    finish([*found, ("seconds", time.perf_counter() - start, "")], arguments.json)
    if any(bound == "0" and figure for _, figure, bound in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
