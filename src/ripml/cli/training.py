"""What train does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.cli.opening import is_file, is_store, lines, training_rows
from ripml.cli.options import Form
from ripml.cli.output import count, facts, print_json, printable, working
from ripml.cli.summaries import in_short, megabytes, model_summary
from ripml.cli.wording import option_of
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.model.multilabel import Multilabel
from ripml.model.settings import setting_from_json
from ripml.regression.kernels import RBF, Kernel, Local, resolve_kernel
from ripml.search.space import PRESETS
from ripml.store import Store
from ripml.store.database import is_unfinished
from ripml.tagging.documents import DocumentModel, distinct
from ripml.tagging.rules import Rules

__all__ = ["Way", "run_train", "saved_settings", "untrained"]


@dataclass(frozen=True)
class Way:
    """How a model is made of rows, beside its method and settings."""

    features: str | None = None  # that texts become
    stop_labels: str | None = None  # files of names
    allowed_labels: str | None = None
    min_count: int = 1
    memory: str | None = None
    dask: str | None = None
    store: bool = False

    def rules(self) -> Rules:
        """Which labels are suggested."""
        allowed = None if self.allowed_labels is None else lines(self.allowed_labels)
        stopped = [] if self.stop_labels is None else lines(self.stop_labels)
        return Rules(stop_labels=stopped, allowed_labels=allowed, min_count=self.min_count)


def run_train(
    data: str,
    folder: Path,
    form: Form,
    method: str,
    settings: dict[str, Any],
    file: Path | None,
    way: Way,
    as_json: bool,
) -> None:
    """Fit a model on a file or the training part of a named set, save it, and say what was chosen."""
    outside = "--memory" if way.memory is not None else "--dask" if way.dask is not None else None
    if way.store and not (method in PRESETS and outside is None):
        option = outside or f"--method {method}"
        raise ParameterError(f"--store is for RIPML that learns in memory, to go on learning; leave out {option}.")
    if outside and way.features == "doc2vec":
        raise ParameterError(f"--features doc2vec is learnt from all texts in memory; leave out {outside}.")
    model = untrained(method, {**({} if file is None else saved_settings(file)), **settings})
    model.check_settings()  # before the file is read
    rules = way.rules()
    _check_target(folder, way.store)
    memory = _outside_memory(data, form, model, way) if outside else 0
    name, start = data, time.perf_counter()
    if outside:
        with working("training"):
            assert isinstance(model, RIPML)
            trained = _trained_outside_memory(data, folder, form, model, rules, way.dask, memory)
    else:
        rows, first_feature = training_rows(data, form)
        if way.features is not None:
            rows = _texts_alone(rows)
        name, start, features = rows.name or data, time.perf_counter(), way.features or "tfidf"
        with working("training"):
            if way.store:
                with Store.create(folder, rows, model, first_feature, features=features, rules=rules) as created:
                    trained = created.model
            else:
                rows = distinct(rows) if rows.X is None and rows.texts is not None else rows
                trained = DocumentModel.fit(rows, first_feature, model, features=features, rules=rules)
                trained.save(folder)
    summary = model_summary(trained)
    summary["seconds"] = round(time.perf_counter() - start, 2)
    summary["megabytes"] = megabytes(folder)
    _warn(trained)
    if as_json:
        print_json(summary)
        return
    where = "kept with its documents in" if way.store else "saved to"
    facts(f"Trained on {name}, {where} {folder}", in_short(summary))
    place = shlex.quote(str(folder))
    asking = f"predict {place} FILE" if trained.text is None else f'suggest {place} "some text"'
    print(f"Try it: ripml {asking}\nAll that was chosen: ripml inspect {place}")


def _check_target(folder: Path, store: bool) -> None:
    """Raise where nothing can be saved: better than after the training."""
    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder}: the model goes into a folder, but this is a file.")
    if is_store(folder) and not (store and is_unfinished(folder)):
        remedy = "ripml update learns more rows, or choose a new folder" if store else "choose another for the model"
        raise ParameterError(f"{folder}: this is a store with its documents already; {remedy}.")
    if folder.is_dir() and any(folder.iterdir()) and not is_store(folder):
        if store:
            raise ParameterError(f"{folder}: a store needs a new or empty folder, but there are files in this one.")
        if not any(folder.glob("manifest.json*")):  # a save may have been interrupted
            raise ParameterError(f"{folder}: this folder holds other files but no model; choose another.")
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ParameterError(f"{folder}: nothing can be written to {there}; choose another folder.")


def _warn(trained: DocumentModel) -> None:
    """Say which rules can have no effect, or too much of it: names that are no labels, more rows than any label has."""
    rules, model = trained.rules, trained.model
    known = set(map(str, model.classes_.tolist()))
    for option, names in (("--stop-labels", rules.stop_labels), ("--allowed-labels", rules.allowed_labels or ())):
        if unknown := sorted(set(names) - known):
            more = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
            _tell(f"{option}: no row carries {unknown[0]!r}{more}.")
    if (most := int(model.frequency_.max(initial=0))) < rules.min_count:
        _tell(f"--min-count {rules.min_count}: no label is on more than {count(most, 'row')}, so none is suggested.")


def _tell(warning: str) -> None:
    print(f"ripml: warning: {printable(warning)}", file=sys.stderr)


def _texts_alone(rows: Dataset) -> Dataset:
    if rows.texts is None:
        raise DataError(f"--features is about texts, but {rows.name} has none; leave it out.")
    return replace(rows, X=None, feature_names=None)


def saved_settings(file: Path) -> dict[str, Any]:
    """RIPML's settings out of a JSON file like the best.json of a study."""
    try:
        values = json.loads(file.read_bytes())
        found = {name: setting_from_json(value) for name, value in values.items()}
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ParameterError(f"{file}: this is not a file of settings; ripml tune writes one, best.json.") from None
    if unknown := [name for name in found if name not in RIPML().get_params()]:
        raise ParameterError(f"{file}: RIPML has no setting `{unknown[0]}`.")
    return found


def _outside_memory(data: str, form: Form, model: Multilabel, way: Way) -> int:
    """The bytes of --memory, 0 for --dask; raise where these two cannot do it."""
    option = "--memory" if way.dask is None else "--dask"
    if not isinstance(model, RIPML):
        raise ParameterError(f"{option} is for RIPML; leave it out for a method of the related work.")
    if way.memory is not None and way.dask is not None:
        raise ParameterError("--memory and --dask are two ways to train; give one of them.")
    if not is_file(data) or data == "-":
        raise ParameterError(f"{option} reads a file; got {data!r}.")
    if way.dask is None:
        return _bytes(way.memory or "")
    if form.columns():
        raise ParameterError("--dask reads rows by their usual names; leave out --text-column and --labels-column.")
    from ripml.distributed.partitions import dask_modules

    dask_modules()  # without them the extra is named
    return 0


def _trained_outside_memory(
    data: str, folder: Path, form: Form, model: RIPML, rules: Rules, dask: str | None, memory: int
) -> DocumentModel:
    """Fit from blocks of a file or on a Dask scheduler, in a folder beside the model's that is removed in the end."""
    folder = folder.resolve()
    work = folder.with_name(f"{folder.name}.work")
    ours = any((work / file).exists() for file in ("rows/journal.json", "work.npz", "Z.bin"))
    if work.exists() and not ours and any(work.iterdir()):
        raise ParameterError(f"{work}: the work is done in this folder, but it holds other files; move them.")
    if dask is not None:
        from ripml import distributed

        trained = distributed.train_files(model, data, form.format, dask, work)
    else:
        trained = DocumentModel.fit_blocks(data, form.format, model, work, memory, **form.columns())
    trained = replace(trained, rules=rules)
    trained.save(folder)
    shutil.rmtree(work)
    return trained


def _bytes(size: str) -> int:
    """The bytes of a size like 500MB."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)B?", size.strip().upper())
    if not match:
        raise ParameterError(f"--memory must be a size like 500MB or 4GB; got {size!r}.")
    return int(float(match[1]) * 10 ** {"": 0, "K": 3, "M": 6, "G": 9, "T": 12}[match[2]])


def untrained(method: str, settings: dict[str, Any]) -> Multilabel:
    """A preset of RIPML or a baseline with these settings; one that it does not have is an error."""
    settings = {name: _number_or_word(value) for name, value in settings.items()}
    gamma = settings.pop("gamma", None)
    if gamma is not None:
        settings["kernel"] = _of_width(settings.get("kernel", "rbf" if method == "default" else "linear"), gamma)
    if method in PRESETS:
        return PRESETS[method](**settings)
    kind: type[Multilabel] = registry.named("estimator", method)
    known = kind().get_params()
    if unknown := [name for name in settings if name not in known]:
        there = [option_of(name) or name for name in _OPTIONS if name in known]
        missing = ", ".join(option_of(name) or name for name in unknown)
        raise ParameterError(
            f"--method {method} has no {missing}; of the options for methods it has {', '.join(there)}."
        )
    return kind(**settings)


_OPTIONS = ("n_dims", "n_neighbors", "n_learners", "n_clusters", "n_probe", "ridge", "random_state", "n_jobs")


def _of_width(kernel: Any, gamma: float) -> Kernel:
    """A kernel by its word, or of a file of settings, with this γ."""
    found = resolve_kernel("rbf" if kernel == "auto" else kernel)
    if not isinstance(found, (RBF, Local)):
        raise ParameterError("--gamma is the width of a kernel; say --kernel rbf or --kernel local with it.")
    return replace(found, gamma=gamma)


def _number_or_word(value: Any) -> Any:
    """The number that a word of the command line is, if it is one: `check_settings` knows which of them are right."""
    for kind in (int, float) if isinstance(value, str) else ():
        with contextlib.suppress(ValueError):
            return kind(value)
    return value
