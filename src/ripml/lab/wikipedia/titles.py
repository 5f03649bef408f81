"""Titles and redirects of a whole wiki as sorted arrays of 64-bit keys, and how often each article is linked to.

A key is the first 8 bytes of a title's BLAKE2b, so English Wikipedia (6.8 million articles, 10 million redirects) takes
8·6.8 + 16·10 ≈ 220 MB, where a dict of strings would take several gigabytes. Two of n titles share a key with
probability n²/2⁶⁵: 10⁻⁵ for 17 million.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ripml.datasets.source import open_source

__all__ = ["Entry", "Keys", "Kind", "Titles", "count_keys", "find", "key_of", "read_entries"]

Keys: TypeAlias = NDArray[np.uint64]

_NOWHERE: Final = 2**64 - 1
_MERGE_AT: Final = 2**22


class Kind:
    """Kinds of pages in the article namespace; a blank one has no text."""

    ARTICLE: Final = "a"
    DISAMBIGUATION: Final = "d"
    REDIRECT: Final = "r"
    BLANK: Final = "b"


class Entry(NamedTuple):
    """A page in the article namespace; `redirects_to` is the title that a redirect leads to, "" if not an article."""

    kind: str
    title: str
    redirects_to: str


def key_of(title: str) -> int:
    """Return the 64-bit key of a title.

    >>> key_of("Paris") == key_of("paris")
    False
    """
    return int.from_bytes(blake2b(title.encode(), digest_size=8).digest(), "little")


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the entries of a list of pages: lines of kind, title and redirect, separated by tabs."""
    with open_source(path) as source:
        for _, line in source.lines():
            yield Entry(*line.decode().split("\t"))


@dataclass(frozen=True)
class Titles:
    """All titles in the article namespace of a dump.

    Attributes
    ----------
    is_article : bool, shape (pages,)
        In the order of the dump; False for redirects, disambiguation pages and blank ones.
    articles, disambiguation : sorted uint64
        Keys of their titles.
    sources, ends : uint64
        Keys of redirects, sorted, and where each ends: chains are followed, a loop ends nowhere.
    """

    is_article: NDArray[np.bool_]
    articles: Keys
    disambiguation: Keys
    sources: Keys
    ends: Keys

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Titles:
        """Collect the titles of a list of pages.

        >>> titles = Titles.of([Entry("a", "Paris", ""), Entry("r", "Lutetia", "Paris"), Entry("r", "Loop", "Loop")])
        >>> linked = np.array([key_of(title) for title in ("Lutetia", "Loop", "Nowhere")], np.uint64)
        >>> [len(titles.resolve(linked, targets)[0]) for targets in ("articles", "any")]
        [1, 2]
        """

        def keys() -> Iterator[tuple[int, int, int]]:
            for entry in entries:
                yield (
                    ord(entry.kind),
                    key_of(entry.title),
                    key_of(entry.redirects_to) if entry.redirects_to else _NOWHERE,
                )

        table = np.fromiter(keys(), np.dtype([("kind", "u1"), ("key", "u8"), ("to", "u8")]))
        kind, key = table["kind"], table["key"]
        redirects = table[kind == ord(Kind.REDIRECT)]
        redirects = redirects[np.argsort(redirects["key"], kind="stable")]
        return cls(
            kind == ord(Kind.ARTICLE),
            np.sort(key[kind == ord(Kind.ARTICLE)]),
            np.sort(key[kind == ord(Kind.DISAMBIGUATION)]),
            np.ascontiguousarray(redirects["key"]),
            _follow(redirects["key"], redirects["to"]),
        )

    def resolve(self, keys: Keys, targets: str) -> tuple[Keys, NDArray[np.intp]]:
        """Follow links through redirects; return where the valid ones end, and their positions among the links."""
        positions, is_redirect = find(self.sources, keys)
        ends = keys.copy()
        ends[is_redirect] = self.ends[positions[is_redirect]]
        valid = (ends != _NOWHERE) & ~find(self.disambiguation, ends)[1]
        if targets == "articles":
            valid &= find(self.articles, ends)[1]
        return ends[valid], np.flatnonzero(valid)


def find(table: Keys, keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the position of each key in a sorted table, and whether the table has it."""
    positions = np.searchsorted(table, keys)
    if len(table) == 0:
        return positions, np.zeros(len(keys), bool)
    return positions, table[np.minimum(positions, len(table) - 1)] == keys


def count_keys(blocks: Iterable[Keys]) -> tuple[Keys, NDArray[np.int64]]:
    """Return the sorted keys of many blocks and their counts, in 16 bytes per distinct key and a buffer as large.

    >>> keys, counts = count_keys([np.array([7, 5], np.uint64), np.array([7], np.uint64)])
    >>> keys.tolist(), counts.tolist()
    ([5, 7], [1, 2])
    """
    keys, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    waiting: list[Keys] = []
    size = 0
    for block in blocks:
        waiting.append(block)
        size += len(block)
        if size > max(_MERGE_AT, len(keys)):
            keys, counts = _merged(keys, counts, waiting)
            waiting, size = [], 0
    return _merged(keys, counts, waiting)


def _merged(keys: Keys, counts: NDArray[np.int64], waiting: list[Keys]) -> tuple[Keys, NDArray[np.int64]]:
    new, new_counts = np.unique(np.concatenate([keys[:0], *waiting]), return_counts=True)
    merged, positions = np.unique(np.concatenate([keys, new]), return_inverse=True)
    total = np.zeros(len(merged), np.int64)
    np.add.at(total, positions, np.concatenate([counts, new_counts]))
    return merged, total


def _follow(sources: Keys, redirects_to: Keys) -> Keys:
    """Follow chains by pointer jumping: each round doubles the length followed, so a loop is found in log n rounds."""
    ends = np.array(redirects_to)
    for _ in range(len(sources).bit_length() + 1):
        positions, is_redirect = find(sources, ends)
        if not is_redirect.any():
            return ends
        ends[is_redirect] = ends[positions[is_redirect]]
    ends[find(sources, ends)[1]] = _NOWHERE
    return ends
