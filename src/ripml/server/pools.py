"""Threads that callers share by taking turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect

__all__ = ["FairPool"]

T = TypeVar("T")

_NICENESS = 5  # a third of the usual share. With less, a thread could keep the interpreter lock while it cannot run


def _lower_priority() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # not allowed here
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


class FairPool:
    """Threads for work from an event loop; while they are busy, callers take turns, each with its oldest work.

    A caller uses at most `per_caller` of the threads at the same time; default: all of them. Threads in the background
    get less of a busy processor than others (on Linux; elsewhere priorities are those of processes).

    >>> async def squares() -> list[int]:
    ...     pool = FairPool(1, "example")
    ...     results = await asyncio.gather(*(pool.run("ana", pow, number, 2) for number in range(4)))
    ...     pool.close()
    ...     return results
    >>> asyncio.run(squares())
    [0, 1, 4, 9]
    """

    def __init__(self, n_threads: int, name: str, per_caller: int | None = None, background: bool = False) -> None:
        self._threads, self._free = (
            ThreadPoolExecutor(n_threads, name, _lower_priority if background else None),
            n_threads,
        )
        self._per_caller = n_threads if per_caller is None else per_caller
        self._running: Counter[str] = Counter()  # threads by caller
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # by caller; next one first

    async def run(
        self,
        caller: str,
        work: Callable[..., T],
        *arguments: Any,
        is_gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> T:
        """The result of some work; `ClientDisconnect`, and no work, if `is_gone` when its turn comes."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._give_turns()
        try:
            await turn
            if is_gone is not None and await is_gone():
                raise ClientDisconnect
        except BaseException:
            if turn.done() and not turn.cancelled():  # it was this work's turn
                self._end(caller)
            raise
        # The thread is free when the work ends, which is later than a client that closes the connection.
        future = asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        future.add_done_callback(lambda _: self._end(caller))
        return await asyncio.shield(future)

    def _give_turns(self) -> None:
        """Let work begin while threads are free."""
        while self._free:
            caller = next((name for name in self._waiting if self._running[name] < self._per_caller), None)
            if caller is None:
                return
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns  # behind the others
            if not turn.done():  # else cancelled
                self._free -= 1
                self._running[caller] += 1
                turn.set_result(None)

    def _end(self, caller: str) -> None:
        self._free += 1
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]
        self._give_turns()

    def close(self) -> None:
        """Finish the work in progress and end the threads."""
        self._threads.shutdown()
