"""`ripml train` and `ripml tune`: fit a model, or search for its best settings."""

from __future__ import annotations

import contextlib
import json as json_format
import math
import os
import re
import shlex
import shutil
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option, Typer

from ripml.base import registry
from ripml.base.errors import DataError, MissingExtraError, ParameterError, check_count
from ripml.cli import options, output
from ripml.cli.options import stage_option

if TYPE_CHECKING:
    from ripml.labels.concepts import Concepts
    from ripml.model.multilabel import Multilabel
    from ripml.search.study import Study, Trial
    from ripml.tagging.documents import DocumentModel
    from ripml.tagging.rules import Rules

__all__ = ["app", "new_estimator", "read_settings", "train_options"]

app = Typer(rich_markup_mode=None)


@app.command(short_help="Train a model on labelled rows.")
def train(
    data: options.Data,
    model: Annotated[Path, Argument(metavar="MODEL", help="The folder to write the model to.")],
    format: options.Format = None,
    text_column: options.TextColumn = None,
    labels_column: options.LabelsColumn = None,
    tag_separator: options.TagSeparator = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    preset: Annotated[
        Literal["default", "linear", "paper"],
        Option(help="The most precise model, a faster linear one, or the algorithm of the paper."),
    ] = "default",
    settings: Annotated[Path | None, Option(metavar="FILE", help="Settings from the best.json of ripml tune.")] = None,
    method: Annotated[str, stage_option("estimator", "RIPML, or a method from related work.")] = "ripml",
    dims: Annotated[str | None, Option(help="m, the dimensions of a learner, or auto.")] = None,
    neighbors: Annotated[str | None, Option(help="k, the neighbours that vote in a learner, or auto.")] = None,
    learners: Annotated[int | None, Option(help="F, the number of learners.")] = None,
    clusters: Annotated[int | None, Option(help="C, the number of k-means clusters of the features.")] = None,
    probe: Annotated[int | None, Option(help="The number of nearest clusters whose rows vote.")] = None,
    index: Annotated[str | None, stage_option("index", "The search for nearest neighbours.")] = None,
    kernel: Annotated[str | None, stage_option("kernel", "The similarity of feature rows.", also=["auto"])] = None,
    gamma: Annotated[float | None, Option(help="The width of the kernel. Default: tuned.")] = None,
    relevance: Annotated[str | None, Option(help="The power of the relevance of features, or auto.")] = None,
    ridge: Annotated[str | None, Option(help="The regularisation of the regression, a number or auto.")] = None,
    ensemble: Annotated[str | None, stage_option("ensemble", "The family of random matrices.", also=["auto"])] = None,
    solver: Annotated[str | None, stage_option("solver", "The solver of a linear regression.", also=["auto"])] = None,
    decoder: Annotated[str | None, stage_option("decoder", "How embeddings become scores of labels.")] = None,
    tail: Annotated[float | None, Option(help="How strongly rare labels are favoured; 0 for not at all.")] = None,
    seed: Annotated[int | None, Option(min=0, max=2**32 - 1, help="The random seed. Default: 0.")] = None,
    features: Annotated[
        str | None,
        Option(
            metavar="NAMES",
            help="Features of texts: tfidf, title, doc2vec or an encoder such as minilm; separate several with commas.",
            show_default="auto, which is tfidf,title",
        ),
    ] = None,
    stop_labels: Annotated[
        str | None, Option(metavar="FILE", help="Never suggest the labels in this file, one per line.")
    ] = None,
    allowed_labels: Annotated[
        str | None, Option(metavar="FILE", help="Suggest only the labels in this file, one per line.")
    ] = None,
    min_count: Annotated[int, Option(help="Suggest only labels that at least this many training rows have.")] = 0,
    vocabulary: Annotated[
        str | None,
        Option(metavar="FILE", help="The vocabulary of the labels: SKOS, a vocabulary of Annif, or a table."),
    ] = None,
    memory: Annotated[
        str | None, Option(help="Read the file in blocks and use at most about this much memory, e.g. 500MB or 4GB.")
    ] = None,
    dask: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Train on features with the workers of a Dask scheduler, tcp://host:port."),
    ] = None,
    store: Annotated[bool, Option("--store", help="Create a store, which keeps the documents for updates.")] = False,
    compact: Annotated[bool, Option("--compact", help="Save only what answers need: no updates.")] = False,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Train a model on a file of labelled rows and save it.

    Rows are texts (jsonl, csv, parquet or Annif corpora, with "text" and "labels") or features (xmc, svmlight, arff,
    jsonl). Options override --settings, which overrides the preset. Settings that are auto are tuned on held-out
    training rows; ripml inspect shows the values. --stop-labels, --allowed-labels and --min-count are saved with the
    model and apply to ripml suggest.

    With --vocabulary, labels are the ids of concepts, and people read their names. Rows may have names in place of ids.
    In the files of --stop-labels and --allowed-labels, lines such as type:URI, scheme:URI and branch:ID then stand for
    all labels of a type or a scheme, and for a label with everything narrower. Names are looked for in the texts, so
    that concepts without rows can be suggested, unless the model is trained with --dask or with another decoder than
    blend. With --dask, rows must have ids.

    With --store, MODEL becomes a store in a new folder. ripml update, forget and relabel change it, ripml serve serves
    it, and every command that takes a model takes a store, too. With --compact, the model is smaller, but cannot be
    updated.

    With --memory, DATA is a file that may be larger than memory: rows and large arrays are files in MODEL.work until
    the model is saved, and the model is that of a training in memory. The memory, disk and time that it needs are
    estimated first, and a budget that is too small is refused. An interrupted run continues where it was when the
    command is repeated. With --dask, the workers of a cluster fit any preset; they must see the file, and unless the
    preset is paper, its rows are in MODEL.work, too.

    Example: ripml train tickets.jsonl model/

    Example: ripml train tickets.csv store/ --store --stop-labels never.txt --text-column body --labels-column tags
    """
    parameters = {
        "n_dims": dims, "n_neighbors": neighbors, "n_learners": learners, "n_clusters": clusters, "n_probe": probe,
        "index": index, "kernel": kernel, "gamma": gamma, "relevance": relevance, "ridge": ridge, "ensemble": ensemble,
        "solver": solver, "decoder": decoder, "tail": tail, "n_jobs": jobs,
        "random_state": 0 if seed is None and settings is None else seed,
    }  # fmt: skip
    given = {name: value for name, value in parameters.items() if value is not None}
    run = TrainingRun(
        data, model, options.FileOptions(format, text_column, labels_column, tag_separator, encoding, sheet), preset,
        method, settings, given, features, stop_labels, allowed_labels, min_count, vocabulary, memory, dask, store,
        compact,
    )  # fmt: skip
    run_train(run, json)


@dataclass(frozen=True)
class TrainingRun:
    """The arguments of train: what to fit on, with which estimator and settings, and how."""

    data: str
    folder: Path
    file: options.FileOptions
    preset: str
    method: str
    settings_file: Path | None
    parameters: dict[str, Any]  # of the estimator, with the words of the command line as values
    features: str | None  # to make from texts
    stop_labels: str | None  # a file of names
    allowed_labels: str | None  # a file of names
    min_count: int
    vocabulary: str | None  # a file
    memory: str | None
    dask: str | None
    store: bool
    compact: bool

    @property
    def out_of_core(self) -> str | None:
        """The option that makes the training read blocks of a file instead of holding all rows in memory."""
        return "--memory" if self.memory is not None else "--dask" if self.dask is not None else None

    def check(self) -> None:
        """Raise `ParameterError` for options that exclude each other, and for a folder that cannot be written."""
        is_baseline = self.method != "ripml"
        if is_baseline and self.preset != "default":
            raise ParameterError(f"--preset is for RIPML only; leave it out with --method {self.method}.")
        if self.store and (self.out_of_core or is_baseline):
            option = self.out_of_core or f"--method {self.method}"
            raise ParameterError(f"--store requires a RIPML model that is trained in memory; leave out {option}.")
        if self.store and self.compact:
            raise ParameterError("--compact is for models that only answer, but a store learns; leave out one of them.")
        if self.out_of_core and is_baseline:
            raise ParameterError(f"{self.out_of_core} is for RIPML only; leave it out with --method {self.method}.")
        if self.memory is not None and self.dask is not None:
            raise ParameterError("--memory and --dask are two ways to train; give one of them.")
        if self.out_of_core and not {"auto", "tfidf", "title"}.issuperset(self.feature_names):
            raise ParameterError(f"--features {self.features} needs all texts in memory; leave out {self.out_of_core}.")
        if self.dask is not None and self.features is not None:
            raise ParameterError("--features is for texts, which --dask does not read; leave out one of them.")
        _check_target(self.folder, self.store)

    @property
    def feature_names(self) -> list[str]:
        """The features to make from texts."""
        return (self.features or "auto").split(",")

    def estimator(self) -> Multilabel:
        """A new estimator with valid settings."""
        saved = {} if self.settings_file is None else read_settings(self.settings_file)
        estimator = new_estimator(self.method, self.preset, {**saved, **self.parameters})
        estimator.check_settings()
        return estimator

    def concepts(self) -> Concepts | None:
        """The vocabulary of the labels."""
        from ripml.datasets import read_vocabulary

        return None if self.vocabulary is None else read_vocabulary(self.vocabulary)

    def rules(self) -> Rules:
        """The rules for suggestions that are saved with the model."""
        from ripml.cli.inputs import read_lines
        from ripml.tagging.rules import Rules

        allowed = None if self.allowed_labels is None else read_lines(self.allowed_labels)
        stopped = [] if self.stop_labels is None else read_lines(self.stop_labels)
        return Rules(stop_labels=stopped, allowed_labels=allowed, min_count=self.min_count)


def run_train(run: TrainingRun, as_json: bool) -> None:
    """Fit a model, save it, and print a summary."""
    from ripml.cli.inputs import folder_megabytes
    from ripml.cli.summaries import format_short, model_summary

    run.check()
    fit = _fit_out_of_core if run.out_of_core else _fit_in_memory
    name, start, trained = fit(run, run.estimator(), run.rules(), run.concepts())
    summary = model_summary(trained)
    summary["seconds"] = round(time.perf_counter() - start, 2)
    summary["megabytes"] = folder_megabytes(run.folder)
    _warn_about_rules(trained)
    if as_json:
        output.print_json(summary)
        return
    where = "stored with its documents in" if run.store else "saved to"
    output.print_facts(f"Trained on {name}, {where} {run.folder}", format_short(summary))
    place = shlex.quote(str(run.folder))
    command = f"predict {place} FILE" if trained.text is None else f'suggest {place} "some text"'
    print(f"Try it: ripml {command}\nAll settings: ripml inspect {place}")


def _fit_in_memory(
    run: TrainingRun, estimator: Multilabel, rules: Rules, concepts: Concepts | None
) -> tuple[str, float, DocumentModel]:
    """Read all rows, fit the model and save it; return the name of the data, the start of the fit, and the model."""
    from ripml.cli import inputs
    from ripml.cli.summaries import warn_about
    from ripml.datasets import check
    from ripml.datasets.vocabularies import with_ids
    from ripml.store import Store
    from ripml.tagging.documents import DocumentModel, check_texts, distinct

    rows, first_feature = inputs.training_rows(run.data, run.file)
    warn_about(check(rows, quick=True))
    rows = rows if concepts is None else with_ids(rows, concepts)
    if run.features is not None:
        if rows.texts is None:
            raise DataError(f"--features requires texts, but {rows.name} has none; leave it out.")
        rows = replace(rows, X=None, feature_names=None)
    start, features = time.perf_counter(), run.feature_names
    with output.working("training"):
        if run.store:
            with Store.create(
                run.folder, rows, estimator, first_feature, features=features, rules=rules, vocabulary=concepts
            ) as store:
                trained = store.model
        else:
            if rows.X is None and rows.texts is not None:
                check_texts(rows)
                rows = distinct(rows)
            trained = DocumentModel.fit(
                rows, first_feature, estimator, features=features, rules=rules, concepts=concepts
            )
            trained.save(run.folder, run.compact)
    return rows.name or run.data, start, trained


def _fit_out_of_core(
    run: TrainingRun, estimator: Any, rules: Rules, concepts: Concepts | None
) -> tuple[str, float, DocumentModel]:
    """The same from blocks of a file or on a Dask scheduler, in the folder MODEL.work, which is removed at the end."""
    from ripml.cli.inputs import is_file
    from ripml.tagging.documents import DocumentModel

    if not is_file(run.data) or run.data == "-":
        raise ParameterError(f"{run.out_of_core} requires a file; got {run.data!r}.")
    memory = 0 if run.memory is None else _budget(run, estimator)
    if run.dask is not None:
        if run.file.columns():
            raise ParameterError(
                "--dask reads the columns text and labels; leave out --text-column and --labels-column."
            )
        from ripml.distributed.partitions import dask_modules

        dask_modules()  # raises an error that names the extra if Dask is not installed
    folder = run.folder.resolve()
    work = folder.with_name(f"{folder.name}.work")
    was_interrupted = any((work / name).exists() for name in ("rows/journal.json", "work.npz", "Z.bin"))
    if work.exists() and not was_interrupted and any(work.iterdir()):
        raise ParameterError(f"{work}: this folder is needed for the training, but it holds other files; move them.")
    start = time.perf_counter()
    with output.working("training"):
        if run.dask is not None:
            from ripml import distributed

            trained = distributed.train_files(estimator, run.data, run.file.format, run.dask, work)
        else:
            trained = DocumentModel.fit_blocks(
                run.data, run.file.format, estimator, work, memory, concepts, run.feature_names, **run.file.columns()
            )
        trained = replace(trained, rules=rules).with_concepts(concepts)
        trained.save(folder, run.compact)
        shutil.rmtree(work)
    return run.data, start, trained


def _budget(run: TrainingRun, estimator: Any) -> int:
    """The memory for a fit from blocks, if it is enough; print what the fit will need."""
    from ripml.model import budget
    from ripml.tagging.documents import DocumentModel

    given = _parse_size(run.memory or "")
    check_count("memory", given, least=1 << 20)
    sizes = DocumentModel.sizes_of_blocks(run.data, run.file.format, estimator, run.feature_names, **run.file.columns())
    needed, memory = budget.needs(estimator.stages(), sizes), budget.working_bytes(given)
    about = f"about {sizes.n_rows:,} rows with up to {sizes.n_features:,} features"
    if needed.memory > memory:
        enough = budget.format_bytes(needed.memory + budget.PROGRAM_BYTES).replace(" ", "")
        raise ParameterError(f"--memory {run.memory} is too small for {about}; --memory {enough} would be enough.")
    resident = budget.format_bytes(max(given, memory + budget.PROGRAM_BYTES))
    print(f"{about}: up to {resident} of memory, {needed}", file=sys.stderr)
    return memory


def _check_target(folder: Path, store: bool) -> None:
    """Raise `ParameterError` if the model could not be saved in this folder."""
    from ripml.cli.inputs import is_store
    from ripml.store.database import is_unfinished

    if folder.exists() and not folder.is_dir():
        raise ParameterError(f"{folder} is a file, but the model needs a folder; choose another name.")
    if is_store(folder) and not (store and is_unfinished(folder)):
        remedy = "add rows with ripml update, or choose a new folder" if store else "choose another folder"
        raise ParameterError(f"{folder} already holds a store; {remedy}.")
    if folder.is_dir() and any(folder.iterdir()) and not is_store(folder):
        if store:
            raise ParameterError(f"{folder} holds other files, but a store needs a new or empty folder.")
        if not any(folder.glob("manifest.json*")):  # also that of a save that was interrupted
            raise ParameterError(f"{folder} holds other files and is not a model; choose another folder.")
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ParameterError(f"{folder}: {existing} is not a folder that can be written to; choose another folder.")


def _warn_about_rules(trained: DocumentModel) -> None:
    """Warn about rules without any effect, or that exclude all labels."""
    rules, model = trained.rules, trained.model
    known = set(map(str, model.classes_.tolist()))
    warnings = []
    if trained.concepts is not None:
        if known.isdisjoint(trained.concepts):
            warnings.append("--vocabulary: no label of the rows is an id or a name in it, so labels have no names.")
        if named := [label for label in known if label not in trained.concepts and trained.concepts.id_of(label)]:
            warnings.append(
                f"--vocabulary: {output.count(len(named), 'label')} of the rows, such as {min(named)!r}, "
                "are names of concepts; with --dask, rows must have ids."
            )
        known |= {name for name in rules.groups if known & trained.concepts.members(name)}
    for option, names in (("--stop-labels", rules.stop_labels), ("--allowed-labels", rules.allowed_labels or ())):
        if unknown := sorted(set(names) - known):
            more = f" or {len(unknown) - 1:,} more of these labels" if len(unknown) > 1 else ""
            warnings.append(f"{option}: no row has the label {unknown[0]!r}{more}.")
    if (most := int(model.frequency_.max(initial=0))) < rules.min_count:
        rows = output.count(most, "row")
        warnings.append(f"--min-count {rules.min_count}: no label has more than {rows}, so none is suggested.")
    for warning in warnings:
        print(f"ripml: warning: {output.printable(warning)}", file=sys.stderr)


def _parse_size(size: str) -> int:
    """The number of bytes of a size such as 500MB."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)B?", size.strip().upper())
    if not match:
        raise ParameterError(f"--memory must be a size such as 500MB or 4GB; got {size!r}.")
    return int(float(match[1]) * 10 ** {"": 0, "K": 3, "M": 6, "G": 9, "T": 12}[match[2]])


def new_estimator(method: str, preset: str, settings: dict[str, Any]) -> Multilabel:
    """An estimator that is not fitted; `settings` are parameters, with the words of the command line as values."""
    from ripml.search.space import PRESETS

    settings = {name: _parse_number(value) for name, value in settings.items()}
    gamma = settings.pop("gamma", None)
    if gamma is not None:
        default = "rbf" if method == "ripml" and preset == "default" else "linear"
        settings["kernel"] = _kernel_of_width(settings.get("kernel", default), gamma)
    if method == "ripml":
        return PRESETS[preset](**settings)
    estimator: type[Multilabel] = registry.named("estimator", method)
    known = estimator().get_params()
    if unknown := [name for name in settings if name not in known]:
        allowed = ", ".join(filter(None, map(options.option_name, known)))
        rejected = ", ".join(options.option_name(name) or f"--{name}" for name in unknown)
        raise ParameterError(f"--method {method} does not take {rejected}; it takes {allowed}.")
    return estimator(**settings)


def read_settings(file: Path) -> dict[str, Any]:
    """The settings of RIPML in a JSON file such as the best.json of a study."""
    from ripml.model.estimator import RIPML

    try:
        values = json_format.loads(file.read_bytes())
        settings = {name: registry.from_json(value) for name, value in values.items()}
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ParameterError(f"{file} is not a file of settings; ripml tune writes one, best.json.") from None
    if unknown := [name for name in settings if name not in RIPML().get_params()]:
        raise ParameterError(f"{file}: RIPML has no setting `{unknown[0]}`.")
    return settings


def _kernel_of_width(kernel: Any, gamma: float) -> Any:
    """A kernel, given by its word or as an object, with this γ."""
    stage = registry.resolve("kernel", "rbf" if kernel == "auto" else kernel)
    if "gamma" not in {field.name for field in fields(stage)}:
        raise ParameterError("--gamma is the width of a kernel; it requires --kernel rbf or --kernel local.")
    return replace(stage, gamma=gamma)


def _parse_number(value: Any) -> Any:
    """A word of the command line as a number if it is one; `check_settings` rejects words that are not valid."""
    for number in (int, float) if isinstance(value, str) else ():
        with contextlib.suppress(ValueError):
            return number(value)
    return value


_SHOWN_TRIALS = 5


@app.command(short_help="Search for the best settings.")
def tune(
    data: options.Data,
    study: Annotated[Path, Argument(metavar="STUDY", help="The folder of the study; an existing study is continued.")],
    format: options.Format = None,
    text_column: options.TextColumn = None,
    labels_column: options.LabelsColumn = None,
    tag_separator: options.TagSeparator = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    metric: Annotated[
        Literal["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "micro-F1"] | None,
        Option(help="The metric to maximise. Default: P@1."),
    ] = None,
    trials: Annotated[int, Option(min=1, help="The total number of settings to try, including earlier runs.")] = 30,
    timeout: Annotated[
        str | None, Option(metavar="TIME", help="Start no trial after this time, e.g. 90s, 20m or 8h.")
    ] = None,
    folds: Annotated[
        int | None, Option(help="How many of five parts are held out in turn, 1 to 5. Default: 3.")
    ] = None,
    seed: Annotated[int | None, Option(help="The seed for parts, settings and models. Default: 0.")] = None,
    plot: Annotated[
        Path | None,
        Option(help="Also write the plot of the trials to this file (.png, .svg, .pdf), not only to STUDY."),
    ] = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Search for the settings of RIPML that are best on held-out training rows. Test rows are never used.

    For a named data set, the training part is used. Trial 0 has the default settings. The search covers presets, ridge,
    neighbours, kernel width, relevance, decoder and dimensions, and --tail for PSP@5. Trials that are below the median
    after the first part are stopped. Every trial is saved in STUDY when it ends: after Ctrl+C, or to try more, repeat
    the command. The best settings are in STUDY/best.json. Requires the extra tune.

    Example: ripml tune tickets.jsonl study/ --metric nDCG@5 --timeout 2h

    Example: ripml train tickets.jsonl model/ --settings study/best.json
    """
    from ripml.base.figures import check_picture
    from ripml.cli.inputs import training_rows
    from ripml.search import study as search

    seconds = math.inf if timeout is None else _parse_time(timeout)
    if plot is not None:
        check_picture(plot)
    file = options.FileOptions(format, text_column, labels_column, tag_separator, encoding, sheet)
    rows, _ = training_rows(data, file)
    n_done = len(search.Study.open(study).trials) if (study / "journal.log").exists() else 0
    interrupted = False
    with output.progress_bar("trying settings", max(trials, n_done), "trials", n_done) as advance:

        def progress(trial: Trial, so_far: Study) -> None:
            print(_format_trial(trial, so_far), file=sys.stderr, flush=True)
            advance(1)

        try:
            result = search.tune(
                rows, study, metric=metric, n_trials=trials, timeout=seconds, folds=folds, random_state=seed,
                n_jobs=jobs, progress=progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            result, interrupted = search.Study.open(study), True
    _plot_study(result, rows.name or data, plot)
    _print_study(result, ["ripml", "train", data, "MODEL", *file.command_line()], json)
    if interrupted:
        done = f"{len(result.trials):,} of {trials:,} trials are saved"
        print(f"{done}; repeat the command to continue.", file=sys.stderr)
        raise KeyboardInterrupt


def _parse_time(time: str) -> float:
    """The number of seconds of a time such as 20m."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([smh]?)", time.strip().lower())
    if not match:
        raise ParameterError(f"--timeout must be a time such as 90s, 20m or 8h; got {time!r}.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _format_trial(trial: Trial, study: Study) -> str:
    """One line about a trial and the best one so far."""
    if trial.state == "failed":
        result = f"failed: {' '.join((trial.error or '').split())}"
    else:
        result = f"{study.metric} {_percent(trial.value)}" + (", stopped early" if trial.state == "pruned" else "")
    best = study.best
    best_so_far = "" if best is None else f"; best {_percent(best.value)} (trial {best.number})"
    return f"trial {trial.number}: {result}, {trial.seconds:.1f} s{best_so_far}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _plot_study(study: Study, name: str, plot: Path | None) -> None:
    from ripml.search.plots import plot_study

    if study.best is None:
        return
    try:
        for path in (study.folder / "study.png", plot):
            if path is not None:
                plot_study(study, name, path)
    except MissingExtraError as error:
        print(f"no plot was written: {error}", file=sys.stderr)


def _print_study(study: Study, train_command: list[str], as_json: bool) -> None:
    best = study.best
    command = shlex.join([*train_command, *([] if best is None else train_options(best))])
    if as_json:
        output.print_json({
            "metric": study.metric,
            "best": None if best is None else best.number,
            "value": None if best is None else best.value,
            "settings": None if best is None else best.settings,
            "train": None if best is None else command,
            "trials": [asdict(trial) for trial in study.trials],
        })  # fmt: skip
        return
    if best is None:
        print("no trial is complete yet")
        return
    counts = Counter(trial.state for trial in study.trials)
    states = ", ".join(f"{counts[state]:,} {state}" for state in ("complete", "pruned", "failed") if counts[state])
    complete = sorted((t for t in study.trials if t.state == "complete"), key=lambda t: (-(t.value or 0), t.number))
    shown = [*complete[:_SHOWN_TRIALS], *(trial for trial in complete[_SHOWN_TRIALS:] if trial.number == 0)]
    rows = [
        [trial.number, " ".join(train_options(trial, seed=False)) or "the default settings", _percent(trial.value)]
        for trial in shown
    ]
    title = f"The best of {len(study.trials):,} trials ({states}), on held-out rows"
    output.print_table(title, ["trial", "settings", study.metric], rows, n_left=2)
    print(f"Settings: {study.best_path}\nTrain with them:\n  {command}")
    print(f"or\n  {shlex.join([*train_command, '--settings', str(study.best_path)])}")


def train_options(trial: Trial, seed: bool = True) -> list[str]:
    """The options of `ripml train` that give the settings of a trial.

    >>> from ripml.search.study import Trial
    >>> train_options(Trial(3, "complete", 0.5, "linear", {"kernel": "linear", "decoder": {"stage": "Blend",
    ...               "n_similar": 0}, "n_neighbors": 7, "random_state": 1}, {}, 1.0))
    ['--preset', 'linear', '--neighbors', '7', '--seed', '1']
    """
    from ripml.search.space import PRESETS

    defaults = PRESETS[trial.preset]().get_params()
    words = [] if trial.preset == "default" else ["--preset", trial.preset]
    for name, value in trial.model().get_params().items():
        if value == defaults[name] or (name == "random_state" and not seed):
            continue
        if name == "kernel" and not isinstance(value, str):  # the only stage whose options a study searches
            words += ["--kernel", options.stage_word("kernel", value), "--gamma", str(value.gamma)]
        else:
            words += [options.option_name(name) or f"--{name}", str(value)]
    return words
