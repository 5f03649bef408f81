"""The commands that answer with a model: `ripml suggest`, `predict`, `evaluate` and `explain`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option, Typer

from ripml.base.errors import ParameterError
from ripml.cli import options, output

if TYPE_CHECKING:
    from ripml.cli.inputs import Queries
    from ripml.model.explain import Example
    from ripml.store import Store
    from ripml.tagging.documents import DocumentModel, Why
    from ripml.tagging.rules import Rules, Suggestion

__all__ = ["app"]

app = Typer(rich_markup_mode=None)

_TEXTS_HELP = "Texts; - or nothing for one from standard input."
FilesOption = Annotated[list[str] | None, Option("--file", metavar="FILE", help="A file with one text; repeatable.")]
RowsOption = Annotated[
    str | None,
    Option("--data", metavar="DATA", help="A file of rows, - or a data set.", autocompletion=options.complete_data),
]

MinCountOption = Annotated[int | None, Option(min=0, help="Only labels that at least this many documents have.")]
MaxCountOption = Annotated[int | None, Option(min=0, help="Only labels that at most this many documents have.")]

CoverageOption = Annotated[
    float | None, Option(metavar="SHARE", help="Sets that hold this share of the right labels on average, e.g. 0.9.")
]
PerLabelOption = Annotated[bool, Option("--per-label", help="With --coverage, for each label with enough rows.")]

_BLOCK_ROWS = 2048  # rows that are answered at a time, between two steps of the progress bar
_UNKNOWN_ROW = "no feature or word that the model knows, and therefore no labels"


def _parse_threshold(word: str) -> float | str:
    try:
        return word if word == "auto" else float(word)
    except ValueError:
        raise typer.BadParameter(f"{word!r} is neither a number nor auto.") from None


@app.command(short_help="Suggest labels for texts.")
def suggest(
    model: options.Model,
    texts: Annotated[list[str] | None, Argument(metavar="TEXT", help=_TEXTS_HELP)] = None,
    files: FilesOption = None,
    data: RowsOption = None,
    format: options.Format = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    n: Annotated[int | None, Option("--top", "-n", min=1, help="Maximum number of labels. Default: 5.")] = None,
    threshold: Annotated[
        Any,
        Option(metavar="X|auto", parser=_parse_threshold, help="Minimum score; auto for the threshold of the model."),
    ] = None,
    min_count: MinCountOption = None,
    max_count: MaxCountOption = None,
    coverage: CoverageOption = None,
    per_label: PerLabelOption = False,
    language: options.Language = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Suggest labels for texts, best first, with their scores: the same answers as in Python and over HTTP.

    For a single text, each line holds a label and its score, separated by a tab; for several texts, each line begins
    with the id or the number of the text. On a terminal the scores are drawn as bars. --json prints one line per text.
    If the model has a vocabulary, a terminal shows names in place of labels, lines have them in a third column, and
    JSON has them under "names". --max-count 0 suggests only labels that no document has, which are found by the names
    that the vocabulary gives them. With --coverage, --top and --threshold do not apply. A text that is
    unlike anything known is told so; JSON has its familiarity, the share of training texts that are no more familiar.

    Example: ripml suggest model/ "The invoice was paid twice" --top 3

    Example: ripml suggest model/ --file letter.txt --threshold auto --json

    Example: curl -s https://example.org/article.txt | ripml suggest model/
    """
    from ripml.cli.inputs import open_queries
    from ripml.tagging.familiarity import UNFAMILIAR

    trained, _, queries = open_queries(
        model, texts, files, data, options.FileOptions(format, text_column, encoding=encoding, sheet=sheet)
    )
    trained.model.set_params(n_jobs=jobs)
    changes = {"n": n, "threshold": threshold, "min_count": min_count, "max_count": max_count}
    changes |= {"coverage": coverage, "per_label": per_label or None}
    rules, n_empty = trained.rules.but(**{name: value for name, value in changes.items() if value is not None}), 0
    languages = options.reader_languages(language)
    n_strange = 0
    for number, (labels, familiarity) in enumerate(
        queries.answers(lambda block: _suggestions(trained, block, rules), _BLOCK_ROWS)
    ):
        names = None if trained.concepts is None else trained.names((label for label, _ in labels), *languages)
        _print_suggestions(labels, names, familiarity, queries, number, json)
        n_empty += not labels
        n_strange += familiarity is not None and familiarity <= UNFAMILIAR
    if n_strange and not json:
        which = "the text is" if len(queries) == 1 else f"{n_strange:,} of {len(queries):,} texts are"
        print(f"{which} unlike anything that the model knows", file=sys.stderr)
    if n_empty and not json and not sys.stdout.isatty():
        which = "no labels" if len(queries) == 1 else f"no labels for {n_empty:,} of {len(queries):,} texts"
        print(f"{which}: {output.NO_LABELS}", file=sys.stderr)


def _suggestions(trained: DocumentModel, rows: Any, rules: Rules) -> list[tuple[list[Suggestion], float | None]]:
    """For each row its labels, and how familiar it is, if that is known."""
    labels = trained.suggest(rows, rules)
    familiarity: Sequence[float | None] = trained.familiarity(rows) or [None] * len(labels)
    return list(zip(labels, familiarity, strict=True))


def _print_suggestions(
    labels: Sequence[Suggestion],
    names: dict[str, str] | None,
    familiarity: float | None,
    queries: Queries,
    number: int,
    as_json: bool,
) -> None:
    """Print the labels of one text: as a line of JSON, as bars on a terminal, or one tab-separated line per label.

    `names` are those of a vocabulary.
    """
    if as_json:
        pairs = [{"label": label, "score": score} for label, score in labels]
        extra = {"familiarity": familiarity, "names": names}
        known = {name: value for name, value in extra.items() if value is not None}
        output.print_json({**queries.record(number), "labels": pairs, **known})
        return
    id = output.printable(queries.id(number) or str(number))
    if sys.stdout.isatty():
        if len(queries) > 1:
            print(id)
        output.print_scores([(output.printable((names or {}).get(label, label)), score) for label, score in labels])
        return
    for label, score in labels:
        name = [] if names is None else [names.get(label, "")]
        line = [*([id] if len(queries) > 1 else []), label, f"{score:.4f}", *name]
        print("\t".join(map(output.printable, line)))


@app.command(short_help="Add suggested labels to a table.")
def tag(
    model: options.Model,
    data: options.Data,
    target: Annotated[Path, Argument(metavar="FILE", help="A new file: .csv, .tsv or .jsonl.")],
    format: options.Format = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    n: Annotated[int | None, Option("--top", "-n", min=1, help="Maximum number of labels. Default: 5.")] = None,
    threshold: Annotated[
        Any,
        Option(metavar="X|auto", parser=_parse_threshold, help="Minimum score; auto for the threshold of the model."),
    ] = None,
    min_count: MinCountOption = None,
    max_count: MaxCountOption = None,
    coverage: CoverageOption = None,
    per_label: PerLabelOption = False,
    language: options.Language = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Write the rows of a table to a new one, with suggested labels in the column tags and their scores in scores.

    DATA is a table (CSV, Excel, JSONL, Parquet), whose columns are kept, or a folder of documents (PDF, DOCX, HTML,
    e-mail, text), whose names are in the column id. In CSV, labels and scores are separated by |. After an
    interruption, repeat the command: finished rows are in FILE.part, and each row is written once, in order.

    Example: ripml tag model/ tickets.xlsx tagged.csv --text-column Title --text-column Body
    """
    from ripml.cli.inputs import model_version, open_model
    from ripml.tagging.batch import tag_file

    trained, store = open_model(model)
    trained.model.set_params(n_jobs=jobs)
    changes = {"n": n, "threshold": threshold, "min_count": min_count, "max_count": max_count}
    changes |= {"coverage": coverage, "per_label": per_label or None}
    rules = trained.rules.but(**{name: value for name, value in changes.items() if value is not None})
    file = options.FileOptions(format, text_column, encoding=encoding, sheet=sheet)
    version, languages = model_version(model, store), options.reader_languages(language)
    with output.warnings_as_lines(), output.reading_notes(), output.progress_bar("tagging", None) as advance:
        tagged = tag_file(
            trained, data, target, format, rules=rules, version=version, languages=languages, progress=advance,
            **file.columns(),
        )  # fmt: skip
    resumed = f", {tagged.resumed:,} of them by an earlier run" if tagged.resumed else ""
    empty = f"; {tagged.without_labels:,} without labels" if tagged.without_labels else ""
    output.print_result(asdict(tagged), f"{output.count(tagged.rows, 'row')} written to {target}{resumed}{empty}", json)


@app.command(short_help="Print the labels of each row of a file.")
def predict(
    model: options.Model,
    data: options.Data,
    format: options.Format = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    n: Annotated[int, Option("--top", "-n", min=1, help="Maximum number of labels per row.")] = 5,
    sets: Annotated[bool, Option("--sets", help="All labels above the threshold, not the best few.")] = False,
    coverage: CoverageOption = None,
    per_label: PerLabelOption = False,
    probabilities: Annotated[bool, Option("--probabilities", help="Calibrated probabilities, not scores.")] = False,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Print the labels of each row of a file, best first, one row per line: label, score, label, score, …

    A line begins with the id of the row, if it has one. A row without any word or feature that the model knows has no
    labels.

    Example: ripml predict model/ new.jsonl --top 3 --json
    """
    from ripml.cli.inputs import Queries, open_model, read_rows
    from ripml.tagging.rules import Rules

    trained, _ = open_model(model)
    if probabilities and not hasattr(trained.model, "scores_and_probabilities"):
        held = type(trained.model).__name__
        raise ParameterError(f"--probabilities requires a RIPML model; {model} holds {held}.")
    trained.model.set_params(n_jobs=jobs)
    rows = read_rows(data, options.FileOptions(format, text_column, encoding=encoding, sheet=sheet), trained, test=True)
    queries = Queries(rows, rows.ids)
    rules = Rules(None if sets else n, "auto" if sets else None, coverage=coverage, per_label=per_label)
    answers = queries.answers(lambda block: _predictions(trained, block, rules, probabilities), _BLOCK_ROWS)
    value_name, n_unknown = "probability" if probabilities else "score", 0
    for number, (labels, is_known) in enumerate(answers):
        n_unknown += not is_known
        if json:
            pairs = [{"label": name, value_name: value} for name, value in labels]
            output.print_json({**queries.record(number), "labels": pairs})
        else:
            cells = [cell for name, value in labels for cell in (name, f"{value:.4f}")]
            print("\t".join(map(output.printable, [*queries.record(number).values(), *cells])))
    if n_unknown:
        which = f"{output.count(n_unknown, 'row')} {'has' if n_unknown == 1 else 'have'}"
        print(f"{which} {_UNKNOWN_ROW}", file=sys.stderr)


def _predictions(
    trained: DocumentModel, rows: Any, rules: Rules, probabilities: bool
) -> list[tuple[list[Suggestion], bool]]:
    """For each row its labels with their scores or probabilities, and whether the model knows a feature of it."""
    import numpy as np

    from ripml.tagging.rules import named

    model: Any = trained.model
    X = trained.features(rows)
    scores, calibrated = model.scores_and_probabilities(X) if probabilities else (model.decision_function(X), None)
    best = rules.kept(model, scores, X)
    if calibrated is not None and best.nnz:  # the labels stay in the order of the scores, which have fewer ties
        best.data = calibrated[np.repeat(np.arange(best.shape[0]), np.diff(best.indptr)), best.indices]
    return list(zip(named(model, best), (np.diff(scores.indptr) > 0).tolist(), strict=True))


@app.command(short_help="Say how much can be applied unseen.")
def automation(
    model: options.Model,
    precision: Annotated[
        list[float] | None, Option(min=0, max=1, help="A precision that is wanted; repeatable. Default: 0.8 to 0.99.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Print which share of labels, or of rows, can be applied without being looked at, for a wanted precision.

    The precision is that of training rows that were left out; that of new rows is, with a confidence of 95 %, at least
    what "at least" says, which is what reaches the wanted one. Labels: all with a score of at least the threshold are
    applied; the share is that of all right labels. Rows: a row gets all labels of its set (ripml predict --sets) if the
    mean of their probabilities is at least the threshold; the share is that of all rows.

    Example: ripml automation model/ --precision 0.95
    """
    from ripml.cli.inputs import open_model
    from ripml.model.estimator import AUTOMATION, RIPML

    trained, _ = open_model(model)
    estimator = trained.model
    if not isinstance(estimator, RIPML):
        held = type(estimator).__name__
        raise ParameterError(f"{model} holds {held}, which keeps no scores of left-out rows; RIPML does.")
    curves = estimator.automation(precision or AUTOMATION)
    if json:
        output.print_json(curves)
        return
    for what, curve in curves.items():
        if not curve:
            print(f"{what} that can be applied unseen: too few left-out rows to promise a precision")
            continue
        lines = [
            [*(f"{100 * one[name]:.1f} %" for name in ("least", "precision", "share")), f"{one['threshold']:.3f}"]
            for one in curve
        ]
        columns = ["at least", "precision", "share", "threshold"]
        output.print_table(f"{what} that can be applied unseen", columns, lines)


@app.command(short_help="Measure a model on labelled rows.")
def evaluate(
    model: options.Model,
    data: options.Data,
    format: options.Format = None,
    text_column: options.TextColumn = None,
    labels_column: options.LabelsColumn = None,
    tag_separator: options.TagSeparator = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Compare the predictions of a model with the labels of a file.

    The calibration error is the mean distance between probabilities and how often they are right: for all labels that
    have a score, and apart for labels that no training row has (unseen), up to five (rare) and more (frequent).

    Example: ripml evaluate model/ test.txt.gz
    """
    from ripml.cli.inputs import open_model, read_rows

    trained, _ = open_model(model)
    trained.model.set_params(n_jobs=jobs)
    rows = read_rows(
        data,
        options.FileOptions(format, text_column, labels_column, tag_separator, encoding, sheet),
        trained,
        test=True,
    )
    start = time.perf_counter()
    with output.working("predicting"):
        report = trained.evaluate(rows)
    output.print_rate("predicting", len(rows), len(rows) / max(time.perf_counter() - start, 1e-9))
    n_labelled = int((rows.Y.indptr[1:] > rows.Y.indptr[:-1]).sum())
    carried = {rows.label_names[column] for column in set(rows.Y.indices.tolist())}
    if unknown := sorted(carried.difference(map(str, trained.model.classes_.tolist()))):
        what = f"the model does not know {len(unknown):,} of the {output.count(len(carried), 'label')}"
        print(
            f"ripml: warning: {what}, such as {output.printable(repr(unknown[0]))}; they count as missed.",
            file=sys.stderr,
        )
    if json:
        output.print_json({"rows": n_labelled, "rows_without_labels": len(rows) - n_labelled, **report})
        return
    ranked = [name.removesuffix("@1") for name in report if name.endswith("@1")]
    lines = [[name, *(f"{100 * report[f'{name}@{k}']:.2f}" for k in (1, 3, 5))] for name in ranked]
    title = f"{rows.name or data}: {n_labelled:,} labelled rows, in percent"
    output.print_table(title, ["metric", "@1", "@3", "@5"], lines)
    f1 = ", ".join(f"{name} {100 * report[name]:.2f}" for name in ("micro F1", "macro F1"))
    print(f"label sets above the threshold: {f1}")
    errors = {name: value for name, value in report.items() if name.startswith("calibration error")}
    if errors:
        print("; ".join(f"{name} {value:.4f}" for name, value in errors.items()))


_EXPLAIN_BLOCK_ROWS = 256
_TITLE_LENGTH = 72  # characters of a text that are printed as its title
_NAMED_DOCUMENTS = 3  # of those with the same labels


@app.command(short_help="Explain why texts get their labels.")
def explain(
    model: options.Model,
    texts: Annotated[
        list[str] | None,
        Argument(metavar="TEXT", help=f"{_TEXTS_HELP} Or a file of rows.", autocompletion=options.complete_data),
    ] = None,
    files: FilesOption = None,
    data: RowsOption = None,
    format: options.Format = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    n: Annotated[int, Option("--top", "-n", min=1, help="Maximum number of labels per text.")] = 3,
    examples: Annotated[int, Option(min=1, help="Maximum number of examples per label.")] = 3,
    features: Annotated[int, Option(min=1, help="Maximum number of words or features per label.")] = 8,
    min_count: MinCountOption = None,
    max_count: MaxCountOption = None,
    language: options.Language = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
) -> None:
    """Explain the labels of a text, or of each row of a file, by training examples and by words or features.

    An example is a document, or a set of labels that stands for all documents with exactly these labels; its share is
    its part of the label's score. A store names documents by their ids, a model by row numbers that begin with 0. The
    number after a word or feature says how strongly it speaks for the label, or against it if it is negative. If the
    model has a vocabulary, labels are shown by their names.

    Example: ripml explain store/ "The invoice was paid twice" --top 1

    Example: ripml explain store/ new.jsonl --json
    """
    from ripml.cli.inputs import open_queries

    file = options.FileOptions(format, text_column, encoding=encoding, sheet=sheet)
    trained, store, queries = open_queries(model, texts, files, data, file)
    if not hasattr(trained.model, "explain"):
        held = type(trained.model).__name__
        raise ParameterError(f"only RIPML models can be explained; {model} holds {held}, which cannot.")
    trained.model.set_params(n_jobs=jobs)
    formatter = _ExplanationFormatter(trained, store, examples, options.reader_languages(language))
    limits = (examples if json else 2 * examples, features)  # the text output merges examples
    counts = {"min_count": min_count, "max_count": max_count}
    rules = trained.rules.but(n=n, **{name: value for name, value in counts.items() if value is not None})
    answers = queries.answers(lambda block: trained.explain(block, rules, *limits), _EXPLAIN_BLOCK_ROWS)
    for number, labels in enumerate(answers):
        if json:
            explained = {"labels": [formatter.to_json(label) for label in labels]}
            output.print_json({**queries.record(number), **explained, **formatter.names_to_json(labels)})
        else:
            title = _title(queries, number) + ("" if labels else f" has {_UNKNOWN_ROW}")
            output.print_tree(title, [formatter.to_text(label) for label in labels])


def _title(queries: Queries, number: int) -> str:
    """The id of a query, its row number, or the beginning of its text."""
    if (id := queries.id(number)) is not None:
        return output.printable(id)
    if not isinstance(queries.rows, list):
        return f"row {number:,}"
    text = " ".join(queries.rows[number].split())
    return output.printable(text if len(text) <= _TITLE_LENGTH else text[:_TITLE_LENGTH] + "…")


class _ExplanationFormatter:
    """Turns explanations into JSON or text, with the ids of documents if there is a store."""

    def __init__(self, trained: DocumentModel, store: Store | None, n_examples: int, languages: Sequence[str]) -> None:
        self._trained, self._store, self._languages = trained, store, languages
        self._n_examples = n_examples
        self._feature_noun = "features" if trained.text is None else "words"

    def to_json(self, why: Why) -> dict[str, Any]:
        """As `Why.to_json`, and with a store the ids of the documents of each example."""
        explanation = why.to_json()
        for record, example in zip(explanation["examples"], why.examples, strict=True):
            record["labels"] = [str(label) for label in example.labels]
            if self._store is not None:
                record["documents"] = self._document_ids(example)
        return explanation

    def names_to_json(self, labels: Sequence[Why]) -> dict[str, Any]:
        """The names of all labels in explanations, if there is a vocabulary."""
        if self._trained.concepts is None:
            return {}
        carried = [str(label) for why in labels for example in why.examples for label in example.labels]
        return {"names": self._trained.names([*(why.label for why in labels), *carried], *self._languages)}

    def _shown(self, labels: Sequence[Any]) -> list[str]:
        """Labels as people read them."""
        names = self._trained.names(map(str, labels), *self._languages)
        return [names.get(str(label), str(label)) for label in labels]

    def to_text(self, why: Why) -> tuple[str, list[str]]:
        """The label with its score, and one line for each example, for the rest of the score and for the features."""
        examples = merge_examples(why.examples)
        others = why.others + sum(example.share for example in examples[self._n_examples :])
        parts = [(example.share, self._format_example(example)) for example in examples[: self._n_examples]]
        rest = [(others, "other examples"), (why.regression, f"the regression, by its {self._feature_noun}")]
        names = output.join_printable([found.name for found in why.matched])
        rest.append((why.named, f"names in the text: {names}"))
        parts += [part for part in rest if part[0] > 0]
        lines = [f"{100 * share / why.score if why.score else 0:3.0f} %  {source}" for share, source in parts]
        if why.features:
            features = (f"{output.printable(str(name))} {weight:+.3f}" for name, weight in why.features)
            lines.append(f"{self._feature_noun}: {', '.join(features)}")
        return f"{output.join_printable(self._shown([why.label]))}  {why.score:.4f}", lines

    def _document_ids(self, example: Example) -> list[str]:
        """The document that the example is, or the first documents with its labels; empty without a store."""
        return [] if self._store is None else self._store.example_documents(example, self._trained, _NAMED_DOCUMENTS)

    def _format_example(self, example: Example) -> str:
        ids = self._document_ids(example)
        if ids:
            n_more = max(example.n_rows - len(ids), 0)
            noun = "document" if len(ids) + n_more == 1 else "documents"
            source = f"{noun} {output.join_printable(ids)}" + (f" and {n_more:,} more" if n_more else "")
        elif example.row is not None:
            source = f"row {example.row:,}"
        else:
            source = output.count(example.n_rows, "row")
        return f"{source}: {output.join_printable(self._shown(example.labels))}"


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
