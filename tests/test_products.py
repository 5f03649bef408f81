"""Products: each is the dense formula, whatever is sparse, frequent, empty, cut into blocks or put in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from numpy.typing import NDArray

from ripml.base import products
from ripml.base.products import (
    FREQUENT,
    FactoredEmbedding,
    by_frequency,
    dense,
    gram_of,
    product,
    target_blocks,
    transposed_product,
)
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import Projection
from ripml.regression.kernels import most_alike

KINDS = {"dense": lambda X: X, "array": scipy.sparse.csr_array, "matrix": scipy.sparse.csr_matrix}
TYPES = [np.float64, np.float32]


def features(n: int, chances: list[float], seed: int = 0) -> NDArray[np.float64]:
    """Rows whose feature j is there with chance `chances[j]`, in an order that has nothing to do with it."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, len(chances))) * (rng.random((n, len(chances))) < np.array(chances))
    return X[:, rng.permutation(len(chances))]


WORLDS: dict[str, NDArray[np.float64]] = {
    "frequent": features(300, [0.5] * 90),
    "rare": features(300, [0.01] * 90),
    "mixed": features(300, [0.9, 0.3, 0.1] * 10 + [0.01] * 150),
    "one frequent": features(300, [0.5] + [0.01] * 80),
    "one rare": features(300, [0.5] * 80 + [0.01]),
    "empty columns": features(300, [0.0, 0.5, 0.01] * 30),
    "empty rows": features(300, [0.5, 0.01] * 40) * (np.arange(300) % 3 > 0)[:, None],
    "nothing but zeros": np.zeros((20, 7)),
    "no rows": np.zeros((0, 5)),
    "one row": features(1, [0.5] * 6),
    "one frequent feature alone": features(50, [0.7]),
    "one rare feature alone": np.eye(50, 1),
    "more features than rows": features(20, [0.3] * 150),
}


def bound(dtype: Any) -> float:
    return 1e-10 if dtype == np.float64 else 1e-3


def test_the_worlds_have_features_on_both_sides_of_the_limit() -> None:
    frequent = {name: int(((X != 0).mean(axis=0) > FREQUENT).sum()) for name, X in WORLDS.items() if len(X)}
    assert (frequent["frequent"], frequent["rare"], frequent["mixed"]) == (90, 0, 30)
    assert (frequent["one frequent"], frequent["one rare"]) == (1, 80)
    assert (frequent["one frequent feature alone"], frequent["one rare feature alone"]) == (1, 0)


# ------------------------------------------------------------------------------------------------------------- XᵀX


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORLDS)
class TestTheGramMatrix:
    @pytest.mark.parametrize("of", TYPES)
    def test_it_is_the_product_of_features_with_themselves(self, name: str, kind: str, dtype: Any, of: Any) -> None:
        X = WORLDS[name].astype(of)
        found = gram_of(KINDS[kind](X), None, dtype)
        assert isinstance(found, np.ndarray)
        assert found.dtype == dtype
        assert found.shape == (X.shape[1], X.shape[1])
        np.testing.assert_allclose(found, X.astype(np.float64).T @ X.astype(np.float64), atol=bound(dtype))

    def test_it_is_symmetric(self, name: str, kind: str, dtype: Any) -> None:
        found = gram_of(KINDS[kind](WORLDS[name]), None, dtype)
        np.testing.assert_allclose(found, found.T, atol=bound(dtype))

    def test_many_blocks_are_one(self, name: str, kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(products, "_ROW_BLOCK", 7)
        X = WORLDS[name]
        np.testing.assert_allclose(gram_of(KINDS[kind](X), None, dtype), X.T @ X, atol=bound(dtype))

    def test_threads_do_not_matter(self, name: str, kind: str, dtype: Any) -> None:
        X = KINDS[kind](WORLDS[name])
        one = gram_of(X, 1, dtype)
        for n_jobs in (2, 3):
            np.testing.assert_array_equal(gram_of(X, n_jobs, dtype), one)


def test_features_in_unsorted_cells_and_with_stored_zeros_have_the_same_gram_matrix() -> None:
    X = scipy.sparse.csr_array(WORLDS["mixed"])
    expected = gram_of(X, None)
    backwards = X.copy()
    for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        backwards.indices[start:end], backwards.data[start:end] = X.indices[start:end][::-1], X.data[start:end][::-1]
    np.testing.assert_allclose(gram_of(backwards, None), expected, atol=1e-12)
    full = scipy.sparse.csr_array(
        (WORLDS["mixed"].ravel(), np.tile(np.arange(X.shape[1]), 300), np.arange(301) * X.shape[1]), shape=X.shape
    )
    np.testing.assert_allclose(gram_of(full, None), expected, atol=1e-10)


def test_features_stay_as_they_are() -> None:
    X = scipy.sparse.csr_array(WORLDS["mixed"])
    before = X.copy()
    gram_of(X, None)
    np.testing.assert_array_equal(X.indices, before.indices)
    np.testing.assert_array_equal(X.data, before.data)


# --------------------------------------------------------------------------------------------------- embedded labels


def embedded(n: int, n_labels: int, n_dims: int, empty: bool = True) -> tuple[FactoredEmbedding, NDArray[np.float64]]:
    """Labels of which some rows have none, and their embedding in float64."""
    Y = worlds.zipf_labels(n, n_labels)
    if empty:
        Y = scipy.sparse.csr_array(Y.multiply((np.arange(n) % 5 > 0)[:, None]))
        Y.eliminate_zeros()
    Phi = Projection(Gaussian(), n_dims, 1, seed=1).columns(np.arange(n_labels, dtype=np.uint64))
    return FactoredEmbedding(Y, Phi.__getitem__, n_dims), Y.toarray().astype(np.float64) @ Phi.astype(np.float64)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [1, 7, 300, 1 << 16])
def test_embedded_labels_are_their_product_with_the_columns_whatever_the_blocks(
    rows: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "_EMBEDDED_ROWS", rows)
    Z, expected = embedded(300, 40, 12)
    found = Z.astype(dtype).toarray()
    assert found.dtype == dtype
    assert found.shape == Z.shape == Z.astype(dtype).shape == (300, 12)
    np.testing.assert_allclose(found, expected, atol=1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(dense(Z.astype(dtype)), found)


def test_embedded_labels_ask_only_for_the_columns_of_labels_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_EMBEDDED_ROWS", 50)
    Z, expected = embedded(200, 400, 6)
    asked: list[NDArray[Any]] = []

    def columns(labels: Any) -> NDArray[np.float32]:
        asked.append(labels)
        return Z.columns(labels)

    np.testing.assert_allclose(FactoredEmbedding(Z.Y, columns, 6).toarray(), expected, atol=1e-5)
    assert len(asked) == 4
    for block, labels in enumerate(asked):
        np.testing.assert_array_equal(labels, np.unique(Z.Y[50 * block : 50 * block + 50].indices))


@pytest.mark.parametrize(
    "rows",
    [slice(None), slice(10, 50), slice(0, 0), np.array([3, 3, 1]), np.arange(120) % 2 == 0, np.array([], np.int64)],
    ids=["all", "some", "none", "numbers", "flags", "no numbers"],
)
def test_rows_of_embedded_labels_are_rows_of_their_product(rows: Any) -> None:
    Z, expected = embedded(120, 30, 5)
    some = Z[rows]
    assert isinstance(some, FactoredEmbedding)
    assert some.shape == expected[rows].shape
    assert some.toarray().dtype == np.float32
    np.testing.assert_allclose(some.toarray(), expected[rows], atol=1e-5)
    assert Z.astype(np.float64)[rows].toarray().dtype == np.float64


def test_labels_that_nobody_carries_embed_to_nothing() -> None:
    Z = FactoredEmbedding(scipy.sparse.csr_array((4, 9), dtype=np.float32), np.ones((9, 3), np.float32).__getitem__, 3)
    np.testing.assert_array_equal(Z.toarray(), np.zeros((4, 3)))
    for X in (np.ones((4, 2)), scipy.sparse.csr_array(np.ones((4, 2)))):
        np.testing.assert_array_equal(transposed_product(X, Z, None), np.zeros((2, 3)))


# ------------------------------------------------------------------------------------------------------------- XᵀZ


# Few labels are summed first and many are embedded first, by the rule itself; sparse features go either way if forced.
SHAPES = {"few labels": (400, 30, 8), "many labels": (60, 30, 2000)}  # n, d, L
ORDERS = [
    *((kind, shape, None, shape == "many labels") for kind in KINDS for shape in SHAPES),
    *(("array", shape, gain, first) for shape in SHAPES for gain, first in ((1e9, False), (1e-9, True))),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize(("kind", "shape", "gain", "embeds_first"), ORDERS)
def test_features_times_embedded_labels_is_the_product_in_either_order(
    kind: str,
    shape: str,
    gain: float | None,
    embeds_first: bool,
    of: Any,
    dtype: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, d, L = SHAPES[shape]
    X = features(n, [0.3] * d).astype(of)
    Z, embedding = embedded(n, L, 6)
    made: list[FactoredEmbedding] = []
    original = FactoredEmbedding.toarray

    def toarray(self: FactoredEmbedding) -> NDArray[Any]:
        made.append(self)
        return original(self)

    monkeypatch.setattr(FactoredEmbedding, "toarray", toarray)
    if gain is not None:
        monkeypatch.setattr(products, "BLAS_GAIN", gain)
    found = transposed_product(KINDS[kind](X), Z.astype(dtype), None)
    assert bool(made) == embeds_first
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.result_type(of, dtype)
    exact = of == dtype == np.float64
    np.testing.assert_allclose(found, X.astype(np.float64).T @ embedding, atol=1e-10 if exact else 2e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_transposed_matrix_that_is_known_already_is_used(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "loops", lambda: None)  # compiled loops read the rows themselves
    n, d, L = SHAPES[shape]
    X = scipy.sparse.csr_array(features(n, [0.3] * d))
    Z, embedding = embedded(n, L, 6)
    twice = 2 * X.T.tocsr()
    for V in (Z.astype(np.float64), embedding):
        np.testing.assert_allclose(transposed_product(X, V, None, twice), 2 * (X.T @ embedding), atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_threads_do_not_matter(shape: str, kind: str) -> None:
    n, d, L = SHAPES[shape]
    X = KINDS[kind](features(n, [0.3] * (10 * d)))
    Z, _ = embedded(n, L, 6)
    for V in (Z, Z.toarray(), Z.Y):
        one = transposed_product(X, V, 1)
        np.testing.assert_array_equal(transposed_product(X, V, 2), one)
    by_one, by_two = (FactoredEmbedding(Z.Y, Z.columns, Z.n_dims, n_jobs).toarray() for n_jobs in (1, 2))
    np.testing.assert_array_equal(by_one, by_two)
    V = np.random.default_rng(0).standard_normal((X.shape[1], 4))
    np.testing.assert_array_equal(product(X, V, 1), product(X, V, 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("targets", ["dense", "sparse"])
def test_features_times_plain_targets_is_the_product(kind: str, targets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_ROW_BLOCK", 32)
    X, Y = features(150, [0.3] * 20), worlds.zipf_labels(150, 9)
    found = transposed_product(KINDS[kind](X), Y if targets == "sparse" else Y.toarray(), None)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, X.T @ Y.toarray(), atol=1e-10)


# --------------------------------------------------------------------------------------------- blocks of columns of V


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("of", TYPES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n_targets", [0, 1, 15, 40, 130, 600])
def test_a_sparse_transposed_product_is_the_plain_one_in_the_wider_type_on_any_number_of_threads(
    kind: str, of: Any, dtype: Any, n_targets: int
) -> None:
    for name in ("mixed", "empty columns", "nothing but zeros", "no rows"):
        X = WORLDS[name].astype(of)
        V = np.random.default_rng(1).standard_normal((len(X), n_targets)).astype(dtype)
        found = transposed_product(KINDS[kind](X), V, 1)
        assert found.dtype == np.result_type(of, dtype)
        tolerance = 1e-10 if of == dtype == np.float64 else 1e-3
        np.testing.assert_allclose(found, X.astype(np.float64).T @ V.astype(np.float64), atol=tolerance)
        for n_jobs in (2, 3, None):
            np.testing.assert_array_equal(transposed_product(KINDS[kind](X), V, n_jobs), found)


@pytest.mark.parametrize("d", [0, 1, 1000, 1 << 16, (1 << 16) + 1])
@pytest.mark.parametrize("n_targets", [0, 1, 16, 17, 500, 512, 513])
def test_blocks_of_targets_cover_every_column_once_and_are_not_wide(d: int, n_targets: int) -> None:
    found = target_blocks(d, n_targets)
    assert [column for block in found for column in range(block.start, block.stop)] == list(range(n_targets))
    assert all(block.stop - block.start <= (64 if d <= 1 << 16 else 128) for block in found)


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("name", WORLDS)
def test_features_by_frequency_are_the_features_that_occur_in_falling_order(name: str, kind: str) -> None:
    X = KINDS[kind](WORLDS[name])
    before = X.copy()
    ordered, order = by_frequency(X)
    counts = (WORLDS[name] != 0).sum(axis=0)
    assert set(order.tolist()) == set(np.flatnonzero(counts).tolist())
    assert (np.diff(counts[order]) <= 0).all()
    assert ordered.has_sorted_indices
    np.testing.assert_array_equal(ordered.toarray(), WORLDS[name][:, order])
    np.testing.assert_array_equal(X.indices, before.indices)
    np.testing.assert_array_equal(X.data, before.data)


# ------------------------------------------------------------------------------------------------ the largest of many


@pytest.mark.parametrize("n", [1, 5, 160, 161, 1000, 5003])
@pytest.mark.parametrize("k", [1, 10])
def test_the_most_alike_are_the_largest_whatever_ties_or_is_left_out(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    k = min(k, n)
    lines = np.stack([rng.standard_normal(n), rng.integers(3, size=n), np.zeros(n), np.arange(n), -np.arange(n)])
    lines[0, rng.integers(n)] = -np.inf
    for values in (lines, lines.astype(np.float32)):
        found = most_alike(values, k)
        assert found.shape == (len(lines), k)
        assert all(len(set(places)) == k for places in found.tolist())
        np.testing.assert_array_equal(
            np.sort(np.take_along_axis(values, found, axis=1), axis=1), np.sort(values, axis=1)[:, n - k :]
        )


@pytest.mark.parametrize("sparse", [False, True])
def test_embeddings_taken_by_set_are_summed_in_the_type_asked_for(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((900, 7)).astype(np.float32), rng.standard_normal((2, 30, 3)).astype(np.float32)
    of_row = rng.integers(30, size=900)
    expected = X.T.astype(np.float64) @ np.hstack(list(Z.astype(np.float64)[:, of_row]))
    rows = scipy.sparse.csr_array(X) if sparse else X
    moment = products.transposed_product(rows, products.IndexedEmbedding(Z, of_row).astype(np.float64), None)
    np.testing.assert_allclose(moment, expected, rtol=1e-12)
