"""The server: stores over HTTP, with API keys, limits, metrics and the page; `ripml serve` runs it. Extra `serve`.

    a request   gate (host, origin, load) → guard (key, rate, body) → route → service → `DocumentModel`, `Store`

Everything that decides is in the library; here it is only carried over HTTP, so that the answers are the same.
"""

from __future__ import annotations

from ripml.base.errors import MissingExtraError

try:
    import fastapi  # noqa: F401
    import httptools  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise MissingExtraError(str(error.name), "serve") from None

from ripml.server.app import create_app
from ripml.server.keys import Key, add_key, list_keys, remove_key
from ripml.server.serving import run
from ripml.server.settings import Settings

__all__ = ["Key", "Settings", "add_key", "create_app", "list_keys", "remove_key", "run"]
