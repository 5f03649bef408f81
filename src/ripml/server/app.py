"""The ASGI app: stores, routes, page and middleware, and its life from the first request to the last write."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
from collections.abc import AsyncIterator, Iterable, Mapping
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from ripml.server.access import AccessControl
from ripml.server.docs_page import docs_page
from ripml.server.metrics import Metrics
from ripml.server.middleware import install_middleware
from ripml.server.pools import FairPool
from ripml.server.problems import install_handlers, unexpected
from ripml.server.routes import SuggestShortcut, public, read, write
from ripml.server.served_store import ServedStore
from ripml.server.settings import Settings
from ripml.store import Store

__all__ = ["create_app"]

_LOOK_UP_THREADS = 4  # for documents, labels and model cards
_WORK_THREADS = 2  # for batches, long texts, explanations, histories and exports; one for each caller
_FOLLOW_SECONDS = 1.0  # between two looks for changes of a writer in another process
_PAGE = Path(__file__).parent / "page"
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
mimetypes.add_type("text/javascript", ".js")  # the tables of some machines differ, and browsers are told not to guess


class _PageFiles(StaticFiles):
    """The files of the page, with a content security policy."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The response with one file, or 304 if the browser has it."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response


async def _page() -> Response:
    return FileResponse(_PAGE / "index.html", headers=_PAGE_HEADERS)


def _docs(app: FastAPI) -> Response:
    """The description of the API for people, who need no key for it: it has no names of stores."""
    return HTMLResponse(docs_page(app.openapi()), headers=_PAGE_HEADERS)


def create_app(stores: Mapping[str, Store], settings: Settings | None = None) -> FastAPI:
    """An ASGI app that serves open stores by name, and closes them when it ends.

    >>> create_app({}).title
    'ripml'
    """
    settings = Settings() if settings is None else settings
    served: dict[str, ServedStore] = {}
    metrics = Metrics(served)
    look_ups = FairPool(_LOOK_UP_THREADS, "ripml look-up")
    work = FairPool(_WORK_THREADS, "ripml work", per_caller=1, background=True)
    for name, store in stores.items():
        warm = settings.warm and not settings.read_only
        tables = None if settings.read_only else settings.tables
        served[name] = ServedStore(
            name, store, metrics, look_ups, work, settings.max_batch, settings.backups, tables, warm
        )

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_start(app))]
        if settings.read_only:
            tasks.append(asyncio.create_task(_follow(served.values())))
        yield
        app.state.status = "stopping"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for store in served.values():
            await asyncio.to_thread(store.close)
        look_ups.close()
        work.close()

    app = FastAPI(
        title="ripml",
        version=version_of("ripml"),
        routes=[*public.routes, *read.routes, *write.routes],
        docs_url=None,  # FastAPI's pages load scripts from other servers; see `ripml.server.docs_page`
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.stores, app.state.settings, app.state.metrics = served, settings, metrics
    app.state.status, app.state.access = "starting", AccessControl(settings)
    app.add_api_route("/", _page, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/docs", lambda: _docs(app), methods=["GET", "HEAD"], include_in_schema=False)
    app.mount("/page", _PageFiles(directory=_PAGE, check_dir=False))
    app.add_middleware(SuggestShortcut, stores=served, access=app.state.access)
    install_middleware(app, app.state.access, settings, metrics)
    install_handlers(app)
    app.openapi = lambda: _describe(app, has_keys=settings.keys is not None)  # type: ignore[method-assign]
    return app


async def _start(app: FastAPI) -> None:
    try:
        for store in app.state.stores.values():
            await store.start()
    except Exception as error:  # logged; /ready stays 503
        unexpected(error)
    else:
        app.state.status = "ready"


async def _follow(stores: Iterable[ServedStore]) -> None:
    while True:
        await asyncio.sleep(_FOLLOW_SECONDS)
        for store in stores:
            await store.follow()


def _describe(app: FastAPI, has_keys: bool) -> dict[str, Any]:
    """The OpenAPI description, with what FastAPI does not know: problems, the stores' names and keys."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = schema.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = {
            "type": "object",
            "properties": {
                **{name: {"type": "string"} for name in ("type", "title", "detail")},
                "status": {"type": "integer"},
            },
            "required": ["type", "title", "status", "detail"],
        }
        operations = [operation for path in schema["paths"].values() for operation in path.values()]
        for parameter in (parameter for operation in operations for parameter in operation.get("parameters", ())):
            if parameter["name"] == "store":
                parameter["schema"]["enum"] = list(app.state.stores)
        if has_keys:
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"key": []}]
        app.openapi_schema = schema
    return app.openapi_schema
