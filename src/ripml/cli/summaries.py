"""Models and data sets in plain values, and in words for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ripml.base import registry
from ripml.base.registry import resolve
from ripml.datasets import Dataset
from ripml.decoding.decoders import Blend, Votes
from ripml.model.estimator import RIPML
from ripml.regression.kernels import RBF, Local
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Rules
from ripml.text import TfIdf

__all__ = ["chosen", "in_short", "megabytes", "model_summary", "readable", "statistics"]

_ROWS_TO_JUDGE = 100  # what is expected of a model of fewer rows is mostly chance


def model_summary(trained: DocumentModel) -> dict[str, Any]:
    """What a model is and what its training chose, as plain values."""
    model = trained.model
    facts = {
        "method": type(model).__name__,
        "rows": model.n_rows_,
        "rows_without_labels": model.n_unlabelled_,
        "words" if isinstance(trained.text, TfIdf) else "features": int(model.n_features_in_),
        "labels": len(model.classes_),
    }
    if trained.text is not None and not isinstance(trained.text, TfIdf):
        facts["text"] = type(trained.text).__name__
    if rules := _rules(trained.rules):
        facts["rules"] = rules
    left_out = {name: round(value, 4) for name, value in model.left_out_precision_.items()}
    if isinstance(model, RIPML):
        return {**facts, **chosen(model), "left_out": left_out, "calibration_error": round(model.calibration_error_, 6)}
    settings = {name: value for name, value in model.get_params().items() if name not in ("n_jobs", "random_state")}
    return {**facts, **settings, **model.chosen_, "threshold": model.threshold_, "left_out": left_out}


def _rules(rules: Rules) -> dict[str, Any]:
    """The rules for suggestions that are not the usual ones; of lists, how long they are."""
    usual = Rules().to_json()
    given = {name: value for name, value in rules.to_json().items() if value != usual[name]}
    return {name: len(value) if isinstance(value, list) else value for name, value in given.items()}


def chosen(model: RIPML) -> dict[str, Any]:
    """The settings in use, given or chosen, as plain values; what the model's decoder does not read is left out."""
    first = model.solutions_[0]
    decoder = registry.resolve("decoder", model.decoder)
    words = ("gaussian", "bernoulli", "sparse", "structured", "deterministic", "identity")
    facts: dict[str, Any] = {"kernel": model.kernel_.word}
    if isinstance(model.kernel_, (RBF, Local)):
        facts["gamma"] = model.kernel_.gamma
    if isinstance(model.kernel_, Local):
        facts |= {"nearby_ridge": model.kernel_.ridge, "nearby_rows": model.kernel_.n_rows}
    facts |= {
        "relevance": model.chosen_["relevance"],
        "ridge": [float(ridge) for ridge in model.ridge_],
        "ensemble": next(
            (word for word in words if resolve("ensemble", word) == model.ensemble_), str(model.ensemble_)
        ),
        "n_dims": model.n_dims_,
        "n_learners": model.n_learners,
        "clusters": len(model.clusters_),
        "solver": first["solver"],
        "solver_reason": first["reason"],
        "converged": all(solution["converged"] for solution in model.solutions_),
        "decoder": decoder.word,
        "n_neighbors": model.chosen_["n_neighbors"],
    }
    if not isinstance(decoder, Votes):
        if facts["n_neighbors"]:
            facts["temperature"] = model.chosen_["temperature"]
        facts["n_similar"] = model.chosen_["n_similar"]
        if facts["n_similar"]:
            facts["similar_temperature"] = model.chosen_["similar_temperature"]
        if model.chosen_["epsilon"] is not None:
            facts["epsilon"] = model.chosen_["epsilon"]
        facts["n_candidates"] = model.chosen_["n_candidates"]
    if isinstance(decoder, Blend):
        facts["trees"] = 0 if model.trees_ is None else len(model.trees_.value)
    return {**facts, "threshold": float(model.threshold_)}


def in_short(summary: dict[str, Any]) -> dict[str, str]:
    """The part of a summary that people want to know first."""
    names = ("rows", "labels", "words", "features")
    found = {name: f"{summary[name]:,}" for name in names if name in summary}
    if summary["rows_without_labels"]:
        found["rows"] += f", and {summary['rows_without_labels']:,} without labels"
    judged = summary["rows"] >= _ROWS_TO_JUDGE and summary["left_out"]
    found["on rows left out"] = _in_words(summary["left_out"]) if judged else "too few rows to judge"
    return found | {"seconds": f"{summary['seconds']:g}"}


def readable(summary: dict[str, Any]) -> dict[str, str]:
    """A summary for people."""
    titles = {
        "gamma": "kernel's width (γ)",
        "relevance": "power of relevance",
        "n_dims": "dimensions (m)",
        "n_learners": "learners (F)",
        "n_neighbors": "neighbours (k)",
        "n_similar": "similar rows",
        "similar_temperature": "their temperature",
        "epsilon": "least squares (ε)",
        "n_candidates": "candidates a row",
        "left_out": "on rows left out",
    }
    return {titles.get(name, name.replace("_", " ")): _in_words(value) for name, value in summary.items()}


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        shares = {key: f"{100 * item:.1f} %" if "@" in key else f"{item:,}" for key, item in value.items()}
        return ", ".join(f"{key.replace('_', ' ')} {item}" for key, item in shares.items())
    if isinstance(value, list):
        return ", ".join(f"{number:.3g}" for number in value[:8]) + (" …" if len(value) > 8 else "")
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if type(value) is int else str(value)


def megabytes(folder: Path) -> float:
    """The size of a folder's files."""
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 2)


def statistics(data: Dataset) -> dict[str, Any]:
    """Sizes and means of a data set, as in the paper's table."""
    n = max(len(data), 1)
    facts = {"rows": len(data), "labels": data.Y.shape[1], "labels_per_row": round(data.Y.nnz / n, 2)}
    facts["rows_without_labels"] = int((np.diff(data.Y.indptr) == 0).sum())
    if data.X is not None:
        facts |= {"features": data.X.shape[1], "features_per_row": round(data.X.nnz / n, 2)}
    if data.texts is not None:
        facts["characters_per_text"] = round(sum(map(len, data.texts)) / n, 1)
    return facts
