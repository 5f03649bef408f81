"""The files of a store: the SQLite database, how one writer and any number of readers open it, and the writer's lock.

    store/
      store.db (+ -wal, -shm)     documents, labels and the journal
      model-000000000042/         a model folder: the model after change 42
      writer.lock                 locked (flock) by the one writer; contains its process id
      store.db.part               an unfinished database: the store is being created, or its creation was interrupted

A new store is private: its folder has mode 0700 and its files 0600, whatever the umask. Later files follow the mode of
the folder, so that `chmod -R g+rX` shares a store with a group for good.

The database is in WAL mode with synchronous=FULL: a transaction is on the disk when its commit returns, and a reader
sees the database either before or after it. The last step of creating a store is to rename `store.db.part`; before the
rename there is no store, after it the store is complete.

How a reader opens the database. While `store.db-wal` exists, with mode=ro: the reader takes part in SQLite's locking
and writes nothing but its mark in the shared memory of `-shm`. Without a `-wal` file, everything is in `store.db`, and
mode=ro would create `-wal` and `-shm`, which a read-only file system forbids. The file is then opened as immutable, and
after the query it must be unchanged and `-wal` still be absent. A writer creates `-wal` before it changes anything, so
both together mean that nothing changed during the query; otherwise the query is run again.

The writer's connection trusts its cache and the shared memory, so it would mix its pages with those of a copy that was
restored over the files while they are open. Nobody but the writer changes `store.db` and `-wal`; their sizes and times
of modification are therefore compared with those after its last transaction before each new one.
"""

from __future__ import annotations

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

from ripml.base import platform
from ripml.base.errors import ModelFolderError, RipmlError, StoreError, StoreFullError, StoreLockedError
from ripml.store import fulltext
from ripml.store.journal import Snapshot, chain_entry
from ripml.tagging.documents import DocumentModel

FILE, PART, LOCK = "store.db", "store.db.part", "writer.lock"
PRIVATE = 0o700  # the mode of a new store's folder
_MODEL = re.compile(r"model-[0-9]{12}")
_APPLICATION, _FORMAT = 0x5269704D, 4
_BUSY_SECONDS = 10.0  # how long to wait for other programs that lock the database; ripml has a single writer
_ATTEMPTS = 20  # to read a file that writers keep changing
SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    "CREATE TABLE documents (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL, "
    "labelset BLOB NOT NULL)",
    "CREATE INDEX documents_labelset ON documents (labelset)",
    # A removed label has no name; `was` is its last name, and the row is deleted at the next snapshot. `key` determines
    # the column of Phi; `changed` is the number of the last change that touched the label. `declared` is 0 for a label
    # that documents brought, 1 for one that was declared, and 2 for one that the vocabulary has a name for.
    "CREATE TABLE labels (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, was TEXT, key BLOB NOT NULL, "
    "declared INTEGER NOT NULL, retired INTEGER NOT NULL, changed INTEGER NOT NULL)",
    "CREATE INDEX labels_key ON labels (key)",
    "CREATE INDEX labels_changed ON labels (changed)",
    "CREATE TABLE document_labels (document INTEGER NOT NULL REFERENCES documents, "
    "label INTEGER NOT NULL REFERENCES labels, PRIMARY KEY (document, label)) WITHOUT ROWID",
    "CREATE INDEX document_labels_label ON document_labels (label)",
    # Of documents of which not all labels are known: those that somebody accepted (1) or rejected (0).
    "CREATE TABLE document_decisions (document INTEGER NOT NULL REFERENCES documents, "
    "label INTEGER NOT NULL REFERENCES labels, accepted INTEGER NOT NULL, PRIMARY KEY (document, label)) WITHOUT ROWID",
    "CREATE INDEX document_decisions_label ON document_decisions (label)",
    # An undo journal: `labels` and `body` describe the document before the change. Bodies are kept until the next
    # snapshot, labels until `compact`.
    # `actor` made the change; `certificate` is the keyed digest of a forgotten document; `chain` is the hash of the
    # history up to this entry, see `ripml.store.journal`.
    "CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "actor TEXT, document INTEGER, labels TEXT, body BLOB, detail TEXT, certificate BLOB, nonce BLOB NOT NULL, "
    "chain BLOB NOT NULL)",
    "CREATE INDEX changes_document ON changes (document)",
    fulltext.TABLE,
)
_CHANGES_1 = (
    "CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "document INTEGER, labels TEXT, body BLOB, detail TEXT)"
)
# The statements of each format that can be read. A writer brings an older one to the newest.
_SCHEMA_3 = tuple(statement for statement in SCHEMA if statement != fulltext.TABLE)
_SCHEMA_2 = tuple(statement for statement in _SCHEMA_3 if "document_decisions" not in statement)
_SCHEMA_1 = tuple(_CHANGES_1 if "TABLE changes" in statement else statement for statement in _SCHEMA_2)
_SCHEMAS = {1: _SCHEMA_1, 2: _SCHEMA_2, 3: _SCHEMA_3, 4: SCHEMA}

T = TypeVar("T")


def _reason(error: sqlite3.Error) -> str:
    """SQLite's error in the words of a store."""
    message = str(error)
    for phrase, reason in (
        ("is full", "the disk is full"),
        ("not a database", f"{FILE} is not a database"),
        ("malformed", f"{FILE} is damaged"),
        ("no such module", "this Python has an SQLite without full-text search (FTS5); use one that has it"),
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
        try:
            self._fd = platform.open_file(folder / LOCK, os.O_RDWR | os.O_CREAT, file_mode(folder))
        except OSError as error:
            raise StoreError(f"{folder}: cannot be written ({error.strerror}); it can only be read.") from error
        try:
            platform.lock(self._fd)
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


platform.after_fork_in_child(_drop_inherited_locks)


class Database:
    """The database of an existing store: `read` for everyone, `transaction` for the writer."""

    def __init__(self, folder: Path, writable: bool) -> None:
        self._folder = folder
        self._writer: sqlite3.Connection | None = None
        check_store(folder)
        self._replaced = False
        self.read(_check_schema)
        if writable:
            with self._errors_explained("nothing was changed"):
                self._writer = _connect(folder / FILE, "rw")
            self._written = self._stamps()
            try:
                self._migrate()
            except BaseException:
                self.close()
                raise

    def _migrate(self) -> None:
        """Bring a store of an older format to the newest, in one transaction."""
        (format,) = self.writer.execute("PRAGMA user_version").fetchone()
        if format < _FORMAT:
            with self.transaction() as connection:
                if format < 2:
                    _migrate_to_2(connection)
                if format < 3:
                    _migrate_to_3(connection)
                _migrate_to_4(connection)

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

    def _stamps(self) -> dict[str, tuple[int, ...] | None]:
        """What changes whenever the database or its log is written; None for a file that is empty or absent."""
        stamps: dict[str, tuple[int, ...] | None] = {}
        for name in (FILE, f"{FILE}-wal"):
            stamps[name] = None
            with suppress(OSError):
                status = (self._folder / name).stat()
                if status.st_size:
                    stamps[name] = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return stamps

    def check_in_place(self, in_transaction: bool = False) -> None:
        """Raise if the files are no longer those that were opened and that this writer wrote last.

        Writes to deleted files would be lost, and writes to files that were overwritten would damage them. In a
        transaction the log may have grown already, but the database not.
        """
        found = self._stamps()
        names = [FILE] if in_transaction else list(found)
        self._replaced = self._replaced or any(found[name] != self._written[name] for name in names)
        if self._replaced:
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
                self.check_in_place(in_transaction=True)
                self.writer.execute("COMMIT")
            except BaseException:
                if self.writer.in_transaction:  # SQLite may have rolled back by itself
                    with suppress(sqlite3.Error):
                        self.writer.execute("ROLLBACK")
                raise
            finally:
                self._written = self._stamps()

    def shrink(self) -> None:
        """Rewrite the database without anything that was deleted, and empty the log."""
        outcome = "the store is intact, but deleted data may be left in its files; compact it again"
        with self._errors_explained(outcome):
            self.check_in_place()
            try:
                self.writer.execute("VACUUM")
                busy = self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                self._written = self._stamps()
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
            kind = StoreFullError if "is full" in str(error) else StoreError
            raise kind(f"{self._folder}: {reason}{f'; {outcome}' if outcome else ''}.") from error


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
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    found = {sql for name, sql in rows if format < 4 or name not in fulltext.SHADOWS}
    if found - {"CREATE TABLE sqlite_sequence(name,seq)"} != set(_SCHEMAS.get(format, ())):
        raise sqlite3.DatabaseError("no such tables as a store has")


def write_schema(connection: sqlite3.Connection) -> None:
    """Create the tables of a new store, with the random id that its history starts from."""
    connection.execute(f"PRAGMA application_id={_APPLICATION}")
    connection.execute(f"PRAGMA user_version={_FORMAT}")
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('store', ?)", (os.urandom(32),))


def _migrate_to_2(connection: sqlite3.Connection) -> None:
    """Give a store of format 1 an id, and each entry of its journal a place in the hash chain."""
    store = os.urandom(32)
    connection.execute("INSERT INTO meta VALUES ('store', ?)", (store,))
    connection.execute("DROP INDEX changes_document")
    connection.execute("ALTER TABLE changes RENAME TO changes_1")
    for statement in SCHEMA:
        if " changes " in statement:
            connection.execute(statement)
    columns = "number, time, kind, document, labels, body, detail"
    chain = store
    for row in connection.execute(f"SELECT {columns} FROM changes_1 ORDER BY number"):
        nonce = os.urandom(16)
        chain = chain_entry(chain, row[0], row[1], row[2], None, None, nonce)
        command = f"INSERT INTO changes ({columns}, nonce, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        connection.execute(command, (*row, nonce, chain))
    connection.execute("DROP TABLE changes_1")


def _migrate_to_3(connection: sqlite3.Connection) -> None:
    """Make room for decisions on some labels of a document."""
    for statement in SCHEMA:
        if "document_decisions" in statement:
            connection.execute(statement)
    connection.execute("PRAGMA user_version=3")


def _migrate_to_4(connection: sqlite3.Connection) -> None:
    """Make room for the index of words, which whoever knows the form of the documents fills; see `Store`."""
    connection.execute(fulltext.TABLE)
    connection.execute("PRAGMA user_version=4")


def create_database(folder: Path, fill: Callable[[sqlite3.Connection], None], new_folders: Sequence[Path] = ()) -> None:
    """Create the database with what `fill` writes; it appears under its name in the last step, complete.

    `new_folders` were just created; their names are written to the disk too.
    """
    part = folder / PART
    try:
        os.close(platform.open_file(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file_mode(folder)))
        with closing(sqlite3.connect(part, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("BEGIN")
            write_schema(connection)
            fill(connection)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode=WAL")
        platform.sync_file(part)
        part.rename(folder / FILE)
        platform.sync_folder(folder)
    except sqlite3.Error as error:
        raise StoreError(f"{folder}: {_reason(error)}; no store was created.") from error
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written ({error.strerror}); no store was created.") from error
    for created in new_folders:
        with suppress(OSError):  # a parent folder that this user may not read
            platform.sync_folder(created.absolute().parent)


def file_mode(folder: Path) -> int:
    """The mode of the files in a store: readable and writable for those who may use its folder."""
    return folder.stat().st_mode & 0o666


def save_model(folder: Path, change: int, model: DocumentModel) -> Snapshot:
    """Save the model of a change in a store; raise `StoreError`, with nothing left, if that fails."""
    place = folder / Snapshot(change).folder
    try:
        place.mkdir(PRIVATE, exist_ok=True)
        model.save(place)
        for file in place.iterdir():
            file.chmod(file_mode(folder))
        place.chmod(folder.stat().st_mode & 0o777)
        return Snapshot.saved(change, folder)
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, ModelFolderError):
            raise StoreError(f"{folder}: no snapshot was taken: {error}") from error
        if isinstance(error, OSError):
            raise StoreError(f"{folder}: no snapshot was taken ({error.strerror}).") from error
        raise


def remedy(folder: Path) -> str:
    """What to do when the model of a store is lost."""
    return f"`ripml rebuild {folder}` fits the model again, and `ripml export {folder} FILE` exports the documents"


def check_free(folder: Path) -> None:
    """Raise unless a folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(f"{folder}: already exists and is not an empty folder; choose a new or empty one.")


def check_store(folder: Path) -> None:
    """Raise unless a folder has the database of a store.

    >>> check_store(Path("no/such/store"))
    Traceback (most recent call last):
    ripml.base.errors.StoreError: no/such/store: is not a store; Store.create makes one.
    """
    if not (folder / FILE).is_file():
        if is_unfinished(folder):
            problem = f"the creation of this store was not finished, or its {FILE} was deleted"
            raise StoreError(f"{folder}: {problem}; create it again, or restore it from a backup.")
        raise StoreError(f"{folder}: is not a store; Store.create makes one.")


def is_unfinished(folder: Path) -> bool:
    """Whether a folder holds nothing but what an interrupted creation left."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    return LOCK in names and all(name == LOCK or name.startswith(PART) or _MODEL.fullmatch(name) for name in names)


def newest_model(folder: Path) -> int:
    """The highest change of which there is a model folder; −1 if there is none."""
    return max((int(name.partition("-")[2]) for name in os.listdir(folder) if _MODEL.fullmatch(name)), default=-1)


def file_states(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Path, time of the last change and size of all files, to see whether any of them changed."""
    states = set()
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with suppress(OSError):  # removed meanwhile
                status = os.stat(path)
                states.add((path, status.st_mtime_ns, status.st_size))
    return frozenset(states)


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
