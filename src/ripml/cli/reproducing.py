"""What reproduce does: run experiments of the paper's laboratory, or list them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from ripml.cli.output import print_json, table
from ripml.reproduce.experiment import Extent
from ripml.reproduce.laboratory import EXPERIMENTS, Progress, experiment_of, run

__all__ = ["run_reproduce"]


def run_reproduce(what: str, folder: Path | None, quick: bool, seed: int, as_json: bool) -> None:
    """List the experiments, or run one or all and print where the report is and how the claims fare."""
    if what == "list":
        lines = [[experiment.number, experiment.word, experiment.title] for experiment in EXPERIMENTS]
        if as_json:
            for number, word, title in lines:
                print_json({"number": number, "word": word, "title": title})
        else:
            table("Experiments", ["", "word", "what"], lines)
        return
    chosen = EXPERIMENTS if what == "all" else (experiment_of(what),)
    folder = folder or Path("reproduction-quick" if quick else "reproduction")
    with _progress() as progress:
        report = run(chosen, Extent(folder, quick, seed), progress)
    claims = [
        {"experiment": experiment.word, **claim}
        for experiment in chosen
        for claim in json.loads((folder / f"{experiment.number}-{experiment.word}" / "result.json").read_text())[
            "claims"
        ]
    ]
    if as_json:
        print_json({"report": str(report), "claims": claims})
        return
    words = {True: "holds", False: "does not hold here", None: "cannot be told here"}
    for claim in claims:
        print(f"{claim['experiment']}: {claim['text']}\n    {words[claim['holds']]}: {claim['evidence']}")
    print(f"\nReport: {report}")


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Measurements done: a bar for each experiment on a terminal, a line for each measurement elsewhere."""
    if not sys.stderr.isatty():
        yield lambda word, done, total: print(f"{word}: {done} of {total}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        tasks = {}

        def show(word: str, done: int, total: int) -> None:
            if word not in tasks:
                tasks[word] = bars.add_task(word, total=total)
            bars.update(tasks[word], completed=done)

        yield show
