"""HTTP as it comes over the line: heads of a bounded size in a bounded time, and answers that somebody takes.

uvicorn reads a head however long it is and takes, and waits for however long an answer is not taken. Here

    a head      has 64 KB at most, or is answered 431, and 20 s from its first byte on, or the connection is closed
    an answer   that waits in memory must shrink by 256 KB in 30 s, or to nothing, or the connection is closed

The first head has 20 s from the connection on. Between requests a connection has uvicorn's own limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from ripml.server.problems import Problem

__all__ = ["Protocol"]

_HEAD_SECONDS = 20.0
_HEAD_BYTES = 65_536
_TAKEN_SECONDS = 30.0
_TAKEN_BYTES = 262_144
_CLOSE = {"Connection": "close"}
_NO_HTTP = Problem(400, "this is no HTTP request.", _CLOSE)
_LONG_HEAD = Problem(431, f"the headers are larger than {_HEAD_BYTES:,} bytes.", _CLOSE)


class _Timer:
    """A call that is made after some seconds, unless it is stopped before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop, self._call = loop, call
        self._handle: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return self._handle is not None

    def start(self, seconds: float) -> None:
        self.stop()
        self._handle = self._loop.call_later(seconds, self._ring)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._call()


class Protocol(HttpToolsProtocol):
    """A connection that neither a slow nor a talkative client can keep for itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0  # that came since the last request, or piece of a body, was there
        self._head_timer = _Timer(self.loop, self._head_is_late)
        self._refusal = _NO_HTTP  # of what the parser does not take
        self._waiting_bytes = 0  # of answers, when they were last looked at
        self._waiting_timer = _Timer(self.loop, self._look)
        self._cycles: deque[RequestResponseCycle] = deque()  # of requests that may not be answered yet, oldest first

    # ----------------------------------------------------------------------------------------------------- connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._head_timer.start(_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, for all of its requests; uvicorn tells but the last of them."""
        self._disconnect()
        self._head_timer.stop()
        self._waiting_timer.stop()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops."""
        super().shutdown()
        self._watch_if_closing()

    def timeout_keep_alive_handler(self) -> None:
        """No further request came."""
        super().timeout_keep_alive_handler()
        self._watch_if_closing()

    def _disconnect(self) -> None:
        for cycle in self._under_way():
            cycle.disconnected = True
            cycle.message_event.set()

    def _under_way(self) -> deque[RequestResponseCycle]:
        """Requests that are not answered yet, oldest first."""
        while self._cycles and self._cycles[0].response_complete:
            self._cycles.popleft()
        return self._cycles

    # ---------------------------------------------------------------------------------------------------------- heads

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_bytes > _HEAD_BYTES:
            self._refuse(_LONG_HEAD)
        elif not (self._head_timer or self.timeout_keep_alive_task or self._under_way()):
            # An empty line, or a body that nobody asked for: uvicorn would take it for a request, and wait.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_timer.start(_HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        """A head is there."""
        self._head_timer.stop()
        self._head_bytes = 0
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > _HEAD_BYTES:
            self._refusal = _LONG_HEAD
            raise ValueError  # which stops the parser
        super().on_headers_complete()
        self._under_way().append(self.cycle)

    def on_body(self, body: bytes) -> None:
        """A piece of a body is there."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is there."""
        self._head_bytes = 0
        super().on_message_complete()

    def _head_is_late(self) -> None:
        if self._under_way():  # of a request that came before its turn
            self._head_timer.start(_HEAD_SECONDS)
        else:
            self._close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser did not take."""
        self._refuse(self._refusal)

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem and close; where it would be taken for the answer to a request before, let that come
        first and be the last."""
        cycles = self._under_way()
        if cycles and not cycles[-1].more_body:
            cycles[-1].keep_alive = False
            self.flow.pause_reading()
            return
        if not cycles or (len(cycles) == 1 and cycles[0].more_body and not cycles[0].response_started):
            answer = problem.response()
            lines = [*(name + b": " + value for name, value in answer.raw_headers), b"", bytes(answer.body)]
            self.transport.write(STATUS_LINE[problem.status_code] + b"\r\n".join(lines))
        self._disconnect()
        self._close()

    # -------------------------------------------------------------------------------------------------------- answers

    def pause_writing(self) -> None:
        """More of an answer is there than is taken."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """It is taken."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._waiting_timer.stop()

    def on_response_complete(self) -> None:
        """A request is answered."""
        super().on_response_complete()
        self._watch_if_closing()

    def _close(self) -> None:
        self.transport.close()
        self._watch()

    def _watch_if_closing(self) -> None:
        if self.transport.is_closing():  # when all is taken
            self._watch()

    def _watch(self) -> None:
        if not self._waiting_timer and (left := self.transport.get_write_buffer_size()):
            self._waiting_bytes = left
            self._waiting_timer.start(_TAKEN_SECONDS)

    def _look(self) -> None:
        """Nothing is written while this waits, so that what waits only shrinks."""
        if self.transport.get_write_buffer_size() > max(0, self._waiting_bytes - _TAKEN_BYTES):
            self.transport.abort()
        else:
            self._watch()
