"""Jobs: work on a store that a request starts and that runs in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from ripml.server.problems import problem_of
from ripml.server.schemas import JobStatus

__all__ = ["Job"]


class Job:
    """Work that runs in a thread of its own, at most once at a time; `result` is that of the last success.

    >>> job = Job("example", lambda actor: f"done for {actor}")
    >>> job.begin("ana").status
    'running'
    >>> job.wait()
    >>> job.status.status, job.result
    ('idle', 'done for ana')
    """

    def __init__(
        self, name: str, work: Callable[[str | None], Any], ended: Callable[[str], None] = lambda outcome: None
    ) -> None:
        self._name, self._work, self._ended = name, work, ended
        self._thread: threading.Thread | None = None
        self.status = JobStatus(status="idle")
        self.result: Any = None

    def begin(self, actor: str | None) -> JobStatus:
        """Start the work, unless it is running. Called by the event loop only."""
        if self.status.status != "running":
            self.status = JobStatus(status="running", last=self.status.last)
            self._thread = threading.Thread(target=self._run, args=[actor], name=f"ripml {self._name}", daemon=True)
            self._thread.start()
        return JobStatus(status="running")

    def wait(self) -> None:
        """Wait until the work has ended."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, actor: str | None) -> None:
        try:
            self.result = self._work(actor)
        except Exception as error:
            self.status = JobStatus(status="failed", detail=problem_of(error).detail, last=self.status.last)
            self._ended("failed")
        else:
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            self.status = JobStatus(status="idle", last=now)
            self._ended("done")
