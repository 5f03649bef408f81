"""The commands that answer with a model: `ripml suggest`, `predict`, `evaluate` and `explain`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ripml.base.errors import DataError, ParameterError
from ripml.cli.options import (
    DataArgument,
    FileOptions,
    FormatOption,
    JobsOption,
    JsonOption,
    LabelsColumnOption,
    ModelArgument,
    TextColumnOption,
    complete_data,
)
from ripml.cli.output import (
    NO_LABELS,
    count,
    join_printable,
    print_json,
    print_rate,
    print_scores,
    print_table,
    print_tree,
    printable,
    progress_bar,
    working,
)

if TYPE_CHECKING:
    from ripml.cli.inputs import Queries, QueryArguments
    from ripml.model.explain import Example
    from ripml.store import Store
    from ripml.tagging.documents import DocumentModel, Why
    from ripml.tagging.rules import Suggestion

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

TextsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Texts; - or nothing for one from standard input.")
]
FilesOption = Annotated[
    list[str] | None, typer.Option("--file", metavar="FILE", help="A file that contains one text. Can be repeated.")
]
RowsOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help="A file of rows, - for standard input, or the name of a data set.",
        autocompletion=complete_data,
    ),
]

_BLOCK_ROWS = 2048  # rows that are answered at a time, between two steps of the progress bar
_UNKNOWN_ROW = "no feature or word that the model knows, and therefore no labels"


# ------------------------------------------------------------------------------------------------------------- suggest


@app.command(short_help="Suggest labels for texts.")
def suggest(
    model: ModelArgument,
    texts: TextsArgument = None,
    files: FilesOption = None,
    data: RowsOption = None,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    n: Annotated[int | None, typer.Option("--top", "-n", min=1, help="Maximum number of labels. Default: 5.")] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="X|auto",
            help="Only labels whose score is at least this; auto for the threshold that was learnt in training.",
        ),
    ] = None,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Suggest labels for texts, best first, with their scores: the same answers as in Python and over HTTP.

    For a single text, each line holds a label and its score, separated by a tab; for several texts, each line begins
    with the id or the number of the text. On a terminal the scores are drawn as bars. --json prints one line per text.

    Example: ripml suggest model/ "The invoice was paid twice" --top 3

    Example: ripml suggest model/ --file letter.txt --threshold auto --json

    Example: curl -s https://example.org/article.txt | ripml suggest model/
    """
    from ripml.cli.inputs import QueryArguments

    queries = QueryArguments(texts or [], files or [], data, FileOptions(format, text_column))
    _suggest(model, queries, n, threshold, jobs, json)


def _suggest(
    folder: Path, arguments: QueryArguments, n: int | None, threshold: str | None, jobs: int | None, as_json: bool
) -> None:
    from ripml.cli.inputs import open_model

    arguments.check()
    trained, _ = open_model(folder)
    queries = arguments.read(trained, folder)
    trained.model.set_params(n_jobs=jobs)
    changes = {"n": n, "threshold": None if threshold is None else _parse_threshold(threshold)}
    rules = trained.rules.but(**{name: value for name, value in changes.items() if value is not None})
    number = n_empty = 0
    with queries.progress() as advance:
        for block in queries.blocks(_BLOCK_ROWS):
            for labels in trained.suggest(block, rules):
                _print_suggestions(labels, queries, number, as_json)
                number += 1
                n_empty += not labels
            advance(len(block))
    if n_empty and not as_json and not sys.stdout.isatty():
        which = "no labels" if len(queries) == 1 else f"no labels for {n_empty:,} of {len(queries):,} texts"
        print(f"{which}: {NO_LABELS}", file=sys.stderr)


def _parse_threshold(word: str) -> float | str:
    try:
        return word if word == "auto" else float(word)
    except ValueError:
        raise ParameterError(f"--threshold must be a number or auto; got {word!r}.") from None


def _print_suggestions(labels: Sequence[Suggestion], queries: Queries, number: int, as_json: bool) -> None:
    """Print the labels of one text: as a line of JSON, as bars on a terminal, or one tab-separated line per label."""
    if as_json:
        pairs = [{"label": label, "score": score} for label, score in labels]
        print_json({**queries.record(number), "labels": pairs})
        return
    id = queries.id(number)
    name = printable(str(number) if id is None else id)
    if sys.stdout.isatty():
        if len(queries) > 1:
            print(name)
        print_scores([(printable(label), score) for label, score in labels])
        return
    first = [name] if len(queries) > 1 else []
    for label, score in labels:
        print("\t".join([*first, printable(label), f"{score:.4f}"]))


# ------------------------------------------------------------------------------------------------------------- predict


@app.command(short_help="Print the labels of each row of a file.")
def predict(
    model: ModelArgument,
    data: DataArgument,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    n: Annotated[int, typer.Option("--top", "-n", min=1, help="Maximum number of labels per row.")] = 5,
    sets: Annotated[
        bool, typer.Option("--sets", help="All labels above the threshold of the model, instead of the best few.")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Calibrated probabilities instead of scores.")
    ] = False,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Print the labels of each row of a file, best first, one row per line: label, score, label, score, …

    A line begins with the id of the row, if it has one. A row without any word or feature that the model knows has no
    labels.

    Example: ripml predict model/ new.jsonl --top 3 --json
    """
    _predict(model, data, FileOptions(format, text_column), n, sets, probabilities, jobs, json)


def _predict(
    folder: Path,
    data: str,
    options: FileOptions,
    n: int,
    sets: bool,
    probabilities: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    import numpy as np

    from ripml.cli.inputs import open_model, read_rows
    from ripml.tagging.rules import Rules

    trained, _ = open_model(folder)
    model = trained.model
    if probabilities and not hasattr(model, "predict_proba"):
        raise ParameterError(f"--probabilities requires a RIPML model; {folder} holds {type(model).__name__}.")
    model.set_params(n_jobs=jobs)
    rows = read_rows(data, options, trained, test=True)
    X, names = trained.features(rows), [str(name) for name in model.classes_]
    rules = Rules(n=None, threshold="auto", min_count=0) if sets else Rules(n=n, min_count=0)
    value_name = "probability" if probabilities else "score"
    number = n_unknown = 0
    with progress_bar("predicting", len(rows)) as advance:
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = X[start : start + _BLOCK_ROWS]
            scores = model.decision_function(block)
            best = rules.kept(model, scores)
            if probabilities:  # labels stay in the order of the scores, which have fewer ties
                row = np.repeat(np.arange(best.shape[0]), np.diff(best.indptr))
                best.data = np.asarray(model.predict_proba(block)[row, best.indices]).ravel()
            n_unknown += int((np.diff(scores.indptr) == 0).sum())
            for first, last in zip(best.indptr[:-1], best.indptr[1:], strict=True):
                columns, values = best.indices[first:last].tolist(), best.data[first:last].tolist()
                labels = [(names[j], value) for j, value in zip(columns, values, strict=True)]
                _print_prediction(labels, None if rows.ids is None else rows.ids[number], value_name, as_json)
                number += 1
            advance(best.shape[0])
    if n_unknown:
        which = f"{count(n_unknown, 'row')} {'has' if n_unknown == 1 else 'have'}"
        print(f"{which} {_UNKNOWN_ROW}", file=sys.stderr)


def _print_prediction(labels: Sequence[Suggestion], id: str | None, value_name: str, as_json: bool) -> None:
    if as_json:
        record = {} if id is None else {"id": id}
        print_json({**record, "labels": [{"label": name, value_name: value} for name, value in labels]})
    else:
        cells = [cell for name, value in labels for cell in (name, f"{value:.4f}")]
        print("\t".join(map(printable, cells if id is None else [id, *cells])))


# ------------------------------------------------------------------------------------------------------------ evaluate


@app.command(short_help="Measure a model on labelled rows.")
def evaluate(
    model: ModelArgument,
    data: DataArgument,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    labels_column: LabelsColumnOption = None,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the predictions of a model with the labels of a file.

    Example: ripml evaluate model/ test.txt.gz
    """
    _evaluate(model, data, FileOptions(format, text_column, labels_column), jobs, json)


def _evaluate(folder: Path, data: str, options: FileOptions, jobs: int | None, as_json: bool) -> None:
    from ripml.cli.inputs import open_model, read_rows

    trained, _ = open_model(folder)
    trained.model.set_params(n_jobs=jobs)
    rows = read_rows(data, options, trained, test=True)
    start = time.perf_counter()
    with working("predicting"):
        report = trained.evaluate(rows)
    print_rate("predicting", len(rows), len(rows) / max(time.perf_counter() - start, 1e-9))
    n_labelled = int((rows.Y.indptr[1:] > rows.Y.indptr[:-1]).sum())
    if as_json:
        print_json({"rows": n_labelled, "rows_without_labels": len(rows) - n_labelled, **report})
        return
    ranked = [name.removesuffix("@1") for name in report if name.endswith("@1")]
    lines = [[name, *(f"{100 * report[f'{name}@{k}']:.2f}" for k in (1, 3, 5))] for name in ranked]
    print_table(f"{rows.name or data}: {n_labelled:,} labelled rows, in percent", ["metric", "@1", "@3", "@5"], lines)
    f1 = ", ".join(f"{name} {100 * report[name]:.2f}" for name in ("micro F1", "macro F1"))
    print(f"label sets above the threshold: {f1}")


# ------------------------------------------------------------------------------------------------------------- explain

_EXPLAIN_BLOCK_ROWS = 256
_TITLE_LENGTH = 72  # characters of a text that are printed as its title
_SEARCHED_FEATURES = 10_000  # that are searched for whole words
_LETTER_GROUPS = 3  # that are shown at most
_NAMED_DOCUMENTS = 3  # of those with the same labels


@app.command(short_help="Explain why texts get their labels.")
def explain(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Texts; - or nothing for one from standard input. The name of a data file stands for its rows.",
            autocompletion=complete_data,
        ),
    ] = None,
    files: FilesOption = None,
    data: RowsOption = None,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    n: Annotated[int, typer.Option("--top", "-n", min=1, help="Maximum number of labels per text.")] = 3,
    examples: Annotated[int, typer.Option(min=1, help="Maximum number of examples per label.")] = 3,
    features: Annotated[int, typer.Option(min=1, help="Maximum number of words or features per label.")] = 8,
    jobs: JobsOption = None,
    json: JsonOption = False,
) -> None:
    """Explain the labels of a text, or of each row of a file, by training examples and by words or features.

    An example is a document, or a set of labels that stands for all documents with exactly these labels; its share is
    its part of the label's score. A store names documents by their ids, a model by row numbers that begin with 0. The
    number after a word or feature says how strongly it speaks for the label, or against it if it is negative.

    Example: ripml explain store/ "The invoice was paid twice" --top 1

    Example: ripml explain store/ new.jsonl --json
    """
    from ripml.cli.inputs import QueryArguments

    queries = QueryArguments(texts or [], files or [], data, FileOptions(format, text_column))
    _explain(model, queries.with_text_as_data(), n, examples, features, jobs, json)


def _explain(
    folder: Path,
    arguments: QueryArguments,
    n: int,
    n_examples: int,
    n_features: int,
    jobs: int | None,
    as_json: bool,
) -> None:
    from ripml.cli.inputs import open_model

    arguments.check()
    trained, store = open_model(folder)
    if not hasattr(trained.model, "explain"):
        raise ParameterError(
            f"only RIPML models can be explained; {folder} holds {type(trained.model).__name__}, which cannot."
        )
    trained.model.set_params(n_jobs=jobs)
    queries, rules = arguments.read(trained, folder), trained.rules.but(n=n)
    formatter = _ExplanationFormatter(trained, store, n_examples, n_features)
    # The text output merges examples and prefers whole words, so it selects from more than it shows.
    limits = (n_examples, n_features) if as_json else (2 * n_examples, _SEARCHED_FEATURES)
    number = 0
    with queries.progress() as advance:
        for block in queries.blocks(_EXPLAIN_BLOCK_ROWS):
            for labels in trained.explain(block, rules, *limits):
                if as_json:
                    print_json({**queries.record(number), "labels": [formatter.to_json(label) for label in labels]})
                else:
                    title = _title(queries, number) + ("" if labels else f" has {_UNKNOWN_ROW}")
                    print_tree(title, [formatter.to_text(label) for label in labels])
                number += 1
            advance(len(block))


def _title(queries: Queries, number: int) -> str:
    """The id of a query, its row number, or the beginning of its text."""
    id = queries.id(number)
    if id is not None or not isinstance(queries.rows, list):
        return f"row {number:,}" if id is None else printable(id)
    text = " ".join(queries.rows[number].split())
    return printable(text if len(text) <= _TITLE_LENGTH else text[:_TITLE_LENGTH] + "…")


class _ExplanationFormatter:
    """Turns explanations into JSON or text, with the ids of documents if there is a store."""

    def __init__(self, trained: DocumentModel, store: Store | None, n_examples: int, n_features: int) -> None:
        from ripml.text import TfIdf

        self._trained, self._store = trained, store
        self._n_examples, self._n_features = n_examples, n_features
        self._feature_noun = "features" if trained.text is None else "words"
        self._has_letter_groups = isinstance(trained.text, TfIdf)

    def to_json(self, why: Why) -> dict[str, Any]:
        """As `Why.to_json`, and with a store the ids of the documents of each example."""
        explanation = why.to_json()
        for record, example in zip(explanation["examples"], why.examples, strict=True):
            record["labels"] = [str(label) for label in example.labels]
            if self._store is not None:
                record["documents"] = self._document_ids(example)
        return explanation

    def to_text(self, why: Why) -> tuple[str, list[str]]:
        """The label with its score, and one line for each example, for the rest of the score and for the features."""
        examples = merge_examples(why.examples)
        others = why.others + sum(example.share for example in examples[self._n_examples :])
        parts = [(example.share, self._format_example(example)) for example in examples[: self._n_examples]]
        rest = [(others, "other examples"), (why.regression, f"the regression, by its {self._feature_noun}")]
        parts += [part for part in rest if part[0] > 0]
        lines = [f"{100 * share / why.score if why.score else 0:3.0f} %  {source}" for share, source in parts]
        if why.features:
            features = (f"{printable(str(name))} {weight:+.3f}" for name, weight in self._shown_features(why))
            lines.append(f"{self._feature_noun}: {', '.join(features)}")
        return f"{printable(str(why.label))}  {why.score:.4f}", lines

    def _document_ids(self, example: Example) -> list[str]:
        """The document that the example is, or the first documents with its labels; empty without a store."""
        if self._store is None:
            return []
        if example.row is not None:
            return list(self._store.rows([example.row], self._trained).values())
        with contextlib.suppress(DataError):  # a writer can have renamed one of the labels meanwhile
            return self._store.carriers(example.labels, _NAMED_DOCUMENTS)
        return []

    def _format_example(self, example: Example) -> str:
        ids = self._document_ids(example)
        if ids:
            n_more = max(example.n_rows - len(ids), 0)
            noun = "document" if len(ids) + n_more == 1 else "documents"
            source = f"{noun} {join_printable(ids)}" + (f" and {n_more:,} more" if n_more else "")
        elif example.row is not None:
            source = f"row {example.row:,}"
        else:
            source = count(example.n_rows, "row")
        return f"{source}: {join_printable(example.labels)}"

    def _shown_features(self, why: Why) -> list[tuple[Any, float]]:
        """Whole words first, then a few groups of letters (which begin or end with a hyphen) if there is room."""
        if not self._has_letter_groups:
            return why.features[: self._n_features]
        groups = [feature for feature in why.features if "-" in (feature[0][:1], feature[0][-1:])]
        words = [feature for feature in why.features if "-" not in (feature[0][:1], feature[0][-1:])]
        words = words[: self._n_features]
        return words + groups[: min(_LETTER_GROUPS, self._n_features - len(words))]


def merge_examples(examples: Sequence[Example]) -> list[Example]:
    """The examples, largest share first; a label set that stands for one row is merged with that row, if it is listed.

    >>> from ripml.model.explain import Example
    >>> row, votes = Example(("a",), 0.25, 1, 7, 0, "similar"), Example(("a",), 0.5, 1, None, 0, "votes")
    >>> [(example.row, example.share) for example in merge_examples([votes, row])]
    [(7, 0.75)]
    """
    rows = {(example.cluster, example.labels): i for i, example in enumerate(examples) if example.row is not None}
    merged = dict(enumerate(examples))
    for i, example in enumerate(examples):
        row = rows.get((example.cluster, example.labels))
        if example.row is None and example.n_rows == 1 and row is not None:
            merged[row] = replace(merged[row], share=merged[row].share + merged.pop(i).share)
    return sorted(merged.values(), key=lambda example: -example.share)
