"""Several servers of one store: one that writes, readers in other processes that follow it, and versions in answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from served import Connection, ServerProcess
from store_writer import example, settings

from ripml.server import Settings, add_key, create_app
from ripml.store import Store

STORE = "/v1/stores/store"
SECONDS = 120  # after which a server that has not followed yet is at fault
TEXT = {"text": "word1 word2 word3"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store.create(tmp_path / "store", example(), settings()).close()
    return tmp_path / "store"


def client_of(store: Store, settings: Settings | None = None) -> TestClient:
    return TestClient(create_app({"store": store}, settings), base_url="http://localhost:8000")


async def ask_any(ports: Sequence[int], method: str, path: str, content: Any, least: int) -> tuple[int, Any, int]:
    """The port and the answer of the first server that has a version, and the version: what a load balancer does."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for port in ports:
            async with await Connection.to(port) as connection:
                status, answer = await connection.ask(method, path, content, {"Ripml-Min-Version": str(least)})
                if status != 503:
                    assert status == 200, answer
                    return port, answer, int(connection.headers["ripml-version"])
                assert int(connection.headers["ripml-version"]) < least
                assert connection.headers["retry-after"] == "1"
    raise AssertionError(f"no server has followed to version {least}")


async def ready_at(port: int, version: int) -> None:
    """Wait until a server says that it is ready and has a version."""
    deadline = time.monotonic() + SECONDS
    async with await Connection.to(port) as connection:
        while await connection.ask("GET", "/ready") != (200, {"status": "ready", "versions": [version]}):
            assert time.monotonic() < deadline


def test_readers_in_other_processes_follow_the_writer_and_say_which_version_answers(folder: Path) -> None:
    async def changes(writer: int, readers: list[int]) -> None:
        async with await Connection.to(writer) as connection:
            for number in range(1, 4):
                new = {"documents": [{"id": "new", "text": TEXT["text"], "labels": [f"label {number}"]}]}
                status, learnt = await connection.ask("POST", f"{STORE}/documents", new)
                assert (status, learnt["version"]) == (201, number)
                assert int(connection.headers["ripml-version"]) == number
                _, expected = await connection.ask("POST", f"{STORE}/suggest", TEXT)
                for reader in readers:
                    _, answer, version = await ask_any([reader], "POST", f"{STORE}/suggest", TEXT, number)
                    assert answer == expected
                    assert version == answer["version"] == number
                    await ready_at(reader, number)
                    _, found, _ = await ask_any([reader], "GET", f"{STORE}/documents/new", None, number)
                    assert found["labels"] == [f"label {number}"]

    with ServerProcess(folder) as writer, ServerProcess(folder, read_only=True) as one, \
            ServerProcess(folder, read_only=True) as other:  # fmt: skip
        asyncio.run(changes(writer.port, [one.port, other.port]))


def test_a_caller_sees_its_own_change_whichever_server_a_load_balancer_asks_first(folder: Path) -> None:
    async def change(writer: int, reader: int) -> None:
        async with await Connection.to(writer) as connection:
            status, learnt = await connection.ask("DELETE", f"{STORE}/documents/0")
        assert status == 200
        _, found, version = await ask_any([reader, writer], "GET", f"{STORE}/history?limit=1", None, learnt["version"])
        assert version >= learnt["version"]
        assert found["changes"][0]["id"] == "0"

    with ServerProcess(folder) as writer, ServerProcess(folder, read_only=True) as reader:
        asyncio.run(change(writer.port, reader.port))


def test_servers_of_a_published_store_follow_its_copies(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "shared" / "store"
    with Store.open(folder) as store:
        store.publish(target)
        with ServerProcess(target, read_only=True) as one, ServerProcess(target, read_only=True) as other:
            for number in range(1, 4):
                store.learn([{"text": TEXT["text"], "labels": [f"new {number}"]}])
                store.publish(target)
                expected = [label for label, _ in store.model.suggest([TEXT["text"]])[0]]
                for port in (one.port, other.port):
                    ask = ask_any([port], "POST", f"{STORE}/suggest", TEXT, number)
                    _, answer, _ = asyncio.run(ask)
                    assert (answer["version"], [label["label"] for label in answer["labels"]]) == (number, expected)


def test_only_callers_that_may_read_are_told_the_version(folder: Path, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "ana")
    with client_of(Store.open(folder), Settings(keys=tmp_path / "keys")) as client:
        refused = client.get(STORE, headers={"Ripml-Min-Version": "5"})
        assert refused.status_code == 401
        assert "ripml-version" not in refused.headers
        allowed = {"Authorization": f"Bearer {key}"}
        assert client.get(STORE, headers=allowed).headers["ripml-version"] == "0"
        assert client.get(f"{STORE}/documents/none", headers=allowed).headers["ripml-version"] == "0"
        assert "ripml-version" not in client.get("/v1/stores", headers=allowed).headers
        assert "ripml-version" not in client.get("/v1/stores/other", headers=allowed).headers
        early = client.get(STORE, headers={**allowed, "Ripml-Min-Version": "5"})
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        assert early.json()["detail"] == "this server has the store after change 0; ask again, or another server."


@pytest.mark.parametrize("wanted", ["-1", "1.5", "x", "9" * 30, "²"])
def test_a_version_that_is_not_a_number_is_refused(folder: Path, wanted: str) -> None:
    with client_of(Store.open(folder)) as client:
        response = client.get(STORE, headers={b"Ripml-Min-Version": wanted.encode("latin-1")})
        assert response.status_code == 400
        assert response.json()["detail"] == "Ripml-Min-Version must be the number of a change."


def test_documents_and_the_history_have_pages(folder: Path) -> None:
    with client_of(Store.open(folder)) as client:
        first = client.get(f"{STORE}/documents", params={"limit": 30}).json()["documents"]
        rest = client.get(f"{STORE}/documents", params={"limit": 30, "after": first[-1]["number"]}).json()["documents"]
        assert [document["id"] for document in (*first, *rest)] == [str(number) for number in range(40)]
        for number in range(3):
            client.delete(f"{STORE}/documents/{number}")
        page = client.get(f"{STORE}/history", params={"limit": 2, "before": 3}).json()["changes"]
        assert [(change["number"], change["id"]) for change in page] == [(2, "1"), (1, "0")]
        assert client.get(f"{STORE}/history", params={"before": 0}).status_code == 422
        assert client.get(f"{STORE}/documents", params={"after": -1}).status_code == 422
