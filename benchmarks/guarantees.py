"""Sets with a guarantee, and what can be applied unseen: what left-out rows promise, and what held-out rows show.

    python benchmarks/guarantees.py [--quick] [--json PATH] [--set bibtex] [--rows 10000]

For each set, the default model on at most `--rows` training rows, and 3,000 rows of the test part. For coverage 0.8,
0.9 and 0.95: the mean share of the labels of a test row, those that the model knows, that are in its set, the mean size
of sets, and the smallest k whose k best labels hold the same share. For precision 0.8, 0.9 and 0.95: the precision of
labels that are applied unseen to test rows, label by label and row by row, less the promised one. Without RIPML_DATA,
or with --quick, on the built-in set.
"""

from __future__ import annotations

import gzip
import json
import os
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
TEST_ROWS, MOST_K = 3000, 100


def fitted(name: str, n_rows: int) -> tuple[RIPML, Any, Any]:
    """The default model of a set, and the features and labels of test rows; unknown labels come last."""
    random, folder = np.random.default_rng(0), Path(os.environ["RIPML_DATA"]) / name
    if name in FEATURES:
        train, test = (datasets.read(folder / f"{part}.txt.gz") for part in ("train", "test"))
        some, few = (np.sort(random.permutation(len(data))[:n]) for data, n in ((train, n_rows), (test, TEST_ROWS)))
        return RIPML(random_state=0).fit(train.X[some], train.Y[some]), test.X[few], test.Y[few]
    with gzip.open(folder / "docs.jsonl.gz", "rt", encoding="utf-8") as file:
        documents = list(map(json.loads, file))
    parts = [[document for document in documents if document["split"] == part] for part in ("train", "test")]
    drawn = [
        [part[i] for i in random.permutation(len(part))[:n]] for part, n in zip(parts, (n_rows, TEST_ROWS), strict=True)
    ]
    train_rows, test_rows = ([[row[key] for row in part] for key in ("text", "labels")] for part in drawn)
    trained = Tagger().fit(*train_rows).documents_
    data = documents_given(*test_rows)
    model: Any = trained.model
    return model, trained.features(data), trained.labels(data)


def share_found(truth: Any, sets: Any) -> float:
    """The mean share of the labels of a row that are in its set."""
    found = csr_array((np.ones(len(sets.data)), sets.indices, sets.indptr), shape=sets.shape)
    found.resize(truth.shape)
    lengths = np.diff(truth.indptr)
    hits = np.asarray((truth != 0).multiply(found).sum(axis=1)).ravel()
    return float((hits[lengths > 0] / lengths[lengths > 0]).mean())


def measure(name: str, model: RIPML, X: Any, Y: Any) -> list[Row]:
    """Lines about one set."""
    rows: list[Row] = []
    scores, probabilities = model.scores_and_probabilities(X)
    known = csr_array(Y)[:, : len(model.classes_)]
    countable = csr_array(known.multiply(model.frequency_ > 0))
    countable.eliminate_zeros()
    for coverage in COVERAGE:
        try:
            sets = model.covered(scores, coverage)
        except ParameterError as error:
            rows.append((f"{name}: coverage {coverage}, not possible", np.nan, str(error).split(":")[0]))
            continue
        found = share_found(countable, sets)
        k = next((k for k in range(1, MOST_K + 1) if share_found(countable, top(scores, k)) >= found), None)
        rows.append((f"{name}: coverage {coverage}, share found", found, f"{coverage} ± 0.02"))
        best = "no k finds as much" if k is None else f"the best {k} find as much"
        rows.append((f"{name}: coverage {coverage}, labels per set", sets.nnz / sets.shape[0], best))
    right = outcomes(known, scores)
    of_row, kept = np.repeat(np.arange(len(Y.indptr) - 1), np.diff(scores.indptr)), scores.data >= model.threshold_
    size = np.bincount(of_row[kept], minlength=scores.shape[0])
    sure = np.bincount(of_row[kept], probabilities.data[kept], minlength=scores.shape[0]) / np.maximum(size, 1)
    hits = np.bincount(of_row[kept], right[kept], minlength=scores.shape[0])
    for precision in PRECISION:
        curves = model.automation([precision])
        for one in curves["labels"]:
            applied = scores.data >= one["threshold"]
            rows.append(line(name, "labels", one, right[applied].mean(), right[applied].sum() / Y.nnz, precision))
        for one in curves["rows"]:
            some = (sure >= one["threshold"]) & (size > 0)
            rows.append(line(name, "rows", one, hits[some].sum() / max(size[some].sum(), 1), some.mean(), precision))
    return rows


def line(name: str, what: str, one: dict[str, float], found: float, share: float, precision: float) -> Row:
    """By how much the precision on test rows is off the promised one."""
    of = f"≤ 0.01 off {one['precision']:.3f}; {share:.1%} of {what} ({one['share']:.1%} promised)"
    return f"{name}: {what} unseen at {precision}, precision − promised", float(found - one["precision"]), of


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
        rows = measure("generated", RIPML(random_state=0).fit(X[:1500], Y[:1500]), X[1500:], csr_array(Y[1500:]))
    finish(rows, given.json)


if __name__ == "__main__":
    main()
