"""Learning, forgetting, relabelling and new labels: each as if all rows had been fitted at once."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse
import worlds
from numpy.typing import NDArray
from sklearn.base import clone

import ripml
from ripml import RIPML
from ripml.base import registry
from ripml.base.errors import ConcurrentChangeError, DataError, ParameterError
from ripml.decoding.blend import Candidates
from ripml.decoding.decoders import LeastSquares, WeightedVotes
from ripml.decoding.label_set_index import LabelSetIndex
from ripml.decoding.signals import FittedBlend
from ripml.decoding.training_rows import TrainingRows
from ripml.labels.ensembles import PolynomialPhase
from ripml.model.model import Model
from ripml.neighbors import LSH, Exact
from ripml.regression import ConjugateGradient, incremental_kernel, inverse
from ripml.regression.incremental import IncrementalRidge
from ripml.regression.incremental_kernel import IncrementalKernelRidge
from ripml.regression.kernels import RBF, Local
from ripml.regression.regression import KernelRegression, LinearRegression

Array = NDArray[Any]

# Every setting given, so that a fresh fit chooses nothing: it must then be equal to what updates come to.
FIXED: dict[str, tuple[RIPML, float]] = {
    "paper": (RIPML.paper(n_dims=12, n_neighbors=3, n_learners=3, ridge=0.5), 1e-8),
    "paper, dual": (RIPML.paper(n_dims=12, n_neighbors=3, n_learners=2, ridge=0.5, solver="dual"), 1e-8),
    "paper, clusters": (RIPML.paper(n_dims=12, n_neighbors=3, n_learners=2, ridge=0.5, n_clusters=3, n_probe=2), 1e-8),
    "paper, lsh": (RIPML.paper(n_dims=12, n_neighbors=3, n_learners=2, ridge=0.5, index=LSH()), 1e-8),
    "least squares": (
        RIPML(kernel="linear", relevance=0, ridge=0.5, n_dims=16, ensemble="gaussian", n_neighbors=10,
              decoder=LeastSquares(0.3)), 1e-4,
    ),
    "sketch, dual": (
        RIPML(kernel="linear", relevance=0, ridge=0.5, n_dims=16, ensemble="sparse", n_neighbors=10, decoder="sketch",
              solver="dual"), 1e-4,
    ),
    "weighted, kernel": (
        RIPML(kernel=RBF(0.5), relevance=0, ridge=0.1, n_dims=16, ensemble="gaussian", n_neighbors=10,
              decoder=WeightedVotes(0.1)), 1e-4,
    ),
    "kernel, identity": (
        RIPML(kernel=RBF(0.5), relevance=0, ridge=0.1, ensemble="identity", n_neighbors=10, decoder="sketch"), 1e-4,
    ),
}  # fmt: skip

# What is chosen stays as it was: the fresh fit has the same frozen parts.
CHOSEN: dict[str, RIPML] = {
    "default": RIPML(),
    "linear": RIPML.linear(),
    "local": RIPML(kernel=Local(n_rows=20)),
    "clusters": RIPML(n_clusters=2),
    "gaussian": RIPML(ensemble="gaussian", n_dims=64),
    "wide": RIPML.linear(solver="dual"),
}

N_FEATURES, N_LABELS = 12, 14


def rows(n: int, seed: int, sparse: bool = False) -> tuple[Any, list[list[str]]]:
    """Features, and the names of one to three labels of each row that have to do with them."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, N_FEATURES))
    if sparse:
        X = scipy.sparse.csr_array(X * (random.random(X.shape) < 0.5))
    affinity = np.random.default_rng(99).normal(size=(N_FEATURES, N_LABELS))
    scores = X @ affinity
    return X, [[f"label {j}" for j in np.argsort(-score)[: 1 + i % 3]] for i, score in enumerate(scores)]


def scores_by_name(model: RIPML, X: Any, names: list[str]) -> Array:
    """Scores of the labels of these names; of one that the model does not know, 0."""
    scores = model.decision_function(X).toarray()
    places = {name: place for place, name in enumerate(model.classes_.tolist())}
    return np.stack([scores[:, places[n]] if n in places else np.zeros(len(scores)) for n in names], axis=1)


def assert_equal_models(one: RIPML, other: RIPML, X: Any, bound: float) -> None:
    names = sorted({*one.classes_.tolist(), *other.classes_.tolist()})
    found, expected = scores_by_name(one, X, names), scores_by_name(other, X, names)
    assert np.abs(found - expected).max(initial=0) <= bound
    counts = {name: int(c) for name, c in zip(other.classes_.tolist(), other.frequency_.tolist(), strict=True)}
    assert {n: int(c) for n, c in zip(one.classes_.tolist(), one.frequency_.tolist(), strict=True) if c} == {
        name: count for name, count in counts.items() if count
    }
    assert one.n_rows_ == other.n_rows_


class World:
    """Rows of which some are in the model, and what is done to them at random."""

    def __init__(self, model: RIPML, seed: int, sparse: bool = False, n_start: int = 60, n_rows: int = 160) -> None:
        self.random = np.random.default_rng(seed)
        self.X, self.Y = rows(n_rows, seed, sparse)
        self.inside = list(range(n_start))
        self.model = model.fit(self.X[:n_start], self.Y[:n_start])
        self.new_labels = 0

    def step(self) -> None:
        """Learn, forget or relabel a few rows, with a label never seen before now and then."""
        outside = [row for row in range(len(self.Y)) if row not in self.inside]
        kind = self.random.choice(["learn", "forget", "relabel"])
        size = int(self.random.integers(1, 6))
        if kind == "learn" and outside:
            some = self.random.permutation(outside)[:size].tolist()
            if self.random.random() < 0.3:
                self.Y[some[0]] = [*self.Y[some[0]], self.unseen()]
            self.model.partial_fit(self.X[some], [self.Y[row] for row in some])
            self.inside += some
        elif kind == "forget" and len(self.inside) > 30:
            some = self.random.permutation(self.inside)[:size].tolist()
            self.model.forget(self.X[some], [self.Y[row] for row in some])
            self.inside = [row for row in self.inside if row not in some]
        else:
            some = self.random.permutation(self.inside)[:size].tolist()
            before = [self.Y[row] for row in some]
            for row in some:
                self.Y[row] = [self.unseen()] if self.random.random() < 0.1 else self.Y[int(self.random.integers(160))]
            self.model.relabel(self.X[some], before, [self.Y[row] for row in some])

    def unseen(self) -> str:
        self.new_labels += 1
        return f"unseen {self.new_labels}"

    def known(self) -> tuple[Any, list[list[str]]]:
        """The rows that are in the model now."""
        return self.X[self.inside], [self.Y[row] for row in self.inside]


@pytest.mark.parametrize(("seed", "sparse"), [(0, False), (1, True), (2, True)])
@pytest.mark.parametrize("name", [name for name in FIXED if "clusters" not in name])  # their centres are frozen
def test_any_mix_of_changes_gives_the_model_of_a_fresh_fit(name: str, sparse: bool, seed: int) -> None:
    settings, bound = FIXED[name]
    model = copy.deepcopy(settings).set_params(random_state=seed)
    world = World(model, seed, sparse)
    queries = rows(25, 1000 + seed, sparse)[0]
    for _ in range(4):
        for _ in range(6):
            world.step()
        fresh = copy.deepcopy(settings).set_params(random_state=seed).fit(*world.known())
        assert_equal_models(world.model, fresh, queries, bound)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", [*FIXED, *CHOSEN])
def test_any_mix_of_changes_gives_the_model_of_a_fit_with_the_same_frozen_parts(name: str, seed: int) -> None:
    settings, bound = FIXED[name] if name in FIXED else (CHOSEN[name], 1e-4)
    world = World(copy.deepcopy(settings).set_params(random_state=seed), seed, sparse=bool(seed), n_start=90)
    queries = rows(25, 1000 + seed, bool(seed))[0]
    for _ in range(3):
        for _ in range(6):
            world.step()
        fresh = world.model.without_rows().partial_fit(*world.known())
        assert_equal_models(world.model, fresh, queries, bound)
        one_by_one = world.model.without_rows()
        for start in range(0, len(world.inside), 7):
            some = world.inside[start : start + 7]
            one_by_one.partial_fit(world.X[some], [world.Y[row] for row in some])
        assert_equal_models(one_by_one, fresh, queries, bound)


ALL = {**{name: settings for name, (settings, _) in FIXED.items()}, **CHOSEN}


def fitted(name: str, n: int = 90) -> RIPML:
    model: RIPML = copy.deepcopy(ALL[name]).set_params(random_state=0)
    return model.fit(*rows(n, 0))


@functools.cache
def fitted_once(name: str) -> RIPML:
    """A model that tests only make copies of."""
    return fitted(name)


# ------------------------------------------------------------------------------------------------------------ learning


@pytest.mark.parametrize("name", ALL)
def test_what_is_learnt_and_forgotten_leaves_no_influence(name: str) -> None:
    X, Y = rows(100, 0)
    model = copy.copy(fitted_once(name)).partial_fit(X[90:99], Y[90:99])
    before = model.decision_function(X[:20])
    planted = np.repeat(X[5:6], 3, axis=0)  # three rows of one query's features, with a label of their own
    model.partial_fit(planted, [["planted"]] * 3)
    assert model.recommend(X[5:6], n=3)[0] != [], "a planted label"
    model.forget(planted, [["planted"]] * 3)
    after = model.decision_function(X[:20])
    assert after.shape[1] == before.shape[1] + 1
    bound = 1e-8 if name.startswith("paper") else 1e-4
    assert np.abs(after[:, : before.shape[1]].toarray() - before.toarray()).max() <= bound
    assert after[:, [before.shape[1]]].nnz == 0
    assert model.n_rows_ == 99


@pytest.mark.parametrize("name", ALL)
def test_older_versions_answer_as_before(name: str) -> None:
    X, Y = rows(120, 0)
    versions = [copy.copy(fitted_once(name))]
    answers = [versions[0].decision_function(X[:20]).toarray()]
    for start in range(90, 120, 6):
        newer = copy.copy(versions[-1])
        newer.partial_fit(X[start : start + 5], Y[start : start + 5])
        newer.forget(X[start - 60 : start - 57], Y[start - 60 : start - 57])
        versions.append(newer)
        answers.append(newer.decision_function(X[:20]).toarray())
    for version, answer in zip(versions, answers, strict=True):
        np.testing.assert_array_equal(version.decision_function(X[:20]).toarray(), answer)
    assert len({answer.tobytes() for answer in answers}) == len(answers)


CHANGES: dict[str, Callable[[RIPML, Array, list[list[str]]], Any]] = {
    "learn": lambda model, X, Y: model.partial_fit(X[90:100], Y[90:100]),
    "learn a new label": lambda model, X, Y: model.partial_fit(X[100:102], [["new"], ["new", "label 2"]]),
    "forget": lambda model, X, Y: model.forget(X[:9], Y[:9]),
    "relabel": lambda model, X, Y: model.relabel(X[20:23], Y[20:23], [["label 5"], ["label 6", "newer"], []]),
    "add": lambda model, X, Y: model.add_labels(["declared"]),
    "forget more": lambda model, X, Y: model.forget(X[30:60], Y[30:60]),
    "rename": lambda model, X, Y: model.rename_label("label 1", "first"),
    "retire": lambda model, X, Y: model.retire_label("label 2"),
    "reinstate": lambda model, X, Y: model.reinstate_label("label 2"),
    "drop": lambda model, X, Y: model.drop_labels(["declared"]),
    "warm up": lambda model, X, Y: model.warm_up(),
    "clear": lambda model, X, Y: model.clear_features(np.arange(N_FEATURES) == 3),
    "fit": lambda model, X, Y: model.fit(X[40:], Y[40:]),
}


def answers_of(model: RIPML, X: Array) -> list[Any]:
    """Everything that a reader may ask for."""
    scores, probabilities = model.decision_function(X[:20]).toarray(), model.predict_proba(X[:20]).toarray()
    return [
        *(scores.tobytes(), probabilities.tobytes(), model.classes_.tolist(), model.frequency_.tolist()),
        *(model.n_rows_, model.n_seen_, model.threshold_, model.chosen_, model.recommend(X[:3])),
        *(model.explain(X[:2], n=2), model.training_labels().toarray().tobytes()),
    ]


@pytest.mark.parametrize("name", ALL)
def test_a_reader_of_a_version_keeps_its_answers_through_every_change(name: str) -> None:
    """A version swap is one assignment: whoever holds a copy of the estimator, or its model, sees nothing of it."""
    X, Y = rows(120, 0)
    current, readers = copy.copy(fitted_once(name)), list[tuple[RIPML, Any, list[Any]]]()
    for change in CHANGES.values():
        reader = copy.copy(current)
        value = current.model_
        readers.append((reader, value, answers_of(reader, X)))
        attributes = {key: item for key, item in vars(current).items() if key != "model_"}
        change(current, X, Y)
        assert current.model_ is not value
        assert {key: item for key, item in vars(current).items() if key != "model_"} == attributes
    for reader, value, answers in readers:
        assert reader.model_ is value
        assert answers_of(reader, X) == answers


@pytest.mark.parametrize("name", ALL)
def test_putting_an_older_version_back_undoes_every_change_since(name: str) -> None:
    X, Y = rows(120, 0)
    model, versions = copy.copy(fitted_once(name)), list[tuple[Any, list[Any]]]()
    for change in CHANGES.values():
        versions.append((model.model_, answers_of(model, X)))
        change(model, X, Y)
    for value, answers in reversed(versions):
        model.model_ = value
        assert answers_of(model, X) == answers


@pytest.mark.parametrize("name", ALL)
def test_changes_that_were_undone_can_be_made_again_from_the_version_of_the_fit(name: str) -> None:
    X, Y = rows(120, 0)
    model = copy.copy(fitted_once(name))
    before = model.model_
    answers = []
    for _ in range(2):
        model.model_ = before
        model.partial_fit(X[90:], [*Y[90:119], ["new"]]).forget(X[:5], Y[:5])
        answers.append(model.decision_function(X[:20]).toarray())
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-8 if name.startswith("paper") else 1e-5)


def test_readers_see_whole_versions_while_a_writer_learns() -> None:
    X, Y = rows(150, 0)
    current = [copy.copy(fitted_once("paper"))]
    seen: list[tuple[RIPML, Array]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            version = current[0]
            seen.append((version, version.decision_function(X[:5]).toarray()))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for row in range(90, 150):
            newer = copy.copy(current[0]).partial_fit(X[row : row + 1], Y[row : row + 1])
            current[0] = newer.forget(X[row - 90 : row - 89], Y[row - 90 : row - 89])
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert seen
    for version, answer in seen[:: max(1, len(seen) // 50)]:
        np.testing.assert_array_equal(version.decision_function(X[:5]).toarray(), answer)


@pytest.mark.parametrize("name", ALL)
def test_a_model_learns_on_after_it_was_saved_or_pickled(name: str, tmp_path: Path) -> None:
    X, Y = rows(120, 0)
    model = copy.copy(fitted_once(name)).partial_fit(X[90:100], Y[90:100]).forget(X[:7], Y[:7])
    model.add_labels(["later"]).rename_label("label 0", "first").retire_label("label 1")
    model.save(tmp_path / "model")
    expected = model.decision_function(X[:20])
    copies = [ripml.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))]
    model.partial_fit(X[100:], Y[100:])
    assert np.diff(expected.indptr).any()
    for other in copies:
        assert isinstance(other, RIPML)
        # Rows that were learnt later are compared apart from the others, which may change the last bits of products.
        np.testing.assert_allclose(other.decision_function(X[:20]).toarray(), expected.toarray(), atol=2e-6)
        assert other.classes_.tolist() == expected_names(other, model)
        other.partial_fit(X[100:], Y[100:])
        assert_equal_models(other, model, X[:20], 1e-8 if name.startswith("paper") else 1e-4)
        assert other.warm_["learnt"] == model.warm_["learnt"]
        assert other.n_seen_ == model.n_seen_ == 120


def expected_names(loaded: RIPML, model: RIPML) -> list[Any]:
    return list(model.classes_[: len(loaded.classes_)])


@pytest.mark.parametrize("name", ALL)
def test_a_model_that_forgot_everything_says_nothing_and_can_learn_again(name: str, tmp_path: Path) -> None:
    X, Y = rows(90, 0)
    model = copy.copy(fitted_once(name)).forget(X, Y)
    assert model.n_rows_ == 0
    assert model.decision_function(X).nnz == 0
    model.save(tmp_path / "model")
    loaded = ripml.load(tmp_path / "model")
    assert loaded.decision_function(X).nnz == 0
    assert isinstance(loaded, RIPML)
    for empty in (model, loaded):
        empty.partial_fit(X, Y)
        assert_equal_models(empty, fitted_once(name).without_rows().partial_fit(X, Y), X[:20], 1e-4)


def test_the_first_partial_fit_is_a_fit() -> None:
    X, Y = rows(60, 0)
    model = RIPML.paper(n_dims=12, n_neighbors=3, random_state=0)
    found = copy.deepcopy(model).partial_fit(X, Y).decision_function(X)
    np.testing.assert_array_equal(found.toarray(), model.fit(X, Y).decision_function(X).toarray())


def signals_of(model: RIPML, X: Array) -> Candidates:
    """The candidate labels of rows in the only cluster, with the signals that the trees read."""
    decoder = model.model_.decoder
    assert isinstance(decoder, FittedBlend)
    return decoder.candidates(model.clusters_[0], model.model_.features(X), None)


def test_the_trees_of_a_blend_read_the_same_signals_as_after_a_fit() -> None:
    """Up to rounding, which moves no score by more than 1e-4, although trees have steps."""
    X, Y = rows(700, 3)
    model = RIPML(random_state=0).fit(X[:600], Y[:600])
    assert isinstance(model.model_.decoder, FittedBlend)
    assert model.model_.decoder.trees is not None
    model.partial_fit(X[600:], Y[600:]).forget(X[:40], Y[:40])
    fresh = model.without_rows().partial_fit(X[40:], Y[40:])
    one, other = (signals_of(m, rows(50, 8)[0]) for m in (model, fresh))
    np.testing.assert_array_equal(np.sort(one.labels, axis=1), np.sort(other.labels, axis=1))
    for name, signal in one.signals.items():
        found = np.take_along_axis(signal, np.argsort(one.labels, axis=1), axis=1)
        expected = np.take_along_axis(other.signals[name], np.argsort(other.labels, axis=1), axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-5 if name != "rank" else 1e-2)
    assert_equal_models(model, fresh, X[:50], 1e-4)


# With steps in place of slopes, rounding moves the rank, the votes, the value and the total of a label across a step.
@pytest.mark.parametrize("seed", [7, 49, 64, 79])
def test_scores_do_not_depend_on_the_order_in_which_rows_were_learnt(seed: int) -> None:
    sparse = bool(seed % 2)
    world = World(RIPML(random_state=seed), seed, sparse, n_start=1200, n_rows=1270)
    for _ in range(5):
        world.step()
    fresh = world.model.without_rows().partial_fit(*world.known())
    assert isinstance(fresh.model_.decoder, FittedBlend)
    assert fresh.model_.decoder.trees is not None
    assert_equal_models(world.model, fresh, rows(25, 10_000 + seed, sparse)[0], 1e-4)


def test_rows_without_labels_are_counted_and_nothing_else() -> None:
    X, Y = rows(100, 0)
    model = copy.copy(fitted_once("paper")).partial_fit(X[90:], [[], *Y[91:]])
    assert (model.n_rows_, model.n_unlabelled_) == (99, 1)
    model.relabel(X[90:91], [[]], Y[90:91])
    assert (model.n_rows_, model.n_unlabelled_) == (100, 0)
    assert_equal_models(model, fitted("paper", 100), X[:20], 1e-8)
    model.relabel(X[90:91], Y[90:91], [[]]).forget(X[90:91], [[]])
    assert (model.n_rows_, model.n_unlabelled_) == (99, 0)


def test_equal_rows_are_forgotten_one_at_a_time() -> None:
    X, Y = rows(90, 0)
    model = copy.copy(fitted_once("default"))
    model.partial_fit(X[[0, 0]], [Y[0], Y[0]])
    model.forget(X[[0, 0]], [Y[0], Y[0]])
    assert_equal_models(model, fitted_once("default").without_rows().partial_fit(X, Y), X[:20], 1e-4)


def test_an_indicator_may_have_more_columns_than_before() -> None:
    X, _ = rows(80, 0)
    Y = scipy.sparse.csr_array(np.eye(10)[np.arange(80) % 10])
    model = RIPML.paper(n_dims=12, n_neighbors=3, ridge=1.0, random_state=0).fit(X[:60, :], Y[:60, :8])
    model.partial_fit(X[60:], Y[60:])
    assert model.classes_.tolist() == list(range(10))
    expected = RIPML.paper(n_dims=12, n_neighbors=3, ridge=1.0, random_state=0)
    Y.resize((80, 10))
    kept = np.flatnonzero((np.arange(80) >= 60) | (np.arange(80) % 10 < 8))
    assert_equal_models(model, expected.fit(X[kept], Y[kept]), X[:20], 1e-8)


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_embeddings_in_few_bits_learn_on(storage: str) -> None:
    X, Y = rows(120, 0)
    settings = RIPML.paper(n_dims=40, n_neighbors=3, ridge=0.5, index=Exact(storage=storage), random_state=0)
    model = settings.fit(X[:90], Y[:90]).partial_fit(X[90:], Y[90:])
    assert {cluster.index.Z.dtype.name for cluster in model.clusters_} == {storage}
    assert_equal_models(model, model.without_rows().partial_fit(X, Y), X[:20], 1e-8)


# -------------------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("name", ALL)
def test_a_label_that_is_added_or_renamed_changes_no_score_by_a_bit(name: str) -> None:
    X, _ = rows(60, 5)
    model = copy.copy(fitted_once(name))
    before = model.decision_function(X)
    model.add_labels([f"new {i}" for i in range(3)]).rename_label("label 3", "third")
    after = model.decision_function(X)
    assert after.shape == (60, before.shape[1] + 3)
    for one, other in ((after.indptr, before.indptr), (after.indices, before.indices), (after.data, before.data)):
        np.testing.assert_array_equal(one, other)
    assert "third" in model.classes_


def test_two_copies_of_a_model_may_take_in_labels_of_their_own() -> None:
    X, Y = rows(100, 0)
    one, other = (copy.copy(fitted_once("gaussian")) for _ in range(2))
    one.partial_fit(X[90:91], [["mine"]])
    other.partial_fit(X[91:92], [["yours"]])
    names = [Y[row] for row in range(90)]
    for model, row, name in ((one, 90, "mine"), (other, 91, "yours")):
        fresh = fitted("gaussian").without_rows().partial_fit(X[[*range(90), row]], [*names, [name]])
        assert_equal_models(model, fresh, X[:20], 1e-4)


def test_a_label_that_was_added_waits_for_its_first_row() -> None:
    X, Y = rows(100, 0)
    for name in ALL:
        model = copy.copy(fitted_once(name)).add_labels(["declared"])
        model.partial_fit(X[90:91], [["label 0", "label 1", "label 2", "label 3"]])
        model.partial_fit(X[91:92], [["declared"]])
        sets = [*Y[:90], ["label 0", "label 1", "label 2", "label 3"], ["declared"]]
        fresh = fitted_once(name).without_rows().partial_fit(X[:92], sets)
        assert_equal_models(model, fresh, X[:20], 1e-8 if name.startswith("paper") else 1e-4)


def test_rows_of_equal_features_are_told_apart_by_their_numbers() -> None:
    X, Y = rows(90, 0)
    model = copy.copy(fitted_once("default")).partial_fit(X[[0, 0, 0]], [Y[0]] * 3)
    model.forget(X[[0, 0]], [Y[0]] * 2, rows=[91, 0])
    stored = model.clusters_[0].rows
    assert stored is not None
    assert stored.alive is not None
    assert set(stored.numbers[~stored.alive].tolist()) == {0, 91}
    with pytest.raises(DataError, match="no row with these labels has its features"):
        model.forget(X[:1], Y[:1], rows=[91])
    with pytest.raises(DataError, match=r"^`rows` must be one whole number for each of the 1 rows; got \[91, 0\]\.$"):
        model.forget(X[:1], Y[:1], rows=[91, 0])


def test_no_score_depends_on_how_many_labels_are_added() -> None:
    X, Y = rows(90, 0)
    model = RIPML(ensemble="gaussian", n_dims=24, decoder="sketch", kernel="linear", random_state=0).fit(X, Y)
    before = model.decision_function(X)
    for count in (1, 500, 600, 8000):
        model.add_labels([f"{count} {i}" for i in range(count)])
        after = model.decision_function(X)
        np.testing.assert_array_equal(after.indices, before.indices)
        np.testing.assert_array_equal(after.data, before.data)


def test_a_name_that_was_given_up_can_be_given_to_another_label() -> None:
    X, _ = rows(100, 0)
    model = copy.copy(fitted_once("paper")).rename_label("label 0", "old").add_labels(["label 0"])
    assert len(np.unique(model.vocabulary_.keys)) == len(model.classes_)
    model.partial_fit(X[90:91], [["label 0"]])
    assert model.frequency_[-1] == 1
    assert model.recommend(X[90:91], n=10)[0] != []


@pytest.mark.parametrize("name", ALL)
def test_a_retired_label_is_not_suggested_until_it_is_reinstated(name: str) -> None:
    X, _ = rows(60, 5)
    model = copy.copy(fitted_once(name))
    before = model.decision_function(X)
    place = model.classes_.tolist().index("label 2")
    model.retire_label("label 2")
    after = model.decision_function(X)
    assert before[:, [place]].nnz > 0
    assert after[:, [place]].nnz == 0
    others = np.delete(np.arange(before.shape[1]), place)
    np.testing.assert_array_equal(after[:, others].toarray(), before[:, others].toarray())
    model.reinstate_label("label 2")
    np.testing.assert_array_equal(model.decision_function(X).toarray(), before.toarray())


@pytest.mark.parametrize("name", ALL)
def test_a_label_that_is_dropped_leaves_nothing(name: str, tmp_path: Path) -> None:
    X, Y = rows(100, 0)
    model = copy.copy(fitted_once(name)).partial_fit(X[90:93], [["secret"], ["secret", "label 1"], ["kept"]])
    model.forget(X[90:92], [["secret"], ["secret", "label 1"]])
    before = scores_by_name(model, X[:20], sorted(set(model.classes_) - {"secret"}))
    model.drop_labels(["secret"])
    assert "secret" not in model.classes_
    np.testing.assert_allclose(scores_by_name(model, X[:20], sorted(model.classes_)), before, atol=5e-6)
    model.save(tmp_path / "model")
    assert not any(b"secret" in path.read_bytes() for path in (tmp_path / "model").iterdir())
    model.partial_fit(X[93:], Y[93:])
    names = [Y[row] for row in range(90)]
    fresh = model.without_rows().partial_fit(np.concatenate([X[:90], X[92:]]), [*names, ["kept"], *Y[93:]])
    assert_equal_models(model, fresh, X[:20], 1e-8 if name.startswith("paper") else 1e-4)


def test_labels_that_rows_carry_are_not_dropped() -> None:
    model = copy.copy(fitted_once("paper"))
    with pytest.raises(
        DataError, match=r"^the label 'label 1' is carried by \d+ rows; relabel or forget them first\.$"
    ):
        model.drop_labels(["label 1"])


def test_families_of_a_fixed_size_take_labels_up_to_it() -> None:
    X, Y = rows(90, 0)
    model = RIPML.paper(n_dims=10, n_neighbors=3, ridge=1.0, ensemble=PolynomialPhase(degree=2), random_state=0)
    capacity = model.fit(X, Y).ensemble_.capacity(10)
    assert capacity is not None
    before = model.decision_function(X)
    model.add_labels([f"new {i}" for i in range(capacity - len(model.classes_))])
    np.testing.assert_array_equal(model.decision_function(X).data, before.data)
    with pytest.raises(ParameterError, match="labels"):
        model.partial_fit(X[:1], [["one more"]])
    assert "one more" not in model.classes_
    model.drop_labels(["new 0"]).add_labels(["another"])
    np.testing.assert_array_equal(model.decision_function(X).data, before.data)


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("solver", ["cg", "gd"])
def test_a_solver_that_is_not_exact_says_which_is(solver: str) -> None:
    X, Y = rows(60, 0)
    model = RIPML.paper(n_dims=8, n_neighbors=3, ridge=1.0, solver=solver).fit(X, Y)
    with pytest.raises(ParameterError, match=rf"^solver='{solver}' stops short of the exact solution.*solver='primal'"):
        model.partial_fit(X[:1], Y[:1])


@pytest.mark.parametrize("name", ALL)
def test_a_row_that_was_never_learnt_is_not_forgotten(name: str) -> None:
    X, Y = rows(90, 0)
    model = copy.copy(fitted_once(name))
    before = model.decision_function(X).toarray()
    with pytest.raises(DataError, match=r"^a row with the label 'unknown' was never learnt"):
        model.forget(X[:1], [["unknown"]])
    with pytest.raises(DataError, match=r"^a row to be forgotten or relabelled was never learnt"):
        model.forget(X[:2], [Y[0], [f"label {i}" for i in range(12)]])
    if model.clusters_[0].searched_rows is not None:
        with pytest.raises(DataError, match=r"no row with these labels has its features\.$"):
            model.forget(X[:1] + 5, Y[:1])
    np.testing.assert_array_equal(model.decision_function(X).toarray(), before)
    model.forget(X[:1], Y[:1])
    assert model.n_rows_ == 89


@dataclass(frozen=True)
class Halted(ConjugateGradient):
    """A solver of another package."""

    word: ClassVar[str] = "halted"


def test_a_registered_solver_that_is_not_exact_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._STAGES["solver"], "halted", f"{__name__}:Halted")
    X, Y = rows(90, 0)
    model = RIPML.paper(n_dims=8, n_neighbors=3, ridge=1.0, solver="halted", random_state=0).fit(X, Y)
    with pytest.raises(ParameterError, match="solver='halted' stops short of the exact solution"):
        model.partial_fit(X[:1], Y[:1])


@pytest.mark.parametrize("name", ALL)
def test_a_change_that_is_refused_leaves_a_model_that_learns_on(name: str) -> None:
    X, Y = rows(100, 0)
    model = copy.copy(fitted_once(name)).partial_fit(X[90:95], Y[90:95])
    with pytest.raises(DataError, match="was never learnt"):
        model.relabel(X[[0, 50]], [Y[0], [f"label {i}" for i in range(12)]], [["never", "seen"], ["before"]])
    assert "never" not in model.classes_
    model.partial_fit(X[95:], Y[95:])
    assert_equal_models(model, model.without_rows().partial_fit(X, Y), X[:20], 1e-8 if "paper" in name else 1e-4)


def test_more_rows_than_were_learnt_are_not_forgotten() -> None:
    X, _ = rows(90, 0)
    model = copy.copy(fitted_once("paper")).partial_fit(X[:1], [["single"]])
    with pytest.raises(DataError, match="no row is left with these labels"):
        model.forget(X[[0, 0]], [["single"], ["single"]])
    model.forget(X[:1], [["single"]])
    with pytest.raises(DataError, match="no row is left with these labels"):
        model.forget(X[:1], [["single"]])


def test_numbers_of_rows_must_agree() -> None:
    X, Y = rows(90, 0)
    model = copy.copy(fitted_once("paper"))
    with pytest.raises(DataError, match=r"^X has 2 rows and Y has 1"):
        model.partial_fit(X[:2], Y[:1])
    with pytest.raises(DataError, match=r"^X has 2 rows and Y has 1"):
        model.relabel(X[:2], Y[:2], Y[:1])
    with pytest.raises(ValueError, match="X has 5 features, but RIPML is expecting 12"):
        model.partial_fit(X[:1, :5], Y[:1])
    with pytest.raises(ParameterError, match=r"^`label_names` names the columns at the first fit"):
        model.partial_fit(X[:1], Y[:1], label_names=["a"])


def test_an_older_version_of_a_model_of_sums_says_so() -> None:
    X, Y = rows(120, 0)
    older = copy.copy(fitted_once("paper")).partial_fit(X[90:95], Y[90:95])
    copy.copy(older).partial_fit(X[95:], Y[95:])
    with pytest.raises(
        ParameterError,
        match=r"^this version of the model has nothing to learn on from; take the newest one, or fit again\.$",
    ):
        older.partial_fit(X[95:], Y[95:])


def test_labels_that_cannot_be_are_refused() -> None:
    model = copy.copy(fitted_once("paper"))
    with pytest.raises(DataError, match=r"^the label 'label 1' already exists\.$"):
        model.add_labels(["fresh", "label 1"])
    with pytest.raises(DataError, match=r"^the label 'fresh' already exists\.$"):
        model.add_labels(["fresh", "fresh"])
    with pytest.raises(DataError, match=r"^label names must be all strings or all integers; got both\.$"):
        model.add_labels([5])
    with pytest.raises(DataError, match=r"^the label 'label 2' already exists; relabel rows to merge"):
        model.rename_label("label 1", "label 2")
    for change in (model.retire_label, model.reinstate_label, lambda name: model.rename_label(name, "x")):
        with pytest.raises(DataError, match=r"^the model has no label 'absent'\.$"):
            change("absent")
    assert len(model.classes_) == N_LABELS


# ---------------------------------------------------------------------------------------------------------- statistics


def test_what_was_learnt_since_the_fit_is_counted() -> None:
    X, Y = rows(120, 0)
    model = copy.copy(fitted_once("paper"))
    assert model.warm_["drift"] == 0
    model.partial_fit(X[90:95], Y[90:95]).forget(X[:2], Y[:2]).relabel(X[2:3], Y[2:3], [["new"]])
    warm = model.warm_
    expected = {"rows_at_fit": 90, "learnt": 5, "forgotten": 2, "relabelled": 1, "labels_added": 1}
    assert {name: warm[name] for name in expected} == expected
    assert warm["changed"] == pytest.approx(8 / 90)
    assert 0 < warm["drift"] < 1e-12
    assert not warm["refit_pays"]
    assert model.partial_fit(X[95:], Y[95:]).warm_["refit_pays"]
    assert model.fit(X, Y).warm_["learnt"] == 0


def test_stored_rows_keep_their_numbers() -> None:
    X, Y = rows(100, 0)
    model = copy.copy(fitted_once("default")).forget(X[3:5], Y[3:5]).partial_fit(X[90:], Y[90:])
    stored = model.clusters_[0].rows
    assert stored is not None
    assert stored.alive is not None
    assert sorted(stored.numbers[stored.alive].tolist()) == [*range(3), *range(5, 100)]
    unit_rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    if model.scaling_.weights is None and model.scaling_.columns is None:
        np.testing.assert_allclose(stored.X.all(), unit_rows[stored.numbers], atol=1e-6)
    assert model.n_seen_ == 100
    examples = [example for why in model.explain(X[95:96], n=3)[0] for example in why.examples]
    assert all(example.row not in (3, 4) for example in examples)


def test_places_of_what_was_forgotten_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ripml.model.cluster._DEAD", 10)
    X, Y = rows(150, 0)
    for name in ("paper", "default", "wide", "least squares", "paper, dual"):
        model = fitted(name, 120).forget(X[:100], Y[:100])
        assert len(model.clusters_[0].index.counts) < 60
        model.partial_fit(X[120:], Y[120:]).forget(X[100:110], Y[100:110])
        fresh = model.without_rows().partial_fit(X[110:], Y[110:])
        assert_equal_models(model, fresh, X[:20], 1e-8 if name.startswith("paper") else 1e-4)


# ----------------------------------------------------------------------------------------------------- what went wrong


# The steps of a change at which memory may run out. Kernels and similar rows that vote need training rows; the other
# models keep sums alone once they have changed.
STEPS: dict[str, list[tuple[type, str]]] = {
    "label sets": [(LabelSetIndex, "changed")],
    "sums": [(IncrementalRidge, "apply"), (IncrementalKernelRidge, "apply")],
    "coefficients": [(LinearRegression, "_solution"), (KernelRegression, "_solution")],
    "rows": [(TrainingRows, "changed")],
}
WITH_ROWS = ["weighted, kernel", "kernel, identity", "default", "local", "clusters", "gaussian"]


@pytest.mark.parametrize(
    ("name", "step"), [(name, step) for name in ALL for step in STEPS if step != "rows" or name in WITH_ROWS]
)
def test_a_change_that_fails_half_way_leaves_the_model_as_it_was(
    name: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = rows(100, 0)
    model = copy.copy(fitted_once(name)).partial_fit(X[90:95], Y[90:95])
    before = model.decision_function(X).toarray()

    def fails(*_: Any) -> None:
        raise MemoryError("no more")

    with monkeypatch.context() as patched:
        for owner, method in STEPS[step]:
            patched.setattr(owner, method, fails)
        with pytest.raises(MemoryError, match="no more"):
            model.partial_fit(X[95:], [*Y[95:99], ["never seen"]])
    np.testing.assert_array_equal(model.decision_function(X).toarray(), before)
    assert (model.n_rows_, "never seen" in model.classes_) == (95, False)
    model.save(tmp_path / "model")
    for one in (model, ripml.load(tmp_path / "model")):
        assert isinstance(one, RIPML)
        if (
            name not in WITH_ROWS and step != "label sets"
        ):  # the sums were changed, and there are no rows to add up again
            with pytest.raises(ParameterError, match="has nothing to learn on from"):
                one.partial_fit(X[95:], Y[95:])
        else:
            one.partial_fit(X[95:], Y[95:])
            assert_equal_models(one, one.without_rows().partial_fit(X, Y), X[:20], 1e-4)


@pytest.mark.parametrize(
    "settings", [RIPML(normalize=False, relevance=0), RIPML.linear(normalize=False, relevance=0),
                 RIPML.paper(n_dims=8, normalize=False, solver="dual", ridge=1.0)]
)  # fmt: skip
def test_what_the_caller_does_to_an_array_later_is_not_seen(settings: RIPML) -> None:
    X, Y = rows(100, 0)
    first, later = X[:90].astype(np.float32), X[90:].astype(np.float32)
    model = copy.deepcopy(settings).set_params(random_state=0).fit(first, Y[:90])
    fresh = model.without_rows().partial_fit(X.astype(np.float32), Y)
    first[:] = 0
    model.partial_fit(later, Y[90:])
    later[:] = 0
    assert_equal_models(model, fresh, X[:20], 1e-4)
    model.forget(X[95:].astype(np.float32), Y[95:])


@pytest.mark.parametrize("settings", [RIPML.paper(n_dims=8, n_neighbors=3, ridge=1.0), RIPML.linear(ridge=1.0)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_more_features_than_rows_are_learnt_and_forgotten_by_number(settings: RIPML, dtype: type) -> None:
    random = np.random.default_rng(0)
    X: Array = random.normal(size=(60, 2100)).astype(dtype)
    Y = [[f"label {j}" for j in random.permutation(6)[:2]] for _ in range(60)]
    model = copy.deepcopy(settings).set_params(random_state=0).fit(X[:50], Y[:50])
    model.partial_fit(X[50:], Y[50:]).forget(X[[3, 55]], [Y[3], Y[55]], rows=[3, 55])
    rest = [row for row in range(60) if row not in (3, 55)]
    fresh = model.without_rows().partial_fit(X[rest], [Y[row] for row in rest])
    assert_equal_models(model, fresh, X[:20], 1e-4)


def test_a_label_new_in_one_of_several_clusters_can_be_saved(tmp_path: Path) -> None:
    X, Y = rows(120, 0)
    RIPML.linear(n_clusters=2, random_state=0).fit(X[:100], Y[:100]).save(tmp_path / "model")
    model = ripml.load(tmp_path / "model")
    assert isinstance(model, RIPML)
    model.partial_fit(X[100:101], [["new"]]).save(tmp_path / "again")
    again = ripml.load(tmp_path / "again")
    assert isinstance(again, RIPML)
    for one in (model, again):
        one.partial_fit(X[101:], Y[101:])
        fresh = one.without_rows().partial_fit(X, [*Y[:100], ["new"], *Y[101:]])
        assert_equal_models(one, fresh, X[:20], 1e-4)


def test_embeddings_past_the_last_step_of_eight_bits_are_cut_and_do_not_change_their_sign() -> None:
    X, Y = rows(120, 0)
    settings = RIPML.paper(n_dims=40, n_neighbors=3, ridge=0.5, index=Exact(storage="int8"), random_state=0)
    model = settings.fit(X[:90], [["few"], ["labels"]] * 45).partial_fit(X[90:], Y[90:])
    index = model.clusters_[0].index
    projection = model.model_.decoder.embedding.projection
    Z = projection.embed(index.sets, model.vocabulary_.keys).reshape(len(index.counts), 5, 40).transpose(1, 0, 2)
    large = np.abs(Z) > index.scale
    assert (np.abs(Z) > 127.5 * index.scale).any()
    assert (np.sign(index.Z[large]) == np.sign(Z[large])).all()


def test_rare_labels_are_put_forward_alike_when_a_label_is_added() -> None:
    X, Y = rows(90, 0)
    model = RIPML(tail=0.5, random_state=0).fit(X, Y)
    before = model.decision_function(X)
    np.testing.assert_array_equal(model.add_labels(["new"]).decision_function(X).data, before.data)


def test_numbers_as_names_are_whole_numbers() -> None:
    X, _ = rows(20, 0)
    model = RIPML.paper(n_dims=8, n_neighbors=1, ridge=1.0).fit(X, [[10 + i % 3] for i in range(20)])
    wrongs: list[Any] = [10.5, True, 2**70, None, []]
    for wrong in wrongs:
        with pytest.raises(DataError, match="a label name is a string or a 64-bit integer"):
            model.add_labels([wrong])
        with pytest.raises(DataError, match="a label name is a string or a 64-bit integer"):
            model.rename_label(10, wrong)
        with pytest.raises(DataError, match=r"^the model has no label"):
            model.retire_label(wrong)
    with pytest.raises(DataError, match=r"^a list of label names is needed; got the string 'cold'\.$"):
        model.add_labels("cold")
    with pytest.raises(DataError, match=r"^Y has 4 columns, but the model knows 3 labels\.$"):
        model.partial_fit(X[:1], np.ones((1, 4)))
    assert model.add_labels([np.int64(20), 21.0]).classes_.tolist() == [10, 11, 12, 20, 21]


def test_statistics_are_read_while_a_writer_learns() -> None:
    X, Y = rows(150, 0)
    for name in ("paper", "default"):
        model = copy.copy(fitted_once(name))
        done = threading.Event()
        errors: list[BaseException] = []

        def read(model: RIPML = model, done: threading.Event = done, errors: list[BaseException] = errors) -> None:
            try:
                while not done.is_set():
                    assert model.warm_["drift"] < 1e-9
                    model.explain(X[:1], n=1)
            except BaseException as error:
                errors.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        for row in range(90, 120):
            model.partial_fit(X[row : row + 1], [[*Y[row], f"new {row}"]])
        done.set()
        reader.join()
        assert not errors


def test_a_new_label_waits_for_who_measures_the_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = rows(150, 0)
    model = copy.copy(fitted_once("default")).partial_fit(X[90:91], Y[90:91])
    writers: list[threading.Thread] = []
    measured, times = inverse.measured, 0

    def measured_while_one_learns(n: int, *few: int) -> Any:
        """The second time, between coefficients and targets, a writer brings more labels than there is room for."""
        nonlocal times
        times += 1
        if times == 2:
            more = [[f"new {number}" for number in range(600)]]
            writers.append(threading.Thread(target=lambda: model.partial_fit(X[91:92], more)))
            writers[0].start()
            writers[0].join(timeout=1.0)
        return measured(n, *few)

    monkeypatch.setattr(incremental_kernel, "measured", measured_while_one_learns)
    assert model.warm_["drift"] < 1e-9
    writers[0].join()
    assert model.warm_["drift"] < 1e-9
    assert model.warm_["learnt"] == 2


def test_small_features_are_told_from_their_opposites() -> None:
    X, Y = rows(40, 0)
    model = RIPML(kernel=RBF(1e10), normalize=False, relevance=0, ridge=0.1, random_state=0).fit(1e-6 * X, Y)
    with pytest.raises(DataError, match="no row with these labels has its features"):
        model.forget(-1e-6 * X[:1], Y[:1])
    assert model.forget(1e-6 * X[:1], Y[:1]).n_rows_ == 39


def test_an_older_copy_that_takes_a_label_leaves_the_newer_one_alone() -> None:
    X, Y = rows(100, 0)
    base = copy.copy(fitted_once("clusters"))
    newer = copy.copy(base).partial_fit(X[90:95], Y[90:95])
    base.partial_fit(X[:1], [["mine"]])
    newer.partial_fit(X[95:], Y[95:])
    assert_equal_models(newer, newer.without_rows().partial_fit(X, Y), X[:20], 1e-4)


@pytest.mark.parametrize("name", ["default", "local", "gaussian"])
def test_rows_that_share_nothing_with_a_query_are_heard_in_their_order(name: str) -> None:
    """More rows than may vote are exactly as like: the earliest are heard, wherever they are stored."""
    random = np.random.default_rng(1)
    X = scipy.sparse.csr_array((random.random((160, 40)) < 0.05) * random.random((160, 40)))
    _, Y = rows(160, 0)
    model = copy.deepcopy(ALL[name]).set_params(random_state=0).fit(X[:120], Y[:120])
    model.partial_fit(X[120:], Y[120:]).forget(X[10:40], Y[10:40])
    rest = [*range(10), *range(40, 160)]
    fresh = model.without_rows().partial_fit(X[rest], [Y[row] for row in rest])
    assert_equal_models(model, fresh, X, 1e-4)


def test_a_saved_model_still_knows_what_rounding_its_sums_have(tmp_path: Path) -> None:
    X, Y = rows(60, 0)
    model = RIPML.paper(n_dims=8, n_neighbors=3, ridge=1.0, normalize=False, random_state=0).fit(X, Y)
    huge = np.full((1, N_FEATURES), 1e7)
    model.partial_fit(huge, [["huge"]]).forget(huge, [["huge"]])
    drift = model.warm_["drift"]
    assert drift > 1e-6
    model.save(tmp_path / "model")
    loaded = ripml.load(tmp_path / "model")
    assert isinstance(loaded, RIPML)
    assert loaded.partial_fit(X[:1], Y[:1]).warm_["drift"] == pytest.approx(drift, rel=0.5)


def test_a_row_that_sums_show_to_be_no_row_of_theirs_leaves_a_model_that_learns_on(tmp_path: Path) -> None:
    X, Y = rows(100, 0)
    model = RIPML.paper(n_dims=12, n_neighbors=3, ridge=0.5, normalize=False, random_state=0).fit(X[:90], Y[:90])
    model.partial_fit(X[90:95], Y[90:95])
    before = model.decision_function(X)
    for _ in range(2):
        with pytest.raises(DataError, match="was never learnt: no row has its features"):
            model.forget(1e3 * X[:1], Y[:1])
        assert (model.decision_function(X) != before).nnz == 0
    model.save(tmp_path / "model")
    loaded = ripml.load(tmp_path / "model")
    assert isinstance(loaded, RIPML)
    fresh = RIPML.paper(n_dims=12, n_neighbors=3, ridge=0.5, normalize=False, random_state=0).fit(X, Y)
    for learning in (model, loaded):
        assert_equal_models(learning.partial_fit(X[95:], Y[95:]), fresh, X[:20], 1e-8)


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_explained_once_all_is_forgotten(name: str) -> None:
    X, Y = rows(90, 0)
    assert copy.copy(fitted_once(name)).forget(X, Y).explain(X[:2]) == [[], []]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("n_clusters", [1, 2])
def test_where_sums_are_kept_a_row_with_other_features_than_those_learnt_is_refused(
    tmp_path: Path, n_clusters: int, saved: bool
) -> None:
    world = worlds.planted(60)
    model = RIPML.paper(n_dims=20, ridge=0.1, random_state=0, n_clusters=n_clusters).fit(world.X, world.names)
    model.forget(world.X[:1], world.names[:1])  # from now on there are only sums
    if saved:
        model.save(tmp_path / "model")
        model = ripml.load(tmp_path / "model")
    before = model.decision_function(world.X_new).toarray()
    with pytest.raises(DataError, match="was never learnt: no row has its features"):
        model.forget(1.01 * world.X[5:6] + 0.01, world.names[5:6])
    with pytest.raises(DataError, match="was never learnt: no row has its features"):
        model.relabel(1.01 * world.X[5:6] + 0.01, world.names[5:6], [["other"]])
    with pytest.raises(DataError, match="was never learnt"):
        model.forget(world.X[:1], world.names[:1])
    np.testing.assert_array_equal(model.decision_function(world.X_new).toarray(), before)
    model.relabel(world.X[5:6], world.names[5:6], [["other"]]).forget(world.X[5:6], [["other"]])
    assert model.n_rows_ == 58


# ------------------------------------------------------------------------------------------------------------- threads


def learns(model: RIPML) -> None:
    model.partial_fit(*rows(1, 5))


WRITERS: dict[str, Callable[[RIPML], Any]] = {
    "fit": lambda model: model.fit(*rows(20, 0)),
    "partial_fit": learns,
    "forget": lambda model: model.forget(rows(90, 0)[0][:1], rows(90, 0)[1][:1]),
    "relabel": lambda model: model.relabel(rows(90, 0)[0][:1], rows(90, 0)[1][:1], [["other"]]),
    "add_labels": lambda model: model.add_labels(["new"]),
    "drop_labels": lambda model: model.drop_labels([]),
}


@pytest.mark.parametrize("second", WRITERS)
def test_a_second_thread_that_changes_an_estimator_is_refused_and_no_row_is_lost(
    second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers are free meanwhile, and so are copies; the next change after the first is accepted."""
    model, X = fitted("paper"), rows(5, 3)[0]
    started, go_on, original = threading.Event(), threading.Event(), Model.changed

    def waits(self: Model, *given: Any) -> Model:
        started.set()
        assert go_on.wait(60)
        return original(self, *given)

    monkeypatch.setattr(Model, "changed", waits)
    first = threading.Thread(target=learns, args=(model,))
    first.start()
    assert started.wait(60)
    monkeypatch.setattr(Model, "changed", original)
    try:
        with pytest.raises(ConcurrentChangeError, match=rf"another thread is changing this RIPML, and `{second}`"):
            WRITERS[second](model)
        model.predict(X)
        model.recommend(X)
        model.explain(X[:1])
        for other in (copy.copy(model), pickle.loads(pickle.dumps(model)), clone(model).fit(*rows(20, 0))):
            WRITERS["add_labels"](other)
    finally:
        go_on.set()
        first.join()
    assert model.n_rows_ == 91
    learns(model)
    assert model.n_rows_ == 92


def test_a_change_that_fails_does_not_lock_the_estimator() -> None:
    model = fitted("paper")
    with pytest.raises(DataError, match="was never learnt: the model does not know that label"):
        model.forget(rows(1, 77)[0], [["never seen"]])
    learns(model)
    assert model.n_rows_ == 91
