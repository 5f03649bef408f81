"""The local kernel: kernel ridge on the rows most similar to a query, how it is chosen, and models that use it."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import laws
import numpy as np
import pytest
import scipy.sparse
import worlds
from numpy.typing import NDArray

import ripml
from ripml import RIPML
from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.base.products import BitCodes
from ripml.decoding.calibration import mean_precision
from ripml.decoding.decoders import Blend
from ripml.decoding.fitted import LeftOut
from ripml.decoding.label_set_index import DirectionIndex
from ripml.decoding.signals import FittedSignals
from ripml.decoding.training_rows import TrainingRows
from ripml.decoding.votes import softmax, tally
from ripml.labels.encoding import label_keys
from ripml.labels.label_sets import distinct_sets
from ripml.model import fitting
from ripml.model.cluster import Cluster
from ripml.model.fitting import ClusterFit
from ripml.neighbors import Exact, bits
from ripml.regression import kernels
from ripml.regression.kernels import RBF, Linear, Local, Rows, squared_lengths
from ripml.regression.regression import LinearRegression

KINDS = {"dense": lambda X: X, "sparse": scipy.sparse.csr_array}
ZIPF = worlds.zipf()


def unit(X: Any) -> NDArray[np.float32]:
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True), np.float32)


def cluster_of(X: Any, Y: Any, kernel: Local, kind: str = "dense") -> Cluster:
    """The cluster of these rows, whose regression has learnt nothing."""
    sets = distinct_sets(Y, label_keys(np.arange(Y.shape[1])))
    Psi, intercept = np.zeros((X.shape[1], Y.shape[1]), np.float32), np.zeros(Y.shape[1], np.float32)
    embeddings = np.empty((1, len(sets.counts), 0), np.float32)  # none: neighbours are not searched here
    return Cluster(
        LinearRegression(kernel, 1.0, Psi, intercept, with_intercept=True),
        DirectionIndex.of(Y[sets.first], sets.counts, embeddings, Exact()),
        TrainingRows(Rows(KINDS[kind](X)), sets.of_row, np.arange(len(sets.of_row)), kernel),
    )


def rows_of(cluster: Cluster) -> TrainingRows:
    """The training rows of a cluster that keeps them."""
    assert cluster.rows is not None
    return cluster.rows


def local_values(cluster: Cluster, X: Any, kernels: list[Local], left_out: Any = None) -> list[NDArray[np.float64]]:
    """The values of all labels by kernel ridge near each of the rows X."""
    rows = rows_of(cluster)
    ids, likeness = rows.most_similar(rows.likeness(X, 1), kernels[0].n_rows, left_out)
    weights = rows.local_weights(ids, likeness, squared_lengths(X), kernels)
    return [tally(rows.set_of_row[ids], some, cluster.index.sets).toarray() for some in weights]


def rbf(X: Any, rows: Any, gamma: float) -> NDArray[np.float64]:
    """exp(−γ‖x − x'‖²), pair by pair in float64."""
    X, rows = X.astype(np.float64), rows.astype(np.float64)
    return np.asarray(np.exp(-gamma * np.square(X[:, None] - rows[None]).sum(axis=2)))


def kernel_ridge(X: Any, Y: Any, X_new: Any, kernel: Local) -> NDArray[np.float64]:
    """Kernel ridge on all these rows by numpy in float64."""
    gamma, ridge = float(kernel.gamma), float(kernel.ridge)
    C = np.linalg.solve(rbf(X, X, gamma) + ridge * np.eye(len(X)), Y.toarray().astype(np.float64))
    return np.asarray(rbf(X_new, X, gamma) @ C)


OPTIONS = [Local(gamma, ridge) for gamma in (0.3, 2.0) for ridge in (0.03, 1.0)]


# -------------------------------------------------------------------------------------------------- one cluster's rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", ["unit", "of any length"])
class TestKernelRidgeNearAQuery:
    def rows(self, scale: str) -> tuple[NDArray[np.float32], Any, NDArray[np.float32]]:
        make = unit if scale == "unit" else lambda X: np.asarray(0.5 * X, np.float32)
        return make(ZIPF.X[:80]), ZIPF.Y[:80], make(ZIPF.X_new[:30])

    @pytest.mark.parametrize("n_rows", [80, 81, 500])
    def test_on_all_rows_it_is_kernel_ridge(self, kind: str, scale: str, n_rows: int) -> None:
        X, Y, X_new = self.rows(scale)
        kernels = [replace(kernel, n_rows=n_rows) for kernel in OPTIONS]
        cluster = cluster_of(X, Y, kernels[0], kind)
        for kernel, found in zip(kernels, local_values(cluster, KINDS[kind](X_new), kernels), strict=True):
            np.testing.assert_allclose(found, kernel_ridge(X, Y, X_new, kernel), atol=2e-3)

    @pytest.mark.parametrize("n_rows", [1, 2, 20, 79])
    def test_on_some_rows_it_is_kernel_ridge_on_the_most_similar(self, kind: str, scale: str, n_rows: int) -> None:
        X, Y, X_new = self.rows(scale)
        kernels = [replace(kernel, n_rows=n_rows) for kernel in OPTIONS]
        cluster = cluster_of(X, Y, kernels[0], kind)
        ids, similarity = rows_of(cluster).most_similar(rows_of(cluster).likeness(KINDS[kind](X_new), 1), n_rows)
        assert ids.shape == similarity.shape == (30, n_rows)
        distances = ((X_new[:, None] - X) ** 2).sum(axis=2)
        np.testing.assert_allclose(
            (X_new**2).sum(axis=1)[:, None] - 2 * similarity, np.sort(distances, axis=1)[:, :n_rows], atol=1e-4
        )
        for kernel, found in zip(kernels, local_values(cluster, KINDS[kind](X_new), kernels), strict=True):
            expected = [kernel_ridge(X[near], Y[near], X_new[[i]], kernel)[0] for i, near in enumerate(ids)]
            np.testing.assert_allclose(found, np.stack(expected), atol=2e-3)

    @pytest.mark.parametrize("n_rows", [20, 80])
    def test_a_row_left_out_is_one_never_seen(self, kind: str, scale: str, n_rows: int) -> None:
        X, Y, _ = self.rows(scale)
        kernel = Local(0.5, 0.1, n_rows)
        left_out = np.arange(0, 80, 4)
        (found,) = local_values(cluster_of(X, Y, kernel, kind), KINDS[kind](X[left_out]), [kernel], left_out)
        for row, scores in zip(left_out, found, strict=True):
            others = np.arange(80) != row
            (expected,) = local_values(cluster_of(X[others], Y[others], kernel, kind), KINDS[kind](X[[row]]), [kernel])
            np.testing.assert_allclose(scores, expected[0], atol=1e-4)
            if n_rows == 80:
                refit = kernel_ridge(X[others], Y[others], X[[row]], kernel)[0]
                np.testing.assert_allclose(scores, refit, atol=2e-3)

    def test_leaving_out_the_only_row_leaves_no_value(self, kind: str, scale: str) -> None:
        X, Y, _ = self.rows(scale)
        cluster = cluster_of(X[:1], Y[:1], OPTIONS[0], kind)
        (found,) = local_values(cluster, KINDS[kind](X[:1]), [OPTIONS[0]], np.array([0]))
        np.testing.assert_array_equal(found, np.zeros((1, 40)))


def test_the_most_similar_rows_come_first_and_a_row_left_out_comes_last() -> None:
    cluster = cluster_of(np.eye(3, dtype=np.float32), scipy.sparse.csr_array(np.eye(3)), Local())
    rows, likeness = rows_of(cluster), np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.8]], np.float32)
    ids, similarity = rows.most_similar(likeness.copy(), 2)
    assert ids.tolist() == [[1, 2], [2, 0]]
    np.testing.assert_array_equal(similarity, np.array([[0.9, 0.5], [0.8, 0.3]], np.float32))
    ids, similarity = rows.most_similar(likeness.copy(), 9, np.array([1, 0]))
    assert ids.tolist() == [[2, 0, 1], [2, 1, 0]]
    np.testing.assert_array_equal(similarity, np.array([[0.5, 0.1, -np.inf], [0.8, 0.2, -np.inf]], np.float32))
    weights = softmax(similarity.astype(np.float64), 0.1, np.isfinite(similarity))
    votes = tally(rows.set_of_row[ids], weights, cluster.index.sets)
    np.testing.assert_array_equal(votes.toarray()[[0, 1], [1, 0]], 0)
    np.testing.assert_allclose(votes.sum(axis=1), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_features_are_nobodys_neighbours(kind: str) -> None:
    X = unit(np.random.default_rng(0).random((60, 40)) ** 8)
    X[::12] = 0
    cluster = cluster_of(X, scipy.sparse.csr_array(np.eye(60)), Local(), kind)
    rows, queries = rows_of(cluster), KINDS[kind](X[1:12])
    for ids, likeness in (rows.nearest(queries, 20), rows.most_similar(rows.likeness(queries, 1), 20)):
        assert not np.isin(ids, np.arange(0, 60, 12)).any()
        assert np.isfinite(likeness).all()
    ids, likeness = rows.nearest(queries, 60)
    assert np.isinf(likeness[:, 55:]).all()
    assert np.isfinite(likeness[:, :55]).all()


def test_rows_that_all_have_no_features_vote_as_before() -> None:
    X = np.zeros((3, 2), np.float32)
    _, likeness = rows_of(cluster_of(X, scipy.sparse.csr_array(np.eye(3)), Local())).nearest(X[:1], 2)
    assert np.isfinite(likeness).all()


def test_twins_with_next_to_no_ridge_are_refused_with_the_remedy() -> None:
    X = np.repeat(np.eye(2, dtype=np.float32), 30, axis=0)
    kernel = Local(0.5, 1e-12)
    with pytest.raises(DataError, match=r"^the kernel matrix is not positive definite at ridge = 1e-12; use a larger"):
        local_values(cluster_of(X, scipy.sparse.csr_array(np.eye(60)), kernel), X[:1], [kernel])


# --------------------------------------------------------------------------------------------------- what is chosen


def sectors(n: int = 240, seed: int = 0) -> tuple[NDArray[np.float32], Any]:
    """Points of a circle that carry the label of their sector, eight labels in turn: only a narrow kernel sees them."""
    angle = 2 * np.pi * np.random.default_rng(seed).random(n)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    return X, scipy.sparse.csr_array(np.eye(8)[(angle * 16 / (2 * np.pi)).astype(int) % 8])


def fit_of(X: Any, Y: Any, kernel: Local, n_left_out: int) -> ClusterFit:
    """A fitted cluster of these rows, of which the first were left out."""
    cluster, rows = cluster_of(X, Y, kernel), np.arange(n_left_out)
    left_out = LeftOut(Y[rows], None, X[rows], np.zeros((n_left_out, Y.shape[1]), np.float32), rows)
    return ClusterFit(cluster, {}, left_out)


def tuned(kernel: Local, *fits: ClusterFit, n_jobs: int = 1) -> Local:
    """The local kernel that is chosen on the rows that these fits left out."""
    return fitting._tuned_local(kernel, fits, n_jobs)


@functools.cache
def qualities(n_left_out: int, n_rows: int = 60) -> dict[Local, float]:
    """The mean precision of every option on rows left out."""
    X, Y = sectors()
    options = [Local(gamma, ridge, n_rows) for gamma in fitting._GAMMAS for ridge in fitting._RIDGES]
    scores = local_values(cluster_of(X, Y, options[0]), X[:n_left_out], options, np.arange(n_left_out))
    found = zip(options, scores, strict=True)
    return {option: mean_precision(Y[:n_left_out], scipy.sparse.csr_array(score)) for option, score in found}


def test_the_best_kernel_on_rows_left_out_is_chosen() -> None:
    X, Y = sectors()
    tried = qualities(150)
    assert max(tried.values()) > min(tried.values()) + 0.05
    kernel = Local(n_rows=60)
    chosen = tuned(kernel, fit_of(X, Y, kernel, 150))
    assert chosen.n_rows == 60
    assert tried[chosen] == max(tried.values())


def test_the_choice_is_made_on_a_limited_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_ROWS_TO_TUNE_LOCAL", 100)
    X, Y = sectors()
    kernel = Local(n_rows=60)
    chosen = tuned(kernel, fit_of(X, Y, kernel, 150))
    assert qualities(100)[chosen] == max(qualities(100).values())


@pytest.mark.parametrize("given", [{"gamma": 3.0}, {"ridge": 0.7}, {"gamma": 3.0, "ridge": 0.7}], ids=str)
def test_what_is_given_is_kept(given: dict[str, Any]) -> None:
    X, Y = sectors()
    kernel = Local(n_rows=60, **given)
    chosen = tuned(kernel, fit_of(X, Y, kernel, 60))
    assert replace(chosen, **given) == chosen
    assert chosen.n_rows == 60
    assert given.get("gamma") or chosen.gamma in fitting._GAMMAS
    assert given.get("ridge") or chosen.ridge in fitting._RIDGES


def test_without_rows_left_out_a_kernel_in_the_middle_is_taken() -> None:
    X, Y = sectors()
    chosen = tuned(Local(), fit_of(X, Y, Local(), 0))
    assert chosen.gamma in fitting._GAMMAS
    assert chosen.ridge in fitting._RIDGES


def test_the_cluster_with_most_rows_left_out_decides() -> None:
    X, Y = sectors()
    noise = scipy.sparse.csr_array(np.eye(8)[np.random.default_rng(1).integers(8, size=30)])
    kernel = Local(n_rows=60)
    chosen = tuned(kernel, fit_of(X[:30], noise, kernel, 30), fit_of(X, Y, kernel, 150))
    assert qualities(150)[chosen] == max(qualities(150).values())


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_do_not_matter_to_the_choice(n_jobs: int) -> None:
    X, Y = sectors()
    kernel = Local(n_rows=60)
    one, other = (tuned(kernel, fit_of(X, Y, kernel, 150), n_jobs=threads) for threads in (1, n_jobs))
    assert one == other


# --------------------------------------------------------------------------------------------------- the whole model


def test_auto_is_local_past_the_rows_of_a_kernel_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel_of(**settings: Any) -> Any:
        return RIPML(random_state=0, **settings).fit(ZIPF.X, ZIPF.Y).kernel_

    monkeypatch.setattr(fitting, "_KERNEL_ROWS", 150)
    assert isinstance(kernel_of(), RBF)
    monkeypatch.setattr(fitting, "_KERNEL_ROWS", 149)
    assert isinstance(kernel_of(), Local)
    assert isinstance(kernel_of(decoder=Blend(n_similar=0)), Local)
    assert isinstance(kernel_of(n_clusters=2), RBF)
    for decoder in ("weighted", "sketch", "least-squares", "votes"):
        assert kernel_of(decoder=decoder) == Linear()


def test_auto_gives_the_model_of_the_kernel_that_it_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = RIPML(kernel="local", random_state=0).fit(ZIPF.X, ZIPF.Y).decision_function(ZIPF.X_new)
    monkeypatch.setattr(fitting, "_KERNEL_ROWS", 10)
    found = RIPML(random_state=0).fit(ZIPF.X, ZIPF.Y).decision_function(ZIPF.X_new)
    laws.assert_same_scores(found, expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "local"},
        {"kernel": Local(0.5, 0.1, 7)},
        {"kernel": Local(0.5, 0.1, 500)},
        {"kernel": "local", "decoder": Blend(n_similar=0)},
        {"kernel": "local", "decoder": Blend(n_similar=300)},
        {"kernel": "local", "n_clusters": 3},
        {"kernel": "local", "normalize": False},
        {"kernel": "local", "ensemble": "gaussian", "n_dims": 40},
        {"kernel": "local", "solver": "cg"},
    ],
    ids=str,
)
class TestEverySettingOfAModel:
    def test_sparse_equals_dense(self, settings: dict[str, Any]) -> None:
        laws.sparse_equals_dense(RIPML(random_state=0, **settings), ZIPF.X, ZIPF.Y, ZIPF.X_new)

    def test_saved_equals_loaded_and_one_by_one_equals_batch(self, settings: dict[str, Any], tmp_path: Path) -> None:
        fitted = RIPML(random_state=0, **settings).fit(ZIPF.X, ZIPF.Y)
        laws.saved_equals_loaded(fitted, ZIPF.X_new, tmp_path / "model")
        loaded = ripml.load(tmp_path / "model")
        assert loaded.kernel_ == fitted.kernel_
        assert isinstance(loaded.kernel_, Local)
        laws.assert_same_scores(loaded.predict_proba(ZIPF.X_new), fitted.predict_proba(ZIPF.X_new))
        laws.one_by_one_equals_batch(fitted, ZIPF.X_new[:40])

    def test_what_is_given_is_kept_and_the_rest_is_chosen(self, settings: dict[str, Any]) -> None:
        kernel: Any = RIPML(**{"normalize": True, "random_state": 0, **settings}).fit(ZIPF.X, ZIPF.Y).kernel_
        if isinstance(settings["kernel"], Local):
            assert kernel == settings["kernel"]
        else:
            assert kernel.gamma in fitting._GAMMAS or not settings.get("normalize", True)  # there it follows the spread
            assert kernel.ridge in fitting._RIDGES


class TestModelsOfManySparseRows:
    """Models of more rows than a query is compared with."""

    X, X_new = (unit(np.maximum(some, 0)) for some in (ZIPF.X, ZIPF.X_new))

    @pytest.fixture(autouse=True)
    def many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernels, "_EXACT_ROWS", 50)
        monkeypatch.setattr(kernels, "_EXACT_TERMS", 0)
        monkeypatch.setattr(kernels, "_TERMS", 1000)

    def fitted(self, n: int) -> RIPML:
        model = RIPML(kernel=Local(0.5, 0.1, 20), relevance=0, normalize=True, random_state=0)
        return model.fit(scipy.sparse.csr_array(self.X[:n]), ZIPF.Y[:n])

    def test_the_share_of_similar_rows_that_are_found_is_measured(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("INFO", "ripml"):
            (solution,) = self.fitted(150).solutions_
        assert 0.5 < solution["similar_recall"] < 1
        assert re.search(r"of the 20 most similar of 150 rows, \d\d\.\d % are found", caplog.text)

    def test_saved_equals_loaded_and_one_by_one_equals_batch(self, tmp_path: Path) -> None:
        fitted = self.fitted(150)
        laws.saved_equals_loaded(fitted, self.X_new, tmp_path / "model")
        laws.one_by_one_equals_batch(fitted, self.X_new[:40])

    def test_learn_then_forget_is_never_learnt(self) -> None:
        X, queries = scipy.sparse.csr_array(self.X), scipy.sparse.csr_array(self.X_new)
        fitted = self.fitted(130)
        before = fitted.decision_function(queries)
        fitted.partial_fit(X[130:150], ZIPF.Y[130:150]).forget(X[130:150], ZIPF.Y[130:150])
        laws.assert_scores_agree(fitted, fitted.decision_function(queries), before)

    def test_a_row_is_found_once_it_is_learnt_and_never_after_it_is_forgotten(self) -> None:
        X = scipy.sparse.csr_array(self.X)
        fitted = self.fitted(130).partial_fit(X[130:140], ZIPF.Y[130:140])

        def found() -> set[int]:
            rows = rows_of(fitted.model_.clusters[0])
            return set(rows.numbers[rows.nearest(X[130:140], 20)[0]].ravel().tolist())

        assert set(range(130, 140)) <= found()
        fitted.forget(X[130:140], ZIPF.Y[130:140])
        assert not set(range(130, 140)) & found()
        fitted.forget(X[:5], ZIPF.Y[:5])
        assert not set(range(5)) & found()

    def test_explanations_add_up(self) -> None:
        fitted, query = self.fitted(150), scipy.sparse.csr_array(self.X_new[:9])
        laws.contributions_add_up_to_the_score(fitted, query)


class TestModelsOfManyDenseRowsAndLabelSets:
    """Models of more dense rows, and more label sets, than a query is compared with; few of them are candidates."""

    @pytest.fixture(autouse=True)
    def many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernels, "_EXACT_ROWS", 50)
        monkeypatch.setattr(kernels, "_EXACT_DENSE", 0)
        monkeypatch.setattr(bits, "EXACT_VALUES", 0)
        monkeypatch.setattr(BitCodes, "counts", staticmethod(lambda k: (2 * k, k + 3)))

    def fitted(self, n: int) -> RIPML:
        settings: dict[str, Any] = {
            "kernel": Local(0.5, 0.1, 20),
            "n_neighbors": 5,
            "ensemble": "gaussian",
            "n_dims": 40,
        }
        return RIPML(normalize=True, random_state=0, **settings).fit(ZIPF.X[:n], ZIPF.Y[:n])

    def test_the_shares_that_are_found_are_measured(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("INFO", "ripml"):
            (solution,) = self.fitted(150).solutions_
        assert 0.5 < solution["similar_recall"] < 1
        assert 0.5 < solution["set_recall"] < 1
        assert re.search(r"of the 20 most similar of 150 rows, \d\d\.\d % are found", caplog.text)
        assert re.search(r"of the 5 nearest of \d+ label sets, \d\d\.\d % are found", caplog.text)

    def test_saved_equals_loaded_and_one_by_one_equals_batch(self, tmp_path: Path) -> None:
        fitted = self.fitted(150)
        laws.saved_equals_loaded(fitted, ZIPF.X_new, tmp_path / "model")
        laws.one_by_one_equals_batch(fitted, ZIPF.X_new[:40])

    def test_learn_then_forget_is_never_learnt(self, tmp_path: Path) -> None:
        fitted = self.fitted(130)
        before = fitted.decision_function(ZIPF.X_new)
        fitted.partial_fit(ZIPF.X[130:150], ZIPF.Y[130:150]).forget(ZIPF.X[130:150], ZIPF.Y[130:150])
        laws.assert_scores_agree(fitted, fitted.decision_function(ZIPF.X_new), before)
        fitted.save(tmp_path / "model")  # without the places of what was forgotten
        laws.assert_scores_agree(fitted, ripml.load(tmp_path / "model").decision_function(ZIPF.X_new), before)

    def test_explanations_add_up(self) -> None:
        laws.contributions_add_up_to_the_score(self.fitted(150), ZIPF.X_new[:9])

    def test_without_numba_all_are_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (kernels, bits):
            monkeypatch.setattr(module, "loops", lambda: None)
        assert not {"similar_recall", "set_recall"} & self.fitted(150).solutions_[0].keys()


def test_the_local_signal_of_candidates_is_kernel_ridge_near_the_query() -> None:
    fitted = RIPML(kernel=Local(0.5, 0.1, 150), relevance=0, normalize=True, random_state=0).fit(ZIPF.X, ZIPF.Y)
    X, X_new = unit(ZIPF.X), unit(ZIPF.X_new)
    decoder = fitted.model_.decoder
    assert isinstance(decoder, FittedSignals)
    candidates = decoder.candidates(fitted.clusters_[0], X_new, 1)
    expected = kernel_ridge(X, ZIPF.Y, X_new, Local(0.5, 0.1))
    row, place = np.nonzero(candidates.labels >= 0)
    found, labels = candidates.signals["local"][row, place], candidates.labels[row, place]
    np.testing.assert_allclose(found, expected[row, labels], atol=2e-3)


def test_left_out_rows_have_no_part_in_their_own_scores() -> None:
    # Labels are drawn by lot, each its own row's: only a row that sees itself could be right.
    X = unit(np.random.default_rng(0).standard_normal((200, 20)))
    Y = scipy.sparse.csr_array(np.eye(20)[np.random.default_rng(1).integers(20, size=200)])
    assert RIPML(kernel="local", random_state=0).fit(X, Y).left_out_precision_["P@1"] <= 0.2


@pytest.mark.parametrize("decoder", ["votes", "weighted", "sketch", "least-squares"])
@pytest.mark.parametrize("kernel", ["local", Local(0.5)], ids=str)
def test_another_decoder_than_the_blend_is_refused(decoder: str, kernel: Any) -> None:
    stage = re.escape(repr(registry.resolve("decoder", decoder)))
    sentence = rf"^kernel='local' is a signal among others, with decoder='blend'; got decoder={stage}\.$"
    with pytest.raises(ParameterError, match=sentence):
        RIPML(kernel=kernel, decoder=decoder).fit(ZIPF.X, ZIPF.Y)
    with pytest.raises(ParameterError, match=sentence):
        RIPML.paper(kernel=kernel, decoder=decoder).check_settings()


def board(n: int, seed: int) -> tuple[NDArray[np.float64], Any]:
    """Exclusive or: the label of a point is whether its two signs agree, of which no line knows anything."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (n, 2)) + 0.3 * rng.standard_normal((n, 2))
    return X, np.eye(2)[(X[:, 0] * X[:, 1] > 0).astype(int)]


def test_it_separates_labels_that_no_linear_model_can() -> None:
    (X, Y), (X_new, Y_new) = board(300, 0), board(300, 1)
    local, linear = (
        RIPML(kernel=kernel, decoder=decoder, relevance=0, normalize=True, random_state=0).fit(X, Y)
        for kernel, decoder in (("local", Blend(n_similar=0)), ("linear", "sketch"))  # trees are not linear
    )
    assert linear.score(X_new, Y_new) <= 0.8
    assert local.score(X_new, Y_new) >= 0.9
    assert local.left_out_precision_["P@1"] >= 0.9
