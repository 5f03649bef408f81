"""API keys and their roles. A key file has one JSON object per line: {name, role, sha256, created}.

A key is 256 random bits, so a plain SHA-256 cannot be reversed by guessing; salts and slow hashes are for passwords,
which people choose.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from ripml.base import platform
from ripml.base.errors import ParameterError

__all__ = ["ROLES", "Key", "KeyRing", "add_key", "includes", "list_keys", "remove_key"]

ROLES = ("read", "write")  # each includes the ones before it
_MAX_NAME = 100  # characters
_log = logging.getLogger("ripml.server")


@dataclass(frozen=True)
class Key:
    """An entry of a key file; it has the hash of the key, not the key."""

    name: str
    role: str
    sha256: str
    created: str

    def allows(self, role: str) -> bool:
        """Whether the key may do what a role may."""
        return includes(self.role, role)


def includes(role: str, other: str) -> bool:
    """Whether a role may do what another one may.

    >>> includes("write", "read"), includes("read", "write")
    (True, False)
    """
    return ROLES.index(role) >= ROLES.index(other)


def add_key(file: Path, name: str, role: str = "read") -> str:
    """Make a key, add it to the file (created if missing, readable by its owner only) and return it.

    The file has only the hash: nothing can show the key again.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = add_key(Path(folder) / "keys.jsonl", "ana", "write")
    ...     [(entry.name, entry.role) for entry in list_keys(Path(folder) / "keys.jsonl")]
    [('ana', 'write')]
    """
    if role not in ROLES:
        raise ParameterError(f"a role must be read or write; got {role!r}.")
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise ParameterError(f"a key's name must have 1 to {_MAX_NAME} printable characters; got {name!r}.")
    with _locked(file):
        keys = list_keys(file) if file.exists() else []
        if any(key.name == name for key in keys):
            raise ParameterError(f"{file}: a key named {name!r} exists; remove it first, or choose another name.")
        key = secrets.token_urlsafe(32)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        _write(file, [*keys, Key(name, role, _digest(key), now)])
    return key


def remove_key(file: Path, name: str) -> None:
    """Remove a key from the file; a running server refuses it from then on.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = add_key(Path(folder) / "keys.jsonl", "ana")
    ...     remove_key(Path(folder) / "keys.jsonl", "ana")
    ...     list_keys(Path(folder) / "keys.jsonl")
    []
    """
    with _locked(file):
        keys = list_keys(file)
        kept = [key for key in keys if key.name != name]
        if len(kept) == len(keys):
            raise ParameterError(f"{file}: no key is named {name!r}.")
        _write(file, kept)


def list_keys(file: Path) -> list[Key]:
    """The keys of a file, oldest first.

    >>> list_keys(Path("no/such/file"))
    Traceback (most recent call last):
    ripml.base.errors.ParameterError: no/such/file: the key file cannot be read (No such file or directory).
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ParameterError(f"{file}: the key file cannot be read ({reason}).") from None
    keys = []
    for number, line in enumerate(lines, 1):
        try:
            key = Key(**json.loads(line))
            valid = all(isinstance(value, str) for value in asdict(key).values()) and key.role in ROLES
        except (ValueError, TypeError, RecursionError):
            valid = False
        if not valid:
            raise ParameterError(f"{file}:{number}: this line is not a key; add keys with `ripml keys add`.")
        keys.append(key)
    return keys


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Keep other processes from changing the file. The file is replaced, so the lock is on its folder."""
    try:
        folder = platform.open_folder(file.resolve().parent)
    except OSError as error:
        raise ParameterError(f"{file}: the key file cannot be written ({error.strerror}).") from None
    try:
        if folder is not None:
            with contextlib.suppress(OSError):  # some network file systems cannot lock a folder
                platform.lock(folder, wait=True)
        yield
    finally:
        if folder is not None:
            os.close(folder)


def _write(file: Path, keys: list[Key]) -> None:
    """Replace the file, or the one that it links to, at once; a temporary file has mode 0600, and renaming keeps it."""
    file = file.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.writelines(json.dumps(asdict(key), ensure_ascii=False) + "\n" for key in keys)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(name, file)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ParameterError(f"{file}: the key file cannot be written ({error.strerror}).") from None


def _by_digest(keys: list[Key]) -> dict[str, Key]:
    return {key.sha256: key for key in keys}


class KeyRing:
    """The keys of a file, read again when it changes. While it cannot be read, no key is accepted.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = add_key(Path(folder) / "keys.jsonl", "ana")
    ...     KeyRing(Path(folder) / "keys.jsonl").find(key).name
    'ana'
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._state, self._keys = self._file_state(), _by_digest(list_keys(file))
        if not self._keys:
            raise ParameterError(f"{file}: the key file is empty; add a key with `ripml keys add {file} NAME`.")

    def find(self, key: str) -> Key | None:
        """The entry of a key, if it is in the file.

        Costs one hash and one look-up, however many keys there are. A table of hashes reveals nothing by its timing:
        whoever guesses keys cannot choose their hashes.
        """
        if (state := self._file_state()) != self._state:
            self._state = state
            try:
                self._keys = _by_digest(list_keys(self._file))
            except ParameterError as error:
                self._keys = {}
                _log.error("%s No key is accepted until it can be read.", error)
        return self._keys.get(_digest(key))

    def _file_state(self) -> tuple[int, ...]:
        """Numbers that differ when the file has changed."""
        try:
            status = self._file.stat()
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns
