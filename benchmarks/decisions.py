"""Decisions on some tags of a document: what becomes of the correct tags that nobody touched, and what it costs.

    python benchmarks/decisions.py [--quick] [--rows N] [--json PATH]

On EUR-Lex (RIPML_DATA), of 200 new documents up to two of the five suggested tags that are right are accepted, and the
first wrong one is rejected; the other correct tags of each document remain undecided. Compared are the scores before
and after for `decide`, and for `partial_fit`, which takes the accepted tags as all tags of the document. --quick does
that with `RIPML.linear()` only, else with the default as well. --rows takes fewer training rows.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
from harness import Row, finish, has_data, options
from numpy.typing import NDArray

from ripml import RIPML, datasets, metrics

N_DECISIONS, SUGGESTED, ACCEPTED = 200, 5, 2
SINGLE, CHANGES = 100, 10  # rows answered and rows decided one by one
BAR = -0.02  # mean change of the scores of untouched correct tags


def decisions_of(truth: NDArray[Any], scores: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The tags of each row that are accepted and rejected, both (n, L)."""
    accepted, rejected = np.zeros(truth.shape, bool), np.zeros(truth.shape, bool)
    for row, best in enumerate(np.argsort(-scores, axis=1, kind="stable")[:, :SUGGESTED]):
        right = truth[row, best]
        accepted[row, best[right][:ACCEPTED]] = True
        rejected[row, best[~right][:1]] = True
    return accepted, rejected


def seconds_of_answers(model: RIPML, X: Any) -> float:
    """The median seconds of the answer for one row."""
    times = []
    for row in range(SINGLE):
        start = time.perf_counter()
        model.decision_function(X[row : row + 1])
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def seconds_of_learning(model: RIPML, X: Any, Y: Any) -> float:
    """The median seconds of learning one row."""
    times = []
    for row in range(CHANGES):
        start = time.perf_counter()
        model.partial_fit(X[row : row + 1], Y[row : row + 1])
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measured(name: str, model: RIPML, n_rows: int | None = None) -> list[Row]:
    train, test = datasets.load("eurlex")
    model.fit(train.X[:n_rows], train.Y[:n_rows])
    X, truth = test.X, test.Y.toarray() > 0
    start = time.perf_counter()
    model.warm_up()
    warm_up = time.perf_counter() - start
    before = model.decision_function(X).toarray()
    accepted, rejected = decisions_of(truth[:N_DECISIONS], before[:N_DECISIONS])
    some = np.flatnonzero(accepted.any(axis=1))  # a complete row needs a tag
    rejected[~accepted.any(axis=1)] = False
    untouched = truth[:N_DECISIONS] & ~accepted & accepted.any(axis=1, keepdims=True)

    decided = copy.copy(model)
    times = []
    for row in some[:CHANGES]:
        start = time.perf_counter()
        decided.decide(X[[row]], accepted[[row]], rejected[[row]])
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    decided.decide(X[some[CHANGES:]], accepted[some[CHANGES:]], rejected[some[CHANGES:]])
    many = time.perf_counter() - start
    after = decided.decision_function(X).toarray()
    answer, plain = seconds_of_answers(decided, X), seconds_of_answers(model, X)
    start = time.perf_counter()
    decided.decide(X[[some[0]]], accepted[[some[0]]], None)
    last = time.perf_counter() - start

    learning = seconds_of_learning(decided, X[-CHANGES:], test.Y[-CHANGES:])

    # Only the newest version of a model can be changed, and this one is to have no decisions.
    complete = decided.withdraw(X[some[:1]], accepted[some[:1]], None)
    complete.withdraw(X[some], accepted[some], rejected[some]).forget(X[-CHANGES:], test.Y[-CHANGES:])
    plain_learning = seconds_of_learning(complete, X[-CHANGES:], test.Y[-CHANGES:])
    complete.forget(X[-CHANGES:], test.Y[-CHANGES:])
    complete.partial_fit(X[some], accepted[some].astype(np.float32))
    learnt = complete.decision_function(X).toarray()

    rows: list[Row] = []
    for how, scores in {"decided": after, "learnt as complete rows": learnt}.items():
        change = scores[:N_DECISIONS] - before[:N_DECISIONS]
        others = slice(N_DECISIONS, None)
        rows += [
            (
                f"{name}, {how}: untouched correct tags",
                float(change[untouched].mean()),
                f"≥ {BAR}" * (how == "decided"),
            ),
            (f"{name}, {how}: accepted tags", float(change[accepted].mean()), ""),
            (f"{name}, {how}: rejected tags", float(change[rejected].mean()), ""),
            *(
                (
                    f"{name}, {how}: P@{k} of other documents",
                    100 * metrics.precision_at_k(test.Y[others], scores[others], k=k),
                    f"before {100 * metrics.precision_at_k(test.Y[others], before[others], k=k):.2f}",
                )
                for k in (1, 5)
            ),
        ]
    return [
        *rows,
        (f"{name}: decisions", len(some), ""),
        (f"{name}: seconds to warm up", warm_up, ""),
        (f"{name}: seconds of one of the first decisions", float(np.median(times)), ""),
        (f"{name}: seconds of one after {len(some)}", last, ""),
        (f"{name}: seconds of {len(some) - CHANGES} at once", many, ""),
        (f"{name}: seconds of learning a row", learning, f"{plain_learning:.3f} without decisions"),
        (f"{name}: milliseconds of an answer", 1000 * answer, f"{1000 * plain:.2f} without decisions"),
    ]


def main() -> None:
    arguments = options(__doc__ or "", rows=17_383)
    if not has_data():
        raise SystemExit("decisions.py needs the data sets: set RIPML_DATA to their folder.")
    rows = measured("linear", RIPML.linear(random_state=0), arguments.rows)
    if not arguments.quick:
        rows += measured("default", RIPML(random_state=0), arguments.rows)
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
