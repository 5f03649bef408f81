"""Running experiments: each measurement is made once and kept in a file, so that an interrupted run can be resumed.

reproduction/
  settings.json                     what is measured: quick or not, the seed, the version of ripml
  measurements/dimensions/….json    one file per measurement, written atomically
  2-dimensions/result.json .csv     all rows, the claims, the environment
  2-dimensions/1.png 1.svg …        the figures
  report.html                       all experiments with results, self-contained
"""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ripml import __version__, datasets
from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.base.parallel import thread_count
from ripml.base.workspace import atomically
from ripml.lab.reproduce import beyond, entities, precision, statistics
from ripml.lab.reproduce.experiment import Experiment, Extent, Row, Rows
from ripml.lab.reproduce.figures import save
from ripml.lab.reproduce.report import write_report

__all__ = ["EXPERIMENTS", "experiment_of", "run"]

EXPERIMENTS: tuple[Experiment, ...] = (
    statistics.EXPERIMENT,
    precision.DIMENSIONS,
    precision.NEIGHBORS,
    precision.CHINESE_DIMENSIONS,
    precision.CHINESE_NEIGHBORS,
    entities.EXPERIMENT,
    beyond.EXPERIMENT,
)
Progress = Callable[[str, int, int], None]  # experiment, measurements done, measurements in all


def experiment_of(word: str) -> Experiment:
    """An experiment by its word or number.

    >>> experiment_of("1").word
    'statistics'
    """
    for experiment in EXPERIMENTS:
        if word in (experiment.word, str(experiment.number)):
            return experiment
    words = ", ".join(f"{experiment.number} or {experiment.word}" for experiment in EXPERIMENTS)
    raise ParameterError(f"there is no experiment {word!r}; choose one of {words}.")


def run(experiments: Sequence[Experiment], extent: Extent, progress: Progress | None = None) -> Path:
    """Make the missing measurements of these experiments, write the results, and return the path of the report."""
    _require(experiments)
    folder = extent.folder
    _open_folder(folder, extent)
    for experiment in experiments:
        rows = Rows()
        plan = experiment.plan(extent)
        for done, measurement in enumerate(plan):
            if progress is not None:
                progress(experiment.word, done, len(plan))
            path = folder / "measurements" / experiment.word / f"{measurement.name}.json"
            kept = _kept_rows(path, experiment.protocol)
            if kept is None:
                kept = measurement.make()
                path.parent.mkdir(parents=True, exist_ok=True)
                _write_json(path, {"protocol": experiment.protocol, "rows": kept})
            rows += kept
        if progress is not None:
            progress(experiment.word, len(plan), len(plan))
        _write_result(folder / _name(experiment), experiment, rows, extent)
    places = [(experiment, folder / _name(experiment)) for experiment in EXPERIMENTS]
    return write_report(folder, [(one, place) for one, place in places if (place / "result.json").exists()])


def _require(experiments: Sequence[Experiment]) -> None:
    """Raise before hours of work if a package or a data set is missing."""
    packages = [("matplotlib", "plot")]
    if any(experiment.needs_texts for experiment in experiments):
        packages += [("gensim", "text"), ("rjieba", "text")]
    for package, extra in packages:
        if find_spec(package) is None:
            raise MissingExtraError(package, extra)
    missing = sorted({name for experiment in experiments for name in experiment.sets} - set(datasets.available()))
    if missing:
        raise DataError(f"data sets not found: {', '.join(missing)}; set RIPML_DATA to the folder that has them.")


def _name(experiment: Experiment) -> str:
    return f"{experiment.number}-{experiment.word}"


def _open_folder(folder: Path, extent: Extent) -> None:
    """Make the folder, or check that it holds a run with the same settings."""
    settings = {"ripml": __version__, "quick": extent.quick, "seed": extent.seed}
    path = folder / "settings.json"
    if path.exists():
        if (found := _read_json(path, "choose another folder")) != settings:
            raise ParameterError(f"{folder} holds a run with {found}, not with {settings}; choose another folder.")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ParameterError(f"{folder} is not empty and not a run of `ripml reproduce`; choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(path, settings)


def _kept_rows(path: Path, protocol: str) -> list[Row] | None:
    """The rows of a measurement that was made by the same protocol, or None."""
    if not path.exists():
        return None
    remedy = "remove the file to measure again"
    found = _read_json(path, remedy)
    try:
        rows = [dict(row) for row in found["rows"]]
        return rows if found["protocol"] == protocol else None
    except (TypeError, KeyError, ValueError):
        raise DataError(f"{path} is not a measurement; {remedy}.") from None


def _read_json(path: Path, remedy: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(f"{path} is not JSON; {remedy}.") from None


def _write_json(path: Path, value: Any) -> None:
    with atomically(path) as part:
        part.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def _write_result(folder: Path, experiment: Experiment, rows: Rows, extent: Extent) -> None:
    folder.mkdir(exist_ok=True)
    figures = experiment.draw(rows)
    for number, (caption, figure) in enumerate(figures.items(), start=1):
        save(figure, folder / f"{number}", caption)
    with (folder / "result.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    environment = {"ripml": __version__, "python": platform.python_version(), **packages, "cores": thread_count(None)}
    result = {
        "experiment": experiment.word,
        "title": experiment.title,
        "protocol": experiment.protocol,
        "quick": extent.quick,
        "seed": extent.seed,
        "environment": environment,
        "figures": list(figures),
        "claims": [asdict(claim) for claim in experiment.claims(rows)],
        "rows": rows,
    }
    _write_json(folder / "result.json", result)
