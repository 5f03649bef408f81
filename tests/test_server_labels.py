"""Labels over HTTP: listed, shown, added, renamed, merged, retired, and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from store_writer import example
from test_server import STORE, client_of, problem

from ripml import RIPML
from ripml.labels.concepts import Concept, Concepts
from ripml.store import Store

ODD = "a/b?c #%"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.create(tmp_path / "store", example(120), RIPML(n_jobs=1, random_state=0))
    yield store
    store.close()


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with client_of(store) as client:
        yield client


def path(label: str, action: str = "") -> str:
    return f"{STORE}/labels/{quote(label, safe='')}{action}"


def post(client: TestClient, url: str, **body: Any) -> Any:
    response = client.post(url, json=body)
    assert response.status_code in (200, 201), response.text
    return response.json()


def names(client: TestClient, **query: Any) -> list[str]:
    return [label["name"] for label in client.get(f"{STORE}/labels", params=query).json()["labels"]]


def test_pages_of_an_order_make_the_whole_list(client: TestClient, store: Store) -> None:
    for order in ("name", "count", "rarest", "newest", "precision"):
        every = [label.name for label in store.browse_labels(order, 1000).labels]
        pages = [names(client, order=order, start=start, limit=3) for start in range(0, len(every), 3)]
        assert sum(pages, []) == every  # noqa: RUF017
    page = client.get(f"{STORE}/labels?order=name&start=2&limit=1").json()
    assert (page["start"], page["total"], page["version"]) == (2, len(every), store.version)
    assert "total" not in client.get(f"{STORE}/labels?prefix=").json()
    problem(client.get(f"{STORE}/labels?order=size"), 422)
    problem(client.get(f"{STORE}/labels?order=name&prefix=a"), 422)


def test_a_label_of_any_name_is_renamed_merged_retired_and_had_back(client: TestClient, store: Store) -> None:
    first, second = names(client, order="count", limit=2)
    before = {id: store.document(id) for id in store.ids()}
    renamed = post(client, path(first, "/rename"), to=ODD)
    shown = client.get(path(ODD)).json()
    assert (shown["name"], shown["count"], shown["quality"], shown["concept"]) == (
        ODD,
        store.label(ODD).count,
        None,
        None,
    )
    assert [one["id"] for one in shown["examples"]] == store.label(ODD).examples
    preview = client.get(path(ODD, "/merge"), params={"into": second}).json()
    merged = post(client, path(ODD, "/merge"), into=second)
    assert merged["label"] == second
    assert preview["documents"] == shown["count"]
    assert store.label(second).count == len([1 for one in before.values() if {first, second} & {*one["labels"]}])
    retired = post(client, path(second, "/retire"))
    assert client.get(path(second)).json()["retired"]
    post(client, path(second, "/reinstate"))
    assert not client.get(path(second)).json()["retired"]
    post(client, f"{STORE}/labels/undo", change=retired["change"])  # which leaves it as it is
    undone = post(client, f"{STORE}/labels/undo", change=merged["change"])
    assert (undone["documents"], undone["changed_since"]) == (preview["documents"], 0)
    post(client, f"{STORE}/labels/undo", change=renamed["change"])
    assert {id: store.document(id) for id in store.ids()} == before
    assert client.get(f"{STORE}/history?limit=1").json()["changes"][0]["undone"] == renamed["change"]


def test_what_cannot_be_done_to_labels_is_refused_with_a_sentence(client: TestClient) -> None:
    first, second = names(client, order="name", limit=2)
    problem(client.get(path("no such")), 404)
    for action, body in (("rename", {"to": "x"}), ("merge", {"into": first}), ("retire", {}), ("reinstate", {})):
        problem(client.post(path("no such", f"/{action}"), json=body), 404)
    assert "merge the two" in problem(client.post(path(first, "/rename"), json={"to": second}), 422)["detail"]
    problem(client.post(path(first, "/merge"), json={"into": first}), 422)
    problem(client.post(path(first, "/rename"), json={"to": " "}), 422)
    problem(client.post(f"{STORE}/labels", json={"name": first}), 409)
    problem(client.post(f"{STORE}/labels/undo", json={"change": 999}), 409)
    problem(client.get(path("no such", "/merge"), params={"into": first}), 404)


def test_an_added_label_is_found_by_its_words_and_can_be_taken_back(client: TestClient, store: Store) -> None:
    added = post(client, f"{STORE}/labels", name="quince", words=["Quince", "Cydonia oblonga"], language="en")
    assert names(client, prefix="oblonga") == ["quince"]
    shown = client.get(path("quince")).json()
    assert (shown["declared"], shown["count"], shown["concept"]["synonyms"]) == (True, 0, {"en": ["Cydonia oblonga"]})
    post(client, f"{STORE}/labels/undo", change=added["change"])
    problem(client.get(path("quince")), 404)
    assert store.model.concepts is None


def test_a_label_has_its_quality_and_its_place_in_the_vocabulary(client: TestClient, store: Store) -> None:
    first, second = names(client, order="count", limit=2)
    concepts = [Concept("top", {"en": "Top", "de": "Oben"}), Concept(first, {"en": "First"}, broader=("top",))]
    store.set_vocabulary(Concepts.of([*concepts, Concept(second, {"en": "Second"}, broader=(first,))]))
    found = {one.label: one for one in store.quality().labels}
    shown = client.get(path(first), headers={"Accept-Language": "de"}).json()
    assert shown["quality"]["recall"] == found[first].recall
    assert shown["concept"]["path"] == ["top"]
    assert shown["concept"]["narrower"] == [second]
    assert shown["concept"]["names"]["top"] == "Oben"
    assert not client.get(path("top")).json()["is_label"] or store.label("top").count == 0


def test_the_report_and_the_audit_follow_a_label_that_gets_another_name(client: TestClient, store: Store) -> None:
    client.post(f"{STORE}/report")
    while client.get(f"{STORE}/report").json()["status"] == "running":
        pass
    first, second = names(client, order="count", limit=2)

    def reported() -> list[str]:
        return [one["label"] for one in client.get(f"{STORE}/report?limit=1000").json()["labels"]]

    assert {first, second} <= {*reported()}
    post(client, path(first, "/rename"), to="renamed")
    assert "renamed" in reported()
    assert first not in reported()
    post(client, path("renamed", "/merge"), into=second)
    assert "renamed" not in reported()
    assert client.get(path(second)).json()["quality"] is not None
