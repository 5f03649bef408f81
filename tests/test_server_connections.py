"""Connections of the server: clients that send too much, send nothing, or do not read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from served import request_bytes
from starlette.requests import ClientDisconnect

from ripml.server import Settings, add_key, process
from ripml.server.access import AccessControl
from ripml.server.limits import Admission, Shares
from ripml.server.process import bound_socket, uvicorn_config

App = Callable[..., Coroutine[Any, Any, None]]
LOCAL = Settings(port=0)
REMOTE = Settings(host="0.0.0.0", port=0, keys=Path("keys.jsonl"))
MEGABYTE = b"a" * 1_000_000
SHORT = 0.05  # seconds
TIMEOUT = 20  # seconds, until a test fails
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
TOO_LONG = 65_537


async def body_length(scope: Any, receive: Any, send: Any) -> None:
    """An app that responds with the length of the request's body."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def serve(app: App, settings: Settings) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """An app with the server's options, in the event loop of the test; yields the port."""
    config = uvicorn_config(app, settings)
    config.lifespan, config.timeout_graceful_shutdown = "off", 1
    server = uvicorn.Server(config)
    with bound_socket(settings) as listener:
        task = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0)
        try:
            yield server, listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in the event loop that the server uses."""
    uvloop.run(asyncio.wait_for(test, TIMEOUT))


class RawConnection:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, port: int) -> AsyncIterator[RawConnection]:
        connection = cls(*await asyncio.open_connection("127.0.0.1", port))
        try:
            yield connection
        finally:
            connection.writer.transport.abort()

    async def ask(self, request: bytes) -> bytes:
        """The body of the response, whose status must be 200."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        return await self.reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))

    async def read_to_end(self) -> bytes:
        """Everything until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:  # closed while something was being sent
            return b""


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"X: " + b"a" * TOO_LONG,
        (HEAD + b"X: a\r\n" * TOO_LONG)[:TOO_LONG],
        b"GET /" + b"a" * TOO_LONG,
    ],
    ids=["one header", "many headers", "path"],
)
def test_a_head_that_is_too_long_is_refused_where_other_machines_can_connect(head: bytes) -> None:
    async def test() -> None:
        async with serve(body_length, REMOTE) as (_, port), RawConnection.open(port) as connection:
            connection.writer.write(head)
            assert (await connection.read_to_end()).startswith(b"HTTP/1.1 400 ")

    run(test())


@pytest.mark.parametrize("settings", [LOCAL, REMOTE], ids=["local", "remote"])
def test_long_bodies_and_the_heads_of_many_requests_are_accepted(settings: Settings) -> None:
    async def test() -> None:
        async with serve(body_length, settings) as (_, port), RawConnection.open(port) as connection:
            assert await connection.ask(request_bytes("POST", "/", MEGABYTE)) == b"1000000"
            chunk = b"%x\r\n" % len(MEGABYTE) + MEGABYTE + b"\r\n"
            head = HEAD.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n"
            assert await connection.ask(head + chunk * 2 + b"0\r\n\r\n") == b"2000000"
            for _ in range(3):
                assert await connection.ask(HEAD + b"X: " + b"a" * 60_000 + b"\r\n\r\n") == b"0"

    run(test())


@pytest.mark.parametrize("settings", [LOCAL, REMOTE], ids=["local", "remote"])
def test_an_idle_connection_is_closed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_IDLE_SECONDS", SHORT)

    async def test() -> None:
        async with serve(body_length, settings) as (_, port), RawConnection.open(port) as connection:
            assert await connection.ask(HEAD + b"\r\n") == b"0"
            assert await connection.read_to_end() == b""

    run(test())


def test_a_request_is_answered_before_the_invalid_one_that_follows_it() -> None:
    called, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        called.set()
        await release.wait()
        await body_length(scope, receive, send)

    async def test() -> None:
        async with serve(slow, REMOTE) as (_, port), RawConnection.open(port) as connection:
            connection.writer.write(HEAD + b"\r\n")
            await called.wait()
            connection.writer.write(b"not HTTP\r\n\r\n")
            asyncio.get_running_loop().call_later(SHORT, release.set)
            response = await connection.read_to_end()
        first, second = response.split(b"HTTP/1.1 ")[1:]
        assert first.startswith(b"200 ")
        assert first.endswith(b"\r\n\r\n0")
        assert second.startswith(b"400 ")

    run(test())


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has TCP_USER_TIMEOUT")
def test_a_client_that_does_not_read_its_response_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_UNREAD_SECONDS", SHORT)

    async def test() -> None:
        async def large(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": 50 * MEGABYTE})

        async with serve(large, LOCAL) as (server, port), RawConnection.open(port) as connection:
            connection.writer.write(HEAD + b"\r\n")
            await connection.reader.readuntil(b"\r\n\r\n")
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            while server.server_state.connections:
                await asyncio.sleep(0)

    run(test())


def test_a_client_that_reads_its_response_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_UNREAD_SECONDS", 1)

    async def large(scope: Any, receive: Any, send: Any) -> None:
        size = str(30 * len(MEGABYTE)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
        await send({"type": "http.response.body", "body": 30 * MEGABYTE})

    async def test() -> None:
        async with serve(large, LOCAL) as (_, port), RawConnection.open(port) as connection:
            connection.writer.write(HEAD + b"Connection: close\r\n\r\n")
            await connection.reader.readuntil(b"\r\n\r\n")
            for _ in range(30):
                await connection.reader.readexactly(len(MEGABYTE))
                for _ in range(100):  # turns of the event loop in which the server can write
                    await asyncio.sleep(0)
            assert await connection.read_to_end() == b""

    run(test())


def limited(app: App, settings: Settings) -> tuple[App, Shares]:
    """An app behind the limits of a server, and what it holds in bytes."""
    in_flight = Shares(settings.max_bytes)
    return Admission(app, AccessControl(settings), settings, Shares(settings.max_requests), in_flight), in_flight


async def twenty_megabytes(scope: Any, receive: Any, send: Any) -> None:
    size = str(20 * len(MEGABYTE)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
    await send({"type": "http.response.body", "body": 20 * MEGABYTE})


@pytest.mark.parametrize("settings", [LOCAL, REMOTE], ids=["local", "remote"])
def test_an_answer_that_is_not_read_is_held_once_and_not_in_buffers(settings: Settings, tmp_path: Path) -> None:
    settings = replace(settings, keys=None if settings.keys is None else tmp_path / "keys.jsonl")
    token = "" if settings.keys is None else add_key(settings.keys, "ana")

    async def test() -> None:
        app, in_flight = limited(twenty_megabytes, settings)
        async with serve(app, settings) as (server, port), RawConnection.open(port) as connection:
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            connection.writer.write(HEAD.replace(b" / ", b" /v1 ") + f"Authorization: Bearer {token}\r\n\r\n".encode())
            connections: set[Any] = server.server_state.connections
            while not any(protocol.flow.write_paused for protocol in connections):
                await asyncio.sleep(0)
            (protocol,) = connections
            assert protocol.transport.get_write_buffer_size() < 3 * 65_536
            assert in_flight.total == 20 * len(MEGABYTE)
            connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
            await connection.reader.readuntil(b"\r\n\r\n")
            await connection.reader.readexactly(20 * len(MEGABYTE))
            while in_flight.total:
                await asyncio.sleep(0)

    run(test())


def test_a_client_that_reads_too_slowly_is_disconnected_and_holds_nothing() -> None:
    settings = replace(LOCAL, read_seconds=SHORT)

    async def test() -> None:
        app, in_flight = limited(closed_quietly(twenty_megabytes), settings)
        async with serve(app, settings) as (_, port), RawConnection.open(port) as connection:
            connection.writer.write(HEAD.replace(b" / ", b" /v1 ") + b"\r\n")
            await connection.reader.readuntil(b"\r\n\r\n")
            connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
            while in_flight.total:
                await asyncio.sleep(0)
            connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert 0 < len(await connection.read_to_end()) < 20 * len(MEGABYTE)

    run(test())


def closed_quietly(app: App) -> App:
    """An app that returns when its client is gone, as that of the server does."""

    async def quiet(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(ClientDisconnect):
            await app(scope, receive, send)

    return quiet
