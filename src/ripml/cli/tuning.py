"""What tune does: search settings, and print the best of them as options of train."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ripml.base.errors import MissingExtraError, ParameterError
from ripml.cli.opening import training_rows
from ripml.cli.options import Form
from ripml.cli.output import bar, print_json, table
from ripml.regression.kernels import RBF, Local
from ripml.search.plots import check_picture, plot_study
from ripml.search.space import PRESETS
from ripml.search.study import Study, Trial, tune

__all__ = ["run_tune", "train_options"]

_OPTIONS = {"n_dims": "dims", "n_neighbors": "neighbors", "random_state": "seed"}
_SHOWN = 5  # of the best trials


def run_tune(
    data: str,
    folder: Path,
    form: Form,
    metric: str | None,
    n_trials: int,
    timeout: str | None,
    folds: int | None,
    seed: int | None,
    plot: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Begin a study or go on with it, and say what was found; also when it is interrupted."""
    if n_trials < 1:
        raise ParameterError(f"--trials must be an integer ≥ 1; got {n_trials}.")
    until = math.inf if timeout is None else _seconds(timeout)
    if plot is not None:
        check_picture(plot)
    rows, _ = training_rows(data, form)
    done = len(Study.open(folder).trials) if (folder / "journal.log").exists() else 0
    stopped = False
    with bar("trying settings", max(n_trials, done), "trials", done) as advance:

        def told(trial: Trial, study: Study) -> None:
            print(_line(trial, study), file=sys.stderr, flush=True)
            advance(1)

        try:
            study = tune(
                rows, folder, metric=metric, n_trials=n_trials, timeout=until, folds=folds, random_state=seed,
                n_jobs=jobs, progress=told,
            )  # fmt: skip
        except KeyboardInterrupt:
            study, stopped = Study.open(folder), True
    _draw(study, rows.name or data, plot)
    _tell(study, ["ripml", "train", data, "MODEL", *form.words()], as_json)
    if stopped:
        print(f"{len(study.trials):,} of {n_trials:,} trials are kept; the same command goes on.", file=sys.stderr)
        raise KeyboardInterrupt


def _seconds(time: str) -> float:
    """The seconds of a time like 20m."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([smh]?)", time.strip().lower())
    if not match:
        raise ParameterError(f"--timeout must be a time like 90s, 20m or 8h; got {time!r}.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _line(trial: Trial, study: Study) -> str:
    """A trial in a line, and the best so far."""
    if trial.state == "failed":
        what = f"failed: {' '.join((trial.error or '').split())}"
    else:
        what = f"{study.metric} {_percent(trial.value)}" + (", given up" if trial.state == "pruned" else "")
    best = study.best
    so_far = "" if best is None else f"; best {_percent(best.value)} (trial {best.number})"
    return f"trial {trial.number}: {what}, {trial.seconds:.1f} s{so_far}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _draw(study: Study, name: str, plot: Path | None) -> None:
    if study.best is None:
        return
    try:
        for path in (study.folder / "study.png", plot):
            if path is not None:
                plot_study(study, name, path)
    except MissingExtraError as error:
        print(f"no picture was drawn: {error}", file=sys.stderr)


def _tell(study: Study, training: list[str], as_json: bool) -> None:
    best = study.best
    options = [] if best is None else train_options(best)
    command = shlex.join([*training, *options])
    if as_json:
        found: dict[str, Any] = {
            "metric": study.metric,
            "best": None if best is None else best.number,
            "value": None if best is None else best.value,
            "settings": None if best is None else best.settings,
            "train": None if best is None else command,
            "trials": [asdict(trial) for trial in study.trials],
        }
        print_json(found)
        return
    if best is None:
        print("no trial came to its end yet")
        return
    counts = Counter(trial.state for trial in study.trials)
    how_many = ", ".join(f"{counts[state]:,} {state}" for state in ("complete", "pruned", "failed") if counts[state])
    complete = sorted((t for t in study.trials if t.state == "complete"), key=lambda t: (-(t.value or 0), t.number))
    shown = [*complete[:_SHOWN], *(trial for trial in complete[_SHOWN:] if trial.number == 0)]
    lines = [
        [trial.number, " ".join(train_options(trial, seed=False)) or "the default settings", _percent(trial.value)]
        for trial in shown
    ]
    title = f"The best of {len(study.trials):,} trials ({how_many}), on rows left out"
    table(title, ["trial", "settings", study.metric], lines, n_words=2)
    print(f"Settings: {study.best_path}\nTrain with them:\n  {command}")
    print(f"or\n  {shlex.join([*training, '--settings', str(study.best_path)])}")


def train_options(trial: Trial, seed: bool = True) -> list[str]:
    """The options of `ripml train` that give the settings of a trial.

    >>> train_options(Trial(3, "complete", 0.5, "linear", {"kernel": "linear", "decoder": {"stage": "Blend",
    ...               "n_similar": 0}, "n_neighbors": 7, "random_state": 1}, {}, 1.0))
    ['--preset', 'linear', '--neighbors', '7', '--seed', '1']
    """
    preset = PRESETS[trial.preset]().get_params()
    words = [] if trial.preset == "default" else ["--preset", trial.preset]
    for name, value in trial.model().get_params().items():
        if value == preset[name] or (name == "random_state" and not seed):
            continue
        if isinstance(value, (RBF, Local)):
            words += ["--kernel", value.word, "--gamma", str(value.gamma)]
        else:
            words += [f"--{_OPTIONS.get(name, name)}", str(value)]
    return words
