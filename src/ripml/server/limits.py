"""Limits per caller: rates, and shares of the slots and the bytes that requests hold.

A request holds a slot, the bytes of its body and the bytes of its response from its first byte to the last byte of its
response. A caller is a key, or an address where a request has no valid key.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ripml.server.access import AccessControl
from ripml.server.problems import Problem, unavailable
from ripml.server.settings import Settings

__all__ = ["Admission", "RateLimiter", "Shares"]

_MAX_CALLERS = 10_000  # whose rates are remembered
_PIECE = 65_536  # bytes of a response that are handed to uvicorn at once: the size at which its flow control begins
_UNLIMITED_PATHS = frozenset({"/health", "/ready", "/"})
_UNLIMITED_PREFIX = "/page/"


class RateLimiter:
    """A token bucket per caller: `rate` requests per second, and at once the number of two seconds.

    >>> limiter = RateLimiter(1.0)
    >>> [limiter.wait("ana", now) for now in (0.0, 0.0, 0.0, 1.0)]
    [0.0, 0.0, 1.0, 0.0]
    """

    def __init__(self, rate: float) -> None:
        self.rate, self._capacity = rate, max(1.0, 2 * rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # caller → tokens, time of the last call

    def wait(self, caller: str, now: float) -> float:
        """The seconds until the caller may send a request; 0 takes a token."""
        tokens, last = self._buckets.pop(caller, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - last) * self.rate)
        allowed = tokens >= 1
        self._buckets[caller] = tokens - allowed, now
        if len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self.rate


class Shares:
    """An amount that callers share: nobody may hold more than is free for others.

    So one caller gets at most a half, two get a third each, and there is something left for the next one. A caller with
    a single request may hold more than that, as long as anything is free.

    >>> slots = Shares(8)
    >>> [slots.take("ana", 1) for _ in range(5)], slots.take("bo", 1)
    ([True, True, True, True, False], True)
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.total = limit, 0
        self._held: dict[str, int] = {}  # by caller

    def take(self, caller: str, amount: int, for_request: int = 0) -> bool:
        """Whether a caller, whose request holds `for_request` already, may hold more by this amount; it then does."""
        held, free = self._held.get(caller, 0), self.limit - self.total
        if held + amount > free and (held > for_request or free <= 0):
            return False
        self._held[caller] = held + amount
        self.total += amount
        return True

    def give_back(self, caller: str, amount: int) -> None:
        """End to hold an amount."""
        if not amount:
            return
        self.total -= amount
        self._held[caller] -= amount
        if not self._held[caller]:
            del self._held[caller]


class Admission:
    """Middleware that identifies the caller and refuses requests beyond its rate, slots or bytes.

    uvicorn's `limit_concurrency` would count idle connections and refuse health checks too. Health checks and the page
    are exempt.
    """

    def __init__(
        self, app: ASGIApp, access: AccessControl, settings: Settings, requests: Shares, in_flight: Shares
    ) -> None:
        self.app, self.access, self.requests, self.in_flight = app, access, requests, in_flight
        self.limiter = RateLimiter(settings.requests_per_second) if settings.requests_per_second else None
        self.read_seconds = settings.read_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["path"] in _UNLIMITED_PATHS or scope["path"].startswith(_UNLIMITED_PREFIX):
            return await self.app(scope, receive, send)
        caller = self.access.identify(scope)
        scope.setdefault("state", {})["caller"] = caller
        if problem := self._refusal(caller.name):
            return await problem.response()(scope, receive, send)
        request = _Admitted(self, caller.name, scope, receive, send)
        try:
            await self.app(scope, request.receive, request.send)
        finally:
            self.in_flight.give_back(caller.name, request.held)
            self.requests.give_back(caller.name, 1)

    def _refusal(self, caller: str) -> Problem | None:
        """The reason to refuse a request; None takes a slot."""
        if self.limiter is not None and (wait := self.limiter.wait(caller, time.monotonic())):
            seconds = str(int(wait) + 1)
            detail = f"more than {self.limiter.rate:g} requests per second; try again in {seconds} s."
            return Problem(429, detail, {"Retry-After": seconds})
        if not self.requests.take(caller, 1):
            return unavailable("too many requests of this caller or in all are in progress; try again.")
        return None


class _Admitted:
    """A request in progress: counts the bytes of its body and of its response."""

    def __init__(self, admission: Admission, caller: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._limits, self._caller, self._scope = admission, caller, scope
        self._receive, self._send = receive, send
        self._start: Message | None = None  # kept until the size of the response is known
        self._refused = False
        self.held = 0  # bytes

    def _take(self, amount: int) -> bool:
        taken = self._limits.in_flight.take(self._caller, amount, self.held)
        self.held += amount if taken else 0
        return taken

    async def receive(self) -> Message:
        """The next message from the client."""
        message = await self._receive()
        body = message.get("body")
        if body and not self._take(len(body)):
            raise unavailable("too many bytes of this caller or in all are in progress; try again.", close=True)
        return message

    async def send(self, message: Message) -> None:
        """Send a message: a large body in pieces, so that the client has read all but the last when this returns."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            await self._begin(len(body))
        if self._refused:
            return
        if len(body) <= _PIECE and not more:
            await self._send(message)
            return
        for begin in range(0, len(body), _PIECE):
            await self._send_piece(body[begin : begin + _PIECE], True)
        if not more:
            await self._send_piece(b"", False)

    async def _begin(self, size: int) -> None:
        """Send the status and the headers, or refuse a response that is too large."""
        start, self._start = self._start, None
        self._refused = size > _PIECE and not self._take(size)
        if self._refused:
            problem = unavailable("too many bytes of responses are waiting to be read; read them and try again.")
            await problem.response()(self._scope, self._receive, self._send)
        elif start is not None:
            await self._send(start)

    async def _send_piece(self, body: bytes, more: bool) -> None:
        piece = {"type": "http.response.body", "body": body, "more_body": more}
        try:
            await asyncio.wait_for(self._send(piece), self._limits.read_seconds)
        except asyncio.TimeoutError:
            raise ClientDisconnect from None  # uvicorn closes the connection of a response that is not complete
