"""The words that options take."""

from __future__ import annotations

from enum import Enum

__all__ = [
    "DecoderWord", "EmbeddingWord", "EnsembleWord", "Format", "IndexWord", "KernelWord", "Method", "MetricWord",
    "Preset", "Role", "SolverWord", "Targets", "TextFeatures",
]  # fmt: skip


class Preset(str, Enum):
    """Settings that go together."""

    default = "default"
    linear = "linear"
    paper = "paper"


class Method(str, Enum):
    """What can be trained: RIPML, or a method of the related work."""

    ripml = "ripml"
    leml = "leml"
    plst = "plst"
    cplst = "cplst"
    cssp = "cssp"
    compressed_sensing = "compressed-sensing"
    bayesian = "bayesian"
    sleec = "sleec"
    one_vs_all_ridge = "one-vs-all-ridge"
    one_vs_all_logistic = "one-vs-all-logistic"
    neighbors = "neighbors"
    popularity = "popularity"


class EnsembleWord(str, Enum):
    """Families of random matrices."""

    gaussian = "gaussian"
    bernoulli = "bernoulli"
    sparse = "sparse"
    structured = "structured"
    deterministic = "deterministic"


class EmbeddingWord(str, Enum):
    """What training embeds labels with: a family, each label its own dimension, or whichever is cheaper."""

    auto = "auto"
    identity = "identity"
    gaussian = "gaussian"
    bernoulli = "bernoulli"
    sparse = "sparse"
    structured = "structured"
    deterministic = "deterministic"


class KernelWord(str, Enum):
    """How alike feature rows are."""

    auto = "auto"
    linear = "linear"
    rbf = "rbf"
    local = "local"


class DecoderWord(str, Enum):
    """How a predicted embedding becomes scores."""

    blend = "blend"
    votes = "votes"
    weighted = "weighted"
    sketch = "sketch"
    least_squares = "least-squares"


class SolverWord(str, Enum):
    """Ways to solve the regression."""

    auto = "auto"
    primal = "primal"
    dual = "dual"
    cg = "cg"
    gd = "gd"


class IndexWord(str, Enum):
    """How neighbours are searched."""

    exact = "exact"
    auto = "auto"
    ivf = "ivf"
    hnsw = "hnsw"
    lsh = "lsh"


class TextFeatures(str, Enum):
    """What texts become."""

    doc2vec = "doc2vec"
    tfidf = "tfidf"


class Targets(str, Enum):
    """Which links are labels."""

    articles = "articles"
    any = "any"


class Format(str, Enum):
    """File formats."""

    xmc = "xmc"
    arff = "arff"
    svmlight = "svmlight"
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"
    annif = "annif"


class MetricWord(str, Enum):
    """What a study goes by."""

    precision_at_1 = "P@1"
    precision_at_3 = "P@3"
    precision_at_5 = "P@5"
    ndcg_at_5 = "nDCG@5"
    psp_at_5 = "PSP@5"
    micro_f1 = "micro-F1"


class Role(str, Enum):
    """What the holder of an API key may do."""

    read = "read"
    write = "write"
