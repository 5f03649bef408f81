"""What demo does: the paper's entity recommendation in miniature, on the docstrings of NumPy, SciPy and scikit-learn.

A document is a function's docstring without its "See Also" section; its labels are the functions that section links to.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse

from ripml import datasets, metrics
from ripml.cli.output import print_json, table, working
from ripml.cli.summaries import chosen
from ripml.datasets import Dataset
from ripml.decoding.votes import tally
from ripml.model.estimator import RIPML

__all__ = ["run_demo"]

_NEIGHBORS = 5  # of the baseline
# Shown if they fell into the held-out part; others fill up.
_FAMOUS = ("argmax", "nanstd", "eigh_tridiagonal", "elliprj", "lars_path", "irfftn", "fligner", "append", "yeojohnson")
_SHOWN = 6


def run_demo(as_json: bool) -> None:
    """Train, compare with two baselines on held-out functions, and show some recommendations."""
    with working("reading docstrings"):
        train, test = datasets.load("numpydoc")
    start = time.perf_counter()
    with working("training"):
        model = RIPML(random_state=0).fit(train.X, train.Y, label_names=train.label_names)
    seconds = time.perf_counter() - start
    methods = {
        "RIPML": model.decision_function(test.X),
        "feature kNN (cosine)": _feature_neighbors(train, test),
        "popularity": _popularity(train, len(test)),
    }
    methods = {name: _without_themselves(scores, test) for name, scores in methods.items()}
    quality = {name: _precision(test.Y, scores) for name, scores in methods.items()}
    examples = _examples(test, methods["RIPML"])
    if as_json:
        print_json({"train": len(train), "test": len(test), "labels": train.Y.shape[1], "seconds": seconds,
                    "chosen": chosen(model), "precision": quality, "examples": examples})  # fmt: skip
        return
    size = f"{len(train):,} functions, {train.X.shape[1]:,} words, {train.Y.shape[1]:,} labels"
    print(f"Learnt from {size} in {seconds:.1f} s; {len(test):,} functions held out.")
    print(f"Chosen on training rows left out: {_sentence(model)}.\n")
    rows = [[name, *(f"{100 * value:.1f}" for value in found.values())] for name, found in quality.items()]
    table("Which functions does the documentation link to? (percent)", ["method", "P@1", "P@3", "P@5"], rows)
    print("Recommended for functions it has never seen, and how likely (✓: the documentation links there, too)\n")
    for example in examples:
        print(f"  {example['function']}")
        for name, score, linked in example["recommended"]:
            print(f"    {'✓' if linked else ' '} {score:4.2f}  {name}")


def _sentence(model: RIPML) -> str:
    found = chosen(model)
    return (
        f"words weighed by relevance^{found['relevance']:.3g}, {model.kernel_}, ridge {found['ridge'][0]:.3g}, "
        f"{found['n_neighbors']} neighbours by label sets and {found['n_similar']} by words"
    )


def _precision(Y: Any, scores: Any) -> dict[str, float]:
    return {f"P@{k}": metrics.precision_at_k(Y, scores, k=k) for k in (1, 3, 5)}


def _feature_neighbors(train: Dataset, test: Dataset) -> Any:
    """Votes of the nearest training rows by cosine (tf-idf rows have length 1)."""
    similar = (test.X @ train.X.T).toarray()
    nearest = np.argsort(-similar, axis=1, kind="stable")[:, :_NEIGHBORS]
    return tally(nearest, np.full(nearest.shape, 1 / _NEIGHBORS), train.Y)


def _popularity(train: Dataset, n: int) -> Any:
    """The share of training rows that carry each label, the same for every row."""
    share = np.asarray(train.Y.mean(axis=0)).ravel()
    best = np.argsort(-share, kind="stable")[:50]
    indptr = np.arange(n + 1) * len(best)
    return scipy.sparse.csr_array((np.tile(share[best], n), np.tile(best, n), indptr), shape=(n, len(share)))


def _without_themselves(scores: Any, test: Dataset) -> Any:
    """A function is a label, too; recommending it to itself is right for no method, so no method may."""
    column = {name: j for j, name in enumerate(test.label_names)}
    own = np.array([column.get(name, -1) for name in test.ids or []])
    kept = scores.indices != np.repeat(own, np.diff(scores.indptr))
    row = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))[kept]
    return scipy.sparse.csr_array((scores.data[kept], (row, scores.indices[kept])), shape=scores.shape)


def _examples(test: Dataset, scores: Any) -> list[dict[str, Any]]:
    ids = test.ids or []
    famous = [i for word in _FAMOUS for i, name in enumerate(ids) if name.rpartition(".")[2] == word]
    shown = list(dict.fromkeys([*famous, *range(len(ids))]))[:_SHOWN]
    ranked = metrics.ranking(scores[shown], 5)
    examples = []
    for i, labels in zip(shown, ranked, strict=True):
        linked = set(test.Y[[i]].indices.tolist())
        row = scores[[i]].toarray().ravel()
        found = [(test.label_names[j], round(float(row[j]), 4), j in linked) for j in labels.tolist() if j >= 0]
        examples.append({"function": ids[i], "recommended": found})
    return examples
