"""ASGI middleware around the whole app.

    CORSMiddleware       Starlette's, for the origins in the settings
    RequestMonitor       times, counts and logs requests, sets headers of all responses, reports unexpected errors
    HostAndOriginCheck   refuses requests that pages of other sites make through a visitor's browser
    Admission            identifies the caller, and refuses what is beyond its limits (`ripml.server.limits`)
    VersionHeader        says which version of a store answers, and refuses requests that want a newer one

A request passes them in this order.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import time
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ripml.server.access import AccessControl, ReadRoute, WriteRoute
from ripml.server.limits import Admission, Shares
from ripml.server.metrics import METHODS, Metrics
from ripml.server.problems import Problem, unavailable, unexpected
from ripml.server.served_store import ServedStore
from ripml.server.settings import Settings

__all__ = ["HostAndOriginCheck", "RequestMonitor", "VersionHeader", "install_middleware"]

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_access_log = logging.getLogger("ripml.access")
_STORE_PATH = re.compile("/v1/stores/([^/]+)")
_NUMBER = re.compile("[0-9]{1,18}")
_CLIENT_CLOSED = 499  # nginx's status for a client that closed the connection before the response


def install_middleware(app: FastAPI, access: AccessControl, settings: Settings, metrics: Metrics) -> None:
    """Add all middleware to an app; the one that is added last is the outermost."""
    requests, in_flight = Shares(settings.max_requests), Shares(settings.max_bytes)
    metrics.requests_in_flight.set_function(lambda: requests.total)
    metrics.bytes_in_flight.set_function(lambda: in_flight.total)
    app.add_middleware(VersionHeader, access=access, stores=app.state.stores)
    app.add_middleware(Admission, access=access, settings=settings, requests=requests, in_flight=in_flight)
    app.add_middleware(HostAndOriginCheck, settings=settings)
    app.add_middleware(RequestMonitor, metrics=metrics, access_log=settings.access_log)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST", "PUT", "DELETE"),
            allow_headers=("Authorization", "Content-Type", "Ripml-Min-Version"),
            expose_headers=("Ripml-Version",),
        )


class RequestMonitor:
    """Counts and times requests, sets security headers, and reports unexpected errors as a problem.

    Starlette's own handler would raise an unexpected error again, and uvicorn log its message, which may hold a text.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, access_log: bool) -> None:
        self.app, self.metrics, self.access_log = app, metrics, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status, n_bytes = time.perf_counter(), 0, 0
        # Routes are matched on the path as it was sent: a document id may contain %2F.
        scope["path"] = scope.get("raw_path", scope["path"].encode()).decode("latin-1")

        async def send_with_headers(message: Message) -> None:
            nonlocal status, n_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers.setdefault("Cache-Control", "no-store")
            n_bytes += len(message.get("body", b""))
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
            seconds = time.perf_counter() - start
            self.metrics.answered(scope["method"], route, status, seconds)
            if self.access_log:
                _log_access(scope, route, status, seconds, n_bytes)


class VersionHeader:
    """Sets `Ripml-Version` in answers about a store: a change that they take into account, with all before it.

    A request with `Ripml-Min-Version` gets 503 from a server whose store is older, such as a reader that has not
    followed the writer so far, and a load balancer sends it to another server. So callers can see their own changes,
    whichever server answers. Those who may not read a store are not told its version.
    """

    def __init__(self, app: ASGIApp, access: AccessControl, stores: Mapping[str, ServedStore]) -> None:
        self.app, self._access, self._stores = app, access, stores

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        store = self._readable(scope)
        if store is None:
            await self.app(scope, receive, send)
            return
        before = store.store.version  # a reader may follow its writer before the answer is made

        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                version = store.store.version if isinstance(scope.get("route"), WriteRoute) else before
                MutableHeaders(scope=message)["Ripml-Version"] = str(version)
            await send(message)

        wanted = Headers(scope=scope).get("ripml-min-version", "0")
        problem = None
        if not _NUMBER.fullmatch(wanted):
            problem = Problem(400, "Ripml-Min-Version must be the number of a change.")
        elif int(wanted) > before:
            problem = unavailable(f"this server has the store after change {before:,}; ask again, or another server.")
        await (self.app if problem is None else problem.response())(scope, receive, send_with_version)

    def _readable(self, scope: Scope) -> ServedStore | None:
        """The store that a request is about, if its caller may read it."""
        if scope["type"] != "http" or not (found := _STORE_PATH.match(scope["path"])) or "caller" not in scope["state"]:
            return None
        try:
            self._access.authorize(scope["state"]["caller"], ReadRoute.role)
        except Problem:
            return None
        return self._stores.get(found[1])


def _log_access(scope: Scope, route: str, status: int, seconds: float, n_bytes: int) -> None:
    """Log a request: key, address, method, route, status, time, bytes of the response.

    The route is logged, not the path: ids and prefixes of labels can be confidential.
    """
    caller, client = scope.get("state", {}).get("caller"), scope.get("client")
    key = "-" if caller is None or caller.key is None else repr(caller.key)
    if "store" in (parameters := scope.get("path_params", {})):
        route = route.replace("{store}", parameters["store"])
    address = client[0] if client else "-"
    method = scope["method"] if scope["method"] in METHODS else "other"
    _access_log.info("%s %s %s %s %d %.1f ms %d bytes", key, address, method, route, status, 1000 * seconds, n_bytes)


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
