"""Decisions in a store: kept, replayed, undone and forgotten like everything else that a store learns."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from ripml.base.errors import DataError
from ripml.cli import main
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.store import Store
from ripml.store.database import SCHEMA

TEXTS = [f"{colour} {fruit} number {i}" for i in range(3) for colour in ("red", "green") for fruit in ("apple", "plum")]
LABELS = ["apple", "green", "plum", "red"]
MODELS = {
    "default": RIPML(random_state=0),
    "linear": RIPML.linear(random_state=0),
    "paper": RIPML.paper(n_dims=12, n_neighbors=3, random_state=0),
}
TEXT = "a red and green fruit"


def created(place: Path, name: str = "linear", **options: Any) -> Store:
    Y = np.array([[label in text.split() for label in LABELS] for text in TEXTS], np.float32)
    data = Dataset(X=None, Y=csr_array(Y), label_names=LABELS, texts=TEXTS, name="fruit")
    return Store.create(place, data, MODELS[name].cloned(), **options)


def scores(store: Store, text: str = TEXT) -> dict[str, float]:
    model = store.model
    found = model.model.decision_function(model.features_of([text])).toarray()[0]
    return dict(zip(map(str, model.model.classes_), found.tolist(), strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_decisions_stay_through_reopening_crashes_refits_compaction_and_backups(name: str, tmp_path: Path) -> None:
    store = created(tmp_path / "store", name)
    before = scores(store)
    assert store.decide({"id": "a", "text": TEXT}, ["apple", "berry"], ["plum"], actor="Ann") == "a"
    store.decide({"id": "b", "text": "a green berry"}, ["berry"])
    store.decide("b", ["green"], ["plum"])
    after = scores(store)
    assert after["red"] == before["red"]
    assert after["plum"] < before["plum"] or not before["plum"]
    assert after["berry"] > 0
    assert store.document("a") == {
        "id": "a", "labels": [], "accepted": ["apple", "berry"], "rejected": ["plum"], "text": TEXT
    }  # fmt: skip
    assert store.check(full=True).ok
    # A copy of the files of the open store is what a crash leaves: the snapshot is that of the creation.
    shutil.copytree(tmp_path / "store", tmp_path / "crashed")
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert scores(reader) == pytest.approx(after, abs=2e-5)
    with Store.open(tmp_path / "crashed") as replayed:
        assert scores(replayed) == pytest.approx(after, abs=2e-5)
    store.backup(tmp_path / "backup")
    store.close()
    with Store.open(tmp_path / "store") as store:
        assert scores(store) == pytest.approx(after, abs=2e-6)
        store.compact()
        assert scores(store) == pytest.approx(after, abs=2e-5)
        assert store.verify().ok
        assert store.check(full=True).ok
        store.refit()
        assert store.model.model.n_decided_ == 2
        assert scores(store)["berry"] > 0
        assert store.check(full=True).ok
        store.withdraw("a")
        store.forget(["b"])
        assert store.model.model.n_decided_ == 0
        assert not scores(store)["berry"]
    with Store.open(tmp_path / "backup") as restored:
        assert scores(restored) == pytest.approx(after, abs=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_withdrawn_decision_and_a_forgotten_document_leave_no_influence(name: str, tmp_path: Path) -> None:
    with created(tmp_path / "store", name) as store:
        before = scores(store)
        store.decide({"id": "a", "text": TEXT}, ["apple"], ["plum"])
        store.decide({"id": "b", "text": "red"}, ["plum"])
        assert scores(store) != before
        store.withdraw("a")
        assert store.document("a") == {"id": "a", "labels": [], "text": TEXT}
        [certificate] = store.forget(["b"], certify=True)
        assert scores(store) == before
        store.compact()
        assert store.verify([certificate], [{"id": "b", "text": "red"}]).ok
        with pytest.raises(DataError, match="no label of document 'a' is decided"):
            store.withdraw("a")


def test_once_all_labels_of_a_document_are_known_its_decisions_are_over(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store, created(tmp_path / "other") as other:
        store.decide({"id": "a", "text": TEXT}, ["apple"], ["plum"])
        store.decide("a", ["red"], complete=True)
        other.learn([{"id": "a", "text": TEXT, "labels": ["apple", "red"]}])
        assert store.document("a") == other.document("a")
        assert store.model.model.n_decided_ == 0
        assert scores(store) == pytest.approx(scores(other), abs=1e-5)
        store.decide("a", ["green"], ["red"])  # of a document with labels all are known
        assert store.document("a")["labels"] == ["apple", "green"]
        with pytest.raises(DataError, match="document 'a' would have no label left; forget it, or accept one"):
            store.decide("a", rejected=["apple", "green"])
        store.decide({"id": "b", "text": "red"}, ["apple"])
        store.relabel("b", ["plum"])
        assert store.document("b") == {"id": "b", "labels": ["plum"], "text": "red"}
        assert store.check(full=True).ok


def test_labels_that_decisions_name_are_renamed_merged_and_kept(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store:
        store.decide({"id": "a", "text": TEXT}, ["berry", "apple"], ["plum"])
        before = scores(store)
        store.rename_label("berry", "bramble")
        assert scores(store)["bramble"] == before["berry"]
        store.compact()  # which drops labels that nothing names
        store.merge_labels(["bramble", "plum"], "fruit")
        assert store.document("a")["accepted"] == ["apple", "fruit"]
        assert store.document("a").get("rejected") == []
        assert store.check(full=True).ok
        store.forget(["a"])
        store.compact()
        assert "bramble" not in scores(store)


def test_decided_documents_are_counted_among_the_changes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with created(tmp_path / "store") as store:
        store.decide({"id": "a", "text": TEXT}, ["apple"], ["plum"])
        assert store.model.model.warm_["decided"] == 1
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", str(tmp_path / "store")])
    assert ", 1 decided, " in capfd.readouterr().out


def test_the_history_tells_what_was_decided(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store:
        store.decide({"id": "a", "text": TEXT}, ["apple"], ["plum"], actor="Ann")
        store.decide("a", ["red"], ["apple"])
        store.decide("a", complete=True)
        last, second, first = store.history(3)
        store.withdraw(store.decide({"id": "b", "text": TEXT}, ["apple"]))
        withdrawn, open_ended = store.history(2)
    assert (first["kind"], first["actor"], first["id"]) == ("decide", "Ann", "a")
    assert (first["before"], first["after"], first["rejected_after"]) == (None, ["apple"], ["plum"])
    assert (second["before"], second["after"]) == (["apple"], ["red"])
    assert (second["rejected_before"], second["rejected_after"]) == (["plum"], ["apple", "plum"])
    assert (last["kind"], last["before"], last["after"]) == ("relabel", ["red"], ["red"])
    assert (last["rejected_before"], "rejected_after" in last) == (["apple", "plum"], False), "now all are known"
    assert (open_ended["after"], open_ended["rejected_after"]) == (["apple"], []), "others may be right, too"
    assert (withdrawn["before"], withdrawn["rejected_before"], withdrawn["after"]) == (["apple"], [], [])


def test_the_share_of_decided_labels_that_were_accepted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def inspected(*options: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main(["inspect", str(tmp_path / "store"), *options])
        return capfd.readouterr().out

    with created(tmp_path / "store") as store:
        assert store.decided_labels() == []
        store.learn([{"id": "c", "text": "a red plum", "labels": ["plum"]}])  # nobody decided on it
        assert "decided labels" not in inspected()
        store.decide({"id": "a", "text": TEXT}, ["apple", "green"], ["plum"])
        first = store.version
        store.decide("a", ["red"], ["apple"])
        store.decide({"id": "b", "text": "green"}, rejected=["red"])
        store.withdraw("b")
        store.decide("a", ["plum"], complete=True)
        store.relabel("a", ["green"])
        counts = [(accepted, rejected) for _, _, accepted, rejected in store.decided_labels()]
        assert counts == [(2, 1), (1, 1), (0, 1), (1, 0)]
        assert [number for number, *_ in store.decided_labels(first)] == [first + 1, first + 2, first + 4]
        month = store.decided_labels()[0][1][:7]
        counted = {"labels": 7, "accepted": 4, "rejected": 3, "acceptance": round(4 / 7, 4)}
        assert json.loads(inspected("--json"))["decided"] == {**counted, "newest": counted, "months": {month: counted}}
        assert "7: 57.1 % accepted" in inspected()
        store.decide({"id": "d", "text": "red"}, ["red"], ["plum"])
        store.decide("d", ["green"], ["red"])
        store.compact()  # what was taken back is not known any more
        assert [(accepted, rejected) for _, _, accepted, rejected in store.decided_labels()] == [(1, 2)]
        store.decide("d", ["apple"])
        store.forget(["d"])
        assert [(accepted, rejected) for _, _, accepted, rejected in store.decided_labels()] == [(1, 2), (1, 0)]


def test_decisions_can_be_taken_out_and_made_again_elsewhere(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store, created(tmp_path / "other") as other:
        store.decide({"id": "a", "text": TEXT}, ["apple", "berry"], ["plum"])
        store.decide({"id": "b", "text": "red"}, rejected=["plum"])
        for decision in map(json.loads, map(json.dumps, store.decisions())):
            other.decide(decision)
        assert scores(other) == pytest.approx(scores(store), abs=2e-6)


def test_decisions_that_cannot_be_made_change_nothing(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store:
        wrong: dict[str, tuple[Any, list[str], list[str]]] = {
            "there is no document 'x'": ("x", ["apple"], []),
            "there is no label 'unknown'": ({"id": "a", "text": TEXT}, [], ["unknown"]),
            "the label 'red' is both accepted and rejected": ({"id": "a", "text": TEXT}, ["red"], ["red"]),
            "there is no decision: name a label": ({"id": "a", "text": TEXT}, [], []),
            "document '0' has another content": ({"id": "0", "text": TEXT}, ["red"], []),
        }
        for problem, arguments in wrong.items():
            with pytest.raises(DataError, match=problem):
                store.decide(*arguments)
        assert store.version == 0
        assert len(store) == len(TEXTS)


def test_a_store_of_the_format_before_decisions_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    created(tmp_path / "store").close()
    with sqlite3.connect(tmp_path / "store" / "store.db") as connection:
        connection.execute("DROP TABLE words")
        connection.execute("DROP TABLE document_decisions")
        connection.execute("PRAGMA user_version=2")
    connection.close()
    with Store.open(tmp_path / "store", readonly=True) as reader:
        assert reader.history(1) == []
        assert reader.document("0")["labels"] == ["apple", "red"]
    with Store.open(tmp_path / "store") as store:
        store.decide("0", ["green"])
        store.decide({"id": "a", "text": TEXT}, ["apple"], ["plum"])
        assert store.check(full=True).ok
    assert any("document_decisions" in statement for statement in SCHEMA)
