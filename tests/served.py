"""A server in another process and a minimal client, for tests and benchmarks."""

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

_CODE = """
import json, pathlib, signal, sys
from ripml.server import Settings, run
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that run under nohup ignore it
options = json.loads(sys.argv[1])
options.update({name: pathlib.Path(options[name]) for name in {"keys", "backups", "tables"} & options.keys()})
run(sys.argv[2:], Settings(**options))
"""


class ServerProcess:
    """A server of stores at a free port, killed at the end of the block."""

    def __init__(self, *stores: str | Path, **settings: Any) -> None:
        command = [sys.executable, "-c", _CODE, json.dumps({"port": 0, **settings}), *map(str, stores)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
        assert self.process.stderr is not None
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise RuntimeError("".join(self.log))

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code; `log` then has all lines of stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self.log += stream.readlines()
        return self.process.wait()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)


def request_bytes(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """A request as bytes."""
    defaults = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [
        f"{method} {path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in {**defaults, **(headers or {})}.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Connection:
    """A connection that is kept open for one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.headers: dict[str, str] = {}  # of the last response, with names in lower case

    @classmethod
    async def to(cls, port: int) -> Connection:
        """Connect to a server on this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the response; `ConnectionError` if there is none."""
        self._writer.write(request)
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            pairs = (line.partition(":") for line in head.decode("latin-1").splitlines()[1:])
            self.headers = {name.lower(): value.strip() for name, _, value in pairs}
            length = int(self.headers.get("content-length", 0))
            return int(head[9:12]), await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("no response") from error

    async def ask(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """The same in JSON."""
        body = b"" if content is None else json.dumps(content).encode()
        status, response = await self.send(request_bytes(method, path, body, headers))
        return status, json.loads(response)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
