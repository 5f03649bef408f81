"""A model is a value: a change makes the next one, and the one before answers as it did, also if the change fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone

from ripml import RIPML
from ripml.base.arrays import GrowingArray
from ripml.base.errors import DataError, ParameterError
from ripml.decoding.label_set_index import DirectionIndex, LabelSetIndex, PointIndex, Searchers
from ripml.labels.encoding import label_keys
from ripml.model.cluster import LabelledRows
from ripml.model.model import Change
from ripml.neighbors import exact
from ripml.regression import incremental
from ripml.regression.kernels import RBF, Linear, Rows
from ripml.regression.regression import KernelRegression, LinearRegression, Regression, RowChange

Array = NDArray[Any]

# ------------------------------------------------------------------------------------------------------ growing arrays


class TestGrowingArrays:
    def test_an_appended_array_shares_the_memory_of_the_one_before(self) -> None:
        first = GrowingArray(np.arange(3)).appended(np.array([3]))  # from here on there is spare capacity
        second = first.appended(np.array([4, 5]))
        assert np.shares_memory(first.view, second.view)
        assert (first.view.tolist(), second.view.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3, 4, 5])
        assert (first.size, second.size) == (4, 6)

    def test_a_second_successor_does_not_overwrite_the_first(self) -> None:
        base = GrowingArray(np.arange(3)).appended(np.array([3]))
        one, other = base.appended(np.array([10, 11])), base.appended(np.array([20]))
        assert not np.shares_memory(one.view[4:], other.view)
        assert one.view.tolist() == [0, 1, 2, 3, 10, 11]
        assert other.view.tolist() == [0, 1, 2, 3, 20]
        assert one.appended(np.array([12])).view.tolist() == [0, 1, 2, 3, 10, 11, 12]
        assert other.appended(np.array([21])).view.tolist() == [0, 1, 2, 3, 20, 21]
        assert base.view.tolist() == [0, 1, 2, 3]

    def test_the_array_that_it_started_with_is_never_written_to(self) -> None:
        start = np.arange(3)
        start.flags.writeable = False
        longer = GrowingArray(start).appended(np.array([7]))
        longer.view[0] = 9
        assert start.tolist() == [0, 1, 2]
        nothing_more = GrowingArray(start).appended(np.empty(0, np.int64))
        assert np.shares_memory(nothing_more.view, start)

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 10**6), st.integers(0, 1))
    def test_any_tree_of_successors_has_the_entries_of_its_branches(self, seed: int, axis: int) -> None:
        rng = np.random.default_rng(seed)
        shape = [2, 2]
        shape[axis] = int(rng.integers(0, 4))
        start = rng.integers(0, 100, shape)
        tree: list[tuple[GrowingArray, Array]] = [(GrowingArray(start, axis), start.copy())]
        for _ in range(25):
            growing, expected = tree[rng.integers(len(tree))]
            shape[axis] = int(rng.integers(0, 40))
            more = rng.integers(0, 100, shape)
            tree.append((growing.appended(more), np.concatenate([expected, more], axis=axis)))
        for growing, expected in tree:
            np.testing.assert_array_equal(growing.view, expected)


# ----------------------------------------------------------------------------------------------------------- label sets

N_LABELS, N_DIMS = 12, 6
KEYS = label_keys(np.arange(N_LABELS))
COLUMNS = np.random.default_rng(5).standard_normal((N_LABELS, 2 * N_DIMS)).astype(np.float32)


def labels(*rows: list[int]) -> Any:
    """The indicator of these label sets."""
    dense = np.zeros((len(rows), N_LABELS), np.float32)
    for row, some in zip(dense, rows, strict=True):
        row[some] = 1
    return scipy.sparse.csr_array(dense)


def searches(kind: type[LabelSetIndex]) -> int:
    return 2 if kind is PointIndex else 1


def embed(kind: type[LabelSetIndex], sets: Any) -> NDArray[np.float32]:
    """Embeddings (F, u, m)."""
    Z = (sets @ COLUMNS)[:, : searches(kind) * N_DIMS]
    return np.ascontiguousarray(Z.reshape(len(Z), searches(kind), N_DIMS).transpose(1, 0, 2), np.float32)


def index_of(kind: type[LabelSetIndex], sets: Any, counts: list[int]) -> LabelSetIndex:
    return kind.of(sets, np.array(counts), embed(kind, sets), exact.Exact())


def answers(index: Any) -> list[tuple[Array, Array]]:
    """The sets nearest to some queries, as label sets, and how near they are."""
    Q = np.random.default_rng(6).standard_normal((7, searches(type(index)) * N_DIMS)).astype(np.float32)
    k = index.n_sets
    if isinstance(index, PointIndex):
        found = list(index.nearest(Q, k, 1))
    else:
        near = index.nearest(Q, k, 1)
        found = [(near.sets, near.similarity), (near.sets, near.rows)]
    return [(index.sets.toarray()[ids], np.asarray(values)) for ids, values in found]


def assert_same_answers(found: Any, expected: Any) -> None:
    for (sets, values), (other_sets, other_values) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(sets, other_sets)
        np.testing.assert_allclose(values, other_values, rtol=1e-6)


def changed(index: LabelSetIndex, leaving: list[int], Y: Any) -> LabelSetIndex:
    """The index after rows of these sets went and rows with labels Y came."""
    ready = index.prepared(KEYS)
    plan = ready.plan(np.array(leaving, np.int64), Y, KEYS)
    return ready.changed(plan, lambda sets: embed(type(index), sets))


START = labels([0, 1], [2], [3, 4, 5])


@pytest.mark.parametrize("kind", [PointIndex, DirectionIndex])
class TestLabelSetIndexes:
    def test_a_change_leaves_the_value_before_as_it_was(self, kind: type[LabelSetIndex]) -> None:
        first = index_of(kind, START, [2, 1, 3])
        expected = answers(first)
        second = changed(first, [1, 2], labels([6], [0, 1], [6]))
        assert second.counts.tolist() == [3, 0, 2, 2]
        assert second.n_sets == 3
        assert first.counts.tolist() == [2, 1, 3]
        assert first.sets.toarray().tolist() == START.toarray().tolist()
        assert_same_answers(answers(first), expected)
        afresh = index_of(kind, labels([0, 1], [3, 4, 5], [6]), [3, 2, 2])
        assert_same_answers(answers(second), answers(afresh))

    def test_two_successors_of_one_value_do_not_disturb_each_other(self, kind: type[LabelSetIndex]) -> None:
        base = changed(index_of(kind, START, [2, 1, 3]), [], labels([7]))
        expected = answers(base)
        one, other = changed(base, [], labels([8], [9])), changed(base, [3], labels([10, 11]))
        further = changed(one, [0, 0], labels([10]))
        assert (len(base.counts), len(one.counts), len(other.counts)) == (4, 6, 5)
        assert_same_answers(answers(base), expected)
        for index, sets, counts in (
            (one, labels([0, 1], [2], [3, 4, 5], [7], [8], [9]), [2, 1, 3, 1, 1, 1]),
            (other, labels([0, 1], [2], [3, 4, 5], [10, 11]), [2, 1, 3, 1]),
            (further, labels([2], [3, 4, 5], [7], [8], [9], [10]), [1, 3, 1, 1, 1, 1]),
        ):
            assert_same_answers(answers(index), answers(index_of(kind, sets, counts)))
        for index in (base, one, other, further):  # each finds its sets by their labels, and no others
            numbers = index.prepared(KEYS).numbers_of(labels([7], [8], [9], [10, 11], [10]), KEYS)
            present = [index.sets.toarray()[number] for number in numbers if number >= 0]
            expected_sets = labels([7], [8], [9], [10, 11], [10]).toarray()[numbers >= 0]
            np.testing.assert_array_equal(np.array(present).reshape(expected_sets.shape), expected_sets)
        found = [index.prepared(KEYS).numbers_of(labels([8], [10, 11]), KEYS) >= 0 for index in (base, one, other)]
        assert [some.tolist() for some in found] == [[False, False], [True, False], [False, True]]

    def test_a_plan_that_is_given_up_leaves_no_trace(self, kind: type[LabelSetIndex]) -> None:
        base = index_of(kind, START, [2, 1, 3]).prepared(KEYS)
        base.plan(np.empty(0, np.int64), labels([8]), KEYS)  # and nothing is made of it
        after = changed(base, [], labels([9], [8]))
        expected = index_of(kind, labels([0, 1], [2], [3, 4, 5], [9], [8]), [2, 1, 3, 1, 1])
        assert_same_answers(answers(after), answers(expected))

    def test_a_set_that_comes_back_is_found_again_and_once(self, kind: type[LabelSetIndex]) -> None:
        index = changed(index_of(kind, START, [2, 1, 3]), [1], labels())
        assert index.prepared(KEYS).numbers_of(labels([2]), KEYS).tolist() == [-1]
        index = changed(index, [], labels([2], [2]))
        assert index.n_sets == 3
        afresh = index_of(kind, labels([0, 1], [3, 4, 5], [2]), [2, 3, 2])
        assert_same_answers(answers(index), answers(afresh))
        compacted, place = index.compacted()
        assert len(compacted.counts) == 3
        assert place[[0, 2, 3]].tolist() == [0, 1, 2]
        assert_same_answers(answers(compacted), answers(afresh))


# ---------------------------------------------------------------------------------------------------------- regressions

ALPHA = 0.3


def problem(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 5)), rng.standard_normal((n, 3))


class Fitted:
    """A regression, its kind, and the rows that it has learnt, by place."""

    def __init__(self, kind: str, n: int = 20) -> None:
        self.kind, (self.X, self.Z) = kind, problem(n)
        if kind == "kernel":
            K = self._kernel(self.X, self.X)
            C = np.linalg.solve(K + ALPHA * np.eye(n), self.Z).astype(np.float32)
            self.value: Regression = KernelRegression.of(RBF(0.5), ALPHA, C, Rows(self.X))
        else:
            zero = np.zeros((5, 3), np.float32)
            self.value = LinearRegression(Linear(), ALPHA, zero, np.zeros(3, np.float32), False)

    @staticmethod
    def _kernel(X: Array, rows: Array) -> Array:
        return np.asarray(np.exp(-0.5 * np.square(X[:, None] - rows).sum(axis=2)))

    def prepared(self, value: Regression) -> Regression:
        """Ready to be changed, from the first rows; the sums of "sums" are all that is kept after the first time."""
        rows = None if self.kind == "sums" and value.version else (lambda: (self.X, self.Z))
        return value.prepared(rows, 1)

    def predicted(self, value: Regression, X: Array, n: int) -> Array:
        """ẑ of these rows by a value that knows the first n rows."""
        likeness = RBF(0.5).likeness(X.astype(np.float32), Rows(self.X[:n].astype(np.float32)), 1)
        return np.asarray(value.predict(X, likeness if self.kind == "kernel" else None, None, 1))

    def expected(self, X: Array, Z: Array, X_new: Array) -> Array:
        """ẑ by a fit of these rows."""
        if self.kind == "kernel":
            K = self._kernel(X, X) + ALPHA * np.eye(len(X))
            return np.asarray(self._kernel(X_new, X) @ np.linalg.solve(K, Z))
        return np.asarray(X_new @ np.linalg.solve(X.T @ X + ALPHA * np.eye(5), X.T @ Z))


def learn(X: Array, Z: Array) -> RowChange:
    return RowChange((X, Z), None, None)


QUERIES = problem(9, seed=9)[0]


@pytest.mark.parametrize("kind", ["sums", "rows", "kernel"])
class TestRegressions:
    def test_a_change_is_a_fit_of_all_rows_and_the_value_before_predicts_as_it_did(self, kind: str) -> None:
        fitted = Fitted(kind)
        first = fitted.prepared(fitted.value).changed(learn(*problem(2, seed=1)))
        fitted.X, fitted.Z = (np.concatenate(both) for both in zip(problem(20), problem(2, seed=1), strict=True))
        before = fitted.predicted(first, QUERIES, 22)
        np.testing.assert_allclose(before, fitted.expected(fitted.X, fitted.Z, QUERIES), atol=1e-5)
        second = first.changed(learn(*problem(3, seed=2)))
        np.testing.assert_array_equal(fitted.predicted(first, QUERIES, 22), before)
        X, Z = (np.concatenate(both) for both in zip((fitted.X, fitted.Z), problem(3, seed=2), strict=True))
        fitted.X = X
        np.testing.assert_allclose(fitted.predicted(second, QUERIES, 25), fitted.expected(X, Z, QUERIES), atol=1e-5)
        assert second.version == first.version + 1
        assert first.in_use is None
        assert second.in_use is not None

    def test_an_older_value_learns_from_rows_where_they_are_kept_and_else_says_that_it_cannot(self, kind: str) -> None:
        fitted = Fitted(kind)
        first = fitted.prepared(fitted.value).changed(learn(*problem(2, seed=1)))
        newest = first.changed(learn(*problem(3, seed=2)))
        fitted.X, fitted.Z = (np.concatenate(both) for both in zip(problem(20), problem(2, seed=1), strict=True))
        if kind == "sums":
            with pytest.raises(
                ParameterError, match=r"has nothing to learn on from; take the newest one, or fit again"
            ):
                fitted.prepared(first)
        else:
            other = fitted.prepared(first).changed(learn(*problem(4, seed=3)))
            X, Z = (np.concatenate(both) for both in zip((fitted.X, fitted.Z), problem(4, seed=3), strict=True))
            fitted.X = X
            np.testing.assert_allclose(fitted.predicted(other, QUERIES, 26), fitted.expected(X, Z, QUERIES), atol=1e-5)
        assert newest.in_use is not None  # the newest goes on, whatever the older one did
        assert newest.changed(learn(*problem(1, seed=4))).version == newest.version + 1

    def test_a_change_that_fails_leaves_the_value_predicting_and_learning(self, kind: str) -> None:
        fitted = Fitted(kind)
        value = fitted.prepared(fitted.value).changed(learn(*problem(2, seed=1)))
        fitted.X, fitted.Z = (np.concatenate(both) for both in zip(problem(20), problem(2, seed=1), strict=True))
        before = fitted.predicted(value, QUERIES, 22)
        if kind == "kernel":
            impossible, message = RowChange(None, (None, None, np.array([99])), None), "include one without a row"
        else:
            strange = 50 * problem(1, seed=7)[0], problem(1, seed=7)[1], np.empty(0, np.int64)
            impossible, message = RowChange(None, strange, None), "was never learnt: no row has its features"
        with pytest.raises(DataError, match=message):
            value.changed(impossible)
        np.testing.assert_array_equal(fitted.predicted(value, QUERIES, 22), before)
        after = fitted.prepared(value).changed(learn(*problem(3, seed=2)))
        X, Z = (np.concatenate(both) for both in zip((fitted.X, fitted.Z), problem(3, seed=2), strict=True))
        fitted.X = X
        np.testing.assert_allclose(fitted.predicted(after, QUERIES, 25), fitted.expected(X, Z, QUERIES), atol=1e-5)

    def test_an_interrupted_change_leaves_the_value_predicting_and_learning_where_rows_are_kept(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fitted = Fitted(kind)
        value = fitted.prepared(fitted.value).changed(learn(*problem(2, seed=1)))
        fitted.X, fitted.Z = (np.concatenate(both) for both in zip(problem(20), problem(2, seed=1), strict=True))
        before = fitted.predicted(value, QUERIES, 22)

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt("half way")

        assert value.in_use is not None
        monkeypatch.setattr(type(value.in_use), "_advance", interrupt)  # after the sums or rows were changed
        with pytest.raises(KeyboardInterrupt, match="half way"):
            value.changed(learn(*problem(3, seed=2)))
        monkeypatch.undo()
        np.testing.assert_array_equal(fitted.predicted(value, QUERIES, 22), before)
        if kind == "sums":
            with pytest.raises(
                ParameterError, match=r"has nothing to learn on from; take the newest one, or fit again"
            ):
                fitted.prepared(value)
            return
        after = fitted.prepared(value).changed(learn(*problem(3, seed=2)))
        X, Z = (np.concatenate(both) for both in zip((fitted.X, fitted.Z), problem(3, seed=2), strict=True))
        fitted.X = X
        np.testing.assert_allclose(fitted.predicted(after, QUERIES, 25), fitted.expected(X, Z, QUERIES), atol=1e-5)


# -------------------------------------------------------------------------------------------------------- whole models

WORLD = worlds.zipf(n=80)
MODELS: dict[str, RIPML] = {
    "sums": RIPML.paper(n_dims=16, n_learners=2, ridge=0.3, random_state=0),
    "sums, identity": RIPML(decoder="sketch", kernel="linear", relevance=0, ridge=0.3, random_state=0),
    "sums, not normalised": RIPML(
        decoder="sketch", kernel="linear", relevance=0, ridge=0.3, normalize=False, random_state=0
    ),
    "kernel": RIPML(kernel=RBF(0.5), relevance=0, ridge=0.1, random_state=0),
}


def fitted_model(name: str) -> RIPML:
    """A model that has learnt since its fit, so that what it needs for that is in use."""
    model: RIPML = clone(MODELS[name])
    return model.fit(WORLD.X[:60], WORLD.names[:60]).partial_fit(WORLD.X[60:], WORLD.names[60:])


def scores(model: RIPML) -> Array:
    return np.asarray(model.decision_function(WORLD.X_new).toarray())


@pytest.mark.parametrize("name", MODELS)
class TestModels:
    def test_the_version_before_a_change_answers_as_it_did(self, name: str) -> None:
        model = fitted_model(name)
        version, expected = model.model_, scores(model)
        held = model.__copy__()
        model.partial_fit(WORLD.X_new[:3], [["label 00"], ["a new label"], ["label 01", "another new label"]])
        assert model.model_ is not version
        assert held.model_ is version
        np.testing.assert_array_equal(scores(held), expected)
        assert (held.n_rows_, model.n_rows_) == (80, 83)
        model.model_ = version  # undo is an assignment
        np.testing.assert_array_equal(scores(model), expected)

    def test_a_change_that_fails_in_the_search_leaves_the_model_answering_and_learning(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, twin = fitted_model(name), fitted_model(name)
        version, expected = model.model_, scores(model)

        def fail(*_: Any) -> None:
            raise MemoryError("no room for more embeddings")

        more = [["label 00", "label 05", "label 09"], ["a new label"]]
        monkeypatch.setattr(Searchers, "changed", fail)
        with pytest.raises(MemoryError, match="no room"):
            model.partial_fit(WORLD.X_new[:2], more)
        monkeypatch.undo()
        assert model.model_ is version
        np.testing.assert_array_equal(scores(model), expected)
        restored = RIPML.from_state(*model.to_state())  # it can be saved as well
        # Rounding of BLAS depends on where arrays begin in memory; the slopes of trees make it five times as large.
        np.testing.assert_allclose(scores(restored), expected, atol=1e-5)
        for one in (model, twin):  # rows with known labels only, and then the row that failed
            one.partial_fit(WORLD.X_new[2:4], worlds.names_of(WORLD.Y)[:2])
            one.partial_fit(WORLD.X_new[:2], more)
        np.testing.assert_allclose(scores(model), scores(twin), atol=1e-5)

    def test_a_row_that_was_never_learnt_is_refused_and_the_model_goes_on(self, name: str) -> None:
        model, twin = fitted_model(name), fitted_model(name)
        version, expected = model.model_, scores(model)
        with pytest.raises(DataError, match="was never learnt"):
            model.relabel(100 * WORLD.X_new[:1], [["label 39", "label 38", "label 37"]], [["a new label"]])
        assert model.model_ is version
        np.testing.assert_array_equal(scores(model), expected)
        for one in (model, twin):
            one.partial_fit(WORLD.X_new[2:4], worlds.names_of(WORLD.Y)[:2])
        np.testing.assert_array_equal(scores(model), scores(twin))


def test_a_forgotten_row_that_the_sums_contradict_leaves_a_model_with_new_labels_learning() -> None:
    """The regression has its new targets by then: they must not stay behind in the version before."""
    model, twin = (fitted_model("sums, not normalised") for _ in range(2))
    version, expected = model.model_, scores(model)
    strange = np.random.default_rng(0).standard_normal((1, WORLD.X.shape[1])) * 1e3
    Y_before, _ = version.vocabulary.encode(WORLD.names[:1])
    Y_after, vocabulary = version.vocabulary.encode([["a new label"]])
    unknown = np.array([-1])
    change = Change(
        before=LabelledRows(strange.astype(np.float32), Y_before, unknown),
        after=LabelledRows(WORLD.X_new[:1].astype(np.float32), Y_after, unknown),
        vocabulary=vocabulary,
    )
    with pytest.raises(DataError, match="was never learnt: no row has its features"):
        version.changed(change)
    np.testing.assert_array_equal(scores(model), expected)
    for one in (model, twin):
        one.partial_fit(WORLD.X_new[2:4], worlds.names_of(WORLD.Y)[:2])
    np.testing.assert_allclose(scores(model), scores(twin), atol=1e-5)


def test_after_a_failure_in_one_of_several_clusters_the_model_answers_and_says_that_it_cannot_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = RIPML.paper(n_dims=16, n_learners=2, ridge=0.3, n_clusters=3, random_state=0)
    model.fit(WORLD.X[:60], WORLD.names[:60]).partial_fit(WORLD.X[60:], WORLD.names[60:])
    version, expected = model.model_, scores(model)
    changes: list[int] = []
    original = incremental.IncrementalRidge.change

    def fail_second(self: incremental.IncrementalRidge, *rows: Any) -> None:
        changes.append(1)
        if len(changes) == 2:
            raise MemoryError("half way")
        original(self, *rows)

    monkeypatch.setattr(incremental.IncrementalRidge, "change", fail_second)
    with pytest.raises(MemoryError, match="half way"):
        model.partial_fit(WORLD.X_new[:20], worlds.names_of(WORLD.Y)[:20])
    monkeypatch.undo()
    assert model.model_ is version
    np.testing.assert_array_equal(scores(model), expected)
    with pytest.raises(ParameterError, match=r"has nothing to learn on from; take the newest one, or fit again"):
        model.partial_fit(WORLD.X_new[:20], worlds.names_of(WORLD.Y)[:20])
    np.testing.assert_array_equal(scores(model), expected)
