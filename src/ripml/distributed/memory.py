"""What a task does with the memory and the threads of its worker.

A task has one thread, since a worker runs as many tasks as it has threads. Results tell Dask how large they are, so
that they are moved to disk in time.

Dask starts workers with MALLOC_TRIM_THRESHOLD_ = 64 KB, so that memory goes back to the machine as soon as it is free.
It also makes the C library ask the machine for every array above 128 KB anew, page by page. Work that goes in blocks,
each with arrays like those of the block before, takes up to six times as long; columns of Phi do.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import scipy.sparse

from ripml.base.parallel import one_blas_thread

__all__ = ["Sized", "alone", "reused_memory", "size_of"]

Result = TypeVar("Result")

_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_KEPT_BYTES, _LARGEST_BYTES = 1 << 28, 1 << 25  # what may stay free, and of arrays up to which size


@contextmanager
def reused_memory() -> Iterator[None]:
    """Let free memory stay with the process meanwhile, if Dask has it returned at once; then it is as before.

    >>> with reused_memory():
    ...     pass
    """
    before = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if before.isdigit() and os.name == "posix" else None
    if mallopt is None:
        yield
        return
    large = os.environ.get("MALLOC_MMAP_THRESHOLD_", "")
    mallopt(_TRIM, _KEPT_BYTES)
    mallopt(_MMAP, _LARGEST_BYTES)
    try:
        yield
    finally:
        mallopt(_TRIM, int(before))
        mallopt(_MMAP, int(large) if large.isdigit() else 1 << 17)


def alone(function: Callable[..., Result]) -> Callable[..., Result]:
    """The task with BLAS on one thread and memory that it can use again."""

    @functools.wraps(function)
    def task(*args: Any, **options: Any) -> Result:
        with one_blas_thread(), reused_memory():
            return function(*args, **options)

    return task


def size_of(thing: Any) -> int:
    """Bytes of the arrays in a result."""
    if scipy.sparse.issparse(thing):
        return sum(size_of(array) for array in (thing.data, thing.indices, thing.indptr))
    if isinstance(thing, (list, tuple)):
        return sum(map(size_of, thing))
    return thing.__sizeof__() if isinstance(thing, Sized) else int(getattr(thing, "nbytes", 0))


class Sized:
    """Tells Dask how much memory it takes, so that it is moved to disk in time."""

    def __sizeof__(self) -> int:
        return sum(size_of(value) for value in vars(self).values())
