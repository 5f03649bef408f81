"""The errors of ripml, and checks of settings: a message is a sentence with the wrong value and the remedy."""

from __future__ import annotations

import math
import numbers
from typing import Any

__all__ = [
    "ConcurrentChangeError",
    "DataError",
    "MemoryLimitError",
    "MissingExtraError",
    "ModelFolderError",
    "NewerFormatError",
    "NoLabelsError",
    "ParameterError",
    "RipmlError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "check_count",
    "check_positive",
    "check_ridge",
    "is_number",
]


class RipmlError(Exception):
    """The base class of all errors; the command line prints the message as one line and exits with 2."""


class ParameterError(RipmlError, ValueError):
    """A setting is outside its range, or two settings contradict each other."""


class DataError(RipmlError, ValueError):
    """The input is malformed: a bad line of a file, a wrong shape, an impossible label."""


class NoLabelsError(DataError):
    """No training row carries a label, so there is nothing to learn."""


class ModelFolderError(RipmlError, ValueError):
    """A model folder is missing, damaged, hostile, or of a format this version cannot read."""


class NewerFormatError(ModelFolderError):
    """A model folder was written by a newer version of ripml."""


class StoreError(RipmlError):
    """A store is missing, damaged, in use by another writer, or could not be written; nothing was changed."""


class StoreFullError(StoreError):
    """The disk of a store is full; nothing was changed, and the store can be read."""


class StoreLockedError(StoreError):
    """Another process has the store open for writing; it can be opened for reading meanwhile."""


class ConcurrentChangeError(RipmlError, RuntimeError):
    """Another thread is fitting or changing the same estimator; nothing was changed by this call."""


class MemoryLimitError(RipmlError, MemoryError):
    """The work would need more memory than the machine has; the message has the number and the remedy."""


class MissingExtraError(RipmlError, ImportError):
    """An optional dependency is absent; the message has the exact `pip install` line."""

    def __init__(self, package: str, extra: str | None) -> None:
        """The package comes with an extra of ripml, or alone where `extra` is None."""
        install = package if extra is None else f"'ripml[{extra}]'"
        super().__init__(f"{package} is needed for this; install it with: pip install {install}")


def is_number(value: Any) -> bool:
    """Whether a setting is a real number; True and False are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_count(name: str, value: Any, otherwise: str = "", least: int = 1, most: int | None = None) -> None:
    """Raise `ParameterError` unless a setting is an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ParameterError(f"`{name}` must be {otherwise}an integer ≥ {least}; got {value!r}.")
    if most is not None and int(value) > most:
        raise ParameterError(f"`{name}` must be at most {most}; got {value}.")


def check_positive(name: str, value: Any, otherwise: str = "'auto' or ") -> None:
    """Raise `ParameterError` unless a setting is a finite number above 0 or, by default, "auto"."""
    if otherwise and isinstance(value, str) and value == "auto":
        return
    if not is_number(value) or not 0 < float(value) < math.inf:
        raise ParameterError(f"`{name}` must be {otherwise}a finite number > 0; got {value!r}.")


def check_ridge(name: str, value: Any) -> None:
    """Raise `ParameterError` unless a setting is "auto" or a finite number that is not negative."""
    if value != "auto" and not (is_number(value) and 0 <= float(value) < math.inf):
        raise ParameterError(f"`{name}` must be 'auto' or a finite number ≥ 0; got {value!r}.")
