"""Labels of a store that are listed, looked at, added, renamed, merged, retired, and had back."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from store_writer import settings
from test_store import assert_is_that_of_its_documents, crash_image

from ripml.base.errors import DataError, ParameterError
from ripml.cli import main
from ripml.datasets import Dataset
from ripml.labels.concepts import Concept, Concepts
from ripml.model.estimator import RIPML
from ripml.store import Store

MODELS = {
    "default": RIPML(n_jobs=1, random_state=0),
    "linear": RIPML.linear(n_jobs=1, random_state=0),
    "paper": RIPML.paper(n_dims=12, n_neighbors=3, n_jobs=1, random_state=0),
    "deterministic": settings().set_params(ensemble="deterministic", n_dims=31),
}
TEXTS = [
    f"{colour} {fruit} number {i}"
    for i in range(3)
    for colour in ("red", "green")
    for fruit in ("apple", "plum", "fig")
]
LABELS = ["apple", "fig", "green", "plum", "red"]
CONCEPTS = Concepts.of(
    [
        Concept("fruit", {"en": "Fruit", "de": "Obst"}),
        Concept("apple", {"en": "apple", "de": "Zapfel"}, broader=("fruit",), related=("plum",)),
        Concept("plum", {"en": "plum", "de": "Pflaume"}, {"en": ("prune",)}, broader=("fruit",)),
        Concept("red", {"en": "red", "de": "Apfelrot"}),
    ]
)


def created(place: Path, name: str = "linear", **options: Any) -> Store:
    Y = np.array([[label in text.split() for label in LABELS] for text in TEXTS], np.float32)
    data = Dataset(X=None, Y=csr_array(Y), label_names=LABELS, texts=TEXTS, name="fruit")
    return Store.create(place, data, MODELS[name].cloned(), **options)


def scores(store: Store) -> dict[str, list[float]]:
    """The scores of each label for some texts."""
    model = store.model
    found = model.model.decision_function(model.features_of(TEXTS[:6])).toarray().T
    return dict(zip(map(str, model.model.classes_), found.tolist(), strict=True))


def assert_near(found: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    assert found.keys() == expected.keys()
    for label, values in expected.items():
        np.testing.assert_allclose(found[label], values, atol=1e-4)


def documents(store: Store) -> list[Any]:
    return [store.document(id) for id in store.ids()]


@pytest.mark.parametrize("name", MODELS)
def test_a_merge_makes_the_store_that_never_had_the_label(name: str, tmp_path: Path) -> None:
    """The model after a merge is the one that has the same frozen parts and learns the documents with B for A."""
    with created(tmp_path / "store", name) as store:
        store.decide({"id": "open", "text": "a fig or a plum"}, ["fig"], ["red"])
        now = {"fig": "plum"}
        carried = {id: [now.get(label, label) for label in store.document(id)["labels"]] for id in store.ids()}
        counted = store.merging(["fig"], "plum")
        assert (counted.documents, counted.both, counted.decided) == (6, 0, 1)
        store.merge_labels(["fig"], "plum")
        assert {id: sorted(store.document(id)["labels"]) for id in store.ids()} == {
            id: sorted(labels) for id, labels in carried.items()
        }
        assert store.document("open")["accepted"] == ["plum"]
        assert "fig" not in store.model.model.classes_
        assert store.check(full=True).ok


@pytest.mark.parametrize("name", MODELS)
def test_a_new_name_keeps_all_scores_to_the_last_bit(name: str, tmp_path: Path) -> None:
    with created(tmp_path / "store", name) as store:
        before = scores(store)
        store.rename_label("fig", "Ficus carica")
        after = scores(store)
        assert after.pop("Ficus carica") == before.pop("fig")
        assert after == before


@pytest.mark.parametrize("name", MODELS)
def test_a_merge_that_is_taken_back_restores_documents_decisions_and_scores(name: str, tmp_path: Path) -> None:
    with created(tmp_path / "store", name) as store:
        store.decide({"id": "open", "text": "apple or fig"}, ["fig"], ["apple"])
        store.retire_label("apple")
        known, expected = documents(store), scores(store)
        store.merge_labels(["apple", "fig"], "pome")
        merged = store.version
        assert store.document("open")["accepted"] == ["pome"]
        store.snapshot()  # the rows of the removed labels are gone from here on
        undone = store.undo_labels(merged)
        assert (undone.documents, undone.changed_since) == (13, 0)
        assert documents(store) == known
        assert_near(scores(store), expected)
        assert store.label("apple").retired
        assert "pome" not in store.model.model.classes_
        assert store.check(full=True).ok
        with Store.open(crash_image(tmp_path / "store")) as again:
            assert documents(again) == known
            assert_near(scores(again), expected)
        with pytest.raises(DataError, match="was taken back already"):
            store.undo_labels(merged)


def test_documents_that_changed_after_a_merge_keep_what_was_changed(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store:
        carriers = store.label("fig", 6).examples
        store.merge_labels(["fig"], "plum")
        merged = store.version
        store.relabel(carriers[0], ["plum", "new"])  # still has what the fig became
        store.relabel(carriers[1], ["red"])  # has not
        store.forget([carriers[2]])
        undone = store.undo_labels(merged)
        assert (undone.documents, undone.changed_since) == (3, 3)
        assert sorted(store.document(carriers[0])["labels"]) == ["fig", "new"]
        assert store.document(carriers[1])["labels"] == ["red"]
        assert store.label("fig").count == 4
        assert_is_that_of_its_documents(store, 1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_of_labels_taken_back_in_reverse_order_leave_the_store_as_it_was(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    with created(tmp_path / "store") as store:
        known, expected = documents(store), scores(store)
        made = []
        for number in range(8):
            one, other = rng.sample([label.name for label in store.browse_labels().labels], 2)
            change: Callable[[], None] = rng.choice(
                [
                    lambda: store.rename_label(one, f"name {number}"),  # noqa: B023
                    lambda: store.merge_labels([one], other),  # noqa: B023
                    lambda: store.retire_label(one),  # noqa: B023
                    lambda: store.add_label(f"added {number}", {"en": [f"word {number}"]}),  # noqa: B023
                ]
            )
            if len(store.model.model.classes_) > 2:
                change()
                made.append(store.version)
            if rng.random() < 0.3:
                store.snapshot()
        for change_number in reversed(made):
            store.undo_labels(change_number)
        assert documents(store) == known
        assert not store.model.concepts
        assert_near(scores(store), expected)
        assert store.check(full=True).ok


def test_the_vocabulary_is_as_before_when_a_change_is_taken_back_and_a_store_that_was_killed_agrees(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "store"
    with created(folder, vocabulary=CONCEPTS) as store, Store.open(folder, readonly=True) as reader:
        changes: list[Callable[[], None]] = [
            lambda: store.merge_labels(["plum"], "apple"),
            lambda: store.merge_labels(["fruit", "fig"], "new"),
            lambda: store.rename_label("fruit", "Obst"),
            lambda: store.add_label("quince", {"en": ["quince"]}),
        ]
        known, concepts = documents(store), dict(store.model.concepts or {})
        for change in changes:
            change()
            assert dict(store.model.concepts or {}) != concepts
            store.undo_labels(store.version)
            assert dict(store.model.concepts or {}) == concepts
            assert documents(store) == known
            reader.refresh()
            assert_near(scores(reader), scores(store))
            with Store.open(crash_image(folder)) as again:
                assert_near(scores(again), scores(store))
        store.add_label("quince", {"en": ["quince"]})
        added = store.version
        store.set_vocabulary(CONCEPTS.updated(Concepts.of([Concept("quince", {"en": "Cydonia"})])))
        with pytest.raises(DataError, match="the concept 'quince' was changed in the vocabulary since"):
            store.undo_labels(added)


def test_what_later_changes_stand_in_the_way_of_is_not_taken_back(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store:
        store.rename_label("fig", "Ficus")
        renamed = store.version
        store.rename_label("Ficus", "fig tree")
        with pytest.raises(DataError, match="'Ficus' was renamed or merged since"):
            store.undo_labels(renamed)
        store.merge_labels(["apple"], "plum")
        merged = store.version
        store.learn([{"text": "another apple", "labels": ["apple"]}])
        with pytest.raises(DataError, match="there is a label 'apple' again"):
            store.undo_labels(merged)
        store.add_labels(["berry"])
        added = store.version
        store.learn([{"id": "b", "text": "a berry", "labels": ["berry"]}])
        with pytest.raises(DataError, match="documents carry the label 'berry' by now"):
            store.undo_labels(added)
        with pytest.raises(DataError, match="is not one of labels but 'learn'"):
            store.undo_labels(store.version)
        with pytest.raises(DataError, match="there is no change 9,999"):
            store.undo_labels(9999)
        version = store.version
        store.compact()
        with pytest.raises(DataError, match="no longer in the history"):
            store.undo_labels(merged)
        assert store.version == version + 1


def test_the_history_of_a_merge_survives_a_compaction_that_keeps_it_only_while_its_labels_do(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store:
        store.retire_label("plum")
        retired = store.version
        store.merge_labels(["fig"], "apple")
        merged = store.version
        store.compact(keep_history=10)
        store.undo_labels(retired)
        with pytest.raises(DataError, match="no longer in the history"):  # it names a label that is gone
            store.undo_labels(merged)
    database = tmp_path / "store" / "store.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("DROP TABLE words")  # the index of the texts, which stay
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"fig" not in database.read_bytes().replace(b"fig number", b"")


def test_labels_are_listed_in_pages_of_every_order(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store:
        store.add_labels(["Zebra", "banana"])
        store.relabel("0", ["Zebra", "apple"])
        names = [label.name for label in store.browse_labels().labels]
        assert names == ["apple", "banana", "fig", "green", "plum", "red", "Zebra"]
        assert [label.name for label in store.browse_labels("name", 2, 3).labels] == ["green", "plum"]
        assert store.browse_labels("name", 2, 3).total == 7
        by_count = store.browse_labels("count").labels
        assert [label.count for label in by_count] == sorted([label.count for label in by_count], reverse=True)
        assert [label.name for label in by_count if label.count == 6] == ["apple", "fig", "plum"]  # then by name
        assert [label.name for label in store.browse_labels("rarest", 2).labels] == ["banana", "Zebra"]
        assert [label.name for label in store.browse_labels("newest", 2).labels] == ["banana", "Zebra"]
        store.rename_label("banana", "Yam")
        assert [label.name for label in store.browse_labels().labels][-2:] == ["Yam", "Zebra"]
        assert store.browse_labels("name", 5, 100).labels == []
        with pytest.raises(ParameterError, match="must be one of name, count, rarest, newest, precision"):
            store.browse_labels("size")  # type: ignore[arg-type]


def test_labels_are_listed_by_the_precision_of_the_last_report_lowest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ripml.model.quality.ENOUGH_ROWS", 1)  # as if these were enough
    with created(tmp_path / "store", "default") as store:
        assert store.label("fig").quality is None
        assert [label.name for label in store.browse_labels("precision").labels] == LABELS
        found = {label.label: label.precision for label in store.quality().labels}
        order = [label.name for label in store.browse_labels("precision").labels]
        known = [found[name] for name in order if found[name] is not None]
        assert known == sorted(known)  # type: ignore[type-var]
        store.rename_label("fig", "Ficus")
        quality = store.label("Ficus").quality
        assert quality is not None
        assert (quality.label, quality.precision) == ("Ficus", found["fig"])


def test_labels_of_a_vocabulary_are_listed_by_their_names_in_the_language_of_the_reader(tmp_path: Path) -> None:
    with created(tmp_path / "store", vocabulary=CONCEPTS) as store:
        german = [label.name for label in store.browse_labels("name", 10, 0, "de").labels]
        assert german == ["red", "fig", "green", "fruit", "plum", "apple"]  # Apfelrot, …, Obst, Pflaume, Zapfel
        english = [label.name for label in store.browse_labels("name", 10, 0, "en").labels]
        assert english == ["apple", "fig", "fruit", "green", "plum", "red"]
        store.rename_label("green", "aa")
        assert [label.name for label in store.browse_labels("name", 1, 0, "en").labels] == ["aa"]


def test_a_label_is_added_by_words_and_suggested_before_any_document_carries_it(tmp_path: Path) -> None:
    with created(tmp_path / "store", "default", vocabulary=CONCEPTS) as store:
        store.add_label("quince", {"en": ["quince", "Cydonia oblonga"]})
        found = store.model.suggest(["green quince and Cydonia oblonga jam"], store.model.rules.but(max_count=0))[0]
        assert [label for label, _ in found] == ["quince"]
        detail = store.label("quince")
        assert (detail.count, detail.declared, detail.is_label) == (0, True, True)
        assert [label.name for label in store.labels("oblonga")] == ["quince"]
        with pytest.raises(DataError, match="has a concept 'quince' already"):
            store.add_label("quince", {"en": ["other"]})
        store.undo_labels(store.version)
        assert "quince" not in (store.model.concepts or {})
        assert not store.labels("oblonga")
        assert not store.label("fruit").is_label or store.label("fruit").count == 0
        with pytest.raises(DataError, match="there is no label 'quince'"):
            store.label("quince")


def test_a_retired_label_is_learnt_and_kept_but_not_suggested(tmp_path: Path) -> None:
    with created(tmp_path / "store") as store:
        store.retire_label("fig")
        store.learn([{"id": "more", "text": "red fig", "labels": ["fig"]}])
        assert store.label("fig").count == 7
        assert "fig" not in [label for label, _ in store.model.suggest(["red fig number"])[0]]
        assert [(label.name, label.retired) for label in store.labels("fi")] == [("fig", True)]
        store.reinstate_label("fig")
        assert "fig" in [label for label, _ in store.model.suggest(["red fig number"])[0]]


def test_the_path_to_a_concept_ends_where_it_would_go_round() -> None:
    concepts = Concepts.of([Concept("a", broader=("c",)), Concept("b", broader=("a",)), Concept("c", broader=("b",))])
    assert concepts.path("c") == ("a", "b")
    assert CONCEPTS.path("apple") == ("fruit",)
    assert CONCEPTS.path("nothing") == ()


def test_the_shell_shows_labels_and_takes_changes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "store")
    created(tmp_path / "store").close()

    def ripml(*words: str) -> Any:
        with pytest.raises(SystemExit, match="0"):
            main(["labels", *words, "--json"])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    shown = ripml("show", folder, "fig")[0]
    assert (shown["label"], shown["documents"], len(shown["examples"])) == ("fig", 6, 5)
    assert [row["label"] for row in ripml("list", folder, "--order", "rarest", "--limit", "2")] == ["apple", "fig"]
    ripml("merge", folder, "fig", "--into", "plum")
    with Store.open(folder, readonly=True) as store:
        merged = store.version
        assert store.label("plum").count == 12
    assert ripml("undo", folder, str(merged))[0]["restored"] == 6
    ripml("add", folder, "quince", "--word", "Cydonia", "--word", "quince")
    with Store.open(folder, readonly=True) as store:
        assert store.label("fig").count == 6
        assert store.model.names(["quince"]) == {"quince": "Cydonia"}
