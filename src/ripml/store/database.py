"""The files of a store: its SQLite database, how that is opened by one writer and any readers, and the writer's lock.

    store/
      store.db (+ -wal, -shm)     documents, labels and the journal
      model-000000000042/         a model folder: the model after change 42
      writer.lock                 locked (flock) by the one writer, whose process id is inside
      store.db.part               a database that is not finished: the folder is being created, or that was interrupted

The database is in WAL mode with synchronous=FULL: a transaction is on the disk when its commit returns, and readers see
the database before it or after it. Creating a store ends with the rename of `store.db.part`, its one decisive moment.

How a reader opens it. While `store.db-wal` is there, by mode=ro: it takes part in SQLite's locks, leaves its mark in
the shared memory of `-shm` and writes nothing else. Where there is no `-wal`, all is in `store.db` itself, and mode=ro
would create the two others, which a read-only file system forbids: then it is opened as immutable, and afterwards
`store.db` must be the file it was and `-wal` still be absent. A writer creates `-wal` before it changes anything, so
nothing changed meanwhile; otherwise the question is asked again.
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

from ripml.base.errors import RipmlError, StoreError

__all__ = [
    "SCHEMA",
    "Database",
    "WriterLock",
    "check_store",
    "create_database",
    "is_unfinished",
    "remove_unfinished",
    "sweep",
    "sync_folders",
]

FILE, PART, LOCK = "store.db", "store.db.part", "writer.lock"
_MODEL = re.compile(r"model-[0-9]{12}")
_APPLICATION, _FORMAT = 0x5269704D, 1
_BUSY_SECONDS = 10.0  # for other programs that hold the database; our own writer is alone
_ATTEMPTS = 20
SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    "CREATE TABLE documents (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL, "
    "labelset BLOB NOT NULL)",
    "CREATE INDEX documents_labelset ON documents (labelset)",
    # A label that is gone has no name but the one it `was` known by, until the next snapshot. Its `key` is that of the
    # model; `changed` is the change that last touched it.
    "CREATE TABLE labels (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, was TEXT, key BLOB NOT NULL, "
    "declared INTEGER NOT NULL, retired INTEGER NOT NULL, changed INTEGER NOT NULL)",
    "CREATE INDEX labels_key ON labels (key)",
    "CREATE INDEX labels_changed ON labels (changed)",
    "CREATE TABLE document_labels (document INTEGER NOT NULL REFERENCES documents, "
    "label INTEGER NOT NULL REFERENCES labels, PRIMARY KEY (document, label)) WITHOUT ROWID",
    "CREATE INDEX document_labels_label ON document_labels (label)",
    # An undo journal: `labels` and `body` are what the document was before the change; bodies are kept until the next
    # snapshot, labels until `compact`.
    "CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "document INTEGER, labels TEXT, body BLOB, detail TEXT)",
    "CREATE INDEX changes_document ON changes (document)",
)

T = TypeVar("T")


def _reason(error: sqlite3.Error) -> str:
    """What SQLite complains of, in our words."""
    words = str(error)
    for sign, ours in (
        ("is full", "the disk is full"),
        ("not a database", f"{FILE} is not a database"),
        ("malformed", f"{FILE} is damaged"),
        ("no such", f"{FILE} is not the database of a store ({words})"),
        ("locked", "another program holds the database"),
        ("readonly", "the folder cannot be written"),
        ("read-only", "the folder cannot be written"),
    ):
        if sign in words:
            return ours
    return f"{FILE} cannot be used ({words})"


class WriterLock:
    """The right to write, which one process has at a time; the system takes it from a process that dies.

    A fork does not inherit it: the right is the process's that took it.

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
            owner = os.read(self._fd, 20).decode("ascii", "replace").strip()
            os.close(self._fd)
            who = f"process {owner}" if owner else "another process"
            raise StoreError(f"{folder}: is open for writing by {who}; it can be read meanwhile.") from error
        except OSError as error:
            os.close(self._fd)
            raise StoreError(f"{folder}: cannot be locked for writing ({error.strerror}).") from error
        self.held = True
        _locks.add(self)

    def release(self) -> None:
        """Give the right back; the file stays, as another process may be about to lock it."""
        if self.held:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            self.drop()

    def drop(self) -> None:
        """Have the right no more, and leave it to those who have it as well: in a child its parent."""
        self.held = False
        os.close(self._fd)


_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _drop_inherited() -> None:
    for lock in _locks:
        if lock.held:
            lock.drop()


os.register_at_fork(after_in_child=_drop_inherited)


class Database:
    """The database of a store that is there: `read` for everybody, `transaction` for the writer."""

    def __init__(self, folder: Path, writable: bool) -> None:
        self._folder, self._writer = folder, None
        check_store(folder)
        self._opened = self.identity()
        self.read(_check_schema)
        if writable:
            with self._explained("nothing was changed"):
                self._writer = _connect(folder / FILE, "rw")

    def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """The answer to a question about the database as it is at one moment; readers wait for nobody."""
        for _ in range(_ATTEMPTS):
            before = self._stamp()
            try:
                with (
                    self._explained(),
                    closing(_connect(self._folder / FILE, "ro" if before is None else "")) as opened,
                ):
                    opened.execute("BEGIN")
                    answer = question(opened)
            except (RipmlError, TypeError, ValueError, KeyError, IndexError) as error:
                if before is not None and before != self._stamp():
                    continue
                if isinstance(error, RipmlError):
                    raise
                raise StoreError(f"{self._folder}: {FILE} is damaged ({error}).") from error
            if before is None or before == self._stamp():
                return answer
        raise StoreError(f"{self._folder}: this store changes faster than it can be read; try again.")

    def identity(self) -> tuple[int, int]:
        """What tells the database from another one of the same name, such as a copy that was put in its place."""
        try:
            found = (self._folder / FILE).stat()
        except OSError as error:
            raise StoreError(f"{self._folder}: {FILE} cannot be read ({error.strerror}).") from error
        return found.st_dev, found.st_ino

    def check_in_place(self) -> None:
        """Raise if the files are not those that were opened: what is written to deleted ones is written to nowhere."""
        try:
            in_place = self.identity() == self._opened
        except StoreError:
            in_place = False
        if not in_place:
            raise StoreError(
                f"{self._folder}: this store was removed or replaced while it was open; nothing was changed, and it "
                "must be opened again."
            )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A block whose statements are on the disk when it ends; if it raises, nothing was changed."""
        with self._explained("nothing was changed"):
            writer = self._open_writer()
            self.check_in_place()
            writer.execute("BEGIN IMMEDIATE")
            try:
                yield writer
                self.check_in_place()
                writer.execute("COMMIT")
            except BaseException:
                if writer.in_transaction:  # SQLite may have given it up itself
                    with suppress(sqlite3.Error):
                        writer.execute("ROLLBACK")
                raise

    def shrink(self) -> None:
        """Write the database anew without anything that was deleted, and empty the log."""
        kept = "the store is intact, but deleted data may be left in its files; compact it again"
        with self._explained(kept):
            writer = self._open_writer()
            writer.execute("VACUUM")
            busy = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StoreError(f"{self._folder}: a reader holds the log; {kept}.")

    def close(self) -> None:
        """Close the writer's connection; the last one to close moves the log into the database."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            raise StoreError(f"{self._folder}: this store was opened with readonly=True; nothing was changed.")
        return self._writer

    def _stamp(self) -> tuple[int, ...] | None:
        """What tells the file from a changed one; None where the log says what changed."""
        if (self._folder / f"{FILE}-wal").exists():
            return None
        try:
            found = (self._folder / FILE).stat()
        except OSError as error:
            raise StoreError(f"{self._folder}: {FILE} cannot be read ({error.strerror}).") from error
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    @contextmanager
    def _explained(self, kept: str = "") -> Iterator[None]:
        """SQLite's errors as one sentence."""
        end = f"; {kept}." if kept else "."
        try:
            yield
        except sqlite3.Error as error:
            reason = _reason(error)
            if "unable to open" in str(error) and (self._folder / f"{FILE}-wal").exists():
                reason = f"{FILE} was not closed and the folder cannot be written; make a copy that can be, and open it"
            raise StoreError(f"{self._folder}: {reason}{end}") from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open as "rw", "ro", or with "" as a file that does not change."""
    address = f"file:{quote(str(path.absolute()))}?{f'mode={mode}' if mode else 'immutable=1'}"
    connection = sqlite3.connect(address, _BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        if mode == "rw":
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("PRAGMA foreign_keys=ON")
            if connection.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                raise sqlite3.OperationalError("this file system has no shared memory, which the log needs")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_schema(connection: sqlite3.Connection) -> None:
    """Raise unless this is a database that `create_database` made."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (format,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise sqlite3.DatabaseError("no such mark of ripml in it")
    if format > _FORMAT:
        raise sqlite3.DatabaseError(f"format {format} of a newer ripml; upgrade with `pip install -U ripml`")
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if found - {"CREATE TABLE sqlite_sequence(name,seq)"} != set(SCHEMA):
        raise sqlite3.DatabaseError("no such tables as a store has")


def create_database(folder: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make the database with what `fill` writes; it is there from the last step on, and not before."""
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


def check_store(folder: Path) -> None:
    """Raise unless a folder has the database of a store.

    >>> check_store(Path("no/such/store"))
    Traceback (most recent call last):
    ripml.base.errors.StoreError: no/such/store: this is no store; Store.create makes one.
    """
    if not (folder / FILE).is_file():
        if is_unfinished(folder):
            raise StoreError(f"{folder}: the creation of this store was not finished; create it again.")
        raise StoreError(f"{folder}: this is no store; Store.create makes one.")


def is_unfinished(folder: Path) -> bool:
    """Whether all that a folder holds are traces of a creation that did not come to its end."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    return LOCK in names and all(name == LOCK or name.startswith(PART) or _MODEL.fullmatch(name) for name in names)


def sweep(folder: Path, keep: str = "", ignore_errors: bool = True) -> None:
    """Remove what earlier snapshots, killed ones and a killed creation left, but the model folder to keep."""
    for name in os.listdir(folder):
        if _MODEL.fullmatch(name) and name != keep:
            shutil.rmtree(folder / name, ignore_errors=ignore_errors)
        elif name.startswith(PART):
            (folder / name).unlink(missing_ok=True)


def remove_unfinished(folder: Path, made: Sequence[Path]) -> None:
    """Remove what a creation that failed left in its folder, and the folders that it made; a finished store stays."""
    with suppress(OSError):  # something else is in one of them
        if is_unfinished(folder):
            sweep(folder)
            (folder / LOCK).unlink()
        for place in made:
            place.rmdir()


def sync_folders(made: Sequence[Path]) -> None:
    """Let the names of new folders be on the disk."""
    for folder in made:
        with suppress(OSError):  # one that may not be read
            _sync(folder.absolute().parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
