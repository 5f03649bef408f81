"""`build`: from a dump of Wikipedia to the Entity Recommendation data set of the paper.

An entity is any segment of text that is linked to another page: a document is an article x, and its labels are
y = {articles that x links to}. The paper sampled a million articles of English Wikipedia, dropped entities with fewer
than 10 occurrences and took doc2vec of 400 dimensions: 500,539 training and 10,000 test rows, 359,524 labels.

The walk, each step reading what the one before has written into `<folder>.part/`:

1. *list*: read the dump once; write kind, title and redirect of every page in the namespace of articles.
2. *parse*: draw the sample, read the dump again, and hand batches of wikitext to processes that write text and links.
3. *labels*: follow the links through redirects, count, drop what is rare, draw the test rows.
4. *write*: documents, features, matrices; the finished folder then takes its name.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.errors import DataError, ParameterError, check_count
from ripml.base.parallel import thread_count
from ripml.datasets import xmc
from ripml.datasets.dataset import Dataset, csr
from ripml.datasets.source import open_source, open_target
from ripml.lab.wikipedia.dump import needed
from ripml.lab.wikipedia.markup import DISAMBIGUATION
from ripml.lab.wikipedia.pages import Keys, Pages, find, number, read_entries, tally
from ripml.lab.wikipedia.work import Progress, documents, list_pages, parse_pages, work_folder

__all__ = ["Summary", "build"]


@dataclass(frozen=True)
class Summary:
    """What `build` found and made."""

    articles: int
    redirects: int
    disambiguation_pages: int
    sampled: int
    without_text: int  # of those sampled: nothing but markup, or markup that the parser fails at
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

    An interrupted build goes on from its last finished batch when called again, and gives the same bytes; so does any
    number of processes. Until it is finished there is only `<folder>.part`, which is no data set. The dump is read
    twice, and once more after an interruption. Called from a script, this must stand under
    `if __name__ == "__main__":`, as processes need it, unless n_jobs is 1.

    Memory does not grow with the length of the dump, but with the number of its titles. For English Wikipedia: numbers
    of 17 million titles, 0.25 GB, and 1 GB while they are gathered; 16 bytes for each distinct target, and as much
    again to count; 4 bytes for each label of a document; and 4 million characters of wikitext for each of 2·n_jobs
    batches under way. Features come on top: the texts of the training documents are held at once (28 kB each in the
    first hundred articles, which are long), and the matrix, 1.6 GB for 500,000 × 400.

    Parameters
    ----------
    dump : path
        pages-articles: .xml.bz2, .xml.gz or .xml.
    folder : path
        Must not exist.
    n_documents : int or None
        Sample so many articles, before anything is filtered; None, or more than there are: all.
    min_count : int
        A label must be linked from at least so many of the sampled documents; links of one document count once.
    n_test : int
        Test rows, drawn at random; at most a fifth of the documents.
    features : "doc2vec", "tfidf", None or an object
        Learnt from the training texts alone. "doc2vec" trains on one thread, to give the same bytes every time. None:
        the matrices have no columns. An object has `fit_transform(texts)` and `transform(texts)`, such as
        `ripml.text.doc2vec.Doc2Vec(n_dims=400, n_jobs=8)`.
    n_dims : int
        Of doc2vec.
    targets : "articles" or "any"
        "articles": a label must be an article of the dump, so red links are none. "any": also pages that the dump does
        not have; for excerpts, where nearly all targets are missing.
    disambiguation : iterable of str
        Names of templates, and words in brackets at the end of titles, that mark disambiguation pages. These are
        neither documents nor labels. By default those of the larger languages.
    random_state : int
        Seed of the sample, of the split and of doc2vec.
    n_jobs : int or None
        Processes that parse wikitext; None: one for each core.
    progress : callable, optional
        Gets (step, done, total): "list" in bytes of the dump, "parse" in documents after each batch, "labels" and
        "write" in batches.

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
    for name, value, least in (("min_count", min_count, 1), ("n_test", n_test, 1), ("n_dims", n_dims, 1)):
        check_count(name, value, least=least)
    check_count("random_state", random_state, least=0)
    if n_documents is not None:
        check_count("n_documents", n_documents)
    if targets not in ("articles", "any"):
        raise ParameterError(f"`targets` must be 'articles' or 'any'; got {targets!r}.")
    vectorizer = _vectorizer(features, n_dims, random_state)
    n_jobs = thread_count(n_jobs)
    for package in ("mwxml", "mwparserfromhell"):
        needed(package)
    dump, folder = Path(dump), Path(folder)
    if folder.exists():
        raise ParameterError(f"'{folder}' exists already; remove it, or build into another folder.")
    tell = progress or (lambda step, done, total: None)
    words = frozenset(word.lower() for word in disambiguation)

    work = work_folder(dump, folder, n_documents=n_documents, random_state=random_state, disambiguation=sorted(words))
    listed = list_pages(dump, work, words, tell)
    table = Pages.of(read_entries(listed))
    chosen = _sample(table.is_article, n_documents, random_state)
    batches = parse_pages(dump, work, chosen, words, n_jobs, tell)
    keys = _frequent(batches, table, targets, min_count, dump, tell)
    names, keys = _named(keys, listed, batches)
    has_labels, Y = _labels(batches, table, targets, keys)
    in_test = _split(Y.shape[0], n_test, random_state, dump)

    finished = work / "finished"
    shutil.rmtree(finished, ignore_errors=True)
    finished.mkdir()
    _write_documents(finished / "docs.jsonl", batches, has_labels, Y, names, in_test, tell)
    _write_matrices(finished, Y, names, in_test, vectorizer)
    summary = Summary(
        articles=int(table.is_article.sum()),
        redirects=len(table.sources),
        disambiguation_pages=len(table.disambiguation),
        sampled=int(chosen.sum()),
        without_text=int(chosen.sum()) - len(has_labels),
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
        from ripml.text import TfIdf  # imports scikit-learn, which the rest does without

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


def _resolved(batch: Path, table: Pages, targets: str) -> tuple[int, NDArray[np.intp], Keys]:
    """Return the number of documents of a batch and their links as sorted pairs (document, key), each once."""
    own: list[int] = []
    links: list[int] = []
    counts: list[int] = []
    for document in documents(batch):
        own.append(number(document["title"]))
        links += map(number, document["links"])
        counts.append(len(document["links"]))
    ends, which = table.resolve(np.array(links, np.uint64), targets)
    row = np.repeat(np.arange(len(own)), counts)[which]
    order = np.lexsort((ends, row))
    row, ends = row[order], ends[order]
    good = ends != np.array(own, np.uint64)[row]  # a link to the article itself, perhaps through a redirect
    good[1:] &= (row[1:] != row[:-1]) | (ends[1:] != ends[:-1])
    return len(own), row[good], ends[good]


def _frequent(batches: list[Path], table: Pages, targets: str, min_count: int, dump: Path, tell: Progress) -> Keys:
    def linked() -> Iterator[Keys]:
        for done, batch in enumerate(batches, 1):
            yield _resolved(batch, table, targets)[2]
            tell("labels", done, len(batches))

    keys, counts = tally(linked())
    frequent = keys[counts >= min_count]
    if len(frequent) == 0:
        raise DataError(
            f"{dump}: no article is linked from at least min_count = {min_count} of the documents; the most is "
            f"{counts.max(initial=0)}: lower `min_count`, or take targets='any' if this is an excerpt of a dump."
        )
    return frequent


def _named(keys: Keys, listed: Path, batches: list[Path]) -> tuple[list[str], Keys]:
    """Return the titles of the keys in alphabetical order, and the keys in that order."""

    def titles() -> Iterator[str]:
        for entry in read_entries(listed):
            yield from (entry.title, entry.leads_to)
        for batch in batches:
            for document in documents(batch):
                yield from document["links"]

    wanted = set(keys.tolist())
    found: list[tuple[str, int]] = []
    for title in titles():
        key = number(title)
        if key in wanted:
            wanted.remove(key)
            found.append((title, key))
            if not wanted:
                break
    found.sort()
    return [title for title, _ in found], np.array([key for _, key in found], np.uint64)


def _labels(batches: list[Path], table: Pages, targets: str, keys: Keys) -> tuple[NDArray[np.bool_], Any]:
    """Return which documents have a label, and Y of those: one where a document links to keys[j]."""
    order = np.argsort(keys)
    columns: list[NDArray[np.int32]] = []
    counts: list[NDArray[np.int64]] = []
    for batch in batches:
        n, row, ends = _resolved(batch, table, targets)
        at, known = find(keys[order], ends)
        row, column = row[known], order[at[known]].astype(np.int32)
        columns.append(column[np.lexsort((column, row))])
        counts.append(np.bincount(row, minlength=n))
    count = np.concatenate(counts)
    has_labels = count > 0
    indptr = np.concatenate(([0], np.cumsum(count[has_labels])))
    indices = np.concatenate(columns)
    return has_labels, csr(np.ones(len(indices), np.float32), indices, indptr, len(keys))


def _split(n: int, n_test: int, random_state: int, dump: Path) -> NDArray[np.bool_]:
    if n < 2:
        raise DataError(f"{dump}: only {n} document has labels, but two are needed, to train and to test.")
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
    tell: Progress,
) -> None:
    at = row = 0
    with open_target(path) as file:
        for done, batch in enumerate(batches, 1):
            for document in documents(batch):
                if has_labels[at]:
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
                at += 1
            tell("write", done, len(batches))


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
        with open_target(folder / f"{split}.txt") as file:
            xmc.write(Dataset(X=X, Y=Y[np.flatnonzero(part)], label_names=names), file)
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names), "utf-8")
    words = getattr(vectorizer, "feature_names", None)
    if words is not None:
        (folder / "features.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")
