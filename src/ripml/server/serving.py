"""Running the server: stores by name, one uvicorn process, and a stop that loses nothing."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from ripml.base.errors import ParameterError, StoreError
from ripml.server.app import create_app
from ripml.server.protocol import Protocol
from ripml.server.settings import Settings
from ripml.store import Store

__all__ = ["named", "run"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BACKLOG = 2048  # connections
_TURN_SECONDS = 5e-4  # a thread that computes lets go of the interpreter for those that answer
_IDLE_SECONDS = 75  # between two requests of a connection
_STOP_SECONDS = 60  # for what is in flight to be answered


def named(stores: Sequence[str]) -> dict[str, Path]:
    """The folders of stores by name: NAME=FOLDER, or FOLDER, whose own name it is.

    >>> named(["stores/news", "wiki=stores/w"])
    {'news': PosixPath('stores/news'), 'wiki': PosixPath('stores/w')}
    """
    found: dict[str, Path] = {}
    for word in stores:
        name, equals, folder = word.partition("=")
        if not equals or "/" in name:
            name, folder = Path(word).resolve().name, word
        if not _NAME.fullmatch(name):
            raise ParameterError(f"{name!r} cannot be the name of a store in an address; give it one: NAME={folder}")
        if name in found:
            raise ParameterError(f"two stores have the name {name!r}; give one of them another: NAME={folder}")
        found[name] = Path(folder)
    if not found:
        raise ParameterError("there is no store to serve; name at least one folder.")
    return found


def run(stores: Sequence[str], settings: Settings | None = None) -> None:
    """Serve stores until SIGINT or SIGTERM; then answer what is in flight, close the stores and return."""
    settings = Settings() if settings is None else settings
    folders = named(stores)
    with _until_told_to_stop(), contextlib.ExitStack() as opened, _listening(settings) as listener:
        served = {name: opened.enter_context(_opened(folder, settings)) for name, folder in folders.items()}
        app = create_app(served, settings)
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=settings.access_log,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        _log_to_stderr(settings)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"Serving {', '.join(served)} on http://{shown}:{port}; Ctrl+C stops it.", file=sys.stderr, flush=True)
        sys.setswitchinterval(min(sys.getswitchinterval(), _TURN_SECONDS))
        _Server(config, app).run([listener])


def _opened(folder: Path, settings: Settings) -> Store:
    try:
        return Store.open(folder, settings.read_only)
    except StoreError as error:
        if settings.read_only or "is open for writing" not in str(error):
            raise
        raise StoreError(f"{error} Serve it with --read-only.") from None


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """A socket that is bound before anything is loaded, so that a port that is taken is said at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
            listener.listen(_BACKLOG)  # who comes while models are loaded waits
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise ParameterError(f"{where}: cannot listen there ({error.strerror}); choose another --port.") from None
        yield listener


class _Stop(BaseException):
    """SIGINT or SIGTERM came."""


@contextlib.contextmanager
def _until_told_to_stop() -> Iterator[None]:
    """Leave the block at SIGINT or SIGTERM, as while models are loaded. uvicorn has its own way to stop, and raises the
    signal once more when all is done."""

    def stop(*_: object) -> None:
        raise _Stop

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    except _Stop:
        pass
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _log_to_stderr(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("ripml.server", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.addHandler(handler)
    if settings.access_log:
        access = logging.getLogger("uvicorn.access")
        access.setLevel(logging.INFO)
        access.addHandler(handler)


class _Server(uvicorn.Server):
    """uvicorn, which says that it is not ready any more as soon as it is told to stop."""

    def __init__(self, config: uvicorn.Config, app: Any) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to stop."""
        self._app.state.status = "stopping"
        super().handle_exit(sig, frame)
