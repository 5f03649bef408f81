"""The commands that ask a model or look into it, or into what the paper says of it, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ripml.cli.options import (
    DataArgument,
    FormatOption,
    JobsOption,
    JsonOption,
    LabelsColumnOption,
    ModelArgument,
    TextColumnOption,
    data_names,
    form,
)
from ripml.cli.words import EnsembleWord

__all__ = ["asking_app"]

asking_app = typer.Typer(rich_markup_mode=None)

TextsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Texts; - or nothing for one from standard input.")
]
FilesOption = Annotated[
    list[str] | None, typer.Option("--file", metavar="FILE", help="A file that is a text; may be given again.")
]
RowsOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DATA", help="Rows of a file, - for standard input.", autocompletion=data_names),
]


@asking_app.command(short_help="Suggest labels for texts.")
def suggest(
    model: ModelArgument,
    texts: TextsArgument = None,
    files: FilesOption = None,
    data: RowsOption = None,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    n: Annotated[int | None, typer.Option("--top", "-n", help="How many labels at most; 5 as a rule.")] = None,
    threshold: Annotated[
        str | None,
        typer.Option(metavar="X|auto", help="Labels whose score reaches this; auto: what was learnt in training."),
    ] = None,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Suggest labels for a text, best first, with their scores; the same as in Python and by HTTP.

    A text is the same from the command line, from a file and from standard input. For one text there is a line for each
    label, with its score behind a tab; of several, each line begins with the id or number of the text. On a terminal
    scores are drawn as bars. With --json there is a line for each text.

    Example: ripml suggest model/ "The invoice was paid twice" --top 3

    Example: ripml suggest model/ --file letter.txt --threshold auto --json

    Example: curl -s https://example.org/article.txt | ripml suggest model/
    """
    from ripml.cli.asking import run_suggest
    from ripml.cli.questions import Words

    run_suggest(
        model, Words(texts or [], files or [], data, form(format, text_column)), n, threshold, jobs, as_json=json
    )


@asking_app.command(short_help="Print the labels of each row.")
def predict(
    model: ModelArgument,
    data: DataArgument,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
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
    from ripml.cli.asking import run_predict

    run_predict(model, data, form(format, text_column), n, sets, probabilities, jobs, as_json=json)


@asking_app.command(short_help="Compare a model with a file's labels.")
def evaluate(
    model: ModelArgument,
    data: DataArgument,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    labels_column: LabelsColumnOption = None,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the model's answers with the labels of a file.

    Example: ripml evaluate model/ test.txt.gz
    """
    from ripml.cli.asking import run_evaluate

    run_evaluate(model, data, form(format, text_column, labels_column), jobs, as_json=json)


@asking_app.command(short_help="Say why texts get their labels.")
def explain(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Texts; - or nothing for one from standard input. One that is the name of a data file stands for it.",
            autocompletion=data_names,
        ),
    ] = None,
    files: FilesOption = None,
    data: RowsOption = None,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    n: Annotated[int, typer.Option("--top", "-n", help="How many labels for each text.")] = 3,
    examples: Annotated[int, typer.Option(help="How many examples for each label.")] = 3,
    features: Annotated[int, typer.Option(help="How many words or features for each label.")] = 8,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Say why a text, or each row of a file, gets its labels: by which examples, and by which words or features.

    An example is a document, or a set of labels that stands for all documents that carry exactly these; its share is
    its part of the label's score. A store names the documents by their ids, a model by row numbers from 0. Beside each
    word or feature is how far it pulled towards the label, or with a minus away from it.

    Example: ripml explain store/ "The invoice was paid twice" --top 1

    Example: ripml explain store/ new.jsonl --json
    """
    from ripml.cli.explaining import run_explain
    from ripml.cli.questions import Words

    words = Words(texts or [], files or [], data, form(format, text_column))
    run_explain(model, words, n, examples, features, jobs, as_json=json)


@asking_app.command(short_help="Look into a model, a store or a data set.")
def inspect(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The folder of a model or a store, a data file, or a data set's name.")
    ],
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    labels_column: LabelsColumnOption = None,
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

    run_inspect(
        path, form(format, text_column, labels_column), ensemble.value, dims, delta, quantile, seed, plot, as_json=json
    )


@asking_app.command(short_help="Run the paper's experiments again.")
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
