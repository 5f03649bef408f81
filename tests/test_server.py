"""The server: its routes, roles and refusals."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from store_writer import LABELS, WORDS, example
from store_writer import settings as quick

from ripml import RIPML
from ripml.base.errors import ParameterError, StoreError, StoreFullError
from ripml.cli import main
from ripml.server import Settings, add_key, create_app, list_keys, remove_key, run
from ripml.server.process import store_folders
from ripml.server.served_store import encode_json
from ripml.store import Store

TEXTS = [" ".join(WORDS[i : i + 4]) for i in range(20)]
STORE = "/v1/stores/tiny"


def client_of(store: Store, settings: Settings | None = None, name: str = "tiny") -> TestClient:
    return TestClient(
        create_app({name: store}, settings), base_url="http://localhost:8000", raise_server_exceptions=False
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server") / "store"
    Store.create(folder, example(), quick()).close()
    return folder


@pytest.fixture(scope="module")
def shared(template: Path) -> Iterator[tuple[TestClient, Store]]:
    store = Store.open(template)
    with client_of(store) as client:
        yield client, store


@pytest.fixture(scope="module")
def client(shared: tuple[TestClient, Store]) -> TestClient:
    return shared[0]


@pytest.fixture
def reader(template: Path, shared: object) -> Store:
    return Store.open(template, readonly=True)


def problem(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == status
    assert found["type"] == "about:blank"
    assert found["detail"].endswith(".")
    assert not re.search(r"Traceback|File \"|/tmp|/src|\.py\b", response.text)
    return found


# -------------------------------------------------------------------------------------------------------------- routes


def test_a_server_reports_that_it_is_healthy_and_ready_and_its_versions(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    while client.get("/ready").json()["status"] == "starting":
        pass
    version = client.get(STORE).json()["version"]
    assert client.get("/ready").json() == {"status": "ready", "versions": [version]}
    for path in ("/health", "/ready"):
        response = client.head(path)
        assert (response.status_code, response.content) == (200, b"")


def test_stores_are_listed_with_the_role_of_the_caller(client: TestClient) -> None:
    listed = client.get("/v1/stores").json()
    assert listed["role"] == "write"
    assert [entry["name"] for entry in listed["stores"]] == ["tiny"]


def test_the_model_card_has_sizes_settings_quality_and_limits(client: TestClient) -> None:
    card = client.get(STORE).json()
    assert card["name"] == "tiny"
    assert card["documents"] >= 40
    assert card["settings"]["n_dims"] == 8
    assert card["left_out_precision"] is None  # of so few documents
    assert card["limits"] == {"text": 1_000_000, "batch": 1000, "body": 5_000_000}
    assert card["rules"]["n"] == 5
    assert card["features"]["count"] > 0
    assert "learnt" in card["warm"]


def as_pairs(labels: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(entry["label"], entry["score"]) for entry in labels]


def test_http_suggests_the_labels_and_scores_of_python(client: TestClient, shared: tuple[TestClient, Store]) -> None:
    model = shared[1].model
    for text in TEXTS[:5]:
        answer = client.post(f"{STORE}/suggest", json={"text": text}).json()
        assert as_pairs(answer["labels"]) == model.suggest([text])[0]
    answer = client.post(f"{STORE}/suggest/batch", json={"texts": TEXTS}).json()
    assert [as_pairs(result["labels"]) for result in answer["results"]] == model.suggest(TEXTS)
    few = {"n": 2, "threshold": 0.2}
    answer = client.post(f"{STORE}/suggest", json={"text": TEXTS[0], **few}).json()
    assert as_pairs(answer["labels"]) == model.suggest([TEXTS[0]], model.rules.but(**few))[0]
    for threshold in ("auto", None):
        answer = client.post(f"{STORE}/suggest", json={"text": TEXTS[0], "threshold": threshold}).json()
        assert as_pairs(answer["labels"]) == model.suggest([TEXTS[0]], model.rules.but(threshold=threshold))[0]


def test_http_gives_the_sets_with_a_guarantee_of_python(client: TestClient, shared: tuple[TestClient, Store]) -> None:
    model = shared[1].model
    for rules in ({"coverage": 0.5}, {"coverage": 0.5, "per_label": True}):
        answer = client.post(f"{STORE}/suggest", json={"text": TEXTS[0], **rules}).json()
        assert as_pairs(answer["labels"]) == model.suggest([TEXTS[0]], model.rules.but(**rules))[0]
        batch = client.post(f"{STORE}/suggest/batch", json={"texts": [TEXTS[0]], **rules}).json()
        assert batch["results"][0]["labels"] == answer["labels"]
    too_much = client.post(f"{STORE}/suggest", json={"text": TEXTS[0], "coverage": 0.9999})
    assert "coverage=0.9999 cannot be guaranteed" in problem(too_much, 422)["detail"]
    problem(client.post(f"{STORE}/suggest", json={"text": TEXTS[0], "coverage": 1}), 422)
    assert sorted(client.get(STORE).json()["automation"]) == ["labels", "rows"]


def test_a_large_batch_gets_the_scores_of_python_to_the_last_digit(reader: Store) -> None:
    texts = [f"{TEXTS[i % len(TEXTS)]} {' '.join(WORDS[i % 7 : i % 11])}" for i in range(1100)]
    body = {"texts": texts, "n": 1000}
    with client_of(reader, Settings(read_only=True, max_texts=2000)) as client:
        answer = client.post(f"{STORE}/suggest/batch", json=body).json()
    model = reader.model
    assert [as_pairs(result["labels"]) for result in answer["results"]] == model.suggest(texts, model.rules.but(n=1000))


def test_a_long_text_gets_the_same_labels_outside_of_the_queue(
    client: TestClient, shared: tuple[TestClient, Store]
) -> None:
    text = " ".join(WORDS[:5]) * 3000
    answer = client.post(f"{STORE}/suggest", json={"text": text}).json()
    assert as_pairs(answer["labels"]) == shared[1].model.suggest([text])[0]


def test_explanations_have_examples_words_and_spans_of_the_text(client: TestClient) -> None:
    text = f"Ünï {TEXTS[0]} 𝔘 {TEXTS[0]}"
    answer = client.post(f"{STORE}/explain", json={"text": text, "n": 2, "examples": 3, "features": 4}).json()
    assert 1 <= len(answer["labels"]) <= 2
    for label in answer["labels"]:
        shares = sum(example["share"] for example in label["examples"]) + label["others"] + label["regression"]
        assert shares == pytest.approx(label["score"])
        assert len(label["examples"]) <= 3
        assert all(document["text"] for example in label["examples"] for document in example["documents"])
        assert len(label["features"]) <= 4
        assert all(text[span["start"] : span["end"]].startswith("word") for span in label["spans"])
        assert label["spans"]


def test_explanations_of_long_texts_show_the_strongest_spans_and_the_first_labels(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"text": f"{TEXTS[0]} {TEXTS[5]} {TEXTS[9]}", "n": 3}
    whole = client.post(f"{STORE}/explain", json=body)
    monkeypatch.setattr("ripml.server.served_store._MAX_SPANS", 8)
    monkeypatch.setattr("ripml.server.served_store._MAX_EXAMPLE_LABELS", 1)
    cut = client.post(f"{STORE}/explain", json=body)
    for long, short in zip(whole.json()["labels"], cut.json()["labels"], strict=True):
        places = [(span["start"], span["end"]) for span in short["spans"]]
        assert 1 <= len(places) <= 8 // len(cut.json()["labels"]) < len(long["spans"])
        assert places == sorted(places)
        by_pull = sorted((abs(span["pull"]) for span in long["spans"]), reverse=True)
        assert sorted((abs(span["pull"]) for span in short["spans"]), reverse=True) == by_pull[: len(places)]
        for example_before, example_after in zip(long["examples"], short["examples"], strict=True):
            assert example_after["labels"] == example_before["labels"][:1]
            assert example_after["documents"] == example_before["documents"]
    monkeypatch.undo()
    assert client.post(f"{STORE}/explain", json=body).content == whole.content


def test_large_responses_are_serialised_outside_of_the_event_loop(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def encode(content: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return encode_json(content)

    monkeypatch.setattr("ripml.server.served_store.encode_json", encode)
    labels = client.post(f"{STORE}/explain", json={"text": TEXTS[0]}).json()["labels"]
    client.post(f"{STORE}/suggest/batch", json={"texts": TEXTS})
    assert len(threads) == len(labels) + len(TEXTS)  # one item at a time, so that other threads run in between
    assert all(name.startswith("ripml work") for name in threads)


def test_documents_are_learnt_shown_relabelled_and_forgotten(client: TestClient) -> None:
    before = client.get(STORE).json()
    new = [{"id": "a/b ü", "text": "word1 word2", "labels": ["fresh"]}, {"text": "word3", "labels": []}]
    answer = client.post(f"{STORE}/documents", json={"documents": new})
    assert answer.status_code == 201
    ids = answer.json()["ids"]
    assert ids[0] == "a/b ü"
    place = f"{STORE}/documents/a%2Fb%20%C3%BC"
    assert client.get(place).json() == {"id": "a/b ü", "text": "word1 word2", "labels": ["fresh"]}
    answer = client.put(f"{place}/labels", json={"labels": ["other", "fresh", "other"]}).json()
    assert answer["before"] == ["fresh"]
    assert sorted(answer["labels"]) == ["fresh", "other"]
    assert sorted(client.get(place).json()["labels"]) == ["fresh", "other"]
    assert client.delete(place).json()["id"] == "a/b ü"
    assert client.post(f"{STORE}/forget", json={"ids": ids[1:]}).json()["ids"] == ids[1:]
    for response in (client.get(place), client.delete(place), client.put(f"{place}/labels", json={"labels": []})):
        assert "no document" in problem(response, 404)["detail"]
    problem(client.post(f"{STORE}/forget", json={"ids": ["nobody"]}), 404)
    after = client.get(STORE).json()
    assert after["documents"] == before["documents"]
    assert after["version"] > before["version"]
    kinds = [change["kind"] for change in client.get(f"{STORE}/history", params={"limit": 3}).json()["changes"]]
    assert kinds == ["forget", "forget", "relabel"]


def test_a_repeated_document_id_is_a_conflict(client: TestClient) -> None:
    twice = [{"id": "same", "text": "word1", "labels": []}] * 2
    assert (
        "'same' is given twice" in problem(client.post(f"{STORE}/documents", json={"documents": twice}), 409)["detail"]
    )
    problem(client.post(f"{STORE}/forget", json={"ids": ["0", "0"]}), 409)


def test_a_learnt_document_counts_in_the_next_suggestion(client: TestClient) -> None:
    text = "zebra zebu zeppelin"
    learnt = client.post(f"{STORE}/documents", json={"documents": [{"text": f"{text} word1", "labels": ["zoo"]}] * 3})
    labels = client.post(f"{STORE}/suggest", json={"text": "word1", "n": 50})
    assert labels.json()["version"] == learnt.json()["version"]
    assert "zoo" in [name for name, _ in as_pairs(labels.json()["labels"])]
    client.post(f"{STORE}/forget", json={"ids": learnt.json()["ids"]})


def test_labels_are_found_by_prefix(client: TestClient) -> None:
    found = client.get(f"{STORE}/labels", params={"prefix": "label", "limit": 3}).json()["labels"]
    assert len(found) == 3
    assert all(entry["name"] in LABELS and entry["count"] > 0 and not entry["retired"] for entry in found)
    assert client.get(f"{STORE}/labels", params={"prefix": "no such"}).json() == {"labels": []}


def test_the_description_lists_the_routes_and_the_page_has_its_headers(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/stores/{store}/suggest", "/v1/stores/{store}/documents/{id}/labels"} <= paths.keys()
    assert all("422" in operation["responses"] for methods in paths.values() for operation in methods.values())
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    asset = client.get("/page/page.css")
    assert asset.status_code == 200
    assert asset.headers["content-type"] == "text/css; charset=utf-8"
    assert client.get("/page/page.js").headers["content-type"] == "text/javascript; charset=utf-8"
    assert client.head("/").status_code == client.head("/page/page.css").status_code == 200
    assert asset.headers["x-content-type-options"] == "nosniff"


def test_the_page_of_the_description_has_all_routes_and_loads_nothing_from_elsewhere(template: Path) -> None:
    with client_of(Store.open(template, readonly=True), Settings(read_only=True), "secret-name") as client:
        page = client.get("/docs")
        description = client.get("/openapi.json").json()
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for path, methods in description["paths"].items():
        assert all(f"<code>{method.upper()} {path}</code></h2>" in page.text for method in methods)
    ids, targets = (set(re.findall(pattern, page.text)) for pattern in (r'id="([^"]+)"', r'href="#([^"]+)"'))
    assert targets <= ids
    assert not re.search(r"<script|https?://|style=|secret-name", page.text)
    assert set(re.findall(r"""(?:src|href)=["']([^#"'][^"']*)""", page.text)) == {
        "page/docs.css", "page/icon.svg", "openapi.json",
    }  # fmt: skip


def test_metrics_count_labels_that_were_accepted_and_rejected(client: TestClient) -> None:
    def decided() -> dict[str, float]:
        families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
        return {sample.labels["outcome"]: sample.value for sample in families["ripml_decided_labels"].samples}

    before = decided()
    known = client.get("/v1/stores/tiny/labels").json()["labels"][0]["name"]
    for decision in ({"accepted": ["one", "two"]}, {"rejected": [known, "one"]}):
        body = {"id": "decided", "text": "something new", **decision}
        assert client.post("/v1/stores/tiny/decisions", json=body).is_success
    assert decided() == {"accepted": before["accepted"] + 2, "rejected": before["rejected"] + 2}


def test_metrics_can_be_parsed_and_have_no_text_from_a_request(client: TestClient) -> None:
    client.get("/v1/stores/evil-name")
    client.get("/evil-path")
    client.request("EVIL", "/health")
    text = client.get("/metrics").text
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert {"ripml_requests", "ripml_request_seconds", "ripml_batch_size", "ripml_documents"} <= found.keys()
    assert {sample.labels["store"] for sample in found["ripml_documents"].samples} == {"tiny"}
    assert "evil" not in text.lower()


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"text": "\xff"}', 400),
        (b'{"text": "\\ud800"}', 400),
        (b"[" * 100_000, 400),
        (b'{"text": "a", "threshold": NaN}', 400),
        (b'{"text": "a", "threshold": Infinity}', 400),
        (b'{"text": "a", "threshold": 1e999}', 422),
        (b'{"text": "a", "threshold": ' + b"9" * 5000 + b"}", 400),
        (b'{"text": "a", "n": ' + b"9" * 4000 + b"}", 422),
        (b'{"text": "a", "n": 0}', 422),
        (b'{"text": "a", "n": true}', 422),
        (b'{"text": "a", "n": 2.5}', 422),
        (b'{"text": "a", "n": "5"}', 422),
        (b'{"text": 5}', 422),
        (b'{"text": "a", "texts": []}', 422),
        (b"{}", 422),
        (b"null", 422),
        (b"[]", 422),
    ],
)
def test_invalid_bodies_are_refused_with_a_sentence(client: TestClient, content: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    problem(client.post(f"{STORE}/suggest", content=content, headers=headers), status)


def test_empty_names_and_names_with_a_nul_are_refused(client: TestClient) -> None:
    for document in ({"id": "a\0b", "labels": []}, {"id": "", "labels": []}, {"labels": ["\0"]}, {"labels": [""]}):
        body = {"documents": [{"text": "word1", **document}]}
        problem(client.post(f"{STORE}/documents", json=body), 422)
    problem(client.get(f"{STORE}/documents/%00"), 422)
    problem(client.get(f"{STORE}/documents/%FF"), 422)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "suggest/batch", {"texts": [1] * 1000}),
        ("POST", "forget", {"ids": [1] * 1000}),
        ("PUT", "documents/0/labels", {"labels": [1] * 1000}),
        ("POST", "documents", {"documents": [1] * 1000}),
        ("POST", "documents", {"documents": [{"text": "", "labels": [1] * 1000}] * 1000}),
        ("POST", "documents", {"documents": [{str(i): 1 for i in range(1000)}]}),
        ("POST", "suggest", {str(i): 1 for i in range(100_000)}),
    ],
)
def test_an_error_that_is_repeated_many_times_is_reported_once(
    client: TestClient, method: str, path: str, body: Any
) -> None:
    assert len(problem(client.request(method, f"{STORE}/{path}", json=body), 422)["errors"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "suggest/batch", {"texts": [1] * 1001}),
        ("POST", "forget", {"ids": [1] * 1001}),
        ("POST", "documents", {"documents": [1] * 100_000}),
        ("POST", "documents", {"documents": [{"labels": [1] * 1001}]}),
        ("PUT", "documents/0/labels", {"labels": [1] * 1001}),
    ],
)
def test_lists_that_are_too_long_are_refused_before_their_items_are_validated(
    client: TestClient, method: str, path: str, body: Any
) -> None:
    assert "the limit is 1,000" in problem(client.request(method, f"{STORE}/{path}", json=body), 413)["detail"]


def test_labels_of_white_space_are_refused(client: TestClient) -> None:
    for blank in (" ", "\n", "\u3000"):
        body = {"documents": [{"text": "word1", "labels": ["good", blank]}]}
        assert "more than white space" in problem(client.post(f"{STORE}/documents", json=body), 422)["detail"]
        problem(client.put(f"{STORE}/documents/0/labels", json={"labels": [blank]}), 422)


def test_compressed_bodies_are_refused(client: TestClient) -> None:
    for coding, status in (("gzip", 415), ("br, identity", 415), ("identity", 200)):
        answer = client.post(f"{STORE}/suggest", json={"text": "a"}, headers={"Content-Encoding": coding})
        assert answer.status_code == status
        if status == 415:
            assert f"without Content-Encoding; got '{coding}'" in problem(answer, 415)["detail"]


def test_unknown_paths_methods_and_content_types_are_refused(client: TestClient) -> None:
    problem(client.get("/nowhere"), 404)
    problem(client.get("/page/nowhere.js"), 404)
    problem(client.get("/page/..%2fapp.py"), 404)
    assert "'nobody'" in problem(client.get("/v1/stores/nobody"), 404)["detail"]
    refused = client.patch(f"{STORE}/refit")
    problem(refused, 405)
    assert refused.headers["allow"] == "GET, POST"
    problem(client.post("/page/page.css"), 405)
    problem(client.post(f"{STORE}/suggest", content=b"text=a"), 415)
    problem(client.get(f"{STORE}/history", params={"limit": 0}), 422)


def test_bodies_texts_and_batches_have_a_maximum_size(template: Path, shared: object) -> None:
    limits = Settings(max_body=2000, max_text=100, max_texts=3, read_only=True)
    with client_of(Store.open(template, readonly=True), limits) as client:
        headers = {"Content-Type": "application/json"}
        large = json.dumps({"text": "a" * 3000}).encode()
        problem(client.post(f"{STORE}/suggest", content=large, headers=headers), 413)
        in_pieces = client.post(f"{STORE}/suggest", content=iter([large[:1000], large[1000:]]), headers=headers)
        assert "2,000 bytes" in problem(in_pieces, 413)["detail"]
        assert "100" in problem(client.post(f"{STORE}/suggest", json={"text": "a" * 101}), 413)["detail"]
        assert client.post(f"{STORE}/suggest", json={"text": "a" * 100}).status_code == 200
        problem(client.post(f"{STORE}/suggest/batch", json={"texts": ["a"] * 4}), 413)
        problem(client.post(f"{STORE}/suggest/batch", json={"texts": ["a" * 101]}), 413)
        problem(client.post(f"{STORE}/explain", json={"text": "a" * 101}), 413)
        problem(client.post(f"{STORE}/documents", json={"documents": []}), 403)


def asgi(client: TestClient, path: str, pieces: list[dict[str, Any]]) -> Any:
    """The response to a request whose body arrives as these messages and never ends."""

    async def ask() -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            if pieces:
                return pieces.pop(0)
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        await client.app({**scope, "headers": headers, "client": None}, receive, send)
        return sent

    return asyncio.run(ask())


def test_a_body_that_does_not_arrive_in_time_is_refused(reader: Store) -> None:
    with client_of(reader, Settings(body_seconds=0.02, read_only=True)) as client:
        sent = asgi(client, f"{STORE}/suggest", [{"type": "http.request", "body": b"{", "more_body": True}])
    assert sent[0]["status"] == 408
    assert "0.02 s" in json.loads(sent[1]["body"])["detail"]


def test_a_client_that_closes_the_connection_is_not_an_error(reader: Store, caplog: pytest.LogCaptureFixture) -> None:
    with client_of(reader, Settings(read_only=True)) as client:
        assert asgi(client, f"{STORE}/suggest", [{"type": "http.disconnect"}]) == []
    assert not caplog.records


def test_requests_beyond_the_rate_are_refused(reader: Store) -> None:
    with client_of(reader, Settings(rate=1e-3, read_only=True)) as client:
        assert client.get("/v1/stores").status_code == 200
        refused = client.get("/v1/stores")
        problem(refused, 429)
        assert int(refused.headers["retry-after"]) > 900
        assert client.get("/health").status_code == 200


def test_requests_beyond_the_concurrency_limit_are_refused_with_retry_after(
    reader: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, called = threading.Event(), threading.Event()
    count = Store.__len__

    def slowly(store: Store) -> int:
        called.set()
        release.wait(20)
        return count(store)

    monkeypatch.setattr(Store, "__len__", slowly)
    with client_of(reader, Settings(max_requests=1, read_only=True)) as client, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.get, "/v1/stores")
        called.wait(20)
        refused = client.get("/v1/stores")
        assert client.get("/health").status_code == 200
        release.set()
        assert slow.result().status_code == 200
    problem(refused, 503)
    assert refused.headers["retry-after"] == "1"


def test_a_client_that_does_not_read_a_file_of_the_page_holds_no_slot(reader: Store) -> None:
    async def ask(client: TestClient) -> int:
        held, statuses = asyncio.Event(), []

        async def receive() -> Any:
            return await asyncio.Event().wait()

        async def hold(message: Any) -> None:
            held.set()
            await asyncio.Event().wait()

        async def take(message: Any) -> None:
            statuses.append(message.get("status"))

        def request(path: str, send: Any) -> Any:
            scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
            return client.app({**scope, "headers": [(b"host", b"localhost")], "client": None}, receive, send)

        holding = asyncio.create_task(request("/page/page.css", hold))
        await held.wait()
        await request("/v1/stores", take)
        holding.cancel()
        return int(statuses[0])

    with client_of(reader, Settings(max_requests=1, read_only=True)) as client:
        assert asyncio.run(ask(client)) == 200


def test_unknown_host_names_are_refused(client: TestClient, reader: Store) -> None:
    for host in ("evil.example", "localhost.evil.example", "[::1", ""):
        problem(client.get("/v1/stores", headers={"Host": host}), 421)
    for host in ("localhost", "LOCALHOST:99", "127.0.0.1:8000", "[::1]:8000"):
        assert client.get("/health", headers={"Host": host}).status_code == 200
    with client_of(reader, Settings(allowed_hosts=("tags.example",), read_only=True)) as other:
        assert other.get("/health", headers={"Host": "tags.example"}).status_code == 200
    twice = client.get("/v1/stores", headers=[("Host", "localhost"), ("Host", "evil.example")])
    assert "one Host header; got several" in problem(twice, 400)["detail"]


def test_pages_of_other_origins_change_nothing_unless_their_origin_is_allowed(
    client: TestClient, reader: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unexpected")

    evil, good = {"Origin": "https://evil.example"}, {"Origin": "https://good.example"}
    problem(client.post(f"{STORE}/forget", json={"ids": ["0"]}, headers=evil), 403)
    for odd in ("null", "http://[", "http://[::1"):
        problem(client.post(f"{STORE}/forget", json={"ids": ["0"]}, headers={"Origin": odd}), 403)
    assert "access-control-allow-origin" not in client.get("/v1/stores", headers=evil).headers
    own = client.post(f"{STORE}/suggest", json={"text": "a"}, headers={"Origin": "http://localhost:8000"})
    assert own.status_code == 200
    with client_of(reader, Settings(origins=("https://good.example",), read_only=True)) as other:
        preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        allowed = other.options(f"{STORE}/suggest", headers={**good, **preflight})
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://good.example"
        assert "Authorization" in allowed.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in allowed.headers
        shared = other.post(f"{STORE}/suggest", json={"text": "a"}, headers=good)
        assert shared.headers["access-control-allow-origin"] == "https://good.example"
        assert shared.headers["vary"] == "Origin"
        refused = other.options(f"{STORE}/suggest", headers={**evil, **preflight})
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers
        monkeypatch.setattr(Store, "history", fail)
        failed = other.get(f"{STORE}/history", headers=good)
        problem(failed, 500)
        assert failed.headers["access-control-allow-origin"] == "https://good.example"


def test_unexpected_errors_reveal_nothing(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(secret)

    secret = "a text in /some/path.py"

    monkeypatch.setattr(Store, "history", fail)
    number = problem(client.get(f"{STORE}/history"), 500)["number"]
    assert number in caplog.text
    assert "RuntimeError" in caplog.text
    assert secret not in caplog.text


def test_a_failed_write_is_reported_without_the_path(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, actor: str | None) -> None:
        raise StoreError("/data/store: the disk is full; nothing was changed.")

    monkeypatch.setattr(Store, "learn", full)
    refused = client.post(f"{STORE}/documents", json={"documents": [{"text": "a", "labels": []}]})
    assert "/data" not in refused.text
    assert problem(refused, 503)["number"] in caplog.text
    assert "disk is full" in caplog.text
    assert refused.headers["retry-after"] == "5"


def test_a_full_disk_is_told_with_what_to_do(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, actor: str | None) -> None:
        raise StoreFullError("/data/store: the disk is full; nothing was changed.")

    monkeypatch.setattr(Store, "learn", full)
    refused = client.post(f"{STORE}/documents", json={"documents": [{"text": "a", "labels": []}]})
    detail = problem(refused, 507)["detail"]
    assert "the disk of the server is full, so nothing was saved; free some room there" in detail
    assert "/data" not in refused.text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = ["text", "texts", "n", "threshold", "examples", "features", "documents", "ids", "labels", "id", "accepted"]
_BODIES = st.dictionaries(st.sampled_from(_FIELDS), _JSON | st.just("word1") | st.just(["word1"]), max_size=4) | _JSON
_PATHS = [
    "suggest",
    "suggest/batch",
    "explain",
    "documents",
    "documents/{id}",
    "documents/{id}/labels",
    "forget",
    "decisions",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    path=st.sampled_from([*_PATHS, "labels", "history", "refit", ""]),
    id=st.text(min_size=1, max_size=3),
    body=_BODIES,
    query=st.dictionaries(st.sampled_from(["prefix", "limit"]), st.text(max_size=4), max_size=2),
)
def test_no_request_causes_a_server_error(
    client: TestClient, method: str, path: str, id: str, body: Any, query: dict[str, str]
) -> None:
    from urllib.parse import quote

    place = f"{STORE}/{path}".rstrip("/").replace("{id}", quote(id, safe=""))
    answer = client.request(method, place, json=body, params=query)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        problem(answer, answer.status_code)


def test_labels_of_a_document_are_accepted_rejected_and_left_open(client: TestClient) -> None:
    label, other = (one["name"] for one in client.get(f"{STORE}/labels", params={"limit": 2}).json()["labels"])
    answer = client.post(f"{STORE}/decisions", json={"text": "word1 word2", "accepted": [label, "fresh"]})
    id, place = answer.json()["id"], f"{STORE}/documents/{answer.json()['id']}"
    assert (answer.status_code, answer.json()["labels"], set(answer.json()["accepted"])) == (200, [], {label, "fresh"})
    answer = client.post(f"{STORE}/decisions", json={"id": id, "rejected": [other]}).json()
    assert answer["rejected"] == [other]
    stored = client.get(place).json()
    assert (stored["labels"], stored["rejected"], stored["text"]) == ([], [other], "word1 word2")
    change = client.get(f"{STORE}/history").json()["changes"][0]
    assert (change["kind"], change["rejected_after"]) == ("decide", [other])
    scores = client.post(f"{STORE}/suggest", json={"text": "word1 word2", "n": 100}).json()["labels"]
    assert "fresh" in {one["label"] for one in scores}
    withdrawn = client.delete(f"{place}/decisions").json()
    assert (withdrawn["labels"], withdrawn["accepted"], withdrawn["rejected"]) == ([], [], [])
    answer = client.post(f"{STORE}/decisions", json={"id": id, "accepted": [label], "complete": True}).json()
    assert (answer["labels"], answer["accepted"]) == ([label], [])
    assert client.get(place).json() == {"id": id, "text": "word1 word2", "labels": [label]}
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"id": "nobody", "accepted": [label]}, 404, "no document"),
        ({"accepted": [label]}, 422, "needs the id of a document or a text"),
        ({"id": id}, 422, "there is no decision"),
        ({"id": id, "rejected": ["unheard"]}, 422, "there is no label"),
        ({"text": "a", "accepted": [label], "rejected": [label]}, 422, "both accepted and rejected"),
    ]
    for body, status, sentence in wrong:
        assert sentence in problem(client.post(f"{STORE}/decisions", json=body), status)["detail"]
    problem(client.delete(f"{place}/decisions"), 422)
    problem(client.delete(f"{STORE}/documents/nobody/decisions"), 404)
    assert client.delete(place).status_code == 200


# ---------------------------------------------------------------------------------------------------------------- keys


def test_keys_allow_reading_or_writing(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "store", example(), quick())
    file = tmp_path / "keys.jsonl"
    read, write = add_key(file, "ana"), add_key(file, "bo", "write")
    assert file.stat().st_mode & 0o777 == 0o600
    assert read not in file.read_text()
    with client_of(store, Settings(host="0.0.0.0", keys=file, rate=0)) as client:

        def call(method: str, path: str, key: str | None, **more: Any) -> Any:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            return client.request(method, path, headers=headers, **more)

        for key in (None, "", "wrong", read[:-1]):
            refused = call("GET", "/v1/stores", key)
            problem(refused, 401)
            assert refused.headers["www-authenticate"].startswith("Bearer")
        problem(client.get("/v1/stores", headers={"Authorization": f"Basic {read}"}), 401)
        problem(call("GET", "/metrics", None), 401)
        assert call("GET", "/metrics", read).status_code == 200
        for path in ("/health", "/ready", "/", "/page/page.css"):
            assert call("GET", path, None).status_code in {200, 503}
        assert call("GET", "/v1/stores", read).json()["role"] == "read"
        assert call("GET", "/v1/stores", write).json()["role"] == "write"
        assert call("POST", f"{STORE}/suggest", read, json={"text": "a"}).status_code == 200
        changes: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", "/documents", {"documents": [{"text": "a", "labels": []}]}),
            ("PUT", "/documents/0/labels", {"labels": []}),
            ("DELETE", "/documents/0", {}),
            ("POST", "/forget", {"ids": ["0"]}),
            ("POST", "/refit", {}),
        ]
        for method, path, body in changes:
            assert "'ana' may only read" in problem(call(method, STORE + path, read, json=body), 403)["detail"]
            problem(call(method, STORE + path, None, json=body), 401)
        for method, path, body in changes[:3]:
            assert call(method, STORE + path, write, json=body).status_code in {200, 201}
        assert "security" in call("GET", "/openapi.json", read).json()
        remove_key(file, "ana")
        problem(call("GET", "/v1/stores", read), 401)
        file.write_text("broken\n")
        problem(call("GET", "/v1/stores", write), 401)


def test_keys_that_are_added_concurrently_are_all_kept(tmp_path: Path) -> None:
    file, names = tmp_path / "keys.jsonl", [f"key {i}" for i in range(30)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: add_key(file, name), names))
        assert sorted(key.name for key in list_keys(file)) == sorted(names)
        list(pool.map(lambda name: remove_key(file, name), names))
    assert list_keys(file) == []


def test_a_symbolic_link_to_a_key_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    file, link = tmp_path / "secrets" / "keys.jsonl", tmp_path / "link"
    link.symlink_to(file)
    add_key(link, "ana")
    add_key(link, "bo")
    remove_key(link, "ana")
    assert link.is_symlink()
    assert [key.name for key in list_keys(file)] == ["bo"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_keys_have_distinct_names_and_known_roles(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    add_key(file, "ana")
    assert [key.name for key in list_keys(file)] == ["ana"]
    with pytest.raises(ParameterError, match="a key named 'ana' exists"):
        add_key(file, "ana")
    with pytest.raises(ParameterError, match="read or write; got 'admin'"):
        add_key(file, "bo", "admin")
    with pytest.raises(ParameterError, match="printable characters"):
        add_key(file, "a\nb")
    with pytest.raises(ParameterError, match="no key is named 'bo'"):
        remove_key(file, "bo")
    with pytest.raises(ParameterError, match="cannot be written"):
        add_key(tmp_path / "none" / "keys", "ana")
    remove_key(file, "ana")
    with pytest.raises(ParameterError, match="is empty"):
        create_app({}, Settings(keys=file))


# ------------------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"host": "0.0.0.0"}, "API keys are required"),
        ({"host": "example.org"}, "API keys are required"),
        ({"port": 65536}, "at most 65535"),
        ({"port": -1}, "integer ≥ 0"),
        ({"max_texts": 0}, "integer ≥ 1"),
        ({"max_labels": 0}, "integer ≥ 1"),
        ({"rate": -1.0}, "finite number ≥ 0"),
        ({"body_seconds": 0}, "finite number > 0"),
        ({"stop_seconds": 0}, "finite number > 0"),
        ({"workers": 0, "read_only": True}, "integer ≥ 1"),
        ({"workers": 2}, "read-only"),
        ({"origins": ("*",)}, "like https://example.org"),
        ({"origins": ("https://example.org/",)}, "without a path"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        Settings(**settings)


def test_store_names_must_fit_into_a_url(template: Path, shared: object) -> None:
    assert list(store_folders([str(template), "other=a/b=c"])) == ["store", "other"]
    assert store_folders(["./a=b/c"]) == {"c": Path("./a=b/c")}
    with pytest.raises(ParameterError, match="two stores have the name 'a'"):
        store_folders(["x/a", "y/a"])
    with pytest.raises(ParameterError, match="cannot be the name of a store"):
        store_folders(["my store"])
    with pytest.raises(ParameterError, match="no store to serve"):
        run([])
    with pytest.raises(StoreError, match=r"is open for writing by .* Serve it with --read-only"):
        run([str(template)], Settings(port=0))
    with pytest.raises(StoreError, match=r"is no(t a)? store"):
        run([str(template.parent)], Settings(port=0))


class Lengths:
    """An encoder with two dimensions."""

    def encode(self, texts: list[str]) -> Any:
        """The lengths of texts in characters and words."""
        return np.array([[len(text), 1 + text.count(" ")] for text in texts])


def test_a_store_without_its_encoder_is_not_served(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "store"
    Store.create(folder, example(), RIPML.linear(random_state=0), features=Lengths()).close()
    with pytest.raises(
        ParameterError, match="store: this store encodes texts with Lengths, which is not saved; open it"
    ):
        run([str(folder)], Settings(port=0))
    with pytest.raises(SystemExit, match="2"):
        main(["serve", str(folder), "--port", "0"])
    assert "encodes texts with Lengths" in capfd.readouterr().err
    with client_of(Store.open(folder, encoder=Lengths())) as client:
        assert client.post(f"{STORE}/suggest", json={"text": "a b"}).status_code == 200


def test_texts_are_never_logged(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "ripml.server"):
        client.post(f"{STORE}/suggest", json={"text": "confidential"})
        client.post(f"{STORE}/suggest", json={"text": "confidential", "n": 0})
    assert "confidential" not in caplog.text
