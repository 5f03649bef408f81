"""The metrics against hand-computed cases, a naive loop over rows, and scikit-learn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix
from sklearn.metrics import f1_score, ndcg_score

from ripml import metrics
from ripml.base.errors import DataError, ParameterError

RANKING_METRICS: list[Callable[..., float]] = [
    metrics.precision_at_k,
    metrics.recall_at_k,
    metrics.r_precision_at_k,
    metrics.ndcg_at_k,
    metrics.coverage_at_k,
]


@dataclass(frozen=True)
class World:
    """Truth as a set of labels a row, scores as {label: score} a row: what the naive metrics read."""

    n_labels: int
    truth: list[set[int]]
    scores: list[dict[int, float]]

    @property
    def Y(self) -> csr_array:
        return csr_array([[float(label in row) for label in range(self.n_labels)] for row in self.truth])

    @property
    def S(self) -> csr_array:
        """The scores as CSR, zeros stored."""
        cells = [(i, label, score) for i, row in enumerate(self.scores) for label, score in sorted(row.items())]
        rows, labels, values = zip(*cells, strict=True) if cells else ((), (), ())
        lengths = np.bincount(np.array(rows, dtype=int), minlength=len(self.scores))
        return csr_array(
            (np.array(values, dtype=float), np.array(labels, dtype=int), np.append(0, np.cumsum(lengths))),
            shape=(len(self.scores), self.n_labels),
        )

    def top(self, i: int, k: int) -> list[int]:
        return sorted(self.scores[i], key=lambda label: (-self.scores[i][label], label))[:k]

    def labelled_rows(self) -> list[int]:
        return [i for i, labels in enumerate(self.truth) if labels]

    def mean(self, of_row: Callable[[int], float]) -> float:
        rows = self.labelled_rows()
        return sum(of_row(i) for i in rows) / len(rows)

    def hits(self, i: int, k: int) -> int:
        return len(self.truth[i].intersection(self.top(i, k)))

    def precision(self, k: int) -> float:
        return self.mean(lambda i: self.hits(i, k) / k)

    def recall(self, k: int) -> float:
        return self.mean(lambda i: self.hits(i, k) / len(self.truth[i]))

    def r_precision(self, k: int) -> float:
        return self.mean(lambda i: self.hits(i, k) / min(k, len(self.truth[i])))

    def ndcg(self, k: int) -> float:
        def of_row(i: int) -> float:
            gain = sum(1 / log2(rank + 2) for rank, label in enumerate(self.top(i, k)) if label in self.truth[i])
            return gain / sum(1 / log2(rank + 2) for rank in range(min(k, len(self.truth[i]))))

        return self.mean(of_row)

    def coverage(self, k: int) -> float:
        found = {label for i in self.labelled_rows() for label in self.top(i, k) if label in self.truth[i]}
        return len(found) / len(set().union(*self.truth))

    def psp(self, k: int, p: list[float]) -> float:
        gain = best = 0.0
        for i in self.labelled_rows():
            gain += sum(1 / p[label] for label in self.top(i, k) if label in self.truth[i])
            best += sum(sorted((1 / p[label] for label in self.truth[i]), reverse=True)[:k])
        return gain / best


@st.composite
def worlds(draw: st.DrawFn, scores_of_a_cell: tuple[float | None, ...] = (None, -1.0, 0.0, 0.5, 0.5, 1.0)) -> World:
    """Small worlds full of ties, stored zeros, rows without candidates and rows without labels."""
    n, n_labels = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    cell = st.sampled_from(scores_of_a_cell)
    truth = draw(st.lists(st.sets(st.integers(0, n_labels - 1)), min_size=n, max_size=n).filter(any))
    rows = draw(st.lists(st.lists(cell, min_size=n_labels, max_size=n_labels), min_size=n, max_size=n))
    return World(n_labels, truth, [{j: s for j, s in enumerate(row) if s is not None} for row in rows])


# Four labels; the first row has two of three hits at ranks 1 and 3, the second one hit at rank 2, the third no label.
HAND = World(
    n_labels=4,
    truth=[{0, 1, 2}, {3}, set()],
    scores=[{0: 0.9, 3: 0.8, 1: 0.7, 2: 0.1}, {0: 0.5, 3: 0.4}, {1: 1.0}],
)


def test_precision_of_the_hand_computed_case_divides_by_k_and_leaves_out_the_row_without_labels() -> None:
    assert metrics.precision_at_k(HAND.Y, HAND.S, k=1) == (1 + 0) / 2
    assert metrics.precision_at_k(HAND.Y, HAND.S, k=3) == pytest.approx((2 / 3 + 1 / 3) / 2)


def test_recall_of_the_hand_computed_case_divides_by_the_number_of_true_labels() -> None:
    assert metrics.recall_at_k(HAND.Y, HAND.S, k=3) == pytest.approx((2 / 3 + 1) / 2)


def test_r_precision_of_the_hand_computed_case_divides_by_what_a_row_can_reach() -> None:
    assert metrics.r_precision_at_k(HAND.Y, HAND.S, k=1) == (1 + 0) / 2
    assert metrics.r_precision_at_k(HAND.Y, HAND.S, k=3) == pytest.approx((2 / 3 + 1) / 2)


def test_ndcg_of_the_hand_computed_case() -> None:
    first = (1 + 1 / 2) / (1 + 1 / log2(3) + 1 / 2)
    second = 1 / log2(3)
    assert metrics.ndcg_at_k(HAND.Y, HAND.S, k=3) == pytest.approx((first + second) / 2)


def test_psp_of_the_hand_computed_case_is_the_gain_of_all_rows_over_the_best_gain_of_all_rows() -> None:
    p = np.array([1.0, 0.5, 0.25, 0.5])
    gain = (1 + 2) + 2  # labels 0 and 1, then label 3
    best = (4 + 2 + 1) + 2
    assert metrics.psp_at_k(HAND.Y, HAND.S, k=3, propensities=p) == pytest.approx(gain / best)


def test_coverage_of_the_hand_computed_case_counts_each_found_label_once() -> None:
    assert metrics.coverage_at_k(HAND.Y, HAND.S, k=1) == 1 / 4
    assert metrics.coverage_at_k(HAND.Y, HAND.S, k=3) == 3 / 4


def test_propensities_of_the_hand_computed_case() -> None:
    Y = csr_array([[1, 0], [1, 0], [1, 0], [0, 0], [0, 0]])
    C = (log(5) - 1) * 2.5**0.55
    expected = [1 / (1 + C * exp(-0.55 * log(3 + 1.5))), 1 / (1 + C * exp(-0.55 * log(0 + 1.5)))]
    np.testing.assert_allclose(metrics.propensities(Y), expected)


def test_propensities_take_other_constants_and_grow_with_the_frequency_of_a_label() -> None:
    Y = csr_array([[1, 0], [1, 0], [1, 1], [0, 0], [0, 0]])
    C = (log(5) - 1) * 1.4**0.5
    frequent, rare = metrics.propensities(Y, A=0.5, B=0.4)
    assert rare == pytest.approx(1 / (1 + C / (1 + 0.4) ** 0.5))
    assert 0 < rare < frequent < 1


def test_f1_of_the_hand_computed_case_leaves_out_labels_that_occur_nowhere() -> None:
    Y = csr_array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    Y_pred = csr_array([[1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]])
    # label 0: TP 1, FP 1, FN 1; label 1: FN 1; label 2: FP 1; label 3: nowhere
    assert metrics.micro_f1(Y, Y_pred) == pytest.approx(2 * 1 / (2 * 1 + 2 + 2))
    assert metrics.macro_f1(Y, Y_pred) == pytest.approx((1 / 2 + 0 + 0) / 3)


@given(worlds(), st.integers(1, 9))
def test_every_ranking_metric_equals_the_naive_loop_over_rows(world: World, k: int) -> None:
    Y, S = world.Y, world.S
    assert metrics.precision_at_k(Y, S, k) == pytest.approx(world.precision(k))
    assert metrics.recall_at_k(Y, S, k) == pytest.approx(world.recall(k))
    assert metrics.r_precision_at_k(Y, S, k) == pytest.approx(world.r_precision(k))
    assert metrics.ndcg_at_k(Y, S, k) == pytest.approx(world.ndcg(k))
    assert metrics.coverage_at_k(Y, S, k) == pytest.approx(world.coverage(k))


@given(worlds(), st.integers(1, 9), st.data())
def test_psp_equals_the_naive_loop_over_rows(world: World, k: int, data: st.DataObject) -> None:
    p = data.draw(st.lists(st.floats(0.01, 1), min_size=world.n_labels, max_size=world.n_labels))
    value = metrics.psp_at_k(world.Y, world.S, k, propensities=np.array(p))
    assert value == pytest.approx(world.psp(k, p))
    assert 0 <= value <= 1


@given(worlds(), st.integers(1, 9))
def test_the_ranking_equals_a_sort_by_score_then_label_padded_with_minus_one(world: World, k: int) -> None:
    top = metrics.ranking(world.S, k)
    expected = [(world.top(i, k) + [-1] * k)[:k] for i in range(len(world.truth))]
    assert top.dtype == np.int64
    np.testing.assert_array_equal(top, expected)


@given(worlds(), st.integers(1, 9), st.integers(1, 12))
def test_the_ranking_does_not_depend_on_how_rows_fall_into_blocks(world: World, k: int, cells_per_block: int) -> None:
    expected = metrics.ranking(world.S, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_CELLS_PER_BLOCK", cells_per_block)
        np.testing.assert_array_equal(metrics.ranking(world.S, k), expected)


@given(worlds(scores_of_a_cell=(-2.0, -1.0, 0.0, 0.5)), st.integers(1, 9))
def test_dense_scores_rank_every_cell_like_sparse_scores_that_store_every_cell(world: World, k: int) -> None:
    np.testing.assert_array_equal(metrics.ranking(world.S.toarray(), k), metrics.ranking(world.S, k))


@given(worlds())
def test_ranking_by_the_truth_itself_is_perfect_and_no_metric_exceeds_one(world: World) -> None:
    Y = world.Y
    p = metrics.propensities(csr_array(np.ones((3, world.n_labels))))
    for k in range(1, world.n_labels + 1):
        assert metrics.ndcg_at_k(Y, Y, k) == 1
        assert metrics.r_precision_at_k(Y, Y, k) == 1
        assert metrics.psp_at_k(Y, Y, k, propensities=p) == pytest.approx(1)
        assert all(0 <= metric(Y, world.S, k) <= 1 for metric in RANKING_METRICS)
    assert metrics.recall_at_k(Y, Y, world.n_labels) == 1
    assert metrics.coverage_at_k(Y, Y, world.n_labels) == 1


@given(st.integers(1, 8), st.integers(2, 9), st.integers(0, 10_000), st.data())
def test_ndcg_equals_scikit_learns_where_no_scores_tie(n: int, n_labels: int, seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n_labels))
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, n_labels)) < 0.4).astype(float)
    Y[np.arange(n), rng.integers(0, n_labels, n)] = 1
    scores = rng.permuted(np.tile(np.arange(1.0, n_labels + 1), (n, 1)), axis=1)
    expected = ndcg_score(Y, scores, k=k)
    assert metrics.ndcg_at_k(csr_array(Y), csr_array(scores), k) == pytest.approx(expected)


@given(worlds(), st.data())
def test_f1_equals_scikit_learns(world: World, data: st.DataObject) -> None:
    label_sets = st.sets(st.integers(0, world.n_labels - 1))
    n = len(world.truth)
    Y_pred = World(world.n_labels, data.draw(st.lists(label_sets, min_size=n, max_size=n)), []).Y
    # One column more, empty in both: scikit-learn reads a single column as binary, not multilabel.
    Y, Y_pred = (np.pad(indicator.toarray().astype(int), ((0, 0), (0, 1))) for indicator in (world.Y, Y_pred))
    for average, ours in (("micro", metrics.micro_f1), ("macro", metrics.macro_f1)):
        expected = f1_score(Y, Y_pred, average=average, zero_division=np.nan)
        assert ours(csr_array(Y), csr_array(Y_pred)) == pytest.approx(expected)


@given(worlds(), st.lists(st.integers(1, 9), min_size=1, unique=True))
def test_the_report_equals_the_single_metrics(world: World, ks: list[int]) -> None:
    Y, S = world.Y, world.S
    p = np.linspace(0.1, 1, world.n_labels)
    expected = {f"P@{k}": metrics.precision_at_k(Y, S, k) for k in ks}
    expected |= {f"nDCG@{k}": metrics.ndcg_at_k(Y, S, k) for k in ks}
    expected |= {f"recall@{k}": metrics.recall_at_k(Y, S, k) for k in ks}
    expected |= {f"coverage@{k}": metrics.coverage_at_k(Y, S, k) for k in ks}
    assert metrics.report(Y, S, ks=ks) == pytest.approx(expected)
    expected |= {f"PSP@{k}": metrics.psp_at_k(Y, S, k, propensities=p) for k in ks}
    assert metrics.report(Y, S, propensities=p, ks=ks) == pytest.approx(expected)


def test_the_report_is_for_one_three_and_five_and_has_psp_only_with_propensities() -> None:
    assert list(metrics.report(HAND.Y, HAND.S))[:3] == ["P@1", "P@3", "P@5"]
    assert not any(name.startswith("PSP") for name in metrics.report(HAND.Y, HAND.S))


@pytest.mark.parametrize("as_format", [csr_matrix, csc_array, coo_array, lambda m: m.astype(np.float32)])
@pytest.mark.parametrize("metric", RANKING_METRICS)
def test_the_format_and_the_float_type_of_a_matrix_do_not_matter(
    metric: Callable[..., float], as_format: Callable[[Any], Any]
) -> None:
    assert metric(as_format(HAND.Y), as_format(HAND.S), 2) == metric(HAND.Y, HAND.S, 2)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int64, np.float16])
def test_dense_matrices_of_any_number_type_are_ranked(dtype: type[np.generic]) -> None:
    Y = np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype)
    assert metrics.precision_at_k(Y, Y, 1) == 1
    assert metrics.micro_f1(Y, Y) == 1


def test_any_non_zero_cell_is_a_true_label_and_a_stored_zero_is_not() -> None:
    Y = csr_array((np.array([3.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert metrics.recall_at_k(Y, csr_array([[0.9, 0.1]]), 1) == 1
    assert metrics.micro_f1(Y, csr_array([[1, 0]])) == 1


def test_a_stored_zero_is_a_candidate_and_outranks_a_negative_score() -> None:
    scores = csr_array((np.array([-1.0, 0.0]), np.array([0, 2]), np.array([0, 2])), shape=(1, 3))
    np.testing.assert_array_equal(metrics.ranking(scores, 3), [[2, 0, -1]])


def test_a_score_of_minus_infinity_is_still_a_candidate() -> None:
    scores = csr_array(
        (np.array([-np.inf, 1.0, np.inf]), np.array([1, 0, 2]), np.array([0, 1, 3])),
        shape=(2, 3),
    )
    np.testing.assert_array_equal(metrics.ranking(scores, 2), [[1, -1], [2, 0]])


def test_unsorted_and_repeated_cells_are_read_as_scipy_reads_them_and_left_as_they_were() -> None:
    values, labels = np.array([1.0, 2.0, 2.5]), np.array([2, 0, 2])
    scores = csr_matrix((values, labels, np.array([0, 3])), shape=(1, 3))  # label 2 scores 1 + 2.5
    np.testing.assert_array_equal(metrics.ranking(scores, 3), [[2, 0, -1]])
    np.testing.assert_array_equal(scores.indices, [2, 0, 2])
    np.testing.assert_array_equal(scores.data, [1.0, 2.0, 2.5])


def test_the_truth_is_left_as_it_was() -> None:
    Y = csr_matrix((np.array([0.0, 2.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
    metrics.report(Y, csr_array([[0.9, 0.1]]))
    np.testing.assert_array_equal(Y.indices, [1, 0])
    np.testing.assert_array_equal(Y.data, [0.0, 2.0])


def test_no_rows_and_no_labels_rank_to_nothing() -> None:
    assert metrics.ranking(csr_array((0, 3)), 2).shape == (0, 2)
    np.testing.assert_array_equal(metrics.ranking(np.zeros((2, 0)), 1), [[-1], [-1]])


def test_k_above_the_number_of_labels_still_divides_by_k() -> None:
    assert metrics.precision_at_k(np.array([[1, 1]]), np.array([[0.2, 0.1]]), k=4) == 2 / 4


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", None])
def test_a_k_that_is_not_a_positive_integer_is_refused(k: Any) -> None:
    sentence = re.escape(f"`k` must be an integer ≥ 1; got {k!r}.")
    for metric in RANKING_METRICS:
        with pytest.raises(ParameterError, match=sentence):
            metric(HAND.Y, HAND.S, k)
    with pytest.raises(ParameterError, match=sentence):
        metrics.psp_at_k(HAND.Y, HAND.S, k, propensities=np.ones(4))
    with pytest.raises(ParameterError, match=sentence):
        metrics.report(HAND.Y, HAND.S, ks=(1, k))
    with pytest.raises(ParameterError, match=sentence):
        metrics.ranking(HAND.S, k)


def test_a_report_for_no_k_is_refused() -> None:
    with pytest.raises(ParameterError, match="`ks` must name at least one k"):
        metrics.report(HAND.Y, HAND.S, ks=())


@pytest.mark.parametrize("metric", [*RANKING_METRICS, metrics.report])
def test_truth_without_any_label_is_refused(metric: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match="none of the 3 rows of Y has a true label"):
        metric(csr_array((3, 4)), HAND.S)


@pytest.mark.parametrize("f1", [metrics.micro_f1, metrics.macro_f1])
def test_f1_of_nothing_is_refused(f1: Callable[..., float]) -> None:
    with pytest.raises(DataError, match="neither Y nor Y_pred has a label"):
        f1(csr_array((3, 4)), csr_array((3, 4)))


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(DataError, match=r"scores must have the shape of Y, \(3, 4\); got \(3, 5\)"):
        metrics.precision_at_k(HAND.Y, csr_array((3, 5)))
    with pytest.raises(DataError, match=r"Y_pred must have the shape of Y, \(3, 4\); got \(2, 4\)"):
        metrics.micro_f1(HAND.Y, np.ones((2, 4)))


def test_an_array_that_is_not_a_matrix_is_refused() -> None:
    with pytest.raises(DataError, match=r"Y must be a matrix of n rows and L labels; got an array of shape \(2,\)"):
        metrics.precision_at_k(np.ones(2), np.ones(2))
    with pytest.raises(DataError, match=r"scores must be a matrix .* got an array of shape \(2,\)"):
        metrics.ranking(np.ones(2), 1)


def test_values_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="scores must hold numbers; got the type <U1"):
        metrics.ranking(np.array([["a", "b"]]), 1)


@pytest.mark.parametrize("as_format", [csr_array, np.asarray])
def test_nan_is_refused_with_its_place(as_format: Callable[[Any], Any]) -> None:
    scores = as_format([[0.5, 0.25, 0.75], [0.5, 0.25, np.nan]])
    with pytest.raises(DataError, match="scores must hold numbers; got NaN at row 1, label 2"):
        metrics.precision_at_k(np.ones((2, 3)), scores)
    with pytest.raises(DataError, match="Y must hold numbers; got NaN at row 1, label 2"):
        metrics.precision_at_k(scores, np.ones((2, 3)))


def test_propensities_of_the_wrong_length_or_range_are_refused() -> None:
    with pytest.raises(DataError, match=r"one value for each of the 4 labels; got shape \(3,\)"):
        metrics.psp_at_k(HAND.Y, HAND.S, propensities=np.ones(3))
    with pytest.raises(DataError, match=r"must lie in \(0, 1\]; got 0.0 for label 2"):
        metrics.psp_at_k(HAND.Y, HAND.S, propensities=np.array([1.0, 0.5, 0.0, 1.0]))


def test_propensities_of_too_few_rows_or_impossible_constants_are_refused() -> None:
    with pytest.raises(DataError, match=r"at least 3 training rows.*; got 2"):
        metrics.propensities(np.ones((2, 2)))
    with pytest.raises(ParameterError, match="`A` must be a number ≥ 0; got -1"):
        metrics.propensities(HAND.Y, A=-1)
    with pytest.raises(ParameterError, match="`B` must be a number > 0; got 0"):
        metrics.propensities(HAND.Y, B=0)
