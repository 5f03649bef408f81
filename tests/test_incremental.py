"""Ridge regression whose rows come and go: always the solution of the rows that are left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from ripml.base import parallel as resources
from ripml.base.errors import DataError, MemoryLimitError, ParameterError
from ripml.regression import incremental, incremental_kernel
from ripml.regression.incremental import IncrementalRidge
from ripml.regression.incremental_kernel import IncrementalDualRidge, IncrementalKernelRidge
from ripml.regression.inverse import Inverse, RowChange, Triangle, started
from ripml.regression.kernels import RBF, Kernel, Linear
from ripml.regression.sums import Sums

Doubles = NDArray[np.float64]

KINDS: list[Callable[[Any], Any]] = [np.asarray, scipy.sparse.csr_array]
KERNELS = [RBF(0.5), Linear()]


def rows_of(n: int, d: int = 12, n_targets: int = 5, seed: int = 0) -> tuple[Doubles, Doubles]:
    """Half of the features of a row are zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    return X, rng.standard_normal((n, n_targets))


def error(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-300))


def ridge(X: Any, Z: Any, alpha: float) -> Doubles:
    """By the singular values, of least norm where alpha is 0."""
    left, values, right = np.linalg.svd(X, full_matrices=False)
    kept = values > 1e-9 * max(values.max(initial=0), 1e-300)
    weights = values[kept] / (values[kept] ** 2 + alpha)
    return np.asarray((right[kept].T * weights) @ (left[:, kept].T @ Z))


def kernel_matrix(kernel: Kernel, X: Doubles) -> Doubles:
    K = X @ X.T
    if isinstance(kernel, RBF):
        squares = np.diagonal(K)
        K = np.exp(-float(kernel.gamma) * np.maximum(squares[:, None] + squares - 2 * K, 0))
    return np.asarray(K)


class LinearWorld:
    """A linear regression and the rows that it should know."""

    def __init__(self, X: Doubles, Z: Doubles, alpha: float, kind: Callable[[Any], Any] = np.asarray) -> None:
        self.X, self.Z, self.alpha, self.kind = X, Z, alpha, kind
        self.system = IncrementalRidge.of(kind(X), Z, alpha)

    def change(self, X: Doubles, Z: Doubles, gone: Any = ()) -> None:
        gone = np.asarray(gone, np.int64)
        self.system.change((self.kind(X), Z), (self.kind(self.X[gone]), self.Z[gone]))
        self.X = np.concatenate([np.delete(self.X, gone, axis=0), X])
        self.Z = np.concatenate([np.delete(self.Z, gone, axis=0), Z])

    def retarget(self, rows: Any, change: Doubles) -> None:
        self.system.retarget(self.kind(self.X[rows]), change)
        self.Z = self.Z.copy()
        self.Z[rows] += change

    def widen(self, n: int) -> None:
        self.system.widen(n)
        self.Z = np.pad(self.Z, ((0, 0), (0, n - self.Z.shape[1])))

    def change_at_random(self, steps: int, seed: int = 1, most: int = 3) -> None:
        """Learn, forget, retarget and widen at random."""
        rng = np.random.default_rng(seed)
        for step in range(steps):
            n, m = self.Z.shape
            kind = rng.integers(5)
            if kind == 0:
                rows = rng.choice(n, min(n, int(rng.integers(1, 2 * m))), replace=False)
                self.retarget(rows, rng.standard_normal((len(rows), m)))
            elif kind == 1 and step % 7 == 0:
                self.widen(m + 1)
            else:
                X, Z = rows_of(int(rng.integers(most + 1)), self.X.shape[1], m, seed=1000 + step)
                self.change(X, Z, rng.choice(n, int(rng.integers(min(most, n) + 1)), replace=False))

    @property
    def error(self) -> float:
        return error(self.system.Psi, ridge(self.X, self.Z, self.alpha))


class KernelWorld:
    """A kernel regression, its rows and targets by place, and which of them it should know."""

    def __init__(
        self,
        n: int = 30,
        kernel: Kernel | None = None,
        kind: Callable[[Any], Any] = np.asarray,
        alpha: float = 0.3,
        dtype: Any = np.float64,
        d: int = 12,
    ) -> None:
        X, Z = rows_of(n, d)
        self.X, self.Z, self.alpha, self.kind = X.astype(dtype), Z.astype(dtype), alpha, kind
        self.kernel = kernel or Linear()
        self.places = np.arange(n)  # of the rows that are alive
        self.system = (
            IncrementalKernelRidge(kernel, kind(self.X), self.Z, alpha)
            if kernel is not None
            else IncrementalDualRidge(Linear(), kind(self.X), self.Z, alpha)
        )

    def learn(self, X: Doubles, Z: Doubles) -> None:
        X, Z = X.astype(self.X.dtype), Z.astype(self.Z.dtype)
        places = self.system.learn(self.kind(X), Z)
        assert places.tolist() == list(range(len(self.X), len(self.X) + len(X)))
        self.X, self.Z = np.concatenate([self.X, X]), np.concatenate([self.Z, Z])
        self.places = np.concatenate([self.places, places])

    def forget(self, places: Any) -> None:
        self.system.forget(places)
        self.places = np.setdiff1d(self.places, places)

    def retarget(self, places: Any, Z: Doubles) -> None:
        self.system.retarget(places, Z)
        self.Z = self.Z.copy()
        self.Z[places] = Z

    def widen(self, n: int) -> None:
        self.system.widen(n)
        self.Z = np.pad(self.Z, ((0, 0), (0, n - self.Z.shape[1])))

    def compact(self) -> None:
        self.system.compact()
        self.X, self.Z, self.places = self.X[self.places], self.Z[self.places], np.arange(len(self.places))

    def change_at_random(self, steps: int, seed: int = 1, most: int = 3) -> None:
        rng = np.random.default_rng(seed)
        for step in range(steps):
            m = self.Z.shape[1]
            kind = rng.integers(10)
            some = rng.choice(self.places, min(len(self.places), int(rng.integers(1, most + 1))), replace=False)
            if kind < 4:
                self.learn(*rows_of(int(rng.integers(1, most + 1)), self.X.shape[1], m, seed=1000 + step))
            elif kind < 7:
                self.forget(some)
            elif kind < 9:
                some = rng.choice(self.places, min(len(self.places), int(rng.integers(1, 2 * m))), replace=False)
                self.retarget(some, rng.standard_normal((len(some), m)))
            elif step % 2:
                self.widen(m + 1)
            else:
                self.compact()

    @property
    def error(self) -> float:
        """Of all that is to be known of the system."""
        X, Z = self.X[self.places].astype(np.float64), self.Z[self.places].astype(np.float64)
        expected = np.zeros((len(self.X), Z.shape[1]))
        K = kernel_matrix(self.kernel, X)
        expected[self.places] = np.linalg.solve(K + self.alpha * np.eye(len(K)), Z)
        assert np.flatnonzero(self.system.alive).tolist() == self.places.tolist()
        assert not np.delete(self.system.coefficients, self.places, axis=0).any()
        errors = [error(self.system.coefficients, expected)]
        if isinstance(self.system, IncrementalDualRidge):
            errors.append(error(self.system.Psi, self.X.T.astype(np.float64) @ expected))
        return max(errors)


def held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the work of a thread not begin before it is waited for."""

    class Late(Future[Any]):
        go: threading.Event

        def result(self, timeout: float | None = None) -> Any:
            self.go.set()
            return super().result(timeout)

    def begun(work: Callable[[], Any]) -> Future[Any]:
        late = Late()
        late.go = threading.Event()

        def run() -> None:
            late.go.wait()
            late.set_result(work())

        threading.Thread(target=run, daemon=True).start()
        return late

    for module in (incremental_kernel, incremental):
        monkeypatch.setattr(module, "started", begun)


def done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no threads at all."""

    def begun(work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work())
        return future

    for module in (incremental_kernel, incremental):
        monkeypatch.setattr(module, "started", begun)


class TestAnInverse:
    def test_it_is_that_of_the_matrix_after_every_kind_of_change(self) -> None:
        rng = np.random.default_rng(0)
        A = rng.standard_normal((20, 30))
        G = A @ A.T + np.eye(20)
        inverse, gone = Inverse(G.copy()), np.empty(0, np.int64)
        for step in range(60):
            r = int(rng.integers(1, 4))
            present = np.setdiff1d(np.arange(len(G)), gone)
            if step % 3 == 0:
                V, D = rng.standard_normal((len(G), r)), 50 * np.eye(r)
                V[gone] = 0
                inverse.bordered(V, D)
                G = np.block([[G, V], [V.T, D]])
            elif step % 3 == 1:
                places = rng.choice(present, r, replace=False)
                inverse.removed(places)
                gone = np.concatenate([gone, places])
            else:
                X = rng.standard_normal((r, len(G)))
                X[:, gone] = 0
                inverse.shifted(X, +1, G.__matmul__)
                G = G + X.T @ X
                inverse.shifted(X[:1], -1, G.__matmul__)
                G = G - X[:1].T @ X[:1]
            present = np.setdiff1d(np.arange(len(G)), gone)
            expected = np.zeros_like(G)
            expected[np.ix_(present, present)] = np.linalg.inv(G[np.ix_(present, present)])
            found = inverse.apply(np.eye(len(G)))
            assert error(found, expected) < 1e-12
            assert not found[gone].any()
            assert not found[:, gone].any()

    @pytest.mark.parametrize("G", [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0]], [[np.nan]]], ids=str)
    def test_a_matrix_that_is_not_positive_definite_is_refused(self, G: list[list[float]]) -> None:
        with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
            Inverse(np.array(G))

    @pytest.mark.parametrize("n_columns", [1, 30])
    def test_it_may_have_many_blocks(self, n_columns: int) -> None:
        rng = np.random.default_rng(0)
        A, V = rng.standard_normal((600, 700)), rng.standard_normal((600, n_columns))
        G = A @ A.T
        assert error(Inverse(G.copy()).apply(V), np.linalg.solve(G, V)) < 1e-11
        G[599, 599] = 1e-3
        with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
            Inverse(G)

    @pytest.mark.parametrize("n", [1, 255, 1025, 1300])
    def test_its_triangle_has_the_factor_and_the_norms_of_the_square(self, n: int) -> None:
        A = np.random.default_rng(n).standard_normal((n, n + 10))
        G = A @ A.T
        triangle = Triangle.of(G)
        assert triangle.diagonal().tolist() == G.diagonal().tolist()
        assert triangle.norm() == pytest.approx(np.linalg.norm(G, 1))
        triangle.factorise()
        found, largest = triangle.inverse_norm(), np.linalg.norm(np.linalg.inv(G), 1)
        assert largest / 3 < found < 1.001 * largest  # an estimate from below
        L = np.zeros((n, n))
        for rows, panel in zip(triangle.rows, triangle.panels, strict=True):
            L[rows, : rows.stop] = panel
        assert error(np.tril(L), np.linalg.cholesky(G)) < 1e-11

    def test_features_of_different_scale_are_not_mistaken_for_a_singular_matrix(self) -> None:
        assert Inverse(np.diag([1e-9, 1.0, 1e9])).condition > 0.1

    def test_a_correction_that_would_lose_all_digits_is_refused(self) -> None:
        G = np.diag([1e9, 1.0])
        inverse = Inverse(G.copy())
        with pytest.raises(np.linalg.LinAlgError, match=r"rounding|positive"):
            inverse.shifted(np.array([[np.sqrt(1e9 - 1), 0.0]]), -1, G.__matmul__)
        assert inverse.n_corrections == 0
        with pytest.raises(np.linalg.LinAlgError, match="rounding"):
            inverse.shifted(np.array([[0.0, 1e6]]), +1, G.__matmul__)
        assert inverse.apply(np.array([[1e9], [1.0]])).ravel().tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("kind", KINDS, ids=["dense", "sparse"])
class TestLinearRows:
    @pytest.mark.parametrize("alpha", [0.0, 1e-3, 1.0])
    @pytest.mark.parametrize("shape", [(60, 12), (15, 40), (1, 1), (3, 6)], ids=str)
    def test_random_changes_end_in_the_solution_of_the_remaining_rows(
        self, kind: Callable[[Any], Any], alpha: float, shape: tuple[int, int]
    ) -> None:
        world = LinearWorld(*rows_of(*shape), alpha, kind)
        for part in range(8):
            world.change_at_random(10, seed=part)
            assert world.error < 1e-10

    def test_one_row_at_a_time_is_a_batch(self, kind: Callable[[Any], Any]) -> None:
        X, Z = rows_of(80, 40)
        batch, single = LinearWorld(X, Z, 0.1, kind), LinearWorld(X, Z, 0.1, kind)
        more, targets = rows_of(5, 40, seed=3)
        batch.change(more, targets, [4, 9])
        for row in range(5):
            single.change(more[row : row + 1], targets[row : row + 1], [[4], [8], [], [], []][row])
        assert error(single.system.Psi, batch.system.Psi) < 1e-12
        assert batch.system.n_refactorised == single.system.n_refactorised == 0
        large, targets = rows_of(30, 40, seed=4)
        batch.change(large, targets)
        for row in range(30):
            single.change(large[row : row + 1], targets[row : row + 1])
        assert batch.system.n_refactorised == 1
        assert error(single.system.Psi, batch.system.Psi) < 1e-12


class TestIncrementalRidge:
    def test_the_caller_may_write_to_rows_after_they_were_learnt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        held_back(monkeypatch)
        world = LinearWorld(*rows_of(60, 30), 0.1)
        world.system.max_corrections = 8
        x, z = np.empty((1, 30)), np.empty((1, 5))
        for row in range(30):
            x[:], z[:] = rows_of(1, 30, seed=row)
            world.change(x, z, [0])
        assert world.system.n_refactorised > 3
        assert world.error < 1e-10

    def test_the_same_row_may_be_learnt_many_times(self) -> None:
        world = LinearWorld(*rows_of(20), 0.1)
        for _ in range(10):
            world.change(world.X[:2], world.Z[2:4], [])
        assert world.error < 1e-10
        for _ in range(8):
            world.change(world.X[:0], world.Z[:0], [len(world.X) - 1])
        assert world.error < 1e-10

    @pytest.mark.parametrize("size", [1e0, 1e2, 1e4])
    def test_the_only_row_with_a_direction_can_be_forgotten(self, size: float) -> None:
        X, Z = rows_of(40, 30)
        X[:, 0] = 0
        X[5, 0] = size
        world = LinearWorld(X, Z, 1e-2)
        world.change(X[:0], Z[:0], [3])
        world.change(X[:0], Z[:0], [4])
        assert not world.X[:, 0].any()
        assert world.system.n_refactorised == int(size > 1)
        assert world.error < 1e-10

    def test_after_all_rows_were_forgotten_nothing_is_left_and_all_can_be_learnt_again(self) -> None:
        X, Z = rows_of(20)
        world = LinearWorld(X, Z, 0.5)
        for _ in range(20):
            world.change(X[:0], Z[:0], [0])
        sums = world.system.sums
        assert sums.n_rows == 0
        assert not sums.gram.any()
        assert not sums.moment.any()
        assert not world.system.Psi.any()
        for row in range(20):
            world.change(X[row : row + 1], Z[row : row + 1])
        assert world.error < 1e-12
        assert world.system.drift() < 1e-13

    def test_more_cannot_be_forgotten_than_was_learnt(self) -> None:
        X, Z = rows_of(3)
        system = IncrementalRidge.of(X[:1], Z[:1], 1.0)
        with pytest.raises(DataError, match=r"2 more rows were forgotten than learnt"):
            system.change(None, (X, Z))

    def test_an_empty_change_changes_nothing(self) -> None:
        system = IncrementalRidge.of(*rows_of(10), 1.0)
        before = system.Psi.copy()
        system.change(None, None)
        system.change((np.zeros((0, 12)), np.zeros((0, 5))), None)
        np.testing.assert_array_equal(system.Psi, before)

    @pytest.mark.parametrize("alpha", [-1.0, np.nan, np.inf, "auto"])
    def test_alpha_is_checked(self, alpha: Any) -> None:
        with pytest.raises(ParameterError, match=r"`alpha` must be a finite number ≥ 0; got"):
            IncrementalRidge.of(*rows_of(3), alpha)

    def test_the_sums_are_those_of_the_rows_left(self) -> None:
        world = LinearWorld(*rows_of(30), 1.0)
        world.change_at_random(40)
        expected = Sums.of(world.X, world.Z)
        assert world.system.sums.n_rows == expected.n_rows
        np.testing.assert_allclose(world.system.sums.gram, expected.gram, atol=1e-11)
        np.testing.assert_allclose(world.system.sums.moment, expected.moment, atol=1e-11)

    @pytest.mark.parametrize("alpha", [0.0, 0.1])
    def test_a_feature_that_no_row_has_any_more_leaves_nothing(self, alpha: float) -> None:
        X, Z = rows_of(60)
        X[:, 3] = 0
        world = LinearWorld(X, Z, alpha)
        more, targets = rows_of(20, seed=6)
        for row in range(20):
            world.change(more[[row]] + 1 / 3, targets[[row]])
        for _ in range(20):
            world.change(X[:0], Z[:0], [60])
        assert not world.system.sums.gram[3].any()
        assert not world.system.sums.gram[:, 3].any()
        assert not world.system.sums.moment[3].any()
        assert world.error < 1e-10

    def test_reading_the_solution_in_between_changes_nothing(self) -> None:
        unread, read = (LinearWorld(*rows_of(30), 1.0) for _ in range(2))
        for row in range(10):
            for world in (unread, read):
                world.change(*rows_of(1, seed=row), [row])
            assert read.system.Psi.any()
        np.testing.assert_array_equal(unread.system.Psi, read.system.Psi)

    def test_drift_is_small_and_sees_a_wrong_solution(self) -> None:
        world = LinearWorld(*rows_of(50), 0.1)
        world.change_at_random(50)
        assert world.system.drift() < 1e-12
        world.system.Psi[0, 0] += 1e-3
        assert world.system.drift() > 1e-6

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("kind", KINDS, ids=["dense", "sparse"])
    def test_drift_sees_that_another_row_was_subtracted_than_the_one_that_was_added(
        self, kind: Callable[[Any], Any], dtype: type
    ) -> None:
        X, Z = rows_of(5000)
        X[7] *= 20  # as much as 400 others
        X = X.astype(dtype)
        system = IncrementalRidge.of(kind(X), Z, 0.1)
        system.change((kind(X[:50]), Z[:50]), (kind(X[100:150]), Z[100:150]))
        assert system.drift() < 1e-9
        x = X[200:201].astype(float)
        system.sums.gram[:] += x.T @ x - 1.21 * x.T @ x  # such as a vector that was inferred once more
        system._invalidate()
        assert 1e-7 < system.drift() < 1e-2

    @pytest.mark.parametrize("most", [1, 64])
    def test_drift_shows_the_rounding_that_a_huge_row_left(self, most: int) -> None:
        X, Z = rows_of(50)
        world = LinearWorld(X, Z, 0.1)
        world.system.max_corrections = most
        world.change(1e6 * rows_of(1, seed=5)[0], Z[:1])
        world.change(X[:0], Z[:0], [50])
        world.system.settle()
        assert world.error > 1e-9
        assert world.system.drift() > world.error / 100

    @pytest.mark.parametrize(  # every pair of values of two parameters
        ("source", "at_once", "alpha", "small", "huge"),
        [
            ("rows", True, 0.0, 1e-7, 1e2),
            ("sums", False, 1e-9, 1e-5, 1e2),
            ("rows", False, 1e-3, 1e-3, 1e2),
            ("sums", True, 1e-3, 1e-7, 1e4),
            ("rows", False, 0.0, 1e-5, 1e4),
            ("rows", True, 1e-9, 1e-3, 1e4),
            ("rows", False, 1e-9, 1e-7, 1e6),
            ("sums", True, 0.0, 1e-3, 1e6),
            ("rows", True, 1e-3, 1e-5, 1e6),
        ],
    )
    def test_drift_shows_the_rounding_of_a_feature_whose_large_rows_are_gone(
        self, source: str, at_once: bool, alpha: float, small: float, huge: float
    ) -> None:
        X, Z = rows_of(60)
        X[:, 0] *= small
        X[50:, 0] = huge
        system = IncrementalRidge.of(X, Z, alpha) if source == "rows" else IncrementalRidge(Sums.of(X, Z), alpha)
        for rows in [slice(50, 60)] if at_once else [slice(row, row + 1) for row in range(50, 60)]:
            system.change(None, (X[rows], Z[rows]))
        stacked = np.vstack([X[:50], np.sqrt(alpha) * np.eye(12)])
        expected = np.linalg.lstsq(stacked, np.vstack([Z[:50], np.zeros((12, 5))]), rcond=None)[0]
        assert system.drift() > error(system.Psi, expected) / 10

    def test_a_feature_that_rows_have_is_never_cleared(self) -> None:
        X, Z = rows_of(60)
        X[:, 0] = 1e4
        world = LinearWorld(X[:10], Z[:10], 1.0)
        X[10:, 0] = 1e-9
        world.change(X[10:], Z[10:])
        world.change(X[:0], Z[:0], range(10))
        assert world.system.sums.gram[0].any()
        lost = world.system.drift()
        assert lost > 1e-9
        world.change(X[:0], Z[:0], range(3))
        assert world.system.sums.gram[0].any()
        assert world.system.drift() >= lost
        world.change(X[:0], Z[:0], range(47))
        assert world.system.sums.n_rows == 0
        world.change(*rows_of(60))
        assert world.system.drift() < 1e-14
        assert world.error < 1e-12

    @pytest.mark.parametrize("kind", KINDS, ids=["dense", "sparse"])
    @pytest.mark.parametrize("source", ["rows", "sums"])
    def test_drift_leaves_out_a_feature_only_if_no_row_is_known_to_have_it(
        self, source: str, kind: Callable[[Any], Any]
    ) -> None:
        X, Z = rows_of(60)
        X[1:, 3] = 0
        X[0, 3] = 1e4
        system = IncrementalRidge.of(kind(X), Z, 1e-6) if source == "rows" else IncrementalRidge(Sums.of(X, Z), 1e-6)
        system.change(None, (kind(X[:1]), Z[:1]))
        assert not system.sums.gram[3].any()
        assert not system.sums.moment[3].any()
        assert system.drift() < 1e-13 if source == "rows" else system.drift() > 1e-3
        X[1:10, 3] = 1e-6
        system.change((kind(X[1:10]), Z[1:10]), None)
        assert system.sums.gram[3, 3] == pytest.approx(9e-12)

    @pytest.mark.parametrize("n_forgotten", [1, 30])
    @pytest.mark.parametrize("source", ["rows", "sums"])
    def test_forgetting_a_row_that_was_never_learnt_is_refused_where_the_sums_show_it(
        self, source: str, n_forgotten: int
    ) -> None:
        X, Z = rows_of(60)
        system = IncrementalRidge.of(X, Z, 0.1) if source == "rows" else IncrementalRidge(Sums.of(X, Z), 0.1)
        other, targets = rows_of(1, seed=5)
        sentence = "sums over rows are impossible: .* never learnt; fit again"
        if source == "rows":
            sentence = "a row to be forgotten or relabelled was never learnt: no row has its features"
        with pytest.raises(DataError, match=sentence):
            system.change(None, (np.repeat(20 * other, n_forgotten, axis=0), np.repeat(targets, n_forgotten, axis=0)))

    @pytest.mark.parametrize("n_changed", [1, 20])
    @pytest.mark.parametrize("kind", KINDS, ids=["dense", "sparse"])
    def test_a_row_with_other_features_is_refused_however_possible_the_sums_stay(
        self, kind: Callable[[Any], Any], n_changed: int
    ) -> None:
        X, Z = rows_of(200)
        system = IncrementalRidge.of(kind(X), Z, 0.1)
        system.change((kind(X[:5] / 2), Z[:5]), (kind(X[:5]), Z[:5]))
        expected, drift = system.Psi.copy(), system.drift()
        near = X[50 : 50 + n_changed] + 1e-2
        for change in (
            RowChange(None, (kind(near), Z[:n_changed], np.arange(n_changed)), None),
            RowChange(None, (kind(X[:1]), Z[:1], np.arange(1)), None),  # forgotten already
            RowChange((kind(X), Z), None, (kind(near), Z[:n_changed], 2 * Z[:n_changed], np.arange(n_changed))),
        ):
            with pytest.raises(DataError, match="was never learnt: no row has its features"):
                system.apply(change)
        assert np.array_equal(system.Psi, expected)
        assert system.drift() == drift
        rounded = (X[50 : 50 + n_changed].astype(np.float32) * np.float32(1 + 1e-6)).astype(float)
        system.change(None, (kind(rounded), Z[50 : 50 + n_changed]))
        system.change(None, (kind(X[:5] / 2), Z[:5]))
        assert system.sums.n_rows == 195 - n_changed

    @pytest.mark.parametrize("source", ["rows", "sums"])
    @pytest.mark.parametrize("size", [1e0, 1e4, 1e8])
    def test_rounding_is_not_mistaken_for_a_row_that_was_never_learnt(self, source: str, size: float) -> None:
        X, Z = rows_of(20, 40)  # singular
        X[:10] *= size
        system = IncrementalRidge.of(X, Z, 1e-12) if source == "rows" else IncrementalRidge(Sums.of(X, Z), 1e-12)
        for row in range(10):
            system.change(None, (X[[row]], Z[[row]]))
        assert system.sums.n_rows == 10
        assert np.isfinite(system.Psi).all()


@pytest.mark.parametrize("kind", KINDS, ids=["dense", "sparse"])
class TestKernelRows:
    @pytest.mark.parametrize("kernel", KERNELS, ids=str)
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_random_changes_end_in_the_solution_of_the_remaining_rows(
        self, kind: Callable[[Any], Any], kernel: Kernel, dtype: Any
    ) -> None:
        world = KernelWorld(30, kernel, kind, dtype=dtype)
        for part in range(8):
            world.change_at_random(10, seed=part)
            assert world.error < 1e-10
        assert world.system.drift() < 1e-12

    @pytest.mark.parametrize("d", [12, 90])
    def test_psi_follows(self, kind: Callable[[Any], Any], d: int) -> None:
        world = KernelWorld(40, kind=kind, d=d)
        for part in range(8):
            world.change_at_random(10, seed=part)
            assert world.error < 1e-10

    def test_a_batch_is_one_row_at_a_time_and_a_large_one_is_solved_again(self, kind: Callable[[Any], Any]) -> None:
        batch, single = (KernelWorld(40, RBF(0.5), kind=kind) for _ in range(2))
        X, Z = rows_of(90, seed=4)
        for rows in (slice(0, 9), slice(9, 90)):
            batch.learn(X[rows], Z[rows])
            for row in range(rows.start, rows.stop):
                single.learn(X[row : row + 1], Z[row : row + 1])
            assert batch.system.n_refactorised == int(rows.stop == 90)
            assert error(single.system.coefficients, batch.system.coefficients) < 1e-12
        assert batch.error < 1e-12


class TestIncrementalKernelRidge:
    def test_equal_rows_come_and_go(self) -> None:
        world = KernelWorld(20, RBF(0.5), alpha=1e-3)
        for _ in range(6):
            world.learn(world.X[:3], world.Z[3:6])
        assert world.error < 1e-10
        for place in range(20, 36):
            world.forget([place])
        assert world.error < 1e-10

    @pytest.mark.parametrize("kernel", [None, RBF(0.5)])
    def test_after_all_rows_were_forgotten_nothing_is_left_and_all_can_be_learnt_again(
        self, kernel: Kernel | None
    ) -> None:
        world = KernelWorld(15, kernel)
        X, Z = world.X, world.Z
        for place in range(15):
            world.forget([place])
        assert not world.system.coefficients.any()
        assert world.system.drift() == 0
        if isinstance(world.system, IncrementalDualRidge):
            assert not world.system.Psi.any()
        for row in range(15):
            world.learn(X[row : row + 1], Z[row : row + 1])
        assert world.error < 1e-12
        world.compact()
        world.learn(X[:2], Z[:2])
        assert world.error < 1e-12

    def test_the_callers_arrays_are_not_written_to(self) -> None:
        X, Z = rows_of(10)
        given = X.copy(), Z.copy()
        system = IncrementalKernelRidge(Linear(), X, Z, 1.0)
        system.retarget([3], np.ones((1, 5)))
        system.forget([2])
        np.testing.assert_array_equal(X, given[0])
        np.testing.assert_array_equal(Z, given[1])

    @pytest.mark.parametrize("places", [[2], [3, 3], [-1], [10]], ids=str)
    def test_only_present_rows_can_be_forgotten_or_retargeted(self, places: list[int]) -> None:
        system = IncrementalKernelRidge(Linear(), *rows_of(10), 1.0)
        system.forget([2])
        with pytest.raises(DataError, match="one without a row, or one twice; name each row once"):
            system.forget(places)
        with pytest.raises(DataError, match="one without a row, or one twice; name each row once"):
            system.retarget(places, np.zeros((len(places), 5)))

    @pytest.mark.parametrize("alpha", [0.0, -1.0, np.nan, "auto"])
    def test_alpha_is_checked(self, alpha: Any) -> None:
        with pytest.raises(ParameterError, match=r"`ridge` must be above 0 for rows of a kernel .* forgotten; got"):
            IncrementalKernelRidge(Linear(), *rows_of(3), alpha)

    def test_the_error_for_a_ridge_of_zero_shows_it_as_it_was_given(self) -> None:
        with pytest.raises(ParameterError, match=r"to be learnt or forgotten; got 0\.$"):
            IncrementalKernelRidge(Linear(), *rows_of(3), 0.0)

    def test_a_matrix_that_cannot_be_solved_is_refused(self) -> None:
        X, Z = rows_of(30, 3)
        with pytest.raises(DataError, match="not positive definite at ridge = 1e-20; use a larger one"):
            _ = IncrementalKernelRidge(Linear(), X, Z, 1e-20).coefficients

    def test_a_matrix_that_does_not_fit_into_memory_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resources, "available_memory", lambda: 1000)
        with pytest.raises(MemoryLimitError, match=r"matrix of n = 30 rows would need .*use kernel='linear'"):
            _ = IncrementalKernelRidge(Linear(), *rows_of(30), 1.0).coefficients

    def test_without_memory_for_a_second_factor_the_first_is_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = KernelWorld(30, RBF(0.5))
        world.system.max_corrections = 4
        monkeypatch.setattr(incremental_kernel, "available_memory", lambda: 1000)
        monkeypatch.setattr(incremental_kernel, "started", None)  # no thread is begun
        world.change_at_random(40)
        assert world.system.n_refactorised > 3
        assert world.error < 1e-10

    def test_drift_sees_a_wrong_solution(self) -> None:
        world = KernelWorld(50, RBF(0.5))
        world.change_at_random(20)
        assert world.system.drift() < 1e-13
        world.system.coefficients[world.places[0], 0] += 1e-3
        assert world.system.drift() > 1e-6

    @pytest.mark.parametrize("kind", KINDS, ids=["dense", "sparse"])
    def test_drift_is_measured_on_some_rows_and_sees_errors_of_others(
        self, kind: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = KernelWorld(600, RBF(0.05), kind=kind)
        world.forget(np.arange(0, 50))
        looked_at: list[int] = []
        values = incremental_kernel.Compared.values

        def counted(self: incremental_kernel.Compared, some: Any, n: int) -> Doubles:
            looked_at.extend(some.tolist())
            return values(self, some, n)

        monkeypatch.setattr(incremental_kernel.Compared, "values", counted)
        assert world.system.drift() < 1e-13
        assert len(set(looked_at)) == len(looked_at) == 256
        assert (min(looked_at), max(looked_at)) == (50, 599)
        other = np.setdiff1d(world.places, looked_at)[100]
        world.system.coefficients[other, 0] += 1e-3
        assert world.system.drift() > 1e-6


WORLDS: dict[str, Callable[[], LinearWorld | KernelWorld]] = {
    "linear": lambda: LinearWorld(*rows_of(60, 30), 0.1),
    "rbf": lambda: KernelWorld(40, RBF(0.5)),
    "dual": lambda: KernelWorld(40, d=60),
}


def solution(world: LinearWorld | KernelWorld) -> list[Doubles]:
    """Copies of all arrays of the solution."""
    system = world.system
    if isinstance(system, IncrementalRidge):
        return [system.Psi.copy()]
    found = [system.coefficients.copy()]
    return [*found, system.Psi.copy()] if isinstance(system, IncrementalDualRidge) else found


def after_random_changes(
    make: Callable[[], LinearWorld | KernelWorld], most: int | None
) -> tuple[LinearWorld | KernelWorld, list[list[Doubles]]]:
    world = make()
    world.system.max_corrections = most
    found = []
    for part in range(20):
        world.change_at_random(5, seed=part, most=2)
        found.append(solution(world))
    return world, found


@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)
class TestFactorisingAgain:
    @pytest.mark.parametrize("most", [2, 9, 25])
    def test_it_changes_nothing_but_rounding(self, make: Callable[[], LinearWorld | KernelWorld], most: int) -> None:
        _, expected = after_random_changes(make, 10**6)
        world, found = after_random_changes(make, most)
        assert world.system.n_refactorised > 2
        assert world.error < 1e-12
        for those, these in zip(expected, found, strict=True):
            assert max(map(error, these, those)) < 1e-10

    @pytest.mark.parametrize("schedule", [held_back, done_at_once])
    @pytest.mark.parametrize("most", [9, 25])
    def test_results_do_not_depend_on_when_the_thread_is_done(
        self,
        make: Callable[[], LinearWorld | KernelWorld],
        schedule: Callable[[pytest.MonkeyPatch], None],
        most: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        world, expected = after_random_changes(make, most)
        schedule(monkeypatch)
        other, found = after_random_changes(make, most)
        assert other.system.n_refactorised == world.system.n_refactorised > 2
        for those, these in zip(expected, found, strict=True):
            for that, this in zip(those, these, strict=True):
                np.testing.assert_array_equal(this, that)

    def test_settling_takes_over_a_factorisation_under_way(
        self, make: Callable[[], LinearWorld | KernelWorld], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held_back(monkeypatch)
        world = make()
        world.system.max_corrections = 8
        X, Z = rows_of(9, world.X.shape[1], seed=8)
        for row in range(9):
            world.change(X[[row]], Z[[row]]) if isinstance(world, LinearWorld) else world.learn(X[[row]], Z[[row]])
        assert world.system.n_refactorised == 0
        world.system.settle()
        assert world.system.n_refactorised == 1
        world.system.settle()
        assert world.system.n_refactorised == 1
        assert world.error < 1e-12

    def test_an_error_on_the_thread_is_raised_when_its_result_is_needed_and_learning_goes_on(
        self, make: Callable[[], LinearWorld | KernelWorld], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin = started

        def fail() -> None:
            raise MemoryError("on the thread")

        for module in (incremental_kernel, incremental):
            monkeypatch.setattr(module, "started", lambda work: begin(fail))
        world = make()
        world.system.max_corrections = 2
        X, Z = rows_of(3, world.X.shape[1], seed=8)
        with pytest.raises(MemoryError, match="on the thread"):
            world.change(X[:2], Z[:2]) if isinstance(world, LinearWorld) else world.system.learn(X[:2], Z[:2])
        for module in (incremental_kernel, incremental):
            monkeypatch.setattr(module, "started", begin)
        if isinstance(world, LinearWorld):
            world.X, world.Z = np.concatenate([world.X, X[:2]]), np.concatenate([world.Z, Z[:2]])
            world.change(X[2:], Z[2:])
        else:
            world.X, world.Z = np.concatenate([world.X, X[:2]]), np.concatenate([world.Z, Z[:2]])
            world.places = np.arange(len(world.X))
            world.learn(X[2:], Z[2:])
        assert world.error < 1e-12
