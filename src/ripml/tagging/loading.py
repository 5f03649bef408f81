"""`load`: the estimator or tagger that a model folder holds."""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

from ripml.base import model_folder, registry
from ripml.base.errors import ModelFolderError
from ripml.base.model_folder import Contents

if TYPE_CHECKING:
    from ripml.model.multilabel import Multilabel

__all__ = ["estimator_of", "load"]


def load(path: str | PathLike[str]) -> Any:
    """Load a saved estimator or `Tagger`; its arrays stay on disk and are read as they are needed.

    >>> load("no/such/model")
    Traceback (most recent call last):
    ripml.base.errors.ModelFolderError: no/such/model: this model folder cannot be opened (No such file or directory).
    """
    contents = model_folder.load(path)
    if "tagger" in contents.parameters:
        # The tagger's module imports this one.
        return import_module("ripml.tagging.tagger").Tagger.from_contents(path, contents)
    return estimator_of(path, contents)


def estimator_of(path: str | PathLike[str], contents: Contents) -> Multilabel:
    """The estimator in a folder's contents; the path is for error messages."""
    words = dict(zip(registry.class_names("estimator"), registry.words("estimator"), strict=True))
    if contents.kind not in words:
        raise ModelFolderError(f"{path}: holds a model of kind {contents.kind!r}, which ripml does not know.")
    kind: type[Multilabel] = registry.named("estimator", words[contents.kind])
    return kind.from_state(contents.parameters, contents.arrays)
