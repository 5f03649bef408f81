"""Texts of a file that is larger than memory: counted in one pass over its blocks, weighed in another.

The first pass counts the words of all kinds of features together and takes a fingerprint of each text, so that copies
of a text become one row with all labels, as they do in memory. What is held are the counts since the last files were
written, and eight bytes per text, more for those since. The second pass makes rows of the words that were chosen.

    journal.json                  what is complete
    words-0-3.txt groups-0-3.txt  the counts of the third part of the texts, for the first kind of features
    copies-3.npz                  the fingerprints and the labels of these texts

A pass that was interrupted goes on after the last part. Reading the file again up to there costs little: most of the
time goes into words.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.arrays import csr_of
from ripml.base.errors import DataError, ParameterError
from ripml.base.workspace import atomically, boot_id
from ripml.datasets import Dataset, source
from ripml.model.budget import Sizes
from ripml.text import TextFeatures, TfIdf
from ripml.text.counts import TOKEN_BYTES, WordCounts

__all__ = ["CountedTexts", "count_texts", "estimate_sizes"]

_log = logging.getLogger("ripml")

_FORMAT: Final = 1
_PART: Final = 1 << 28  # characters of texts after which counts are written
_GROWTH: Final = 0.6  # by Heaps' law, words grow with this power of the texts
_BLANK: Final = 0  # the fingerprint of a text without a word


@dataclass(frozen=True)
class _Journal:
    format: int = _FORMAT
    about: str = ""  # the file and the features: counts of others cannot be used
    boot: str = ""
    blocks: int = 0
    checksum: int = 0
    parts: int = 0
    rows: int = 0


@dataclass(frozen=True)
class CountedTexts:
    """What the first pass knows of the rows."""

    n_rows: int
    label_names: list[str]
    kept: NDArray[np.bool_] | None = None  # (n,) the first copy of each text; None where no text is blank or a copy
    more: Any = None  # CSR (n, L), the labels of later copies

    def rows(
        self, blocks: Iterable[Dataset], text: TextFeatures, evidence: Callable[[list[str], Any], Any]
    ) -> Iterator[tuple[Any, Any]]:
        """The features and labels of distinct texts; `evidence` adds what the texts say of labels by their names."""
        start = 0
        for block in blocks:
            texts, Y = block.texts or [], block.Y
            Y = csr_of(Y.data, Y.indices, Y.indptr, len(self.label_names))
            if self.kept is not None:
                mine = slice(start, start + len(texts))
                kept = np.flatnonzero(self.kept[mine])
                Y = csr_array(Y + self.more[mine], dtype=np.float32)
                Y.data[:] = 1
                texts, Y = [texts[row] for row in kept.tolist()], Y[kept]
            start += len(block)
            yield evidence(texts, text.transform(texts)), Y
        for part in text.parts:
            if isinstance(part, TfIdf):
                part.clear_caches()


def estimate_sizes(blocks: Iterator[Dataset], n_bytes: int, text: Callable[[], TextFeatures]) -> Sizes:
    """The sizes of a file of `n_bytes` by its first block: words and labels grow with a power of the rows.

    `text` makes the features of texts, if the file has texts.
    """
    first = next(blocks, None)
    if first is None:
        raise DataError("there is nothing to learn from: the file has no rows.")
    growth = 1.0 if next(blocks, None) is None else max(2.0, n_bytes / source.CHUNK_BYTES)
    n, L = int(len(first) * growth), int(first.Y.shape[1] * growth**_GROWTH)
    if first.X is not None:
        return Sizes(n, first.X.shape[1], L, first.X.nnz / max(len(first), 1))
    texts = first.texts or []
    d, entries = 0, 0
    for part in text().parts:
        entries += part.learn(texts).nnz
        most = getattr(part, "max_features", None) or 10**9
        d += int(min(part.n_features * growth**_GROWTH, 1.5 * most))
    return Sizes(n, d, L, entries / max(len(first), 1), growth * sum(map(len, texts)))


def count_texts(
    blocks: Callable[[], Iterable[Dataset]], text: TextFeatures, folder: Path, memory: int, about: str
) -> CountedTexts:
    """Learn the words of `text` from the texts of blocks, with about `memory` bytes of counts and the rest in `folder`.

    `about` says which file is read, and how: a run that was interrupted goes on if that is the same.
    """
    for part in text.parts:
        if not isinstance(part, TfIdf):
            raise ParameterError(f"features of kind {part.kind!r} need all texts in memory; use 'tfidf' or 'title'.")
    folder.mkdir(parents=True, exist_ok=True)
    counting = _Counting(text, folder, memory, f"{about} {text.recipe()}")
    if not counting.is_complete:
        counting.count(blocks())
    return counting.learn()


class _Counting:
    """The pass, with the parts of an earlier run."""

    def __init__(self, text: TextFeatures, folder: Path, memory: int, about: str) -> None:
        self.parts: list[Any] = text.parts
        self.folder, self.memory = folder, memory
        self.journal = self._read(about)
        self.names: list[str] = []  # of all labels so far
        self.is_complete = (folder / "complete.json").exists()
        parts = [part["fingerprints"] for part in self._saved()]
        self.seen = np.unique(np.concatenate([np.array([_BLANK], np.uint64), *parts]))
        self._start_part()

    def _read(self, about: str) -> _Journal:
        new = _Journal(about=about, boot=boot_id())
        try:
            journal = _Journal(**json.loads((self.folder / "journal.json").read_text()))
        except (OSError, ValueError, TypeError):
            journal = replace(new, about="")
        if (journal.format, journal.about, journal.boot) == (new.format, new.about, new.boot):
            return journal
        (self.folder / "complete.json").unlink(missing_ok=True)
        return new

    def _start_part(self) -> None:
        self.counts = [WordCounts() for _ in self.parts]
        self.new = set[int]()  # fingerprints of this part, which `seen` does not have yet
        self.fingerprints: list[NDArray[np.uint64]] = []
        self.labels: list[Any] = []
        self.size = 0

    def count(self, blocks: Iterable[Dataset]) -> None:
        """Count all texts, and write the counts."""
        checksum, number = 0, 0
        for number, block in enumerate(blocks, 1):
            found = _fingerprints(block.texts or [])
            for array in (found, block.Y.indices, block.Y.indptr):
                checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
            self.names = block.label_names
            if number <= self.journal.blocks:
                if number == self.journal.blocks and checksum != self.journal.checksum:
                    raise DataError(f"{self.folder}: the texts here are not those given now; remove the folder.")
                continue
            texts = [text for text, known in zip(block.texts or [], self._known(found), strict=True) if not known]
            for part, counts in zip(self.parts, self.counts, strict=True):
                part.add_texts(texts, counts)
            self.fingerprints.append(found)
            self.labels.append(block.Y)
            self.size += sum(map(len, block.texts or []))
            held = sum(len(counts.words) + len(counts.groups) for counts in self.counts)
            if self.size >= _PART or TOKEN_BYTES * held >= self.memory:
                self._write_part(number, checksum)
        if self.fingerprints:
            self._write_part(number, checksum)
        with atomically(self.folder / "complete.json") as path:
            path.write_text(json.dumps(self.names))

    def _known(self, fingerprints: NDArray[np.uint64]) -> list[bool]:
        """Whether each of these texts is blank or came before, from now on."""
        place = np.minimum(np.searchsorted(self.seen, fingerprints), len(self.seen) - 1)
        known: list[bool] = (self.seen[place] == fingerprints).tolist()
        for row, number in enumerate(fingerprints.tolist()):
            known[row] = known[row] or number in self.new
            self.new.add(number)
        return known

    def _write_part(self, n_blocks: int, checksum: int) -> None:
        journal = self.journal
        for i, counts in enumerate(self.counts):
            counts.words.write_run(self._run("words", i, journal.parts))
            counts.groups.write_run(self._run("groups", i, journal.parts))
        lengths = np.concatenate([np.diff(Y.indptr) for Y in self.labels])
        with atomically(self.folder / f"copies-{journal.parts}.npz") as path:
            np.savez(
                path,
                fingerprints=np.concatenate(self.fingerprints),
                lengths=lengths.astype(np.int32),
                labels=np.concatenate([Y.indices for Y in self.labels]).astype(np.int32),
            )
        self.journal = replace(
            journal,
            blocks=n_blocks,
            checksum=checksum,
            parts=journal.parts + 1,
            rows=journal.rows + len(lengths),
        )
        with atomically(self.folder / "journal.json") as path:
            path.write_text(json.dumps(asdict(self.journal), indent=1))
        _log.info("the words of %s texts are counted", f"{self.journal.rows:,}")
        self.seen = np.unique(np.concatenate([self.seen, *self.fingerprints]))
        self._start_part()

    def _run(self, kind: str, i: int, number: int) -> Path:
        return self.folder / f"{kind}-{i}-{number}.txt"

    def learn(self) -> CountedTexts:
        """Choose the words of all parts, and find the copies."""
        fingerprints = np.concatenate([part["fingerprints"] for part in self._saved()])
        names: list[str] = json.loads((self.folder / "complete.json").read_text())
        n = len(fingerprints)
        _, first, group = np.unique(fingerprints, return_index=True, return_inverse=True)
        first = first[group]
        filled = fingerprints != _BLANK
        kept = filled & (first == np.arange(n))
        for i, part in enumerate(self.parts):
            counts = WordCounts(int(np.count_nonzero(kept)))
            counts.words.runs = [self._run("words", i, number) for number in range(self.journal.parts)]
            counts.groups.runs = [self._run("groups", i, number) for number in range(self.journal.parts)]
            part.learn_counts(counts)
        if kept.all():
            return CountedTexts(n, names)
        rows, columns, start = list[NDArray[Any]](), list[NDArray[Any]](), 0
        for saved in self._saved():
            mine = slice(start, start + len(saved["lengths"]))
            is_copy = np.repeat(filled[mine] & ~kept[mine], saved["lengths"])
            rows.append(np.repeat(first[mine], saved["lengths"])[is_copy])
            columns.append(saved["labels"][is_copy])
            start = mine.stop
        of_row, labels = np.concatenate(rows), np.concatenate(columns)
        more = csr_array((np.ones(len(labels), np.float32), (of_row, labels)), shape=(n, len(names)))
        more.sum_duplicates()
        _log.info("%s of %s texts are blank or copies of others", f"{n - np.count_nonzero(kept):,}", f"{n:,}")
        return CountedTexts(n, names, kept, more)

    def _saved(self) -> Iterator[dict[str, NDArray[Any]]]:
        for number in range(self.journal.parts):
            with np.load(self.folder / f"copies-{number}.npz") as part:
                yield {name: part[name] for name in part.files}


def _fingerprints(texts: list[str]) -> NDArray[np.uint64]:
    """A number for each text, (n,), the same for texts that differ only in white space, and 0 for blank ones.

    >>> _fingerprints(["red  tea", "red tea", " ", "tea"]).tolist()[1:3] == _fingerprints(["red tea", ""]).tolist()
    True
    """
    normal = (" ".join(text.split()).encode("utf-8", "surrogatepass") for text in texts)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() if text else bytes(8) for text in normal)
    return np.frombuffer(digests, "<u8").astype(np.uint64)
