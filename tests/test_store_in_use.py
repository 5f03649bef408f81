"""A store while others use it: refits, snapshots and compact beside writers, completion of labels, pages, copies for
readers, rules and encoders that stay."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_writer import LABELS, example, settings
from test_store import assert_is_that_of_its_documents

from ripml.base.errors import ParameterError
from ripml.datasets import documents_given
from ripml.model.estimator import RIPML
from ripml.store import Store, StoreError, database
from ripml.store import store as store_module
from ripml.store.journal import Snapshot
from ripml.store.versions import Version
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules
from ripml.text import TfIdf


def test_others_write_and_read_while_a_refit_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.create(tmp_path / "store", example(), settings()) as store:
        fit = DocumentModel.fit
        during: list[str] = []

        def fit_while_others_write(*arguments: Any, **named: Any) -> DocumentModel:
            fitted = fit(*arguments, **named)
            if not during:
                during.extend(store.learn([{"id": "meanwhile", "text": "word1 brand", "labels": ["brand new"]}]))
                store.relabel("1", ["brand new", LABELS[0]])
                store.forget(["0"])
                store.rename_label(LABELS[0], "another")
                with pytest.raises(StoreError, match="a refit is already running"):
                    store.refit()
            return fitted

        monkeypatch.setattr(DocumentModel, "fit", fit_while_others_write)
        store.refit()
        assert during == ["meanwhile"]
        assert "0" not in store.ids()
        assert store.document("1")["labels"] == ["another", "brand new"]
        assert [label.count for label in store.labels("brand new")] == [2]
        assert store.history(1)[0]["kind"] == "refit"
        answers, model = store.model.suggest(["word1 word2", "brand"]), store.model.model
        assert model.warm_["learnt"] == 1
        assert_is_that_of_its_documents(store)
    with Store.open(tmp_path / "store") as again:
        assert again.model.suggest(["word1 word2", "brand"]) == answers
        again.learn([{"text": "word3", "labels": ["later"]}])


def test_a_refit_begins_again_when_the_journal_was_cut_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.create(tmp_path / "store", example(), settings()) as store:
        fit, fits = DocumentModel.fit, list[int]()

        def fit_while_another_compacts(*arguments: Any, **named: Any) -> DocumentModel:
            fitted = fit(*arguments, **named)
            fits.append(len(arguments[0]))
            if len(fits) == 1:
                store.learn([{"id": "meanwhile", "text": "word1 brand", "labels": ["brand new"]}])
                store.compact()
            return fitted

        monkeypatch.setattr(DocumentModel, "fit", fit_while_another_compacts)
        n = len(store)
        store.refit()
        assert fits == [n, n + 1]
        assert store.model.model.warm_["learnt"] == 0


def test_warming_up_changes_no_answer(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", example(), settings()) as store:
        before = store.model.suggest(["word1 word2"])
        store.warm_up()
        assert store.model.suggest(["word1 word2"]) == before
        version = store.version
        store.learn([{"text": "word1", "labels": ["brand new"]}])
        assert store.version > version
    with Store.open(tmp_path / "store", readonly=True) as reader, pytest.raises(StoreError, match="readonly=True"):
        reader.warm_up()


def test_a_light_reader_waits_for_a_snapshot_instead_of_solving_a_large_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, texts = tmp_path / "store", ["word1 word2", "brand"]
    with Store.create(folder, example(), settings()) as store, Store.open(folder, readonly=True, light=True) as reader:
        store.learn([{"text": "word1 brand", "labels": ["brand new"]}])
        assert reader.refresh().suggest(texts) == store.model.suggest(texts)  # a small system is solved
        monkeypatch.setattr("ripml.store.store._LIGHT_EQUATIONS", 1)
        store.snapshot()
        with Store.open(folder, readonly=True, light=True) as late:
            before = late.model.suggest(texts)
            store.learn([{"text": "word2 brand", "labels": ["brand new"]}])
            with Store.open(folder, readonly=True, light=True) as later:
                for light in (late, later):
                    assert (light.refresh().suggest(texts), light.version) == (before, store.version - 1)
            store.snapshot()
            assert (late.refresh().suggest(texts), late.version) == (store.model.suggest(texts), store.version)
            store.add_labels(["no rows change"])
            assert "no rows change" in late.refresh().model.classes_
    with pytest.raises(ParameterError, match="only readers can be light"):
        Store.open(folder, light=True)


def test_labels_are_found_by_the_beginnings_of_their_words(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", example(), settings()) as store:
        store.learn([{"text": "word1", "labels": ["Green tea", "tea"]}, {"text": "word2", "labels": ["tea", "Größe"]}])
        store.retire_label("Green tea")
        found = store.labels("TE")
        assert [(label.name, label.count, label.retired) for label in found] == [
            ("tea", 2, False), ("Green tea", 1, True)
        ]  # fmt: skip
        assert [label.name for label in store.labels("grö")] == ["Größe"]
        assert len(store.labels("", n=3)) == 3
        assert store.labels("no such") == []
        assert [label.name for label in store.labels("green teh")] == ["Green tea"]  # one mistake
        with pytest.raises(ParameterError, match="`n` must be an integer ≥ 1; got 0"):
            store.labels("", n=0)


def test_writers_go_on_while_a_snapshot_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "store"
    with Store.create(folder, example(), settings()) as store:
        store.learn([{"id": "before", "text": "word1 word2", "labels": ["label 1", "brief"]}])
        save, copies = database.save_model, list[int]()

        def save_while_others_write(folder: Path, change: int, model: DocumentModel) -> Snapshot:
            if not copies:
                copies.append(change)
                with ThreadPoolExecutor(1) as pool:  # in another thread, which waits for no lock of this one
                    pool.submit(store.learn, [{"id": "meanwhile", "text": "word3", "labels": ["brand new"]}]).result(60)
                    pool.submit(store.forget, ["before"]).result(60)
                    pool.submit(store.merge_labels, ["brief"], "label 1").result(60)
            return save(folder, change, model)

        monkeypatch.setattr(database, "save_model", save_while_others_write)
        store.snapshot()
        assert copies == [1]
        assert store._database.read(Snapshot.read).change == 1  # what came later is in the journal
        assert store.check(full=True).ok
        with Store.open(folder, readonly=True) as reader:  # as after a crash
            assert reader.version == store.version
            assert reader.model.suggest(["word3 word1"]) == store.model.suggest(["word3 word1"])
        store.snapshot()
        assert store._database.read(Snapshot.read).change == store.version
        assert [path.name for path in folder.glob("model-*")] == [Snapshot(store.version).folder]


@pytest.mark.parametrize("written_before", [False, True])
def test_writers_go_on_while_a_refit_reads_the_documents(
    written_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(tmp_path / "store", example(), settings()).close()
    with Store.open(tmp_path / "store") as store:
        if written_before:
            store.forget(["7"])
        read, n_reads = store_module._documents_and_labels, list[int]()

        def read_while_others_write(connection: Any) -> Any:
            n_reads.append(store.version)
            if len(n_reads) == 1:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(store.learn, [{"id": "x", "text": "word3", "labels": ["brand new"]}]).result(60)
                    pool.submit(store.rename_label, "label 0", "another").result(60)
            return read(connection)

        monkeypatch.setattr(store_module, "_documents_and_labels", read_while_others_write)
        store.refit()
        kinds = [entry["kind"] for entry in store.history(3)]
        assert kinds == ["refit", "rename label", "learn"]
        assert {"another", "brand new"} <= set(store.model.model.classes_)
        assert store.check(full=True).ok
        assert_is_that_of_its_documents(store)


@pytest.mark.parametrize("meanwhile", ["learn", "forget"])
def test_writers_go_on_while_compact_looks_through_the_documents(
    meanwhile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = documents_given(["red apple", "green apple", "red sky", "grey sea"], [["a"], ["a"], ["b"], ["b"]])
    with Store.create(tmp_path / "store", data, settings(), features=TfIdf(min_df=1)) as store:
        store.forget(["3"])
        unused, scans = Version.unused_features, list[int]()

        def look_while_others_write(version: Version, blocks: Any) -> Any:
            found = unused(version, blocks)
            if not scans:
                with ThreadPoolExecutor(1) as pool:
                    if meanwhile == "learn":
                        pool.submit(store.learn, [{"id": "new", "text": "grey apple", "labels": ["a"]}]).result(60)
                    else:
                        pool.submit(store.forget, ["1"]).result(60)
            scans.append(version.change)
            return found

        monkeypatch.setattr(Version, "unused_features", look_while_others_write)
        store.compact()
        words = store.model.columns or []
        expected = {"learn": {"grey", "green"}, "forget": set()}[meanwhile] | {"red", "apple", "sky"}
        assert {word for word in words if not word.startswith(("\0", " "))} == expected
        assert store.verify().ok
        n_scans = len(scans)
        store.learn([{"text": "red red", "labels": ["b"]}])
        store.compact()  # nothing was removed since: there is nothing to look for
        assert len(scans) == n_scans
        assert store.verify().ok


def test_pages_of_the_history_and_of_documents_put_together_are_all_of_them(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", example(12), settings()) as store:
        for i in range(4):
            store.relabel({"1": [f"label {i}"], "2": ["label 0", f"new {i}"]})
        store.forget(["3", "1"])
        store.forget(["2"], certify=True)
        store.learn([{"id": "1", "text": "word1", "labels": ["label 1"]}, {"id": "x", "text": "word2", "labels": []}])
        whole, pages = store.history(1000), list[dict[str, Any]]()
        while page := store.history(3, pages[-1]["number"] if pages else None):
            pages += page
        assert pages == whole
        ids, last = list[str](), 0
        while numbered := store.numbered_ids(4, last):
            ids, last = [*ids, *numbered.values()], max(numbered)
        assert ids == store.ids()
        assert len(store) == len(ids)
        store.compact()
        assert store.history(3, before=store.version) == store.history(4)[1:]
        with pytest.raises(ParameterError, match="`before` must be None or an integer ≥ 1; got 0"):
            store.history(before=0)
        with pytest.raises(ParameterError, match="`after` must be an integer ≥ 0; got -1"):
            store.numbered_ids(after=-1)


def test_readers_follow_what_is_published(tmp_path: Path) -> None:
    folder, shared = tmp_path / "store", tmp_path / "shared"
    with Store.create(folder, example(), settings()) as store:
        assert store.publish(shared / "tags").change == 0  # type: ignore[union-attr]
        assert store.publish(shared / "tags") is None
        with Store.open(shared / "tags", readonly=True, light=True) as reader:
            for number in range(1, 5):
                store.learn([{"text": "word1 word2", "labels": [f"new {number}"]}])
                assert reader.refresh().suggest(["word1"]) != store.model.suggest(["word1"])
                assert store.publish(shared / "tags").change == number  # type: ignore[union-attr]
                assert reader.refresh().suggest(["word1"]) == store.model.suggest(["word1"])
                assert (reader.version, len(reader)) == (number, len(store))
                assert len(list(shared.iterdir())) == 3  # the link, its copy, and the one before
        with pytest.raises(StoreError, match="already exists and is not a published store"):
            store.publish(folder)
        assert Store.open(shared / "tags", readonly=True).check(full=True).ok


def test_rules_and_an_encoder_stay_with_a_store(tmp_path: Path) -> None:
    class Lengths:
        """An encoder of two dimensions."""

        def encode(self, texts: list[str]) -> Any:
            return np.array([[len(text), 1 + text.count(" ")] for text in texts])

    data = documents_given(["a b c", "a bb", "ccc dd", "e"], [["many"], ["two"], ["two"], ["one"]])
    model = RIPML.linear(random_state=0)
    rules = Rules(n=1, stop_labels=["one"])
    with Store.create(tmp_path / "store", data, model, features=Lengths(), rules=rules) as store:
        store.learn([{"text": "f g h", "labels": ["many"]}])
        answers = store.model.suggest(["x y z"])
        assert len(answers[0]) == 1
        store.refit()
        store.compact()
    with Store.open(tmp_path / "store", encoder=Lengths()) as store:
        assert store.model.rules == rules
        assert len(store.model.suggest(["x y z"])[0]) == 1
    with (
        Store.open(tmp_path / "store", readonly=True) as store,
        pytest.raises(ParameterError, match="pass it again as `encoder`"),
    ):
        store.model.suggest(["x y z"])
