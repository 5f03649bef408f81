"""The workers of a Dask client: sending tasks, fetching results, and the threads and memory of one task.

A task uses one thread, because a worker runs one task per thread. Results report their size, so that Dask moves them to
disk in time.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.base.parallel import blocks, on_this_thread

__all__ = ["Sized", "Workers", "alone", "connected", "received", "reused_memory", "size_of", "title"]

Result = TypeVar("Result")

_FAN_IN = 8  # results that one task combines
_RETRIES = 2  # for errors such as those of a network file system; Dask itself counts the deaths of workers
_SENT_BYTES = 1 << 22  # largest array in one task: larger tasks slow the scheduler down
_BUFFER_BYTES = 1 << 25  # the same for arrays that are sent in each step of a solver: to join pieces takes longer
_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h
_KEPT_BYTES, _LARGEST_BYTES = 1 << 28, 1 << 25  # free memory to keep, and the largest array that may come from it


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """A client, or one of the scheduler at an address until the block ends; all workers have this version of ripml."""
    from ripml.distributed.partitions import dask_modules

    _, distributed = dask_modules()
    if not isinstance(client, str):
        _check_versions(client)
        yield client
        return
    try:
        opened = distributed.Client(client)
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"no Dask scheduler answers at {client!r} ({error}); start one, or check the address."
        ) from error
    with opened:
        _check_versions(opened)
        yield opened


def _check_versions(client: Any) -> None:
    """Raise `ParameterError` if a worker has no ripml, or another version of it."""
    versions = client.get_versions(packages=["ripml"])
    mine = versions["client"]["packages"]["ripml"]
    for address, of_worker in sorted(versions["workers"].items()):
        if (found := of_worker["packages"].get("ripml")) != mine:
            raise ParameterError(
                f"the worker {address} has {f'ripml {found}' if found else 'no ripml'}, and this process has ripml "
                f"{mine}; install the same version on all workers, and restart them."
            )


class Workers:
    """Sends tasks to the workers of a client. Keys are unique, so that no result of another fit is reused."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def computed(self, delayed: Sequence[Any]) -> list[Any]:
        """The futures of delayed objects."""
        futures: list[Any] = self._client.compute(list(delayed), retries=_RETRIES)
        return futures

    def one(self, function: Callable[..., Any], *arguments: Any, name: str | None = None) -> Any:
        """The future of one task; dashboards show its `name`, or that of the function."""
        key = f"{name or title(function)}-{uuid.uuid4()}"
        return self._client.submit(function, *arguments, key=key, pure=False, retries=_RETRIES)

    def each(self, function: Callable[..., Any], *arguments: Sequence[Any], name: str | None = None) -> list[Any]:
        """One task for each position of the argument lists, as `map` does."""
        key = name or title(function)
        futures: list[Any] = self._client.map(function, *arguments, key=key, pure=False, retries=_RETRIES)
        return futures

    def together(
        self, function: Callable[[Sequence[Any]], Any], futures: Sequence[Any], name: str | None = None
    ) -> Any:
        """Reduce results by `function` in a tree, in their order, so that rounding does not depend on timing."""
        while True:
            futures = self.each(function, [list(futures[block]) for block in blocks(len(futures), _FAN_IN)], name=name)
            if len(futures) == 1:
                return futures[0]

    def sent(self, array: NDArray[Any], most: int = _SENT_BYTES) -> Any:
        """An array of the client as a future. Its tasks hold the data, so it survives the death of a worker."""
        height = max(1, most * len(array) // max(1, array.nbytes))
        pieces = [self.one(_identity, array[block]) for block in blocks(len(array), height) or [slice(0)]]
        return pieces[0] if len(pieces) == 1 else self.one(np.concatenate, pieces)

    def sent_object(self, value: Any) -> list[Any]:
        """An object of the client, which may hold large arrays, as futures of its pickle and of its arrays."""
        from distributed.protocol.pickle import dumps

        buffers: list[Any] = []
        head = dumps(value, buffer_callback=buffers.append)
        return [self.sent(np.frombuffer(part, np.uint8), _BUFFER_BYTES) for part in (head, *buffers)]

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


def received(parts: Sequence[NDArray[np.uint8]]) -> Any:
    """The object that `Workers.sent_object` sent; its arrays are those of `parts`, which tasks share.

    >>> received([np.frombuffer(pickle.dumps({"ridge": 1.0}), np.uint8)])
    {'ridge': 1.0}
    """
    head, *buffers = parts
    return pickle.loads(head.data, buffers=buffers)


def title(function: Any) -> str:
    """The name of a function, in words.

    >>> title(functools.partial(size_of))
    'size of'
    """
    name: str = getattr(function, "func", function).__name__
    return name.strip("_").replace("_", " ")


def alone(function: Callable[..., Result]) -> Callable[..., Result]:
    """Run a task on one thread and with memory that is reused."""

    @functools.wraps(function)
    def task(*args: Any, **options: Any) -> Result:
        with on_this_thread(), reused_memory():
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
