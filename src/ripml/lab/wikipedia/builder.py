"""`build`: from a dump of Wikipedia to the Entity Recommendation data set of the paper.

An entity is any segment of text that is linked to another page: a document is an article x, and its labels are
y = {articles that x links to}. The paper sampled a million articles of English Wikipedia, dropped entities with fewer
than 10 occurrences and took doc2vec of 400 dimensions: 500,539 training and 10,000 test rows, 359,524 labels.

The steps, each reading what the one before has written into `<folder>.part/`:

1. *list*: read the dump once; write kind, title and redirect of every page in the article namespace.
2. *parse*: draw the sample, read the dump again, and send batches of wikitext to processes that write text and links.
3. *labels*: follow the links through redirects, count them, drop rare ones, draw the test rows.
4. *write*: documents, features, matrices; then rename the finished folder.

Every file in the work folder is written completely or not at all, so that finished files need not be made again. One
process reads the XML; the others parse batches of wikitext, at most two batches per process at a time, and write the
files themselves. A page that the wikitext parser cannot parse has no text: it is counted, but is not a document.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.errors import DataError, ParameterError, RipmlError, check_count
from ripml.base.parallel import thread_count
from ripml.base.workspace import atomically
from ripml.datasets.dataset import Dataset, csr
from ripml.datasets.formats import xmc
from ripml.datasets.source import fault, open_source, open_target, unreadable
from ripml.lab.wikipedia.dump import ARTICLE, Page, Site, import_extra, open_dump
from ripml.lab.wikipedia.markup import DISAMBIGUATION, is_disambiguation, parse, redirect_target
from ripml.lab.wikipedia.titles import Entry, Keys, Kind, Titles, count_keys, find, key_of, read_entries

__all__ = ["Summary", "build"]

Progress: TypeAlias = Callable[[str, int, int], None]

_BATCH_PAGES: Final = 256
_BATCH_CHARACTERS: Final = 2**22


@dataclass(frozen=True)
class Summary:
    """Counts of what `build` found and made."""

    articles: int
    redirects: int
    disambiguation_pages: int
    sampled: int
    without_text: int  # of those sampled: only markup, or markup that cannot be parsed
    without_labels: int  # of those with text
    train: int
    test: int
    labels: int
    labels_per_document: float


def build(
    dump: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    n_documents: int | None = None,
    min_count: int = 10,
    n_test: int = 10_000,
    features: Any = "doc2vec",
    n_dims: int = 400,
    targets: str = "articles",
    disambiguation: Iterable[str] = DISAMBIGUATION,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Build the data set into a new folder that `ripml.datasets.load` reads.

    The folder has train.txt and test.txt (XMC text), labels.txt (titles, in alphabetical order), docs.jsonl (id, title,
    labels, text and split), features.txt for tf-idf, and about.json. What counts as text and as a link is in
    `ripml.lab.wikipedia.markup`.

    An interrupted build resumes after its last finished batch when called again. The bytes written depend neither on
    interruptions nor on the number of processes. Until it is finished there is only `<folder>.part`, which is not a
    data set. The dump is read twice, and once more after an interruption. In a script, call this under
    `if __name__ == "__main__":`, as worker processes require, unless n_jobs is 1.

    Memory does not grow with the length of the dump, but with the number of its titles. For English Wikipedia: keys of
    17 million titles, 0.25 GB, and 1 GB while they are collected; 16 bytes for each distinct target, and the same again
    to count; 4 bytes for each label of a document; and 4 million characters of wikitext for each of 2·n_jobs batches in
    progress. Features come on top: all texts of the training documents (28 kB each in the first hundred articles, which
    are long), and the matrix, 1.6 GB for 500,000 × 400.

    Parameters
    ----------
    dump : path
        pages-articles: .xml.bz2, .xml.gz or .xml.
    folder : path
        Must not exist.
    n_documents : int or None
        Number of articles to sample, before anything is filtered; None, or more than there are: all.
    min_count : int
        A label must be linked from at least this many of the sampled documents; links of one document count once.
    n_test : int
        Test rows, drawn at random; at most a fifth of the documents.
    features : "doc2vec", "tfidf", None or an object
        Learnt from the training texts alone. "doc2vec" trains on one thread, to give the same bytes every time. None:
        the matrices have no columns. An object has `fit_transform(texts)` and `transform(texts)`, such as
        `ripml.text.doc2vec.Doc2Vec(n_dims=400, n_jobs=8)`.
    n_dims : int
        Dimensions of doc2vec.
    targets : "articles" or "any"
        "articles": a label must be an article of the dump, so links to missing pages are dropped. "any": also pages
        that are not in the dump; for excerpts, where nearly all targets are missing.
    disambiguation : iterable of str
        Names of templates, and words in brackets at the end of titles, that mark disambiguation pages. These are
        neither documents nor labels. Default: those of the larger languages.
    random_state : int
        Seed of the sample, the split and doc2vec.
    n_jobs : int or None
        Processes that parse wikitext; None: one per core.
    progress : callable, optional
        Called with (step, done, total): "list" in bytes of the dump, "parse" in documents after each batch, "labels"
        and "write" in batches.

    Returns
    -------
    Summary

    Examples
    --------
    >>> import bz2, tempfile
    >>> space = '<namespace key="0" case="first-letter" /><namespace key="6" case="first-letter">File</namespace>'
    >>> xml = f"<mediawiki><siteinfo><namespaces>{space}</namespaces></siteinfo>"
    >>> for i, text in enumerate(["To [[B]].", "To [[a]] and [[c]].", "To [[A]]."]):
    ...     revision = f"<revision><text>{text}</text></revision>"
    ...     xml += f"<page><title>{'ABC'[i]}</title><ns>0</ns><id>{i}</id>{revision}</page>"
    >>> with tempfile.TemporaryDirectory() as home:
    ...     _ = Path(home, "x.bz2").write_bytes(bz2.compress((xml + "</mediawiki>").encode()))
    ...     build(Path(home, "x.bz2"), Path(home, "abc"), min_count=2, features=None, n_jobs=1)
    ...     Path(home, "abc", "labels.txt").read_text()
    Summary(articles=3, redirects=0, ..., sampled=3, without_text=0, without_labels=1,
    train=1, test=1, labels=1, labels_per_document=1.0)
    'A\\n'
    """
    for name, value in (("min_count", min_count), ("n_test", n_test), ("n_dims", n_dims)):
        check_count(name, value)
    check_count("random_state", random_state, least=0)
    if n_documents is not None:
        check_count("n_documents", n_documents)
    if targets not in ("articles", "any"):
        raise ParameterError(f"`targets` must be 'articles' or 'any'; got {targets!r}.")
    vectorizer = _vectorizer(features, n_dims, random_state)
    n_jobs = thread_count(n_jobs)
    for package in ("mwxml", "mwparserfromhell"):
        import_extra(package)  # raises if it is not installed
    dump, folder = Path(dump), Path(folder)
    if folder.exists():
        raise ParameterError(f"'{folder}' already exists; remove it, or build into another folder.")
    report = progress or (lambda step, done, total: None)
    words = frozenset(word.lower() for word in disambiguation)

    work = _work_folder(dump, folder, n_documents=n_documents, random_state=random_state, disambiguation=sorted(words))
    page_list = _list_pages(dump, work, words, report)
    titles = Titles.of(read_entries(page_list))
    sampled = _sample(titles.is_article, n_documents, random_state)
    batches = _parse_pages(dump, work, sampled, words, n_jobs, report)
    keys = _frequent_targets(batches, titles, targets, min_count, dump, report)
    names, keys = _find_names(keys, page_list, batches)
    has_labels, Y = _label_matrix(batches, titles, targets, keys)
    in_test = _split(Y.shape[0], n_test, random_state, dump)

    finished = work / "finished"
    shutil.rmtree(finished, ignore_errors=True)
    finished.mkdir()
    _write_documents(finished / "docs.jsonl", batches, has_labels, Y, names, in_test, report)
    _write_matrices(finished, Y, names, in_test, vectorizer)
    summary = Summary(
        articles=int(titles.is_article.sum()),
        redirects=len(titles.sources),
        disambiguation_pages=len(titles.disambiguation),
        sampled=int(sampled.sum()),
        without_text=int(sampled.sum()) - len(has_labels),
        without_labels=len(has_labels) - Y.shape[0],
        train=int((~in_test).sum()),
        test=int(in_test.sum()),
        labels=len(names),
        labels_per_document=round(Y.nnz / Y.shape[0], 3),
    )
    about = {
        **{"dump": dump.name, "n_documents": n_documents, "min_count": min_count, "targets": targets},
        **{"features": features if isinstance(features, str) else type(features).__name__},
        **{"random_state": random_state, **asdict(summary)},
    }
    (finished / "about.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    finished.rename(folder)
    shutil.rmtree(work)
    return summary


def _vectorizer(features: Any, n_dims: int, random_state: int) -> Any:
    if features == "doc2vec":
        from ripml.text.doc2vec import Doc2Vec  # imports gensim, an extra

        return Doc2Vec(n_dims=n_dims, random_state=random_state, n_jobs=1)
    if features == "tfidf":
        from ripml.text import TfIdf  # imports scikit-learn, which the rest does not need

        return TfIdf()
    if features is not None and not (hasattr(features, "fit_transform") and hasattr(features, "transform")):
        raise ParameterError(
            f"`features` must be 'doc2vec', 'tfidf', None or an object with fit_transform and transform; "
            f"got {features!r}."
        )
    return features


def _sample(is_article: NDArray[np.bool_], n_documents: int | None, random_state: int) -> NDArray[np.bool_]:
    articles = np.flatnonzero(is_article)
    if n_documents is None or n_documents >= len(articles):
        return is_article
    chosen = np.zeros(len(is_article), bool)
    chosen[np.random.default_rng([random_state, 0]).choice(articles, n_documents, replace=False)] = True
    return chosen


def _resolve_links(batch: Path, titles: Titles, targets: str) -> tuple[int, NDArray[np.intp], Keys]:
    """Return the number of documents of a batch and their links as sorted pairs (document, key), each once."""
    articles: list[int] = []
    links: list[int] = []
    counts: list[int] = []
    for document in _documents(batch):
        articles.append(key_of(document["title"]))
        links += map(key_of, document["links"])
        counts.append(len(document["links"]))
    ends, positions = titles.resolve(np.array(links, np.uint64), targets)
    row = np.repeat(np.arange(len(articles)), counts)[positions]
    order = np.lexsort((ends, row))
    row, ends = row[order], ends[order]
    kept = ends != np.array(articles, np.uint64)[row]  # drop links to the article itself, perhaps through a redirect
    kept[1:] &= (row[1:] != row[:-1]) | (ends[1:] != ends[:-1])
    return len(articles), row[kept], ends[kept]


def _frequent_targets(
    batches: list[Path], titles: Titles, targets: str, min_count: int, dump: Path, report: Progress
) -> Keys:
    def linked() -> Iterator[Keys]:
        for done, batch in enumerate(batches, 1):
            yield _resolve_links(batch, titles, targets)[2]
            report("labels", done, len(batches))

    keys, counts = count_keys(linked())
    frequent = keys[counts >= min_count]
    if len(frequent) == 0:
        raise DataError(
            f"{dump}: no article is linked from at least min_count = {min_count} of the documents; the most is "
            f"{counts.max(initial=0)}: lower `min_count`, or pass targets='any' if this is an excerpt of a dump."
        )
    return frequent


def _find_names(keys: Keys, page_list: Path, batches: list[Path]) -> tuple[list[str], Keys]:
    """Return the titles of the keys in alphabetical order, and the keys in that order."""

    def candidates() -> Iterator[str]:
        for entry in read_entries(page_list):
            yield from (entry.title, entry.redirects_to)
        for batch in batches:
            for document in _documents(batch):
                yield from document["links"]

    missing = set(keys.tolist())
    found: list[tuple[str, int]] = []
    for title in candidates():
        key = key_of(title)
        if key in missing:
            missing.remove(key)
            found.append((title, key))
            if not missing:
                break
    found.sort()
    return [title for title, _ in found], np.array([key for _, key in found], np.uint64)


def _label_matrix(batches: list[Path], titles: Titles, targets: str, keys: Keys) -> tuple[NDArray[np.bool_], Any]:
    """Return which documents have a label, and their Y: 1 where a document links to keys[j]."""
    order = np.argsort(keys)
    columns: list[NDArray[np.int32]] = []
    counts: list[NDArray[np.int64]] = []
    for batch in batches:
        n, row, ends = _resolve_links(batch, titles, targets)
        positions, is_label = find(keys[order], ends)
        row, column = row[is_label], order[positions[is_label]].astype(np.int32)
        columns.append(column[np.lexsort((column, row))])
        counts.append(np.bincount(row, minlength=n))
    count = np.concatenate(counts)
    has_labels = count > 0
    indptr = np.concatenate(([0], np.cumsum(count[has_labels])))
    indices = np.concatenate(columns)
    return has_labels, csr(np.ones(len(indices), np.float32), indices, indptr, len(keys))


def _split(n: int, n_test: int, random_state: int, dump: Path) -> NDArray[np.bool_]:
    if n < 2:
        raise DataError(f"{dump}: only {n} document has labels, but at least two are needed, to train and to test.")
    in_test = np.zeros(n, bool)
    size = max(1, min(n_test, n // 5))
    in_test[np.random.default_rng([random_state, 1]).choice(n, size, replace=False)] = True
    return in_test


def _write_documents(
    path: Path,
    batches: list[Path],
    has_labels: NDArray[np.bool_],
    Y: Any,
    names: list[str],
    in_test: NDArray[np.bool_],
    report: Progress,
) -> None:
    number = row = 0  # of all documents, and of those with labels
    with open_target(path) as file:
        for done, batch in enumerate(batches, 1):
            for document in _documents(batch):
                if has_labels[number]:
                    links = Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()
                    record = {
                        "id": document["id"],
                        "title": document["title"],
                        "labels": [names[j] for j in links],
                        "split": "test" if in_test[row] else "train",
                        "text": document["text"],
                    }
                    file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
                    row += 1
                number += 1
            report("write", done, len(batches))


def _write_matrices(folder: Path, Y: Any, names: list[str], in_test: NDArray[np.bool_], vectorizer: Any) -> None:
    """Write matrices and names; the features are learnt from the training texts alone."""

    def texts(split: str) -> Iterator[str]:
        with open_source(folder / "docs.jsonl") as source:
            for _, line in source.lines():
                document = json.loads(line)
                if document["split"] == split:
                    yield document["text"]

    for split, part in (("train", ~in_test), ("test", in_test)):
        if vectorizer is None:
            X = csr_array((int(part.sum()), 0), dtype=np.float32)
        else:
            X = (vectorizer.fit_transform if split == "train" else vectorizer.transform)(texts(split))
            X = csr_array(X, dtype=np.float32)
        with open_target(folder / f"{split}.txt") as file:  # not by `datasets.write`, which copies the matrices
            xmc.write(Dataset(X=X, Y=Y[np.flatnonzero(part)], label_names=names), file)
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names), "utf-8")
    words = getattr(vectorizer, "feature_names", None)
    if words is not None:
        (folder / "features.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")


class _Job(NamedTuple):
    path: Path
    pages: list[Page]
    site: Site
    words: frozenset[str]


def _work_folder(dump: Path, folder: Path, **settings: Any) -> Path:
    """Return `<folder>.part`: new, or left by an interrupted call with the same dump and settings."""
    try:
        with open(dump, "rb") as file:
            start = hashlib.sha256(file.read(2**20)).hexdigest()
            status = os.fstat(file.fileno())
    except OSError as error:
        raise unreadable(str(dump), error) from None
    inputs = {"dump": [status.st_size, status.st_mtime_ns, start], **settings}
    work = folder.with_name(folder.name + ".part")
    settings_file = work / "settings.json"
    if settings_file.is_file() and _page_list(work).is_file():  # otherwise there is nothing to resume
        earlier = json.loads(settings_file.read_text("utf-8"))
        changed = [f"`{name}`" for name in inputs if earlier.get(name) != inputs[name]]
        if changed:
            raise DataError(
                f"'{work}' was left by a build with a different {' and '.join(changed)}; remove it to start again."
            )
        return work
    work.mkdir(parents=True, exist_ok=True)
    with atomically(settings_file) as path:
        path.write_text(json.dumps(inputs, ensure_ascii=False), "utf-8")
    return work


def _list_pages(dump: Path, work: Path, words: frozenset[str], report: Progress) -> Path:
    """Write the kind, title and redirect of every page in the article namespace; return the path."""
    path = _page_list(work)
    if path.is_file():
        return path
    size = dump.stat().st_size
    n_articles = n_texts = 0
    with (
        open_dump(dump, lambda done: report("list", done, size)) as (site, stream),
        atomically(path) as unfinished,
        open_target(unfinished) as file,
    ):
        for page in stream:
            n_texts += bool(page.text)
            if page.namespace == ARTICLE:
                entry = _entry(page, site, words)
                n_articles += entry.kind == Kind.ARTICLE
                file.write(("\t".join(entry) + "\n").encode())
        if not n_texts:
            raise fault(str(dump), None, "no page has any text; use a pages-articles dump, not one of stubs.")
        if not n_articles:
            raise fault(str(dump), None, "it contains no article; use a pages-articles dump.")
    return path


def _parse_pages(
    dump: Path, work: Path, sampled: NDArray[np.bool_], words: frozenset[str], n_jobs: int, report: Progress
) -> list[Path]:
    """Write text and links of the sampled pages, a mask over the article namespace; return the paths of the batches.

    Links to titles that end like those of disambiguation pages are dropped here, as the dump may lack the page.
    """
    count_file = work / "batches.json"  # written when all batches are
    if not count_file.is_file():
        done, total = 0, int(sampled.sum())
        with open_dump(dump) as (site, stream):
            for size in _run_jobs(_jobs(work, site, words, stream, sampled), n_jobs):
                done += size
                report("parse", done, total)
        n_batches = sum(1 for _ in work.glob("batch-*"))
        with atomically(count_file) as path:
            path.write_text(json.dumps(n_batches), "utf-8")
    return [_batch(work, number) for number in range(json.loads(count_file.read_text("utf-8")))]


def _documents(batch: Path) -> Iterator[dict[str, Any]]:
    """Yield the documents of a batch: id, title, links, text."""
    with open_source(batch) as source:
        for _, line in source.lines():
            yield json.loads(line)


def _page_list(work: Path) -> Path:
    return work / "pages.tsv.gz"


def _batch(work: Path, number: int) -> Path:
    return work / f"batch-{number:06}.jsonl.gz"


def _entry(page: Page, site: Site, words: frozenset[str]) -> Entry:
    link = page.redirect or redirect_target(page.text)
    if link is not None:
        end = site.target(link).title
        return Entry(Kind.REDIRECT, page.title, "" if is_disambiguation(end, "", words) else end)
    if is_disambiguation(page.title, page.text, words):
        return Entry(Kind.DISAMBIGUATION, page.title, "")
    return Entry(Kind.ARTICLE if page.text.strip() else Kind.BLANK, page.title, "")


def _jobs(
    work: Path, site: Site, words: frozenset[str], stream: Iterable[Page], sampled: NDArray[np.bool_]
) -> Iterator[_Job]:
    batch: list[Page] = []
    number = position = size = 0
    for page in stream:
        if page.namespace != ARTICLE:
            continue
        if sampled[position]:
            batch.append(page)
            size += len(page.text)
        position += 1
        if len(batch) == _BATCH_PAGES or size > _BATCH_CHARACTERS:
            yield _Job(_batch(work, number), batch, site, words)
            number += 1
            batch, size = [], 0
    if batch:
        yield _Job(_batch(work, number), batch, site, words)


def _run_jobs(jobs: Iterable[_Job], n_jobs: int) -> Iterator[int]:
    """Yield the number of pages of each batch when its file is written."""
    if n_jobs == 1:
        for job in jobs:
            yield len(job.pages) if job.path.is_file() else _parse_batch(job)
        return
    # Not by fork: a process with threads, such as those of BLAS, must not be forked.
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
            "a process that parses wikitext died, perhaps for lack of memory; call build again to resume, with fewer "
            "`n_jobs`, and in a script under `if __name__ == '__main__':`."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _parse_batch(job: _Job) -> int:
    failure = import_extra("mwparserfromhell.parser").ParserError
    with atomically(job.path) as path, open_target(path) as file:
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
