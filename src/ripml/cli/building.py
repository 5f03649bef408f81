"""What datasets wikipedia and datasets chinese do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ripml.cli.output import facts, print_json, steps, working
from ripml.lab import chinese, wikipedia

__all__ = ["run_chinese", "run_wikipedia"]


def run_wikipedia(
    dump: Path, folder: Path, features: str, targets: str, seed: int, settings: dict[str, Any], as_json: bool
) -> None:
    """Build the entity data set and print what was found."""
    with steps() as progress:
        summary = wikipedia.build(
            dump, folder, features=features, targets=targets, random_state=seed, progress=progress, **settings
        )
    _tell(folder, asdict(summary), as_json)


def run_chinese(source: Path, folder: Path, features: str, min_count: int, test: int, seed: int, as_json: bool) -> None:
    """Build the relevance data set and print what was found."""
    with working("building"):
        counts = chinese.build(source, folder, features=features, min_count=min_count, n_test=test, random_state=seed)
    _tell(folder, {name.removeprefix("n_"): value for name, value in asdict(counts).items()}, as_json)


def _tell(folder: Path, found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(folder), **found})
    else:
        facts(f"Built {folder}", {name.replace("_", " "): f"{value:,}" for name, value in found.items()})
