"""The settings of a server: its address, its callers and its limits."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from pathlib import Path

from ripml.base.errors import ParameterError, check_count, is_number

__all__ = ["Settings", "is_loopback"]

_ORIGIN = re.compile(r"https?://[^/\s*?#@]+")
_REMOTE_RATE = 100.0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Settings:
    """The settings of a server.

    >>> Settings(port=9000).max_texts
    1000
    >>> Settings(host="0.0.0.0")
    Traceback (most recent call last):
    ripml.base.errors.ParameterError: 0.0.0.0 can be reached from other machines, so API keys are required; make one
    with `ripml keys add FILE NAME` and pass --keys FILE.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    keys: Path | None = None
    allowed_hosts: tuple[str, ...] = ()  # further names of the server in the Host header
    origins: tuple[str, ...] = ()  # of web pages on other servers that may call this one
    read_only: bool = False
    warm: bool = False  # prepare for the first change at the start, and after a refit
    workers: int = 1  # processes, of a server that is read-only
    access_log: bool = False
    backups: Path | None = None  # the folder that backups are written to; None: no backups over HTTP
    tables: Path | None = None  # the folder of tables that are tagged in the background; None: no tables over HTTP
    max_table: int = 100_000_000  # bytes of a table that is sent
    max_body: int = 5_000_000  # bytes
    max_text: int = 1_000_000  # characters
    max_texts: int = 1000  # texts, documents or ids of a request
    max_labels: int = 1000  # of a document
    max_vocabulary: int = 50_000_000  # bytes of a vocabulary that is sent as a file
    max_requests: int = 256  # at the same time
    max_bytes: int = 128_000_000  # of bodies and large responses at the same time
    rate: float | None = None  # requests per second and caller; 0: no limit; None: none on loopback, else 100
    max_batch: int = 64  # texts of several requests that are scored together
    body_seconds: float = 60.0  # until a body must have arrived
    read_seconds: float = 30.0  # in which a client must read 64 KB of a large response
    stop_seconds: float = 1.2  # after a signal to stop: half for the requests in progress, half for the last snapshot

    def __post_init__(self) -> None:
        for name in (
            "max_body",
            "max_table",
            "max_text",
            "max_texts",
            "max_labels",
            "max_vocabulary",
            "max_requests",
            "max_bytes",
            "max_batch",
            "workers",
        ):
            check_count(name, getattr(self, name))
        check_count("port", self.port, least=0)
        if self.port > 65535:
            raise ParameterError(f"`port` must be at most 65535; got {self.port}.")
        if self.rate is not None and not (is_number(self.rate) and 0 <= self.rate < math.inf):
            raise ParameterError(f"`rate` must be a finite number ≥ 0; got {self.rate!r}.")
        for name in ("body_seconds", "read_seconds", "stop_seconds"):
            seconds = getattr(self, name)
            if not (is_number(seconds) and 0 < seconds < math.inf):
                raise ParameterError(f"`{name}` must be a finite number > 0; got {seconds!r}.")
        if self.workers > 1 and not self.read_only:
            raise ParameterError("several `workers` need a server that is read-only: one process at a time writes.")
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise ParameterError(f"an origin is like https://example.org, without a path or *; got {origin!r}.")
        if self.keys is None and not is_loopback(self.host):
            remedy = "make one with `ripml keys add FILE NAME` and pass --keys FILE"
            raise ParameterError(f"{self.host} can be reached from other machines, so API keys are required; {remedy}.")

    @property
    def requests_per_second(self) -> float:
        """The limit of each caller; 0 for none."""
        if self.rate is not None:
            return self.rate
        return 0.0 if is_loopback(self.host) else _REMOTE_RATE
