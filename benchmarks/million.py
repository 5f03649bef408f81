"""The default at a million texts: what its fit takes within a budget, and how its answers grow with the rows.

    python benchmarks/million.py [--quick] [--rows 100000,1000000] [--budget 8000] [--preset linear]
                                 [--folder DIR] [--json PATH]

Texts with 100,000 labels are generated from msdocs (`ripml.lab.generated_texts`); a smaller set is the beginning of a
larger one. Each fit runs in its own process with a budget for the whole process in MB, from the file to the saved
model. Then 2,000 texts that follow all training texts are answered, in a batch and alone, with similar rows and label
sets as the model searches them, and all again with exact search of similar rows. With --folder, files and models stay
there, and a fit that is there is not repeated.

Seconds of the processor are given beside those of the clock: where they are far below cores × seconds, the machine was
busy, and only the former count. The exponents are plain slopes of logarithms between the smallest and the largest
number of rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from harness import Row, finish
from scipy.sparse import csr_array
from streaming import N_LABELS, resident

from ripml.datasets import read
from ripml.decoding.training_rows import TrainingRows
from ripml.lab.generated_texts import generate_texts
from ripml.metrics import precision_at_k
from ripml.model.budget import working_bytes
from ripml.search.space import PRESETS
from ripml.tagging.documents import DocumentModel

NEW, ALONE = 2000, 200  # texts that are answered together, and one by one


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def write_texts(numbers: list[int], folder: Path) -> None:
    """The training texts of each size, and new ones that come after all of them."""
    files = {n: folder / f"texts-{n}.jsonl" for n in numbers}
    new = folder / "new.jsonl"
    if all(file.exists() for file in [*files.values(), new]):
        return
    data = read(Path(os.environ["RIPML_DATA"]) / "msdocs" / "docs.jsonl.gz")
    most = max(numbers)
    rows = generate_texts(data, most + NEW, max(N_LABELS, len(data.label_names)))
    with files[most].open("w") as file:
        for text, labels in islice(rows, most):
            file.write(json.dumps({"labels": labels, "text": text}) + "\n")
    with new.open("w") as file:
        for text, labels in rows:
            file.write(json.dumps({"labels": labels, "text": text}) + "\n")
    for n in numbers:
        if n < most:
            with files[most].open() as whole, files[n].open("w") as file:
                file.writelines(islice(whole, n))


def fit(preset: str, file: Path, folder: Path, budget: int) -> None:
    """Fit, save the model, and write what that took beside it."""
    model, start = PRESETS[preset](random_state=0), time.perf_counter()
    fitted = DocumentModel.fit_blocks(file, None, model, folder / "work", working_bytes(budget))
    fitted.save(folder / "model")
    found = {"seconds": time.perf_counter() - start, "processor s": processor_seconds(), "MB": resident("VmHWM") / 1e6}
    found |= {f"left-out {name}": 100 * value for name, value in model.left_out_precision_.items()}
    found |= {name: value for name, value in model.solutions_[0].items() if name.endswith("recall")}
    found["disk, MB"] = sum(path.stat().st_size for path in (folder / "model").rglob("*")) / 1e6
    (folder / "fit.json").write_text(json.dumps(found))


def timed(function: Any) -> tuple[float, float]:
    start, used = time.perf_counter(), processor_seconds()
    function()
    return time.perf_counter() - start, processor_seconds() - used


def answer(folder: Path, new: Path) -> None:
    """Print how long answers of the saved model take, and how precise they are."""
    model = DocumentModel.load(folder / "model")
    data = model.same_form(read(new))
    X = model.features(data)
    known = {name: j for j, name in enumerate(model.model.classes_.tolist())}
    rows = [[known[name] for name in data.row_labels(i) if name in known] for i in range(len(data))]
    indptr = np.cumsum([0, *map(len, rows)])
    truth = csr_array((np.ones(indptr[-1]), np.concatenate(rows).astype(int), indptr), shape=(len(rows), len(known)))
    estimator = model.model
    for i in range(20):
        estimator.decision_function(X[i : i + 1])
    estimator.decision_function(X[:64])

    def batch(name: str) -> dict[str, float]:
        scores: list[Any] = []
        times = timed(lambda: scores.append(estimator.decision_function(X)))
        precision = {f"{name}, P@{k}": 100 * precision_at_k(truth, scores[0], k=k) for k in (1, 3, 5)}
        each = {f"{name}, ms a row": times[0], f"{name}, processor ms a row": times[1]}
        return {what: 1e3 * seconds / len(data) for what, seconds in each.items()} | precision

    found = batch("batch")
    times = np.array([timed(lambda i=i: estimator.decision_function(X[i : i + 1])) for i in range(20, 20 + ALONE)])
    found["alone, ms, median"] = 1e3 * float(np.median(times[:, 0]))
    found["alone, processor ms, mean"] = 1e3 * float(times[:, 1].mean())
    texts = [(data.texts or [])[i] for i in range(50)]
    found["suggest, ms, median"] = 1e3 * float(np.median([timed(lambda t=t: model.suggest([t]))[0] for t in texts]))
    nearest = TrainingRows._nearest
    with patch.object(TrainingRows, "_nearest", lambda self, X, k, left, exact=True: nearest(self, X, k, left, True)):
        found |= batch("exact rows")
    found["answers, resident MB"] = resident("VmRSS") / 1e6
    print(json.dumps(found))


def slope(sizes: list[int], values: list[float]) -> float:
    return math.log(values[-1] / values[0]) / math.log(sizes[-1] / sizes[0])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="25,000 and 50,000 texts")
    parser.add_argument("--rows", default="100000,200000,500000,1000000")
    parser.add_argument("--budget", type=float, default=8000, help="in MB")
    parser.add_argument("--preset", choices=list(PRESETS), default="default")
    parser.add_argument("--folder", type=Path, help="where files and models stay")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def main() -> None:
    if sys.argv[1:2] == ["--fit"]:
        fit(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), int(float(sys.argv[5])))
        return
    if sys.argv[1:2] == ["--answer"]:
        answer(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    given = arguments()
    sizes = [25_000, 50_000] if given.quick else sorted(int(n) for n in given.rows.split(","))
    budget = given.budget * 1e6
    rows: list[Row] = []
    growing: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        place = given.folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        write_texts(sizes, place)
        for n in sizes:
            folder = place / f"{given.preset}-{n}"
            folder.mkdir(exist_ok=True)
            program = [sys.executable, __file__]
            if not (folder / "fit.json").exists():
                rows.append((f"{n:,}: load before the fit", os.getloadavg()[0], ""))
                file = place / f"texts-{n}.jsonl"
                subprocess.run([*program, "--fit", given.preset, str(file), str(folder), str(budget)], check=True)
            took = json.loads((folder / "fit.json").read_text())
            rows += [(f"{n:,}: fit, {name}", value, "") for name, value in took.items()]
            rows.append((f"{n:,}: fit, resident / budget", took["MB"] / given.budget, "≤ 1.2"))
            command = [*program, "--answer", str(folder), str(place / "new.jsonl")]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows.append((f"{n:,}: load at the answers", os.getloadavg()[0], ""))
            rows += [(f"{n:,}: {name}", value, "") for name, value in found.items()]
            rows.append(
                (f"{n:,}: P@1 of exact rows − of the model", found["exact rows, P@1"] - found["batch, P@1"], "≤ 0.5")
            )
            for name, value in {**{f"fit, {k}": v for k, v in took.items()}, **found}.items():
                growing.setdefault(name, []).append(value)
        if len(sizes) > 1:
            bounds = {"fit, processor s": "≤ 1.05", "batch, processor ms a row": "≤ 0.4", "alone, ms, median": "≤ 0.4"}
            shown = [*bounds, "batch, ms a row", "alone, processor ms, mean", "exact rows, processor ms a row"]
            rows += [(f"slope in n of {name}", slope(sizes, growing[name]), bounds.get(name, "")) for name in shown]
    finish(rows, given.json)


if __name__ == "__main__":
    main()
