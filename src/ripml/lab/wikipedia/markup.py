"""The wikitext of one page: its clean text, the articles it links to, and whether it is a redirect or disambiguation.

The rules:

- *Text* is the running text: paragraphs, lists and headings, one per line. Templates (with infoboxes), tables, files
  with their captions, galleries, references, formulas, code and comments are left out; of a link, the words shown stay.
- *Links* are all `[[…]]` that a reader can see: in the running text, and also in parameters of templates, cells of
  tables and captions, whose words are not in the text. References, comments and <nowiki> do not count, nor do links
  that a template makes of plain words ({{main|X}}): templates are not expanded.
- Broken markup loses as little as possible: brackets that are not closed are dropped, the links after them count.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ripml.lab.wikipedia.dump import Site, import_extra

__all__ = ["DISAMBIGUATION", "Article", "is_disambiguation", "parse", "redirect_target"]

DISAMBIGUATION: Final = frozenset(
    """disambiguation|disambig|disamb|dab|disambiguation page|disambiguation cleanup|disambig cleanup|disambig-cleanup
    |hndis|hndis-cleanup|hndisambig|human name disambiguation|human name disambiguation cleanup|geodis|geodis-cleanup
    |geodisambig|geographic disambiguation|place name disambiguation|place name disambiguation cleanup|airport disambig
    |airport disambiguation|airport dis|biology disambiguation|call sign disambiguation|caselaw disambiguation
    |chinese title disambiguation|church disambig|church disambiguation|genus disambiguation|hospital disambiguation
    |hospitaldis|letter-number combination disambiguation|letter–number combination disambiguation|letter disambig
    |letter disambiguation|mathematical disambiguation|mathdab|military unit disambiguation|mil-unit-dis|movie disambig
    |music disambiguation|number disambiguation|numberdis|opus disambiguation|phonetics disambiguation|phon disambig
    |portal disambiguation|road disambiguation|roaddis|school disambiguation|schooldis|school disambig
    |species latin name abbreviation disambiguation|species latin name disambiguation|station disambiguation|station dis
    |synagogue disambiguation|taxonomic authority disambiguation|taxonomy disambiguation|template disambiguation
    |townland disambiguation|wp disambig
    |begriffsklärung|homonymie|homonyme|paronymie|desambiguación|desambiguação|desambig|disambigua|desambiguació
    |doorverwijspagina|dp|ujednoznacznienie|förgrening|grensida|peker|flertydig|täsmennyssivu|täsmennys|rozcestník
    |rozlišovacia stránka|egyért|egyértelműsítő lap|dezambiguizare|anlam ayrımı|пояснение|неоднозначность|многозначность
    |неоднозначност|багатозначність|вишезначна одредница|вишезначност|razdvojba|αποσαφήνιση|صفحة توضيح|توضيح
    |ابهام‌زدایی|פירושונים|曖昧さ回避|aimai|消歧义|消歧義|消歧义页|disambig-zh|동음이의|định hướng|disambiguasi
    |apartigilo|argipen|homónimos""".replace("\n    ", "").split("|")
)
"""Names of templates, and words in brackets at the end of a title, that mark a disambiguation page."""

_REDIRECT: Final = re.compile(
    r"\s*#(?:redirect|weiterleitung|redirection|redirección|redireccion|redirecionamento|rinvia|rinvio|doorverwijzing"
    r"|patrz|przekieruj|tam|omdirigering|omdiriger|ohjaus|uudelleenohjaus|přesměruj|presmeruj|átirányítás|yönlendirme"
    r"|yönlendir|redirecteaza|redirecţionare|redirecționare|preusmjeri|preusmeritev|преусмери|преусмјери|пренасочване"
    r"|виж|перенаправление|перенапр|перенаправлення|ανακατευθυνση|ανακατεύθυνση|تحويل|تغییر[_ ]مسیر|הפניה|転送"
    r"|リダイレクト|重定向|넘겨주기|đổi|alih|alidirektu|birzuzendu|athsheoladh|ail-cyfeirio|پیوند)\s*:?\s*"
    r"\[\[([^\[\]|\n]+)(?:\|[^\[\]\n]*)?\]\]",
    re.I,
)

# Removed with their content before parsing: references take 40 % of the parser's time.
_CUT: Final = (
    *("ref", "references", "math", "chem", "ce", "score", "timeline", "graph", "hiero", "inputbox", "templatedata"),
    *("templatestyles", "section", "categorytree", "mapframe", "maplink", "indicator", "syntaxhighlight", "source"),
    *("includeonly", "poll", "phonos"),
)
_LITERAL: Final = ("nowiki", "pre")  # shown literally
_OPENING: Final = re.compile(rf"<!--|<({'|'.join((*_CUT, *_LITERAL))})(?=[\s/>])[^<>]*?(/?)>", re.I)
_CLOSING: Final = {name: re.compile(rf"</{name}\s*>", re.I) for name in (*_CUT, *_LITERAL)}
_SYNTAX: Final = {ord(mark): f"&#{ord(mark)};" for mark in "[]{}<>'|=*#:;_-"}

_LINKS_ONLY: Final = ("table", "gallery", "imagemap")
_BREAKS: Final = ("br", "hr", "li", "dt", "dd", "p", "div", "blockquote", "center", "poem")
_RESIDUE: Final = re.compile(r"\[\[|\]\]|\{\{+|\}\}+|'{2,}|__[A-Z]{3,}__|</?[A-Za-z][^<>]*>")
_EMPTY_BRACKETS: Final = re.compile(r"[ \t]*\([\s,;:]*\)")
_BRACKET_THEN_COMMA: Final = re.compile(r"\(\s*[,;:]+\s*")
_PIPE_TRICK: Final = re.compile(r"^(?:[^:]*:)?(.*?)(?:\s*\([^()]*\)|,\s.*)?$", re.S)


class Article(NamedTuple):
    """Clean text, and the linked titles: each once, in order, before redirects are followed."""

    text: str
    links: list[str]


def parse(wikitext: str, site: Site) -> Article:
    """Return the text and the links of a page.

    Examples
    --------
    >>> site = Site("en", True, {"file": 6})
    >>> parse("The '''red''' [[bus]]es of [[London#Transport|town]].[[File:Bus.jpg|thumb|In [[Soho]]]]", site)
    Article(text='The red buses of town.', links=['Bus', 'London', 'Soho'])
    """
    collector = _Collector(site)
    code = import_extra("mwparserfromhell").parse(_without_hidden(wikitext), skip_style_tags=True)
    collector.visit(code, shown=True)
    return Article(_tidy("".join(collector.pieces)), list(collector.links))


def redirect_target(wikitext: str) -> str | None:
    """Return the link of `#REDIRECT [[…]]`, in any of the larger languages, or None if this is not a redirect.

    Dumps since 2010 have it as an element; this is for older ones.

    >>> redirect_target("#ПРЕНАСОЧВАНЕ [[София#Име]]")
    'София#Име'
    """
    match = _REDIRECT.match(wikitext)
    return match[1] if match else None


def is_disambiguation(title: str, wikitext: str, words: frozenset[str] = DISAMBIGUATION) -> bool:
    """Whether a page only lists the meanings of a title, judged by the end of its title or by a template in it.

    >>> is_disambiguation("Mercury", "'''Mercury''' may be: * [[Mercury (planet)]] {{Disambig|geo}}")
    True
    """
    in_title, in_text = _disambiguation_patterns(words)
    if in_title.search(title):
        return True
    return bool(in_text.search(wikitext)) and bool(in_text.search(_without_hidden(wikitext)))


@lru_cache(maxsize=8)
def _disambiguation_patterns(words: Iterable[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = "|".join(re.escape(word).replace(r"\ ", "[ _]+") for word in sorted(words)) or r"(?!)"
    return re.compile(rf"\((?:{names})\)$", re.I), re.compile(
        rf"\{{\{{\s*(?:{names})\s*(?:\||\}}\}})|__DISAMBIG__", re.I
    )


def _without_hidden(text: str) -> str:
    """Remove hidden elements, in the order of their opening tags as MediaWiki does; literal text is escaped."""
    pieces: list[str] = []
    position = 0
    unclosed: set[str] = set()  # each name is searched for once: a search to the end at every <ref> is quadratic
    while (opening := _OPENING.search(text, position)) is not None:
        pieces.append(text[position : opening.start()])
        position = opening.end()
        if opening[1] is None:
            end = text.find("-->", position)
            position = len(text) if end < 0 else end + 3  # a comment that is not closed hides the rest
            continue
        name = opening[1].lower()
        if opening[2] or name in unclosed:
            continue
        closing = _CLOSING[name].search(text, position)
        if closing is None:
            unclosed.add(name)
            continue
        if name in _LITERAL:
            pieces.append(text[position : closing.start()].translate(_SYNTAX))
        position = closing.end()
    pieces.append(text[position:])
    return "".join(pieces)


class _Collector:
    """Visits the parser's tree and collects text and links."""

    def __init__(self, site: Site) -> None:
        self.pieces: list[str] = []
        self.links: dict[str, None] = {}
        self._site = site
        self._nodes: Any = import_extra("mwparserfromhell").nodes

    def visit(self, code: Any, shown: bool) -> None:
        for node in code.nodes:
            self._node(node, shown)

    def _node(self, node: Any, shown: bool) -> None:
        nodes = self._nodes
        if isinstance(node, nodes.Text):
            self._show(_RESIDUE.sub("", node.value), shown)
        elif isinstance(node, nodes.Wikilink):
            self._link(node, shown)
        elif isinstance(node, nodes.Template):
            for parameter in node.params:
                self.visit(parameter.value, shown=False)
        elif isinstance(node, nodes.Tag):
            self._tag(node, shown)
        elif isinstance(node, nodes.HTMLEntity):
            self._show(html.unescape(str(node)), shown)
        elif isinstance(node, nodes.Heading):
            self._show("\n", shown)
            self.visit(node.title, shown)
            self._show("\n", shown)
        elif isinstance(node, nodes.ExternalLink) and node.title is not None:
            self.visit(node.title, shown)

    def _tag(self, node: Any, shown: bool) -> None:
        name = str(node.tag).strip().lower()
        if name in _BREAKS:
            self._show("\n", shown)
        contents = node.contents
        if contents is None:
            return
        if name in ("gallery", "imagemap"):  # the parser does not parse their content
            contents = import_extra("mwparserfromhell").parse(str(contents), skip_style_tags=True)
        self.visit(contents, shown and name not in _LINKS_ONLY)
        if name in _BREAKS:
            self._show("\n", shown)

    def _link(self, node: Any, shown: bool) -> None:
        written = str(node.title)
        target = self._site.target(written)
        if target.kind == "article":
            self.links[target.title] = None
        if target.kind in ("file", "hidden"):
            shown = False
        if node.text is None:
            self._show(html.unescape(written).strip().removeprefix(":"), shown)
        elif not str(node.text).strip() and (trick := _PIPE_TRICK.match(written.strip().removeprefix(":"))):
            self._show(html.unescape(trick[1]), shown)
        elif target.kind != "hidden":
            self.visit(node.text, shown)

    def _show(self, text: str, shown: bool) -> None:
        if shown:
            self.pieces.append(text)


def _tidy(text: str) -> str:
    text = _BRACKET_THEN_COMMA.sub("(", _EMPTY_BRACKETS.sub("", text))
    lines = (" ".join(line.split()) for line in text.split("\n"))
    # A line that begins with a pipe is the remains of a table or a template that was not closed.
    return "\n".join(line for line in lines if line and not line.startswith(("|", "{|")))
