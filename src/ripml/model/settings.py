"""Settings of an estimator ⇄ JSON: words and numbers as they are, stages by name with their options."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from ripml.base.errors import ParameterError
from ripml.decoding.decoders import Blend, LeastSquares, Sketch, Votes, WeightedVotes
from ripml.labels.ensembles import Bernoulli, Gaussian, Identity, PolynomialPhase, SparseSign, Structured
from ripml.neighbors import HNSW, IVF, LSH, Auto, Exact
from ripml.regression import ConjugateGradient, Dual, GradientDescent, Primal
from ripml.regression.kernels import RBF, Linear, Local

__all__ = ["setting_from_json", "setting_to_json"]

_STAGES: dict[str, type[Any]] = {
    stage.__name__: stage
    for stages in (
        (Gaussian, Bernoulli, SparseSign, Structured, PolynomialPhase, Identity),
        (Linear, RBF, Local),
        (Votes, WeightedVotes, Sketch, LeastSquares, Blend),
        (Primal, Dual, ConjugateGradient, GradientDescent),
        (Exact, LSH, HNSW, IVF, Auto),
    )
    for stage in stages
}


def setting_to_json(name: str, value: Any) -> Any:
    """A constructor setting as a JSON value; a stage with its options is an object with its name."""
    if type(value) in _STAGES.values():
        options = {option: _plain(given) for option, given in asdict(value).items()}
        return {"stage": type(value).__name__, **options}
    value = _plain(value)
    if name == "random_state" and not isinstance(value, int):
        return None  # a generator is not a setting that can be kept; the seed it gave is saved
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ParameterError(f"a model with {name}={value!r} cannot be saved; only ripml's own stages can.")
    return value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def setting_from_json(value: Any) -> Any:
    """The inverse of `setting_to_json`; only the stages listed here can come back."""
    if isinstance(value, dict):
        options = {name: option for name, option in value.items() if name != "stage"}
        return _STAGES[value["stage"]](**options)
    return value
