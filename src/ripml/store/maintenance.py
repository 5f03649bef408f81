"""Maintenance of a store: back it up, restore it, check it, fit its model again and export its documents.

All of these work on the folder of a store and need no model, so that they also serve a store whose model is lost.
`backup`, `check` and `export` only read, and a writer may be at work meanwhile.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ripml.base import model_folder, platform
from ripml.base.errors import DataError, ModelFolderError, ParameterError, RipmlError, StoreError
from ripml.datasets import Dataset
from ripml.datasets.formats import suffix_format, write_blocks
from ripml.store import database, fits, fulltext, journal
from ripml.store.database import FILE, PRIVATE, Database, WriterLock
from ripml.store.documents import Bodies, check_actor
from ripml.store.journal import Draft, Label, Snapshot, State
from ripml.store.recipe import Recipe, Refit
from ripml.store.versions import Version
from ripml.tagging.documents import DocumentModel

__all__ = [
    "Backup",
    "Finding",
    "Report",
    "backup",
    "check",
    "export",
    "fit_anew",
    "publish",
    "rebuild",
    "rebuild_model",
    "restore",
]

_ATTEMPTS = 20  # to find the snapshot that the database names, which a writer may replace meanwhile
_BLOCK = 1000  # documents that are read and written together
_COPY_BYTES = 1 << 20
_COMPARED = 1000  # documents whose scores are compared with those of a model that has learnt everything anew
_TOLERANCE = 1e-4
_EXPORT_FORMATS = ("jsonl", "csv", "parquet")


# --------------------------------------------------------------------------------------------------- backup and restore


@dataclass(frozen=True)
class Backup:
    """What a backup contains: the state of the store after a change."""

    change: int
    documents: int
    bytes: int


def backup(folder: str | os.PathLike[str], target: str | os.PathLike[str]) -> Backup:
    """Copy a store as it is at one moment to a new or empty folder, while others may write to it.

    The copy is a store itself. It appears under its name in the last step, complete and on the disk. If the model in
    the store is damaged, the documents are copied, with a warning.
    """
    folder, target = Path(folder), Path(target)
    source = Database(folder, writable=False)
    database.check_free(target)
    with _staging(target) as part:
        made, problem = _copy(source, folder, part)
        try:
            os.rename(part, target)  # replaces an empty folder
            platform.sync_folder(target.absolute().parent)
        except OSError as error:
            raise StoreError(f"{target}: cannot be written ({error.strerror}); there is no backup.") from error
    if problem:
        warnings.warn(
            f"{target}: the backup has all documents, but the model in {folder} is damaged ({problem}); after a "
            "restore, `ripml rebuild` fits it again.",
            RuntimeWarning,
            3,
        )
    return made


def publish(folder: str | os.PathLike[str], target: str | os.PathLike[str]) -> Backup | None:
    """Make `target` a link to a copy of a store as it is at one moment; None if it is one of the present change.

    Readers that have `target` open, on any machine, follow the copies. A copy never changes, so a shared file system
    need not have the locks and the shared memory of a database in use. It lies beside the link. The one before stays
    for readers that still have it open, and older ones are removed.
    """
    folder, target = Path(folder), Path(target).absolute()
    if target.exists() and not target.is_symlink():
        raise StoreError(f"{target}: already exists and is not a published store; choose another name.")
    source = Database(folder, writable=False)
    last = source.read(lambda connection: (journal.store_id(connection), journal.last_change(connection)))
    before = os.readlink(target) if target.is_symlink() else ""
    with suppress(StoreError):
        if Database(target, writable=False).read(lambda c: (journal.store_id(c), journal.last_change(c))) == last:
            return None
    place = target.with_name(f"{target.name}.{uuid.uuid4().hex}")
    made = backup(folder, place)
    link = target.with_name(f".{place.name}")
    try:
        os.symlink(place.name, link)
        os.replace(link, target)
        platform.sync_folder(target.parent)
        kept = {before, place.name, os.readlink(target)}  # the last one where another process publishes as well
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror}); nothing was published.") from error
    copies = re.compile(re.escape(target.name) + r"\.[0-9a-f]{32}")
    for other in target.parent.iterdir():
        if copies.fullmatch(other.name) and other.name not in kept:
            shutil.rmtree(other, ignore_errors=True)
    return made


def restore(backup_folder: str | os.PathLike[str], target: str | os.PathLike[str], replace: bool = False) -> Backup:
    """Make a store from a backup, which stays as it is and is checked first.

    `target` must be a new or empty folder, or with `replace` a store that nobody has open for writing. The old store is
    removed when the new one is in its place, and stays if anything fails before.
    """
    backup_folder, target = Path(backup_folder), Path(target)
    report = check(backup_folder)
    if bad := [finding for finding in report.findings if not finding.ok and finding.name in ("database", "journal")]:
        raise StoreError(f"{backup_folder}: this backup is damaged ({bad[0].message}); nothing was restored.")
    occupied = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if not occupied:
        return backup(backup_folder, target)
    if not replace:
        raise StoreError(
            f"{target}: already exists and is not an empty folder; nothing was restored. To replace the store in it, "
            "use --replace (replace=True)."
        )
    if not (target / FILE).exists() and not any(target.glob("model-*")):
        raise StoreError(f"{target}: is not a store, so it is not replaced; nothing was restored.")
    lock = WriterLock(target)
    old = target.with_name(f"{target.name}.replaced-{uuid.uuid4().hex[:8]}")
    try:
        with _staging(target) as part:
            new = part / "new"
            made = backup(backup_folder, new)
            try:
                os.rename(target, old)
                try:
                    os.rename(new, target)
                except BaseException:
                    os.rename(old, target)
                    raise
                platform.sync_folder(target.absolute().parent)
            except OSError as error:
                raise StoreError(f"{target}: cannot be replaced ({error.strerror}); nothing was restored.") from error
    finally:
        lock.release()
    shutil.rmtree(old, ignore_errors=True)
    return made


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A private folder beside the target, on the same disk, that is removed at the end if it is still there."""
    part = target.absolute().with_name(f".{target.name}.part-{uuid.uuid4().hex[:8]}")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir(PRIVATE)
    except OSError as error:
        raise StoreError(f"{target}: cannot be created ({error.strerror}).") from error
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _copy(source: Database, folder: Path, part: Path) -> tuple[Backup, str]:
    """Copy the database and the snapshot that it names; the second value says what is wrong with the snapshot."""
    path = part / FILE
    problem = ""

    def query(connection: sqlite3.Connection) -> tuple[Backup, str, ExitStack, list[tuple[Path, IO[bytes]]]]:
        # The files of the snapshot are opened first: they can be read even if a writer removes them meanwhile.
        name, stack, files = _snapshot_name(connection), ExitStack(), list[tuple[Path, IO[bytes]]]()
        try:
            with suppress(FileNotFoundError):
                for file in sorted((folder / name).iterdir()):
                    files.append((file, stack.enter_context(_open(file))))
            path.unlink(missing_ok=True)
            os.close(platform.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(path, isolation_level=None)) as copy:
                copy.execute("PRAGMA journal_mode=OFF")
                copy.execute("PRAGMA synchronous=OFF")  # written to the disk at the end
                connection.backup(copy)
            (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
            return Backup(journal.last_change(connection), documents, 0), name, stack, files
        except BaseException:
            stack.close()
            raise

    try:
        for attempt in range(_ATTEMPTS):
            made, name, stack, files = source.read(query)
            shutil.rmtree(part / name, ignore_errors=True)
            (part / name).mkdir(PRIVATE)
            with stack:
                for original, file in files:
                    _write_copy(file, part / name / original.name)
            copied = Database(part, writable=False)
            try:
                model_folder.load(part / name)  # compares all checksums
                copied.read(Snapshot.read).check(part)
                problem = ""
            except (ModelFolderError, StoreError) as error:
                problem = str(error).replace(str(part), str(folder)).rstrip(".")
                if attempt + 1 < _ATTEMPTS and source.read(_snapshot_name) != name:  # replaced by a writer
                    continue
            break
        # One after the other at the end: a sync after each file would make the syncs of a writer wait for many.
        for place in (*part.rglob("*"), part):
            (platform.sync_folder if place.is_dir() else platform.sync_file)(place)
    except OSError as error:
        raise StoreError(f"{folder}: could not be copied ({error.strerror}); there is no backup.") from error
    size = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
    return replace(made, bytes=size), problem


def _snapshot_name(connection: sqlite3.Connection) -> str:
    """The folder of the snapshot, or a name that does not exist if the database does not name a valid one."""
    try:
        return Snapshot.read(connection).folder
    except (KeyError, TypeError, ValueError):
        return "model-lost"


def _open(path: Path) -> IO[bytes]:
    return os.fdopen(platform.open_file(path, os.O_RDONLY), "rb")


def _write_copy(file: IO[bytes], path: Path) -> None:
    with os.fdopen(platform.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
        shutil.copyfileobj(file, target, _COPY_BYTES)


# ---------------------------------------------------------------------------------------------------------------- check


@dataclass(frozen=True)
class Finding:
    """The result of one check: whether it found everything in order, and in one sentence what it found."""

    name: str
    ok: bool
    message: str


@dataclass(frozen=True)
class Report:
    """The results of all checks of a store."""

    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether everything is in order."""
        return all(finding.ok for finding in self.findings)


@dataclass(frozen=True)
class _Contents:
    """What the checks of the model need to know of the database at one moment."""

    snapshot: Snapshot
    delta: journal.Delta
    rows: int  # documents with labels
    counts: dict[str, int]  # label ↦ documents that carry it
    decided: int  # documents of which some labels are decided


def check(folder: str | os.PathLike[str], full: bool = False, encoder: Any = None) -> Report:
    """Check the tables, the chain of the journal, the documents, the checksums of the snapshot, and the model.

    `full` also learns all documents anew, with the words, weights and choices of the model, and compares the scores. A
    model of texts that uses an encoder of yours needs that `encoder` for it.
    """
    folder, findings = Path(folder), list[Finding]()

    def record(name: str, run: Callable[[], str]) -> bool:
        try:
            findings.append(Finding(name, True, run()))
        except (RipmlError, sqlite3.Error, ValueError, TypeError, KeyError, IndexError, OSError) as error:
            findings.append(Finding(name, False, str(error).removeprefix(f"{folder}: ").rstrip(".")))
        return findings[-1].ok

    store: list[Database] = []

    def open_and_check() -> str:
        store.append(Database(folder, writable=False))
        return store[0].read(_check_tables)

    if not record("database", open_and_check):
        return Report(findings)
    record("journal", lambda: store[0].read(_check_chain))
    record("documents", lambda: store[0].read(lambda c: _check_documents(c, folder)))
    versions: list[tuple[Version, _Contents]] = []

    def load() -> str:
        versions.append(_load(store[0], folder, encoder))
        return f"{versions[0][1].snapshot.folder} agrees with its checksums"

    if store[0].read(_has_vocabulary):
        record("vocabulary", lambda: store[0].read(_check_vocabulary))
    if record("snapshot", load):
        record("model", lambda: _check_model(*versions[0]))
        if full:
            record("scores", lambda: store[0].read(lambda c: _check_scores(c, versions[0][0])))
    return Report(findings)


def _check_tables(connection: sqlite3.Connection) -> str:
    problems = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
    if problems != ["ok"]:
        raise StoreError(f"{FILE} is damaged ({problems[0]})")
    orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
    if orphans:
        raise StoreError(f"{len(orphans):,} rows of {orphans[0][0]} refer to rows that do not exist")
    return f"{FILE} is intact"


def _check_chain(connection: sqlite3.Connection) -> str:
    chain = journal.chain_at(connection, 0)
    if chain == b"":
        return "format 1, which has no chain; a writer adds it"
    if chain is None:
        raise StoreError("the store has no id")
    return f"{journal.replay_chain(connection):,} entries, each with the right hash"


def _bodies(connection: sqlite3.Connection, folder: Path) -> Bodies:
    """How the documents are kept: as the recipe says, or in an early store the model, or else the documents."""
    recipe = Recipe.read(connection)
    if recipe is not None:
        return recipe.bodies
    with suppress(ModelFolderError):
        return Bodies.of(DocumentModel.load(folder / _snapshot_name(connection)))
    return Recipe.guess(connection).bodies


def _check_documents(connection: sqlite3.Connection, folder: Path) -> str:
    bodies, n = _bodies(connection, folder), 0
    sets = dict(connection.execute("SELECT number, labelset FROM documents"))
    for number, state in journal.all_documents(connection):
        try:
            bodies.to_json(state.body)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"document number {number} cannot be read ({error})") from error
        if sets[number] != journal.hash_label_set(state.labels):
            raise StoreError(f"document number {number} has other labels than its label set says")
        n += 1
    return f"{n:,} documents can be read"


def _has_vocabulary(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM meta WHERE key LIKE 'vocabulary%'").fetchone() is not None


def _check_vocabulary(connection: sqlite3.Connection) -> str:
    concepts = journal.read_concepts(connection)
    if concepts is None:
        raise StoreError("the vocabulary lacks the number of its change")
    return f"{len(concepts):,} concepts can be read"


def _load(store: Database, folder: Path, encoder: Any) -> tuple[Version, _Contents]:
    """The current version of the model and the contents of the database that belong to it."""

    def query(connection: sqlite3.Connection) -> tuple[Snapshot, _Contents]:
        snapshot = Snapshot.read(connection)
        (rows,) = connection.execute("SELECT count(DISTINCT document) FROM document_labels").fetchone()
        command = "SELECT name, (SELECT count(*) FROM document_labels WHERE label = number) FROM labels"
        counts = dict(connection.execute(f"{command} WHERE name NOT NULL"))
        decided, delta = len(journal.decisions(connection)), journal.delta_since(connection, snapshot.change)
        return snapshot, _Contents(snapshot, delta, rows, counts, decided)

    version, contents = Version.saved(store, folder, query, encoder)
    return version.advanced(contents.delta), contents


def _check_model(version: Version, contents: _Contents) -> str:
    model = version.estimator
    if model.n_rows_ != contents.rows:
        raise StoreError(f"the model has {model.n_rows_:,} rows, but {contents.rows:,} documents have labels")
    if model.n_decided_ != contents.decided:
        raise StoreError(
            f"the model has decisions on {model.n_decided_:,} documents, but the store on {contents.decided:,}"
        )
    counts = dict(zip(map(str, model.classes_.tolist()), model.frequency_.tolist(), strict=True))
    if counts != contents.counts:
        pairs = set(counts.items()) ^ set(contents.counts.items())
        raise StoreError(f"the model and the documents differ in how many documents carry {min(pairs)[0]!r}")
    return f"{contents.rows:,} rows and {len(counts):,} labels, as the documents have"


def _check_scores(connection: sqlite3.Connection, version: Version) -> str:
    documents = list(journal.all_documents(connection))
    names = {label.number: str(label.name) for label in journal.all_labels(connection)}
    compared = version.features([state for _, state in documents[:_COMPARED]])
    if not compared.shape[0]:
        return "there are no documents to compare"
    difference = version.difference(version.relearnt(documents, names), compared)
    if not difference <= _TOLERANCE:
        raise StoreError(f"the scores differ by {difference:.2g} from those of a model that learns the same documents")
    return f"equal to those of a model that learns the same documents (at most {difference:.0e} apart)"


# -------------------------------------------------------------------------------------------------------------- rebuild


def rebuild(folder: str | os.PathLike[str], encoder: Any = None, actor: str | None = None) -> None:
    """Fit the model of a store on its documents, without the model that it had; the history notes it.

    A store that an early ripml wrote and no later one has opened for writing does not know the settings of its model;
    the defaults are used then, with a warning.
    """
    check_actor(actor)
    folder = Path(folder)
    database.check_store(folder)
    lock = WriterLock(folder)
    store: Database | None = None
    try:
        store = Database(folder, writable=True)
        rebuild_model(store, folder, encoder, actor)
    finally:
        if store is not None:
            store.close()
        lock.release()


def rebuild_model(store: Database, folder: Path, encoder: Any, actor: str | None) -> None:
    """`rebuild`, for whoever has the store open for writing."""
    refit, _ = fit_anew(store, folder, encoder, 1)
    version = refit.version
    shutil.rmtree(folder / Snapshot(version.change).folder, ignore_errors=True)  # left by an interrupted snapshot
    snapshot = database.save_model(folder, version.change, version.model)
    with store.transaction() as connection:
        Draft(connection, actor).note("rebuild")
        fulltext.fill(connection, Bodies.of(version.model))
        refit.write(connection)
        fits.write(connection, fits.with_fit(fits.stored(connection), version.estimator, version.change))
        snapshot.write(connection)
        Recipe.of(version.model).write(connection)
    database.remove_leftovers(folder, snapshot.folder)


def fit_anew(store: Database, folder: Path, encoder: Any, later: int = 0) -> tuple[Refit, bytes]:
    """The model that the recipe makes of all documents, as of the last change or some changes later, and the hash of
    the history up to the last change."""

    def query(connection: sqlite3.Connection) -> tuple[Recipe | None, int, bytes, list[tuple[int, State]], list[Label]]:
        last = journal.last_change(connection)
        documents, labels = list(journal.all_documents(connection)), journal.all_labels(connection)
        recipe = Recipe.read(connection)
        recipe = recipe and replace(recipe, concepts=journal.read_concepts(connection))
        return recipe, last, journal.chain_at(connection, last) or b"", documents, labels

    recipe, last, chain, documents, labels = store.read(query)
    if recipe is None:
        recipe = store.read(Recipe.guess)
        problem = "the settings of the model are lost with it, and the defaults are used"
        warnings.warn(f"{folder}: {problem}.", RuntimeWarning, 4)
    return recipe.refit(last + later, documents, labels, encoder), chain


# --------------------------------------------------------------------------------------------------------------- export


def export(
    folder: str | os.PathLike[str],
    target: str | os.PathLike[str],
    format: str | None = None,
    salvage: bool = False,
) -> int:
    """Write all documents with their ids and labels, as they are at one moment, and return how many there are.

    The target is a path, or "-" for standard output. The format is "jsonl", "csv" or "parquet", by default that of the
    suffix of the name; features can only be written as JSONL. A file is private, as a store is, and appears when it is
    complete. Memory does not grow with the store.

    With `salvage`, documents and labels that cannot be read because the database is damaged are left out, with a
    warning that says how many.
    """
    folder, name = Path(folder), os.fspath(target)
    format = format or suffix_format(name) or "jsonl"
    if format not in _EXPORT_FORMATS:
        raise ParameterError(f"documents can be exported as {', '.join(_EXPORT_FORMATS)}; got format={format!r}.")
    if name == "-":
        with tempfile.TemporaryDirectory() as place:
            n = export(folder, Path(place) / "documents", format, salvage)
            with open(Path(place) / "documents", "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer, _COPY_BYTES)
            sys.stdout.buffer.flush()
            return n
    path, store = Path(name), Database(folder, writable=False)
    part = path.absolute().with_name(f".part-{uuid.uuid4().hex[:8]}-{path.name}")

    def query(connection: sqlite3.Connection) -> int:
        written = 0

        def counted() -> Iterator[Dataset]:
            nonlocal written
            read = _read_one_by_one(connection, folder) if salvage else _read_all(connection)
            for block in _blocks(connection, folder, format, read):
                written += len(block)
                yield block

        os.close(platform.open_file(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        write_blocks(counted(), part, format)
        return written

    try:
        n = store.read(query)
        platform.sync_file(part)
        os.replace(part, path)
        return n
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}).") from error
    finally:
        part.unlink(missing_ok=True)


def _read_all(connection: sqlite3.Connection) -> Iterator[tuple[str, State, list[Label]]]:
    """The id, the state and the labels of each document."""
    labels = {label.number: label for label in journal.all_labels(connection)}
    ids = connection.execute("SELECT id FROM documents ORDER BY number")
    for (id,), (_, state) in zip(ids, journal.all_documents(connection), strict=True):
        yield id, state, [labels[number] for number in state.labels]


def _read_one_by_one(connection: sqlite3.Connection, folder: Path) -> Iterator[tuple[str, State, list[Label]]]:
    """What can be read of each document in a damaged database."""
    (last,) = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'documents'").fetchone()
    lost = incomplete = 0
    for number in range(1, (last or 0) + 1):
        try:
            row = connection.execute("SELECT id, body FROM documents WHERE number = ?", (number,)).fetchone()
        except sqlite3.Error:
            lost += 1
            continue
        if row is None:  # forgotten
            continue
        labels: list[Label] = []
        try:
            for label in journal.labels_of(connection, number):
                labels += Label.read(connection, "number = ? AND name NOT NULL", label)
        except sqlite3.Error:
            incomplete += 1
        yield row[0], State(bytes(row[1]), tuple(label.number for label in labels)), labels
    if lost or incomplete:
        problem = f"{lost:,} documents cannot be read, and the labels of {incomplete:,} others are incomplete"
        warnings.warn(f"{folder}: {FILE} is damaged; {problem}.", RuntimeWarning, 3)


def _blocks(
    connection: sqlite3.Connection, folder: Path, format: str, documents: Iterator[tuple[str, State, list[Label]]]
) -> Iterator[Dataset]:
    """The documents in blocks, each with the labels that occur in it; at least one block."""
    bodies = _bodies(connection, folder)
    if bodies.form != "text" and format != "jsonl":
        raise ParameterError(f"{folder} has features, which can only be exported as jsonl; got format={format!r}.")
    while True:
        block = list(islice(documents, _BLOCK))
        labels = {label.number: label for _, _, carried in block for label in carried}
        data = bodies.to_dataset([state for _, state, _ in block], [labels[number] for number in sorted(labels)])
        yield replace(data, ids=[id for id, _, _ in block])
        if len(block) < _BLOCK:
            return
