"""The Chinese relevance data set: finance news and the tickers they are about, from documents to a folder for `load`.

In the paper: 5,011 documents by an editorial team, L = 391 tickers, 1.02 per document, doc2vec features of 100 to 400
dimensions, results averaged over 5 random splits into 4,511 and 500. Those documents are not public. `build` makes a
data set of the same kind from other documents, and `stock_news` reads a public substitute from RIPML_DATA. Only the
default features are specific to Chinese.

Documents come as a folder or as a JSONL file. A folder has one UTF-8 file `*.txt` per document, and a `labels.csv`
without a header, one line per document: the file's name, then its tickers. ::

    20190424-01.txt,00700,SH600519
    20190424-02.txt,TSLA

A document that is not in labels.csv has no labels. A JSONL line is `{"id": …, "labels": [ticker, …], "text": …}`.
"""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.errors import DataError, ParameterError, check_count
from ripml.datasets.catalogue import data_folder
from ripml.datasets.dataset import Dataset, join
from ripml.datasets.documents import Row, blocks
from ripml.datasets.formats import read, write
from ripml.datasets.source import fault, unreadable
from ripml.tagging.documents import distinct
from ripml.text import Doc2Vec, TfIdf

__all__ = ["Counts", "build", "clean", "random_splits", "read_documents", "stock_news"]

_LABELS: Final = "labels.csv"


@dataclass(frozen=True)
class Counts:
    """Counts of documents and labels: `n_read` = `n_kept` + `n_empty` + `n_duplicates` + `n_unlabelled`."""

    n_read: int
    n_empty: int
    n_duplicates: int
    n_unlabelled: int
    n_kept: int
    n_rare_labels: int
    n_labels: int


def build(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    features: str | TfIdf | Doc2Vec = "doc2vec",
    min_count: int = 2,
    n_test: int = 500,
    random_state: int = 0,
) -> Counts:
    """Make a data set for `ripml.datasets.load` from documents with labels, completely or not at all.

    Parameters
    ----------
    source : path
        A folder of documents or a JSONL file, as described above.
    folder : path
        The folder to make. Inside the folder RIPML_DATA, its name is the name of the data set.
    features : "doc2vec", "tfidf", or an unfitted Doc2Vec or TfIdf
        The words mean `Doc2Vec(tokens="jieba")` and `TfIdf(tokens="jieba")`. Features are learnt from the training
        texts only; with doc2vec, training rows are trained and test rows inferred.
    min_count : int
        A label must have at least this many documents.
    n_test : int
        Number of test documents, drawn at random.
    random_state : int
        Seed of the draw.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as home:
    ...     for name, text in {"a.txt": "茅台 涨停", "b.txt": "茅台 财报", "c.txt": "腾讯 财报"}.items():
    ...         _ = Path(home, name).write_text(text, encoding="utf-8")
    ...     _ = Path(home, "labels.csv").write_text("a.txt,SH600519\\nb.txt,SH600519\\nc.txt,00700\\n")
    ...     build(home, Path(home, "tiny"), features=TfIdf(tokens="chars", min_df=1), n_test=1)
    Counts(n_read=3, n_empty=0, n_duplicates=0, n_unlabelled=1, n_kept=2, n_rare_labels=1, n_labels=1)
    """
    target = Path(folder)
    if target.exists():
        raise DataError(f"{target}: already exists; remove it or choose another name.")
    vectorizer = _vectorizer(features)
    data, counts = clean(read_documents(source), min_count)
    texts, ids, names = data.texts or [], data.ids or [], data.label_names
    for name in names:
        if not name or any(mark in name for mark in "\t\r\n"):
            raise DataError(f"label {name!r} is empty or contains a tab or line break, which labels.txt cannot hold.")
    train, test = random_splits(len(data), n_test, 1, random_state)[0]
    rows = {"train": train, "test": test}
    X = {"train": vectorizer.fit_transform([texts[i] for i in train])}
    X["test"] = vectorizer.transform([texts[i] for i in test])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # One level deeper than `ripml.datasets.available` looks, so that it never lists an unfinished set.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as work:
            finished = Path(work, "set")
            finished.mkdir()
            for split, part_rows in rows.items():
                part = Dataset(X=csr_array(X[split]), Y=data.Y[part_rows], label_names=names, name=split)
                write(part, finished / f"{split}.txt")
            _write_lines(finished / "labels.txt", names)
            if isinstance(vectorizer, TfIdf):
                _write_lines(finished / "features.txt", vectorizer.feature_names)
            records = (
                {"id": ids[i], "split": split, "labels": data.row_labels(i), "text": texts[i]}
                for split, part_rows in rows.items()
                for i in part_rows
            )
            _write_lines(finished / "docs.jsonl", (json.dumps(record, ensure_ascii=False) for record in records))
            finished.rename(target)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror or error}).") from None
    return counts


def stock_news(min_count: int = 1) -> Dataset:
    """Return the labelled documents of the substitute, `zh_stock_news` in the folder RIPML_DATA, after `clean`.

    It has texts and labels but no X, and no fixed split, see `random_splits`. With `min_count` = 1 these are 5,545
    documents and 230 tickers, 1.08 per document.
    """
    home = data_folder()
    path = None if home is None else home / "zh_stock_news" / "docs.jsonl.gz"
    if path is None or not path.is_file():
        raise DataError(
            "there is no zh_stock_news/docs.jsonl.gz in the folder RIPML_DATA; set RIPML_DATA to its parent folder."
        )
    data, _ = clean(read(path), min_count)
    return replace(data, name="zh_stock_news")


def read_documents(source: str | os.PathLike[str]) -> Dataset:
    """Return the documents of a folder or JSONL file, as described above, with `texts`, `ids` and `Y` but no `X`.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as home:
    ...     _ = Path(home, "a.txt").write_text("茅台 涨停", encoding="utf-8")
    ...     _ = Path(home, "labels.csv").write_text("a.txt,SH600519\\n")
    ...     read_documents(home).texts
    ['茅台 涨停']
    """
    if Path(source).is_dir():
        return _read_folder(Path(source))
    data = read(source, "jsonl")
    return replace(data, X=None, feature_names=None, ids=data.ids or [str(i) for i in range(len(data))])


def clean(data: Dataset, min_count: int) -> tuple[Dataset, Counts]:
    """Return the documents without duplicates, empty texts, rare labels and unlabelled documents, and their counts.

    Copies and empty texts go first (see `ripml.tagging.documents.distinct`), then labels of fewer than `min_count`
    documents, then documents without a label.

    Examples
    --------
    >>> Y = csr_array([[1, 0], [0, 0], [0, 1], [1, 0]])
    >>> data = Dataset(X=None, Y=Y, label_names=["a", "b"], texts=["to be", " ", "to  be", "or not"])
    >>> kept, counts = clean(data, min_count=1)
    >>> kept.texts, kept.Y.toarray().tolist()
    (['to be', 'or not'], [[1.0, 1.0], [1.0, 0.0]])
    """
    check_count("min_count", min_count)
    if data.texts is None:
        raise DataError(f"{data.name}: these documents have no text.")
    merged = distinct(data)
    columns = np.flatnonzero(np.bincount(merged.Y.indices, minlength=merged.Y.shape[1]) >= min_count)
    Y = csr_array(merged.Y[:, columns])
    kept = np.flatnonzero(np.diff(Y.indptr))
    if not len(kept):
        raise DataError(f"no label occurs in {min_count} documents; lower `min_count` or pass more documents.")
    n_empty = sum(not text.strip() for text in data.texts)
    counts = Counts(
        n_read=len(data),
        n_empty=n_empty,
        n_duplicates=len(data) - n_empty - len(merged),
        n_unlabelled=len(merged) - len(kept),
        n_kept=len(kept),
        n_rare_labels=data.Y.shape[1] - len(columns),
        n_labels=len(columns),
    )
    names = [data.label_names[j] for j in columns]
    return replace(merged, X=None, feature_names=None, Y=Y, label_names=names).take(kept), counts


def random_splits(
    n: int, n_test: int, n_splits: int = 5, random_state: int = 0
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return (training rows, test rows) of each split of n rows, ascending; split i is the same for any `n_splits`.

    Examples
    --------
    >>> [(len(train), len(test)) for train, test in random_splits(5011, 500, n_splits=2)]
    [(4511, 500), (4511, 500)]
    """
    for name, value, least in (("n_test", n_test, 1), ("n_splits", n_splits, 1), ("random_state", random_state, 0)):
        check_count(name, value, least=least)
    if n_test >= n:
        raise DataError(f"`n_test` = {n_test} leaves none of {n} documents to train on; lower it.")
    shuffled = (np.random.default_rng([random_state, i]).permutation(n) for i in range(n_splits))
    return [(np.sort(rows[n_test:]), np.sort(rows[:n_test])) for rows in shuffled]


def _read_folder(folder: Path) -> Dataset:
    files = sorted(path.name for path in folder.glob("*.txt") if path.is_file())
    if not files:
        raise DataError(f"{folder}: there are no documents; the folder must have files *.txt and a {_LABELS}.")
    labels: dict[str, list[str]] = {}
    for number, (file, *tickers) in _csv_lines(folder / _LABELS):
        if file in labels:
            raise fault(str(folder / _LABELS), number, f"'{file}' is given twice.")
        labels[file] = [ticker for ticker in map(str.strip, tickers) if ticker]
    if missing := sorted(set(labels).difference(files)):
        raise DataError(f"{folder / _LABELS}: there is no document '{missing[0]}' in the folder.")
    names = sorted({ticker for tickers in labels.values() for ticker in tickers})
    rows = (Row((file, None), _text(folder / file), list(dict.fromkeys(labels.get(file, ()))), file) for file in files)
    return join(blocks(folder.name, rows, names))


def _csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        reader = csv.reader(_text(path).splitlines(), strict=True)
        yield from ((reader.line_num, [row[0].strip(), *row[1:]]) for row in reader if row)
    except csv.Error as error:
        raise fault(str(path), reader.line_num, f"this is not CSV ({error}).") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise fault(str(path), None, f"byte {error.start + 1} is not UTF-8; save the file as UTF-8.") from None
    except OSError as error:
        raise unreadable(str(path), error) from None


def _vectorizer(features: Any) -> TfIdf | Doc2Vec:
    if isinstance(features, (TfIdf, Doc2Vec)):
        return features
    if features not in ("doc2vec", "tfidf"):
        raise ParameterError(f"`features` must be 'doc2vec', 'tfidf', a Doc2Vec or a TfIdf; got {features!r}.")
    return Doc2Vec(tokens="jieba") if features == "doc2vec" else TfIdf(tokens="jieba")


def _write_lines(path: Path, lines: Any) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
