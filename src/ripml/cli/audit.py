"""`ripml audit`: labels of training rows that are probably wrong or missing. `ripml report`: quality by label."""

from __future__ import annotations

import csv
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from ripml.base.errors import ParameterError
from ripml.cli import options, output

if TYPE_CHECKING:
    from ripml.model.audit import Audit, Finding
    from ripml.model.learning_curve import LearningCurve
    from ripml.model.quality import Quality
    from ripml.model.splits import LabelGroup

__all__ = ["app"]

app = Typer(rich_markup_mode=None)

_OF_PAGE = 1000  # labels of a page
_COLUMNS = ("kind", "document", "label", "doubt", "probability", "expected", "carriers", "others")


@app.command(short_help="Find labels that are probably wrong or missing.")
def audit(
    path: Annotated[Path, Argument(metavar="MODEL", help="The folder of a store, or of a model.")],
    data: Annotated[
        str | None,
        Argument(
            metavar="[DATA]", help="Model: the data that it was trained on.", autocompletion=options.complete_data
        ),
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="The number of labels of each kind.")] = 20,
    examples: Annotated[int, Option(min=0, help="Similar documents that carry a label, and that do not.")] = 3,
    to_csv: Annotated[
        str | None, Option("--csv", metavar="FILE", help="Write a table to this file, or to standard output with -.")
    ] = None,
    accept: Annotated[
        str | None, Option(metavar="FILE", help="Store: correct the labels of the findings in such a table.")
    ] = None,
    dismiss: Annotated[
        str | None, Option(metavar="FILE", help="Store: do not show these findings until their documents change.")
    ] = None,
    undo: Annotated[
        str | None, Option(metavar="FILE", help="Store: take back that these findings were accepted or dismissed.")
    ] = None,
    format: options.Format = None,
    text_column: options.TextColumn = None,
    labels_column: options.LabelsColumn = None,
    tag_separator: options.TagSeparator = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    json: options.Json = False,
) -> None:
    """Find labels that documents carry and probably should not, and labels that they probably should carry.

    Each document is scored by a model of all others, exactly and without copies of its text. `doubt` is the probability
    that the label is wrong or missing, `probability` that of the label by all other documents, `expected` what other
    documents with the label get. Findings of a doubt below 0.05 are left out, and no label is doubted in fewer than 100
    documents. Equal and nearly equal documents with different labels are listed at the end. Nothing is changed.

    Write the findings of a store with --csv, delete the lines that you do not agree with, and pass it to --accept;
    or pass those that are no mistakes to --dismiss. The history has every change, and --undo takes them back.

    Example: ripml audit store/ --limit 100 --csv doubts.csv

    Example: ripml audit store/ --accept doubts.csv

    Example: ripml audit model/ train.csv --csv doubts.csv
    """
    from ripml.cli.inputs import open_model, read_rows

    decisions = {"accept": accept, "dismiss": dismiss, "undo": undo}
    decided = {name: place for name, place in decisions.items() if place is not None}
    if decided:
        if len(decided) > 1 or data is not None:
            raise ParameterError("give one of --accept, --dismiss and --undo, and a store alone.")
        ((decision, place),) = decided.items()
        _decide(path, decision, place, json)
        return
    model, store = open_model(path)
    if (store is None) == (data is None):
        what = "a store has its documents: leave out" if store is not None else f"{path} is a model: give"
        raise ParameterError(f"{what} DATA, the data that it was trained on.")
    rows = None
    if data is not None:
        file = options.FileOptions(format, text_column, labels_column, tag_separator, encoding, sheet)
        rows = read_rows(data, file, model)
    with output.warnings_as_lines(), output.working("auditing"):
        if store is not None:
            found = store.audit(limit, examples)
        else:
            assert rows is not None
            found = model.audit_rows(rows, limit, examples)
    found = found.worth_reading()
    if to_csv is not None:
        _write_csv(found, to_csv)
        if to_csv != "-":
            n = len(found.wrong) + len(found.missing)
            output.print_result({"findings": n}, f"{output.count(n, 'finding')} written to {to_csv}", json)
        return
    if json:
        output.print_json(found.to_json())
        return
    _print(found)


def _decide(folder: Path, decision: str, place: str, as_json: bool) -> None:
    """Accept or dismiss the findings in a table, or take that back."""
    from ripml.cli.store import login_name
    from ripml.store import Store

    with nullcontext(sys.stdin) if place == "-" else open(place, encoding="utf-8-sig", newline="") as file:
        findings = list(csv.DictReader(file))
    with output.warnings_as_lines(), Store.open(folder) as store:
        if decision == "dismiss":
            store.dismiss(findings)
        elif decision == "accept":
            store.accept(findings, actor=login_name())
        else:
            store.undo(findings, actor=login_name())
    done = {"accept": "accepted", "dismiss": "dismissed", "undo": "taken back"}[decision]
    output.print_result({done: len(findings)}, f"{output.count(len(findings), 'finding')} {done}", as_json)


@app.command(short_help="Measure the quality of each label.")
def report(
    path: Annotated[Path, Argument(metavar="MODEL", help="The folder of a store, or of a model.")],
    limit: Annotated[
        int | None,
        Option(
            "--limit",
            "-n",
            min=1,
            show_default=False,
            help="The number of labels, the most frequent first. [default: 20; 1000 with --html]",
        ),
    ] = None,
    examples: Annotated[int, Option(min=0, help="Confusions, and worst examples, of each label.")] = 3,
    curve: Annotated[
        bool, Option("--curve", help="Store: add the learning curve, which takes about two fits.")
    ] = False,
    html: Annotated[
        Path | None,
        Option(metavar="FILE", show_default=False, help="Write a page with charts and tables to this file."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure how well labels are predicted, overall, by their frequency and one by one, on left-out training rows.

    Each row is scored by a model of all others, exactly and without copies of its features. `twice` is the recall of
    labels that are twice as frequent, which is more than twice the rows bring: see --curve. At the end are labels that
    may be two, as their rows are in two clearly separate groups, and labels of which one says the other.

    With --curve, models of an eighth, a quarter and half of the documents and of all are fitted and compared on the
    same held-out documents, to tell what twice as many would bring.

    The page of --html has what the view Quality of `ripml serve` shows. It is one file that loads nothing else.

    Example: ripml report store/ --limit 50

    Example: ripml report store/ --curve --html report.html
    """
    from ripml.cli.inputs import open_model

    model, store = open_model(path)
    if curve and store is None:
        raise ParameterError("--curve fits models again, for which documents must be kept in a store.")
    limit = limit or (20 if html is None else _OF_PAGE)
    with output.warnings_as_lines(), output.working("measuring"):
        found = model.quality(limit, examples, _no_texts) if store is None else store.quality(limit, examples)
    learning = None
    if curve and store is not None:
        with output.warnings_as_lines(), output.working("fitting"):
            learning = store.learning_curve()
    if html is not None:
        html.write_text(found.to_html(path.resolve().name, learning), encoding="utf-8")
        output.print_result({"html": str(html)}, f"the report is in {html}", json)
        return
    if json:
        output.print_json(found.to_json() | ({} if learning is None else {"curve": learning.to_json()}))
        return
    _print_quality(found)
    if learning is not None:
        _print_curve(learning)


def _print_curve(curve: LearningCurve) -> None:
    """A line for each part, one for what twice the rows would bring, and one for how well the last part was told."""

    def line(name: str, figures: dict[str, float], errors: dict[str, float]) -> list[str]:
        return [name, *(f"{100 * value:.1f} ± {100 * errors[key]:.1f}" for key, value in figures.items())]

    lines = [line(f"{point.rows:,}", point.figures, point.errors) for point in curve.points]
    lines.append(line(f"{curve.twice.rows:,}, expected", curve.twice.figures, curve.twice.errors))
    missed = [f"{100 * value:+.1f}" for value in curve.missed.values()]
    lines.append([f"{curve.points[-1].rows:,}, less what fewer told", *missed])
    print()
    title = f"Learning curve, in % of {curve.held_out:,} held-out rows"
    output.print_table(title, ["rows", *curve.twice.figures], lines)


def _no_texts(_: object) -> list[str]:
    raise ParameterError(
        "this model reads the names of labels in texts, which only a store keeps; keep them in a store."
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _print_quality(found: Quality) -> None:
    from ripml.cli.summaries import TOO_FEW

    title = f"{output.count(found.rows, 'row')}, each left out; {found.copies:,} have copies"
    if found.precision is None:
        output.print_facts(title, {"on left-out rows": TOO_FEW})
        _print_pairs(found)
        return
    facts = {name: f"{_percent(value)} %" for name, value in found.precision.items()}
    facts |= {
        "precision, recall of predicted labels": f"{_percent(found.micro_precision)}, {_percent(found.micro_recall)} %"
    }
    facts |= {"micro-F1, macro-F1": f"{found.micro_f1:.3f}, {found.macro_f1:.3f}"}
    facts |= {"calibration error": f"{found.calibration_error:.4f}"}
    facts |= {"recall, if labels did as those twice as frequent": f"{_percent(found.recall_with_twice)} %"}
    output.print_facts(title, facts)
    print()
    bands = [
        [
            f"{band.least:,} to {band.most:,}" if band.most else f"{band.least:,} or more",
            f"{band.labels:,}",
            *map(_percent, (band.precision, band.recall, band.recall_with_twice)),
            f"{band.calibration_error:.4f}",
        ]
        for band in found.bands
    ]
    columns = ["rows of a label", "labels", "precision, %", "recall, %", "twice, %", "calibration error"]
    output.print_table("By label frequency", columns, bands)
    numbers = [
        [
            output.printable(str(label.label)),
            f"{label.rows:,}",
            _percent(label.precision),
            _percent(label.recall),
            f"{label.expected:,.0f}",
        ]
        for label in found.labels
    ]
    columns = ["label", "rows", "precision, %", "recall, %", "expected"]
    output.print_table("Labels, the most frequent first", columns, numbers)
    mistakes = [
        (
            output.printable(str(label.label)),
            [
                f"{what}: {output.printable(text)}"
                for what, text in (
                    ("confused with", ", ".join(f"{other} {n:,}" for other, n in label.confused_with)),
                    ("missed in", ", ".join(map(str, label.missed))),
                    ("mistaken in", ", ".join(map(str, label.mistaken))),
                )
                if text
            ],
        )
        for label in found.labels
    ]
    if branches := [(name, leaves) for name, leaves in mistakes if leaves]:
        output.print_tree("Where they are mistaken, the worst examples", branches)
    if found.splits:
        print()
        splits = [
            (
                f"{output.printable(str(split.label))} ({split.rows:,})",
                [
                    f"{100 * group.share:.0f} %: {output.join_printable(group.words)}{_also(group)}"
                    for group in split.groups
                ],
            )
            for split in found.splits
        ]
        output.print_tree("Labels that may be two, with the words that tell the groups apart", splits)
    _print_pairs(found)


def _also(group: LabelGroup) -> str:
    """The other labels of a group, and its examples."""
    labels = ", ".join(f"{label} {100 * share:.0f} %" for label, share in group.labels)
    examples = ", ".join(map(str, group.examples))
    return output.printable("".join(f"; {what} {text}" for what, text in (("also", labels), ("as", examples)) if text))


def _print_pairs(found: Quality) -> None:
    if found.pairs:
        print()
        pairs = [
            (
                f"{output.printable(str(pair.label))} ({pair.rows:,}), {output.printable(str(pair.other))} "
                f"({pair.other_rows:,})",
                [f"{pair.kind}; {output.count(pair.together, 'row')} with both"],
            )
            for pair in found.pairs
        ]
        output.print_tree("Labels that belong together, with the rows of each", pairs)


def _print(found: Audit) -> None:
    from ripml.model.left_out import ENOUGH_ROWS

    shares = (found.wrong_share, found.missing_share)
    print(
        f"{output.count(found.n_rows, 'document')} with {output.count(found.n_labels, 'label')}; "
        + (
            "about {} % of these are wrong at most, and {} % missing".format(*map(_percent, shares))
            if found.enough
            else f"too few to audit: fewer than {ENOUGH_ROWS} show mostly chance"
        )
    )
    kinds = (("Probably wrong", found.wrong), ("Probably missing", found.missing)) if found.enough else ()
    for title, findings in kinds:
        branches = [
            (
                f"{output.printable(str(finding.document))}: {output.printable(str(finding.label))}, doubt "
                f"{finding.doubt:.2f} (probability {finding.probability:.2f}, elsewhere {finding.expected:.2f})",
                [
                    f"{how} it: {_near(documents)}"
                    for how, documents in (("with", finding.carriers), ("without", finding.others))
                    if documents
                ],
            )
            for finding in findings
        ]
        output.print_tree(title if branches else f"{title}: none", branches)

    if found.conflicts:
        conflicts = [
            (output.join_printable(one.documents), [f"of some: {output.join_printable(one.labels)}"])
            for one in found.conflicts
        ]
        output.print_tree("Equal documents with different labels", conflicts)
    if found.near_copies:
        near = [
            (
                f"{output.join_printable(one.documents)} (similarity {one.similarity:.2f})",
                [
                    f"only of {output.printable(str(document))}: {output.join_printable(labels)}"
                    for document, labels in zip(one.documents, one.only, strict=True)
                    if labels
                ],
            )
            for one in found.near_copies
        ]
        output.print_tree("Nearly equal texts with different labels", near)


def _near(documents: Any) -> str:
    """Similar documents, such as `a 0.93, b 0.71`."""
    return output.printable(", ".join(f"{document} {similarity:.2f}" for document, similarity in documents))


def _write_csv(found: Audit, place: str) -> None:
    file = nullcontext(sys.stdout) if place == "-" else open(place, "w", encoding="utf-8", newline="")  # noqa: SIM115
    with file as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for finding in (*found.wrong, *found.missing):
            writer.writerow(_line(finding))


def _line(finding: Finding) -> list[Any]:
    values = [getattr(finding, name) for name in _COLUMNS[:-2]]
    return [*values, *(" ".join(str(document) for document, _ in near) for near in (finding.carriers, finding.others))]
