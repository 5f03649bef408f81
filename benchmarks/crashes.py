"""A store whose writer is killed (kill -9) at random moments: what is lost, half done or unreadable afterwards?

    python benchmarks/crashes.py [--quick] [--json PATH]

A writer learns, relabels and forgets pairs of documents, one pair per call, and reports when a call has returned. In
some rounds it also takes a snapshot, compacts, or closes and opens the store after every call, or it creates a store.
Meanwhile a reader in another process follows. The writer is killed 200 times, or 10 times with --quick. All bounds
are 0.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from harness import Row, finish, options

from ripml.store import Store, StoreError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from store_writer import Ledger, Server, example, settings

KINDS = ["learn", "snapshot", "compact", "close", "open", "create", "learn", "snapshot", "compact", "close"]
MAX_SECONDS = {"create": 0.25, "open": 0.3}  # until the kill
DEFAULT_MAX_SECONDS = 1.5


def killed_creation(server: Server, folder: Path, seed: int, seconds: float) -> bool:
    """Whether a killed creation left a complete store, or a folder that is refused and can be created again."""
    server.run(folder, "create", seed, seconds)
    try:
        if not (folder / "store.db").exists():
            try:
                Store.open(folder)
                return False
            except StoreError:
                Store.create(folder, example(200), settings()).close()
        with Store.open(folder) as store:
            return len(store) == store.model.model.n_rows_ >= 200
    except StoreError as error:
        print(error)
        return False


def main() -> None:
    arguments = options(__doc__ or "")
    kills = 10 if arguments.quick else 200
    ledger, rng, looks = Ledger(), random.Random(0), 0
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, Server() as server:
        folder = Path(scratch) / "store"
        Store.create(folder, example(), settings()).close()
        with Store.open(folder, readonly=True) as reader:

            def look() -> None:
                nonlocal looks
                looks += 1
                ledger.look(reader)

            for kill in range(kills):
                kind = KINDS[kill % len(KINDS)]
                seconds = rng.uniform(0, MAX_SECONDS.get(kind, DEFAULT_MAX_SECONDS))
                if kind == "create":
                    ledger.kills += 1
                    ledger.unreadable += not killed_creation(server, Path(scratch) / f"new {kill}", kill, seconds)
                else:
                    ledger.settle(folder, server.run(folder, kind, kill, seconds, look)["messages"])
    for complaint in ledger.complaints:
        print(complaint)
    rows: list[Row] = [
        ("kills", ledger.kills, ""),
        ("calls that returned", ledger.calls, ""),
        ("checks by a reader meanwhile", looks, ""),
        ("documents lost", ledger.lost, "0"),
        ("calls seen or left half done", ledger.half, "0"),
        ("stores unreadable", ledger.unreadable, "0"),
        ("seconds", time.perf_counter() - start, ""),
    ]
    finish(rows, arguments.json)
    if ledger.lost or ledger.half or ledger.unreadable:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
