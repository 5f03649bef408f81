"""Micro-batching: the requests that arrive while a batch is computed form the next batch.

A single request is computed alone and at once; under load batches grow to what arrives during one. Clients that were
answered together send their next requests at almost the same time: without a pause the first one would get a batch of
its own and delay all others. So after a batch of several, the next one waits for the same number of requests, but no
longer than a fraction of the time that the last batch took.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Batcher"]

_WAIT = 0.2  # at most, as a fraction of the time of the last batch

Q = TypeVar("Q")
R = TypeVar("R")


class Batcher(Generic[Q, R]):
    """A thread that computes the results of queries from an event loop, up to `max_batch` at a time.

    >>> async def squares() -> list[int]:
    ...     batcher = Batcher(lambda numbers: [number**2 for number in numbers], max_batch=8)
    ...     results = await asyncio.gather(batcher.submit(2), batcher.submit(3))
    ...     batcher.close()
    ...     return results
    >>> asyncio.run(squares())
    [4, 9]
    """

    def __init__(self, compute: Callable[[Sequence[Q]], Sequence[R]], max_batch: int) -> None:
        self._compute, self._max_batch = compute, max_batch
        self._queue: queue.SimpleQueue[tuple[Q, asyncio.Future[R]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ripml suggest", daemon=True)
        self._thread.start()

    async def submit(self, query: Q) -> R:
        """The result of a query."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queue.put((query, future))
        return await future

    def close(self) -> None:
        """Compute what was submitted, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        last_size, last_seconds = 1, 0.0
        while (first := self._queue.get()) is not None:
            start = time.perf_counter()
            batch = [first]
            while len(batch) < self._max_batch:
                wait = start + _WAIT * last_seconds - time.perf_counter() if len(batch) < last_size else 0.0
                try:
                    item = self._queue.get(block=wait > 0, timeout=max(wait, 0))
                except queue.Empty:
                    break
                if item is None:
                    self._queue.put(None)  # ends the outer loop after this batch
                    break
                batch.append(item)
            start = time.perf_counter()
            self._process(batch)
            last_size, last_seconds = len(batch), time.perf_counter() - start

    def _process(self, batch: Sequence[tuple[Q, asyncio.Future[R]]]) -> None:
        """Compute a batch; if that fails, one query at a time, so that a bad one fails alone."""
        outcomes: list[tuple[asyncio.Future[R], R | Exception]]
        try:
            results = self._compute([query for query, _ in batch])
        except Exception as error:
            if len(batch) > 1:
                for item in batch:
                    self._process([item])
                return
            outcomes = [(batch[0][1], error)]
        else:
            outcomes = [(future, result) for (_, future), result in zip(batch, results, strict=True)]

        def deliver() -> None:
            for future, outcome in outcomes:
                if future.done():  # cancelled: the client is gone
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

        loop = outcomes[0][0].get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver)
