"""One store that is served: its threads, and what each route asks of it.

    suggest           one thread, which answers together what came meanwhile (`ripml.server.batching`)
    learn, forget, …  one thread: a write is answered when it is on the disk
    refit             one thread; the model before serves meanwhile, and the new one takes its place at once
    what takes long   two threads that all stores share: long texts, many texts, explanations
    look-ups          the threads of asyncio

A version of a model never changes, so a question takes one and asks it all.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar

from ripml.base.errors import DataError, ParameterError, RipmlError
from ripml.model.explain import Example
from ripml.server.answers import written
from ripml.server.batching import Batcher
from ripml.server.metrics import Metrics
from ripml.server.problems import Problem, of, unexpected
from ripml.store import Store
from ripml.tagging.documents import DocumentModel, Why
from ripml.text import Encoder

__all__ = ["Limits", "ServedStore", "scored"]

Limits = Mapping[str, Any]  # `n` and `threshold` as far as the caller gave them
Labelled = tuple[int, list[tuple[str, float]]]  # version, labels with scores
T = TypeVar("T")

_LONG = 50_000  # characters of a text that would keep others waiting
_CARRIERS = 3  # documents that are shown of those that carry the labels of an example
_EXCERPT = 300
_SPANS = 20_000  # that all labels of an explanation show together: the strongest of each
_EXAMPLE_LABELS = 10_000  # that all its examples show together: the first of each
_log = logging.getLogger("ripml.server")


@dataclass(frozen=True)
class _Question:
    text: str
    limits: Limits


def scored(labels: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """Labels with their scores, as they are answered."""
    return [{"label": label, "score": score} for label, score in labels]


def _share(sizes: Sequence[int], most: int) -> int:
    """How many each may show so that all together show at most so many (and each one, at least).

    >>> _share([3, 9], 12), _share([3, 9], 11)
    (12, 5)
    """
    return most if sum(sizes) <= most else max(1, most // len(sizes))


class ServedStore:
    """A store under a name, asked from an event loop."""

    def __init__(self, name: str, store: Store, metrics: Metrics, pool: Executor, max_batch: int) -> None:
        self.name, self._store, self._metrics, self._pool = name, store, metrics, pool
        if store.model.text is None:
            raise ParameterError(f"{name}: this store was made of features; the server takes texts.")
        if isinstance(store.model.text, Encoder) and store.model.text.encoder is None:
            remedy = "open it with its encoder in Python, and serve it with `ripml.server.create_app`"
            raise ParameterError(
                f"{name}: this store reads texts by {store.model.text.name}, which is not saved; {remedy}."
            )
        self._batcher = Batcher(self._answer, max_batch)
        self._writer = ThreadPoolExecutor(1, f"ripml write {name}")
        self._refit: dict[str, Any] = {"status": "idle", "detail": None, "last": None}
        self._lost = False  # the writer whom it follows

    # ---------------------------------------------------------------------------------------------------------- life

    async def start(self, read_only: bool) -> None:
        """Answer a first question, so that all that is loaded when needed is there; then make ready for changes."""
        await self._batcher.ask(_Question("", {}))
        if not read_only:
            self._writer.submit(self._warm_up)

    def _warm_up(self) -> None:
        try:
            self._store.warm_up()
        except Exception as error:  # the first change will say so
            unexpected(error)

    async def follow(self) -> None:
        """Take over what a writer in another process did; that it cannot be done is logged once, and so is its end."""
        try:
            await asyncio.to_thread(self._store.refresh)
        except Exception as error:
            if not self._lost:
                of(error) if isinstance(error, RipmlError) else unexpected(error)
            self._lost = True
        else:
            if self._lost:
                _log.info("%s: the store can be followed again.", self.name)
            self._lost = False

    def close(self) -> None:
        """Finish what was begun and close the store."""
        self._batcher.close()
        self._writer.shutdown()
        self._store.close()

    def _current(self) -> tuple[int, DocumentModel]:
        """The model and the number of the change that made it."""
        while True:
            version, model = self._store.version, self._store.model
            if version == self._store.version:
                return version, model

    async def _in_pool(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # ----------------------------------------------------------------------------------------------------- questions

    async def suggest(self, text: str, limits: Limits) -> Labelled:
        """The labels of a text."""
        question = _Question(text, limits)
        if len(text) <= _LONG:
            return await self._batcher.ask(question)
        (found,) = await self._in_pool(lambda: self._answer([question]))
        return found

    async def suggest_many(self, texts: Sequence[str], limits: Limits) -> bytes:
        """The labels of texts, by one version, in JSON."""

        def work() -> bytes:
            version, model = self._current()
            self._metrics.batch(self.name, len(texts))
            found = model.suggest(texts, model.rules.but(**limits))
            return written({"version": version, "results": [{"labels": scored(labels)} for labels in found]})

        return await self._in_pool(work)

    def _answer(self, questions: Sequence[_Question]) -> list[Labelled]:
        """The labels of the texts of several callers: scored together, chosen by the rules of each."""
        version, model = self._current()
        self._metrics.batch(self.name, len(questions))
        texts = [question.text for question in questions]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for row, question in enumerate(questions):
            groups.setdefault(tuple(question.limits.items()), []).append(row)
        if len(groups) == 1:
            return [(version, labels) for labels in model.suggest(texts, model.rules.but(**questions[0].limits))]
        assert model.text is not None
        scores = model.model.decision_function(model.text.transform(texts))
        found: dict[int, Labelled] = {}
        for limits, rows in groups.items():
            chosen = model.rules.but(**dict(limits)).suggestions(model.model, scores[rows])
            found |= {row: (version, labels) for row, labels in zip(rows, chosen, strict=True)}
        return [found[row] for row in range(len(questions))]

    async def explain(self, text: str, limits: Limits, n_examples: int, n_features: int) -> bytes:
        """Why a text has its labels, in JSON."""

        def work() -> bytes:
            version, model = self._current()
            (found,) = model.explain([text], model.rules.but(**limits), n_examples, n_features)
            spans = _share([len(why.spans) for why in found], _SPANS)
            labels = _share([len(example.labels) for why in found for example in why.examples], _EXAMPLE_LABELS)
            return written({"version": version, "labels": [self._told(why, model, spans, labels) for why in found]})

        return await self._in_pool(work)

    def _told(self, why: Why, model: DocumentModel, n_spans: int, n_labels: int) -> dict[str, Any]:
        """An explanation, with the documents behind its examples."""
        spans = why.spans
        if len(spans) > n_spans:
            spans = sorted(heapq.nlargest(n_spans, spans, key=lambda span: abs(span[2])))
        names = ("label", "score", "regression", "others", "value", "intercept", "features")
        return {
            **{name: getattr(why, name) for name in names},
            "examples": [self._example(example, model, n_labels) for example in why.examples],
            "spans": [{"start": start, "end": end, "pull": pull} for start, end, pull in spans],
        }

    def _example(self, example: Example, model: DocumentModel, n_labels: int) -> dict[str, Any]:
        """An example with the documents that it is, or the first that carry its labels."""
        ids: Sequence[str] = []
        if example.row is not None:
            ids = list(self._store.rows([example.row], model).values())
        else:
            with contextlib.suppress(DataError):  # a writer may have renamed one of the labels meanwhile
                ids = self._store.carriers(example.labels, _CARRIERS)
        return {
            "labels": [str(label) for label in example.labels[:n_labels]],
            "share": example.share,
            "n_rows": example.n_rows,
            "row": example.row,
            "how": example.how,
            "documents": list(self._evidence(ids)),
        }

    def _evidence(self, ids: Sequence[str]) -> Iterator[dict[str, str]]:
        for id in ids:
            with contextlib.suppress(DataError):  # forgotten meanwhile
                yield {"id": id, "text": self._store.document(id)["text"][:_EXCERPT]}

    async def document(self, id: str) -> dict[str, Any]:
        """A document."""
        return await asyncio.to_thread(self._found, id)

    def _found(self, id: str) -> dict[str, Any]:
        try:
            return self._store.document(id)
        except DataError as error:
            raise Problem(404, str(error)) from None

    async def labels(self, prefix: str, n: int) -> list[dict[str, Any]]:
        """Labels that begin so."""
        found = await asyncio.to_thread(self._store.labels, prefix, n)
        return [{"name": label.name, "count": label.count, "retired": label.retired} for label in found]

    async def history(self, n: int) -> list[dict[str, Any]]:
        """The last changes."""
        return await asyncio.to_thread(self._store.history, n)

    def facts(self) -> dict[str, int]:
        """How many documents and labels there are, and the number of the last change; may wait for the disk."""
        version, model = self._current()
        return {"documents": len(self._store), "labels": len(model.model.classes_), "version": version}

    async def in_short(self) -> dict[str, Any]:
        """The store in a line."""
        facts = await asyncio.to_thread(self.facts)
        return {"name": self.name, "documents": facts["documents"], "labels": facts["labels"]}

    async def card(self) -> dict[str, Any]:
        """The store and its model."""

        def work() -> dict[str, Any]:
            model = self._store.model
            estimator = model.model
            assert model.text is not None
            return {
                "name": self.name,
                **self.facts(),
                "features": {"kind": type(model.text).__name__, "count": int(estimator.n_features_in_)},
                "settings": estimator.get_params(deep=False),
                "chosen": estimator.chosen_,
                "left_out_precision": estimator.left_out_precision_ or None,
                "warm": estimator.warm_,
                "rules": model.rules.to_json(),
            }

        return await asyncio.to_thread(work)

    # ------------------------------------------------------------------------------------------------------- changes

    async def _write(self, kind: str, work: Callable[[], T]) -> tuple[int, T]:
        """Do a change in its turn, to its end even if nobody waits for it any more, and say what version has it."""

        def done() -> tuple[int, T]:
            found = work()
            self._metrics.wrote(self.name, kind)
            return self._store.version, found

        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writer, done))

    async def learn(self, documents: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
        """Learn documents; their ids."""
        return await self._write("learn", lambda: self._store.learn(documents))

    async def forget(self, ids: Sequence[str]) -> int:
        """Forget documents."""

        def work() -> None:
            try:
                self._store.forget(ids)
            except DataError as error:  # all that can be wrong with ids that are strings, each given once
                raise Problem(404, str(error)) from None

        return (await self._write("forget", work))[0]

    async def relabel(self, id: str, labels: Sequence[str]) -> tuple[int, list[str]]:
        """Give a document other labels; those it had."""

        def work() -> list[str]:
            before: list[str] = self._found(id)["labels"]
            self._store.relabel(id, labels)
            return before

        return await self._write("relabel", work)

    def refit(self) -> None:
        """Begin to fit the model anew, unless that is being done."""
        if self._refit["status"] != "running":
            self._refit = {**self._refit, "status": "running", "detail": None}
            threading.Thread(target=self._refit_now, name=f"ripml refit {self.name}", daemon=True).start()

    def _refit_now(self) -> None:
        try:
            self._store.refit()
        except Exception as error:
            problem = of(error) if isinstance(error, RipmlError) else unexpected(error)
            self._refit = {**self._refit, "status": "failed", "detail": problem.detail}
            self._metrics.refitted(self.name, "failed")
        else:
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            self._refit = {"status": "idle", "detail": None, "last": now}
            self._metrics.refitted(self.name, "done")
            with contextlib.suppress(RuntimeError):  # stopping
                self._writer.submit(self._warm_up)

    @property
    def refit_status(self) -> dict[str, Any]:
        """How the last refit went."""
        return self._refit
