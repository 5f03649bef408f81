"""How a text is cut into tokens.

A rule, chosen by a word, is a function from a text to a list of strings:

- `"words"`: runs of letters, digits and underscores; Chinese and Japanese characters one by one. 腾 讯 q3 财 报
- `"chars"`: the same, and each pair of adjacent Chinese or Japanese characters. 腾 腾讯 讯 q3 财 财报 报
- `"jieba"`: Chinese words, by jieba's dictionary and its hidden Markov model. 腾讯 q3 财报
- `"any"`: text of any script, with or without HTML. 腾 腾讯 讯 q3 财 财报 报

Every rule lower-cases letters and drops punctuation. `"chars"` needs no linguistic preprocessing, which the paper
counts among the merits of its method: overlapping pairs of characters retrieve Chinese about as well as segmented words
do (Nie and others, "On the use of words and n-grams for Chinese information retrieval", 2000).

`"any"` treats scripts by whether they separate words. With spaces between words, a token is a word: a run of letters,
digits, underscores and the combining marks that Python's `\\w` leaves out (vowels of Hindi, Hebrew or Thai). Without
spaces, tokens are single characters and pairs of Chinese and Japanese, and pairs and triples of the syllables of Thai,
Lao, Khmer and Burmese. Tags, comments, scripts and entities of HTML, invisible characters, upper case, and wide and
half-width forms (NFKC) are normalised. Removed characters become blanks, so that `pieces` can give each token with its
place in the original text.
"""

from __future__ import annotations

import functools
import html
import importlib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, MissingExtraError, ParameterError

__all__ = [
    "ENDS",
    "SENTENCE_END",
    "WIDE_ENDS",
    "Piece",
    "Tokenizer",
    "clear_caches",
    "has_spaces",
    "packed",
    "pieces",
    "sentence_tokens",
    "strings",
    "tokenizer",
    "tokens",
    "unpacked",
]

Tokenizer: TypeAlias = Callable[[str], list[str]]

# The simple rules. Japanese kana and Chinese characters are written without spaces: each counts as a word. Elsewhere a
# word is a run of letters, digits and underscores, including single ones ("C", "R").
_HAN_KANA: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_HAN_KANA}]|[^\W{_HAN_KANA}]+")
_RUN: Final = re.compile(rf"([{_HAN_KANA}]+)|[^\W{_HAN_KANA}]+")
_LETTER: Final = re.compile(r"\w")

# The rule "jieba": what jieba makes of ASCII that is not in its dictionary. A number keeps its decimals and its "%".
_ODD: Final = re.compile(r"[+#&._%-]")
_ASCII_PARTS: Final = re.compile(r"[a-zA-Z0-9]+(?:\.[0-9]+)?%?|[^a-zA-Z0-9]+")

# The rule "any". Chinese and Japanese characters, and the scripts of syllables that are written without spaces.
_CHARACTERS: Final = (
    "\u3005\u3006\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_SYLLABLES: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17dd\u17e0-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
_UNSPACED: Final = re.compile(f"[{_CHARACTERS}{_SYLLABLES}]")
_CHARACTER: Final = re.compile(f"[{_CHARACTERS}]")
_RARE: Final = "\U00010000-\U0001efff"  # as one range, because `re` tests the ranges above U+FFFF one by one
_JOINERS: Final = "\u00ad\u200c\u200d\u2060\ufeff"  # invisible, within words
_PAD: Final = "\u2060"
_VOICING: Final = "\uff9e\uff9f"
_MAX_WORD: Final = 64  # letters; longer runs are cut there
_MAX_JOINED: Final = 16  # characters that count as one syllable
# ASCII letters in lower case, and blanks for all but letters, digits and underscores.
_ASCII: Final = "".join(chr(c).lower() if chr(c).isalnum() or c == ord("_") else " " for c in range(128))
# The same for bytes of UTF-8, of which those of other characters stay.
_BYTES: Final = bytes(ord(_ASCII[byte]) if byte < 128 else byte for byte in range(256))
ENDS: Final = ".!?;:"  # of sentences, before a space
WIDE_ENDS: Final = "。！？；："  # and in scripts without spaces
SENTENCE_END: Final = "_"
_ENDS: Final = bytes(ord(".") if chr(byte) in ENDS else byte for byte in range(256))
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


def tokenizer(word: str) -> Tokenizer:
    """Return the rule of this name; "jieba" needs the package rjieba, which is loaded when first used.

    >>> tokenizer("words")("A red 苹果!")
    ['a', 'red', '苹', '果']
    >>> tokenizer("chars")("A red 苹果!")
    ['a', 'red', '苹', '苹果', '果']
    """
    if word not in _RULES:
        raise ParameterError(f"`tokens` must be one of {', '.join(map(repr, _RULES))}; got {word!r}.")
    return _RULES[word]


def clear_caches() -> None:
    """Free what is kept of words that occurred, once very many texts were read."""
    _cached_tokens.cache_clear()
    _cached_cut.cache_clear()


def strings(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list; raise if they are not all strings.

    >>> strings(("red", "green"))
    ['red', 'green']
    """
    if isinstance(texts, str):
        raise DataError("expected a list of texts; got one string.")
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {i} is not a string; got {type(text).__name__}.")
    return texts


def packed(words: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the words as two arrays, for saving without pickle: their concatenated UTF-8, and where each begins.

    >>> packed(["to", "be"])["word_offsets"].tolist()
    [0, 2, 4]
    """
    encoded = [word.encode() for word in words]
    offsets = np.concatenate(([0], np.cumsum([len(word) for word in encoded], dtype=np.int64)))
    return {"words": np.frombuffer(b"".join(encoded), np.uint8), "word_offsets": offsets}


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return the words of arrays made by `packed`; raise `ValueError` or `KeyError` if they are damaged.

    >>> unpacked(packed(["to", "be"]))
    ['to', 'be']
    """
    offsets = np.asarray(arrays["word_offsets"], np.int64)
    blob = np.asarray(arrays["words"], np.uint8).tobytes()
    if not (len(offsets) and offsets[0] == 0 and offsets[-1] == len(blob) and (np.diff(offsets) > 0).all()):
        raise ValueError("word_offsets do not divide words")
    words = [blob[a:b].decode() for a, b in pairwise(offsets.tolist())]
    if len(set(words)) < len(words):
        raise ValueError("a word occurs twice")
    return words


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _chars(text: str) -> list[str]:
    found: list[str] = []
    for run in _RUN.finditer(text.lower()):
        unspaced = run[1]
        if unspaced is None:
            found.append(run[0])
        else:
            found += chain.from_iterable((a, a + b) for a, b in pairwise(unspaced))  # a, ab, b, bc, …
            found.append(unspaced[-1])
    return found


def _jieba(text: str) -> list[str]:
    segmenter = _segmenter()
    found: list[str] = []
    for token in segmenter.cut(text.lower()):
        # rjieba keeps "00700.hk" and "2019-2021" whole; the original jieba takes such runs apart, as is done here.
        if len(token) > 1 and token.isascii() and _ODD.search(token) and not segmenter.has_word(token):
            found += _ASCII_PARTS.findall(token)
        else:
            found.append(token)
    return [token for token in found if _LETTER.search(token)]


@functools.cache
def _segmenter() -> Any:
    """Return the segmenter with jieba's dictionary, which is part of the package rjieba; takes about 0.3 s."""
    try:
        rjieba: Any = importlib.import_module("rjieba")
    except ImportError:
        raise MissingExtraError("rjieba", "text") from None
    return rjieba.Jieba()


class Piece(NamedTuple):
    """A token and its place in the text: characters `start` to `end`, exclusive."""

    start: int
    end: int
    token: str


def tokens(text: str) -> list[str]:
    """Return the tokens of a text of any script, in order.

    >>> tokens("<p>Das Gro&szlig;e, ＡＢＣ</p>")
    ['das', 'grosse', 'abc']
    >>> tokens("हिन्दी 腾讯 ไทย")
    ['हिन्दी', '腾', '腾讯', '讯', 'ไท', 'ไทย', 'ทย']
    """
    text = _blanked(text)
    if text.isascii():
        return _shortened(text.translate(_ASCII).split())
    return _cut_parts(text.encode("utf-8", "surrogatepass").translate(_BYTES))


def sentence_tokens(text: str) -> list[str]:
    r"""Return the tokens of a text of any script, with `SENTENCE_END` after each line and each sentence but the last.

    >>> sentence_tokens("Red tea! And 1.5 cups:\nhot")
    ['red', 'tea', '_', 'and', '1', '5', 'cups', '_', 'hot']
    """
    # A sentence ends with one of these characters and a space. They are made one first, to be looked for once.
    content = _blanked(text).encode("utf-8", "surrogatepass").translate(_ENDS)
    if b"\xe3\x80\x82" in content or b"\xef\xbc" in content:
        for end in WIDE_ENDS:
            content = content.replace(end.encode(), b"\n")
    content = content.replace(b". ", b"\n").replace(b"\n", f" {SENTENCE_END} ".encode())
    return _cut_parts(content.translate(_BYTES))


def _cut_parts(content: bytes) -> list[str]:
    """The tokens of UTF-8 in which blanks stand for ASCII punctuation."""
    parts = _shortened(content.decode("utf-8", "surrogatepass").split())
    if content.isascii():
        return parts
    found = list[str]()  # nothing goes across a blank, and most of what is between two of them is ASCII or came before
    for part in parts:
        if part.isascii():
            found.append(part)
        else:
            found += _cached_tokens(part) if len(part) <= _MAX_WORD else _tokens_of(part)
    return found


def _shortened(parts: list[str]) -> list[str]:
    """Parts of a text without the rest of ASCII words that are too long."""
    if len(max(parts, key=len, default="")) > _MAX_WORD:
        return [part[:_MAX_WORD] if part.isascii() else part for part in parts]
    return parts


def _tokens_of(part: str) -> list[str]:
    """The tokens of a part of a text."""
    found = list[str]()
    for run in _runs().findall(part):
        if run.isascii():
            found.append(run[:_MAX_WORD].lower())
        else:
            found += [token for _, _, token in _cut(run)]
    return found


@functools.lru_cache(maxsize=1 << 17)
def _cached_tokens(part: str) -> tuple[str, ...]:
    return tuple(_tokens_of(part))


def pieces(text: str) -> Iterator[Piece]:
    """Yield the same tokens with their places.

    >>> [text[piece.start : piece.end] for text in ["A&nbsp;Caf&eacute;!"] for piece in pieces(text)]
    ['A', 'Caf&eacute;']
    """
    for run in _runs().finditer(_blanked(text)):
        for start, end, token in _cut(run[0]):
            yield Piece(run.start() + start, run.start() + end, token)


def has_spaces(token: str) -> bool:
    """Whether a token is a word of a script that separates words by spaces.

    >>> has_spaces("tea"), has_spaces("腾讯")
    (True, False)
    """
    return token.isascii() or not _UNSPACED.match(token)


@functools.cache
def _runs() -> re.Pattern[str]:
    """Return the pattern of runs of letters of scripts with spaces, of characters, and of syllables."""
    marks = _ranges(lambda c: unicodedata.category(c)[0] == "M")
    letters = _ranges(lambda c: c.isalnum() or c == "_") + _RARE
    return re.compile("|".join(f"[{kind}{marks}{_JOINERS}]+" for kind in (letters, _CHARACTERS, _SYLLABLES)))


def _ranges(is_wanted: Callable[[str], bool]) -> str:
    """Return the wanted characters of scripts with spaces, as ranges of a regular expression's [ and ]."""
    found = list[list[int]]()
    for code in range(0x10000):
        c = chr(code)
        if is_wanted(c) and not _UNSPACED.match(c):
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in found)


def _cut(run: str) -> Iterable[tuple[int, int, str]]:
    """Return the tokens of a run and their places in it; words, which recur, are cached."""
    return _cached_cut(run) if len(run) <= _MAX_WORD and not _UNSPACED.search(run) else _uncached_cut(run)


def _uncached_cut(run: str) -> Iterator[tuple[int, int, str]]:
    unspaced = _UNSPACED.search(run)
    if unspaced is None:
        if token := _normal(run[:_MAX_WORD]):
            yield 0, len(run), sys.intern(token)
        return
    # Characters with the marks that belong to them.
    starts = list[int]()
    for i, c in enumerate(run):
        if not starts or not _is_joined(c) or i - starts[-1] >= _MAX_JOINED:
            starts.append(i)
    ends = [*starts[1:], len(run)]
    # Most runs are normal already. Normalisation orders marks in quadratic time, so it is done on short pieces.
    normal = str if len(starts) == len(run) and _normal(run) == run else _normal
    least, most = (1, 2) if _CHARACTER.match(unspaced[0]) else (2, 3)
    for i, start in enumerate(starts):
        for j in range(i + min(least, len(starts)) - 1, min(i + most, len(starts))):
            if token := normal(run[start : ends[j]]):
                yield start, ends[j], token


@functools.lru_cache(maxsize=1 << 17)
def _cached_cut(run: str) -> tuple[tuple[int, int, str], ...]:
    return tuple(_uncached_cut(run))


def _is_joined(c: str) -> bool:
    """Whether a character belongs to the one before it: marks, and the voicing of half-width kana."""
    return c in _VOICING or c in _JOINERS or unicodedata.category(c)[0] == "M"


def _normal(run: str) -> str:
    """Return a run without invisible characters, in NFKC and lower case; "" if no letter or digit is left."""
    for joiner in _JOINERS:
        run = run.replace(joiner, "")
    token = unicodedata.normalize("NFKC", run).casefold()
    return token if any(c.isalnum() or c == "_" for c in token) else ""


def _blanked(text: str) -> str:
    """Return a text of the same length, with blanks for markup and characters for entities."""
    if "<" in text:
        text = _TAG.sub(lambda tag: " " * len(tag[0]), _without_hidden(text))
    if "&" in text:
        text = _ENTITY.sub(_character, text)
    return text


def _without_hidden(text: str) -> str:
    """Replace comments, scripts and styles by blanks; from the first of a kind without an end on, they are text."""
    for opening, closing in _HIDDEN:
        lower, parts, done = text.lower(), list[str](), 0
        if len(lower) != len(text):  # some capitals have two lower-case letters
            lower = text
        while (start := lower.find(opening, done)) >= 0 and (end := lower.find(closing, start + len(opening))) >= 0:
            end += len(closing)
            parts += [text[done:start], " " * (end - start)]
            done = end
        text = "".join([*parts, text[done:]])
    return text


def _character(entity: re.Match[str]) -> str:
    """Return the character of an entity, padded to the length of the entity with invisible characters."""
    found = html.unescape(entity[0])
    return found + (_PAD if found.isalnum() else " ") * (len(entity[0]) - len(found))


_RULES: Final[dict[str, Tokenizer]] = {"words": _words, "chars": _chars, "jieba": _jieba, "any": tokens}
