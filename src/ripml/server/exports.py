"""Exports: all documents of a store as a download."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ripml.store import Store

__all__ = ["MEDIA_TYPE", "ExportResponse", "export_file"]

MEDIA_TYPE = "application/x-ndjson"
_PIECE = 262_144  # bytes that are read at once


def export_file(store: Store) -> BinaryIO:
    """A temporary file with all documents of one moment as JSONL, which disappears when it is closed.

    A client that reads slowly must not keep a transaction of the database open, because the log would grow.
    """
    with tempfile.TemporaryDirectory(prefix="ripml-export-") as folder:
        path = Path(folder) / "documents.jsonl"
        store.export(path, "jsonl")
        return path.open("rb")


class ExportResponse(StreamingResponse):
    """A file as a download; `read` runs a method of the file in a thread, and `ended` is called at the end."""

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        read: Callable[[Callable[[int], bytes], int], Awaitable[bytes]],
        ended: Callable[[], None],
    ) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            while piece := await read(file.read, _PIECE):
                yield piece

        headers = {
            "Content-Length": str(os.fstat(file.fileno()).st_size),
            "Content-Disposition": f'attachment; filename="{name}.jsonl"',
        }
        super().__init__(pieces(), headers=headers, media_type=MEDIA_TYPE)
        self._file, self._ended = file, ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()
            self._ended()
