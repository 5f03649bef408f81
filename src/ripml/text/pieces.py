"""Text of any script, cut into the pieces that features are counted of, each with its place in the text.

Where words are written apart a piece is a word: a run of letters, digits, underscores and the marks that belong to
them, which Python's `\\w` leaves out (vowels of Hindi, Hebrew or Thai, say). Where they are not, neighbouring
characters stand for them: single ones and pairs of Chinese and Japanese characters (Nie and others 2000), pairs and
triples of the syllables of Thai, Lao, Khmer and Burmese, which are alphabets.

A text is cleaned on the way: tags, comments, scripts and entities of HTML, invisible characters, upper case, wide and
half-width forms (NFKC). All of that keeps places: what is taken out is blank, so that a piece can be shown in the text
it came from.
"""

from __future__ import annotations

import functools
import html
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

__all__ = ["Piece", "is_apart", "pieces", "tokens"]

# Chinese and Japanese characters, and the scripts of syllables that are written without spaces.
_CHARACTERS: Final = (
    "\u3005\u3006\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_SYLLABLES: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17dd\u17e0-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
_RARE: Final = "\U00010000-\U0001efff"  # as a whole, since `re` looks at the ranges there one by one
_JOINERS: Final = "\u00ad\u200c\u200d\u2060\ufeff"  # seen by nobody, within words
_PAD: Final = "\u2060"
_VOICING: Final = "\uff9e\uff9f"
_LONGEST: Final = 64  # letters of a word; what is longer is no word, and cut there
_JOINED: Final = 16  # characters that are one at most
_ASCII: Final = re.compile(r"[a-z0-9_]+")
_ELEMENTS: Final = """
    a abbr address article aside audio b blockquote body br button caption center cite code col colgroup dd del
    details dfn div dl dt em fieldset figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i
    iframe img input ins kbd label legend li link main mark meta nav noscript ol option p picture pre q s samp
    section select small source span strike strong sub summary sup svg table tbody td textarea tfoot th thead
    time title tr tt u ul var video
"""
_TAG: Final = re.compile(
    rf"</?(?:{'|'.join(_ELEMENTS.split())})(?:\s+[a-z:-]+\s*=[^<>]*|\s*/?)>|<!doctype[^<>]*>", re.IGNORECASE
)
_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_HIDDEN: Final = (("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>"))


class Piece(NamedTuple):
    """A token and where it is in the text: characters `start` to `end`, the latter not included."""

    start: int
    end: int
    token: str


def tokens(text: str) -> list[str]:
    """The tokens of a text, in order.

    >>> tokens("<p>Das Gro&szlig;e, ＡＢＣ</p>")
    ['das', 'grosse', 'abc']
    >>> tokens("हिन्दी 腾讯 ไทย")
    ['हिन्दी', '腾', '腾讯', '讯', 'ไท', 'ไทย', 'ทย']
    """
    text = _blanked(text)
    if text.isascii():
        return [word if len(word) <= _LONGEST else word[:_LONGEST] for word in _ASCII.findall(text.lower())]
    found: list[str] = []
    for run in _runs().findall(text):
        if run.isascii():
            found.append(run[:_LONGEST].lower())
        else:
            found += [token for _, _, token in _cut(run)]
    return found


def pieces(text: str) -> Iterator[Piece]:
    """The same tokens with their places.

    >>> [text[piece.start : piece.end] for text in ["A&nbsp;Caf&eacute;!"] for piece in pieces(text)]
    ['A', 'Caf&eacute;']
    """
    for run in _runs().finditer(_blanked(text)):
        for start, end, token in _cut(run[0]):
            yield Piece(run.start() + start, run.start() + end, token)


def is_apart(token: str) -> bool:
    """Whether a token is a word of a script whose words are written apart.

    >>> is_apart("tea"), is_apart("腾讯")
    (True, False)
    """
    return token.isascii() or not _UNSPACED.match(token)


_UNSPACED: Final = re.compile(f"[{_CHARACTERS}{_SYLLABLES}]")
_CHARACTER: Final = re.compile(f"[{_CHARACTERS}]")


@functools.cache
def _runs() -> re.Pattern[str]:
    """Runs of letters of scripts whose words are apart, of characters, and of syllables."""
    marks = _ranges(lambda c: unicodedata.category(c)[0] == "M")
    letters = _ranges(lambda c: c.isalnum() or c == "_") + _RARE
    more = f"[{{}}{marks}{_JOINERS}]"
    kinds = (more.format(kind) for kind in (letters, _CHARACTERS, _SYLLABLES))
    return re.compile("|".join(f"{kind}+" for kind in kinds))


def _ranges(wanted: Callable[[str], bool]) -> str:
    """The characters of scripts with spaces that are wanted, as they are written between [ and ]."""
    found = list[list[int]]()
    for code in range(0x10000):
        c = chr(code)
        if wanted(c) and not _UNSPACED.match(c):
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in found)


def _cut(run: str) -> Iterable[tuple[int, int, str]]:
    """The tokens of a run and their places in it; those of words, which come again, are remembered."""
    return _known_cut(run) if len(run) <= _LONGEST and not _UNSPACED.search(run) else _cut_now(run)


def _cut_now(run: str) -> Iterator[tuple[int, int, str]]:
    unspaced = _UNSPACED.search(run)
    if unspaced is None:
        if token := _normal(run[:_LONGEST]):
            yield 0, len(run), sys.intern(token)
        return
    starts = list[int]()
    for i, c in enumerate(run):
        if not starts or not _is_joined(c) or i - starts[-1] >= _JOINED:
            starts.append(i)
    ends = [*starts[1:], len(run)]
    # Most are what they should be. Marks are put in order by normalisation, in quadratic time, and so in short pieces.
    normal = str if len(starts) == len(run) and _normal(run) == run else _normal
    least, most = (1, 2) if _CHARACTER.match(unspaced[0]) else (2, 3)
    for i, start in enumerate(starts):
        for j in range(i + min(least, len(starts)) - 1, min(i + most, len(starts))):
            if token := normal(run[start : ends[j]]):
                yield start, ends[j], token


@functools.lru_cache(maxsize=1 << 17)
def _known_cut(run: str) -> tuple[tuple[int, int, str], ...]:
    return tuple(_cut_now(run))


def _is_joined(c: str) -> bool:
    """Whether a character belongs to the one before: marks, and the voicing of half-width kana."""
    return c in _VOICING or c in _JOINERS or unicodedata.category(c)[0] == "M"


def _normal(run: str) -> str:
    """Without invisible characters, in one form and lower case."""
    for joiner in _JOINERS:
        run = run.replace(joiner, "")
    token = unicodedata.normalize("NFKC", run).casefold()
    return token if any(c.isalnum() or c == "_" for c in token) else ""


def _blanked(text: str) -> str:
    """The text, as long as before, with blanks for markup, and characters for entities."""
    if "<" in text:
        text = _TAG.sub(lambda tag: " " * len(tag[0]), _without_hidden(text))
    if "&" in text:
        text = _ENTITY.sub(_character, text)
    return text


def _without_hidden(text: str) -> str:
    """Comments, scripts and styles as blanks. One that does not end is text, and no more of its kind are looked for."""
    for opening, closing in _HIDDEN:
        lower, parts, done = text.lower(), list[str](), 0
        if len(lower) != len(text):  # some capitals become two letters
            lower = text
        while (start := lower.find(opening, done)) >= 0 and (end := lower.find(closing, start + len(opening))) >= 0:
            end += len(closing)
            parts += [text[done:start], " " * (end - start)]
            done = end
        text = "".join([*parts, text[done:]])
    return text


def _character(entity: re.Match[str]) -> str:
    """What an entity stands for, made as long with characters that are not seen."""
    found = html.unescape(entity[0])
    return found + (_PAD if found.isalnum() else " ") * (len(entity[0]) - len(found))
