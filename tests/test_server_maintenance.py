"""Maintenance over HTTP: compact, check, backup and export, and who did what."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from store_writer import example
from store_writer import settings as quick

from ripml import RIPML
from ripml.server import Settings, add_key, create_app
from ripml.store import Certificate, Store, StoreError
from ripml.store.documents import parse_documents

STORE = "/v1/stores/tiny"
SECRET = {"id": "secret id", "text": "zyzzyva quokka", "labels": ["confidential"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store.create(tmp_path / "store", example(), quick()).close()
    return tmp_path / "store"


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Iterator[TestClient]:
    app = create_app({"tiny": Store.open(folder)}, Settings(backups=tmp_path / "backups"))
    with TestClient(app, base_url="http://localhost:8000") as client:
        yield client


def done(client: TestClient, kind: str) -> dict[str, Any]:
    """The status of a job after its end."""
    while (status := client.get(f"{STORE}/{kind}").json())["status"] == "running":
        pass
    found: dict[str, Any] = status
    return found


def test_compact_removes_what_was_forgotten_while_the_server_runs(client: TestClient, folder: Path) -> None:
    client.post(f"{STORE}/documents", json={"documents": [SECRET]})
    client.delete(f"{STORE}/documents/secret id")
    assert "secret id" in client.get(f"{STORE}/history").text
    assert client.get(f"{STORE}/compact").json() == {"status": "idle", "detail": None, "last": None}
    begun = client.post(f"{STORE}/compact")
    assert (begun.status_code, begun.json()) == (202, {"status": "running"})
    assert done(client, "compact")["last"] is not None
    history = client.get(f"{STORE}/history")
    assert history.json()["changes"][0]["kind"] == "compact"
    assert "secret id" not in history.text
    for file in folder.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        assert not [word for word in (b"zyzzyva", b"secret id", b"confidential") if word in content], file
    assert client.post(f"{STORE}/documents", json={"documents": [SECRET]}).status_code == 201


def test_a_job_runs_once_at_a_time_and_reports_its_failure(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    release, calls = threading.Event(), list[str | None]()

    def fail(store: Store, actor: str | None) -> None:
        calls.append(actor)
        release.wait(20)
        raise StoreError("/a/path: broken.")

    monkeypatch.setattr(Store, "compact", fail)
    for _ in range(3):
        assert client.post(f"{STORE}/compact").json() == {"status": "running"}
    assert client.get(f"{STORE}/compact").json()["status"] == "running"
    release.set()
    status = done(client, "compact")
    assert (status["status"], calls) == ("failed", [None])
    assert "number" in status["detail"]
    assert "/a/path" not in status["detail"]
    assert 'ripml_jobs_total{kind="compact",outcome="failed",store="tiny"} 1.0' in client.get("/metrics").text


def test_a_check_reports_what_is_in_order_and_logs_what_is_not(
    client: TestClient, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.get(f"{STORE}/check").json()["ok"] is None
    assert client.post(f"{STORE}/check").status_code == 202
    status = done(client, "check")
    assert status["ok"] is True
    assert {finding["ok"] for finding in status["findings"]} == {True}
    (model,) = folder.glob("model-*")
    largest = max(model.iterdir(), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 255
    largest.write_bytes(content)
    client.post(f"{STORE}/check")
    status = done(client, "check")
    assert status["ok"] is False
    assert str(folder) not in json.dumps(status)
    assert "tiny: the check of the" in caplog.text


def test_backups_are_made_in_the_folder_of_the_operator_and_listed(client: TestClient, tmp_path: Path) -> None:
    assert client.get(f"{STORE}/backup").json()["backups"] == []
    for n in (1, 2):
        assert client.post(f"{STORE}/backup").json() == {"status": "running"}
        status = done(client, "backup")
        assert (status["status"], len(status["backups"])) == ("idle", n)
        client.post(f"{STORE}/documents", json={"documents": [{"id": f"{n}", "text": "word1", "labels": ["new"]}]})
    (tmp_path / "backups" / "something else").mkdir()
    (tmp_path / "backups" / "tiny-yesterday").mkdir()
    newest, oldest = client.get(f"{STORE}/backup").json()["backups"]
    assert newest["time"] >= oldest["time"]
    places = [tmp_path / "backups" / backup["name"] for backup in (oldest, newest)]
    with Store.open(places[0]) as first, Store.open(places[1]) as second:
        assert len(second.history(9)) == len(first.history(9)) + 1


def test_a_server_without_a_folder_for_backups_makes_none(folder: Path) -> None:
    with TestClient(create_app({"tiny": Store.open(folder)}), base_url="http://localhost:8000") as client:
        refused = client.post(f"{STORE}/backup")
        assert refused.status_code == 403
        assert "start it with --backups FOLDER" in refused.json()["detail"]
        assert client.get(f"{STORE}/backup").json()["backups"] == []


def test_an_export_has_all_documents_of_one_moment(client: TestClient, folder: Path) -> None:
    client.post(f"{STORE}/documents", json={"documents": [SECRET]})
    response = client.get(f"{STORE}/export")
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["content-disposition"] == 'attachment; filename="tiny.jsonl"'
    assert int(response.headers["content-length"]) == len(response.content)
    documents = {document["id"]: document for document in map(json.loads, response.text.splitlines())}
    with Store.open(folder, readonly=True) as store:
        assert set(documents) == set(store.ids())
    assert {name: documents["secret id"][name] for name in SECRET} == SECRET


def test_few_exports_run_at_the_same_time(client: TestClient) -> None:
    store = client.app.state.stores["tiny"]  # type: ignore[attr-defined]
    address = "address testclient"
    assert [store._exports.take(address, 1) for _ in range(3)] == [True, True, False]
    refused = client.get(f"{STORE}/export")
    assert refused.status_code == 503
    store._exports.give_back(address, 2)
    for _ in range(5):
        assert client.get(f"{STORE}/export").status_code == 200
    assert store._exports.total == 0


def test_forgetting_can_be_certified(client: TestClient) -> None:
    client.post(f"{STORE}/documents", json={"documents": [SECRET]})
    assert client.post(f"{STORE}/forget", json={"ids": ["0"]}).json()["certificates"] == []
    response = client.post(f"{STORE}/forget", json={"ids": ["secret id"], "certify": True}).json()
    (certificate,) = map(Certificate.from_json, response["certificates"])
    assert certificate.names("secret id")
    assert (certificate.change, response["ids"]) == (response["version"], ["secret id"])
    newest = client.get(f"{STORE}/history").json()["changes"][0]
    assert newest["certificate"] == certificate.digest
    assert "secret id" not in client.get(f"{STORE}/history").text


# --------------------------------------------------------------------------------------------------------------- audit


def test_history_and_access_log_have_the_name_of_the_key(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = add_key(tmp_path / "keys.jsonl", "ana", "write")
    app = create_app({"tiny": Store.open(folder)}, Settings(keys=tmp_path / "keys.jsonl", access_log=True))
    headers = {"Authorization": f"Bearer {token}"}
    with (
        caplog.at_level(logging.INFO, "ripml.access"),
        TestClient(app, base_url="http://localhost:8000", headers=headers) as client,
    ):
        client.post(f"{STORE}/documents", json={"documents": [SECRET]})
        client.put(f"{STORE}/documents/secret id/labels", json={"labels": ["label 1"]})
        client.delete(f"{STORE}/documents/secret id")
        client.post(f"{STORE}/forget", json={"ids": ["0"]})
        for kind in ("refit", "compact"):
            client.post(f"{STORE}/{kind}")
            assert done(client, kind)["status"] == "idle"
        changes = client.get(f"{STORE}/history").json()["changes"]
        client.get("/health")
        client.get("/v1/stores", headers={"Authorization": "Bearer wrong"})
        client.get("/no/such/path?text=zyzzyva")
    kinds = [change["kind"] for change in changes]
    assert kinds == ["compact", "refit", "forget", "forget", "relabel", "learn"]
    assert {change["actor"] for change in changes} == {"ana"}
    lines = [record.message for record in caplog.records if record.name == "ripml.access"]
    assert lines[0].startswith(f"'ana' testclient POST {STORE}/documents 201 ")
    assert lines[1].startswith(f"'ana' testclient PUT {STORE}/documents/{{id}}/labels 200 ")
    assert lines[-3].startswith("- testclient GET /health 200 ")
    assert lines[-2].startswith("- testclient GET /v1/stores 401 ")
    assert lines[-1].startswith("'ana' testclient GET other 404 ")
    assert lines[0].endswith(" bytes")
    assert not [word for word in (token, "wrong", "secret id", "zyzzyva", "confidential") if word in caplog.text]


def test_an_audit_finds_labels_that_are_accepted_dismissed_and_taken_back(tmp_path: Path) -> None:
    words = {"fruit": "apple pear plum cherry grape peach", "weather": "rain snow wind storm cloud sleet"}
    rng = np.random.default_rng(0)
    mistaken = {"fruit0": "weather", "fruit30": "weather", "weather59": "fruit"}
    documents = [
        {
            "id": f"{label}{i}",
            "text": " ".join(rng.permutation(text.split())[:5]) + f" number{i}",
            "labels": [mistaken.get(f"{label}{i}", label)],
        }
        for label, text in words.items()
        for i in range(60)
    ]
    store = Store.create(tmp_path / "store", parse_documents(documents), RIPML(random_state=0))
    with TestClient(create_app({"tiny": store}), base_url="http://localhost:8000") as client:
        assert client.get(f"{STORE}/audit").json()["version"] is None
        assert client.post(f"{STORE}/audit").status_code == 202
        found = done(client, "audit?limit=3")
        assert {(one["document"], one["label"]) for one in found["wrong"]} == {*mistaken.items()}
        assert found["wrong"][0]["others"][0]["similarity"] > 0
        findings = [
            {name: one[name] for name in ("kind", "document", "label")}
            for one in (*found["wrong"], *found["missing"])
            if one["document"] != "fruit30"
        ]
        for decision, labels in (("accept", ["fruit"]), ("undo", ["weather"]), ("dismiss", ["weather"])):
            assert client.post(f"{STORE}/audit/{decision}", json={"findings": findings}).json()["version"] >= 2
            assert client.get(f"{STORE}/documents/fruit0").json()["labels"] == labels
        assert [one["document"] for one in client.get(f"{STORE}/audit").json()["wrong"]] == ["fruit30"]
        client.post(f"{STORE}/audit")
        again = done(client, "audit?limit=2")
        assert [one["document"] for one in again["wrong"]] == ["fruit30"]
        client.delete(f"{STORE}/documents/fruit30")
        assert '"fruit30"' not in client.get(f"{STORE}/audit?limit=1000").text
        unknown = {"findings": [{"kind": "wrong", "document": "x", "label": "fruit"}]}
        assert client.post(f"{STORE}/audit/accept", json=unknown).status_code == 422


def test_a_store_that_is_too_small_to_audit_says_so_and_names_copies(tmp_path: Path) -> None:
    documents = [
        {"id": f"d{i}", "text": f"rain{i % 8} snow{i // 8}", "labels": ["fruit" if i % 7 == 0 else "weather"]}
        for i in range(40)
    ]
    documents.append({**documents[3], "id": "copy", "labels": ["fruit"]})
    store = Store.create(tmp_path / "store", parse_documents(documents), RIPML(random_state=0))
    with TestClient(create_app({"tiny": store}), base_url="http://localhost:8000") as client:
        assert client.get(f"{STORE}/audit").json()["enough"] is None
        client.post(f"{STORE}/audit")
        found = done(client, "audit")
        assert (found["version"], found["enough"]) == (store.version, False)
        assert (found["wrong_share"], found["missing_share"], found["wrong"], found["missing"]) == (None, None, [], [])
        assert found["conflicts"] == [{"documents": ["d3", "copy"], "labels": ["fruit", "weather"]}]
        assert client.post(f"{STORE}/review", json={"labelled": True}).json()["documents"] == []


def test_what_an_audit_and_a_report_found_follows_labels_that_are_renamed_and_merged(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    topics = {"fruit": "apple pear plum cherry grape peach", "weather": "rain snow wind storm cloud sleet"}
    documents = [
        {
            "id": f"{topic}{i}",
            "text": " ".join(rng.permutation(words.split())[:4]) + f" number{i % 9}",
            "labels": ["x", f"about {topic}"],
        }
        for topic, words in topics.items()
        for i in range(60)
    ]
    documents += [{"id": f"other{i}", "text": f"violin piano number{i % 9}", "labels": ["y"]} for i in range(20)]
    documents += [{**documents[0], "id": "copy", "labels": ["x", "y"]}]
    store = Store.create(tmp_path / "store", parse_documents(documents), RIPML(random_state=0))
    with TestClient(create_app({"tiny": store}), base_url="http://localhost:8000") as client:
        for job in ("report", "audit"):
            client.post(f"{STORE}/{job}")
        assert {group["labels"][0][0] for group in done(client, "report")["splits"][0]["groups"]} == {
            "about fruit",
            "about weather",
        }
        assert {"about fruit", "y"} <= set(done(client, "audit")["conflicts"][0]["labels"])
        client.post(f"{STORE}/labels/about fruit/rename", json={"to": "fruits"})
        client.post(f"{STORE}/labels/about weather/merge", json={"into": "y"})
        report, audit = (client.get(f"{STORE}/{job}").json() for job in ("report", "audit"))
        assert [[name for name, _ in group["labels"]] for group in report["splits"][0]["groups"]] in (
            [["fruits"], []],
            [[], ["fruits"]],
        )
        assert {"fruits", "y"} <= set(audit["conflicts"][0]["labels"])
        client.post(f"{STORE}/labels/x/merge", json={"into": "y"})
        assert client.get(f"{STORE}/report").json()["splits"] == []
        for job in ("report", "audit"):
            assert '"about ' not in client.get(f"{STORE}/{job}").text


def test_a_report_names_labels_that_may_be_two_and_forgets_documents_that_are_gone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    topics = {"fruit": "apple pear plum cherry grape peach", "weather": "rain snow wind storm cloud sleet"}
    documents = [
        {"id": f"{topic}{i}", "text": " ".join(rng.permutation(words.split())[:4]) + f" number{i % 9}", "labels": ["x"]}
        for topic, words in topics.items()
        for i in range(60)
    ]
    documents += [{"id": f"other{i}", "text": f"violin piano number{i % 9}", "labels": ["y"]} for i in range(20)]
    store = Store.create(tmp_path / "store", parse_documents(documents), RIPML(random_state=0))
    with TestClient(create_app({"tiny": store}), base_url="http://localhost:8000") as client:
        client.post(f"{STORE}/report")
        (split,) = done(client, "report")["splits"]
        assert split["label"] == "x"
        gone = split["groups"][0]["examples"][0]
        client.delete(f"{STORE}/documents/{gone}")
        (split,) = client.get(f"{STORE}/report").json()["splits"]
        assert gone not in split["groups"][0]["examples"]
        assert len(split["groups"][0]["examples"]) == 2


def test_an_audit_names_nearly_equal_texts_with_different_labels(tmp_path: Path) -> None:
    text = " ".join(f"word{i}" for i in range(60))
    documents = [
        {"id": "may", "text": f"{text} rain", "labels": ["fruit"]},
        {"id": "june", "text": f"{text} snow", "labels": ["fruit", "weather"]},
        *({"id": f"d{i}", "text": f"rain snow number{i}", "labels": ["weather"]} for i in range(20)),
    ]
    store = Store.create(tmp_path / "store", parse_documents(documents), RIPML(random_state=0))
    with TestClient(create_app({"tiny": store}), base_url="http://localhost:8000") as client:
        client.post(f"{STORE}/audit")
        (near,) = done(client, "audit")["near_copies"]
        assert near == {"documents": ["may", "june"], "similarity": near["similarity"], "only": [[], ["weather"]]}
        assert near["similarity"] == pytest.approx(59 / 61, abs=1e-4)
        client.delete(f"{STORE}/documents/june")
        assert client.get(f"{STORE}/audit").json()["near_copies"] == []


def test_a_report_is_that_of_the_store_and_forgets_documents_that_are_gone(tmp_path: Path) -> None:
    documents = [
        {"id": f"{label}{i}", "text": f"{text} number{i}", "labels": [label]}
        for label, text in {"fruit": "apple pear plum", "weather": "rain snow wind"}.items()
        for i in range(50)
    ]
    documents[0]["labels"] = ["weather"]
    store = Store.create(tmp_path / "store", parse_documents(documents), RIPML(random_state=0))
    with TestClient(create_app({"tiny": store}), base_url="http://localhost:8000") as client:
        assert client.get(f"{STORE}/report").json()["version"] is None
        assert client.post(f"{STORE}/report").status_code == 202
        found = done(client, "report?limit=1")
        expected = json.loads(json.dumps(store.quality(1).to_json()))
        assert {name: found[name] for name in expected} == expected
        assert len(done(client, "report")["labels"]) == 2
        assert "fruit0" in found["labels"][0]["missed"]
        client.delete(f"{STORE}/documents/fruit0")
        assert '"fruit0"' not in client.get(f"{STORE}/report?limit=1000").text
        client.post(f"{STORE}/report")  # of one document too few
        found = done(client, "report")
        assert (found["rows"], found["precision"], found["micro_f1"], found["labels"]) == (99, None, None, [])
