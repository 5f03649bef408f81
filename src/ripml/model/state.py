"""A fitted RIPML ⇄ JSON values and plain arrays: what is in a model folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.registry import resolve
from ripml.decoding.blend import Trees
from ripml.decoding.decoders import Votes, resolve_decoder
from ripml.labels.ensembles import Identity
from ripml.labels.projection import Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.model.online import no_changes
from ripml.model.part import SEARCHED
from ripml.model.part_arrays import parts_from_arrays, parts_to_arrays
from ripml.model.reading import decode_of
from ripml.model.settings import setting_from_json, setting_to_json
from ripml.regression.kernels import Linear, Local

__all__ = ["restore", "to_state"]

_SAVED_VALUES = (
    "seed",
    "threshold",
    "n_rows",
    "n_unlabelled",
    "left_out_precision",
    "calibration_error",
    "solutions",
    "chosen",
    "n_dims",
    "n_seen",
    "changes",
)


def to_state(model: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """All that a model learnt, as JSON values and arrays."""
    settings = {name: setting_to_json(name, value) for name, value in model.get_params(deep=False).items()}
    parameters = {
        "settings": settings,
        **{name: getattr(model, f"{name}_") for name in _SAVED_VALUES},
        "kernel": setting_to_json("kernel", model.kernel_),
        "ensemble": setting_to_json("ensemble", model.ensemble_),
        "n_features": int(model.n_features_in_),
        "feature_names": [str(name) for name in getattr(model, "feature_names_in_", [])],
    }
    arrays = {
        **parts_to_arrays(model.settled_parts()),
        **model.labels_.arrays(),
        "centres": model.centres_,
        "frequency": model.frequency_,
        "calibration": np.stack(model.steps_),
    }
    if model.weights_ is not None:
        arrays["weights"] = model.weights_
    return parameters, arrays | (model.trees_.to_arrays() if model.trees_ is not None else {})


def restore(model: Any, parameters: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Give a new model what was learnt. What contradicts itself raises one of Python's own errors."""
    model.labels_ = Vocabulary.from_arrays(arrays)
    model.classes_, model._writers = model.labels_.names, {}
    n_rows = parameters["n_rows"]
    of_older_models = {"n_seen": n_rows, "changes": no_changes(n_rows, len(model.labels_))}
    for name in _SAVED_VALUES:
        setattr(model, f"{name}_", {**of_older_models, **parameters}[name])
    model.kernel_ = setting_from_json(parameters["kernel"])
    model.ensemble_ = setting_from_json(parameters["ensemble"])
    model.ridge_ = np.array([solution["ridge"] for solution in model.solutions_], np.float64)
    model.n_features_in_ = parameters["n_features"]
    if parameters["feature_names"]:
        model.feature_names_in_ = np.array(parameters["feature_names"], object)
    model.centres_, model.weights_ = arrays["centres"], arrays.get("weights")
    model.frequency_ = arrays["frequency"].astype(np.int64, casting="safe")
    model.steps_ = tuple(arrays["calibration"])
    n_signals = (
        6 + (model.chosen_["n_neighbors"] > 0) + (model.chosen_["n_similar"] > 0) + isinstance(model.kernel_, Local)
    )
    model.trees_ = Trees.from_arrays(arrays, n_signals) if "tree_feature" in arrays else None
    model.parts_ = parts_from_arrays(
        arrays,
        len(model.classes_),
        model.n_features_in_,
        resolve("index", model.index),
        model.n_learners,
        model.kernel_,
    )
    projection = Projection(model.ensemble_, model.n_dims_, model.n_learners, model.seed_)
    model.decode_ = decode_of(
        model.chosen_, projection, model.labels_, model.frequency_, model.changes_["labels_at_fit"]
    )
    _check_choices(model.chosen_, arrays["calibration"])
    _check(model, parameters["feature_names"])
    plain = isinstance(resolve_decoder(model.decoder), Votes)
    for part in model.parts_:
        if part.index_arrays:  # what does not fit is found now, and not by the first who asks
            _ = part.searchers if plain else part.searcher


def _check_choices(chosen: Any, calibration: NDArray[Any]) -> None:
    """Raise ValueError where numbers are out of their range."""
    epsilon = chosen["epsilon"]
    temperatures = [chosen["temperature"], chosen["similar_temperature"], *([] if epsilon is None else [epsilon])]
    x, y = calibration if calibration.ndim == 2 and len(calibration) == 2 else (np.zeros(0), np.zeros(0))
    consistent = (
        all(type(chosen[name]) is int and chosen[name] >= 0 for name in ("n_neighbors", "n_similar", "n_candidates"))
        and all(type(value) is float and 0 < value < np.inf for value in temperatures)
        and calibration.dtype.kind == "f"
        and len(x) > 0
        and (np.diff(x) >= 0).all()
        and (np.diff(y) >= 0).all()
        and 0 <= y[0] <= y[-1] <= 1
    )
    if not consistent:
        raise ValueError("what was chosen is out of its range")


def _check(model: Any, feature_names: list[Any]) -> None:
    """Raise ValueError where what was loaded contradicts itself."""
    d, L = model.n_features_in_, len(model.classes_)
    numbers_of = (model.seed_, model.n_rows_, model.n_unlabelled_, model.n_seen_, d, model.n_dims_)
    floats = (model.threshold_, model.calibration_error_, *model.left_out_precision_.values())
    part, how = model.parts_[0], model.decode_
    plain = isinstance(resolve_decoder(model.decoder), Votes)
    exact = how.exact and not plain
    n_targets = part.Psi.shape[1] if exact else model.n_learners * model.n_dims_
    widest = n_targets if plain or how.searched is None else SEARCHED
    consistent = (
        all(type(number) is int and number >= 0 for number in numbers_of)
        and all(type(value) is float for value in floats)
        and type(feature_names) is list
        and len(feature_names) in (0, d)
        and all(type(name) is str for name in feature_names)
        and type(model.changes_) is dict
        and model.changes_.keys() == no_changes(0, 0).keys()
        and all(type(count) is int and count >= 0 for count in model.changes_.values())
        and model.centres_.dtype.kind == "f"
        and model.centres_.shape == (len(model.solutions_), d)
        and part.Psi.shape[1] == n_targets
        and (not exact or n_targets <= min(L, model.n_dims_))
        and (model.n_dims in ("auto", model.n_dims_) or isinstance(model.ensemble_, Identity))
        and (not isinstance(part.kernel, Linear) or len(part.Psi) == d)
        and (exact or int(model.labels_.slots.max(initial=0)) < (model.ensemble_.capacity(model.n_dims_) or np.inf))
        and len(model.parts_) == len(model.centres_)
        and len(part.Z) == (model.n_learners if plain else 1)
        and part.Z.shape[2] == (model.n_dims_ if plain else min(widest, SEARCHED) if how.n_neighbors else 0)
        and (model.weights_ is None or (model.weights_.shape == (d,) and model.weights_.dtype.kind == "f"))
        and model.frequency_.shape == (L,)
        and how.n_neighbors >= (not how.exact and not how.dense)
        and how.n_candidates > 0
        and (part.rows is not None or not (how.n_similar or isinstance(part.kernel, Local)))
        and sum(part.counts.sum(dtype=np.float64) for part in model.parts_) == model.n_rows_
    )
    if not consistent:
        raise ValueError("types, shapes or sums disagree")
