"""A server in a process of its own, and a client that costs next to nothing: for tests and benchmarks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

_CODE = (
    "import json, sys; from ripml.server import Settings, run; run(sys.argv[2:], Settings(**json.loads(sys.argv[1])))"
)


class ServerProcess:
    """`run` of stores at a free port, until the block ends."""

    def __init__(self, *stores: str | Path, **settings: Any) -> None:
        told = json.dumps({"port": 0, **settings})
        command = [sys.executable, "-c", _CODE, told, *map(str, stores)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
        assert self.process.stderr is not None
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise RuntimeError("".join(self.said))

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code; what was logged is in `said`."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        with self.process.stderr as log:
            self.said += log.readlines()
        return self.process.wait()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)


def request_bytes(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """A request as it goes over the line."""
    known = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**known, **(headers or {})}.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Connection:
    """A connection that is kept open, one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        """Connect to a server of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer; `ConnectionError` if there is none."""
        self._writer.write(request)
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            return int(head[9:12]), await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("no answer") from error

    async def ask(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        """The same in JSON."""
        body = b"" if content is None else json.dumps(content).encode()
        status, answer = await self.send(request_bytes(method, path, body))
        return status, json.loads(answer)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
