"""The stages that a setting can name: one table, one line for each stage.

A setting such as `index` is a word ("hnsw") or an object with options (`HNSW(ef=200)`). The table below maps the words
of each kind of stage to the class that implements it, which is imported when it is first needed. Everything that has to
know the stages reads this table: the estimators, the model folder (a stage is written as its class name and options),
the command line and its help.

To add a stage, write its class in a new file and add one line here, or call `register` from another package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from importlib import import_module
from typing import Any

from ripml.base.errors import ParameterError

__all__ = ["class_names", "from_json", "named", "register", "resolve", "summary", "to_json", "words"]

# What every stage of a kind is derived from; kinds without an entry are not settings of an estimator.
_BASES = {
    "ensemble": "ripml.labels.ensembles:Ensemble",
    "kernel": "ripml.regression.kernels:Kernel",
    "solver": "ripml.regression.solver:RidgeSolver",
    "index": "ripml.neighbors.base:Index",
    "decoder": "ripml.decoding.decoders:Decoder",
}

_STAGES: dict[str, dict[str, str]] = {
    "ensemble": {
        "gaussian": "ripml.labels.ensembles:Gaussian",
        "bernoulli": "ripml.labels.ensembles:Bernoulli",
        "sparse": "ripml.labels.ensembles:SparseSign",
        "structured": "ripml.labels.ensembles:Structured",
        "deterministic": "ripml.labels.ensembles:PolynomialPhase",
        "identity": "ripml.labels.ensembles:Identity",
    },
    "kernel": {
        "linear": "ripml.regression.kernels:Linear",
        "rbf": "ripml.regression.kernels:RBF",
        "local": "ripml.regression.kernels:Local",
    },
    "solver": {
        "primal": "ripml.regression.closed_form:Primal",
        "dual": "ripml.regression.closed_form:Dual",
        "cg": "ripml.regression.iterative:ConjugateGradient",
        "gd": "ripml.regression.iterative:GradientDescent",
    },
    "index": {
        "exact": "ripml.neighbors.exact:Exact",
        "auto": "ripml.neighbors.auto:Auto",
        "ivf": "ripml.neighbors.ivf:IVF",
        "hnsw": "ripml.neighbors.hnsw:HNSW",
        "lsh": "ripml.neighbors.lsh:LSH",
    },
    "decoder": {
        "blend": "ripml.decoding.decoders:Blend",
        "votes": "ripml.decoding.decoders:Votes",
        "weighted": "ripml.decoding.decoders:WeightedVotes",
        "sketch": "ripml.decoding.decoders:Sketch",
        "least-squares": "ripml.decoding.decoders:LeastSquares",
    },
    "estimator": {
        "ripml": "ripml.model.estimator:RIPML",
        "leml": "ripml.baselines.leml:LEML",
        "plst": "ripml.baselines.label_space:PLST",
        "cplst": "ripml.baselines.label_space:CPLST",
        "cssp": "ripml.baselines.label_space:CSSP",
        "compressed-sensing": "ripml.baselines.compressed_sensing:CompressedSensing",
        "bayesian": "ripml.baselines.bayesian:BayesianCompressedSensing",
        "sleec": "ripml.baselines.sleec:SLEEC",
        "one-vs-all-ridge": "ripml.baselines.one_vs_all:OneVsAllRidge",
        "one-vs-all-logistic": "ripml.baselines.one_vs_all:OneVsAllLogistic",
        "neighbors": "ripml.baselines.feature_neighbors:FeatureNeighbors",
        "popularity": "ripml.baselines.popularity:Popularity",
    },
    "format": {  # the first line of a file is tried from the last to the first of these
        "svmlight": "ripml.datasets.formats.svmlight",
        "xmc": "ripml.datasets.formats.xmc",
        "arff": "ripml.datasets.formats.arff",
        "jsonl": "ripml.datasets.formats.jsonl",
        "parquet": "ripml.datasets.formats.parquet",
        "xlsx": "ripml.datasets.formats.spreadsheet",
        "files": "ripml.datasets.formats.files",
        "csv": "ripml.datasets.formats.delimited",
        "annif": "ripml.datasets.formats.annif",
    },
    "vocabulary": {  # as above
        "annif": "ripml.datasets.formats.annif_vocabulary",
        "table": "ripml.datasets.formats.concept_table",
        "skos": "ripml.datasets.formats.skos",
        "jsonl": "ripml.datasets.formats.concept_lines",
    },
}


def register(kind: str, word: str, path: str) -> None:
    """Add a stage: `path` is "module:Class", or the module alone for a file format."""
    _STAGES[kind][word] = path


def words(kind: str) -> list[str]:
    """The words of a kind of stage.

    >>> words("kernel")
    ['linear', 'rbf', 'local']
    """
    return list(_STAGES[kind])


def named(kind: str, word: str) -> Any:
    """The class (for a file format, the module) of a word; KeyError for a word that is not in the table."""
    return _imported(_STAGES[kind][word])


def resolve(kind: str, value: Any, others: Sequence[str] = ()) -> Any:
    """A stage from its word with default options, or the stage itself.

    `others` are words that the caller understands itself, such as "auto"; they are named in the error.

    >>> resolve("ensemble", "sparse")
    SparseSign(n_nonzeros=8)
    """
    if isinstance(value, str) and value in _STAGES[kind]:
        return named(kind, value)()
    base = _imported(_BASES[kind])
    if isinstance(value, base):
        return value
    article = "an" if base.__name__[0] in "AEIOU" else "a"
    raise ParameterError(
        f"`{kind}` must be one of {', '.join([*others, *_STAGES[kind]])} or {article} {base.__name__}; got {value!r}."
    )


def class_names(kind: str) -> list[str]:
    """The names of the classes of a kind of stage, in the order of `words`."""
    return [path.partition(":")[2] for path in _STAGES[kind].values()]


def summary(kind: str, word: str) -> str:
    """The first line of a stage's documentation."""
    return (named(kind, word).__doc__ or "").strip().split("\n")[0]


def to_json(name: str, value: Any) -> Any:
    """The value of the setting `name` as JSON; a stage is an object with its class name and its options."""
    if is_dataclass(value) and not isinstance(value, type) and type(value).__name__ in _by_class_name():
        options = {option: _plain(setting) for option, setting in asdict(value).items()}
        return {"stage": type(value).__name__, **options}
    if name == "views" and value is not None:
        return [int(width) for width in value]
    value = _plain(value)
    if name == "random_state" and not isinstance(value, int):
        return None  # a generator cannot be written; the seed that it gave is saved with the model
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ParameterError(f"a model with {name}={value!r} cannot be saved; only registered stages can.")
    return value


def from_json(value: Any) -> Any:
    """The inverse of `to_json`; only stages of the table can come back (KeyError for others)."""
    if isinstance(value, dict):
        options = {name: option for name, option in value.items() if name != "stage"}
        return _imported(_by_class_name()[value["stage"]])(**options)
    return value


def _by_class_name() -> dict[str, str]:
    paths = [path for kind in _BASES for path in _STAGES[kind].values()]
    return {path.partition(":")[2]: path for path in paths}


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's; NumPy itself is not imported here, so that the shell starts quickly."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)
