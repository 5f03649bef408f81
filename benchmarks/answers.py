"""How long an answer takes and how large a model is: the default and `linear`, one row alone and rows in a batch.

    RIPML_DATA=folder python benchmarks/answers.py [--quick] [--json PATH] [--rounds N] [--texts N]

Each model is fitted once, saved and loaded, and answers the test rows alone (the median over rows) and in a batch, with
compiled loops and with NumPy alone, in turns. The first answer of a fresh process includes the import and loading the
compiled loops; that of a fresh installation also compiles them. Load and CPU seconds tell whether the machine was busy.

With --texts, only `Tagger()` on the 45,000 texts of eurlex57k is measured: one suggestion at a time for so many texts
of its test part, the size of the model, and P@1 and RP@5 on the whole of that part. The fit takes some minutes.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish, has_data, options

from ripml import RIPML, Tagger, datasets, metrics

ASK = """
import json, sys, time
start = time.perf_counter()
import numpy as np
import ripml
from ripml import datasets
test = datasets.load(sys.argv[2])[1]
imported = time.perf_counter()
model = ripml.load(sys.argv[1])
loaded = time.perf_counter()
model.decision_function(test.X[:1])
first = time.perf_counter()
n, rounds, single, batch = int(sys.argv[3]), int(sys.argv[4]), [], []
cpu = time.process_time()
for _ in range(rounds):
    for i in range(n):
        row = test.X[i : i + 1]
        begin = time.perf_counter()
        model.decision_function(row)
        single.append(time.perf_counter() - begin)
cpu_single = (time.process_time() - cpu) / len(single)
cpu = time.process_time()
for _ in range(rounds):
    begin = time.perf_counter()
    model.decision_function(test.X)
    batch.append((time.perf_counter() - begin) / test.X.shape[0])
cpu_batch = (time.process_time() - cpu) / rounds / test.X.shape[0]
print(json.dumps({
    "load, s": loaded - imported, "first answer, s": first - loaded, "single, ms": 1e3 * float(np.median(single)),
    "single, ms of CPU": 1e3 * cpu_single, "batch, µs a row": 1e6 * min(batch),
    "batch, µs of CPU a row": 1e6 * cpu_batch,
}))
"""


SUGGEST = """
import json, sys, time
import numpy as np
import ripml
texts = json.loads(open(sys.argv[2], encoding="utf-8").read())
begin = time.perf_counter()
tagger = ripml.load(sys.argv[1])
loaded = time.perf_counter()
tagger.suggest(texts[0])
first, cpu, single = time.perf_counter(), time.process_time(), []
for text in texts:
    start = time.perf_counter()
    tagger.suggest(text)
    single.append(time.perf_counter() - start)
print(json.dumps({
    "load, s": loaded - begin, "first answer, s": first - loaded, "single, ms": 1e3 * float(np.median(single)),
    "single, ms of CPU": 1e3 * (time.process_time() - cpu) / len(texts),
}))
"""


def asked(script: str, *arguments: Any, **environment: str) -> dict[str, float]:
    """The figures of a fresh process that loads a model and answers."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def size_of(folder: Path) -> float:
    """MB of 10⁶ bytes."""
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def rp_at_5(tags: list[list[str]], suggested: list[list[Any]]) -> float:
    """The mean share of the tags of a text that are among its first five suggestions, or of five if it has more."""
    shares = [
        len({tag for tag, _ in found[:5]} & set(own)) / min(5, len(set(own)))
        for own, found in zip(tags, suggested, strict=True)
        if own
    ]
    return float(np.mean(shares))


def of_texts(n: int) -> list[Row]:
    """The figures of `Tagger()` on eurlex57k."""
    parts: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "eurlex57k" / "docs.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            document = json.loads(line)
            parts.setdefault(document["id"].split("-")[0], []).append(document)
    (texts, tags), (test_texts, test_tags) = (
        ([one["text"] for one in parts[part]], [one["labels"] for one in parts[part]]) for part in ("train", "test")
    )
    start, cpu = time.perf_counter(), time.process_time()
    tagger = Tagger().fit(texts, tags)
    rows: list[Row] = [
        ("eurlex57k fit, s", time.perf_counter() - start, ""),
        ("eurlex57k fit, s of CPU", time.process_time() - cpu, "at most cores × wall"),
    ]
    suggested = tagger.suggest_many(test_texts)
    first = [bool(found) and found[0][0] in own for own, found in zip(test_tags, suggested, strict=True)]
    rows += [
        ("eurlex57k P@1", 100 * float(np.mean(first)), ""),
        ("eurlex57k RP@5", rp_at_5(test_tags, suggested), "BERT-base 0.796"),
    ]
    with tempfile.TemporaryDirectory() as place:
        folder, questions = Path(place) / "model", Path(place) / "texts.json"
        tagger.save(folder)
        questions.write_text(json.dumps(test_texts[:n]), encoding="utf-8")
        rows.append(("eurlex57k on disk, MB", size_of(folder), "≤ 200"))
        compiled, plain = asked(SUGGEST, folder, questions), asked(SUGGEST, folder, questions, RIPML_COMPILED="0")
    bounds = {"single, ms": "≤ 5; "}
    return rows + [
        (f"eurlex57k {what}", value, f"{bounds.get(what, '')}{plain[what]:.4g} with NumPy alone")
        for what, value in compiled.items()
    ]


def main() -> None:
    """Measure."""
    given = options(__doc__ or "", rounds=3, texts=0)
    if not has_data():
        sys.exit("RIPML_DATA is not set.")
    rounds, n = given.rounds or (1 if given.quick else 3), 50 if given.quick else 200
    presets: dict[str, Callable[..., Any]] = {"default": RIPML, "linear": RIPML.linear}
    rows: list[Row] = [("load at the start", os.getloadavg()[0], "below 0.5 is idle")]
    if given.texts:
        rows += of_texts(given.texts)
    for data in () if given.texts else ("bibtex",) if given.quick else ("eurlex", "delicious"):
        train, test = datasets.load(data)[:2]
        for preset, make in presets.items():
            name = f"{data} {preset}"
            start, cpu = time.perf_counter(), time.process_time()
            model = make(random_state=0).fit(train.X, train.Y)
            rows += [
                (f"{name} fit, s", time.perf_counter() - start, ""),
                (f"{name} fit, s of CPU", time.process_time() - cpu, "at most cores × wall"),
            ]
            scores = model.decision_function(test.X)
            rows += [(f"{name} P@{k}", 100 * metrics.precision_at_k(test.Y, scores, k=k), "") for k in (1, 3, 5)]
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                model.save(folder / "model")
                rows.append((f"{name} on disk, MB", size_of(folder / "model"), ""))
                compiling = asked(ASK, folder / "model", data, 1, 1, NUMBA_CACHE_DIR=str(folder / "cache"))
                rows.append((f"{name} first answer ever, s", compiling["first answer, s"], "with compiling"))
                compiled = asked(ASK, folder / "model", data, n, rounds)
                plain = asked(ASK, folder / "model", data, n, rounds, RIPML_COMPILED="0")
            rows += [
                (f"{name} {what}", value, f"{plain[what]:.4g} with NumPy alone") for what, value in compiled.items()
            ]
    rows.append(("load at the end", os.getloadavg()[0], f"{np.__version__} NumPy"))
    finish(rows, given.json)


if __name__ == "__main__":
    main()
