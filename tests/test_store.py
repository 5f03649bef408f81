"""The store: its documents survive any crash, and its model is always the one that its documents give."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, hstack
from store_writer import LABELS, WORDS, Ledger, Server, difference_from_reference, example, settings

from ripml.base.errors import DataError, ParameterError, StoreFullError
from ripml.baselines import PLST
from ripml.datasets import Dataset
from ripml.datasets.formats import read
from ripml.labels.ensembles import PolynomialPhase
from ripml.model.estimator import RIPML
from ripml.regression.regression import LinearRegression
from ripml.store import Store, StoreError, journal, store
from ripml.store.database import write_schema
from ripml.store.journal import Draft, Label, State, all_documents, all_labels, delta_since
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules
from ripml.text import TfIdf

FORMS = ["text", "lists", "objects"]


def data_of(form: str) -> Dataset:
    """The example in one of the forms that documents can have."""
    data = example()
    if form == "text":
        return data
    rng = np.random.default_rng(0)
    X = rng.random((len(data), 6)).astype(np.float32) * (rng.random((len(data), 6)) < 0.7)
    X[:, 0] = 1
    names = [f"feature {j}" for j in range(6)] if form == "objects" else None
    return Dataset(X=csr_array(X), Y=data.Y, label_names=data.label_names, feature_names=names, name="example")


def body(form: str, seed: int) -> dict[str, Any]:
    """A new document's body."""
    rng = random.Random(seed)
    values = [1, *(round(rng.random(), 3) for _ in range(5))]
    if form == "text":
        return {"text": " ".join(rng.choices(WORDS, k=7))}
    return {"features": values if form == "lists" else {f"feature {j}": x for j, x in enumerate(values)}}


def dense_scores(opened: Store) -> Any:
    """The scores of all documents of a store, with columns in the order of label names."""
    model = opened.model
    data = opened._bodies.to_dataset([state for _, state in opened._database.read(lambda c: list(all_documents(c)))])
    scores = model.model.decision_function(model.features(data)).toarray()
    return scores[:, np.argsort(model.model.classes_.astype(str))]


def assert_is_that_of_its_documents(found: Store, tolerance: float = 1e-8) -> None:
    """The law: the model equals one with the same frozen parts that learns all documents at once."""
    assert difference_from_reference(found) <= tolerance


def crash_image(folder: Path) -> Path:
    """A copy of the files, as a crash would leave them. Not copied by Python, whose close() drops SQLite's locks."""
    copy = folder.with_name(f"crashed {len(os.listdir(folder.parent))}")
    subprocess.run(["cp", "-r", folder, copy], check=True)
    return copy


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def small(folder: Path) -> Iterator[Store]:
    """A store of texts, open for writing."""
    with Store.create(folder, example(), settings()) as created:
        yield created


def everything(opened: Store) -> None:
    """One call of each kind."""
    form = opened._bodies.form
    opened.learn([{"id": "x", **body(form, 1), "labels": ["label 1", "new"]}, {**body(form, 2), "labels": []}])
    opened.learn([{"id": "x", **body(form, 1), "labels": ["label 2"]}, {"id": "y", **body(form, 4), "labels": ["new"]}])
    opened.learn([{"id": "x", **body(form, 3), "labels": ["label 2", "newer"]}])
    opened.relabel("3", ["label 0", "label 5"])
    opened.relabel({"4": [], "5": ["label 1"]})
    opened.forget(["0", "1", "2"])
    opened.rename_label("label 3", "third")
    opened.merge_labels(["label 4", "label 5"], "high")
    opened.add_labels(["declared"])
    opened.retire_label("label 0")


# ------------------------------------------------------------------------------------------------------ round trips


@pytest.mark.parametrize("form", FORMS)
def test_a_store_has_the_same_documents_and_scores_after_opening(folder: Path, form: str) -> None:
    data = data_of(form)
    with Store.create(folder, data, settings()) as created:
        scores = dense_scores(created)
    with Store.open(folder, readonly=True) as opened:
        assert opened.ids() == [str(i) for i in range(40)]
        assert len(opened) == 40
        np.testing.assert_array_equal(dense_scores(opened), scores)
        found = opened.document("7")
        assert found["labels"] == [LABELS[j] for j in data.Y[[7]].indices]
        if data.texts:
            assert found["text"] == data.texts[7]
        elif form == "lists":
            np.testing.assert_array_equal(np.float32(found["features"]), data.X[[7]].toarray()[0])
        else:
            assert np.float32(found["features"]["feature 0"]) == 1


@pytest.mark.parametrize("form", FORMS)
def test_after_every_kind_of_call_the_model_is_the_one_that_the_documents_give(folder: Path, form: str) -> None:
    with Store.create(folder, data_of(form), settings()) as opened:
        everything(opened)
        assert_is_that_of_its_documents(opened)
        assert sorted(opened.document("x")["labels"]) == ["label 2", "newer"]
        assert set(opened.model.model.classes_) == {
            *("label 0", "label 1", "label 2", "third", "high", "new", "newer", "declared")
        }
        assert opened.model.model.classes_[opened.model.model.vocabulary_.retired].tolist() == ["label 0"]
        opened.refit()
        assert opened.model.model.classes_[opened.model.model.vocabulary_.retired].tolist() == ["label 0"]
        everything_again = opened.learn([{"id": "x", **body(form, 1), "labels": ["label 1", "last"]}])
        assert everything_again == ["x"]
        assert_is_that_of_its_documents(opened)


@pytest.mark.parametrize("form", FORMS)
def test_the_rows_of_a_data_set_are_learnt_like_documents(folder: Path, form: str) -> None:
    rows = [{"id": f"{i}", **body(form, i), "labels": labels} for i, labels in enumerate((["b", "label 1"], [], ["b"]))]
    stream: Any = io.BytesIO("\n".join(map(json.dumps, rows)).encode())
    data = read(stream, format="jsonl")
    Y, names = csr_array(hstack([csr_array((3, 1)), data.Y])), ["carried by none", *data.label_names]
    with (
        Store.create(folder / "data", data_of(form), settings()) as one,
        Store.create(folder / "rows", data_of(form), settings()) as other,
    ):
        assert one.learn(replace(data, Y=Y, label_names=names)) == other.learn(rows) == ["0", "1", "2"]
        assert [one.document(id) for id in one.ids()] == [other.document(id) for id in other.ids()]
        assert one.model.model.classes_.tolist() == other.model.model.classes_.tolist() == [*LABELS, "b"]
        np.testing.assert_array_equal(dense_scores(one), dense_scores(other))
        (new,) = one.learn(replace(data, ids=None))[:1]
        assert {**one.document(new), "id": "0"} == one.document("0")
        with pytest.raises(DataError, match="there are no documents"):
            one.learn(replace(data, X=None, Y=csr_array((0, 2)), texts=None, ids=None, feature_names=None))


def test_the_default_model_follows_its_documents_too(folder: Path) -> None:
    with Store.create(folder, example(), RIPML(random_state=0, n_jobs=1)) as opened:
        everything(opened)
        assert_is_that_of_its_documents(opened, 1e-4)
        with Store.open(crash_image(folder), readonly=True) as again:
            np.testing.assert_allclose(dense_scores(again), dense_scores(opened), atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_a_snapshot_and_the_journal_after_it_give_the_same_model(folder: Path, form: str) -> None:
    with Store.create(folder, data_of(form), settings()) as opened:
        everything(opened)
        for readonly in (True, False):
            with Store.open(crash_image(folder), readonly=readonly) as again:
                assert set(again.ids()) == set(opened.ids())
                np.testing.assert_allclose(dense_scores(again), dense_scores(opened), atol=1e-8)
                assert (again.model.model.classes_ == opened.model.model.classes_).all()
    with Store.open(folder) as closed_well:
        assert closed_well._changes == 0
        np.testing.assert_allclose(dense_scores(closed_well), dense_scores(opened_anew(folder)), atol=1e-8)


def opened_anew(folder: Path) -> Store:
    return Store.open(folder, readonly=True)


def test_a_reader_follows_the_writer_through_snapshots_refits_and_compactions(small: Store, folder: Path) -> None:
    steps: list[Callable[[], object]] = [
        lambda: everything(small),
        small.snapshot,
        lambda: small.learn([{"id": "z", "text": "word1 word2", "labels": ["label 1", "later"]}]),
        small.refit,
        lambda: small.forget("z"),
        small.compact,
        lambda: small.reinstate_label("label 0"),
    ]
    with Store.open(folder, readonly=True) as reader:
        for step in steps:
            step()
            reader.refresh()
            assert reader.ids() == small.ids()
            assert reader.model.model.classes_.tolist() == small.model.model.classes_.tolist()
            assert (reader.model.model.vocabulary_.retired == small.model.model.vocabulary_.retired).all()
            np.testing.assert_allclose(dense_scores(reader), dense_scores(small), atol=1e-8)


def test_label_names_can_be_exchanged_and_reused(small: Store, folder: Path) -> None:
    with Store.open(folder, readonly=True) as reader:
        small.rename_label("label 0", "aside")
        small.rename_label("label 1", "label 0")
        small.rename_label("aside", "label 1")
        small.merge_labels(["label 2"], "label 3")
        small.learn([{"id": "x", "text": "word1", "labels": ["label 2", "label 1"]}])
        reader.refresh()
        assert set(reader.document("x")["labels"]) == {"label 1", "label 2"}
        assert_is_that_of_its_documents(reader)
        assert_is_that_of_its_documents(small)
        np.testing.assert_allclose(reader.model.model.frequency_, small.model.model.frequency_)


ENSEMBLES = {
    "gaussian": settings(),
    "sketch": RIPML(decoder="sketch", ensemble="gaussian", n_dims=8, n_neighbors=3, ridge=1.0, random_state=0),
    "fixed size": settings().set_params(ensemble=PolynomialPhase(2), n_dims=16),
    "full": settings().set_params(ensemble="identity", n_dims=6),
}


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_a_reused_name_is_the_same_label_for_the_writer_and_for_readers(folder: Path, ensemble: str) -> None:
    with Store.create(folder, example(), ENSEMBLES[ensemble]) as opened, Store.open(folder, readonly=True) as reader:
        steps: list[Callable[[], object]] = [
            lambda: opened.merge_labels(["label 0"], "label 1"),
            lambda: opened.learn([{"id": f"{i}", "text": f"word{i}", "labels": ["label 0"]} for i in range(3)]),
            lambda: opened.rename_label("label 0", "aside"),
            lambda: opened.merge_labels(["label 2", "label 3"], "label 4"),
            lambda: opened.learn([{"id": "x", "text": "word1 word2", "labels": ["label 0", "aside"]}]),
            lambda: opened.merge_labels(["label 0"], "aside"),
            lambda: opened.relabel("5", ["label 0", "label 2"]),
            opened.refit,
            lambda: opened.merge_labels(["aside", "label 5"], "label 0"),
            lambda: opened.learn([{"id": "y", "text": "word1 word3", "labels": ["aside", "label 1", "label 5"]}]),
        ]
        for step in steps:
            step()
            reader.refresh()
            again = Store.open(crash_image(folder), readonly=True)
            keys = opened.model.model.vocabulary_.keys.tolist()
            assert [label.key for label in opened._database.read(all_labels)] == keys
            for other in (reader, again):
                assert other.model.model.vocabulary_.keys.tolist() == keys
                np.testing.assert_allclose(dense_scores(other), dense_scores(opened), atol=2e-6)
            assert_is_that_of_its_documents(opened, 2e-6)


def test_rows_and_carriers_lead_back_to_documents(folder: Path) -> None:
    with Store.create(folder, example(), RIPML(random_state=0, kernel="rbf", n_jobs=1)) as opened:
        everything(opened)
        for each in (opened, Store.open(crash_image(folder), readonly=True)):
            ids = each.rows(range(each.model.model.n_seen_))
            assert ids[3] == "3"
            assert {id for id in each.ids() if each.document(id)["labels"]} <= set(ids.values())
            explanations = each.model.explain([each.document(id)["text"] for id in each.ids()], n_examples=50)
            examples = [shown for row in explanations for why in row for shown in why.examples]
            carried = {ids[e.row]: sorted(e.labels) for e in examples if e.row is not None}
            assert carried.keys() > {"3", "x", "y"}
            assert carried == {id: sorted(each.document(id)["labels"]) for id in carried}
        labels = opened.document("x")["labels"]
        assert "x" in opened.carriers(labels, n=100)
        assert all(set(opened.document(id)["labels"]) == set(labels) for id in opened.carriers(labels))
        with pytest.raises(ParameterError, match=r"row numbers must be from 0 to \d+; got -1"):
            opened.rows([-1])


@pytest.mark.parametrize("seed", range(5))
def test_the_journal_leads_from_any_change_to_the_current_state(seed: int) -> None:
    rng, connection = random.Random(seed), sqlite3.connect(":memory:")
    write_schema(connection)
    seen: list[tuple[int, dict[int, State], dict[int, Label]]] = []
    for _ in range(60):
        draft = Draft(connection)
        ids = [id for (id,) in connection.execute("SELECT id FROM documents")]
        names = [label.name for label in all_labels(connection)]
        action = rng.choice(["put", "put", "put", "remove", "relabel", "merge", "rename", "retire"])
        labels = [draft.label(f"label {rng.randrange(8)}") for _ in range(rng.randrange(3))]
        if action == "put":
            draft.put(f"{rng.randrange(12)}", b"%d" % rng.randrange(3), set(labels))
        elif action == "remove" and ids:
            draft.remove(rng.choice(ids))
        elif action == "relabel" and ids:
            draft.relabel(rng.choice(ids), set(labels))
        elif action == "merge" and len(names) > 1:
            draft.merge_labels([str(names[0])], str(names[-1]))
        elif action == "rename" and names:
            draft.rename_label(str(names[0]), f"name {len(seen)}")
        elif names:
            draft.retire_label(str(names[0]), rng.random() < 0.5)
        now = dict(all_documents(connection))
        for change, documents, known in seen:
            delta, there = delta_since(connection, change), dict(documents)
            for edit in delta.edits:
                assert there.pop(edit.document, None) == edit.before
                there |= {edit.document: edit.after} if edit.after else {}
            assert there == now
            labelled = known | {label.number: label for label in delta.labels}
            named = [label for number, label in sorted(labelled.items()) if label.name is not None]
            assert named == all_labels(connection)
        seen.append((draft.delta.change, now, {label.number: label for label in all_labels(connection)}))
    connection.close()


def test_history_lists_changes_newest_first(small: Store) -> None:
    small.learn([{"id": "x", "text": "word1", "labels": ["label 1"]}])
    small.relabel("x", ["label 2"])
    small.rename_label("label 2", "second")
    small.forget("x")
    forgot, renamed, relabelled, learnt = small.history(4)
    assert (learnt["kind"], learnt["id"], learnt["before"], learnt["after"]) == ("learn", "x", None, ["label 1"])
    assert (relabelled["kind"], relabelled["before"], relabelled["after"]) == ("relabel", ["label 1"], ["second"])
    assert (renamed["kind"], renamed["old"], renamed["new"]) == ("rename label", "label 2", "second")
    assert (forgot["kind"], forgot["id"], forgot["before"], forgot["after"]) == ("forget", "x", ["second"], None)
    assert forgot["time"].endswith("+00:00")
    assert [entry["number"] for entry in small.history(4)] == [4, 3, 2, 1]


def test_history_names_removed_labels_until_the_next_snapshot(small: Store) -> None:
    small.learn([{"id": "x", "text": "word1", "labels": ["passing", "label 1"]}])
    small.merge_labels(["passing"], "label 2")
    merged, relabelled, learnt = small.history(3)
    assert (merged["kind"], merged["labels"], merged["into"]) == ("merge labels", ["passing"], "label 2")
    assert sorted(relabelled["before"]) == sorted(learnt["after"]) == ["label 1", "passing"]
    assert sorted(relabelled["after"]) == ["label 1", "label 2"]
    small.snapshot()
    _, relabelled, learnt = small.history(3)
    assert (relabelled["before"], learnt["before"], learnt["after"]) == (None, None, None)
    assert sorted(relabelled["after"]) == ["label 1", "label 2"]


def test_a_snapshot_is_taken_after_many_changes(small: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_CHANGES", 3)
    small.relabel({"0": ["label 1", "label 2"], "1": ["label 3", "label 4"]})
    assert (folder / "model-000000000000").is_dir()
    small.learn([{"id": f"{i}", "text": "word2", "labels": ["label 1"]} for i in range(10, 15)])
    assert [path.name for path in folder.glob("model-*")] == ["model-000000000007"]
    with small._database.transaction() as connection:  # bodies that only an older model needs are gone
        assert connection.execute("SELECT count(*) FROM changes WHERE body NOT NULL").fetchone() == (0,)


# ------------------------------------------------------------------------------------------------------------ errors


def dataset(**given: Any) -> Dataset:
    """A data set of one row, with other values."""
    return Dataset(**{"X": None, "Y": csr_array([[1.0]]), "label_names": ["new"], "texts": ["word1"], **given})


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda s: s.learn([]), "there are no documents"),
        (lambda s: s.learn(["text"]), "document 1 must be a mapping"),
        (lambda s: s.learn([{"labels": ["a"]}]), "the model was trained on texts, but document has none"),
        (lambda s: s.learn([{"text": "a"}, {"features": [1]}]), "document:2: 'text' is missing"),
        (lambda s: s.learn([{"text": "a", "labels": "b, c"}]), "document:1: 'labels' must be a list; got 'b, c'"),
        (lambda s: s.learn([{"text": "a", "labels": ["b", "b"]}]), "document:1: label 'b' is given twice"),
        (lambda s: s.learn([{"text": "a", "labels": [{1, 2}]}]), "document 1 cannot be written as JSON"),
        (lambda s: s.learn([{"id": "a", "text": "b"}] * 2), "document 'a' is given twice"),
        (lambda s: s.learn([{"id": "", "text": "b"}]), "the id of a document must not be empty"),
        (lambda s: s.learn(dataset(ids=["\ud800"])), "an id must be a string that can be encoded as UTF-8"),
        (lambda s: s.learn(dataset(label_names=["\ud800"])), "a label must be a string that can be encoded"),
        (lambda s: s.learn(dataset(label_names=[5])), "a label must be a string .*; got 5"),
        (
            lambda s: s.learn(dataset(label_names=["a", "a"], Y=csr_array([[1.0, 1.0]]))),
            "'a' stands for more than one column",
        ),
        (lambda s: s.learn(dataset(texts=["a \ud800"])), "a text must be a string that can be encoded as UTF-8"),
        (lambda s: s.forget(["1", "nobody"]), "there is no document 'nobody'"),
        (lambda s: s.forget(["1", "1"]), "document '1' is given twice"),
        (lambda s: s.forget(["1", "\ud800"]), "an id must be a string that can be encoded as UTF-8"),
        (lambda s: s.forget(5), "an id must be a string .*; got 5"),
        (lambda s: s.relabel("nobody", ["a"]), "there is no document 'nobody'"),
        (lambda s: s.relabel("1"), "the new labels of document '1' are missing"),
        (lambda s: s.relabel("1", "label"), "a list of label names is needed; got the string 'label'"),
        (lambda s: s.relabel("1", 5), "a list of label names is needed; got 5"),
        (lambda s: s.relabel("1", ["\ud800"]), "a label must be a string that can be encoded"),
        (lambda s: s.relabel("1", [["a"]]), r"a label must be a string .*; got \['a'\]"),
        (lambda s: s.relabel("\ud800", ["a"]), "an id must be a string that can be encoded as UTF-8"),
        (lambda s: s.relabel([], ["a"]), r"an id must be a string .*; got \[\]"),
        (lambda s: s.relabel({5: ["a"]}), "an id must be a string .*; got 5"),
        (lambda s: s.add_labels(["new", 5]), "a label must be a string .*; got 5"),
        (lambda s: s.rename_label("\ud800", "b"), "a label must be a string that can be encoded"),
        (lambda s: s.rename_label(5, "b"), "a label must be a string .*; got 5"),
        (lambda s: s.rename_label("none", "b"), "there is no label 'none'"),
        (lambda s: s.rename_label("label 1", "label 2"), "there is a label 'label 2' already; merge the two"),
        (lambda s: s.rename_label("label 1", "\ud800"), "a label must be a string that can be encoded"),
        (lambda s: s.merge_labels(["label 1", "label 2"], "label 1"), "'label 1' cannot be merged into itself"),
        (lambda s: s.merge_labels(["label 1", "\ud800"], "label 2"), "a label must be a string that can be encoded"),
        (lambda s: s.merge_labels(["label 1"], "\ud800"), "a label must be a string that can be encoded"),
        (lambda s: s.retire_label("none"), "there is no label 'none'"),
        (lambda s: s.retire_label("\ud800"), "a label must be a string that can be encoded"),
        (lambda s: s.reinstate_label([]), r"a label must be a string .*; got \[\]"),
        (lambda s: s.document("nobody"), "there is no document 'nobody'"),
        (lambda s: s.document("\ud800"), "an id must be a string that can be encoded as UTF-8"),
        (lambda s: s.document(5), "an id must be a string .*; got 5"),
        (lambda s: s.document([]), r"an id must be a string .*; got \[\]"),
        (lambda s: s.carriers(["none"]), "there is no label 'none'"),
    ],
)
def test_a_call_that_fails_leaves_everything_as_it_was(
    small: Store, call: Callable[[Store], object], sentence: str
) -> None:
    before, ids = dense_scores(small), small.ids()
    with pytest.raises(DataError, match=sentence):
        call(small)
    assert small.ids() == ids
    assert small.history() == []
    np.testing.assert_array_equal(dense_scores(small), before)
    small.forget("1")
    assert_is_that_of_its_documents(small)


def test_there_is_one_writer_and_readers_cannot_write(small: Store, folder: Path) -> None:
    with pytest.raises(StoreError, match=f"is open for writing by process {os.getpid()}; it can be read meanwhile"):
        Store.open(folder)
    with Store.open(folder, readonly=True) as reader:
        calls: list[Callable[[], Any]] = [lambda: reader.forget("1"), reader.snapshot, reader.compact, reader.refit]
        for call in calls:
            with pytest.raises(StoreError, match="opened with readonly=True; nothing was changed"):
                call()
    with pytest.raises(StoreError, match="this store was closed; open it again"):
        reader.refresh()
    small.close()
    with pytest.raises(StoreError, match="this store was closed"):
        small.forget("1")
    with Store.open(folder) as next_one:
        next_one.forget("1")


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="already exists and is not an empty folder"):
        Store.create(tmp_path, example(), settings())
    with pytest.raises(StoreError, match="is not a store"):
        Store.open(tmp_path)
    with pytest.raises(StoreError, match="is not a store"):
        Store.open(tmp_path / "nowhere", readonly=True)
    assert os.listdir(tmp_path) == ["letter.txt"]
    with pytest.raises(ParameterError, match="a store needs a model that can forget, RIPML; got PLST"):
        Store.create(tmp_path / "new", example(), PLST())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"texts": ["word1 \ud800"] * 2}, "a text must be a string that can be encoded as UTF-8; got 'word1"),
        ({"texts": ["word1", 5]}, "a text must be a string that can be encoded as UTF-8; got 5"),
        ({"label_names": ["a\ud800"]}, "a label must be a string that can be encoded"),
        ({"ids": ["a", "\udcff"]}, "an id must be a string that can be encoded as UTF-8"),
        (
            {"X": csr_array([[1.0], [2.0]]), "feature_names": ["\ud800"]},
            "a feature name must be a string that can be encoded as UTF-8",
        ),
        ({"label_names": ["a", "a"], "Y": csr_array([[1.0, 0], [0, 1.0]])}, "'a' stands for more than one column"),
    ],
)
def test_data_that_cannot_be_stored_creates_no_store(tmp_path: Path, given: dict[str, Any], sentence: str) -> None:
    data = dataset(**{"Y": csr_array([[1.0], [1.0]]), "texts": ["word1", "word2"], **given})
    with pytest.raises(DataError, match=sentence):
        Store.create(tmp_path / "above" / "store", data, settings())
    assert os.listdir(tmp_path) == []


def test_a_model_that_cannot_learn_exactly_creates_no_store(tmp_path: Path) -> None:
    for place in (tmp_path / "above" / "store", tmp_path / "above", Path(os.path.relpath(tmp_path / "store"))):
        with pytest.raises(ParameterError, match="solver='cg' stops short of the exact solution"):
            Store.create(place, example(), RIPML.linear(solver="cg", random_state=0, n_jobs=1))
        assert os.listdir(tmp_path) == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(ParameterError, match="solver='cg' stops short of the exact solution"):
        Store.create(tmp_path / "empty", example(), RIPML.linear(solver="cg", random_state=0, n_jobs=1))
    Store.create(tmp_path / "empty", example(), settings()).close()


def _foreign_tables(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE meta (key, value)")


def _trigger(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TRIGGER t AFTER INSERT ON labels BEGIN DELETE FROM documents; END")


def _newer(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")


def _zeros_in_the_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.write_bytes(b"no database at all" * 1000), r"store\.db is not a database"),
        (lambda path: path.write_bytes(b""), r"store\.db is not the database of a store"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), r"store\.db is damaged"),
        (_zeros_in_the_middle, r"store\.db is damaged"),
        (_foreign_tables, r"store\.db is not the database of a store"),
        (_trigger, r"store\.db is not the database of a store"),
        (_newer, "upgrade with `pip install -U ripml`"),
    ],
)
def test_damaged_or_foreign_files_are_reported_in_one_sentence(
    folder: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    Store.create(folder, example(), settings()).close()
    damage(folder / "store.db")
    for readonly in (True, False):
        with pytest.raises(StoreError, match=sentence):
            Store.open(folder, readonly=readonly)


def test_what_a_killed_creation_left_can_be_created_again(folder: Path) -> None:
    folder.mkdir()
    (folder / "writer.lock").write_text("")
    (folder / "store.db.part").write_text("half")
    (folder / "model-000000000000").mkdir()
    with pytest.raises(
        StoreError, match=r"the creation of this store was not finished, or its store\.db was deleted; create it again"
    ):
        Store.open(folder)
    with Store.create(folder, example(), settings()) as created:
        assert len(created) == 40
    assert sorted(os.listdir(folder)) == ["model-000000000000", "store.db", "writer.lock"]


def test_the_next_writer_removes_what_a_killed_snapshot_left(small: Store, folder: Path) -> None:
    small.forget("1")
    small.close()
    (folder / "model-000000000099").mkdir()
    (folder / "model-000000000099" / "half.npy").write_text("half")
    with Store.open(folder, readonly=True):
        pass
    assert (folder / "model-000000000099").is_dir()
    Store.open(folder).close()
    assert [path.name for path in folder.glob("model-*")] == ["model-000000000001"]


# ----------------------------------------------------------------------------------------------------------- crashes


def test_a_killed_writer_loses_nothing_and_leaves_nothing_half_done(folder: Path, server: Server) -> None:
    Store.create(folder, even(), settings()).close()
    ledger, rng = Ledger(), random.Random(0)
    with Store.open(folder, readonly=True) as reader:
        for round, kind in enumerate(["learn", "snapshot", "compact", "close"] * 2):
            answer = server.run(folder, kind, round, rng.uniform(0.1, 0.6), lambda: ledger.look(reader))
            ledger.settle(folder, answer["messages"])
    assert ledger.complaints == []
    assert (ledger.kills, ledger.lost, ledger.half, ledger.unreadable) == (8, 0, 0, 0)
    with Store.open(folder) as survivor:
        assert_is_that_of_its_documents(survivor)


def even() -> Dataset:
    """The example, which has an even number of rows."""
    return example(40)


def test_a_creation_that_is_killed_leaves_no_store_or_a_whole_one(tmp_path: Path, server: Server) -> None:
    for round in range(4):
        folder = tmp_path / str(round)
        answer = server.run(folder, "create", round, random.Random(round).uniform(0.0, 0.15))
        if not (folder / "store.db").exists():
            assert answer["messages"] == []
            with pytest.raises(StoreError, match=r"was not finished|is not a store"):
                Store.open(folder)
            Store.create(folder, example(200), settings()).close()
        with Store.open(folder) as opened:
            assert len(opened) in (200, 201)  # with the document that is learnt behind the creation
            assert_is_that_of_its_documents(opened)


def test_readers_in_threads_see_whole_calls_only(small: Store) -> None:
    stop, wrong = threading.Event(), list[int]()

    def read() -> None:
        while not stop.is_set():
            model = small.model
            rows = model.model.n_rows_
            scores = model.model.decision_function(model.text.transform(["word1 word2"])) if model.text else None
            if rows % 2 or scores is None or scores.shape[1] != len(model.model.classes_):
                wrong.append(rows)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for call in range(15):
            pair = [{"id": f"{call}/{s}", "text": f"word{call} word1", "labels": [f"new {call}"]} for s in "ab"]
            small.learn(pair)
            if call % 3 == 2:
                small.forget([f"{call - 1}/a", f"{call - 1}/b"])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert_is_that_of_its_documents(small)


# ------------------------------------------------------------------------------------------- full and read-only disks


def test_where_files_cannot_grow_nothing_changes_and_the_next_call_works(folder: Path, server: Server) -> None:
    Store.create(folder, even(), settings()).close()
    answer = server.run(folder, "full", 0, 60)
    refused, done, no_snapshot, snapshot = answer["messages"]
    assert answer["status"] == 0
    assert refused[0] == no_snapshot[0] == "error"
    assert refused[1].endswith("nothing was changed.")
    assert "no snapshot was taken" in no_snapshot[1]
    assert (refused[2], done[2], no_snapshot[2], snapshot[2]) == ([42, 42], [44, 44], [44, 44], [44, 44])
    with Store.open(folder) as opened:
        assert_is_that_of_its_documents(opened)


def test_a_full_database_is_reported_and_the_old_model_still_answers(small: Store) -> None:
    writer = small._database.writer
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count={pages + 2}")
    before = dense_scores(small)
    with pytest.raises(StoreFullError, match="the disk is full; nothing was changed"):
        small.learn([{"id": "big", "text": "word1 " * 10_000, "labels": ["label 1", "unheard of"]}])
    np.testing.assert_array_equal(dense_scores(small), before)
    assert "unheard of" not in small.model.model.classes_
    writer.execute("PRAGMA max_page_count=1000000")
    small.learn([{"id": "big", "text": "word1 " * 10_000, "labels": ["label 1"]}])
    assert_is_that_of_its_documents(small)


@contextlib.contextmanager
def mounted(where: Path, *words: str) -> Iterator[None]:
    """Something mounted on a folder; skips where that is not allowed."""
    if os.getuid() != 0:
        pytest.skip("only root can mount")
    where.mkdir(exist_ok=True)
    try:
        done = subprocess.run(["mount", *words, str(where)], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode:
        pytest.skip(f"mounting is not allowed here ({done.stderr.decode().strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)  # models are mapped from it as long as they live


def test_a_disk_that_is_full_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mounted(disk, "-t", "tmpfs", "-o", "size=4m", "tmpfs"):
        opened = Store.create(disk / "store", example(), settings())
        opened.forget("2")
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(1000)):
                pass
        with pytest.raises(StoreError, match="the disk is full; nothing was changed"):
            opened.learn([{"id": "x", "text": "word1 " * 10_000, "labels": ["label 1"]}])
        assert len(opened) == opened.model.model.n_rows_ == 39
        with pytest.raises(StoreError, match=r"no snapshot was taken: .*No space left"):
            opened.snapshot()
        with pytest.warns(RuntimeWarning, match="All changes are stored, but opening will take longer"):
            opened.close()
        filler.unlink()
        with Store.open(disk / "store") as again:
            again.learn([{"id": "x", "text": "word1 " * 10_000, "labels": ["label 1"]}])
            assert_is_that_of_its_documents(again)


@contextlib.contextmanager
def read_only(source: Path, place: Path) -> Iterator[Path]:
    """The folder on a disk that cannot be written, or where only root could mount one, without the right to write."""
    if os.getuid() == 0:
        with mounted(place, "--bind", str(source)):
            subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
            yield place
        return
    paths = [source, *source.rglob("*")]
    modes = [path.stat().st_mode for path in paths]
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode & ~0o222)
    try:
        yield source
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)


@pytest.mark.parametrize("closed", [True, False])
def test_a_store_on_a_read_only_disk_can_be_read(small: Store, folder: Path, tmp_path: Path, closed: bool) -> None:
    small.learn([{"id": "x", "text": "word1", "labels": ["label 1"]}])
    source = crash_image(folder)
    if closed:
        small.close()
        source = folder
    files = {path.name for path in source.iterdir()}
    assert ("store.db-wal" in files) != closed
    with read_only(source, tmp_path / "disk") as place:
        with pytest.raises(StoreError, match=r"cannot be written .*; it can only be read"):
            Store.open(place)
        with Store.open(place, readonly=True) as opened:
            assert opened.document("x")["labels"] == ["label 1"]
            opened.refresh()
            assert_is_that_of_its_documents(opened)
    assert {path.name for path in source.iterdir()} == files


def test_a_log_without_its_index_on_a_read_only_disk_is_explained(small: Store, folder: Path, tmp_path: Path) -> None:
    small.forget("1")
    source = crash_image(folder)
    (source / "store.db-shm").unlink()
    with (
        read_only(source, tmp_path / "disk") as place,
        pytest.raises(StoreError, match="was not closed and the folder cannot be written; make a writable copy"),
    ):
        Store.open(place, readonly=True)
    with Store.open(source) as opened:
        assert "1" not in opened.ids()


def test_a_query_is_repeated_if_a_writer_opened_the_store_meanwhile(folder: Path) -> None:
    Store.create(folder, example(), settings()).close()
    counts, writers = list[int](), list[Store]()

    def query(connection: sqlite3.Connection) -> int:
        counts.append(connection.execute("SELECT count(*) FROM documents").fetchone()[0])
        if not writers:
            writers.append(Store.open(folder))
            writers[0].forget("1")
        return counts[-1]

    with Store.open(folder, readonly=True) as reader:
        assert reader._database.read(query) == 39
    assert counts == [40, 39]
    writers[0].close()


def test_a_model_that_fails_leaves_the_store_as_it_was(small: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DataError("the model refuses.")

    before = dense_scores(small)
    with monkeypatch.context() as patch:
        patch.setattr(RIPML, "partial_fit", refuse)
        with pytest.raises(DataError, match="the model refuses"):
            small.learn([{"id": "0", "text": "word1", "labels": ["label 1", "new"]}])  # the old text is forgotten first
    np.testing.assert_array_equal(dense_scores(small), before)
    assert len(small) == 40
    small.learn([{"id": "0", "text": "word1", "labels": ["label 1", "new"]}])
    assert_is_that_of_its_documents(small)


def test_a_snapshot_that_fails_in_any_way_does_not_make_a_call_fail(
    small: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, path: Path) -> None:
        path.mkdir(exist_ok=True)
        (path / "half").touch()
        raise MemoryError("no room")

    monkeypatch.setattr(store, "SNAPSHOT_CHANGES", 0)
    with monkeypatch.context() as patch:
        patch.setattr(DocumentModel, "save", refuse)
        rows = [{"id": f"new {i}", "text": "word1", "labels": ["label 1"]} for i in range(9)]
        with pytest.warns(RuntimeWarning, match=r"no snapshot was taken \(MemoryError.* All changes are stored"):
            assert len(small.learn(rows)) == 9
    assert [path.name for path in folder.glob("model-*")] == ["model-000000000000"]
    assert_is_that_of_its_documents(small)
    small.snapshot()
    assert [path.name for path in folder.glob("model-*")] == ["model-000000000009"]


def test_reading_leaves_a_closed_store_as_it_is(small: Store, folder: Path) -> None:
    small.forget("1")
    small.close()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with Store.open(folder, readonly=True) as reader:
        reader.refresh()
        reader.document("2")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


# -------------------------------------------------------------------------------------------------------- forgetting


def files_with(folder: Path, needle: bytes) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and needle in path.read_bytes()]


def test_nothing_of_a_forgotten_text_is_left_after_compacting(folder: Path) -> None:
    texts = [*(example().texts or []), "zanzibar quagga word1", "zanzibar quagga word2"]
    Y = csr_array(np.vstack([np.hstack([example().Y.toarray(), np.zeros((40, 1))]), [[0] * 6 + [1]] * 2]))
    ids = [*(f"id{i}" for i in range(40)), "first-secret-id", "second-secret-id"]
    data = Dataset(X=None, Y=Y, label_names=[*LABELS, "secret label"], texts=texts, ids=ids, name="secrets")
    later = {"id": "third-secret-id", "text": "xylophone word3", "labels": ["later secret"]}
    needles = [
        *(b"zanzibar", b"quagga", b"secret", b"xylophone"),
        *(f"{word} {text.split()[2]}".encode() for text in texts[-2:] for word in ("quagga",)),
    ]
    with Store.create(folder, data, settings()) as opened:
        model = opened.model.model
        index = model.clusters_[0].index
        embedding = index.Z[:, index.sets[:, [6]].toarray()[:, 0] > 0]
        assert embedding.size
        opened.learn([later])
        opened.relabel("third-secret-id", ["another secret"])
        opened.snapshot()
        opened.forget(["first-secret-id", "second-secret-id", "third-secret-id"])
        opened.compact()
        assert opened.history(1)[0]["kind"] == "compact"
        scores = dense_scores(opened)
        assert opened.model.features(Dataset(X=None, Y=csr_array((1, 0)), label_names=[], texts=["quagga"])).nnz == 0
    image = {needle: files_with(folder, needle) for needle in needles}
    assert image == {needle: [] for needle in needles}
    for learner in embedding.reshape(-1, embedding.shape[-1]):
        assert files_with(folder, learner.astype(np.float32).tobytes()) == []
        assert files_with(folder, learner.astype(np.float64).tobytes()) == []
    with Store.open(folder) as opened:
        np.testing.assert_array_equal(dense_scores(opened), scores)
        assert_is_that_of_its_documents(opened)


@pytest.mark.parametrize("model", [settings(), RIPML(random_state=0, n_jobs=1)], ids=["paper", "default"])
@pytest.mark.parametrize("form", ["lists", "objects"])
def test_nothing_of_forgotten_features_is_left_after_compacting(folder: Path, form: str, model: RIPML) -> None:
    values = [0.7392847, 0.1928374, 0.8374652, 0.3310297, 0.5647382, 0.2233445]
    features: Any = values
    if form == "objects":
        features = {**{f"feature {j}": x for j, x in enumerate(values)}, "secret feature": 3}
    with Store.create(folder, data_of(form), model) as opened:
        opened.learn([{"id": "secret id", "features": features, "labels": ["label 1", "secret label"]}])
        opened.snapshot()
        opened.forget(["secret id"])
        opened.learn([{"id": "kept", **body(form, 1), "labels": ["label 1"]}])
        opened.compact()
        assert_is_that_of_its_documents(opened, 1e-4)
    assert files_with(folder, b"secret") == []
    unit = np.array(values) / np.linalg.norm(values)
    for number in (*values, *unit):
        assert files_with(folder, np.float32(number).tobytes()) == []
        assert files_with(folder, np.float64(number).tobytes()) == []
        assert files_with(folder, np.float64(np.float32(number)).tobytes()) == []
    assert files_with(folder, json.dumps(values[0]).encode()) == []


@pytest.mark.parametrize(
    ("model", "tolerance"), [(settings(), 1e-8), (RIPML(random_state=0, n_jobs=1), 1e-4)], ids=["paper", "default"]
)
def test_a_planted_document_has_no_influence_once_it_is_forgotten(folder: Path, model: RIPML, tolerance: float) -> None:
    with Store.create(folder, example(), model) as opened:
        before = dense_scores(opened)
        text = (example().texts or [""])[0]
        labels = ["label 5", "planted"]
        planted = opened.learn([{"id": f"planted {i}", "text": text, "labels": labels} for i in range(20)])
        assert "planted" in [name for name, _ in opened.model.suggest([text])[0]]
        opened.forget(planted)
        opened.compact()
        np.testing.assert_allclose(dense_scores(opened), before, atol=tolerance)


def test_compacting_keeps_declared_labels_and_drops_other_unused_ones(small: Store) -> None:
    small.add_labels(["declared"])
    small.learn([{"id": "x", "text": "word1", "labels": ["passing"]}])
    small.forget("x")
    small.compact()
    assert small.model.model.classes_.tolist() == [*LABELS, "declared"]
    assert {"id": None, "before": None, "after": None}.items() <= small.history(2)[1].items()
    small.learn([{"id": "x", "text": "word1", "labels": ["passing"]}])
    assert_is_that_of_its_documents(small)


# --------------------------------------------------------------------------------------- forks, copies, what is left


def in_a_fork(work: Callable[[], None]) -> str:
    """The message of the error that `work` raises in a child process, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            work()
            message = b""
        except BaseException as error:
            message = str(error).encode()
        os.write(writing, message)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message.decode()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_does_not_write_into_the_store_of_its_parent(small: Store) -> None:
    def learn_and_close() -> None:
        try:
            small.learn([{"id": "child", "text": "word1", "labels": ["label 1"]}])
        finally:
            small.close()

    assert "was opened before this process was forked; open it again." in in_a_fork(learn_and_close)
    small.learn([{"id": "parent", "text": "word1", "labels": ["label 1"]}])
    assert "is open for writing by process" in in_a_fork(lambda: Store.open(small._folder).close())
    assert_is_that_of_its_documents(small)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_that_lives_on_does_not_keep_the_right_to_write(folder: Path) -> None:
    code = (
        "import os, sys; from ripml import Store\n"
        "store = Store.open(sys.argv[1])\n"
        "if os.fork():\n    os._exit(0)\n"
        "print('forked', flush=True)\n"
        "sys.stdin.read()"
    )
    Store.create(folder, example(), settings()).close()
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "forked\n"  # the child has closed the lock file it inherited
        process.wait()  # for the parent; the child waits for its input to end
        Store.open(folder).close()
        process.stdin.close()


def test_a_store_that_another_process_changed_in_spite_of_the_lock_is_read_again(small: Store) -> None:
    with small._database.transaction() as connection:
        Draft(connection).add_labels(["by another"])
    with pytest.raises(StoreError, match=r"another process has changed this store; nothing was changed, try again"):
        small.learn([{"id": "x", "text": "word1", "labels": ["label 1"]}])
    small.learn([{"id": "x", "text": "word1", "labels": ["label 1"]}])
    assert "by another" in small.model.model.classes_
    assert_is_that_of_its_documents(small)


def test_a_store_that_is_replaced_while_open_is_not_written_to(folder: Path) -> None:
    Store.create(folder, example(), settings()).close()
    shutil.copytree(folder, folder.with_name("copy"))
    opened, reader = Store.open(folder), Store.open(folder, readonly=True)
    opened.learn([{"id": "a", "text": "word1", "labels": ["label 1"]}])
    reader.refresh()
    shutil.rmtree(folder)
    with pytest.raises(StoreError, match=r"was removed or replaced while it was open; nothing was changed"):
        opened.learn([{"id": "b", "text": "word1", "labels": ["label 1"]}])
    shutil.move(folder.with_name("copy"), folder)
    with pytest.raises(StoreError, match=r"was removed or replaced while it was open; nothing was changed"):
        opened.snapshot()
    with pytest.warns(RuntimeWarning, match=r"was removed or replaced while it was open"):
        opened.close()
    reader.refresh()  # follows to the copy
    assert (reader.version, len(reader)) == (0, 40)
    reader.close()
    with Store.open(folder) as restored:
        assert len(restored) == 40
        assert_is_that_of_its_documents(restored)


@pytest.mark.parametrize("preset", [RIPML, RIPML.linear])
def test_a_store_of_many_texts_keeps_the_features_with_which_it_can_learn_exactly(
    preset: Callable[..., RIPML], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("ripml.regression", "ripml.model.fitting"):
        monkeypatch.setattr(f"{module}.CLOSED_FORM_LIMIT", 30)
    monkeypatch.setattr("ripml.model.fitting._KERNEL_ROWS", 30)
    with Store.create(folder, example(70), preset(random_state=0, n_jobs=1)) as store:
        assert store.model.text is not None
        assert sum(store.model.text.views) < 30
        store.learn([{"id": "new", "text": "a text of new words", "labels": ["new"]}])
        assert_is_that_of_its_documents(store, 1e-4)  # scores are float32
        store.refit()
        assert store.model.model.model_.exact
    few = TfIdf(min_df=1, max_features=25)  # more than a store takes by itself, and exact
    monkeypatch.setattr("ripml.store.recipe._WORDS", 10)
    with Store.create(folder.parent / "few", example(70), preset(random_state=0, n_jobs=1), features=few) as store:
        assert store.model.text is not None
        assert store.model.text.recipe() == few.recipe()
    rows = Dataset(X=csr_array(np.eye(60, dtype=np.float32)), Y=csr_array(np.ones((60, 1))), label_names=["a"], name="")
    with pytest.raises(ParameterError, match=r"got 60 rows with 60 features\. Use n_clusters, or fewer features\."):
        Store.create(folder.parent / "rows", rows, preset(random_state=0, n_jobs=1))


def test_a_creation_that_fails_leaves_an_empty_folder_empty(folder: Path) -> None:
    folder.mkdir()
    with pytest.raises(ParameterError, match=r"stops short of the exact solution"):
        Store.create(folder, example(), RIPML.paper(n_dims=8, solver="cg", ridge=1.0))
    assert list(folder.iterdir()) == []


def test_rules_follow_the_labels_that_they_name(folder: Path) -> None:
    rules = Rules(stop_labels=["label 1", "label 2"], allowed_labels=LABELS)
    with Store.create(folder, example(), settings(), rules=rules) as opened:
        opened.rename_label("label 1", "first")
        opened.merge_labels(["label 2"], into="label 3")
        assert opened.model.rules.stop_labels == {"first"}
        assert opened.model.rules.allowed_labels == frozenset({"first", *LABELS} - {"label 1", "label 2"})
        suggested = {name for labels in opened.model.suggest(example().texts or []) for name, _ in labels}
        assert "label 3" in suggested
        assert "first" not in suggested
    with Store.open(folder) as opened:
        assert opened.model.rules.stop_labels == {"first"}


def test_history_outlives_a_snapshot(small: Store) -> None:
    small.relabel("0", ["label 1"])
    small.relabel("0", ["label 2", "new"])
    small.snapshot()
    assert [(entry["before"], entry["after"]) for entry in small.history(1)] == [(["label 1"], ["label 2", "new"])]
    small.compact()
    assert small.history(2)[1]["before"] is None


def numbers_in(folder: Path) -> set[float]:
    """The numbers of all arrays of the model, rounded to six digits."""
    found: set[float] = set()
    for path in folder.rglob("*.npy"):
        array = np.load(path)
        if array.dtype.kind == "f":
            found |= {float(f"{x:.6g}") for x in np.abs(array).ravel().tolist()}
    return found


@pytest.mark.parametrize("n_clusters", [1, 2])
def test_no_number_of_forgotten_features_is_left_after_compacting(folder: Path, n_clusters: int) -> None:
    data = data_of("lists")
    outlier = [50.0, 0, 0, 0, 0, 3.25]
    rows = csr_array(np.vstack([data.X.toarray()[:, :5] @ np.eye(5, 6), [outlier]]))
    labels = csr_array(np.vstack([data.Y.toarray(), data.Y.toarray()[:1]]))
    data = Dataset(X=rows, Y=labels, label_names=data.label_names, ids=[*map(str, range(40)), "outlier"], name="rows")
    model = RIPML.paper(n_dims=8, n_neighbors=2, ridge=0.5, n_clusters=n_clusters, random_state=0, n_jobs=1)
    Store.create(folder, data, model).close()
    with Store.open(folder) as opened:
        opened.forget(["outlier"])
        opened.compact()
        assert_is_that_of_its_documents(opened)
        for cluster in opened.model.model.clusters_:
            assert isinstance(cluster.regression, LinearRegression)
            assert not cluster.regression.Psi[5].any()
    unit = np.array(outlier) / np.linalg.norm(outlier)
    numbers = numbers_in(folder)
    for number in (*outlier, *unit, *unit**2):
        if number:
            assert not numbers & {float(f"{number:.6g}"), float(f"{np.float32(number):.6g}")}


def test_a_store_can_forget_all_documents_and_be_compacted(folder: Path) -> None:
    with Store.create(folder, example(), RIPML.paper(n_dims=8, n_clusters=3, random_state=0, n_jobs=1)) as opened:
        opened.forget(opened.ids())
        assert opened.model.explain(["word1 word2"]) == [[]]
        opened.compact()
        assert not opened.model.model.centres_.any()
        opened.learn([{"id": "x", "text": "word1", "labels": ["label 1"]}])
        assert_is_that_of_its_documents(opened)


def test_merging_needs_at_least_one_label(small: Store) -> None:
    with pytest.raises(DataError, match=r"^there are no labels to be merged into 'x'\.$"):
        small.merge_labels([], into="x")


def test_the_cost_of_a_long_history_is_a_constant_number_of_statements() -> None:
    connection = sqlite3.connect(":memory:")
    write_schema(connection)
    draft = Draft(connection)
    for number in range(60):
        draft.put(f"{number % 20}", b"word", [draft.label(f"label {number % 7}"), draft.label("other")])
    for number in range(0, 20, 2):
        draft.remove(f"{number}")

    def statements(n: int) -> int:
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        assert len(journal.history(connection, n)) == n
        connection.set_trace_callback(None)
        return len(seen)

    assert statements(70) == statements(2) <= 4
    entries = journal.history(connection, 70)
    assert entries[:3] == journal.history(connection, 3)
    assert [entry["id"] for entry in entries[:10]] == [f"{number}" for number in range(18, -1, -2)]
    states: dict[str, list[str] | None] = {}
    for entry in reversed(entries):
        assert entry["before"] == states.get(entry["id"])
        states[entry["id"]] = entry["after"]
    assert set(states["1"] or ()) == {"label 6", "other"}
    assert states["0"] is None
    connection.close()
