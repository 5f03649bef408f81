"""Loading damaged and hostile model folders: 10,000 random mutations, and the speed of verification.

    python benchmarks/mutated_folders.py [--quick] [--json PATH] [--seed N] [--count N] [--model PATH]

Each mutation is applied to a fresh copy of a model and loaded in a worker process under a watchdog, so that a hang or a
crash of the interpreter is counted and does not stop the benchmark. Bounds: no wrong load that goes unnoticed, no
exception other than ModelFolderError, no crash, no hang; verified loading close to the speed of sha256 itself.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ripml.base import model_folder
from ripml.base.errors import ModelFolderError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from mutations import forged, mutate

HANG_SECONDS = 20
OUTCOMES = [
    "refused",
    "loaded_equal",
    "forged_but_consistent",
    "wrong_silent_loads",
    "other_exceptions",
    "crashes",
    "hangs",
]
MUST_BE_ZERO = OUTCOMES[3:]


def example_models(folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    parameters: dict[str, Any] = {
        "n_dims": 100,
        "ridge": 0.5,
        "labels": ["a", "é", "标签"],
        "nested": {"x": [None, True]},
    }
    models: list[dict[str, Any]] = [
        {"Psi": rng.standard_normal((30, 8)), "Z": np.asfortranarray(rng.standard_normal((9, 8)).astype(np.float32))},
        {"indptr": np.arange(40), "indices": np.arange(40, dtype=np.int32)[::2], "empty": np.empty((0, 3), np.float16)},
        {"flags": np.array([True, False]), "scalar": np.array(3, np.uint8), "Psi": np.zeros((3,), np.float32)},
    ]
    for number, arrays in enumerate(models):
        model_folder.save(folder / str(number), "example", parameters, arrays)
    return [folder / str(number) for number in range(len(models))]


def same(found: model_folder.Contents, original: model_folder.Contents) -> bool:
    def described(contents: model_folder.Contents) -> tuple[Any, ...]:
        arrays = {
            name: (array.dtype.str, array.shape, array.flags.f_contiguous, array.tobytes())
            for name, array in contents.arrays.items()
        }
        head = json.dumps([contents.kind, contents.parameters, contents.format, contents.ripml_version])
        return head, arrays

    return described(found) == described(original)


def outcome_of(folder: Path, original: model_folder.Contents, description: str) -> str:
    try:
        found = model_folder.load(folder)
    except ModelFolderError:
        return "refused"
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return "other_exceptions"
    if same(found, original):
        return "loaded_equal"
    return "forged_but_consistent" if forged(description) else "wrong_silent_loads"


def work(models: list[Path], seed: int, first: int, last: int) -> None:
    """The worker: prints one line before each mutation is loaded and one after it."""
    originals = [model_folder.load(model) for model in models]
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(first, last):
            rng = random.Random(f"{seed}:{number}")
            choice = rng.randrange(len(models))
            case = Path(scratch) / str(number)
            shutil.copytree(models[choice], case)
            description = mutate(case, rng)
            print(json.dumps([number, description]), flush=True)
            print(json.dumps([number, description, outcome_of(case, originals[choice], description)]), flush=True)
            shutil.rmtree(case)


def lines_of(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """The worker's lines; None if there was none for HANG_SECONDS."""
    lines: queue.Queue[str | None] = queue.Queue()

    def pump() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=pump, daemon=True).start()
    with contextlib.suppress(queue.Empty):
        while line := lines.get(timeout=HANG_SECONDS):
            yield line
        return
    yield None


def run(models: list[Path], seed: int, count: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    done = 0
    while done < count:
        last = min(count, done + 1000)
        command = [sys.executable, __file__, "--worker", str(seed), str(done), str(last), *map(str, models)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            under_way, hung = "nothing yet", False
            for line in lines_of(process):
                if line is None:
                    hung = True
                    process.kill()
                    break
                number, description, *outcome = json.loads(line)
                under_way = f"{number} ({description})"
                if outcome:
                    outcomes[outcome[0]] += 1
                    done = number + 1
                    if outcome[0] in MUST_BE_ZERO:
                        print(f"{outcome[0]}: mutation {under_way}")
        if under_way == "nothing yet":
            raise SystemExit(f"the worker did not start (exit code {process.returncode})")
        if done < last:
            outcomes["hangs" if hung else "crashes"] += 1
            print(f"{'hang' if hung else 'crash'}: mutation {under_way}")
            done += 1
    return outcomes


def throughput(megabytes: int) -> dict[str, float]:
    """GB/s of a verified load, of sha256 over the same bytes in memory, and of reading from the page cache."""
    array = np.random.default_rng(0).integers(0, 2**63, megabytes * 2**17, dtype=np.int64)
    with tempfile.TemporaryDirectory() as scratch:
        model_folder.save(scratch, "speed", {}, {"Psi": array})
        file = next(Path(scratch).glob("*.npy"))

        def rate(action: Any) -> float:
            def seconds() -> float:
                start = time.perf_counter()
                action()
                return time.perf_counter() - start

            return array.nbytes / min(seconds() for _ in range(3)) / 1e9

        return {
            "load_gb_per_s": rate(lambda: model_folder.load(scratch)),
            "sha256_gb_per_s": rate(lambda: hashlib.sha256(array.data)),
            "read_gb_per_s": rate(file.read_bytes),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Load mutated model folders and count what happens.")
    parser.add_argument("--quick", action="store_true", help="500 mutations, 64 MB")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--model", type=Path, help="mutate copies of this model folder instead of small examples")
    parser.add_argument("--worker", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        seed, first, last, *models = options.worker
        work([Path(model) for model in models], int(seed), int(first), int(last))
        return
    count = options.count or (500 if options.quick else 10_000)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        models = [options.model.resolve()] if options.model else example_models(Path(scratch))
        outcomes = run(models, options.seed, count)
    figures: dict[str, float] = {"mutations": count, "seed": options.seed}
    figures |= {outcome: outcomes[outcome] for outcome in OUTCOMES}
    figures["mutations_seconds"] = round(time.perf_counter() - start, 1)
    figures |= {name: round(value, 3) for name, value in throughput(64 if options.quick else 512).items()}
    figures["load_over_sha256"] = round(figures["load_gb_per_s"] / figures["sha256_gb_per_s"], 3)
    for name, value in figures.items():
        bound = "  (must be 0)" if name in MUST_BE_ZERO else ""
        print(f"{name.replace('_', ' '):24}{value:>10}{bound}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + os.linesep)
    if any(figures[name] for name in MUST_BE_ZERO):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
