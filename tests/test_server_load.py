"""The server under load: batches, refits, followers, a clean stop, and kill -9."""

from __future__ import annotations

import asyncio
import re
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


def client_of(store: Store, settings: Settings | None = None) -> TestClient:
    return TestClient(create_app({"store": store}, settings), base_url="http://localhost:8000")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store.create(tmp_path / "store", example(), settings()).close()
    return tmp_path / "store"


def test_queries_that_arrive_during_a_batch_form_the_next_batch() -> None:
    began, release, batches = threading.Event(), threading.Event(), []

    def square(numbers: Sequence[int]) -> list[int]:
        batches.append(list(numbers))
        began.set()
        release.wait(20)
        return [number**2 for number in numbers]

    async def submit() -> list[int]:
        batcher = Batcher(square, max_batch=4)
        first = asyncio.ensure_future(batcher.submit(0))
        await asyncio.to_thread(began.wait, 20)
        rest = [asyncio.ensure_future(batcher.submit(number)) for number in range(1, 8)]
        await asyncio.sleep(0)
        release.set()
        results = await asyncio.gather(first, *rest)
        batcher.close()
        return results

    assert asyncio.run(submit()) == [number**2 for number in range(8)]
    assert batches == [[0], [1, 2, 3, 4], [5, 6, 7]]


def test_a_query_that_fails_fails_alone() -> None:
    def invert(numbers: Sequence[int]) -> list[float]:
        return [1 / number for number in numbers]

    async def submit() -> list[Any]:
        batcher = Batcher(invert, max_batch=4)
        results = await asyncio.gather(*map(batcher.submit, [1, 0, 2]), return_exceptions=True)
        batcher.close()
        return results

    one, error, half = asyncio.run(submit())
    assert (one, half) == (1, 0.5)
    assert isinstance(error, ZeroDivisionError)


def test_concurrent_requests_share_a_batch_and_get_the_same_labels(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, release = threading.Event(), threading.Event()
    original = DocumentModel.suggest

    def slowly(model: DocumentModel, rows: Any, rules: Any = None) -> Any:
        if rows == ["first"]:
            began.set()
            release.wait(20)
        return original(model, rows, rules)

    batchers: list[Any] = []
    initialise = Batcher.__init__

    def remember(batcher: Any, *arguments: Any) -> None:
        batchers.append(batcher)
        initialise(batcher, *arguments)

    monkeypatch.setattr(Batcher, "__init__", remember)
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
        while batchers[0]._queue.qsize() < len(TEXTS):  # all of them wait for the first
            pass
        assert metrics()["ripml_requests_in_flight"].samples[0].value == len(TEXTS) + 2  # and the first, and /metrics
        release.set()
        found = [response.result().json() for response in together]
        assert first.result().status_code == 200
        assert batches() == before + 2
    for alone, beside in zip(one_by_one, found, strict=True):
        assert [entry["label"] for entry in beside["labels"]] == [entry["label"] for entry in alone["labels"]]
        scores = [entry["score"] for entry in alone["labels"]]
        assert [entry["score"] for entry in beside["labels"]] == pytest.approx(scores, abs=1e-6)


def test_a_refit_replaces_the_model_under_load(folder: Path) -> None:
    with client_of(Store.open(folder)) as client, ThreadPoolExecutor(4) as pool:
        assert client.get(f"{STORE}/refit").json() == {"status": "idle", "detail": None, "last": None}
        assert client.post(f"{STORE}/refit").status_code == 202
        versions, done = set(), False
        while not done:
            done = client.get(f"{STORE}/refit").json()["status"] == "idle"
            responses = [pool.submit(client.post, f"{STORE}/suggest", json={"text": text}) for text in TEXTS[:8]]
            new = {"documents": [{"text": "word1", "labels": ["new"]}]}
            assert client.post(f"{STORE}/documents", json=new).status_code == 201
            assert {response.result().status_code for response in responses} == {200}
            versions |= {response.result().json()["version"] for response in responses}
        assert client.get(f"{STORE}/refit").json()["last"] is not None
        kinds = [change["kind"] for change in client.get(f"{STORE}/history").json()["changes"]]
        assert "refit" in kinds
        assert len(versions) > 1


def test_a_failed_refit_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: Store, actor: str | None) -> None:
        raise RuntimeError("for some reason")

    monkeypatch.setattr(Store, "refit", fail)
    with client_of(Store.open(folder)) as client:
        client.post(f"{STORE}/refit")
        while (refit := client.get(f"{STORE}/refit").json())["status"] == "running":
            pass
        assert refit["status"] == "failed"
        assert "number" in refit["detail"]
        assert client.post(f"{STORE}/suggest", json={"text": "word1"}).status_code == 200


def test_a_read_only_server_follows_the_writer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ripml.server.app._FOLLOW_SECONDS", 0.01)
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


def test_a_failure_to_follow_is_logged_once_and_so_is_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ripml.server.app._FOLLOW_SECONDS", 0.001)
    caplog.set_level("INFO", "ripml.server")
    failures: list[Exception] = [StoreError("broken."), StoreError("broken."), OSError("away"), StoreError("broken.")]
    done, calls, refresh = threading.Event(), 0, Store.refresh

    def fail_at_first(store: Store) -> Any:
        nonlocal calls
        calls += 1
        if calls <= len(failures):
            raise failures[calls - 1]
        if calls > len(failures) + 1:
            done.set()
        return refresh(store)

    monkeypatch.setattr(Store, "refresh", fail_at_first)
    with client_of(Store.open(folder, readonly=True), Settings(read_only=True)):
        assert done.wait(20)
    began, ended = (record.message for record in caplog.records)
    assert "broken." in began
    assert ended == "store: following the store works again."


_LOADING = """
import signal, sys
from ripml.server import Settings, run
from ripml.store import Store

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that run under nohup ignore it
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_server_that_is_stopped_while_it_loads_closes_its_stores(folder: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", _LOADING, str(folder), str(folder.parent / "slow")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(number)
        output, log = process.communicate()
    assert (process.returncode, output, log) == (0, "stopped\n", "")
    Store.open(folder).close()


async def learn_until_closed(port: int, name: int, started: threading.Event) -> list[str]:
    """The ids of all documents that the server acknowledged before it closed the connection."""
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
                started.set()
    return learnt


async def send_invalid(port: int) -> bytes:
    """The response to bytes that are not HTTP."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x16\x03\x01 not HTTP\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=["stopped", "hung up", "killed"]
)
def test_acknowledged_documents_survive_a_stop_and_a_kill(folder: Path, number: signal.Signals) -> None:
    async def writers(port: int) -> list[str]:
        learnt = await asyncio.gather(*(learn_until_closed(port, name, started) for name in range(3)))
        return [id for ids in learnt for id in ids]

    started = threading.Event()
    with ServerProcess(folder, access_log=True, stop_seconds=60) as server, ThreadPoolExecutor(1) as pool:
        learnt = pool.submit(asyncio.run, writers(server.port))
        assert started.wait(60)
        refused = asyncio.run(send_invalid(server.port))
        code = server.end(number)
        acknowledged = learnt.result()
    assert refused.startswith(b"HTTP/1.1 400 ")
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    log = "".join(server.log)
    assert re.search(r"INFO - 127\.0\.0\.1 POST /v1/stores/store/documents 201 [\d.]+ ms \d+ bytes\n", log)
    assert "Traceback" not in log
    assert "word1" not in log
    with Store.open(folder) as store:
        ids = set(store.ids())
        assert len(acknowledged) >= 3
        assert ids.issuperset(acknowledged)
        if number != signal.SIGKILL:  # everything learnt was acknowledged, and a snapshot was taken
            assert {id for id in ids if "." in id} == set(acknowledged)
            assert store._changes == 0
