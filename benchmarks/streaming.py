"""A fit from blocks of rows against a fit of arrays in memory: the same model in a quarter of the input's memory.

    python benchmarks/streaming.py [--quick] [--json PATH]
    python benchmarks/streaming.py --texts 100000 [--preset linear] [--budget MB] [--no-memory] [--json PATH]

Data of the paper's Wikipedia shape (--quick: a tenth of the rows) is in files. Each fit runs in its own process, from
opening the files to saving the model: one reads them into memory, the other takes blocks of 4,096 rows. Resident
memory is the peak of the process (VmHWM) minus its size before it opens the files; pages of mapped files count while
they are resident.

With --texts, that many texts generated from msdocs (the first of them, if it has enough), and the default preset or
another, with a stated budget for the whole process: by default that of the program and a quarter of what the fit in
memory takes beyond it, which --no-memory leaves out. Seconds of the processor are given beside those of the clock:
where they are far below cores × seconds, the machine was busy and the times do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from harness import Row, finish, options

from ripml import RIPML, load
from ripml.base.workspace import release
from ripml.datasets import read
from ripml.lab.generated import generate
from ripml.lab.generated_texts import generate_texts
from ripml.model.budget import PROGRAM_BYTES, working_bytes
from ripml.search.space import PRESETS
from ripml.tagging.documents import DocumentModel, distinct

N_ROWS, BLOCK, SHARE = 500_539, 4096, 0.25  # SHARE of the input may be resident
N_LABELS = 100_000  # of generated texts
ASKED = 500  # texts whose scores are compared


def resident(name: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def matrices(place: Path) -> tuple[Any, Any]:
    X, indices, indptr = (np.load(place / f"{name}.npy", mmap_mode="r") for name in ("X", "indices", "indptr"))
    ones = np.load(place / "ones.npy", mmap_mode="r")
    return X, scipy.sparse.csr_array((ones, indices, indptr), shape=(len(X), int(np.load(place / "n_labels.npy"))))


def blocks(place: Path) -> Iterator[tuple[Any, Any]]:
    X, Y = matrices(place)
    for start in range(0, len(X), BLOCK):
        yield X[start : start + BLOCK], Y[start : start + BLOCK]
        release(X, Y.indices, Y.data)


def fit(kind: str, place: Path, memory: int) -> None:
    """Fit, save, and print the seconds and the peak resident bytes."""
    model = RIPML.paper(n_dims=100, ridge=1.0, random_state=0)
    model.fit(np.eye(9, dtype=np.float32), [[j] for j in range(9)])  # imports what is imported on first use
    before, start = resident("VmRSS"), time.perf_counter()
    if kind == "in memory":
        X, Y = matrices(place)
        model.fit(np.array(X), scipy.sparse.csr_array(Y, copy=True))
    else:
        model.fit_blocks(blocks(place), place / "work", memory)
    model.save(place / kind)
    print(json.dumps({"seconds": time.perf_counter() - start, "bytes": resident("VmHWM") - before}))


def largest_difference(place: Path) -> float:
    """The largest difference of Psi and of the embeddings of two models, relative to the largest entry."""
    one, other = (load(place / kind).clusters_[0] for kind in ("in blocks", "in memory"))
    assert np.array_equal(one.index.counts, other.index.counts)
    coefficients = tuple(cluster.regression.arrays()["Psi"] for cluster in (one, other))
    pairs = [coefficients, *zip(one.index.Z, other.index.Z, strict=True)]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def write_texts(n: int, path: Path) -> None:
    """The first n texts of msdocs, or texts generated from them where there are fewer."""
    data = read(Path(os.environ["RIPML_DATA"]) / "msdocs" / "docs.jsonl.gz")
    rows = zip(data.texts or [], map(data.row_labels, range(min(n, len(data)))), strict=False)
    with path.open("w") as file:
        for text, labels in rows if n <= len(data) else generate_texts(data, n, N_LABELS):
            file.write(json.dumps({"labels": labels, "text": text}) + "\n")


def fit_texts(kind: str, preset: str, file: Path, folder: Path, memory: int) -> None:
    """Fit texts of a file, save the model, and print what it took."""
    model, start = PRESETS[preset](random_state=0), time.perf_counter()
    if kind == "in memory":
        fitted = DocumentModel.fit(distinct(read(file)), None, model)
    else:
        fitted = DocumentModel.fit_blocks(file, None, model, folder / "work", working_bytes(memory))
    fitted.save(folder / kind)
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"seconds": time.perf_counter() - start, "cpu": used.ru_utime + used.ru_stime}
    print(json.dumps({**figures, "bytes": resident("VmHWM")}))


def compare_texts(arguments: argparse.Namespace) -> list[Row]:
    """The figures of texts."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        file = folder / "texts.jsonl"
        write_texts(arguments.texts, file)

        def run(kind: str, memory: int) -> dict[str, float]:
            command = [sys.executable, __file__, "--fit-texts", kind, arguments.preset, str(file), name, str(memory)]
            found: dict[str, float] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            return found

        rows: list[Row] = [("texts", arguments.texts, ""), ("file, MB", file.stat().st_size / 1e6, "")]
        whole = None if arguments.no_memory else run("in memory", 0)
        if arguments.budget or whole is None:
            budget = int((arguments.budget or 2000) * 1e6)
        else:
            budget = int(PROGRAM_BYTES + SHARE * (whole["bytes"] - PROGRAM_BYTES))
        parts = run("in blocks", budget)
        for kind, took in (("in memory", whole), ("in blocks", parts)):
            if took is not None:
                rows += [(f"{kind}, s", took["seconds"], ""), (f"{kind}, processor s", took["cpu"], "")]
                rows.append((f"{kind}, resident MB", took["bytes"] / 1e6, ""))
        disk = sum(path.stat().st_size for path in (folder / "work").rglob("*") if path.is_file())
        rows += [("budget, MB", budget / 1e6, ""), ("disk, MB", disk / 1e6, "")]
        rows.append(("resident in blocks / budget", parts["bytes"] / budget, "≤ 1.2"))
        if whole is not None:
            rows.append(("seconds in blocks / in memory", parts["seconds"] / whole["seconds"], "≤ 1.5"))
            rows.append(("processor s in blocks / in memory", parts["cpu"] / whole["cpu"], ""))
            asked = distinct(read(file)).take(list(range(ASKED)))
            one, other = (DocumentModel.load(folder / kind).scores(asked) for kind in ("in blocks", "in memory"))
            rows.append(("largest difference of scores", float(abs(one - other).max()), "≤ 1e-4"))
        return rows


def text_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, required=True)
    parser.add_argument("--preset", choices=list(PRESETS), default="default")
    parser.add_argument("--budget", type=float, help="in MB")
    parser.add_argument("--no-memory", action="store_true", help="leave out the fit in memory")
    parser.add_argument("--folder", type=Path, help="where to put large files")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "--fit":
        fit(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    if len(sys.argv) > 1 and sys.argv[1] == "--fit-texts":
        fit_texts(sys.argv[2], sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]), int(sys.argv[6]))
        return
    if "--texts" in sys.argv:
        arguments = text_options()
        finish(compare_texts(arguments), arguments.json)
        return
    arguments = options(__doc__ or "")
    n = N_ROWS // 10 if arguments.quick else N_ROWS
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        X, Y = generate(n)
        input_bytes = X.nbytes + Y.indices.nbytes + Y.data.nbytes + Y.indptr.nbytes
        arrays = {"X": X, "indices": Y.indices, "indptr": Y.indptr, "ones": Y.data, "n_labels": np.array(Y.shape[1])}
        for name, array in arrays.items():
            np.save(place / f"{name}.npy", array)
        del X, Y, arrays
        # Blocks in transit and bookkeeping per row come on top of this budget.
        memory = int(0.85 * SHARE * input_bytes)
        figures: dict[str, dict[str, float]] = {}
        for _ in range(2):
            for kind in ("in memory", "in blocks"):
                command = [sys.executable, __file__, "--fit", kind, folder, str(memory)]
                found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                best = figures.setdefault(kind, found)
                figures[kind] = {key: min(best[key], found[key]) for key in found}
                subprocess.run(["rm", "-rf", str(place / "work")], check=True)
        error = largest_difference(place)
    rows: list[Row] = [("input, MB", input_bytes / 1e6, ""), ("budget for tables and blocks, MB", memory / 1e6, "")]
    for kind, figure in figures.items():
        rows += [(f"{kind}, s", figure["seconds"], ""), (f"{kind}, resident MB", figure["bytes"] / 1e6, "")]
    one, other = figures["in blocks"], figures["in memory"]
    rows += [
        ("resident in blocks / input", one["bytes"] / input_bytes, f"≤ {SHARE}"),
        ("seconds in blocks / in memory", one["seconds"] / other["seconds"], "≤ 1.5"),
        ("largest relative difference of the models", error, "≤ 1e-5"),
    ]
    finish(rows, arguments.json)


if __name__ == "__main__":
    main()
