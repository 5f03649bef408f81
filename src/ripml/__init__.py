"""Suggest labels out of thousands to millions, on ordinary CPUs, after minutes of training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"
__all__ = ["RIPML", "RipmlError", "Store", "Tagger", "baselines", "datasets", "load", "metrics", "tune"]

if TYPE_CHECKING:
    from ripml import baselines, datasets, metrics
    from ripml.base.errors import RipmlError
    from ripml.model.estimator import RIPML
    from ripml.search.study import tune
    from ripml.store import Store
    from ripml.tagging.tagger import Tagger, load

# Imported when first used, so that `ripml --help` does not wait for NumPy and scikit-learn.
_HOMES = {
    "RIPML": "ripml.model.estimator",
    "RipmlError": "ripml.base.errors",
    "Store": "ripml.store",
    "Tagger": "ripml.tagging.tagger",
    "load": "ripml.tagging.tagger",
    "tune": "ripml.search.study",
}
_MODULES = {"baselines", "datasets", "metrics"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"ripml.{name}")
    raise AttributeError(f"module 'ripml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
