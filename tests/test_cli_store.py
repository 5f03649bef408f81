"""The store commands do what the methods of `Store` do, print the same facts, and read beside a writer."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from test_cli import run

from ripml import RIPML, datasets
from ripml.base import model_folder
from ripml.base.errors import DataError
from ripml.cli import main
from ripml.cli import store as store_commands
from ripml.cli.summaries import describe_updates
from ripml.store import Store, StoreError
from ripml.tagging.documents import DocumentModel, Why

FORMS = ["text", "named"]
WORDS = {"cat": "paw purr mouse whisker", "dog": "bark bone leash paw", "bird": "wing song nest feather"}
PAPER = ("--preset", "paper", "--dims", "16", "--neighbors", "3", "--ridge", "1")
SETTINGS = {"n_dims": 16, "n_neighbors": 3, "ridge": 1, "random_state": 0}


def printed_json(capfd: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    """What a command prints with --json."""
    return json.loads(run(capfd, *words, "--json")[0])


def body(form: str, words: Sequence[str]) -> dict[str, Any]:
    if form == "text":
        return {"text": " ".join(words)}
    return {"features": {word: words.count(word) / 2 for word in dict.fromkeys(words)}}


def documents(form: str, n: int = 36, seed: int = 0) -> list[dict[str, Any]]:
    """Documents with the words of the one or two animals that they are about."""
    rng = random.Random(seed)
    found = []
    for i in range(n):
        labels = rng.sample(sorted(WORDS), rng.randint(1, 2))
        words = [rng.choice(WORDS[label].split()) for label in labels for _ in range(3)]
        found.append({"id": f"d{i}", "labels": labels, **body(form, words)})
    return found


def written(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


NEWS = {
    form: [
        {"id": "d1", "labels": ["bird"], **body(form, ["song", "wing"])},
        {"id": "new", "labels": ["fish", "cat"], **body(form, ["paw", "purr", "unheard"])},
        {"id": "bare", "labels": [], **body(form, ["leash", "bone"])},
    ]
    for form in FORMS
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and a store of each form, as Python makes it; tests work on copies."""
    folder = tmp_path_factory.mktemp("made")
    for form in FORMS:
        data = written(folder / f"{form}.jsonl", documents(form))
        written(folder / f"{form}-new.jsonl", NEWS[form])
        with Store.create(folder / form, datasets.read(data), RIPML.paper(**SETTINGS)) as store:
            store.learn(documents(form, 3, seed=7))
    return folder


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(made: Path, form: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / form, tmp_path / "store"))


def state(folder: Path) -> dict[str, Any]:
    """Everything that can be read from a store, without times and actors."""
    with Store.open(folder, readonly=True) as store:
        model = store.model.model
        assert isinstance(model, RIPML)
        kept = [store.document(id) for id in store.ids()]
        rows = datasets.read(io.BytesIO("".join(json.dumps(row) + "\n" for row in kept).encode()))
        changes = [
            {name: value for name, value in c.items() if name not in ("time", "actor")} for c in store.history(100)
        ]
        labels = zip(
            model.classes_.tolist(), model.frequency_.tolist(), model.vocabulary_.retired.tolist(), strict=True
        )
        warm = {name: value for name, value in model.warm_.items() if name not in ("drift", "refactorised")}
        scores = store.model.scores(rows).toarray().tolist()
        return {"kept": kept, "changes": changes, "labels": [*labels], "warm": warm, "scores": scores}


def both(folder: Path, do: Callable[[Store], object]) -> Path:
    """A copy of a store to which Python does the same."""
    copy = Path(shutil.copytree(folder, folder.with_name("python")))
    with Store.open(copy) as store:
        do(store)
    return copy


# ------------------------------------------------------------------------------------------------------------ training


def test_training_with_store_makes_the_store_that_python_makes(
    made: Path, form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    summary = printed_json(capfd, "train", made / f"{form}.jsonl", tmp_path / "s", "--store", *PAPER)
    data = datasets.read(made / f"{form}.jsonl")
    with Store.create(tmp_path / "python", data, RIPML.paper(**SETTINGS)):
        pass
    assert state(tmp_path / "s") == state(tmp_path / "python")
    assert (summary["rows"], summary["labels"], summary["n_dims"]) == (36, 3, 16)
    assert summary["megabytes"] > 0
    out, _ = run(capfd, "train", made / f"{form}.jsonl", tmp_path / "t", "--store", *PAPER)
    assert out.startswith(f"Trained on {made / form}.jsonl, stored with its documents in {tmp_path / 't'}\n")


@pytest.mark.parametrize(("suffix", "first"), [("txt", 0), ("svm", 0), ("svm", 1), ("arff", 0)])
def test_stores_are_trained_updated_and_explained_in_other_formats(
    suffix: str, first: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    X = np.eye(3, dtype=np.float32)[[0, 1, 2] * 8] + np.float32(0.1) * np.arange(24)[:, None] % 1 + np.float32(0.1)
    file = tmp_path / f"train.{suffix}"
    if suffix == "svm":
        rows = [f"{i % 3} " + " ".join(f"{j + first}:{x:g}" for j, x in enumerate(X[i])) for i in range(24)]
        file.write_text("\n".join(rows) + "\n")
    else:
        Y = datasets.read(io.BytesIO(b"24 1 3\n" + b"".join(f"{i % 3}\n".encode() for i in range(24)))).Y
        datasets.write(datasets.Dataset(X=csr_array(X), Y=Y, label_names=["0", "1", "2"]), file)
    run(capfd, "train", file, tmp_path / "s", "--store", *PAPER)
    (tmp_path / f"new.{suffix}").write_bytes(file.read_bytes())
    if suffix == "arff":
        shutil.copy(tmp_path / "train.xml", tmp_path / "new.xml")
    found = printed_json(capfd, "update", tmp_path / "s", tmp_path / f"new.{suffix}")
    assert (found["learnt"], found["replaced"], found["documents"], len(set(found["ids"]))) == (24, 0, 48, 24)
    with Store.open(tmp_path / "s", readonly=True) as store:
        twin, first_of_new = store.document("3"), store.document(found["ids"][3])
        assert {**first_of_new, "id": "3"} == twin
    out, _ = run(capfd, "explain", tmp_path / "s", file, "-n", "1", "--json")
    names = {str(name) for line in out.splitlines() for name, _ in json.loads(line)["labels"][0]["features"]}
    assert names <= ({f"{j + first}" for j in range(3)} if suffix != "arff" else set(store.model.feature_names or []))
    assert names


def test_a_store_is_not_created_for_models_that_cannot_be_updated(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for option in (["--memory", "1GB"], ["--dask", "tcp://127.0.0.1:1"], ["--method", "leml"]):
        _, err = run(capfd, "train", made / "text.jsonl", tmp_path / "s", "--store", *option, code=2)
        shown = "--method leml" if option[0] == "--method" else option[0]
        sentence = f"--store requires a RIPML model that is trained in memory; leave out {shown}."
        assert err == f"ripml: {sentence}\n"
    assert not (tmp_path / "s").exists()


def test_a_compact_model_is_smaller_and_a_store_is_never_compact(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, option in (("whole", []), ("compact", ["--compact"])):
        run(capfd, "train", made / "text.jsonl", tmp_path / name, "--preset", "linear", *option)
    whole, compact = (model_folder.load(tmp_path / name) for name in ("whole", "compact"))
    assert compact.parameters["compact"] is True
    assert compact.arrays["Psi"].nbytes == whole.arrays["Psi"].nbytes / 2
    run(capfd, "suggest", tmp_path / "compact", "some text")
    _, err = run(capfd, "train", made / "text.jsonl", tmp_path / "s", "--store", "--compact", code=2)
    assert "--compact is for models that only answer, but a store learns; leave out one of them." in err


def test_training_does_not_overwrite_a_store(store: Path, made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = state(store)
    _, err = run(capfd, "train", made / "text.jsonl", store, *PAPER, code=2)
    assert err.endswith(f"{store} already holds a store; choose another folder.\n")
    _, err = run(capfd, "train", made / "text.jsonl", store, "--store", *PAPER, code=2)
    assert err == (f"ripml: {store} already holds a store; add rows with ripml update, or choose a new folder.\n")
    assert state(store) == before


# ----------------------------------------------------------------------------------------------------------- documents


def test_an_update_learns_and_replaces_as_python_does(
    store: Path, form: str, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = both(store, lambda s: s.learn(NEWS[form]))
    other = Path(shutil.copytree(store, store.with_name("other")))
    found = printed_json(capfd, "update", store, made / f"{form}-new.jsonl")
    assert state(store) == state(copy)
    warm = found.pop("warm")
    assert found == {
        "learnt": 2, "replaced": 1, "unchanged": 0, "without_labels": 1, "new_labels": ["fish"], "documents": 38,
        "labels": 4, "ids": ["d1", "new", "bare"],
    }  # fmt: skip
    assert {name: warm[name] for name in state(copy)["warm"]} == state(copy)["warm"]
    out, err = run(capfd, "update", other, made / f"{form}-new.jsonl")
    lines = out.splitlines()
    assert lines[0] == "2 documents learnt, 1 replaced, 1 of them without labels; 1 new label: fish"
    assert lines[1] == f"since the fit: {describe_updates(warm)}"
    assert re.match(r"since the fit: \d rows learnt, \d forgotten, \d relabelled \(\d+\.\d % of", lines[1])
    assert re.fullmatch(r"reading …\nlearning …\nlearning: 3 rows, [\d,.]+ rows/(s|min)\n", err)


def test_an_update_reads_standard_input(
    store: Path, form: str, made: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = both(store, lambda s: s.learn(NEWS[form]))
    content = (made / f"{form}-new.jsonl").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    run(capfd, "update", store, "-")
    assert state(store) == state(copy)


def test_an_update_is_stored_block_by_block(
    store: Path, form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{**row, "id": f"e{i}"} for i, row in enumerate(documents(form, 7, seed=3))]
    file = written(tmp_path / "more.jsonl", rows)
    monkeypatch.setattr(store_commands, "_ROWS_PER_TRANSACTION", 3)
    learn, sizes = Store.learn, []

    def counted(self: Store, some: Any, **named: Any) -> list[str]:
        sizes.append(len(some))
        if len(sizes) == 3:
            raise StoreError("the disk is full; nothing was changed.")
        return learn(self, some, **named)

    monkeypatch.setattr(Store, "learn", counted)
    _, err = run(capfd, "update", store, file, code=2)
    assert err.splitlines()[-1] == (
        "ripml: the first 6 rows are stored, the others are not: the disk is full; nothing was changed."
    )
    assert sizes == [3, 3, 1]
    with Store.open(store, readonly=True) as opened:
        assert opened.ids()[-6:] == [f"e{i}" for i in range(6)]
    monkeypatch.setattr(Store, "learn", learn)
    found = printed_json(capfd, "update", store, file)
    assert (found["learnt"], found["replaced"], found["unchanged"]) == (1, 0, 6)


def test_an_interrupted_update_says_how_many_rows_are_stored(
    store: Path, form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{**row, "id": f"e{i}"} for i, row in enumerate(documents(form, 7, seed=3))]
    file = written(tmp_path / "more.jsonl", rows)
    monkeypatch.setattr(store_commands, "_ROWS_PER_TRANSACTION", 3)
    learn = Store.learn

    def interrupted(self: Store, some: Any, **named: Any) -> list[str]:
        if "e3" in (some.ids or []):
            raise KeyboardInterrupt
        return learn(self, some, **named)

    monkeypatch.setattr(Store, "learn", interrupted)
    _, err = run(capfd, "update", store, file, code=130)
    assert err.splitlines()[-1] == "ripml: stopped; 3 rows stored."
    with Store.open(store, readonly=True) as opened:
        assert opened.ids()[-3:] == ["e0", "e1", "e2"]


@pytest.mark.parametrize("way", ["words", "file", "stdin"])
def test_documents_are_forgotten_as_in_python(
    way: str, store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = both(store, lambda s: s.forget(["d0", "d5"]))
    other = Path(shutil.copytree(store, store.with_name("other")))
    words: list[str | Path] = ["d0", "d5"]
    if way != "words":
        (tmp_path / "ids").write_bytes(b"d0\r\n\nd5")
        words = ["--from", tmp_path / "ids" if way == "file" else "-"]
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"d0\nd5\n")))
    assert printed_json(capfd, "forget", store, *words) == {"forgotten": 2, "documents": 34, "labels": 3}
    assert state(store) == state(copy)
    out, _ = run(capfd, "forget", other, "d3")
    assert out == "1 document forgotten; 35 documents, 3 labels\n"


@pytest.mark.parametrize("labels", [["dog", "fish"], []])
def test_a_document_is_relabelled_as_in_python(
    labels: list[str], store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = both(store, lambda s: s.relabel("d4", labels))
    other = Path(shutil.copytree(store, store.with_name("other")))
    found = printed_json(capfd, "relabel", store, "d4", *labels)
    new = [label for label in labels if label == "fish"]
    expected = {"id": "d4", "carries": labels, "new_labels": new, "documents": 36, "labels": 3 + len(new)}
    assert found == expected
    assert state(store) == state(copy)
    out, _ = run(capfd, "relabel", other, "d4", *labels)
    assert out == (
        "d4 has dog, fish; 1 new label: fish; 36 documents, 4 labels\n" if labels
        else "d4 has no labels; no new label; 36 documents, 3 labels\n"
    )  # fmt: skip


@pytest.mark.parametrize("form", ["text"])
def test_labels_of_a_document_are_decided_as_in_python(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def decide(opened: Store) -> None:
        opened.decide({"id": "x", "text": "paw purr"}, ["cat", "fish"], ["dog"])
        opened.decide("x", ["bird"])

    copy = both(store, decide)
    out, _ = run(capfd, "decide", store, "x", "--text", "paw purr", "-a", "cat", "-a", "fish", "--reject", "dog")
    assert out == "x has accepted: cat, fish; rejected: dog; 37 documents, 4 labels\n"
    assert printed_json(capfd, "decide", store, "x", "--accept", "bird") == {
        "id": "x", "carries": [], "accepted": ["cat", "bird", "fish"], "rejected": ["dog"], "documents": 37, "labels": 4
    }  # fmt: skip
    assert state(store) == state(copy)
    assert "cat, bird, fish, not dog" in " ".join(run(capfd, "history", store, "-n", "1")[0].split())
    listed = run(capfd, "decide", store, "--list")[0]
    assert json.loads(listed)["rejected"] == ["dog"]
    assert run(capfd, "decide", store, "x", "--withdraw")[0].startswith("x has no labels and no decisions;")
    (tmp_path / "decisions.jsonl").write_text(listed + '{"id": "x", "rejected": ["cat"]}\n')
    assert printed_json(capfd, "decide", store, "--file", tmp_path / "decisions.jsonl")["decisions"] == 2
    found = printed_json(capfd, "decide", store, "x", "--complete")
    assert (found["carries"], found["accepted"], found["rejected"]) == (["bird", "fish"], [], [])
    (tmp_path / "decisions.jsonl").write_text('{"id": "x", "rejected": ["unheard"]}\n')
    wrong: dict[tuple[str | Path, ...], str] = {
        ("--file", tmp_path / "decisions.jsonl"): ":1: there is no label 'unheard'; nothing was changed.",
        (): "which document? Give its id, or --file with decisions, or --list.",
        ("x",): "there is no decision: name a label that is accepted or rejected.",
    }
    for words, sentence in wrong.items():
        assert sentence in run(capfd, "decide", store, *words, code=2)[1]


# -------------------------------------------------------------------------------------------------------------- labels


def retire(store: Store) -> None:
    store.retire_label("cat")
    store.retire_label("dog")


LABELS: dict[str, tuple[list[str], Callable[[Store], object], dict[str, Any], str]] = {
    "add": (["add", "x", "cat"], lambda s: s.add_labels(["x", "cat"]), {"new_labels": ["x"], "labels": 4},
            "1 new label: x; 36 documents, 4 labels"),
    "rename": (["rename", "cat", "felis"], lambda s: s.rename_label("cat", "felis"),
               {"old": "cat", "new": "felis", "labels": 3}, "cat renamed to felis; 36 documents, 3 labels"),
    "merge": (["merge", "cat", "dog", "--into", "pet"], lambda s: s.merge_labels(["cat", "dog"], "pet"),
              {"merged": ["cat", "dog"], "into": "pet", "labels": 2},
              "cat, dog merged into pet; 36 documents, 2 labels"),
    "retire": (["retire", "cat", "dog"], retire,
               {"retired": ["cat", "dog"], "labels": 3}, "cat, dog retired; 36 documents, 3 labels"),
    "reinstate": (["reinstate", "bird"], lambda s: s.reinstate_label("bird"),
                  {"reinstated": ["bird"], "labels": 3}, "bird reinstated; 36 documents, 3 labels"),
}  # fmt: skip


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_changed_as_in_python(name: str, store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words, do, expected, sentence = LABELS[name]
    copy = both(store, do)
    other = Path(shutil.copytree(store, store.with_name("other")))
    assert printed_json(capfd, "labels", words[0], store, *words[1:]) == {**expected, "documents": 36}
    assert state(store) == state(copy)
    assert run(capfd, "labels", words[0], other, *words[1:])[0] == sentence + "\n"


def test_labels_are_listed_by_name(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    both(store, lambda _: None)
    with Store.open(store) as opened:
        opened.retire_label("cat")
        opened.add_labels(["cattle", "tab\there"])
        count = {label: sum(label in opened.document(id)["labels"] for id in opened.ids()) for label in WORDS}
    out, _ = run(capfd, "labels", "list", store)
    assert out.splitlines() == [
        f"bird\t{count['bird']}", f"cat\t{count['cat']}\tretired", "cattle\t0", f"dog\t{count['dog']}", "tab\\there\t0",
    ]  # fmt: skip
    out, _ = run(capfd, "labels", "list", store, "--prefix", "cat", "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"label": "cat", "documents": count["cat"], "retired": True},
        {"label": "cattle", "documents": 0, "retired": False},
    ]


def test_documents_are_found_as_in_python(form: str, store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Store.open(store) as opened:
        if form == "text":
            opened.learn([{"id": "odd", "text": "a tab\there and a zebra", "labels": ["cat"]}])
        query = "zebra" if form == "text" else ""
        expected = list(opened.search(query, labels=["cat"]))
    out, _ = run(capfd, "search", store, query, "--label", "cat", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["id"] for one in found] == [one.id for one in expected]
    assert found
    out, _ = run(capfd, "search", store, "--label", "cat", "-n", "1", "--newest")
    with Store.open(store, readonly=True) as opened:
        (newest,) = opened.search(labels=["cat"], sort="newest", n=1)
    assert [one["id"] for one in found if f" {one['id']} " in out] == [newest.id] or form == "text"
    assert f" {newest.id} " in out


# -------------------------------------------------------------------------------------------------------------- upkeep


def test_compacting_erases_forgotten_words(
    store: Path, form: str, made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(capfd, "update", store, made / f"{form}-new.jsonl")
    run(capfd, "forget", store, "new")
    other = Path(shutil.copytree(store, store.with_name("other")))
    found = printed_json(capfd, "compact", store)
    assert found.pop("megabytes") > 0
    assert found == {"dropped_labels": ["fish"], "documents": 37, "labels": 3}
    assert not any(b"unheard" in file.read_bytes() for file in store.rglob("*") if file.is_file())
    out, _ = run(capfd, "compact", other)
    assert re.fullmatch(r"[\d.]+ MB; 1 label without documents removed; 37 documents, 3 labels\n", out)


def test_a_refit_is_that_of_python(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = both(store, lambda s: s.refit())
    summary = printed_json(capfd, "refit", store)
    assert state(store) == state(copy)
    assert (summary["documents"], summary["rows"], summary["method"]) == (36, 36, "RIPML")
    out, _ = run(capfd, "refit", store)
    assert out.startswith(f"Refitted {store}\n  documents            36\n")


def test_the_history_is_printed_newest_first(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Store.open(store) as opened:
        opened.forget(["d0"])
        opened.merge_labels(["cat"], "pet")
        opened.relabel("d2", [], actor="ann")
    with Store.open(store, readonly=True) as opened:
        expected = opened.history(3)
    out, _ = run(capfd, "history", store, "-n", "3", "--json")
    assert [json.loads(line) for line in out.splitlines()] == expected
    out, _ = run(capfd, "history", store, "-n", "2", "--before", str(expected[0]["number"]), "--json")
    assert [json.loads(line) for line in out.splitlines()] == expected[1:]
    assert run(capfd, "history", store, "--before", "1")[0] == f"{store} has no changes before 1\n"
    before = expected[0]["before"]
    assert before
    lines = run(capfd, "history", store)[0].splitlines()
    assert lines[0] == f"The last changes of {store}"
    assert lines[2].split() == ["number", "time", "(UTC)", "by", "kind", "id", "labels"]
    assert re.fullmatch(rf" \d+ +[\d-]+ [\d:]+ +ann +relabel +d2 +{', '.join(before)} → none *", lines[4])
    assert re.fullmatch(r" \d+ +[\d-]+ [\d:]+ +merge labels +cat → pet *", lines[5])


def test_a_new_store_has_no_history(made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(capfd, "train", made / "text.jsonl", tmp_path / "s", "--store", *PAPER)
    assert run(capfd, "history", tmp_path / "s")[0] == f"{tmp_path / 's'} has no changes yet\n"
    assert run(capfd, "history", tmp_path / "s", "--json")[0] == ""
    assert printed_json(capfd, "inspect", tmp_path / "s")["last_change"] is None
    assert re.search(r"last change +none", run(capfd, "inspect", tmp_path / "s")[0])


# ------------------------------------------------------------------------------------------- what takes a model folder


def test_a_store_answers_like_its_model_while_a_writer_has_it_open(
    store: Path, form: str, made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = made / f"{form}.jsonl"
    with Store.open(store) as writer:
        writer.learn(NEWS[form])
        writer.model.save(tmp_path / "model")
        for words in (["predict", "--top", "2"], ["predict", "--sets", "--json"], ["evaluate", "--json"]):
            asked, *options = words
            answers = [run(capfd, asked, folder, data, *options)[0] for folder in (store, tmp_path / "model")]
            assert answers[0] == answers[1] != ""
        facts = printed_json(capfd, "inspect", store)
        assert facts.pop("documents") == 38
        assert facts.pop("last_change") == writer.history(1)[0]
        model = writer.model.model
        assert isinstance(model, RIPML)
        measured = ("drift", "refactorised")  # by the writer alone
        assert {n: v for n, v in facts.pop("warm").items() if n not in measured} == {
            n: v for n, v in model.warm_.items() if n not in measured
        }
        assert facts == printed_json(capfd, "inspect", tmp_path / "model")
        out, _ = run(capfd, "inspect", store)
        assert out.startswith(f"Store {store}\n")
        assert re.search(r"documents +38\n", out)
        assert re.search(r"last change +\d+, learn, \d{4}-", out)
        assert re.search(r"since the fit +\d rows learnt, ", out)
        assert run(capfd, "labels", "list", store)[0]
        assert run(capfd, "explain", store, data)[0]


def expected_of(why: Why, store: Store) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(why.to_json()))
    for record, example in zip(found["examples"], why.examples, strict=True):
        if example.row is None:
            record["documents"] = store.carriers(example.labels, 3)
        else:
            record["documents"] = [store.rows([example.row])[example.row]]
    return found


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_explanations_are_those_of_python_with_the_names_of_documents_and_words(
    preset: str, form: str, made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = PAPER if preset == "paper" else ("--dims", "16", "--neighbors", "3", "--ridge", "1", "--relevance", "0")
    data = made / f"{form}.jsonl"
    run(capfd, "train", data, tmp_path / "s", "--store", *options)
    run(capfd, "update", tmp_path / "s", made / f"{form}-new.jsonl")
    out, _ = run(capfd, "explain", tmp_path / "s", data, "-n", "2", "--examples", "4", "--features", "3", "--json")
    printed = [json.loads(line) for line in out.splitlines()]
    assert [row["id"] for row in printed] == [f"d{i}" for i in range(36)]
    store = Store.open(tmp_path / "s", readonly=True)
    trained = store.model
    found = trained.explain(trained.read(data), trained.rules.but(n=2), 4, 3)
    assert [row["labels"] for row in printed] == [[expected_of(w, store) for w in row] for row in found]
    rows = [example for row in printed for label in row["labels"] for example in label["examples"]]
    assert any(example["row"] is None for example in rows)
    assert any(example["row"] is not None for example in rows) == (preset == "default")
    assert all(example["documents"] for example in rows)


def test_an_explanation_is_readable(form: str, store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = [{"id": "q", **body(form, ["bark", "leash", "bark"])}, {"id": "none", **body(form, ["zzz"])}]
    file = written(tmp_path / "new.jsonl", asked)
    lines = run(capfd, "explain", store, file, "-n", "1")[0].splitlines()
    assert lines[0] == "q"
    assert re.fullmatch(r"└── dog  [01]\.\d{4}", lines[1])
    assert any(re.fullmatch(r" {4}├── +\d+ %  documents d\d+, d\d+, d\d+ and \d+ more: dog", line) for line in lines)
    what = "words" if form == "text" else "features"
    assert any(re.fullmatch(rf" {{4}}└── {what}: .*(bark|leash) \+\d\.\d{{3}}.*", line) for line in lines)
    assert lines[-1] == "none has no feature or word that the model knows, and therefore no labels"
    shares = [int(found[1]) for line in lines if (found := re.search(r"── +(\d+) % ", line))]
    assert 98 <= sum(shares) <= 102


def test_a_document_is_listed_once_as_an_example_and_words_are_those_of_the_text(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = {"p": ("password refused", ["login"]), "m": ("mails arrive late", ["mail"]), "i": ("invoice", ["bill"])}
    rows = [{"id": id, "text": text, "labels": labels} for id, (text, labels) in texts.items()]
    run(capfd, "train", written(tmp_path / "rows.jsonl", rows), tmp_path / "s", "--store", "--neighbors", "1")
    question = ("explain", tmp_path / "s", "the passwords were refused", "-n", "1")
    (label,) = printed_json(capfd, *question)["labels"]
    assert [example["documents"] for example in label["examples"]] == [["p"], ["p"]]
    lines = run(capfd, *question)[0].splitlines()
    assert [line for line in lines if "document" in line] == ["    ├── 100 %  document p: login"]
    assert re.findall(r"([\w-]+) [+-]\d\.\d{3}", lines[-1]) == ["refused", "passwords"]


def test_a_model_without_its_documents_explains_by_row_numbers(
    form: str, made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capfd, "train", made / f"{form}.jsonl", tmp_path / "m", "--dims", "16", "--neighbors", "3", "--ridge", "1")
    rows = [{k: v for k, v in row.items() if k != "id"} for row in documents(form, 4)]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(map(json.dumps, rows)).encode())))
    out, _ = run(capfd, "explain", tmp_path / "m", "--data", "-")
    assert [line for line in out.splitlines() if line[:1] not in "├└│ "] == ["row 0", "row 1", "row 2", "row 3"]
    assert re.search(r"── +\d+ %  row \d+: \w+", out)
    assert re.search(r"── +\d+ %  \d+ rows: \w+", out)
    file = written(tmp_path / "rows.jsonl", rows)
    printed = [json.loads(line) for line in run(capfd, "explain", tmp_path / "m", file, "--json")[0].splitlines()]
    trained = DocumentModel.load(tmp_path / "m")
    assert isinstance(trained.model, RIPML)
    expected = trained.model.explain(trained.features(trained.read(file)), 3, 3, 8)
    assert [[label["examples"] for label in row["labels"]] for row in printed] == [
        [why.to_json()["examples"] for why in row] for row in expected
    ]
    assert "id" not in printed[0]


def test_an_example_whose_labels_were_renamed_meanwhile_is_shown_without_documents(
    store: Path, form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def renamed(*_: object) -> list[str]:
        raise DataError("there is no label 'dog'.")

    monkeypatch.setattr(Store, "carriers", renamed)
    file = written(tmp_path / "new.jsonl", [body(form, ["bark", "leash"])])
    assert re.search(r" %  \d+ rows: dog", run(capfd, "explain", store, file)[0])


def test_results_in_a_file_are_untouched_by_a_progress_bar_on_the_terminal(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = made / "text.jsonl"
    expected, _ = run(capfd, "predict", made / "text", data)
    ours, its = pty.openpty()
    with (tmp_path / "out").open("wb") as file:
        words = [sys.executable, "-m", "ripml", "predict", str(made / "text"), str(data)]
        done = subprocess.Popen(words, stdout=file, stderr=its)
        os.close(its)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux says that the other side of a terminal is closed
            while block := os.read(ours, 4096):
                shown += block
        os.close(ours)
    assert done.wait() == 0
    assert b"predicting" in shown
    assert b"cat" not in shown
    assert (tmp_path / "out").read_text() == expected


# ------------------------------------------------------------------------------------------------------------ mistakes

ERRORS: dict[str, tuple[list[str], str]] = {
    "update of no store": (
        ["update", "model", "text.jsonl"],
        "model is not a store; create one with ripml train DATA model --store",
    ),
    "history of nothing": (
        ["history", "nowhere"],
        "nowhere is not a store; create one with ripml train DATA nowhere --store",
    ),
    "labels of a model": (["labels", "list", "model"], "model is not a store"),
    "half a store": (["predict", "half", "text.jsonl"], "half: the creation of this store was not finished"),
    "no rows": (["update", "store", "none.txt"], r"none\.txt has no rows"),
    "no such file": (["update", "store", "no.jsonl"], r"no\.jsonl: cannot be read"),
    "another kind of rows": (["update", "store", "named.jsonl"], r"trained on texts, but named\.jsonl has none"),
    "an id twice": (["update", "store", "twice.jsonl"], "document 'a' is given twice"),
    "a bad line": (["update", "store", "bad.jsonl"], r"bad\.jsonl:2: this is not JSON"),
    "nothing to forget": (
        ["forget", "store"],
        "give either the ids of the documents to forget, or a file of ids with --from",
    ),
    "two ways to forget": (["forget", "store", "d1", "--from", "ids"], "give either the ids .* with --from"),
    "an unknown id": (["forget", "store", "d1", "nobody"], "there is no document 'nobody'"),
    "ids in no letters": (["forget", "store", "--from", "latin"], "latin: the text is not UTF-8"),
    "no ids": (["forget", "store", "--from", "no"], r"no: cannot be read \(no such file\)"),
    "an unknown document": (["relabel", "store", "nobody", "cat"], "there is no document 'nobody'"),
    "a name that is taken": (["labels", "rename", "store", "cat", "dog"], "there is a label 'dog' already"),
    "an unknown label": (["labels", "retire", "store", "cat", "nolabel"], "there is no label 'nolabel'"),
    "a merge into nothing": (["labels", "merge", "store", "cat"], "--into"),
    "no command": (["labels", "store"], "No such command 'store'"),
    "no changes": (["history", "store", "-n", "0"], "Invalid value for '--last'"),
    "no labels": (["explain", "store", "text.jsonl", "-n", "0"], "Invalid value for '--top'"),
    "no examples": (["explain", "store", "text.jsonl", "--examples", "0"], "Invalid value for '--examples'"),
    "no words": (["explain", "store", "text.jsonl", "--features", "0"], "Invalid value for '--features'"),
    "a model that gives no reasons": (["explain", "model", "text.jsonl"], "model holds Popularity, which cannot"),
    "a picture of a store": (["inspect", "store", "--plot", "a.png"], "it cannot plot a model or a store"),
}


@pytest.fixture(scope="module")
def broken(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with the files that the errors are about, and the state of its store."""
    folder = tmp_path_factory.mktemp("broken")
    shutil.copytree(made / "text", folder / "store")
    for name in FORMS:
        shutil.copy(made / f"{name}.jsonl", folder)
    (folder / "none.txt").write_text("0 4 3\n")
    written(folder / "twice.jsonl", [{"id": "a", "text": "paw", "labels": ["cat"]}] * 2)
    (folder / "bad.jsonl").write_text('{"text": "paw", "labels": ["cat"]}\n{\n')
    (folder / "latin").write_bytes(b"caf\xe9\n")
    (folder / "half").mkdir()
    (folder / "half" / "writer.lock").write_text("")
    with pytest.raises(SystemExit):
        main(["train", str(folder / "text.jsonl"), str(folder / "model"), "--method", "popularity"])
    return folder, state(folder / "store")


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_sentence_and_changes_nothing(
    name: str,
    broken: tuple[Path, dict[str, Any]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, before = broken
    monkeypatch.chdir(folder)
    words, sentence = ERRORS[name]
    out, err = run(capfd, *words, code=2)
    last = err.splitlines()[-1]
    assert last.startswith("ripml: ")
    assert re.search(sentence, last), last
    assert "Traceback" not in err
    assert out == ""
    assert state(Path("store")) == before


def test_the_history_has_the_name_of_the_user(
    store: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    run(capfd, "forget", store, "d0")
    run(capfd, "labels", "add", store, "x")
    with Store.open(store, readonly=True) as opened:
        assert [entry["actor"] for entry in opened.history(3)] == ["ann", "ann", None]


def test_a_store_is_backed_up_and_restored(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = printed_json(capfd, "backup", store, tmp_path / "backup")
    assert (made["change"], made["documents"]) == (3, 36)
    before = state(store)
    run(capfd, "forget", store, "d0", "d1")
    _, err = run(capfd, "restore", tmp_path / "backup", store, code=2)
    assert "already exists and is not an empty folder; nothing was restored" in err
    out, _ = run(capfd, "restore", tmp_path / "backup", store, "--replace")
    assert out == f"{store} restored as it was after change 3; 36 documents\n"
    assert state(store) == before
    assert run(capfd, "backup", store, tmp_path / "again")[0].startswith(
        f"{store} after change 3 copied to {tmp_path / 'again'}; 36 documents, "
    )


def test_a_check_has_one_line_per_check_and_an_exit_code(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = run(capfd, "check", store, "--full")[0].splitlines()
    names = ["database", "journal", "documents", "snapshot", "model", "scores"]
    assert [line.split()[:2] for line in lines] == [["ok", name] for name in names]
    next(store.glob("model-*/manifest.json")).unlink()
    lines = run(capfd, "check", store, code=1)[0].splitlines()
    assert lines[-1].startswith("WRONG snapshot")
    _, err = run(capfd, "backup", store, store.with_name("backup"))
    assert re.search(
        r"^ripml: .*backup: the backup has all documents, but the model in .* is damaged", err, re.MULTILINE
    )
    found, err = run(capfd, "labels", "list", store)
    assert err.count("\n") == 1
    assert err.endswith(f"this reader has fitted it again for itself; `ripml rebuild {store}` does so for all.\n")
    assert "bird\t21\n" in found
    assert printed_json(capfd, "rebuild", store)["documents"] == 36
    run(capfd, "check", store, "--full")
    assert run(capfd, "rebuild", store)[0].startswith(f"Rebuilt {store}\n")


def test_documents_are_exported_to_a_file_or_to_standard_output(
    store: Path, form: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(next(store.glob("model-*")))
    assert (
        run(capfd, "export", store, tmp_path / "out.jsonl")[0] == f"36 documents written to {tmp_path / 'out.jsonl'}\n"
    )
    assert run(capfd, "export", store, "-")[0] == (tmp_path / "out.jsonl").read_text()
    assert len(datasets.read(tmp_path / "out.jsonl")) == 36
    if form == "text":
        run(capfd, "export", store, tmp_path / "out", "--format", "csv")
        assert (tmp_path / "out").read_bytes().startswith(b"id,text,labels\r\n")


def test_a_second_writer_gets_an_error(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Store.open(store):
        commands: list[list[str | Path]] = [["forget", store, "d0"], ["compact", store], ["labels", "add", store, "x"]]
        for words in commands:
            _, err = run(capfd, *words, code=2)
            assert re.fullmatch(
                r"ripml: .*store: is open for writing by process \d+; it can be read meanwhile\.\n", err
            )
    run(capfd, "forget", store, "d0")


def test_a_store_is_published_for_readers_once_per_change(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "shared" / "store"
    made = printed_json(capfd, "publish", store, target)
    with Store.open(target, readonly=True) as opened:
        assert (made["change"], made["documents"]) == (opened.version, len(opened))
    assert run(capfd, "publish", store, target)[0] == "nothing has changed\n"
    run(capfd, "forget", store, "d0")
    out, _ = run(capfd, "publish", store, target)
    assert out == f"{target} is {store} after change {made['change'] + 1:,}\n"
    _, err = run(capfd, "publish", store, store, code=2)
    assert "already exists and is not a published store" in err


def test_every_command_has_help_with_an_example(capfd: pytest.CaptureFixture[str]) -> None:
    for command in (
        "update", "forget", "relabel", "compact", "refit", "history", "explain", "backup", "publish", "check"
    ):  # fmt: skip
        out, _ = run(capfd, command, "--help")
        assert f"Usage: ripml {command}" in out
        assert f"Example: ripml {command} store/" in out
    for command in ("list", "add", "rename", "merge", "retire", "reinstate"):
        assert f"Example: ripml labels {command} store/" in run(capfd, "labels", command, "--help")[0]
    assert run(capfd, "labels")[0] == run(capfd, "labels", "--help")[0]
