"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="module")
def _one_blas_thread() -> Iterator[None]:
    """Tests run side by side: threads of BLAS that wait for each other would take most of the time.

    `make test` does the same for the processes that tests start. Once a module, for finding the libraries takes longer
    than many a test.
    """
    with threadpool_limits(1, user_api="blas"):
        yield
