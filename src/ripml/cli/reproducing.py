"""What reproduce does: run experiments of the paper's laboratory, or list them."""

from __future__ import annotations

import json
from pathlib import Path

from ripml.cli.output import facts, print_json, steps
from ripml.lab.reproduce.experiment import Extent
from ripml.lab.reproduce.laboratory import EXPERIMENTS, experiment_of, run

__all__ = ["run_reproduce"]


def run_reproduce(what: str, folder: Path | None, quick: bool, seed: int, as_json: bool) -> None:
    """List the experiments, or run one or all and print where the report is and how the claims fare."""
    if what == "list":
        if as_json:
            for one in EXPERIMENTS:
                print_json({"number": one.number, "word": one.word, "title": one.title})
        else:
            facts("Experiments, by number or word:", {f"{one.number} {one.word}": one.title for one in EXPERIMENTS})
        return
    chosen = EXPERIMENTS if what == "all" else (experiment_of(what),)
    folder = folder or Path("reproduction-quick" if quick else "reproduction")
    with steps() as progress:
        report = run(chosen, Extent(folder, quick, seed), progress)
    claims = [
        {"experiment": experiment.word, **claim}
        for experiment in chosen
        for claim in json.loads((folder / f"{experiment.number}-{experiment.word}" / "result.json").read_text("utf-8"))[
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
