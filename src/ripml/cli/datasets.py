"""`ripml datasets`: list, describe, download and build data sets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer

from ripml.cli import options, output

__all__ = ["app"]

app = Typer(help="List, describe, download and build data sets.", rich_markup_mode=None)

FeaturesOption = Annotated[options.TextFeatures, Option(help="The features to make from texts.")]
NewFolderArgument = Annotated[
    Path, Argument(metavar="FOLDER", help="The folder to create; inside RIPML_DATA it becomes a named data set.")
]
SeedOption = Annotated[int, Option(min=0, max=2**31 - 1, help="The seed for the sample and the split.")]


def complete_original(incomplete: str) -> list[str]:
    """Originals whose names begin like this."""
    from ripml.datasets.fetch import ORIGINALS

    return [name for name in ORIGINALS if name.startswith(incomplete)]


@app.command("list", short_help="List local data sets and downloads.")
def datasets_list(json: options.Json = False) -> None:
    """List the data sets on this machine, and the originals that can be downloaded.

    Example: RIPML_DATA=data ripml datasets list
    """
    from ripml import datasets

    local = datasets.available()
    urls = {name: original.url for name, original in datasets.fetch.ORIGINALS.items()}
    if json:
        output.print_json({"here": local, "originals": urls})
        return
    print(f"On this machine (ripml train NAME …): {', '.join(local)}\n")
    output.print_facts("Originals (ripml datasets get NAME):", urls)


@app.command("info", short_help="Count the rows, features and labels of a data set.")
def datasets_info(
    name: Annotated[
        str,
        Argument(metavar="NAME", help="A data set on this machine.", autocompletion=options.complete_dataset),
    ],
    json: options.Json = False,
) -> None:
    """Count the rows, features and labels of a data set.

    Example: ripml datasets info numpydoc
    """
    from ripml import datasets
    from ripml.cli.summaries import dataset_statistics

    train, test = (dataset_statistics(part) for part in datasets.load(name))
    if json:
        output.print_json({"train": train, "test": test})
        return
    rows = [[fact.replace("_", " "), f"{train[fact]:,}", f"{test[fact]:,}"] for fact in train]
    output.print_table(name, ["", "train", "test"], rows)


@app.command("get", short_help="Download the original of a data set.")
def datasets_get(
    name: Annotated[
        str,
        Argument(metavar="NAME", help="An original; see ripml datasets list.", autocompletion=complete_original),
    ],
    folder: Annotated[Path | None, Option(help="The folder to write to. Default: RIPML_DATA.")] = None,
    sha256: Annotated[str | None, Option(help="The expected checksum.")] = None,
    url: Annotated[str | None, Option(help="Another address of the same file.")] = None,
    json: options.Json = False,
) -> None:
    """Download the original of a data set, check it, and print its path.

    Example: ripml datasets get bibtex --folder originals
    """
    from ripml.datasets import fetch

    with output.progress_bar(f"downloading {name}", None, "bytes") as advance:
        received = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal received
            advance(done - received)
            received = done

        path = fetch.get(name, folder, sha256=sha256, url=url, progress=progress)
    output.print_result({"path": str(path)}, str(path), json)


@app.command("wikipedia", short_help="Build a data set from a Wikipedia dump.")
def datasets_wikipedia(
    dump: Annotated[Path, Argument(metavar="DUMP", help="pages-articles: .xml.bz2, .xml.gz or .xml.")],
    folder: NewFolderArgument,
    documents: Annotated[int | None, Option(help="The number of articles to sample. Default: all.")] = None,
    min_count: Annotated[int, Option(help="Keep labels that at least this many articles link to.")] = 10,
    test: Annotated[int, Option(help="The number of test documents, at most a fifth of all.")] = 10_000,
    features: FeaturesOption = "doc2vec",
    dims: Annotated[int, Option(help="The number of dimensions of doc2vec.")] = 400,
    targets: Annotated[
        Literal["articles", "any"],
        Option(help="The links that become labels: to articles of the dump, or to any page (for excerpts)."),
    ] = "articles",
    seed: SeedOption = 0,
    jobs: Annotated[int | None, Option("--jobs", help="Number of processes. Default: one per core.")] = None,
    json: options.Json = False,
) -> None:
    """Build the entity data set of the paper: articles, labelled with the articles that they link to.

    The dump is read as a stream by several processes. An interrupted build continues when the command is repeated.
    Requires the extra text.

    Example: ripml datasets wikipedia enwiki-latest-pages-articles.xml.bz2 data/wikipedia --documents 1000000
    """
    from ripml.lab import wikipedia

    with output.step_bars() as progress:
        summary = wikipedia.build(
            dump, folder, features=features, targets=targets, random_state=seed, progress=progress,
            n_documents=documents, min_count=min_count, n_test=test, n_dims=dims, n_jobs=jobs,
        )  # fmt: skip
    _print_built(folder, asdict(summary), json)


@app.command("chinese", short_help="Build a data set from documents with tickers.")
def datasets_chinese(
    source: Annotated[Path, Argument(metavar="SOURCE", help="A folder of .txt files and labels.csv, or a JSONL file.")],
    folder: NewFolderArgument,
    features: FeaturesOption = "doc2vec",
    min_count: Annotated[int, Option(help="Keep tickers that at least this many documents have.")] = 2,
    test: Annotated[int, Option(help="The number of test documents.")] = 500,
    seed: SeedOption = 0,
    json: options.Json = False,
) -> None:
    """Build the relevance data set of the paper: Chinese documents, labelled with the tickers that they are about.

    The texts are segmented into words by jieba. Requires the extra text.

    Example: ripml datasets chinese news/ data/my_news --features tfidf
    """
    from ripml.lab import chinese

    with output.working("building"):
        counts = chinese.build(source, folder, features=features, min_count=min_count, n_test=test, random_state=seed)
    _print_built(folder, {name.removeprefix("n_"): value for name, value in asdict(counts).items()}, json)


def _print_built(folder: Path, counts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json({"folder": str(folder), **counts})
    else:
        output.print_facts(f"Built {folder}", {name.replace("_", " "): f"{value:,}" for name, value in counts.items()})
