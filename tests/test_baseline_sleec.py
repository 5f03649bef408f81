from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import worlds
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripml.base.errors import ParameterError
from ripml.baselines.base import with_constant
from ripml.baselines.sleec import (
    SLEEC,
    label_graph,
    left_out_neighbors,
    project_singular_values,
    sparse_regression,
)
from ripml.metrics import precision_at_k
from ripml.model.features import unit_rows

SOME: dict[str, Any] = {"n_dims": 8, "n_neighbors": 3, "n_graph_neighbors": 10, "ridge": 0.1}


def unit_labels(n: int = 80, n_labels: int = 20, seed: int = 0) -> Any:
    return unit_rows(worlds.zipf_labels(n, n_labels, seed=seed).astype(np.float64))


# ------------------------------------------------------------------------------------------------------- the graph


def test_the_graph_has_the_inner_products_of_the_nearest_rows_both_ways() -> None:
    U = unit_labels()
    inner = (U @ U.T).toarray()
    graph = label_graph(U, 7, seed=0)
    there = np.zeros(inner.shape, bool)
    there[np.repeat(np.arange(80), np.diff(graph.indptr)), graph.indices] = True
    assert (there == there.T).all()
    assert (there.sum(axis=1) >= 7).all()
    assert there.sum() <= 2 * 7 * 80
    np.testing.assert_allclose(graph.toarray()[there], inner[there], atol=1e-12)
    for row in range(80):  # at least seven entries that no entry left out exceeds
        assert (np.sort(inner[row, there[row]])[-7:] >= np.sort(inner[row])[-7:] - 1e-6).all()


def test_zeros_between_rows_without_a_common_label_are_entries() -> None:
    U = scipy.sparse.csr_array(np.eye(6))
    graph = label_graph(U, 6, seed=0)
    assert graph.nnz == 36
    np.testing.assert_array_equal(graph.toarray(), np.eye(6))


def test_more_neighbours_than_rows_are_all_rows() -> None:
    U = unit_labels(10)
    np.testing.assert_allclose(label_graph(U, 99, seed=0).toarray(), (U @ U.T).toarray(), atol=1e-12)


def test_ties_between_equal_rows_are_spread_over_them() -> None:
    U = scipy.sparse.csr_array(np.ones((400, 1)))
    chosen = np.diff(label_graph(U, 5, seed=0).indptr)
    assert chosen.max() < 40  # broken by row number, five rows would be the neighbours of all 400


def test_the_graph_does_not_depend_on_threads() -> None:
    U = unit_labels(300)
    one, two = (label_graph(U, 9, seed=3, n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.toarray(), two.toarray())


# ----------------------------------------------------------------------------------- singular value projection


@pytest.mark.parametrize("n_neighbors", [3, 10, 80])
@pytest.mark.parametrize("n_dims", [1, 5, 30])
def test_the_objective_never_rises(n_neighbors: int, n_dims: int) -> None:
    graph = label_graph(unit_labels(), n_neighbors, seed=0)
    Z, objective = project_singular_values(graph, n_dims, seed=0, max_steps=60, tol=0)
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    assert objective[-1] < objective[0]
    there = scipy.sparse.csr_array((np.ones(graph.nnz), graph.indices, graph.indptr), shape=graph.shape).toarray()
    assert objective[-1] == pytest.approx(np.sum((there * (graph.toarray() - Z @ Z.T)) ** 2))


def test_all_pairs_and_enough_dimensions_give_the_inner_products_themselves() -> None:
    U = unit_labels(60, 12)
    graph = label_graph(U, 60, seed=0)
    Z, _ = project_singular_values(graph, 12, seed=0, tol=0)
    np.testing.assert_allclose(Z @ Z.T, (U @ U.T).toarray(), atol=1e-8)


def test_all_pairs_and_few_dimensions_give_the_leading_eigenvectors() -> None:
    U = unit_labels(60, 12)
    graph = label_graph(U, 60, seed=0)
    Z, objective = project_singular_values(graph, 4, seed=0, max_steps=60, tol=0)
    values = np.linalg.eigvalsh((U @ U.T).toarray())
    assert objective[-1] == pytest.approx(np.sum(values[:-4] ** 2), rel=1e-6)
    assert Z.shape == (60, 4)


def test_what_is_left_out_of_the_graph_is_completed() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((60, 2))
    there = np.triu(rng.random((60, 60)) < 0.5)
    row, column = np.nonzero(there | there.T)
    graph = scipy.sparse.csr_array(((truth @ truth.T)[row, column], (row, column)), shape=(60, 60))
    Z, _ = project_singular_values(graph, 2, seed=0, max_steps=500, tol=1e-9)
    np.testing.assert_allclose(Z @ Z.T, truth @ truth.T, atol=1e-3)


def test_fewer_rows_than_dimensions_give_fewer_dimensions() -> None:
    graph = label_graph(unit_labels(5), 5, seed=0)
    assert project_singular_values(graph, 100, seed=0)[0].shape == (5, 5)


# ------------------------------------------------------------------------------------------------ regression


@pytest.mark.parametrize(("n", "d"), [(30, 8), (8, 30)])
def test_without_l1_the_sparse_regression_is_ridge_regression(n: int, d: int) -> None:
    X, Z = worlds.regression(n, d)
    expected = np.linalg.solve(X.T @ X + 0.7 * np.eye(d), X.T @ Z)
    np.testing.assert_allclose(sparse_regression(X, Z, 0.7, 0.0, tol=1e-8), expected, atol=1e-5)
    np.testing.assert_allclose(sparse_regression(scipy.sparse.csr_array(X), Z, 0.7, 0.0, tol=1e-8), expected, atol=1e-5)


@pytest.mark.parametrize(("n", "d"), [(12, 4), (5, 9)])
@pytest.mark.parametrize("l1", [0.3, 2.0])
def test_with_l1_it_agrees_with_a_slow_generic_solver(n: int, d: int, l1: float) -> None:
    X, Z = worlds.regression(n, d, n_targets=1)
    ridge = 0.5

    def objective(psi: NDArray[np.float64]) -> float:
        fitted = X @ psi
        return float(np.sum((Z[:, 0] - fitted) ** 2) / 2 + ridge * psi @ psi / 2 + l1 * np.abs(fitted).sum())

    def smooth(both: NDArray[np.float64]) -> float:  # ‖Xψ‖₁ as the sum of bounds t ≥ |Xψ|
        fitted = X @ both[:d]
        return float(np.sum((Z[:, 0] - fitted) ** 2) / 2 + ridge * both[:d] @ both[:d] / 2 + l1 * both[d:].sum())

    above = [
        {"type": "ineq", "fun": lambda both: both[d:] - X @ both[:d]},
        {"type": "ineq", "fun": lambda both: both[d:] + X @ both[:d]},
    ]
    start = np.concatenate([np.zeros(d), np.ones(n)])
    slow = scipy.optimize.minimize(smooth, start, constraints=above, method="SLSQP", options={"maxiter": 1000})
    Psi = sparse_regression(X, Z, ridge, l1, tol=1e-8)[:, 0]
    assert objective(Psi) == pytest.approx(objective(slow.x[:d]), rel=1e-5)
    np.testing.assert_allclose(Psi, slow.x[:d], atol=1e-2)


@pytest.mark.parametrize("sparse", [False, True])
def test_with_l1_no_small_move_lowers_the_objective(sparse: bool) -> None:
    X, Z = worlds.regression(40, 6)
    ridge, l1 = 1.0, 0.8
    Psi = sparse_regression(scipy.sparse.csr_array(X) if sparse else X, Z, ridge, l1)

    def objective(psi: NDArray[np.float64]) -> float:
        return float(np.sum((Z - X @ psi) ** 2) / 2 + ridge * np.sum(psi**2) / 2 + l1 * np.abs(X @ psi).sum())

    rng = np.random.default_rng(1)
    best = objective(Psi)
    for _ in range(200):
        move = rng.standard_normal(Psi.shape)
        for length in (1e-1, 1e-2, 1e-3):
            assert objective(Psi + length * move / np.linalg.norm(move)) >= best - 1e-6 * best


def test_a_regression_that_stops_early_says_so() -> None:
    X, Z = worlds.regression(40, 6)
    with pytest.warns(ConvergenceWarning, match="ADMM stopped after 2000 steps .*; raise `ridge` or lower `l1`"):
        sparse_regression(X, Z, 1.0, 0.5, tol=0)


def test_a_large_l1_makes_all_predictions_zero() -> None:
    X, Z = worlds.regression(40, 6)
    np.testing.assert_allclose(X @ sparse_regression(X, Z, 1.0, 1e3, tol=1e-8), 0, atol=1e-5)


@pytest.mark.parametrize(("n", "d", "k"), [(30, 8, 5), (12, 20, 5), (6, 4, 9)])
def test_unseen_neighbours_are_those_of_a_regression_without_the_row(n: int, d: int, k: int) -> None:
    X, Z = worlds.regression(n, d)
    Psi = np.linalg.solve(X.T @ X + 2 * np.eye(d), X.T @ Z)
    found = left_out_neighbors(X, Z, 2.0, np.arange(n), k)
    for row in range(n):
        others = np.delete(np.arange(n), row)
        without = np.linalg.solve(X[others].T @ X[others] + 2 * np.eye(d), X[others].T @ Z[others])
        distance = ((X[others] @ Psi - X[row] @ without) ** 2).sum(axis=1)
        expected = others[np.argsort(distance)][:k]
        assert found[row].tolist() == [*expected.tolist(), *[-1] * (k - len(expected))]


def test_nobody_asked_is_nobody_answered() -> None:
    X, Z = worlds.regression(5, 3)
    assert left_out_neighbors(X, Z, 1.0, np.array([], np.int64), 4).shape == (0, 4)


# ------------------------------------------------------------------------------------------------ the estimator


def test_scores_are_the_mean_labels_of_the_nearest_rows_by_brute_force() -> None:
    world = worlds.zipf()
    model = SLEEC(**SOME, n_clusters=3, n_learners=2, random_state=0).fit(world.X, world.Y)
    learnt = model.learnt_
    X, X_new, Y = unit_rows(world.X), unit_rows(world.X_new), world.Y.toarray()
    expected = np.zeros((len(X_new), Y.shape[1]))
    for learner in range(2):
        centres, Psi = learnt[f"centres_{learner}"], learnt[f"Psi_{learner}"].astype(np.float64)
        home = ((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        for i, x in enumerate(X_new):
            c = ((x - centres) ** 2).sum(axis=1).argmin()
            members = np.flatnonzero(home == c)
            distance = ((with_constant(X[members]) @ Psi[c] - with_constant(x[None]) @ Psi[c]) ** 2).sum(axis=1)
            expected[i] += Y[members[np.argsort(distance, kind="stable")[:3]]].mean(axis=0) / 2
    # A ten-thousandth of a score is given by nearness.
    np.testing.assert_allclose(model.decision_function(world.X_new).toarray(), expected, atol=2e-4)


def test_the_regression_is_ridge_regression_to_the_projected_embeddings() -> None:
    world = worlds.zipf()
    model = SLEEC(n_dims=40, n_neighbors=3, ridge=0.7, random_state=0).fit(world.X, world.Y)
    X = with_constant(unit_rows(world.X))
    U = unit_rows(world.Y.astype(np.float64)).toarray()
    # 250 neighbours are all 150 rows, and there are 40 labels: ZZᵀ = UUᵀ, so that Z is U but for a rotation.
    Psi = model.learnt_["Psi_0"][0].astype(np.float64)
    expected = np.linalg.solve(X.T @ X + 0.7 * np.eye(X.shape[1]), X.T @ U)
    np.testing.assert_allclose(Psi @ Psi.T, expected @ expected.T, atol=1e-3 * np.abs(expected @ expected.T).max())


@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_planted_labels_are_found(l1: float) -> None:
    world = worlds.planted()
    model = SLEEC(l1=l1, random_state=0).fit(world.X, world.Y)
    assert precision_at_k(world.Y_new, model.decision_function(world.X_new), k=1) > 0.99


def test_every_cluster_answers_with_its_own_label() -> None:
    world = worlds.separable_clusters()
    model = SLEEC(n_clusters=3, n_neighbors=5, random_state=0).fit(world.X, world.Y)
    assert len(model.learnt_["centres_0"]) == 3
    np.testing.assert_allclose(model.decision_function(world.X_new).toarray(), world.Y_new.toarray(), atol=1e-9)


def test_a_cluster_smaller_than_the_neighbours_asked_for_votes_with_all_its_rows() -> None:
    world = worlds.separable_clusters(rows=5)
    model = SLEEC(n_clusters=3, n_neighbors=50, n_dims=30, random_state=0).fit(world.X, world.Y)
    np.testing.assert_allclose(model.decision_function(world.X_new).toarray(), world.Y_new.toarray(), atol=1e-9)


def test_one_row_a_cluster_is_enough() -> None:
    model = SLEEC(n_clusters=4, random_state=0).fit(np.eye(4), [["a"], ["b"], ["c"], ["d"]])
    assert [best[0][0] for best in model.recommend(np.eye(4), n=1)] == ["a", "b", "c", "d"]


def test_the_number_of_neighbours_is_chosen_on_rows_asked_as_if_unseen() -> None:
    # Features say which block a row is from, and nothing about which of its two labels it carries: many must vote.
    rng = np.random.default_rng(0)
    block = rng.integers(2, size=300)
    often = rng.random(300) < 0.65
    X = np.eye(2)[block] + 0.3 * rng.random((300, 2))
    noisy = SLEEC(random_state=0).fit(X, [[f"{b}{o}"] for b, o in zip(block, often, strict=True)])
    # Ten pairs of rows that are alike and like no others: a third voter is wrong.
    pairs = np.repeat(np.eye(60), 2, axis=0)
    exact = SLEEC(random_state=0).fit(np.repeat(pairs, 3, axis=0), [[f"{i // 6}"] for i in range(360)])
    assert int(noisy.learnt_["k"]) >= 16
    assert int(exact.learnt_["k"]) <= 6


def test_learners_differ_and_are_averaged() -> None:
    world = worlds.zipf()
    model = SLEEC(**SOME, n_clusters=2, n_learners=3, random_state=0).fit(world.X, world.Y)
    assert not np.array_equal(model.learnt_["Psi_0"], model.learnt_["Psi_1"])
    assert model.decision_function(world.X_new).max() <= 1


def test_clusters_are_one_for_every_6000_rows() -> None:
    world = worlds.zipf()
    model = SLEEC(random_state=0).fit(world.X, world.Y)
    assert len(model.learnt_["centres_0"]) == 1


@pytest.mark.parametrize("name", ["n_dims", "n_graph_neighbors", "n_learners"])
def test_a_count_below_one_is_refused(name: str) -> None:
    settings: dict[str, Any] = {name: 0}
    with pytest.raises(ParameterError, match=f"`{name}` must be an integer ≥ 1; got 0."):
        SLEEC(**settings).fit(np.eye(3), np.eye(3))


@pytest.mark.parametrize("name", ["n_neighbors", "n_clusters"])
def test_a_count_that_is_neither_auto_nor_a_number_is_refused(name: str) -> None:
    settings: dict[str, Any] = {name: "all"}
    with pytest.raises(ParameterError, match=f"`{name}` must be 'auto' or an integer ≥ 1; got 'all'."):
        SLEEC(**settings).fit(np.eye(3), np.eye(3))


@pytest.mark.parametrize("l1", [-1.0, float("nan"), "auto", True])
def test_an_l1_out_of_range_is_refused(l1: Any) -> None:
    with pytest.raises(ParameterError, match="`l1` must be a finite number ≥ 0; got"):
        SLEEC(l1=l1).fit(np.eye(3), np.eye(3))
