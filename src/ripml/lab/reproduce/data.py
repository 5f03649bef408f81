"""The rows that experiments train and test on: named data sets, and random splits of documents as doc2vec vectors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml import datasets
from ripml.base.workspace import atomically
from ripml.lab.chinese import random_splits, stock_news
from ripml.lab.reproduce.experiment import Extent
from ripml.lab.reproduce.methods import Split
from ripml.text.doc2vec import Doc2Vec

__all__ = ["LABELS", "SETS", "chinese", "dims_grid", "entities", "named"]

_QUICK_CHARACTERS, _QUICK_ROWS, _QUICK_LABELS = 800, 4000, 1000
SETS = {"Bibtex": "bibtex", "Delicious": "delicious", "EUR-Lex": "eurlex"}  # the paper's name ↦ ours
LABELS = {"Bibtex": 159, "Delicious": 983, "EUR-Lex": 3675}


def named(extent: Extent, name: str) -> Split:
    """A named data set in its fixed split; for a quick look, some rows and the most frequent labels of a large one."""
    return _named(name, extent.quick)


@functools.lru_cache(maxsize=1)
def _named(name: str, quick: bool) -> Split:
    train, test = datasets.load(name)
    if not quick or train.Y.shape[1] <= _QUICK_LABELS:
        return Split(train.X, train.Y, test.X, test.Y)
    rows = np.sort(np.random.default_rng(0).permutation(len(train))[:_QUICK_ROWS])
    frequency = np.bincount(train.Y[rows].indices, minlength=train.Y.shape[1])
    labels = np.sort(np.argsort(-frequency, kind="stable")[:_QUICK_LABELS])
    return Split(train.X[rows], train.Y[rows][:, labels], test.X, test.Y[:, labels])


def dims_grid(n_labels: int, quick: bool) -> list[int]:
    """The paper's m: 50, 100, 20, 40 and 80 % of L, ascending; for a quick look 50, 100 and 40 % of at most 1,000.

    >>> dims_grid(159, quick=False)
    [32, 50, 64, 100, 127]
    """
    shares = (0.4,) if quick else (0.2, 0.4, 0.8)
    n_labels = min(n_labels, 1000) if quick else n_labels
    return sorted({50, 100, *(round(share * n_labels) for share in shares)})


def chinese(extent: Extent, n_dims: int, tokens: str, split: int) -> Split:
    """The Chinese stand-in by doc2vec, as in the paper: vectors are learnt from all texts without their labels, then
    500 documents are drawn for the test."""
    texts, Y = _stock_news()
    return _random_split(extent, _doc2vec(extent, "chinese", texts, n_dims, tokens), Y, 500, split)


def entities(extent: Extent, split: int) -> Split:
    """Wikispeedia by doc2vec of 400 dimensions, a fifth of its articles drawn for the test."""
    texts, Y = _wikispeedia()
    return _random_split(extent, _doc2vec(extent, "wikispeedia", texts, 400, "words"), Y, len(texts) // 5, split)


@functools.lru_cache(maxsize=1)
def _stock_news() -> tuple[list[str], Any]:
    data = stock_news()
    return data.texts or [], data.Y


@functools.lru_cache(maxsize=1)
def _wikispeedia() -> tuple[list[str], Any]:
    train, test = datasets.load("wikispeedia")
    return [*(train.texts or []), *(test.texts or [])], scipy.sparse.vstack([train.Y, test.Y], format="csr")


def _random_split(extent: Extent, X: NDArray[np.float32], Y: Any, n_test: int, split: int) -> Split:
    train, test = random_splits(X.shape[0], n_test, split + 1, extent.seed)[split]
    return Split(X[train], Y[train], X[test], Y[test])


def _doc2vec(extent: Extent, name: str, texts: list[str], n_dims: int, tokens: str) -> NDArray[np.float32]:
    """Document vectors, learnt once and kept beside the measurements; a quick look reads the start of each text."""
    path = extent.folder / "features" / f"{name}-{tokens}-{n_dims}.npy"
    if not path.exists():
        vectors = Doc2Vec(n_dims=n_dims, tokens=tokens, random_state=extent.seed).fit_transform(
            [text[:_QUICK_CHARACTERS] for text in texts] if extent.quick else texts
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomically(path) as part:
            np.save(part, vectors)
    loaded: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return loaded
