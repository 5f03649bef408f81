"""Decoders: the laws that hold for each of them, their words, their options, and what is refused."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import laws
import numpy as np
import pytest
import worlds
from sklearn.base import clone

import ripml
from ripml import RIPML
from ripml.base import registry
from ripml.base.errors import ParameterError
from ripml.decoding.decoders import Blend, Decoder, LeastSquares, Sketch, Votes, WeightedVotes
from ripml.decoding.signals import FittedBlend
from ripml.regression.kernels import RBF

WORDS: dict[str, Decoder] = {
    "votes": Votes(),
    "weighted": WeightedVotes("auto"),
    "sketch": Sketch(),
    "least-squares": LeastSquares("auto"),
    "blend": Blend("auto"),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_names_a_decoder(word: str) -> None:
    assert registry.resolve("decoder", word) == WORDS[word]
    assert type(WORDS[word]) is registry.named("decoder", word)


def test_every_decoder_has_a_word() -> None:
    assert set(registry.words("decoder")) == set(WORDS)


@pytest.mark.parametrize(
    "decoder",
    [*WORDS.values(), WeightedVotes(0.3), LeastSquares(np.float64(1e-3)), Blend(0), Blend(n_similar=7)],
    ids=repr,
)
def test_a_decoder_is_itself_and_comes_back_from_json(decoder: Decoder) -> None:
    assert registry.resolve("decoder", decoder) is decoder
    assert registry.from_json(registry.to_json("decoder", decoder)) == decoder


@pytest.mark.parametrize("wrong", ["vote", "", "auto", None, 3, Votes])
def test_other_words_are_refused(wrong: Any) -> None:
    sentence = r"^`decoder` must be one of blend, votes, weighted, sketch, least-squares or a Decoder; got .*\.$"
    with pytest.raises(ParameterError, match=sentence):
        registry.resolve("decoder", wrong)


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), True, "warm", None, 1j, [0.1]])
def test_temperatures_and_epsilons_must_be_positive_numbers(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r"`temperature` must be 'auto' or a finite number > 0; got "):
        WeightedVotes(wrong)
    with pytest.raises(ParameterError, match=r"`epsilon` must be 'auto' or a finite number > 0; got "):
        LeastSquares(wrong)


@pytest.mark.parametrize("wrong", [-1, 2.5, True, "many", None, float("nan")])
def test_a_number_of_similar_rows_must_be_whole_and_not_negative(wrong: Any) -> None:
    with pytest.raises(ParameterError, match=r"`n_similar` must be 'auto' or an integer ≥ 0; got "):
        Blend(wrong)


def test_options_may_be_numpy_numbers() -> None:
    assert WeightedVotes(np.float32(0.5)).temperature == 0.5
    assert LeastSquares(np.int64(2)).epsilon == 2
    assert Blend(n_similar=np.int64(3)).n_similar == 3


@pytest.mark.parametrize("word", WORDS)
def test_a_fitted_decoder_reads_the_signals_that_make_its_scores(word: str) -> None:
    world = worlds.planted()
    kernel = "linear" if word == "votes" else "rbf"
    decoder = RIPML(decoder=word, kernel=kernel, random_state=0).fit(world.X, world.Y).model_.decoder
    found = {signal for signal in ("votes", "value", "similar") if decoder.reads(signal)}
    expected = {
        "votes": {"votes"},
        "weighted": {"votes"},
        "sketch": {"value"},
        "least-squares": {"value"},
        "blend": {"votes", "value", "similar"},
    }
    assert found == expected[word]


def test_decoders_of_the_same_options_are_equal_and_of_others_are_not() -> None:
    assert Blend() == Blend("auto") != Blend(5)
    assert WeightedVotes(0.1) != WeightedVotes(0.2)
    assert len({Votes(), Votes(), Sketch()}) == 2


# ---------------------------------------------------------------------------------------------------------------- laws

# For each decoder a model with every kind of kernel and embedding somewhere; what can be given is given, so that fits
# are quick. The rows of the last are enough for its trees.
MODELS: dict[str, RIPML] = {
    "votes": RIPML.paper(n_dims=32, n_learners=3, ridge=0.3, random_state=0),
    "votes, clusters": RIPML.paper(n_dims=32, n_learners=2, n_clusters=3, n_probe=2, ridge=0.3, random_state=0),
    "weighted": RIPML(decoder="weighted", kernel="linear", relevance=0, ridge=0.3, random_state=0),
    "sketch": RIPML(decoder="sketch", kernel=RBF(0.5), relevance=0.5, ridge=0.1, random_state=0),
    "least-squares": RIPML(
        decoder="least-squares", kernel="linear", ensemble="gaussian", n_dims=64, relevance=0, ridge=0.3, random_state=0
    ),
    "blend, local": RIPML(kernel="local", relevance=0, ridge=0.3, n_clusters=2, random_state=0),
    "blend": RIPML(kernel=RBF(0.5), relevance=0, ridge=0.1, random_state=0),
}


@functools.cache
def world_of(name: str) -> worlds.World:
    return worlds.zipf(n=420 if name == "blend" else 150)


@functools.cache
def fitted_of(name: str) -> RIPML:
    model: RIPML = clone(MODELS[name])
    return model.fit(world_of(name).X, world_of(name).names)


def test_the_laws_hold_for_every_decoder() -> None:
    assert {name.partition(",")[0] for name in MODELS} == set(registry.words("decoder"))
    decoder = fitted_of("blend").model_.decoder
    assert isinstance(decoder, FittedBlend)
    assert decoder.trees is not None


@pytest.mark.parametrize("name", MODELS)
class TestEveryDecoder:
    def test_sparse_equals_dense(self, name: str) -> None:
        world = world_of(name)
        laws.sparse_equals_dense(MODELS[name], world.X, world.Y, world.X_new)

    def test_one_by_one_equals_batch(self, name: str) -> None:
        laws.one_by_one_equals_batch(fitted_of(name), world_of(name).X_new[:40])

    def test_saved_equals_loaded_equals_memory_mapped(self, name: str, tmp_path: Path) -> None:
        fitted, X_new = fitted_of(name), world_of(name).X_new
        laws.saved_equals_loaded(fitted, X_new, tmp_path / "model")
        in_memory = RIPML.from_state(*fitted.to_state())
        laws.assert_same_scores(in_memory.decision_function(X_new), fitted.decision_function(X_new))
        mapped = ripml.load(tmp_path / "model")
        laws.assert_same_scores(mapped.predict_proba(X_new), fitted.predict_proba(X_new))

    def test_threads_do_not_matter(self, name: str) -> None:
        world = world_of(name)
        laws.threads_do_not_matter(MODELS[name], world.X, world.Y, world.X_new)

    def test_learnt_then_forgotten_equals_never_learnt(self, name: str) -> None:
        world = world_of(name)
        more = [*worlds.names_of(world.Y_new)[:5], ["a new label", "label 00"]]
        laws.learnt_then_forgotten_equals_never_learnt(fitted_of(name), world.X_new[:6], more, world.X_new)

    def test_a_new_label_leaves_old_scores_unchanged(self, name: str) -> None:
        laws.a_new_label_leaves_old_scores_unchanged(fitted_of(name), world_of(name).X_new)

    def test_contributions_add_up_to_the_score(self, name: str) -> None:
        laws.contributions_add_up_to_the_score(fitted_of(name), world_of(name).X_new[:15])
