"""The commands that list, describe, fetch and build data sets, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ripml.cli.options import JsonOption, set_names
from ripml.cli.words import Targets, TextFeatures

__all__ = ["datasets_app"]

datasets_app = typer.Typer(help="List, describe, fetch, build data sets.", rich_markup_mode=None)

FeaturesOption = Annotated[TextFeatures, typer.Option(help="What texts become.")]
NewFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder to make; inside RIPML_DATA, a named set.")
]


def originals(incomplete: str) -> list[str]:
    """What a shell may complete the name of an original to."""
    from ripml.datasets.fetch import ORIGINALS

    return [name for name in ORIGINALS if name.startswith(incomplete)]


SeedOption = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Draws sample and split.")]


@datasets_app.command("list", short_help="List what is here and what can be fetched.")
def datasets_list(json: JsonOption = False) -> None:
    """List the data sets that are here, and the originals that can be fetched.

    Example: RIPML_DATA=data ripml datasets list
    """
    from ripml.cli.listing import run_datasets_list

    run_datasets_list(as_json=json)


@datasets_app.command("info", short_help="Count rows, features and labels of a data set.")
def datasets_info(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set that is here.", autocompletion=set_names)],
    json: JsonOption = False,
) -> None:
    """Count rows, features and labels of a data set.

    Example: ripml datasets info numpydoc
    """
    from ripml.cli.listing import run_datasets_info

    run_datasets_info(name, as_json=json)


@datasets_app.command("wikipedia", short_help="Build a set from a dump of Wikipedia.")
def datasets_wikipedia(
    dump: Annotated[Path, typer.Argument(metavar="DUMP", help="pages-articles: .xml.bz2, .xml.gz or .xml.")],
    folder: NewFolder,
    documents: Annotated[int | None, typer.Option(help="Sample so many articles; all otherwise.")] = None,
    min_count: Annotated[int, typer.Option(help="Documents that must link to an entity.")] = 10,
    test: Annotated[int, typer.Option(help="Test documents; a fifth of all at most.")] = 10_000,
    features: FeaturesOption = TextFeatures.doc2vec,
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
    features: FeaturesOption = TextFeatures.doc2vec,
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


@datasets_app.command("get", short_help="Fetch the original of a data set and check it.")
def datasets_get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An original; see ripml datasets list.", autocompletion=originals)
    ],
    folder: Annotated[Path | None, typer.Option(help="Where to; RIPML_DATA otherwise.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The checksum you trust.")] = None,
    url: Annotated[str | None, typer.Option(help="Another address for the same file.")] = None,
    json: JsonOption = False,
) -> None:
    """Fetch the original of a data set, check it, and print where it is.

    Example: ripml datasets get bibtex --folder originals
    """
    from ripml.cli.listing import run_datasets_get

    run_datasets_get(name, folder, sha256, url, as_json=json)
