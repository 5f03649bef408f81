"""Labels with names: a vocabulary in taggers, stores, the shell and the server, and its changes while in use."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from realdata import data_folder, needs_data
from sklearn.base import clone
from test_cli import run

from ripml import RIPML, Store, Tagger, datasets, load
from ripml.base import model_folder
from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.cli.options import reader_languages
from ripml.datasets import Dataset, documents_given
from ripml.labels.concepts import Concept, Concepts
from ripml.store.journal import delta_since
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules

FRUIT, WEATHER, FOOD, SNOW = (f"http://example.org/{name}" for name in ("fruit", "weather", "food", "snow"))
CONCEPTS = Concepts.of(
    [
        Concept(FOOD, {"en": "food", "de": "Lebensmittel"}),
        Concept(FRUIT, {"en": "fruit", "de": "Obst"}, {"de": ("Früchte",)}, broader=(FOOD,), types=("Thing",)),
        Concept(WEATHER, {"en": "weather", "de": "Wetter"}, notation="W1", schemes=("sky",)),
        Concept(SNOW, {"en": "snow"}, broader=(WEATHER,)),
    ]
)
TEXTS = ["red apple", "green apple", "blue sky", "grey sky", "apple under a sky", "cold flakes"]
TAGS = [[FRUIT], [FRUIT], [WEATHER], [WEATHER], [FRUIT, WEATHER], ["local"]]
TEXT = "an apple and a grey sky"


def quick() -> RIPML:
    return RIPML.paper(n_dims=16, n_neighbors=3, ridge=1.0, n_jobs=1, random_state=0)


def data() -> Dataset:
    return documents_given(TEXTS, TAGS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "store", data(), quick(), vocabulary=CONCEPTS) as store:
        yield store


# -------------------------------------------------------------------------------------------------------------- Tagger


def test_a_vocabulary_changes_no_score_and_gives_names() -> None:
    plain, named = (Tagger(model=quick(), vocabulary=given).fit(TEXTS, TAGS) for given in (None, CONCEPTS))
    assert named.suggest(TEXT) == plain.suggest(TEXT)
    assert named.name(FRUIT, "de") == "Obst"
    assert named.name(FRUIT) == "fruit"
    assert named.name("local", "de") == "local"
    assert plain.name(FRUIT, "de") == FRUIT
    assert [why.label for why in named.explain(TEXT)] == [label for label, _ in named.suggest(TEXT)]


def test_a_vocabulary_is_saved_with_the_model_and_copied_with_the_tagger(tmp_path: Path) -> None:
    datasets.write_vocabulary(CONCEPTS, tmp_path / "names.csv")
    tagger = Tagger(model=quick(), vocabulary=tmp_path / "names.csv").fit(TEXTS, TAGS)
    for compact in (False, True):
        tagger.save(tmp_path / "model", compact)
        loaded = load(tmp_path / "model")
        assert loaded.vocabulary == CONCEPTS
        assert loaded.name(FRUIT, "de") == "Obst"
        assert loaded.suggest(TEXT) == tagger.suggest(TEXT)
    tagger.set_params(vocabulary=loaded.vocabulary)
    assert clone(tagger).vocabulary is loaded.vocabulary
    assert clone(tagger).fit(TEXTS, TAGS).name(WEATHER, "de") == "Wetter"


def test_a_vocabulary_can_be_replaced_extended_and_removed_without_a_fit() -> None:
    tagger = Tagger(model=quick(), vocabulary=CONCEPTS).fit(TEXTS, TAGS)
    before = tagger.suggest(TEXT)
    assert tagger.set_vocabulary(CONCEPTS.updated(Concepts.of([Concept("local", {"en": "here"})]))) is tagger
    assert tagger.name("local") == "here"
    assert tagger.learn(["more flakes"], [["local", SNOW]]).name(SNOW) == "snow", "a label of the vocabulary is used"
    tagger.forget("more flakes")
    assert tagger.set_vocabulary(None).name(FRUIT) == FRUIT
    assert dict(tagger.suggest(TEXT)) == pytest.approx(dict(before)), "no score depends on the vocabulary"
    with pytest.raises(ParameterError, match=r"^`vocabulary` must be a path, Concepts or None; got 3\.$"):
        tagger.set_vocabulary(3)


def test_groups_of_the_vocabulary_are_rules_for_suggestions() -> None:
    tagger = Tagger(model=quick(), vocabulary=CONCEPTS, n=None).fit(TEXTS, TAGS)

    def labels(**rules: Any) -> set[str]:
        return {label for label, _ in tagger.suggest(TEXT, **rules)}

    everything = labels()
    assert everything == {FRUIT, WEATHER}
    assert labels(stop_labels=[f"branch:{FOOD}"]) == everything - {FRUIT}
    assert labels(stop_labels=["type:Thing", WEATHER]) == everything - {FRUIT, WEATHER}
    assert labels(allowed_labels=["scheme:sky"]) == {WEATHER}
    assert {why.label for why in tagger.explain(TEXT, allowed_labels=["scheme:sky"])} == {WEATHER}
    tagger.set_vocabulary(CONCEPTS.updated(Concepts.of([Concept(WEATHER, broader=(FOOD,))])))
    assert labels(allowed_labels=[f"branch:{FOOD}"]) == {FRUIT, WEATHER}, "groups follow the vocabulary"
    tagger.set_vocabulary(None)
    assert labels(stop_labels=[f"branch:{FOOD}"]) == everything, "without a vocabulary it is a label that nobody has"


def test_rules_follow_a_renamed_branch() -> None:
    rules = Rules(stop_labels=["branch:a", "type:a", "a"], allowed_labels=["branch:b"])
    renamed = rules.renamed({"a": "c", "b": None})
    assert renamed.stop_labels == {"branch:c", "type:a", "c"}
    assert renamed.allowed_labels == frozenset()


def test_a_damaged_vocabulary_in_a_model_folder_is_refused(tmp_path: Path) -> None:
    model = DocumentModel.fit(data(), None, quick(), concepts=CONCEPTS)
    parameters, arrays = model.to_state()
    for wrong in (np.frombuffer(b'{"id":1}\n', np.uint8), np.zeros(3), np.frombuffer(b"\xff", np.uint8)):
        model_folder.save(tmp_path / "model", "RIPML", parameters, {**arrays, "concepts": wrong})
        with pytest.raises(ModelFolderError, match=r"its vocabulary is damaged \("):
            DocumentModel.load(tmp_path / "model")


# --------------------------------------------------------------------------------------------------------------- Store


def test_a_store_keeps_its_vocabulary_through_closing_snapshots_refits_and_rebuilds(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    Store.create(folder, data(), quick(), vocabulary=CONCEPTS).close()
    with Store.open(folder) as store:
        assert store.model.concepts == CONCEPTS
        more = CONCEPTS.updated(Concepts.of([Concept("local", {"en": "here"})]))
        store.set_vocabulary(more, actor="ada")
        assert store.history(1)[0] | {"time": "", "number": 0} == {
            "number": 0, "time": "", "kind": "vocabulary", "actor": "ada", "concepts": 5,
        }  # fmt: skip
        reader = Store.open(folder, readonly=True)
        assert reader.model.concepts == more
        store.refit()
        assert store.model.concepts == more
        store.set_vocabulary(CONCEPTS)
        assert reader.refresh().concepts == CONCEPTS
        store.compact()
        assert store.check(full=True).ok
        assert [finding.message for finding in store.check().findings if finding.name == "vocabulary"] == [
            "4 concepts can be read"
        ]
        store.backup(tmp_path / "backup")
    for model in folder.glob("model-*"):
        (model / "manifest.json").unlink()
    Store.rebuild(folder)
    for place in (folder, tmp_path / "backup"):
        with Store.open(place) as store:
            assert store.model.concepts == CONCEPTS
    with Store.open(folder) as store:
        store.set_vocabulary(None)
        assert store.model.concepts is None
    with Store.open(folder) as store:
        assert store.model.concepts is None


def test_a_change_of_the_vocabulary_is_on_the_disk_before_any_snapshot(store: Store, tmp_path: Path) -> None:
    store.set_vocabulary(CONCEPTS.only(exclude=[SNOW]))
    copied = Store.open(tmp_path / "store", readonly=True)
    assert copied.model.concepts is not None
    assert SNOW not in copied.model.concepts
    assert copied.version == store.version


def test_names_follow_renamed_and_merged_labels(store: Store, tmp_path: Path) -> None:
    reader = Store.open(tmp_path / "store", readonly=True)
    before = store.version
    store.rename_label(WEATHER, "w2")
    store.merge_labels(["local"], SNOW)
    store.merge_labels([FRUIT], FOOD)
    concepts = store.model.concepts
    assert concepts is not None
    assert concepts["w2"].names == {"en": "weather", "de": "Wetter"}
    assert concepts[SNOW].broader == ("w2",)
    assert FRUIT not in concepts
    assert concepts[FOOD].synonyms == {"en": ("fruit",), "de": ("Obst", "Früchte")}
    assert reader.refresh().concepts == concepts
    delta = store._database.read(lambda c: delta_since(c, before))
    assert delta.concepts == concepts
    store.retire_label("w2")
    assert store.model.names(["w2"], "de") == {"w2": "Wetter"}, "documents still carry a retired label"
    assert store._database.read(lambda c: delta_since(c, store.version)).concepts is None
    assert store.check(full=True).ok


def test_a_call_that_fails_leaves_the_vocabulary(store: Store) -> None:
    with pytest.raises(DataError, match="there is a label"):
        store.rename_label(FRUIT, WEATHER)
    assert store.model.concepts == CONCEPTS


def test_the_rules_of_a_store_name_a_branch_that_is_renamed(tmp_path: Path) -> None:
    rules = Rules(stop_labels=[f"branch:{FOOD}"], n=None)
    given = documents_given(TEXTS, [[*tags, FOOD] if FRUIT in tags else tags for tags in TAGS])
    with Store.create(tmp_path / "store", given, quick(), rules=rules, vocabulary=CONCEPTS) as store:
        hidden = {FRUIT, FOOD}
        assert not hidden & {label for label, _ in store.model.suggest([TEXT])[0]}
        store.rename_label(FOOD, "eat")
        assert store.model.rules.stop_labels == {"branch:eat"}
        assert not {FRUIT, "eat"} & {label for label, _ in store.model.suggest([TEXT])[0]}


def test_labels_are_completed_by_names_synonyms_and_notations_in_one_language(store: Store) -> None:
    def found(prefix: str, *languages: str) -> list[str]:
        return [label.name for label in store.labels(prefix, 5, *languages)]

    assert found("wet", "de") == [WEATHER]
    assert found("Früch", "de-AT", "en") == [FRUIT]
    assert found("frü", "en") == []
    assert found("w1") == [WEATHER]
    assert found("sn") == [SNOW], "no document carries it"
    assert found("loc", "de") == ["local"], "the vocabulary does not know it"
    assert found("", "de") == [FRUIT, WEATHER, "local", FOOD, SNOW]
    assert {label.name: label.count for label in store.labels("")} == {
        FRUIT: 3,
        WEATHER: 3,
        "local": 1,
        FOOD: 0,
        SNOW: 0,
    }
    store.set_vocabulary(None)
    assert found("wet", "de") == []


def test_a_store_without_a_vocabulary_has_no_trace_of_one(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store", data(), quick()) as store:
        store.rename_label("local", "here")
        assert store.model.concepts is None
        keys = store._database.read(lambda c: {key for (key,) in c.execute("SELECT key FROM meta")})
        assert not {key for key in keys if key.startswith("vocabulary")}
        assert "vocabulary" not in {finding.name for finding in store.check().findings}
    (folder,) = (tmp_path / "store").glob("model-*")
    assert not list(folder.glob("concepts*"))


def test_a_damaged_vocabulary_in_the_database_is_reported(store: Store, tmp_path: Path) -> None:
    with store._database.transaction() as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'vocabulary'", (b"damaged",))
    report = store.check()
    assert [finding.name for finding in report.findings if not finding.ok] == ["vocabulary"]


# --------------------------------------------------------------------------------------------------------------- shell


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE"):
        monkeypatch.delenv(name, raising=False)
    rows = [
        {"id": str(i), "text": text, "labels": tags} for i, (text, tags) in enumerate(zip(TEXTS, TAGS, strict=True))
    ]
    rows[0]["labels"], rows[2]["labels"] = ["Obst"], ["WEATHER"]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    datasets.write_vocabulary(CONCEPTS, tmp_path / "names.csv")
    return tmp_path


PAPER = ("--preset", "paper", "--dims", "16", "--neighbors", "3", "--ridge", "1")


def test_the_shell_trains_with_a_vocabulary_and_shows_names(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train: list[Any] = [
        "train",
        files / "docs.jsonl",
        files / "store",
        "--store",
        "--vocabulary",
        files / "names.csv",
        *PAPER,
    ]
    summary = json.loads(run(capfd, *train, "--json")[0])
    assert (summary["labels"], summary["concepts"], summary["labels_with_names"]) == (3, 4, 2)
    store = files / "store"
    expected = Store.open(store, readonly=True).model.suggest([TEXT])[0]
    assert {label for label, _ in expected} >= {FRUIT, WEATHER}, "rows may have names in place of ids"
    german = {FRUIT: "Obst", WEATHER: "Wetter"}
    lines = run(capfd, "suggest", store, TEXT, "--language", "de")[0].splitlines()
    assert lines == [f"{label}\t{score:.4f}\t{german.get(label, '')}" for label, score in expected]
    answer = json.loads(run(capfd, "suggest", store, TEXT, "--json", "--language", "de")[0])
    assert answer["names"] == german
    out, _ = run(capfd, "explain", store, TEXT, "--language", "de")
    assert "Obst" in out
    assert FRUIT not in out
    answer = json.loads(run(capfd, "explain", store, TEXT, "--language", "de", "--json")[0])
    assert answer["names"] == german
    assert answer["labels"][0]["label"] in german
    out, _ = run(capfd, "relabel", store, "5", SNOW)
    assert out.startswith("5 has snow; 1 new label: snow;")
    assert "→ snow" in run(capfd, "history", store)[0]
    listed = run(capfd, "labels", "list", store, "--language", "de")[0].splitlines()
    assert f"{FRUIT}\t3\t\tObst" in listed
    listed = run(capfd, "labels", "list", store, "--prefix", "sn", "--json")[0].splitlines()
    assert [json.loads(line)["label"] for line in listed] == [SNOW]
    assert json.loads(run(capfd, "evaluate", store, files / "docs.jsonl", "--json")[0])["rows"] == 6


def test_a_terminal_shows_names_in_place_of_ids(
    files: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capfd, "train", files / "docs.jsonl", files / "model", "--vocabulary", files / "names.csv", *PAPER)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    out, _ = run(capfd, "suggest", files / "model", TEXT)
    assert "Obst" in out
    assert FRUIT not in out


def test_groups_in_the_files_of_rules_are_known_to_training(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (files / "stop.txt").write_text(f"branch:{FOOD}\ntype:Nothing\n")
    train: list[Any] = ["train", files / "docs.jsonl", files / "model", "--vocabulary", files / "names.csv", *PAPER]
    _, err = run(capfd, *train, "--stop-labels", files / "stop.txt")
    assert "--stop-labels: no row has the label 'type:Nothing'." in err
    out, _ = run(capfd, "suggest", files / "model", TEXT, "--json")
    assert FRUIT not in {pair["label"] for pair in json.loads(out)["labels"]}
    (files / "other.csv").write_text("id,name\nx,y\n")
    _, err = run(capfd, *train[: -len(PAPER) - 1], files / "other.csv", *PAPER)
    assert "--vocabulary: no label of the rows is an id or a name in it" in err


def test_out_of_core_training_keeps_the_vocabulary(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options: list[Any] = ["--vocabulary", files / "names.csv", "--memory", "50MB", *PAPER]
    run(capfd, "train", files / "docs.jsonl", files / "model", *options)
    trained = DocumentModel.load(files / "model")
    assert trained.concepts == CONCEPTS
    assert sorted(trained.model.classes_) == sorted([FRUIT, WEATHER, "local"]), "names became ids"
    run(capfd, "train", files / "docs.jsonl", files / "other", "--vocabulary", files / "names.csv", *PAPER)
    in_memory = DocumentModel.load(files / "other")
    assert dict(trained.suggest([TEXT])[0]) == pytest.approx(dict(in_memory.suggest([TEXT])[0]))


def test_the_vocabulary_of_a_store_is_shown_changed_and_converted(
    files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, _ = run(capfd, "vocabulary", files / "names.csv", "--exclude", f"branch:{FOOD}", "--json")
    assert json.loads(out) == {
        "concepts": 2, "names": {"en": 2, "de": 1}, "synonyms": 0, "with_broader": 1, "with_related": 0,
        "with_notation": 1, "types": {}, "schemes": {"sky": 1},
    }  # fmt: skip
    store = files / "store"
    run(capfd, "train", files / "docs.jsonl", store, "--store", *PAPER)
    _, err = run(capfd, "vocabulary", store, code=2)
    assert "has no vocabulary; give a store one with ripml vocabulary" in err
    run(capfd, "vocabulary", store, "--replace", files / "names.csv", "--include", f"branch:{FOOD}")
    assert list(Store.open(store, readonly=True).model.concepts or ()) == [FOOD, FRUIT]
    (files / "more.csv").write_text(f"id,name_en\n{SNOW},snow\n{FRUIT},fruits\n")
    out, _ = run(capfd, "vocabulary", store, "--add", files / "more.csv")
    assert "labels with names  1" in out
    out, _ = run(capfd, "vocabulary", store, "--to", "-", "--to-format", "jsonl")
    assert [json.loads(line)["names"] for line in out.splitlines()] == [
        {"en": "food", "de": "Lebensmittel"}, {"en": "fruits"}, {"en": "snow"},
    ]  # fmt: skip
    mistakes: list[tuple[list[Any], str]] = [
        (["--replace", files / "names.csv", "--add", files / "more.csv"], "give one of them"),
        (["--include", "kind:x", "--add", files / "no.csv"], "no such file"),
    ]
    for arguments, message in mistakes:
        assert message in run(capfd, "vocabulary", store, *arguments, code=2)[1]
    assert "is not a store" in run(capfd, "vocabulary", files, "--add", files / "more.csv", code=2)[1]


@pytest.mark.parametrize(
    ("environment", "languages"),
    [
        ({}, []),
        ({"LANG": "C.UTF-8"}, []),
        ({"LANG": "de_AT.UTF-8"}, ["de-AT"]),
        ({"LANG": "fr_FR", "LC_ALL": "C"}, []),
        ({"LANG": "fr_FR@euro", "LANGUAGE": "fi:sv"}, ["fi", "sv"]),
    ],
)
def test_the_language_of_the_shell_is_that_of_the_environment(
    environment: dict[str, str], languages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert reader_languages(None) == languages
    assert reader_languages("en") == ["en"]


# -------------------------------------------------------------------------------------------------------------- server


def test_the_server_names_labels_in_the_language_of_the_reader(store: Store) -> None:
    pytest.importorskip("ripml.server", reason="the extra `serve` is not installed")
    from test_server import client_of

    german, names = {"Accept-Language": "fr, de-DE;q=0.9, en;q=0.8"}, {FRUIT: "Obst", WEATHER: "Wetter"}
    with client_of(store) as client:
        path = "/v1/stores/tiny"
        query = {"text": TEXT}
        answer = client.post(f"{path}/suggest", json=query, headers=german).json()
        assert answer["names"] == names
        assert [(one["label"], one["score"]) for one in answer["labels"]] == store.model.suggest([TEXT])[0]
        assert client.post(f"{path}/suggest", json=query).json()["names"] == {FRUIT: "fruit", WEATHER: "weather"}
        long = {"text": TEXT + " " * 60_000}
        assert client.post(f"{path}/suggest", json=long, headers=german).json()["names"] == names
        batch = client.post(f"{path}/suggest/batch", json={"texts": [TEXT, "zzz"]}, headers=german).json()
        assert batch["names"] == names
        assert client.post(f"{path}/explain", json=query, headers=german).json()["names"] == names
        found = client.get(f"{path}/labels", params={"prefix": "früch"}, headers=german).json()
        assert found == {"labels": [{"name": FRUIT, "count": 3, "retired": False}], "names": {FRUIT: "Obst"}}
        assert client.get(f"{path}/documents/4", headers=german).json()["names"] == names
        client.put(f"{path}/documents/5/labels", json={"labels": [SNOW]})
        history = client.get(f"{path}/history", headers=german).json()
        assert (history["changes"][0]["after"], history["names"]) == ([SNOW], {SNOW: "snow"})
        assert client.get(path).json()["vocabulary"] == {"concepts": 4, "languages": ["en", "de"]}
        shown = client.get(f"{path}/vocabulary/{WEATHER.replace('/', '%2F')}", headers=german).json()
        assert (shown["name"], shown["narrower"], shown["names"]) == ("Wetter", [SNOW], {SNOW: "snow"})
        assert client.get(f"{path}/vocabulary/unknown").status_code == 404


def test_the_vocabulary_of_a_served_store_is_replaced_and_extended(tmp_path: Path) -> None:
    pytest.importorskip("ripml.server", reason="the extra `serve` is not installed")
    from test_server import client_of

    with Store.create(tmp_path / "store", data(), quick()) as store, client_of(store) as client:
        path = "/v1/stores/tiny/vocabulary"
        assert "names" not in client.post("/v1/stores/tiny/suggest", json={"text": TEXT}).json()
        assert "names" not in client.get("/v1/stores/tiny/labels").json()
        assert "names" not in client.get("/v1/stores/tiny/documents/0").json()
        assert client.get(path).json() == {"version": 0, "concepts": 0, "languages": []}
        body = {"concepts": [concept.to_json() for concept in CONCEPTS.values()]}
        assert client.put(path, json=body).json() == {"version": 1, "concepts": 4, "languages": ["en", "de"]}
        assert store.model.concepts == CONCEPTS
        more = {"id": "local", "names": {"en-GB": "here"}}
        assert client.patch(path, json={"concepts": [more]}).json()["concepts"] == 5
        assert store.model.names(["local"], "en-gb") == {"local": "here"}
        assert client.put(path, json={"concepts": []}).json()["concepts"] == 0
        assert not store.model.concepts
        for body, status in (
            ({"concepts": [{"id": "a"}, {"id": "a"}]}, 409),
            ({"concepts": [{"id": "a", "names": {"en": 1}}]}, 422),
            ({"concepts": [{"id": " "}]}, 422),
            ({"concepts": [{"id": str(i)} for i in range(1001)]}, 413),
        ):
            assert client.put(path, json=body).status_code == status
        assert store.version == 3


def test_a_whole_vocabulary_is_sent_as_lines_and_set_at_once(tmp_path: Path) -> None:
    pytest.importorskip("ripml.server", reason="the extra `serve` is not installed")
    from test_server import client_of

    from ripml.server.settings import Settings

    many = Concepts.of(Concept(f"c{i}", {"en": f"subject {i}", "de": f"Thema {i}"}) for i in range(5000))
    lines = {"Content-Type": "application/x-ndjson"}
    settings = Settings(max_vocabulary=len(many.to_json_lines()))
    with Store.create(tmp_path / "store", data(), quick()) as store, client_of(store, settings) as client:
        path = "/v1/stores/tiny/vocabulary"
        answer = client.put(path, content=many.to_json_lines(), headers=lines)
        assert answer.json() == {"version": 1, "concepts": 5000, "languages": ["de", "en"]}
        assert store.model.concepts == many
        more = Concepts.of([Concept(SNOW, {"en": "snow"})]).to_json_lines()
        assert client.patch(path, content=more, headers=lines).json()["concepts"] == 5001
        wrong: list[tuple[bytes, int, str]] = [
            (more + b"{}\n", 422, "line.2.id: Field required."),
            (more + b"\n{", 422, "line.3: Invalid JSON"),
            (more + b'{"id": "\xff"}', 422, "line.2: Invalid JSON"),
            (more + b'{"id": "a", "names": {"en": 1}}', 422, "line.2.names.en"),
            (more + more, 409, f"the concept '{SNOW}' is given twice."),
            (many.to_json_lines() + b"\n", 413, "larger than"),
        ]
        for body, status, message in wrong:
            answer = client.put(path, content=body, headers=lines)
            assert answer.status_code == status, answer.json()
            assert message in answer.json()["detail"]
        assert client.put("/v1/stores/none/vocabulary", content=more, headers=lines).status_code == 404
        assert store.version == 2
        assert len(store.model.concepts or ()) == 5001
        description = client.get("/openapi.json").json()["paths"]["/v1/stores/{store}/vocabulary"]["put"]
        assert description["requestBody"]["content"].keys() == {"application/json", "application/x-ndjson"}


# ----------------------------------------------------------------------------------------------------------- real data


@needs_data
def test_real_labels_have_their_names(tmp_path: Path) -> None:
    rows = next(datasets.iter_blocks(data_folder() / "eurlex" / "docs.jsonl.gz"))
    few = replace(rows.take(list(range(300))), name="eurlex")
    eurovoc = data_folder() / "eurlex" / "labels.txt"
    tagger = Tagger(model=RIPML.linear(random_state=0), vocabulary=eurovoc).fit(few)
    assert all(tagger.name(tag) != tag for tag in tagger.tags_)
    tagger.save(tmp_path / "model")
    assert load(tmp_path / "model").name(tagger.tags_[0]) == tagger.name(tagger.tags_[0])
    assert copy.copy(tagger).name(tagger.tags_[0]) == tagger.name(tagger.tags_[0])
