"""The server: stores over HTTP, with API keys, limits, metrics and a web page. `ripml serve` runs it; needs `serve`.

    request → middleware (host, origin, load) → access (key, rate, body) → routes → `ServedStore` → `Store`

All decisions are made by the library, so HTTP gives the same answers as Python and the shell.
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
from ripml.server.process import run
from ripml.server.settings import Settings

__all__ = ["Key", "Settings", "add_key", "create_app", "list_keys", "remove_key", "run"]
