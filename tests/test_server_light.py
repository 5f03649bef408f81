"""A light server: nothing is prepared before the first change, snapshots follow changes, it ends when it is told to,
and several processes serve one store."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from served import Connection, ServerProcess, request_bytes
from store_writer import WORDS, example, settings

from ripml import RIPML
from ripml.regression.inverse import Triangle
from ripml.server import Settings, create_app, served_store
from ripml.store import Store
from ripml.store.journal import Snapshot

STORE = "/v1/stores/store"
TEXT = " ".join(WORDS[:4])
NEW = {"documents": [{"id": "new", "text": "word1 word2", "labels": ["new"]}]}


def client_of(store: Store, settings: Settings | None = None) -> TestClient:
    return TestClient(create_app({"store": store}, settings), base_url="http://localhost:8000")


def is_prepared(store: Store) -> bool:
    model: Any = store.model.model
    return bool(model.model_.n_unprepared == 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store whose model has a kernel, so that its first change needs the factor of a matrix."""
    model = RIPML(n_dims=8, kernel="rbf", n_neighbors=3, decoder="weighted", ridge=1.0, n_jobs=1, random_state=0)
    Store.create(tmp_path / "store", example(), model).close()
    return tmp_path / "store"


def test_nothing_is_prepared_before_the_first_change(folder: Path) -> None:
    store = Store.open(folder)
    with client_of(store) as client:
        while client.get("/ready").status_code != 200:
            pass
        assert client.post(f"{STORE}/suggest", json={"text": TEXT}).status_code == 200
        assert not is_prepared(store)
        assert client.post(f"{STORE}/documents", json=NEW).status_code == 201
        assert is_prepared(store)


def test_a_warm_server_prepares_at_the_start_and_after_a_refit(folder: Path) -> None:
    store = Store.open(folder)
    with client_of(store, Settings(warm=True)) as client:
        while not is_prepared(store):
            pass
        client.post(f"{STORE}/refit")
        while client.get(f"{STORE}/refit").json()["last"] is None:
            pass
        while not is_prepared(store):
            pass


def test_suggestions_are_answered_while_the_first_change_is_prepared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, release, factorise = threading.Event(), threading.Event(), Triangle.factorise

    def slowly(triangle: Triangle) -> None:
        began.set()
        assert release.wait(60)
        factorise(triangle)

    monkeypatch.setattr(Triangle, "factorise", slowly)
    with client_of(Store.open(folder)) as client, ThreadPoolExecutor(1) as pool:
        changed = pool.submit(client.post, f"{STORE}/documents", json=NEW)
        assert began.wait(60)
        before = client.post(f"{STORE}/suggest", json={"text": TEXT})
        assert (before.status_code, before.json()["version"]) == (200, 0)
        assert client.get(f"{STORE}/documents/0").status_code == 200
        assert client.get(f"{STORE}/documents/new").status_code == 404
        assert not changed.done()
        release.set()
        assert changed.result().json()["version"] == 1
        assert client.post(f"{STORE}/suggest", json={"text": TEXT}).json()["version"] == 1


_IMPORTS = """
import sys
from ripml.server import create_app
from ripml.store import Store

with Store.open(sys.argv[1]) as store:
    create_app({"store": store})
    store.model.suggest([sys.argv[2]])
    store.learn([{"text": "word1 word2", "labels": ["new"]}])
    store.snapshot()
print(sorted({"sklearn", "pandas", "scipy.stats", "joblib", "matplotlib", "rich", "typer"} & set(sys.modules)))
"""


def test_answers_and_changes_import_no_package_that_they_do_not_need(folder: Path) -> None:
    command = [sys.executable, "-c", _IMPORTS, str(folder), TEXT]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


_OPENING = """
import sys, threading
from ripml.server import Settings, run
from ripml.store import Store

def stuck(*arguments, **options):
    print("opening", flush=True)
    threading.Event().wait()

Store.open = stuck
run(sys.argv[1:], Settings(port=0, stop_seconds=600))
"""


def test_a_server_ends_at_once_although_a_store_is_being_opened(folder: Path) -> None:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _OPENING, str(folder)], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opening\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate() == ("", "")
    assert process.returncode == 0


_STUCK = """
import sys, threading
from ripml.regression.inverse import Triangle
from ripml.server import Settings, run

def stuck(triangle):
    print("preparing", flush=True)
    threading.Event().wait()

Triangle.factorise = stuck
run(sys.argv[1:], Settings(port=0, stop_seconds=0.2))
"""


def test_a_server_ends_although_a_change_is_being_prepared(folder: Path) -> None:
    async def change(port: int) -> None:
        async with await Connection.to(port) as connection:
            with pytest.raises(ConnectionError):
                await connection.ask("POST", f"{STORE}/documents", NEW)

    command = [sys.executable, "-c", _STUCK, str(folder)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process, ThreadPoolExecutor(1) as pool:
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stderr.readline().partition("127.0.0.1:")[2].partition(";")[0])
        changed = pool.submit(asyncio.run, change(port))
        assert process.stdout.readline() == "preparing\n"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate()
        changed.result()
    assert process.returncode == 0
    assert "nothing that was acknowledged is lost" in log
    with Store.open(folder) as store:
        assert (len(store), store.version) == (40, 0)


def test_a_snapshot_follows_changes_so_that_light_readers_can(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_store, "_SNAPSHOT_SECONDS", 0.01)
    monkeypatch.setattr("ripml.store.store._LIGHT_EQUATIONS", 1)
    monkeypatch.setattr("ripml.server.app._FOLLOW_SECONDS", 0.01)
    writer, reader = Store.open(folder), Store.open(folder, readonly=True, light=True)
    with client_of(writer) as client, client_of(reader, Settings(read_only=True)) as follower:
        for number in (1, 2):
            new = {"documents": [{"text": "word1 word2", "labels": [f"new {number}"]}]}
            version = client.post(f"{STORE}/documents", json=new).json()["version"]
            while follower.post(f"{STORE}/suggest", json={"text": TEXT}).json()["version"] < version:
                pass
            assert writer._database.read(Snapshot.read).change == version
            answers = [some.post(f"{STORE}/suggest", json={"text": TEXT}).json() for some in (client, follower)]
            assert answers[0] == answers[1]
        assert not is_prepared(reader)


def test_a_failed_snapshot_is_logged_and_the_next_change_tries_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(served_store, "_SNAPSHOT_SECONDS", 0.01)
    snapshot, calls, done = Store.snapshot, list[int](), threading.Event()

    def fail_at_first(store: Store) -> None:
        calls.append(store.version)
        if len(calls) == 1:
            raise OSError("the disk is full")
        snapshot(store)
        done.set()

    monkeypatch.setattr(Store, "snapshot", fail_at_first)
    with client_of(Store.open(folder)) as client:
        assert client.post(f"{STORE}/documents", json=NEW).status_code == 201
        while not calls:
            pass
        assert client.delete(f"{STORE}/documents/new").status_code == 200
        assert done.wait(60)
    assert "OSError" in caplog.text


def workers_of(server: ServerProcess) -> list[int]:
    pid = server.process.pid
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@needs_linux
def test_several_workers_answer_at_one_port_until_they_are_stopped(tmp_path: Path) -> None:
    Store.create(tmp_path / "store", example(), settings()).close()

    async def answers(port: int) -> set[bytes]:
        request = request_bytes("POST", f"{STORE}/suggest", b'{"text": "%s"}' % TEXT.encode())
        found = set()
        for _ in range(16):
            async with await Connection.to(port) as connection:
                status, body = await connection.send(request)
                assert status == 200
                found.add(body)
        return found

    with ServerProcess(tmp_path / "store", read_only=True, workers=2) as server:
        assert len(workers_of(server)) == 2
        assert len(asyncio.run(answers(server.port))) == 1
        assert server.end(signal.SIGTERM) == 0
    assert "Traceback" not in "".join(server.log)


@needs_linux
def test_all_workers_end_when_one_of_them_does(tmp_path: Path) -> None:
    Store.create(tmp_path / "store", example(), settings()).close()
    with ServerProcess(tmp_path / "store", read_only=True, workers=2) as server:
        os.kill(workers_of(server)[0], signal.SIGKILL)
        server.process.wait()
        assert server.end() != 0
    assert "a worker ended with code -9" in "".join(server.log)
