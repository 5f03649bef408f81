"""A store whose writer is killed (kill -9) at random moments: what is lost, half done or unreadable afterwards.

    python benchmarks/crashes.py [--quick] [--json PATH]

A writer learns, relabels and forgets pairs of documents, one pair a call, and says when a call has returned; in turns
it also takes a snapshot, compacts, or closes and opens the store behind every call, or creates one. Meanwhile a reader
in another process follows. 200 kills, or 10 with --quick. All bounds are 0.
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
LONGEST = {"create": 0.25, "open": 0.3}  # seconds until the kill, at most
USUALLY = 1.5


def killed_creation(server: Server, folder: Path, seed: int, seconds: float) -> bool:
    """Whether what a killed creation left is a whole store or is refused, and can then be created."""
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
                seconds = rng.uniform(0, LONGEST.get(kind, USUALLY))
                if kind == "create":
                    ledger.kills += 1
                    ledger.unreadable += not killed_creation(server, Path(scratch) / f"new {kill}", kill, seconds)
                else:
                    ledger.settle(folder, server.run(folder, kind, kill, seconds, look)["said"])
    for complaint in ledger.complaints:
        print(complaint)
    rows: list[Row] = [
        ("kills", ledger.kills, ""),
        ("calls that returned", ledger.calls, ""),
        ("looks of a reader meanwhile", looks, ""),
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
