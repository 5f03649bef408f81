"""TfIdf: weights by hand, and saved = loaded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ripml.base.errors import DataError, ModelFolderError, ParameterError
from ripml.text import TfIdf


def test_weights_are_those_of_the_formula() -> None:
    rows = TfIdf(min_df=1).fit_transform(["red red apple", "green apple"]).toarray()
    apple = 1.0
    red = (1 + np.log(2)) * (1 + np.log(3 / 2))
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], np.array([apple, 0, red]) / np.hypot(apple, red), rtol=1e-6)


def test_texts_without_a_known_word_are_zero_rows() -> None:
    tfidf = TfIdf(min_df=1).fit(["red apple", ""])
    assert tfidf.transform(["", "plum", "?!", "red"]).toarray().any(axis=1).tolist() == [False, False, False, True]


def test_words_of_any_script_count_and_unspaced_characters_singly() -> None:
    tfidf = TfIdf(min_df=1, ngrams=2).fit(["Größe c 股票 2019年"])
    assert sorted(tfidf.feature_names) == sorted(
        ["größe", "c", "股", "票", "2019", "年", "größe c", "c 股", "股 票", "票 2019", "2019 年"]
    )


def test_several_words_are_successive_ones() -> None:
    names = TfIdf(min_df=1, ngrams=3).fit(["a b c d"]).feature_names
    assert names == ["a", "a b", "a b c", "b", "b c", "b c d", "c", "c d", "d"]


def test_rare_words_and_words_beyond_the_cap_are_left_out() -> None:
    texts = ["a b c", "a b d", "a e f"]
    assert TfIdf().fit(texts).feature_names == ["a", "b"]
    assert TfIdf(max_features=1).fit(texts).feature_names == ["a"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(alphabet="ab éß股\n.", max_size=12), min_size=1, max_size=6),
    st.integers(1, 2),
    st.lists(st.text(max_size=12), max_size=3),
)
def test_saved_equals_loaded(texts: list[str], ngrams: int, others: list[str]) -> None:
    texts = [*texts, "a"]
    tfidf = TfIdf(min_df=1, ngrams=ngrams, max_features=None).fit(texts)
    parameters, arrays = tfidf.to_state()
    loaded = TfIdf.from_state(json.loads(json.dumps(parameters)), {k: v.copy() for k, v in arrays.items()})
    assert loaded.feature_names == tfidf.feature_names
    left, right = tfidf.transform(texts + others), loaded.transform(texts + others)
    assert left.dtype == right.dtype == np.float32
    assert np.array_equal(left.toarray().view(np.uint32), right.toarray().view(np.uint32))
    again = loaded.to_state()
    assert again[0] == parameters
    assert all(np.array_equal(again[1][key], arrays[key]) for key in arrays)


@pytest.mark.parametrize("key", ["words", "word_offsets", "idf"])
def test_a_damaged_state_is_refused(key: str) -> None:
    parameters, arrays = TfIdf(min_df=1).fit(["red apple", "green apple"]).to_state()
    with pytest.raises(ModelFolderError, match="the saved tf-idf is damaged"):
        TfIdf.from_state(parameters, {name: array for name, array in arrays.items() if name != key})
    with pytest.raises(ModelFolderError, match="the saved tf-idf is damaged"):
        TfIdf.from_state(parameters, {**arrays, key: arrays[key][:-1]})
    with pytest.raises(ModelFolderError, match="the saved tf-idf is damaged"):
        TfIdf.from_state({**parameters, "min_df": 0}, arrays)


def test_settings_and_texts_are_checked() -> None:
    bad: Any
    for bad in ({"min_df": 0}, {"ngrams": 1.5}, {"max_features": True}):
        with pytest.raises(ParameterError, match=rf"`{next(iter(bad))}` must be an integer ≥ 1; got"):
            TfIdf(**bad)
    with pytest.raises(DataError, match="expected a list of texts; got one string"):
        TfIdf().fit("red apple")
    with pytest.raises(DataError, match="text 1 is not a string; got NoneType"):
        TfIdf().fit(["red", None])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"no word occurs in at least min_df = 2 of the 2 texts\."):
        TfIdf().fit(["red", "green"])
    with pytest.raises(DataError, match=r"`min_df` = 2 is above the number of texts, 1; lower it\."):
        TfIdf().fit(["red"])
    with pytest.raises(ParameterError, match=r"this TfIdf has not been fitted; call fit\(texts\) first\."):
        TfIdf().transform(["red"])
