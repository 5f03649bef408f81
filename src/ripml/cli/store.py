"""The commands that change a store, its documents and its labels, or list what was changed."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Exit, Option, Typer

from ripml.base.errors import DataError, ParameterError, RipmlError, StoreError
from ripml.cli import options, output

if TYPE_CHECKING:
    from ripml.datasets import Dataset
    from ripml.store import Certificate, Review, Store
    from ripml.tagging.documents import DocumentModel

__all__ = ["app", "labels_app", "login_name", "open_store"]

app = Typer(rich_markup_mode=None)
labels_app = Typer(help="List and change the labels of a store.", rich_markup_mode=None)

_ListOrder = Literal["name", "count", "rarest", "newest"]
NamesArgument = Annotated[list[str], Argument(metavar="NAME", help="Names of labels.")]

_ROWS_PER_TRANSACTION = 500
_SHOWN_TEXT = 100  # characters of a document to review
_DECIDED = ("accepted", "rejected")


def open_store(folder: Path, readonly: bool = False) -> Store:
    """Open the store of a command, with its warnings as lines."""
    from ripml.cli.inputs import is_store
    from ripml.store import Store

    if not is_store(folder):
        raise ParameterError(f"{folder} is not a store; create one with ripml train DATA {folder} --store.")
    with output.warnings_as_lines():
        return Store.open(folder, readonly)


def login_name() -> str | None:
    """The name of the user, for the history of a store; None where the system does not know it."""
    try:
        return getpass.getuser() or None
    except (ImportError, KeyError, OSError):
        return None


def _print_change(store: Store, values: dict[str, Any], text: str, as_json: bool) -> None:
    """Print what was changed, and how many documents and labels the store has now."""
    now = {"documents": len(store), "labels": len(_labels(store))}
    size = f"{output.count(now['documents'], 'document')}, {output.count(now['labels'], 'label')}"
    output.print_result({**values, **now}, f"{text}; {size}", as_json)


def _estimator(store: Store) -> Any:
    return store.model.model  # a RIPML, because only that can be updated


def _labels(store: Store) -> set[str]:
    return set(_estimator(store).classes_.tolist())


def _shown(store: Store, labels: Sequence[str]) -> str:
    """Labels as people read them, separated by commas."""
    names = store.model.names(labels, *options.reader_languages(None))
    return output.join_printable([names.get(label, label) for label in labels])


def _format_new_labels(store: Store, labels: Sequence[str]) -> str:
    if not labels:
        return "no new label"
    more = " …" if len(labels) > 8 else ""
    return f"{output.count(len(labels), 'new label')}: {_shown(store, labels[:8])}{more}"


@app.command(short_help="Learn the rows of a file.")
def update(
    store: options.Store,
    data: options.Data,
    format: options.Format = None,
    text_column: options.TextColumn = None,
    labels_column: options.LabelsColumn = None,
    tag_separator: options.TagSeparator = None,
    encoding: options.Encoding = None,
    sheet: options.Sheet = None,
    json: options.Json = False,
) -> None:
    """Learn the rows of a file; a row with the id of a stored document replaces the document.

    The rows must be of the same kind as those that the store was made of. Rows without ids get new ones, which --json
    prints. The store can be read during the update. Rows are committed in blocks of 500, so that after an interruption
    the finished blocks are kept, and the same command can be repeated if the rows have ids.

    Example: ripml update store/ today.jsonl
    """
    from ripml.cli.summaries import describe_updates

    with open_store(store) as opened:
        rows = _rows_to_learn(
            opened.model, data, options.FileOptions(format, text_column, labels_column, tag_separator, encoding, sheet)
        )
        result = _learn_rows(opened, rows)
    learnt = f"{output.count(result['learnt'], 'document')} learnt, {result['replaced']:,} replaced"
    unchanged = f", {result['unchanged']:,} unchanged" if result["unchanged"] else ""
    unlabelled = f", {result['without_labels']:,} of them without labels" if result["without_labels"] else ""
    text = f"{learnt}{unchanged}{unlabelled}; {_format_new_labels(opened, result['new_labels'])}"
    output.print_result(result, f"{text}\nsince the fit: {describe_updates(result['warm'])}", json)


def _learn_rows(store: Store, rows: Dataset) -> dict[str, Any]:
    """Learn the rows, and count what they changed."""
    labels_before, ids_before, version = _labels(store), set(store.ids()), store.version
    ids = _learn_blocks(store, rows)
    n_known = len(ids_before.intersection(ids))
    n_new = len(ids) - n_known
    n_replaced = store.version - version - n_new  # each document that is new or differs makes one version
    return {
        "learnt": n_new,
        "replaced": n_replaced,
        "unchanged": n_known - n_replaced,
        "without_labels": int((rows.Y.indptr[1:] == rows.Y.indptr[:-1]).sum()),
        "new_labels": sorted(_labels(store) - labels_before),
        "documents": len(store),
        "labels": len(_labels(store)),
        "warm": _estimator(store).warm_,
        "ids": ids,
    }


def _rows_to_learn(model: DocumentModel, data: str, file: options.FileOptions) -> Dataset:
    """The rows to learn, without the fields that a store does not keep, checked before any of them is learnt."""
    from ripml.cli.inputs import read_rows
    from ripml.cli.summaries import warn_about
    from ripml.datasets import check
    from ripml.store.documents import check_ids

    rows = read_rows(data, file, model)
    if not len(rows):
        raise DataError(f"{rows.name} has no rows.")
    warn_about(check(rows, known=set(map(str, model.model.classes_.tolist())), quick=True))
    rows = replace(rows, X=None, feature_names=None) if model.text is not None else replace(rows, texts=None)
    model.check(model.same_form(rows))
    check_ids(rows.ids or [])
    return rows


def _learn_blocks(store: Store, rows: Dataset) -> list[str]:
    """Learn the rows in blocks and return their ids; if a block fails, the blocks before it stay stored."""
    ids: list[str] = []
    try:
        with output.progress_bar("learning", len(rows)) as advance:
            for block in rows.blocks(_ROWS_PER_TRANSACTION):
                learnt = store.learn(block, actor=login_name())
                ids += learnt
                advance(len(learnt))
    except KeyboardInterrupt:
        raise output.Interrupted(f"stopped; {output.count(len(ids), 'row')} stored.") from None
    except RipmlError as error:
        if not ids:
            raise
        raise StoreError(f"the first {len(ids):,} rows are stored, the others are not: {error}") from error
    return ids


@app.command(short_help="Forget documents.")
def forget(
    store: options.Store,
    ids: Annotated[list[str] | None, Argument(metavar="ID", help="Ids of documents.")] = None,
    source: Annotated[
        str | None, Option("--from", metavar="FILE", help="A file of ids, one per line, or - for standard input.")
    ] = None,
    certificate: Annotated[
        Path | None, Option(metavar="FILE", help="A new file for certificates, one JSON object per document.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Forget documents, all or none: the model becomes what it would be if it had never seen them.

    Their words can remain in the files of the store until ripml compact removes them. With --certificate, the history
    no longer shows their ids and labels, and ripml verify can show that they were forgotten.

    Example: ripml forget store/ ticket-17 --certificate ticket-17.json
    """
    from ripml.cli.inputs import read_lines

    if bool(ids) == (source is not None):
        raise ParameterError("give either the ids of the documents to forget, or a file of ids with --from.")
    with open_store(store) as opened:
        forgotten = read_lines(source) if source is not None else list(ids or ())
        with output.working("forgetting"), _certificate_file(certificate) as write:
            write(opened.forget(forgotten, certify=certificate is not None, actor=login_name()))
        n = len(forgotten)
        _print_change(opened, {"forgotten": n}, f"{output.count(n, 'document')} forgotten", json)


@contextlib.contextmanager
def _certificate_file(path: Path | None) -> Iterator[Callable[[Sequence[Certificate]], None]]:
    """A function that writes certificates to a new file, which is created before anything is forgotten.

    The certificates exist nowhere else, so a file that cannot be written must be noticed first.
    """
    if path is None:
        yield lambda certificates: None
        return
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except FileExistsError:
        raise DataError(f"{path} already exists; certificates are written to a new file.") from None
    written = False

    def write(certificates: Sequence[Certificate]) -> None:
        nonlocal written
        written = True
        lines = "".join(dumps(certificate.to_json()) + "\n" for certificate in certificates)
        try:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            print(lines, end="")  # the documents are forgotten already: this is the only copy
            raise

    with file:
        try:
            yield write
        finally:
            if not written:
                path.unlink()


@app.command(short_help="Check that documents were forgotten.")
def verify(
    store: options.Store,
    certificates: Annotated[
        list[Path] | None, Argument(metavar="CERTIFICATE", help="Files of ripml forget --certificate.")
    ] = None,
    id: Annotated[
        list[str] | None, Option("--id", metavar="ID", help="The id of a forgotten document; can be repeated.")
    ] = None,
    text: Annotated[
        Path | None, Option("--text", metavar="FILE", help="A file with the text of the document of --id.")
    ] = None,
    label: Annotated[
        list[str] | None, Option("--label", metavar="NAME", help="A label that only forgotten documents had.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check that the history is complete, and that model and files have no trace of forgotten documents.

    The hash chain of the history is replayed, certificates are compared with it, the model is compared with one that
    learns the present documents, and all files are searched for the id, text and labels that are given. One line per
    check; the exit code is 1 if one of them fails. The store is only read.

    Example: ripml verify store/ ticket-17.json --id ticket-17
    """
    from ripml.store import Certificate

    found = [certificate for path in certificates or () for certificate in Certificate.read(path)]
    documents = _known_documents(id or [], text, label or [])
    with open_store(store, readonly=True) as opened, output.working("verifying"):
        report = opened.verify(found, documents)
    if json:
        output.print_json(report.to_json())
    else:
        for finding in report.findings:
            print(f"{'ok' if finding.ok else 'WRONG':<6}{output.printable(finding.message)}")
        for note in report.notes:
            print(f"note  {output.printable(note)}")
    if not report.ok:
        raise Exit(1)


def _known_documents(ids: Sequence[str], text: Path | None, labels: Sequence[str]) -> list[dict[str, Any]]:
    """What the command line says about forgotten documents."""
    documents: list[dict[str, Any]] = [{"id": id} for id in ids]
    if text is not None:
        if len(ids) != 1:
            raise ParameterError("--text needs the id of its document: give --id once.")
        documents[0]["text"] = text.read_text(encoding="utf-8")
    if labels:
        if not ids:
            raise ParameterError("--label needs the id of a document with that label: give --id.")
        documents[0]["labels"] = list(labels)
    return documents


@app.command(short_help="Change the labels of a document.")
def relabel(
    store: options.Store,
    id: Annotated[str, Argument(metavar="ID", help="The id of a document.")],
    labels: Annotated[list[str] | None, Argument(metavar="LABEL", help="All its labels from now on.")] = None,
    json: options.Json = False,
) -> None:
    """Replace the labels of a document; without LABEL, remove them all. A name that is new becomes a label.

    Example: ripml relabel store/ ticket-17 billing urgent
    """
    with open_store(store) as opened:
        before = _labels(opened)
        opened.relabel(id, labels or [], actor=login_name())
        carried, new = opened.document(id)["labels"], sorted(_labels(opened) - before)
        shown = _shown(opened, carried) or "no labels"
        text = f"{output.printable(id)} has {shown}; {_format_new_labels(opened, new)}"
        _print_change(opened, {"id": id, "carries": carried, "new_labels": new}, text, json)


@app.command(short_help="List the documents to label next.")
def review(
    store: options.Store,
    n: Annotated[int, Option("--top", "-n", min=1, help="Maximum number of documents.")] = 10,
    minutes: Annotated[float, Option(min=0.01, help="Nobody else gets these documents for so long.")] = 30,
    labelled: Annotated[
        bool, Option("--labelled", help="Documents whose labels are probably wrong or missing, as ripml audit finds.")
    ] = False,
    caller: Annotated[str | None, Option(help="Who asks. Default: the name of the user.")] = None,
    release: Annotated[
        list[str] | None, Option(metavar="ID", help="Give a document back undecided; can be repeated.")
    ] = None,
    json: options.Json = False,
) -> None:
    """List the documents without labels from which the model is expected to learn most, with suggestions; or those with
    labels that are most probably wrong.

    Label them with ripml relabel: the model has learnt each one before the command ends. Documents that were listed
    are not given to other callers meanwhile; the same caller gets first what is not decided yet. A document that is
    relabelled without any label is not listed again. ripml update adds documents: rows without labels wait here.

    With --labelled, the documents of which most labels are probably wrong or missing. One that is relabelled, also with
    the labels that it has, is not listed again.

    Example: ripml review store/ --top 5

    Example: ripml relabel store/ ticket-17 billing urgent
    """
    with open_store(store) as opened:
        if release:
            opened.release(release)
            print(f"{output.count(len(release), 'document')} given back")
            return
        with output.working("choosing"):
            found = opened.review(n, labelled=labelled, caller=caller or login_name(), minutes=minutes)
        for one in found:
            if json:
                output.print_json(one.to_json())
            else:
                _print_review(opened, one)
        if not found and not json:
            none = "no label is doubtful" if labelled else "no document waits for labels"
            print(f"{none}; ripml update adds rows{'' if labelled else ' without labels'}.", file=sys.stderr)


def _print_review(store: Store, one: Review) -> None:
    """Print a document to review, and why it is worth looking at."""
    text = " ".join((one.text or "").split())
    print(f"{output.printable(one.id)}  {output.printable(text[:_SHOWN_TEXT])}")
    for finding in one.findings:
        print(f"    {_shown(store, [finding.label])}: probably {finding.kind}, doubt {finding.doubt:.2f}")
    if one.carried:
        print(f"    carries {_shown(store, one.carried)}")
        return
    why = f"first suggestion right with {100 * one.probability:.0f} %, like {one.n_like:,} others without labels"
    print(f"    {_shown(store, [label for label, _ in one.labels]) or 'no suggestion'}; {why}")


@app.command(short_help="Accept or reject labels of a document.")
def decide(
    store: options.Store,
    id: Annotated[str | None, Argument(metavar="ID", help="The id of a document.")] = None,
    accept: Annotated[
        list[str] | None, Option("--accept", "-a", metavar="LABEL", help="A label that is right.")
    ] = None,
    reject: Annotated[
        list[str] | None, Option("--reject", "-r", metavar="LABEL", help="A label that is wrong.")
    ] = None,
    complete: Annotated[bool, Option("--complete", help="The accepted labels are all that the document has.")] = False,
    withdraw: Annotated[bool, Option("--withdraw", help="Take back all decisions on the document.")] = False,
    text: Annotated[str | None, Option("--text", metavar="TEXT", help="The text of a document that is new.")] = None,
    file: Annotated[
        Path | None, Option("--file", exists=True, dir_okay=False, help="Decisions as --list writes them.")
    ] = None,
    list_all: Annotated[
        bool, Option("--list", help="Print all documents with decisions, one JSON object per line.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Accept or reject some labels of a document. Nothing is learnt of its other labels.

    Earlier decisions on the document stay, and the last one on a label counts. Of a document that has labels, all are
    known: accepted labels are added to them and rejected ones removed. ripml forget forgets a document with its
    decisions.

    Example: ripml decide store/ ticket-17 --accept billing --reject urgent
    """
    if list_all:
        for decision in open_store(store, readonly=True).decisions():
            output.print_json(decision)
        return
    if file is not None:
        _decide_all(store, file, json)
        return
    if id is None:
        raise ParameterError("which document? Give its id, or --file with decisions, or --list.")
    with open_store(store) as opened:
        if withdraw:
            opened.withdraw(id, actor=login_name())
        else:
            document = id if text is None else {"id": id, "text": text}
            opened.decide(document, accept or [], reject or [], complete=complete, actor=login_name())
        known = opened.document(id)
        parts = {name: _shown(opened, known[name]) for name in ("labels", *_DECIDED) if known.get(name)}
        decided = "; ".join(f"{name}: {shown}" for name, shown in parts.items()) or "no labels and no decisions"
        values = {"id": id, "carries": known["labels"], **{name: known.get(name, []) for name in _DECIDED}}
        _print_change(opened, values, f"{output.printable(id)} has {decided}", json)


def _decide_all(store: Path, file: Path, as_json: bool) -> None:
    """Make the decisions of a file of JSON lines."""
    with open_store(store) as opened:
        n = 0
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                decision = loads(line)
                if not isinstance(decision, dict):
                    raise DataError("a decision is a JSON object with id, accepted and rejected")
                known = "text" in decision or "features" in decision
                opened.decide(
                    decision if known else str(decision.get("id", "")),
                    *([] if known else (decision.get("accepted", ()), decision.get("rejected", ()))),
                    actor=login_name(),
                )
            except (RipmlError, ValueError) as error:
                said = f"{output.count(n, 'decision')} before it were made" if n else "nothing was changed"
                raise DataError(f"{file}:{number}: {str(error).rstrip('.')}; {said}.") from error
            n += 1
        _print_change(opened, {"decisions": n}, f"decisions on {output.count(n, 'document')}", as_json)


@app.command(short_help="Erase all traces of forgotten documents.")
def compact(
    store: options.Store,
    keep_history: Annotated[
        float, Option(metavar="DAYS", min=0, help="Keep ids and labels in the history for this many days.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Erase all traces of forgotten documents: afterwards no file of the store contains a byte of them.

    Labels without documents are removed, except those that ripml labels add declared. The history keeps who made
    which kind of change and when; ids and labels are kept only for --keep-history days, and never those of forgotten
    documents.

    Example: ripml compact store/ --keep-history 90
    """
    from ripml.cli.inputs import folder_megabytes

    with open_store(store) as opened:
        before = _labels(opened)
        with output.working("compacting"):
            opened.compact(keep_history=keep_history, actor=login_name())
        dropped, size = sorted(before - _labels(opened)), folder_megabytes(store)
        text = f"{size:g} MB; {output.count(len(dropped), 'label')} without documents removed"
        _print_change(opened, {"dropped_labels": dropped, "megabytes": size}, text, json)


@app.command(short_help="Fit the model of a store again.")
def refit(store: options.Store, json: options.Json = False) -> None:
    """Fit the model again on all documents of the store, with the settings that it was trained with.

    This chooses again what updates leave unchanged: words, clusters, feature weights and settings that are auto.
    ripml inspect says when a refit is recommended.

    Example: ripml refit store/
    """
    from ripml.cli.summaries import model_summary, print_summary

    with open_store(store) as opened:
        with output.working("training"):
            opened.refit(actor=login_name())
        summary = {"documents": len(opened), **model_summary(opened.model)}
    print_summary(f"Refitted {store}", summary, json)


@app.command(short_help="Find documents of a store.")
def search(
    store: options.Store,
    query: Annotated[str, Argument(help='Words, "phrases", beginnings* and words -not wanted.')] = "",
    labels: Annotated[list[str] | None, Option("--label", "-l", help="Only documents that have this label.")] = None,
    rejected: Annotated[list[str] | None, Option("--rejected", help="Only where this label was rejected.")] = None,
    undecided: Annotated[
        list[str] | None, Option("--undecided", help="Only where nothing is known of this label.")
    ] = None,
    state: Annotated[
        str | None, Option(help="labelled (all labels are known), partly (some are decided) or unlabelled.")
    ] = None,
    since: Annotated[str | None, Option(metavar="TIME", help="The last change is not before this time.")] = None,
    until: Annotated[str | None, Option(metavar="TIME", help="The last change is before this time.")] = None,
    prefix: Annotated[str, Option(help="The beginning of the id.")] = "",
    newest: Annotated[bool, Option("--newest", help="The newest first, not the most relevant.")] = False,
    n: Annotated[int, Option("-n", min=1, help="Maximum number of documents.")] = 20,
    language: options.Language = None,
    json: options.Json = False,
) -> None:
    """Find the documents of a store that have all words of a query.

    Put a query with quotes or a minus between single quotes, after -- if it begins with a minus. Without a query, the
    newest documents are listed. With --json, one object per line: a part of the text and the places of the matches too.

    Example: ripml search store/ 'invoice "late fee" -draft' --label billing
    """
    opened = open_store(store, readonly=True)
    found = opened.search(
        query, labels=labels or (), rejected=rejected or (), undecided=undecided or (), state=state, since=since,
        until=until, prefix=prefix, sort="newest" if newest else "relevance", n=n,
    )  # fmt: skip
    if json:
        for one in found:
            output.print_json(vars(one))
        return
    from ripml.store.fulltext import RANKED

    more = "or more " if found.total >= RANKED else ""
    title = f"{found.total:,} {more}found in {store}"
    rows = []
    for one in found:
        carried = [*one.labels, *one.accepted]
        shown = opened.model.names(carried, *options.reader_languages(language))
        rejected_too = [f"not {label}" for label in one.rejected]
        excerpt = " ".join(one.excerpt.split())[:_SHOWN_TEXT]
        cells = [one.id, excerpt, ", ".join([*(shown.get(label, label) for label in carried), *rejected_too])]
        rows.append([output.printable(cell) for cell in cells])
    if rows:
        output.print_table(title, ["id", "text", "labels"], rows, n_left=3)
    else:
        print(title)


@app.command(short_help="List the changes of a store.")
def history(
    store: options.Store,
    n: Annotated[int, Option("--last", "-n", min=1, help="Maximum number of changes.")] = 20,
    before: Annotated[int | None, Option(metavar="NUMBER", min=1, help="Only changes before this one.")] = None,
    language: options.Language = None,
    json: options.Json = False,
) -> None:
    """List the last changes of a store, newest first: who made them, and the labels before and after if still known.

    Documents that were forgotten with a certificate have no id and no labels here; other forgotten documents keep them
    until ripml compact. With --json, one object per line. The table shows the names of a vocabulary.

    Example: ripml history store/ -n 5
    """
    opened = open_store(store, readonly=True)
    entries, languages = opened.history(n, before), options.reader_languages(language)
    if json:
        for entry in entries:
            output.print_json(entry)
    elif not entries:
        print(f"{store} has no changes yet" if before is None else f"{store} has no changes before {before:,}")
    else:
        rows = [_history_row(entry, lambda labels: opened.model.names(labels, *languages)) for entry in entries]
        output.print_table(
            f"The last changes of {store}", ["number", "time (UTC)", "by", "kind", "id", "labels"], rows, n_left=6
        )


def _history_row(entry: dict[str, Any], names: Callable[[Sequence[str]], dict[str, str]]) -> list[Any]:
    """The columns of a change: the labels before and after it as far as its entry has them, by their `names`."""
    before = next((entry[key] for key in ("before", "labels", "old", "label") if key in entry), None)
    after = next((entry[key] for key in ("after", "into", "new") if key in entry), None)
    rejected = entry.get("rejected_after")
    known = (side for side in (before, after) if side is not None)
    sides = []
    for labels in ([side] if isinstance(side, str) else side for side in known):
        shown = names(labels)
        sides.append(", ".join(shown.get(label, label) for label in labels) or "none")
    if rejected:
        shown = names(rejected)
        sides[-1:] = [", ".join([*sides[-1:], *(f"not {shown.get(label, label)}" for label in rejected)])]
    when, by = entry["time"][:19].replace("T", " "), output.printable(entry["actor"] or "")
    id = output.printable(entry.get("id") or "")
    return [entry["number"], when, by, entry["kind"], id, output.printable(" → ".join(sides))]


@labels_app.command("list", short_help="List labels.")
def labels_list(
    store: options.Store,
    prefix: Annotated[str, Option(help="Only labels that begin with this.")] = "",
    order: Annotated[_ListOrder | None, Option(help="By the name that people read, by documents, or by age.")] = None,
    limit: Annotated[int | None, Option(min=1, metavar="N", help="At most N labels.")] = None,
    language: options.Language = None,
    json: options.Json = False,
) -> None:
    """List the labels, one per line, with the number of documents and whether the label is retired.

    If the store has a vocabulary, the last column is the name of the label, and --prefix compares names as well.

    Example: ripml labels list store/ --prefix bill
    Example: ripml labels list store/ --order count --limit 20
    """
    opened = open_store(store, readonly=True)
    model, trained, languages = _estimator(opened), opened.model, options.reader_languages(language)
    names = trained.names(model.classes_.tolist(), *languages)
    labels = zip(model.classes_.tolist(), model.frequency_.tolist(), model.vocabulary_.retired.tolist(), strict=True)
    rows = sorted(labels)
    if order is not None:
        page = opened.browse_labels(order, max(len(rows), 1), 0, *languages).labels
        rows = [(label.name, label.count, label.retired) for label in page]
    shown = 0
    for label, n_documents, retired in rows:
        if shown == limit:
            break
        if not (label.startswith(prefix) or names.get(label, "").startswith(prefix)):
            continue
        shown += 1
        values = {"label": label, "documents": n_documents, "retired": retired}
        cells = [label, str(n_documents)]
        if trained.concepts is None:
            cells += ["retired"] if retired else []
        else:
            values["name"] = names.get(label)
            cells += ["retired" if retired else "", names.get(label, "")]
        output.print_result(values, "\t".join(map(output.printable, cells)), json)


@labels_app.command("show", short_help="Show what is known about a label.")
def labels_show(
    store: options.Store,
    name: Annotated[str, Argument(metavar="NAME", help="The name of a label.")],
    language: options.Language = None,
    json: options.Json = False,
) -> None:
    """Show a label: its documents and decisions, the first documents that carry it, and what the vocabulary says of it.

    Example: ripml labels show store/ billing
    """
    opened = open_store(store, readonly=True)
    found, concepts = opened.label(name), opened.model.concepts
    counts = {"documents": found.count, "accepted": found.accepted, "rejected": found.rejected}
    values: dict[str, Any] = {"label": name, **counts, "retired": found.retired, "examples": found.examples}
    lines = [
        f"{output.printable(name)}: {output.count(found.count, 'document')}"
        f"{', retired' if found.retired else ''}{'' if found.is_label else ', not a label yet'}"
    ]
    if found.accepted or found.rejected:
        lines.append(f"accepted for {found.accepted:,} open documents, rejected for {found.rejected:,}")
    if found.examples:
        lines.append(f"documents: {output.join_printable(found.examples)}")
    if concepts is not None and name in concepts:
        concept, languages = concepts[name], options.reader_languages(language)
        related = {
            "broader": concept.broader,
            "narrower": concepts.narrower(name),
            "related": concept.related,
        }
        values["concept"] = {**concept.to_json(), "path": list(concepts.path(name)), "narrower": related["narrower"]}
        lines.append(f"name: {output.printable(concept.name(*languages))}")
        lines += [
            f"{relation}: {output.join_printable([concepts.name(id, *languages) for id in ids])}"
            for relation, ids in related.items()
            if ids
        ]
    output.print_result(values, "\n".join(lines), json)


@labels_app.command("add", short_help="Declare labels.")
def labels_add(
    store: options.Store,
    names: NamesArgument,
    word: Annotated[
        list[str] | None,
        Option(metavar="TEXT", help="What texts call the label, the name that people read first; repeat it."),
    ] = None,
    language: Annotated[str, Option(metavar="TAG", help="The language of the words, such as en.")] = "",
    json: options.Json = False,
) -> None:
    """Declare labels that no document has yet; ripml compact keeps them.

    One label with --word is also added to the vocabulary. If the model was trained with one, the words are looked for
    in texts at once, and the label is suggested before a document has it.

    Example: ripml labels add store/ urgent "to be checked"
    Example: ripml labels add store/ heat-pumps --word "heat pump" --word "air source heating"
    """
    if word and len(names) > 1:
        raise ParameterError("--word is about one label; give one NAME.")
    with open_store(store) as opened:
        before = _labels(opened)
        if word:
            opened.add_label(names[0], {language: list(dict.fromkeys(word))}, actor=login_name())
        else:
            opened.add_labels(names, actor=login_name())
        new = sorted(_labels(opened) - before)
        _print_change(opened, {"new_labels": new}, _format_new_labels(opened, new), json)


@labels_app.command("undo", short_help="Take back a change of labels.")
def labels_undo(
    store: options.Store,
    change: Annotated[int, Argument(min=1, metavar="CHANGE", help="Its number, as ripml history shows it.")],
    json: options.Json = False,
) -> None:
    """Take back that labels were added, renamed, merged, retired or reinstated.

    After a merge, documents have again what they had. One that was changed since keeps its change, but has the merged
    label again in place of the other one. ripml compact deletes what this needs.

    Example: ripml labels undo store/ 42
    """
    with open_store(store) as opened:
        done = opened.undo_labels(change, actor=login_name())
        text = f"change {change:,} taken back"
        if done.documents or done.changed_since:
            text += f", {output.count(done.documents, 'document')} as before"
        if done.changed_since:
            text += f", {done.changed_since:,} changed since"
        _print_change(
            opened, {"undone": change, "restored": done.documents, "changed_since": done.changed_since}, text, json
        )


@labels_app.command("rename", short_help="Rename a label.")
def labels_rename(
    store: options.Store,
    old: Annotated[str, Argument(metavar="OLD", help="The name of a label.")],
    new: Annotated[str, Argument(metavar="NEW", help="Its new name.")],
    json: options.Json = False,
) -> None:
    """Rename a label.

    Example: ripml labels rename store/ bills billing
    """
    with open_store(store) as opened:
        opened.rename_label(old, new, actor=login_name())
        _print_change(
            opened, {"old": old, "new": new}, f"{output.printable(old)} renamed to {output.printable(new)}", json
        )


@labels_app.command("merge", short_help="Merge labels into one.")
def labels_merge(
    store: options.Store,
    names: NamesArgument,
    into: Annotated[str, Option(metavar="NAME", help="The label that replaces them.")],
    json: options.Json = False,
) -> None:
    """Merge labels: documents that have any of them have the label of --into instead.

    Example: ripml labels merge store/ bill bills --into billing
    """
    with open_store(store) as opened:
        opened.merge_labels(names, into, actor=login_name())
        text = f"{output.join_printable(names)} merged into {output.printable(into)}"
        _print_change(opened, {"merged": names, "into": into}, text, json)


@labels_app.command("retire", short_help="Stop suggesting labels.")
def labels_retire(store: options.Store, names: NamesArgument, json: options.Json = False) -> None:
    """Stop suggesting labels; documents keep them.

    Example: ripml labels retire store/ fax
    """
    _set_retired(store, names, True, json)


@labels_app.command("reinstate", short_help="Suggest retired labels again.")
def labels_reinstate(store: options.Store, names: NamesArgument, json: options.Json = False) -> None:
    """Suggest retired labels again.

    Example: ripml labels reinstate store/ fax
    """
    _set_retired(store, names, False, json)


def _set_retired(folder: Path, names: Sequence[str], retired: bool, as_json: bool) -> None:
    with open_store(folder) as store:
        if unknown := [name for name in names if name not in _labels(store)]:  # checked before the first change
            raise DataError(f"there is no label {unknown[0]!r}.")
        for name in names:
            (store.retire_label if retired else store.reinstate_label)(name, actor=login_name())
        word = "retired" if retired else "reinstated"
        _print_change(store, {word: list(names)}, f"{output.join_printable(names)} {word}", as_json)
