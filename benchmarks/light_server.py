"""What a server costs: time until it is ready, memory, the first change, HTTP against a call in Python, and its end.

    python benchmarks/light_server.py [--quick] [--store FOLDER] [--json PATH]

`ripml serve` serves a store of EUR-Lex's raw training texts with the default settings (generated texts with --quick or
without RIPML_DATA), in a process of its own, with bytecode as pip compiles it. Memory is what the process holds
(VmRSS), with the pages of the mapped model, which processes share (RssFile), when it is ready and after 50 texts. One
client sends test texts one after another, and the same texts are suggested for in this process in turn with it. The
first change is sent while another client goes on asking. SIGTERM is sent to an idle server, while it prepares for a
first change, and under load. Two workers are compared with one by their share of memory (PSS), in which a page that
several processes use counts for each in part. --store uses the store in a folder, or creates it.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from harness import Row, finish, has_data
from serving import PATH, documents, generated, load

import ripml
from ripml import RIPML
from ripml.store import Store
from ripml.store.documents import parse_documents

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from served import ServerProcess, request_bytes

READY = request_bytes("GET", "/ready")


class Client:
    """A blocking connection: an event loop would add its own time to each request."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the response."""
        self._socket.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._received()
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._received()
        return int(head[9:12]), body

    def _received(self) -> bytes:
        if not (part := self._socket.recv(1 << 20)):
            raise ConnectionResetError("no response")
        return part


def memory(server: ServerProcess) -> dict[str, float]:
    """VmRSS, its peak VmHWM, and the parts RssAnon and RssFile, in GB."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    pairs = (line.split()[:2] for line in lines if line.startswith(("VmRSS", "VmHWM", "RssAnon", "RssFile")))
    return {name.rstrip(":"): int(kilobytes) * 1024 / 1e9 for name, kilobytes in pairs}


def seconds_of_cpu(server: ServerProcess) -> float:
    """What a server has used of the processors."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share_of_memory(server: ServerProcess) -> float:
    """The PSS of a server and its workers, in GB."""
    pid = server.process.pid
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    rollups = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids)
    return sum(int(text.partition("\nPss:")[2].split()[0]) for text in rollups) * 1024 / 1e9


def ready(server: ServerProcess) -> Client:
    """A connection to a server that is ready."""
    client = Client(server.port)
    while client.send(READY)[0] != 200:
        time.sleep(0.005)
    return client


def beside(port: int, texts: list[bytes], done: threading.Event) -> list[float]:
    """The milliseconds of each response to one client that sends texts until an event."""
    client, seen = Client(port), list[float]()
    while not done.is_set():
        start = time.perf_counter()
        status, _ = client.send(texts[len(seen) % len(texts)])
        assert status == 200, status
        seen.append(1000 * (time.perf_counter() - start))
    return seen


def first_change(server: ServerProcess, texts: list[bytes]) -> tuple[float, list[float]]:
    """Seconds that the first change takes, and the milliseconds of suggestions meanwhile."""
    done, seen = threading.Event(), list[float]()
    asking = threading.Thread(target=lambda: seen.extend(beside(server.port, texts, done)))
    asking.start()
    new = {"documents": [{"id": "light", "text": "a regulation on light servers", "labels": ["light"]}]}
    start = time.perf_counter()
    status, _ = Client(server.port).send(
        request_bytes("POST", PATH.replace("suggest", "documents"), json.dumps(new).encode())
    )
    seconds = time.perf_counter() - start
    assert status == 201, status
    done.set()
    asking.join()
    return seconds, seen


def seconds_to_end(server: ServerProcess) -> float:
    """Seconds from SIGTERM to the end of the process."""
    start = time.perf_counter()
    code = server.end(signal.SIGTERM)
    assert code == 0, (code, server.log)
    return time.perf_counter() - start


def compare(port: int, texts: list[str], requests: list[bytes], store: Store) -> tuple[float, float]:
    """The medians, in milliseconds, of one client over HTTP and of a call in this process, in turn."""
    client, http, python = Client(port), list[float](), list[float]()
    model = store.model
    for text, request in zip(texts, requests, strict=True):
        start = time.perf_counter()
        model.suggest([text])
        middle = time.perf_counter()
        client.send(request)
        http.append(1000 * (time.perf_counter() - middle))
        python.append(1000 * (middle - start))
    return statistics.median(http[10:]), statistics.median(python[10:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="a generated store")
    parser.add_argument("--store", type=Path, help="the folder of the store, which gets one more document")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    real = has_data() and not arguments.quick
    compileall.compile_dir(Path(ripml.__file__).parent, quiet=1)
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.store or Path(scratch) / "store"
        if not folder.exists():
            data = parse_documents(documents("train") if real else generated(2000, 0))
            Store.create(folder, data, RIPML(random_state=0)).close()
        bodies = list(documents("test") if real else generated(300, 1))[:500]
        texts = [str(document["text"]) for document in bodies]
        requests = [request_bytes("POST", PATH, json.dumps({"text": text}).encode()) for text in texts]
        name = f"store={folder}"
        found.append(("load average before", os.getloadavg()[0], ""))

        # Ready, memory, and one client against a call.
        start = time.perf_counter()
        with ServerProcess(name) as server:
            client = ready(server)
            found += [
                ("seconds until ready", time.perf_counter() - start, "≤ 3"),
                ("seconds of CPU until ready", seconds_of_cpu(server), ""),
                ("memory when ready, GB", memory(server)["VmRSS"], ""),
            ]
            for request in requests[:50]:
                client.send(request)
            at_start = memory(server)
            with Store.open(folder, readonly=True) as store:
                turns = [compare(server.port, texts, requests, store) for _ in range(3)]
            http, python = min(turns, key=lambda turn: turn[0] - turn[1])
            found += [
                ("memory after 50 texts, GB", at_start["VmRSS"], "≤ 0.4"),
                ("of it pages of files, GB", at_start["RssFile"], ""),
                ("one client over HTTP: p50, ms", http, ""),
                ("the same in Python: p50, ms", python, ""),
                ("HTTP more than Python: p50, ms", http - python, "≤ 1"),
            ]
            # The first change, beside a client that asks.
            seconds, seen = first_change(server, requests)
            after = memory(server)
            found += [
                ("seconds of the first change", seconds, ""),
                ("suggestions meanwhile", float(len(seen)), "> 0"),
                ("suggestions meanwhile: longest, ms", max(seen, default=0.0), ""),
                ("memory after the first change, GB", after["VmRSS"], "≤ 2.5"),
                ("peak memory until then, GB", after["VmHWM"], ""),
            ]
            found.append(("seconds to end after changes", seconds_to_end(server), "≤ 2"))

        shares = []
        for n_workers in (1, 2):
            with ServerProcess(name, read_only=True, workers=n_workers) as server:
                for _ in range(8):  # connections, which the system divides among the workers
                    client = ready(server)
                    for request in requests[:50]:
                        client.send(request)
                shares.append(share_of_memory(server))
        found += [
            ("memory of one worker (PSS), GB", shares[0], ""),
            ("memory of two workers together (PSS), GB", shares[1], f"< {2 * shares[0]:.2f}, twice one"),
        ]

        # SIGTERM at other moments.
        with ServerProcess(name) as server:
            found.append(("seconds to end right after the start", seconds_to_end(server), "≤ 2"))
        with ServerProcess(name) as server:
            ready(server)
            new = {"documents": [{"id": "light", "text": "another text", "labels": ["light"]}]}
            sender = Client(server.port)
            sender._socket.sendall(
                request_bytes("POST", PATH.replace("suggest", "documents"), json.dumps(new).encode())
            )
            time.sleep(3 if real else 0.05)
            found.append(("seconds to end during the first change", seconds_to_end(server), "≤ 2"))
        with ServerProcess(name) as server:
            ready(server)
            asking = threading.Thread(target=lambda: asyncio.run(load(server.port, 64, requests, 4.0)))
            asking.start()
            time.sleep(2)
            found.append(("seconds to end under load", seconds_to_end(server), "≤ 2"))
            asking.join()
    finish(found, arguments.json)


if __name__ == "__main__":
    main()
