"""The server process: opens the stores, binds the socket, runs uvicorn, and stops without losing anything."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import uvicorn
from fastapi import FastAPI

from ripml.base.compiled import loops
from ripml.base.errors import ParameterError, StoreLockedError
from ripml.server.app import create_app
from ripml.server.settings import Settings, is_loopback
from ripml.server.workers import is_worker
from ripml.store import Store

__all__ = ["bound_socket", "run", "store_folders", "uvicorn_config"]

T = TypeVar("T")
TABLES: Final = "ripml-tables"  # the folder of tables, beside the first store, where none is named

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BACKLOG = 2048  # connections that wait while models are loaded
_SWITCH_SECONDS = 5e-4  # a thread that computes lets the event loop run
# Of Python's three generations of objects. By default all objects are searched for cycles again and again while a long
# answer is made of many, and every thread waits for a tenth of a second each time.
_GARBAGE_THRESHOLDS = (10_000, 10, 50)
_IDLE_SECONDS = 75  # between two requests of a connection
_UNREAD_SECONDS = 30  # during which a client reads nothing of its response
_SEND_BUFFER = 262_144  # bytes of a connection
_MAX_HEAD = 65_536  # bytes of a request line and headers
_log = logging.getLogger("ripml.server")


def store_folders(arguments: Sequence[str]) -> dict[str, Path]:
    """The folders of stores by name, from arguments NAME=FOLDER or FOLDER, whose last part is the name.

    >>> store_folders(["stores/news", "wiki=stores/w"])
    {'news': PosixPath('stores/news'), 'wiki': PosixPath('stores/w')}
    """
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, equals, folder = argument.partition("=")
        if not equals or "/" in name:
            name, folder = (
                Path(os.path.abspath(argument)).name,
                argument,
            )  # of a link to a store, not of what it points to
        if not _NAME.fullmatch(name):
            raise ParameterError(f"{name!r} cannot be the name of a store in a URL; choose another: NAME={folder}")
        if name in folders:
            raise ParameterError(f"two stores have the name {name!r}; choose another for one of them: NAME={folder}")
        folders[name] = Path(folder)
    if not folders:
        raise ParameterError("there is no store to serve; name at least one folder.")
    return folders


def run(stores: Sequence[str], settings: Settings | None = None) -> None:
    """Serve stores until SIGINT, SIGTERM or SIGHUP; then answer the requests in progress and close the stores.

    Answers and the last snapshot get `stop_seconds`; then the process ends, which loses nothing that was acknowledged.
    """
    settings = Settings() if settings is None else settings
    folders = store_folders(stores)
    if settings.tables is None and settings.keys is None and not settings.read_only:  # whoever asks owns this machine
        settings = replace(settings, tables=next(iter(folders.values())).absolute().parent / TABLES)
    if settings.workers > 1:
        with bound_socket(replace(settings, workers=1)) as listener:  # a port in use is reported once
            settings = replace(settings, port=listener.getsockname()[1])
        loops()  # now, so that the workers share their memory
        if not is_worker(settings.workers, (signal.SIGINT, signal.SIGTERM, *_hangup())):
            return  # all workers have ended
    deadline = _Deadline(settings.stop_seconds)
    with _stopped_by_signals(deadline), contextlib.ExitStack() as stack, bound_socket(settings) as listener:

        def load() -> FastAPI:
            opened = {name: stack.enter_context(_open_store(folder, settings)) for name, folder in folders.items()}
            app = create_app(opened, settings)
            for store in app.state.stores.values():
                with contextlib.suppress(Exception):  # reported when the app starts, which does the same
                    store.answer_once()
            return app

        app = _interruptible(load, deadline)
        config = uvicorn_config(app, settings)
        _log_to_stderr(settings)
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        print(f"Serving {', '.join(folders)} on {url}; Ctrl+C stops it.", file=sys.stderr, flush=True)
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        gc.freeze()  # what is loaded stays, and need not be searched
        gc.set_threshold(*_GARBAGE_THRESHOLDS)
        _Server(config, app, deadline).run([listener])


def uvicorn_config(app: Any, settings: Settings) -> uvicorn.Config:
    """uvicorn's options. Its httptools parser is the faster one; h11 bounds the size of a request's head, which matters
    where other machines can connect."""
    return uvicorn.Config(
        app,
        http="httptools" if is_loopback(settings.host) else "h11",
        h11_max_incomplete_event_size=_MAX_HEAD,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # RequestMonitor has its own, with the names of keys and without ids
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.stop_seconds / 2),
    )


def _open_store(folder: Path, settings: Settings) -> Store:
    if settings.read_only:
        return Store.open(folder, readonly=True, light=True)
    try:
        return Store.open(folder, readonly=False)
    except StoreLockedError as error:
        raise StoreLockedError(f"{error} Serve it with --read-only.") from None


def _interruptible(work: Callable[[], T], deadline: _Deadline) -> T:
    """The result of some work in another thread, while this one loads the compiled loops.

    Python handles a signal between two steps of the main thread, and a step of the work can take minutes.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        loops()
        return result.result()
    except _Stop:
        deadline.final = True  # Python does not end before threads that work has started
        raise


@contextlib.contextmanager
def bound_socket(settings: Settings) -> Iterator[socket.socket]:
    """A listening socket, bound before any model is loaded, so that a port in use is reported at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.workers > 1:  # Linux divides the connections among the sockets of the workers
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Without it the system would buffer several megabytes that a client has not read.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux closes the connections of clients that do not read
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * _UNREAD_SECONDS))
        try:
            listener.bind((settings.host, settings.port))
            listener.listen(_BACKLOG)
        except OSError as error:
            address = f"{settings.host}:{settings.port}"
            raise ParameterError(f"{address}: cannot listen ({error.strerror}); choose another --port.") from None
        yield listener


class _Stop(BaseException):
    """A signal to stop arrived."""


@contextlib.contextmanager
def _stopped_by_signals(deadline: _Deadline) -> Iterator[None]:
    """Leave the block at SIGINT, SIGTERM or SIGHUP, also while models are loaded, and before the deadline. uvicorn
    handles the signals while it runs, and raises them again when it has stopped."""

    def stop(*_: object) -> None:
        deadline.start()
        raise _Stop

    numbers = (signal.SIGINT, signal.SIGTERM, *_hangup())
    handlers = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    except _Stop:
        pass
    finally:
        deadline.cancel()
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)


def _log_to_stderr(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    levels = {"ripml.server": logging.INFO, "uvicorn.error": logging.WARNING}
    if settings.access_log:
        levels["ripml.access"] = logging.INFO
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.addHandler(handler)


def _hangup() -> tuple[signal.Signals, ...]:
    """SIGHUP, where it exists and is not ignored, as `nohup` does."""
    number = getattr(signal, "SIGHUP", None)
    return () if number is None or signal.getsignal(number) == signal.SIG_IGN else (number,)


class _Deadline:
    """Ends the process some seconds after the first signal to stop, whatever it does, unless `cancel` is called.

    A store loses nothing by that, see `ripml.store`.
    """

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self.final = False  # whether `cancel` does nothing

    def start(self) -> None:
        """Start to count, unless it has begun."""
        with contextlib.suppress(RuntimeError):  # a second signal
            self._timer.start()

    def cancel(self) -> None:
        """Do not end the process."""
        if not self.final:
            self._timer.cancel()

    @staticmethod
    def _end() -> None:
        _log.warning("Stopped before everything in progress was done; nothing that was acknowledged is lost.")
        os._exit(0)


class _Server(uvicorn.Server):
    """uvicorn, with SIGHUP handled like SIGTERM, and /ready at 503 from the signal to stop on."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, deadline: _Deadline) -> None:
        super().__init__(config)
        self._app, self._deadline = app, deadline

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals; those that arrived are raised again at the end, when the handlers before are back."""
        with super().capture_signals():
            handlers = {number: signal.signal(number, self.handle_exit) for number in _hangup()}
            try:
                yield
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the requests in progress, while the models are saved."""
        for store in self._app.state.stores.values():
            store.save()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Start to stop."""
        self._app.state.status = "stopping"
        self._deadline.start()
        super().handle_exit(sig, frame)
