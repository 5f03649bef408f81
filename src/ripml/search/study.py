"""`tune`: a hyper-parameter search for RIPML that is kept in a folder and can be continued; uses Optuna (extra `tune`).

The estimator chooses its "auto" settings one after the other on a sample of rows (`ripml.model.tuning`). A study
searches all settings together, for the metric that matters, and takes as long as it is given. All trials are measured
on the same held-out training rows: the labelled rows are divided into five parts, the first `folds` parts are held out
in turn, and the mean of the metric counts. Test rows are never used.

Trial 0 has the default settings; Optuna learns from it through the values that these settings resolved to. The other
trials are proposed by the tree-structured Parzen estimator (Bergstra et al. 2011), and pruned after a fold if they are
below the median of the earlier ones. Trial i depends on the seed and on i alone, so that a study which was interrupted
and continued equals one that was not. The search space is in `ripml.search.space`.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ripml.base import platform, registry
from ripml.base.errors import MissingExtraError, ParameterError, RipmlError, check_count
from ripml.base.workspace import atomically
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.search.space import METRICS, N_PARTS, Objective

__all__ = ["METRICS", "Study", "Trial", "tune"]

_JOURNAL, _LOCK, _BEST = "journal.log", "lock", "best.json"
_N_RANDOM = 8  # trials at random before Optuna proposes settings


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and the value that they gave.

    `state` is "complete", "pruned" (stopped after a fold; `value` is the mean until then) or "failed" (`error` says
    why). `settings` are the arguments of RIPML that differ from their defaults, as JSON.
    """

    number: int
    state: str
    value: float | None
    preset: str
    settings: dict[str, Any]
    parameters: dict[str, Any]  # the point of the search space
    seconds: float
    error: str | None = None

    def model(self) -> RIPML:
        """An untrained model with these settings."""
        return RIPML(**{name: registry.from_json(value) for name, value in self.settings.items()})


@dataclass(frozen=True)
class Study:
    """The contents of a study's folder: the metric, and the trials so far in order."""

    folder: Path
    metric: str
    trials: list[Trial]

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Study:
        """Read the study in a folder."""
        if not (Path(folder) / _JOURNAL).is_file():
            raise ParameterError(f"{folder}: there is no study in this folder; `ripml tune DATA {folder}` makes one.")
        return _read(Path(folder), _optuna_study(Path(folder)))

    @property
    def best(self) -> Trial | None:
        """The complete trial with the highest value, and the earliest of several; None if there is none."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)

    @property
    def best_path(self) -> Path:
        """The file with the settings of the best trial, which `ripml train --settings` reads."""
        return self.folder / _BEST


def tune(
    data: Dataset,
    folder: str | PathLike[str],
    *,
    metric: str | None = None,
    n_trials: int = 30,
    timeout: float = math.inf,
    folds: int | None = None,
    random_state: int | None = None,
    n_jobs: int | None = None,
    progress: Callable[[Trial, Study], None] | None = None,
) -> Study:
    """Search for the best settings of RIPML on held-out rows of `data`, or continue the study that is in `folder`.

    Parameters
    ----------
    data : Dataset
        The training rows. Leave out the test rows.
    folder : path
        A new or empty folder, or that of a study of the same data. Each trial is written when it ends.
    metric : {"P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "micro-F1"} or None
        The metric to maximise. None: that of the existing study, or P@1.
    n_trials : int
        The total number of trials, including those of earlier runs.
    timeout : float
        Seconds after which no further trial is started.
    folds : int or None
        How many of the five parts are held out in turn, 1 to 5. None: as in the existing study, or 3.
    random_state : int or None
        The seed of parts, settings and models. None: as in the existing study, or 0.
    n_jobs : int or None
        The number of threads; None for all cores. Results do not depend on it.
    progress : function or None
        Called with each trial when it ends, and with the study.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.sparse import csr_array
    >>> X, Y = csr_array(np.tile(np.eye(2), (10, 1))), csr_array(np.tile(np.eye(2), (10, 1)))
    >>> data = Dataset(X=X, Y=Y, label_names=["tea", "ice"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     study = tune(data, folder, n_trials=1, folds=1)
    >>> study.best.value
    1.0
    """
    check_count("n_trials", n_trials)
    if metric is not None and metric not in METRICS:
        raise ParameterError(f"`metric` must be one of {', '.join(METRICS)}; got {metric!r}.")
    if folds is not None and (type(folds) is not int or not 1 <= folds <= N_PARTS):
        raise ParameterError(f"`folds` must be an integer from 1 to {N_PARTS}; got {folds!r}.")
    if random_state is not None:
        check_count("random_state", random_state, least=0)
    folder, until = Path(folder), time.monotonic() + timeout
    with _locked(folder):
        study = _optuna_study(folder)
        options = {"metric": metric, "folds": folds, "random_state": random_state, "data": _fingerprint(data)}
        about = _agree(study, folder, options)
        objective = Objective(data, about["metric"], about["folds"], about["random_state"], n_jobs)
        study.set_user_attr("about", about)  # only now, as the objective may refuse the data
        return _search(study, folder, objective, n_trials, until, progress)


# ----------------------------------------------------------------------------------------------------------- the folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A block in which no other process works on the study."""
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder}: a study needs a folder, but this is a file.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _JOURNAL).exists() and not (folder / _LOCK).exists():
        raise ParameterError(f"{folder}: is not empty and has no study; choose a new or empty folder.")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            platform.lock(lock.fileno())
        except BlockingIOError:
            raise ParameterError(f"{folder}: another process is working on this study; wait until it ends.") from None
        yield


def _optuna_study(folder: Path) -> Any:
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise MissingExtraError("optuna", "tune") from None
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(folder / _JOURNAL))),
            study_name="ripml",
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(),
            load_if_exists=True,
        )
    finally:
        optuna.logging.set_verbosity(level)


def _agree(study: Any, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a study: those it was begun with, which must not be contradicted, or else these or defaults."""
    about = study.user_attrs.get("about")
    if about is None:
        about = {"metric": "P@1", "folds": 3, "random_state": 0} | {k: v for k, v in options.items() if v is not None}
    for name, value in options.items():
        if value is not None and value != about[name]:
            first = "other rows" if name == "data" else f"{name} = {about[name]}"
            raise ParameterError(f"{folder}: this study was begun with {first}; choose another folder for a new one.")
    return dict(about)


def _fingerprint(data: Dataset) -> str:
    """A hash of the rows, to recognise the data of a study."""
    digest = hashlib.sha256()
    for matrix in (data.Y, data.X):
        if matrix is not None:
            for array in (matrix.indptr, matrix.indices, matrix.data):
                digest.update(array.astype(np.float64 if array.dtype.kind == "f" else np.int64).tobytes())
    for words in (data.label_names, data.texts if data.X is None else None):
        digest.update(json.dumps(words).encode())
    return digest.hexdigest()


def _read(folder: Path, study: Any) -> Study:
    trials: list[Trial] = []
    for trial in study.get_trials(deepcopy=False):
        if not trial.state.is_finished() or "seconds" not in trial.user_attrs:  # running, or interrupted
            continue
        attributes, state = trial.user_attrs, trial.state.name.lower()
        trials.append(Trial(
            number=len(trials), state="failed" if state == "fail" else state, value=trial.value,
            preset=trial.params.get("preset", "default"), settings=attributes["settings"], parameters=trial.params,
            seconds=attributes["seconds"], error=attributes.get("error"),
        ))  # fmt: skip
    return Study(folder, study.user_attrs.get("about", {"metric": "P@1"})["metric"], trials)


# ----------------------------------------------------------------------------------------------------------- the search


def _search(
    study: Any,
    folder: Path,
    objective: Objective,
    n_trials: int,
    until: float,
    progress: Callable[[Trial, Study], None] | None,
) -> Study:
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState

    for killed in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):  # of a process that was killed
        study.tell(killed.number, state=TrialState.FAIL)
    found = _read(folder, study)
    _write_best(found)  # an interrupted search may not have written it
    while len(found.trials) < n_trials and time.monotonic() < until:
        number = len(found.trials)
        seed = int(np.random.SeedSequence([objective.random_state, number]).generate_state(1)[0])
        study.sampler = TPESampler(seed=seed, n_startup_trials=_N_RANDOM, multivariate=False, constant_liar=False)
        _run_default(study, objective) if number == 0 else _run_trial(study, objective)
        found = _read(folder, study)
        _write_best(found)
        if progress is not None:
            progress(found.trials[-1], found)
    return found


def _write_best(study: Study) -> None:
    """Write the file of the best settings, in one step."""
    if study.best is not None:
        with atomically(study.best_path) as part:
            part.write_text(json.dumps(study.best.settings, indent=2) + "\n", encoding="utf-8")


def _run_default(study: Any, objective: Objective) -> None:
    """Trial 0. Its settings are "auto"; its parameters are the point of the space nearest to what they resolved to."""
    from optuna.trial import FixedTrial, create_trial

    start = time.perf_counter()
    model = RIPML(random_state=objective.random_state)
    values = [objective.value(model, fold) for fold in range(objective.folds)]
    fixed = FixedTrial(objective.parameters_of(model))
    objective.propose(fixed)  # the trial records which parameters apply, and their distributions
    study.add_trial(create_trial(
        value=float(np.mean(values)), params=fixed.params, distributions=fixed.distributions,
        intermediate_values={fold: float(np.mean(values[: fold + 1])) for fold in range(objective.folds)},
        user_attrs={"settings": _settings(model), "seconds": _seconds_since(start)},
    ))  # fmt: skip


def _run_trial(study: Any, objective: Objective) -> None:
    """Run a trial with settings that Optuna proposes, and record how it ended."""
    from optuna.trial import TrialState

    start, trial = time.perf_counter(), study.ask()
    state, values = TrialState.COMPLETE, list[float]()
    try:
        model = objective.propose(trial)
        trial.set_user_attr("settings", _settings(model))
        for fold in range(objective.folds):
            values.append(objective.value(model, fold))
            trial.report(float(np.mean(values)), fold)
            if fold + 1 < objective.folds and trial.should_prune():
                state = TrialState.PRUNED
                break
    except (RipmlError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as failure:
        state = TrialState.FAIL
        trial.set_user_attr("error", str(failure))
    except BaseException:  # interrupted, or a bug: without its seconds the trial does not count
        study.tell(trial, state=TrialState.FAIL)
        raise
    trial.set_user_attr("seconds", _seconds_since(start))
    study.tell(trial, float(np.mean(values)) if state is TrialState.COMPLETE else None, state=state)


def _settings(model: RIPML) -> dict[str, Any]:
    """The settings that differ from the defaults of RIPML, as JSON."""
    defaults = RIPML().get_params()
    changed = {name: value for name, value in model.get_params().items() if value != defaults[name]}
    return {name: registry.to_json(name, value) for name, value in changed.items() if name != "n_jobs"}


def _seconds_since(start: float) -> float:
    return round(time.perf_counter() - start, 3)
