"""The steps of every runner: read the matrices, train, predict, save, and write scores and timings.

    python run_NAME.py METHOD DATA RESULTS [SEED]

DATA holds train_X.npz, train_Y.npz, test_X.npz (SciPy CSR; every training row has a label, rows of X have length 1)
and, for sets with raw text, texts.json with the lists `train` and `test`. The runner writes scores.npz (CSR, test rows
by labels), figures.json and the folder `model` to RESULTS. Only NumPy, SciPy and the rival may be imported here, as
runners have separate environments.

What is timed: `train`, the rival's training call with the conversions in memory that it needs (files in the rival's
format are written before, by `prepare`); `predict` on all test rows, the fastest of up to three passes within about ten
seconds; `predict` on single rows, the median of 50. Queries are converted to the rival's form before the clock starts,
and one row is predicted first, so that lazy loading is not counted.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

TOP = 10  # labels predicted per row
SINGLE_ROWS = 50
NOT_POSSIBLE = 3  # the exit code of a runner whose method cannot run on this data set; it prints the reason


class NotPossibleError(Exception):
    """The method cannot run on this data set; the message has the reason."""


class Method(ABC):
    """A way to train and predict; `folder` is for temporary files."""

    reads_texts = False  # others have no texts in memory

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed

    def prepare(self, X: Any, Y: Any, texts: list[str] | None) -> None:
        """Keep the training rows, in a file if the rival reads files. Not timed."""
        self.X, self.Y, self.texts = X, Y, texts

    @abstractmethod
    def train(self) -> None:
        """Train. Timed."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save the model; `folder` exists. Not timed."""

    def open(self, folder: Path) -> None:
        """Make the model ready for prediction, from the saved model if that is faster. Not timed."""
        return

    def queries(self, X: Any, texts: list[str] | None) -> Any:
        """Convert rows to the form that `predict` takes. Not timed."""
        return X

    @abstractmethod
    def predict(self, queries: Any) -> Any:
        """Predict the best labels of some rows. Timed."""

    def scores(self, answer: Any, n_labels: int) -> Any:
        """Turn the answer of `predict` into CSR scores. Not timed."""
        return scipy.sparse.csr_matrix(answer)


def pairs_to_csr(rows: Iterable[Iterable[tuple[int, float]]], n_labels: int) -> Any:
    """CSR scores (n, L) of rows of (label, score)."""
    labels: list[int] = []
    values: list[float] = []
    starts = [0]
    for row in rows:
        for label, value in row:
            labels.append(label)
            values.append(value)
        starts.append(len(labels))
    return scipy.sparse.csr_matrix((values, labels, starts), shape=(len(starts) - 1, n_labels))


def write_xmc(path: Path, X: Any, Y: Any) -> None:
    """Write rows as XMC-repository text: `n d L`, then `l1,l2 f:v f:v`."""
    with path.open("w") as file:
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")
        for i in range(X.shape[0]):
            cells = slice(X.indptr[i], X.indptr[i + 1])
            labels = ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]))
            features = " ".join(f"{j}:{v:.7g}" for j, v in zip(X.indices[cells], X.data[cells], strict=True))
            file.write(f"{labels} {features}".rstrip() + "\n")  # omikuji rejects a trailing blank without features


def peak_bytes() -> int:
    """The peak of resident memory of this process, including the interpreter, libraries and data."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would start with the size of the parent at the fork
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def seconds(function: Callable[[], Any]) -> float:
    """The seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def read(path: Path) -> Any:
    """A CSR matrix with sorted indices."""
    matrix = scipy.sparse.csr_matrix(scipy.sparse.load_npz(path))
    matrix.sort_indices()
    return matrix


def measured(method: Method, data: Path, results: Path) -> dict[str, float]:
    """Train, save, predict; write the scores and return the figures."""
    X, Y, X_new = (read(data / f"{name}.npz") for name in ("train_X", "train_Y", "test_X"))
    has_texts = method.reads_texts and (data / "texts.json").exists()
    texts = json.loads((data / "texts.json").read_text()) if has_texts else {}
    new_texts = texts.get("test")
    method.prepare(X, Y, texts.get("train"))
    train_seconds = seconds(method.train)
    print(f"trained in {train_seconds:.2f} s", flush=True)
    model = results / "model"
    model.mkdir(parents=True, exist_ok=True)
    method.save(model)
    method.open(model)
    singles = [
        method.queries(X_new[i : i + 1], None if new_texts is None else new_texts[i : i + 1])
        for i in range(min(SINGLE_ROWS, X_new.shape[0]))
    ]
    method.predict(singles[0])
    queries = method.queries(X_new, new_texts)
    passes: list[float] = []
    while not passes or (len(passes) < 3 and sum(passes) < 10):
        start = time.perf_counter()
        answer = method.predict(queries)
        passes.append(time.perf_counter() - start)
    one_row = float(np.median([seconds(partial(method.predict, query)) for query in singles]))
    peak = peak_bytes()
    scipy.sparse.save_npz(results / "scores.npz", method.scores(answer, Y.shape[1]), compressed=False)
    return {
        "train s": train_seconds,
        "µs / row": 1e6 * min(passes) / X_new.shape[0],
        "ms single row": 1e3 * one_row,
        "peak MB": peak / 1e6,
        "model MB": sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6,
    }


def run(methods: dict[str, Callable[[Path, int], Method]]) -> None:
    """The main function of a runner: runs the method named first on the command line."""
    name, data, results = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    temporary = results / "temporary"
    temporary.mkdir(parents=True, exist_ok=True)
    try:
        figures = measured(methods[name](temporary, int(sys.argv[4]) if len(sys.argv) > 4 else 0), data, results)
    except NotPossibleError as reason:
        print(reason, file=sys.stderr)
        sys.exit(NOT_POSSIBLE)
    (results / "figures.json").write_text(json.dumps(figures))
