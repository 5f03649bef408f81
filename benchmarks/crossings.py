"""How many modules one fit, one answer and one update cross, and how often: what a reader has to follow.

    python benchmarks/crossings.py [--json PATH]

A crossing is a call from a function of one module of ripml to a function of another one, counted by a profiler on a
tiny data set in one thread; calls that pass through other packages on their way count as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ripml

ROOT = str(Path(ripml.__file__).parent)


def crossings(action: Callable[[], Any]) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """The calls into each module of ripml from another one, and the pairs of modules, while `action` runs."""
    modules: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    stacks: dict[int, list[str]] = {}

    def profile(frame: Any, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event not in ("call", "return") or not name.startswith(ROOT):
            return
        module = name[len(ROOT) + 1 :]
        stack = stacks.setdefault(threading.get_ident(), [])
        if event == "call":
            if not stack or stack[-1] != module:
                modules[module] += 1
                pairs[stack[-1] if stack else "caller", module] += 1
            stack.append(module)
        elif stack:
            stack.pop()

    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return modules, pairs


def main() -> None:
    """Count for the default model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--pairs", action="store_true", help="list every pair of modules")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    X = random.random((30, 6))
    Y = [[f"label {i % 5}", f"label {i % 3}"] for i in range(30)]
    found = {}
    for preset in ("default", "paper", "linear"):
        make: Any = {"default": ripml.RIPML, "paper": ripml.RIPML.paper, "linear": ripml.RIPML.linear}[preset]
        model = make(random_state=0, n_jobs=1)
        model.fit(X, Y).recommend(X[:1])
        model.partial_fit(X[:1], Y[:1])  # everything is imported
        model = make(random_state=0, n_jobs=1)
        actions = {
            "fit": lambda model=model: model.fit(X, Y),
            "recommend": lambda model=model: model.recommend(X[:1]),
            "partial_fit": lambda model=model: model.partial_fit(X[:1], Y[:1]),
        }
        for name, action in actions.items():
            modules, pairs = crossings(action)
            found[f"{preset} {name} modules"] = len(modules)
            found[f"{preset} {name} crossings"] = sum(modules.values())
            print(f"{preset} {name}: {len(modules)} modules, {sum(modules.values())} crossings")
            if arguments.pairs:
                for (caller, called), count in pairs.most_common():
                    print(f"    {count:4} {caller} -> {called}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
