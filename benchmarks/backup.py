"""Backups of a store under 200 writes a second: is each one a state of the store, and how long do the writers wait?

    python benchmarks/backup.py [--quick] [--json PATH]

One thread learns, relabels and forgets single documents of a store of 5,000, 200 times a second. In turns of a few
seconds another thread of the same process does nothing, or makes one backup after the other. Each backup is then
restored and compared with the state that the writer noted for its last change. A machine that is too slow for 200
writes a second makes as many as it can.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from harness import Row, finish, options

from ripml import RIPML
from ripml.store import Store, maintenance

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from store_writer import LABELS, WORDS, example

RATE = 200  # writes per second
BOUND = 2  # the most that backups may multiply the writer's p99 by


class Writer(threading.Thread):
    """Writes at a steady rate, notes the labels of each document after each change, and the latency of each call."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store, self.stopped, self.busy = store, threading.Event(), threading.Event()
        self.latency: dict[bool, list[float]] = {False: [], True: []}  # by whether a backup was under way
        self.changes: list[tuple[int, str, tuple[str, ...] | None]] = []

    def run(self) -> None:
        rng, ids, number = random.Random(0), list[str](), 0
        due = time.perf_counter()
        while not self.stopped.is_set():
            due = max(due + 1 / RATE, time.perf_counter() - 0.1)  # catches up with at most a tenth of a second
            time.sleep(max(0.0, due - time.perf_counter()))
            busy, labels = self.busy.is_set(), tuple(sorted(rng.sample(LABELS, 2)))
            action = rng.choice(["learn", "relabel", "forget"]) if len(ids) > 100 else "learn"
            id = f"new {number}" if action == "learn" else ids[rng.randrange(len(ids))]
            begin = time.perf_counter()
            if action == "learn":
                self.store.learn([{"id": id, "text": " ".join(rng.choices(WORDS, k=12)), "labels": labels}])
                ids.append(id)
            elif action == "relabel":
                self.store.relabel(id, labels)
            else:
                self.store.forget([id])
                ids.remove(id)
            self.latency[busy].append(time.perf_counter() - begin)
            number += 1
            self.changes.append((self.store.version, id, None if action == "forget" else labels))


def equals_a_state(folder: Path, change: int, start: dict[str, tuple[str, ...]], writer: Writer) -> bool:
    """Whether a restored backup has the documents that the store had after a change, and a model of them."""
    expected = dict(start)
    for number, id, labels in writer.changes:
        if number > change:
            break
        if labels is None:
            expected.pop(id)
        else:
            expected[id] = labels
    report = maintenance.check(folder)
    with Store.open(folder, readonly=True) as store:
        return report.ok and store.version == change and labels_of(store) == expected


def labels_of(store: Store) -> dict[str, tuple[str, ...]]:
    return {id: tuple(sorted(store.document(id)["labels"])) for id in store.ids()}


def main() -> None:
    arguments = options(__doc__ or "")
    turns, seconds, n = (3, 2.0, 1000) if arguments.quick else (8, 4.0, 5000)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        made: list[tuple[Path, int]] = []
        took: list[float] = []
        model = RIPML.linear(random_state=0, n_jobs=1)
        with Store.create(place / "store", example(n), model) as store:
            store.warm_up()
            start = labels_of(store)
            writer = Writer(store)
            writer.start()
            began = time.perf_counter()
            for _ in range(turns):
                time.sleep(seconds)
                writer.busy.set()
                end = time.perf_counter() + seconds
                while time.perf_counter() < end:
                    target, before = place / f"backup {len(made)}", time.perf_counter()
                    made.append((target, store.backup(target).change))
                    took.append(time.perf_counter() - before)
                writer.busy.clear()
            writer.stopped.set()
            writer.join()
            rate = len(writer.changes) / (time.perf_counter() - began)
        wrong = 0
        for number, (target, change) in enumerate(made):
            restored = place / f"restored {number}"
            Store.restore(target, restored)
            wrong += not equals_a_state(restored, change, start, writer)
    p99 = {busy: float(np.quantile(latency, 0.99)) for busy, latency in writer.latency.items()}
    ratio = p99[True] / p99[False]
    rows: list[Row] = [
        ("documents at the start", n, ""),
        ("writes per second", rate, f"{RATE} wanted"),
        ("backups", len(made), ""),
        ("seconds per backup", float(np.median(took)), ""),
        ("restored backups that are not a state of the store", wrong, "0"),
        ("p99 of a write without backups, ms", 1000 * p99[False], ""),
        ("p99 of a write during backups, ms", 1000 * p99[True], ""),
        ("p99 during backups / without", ratio, f"<= {BOUND}"),
    ]
    finish(rows, arguments.json)
    if wrong or ratio > BOUND:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
