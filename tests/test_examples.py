"""The examples run and say what they promise; the benchmark scripts start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROMISED = {
    "tag_tickets.py": "cannot log in, password refused: login",
    "which_ensemble.py": "deterministic",
    "grid_search.py": "best: {'ripml__n_neighbors':",
}
WITH_DATA = ("paper", "losses", "missing_labels", "rivals")


def run(script: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "RIPML_DATA"}
    command = [sys.executable, str(script), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs_and_prints_what_it_promises(script: Path) -> None:
    assert PROMISED[script.name] in run(script)


@pytest.mark.parametrize("name", ["bounds", "ensembles", "solvers", "startup", *WITH_DATA])
def test_a_benchmark_runs_alone_and_writes_flat_json(name: str, tmp_path: Path) -> None:
    out = run(ROOT / "benchmarks" / f"{name}.py", "--quick", "--json", str(tmp_path / "figures.json"))
    if name in WITH_DATA:
        assert out.startswith("skipped: set RIPML_DATA")
        return
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert all(isinstance(value, (int, float)) for value in figures.values())
