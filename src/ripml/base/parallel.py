"""Parallel work on threads, and limits on memory.

Work is divided into blocks, with BLAS on one thread inside each, so that results do not depend on the number of
threads. Factorisations and products of whole matrices are left to BLAS and its setting of threads.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from ripml.base.errors import ConcurrentChangeError, MemoryLimitError, ParameterError
from ripml.base.platform import after_fork_in_child, available_memory, usable_cores

__all__ = [
    "available_memory",
    "blocks",
    "exclusive",
    "map_blocks",
    "on_this_thread",
    "one_blas_thread",
    "require_memory",
    "thread_count",
]

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_changing: dict[int, int] = {}  # the id of an object that is being changed, and of the thread that changes it
_changing_lock = threading.Lock()


def thread_count(n_jobs: int | None) -> int:
    """Number of threads for `n_jobs`: None or -1 is every core this process may use, -2 all but one, and so on.

    >>> thread_count(3)
    3
    """
    cores = usable_cores()
    if n_jobs is None:
        return cores
    if isinstance(n_jobs, bool) or not hasattr(n_jobs, "__index__") or n_jobs == 0:
        raise ParameterError(
            f"`n_jobs` must be None, an integer ≥ 1, or negative to count from all cores; got {n_jobs!r}."
        )
    return int(n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs))


def blocks(n: int, size: int) -> list[slice]:
    """The consecutive slices of at most `size` that cover range(n).

    >>> blocks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def map_blocks(function: Callable[[Item], Result], items: Iterable[Item], n_jobs: int | None = None) -> list[Result]:
    """`[function(item) for item in items]` on threads, with BLAS on one thread inside each call.

    NumPy, SciPy's sparse products and BLAS release the interpreter lock, so threads are enough. Threads are kept
    between calls, as starting one takes longer than a small block; a nested call runs on the thread of its block.
    """
    items = list(items)
    threads = 1 if getattr(_this_thread, "busy", False) else min(thread_count(n_jobs), len(items))
    with one_blas_thread():
        if threads <= 1:
            return [function(item) for item in items]
        results: list[Any] = [None] * len(items)
        numbers, failed = iter(range(len(items))), threading.Event()

        def work() -> None:
            _this_thread.busy = True
            try:
                while not failed.is_set():
                    with _numbering:
                        number = next(numbers, None)
                    if number is None:
                        return
                    results[number] = function(items[number])
            except BaseException:
                failed.set()
                raise
            finally:
                _this_thread.busy = False

        others = [_pool(threads - 1).submit(work) for _ in range(threads - 1)]
        try:
            work()
        finally:
            others = [other for other in others if not other.cancel()]  # do not wait for those that did not start
            wait(others)
        for other in others:
            other.result()
        return results


@contextmanager
def on_this_thread() -> Iterator[None]:
    """`map_blocks` on this thread alone, and BLAS on one."""
    busy, _this_thread.busy = getattr(_this_thread, "busy", False), True
    try:
        with one_blas_thread():
            yield
    finally:
        _this_thread.busy = busy


_this_thread = threading.local()
_numbering = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread. The limit holds for the whole process until the last `with` block that uses it ends.

    Put many small calls into one block: setting the limit for each call would cost more than the call.
    """
    with _limit.lock:
        _limit.users += 1
        if _limit.users == 1:
            _let_this_thread_control()
            _limit.lifted = _blas().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _limit.lock:
            _limit.users -= 1
            if _limit.users == 0:
                _let_this_thread_control()
                _limit.lifted.restore_original_limits()
                _let_this_thread_control()  # and any other thread after it


def _let_this_thread_control() -> None:
    """threadpoolctl ≥ 3.7 lets only the first thread that set a limit set others; here any thread may."""
    from threadpoolctl import OpenBLASController

    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


class _Limit:
    """The number of `with` blocks that keep BLAS on one thread, and the limit to lift when the last one ends."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock, self.users, self.lifted = threading.Lock(), 0, cast(Any, None)


_limit = _Limit()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


# A forked child has no threads of its parent.
after_fork_in_child(_pool.cache_clear)
after_fork_in_child(_limit.reset)


@functools.cache
def _blas() -> Any:
    # SciPy brings another BLAS; it must be loaded before the controller looks for libraries.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def require_memory(needed: float, what: str, remedy: str) -> None:
    """Raise `MemoryLimitError` if the machine does not have `needed` bytes free.

    >>> require_memory(1e15, "XᵀX for d = 11,000,000", "use solver='cg'")
    Traceback (most recent call last):
    ripml.base.errors.MemoryLimitError: XᵀX for d = 11,000,000 would need 1,000,000 GB and ...; use solver='cg'.
    """
    free = available_memory()
    if needed > free:
        raise MemoryLimitError(f"{what} would need {_gigabytes(needed)} and {_gigabytes(free)} are free; {remedy}.")


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size < 1e11 else f"{size / 1e9:,.0f} GB"


def exclusive(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A method that changes its object: `ConcurrentChangeError` while another thread is in one of the same object.

    Of two changes that start from the same version, the one that ends first would be lost. An object holds nothing for
    this, so that it can be copied and pickled; methods that read are free.
    """

    @functools.wraps(method)
    def alone(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        changed, thread = args[0], threading.get_ident()
        with _changing_lock:
            nested = _changing.get(id(changed)) == thread  # as `partial_fit`, of a model that was never fitted, fits
            if _changing.setdefault(id(changed), thread) != thread:
                raise ConcurrentChangeError(
                    f"another thread is changing this {type(changed).__name__}, and `{method.__name__}` would undo "
                    "that; make one change after the other, or change a copy (copy.copy)."
                )
        try:
            return method(*args, **kwargs)
        finally:
            if not nested:
                with _changing_lock:
                    del _changing[id(changed)]

    return alone
