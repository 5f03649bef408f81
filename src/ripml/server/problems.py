"""What is answered when something is wrong: problem+json (RFC 9457), one sentence, and nothing of the inside.

Errors of the library that are about the request are shown. Those about files, and those nobody foresaw, stay in the
log under a number; the answer has the number only.
"""

from __future__ import annotations

import http
import logging
import secrets
import traceback
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.routing import Match

from ripml.base.errors import DataError, ParameterError, RipmlError, StoreError

__all__ = ["MEDIA_TYPE", "Problem", "install", "unexpected"]

MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS, _MOST_CHARACTERS = 20, 200
_FRAMES = -10  # the innermost
_log = logging.getLogger("ripml.server")


class Problem(HTTPException):
    """A refusal with its sentence; `more` goes into the answer beside it.

    >>> Problem(404, "there is no store 'x'.").response().status_code
    404
    """

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(status, detail, headers)
        self.more = more or {}

    def response(self) -> Response:
        """The answer."""
        title = http.HTTPStatus(self.status_code).phrase
        body = {"type": "about:blank", "title": title, "status": self.status_code, "detail": self.detail, **self.more}
        return Response(to_json(body), self.status_code, self.headers, MEDIA_TYPE)


def busy(detail: str, seconds: int = 1) -> Problem:
    """The server cannot answer now."""
    return Problem(503, detail, {"Retry-After": str(seconds)})


def unexpected(error: BaseException, what: str = "This was not foreseen") -> Problem:
    """Log an error's kind and place under a number and answer the number; its message may hold a text or a path."""
    number = secrets.token_hex(4)
    places = "".join(traceback.format_tb(error.__traceback__, _FRAMES))
    _log.error("error %s: %s\n%s", number, type(error).__name__, places)
    return Problem(500, f"{what}; the log has it under number {number}.", more={"number": number})


def of(error: RipmlError) -> Problem:
    """An error of the library."""
    if isinstance(error, StoreError):  # whose sentence has the path of the store
        number = secrets.token_hex(4)
        _log.error("error %s: %s", number, error)
        problem = busy(f"the store cannot do this now; the log says why under number {number}.", 5)
        problem.more = {"number": number}
        return problem
    if isinstance(error, DataError | ParameterError):
        return Problem(422, str(error))
    return unexpected(error)


def install(app: FastAPI) -> None:
    """Answer every error of an app as a problem."""

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error, Problem):
            return error.response()
        if error.status_code == 404:
            return Problem(404, "there is nothing at this path; /openapi.json lists what there is.").response()
        if error.status_code == 405:
            allowed = ", ".join(sorted(_methods(app, request)))
            sentence = f"this path takes {allowed}; got {request.method[:_MOST_CHARACTERS]}."
            return Problem(405, sentence, {"Allow": allowed}).response()
        return Problem(error.status_code, f"{error.detail}.", error.headers).response()

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = [{"at": _place(e["loc"]), "message": e["msg"]} for e in error.errors()[:_MOST_ERRORS]]
        sentence = f"{found[0]['at']}: {found[0]['message']}."
        return Problem(422, sentence, more={"errors": found}).response()

    def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, RipmlError)
        return of(error).response()

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(RipmlError, ours)


def _place(location: tuple[Any, ...]) -> str:
    return ".".join(str(step) for step in location)[:_MOST_CHARACTERS]


def _methods(app: FastAPI, request: Request) -> set[str]:
    """The methods of all routes at a path."""
    return {
        method
        for route in app.routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or {"GET", "HEAD"}
    }
