"""`Encoder`: dense rows of texts by somebody else's encoder, such as one of sentence embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.text.words import strings

__all__ = ["Encoder"]


class Encoder:
    """Turn texts into the dense rows of any object that has `encode(texts)`, or `transform(texts)` like scikit-learn's.

    A copy of one that has `fit` and `transform` is fitted on the training texts; one with `encode` is taken as it is.
    Only its name and the number of its dimensions are saved, so that it must be given again to a model that is loaded.

    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> Encoder(HashingVectorizer(n_features=4)).fit_transform(["a red apple", "pears"]).shape
    (2, 4)
    """

    def __init__(self, encoder: Any, n_dims: int | None = None, name: str | None = None) -> None:
        if encoder is not None and not any(callable(getattr(encoder, way, None)) for way in ("encode", "transform")):
            raise ParameterError(f"an encoder of texts must have `encode` or `transform`; got {encoder!r}.")
        self.encoder = encoder
        self.n_dims = n_dims
        self.name = type(encoder).__name__ if name is None else name

    def fit_transform(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Fit the encoder, if that is its way, and return the rows of the texts, (n, d)."""
        texts = strings(texts)
        if not hasattr(self.encoder, "encode") and hasattr(self.encoder, "fit"):
            self.encoder = clone(self.encoder, safe=False).fit(texts)  # the one given may be in use
        self.n_dims = None
        rows = self.transform(texts)
        self.n_dims = rows.shape[1]
        return rows

    def transform(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Return the rows of the texts, (n, d)."""
        if self.encoder is None:
            raise ParameterError(
                f"the model was trained on the output of {self.name}, which is not saved with it; give it again, as "
                "`encoder` where the model is loaded or the store is opened."
            )
        texts = strings(texts)
        if not texts:
            return np.empty((0, self.n_dims or 0), np.float32)
        rows = self._encoded(texts)
        if rows.ndim != 2 or len(rows) != len(texts) or self.n_dims not in (None, rows.shape[1]) or not rows.shape[1]:
            shape = f"({len(texts)}, {self.n_dims or 'd'})"
            raise DataError(f"{self.name} must turn {len(texts)} texts into rows of shape {shape}; got {rows.shape}.")
        if not np.isfinite(rows).all():
            raise DataError(f"{self.name} gave a number that is not finite.")
        return rows

    def _encoded(self, texts: list[str]) -> NDArray[np.float32]:
        """What the encoder makes of texts, as numbers."""
        try:
            given = (self.encoder.encode if hasattr(self.encoder, "encode") else self.encoder.transform)(texts)
        except NotFittedError:
            raise ParameterError(f"{self.name} has not been fitted; give the one that was fitted.") from None
        try:
            rows = np.asarray(given.toarray() if hasattr(given, "toarray") else given)
            if rows.dtype.kind not in "cSU":  # strings would become numbers, and complex numbers lose a part
                return np.asarray(rows, np.float32)
            found = f"values of type {rows.dtype.name}"
        except (TypeError, ValueError):  # NumPy's complaint of rows of several lengths
            found = "rows of several lengths, or of what is no number"
        raise DataError(f"{self.name} must turn {len(texts)} texts into rows of as many numbers each; got {found}.")

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (parameters for JSON, arrays): the name and the dimensions only."""
        return {"name": self.name, "n_dims": self.n_dims}, {}

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Encoder:
        """An encoder of the same name and dimensions that has yet to be given."""
        name, n_dims = parameters.get("name"), parameters.get("n_dims")
        if not isinstance(name, str) or not isinstance(n_dims, int) or n_dims < 1 or arrays:
            raise ModelFolderError(f"the saved encoder is damaged (name {name!r}, n_dims {n_dims!r}).")
        return cls(None, n_dims, name)
