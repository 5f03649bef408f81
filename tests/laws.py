"""The laws of the core: each a function whose docstring is the law; the test files run them over their subjects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import clone

import ripml
from ripml import RIPML
from ripml.base import model_folder
from ripml.base.arrays import GrowingArray
from ripml.base.errors import DataError, ParameterError
from ripml.labels.ensembles import Ensemble
from ripml.labels.projection import Projection
from ripml.neighbors import HNSW, IVF, LSH, Auto, Bits, Exact, Searcher
from ripml.regression import RidgeSolver
from ripml.regression.regression import LinearRegression

Array = NDArray[Any]
Index = Auto | Bits | Exact | HNSW | IVF | LSH  # rows can be added to these and removed

# ------------------------------------------------------------------------------------------------------- ensembles


def a_column_depends_on_seed_and_key_alone(ensemble: Ensemble, n_dims: int, keys: Array) -> None:
    """Column j of Phi is a pure function of (seed, key j): the same in any subset, order, block and stride."""
    whole = ensemble.columns(keys, n_dims, seed=5)
    assert whole.shape == (len(keys), n_dims)
    assert whole.dtype == np.float32
    shuffled = np.random.default_rng(0).permutation(len(keys))
    np.testing.assert_array_equal(ensemble.columns(keys[shuffled], n_dims, seed=5), whole[shuffled])
    np.testing.assert_array_equal(ensemble.columns(keys[::-3], n_dims, seed=5), whole[::-3])
    np.testing.assert_array_equal(ensemble.columns(keys[7:8], n_dims, seed=5), whole[7:8])
    np.testing.assert_array_equal(ensemble.columns(np.repeat(keys[:1], 3), n_dims, seed=5), whole[[0, 0, 0]])
    assert ensemble.columns(keys[:0], n_dims, seed=5).shape == (0, n_dims)


def columns_do_not_depend_on_threads(ensemble: Ensemble, n_dims: int, keys: Array) -> None:
    """Any number of threads makes the same columns."""
    one = ensemble.columns(keys, n_dims, seed=5, n_jobs=1)
    for n_jobs in (2, 3, None):
        np.testing.assert_array_equal(ensemble.columns(keys, n_dims, 5, n_jobs), one)


def columns_have_length_one_on_average(ensemble: Ensemble, n_dims: int, keys: Array) -> None:
    """E‖column‖² = 1: the mean over many columns is 1 within five standard errors."""
    squares = np.square(ensemble.columns(keys, n_dims, seed=5), dtype=np.float64).sum(axis=1)
    assert abs(squares.mean() - 1) <= 5 * squares.std() / np.sqrt(len(keys)) + 1e-5


def fewer_learners_are_the_first_of_more(ensemble: Ensemble, n_dims: int, keys: Array) -> None:
    """The columns of F learners are a prefix of those of any larger F."""
    three = Projection(ensemble, n_dims, 3, seed=9).columns(keys)
    five = Projection(ensemble, n_dims, 5, seed=9).columns(keys)
    np.testing.assert_array_equal(three, five[:, : 3 * n_dims])


def learners_and_seeds_differ(ensemble: Ensemble, n_dims: int, keys: Array) -> None:
    """No two learners and no two seeds give the same matrix, and they are as good as uncorrelated."""
    stacked = np.hstack([Projection(ensemble, n_dims, 3, seed).columns(keys) for seed in (0, 1)]).astype(np.float64)
    matrices = [part.ravel() for part in np.split(stacked, 6, axis=1)]
    correlation = np.corrcoef(matrices) - np.eye(6)
    assert np.abs(correlation).max() < 6 / np.sqrt(len(matrices[0])) + 1 / np.sqrt(n_dims)


def an_embedding_is_the_dense_formula(ensemble: Ensemble, n_dims: int, Y: Any, keys: Array) -> None:
    """embed(Y) = Phi y/‖y‖ for each row, float32, and zero for a row without labels; threads do not matter."""
    projection = Projection(ensemble, n_dims, 3, seed=2)
    Z = projection.embed(Y, keys)
    assert Z.dtype == np.float32
    dense = Y.toarray().astype(np.float64)
    length = np.sqrt(dense.sum(axis=1, keepdims=True))
    expected = dense / np.where(length, length, 1) @ projection.columns(keys).astype(np.float64)
    np.testing.assert_allclose(Z, expected, atol=2e-6)
    np.testing.assert_array_equal(Z[length[:, 0] == 0], 0)
    for n_jobs in (1, 2, 3):
        np.testing.assert_array_equal(projection.embed(Y, keys, n_jobs), Z)


# ----------------------------------------------------------------------------------------------------------- ridge


def reference_ridge(X: Array, Z: Array, alpha: float) -> Array:
    """Psi by the singular values of X in float64, the solution of least norm where there are many."""
    U, s, Vt = np.linalg.svd(X.astype(np.float64), full_matrices=False)
    kept = s > max(X.shape) * np.finfo(np.float64).eps * s.max(initial=0)
    filtered = np.where(kept, s / np.where(kept, s**2 + alpha, 1), 0)
    return np.asarray(Vt.T @ (filtered[:, None] * (U.T @ Z.astype(np.float64))))


def relative_error(found: Array, expected: Array) -> float:
    """‖found − expected‖/‖expected‖."""
    return float(np.linalg.norm(found - expected) / max(float(np.linalg.norm(expected)), 1e-300))


def a_solver_finds_the_ridge_solution(solver: RidgeSolver, X: Array, Z: Array, alpha: float, bound: float) -> None:
    """Every solver finds the one Psi, from dense and from sparse X, within its relative error bound."""
    expected = reference_ridge(X, Z, alpha)
    for features in (X, scipy.sparse.csr_array(X)):
        solution = solver.prepare(features, Z)(alpha)
        assert solution.solver == solver.word
        assert solution.converged
        assert relative_error(solution.Psi, expected) <= bound


def leaving_out_equals_refitting(solver: RidgeSolver, X: Array, Z: Array, alpha: float, bound: float) -> None:
    """The leave-one-out prediction of a row is that of a regression which never saw the row."""
    rows = np.arange(0, len(X), 2)
    others = [np.delete(np.arange(len(X)), row) for row in rows]
    expected = np.stack(
        [X[row] @ reference_ridge(X[seen], Z[seen], alpha) for row, seen in zip(rows, others, strict=True)]
    )
    for features in (X, scipy.sparse.csr_array(X)):
        found = solver.prepare(features, Z)(alpha).left_out(rows)
        assert np.abs(found - expected).max() <= bound * np.abs(Z).max()


# ------------------------------------------------------------------------------------------------------ neighbours


def brute_force(Z: Array, Q: Array, k: int) -> tuple[Array, Array]:
    """The k nearest rows by float64 distances, ties by the lower row number."""
    distances = np.stack([np.square(Z.astype(np.float64) - q).sum(axis=1) for q in Q.astype(np.float64)])
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


def an_exact_index_finds_what_brute_force_finds(index: Index, Z: Array, Q: Array, k: int) -> None:
    """An exact index returns the k nearest rows in order with their squared distances, ties by the lower number."""
    ids, distances = index.build(Z).query(Q, k)
    expected_ids, expected_distances = brute_force(Z, Q, k)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(distances, expected_distances, rtol=1e-12)


def neighbours_do_not_depend_on_threads_or_batches(index: Index, Z: Array, Q: Array, k: int) -> None:
    """The answer to a query is the same for any number of threads, and alone as in a batch."""
    searcher = index.build(Z)
    ids, distances = searcher.query(Q, k, n_jobs=1)
    for n_jobs in (2, 3):
        again = searcher.query(Q, k, n_jobs)
        np.testing.assert_array_equal(again[0], ids)
        np.testing.assert_array_equal(again[1], distances)
    singly = [searcher.query(Q[row : row + 1], k) for row in range(len(Q))]
    np.testing.assert_array_equal(np.concatenate([one for one, _ in singly]), ids)
    np.testing.assert_array_equal(np.concatenate([one for _, one in singly]), distances)


def agree(found: tuple[Array, Array], expected: tuple[Array, Array], least: float = 1) -> None:
    """Two answers are the same, or, below 1, have on average at least this share of their neighbours in common."""
    if least == 1:
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)
        return
    common = [len(np.intersect1d(one, other)) for one, other in zip(found[0], expected[0], strict=True)]
    assert np.mean(common) >= least * found[0].shape[1]


def an_answer_is_true(answer: tuple[Array, Array], rows: dict[int, Array], Q: Array, k: int) -> None:
    """k different present rows, nearest first, ties by the lower number, with their float64 distances."""
    ids, distances = answer
    assert ids.shape == distances.shape == (len(Q), k)
    assert ids.dtype == np.int64
    assert distances.dtype == np.float64
    for q, near, squares in zip(Q.astype(np.float64), ids.tolist(), distances.tolist(), strict=True):
        assert len(set(near)) == k
        assert list(zip(squares, near, strict=True)) == sorted(zip(squares, near, strict=True))
        assert set(near) <= set(rows)
        expected = np.square(np.stack([rows[row] for row in near]).astype(np.float64) - q).sum(axis=1)
        np.testing.assert_allclose(squares, expected, rtol=1e-9)


def adding_rows_equals_building_with_them(index: Index, Z: Array, Q: Array, k: int, least: float = 1) -> None:
    """Rows added at once or one by one are found as if the index had been built with them."""
    expected, none = index.build(Z).query(Q, k), np.empty(0, np.int64)
    rows = dict(enumerate(Z))
    for start in (len(Z) - 3, len(Z) // 2):
        growing = GrowingArray(Z[:start])
        singly: Searcher = index.build(growing.view)
        for row in range(start, len(Z)):
            singly = singly.changed(growing.append(Z[row : row + 1]), none)
        for searcher in (index.build(Z[:start]).changed(Z, none), singly):
            assert searcher.n_rows == len(Z)
            found = searcher.query(Q, k)
            an_answer_is_true(found, rows, Q, k)
            agree(found, expected, least)


def a_removed_row_is_never_found_and_no_other_number_changes(
    index: Index, Z: Array, Q: Array, k: int, least: float = 1
) -> None:
    """The rows left are found as by brute force over them, under their old numbers, however many are removed."""
    searcher: Searcher = index.build(Z)
    left = np.arange(len(Z))
    while len(left) - max(1, len(left) // 3) >= k:
        # The rows that are found most often are removed, so that each removal has an effect.
        gone = np.unique(searcher.query(Q, k)[0])[: max(1, len(left) // 3)]
        searcher = searcher.changed(Z, gone)
        left = np.setdiff1d(left, gone)
        assert searcher.n_rows == len(left)
        found = searcher.query(Q, k)
        an_answer_is_true(found, {row: Z[row] for row in left.tolist()}, Q, k)
        order, distances = brute_force(Z[left], Q, k)
        agree(found, (left[order], distances), least)


def learn_then_forget_equals_never_learnt(
    index: Index, Z: Array, more: Array, Q: Array, k: int, least: float = 1
) -> None:
    """Rows that were added and removed change no answer."""
    growing = GrowingArray(Z)
    searcher: Searcher = index.build(Z)
    expected = searcher.query(Q, k)
    for _ in range(3):
        start = growing.size
        searcher = searcher.changed(growing.append(more), np.empty(0, np.int64))
        searcher = searcher.changed(growing.view, np.arange(start, growing.size)[::-1])
        assert searcher.n_rows == len(Z)
        agree(searcher.query(Q, k), expected, least)


def restored_equals_built(index: Index, Z: Array, Q: Array, k: int, least: float = 1) -> None:
    """A searcher made from its plain arrays and the embeddings gives the same answers, also after a change."""
    built = index.build(Z)
    arrays = built.arrays()
    assert not any(array.dtype.hasobject for array in arrays.values())
    restored = index.restore(Z, arrays)
    assert restored.n_rows == built.n_rows
    agree(restored.query(Q, k), built.query(Q, k))
    more, removed = np.concatenate([Z, Z[:2]]), np.array([0, len(Z)])
    agree(restored.changed(more, removed).query(Q, k), built.changed(more, removed).query(Q, k), least)


def a_row_that_is_not_present_cannot_be_removed(index: Index, Z: Array) -> None:
    """A number out of range, removed already, or named twice is refused, and nothing is removed then."""
    searcher = index.build(Z).changed(Z, np.array([1]))
    for wrong in ([len(Z)], [-1], [0, 1], [2, 2]):
        with pytest.raises(DataError, match="removed"):
            searcher.changed(Z, np.array(wrong))
    assert searcher.n_rows == len(Z) - 1
    for k in (0, len(Z)):
        with pytest.raises(ParameterError, match=f"`k` must be from 1 to {len(Z) - 1}, the rows that can be found"):
            searcher.query(Z[:1].astype(np.float32), k)


def changed_equals_built_afresh(index: Index, Z: Array, Q: Array, k: int, least: float = 1) -> None:
    """However rows come and go, the remaining ones are found as if the index had been built on them alone, and older
    searchers give the answers that they gave, to the bit.
    """
    n, growing = len(Z), GrowingArray(Z[:0])
    searcher: Searcher = index.build(growing.view)
    left, before = np.arange(0), []
    assert searcher.n_rows == 0
    # Add rows up to the first number, then remove this share of all: none, one, a third, most of them.
    for stop, share in ((n // 2, 0), (n // 2 + 1, 0), (n // 2 + 2, 0.001), (n - n // 3, 0.3), (n - n // 3, 0.7),
                        (n - n // 3 + 1, 0.001), (n - 1, 0), (n, 0.1), (n, 0.9), (n, 0)):  # fmt: skip
        left = np.append(left, np.arange(len(growing.view), stop))
        # The newest row and those that are found most often are removed first, so that each removal has an effect.
        found = np.unique(searcher.query(Q, k)[0]) if searcher.n_rows >= k else left[:0]
        wanted = list(dict.fromkeys([*left[-1:], *found, *left]))
        gone = np.array(wanted[: min(int(np.ceil(share * len(left))), max(0, len(left) - k))], np.int64)
        left = np.setdiff1d(left, gone)
        searcher = searcher.changed(growing.append(Z[len(growing.view) : stop]), gone)
        assert searcher.n_rows == len(left)
        answer = searcher.query(Q, k)
        an_answer_is_true(answer, {row: Z[row] for row in left.tolist()}, Q, k)
        order, distances = index.build(Z[left]).query(Q, k)
        agree(answer, (left[order], distances), least)
        order, distances = brute_force(Z[left], Q, k)
        agree(answer, (left[order], distances), least)
        restored = index.restore(Z[left], searcher.arrays())
        agree(restored.query(Q, k), (order, distances), least)  # numbered from 0 again
        before.append((searcher, answer))
    for older, answer in before:
        again = older.query(Q, k)
        np.testing.assert_array_equal(again[0], answer[0])
        np.testing.assert_array_equal(again[1], answer[1])


def a_searcher_answers_while_newer_ones_are_made(index: Index, Z: Array, Q: Array, k: int) -> None:
    """A searcher gives the same answers while a thread makes newer ones from it and queries them."""
    half, growing = len(Z) // 2, GrowingArray(Z[: len(Z) // 2])
    first: Searcher = index.build(growing.view)
    expected = first.query(Q, k, 1)

    def write() -> list[Searcher]:
        made = [first]
        for row in range(half, len(Z)):
            made.append(made[-1].changed(growing.append(Z[row : row + 1]), np.array([row - half])))
            made[-1].query(Q[:1], k, 1)
        return made

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        done = False
        while not done:
            done = writer.done()  # at least one query comes after the last searcher is made
            found = first.query(Q, k, 1)
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_array_equal(found[1], expected[1])
        made = writer.result()
    assert [searcher.n_rows for searcher in made] == [half] * len(made)
    for removed in (1, len(Z) - half):
        assert made[removed].query(Q, k)[0].min() >= removed


def shared_rows_stay_as_they_are(index: Index, Z: Array, Q: Array, k: int) -> None:
    """Two searchers may be made from the same one, and none of the three changes an answer of the others. Rows that do
    not continue the present ones are refused, and nothing changes then.
    """
    n, none = len(Z) // 2, np.empty(0, np.int64)
    first: Searcher = index.build(Z[:n])
    one, other = (first.changed(rows, none) for rows in (Z[: n + 2], np.concatenate([Z[:n], Z[n + 2 : n + 5]])))
    expected = [searcher.query(Q, k) for searcher in (first, one, other)]
    for searcher in (first, one, other):
        for wrong in (Z[:, 1:], Z.astype(np.float64), Z[0]):
            with pytest.raises(DataError, match="the embeddings to be searched must be"):
                searcher.changed(wrong, none)
        with pytest.raises(DataError, match=rf"must begin with the \d+ present ones; got {n - 1}\."):
            searcher.changed(Z[: n - 1], none)
        for numbers in ([len(Z)], [-1], [0, 0]):
            with pytest.raises(DataError, match="removed"):
                searcher.changed(Z, np.array(numbers))
    with pytest.raises(DataError, match="row 1 cannot be removed: it does not exist, or is removed already"):
        one.changed(Z, np.array([1])).changed(Z, np.array([1]))
    agree(one.changed(Z, none).query(Q, k), first.changed(Z, none).query(Q, k))
    for searcher, answer in zip((first, one, other), expected, strict=True):
        agree(searcher.query(Q, k), answer)


# ------------------------------------------------------------------------------------------------------- estimator


def assert_same_scores(found: Any, expected: Any) -> None:
    """Two CSR matrices of scores are equal cell by cell."""
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.toarray(), expected.toarray())


def assert_scores_agree(model: RIPML, found: Any, expected: Any) -> None:
    """Votes are equal cell by cell. Other scores are made in float32 and agree to 1e-4, but for one cell in two hundred
    where a signal lies on the very edge of a leaf."""
    if model.decoder == "votes":
        assert_same_scores(found, expected)
        return
    assert found.shape == expected.shape
    difference = np.abs(found.toarray() - expected.toarray())
    assert np.mean(difference > 1e-4) <= 0.005, np.sort(difference.ravel())[-10:]


def sparse_equals_dense(model: RIPML, X: Array, Y: Any, X_new: Array) -> None:
    """Features give the same scores dense, as CSR array or matrix, with unsorted or doubled cells."""
    expected = clone(model).fit(X, Y).decision_function(X_new)
    doubled = scipy.sparse.csr_array(
        (
            np.repeat(X.ravel() / 2, 2),
            np.repeat(np.tile(np.arange(X.shape[1]), len(X)), 2),
            np.arange(len(X) + 1) * 2 * X.shape[1],
        ),
        shape=X.shape,
    )
    before = doubled.data.copy()
    for features in (scipy.sparse.csr_array(X), scipy.sparse.csr_matrix(X), doubled):
        fitted = clone(model).fit(features, Y)
        assert_scores_agree(model, fitted.decision_function(scipy.sparse.csr_array(X_new)), expected)
    np.testing.assert_array_equal(doubled.data, before)


def one_by_one_equals_batch(fitted: RIPML, X_new: Array) -> None:
    """A row has the same scores alone as among others."""
    together = fitted.decision_function(X_new)
    singly = scipy.sparse.vstack([fitted.decision_function(X_new[row : row + 1]) for row in range(len(X_new))])
    assert_scores_agree(fitted, singly, together)


def threads_do_not_matter(model: RIPML, X: Array, Y: Any, X_new: Array) -> None:
    """For one random_state a model is the same whatever n_jobs is."""
    fits = [clone(model).set_params(n_jobs=n_jobs).fit(X, Y) for n_jobs in (1, 2, 3)]
    for fitted in fits[1:]:
        assert_same_scores(fitted.decision_function(X_new), fits[0].decision_function(X_new))
        assert fitted.threshold_ == fits[0].threshold_
        assert fitted.left_out_precision_ == fits[0].left_out_precision_
        np.testing.assert_array_equal(fitted.ridge_, fits[0].ridge_)


def saved_equals_loaded(fitted: RIPML, X_new: Any, folder: Path) -> None:
    """A model that was saved and loaded, memory-mapped, gives the same answers and reports the same facts."""
    loaded = saved_scores_equal_loaded(fitted, X_new, folder)
    assert loaded.solutions_ == fitted.solutions_
    np.testing.assert_array_equal(loaded.ridge_, fitted.ridge_)
    for cluster, expected in zip(loaded.clusters_, fitted.clusters_, strict=True):
        np.testing.assert_array_equal(coefficients(cluster.regression), coefficients(expected.regression))
        assert is_memory_mapped(coefficients(cluster.regression))
        assert is_memory_mapped(cluster.index.Z) == ("Z" in model_folder.load(folder).arrays)  # or made again
        one, other = (some.index.searched(some.index.Z, some.index.index.storage) for some in (cluster, expected))
        np.testing.assert_array_equal(one, other)


def coefficients(regression: Any) -> Array:
    """Psi (d, M) of a linear regression, or C (n, M) of one by kernel."""
    return np.asarray(regression.Psi if isinstance(regression, LinearRegression) else regression.coefficients)


def is_memory_mapped(array: Any) -> bool:
    """Whether an array is a view of a file."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def saved_scores_equal_loaded(fitted: Any, X_new: Any, folder: Path) -> Any:
    """Any estimator that was saved and loaded gives the same scores, labels and values, and so does a copy of it."""
    fitted.save(folder)
    loaded = ripml.load(folder)
    assert type(loaded) is type(fitted)
    assert_same_scores(loaded.decision_function(X_new), fitted.decision_function(X_new))
    assert_same_scores(loaded.predict(X_new), fitted.predict(X_new))
    assert loaded.recommend(X_new, n=3) == fitted.recommend(X_new, n=3)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    assert loaded.classes_.dtype == fitted.classes_.dtype
    for name in ("n_rows_", "n_unlabelled_", "threshold_", "left_out_precision_", "n_features_in_", "seed_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    again = folder.parent / "again"
    loaded.save(again)
    assert_same_scores(ripml.load(again).decision_function(X_new), fitted.decision_function(X_new))
    return loaded


def the_order_of_rows_does_not_matter(model: RIPML, X: Array, Y: Any, X_new: Array) -> None:
    """Training rows in another order give the same scores."""
    shuffled = np.random.default_rng(1).permutation(len(X))
    expected = clone(model).fit(X, Y)
    fitted = clone(model).fit(X[shuffled], Y[shuffled])
    assert_same_scores(fitted.decision_function(X_new), expected.decision_function(X_new))
    assert fitted.threshold_ == expected.threshold_


def learnt_then_forgotten_equals_never_learnt(fitted: RIPML, X: Any, names: Any, X_new: Any) -> None:
    """Rows that were learnt, also with labels that are new, and forgotten again leave no trace in any score.

    The version from before the change goes on giving its answers, to the bit.
    """
    before, expected = fitted.__copy__(), fitted.decision_function(X_new)
    n_labels, n_rows = len(fitted.classes_), fitted.n_rows_
    changed = fitted.__copy__().partial_fit(X, names)
    assert changed.n_rows_ == n_rows + len(names)
    assert np.abs(changed.decision_function(X_new)[:, :n_labels] - expected).max() > 0  # so forgetting has an effect
    for row in reversed(range(len(names))):  # one by one, in another order than they were learnt
        changed.forget(X[row : row + 1], [names[row]])
        assert changed.n_rows_ == n_rows + row
    found = changed.decision_function(X_new)
    assert not found[:, n_labels:].nnz
    assert_scores_agree(fitted, found[:, :n_labels], expected)
    np.testing.assert_array_equal(changed.frequency_[:n_labels], fitted.frequency_)
    assert_same_scores(before.decision_function(X_new), expected)


def a_new_label_leaves_old_scores_unchanged(fitted: RIPML, X_new: Any) -> None:
    """A label that no row carries changes no score of another label by a bit, and has no score itself."""
    expected = fitted.decision_function(X_new)
    wider = fitted.__copy__().add_labels(["a label that no row carries", "another one"])
    found = wider.decision_function(X_new)
    assert found.shape[1] == expected.shape[1] + 2
    assert not found[:, -2:].nnz
    assert_same_scores(found[:, :-2], expected)


def contributions_add_up_to_the_score(fitted: RIPML, X_new: Any) -> None:
    """The shares of examples and regression in a score are not negative and add up to it; the pulls of the features and
    the intercept add up to the value of the regression."""
    n_features = X_new.shape[1]
    explained = fitted.explain(X_new, n=4, n_examples=10_000, n_features=n_features)
    recommended = fitted.recommend(X_new, n=4)
    assert [[(one.label, one.score) for one in row] for row in explained] == recommended
    assert any(explained)
    for one in (one for row in explained for one in row):
        shares = [example.share for example in one.examples]
        assert min([*shares, one.regression], default=0) >= 0
        assert one.others == 0  # no example is left out of the list
        assert sum(shares) + one.regression == pytest.approx(one.score, rel=1e-9, abs=1e-15)
        assert sum(pull for _, pull in one.features) + one.intercept == pytest.approx(one.value, rel=1e-9, abs=1e-12)
