"""Votes and candidates against naive loops over rows and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ripml.decoding import sketch, votes
from ripml.decoding.calibration import best_threshold
from ripml.decoding.scores import as_scores, best_of_rows, carried, keep_above, largest, outcomes, top
from ripml.decoding.sketch import least_squares, sketch_values
from ripml.decoding.votes import softmax, tally, vote_weights
from ripml.labels.ensembles import Gaussian

NEARNESS = 1e-4  # the documented share of a score that nearness has


def naive_votes(rows_of_learner: list[list[int]], Y: NDArray[Any], k: int) -> NDArray[Any]:
    """The paper's D = 1/(Fk) Σ_f Σ_i y_i over the first k rows of each learner, by loops."""
    D = np.zeros(Y.shape[1])
    for rows in rows_of_learner:
        for row in rows[:k]:
            D += Y[row] / (len(rows_of_learner) * min(k, len(rows)))
    return D


def rows_in_order(order: NDArray[Any], of_row: NDArray[Any]) -> list[int]:
    """Row numbers, the rows of the nearest set first."""
    return [int(row) for label_set in order for row in np.flatnonzero(of_row == label_set)]


def random_case(seed: int) -> tuple[Any, NDArray[Any], NDArray[Any], list[NDArray[Any]], int]:
    """Label sets, the set of each row, counts, an order of all sets for each of F learners, and k."""
    rng = np.random.default_rng(seed)
    n_sets, n_learners = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    sets = worlds.zipf_labels(n_sets, 12, seed=seed)
    of_row = np.concatenate([np.arange(n_sets), rng.integers(n_sets, size=rng.integers(0, 20))])
    orders = [rng.permutation(n_sets) for _ in range(n_learners)]
    return sets, of_row, np.bincount(of_row), orders, int(rng.integers(1, len(of_row) + 1))


def score(orders: list[NDArray[Any]], counts: NDArray[Any], k: int, sets: Any, left_out: Any = None) -> NDArray[Any]:
    """The scores of one query from its nearest sets in each learner."""
    reach = min(k if left_out is None else k + 1, len(counts))
    ids = [order[None, :reach] for order in orders]
    weights = [vote_weights(nearest, counts, k, len(orders), left_out) for nearest in ids]
    return np.asarray(tally(np.hstack(ids), np.hstack(weights) / len(orders), sets).toarray()[0])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_votes_are_the_papers_up_to_the_share_of_nearness(seed: int) -> None:
    sets, of_row, counts, orders, k = random_case(seed)
    found = score(orders, counts, k, sets)
    D = naive_votes([rows_in_order(order, of_row) for order in orders], sets.toarray()[of_row], k)
    assert np.abs(found - D).max() <= NEARNESS
    assert found.min() >= 0
    assert found.max() <= 1
    np.testing.assert_array_equal(found > 0, D > 0)
    for one in range(len(D)):  # nearness never outvotes
        for other in range(len(D)):
            if D[one] > D[other] + 1e-9:
                assert found[one] > found[other]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_leaving_a_row_out_is_its_removal(seed: int) -> None:
    sets, of_row, counts, orders, k = random_case(seed)
    if len(of_row) == 1:
        return
    k = min(k, len(of_row) - 1)
    row = seed % len(of_row)
    found = score(orders, counts, k, sets, left_out=of_row[[row]])
    others = [[other for other in rows_in_order(order, of_row) if other != row] for order in orders]
    assert np.abs(found - naive_votes(others, sets.toarray()[of_row], k)).max() <= NEARNESS
    remaining = np.bincount(np.delete(of_row, row), minlength=len(counts))
    kept = [order[remaining[order] > 0] for order in orders]
    expected = np.sum(
        [
            vote_weights(order[None], np.maximum(remaining, 1), k, len(orders))[0] @ sets.toarray()[order]
            for order in kept
        ],
        axis=0,
    )
    np.testing.assert_allclose(found, expected / len(orders), atol=1e-11)


def test_leaving_out_the_only_row_leaves_no_vote() -> None:
    sets = scipy.sparse.csr_array(np.ones((1, 2), np.float32))
    weights = vote_weights(np.array([[0]]), np.array([1]), k=3, left_out=np.array([0]))
    np.testing.assert_array_equal(weights, [[0]])
    assert tally(np.array([[0]]), weights, sets).nnz == 0


def test_among_equal_votes_the_nearer_label_is_first() -> None:
    sets = scipy.sparse.csr_array(np.eye(3, dtype=np.float32))
    weights = vote_weights(np.array([[2, 0, 1]]), np.array([1, 1, 1]), k=3)
    assert top(tally(np.array([[2, 0, 1]]), weights, sets), 3).indices.tolist() == [2, 0, 1]


@pytest.mark.parametrize(("k", "n_learners"), [(5, 5), (1001, 50), (99_999, 1), (3, 5000)])
def test_one_vote_outweighs_all_nearness_however_many_votes_there_are(k: int, n_learners: int) -> None:
    # In every learner set 0 is nearest and set 1 farthest with as many votes; but in one learner set 1 has one more.
    half = k // 2
    usual = vote_weights(np.array([[0, 2, 1]]), np.array([half, half, 1]), k, n_learners)[0]
    once = vote_weights(np.array([[0, 1]]), np.array([half, half + 1]), k, n_learners)[0]
    nearest = ((n_learners - 1) * usual[0] + once[0]) / n_learners
    farthest = ((n_learners - 1) * usual[2] + once[1]) / n_learners
    assert farthest > nearest + 1e-9


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_the_weights_of_a_learner_sum_to_one(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, 9)
    ids = np.stack([rng.permutation(9) for _ in range(5)])
    weights = vote_weights(ids, counts, k)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights >= 0).all()


def test_the_same_votes_in_another_order_are_the_same_score() -> None:
    rng = np.random.default_rng(0)
    sets = worlds.zipf_labels(30, 20)
    ids = rng.integers(30, size=(40, 25))
    weights = rng.random((40, 25)) / 25
    order = rng.permutation(25)
    one, other = tally(ids, weights, sets), tally(ids[:, order], weights[:, order], sets)
    np.testing.assert_array_equal(one.toarray(), other.toarray())
    assert one.has_sorted_indices
    assert (one.data > 0).all()
    W = np.zeros((40, 30))
    np.add.at(W, (np.arange(40)[:, None], ids), weights)
    np.testing.assert_allclose(one.toarray(), W @ sets.toarray(), atol=1e-11)


def random_scores(seed: int) -> Any:
    """CSR scores with many ties and some empty rows."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 4, (7, 9)) / 4 * (rng.random((7, 1)) < 0.8)
    return scipy.sparse.csr_array(dense)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_the_top_labels_are_those_of_a_stable_sort(seed: int, n: int) -> None:
    scores = random_scores(seed)
    best = top(scores, n)
    assert best.shape == scores.shape
    for row, dense in enumerate(scores.toarray()):
        expected = [label for label in np.argsort(-dense, kind="stable") if dense[label] > 0][:n]
        part = slice(best.indptr[row], best.indptr[row + 1])
        assert best.indices[part].tolist() == expected
        assert best.data[part].tolist() == dense[expected].tolist()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.5]))
def test_labels_at_or_above_the_threshold_are_kept(seed: int, threshold: float) -> None:
    scores = random_scores(seed)
    kept = keep_above(scores, threshold)
    assert kept.dtype == np.float32
    np.testing.assert_array_equal(kept.toarray(), scores.toarray() >= threshold)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_the_best_threshold_has_the_best_micro_f1_of_all_scores(seed: int) -> None:
    scores, Y = random_scores(seed), worlds.zipf_labels(7, 9, seed=seed)

    def f1(threshold: float) -> float:
        predicted = keep_above(scores, threshold)
        return float(2 * predicted.multiply(Y).sum() / (predicted.nnz + Y.nnz))

    found = best_threshold(Y, scores)
    assert f1(found) == pytest.approx(max(f1(value) for value in [*np.unique(scores.data), 2.0]))
    ties = [value for value in np.unique(scores.data) if f1(value) == pytest.approx(f1(found))]
    assert not ties or found == max(ties)  # of equally good ones the highest


def test_without_scores_the_threshold_is_one() -> None:
    assert best_threshold(worlds.zipf_labels(3, 4), scipy.sparse.csr_array((3, 4))) == 1.0


def test_without_hits_the_threshold_is_the_highest_score() -> None:
    Y = scipy.sparse.csr_array([[0.0, 1.0]])
    assert best_threshold(Y, scipy.sparse.csr_array([[0.3, 0.0]])) == 0.3


def test_the_share_of_nearness_is_the_documented_one() -> None:
    assert votes._NEARNESS == NEARNESS


# ------------------------------------------------------------------------------------------- candidates and values


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.1, 1.0, 10.0]))
def test_weights_by_similarity_are_the_formula_and_sum_to_one(seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    similarity, rows = rng.uniform(-1, 1, (6, 5)), rng.integers(0, 4, (6, 5))
    rows[0] = 0
    found = softmax(similarity, temperature, rows)
    plain = rows * np.exp((similarity - 1) / temperature)
    total = plain.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, plain / np.where(total > 0, total, 1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), rows.any(axis=1))


def test_weights_by_similarity_neither_overflow_nor_count_sets_without_rows() -> None:
    similarity = np.array([[0.5, 0.4, 0.99], [-1.0, -1.0, -np.inf]])
    found = softmax(similarity, 1e-4, np.array([[1, 1, 0], [1, 3, 0]]))
    np.testing.assert_allclose(found, np.array([[1, 0, 0], [0.25, 0.75, 0]]), atol=1e-12)


def test_weights_are_zero_where_no_row_is_present() -> None:
    np.testing.assert_array_equal(softmax(np.array([[0.5, -np.inf]]), 0.1, np.array([[0, 0]])), [[0, 0]])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_the_largest_values_are_found_in_any_order(seed: int, k: int) -> None:
    values = np.random.default_rng(seed).integers(0, 6, (5, 7)).astype(np.float32)
    places = largest(values, k)
    assert places.shape == (5, min(k, 7))
    for line, found in zip(values, places, strict=True):
        assert len(set(found.tolist())) == len(found)
        assert sorted(line[found]) == sorted(line)[-len(found) :]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_the_best_of_each_row_are_those_of_a_stable_sort(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.concatenate([[0], np.cumsum(rng.integers(0, 6, 7))])
    score = rng.integers(0, 4, ends[-1]).astype(np.float32)
    found = best_of_rows(score, ends, k)
    assert found.shape == (7, k)
    for row in range(7):
        start, end = int(ends[row]), int(ends[row + 1])
        expected = [start + int(place) for place in np.argsort(-score[start:end], kind="stable")[:k]]
        assert found[row].tolist() == expected + [-1] * (k - len(expected))


def test_no_rows_and_rows_without_places_have_no_best() -> None:
    assert best_of_rows(np.zeros(0), np.array([0]), 3).shape == (0, 3)
    np.testing.assert_array_equal(best_of_rows(np.zeros(0), np.array([0, 0, 0]), 2), -1)


def phi(labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Columns of a Gaussian Phi in 64 dimensions."""
    return Gaussian().columns(labels.astype(np.uint64), 64, seed=3)


@pytest.mark.parametrize("pairs", [1, 7, 10**6])
def test_values_of_labels_are_products_with_their_columns(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "_PAIRS", pairs)
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((9, 64)).astype(np.float32)
    row, label = rng.integers(9, size=40), rng.integers(30, size=40)
    found = sketch_values(Z, row, label, phi)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, (Z @ phi(np.arange(30)).T)[row, label], atol=1e-4)
    assert sketch_values(Z, row[:0], label[:0], phi).shape == (0,)


def test_values_of_labels_are_those_of_the_label_on_average() -> None:
    y = np.zeros(500)
    y[:3] = 1
    table = Gaussian().columns(np.arange(500, dtype=np.uint64), 2048, seed=3)
    Z = (y @ table)[None].astype(np.float32)
    label = np.arange(500)
    found = sketch_values(Z, np.zeros(500, np.int64), label, lambda labels: table[labels])
    np.testing.assert_allclose(found, y, atol=0.2)


@pytest.mark.parametrize("pairs", [1, 30, 10**6])
@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_least_squares_are_solved_on_the_candidates_of_each_row(
    epsilon: float, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketch, "_PAIRS", pairs)
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((12, 64)).astype(np.float32)
    labels = np.stack([rng.permutation(30)[:6] for _ in range(12)])
    labels[0, 4:], labels[5], labels[7, [0, 3]] = -1, -1, -1
    (found,) = least_squares(Z, labels, phi, [epsilon])
    assert found.dtype == np.float32
    for z, candidates, values in zip(Z, labels, found, strict=True):
        present = candidates >= 0
        Phi = phi(candidates[present]).astype(np.float64)
        expected = np.linalg.solve(Phi @ Phi.T + epsilon * np.eye(len(Phi)), Phi @ z)
        np.testing.assert_allclose(values[present], expected, atol=1e-4)
        np.testing.assert_array_equal(values[~present], 0)


def test_more_candidates_than_dimensions_are_a_system_of_the_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with thousands of labels have three times as many candidates, and K equations cost K³."""
    rng, sizes, solve = np.random.default_rng(0), list[int](), np.linalg.solve

    def solved(A: Any, b: Any) -> Any:
        sizes.append(A.shape[-1])
        return solve(A, b)

    table = rng.standard_normal((50, 8)).astype(np.float32) / np.float32(8**0.5)
    Z, labels = rng.standard_normal((3, 8)).astype(np.float32), np.stack([rng.permutation(50)[:40] for _ in range(3)])
    labels[1, 30:] = -1
    with monkeypatch.context() as patched:
        patched.setattr(np.linalg, "solve", solved)
        found = least_squares(Z, labels, lambda some: table[some], [0.3])[0]
    assert set(sizes) == {8}
    for z, candidates, values in zip(Z, labels, found, strict=True):
        Phi = table[candidates[candidates >= 0]].astype(np.float64)
        expected = np.linalg.solve(Phi @ Phi.T + 0.3 * np.eye(len(Phi)), Phi @ z)
        np.testing.assert_allclose(values[candidates >= 0], expected, atol=1e-4)
        np.testing.assert_array_equal(values[candidates < 0], 0)


def test_least_squares_remove_the_cross_talk_that_values_have() -> None:
    labels = np.arange(12)[None]
    y = np.isin(labels[0], [2, 7]).astype(np.float32)
    Z = (y @ phi(labels[0]))[None]
    plain = sketch_values(Z, np.zeros(12, np.int64), labels[0], phi)
    found = least_squares(Z, labels, phi, [1e-4])[0, 0]
    np.testing.assert_allclose(found, y, atol=1e-2)
    assert np.abs(plain - y).max() > 10 * np.abs(found - y).max()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_a_candidate_is_carried_if_its_row_has_that_label(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.random((6, 8)) < 0.3
    labels = rng.integers(-1, 8, (6, 5))
    found = carried(scipy.sparse.csr_array(dense.astype(np.float32)), labels)
    np.testing.assert_array_equal(found, np.take_along_axis(dense, np.maximum(labels, 0), axis=1) & (labels >= 0))


def test_rows_without_labels_carry_nothing() -> None:
    nothing = scipy.sparse.csr_array((2, 4), dtype=np.float32)
    np.testing.assert_array_equal(carried(nothing, np.array([[0, -1], [3, 2]])), False)
    first_of_next = scipy.sparse.csr_array(np.array([[0, 0, 0, 1.0], [1.0, 0, 0, 0]], np.float32))
    np.testing.assert_array_equal(carried(first_of_next, np.array([[-1, 3], [-1, 0]])), [[False, True]] * 2)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_candidates_with_values_become_a_sorted_matrix_of_scores(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.permutation(9)[:4] for _ in range(5)])
    labels[rng.random(labels.shape) < 0.3] = -1
    values = rng.random(labels.shape).astype(np.float32)
    scores = as_scores(labels, values, 9)
    expected = np.zeros((5, 9))
    for row, column in zip(*np.nonzero(labels >= 0), strict=True):
        expected[row, labels[row, column]] = values[row, column]
    np.testing.assert_allclose(scores.toarray(), expected, atol=1e-6)
    assert scores.nnz == (labels >= 0).sum()
    assert scores.dtype == np.float64
    assert all((np.diff(scores.indices[a:b]) > 0).all() for a, b in zip(scores.indptr, scores.indptr[1:], strict=False))


def test_a_candidate_with_value_zero_is_still_stored() -> None:
    scores = as_scores(np.array([[3, -1], [-1, -1]]), np.array([[0.0, 7.0], [7.0, 7.0]]), 5)
    assert scores.shape == (2, 5)
    assert scores.indices.tolist() == [3]
    assert scores.data.tolist() == [0]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_outcomes_are_true_for_scores_of_true_labels(seed: int) -> None:
    scores, Y = random_scores(seed), worlds.zipf_labels(7, 9, seed=seed)
    row = np.repeat(np.arange(7), np.diff(scores.indptr))
    np.testing.assert_array_equal(outcomes(Y, scores), Y.toarray()[row, scores.indices] > 0)
