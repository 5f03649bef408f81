"""Several processes that serve the same stores, read-only, at one port: they share the memory of the mapped models.

Each worker is a whole server with a socket of its own, and Linux divides the connections among these sockets. Limits,
rates and metrics are those of each worker. If one ends, all end, so that a service manager starts them again together.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from ripml.base.errors import ParameterError, RipmlError
from ripml.base.platform import end_with_parent

__all__ = ["is_worker"]


def is_worker(n_workers: int, stopped_by: Sequence[signal.Signals]) -> bool:
    """Fork workers and wait until they have ended: True in each of them, at once, and False in the parent.

    A signal of `stopped_by` to the parent stops them. RipmlError if a worker ends before that.
    """
    if sys.platform != "linux":
        raise ParameterError("several workers need Linux; run several servers at different ports instead.")
    workers: set[int] = set()
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)

    handlers = {number: signal.signal(number, stop) for number in stopped_by}
    signal.pthread_sigmask(signal.SIG_BLOCK, stopped_by)  # no worker may miss a signal that comes now
    failed = None
    try:
        for _ in range(n_workers):
            worker = os.fork()
            if not worker:
                end_with_parent(signal.SIGTERM)
                return True
            workers.add(worker)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stopped_by)
        while workers:
            worker, status = os.wait()
            workers.discard(worker)
            if not stopping:
                failed = os.waitstatus_to_exitcode(status)
                stop()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stopped_by)
    if failed is not None:
        raise RipmlError(f"a worker ended with code {failed}, so the others were stopped.")
    return False
