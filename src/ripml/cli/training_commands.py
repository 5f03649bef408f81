"""The commands that make models, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ripml.cli.options import (
    DataArgument,
    FormatOption,
    JobsOption,
    JsonOption,
    LabelsColumnOption,
    TextColumnOption,
    form,
    word,
)
from ripml.cli.words import (
    DecoderWord,
    EmbeddingWord,
    IndexWord,
    KernelWord,
    Method,
    MetricWord,
    Preset,
    SolverWord,
    TextFeatures,
)

__all__ = ["training_app"]

training_app = typer.Typer(rich_markup_mode=None)


@training_app.command(short_help="Learn and recommend from docstrings.")
def demo(json: JsonOption = False) -> None:
    """Learn which functions NumPy, SciPy and scikit-learn documentation links to, and recommend some.

    Builds its data from the installed packages' docstrings; needs no download and takes about half a minute.

    Example: ripml demo
    """
    from ripml.cli.demo import run_demo

    run_demo(as_json=json)


@training_app.command(short_help="Learn from a file, save the model.")
def train(
    data: DataArgument,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder for the model.")],
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    labels_column: LabelsColumnOption = None,
    preset: Annotated[
        Preset,
        typer.Option(help="The most precise, a faster linear one, or the paper's algorithm to the letter."),
    ] = Preset.default,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings to begin with, the best.json of ripml tune.")
    ] = None,
    method: Annotated[Method, typer.Option(help="RIPML, or a method of the related work.")] = Method.ripml,
    dims: Annotated[str | None, typer.Option(help="m, the dimensions of a learner, or auto.")] = None,
    neighbors: Annotated[str | None, typer.Option(help="k, the neighbours that vote in a learner, or auto.")] = None,
    learners: Annotated[int | None, typer.Option(help="F, the number of learners.")] = None,
    clusters: Annotated[int | None, typer.Option(help="C, the k-means clusters of the features.")] = None,
    probe: Annotated[int | None, typer.Option(help="The nearest clusters whose rows may vote.")] = None,
    index: Annotated[IndexWord | None, typer.Option(help="How neighbours are searched.")] = None,
    kernel: Annotated[KernelWord | None, typer.Option(help="How alike feature rows are.")] = None,
    gamma: Annotated[float | None, typer.Option(help="The width of the kernel; chosen otherwise.")] = None,
    relevance: Annotated[
        str | None, typer.Option(help="The power of a feature's relevance that it is multiplied by, or auto.")
    ] = None,
    ridge: Annotated[str | None, typer.Option(help="The regularisation, a number or auto.")] = None,
    ensemble: Annotated[EmbeddingWord | None, typer.Option(help="The family of random matrices.")] = None,
    solver: Annotated[SolverWord | None, typer.Option(help="How a linear regression is solved.")] = None,
    decoder: Annotated[DecoderWord | None, typer.Option(help="How a predicted embedding becomes scores.")] = None,
    tail: Annotated[float | None, typer.Option(help="How much rare labels are put forward, 0 for not at all.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="The same seed, the same model; 0 otherwise.")
    ] = None,
    features: Annotated[TextFeatures | None, typer.Option(help="What texts become; tfidf otherwise.")] = None,
    stop_labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="Never suggest these labels, one a line.")
    ] = None,
    allowed_labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="Suggest these labels alone, one a line.")
    ] = None,
    min_count: Annotated[int, typer.Option(help="Suggest labels that at least so many rows carry.")] = 1,
    memory: Annotated[
        str | None,
        typer.Option(help="Read the file in blocks and hold about this much, like 500MB or 4GB, beside a block."),
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Learn on the workers of a Dask scheduler, tcp://host:port.")
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Keep the documents with the model, so that it can go on learning.")
    ] = False,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Learn from a file of labelled rows and save the model.

    Rows are texts (jsonl, csv, parquet or Annif's corpora, with "text" and "labels") or features (xmc, svmlight, arff,
    jsonl). An option that is given overrides --settings, and that the preset; what is auto is chosen on training rows
    left out; ripml inspect shows it. --stop-labels, --allowed-labels and --min-count are kept with the model, for
    suggest.

    With --store, MODEL becomes a store, a new folder that update, forget and relabel change and serve serves; what
    takes a model takes it too. With --memory, rows and the model's large arrays are files in MODEL.work until it is
    saved, and a run that was interrupted goes on from its last block when the command is given again; --memory and
    --dask are made for --preset paper.

    Example: ripml train tickets.jsonl model/

    Example: ripml train tickets.csv store/ --store --stop-labels never.txt --text-column body --labels-column tags
    """
    from ripml.base.errors import ParameterError
    from ripml.cli.training import Way, run_train

    options = {
        "n_dims": dims,
        "n_neighbors": neighbors,
        "n_learners": learners,
        "n_clusters": clusters,
        "n_probe": probe,
        "index": index and index.value,
        "kernel": kernel and kernel.value,
        "gamma": gamma,
        "relevance": relevance,
        "ridge": ridge,
        "ensemble": ensemble and ensemble.value,
        "solver": solver and solver.value,
        "decoder": decoder and decoder.value,
        "tail": tail,
        "random_state": 0 if seed is None and settings is None else seed,
        "n_jobs": jobs,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if method != Method.ripml and preset != Preset.default:
        raise ParameterError(f"--preset is one of RIPML's settings; leave it out for --method {method.value}.")
    chosen = preset.value if method == Method.ripml else method.value
    way = Way(features and features.value, stop_labels, allowed_labels, min_count, memory, dask, store)
    run_train(data, model, form(format, text_column, labels_column), chosen, given, settings, way, as_json=json)


@training_app.command(short_help="Search settings on rows left out.")
def tune(
    data: DataArgument,
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The folder of the study; one that is there goes on.")],
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    labels_column: LabelsColumnOption = None,
    metric: Annotated[MetricWord | None, typer.Option(help="What counts; P@1 otherwise.")] = None,
    trials: Annotated[int, typer.Option(help="How many settings to try in all, with those tried before.")] = 30,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin no trial after this time, like 90s, 20m or 8h.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="How many of five parts are left out in turn, 1 to 5; 3 otherwise.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Draws parts, settings and models; 0 otherwise.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the trials here, too (.png, .svg, .pdf), not only in STUDY/study.png.")
    ] = None,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Search RIPML's settings for those that are best on training rows left out; test rows have no part in it.

    Of a named data set the training part is taken. Trial 0 has the default settings; presets, ridge, neighbours, width
    of the kernel, relevance, decoder and dimensions are searched, and --tail for PSP@5. Trials that are behind after
    the first rows are given up. Every trial is kept in STUDY as it ends: after Ctrl+C, or to try more, the same command
    goes on. The best settings are in STUDY/best.json. Needs the extra tune.

    Example: ripml tune tickets.jsonl study/ --metric nDCG@5 --timeout 2h

    Example: ripml train tickets.jsonl model/ --settings study/best.json
    """
    from ripml.cli.tuning import run_tune

    run_tune(
        data,
        study,
        form(format, text_column, labels_column),
        word(metric),
        trials,
        timeout,
        folds,
        seed,
        plot,
        jobs,
        as_json=json,
    )
