"""A store while others use it: refits beside writers, completion of labels, rules and encoders that stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_writer import LABELS, example, settings
from test_store import assert_is_that_of_its_documents

from ripml.base.errors import ParameterError
from ripml.datasets import documents_given
from ripml.model.estimator import RIPML
from ripml.store import Store, StoreError
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules


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
        with pytest.raises(ParameterError, match="`n` must be an integer ≥ 1; got 0"):
            store.labels("", n=0)


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
