"""What explain does: for each row its labels, the examples that speak for them, and the words that pull to them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ripml import datasets
from ripml.base.errors import DataError, ParameterError
from ripml.cli.opening import is_file, opened
from ripml.cli.output import print_json, printable, tree
from ripml.cli.questions import Questions, Words
from ripml.datasets.formats import suffix_format
from ripml.model.estimator import RIPML
from ripml.model.explain import Example
from ripml.store import Store
from ripml.tagging.documents import DocumentModel, Why
from ripml.text import TfIdf

__all__ = ["run_explain"]

_ROWS_AT_A_TIME = 256
_TITLE = 72  # characters of a text that stand for it
_FEATURES = 10_000  # that are looked through for whole words
_PARTS = 3  # groups of letters that are shown
_CARRIERS = 3  # documents that are named of those with the same labels


def run_explain(
    folder: Path,
    words: Words,
    n: int,
    n_examples: int,
    n_features: int,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Print why each text or row gets its labels."""
    for option, value in (("top", n), ("examples", n_examples), ("features", n_features)):
        if value < 1:
            raise ParameterError(f"--{option} must be an integer ≥ 1; got {value}.")
    if len(words.texts) == 1 and words.data is None and _is_data(words.texts[0]):
        words = replace(words, texts=[], data=words.texts[0])
    words.check()
    trained, store = opened(folder)
    model = trained.model
    if not isinstance(model, RIPML):
        raise ParameterError(f"RIPML explains its answers; {folder} holds {type(model).__name__}, which does not.")
    model.set_params(n_jobs=jobs)
    questions, rules = words.read(trained, folder), trained.rules.but(n=n)
    teller = _Teller(trained, store, n_examples, n_features)
    number = 0
    with questions.progress() as advance:
        for block in questions.blocks(_ROWS_AT_A_TIME):
            # For people some are put together: of more than are shown.
            asked_for = (n_examples, n_features) if as_json else (2 * n_examples, _FEATURES)
            for why in trained.explain(block, rules, *asked_for):
                if as_json:
                    print_json({**questions.record(number), "labels": [teller.as_json(label) for label in why]})
                else:
                    nothing = " has no feature or word that the model knows, and so no labels"
                    title = _title(questions, number) + ("" if why else nothing)
                    tree(title, [teller.in_words(label) for label in why])
                number += 1
            advance(len(block))


def _is_data(word: str) -> bool:
    """Whether what stands in the place of a text is DATA: there is such a file or data set, or it is named like one."""
    if os.path.exists(word):
        return is_file(word)
    return word in datasets.available() or (" " not in word and suffix_format(word) is not None)


def _title(questions: Questions, number: int) -> str:
    """What a row or text is called: by its id, its number, or the beginning of it."""
    id = questions.id(number)
    if id is not None or not isinstance(questions.rows, list):
        return f"row {number:,}" if id is None else printable(id)
    text = " ".join(questions.rows[number].split())
    return printable(text if len(text) <= _TITLE else text[:_TITLE] + "…")


class _Teller:
    """Explanations with the ids of documents."""

    def __init__(self, trained: DocumentModel, store: Store | None, n_examples: int, n_features: int) -> None:
        self._trained, self._store = trained, store
        self._n_examples, self._n_features = n_examples, n_features
        self._what = "features" if trained.text is None else "words"

    def _ids(self, example: Example) -> list[str]:
        """The documents of a store that are the example, or the first that carry its labels."""
        if self._store is None:
            return []
        if example.row is not None:
            return list(self._store.rows([example.row], self._trained).values())
        with contextlib.suppress(DataError):  # a writer may have renamed one of the labels meanwhile
            return self._store.carriers(example.labels, _CARRIERS)
        return []

    def as_json(self, why: Why) -> dict[str, Any]:
        """As `Why.to_json`, and in a store the ids of each example's documents."""
        found = why.to_json()
        for told, example in zip(found["examples"], why.examples, strict=True):
            told["labels"] = [str(label) for label in example.labels]
            if self._store is not None:
                told["documents"] = self._ids(example)
        return found

    def in_words(self, why: Why) -> tuple[str, list[str]]:
        """The label, and a line for each example, for what else makes up the score, and for the features."""
        examples = _once_each(why.examples)
        others = why.others + sum(example.share for example in examples[self._n_examples :])
        shares = [(example.share, self._example(example)) for example in examples[: self._n_examples]]
        rest = [(others, "other examples"), (why.regression, "the regression, by its " + self._what)]
        lines = [f"{_percent(share, why.score)}  {what}" for share, what in [*shares, *(r for r in rest if r[0] > 0)]]
        if why.features:
            pulls = (f"{printable(str(feature))} {pull:+.3f}" for feature, pull in self._pulls(why))
            lines.append(f"{self._what}: {', '.join(pulls)}")
        return f"{printable(str(why.label))}  {why.score:.4f}", lines

    def _pulls(self, why: Why) -> list[tuple[Any, float]]:
        """The features that are shown: whole words first, and where they leave room a few of the groups of letters."""
        if not isinstance(self._trained.text, TfIdf):
            return why.features[: self._n_features]
        parts = [(name, pull) for name, pull in why.features if "-" in (name[:1], name[-1:])]
        words = [(name, pull) for name, pull in why.features if "-" not in (name[:1], name[-1:])][: self._n_features]
        return words + parts[: min(_PARTS, self._n_features - len(words))]

    def _example(self, example: Example) -> str:
        ids = self._ids(example)
        if ids:
            more = max(example.n_rows - len(ids), 0)
            who = ("documents " if len(ids) + more > 1 else "document ") + ", ".join(map(printable, ids))
            who += f" and {more:,} more" if more else ""
        elif example.row is not None:
            who = f"row {example.row:,}"
        else:
            who = f"{example.n_rows:,} row{'' if example.n_rows == 1 else 's'}"
        return f"{who}: {_joined(example.labels)}"


def _once_each(examples: Sequence[Example]) -> list[Example]:
    """The examples, largest first, with a label set that one row carries added to that row, if it is there as well.

    >>> row, votes = Example(("a",), 0.25, 1, 7, 0, "similar"), Example(("a",), 0.5, 1, None, 0, "votes")
    >>> [(example.row, example.share) for example in _once_each([votes, row])]
    [(7, 0.75)]
    """
    rows = {(each.cluster, each.labels): number for number, each in enumerate(examples) if each.row is not None}
    found = dict(enumerate(examples))
    for number, each in enumerate(examples):
        place = rows.get((each.cluster, each.labels))
        if each.row is None and each.n_rows == 1 and place is not None:
            found[place] = replace(found[place], share=found[place].share + found.pop(number).share)
    return sorted(found.values(), key=lambda each: -each.share)


def _percent(share: float, score: float) -> str:
    return f"{100 * share / score if score else 0:3.0f} %"


def _joined(labels: Sequence[Any]) -> str:
    return ", ".join(printable(str(label)) for label in labels)
