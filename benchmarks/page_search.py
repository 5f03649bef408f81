"""Search over the documents of a store, as the page does it: seconds over HTTP, and what the index costs.

    python benchmarks/page_search.py [--quick] [--documents N] [--json PATH]

On msdocs (RIPML_DATA), a server with all 97,498 training texts answers queries on loopback, one after the other: one
to three neighbouring words of a document, the same while the last one is being typed (`wor*`), phrases, words that
stand in nearly every document, and words with filters. Then the index is measured alone: the CPU seconds to make it,
its part of the database, and a document that is learnt with it and without it. --quick and --documents take fewer
texts. Seconds on a busy machine say little: the load is among the figures, and so are the CPU seconds of a query.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import numpy as np
import uvicorn
from harness import Row, finish, has_data, options

from ripml import RIPML, Store
from ripml.datasets import documents_given
from ripml.server import create_app
from ripml.store import fulltext
from ripml.store.documents import Bodies
from ripml.text import TfIdf
from ripml.text.tokens import tokens

N_QUERIES, N_LEARNT = 200, 30
BAR = 0.1  # seconds, the 95th percentile


def texts(n: int) -> list[str]:
    with gzip.open(Path(os.environ["RIPML_DATA"]) / "msdocs" / "docs.jsonl.gz", "rt") as file:
        found = (json.loads(line) for line in file)
        return [document["text"] for document in found if document.get("split") != "test"][:n]


def queries(some: list[str]) -> dict[str, list[dict[str, Any]]]:
    """What people ask, by kind."""
    rng = random.Random(0)

    def words() -> list[str]:
        found: list[str] = []
        while not found:
            found = tokens(rng.choice(some))
        first = rng.randrange(len(found))
        return found[first : first + rng.choice([1, 1, 2, 2, 3])]

    def typed() -> str:
        *before, last = words()
        return " ".join([*before, f"{last[: rng.randint(1, len(last))]}*"])

    common = ["the", "function", "windows", "is a", "returns the value", "if the function"]
    kinds: dict[str, Callable[[], dict[str, Any]]] = {
        "words": lambda: {"q": " ".join(words())},
        "while typing": lambda: {"q": typed()},
        "phrases": lambda: {"q": f'"{" ".join(words())}"'},
        "common words": lambda: {"q": rng.choice(common)},
        "with filters": lambda: {"q": " ".join(words()), "label": "even", "state": "labelled", "prefix": "1"},
        "newest": lambda: {"q": " ".join(words()), "sort": "newest"},
        "without words": lambda: {"label": "even"},
    }
    return {kind: [make() for _ in range(N_QUERIES)] for kind, make in kinds.items()}


@contextmanager
def serving(store: Store) -> Iterator[int]:
    """The port of a server with a store."""
    server = uvicorn.Server(uvicorn.Config(create_app({"s": store}), port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def over_http(port: int, asked: list[dict[str, Any]]) -> tuple[list[float], float]:
    """The seconds of each query, and the CPU seconds of this process, which is client and server, for one."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    seconds, cpu = [], time.process_time()
    for query in asked:
        start = time.perf_counter()
        connection.request("GET", f"/v1/stores/s/search?{urlencode({**query, 'limit': 30})}")
        response = connection.getresponse()
        answer = json.loads(response.read())
        seconds.append(time.perf_counter() - start)
        assert response.status == 200, answer
    return seconds, (time.process_time() - cpu) / len(asked)


def learning(store: Store, some: list[str], indexed: bool) -> float:
    """The median CPU seconds of learning a document, with the index or without."""
    times = []
    with ExitStack() as stack:
        for method in () if indexed else ("add", "remove"):
            stack.enter_context(patch.object(fulltext.WordIndex, method))
        for i, text in enumerate(some[:N_LEARNT]):
            start = time.process_time()
            store.learn([{"id": f"again-{i}", "text": text, "labels": ["even"]}])
            times.append(time.process_time() - start)
            store.forget([f"again-{i}"])
    return float(np.median(times))


def main() -> None:
    arguments = options(__doc__ or "", documents=97_498)
    n = arguments.documents or (5_000 if arguments.quick else 97_498)
    rows: list[Row] = []
    if not has_data():
        print("RIPML_DATA is not set; nothing was measured")
        return
    some = texts(n)
    with tempfile.TemporaryDirectory() as folder:  # two labels: the model is small, and the search does not ask it
        data = documents_given(some, [["even" if i % 2 else "odd"] for i in range(len(some))])
        with Store.create(
            Path(folder) / "s", data, RIPML.linear(random_state=0, solver="primal"), features=TfIdf(max_features=2000)
        ) as store:
            rows.append(("documents", float(len(store)), ""))
            with serving(store) as port:
                over_http(port, [{"q": "warm"}] * 5)
                everything: list[float] = []
                for kind, asked in queries(some).items():
                    seconds, cpu = over_http(port, asked)
                    everything += seconds
                    rows.append((f"{kind}: ms, median", 1e3 * float(np.median(seconds)), ""))
                    rows.append(
                        (f"{kind}: ms, 95th percentile", 1e3 * float(np.quantile(seconds, 0.95)), f"≤ {1e3 * BAR:g}")
                    )
                    rows.append((f"{kind}: CPU ms", 1e3 * cpu, ""))
                rows.append(
                    ("all: ms, 95th percentile", 1e3 * float(np.quantile(everything, 0.95)), f"≤ {1e3 * BAR:g}")
                )
        with Store.open(Path(folder) / "s") as store:
            rows += costs(store, some, Path(folder))
    rows.append(("load at the end", os.getloadavg()[0], ""))
    finish(rows, arguments.json)


def costs(store: Store, some: list[str], folder: Path) -> list[Row]:
    """What the index costs."""
    path, bare = folder / "s" / "store.db", folder / "bare.db"
    bare.write_bytes(path.read_bytes())
    connection = sqlite3.connect(bare, isolation_level=None)
    start = time.process_time()
    connection.execute("BEGIN")
    fulltext.fill(connection, Bodies("text"))
    connection.execute("COMMIT")
    made = time.process_time() - start
    connection.execute("DROP TABLE words")
    connection.execute("VACUUM")
    connection.close()
    size = path.stat().st_size
    learning(store, some, indexed=True)  # the first change prepares for others
    seconds = {indexed: learning(store, some, indexed) for indexed in (True, False)}
    return [
        ("index: CPU s for 100,000 documents", 1e5 * made / len(some), ""),
        ("database, MB", size / 1e6, ""),
        ("database without the index, MB", bare.stat().st_size / 1e6, ""),
        ("learning a document: CPU ms", 1e3 * seconds[True], ""),
        ("learning a document without the index: CPU ms", 1e3 * seconds[False], ""),
    ]


if __name__ == "__main__":
    main()
