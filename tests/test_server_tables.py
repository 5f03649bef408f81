"""Tables over HTTP: tagged in the background, each row once and in order, also after a kill; or checked."""

from __future__ import annotations

import csv
import io
import json
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broken_files import PICTURE, docx, pdf, xlsx
from fastapi.testclient import TestClient
from served import ServerProcess
from store_writer import example
from store_writer import settings as quick
from test_server import TEXTS, client_of

from ripml.datasets.documents import parse_labels
from ripml.server import Settings, tables
from ripml.store import Store
from ripml.tagging.batch import tag_file

PATH = "/v1/stores/tiny"
ROWS = [[str(number), TEXTS[number % len(TEXTS)], 'a; "b"\nc'] for number in range(1200)]


def table(rows: list[list[str]] = ROWS) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["nr", "text", "note"], *rows])
    return text.getvalue().encode()


def wait(client: Any, id: str) -> dict[str, Any]:
    for _ in range(600):
        job: dict[str, Any] = client.get(f"{PATH}/tag/{id}").json()
        if job["status"] in ("done", "failed"):
            return job
        time.sleep(0.05)
    raise AssertionError(job)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    Store.create(tmp_path / "tiny", example(), quick()).close()
    return tmp_path


@pytest.fixture
def client(place: Path) -> Iterator[TestClient]:
    store = Store.open(place / "tiny")
    with client_of(store, Settings(tables=place / "tables", max_table=1_000_000)) as opened:
        yield opened


def test_the_answers_are_those_of_the_shell(client: TestClient, place: Path) -> None:
    begun = client.post(f"{PATH}/tag", params={"name": "rows.csv", "n": 2}, content=table())
    assert begun.status_code == 202
    job = wait(client, begun.json()["id"])
    assert (job["status"], job["rows"], job["name"]) == ("done", len(ROWS), "rows.csv")
    answers = client.get(f"{PATH}/tag/{job['id']}/answers").content
    (place / "rows.csv").write_bytes(table())
    model = Store.open(place / "tiny", readonly=True).model
    tag_file(model, place / "rows.csv", place / "out.csv", rules=model.rules.but(n=2))
    assert answers == (place / "out.csv").read_bytes()
    assert [one["id"] for one in client.get(f"{PATH}/tag").json()["jobs"]] == [job["id"]]
    assert client.delete(f"{PATH}/tag/{job['id']}").status_code == 204
    assert client.get(f"{PATH}/tag/{job['id']}").status_code == 404
    assert list((place / "tables" / "tiny").iterdir()) == []


def test_a_spreadsheet_with_other_columns_becomes_json_lines(client: TestClient) -> None:
    content = xlsx([["Title", "Body"], ["a", TEXTS[0]], ["b", TEXTS[1]]])
    parameters = {"name": "Book.XLSX", "text": ["Title", "Body"], "to": "jsonl"}
    id = client.post(f"{PATH}/tag", params=parameters, content=content).json()["id"]
    assert wait(client, id)["rows"] == 2
    rows = [json.loads(line) for line in client.get(f"{PATH}/tag/{id}/answers").text.splitlines()]
    assert [row["Title"] for row in rows] == ["a", "b"]
    assert all(row["tags"] for row in rows)


def test_what_is_wrong_with_a_table_is_told_by_its_name(client: TestClient) -> None:
    id = client.post(f"{PATH}/tag", params={"name": "other.csv"}, content=b"Body\na\n").json()["id"]
    job = wait(client, id)
    assert job["status"] == "failed"
    assert job["detail"].startswith("other.csv:1: there is no column 'text' among Body")
    answers = client.get(f"{PATH}/tag/{id}/answers")
    assert answers.status_code == 409
    assert "it is failed: other.csv:1" in answers.json()["detail"]


@pytest.mark.parametrize(
    ("status", "parameters", "content"),
    [
        (415, {"name": "letter.pdf"}, b"%PDF"),
        (415, {"name": "x"}, b"text\na\n"),
        (400, {"name": "x.csv"}, b""),
        (413, {"name": "x.csv"}, b"text\n" + b"a\n" * 600_000),
        (422, {"name": "x.csv", "n": 0}, b"text\na\n"),
        (422, {"name": "x.csv", "to": "pdf"}, b"text\na\n"),
        (422, {}, b"text\na\n"),
    ],
)
def test_other_requests_are_refused_and_leave_nothing(
    status: int, parameters: dict[str, Any], content: bytes, client: TestClient, place: Path
) -> None:
    assert client.post(f"{PATH}/tag", params=parameters, content=content).status_code == status
    assert client.get(f"{PATH}/tag").json() == {"jobs": []}
    folder = place / "tables" / "tiny"
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_server_without_a_folder_for_tables_says_so(place: Path) -> None:
    with client_of(Store.open(place / "tiny")) as client:
        refused = client.post(f"{PATH}/tag", params={"name": "x.csv"}, content=b"text\na\n")
        assert (refused.status_code, "--tables FOLDER" in refused.json()["detail"]) == (403, True)


def test_a_job_of_a_server_that_was_killed_goes_on_with_the_rows_that_are_missing(place: Path) -> None:
    rows = [[str(number), TEXTS[number % len(TEXTS)], ""] for number in range(20_000)]
    settings = {"tables": str(place / "tables")}

    def ask(server: ServerProcess, path: str, content: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}{PATH}/tag{path}", content)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    with ServerProcess(place / "tiny", **settings) as server:
        id = json.loads(ask(server, "?name=rows.csv", table(rows)))["id"]
        while not json.loads(ask(server, f"/{id}")).get("rows"):
            time.sleep(0.01)
        server.end(signal.SIGKILL)
    part = place / "tables" / "tiny" / id / "output.csv.part"
    assert 0 < json.loads(part.with_name(f"{part.name}.json").read_bytes())["rows"] < len(rows)
    with ServerProcess(place / "tiny", **settings) as server:
        while (job := json.loads(ask(server, f"/{id}")))["status"] != "done":
            time.sleep(0.05)
        answers = ask(server, f"/{id}/answers")
    assert job["rows"] == len(rows)
    found = list(csv.reader(io.StringIO(answers.decode(), newline="")))
    assert [row[:2] for row in found[1:]] == [row[:2] for row in rows]
    assert all(row[3] for row in found[1:])


def test_checking_a_table_gives_the_findings_and_keeps_nothing(client: TestClient, place: Path) -> None:
    rows = ('a rose,"red, flower"', 'a tulip,"red, flower"', 'a daisy,"white, flower"', 'a lily,"flower, white"')
    content = "\n".join(("text,labels", *rows, ',"flower, red"')).encode()
    report = client.post(f"{PATH}/check-table", params={"name": "x.csv", "tag_separator": ";"}, content=content).json()
    assert (report["name"], report["rows"]) == ("x.csv", 5)
    assert {"separator", "empty"} <= {finding["name"] for finding in report["findings"]}
    assert any("tag_separator=','" in finding["remedy"] for finding in report["findings"])
    wrong = client.post(f"{PATH}/check-table", params={"name": "photo.csv"}, content=PICTURE)
    assert (wrong.status_code, wrong.json()["detail"][:30]) == (422, "photo.csv: this is a picture a")


def test_the_columns_of_a_table_are_told_before_it_is_tagged(client: TestClient) -> None:
    content = xlsx([["Report of May", ""], ["Nr", "Body"], ["1", TEXTS[0]], ["2", ""]])
    found = client.post(f"{PATH}/table-columns", params={"name": "Book.xlsx"}, content=content).json()
    assert (found["name"], found["text"], found["rows"]) == ("Book.xlsx", ["Body"], 2)
    assert found["columns"][1] == {"name": "Body", "filled": 0.5, "characters": len(TEXTS[0]), "example": TEXTS[0]}
    lines = b'{"title": "a", "text": "b"}\n{"text": "c", "n": 7}\n'
    found = client.post(f"{PATH}/table-columns", params={"name": "a.jsonl"}, content=lines).json()
    assert (found["text"], [column["name"] for column in found["columns"]]) == (["text"], ["title", "text", "n"])
    empty = client.post(f"{PATH}/table-columns", params={"name": "a.csv"}, content=b"text\n")
    assert (empty.status_code, empty.json()["detail"]) == (422, "a.csv has no rows.")


def test_the_rows_of_a_job_can_be_read_and_downloaded_in_every_format(client: TestClient) -> None:
    parameters: dict[str, Any] = {"name": "rows.csv", "text": ["note", "text"], "to": "jsonl", "n": 2}
    id = client.post(f"{PATH}/tag", params=parameters, content=table()).json()["id"]
    wait(client, id)
    part = client.get(f"{PATH}/tag/{id}/rows", params={"after": 1199, "limit": 5}).json()
    (row,) = part["rows"]
    assert (part["done"], row["number"], row["cells"]["nr"]) == (1200, 1199, "1199")
    assert row["text"] == f"{ROWS[1199][2]}\n{ROWS[1199][1]}"
    assert 1 <= len(row["labels"]) <= 2
    assert client.get(f"{PATH}/tag/{id}/rows", params={"after": 5000}).json()["rows"] == []
    wanted = list(csv.reader(io.StringIO(client.get(f"{PATH}/tag/{id}/answers?to=csv").text)))
    assert wanted[0] == ["nr", "text", "note", "tags", "scores"]
    assert [line[:3] for line in wanted[1:]] == ROWS
    book = client.get(f"{PATH}/tag/{id}/answers?to=xlsx").content
    again = client.post(f"{PATH}/table-columns", params={"name": "again.xlsx"}, content=book).json()
    assert [column["name"] for column in again["columns"]] == wanted[0]
    assert again["columns"][1]["example"] == ROWS[0][1]


def test_the_rows_of_a_running_job_are_those_that_are_tagged(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()

    def paused(*arguments: Any, progress: Any, **options: Any) -> Any:
        def step(n: int) -> None:
            progress(n)
            if n:
                begun.set()
                assert go.wait(60)

        return tag_file(*arguments, progress=step, **options)

    monkeypatch.setattr(tables, "tag_file", paused)
    id = client.post(f"{PATH}/tag", params={"name": "rows.csv", "to": "jsonl"}, content=table()).json()["id"]
    assert begun.wait(60)
    part = client.get(f"{PATH}/tag/{id}/rows", params={"limit": 1000}).json()
    job = client.get(f"{PATH}/tag/{id}").json()
    assert job["status"] == "running"
    assert 0 < part["done"] < len(ROWS)
    assert [row["cells"]["nr"] for row in part["rows"]] == [str(number) for number in range(len(part["rows"]))]
    go.set()
    assert wait(client, id)["rows"] == len(ROWS)


def test_what_was_decided_on_rows_is_in_the_table_that_is_downloaded(client: TestClient) -> None:
    content = table(ROWS[:4])
    options = {"name": "a.csv", "text": "text", "to": "jsonl"}
    id = client.post(f"{PATH}/tag", params=options, content=content).json()["id"]
    wait(client, id)
    before = client.get(f"{PATH}/tag/{id}/rows").json()["rows"]
    suggested = [[label["label"] for label in row["labels"]] for row in before]
    texts = [row["text"] for row in before]
    decision = {"id": f"{id}-2", "text": texts[1], "accepted": ["new"], "rejected": suggested[1][:1], "complete": False}
    assert client.post(f"{PATH}/decisions", json=decision).status_code in (200, 201)
    known = {"id": f"{id}-3", "text": texts[2], "labels": ["label 1"]}
    client.post(f"{PATH}/documents", json={"documents": [known, {**known, "id": f"{id}-x", "labels": ["no row"]}]})
    expected = [suggested[0], ["new", *suggested[1][1:]], ["label 1"], suggested[3]]
    after = client.get(f"{PATH}/tag/{id}/rows").json()["rows"]
    assert [[label["label"] for label in row["labels"]] for row in after] == expected
    assert (after[0], after[2]["labels"]) == (before[0], [{"label": "label 1", "score": 1.0}])
    part = client.get(f"{PATH}/tag/{id}/rows", params={"after": 1, "limit": 1}).json()["rows"]
    assert part == after[1:2]
    lines = client.get(f"{PATH}/tag/{id}/answers?to=jsonl").text.splitlines()
    assert [json.loads(line)["tags"] for line in lines] == expected
    rows = list(csv.DictReader(io.StringIO(client.get(f"{PATH}/tag/{id}/answers?to=csv").text)))
    assert [parse_labels(row["tags"]) for row in rows] == expected
    assert client.get(f"{PATH}/tag/{id}/answers?to=xlsx").status_code == 200
    assert [json.loads(line)["tags"] for line in client.get(f"{PATH}/tag/{id}/answers").text.splitlines()] == suggested
    client.delete(f"{PATH}/documents/{id}-2")
    client.delete(f"{PATH}/documents/{id}-3")
    rows = list(csv.DictReader(io.StringIO(client.get(f"{PATH}/tag/{id}/answers?to=csv").text)))
    assert [parse_labels(row["tags"]) for row in rows] == suggested


def test_rows_and_other_formats_need_a_job_that_keeps_lists(client: TestClient) -> None:
    id = client.post(f"{PATH}/tag", params={"name": "rows.csv"}, content=table(ROWS[:2])).json()["id"]
    wait(client, id)
    for path in ("rows", "answers?to=xlsx"):
        refused = client.get(f"{PATH}/tag/{id}/{path}")
        assert (refused.status_code, "to=jsonl" in refused.json()["detail"]) == (409, True)


def test_the_text_of_a_document_is_read(client: TestClient) -> None:
    page = b"<html><title>Notice</title><p>It rains.</p></html>"
    found = client.post(f"{PATH}/read", params={"name": "notice.html"}, content=page)
    assert (found.status_code, found.json()["name"]) == (200, "notice.html")
    assert found.json()["text"].split("\n") == ["Notice", "It rains."]
    for name, content in (("a.pdf", pdf("It rains today.", "Again.")), ("a.docx", docx("It rains today.", "Again."))):
        read = client.post(f"{PATH}/read", params={"name": name}, content=content)
        assert (read.status_code, read.json()["text"].split("\n")) == (200, ["It rains today.", "Again."])
    damaged = client.post(f"{PATH}/read", params={"name": "a.pdf"}, content=b"no")
    assert damaged.status_code == 422
    assert damaged.json()["detail"] == "a.pdf: this is not a PDF file, although it is called so."
    assert client.post(f"{PATH}/read", params={"name": "a.odt"}, content=b"x").status_code == 415
