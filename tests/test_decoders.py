"""Decoders: their words, their options, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import worlds

from ripml import RIPML
from ripml.base import registry
from ripml.base.errors import ParameterError
from ripml.decoding.decoders import Blend, Decoder, LeastSquares, Sketch, Votes, WeightedVotes

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
