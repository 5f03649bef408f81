"""The app: stores, routes, page and limits put together, and its life from the first question to the last write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version as version_of
from pathlib import Path as File
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

from ripml.server import problems
from ripml.server.limits import Gate, Guard, GuardedRoute
from ripml.server.metrics import Metrics
from ripml.server.problems import MEDIA_TYPE
from ripml.server.routes import ROUTES, UNDESCRIBED
from ripml.server.service import ServedStore
from ripml.server.settings import Settings
from ripml.store import Store

__all__ = ["create_app"]

_PAGE = File(__file__).parent / "page"
_AT_A_TIME = 2  # batches, long texts and explanations that are computed
_LOOKS_SECONDS = 1.0  # between two looks at what a writer elsewhere did
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


# What the machine's own table of types says depends on the machine, and a browser must not guess.
_PAGE_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class _Page(StaticFiles):
    """The page's files, with headers that let nothing else in."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """A file of the page."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        if response.status_code == 200:
            response.headers["Content-Type"] = _PAGE_TYPES.get(File(args[0]).suffix, "application/octet-stream")
        return response


async def page() -> Response:
    """The page."""
    return FileResponse(_PAGE / "index.html", headers=_PAGE_HEADERS)


# ------------------------------------------------------------------------------------------------------------------ app


def create_app(stores: Mapping[str, Store], settings: Settings | None = None) -> FastAPI:
    """The app that serves open stores by name, and closes them when it ends.

    >>> create_app({}).title
    'ripml'
    """
    settings = Settings() if settings is None else settings
    served: dict[str, ServedStore] = {}
    counters = Metrics(served)
    pool = ThreadPoolExecutor(_AT_A_TIME, "ripml work")

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_start(app))]
        if settings.read_only:
            tasks.append(asyncio.create_task(_follow(served)))
        yield
        app.state.status = "stopping"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for store in served.values():
            await asyncio.to_thread(store.close)
        pool.shutdown()

    app = FastAPI(
        title="ripml",
        version=version_of("ripml"),
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        lifespan=life,
        redirect_slashes=False,
    )
    app.state.stores, app.state.settings, app.state.metrics = served, settings, counters
    app.state.guard, app.state.status = Guard(settings), "starting"
    for name, store in stores.items():
        served[name] = ServedStore(name, store, counters, pool, settings.max_batch)
    app.router.route_class = GuardedRoute
    described = _problems(400, 401, 403, 404, 408, 409, 413, 415, 421, 422, 429, 500, 503)
    for method, path, function, model, status in ROUTES:
        app.add_api_route(
            path, function, methods=[method], response_model=model, status_code=status, responses=described
        )
    for path, (function, methods) in UNDESCRIBED.items():
        app.add_api_route(path, function, methods=methods, include_in_schema=False)
    app.add_api_route("/", page, methods=["GET", "HEAD"], include_in_schema=False)
    app.mount("/page", _Page(directory=_PAGE, check_dir=False))
    app.add_middleware(Gate, settings=settings, metrics=counters)
    problems.install(app)
    app.openapi = lambda: _description(app, keys=settings.keys is not None)  # type: ignore[method-assign]
    return app


async def _start(app: FastAPI) -> None:
    try:
        for store in app.state.stores.values():
            await store.start(app.state.settings.read_only)
    except Exception as error:  # and never be ready
        problems.unexpected(error)
    else:
        app.state.status = "ready"


async def _follow(served: Mapping[str, ServedStore]) -> None:
    while True:
        await asyncio.sleep(_LOOKS_SECONDS)
        for store in served.values():
            await store.follow()


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": "A problem, in a sentence.", "content": content} for status in statuses}


def _description(app: FastAPI, keys: bool) -> dict[str, Any]:
    """The OpenAPI description, with what FastAPI does not know of: problems and keys."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        strings = {name: {"type": "string"} for name in ("type", "title", "detail")}
        parts = made.setdefault("components", {})
        parts.setdefault("schemas", {})["Problem"] = {
            "type": "object",
            "properties": {**strings, "status": {"type": "integer"}},
            "required": ["type", "title", "status", "detail"],
        }
        for methods in made["paths"].values():
            for parameter in (each for how in methods.values() for each in how.get("parameters", ())):
                if parameter["name"] == "store":
                    parameter["schema"]["enum"] = list(app.state.stores)
        if keys:
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema
