"""Shared by the benchmark scripts: command-line options, timing in turns, a table with bounds, and flat JSON."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = tuple[str, float, str]  # name, figure, and the bound or rival to compare it with


def options(description: str, **values: int | str) -> argparse.Namespace:
    """Parse --quick and --json PATH, and options that are counts or words, with their defaults."""
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="smaller and faster")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    for name, default in values.items():
        what = f"how many {name} (default {default})" if isinstance(default, int) else f"one {name} alone"
        parser.add_argument(f"--{name}", type=type(default), default=None, help=what)
    return parser.parse_args()


def side_by_side(functions: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The minimum seconds of each function, over rounds in which all take turns so that noise affects all alike."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def finish(rows: Sequence[Row], path: Path | None) -> None:
    """Print the table and write the JSON file."""
    width = max(len(name) for name, _, _ in rows)
    for name, figure, bound in rows:
        print(f"{name:<{width}}  {figure:>12,.4g}  {bound}")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({name: figure for name, figure, _ in rows}, indent=2, ensure_ascii=False) + "\n")


def has_data() -> bool:
    """Whether RIPML_DATA is set, so that named data sets can be loaded."""
    return bool(os.environ.get("RIPML_DATA"))
