"""The review queue: what is offered, to whom, for how long, and that decisions are exact."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from test_audit import documents
from test_cli import run
from test_server import client_of

from ripml import RIPML
from ripml.base.errors import DataError, ParameterError, StoreError
from ripml.datasets import documents_given
from ripml.store import Store
from ripml.tagging.review import choose

TOPICS = {"fruit": "apple pear plum", "weather": "rain sky cloud", "sport": "goal match team", "money": "bank loan tax"}
KNOWN = [(f"{a} {b} {c}", [label]) for label in ("fruit", "weather") for a, b, c in [TOPICS[label].split()] * 3]
POOL = [
    (f"p{i}", " ".join([*words.split()[i % 3 :], f"word{i}"]), label)
    for i, (label, words) in enumerate([pair for pair in TOPICS.items() for _ in range(6)])
]
TRUTH = {id: label for id, _, label in POOL}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    texts = [text for text, _ in KNOWN] + [text for _, text, _ in POOL]
    labels: list[list[str]] = [labels for _, labels in KNOWN] + [[] for _ in POOL]
    ids = [f"k{i}" for i in range(len(KNOWN))] + [id for id, *_ in POOL]
    rows = [{"id": id, "text": t, "labels": names} for id, t, names in zip(ids, texts, labels, strict=True)]
    with Store.create(tmp_path / "store", documents_given(rows), RIPML.linear(random_state=0)) as opened:
        yield opened


def ids_of(found: list[Any]) -> list[str]:
    return [one.id for one in found]


def test_the_greedy_choice_is_that_of_the_definition() -> None:
    random = np.random.default_rng(0)
    X, known, p = random.random((40, 6)), random.random((5, 6)), random.random(40)
    unit, base = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (X, known))
    like, nearest = np.sqrt(unit @ unit.T), np.sqrt(unit @ base.T).max(axis=1)
    expected = []
    for _ in range(10):
        gains = np.maximum(like - nearest, 0) @ (1 - p)
        expected.append((int(gains.argmax()), float(gains.max())))
        nearest = np.maximum(nearest, like[gains.argmax()])
    for form in (np.asarray, csr_array):
        chosen = choose(form(X), form(known), p, 10)
        assert [one.row for one in chosen] == [row for row, _ in expected]
        np.testing.assert_allclose([one.gain for one in chosen], [gain for _, gain in expected], rtol=1e-4)


def test_of_copies_one_is_chosen_and_none_of_those_with_labels() -> None:
    random = np.random.default_rng(1)
    X, known, p = random.random((20, 6)), random.random((3, 6)), random.random(23)
    rows = np.concatenate([X, known, 2 * X, X])  # the length of a row is not its content
    chosen = choose(rows, known, np.concatenate([p, p[:20], p[:20]]), len(rows))
    gains = np.array([one.gain for one in chosen])
    assert sorted({one.row if one.row < 23 else (one.row - 23) % 20 for one in chosen[:20]}) == list(range(20))
    assert gains[20:].max() < 1e-4 < gains[:20].min()


def test_the_order_of_the_pool_does_not_matter() -> None:
    random = np.random.default_rng(2)
    X, known, p, order = random.random((40, 6)), random.random((5, 6)), random.random(40), random.permutation(40)
    chosen, again = choose(X, known, p, 15), choose(X[order], known, p[order], 15)
    assert [one.row for one in chosen] == [order[one.row] for one in again]


def test_what_the_model_does_not_know_comes_first_and_each_topic_once(store: Store) -> None:
    found = store.review(2)
    assert {TRUTH[one.id] for one in found} == {"sport", "money"}
    assert found[0].gain >= found[1].gain > 0
    assert all(one.text == {id: text for id, text, _ in POOL}[one.id] for one in found)
    assert found[0].labels == store.model.suggest([found[0].text or ""])[0]


def test_several_callers_never_get_the_same_document(store: Store) -> None:
    got: dict[str, list[str]] = {}
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            mine: list[str] = []
            while found := store.review(2, caller=name):
                for one in found:
                    store.relabel(one.id, [TRUTH[one.id]], actor=name)
                    mine.append(one.id)
            got[name] = mine
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[f"caller {i}"]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    every = [id for mine in got.values() for id in mine]
    assert sorted(every) == sorted(TRUTH)  # each once
    assert all(store.document(id)["labels"] == [label] for id, label in TRUTH.items())


def test_a_caller_gets_first_what_is_undecided_and_others_get_it_after_the_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1e9
    monkeypatch.setattr(time, "time", lambda: now)
    first = ids_of(store.review(3, caller="ana", minutes=10))
    others = ids_of(store.review(30, caller="ben", minutes=60))
    assert set(first).isdisjoint(others)
    assert len(first) + len(others) == len(POOL)
    assert ids_of(store.review(3, caller="ana", minutes=10)) == first
    assert store.review(1, caller="eva") == []
    now += 601
    assert set(ids_of(store.review(9, caller="eva"))) == set(first)


def test_decisions_are_exact_and_end_the_lease(store: Store, tmp_path: Path) -> None:
    a, b, c, d = ids_of(store.review(4, caller="ana"))
    store.relabel(a, [TRUTH[a]])
    store.relabel(b, [])  # nothing fits
    store.forget([c])
    store.release([d])
    left = ids_of(store.review(100, caller="ben"))
    assert d in left
    assert not {a, b, c} & set(left)
    rows = [store.document(id) for id in store.ids()]
    assert {row["id"] for row in rows if row["labels"]} == {a, *(f"k{i}" for i in range(len(KNOWN)))}
    assert store.model.model.n_rows_ == len(KNOWN) + 1
    assert store.check(full=True).ok  # its scores are those of a model that learns all documents anew


def test_leases_survive_a_restart_and_need_a_writer(store: Store, tmp_path: Path) -> None:
    mine = ids_of(store.review(3, caller="ana"))
    store.close()
    with Store.open(tmp_path / "store") as opened:
        assert set(mine).isdisjoint(ids_of(opened.review(100, caller="ben")))
        assert ids_of(opened.review(3, caller="ana")) == mine
    with (
        Store.open(tmp_path / "store", readonly=True) as reader,
        pytest.raises(StoreError, match="opened with readonly=True"),
    ):
        reader.review()


def test_new_documents_without_labels_wait_in_the_queue_too(store: Store) -> None:
    while found := store.review(100):
        for one in found:
            store.relabel(one.id, [TRUTH[one.id]])
    assert store.review() == []
    store.learn([{"id": "new", "text": "a violin and a flute", "labels": []}])
    assert ids_of(store.review()) == ["new"]


def test_wrong_arguments_are_refused(store: Store) -> None:
    with pytest.raises(ParameterError, match="`n` must be"):
        store.review(0)
    with pytest.raises(ParameterError, match="`minutes` must be a number above 0; got 0"):
        store.review(minutes=0)
    with pytest.raises(DataError, match="there is no document 'nobody'"):
        store.release(["nobody"])


def test_shell_and_http_give_what_python_gives(store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = store.review(3, caller="ana")
    store.close()
    command = ("review", tmp_path / "store", "--top", "3", "--caller", "ana")
    printed = [json.loads(line) for line in run(capfd, *command, "--json")[0].splitlines()]
    for one, record in zip(expected, printed, strict=True):
        labels = [(pair["label"], pair["score"]) for pair in record["labels"]]
        assert (record["id"], record["text"], labels) == (one.id, one.text, one.labels)
    assert run(capfd, *command)[0].count("first suggestion right with") == 3
    run(capfd, *command, "--release", expected[0].id)
    with client_of(Store.open(tmp_path / "store")) as client:
        path = "/v1/stores/tiny/review"
        answer = client.post(path, json={"n": 2, "caller": "ana"}).json()["documents"]
        assert [one["id"] for one in answer] == [one.id for one in expected[1:]]
        assert client.post(path, json={"n": 100, "caller": "ben"}).json()["documents"][0].keys() == {
            "id", "text", "labels", "probability", "gain", "n_like", "until", "carried", "findings",
        }  # fmt: skip
        assert client.post(path, json={"n": 0}).status_code == 422
        assert client.post(f"{path}/release", json={"ids": [answer[0]["id"]]}).status_code == 204
        assert client.post(f"{path}/release", json={"ids": ["nobody"]}).status_code == 404
        given_back = client.post(path, json={"caller": "eva"}).json()["documents"]
        assert [one["id"] for one in given_back] == [answer[0]["id"]]


# ------------------------------------------------------------------------------------------------ documents with labels

MISTAKEN = {  # a label that it has, and the one it should have
    "d0": ("weather", "fruit"),
    "d40": ("fruit", "weather"),
    "d41": ("music", "weather"),
    "d80": ("fruit", "music"),
}


@pytest.fixture
def mistaken(tmp_path: Path) -> Iterator[Store]:
    """Documents of three topics, four of which have a wrong label, and one without labels."""
    texts, labels = documents()
    for id, (wrong, _) in MISTAKEN.items():
        labels[int(id[1:])] = [wrong]
    ids = [*(f"d{i}" for i in range(len(texts))), "free"]
    data = replace(documents_given([*texts, "a violin"], [*labels, []]), ids=ids)
    with Store.create(tmp_path / "store", data, RIPML(random_state=0)) as opened:
        yield opened


def test_documents_with_labels_are_offered_by_the_mistakes_that_are_expected_in_them(mistaken: Store) -> None:
    found = mistaken.review(4, labelled=True, caller="ana")
    assert set(ids_of(found)) == set(MISTAKEN)
    assert [one.carried for one in found] == [[MISTAKEN[one.id][0]] for one in found]
    audit = mistaken.audit().worth_reading()
    doubts = {(one.kind, one.document, one.label): one.doubt for one in [*audit.wrong, *audit.missing]}
    for one in found:
        assert {finding.document for finding in one.findings} == {one.id}
        mine = [doubt for (_, document, _), doubt in doubts.items() if document == one.id]
        assert one.gain == pytest.approx(sum(mine))
        assert one.probability == pytest.approx(np.prod(1 - np.array(mine)))
    gains = [one.gain for one in [*found, *mistaken.review(100, labelled=True, caller="ben")]]
    assert gains == sorted(gains, reverse=True)


def test_both_queues_lease_apart(mistaken: Store) -> None:
    mine = ids_of(mistaken.review(2, labelled=True, caller="ana"))
    assert ids_of(mistaken.review(9, caller="ana")) == ["free"]
    assert set(mine).isdisjoint(ids_of(mistaken.review(100, labelled=True, caller="ben")))
    assert ids_of(mistaken.review(2, labelled=True, caller="ana")) == mine
    mistaken.release(mine)
    assert set(mine) <= set(ids_of(mistaken.review(100, labelled=True, caller="eva")))


def test_who_decided_on_a_document_with_labels_is_not_asked_again(mistaken: Store, tmp_path: Path) -> None:
    mistaken.review(100, labelled=True, caller="ana")
    mistaken.relabel("d0", ["fruit"])
    same, *_, other = mistaken.review(100, labelled=True, caller="ana")
    mistaken.relabel(same.id, same.carried)  # nothing changes, but somebody looked
    mistaken.dismiss(other.findings)
    decided = {"d0", same.id, other.id}
    assert not decided & set(ids_of(mistaken.review(100, labelled=True, caller="ana")))
    mistaken.close()
    with Store.open(tmp_path / "store") as opened:  # a new audit
        assert not decided & set(ids_of(opened.review(1000, labelled=True, caller="ana")))


def test_a_document_that_changed_or_was_dismissed_after_the_audit_is_not_offered(mistaken: Store) -> None:
    found = mistaken.audit()
    mistaken.relabel("d0", ["fruit"])
    mistaken.forget(["d40"])
    mistaken.dismiss([one for one in [*found.wrong, *found.missing] if one.document == "d41"])
    offered = set(ids_of(mistaken.review(1000, labelled=True)))
    assert not {"d0", "d40", "d41"} & offered
    assert "d80" in offered


def test_a_reader_cannot_lease_documents_with_labels(mistaken: Store, tmp_path: Path) -> None:
    mistaken.close()
    with (
        Store.open(tmp_path / "store", readonly=True) as reader,
        pytest.raises(StoreError, match="opened with readonly=True"),
    ):
        reader.review(labelled=True)


def test_documents_with_labels_in_the_shell_and_over_http(
    mistaken: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = [one.to_json() for one in mistaken.review(4, labelled=True, caller="ana")]
    mistaken.close()
    command = ("review", tmp_path / "store", "--labelled", "--top", "4", "--caller", "ana")
    printed = [json.loads(line) for line in run(capfd, *command, "--json")[0].splitlines()]
    assert [{**one, "until": ""} for one in printed] == [{**one, "until": ""} for one in expected]
    shown = run(capfd, *command)[0]
    assert all(f"{has}: probably wrong, doubt" in shown for has, _ in MISTAKEN.values())
    assert all(f"{misses}: probably missing, doubt" in shown for _, misses in MISTAKEN.values())
    assert "carries weather" in shown
    with client_of(Store.open(tmp_path / "store")) as client:
        path = "/v1/stores/tiny"
        early = client.post(f"{path}/review", json={"labelled": True})
        assert early.status_code == 409
        assert "POST /v1/stores/tiny/audit" in early.json()["detail"]
        client.post(f"{path}/audit")
        while client.get(f"{path}/audit").json()["status"] == "running":
            time.sleep(0.01)
        answer = client.post(f"{path}/review", json={"labelled": True, "caller": "eva"}).json()["documents"]
        assert not set(MISTAKEN) & {one["id"] for one in answer}  # ana has them
        assert client.post(f"{path}/review/release", json={"ids": [*MISTAKEN]}).status_code == 204
        answer = client.post(f"{path}/review", json={"labelled": True, "n": 4, "caller": "ben"}).json()["documents"]
        assert [{**one, "until": ""} for one in answer] == [{**one, "until": ""} for one in expected]
