"""Texts of any script cut into tokens, and where these are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ripml.text import TfIdf
from ripml.text.tokens import pieces, tokens

ODD = st.text(alphabet="aB1_ <>/&;#pbr!-xscriptéßİ\u0301\u200b\u200d\u00ad股票กำ한국ｶﾞ😀\n\t'\"=", max_size=40)


@settings(max_examples=300, deadline=None)
@given(ODD)
def test_pieces_are_the_tokens_and_lie_in_the_text(text: str) -> None:
    found = list(pieces(text))
    assert [piece.token for piece in found] == tokens(text)
    assert all(0 <= piece.start < piece.end <= len(text) for piece in found)
    assert all(piece.token and not piece.token.isspace() for piece in found)


@settings(max_examples=200, deadline=None)
@given(ODD, ODD)
def test_joined_texts_have_the_tokens_of_both(one: str, other: str) -> None:
    if not any(mark in one for mark in "<&"):  # which may go on behind the space
        assert tokens(f"{one}\n{other}") == tokens(one) + tokens(other)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("cafe\u0301 café CAFÉ", ["café", "café", "café"]),
        ("ﬁnal ＦＵＬＬ　ｗｉｄｔｈ", ["final", "full", "width"]),
        ("soft\u00adhyphen zero\u200bwidth می\u200cخواهم", ["softhyphen", "zero", "width", "میخواهم"]),
        ("<p class='x'>One<br/>two</p><!-- no --><script>var x</script>three", ["one", "two", "three"]),
        ("a < b and vector<int> stay", ["a", "b", "and", "vector", "int", "stay"]),
        ("Tom &amp; J&eacute;r&ocirc;me &#233;t&#xE9; AT&T", ["tom", "jérôme", "été", "at", "t"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("שָׁלוֹם عَرَبِيّ", ["שָׁלוֹם", "عَرَبِيّ"]),
        ("腾讯Q3财报", ["腾", "腾讯", "讯", "q3", "财", "财报", "报"]),
        ("東京タワー", ["東", "東京", "京", "京タ", "タ", "タワ", "ワ", "ワー", "ー"]),
        ("ไทย", ["ไท", "ไทย", "ทย"]),
        ("한국어", ["한국어"]),
        ("😀 👩‍💻 ok", ["ok"]),
    ],
)
def test_words_are_found_as_a_reader_would(text: str, wanted: list[str]) -> None:
    assert tokens(text) == wanted


def test_hostile_texts_are_cut_in_linear_time() -> None:
    # Each of these would take minutes in quadratic time.
    assert tokens("一" + "\u0301\u0316" * 100_000)[0].startswith("一")
    for part in ("<script", "<!--", "<a ", "<a a=", "&", "&a", "ก", "\u0e31", "腾", "a\u0301"):
        found = tokens(part * 20_000)
        assert all(len(token) <= 64 for token in found), part


def test_groups_of_letters_join_forms_of_a_word() -> None:
    texts = ["regulation of fisheries", "regulations for a fishery", "tax on beer", "taxes on beers"] * 3
    tfidf = TfIdf(tokens="any", letters=4, min_df=1).fit(texts)
    rows = tfidf.transform(["regulatory", "zzz"])
    names = tfidf.feature_names
    assert {names[column] for column in rows.indices} == {"reg-", "-regu-", "-egul-", "-gula-", "-ulat-"}
    assert rows[1:].nnz == 0
    np_rows = tfidf.transform(texts).toarray()
    assert abs((np_rows**2).sum(axis=1) - 1).max() < 1e-6


def test_blocks_of_texts_give_the_same_as_all_of_them() -> None:
    texts = ["the red apples", "a green apple", "股票 and apples", "", "redder, greener"]
    whole = TfIdf(tokens="any", letters=4, min_df=1).fit(texts)
    blocks = TfIdf(tokens="any", letters=4, min_df=1).fit_blocks([texts[:2], texts[2:]])
    assert blocks.feature_names == whole.feature_names
    assert abs(blocks.transform(texts) - whole.transform(texts)).max() == 0
    assert abs(TfIdf(tokens="any", letters=4, min_df=1).fit_transform(texts) - whole.transform(texts)).max() == 0
