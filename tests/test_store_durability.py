"""What a store survives: older formats, restored copies, damaged files; and the ways to back it up and to mend it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.folders import PLACE
from sklearn.feature_extraction.text import HashingVectorizer
from store_writer import example, settings
from test_store import FORMS, assert_is_that_of_its_documents, body, crash_image, data_of, everything

from ripml import datasets
from ripml.base.errors import DataError, ParameterError
from ripml.model.estimator import RIPML
from ripml.regression import RBF
from ripml.store import Store, StoreError, maintenance
from ripml.store.documents import Bodies
from ripml.store.journal import chain_entry
from ripml.store.recipe import Recipe
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules
from ripml.text import Doc2Vec, Encoder, TfIdf


def document(id: str, *labels: str) -> dict[str, Any]:
    return {"id": id, "text": f"word1 word2 {id}", "labels": list(labels or ("label 1",))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def journal_of(folder: Path) -> tuple[bytes, list[tuple[Any, ...]]]:
    """The id of a store, and the entries of its journal with all that the chain is made of."""
    with closing(sqlite3.connect(f"file:{folder / 'store.db'}?mode=ro", uri=True)) as connection:
        (id,) = connection.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()
        columns = "number, time, kind, actor, certificate, nonce, chain"
        return id, connection.execute(f"SELECT {columns} FROM changes ORDER BY number").fetchall()


def assert_is_chained(folder: Path) -> list[tuple[Any, ...]]:
    """Each entry of the journal has the hash of the one before it, from the id of the store on."""
    chain, entries = journal_of(folder)
    for *entry, found in entries:
        chain = chain_entry(chain, *entry)
        assert found == chain
    return entries


# ------------------------------------------------------------------------------------------------ the journal's chain


def test_the_history_names_who_made_each_change(folder: Path) -> None:
    with Store.create(folder, example(), settings()) as store:
        store.learn([document("a"), document("b")], actor="ann")
        store.relabel("a", ["label 2"], actor="ben")
        store.forget(["b"])
        store.add_labels(["declared"], actor="ann")
        store.rename_label("declared", "renamed", actor="key 1")
        store.merge_labels(["renamed"], "label 0", actor="key 2")
        store.retire_label("label 0", actor="key 3")
        store.reinstate_label("label 0", actor="key 4")
        store.refit(actor="key 5")
        store.compact(actor="key 6")
        actors = [entry["actor"] for entry in store.history()]
        assert actors == ["key 6", "key 5", "key 4", "key 3", "key 2", "key 1", "ann", None, "ben", "ann", "ann"]
        with pytest.raises(ParameterError, match="`actor` must be a name or None; got 7"):
            store.forget(["a"], actor=7)  # type: ignore[arg-type]
    assert_is_chained(folder)


def test_the_chain_outlives_a_compaction_and_differs_between_two_stores_with_equal_changes(tmp_path: Path) -> None:
    chains = []
    for name in ("one", "two"):
        with Store.create(tmp_path / name, example(), settings()) as store:
            store.learn([document("a")], actor="ann")
            store.forget(["a"], actor="ann")
            before = assert_is_chained(tmp_path / name)
            store.compact()
            assert assert_is_chained(tmp_path / name)[: len(before)] == before
        chains += [entry[-1] for entry in before]
    assert len(set(chains)) == 4


@pytest.mark.parametrize("name", ["store", "store-with-journal"])
def test_a_store_of_format_1_is_read_as_it_is_and_brought_to_format_2_by_a_writer(folder: Path, name: str) -> None:
    shutil.copytree(PLACE / name, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with Store.open(folder, readonly=True) as reader:
        history, documents = reader.history(100), [reader.document(id) for id in reader.ids()]
        assert {entry["actor"] for entry in history} == {None}
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
        with Store.open(folder) as store:
            assert len(assert_is_chained(folder)) == len(history)
            assert (store.history(100), [store.document(id) for id in store.ids()]) == (history, documents)
            store.add_labels(["new"], actor="ann")
            reader.refresh()  # a reader that opened the store in format 1 follows
            assert reader.history(1)[0]["actor"] == "ann"
            assert "new" in reader.model.model.classes_
    assert len(assert_is_chained(folder)) == len(history) + 1
    with Store.open(folder, readonly=True) as again:
        assert [entry["time"] for entry in again.history(100)[1:]] == [entry["time"] for entry in history]


# -------------------------------------------------------------------------------------- files that others put in place


def copy_over(source: Path, target: Path) -> None:
    """What an administrator does: the files keep their inodes."""
    subprocess.run(["cp", "-a", f"{source}/.", f"{target}/"], check=True)


def documents_of(store: Store) -> list[dict[str, Any]]:
    return [store.document(id) for id in store.ids()]


def assert_same_answers(found: DocumentModel, expected: DocumentModel) -> None:
    data = data_of("text")
    np.testing.assert_allclose(found.scores(data).toarray(), expected.scores(data).toarray(), atol=1e-8)


def test_a_reader_notices_a_copy_that_is_restored_in_place(folder: Path, tmp_path: Path) -> None:
    with Store.create(folder, example(), settings()) as store:
        store.learn([document("a"), document("b")])
    shutil.copytree(folder, tmp_path / "copy")
    with Store.open(folder) as store:
        store.learn([document(f"lost {i}", "label 2") for i in range(5)])
        store.forget(["0"])
    reader = Store.open(folder, readonly=True)
    assert (reader.version, len(reader)) == (8, 46)
    inode = (folder / "store.db").stat().st_ino
    copy_over(tmp_path / "copy", folder)
    assert (folder / "store.db").stat().st_ino == inode
    reader.refresh()
    assert (reader.version, len(reader)) == (2, 42)
    assert_is_that_of_its_documents(reader)


def test_a_reader_notices_a_restored_copy_that_has_caught_up_with_it(folder: Path, tmp_path: Path) -> None:
    with Store.create(folder, example(), settings()) as store:
        store.learn([document("a")])
    shutil.copytree(folder, tmp_path / "copy")
    with Store.open(folder) as store:
        store.learn([document(f"lost {i}", "label 2") for i in range(5)])
    reader = Store.open(folder, readonly=True)
    copy_over(tmp_path / "copy", folder)
    with Store.open(folder) as store:  # the same numbers of changes, and more
        store.learn([document(f"new {i}", "label 3") for i in range(7)])
        assert reader.refresh().model.n_rows_ == store.model.model.n_rows_ == 48
    assert reader.version == 8
    assert_is_that_of_its_documents(reader)


@pytest.mark.parametrize("with_log", [True, False])
def test_a_writer_does_not_write_to_files_that_were_replaced_in_place(folder: Path, with_log: bool) -> None:
    Store.create(folder, example(), settings()).close()
    copy = crash_image(folder)
    store = Store.open(folder)
    if with_log:
        store.learn([document("a")])
        copy = crash_image(folder)
    store.learn([document("b")])
    copy_over(copy, folder)
    for _ in range(2):
        with pytest.raises(StoreError, match="was removed or replaced while it was open; nothing was changed"):
            store.learn([document("c")])
    with pytest.warns(RuntimeWarning, match="was removed or replaced while it was open"):
        store.close()


# -------------------------------------------------------------------------------------------------------------- damage


def delete(path: Path, _: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def truncate(path: Path, _: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path, _: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path, _: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


def exchange(path: Path, others: Path) -> None:
    """Put the file of another store in its place."""
    delete(path, others)
    folder = others if path.parent.name == "store" else next(others.glob("model-*"))
    other = next(folder.glob(f"{path.name.partition('-')[0]}*"))
    shutil.copytree(other, path) if other.is_dir() else shutil.copy(other, path)


def lose_pointer(path: Path, _: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM meta WHERE key IN ('change', 'folder', 'manifest')")


def point_elsewhere(path: Path, _: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = '../../elsewhere' WHERE key = 'folder'")


def point_to_older(path: Path, _: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = 0 WHERE key = 'change'")
        connection.execute("UPDATE meta SET value = 'model-000000000000' WHERE key = 'folder'")


def put_older_model(path: Path, _: Path) -> None:
    """The model folder of an earlier snapshot under the name of the current one."""
    shutil.rmtree(path)
    shutil.copytree(path.parent.parent / "older" / "model-000000000000", path)


def plant_newer_model(path: Path, others: Path) -> None:
    """What a snapshot that was killed leaves: half a folder with a higher number."""
    shutil.copytree(path, path.with_name("model-000000000099"))
    next(path.with_name("model-000000000099").glob("Psi*")).unlink()


MODEL, MANIFEST, ARRAY, TABLE = "model-*", "model-*/manifest.json", "model-*/Psi-*", "model-*/store_row_documents-*"
LOG, LOG_INDEX = "store.db-wal", "store.db-shm"

# What is damaged, how, and whether the store opens without a command.
DAMAGES: dict[str, tuple[str, Callable[[Path, Path], None], bool]] = {
    "model folder deleted": (MODEL, delete, False),
    "model folder of another store": (MODEL, exchange, False),
    "model folder of an earlier snapshot": (MODEL, put_older_model, False),
    "half a newer model folder": (MODEL, plant_newer_model, True),
    "manifest deleted": (MANIFEST, delete, False),
    "manifest truncated": (MANIFEST, truncate, False),
    "manifest empty": (MANIFEST, empty, False),
    "manifest flipped": (MANIFEST, flip, False),
    "manifest of another store": (MANIFEST, exchange, False),
    "array deleted": (ARRAY, delete, False),
    "array truncated": (ARRAY, truncate, False),
    "array empty": (ARRAY, empty, False),
    "array flipped": (ARRAY, flip, False),
    "array of another store": (ARRAY, exchange, False),
    "row table deleted": (TABLE, delete, False),
    "row table truncated": (TABLE, truncate, False),
    "row table flipped": (TABLE, flip, False),
    "row table of another store": (TABLE, exchange, False),
    "snapshot not named": ("store.db", lose_pointer, False),
    "snapshot elsewhere": ("store.db", point_elsewhere, False),
    "older snapshot named": ("store.db", point_to_older, False),
    "lock deleted": ("writer.lock", delete, True),
    "lock of another store": ("writer.lock", exchange, True),
    "index of the log deleted": (LOG_INDEX, delete, True),
    "index of the log truncated": (LOG_INDEX, truncate, True),
    "index of the log empty": (LOG_INDEX, empty, True),
    "index of the log flipped": (LOG_INDEX, flip, True),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed and its files before, one with a log and its files before, and another store."""
    place = tmp_path_factory.mktemp("stores")
    store = Store.create(place / "closed", example(), settings(), rules=Rules(stop_labels=["label 3"]))
    shutil.copytree(place / "closed", place / "older")
    everything(store)
    subprocess.run(["cp", "-r", place / "closed", place / "open"], check=True)
    store.close()
    with Store.create(place / "other", data_of("text"), RIPML.paper(n_dims=8, n_neighbors=1, random_state=5)) as other:
        other.learn([document("first")])
        everything(other)
    return place


@pytest.mark.parametrize("damage", DAMAGES)
def test_documents_can_be_exported_whatever_is_damaged_and_one_command_brings_the_model_back(
    stores: Path, tmp_path: Path, damage: str
) -> None:
    pattern, do, opens = DAMAGES[damage]
    kind = "open" if pattern.startswith("store.db-") else "closed"
    folder = tmp_path / "store"
    shutil.copytree(stores / kind, folder)
    shutil.copytree(stores / "older", tmp_path / "older")
    with Store.open(shutil.copytree(folder, tmp_path / "intact")) as store:
        documents, rules = documents_of(store), store.model.rules
    do(next(folder.glob(pattern)), stores / "other")
    assert maintenance.export(folder, tmp_path / "documents.jsonl") == len(documents)
    exported = [json.loads(line) for line in (tmp_path / "documents.jsonl").read_text().splitlines()]
    assert exported == documents
    assert maintenance.check(folder).ok is opens
    if not opens:
        opened = shutil.copytree(folder, tmp_path / "opened")
        with pytest.warns(RuntimeWarning, match="this reader has fitted it again"):
            reader = Store.open(opened, readonly=True)
        assert documents_of(reader) == documents
        assert_is_that_of_its_documents(reader)
        assert not maintenance.check(opened).ok  # a reader writes nothing
        with pytest.warns(RuntimeWarning, match="; the model was fitted again"):
            writer = Store.open(opened)
        with writer:
            assert documents_of(writer) == documents
            assert writer.model.rules == rules
            assert_is_that_of_its_documents(writer)
            assert writer.history(1)[0]["kind"] == "rebuild"
            writer.learn([document("after")])
            assert_same_answers(reader.refresh(), writer.model)
        assert maintenance.check(opened, full=True).ok
        Store.rebuild(folder, actor="ann")
    with Store.open(folder) as store:
        assert documents_of(store) == documents
        assert store.model.rules == rules
        assert_is_that_of_its_documents(store)
        assert opens or (store.history(1)[0]["kind"], store.history(1)[0]["actor"]) == ("rebuild", "ann")
        store.learn([document("after")])
    report = maintenance.check(folder, full=True)
    assert report.ok, report


@pytest.mark.parametrize("damage", ["model folder deleted", "snapshot not named"])
def test_a_reader_of_a_store_without_a_model_follows_changes_and_takes_over_a_model_that_is_put_back(
    stores: Path, tmp_path: Path, damage: str
) -> None:
    folder = shutil.copytree(stores / "closed", tmp_path / "store")
    kept = shutil.copytree(folder, tmp_path / "kept")
    pattern, do, _ = DAMAGES[damage]
    do(next(folder.glob(pattern)), stores / "other")
    with pytest.warns(RuntimeWarning, match="this reader has fitted it again"):
        reader = Store.open(folder, readonly=True)
    before = reader.model
    assert reader.refresh() is before
    subprocess.run(["cp", "-a", f"{kept}/.", folder], check=True)
    with Store.open(folder, readonly=True) as other:
        assert_same_answers(reader.refresh(), other.model)


def test_a_store_whose_log_is_lost_says_so(folder: Path) -> None:
    store = Store.create(folder, example(), settings())
    for number in range(3):
        store.learn([document(f"new {number}")])
    store.snapshot()
    crashed = crash_image(folder)
    store.close()
    for name in ("store.db-wal", "store.db-shm"):
        (crashed / name).unlink()
    match = r"store\.db ends with change 0, but there was a change 3: its log is lost, .* the model was fitted again"
    with pytest.warns(RuntimeWarning, match=match):
        opened = Store.open(crashed)
    with opened:
        assert len(opened) == 40
        assert_is_that_of_its_documents(opened)


def test_a_model_of_a_newer_ripml_is_not_replaced(folder: Path) -> None:
    Store.create(folder, example(), settings()).close()
    manifest = next(folder.glob(MANIFEST))
    manifest.write_text('{"format": 7, "whatever": "comes then"}')
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    with closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'manifest'", (digest,))
    for readonly in (True, False):
        with pytest.raises(StoreError, match=r"written by a newer ripml .*; upgrade with `pip install -U ripml`"):
            Store.open(folder, readonly)
    assert manifest.exists()


@pytest.mark.parametrize("do", [delete, truncate, empty, exchange])
def test_a_destroyed_database_is_reported_and_a_backup_replaces_it(stores: Path, tmp_path: Path, do: Any) -> None:
    folder = shutil.copytree(stores / "closed", tmp_path / "store")
    maintenance.backup(folder, tmp_path / "backup")
    do(folder / "store.db", stores / "other")
    report = maintenance.check(folder)
    assert not report.ok
    if do is not exchange:  # another store's documents can be read, but they are not those of the model
        with pytest.raises(StoreError, match=r"store\.db"):
            maintenance.export(folder, tmp_path / "documents.jsonl")
        assert not (tmp_path / "documents.jsonl").exists()
    Store.restore(tmp_path / "backup", folder, replace=True)
    assert maintenance.check(folder, full=True).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "store"]


@pytest.mark.parametrize("do", [delete, truncate, flip])
def test_a_damaged_log_loses_at_most_what_it_held(stores: Path, tmp_path: Path, do: Any) -> None:
    folder = shutil.copytree(stores / "open", tmp_path / "store")
    do(folder / "store.db-wal", stores / "other")
    (folder / "store.db-shm").unlink()
    n = maintenance.export(folder, tmp_path / "documents.jsonl")
    assert n >= 38
    if not maintenance.check(folder).ok:
        Store.rebuild(folder)
    with Store.open(folder) as store:
        assert len(store) == n
        assert_is_that_of_its_documents(store)


@pytest.mark.parametrize("form", FORMS)
def test_a_model_is_rebuilt_with_the_settings_that_it_had(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "store"
    rules = Rules(stop_labels=["label 3"])
    with Store.create(folder, data_of(form), settings(), first_feature=1, rules=rules) as store:
        everything(store)
        store.rename_label("third", "never")
        before = store.model
        store.refit()
        expected = store.model.scores(data_of(form)).toarray()
    shutil.rmtree(next(folder.glob("model-*")))
    Store.rebuild(folder)
    with Store.open(folder, readonly=True) as store:
        assert store.model.first_feature == 1
        assert store.model.rules == before.rules
        assert store.model.model.get_params() == before.model.get_params()
        np.testing.assert_allclose(store.model.scores(data_of(form)).toarray(), expected, atol=1e-8)


def test_a_store_with_an_encoder_is_rebuilt_from_the_vectors_that_it_keeps(folder: Path) -> None:
    encoder = HashingVectorizer(n_features=8)
    with Store.create(folder, example(), settings(), features=encoder) as store:
        expected = store.model.suggest(["word1 word2"])
    for given in (None, encoder):
        shutil.rmtree(next(folder.glob("model-*")))
        Store.rebuild(folder, given)
        with Store.open(folder, encoder=encoder) as store:
            assert store.model.suggest(["word1 word2"]) == expected
            assert store.check(full=True).ok
    with Store.open(folder) as store, pytest.raises(ParameterError, match="pass it again as `encoder`"):
        store.model.suggest(["word1 word2"])


@pytest.mark.parametrize("features", [None, TfIdf(letters=3), Doc2Vec(n_dims=7), Encoder(None, 5, "mine")])
def test_a_recipe_is_the_same_after_it_was_written(features: Any) -> None:
    model = RIPML(kernel=RBF(gamma=0.5), n_neighbors=3)
    recipe = Recipe(Bodies("text"), model, features, None, Rules(n=2, allowed_labels=["a"]))
    again = Recipe.from_json(recipe.to_json())
    assert again.to_json() == recipe.to_json()
    assert (again.bodies, again.rules) == (recipe.bodies, recipe.rules)
    assert again.settings.get_params() == model.get_params()
    with pytest.raises(StoreError, match="the recipe of the model in the database is damaged"):
        Recipe.from_json('{"settings": {}}')


@pytest.mark.parametrize(("name", "form"), [("store", "lists"), ("store-with-journal", "text")])
def test_a_store_of_format_1_without_its_model_is_rebuilt_with_the_defaults(
    tmp_path: Path, name: str, form: str
) -> None:
    folder = shutil.copytree(PLACE / name, tmp_path / "store")
    maintenance.export(folder, tmp_path / "before.jsonl")
    shutil.rmtree(next(folder.glob("model-*")))
    maintenance.export(folder, tmp_path / "documents.jsonl")
    assert (tmp_path / "documents.jsonl").read_text() == (tmp_path / "before.jsonl").read_text()
    with pytest.warns(RuntimeWarning, match="the settings of the model are lost with it, and the defaults are used"):
        Store.rebuild(folder)
    with Store.open(folder) as store:
        assert store._bodies.form == form
        assert_is_that_of_its_documents(store, 1e-4)


# --------------------------------------------------------------------------------------------------- backup and restore


def test_a_backup_is_one_state_of_the_store_while_a_thread_writes(folder: Path, tmp_path: Path) -> None:
    """Documents come and go in pairs, so that a state between two calls shows."""
    with Store.create(folder, example(), settings()) as store:
        stop, written = threading.Event(), threading.Semaphore(0)

        def write() -> None:
            number = 0
            while not stop.is_set():
                store.learn([document(f"{number}/a"), document(f"{number}/b")])
                if number % 3 == 0:
                    store.forget([f"{number}/a", f"{number}/b"])
                if number % 10 == 9:
                    store.snapshot()
                number += 1
                written.release()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(6):
                for _ in range(3):
                    written.acquire()
                made = store.backup(tmp_path / f"backup {number}")
                assert (made.documents - 40) % 2 == 0
        finally:
            stop.set()
            writer.join()
        history = {entry["number"]: entry["time"] for entry in store.history(100_000)}
    for number in range(6):
        place = tmp_path / f"backup {number}"
        assert maintenance.check(place).ok
        with Store.open(place) as opened:
            assert {entry["number"]: entry["time"] for entry in opened.history(100_000)}.items() <= history.items()
            pairs = [id.partition("/")[0] for id in opened.ids() if "/" in id]
            assert all(pairs.count(mark) == 2 for mark in pairs)
            assert_is_that_of_its_documents(opened)


def test_a_backup_needs_a_new_or_empty_folder_and_appears_complete(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.create(folder, example(), settings()) as store:
        (tmp_path / "empty").mkdir()
        store.backup(tmp_path / "empty")
        with pytest.raises(StoreError, match="already exists and is not an empty folder"):
            store.backup(tmp_path / "empty")
        with pytest.raises(StoreError, match="already exists and is not an empty folder"):
            store.backup(folder)

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(maintenance, "_write_copy", fail)
        with pytest.raises(StoreError, match=r"could not be copied \(No space left on device\); there is no backup"):
            store.backup(tmp_path / "full")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "store"]


def test_a_store_with_a_damaged_model_can_be_backed_up(folder: Path, tmp_path: Path) -> None:
    Store.create(folder, example(), settings()).close()
    flip(next(folder.glob(ARRAY)), folder)
    with pytest.warns(RuntimeWarning, match="the backup has all documents, but the model in .* is damaged"):
        assert maintenance.backup(folder, tmp_path / "backup").documents == 40
    Store.rebuild(tmp_path / "backup")
    with Store.open(tmp_path / "backup") as store:
        assert_is_that_of_its_documents(store)


def test_a_restore_checks_the_backup_and_replaces_a_store_only_if_asked(folder: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Store.create(folder, example(), settings()) as store:
        store.learn([document("a")])
        store.backup(backup)
        store.learn([document("b")])
        with pytest.raises(StoreError, match="already exists and is not an empty folder; nothing was restored"):
            Store.restore(backup, folder)
        with pytest.raises(StoreError, match="is open for writing by process"):
            Store.restore(backup, folder, replace=True)
    reader = Store.open(folder, readonly=True)
    assert Store.restore(backup, folder, replace=True).documents == 41
    reader.refresh()
    assert "b" not in reader.ids()
    assert_is_that_of_its_documents(reader)
    Store.restore(backup, tmp_path / "elsewhere")
    with Store.open(tmp_path / "elsewhere") as store:
        assert store.ids() == reader.ids()
    truncate(backup / "store.db", backup)
    with pytest.raises(StoreError, match=r"this backup is damaged .*; nothing was restored"):
        Store.restore(backup, folder, replace=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letter").touch()
    with pytest.raises(StoreError, match="is not a store, so it is not replaced"):
        Store.restore(tmp_path / "elsewhere", tmp_path / "precious", replace=True)
    reader.refresh()
    assert len(reader) == 41


def test_a_restore_that_fails_leaves_the_store_in_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.create(folder, example(), settings()) as store:
        store.backup(tmp_path / "backup")
        store.learn([document("a")])
    rename = os.rename

    def fail_at_last(source: Any, target: Any) -> None:
        if Path(source).name == "new":
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_at_last)
    with pytest.raises(StoreError, match=r"cannot be replaced \(Input/output error\); nothing was restored"):
        Store.restore(tmp_path / "backup", folder, replace=True)
    with Store.open(folder) as store:
        assert len(store) == 41
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "store"]


# ----------------------------------------------------------------------------------------------------- check and export


def test_a_check_finds_what_opening_does_not(folder: Path) -> None:
    with Store.create(folder, example(), settings()) as store:
        everything(store)
        assert [(finding.name, finding.ok) for finding in store.check(full=True).findings] == [
            (name, True) for name in ("database", "journal", "documents", "snapshot", "model", "scores")
        ]
    failures = {
        "journal": "UPDATE changes SET actor = 'somebody else' WHERE number = 2",
        "documents": "UPDATE documents SET labelset = x'00' WHERE number = 7",
        "database": "PRAGMA foreign_keys=OFF; INSERT INTO document_labels VALUES (7, 12345)",
        "model": "DELETE FROM document_labels WHERE document = 9",
    }
    for name, commands in failures.items():
        damaged = shutil.copytree(folder, folder.with_name(name))
        with closing(sqlite3.connect(damaged / "store.db", isolation_level=None)) as connection:
            connection.executescript(commands)
        findings = {finding.name: finding for finding in maintenance.check(damaged).findings}
        assert not findings[name].ok, findings


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_exported_documents_make_the_same_store_again(
    folder: Path, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow") if format == "parquet" else None
    monkeypatch.setattr(maintenance, "_BLOCK", 7)
    file = tmp_path / f"documents.{format}"
    with Store.create(folder, example(), settings()) as store:
        everything(store)
        assert store.export(file) == len(store)
        with Store.create(tmp_path / "again", datasets.read(file), settings()) as again:
            assert documents_of(again) == [
                {**found, "labels": again.document(found["id"])["labels"]} for found in documents_of(store)
            ]
            for id in store.ids():
                assert sorted(again.document(id)["labels"]) == sorted(store.document(id)["labels"])


@pytest.mark.parametrize("part", [0.35, 0.6, 0.85])
def test_what_can_be_read_of_a_damaged_database_is_salvaged(tmp_path: Path, part: float) -> None:
    folder = tmp_path / "store"
    with Store.create(folder, example(2000), settings()) as store:
        documents = {document["id"]: document for document in documents_of(store)}
    content = bytearray((folder / "store.db").read_bytes())
    (tmp_path / "smaller.db").write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "smaller.db", isolation_level=None)) as connection:
        connection.execute("DROP TABLE words")  # the index, which comes after the documents
        connection.execute("VACUUM")
    middle = int(part * (tmp_path / "smaller.db").stat().st_size) // 4096 * 4096
    content[middle : middle + 3 * 4096] = bytes(3 * 4096)  # three pages
    (folder / "store.db").write_bytes(content)
    assert not maintenance.check(folder).ok
    with pytest.warns(
        RuntimeWarning, match=r"store\.db is damaged; [\d,]+ documents cannot be read, and the labels of"
    ):
        n = maintenance.export(folder, tmp_path / "documents.jsonl", salvage=True)
    found = [json.loads(line) for line in (tmp_path / "documents.jsonl").read_text().splitlines()]
    assert len(found) == n >= 1000
    assert all(row["text"] == documents[row["id"]]["text"] for row in found)
    assert all(set(row["labels"]) <= set(documents[row["id"]]["labels"]) for row in found)


def test_a_damaged_index_of_words_takes_no_document_away_and_rebuild_makes_it_anew(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Store.create(folder, example(200), settings()) as store:
        documents = documents_of(store)
        word = str(documents[0]["text"]).split()[0]
        found = store.search(word).total
    with closing(sqlite3.connect(folder / "store.db", isolation_level=None)) as connection:
        connection.execute("UPDATE words_data SET block = zeroblob(length(block)) WHERE id > 10")
    assert maintenance.export(folder, tmp_path / "documents.jsonl") == len(documents)
    Store.rebuild(folder)
    with Store.open(folder) as store:
        assert store.search(word).total == found
        store.forget([documents[0]["id"]])
        assert store.search(word).total == found - 1


def test_salvaging_an_intact_store_exports_everything(folder: Path, tmp_path: Path) -> None:
    with Store.create(folder, example(), settings()) as store:
        everything(store)
    for salvage in (False, True):
        maintenance.export(folder, tmp_path / f"{salvage}.jsonl", salvage=salvage)
    assert (tmp_path / "True.jsonl").read_text() == (tmp_path / "False.jsonl").read_text()


@pytest.mark.parametrize("form", ["lists", "objects"])
def test_features_are_exported_as_jsonl_only(tmp_path: Path, form: str) -> None:
    with Store.create(tmp_path / "store", data_of(form), settings()) as store:
        store.learn([{"id": "x", **body(form, 1), "labels": ["label 1"]}])
        with pytest.raises(ParameterError, match="has features, which can only be exported as jsonl; got format='csv'"):
            store.export(tmp_path / "documents.csv")
        with pytest.raises(ParameterError, match="documents can be exported as jsonl, csv, parquet; got format='xmc'"):
            store.export(tmp_path / "documents", "xmc")
        with pytest.raises(DataError, match="cannot be written"):
            store.export(tmp_path / "no" / "such" / "folder.jsonl")
        store.export(tmp_path / "documents.jsonl.gz")
        assert len(datasets.read(tmp_path / "documents.jsonl.gz")) == 41
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents.jsonl.gz", "store"]


# --------------------------------------------------------------------------------------------------------- permissions


def modes(folder: Path) -> set[tuple[str, int]]:
    return {
        ("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode))
        for path in (folder, *folder.rglob("*"))
    }


def test_the_files_of_a_store_are_private_unless_its_folder_is_shared(folder: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Store.create(folder, example(), settings()) as store:
            store.learn([document("a")])
            assert modes(folder) == {("folder", 0o700), ("file", 0o600)}
            store.backup(tmp_path / "backup")
            assert modes(tmp_path / "backup") == {("folder", 0o700), ("file", 0o600)}
            store.export(tmp_path / "documents.jsonl")
            assert stat.S_IMODE((tmp_path / "documents.jsonl").stat().st_mode) == 0o600
            subprocess.run(["chmod", "-R", "g+rX", folder], check=True)
            store.learn([document("b")])
            store.snapshot()
            assert modes(folder) == {("folder", 0o750), ("file", 0o640)}
    finally:
        os.umask(before)
