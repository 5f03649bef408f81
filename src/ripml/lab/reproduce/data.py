"""The rows that experiments train and ask with: named sets, random splits of documents, rows of the paper's shape."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml import datasets
from ripml.datasets import Dataset
from ripml.lab.chinese import random_splits, stock_news
from ripml.lab.reproduce.experiment import Extent
from ripml.text.doc2vec import Doc2Vec

__all__ = ["LABELS", "SETS", "Split", "chinese", "dims_grid", "entities", "named"]

_QUICK_CHARACTERS, _QUICK_ROWS, _QUICK_LABELS = 800, 4000, 1000
SETS = {"Bibtex": "bibtex", "Delicious": "delicious", "EUR-Lex": "eurlex"}  # the paper's name ↦ ours
LABELS = {"Bibtex": 159, "Delicious": 983, "EUR-Lex": 3675}


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to ask about."""

    X: Any
    Y: Any
    X_new: Any
    Y_new: Any


def named(extent: Extent, name: str) -> Split:
    """A named set in its own split; for the quick look, of a large one some rows and the most frequent labels."""
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
    """The paper's m: 50, 100, 20, 40 and 80 % of L, in ascending order; the quick look has 50, 100 and 40 %, of at most
    1,000 labels.

    >>> dims_grid(159, quick=False)
    [32, 50, 64, 100, 127]
    """
    shares = (0.4,) if quick else (0.2, 0.4, 0.8)
    of_labels = min(n_labels, 1000) if quick else n_labels
    return sorted({50, 100, *(round(share * of_labels) for share in shares)})


@functools.lru_cache(maxsize=1)
def _stock_news() -> Dataset:
    return stock_news()


@functools.lru_cache(maxsize=1)
def _wikispeedia() -> tuple[list[str], Any]:
    import scipy.sparse

    train, test = datasets.load("wikispeedia")
    texts = [*(train.texts or []), *(test.texts or [])]
    return texts, scipy.sparse.vstack([train.Y, test.Y], format="csr")


def chinese(extent: Extent, n_dims: int, tokens: str, split: int) -> Split:
    """The Chinese stand-in by doc2vec, the paper's way: vectors are learnt from all texts, without any label, and then
    500 documents are drawn for the test."""
    data = _stock_news()
    X = _doc2vec(extent, "chinese", data.texts or [], n_dims, tokens)
    return _drawn(extent, X, data.Y, 500, split)


def entities(extent: Extent, split: int) -> Split:
    """Wikispeedia by doc2vec of 400 dimensions, a fifth of its articles drawn for the test."""
    texts, Y = _wikispeedia()
    X = _doc2vec(extent, "wikispeedia", texts, 400, "words")
    return _drawn(extent, X, Y, len(texts) // 5, split)


def _drawn(extent: Extent, X: NDArray[np.float32], Y: Any, n_test: int, split: int) -> Split:
    train, test = random_splits(X.shape[0], n_test, split + 1, extent.seed)[split]
    return Split(X[train], Y[train], X[test], Y[test])


def _doc2vec(extent: Extent, name: str, texts: list[str], n_dims: int, tokens: str) -> NDArray[np.float32]:
    """Document vectors, learnt once and kept beside the measurements; the quick look reads the start of each text."""
    path = Path(extent.folder) / "features" / f"{name}-{tokens}-{n_dims}.npy"
    if not path.exists():
        vectors = Doc2Vec(n_dims=n_dims, tokens=tokens, random_state=extent.seed).fit_transform(
            [text[:_QUICK_CHARACTERS] for text in texts] if extent.quick else texts
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            np.save(file, vectors)
        part.replace(path)
    loaded: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return loaded
