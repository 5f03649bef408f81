"""The search space of a study, and its objective: a metric on held-out training rows.

Ranges are searched on a logarithmic scale, except for relevance and tail:

    preset     default (kernel), linear, paper (equal votes of neighbours: the paper's algorithm)
    ridge      10⁻³ to 10²
    neighbors  k, 1 to 100
    gamma      the kernel's gamma, 0.05 to 8: default
    relevance  0 to 1: default, linear
    decoder    blend, least-squares, sketch, weighted: linear, and default up to 20,000 rows
    dims       m, 32 to 1,024: paper, and all presets above 4,096 labels, where Y is too wide to be its own embedding
    tail       0 to 1, only for the metric PSP@5: it can only lower the others
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ripml import metrics
from ripml.base.errors import DataError
from ripml.datasets import Dataset
from ripml.labels.encoding import encode_names
from ripml.model.estimator import RIPML
from ripml.regression.kernels import RBF, Local
from ripml.tagging.documents import text_features

__all__ = ["METRICS", "N_PARTS", "PRESETS", "Objective"]

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "micro-F1")
PRESETS: dict[str, Callable[..., RIPML]] = {"default": RIPML, "linear": RIPML.linear, "paper": RIPML.paper}
N_PARTS = 5
_MAX_HELD_OUT = 5_000  # rows of a part
_KERNEL_ROWS = 20_000  # above this, RIPML's kernel is "local"
_EXACT_LABELS = 4_096  # up to here, each label can have a separate dimension
_SPACE: dict[str, tuple[Any, Any]] = {
    "ridge": (1e-3, 1e2), "neighbors": (1, 100), "dims": (32, 1024), "gamma": (0.05, 8.0), "relevance": (0.0, 1.0),
    "tail": (0.0, 1.0),
}  # fmt: skip
_DECODERS = ("blend", "least-squares", "sketch", "weighted")


class Objective:
    """What a study maximises: the metric of a trial's settings, as the mean over the held-out parts of a data set."""

    def __init__(self, data: Dataset, metric: str, folds: int, random_state: int, n_jobs: int | None = None) -> None:
        self.metric, self.folds, self.random_state, self._n_jobs = metric, folds, random_state, n_jobs
        self._data = data
        self._folds: dict[int, tuple[Any, Any, Any, Any]] = {}
        labelled = np.flatnonzero(np.diff(data.Y.indptr))
        if len(labelled) < N_PARTS:
            raise DataError(f"{data.name or 'the data'}: at least {N_PARTS} rows with labels are needed to tune.")
        self._rows = np.random.default_rng(random_state).permutation(labelled)

    def propose(self, trial: Any) -> RIPML:
        """The model of an Optuna trial, with numbers of three digits, as a person would write them."""
        n_rows, n_labels = len(self._rows) * (N_PARTS - 1) // N_PARTS, self._data.Y.shape[1]

        def number(name: str, log: bool = True) -> float:
            return float(f"{trial.suggest_float(name, *_SPACE[name], log=log):.3g}")

        preset = trial.suggest_categorical("preset", list(PRESETS))
        settings: dict[str, Any] = {
            "random_state": self.random_state,
            "ridge": number("ridge"),
            "n_neighbors": min(trial.suggest_int("neighbors", *_SPACE["neighbors"], log=True), n_rows),
        }
        if preset == "paper" or n_labels > _EXACT_LABELS:
            settings["n_dims"] = trial.suggest_int("dims", *_SPACE["dims"], log=True)
        if preset == "default":
            gamma = number("gamma")
            settings["kernel"] = RBF(gamma) if len(self._rows) <= _KERNEL_ROWS else Local(gamma)
        if preset != "paper":
            settings["relevance"] = number("relevance", log=False)
            if preset == "linear" or len(self._rows) <= _KERNEL_ROWS:
                decoder = trial.suggest_categorical("decoder", list(_DECODERS))
                settings |= {} if decoder == "blend" else {"decoder": decoder}  # blend is the default of both presets
        if self.metric == "PSP@5":
            settings["tail"] = number("tail", log=False)
        return PRESETS[preset](**settings)

    def parameters_of(self, model: RIPML) -> dict[str, Any]:
        """The point of the search space that is nearest to the settings which a fitted default model chose."""
        chosen = {
            "ridge": float(np.exp(np.log(np.maximum(model.ridge_, 1e-3)).mean())),
            "neighbors": model.chosen_["n_neighbors"],
            "dims": model.n_dims_,
            "gamma": getattr(model.kernel_, "gamma", 1.0),
            "relevance": model.chosen_["relevance"],
            "tail": 0.0,
        }
        within = {name: min(max(value, _SPACE[name][0]), _SPACE[name][1]) for name, value in chosen.items()}
        return {**within, "preset": "default", "decoder": "blend"}

    def value(self, model: RIPML, fold: int) -> float:
        """The metric on one part of a model that is fitted on the others."""
        X, Y, X_held_out, truth = self._fold(fold)
        names = self._data.label_names
        model.set_params(n_jobs=self._n_jobs)
        model.fit(X, Y, label_names=None if encode_names(names).dtype != object else names)
        if self.metric == "micro-F1":
            return metrics.micro_f1(truth, model.predict(X_held_out))
        scores = model.decision_function(X_held_out)
        name, _, k = self.metric.partition("@")
        if name == "PSP":
            return metrics.psp_at_k(truth, scores, k=int(k), propensities=metrics.propensities(Y))
        measure = {"P": metrics.precision_at_k, "nDCG": metrics.ndcg_at_k}[name]
        return measure(truth, scores, k=int(k))

    def _fold(self, fold: int) -> tuple[Any, Any, Any, Any]:
        """Features and labels of the training rows, then of the held-out rows; kept for later trials."""
        if fold not in self._folds:
            data, parts = self._data, np.array_split(self._rows, N_PARTS)
            held_out = np.sort(parts[fold][:_MAX_HELD_OUT])
            training = np.sort(np.concatenate([part for i, part in enumerate(parts) if i != fold]))
            if data.X is not None:
                X, X_held_out = data.X[training], data.X[held_out]
            elif data.texts is not None:
                features = text_features("tfidf")  # fitted on the training rows alone
                X = features.learn([data.texts[i] for i in training])
                X_held_out = features.transform([data.texts[i] for i in held_out])
            else:
                raise DataError(f"{data.name} has neither features nor texts.")
            self._folds[fold] = (X, data.Y[training], X_held_out, data.Y[held_out])
        return self._folds[fold]
