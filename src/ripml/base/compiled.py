"""Compiled loops where Numba is installed: the extra `fast`.

The loops of training and answering are in `ripml.base.loops`. They are compiled when they are first called and kept on
disk, beside the package or in the user's cache folder, so that a later process only loads them. Every loop has a NumPy
form with the same result, which is used where Numba is missing or `RIPML_COMPILED=0` is set.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

import numpy as np

__all__ = ["loops"]


@functools.cache
def loops() -> Any:
    """The module `ripml.base.loops`, or None where NumPy has to do."""
    if os.environ.get("RIPML_COMPILED", "1") == "0":
        return None
    try:
        module = importlib.import_module("ripml.base.loops")
    except ImportError:
        return None
    module.mirror(np.zeros((1, 1), np.float32), 0, 1)  # Numba imports most of its modules with the first call of a loop
    return module
