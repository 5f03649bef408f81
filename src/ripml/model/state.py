"""A model ⇄ JSON values and plain arrays: what a model folder holds (format 1, see docs/model-folder.md).

The arrays of all clusters lie end to end. `_SPECS` says what each of them must be; loading checks them against it
before anything is made of them, as a folder may come from a stranger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base import registry
from ripml.base.arrays import (
    ArraySpec,
    LazyArray,
    as_half,
    check_arrays,
    csr_from,
    csr_of,
    from_bytes,
    narrowed,
    packed_indices,
    unpacked_indices,
)
from ripml.base.workspace import row_slice
from ripml.decoding.calibration import Calibration
from ripml.decoding.decoders import DecoderParts
from ripml.decoding.embedding import LabelEmbedding
from ripml.decoding.evidence import TEXT_SIGNALS, Evidence
from ripml.decoding.fitted import Choices
from ripml.decoding.guarantees import GUARANTEE_SPECS, Guarantees
from ripml.decoding.label_set_index import LabelSetIndex, wide
from ripml.decoding.training_rows import TrainingRows
from ripml.labels.projection import Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.model.cluster import Cluster
from ripml.model.decisions import Decisions
from ripml.model.features import Scaling
from ripml.model.fitting import Settings
from ripml.model.model import Model, no_changes
from ripml.regression.far_field import FarField
from ripml.regression.kernels import Kernel, Rows
from ripml.regression.regression import KernelRegression, LinearRegression, Regression
from ripml.regression.sums import PackedSums

__all__ = ["from_state", "to_state"]

Arrays = Mapping[str, NDArray[Any]]
Ints = NDArray[np.int64]

# C clusters, d features, L labels, M targets, F searches, e label sets, m dimensions, n stored rows, k rows kept only
# to go on learning, s clusters with sums over D = d or d + 1 features.
_SPECS = {
    # Psi is (C, d, M), or (n, M) with a kernel; its `units`, in 8 bits, are (C, d). Z is (F, e, m) in the type in which
    # the index stores it. f clusters have a far field. Psi in float16 has one `unit` a cluster.
    "unit": ArraySpec("float64", ("C",), above=0, finite=True, optional=True),
    "far_clusters": ArraySpec("iu", ("f",), least=0, distinct=True, optional=True),
    "far_sums": ArraySpec("float32", ("f", 2, "M"), finite=True, optional=True),
    "far_slope": ArraySpec("float16", ("f", "d", "M"), optional=True),
    "far_unit": ArraySpec("float64", ("f",), above=0, finite=True, optional=True),
    "intercept": ArraySpec("f", ("C", "M")),
    "counts": ArraySpec("iu", ("e",), least=1),
    "part_ends": ArraySpec("iu", ("C",), least=0, most="e", rising=True),
    "scale": ArraySpec("float64", (1,), above=0, finite=True, optional=True),
    "centres": ArraySpec("f", ("C", "d")),
    "weights": ArraySpec("f", ("d",), optional=True),
    "feature_centre": ArraySpec("f", ("d",), finite=True, optional=True),
    "feature_scale": ArraySpec("f", ("d",), least=0, finite=True, optional=True),
    "frequency": ArraySpec("iu", ("L",), least=0),
    "calibration": ArraySpec("f", (2, "steps"), rising=True),
    **GUARANTEE_SPECS,
    "name_hits": ArraySpec("iu", ("L",), least=0, optional=True),
    "name_right": ArraySpec("iu", ("L",), least=0, optional=True),
    "name_signals": ArraySpec("iu", (1,), least=0, optional=True),
    "set_of_row": ArraySpec("iu", ("n",), least=0, optional=True),
    "row_ends": ArraySpec("iu", ("C",), least=0, most="n", rising=True, optional=True),
    "row_numbers": ArraySpec("iu", ("n",), distinct=True, optional=True),
    "rows": ArraySpec("float32", ("n", "d"), optional=True),
    "rows_data": ArraySpec("float32", (None,), optional=True),
    "summed": ArraySpec("iu", ("s", 2), least=0, optional=True),
    "gram": ArraySpec("float64", ("s", None), optional=True),
    "moment": ArraySpec("float64", ("s", "D", "M"), optional=True),
    "added_up": ArraySpec("float64", ("s", "D"), least=0, optional=True),
    "row_signatures": ArraySpec("float32", (None, 2), finite=True, optional=True),
    "kept_parts": ArraySpec("iu", (None, 2), least=0, optional=True),
    "kept_set_of_row": ArraySpec("iu", ("k",), least=0, optional=True),
    "kept": ArraySpec("f", ("k", "d"), optional=True),
    "kept_data": ArraySpec("f", (None,), optional=True),
    # p rows with decisions on labels; their terms are (·, p_c) of each cluster, one after the other.
    "decided_cluster": ArraySpec("iu", ("p",), least=0, below="C", optional=True),
    "decided_ends": ArraySpec("iu", (None,), least=0, rising=True, optional=True),
    "decided_labels": ArraySpec("iu", ("pairs",), least=0, below="L", optional=True),
    "decided_accepted": ArraySpec("bool", ("pairs",), optional=True),
    "decided_scores": ArraySpec("float64", ("pairs",), finite=True, optional=True),
    "decided_weights": ArraySpec("float64", ("pairs",), finite=True, optional=True),
    "decided_terms": ArraySpec("float32", (None,), finite=True, optional=True),
    "decided_rows": ArraySpec("f", ("p", "d"), finite=True, optional=True),
    "decided_rows_data": ArraySpec("f", (None,), finite=True, optional=True),
    "decided_names_ends": ArraySpec("iu", (None,), least=0, rising=True, optional=True),
    "decided_names_labels": ArraySpec("iu", ("names",), least=0, below="L", optional=True),
    "decided_names_signals": ArraySpec("float32", ("names", len(TEXT_SIGNALS)), finite=True, optional=True),
}

_TOGETHER = (
    ("summed", "gram", "moment"),
    ("kept_parts", "kept_set_of_row"),
    ("set_of_row", "row_ends"),
    ("far_clusters", "far_sums", "far_unit"),
    ("name_hits", "name_right", "name_signals"),
    ("feature_centre", "feature_scale"),
    ("decided_cluster", "decided_ends", "decided_labels", "decided_accepted", "decided_scores", "decided_weights",
     "decided_terms"),
    ("decided_names_ends", "decided_names_labels", "decided_names_signals"),
    tuple(name for name in GUARANTEE_SPECS if name != "guarantee_beyond"),  # early folders have none of it
)  # fmt: skip

# Whole numbers, which are stored in as few bytes as hold them.
_WHOLE = {name for name, spec in _SPECS.items() if spec.dtype == "iu"} | {
    f"{name}_{part}" for name in ("sets", "rows", "kept", "decided_rows") for part in ("indices", "indptr")
}

_ONE = np.ones(1)
_READ_BY_EVERY_ANSWER = frozenset(
    (
        "weights",
        "feature_centre",
        "feature_scale",
        "frequency",
        "intercept",
        "far_sums",
        "tree_feature",
        "tree_threshold",
        "tree_value",
    )
)
_REMADE_BYTES = 1 << 28  # arrays in float32 up to which they are made again and not stored


# -------------------------------------------------------------------------------------------------------------- writing


def to_state(model: Model, n_jobs: int | None, compact: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """All that a model learnt, as JSON values and arrays; `compact`, only what answers need."""
    model = model.answering() if compact else model.settled(n_jobs)
    projection, calibration = model.decoder.embedding.projection, model.calibration
    scaling, of_features = model.scaling.to_state()
    values = {
        "seed": model.seed,
        "threshold": calibration.threshold,
        "n_rows": model.n_rows,
        "n_unlabelled": model.n_unlabelled,
        "n_repeated": model.n_repeated,
        "left_out_precision": calibration.precision,
        "calibration_error": calibration.error,
        "calibration_errors": calibration.errors,
        "solutions": list(model.solutions),
        "chosen": {"relevance": model.relevance, **asdict(model.decoder.choices)},
        "n_dims": projection.n_dims,
        "n_seen": model.n_seen,
        "changes": model.changes,
        "kernel": registry.to_json("kernel", model.kernel),
        "ensemble": registry.to_json("ensemble", projection.ensemble),
        "n_features": model.n_features,
        "scaling": scaling,
    }
    if model.compact:
        values["compact"] = True
    arrays = {
        **_clusters_to_arrays(model.clusters, model.decoder.embedding, model.compact),
        **model.vocabulary.arrays(),
        "centres": model.centres,
        "frequency": model.frequency,
        "calibration": np.stack(calibration.steps),
        **({} if calibration.guarantees is None else calibration.guarantees.to_arrays()),
        **model.decoder.arrays(),
        **of_features,
        **({} if model.decisions is None else model.decisions.arrays()),
    }
    return values, {name: narrowed(array) if name in _WHOLE else array for name, array in arrays.items()}


def _clusters_to_arrays(
    clusters: Sequence[Cluster], embedding: LabelEmbedding, compact: bool
) -> dict[str, NDArray[Any]]:
    regressions, indexes = [cluster.regression for cluster in clusters], [cluster.index for cluster in clusters]
    arrays = {
        **_coefficients_to_arrays(regressions, compact),
        **_embeddings_to_arrays(indexes, embedding),
        **({"scale": np.array([indexes[0].scale])} if indexes[0].scale != 1 else {}),
        "counts": _end_to_end([index.counts for index in indexes]),
        "part_ends": np.cumsum([index.n_sets for index in indexes], dtype=np.int64),
        "sets_indices": _end_to_end([index.sets.indices for index in indexes]),
        "sets_indptr": np.concatenate(
            [[0], np.cumsum(np.concatenate([np.diff(index.sets.indptr) for index in indexes]))]
        ),
    }
    for c, index in enumerate(indexes):
        for f, searcher in enumerate(index.searchers.made()):
            arrays |= {f"index_{c}_{f}_{name}": array for name, array in searcher.arrays().items()}
    arrays |= _sums_to_arrays(regressions)
    stored = [cluster.searched_rows for cluster in clusters]
    if stored[0] is not None:
        rows = [some for some in stored if some is not None]
        arrays["row_numbers"] = np.concatenate([some.numbers for some in rows])
        arrays["set_of_row"] = np.concatenate([some.set_of_row for some in rows])
        arrays["row_ends"] = np.cumsum([len(some) for some in rows], dtype=np.int64)
        return arrays | _features_to_arrays("rows", rows)
    kept = [(c, cluster.rows) for c, cluster in enumerate(clusters) if cluster.rows is not None]
    if kept:
        arrays["kept_parts"] = np.array([(c, len(some)) for c, some in kept], np.int64)
        arrays["kept_set_of_row"] = np.concatenate([some.set_of_row for _, some in kept])
        arrays |= _features_to_arrays("kept", [some for _, some in kept])
    return arrays


def _embeddings_to_arrays(indexes: Sequence[LabelSetIndex], embedding: LabelEmbedding) -> dict[str, NDArray[Any]]:
    """The embeddings of the label sets, unless they are few and follow from the sets to the last bit."""
    if _is_remade(embedding, indexes[0].index.storage, sum(len(index.counts) for index in indexes)) and all(
        np.array_equal(one, other)
        for index in indexes
        for one, other in zip(index.searched(index.Z, "float32"), _remade(embedding, index.sets), strict=False)
    ):
        return {}
    return {"Z": _end_to_end([index.Z for index in indexes], axis=1)}


def _is_remade(embedding: LabelEmbedding, storage: str, n_sets: int) -> bool:
    """Whether the embeddings of label sets are few enough to make them again, and stored as they are made."""
    n_searches, width = embedding.search_shape
    return storage == "float32" and 4 * n_searches * n_sets * width <= _REMADE_BYTES


def _remade(embedding: LabelEmbedding, sets: Any) -> NDArray[Any]:
    """The embeddings (F, u, m) of label sets as they are searched."""
    Z = embedding.searched(wide(sets, len(embedding.keys)))
    return np.stack(embedding.index_type.searched(Z, "float32") or [*Z])


def _coefficients_to_arrays(regressions: Sequence[Regression], compact: bool) -> dict[str, NDArray[Any]]:
    """Psi (C, d, M) of linear regressions, or the coefficients (n, M) of all rows end to end.

    The slopes of far fields are left out where they are few and follow from the rows and the coefficients; those of
    `compact` models, which were changed since the fit, nearly so.
    """
    arrays = [regression.arrays() for regression in regressions]
    linear = regressions[0].kernel.linear
    found = {
        "Psi": (np.stack if linear else np.concatenate)([some["Psi"] for some in arrays]),
        "intercept": np.stack([some["intercept"] for some in arrays]),
    }
    if all("unit" in some for some in arrays):
        found["unit"] = np.concatenate([some["unit"] for some in arrays])
    elif any("unit" in some for some in arrays):  # some clusters have a far field: all coefficients in float32
        found["Psi"] = np.concatenate([some["Psi"] * some.get("unit", _ONE).astype(np.float32) for some in arrays])
    elif all("units" in some for some in arrays):
        found["units"] = np.stack([some["units"] for some in arrays])
    elif any("units" in some for some in arrays):  # some clusters were widened since: all coefficients in float32
        lines = [from_bytes(some["Psi"], some["units"]) if "units" in some else some["Psi"] for some in arrays]
        found["Psi"] = np.stack(lines)
    far = [c for c, some in enumerate(arrays) if "far_sums" in some]
    if far:
        found["far_clusters"] = np.array(far, np.int64)
        found["far_sums"] = np.stack([arrays[c]["far_sums"] for c in far])
        found["far_unit"] = np.concatenate([arrays[c]["far_unit"] for c in far])
        fields = [one.far for one in regressions if one.far is not None]
        size = 4 * sum(field.slopes.shape[0] * field.slopes.shape[1] for field in fields)
        if size > _REMADE_BYTES or not (compact or all(field.follows for field in fields)):
            found["far_slope"] = np.stack([field.slope for field in fields])
    return found


def _sums_to_arrays(regressions: Sequence[Regression]) -> dict[str, NDArray[Any]]:
    """The sums of clusters that go on learning from them; of XᵀX the lower triangle."""
    packed = [(c, regression.packed_sums()) for c, regression in enumerate(regressions)]
    sums = {c: some for c, some in packed if some is not None}
    if not sums:
        return {}
    arrays = {
        "summed": np.array([(c, some.n_rows) for c, some in sums.items()], np.int64),
        "gram": np.stack([some.triangle for some in sums.values()]),
        "moment": np.stack([some.moment for some in sums.values()]),
    }
    if any(some.added_up is not None for some in sums.values()):
        nothing = np.zeros(arrays["moment"].shape[1])
        arrays["added_up"] = np.stack([nothing if some.added_up is None else some.added_up for some in sums.values()])
    signatures = [some.signatures for some in sums.values() if some.signatures is not None]
    if len(signatures) == len(sums):
        arrays["row_signatures"] = np.concatenate(signatures)
    return arrays


def _features_to_arrays(name: str, rows: Sequence[TrainingRows]) -> dict[str, NDArray[Any]]:
    features = [some.X.all() for some in rows]
    if not scipy.sparse.issparse(features[0]):
        return {name: np.concatenate(features)}
    sparse = features[0] if len(features) == 1 else scipy.sparse.vstack(features, format="csr")
    packed = packed_indices(sparse.indices, sparse.indptr)
    columns = {f"{name}_indices": sparse.indices} if packed is None else {f"{name}_steps": packed}
    return {f"{name}_data": sparse.data, **columns, f"{name}_indptr": sparse.indptr}


def _sparse_rows(arrays: Arrays, name: str, shape: tuple[int, int]) -> Any:
    """The CSR matrix whose columns are packed, or in older models as they are."""
    if f"{name}_indices" in arrays:
        return csr_from(arrays, name, shape)
    specs = {
        f"{name}_indptr": ArraySpec("iu", (shape[0] + 1,), least=0, rising=True),
        f"{name}_steps": ArraySpec("uint8", (None,)),
        f"{name}_data": ArraySpec("f", (None,)),
    }
    ends, packed, data = check_arrays(specs, arrays).values()
    if ends[0] != 0 or ends[-1] != len(data):
        raise ValueError(f"the array '{name}_indptr' must run from 0 to the {len(data)} entries of '{name}_data'")
    try:
        indices = unpacked_indices(np.asarray(packed), ends, shape[1])
    except ValueError as error:
        raise ValueError(f"the array '{name}_steps' is damaged: {error}") from None
    index = np.int32 if len(data) < 2**31 else np.int64
    return csr_of(data, indices.astype(index, copy=False), ends.astype(index), shape[1])


def _end_to_end(pieces: Sequence[NDArray[Any]], axis: int = 0) -> NDArray[Any]:
    """The pieces joined; where they are those of one array, that array itself."""
    shape = list(pieces[0].shape)
    shape[axis] = sum(piece.shape[axis] for piece in pieces)
    whole: Any = pieces[0]
    while isinstance(whole, np.ndarray) and list(whole.shape) != shape:
        whole = whole.base
    if isinstance(whole, np.ndarray) and all(np.may_share_memory(whole, piece) for piece in pieces):
        return whole
    return np.concatenate(pieces, axis=axis)


# -------------------------------------------------------------------------------------------------------------- reading


def from_state(settings: Settings, values: Mapping[str, Any], arrays: Arrays) -> Model:
    """The inverse of `to_state`; large arrays are not copied. What contradicts itself raises one of Python's errors."""
    vocabulary = Vocabulary.from_arrays(arrays)
    kernel, ensemble = registry.from_json(values["kernel"]), registry.from_json(values["ensemble"])
    n_rows, n_features, n_dims = (_whole(values, name) for name in ("n_rows", "n_features", "n_dims"))
    # Older models have neither of these two.
    values = {"n_seen": n_rows, "changes": no_changes(n_rows, len(vocabulary)), "compact": False, **values}
    if type(values["compact"]) is not bool:
        raise ValueError(f"`compact` must be true or false; got {values['compact']!r}")
    changes = _changes(values["changes"])
    if settings.n_dims not in (None, n_dims) and not ensemble.exact:
        raise ValueError(f"n_dims is {settings.n_dims} in the settings and {n_dims} in what was learnt")
    projection = Projection(ensemble, n_dims, settings.n_learners, _whole(values, "seed"))
    arrays = _checked(settings, kernel, arrays, n_features, len(vocabulary))
    # Small arrays that every answer reads are not mapped: a mapped one takes longer to look at than to use.
    arrays = {name: np.array(array) if name in _READ_BY_EVERY_ANSWER else array for name, array in arrays.items()}
    chosen = dict(values["chosen"])
    relevance, choices = chosen.pop("relevance"), Choices(**chosen)
    decoder = settings.decoder
    embedding = decoder.embedding(projection, vocabulary, choices.n_neighbors, int(arrays["Psi"].shape[-1]))
    solutions = tuple(values["solutions"])
    if len(solutions) != len(arrays["centres"]):
        raise ValueError(f"there are {len(solutions)} solutions for {len(arrays['centres'])} clusters")
    indexes = _indexes(settings, embedding, arrays, len(vocabulary))
    rows = _rows(kernel, indexes, arrays, n_features)
    regressions = _regressions(embedding, kernel, solutions, arrays, rows)
    clusters = tuple(Cluster(*parts) for parts in zip(regressions, indexes, rows, strict=True))
    if sum(index.counts.sum(dtype=np.float64) for index in indexes) != n_rows:
        raise ValueError(f"the label sets do not stand for the {n_rows} rows")
    at_fit = changes["labels_at_fit"]
    fitted = decoder.fitted(DecoderParts(embedding, choices, arrays["frequency"], at_fit, kernel, arrays))
    fitted.check(clusters)
    for index in indexes:
        if index.searchers.restorable:  # what does not fit is found now, and not by the first query
            index.searchers.get()
    return Model(
        vocabulary=vocabulary,
        scaling=Scaling.from_state(
            values.get("scaling", {"unit": settings.normalize is not False}), arrays, n_features
        ),
        centres=arrays["centres"],
        clusters=clusters,
        decoder=fitted,
        calibration=_calibration(values, arrays),
        kernel=kernel,
        relevance=relevance,
        solutions=solutions,
        seed=projection.seed,
        n_rows=n_rows,
        n_unlabelled=_whole(values, "n_unlabelled"),
        n_repeated=_whole({"n_repeated": 0, **values}, "n_repeated"),
        n_seen=_whole(values, "n_seen"),
        changes=changes,
        structure=settings.structure,
        compact=values["compact"],
        decisions=_decisions(arrays, clusters, n_features),
    )


def _decisions(arrays: Arrays, clusters: Sequence[Cluster], d: int) -> Decisions | None:
    """The decisions on labels, if there are any."""
    if "decided_cluster" not in arrays:
        return None
    cluster, labels, ends = (arrays[f"decided_{name}"] for name in ("cluster", "labels", "ends"))
    if len(ends) != len(cluster) + 1 or ends[0] != 0 or ends[-1] != len(labels):
        raise ValueError("the array 'decided_ends' must run from 0 to the number of decisions")
    X = arrays["decided_rows"] if "decided_rows" in arrays else csr_from(arrays, "decided_rows", (len(cluster), d))
    sizes = np.bincount(cluster, minlength=len(clusters))
    lines = np.array([one.regression.n_posterior_terms for one in clusters])
    terms, n = arrays["decided_terms"], int(sizes @ lines)
    if len(terms) not in (0, n):  # none where there is no training row
        raise ValueError(f"the array 'decided_terms' has {len(terms)} terms for the {n} of all decisions")
    stops = np.cumsum(sizes * lines).tolist() if len(terms) else []
    evidence = None
    if "decided_names_ends" in arrays:
        evidence = Evidence(*(arrays[f"decided_names_{part}"] for part in ("ends", "labels", "signals")))
        if len(evidence) != len(cluster) or evidence.ends[0] != 0 or evidence.ends[-1] != len(evidence.labels):
            raise ValueError("the array 'decided_names_ends' is not that of the decisions")
    return Decisions(
        X, evidence, ends, labels, arrays["decided_accepted"], cluster, arrays["decided_scores"],
        arrays["decided_weights"],
        tuple(terms[end - p * n : end].reshape(n, p) for end, n, p in zip(stops, lines, sizes, strict=False)),
    )  # fmt: skip


def _whole(values: Mapping[str, Any], name: str) -> int:
    if type(values[name]) is not int or values[name] < 0:
        raise ValueError(f"`{name}` must be a whole number; got {values[name]!r}")
    return int(values[name])


def _changes(changes: Any) -> dict[str, int]:
    if type(changes) is not dict or changes.keys() != no_changes(0, 0).keys():
        raise ValueError("the counts of changes are not those of a model")
    return {name: _whole(changes, name) for name in changes}


def _calibration(values: Mapping[str, Any], arrays: Arrays) -> Calibration:
    x, y = arrays["calibration"]
    errors = dict(values.get("calibration_errors", {}))  # early folders have none
    numbers = (values["threshold"], values["calibration_error"], *values["left_out_precision"].values())
    numbers = (*numbers, *errors.values())
    if not all(type(number) is float for number in numbers):
        raise ValueError("the threshold, the calibration error and the precision must be numbers")
    if not len(x) or not 0 <= y[0] <= y[-1] <= 1:
        raise ValueError("the calibration does not lead to probabilities")
    precision, error = values["left_out_precision"], values["calibration_error"]
    guarantees = Guarantees.from_arrays(arrays)
    return Calibration((x, y), values["threshold"], precision, error, errors, guarantees)


def _checked(settings: Settings, kernel: Kernel, arrays: Arrays, d: int, L: int) -> dict[str, NDArray[Any]]:
    """The arrays, each checked against its specification."""
    found = dict(arrays)
    if "Z" in found and found["Z"].ndim == 2:  # of older models: the learners side by side
        found["Z"] = found["Z"].reshape(len(found["Z"]), settings.n_learners, -1).transpose(1, 0, 2)
    rounded = kernel.linear and "units" in found
    specs = {
        "Psi": ArraySpec("int8" if rounded else "f", ("C", "d", "M") if kernel.linear else ("n", "M")),
        "units": ArraySpec("float32", ("C", "d"), above=0, finite=True, optional=True),
        **_SPECS,
        "Z": ArraySpec(settings.index.storage, ("F", "e", "m"), optional=True),
    }
    sizes = {"d": d, "L": L}
    found |= check_arrays(specs, found, sizes)
    if found["part_ends"][-1:].tolist() != [sizes["e"]]:
        raise ValueError("the label sets of the clusters are not those of the embeddings")
    if not kernel.linear and "set_of_row" not in found:
        raise ValueError("the array 'set_of_row' is missing, but a kernel needs its rows")
    for together in _TOGETHER:
        missing = [name for name in together if name not in found]
        if 0 < len(missing) < len(together):
            raise ValueError(f"the array {missing[0]!r} is missing, but others that belong to it are not")
    return found


def _indexes(settings: Settings, embedding: LabelEmbedding, arrays: Arrays, n_labels: int) -> list[LabelSetIndex]:
    counts, (n_searches, width) = arrays["counts"], embedding.search_shape
    Z = arrays.get("Z")
    if Z is not None and (len(Z), Z.shape[2]) != embedding.search_shape:
        raise ValueError(f"the embeddings have shape {Z.shape}, but their searches {embedding.search_shape}")
    if Z is None and not _is_remade(embedding, settings.index.storage, len(counts)):
        raise ValueError("the array 'Z' is missing, and the embeddings are not among those that are made again")
    all_sets = csr_from(arrays, "sets", (len(counts), n_labels), np.ones(arrays["sets_indices"].size, np.float32))
    scale = float(arrays["scale"][0]) if "scale" in arrays else 1.0

    def index(c: int, place: slice) -> LabelSetIndex:
        sets, made_of = row_slice(all_sets, place), _index_arrays(arrays, c, n_searches)
        lazy = LazyArray((n_searches, sets.shape[0], width), lambda: _remade(embedding, sets))
        embeddings = lazy if Z is None else Z[:, place]
        return embedding.index_type.of(sets, counts[place], embeddings, settings.index, scale, made_of)

    return [index(c, place) for c, place in enumerate(_places(arrays["part_ends"]))]


def _places(ends: Ints) -> list[slice]:
    return [slice(start, end) for start, end in pairwise([0, *ends.tolist()])]


def _index_arrays(arrays: Arrays, cluster: int, n_searches: int) -> list[dict[str, NDArray[Any]]]:
    """What the searchers of a cluster were saved with."""
    found = []
    for f in range(n_searches):
        start = f"index_{cluster}_{f}_"
        found.append({name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)})
    if any("numbers" in of_search for of_search in found):
        raise ValueError("the rows of a model's index are numbered from 0")
    return found if any(found) else []


def _regressions(
    embedding: LabelEmbedding,
    kernel: Kernel,
    solutions: Sequence[Mapping[str, Any]],
    arrays: Arrays,
    rows: Sequence[TrainingRows | None],
) -> list[Regression]:
    Psi, ridges = arrays["Psi"], [float(solution["ridge"]) for solution in solutions]
    if Psi.shape[-1] != embedding.n_targets:
        raise ValueError(f"the regression has {Psi.shape[-1]} targets, but the embedding {embedding.n_targets}")
    if not kernel.linear:
        return [
            _kernel_regression(kernel, ridge, arrays, c, place, one)
            for c, (ridge, place, one) in enumerate(zip(ridges, _places(arrays["row_ends"]), rows, strict=True))
        ]
    sums, intercept, with_intercept = _sums(arrays, len(Psi)), arrays["intercept"], embedding.with_intercept
    units: Any = _units(arrays)
    units = [None] * len(Psi) if units is None else units.reshape(len(Psi), -1).astype(np.float32, copy=False)
    return [
        LinearRegression(
            kernel, ridge, np.ascontiguousarray(Psi[c]), intercept[c], with_intercept, units[c], sums=sums.get(c)
        )
        for c, ridge in enumerate(ridges)
    ]


def _units(arrays: Arrays) -> NDArray[Any] | None:
    """The units of coefficients in 8 bits or float16; None for wider ones."""
    if "units" in arrays:
        return arrays["units"]
    if arrays["Psi"].dtype == np.float16 and "unit" not in arrays:
        raise ValueError("the array 'unit' is missing, but 'Psi' is in units of it")
    return arrays["unit"] if arrays["Psi"].dtype == np.float16 else None


def _kernel_regression(
    kernel: Kernel, ridge: float, arrays: Arrays, c: int, place: slice, rows: TrainingRows | None
) -> Regression:
    """The regression of a cluster, of which these of all rows are."""
    Psi, units = np.ascontiguousarray(arrays["Psi"][place]), _units(arrays)
    assert rows is not None
    if "far_clusters" in arrays and c in arrays["far_clusters"]:
        at = int(np.flatnonzero(arrays["far_clusters"] == c)[0])
        total, moment = arrays["far_sums"][at]
        coefficients, unit = as_half(Psi) if units is None else (Psi, float(units[c]))
        slope = _slope(arrays, at, rows.X, coefficients, unit)
        far = FarField(total, moment, slope, float(arrays["far_unit"][at]), "far_slope" not in arrays)
        return KernelRegression(kernel, ridge, coefficients, unit, far)
    if Psi.dtype == np.float16:
        raise ValueError("the array 'Psi' is in float16, but the far field of a cluster is missing")
    return KernelRegression.of(kernel, ridge, Psi, rows.X)


def _slope(arrays: Arrays, at: int, X: Rows, Psi: NDArray[Any], unit: float) -> NDArray[Any] | LazyArray:
    """The slope (d, M) of far field `at`; where it is not stored, it is made when it is first needed."""
    if "far_slope" in arrays:
        return np.asarray(arrays["far_slope"][at])
    shape, far_unit = (arrays["centres"].shape[1], Psi.shape[1]), float(arrays["far_unit"][at])
    if 4 * len(arrays["far_unit"]) * shape[0] * shape[1] > _REMADE_BYTES:
        raise ValueError("the array 'far_slope' is missing, and it is too large to be made again")
    return LazyArray(shape, lambda: as_half(FarField.slope_of(X.all(), Psi, unit), far_unit)[0])


def _sums(arrays: Arrays, n_clusters: int) -> dict[int, PackedSums]:
    """The sums of each cluster that has them."""
    if "summed" not in arrays:
        return {}
    summed, triangle, moment = arrays["summed"], arrays["gram"], arrays["moment"]
    d, D = arrays["centres"].shape[1], moment.shape[1]
    clusters = summed[:, 0].tolist()
    if D not in (d, d + 1) or triangle.shape[1] != D * (D + 1) // 2:
        raise ValueError("the sums are not over the features of the model")
    if len(set(clusters)) != len(clusters) or max(clusters, default=0) >= n_clusters:
        raise ValueError("the sums are not those of the clusters")
    added_up = arrays.get("added_up", np.zeros((len(summed), D)))
    ends = np.cumsum(summed[:, 1])
    signatures: list[Any] = [None] * len(summed)
    if "row_signatures" in arrays:
        if len(arrays["row_signatures"]) != ends[-1]:
            raise ValueError("the array 'row_signatures' does not have one line for each row that was added up")
        signatures = np.split(arrays["row_signatures"], ends[:-1])
    return {
        c: PackedSums(triangle[i], moment[i], n_rows, added_up[i], signatures[i])
        for i, (c, n_rows) in enumerate(summed.tolist())
    }


def _part(X: Any, place: slice) -> Rows:
    """Rows of one cluster, without a copy of their features: those that only updates need stay on disk until then."""
    return Rows(row_slice(X, place) if scipy.sparse.issparse(X) else X[place])


def _rows(kernel: Kernel, indexes: Sequence[LabelSetIndex], arrays: Arrays, d: int) -> list[TrainingRows | None]:
    """The training rows of each cluster, stored for answers or kept to go on learning."""
    found: list[TrainingRows | None] = [None] * len(indexes)
    if "set_of_row" in arrays:
        sets, places = arrays["set_of_row"], _places(arrays["row_ends"])
        X = arrays["rows"] if "rows" in arrays else _sparse_rows(arrays, "rows", (len(sets), d))
        numbers = arrays["row_numbers"] if "row_numbers" in arrays else np.arange(len(sets))
        if places[-1].stop != len(sets):
            raise ValueError("the rows of the clusters are not all rows")
        for c, place in enumerate(places):
            found[c] = TrainingRows(_part(X, place), sets[place], numbers[place], kernel)
    elif "kept_parts" in arrays:
        sets, kept = arrays["kept_set_of_row"], arrays["kept_parts"]
        X = arrays["kept"] if "kept" in arrays else _sparse_rows(arrays, "kept", (len(sets), d))
        if kept[:, 1].sum() != len(sets) or kept[:, 0].max(initial=0) >= len(indexes):
            raise ValueError("the rows that were kept are not those of the clusters")
        for c, place in zip(kept[:, 0].tolist(), _places(np.cumsum(kept[:, 1])), strict=True):
            found[c] = TrainingRows(_part(X, place), sets[place], sets[:0], kernel, searched=False)
    for rows, index in zip(found, indexes, strict=True):
        if rows is not None and len(rows) and rows.set_of_row.max() >= len(index.counts):
            raise ValueError("a row has a label set that is not in the index")
    return found
