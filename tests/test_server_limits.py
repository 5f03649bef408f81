"""One caller cannot hurt another: shares of slots, of bytes in flight and of threads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from store_writer import example
from store_writer import settings as quick

from ripml.server import Settings, add_key, create_app
from ripml.server.pools import FairPool
from ripml.server.served_store import ServedStore
from ripml.store import Store

STORE = "/v1/stores/tiny"
MEGABYTE = 1_000_000
TIMEOUT = 20  # seconds, until a test fails


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits") / "store"
    Store.create(folder, example(), quick()).close()
    return folder


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """The keys of a hostile and of an honest caller."""
    return {name: add_key(tmp_path / "keys.jsonl", name) for name in ("hostile", "honest")}


class Exchange:
    """A request to the app, and what it has answered so far; the answer is read only while `reading` is set."""

    def __init__(self, body: bytes, ends: bool) -> None:
        self.body: bytes | None = body
        self.ends = ends  # else more of the body is announced and never arrives
        self.status: int | None = None
        self.content = b""
        self.pieces: list[int] = []
        self.blocked = asyncio.Event()  # the app waits for the body, or for the client to read
        self.reading = asyncio.Event()
        self.closed = asyncio.Event()  # the client has closed the connection
        self.task: asyncio.Task[None] | None = None

    async def receive(self) -> Any:
        if self.body is None:
            if not self.ends:  # else the app only looks whether the client is still there
                self.blocked.set()
            await self.closed.wait()
            return {"type": "http.disconnect"}
        body, self.body = self.body, None
        return {"type": "http.request", "body": body, "more_body": not self.ends}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        if self.status == 200 and not self.reading.is_set():
            self.blocked.set()
            await self.reading.wait()
        self.content += message["body"]
        self.pieces.append(len(message["body"]))

    async def settled(self) -> Exchange:
        """Wait until the request is answered or blocked."""
        assert self.task is not None
        blocked = asyncio.ensure_future(self.blocked.wait())
        await asyncio.wait({self.task, blocked}, return_when=asyncio.FIRST_COMPLETED)
        blocked.cancel()
        return self


class Network:
    """Requests to an app without sockets."""

    def __init__(self, app: FastAPI, keys: dict[str, str]) -> None:
        self.app, self.keys = app, keys
        self.exchanges: list[Exchange] = []

    def begin(
        self, method: str, path: str, caller: str = "", body: bytes = b"", address: str = "", ends: bool = True
    ) -> Exchange:
        """Begin a request whose answer is not read."""
        exchange = Exchange(body, ends)
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        if caller:
            headers.append((b"authorization", f"Bearer {self.keys.get(caller, caller)}".encode()))
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": (address, 1) if address else None,
        }
        exchange.task = asyncio.create_task(self.app(scope, exchange.receive, exchange.send))
        self.exchanges.append(exchange)
        return exchange

    async def ask(self, method: str, path: str, caller: str = "", body: bytes = b"", address: str = "") -> Exchange:
        """A request whose answer is read."""
        exchange = self.begin(method, path, caller, body, address)
        exchange.reading.set()
        assert exchange.task is not None
        await exchange.task
        return exchange

    async def metric(self, name: str, caller: str = "") -> float:
        """The value of a metric without labels."""
        lines = (await self.ask("GET", "/metrics", caller)).content.decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@contextlib.asynccontextmanager
async def network(folder: Path, tokens: dict[str, str] | None = None, **settings: Any) -> AsyncIterator[Network]:
    app = create_app({"tiny": Store.open(folder, readonly=True)}, Settings(read_only=True, **settings))
    async with app.router.lifespan_context(app):
        net = Network(app, tokens or {})
        yield net
        for exchange in net.exchanges:
            assert exchange.task is not None
            exchange.task.cancel()
        await asyncio.gather(*(e.task for e in net.exchanges if e.task), return_exceptions=True)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, TIMEOUT))


def statuses(exchanges: list[Exchange]) -> list[int | None]:
    return [exchange.status for exchange in exchanges]


# --------------------------------------------------------------------------------------------------------------- slots


def test_bodies_that_never_arrive_leave_slots_for_other_keys(
    folder: Path, tmp_path: Path, keys: dict[str, str]
) -> None:
    async def test() -> None:
        async with network(folder, keys, keys=tmp_path / "keys.jsonl", max_requests=8) as net:
            slow = [net.begin("POST", f"{STORE}/suggest", "hostile", ends=False) for _ in range(12)]
            for exchange in slow:
                await exchange.settled()
            assert statuses(slow) == [None] * 4 + [503] * 8
            answered = await net.ask("POST", f"{STORE}/suggest", "honest", b'{"text": "word1"}')
            assert answered.status == 200
            assert (await net.ask("GET", "/health")).status == 200

    run(test())


def test_answers_that_are_not_read_hold_slots_of_their_key_only(
    folder: Path, tmp_path: Path, keys: dict[str, str]
) -> None:
    async def test() -> None:
        async with network(folder, keys, keys=tmp_path / "keys.jsonl", max_requests=8) as net:
            unread = [net.begin("GET", "/v1/stores", "hostile") for _ in range(12)]
            for exchange in unread:
                await exchange.settled()
            assert statuses(unread) == [200] * 4 + [503] * 8
            assert await net.metric("ripml_requests_in_flight", "honest") == 5
            unread[0].reading.set()
            assert unread[0].task is not None
            await unread[0].task
            assert await net.metric("ripml_requests_in_flight", "honest") == 4

    run(test())


def test_addresses_share_the_slots_where_there_are_no_keys(folder: Path) -> None:
    async def test() -> None:
        async with network(folder, max_requests=4) as net:
            unread = [net.begin("GET", "/v1/stores", address="127.0.0.2") for _ in range(4)]
            for exchange in unread:
                await exchange.settled()
            assert statuses(unread) == [200, 200, 503, 503]
            assert (await net.ask("GET", "/v1/stores", address="127.0.0.3")).status == 200

    run(test())


# --------------------------------------------------------------------------------------------------------------- bytes


def large_answers(monkeypatch: pytest.MonkeyPatch, size: int = MEGABYTE) -> None:
    monkeypatch.setattr(ServedStore, "suggest_batch", lambda *arguments: b" " * size)


BATCH = ("POST", f"{STORE}/suggest/batch")


def test_the_bytes_of_unread_answers_are_bounded_for_a_key_and_in_all(
    folder: Path, tmp_path: Path, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    large_answers(monkeypatch)

    async def test() -> None:
        async with network(folder, keys, keys=tmp_path / "keys.jsonl", max_bytes=4 * MEGABYTE + 1000) as net:
            unread = [net.begin(*BATCH, "hostile", b'{"texts": ["a"]}') for _ in range(6)]
            for exchange in unread:
                await exchange.settled()
            assert sorted(map(str, statuses(unread))) == ["200"] * 2 + ["503"] * 4
            bodies = 2 * len('{"texts": ["a"]}')
            assert await net.metric("ripml_bytes_in_flight", "honest") == 2 * MEGABYTE + bodies
            answer = await net.ask(*BATCH, "honest", b'{"texts": ["a"]}')
            assert (answer.status, len(answer.content)) == (200, MEGABYTE)
            assert await net.metric("ripml_bytes_in_flight", "honest") == 2 * MEGABYTE + bodies

    run(test())


def test_a_single_answer_may_be_larger_than_the_share(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large_answers(monkeypatch)

    async def test() -> None:
        async with network(folder, max_bytes=1000, max_body=100) as net:
            assert (await net.ask(*BATCH, body=b'{"texts": ["a"]}')).status == 200

    run(test())


def test_the_bytes_of_bodies_that_do_not_end_are_bounded(folder: Path, tmp_path: Path, keys: dict[str, str]) -> None:
    async def test() -> None:
        async with network(folder, keys, keys=tmp_path / "keys.jsonl", max_bytes=4000, max_body=2000) as net:
            slow = [net.begin("POST", f"{STORE}/suggest", "hostile", b" " * 1000, ends=False) for _ in range(4)]
            for exchange in slow:
                await exchange.settled()
            assert statuses(slow) == [None, None, 503, 503]
            assert await net.metric("ripml_bytes_in_flight", "honest") == 2000
            answered = await net.ask("POST", f"{STORE}/suggest", "honest", b'{"text": "word1"}')
            assert answered.status == 200

    run(test())


def test_large_answers_are_sent_in_pieces_so_that_flow_control_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_answers(monkeypatch)

    async def test() -> None:
        async with network(folder) as net:
            answer = await net.ask(*BATCH, body=b'{"texts": ["a"]}')
            assert sum(answer.pieces) == MEGABYTE
            assert max(answer.pieces) <= 65_536
            # uvicorn waits for the client before it sends a message, so an empty last one comes after the last byte.
            assert answer.pieces[-1] == 0

    run(test())


# ------------------------------------------------------------------------------------------------------------- threads


def test_long_look_ups_do_not_delay_the_look_up_of_a_document(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def slowly(*arguments: Any) -> list[Any]:
        release.wait(TIMEOUT)
        return []

    monkeypatch.setattr(Store, "history", slowly)

    async def test() -> None:
        async with network(folder) as net:
            long = [net.begin("GET", f"{STORE}/history") for _ in range(100)]
            try:
                document = await asyncio.wait_for(net.ask("GET", f"{STORE}/documents/0"), TIMEOUT / 2)
                assert document.status == 200
                assert statuses(long) == [None] * 100
            finally:
                release.set()

    run(test())


def test_callers_take_turns_while_all_threads_are_busy() -> None:
    release, order = threading.Event(), list[str]()

    async def test() -> None:
        pool = FairPool(1, "test")
        first = asyncio.ensure_future(pool.run("hostile", release.wait, TIMEOUT))
        names = ["hostile"] * 5 + ["honest"] * 2
        rest = [asyncio.ensure_future(pool.run(name, order.append, name)) for name in names]
        await asyncio.sleep(0)
        rest[0].cancel()
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(first, *rest[1:])
        assert order == ["honest", "hostile", "honest", "hostile", "hostile", "hostile"]
        assert await pool.run("honest", pow, 2, 2) == 4
        pool.close()

    run(test())


def test_a_caller_leaves_threads_to_others() -> None:
    release, order = threading.Event(), list[str]()

    async def test() -> None:
        pool = FairPool(2, "test", per_caller=1)
        first = asyncio.ensure_future(pool.run("hostile", release.wait, TIMEOUT))
        second = asyncio.ensure_future(pool.run("hostile", order.append, "hostile"))
        await asyncio.sleep(0)
        await pool.run("honest", order.append, "honest")
        release.set()
        await asyncio.gather(first, second)
        assert order == ["honest", "hostile"]
        pool.close()

    run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_threads_in_the_background_have_a_lower_priority_than_the_process() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def test() -> None:
        pools = [FairPool(1, "test", background=background) for background in (False, True)]
        usual, lower = [await pool.run("ana", priority) for pool in pools]
        assert usual == priority() < lower
        for pool in pools:
            pool.close()

    run(test())


def test_a_turn_that_is_cancelled_while_the_client_is_looked_for_is_given_on() -> None:
    async def test() -> None:
        pool, looking = FairPool(1, "test"), asyncio.Event()

        async def look() -> bool:
            looking.set()
            await asyncio.Event().wait()
            return False

        cancelled = asyncio.ensure_future(pool.run("ana", pow, 2, 2, is_gone=look))
        await looking.wait()
        waiting = asyncio.ensure_future(pool.run("bo", pow, 3, 2))
        cancelled.cancel()
        assert await waiting == 9
        pool.close()

    run(test())


@pytest.mark.parametrize(
    ("method", "path", "body", "work"),
    [
        ("POST", "/suggest/batch", {"texts": ["word1"]}, "suggest_batch"),
        ("POST", "/suggest", {"text": "word1 " * 10_000}, "_suggest_long"),
        ("POST", "/explain", {"text": "word1"}, "explain"),
        ("GET", "/history", None, "history"),
    ],
)
def test_nothing_is_computed_for_a_client_that_is_gone_when_its_turn_comes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any, work: str
) -> None:
    began, release, calls = threading.Event(), threading.Event(), list[Any]()

    def slowly(*arguments: Any) -> bytes:
        calls.append(arguments)
        began.set()
        release.wait(TIMEOUT)
        return b"{}"

    monkeypatch.setattr(ServedStore, work, slowly)

    async def test() -> None:
        async with network(folder) as net:
            request = (method, STORE + path, "", b"" if body is None else json.dumps(body).encode())
            first = net.begin(*request)
            await asyncio.to_thread(began.wait, TIMEOUT)
            rest = [net.begin(*request) for _ in range(3)]
            for exchange in rest:
                exchange.reading.set()
            while await net.metric("ripml_requests_in_flight") < 5:  # and /metrics
                pass
            for exchange in rest[:2]:
                exchange.closed.set()
            release.set()
            first.reading.set()
            await asyncio.gather(*(exchange.task for exchange in [first, *rest] if exchange.task))
            assert statuses([first, *rest]) == [200, None, None, 200]
            assert len(calls) == 2
            assert await net.metric("ripml_requests_in_flight") == 1  # /metrics itself

    run(test())


# ---------------------------------------------------------------------------------------------------------------- keys


def test_requests_without_a_valid_key_have_a_rate_per_address(
    folder: Path, tmp_path: Path, keys: dict[str, str]
) -> None:
    async def test() -> None:
        async with network(folder, keys, keys=tmp_path / "keys.jsonl", rate=1e-3) as net:
            for address in ("192.0.2.1", "192.0.2.2"):
                assert (await net.ask("GET", "/v1/stores", "wrong", address=address)).status == 401
                refused = await net.ask("GET", "/v1/stores", "another", address=address)
                assert refused.status == 429
                assert "requests per second" in json.loads(refused.content)["detail"]
            assert (await net.ask("GET", "/v1/stores", "honest", address="192.0.2.1")).status == 200
            assert (await net.ask("GET", "/health", address="192.0.2.1")).status == 200

    run(test())
