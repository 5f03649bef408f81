"""The row grammar shared by XMC-repository text and SVMLight: its specification, a fast parser and a writer.

A row is one line of ASCII text::

    row      = [labels] { blank feature ":" value } [blank] newline
    labels   = label { "," label }         first on the line; a line that begins with a blank has none
    label, feature = digits                a leading "+" is allowed
    value    = what Python's float() accepts, finite in float32, without "_"

`parse_slowly` walks through the lines and *is* the specification: it accepts every legal row and raises the error for
an illegal one. `parse` gives the same result at the speed of compiled code. It works on arrays of bytes: it finds all
separators of a chunk at once and checks the grammar by one table look-up of the two separators around each token.
Chunks that are not canonical, legal or not, are left to `parse_slowly`, so the fast parser explains no errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ripml.datasets.dataset import Dataset, csr
from ripml.datasets.source import fault

__all__ = ["FLOAT32_BOUND", "MAX_FEATURES", "MAX_LABELS", "Rows", "format_rows", "parse", "parse_slowly", "shortest"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

MAX_FEATURES: Final = 2**31 - 1  # column indices must fit int32
MAX_LABELS: Final = 50_000_000  # every label has a name in memory; a stray huge number must not ask for terabytes

FLOAT32_BOUND: Final = 2.0**128 - 2.0**103  # numbers below it round to a finite float32
_UNSIGNED: Final = re.compile(rb"\+?[0-9]+")


@dataclass(frozen=True)
class Rows:
    """Parsed rows: row i has labels[label_ptr[i]:label_ptr[i+1]] and the same for features and values."""

    label_ptr: Ints
    labels: Ints
    feature_ptr: Ints
    features: Ints
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.label_ptr) - 1

    def X(self, n_features: int) -> Any:
        """Features as CSR float32, shape (n, n_features)."""
        return csr(self.values, self.features, self.feature_ptr, n_features)

    def Y(self, n_labels: int) -> Any:
        """Labels as a CSR float32 indicator, shape (n, n_labels)."""
        return csr(np.ones(len(self.labels)), self.labels, self.label_ptr, n_labels)

    def without_empty(self, rows: list[int]) -> Rows:
        """Return the rows except these, which must have neither labels nor features."""
        after = np.array(rows, np.int64) + 1
        return replace(self, label_ptr=np.delete(self.label_ptr, after), feature_ptr=np.delete(self.feature_ptr, after))


def parse_slowly(
    chunk: bytes, name: str, first_line: int, n_features: int | None = None, n_labels: int | None = None
) -> Rows:
    """Parse whole lines, the last with or without its newline, into rows with sorted features and labels.

    `name` and `first_line` say where the chunk comes from, for messages. `n_features` and `n_labels` are exclusive
    upper bounds of the indices; None for no bound.
    """
    label_ptr, feature_ptr = [0], [0]
    labels: list[int] = []
    features: list[int] = []
    values: list[float] = []
    lines = chunk.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, first_line):
        tokens = line.split()
        row_labels: list[int] = []
        if tokens and not line[:1].isspace() and b":" not in tokens[0]:
            row_labels = [_index(t, "label", "L", n_labels, name, number) for t in tokens.pop(0).split(b",")]
        row_features: dict[int, float] = {}
        for token in tokens:
            index, colon, value = token.partition(b":")
            if not colon:
                raise fault(name, number, f"{_show(token)} is not feature:value.")
            feature = _index(index, "feature", "d", n_features, name, number)
            if feature in row_features:
                raise fault(name, number, f"feature {feature} is given twice.")
            row_features[feature] = _value(value, feature, name, number)
        if len(set(row_labels)) < len(row_labels):
            twice = next(label for label in row_labels if row_labels.count(label) > 1)
            raise fault(name, number, f"label {twice} is given twice.")
        labels += sorted(row_labels)
        features += sorted(row_features)
        values += [row_features[feature] for feature in sorted(row_features)]
        label_ptr.append(len(labels))
        feature_ptr.append(len(features))
    return Rows(
        np.array(label_ptr, np.int64),
        np.array(labels, np.int64),
        np.array(feature_ptr, np.int64),
        np.array(features, np.int64),
        np.array(values, np.float64).astype(np.float32),
    )


def _index(token: bytes, what: str, bound_name: str, bound: int | None, name: str, line: int) -> int:
    if not _UNSIGNED.fullmatch(token):
        if token[:1] == b"-" and _UNSIGNED.fullmatch(token[1:]):
            raise fault(name, line, f"{what} {_plain(token)} is negative.")
        raise fault(name, line, f"{what} {_show(token)} is not an integer.")
    if len(token) > 18 and len(token.lstrip(b"+0")) > 18:  # int64 holds every number of 18 digits
        raise fault(name, line, f"{what} {_plain(token)} is too large.")
    index = int(token)
    if bound is not None and index >= bound:
        raise fault(name, line, f"{what} {index} is not below {bound_name} = {bound}.")
    return index


def _value(token: bytes, feature: int, name: str, line: int) -> float:
    try:
        value = float(token) if b"_" not in token else None
    except ValueError:
        value = None
    if value is None:
        raise fault(name, line, f"value {_show(token)} of feature {feature} is not a number.")
    if not abs(value) < FLOAT32_BOUND:
        raise fault(name, line, f"value {_plain(token)} of feature {feature} is not a finite float32 number.")
    return value


def _plain(token: bytes) -> str:
    text = token.decode("utf-8", "backslashreplace")
    return text if len(text) <= 40 else text[:40] + "…"


def _show(token: bytes) -> str:
    return f"'{_plain(token)}'"


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

# 10¹⁵ < 2⁵³: a number of 15 digits is exact, and dividing it by a power of ten up to 10²² rounds as float() does.
_EXACT_DIGITS: Final = 15
_MAX_DIGITS: Final = 19  # 10¹⁹ < 2⁶⁴
_POWERS_OF_TEN: Final = 10.0 ** np.arange(_MAX_DIGITS + 1)
_PAD: Final = 24  # bytes before the chunk, so that the three words that end in its first byte can be read


def parse(chunk: bytes, name: str, first_line: int, n_features: int | None = None, n_labels: int | None = None) -> Rows:
    """Parse whole lines; the same result, or the same error, as `parse_slowly`."""
    rows = _parse_fast(chunk)
    if rows is None or _reaches(rows.features, n_features) or _reaches(rows.labels, n_labels):
        return parse_slowly(chunk, name, first_line, n_features, n_labels)
    return rows


def _reaches(indices: Ints, bound: int | None) -> bool:
    return bound is not None and int(indices.max(initial=-1)) >= bound


def _parse_fast(chunk: bytes) -> Rows | None:
    """Parse canonical lines; None if anything is unusual."""
    if not chunk:
        return None
    buffer = b"".join((b"\n" * _PAD, chunk, b"" if chunk.endswith(b"\n") else b"\n"))
    classes = np.frombuffer(buffer.translate(_CLASSES), np.uint8)
    if classes.max() == _FOREIGN:
        return None

    # Split into tokens: token t is between separators t and t + 1.
    separators = np.flatnonzero(classes[_PAD - 1 :] < _DIGIT) + (_PAD - 1)
    around = classes[separators]
    ends = separators[1:]
    lengths = np.diff(separators) - 1
    kinds = _KINDS.ravel()[(lengths == 0) * np.uint8(25) + around[:-1] * np.uint8(5) + around[1:]]
    if kinds.min() == _BAD:
        return None
    lines = np.flatnonzero(around[1:] == _NEWLINE)  # the last token of each line
    label_tokens = np.flatnonzero(kinds == _LABEL)
    feature_tokens = np.flatnonzero(kinds == _FEATURE)
    if max(lengths[label_tokens].max(initial=0), lengths[feature_tokens].max(initial=0)) > _EXACT_DIGITS:
        return None

    # A minus sign before a value is cut off its token; tokens with other signs or exponents are left to float().
    negative, odd = np.zeros((2, len(kinds)), bool)
    signs = np.flatnonzero(classes == _SIGN)
    if len(signs):
        leading = (np.frombuffer(buffer, np.uint8)[signs] == ord("-")) & (classes[signs - 1] == _COLON)
        token = np.searchsorted(ends, signs)
        negative[token[leading]] = True
        odd[token[~leading]] = True
        lengths -= negative
        if (lengths[negative] == 0).any() or odd[label_tokens].any() or odd[feature_tokens].any():
            return None

    # Numbers from digits, eight bytes at a time.
    words: Words = np.ndarray(len(buffer) - 7, "<u8", buffer, strides=(1,))
    labels = _digits(words, ends[label_tokens], lengths[label_tokens]).view(np.int64)
    features = _digits(words, ends[feature_tokens], lengths[feature_tokens]).view(np.int64)
    values = _values(buffer, words, ends, lengths, kinds, negative, odd)
    if values is None:
        return None

    # Rows of tokens, sorted by index within each row.
    label_ptr = np.concatenate(([0], np.searchsorted(label_tokens, lines, side="right")))
    feature_ptr = np.concatenate(([0], np.searchsorted(feature_tokens, lines, side="right")))
    if not _increasing(labels, label_ptr):
        labels = labels[_row_order(labels, label_ptr)]
    if not _increasing(features, feature_ptr):
        order = _row_order(features, feature_ptr)
        features, values = features[order], values[order]
    if not (_increasing(labels, label_ptr) and _increasing(features, feature_ptr)):
        return None  # a label or a feature occurs twice
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
    """Return the values, (whole · 10ᵏ + fraction) / 10ᵏ for k decimals; None if one is not a float32 number."""
    whole = np.flatnonzero((kinds == _WHOLE) | (kinds == _WHOLE_BEFORE_DOT))
    dotted = np.flatnonzero(kinds[whole] == _WHOLE_BEFORE_DOT)
    fraction = whole[dotted] + 1
    negative, by_float, digits = negative[whole], odd[whole] | (lengths[whole] > _EXACT_DIGITS), lengths[whole]
    numbers = _digits(words, ends[whole], digits).astype(np.float64)
    if len(dotted):
        decimals = lengths[fraction]
        scale = _POWERS_OF_TEN[np.minimum(decimals, _MAX_DIGITS)]
        numbers[dotted] = (numbers[dotted] * scale + _digits(words, ends[fraction], decimals)) / scale
        by_float[dotted] |= odd[fraction] | (decimals > _MAX_DIGITS)
        digits[dotted] += decimals
        # With more digits there are four roundings, together less than 2⁻⁵⁰. If all numbers that near round to one
        # float32, that is the answer; otherwise float() decides.
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

    Adjacent digits, then pairs, then fours are combined as 10 a + b, all of a word in one multiplication.
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


def format_rows(dataset: Dataset, first_feature: int) -> Iterator[bytes]:
    """Yield lines for all rows of a data set that has features; column 0 is written as `first_feature`."""
    for start in range(0, len(dataset), 10_000):
        X, Y = dataset.X[start : start + 10_000], dataset.Y[start : start + 10_000]
        labels = list(map(str, Y.indices.tolist()))
        pairs = [f"{i}:{v}" for i, v in zip((X.indices + first_feature).tolist(), shortest(X.data), strict=True)]
        yield "".join(
            f"{','.join(labels[a:b])} {' '.join(pairs[c:d])}\n"
            for (a, b), (c, d) in zip(pairwise(Y.indptr.tolist()), pairwise(X.indptr.tolist()), strict=True)
        ).encode()


def shortest(values: NDArray[np.float32]) -> list[str]:
    """Return the shortest decimal of each value that reads back as the same float32; integers without ".0"."""
    return [text.removesuffix(".0") for text in np.asarray(values, np.float32).astype(str).tolist()]
