"""Running experiments: each measurement once, kept in a file, so that a run that was stopped goes on where it was.

reproduction/
  settings.json                     what is measured: quick or not, the seed, the version of ripml
  measurements/dimensions/….json    one file a measurement, written whole or not at all
  2-dimensions/result.json .csv     all rows, the claims, the environment
  2-dimensions/1.png 1.svg …        the figures
  report.html                       all that is there, self-contained
"""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ripml import __version__, datasets
from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.base.parallel import thread_count
from ripml.lab.reproduce import beyond, chinese, dimensions, entities, neighbors, statistics
from ripml.lab.reproduce.experiment import Experiment, Extent, Row
from ripml.lab.reproduce.figures import save
from ripml.lab.reproduce.report import write_report

__all__ = ["EXPERIMENTS", "experiment_of", "run"]

EXPERIMENTS: tuple[Experiment, ...] = (
    statistics.EXPERIMENT,
    dimensions.EXPERIMENT,
    neighbors.EXPERIMENT,
    chinese.DIMENSIONS,
    chinese.NEIGHBORS,
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
    raise ParameterError(f"there is no experiment {word!r}; there are {words}.")


def run(experiments: Sequence[Experiment], extent: Extent, progress: Progress | None = None) -> Path:
    """Make what is missing of these experiments, write their results, and return the report's path."""
    _require(experiments)
    folder = extent.folder
    _claim(folder, extent)
    for experiment in experiments:
        rows: list[Row] = []
        plan = experiment.plan(extent)
        for done, measurement in enumerate(plan):
            if progress is not None:
                progress(experiment.word, done, len(plan))
            path = folder / "measurements" / experiment.word / f"{measurement.name}.json"
            kept = _kept(path, experiment.protocol)
            rows += _keep(path, experiment.protocol, measurement.make()) if kept is None else kept
        if progress is not None:
            progress(experiment.word, len(plan), len(plan))
        _write_result(folder / _name(experiment), experiment, rows, extent)
    found = [(experiment, folder / _name(experiment)) for experiment in EXPERIMENTS]
    return write_report(folder, [(one, place) for one, place in found if (place / "result.json").exists()])


def _require(experiments: Sequence[Experiment]) -> None:
    """Raise before hours of work if a package or a data set is not there."""
    packages = [("matplotlib", "plot")]
    if any(experiment.from_texts for experiment in experiments):
        packages += [("gensim", "text"), ("jieba", "text")]
    for package, extra in packages:
        if find_spec(package) is None:
            raise MissingExtraError(package, extra)
    missing = sorted({name for experiment in experiments for name in experiment.sets} - set(datasets.available()))
    if missing:
        raise DataError(
            f"the data sets {', '.join(missing)} are not there; set RIPML_DATA to the folder that has them."
        )


def _name(experiment: Experiment) -> str:
    return f"{experiment.number}-{experiment.word}"


def _claim(folder: Path, extent: Extent) -> None:
    """Make the folder, or see that it is one of the same settings."""
    settings = {"ripml": __version__, "quick": extent.quick, "seed": extent.seed}
    path = folder / "settings.json"
    if path.exists():
        if (found := _json(path, "name another folder")) != settings:
            raise ParameterError(f"{folder} holds a run with {found}, this one has {settings}; name another folder.")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ParameterError(f"{folder} is not empty and not a run of `ripml reproduce`; name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    _write_whole(path, json.dumps(settings))


def _json(path: Path, remedy: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(f"{path}: this is not JSON; {remedy}.") from None


def _kept(path: Path, protocol: str) -> list[Row] | None:
    """The rows of a measurement that was made by the same protocol, or None."""
    if not path.exists():
        return None
    remedy = "remove the file, and it is measured again"
    found = _json(path, remedy)
    try:
        rows = [dict(row) for row in found["rows"]]
        return rows if found["protocol"] == protocol else None
    except (TypeError, KeyError, ValueError):
        raise DataError(f"{path}: this is not a measurement; {remedy}.") from None


def _keep(path: Path, protocol: str, rows: list[Row]) -> list[Row]:
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(path, json.dumps({"protocol": protocol, "rows": rows}, ensure_ascii=False, indent=1))
    return rows


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _write_result(folder: Path, experiment: Experiment, rows: list[Row], extent: Extent) -> None:
    folder.mkdir(exist_ok=True)
    figures = experiment.draw(rows)
    for number, (caption, figure) in enumerate(figures.items(), start=1):
        save(figure, folder / f"{number}", caption)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / "result.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    result: dict[str, Any] = {
        "experiment": experiment.word,
        "title": experiment.title,
        "protocol": experiment.protocol,
        "quick": extent.quick,
        "seed": extent.seed,
        "environment": environment(),
        "figures": list(figures),
        "claims": [vars(claim) for claim in experiment.claims(rows)],
        "rows": rows,
    }
    _write_whole(folder / "result.json", json.dumps(result, ensure_ascii=False, indent=1))


def environment() -> dict[str, Any]:
    """What the figures were made with."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"ripml": __version__, "python": platform.python_version(), **packages, "cores": thread_count(None)}
