"""How a text is cut into tokens: a rule, named by a word, is a function from a text to a list of strings.

- `"words"`: runs of letters, digits and underscores; Chinese and Japanese characters one by one. 腾 讯 q3 财 报
- `"chars"`: the same, and each pair of neighbouring Chinese or Japanese characters. 腾 腾讯 讯 q3 财 财报 报
- `"jieba"`: Chinese words, by jieba's dictionary and, where that ends, its hidden Markov model. 腾讯 q3 财报
- `"any"`: text of any script as it is found, see `ripml.text.pieces`. 腾 腾讯 讯 q3 财 财报 报

Letters are lower-cased and punctuation is left out by every rule. `"chars"` is the way with unspaced scripts that needs
no linguistic preprocessing, which the paper counts among its method's merits: overlapping character pairs retrieve
Chinese about as well as segmented words do (Nie and others, "On the use of words and n-grams for Chinese information
retrieval", 2000).
"""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.text.pieces import tokens

__all__ = ["Tokenizer", "packed", "strings", "tokenizer", "unpacked"]

Tokenizer: TypeAlias = Callable[[str], list[str]]

# Japanese kana and Chinese characters stand without spaces between words: there each character counts as a word.
# Elsewhere a word is a run of letters, digits and underscores, single ones ("C", "R") too.
_UNSPACED: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_RUN: Final = re.compile(rf"([{_UNSPACED}]+)|[^\W{_UNSPACED}]+")
_LETTER: Final = re.compile(r"\w")


def tokenizer(word: str) -> Tokenizer:
    """Return the rule of this name; "jieba" needs jieba, which is loaded when first used.

    Examples
    --------
    >>> tokenizer("words")("A red 苹果!")
    ['a', 'red', '苹', '果']
    >>> tokenizer("chars")("A red 苹果!")
    ['a', 'red', '苹', '苹果', '果']
    """
    if word not in _RULES:
        raise ParameterError(f"`tokens` must be one of {', '.join(map(repr, _RULES))}; got {word!r}.")
    return _RULES[word]


def strings(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list, once it is sure that they are texts.

    Examples
    --------
    >>> strings(("red", "green"))
    ['red', 'green']
    """
    if isinstance(texts, str):
        raise DataError("a list of texts is needed; got one string.")
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {i} is not a string; got {type(text).__name__}.")
    return texts


def packed(words: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the words as two arrays, for saving without pickle: their UTF-8 in one row, and where each begins.

    Examples
    --------
    >>> packed(["to", "be"])["word_offsets"].tolist()
    [0, 2, 4]
    """
    encoded = [word.encode() for word in words]
    offsets = np.concatenate(([0], np.cumsum([len(word) for word in encoded], dtype=np.int64)))
    return {"words": np.frombuffer(b"".join(encoded), np.uint8), "word_offsets": offsets}


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return the words that `packed` made these arrays of; raise `ValueError` or `KeyError` where they are damaged.

    Examples
    --------
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
    tokens: list[str] = []
    for run in _RUN.finditer(text.lower()):
        unspaced = run[1]
        if unspaced is None:
            tokens.append(run[0])
        else:
            tokens += chain.from_iterable((a, a + b) for a, b in pairwise(unspaced))  # a, ab, b, bc, …
            tokens.append(unspaced[-1])
    return tokens


def _jieba(text: str) -> list[str]:
    return [token for token in _segmenter().lcut(text.lower()) if _LETTER.search(token)]


@functools.cache
def _segmenter() -> Any:
    """Return jieba's segmenter with its dictionary: about a second's work.

    Left to itself jieba logs to standard error, and keeps the dictionary as a marshalled file in the folder for
    temporary files, where it would read anybody's: so the dictionary is handed to it ready.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its source has invalid escapes, and imports pkg_resources
            jieba: Any = importlib.import_module("jieba")
    except ImportError:
        raise MissingExtraError("jieba", "text") from None
    segmenter = jieba.Tokenizer()
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


_RULES: Final[dict[str, Tokenizer]] = {"words": _words, "chars": _chars, "jieba": _jieba, "any": tokens}
