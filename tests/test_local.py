"""The local kernel: kernel ridge near a query, from the rows that are alike to what is chosen, saved and asked."""

from __future__ import annotations

import functools
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
from ripml.base.errors import DataError, ParameterError
from ripml.decoding.decoders import Blend
from ripml.labels.encoding import label_keys
from ripml.labels.ensembles import Identity
from ripml.labels.label_sets import distinct_sets
from ripml.labels.projection import Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.model import decisions
from ripml.model import fitting as learning
from ripml.model.decisions import Answer, fitted_nearby, mean_precision
from ripml.model.part import Decode, Part
from ripml.model.reading import decode_of
from ripml.neighbors import Exact
from ripml.regression.kernels import RBF, Linear, Local, Rows, squared_lengths

KINDS = {"dense": lambda X: X, "sparse": scipy.sparse.csr_array}
ZIPF = worlds.zipf()


def unit(X: Any) -> NDArray[np.float32]:
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True), np.float32)


def part_of(X: Any, Y: Any, kernel: Local, kind: str = "dense") -> Part:
    """The part of these rows, without a regression."""
    sets = distinct_sets(Y, label_keys(np.arange(Y.shape[1])))
    return Part(
        Psi=np.zeros((X.shape[1], Y.shape[1]), np.float32),
        intercept=np.zeros(Y.shape[1], np.float32),
        Z=np.empty((len(sets.counts), 0), np.float32),
        sets=Y[sets.first],
        counts=sets.counts,
        index=Exact(),
        n_learners=1,
        kernel=kernel,
        rows=Rows(KINDS[kind](X)),
        set_of_row=sets.of_row,
        row_numbers=np.arange(len(sets.of_row)),
    )


def nearby(part: Part, X: Any, kernels: list[Local], own: Any = None) -> list[NDArray[np.float64]]:
    """What kernel ridge near each of the rows X says of all labels."""
    ids, likeness = part.alike(part.likeness(X, 1), kernels[0].n_rows, own)
    return [scores.toarray() for scores in part.solved_nearby(ids, likeness, squared_lengths(X), kernels)]


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


# -------------------------------------------------------------------------------------------------- one part's rows


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
        part = part_of(X, Y, kernels[0], kind)
        for kernel, found in zip(kernels, nearby(part, KINDS[kind](X_new), kernels), strict=True):
            np.testing.assert_allclose(found, kernel_ridge(X, Y, X_new, kernel), atol=2e-3)

    @pytest.mark.parametrize("n_rows", [1, 2, 20, 79])
    def test_on_some_rows_it_is_kernel_ridge_on_those_most_alike(self, kind: str, scale: str, n_rows: int) -> None:
        X, Y, X_new = self.rows(scale)
        kernels = [replace(kernel, n_rows=n_rows) for kernel in OPTIONS]
        part = part_of(X, Y, kernels[0], kind)
        ids, similarity = part.alike(part.likeness(KINDS[kind](X_new), 1), n_rows)
        assert ids.shape == similarity.shape == (30, n_rows)
        distances = ((X_new[:, None] - X) ** 2).sum(axis=2)
        np.testing.assert_allclose(
            (X_new**2).sum(axis=1)[:, None] - 2 * similarity, np.sort(distances, axis=1)[:, :n_rows], atol=1e-4
        )
        for kernel, found in zip(kernels, nearby(part, KINDS[kind](X_new), kernels), strict=True):
            expected = [kernel_ridge(X[near], Y[near], X_new[[i]], kernel)[0] for i, near in enumerate(ids)]
            np.testing.assert_allclose(found, np.stack(expected), atol=2e-3)

    @pytest.mark.parametrize("n_rows", [20, 80])
    def test_a_row_left_out_is_one_never_seen(self, kind: str, scale: str, n_rows: int) -> None:
        X, Y, _ = self.rows(scale)
        kernel = Local(0.5, 0.1, n_rows)
        own = np.arange(0, 80, 4)
        (found,) = nearby(part_of(X, Y, kernel, kind), KINDS[kind](X[own]), [kernel], own)
        for row, scores in zip(own, found, strict=True):
            others = np.arange(80) != row
            (expected,) = nearby(part_of(X[others], Y[others], kernel, kind), KINDS[kind](X[[row]]), [kernel])
            np.testing.assert_allclose(scores, expected[0], atol=1e-4)
            if n_rows == 80:
                refit = kernel_ridge(X[others], Y[others], X[[row]], kernel)[0]
                np.testing.assert_allclose(scores, refit, atol=2e-3)

    def test_the_only_row_left_out_leaves_nothing_to_say(self, kind: str, scale: str) -> None:
        X, Y, _ = self.rows(scale)
        part = part_of(X[:1], Y[:1], OPTIONS[0], kind)
        (found,) = nearby(part, KINDS[kind](X[:1]), [OPTIONS[0]], np.array([0]))
        np.testing.assert_array_equal(found, np.zeros((1, 40)))


def test_rows_most_alike_come_first_and_a_row_left_out_last_of_all() -> None:
    part = part_of(np.eye(3, dtype=np.float32), scipy.sparse.csr_array(np.eye(3)), Local())
    likeness = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.8]], np.float32)
    ids, similarity = part.alike(likeness.copy(), 2)
    assert ids.tolist() == [[1, 2], [2, 0]]
    np.testing.assert_array_equal(similarity, np.array([[0.9, 0.5], [0.8, 0.3]], np.float32))
    ids, similarity = part.alike(likeness.copy(), 9, np.array([1, 0]))
    assert ids.tolist() == [[2, 0, 1], [2, 1, 0]]
    np.testing.assert_array_equal(similarity, np.array([[0.5, 0.1, -np.inf], [0.8, 0.2, -np.inf]], np.float32))
    near = part.near_rows(ids, similarity)
    np.testing.assert_array_equal(near.sets, part.set_of_row[ids])
    assert near.rows.tolist() == [[1, 1, 0], [1, 1, 0]]
    votes = part.vote(near, 3, 0.1)
    np.testing.assert_array_equal(votes.toarray()[[0, 1], [1, 0]], 0)
    np.testing.assert_allclose(votes.sum(axis=1), 1)


def test_twins_with_next_to_no_ridge_are_refused_with_the_remedy() -> None:
    X = np.repeat(np.eye(2, dtype=np.float32), 30, axis=0)
    kernel = Local(0.5, 1e-12)
    with pytest.raises(DataError, match=r"^the kernel matrix is not positive definite at ridge = 1e-12; use a larger"):
        nearby(part_of(X, scipy.sparse.csr_array(np.eye(60)), kernel), X[:1], [kernel])


# --------------------------------------------------------------------------------------------------- what is chosen


def how_of(n_labels: int) -> Decode:
    labels = Vocabulary.of(np.arange(n_labels))
    chosen = {"n_neighbors": 0, "temperature": 0.1, "n_similar": 0, "similar_temperature": 0.1, "epsilon": None}
    return decode_of(
        {**chosen, "n_candidates": 32},
        Projection(Identity(), n_labels, 1, 0),
        labels,
        np.ones(n_labels, np.int64),
        n_labels,
    )


def sectors(n: int = 240, seed: int = 0) -> tuple[NDArray[np.float32], Any]:
    """Points of a circle that carry the label of their sector, eight labels in turn: only a narrow kernel sees them."""
    angle = 2 * np.pi * np.random.default_rng(seed).random(n)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    return X, scipy.sparse.csr_array(np.eye(8)[(angle * 16 / (2 * np.pi)).astype(int) % 8])


def answer_of(X: Any, Y: Any, n_asked: int) -> Answer:
    rows = np.arange(n_asked)
    return Answer(Y[rows], X=X[rows], Z=np.zeros((n_asked, Y.shape[1]), np.float32), rows=rows)


@functools.cache
def qualities(n_asked: int, n_rows: int = 60) -> dict[Local, float]:
    """The mean precision of every option on rows left out."""
    X, Y = sectors()
    options = [Local(gamma, ridge, n_rows) for gamma in decisions._GAMMAS for ridge in decisions._RIDGES]
    scores = nearby(part_of(X, Y, options[0]), X[:n_asked], options, np.arange(n_asked))
    found = zip(options, scores, strict=True)
    return {option: mean_precision(Y[:n_asked], scipy.sparse.csr_array(score)) for option, score in found}


def test_the_best_kernel_on_rows_left_out_is_chosen() -> None:
    X, Y = sectors()
    tried = qualities(150)
    assert max(tried.values()) > min(tried.values()) + 0.05
    kernel = Local(n_rows=60)
    chosen = fitted_nearby(kernel, how_of(8), [part_of(X, Y, kernel)], [answer_of(X, Y, 150)])
    assert chosen.n_rows == 60
    assert tried[chosen] == max(tried.values())


def test_no_more_rows_are_asked_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_ASKED_NEARBY", 40)
    X, Y = sectors()
    kernel = Local(n_rows=60)
    chosen = fitted_nearby(kernel, how_of(8), [part_of(X, Y, kernel)], [answer_of(X, Y, 150)])
    assert qualities(40)[chosen] == max(qualities(40).values())


@pytest.mark.parametrize("given", [{"gamma": 3.0}, {"ridge": 0.7}, {"gamma": 3.0, "ridge": 0.7}], ids=str)
def test_what_is_given_is_kept(given: dict[str, Any]) -> None:
    X, Y = sectors()
    kernel = Local(n_rows=60, **given)
    chosen = fitted_nearby(kernel, how_of(8), [part_of(X, Y, kernel)], [answer_of(X, Y, 60)])
    assert replace(chosen, **given) == chosen
    assert chosen.n_rows == 60
    assert given.get("gamma") or chosen.gamma in decisions._GAMMAS
    assert given.get("ridge") or chosen.ridge in decisions._RIDGES


def test_without_rows_left_out_a_kernel_in_the_middle_is_taken() -> None:
    X, Y = sectors()
    chosen = fitted_nearby(Local(), how_of(8), [part_of(X, Y, Local())], [answer_of(X, Y, 0)])
    assert chosen.gamma in decisions._GAMMAS
    assert chosen.ridge in decisions._RIDGES


def test_the_cluster_with_most_rows_left_out_decides() -> None:
    X, Y = sectors()
    noise = scipy.sparse.csr_array(np.eye(8)[np.random.default_rng(1).integers(8, size=30)])
    kernel = Local(n_rows=60)
    parts = [part_of(X[:30], noise, kernel), part_of(X, Y, kernel)]
    answers = [answer_of(X[:30], noise, 30), answer_of(X, Y, 150)]
    chosen = fitted_nearby(kernel, how_of(8), parts, answers)
    assert qualities(150)[chosen] == max(qualities(150).values())


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_threads_do_not_matter_to_the_choice(n_jobs: int) -> None:
    X, Y = sectors()
    arguments = [part_of(X, Y, Local(n_rows=60))], [answer_of(X, Y, 150)]
    one, other = (
        fitted_nearby(Local(n_rows=60), replace(how_of(8), n_jobs=threads), *arguments) for threads in (1, n_jobs)
    )
    assert one == other


# --------------------------------------------------------------------------------------------------- the whole model


def test_auto_is_local_past_the_rows_of_a_kernel_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel_of(**settings: Any) -> Any:
        return RIPML(random_state=0, **settings).fit(ZIPF.X, ZIPF.Y).kernel_

    monkeypatch.setattr(learning, "_KERNEL_ROWS", 150)
    assert isinstance(kernel_of(), RBF)
    monkeypatch.setattr(learning, "_KERNEL_ROWS", 149)
    assert isinstance(kernel_of(), Local)
    assert isinstance(kernel_of(decoder=Blend(n_similar=0)), Local)
    assert isinstance(kernel_of(n_clusters=2), RBF)
    for decoder in ("weighted", "sketch", "least-squares", "votes"):
        assert kernel_of(decoder=decoder) == Linear()


def test_auto_is_the_model_of_the_kernel_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = RIPML(kernel="local", random_state=0).fit(ZIPF.X, ZIPF.Y).decision_function(ZIPF.X_new)
    monkeypatch.setattr(learning, "_KERNEL_ROWS", 10)
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
        kernel: Any = RIPML(random_state=0, **settings).fit(ZIPF.X, ZIPF.Y).kernel_
        if isinstance(settings["kernel"], Local):
            assert kernel == settings["kernel"]
        else:
            assert kernel.gamma in decisions._GAMMAS
            assert kernel.ridge in decisions._RIDGES


def test_a_part_says_of_candidates_what_kernel_ridge_near_them_says() -> None:
    fitted = RIPML(kernel=Local(0.5, 0.1, 150), relevance=0, random_state=0).fit(ZIPF.X, ZIPF.Y)
    X, X_new = unit(ZIPF.X), unit(ZIPF.X_new)
    candidates = fitted.parts_[0].candidates(X_new, fitted.decode_)
    expected = kernel_ridge(X, ZIPF.Y, X_new, Local(0.5, 0.1))
    row, place = np.nonzero(candidates.labels >= 0)
    found, labels = candidates.signals["local"][row, place], candidates.labels[row, place]
    np.testing.assert_allclose(found, expected[row, labels], atol=2e-3)


def test_left_out_rows_have_no_part_in_what_is_said_of_them() -> None:
    # Labels are drawn by lot, each its own row's: only a row that sees itself could be right.
    X = unit(np.random.default_rng(0).standard_normal((200, 20)))
    Y = scipy.sparse.csr_array(np.eye(20)[np.random.default_rng(1).integers(20, size=200)])
    assert RIPML(kernel="local", random_state=0).fit(X, Y).left_out_precision_["P@1"] <= 0.2


@pytest.mark.parametrize("decoder", ["votes", "weighted", "sketch", "least-squares"])
@pytest.mark.parametrize("kernel", ["local", Local(0.5)], ids=str)
def test_another_decoder_than_the_blend_is_refused(decoder: str, kernel: Any) -> None:
    sentence = rf"^kernel='local' is a signal among others, with decoder='blend'; got decoder='{decoder}'\.$"
    with pytest.raises(ParameterError, match=sentence):
        RIPML(kernel=kernel, decoder=decoder).fit(ZIPF.X, ZIPF.Y)
    with pytest.raises(ParameterError, match=sentence):
        RIPML.paper(kernel=kernel, decoder=decoder).check_settings()


def board(n: int, seed: int) -> tuple[NDArray[np.float64], Any]:
    """Exclusive or: the label of a point is whether its two signs agree, of which no line knows anything."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (n, 2)) + 0.3 * rng.standard_normal((n, 2))
    return X, np.eye(2)[(X[:, 0] * X[:, 1] > 0).astype(int)]


def test_it_tells_apart_what_no_line_can() -> None:
    (X, Y), (X_new, Y_new) = board(300, 0), board(300, 1)
    local, linear = (
        RIPML(kernel=kernel, decoder=Blend(n_similar=0), relevance=0, random_state=0).fit(X, Y)
        for kernel in ("local", "linear")
    )
    assert linear.score(X_new, Y_new) <= 0.8
    assert local.score(X_new, Y_new) >= 0.9
    assert local.left_out_precision_["P@1"] >= 0.9
