"""The commands and their options."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ripml.cli.options import DataArgument, FormatOption, JobsOption, JsonOption, ModelArgument
from ripml.cli.store_commands import store_app

__all__ = ["app"]

app = typer.Typer(
    name="ripml",
    help="Tag things out of thousands to millions of labels, on ordinary CPUs, in minutes.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(store_app)
datasets_app = typer.Typer(help="List, describe, fetch, build data sets.", rich_markup_mode=None)
app.add_typer(datasets_app, name="datasets")


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


def _version(wanted: bool) -> None:
    if wanted:
        from ripml import __version__

        print(f"ripml {__version__}")
        raise typer.Exit()


@app.callback()
def ripml(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="With any command: a traceback when something fails.")] = False,
) -> None:
    """Tag things out of thousands to millions of labels, on ordinary CPUs, in minutes."""


@app.command(short_help="Learn and recommend from docstrings.")
def demo(json: JsonOption = False) -> None:
    """Learn which functions NumPy, SciPy and scikit-learn documentation links to, and recommend some.

    Builds its data from the installed packages' docstrings; needs no download and takes about half a minute.
    """
    from ripml.cli.demo import run_demo

    run_demo(as_json=json)


@app.command(short_help="Learn from a file, save the model.")
def train(
    data: DataArgument,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder for the model.")],
    format: FormatOption = None,
    preset: Annotated[
        Preset,
        typer.Option(help="The most precise, a faster linear one, or the paper's algorithm to the letter."),
    ] = Preset.default,
    method: Annotated[Method, typer.Option(help="RIPML, or a method of the related work.")] = Method.ripml,
    dims: Annotated[str | None, typer.Option(help="m, the dimensions of a learner, or auto.")] = None,
    neighbors: Annotated[str | None, typer.Option(help="k, the neighbours that vote in a learner, or auto.")] = None,
    learners: Annotated[int | None, typer.Option(help="F, the number of learners.")] = None,
    clusters: Annotated[int | None, typer.Option(help="C, the k-means clusters of the features.")] = None,
    probe: Annotated[int | None, typer.Option(help="The nearest clusters whose rows may vote.")] = None,
    index: Annotated[IndexWord | None, typer.Option(help="How neighbours are searched.")] = None,
    kernel: Annotated[KernelWord | None, typer.Option(help="How alike feature rows are.")] = None,
    relevance: Annotated[
        str | None, typer.Option(help="The power of a feature's relevance that it is multiplied by, or auto.")
    ] = None,
    ridge: Annotated[str | None, typer.Option(help="The regularisation, a number or auto.")] = None,
    ensemble: Annotated[EmbeddingWord | None, typer.Option(help="The family of random matrices.")] = None,
    solver: Annotated[SolverWord | None, typer.Option(help="How a linear regression is solved.")] = None,
    decoder: Annotated[DecoderWord | None, typer.Option(help="How a predicted embedding becomes scores.")] = None,
    tail: Annotated[float | None, typer.Option(help="How much rare labels are put forward, 0 for not at all.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed, the same model.")] = 0,
    memory: Annotated[
        str | None,
        typer.Option(help="Read the file in blocks and hold about this much, like 500MB or 4GB, beside a block."),
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Learn on the workers of a Dask scheduler, tcp://host:port.")
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Keep the documents with the model, so that it can go on learning.")
    ] = False,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Learn from a file of labelled rows and save the model.

    Rows are features (xmc, svmlight, arff, jsonl) or texts (jsonl with "text" and "labels"). An option that is given
    overrides the preset; what is auto is chosen on training rows left out, and printed. With --memory, rows and the
    model's large arrays are files in MODEL.work until it is saved, and a run that was interrupted goes on from its last
    block when the command is given again; --memory and --dask are made for --preset paper. With --store, MODEL becomes
    a store, a new folder that update, forget and relabel change; what takes a model takes it too.

    Example: ripml train tickets.jsonl model/
    """
    from ripml.cli.commands import run_train
    from ripml.errors import ParameterError

    settings = {
        "n_dims": dims,
        "n_neighbors": neighbors,
        "n_learners": learners,
        "n_clusters": clusters,
        "n_probe": probe,
        "index": index and index.value,
        "kernel": kernel and kernel.value,
        "relevance": relevance,
        "ridge": ridge,
        "ensemble": ensemble and ensemble.value,
        "solver": solver and solver.value,
        "decoder": decoder and decoder.value,
        "tail": tail,
        "random_state": seed,
        "n_jobs": jobs,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    if method != Method.ripml and preset != Preset.default:
        raise ParameterError(f"--preset is one of RIPML's settings; leave it out for --method {method.value}.")
    chosen = preset.value if method == Method.ripml else method.value
    run_train(data, model, format.value if format else None, chosen, given, memory, dask, store, as_json=json)


@app.command(short_help="Print the labels of each row.")
def predict(
    model: ModelArgument,
    data: DataArgument,
    format: FormatOption = None,
    n: Annotated[int, typer.Option("--top", "-n", help="How many labels for each row.")] = 5,
    sets: Annotated[
        bool, typer.Option("--sets", help="The labels above the model's threshold, in place of the first few.")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Calibrated probabilities in place of scores.")
    ] = False,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Print the labels of each row of a file, best first, one row a line: label, score, label, score, …

    Rows with an id have it first. A row with no word or feature that the model knows has no labels.

    Example: ripml predict model/ new.jsonl --top 3 --json
    """
    from ripml.cli.commands import run_predict

    run_predict(model, data, format.value if format else None, n, sets, probabilities, jobs, as_json=json)


@app.command(short_help="Compare a model with a file's labels.")
def evaluate(
    model: ModelArgument,
    data: DataArgument,
    format: FormatOption = None,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the model's answers with the labels of a file.

    Example: ripml evaluate model/ test.txt.gz
    """
    from ripml.cli.commands import run_evaluate

    run_evaluate(model, data, format.value if format else None, jobs, as_json=json)


@app.command(short_help="Say why rows get their labels.")
def explain(
    model: ModelArgument,
    data: DataArgument,
    format: FormatOption = None,
    n: Annotated[int, typer.Option("--top", "-n", help="How many labels for each row.")] = 3,
    examples: Annotated[int, typer.Option(help="How many examples for each label.")] = 3,
    features: Annotated[int, typer.Option(help="How many words or features for each label.")] = 8,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Say why each row of a file gets its labels: by which examples, and by which words or features.

    An example is a document, or a set of labels that stands for all documents that carry exactly these; its share is
    its part of the label's score. A store names the documents by their ids, a model by row numbers from 0. Beside each
    word or feature is how far it pulled towards the label, or with a minus away from it.

    Example: ripml explain store/ new.jsonl --top 1
    """
    from ripml.cli.explaining import run_explain

    run_explain(model, data, format.value if format else None, n, examples, features, jobs, as_json=json)


@app.command(short_help="Look into a model, a store or a data set.")
def inspect(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The folder of a model or a store, a data file, or a data set's name.")
    ],
    format: FormatOption = None,
    ensemble: Annotated[EnsembleWord, typer.Option(help="Data: the family to measure.")] = EnsembleWord.gaussian,
    dims: Annotated[int, typer.Option(help="Data: m, the dimensions to measure at.")] = 100,
    delta: Annotated[float, typer.Option(help="Data: find the smallest m that reaches this δ.")] = 0.25,
    quantile: Annotated[float, typer.Option(help="Data: the share of pairs that δ must hold for.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Data: draws Phi and the pairs of rows.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Data: write a picture of the distribution here (.png, .svg, .pdf)."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what a model learnt, or how well random matrices keep the distances between a data set's label rows.

    Example: ripml inspect train.txt.gz --dims 100 --plot isometry.png
    """
    from ripml.cli.inspecting import run_inspect

    run_inspect(path, format.value if format else None, ensemble.value, dims, delta, quantile, seed, plot, as_json=json)


@app.command(short_help="Run the paper's experiments again.")
def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="list, all, or an experiment's number or word.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where to; reproduction or reproduction-quick otherwise. A run there goes on.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A look at everything in minutes, not hours.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Draws Phi, splits and generated rows.")] = 0,
    json: JsonOption = False,
) -> None:
    """Make the paper's tables and figures again, with our figures beside the paper's, and judge its claims.

    Writes JSON, CSV, PNG and SVG for each experiment and one report, report.html. A run that was stopped goes on where
    it was. Needs the data sets (RIPML_DATA) and the extras plot and text.

    Example: ripml reproduce all --quick
    """
    from ripml.cli.reproducing import run_reproduce

    run_reproduce(what, folder, quick, seed, as_json=json)


@datasets_app.command("list", short_help="List what is here and what can be fetched.")
def datasets_list(json: JsonOption = False) -> None:
    """List the data sets that are here, and the originals that can be fetched."""
    from ripml.cli.commands import run_datasets_list

    run_datasets_list(as_json=json)


@datasets_app.command("info")
def datasets_info(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set that is here.")], json: JsonOption = False
) -> None:
    """Count rows, features and labels of a data set."""
    from ripml.cli.commands import run_datasets_info

    run_datasets_info(name, as_json=json)


class Features(str, Enum):
    """What texts become."""

    doc2vec = "doc2vec"
    tfidf = "tfidf"


class Targets(str, Enum):
    """Which links are labels."""

    articles = "articles"
    any = "any"


FeaturesOption = Annotated[Features, typer.Option(help="What texts become.")]
NewFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder to make; inside RIPML_DATA, a named set.")
]
SeedOption = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Draws sample and split.")]


@datasets_app.command("wikipedia", short_help="Build a set from a dump of Wikipedia.")
def datasets_wikipedia(
    dump: Annotated[Path, typer.Argument(metavar="DUMP", help="pages-articles: .xml.bz2, .xml.gz or .xml.")],
    folder: NewFolder,
    documents: Annotated[int | None, typer.Option(help="Sample so many articles; all otherwise.")] = None,
    min_count: Annotated[int, typer.Option(help="Documents that must link to an entity.")] = 10,
    test: Annotated[int, typer.Option(help="Test documents; a fifth of all at most.")] = 10_000,
    features: FeaturesOption = Features.doc2vec,
    dims: Annotated[int, typer.Option(help="Of doc2vec.")] = 400,
    targets: Annotated[
        Targets, typer.Option(help="Links to articles of the dump, or to any page, for excerpts.")
    ] = Targets.articles,
    seed: SeedOption = 0,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Processes; one for each core otherwise.")] = None,
    json: JsonOption = False,
) -> None:
    """Build the entity data set: articles, labelled with the articles that they link to.

    Reads the dump as a stream, in several processes; a build that was stopped goes on where it was. Needs the extra
    text.

    Example: ripml datasets wikipedia enwiki-latest-pages-articles.xml.bz2 data/wikipedia --documents 1000000
    """
    from ripml.cli.building import run_wikipedia

    settings = {"n_documents": documents, "min_count": min_count, "n_test": test, "n_dims": dims, "n_jobs": jobs}
    run_wikipedia(dump, folder, features.value, targets.value, seed, settings, as_json=json)


@datasets_app.command("chinese", short_help="Build a set from documents with tickers.")
def datasets_chinese(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder of .txt files with a labels.csv, or a JSONL file.")
    ],
    folder: NewFolder,
    features: FeaturesOption = Features.doc2vec,
    min_count: Annotated[int, typer.Option(help="Documents that must carry a ticker.")] = 2,
    test: Annotated[int, typer.Option(help="Test documents.")] = 500,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Build the relevance data set: Chinese documents with the tickers that they are about, cut into words by jieba.

    Needs the extra text.

    Example: ripml datasets chinese news/ data/my_news --features tfidf
    """
    from ripml.cli.building import run_chinese

    run_chinese(source, folder, features.value, min_count, test, seed, as_json=json)


@datasets_app.command("get")
def datasets_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An original; see ripml datasets list.")],
    folder: Annotated[Path | None, typer.Option(help="Where to; RIPML_DATA otherwise.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The checksum you trust.")] = None,
    url: Annotated[str | None, typer.Option(help="Another address for the same file.")] = None,
) -> None:
    """Fetch the original of a data set and check it."""
    from ripml.cli.commands import run_datasets_get

    run_datasets_get(name, folder, sha256, url)
