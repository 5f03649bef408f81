"""What update, forget, relabel, compact, refit, history and labels do to a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ripml.base.errors import DataError, ParameterError, RipmlError
from ripml.cli.opening import blocks, is_file, lines, named_set, opened_store, reading
from ripml.cli.options import Form
from ripml.cli.output import Stopped, bar, count, facts, print_json, printable, table, working
from ripml.cli.summaries import megabytes, model_summary, readable
from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.store import Store, StoreError
from ripml.store.documents import check_ids
from ripml.tagging.documents import DocumentModel

__all__ = [
    "run_add_labels",
    "run_compact",
    "run_forget",
    "run_history",
    "run_list_labels",
    "run_merge_labels",
    "run_refit",
    "run_relabel",
    "run_rename_label",
    "run_retire_labels",
    "run_update",
    "since_the_fit",
    "warm",
]

_ROWS_AT_A_TIME = 500  # that are one transaction


def warm(trained: DocumentModel) -> dict[str, Any]:
    """What a store's model learnt since its fit; see `RIPML.warm_`."""
    assert isinstance(trained.model, RIPML)
    return trained.model.warm_


def since_the_fit(warm: dict[str, Any]) -> str:
    """These statistics in a line.

    >>> since_the_fit({"learnt": 3, "forgotten": 0, "relabelled": 1, "labels_added": 2, "changed": 0.25,
    ...                "drift": 1e-15, "refit_pays": True})
    '3 rows learnt, 0 forgotten, 1 relabelled (25.0 % of those at the fit), 2 labels added, drift 1e-15; a refit pays'
    """
    rows = f"{count(warm['learnt'], 'row')} learnt, {warm['forgotten']:,} forgotten, {warm['relabelled']:,} relabelled"
    share = f"({100 * warm['changed']:.1f} % of those at the fit)"
    advice = "; a refit pays" if warm["refit_pays"] else ""
    return f"{rows} {share}, {count(warm['labels_added'], 'label')} added, drift {warm['drift']:.1g}{advice}"


# ---------------------------------------------------------------------------------------------------------- documents


def run_update(folder: Path, data: str, form: Form, as_json: bool) -> None:
    """Learn the rows of a file or of the training part of a named set, and say what they changed."""
    with opened_store(folder) as store:
        rows = _read(store.model, data, form)
        labels, known, before = _labels(store), set(store.ids()), store.version
        ids = _learn(store, rows)
        there, changed = len(known.intersection(ids)), store.version - before
        replaced = changed - (len(ids) - there)
        found: dict[str, Any] = {
            "learnt": len(ids) - there,
            "replaced": replaced,
            "unchanged": there - replaced,
            "without_labels": int((rows.Y.indptr[1:] == rows.Y.indptr[:-1]).sum()),
            "new_labels": _new(store, labels),
            "documents": len(store),
            "labels": len(_labels(store)),
            "warm": warm(store.model),
        }
    if as_json:
        print_json({**found, "ids": ids})
        return
    unchanged = f", {found['unchanged']:,} as before" if found["unchanged"] else ""
    unlabelled = f", {found['without_labels']:,} of them without labels" if found["without_labels"] else ""
    learnt = f"{count(found['learnt'], 'document')} learnt, {replaced:,} replaced"
    print(f"{learnt}{unchanged}{unlabelled}; {_news(found['new_labels'])}")
    print(f"since the fit: {since_the_fit(found['warm'])}")


def _read(trained: DocumentModel, data: str, form: Form) -> Dataset:
    """Rows that can be learnt, with nothing but what the store keeps of them; checked before any of them is."""
    with reading(data) as place:
        rows = trained.read(place, form.format, **form.columns()) if is_file(data) else named_set(data)[0]
    if not len(rows):
        raise DataError(f"{rows.name} has no rows.")
    rows = replace(rows, X=None, feature_names=None) if trained.text is not None else replace(rows, texts=None)
    trained.check(trained.same_form(rows))
    check_ids(rows.ids or [])
    return rows


def _learn(store: Store, rows: Dataset) -> list[str]:
    """Learn rows in blocks and return their ids; blocks before one that fails are stored, and the error says so."""
    ids: list[str] = []
    try:
        with bar("learning", len(rows)) as advance:
            for block in blocks(rows, _ROWS_AT_A_TIME):
                learnt = store.learn(block)
                ids += learnt
                advance(len(learnt))
    except KeyboardInterrupt:
        raise Stopped(f"stopped; {count(len(ids), 'row')} {'is' if len(ids) == 1 else 'are'} kept.") from None
    except RipmlError as error:
        if not ids:
            raise
        raise StoreError(f"the first {len(ids):,} rows are stored, but not those behind them: {error}") from error
    return ids


def run_forget(folder: Path, ids: Sequence[str], source: str | None, as_json: bool) -> None:
    """Forget documents by their ids, all or none."""
    if bool(ids) == (source is not None):
        raise ParameterError("give the ids of the documents to forget, or --from and a file of them, one a line.")
    with opened_store(folder) as store:
        wanted = list(ids) if source is None else lines(source)
        with working("forgetting"):
            store.forget(wanted)
        _tell(store, {"forgotten": len(wanted)}, f"{count(len(wanted), 'document')} forgotten", as_json)


def run_relabel(folder: Path, id: str, labels: Sequence[str], as_json: bool) -> None:
    """Give a document other labels."""
    with opened_store(folder) as store:
        before = _labels(store)
        store.relabel(id, labels)
        found = {"id": id, "carries": store.document(id)["labels"], "new_labels": _new(store, before)}
        carries = ", ".join(map(printable, found["carries"])) or "no labels"
        _tell(store, found, f"{printable(id)} carries {carries}; {_news(found['new_labels'])}", as_json)


# ------------------------------------------------------------------------------------------------------------- upkeep


def run_compact(folder: Path, as_json: bool) -> None:
    """Leave no trace of what was forgotten."""
    with opened_store(folder) as store:
        before = _labels(store)
        with working("compacting"):
            store.compact()
        gone = sorted(before - _labels(store))
        size = megabytes(folder)
        dropped = f"{count(len(gone), 'label')} dropped that no document carries"
        _tell(store, {"dropped_labels": gone, "megabytes": size}, f"{size:g} MB; {dropped}", as_json)


def run_refit(folder: Path, as_json: bool) -> None:
    """Fit the model of a store anew, and say what was chosen."""
    with opened_store(folder) as store:
        with working("training"):
            store.refit()
        summary = {"documents": len(store), **model_summary(store.model)}
    print_json(summary) if as_json else facts(f"Fitted anew in {folder}", readable(summary))


def run_history(folder: Path, n: int, as_json: bool) -> None:
    """Print the last changes, newest first."""
    if n < 1:
        raise ParameterError(f"--last must be an integer ≥ 1; got {n}.")
    entries = opened_store(folder, readonly=True).history(n)
    if as_json:
        for entry in entries:
            print_json(entry)
        return
    if not entries:
        print(f"nothing was changed in {folder} yet")
        return
    lines = [
        [entry["number"], entry["time"][:19].replace("T", " "), entry["kind"], printable(entry.get("id") or ""),
         _carried(entry)]
        for entry in entries
    ]  # fmt: skip
    table(f"The last changes of {folder}", ["number", "time (UTC)", "kind", "id", "labels"], lines, n_words=5)


def _carried(entry: dict[str, Any]) -> str:
    """The labels that a change is about: those before and after it, where it says so."""
    before = next((entry[key] for key in ("before", "labels", "old", "label") if key in entry), None)
    after = next((entry[key] for key in ("after", "into", "new") if key in entry), None)
    sides = [
        side if isinstance(side, str) else ", ".join(side) or "none" for side in (before, after) if side is not None
    ]
    return printable(" → ".join(sides))


# ------------------------------------------------------------------------------------------------------------- labels


def run_list_labels(folder: Path, prefix: str, as_json: bool) -> None:
    """Print the labels in the order of their names, with the number of documents that carry each."""
    model = opened_store(folder, readonly=True).model.model
    assert isinstance(model, RIPML)
    found = zip(model.classes_.tolist(), model.frequency_.tolist(), model.vocabulary_.retired.tolist(), strict=True)
    for name, carriers, retired in sorted(row for row in found if row[0].startswith(prefix)):
        if as_json:
            print_json({"label": name, "documents": carriers, "retired": retired})
        else:
            print("\t".join([printable(name), str(carriers), *(["retired"] if retired else [])]))


def run_add_labels(folder: Path, names: Sequence[str], as_json: bool) -> None:
    """Declare labels that no document carries yet."""
    with opened_store(folder) as store:
        before = _labels(store)
        store.add_labels(names)
        new = _new(store, before)
        _tell(store, {"new_labels": new}, _news(new), as_json)


def run_rename_label(folder: Path, old: str, new: str, as_json: bool) -> None:
    """Give a label another name."""
    with opened_store(folder) as store:
        store.rename_label(old, new)
        _tell(store, {"old": old, "new": new}, f"{printable(old)} is {printable(new)} now", as_json)


def run_merge_labels(folder: Path, names: Sequence[str], into: str, as_json: bool) -> None:
    """Make one label of several."""
    with opened_store(folder) as store:
        store.merge_labels(names, into)
        merged = ", ".join(map(printable, names))
        _tell(store, {"merged": list(names), "into": into}, f"{merged} merged into {printable(into)}", as_json)


def run_retire_labels(folder: Path, names: Sequence[str], retired: bool, as_json: bool) -> None:
    """Suggest labels no more, or again."""
    with opened_store(folder) as store:
        for name in names:  # before the first of them is changed
            if name not in _labels(store):
                raise DataError(f"there is no label {name!r}.")
        for name in names:
            (store.retire_label if retired else store.reinstate_label)(name)
        what = "retired" if retired else "reinstated"
        _tell(store, {what: list(names)}, f"{', '.join(map(printable, names))} {what}", as_json)


def _labels(store: Store) -> set[str]:
    return set(store.model.model.classes_.tolist())


def _new(store: Store, before: set[str]) -> list[str]:
    return sorted(_labels(store) - before)


def _news(labels: Sequence[str]) -> str:
    shown = ", ".join(map(printable, labels[:8])) + (" …" if len(labels) > 8 else "")
    return f"{count(len(labels), 'new label')}: {shown}" if labels else "no new label"


def _tell(store: Store, found: dict[str, Any], sentence: str, as_json: bool) -> None:
    """Print what was done, and what is in the store now."""
    now = {"documents": len(store), "labels": len(_labels(store))}
    if as_json:
        print_json({**found, **now})
    else:
        print(f"{sentence}; {count(now['documents'], 'document')}, {count(now['labels'], 'label')}")
