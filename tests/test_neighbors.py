"""Nearest neighbours: what brute force finds, in any shape, scale and layout, ties included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ripml.errors import DataError, ParameterError
from ripml.neighbors import Exact, Index, exact, resolve_index

EXACT: list[Index] = [Exact()]  # every index whose answer is that of brute force
Floats = NDArray[np.float32]


def normal(n: int, m: int, seed: int = 0, scale: float = 1) -> Floats:
    return (np.random.default_rng(seed).standard_normal((n, m)) * scale).astype(np.float32)


def grid(n: int, m: int, seed: int = 0, values: int = 3) -> Floats:
    """Points of a small integer grid: most distances tie, and all are exact."""
    return np.random.default_rng(seed).integers(0, values, (n, m)).astype(np.float32)


def clustered(n: int, m: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return (10 * rng.standard_normal((4, m))[rng.integers(4, size=n)] + 1e-2 * rng.standard_normal((n, m))).astype(
        np.float32
    )


@pytest.mark.parametrize("index", EXACT, ids=repr)
class TestExactIndices:
    @pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 160, 4095, 4096, 4097, 8200])
    @pytest.mark.parametrize("k", [1, 5, 40])
    @pytest.mark.parametrize("world", [normal, clustered, grid])
    def test_they_find_what_brute_force_finds_around_the_edges_of_blocks(
        self, index: Index, world: Any, n: int, k: int
    ) -> None:
        laws.an_exact_index_finds_what_brute_force_finds(index, world(n, 7), world(9, 7, seed=1), min(k, n))

    @pytest.mark.parametrize("n", [1, 2, 33, 70])
    def test_they_find_every_k_up_to_all_rows(self, index: Index, n: int) -> None:
        for k in range(1, n + 1):
            laws.an_exact_index_finds_what_brute_force_finds(index, grid(n, 3), grid(5, 3, seed=1), k)

    def test_they_sort_all_of_many_rows(self, index: Index) -> None:
        for n in (4097, 9000):
            laws.an_exact_index_finds_what_brute_force_finds(index, normal(n, 4), normal(3, 4, seed=1), n)

    @pytest.mark.parametrize("m", [1, 2, 100, 257])
    def test_they_work_in_any_number_of_dimensions(self, index: Index, m: int) -> None:
        laws.an_exact_index_finds_what_brute_force_finds(index, normal(500, m), normal(20, m, seed=1), 6)

    def test_equal_rows_come_in_the_order_of_their_numbers(self, index: Index) -> None:
        for n in (100, 5000):
            Z = np.tile(normal(5, 6), (n, 1))
            laws.an_exact_index_finds_what_brute_force_finds(index, Z, Z[:5], 12)
        ids, distances = index.build(np.ones((9000, 2), np.float32)).query(np.ones((3, 2), np.float32), 4)
        assert ids.tolist() == [[0, 1, 2, 3]] * 3
        assert distances.tolist() == [[0.0] * 4] * 3

    def test_rows_at_one_distance_from_a_zero_query_come_in_order(self, index: Index) -> None:
        Z = np.sign(normal(6000, 16)) / np.float32(4)  # what ±1/√m columns look like: all of length 1
        ids, distances = index.build(Z).query(np.zeros((2, 16), np.float32), 7)
        assert ids.tolist() == [list(range(7))] * 2
        np.testing.assert_array_equal(distances, 1)

    @pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-10, 1e10, 1e15, 1e19, 1e30])
    def test_the_scale_of_the_numbers_does_not_matter(self, index: Index, scale: float) -> None:
        Z, Q = normal(400, 10, scale=scale), normal(30, 10, seed=1, scale=scale)
        laws.an_exact_index_finds_what_brute_force_finds(index, Z, Q, 5)

    @pytest.mark.parametrize(
        ("rows", "queries"), [(1.0, 1e30), (1e-25, 1.0), (1e-25, 1e30), (1e30, 1e-30), (0.0, 1.0), (1.0, 0.0)]
    )
    def test_queries_may_have_another_scale_than_rows(self, index: Index, rows: float, queries: float) -> None:
        Z, Q = normal(400, 4, scale=rows), normal(10, 4, seed=1, scale=queries)
        laws.an_exact_index_finds_what_brute_force_finds(index, Z, Q, 3)

    def test_tiny_differences_of_long_vectors_are_seen(self, index: Index) -> None:
        for offset in (1e2, 1e4, 1e6):
            Z = (offset + np.random.default_rng(0).integers(0, 9, (3000, 8)) * offset * 2.0**-20).astype(np.float32)
            laws.an_exact_index_finds_what_brute_force_finds(index, Z, Z[:40], 5)

    def test_mapped_arrays_and_slices_of_columns_are_searched_in_place(self, index: Index, tmp_path: Path) -> None:
        wide, Q = normal(4500, 30), normal(20, 10, seed=1)
        np.save(tmp_path / "Z.npy", wide)
        mapped = np.load(tmp_path / "Z.npy", mmap_mode="r")
        for Z in (wide[:, 10:20], mapped[:, 10:20], mapped[:, :10], wide[::2, 20:], np.asfortranarray(wide[:, :10])):
            laws.an_exact_index_finds_what_brute_force_finds(index, Z, Q, 5)
            laws.an_exact_index_finds_what_brute_force_finds(index, Z, np.hstack([Q, Q])[:, 5:15], 5)

    @pytest.mark.parametrize("world", [normal, grid])
    def test_they_do_not_depend_on_threads_or_batches(self, index: Index, world: Any) -> None:
        laws.neighbours_do_not_depend_on_threads_or_batches(index, world(4200, 9), world(600, 9, seed=1)[::10], 5)

    def test_many_queries_are_answered_like_few(self, index: Index) -> None:
        laws.an_exact_index_finds_what_brute_force_finds(index, normal(200, 5), normal(1100, 5, seed=1), 4)

    def test_no_query_has_no_answer(self, index: Index) -> None:
        ids, distances = index.build(normal(10, 3)).query(np.empty((0, 3), np.float32), 2)
        assert ids.shape == distances.shape == (0, 2)

    def test_numbers_that_are_not_finite_are_refused(self, index: Index) -> None:
        for wrong in (np.nan, np.inf):
            Z = normal(10, 3)
            Z[4, 1] = wrong
            with pytest.raises(DataError, match="the embeddings to be searched must be finite; got NaN or infinity"):
                index.build(Z)
            with pytest.raises(DataError, match="the embeddings to search for must be finite; got NaN or infinity"):
                index.build(normal(10, 3)).query(Z, 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 4), st.integers(1, 60), st.integers(1, 4), st.integers(0, 10**6))
def test_integer_points_tie_like_brute_force(n: int, m: int, k: int, values: int, seed: int) -> None:
    Z, Q = grid(n, m, seed, values), grid(4, m, seed + 1, values)
    laws.an_exact_index_finds_what_brute_force_finds(Exact(), Z, Q, min(k, n))


@pytest.mark.parametrize(
    "sizes",
    [
        {"_QUERIES": 1, "_PANEL": 7, "_GROUP": 1},
        {"_QUERIES": 3, "_PANEL": 64, "_GROUP": 4},
        {"_QUERIES": 1000, "_PANEL": 100_000, "_GROUP": 32},
        {"_PANEL": 10, "_GROUP": 3, "_CANDIDATES": 1, "_VERDICT_CELLS": 1},
        {"_PANEL": 50, "_CANDIDATES": 200, "_VERDICT_CELLS": 40},
    ],
    ids=str,
)
@pytest.mark.parametrize("world", [normal, grid, clustered])
def test_blocks_of_any_size_find_the_same(sizes: dict[str, int], world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in sizes.items():
        monkeypatch.setattr(exact, name, size)
    for k in (1, 4, 333):
        laws.an_exact_index_finds_what_brute_force_finds(Exact(), world(333, 5), world(21, 5, seed=1), k)


def test_words_name_indices_and_others_are_refused() -> None:
    assert resolve_index("exact") == Exact()
    assert resolve_index(Exact()) == Exact()
    for wrong in ("flat", None, 3, Exact):
        with pytest.raises(ParameterError, match="`index` must be one of exact or an Index; got"):
            resolve_index(wrong)  # type: ignore[arg-type]
