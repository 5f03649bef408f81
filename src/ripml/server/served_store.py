"""A store behind the server: its methods for the routes, and the threads that they run in.

    suggest          one thread, which scores together the texts that wait (`ripml.server.batching`)
    changes          one thread; a change is answered when it is on the disk
    refit            one thread; the present model serves until the new one replaces it
    long work        two threads that all stores share: long texts, batches, explanations
    everything else  asyncio's threads

A model value never changes, so a request takes the current one and uses it to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeVar

from pydantic_core import to_json, to_jsonable_python

from ripml.base.errors import DataError, ParameterError
from ripml.model.explain import Example
from ripml.server.batching import Batcher
from ripml.server.metrics import Metrics
from ripml.server.problems import Problem, problem_of, unexpected
from ripml.server.schemas import Limits, ModelCard, RefitStatus, StoreSummary
from ripml.store import Store
from ripml.tagging.documents import DocumentModel, Why
from ripml.tagging.rules import Suggestion
from ripml.text import Encoder

__all__ = ["ServedStore", "encode_json"]

Overrides = Mapping[str, Any]  # those of `n` and `threshold` that the request has
T = TypeVar("T")

_LONG_TEXT = 50_000  # characters; longer texts would delay a whole batch
_MAX_CARRIERS = 3  # documents shown of those with the labels of an example
_EXCERPT = 300  # characters
_MAX_SPANS = 20_000  # of all labels of an explanation: the strongest of each
_MAX_EXAMPLE_LABELS = 10_000  # of all examples of an explanation: the first of each
_log = logging.getLogger("ripml.server")


class _Query(NamedTuple):
    text: str
    overrides: Overrides


def _plain(value: Any) -> Any:
    """NumPy's values as Python's; a setting that is an object as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def encode_json(content: Any) -> bytes:
    """JSON, with null for what JSON has no number for.

    >>> encode_json({"score": 0.5, "pull": float("inf")})
    b'{"score":0.5,"pull":null}'
    """
    return to_json(content, fallback=_plain, inf_nan_mode="null")


def _scored(labels: Sequence[Suggestion]) -> list[dict[str, Any]]:
    return [{"label": label, "score": score} for label, score in labels]


def _per_item(sizes: Sequence[int], limit: int) -> int:
    """The number that each of several lists may show, at least 1, so that together they stay within a limit.

    >>> _per_item([3, 9], 12), _per_item([3, 9], 11)
    (12, 5)
    """
    return limit if sum(sizes) <= limit else max(1, limit // len(sizes))


class ServedStore:
    """A store under a name, for an event loop."""

    def __init__(self, name: str, store: Store, metrics: Metrics, pool: Executor, max_batch: int) -> None:
        self.name, self.store, self._metrics, self._pool = name, store, metrics, pool
        features = store.model.text
        if features is None:
            raise ParameterError(f"{name}: this store was made from feature rows; the server needs a store of texts.")
        if isinstance(features, Encoder) and features.encoder is None:
            remedy = "open it with its encoder in Python, and serve it with `ripml.server.create_app`"
            raise ParameterError(
                f"{name}: this store encodes texts with {features.name}, which is not saved; {remedy}."
            )
        self._batcher = Batcher(self._suggest_together, max_batch)
        self._writer = ThreadPoolExecutor(1, f"ripml write {name}")
        self.refit_status = RefitStatus(status="idle")
        self._follow_failed = False

    # ----------------------------------------------------------------------------------------------------- life cycle

    async def start(self, read_only: bool) -> None:
        """Load what a first request loads; then prepare for changes, in the background."""
        await self._batcher.submit(_Query("", {}))
        if not read_only:
            self._writer.submit(self._warm_up)

    def _warm_up(self) -> None:
        try:
            self.store.warm_up()
        except Exception as error:  # logged; the first change fails with it
            unexpected(error)

    async def follow(self) -> None:
        """Take over the changes of a writer in another process; a failure is logged once, and so is its end."""
        try:
            await asyncio.to_thread(self.store.refresh)
        except Exception as error:
            if not self._follow_failed:
                problem_of(error)
            self._follow_failed = True
        else:
            if self._follow_failed:
                _log.info("%s: following the store works again.", self.name)
            self._follow_failed = False

    def close(self) -> None:
        """Finish the requests in progress and close the store."""
        self._batcher.close()
        self._writer.shutdown()
        self.store.close()

    def _current(self) -> tuple[int, DocumentModel]:
        """The model and the number of the change that made it."""
        while True:
            version, model = self.store.version, self.store.model
            if version == self.store.version:
                return version, model

    async def in_pool(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a method in the shared threads for long work."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    # ---------------------------------------------------------------------------------------------------- suggestions

    async def suggest(self, text: str, overrides: Overrides) -> bytes:
        """The labels of a text, as the JSON of `Suggestions`."""
        query = _Query(text, overrides)
        if len(text) <= _LONG_TEXT:
            return await self._batcher.submit(query)
        return (await self.in_pool(self._suggest_together, [query]))[0]

    def _suggest_together(self, queries: Sequence[_Query]) -> list[bytes]:
        """The labels of the texts of several callers: scored together, then chosen by the rules of each caller."""
        version, model = self._current()
        self._metrics.batch_sizes.labels(self.name).observe(len(queries))
        texts = [query.text for query in queries]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for row, query in enumerate(queries):
            groups.setdefault(tuple(query.overrides.items()), []).append(row)
        if len(groups) == 1:
            labels = model.suggest(texts, model.rules.but(**queries[0].overrides))
        else:
            assert model.text is not None
            scores = model.model.decision_function(model.text.transform(texts))
            by_row: dict[int, list[Suggestion]] = {}
            for overrides, rows in groups.items():
                chosen = model.rules.but(**dict(overrides)).suggestions(model.model, scores[rows])
                by_row.update(zip(rows, chosen, strict=True))
            labels = [by_row[row] for row in range(len(queries))]
        return [encode_json({"version": version, "labels": _scored(row)}) for row in labels]

    def suggest_batch(self, texts: Sequence[str], overrides: Overrides) -> bytes:
        """The labels of texts, all by one version of the model, as the JSON of `BatchSuggestions`."""
        version, model = self._current()
        self._metrics.batch_sizes.labels(self.name).observe(len(texts))
        suggestions = model.suggest(texts, model.rules.but(**overrides))
        results = [{"labels": _scored(row)} for row in suggestions]
        return encode_json({"version": version, "results": results})

    # --------------------------------------------------------------------------------------------------- explanations

    def explain(self, text: str, overrides: Overrides, n_examples: int, n_features: int) -> bytes:
        """The explained labels of a text, as the JSON of `Explanations`."""
        version, model = self._current()
        (found,) = model.explain([text], model.rules.but(**overrides), n_examples, n_features)
        n_spans = _per_item([len(label.spans) for label in found], _MAX_SPANS)
        sizes = [len(example.labels) for label in found for example in label.examples]
        n_labels = _per_item(sizes, _MAX_EXAMPLE_LABELS)
        labels = [self._explanation(label, model, n_spans, n_labels) for label in found]
        return encode_json({"version": version, "labels": labels})

    def _explanation(self, label: Why, model: DocumentModel, n_spans: int, n_labels: int) -> dict[str, Any]:
        """An explained label, with the documents behind its examples."""
        spans = label.spans
        if len(spans) > n_spans:
            spans = sorted(heapq.nlargest(n_spans, spans, key=lambda span: abs(span[2])))
        names = ("label", "score", "regression", "others", "value", "intercept", "features")
        return {
            **{name: getattr(label, name) for name in names},
            "examples": [self._example(example, model, n_labels) for example in label.examples],
            "spans": [{"start": start, "end": end, "pull": pull} for start, end, pull in spans],
        }

    def _example(self, example: Example, model: DocumentModel, n_labels: int) -> dict[str, Any]:
        """An example, with its document, or the first documents that have its labels."""
        ids = self.store.example_documents(example, model, _MAX_CARRIERS)
        return {
            "labels": [str(label) for label in example.labels[:n_labels]],
            "share": example.share,
            "n_rows": example.n_rows,
            "row": example.row,
            "how": example.how,
            "documents": list(self._excerpts(ids)),
        }

    def _excerpts(self, ids: Sequence[str]) -> Iterator[dict[str, str]]:
        for id in ids:
            with contextlib.suppress(DataError):  # forgotten in the meantime
                yield {"id": id, "text": self.store.document(id)["text"][:_EXCERPT]}

    # ------------------------------------------------------------------------------------------------------- look-ups

    def document(self, id: str) -> dict[str, Any]:
        """A document."""
        try:
            return self.store.document(id)
        except DataError as error:
            raise Problem(404, str(error)) from None

    def sizes(self) -> dict[str, int]:
        """The numbers of documents, labels and changes; may wait for the disk."""
        version, model = self._current()
        return {"documents": len(self.store), "labels": len(model.model.classes_), "version": version}

    def summary(self) -> StoreSummary:
        """The name and size of the store."""
        sizes = self.sizes()
        return StoreSummary(name=self.name, documents=sizes["documents"], labels=sizes["labels"])

    def card(self, limits: Limits) -> ModelCard:
        """The store and its model."""
        model = self.store.model
        estimator = model.model
        facts = {
            "name": self.name,
            **self.sizes(),
            "features": {"kind": type(model.text).__name__, "count": int(estimator.n_features_in_)},
            "settings": estimator.get_params(deep=False),
            "chosen": estimator.chosen_,
            "left_out_precision": estimator.left_out_precision_ or None,
            "warm": estimator.warm_,
            "rules": model.rules.to_json(),
        }
        return ModelCard(**to_jsonable_python(facts, fallback=_plain), limits=limits)

    # -------------------------------------------------------------------------------------------------------- changes

    async def _change(self, kind: str, work: Callable[[], T]) -> tuple[int, T]:
        """Make a change when it is its turn; the version that has it, and the result of `work`.

        A change that has begun ends, even if the client closes the connection.
        """

        def make() -> tuple[int, T]:
            result = work()
            self._metrics.writes.labels(self.name, kind).inc()
            return self.store.version, result

        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writer, make))

    async def learn(self, documents: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
        """Learn documents; the version and their ids."""
        return await self._change("learn", lambda: self.store.learn(documents))

    async def forget(self, ids: Sequence[str]) -> int:
        """Forget documents; the version."""

        def work() -> None:
            try:
                self.store.forget(ids)
            except DataError as error:  # ids are distinct strings, so the only error is an unknown one
                raise Problem(404, str(error)) from None

        return (await self._change("forget", work))[0]

    async def relabel(self, id: str, labels: Sequence[str]) -> tuple[int, list[str]]:
        """Replace the labels of a document; the version and the labels before."""

        def work() -> list[str]:
            before: list[str] = self.document(id)["labels"]
            self.store.relabel(id, labels)
            return before

        return await self._change("relabel", work)

    # ---------------------------------------------------------------------------------------------------------- refit

    def begin_refit(self) -> RefitStatus:
        """Start a refit in a thread, unless one is running."""
        if self.refit_status.status != "running":
            self.refit_status = RefitStatus(status="running", last=self.refit_status.last)
            threading.Thread(target=self._run_refit, name=f"ripml refit {self.name}", daemon=True).start()
        return RefitStatus(status="running")

    def _run_refit(self) -> None:
        try:
            self.store.refit()
        except Exception as error:
            self.refit_status = RefitStatus(
                status="failed", detail=problem_of(error).detail, last=self.refit_status.last
            )
            self._metrics.refits.labels(self.name, "failed").inc()
        else:
            self.refit_status = RefitStatus(
                status="idle", last=datetime.now(timezone.utc).isoformat(timespec="seconds")
            )
            self._metrics.refits.labels(self.name, "done").inc()
            with contextlib.suppress(RuntimeError):  # the server is stopping
                self._writer.submit(self._warm_up)
