"""Titles and redirects of a whole wiki as sorted arrays of 64-bit numbers, and how often each article is linked to.

A title is the first 8 bytes of its BLAKE2b, so English Wikipedia (6.8 million articles, 10 million redirects) takes
8·6.8 + 16·10 ≈ 220 MB, where a dict of strings would take some gigabytes. Two of n titles share a number with
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

__all__ = ["Entry", "Keys", "Kind", "Pages", "find", "number", "read_entries", "tally"]

Keys: TypeAlias = NDArray[np.uint64]

_NOWHERE: Final = 2**64 - 1
_MERGE_AT: Final = 2**22


class Kind:
    """What a page of the namespace of articles is; a blank one has no text."""

    ARTICLE: Final = "a"
    DISAMBIGUATION: Final = "d"
    REDIRECT: Final = "r"
    BLANK: Final = "b"


class Entry(NamedTuple):
    """A page of the namespace of articles; `leads_to` is the title that a redirect leads to, "" for no article."""

    kind: str
    title: str
    leads_to: str


def number(title: str) -> int:
    """Return the 64-bit number of a title.

    >>> number("Paris") == number("paris")
    False
    """
    return int.from_bytes(blake2b(title.encode(), digest_size=8).digest(), "little")


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the lines of the list of pages: kind, title, where it leads, with tabs between."""
    with open_source(path) as source:
        for _, line in source.lines():
            yield Entry(*line.decode().split("\t"))


@dataclass(frozen=True)
class Pages:
    """All pages of a dump's namespace of articles.

    Attributes
    ----------
    is_article : bool, shape (pages,)
        In the order of the dump; False for redirects, disambiguation pages and blank ones.
    articles, disambiguation : sorted uint64
        Numbers of their titles.
    sources, ends : uint64
        Redirects, sorted, and where each ends: chains are followed, a loop ends nowhere.
    """

    is_article: NDArray[np.bool_]
    articles: Keys
    disambiguation: Keys
    sources: Keys
    ends: Keys

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Pages:
        """Gather the list of pages.

        >>> pages = Pages.of([Entry("a", "Paris", ""), Entry("r", "Lutetia", "Paris"), Entry("r", "Loop", "Loop")])
        >>> linked = np.array([number(title) for title in ("Lutetia", "Loop", "Nowhere")], np.uint64)
        >>> [len(pages.resolve(linked, targets)[0]) for targets in ("articles", "any")]
        [1, 2]
        """

        def keys() -> Iterator[tuple[int, int, int]]:
            for entry in entries:
                yield ord(entry.kind), number(entry.title), number(entry.leads_to) if entry.leads_to else _NOWHERE

        table = np.fromiter(keys(), np.dtype([("kind", "u1"), ("key", "u8"), ("to", "u8")]))
        kind, key = table["kind"], table["key"]
        redirects = table[kind == ord(Kind.REDIRECT)]
        redirects = redirects[np.argsort(redirects["key"], kind="stable")]
        return cls(
            kind == ord(Kind.ARTICLE),
            np.sort(key[kind == ord(Kind.ARTICLE)]),
            np.sort(key[kind == ord(Kind.DISAMBIGUATION)]),
            np.ascontiguousarray(redirects["key"]),
            _followed(redirects["key"], redirects["to"]),
        )

    def resolve(self, keys: Keys, targets: str) -> tuple[Keys, NDArray[np.intp]]:
        """Follow links through redirects; return where the good ones end, and which of the links they are."""
        at, redirected = find(self.sources, keys)
        ends = keys.copy()
        ends[redirected] = self.ends[at[redirected]]
        good = (ends != _NOWHERE) & ~find(self.disambiguation, ends)[1]
        if targets == "articles":
            good &= find(self.articles, ends)[1]
        return ends[good], np.flatnonzero(good)


def find(table: Keys, keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where each key would stand in a sorted table, and whether it is there."""
    at = np.searchsorted(table, keys)
    if len(table) == 0:
        return at, np.zeros(len(keys), bool)
    return at, table[np.minimum(at, len(table) - 1)] == keys


def tally(blocks: Iterable[Keys]) -> tuple[Keys, NDArray[np.int64]]:
    """Count keys over many blocks in 16 bytes a distinct key, sorted, and a buffer as large.

    >>> keys, counts = tally([np.array([7, 5], np.uint64), np.array([7], np.uint64)])
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
    merged, at = np.unique(np.concatenate([keys, new]), return_inverse=True)
    total = np.zeros(len(merged), np.int64)
    np.add.at(total, at, np.concatenate([counts, new_counts]))
    return merged, total


def _followed(sources: Keys, leads_to: Keys) -> Keys:
    """Follow chains by pointer jumping: each round doubles the length that is followed, so a loop is known in log n."""
    ends = np.array(leads_to)
    for _ in range(len(sources).bit_length() + 1):
        at, on = find(sources, ends)
        if not on.any():
            return ends
        ends[on] = ends[at[on]]
    ends[find(sources, ends)[1]] = _NOWHERE
    return ends
