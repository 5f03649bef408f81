"""Connections of the server: clients that talk without end, or too slowly, or do not listen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvicorn
import uvloop
from served import request_bytes

from ripml.server import protocol
from ripml.server.protocol import Protocol

App = Callable[..., Coroutine[Any, Any, None]]
PIECE = b"a" * 1_000_000
SHORT = 0.05  # seconds
PATIENCE = 20  # seconds, until a test fails


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer how long the body is."""
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
async def served(app: App, **options: Any) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """An app over our protocol, in the loop of the test; the port."""
    told = {"http": Protocol, "lifespan": "off", "log_config": None, "ws": "none", "timeout_graceful_shutdown": 1}
    config = uvicorn.Config(app, **{**told, **options})
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve([listener]))
        while not server.started:
            await asyncio.sleep(0)
        try:
            yield server, listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


def in_loop(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in the event loop that servers have, which is strict about what is closed."""
    uvloop.run(asyncio.wait_for(test, PATIENCE))


class Line:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, port: int) -> AsyncIterator[Line]:
        line = cls(*await asyncio.open_connection("127.0.0.1", port))
        try:
            yield line
        finally:
            line.writer.transport.abort()

    async def ask(self, request: bytes) -> bytes:
        """The body of an answer, which must be 200."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        return await self.reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))

    async def rest(self) -> bytes:
        """All that comes until the connection is closed."""
        try:
            return await self.reader.read()
        except ConnectionError:  # closed while something was still on its way
            return b""


def assert_problem(answer: bytes, status: int) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == status


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
TOO_LONG = 65_537


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: HEAD + b"X: " + b"a" * (TOO_LONG - len(HEAD) - 3),
        lambda: HEAD + b"X: " + b"a" * TOO_LONG + b"\r\n\r\n",
        lambda: (HEAD + b"X: a\r\n" * TOO_LONG)[:TOO_LONG],
        lambda: (b"GET /" + b"a" * TOO_LONG)[:TOO_LONG],
        lambda: (b"\r\n" * TOO_LONG)[:TOO_LONG],
    ],
    ids=["one that does not end", "one", "many", "address", "empty lines"],
)
def test_a_head_that_is_too_long_is_refused_and_hung_up_on(request_of: Callable[[], bytes]) -> None:
    async def test() -> None:
        async with served(echo) as (_, port), Line.to(port) as line:
            line.writer.write(request_of())
            assert_problem(await line.rest(), 431)

    in_loop(test())


def test_headers_after_a_body_are_bounded_too() -> None:
    async def test() -> None:
        start = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
        async with served(echo) as (_, port), Line.to(port) as line:
            line.writer.write(start + b"0\r\nX: " + PIECE)
            answer = await line.rest()
            assert not answer or answer.startswith(b"HTTP/1.1 431 ")

    in_loop(test())


def test_a_long_body_and_heads_of_many_requests_are_not_a_long_head() -> None:
    async def test() -> None:
        async with served(echo) as (_, port), Line.to(port) as line:
            assert await line.ask(request_bytes("POST", "/", PIECE)) == b"1000000"
            chunk = b"%x\r\n" % len(PIECE) + PIECE + b"\r\n"
            head = HEAD.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n"
            assert await line.ask(head + chunk * 2 + b"0\r\n\r\n") == b"2000000"
            for _ in range(3):
                assert await line.ask(HEAD + b"X: " + b"a" * 60_000 + b"\r\n\r\n") == b"0"

    in_loop(test())


def test_every_head_has_to_come_in_time_but_a_connection_may_be_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_HEAD_SECONDS", SHORT)

    async def test() -> None:
        async with served(echo) as (_, port), Line.to(port) as idle, Line.to(port) as slow, Line.to(port) as silent:
            for line in (idle, slow):
                assert await line.ask(HEAD + b"\r\n") == b"0"
            slow.writer.write(HEAD)
            assert await slow.rest() == b""
            assert await silent.rest() == b""
            assert await idle.ask(HEAD + b"\r\n") == b"0"

    in_loop(test())


@pytest.mark.parametrize("more", [b"\r\n", b"a"], ids=["an empty line", "a part of a body that nobody reads"])
def test_a_connection_that_says_nothing_of_use_is_idle(more: bytes) -> None:
    async def hasty(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def test() -> None:
        async with served(hasty, timeout_keep_alive=SHORT) as (_, port), Line.to(port) as line:
            length = b"" if more == b"\r\n" else b"Content-Length: 9\r\n"
            assert await line.ask(HEAD + length + b"\r\n") == b""
            line.writer.write(more)
            assert await line.rest() == b""

    in_loop(test())


def test_an_answer_that_is_being_made_is_not_cut_off_by_half_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_HEAD_SECONDS", SHORT)
    looked = asyncio.Event()
    late = Protocol._head_is_late

    def look(self: Protocol) -> None:
        late(self)
        looked.set()

    monkeypatch.setattr(Protocol, "_head_is_late", look)

    async def slowly(scope: Any, receive: Any, send: Any) -> None:
        await looked.wait()
        await echo(scope, receive, send)

    async def test() -> None:
        async with served(slowly) as (_, port), Line.to(port) as line:
            assert await line.ask(HEAD + b"\r\n" + HEAD) == b"0"
            assert await line.rest() == b""

    in_loop(test())


def test_a_request_before_what_is_no_http_is_answered_and_is_the_last() -> None:
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def slowly(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await let_go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})

    async def test() -> None:
        async with served(slowly) as (_, port), Line.to(port) as line:
            line.writer.write(HEAD + b"\r\n")
            await asked.wait()
            line.writer.write(b"no HTTP\r\n\r\n")
            asyncio.get_running_loop().call_later(SHORT, let_go.set)
            answer = await line.rest()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\ndone")
        assert answer.count(b"HTTP/1.1") == 1

    in_loop(test())


@pytest.mark.parametrize("pipelined", [1, 2])
def test_a_client_that_does_not_take_its_answer_is_hung_up_on(
    pipelined: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(protocol, "_TAKEN_SECONDS", SHORT)

    async def test() -> None:
        ended = asyncio.Event()

        async def endless(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(200):
                await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            ended.set()

        async with served(endless) as (server, port), Line.to(port) as line:
            line.writer.write((HEAD + b"\r\n") * pipelined)
            await ended.wait()
            while server.server_state.connections:
                await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING):
        in_loop(test())
    assert not caplog.records


def test_a_client_that_takes_its_answer_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = Protocol._look

    def counted(self: Protocol) -> None:
        nonlocal looks
        looks += 1
        look(self)

    async def large(scope: Any, receive: Any, send: Any) -> None:
        size = str(30 * len(PIECE)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
        await send({"type": "http.response.body", "body": 30 * PIECE})

    async def test() -> None:
        async with served(large) as (_, port), Line.to(port) as line:
            line.writer.write(HEAD + b"Connection: close\r\n\r\n")
            await line.reader.readuntil(b"\r\n\r\n")
            left = 30 * len(PIECE)
            while left:
                seen = looks
                left -= len(await line.reader.readexactly(min(left, 8 * len(PIECE))))
                while left > 16 * len(PIECE) and looks == seen:  # until it was looked at
                    await asyncio.sleep(0)
            assert await line.rest() == b""

    monkeypatch.setattr(Protocol, "_look", counted)
    monkeypatch.setattr(protocol, "_TAKEN_SECONDS", SHORT)
    in_loop(test())
    assert looks
