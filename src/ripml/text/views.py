"""`Views`: several kinds of features of the same texts, side by side."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import ModelFolderError, ParameterError
from ripml.text.base import TextFeatures
from ripml.text.doc2vec import Doc2Vec
from ripml.text.encoder import Encoder
from ripml.text.tfidf import TfIdf
from ripml.text.title import Title
from ripml.text.tokens import strings

__all__ = ["TEXT_KINDS", "Views"]


class Views(TextFeatures):
    """The columns of each part, one after the other, as CSR.

    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> views = Views([TfIdf(min_df=1), Encoder(HashingVectorizer(n_features=4))])
    >>> views.learn(["a red apple", "pears"]).shape, views.views
    ((2, 8), (4, 4))
    """

    kind: ClassVar[str] = "views"

    def __init__(self, parts: Sequence[TextFeatures]) -> None:
        if len(parts) < 2:
            raise ParameterError("several kinds of features are needed for views; give a single one as it is.")
        self._parts = [kind for part in parts for kind in part.parts]

    @property
    def parts(self) -> list[TextFeatures]:
        """Each kind of features."""
        return self._parts

    @property
    def n_features(self) -> int:
        """Of all parts."""
        return sum(self.views)

    @property
    def views(self) -> tuple[int, ...]:
        """The number of columns of each part."""
        return tuple(part.n_features for part in self.parts)

    def learn(self, texts: list[str], vectors: NDArray[np.float32] | None = None) -> Any:
        """Fit all parts, and return the rows of the texts."""
        return _side_by_side([part.learn(texts, own) for part, own in self._with_vectors(vectors)])

    def transform(self, texts: Iterable[str], vectors: NDArray[np.float32] | None = None) -> Any:
        """The rows of the texts."""
        texts = strings(texts)
        return _side_by_side([part.transform(texts, own) for part, own in self._with_vectors(vectors)])

    def _with_vectors(self, vectors: NDArray[np.float32] | None) -> Iterator[tuple[TextFeatures, Any]]:
        """Each part and its own columns of the vectors of encoders."""
        start = 0
        for part in self.parts:
            own = None if vectors is None or not part.n_encoded else vectors[:, start : start + part.n_encoded]
            yield part, own
            start += part.n_encoded

    @property
    def names(self) -> list[str]:
        """The names of each part's features, or their numbers."""
        found: list[str] = []
        for part in self.parts:
            called = getattr(part, "name", part.kind)
            found += part.names or [f"{called} {number}" for number in range(part.n_features)]
        return found

    @property
    def shares(self) -> dict[str, float] | None:
        """Those of the first part that knows words."""
        return next((part.shares for part in self.parts if part.shares is not None), None)

    def word_sequences(self, texts: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Those of the first part that knows words."""
        texts = strings(texts)
        found = (part.word_sequences(texts) for part in self.parts)
        return next((words for words in found if words is not None), None)

    @property
    def encoders(self) -> list[Encoder]:
        """Those of all parts."""
        return [encoder for part in self.parts for encoder in part.encoders]

    def fit_encoders(self, texts: list[str], known: NDArray[np.float32] | None = None) -> NDArray[np.float32] | None:
        """Those of all parts, side by side."""
        found = [part.fit_encoders(texts, own) for part, own in self._with_vectors(known)]
        return _joined([vectors for vectors in found if vectors is not None])

    def encoded(self, texts: Iterable[str]) -> NDArray[np.float32] | None:
        """Of all parts, side by side."""
        texts = strings(texts)
        return _joined([part.encoded(texts) for part in self.parts if part.encoders])

    def with_encoder(self, encoder: Any) -> Views:
        """With the encoder of the part that has one, or with a list of them, in the order of the parts."""
        given = list(encoder) if isinstance(encoder, (list, tuple)) else [encoder]
        places = [i for i, part in enumerate(self.parts) if part.encoders]
        if len(given) != len(places):
            raise ParameterError(f"this model has {len(places)} encoders; got {len(given)}.")
        own = dict(zip(places, given, strict=True))
        return Views([part.with_encoder(own[i]) if i in own else part for i, part in enumerate(self.parts)])

    def narrowed(self, most: int) -> Views:
        """Three times as many features of the first part as of each other one, with encoders among them."""
        share = most // (len(self.parts) + 2)
        return Views([part.narrowed(share if i else 3 * share) for i, part in enumerate(self.parts)])

    def __copy__(self) -> Views:
        return Views([copy.copy(part) for part in self.parts])

    def spans(self, text: str) -> list[tuple[int, int, list[int]]]:
        """Those of all parts."""
        starts = np.cumsum([0, *self.views]).tolist()
        return [
            (begin, end, [start + feature for feature in features])
            for part, start in zip(self.parts, starts, strict=False)
            for begin, end, features in part.spans(text)
        ]

    def without(self, removed: NDArray[np.bool_]) -> Views:
        """Each part without its own."""
        ends = pairwise(np.cumsum([0, *self.views]).tolist())
        return Views([part.without(removed[start:end]) for part, (start, end) in zip(self.parts, ends, strict=True)])

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Those of the parts; arrays are called by the number of their part."""
        states = [part.to_state() for part in self.parts]
        pairs = zip(self.parts, states, strict=True)
        parameters = [{"kind": part.kind, "parameters": parameters} for part, (parameters, _) in pairs]
        arrays = {f"{i}_{name}": array for i, (_, own) in enumerate(states) for name, array in own.items()}
        return {"parts": parameters}, arrays

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Views:
        """The inverse of `to_state`."""
        try:
            parts = []
            for i, part in enumerate(parameters["parts"]):
                own = {name.removeprefix(f"{i}_"): array for name, array in arrays.items() if name.startswith(f"{i}_")}
                parts.append(TEXT_KINDS[part["kind"]].from_state(part["parameters"], own))
            return cls(parts)
        except (KeyError, TypeError, AttributeError, ParameterError) as error:
            raise ModelFolderError(f"the saved text features are damaged ({error!r}).") from None

    def recipe(self) -> dict[str, Any]:
        """Those of the parts."""
        return {"parts": [{"kind": part.kind, "parameters": part.recipe()} for part in self.parts]}

    @classmethod
    def from_recipe(cls, parameters: dict[str, Any]) -> Views:
        """The inverse of `recipe`."""
        return cls([TEXT_KINDS[part["kind"]].from_recipe(part["parameters"]) for part in parameters["parts"]])


def _joined(vectors: list[Any]) -> NDArray[np.float32] | None:
    return np.concatenate(vectors, axis=1) if vectors else None


def _side_by_side(parts: list[Any]) -> Any:
    return scipy.sparse.hstack([scipy.sparse.csr_array(part) for part in parts], format="csr")


TEXT_KINDS: dict[str, type[TextFeatures]] = {kind.kind: kind for kind in (TfIdf, Title, Doc2Vec, Encoder, Views)}
