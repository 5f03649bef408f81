"""The data sets of RIPML_DATA for tests: skipped with a reason where it is unset, but a failure under CI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

needs_data = pytest.mark.skipif(
    "RIPML_DATA" not in os.environ and not os.environ.get("CI"),
    reason="RIPML_DATA, the folder of the data sets, is not set",
)


def data_folder() -> Path:
    """Return the folder of RIPML_DATA; to be called from tests marked `needs_data`."""
    if "RIPML_DATA" not in os.environ:
        pytest.fail("RIPML_DATA must be set under CI")
    return Path(os.environ["RIPML_DATA"])
