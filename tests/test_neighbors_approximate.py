"""Approximate neighbours: the contract of an index, near to brute force where rows have structure, safe to restore."""

from __future__ import annotations

import sys
from typing import Any, cast

import laws
import numpy as np
import pytest
from laws import Index
from numpy.typing import NDArray

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.base.registry import from_json, resolve, to_json
from ripml.neighbors import HNSW, IVF, LSH, Auto, Bits, Exact, approximate, auto, bits, choose_index
from ripml.neighbors.lsh import LSHSearcher

Floats = NDArray[np.float32]
NONE = np.empty(0, np.int64)

APPROXIMATE: list[Index] = [LSH(), HNSW(), IVF(), IVF(n_lists=16, n_probe=8), Bits(), Auto()]
subjects = pytest.mark.parametrize("index", APPROXIMATE, ids=repr)


@pytest.fixture(autouse=True)
def _structures_from_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "LEAST", 100)
    monkeypatch.setattr(bits, "EXACT_VALUES", 0)


def topics(n: int, m: int = 16, seed: int = 0) -> Floats:
    """Rows around forty centres."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((40, m))
    return (centres[rng.integers(40, size=n)] + 0.3 * rng.standard_normal((n, m))).astype(np.float32)


def shrunken(n: int, m: int = 16, seed: int = 1) -> Floats:
    """Queries as a regression predicts them: of the same topics, but shorter."""
    return np.asarray(topics(n, m, seed) * 0.7, np.float32)


def stored(Z: Floats, storage: str) -> Any:
    return np.round(Z * 30).clip(-127, 127).astype(np.int8) if storage == "int8" else Z.astype(storage)


def recall(found: NDArray[Any], expected: NDArray[Any]) -> float:
    common = [len(np.intersect1d(a, b)) for a, b in zip(found, expected, strict=True)]
    return float(np.mean(common) / found.shape[1])


# ----------------------------------------------------------------------------------------------------------- the laws


@subjects
class TestLaws:
    def test_most_neighbours_are_found_among_topics(self, index: Index) -> None:
        Z = topics(5000)
        for Q in (topics(100, seed=1), shrunken(100)):
            ids, _ = index.build(Z).query(Q, 10)
            assert recall(ids, laws.brute_force(Z, Q, 10)[0]) >= 0.95

    def test_an_answer_is_true(self, index: Index) -> None:
        Z, Q = topics(700), shrunken(40)
        for k in (1, 10, 300, 700):
            laws.an_answer_is_true(index.build(Z).query(Q, k), dict(enumerate(Z)), Q, k)

    def test_threads_and_batches_do_not_matter(self, index: Index) -> None:
        laws.neighbours_do_not_depend_on_threads_or_batches(index, topics(900), shrunken(150), 7)

    def test_added_rows_are_found(self, index: Index) -> None:
        laws.adding_rows_equals_building_with_them(index, topics(400), shrunken(30), 5, least=0.9)

    def test_rows_added_to_very_few_are_found(self, index: Index) -> None:
        Z = np.concatenate([topics(3), topics(600, seed=5)])
        ids, distances = index.build(Z[:3]).changed(Z, NONE).query(Z[3:23], 1)
        assert ids[:, 0].tolist() == list(range(3, 23))
        np.testing.assert_array_equal(distances, 0)

    def test_removed_rows_are_never_found(self, index: Index) -> None:
        Z, Q = topics(600), shrunken(30)
        laws.a_removed_row_is_never_found_and_no_other_number_changes(index, Z, Q, 5, least=0.9)

    def test_what_is_learnt_and_forgotten_leaves_no_trace(self, index: Index) -> None:
        laws.learn_then_forget_equals_never_learnt(index, topics(500), topics(80, seed=3), shrunken(30), 5, least=0.9)

    def test_restored_is_as_built(self, index: Index) -> None:
        laws.restored_equals_built(index, topics(500), shrunken(30), 5, least=0.9)

    def test_rows_left_after_removals_are_restored(self, index: Index) -> None:
        Z, Q = topics(600), shrunken(30)
        searcher = index.build(Z[:550]).changed(Z, np.arange(200))
        restored = index.restore(Z[200:], searcher.arrays())
        laws.agree(restored.query(Q, 8), index.build(Z[200:]).query(Q, 8))

    def test_a_row_that_is_not_present_cannot_be_removed(self, index: Index) -> None:
        laws.a_row_that_is_not_present_cannot_be_removed(index, topics(300))

    @pytest.mark.parametrize("tail", [10, 1024])
    def test_rows_come_and_go_in_searchers_that_stay_as_they_are(
        self, index: Index, tail: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(approximate, "_TAIL", tail)
        laws.changed_equals_built_afresh(index, topics(900), shrunken(30), 5, least=0.9)

    def test_a_searcher_answers_while_newer_ones_are_made(self, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(approximate, "_TAIL", 10)
        laws.a_searcher_answers_while_newer_ones_are_made(index, topics(400), shrunken(9), 4)

    def test_shared_rows_stay_as_they_are(self, index: Index) -> None:
        laws.shared_rows_stay_as_they_are(index, topics(400), shrunken(9), 4)

    def test_building_again_gives_the_same_arrays_and_answers(self, index: Index) -> None:
        Z, Q = topics(800), shrunken(50)
        first, second = index.build(Z, n_jobs=1), index.build(Z, n_jobs=2)
        arrays, again = first.arrays(), second.arrays()
        assert arrays.keys() == again.keys()
        for name, array in arrays.items():
            assert array.tobytes() == again[name].tobytes()
        laws.agree(first.query(Q, 6), second.query(Q, 6))


# ------------------------------------------------------------------------------------------------------- odd inputs


@subjects
class TestOddInputs:
    @pytest.mark.parametrize("n", [1, 2, 99, 100, 101])
    def test_few_rows_are_searched(self, index: Index, n: int) -> None:
        Z = topics(n)
        for k in {1, n}:
            laws.an_answer_is_true(index.build(Z).query(Z[:1], k), dict(enumerate(Z)), Z[:1], k)

    def test_equal_rows_come_in_the_order_of_their_numbers(self, index: Index) -> None:
        Z = np.tile(topics(3), (100, 1))
        for k in (2, 100, 300):
            ids, _ = index.build(Z).query(Z[:3], k)
            laws.an_answer_is_true((ids, index.build(Z).query(Z[:3], k)[1]), dict(enumerate(Z)), Z[:3], k)

    def test_rows_that_are_all_equal_are_searched(self, index: Index) -> None:
        for value in (0.0, 1.0):
            Z = np.full((200, 5), value, np.float32)
            ids, distances = index.build(Z).query(Z[:2], 200)
            assert ids.tolist() == [list(range(200))] * 2
            assert (distances == 0).all()

    def test_no_query_has_no_answer(self, index: Index) -> None:
        ids, distances = index.build(topics(200)).query(np.empty((0, 16), np.float32), 3)
        assert ids.shape == distances.shape == (0, 3)

    def test_a_query_of_zeros_finds_the_shortest_rows(self, index: Index) -> None:
        Z = topics(1000)
        ids, _ = index.build(Z).query(np.zeros((1, 16), np.float32), 5)
        assert recall(ids, laws.brute_force(Z, np.zeros((1, 16)), 5)[0]) >= 0.6

    @pytest.mark.parametrize("m", [1, 2, 3, 33])
    def test_any_number_of_dimensions_will_do(self, index: Index, m: int) -> None:
        Z, Q = topics(400, m), shrunken(20, m)
        laws.an_answer_is_true(index.build(Z).query(Q, 4), dict(enumerate(Z)), Q, 4)

    @pytest.mark.parametrize("storage", ["float16", "int8"])
    def test_other_storage_is_searched_as_it_is(self, index: Index, storage: str) -> None:
        Z = stored(topics(2000), storage)
        Q = shrunken(50) * np.float32(30 if storage == "int8" else 1)
        found = index.build(Z).query(Q, 10)
        laws.an_answer_is_true(found, dict(enumerate(Z)), Q, 10)
        assert recall(found[0], laws.brute_force(Z.astype(np.float64), Q, 10)[0]) >= 0.9

    @pytest.mark.parametrize(
        ("rows", "queries"), [(1e-30, 1e-30), (1e15, 1e15), (1.0, 1e30), (1e30, 1.0), (1e-38, 1.0)]
    )
    def test_any_scale_of_numbers_is_searched(self, index: Index, rows: float, queries: float) -> None:
        Z, Q = (topics(300) * rows).astype(np.float32), (shrunken(20) * queries).astype(np.float32)
        laws.an_answer_is_true(index.build(Z).query(Q, 4), dict(enumerate(Z)), Q, 4)

    def test_rows_far_longer_than_those_built_on_can_be_added(self, index: Index) -> None:
        far = topics(3, seed=8) * np.float32(1e20)
        Z = np.concatenate([topics(300), far])
        searcher = index.build(Z[:300]).changed(Z, NONE)
        laws.an_answer_is_true(searcher.query(far, 1), dict(enumerate(Z)), far, 1)

    def test_numbers_that_are_not_finite_are_refused(self, index: Index) -> None:
        wrong = topics(200)
        wrong[3, 3] = np.nan
        with pytest.raises(DataError, match="must be finite; got NaN or infinity"):
            index.build(wrong)
        with pytest.raises(DataError, match="must be finite; got NaN or infinity"):
            index.build(topics(200)).query(wrong, 2)

    def test_columns_of_a_wider_array_are_searched(self, index: Index) -> None:
        wide, Q = topics(400, 20), shrunken(10, 7)
        laws.an_answer_is_true(index.build(wide[:, 5:12]).query(Q, 3), dict(enumerate(wide[:, 5:12])), Q, 3)

    def test_settings_survive_json(self, index: Index) -> None:
        assert from_json(to_json("index", index)) == index


# ---------------------------------------------------------------------------------------------------- hostile arrays


def hostile(arrays: dict[str, Any]) -> list[dict[str, Any]]:
    """Arrays that cannot come from the index, each wrong in one way."""
    cases: list[dict[str, Any]] = []
    for name, array in arrays.items():
        cases.append({other: value for other, value in arrays.items() if other != name})
        cases += [{**arrays, name: array[:-1]}, {**arrays, name: np.concatenate([array, array[:1]])}]
        cases += [{**arrays, name: array.astype(np.complex128)}, {**arrays, name: array[None]}]
        if array.dtype.kind == "f":
            cases += [{**arrays, name: np.full_like(array, wrong)} for wrong in (np.nan, np.inf)]
        else:
            cases += [
                {**arrays, name: np.full_like(array, wrong)} for wrong in (-2, 0 if "levels" in name else 2**31 - 1)
            ]
    return cases


@pytest.mark.parametrize("index", [LSH(), HNSW(), IVF(), IVF(n_lists=16, n_probe=8)], ids=repr)
def test_arrays_that_cannot_be_are_refused(index: Index) -> None:
    Z = topics(400)
    arrays = index.build(Z).arrays()
    for case in hostile(arrays):
        if not case:
            continue  # no arrays at all: the index is built
        with pytest.raises(ValueError, match=r"the arrays? '(lsh|hnsw|ivf)"):
            index.restore(Z, case)
    with pytest.raises(ValueError, match="the index has no array 'numbers'"):
        index.restore(Z, {**arrays, "numbers": np.arange(3)})
    with pytest.raises(ValueError, match="an index of fewer than 100 rows has no arrays; got"):
        index.restore(Z[:50], arrays)


def test_lists_that_were_made_for_fewer_rows_are_restored() -> None:
    Z, Q = topics(900), shrunken(20)
    index = IVF(n_probe=8)
    searcher = index.build(Z[:400]).changed(Z, NONE)
    laws.agree(index.restore(Z, searcher.arrays()).query(Q, 5), searcher.query(Q, 5))


def test_links_to_levels_that_a_row_does_not_have_are_refused() -> None:
    Z = topics(3000)
    arrays = HNSW().build(Z).arrays()
    levels, links = arrays["hnsw_levels"], arrays["hnsw_links"]
    starts = np.concatenate([[0], np.cumsum(np.where(levels > 0, 32 + 16 * (levels - 1), 0))])
    high, low = int(np.argmax(levels)), int(np.argmin(levels))
    assert levels[high] > levels[low] == 1
    wrong = links.copy()
    wrong[starts[high] + 32] = low
    with pytest.raises(ValueError, match="'hnsw_links' has a link to a row that does not have the level of the link"):
        HNSW().restore(Z, {**arrays, "hnsw_links": wrong})
    messages = {-1: "'hnsw_entry' has .* at least 0", 3000: "'hnsw_entry' has .* below 3000", low: "the entry is below"}
    for entry, message in messages.items():
        with pytest.raises(ValueError, match=message):
            HNSW().restore(Z, {**arrays, "hnsw_entry": np.array([entry], np.int32)})


def test_random_arrays_of_the_right_shape_are_refused_or_searched() -> None:
    Z, Q = topics(300), shrunken(20)
    for index in (HNSW(), IVF()):
        arrays = index.build(Z).arrays()
        for seed in range(30):
            rng = np.random.default_rng(seed)
            mixed = {}
            for name, array in arrays.items():
                flat = array.ravel().copy()
                places = rng.integers(flat.size, size=5)
                flat[places] = rng.integers(-1, 300, 5) if flat.dtype.kind == "i" else rng.standard_normal(5)
                mixed[name] = flat.reshape(array.shape)
            try:
                searcher = index.restore(Z, mixed)
            except ValueError:
                continue
            laws.an_answer_is_true(searcher.query(Q, 5), dict(enumerate(Z)), Q, 5)


# ------------------------------------------------------------------------------------------------ options and choice


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    for index in (HNSW(), IVF()):
        with pytest.raises(
            MissingExtraError, match=r"faiss is needed for this; install it with: pip install 'ripml\[index\]'"
        ):
            index.build(topics(5))
    LSH().build(topics(300)).query(shrunken(2), 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HNSW(n_links=1), "`n_links` must be an integer ≥ 2; got 1"),
        (lambda: HNSW(ef=0), "`ef` must be an integer ≥ 1; got 0"),
        (lambda: HNSW(ef_build=0), "`ef_build` must be an integer ≥ 1; got 0"),
        (lambda: IVF(n_lists="many"), "`n_lists` must be 'auto' or an integer ≥ 1; got 'many'"),
        (lambda: IVF(n_lists=4, n_probe=5), "`n_probe` must not exceed `n_lists`; got 5 of 4 lists"),
        (lambda: IVF(n_candidates=0), "`n_candidates` must be an integer ≥ 1; got 0"),
        (lambda: LSH(n_tables=0), "`n_tables` must be an integer ≥ 1; got 0"),
        (lambda: LSH(n_hashes=0), "`n_hashes` must be 'auto' or an integer ≥ 1; got 0"),
        (lambda: LSH(storage="float8"), "`storage` must be one of float32, float16, int8; got 'float8'"),
    ],
)
def test_options_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_words_name_indices() -> None:
    for word, index in {
        "exact": Exact(),
        "lsh": LSH(),
        "hnsw": HNSW(),
        "ivf": IVF(),
        "bits": Bits(),
        "auto": Auto(),
    }.items():
        assert resolve("index", word) == index


def test_more_probes_tables_and_effort_find_more() -> None:
    Z, Q = np.random.default_rng(0).standard_normal((3000, 40)).astype(np.float32), shrunken(50, 40)
    expected = laws.brute_force(Z, Q, 10)[0]
    for few, many in (
        (LSH(n_tables=2, n_probes=1), LSH(n_tables=16, n_probes=128)),
        (HNSW(ef=10), HNSW(ef=500)),
        (IVF(n_lists=32, n_probe=1), IVF(n_lists=32, n_probe=32)),
        (IVF(n_candidates=10), IVF(n_candidates=1000)),
    ):
        low, high = (recall(index.build(Z).query(Q, 10)[0], expected) for index in (few, many))
        assert low <= high
        assert high >= 0.9


@pytest.mark.parametrize("index", [LSH(), HNSW(), IVF()], ids=repr)
def test_a_structure_is_shared_until_it_knows_too_little_or_too_much(
    index: LSH | HNSW | IVF, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "_TAIL", 10)
    Z = topics(400)

    def structure(searcher: Any) -> Any:
        return searcher.keys if isinstance(index, LSH) else searcher.index

    first = index.build(Z[:160])
    waiting = first.changed(Z[:170], np.arange(80))
    assert structure(waiting) is structure(first)
    assert (waiting.covered, waiting.n_known, waiting.n_known_left) == (160, 160, 80)
    assert np.shares_memory(waiting.exact.Z, Z)
    longer = waiting.changed(Z[:171], NONE)
    assert structure(longer) is not structure(first)
    assert (longer.covered, longer.n_known, longer.n_known_left) == (171, 171, 91)
    renewed = first.changed(Z[:250], np.arange(81))
    assert (renewed.covered, renewed.n_known, renewed.n_known_left) == (250, 169, 169)
    last = renewed.changed(Z[:270], np.array([260]))
    assert structure(last) is not structure(renewed)
    assert (last.covered, last.n_known, last.n_known_left) == (270, 189, 188)
    few = renewed.changed(Z[:250], np.arange(81, 240))
    assert not few.built
    assert not few.changed(Z[:330], NONE).built
    assert few.changed(Z, NONE).n_known == 160


def test_hashes_are_a_rule_of_the_seed() -> None:
    Z = topics(500)
    one, same, other = (cast(LSHSearcher, LSH(seed=seed).build(Z)).keys for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_small_sets_are_searched_exactly_by_auto() -> None:
    Z, Q = topics(500), shrunken(20)
    laws.an_exact_index_finds_what_brute_force_finds(Auto(), Z, Q, 5)
    laws.restored_equals_built(Auto(), Z, Q, 5)


def test_large_sets_are_searched_by_bits_if_numba_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "EXACT_VALUES", 1000)
    index, reason = choose_index(500, 16, 1, 10**9)
    assert index == Bits()
    assert "more than 1,000" in reason
    monkeypatch.setattr(auto, "loops", lambda: None)
    index, reason = choose_index(500, 16, 1, 10**9)
    assert index == Exact()
    assert "Numba is not installed" in reason


def test_without_numba_and_for_few_rows_bits_are_not_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    Z, Q = np.random.default_rng(0).standard_normal((9000, 64)).astype(np.float32), shrunken(20, 64)
    searcher = Bits().build(Z)
    missed = searcher.recall(Q, 50)
    assert missed is not None
    assert 0.5 < missed < 1
    for name, value in (("EXACT_VALUES", Z.size), ("loops", lambda: None)):
        with monkeypatch.context() as patched:
            patched.setattr(bits, name, value)
            assert searcher.recall(Q, 50) is None
            laws.agree(searcher.query(Q, 50), Exact().build(Z).query(Q, 50))


def test_what_bits_find_does_not_depend_on_how_rows_came() -> None:
    """Rows that came and went do not change which others are missed, and codes are shared by later searchers."""
    Z, Q = np.random.default_rng(0).standard_normal((9100, 64)).astype(np.float32), shrunken(20, 64)
    at_once, step_by_step = Bits().build(Z[:9000]), Bits().build(Z[:8001])
    step_by_step.query(Q, 50)
    for end in (8002, 8500, 9000):
        step_by_step = step_by_step.changed(Z[:end], NONE)
        step_by_step.query(Q, 50)
    found = at_once.query(Q, 50)
    laws.agree(step_by_step.query(Q, 50), found)
    later = step_by_step.changed(Z, NONE)
    assert np.shares_memory(later.codes.arrays()[1], step_by_step.codes.arrays()[1])
    laws.agree(later.changed(Z, np.arange(9000, 9100)).query(Q, 50), found)
    laws.agree(step_by_step.query(Q, 50), found)


def test_storage_shrinks_with_the_memory_that_is_free() -> None:
    chosen = [choose_index(1000, 100, 5, free)[0].storage for free in (8_000_000, 7_999_999, 4_000_000, 3_999_999, 1)]
    assert chosen == ["float32", "float16", "float16", "int8", "int8"]
