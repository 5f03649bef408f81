"""suggest and explain give the answers of the library, however a text is passed; options of train, serve and keys."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy.sparse import csr_array
from test_cli import run

from ripml import RIPML, datasets
from ripml.cli.output import NO_LABELS, print_scores
from ripml.datasets import Dataset
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules
from ripml.text import Doc2Vec, TfIdf

WORDS = {"cat": "paw purr mouse whisker", "dog": "bark bone leash paw", "birds & bees": "wing song nest feather"}
ROWS = [
    (f"{one} {other}", [label]) for label, words in WORDS.items() for one in words.split() for other in words.split()
]
TEXT = "bark, bone\nand a song — über 猫"
PAPER = ("--preset", "paper", "--dims", "16", "--neighbors", "5", "--ridge", "1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, a model of them, and one of features."""
    folder = tmp_path_factory.mktemp("made")
    rows = [json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in ROWS]
    (folder / "docs.jsonl").write_text("".join(rows))
    data = datasets.read(folder / "docs.jsonl")
    estimator = RIPML.paper(n_dims=16, n_neighbors=5, ridge=1, random_state=0)
    DocumentModel.fit(data, None, estimator).save(folder / "model")
    X = TfIdf(min_df=1).fit_transform(data.texts or [])
    numbers = Dataset(X=X, Y=data.Y, label_names=data.label_names, name="numbers")
    DocumentModel.fit(numbers, None, estimator).save(folder / "numbers")
    (folder / "text.txt").write_text(TEXT + "\n")
    (folder / "rows.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
    (folder / "named.jsonl").write_text('{"id": "a", "text": "purr"}\n{"id": "b", "text": "zzz"}\n')
    (folder / "latin.txt").write_bytes(b"caf\x8e")  # é in Mac Roman
    return folder


@pytest.mark.parametrize("options", [[], ["--json"], ["--top", "1"], ["--threshold", "0.4", "--json"]])
def test_the_same_bytes_come_from_argument_file_row_and_standard_input(
    options: list[str], made: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[list[Any]] = [[TEXT], ["--file", made / "text.txt"], ["--data", made / "rows.jsonl"], ["-"], []]
    answers = []
    for way in ways:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{TEXT}\n".encode())))
        answers.append(run(capfd, "suggest", made / "model", *way, *options)[0])
    assert answers == [answers[0]] * len(ways)
    assert answers[0]


def test_suggestions_are_those_of_python_to_the_last_digit(made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = DocumentModel.load(made / "model")
    texts = [TEXT, "purr whisker", "zzz"]
    out, _ = run(capfd, "suggest", made / "model", *texts, "--json")
    printed = [[(pair["label"], pair["score"]) for pair in json.loads(line)["labels"]] for line in out.splitlines()]
    assert printed == model.suggest(texts)
    assert printed[2] == []
    out, _ = run(capfd, "suggest", made / "model", *texts, "-n", "1", "--threshold", "auto", "--json")
    printed = [[(pair["label"], pair["score"]) for pair in json.loads(line)["labels"]] for line in out.splitlines()]
    assert printed == model.suggest(texts, model.rules.but(n=1, threshold="auto"))
    plain, _ = run(capfd, "suggest", made / "model", TEXT)
    assert plain.splitlines() == [f"{label}\t{score:.4f}" for label, score in model.suggest([TEXT])[0]]


def test_with_several_texts_each_line_begins_with_the_number_the_id_or_the_file(
    made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, _ = run(capfd, "suggest", made / "model", "purr", "bark", "-n", "1")
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["0", "cat"], ["1", "dog"]]
    out, err = run(capfd, "suggest", made / "model", "--data", made / "named.jsonl", "-n", "1")
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["a", "cat"]]
    assert "predicting: 2 rows" in err
    out, _ = run(capfd, "suggest", made / "model", "--data", made / "named.jsonl", "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["a", "b"]
    files = [str(made / name) for name in ("text.txt", "docs.jsonl")]
    out, _ = run(capfd, "suggest", made / "model", "--file", files[0], "--file", files[1], "-n", "1")
    assert [line.split("\t")[0] for line in out.splitlines()] == files


@pytest.mark.parametrize("options", [[], ["--json"], ["--top", "1"]])
def test_explain_takes_texts_in_the_same_ways_as_suggest(
    options: list[str], made: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[list[Any]] = [[TEXT], ["--file", made / "text.txt"], ["-"], []]
    answers = []
    for way in ways:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{TEXT}\n".encode())))
        answers.append(run(capfd, "explain", made / "model", *way, *options)[0])
    assert answers == [answers[0]] * len(ways)
    rows = run(capfd, "explain", made / "model", made / "rows.jsonl", *options)[0]
    assert rows == run(capfd, "explain", made / "model", "--data", made / "rows.jsonl", *options)[0]
    assert rows == answers[0].replace("bark, bone and a song — über 猫", "row 0")


def test_explain_takes_the_name_of_a_data_file_as_a_file(made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, err = run(capfd, "explain", made / "model", "new.jsonl", code=2)
    assert err.splitlines()[-1] == "ripml: new.jsonl: cannot be read (no such file)."
    out, _ = run(capfd, "explain", made / "model", "purr", 40 * "bark ", "-n", "1")
    assert [line for line in out.splitlines() if line[:1] not in "├└│ "] == ["purr", (15 * "bark ")[:72] + "…"]


def test_texts_without_labels_are_reported_on_standard_error(made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    why = f"{NO_LABELS}\n"
    assert run(capfd, "suggest", made / "model", "zzz") == ("", f"no labels: {why}")
    out, err = run(capfd, "suggest", made / "model", "zzz", "purr", "-n", "1")
    assert (out[:6], err) == ("1\tcat\t", f"no labels for 1 of 2 texts: {why}")
    assert run(capfd, "suggest", made / "model", "zzz", "--json") == ('{"labels": []}\n', "")


def test_scores_are_bars_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    print_scores([("cat", 0.5), ("猫", 1.2), ("none", 0.0)])
    assert capfd.readouterr().out.splitlines() == [
        f"  cat   0.5000  {12 * '█'}", f"  猫    1.2000  {24 * '█'}", "  none  0.0000  ",
    ]  # fmt: skip
    print_scores([])
    assert "no labels" in capfd.readouterr().out


ERRORS: dict[str, tuple[list[str], str]] = {
    "two ways": (
        ["model", "purr", "--file", "text.txt"],
        "give either texts, or files of texts with --file, or rows with",
    ),
    "nothing to read": (["model"], "give a text, a file with --file, rows with --data, or a text on"),
    "no top": (["model", "purr", "--top", "0"], "Invalid value for '--top'"),
    "a threshold in words": (
        ["model", "purr", "--threshold", "high"],
        "Invalid value for '--threshold': 'high' is neither a number nor auto.",
    ),
    "no number": (["model", "purr", "--threshold", "nan"], "--threshold must be a number, 'auto' or None; got nan."),
    "no letters": (["model", "--file", "latin.txt"], "latin.txt:1: the line is neither UTF-8 nor, as it"),
    "no file": (["model", "--file", "no.txt"], "no.txt: cannot be read (no such file)."),
    "a model of features": (["numbers", "purr"], "numbers was trained on features, not on texts; give it rows with"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_sentence(
    name: str, made: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, sentence = ERRORS[name]
    monkeypatch.chdir(made)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    out, err = run(capfd, "suggest", *words, code=2)
    assert err.startswith(f"ripml: {sentence}"), err
    assert (out, err.count("\n")) == ("", 1)


def test_a_text_that_names_a_file_stands_for_the_file(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letter.txt").write_text(f"{TEXT}\n")
    (tmp_path / "page.html").write_text(f"<p>{TEXT}</p>")
    expected = run(capfd, "suggest", made / "model", TEXT)[0]
    for name in ("letter.txt", "page.html"):
        assert run(capfd, "suggest", made / "model", name)[0] == expected
    both, _ = run(capfd, "suggest", made / "model", "letter.txt", "page.html", "--json")
    assert [json.loads(line)["id"] for line in both.splitlines()] == ["letter.txt", "page.html"]
    rows, _ = run(capfd, "suggest", made / "model", made / "rows.jsonl")
    assert rows == run(capfd, "suggest", made / "model", "--data", made / "rows.jsonl")[0]
    for words, sentence in (
        (["no.pdf"], "no.pdf: cannot be read (no such file)."),
        (["letter.txt", str(made / "rows.jsonl")], f"{made / 'rows.jsonl'} is a file of rows; give nothing beside it."),
    ):
        assert run(capfd, "suggest", made / "model", *words, code=2)[1].splitlines()[-1] == f"ripml: {sentence}"


def test_evaluate_names_labels_that_the_model_does_not_know(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "purr", "labels": ["cat", "zebra"]}\n')
    _, err = run(capfd, "evaluate", made / "model", tmp_path / "rows.jsonl")
    assert "ripml: warning: the model does not know 1 of the 2 labels, such as 'zebra'; they count as missed." in err
    assert "on held-out rows     too few rows to measure" in run(capfd, "inspect", made / "model")[0]


# --------------------------------------------------------------------------------------------------------------- train


def test_the_rules_of_train_are_kept_with_the_model_and_the_store(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "never").write_text("dog\n")
    (tmp_path / "only").write_text("cat\r\ndog\n")
    rules = ("--stop-labels", tmp_path / "never", "--allowed-labels", tmp_path / "only", "--min-count", "3")
    for folder, options in (("m", []), ("s", ["--store"]), ("b", ["--memory", "2MB"])):
        run(capfd, "train", made / "docs.jsonl", tmp_path / folder, *PAPER, *rules, *options)
        out, _ = run(capfd, "suggest", tmp_path / folder, "bark purr song")
        assert [line.split("\t")[0] for line in out.splitlines()] == ["cat"]
        shown = {"stop_labels": 1, "allowed_labels": 2, "min_count": 3}
        assert json.loads(run(capfd, "inspect", tmp_path / folder, "--json")[0])["rules"] == shown
        assert "stop labels 1, allowed labels 2, min count 3" in run(capfd, "inspect", tmp_path / folder)[0]
    expected = Rules(stop_labels={"dog"}, allowed_labels={"cat", "dog"}, min_count=3)
    assert DocumentModel.load(tmp_path / "m").rules == expected


def test_rules_without_effect_are_warned_about(made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "never").write_text("dog\nfax\n")
    (tmp_path / "only").write_text("cat\nhorse\nant\n")
    rules = ("--stop-labels", tmp_path / "never", "--allowed-labels", tmp_path / "only", "--min-count", "17")
    _, err = run(capfd, "train", made / "docs.jsonl", tmp_path / "m", *PAPER, *rules)
    assert [line for line in err.splitlines() if line.startswith("ripml: ")] == [
        "ripml: warning: 1 row repeats the text of another row, 1 of them with other labels, such as 'row 0 = row 31'; "
        "delete the copies, or the precision on held-out rows may be too high; where labels differ, find the right.",
        "ripml: warning: --stop-labels: no row has the label 'fax'.",
        "ripml: warning: --allowed-labels: no row has the label 'ant' or 1 more of these labels.",
        "ripml: warning: --min-count 17: no label has more than 16 rows, so none is suggested.",
    ]


def test_features_chooses_the_features_of_texts(made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gensim", reason="the extra `text` is not installed")
    run(capfd, "train", made / "docs.jsonl", tmp_path / "m", *PAPER, "--features", "doc2vec")
    assert isinstance(DocumentModel.load(tmp_path / "m").text, Doc2Vec)
    both = [json.dumps({"text": text, "labels": labels, "features": [1, 2]}) + "\n" for text, labels in ROWS]
    (tmp_path / "both.jsonl").write_text("".join(both))
    for options, kind in (([], type(None)), (["--features", "tfidf"], TfIdf)):
        run(capfd, "train", tmp_path / "both.jsonl", tmp_path / "m", *PAPER, *options)
        assert isinstance(DocumentModel.load(tmp_path / "m").text, kind)
    (tmp_path / "no.txt").write_text("2 2 2\n0 0:1\n1 1:1\n")
    _, err = run(capfd, "train", tmp_path / "no.txt", tmp_path / "x", "--features", "tfidf", code=2)
    assert err.endswith("--features requires texts, but " + str(tmp_path / "no.txt") + " has none; leave it out.\n")
    words = ("--features", "doc2vec", "--memory", "1GB")
    _, err = run(capfd, "train", made / "docs.jsonl", tmp_path / "x", *words, code=2)
    assert "leave out --memory" in err


def test_settings_of_a_file_override_the_preset_and_are_overridden_by_options(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel = {"stage": "RBF", "gamma": 0.25}
    (tmp_path / "best.json").write_text(json.dumps({"n_neighbors": 3, "kernel": kernel, "ridge": 2, "random_state": 7}))
    words = ("train", made / "docs.jsonl", tmp_path / "m", "--settings", tmp_path / "best.json")
    run(capfd, *words, "--ridge", "0.5", "--decoder", "sketch")
    found = DocumentModel.load(tmp_path / "m").model.get_params()
    names = ("n_neighbors", "ridge", "random_state", "decoder")
    assert [found[name] for name in names] == [3, 0.5, 7, "sketch"]
    assert found["kernel"].gamma == 0.25
    run(capfd, *words, "--gamma", "0.5", "--seed", "1", "--decoder", "sketch")
    found = DocumentModel.load(tmp_path / "m").model.get_params()
    assert (found["kernel"].gamma, found["random_state"]) == (0.5, 1)
    for content, sentence in (
        ("[]", " is not a file of settings; ripml tune writes one, best.json."),
        ('{"kernel": {"stage": "os"}}', " is not a file of settings; ripml tune writes one, best.json."),
        ('{"n_wings": 2}', ": RIPML has no setting `n_wings`."),
    ):
        (tmp_path / "best.json").write_text(content)
        assert run(capfd, *words, code=2)[1] == f"ripml: {tmp_path / 'best.json'}{sentence}\n"
    _, err = run(capfd, "train", made / "docs.jsonl", tmp_path / "m", "--preset", "linear", "--gamma", "1", code=2)
    assert err == "ripml: --gamma is the width of a kernel; it requires --kernel rbf or --kernel local.\n"


# --------------------------------------------------------------------------------------------------------------- serve


def test_serve_passes_its_options_to_the_server(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = pytest.importorskip("ripml.server", reason="the extra `serve` is not installed")
    called: list[Any] = []
    monkeypatch.setattr(server, "run", lambda *words: called.append(words))
    run(capfd, "serve", "a", "b=c", "--port", "0", "--origin", "https://a.org", "--rate", "5", "--read-only")
    expected = server.Settings(port=0, origins=("https://a.org",), rate=5.0, read_only=True)
    assert called == [(["a", "b=c"], expected)]
    monkeypatch.undo()
    _, err = run(capfd, "serve", tmp_path / "nothing", code=2)
    assert err.startswith(f"ripml: {tmp_path / 'nothing'}")
    assert "ripml train DATA FOLDER --store" in err


def test_keys_are_made_listed_and_removed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ripml.server", reason="the extra `serve` is not installed")
    file = tmp_path / "keys.jsonl"
    out, err = run(capfd, "keys", "add", file, "alice")
    assert (out.count("\n"), err) == (1, "Save this key now; it is not shown again.\n")
    assert out.strip() not in file.read_text()
    made = json.loads(run(capfd, "keys", "add", file, "bob", "--role", "write", "--json")[0])
    assert (made["name"], made["role"], len(made) == 3) == ("bob", "write", True)
    listed = [json.loads(line) for line in run(capfd, "keys", "list", file, "--json")[0].splitlines()]
    assert [(key["name"], key["role"]) for key in listed] == [("alice", "read"), ("bob", "write")]
    assert "alice" in run(capfd, "keys", "list", file)[0]
    assert run(capfd, "keys", "remove", file, "alice")[0] == "the key of alice was removed\n"
    assert run(capfd, "keys", "remove", file, "alice", code=2)[1].startswith("ripml: ")


def test_a_missing_extra_is_named_with_its_install_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("ripml.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("ripml.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    _, err = run(capfd, "serve", "store", code=2)
    assert err == "ripml: uvicorn is needed for this; install it with: pip install 'ripml[serve]'\n"


def test_a_label_with_a_tab_is_printed_with_an_escape(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Y = csr_array([[1.0], [1.0], [1.0], [1.0], [1.0]])
    data = Dataset(X=None, Y=Y, label_names=["tab\there"], texts=["paw"] * 5, name="odd")
    DocumentModel.fit(data, None, RIPML.paper(n_dims=4, n_neighbors=1, ridge=1)).save(tmp_path / "m")
    assert run(capfd, "suggest", tmp_path / "m", "paw")[0] == "tab\\there\t1.0000\n"
