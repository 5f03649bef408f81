"""Features: rows of length 1, what a feature says about labels, and features weighed by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ripml.model.features import Scaling, relevance, unit_rows

TYPES = [np.float64, np.float32]


def random_rows(n: int = 40, d: int = 30, seed: int = 0) -> NDArray[np.float64]:
    """Sparse rows, some of which are zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.2)
    X[::9] = 0
    return X


def as_dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X)


def scaled(X: NDArray[Any]) -> NDArray[np.float64]:
    """Rows divided by their lengths in float64."""
    length = np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(X / np.where(length, length, 1), np.float64)


def ratio(X: NDArray[Any], Z: NDArray[Any]) -> NDArray[np.float64]:
    """max(ρ, 1) as it is defined, feature by feature."""
    deviation = Z.astype(np.float64) - Z.mean(axis=0)
    spread = np.mean(np.square(deviation).sum(axis=1))
    found = np.ones(X.shape[1])
    for j, x in enumerate(X.T.astype(np.float64)):
        if np.any(x) and spread:
            found[j] = max(1, np.square(x @ deviation).sum() / (np.square(x).sum() * spread))
    return found


# ------------------------------------------------------------------------------------------------- rows of length 1


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_have_length_one_and_rows_of_zeros_stay(dtype: Any) -> None:
    X = random_rows().astype(dtype)
    for rows in (X, scipy.sparse.csr_array(X)):
        found = unit_rows(rows)
        assert type(found) is type(rows)
        assert found.dtype == dtype
        np.testing.assert_allclose(as_dense(found), scaled(X), atol=1e-6)
    np.testing.assert_array_equal(X, random_rows().astype(dtype))  # what was given stays as it was


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_very_large_and_very_small_rows_are_scaled_like_others(size: float) -> None:
    X = np.array([[3, 4, 0], [0, -1, 0]]) * size
    for rows in (X, scipy.sparse.csr_array(X)):
        found = unit_rows(rows)
        np.testing.assert_allclose(as_dense(found), np.array([[0.6, 0.8, 0], [0, -1, 0]]), rtol=1e-12)


# -------------------------------------------------------------------------------------------------------- relevance


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_relevance_is_its_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Z = random_rows(seed=seed), rng.standard_normal((40, 6))
    for rows in (X, scipy.sparse.csr_array(X)):
        found = relevance(rows, Z)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, ratio(X, Z), rtol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_sparse_and_dense_features_are_equally_relevant(dtype: Any) -> None:
    X = random_rows(300, 50).astype(dtype)
    Z = (X[:, :4] > 0).astype(np.float32)
    np.testing.assert_allclose(relevance(scipy.sparse.csr_array(X), Z), relevance(X, Z), rtol=1e-4)


def test_features_that_have_nothing_to_do_with_the_labels_are_of_relevance_one() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((2000, 200)) < 0.05).astype(float)
    Z = rng.standard_normal((2000, 100))
    found = relevance(X, Z)
    assert found.min() >= 1
    assert np.median(found) < 1.1
    assert found.max() < 2


def test_a_feature_that_decides_a_label_is_as_relevant_as_rows_agree_on_it() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(10, size=1000)
    Z = np.eye(10)[label]
    X = (rng.random((1000, 30)) < 0.1).astype(float)
    X[:, 0] = label == 3
    found = relevance(X, Z)
    assert found[0] > 20 * found[1:].max()
    assert found[0] == pytest.approx((label == 3).sum(), rel=0.1)  # all of them carry one label


def test_features_of_zeros_are_of_relevance_one() -> None:
    X = random_rows()
    X[:, [0, 5, 29]] = 0
    Z = np.random.default_rng(0).standard_normal((40, 3))
    for rows in (X, scipy.sparse.csr_array(X)):
        np.testing.assert_array_equal(relevance(rows, Z)[[0, 5, 29]], 1)


def test_labels_that_are_all_the_same_make_no_feature_relevant() -> None:
    for rows in (random_rows(), scipy.sparse.csr_array(random_rows())):
        np.testing.assert_array_equal(relevance(rows, np.ones((40, 3), np.float32)), np.ones(30))


def test_the_scale_of_features_and_of_embeddings_does_not_matter() -> None:
    X, Z = random_rows(), np.random.default_rng(0).standard_normal((40, 3))
    scale = np.exp(np.random.default_rng(1).standard_normal(30))
    np.testing.assert_allclose(relevance(X * scale, 7 * Z + 3), relevance(X, Z), rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_relevance_does_not_depend_on_threads(sparse: bool) -> None:
    X = random_rows(50, 2500)
    rows = scipy.sparse.csr_array(X) if sparse else X
    Z = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    one = relevance(rows, Z, n_jobs=1)
    for n_jobs in (2, 3):
        np.testing.assert_array_equal(relevance(rows, Z, n_jobs), one)
    np.testing.assert_allclose(one, ratio(X, Z), rtol=1e-4)  # more features than one block has


# ---------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("dtype", TYPES)
def test_weighted_features_are_multiplied_and_rows_have_length_one_again(dtype: Any) -> None:
    X = random_rows().astype(dtype)
    weights = np.exp(np.random.default_rng(1).standard_normal(30)).astype(np.float32)
    for rows in (X, scipy.sparse.csr_array(X)):
        found = Scaling(weights=weights).weighted(rows)
        assert type(found) is type(rows)
        assert found.dtype == dtype
        np.testing.assert_allclose(as_dense(found), scaled(X.astype(np.float64) * weights), atol=1e-6)
        np.testing.assert_array_equal(as_dense(rows), random_rows().astype(dtype))


def test_equal_weights_change_nothing_but_the_length() -> None:
    X = random_rows()
    np.testing.assert_allclose(Scaling(weights=np.full(30, 5.0)).weighted(X), unit_rows(X), atol=1e-12)


def test_a_weight_of_zero_takes_a_feature_away() -> None:
    X = np.array([[3.0, 4.0], [2.0, 0.0]])
    for rows in (X, scipy.sparse.csr_array(X)):
        found = Scaling(weights=np.array([0.0, 2.0])).weighted(rows)
        np.testing.assert_array_equal(as_dense(found), [[0, 1], [0, 0]])
