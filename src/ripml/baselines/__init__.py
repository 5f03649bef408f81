"""The methods that the paper compares with or builds on, all with RIPML's interface.

Each file begins with the objective that its method minimises. All methods choose a regularisation of "auto" by the same
rule, on held-out training rows (`ripml.baselines.base`).

>>> from ripml.baselines import PLST
>>> model = PLST(n_dims=1, random_state=0).fit([[1, 0], [0.9, 0.1], [0, 1]], [["tea"], ["tea"], ["ice"]])
>>> model.recommend([[1, 0.1]], n=1)[0][0][0]
'tea'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ripml.base import registry

if TYPE_CHECKING:
    from ripml.baselines.bayesian import BayesianCompressedSensing
    from ripml.baselines.compressed_sensing import CompressedSensing
    from ripml.baselines.feature_neighbors import FeatureNeighbors
    from ripml.baselines.label_space import CPLST, CSSP, PLST
    from ripml.baselines.leml import LEML
    from ripml.baselines.one_vs_all import OneVsAllLogistic, OneVsAllRidge
    from ripml.baselines.popularity import Popularity
    from ripml.baselines.sleec import SLEEC

__all__ = [
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


def __getattr__(name: str) -> Any:
    # A baseline is imported when it is first used, and found in the registry, so that registered ones are here too.
    for word, class_name in zip(registry.words("estimator"), registry.class_names("estimator"), strict=True):
        if name == class_name != "RIPML":
            return registry.named("estimator", word)
    raise AttributeError(f"module 'ripml.baselines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
