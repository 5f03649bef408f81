"""The commands that change a store, or look at what was done to it, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from ripml.cli.options import (
    DataArgument,
    FormatOption,
    JsonOption,
    LabelsColumnOption,
    StoreArgument,
    TextColumnOption,
    form,
)

__all__ = ["store_app"]

store_app = typer.Typer(rich_markup_mode=None)
labels_app = typer.Typer(help="List and change the labels of a store.", rich_markup_mode=None)
store_app.add_typer(labels_app, name="labels")

NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of labels.")]


@store_app.command(short_help="Learn the rows of a file.")
def update(
    store: StoreArgument,
    data: DataArgument,
    format: FormatOption = None,
    text_column: TextColumnOption = None,
    labels_column: LabelsColumnOption = None,
    json: JsonOption = False,
) -> None:
    """Learn the rows of a file, while others read the store; what has the id of a document replaces it.

    Rows are as those that the store was made of. Without ids they get new ones, which --json prints. Some hundred rows
    at a time are stored together: when this is stopped, those are kept, and the same command can be given again if the
    rows have ids.

    Example: ripml update store/ today.jsonl
    """
    from ripml.cli.storing import run_update

    run_update(store, data, form(format, text_column, labels_column), as_json=json)


@store_app.command(short_help="Forget documents.")
def forget(
    store: StoreArgument,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of documents.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="A file of ids, one a line, or - for standard input.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Forget documents, all or none: the model becomes what it would be had it never seen them.

    Their words may stay in the store's files until it is compacted.

    Example: ripml forget store/ ticket-17 ticket-18
    """
    from ripml.cli.storing import run_forget

    run_forget(store, ids or [], source, as_json=json)


@store_app.command(short_help="Give a document other labels.")
def relabel(
    store: StoreArgument,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a document.")],
    labels: Annotated[list[str] | None, typer.Argument(metavar="LABEL", help="All its labels from now on.")] = None,
    json: JsonOption = False,
) -> None:
    """Give a document other labels, or with none given take all from it; a name that is new becomes a label.

    Example: ripml relabel store/ ticket-17 billing urgent
    """
    from ripml.cli.storing import run_relabel

    run_relabel(store, id, labels or [], as_json=json)


@store_app.command(short_help="Leave no trace of what was forgotten.")
def compact(store: StoreArgument, json: JsonOption = False) -> None:
    """Leave no trace of what was forgotten: no byte of it is in any file of the store afterwards.

    Labels that no document carries are gone then, but for those that were added by hand; of what is gone, the history
    says no more than when it was changed.

    Example: ripml compact store/
    """
    from ripml.cli.storing import run_compact

    run_compact(store, as_json=json)


@store_app.command(short_help="Fit a store's model anew.")
def refit(store: StoreArgument, json: JsonOption = False) -> None:
    """Fit the model anew on all documents of the store, with the settings that it was trained with.

    What learning on leaves as it was is chosen again: words, clusters, weights of features, settings that are auto.
    ripml inspect says when that pays.

    Example: ripml refit store/
    """
    from ripml.cli.storing import run_refit

    run_refit(store, as_json=json)


@store_app.command(short_help="List what was done to a store.")
def history(
    store: StoreArgument,
    n: Annotated[int, typer.Option("--last", "-n", help="How many changes.")] = 20,
    json: JsonOption = False,
) -> None:
    """List the last changes of a store, newest first, with the labels before and after where they are still known.

    Example: ripml history store/ -n 5
    """
    from ripml.cli.storing import run_history

    run_history(store, n, as_json=json)


@labels_app.command("list", short_help="List labels.")
def labels_list(
    store: StoreArgument,
    prefix: Annotated[str, typer.Option(help="Those that begin so.")] = "",
    json: JsonOption = False,
) -> None:
    """List the labels, one a line: its name, how many documents carry it, and whether it is retired.

    Example: ripml labels list store/ --prefix bill
    """
    from ripml.cli.storing import run_list_labels

    run_list_labels(store, prefix, as_json=json)


@labels_app.command("add", short_help="Declare labels.")
def labels_add(store: StoreArgument, names: NamesArgument, json: JsonOption = False) -> None:
    """Declare labels that no document carries yet; they stay when the store is compacted.

    Example: ripml labels add store/ urgent "to be checked"
    """
    from ripml.cli.storing import run_add_labels

    run_add_labels(store, names, as_json=json)


@labels_app.command("rename", short_help="Give a label another name.")
def labels_rename(
    store: StoreArgument,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The label's name.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its name from now on.")],
    json: JsonOption = False,
) -> None:
    """Give a label another name.

    Example: ripml labels rename store/ bills billing
    """
    from ripml.cli.storing import run_rename_label

    run_rename_label(store, old, new, as_json=json)


@labels_app.command("merge", short_help="Make one label of several.")
def labels_merge(
    store: StoreArgument,
    names: NamesArgument,
    into: Annotated[str, typer.Option(metavar="NAME", help="The label that takes their place.")],
    json: JsonOption = False,
) -> None:
    """Make one label of several: documents that carry one of them carry the label of --into instead.

    Example: ripml labels merge store/ bill bills --into billing
    """
    from ripml.cli.storing import run_merge_labels

    run_merge_labels(store, names, into, as_json=json)


@labels_app.command("retire", short_help="Suggest labels no more.")
def labels_retire(store: StoreArgument, names: NamesArgument, json: JsonOption = False) -> None:
    """Suggest labels no more; documents keep them.

    Example: ripml labels retire store/ fax
    """
    from ripml.cli.storing import run_retire_labels

    run_retire_labels(store, names, True, as_json=json)


@labels_app.command("reinstate", short_help="Suggest retired labels again.")
def labels_reinstate(store: StoreArgument, names: NamesArgument, json: JsonOption = False) -> None:
    """Suggest retired labels again.

    Example: ripml labels reinstate store/ fax
    """
    from ripml.cli.storing import run_retire_labels

    run_retire_labels(store, names, False, as_json=json)
