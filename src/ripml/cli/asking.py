"""What suggest, predict and evaluate do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ripml.base.errors import ParameterError
from ripml.cli.opening import asked, opened
from ripml.cli.options import Form
from ripml.cli.output import (
    NOTHING_SUGGESTED,
    bar,
    count,
    print_json,
    printable,
    score_bars,
    table,
    told_rate,
    working,
)
from ripml.cli.questions import Questions, Words
from ripml.datasets import Dataset
from ripml.decoding import scores as decoding
from ripml.model.estimator import RIPML
from ripml.tagging.documents import DocumentModel
from ripml.tagging.rules import Suggestion

__all__ = ["run_evaluate", "run_predict", "run_suggest"]

_ROWS_AT_A_TIME = 2048


def _score_blocks(trained: DocumentModel, data: Dataset) -> Iterator[Any]:
    X = trained.features(data)
    with bar("asking the model", X.shape[0]) as advance:
        for start in range(0, X.shape[0], _ROWS_AT_A_TIME):
            scores = trained.model.decision_function(X[start : start + _ROWS_AT_A_TIME])
            yield scores
            advance(scores.shape[0])


def run_predict(
    folder: Path,
    data: str,
    form: Form,
    n: int,
    sets: bool,
    probabilities: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Print labels and scores, or calibrated probabilities, of each row; in the order of scores, which tie less."""
    if n < 1:
        raise ParameterError(f"--top must be an integer ≥ 1; got {n}.")
    trained, _ = opened(folder)
    model = trained.model
    if probabilities and not isinstance(model, RIPML):
        raise ParameterError(f"--probabilities are learnt by RIPML only; {folder} holds {type(model).__name__}.")
    model.set_params(n_jobs=jobs)
    rows = asked(trained, data, form)
    names = [str(name) for name in trained.model.classes_]
    number = silent = 0
    what = "probability" if probabilities else "score"
    for scores in _score_blocks(trained, rows):
        if sets:
            above = scores.multiply(decoding.keep_above(scores, trained.model.threshold_)).tocsr()
            best = decoding.top(above, above.shape[1])
        else:
            best = decoding.top(scores, n)
        if probabilities and isinstance(model, RIPML):
            best.data = model.model_.calibration.probabilities(best.data)
        silent += int((np.diff(scores.indptr) == 0).sum())
        for start, end in zip(best.indptr[:-1], best.indptr[1:], strict=True):
            pairs = [(names[j], float(v)) for j, v in zip(best.indices[start:end], best.data[start:end], strict=True)]
            if as_json:
                record = {"id": rows.ids[number]} if rows.ids else {}
                print_json({**record, "labels": [{"label": name, what: value} for name, value in pairs]})
            else:
                first = [rows.ids[number]] if rows.ids else []
                print("\t".join(map(printable, [*first, *(f for name, v in pairs for f in (name, f"{v:.4f}"))])))
            number += 1
    if silent:
        which = f"{count(silent, 'row')} {'has' if silent == 1 else 'have'}"
        print(f"{which} no feature or word that the model knows, and so no labels", file=sys.stderr)


def run_evaluate(folder: Path, data: str, form: Form, jobs: int | None, as_json: bool) -> None:
    """Print the metrics of the model on labelled rows."""
    trained, _ = opened(folder)
    trained.model.set_params(n_jobs=jobs)
    rows = asked(trained, data, form)
    start = time.perf_counter()
    with working("asking the model"):
        report = trained.evaluate(rows)
    told_rate("asking the model", len(rows), time.perf_counter() - start)
    counted = int((np.diff(rows.Y.indptr) > 0).sum())
    if as_json:
        print_json({"rows": counted, "rows_without_labels": len(rows) - counted, **report})
        return
    ranked = [name.removesuffix("@1") for name in report if name.endswith("@1")]
    lines = [[name, *(f"{100 * report[f'{name}@{k}']:.2f}" for k in (1, 3, 5))] for name in ranked]
    table(f"{rows.name or data}: {counted:,} rows with labels, in percent", ["metric", "@1", "@3", "@5"], lines)
    print(f"label sets above the threshold: micro F1 {100 * report['micro F1']:.2f}, "
          f"macro F1 {100 * report['macro F1']:.2f}")  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- suggest


def run_suggest(
    folder: Path,
    words: Words,
    n: int | None,
    threshold: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Print the labels that are suggested for texts, whichever way these come."""
    if n is not None and n < 1:
        raise ParameterError(f"--top must be an integer ≥ 1; got {n}.")
    words.check()
    trained, _ = opened(folder)
    questions = words.read(trained, folder)
    trained.model.set_params(n_jobs=jobs)
    changes = {"n": n, "threshold": None if threshold is None else _threshold(threshold)}
    rules = trained.rules.but(**{name: value for name, value in changes.items() if value is not None})
    number = silent = 0
    with questions.progress() as advance:
        for block in questions.blocks(_ROWS_AT_A_TIME):
            for labels in trained.suggest(block, rules):
                _print_suggestions(labels, questions, number, as_json)
                number += 1
                silent += not labels
            advance(len(block))
    if silent and not as_json and not sys.stdout.isatty():
        which = "no labels" if len(questions) == 1 else f"no labels for {silent:,} of {len(questions):,} texts"
        print(f"{which}: {NOTHING_SUGGESTED}", file=sys.stderr)


def _threshold(word: str) -> float | str:
    try:
        return word if word == "auto" else float(word)
    except ValueError:
        raise ParameterError(f"--threshold must be a number or auto; got {word!r}.") from None


def _print_suggestions(labels: Sequence[Suggestion], questions: Questions, number: int, as_json: bool) -> None:
    """One text's labels: JSON in a line, with bars on a terminal, and elsewhere label, tab, score in a line each.

    Of several texts each line begins with the id, or the number from 0.
    """
    if as_json:
        pairs = [{"label": label, "score": score} for label, score in labels]
        print_json({**questions.record(number), "labels": pairs})
        return
    id = questions.id(number)
    name = printable(str(number) if id is None else id)
    if sys.stdout.isatty():
        if len(questions) > 1:
            print(name)
        score_bars([(printable(label), score) for label, score in labels])
        return
    first = [name] if len(questions) > 1 else []
    for label, score in labels:
        print("\t".join([*first, printable(label), f"{score:.4f}"]))
