"""The rules that cut texts into tokens, alone and inside TfIdf."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ripml.base.errors import MissingExtraError, ModelFolderError, ParameterError
from ripml.text import TfIdf
from ripml.text import tokens as rules
from ripml.text.tokens import SENTENCE_END, packed, sentence_tokens, tokenizer, tokens, unpacked

RULES = ["words", "chars", "jieba"]
TEXTS = st.text(alphabet="aB é9_ß股票茅台ひ\n.，-%", max_size=20) | st.text(max_size=20)


def test_each_rule_cuts_as_documented() -> None:
    text = "腾讯Q3财报：Größe C, 涨 3.5%"
    assert tokenizer("words")(text) == ["腾", "讯", "q3", "财", "报", "größe", "c", "涨", "3", "5"]
    assert tokenizer("chars")(text) == [
        *("腾", "腾讯", "讯", "q3", "财", "财报", "报", "größe", "c", "涨", "3", "5"),
    ]
    assert tokenizer("jieba")("贵州茅台发布财报，TSLA涨停") == ["贵州", "茅台", "发布", "财报", "tsla", "涨停"]


def test_pairs_do_not_span_other_characters() -> None:
    assert tokenizer("chars")("股票，市a场 价") == ["股", "股票", "票", "市", "a", "场", "价"]


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_tokens_have_a_letter_and_no_white_space_and_follow_the_text(rule: str, text: str) -> None:
    tokens = tokenizer(rule)(text)
    lowered, at = text.lower(), 0
    for token in tokens:
        assert re.search(r"\w", token)
        assert not re.search(r"\s", token)
        at = lowered.index(token, at)


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_chars_are_the_words_and_the_pairs(text: str) -> None:
    singles, chars = tokenizer("words")(text), tokenizer("chars")(text)
    pair = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]{2}")
    assert [token for token in chars if not pair.fullmatch(token)] == singles


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_text_has_no_tokens(rule: str) -> None:
    assert tokenizer(rule)("") == tokenizer(rule)(" \n。！?") == []


def test_an_unknown_rule_is_answered_with_the_known_ones() -> None:
    sentence = r"^`tokens` must be one of 'words', 'chars', 'jieba', 'any'; got 'bpe'\.$"
    with pytest.raises(ParameterError, match=sentence):
        tokenizer("bpe")
    with pytest.raises(ParameterError, match="`tokens` must be one of"):
        TfIdf(tokens="bpe")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("腾讯控股00700.hk上涨3.5%", ["腾讯", "控股", "00700", "hk", "上涨", "3.5%"]),
        ("2019-2021年", ["2019", "2021", "年"]),
        ("见www.cninfo.com.cn", ["见", "www", "cninfo", "com", "cn"]),
        ("a__b", ["a", "__", "b"]),
        ("c++和c#", ["c++", "和", "c#"]),
        ("小明硕士毕业于中国科学院计算所", ["小明", "硕士", "毕业", "于", "中国科学院", "计算所"]),
    ],
)
def test_words_are_those_that_the_original_jieba_cuts(text: str, words: list[str]) -> None:
    assert tokenizer("jieba")(text) == words


def test_without_jieba_the_error_has_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_segmenter", rules._segmenter.__wrapped__)  # not the one that is loaded already
    monkeypatch.setitem(sys.modules, "rjieba", None)
    cut = tokenizer("jieba")
    with pytest.raises(
        MissingExtraError, match=r"rjieba is needed for this; install it with: pip install 'ripml\[text\]'"
    ):
        cut("股票")


def test_jieba_prints_nothing_and_leaves_no_file(tmp_path: Path) -> None:
    code = "from ripml.text.tokens import tokenizer; print(tokenizer('jieba')('股票涨停'))"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, check=True, encoding="utf-8"
    )
    assert (done.stdout, done.stderr) == ("['股票', '涨停']\n", "")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=5).filter(lambda word: word.isprintable()), unique=True, max_size=6))
def test_packed_words_come_back(some: list[str]) -> None:
    assert unpacked(packed(some)) == some


def test_damaged_words_are_refused() -> None:
    arrays = packed(["to", "be"])
    with pytest.raises(ValueError, match="word_offsets do not divide words"):
        unpacked({**arrays, "word_offsets": np.array([0, 3])})
    with pytest.raises(ValueError, match="word_offsets do not divide words"):
        unpacked({**arrays, "word_offsets": np.array([], np.int64)})
    with pytest.raises(ValueError, match="a word occurs twice"):
        unpacked(packed(["to", "to"]))


@pytest.mark.parametrize("rule", RULES)
def test_tfidf_keeps_its_rule_when_saved(rule: str) -> None:
    texts = ["贵州茅台发布财报", "腾讯发布财报", "茅台 up 3"]
    tfidf = TfIdf(min_df=1, tokens=rule)
    rows = tfidf.fit_transform(texts)
    assert set(tfidf.feature_names) == {token for text in texts for token in tokenizer(rule)(text)}
    parameters, arrays = tfidf.to_state()
    loaded = TfIdf.from_state(json.loads(json.dumps(parameters)), arrays)
    assert loaded.tokens == rule
    assert np.array_equal(loaded.transform(texts).toarray(), rows.toarray())


def test_a_tfidf_saved_before_there_were_rules_is_one_of_words() -> None:
    parameters, arrays = TfIdf(min_df=1).fit(["red 苹果", "green 苹果"]).to_state()
    del parameters["tokens"]
    loaded = TfIdf.from_state(parameters, arrays)
    assert loaded.transform(["苹果"]).nnz == 2
    with pytest.raises(ModelFolderError, match=r"the saved tf-idf is damaged \(`tokens` must be one of"):
        TfIdf.from_state({**parameters, "tokens": "bpe"}, arrays)


@settings(max_examples=100, deadline=None)
@given(TEXTS | st.text(alphabet="ab. !?;:\n。：é&<>_", max_size=20))
def test_sentences_have_the_tokens_of_the_text(text: str) -> None:
    text = text.replace(SENTENCE_END, "-")
    found = sentence_tokens(text)
    assert [token for token in found if token != SENTENCE_END] == tokens(text)


def test_a_sentence_ends_with_its_line_or_with_a_sign_and_a_space() -> None:
    text = "Tea. Tea! tea? Tea; tea: 3.5 e.g.tea\nTea。茶：Tea."
    assert " ".join(sentence_tokens(text)).split(" _ ") == [
        *("tea", "tea", "tea", "tea", "tea", "3 5 e g tea", "tea", "茶", "tea"),
    ]
