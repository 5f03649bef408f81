"""Decoders: how a predicted embedding ẑ becomes scores of labels. Neighbours propose the candidates in all of them.

    votes          the share of the k nearest rows of each learner that carry the label: the paper's inference
    weighted       the same, weighed by exp((cos − max cos)/temperature)
    sketch         ⟨Φ_l, ẑ⟩, an unbiased sketch of the one-vs-all ridge score of label l
    least-squares  (Φ_SᵀΦ_S + εI)⁻¹Φ_Sᵀẑ on the candidates S: the sketch without its cross-talk
    blend          all of them, the votes of rows with similar features and how often a label was seen, weighed into a
                   probability by boosted trees that were learnt on rows left out

Where the ensemble is the identity (few enough labels), ẑ is the one-vs-all ridge score itself, and `sketch` and
`least-squares` are both exact. A decoder is a value with its options; "auto" is chosen on training rows left out.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, ClassVar

from ripml.base.errors import ParameterError, check_positive

__all__ = ["Blend", "Decoder", "LeastSquares", "Sketch", "Votes", "WeightedVotes", "resolve_decoder"]


@dataclass(frozen=True)
class Decoder:
    """A way to read an embedding."""

    word: ClassVar[str]
    signal: ClassVar[str] = "value"  # of the candidates, which is the score


@dataclass(frozen=True)
class Votes(Decoder):
    """Equal votes of the k nearest rows in each learner."""

    word: ClassVar[str] = "votes"
    signal: ClassVar[str] = "votes"


@dataclass(frozen=True)
class WeightedVotes(Decoder):
    """Votes of the k label sets of nearest direction, weighed by exp((cos − max cos)/temperature)."""

    word: ClassVar[str] = "weighted"
    signal: ClassVar[str] = "votes"

    temperature: float | str = "auto"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)


@dataclass(frozen=True)
class Sketch(Decoder):
    """⟨Φ_l, ẑ⟩ of the candidates."""

    word: ClassVar[str] = "sketch"


@dataclass(frozen=True)
class LeastSquares(Decoder):
    """Least squares on the candidates, with a ridge of its own."""

    word: ClassVar[str] = "least-squares"

    epsilon: float | str = "auto"

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)


@dataclass(frozen=True)
class Blend(Decoder):
    """Everything weighed into one probability. `n_similar` rows of similar features vote; 0 stores no rows for that."""

    word: ClassVar[str] = "blend"

    n_similar: int | str = "auto"

    def __post_init__(self) -> None:
        n: Any = self.n_similar
        if n != "auto" and (isinstance(n, bool) or not isinstance(n, numbers.Integral) or n < 0):
            raise ParameterError(f"`n_similar` must be 'auto' or an integer ≥ 0; got {n!r}.")


_WORDS: dict[str, type[Decoder]] = {
    decoder.word: decoder for decoder in (Votes, WeightedVotes, Sketch, LeastSquares, Blend)
}


def resolve_decoder(decoder: str | Decoder) -> Decoder:
    """A decoder from its word, or itself.

    >>> resolve_decoder("weighted")
    WeightedVotes(temperature='auto')
    """
    if isinstance(decoder, Decoder):
        return decoder
    if isinstance(decoder, str) and decoder in _WORDS:
        return _WORDS[decoder]()
    raise ParameterError(f"`decoder` must be one of {', '.join(_WORDS)} or a Decoder; got {decoder!r}.")
