"""Recorded results: no answer may change to the last bit unless it is meant to.

Equality is exact where BLAS and LAPACK round as on the machine that recorded and the packages are of the same versions
(`golden.recording.machine`). Elsewhere sampled values must be within 1e-4, and counts, names and shapes equal;
what isotonic regression makes of scores (`recording.STEPPED`) and `EXACT_ONLY` cases are then left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from golden import folders, recording
from golden.cases import CASES, EXACT_ONLY

pytest.importorskip("faiss")
pytest.importorskip("distributed")


@cache
def record() -> dict[str, Any]:
    return recording.read()


@cache
def exact() -> bool:
    return bool(recording.machine() == record()["machine"])


def test_every_case_is_recorded_and_every_record_is_a_case() -> None:
    assert sorted(record()["cases"]) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_case_answers_as_recorded(name: str) -> None:
    """To the last bit on a machine that rounds as the one that recorded, else sampled values within 1e-4."""
    if name in EXACT_ONLY and not exact():
        pytest.skip("something is chosen at a near tie, which another rounding decides otherwise")
    assert recording.differences(record()["cases"][name], CASES[name](), exact()) == []


@pytest.mark.parametrize("name", folders.FOLDERS)
def test_a_folder_written_long_ago_answers_as_it_did(name: str) -> None:
    """To the last bit on a machine that rounds as the one that recorded, else sampled values within 1e-4."""
    before = recording.entries_of(folders.expected(name))
    assert recording.differences(before, folders.answers_of(name), exact()) == []
