"""Each compiled loop gives what its NumPy form gives; and everything works without the compiler, slower."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ripml import RIPML, load
from ripml.base import compiled
from ripml.base.arrays import as_bytes, as_half, from_bytes, from_half, packed_indices, unpacked_indices
from ripml.base.products import (
    BitCodes,
    RoundedRows,
    dense_rows_product,
    gram_of,
    predict_embedding,
    sparse_bytes_product,
    transposed_product,
)
from ripml.decoding import scores as scoring
from ripml.decoding.blend import Trees
from ripml.decoding.boosting import grow_tree
from ripml.decoding.signals import Examples, FittedSignals, _standing, best_candidates, cooccurrence
from ripml.decoding.sketch import least_squares
from ripml.decoding.training_rows import TrainingRows
from ripml.decoding.votes import softmax
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import LabelVectors, Projection
from ripml.model.features import unit_rows
from ripml.neighbors import Exact
from ripml.regression import kernels
from ripml.regression.far_field import FarField
from ripml.regression.kernels import RBF, Linear, Local, Rows, squared_lengths
from ripml.regression.label_coefficients import LabelCoefficients
from ripml.regression.regression import KernelRegression
from ripml.text.matching import Matches, Name, NameMatcher

pytest.importorskip("numba")

SEEDS = range(5)


def both(function: Any, *arguments: Any) -> tuple[Any, Any]:
    """What a function returns with compiled loops, and with NumPy alone."""
    assert compiled.loops() is not None
    fast = function(*arguments)
    return fast, without_loops(function, *arguments)


def without_loops(function: Any, *arguments: Any) -> Any:
    """What a function returns where no module finds the loops."""
    modules = [module for name, module in sys.modules.items() if name.startswith("ripml.") and hasattr(module, "loops")]
    patches = [patch.object(module, "loops", lambda: None) for module in modules if callable(module.loops)]
    for one in patches:
        one.start()
    try:
        return function(*arguments)
    finally:
        for one in patches:
            one.stop()


def sparse_rows(random: np.random.Generator, n: int, d: int, density: float = 0.2) -> Any:
    X = scipy.sparse.random_array((n, d), density=density, rng=random, format="csr", dtype=np.float32)
    X.sort_indices()
    return X


@pytest.mark.parametrize("seed", SEEDS)
def test_products_with_all_rows_and_with_the_first_ones(seed: int) -> None:
    random = np.random.default_rng(seed)
    X, queries = sparse_rows(random, 200, 30, 0.05 + 0.2 * seed), sparse_rows(random, 7, 30)

    def products(n: int) -> NDArray[Any]:
        return Linear().between(queries, Rows(X).first(n))

    for n in (200, 77, 1):
        fast, slow = both(products, n)
        np.testing.assert_allclose(fast, slow, atol=1e-5)
        alone = np.vstack([Linear().between(queries[i : i + 1], Rows(X).first(n)) for i in range(7)])
        assert np.array_equal(fast, alone)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_linear_prediction_is_equal_to_the_last_bit(dtype: Any) -> None:
    random = np.random.default_rng(0)
    X, Psi = sparse_rows(random, 40, 30).astype(dtype), random.standard_normal((30, 9)).astype(dtype)
    fast, slow = both(predict_embedding, X, Psi)
    assert np.array_equal(fast, slow)


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_float16_keeps_eleven_bits_whatever_the_scale(scale: float) -> None:
    values = np.random.default_rng(0).standard_normal((50, 7)) * scale
    (fast, unit), (slow, other_unit) = both(as_half, values)
    assert unit == other_unit
    assert np.array_equal(fast, slow)
    np.testing.assert_allclose(from_half(fast) * unit, values, rtol=2**-10, atol=1e-6 * scale)


def test_lines_in_8_bits_are_within_half_a_step_and_zero_stays_zero() -> None:
    values = np.random.default_rng(0).standard_normal((60, 7)) * 10.0 ** np.linspace(-30, 30, 60)[:, None]
    values[7] = 0
    lines, units = as_bytes(values)
    step = np.abs(values).max(axis=1, keepdims=True) / 127
    assert (np.abs(from_bytes(lines, units) - values) <= 0.501 * step).all()
    assert (np.abs(lines).max(axis=1) == np.where(np.arange(60) == 7, 0, 127)).all()
    again, same = as_bytes(from_bytes(lines, units))
    assert np.array_equal(again, lines)
    assert np.array_equal(same, units)


def test_a_product_with_lines_in_8_bits() -> None:
    random = np.random.default_rng(0)
    X, (lines, units) = sparse_rows(random, 40, 30), as_bytes(random.standard_normal((30, 9)))
    fast, slow = both(sparse_bytes_product, X, lines, units)
    np.testing.assert_allclose(fast, slow, atol=1e-5)
    np.testing.assert_allclose(fast, X @ from_bytes(lines, units), atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_packed_indices_come_back_as_they_were(seed: int) -> None:
    random = np.random.default_rng(seed)
    d = int(10 ** (2 * seed + 1))  # steps of up to five bytes
    rows = [np.unique(random.integers(0, d, random.integers(0, 9))) for _ in range(50)]
    indices, indptr = np.concatenate(rows), np.cumsum([0, *map(len, rows)])
    packed = packed_indices(indices, indptr)
    assert packed is not None
    assert packed.nbytes <= 5 * len(indices)
    fast, slow = both(unpacked_indices, packed, indptr, d)
    assert np.array_equal(fast, indices)
    assert np.array_equal(slow, indices)


@pytest.mark.parametrize(
    ("packed", "indptr", "sentence"),
    [
        ([1], [0, 2], "not as many as the entries"),
        ([1, 128], [0, 1], "not as many as the entries"),
        ([5], [0, 1], "not those of 5 columns"),
        ([2, 2], [0, 2], "not those of 5 columns"),
        ([255] * 9 + [1], [0, 1], "not those of 5 columns"),
    ],
)
def test_packed_indices_that_are_damaged_are_refused(packed: list[int], indptr: list[int], sentence: str) -> None:
    def unpack() -> str:
        with pytest.raises(ValueError, match=sentence) as caught:
            unpacked_indices(np.array(packed, np.uint8), np.array(indptr), 5)
        return str(caught.value)

    fast, slow = both(unpack)
    assert fast == slow


def test_indices_that_do_not_rise_are_not_packed() -> None:
    assert packed_indices(np.array([3, 2]), np.array([0, 2])) is None
    assert packed_indices(np.array([3, 3]), np.array([0, 2])) is None
    assert packed_indices(np.array([3, 2]), np.array([0, 1, 2])) is not None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kernel", [Linear(), Local(0.5, 0.1)], ids=str)
@pytest.mark.parametrize("k", [1, 30, 219])
def test_the_nearest_rows_are_the_most_similar_of_all(seed: int, kernel: Any, k: int) -> None:
    random = np.random.default_rng(seed)
    X, queries = sparse_rows(random, 200, 40, 0.1), sparse_rows(random, 6, 40, 0.3)
    X.data[X.indices < 9] *= np.float32(0.05 * seed)
    X = scipy.sparse.csr_array(X + (np.arange(40) < 5) * np.float32(0.1))  # some features that all rows have
    X.data[::7] *= -1
    X = scipy.sparse.vstack([X[:50], X[:30], X[80:]], format="csr")  # ties
    late, numbers, left_out = sparse_rows(random, 20, 40, 0.1), random.permutation(200), random.integers(0, 220, 6)
    nothing = np.zeros(0, np.int64)

    def nearest(queries: Any, own: Any) -> Any:
        """Among rows of which some were forgotten and some were learnt later."""
        rows = TrainingRows(Rows(X), np.zeros(200, np.int64), numbers, kernel)
        rows = rows.changed(np.array([3, 60]), nothing, nothing, late, np.zeros(20, np.int64), 200 + np.arange(20))
        assert rows.alive is not None
        return replace(rows, alive=np.append(rows.alive[:-1], False)).nearest(queries, k, own)

    for own in (None, left_out):
        (ids, values), (slow_ids, slow_values) = both(nearest, queries, own)
        np.testing.assert_allclose(values, slow_values, atol=1e-5)
        for one, other, some in zip(ids, slow_ids, np.isfinite(values), strict=True):
            assert set(one[some].tolist()) == set(other[some].tolist())
        alone = [nearest(queries[i : i + 1], None if own is None else own[i : i + 1]) for i in range(6)]
        assert np.array_equal(np.vstack([one[0] for one in alone]), ids)
        assert np.array_equal(np.vstack([one[1] for one in alone]), values)


def likely_rows(random: np.random.Generator, n: int = 400, d: int = 60) -> Any:
    """Sparse rows of length 1 with features of very different frequency, a few of them without any."""
    X = random.random((n, d)) * (random.random((n, d)) < 0.8 / (1 + np.arange(d) / 4))
    X[::97] = 0
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return scipy.sparse.csr_array((X / np.where(length, length, 1)).astype(np.float32))


def rows_of(X: Any, **settings: Any) -> TrainingRows:
    n = X.shape[0]
    return TrainingRows(Rows(X), np.zeros(n, np.int64), np.arange(n)[::-1].copy(), Local(0.5, 0.1), **settings)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 30, 399])
def test_likely_rows_by_all_terms_are_the_nearest(seed: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    X, queries, own = likely_rows(random), likely_rows(random, 9), random.integers(0, 400, 9)
    nothing, late = np.zeros(0, np.int64), likely_rows(random, 20)

    def nearest(left_out: Any) -> Any:
        learnt = np.zeros(20, np.int64), 400 + np.arange(20)
        rows = rows_of(X).changed(np.array([3, 60]), nothing, nothing, late, *learnt)
        return rows.X.misses, *rows.nearest(queries, k, left_out)

    monkeypatch.setattr(kernels, "_EXACT_TERMS", 0)
    for left_out in (None, own):
        monkeypatch.setattr(kernels, "_EXACT_ROWS", 400)
        misses, ids, values = nearest(left_out)
        assert not misses
        monkeypatch.setattr(kernels, "_EXACT_ROWS", 399)
        misses, likely_ids, likely_values = nearest(left_out)
        assert misses
        np.testing.assert_allclose(likely_values, values, atol=1e-5)
        for one, other, some in zip(likely_ids, ids, np.isfinite(values), strict=True):
            assert set(one[some].tolist()) == set(other[some].tolist())


@pytest.mark.parametrize("n_terms", [40, 200, 1000])
def test_likely_rows_by_some_terms_are_different_present_rows_of_the_right_likeness(
    n_terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_EXACT_ROWS", 100)
    monkeypatch.setattr(kernels, "_EXACT_TERMS", 0)
    monkeypatch.setattr(kernels, "_TERMS", n_terms)
    random = np.random.default_rng(n_terms)
    X, queries = likely_rows(random), likely_rows(random, 9)[1:]
    alive = random.random(400) < 0.7
    rows = rows_of(X, alive=alive)
    ids, values = rows.nearest(queries, 20)
    assert alive[ids].all()
    assert not np.isin(ids, np.arange(0, 400, 97)).any()
    assert all(len(set(line)) == 20 for line in ids.tolist())
    assert (np.diff(values, axis=1) <= 0).all()
    np.testing.assert_allclose(values, np.take_along_axis(rows.likeness(queries, 1), ids, axis=1), atol=1e-6)
    alone = [rows.nearest(queries[i : i + 1], 20)[0] for i in range(8)]
    np.testing.assert_array_equal(np.vstack(alone), ids)
    recall = rows.recall(queries, 20)
    assert recall is not None
    assert {40: 0.3, 200: 0.5, 1000: 0.98}[n_terms] < recall <= 1


@pytest.mark.parametrize("change", ["stored zeros", "tiny", "one level", "negative queries"])
def test_likely_rows_of_unusual_entries_have_the_right_likeness(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_EXACT_ROWS", 100)
    monkeypatch.setattr(kernels, "_EXACT_TERMS", 0)
    random = np.random.default_rng(0)
    X, queries = likely_rows(random), likely_rows(random, 9)[1:]
    if change == "stored zeros":
        for part in (X, queries):
            part.data[random.random(part.nnz) < 0.6] = 0
        X = scipy.sparse.csr_array(X / np.maximum(scipy.sparse.linalg.norm(X, axis=1), 1e-9)[:, None])
    elif change == "tiny":
        queries.data[:] = 1e-38
    elif change == "one level":
        X.data[:], queries.data[:] = 0.1, 0.1
        monkeypatch.setattr(kernels, "_EQUAL", 1e9)
        monkeypatch.setattr(kernels, "_TERMS", 100)
    else:
        queries.data[::2] *= -1
    rows = rows_of(X.astype(np.float32))
    assert rows.X.misses
    ids, values = rows.nearest(queries, 20)
    assert all(len(set(line)) == 20 for line in ids.tolist())
    np.testing.assert_allclose(values, np.take_along_axis(rows.likeness(queries, 1), ids, axis=1), atol=1e-6)


def test_rows_with_few_terms_of_different_lengths_or_signs_are_compared_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "_EXACT_ROWS", 100)
    X = likely_rows(np.random.default_rng(0))
    assert not rows_of(X).X.misses  # they have few terms
    monkeypatch.setattr(kernels, "_EXACT_TERMS", 0)
    assert rows_of(X).X.misses
    negative, longer = X.copy(), X.copy()
    negative.data[::3] *= -1
    longer.data[: X.indptr[50]] *= 2
    for other in (negative, longer):
        assert not rows_of(other).X.misses
        assert rows_of(other).recall(X[1:3], 5) is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 30, 399])
def test_coded_dense_rows_are_the_nearest_where_all_are_candidates(
    seed: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    X, queries, late = (random.standard_normal((n, 70), np.float32) for n in (400, 9, 20))
    X[::97] = 0
    own, nothing = random.integers(0, 420, 9), np.zeros(0, np.int64)

    def nearest(left_out: Any) -> Any:
        learnt = np.zeros(20, np.int64), 400 + np.arange(20)
        rows = rows_of(X).changed(np.array([3, 60]), nothing, nothing, late, *learnt)
        return rows.X.misses, *rows.nearest(queries, k, left_out)

    monkeypatch.setattr(kernels, "_EXACT_DENSE", 0)
    for left_out in (None, own):
        monkeypatch.setattr(kernels, "_EXACT_ROWS", 400)
        misses, ids, values = nearest(left_out)
        assert not misses
        monkeypatch.setattr(kernels, "_EXACT_ROWS", 399)
        misses, coded_ids, coded_values = nearest(left_out)
        assert misses
        np.testing.assert_allclose(coded_values, values, atol=1e-4)
        for one, other, some in zip(coded_ids, ids, np.isfinite(values), strict=True):
            assert set(one[some].tolist()) == set(other[some].tolist())


def test_coded_dense_rows_are_different_present_rows_of_the_right_likeness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_EXACT_DENSE", 0)
    monkeypatch.setattr(kernels, "_EXACT_ROWS", 100)
    random = np.random.default_rng(0)
    centres = random.standard_normal((50, 48), np.float32)
    X = centres[random.integers(50, size=5000)] + random.standard_normal((5000, 48), np.float32)
    queries, alive = X[:8] + np.float32(0.1), random.random(5000) < 0.7
    rows = rows_of(X, alive=alive)
    ids, values = rows.nearest(queries, 20)
    assert alive[ids].all()
    assert all(len(set(line)) == 20 for line in ids.tolist())
    assert (np.diff(values, axis=1) <= 0).all()
    np.testing.assert_allclose(values, np.take_along_axis(rows.likeness(queries, 1), ids, axis=1), atol=1e-3)
    alone = [rows.nearest(queries[i : i + 1], 20)[0] for i in range(8)]
    np.testing.assert_array_equal(np.vstack(alone), ids)
    recall = rows.recall(queries, 20)
    assert recall is not None
    assert 0.9 < recall <= 1
    own = rows.nearest(queries, 20, np.arange(8))[0]
    assert not (own == np.arange(8)[:, None]).any()
    # Rows that came and went leave no trace in what is found.
    nothing, more = np.zeros(0, np.int64), random.standard_normal((400, 48), np.float32)
    learnt = rows.changed(nothing, nothing, nothing, more, np.zeros(400, np.int64), 5000 + np.arange(400))
    forgotten = learnt.changed(5000 + np.arange(400), nothing, nothing, more[:0], nothing, nothing)
    np.testing.assert_array_equal(forgotten.nearest(queries, 20)[0], ids)


def test_few_dense_rows_and_very_long_ones_are_compared_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_EXACT_ROWS", 100)
    X = np.random.default_rng(0).standard_normal((200, 30), np.float32)
    assert not rows_of(X).X.misses
    monkeypatch.setattr(kernels, "_EXACT_DENSE", 0)
    assert rows_of(X).X.misses
    X[7] *= np.float32(1e15)
    assert not rows_of(X).X.misses
    assert rows_of(X).recall(X[:2], 5) is None


@pytest.mark.parametrize("m", [1, 70, 256])
def test_codes_estimate_products(m: int) -> None:
    """Against NumPy: signs and steps of turned rows, and factors that make a row's product with itself exact."""
    Z = np.random.default_rng(m).standard_normal((130, m), np.float32)
    flips, signs, pairs, factors, *last = BitCodes(Z).arrays()
    D = flips.shape[1]
    H = scipy.linalg.hadamard(D)
    padded = np.zeros((130, D))
    padded[:, :m] = Z
    turned = (H @ (flips[1][:, None] * (H @ (flips[0][:, None] * padded.T)))).T / D
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(Z, axis=1), rtol=1e-5)
    assert (len(signs), len(last[0])) == (2, 1)
    signs, pairs, factors = (np.concatenate([a, b]) for a, b in zip((signs, pairs, factors), last, strict=True))
    first, second = (
        2.0 * np.unpackbits(pairs[:, :, bit].reshape(-1, D // 64).view(np.uint8), axis=1, bitorder="little") - 1
        for bit in (0, 1)
    )
    np.testing.assert_array_equal(signs.transpose(0, 2, 1), pairs[:, :, 0])
    clear = np.abs(turned) > 1e-5
    np.testing.assert_array_equal(first[:130][clear], np.sign(turned)[clear])
    fine = (2 * first + second)[:130]
    for bits, factor in ((first[:130], factors[:, 0]), (fine, factors[:, 1])):
        products = (bits * turned).sum(axis=1) * factor.reshape(-1)[:130]
        np.testing.assert_allclose(products, np.square(Z).sum(axis=1), rtol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 120])
def test_products_among_some_rows(n: int) -> None:
    random = np.random.default_rng(n)
    X = sparse_rows(random, 300, 400, 0.15)
    X.data[(X.indices > 10) & (random.random(X.nnz) < 0.8)] = 0
    X.eliminate_zeros()
    rows, ids = Rows(X).followed_by(sparse_rows(random, 30, 400)), random.permutation(330)[:n]
    fast, slow = both(rows.products_among, ids)
    np.testing.assert_allclose(fast, slow, atol=1e-5)
    first = ids[ids < 300]
    np.testing.assert_allclose(Rows(X).products_among(first), (X[first] @ X[first].T).toarray(), atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 5, 49])
def test_the_most_similar_rows_with_ties_to_the_earliest(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    likeness = random.integers(0, 9, (6, 50)).astype(np.float32) / 8  # many ties
    rows = TrainingRows(Rows(np.zeros((50, 1), np.float32)), np.zeros(50, np.int64), random.permutation(50), Linear())
    (ids, values), (slow_ids, slow_values) = both(lambda: rows.most_similar(likeness.copy(), k))
    assert np.array_equal(values, slow_values)
    assert all(set(one) == set(other) for one, other in zip(ids.tolist(), slow_ids.tolist(), strict=True))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("m", [1, 7, 64])
def test_the_nearest_rows_are_those_of_exact_distances(seed: int, m: int) -> None:
    random = np.random.default_rng(seed)
    Z = random.standard_normal((300, m)).astype(np.float32) * np.float32(10.0 ** random.integers(-3, 3))
    Z[random.integers(0, 300, 40)] = Z[0]  # ties
    queries = Z[:9] + np.float32(0.1) * random.standard_normal((9, m)).astype(np.float32)
    before = Exact().build(Z[:250])
    searcher = before.changed(Z, np.array([3, 5]))
    for one in (before, searcher):
        (ids, distances), (slow_ids, slow_distances) = both(one.query, queries, 20, 1)
        assert np.array_equal(ids, slow_ids)
        np.testing.assert_allclose(distances, slow_distances, rtol=1e-12)
    assert not np.isin(searcher.query(Z[3:4], 20)[0], [3, 5]).any()


def test_rows_that_are_all_zero_are_found_as_well() -> None:
    Z = np.zeros((4, 3), np.float32)
    ids, costs = RoundedRows(Z).best(Z[:1], np.zeros(4), 0.0, 4, by_distance=True)
    assert ids.tolist() == [[0, 1, 2, 3]]
    assert costs.tolist() == [[0.0] * 4]


def unit_world(seed: int, n: int, d: int) -> tuple[Any, Any, NDArray[Any]]:
    random = np.random.default_rng(seed)
    X, queries = (unit_rows(sparse_rows(random, rows, d)) for rows in (n, 5))
    return X, queries, random.standard_normal((n, 6)).astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n_near", [1, 40, 140])
def test_a_kernel_sum_of_near_rows_and_a_line(seed: int, n_near: int) -> None:
    X, queries, C = unit_world(seed, 300, 40)
    kernel, squares = RBF(0.7, n_near), np.ones(5, np.float32)
    far, (half, unit) = FarField.of(squared_lengths(X), C, X.T @ C), as_half(C)
    likeness = kernel.likeness(queries, Rows(X))
    likeness[:, :3] = -np.inf  # forgotten
    fast, slow = both(far.kernel_sum, queries, likeness, squares, kernel, half, unit)
    np.testing.assert_allclose(fast, slow, atol=2e-3 * np.abs(slow).max())


def test_more_near_rows_are_closer_to_the_exact_sum() -> None:
    X, queries, C = unit_world(0, 2000, 40)
    kernel, squares = RBF(1.0), np.ones(5, np.float32)
    far, (half, unit) = FarField.of(squared_lengths(X), C, X.T @ C), as_half(C)
    likeness = kernel.likeness(queries, Rows(X))
    whole = kernel.of_likeness(likeness, squares) @ C
    errors = [
        np.linalg.norm(far.kernel_sum(queries, likeness, squares, RBF(1.0, n), half, unit) - whole)
        for n in (20, 200, 900)
    ]
    assert errors[0] > 1.5 * errors[1] > 2 * errors[2]


def test_the_kernel_sum_does_not_jump_when_rounding_moves_a_row_across_the_border() -> None:
    X, queries, C = unit_world(1, 500, 40)
    kernel, squares = RBF(1.0), np.ones(5, np.float32)
    far, (half, unit) = FarField.of(squared_lengths(X), C, X.T @ C), as_half(C)
    likeness = kernel.likeness(queries, Rows(X))
    noise = np.float32(1e-6) * np.random.default_rng(0).standard_normal(likeness.shape).astype(np.float32)
    one, other = (
        far.kernel_sum(queries, some, squares, RBF(1.0, 50), half, unit) for some in (likeness, likeness + noise)
    )
    assert np.abs(one - other).max() < 1e-3 * np.abs(one).max()


def label_world(seed: int) -> tuple[Any, dict[str, Examples], LabelVectors, NDArray[Any]]:
    random = np.random.default_rng(seed)
    sets = scipy.sparse.random_array((60, 25), density=0.15, rng=random, format="csr", dtype=np.float32)
    sets.data[:] = 1
    examples = {}
    for name in ("votes", "local"):
        numbers = random.integers(0, 60, (8, 11))
        weights = random.standard_normal((8, 11)) * (random.random((8, 11)) > 0.2)
        examples[name] = Examples(numbers, weights, numbers)
    columns = LabelVectors(Projection(Gaussian(), 16, 1, 0), np.arange(25, dtype=np.uint64))
    return sets, examples, columns, random.standard_normal((8, 16)).astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("known", [True, False])
def test_the_best_candidates_and_their_signals(seed: int, known: bool) -> None:
    sets, examples, columns, Z = label_world(seed)
    values = columns.values(Z) if known else None
    random = np.random.default_rng(seed)
    proposed, lifts = random.integers(-1, 25, (8, 3)), random.random((8, 3)).astype(np.float32)
    fast, slow = both(lambda: best_candidates(examples, sets, proposed, lifts, values, Z, columns, np.float32(1), 6))
    assert np.array_equal(fast[0], slow[0])
    assert list(fast[1]) == list(slow[1])
    for name in fast[1]:
        np.testing.assert_allclose(fast[1][name], slow[1][name], atol=1e-5)
    np.testing.assert_allclose(fast[2][fast[0] >= 0], slow[2][slow[0] >= 0], atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_of_examples_sum_to_one_where_there_are_any(seed: int) -> None:
    random = np.random.default_rng(seed)
    similarity, rows = random.random((7, 9)) * 4, random.integers(0, 4, (7, 9))
    rows[2] = 0
    similarity[rows == 0] = -np.inf
    fast, slow = both(softmax, similarity, 0.1, rows)
    np.testing.assert_allclose(fast, slow, atol=1e-12)
    np.testing.assert_allclose(fast.sum(axis=1), rows.any(axis=1))


def test_squared_lengths_of_sparse_rows() -> None:
    X = sparse_rows(np.random.default_rng(0), 30, 20)
    fast, slow = both(squared_lengths, X)
    np.testing.assert_allclose(fast, slow, rtol=1e-6)


def test_dense_rows_times_a_matrix_are_the_same_alone_and_together() -> None:
    random = np.random.default_rng(0)
    Z, V = (random.standard_normal(shape).astype(np.float32) for shape in ((5, 11), (11, 6)))
    fast, slow = both(dense_rows_product, Z, V)
    np.testing.assert_allclose(fast, slow, atol=1e-5)
    assert np.array_equal(fast, np.vstack([dense_rows_product(row[None], V) for row in Z]))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [1.0, 1e-4, 300.0])
def test_the_coefficients_of_labels_find_the_labels_of_the_largest_values(seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    X, Phi = sparse_rows(random, 20, 50), random.standard_normal((300, 16)).astype(np.float32)
    Phi[40:60] = Phi[:20] * np.float32(1 + 1e-4)  # closer than float16 can tell
    Psi, intercept = (scale * random.standard_normal(shape).astype(np.float32) for shape in ((50, 16), (16,)))
    Psi, intercept = Psi.astype(np.float32), intercept.astype(np.float32)
    present = random.random(300) > 0.1
    Z = predict_embedding(X, Psi) + intercept
    values = np.where(present, Z.astype(np.float64) @ Phi.T.astype(np.float64), -np.inf)
    found = LabelCoefficients(lambda features: Psi[features], 50, intercept, Phi).largest(X, Z, Phi, present, 12)
    assert present[found].all()
    chosen, best = np.take_along_axis(values, found, axis=1), -np.sort(-values, axis=1)[:, :12]
    np.testing.assert_allclose(chosen, best, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_names_in_a_text(seed: int) -> None:
    pytest.importorskip("Stemmer")
    random = np.random.default_rng(seed)
    names = [Name(i, "en", " ".join(random.choice(list("abcdefgh"), random.integers(1, 4))), True) for i in range(40)]
    texts = [" ".join(random.choice(list("abcdefghij."), 60)) for _ in range(20)]
    matcher = NameMatcher(names)
    fast, slow = both(lambda: matcher.find(texts))
    assert len(slow.names)
    for field in fields(Matches):
        assert np.array_equal(getattr(fast, field.name), getattr(slow, field.name)), field.name


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_least_squares_on_candidates(epsilon: float) -> None:
    _, _, columns, Z = label_world(0)
    labels = np.stack([np.random.default_rng(i).permutation(25)[:7] for i in range(8)])
    labels[2, 4:], labels[3, [0, 4]], labels[4] = -1, -1, -1  # also before others: labels without a row
    fast, slow = both(lambda: least_squares(Z, labels, columns, [epsilon]))
    np.testing.assert_allclose(fast, slow, atol=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_standing_of_values_in_their_row_with_near_ties(seed: int) -> None:
    random = np.random.default_rng(seed)
    value = (random.integers(0, 6, (9, 12)) / 5 + random.random((9, 12)) * 1e-3).astype(np.float32)
    labels = np.where(random.random((9, 12)) < 0.2, -1, 3)
    labels[0] = -1
    fast, slow = both(lambda: _standing(value, labels, np.ones((9, 12), np.int64)))
    for name in slow:
        filled = labels >= 0
        np.testing.assert_allclose(fast[name][filled], slow[name][filled], atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_trees_with_steps_and_slopes(seed: int) -> None:
    random = np.random.default_rng(seed)
    trees = Trees(
        random.integers(0, 4, (6, 7)).astype(np.uint8),
        random.random((6, 7)).astype(np.float32),
        random.standard_normal((6, 8)).astype(np.float32),
        0.3,
    )
    table = random.random((200, 4)).astype(np.float32)
    for slopes in (None, np.array([0.3, 0, 0.05, 1], np.float32)):
        fast, slow = both(lambda slopes=slopes: trees.probabilities(table, 1, slopes))
        np.testing.assert_allclose(fast, slow, atol=1e-6)


def test_scores_in_the_order_of_labels() -> None:
    random = np.random.default_rng(0)
    labels = np.stack([random.permutation(20)[:6] for _ in range(5)])
    labels[1, 3:] = -1
    labels[2] = -1
    values = random.random((5, 6)).astype(np.float32)
    fast, slow = both(lambda: scoring.as_scores(labels, values, 20))
    assert np.array_equal(fast.indptr, slow.indptr)
    assert np.array_equal(fast.indices, slow.indices)
    assert np.array_equal(fast.data, slow.data)


def test_the_largest_values_of_labels_without_all_values() -> None:
    _, _, columns, Z = label_world(0)
    absent = np.array([4, 7])
    found = columns.largest(Z, 6, absent)
    assert found is not None
    values = columns.values(Z)
    values[:, absent] = -np.inf
    assert np.array_equal(np.sort(found), np.sort(np.argsort(-values, axis=1)[:, :6]))


@pytest.mark.parametrize("preset", ["default", "linear", "paper"])
def test_a_model_answers_the_same_with_and_without_compiled_loops(preset: str) -> None:
    random = np.random.default_rng(0)
    X = sparse_rows(random, 400, 60)
    Y = [[f"label {j % 23}" for j in row.indices[:3]] or ["none"] for row in X]
    make: Any = {"default": RIPML, "linear": RIPML.linear, "paper": RIPML.paper}[preset]
    model = make(random_state=0).fit(X, Y)
    fast, slow = both(lambda: pickle.loads(pickle.dumps(model)).decision_function(X[:50]))
    assert abs(fast - slow).max() < 1e-3


@pytest.mark.parametrize("preset", ["default", "linear"])
@pytest.mark.parametrize("n_dims", ["auto", 40])
def test_one_call_gives_the_scores_of_all_steps(preset: str, n_dims: Any) -> None:
    random = np.random.default_rng(0)
    X = sparse_rows(random, 1000, 60)
    Y = [[f"label {j % 43}" for j in row.indices[:3]] or ["none"] for row in X]
    make: Any = {"default": RIPML, "linear": RIPML.linear}[preset]
    model = make(random_state=0, n_dims=n_dims).fit(X, Y).model_
    assert model.decoder.trees is not None
    rows, cluster = model.features(unit_rows(X[:50])), model.clusters[0]
    one_call = model.decoder.cluster_scores(cluster, rows, 1)
    steps = FittedSignals.cluster_scores(model.decoder, cluster, rows, 1)
    assert np.array_equal(one_call.indptr, steps.indptr)
    assert np.array_equal(one_call.indices, steps.indices)
    np.testing.assert_allclose(one_call.data, steps.data, atol=2e-6)


@pytest.mark.parametrize("n_neighbors", ["auto", 20])
def test_columns_of_labels_in_float16_give_the_same_scores(n_neighbors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    X = sparse_rows(random, 1000, 60)
    Y = [[f"label {j % 43}" for j in row.indices[:3]] or ["none"] for row in X]
    model = RIPML.linear(random_state=0, n_dims=40, n_neighbors=n_neighbors).fit(X, Y)
    scores = model.decision_function(X[:50])
    monkeypatch.setattr("ripml.labels.projection._TABLE_BYTES", 2 * 40 * len(model.classes_))
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(copy.decision_function(X[:50]).toarray(), scores.toarray(), atol=5e-3)
    assert copy.model_.decoder.sketch.columns.kept.dtype == np.uint16


def test_answers_are_the_same_before_and_after_the_coefficients_of_labels_are_made() -> None:
    random = np.random.default_rng(0)
    X = sparse_rows(random, 1000, 60)
    Y = [[f"label {j % 43}" for j in row.indices[:3]] or ["none"] for row in X]
    model = RIPML.linear(random_state=0, n_dims=40).fit(X, Y)
    regression: Any = model.clusters_[0].regression
    Phi = model.model_.decoder.embedding.columns.table
    before = model.decision_function(X[:3])
    assert regression._of_labels.get(Phi) is None
    model.decision_function(X[:200])
    assert regression._of_labels.get(Phi) is not None
    after = model.decision_function(X[:3])
    assert abs(before - after).max() == 0
    model.partial_fit(X[:1], Y[:1])
    changed: Any = model.clusters_[0].regression
    assert changed._of_labels.get(Phi) is None  # those that were made are of another regression


def test_as_few_rows_are_near_as_keep_predictions() -> None:
    X, _, C = unit_world(0, 7000, 40)
    rows, left_out, Z = Rows(X), np.arange(6900, 7000), np.ones((100, 6), np.float32)

    def near(length: float) -> Any:
        return KernelRegression.of(RBF(0.5), 0.1, C, rows, left_out, Z * np.float32(length))

    assert (near(1e9).kernel.n_near, near(1e9).far is None) == (500, False)
    assert (near(0).kernel.n_near, near(0).far is None) == (7000, True)  # no far field is good enough
    few = KernelRegression.of(RBF(0.5), 0.1, C[:100], Rows(X[:100]))
    assert (few.kernel.n_near, few.far is None) == (3000, True)


def test_near_rows_alone_are_summed_in_a_fitted_model() -> None:
    random = np.random.default_rng(0)
    X = sparse_rows(random, 400, 60)
    Y = [[f"label {j % 23}" for j in row.indices[:3]] or ["none"] for row in X]
    model = RIPML(kernel=RBF(n_near=100), random_state=0).fit(X, Y)
    assert isinstance(model.kernel_, RBF)
    exact = RIPML(kernel=replace(model.kernel_, n_near=None), random_state=0).fit(X, Y)
    assert model.clusters_[0].regression.arrays().keys() >= {"far_sums"}
    assert abs(model.decision_function(X) - exact.decision_function(X)).max() < 0.2


def test_clusters_with_and_without_a_far_field_are_saved_together(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = sparse_rows(random, 400, 60)
    X.data[: X.indptr[330]] *= (X.indices[: X.indptr[330]] < 30) + np.float32(0.01)  # 330 rows of other features
    Y = [[f"label {j % 23}" for j in row.indices[:3]] or ["none"] for row in X]
    model = RIPML(kernel=RBF(n_near=100), n_clusters=2, random_state=0).fit(X, Y)
    assert {cluster.regression.arrays()["Psi"].dtype.name for cluster in model.clusters_} == {"float16", "float32"}
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert abs(loaded.decision_function(X) - model.decision_function(X)).max() == 0


def test_without_the_compiler_a_fresh_process_answers() -> None:
    code = (
        "from ripml import RIPML; from ripml.base.compiled import loops; assert loops() is None;"
        "m = RIPML(random_state=0).fit([[1, 0], [0, 1], [1, 1]], [['a'], ['b'], ['a', 'b']]);"
        "print(m.recommend([[1, 0]], 1)[0][0][0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"RIPML_COMPILED": "0", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "a\n"


# ------------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", SEEDS)
def test_features_are_multiplied_with_features_to_the_last_bit(seed: int, dtype: Any) -> None:
    random = np.random.default_rng(seed)
    X = sparse_rows(random, 300, 700, 0.03)
    X = scipy.sparse.hstack([X, sparse_rows(random, 300, 5, 0.9), scipy.sparse.csr_array((300, 2))], format="csr")
    fast, slow = both(gram_of, X[:, random.permutation(X.shape[1])], None, dtype)
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_array_equal(fast, fast.T)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", SEEDS)
def test_features_are_multiplied_with_targets_to_the_last_bit(seed: int, dtype: Any) -> None:
    random = np.random.default_rng(seed)
    X = sparse_rows(random, 200, 600, 0.05)
    V = np.asfortranarray(random.standard_normal((200, 7))).astype(dtype)
    fast, slow = both(transposed_product, X, V, None, X.T.tocsr())
    np.testing.assert_array_equal(fast, slow)
    assert fast.dtype == dtype


@pytest.mark.parametrize("n_learners", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_labels_are_embedded_to_the_last_bit(seed: int, n_learners: int) -> None:
    random = np.random.default_rng(seed)
    Y = scipy.sparse.csr_array(random.random((90, 40)) < 0.1).astype(np.float64)
    projection = Projection(Gaussian(), 13, n_learners, seed)
    fast, slow = both(projection.embed, Y, np.arange(40, dtype=np.uint64), None)
    np.testing.assert_array_equal(fast, slow)


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_tree_grows_alike(seed: int, depth: int) -> None:
    random = np.random.default_rng(seed)
    bins = random.integers(0, [2, 255, 30, 1], (900, 4)).astype(np.uint8)
    g, h = random.standard_normal(900).astype(np.float32), random.random(900).astype(np.float32)
    g += bins[:, 1] / np.float32(200) - bins[:, 2] / np.float32(40)
    rising = np.array([False, True, False, True])
    fast, slow = both(grow_tree, bins, g, h, rising, depth, 40)
    assert (fast.cut >= 0).any()
    for name in ("feature", "cut", "value", "leaf"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name))


def test_cooccurrence_is_the_largest_share_of_near_rows_with_another_label() -> None:
    sets = scipy.sparse.csr_array(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]], np.float32))
    labels, near = np.array([[0, 1, 2, -1]]), np.array([[0, 1, 2]])
    simple, weights = np.array([[0.5, 1.0, 0.2, 0.0]], np.float32), np.array([[0.6, 0.3, 0.1]])
    # Label 0 occurs with 1 in a near row of weight 0.6, and with 2 in one of 0.3.
    expected = [[1.0 * 0.6 / 0.65, 0.5 * 0.6 / 0.95, 0.5 * 0.3 / 0.95, 0.0]]
    found = both(cooccurrence, labels, simple, near, weights, sets)
    for one in found:
        np.testing.assert_allclose(one, expected, rtol=1e-6)


def test_cooccurrence_of_many_rows_is_the_same_without_the_compiler() -> None:
    random = np.random.default_rng(0)
    sets = scipy.sparse.random_array((60, 40), density=0.15, rng=random, format="csr", dtype=np.float32)
    labels = np.array([random.permutation(40)[:9] for _ in range(20)])
    labels[:, -1] = -1
    simple = random.uniform(-0.2, 1.2, labels.shape).astype(np.float32)
    near, weights = random.integers(60, size=(20, 15)), random.dirichlet(np.ones(15), 20)
    compiled_form, plain = both(cooccurrence, labels, simple, near, weights, sets)
    np.testing.assert_allclose(compiled_form, plain, atol=1e-6)
    assert compiled_form.max() > 0.1
    assert (compiled_form[:, -1] == 0).all()
