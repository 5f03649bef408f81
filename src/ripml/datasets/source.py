"""Where bytes come from and go to: a path, "-" (standard input or output) or an open binary file, gzipped or not.

Gzip is recognised by its first two bytes, not by the name. Text is read in chunks of whole lines, so memory is bounded
by the chunk and not by the file, and every chunk has its line number for messages. A folder can be opened too, for
formats that are folders; reading bytes from it is an error.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from ripml.base.errors import DataError, ParameterError
from ripml.base.parallel import available_memory

Place: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
Where: TypeAlias = "tuple[str, int | None]"  # a file and one of its lines: the first arguments of `fault`

BOM: Final = b"\xef\xbb\xbf"  # the byte order mark that some programs write before UTF-8
UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins; UTF-8 never does

CHUNK_BYTES: Final = 2**21
MAX_LINE_BYTES: Final = 2**28  # unless RIPML_MAX_LINE_BYTES says otherwise
_HEAD_BYTES: Final = 2**16
_MAX_SENTENCE: Final = 600
_GZIP_MAGIC: Final = b"\x1f\x8b"


def fault(name: str, line: int | None, sentence: str) -> DataError:
    """Return the error for a mistake in a file: `name:line: sentence`, shortened if it quotes something long."""
    if len(sentence) > _MAX_SENTENCE:
        sentence = f"{sentence[: _MAX_SENTENCE // 2]}…{sentence[-_MAX_SENTENCE // 2 :]}"
    return DataError(f"{name}: {sentence}" if line is None else f"{name}:{line}: {sentence}")


def unreadable(name: str, error: OSError) -> DataError:
    """Return the error for a file that the operating system cannot open or read."""
    reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    return DataError(f"{name}: cannot be read ({reason}).")


def decode(line: bytes, where: Where) -> str:
    """Return a line as text, the first line without a byte order mark; raise if it is not UTF-8.

    >>> decode(b"ma\\xc3\\xb1ana", ("file", 1))
    'mañana'
    """
    try:
        return (line.removeprefix(BOM) if where[1] == 1 else line).decode("utf-8")
    except UnicodeDecodeError as error:
        if line.startswith(UTF_16):
            raise fault(*where, "this is UTF-16; save the file as UTF-8.") from None
        raise fault(*where, f"byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8.") from None


def encode(text: str, row: int) -> bytes:
    """Return the UTF-8 of a row's text; raise if there is none."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"row {row} contains half of a surrogate pair, which UTF-8 cannot encode.") from None


@dataclass
class Source:
    """Decompressed bytes with a name for messages."""

    name: str
    stream: io.BufferedReader
    folder: Path | None = None  # the path, if this is a folder: then there are no bytes
    _head: bytes = b""  # read ahead from the stream, not yet returned by `chunks`

    def head(self) -> bytes:
        """Return the beginning, with the whole first line if that has a usual length; consumes nothing."""
        while b"\n" not in self._head and len(self._head) < _HEAD_BYTES:
            more = self._take(self.stream.read1, _HEAD_BYTES)  # a slow pipe may give less than a line
            if not more:
                break
            self._head += more
        return self._head

    def first_line(self) -> bytes:
        """Return the first line of `head`, without a byte order mark and the newline."""
        return self.head().removeprefix(BOM).partition(b"\n")[0]

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number of the first line, whole lines); only the last chunk may lack the final newline."""
        line, longest = 1, _max_line_bytes()
        rest, length = [self._head], len(self._head)
        while True:
            block = self._take(self.stream.read, CHUNK_BYTES)
            cut = block.rfind(b"\n") + 1
            if block and not cut:  # a line longer than the chunk
                rest.append(block)
                length += len(block)
                if length > longest:  # a few MB of gzip hold gigabytes of zeros
                    raise fault(
                        self.name,
                        line,
                        f"the line has more than the {longest:,} bytes that a line may have; is this a text file? "
                        "For longer lines, set the environment variable RIPML_MAX_LINE_BYTES.",
                    )
                continue
            chunk = b"".join((*rest, block[:cut]))
            if chunk:
                yield line, chunk
            if not block:
                return
            line += chunk.count(b"\n")
            rest, length = [block[cut:]], len(block) - cut

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (line number, line without its newline)."""
        for first, chunk in self.chunks():
            yield from enumerate(chunk.removesuffix(b"\n").split(b"\n"), first)

    def read(self) -> bytes:
        """Return everything: for small files. Raise if it takes more than half of the free memory."""
        chunks: list[bytes] = []
        size, limit = 0, available_memory() // 2  # the other half is for joining them
        for _, chunk in self.chunks():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise fault(self.name, None, f"this has more than {limit} bytes, which do not fit into memory.")
        return b"".join(chunks)

    def _take(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            if self.folder is not None:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            return read(size)
        except EOFError:
            raise fault(self.name, None, "the gzip data ends too early; the file is truncated.") from None
        except (gzip.BadGzipFile, zlib.error):
            raise fault(self.name, None, "the gzip data is damaged.") from None
        except OSError as error:
            raise unreadable(self.name, error) from None


def _max_line_bytes() -> int:
    given = os.environ.get("RIPML_MAX_LINE_BYTES", str(MAX_LINE_BYTES))
    if not given.isdigit() or not int(given):
        raise ParameterError(f"RIPML_MAX_LINE_BYTES must be a whole number of bytes > 0; got {given!r}.")
    return int(given)


@contextmanager
def open_source(place: Place) -> Iterator[Source]:
    """Open for reading; closes only what it opened."""
    name = os.fspath(place) if isinstance(place, (str, os.PathLike)) else None
    if name is not None and name != "-":
        if os.path.isdir(name):
            yield Source(name, io.BufferedReader(io.BytesIO()), Path(name))
            return
        try:
            file = open(name, "rb", buffering=0)  # noqa: SIM115  # closed by the `with` below
        except OSError as error:
            raise unreadable(name, error) from None
        with file, _decompressed(name, file) as source:
            yield source
        return
    file_name = "<stdin>" if name else str(getattr(place, "name", "<file>"))
    with _decompressed(file_name, sys.stdin.buffer if name else _checked_binary(place)) as source:
        yield source


@contextmanager
def open_target(place: Place) -> Iterator[IO[bytes]]:
    """Open for writing; a path that ends in .gz is compressed. Closes only what it opened."""
    name = os.fspath(place) if isinstance(place, (str, os.PathLike)) else None
    if name is not None and name != "-":
        try:
            file = open(name, "wb")  # noqa: SIM115  # closed by the `with` below
        except OSError as error:
            raise DataError(f"{name}: cannot be written ({error.strerror or error}).") from None
        with file:
            if name.endswith(".gz"):
                # No time and no name inside: the same data gives the same bytes.
                packed: Any = gzip.GzipFile("", "wb", 6, file, mtime=0)
                with packed:
                    yield packed
            else:
                yield file
        return
    target = sys.stdout.buffer if name else _checked_binary(place)
    yield target
    target.flush()


def _checked_binary(file: Any) -> IO[bytes]:
    if isinstance(file, io.TextIOBase) or not hasattr(file, "read"):
        raise ParameterError(f"expected a path, '-' or a file open in binary mode; got {type(file).__name__}.")
    binary: IO[bytes] = file
    return binary


@contextmanager
def _decompressed(name: str, file: Any) -> Iterator[Source]:
    raw = io.BufferedReader(file, 2**16)  # needs only readinto() of the file; typing has no protocol for that
    try:
        source = Source(name, raw)
        if source._take(raw.peek, 2)[:2] == _GZIP_MAGIC:
            unpacked: Any = gzip.GzipFile(fileobj=raw)
            source = Source(name, io.BufferedReader(unpacked, 2**16))
        yield source
    finally:
        raw.detach()  # otherwise collecting `raw` would close the caller's file
