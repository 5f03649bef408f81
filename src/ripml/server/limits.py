"""What a request must be before it is read: within the limits of size, time, number and rate, from who may send it.

The *gate* stands before everything: is the server meant (Host), may that page call it (Origin), is there room? The
*guard* stands before each route, since it needs to know which: whose key is it, how often did they ask, and is the body
JSON of a size that is accepted? A body is read only when all else is in order.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ripml.server.keys import Key, KeyRing
from ripml.server.metrics import Metrics
from ripml.server.problems import Problem, busy, unexpected
from ripml.server.settings import Settings

__all__ = ["Gate", "GuardedRoute", "Rate", "reads", "writes"]

_ALWAYS = frozenset({"/health", "/ready", "/"})  # answered however busy the server is, and so are the page's files
_PAGE_FILES = "/page/"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CALLERS = 10_000  # whose rates are remembered
_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, PUT, DELETE",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}
_EVERYBODY = Key("everybody", "write", "", "")  # where there are no keys


class Rate:
    """So many requests a second and caller, of which as many may come at once as in two seconds.

    >>> rate = Rate(1.0)
    >>> rate.wait("ana", 0.0), rate.wait("ana", 0.0), rate.wait("ana", 0.0), rate.wait("ana", 1.0)
    (0.0, 0.0, 1.0, 0.0)
    """

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(1.0, 2 * rate)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, when

    def wait(self, caller: str, now: float) -> float:
        """The seconds until a caller may ask; 0 counts as a request."""
        left, before = self._left.pop(caller, (self._most, now))
        left = min(self._most, left + (now - before) * self._rate)
        allowed = left >= 1
        self._left[caller] = left - allowed, now
        if len(self._left) > _CALLERS:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate


class Gate:
    """The outermost layer of the app: refuses what is not meant for it, counts, times, and lets no error through."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        names = {"localhost", settings.host, socket.gethostname(), *settings.allowed_hosts}
        self._hosts = frozenset(name.lower() for name in names)
        self._in_flight = 0  # but for those that are always answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        shared = origin if origin in self._settings.origins else None
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1")  # see `DocumentId`
        counts = scope["path"] not in _ALWAYS and not scope["path"].startswith(_PAGE_FILES)
        self._count(counts)

        async def answer(message: Message) -> None:
            nonlocal status, counts
            if message["type"] == "http.response.start":
                status = message["status"]
                self._count(-counts)  # now: a client that does not take its answer keeps nobody else out
                counts = False
                extra = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
                if shared:
                    extra |= {"access-control-allow-origin": shared, "vary": "Origin"}
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in extra.items())]
            await send(message)

        try:
            if (refusal := self._refusal(scope, headers, origin, shared, counts)) is not None:
                await refusal(scope, receive, answer)
            else:
                await self._app(scope, receive, answer)
        except ClientDisconnect:
            status = status or 499
        except Exception as error:
            problem = unexpected(error)
            if not status:
                await problem.response()(scope, receive, answer)
        finally:
            self._count(-counts)
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.answered(scope["method"], route, status, time.perf_counter() - began)

    def _count(self, requests: int) -> None:
        self._in_flight += requests
        self._metrics.in_flight.set(self._in_flight)

    def _refusal(
        self, scope: Scope, headers: dict[bytes, bytes], origin: str, shared: str | None, counts: bool
    ) -> Response | None:
        """The answer to a request that goes no further."""
        method, host = scope["method"], headers.get(b"host", b"").decode("latin-1")
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            return Problem(400, "a request names one host; got several.").response()
        if not self._meant(host):
            remedy = "start the server with --allowed-host NAME if it is right"
            return Problem(421, f"this server does not answer for host {host[:100]!r}; {remedy}.").response()
        if shared and method == "OPTIONS" and b"access-control-request-method" in headers:
            return Response(None, 204, _PREFLIGHT)
        if origin and not shared and method not in _SAFE and not _is_own(origin, host):
            return Problem(403, f"pages of {origin[:100]!r} may not call this server; --origin allows it.").response()
        if counts and self._in_flight > self._settings.max_requests:
            return busy(f"the server is busy with {self._settings.max_requests:,} requests; try again.").response()
        return None

    def _meant(self, host: str) -> bool:
        """Whether a Host header names this server. A page that lets its own name point here (DNS rebinding) needs a
        name, so addresses are right."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _is_own(origin: str, host: str) -> bool:
    """Whether a page comes from the server that it calls."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def reads(function: Any) -> Any:
    """Mark a route's function: a key that may read is enough."""
    function.role = "read"
    return function


def writes(function: Any) -> Any:
    """Mark a route's function: a key that may write is needed."""
    function.role = "write"
    return function


class GuardedRoute(APIRoute):
    """A route behind the guard; what its function is marked with says who may call it."""

    def get_route_handler(self) -> Handler:
        """The handler of the route, behind the guard."""
        handle, role = super().get_route_handler(), getattr(self.endpoint, "role", None)
        if role is None:
            return handle
        has_body = self.body_field is not None

        async def guarded(request: Request) -> Response:
            guard: Guard = request.app.state.guard
            request.state.key = guard.admit(request, role)
            if not has_body:
                return await handle(request)
            return await handle(_Received(request, await guard.body(request)))

        return guarded


class Guard:
    """Keys, rates and bodies of one app."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = None if settings.keys is None else KeyRing(settings.keys)
        self._rate = Rate(settings.requests_a_second) if settings.requests_a_second else None

    def admit(self, request: Request, role: str) -> Key:
        """Whose request this is, if they may."""
        key = self._key(request)
        if self._rate is not None:
            caller = key.name if self._keys is not None else request.client.host if request.client else ""
            if wait := self._rate.wait(caller, time.monotonic()):
                seconds = str(int(wait) + 1)
                sentence = (
                    f"more than {self._settings.requests_a_second:g} requests a second; try again in {seconds} s."
                )
                raise Problem(429, sentence, {"Retry-After": seconds})
        if not key.may(role) or (role == "write" and self._settings.read_only):
            why = "this server is read-only" if self._settings.read_only else f"the key {key.name!r} may only read"
            raise Problem(403, f"{why}; nothing was changed.")
        return key

    def _key(self, request: Request) -> Key:
        if self._keys is None:
            return _EVERYBODY
        scheme, _, word = request.headers.get("authorization", "").partition(" ")
        known = self._keys.owner(word.strip()) if scheme.lower() == "bearer" else None
        if known is None:
            remedy = "send `Authorization: Bearer KEY` with a key that `ripml keys add` made"
            raise Problem(401, f"this needs an API key; {remedy}.", {"WWW-Authenticate": 'Bearer realm="ripml"'})
        return known

    async def body(self, request: Request) -> Any:
        """The JSON that a request holds."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Problem(415, f"the body must be application/json; got {kind[:100] or 'no content type'!r}.")
        if (coding := request.headers.get("content-encoding", "identity").strip().lower()) not in {"identity", ""}:
            raise Problem(415, f"the body must be sent as it is, without Content-Encoding; got {coding[:100]!r}.")
        seconds = self._settings.body_seconds
        try:
            content = await asyncio.wait_for(self._content(request), seconds)
        except asyncio.TimeoutError:
            raise Problem(408, f"the body did not arrive in {seconds:g} s.", {"Connection": "close"}) from None
        try:
            parsed = from_json(content, allow_inf_nan=False)
        except ValueError as error:
            raise Problem(400, f"the body is not JSON ({error}).") from None
        for name, number, most in self._lengths(parsed):
            if number > most:
                raise Problem(413, f"{number:,} {name} are more than {most:,} in a request; send fewer.")
        return parsed

    def _lengths(self, body: Any) -> Iterator[tuple[str, int, int]]:
        """The lists of a body whose lengths are bounded, before any of their elements is looked at."""
        most, most_labels = self._settings.max_texts, self._settings.max_labels
        if not isinstance(body, dict):
            return
        for name in ("texts", "documents", "ids"):
            if isinstance(body.get(name), list):
                yield name, len(body[name]), most
        documents = body.get("documents")
        for each in (body, *(documents if isinstance(documents, list) else ())):
            if isinstance(each, dict) and isinstance(each.get("labels"), list):
                yield "labels of a document", len(each["labels"]), most_labels

    async def _content(self, request: Request) -> bytearray:
        """A body of a size that is accepted, whatever its header says."""
        most, content = self._settings.max_body, bytearray()
        told = request.headers.get("content-length", "0")
        too_large = Problem(413, f"the body is larger than {most:,} bytes.", {"Connection": "close"})
        if told.isdecimal() and (len(told) > 18 or int(told) > most):
            raise too_large
        async for piece in request.stream():
            content += piece
            if len(content) > most:
                raise too_large
        return content


class _Received(Request):
    """A request whose body is there, and parsed."""

    def __init__(self, request: Request, content: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._content = content

    async def body(self) -> bytes:
        """Something, so that `json` is asked."""
        return b"-"

    async def json(self) -> Any:
        """What was parsed."""
        return self._content
