"""The commands give the answers of the library in every format; an error is one sentence and exit code 2."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws import assert_same_scores
from scipy.sparse import csr_array

from ripml import RIPML, datasets, load, metrics
from ripml.cli import main
from ripml.datasets import Dataset
from ripml.labels.encoding import label_keys
from ripml.labels.ensembles import Structured
from ripml.labels.isometry import measure_isometry
from ripml.regression.kernels import Local

TEXTS = [
    ("the cat sat on the mat", ["cat"]),
    ("a cat and a dog", ["cat", "dog"]),
    ("the dog barks at night", ["dog"]),
    ("my dog sleeps on the mat", ["dog"]),
    ("cat food and cat toys", ["cat"]),
    ("a bird sings at night", ["bird"]),
    ("the bird flew over the dog", ["bird", "dog"]),
    ("birds of a feather, a bird in the hand", ["bird"]),
]


def world(n: int = 60, seed: int = 0) -> Dataset:
    """Three features decide three labels."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n)
    X = np.round(0.1 * rng.random((n, 4)), 3).astype(np.float32)
    X[np.arange(n), kind] = 1
    Y = np.eye(3, dtype=np.float32)[kind]
    return Dataset(X=csr_array(X), Y=csr_array(Y), label_names=["0", "1", "2"], name="world")


def run(capfd: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    assert stop.value.code == code, err
    return out, err


def write_texts(path: Path) -> Path:
    lines = [json.dumps({"id": str(i), "text": t, "labels": names}) for i, (t, names) in enumerate(TEXTS)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def trained(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    datasets.write(world(), tmp_path / "train.txt")
    run(capfd, "train", tmp_path / "train.txt", tmp_path / "model", "--dims", "20", "--seed", "3")
    return tmp_path / "model"


@pytest.mark.parametrize("suffix", ["txt", "txt.gz", "svm", "arff", "jsonl"])
def test_training_and_evaluating_give_the_same_as_python_in_every_format(
    suffix: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train, test = world(), world(30, seed=1)
    for name, data in (("train", train), ("test", test)):
        datasets.write(data, tmp_path / f"{name}.{suffix}")
    out, _ = run(capfd, "train", tmp_path / f"train.{suffix}", tmp_path / "m", "--dims", "20", "--seed", "3", "--json")
    summary = json.loads(out)
    assert (summary["rows"], summary["labels"], summary["features"]) == (60, 3, 4)
    out, _ = run(capfd, "evaluate", tmp_path / "m", tmp_path / f"test.{suffix}", "--json")
    named = suffix in ("jsonl", "arff")
    read_back = datasets.read(tmp_path / f"train.{suffix}")
    names = read_back.label_names if read_back.label_names != ["0", "1", "2"] else None
    model = RIPML(n_dims=20, random_state=3).fit(read_back.X, read_back.Y, label_names=names)
    assert json.loads(out)["P@1"] == pytest.approx(
        metrics.precision_at_k(test.Y, model.decision_function(test.X), k=1) if not named else 1.0
    )


def test_predicting_prints_what_recommend_returns(trained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    test = world(30, seed=1)
    path = trained.parent / "test.txt"
    datasets.write(test, path)
    out, _ = run(capfd, "predict", trained, path, "--top", "2", "--json")
    printed = [[(pair["label"], pair["score"]) for pair in json.loads(line)["labels"]] for line in out.splitlines()]
    expected = [[(str(name), score) for name, score in row] for row in load(trained).recommend(test.X, n=2)]
    assert printed == expected
    plain, _ = run(capfd, "predict", trained, path, "--top", "2")
    assert plain.splitlines()[0].split("\t")[0] == expected[0][0][0]


def test_predicted_sets_are_those_of_predict(trained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    test = world(30, seed=1)
    path = trained.parent / "test.txt"
    datasets.write(test, path)
    out, _ = run(capfd, "predict", trained, path, "--sets", "--json")
    printed = [sorted(int(pair["label"]) for pair in json.loads(line)["labels"]) for line in out.splitlines()]
    sets = load(trained).predict(test.X)
    assert printed == [sorted(sets[[i]].indices.tolist()) for i in range(30)]


def test_a_file_and_standard_input_give_the_same_bytes(
    trained: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trained.parent / "test.txt"
    datasets.write(world(30, seed=1), path)
    answers = [run(capfd, "predict", trained, path, "--json")[0]]
    for content in (path.read_bytes(), gzip.compress(path.read_bytes())):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        answers.append(run(capfd, "predict", trained, "-", "--json")[0])
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0].splitlines()) == 30


def test_texts_are_learnt_saved_and_predicted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = write_texts(tmp_path / "docs.jsonl")
    run(capfd, "train", data, tmp_path / "m", "--neighbors", "2", "--ridge", "0.1")
    (tmp_path / "new.jsonl").write_text('{"id": "x", "text": "a cat, my cat"}\n{"id": "y", "text": "the bird sings"}\n')
    out, _ = run(capfd, "predict", tmp_path / "m", tmp_path / "new.jsonl", "--top", "1", "--json")
    answers = [json.loads(line) for line in out.splitlines()]
    assert [(answer["id"], answer["labels"][0]["label"]) for answer in answers] == [("x", "cat"), ("y", "bird")]
    out, _ = run(capfd, "evaluate", tmp_path / "m", data, "--json")
    assert json.loads(out)["P@1"] > 0.8
    assert set(load(tmp_path / "m").classes_.tolist()) == {"bird", "cat", "dog"}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_columns_and_keys_of_other_names_are_named_by_options(
    suffix: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    usual = datasets.read(write_texts(tmp_path / "docs.jsonl"))
    file = tmp_path / f"other.{suffix}"
    if suffix == "parquet":
        pyarrow = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
        datasets.write(usual, file)
        table = pyarrow.read_table(file)
        pyarrow.write_table(table.rename_columns(["id", "body", "tags"]), file)
    else:
        datasets.write(usual, file)
        file.write_text(file.read_text().replace("text", "body").replace("labels", "tags"))
    text, both = ("--text-column", "body"), ("--text-column", "body", "--labels-column", "tags")
    for way in ([], ["--memory", "2MB"], ["--store"]):
        paper = ("--preset", "paper", "--dims", "20", "--neighbors", "2", *way)
        folders = [tmp_path / "-".join([name, *way]) for name in ("usual", "other")]
        run(capfd, "train", tmp_path / "docs.jsonl", folders[0], *paper)
        run(capfd, "train", file, folders[1], *paper, *both)
        for command, columns in (("predict", text), ("evaluate", both)):
            expected = run(capfd, command, folders[0], tmp_path / "docs.jsonl", "--json")[0]
            assert run(capfd, command, folders[1], file, *columns, "--json")[0] == expected
    assert "8 unchanged" in run(capfd, "update", folders[1], file, *both)[0]
    for command in ("suggest", "explain"):
        assert run(capfd, command, folders[1], "--data", file, *text)[0]
    assert json.loads(run(capfd, "inspect", file, *both, "--dims", "4", "--json")[0])["data"]["labels"] == 3


def test_named_features_find_their_columns_whatever_their_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(40):
        kind = int(rng.integers(2))
        lines.append({"labels": ["hot" if kind else "cold"], "features": {"sun": kind, "ice": 1 - kind, "x": 0.1}})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(capfd, "train", tmp_path / "train.jsonl", tmp_path / "m", "--dims", "10")
    (tmp_path / "new.jsonl").write_text(
        '{"features": {"never seen": 9, "ice": 1}}\n{"features": {"x": 0.1, "sun": 1}}\n'
    )
    out, _ = run(capfd, "predict", tmp_path / "m", tmp_path / "new.jsonl", "-n", "1")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["cold", "hot"]


@pytest.mark.parametrize("first", [0, 1])
def test_svmlight_rows_are_read_with_the_numbering_of_the_training_rows(
    first: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{kind} {kind + first}:1 {2 + first}:0.1" for kind in (0, 1) * 10]
    (tmp_path / "train.svm").write_text("\n".join(rows) + "\n")
    run(capfd, "train", tmp_path / "train.svm", tmp_path / "m", "--dims", "10")
    # Seen alone, this row could be of either numbering.
    (tmp_path / "new.svm").write_text(f"1 {1 + first}:1\n")
    out, _ = run(capfd, "predict", tmp_path / "m", tmp_path / "new.svm", "-n", "1")
    assert out.split("\t")[0] == "1"


def test_labels_never_seen_count_as_misses(trained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = trained.parent / "test.jsonl"
    path.write_text('{"labels": ["new"], "features": [1, 0, 0, 0]}\n{"labels": ["0"], "features": [1, 0, 0, 0]}\n')
    out, _ = run(capfd, "evaluate", trained, path, "--json")
    assert json.loads(out)["P@1"] == 0.5


def test_a_model_is_inspected(trained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capfd, "inspect", trained, "--json")
    assert json.loads(out)["solver"] == "kernel"
    out, _ = run(capfd, "inspect", trained)
    assert "factorise K" in out
    assert "ridge" in out


CHOSEN = {
    "default": {"gamma", "n_near", "temperature", "n_similar", "similar_temperature", "n_candidates", "trees"},
    "linear": {"temperature", "n_similar", "n_candidates", "trees"},
    "paper": set(),
}
ALWAYS = {
    "kernel", "relevance", "ridge", "ensemble", "n_dims", "n_learners", "clusters", "solver", "solver_reason",
    "converged", "decoder", "n_neighbors", "threshold",
}  # fmt: skip
KNOWN = {
    "method",
    "rows",
    "rows_without_labels",
    "features",
    "labels",
    "left_out",
    "calibration_error",
    "calibration_errors",
}


@pytest.mark.parametrize("preset", CHOSEN)
def test_a_preset_trains_the_same_model_as_in_python_and_all_its_settings_are_shown(
    preset: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train = world()
    datasets.write(train, tmp_path / "train.txt")
    out, _ = run(capfd, "train", tmp_path / "train.txt", tmp_path / "m", "--preset", preset, "--seed", "3", "--json")
    summary = json.loads(out)
    assert summary.keys() == KNOWN | ALWAYS | CHOSEN[preset] | {"seconds", "megabytes"}
    read_back = datasets.read(tmp_path / "train.txt")
    make = RIPML if preset == "default" else getattr(RIPML, preset)
    model = make(random_state=3).fit(read_back.X, read_back.Y)
    assert (load(tmp_path / "m").decision_function(train.X) != model.decision_function(train.X)).nnz == 0
    assert (summary["kernel"], summary["n_dims"]) == (model.kernel_.word, model.n_dims_)
    assert summary["ridge"] == model.ridge_.tolist()
    assert all(summary[name] == value for name, value in model.chosen_.items() if name in CHOSEN[preset])
    assert summary["calibration_error"] == pytest.approx(model.calibration_error_, abs=1e-6)
    inspected = json.loads(run(capfd, "inspect", tmp_path / "m", "--json")[0])
    assert inspected == {name: value for name, value in summary.items() if name not in ("seconds", "megabytes")}
    lines = run(capfd, "inspect", tmp_path / "m")[0].splitlines()
    assert len(lines) == 1 + len(inspected)


def test_a_local_kernel_is_trained_and_its_settings_are_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    datasets.write(world(), tmp_path / "train.txt")
    words = ["train", str(tmp_path / "train.txt"), str(tmp_path / "m"), "--kernel", "local", "--seed", "3"]
    summary = json.loads(run(capfd, *words, "--json")[0])
    kernel = load(tmp_path / "m").kernel_
    assert isinstance(kernel, Local)
    nearby = {"gamma": kernel.gamma, "nearby_ridge": kernel.ridge, "nearby_rows": 200}
    assert {name: summary[name] for name in nearby} == nearby
    assert (summary["kernel"], summary["decoder"]) == ("local", "blend")
    inspected = json.loads(run(capfd, "inspect", tmp_path / "m", "--json")[0])
    assert {name: inspected[name] for name in nearby} == nearby
    lines = run(capfd, "inspect", tmp_path / "m")[0]
    assert re.search(r"nearby ridge +[\d.]+", lines)
    assert re.search(r"nearby rows +200", lines)


def test_training_prints_a_short_summary_and_the_next_commands(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for n in (99, 100):
        datasets.write(world(n), tmp_path / f"{n}.txt")
        lines = run(capfd, "train", tmp_path / f"{n}.txt", tmp_path / "m", "--preset", "linear")[0].splitlines()
        judged = r"P@1 \d+\.\d %, P@3 \d+\.\d %, P@5 \d+\.\d %" if n == 100 else "too few rows to measure"
        for line, expected in zip(
            lines,
            [
                re.escape(f"Trained on {tmp_path}/{n}.txt, saved to {tmp_path}/m"),
                rf"  rows +{n}",
                r"  labels +3",
                r"  features +4",
                rf"  on held-out rows +{judged}",
                r"  seconds +[\d.]+",
                re.escape(f"Try it: ripml predict {tmp_path}/m FILE"),
                re.escape(f"All settings: ripml inspect {tmp_path}/m"),
            ],
            strict=True,
        ):
            assert re.fullmatch(expected, line), line


def test_a_target_that_cannot_be_written_is_an_error_before_the_data_are_read(
    trained: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.parent)
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("Dear")
    monkeypatch.setattr("ripml.cli.inputs.training_rows", lambda *_: pytest.fail("it read"))
    for words, sentence in (
        (["mine"], "mine holds other files and is not a model; choose another folder."),
        (["mine", "--store"], "mine holds other files, but a store needs a new or empty folder."),
        (["model", "--store"], "model holds other files, but a store needs a new or empty folder."),
        (
            ["mine/letter.txt/m"],
            f"mine/letter.txt/m: {Path.cwd()}/mine/letter.txt is not a folder that can be written to; choose",
        ),
        (["m", "--memory", "lots"], "--memory must be a size such as 500MB or 4GB; got 'lots'."),
    ):
        assert run(capfd, "train", "train.txt", *words, code=2)[1].startswith(f"ripml: {sentence}")
    monkeypatch.setitem(sys.modules, "distributed", None)
    _, err = run(capfd, "train", "train.txt", "m", "--dask", "tcp://127.0.0.1:1", code=2)
    assert err == "ripml: distributed is needed for this; install it with: pip install 'ripml[dask]'\n"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "is not a folder that can be written to" in run(capfd, "train", "train.txt", "m", code=2)[1]


def test_options_override_the_preset(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    datasets.write(world(), tmp_path / "train.txt")
    common = ["train", str(tmp_path / "train.txt"), str(tmp_path / "m"), "--json"]
    words = ["--dims", "30", "--neighbors", "auto", "--learners", "2", "--clusters", "2", "--ridge", "0.5"]
    out, _ = run(capfd, *common, "--preset", "paper", *words)
    found = json.loads(out)
    assert [found[name] for name in ("n_dims", "n_learners", "clusters", "ridge")] == [30, 2, 2, [0.5, 0.5]]
    assert (found["decoder"], found["kernel"], found["ensemble"]) == ("votes", "linear", "gaussian")
    words = ["--kernel", "rbf", "--relevance", "0.5", "--decoder", "least-squares", "--ensemble", "bernoulli"]
    out, _ = run(capfd, *common, "--preset", "linear", "--dims", "16", *words)
    found = json.loads(out)
    assert [found[name] for name in ("kernel", "relevance", "decoder", "ensemble", "n_dims")] == [
        "rbf", 0.5, "least-squares", "bernoulli", 16,
    ]  # fmt: skip
    assert found["epsilon"] > 0
    out, _ = run(capfd, *common, "--preset", "linear", "--solver", "dual", "--ensemble", "identity")
    found = json.loads(out)
    assert (found["solver"], found["solver_reason"], found["ensemble"]) == ("dual", "given", "identity")


@pytest.mark.parametrize("words", [[], ["--sets"]])
def test_predicted_probabilities_are_those_of_python_in_the_order_of_scores(
    words: list[str], trained: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    test = world(30, seed=1)
    path = trained.parent / "test.txt"
    datasets.write(test, path)
    by_score = [json.loads(line) for line in run(capfd, "predict", trained, path, *words, "--json")[0].splitlines()]
    out, _ = run(capfd, "predict", trained, path, *words, "--probabilities", "--json")
    printed = [json.loads(line)["labels"] for line in out.splitlines()]
    probabilities = load(trained).predict_proba(test.X).toarray()
    for i, row in enumerate(printed):
        assert [pair["label"] for pair in row] == [pair["label"] for pair in by_score[i]["labels"]]
        expected = [probabilities[i, int(pair["label"])] for pair in row]
        assert [pair["probability"] for pair in row] == pytest.approx(expected, abs=1e-6)
    plain, _ = run(capfd, "predict", trained, path, *words, "--probabilities")
    assert plain.splitlines()[0].split("\t")[1] == f"{printed[0][0]['probability']:.4f}"


@pytest.mark.parametrize("tail", [0.0, 0.5])
def test_scores_and_probabilities_together_are_those_of_the_two_methods(tail: float) -> None:
    rows = world()
    model = RIPML(tail=tail, random_state=0).fit(rows.X, rows.Y)
    scores, probabilities = model.scores_and_probabilities(rows.X)
    assert_same_scores(scores, model.decision_function(rows.X))
    assert_same_scores(probabilities, model.predict_proba(rows.X))


def test_the_isometry_of_a_file_is_measured_and_drawn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    datasets.write(world(), tmp_path / "train.txt")
    picture = tmp_path / "isometry.png"
    out, _ = run(capfd, "inspect", tmp_path / "train.txt", "--json", "--plot", picture, "--delta", "0.3")
    isometry = json.loads(out)["isometry"]
    assert 0.5 < isometry["ratio_quantiles"]["0.5"] < 1.5
    assert isometry["smallest_dims"] > 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    out, _ = run(capfd, "inspect", tmp_path / "train.txt", "--delta", "0.3")
    assert "smallest m with δ ≤ 0.3" in out
    _, err = run(capfd, "inspect", tmp_path / "train.txt", "--plot", tmp_path / "picture.docx", code=2)
    assert "must end in .png, .svg or .pdf" in err


def test_a_missing_extra_names_its_install_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets.write(world(), tmp_path / "train.txt")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _, err = run(capfd, "inspect", tmp_path / "train.txt", "--plot", tmp_path / "a.png", code=2)
    assert err.splitlines()[-1] == ("ripml: matplotlib is needed for this; install it with: pip install 'ripml[plot]'")


ERRORS: dict[str, tuple[list[str], str]] = {
    "no such file": (["train", "no.txt", "m"], r"no\.txt"),
    "no such set": (
        ["train", "nosuch", "m"],
        "there is no file and no data set 'nosuch'; ripml datasets list shows",
    ),
    "nothing to inspect": (["inspect", "nosuch"], "there is no file and no data set 'nosuch'"),
    "nothing to ask about": (["predict", "model", "nosuch"], "there is no file and no data set 'nosuch'"),
    "a folder of other things": (
        ["train", "folder", "m"],
        "folder: there is no document in this folder; give a file, a folder of",
    ),
    "no such model": (["predict", "nomodel", "train.txt"], "nomodel: this model folder cannot be opened"),
    "no such option": (["train", "--nosuch"], "--nosuch"),
    "no such command": (["fly"], "fly"),
    "a bad line": (["train", "bad.txt", "m"], r"bad\.txt:2: label 9 is not below L = 3"),
    "a ridge that is no number": (["train", "train.txt", "m", "--ridge", "much"], "--ridge must be 'auto' or"),
    "a negative ridge": (["train", "train.txt", "m", "--ridge=-1"], "--ridge must be 'auto' or"),
    "no dimensions": (["train", "train.txt", "m", "--dims", "0"], "--dims must be 'auto' or an integer ≥ 1; got 0"),
    "too many neighbours": (["train", "train.txt", "m", "--neighbors", "99"], "--neighbors = 99 is more than"),
    "a word for a number": (["train", "train.txt", "m", "--dims", "many"], "--dims must be .*; got 'many'"),
    "half a neighbour": (["train", "train.txt", "m", "--neighbors", "0.5"], "--neighbors must be .*; got 0.5"),
    "relevance that is no number": (
        ["train", "train.txt", "m", "--relevance", "much"],
        "--relevance must be 'auto' or",
    ),
    "an unknown preset": (["train", "train.txt", "m", "--preset", "best"], "best"),
    "an unknown decoder": (["train", "train.txt", "m", "--decoder", "oracle"], "oracle"),
    "votes with a kernel": (
        ["train", "train.txt", "m", "--preset", "paper", "--kernel", "rbf"],
        "--decoder votes is the paper's",
    ),
    "a local kernel without the blend": (
        ["train", "train.txt", "m", "--kernel", "local", "--decoder", "sketch"],
        "--kernel local is a signal among others, with --decoder blend",
    ),
    "an unknown ensemble": (["train", "train.txt", "m", "--ensemble", "cauchy"], "cauchy"),
    "no top": (["predict", "model", "train.txt", "--top", "0"], "Invalid value for '--top'"),
    "other features": (["predict", "model", "wide.txt"], "trained on 4 features, but wide.txt has 5"),
    "texts for features": (["predict", "model", "docs.jsonl"], "trained on 4 features, but docs.jsonl has only texts"),
    "nothing to compare": (["evaluate", "model", "unlabelled.txt"], "no labels to compare with"),
    "no labels at all": (["train", "unlabelled.txt", "m"], "none of the 2 rows carries a label"),
    "a share above one": (["inspect", "train.txt", "--quantile", "2"], "--quantile must be between 0 and 1; got 2"),
    "a negative seed": (["train", "train.txt", "m", "--seed=-1"], "--seed"),
    "a model that is a file": (["train", "train.txt", "bad.txt"], "bad.txt is a file, but the model needs a folder"),
    "a picture of a model": (["inspect", "model", "--plot", "a.png"], "it cannot plot a model or a store"),
    "an empty file": (["train", "empty", "m", "--format", "xmc"], "empty"),
    "an empty pipe": (["train", "./empty", "m"], "empty: the file is empty"),
    "an unknown format": (
        ["train", "odd", "m"],
        r"the first line '\\x1b\[31mred' tells the format; pass one of .* with --format\.",
    ),
    "other columns": (
        ["train", "other.csv", "m"],
        "there is no column 'text' among body, tags; name the right one with --text-column",
    ),
    "other keys": (
        ["train", "other.jsonl", "m"],
        "neither 'text' nor 'features' among the keys 'body', 'tags'; name the key of the text with --text-column",
    ),
    "labels under another name": (
        ["train", "other.csv", "m", "--text-column", "body"],
        "other.csv: no row has labels; name their column or key with --labels-column",
    ),
    "columns of what has none": (
        ["train", "train.txt", "m", "--text-column", "body"],
        "--text-column is not an option of the format xmc; its options: none",
    ),
    "columns for workers": (
        ["train", "other.csv", "m", "--text-column", "body", "--dask", "tcp://127.0.0.1:1"],
        "--dask reads the columns text and labels; leave out --text-column and --labels-column",
    ),
    "no rows": (["train", "norows.txt", "m"], "norows.txt has no rows"),
    "names for places": (
        ["predict", "model", "named.jsonl"],
        "in lists, but named.jsonl has them in objects",
    ),
    "an unknown original": (["datasets", "get", "nosuch", "--folder", "."], "nosuch"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_sentence_and_exit_code_two(
    name: str, trained: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.parent)
    Path("bad.txt").write_text("1 4 3\n9 0:1\n")
    Path("wide.txt").write_text("1 5 3\n1 0:1\n")
    Path("unlabelled.txt").write_text("2 4 3\n 0:1\n 1:1\n")
    Path("empty").write_text("")
    Path("folder").mkdir()
    Path("odd").write_text("\x1b[31mred\n")
    Path("other.csv").write_text("body,tags\na cat,cat\n")
    Path("other.jsonl").write_text('{"body": "a cat", "tags": ["cat"]}\n')
    Path("norows.txt").write_text("0 4 3\n")
    Path("named.jsonl").write_text('{"features": {"a": 1, "b": 0, "c": 0, "d": 0}}\n')
    write_texts(Path("docs.jsonl"))
    words, sentence = ERRORS[name]
    out, err = run(capfd, *words, code=2)
    last = err.splitlines()[-1]
    assert last.startswith("ripml: ")
    assert re.search(sentence, last), last
    assert "Traceback" not in err
    assert out == ""
    assert not Path("m").exists()


def test_debug_adds_the_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    _, err = run(capfd, "predict", "nomodel", "-", "--debug", code=2)
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("ripml: nomodel")


def test_an_unexpected_error_is_one_sentence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> None:
        raise ZeroDivisionError("division by zero\nsecond line")

    monkeypatch.setattr("ripml.datasets.load", broken)
    _, err = run(capfd, "demo", code=2)
    sentence = "ripml: ZeroDivisionError: division by zero; run again with --debug for the traceback"
    assert err.splitlines() == ["reading docstrings …", sentence]


def test_an_interrupt_stops_quietly(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ripml.datasets.load", interrupted)
    _, err = run(capfd, "demo", code=130)
    assert err.splitlines() == ["reading docstrings …", "ripml: stopped."]


def test_a_reader_that_closes_the_pipe_is_not_an_error(trained: Path) -> None:
    path = trained.parent / "many.txt"
    datasets.write(world(20_000, seed=1), path)
    command = f"{sys.executable} -m ripml predict {trained} {path} --json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_training_leaves_the_old_model(trained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {file.name: file.read_bytes() for file in trained.iterdir()}
    (trained.parent / "bad.txt").write_text("1 4 3\n9 0:1\n")
    run(capfd, "train", trained.parent / "bad.txt", trained, code=2)
    assert {file.name: file.read_bytes() for file in trained.iterdir()} == before


def test_a_row_without_known_words_gets_no_labels_and_a_note_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(capfd, "train", write_texts(tmp_path / "docs.jsonl"), tmp_path / "m", "--neighbors", "2")
    (tmp_path / "new.jsonl").write_text('{"id": "a", "text": "zzz"}\n{"id": "b", "text": "my cat"}\n')
    out, err = run(capfd, "predict", tmp_path / "m", tmp_path / "new.jsonl", "-n", "1")
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["a"], ["b", "cat"]]
    assert "1 row has no feature or word that the model knows" in err
    (tmp_path / "unknown.jsonl").write_text('{"id": "a", "text": "zzz"}\n')
    assert run(capfd, "predict", tmp_path / "m", tmp_path / "unknown.jsonl", "--probabilities")[0] == "a\n"


def test_label_names_do_not_break_lines_or_terminals(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [{"labels": ["tab\there\x1b[31m"], "features": [1, i]} for i in range(6)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(capfd, "train", tmp_path / "train.jsonl", tmp_path / "m", "--dims", "8")
    out, _ = run(capfd, "predict", tmp_path / "m", tmp_path / "train.jsonl")
    assert re.fullmatch(r"tab\\there\\x1b\[31m\t[01]\.\d{4}", out.splitlines()[0])


def test_two_rows_are_evaluated_without_propensities(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.txt").write_text("2 2 2\n0 0:1\n1 1:1\n")
    run(capfd, "train", tmp_path / "two.txt", tmp_path / "m", "--neighbors", "1", "--dims", "8")
    out, _ = run(capfd, "evaluate", tmp_path / "m", tmp_path / "two.txt", "--json")
    assert "PSP@1" not in json.loads(out)
    assert json.loads(out)["P@1"] == 1


def test_inspect_measures_the_columns_that_training_uses(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = [{"labels": [f"label {j}" for j in rng.choice(30, 2, replace=False)], "features": [1]} for _ in range(50)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, _ = run(capfd, "inspect", tmp_path / "train.jsonl", "--ensemble", "structured", "--dims", "64", "--json")
    data = datasets.read(tmp_path / "train.jsonl")
    keys = label_keys(np.array([*data.label_names, None], object)[:-1])
    expected = measure_isometry(Structured(), 64, data.Y, keys).delta(0.95)
    assert json.loads(out)["isometry"]["delta"] == pytest.approx(expected)
    assert expected > 1e-3  # numbered labels would be orthogonal here


def test_version_and_help_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    import ripml

    assert run(capfd, "--version")[0] == f"ripml {ripml.__version__}\n"
    for words in ([], ["train"], ["predict"], ["evaluate"], ["inspect"], ["datasets"], ["datasets", "get"], ["demo"]):
        assert "Usage: ripml" in run(capfd, *words, "--help")[0]
    assert run(capfd)[0] == run(capfd, "--help")[0]
    assert run(capfd, "datasets")[0] == run(capfd, "datasets", "--help")[0]


def test_help_imports_no_heavy_package() -> None:
    script = (
        "import sys\nfrom ripml.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'scipy', 'sklearn', 'rich.table', 'matplotlib'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert out.splitlines()[-1] == "[]"


STAGE_OPTIONS = {
    "ensemble": "--ensemble", "kernel": "--kernel", "solver": "--solver", "index": "--index", "decoder": "--decoder",
    "estimator": "--method", "format": "--format",
}  # fmt: skip


def test_a_registered_stage_is_an_option_of_train_without_another_line(tmp_path: Path) -> None:
    datasets.write(world(), tmp_path / "train.txt")
    script = f"""
from ripml.base import registry
from ripml.cli import main
for kind in {list(STAGE_OPTIONS)}:
    home = "ripml.datasets.formats.xmc" if kind == "format" else "ripml.baselines.popularity:Popularity"
    registry.register(kind, f"my-{{kind}}", home)
for words in (["--help"], ["train.txt", "m", "--method", "my-estimator"]):
    try:
        main(["train", *words])
    except SystemExit:
        pass
"""
    command = [sys.executable, "-c", script]
    out = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    for kind, option in STAGE_OPTIONS.items():
        assert re.search(rf"{option} <[^>]*my-{kind}[|>]", out), option
    assert type(load(tmp_path / "m")).__name__ == "Popularity"


def test_a_word_that_no_stage_has_is_rejected_with_the_words_that_are_known(capfd: pytest.CaptureFixture[str]) -> None:
    _, err = run(capfd, "train", "train.txt", "m", "--kernel", "cosine", code=2)
    assert err == (
        "ripml: Invalid value for '--kernel': 'cosine' is not one of auto, linear, rbf, local. (ripml --help)\n"
    )


def test_the_demo_beats_its_baselines(capfd: pytest.CaptureFixture[str]) -> None:
    out, err = run(capfd, "demo", "--json")
    result = json.loads(out)
    at_1 = {name: found["P@1"] for name, found in result["precision"].items()}
    assert at_1["RIPML"] > at_1["feature kNN (cosine)"] > at_1["popularity"]
    assert len(result["examples"]) == 6
    assert result["chosen"]["kernel"] == "rbf"
    assert "training: on a sample" in err


def test_progress_is_plain_lines_without_a_terminal(trained: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("predict", "evaluate"):
        _, err = run(capfd, command, trained, trained.parent / "train.txt")
        assert re.fullmatch(r"reading …\npredicting …\npredicting: 60 rows, [\d,.]+ rows/(s|min)\n", err)


def test_data_sets_are_listed_and_described(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    datasets.write(world(), folder / "train.txt")
    datasets.write(world(30), folder / "test.txt")
    monkeypatch.setenv("RIPML_DATA", str(tmp_path))
    out, _ = run(capfd, "datasets", "list", "--json")
    assert json.loads(out)["here"] == ["numpydoc", "tiny"]
    assert "tiny" in run(capfd, "datasets", "list")[0]
    out, _ = run(capfd, "datasets", "info", "tiny", "--json")
    assert json.loads(out)["train"]["rows"] == 60
    assert "rows" in run(capfd, "datasets", "info", "tiny")[0]
    run(capfd, "train", "tiny", tmp_path / "m", "--dims", "20")
    out, _ = run(capfd, "evaluate", tmp_path / "m", "tiny", "--json")
    assert json.loads(out)["rows"] == 30


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "7")
            self.end_headers()
            self.wfile.write(b"content")

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/bibtex.rar"
        httpd.shutdown()
        thread.join()


def test_an_original_is_fetched_and_checked(server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    common = ["datasets", "get", "bibtex", "--folder", str(tmp_path), "--url", server]
    out, _ = run(capfd, *common, "--sha256", sha256(b"content").hexdigest())
    assert Path(out.strip()).read_bytes() == b"content"
    Path(out.strip()).unlink()
    _, err = run(capfd, *common, "--sha256", "0" * 64, code=2)
    assert "ripml: " in err.splitlines()[-1]
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_python_dash_m_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "ripml", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("ripml ")
    assert io.StringIO(done.stdout).readline().strip()
    assert os.linesep in done.stdout


@pytest.mark.parametrize("suffix", ["txt", "txt.gz", "svm", "jsonl"])
def test_a_file_read_in_blocks_trains_the_same_model(
    suffix: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    datasets.write(world(), tmp_path / f"train.{suffix}")
    paper = ("--preset", "paper", "--dims", "20", "--json")
    run(capfd, "train", tmp_path / f"train.{suffix}", tmp_path / "streamed", "--memory", "1.5MB", *paper)
    run(capfd, "train", tmp_path / f"train.{suffix}", tmp_path / "whole", *paper)
    assert not (tmp_path / "streamed.work").exists()
    datasets.write(world(30, seed=1), tmp_path / f"test.{suffix}")
    answers = [run(capfd, "predict", tmp_path / m, tmp_path / f"test.{suffix}")[0] for m in ("streamed", "whole")]
    assert answers[0] == answers[1] != ""


def test_texts_read_in_blocks_train_the_same_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = write_texts(tmp_path / "texts.jsonl")
    paper = ("--preset", "paper", "--dims", "20")
    run(capfd, "train", file, tmp_path / "streamed", "--memory", "1.5MB", *paper)
    run(capfd, "train", file, tmp_path / "whole", *paper)
    answers = [run(capfd, "predict", tmp_path / m, file)[0] for m in ("streamed", "whole")]
    assert answers[0] == answers[1] != ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--memory", "much"], "--memory must be a size such as 500MB or 4GB; got 'much'"),
        (["--memory", "1KB"], "--memory must be an integer ≥ 1048576; got 1000"),
        (["--memory", "1GB", "--method", "leml"], "--memory is for RIPML only"),
        (["--memory", "1GB", "--dask", "tcp://127.0.0.1:1"], "give one of them"),
    ],
)
def test_training_from_blocks_rejects_what_it_cannot_do(
    words: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    datasets.write(world(), tmp_path / "train.txt")
    _, err = run(capfd, "train", tmp_path / "train.txt", tmp_path / "m", *words, code=2)
    assert message in err
    _, err = run(capfd, "train", "numpydoc", tmp_path / "m", "--memory", "1GB", code=2)
    assert "--memory requires a file; got 'numpydoc'" in err


def test_clusters_are_probed_and_an_index_is_chosen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    datasets.write(world(), tmp_path / "train.txt")
    options = ("--preset", "paper", "--dims", "20", "--clusters", "3", "--probe", "2", "--index", "lsh")
    run(capfd, "train", tmp_path / "train.txt", tmp_path / "m", *options)
    model = load(tmp_path / "m")
    assert (model.n_probe, model.index) == (2, "lsh")
