"""`TextFeatures`: the contract of what turns texts into features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError

__all__ = ["TextFeatures"]

Self = TypeVar("Self", bound="TextFeatures")


class TextFeatures(ABC):
    """Texts to rows of features: tf-idf, doc2vec, an encoder, or several of them side by side.

    Rows from an encoder may cost much and need not be the same when they are asked for again. So they are kept with
    stored texts, and given back as `vectors`.
    """

    kind: ClassVar[str]  # in model folders

    @property
    @abstractmethod
    def n_features(self) -> int:
        """d, once fitted."""

    @abstractmethod
    def learn(self, texts: list[str], vectors: NDArray[np.float32] | None = None) -> Any:
        """Fit to texts, and return the rows for a model to learn from, (n, d): those that `transform` gives later.

        A text that is forgotten or relabelled must have the features that it was learnt with. `vectors` are those of
        `fit_encoders`, without which encoders are fitted as well.
        """

    @abstractmethod
    def transform(self, texts: Iterable[str], vectors: NDArray[np.float32] | None = None) -> Any:
        """The rows of texts, dense or CSR (n, d); `vectors` (n, n_encoded) are those of encoders, if known."""

    @abstractmethod
    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Parameters for JSON, and arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls: type[Self], parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The inverse of `to_state`."""

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """The settings alone, for JSON: what `from_recipe` needs."""

    @classmethod
    def from_recipe(cls: type[Self], parameters: dict[str, Any]) -> Self:
        """Unfitted, with these settings."""
        return cls(**parameters)

    @property
    def views(self) -> tuple[int, ...]:
        """The numbers of columns of features of different kinds; empty where they are all of one kind."""
        return ()

    @property
    def parts(self) -> list[TextFeatures]:
        """The kinds of features that stand side by side: itself, if it is a single one."""
        return [self]

    def has(self, kind: type[TextFeatures]) -> bool:
        """Whether one of its parts is of this kind."""
        return any(isinstance(part, kind) for part in self.parts)

    @property
    def names(self) -> list[str] | None:
        """What features are called, (d,); None where they have no meaning of their own."""
        return None

    @property
    def shares(self) -> dict[str, float] | None:
        """The share of texts that each word was found in at the fit; None where words are not known."""
        return None

    def word_sequences(self, texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The columns of the words of texts in their order, −1 for unknown ones, end to end, and where texts start.

        The columns are those of `shares`; None where words are not known.
        """
        return None

    @property
    def encoders(self) -> list[Any]:
        """Its encoders, in the order of their columns."""
        return []

    @property
    def n_encoded(self) -> int:
        """Columns that come from encoders."""
        return sum(encoder.n_features for encoder in self.encoders)

    @property
    def lacks_encoder(self) -> bool:
        """Whether an encoder has to be passed again before texts can be read."""
        return any(encoder.given is None for encoder in self.encoders)

    def fit_encoders(self, texts: list[str], known: NDArray[np.float32] | None = None) -> NDArray[np.float32] | None:
        """Fit the encoders, and return the vectors of the texts (n, n_encoded), for `learn`; None without an encoder.

        `known` are vectors that the texts have already, which are used again where texts do not change the encoder.
        """
        return None

    def encoded(self, texts: Iterable[str]) -> NDArray[np.float32] | None:
        """The vectors of texts that encoders give, (n, n_encoded); None without an encoder."""
        return None

    def with_encoder(self: Self, encoder: Any) -> Self:
        """The same with its encoder passed again, or with a list of its encoders."""
        raise ParameterError("this model was trained without an encoder; leave `encoder` out.")

    def spans(self, text: str) -> list[tuple[int, int, list[int]]]:
        """The places of a text, [start, end), that have features, and these."""
        return []

    def narrowed(self: Self, most: int) -> Self:
        """Unfitted, with at most so many features where they are words that are counted; otherwise as it is."""
        return self

    def without(self: Self, removed: NDArray[np.bool_]) -> Self:
        """The same columns, of which the removed ones, a mask (d,), match no text."""
        return self
