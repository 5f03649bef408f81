"""Where bytes come from and go to: a path, "-" (standard input or output) or an open binary file, gzipped or not.

Gzip is recognised by its first two bytes, not by the name. Text is read in chunks of whole lines, so memory is bounded
by the chunk and not by the file, and every chunk has its line number for messages. A folder can be opened too, for
formats that are folders; reading bytes from it is an error.

Text is UTF-8. UTF-16 and UTF-32 are recognised by their first bytes and turned into UTF-8 while they are read. Tables
and documents that people write may also be Windows-1252, see `text_lines`.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import logging
import os
import sys
import unicodedata
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
_WIDE_MARKS: Final = (  # the longest first, because UTF-32 begins as UTF-16 does; UTF-8 never begins like these
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)

CHUNK_BYTES: Final = 2**21
MAX_LINE_BYTES: Final = 2**28  # unless RIPML_MAX_LINE_BYTES says otherwise
_HEAD_BYTES: Final = 2**16
_MAX_SENTENCE: Final = 600
_GZIP_MAGIC: Final = b"\x1f\x8b"
_OTHER_KINDS: Final = {  # by their first bytes
    b"\x89PNG": "a picture", b"\xff\xd8\xff": "a picture", b"GIF8": "a picture", b"%PDF-": "a PDF",
    b"PK\x03\x04": "a zip archive, such as a file of Excel or Word,", b"PAR1": "a Parquet file",
    b"\xd0\xcf\x11\xe0": "a file of an old office program", b"SQLite format 3": "a database",
}  # fmt: skip
_INSIDE_WORDS: Final = frozenset("’‘´·\xad–—\xa0…")  # marks of Windows-1252 that can stand between two letters
_ODD_SHARE: Final = 0.25  # of the characters that are not ASCII: with more that are odd, it is another encoding

_log = logging.getLogger("ripml.reading")


def fault(name: str, line: int | None, sentence: str) -> DataError:
    """Return the error for a mistake in a file: `name:line: sentence`, shortened if it quotes something long."""
    if len(sentence) > _MAX_SENTENCE:
        sentence = f"{sentence[: _MAX_SENTENCE // 2]}…{sentence[-_MAX_SENTENCE // 2 :]}"
    return DataError(f"{name}: {sentence}" if line is None else f"{name}:{line}: {sentence}")


def check_no_other_kind(source: Source) -> None:
    """Raise if a file that should be text begins as one of another kind does.

    >>> with open_source(io.BytesIO(b"%PDF-1.4")) as source:
    ...     check_no_other_kind(source)
    Traceback (most recent call last):
    ripml.base.errors.DataError: <file>: this is a PDF and not text; give the file the ending of its kind.
    """
    head = source.head()
    kind = next((kind for first, kind in _OTHER_KINDS.items() if head.startswith(first)), None)
    if kind is not None:
        raise fault(source.name, None, f"this is {kind} and not text; give the file the ending of its kind.")
    if b"\0" in source.first_line():
        raise fault(source.name, None, "this is not text: its first line has a byte of zero.")


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
    encoding: str = "utf-8"  # of the file; the bytes here are UTF-8, if they are text
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

    def recode(self, encoding: str) -> None:
        """Read the rest, of which at most the head was read ahead, as text of this encoding, and give it as UTF-8."""
        try:
            codecs.lookup(encoding)
            "".encode(encoding)  # raises for encodings of bytes, such as "hex"
        except (LookupError, TypeError, UnicodeError):
            raise ParameterError(f"`encoding` must be a name such as 'utf-8' or 'cp1250'; got {encoding!r}.") from None
        if self.encoding != "utf-8":  # its first bytes have said what it is
            return
        self.stream = io.BufferedReader(_Recoded(self.name, self._head, self.stream, encoding), 2**16)
        self._head, self.encoding = b"", encoding

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number of the first line, whole lines); only the last chunk may lack the final newline."""
        line, longest, ahead = 1, _max_line_bytes(), self._head
        rest, length = list[bytes](), 0
        while True:
            block, ahead = ahead[:CHUNK_BYTES], ahead[CHUNK_BYTES:]
            if len(block) < CHUNK_BYTES:
                block += self._take(self.stream.read, CHUNK_BYTES - len(block))
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


class _Recoded(io.RawIOBase):
    """Text of another encoding, read as UTF-8."""

    def __init__(self, name: str, head: bytes, stream: io.BufferedReader, encoding: str) -> None:
        super().__init__()
        self._name, self._stream, self._encoding = name, stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._n_bytes, self._ended = len(head), False
        self._ready = self._recoded(head)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            block = self._stream.read1(2**16)
            self._n_bytes += len(block)
            self._ended = not block
            self._ready = self._recoded(block)
        n = min(len(buffer), len(self._ready))
        buffer[:n], self._ready = self._ready[:n], self._ready[n:]
        return n

    def _recoded(self, block: bytes) -> bytes:
        try:
            return self._decoder.decode(block, self._ended).encode()
        except UnicodeError:
            place = f"the text is not {self._encoding} near byte {self._n_bytes:,}"
            raise fault(self._name, None, f"{place}; save the file as UTF-8.") from None


def text_lines(
    source: Source, encoding: str | None = None, remedy: str = "save the file as UTF-8"
) -> Iterator[tuple[int, str]]:
    """Yield (line number, line as text): UTF-8, or Windows-1252 if a line is not UTF-8 and all before it are ASCII.

    Windows-1252 gives a character for nearly every byte, so text of another encoding would be read as other letters:
    what does not look like words of Windows-1252 is an error with this remedy.

    >>> lines = io.BytesIO("a\\ncafé\\n".encode("cp1252"))
    >>> with open_source(lines) as source:
    ...     list(text_lines(source))
    [(1, 'a'), (2, 'café')]
    """
    if encoding is not None:
        source.recode(encoding)
    wide = False  # whether there was a mark or a character of UTF-8 that is not ASCII
    words: _Windows1252 | None = None
    for number, line in source.lines():
        where = (source.name, number)
        if line.isascii():
            yield number, line.decode()
            continue
        if words is None:
            if wide or encoding is not None or _is_utf8(line):
                yield number, decode(line, where)
                wide = True
                continue
            words = _Windows1252()
        is_first = not words.n_wide
        text = None if _is_utf8(line) else words.decoded(line)
        if text is None:
            raise fault(*where, f"the line is neither UTF-8 nor, as it seems, Windows-1252; {remedy}.")
        if is_first:
            _log.info("%s: read as Windows-1252, because line %d is not UTF-8", source.name, number)
        yield number, text


def text_of(name: str, content: bytes, encoding: str | None) -> str:
    """Return bytes as text: of this encoding if they can be, else as `text_lines` reads them.

    >>> text_of("a message", "café".encode("cp1252"), "us-ascii")
    'café'
    """
    try:
        if encoding is not None and encoding not in ("us-ascii", "ascii", "iso-8859-1", "latin-1"):
            return content.decode(encoding)
    except (LookupError, UnicodeError):
        pass
    source = Source(name, io.BufferedReader(io.BytesIO(content)))
    return "\n".join(line for _, line in text_lines(source))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _Windows1252:
    """Decodes lines of Windows-1252 as long as they look like words."""

    def __init__(self) -> None:
        self._n_odd = self.n_wide = 0

    def decoded(self, line: bytes) -> str | None:
        """The line as text; None if this or the lines before look like another encoding."""
        try:
            text = line.decode("cp1252")
        except UnicodeDecodeError:
            return None
        around = f" {text} "
        run = 0
        for before, char, after in zip(around, text, around[2:], strict=False):
            if char.isascii():
                run = 0
                continue
            self.n_wide += 1
            is_letter = unicodedata.category(char)[0] == "L" and char not in "ªºÿƒ"
            run = run + 1 if is_letter else 0
            # Cyrillic, Greek and Asian text gives rows of such letters, Polish and text of DOS signs between letters,
            # and Mac Roman capitals in the middle of words.
            between = not is_letter and before.isalpha() and after.isalpha() and char not in _INSIDE_WORDS
            capital = is_letter and char.isupper() and before.islower()
            self._n_odd += run >= 3 or between or capital or char == "ÿ"
        return None if self._n_odd > _ODD_SHARE * self.n_wide else text


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
        first = source._take(source.stream.peek, 4)[:4]
        if (wide := _wide_encoding(first)) is not None:
            source.recode(wide)
        yield source
    finally:
        raw.detach()  # otherwise collecting `raw` would close the caller's file


def _wide_encoding(first: bytes) -> str | None:
    """The encoding of a file with these first bytes, if its characters have two or four bytes each.

    >>> _wide_encoding(codecs.BOM_UTF16_BE), _wide_encoding(b"t\\0e\\0"), _wide_encoding(b"text")
    ('utf-16', 'utf-16-le', None)
    """
    for mark, encoding in _WIDE_MARKS:
        if first.startswith(mark):
            return encoding
    zeros = "".join("0" if byte == 0 else "x" for byte in first)  # Latin letters in UTF-16 have one byte of zero
    return {"x0x0": "utf-16-le", "0x0x": "utf-16-be"}.get(zeros)
