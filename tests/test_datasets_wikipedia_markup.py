"""Wikitext by hand-made cases: text, links, titles, redirects, disambiguation."""

from __future__ import annotations

import numpy as np
import pytest

from ripml.lab.wikipedia.dump import Site
from ripml.lab.wikipedia.markup import is_disambiguation, parse, redirect_target
from ripml.lab.wikipedia.titles import Entry, Titles, key_of

pytest.importorskip("mwparserfromhell", reason="the extra `text` is not installed")

SITE = Site("en", True, {"file": 6, "category": 14, "wikipedia": 4, "help": 12, "talk": 1})


@pytest.mark.parametrize(
    ("wikitext", "text", "links"),
    [
        ("See [[Paris]].", "See Paris.", ["Paris"]),
        ("[[Paris|the city]]", "the city", ["Paris"]),
        ("[[Paris#History|then]] and [[Paris#Today]]", "then and Paris#Today", ["Paris"]),
        ("[[#Notes|below]] [[#Notes]]", "below #Notes", []),
        ("[[Paris (mythology)|]]", "Paris", ["Paris (mythology)"]),
        ("[[Seattle, Washington|]]", "Seattle", ["Seattle, Washington"]),
        ("[[bus]]es", "buses", ["Bus"]),
        ("[[new_york  city]]", "new_york city", ["New york city"]),
        ("[[iPod]] [[IPod]]", "iPod IPod", ["IPod"]),
        ("[[Caf%C3%A9|a]] [[Caf&eacute;|b]] [[Café|c]] [[Cafe\u0301|d]]", "a b c d", ["Café"]),
        ("[[100% legal]] [[AT&amp;T]]", "100% legal AT&T", ["100% legal", "AT&T"]),
        ("[[東京|Tokyo]], [[москва]]", "Tokyo, москва", ["東京", "Москва"]),
        ("[[ßx]], [[საქართველო]]", "ßx, საქართველო", ["ßx", "საქართველო"]),
        ("[[Category:Cities]]a [[:Category:Cities]] [[fr:Paris]][[:fr:Paris|French]]", "a Category:Cities French", []),
        ("[[Wikipedia:Help|h]] [[WP:NPOV]] [[wikt:cat|cat]] [[Talk:Paris]]", "h WP:NPOV cat Talk:Paris", []),
        ("[[Re:Zero]] [[CSI: Miami]]", "Re:Zero CSI: Miami", ["Re:Zero", "CSI: Miami"]),
        ("[[File:A.jpg|thumb|The [[Seine]] at [[Paris]]]]b", "b", ["Seine", "Paris"]),
        ("[[Image:A.jpg]][[Картинка:A.png|мини|[[Сена]]]]b", "b", ["Сена"]),
        ("[[:File:A.jpg|picture]]", "picture", []),
        ("a {{Infobox|x={{nested|[[Deep]]|{{more|[[Deeper]]}}}}|y=[[Wide]]}} b", "a b", ["Deep", "Deeper", "Wide"]),
        ("{{main|Paris}}a{{convert|5|km}}", "a", []),
        ("a\n{|\n! [[Head]]\n|-\n| x || [[Cell]]\n|}\nb", "a\nb", ["Head", "Cell"]),
        ("<gallery>\nA.jpg|On the [[Seine]]\n</gallery>b", "b", ["Seine"]),
        ("a<ref>By [[Author]].</ref> b<ref name=x /> c<references><ref>[[R]]</ref></references>", "a b c", []),
        ("a<!-- [[Hidden]] -->b", "ab", []),
        ("a <nowiki>[[Not]] {{x}} ''y''</nowiki> b", "a [[Not]] {{x}} ''y'' b", []),
        ("<nowiki><ref></nowiki> [[A]] <nowiki></ref></nowiki>", "<ref> A </ref>", ["A"]),
        ("a <math>\\frac{[[x]]}{2}</math> b", "a b", []),
        ("'''Bold''' ''it'' '''''both''''' '''open", "Bold it both open", []),
        (
            "== Head ==\ntext\n=== [[Sub]] ===\n* one\n** two\n# three\n: four",
            "Head\ntext\nSub\none\ntwo\nthree\nfour",
            ["Sub"],
        ),
        ("H<sub>2</sub>O&nbsp;is&#32;&lt;b&gt; a<br/>b", "H2O is <b> a\nb", []),
        ("[http://x.org the site] http://y.org [http://z.org] end", "the site end", []),
        ("X ({{IPA|x}}) and Y ({{lang|fr|y}}; born 1947) __NOTOC__", "X and Y (born 1947)", []),
        # Broken markup: as little as may be is lost.
        ("[[Open and [[Closed]] text", "Open and Closed text", ["Closed"]),
        ("{{open|a=[[In]]\ntext [[After]]", "open|a=In\ntext After", ["In", "After"]),
        ("a <ref>open [[Kept]] text", "a open Kept text", ["Kept"]),
        ("a <!-- open [[Gone]]", "a", []),
        ("a\n{| class=x\n| [[Cell]]\nb [[After]]", "a\nb After", ["Cell", "After"]),
        ("a ]] }} </div> |} [[]] [[|x]] [[<b>]]", "a |} x", []),
        ("[[{{PAGENAME}}|x]]", "x", []),
        ("&#xD800; fine", "\ufffd fine", []),
    ],
)
def test_text_and_links_of_wikitext(wikitext: str, text: str, links: list[str]) -> None:
    assert parse(wikitext, SITE) == (text, links)


def test_many_references_that_are_not_closed_take_linear_time() -> None:
    # Quadratic work would be 10¹¹ steps here.
    article = parse("<ref>" * 200_000 + "[[End]]", SITE)
    assert article.links == ["End"]


def test_titles_keep_their_case_where_the_wiki_says_so() -> None:
    assert Site("en", False, {}).target("iPod").title == "iPod"
    assert Site("tr", True, {}).target("istanbul").title == "İstanbul"
    assert SITE.target("a" * 256).kind == "other"
    assert SITE.target("\u200ea\u00a0b ").title == "A b"


@pytest.mark.parametrize(
    ("wikitext", "target"),
    [
        ("#REDIRECT [[A]]", "A"),
        ("#redirect:[[A#b|c]] {{R from x}}", "A#b"),
        ("\n #ПРЕНАСОЧВАНЕ [[София]]", "София"),
        ("#WEITERLEITUNG [[A]]", "A"),
        ("#重定向 [[A]]", "A"),
        ("# first [[A]]", None),
        ("Not a #REDIRECT [[A]]", None),
    ],
)
def test_redirects_in_many_languages(wikitext: str, target: str | None) -> None:
    assert redirect_target(wikitext) == target


@pytest.mark.parametrize(
    ("title", "wikitext", "answer"),
    [
        ("A (disambiguation)", "", True),
        ("A (пояснение)", "", True),
        ("A", "x {{disambig}}", True),
        ("A", "x {{Human_name disambiguation|x}}", True),
        ("A", "x {{ hndis | A, B }}", True),
        ("A", "__DISAMBIG__", True),
        ("A", "<!-- {{disambig}} --> x", False),
        ("A", "<nowiki>{{disambig}}</nowiki>", False),
        ("A", "{{disambiguation needed}} {{about|x|y|A (disambiguation)}}", False),
        ("Disambiguation", "x", False),
    ],
)
def test_disambiguation_is_known_by_title_or_template(title: str, wikitext: str, answer: bool) -> None:
    assert is_disambiguation(title, wikitext) is answer


def test_the_words_for_disambiguation_can_be_given() -> None:
    assert is_disambiguation("A", "{{betydelser}}", frozenset({"betydelser"}))
    assert not is_disambiguation("A (disambiguation)", "{{disambig}}", frozenset())


def resolved(redirects: dict[str, str], title: str) -> str | None:
    everything = {*redirects, *redirects.values()}
    entries = [Entry("r" if name in redirects else "a", name, redirects.get(name, "")) for name in sorted(everything)]
    ends, _ = Titles.of(entries).resolve(np.array([key_of(title)], np.uint64), "articles")
    return next((name for name in everything if len(ends) and key_of(name) == int(ends[0])), None)


def test_redirect_chains_are_followed_to_their_end() -> None:
    chain = {f"R{i}": f"R{i + 1}" for i in range(1000)}
    assert resolved(chain, "R0") == "R1000"
    assert resolved(chain, "R999") == "R1000"


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64])
def test_a_redirect_loop_and_what_leads_into_it_lead_nowhere(length: int) -> None:
    loop = {f"L{i}": f"L{(i + 1) % length}" for i in range(length)} | {"In": "L0", "Good": "Article"}
    assert resolved(loop, "L0") is None
    assert resolved(loop, "In") is None
    assert resolved(loop, "Good") == "Article"
