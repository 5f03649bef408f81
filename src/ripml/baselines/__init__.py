"""The methods that the paper compares with or builds on, all with RIPML's interface.

Each file opens with what its method minimises. Regularisation that is "auto" is chosen for all of them by one rule, on
training rows held out (`ripml.baselines.base`).

>>> from ripml.baselines import PLST
>>> model = PLST(n_dims=1, random_state=0).fit([[1, 0], [0.9, 0.1], [0, 1]], [["tea"], ["tea"], ["ice"]])
>>> model.recommend([[1, 0.1]], n=1)[0][0][0]
'tea'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ripml.baselines.bayesian import BayesianCompressedSensing
    from ripml.baselines.compressed_sensing import CompressedSensing
    from ripml.baselines.cplst import CPLST
    from ripml.baselines.cssp import CSSP
    from ripml.baselines.feature_neighbors import FeatureNeighbors
    from ripml.baselines.leml import LEML
    from ripml.baselines.one_vs_all import OneVsAllLogistic, OneVsAllRidge
    from ripml.baselines.plst import PLST
    from ripml.baselines.popularity import Popularity
    from ripml.baselines.sleec import SLEEC

__all__ = [
    "BASELINES",
    "CPLST",
    "CSSP",
    "LEML",
    "PLST",
    "SLEEC",
    "BayesianCompressedSensing",
    "CompressedSensing",
    "FeatureNeighbors",
    "OneVsAllLogistic",
    "OneVsAllRidge",
    "Popularity",
]

# Where each is, and its word on the shell; loaded when first asked for.
BASELINES = {
    "LEML": ("leml", "leml"),
    "PLST": ("plst", "plst"),
    "CPLST": ("cplst", "cplst"),
    "CSSP": ("cssp", "cssp"),
    "CompressedSensing": ("compressed_sensing", "compressed-sensing"),
    "BayesianCompressedSensing": ("bayesian", "bayesian"),
    "SLEEC": ("sleec", "sleec"),
    "OneVsAllRidge": ("one_vs_all", "one-vs-all-ridge"),
    "OneVsAllLogistic": ("one_vs_all", "one-vs-all-logistic"),
    "FeatureNeighbors": ("feature_neighbors", "neighbors"),
    "Popularity": ("popularity", "popularity"),
}


def __getattr__(name: str) -> Any:
    if name in BASELINES:
        return getattr(import_module(f"ripml.baselines.{BASELINES[name][0]}"), name)
    raise AttributeError(f"module 'ripml.baselines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
