"""Access to a route: the caller's key has the role, and the body is JSON within the limits.

The checks run in this order before FastAPI parses anything: a body is read only if everything else is in order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import Message, Scope

from ripml.server.keys import KeyRing, includes
from ripml.server.problems import Problem
from ripml.server.settings import Settings

__all__ = [
    "AccessControl",
    "Caller",
    "ParsedRequest",
    "ReadRoute",
    "WriteRoute",
    "body_chunks",
    "content_type",
    "read_body",
]


class ReadRoute(APIRoute):
    """A route for callers that may read; it checks key and body before FastAPI's handler runs."""

    role = "read"

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler behind the checks."""
        handle, has_body = super().get_route_handler(), self.body_field is not None

        async def checked(request: Request) -> Response:
            state = request.app.state
            request.state.role = state.access.authorize(request.state.caller, self.role)
            return await handle(await ParsedRequest.read(request, state.settings) if has_body else request)

        return checked


class WriteRoute(ReadRoute):
    """A route for callers that may write."""

    role = "write"


@dataclass(frozen=True)
class Caller:
    """Who sends a request: the holder of a key, or somebody at an address; without a role if a key is missing."""

    name: str
    role: str | None
    key: str | None  # its name


class AccessControl:
    """The keys of one app, and what they allow."""

    def __init__(self, settings: Settings) -> None:
        self._keys = None if settings.keys is None else KeyRing(settings.keys)
        self._read_only = settings.read_only

    def identify(self, scope: Scope) -> Caller:
        """The caller of a request."""
        if self._keys is not None:
            scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
            key = self._keys.find(token.strip()) if scheme.lower() == "bearer" else None
            if key is not None:
                return Caller(f"key {key.name}", key.role, key.name)
        client = scope.get("client")
        return Caller(f"address {client[0] if client else ''}", "write" if self._keys is None else None, None)

    def authorize(self, caller: Caller, role: str) -> str:
        """The role of the caller, if it includes the required one."""
        if caller.role is None:
            remedy = "send `Authorization: Bearer KEY` with a key from `ripml keys add`"
            raise Problem(401, f"an API key is required; {remedy}.", {"WWW-Authenticate": 'Bearer realm="ripml"'})
        if role == "write" and self._read_only:
            raise Problem(403, "this server is read-only; nothing was changed.")
        if not includes(caller.role, role):
            raise Problem(403, f"the key {caller.key!r} may only read; nothing was changed.")
        return "read" if self._read_only else caller.role


class ParsedRequest(Request):
    """A request whose JSON body is read and parsed, within the limits of the settings.

    FastAPI would accept NaN and lone surrogates, and answer a body that is not JSON as a validation error.
    """

    def __init__(self, request: Request, raw: bytes, content: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._raw, self._content, self._replayed = raw, content, False

    @classmethod
    async def read(cls, request: Request, settings: Settings) -> ParsedRequest:
        """Read and parse the body, or raise the problem with it."""
        kind = content_type(request)
        if kind != "application/json":
            raise Problem(415, f"the body must be application/json; got {kind[:100] or 'no content type'!r}.")
        raw = await read_body(request, settings.max_body, settings.body_seconds)
        try:
            content = from_json(raw, allow_inf_nan=False)
        except ValueError as error:
            raise Problem(400, f"the body is not JSON ({error}).") from None
        for name, length, limit in _list_lengths(content, settings):
            if length > limit:
                raise Problem(413, f"{length:,} {name} in one request; the limit is {limit:,}.")
        return cls(request, raw, content)

    async def replay(self) -> Message:
        """The messages from the client, with the body that was read as the first."""
        if self._replayed:
            return await self.receive()
        self._replayed = True
        return {"type": "http.request", "body": self._raw, "more_body": False}

    async def body(self) -> bytes:
        """The bytes that were read."""
        return self._raw

    async def json(self) -> Any:
        """The parsed body."""
        return self._content


def content_type(request: Request) -> str:
    """The media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The bytes of a body, if it is within the limit and arrives in time."""
    try:
        with _deadline(seconds):
            return b"".join([chunk async for chunk in body_chunks(request, limit)])
    except asyncio.TimeoutError:
        raise Problem(408, f"the body did not arrive within {seconds:g} s.", {"Connection": "close"}) from None


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """`TimeoutError` in the block after some seconds.

    `asyncio.wait_for` would make another task, which takes longer than to read a body that has arrived.
    """
    task, expired = asyncio.current_task(), False
    assert task is not None

    def expire() -> None:
        nonlocal expired
        expired = task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        yield
    except asyncio.CancelledError:
        if not expired:  # the task was cancelled by another
            raise
        if hasattr(task, "uncancel"):  # Python 3.11 counts requests to cancel
            task.uncancel()
        raise asyncio.TimeoutError from None
    finally:
        timer.cancel()


async def body_chunks(request: Request, limit: int, seconds: float | None = None) -> AsyncIterator[bytes]:
    """The pieces of a body, if it is within the limit; its Content-Length may be missing or wrong.

    With `seconds`, each piece must arrive within this time.
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"identity", ""}:
        raise Problem(415, f"the body must be sent without Content-Encoding; got {coding[:100]!r}.")
    length = 0
    declared = request.headers.get("content-length", "0")
    too_large = Problem(413, f"the body is larger than {limit:,} bytes.", {"Connection": "close"})
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limit):
        raise too_large
    pieces = request.stream()
    while True:
        try:
            with contextlib.nullcontext() if seconds is None else _deadline(seconds):
                chunk = await anext(pieces)
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:
            raise Problem(408, f"nothing arrived for {seconds:g} s.", {"Connection": "close"}) from None
        length += len(chunk)
        if length > limit:
            raise too_large
        yield chunk


def _list_lengths(body: Any, settings: Settings) -> Iterator[tuple[str, int, int]]:
    """Name, length and limit of each bounded list, so that long ones are refused before their items are validated."""
    if not isinstance(body, dict):
        return
    for name in ("texts", "documents", "ids", "concepts"):
        if isinstance(body.get(name), list):
            yield name, len(body[name]), settings.max_texts
    documents = body.get("documents")
    for item in (body, *(documents if isinstance(documents, list) else ())):
        if isinstance(item, dict) and isinstance(item.get("labels"), list):
            yield "labels of one document", len(item["labels"]), settings.max_labels
