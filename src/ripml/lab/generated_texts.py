"""Generated texts with labels, any number of them, with the words and labels of a real data set.

Rows of numbers drawn from a formula have no true neighbours. Here, text t is made of two real texts that share a label:
a run of words of one, a run of words of the other, and some of the labels of each. So nearby texts share labels, words
have the frequencies of the language, and no text repeats more than `kept` of a real one, which keeps near-duplicates
under control. As a real collection grows, so do its words and labels:

- Texts are spread over worlds. A label has as many versions as worlds, or one fewer, so that there are about `n_labels`
  of them; words of fewer than `_RARE` real texts have one in each world, which tell the versions of labels apart.
- A word of one or two real texts has a version for every time that the real texts have been gone through.

Text t depends on the seed, t and the real texts alone: a smaller set is the beginning of a larger one with as many
labels.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError
from ripml.datasets.dataset import Dataset

__all__ = ["generate_texts"]

_RARE = 10  # a word of fewer real texts has a version in each world
_RAREST = 3  # one of fewer has a version in each round over the real texts
_LABELS_KEPT = (0.8, 0.4)  # the probability of a label of the first text, and of the second


def generate_texts(
    source: Dataset, n_rows: int, n_labels: int | None = None, kept: float = 0.6, random_state: int = 0
) -> Iterator[tuple[str, list[str]]]:
    """Yield `n_rows` texts and their labels; every text has a label. The first line of a text is its title.

    `source` has the real texts, of which those without labels are left out. `n_labels` is about the number of labels
    that enough texts show, by default that of the source. `kept` is the largest share of a real text that is repeated.

    >>> from ripml.datasets import documents_given
    >>> source = documents_given(["Red tea\\nTea is red.", "Green tea\\nIt is green."], [["tea"], ["tea", "green"]])
    >>> [labels for _, labels in generate_texts(source, 2)]
    [['tea', 'green'], ['tea', 'green']]
    """
    if source.texts is None:
        raise DataError(f"{source.name or 'the source'} has no texts.")
    known = len(source.label_names)
    if n_rows < 1 or (n_labels is not None and n_labels < known) or not 0 < kept <= 1:
        raise ParameterError(
            f"`n_rows` must be ≥ 1, `n_labels` at least the {known:,} labels of the source, and `kept` in (0, 1]; got "
            f"{n_rows}, {n_labels} and {kept}."
        )
    Y = source.Y
    labelled = np.flatnonzero(np.diff(Y.indptr))
    if not len(labelled):
        raise DataError(f"{source.name or 'the source'} has no labels.")
    texts = _Texts(source.texts, labelled)
    rows_of, ratio = Y.tocsc(), (n_labels or known) / known
    worlds = int(np.ceil(ratio))
    versions = [int(ratio) + (zlib.crc32(name.encode()) / 2**32 < ratio - int(ratio)) for name in source.label_names]

    def labels_of(row: int) -> NDArray[np.int64]:
        return np.asarray(Y.indices[Y.indptr[row] : Y.indptr[row + 1]], np.int64)

    for t in range(n_rows):
        rng = np.random.default_rng([random_state, t])
        first = int(labelled[rng.integers(len(labelled))])
        own = labels_of(first)
        column = int(own[rng.integers(len(own))])
        second = int(rows_of.indices[rng.integers(rows_of.indptr[column], rows_of.indptr[column + 1])])
        world = int(rng.integers(worlds))
        parts = [(own, _LABELS_KEPT[0]), (labels_of(second), _LABELS_KEPT[1])]
        chosen = {column, *(int(j) for labels, share in parts for j in labels[rng.random(len(labels)) < share])}
        names = []
        for j in sorted(chosen):
            version = world % versions[j]
            names.append(source.label_names[j] if not version else f"{source.label_names[j]}~{version}")
        yield texts.mixed(first, second, kept, world, t // len(labelled), rng), names


class _Texts:
    """The words of real texts."""

    def __init__(self, texts: list[str], rows: NDArray[np.int64]) -> None:
        self.texts = texts
        frequency = Counter[str]()
        for row in rows.tolist():
            frequency.update(set(texts[row].split()))
        self.frequency = {word: count for word, count in frequency.items() if count < _RARE}

    def mixed(self, first: int, second: int, kept: float, world: int, turn: int, rng: np.random.Generator) -> str:
        """Runs of words of two texts, the title being of both."""
        titles, bodies = zip(*(self._parts(row) for row in (first, second)), strict=True)
        title = [*_run(titles[0], kept, rng), *_run(titles[1], kept / 2, rng)]
        body = [*_run(bodies[0], kept, rng), *_run(bodies[1], kept / 2, rng)]
        return f"{' '.join(self._versions(title, world, turn))}\n{' '.join(self._versions(body, world, turn))}"

    def _parts(self, row: int) -> tuple[list[str], list[str]]:
        title, _, body = self.texts[row].partition("\n")
        return title.split(), body.split()

    def _versions(self, words: list[str], world: int, turn: int) -> Iterator[str]:
        for word in words:
            count = self.frequency.get(word, _RARE)
            if count < _RAREST and turn:
                yield f"{word}{_letters(turn)}"
            elif count < _RARE and world:
                yield f"{word}{_letters(world)}"
            else:
                yield word


def _run(words: list[str], share: float, rng: np.random.Generator) -> list[str]:
    """A run of up to this share of words, at least one word."""
    if not words:
        return []
    size = max(1, int(len(words) * share * (0.5 + rng.random() / 2)))
    start = int(rng.integers(len(words) - size + 1))
    return words[start : start + size]


def _letters(number: int) -> str:
    """A number in letters, so that it stays one word with what it follows.

    >>> _letters(1), _letters(27)
    ('b', 'bb')
    """
    found = ""
    while number:
        number, digit = divmod(number, 26)
        found = chr(ord("a") + digit) + found
    return found
