"""`detect_language`: which of some languages a text is in.

py3langid (the extra `words`) carries a naive Bayes model of byte sequences of 139 languages. It gives a probability
p(l) for every language l it knows, from the first words of the text alone, so that the same text always has the same
language. With S the languages to choose from, the answer is the most probable of all languages, l*, if

    l* ∈ S  and  p(l*) ≥ 0.9 Σ p(l) over l ∈ S

and None otherwise: for texts in other languages, in several, or of fewer than four words, which may be a name in a
text of any language.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ripml.base.errors import MissingExtraError

__all__ = ["detect_language", "detectable"]

_LEAST_WORDS: Final = 4
_MOST_WORDS: Final = 40  # more are hardly better, and every character takes time
_SURE: Final = 0.9


def detect_language(words: Sequence[str], languages: Collection[str]) -> str | None:
    """The language of a text of these words among `languages` (codes of ISO 639 without a region); None if unsure.

    >>> detect_language("the words of the author die with him".split(), ["de", "en"])
    'en'
    >>> detect_language("die worte des dichters sterben nicht mit ihm".split(), ["de", "en"])
    'de'
    >>> detect_language("les mots du poète ne meurent pas avec lui".split(), ["de", "en"]) is None
    True
    """
    if len(words) < _LEAST_WORDS:
        return None
    ranked: list[tuple[str, float]] = _identifier().rank(" ".join(words[:_MOST_WORDS]))
    best, probability = ranked[0]
    if best in languages and probability >= _SURE * sum(p for language, p in ranked if language in languages):
        return best
    return None


def detectable(languages: Iterable[str] | None = None) -> set[str]:
    """Those of these languages that can be detected, or all.

    >>> sorted(detectable(["de", "mt", "tlh"]))
    ['de', 'mt']
    """
    every = set(_identifier().labels)
    return every if languages is None else every.intersection(languages)


@functools.cache
def _identifier() -> Any:
    """Return py3langid's model, which is part of the package; takes about 0.4 s and 80 MB."""
    try:
        langid: Any = importlib.import_module("py3langid.langid")
    except ImportError:
        raise MissingExtraError("py3langid", "words") from None
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
