"""`Title`: the words of a text's title, counted apart from those of the text.

What stands at the beginning of a document says more about its subject than the rest. As features of their own, beside
those of the whole text, the words of the title get a weight of their own, which left-out texts choose (see
`ripml.text.views`). The title is the first line of a text that is not blank, up to 400 characters of it: of a text
without lines, its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from ripml.text.tfidf import TfIdf
from ripml.text.tokens import strings

__all__ = ["Title", "title_of"]

_MOST_CHARACTERS: Final = 400


def title_of(text: str) -> str:
    """The first line of a text that is not blank, up to 400 characters; a word that would be cut is left out.

    >>> title_of("\\n Airports\\nThey are built of concrete.")
    'Airports'
    >>> title_of("word " * 100) == " ".join(["word"] * 80)
    True
    """
    line = text.lstrip().partition("\n")[0]
    if len(line) > _MOST_CHARACTERS:
        line = line[: _MOST_CHARACTERS + 1]
        # In a script without spaces, words end anywhere.
        line = line.rpartition(" ")[0] or line[:_MOST_CHARACTERS]
    return line.rstrip()


class Title(TfIdf):
    """`TfIdf` of titles; it has the same parameters.

    >>> titles = Title(min_df=1)
    >>> titles.fit_transform(["Red tea\\nTea is red.", "Green tea"]).shape
    (2, 3)
    >>> titles.names
    ['green (title)', 'red (title)', 'tea (title)']
    """

    kind: ClassVar[str] = "title"

    def _count(self, texts: Iterable[str]) -> Any:
        return super()._count(map(title_of, strings(texts)))

    def spans(self, text: str) -> list[tuple[int, int, list[int]]]:
        """The pieces of the title that have features.

        >>> Title(min_df=1, tokens="any").fit(["red apple"]).spans("\\nAn apple!\\nIt is red.")
        [(4, 9, [0])]
        """
        start = len(text) - len(text.lstrip())
        return [(start + begin, start + end, columns) for begin, end, columns in super().spans(title_of(text))]

    @property
    def names(self) -> list[str]:
        """The words and groups of letters, marked as those of titles."""
        return [f"{name} (title)" for name in self.feature_names]

    @property
    def shares(self) -> None:
        """Titles do not say how many texts have a word."""
        return None
