"""What explain does: for each row its labels, the examples that speak for them, and the words that pull to them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ripml.cli.opening import asked, blocks, opened
from ripml.cli.output import bar, print_json, tree
from ripml.cli.summaries import printable
from ripml.documents import DocumentModel, Why
from ripml.errors import DataError, ParameterError
from ripml.estimator import RIPML
from ripml.explaining import Example
from ripml.store import Store

__all__ = ["run_explain"]

_ROWS_AT_A_TIME = 256
_CARRIERS = 3  # documents that are named of those with the same labels


def run_explain(
    folder: Path,
    data: str,
    format: str | None,
    n: int,
    n_examples: int,
    n_features: int,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Print why each row gets its labels."""
    for option, value in (("top", n), ("examples", n_examples), ("features", n_features)):
        if value < 1:
            raise ParameterError(f"--{option} must be an integer ≥ 1; got {value}.")
    trained, store = opened(folder)
    model = trained.model
    if not isinstance(model, RIPML):
        raise ParameterError(f"RIPML explains its answers; {folder} holds {type(model).__name__}, which does not.")
    model.set_params(n_jobs=jobs)
    rows, rules = asked(trained, data, format), trained.rules.but(n=n)
    teller = _Teller(trained, store)
    with bar("asking the model", len(rows)) as advance:
        number = 0
        for block in blocks(rows, _ROWS_AT_A_TIME):
            for why in trained.explain(block, rules, n_examples, n_features):
                if as_json:
                    record = {"id": rows.ids[number]} if rows.ids else {}
                    print_json({**record, "labels": [teller.as_json(label) for label in why]})
                else:
                    title = printable(rows.ids[number]) if rows.ids else f"row {number:,}"
                    nothing = " has no feature or word that the model knows, and so no labels"
                    tree(title + ("" if why else nothing), [teller.in_words(label) for label in why])
                number += 1
            advance(len(block))


class _Teller:
    """Explanations with the ids of documents."""

    def __init__(self, trained: DocumentModel, store: Store | None) -> None:
        self._trained, self._store = trained, store
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
        shares = [(example.share, self._example(example)) for example in why.examples]
        rest = [(why.others, "other examples"), (why.regression, "the regression, by its " + self._what)]
        lines = [f"{_percent(share, why.score)}  {what}" for share, what in [*shares, *(r for r in rest if r[0] > 0)]]
        if why.features:
            pulls = (f"{printable(str(feature))} {pull:+.3f}" for feature, pull in why.features)
            lines.append(f"{self._what}: {', '.join(pulls)}")
        return f"{printable(str(why.label))}  {why.score:.4f}", lines

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


def _percent(share: float, score: float) -> str:
    return f"{100 * share / score if score else 0:3.0f} %"


def _joined(labels: Sequence[Any]) -> str:
    return ", ".join(printable(str(label)) for label in labels)
