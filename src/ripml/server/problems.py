"""Error responses: problem details (RFC 9457) with one sentence and no internals.

Errors about the request are shown as the library words them. Errors about files and unexpected errors stay in the log
under a number, and the response has the number only.
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

from ripml.base.errors import DataError, ParameterError, RipmlError, StoreError, StoreFullError

__all__ = ["MEDIA_TYPE", "Problem", "install_handlers", "problem_of", "unavailable", "unexpected"]

MEDIA_TYPE = "application/problem+json"
_MAX_ERRORS = 20
_MAX_CHARACTERS = 200  # of a value from the request that is quoted
_INNERMOST_FRAMES = -10
_FULL = (
    "the disk of the server is full, so nothing was saved; free some room there, then try again. Suggestions, search "
    "and downloads go on meanwhile."
)
_log = logging.getLogger("ripml.server")


class Problem(HTTPException):
    """An error response; `extra` holds members beside the four standard ones.

    >>> Problem(404, "no store is named 'x'.").response().status_code
    404
    """

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(status, detail, headers)
        self.extra = extra or {}

    def response(self) -> Response:
        """The HTTP response."""
        title = http.HTTPStatus(self.status_code).phrase
        body = {"type": "about:blank", "title": title, "status": self.status_code, "detail": self.detail, **self.extra}
        return Response(to_json(body), self.status_code, self.headers, MEDIA_TYPE)


def unavailable(
    detail: str, retry_after: int = 1, extra: Mapping[str, Any] | None = None, close: bool = False
) -> Problem:
    """503: the server cannot answer now."""
    headers = {"Retry-After": str(retry_after), **({"Connection": "close"} if close else {})}
    return Problem(503, detail, headers, extra)


def unexpected(error: BaseException) -> Problem:
    """500: the log gets the error's type and place, but not its message, which may hold a text or a path."""
    number = secrets.token_hex(4)
    frames = "".join(traceback.format_tb(error.__traceback__, _INNERMOST_FRAMES))
    _log.error("error %s: %s\n%s", number, type(error).__name__, frames)
    detail = f"Unexpected error; the server's log has the details under number {number}."
    return Problem(500, detail, extra={"number": number})


def problem_of(error: Exception) -> Problem:
    """The problem that an exception is reported as."""
    if isinstance(error, StoreError):  # its message has the store's path
        number = secrets.token_hex(4)
        _log.error("error %s: %s", number, error)
        if isinstance(error, StoreFullError):
            return Problem(507, _FULL, extra={"number": number})
        detail = f"the store cannot do this now; the server's log has the reason under number {number}."
        return unavailable(detail, 5, {"number": number})
    if isinstance(error, DataError | ParameterError):
        return Problem(422, str(error))
    return unexpected(error)


def install_handlers(app: FastAPI) -> None:
    """Report every error of an app as a problem."""

    def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error, Problem):
            return error.response()
        if error.status_code == 404:
            return Problem(404, "nothing is at this path; /openapi.json lists all paths.").response()
        if error.status_code == 405:
            allowed = ", ".join(sorted(_allowed_methods(app, request)))
            detail = f"this path allows {allowed}; got {request.method[:_MAX_CHARACTERS]}."
            return Problem(405, detail, {"Allow": allowed}).response()
        return Problem(error.status_code, f"{error.detail}.", error.headers).response()

    def validation_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"at": ".".join(map(str, one["loc"]))[:_MAX_CHARACTERS], "message": one["msg"]}
            for one in error.errors()[:_MAX_ERRORS]
        ]
        return Problem(422, f"{errors[0]['at']}: {errors[0]['message']}.", extra={"errors": errors}).response()

    def library_error(request: Request, error: Exception) -> Response:
        return problem_of(error).response()

    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(RipmlError, library_error)


def _allowed_methods(app: FastAPI, request: Request) -> set[str]:
    """The methods of all routes at the request's path; Starlette names those of the first one only."""
    return {
        method
        for route in app.routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in getattr(route, "methods", None) or {"GET", "HEAD"}
    }
