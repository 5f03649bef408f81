"""Work on threads: every item once, in order, errors as they are, and nothing is lost between calls or processes."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_info

from ripml import RIPML
from ripml.base import parallel as resources
from ripml.base.parallel import map_blocks
from ripml.regression.regression import KernelRegression


@pytest.fixture(autouse=True, scope="module")
def _one_blas_thread() -> None:
    """BLAS has all its threads here: who sets them is what is tested."""


def squares(n: int) -> list[int]:
    return map_blocks(lambda x: x * x, range(n), 2)


@pytest.mark.parametrize("n_jobs", [1, 2, 3, None])
@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_results_come_in_the_order_of_the_items(n: int, n_jobs: int | None) -> None:
    assert map_blocks(lambda x: 2 * x, range(n), n_jobs) == [2 * x for x in range(n)]


def test_an_error_of_any_thread_is_raised_and_later_calls_work() -> None:
    def fails(x: int) -> int:
        if x == 3:
            raise ValueError("three")
        return x

    with pytest.raises(ValueError, match="three"):
        map_blocks(fails, range(10), 2)
    assert squares(3) == [0, 1, 4]


def test_a_call_inside_a_block_stays_on_its_thread() -> None:
    def inner(x: int) -> bool:
        own = threading.get_ident()
        return all(map_blocks(lambda _: threading.get_ident() == own, range(5), 2))

    assert all(map_blocks(inner, range(8), 2))


def test_calls_from_several_threads_do_not_mix() -> None:
    found: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: squares(n)})) for n in range(1, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [x * x for x in range(n)] for n in range(1, 20)}


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_of_a_process_with_threads_has_its_own() -> None:
    assert squares(4) == [0, 1, 4, 9]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(squares, (5,)).get(timeout=60) == [0, 1, 4, 9, 16]


def test_blas_has_its_threads_back_in_either_order_of_leaving() -> None:
    def threads() -> list[int]:
        # Of NumPy and SciPy alone: that of faiss, if it was loaded before, counts the threads of OpenMP.
        libraries = resources._blas().select(user_api="blas").info()
        return [lib["num_threads"] for lib in libraries if "numpy" in lib["filepath"] or "scipy" in lib["filepath"]]

    before = threads()
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def first(_: int) -> None:
        entered.set()
        leave.wait(30)

    def second(_: int) -> None:
        leave.set()
        left.wait(30)
        assert threads() == [1] * len(before)  # though the first one has left

    def run_first() -> None:
        map_blocks(first, [0])
        left.set()

    thread = threading.Thread(target=run_first)
    thread.start()
    assert entered.wait(30)
    map_blocks(second, [0])
    thread.join()
    assert threads() == before


def test_a_single_sparse_row_is_answered_on_one_thread_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of BLAS that wait for each other take a hundred times as long on a busy machine as one thread."""
    rng = np.random.default_rng(0)
    labels = rng.integers(150, size=500)  # more labels than candidates
    X = scipy.sparse.csr_array(np.eye(150, dtype=np.float32)[labels] + (rng.random((500, 150)) < 0.02))
    model = RIPML(kernel="rbf", random_state=0).fit(X, np.eye(150)[labels])
    threads: list[int] = []
    predict = KernelRegression.predict

    def recorded(self: KernelRegression, *given: Any) -> Any:
        threads.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return predict(self, *given)

    monkeypatch.setattr(KernelRegression, "predict", recorded)
    model.decision_function(X[:1])
    assert set(threads) == {1}
