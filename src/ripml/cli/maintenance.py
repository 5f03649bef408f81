"""The commands that maintain a store: backup, restore, check, rebuild and export. They work without its model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option, Typer

from ripml.cli import options, output
from ripml.cli.store import login_name

__all__ = ["app"]

app = Typer(rich_markup_mode=None)


Backup = Annotated[Path, Argument(metavar="BACKUP", help="The folder of a backup.")]


@app.command(short_help="Copy a store while it is in use.")
def backup(
    store: options.Store,
    target: Annotated[Path, Argument(metavar="TARGET", help="A new or empty folder.")],
    json: options.Json = False,
) -> None:
    """Copy a store as it is at one moment to a new or empty folder, while others read and write.

    The copy is a store itself, and appears when it is complete. Never use cp or rsync on a store that is in use.

    Example: ripml backup store/ backups/monday
    """
    from ripml.store import maintenance

    with output.warnings_as_lines(), output.working("copying"):
        made = maintenance.backup(store, target)
    size = f"{output.count(made.documents, 'document')}, {made.bytes / 1e6:,.2f} MB"
    output.print_result(asdict(made), f"{store} after change {made.change:,} copied to {target}; {size}", json)


@app.command(short_help="Copy a store for readers on other machines.")
def publish(
    store: options.Store,
    target: Annotated[Path, Argument(metavar="TARGET", help="The link to make or to replace, in a shared folder.")],
    json: options.Json = False,
) -> None:
    """Make TARGET a link to a copy of a store as it is at one moment, which servers on other machines read.

    ripml serve TARGET --read-only follows the copies without a restart. The copy before the new one stays, and older
    ones are removed. Nothing is copied if nothing has changed.

    Example: ripml publish store/ /shared/store
    """
    from ripml.store import maintenance

    with output.warnings_as_lines(), output.working("copying"):
        made = maintenance.publish(store, target)
    values = {"change": None} if made is None else asdict(made)
    sentence = "nothing has changed" if made is None else f"{target} is {store} after change {made.change:,}"
    output.print_result(values, sentence, json)


@app.command(short_help="Make a store from a backup.")
def restore(
    backup: Backup,
    store: Annotated[Path, Argument(metavar="STORE", help="A new or empty folder, or with --replace a store.")],
    replace: Annotated[bool, Option("--replace", help="Replace the store in this folder.")] = False,
    json: options.Json = False,
) -> None:
    """Make a store from a backup, which is checked first and stays as it is.

    With --replace the new store takes the place of one that no process has open for writing; that one is removed when
    the new one is complete, and stays if anything fails.

    Example: ripml restore backups/monday store/ --replace
    """
    from ripml.store import maintenance

    with output.warnings_as_lines(), output.working("restoring"):
        made = maintenance.restore(backup, store, replace)
    text = f"{store} restored as it was after change {made.change:,}; {output.count(made.documents, 'document')}"
    output.print_result(asdict(made), text, json)


@app.command(short_help="Check data to learn from, or the files of a store.")
def check(
    path: Annotated[
        str,
        Argument(
            metavar="PATH",
            help="A file, a folder of documents, a data set, or the folder of a store.",
            autocompletion=options.complete_data,
        ),
    ],
    format: options.Format = None,
    text_column: options.TextColumn = None,
    labels_column: options.LabelsColumn = None,
    tag_separator: options.TagSeparator = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    full: Annotated[
        bool, Option("--full", help="Store: also learn all documents again and compare the scores; this takes longer.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Check labelled rows before a model learns from them; or the tables, journal, documents and model of a store.

    Of rows, this shows labels that hold several, stand for missing ones or are alike; texts that are empty, repeated,
    nearly repeated or in several languages; and what gives labels away. Each finding has examples and a remedy. Nothing
    is changed. A store is checked while others read and write: one line per check, and the exit code is 1 if one of
    them finds something wrong.

    Example: ripml check tickets.csv --text-column Body --labels-column Tags

    Example: ripml check store/
    """
    from ripml.cli.inputs import is_store, read_rows
    from ripml.cli.summaries import print_check
    from ripml.datasets import check as check_rows
    from ripml.store import maintenance

    if not is_store(Path(path)):
        file = options.FileOptions(format, text_column, labels_column, tag_separator, encoding, sheet)
        rows = read_rows(path, file)
        with output.working("checking"):
            findings = check_rows(rows)
        print_check(findings, path, json)
        return
    with output.working("checking"):
        report = maintenance.check(Path(path), full)
    for finding in report.findings:
        word = "ok" if finding.ok else "WRONG"
        output.print_result(asdict(finding), f"{word:<6}{finding.name:<11}{output.printable(finding.message)}", json)
    if not report.ok:
        raise typer.Exit(1)


@app.command(short_help="Fit the model again if it is lost or damaged.")
def rebuild(store: options.Store, json: options.Json = False) -> None:
    """Fit the model of a store on its documents, with the settings that it had, when the model is lost or damaged.

    Example: ripml rebuild store/
    """
    from ripml.cli.summaries import model_summary, print_summary
    from ripml.store import Store, maintenance

    with output.warnings_as_lines(), output.working("training"):
        maintenance.rebuild(store, actor=login_name())
    with Store.open(store, readonly=True) as opened:
        summary = {"documents": len(opened), **model_summary(opened.model)}
    print_summary(f"Rebuilt {store}", summary, json)


@app.command(short_help="Write the documents of a store to a file.")
def export(
    store: options.Store,
    file: Annotated[str, Argument(metavar="FILE", help="A file, or - for standard output.")],
    format: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        Option("--format", "-f", help="The file format. Default: that of the name, or jsonl."),
    ] = None,
    salvage: Annotated[
        bool, Option("--salvage", help="Leave out what cannot be read from a damaged store.db.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Write all documents with their ids and labels to a file, as they are at one moment, while others write.

    This needs no model. Features can be written as JSONL only.

    Example: ripml export store/ documents.jsonl.gz
    """
    from ripml.store import maintenance

    with output.warnings_as_lines(), output.working("writing"):
        n = maintenance.export(store, file, format, salvage)
    if file != "-":
        output.print_result({"documents": n}, f"{output.count(n, 'document')} written to {file}", json)
