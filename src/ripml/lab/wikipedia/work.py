"""The two readings of the dump: a list of all pages, then the sampled articles as batches of text and links.

All files stand in a work folder, and each appears there whole or not at all, so what is there need not be done again.
One process reads the XML; batches of wikitext go to the others, at most two for each of them at a time, and they write
the files themselves. A page at which the parser of wikitext fails has no text, and so is counted but no document.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, RipmlError
from ripml.datasets.source import fault, open_source, open_target
from ripml.lab.wikipedia.dump import ARTICLE, Page, Site, needed, open_dump
from ripml.lab.wikipedia.markup import is_disambiguation, parse, redirect_target
from ripml.lab.wikipedia.pages import Entry, Kind

__all__ = ["Progress", "documents", "list_pages", "parse_pages", "work_folder"]

Progress: TypeAlias = Callable[[str, int, int], None]

_BATCH_PAGES: Final = 256
_BATCH_CHARACTERS: Final = 2**22


class _Job(NamedTuple):
    path: Path
    pages: list[Page]
    site: Site
    words: frozenset[str]


def work_folder(dump: Path, folder: Path, **settings: Any) -> Path:
    """Return `<folder>.part`: new, or left by an earlier call with the same dump and the same settings."""
    try:
        with open(dump, "rb") as file:
            start = hashlib.sha256(file.read(2**20)).hexdigest()
            status = os.fstat(file.fileno())
    except OSError as error:
        raise DataError(f"{dump}: cannot be read ({error.strerror or error}).") from None
    bound = {"dump": [status.st_size, status.st_mtime_ns, start], **settings}
    work = folder.with_name(folder.name + ".part")
    note = work / "settings.json"
    if note.is_file() and _list(work).is_file():  # otherwise nothing in it is of use
        earlier = json.loads(note.read_text("utf-8"))
        changed = [f"`{name}`" for name in bound if earlier.get(name) != bound[name]]
        if changed:
            raise DataError(
                f"'{work}' is left from a build with another {' and '.join(changed)}; remove it to start anew."
            )
        return work
    work.mkdir(parents=True, exist_ok=True)
    with _appearing(note) as path:
        path.write_text(json.dumps(bound, ensure_ascii=False), "utf-8")
    return work


def list_pages(dump: Path, work: Path, words: frozenset[str], tell: Progress) -> Path:
    """Write the kind, title and redirect of every page in the namespace of articles; return the path."""
    path = _list(work)
    if path.is_file():
        return path
    size = dump.stat().st_size
    n_articles = n_texts = 0
    with (
        open_dump(dump, lambda done: tell("list", done, size)) as (site, stream),
        _appearing(path) as unfinished,
        open_target(unfinished) as file,
    ):
        for page in stream:
            n_texts += bool(page.text)
            if page.namespace == ARTICLE:
                entry = _entry(page, site, words)
                n_articles += entry.kind == Kind.ARTICLE
                file.write(("\t".join(entry) + "\n").encode())
        if not n_texts:
            raise fault(str(dump), None, "no page has any text; take pages-articles, not a dump of stubs.")
        if not n_articles:
            raise fault(str(dump), None, "there is no article in it; take a pages-articles dump.")
    return path


def parse_pages(
    dump: Path, work: Path, chosen: NDArray[np.bool_], words: frozenset[str], n_jobs: int, tell: Progress
) -> list[Path]:
    """Write text and links of the chosen pages in batches; return the paths in the order of the dump.

    Links to titles that end as those of disambiguation pages do are left out here: the dump may not have the page.

    Parameters
    ----------
    chosen : bool, shape (pages in the namespace of articles,)
    """
    note = work / "batches.json"  # says that all of them are there
    if not note.is_file():
        done, total = 0, int(chosen.sum())
        with open_dump(dump) as (site, stream):
            for size in _run(_jobs(work, site, words, stream, chosen), n_jobs):
                done += size
                tell("parse", done, total)
        n_batches = sum(1 for _ in work.glob("batch-*"))
        with _appearing(note) as path:
            path.write_text(json.dumps(n_batches), "utf-8")
    return [_batch(work, number) for number in range(json.loads(note.read_text("utf-8")))]


def documents(batch: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of a batch: id, title, links, text."""
    with open_source(batch) as source:
        for _, line in source.lines():
            yield json.loads(line)


def _list(work: Path) -> Path:
    return work / "pages.tsv.gz"


def _batch(work: Path, number: int) -> Path:
    return work / f"batch-{number:06}.jsonl.gz"


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """Give a path to write to, which takes its name only when it is complete."""
    unfinished = path.with_name("unfinished-" + path.name)
    try:
        yield unfinished
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.replace(path)


def _entry(page: Page, site: Site, words: frozenset[str]) -> Entry:
    leads_to = page.redirect or redirect_target(page.text)
    if leads_to is not None:
        end = site.target(leads_to).title
        return Entry(Kind.REDIRECT, page.title, "" if is_disambiguation(end, "", words) else end)
    if is_disambiguation(page.title, page.text, words):
        return Entry(Kind.DISAMBIGUATION, page.title, "")
    return Entry(Kind.ARTICLE if page.text.strip() else Kind.BLANK, page.title, "")


def _jobs(
    work: Path, site: Site, words: frozenset[str], stream: Iterable[Page], chosen: NDArray[np.bool_]
) -> Iterator[_Job]:
    batch: list[Page] = []
    number = at = size = 0
    for page in stream:
        if page.namespace != ARTICLE:
            continue
        if chosen[at]:
            batch.append(page)
            size += len(page.text)
        at += 1
        if len(batch) == _BATCH_PAGES or size > _BATCH_CHARACTERS:
            yield _Job(_batch(work, number), batch, site, words)
            number += 1
            batch, size = [], 0
    if batch:
        yield _Job(_batch(work, number), batch, site, words)


def _run(jobs: Iterable[_Job], n_jobs: int) -> Iterator[int]:
    """Yield the number of pages of each batch when its file is there."""
    if n_jobs == 1:
        for job in jobs:
            yield len(job.pages) if job.path.is_file() else _parse_batch(job)
        return
    # Not by fork: a process with threads, as BLAS starts them, must not be forked.
    pool = ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn"))
    pending: set[Future[int]] = set()
    try:
        for job in jobs:
            if job.path.is_file():
                yield len(job.pages)
                continue
            pending.add(pool.submit(_parse_batch, job))
            if len(pending) == 2 * n_jobs:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except BrokenProcessPool:
        raise RipmlError(
            "a process that parses wikitext has died, perhaps for lack of memory; call build again to go on, with "
            "fewer `n_jobs`, and from a script under `if __name__ == '__main__':`."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _parse_batch(job: _Job) -> int:
    failure = needed("mwparserfromhell.parser").ParserError
    with _appearing(job.path) as path, open_target(path) as file:
        for page in job.pages:
            try:
                text, links = parse(page.text, job.site)
            except (failure, RecursionError):
                continue
            links = [title for title in links if not is_disambiguation(title, "", job.words)]
            if text:
                document = {"id": str(page.id), "title": page.title, "links": links, "text": text}
                file.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")
    return len(job.pages)
