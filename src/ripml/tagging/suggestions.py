"""`Suggestions`: the answers to many texts, as lists that notebooks show as a table and pandas takes as a frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base import notebook
from ripml.base.errors import MissingExtraError
from ripml.tagging.rules import Suggestion

__all__ = ["Suggestions"]

_MOST_ROWS = 20  # that a notebook shows


class Suggestions(list[list[Suggestion]]):
    """For each text the suggested tags with their scores, best first: a list of lists.

    As an array it has one list per text, which is what scikit-learn's `cross_val_predict` puts together.

    >>> found = Suggestions([[("tea", 0.75), ("hot", 0.5)], []], index=["a", "b"])
    >>> found[0][0], np.asarray(found).shape
    (('tea', 0.75), (2,))
    >>> found.to_frame()
              tags       scores
    a  [tea, hot]  [0.75, 0.5]
    b          []           []
    """

    def __init__(self, answers: Iterable[list[Suggestion]] = (), index: Any = None) -> None:
        super().__init__(answers)
        self.index_of_texts = index

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = np.empty(len(self), object)
        found[:] = list(self)
        return found

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row per text, its tags and their scores, under the index of the texts.

        `frame.join(tagger.suggest_many(frame).to_frame())` puts both side by side, and `.explode(["tags", "scores"])`
        gives each suggestion a row of its own.
        """
        try:
            import pandas
        except ImportError:
            raise MissingExtraError("pandas", None) from None
        tags = [[tag for tag, _ in one] for one in self]
        scores = [[score for _, score in one] for one in self]
        return pandas.DataFrame({"tags": tags, "scores": scores}, index=self.index_of_texts)

    def _repr_html_(self) -> str:
        names = range(len(self)) if self.index_of_texts is None else self.index_of_texts
        rows = (
            (notebook.text(name), _tags(found)) for name, found in zip(list(names)[:_MOST_ROWS], self, strict=False)
        )
        more = len(self) - _MOST_ROWS
        rest = notebook.note(f"and {more:,} more texts; .to_frame() gives all as a DataFrame") if more > 0 else ""
        return notebook.card("", notebook.table(["text", "tags with their scores"], rows), rest)


def _tags(found: list[Suggestion]) -> str:
    shown = (
        f'<bdi class="label">{notebook.text(tag)}</bdi><span class="n">{score:.2f}</span> ' for tag, score in found
    )
    return "".join(shown) or '<span class="soft">none</span>'
