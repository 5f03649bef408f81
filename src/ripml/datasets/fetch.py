"""`get`: download the published original of a data set, and keep it only if its SHA-256 is the expected one.

Most originals have no published checksum: their entries have `sha256=None`. Such a file is downloaded, its checksum is
reported in the error, and the file is removed; to accept it, pass that checksum as `sha256=…`. `get` does not unpack
archives: Mulan's are RAR, which needs a separate tool.

The originals of the XMC repository have no fixed address, so they are not listed; download them by hand, or from a
mirror with `url=…`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ripml.base.errors import DataError, ParameterError
from ripml.datasets.catalogue import data_folder

__all__ = ["ORIGINALS", "Original", "get"]

_BLOCK: Final = 2**18


@dataclass(frozen=True)
class Original:
    """A published file."""

    url: str
    file: str
    sha256: str | None = None


def _mulan(file: str) -> Original:
    return Original(f"https://sourceforge.net/projects/mulan/files/datasets/{file}/download", file)


def _snap(file: str) -> Original:
    return Original(f"https://snap.stanford.edu/data/wikispeedia/{file}", file)


ORIGINALS: Final[dict[str, Original]] = {
    "bibtex": _mulan("bibtex.rar"),
    "delicious": _mulan("delicious.rar"),
    "eurlex": _mulan("eurlex-eurovoc-descriptors.rar"),
    "mediamill": _mulan("mediamill.rar"),
    "wikispeedia-articles": _snap("wikispeedia_articles_plaintext.tar.gz"),
    "wikispeedia-links": _snap("wikispeedia_paths-and-graph.tar.gz"),
}


def get(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    sha256: str | None = None,
    url: str | None = None,
    max_bytes: int = 2**31,
    timeout: float = 30.0,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Download an original into `folder/name/` and return its path; an existing file with the checksum is kept.

    Parameters
    ----------
    name : str
        One of `ORIGINALS`.
    folder : path, optional
        Default: the folder in RIPML_DATA.
    sha256 : str, optional
        The expected checksum, instead of the listed one; required if none is listed.
    url : str, optional
        A mirror to download from.
    max_bytes : int
        A larger file is an error.
    timeout : float
        Seconds to wait for the server's next bytes.
    progress : callable, optional
        Called with (bytes so far, total bytes or None if the server does not say).
    """
    if name not in ORIGINALS:
        raise ParameterError(f"there is no original '{name}'; known are {', '.join(ORIGINALS)}.")
    original = ORIGINALS[name]
    expected = (sha256 or original.sha256 or "").lower() or None
    address = url or original.url
    if urlsplit(address).scheme not in ("http", "https"):
        raise ParameterError(f"`url` must begin with http:// or https://; got {address}.")
    home = data_folder() if folder is None else Path(folder)
    if home is None:
        raise ParameterError("there is no folder to download into; pass `folder` or set RIPML_DATA.")
    target = home / name / original.file
    if expected is not None and target.is_file() and _sha256(target) == expected:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{original.file}-")
    except OSError as error:
        raise DataError(f"{target.parent}: cannot be written ({error.strerror}).") from None
    try:
        with os.fdopen(handle, "wb") as file:
            found = _download(address, file, max_bytes, timeout, progress)
        if expected is None:
            raise DataError(
                f"{address}: no checksum is known for this file; the download has sha256 {found} and was removed. "
                f"If you trust it, pass sha256='{found}'."
            )
        if found != expected:
            raise DataError(f"{address}: the file has sha256 {found}, not {expected}; it was removed.")
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target


def _download(
    url: str, file: Any, max_bytes: int, timeout: float, progress: Callable[[int, int | None], None] | None
) -> str:
    """Copy the URL into the file and return the SHA-256 of its bytes."""
    digest, done = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            if total is not None and total > max_bytes:
                raise DataError(
                    f"{url}: the file has {total} bytes, above the limit of {max_bytes}; raise `max_bytes`."
                )
            while block := response.read(_BLOCK):
                done += len(block)
                if done > max_bytes:
                    raise DataError(f"{url}: the file is above the limit of {max_bytes} bytes; raise `max_bytes`.")
                digest.update(block)
                file.write(block)
                if progress is not None:
                    progress(done, total)
    except urllib.error.HTTPError as error:
        with error:
            raise DataError(f"{url}: the server answered {error.code} {error.reason}.") from None
    except urllib.error.URLError as error:
        raise DataError(f"{url}: cannot be reached ({error.reason}).") from None
    except (OSError, HTTPException) as error:
        raise DataError(f"{url}: the download was interrupted ({error}).") from None
    if total is not None and done < total:
        raise DataError(f"{url}: the download stopped after {done} of {total} bytes.")
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
