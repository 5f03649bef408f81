"""`parse`: the rows of `rows` at the speed of compiled code, in NumPy alone: accept fast, judge slowly.

All separators of a chunk are found at once. A token is told by the two separators around it, so one table look-up
checks the grammar; eight digits become a number with three multiplications of 64-bit words. Whatever is not canonical,
be it legal or not, is left to `rows.parse_slowly`: nothing here has to explain anything.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ripml.datasets.rows import FLOAT32_BOUND, Ints, Rows, parse_slowly

__all__ = ["parse"]

Words = NDArray[np.uint64]

# Classes of bytes: the five separators, digits, the other bytes of numbers, anything else.
_SEPARATORS: Final = b"\n ,:."
_NEWLINE, _SPACE, _COMMA, _COLON, _DOT, _DIGIT, _SIGN, _FOREIGN = range(8)
_CLASS_OF: Final = {
    **dict.fromkeys(range(256), _FOREIGN),
    **dict.fromkeys(b"0123456789", _DIGIT),
    **dict.fromkeys(b"eE+-", _SIGN),
    **{byte: _SEPARATORS.index(byte) for byte in _SEPARATORS},
}
_CLASSES: Final = bytes(_CLASS_OF[byte] for byte in range(256))

# Kinds of tokens, by [is empty, separator on the left, separator on the right].
_BAD, _NOTHING, _LABEL, _FEATURE, _WHOLE, _WHOLE_BEFORE_DOT, _FRACTION = range(7)
_KINDS: Final = np.full((2, 5, 5), _BAD, np.uint8)
_KINDS[0, [_NEWLINE, _COMMA], :3] = _LABEL
_KINDS[0, [_NEWLINE, _SPACE], _COLON] = _FEATURE
_KINDS[0, _COLON, [_NEWLINE, _SPACE]] = _WHOLE
_KINDS[0, _COLON, _DOT] = _WHOLE_BEFORE_DOT
_KINDS[0, _DOT, [_NEWLINE, _SPACE]] = _FRACTION
_KINDS[1, [_NEWLINE, _SPACE], :2] = _NOTHING

# 10¹⁵ < 2⁵³: a number of 15 digits is exact, and its quotient by a power of ten up to 10²² rounds as float() does.
_EXACT_DIGITS: Final = 15
_MOST_DIGITS: Final = 19  # 10¹⁹ < 2⁶⁴
_POWERS_OF_TEN: Final = 10.0 ** np.arange(_MOST_DIGITS + 1)
_PAD: Final = 24  # bytes before the chunk, so that the three words that end in its first byte can be read


def parse(chunk: bytes, name: str, first_line: int, n_features: int | None = None, n_labels: int | None = None) -> Rows:
    """Return, or raise, what `parse_slowly` does, only sooner."""
    rows = _parse_fast(chunk)
    if rows is None or _reaches(rows.features, n_features) or _reaches(rows.labels, n_labels):
        return parse_slowly(chunk, name, first_line, n_features, n_labels)
    return rows


def _reaches(indices: Ints, bound: int | None) -> bool:
    return bound is not None and int(indices.max(initial=-1)) >= bound


def _parse_fast(chunk: bytes) -> Rows | None:
    """Parse canonical lines; None where anything is unusual."""
    if not chunk:
        return None
    buffer = b"".join((b"\n" * _PAD, chunk, b"" if chunk.endswith(b"\n") else b"\n"))
    classes = np.frombuffer(buffer.translate(_CLASSES), np.uint8)
    if classes.max() == _FOREIGN:
        return None

    # Token t stands between separators t and t + 1.
    separators = np.flatnonzero(classes[_PAD - 1 :] < _DIGIT) + (_PAD - 1)
    around = classes[separators]
    ends = separators[1:]
    lengths = np.diff(separators) - 1
    kinds = _KINDS.ravel()[(lengths == 0) * np.uint8(25) + around[:-1] * np.uint8(5) + around[1:]]
    if kinds.min() == _BAD:
        return None
    lines = np.flatnonzero(around[1:] == _NEWLINE)  # the last token of each line
    labels_at = np.flatnonzero(kinds == _LABEL)
    features_at = np.flatnonzero(kinds == _FEATURE)
    if max(lengths[labels_at].max(initial=0), lengths[features_at].max(initial=0)) > _EXACT_DIGITS:
        return None

    # A minus that begins a value is taken off its token; other signs and exponents make the token odd.
    negative, odd = np.zeros((2, len(kinds)), bool)
    signs = np.flatnonzero(classes == _SIGN)
    if len(signs):
        leading = (np.frombuffer(buffer, np.uint8)[signs] == ord("-")) & (classes[signs - 1] == _COLON)
        token = np.searchsorted(ends, signs)
        negative[token[leading]] = True
        odd[token[~leading]] = True
        lengths -= negative
        if (lengths[negative] == 0).any() or odd[labels_at].any() or odd[features_at].any():
            return None

    words: Words = np.ndarray(len(buffer) - 7, "<u8", buffer, strides=(1,))
    labels = _digits(words, ends[labels_at], lengths[labels_at]).view(np.int64)
    features = _digits(words, ends[features_at], lengths[features_at]).view(np.int64)
    values = _values(buffer, words, ends, lengths, kinds, negative, odd)
    if values is None:
        return None

    label_ptr = np.concatenate(([0], np.searchsorted(labels_at, lines, side="right")))
    feature_ptr = np.concatenate(([0], np.searchsorted(features_at, lines, side="right")))
    if not _increasing(labels, label_ptr):
        labels = labels[_row_order(labels, label_ptr)]
    if not _increasing(features, feature_ptr):
        order = _row_order(features, feature_ptr)
        features, values = features[order], values[order]
    if not (_increasing(labels, label_ptr) and _increasing(features, feature_ptr)):
        return None  # something is given twice
    return Rows(label_ptr, labels, feature_ptr, features, values)


def _values(
    buffer: bytes,
    words: Words,
    ends: Ints,
    lengths: Ints,
    kinds: NDArray[np.uint8],
    negative: NDArray[np.bool_],
    odd: NDArray[np.bool_],
) -> NDArray[np.float32] | None:
    """Return the values, whole · 10ᵏ + fraction over 10ᵏ for k decimals; None if one is no float32 number."""
    whole = np.flatnonzero((kinds == _WHOLE) | (kinds == _WHOLE_BEFORE_DOT))
    dotted = np.flatnonzero(kinds[whole] == _WHOLE_BEFORE_DOT)
    fraction = whole[dotted] + 1
    negative, by_float, digits = negative[whole], odd[whole] | (lengths[whole] > _EXACT_DIGITS), lengths[whole]
    numbers = _digits(words, ends[whole], digits).astype(np.float64)
    if len(dotted):
        decimals = lengths[fraction]
        scale = _POWERS_OF_TEN[np.minimum(decimals, _MOST_DIGITS)]
        numbers[dotted] = (numbers[dotted] * scale + _digits(words, ends[fraction], decimals)) / scale
        by_float[dotted] |= odd[fraction] | (decimals > _MOST_DIGITS)
        digits[dotted] += decimals
        # With more digits four roundings are at work, less than 2⁻⁵⁰ together. Where float32 has one answer for all
        # numbers that near, it is the answer.
        long = np.flatnonzero(digits > _EXACT_DIGITS)
        below, above = ((numbers[long] * (1 + e)).astype(np.float32) for e in (-(2.0**-50), 2.0**-50))
        by_float[long] |= below != above
    numbers[negative] *= -1
    rest = np.flatnonzero(by_float)
    if len(rest):
        starts = (ends - lengths)[whole[rest]] - negative[rest]
        stops = ends[whole[rest] + (kinds[whole[rest]] == _WHOLE_BEFORE_DOT)]
        try:
            numbers[rest] = [float(buffer[i:j]) for i, j in zip(starts.tolist(), stops.tolist(), strict=True)]
        except ValueError:
            return None
        if not np.abs(numbers[rest]).max() < FLOAT32_BOUND:
            return None
    return numbers.astype(np.float32)


def _digits(words: Words, ends: Ints, lengths: Ints) -> Words:
    """Return the numbers written in digits [end - length, end), 1 to 19 digits each."""
    numbers = _eight_digits(words[ends - 8], lengths)
    for before in (8, 16):
        longer = np.flatnonzero(lengths > before)
        if not len(longer):
            break
        more = _eight_digits(words[ends[longer] - before - 8], lengths[longer] - before)
        numbers[longer] += np.uint64(10**before) * more
    return numbers


def _eight_digits(words: Words, lengths: Ints) -> Words:
    """Return the numbers in the last min(length, 8) bytes of each word, the first digit in the lowest byte.

    Neighbouring digits, then pairs, then fours are joined: 10 a + b for all of them in one multiplication.
    """
    shift = (64 - 8 * np.minimum(lengths, 8)).astype(np.uint64)
    words = (words >> shift) << shift
    words &= np.uint64(0x0F0F0F0F0F0F0F0F)
    words *= np.uint64(10 * 2**8 + 1)
    words >>= np.uint64(8)
    words &= np.uint64(0x00FF00FF00FF00FF)
    words *= np.uint64(100 * 2**16 + 1)
    words >>= np.uint64(16)
    words &= np.uint64(0x0000FFFF0000FFFF)
    words *= np.uint64(10000 * 2**32 + 1)
    words >>= np.uint64(32)
    return words


def _increasing(indices: Ints, indptr: Ints) -> bool:
    """Whether the indices strictly increase within each row."""
    falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1
    return bool(np.isin(falls, indptr).all())


def _row_order(indices: Ints, indptr: Ints) -> Ints:
    """Return the permutation that sorts the indices within each row."""
    return np.lexsort((indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))))
