"""`Encoder`: dense rows of texts from an external encoder, such as one of sentence embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.text.tokens import strings

__all__ = ["Encoder"]


class Encoder:
    """Turn texts into the dense rows of any object that has `encode(texts)`, or `transform(texts)` as in scikit-learn.

    An object with `encode` is used as it is; of one with `fit` and `transform`, a copy is fitted on the training texts.
    Only its name and number of dimensions are saved, so it must be passed again when a model is loaded.

    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> Encoder(HashingVectorizer(n_features=4)).fit_transform(["a red apple", "pears"]).shape
    (2, 4)
    """

    kind: ClassVar[str] = "encoder"  # in model folders

    def __init__(self, encoder: Any, n_dims: int | None = None, name: str | None = None) -> None:
        methods = (getattr(encoder, method, None) for method in ("encode", "transform"))
        if encoder is not None and not any(map(callable, methods)):
            raise ParameterError(f"an encoder of texts must have `encode` or `transform`; got {encoder!r}.")
        self.encoder = encoder
        self.n_dims = n_dims
        self.name = type(encoder).__name__ if name is None else name

    def fit_transform(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Fit the encoder, if it has `fit` and no `encode`, and return the rows of the texts, (n, d)."""
        texts = strings(texts)
        if not hasattr(self.encoder, "encode") and hasattr(self.encoder, "fit"):
            from sklearn.base import clone

            self.encoder = clone(self.encoder, safe=False).fit(texts)  # the caller may use the original
        self.n_dims = None
        rows = self.transform(texts)
        self.n_dims = rows.shape[1]
        return rows

    def transform(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Return the rows of the texts, (n, d)."""
        if self.encoder is None:
            raise ParameterError(
                f"the model was trained on the output of {self.name}, which is not saved with it; pass it again as "
                "`encoder` when the model is loaded or the store is opened."
            )
        texts = strings(texts)
        if not texts:
            return np.empty((0, self.n_dims or 0), np.float32)
        rows = self._encode(texts)
        if rows.ndim != 2 or len(rows) != len(texts) or self.n_dims not in (None, rows.shape[1]) or not rows.shape[1]:
            shape = f"({len(texts)}, {self.n_dims or 'd'})"
            raise DataError(f"{self.name} must turn {len(texts)} texts into rows of shape {shape}; got {rows.shape}.")
        if not np.isfinite(rows).all():
            raise DataError(f"{self.name} gave a number that is not finite.")
        return rows

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        from sklearn.exceptions import NotFittedError

        try:
            output = (self.encoder.encode if hasattr(self.encoder, "encode") else self.encoder.transform)(texts)
        except NotFittedError:
            raise ParameterError(f"{self.name} has not been fitted; pass the fitted one.") from None
        try:
            rows = np.asarray(output.toarray() if hasattr(output, "toarray") else output)
            if rows.dtype.kind not in "cSU":  # strings would be parsed, and complex numbers lose their imaginary part
                return np.asarray(rows, np.float32)
            problem = f"values of type {rows.dtype.name}"
        except (TypeError, ValueError):  # raised by NumPy for rows of different lengths
            problem = "rows of different lengths, or values that are not numbers"
        raise DataError(f"{self.name} must turn {len(texts)} texts into number rows of equal length; got {problem}.")

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (parameters for JSON, arrays): only the name and the dimensions."""
        return {"name": self.name, "n_dims": self.n_dims}, {}

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Encoder:
        """Return an encoder of the same name and dimensions, whose object has yet to be passed."""
        name, n_dims = parameters.get("name"), parameters.get("n_dims")
        if not isinstance(name, str) or not isinstance(n_dims, int) or n_dims < 1 or arrays:
            raise ModelFolderError(f"the saved encoder is damaged (name {name!r}, n_dims {n_dims!r}).")
        return cls(None, n_dims, name)
