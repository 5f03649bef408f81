"""A store of a million texts and 100,000 labels: opening, changes, readers, snapshots, compact, backup and completion.

    python benchmarks/large_store.py [--quick] [--store FOLDER] [--json PATH]

Texts are generated: 48 words by Zipf's law, a quarter each from the words of a topic and of a subtopic, which also
decide over most of the 5 labels. The model is `RIPML.linear` on 2,000 words, so that the store and not the fit is what
takes time; a store with a tenth of the documents gives the exponents of growth, log10 of the ratio of CPU times. While
the store is saved, compacted and backed up, another thread learns documents one after another, and one asks for
suggestions. Times are by the clock, and CPU times those of the process; where the load average is above the number of
cores, only the latter count. --store keeps the store in a folder, or uses the one that is there.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import resource
import shutil
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Row, finish

from ripml import RIPML
from ripml.datasets import Dataset
from ripml.datasets.dataset import csr
from ripml.labels.vocabulary import Vocabulary
from ripml.store import Store
from ripml.store.completion import LabelCompletion
from ripml.text import TfIdf

WORDS, SUBTOPICS = 60_000, 20
BESIDE = ("snapshot", "backup", "compact")  # what others answer and write beside
SYLLABLES = ["ka", "lo", "mi", "ter", "gen", "pra", "son", "del", "vo", "ri", "stu", "bel", "nor", "axi", "fe"]


def zipf(rng: np.random.Generator, size: Any, n: int) -> Any:
    """Ranks 0 … n − 1 with probability about 1/(rank + 1)."""
    return np.minimum(np.exp(np.log(n + 1) * rng.random(size)) - 1, n - 1).astype(np.int64)


def generated(n: int, n_labels: int, seed: int = 0) -> Dataset:
    """Texts of topics, and their labels."""
    rng = np.random.default_rng(seed)
    topics = max(1, n // 1000)
    subtopic = rng.integers(topics * SUBTOPICS, size=n)
    of_topic, of_subtopic = rng.integers(WORDS, size=(topics, 300)), rng.integers(WORDS, size=(topics * SUBTOPICS, 40))
    labels_of = rng.integers(n_labels, size=(topics * SUBTOPICS, 24))
    words, texts, labels = np.array([f"w{i:x}" for i in range(WORDS)]), list[str](), list[Any]()
    for s in subtopic.tolist():
        drawn = zipf(rng, 24, WORDS), of_topic[s // SUBTOPICS, zipf(rng, 12, 300)], of_subtopic[s, zipf(rng, 12, 40)]
        texts.append(" ".join(words[np.concatenate(drawn)]))
        labels.append(np.unique(np.append(labels_of[s, zipf(rng, 5, 24)], zipf(rng, 1, n_labels))))
    ends = np.cumsum([0, *map(len, labels)])
    Y = csr(np.ones(ends[-1]), np.concatenate(labels), ends, n_labels)
    return Dataset(X=None, Y=Y, label_names=[f"label {i:06x}" for i in range(n_labels)], texts=texts, name="generated")


def create(folder: Path, n: int, n_labels: int) -> None:
    model = RIPML.linear(n_dims=64, random_state=0)
    Store.create(folder, generated(n, n_labels), model, features=TfIdf(max_features=2000)).close()


def timed(work: Callable[[], Any], rounds: int = 1) -> tuple[float, float]:
    """The medians of seconds by the clock and of CPU time."""
    found = []
    for _ in range(rounds):
        start, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - start, time.process_time() - cpu))
    seconds, cpu_seconds = np.median(found, axis=0).tolist()
    return seconds, cpu_seconds


def memory() -> dict[str, float]:
    """The resident memory of this process and its parts, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    parts = (line.split()[:2] for line in lines if line.startswith(("VmRSS", "RssAnon", "RssFile")))
    return {name.rstrip(":"): int(kilobytes) * 1024 / 1e9 for name, kilobytes in parts}


class Changes:
    """Single changes of a store."""

    def __init__(self, store: Store) -> None:
        self.store, self._numbers = store, itertools.count()
        self._rng = np.random.default_rng(1)
        self._ids = list(store.numbered_ids(10_000).values())
        self._labels = [label.name for label in store.labels(n=1000)]

    def text(self) -> str:
        return " ".join(f"w{i:x}" for i in self._rng.integers(0, 3000, 48))

    def labels(self) -> list[str]:
        return sorted({self._labels[i] for i in self._rng.integers(len(self._labels), size=5)})

    def learn(self, *more: str) -> None:
        new = {"id": f"new {next(self._numbers)}", "text": self.text(), "labels": [*self.labels(), *more]}
        self.store.learn([new])

    def learn_new_label(self) -> None:
        self.learn(f"new label {next(self._numbers)}")

    def relabel(self) -> None:
        self.store.relabel(self._ids[int(self._rng.integers(len(self._ids)))], self.labels())

    def forget(self) -> None:
        self.store.forget([self._ids.pop()])

    def rename(self) -> None:
        self.store.rename_label(self._labels.pop(), f"renamed {next(self._numbers)}")


def beside(changes: Changes, work: Callable[[], Any]) -> tuple[float, float, float, float]:
    """Seconds of some work, its CPU time and that of others, and the longest learning and suggestion beside it."""
    done, longest = threading.Event(), {"learn": 0.0, "suggest": 0.0}

    def again(name: str, action: Callable[[], Any]) -> None:
        while not done.is_set():
            start = time.perf_counter()
            action()
            longest[name] = max(longest[name], time.perf_counter() - start)

    others = [
        threading.Thread(target=again, args=("learn", changes.learn)),
        threading.Thread(target=again, args=("suggest", lambda: changes.store.model.suggest([changes.text()]))),
    ]
    for other in others:
        other.start()
    try:
        seconds, cpu = timed(work)
    finally:
        done.set()
        for other in others:
            other.join()
    return seconds, cpu, longest["learn"], longest["suggest"]


def measure(folder: Path) -> dict[str, tuple[float, float]]:
    """Seconds of each call by the clock, and CPU seconds."""
    found: dict[str, tuple[float, float]] = {}
    opened: list[Store] = []
    found["open"] = timed(lambda: opened.append(Store.open(folder)))
    (store,) = opened
    changes = Changes(store)
    found["suggest, first"] = timed(lambda: store.model.suggest([changes.text()]))
    found["suggest"] = timed(lambda: store.model.suggest([changes.text()]), 20)
    found["learn, first"] = timed(changes.learn)
    for name in ("learn", "learn_new_label", "relabel", "forget", "rename"):
        found[name.replace("_", " ")] = timed(getattr(changes, name), 20)
    with Store.open(folder, readonly=True) as reader:
        reader.refresh()

        def follow() -> None:
            changes.learn()
            reader.refresh()
            assert reader.version == store.version

        found["learn, and a reader follows"] = timed(follow, 10)
    found["length, and a page of documents"] = timed(lambda: (len(store), store.numbered_ids(20, 5000)), 10)
    found["history, 20 of a page"] = timed(lambda: store.history(20, before=store.version), 10)
    found["complete, first"] = timed(lambda: store.labels("label 0"))
    found["complete"] = timed(lambda: store.labels("label 00"), 20)

    def complete_a_new_label() -> None:
        changes.learn_new_label()
        store.labels("label 00")

    found["complete, after a new label"] = timed(complete_a_new_label, 5)
    works: tuple[Callable[[], Any], ...] = (
        store.snapshot,
        lambda: store.backup(folder.with_name("backup")),
        store.compact,
    )
    for name, work in zip(BESIDE, works, strict=True):
        seconds, cpu, learn, suggest = beside(changes, work)
        found[name] = seconds, cpu
        found[f"longest learn beside {name}"] = learn, math.nan
        found[f"longest suggest beside {name}"] = suggest, math.nan
    shutil.rmtree(folder.with_name("backup"))
    found["close"] = timed(store.close)
    return found


def complete_many(n: int) -> list[Row]:
    """Completion of labels alone, among n labels with names of one to three words."""
    rng = np.random.default_rng(0)
    words = list(dict.fromkeys("".join(rng.choice(SYLLABLES, size)) for size in rng.integers(2, 5, 200_000)))
    chosen = zipf(rng, (n, 3), len(words))
    labels = list(dict.fromkeys(f"{' '.join(words[w] for w in row[: 1 + i % 3])} {i}" for i, row in enumerate(chosen)))
    vocabulary = Vocabulary.of(np.array([*labels, None], object)[:-1])
    counts, made = rng.zipf(1.5, n).clip(max=10**6), list[LabelCompletion]()
    seconds, cpu = timed(lambda: made.append(LabelCompletion(vocabulary)))
    few = Vocabulary.of(vocabulary.names[: n // 20])
    tracemalloc.start()
    kept = LabelCompletion(few)
    size = tracemalloc.get_traced_memory()[0] / len(few)
    tracemalloc.stop()
    del kept
    rows: list[Row] = [
        (f"completion of {n:,} labels: seconds to make the index", seconds, ""),
        ("  the same, CPU seconds", cpu, ""),
        ("  bytes of memory per label", size, ""),
    ]
    picked = [labels[i] for i in rng.integers(n, size=200)]
    typed = {
        "1 character": [name[:1] for name in picked],
        "4 characters": [name[:4] for name in picked],
        "a later word": [name.split(" ")[-2][:4] for name in picked],
        "a name": picked,
        "a typing mistake": [f"{name[:3]}x{name[3:12]}" for name in picked],
    }
    for kind, prefixes in typed.items():
        taken = [timed(lambda prefix=prefix: made[0].complete(prefix, 20, counts))[0] for prefix in prefixes]  # type: ignore[misc]
        rows.append((f"  p95 of {kind}, ms", 1000 * float(np.quantile(taken, 0.95)), "≤ 50"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="A store of a million texts.")
    parser.add_argument("--quick", action="store_true", help="5,000 documents")
    parser.add_argument("--documents", type=int, default=None, help="how many documents (default 1,000,000)")
    parser.add_argument("--store", type=Path, help="the folder of the store; it is made if it is not there")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    n = arguments.documents or (5000 if arguments.quick else 1_000_000)
    n_labels = max(n // 10, 500)
    found: list[Row] = [("load average before", os.getloadavg()[0], "")]
    with tempfile.TemporaryDirectory() as scratch:
        small, large = Path(scratch) / "small", arguments.store or Path(scratch) / "large"
        create(small, n // 10, max(n_labels // 10, 500))
        if not large.exists():
            seconds, cpu = timed(lambda: create(large, n, n_labels))
            found += [
                (f"create a store of {n:,} texts, seconds", seconds, ""),
                ("create, CPU seconds", cpu, ""),
                ("create, peak memory in GB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, ""),
            ]
        few, many = measure(small), measure(large)
        bounds = {"open": "≤ 5", "learn": "≤ 0.05", "complete": "≤ 0.05", "learn, and a reader follows": "≤ 0.1"}
        for name, (seconds, cpu) in many.items():
            found.append((f"{name}, seconds", seconds, bounds.get(name, "")))
            if not math.isnan(cpu):
                found.append((f"{name}, CPU seconds", cpu, ""))
            if not math.isnan(cpu) and "first" not in name and name not in BESIDE:  # else it has the time of others
                exponent = math.log10(max(cpu, 1e-5) / max(few[name][1], 1e-5))
                found.append((f"{name}, exponent of CPU", exponent, ""))
        found += [(f"memory at the end, {name}, GB", size, "") for name, size in memory().items()]
    found += complete_many(20_000 if arguments.quick else 1_000_000)
    found.append(("load average after", os.getloadavg()[0], ""))
    finish(found, arguments.json)


if __name__ == "__main__":
    main()
