"""The languages that a reader prefers, from the Accept-Language header of a request (RFC 9110, section 12.5.4)."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["accepted_languages"]

_MAX_LENGTH = 500  # characters of a header that are read
_MAX_LANGUAGES = 8


@lru_cache(maxsize=256)
def accepted_languages(header: str) -> tuple[str, ...]:
    """The language tags of the header, the preferred one first; those that cannot be read, "*" and q=0 are left out.

    >>> accepted_languages("en;q=0.5, de-AT, fr;q=0.8, *;q=0.1, xx;q=0")
    ('de-AT', 'fr', 'en')
    """
    found: list[tuple[float, str]] = []
    for part in header[:_MAX_LENGTH].split(","):
        tag, _, weight = (piece.strip() for piece in part.partition(";"))
        name, _, number = weight.partition("=")
        try:
            quality = float(number) if name.strip() == "q" else 1.0
        except ValueError:
            continue
        if tag.replace("-", "").isalnum() and 0 < quality <= 1:
            found.append((-quality, tag))
    return tuple(tag for _, tag in sorted(found, key=lambda pair: pair[0])[:_MAX_LANGUAGES])
