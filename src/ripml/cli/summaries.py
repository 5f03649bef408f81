"""Facts about models and data sets: as plain values for JSON, and as text for people."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import numpy as np

from ripml.base import registry
from ripml.cli.options import stage_word, use_option_names
from ripml.cli.output import count, print_facts, print_json, printable
from ripml.datasets import Dataset
from ripml.datasets.checks import Report
from ripml.model.estimator import RIPML
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules
from ripml.text import TfIdf

_KERNEL_FACTS = {"ridge": "nearby_ridge", "n_rows": "nearby_rows"}
TOO_FEW = "too few rows to measure"

_TITLES = {
    "gamma": "kernel width (γ)",
    "n_near": "near rows",
    "relevance": "power of relevance",
    "n_dims": "dimensions (m)",
    "n_learners": "learners (F)",
    "n_neighbors": "neighbours (k)",
    "n_similar": "similar rows",
    "similar_temperature": "their temperature",
    "epsilon": "least squares (ε)",
    "n_candidates": "candidates per row",
    "left_out": "on held-out rows",
    "calibration_errors": "by rows per label",
}


def model_summary(trained: DocumentModel) -> dict[str, Any]:
    """What a model is and what its training chose, as plain values."""
    model = trained.model
    is_words = trained.text is not None and trained.text.has(TfIdf)
    facts = {
        "method": type(model).__name__,
        "rows": model.n_rows_,
        "rows_without_labels": model.n_unlabelled_,
        "words" if is_words else "features": int(model.n_features_in_),
        "labels": len(model.classes_),
        "labels_without_rows": int((model.frequency_ == 0).sum()),
    }
    if isinstance(model, RIPML) and model.n_repeated_:
        facts["repeated_rows"] = model.n_repeated_
    if not facts["labels_without_rows"]:
        del facts["labels_without_rows"]
    if trained.concepts is not None:
        facts["concepts"] = len(trained.concepts)
        facts["labels_with_names"] = len(trained.names(map(str, model.classes_.tolist())))
    if trained.text is not None and (not is_words or trained.text.views):
        facts["text"] = " + ".join(type(part).__name__ for part in trained.text.parts)
    # Rules that differ from the defaults; for lists of labels, their lengths.
    defaults = Rules().to_json()
    rules = {name: value for name, value in trained.rules.to_json().items() if value != defaults.get(name)}
    if rules:
        facts["rules"] = {name: len(value) if isinstance(value, list) else value for name, value in rules.items()}
    left_out = {name: round(value, 4) for name, value in trained.left_out_precision.items()}
    if isinstance(model, RIPML):
        errors = {name: round(value, 6) for name, value in model.calibration_errors_.items()}
        measured = {"left_out": left_out, "calibration_error": round(model.calibration_error_, 6)}
        return {**facts, **chosen_settings(model), **measured, **({"calibration_errors": errors} if errors else {})}
    settings = {name: value for name, value in model.get_params().items() if name not in ("n_jobs", "random_state")}
    return {**facts, **settings, **model.chosen_, "threshold": model.threshold_, "left_out": left_out}


def chosen_settings(model: RIPML) -> dict[str, Any]:
    """The settings in use, given or tuned, as plain values, without those that the model's decoder does not read."""
    solution, tuned = model.solutions_[0], model.chosen_
    decoder = stage_word("decoder", registry.resolve("decoder", model.decoder))
    default_ensembles = {word: registry.resolve("ensemble", word) for word in registry.words("ensemble")}
    ensemble = next((word for word, stage in default_ensembles.items() if stage == model.ensemble_), None)
    facts = {
        "kernel": stage_word("kernel", model.kernel_),
        **{_KERNEL_FACTS.get(name, name): value for name, value in asdict(model.kernel_).items()},
        **({} if str(model.scaling_) == "rows" else {"scaled": str(model.scaling_)}),
        **({"views": [round(share, 3) for share in tuned["views"]]} if "views" in tuned else {}),
        "relevance": tuned["relevance"],
        "ridge": [float(ridge) for ridge in model.ridge_],
        "ensemble": ensemble or str(model.ensemble_),
        "n_dims": model.n_dims_,
        "n_learners": model.n_learners,
        "clusters": len(model.solutions_),
        "solver": solution["solver"],
        "solver_reason": solution["reason"],
        "converged": all(solution["converged"] for solution in model.solutions_),
        "decoder": decoder,
        "n_neighbors": tuned["n_neighbors"],
    }
    if decoder != "votes":
        if tuned["n_neighbors"]:
            facts["temperature"] = tuned["temperature"]
        facts["n_similar"] = tuned["n_similar"]
        if tuned["n_similar"]:
            facts["similar_temperature"] = tuned["similar_temperature"]
        if "similar_recall" in solution:
            facts["similar_recall"] = solution["similar_recall"]
        if tuned["epsilon"] is not None:
            facts["epsilon"] = tuned["epsilon"]
        facts["n_candidates"] = tuned["n_candidates"]
    if decoder == "blend":
        facts |= model.model_.decoder.facts()
    return {**facts, "threshold": float(model.threshold_)}


def format_short(summary: dict[str, Any]) -> dict[str, str]:
    """The most important part of a summary after training, for people."""
    names: tuple[str, ...] = ("rows", "labels", "labels_without_rows", "labels_with_names", "words", "features")
    facts = {name.replace("_", " "): f"{summary[name]:,}" for name in names if name in summary}
    if summary["rows_without_labels"]:
        facts["rows"] += f", and {summary['rows_without_labels']:,} without labels"
    if "repeated_rows" in summary:
        facts["rows"] += f"; {summary['repeated_rows']:,} repeat another one"
    facts["on held-out rows"] = format_left_out(summary)
    return facts | {"seconds": f"{summary['seconds']:g}"}


def format_summary(summary: dict[str, Any]) -> dict[str, str]:
    """A whole summary, for people."""
    shown = {name: _format(value) for name, value in summary.items()}
    if "left_out" in summary:
        shown["left_out"] = format_left_out(summary)
    return {_TITLES.get(name, name.replace("_", " ")): value for name, value in shown.items()}


def format_left_out(summary: dict[str, Any]) -> str:
    """The precision on held-out rows, if there are enough rows."""
    return _format(summary["left_out"]) if summary["left_out"] else TOO_FEW


def print_summary(title: str, summary: dict[str, Any], as_json: bool) -> None:
    """Print a whole summary, as JSON or for people."""
    print_json(summary) if as_json else print_facts(title, format_summary(summary))


def _format(value: Any) -> str:
    if isinstance(value, dict):
        items = {key: f"{100 * item:.1f} %" if "@" in key else f"{item:,}" for key, item in value.items()}
        return ", ".join(f"{key.replace('_', ' ')} {item}" for key, item in items.items())
    if isinstance(value, list):
        return ", ".join(f"{number:.3g}" for number in value[:8]) + (" …" if len(value) > 8 else "")
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if type(value) is int else str(value)


def describe_updates(updates: dict[str, Any]) -> str:
    """What a model learnt and forgot since its fit (`RIPML.warm_`), in one line.

    >>> describe_updates({"learnt": 3, "forgotten": 0, "relabelled": 1, "labels_added": 2, "decided": 4,
    ...                   "changed": 0.25, "drift": 1e-15, "refit_pays": False})
    '3 rows learnt, 0 forgotten, 1 relabelled (25.0 % of the fitted rows), 4 decided, 2 labels added, drift 1e-15'
    """
    rows = f"{count(updates['learnt'], 'row')} learnt, {updates['forgotten']:,} forgotten"
    share = f"{updates['relabelled']:,} relabelled ({100 * updates['changed']:.1f} % of the fitted rows)"
    advice = "; refit recommended" if updates["refit_pays"] else ""
    decided = f", {updates['decided']:,} decided" if updates["decided"] else ""
    labels = f"{count(updates['labels_added'], 'label')} added"
    return f"{rows}, {share}{decided}, {labels}, drift {updates['drift']:.1g}{advice}"


def print_check(report: Report, name: str, as_json: bool) -> None:
    """Print what `ripml.datasets.check` found, each finding with its remedy."""
    findings = [{**asdict(finding), "remedy": use_option_names(finding.remedy)} for finding in report.findings]
    if as_json:
        print_json({**report.to_json(), "findings": findings})
        return
    facts = f"{count(report.rows, 'row')}, {count(report.labels, 'label')}, {report.labels_per_row:g} per row"
    print(f"{printable(report.name or name)}: {facts}")
    for finding in findings:
        word = "wrong?" if finding["is_warning"] else "note"
        print(f"{word:<8}{printable(finding['message'])}: {'; '.join(map(printable, finding['examples']))}")
        print(f"{'':<8}{printable(finding['remedy'])}")
    if not report.warnings:
        print("nothing looks wrong")


def warn_about(report: Report) -> None:
    """Print the findings from which a model would suffer, one per line, on standard error."""
    for finding in report.warnings:
        line = f"{finding.message}, such as {finding.examples[0]!r}; {use_option_names(finding.remedy)}."
        print(f"ripml: warning: {printable(line)}", file=sys.stderr)


def dataset_statistics(data: Dataset) -> dict[str, Any]:
    """Sizes and means of a data set, as in the paper's table of data sets."""
    n = max(len(data), 1)
    facts = {"rows": len(data), "labels": data.Y.shape[1], "labels_per_row": round(data.Y.nnz / n, 2)}
    facts["rows_without_labels"] = int((np.diff(data.Y.indptr) == 0).sum())
    if data.X is not None:
        facts |= {"features": data.X.shape[1], "features_per_row": round(data.X.nnz / n, 2)}
    if data.texts is not None:
        facts["characters_per_text"] = round(sum(map(len, data.texts)) / n, 1)
    return facts
