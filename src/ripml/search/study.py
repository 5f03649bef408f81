"""`tune`: a search over RIPML's settings that is kept in a folder and goes on where it was; with Optuna (extra `tune`).

The estimator chooses its "auto" settings one after the other on a sample of rows (`ripml.model.tuning`). A study looks
further, at all of them together, for the metric that counts, and takes as long as it is given. Every trial is judged on
the same rows left out of the training part: of five equal parts of the labelled rows, the first `folds` are left out in
turn, and the mean of the metric counts. Test rows have no part in it.

Trial 0 has the default settings, and teaches with the values that these came to. The others are proposed by the
tree-structured Parzen estimator (Bergstra et al. 2011), and given up after a fold where they are below the median of
those before. Trial i draws from the seed and i alone, so a study that was interrupted and went on is the study that
never was. `ripml.search.space` has the space.
"""

from __future__ import annotations

import fcntl
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

from ripml.base.errors import MissingExtraError, ParameterError, RipmlError, check_count
from ripml.base.registry import from_json, to_json
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.search.space import METRICS, PARTS, Judge

__all__ = ["METRICS", "Study", "Trial", "tune"]

_JOURNAL, _LOCK, _BEST = "journal.log", "lock", "best.json"
_RANDOM = 8  # trials before settings are proposed by what the others gave


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and what they gave.

    `state` is "complete", "pruned" (given up after a fold, with the value until then) or "failed" (`error` says why);
    `settings` are those of RIPML's constructor that are not its defaults, as JSON.
    """

    number: int
    state: str
    value: float | None
    preset: str
    settings: dict[str, Any]
    parameters: dict[str, Any]  # as they were searched
    seconds: float
    error: str | None = None

    def model(self) -> RIPML:
        """An untrained model with these settings."""
        return RIPML(**{name: from_json(value) for name, value in self.settings.items()})


@dataclass(frozen=True)
class Study:
    """What is in the folder of a study: the metric, and the trials so far in their order."""

    folder: Path
    metric: str
    trials: list[Trial]

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Study:
        """Read a study."""
        if not (Path(folder) / _JOURNAL).is_file():
            raise ParameterError(f"{folder}: there is no study in this folder; ripml tune DATA {folder} makes one.")
        return _read(Path(folder), _optuna_study(Path(folder)))

    @property
    def best(self) -> Trial | None:
        """The trial with the highest value; the earlier of two that are equal."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)

    @property
    def best_path(self) -> Path:
        """The file with the best settings: what `ripml train --settings` reads."""
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
    """Search RIPML's settings on rows left out of `data`, or go on with the study that is in `folder`.

    Parameters
    ----------
    data : Dataset
        Training rows; nothing else may be in it.
    folder : path
        A new or empty folder, or that of a study of the same data, to which every trial is written as it ends.
    metric : {"P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "micro-F1"} or None
        What counts. None: as in the study so far, else P@1.
    n_trials : int
        In all, with those of earlier runs.
    timeout : float
        Seconds after which no trial is begun.
    folds : int or None
        How many of five parts are left out in turn, 1 to 5. None: as in the study so far, else 3.
    random_state : int or None
        Draws parts, settings and models. None: as in the study so far, else 0.
    n_jobs : int or None
        Threads; None for all cores. Results do not depend on it.
    progress : function or None
        Called with each trial as it ends, and the study.

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
    folder = Path(folder)
    given = {"metric": metric, "folds": folds, "random_state": random_state}
    _check(given)
    with _alone(folder):
        study = _optuna_study(folder)
        about = _agreed(study, folder, {**given, "data": _fingerprint(data)})
        judge = Judge(data, **{name: value for name, value in about.items() if name != "data"}, n_jobs=n_jobs)
        study.set_user_attr("about", about)  # now that rows and metric go together
        return _search(study, folder, judge, n_trials, time.monotonic() + timeout, progress)


def _check(given: dict[str, Any]) -> None:
    if given["metric"] not in (None, *METRICS):
        raise ParameterError(f"`metric` must be one of {', '.join(METRICS)}; got {given['metric']!r}.")
    if given["folds"] is not None and (type(given["folds"]) is not int or not 1 <= given["folds"] <= PARTS):
        raise ParameterError(f"`folds` must be an integer from 1 to {PARTS}; got {given['folds']!r}.")
    if given["random_state"] is not None:
        check_count("random_state", given["random_state"], least=0)


# ----------------------------------------------------------------------------------------------------------- the folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from the same study meanwhile."""
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder}: the study goes into a folder, but this is a file.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _JOURNAL).exists() and not (folder / _LOCK).exists():
        raise ParameterError(f"{folder}: there is something else here; choose a new or empty folder for the study.")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ParameterError(f"{folder}: another process is at work on this study; wait for it.") from None
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


def _agreed(study: Any, folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """What a study is about: as it was begun, which must not be contradicted, else as given, else the defaults."""
    about = study.user_attrs.get("about")
    if about is None:
        about = {"metric": "P@1", "folds": 3, "random_state": 0} | {k: v for k, v in given.items() if v is not None}
    for name, value in given.items():
        if value is not None and value != about[name]:
            was = "other rows" if name == "data" else f"{name} = {about[name]}"
            raise ParameterError(f"{folder}: this study was begun with {was}; choose another folder for a new one.")
    return dict(about)


def _fingerprint(data: Dataset) -> str:
    """A hash of the rows that are learnt from."""
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
        if not _counts(trial):
            continue
        attributes, state = trial.user_attrs, trial.state.name.lower()
        trials.append(Trial(
            number=len(trials), state="failed" if state == "fail" else state, value=trial.value,
            preset=trial.params.get("preset", "default"), settings=attributes["settings"], parameters=trial.params,
            seconds=attributes["seconds"], error=attributes.get("error"),
        ))  # fmt: skip
    return Study(folder, study.user_attrs.get("about", {"metric": "P@1"})["metric"], trials)


def _counts(trial: Any) -> bool:
    """Whether a trial came to its end; one that failed without an error was interrupted."""
    return bool(trial.state.is_finished() and "seconds" in trial.user_attrs)


# ----------------------------------------------------------------------------------------------------------- the search


def _search(
    study: Any, folder: Path, judge: Judge, n_trials: int, until: float, progress: Callable[[Trial, Study], None] | None
) -> Study:
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState

    for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):  # by a process that was killed
        study.tell(left.number, state=TrialState.FAIL)
    found = _read(folder, study)
    _write_best(found)  # unless that was done before it was interrupted
    while len(found.trials) < n_trials and time.monotonic() < until:
        number = len(found.trials)
        seed = int(np.random.SeedSequence([judge.random_state, number]).generate_state(1)[0])
        study.sampler = TPESampler(seed=seed, n_startup_trials=_RANDOM, multivariate=False, constant_liar=False)
        _default(study, judge) if number == 0 else _try(study, judge)
        found = _read(folder, study)
        _write_best(found)
        if progress is not None:
            progress(found.trials[-1], found)
    return found


def _write_best(study: Study) -> None:
    """The file of the best settings, whole or not at all."""
    if study.best is not None:
        part = study.best_path.with_suffix(".part")
        part.write_text(json.dumps(study.best.settings, indent=2) + "\n", encoding="utf-8")
        part.replace(study.best_path)


def _default(study: Any, judge: Judge) -> None:
    """Trial 0. Its settings are "auto"; as parameters it has what they came to, as near as the space comes to it."""
    from optuna.trial import FixedTrial, create_trial

    start = time.perf_counter()
    model = RIPML(random_state=judge.random_state)
    values = [judge.value(model, fold) for fold in range(judge.folds)]
    fixed = FixedTrial(judge.came_to(model))
    judge.proposed(fixed)
    study.add_trial(create_trial(
        value=float(np.mean(values)), params=fixed.params, distributions=fixed.distributions,
        intermediate_values={fold: float(np.mean(values[: fold + 1])) for fold in range(judge.folds)},
        user_attrs={"settings": _settings(model), "seconds": _since(start)},
    ))  # fmt: skip


def _try(study: Any, judge: Judge) -> None:
    """A trial, from its settings to what is written of it."""
    from optuna.trial import TrialState

    start, trial = time.perf_counter(), study.ask()
    state, values = TrialState.COMPLETE, list[float]()
    try:
        model = judge.proposed(trial)
        trial.set_user_attr("settings", _settings(model))
        for fold in range(judge.folds):
            values.append(judge.value(model, fold))
            trial.report(float(np.mean(values)), fold)
            if fold + 1 < judge.folds and trial.should_prune():
                state = TrialState.PRUNED
                break
    except (RipmlError, ArithmeticError, np.linalg.LinAlgError, MemoryError) as failure:
        state = TrialState.FAIL
        trial.set_user_attr("error", str(failure))
    except BaseException:  # interrupted, or a mistake of ours: as if it had never been begun
        study.tell(trial, state=TrialState.FAIL)
        raise
    trial.set_user_attr("seconds", _since(start))
    study.tell(trial, float(np.mean(values)) if state is TrialState.COMPLETE else None, state=state)


def _settings(model: RIPML) -> dict[str, Any]:
    """The settings that are not RIPML's defaults, as JSON."""
    plain = RIPML().get_params()
    given = {name: value for name, value in model.get_params().items() if value != plain[name] and name != "n_jobs"}
    return {name: to_json(name, value) for name, value in given.items()}


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 3)
