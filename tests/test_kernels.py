"""Kernels: their formulas for every mix of dense and sparse rows, frequent and rare features, and lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from ripml import RIPML
from ripml.base import registry
from ripml.base.errors import ParameterError
from ripml.regression import kernels
from ripml.regression.kernels import RBF, Kernel, Linear, Local, Rows

KERNELS: list[Kernel] = [Linear(), RBF(0.5), RBF(2.0), Local(0.5)]  # of all rows, the last is linear
KINDS = {"dense": lambda X: X, "sparse": scipy.sparse.csr_array}


def features(n: int, n_frequent: int = 5, n_rare: int = 40, unit: bool = True, seed: int = 0) -> NDArray[np.float32]:
    """Rows with features that half of them have and features that one in a hundred has; every seventh row is zero."""
    rng = np.random.default_rng(seed)
    chance = np.concatenate([np.full(n_frequent, 0.5), np.full(n_rare, 0.01)])
    X = rng.standard_normal((n, len(chance))) * (rng.random((n, len(chance))) < chance)
    X[::7] = 0
    if unit:
        length = np.linalg.norm(X, axis=1, keepdims=True)
        X /= np.where(length, length, 1)
    return X[:, rng.permutation(len(chance))].astype(np.float32)


def formula(kernel: Kernel, X: Any, rows: Any) -> NDArray[np.float64]:
    """The kernel as it is defined, pair by pair in float64."""
    X, rows = X.astype(np.float64), rows.astype(np.float64)
    if isinstance(kernel, RBF):
        return np.asarray(np.exp(-float(kernel.gamma) * np.square(X[:, None] - rows[None]).sum(axis=2)))
    return np.asarray(X @ rows.T)


@pytest.mark.parametrize("right", KINDS)
@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
class TestEveryKernel:
    @pytest.mark.parametrize(("n_frequent", "n_rare"), [(5, 40), (5, 0), (0, 40)], ids=["both", "frequent", "rare"])
    @pytest.mark.parametrize("unit", [True, False], ids=["unit", "of any length"])
    def test_it_is_its_formula(
        self, kernel: Kernel, left: str, right: str, n_frequent: int, n_rare: int, unit: bool
    ) -> None:
        X, rows = (features(n, n_frequent, n_rare, unit, seed) for n, seed in ((300, 1), (310, 2)))
        found = kernel.between(KINDS[left](X), Rows(KINDS[right](rows)))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, formula(kernel, X, rows), atol=2e-5)

    def test_one_row_with_one_row_is_a_number(self, kernel: Kernel, left: str, right: str) -> None:
        X, rows = np.array([[0.6, 0.0, 0.8]], np.float32), np.array([[0.0, 0.5, 3.0]], np.float32)
        found = kernel.between(KINDS[left](X), Rows(KINDS[right](rows)))
        np.testing.assert_allclose(found, formula(kernel, X, rows), rtol=1e-5)

    def test_no_rows_have_no_values(self, kernel: Kernel, left: str, right: str) -> None:
        X = features(20)
        assert kernel.between(KINDS[left](X[:0]), Rows(KINDS[right](X))).shape == (0, 20)

    def test_rows_of_zeros_are_like_each_other_and_have_no_product(self, kernel: Kernel, left: str, right: str) -> None:
        zeros = np.zeros((3, 4), np.float32)
        found = kernel.between(KINDS[left](zeros), Rows(KINDS[right](zeros)))
        np.testing.assert_array_equal(found, float(kernel.word == "rbf"))

    def test_it_is_written_where_it_is_wanted(self, kernel: Kernel, left: str, right: str) -> None:
        X = features(50)
        place = np.full((60, 70), 7, np.float32)
        found = kernel.between(KINDS[left](X), Rows(KINDS[right](X)), out=place[5:55, 10:60])
        assert np.shares_memory(found, place)
        np.testing.assert_allclose(place[5:55, 10:60], formula(kernel, X, X), atol=2e-5)
        place[5:55, 10:60] = 7
        np.testing.assert_array_equal(place, 7)

    def test_threads_do_not_matter(self, kernel: Kernel, left: str, right: str) -> None:
        X, rows = features(700, seed=1), features(310, seed=2)
        one = kernel.between(KINDS[left](X), Rows(KINDS[right](rows)), n_jobs=1)
        for n_jobs in (2, 3):
            np.testing.assert_array_equal(kernel.between(KINDS[left](X), Rows(KINDS[right](rows)), n_jobs), one)

    def test_small_pieces_are_one(self, kernel: Kernel, left: str, right: str, monkeypatch: pytest.MonkeyPatch) -> None:
        X, rows = features(100, seed=1), features(70, seed=2)
        for name, value in (("_ROW_BLOCK", 8), ("_CACHED", 150)):
            monkeypatch.setattr(kernels, name, value)
        found = kernel.between(KINDS[left](X), Rows(KINDS[right](rows)))
        np.testing.assert_allclose(found, formula(kernel, X, rows), atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
class TestTheLowerTriangle:
    @pytest.mark.parametrize("n", [1, 2, 300, 2100])
    def test_it_is_that_of_all_pairs(self, kernel: Kernel, kind: str, n: int) -> None:
        X = KINDS[kind](features(n, n_rare=20))
        found, lower = kernel.lower_triangle(X), np.tril_indices(n)
        assert found.shape == (n, n)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[lower], kernel.between(X, Rows(X))[lower], atol=2e-6)

    def test_threads_do_not_matter(self, kernel: Kernel, kind: str) -> None:
        X, lower = KINDS[kind](features(700)), np.tril_indices(700)
        one = kernel.lower_triangle(X, n_jobs=1)[lower]
        for n_jobs in (2, 3):
            np.testing.assert_array_equal(kernel.lower_triangle(X, n_jobs)[lower], one)

    def test_the_diagonal_is_the_squared_length_or_one(self, kernel: Kernel, kind: str) -> None:
        X = features(300, unit=False)
        expected = np.square(X).sum(axis=1) if isinstance(kernel, Linear) else np.ones(300)
        np.testing.assert_allclose(kernel.lower_triangle(KINDS[kind](X)).diagonal(), expected, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_likeness_never_exceeds_one_whatever_is_lost_in_rounding(kind: str) -> None:
    X = (1000 * features(200, unit=False)).astype(np.float32)
    found = RBF(3.0).between(KINDS[kind](X), Rows(KINDS[kind](X)))
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_rows_know_their_squared_lengths(kind: str) -> None:
    X = features(30, unit=False)
    np.testing.assert_allclose(Rows(KINDS[kind](X)).squares, np.square(X).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
class TestProductsAmongRows:
    @pytest.mark.parametrize(("n_frequent", "n_rare"), [(5, 40), (5, 0), (0, 400), (1, 0)], ids=str)
    @pytest.mark.parametrize("unit", [True, False], ids=["unit", "of any length"])
    def test_they_are_those_of_all_pairs(self, kind: str, n_frequent: int, n_rare: int, unit: bool) -> None:
        X = features(200, n_frequent, n_rare, unit)
        rows = Rows(KINDS[kind](X))
        for n in (1, 2, 60, 200):
            ids = np.random.default_rng(n).permutation(200)[:n]
            found = rows.products_among(ids)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, formula(Linear(), X[ids], X[ids]), atol=2e-5)

    def test_a_feature_of_one_row_alone_has_a_part_in_the_diagonal_only(self, kind: str) -> None:
        X = np.hstack([np.diag([2.0, 3.0, 0.5, 0.0]), np.ones((4, 1)) * [[1], [0], [2], [0]]]).astype(np.float32)
        found = Rows(KINDS[kind](X)).products_among(np.arange(4))
        np.testing.assert_array_equal(found, [[5, 0, 2, 0], [0, 9, 0, 0], [2, 0, 4.25, 0], [0, 0, 0, 0]])

    def test_rows_that_share_nothing_have_only_a_diagonal(self, kind: str) -> None:
        found = Rows(KINDS[kind](np.diag([2.0, 3.0, 0.0]).astype(np.float32))).products_among(np.array([2, 0, 1]))
        np.testing.assert_array_equal(found, np.diag([0, 4, 9]))

    def test_rows_of_zeros_have_no_products(self, kind: str) -> None:
        found = Rows(KINDS[kind](np.zeros((5, 4), np.float32))).products_among(np.array([4, 1]))
        np.testing.assert_array_equal(found, np.zeros((2, 2)))

    def test_each_call_gives_a_matrix_of_its_own(self, kind: str) -> None:
        X = features(20)
        rows, ids = Rows(KINDS[kind](X)), np.arange(20)
        rows.products_among(ids)[:] = 7
        np.testing.assert_allclose(rows.products_among(ids), formula(Linear(), X, X), atol=2e-5)
        np.testing.assert_allclose(rows.squares, np.square(X).sum(axis=1), atol=2e-5)


# ------------------------------------------------------------------------------------------------- words and options


def test_words_name_kernels_and_auto_leaves_the_choice_to_the_fit() -> None:
    assert registry.resolve("kernel", "linear") == Linear()
    assert registry.resolve("kernel", "rbf") == RBF("auto")
    assert registry.resolve("kernel", "local") == Local("auto", "auto")
    assert registry.resolve("kernel", Local(0.3, n_rows=7)) == Local(0.3, "auto", 7)
    assert registry.resolve("kernel", RBF(0.3)) == RBF(0.3)
    assert RIPML(kernel="auto").stages().kernel is None


@pytest.mark.parametrize("wrong", ["poly", "", None, 3, RBF, Local])
def test_other_words_are_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r"`kernel` must be one of linear, rbf, local or a Kernel; got "):
        registry.resolve("kernel", wrong)


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), True, "wide", None, 1j])
def test_a_width_or_ridge_that_is_not_a_positive_number_is_refused(wrong: Any) -> None:
    for kernel in (RBF, Local):
        with pytest.raises(ParameterError, match=r"`gamma` must be 'auto' or a finite number > 0; got "):
            kernel(wrong)
    with pytest.raises(ParameterError, match=r"`ridge` must be 'auto' or a finite number > 0; got "):
        Local(ridge=wrong)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, float("nan"), True, "many", "auto", None])
def test_a_number_of_local_rows_that_is_not_a_positive_integer_is_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r"`n_rows` must be an integer ≥ 1; got "):
        Local(n_rows=wrong)


@pytest.mark.parametrize("gamma", [1, 0.25, np.float32(0.25), np.int64(2), "auto"])
def test_a_width_may_be_any_positive_number_or_auto(gamma: Any) -> None:
    assert RBF(gamma).gamma == gamma
    local = Local(gamma, gamma, n_rows=np.int64(3))
    assert (local.gamma, local.ridge, local.n_rows) == (gamma, gamma, 3)
