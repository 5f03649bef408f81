"""API keys: who may ask, and who may change. The file has a line of JSON a key, {name, role, sha256, created}.

A key is 256 random bits, so nobody can guess one or try them all, and a plain SHA-256 hides it as well as anything:
salt and slowness protect passwords, which people choose.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import logging
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from ripml.base.errors import ParameterError

__all__ = ["ROLES", "Key", "KeyRing", "add_key", "list_keys", "remove_key"]

ROLES = ("read", "write")  # each may do what those before it may
_MOST = 100  # characters of a name
_log = logging.getLogger("ripml.server")


@dataclass(frozen=True)
class Key:
    """What is known of a key; the key itself is not."""

    name: str
    role: str
    sha256: str
    created: str

    def may(self, role: str) -> bool:
        """Whether its role is at least this one."""
        return ROLES.index(self.role) >= ROLES.index(role)


def add_key(file: Path, name: str, role: str = "read") -> str:
    """Make a key, enter it in the file (which is created, readable by its owner only) and return it, this once.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = add_key(Path(folder) / "keys.jsonl", "ana", "write")
    ...     [(known.name, known.role) for known in list_keys(Path(folder) / "keys.jsonl")]
    [('ana', 'write')]
    """
    if role not in ROLES:
        raise ParameterError(f"a role is read or write; got {role!r}.")
    if not name or len(name) > _MOST or not name.isprintable():
        raise ParameterError(f"a key's name has 1 to {_MOST} printable characters; got {name!r}.")
    with _turn(file):
        known = list_keys(file) if file.exists() else []
        if any(key.name == name for key in known):
            raise ParameterError(f"{file}: there is a key {name!r} already; remove it first, or choose another name.")
        key = secrets.token_urlsafe(32)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        _write(file, [*known, Key(name, role, _digest(key), now)])
    return key


def remove_key(file: Path, name: str) -> None:
    """Take a key out of the file; a server that runs refuses it from then on.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = add_key(Path(folder) / "keys.jsonl", "ana")
    ...     remove_key(Path(folder) / "keys.jsonl", "ana")
    ...     list_keys(Path(folder) / "keys.jsonl")
    []
    """
    with _turn(file):
        known = list_keys(file)
        left = [key for key in known if key.name != name]
        if len(left) == len(known):
            raise ParameterError(f"{file}: there is no key {name!r}.")
        _write(file, left)


def list_keys(file: Path) -> list[Key]:
    """The keys of a file, in the order in which they were added.

    >>> list_keys(Path("no/such/file"))
    Traceback (most recent call last):
    ripml.base.errors.ParameterError: no/such/file: this file of keys cannot be read (No such file or directory).
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ParameterError(f"{file}: this file of keys cannot be read ({reason}).") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            key = Key(**json.loads(line))
            valid = all(isinstance(value, str) for value in asdict(key).values()) and key.role in ROLES
        except (ValueError, TypeError, RecursionError):
            valid = False
        if not valid:
            raise ParameterError(f"{file}:{number}: this is no key; `ripml keys add` makes one.")
        found.append(key)
    return found


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


@contextlib.contextmanager
def _turn(file: Path) -> Iterator[None]:
    """Keep others from changing the file meanwhile. It is replaced, so the lock is on its folder."""
    try:
        folder = os.open(file.resolve().parent, os.O_RDONLY)
    except OSError as error:
        raise ParameterError(f"{file}: this file of keys cannot be written ({error.strerror}).") from None
    try:
        with contextlib.suppress(OSError):  # network file systems that cannot lock a folder
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(file: Path, keys: list[Key]) -> None:
    """Replace the file as a whole, or the one that it links to; a temporary file is its owner's only (0600), and its
    renaming keeps that."""
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
        raise ParameterError(f"{file}: this file of keys cannot be written ({error.strerror}).") from None


class KeyRing:
    """The keys of a file, read again when it changes. One that cannot be read any more lets nobody in.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = add_key(Path(folder) / "keys.jsonl", "ana")
    ...     KeyRing(Path(folder) / "keys.jsonl").owner(key).name
    'ana'
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp, self._keys = self._look(), list_keys(file)
        if not self._keys:
            raise ParameterError(f"{file}: this file of keys is empty; `ripml keys add {file} NAME` makes one.")

    def owner(self, key: str) -> Key | None:
        """The known key that this is."""
        if (stamp := self._look()) != self._stamp:
            self._stamp = stamp
            try:
                self._keys = list_keys(self._file)
            except ParameterError as error:
                self._keys = []
                _log.error("%s Nobody is let in until it can be read.", error)
        digest, found = _digest(key), None
        for known in self._keys:
            if hmac.compare_digest(known.sha256.encode(), digest.encode()):
                found = known
        return found

    def _look(self) -> tuple[int, ...]:
        """What tells the file from a changed one."""
        try:
            seen = self._file.stat()
        except OSError:
            return ()
        return seen.st_ino, seen.st_size, seen.st_mtime_ns
