"""What inspect does: a model's facts, or the isometry of random matrices on a data set's label rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ripml import datasets
from ripml.base.errors import ParameterError
from ripml.base.registry import resolve
from ripml.cli.opening import is_file, is_store, named_set, opened, reading
from ripml.cli.options import Form
from ripml.cli.output import facts, print_json, table
from ripml.cli.storing import since_the_fit, warm
from ripml.cli.summaries import model_summary, readable, statistics
from ripml.datasets import Dataset
from ripml.labels.encoding import encode_names
from ripml.labels.isometry import Isometry, measure_isometry, smallest_dims
from ripml.labels.vocabulary import Vocabulary

__all__ = ["run_inspect"]

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def run_inspect(
    path: str,
    form: Form,
    ensemble: str,
    dims: int,
    delta: float,
    quantile: float,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Print the facts of a model or a store, or statistics and isometry of a data set."""
    if (Path(path) / "manifest.json").exists() or is_store(Path(path)):
        if plot is not None:
            raise ParameterError("--plot draws the isometry of a data set; a model folder has no picture.")
        _inspect_model(Path(path), as_json)
        return
    if dims < 1:
        raise ParameterError(f"--dims must be an integer ≥ 1; got {dims}.")
    for name, value in (("quantile", quantile), ("delta", delta)):
        if not 0 < value < 1:
            raise ParameterError(f"--{name} must be between 0 and 1; got {value}.")
    with reading(path) as place:
        data = datasets.read(place, form.format, **form.columns()) if is_file(path) else named_set(path)[0]
    report, measured = _isometry_report(data, ensemble, dims, delta, quantile, seed)
    if plot is not None:
        from ripml.search.plots import plot_isometry

        plot_isometry(measured, quantile, f"{data.name or path}: {ensemble}, m = {dims}", plot)
    if as_json:
        print_json({"data": statistics(data), "isometry": report})
        return
    shown = {name.replace("_", " "): f"{value:,}" for name, value in statistics(data).items()}
    facts(f"{data.name or path}", shown)
    print()
    ratios = [f"{value:.3f}" for value in report["ratio_quantiles"].values()]
    title = f"‖Phi(u − v)‖²/‖u − v‖² over {report['pairs']:,} pairs of label rows: {ensemble}, m = {dims}"
    table(title, ["quantile", *(f"{100 * q:g} %" for q in _QUANTILES)], [["ratio", *ratios]])
    print(f"δ for {100 * quantile:g} % of the pairs: {report['delta']:.3f}")
    print(f"smallest m with δ ≤ {delta:g}: {report['smallest_dims']:,}")


def _inspect_model(folder: Path, as_json: bool) -> None:
    trained, store = opened(folder)
    summary = model_summary(trained)
    if store is None:
        print_json(summary) if as_json else facts(f"Model {folder}", readable(summary))
        return
    last = next(iter(store.history(1)), None)
    if as_json:
        print_json({"documents": len(store), **summary, "last_change": last, "warm": warm(trained)})
        return
    told = "none" if last is None else f"{last['number']:,}, {last['kind']}, {last['time']}"
    extra = {"last change": told, "since the fit": since_the_fit(warm(trained))}
    facts(f"Store {folder}", {"documents": f"{len(store):,}", **readable(summary), **extra})


def _isometry_report(
    data: Dataset, ensemble: str, dims: int, delta: float, quantile: float, seed: int
) -> tuple[dict[str, Any], Isometry]:
    family = resolve("ensemble", ensemble)
    names = encode_names(data.label_names)
    keys = Vocabulary.of(names).column_keys(family, dims)
    measured = measure_isometry(family, dims, data.Y, keys, seed=seed)
    report = {
        "ensemble": ensemble,
        "n_dims": dims,
        "pairs": len(measured.ratios),
        "ratio_quantiles": {f"{q:g}": float(np.quantile(measured.ratios, q)) for q in _QUANTILES},
        "quantile": quantile,
        "delta": measured.delta(quantile),
        "wanted_delta": delta,
        "smallest_dims": smallest_dims(family, delta, data.Y, keys, quantile, seed=seed),
    }
    return report, measured
