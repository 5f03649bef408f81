"""The workers of a Dask client: sending tasks, fetching results, and the threads and memory of one task.

A task uses one thread, because a worker runs one task per thread. Results report their size, so that Dask moves them to
disk in time.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.parallel import blocks, one_blas_thread

__all__ = ["Sized", "Workers", "alone", "reused_memory", "size_of"]

Result = TypeVar("Result")

_FAN_IN = 8  # results that one task combines
_RETRIES = 2  # for errors such as those of a network file system; Dask itself counts the deaths of workers
_SENT_BYTES = 1 << 22  # largest array in one task: larger tasks slow the scheduler down
_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h
_KEPT_BYTES, _LARGEST_BYTES = 1 << 28, 1 << 25  # free memory to keep, and the largest array that may come from it


class Workers:
    """Sends tasks to the workers of a client. Keys are unique, so that no result of another fit is reused."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def computed(self, delayed: Sequence[Any]) -> list[Any]:
        """The futures of delayed objects."""
        futures: list[Any] = self._client.compute(list(delayed), retries=_RETRIES)
        return futures

    def one(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The future of one task."""
        return self._client.submit(function, *arguments, pure=False, retries=_RETRIES)

    def each(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """One task for each position of the argument lists, as `map` does."""
        futures: list[Any] = self._client.map(function, *arguments, pure=False, retries=_RETRIES)
        return futures

    def together(self, function: Callable[[Sequence[Any]], Any], futures: Sequence[Any]) -> Any:
        """Reduce results by `function` in a tree, in their order, so that rounding does not depend on timing."""
        while True:
            futures = self.each(function, [list(futures[block]) for block in blocks(len(futures), _FAN_IN)])
            if len(futures) == 1:
                return futures[0]

    def sent(self, array: NDArray[Any]) -> Any:
        """An array of the client as a future. Its tasks hold the data, so it survives the death of a worker."""
        height = max(1, _SENT_BYTES * len(array) // max(1, array.nbytes))
        pieces = [self.one(_identity, array[block]) for block in blocks(len(array), height)]
        return pieces[0] if len(pieces) == 1 else self.one(np.concatenate, pieces)

    def fetched(self, futures: Any) -> Any:
        """Results, copied to the client."""
        return self._client.gather(futures)

    def memory(self) -> tuple[float, int, int]:
        """Bytes (∞ without a limit) and threads of the worker with the least memory per thread; threads of all."""
        workers = list(self._client.scheduler_info(n_workers=-1)["workers"].values())
        limits = [(worker["memory_limit"] or np.inf, worker["nthreads"]) for worker in workers] or [(np.inf, 1)]
        limit, threads = min(limits, key=lambda pair: pair[0] / pair[1])
        return float(limit), int(threads), sum(n for _, n in limits)

    def run(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run `function` on every worker that is alive."""
        with suppress(OSError):  # the scheduler is gone: the error that says so is being raised already
            self._client.run(function, *arguments, on_error="ignore")


def _identity(value: Any) -> Any:
    return value


def alone(function: Callable[..., Result]) -> Callable[..., Result]:
    """Run a task with BLAS on one thread and with memory that is reused."""

    @functools.wraps(function)
    def task(*args: Any, **options: Any) -> Result:
        with one_blas_thread(), reused_memory():
            return function(*args, **options)

    return task


@contextmanager
def reused_memory() -> Iterator[None]:
    """Let the process keep freed memory inside the block, and restore malloc's settings afterwards.

    Dask starts workers with MALLOC_TRIM_THRESHOLD_ = 64 KB, so that freed memory goes back to the system at once. As a
    side effect malloc maps every array above 128 KB again, page by page. Work in blocks that allocate arrays of the
    same size, as columns of Phi do, then takes up to six times as long.

    >>> with reused_memory():
    ...     pass
    """
    trim = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if trim.isdigit() and os.name == "posix" else None
    if mallopt is None:
        yield
        return
    mmap = os.environ.get("MALLOC_MMAP_THRESHOLD_", "")
    mallopt(_TRIM, _KEPT_BYTES)
    mallopt(_MMAP, _LARGEST_BYTES)
    try:
        yield
    finally:
        mallopt(_TRIM, int(trim))
        mallopt(_MMAP, int(mmap) if mmap.isdigit() else 1 << 17)


def size_of(result: Any) -> int:
    """Bytes of the arrays in a result."""
    if scipy.sparse.issparse(result):
        return sum(size_of(array) for array in (result.data, result.indices, result.indptr))
    if isinstance(result, (list, tuple)):
        return sum(map(size_of, result))
    return result.__sizeof__() if isinstance(result, Sized) else int(getattr(result, "nbytes", 0))


class Sized:
    """A result that reports the memory of its arrays to Dask."""

    def __sizeof__(self) -> int:
        return sum(size_of(value) for value in vars(self).values())
