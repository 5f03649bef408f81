"""How familiar a text is: whether the model has seen texts like it, whatever labels it suggests.

A text of common words of the training texts is familiar; one of words that few or none of them have is not. The level
of a text is the mean of log(share of training texts that have the word) over its distinct words. Its familiarity is the
share of training texts, each left out, whose level is at most that: texts like those are uniform in [0, 1], and about
one in a hundred of them is called unlike anything known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ripml.text import TextFeatures

__all__ = ["UNFAMILIAR", "Familiarity"]

UNFAMILIAR = 0.01  # up to which a text is unlike anything known
_FEWEST = 99  # texts, of which 1/(n + 1) is the least familiarity
_TEXTS = 2000  # that are left out


@dataclass(frozen=True)
class Familiarity:
    """The levels of left-out training texts, rising."""

    levels: NDArray[np.float32]

    @classmethod
    def fit(cls, text: TextFeatures, texts: Sequence[str]) -> Familiarity | None:
        """From texts that features were fitted on; None where these know no words, or are too few to tell."""
        if len(texts) < _FEWEST:
            return None
        some = np.unique(np.linspace(0, len(texts) - 1, min(_TEXTS, len(texts))).round().astype(int))
        levels = text.commonness([texts[i] for i in some], left_out_of=len(texts))
        return None if levels is None else cls(np.sort(levels).astype(np.float32))

    def of(self, text: TextFeatures, texts: Sequence[str]) -> list[float]:
        """The familiarity of texts, in (0, 1]."""
        levels = text.commonness(texts)
        assert levels is not None
        less = np.searchsorted(self.levels, levels.astype(np.float32), "right")
        return [round(float(share), 4) for share in (1 + less) / (1 + len(self.levels))]
