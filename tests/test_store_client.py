"""The client for Python programs gives what the store gives, and says what the server refuses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import ServerProcess
from test_mcp import ROWS

from ripml import RIPML
from ripml.base.errors import ParameterError
from ripml.datasets import documents_given
from ripml.server import add_key
from ripml.store import Store
from ripml.store.client import Client, Document, Label, ServerError
from ripml.tagging.batch import tag_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("client")
    Store.create(place / "store", documents_given(ROWS), RIPML.linear(random_state=0)).close()
    return place


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[str, str]]:
    key = add_key(folder / "keys", "ana", "write")
    with ServerProcess(folder / "store", keys=str(folder / "keys"), tables=str(folder / "tables")) as process:
        yield f"http://127.0.0.1:{process.port}", key


@pytest.fixture
def client(server: tuple[str, str]) -> Client:
    return Client(server[0], "store", server[1])


def test_answers_are_those_of_the_store(client: Client, folder: Path) -> None:
    model = Store.open(folder / "store", readonly=True).model
    texts = ["red apple", "grey rain, ünïcode"]
    expected = model.suggest(texts)
    found = client.suggest_batch(texts)
    assert [[(one.label, one.score) for one in row] for row in found] == expected
    assert client.suggest(texts[0], n=1) == found[0][:1]
    assert client.explain(texts[0], n=1)[0]["label"] == expected[0][0][0]
    assert client.labels("wether") == [Label("weather", 2, False)]
    assert client.document("a") == Document("a", "ripe red apple", ["fruit"])


def test_changes_review_and_forgetting(client: Client) -> None:
    first = client.learn([{"id": "x/1", "text": "red sky", "labels": ["weather"]}])
    assert first.ids == ["x/1"]
    assert client.relabel("x/1", ["dusk"]).version == first.version + 1
    assert client.document("x/1").labels == ["dusk"]
    (one,) = client.review(1, caller="ben")
    assert one.text.startswith("football")
    client.release([one.id])
    assert client.review(1, caller="eva")[0].id == one.id
    assert client.forget(["x/1"]).ids == ["x/1"]


def test_a_table_is_tagged_as_in_the_shell(client: Client, folder: Path) -> None:
    (folder / "rows.csv").write_text("Title,Body\nred,apple\ngrey,rain\n")
    job = client.tag(folder / "rows.csv", text=["Title", "Body"], to="jsonl")
    while job.status not in ("done", "failed"):
        job = client.tag_job(job.id)
        time.sleep(0.02)
    assert (job.status, job.rows) == ("done", 2)
    client.answers(job.id, folder / "answers.jsonl")
    model = Store.open(folder / "store", readonly=True).model
    tag_file(model, folder / "rows.csv", folder / "own.jsonl", text=["Title", "Body"])
    assert (folder / "answers.jsonl").read_bytes() == (folder / "own.jsonl").read_bytes()
    client.answers(job.id, folder / "answers.csv", to="csv")
    assert (folder / "answers.csv").read_text().splitlines()[0] == "Title,Body,tags,scores"
    columns = client.columns(folder / "rows.csv")
    assert [(one.name, one.filled, one.example) for one in columns] == [("Title", 1, "red"), ("Body", 1, "apple")]
    assert any(one.has_text for one in columns)
    (row,) = client.rows(job.id, after=1)
    assert (row.number, row.cells) == (1, {"Title": "grey", "Body": "rain"})
    expected = model.suggest([row.text])[0]
    assert [one.label for one in row.labels] == [label for label, _ in expected]
    assert [one.score for one in row.labels] == pytest.approx([score for _, score in expected], abs=1e-4)


def test_a_search_finds_what_the_store_finds(client: Client, folder: Path) -> None:
    with Store.open(folder / "store", readonly=True) as store:
        for query, label, state in (("red", [], None), ("app*", ["fruit"], None), ("", [], "unlabelled")):
            expected = store.search(query, labels=label, state=state)
            found = client.search(query, label=label, state=state)
            assert [one.id for one in found.documents] == [one.id for one in expected]
            assert found.total == expected.total
    first = client.search("", n=1)
    assert first.next is not None
    assert client.search("", n=1, after=first.next).documents[0].id != first.documents[0].id
    (apple,) = client.search("apple").documents
    assert [apple.excerpt[begin:end] for begin, end in apple.marks] == ["apple"]


def test_refusals_have_the_status_and_the_sentence_of_the_server(client: Client, server: tuple[str, str]) -> None:
    with pytest.raises(ServerError, match="there is no document 'nobody'") as refused:
        client.document("nobody")
    assert refused.value.status == 404
    with pytest.raises(ServerError, match="an API key is required") as refused:
        Client(server[0], "store").suggest("a")
    assert refused.value.status == 401
    with pytest.raises(ServerError, match="no store is named 'other'"):
        Client(server[0], "other", server[1]).suggest("a")
    with pytest.raises(ServerError, match=r"http://127\.0\.0\.1:9 did not answer") as refused:
        Client("http://127.0.0.1:9", "store").suggest("a")
    assert refused.value.status == 0
    with pytest.raises(ParameterError, match="`address` must be like http://"):
        Client("127.0.0.1:8000", "store")
