"""`Title`: the words of a text's title, counted apart from those of the text.

What stands at the beginning of a document says more about its subject than the rest. As features of their own, beside
those of the whole text, the words of the title get a weight of their own, which left-out texts choose (see
`ripml.text.views`). The title is the first line of a text that has a word, up to 400 characters of it: of a text
without lines, its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from ripml.base.errors import DataError
from ripml.text.counts import WordCounts
from ripml.text.tfidf import TfIdf
from ripml.text.tokens import strings, tokens

__all__ = ["TITLE_MARK", "Title", "title_of"]

TITLE_MARK: Final = " (title)"  # behind the names of features of titles

_MOST_CHARACTERS: Final = 400
_LONGEST_WORD: Final = 40  # that is left out rather than cut; scripts without spaces are cut anywhere
_LINES: Final = 20  # that may come before the title


def title_of(text: str) -> str:
    """The first line of a text that has a word, up to 400 characters; a word that would be cut is left out.

    >>> title_of("---\\n Airports\\nThey are built of concrete.")
    'Airports'
    >>> title_of("word " * 100) == " ".join(["word"] * 80)
    True
    """
    start, end = _title_span(text)
    return text[start:end]


def _title_span(text: str) -> tuple[int, int]:
    """Where the title begins and ends."""
    begin = 0
    for _ in range(_LINES):
        line, _, rest = text[begin:].partition("\n")
        title = line[: _MOST_CHARACTERS + 1].strip() if len(line) > _MOST_CHARACTERS else line.strip()
        if tokens(title) or not rest:
            break
        begin += len(line) + 1
    start = begin + len(line) - len(line.lstrip())
    if len(title) > _MOST_CHARACTERS:
        last_space = title.rfind(" ", _MOST_CHARACTERS - _LONGEST_WORD)
        title = title[: last_space if last_space > 0 else _MOST_CHARACTERS].rstrip()
    return start, start + len(title)


@dataclass(kw_only=True, eq=False, repr=False)
class Title(TfIdf):
    """`TfIdf` of titles, with the same parameters and one more.

    Parameters
    ----------
    optional : bool, default=False
        Whether there may be no word that enough titles have. Then there is one feature, which no text has; otherwise
        that is an error.

    Examples
    --------
    >>> titles = Title(min_df=1)
    >>> titles.fit_transform(["Red tea\\nTea is red.", "Green tea"]).shape
    (2, 3)
    >>> titles.names
    ['green (title)', 'red (title)', 'tea (title)']
    """

    kind: ClassVar[str] = "title"

    optional: bool = False

    def _count(self, texts: Iterable[str]) -> Any:
        return super()._count(map(title_of, strings(texts)))

    def learn_counts(self, counts: WordCounts) -> None:
        """The same of titles."""
        try:
            super().learn_counts(counts)
        except DataError as error:
            if not self.optional:
                raise DataError(f"titles, the first lines of texts: {error}") from None
            self._set_features([" "], [], np.ones(1, np.float32))  # no token has a space

    def spans(self, text: str) -> list[tuple[int, int, list[int]]]:
        """The pieces of the title that have features.

        >>> Title(min_df=1, tokens="any").fit(["red apple"]).spans("\\nAn apple!\\nIt is red.")
        [(4, 9, [0])]
        """
        start, end = _title_span(text)
        return [(start + first, start + last, columns) for first, last, columns in super().spans(text[start:end])]

    @property
    def names(self) -> list[str]:
        """The words and groups of letters, marked as those of titles."""
        return [name + TITLE_MARK for name in self.feature_names]

    @property
    def shares(self) -> None:
        """None: document frequencies in titles are not those of whole texts."""
        return None

    def word_sequences(self, texts: Iterable[str]) -> None:
        """None: see `shares`."""
