"""What a study searches, and how it judges: settings of RIPML, on training rows left out.

The space; a range is searched by its logarithm, but for relevance and tail:

    preset     default (kernel), linear, paper (equal votes of neighbours: the paper's algorithm)
    ridge      10⁻³ to 10²
    neighbors  k, 1 to 100
    gamma      the width of the kernel, 0.05 to 8: default
    relevance  0 to 1: default, linear
    decoder    blend, least-squares, sketch, weighted: linear, and default up to 20,000 rows
    dims       m, 32 to 1,024: paper, and all above 4,096 labels, where each cannot have a dimension of its own
    tail       0 to 1, where PSP@5 counts; it can but lower the other metrics
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml import metrics
from ripml.base.errors import DataError
from ripml.datasets import Dataset
from ripml.labels.encoding import encode_names
from ripml.model.estimator import RIPML
from ripml.regression.kernels import RBF, Local
from ripml.tagging.documents import text_features

__all__ = ["METRICS", "PARTS", "PRESETS", "Judge"]

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "micro-F1")
PRESETS: dict[str, Callable[..., RIPML]] = {"default": RIPML, "linear": RIPML.linear, "paper": RIPML.paper}
PARTS = 5
_ASKED = 5_000  # rows of a part, at most
_KERNEL_ROWS = 20_000  # above this, RIPML's kernel is "local"
_EXACT_LABELS = 4_096  # up to here, each label can have its own dimension
_SPACE: dict[str, tuple[Any, Any]] = {
    "ridge": (1e-3, 1e2), "neighbors": (1, 100), "dims": (32, 1024), "gamma": (0.05, 8.0), "relevance": (0.0, 1.0),
    "tail": (0.0, 1.0),
}  # fmt: skip
_DECODERS = ("blend", "least-squares", "sketch", "weighted")


class Judge:
    """Settings are proposed for, and judged on, the parts of a data set."""

    def __init__(self, data: Dataset, metric: str, folds: int, random_state: int, n_jobs: int | None = None) -> None:
        self.metric, self.folds, self.random_state, self._n_jobs = metric, folds, random_state, n_jobs
        self._data = data
        self._folds: dict[int, tuple[Any, Any, Any, Any]] = {}
        labelled = np.flatnonzero(np.diff(data.Y.indptr))
        if len(labelled) < PARTS:
            raise DataError(f"{data.name or 'the data'}: {PARTS} rows with labels at least are needed to tune on.")
        self._rows = np.random.default_rng(random_state).permutation(labelled)

    @cached_property
    def _names(self) -> list[str] | None:
        return None if encode_names(self._data.label_names).dtype != object else self._data.label_names

    def proposed(self, trial: Any) -> RIPML:
        """The model of a trial: what a person would write, so numbers have three digits."""
        n_rows, n_labels = len(self._rows) * (PARTS - 1) // PARTS, self._data.Y.shape[1]

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
                settings |= {} if decoder == "blend" else {"decoder": decoder}  # the preset's own
        if self.metric == "PSP@5":
            settings["tail"] = number("tail", log=False)
        return PRESETS[preset](**settings)

    def came_to(self, model: RIPML) -> dict[str, Any]:
        """The parameters of a trial that are nearest to what a default model chose."""
        found = {
            "ridge": float(np.exp(np.log(np.maximum(model.ridge_, 1e-3)).mean())),
            "neighbors": model.chosen_["n_neighbors"],
            "dims": model.n_dims_,
            "gamma": getattr(model.kernel_, "gamma", 1.0),
            "relevance": model.chosen_["relevance"],
            "tail": 0.0,
        }
        within = {name: min(max(value, _SPACE[name][0]), _SPACE[name][1]) for name, value in found.items()}
        return {**within, "preset": "default", "decoder": "blend"}

    def value(self, model: RIPML, fold: int) -> float:
        """The metric of a model of all parts but this one, on this one."""
        X, Y, asked, truth = self._fold(fold)
        model.set_params(n_jobs=self._n_jobs)
        model.fit(X, Y, label_names=self._names)
        if self.metric == "micro-F1":
            return metrics.micro_f1(truth, model.predict(asked))
        scores = model.decision_function(asked)
        name, _, k = self.metric.partition("@")
        if name == "PSP":
            return metrics.psp_at_k(truth, scores, k=int(k), propensities=metrics.propensities(Y))
        measure = {"P": metrics.precision_at_k, "nDCG": metrics.ndcg_at_k}[name]
        return measure(truth, scores, k=int(k))

    def _fold(self, fold: int) -> tuple[Any, Any, Any, Any]:
        """Features and labels of the rows learnt from and of those left out."""
        if fold not in self._folds:
            parts = np.array_split(self._rows, PARTS)
            asked = np.sort(parts[fold][:_ASKED])
            learnt = np.sort(np.concatenate([part for i, part in enumerate(parts) if i != fold]))
            self._folds[fold] = (*self._features(learnt, asked), self._data.Y[asked])
        return self._folds[fold]

    def _features(self, learnt: NDArray[np.int64], asked: NDArray[np.int64]) -> tuple[Any, Any, Any]:
        data = self._data
        if data.X is not None:
            return data.X[learnt], data.Y[learnt], data.X[asked]
        if data.texts is None:
            raise DataError(f"{data.name} has neither features nor texts.")
        words = text_features()
        X = words.fit_transform([data.texts[i] for i in learnt])
        return X, data.Y[learnt], words.transform([data.texts[i] for i in asked])
