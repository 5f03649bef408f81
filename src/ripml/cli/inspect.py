"""`ripml inspect`: facts about a model or a store, or the isometry of random matrices on the labels of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from ripml.base.errors import ParameterError
from ripml.cli import options, output

if TYPE_CHECKING:
    from ripml.datasets import Dataset
    from ripml.labels.isometry import Isometry

__all__ = ["app"]

app = Typer(rich_markup_mode=None)

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@app.command(short_help="Describe a model, a store or a data set.")
def inspect(
    path: Annotated[
        str,
        Argument(metavar="PATH", help="The folder of a model or a store, a data file, or the name of a data set."),
    ],
    format: options.Format = None,
    text_column: options.TextColumn = None,
    labels_column: options.LabelsColumn = None,
    tag_separator: options.TagSeparator = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    ensemble: Annotated[
        str, options.stage_option("ensemble", "Data: the family of random matrices to measure.", without=["identity"])
    ] = "gaussian",
    dims: Annotated[int, Option(min=1, help="Data: m, the number of dimensions to measure with.")] = 100,
    delta: Annotated[float, Option(help="Data: find the smallest m that reaches this δ.")] = 0.25,
    quantile: Annotated[float, Option(help="Data: the share of pairs for which δ must hold.")] = 0.95,
    seed: Annotated[int, Option(min=0, help="Data: the seed for Phi and for the pairs of rows.")] = 0,
    plot: Annotated[
        Path | None,
        Option(help="Data: write a plot of the distribution to this file (.png, .svg, .pdf)."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show what a model learnt, or how well random matrices keep the distances between the label rows of a data set.

    Example: ripml inspect train.txt.gz --dims 100 --plot isometry.png
    """
    from ripml.cli.inputs import is_store, read_rows

    if (Path(path) / "manifest.json").exists() or is_store(Path(path)):
        if plot is not None:
            raise ParameterError("--plot shows the isometry of a data set; it cannot plot a model or a store.")
        _print_model(Path(path), json)
        return
    for name, value in (("quantile", quantile), ("delta", delta)):
        if not 0 < value < 1:
            raise ParameterError(f"--{name} must be between 0 and 1; got {value}.")
    rows = read_rows(path, options.FileOptions(format, text_column, labels_column, tag_separator, encoding, sheet))
    report, isometry = _measure(rows, ensemble, dims, delta, quantile, seed)
    if plot is not None:
        from ripml.labels.isometry import plot_isometry

        plot_isometry(isometry, quantile, f"{rows.name or path}: {ensemble}, m = {dims}", plot)
    _print_isometry(rows, rows.name or path, report, json)


def _print_model(folder: Path, as_json: bool) -> None:
    from ripml.cli.inputs import open_model
    from ripml.cli.summaries import describe_updates, format_summary, model_summary, print_summary

    trained, store = open_model(folder)
    summary = model_summary(trained)
    if store is None:
        print_summary(f"Model {folder}", summary, as_json)
        return
    last = next(iter(store.history(1)), None)
    estimator: Any = trained.model
    drift = store.drift()
    newest, decided = drift["newest"], drift["decided"]
    if as_json:
        facts = {"documents": len(store), **summary, "last_change": last, "warm": estimator.warm_}
        output.print_json({**facts, **{name: found for name, found in drift.items() if found is not None}})
        return
    last_change = "none" if last is None else f"{last['number']:,}, {last['kind']}, {last['time']}"
    extra = {"last change": last_change, "since the fit": describe_updates(estimator.warm_)}
    if newest is not None:
        extra["newest documents"] = (
            f"{newest['documents']:,}: mean familiarity {newest['familiarity']:.2f} (0.50 without drift), "
            f"{100 * newest['unfamiliar']:.1f} % unlike anything known"
        )
    if decided is not None:
        extra["decided labels"] = _acceptance(decided)
        if decided["newest"]["labels"] < decided["labels"]:
            extra["newest decided labels"] = _acceptance(decided["newest"])
    output.print_facts(f"Store {folder}", {"documents": f"{len(store):,}", **format_summary(summary), **extra})


def _acceptance(counted: dict[str, Any]) -> str:
    return f"{counted['labels']:,}: {100 * counted['acceptance']:.1f} % accepted"


def _measure(
    rows: Dataset, ensemble: str, dims: int, delta: float, quantile: float, seed: int
) -> tuple[dict[str, Any], Isometry]:
    """Measure ‖Phi(u − v)‖²/‖u − v‖² over pairs of label rows, with the columns of Phi that training would use."""
    import numpy as np

    from ripml.base import registry
    from ripml.labels.encoding import encode_names
    from ripml.labels.isometry import measure_isometry, smallest_dims
    from ripml.labels.vocabulary import Vocabulary

    family = registry.resolve("ensemble", ensemble)
    keys = Vocabulary.of(encode_names(rows.label_names)).column_keys(family, dims)
    isometry = measure_isometry(family, dims, rows.Y, keys, seed=seed)
    report = {
        "ensemble": ensemble,
        "n_dims": dims,
        "pairs": len(isometry.ratios),
        "ratio_quantiles": {f"{q:g}": float(np.quantile(isometry.ratios, q)) for q in _QUANTILES},
        "quantile": quantile,
        "delta": isometry.delta(quantile),
        "wanted_delta": delta,
        "smallest_dims": smallest_dims(family, delta, rows.Y, keys, quantile, seed=seed),
    }
    return report, isometry


def _print_isometry(rows: Dataset, name: str, report: dict[str, Any], as_json: bool) -> None:
    from ripml.cli.summaries import dataset_statistics

    statistics = dataset_statistics(rows)
    if as_json:
        output.print_json({"data": statistics, "isometry": report})
        return
    output.print_facts(name, {name.replace("_", " "): f"{value:,}" for name, value in statistics.items()})
    print()
    matrix = f"{report['ensemble']}, m = {report['n_dims']}"
    title = f"‖Phi(u − v)‖²/‖u − v‖² over {report['pairs']:,} pairs of label rows: {matrix}"
    ratios = [f"{value:.3f}" for value in report["ratio_quantiles"].values()]
    output.print_table(title, ["quantile", *(f"{100 * q:g} %" for q in _QUANTILES)], [["ratio", *ratios]])
    print(f"δ for {100 * report['quantile']:g} % of the pairs: {report['delta']:.3f}")
    print(f"smallest m with δ ≤ {report['wanted_delta']:g}: {report['smallest_dims']:,}")
