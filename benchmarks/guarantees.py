"""Sets with a guarantee, and what can be applied unseen: what left-out rows promise, and what held-out rows show.

    python benchmarks/guarantees.py [--quick] [--json PATH] [--set bibtex] [--rows 10000]

For each set, the default model on at most `--rows` training rows, and 3,000 rows of the test part. For coverage 0.8,
0.9 and 0.95: the mean share of the labels of a test row, those that the model knows, that are in its set, the mean
size of sets, the smallest k whose k best labels hold the same share, and the time that a set takes once there are
scores. For precision 0.8, 0.9 and 0.95: the precision of labels that are applied unseen, label by label and row by row,
less the promised one, with its standard error over rows: on test rows, and on training rows that were not learnt, which
no shift parts from the others. Without RIPML_DATA, or with --quick, on the built-in set.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data, options
from scipy.sparse import csr_array

from ripml import RIPML, Tagger, datasets
from ripml.base.errors import ParameterError
from ripml.datasets import documents_given
from ripml.decoding.scores import outcomes, top
from ripml.lab.generated import generate

FEATURES = ("bibtex", "delicious", "eurlex", "wikispeedia", "zh_stock_news", "acl_authors")
TEXTS = ("tibkat", "msdocs", "eurlex57k")
COVERAGE, PRECISION = (0.8, 0.9, 0.95), (0.8, 0.9, 0.95)
TEST_ROWS, FEWEST, MOST_K = 3000, 500, 100


Rows = tuple[Any, Any]  # features and labels; labels that the model does not know come last


def fitted(name: str, n_rows: int) -> tuple[RIPML, Rows, Rows | None]:
    """The default model of a set, test rows, and training rows that it did not learn, if there are any."""
    random, folder = np.random.default_rng(0), Path(os.environ["RIPML_DATA"]) / name
    if name in FEATURES:
        train, test = (datasets.read(folder / f"{part}.txt.gz") for part in ("train", "test"))
        order, few = random.permutation(len(train)), np.sort(random.permutation(len(test))[:TEST_ROWS])
        some, rest = np.sort(order[:n_rows]), np.sort(order[n_rows:][:TEST_ROWS])
        unlearnt = (train.X[rest], train.Y[rest]) if len(rest) > FEWEST else None
        return RIPML(random_state=0).fit(train.X[some], train.Y[some]), (test.X[few], test.Y[few]), unlearnt
    with gzip.open(folder / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        documents = list(map(json.loads, file))
    parts = [[document for document in documents if document["split"] == part] for part in ("train", "test")]
    order, few = random.permutation(len(parts[0])), random.permutation(len(parts[1]))[:TEST_ROWS]
    drawn = [parts[0][i] for i in order[:n_rows]]
    trained = Tagger().fit(*[[row[key] for row in drawn] for key in ("text", "labels")]).documents_
    others = [parts[0][i] for i in order[n_rows:][:TEST_ROWS]]
    new = [documents_given(*([row[key] for row in part] for key in ("text", "labels")))
           for part in ([parts[1][i] for i in few], others) if len(part) > FEWEST]  # fmt: skip
    rows = [(trained.features(data), trained.labels(data)) for data in new]
    model: Any = trained.model
    return model, rows[0], rows[1] if len(rows) > 1 else None


def share_found(truth: Any, sets: Any) -> float:
    """The mean share of the labels of a row that are in its set."""
    found = csr_array((np.ones(len(sets.data)), sets.indices, sets.indptr), shape=sets.shape)
    found.resize(truth.shape)
    lengths = np.diff(truth.indptr)
    hits = np.asarray((truth != 0).multiply(found).sum(axis=1)).ravel()
    return float((hits[lengths > 0] / lengths[lengths > 0]).mean())


def measure(name: str, model: RIPML, test: Rows, unlearnt: Rows | None) -> list[Row]:
    """Lines about one set."""
    rows: list[Row] = []
    X, Y = test
    scores = model.decision_function(X)
    countable = csr_array(csr_array(Y)[:, : len(model.classes_)].multiply(model.frequency_ > 0))
    countable.eliminate_zeros()
    for coverage in COVERAGE:
        seconds = time.process_time()
        try:
            sets = model.covered(scores, X, coverage)
        except ParameterError as error:
            rows.append((f"{name}: coverage {coverage}, not possible", np.nan, str(error).split(":")[0]))
            continue
        seconds = time.process_time() - seconds
        found = share_found(countable, sets)
        k = next((k for k in range(1, MOST_K + 1) if share_found(countable, top(scores, k)) >= found), None)
        rows.append((f"{name}: coverage {coverage}, share found", found, f"{coverage} ± 0.02"))
        best = "no k finds as much" if k is None else f"the best {k} find as much"
        rows.append((f"{name}: coverage {coverage}, labels per set", sets.nnz / sets.shape[0], best))
        rows.append((f"{name}: coverage {coverage}, ms of a set beside its scores", 1000 * seconds / len(Y.indptr), ""))
    for what, part in (("test rows", test), ("training rows not learnt", unlearnt)):
        rows += [] if part is None else applied_unseen(f"{name}, {what}", model, *part)
    return rows


def applied_unseen(name: str, model: RIPML, X: Any, Y: Any) -> list[Row]:
    """What can be applied unseen to rows: the precision there less the promised one, and the error of the former."""
    rows: list[Row] = []
    scores, probabilities = model.scores_and_probabilities(X)
    right = outcomes(csr_array(Y)[:, : len(model.classes_)], scores).astype(float)
    n = scores.shape[0]
    of_row, kept = np.repeat(np.arange(n), np.diff(scores.indptr)), scores.data >= model.threshold_
    size, hits = np.bincount(of_row[kept], minlength=n), np.bincount(of_row[kept], right[kept], minlength=n)
    sure = np.bincount(of_row[kept], probabilities.data[kept], minlength=n) / np.maximum(size, 1)
    for precision in PRECISION:
        curves = model.automation([precision])
        for one in curves["labels"]:
            some = scores.data >= one["threshold"]
            found = np.bincount(of_row[some], right[some], minlength=n)
            given, share = np.bincount(of_row[some], minlength=n), right[some].sum() / Y.nnz
            rows += lines(name, "labels", one, found, given, share, precision)
        for one in curves["rows"]:
            decided = (sure >= one["threshold"]) & (size > 0)
            rows += lines(name, "rows", one, hits[decided], size[decided], decided.mean(), precision)
    return rows


def lines(
    name: str, what: str, one: dict[str, float], right: Any, applied: Any, share: float, wanted: float
) -> list[Row]:
    """By how much the precision of rows with so many right ones of the labels applied is off the promised one."""
    total = max(applied.sum(), 1)
    found = right.sum() / total
    error = float(np.sqrt(((right - found * applied) ** 2).sum()) / total)
    of = f"≥ −0.01; {share:.1%} of {what} ({one['share']:.1%} of those left out, at {one['precision']:.3f})"
    start = f"{name}: {what} unseen at {wanted}"
    return [(f"{start}, precision − promised", float(found - wanted), of), (f"{start}, standard error", error, "")]


def summary(rows: list[Row]) -> list[Row]:
    """How many points there are of each kind, and how many of them are below the promised precision."""
    found = {name: value for name, value, _ in rows}
    out: list[Row] = []
    for part in ("test rows", "training rows not learnt"):
        for what in ("labels", "rows"):
            points = [
                (value, found[name.replace("precision − promised", "standard error")])
                for name, value in found.items()
                if f", {part}: {what} unseen" in name and name.endswith("promised")
            ]
            if not points:
                continue
            below, error = np.transpose(points)
            start = f"all sets, {part}: {what} unseen, points"
            out += [
                (start, float(len(points)), ""),
                (f"{start} below the promise", float((below < 0).sum()), ""),
                (f"{start} below it by > 0.01", float((below < -0.01).sum()), "0"),
                (f"{start} below it by > 0.01 + 2 standard errors", float((below < -0.01 - 2 * error).sum()), "0"),
                (f"{start}, the lowest", float(below.min()), "≥ −0.01"),
            ]
    return out


def main() -> None:
    """Measure, and print what was found."""
    given = options(__doc__ or "", rows=10_000, set="")
    rows: list[Row] = []
    if has_data() and not given.quick:
        for name in (given.set,) if given.set else (*FEATURES, *TEXTS):
            rows += measure(name, *fitted(name, given.rows or 10_000))
            print(f"{name}: done", flush=True)
    else:
        X, Y = generate(3000, n_features=60, n_labels=80, labels_per_row=3.0, n_topics=10)
        rows = measure(
            "generated", RIPML(random_state=0).fit(X[:1500], Y[:1500]), (X[1500:], csr_array(Y[1500:])), None
        )
    rows += [*summary(rows), ("CPU seconds", time.process_time(), f"load {os.getloadavg()[0]:.1f}")]
    finish(rows, given.json)


if __name__ == "__main__":
    main()
