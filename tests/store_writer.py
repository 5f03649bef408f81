"""A process that writes to a store and is killed at a random moment, and checks of the store afterwards.

    python store_writer.py        commands on standard input and answers on standard output, one JSON object per line

Imports take long, so the process stays alive and runs each command in a fork. Each call of the writer changes a *pair*
of documents, `mark/a` and `mark/b`, which must be added, changed and removed together. The writer sends a message
before each call and another one when the call has returned.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ripml.datasets import Dataset
from ripml.model.estimator import RIPML
from ripml.store import Store, StoreError
from ripml.store.journal import all_documents

Send = Callable[[list[Any]], None]
_TOLERANCE = 1e-4  # of scores

WORDS = [f"word{i}" for i in range(40)]
LABELS = [f"label {i}" for i in range(6)]


def example(n: int = 40, seed: int = 0) -> Dataset:
    """A small set of texts with one or two labels each."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=8)) for _ in range(n)]
    rows = [
        [float(label in chosen) for label in LABELS]
        for chosen in (rng.sample(LABELS, rng.randint(1, 2)) for _ in texts)
    ]
    return Dataset(X=None, Y=csr_array(rows), label_names=LABELS, texts=texts, name="example")


def settings() -> RIPML:
    """A model that is quick to fit."""
    return RIPML.paper(n_dims=8, n_neighbors=3, n_learners=2, ridge=1.0, n_jobs=1, random_state=0)


def word_counts(text: str) -> list[float]:
    """The features of a text in a store that has no texts."""
    words = text.split()
    return [float(words.count(word)) for word in WORDS]


def as_features(data: Dataset) -> Dataset:
    """The same documents by features."""
    X = csr_array([word_counts(text) for text in data.texts or ()], dtype=np.float32)
    return Dataset(X=X, Y=data.Y, label_names=data.label_names, name=data.name)


def difference_from_reference(store: Store) -> float:
    """How far scores are from those of a model with the same frozen parts that learns all documents at once.

    It learns them in the order in which the store did: the earlier of two rows that are equally similar may vote.
    """
    model = store.model.model
    assert isinstance(model, RIPML)
    documents = [store.document(id) for id in store.ids()]
    numbers, states = zip(*store._database.read(lambda c: list(all_documents(c))), strict=True)
    X = store._version.features(states)
    place = {document: row for row, document in enumerate(store._version.rows.view.tolist())}
    order = sorted(range(len(numbers)), key=lambda i: place.get(numbers[i], -1))
    fresh = model.without_rows().partial_fit(X[order], [documents[i]["labels"] for i in order])
    assert (fresh.n_rows_, fresh.n_unlabelled_) == (model.n_rows_, model.n_unlabelled_)
    columns, other = (np.argsort(m.classes_.astype(str)) for m in (model, fresh))
    scores, expected = model.decision_function(X).toarray(), fresh.decision_function(X).toarray()
    return float(np.abs(scores[:, columns] - expected[:, other]).max(initial=0))


# ------------------------------------------------------------------------------------------------- in the fork


def write_pairs(folder: str, kind: str, seed: int, send: Send) -> None:
    """Change pairs forever; `kind` adds a snapshot, a compaction, or closing and opening after each call."""
    rng = random.Random(seed)
    store = Store.open(folder)
    send(["open", "", None])
    marks = sorted(id[:-2] for id in store.ids() if id.endswith("/a"))
    texts = "text" in store.document(store.ids()[0])

    def body() -> dict[str, Any]:
        text = " ".join(rng.choices(WORDS, k=6))
        return {"text": text} if texts else {"features": word_counts(text)}

    for call in itertools.count():
        action = rng.choice(["learn", "learn", "replace", "relabel", "forget"]) if marks else "learn"
        mark = f"{seed}.{call}" if action == "learn" else rng.choice(marks)
        labels = sorted({rng.choice(LABELS), f"new {rng.randrange(20)}"})
        after = None if action == "forget" else labels
        send(["begin", mark, after])
        if action in ("learn", "replace"):
            store.learn([{"id": f"{mark}/{side}", **body(), "labels": labels} for side in "ab"])
            marks += [mark] if action == "learn" else []
        elif action == "relabel":
            store.relabel({f"{mark}/{side}": labels for side in "ab"})
        else:
            store.forget([f"{mark}/{side}" for side in "ab"])
            marks.remove(mark)
        send(["done", mark, after])
        if kind == "snapshot":
            store.snapshot()
        elif kind == "compact":
            store.compact()
        elif kind == "close":
            store.close()
            store = Store.open(folder)


def create(folder: str, kind: str, seed: int, send: Send) -> None:
    """Create a store and learn one document."""
    with Store.create(folder, example(200), settings()) as store:
        store.learn([{"text": "word1", "labels": ["label 1"]}])
    send(["done", "", None])


def fill_up(folder: str, kind: str, seed: int, send: Send) -> None:
    """Learn and take a snapshot while files cannot grow, and then again when they can."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    big = [{"id": f"big/{side}", "text": "word1 " * 100_000, "labels": ["label 1"]} for side in "ab"]
    store = Store.open(folder)
    store.learn([{"id": f"small/{side}", "text": "word1", "labels": ["label 1"]} for side in "ab"])
    for number, action in enumerate((lambda: store.learn(big), store.snapshot)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000 if number == 0 else 200, most))
        try:
            action()
        except StoreError as error:
            send(["error", str(error), [len(store), store.model.model.n_rows_]])
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        action()
        send(["done", "", [len(store), store.model.model.n_rows_]])
    store.close()


_WORK = {"create": create, "full": fill_up}
_AT_ONCE = {"create", "open"}  # their time until the kill starts at once, not when the store is open


def serve() -> None:
    """Run each command in a fork that is killed after the given number of seconds."""
    # Modules that are imported when first needed are imported before the first fork.
    with tempfile.TemporaryDirectory() as scratch:
        create(f"{scratch}/store", "create", 0, lambda message: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    for line in sys.stdin:
        order = json.loads(line)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                os.close(reader)
                work = _WORK.get(order["kind"], write_pairs)
                work(order["folder"], order["kind"], order["seed"], partial(_send, writer))
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        if order["kind"] not in _AT_ONCE:
            select.select([reader], [], [])
        signal.sigtimedwait([signal.SIGCHLD], order["seconds"])
        os.kill(child, signal.SIGKILL)
        with os.fdopen(reader) as pipe:
            messages = [json.loads(line) for line in pipe if line.endswith("\n")]
        _, status = os.waitpid(child, 0)
        signal.sigtimedwait([signal.SIGCHLD], 0)
        print(json.dumps({"messages": messages, "status": status}), flush=True)


def _send(pipe: int, message: list[Any]) -> None:
    os.write(pipe, json.dumps(message).encode() + b"\n")  # in one write: a line arrives complete or not at all


# ----------------------------------------------------------------------------------------------- at the other end


class Server:
    """The process that forks writers."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(
        self, folder: Path, kind: str, seed: int, seconds: float, meanwhile: Callable[[], object] | None = None
    ) -> dict[str, Any]:
        """The messages of a writer until it was killed or had finished, and its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"folder": str(folder), "kind": kind, "seed": seed, "seconds": seconds}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        while meanwhile is not None and not select.select([self._process.stdout], [], [], 0.02)[0]:
            meanwhile()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@dataclass
class Ledger:
    """What a store must contain by the messages of its writers, and how often it did not."""

    pairs: dict[str, list[str]] = field(default_factory=dict)
    calls: int = 0
    kills: int = 0
    lost: int = 0  # calls that returned and have left no trace
    half: int = 0  # pairs of which one is missing, or that differ
    unreadable: int = 0  # stores that could not be opened, or whose model is not that of their documents
    wrong: int = 0  # stores whose scores are not those of a model that learns all documents at once
    complaints: list[str] = field(default_factory=list)

    def look(self, store: Store) -> None:
        """Check what must be true of a store at any time."""
        model = store.refresh().model
        if model.n_rows_ % 2:
            self.half += 1
            self.complaints.append(f"a reader saw {model.n_rows_} rows")
        ids = {id for id in store.ids() if "/" in id}
        self.half += sum(f"{id[:-1]}{'b' if id.endswith('a') else 'a'}" not in ids for id in ids)

    def settle(self, folder: Path, messages: list[list[Any]]) -> None:
        """Compare a store with the messages of its writer, which was killed."""
        self.kills += 1
        last = None
        for word, mark, after in messages:
            if word == "begin":
                last = (mark, after)
            elif word == "done":
                last = None
                self.calls += 1
                self._note(mark, after)
        try:
            with Store.open(folder) as store:
                found = self._found(store)
                labelled = sum(bool(store.document(id)["labels"]) for id in store.ids())
                if store.model.model.n_rows_ != labelled:
                    self.unreadable += 1
                    self.complaints.append(f"{labelled} documents, {store.model.model.n_rows_} rows of the model")
                elif (difference := difference_from_reference(store)) > _TOLERANCE:
                    self.wrong += 1
                    self.complaints.append(f"scores differ from the reference by {difference:.2g}")
        except Exception as error:
            self.unreadable += 1
            self.complaints.append(f"{type(error).__name__}: {error}")
            return
        if last is not None and found.get(last[0]) == last[1]:  # committed, but killed before the message
            self._note(*last)
        if found != self.pairs:
            self.lost += sum(found.get(mark) != self.pairs.get(mark) for mark in {*found, *self.pairs})
            self.complaints.append("the documents do not agree with the messages")
            self.pairs = found

    def _note(self, mark: str, after: list[str] | None) -> None:
        if after is None:
            self.pairs.pop(mark, None)
        else:
            self.pairs[mark] = after

    def _found(self, store: Store) -> dict[str, list[str]]:
        found: dict[str, dict[str, list[str]]] = {}
        for id in store.ids():
            mark, _, side = id.rpartition("/")
            if mark:
                found.setdefault(mark, {})[side] = sorted(store.document(id)["labels"])
        for sides in found.values():
            self.half += len(sides) != 2 or sides["a"] != sides["b"]
        return {mark: sides.get("a", []) for mark, sides in found.items()}


if __name__ == "__main__":
    serve()
