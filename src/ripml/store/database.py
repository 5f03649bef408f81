"""The files of a store: the SQLite database, how one writer and any number of readers open it, and the writer's lock.

    store/
      store.db (+ -wal, -shm)     documents, labels and the journal
      model-000000000042/         a model folder: the model after change 42
      writer.lock                 locked (flock) by the one writer; contains its process id
      store.db.part               an unfinished database: the store is being created, or its creation was interrupted

The database is in WAL mode with synchronous=FULL: a transaction is on the disk when its commit returns, and a reader
sees the database either before or after it. The last step of creating a store is to rename `store.db.part`; before the
rename there is no store, after it the store is complete.

How a reader opens the database. While `store.db-wal` exists, with mode=ro: the reader takes part in SQLite's locking
and writes nothing but its mark in the shared memory of `-shm`. Without a `-wal` file, everything is in `store.db`, and
mode=ro would create `-wal` and `-shm`, which a read-only file system forbids. The file is then opened as immutable, and
after the query it must be unchanged and `-wal` still be absent. A writer creates `-wal` before it changes anything, so
both together mean that nothing changed during the query; otherwise the query is run again.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from ripml.base.errors import RipmlError, StoreError, StoreLockedError

__all__ = [
    "SCHEMA",
    "Database",
    "WriterLock",
    "check_store",
    "create_database",
    "is_unfinished",
    "remove_leftovers",
    "remove_unfinished",
]

FILE, PART, LOCK = "store.db", "store.db.part", "writer.lock"
_MODEL = re.compile(r"model-[0-9]{12}")
_APPLICATION, _FORMAT = 0x5269704D, 1
_BUSY_SECONDS = 10.0  # how long to wait for other programs that lock the database; ripml has a single writer
_ATTEMPTS = 20  # to read a file that writers keep changing
SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    "CREATE TABLE documents (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL, "
    "labelset BLOB NOT NULL)",
    "CREATE INDEX documents_labelset ON documents (labelset)",
    # A removed label has no name; `was` is its last name, and the row is deleted at the next snapshot. `key` determines
    # the column of Phi; `changed` is the number of the last change that touched the label.
    "CREATE TABLE labels (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, was TEXT, key BLOB NOT NULL, "
    "declared INTEGER NOT NULL, retired INTEGER NOT NULL, changed INTEGER NOT NULL)",
    "CREATE INDEX labels_key ON labels (key)",
    "CREATE INDEX labels_changed ON labels (changed)",
    "CREATE TABLE document_labels (document INTEGER NOT NULL REFERENCES documents, "
    "label INTEGER NOT NULL REFERENCES labels, PRIMARY KEY (document, label)) WITHOUT ROWID",
    "CREATE INDEX document_labels_label ON document_labels (label)",
    # An undo journal: `labels` and `body` describe the document before the change. Bodies are kept until the next
    # snapshot, labels until `compact`.
    "CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "document INTEGER, labels TEXT, body BLOB, detail TEXT)",
    "CREATE INDEX changes_document ON changes (document)",
)

T = TypeVar("T")


def _reason(error: sqlite3.Error) -> str:
    """SQLite's error in the words of a store."""
    message = str(error)
    for phrase, reason in (
        ("is full", "the disk is full"),
        ("not a database", f"{FILE} is not a database"),
        ("malformed", f"{FILE} is damaged"),
        ("no such", f"{FILE} is not the database of a store ({message})"),
        ("locked", "another program has locked the database"),
        ("readonly", "the folder cannot be written"),
        ("read-only", "the folder cannot be written"),
    ):
        if phrase in message:
            return reason
    return f"{FILE} cannot be used ({message})"


class WriterLock:
    """The right to write to a store, held by one process at a time; the system frees it when the process dies.

    A forked child does not inherit the lock: it belongs to the process that took it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = WriterLock(Path(folder))
    ...     lock.release()
    """

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(folder / LOCK, flags, 0o666)
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written ({error.strerror}); it can only be read.") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"{os.getpid()}\n".encode())
        except BlockingIOError as error:
            pid = os.read(self._fd, 20).decode("ascii", "replace").strip()
            os.close(self._fd)
            owner = f"process {pid}" if pid else "another process"
            raise StoreLockedError(f"{folder}: is open for writing by {owner}; it can be read meanwhile.") from error
        except OSError as error:
            os.close(self._fd)
            raise StoreError(f"{folder}: cannot be locked for writing ({error.strerror}).") from error
        self.held = True
        _locks.add(self)

    def release(self) -> None:
        """Unlock the store. The file stays, because another process may be about to lock it."""
        if self.held:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            self.drop()

    def drop(self) -> None:
        """Close the lock file without unlocking it for other processes that have it open: a child's parent."""
        self.held = False
        os.close(self._fd)


_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _drop_inherited_locks() -> None:
    for lock in _locks:
        if lock.held:
            lock.drop()


os.register_at_fork(after_in_child=_drop_inherited_locks)


class Database:
    """The database of an existing store: `read` for everyone, `transaction` for the writer."""

    def __init__(self, folder: Path, writable: bool) -> None:
        self._folder = folder
        self._writer: sqlite3.Connection | None = None
        check_store(folder)
        self._opened = self.identity()
        self.read(_check_schema)
        if writable:
            with self._errors_explained("nothing was changed"):
                self._writer = _connect(folder / FILE, "rw")

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a query on the database as it is at one moment. Readers never wait for the writer."""
        for _ in range(_ATTEMPTS):
            before = self._stamp()
            mode = "ro" if before is None else "immutable"
            try:
                with self._errors_explained(), closing(_connect(self._folder / FILE, mode)) as connection:
                    connection.execute("BEGIN")
                    result = query(connection)
            except (RipmlError, TypeError, ValueError, KeyError, IndexError) as error:
                if before is not None and before != self._stamp():
                    continue
                if isinstance(error, RipmlError):
                    raise
                raise StoreError(f"{self._folder}: {FILE} is damaged ({error}).") from error
            if before is None or before == self._stamp():
                return result
        raise StoreError(f"{self._folder}: this store changes faster than it can be read; try again.")

    def identity(self) -> tuple[int, int]:
        """What distinguishes the database from another file of the same name, such as a restored copy."""
        status = self._status()
        return status.st_dev, status.st_ino

    def _stamp(self) -> tuple[int, ...] | None:
        """What changes whenever the file is written; None while there is a log, through which SQLite reads safely."""
        if (self._folder / f"{FILE}-wal").exists():
            return None
        status = self._status()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def _status(self) -> os.stat_result:
        try:
            return (self._folder / FILE).stat()
        except OSError as error:
            raise StoreError(f"{self._folder}: {FILE} cannot be read ({error.strerror}).") from error

    def check_in_place(self) -> None:
        """Raise if the files are no longer those that were opened: writes to deleted files would be lost."""
        with suppress(StoreError):
            if self.identity() == self._opened:
                return
        raise StoreError(
            f"{self._folder}: this store was removed or replaced while it was open; nothing was changed, and it "
            "must be opened again."
        )

    @property
    def writer(self) -> sqlite3.Connection:
        """The connection of the writer."""
        assert self._writer is not None, "only a writer changes the database"
        return self._writer

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A block whose statements are on the disk when it ends; if it raises, nothing was changed."""
        with self._errors_explained("nothing was changed"):
            self.check_in_place()
            self.writer.execute("BEGIN IMMEDIATE")
            try:
                yield self.writer
                self.check_in_place()
                self.writer.execute("COMMIT")
            except BaseException:
                if self.writer.in_transaction:  # SQLite may have rolled back by itself
                    with suppress(sqlite3.Error):
                        self.writer.execute("ROLLBACK")
                raise

    def shrink(self) -> None:
        """Rewrite the database without anything that was deleted, and empty the log."""
        outcome = "the store is intact, but deleted data may be left in its files; compact it again"
        with self._errors_explained(outcome):
            self.writer.execute("VACUUM")
            busy = self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StoreError(f"{self._folder}: a reader is using the log; {outcome}.")

    def close(self) -> None:
        """Close the writer's connection; the last connection to close moves the log into the database."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @contextmanager
    def _errors_explained(self, outcome: str = "") -> Iterator[None]:
        """Raise SQLite's errors as a `StoreError` that says what state the store is in."""
        try:
            yield
        except sqlite3.Error as error:
            reason = _reason(error)
            if "unable to open" in str(error) and (self._folder / f"{FILE}-wal").exists():
                reason = f"{FILE} was not closed and the folder cannot be written; make a writable copy and open that"
            raise StoreError(f"{self._folder}: {reason}{f'; {outcome}' if outcome else ''}.") from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open the database as "rw", "ro" or "immutable"."""
    option = "immutable=1" if mode == "immutable" else f"mode={mode}"
    address = f"file:{quote(str(path.absolute()))}?{option}"
    connection = sqlite3.connect(address, _BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        if mode == "rw":
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("PRAGMA foreign_keys=ON")
            if connection.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                raise sqlite3.OperationalError("this file system does not support the shared memory that the log needs")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_schema(connection: sqlite3.Connection) -> None:
    """Raise unless this is a database that `create_database` made."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (format,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise sqlite3.DatabaseError("no such application id as that of ripml")
    if format > _FORMAT:
        raise sqlite3.DatabaseError(f"format {format} of a newer ripml; upgrade with `pip install -U ripml`")
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if found - {"CREATE TABLE sqlite_sequence(name,seq)"} != set(SCHEMA):
        raise sqlite3.DatabaseError("no such tables as a store has")


def create_database(folder: Path, fill: Callable[[sqlite3.Connection], None], new_folders: Sequence[Path] = ()) -> None:
    """Create the database with what `fill` writes; it appears under its name in the last step, complete.

    `new_folders` were just created; their names are written to the disk too.
    """
    part = folder / PART
    try:
        with closing(sqlite3.connect(part, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("BEGIN")
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(f"PRAGMA user_version={_FORMAT}")
            for statement in SCHEMA:
                connection.execute(statement)
            fill(connection)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode=WAL")
        _sync(part)
        part.rename(folder / FILE)
        _sync(folder)
    except sqlite3.Error as error:
        raise StoreError(f"{folder}: {_reason(error)}; no store was created.") from error
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror}); no store was created.") from error
    for created in new_folders:
        with suppress(OSError):  # a parent folder that this user may not read
            _sync(created.absolute().parent)


def check_store(folder: Path) -> None:
    """Raise unless a folder has the database of a store.

    >>> check_store(Path("no/such/store"))
    Traceback (most recent call last):
    ripml.base.errors.StoreError: no/such/store: is not a store; Store.create makes one.
    """
    if not (folder / FILE).is_file():
        if is_unfinished(folder):
            raise StoreError(f"{folder}: the creation of this store was not finished; create it again.")
        raise StoreError(f"{folder}: is not a store; Store.create makes one.")


def is_unfinished(folder: Path) -> bool:
    """Whether a folder holds nothing but what an interrupted creation left."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    return LOCK in names and all(name == LOCK or name.startswith(PART) or _MODEL.fullmatch(name) for name in names)


def remove_leftovers(folder: Path, keep: str = "", ignore_errors: bool = True) -> None:
    """Remove what interrupted creations and snapshots left, and all model folders except `keep`."""
    for name in os.listdir(folder):
        if _MODEL.fullmatch(name) and name != keep:
            shutil.rmtree(folder / name, ignore_errors=ignore_errors)
        elif name.startswith(PART):
            (folder / name).unlink(missing_ok=True)


def remove_unfinished(folder: Path, new_folders: Sequence[Path]) -> None:
    """Remove what a failed creation left, and the folders that it created; a finished store is not touched."""
    with suppress(OSError):  # one of the folders is not empty
        if is_unfinished(folder):
            remove_leftovers(folder)
            (folder / LOCK).unlink()
        for place in new_folders:
            place.rmdir()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
