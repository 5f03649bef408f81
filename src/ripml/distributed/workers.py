"""The workers of a client: tasks sent to them, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.parallel import blocks
from ripml.distributed import passing, tasks

__all__ = ["Workers"]

_FAN_IN = 8  # results that one task puts together
_RETRIES = 2  # of a task that fails, as a file system may; workers that die are counted by Dask
_SENT_BYTES = 1 << 22  # of an array in one task: a graph that holds more is a burden to the scheduler


class Workers:
    """Tasks have names of their own, so that nothing of another fit is taken for theirs."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def computed(self, delayed: Sequence[Any]) -> list[Any]:
        """Futures of delayed objects."""
        futures: list[Any] = self._client.compute(list(delayed), retries=_RETRIES)
        return futures

    def one(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A task."""
        return self._client.submit(function, *arguments, pure=False, retries=_RETRIES)

    def each(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """A task for the first members of all arguments, one for the second, and so on."""
        futures: list[Any] = self._client.map(function, *arguments, pure=False, retries=_RETRIES)
        return futures

    def together(self, function: Callable[[Sequence[Any]], Any], futures: Sequence[Any]) -> Any:
        """`function` of all results, a few at a time and in their order, so that sums do not depend on chance."""
        while True:
            futures = self.each(function, [list(futures[few]) for few in blocks(len(futures), _FAN_IN)])
            if len(futures) == 1:
                return futures[0]

    def sent(self, array: NDArray[Any]) -> Any:
        """An array of the client; the scheduler keeps it, so it does not die with a worker."""
        height = max(1, _SENT_BYTES * len(array) // max(1, array.nbytes))
        pieces = [self.one(tasks.given, array[few]) for few in blocks(len(array), height)]
        return pieces[0] if len(pieces) == 1 else self.one(np.concatenate, pieces)

    def fetched(self, futures: Any) -> Any:
        """Results on the client."""
        return self._client.gather(futures)

    def memory(self) -> tuple[float, int, int]:
        """Bytes of the worker that has least for a thread, ∞ if there is no limit, its threads, and those of all."""
        workers = list(self._client.scheduler_info(n_workers=-1)["workers"].values())
        bounded = [(worker["memory_limit"] or np.inf, worker["nthreads"]) for worker in workers] or [(np.inf, 1)]
        limit, threads = min(bounded, key=lambda pair: pair[0] / pair[1])
        return float(limit), int(threads), sum(n for _, n in bounded)

    def forget(self, token: str) -> None:
        """Let the workers drop what they keep for a fit beside results."""
        with suppress(OSError):  # where the scheduler is gone, so are they, and its own error is on the way
            self._client.run(passing.forget, token, on_error="ignore")
