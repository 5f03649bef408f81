"""`ripml audit`: labels of training rows that are probably wrong or missing."""

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

__all__ = ["app"]

app = Typer(rich_markup_mode=None)

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
    documents with the label get. Nothing is changed.

    Example: ripml audit store/ --limit 100

    Example: ripml audit model/ train.csv --csv doubts.csv
    """
    from ripml.cli.inputs import open_model, read_rows

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


def _print(found: Audit) -> None:
    print(
        f"{output.count(found.n_rows, 'document')} with {output.count(found.n_labels, 'label')}; about "
        f"{100 * found.wrong_share:.1f} % of these are wrong at most, and {100 * found.missing_share:.1f} % missing"
    )
    for title, findings in (("Probably wrong", found.wrong), ("Probably missing", found.missing)):
        lines = [
            [
                output.printable(str(finding.document)),
                output.printable(str(finding.label)),
                f"{finding.doubt:.2f}",
                f"{finding.probability:.2f}",
                f"{finding.expected:.2f}",
                _near(finding.carriers),
                _near(finding.others),
            ]
            for finding in findings
        ]
        columns = ["document", "label", "doubt", "probability", "expected", "similar, with it", "similar, without it"]
        output.print_table(title, columns, lines, n_left=2)


def _near(documents: Any) -> str:
    """Similar documents, such as `a 0.93, b 0.71`."""
    return output.printable(", ".join(f"{document} {similarity:.2f}" for document, similarity in documents)) or "–"


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
