"""Wrong input to routes and commands that read: one clear sentence, the right status, and nothing is changed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from store_writer import example
from store_writer import settings as quick
from test_cli import run
from test_server import STORE, client_of, problem

from ripml import RIPML
from ripml.server import Settings
from ripml.store import Store
from ripml.store.documents import parse_documents

LONG, HUGE, NO_JOB = 1001 * "a", 30 * "9", 32 * "0"
BROKEN = b"\xff\x00broken"

# The method and the path; the body (bytes of a file, or JSON); the status; and what the sentence says.
ROUTES: dict[str, tuple[str, Any, int, str]] = {
    "a long query": (f"GET /search?q={LONG}", None, 422, "at most 1000 characters"),
    "a state": ("GET /search?state=x", None, 422, "'labelled', 'partly' or 'unlabelled'"),
    "an order": ("GET /search?sort=best", None, 422, "'relevance' or 'newest'"),
    "no date": ("GET /search?since=tomorrow", None, 422, "`since` must be a date or time .*; got 'tomorrow'"),
    "no such day": ("GET /search?until=2026-02-30", None, 422, "`until` must be a date or time .*; got '2026-02-30'"),
    "before all time": ("GET /search?since=0001-01-01T00:00%2B14:00", None, 422, r"got '0001-01-01T00:00\+14:00'"),
    "an unknown label": ("GET /search?label=nosuch", None, 422, "there is no label 'nosuch'"),
    "an unknown rejected label": ("GET /search?rejected=nosuch", None, 422, "there is no label 'nosuch'"),
    "an unknown undecided label": ("GET /search?undecided=nosuch", None, 422, "there is no label 'nosuch'"),
    "many labels": (f"GET /search?{'&'.join(21 * ['label=a'])}", None, 422, "at most 20 items"),
    "no place": ("GET /search?after=x", None, 422, "`after` must be the `next` of a page; got 'x'"),
    "a place that is not a number": ("GET /search?after=5:nan", None, 422, "`after` must be the `next` of a page"),
    "a huge place": (f"GET /search?after={HUGE}", None, 422, "`after` must be the `next` of a page"),
    "no documents": ("GET /search?limit=0", None, 422, "greater than or equal to 1"),
    "too many documents": (f"GET /search?limit={HUGE}", None, 422, "less than or equal to 100"),
    "a document without a name": ("POST /read", BROKEN, 422, "query.name: Field required"),
    "another kind of file": ("POST /read?name=x.exe", BROKEN, 415, "'x.exe' is not the name of a document"),
    "no document": ("POST /read?name=a.txt", b"", 400, "the body is empty"),
    "not a text": ("POST /read?name=a.eml", BROKEN, 422, "a.eml: this is not text"),
    "not a DOCX": ("POST /read?name=a.docx", BROKEN, 422, "a.docx: this is not a DOCX file"),
    "columns of nothing": ("POST /table-columns?name=a.csv", b"", 400, "the body is empty"),
    "columns of a document": ("POST /table-columns?name=a.pdf", BROKEN, 415, "'a.pdf' is not the name of a table"),
    "columns of no text": ("POST /table-columns?name=a.csv", BROKEN, 422, "a.csv: this is not text"),
    "columns of no JSON": ("POST /table-columns?name=a.jsonl", b"{", 422, "a.jsonl:1: "),
    "an encoding": ("POST /table-columns?name=a.csv&encoding=no", b"text\na\n", 422, "'no'"),
    "a sheet of CSV": ("POST /table-columns?name=a.csv&sheet=x", b"text\na\n", 422, "`sheet` is not an option"),
    "a label": ("GET /labels/nosuch", None, 404, "there is no label 'nosuch'"),
    "an order of labels": ("GET /labels?order=size", None, 422, "'name', 'count', 'rarest', 'newest' or 'precision'"),
    "a huge start": (f"GET /labels?order=name&start={HUGE}", None, 422, "less than"),
    "a merge of no label": ("GET /labels/nosuch/merge?into=x", None, 404, "there is no label 'nosuch'"),
    "a merge into nothing": ("GET /labels/label 0/merge", None, 422, "query.into: Field required"),
    "what a merge into itself does": ("GET /labels/label 0/merge?into=label 0", None, 422, "merged into itself"),
    "a merge into itself": ("POST /labels/label 0/merge", {"into": "label 0"}, 422, "merged into itself"),
    "a merge of no label into one": (
        "POST /labels/nosuch/merge",
        {"into": "label 0"},
        404,
        "there is no label 'nosuch'",
    ),
    "a label without a name": ("POST /labels", {}, 422, "body.name: Field required"),
    "a number for a label": ("POST /labels", {"name": 1}, 422, "body.name: Input should be a valid string"),
    "a word for words": ("POST /labels", {"name": "x", "words": "a"}, 422, "body.words: Input should be a valid list"),
    "a label twice": ("POST /labels", {"name": "label 0"}, 409, "there is a label 'label 0' already"),
    "the name that it has": ("POST /labels/label 0/rename", {"to": "label 0"}, 422, "is called 'label 0' already"),
    "the name of another": ("POST /labels/label 0/rename", {"to": "label 1"}, 422, "merge the two labels instead"),
    "a name for no label": ("POST /labels/nosuch/rename", {"to": "x"}, 404, "there is no label 'nosuch'"),
    "to retire no label": ("POST /labels/nosuch/retire", {}, 404, "there is no label 'nosuch'"),
    "to reinstate no label": ("POST /labels/nosuch/reinstate", {}, 404, "there is no label 'nosuch'"),
    "to undo nothing": ("POST /labels/undo", {"change": 0}, 422, "greater than or equal to 1"),
    "to undo what is not": ("POST /labels/undo", {"change": 99}, 409, "there is no change 99"),
    "to undo a word": ("POST /labels/undo", {"change": "1"}, 422, "body.change"),
    "to undo a huge change": ("POST /labels/undo", {"change": int(HUGE)}, 422, "body.change"),
    "points of no map": ("GET /map/points", None, 404, "there is no map yet; GET /v1/stores/tiny/map says when"),
    "documents of no map": ("GET /map/documents?map=x&point=0", None, 404, "there is no map yet"),
    "no points": ("GET /map/documents?map=x", None, 422, "query.point: Field required"),
    "a huge point": (f"GET /map/documents?map=x&point={HUGE}", None, 422, "query.point.0"),
    "carriers of no map": ("GET /map/carriers?map=x&label=y", None, 404, "there is no map yet"),
    "a report of no labels": ("GET /report?limit=0", None, 422, "greater than or equal to 1"),
    "a report of many labels": (f"GET /report?limit={HUGE}", None, 422, "less than or equal to 1000"),
    "an audit of no labels": ("GET /audit?limit=0", None, 422, "greater than or equal to 1"),
    "rows of no table": (f"GET /tag/{NO_JOB}/rows", None, 404, "there is no job"),
    "a table in no format": (f"GET /tag/{NO_JOB}/answers?to=pdf", None, 422, "'csv', 'tsv', 'jsonl' or 'xlsx'"),
    "no table as CSV": (f"GET /tag/{NO_JOB}/answers?to=csv", None, 404, "there is no job"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong") / "store"
    Store.create(folder, example(), quick()).close()
    return folder


@pytest.fixture(scope="module")
def client(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client_of(Store.open(template), Settings(tables=tmp_path_factory.mktemp("tables"))) as client:
        yield client


def ask(client: TestClient, route: str, body: Any) -> Any:
    method, _, path = route.partition(" ")
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"} if isinstance(body, dict) else {}
    return client.request(method, STORE + path, content=content, headers=headers)


@pytest.mark.parametrize("name", ROUTES)
def test_a_route_says_in_one_sentence_what_is_wrong(name: str, client: TestClient) -> None:
    route, body, status, sentence = ROUTES[name]
    detail = problem(ask(client, route, body), status)["detail"]
    assert re.search(sentence, detail), detail
    assert client.get(STORE).json()["version"] == 0


def test_a_server_of_a_reader_refuses_what_writes_and_answers_the_rest(template: Path, client: TestClient) -> None:
    with client_of(Store.open(template, readonly=True), Settings(read_only=True)) as reader:
        for route, body, status, _ in ROUTES.values():
            found = problem(
                ask(reader, route, body),
                403 if route.startswith("POST") else 403 if "/tag/" in route and status == 404 else status,
            )
            assert found["detail"].startswith("this server ") == (found["status"] == 403)
        for path in (
            "search?q=word1",
            "labels?order=rarest",
            "labels/label 0",
            "quality",
            "report",
            "learning-curve",
            "map",
        ):
            assert reader.get(f"{STORE}/{path}").status_code == 200, path


def few(folder: Path, n_labelled: int) -> None:
    """A store of so many documents with a label, and one without."""
    documents = [{"id": f"d{i}", "text": f"red apple {i}", "labels": ["fruit"]} for i in range(2)]
    with Store.create(folder, parse_documents(documents), RIPML(random_state=0)) as store:
        store.learn([{"id": "bare", "text": "a red sky", "labels": []}])
        store.forget([f"d{i}" for i in range(n_labelled, 2)])


@pytest.mark.parametrize("n_labelled", [0, 1])
def test_a_store_of_no_or_one_labelled_document_is_shown_as_it_is(tmp_path: Path, n_labelled: int) -> None:
    few(tmp_path / "store", n_labelled)
    with client_of(Store.open(tmp_path / "store")) as client:
        found = client.get(f"{STORE}/search?q=red").json()
        assert found["total"] == n_labelled + 1
        assert client.get(f"{STORE}/labels/fruit").json()["count"] == n_labelled
        assert client.get(f"{STORE}/quality").json()["enough"] is False
        for job in ("report", "audit", "map", "learning-curve"):
            client.post(f"{STORE}/{job}")
            while (status := client.get(f"{STORE}/{job}").json())["status"] == "running":
                pass
            assert "look at the log" not in (status.get("detail") or "")
            if job in ("report", "audit") and n_labelled:
                assert (status["status"], status["enough"]) == ("idle", False)
            elif job in ("report", "audit"):
                assert status["detail"] == "this model has no training rows: all were forgotten."


COMMANDS: dict[str, tuple[list[str], str]] = {
    "a search of no store": (["search", "nosuch", "apple"], "nosuch"),
    "a state": (["search", "store", "--state", "x"], "`state` must be one of labelled, partly, unlabelled; got 'x'"),
    "a label to search": (["search", "store", "--label", "nosuch"], "there is no label 'nosuch'"),
    "a day": (["search", "store", "--since", "tomorrow"], "`since` must be a date or time such as 2026-01-31"),
    "a label to show": (["labels", "show", "store", "nosuch"], "there is no label 'nosuch'"),
    "a change to undo": (["labels", "undo", "store", "99"], "there is no change 99"),
    "a huge change to undo": (["labels", "undo", "store", HUGE], "there is no change 999,999"),
    "a label to merge into itself": (
        ["labels", "merge", "store", "label 0", "--into", "label 0"],
        "merged into itself",
    ),
    "a label to rename to itself": (["labels", "rename", "store", "label 0", "label 0"], "is called 'label 0' already"),
    "a report without rows": (["report", "store"], "keeps no training rows"),
    "a curve of few rows": (["report", "store", "--curve"], "keeps no training rows|too few for a learning curve"),
    "an audit without rows": (["audit", "store"], "keeps no training rows"),
    "a table of findings": (["audit", "store", "--accept", "nosuch.csv"], "nosuch.csv"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_in_one_sentence_what_is_wrong(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Store.create(tmp_path / "store", example(), quick()).close()
    words, sentence = COMMANDS[name]
    err = run(capfd, *words, code=2)[1]
    last = err.splitlines()[-1]
    assert last.startswith("ripml: ")
    assert re.search(sentence, last), last
    with Store.open(tmp_path / "store", readonly=True) as store:
        assert store.version == 0


def test_a_report_page_needs_a_place_that_can_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few(tmp_path / "store", 2)
    err = run(capfd, "report", "store", "--html", "no/such/report.html", code=2)[1]
    assert "no/such/report.html" in err.splitlines()[-1]
    run(capfd, "report", "store", "--html", "report.html")
    assert "<html" in Path("report.html").read_text()


def test_a_reader_of_an_older_format_shows_labels_and_documents(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    Store.create(folder, example(120), RIPML(n_jobs=1, random_state=0)).close()
    with sqlite3.connect(folder / "store.db") as connection:
        connection.execute("DROP TABLE words")
        connection.execute("DROP TABLE document_decisions")
        connection.execute("PRAGMA user_version=2")
    connection.close()
    with client_of(Store.open(folder, readonly=True), Settings(read_only=True)) as client:
        for path in (
            "search?q=word1", "search?undecided=label 0", "search?rejected=label 0&state=partly", "labels/label 0",
            "labels/label 0/merge?into=label 1", "quality", "map", "history",
        ):  # fmt: skip
            assert client.get(f"{STORE}/{path}").status_code == 200, path
