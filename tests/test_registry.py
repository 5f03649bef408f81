"""The registry: a new stage is one class and one line, and works wherever a stage is named."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import worlds
from numpy.typing import NDArray

import ripml
from ripml import RIPML
from ripml.base import registry
from ripml.base.errors import ModelFolderError, ParameterError
from ripml.base.workspace import Workspace
from ripml.decoding.blend import Candidates
from ripml.decoding.decoders import SignalDecoder
from ripml.decoding.signals import FittedSignals, SingleSignal
from ripml.labels.ensembles import Ensemble
from ripml.labels.projection import Projection
from ripml.model import fitting
from ripml.neighbors import Index, Searcher
from ripml.regression import RidgeSolver, Solution
from ripml.regression.kernels import Kernel

WORLD = worlds.zipf()
KINDS = ("ensemble", "kernel", "solver", "index", "decoder")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_STAGES", copy.deepcopy(registry._STAGES))


@pytest.fixture(autouse=True, scope="module")
def _restored_registry() -> Iterator[None]:
    """After all tests the registry is as it was."""
    before = copy.deepcopy(registry._STAGES)
    yield
    assert before == registry._STAGES


# ---------------------------------------------------------------------------------------------------------- toy stages


@dataclass(frozen=True)
class ToyEnsemble(Ensemble):
    """Normal entries by NumPy's generator, seeded for each column."""

    def rule(self, keys: NDArray[np.uint64], n_dims: int, seed: int) -> NDArray[np.float32]:
        columns = [np.random.default_rng([seed, int(key)]).standard_normal(n_dims) for key in keys]
        return np.asarray(np.reshape(columns, (len(keys), n_dims)) / n_dims**0.5, np.float32)


@dataclass(frozen=True)
class ToyKernel(Kernel):
    """(1 + ⟨x, x'⟩)ᵖ/2ᵖ, which is 1 for equal rows of length 1."""

    word: ClassVar[str] = "toy"

    power: int = 2

    def of_products(self, products: Any, left: Any, right: Any) -> None:
        products += 1
        products /= 2
        products **= self.power


@dataclass(frozen=True)
class ToySolver(RidgeSolver):
    """The normal equations by NumPy; a row is left out by solving again without it."""

    word: ClassVar[str] = "toy"

    def memory(self, n: int, d: int, n_targets: int) -> tuple[float, str]:
        return 8.0 * d * d, "XᵀX"

    def _prepare(self, X: Any, Z: Any, n_jobs: int | None, once: bool, workspace: Workspace) -> Any:
        X, Z = (np.asarray(M.toarray() if hasattr(M, "toarray") else M, np.float64) for M in (X, Z))

        def solved(rows: Any, alpha: float) -> NDArray[np.float64]:
            gram = X[rows].T @ X[rows] + alpha * np.eye(X.shape[1])
            return np.asarray(np.linalg.solve(gram, X[rows].T @ Z[rows]))

        def solve(alpha: float) -> Solution:
            everything = np.arange(len(X))

            def left_out(rows: NDArray[np.int64]) -> NDArray[np.float64]:
                return np.stack([X[row] @ solved(np.delete(everything, row), alpha) for row in rows])

            return Solution(solved(everything, alpha), self.word, left_out)

        return solve


class ToySearcher(Searcher):
    """All distances, sorted."""

    def __init__(self, Z: NDArray[Any], kept: NDArray[np.int64]) -> None:
        self.Z, self.kept, self.n_rows = Z, kept, len(kept)

    def query(self, Q: Any, k: int, n_jobs: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        rows = self.Z[self.kept].astype(np.float64)
        distances = np.square(Q[:, None].astype(np.float64) - rows).sum(axis=2)
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return self.kept[order], np.take_along_axis(distances, order, axis=1)

    def changed(self, Z: NDArray[Any], removed: NDArray[np.int64]) -> Searcher:
        kept = np.concatenate([self.kept, np.arange(len(self.Z), len(Z))])
        return ToySearcher(Z, np.setdiff1d(kept, removed))


@dataclass(frozen=True)
class ToyIndex(Index):
    """A search by brute force."""

    def build(self, Z: NDArray[Any], n_jobs: int | None = None) -> Searcher:
        return ToySearcher(Z, np.arange(len(Z)))


@dataclass(frozen=True)
class SquaredValue(SingleSignal):
    """The square of one signal is the score."""

    def combined(self, candidates: Candidates, n_jobs: int | None) -> NDArray[np.float32]:
        return super().combined(candidates, n_jobs) ** 2


@dataclass(frozen=True)
class ToyDecoder(SignalDecoder):
    """The square of the value of the regression."""

    def fitted(self, *given: Any) -> FittedSignals:
        plain = super().fitted(*given)
        return SquaredValue(plain.embedding, plain.choices, plain.frequency, plain.few_labels, plain.local, "value")


TOYS = {
    "ensemble": ToyEnsemble,
    "kernel": ToyKernel,
    "solver": ToySolver,
    "index": ToyIndex,
    "decoder": ToyDecoder,
}
# What makes the toy stage matter, and the same model with a stage of the library that gives the same answers.
SETTINGS: dict[str, dict[str, Any]] = {
    "ensemble": {"decoder": "sketch", "kernel": "linear", "n_dims": 64},
    "kernel": {"decoder": "sketch", "relevance": 0},
    "solver": {"decoder": "sketch", "kernel": "linear"},
    "index": {"decoder": "weighted", "kernel": "linear"},
    "decoder": {"kernel": "linear"},
}


def register(kind: str) -> None:
    """The one line that adds a stage."""
    registry.register(kind, "toy", f"{__name__}:{TOYS[kind].__name__}")


def model_of(kind: str, stage: Any = "toy", **settings: Any) -> RIPML:
    return RIPML(**{"ridge": 0.3, "random_state": 0, **SETTINGS[kind], kind: stage, **settings})


def fitted_toy(kind: str, stage: Any = "toy", **settings: Any) -> RIPML:
    register(kind)
    return model_of(kind, stage, **settings).fit(WORLD.X, WORLD.Y)


# ------------------------------------------------------------------------------------------------- one class, one line


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKindOfStage:
    def test_a_registered_stage_is_listed_and_resolved(self, kind: str) -> None:
        assert "toy" not in registry.words(kind)
        register(kind)
        assert registry.words(kind)[-1] == "toy"
        assert registry.named(kind, "toy") is TOYS[kind]
        assert registry.class_names(kind)[-1] == TOYS[kind].__name__
        assert registry.summary(kind, "toy") == (TOYS[kind].__doc__ or "").split("\n")[0]
        stage = TOYS[kind]()
        assert registry.resolve(kind, "toy") == stage
        assert registry.resolve(kind, stage) is stage
        assert registry.from_json(registry.to_json(kind, stage)) == stage

    def test_a_model_with_it_is_fitted_and_predicts(self, kind: str) -> None:
        model = fitted_toy(kind)
        assert model.left_out_precision_["P@1"] > 0.4
        assert model.score(WORLD.X_new, WORLD.Y_new) > 0.4
        assert model.recommend(WORLD.X_new[:1], n=3)[0]

    @pytest.mark.parametrize("as_word", [True, False], ids=["word", "object"])
    def test_a_model_with_it_is_saved_and_loaded(self, kind: str, as_word: bool, tmp_path: Path) -> None:
        model = fitted_toy(kind, "toy" if as_word else TOYS[kind]())
        model.save(tmp_path / "model")
        loaded = ripml.load(tmp_path / "model")
        assert loaded.get_params() == model.get_params()
        found, expected = (one.decision_function(WORLD.X_new).toarray() for one in (loaded, model))
        np.testing.assert_array_equal(found, expected)

    def test_a_model_with_it_learns_forgets_and_explains(self, kind: str) -> None:
        model = fitted_toy(kind)
        expected = model.decision_function(WORLD.X_new).toarray()
        more = WORLD.Y_new[:4]
        model.partial_fit(WORLD.X_new[:4], more)
        assert np.abs(model.decision_function(WORLD.X_new).toarray() - expected).max() > 1e-3
        model.forget(WORLD.X_new[:4], more)
        np.testing.assert_allclose(model.decision_function(WORLD.X_new).toarray(), expected, atol=1e-4)
        for one in model.explain(WORLD.X_new[:1], n_features=WORLD.X.shape[1])[0]:
            shares = sum(example.share for example in one.examples) + one.others + one.regression
            assert shares == pytest.approx(one.score, rel=1e-9)
            assert sum(pull for _, pull in one.features) + one.intercept == pytest.approx(one.value, rel=1e-4, abs=1e-6)

    def test_a_folder_is_refused_where_its_stage_is_not_registered(
        self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fitted_toy(kind, TOYS[kind]()).save(tmp_path / "model")
        stages = copy.deepcopy(registry._STAGES)
        del stages[kind]["toy"]
        monkeypatch.setattr(registry, "_STAGES", stages)
        with pytest.raises(ModelFolderError, match=TOYS[kind].__name__):
            ripml.load(tmp_path / "model")

    def test_a_stage_that_is_not_registered_cannot_be_saved(self, kind: str, tmp_path: Path) -> None:
        model = model_of(kind, TOYS[kind]()).fit(WORLD.X, WORLD.Y)
        with pytest.raises(ParameterError, match=rf"a model with {kind}=Toy.* cannot be saved; only registered stages"):
            model.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()

    @pytest.mark.parametrize("wrong", ["toy", "", None, 3])
    def test_an_unknown_word_is_refused_with_the_words_that_exist(self, kind: str, wrong: Any) -> None:
        words = ", ".join(registry.words(kind))
        with pytest.raises(ParameterError, match=rf"^`{kind}` must be one of {words} or an? \w+; got {wrong!r}\.$"):
            registry.resolve(kind, wrong)
        with pytest.raises(ParameterError, match=f"`{kind}` must be one of (auto, )?{words}"):
            model_of(kind, wrong).fit(WORLD.X, WORLD.Y)

    def test_a_class_or_a_stage_of_another_kind_is_refused(self, kind: str) -> None:
        other = TOYS[KINDS[(KINDS.index(kind) + 1) % len(KINDS)]]()
        for wrong in (TOYS[kind], other):
            with pytest.raises(ParameterError, match=f"`{kind}` must be one of .*; got "):
                registry.resolve(kind, wrong)


# ------------------------------------------------------------------------------------------------------- known answers


def scores(model: RIPML) -> NDArray[np.float64]:
    return np.asarray(model.decision_function(WORLD.X_new).toarray())


def test_a_toy_index_finds_what_the_exact_index_finds() -> None:
    expected = model_of("index", "exact").fit(WORLD.X, WORLD.Y)
    np.testing.assert_allclose(scores(fitted_toy("index")), scores(expected), atol=1e-6)


def test_a_toy_solver_finds_what_the_primal_finds_and_names_itself() -> None:
    expected = model_of("solver", "primal").fit(WORLD.X, WORLD.Y)
    found = fitted_toy("solver")
    np.testing.assert_allclose(scores(found), scores(expected), atol=1e-5)
    assert found.left_out_precision_ == expected.left_out_precision_
    assert (found.solutions_[0]["solver"], found.solutions_[0]["reason"]) == ("toy", "given")


def test_a_toy_solver_serves_also_where_its_matrix_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_SMALL", 10)
    assert fitted_toy("solver").left_out_precision_["P@1"] > 0.4


def test_a_toy_decoder_gives_the_squares_of_the_sketch() -> None:
    expected = model_of("decoder", "sketch").fit(WORLD.X, WORLD.Y)
    np.testing.assert_allclose(scores(fitted_toy("decoder")), scores(expected) ** 2, atol=2e-6)


def test_a_toy_kernel_is_that_of_kernel_ridge() -> None:
    model = fitted_toy("kernel", ensemble="identity")
    X, X_new = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in (WORLD.X, WORLD.X_new))
    K, k = ((1 + M @ X.T) ** 2 / 4 for M in (X, X_new))
    values = k @ np.linalg.solve(K + 0.3 * np.eye(len(X)), WORLD.Y.toarray())
    found = model.decision_function(WORLD.X_new)
    row = np.repeat(np.arange(len(X_new)), np.diff(found.indptr))
    np.testing.assert_allclose(found.data, np.clip(values, 0, 1)[row, found.indices], atol=1e-3)


def test_a_toy_ensemble_makes_the_columns_of_phi() -> None:
    model = fitted_toy("ensemble")
    columns = model.model_.decoder.embedding.columns(np.arange(3))
    keys = model.vocabulary_.keys[:3]
    np.testing.assert_array_equal(columns, Projection(ToyEnsemble(), 64, 1, model.seed_).columns(keys))
    assert model.ensemble_ == ToyEnsemble()


# ------------------------------------------------------------------------------------------------------ values as JSON


@pytest.mark.parametrize("value", [3, 0.5, "auto", True, None, np.int64(3), np.float32(0.5), np.bool_(True)], ids=repr)
def test_plain_values_come_back_from_json_as_they_were(value: Any) -> None:
    written = registry.to_json("n_dims", value)
    assert isinstance(written, (int, float, str, bool, type(None)))
    assert registry.from_json(written) == value


def test_a_generator_as_random_state_is_written_as_none() -> None:
    assert registry.to_json("random_state", np.random.RandomState(0)) is None
    assert registry.to_json("random_state", np.int64(5)) == 5


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, object, ToyIndex], ids=str)
def test_a_value_that_is_neither_plain_nor_a_stage_cannot_be_written(value: Any) -> None:
    with pytest.raises(ParameterError, match=r"a model with index=.* cannot be saved; only registered stages can"):
        registry.to_json("index", value)
