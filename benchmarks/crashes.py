"""Stores whose writer is killed (kill -9) at random moments: what is lost, half done, unreadable or wrong afterwards?

    python benchmarks/crashes.py [--quick] [--kills N] [--json PATH]

A writer learns, replaces, relabels and forgets pairs of documents, one pair per call, and reports when a call has
returned. In some rounds it also takes a snapshot, compacts, or closes and opens the store after every call, or it
creates a store. Meanwhile a reader in another process follows. The kills go round stores of every kind: the default,
linear, the paper's model, clusters, deterministic columns and doc2vec, on texts and on features. After each kill the
store is opened, and its scores are compared with those of a model that learns all its documents at once. There are 200
kills, or 16 with --quick. All bounds are 0.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import Row, finish, options

from ripml import RIPML
from ripml.datasets import Dataset
from ripml.store import Store, StoreError
from ripml.text import Doc2Vec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from store_writer import Ledger, Server, as_features, example, settings

KINDS = ["learn", "snapshot", "compact", "close", "open", "create", "learn", "snapshot", "compact", "close"]
MAX_SECONDS = {"create": 0.25, "open": 0.3}  # until the kill
DEFAULT_MAX_SECONDS = 1.5


def stores() -> dict[str, tuple[Dataset, RIPML, Any]]:
    """The documents, the model and the features of each kind of store."""
    texts, rows = example(), as_features(example())
    default, linear = RIPML(random_state=0, n_jobs=1), RIPML.linear(random_state=0, n_jobs=1)
    clusters = settings().set_params(n_clusters=2)
    deterministic = settings().set_params(ensemble="deterministic", n_dims=31)
    doc2vec = Doc2Vec(n_dims=8, min_count=1, epochs=3)
    return {
        "paper, texts": (texts, settings(), "tfidf"),
        "default, texts": (texts, default, "tfidf"),
        "linear, features": (rows, linear, "tfidf"),
        "linear, doc2vec": (texts, linear, doc2vec),
        "clusters, features": (rows, clusters, "tfidf"),
        "default, doc2vec": (texts, default, doc2vec),
        "deterministic, texts": (texts, deterministic, "tfidf"),
        "default, features": (rows, default, "tfidf"),
    }


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
    arguments = options(__doc__ or "", kills=200)
    kills = arguments.kills or (16 if arguments.quick else 200)
    rng, looks = random.Random(0), 0
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, Server() as server:
        made = {}
        for number, (name, (data, model, features)) in enumerate(list(stores().items())[:kills]):
            folder = Path(scratch) / f"store {number}"
            Store.create(folder, data, model, features=features).close()
            made[name] = (folder, Ledger(), Store.open(folder, readonly=True))
        for kill in range(kills):
            folder, ledger, reader = list(made.values())[kill % len(made)]
            kind = KINDS[kill // len(made) % len(KINDS)]
            seconds = rng.uniform(0, MAX_SECONDS.get(kind, DEFAULT_MAX_SECONDS))

            def look(ledger: Ledger = ledger, reader: Store = reader) -> None:
                nonlocal looks
                looks += 1
                ledger.look(reader)

            if kind == "create":
                ledger.kills += 1
                ledger.unreadable += not killed_creation(server, Path(scratch) / f"new {kill}", kill, seconds)
            else:
                ledger.settle(folder, server.run(folder, kind, kill, seconds, look)["messages"])
        for _, _, reader in made.values():
            reader.close()
    for name, (_, ledger, _) in made.items():
        for complaint in ledger.complaints:
            print(f"{name}: {complaint}")
    ledgers = [ledger for _, ledger, _ in made.values()]
    failures = {
        "documents lost": sum(ledger.lost for ledger in ledgers),
        "calls seen or left half done": sum(ledger.half for ledger in ledgers),
        "stores unreadable": sum(ledger.unreadable for ledger in ledgers),
        "models other than those of their documents": sum(ledger.wrong for ledger in ledgers),
    }
    rows: list[Row] = [
        ("kinds of stores", len(made), ""),
        ("kills", sum(ledger.kills for ledger in ledgers), ""),
        ("calls that returned", sum(ledger.calls for ledger in ledgers), ""),
        ("checks by a reader meanwhile", looks, ""),
        *((name, count, "0") for name, count in failures.items()),
        ("seconds", time.perf_counter() - start, ""),
    ]
    finish(rows, arguments.json)
    if any(failures.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
