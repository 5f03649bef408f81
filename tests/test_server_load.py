"""The server under load: batches, swaps, followers, a stop that loses nothing, and kill -9."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from served import Connection, ServerProcess
from store_writer import WORDS, example, settings

from ripml.base.errors import StoreError
from ripml.server import Settings, create_app
from ripml.server.batching import Batcher
from ripml.store import Store
from ripml.tagging.documents import DocumentModel

TEXTS = [" ".join(WORDS[i : i + 4]) for i in range(30)]
STORE = "/v1/stores/store"


def client_of(store: Store, told: Settings | None = None) -> TestClient:
    return TestClient(create_app({"store": store}, told), base_url="http://localhost:8000")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store.create(tmp_path / "store", example(), settings()).close()
    return tmp_path / "store"


def test_what_comes_while_an_answer_is_computed_is_answered_together() -> None:
    began, let_go, batches = threading.Event(), threading.Event(), []

    def answer(numbers: Sequence[int]) -> list[int]:
        batches.append(list(numbers))
        began.set()
        let_go.wait(20)
        return [number**2 for number in numbers]

    async def ask() -> list[int]:
        batcher = Batcher(answer, most=4)
        first = asyncio.ensure_future(batcher.ask(0))
        await asyncio.to_thread(began.wait, 20)
        rest = [asyncio.ensure_future(batcher.ask(number)) for number in range(1, 8)]
        await asyncio.sleep(0)
        let_go.set()
        found = await asyncio.gather(first, *rest)
        batcher.close()
        return found

    assert asyncio.run(ask()) == [number**2 for number in range(8)]
    assert batches == [[0], [1, 2, 3, 4], [5, 6, 7]]


def test_a_question_that_cannot_be_answered_fails_alone() -> None:
    def answer(numbers: Sequence[int]) -> list[float]:
        return [1 / number for number in numbers]

    async def ask() -> list[Any]:
        batcher = Batcher(answer, most=4)
        found = await asyncio.gather(*map(batcher.ask, [1, 0, 2]), return_exceptions=True)
        batcher.close()
        return found

    one, none, half = asyncio.run(ask())
    assert (one, half) == (1, 0.5)
    assert isinstance(none, ZeroDivisionError)


def test_requests_at_the_same_time_share_a_batch_and_get_the_same_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, let_go = threading.Event(), threading.Event()
    plain = DocumentModel.suggest

    def slowly(model: DocumentModel, rows: Any, rules: Any = None) -> Any:
        if rows == ["first"]:
            began.set()
            let_go.wait(20)
        return plain(model, rows, rules)

    batchers: list[Any] = []
    make = Batcher.__init__

    def noted(batcher: Any, *given: Any) -> None:
        batchers.append(batcher)
        make(batcher, *given)

    monkeypatch.setattr(Batcher, "__init__", noted)
    store = Store.open(folder)
    bodies = [{"text": text, **({"n": 2} if i % 3 == 0 else {"threshold": 0.3})} for i, text in enumerate(TEXTS)]
    with client_of(store) as client, ThreadPoolExecutor(40) as pool:
        one_by_one = [client.post(f"{STORE}/suggest", json=body).json() for body in bodies]

        def metrics() -> dict[str, Any]:
            return {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}

        def batches() -> float:
            return sum(float(s.value) for s in metrics()["ripml_batch_size"].samples if s.name.endswith("_count"))

        before = batches()
        monkeypatch.setattr(DocumentModel, "suggest", slowly)
        first = pool.submit(client.post, f"{STORE}/suggest", json={"text": "first"})
        began.wait(20)
        together = [pool.submit(client.post, f"{STORE}/suggest", json=body) for body in bodies]
        while batchers[0]._waiting.qsize() < len(TEXTS):  # until all of them wait for the first
            pass
        assert metrics()["ripml_requests_in_flight"].samples[0].value == len(TEXTS) + 2  # with the first, and this one
        let_go.set()
        found = [answer.result().json() for answer in together]
        assert first.result().status_code == 200
        assert batches() == before + 2
    for alone, beside in zip(one_by_one, found, strict=True):
        assert [entry["label"] for entry in beside["labels"]] == [entry["label"] for entry in alone["labels"]]
        scores = [entry["score"] for entry in alone["labels"]]
        assert [entry["score"] for entry in beside["labels"]] == pytest.approx(scores, abs=1e-6)


def test_a_refit_is_swapped_in_while_requests_go_on(folder: Path) -> None:
    with client_of(Store.open(folder)) as client, ThreadPoolExecutor(4) as pool:
        assert client.get(f"{STORE}/refit").json() == {"status": "idle", "detail": None, "last": None}
        assert client.post(f"{STORE}/refit").status_code == 202
        versions, done = set(), False
        while not done:
            done = client.get(f"{STORE}/refit").json()["status"] == "idle"
            asked = [pool.submit(client.post, f"{STORE}/suggest", json={"text": text}) for text in TEXTS[:8]]
            new = {"documents": [{"text": "word1", "labels": ["new"]}]}
            assert client.post(f"{STORE}/documents", json=new).status_code == 201
            assert {answer.result().status_code for answer in asked} == {200}
            versions |= {answer.result().json()["version"] for answer in asked}
        assert client.get(f"{STORE}/refit").json()["last"] is not None
        kinds = [change["kind"] for change in client.get(f"{STORE}/history").json()["changes"]]
        assert "refit" in kinds
        assert len(versions) > 1


def test_a_refit_that_fails_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: Store) -> None:
        raise RuntimeError("for some reason")

    monkeypatch.setattr(Store, "refit", fail)
    with client_of(Store.open(folder)) as client:
        client.post(f"{STORE}/refit")
        while (found := client.get(f"{STORE}/refit").json())["status"] == "running":
            pass
        assert found["status"] == "failed"
        assert "number" in found["detail"]
        assert client.post(f"{STORE}/suggest", json={"text": "word1"}).status_code == 200


def test_a_server_that_only_reads_follows_the_writer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ripml.server.app._LOOKS_SECONDS", 0.01)
    reader = Store.open(folder, readonly=True)
    with Store.open(folder) as writer, client_of(reader, Settings(read_only=True)) as client:
        writer.learn([{"id": "new", "text": "word1", "labels": ["new"]}])
        while client.get(STORE).json()["version"] < writer.version:
            pass
        assert client.get(f"{STORE}/documents/new").json()["labels"] == ["new"]
        assert client.get("/v1/stores").json()["role"] == "read"
        refused = client.delete(f"{STORE}/documents/new")
        assert refused.status_code == 403
        assert "read-only" in refused.json()["detail"]


def test_a_writer_that_cannot_be_followed_is_logged_when_it_begins_and_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ripml.server.app._LOOKS_SECONDS", 0.001)
    caplog.set_level("INFO", "ripml.server")
    failures: list[Exception] = [StoreError("broken."), StoreError("broken."), OSError("away"), StoreError("broken.")]
    done, looks, refresh = threading.Event(), 0, Store.refresh

    def look(store: Store) -> Any:
        nonlocal looks
        looks += 1
        if looks <= len(failures):
            raise failures[looks - 1]
        if looks > len(failures) + 1:
            done.set()
        return refresh(store)

    monkeypatch.setattr(Store, "refresh", look)
    with client_of(Store.open(folder, readonly=True), Settings(read_only=True)):
        assert done.wait(20)
    began, ended = (record.message for record in caplog.records)
    assert "broken." in began
    assert ended == "store: the store can be followed again."


_LOADING = """
import signal, sys
from ripml.server import Settings, run
from ripml.store import Store

open_store = Store.open

def slowly(folder, readonly):
    if folder.name == "slow":
        print("loading", flush=True)
        signal.pause()
    return open_store(folder, readonly)

Store.open = slowly
run(sys.argv[1:], Settings(port=0))
print("stopped")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_while_it_loads_closes_what_is_open(folder: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", _LOADING, str(folder), str(folder.parent / "slow")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(number)
        said, log = process.communicate()
    assert (process.returncode, said, log) == (0, "stopped\n", "")
    Store.open(folder).close()


async def write_until_the_end(port: int, name: int, said: threading.Event) -> list[str]:
    """The ids of all documents that the server said it had learnt, until it hung up."""
    learnt: list[str] = []
    async with await Connection.to(port) as connection:
        for number in range(10_000):
            new = {"id": f"{name}.{number}", "text": "word1 word2", "labels": ["new"]}
            try:
                status, answer = await connection.ask("POST", f"{STORE}/documents", {"documents": [new]})
            except ConnectionError:
                break
            assert status == 201
            learnt += answer["ids"]
            if number == 2:
                said.set()
    return learnt


async def no_http(port: int) -> bytes:
    """What is answered to something else."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x16\x03\x01 what is this\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_what_was_acknowledged_is_there_after_the_end(folder: Path, number: signal.Signals) -> None:
    async def writers(port: int, said: threading.Event) -> list[str]:
        found = await asyncio.gather(*(write_until_the_end(port, name, said) for name in range(3)))
        return [id for ids in found for id in ids]

    said = threading.Event()
    with ServerProcess(folder, access_log=True) as server, ThreadPoolExecutor(1) as pool:
        learnt = pool.submit(asyncio.run, writers(server.port, said))
        assert said.wait(60)
        refused = asyncio.run(no_http(server.port))
        code = server.end(number)
        acknowledged = learnt.result()
    assert refused.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in refused
    assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    log = "".join(server.said)
    assert "POST /v1/stores/store/documents HTTP/1.1" in log
    assert "Traceback" not in log
    assert "word1" not in log
    with Store.open(folder) as store:
        there = set(store.ids())
        assert len(acknowledged) >= 3
        assert there.issuperset(acknowledged)
        if number == signal.SIGTERM:  # all that was begun was answered, and a snapshot was taken
            assert {id for id in there if "." in id} == set(acknowledged)
            assert store._changes == 0
