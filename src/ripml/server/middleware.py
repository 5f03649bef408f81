"""ASGI middleware around the whole app.

    CORSMiddleware       Starlette's, for the origins in the settings
    RequestMonitor       times and counts requests, sets headers of all responses, reports unexpected errors
    HostAndOriginCheck   refuses requests that pages of other sites make through a visitor's browser
    ConcurrencyLimit     refuses requests while too many are being processed

A request passes them in this order.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from urllib.parse import SplitResult, urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ripml.server.metrics import Metrics
from ripml.server.problems import Problem, unavailable, unexpected
from ripml.server.settings import Settings

__all__ = ["ConcurrencyLimit", "HostAndOriginCheck", "RequestMonitor", "install_middleware"]

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CLIENT_CLOSED = 499  # nginx's status for a client that closed the connection before the response
_UNLIMITED_PATHS = frozenset({"/health", "/ready", "/"})
_UNLIMITED_PREFIX = "/page/"


def install_middleware(app: FastAPI, settings: Settings, metrics: Metrics) -> None:
    """Add all middleware to an app; the one that is added last is the outermost."""
    app.add_middleware(ConcurrencyLimit, limit=settings.max_requests, metrics=metrics)
    app.add_middleware(HostAndOriginCheck, settings=settings)
    app.add_middleware(RequestMonitor, metrics=metrics)
    if settings.origins:
        methods, headers = ("GET", "POST", "PUT", "DELETE"), ("Authorization", "Content-Type")
        app.add_middleware(CORSMiddleware, allow_origins=settings.origins, allow_methods=methods, allow_headers=headers)


class RequestMonitor:
    """Counts and times requests, sets security headers, and reports unexpected errors as a problem.

    Starlette's own handler would raise an unexpected error again, and uvicorn log its message, which may hold a text.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 0
        # Routes are matched on the path as it was sent: a document id may contain %2F.
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1")

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except ClientDisconnect:
            status = status or _CLIENT_CLOSED
        except Exception as error:
            problem = unexpected(error)
            if not status:
                await problem.response()(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.answered(scope["method"], route, status, time.perf_counter() - start)


class HostAndOriginCheck:
    """Keeps web pages of other sites out: 421 for host names that are not the server's, 403 for foreign origins.

    Accepted hosts are this machine's name, localhost, the names in the settings and every numeric address. In DNS
    rebinding a page lets a name of its own resolve to this machine; it needs a name, so addresses are safe. Starlette's
    `TrustedHostMiddleware` knows names only, and in a container the server cannot know the address that clients use.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.origins = app, settings.origins
        names = ("localhost", socket.gethostname(), settings.host, *settings.allowed_hosts)
        self.names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        problem = self._problem(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (self.app if problem is None else problem.response())(scope, receive, send)

    def _problem(self, method: str, headers: Headers) -> Problem | None:
        hosts, origin = headers.getlist("host"), headers.get("origin")
        if len(hosts) > 1:
            return Problem(400, "a request must have one Host header; got several.")
        host = hosts[0] if hosts else ""
        if not self._accepts_host(host):
            remedy = "start the server with --allowed-host NAME to allow it"
            return Problem(421, f"this server does not answer for host {host[:100]!r}; {remedy}.")
        # Pages of other origins may read, because browsers hide the response from them, but change nothing.
        if origin is None or method in _SAFE_METHODS or origin in self.origins:
            return None
        if _split(origin).netloc.lower() == host.lower():
            return None
        return Problem(403, f"pages of origin {origin[:100]!r} may not call this server; --origin ORIGIN allows it.")

    def _accepts_host(self, host: str) -> bool:
        name = (_split(f"//{host}").hostname or "").lower()
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _split(url: str) -> SplitResult:
    """The parts of a URL; all empty if it is not one."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


class ConcurrencyLimit:
    """Refuses requests beyond a number that are processed at the same time; health checks and the page are exempt.

    uvicorn's `limit_concurrency` would count idle connections and refuse health checks too.
    """

    def __init__(self, app: ASGIApp, limit: int, metrics: Metrics) -> None:
        self.app, self.limit, self.metrics, self.active = app, limit, metrics, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["path"] in _UNLIMITED_PATHS or scope["path"].startswith(_UNLIMITED_PREFIX):
            return await self.app(scope, receive, send)
        if self.active >= self.limit:
            problem = unavailable(f"the server is busy with {self.limit:,} requests; try again.")
            return await problem.response()(scope, receive, send)
        counted = 1
        self._change(1)

        async def send_released(message: Message) -> None:
            # The slot is free when the response begins, so that a client that reads slowly keeps nobody out.
            nonlocal counted
            self._change(-counted)
            counted = 0
            await send(message)

        try:
            await self.app(scope, receive, send_released)
        finally:
            self._change(-counted)

    def _change(self, by: int) -> None:
        self.active += by
        self.metrics.in_flight.set(self.active)
