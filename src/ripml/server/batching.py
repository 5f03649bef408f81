"""Micro-batching: what is asked while an answer is computed is answered together next.

A question that comes alone is answered alone and at once, and under load the batches grow by themselves to what arrives
during one. Callers who were answered together ask again at almost the same time; the first of them would get a batch
of its own, and all others would wait for it. So after a batch of several, as many are waited for, but no longer than a
small part of the time that it took.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Batcher"]

_PATIENCE = 0.2  # of the time that the last batch took

Q = TypeVar("Q")
A = TypeVar("A")


class Batcher(Generic[Q, A]):
    """A thread that answers questions of an event loop, up to `most` at a time.

    >>> async def both() -> list[int]:
    ...     batcher = Batcher(lambda numbers: [number**2 for number in numbers], most=8)
    ...     found = await asyncio.gather(batcher.ask(2), batcher.ask(3))
    ...     batcher.close()
    ...     return found
    >>> asyncio.run(both())
    [4, 9]
    """

    def __init__(self, answer: Callable[[Sequence[Q]], Sequence[A]], most: int) -> None:
        self._answer, self._most = answer, most
        self._waiting: queue.SimpleQueue[tuple[Q, asyncio.Future[A]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="ripml suggest", daemon=True)
        self._thread.start()

    async def ask(self, question: Q) -> A:
        """The answer to a question."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.put((question, future))
        return await future

    def close(self) -> None:
        """Answer what was asked, then end."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        size, seconds = 1, 0.0  # of the last batch
        while (first := self._waiting.get()) is not None:
            start = time.perf_counter()
            batch = [first]
            while len(batch) < self._most:
                # Those who were answered together ask again together.
                left = start + _PATIENCE * seconds - time.perf_counter() if len(batch) < size else 0.0
                try:
                    more = self._waiting.get(block=left > 0, timeout=max(left, 0))
                except queue.Empty:
                    break
                if more is None:
                    self._waiting.put(None)  # to be met again, after this batch
                    break
                batch.append(more)
            start = time.perf_counter()
            self._settle(batch)
            size, seconds = len(batch), time.perf_counter() - start

    def _settle(self, batch: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        """Answer a batch; if that fails, one by one, so that a question fails for itself alone."""
        try:
            answers = self._answer([question for question, _ in batch])
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    self._settle([one])
                return
            self._deliver([(batch[0][1], error)])
            return
        self._deliver([(future, answer) for (_, future), answer in zip(batch, answers, strict=True)])

    @staticmethod
    def _deliver(answers: Sequence[tuple[asyncio.Future[A], A | Exception]]) -> None:
        """Hand answers over to the loop in one go."""

        def settle() -> None:
            for future, answer in answers:
                if future.done():  # who asked is gone
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

        loop = answers[0][0].get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle)
