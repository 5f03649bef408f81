"""Tables that are sent to the server: tagged in the background, or checked.

    FOLDER/STORE/ID/input.csv       the table as it was sent, with the suffix of its name
                    job.json        options and state
                    output.csv      the answers; until they are complete, output.csv.part as `tag_file` writes it

A job begins to exist when its folder gets its name, in one step, and is answered after that. One thread for each store
works on the jobs in the order in which they came. A server that starts continues the jobs that are not done, with the
rows that are missing; a job whose answers were complete when the server was killed, but not noted as done, is done
again.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request

from ripml.base import platform
from ripml.base.errors import DataError
from ripml.datasets.document_files import SUFFIXES, is_document
from ripml.datasets.documents import format_labels
from ripml.datasets.formats import suffix_format
from ripml.datasets.formats.spreadsheet import write_sheet
from ripml.server.access import body_chunks
from ripml.server.problems import Problem, problem_of
from ripml.server.schemas import TableJob
from ripml.tagging.batch import tag_file
from ripml.tagging.documents import DocumentModel

__all__ = ["TagJobs", "document_suffix", "save_table", "table_suffix"]

Review = Callable[[int, dict[str, Any]], dict[str, Any]]  # what becomes of a row, by its number from 0 on

_STATE, _ID = "job.json", re.compile(r"[0-9a-f]{32}")
_NOT_TABLES: Final = (None, "files", "annif", "xmc", "svmlight", "arff")
_MAX_JOBS: Final = 1000  # of a store, done or not


class _StoppedError(Exception):
    """The server stops, or the job was deleted."""


def table_suffix(name: str) -> str:
    """The suffixes of the name of a table, such as ".csv" or ".jsonl.gz"; raise for other files.

    >>> table_suffix("Tickets March.CSV"), table_suffix("a.b.jsonl.gz")
    ('.csv', '.jsonl.gz')
    """
    if suffix_format(name) in _NOT_TABLES:
        raise Problem(415, f"{name[:100]!r} is not the name of a table; tables are CSV, TSV, Excel, JSONL or Parquet.")
    packed = ".gz" if name.lower().endswith(".gz") else ""
    return os.path.splitext(name[: len(name) - len(packed)])[1].lower() + packed


def document_suffix(name: str) -> str:
    """The suffix of the name of a document.

    >>> document_suffix("a.b.PDF")
    '.pdf'
    """
    if not is_document(name):
        raise Problem(415, f"{name[:100]!r} is not the name of a document; documents end with {', '.join(SUFFIXES)}.")
    return os.path.splitext(name.removesuffix(".gz"))[1].lower() + (".gz" if name.endswith(".gz") else "")


async def save_table(request: Request, path: Path, limit: int, seconds: float) -> None:
    """Write the body of a request to a new file."""
    with path.open("xb") as file:
        async for chunk in body_chunks(request, limit, seconds):
            file.write(chunk)
        if not file.tell():
            raise Problem(400, "the body is empty; send the file as the body.")
        file.flush()
        os.fsync(file.fileno())


class TagJobs:
    """The jobs of a store; `model` returns the current version and a model that works on one core."""

    def __init__(self, folder: Path, name: str, model: Callable[[], tuple[int, DocumentModel]]) -> None:
        self._folder, self._model = folder / name, model
        self._thread = ThreadPoolExecutor(1, f"ripml tag {name}")
        self._turn = threading.Lock()
        self._progress: dict[str, int] = {}
        self._gone: set[str] = set()
        self._stopping = False
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if not _ID.fullmatch(path.name):  # an upload or a deletion that did not end
                shutil.rmtree(path, ignore_errors=True)
        self._left = [job for job in reversed(self.jobs()) if job.status in ("waiting", "running")]

    def start(self) -> None:
        """Continue what a server that was stopped has left."""
        for job in self._left:
            self._thread.submit(self._run, job.id)

    def close(self) -> None:
        """Stop after the current block of rows."""
        self._stopping = True
        self._thread.shutdown(cancel_futures=True)

    def new_folder(self) -> Path:
        """An empty folder for the upload of a table."""
        if self._folder.is_dir() and sum(1 for _ in self._folder.iterdir()) >= _MAX_JOBS:
            raise Problem(409, f"this store has {_MAX_JOBS:,} jobs; delete those that are done.")
        folder = self._folder / f"new-{uuid.uuid4().hex}"
        folder.mkdir(0o700, parents=True)
        return folder

    def add(self, folder: Path, name: str, options: dict[str, Any], to: str, actor: str | None) -> TableJob:
        """Make an upload, which is "input" with its suffix in this folder, a job, and begin it when it is its turn."""
        id = folder.name.removeprefix("new-")
        job = TableJob(
            id=id, name=name, status="waiting", created=_now(), options=options, to=to, actor=actor
        )  # fmt: skip
        (folder / _STATE).write_text(job.model_dump_json())
        platform.sync_file(folder / _STATE)
        folder.rename(self._folder / id)
        platform.sync_folder(self._folder)
        self._thread.submit(self._run, id)
        return job

    def jobs(self) -> list[TableJob]:
        """All jobs, the newest first."""
        if not self._folder.is_dir():
            return []
        ids = [path.name for path in self._folder.iterdir() if _ID.fullmatch(path.name)]
        found = []
        for id in ids:
            with contextlib.suppress(Problem):  # deleted meanwhile
                found.append(self.job(id))
        return sorted(found, key=lambda job: job.created, reverse=True)

    def job(self, id: str) -> TableJob:
        """The state of a job."""
        try:
            if not _ID.fullmatch(id):
                raise FileNotFoundError
            job = TableJob.model_validate_json((self._folder / id / _STATE).read_bytes())
        except FileNotFoundError:
            raise Problem(404, f"there is no job {id[:100]!r}.") from None
        return job if job.status == "done" else job.model_copy(update={"rows": self._progress.get(id, job.rows)})

    def answers(self, id: str) -> Path:
        """The complete table of a job."""
        job = self.job(id)
        if job.status != "done":
            detail = f": {job.detail}" if job.detail else ""
            raise Problem(409, f"the answers of job {id!r} are not complete; it is {job.status}{detail}.")
        return self._output(job)

    def rows(self, id: str, after: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """The rows that are tagged already, `limit` of them after the first `after`; and how many there are."""
        job = self.job(id)
        if job.to != "jsonl":
            raise Problem(409, f"the answers of job {id!r} are {job.to}; rows can be shown of a job with to=jsonl.")
        output = self._output(job)
        for _ in range(2):  # the file may get its name in between
            with contextlib.suppress(FileNotFoundError):
                if output.exists():
                    with output.open("rb") as file:
                        done = job.rows if job.status == "done" else None
                        lines = list(islice(file, after, after + limit))
                        count = after + len(lines) + sum(1 for _ in file) if done is None else done
                    return [json.loads(line) for line in lines], count
                part = output.with_name(f"{output.name}.part")
                done = int(json.loads(part.with_name(f"{part.name}.json").read_bytes())["rows"])
                with part.open("rb") as file:
                    lines = list(islice(file, after, max(after, min(after + limit, done))))
                return [json.loads(line) for line in lines], done
        return [], 0

    def converted(self, id: str, to: str, review: Review | None = None) -> Path:
        """The complete table of a job, written as `to`: all from "jsonl", and every other only as it was begun.

        With `review`, each row is what that makes of it, as it was decided by now.
        """
        path, job = self.answers(id), self.job(id)
        if to == job.to and (review is None or to != "jsonl"):
            return path
        if job.to != "jsonl":
            raise Problem(409, f"the answers of job {id!r} are {job.to}; a job with to=jsonl can be had as {to}, too.")
        target = path.with_name(f"download.{to}" if review is None else f"reviewed.{to}")
        if review is not None or not target.exists():
            fresh = path.with_name(f"download-{uuid.uuid4().hex}.new")
            with path.open("rb") as lines, fresh.open("xb") as file:
                names = list(dict.fromkeys(name for line in lines for name in json.loads(line)))
                lines.seek(0)
                rows: Iterator[dict[str, Any]] = map(json.loads, lines)
                if review is not None:
                    rows = (review(number, row) for number, row in enumerate(rows))
                cells = ([_cell(name, row.get(name)) for name in names] for row in rows)
                if to == "jsonl":
                    file.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
                elif to == "xlsx":
                    write_sheet(chain([names], cells), file)
                else:
                    text = io.TextIOWrapper(file, "utf-8", errors="replace", newline="")
                    csv.writer(text, delimiter="\t" if to == "tsv" else ",").writerows(chain([names], cells))
                    text.flush()
            os.replace(fresh, target)
        return target

    def remove(self, id: str) -> None:
        """Delete a job with its table and its answers; one that runs ends with its block of rows."""
        self.job(id)
        self._gone.add(id)
        with self._turn:
            gone = self._folder / f"gone-{id}"
            with contextlib.suppress(FileNotFoundError):
                (self._folder / id).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _output(self, job: TableJob) -> Path:
        return self._folder / job.id / f"output.{job.to}"

    def _write(self, job: TableJob) -> None:
        """Replace the state of a job that was not deleted."""
        path = self._folder / job.id / _STATE
        with self._turn:
            if job.id not in self._gone:
                fresh = path.with_suffix(".new")
                fresh.write_text(job.model_dump_json())
                platform.sync_file(fresh)
                os.replace(fresh, path)

    def _run(self, id: str) -> None:
        with contextlib.suppress(Problem, OSError):  # deleted
            job = self.job(id)
            try:
                done = self._tag(job)
            except _StoppedError:
                return
            except Exception as error:
                if id not in self._gone:
                    update = {"status": "failed", "detail": problem_of(error).detail, "ended": _now()}
                    self._write(job.model_copy(update=update))
            else:
                self._write(done)

    def _tag(self, job: TableJob) -> TableJob:
        """Tag the table, or the rest of it."""
        folder = self._folder / job.id
        version, model = self._model()
        self._write(job.model_copy(update={"status": "running", "version": version}))
        self._output(job).unlink(missing_ok=True)
        rules, reading = {**job.options}, dict[str, Any]()
        for name in ("text", "format", "encoding", "sheet"):
            if rules.get(name) is not None:
                reading[name] = rules[name]
            rules.pop(name, None)

        def progress(n: int) -> None:
            self._progress[job.id] = self._progress.get(job.id, 0) + n
            if self._stopping or job.id in self._gone:
                raise _StoppedError

        self._progress[job.id] = 0
        (table,) = folder.glob("input.*")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                tagged = tag_file(
                    model, table, self._output(job), rules=model.rules.but(**rules), version=str(version),
                    progress=progress, **reading,
                )  # fmt: skip
            except DataError as error:
                raise DataError(str(error).replace(str(table), job.name)) from None
        note = " ".join(str(one.message) for one in said if issubclass(one.category, RuntimeWarning)) or None
        return job.model_copy(
            update={
                "status": "done", "rows": tagged.rows, "without_labels": tagged.without_labels, "ended": _now(),
                "version": version, "detail": note,
            }
        )  # fmt: skip


def _cell(name: str, value: Any) -> str:
    """A cell of CSV or Excel, as `tag_file` writes it."""
    if isinstance(value, list) and name.endswith("scores"):
        return "|".join(map(str, value))
    if isinstance(value, list) and name.endswith(("tags", "names")) and all(isinstance(one, str) for one in value):
        return format_labels(value)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
