"""Nearest neighbours: what brute force finds, in any shape, scale and layout, ties included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import laws
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import Index
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray
from ripml.base.errors import DataError, ParameterError
from ripml.base.registry import resolve
from ripml.neighbors import Exact, exact
from ripml.neighbors.exact import BlockwiseExact

EXACT: list[Index] = [Exact()]  # every index whose answer is that of brute force
Floats = NDArray[np.float32]
NONE = np.empty(0, np.int64)


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

    def test_mapped_arrays_and_slices_of_columns_are_searched_like_others(self, index: Index, tmp_path: Path) -> None:
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

    @pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
    @pytest.mark.parametrize(("n", "k"), [(4, 1), (70, 5), (4200, 20)])
    def test_rows_stored_in_fewer_bytes_are_found_as_brute_force_finds_them(
        self, index: Index, dtype: Any, n: int, k: int
    ) -> None:
        Z = (normal(n, 11, scale=30)).clip(-127, 127).astype(dtype)
        for Q in (normal(40, 11, seed=1, scale=30), normal(3, 11, seed=2, scale=1e-3), np.zeros((2, 11), np.float32)):
            laws.an_exact_index_finds_what_brute_force_finds(index, Z, Q, k)
            laws.neighbours_do_not_depend_on_threads_or_batches(index, Z, Q, k)

    def test_every_finite_float16_is_read_as_it_is(self, index: Index) -> None:
        Z = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        Z = Z[np.isfinite(Z)][:, None]
        # All values of one sign and exponent among each other, and a few among all: next to the largest number the
        # scores of small ones are one, and each pair of them would need a verdict.
        for rows, asked in [(Z[start : start + 1024], 1) for start in range(0, len(Z), 1024)] + [(Z, 1009)]:
            ids, distances = index.build(rows).query(rows[::asked].astype(np.float32), 1)
            np.testing.assert_array_equal(rows[ids[:, 0]], rows[::asked])
            np.testing.assert_array_equal(distances, 0)

    def test_long_rows_of_int8_are_told_apart(self, index: Index) -> None:
        Z = np.full((50, 2000), 127, np.int8)
        Z[np.arange(50), np.arange(50)] -= np.arange(50, dtype=np.int8)
        laws.an_exact_index_finds_what_brute_force_finds(index, Z, np.full((2, 2000), 126.5, np.float32), 9)

    @pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
    @pytest.mark.parametrize("world", [normal, grid])
    @pytest.mark.parametrize("n", [6, 40, 300])
    def test_rows_come_and_go(self, index: Index, world: Any, dtype: Any, n: int) -> None:
        Z, Q = (20 * world(n, 6)).astype(dtype), 20 * world(7, 6, seed=1)
        for k in (1, 3):
            laws.adding_rows_equals_building_with_them(index, Z, Q, k)
            laws.a_removed_row_is_never_found_and_no_other_number_changes(index, Z, Q, k)
            laws.learn_then_forget_equals_never_learnt(index, Z, (20 * world(9, 6, seed=2)).astype(dtype), Q, k)
            laws.restored_equals_built(index, Z, Q, k)

    def test_a_row_that_is_not_present_cannot_be_removed(self, index: Index) -> None:
        laws.a_row_that_is_not_present_cannot_be_removed(index, normal(5, 3))

    def test_all_rows_may_be_removed_and_others_added(self, index: Index) -> None:
        Z, q = normal(4, 3), normal(1, 3, seed=1)
        searcher = index.build(Z[:2]).changed(Z[:2], np.array([1, 0]))
        assert searcher.n_rows == 0
        with pytest.raises(ParameterError, match="`k` must be from 1 to 0, the rows that can be found; got 1"):
            searcher.query(q, 1)
        assert sorted(searcher.changed(Z, NONE).query(q, 2)[0][0].tolist()) == [2, 3]

    def test_a_change_of_no_rows_has_no_effect(self, index: Index) -> None:
        Z = normal(5, 3)
        Z.setflags(write=False)
        searcher = index.build(Z)
        laws.agree(searcher.changed(Z, NONE).query(Z, 3), searcher.query(Z, 3))

    def test_rows_to_be_added_must_be_like_the_others(self, index: Index) -> None:
        searcher = index.build(normal(5, 3))
        for wrong in (normal(7, 4), normal(7, 3).astype(np.float16), normal(1, 3)[0]):
            with pytest.raises(DataError, match=r"to be searched must be float32 of shape \(n, 3\); got"):
                searcher.changed(wrong, NONE)
        with pytest.raises(DataError, match="the embeddings to be searched must be finite; got NaN or infinity"):
            searcher.changed(np.append(normal(5, 3), np.full((1, 3), np.nan, np.float32), axis=0), NONE)
        assert searcher.n_rows == 5

    @pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
    @pytest.mark.parametrize("world", [normal, grid])
    @pytest.mark.parametrize("n", [12, 40, 300])
    def test_rows_come_and_go_in_searchers_that_stay_as_they_are(
        self, index: Index, world: Any, dtype: Any, n: int
    ) -> None:
        Z, Q = (20 * world(n, 6)).astype(dtype), 20 * world(7, 6, seed=1)
        for k in (1, 3):
            laws.changed_equals_built_afresh(index, Z, Q, k)

    def test_a_searcher_answers_while_newer_ones_are_made(self, index: Index) -> None:
        laws.a_searcher_answers_while_newer_ones_are_made(index, normal(400, 6), normal(9, 6, seed=1), 4)

    def test_shared_rows_stay_as_they_are(self, index: Index) -> None:
        laws.shared_rows_stay_as_they_are(index, normal(40, 6), normal(9, 6, seed=1), 4)


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
        {"_PANEL": 10, "_GROUP": 3, "_CANDIDATES": 1, "_CELLS": 1},
        {"_PANEL": 50, "_CANDIDATES": 200, "_CELLS": 40},
    ],
    ids=str,
)
@pytest.mark.parametrize("world", [normal, grid, clustered])
def test_blocks_of_any_size_find_the_same(sizes: dict[str, int], world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in sizes.items():
        monkeypatch.setattr(exact, name, size)
    for k in (1, 4, 333):
        laws.an_exact_index_finds_what_brute_force_finds(Exact(), world(333, 5), world(21, 5, seed=1), k)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 10**6))
def test_any_sequence_of_changes_ends_where_brute_force_does(data: st.DataObject, seed: int) -> None:
    Z, Q, left = grid(8, 2, seed), grid(3, 2, seed + 100), set(range(8))
    searcher = Exact().build(Z)
    for step in range(data.draw(st.integers(1, 12))):
        more = grid(data.draw(st.integers(0, 9)), 2, seed + step)
        left |= set(range(len(Z), len(Z) + len(more)))
        gone = data.draw(st.lists(st.sampled_from(sorted(left)), unique=True)) if left else []
        left -= set(gone)
        Z = np.concatenate([Z, more])
        searcher = searcher.changed(Z, np.array(gone, np.int64))
        assert searcher.n_rows == len(left)
        if left:
            numbers, k = np.array(sorted(left)), data.draw(st.integers(1, len(left)))
            order, distances = laws.brute_force(Z[numbers], Q, k)
            laws.agree(searcher.query(Q, k), (numbers[order], distances))


def test_exact_search_has_no_arrays_to_restore() -> None:
    assert Exact().build(normal(3, 2)).changed(normal(3, 2), np.array([1])).arrays() == {}
    with pytest.raises(ValueError, match="Exact has no arrays to restore; got numbers"):
        Exact().restore(normal(3, 2), {"numbers": np.array([0, 1, 2, 3])})


def test_rows_that_lie_end_to_end_are_searched_in_place_and_never_written_to(tmp_path: Path) -> None:
    np.save(tmp_path / "Z.npy", normal(40, 3))
    mapped = np.load(tmp_path / "Z.npy", mmap_mode="r")
    searcher = Exact().build(mapped[:30])
    assert np.shares_memory(searcher.Z, mapped)
    assert np.shares_memory(searcher.changed(mapped, np.arange(10)).Z, mapped)
    np.testing.assert_array_equal(np.load(tmp_path / "Z.npy"), normal(40, 3))


def test_a_searcher_that_cannot_change_says_so() -> None:
    searcher = BlockwiseExact().build(normal(5, 2))
    with pytest.raises(DataError, match="cannot take in changes; build the index again"):
        searcher.changed(normal(6, 2), NONE)


def test_searchers_share_rows_that_grow_and_one_more_row_copies_nothing() -> None:
    growing = GrowingArray(normal(40, 3))
    growing.append(normal(1, 3))  # makes room
    first = Exact().build(growing.view)
    second = first.changed(growing.append(normal(1, 3)), np.array([3]))
    third = second.changed(growing.append(normal(1, 3)), np.empty(0, np.int64))
    fourth = third.changed(growing.append(normal(1, 3)), np.empty(0, np.int64))
    for one, other in ((first, second), (second, third), (third, fourth)):
        assert np.shares_memory(one.Z, other.Z)
    assert np.shares_memory(third.half_norms, fourth.half_norms)
    assert not np.shares_memory(first.half_norms, second.half_norms)
    assert [len(one.Z) for one in (first, second, third, fourth)] == [41, 42, 43, 44]


def test_the_longest_row_may_come_and_go() -> None:
    Z, Q = normal(60, 5), normal(8, 5, seed=1)
    Z[50] *= np.float32(1e12)
    none = np.empty(0, np.int64)
    searcher = Exact().build(Z[:50])
    laws.agree(searcher.query(Q, 4), laws.brute_force(Z[:50], Q, 4))
    searcher = searcher.changed(Z[:51], none)
    laws.agree(searcher.query(Z[50:51], 4), laws.brute_force(Z[:51], Z[50:51], 4))
    searcher = searcher.changed(Z[:51], np.array([50])).changed(Z, none)
    ids, distances = laws.brute_force(np.delete(Z, 50, axis=0), Q, 4)
    laws.agree(searcher.query(Q, 4), (ids + (ids >= 50), distances))


def test_tiny_differences_of_longer_rows_that_come_later_are_seen() -> None:
    steps = np.random.default_rng(0).integers(0, 9, (3000, 8))
    Z = np.concatenate([normal(10, 8), (1e4 + steps * 1e4 * 2.0**-20).astype(np.float32)])
    searcher = Exact().build(Z[:10]).changed(Z, np.empty(0, np.int64))
    laws.agree(searcher.query(Z[10:50], 5), laws.brute_force(Z, Z[10:50], 5))


def test_columns_of_a_wider_array_may_grow() -> None:
    wide, Q = normal(50, 9), normal(8, 4, seed=1)
    searcher = Exact().build(wide[:20, 3:7]).changed(wide[:, 3:7], np.array([49]))
    laws.agree(searcher.query(Q, 5), laws.brute_force(wide[:49, 3:7], Q, 5))


@pytest.mark.parametrize("n_jobs", [1, 2, 3, 7])
@pytest.mark.parametrize("world", [normal, grid])
def test_rows_may_be_split_over_more_threads_than_they_fill(
    n_jobs: int, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "_SHARE", 1)
    for n in (1, 5, 90):
        searcher, expected = Exact().build(world(n, 4)), laws.brute_force(world(n, 4), world(5, 4, seed=1), min(n, 6))
        laws.agree(searcher.query(world(5, 4, seed=1), min(n, 6), n_jobs), expected)
        Z = np.concatenate([world(2 * n, 4, seed=2), world(n, 4)])
        searcher = Exact().build(Z).changed(Z, np.arange(n)).changed(Z, np.arange(n, 2 * n))
        found = searcher.query(world(5, 4, seed=1), min(n, 6), n_jobs)
        laws.agree((found[0] - 2 * n, found[1]), expected)


def test_words_name_indices_and_others_are_refused() -> None:
    assert resolve("index", "exact") == Exact()
    assert resolve("index", Exact()) == Exact()
    for wrong in ("flat", None, 3, Exact):
        with pytest.raises(
            ParameterError, match="`index` must be one of auto, exact, bits, ivf, hnsw, lsh or an Index; got"
        ):
            resolve("index", wrong)
