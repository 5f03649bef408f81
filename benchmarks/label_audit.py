"""Wrong and missing labels: precision of the first findings, and time, beside cleanlab.

    RIPML_DATA=folder python benchmarks/label_audit.py [--quick] [--set NAME] [--documents N] [--json PATH]

Of the training labels of a set, 5 % are replaced by others, drawn by label frequency, and 5 % are removed; no document
loses all. A finding is right if it is among these: labels that were wrong or missing before count as mistakes. Sets are
Bibtex (the first 250 findings, as only 580 labels are replaced), EUR-Lex (all training rows) and msdocs (N texts drawn
at random, 20,000 by default), of which the first 1,000 findings count.

    ripml                    `RIPML.audit`
    lowest probability       the same left-out probabilities, ranked by themselves: cleanlab's label quality scores
    cleanlab                 its multilabel finder on the same probabilities
    cleanlab, own model      the same on five-fold cross-validated logistic regression, one for each label (Bibtex)

cleanlab is not a dependency: `pip install cleanlab` in an environment of its own, and add it to PYTHONPATH; without it,
its rows are left out. On msdocs its matrix of documents and labels would not fit into memory. (--quick: Bibtex.)
"""

from __future__ import annotations

import gzip
import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from harness import Row, finish, has_data, options
from numpy.typing import NDArray

from ripml import RIPML, Tagger, datasets
from ripml.model.audit import Audit, find_doubtful
from ripml.model.left_out import LeftOutRows, leave_out_rows

SEED = 7  # the rules were chosen with others
WRONG, REMOVED = 0.05, 0.05
FIRST = {"bibtex": 250}
Ints = NDArray[np.int64]


def damaged(Y: Any, seed: int) -> Any:
    """Y, CSR, with labels replaced and removed."""
    rng = np.random.default_rng(seed)
    n, L = Y.shape
    row, label = np.repeat(np.arange(n), np.diff(Y.indptr)), Y.indices.astype(np.int64)
    fate = rng.random(len(row))
    replaced, removed = fate < WRONG, (fate >= WRONG) & (fate < WRONG + REMOVED)
    kept = np.bincount(row[~removed], minlength=n)
    removed &= kept[row] > 0
    chance = np.cumsum(np.bincount(label, minlength=L) / len(label))
    taken = set((row * L + label).tolist())
    for place in np.flatnonzero(replaced).tolist():
        key = -1
        while key < 0 or key in taken:
            key = int(row[place] * L + min(np.searchsorted(chance, rng.random()), L - 1))
        taken.add(key)
        label[place] = key % L
    stays = ~removed
    found = scipy.sparse.csr_array((np.ones(stays.sum(), np.float32), (row[stays], label[stays])), shape=(n, L))
    found.sort_indices()
    return found


def keys_of(Y: Any) -> Ints:
    """row · L + label of all labels, ascending."""
    return np.sort(np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * Y.shape[1] + Y.indices)


def first(name: str) -> int:
    """How many findings count."""
    return FIRST.get(name, 1000)


def precision(keys: Ints, truth: Ints, wrong: bool) -> float:
    """The share of pairs that are not in the undamaged labels, or that are."""
    return float(np.mean(np.isin(keys, truth) != wrong))


def rows_of(name: str, method: str, wrong: Ints, missing: Ints, truth: Ints, bounds: tuple[str, str]) -> list[Row]:
    """The figures of one method."""
    n = first(name)
    return [
        (f"{name}, {method}: wrong, precision of the first {n:,}", precision(wrong[:n], truth, True), bounds[0]),
        (f"{name}, {method}: missing, precision of the first {n:,}", precision(missing[:n], truth, False), bounds[1]),
    ]


def of_findings(found: Audit, columns: dict[str, int], L: int) -> tuple[Ints, Ints]:
    """The pairs of an audit."""
    wrong, missing = (
        np.array([int(one.document) * L + columns[str(one.label)] for one in findings], np.int64)
        for findings in (found.wrong, found.missing)
    )
    return wrong, missing


def audited(model: RIPML, n: int, texts: Sequence[str] = ()) -> tuple[Audit, LeftOutRows, float, float]:
    """What `model.audit` finds in rows of these texts, the rows that it left out, and the seconds that both took,
    by the wall and of CPU.
    """
    start, cpu = time.perf_counter(), time.process_time()
    left_out = leave_out_rows(model.model_, quick=True)
    found = find_doubtful(model.model_, left_out, n, texts=texts)
    return found, left_out, time.perf_counter() - start, time.process_time() - cpu


def by_probability(model: RIPML, left_out: LeftOutRows) -> tuple[Ints, Ints, Any]:
    """The pairs of lowest and highest left-out probability, and all probabilities, CSR."""
    left_out = leave_out_rows(model.model_) if left_out.quick else left_out
    scores = left_out.scores.copy()
    scores.data = model.model_.calibration.probabilities(scores.data)
    wrong, missing = ranked(left_out.Y, scores)
    return wrong, missing, scores


def ranked(Y: Any, P: Any) -> tuple[Ints, Ints]:
    """Carried labels by rising probability, and others by falling one; ties at random."""
    L, rng = Y.shape[1], np.random.default_rng(0)
    carried, stored = keys_of(Y), np.repeat(np.arange(P.shape[0], dtype=np.int64), np.diff(P.indptr)) * L + P.indices
    order = np.argsort(stored)
    place = np.minimum(np.searchsorted(stored[order], carried), len(stored) - 1)
    p = np.where(stored[order][place] == carried, P.data[order][place], 0.0)
    absent = ~np.isin(stored, carried)
    wrong = carried[np.lexsort((rng.random(len(p)), p))]
    return wrong, stored[absent][np.argsort(-P.data[absent], kind="stable")]


def by_cleanlab(Y: Any, P: NDArray[Any]) -> tuple[Ints, Ints] | None:
    """The pairs that cleanlab finds, by its label quality scores; None where it is not installed."""
    try:
        from cleanlab.multilabel_classification.filter import (  # type: ignore[import-not-found]
            find_multilabel_issues_per_class,
        )
    except ImportError:
        print("cleanlab is not installed: pip install cleanlab, in an environment of its own")
        return None
    labels = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a sentence for each label of few rows
        issues = find_multilabel_issues_per_class(labels, P, n_jobs=1)
    rows, columns = np.nonzero(issues)
    keys, p = rows.astype(np.int64) * Y.shape[1] + columns, P[rows, columns]
    carried = np.isin(keys, keys_of(Y))
    order = np.argsort(np.where(carried, p, 1 - p), kind="stable")
    return keys[order[carried[order]]], keys[order[~carried[order]]]


def cross_validated(X: Any, Y: Any) -> NDArray[np.float64]:
    """Probabilities of one logistic regression for each label, each fifth of the rows by the others."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold

    P = np.zeros(Y.shape)
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        for label in range(Y.shape[1]):
            y = Y[train][:, [label]].toarray().ravel()
            if y.any():
                model = LogisticRegression(C=10, solver="liblinear").fit(X[train], y)
                P[test, label] = model.predict_proba(X[test])[:, 1]
    return P


def features(name: str, own_model: bool) -> list[Row]:
    """A set of feature rows."""
    train = datasets.load(name)[0]
    filled = np.flatnonzero(np.diff(train.Y.indptr) > 0)
    X, true = train.X[filled], scipy.sparse.csr_array(train.Y[filled])
    true.sort_indices()
    Y, truth = damaged(true, SEED), keys_of(true)
    model = RIPML(random_state=0).fit(X, Y)
    found, left_out, *seconds = audited(model, first(name))
    columns = {str(label): column for column, label in enumerate(model.classes_.tolist())}
    rows = rows_of(name, "ripml", *of_findings(found, columns, Y.shape[1]), truth, ("≥ 0.8", "≥ 0.5"))
    rows += times(name, *seconds)
    wrong, missing, P = by_probability(model, left_out)
    rows += rows_of(name, "lowest probability", wrong, missing, truth, ("< ripml", "< ripml"))
    given = by_cleanlab(Y, P.toarray())
    if given is not None:
        rows += rows_of(name, "cleanlab", *given, truth, ("< ripml", "< ripml"))
    if own_model and given is not None:
        given = by_cleanlab(Y, cross_validated(X, Y))
        assert given is not None
        rows += rows_of(name, "cleanlab, own model", *given, truth, ("< ripml", "< ripml"))
    return rows


def times(name: str, wall: float, cpu: float) -> list[Row]:
    return [(f"{name}, audit, seconds", wall, "≤ 120"), (f"{name}, audit, seconds of CPU on all cores", cpu, "")]


def texts(n: int) -> list[Row]:
    """Pages of msdocs."""
    name = f"msdocs, {n:,} texts"
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "msdocs" / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        pages = [page for page in map(json.loads, file) if page["split"] == "train" and page["labels"]]
    distinct = list({" ".join(page["text"].split()): page for page in pages if page["text"].strip()}.values())
    chosen = np.sort(np.random.default_rng(0).permutation(len(distinct))[:n])
    pages = [distinct[i] for i in chosen.tolist()]
    names = sorted({label for page in pages for label in page["labels"]})
    columns = {label: column for column, label in enumerate(names)}
    pairs = [(row, columns[label]) for row, page in enumerate(pages) for label in page["labels"]]
    true = scipy.sparse.csr_array((np.ones(len(pairs)), tuple(np.array(pairs).T)), shape=(len(pages), len(names)))
    true.sort_indices()
    Y, truth = damaged(true, SEED), keys_of(true)
    tags = [[names[label] for label in Y.indices[a:b]] for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]
    given = [page["text"] for page in pages]
    model = Tagger().fit(given, tags).documents_.model
    assert isinstance(model, RIPML)
    found, left_out, *seconds = audited(model, first(name), given)
    rows = rows_of(name, "ripml", *of_findings(found, columns, len(names)), truth, ("≥ 0.8", "≥ 0.5"))
    rows += times(name, *seconds)
    place = np.array([columns[str(label)] for label in model.classes_.tolist()])
    wrong, missing = (
        keys // len(place) * len(names) + place[keys % len(place)] for keys in by_probability(model, left_out)[:2]
    )
    return rows + rows_of(name, "lowest probability", wrong, missing, truth, ("< ripml", "< ripml"))


def main() -> None:
    arguments = options(__doc__ or "", set="", documents=20_000)
    if not has_data():
        print("skipped: set RIPML_DATA to the folder with bibtex, eurlex and msdocs")
        return
    wanted = [arguments.set] if arguments.set else ["bibtex"] if arguments.quick else ["bibtex", "eurlex", "msdocs"]
    rows: list[Row] = []
    for name in wanted:
        rows += texts(arguments.documents or 20_000) if name == "msdocs" else features(name, name == "bibtex")
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
