"""`ripml tune` does what `ripml.tune` does, and prints options of `ripml train` that give the same model."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from test_cli import run

from ripml import datasets
from ripml.cli import main
from ripml.cli.train import TrainingRun, new_estimator, read_settings, train_options
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.search.space import Objective
from ripml.search.study import Study, tune
from ripml.tagging.documents import DocumentModel

pytest.importorskip("optuna", reason="the extra `tune` is not installed")
pytest.importorskip("matplotlib", reason="the extra `tune` is not installed")


def written(path: Path) -> Path:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 40)
    X = np.round(rng.random((40, 4)), 3).astype(np.float32)
    X[np.arange(40), kind] += 1
    Y = csr_array(np.eye(3, dtype=np.float32)[kind])
    datasets.write(Dataset(X=csr_array(X), Y=Y, label_names=["0", "1", "2"]), path)
    return path


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture, which takes a second."""
    monkeypatch.setattr("ripml.search.plots.plot_study", lambda *_: None)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values by a formula in place of models: the lower the ridge the better, and the paper's settings fail."""

    def value(_: Objective, model: RIPML, fold: int) -> float:
        if model.decoder == "votes":
            raise ArithmeticError("too\nfew")
        return 0.5 if model.ridge == "auto" else 1 / (1 + 10 * float(model.ridge))

    usual = {"preset": "default", "decoder": "blend", "ridge": 0.1, "neighbors": 10, "gamma": 0.5, "relevance": 0.5}
    monkeypatch.setattr(Objective, "value", value)
    monkeypatch.setattr(Objective, "parameters_of", lambda *_: {**usual, "tail": 0.0})


def test_the_best_settings_are_printed_as_options_and_saved_for_train(
    quick: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path / "train.txt")
    out, err = run(capfd, "tune", data, tmp_path / "s", "--trials", "9", "--plot", tmp_path / "p.svg", "--json")
    found = json.loads(out)
    study = tune(datasets.read(data), tmp_path / "python", n_trials=9)
    best = study.best
    assert best is not None
    assert (found["metric"], found["best"], found["value"]) == ("P@1", best.number, best.value)
    printed = [{**trial, "seconds": 0} for trial in found["trials"]]
    assert printed == [json.loads(json.dumps({**vars(trial), "seconds": 0})) for trial in study.trials]
    lines = err.splitlines()
    assert lines[:2] == ["reading …", "trying settings …"]
    assert re.fullmatch(r"trial 0: P@1 50\.00 %, \d+\.\d s; best 50\.00 % \(trial 0\)", lines[2])
    assert any(re.fullmatch(r"trial \d: failed: too few, .*", line) for line in lines)
    assert re.fullmatch(r"trying settings: 9 trials, [\d.,]+ trials/(s|min|h)", lines[-1])
    assert (tmp_path / "s" / "study.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "p.svg").read_text()
    assert json.loads((tmp_path / "s" / "best.json").read_text()) == found["settings"] == best.settings
    words = [str(tmp_path / "m") if word == "MODEL" else word for word in shlex.split(found["train"])[1:]]
    run(capfd, *words)
    assert DocumentModel.load(tmp_path / "m").model.get_params() == best.model().get_params()
    saved = read_settings(tmp_path / "s" / "best.json")
    assert new_estimator("ripml", "default", saved).get_params() == best.model().get_params()


def test_every_trial_can_be_written_as_options(quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tune(datasets.read(written(tmp_path / "train.txt")), tmp_path / "s", n_trials=12, metric="PSP@5")
    runs: list[TrainingRun] = []
    monkeypatch.setattr("ripml.cli.train.run_train", lambda run, _: runs.append(run))
    for trial in study.trials:
        with pytest.raises(SystemExit):
            main(["train", "data", "m", *train_options(trial)])
        assert runs[-1].estimator().get_params() == trial.model().get_params()
    assert {trial.preset for trial in study.trials} == {"default", "linear", "paper"}


def test_people_see_the_best_trials_and_the_command(
    quick: None, undrawn: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path / "train.txt")
    out, _ = run(capfd, "tune", data, tmp_path / "s", "--trials", "9", "--metric", "nDCG@5")
    assert re.match(r"The best of 9 trials \(\d complete, \d (pruned|failed).*\), on held-out rows\n", out)
    assert "the default settings" in out
    assert "nDCG@5" in out
    assert f"\n  ripml train {data} MODEL --settings {tmp_path}/s/best.json\n" in out
    out, err = run(capfd, "tune", data, tmp_path / "s", "--trials", "10")
    assert out.startswith("The best of 10 trials")
    assert [line.split(":")[0] for line in err.splitlines() if line.startswith("trial ")] == ["trial 9"]


def test_after_an_interrupt_the_trials_are_kept_and_the_command_can_be_repeated(
    quick: None, undrawn: None, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, n_calls = Objective.value, 0

    def interrupted(self: Objective, model: RIPML, fold: int) -> float:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 5:
            raise KeyboardInterrupt
        return usual(self, model, fold)

    monkeypatch.setattr(Objective, "value", interrupted)
    data = written(tmp_path / "train.txt")
    out, err = run(capfd, "tune", data, tmp_path / "s", "--trials", "9", code=130)
    n = len(Study.open(tmp_path / "s").trials)
    assert 0 < n < 9
    assert f"The best of {n} trials" in out or n == 1
    assert err.splitlines()[-2:] == [f"{n} of 9 trials are saved; repeat the command to continue.", "ripml: stopped."]
    out, _ = run(capfd, "tune", data, tmp_path / "s", "--trials", "9")
    assert out.startswith("The best of 9 trials")


def test_without_a_complete_trial_there_is_no_best(
    quick: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("tune", written(tmp_path / "train.txt"), tmp_path / "s", "--timeout", "0s")
    assert run(capfd, *words)[0] == "no trial is complete yet\n"
    assert json.loads(run(capfd, *words, "--json")[0])["best"] is None


def test_without_matplotlib_only_the_plot_is_missing(
    quick: None, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    data = written(tmp_path / "train.txt")
    out, err = run(capfd, "tune", data, tmp_path / "s", "--trials", "2")
    assert out.startswith("The best of 2 trials")
    assert "no plot was written: matplotlib is needed for this" in err


ERRORS = {
    "no trials": (["--trials", "0"], "Invalid value for '--trials'"),
    "no time": (["--timeout", "soon"], "--timeout must be a time such as 90s, 20m or 8h; got 'soon'."),
    "no picture": (["--plot", "p.doc"], "p.doc: the name of a plot must end in .png, .svg or .pdf."),
    "no parts": (["--folds", "9"], "--folds must be an integer from 1 to 5; got 9."),
    "another metric": (["--metric", "P@5"], "s: this study was begun with metric = P@1; choose another folder for"),
    "no metric": (["--metric", "P@2"], "Invalid value for '--metric': "),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_sentence(
    name: str, quick: None, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tune(datasets.read(written(tmp_path / "train.txt")), "s", n_trials=1)
    words, sentence = ERRORS[name]
    out, err = run(capfd, "tune", "train.txt", "s", *words, code=2)
    assert err.splitlines()[-1].startswith(f"ripml: {sentence}"), err
    assert out == ""
