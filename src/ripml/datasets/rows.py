"""The row grammar shared by XMC-repository text and SVMLight, parsed twice: fast to accept, slowly to judge.

A row is one line of ASCII text::

    row      = [labels] { blank feature ":" value } [blank] newline
    labels   = label { "," label }         first on the line; a line that begins with a blank has none
    label, feature = digits                a leading "+" is allowed
    value    = what Python's float() accepts, finite in float32, without "_"

`parse_slowly` walks the lines and *is* the specification: it accepts every legal row and raises the sentence for an
illegal one. `parse` gives the same arrays 3 to 10 times as fast: it finds all separators of a chunk at once, checks
every token by the two separators around it, and turns eight digits at a time into a number with integer arithmetic on
64-bit words. What it does not recognise as canonical goes to `parse_slowly`, so it never has to explain anything.
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

__all__ = ["MAX_FLOAT32", "MOST_FEATURES", "MOST_LABELS", "Rows", "format_rows", "parse", "parse_slowly", "shortest"]

Ints = NDArray[np.int64]

MOST_FEATURES: Final = 2**31 - 1  # so that column indices fit int32
MOST_LABELS: Final = 50_000_000  # every label has a name in memory; a stray huge number must not ask for terabytes

MAX_FLOAT32: Final = float(np.finfo(np.float32).max)
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
        """Return the rows without these, which must have neither labels nor features."""
        after = np.array(rows, np.int64) + 1
        return replace(self, label_ptr=np.delete(self.label_ptr, after), feature_ptr=np.delete(self.feature_ptr, after))


def parse(chunk: bytes, name: str, first_line: int, n_features: int | None = None, n_labels: int | None = None) -> Rows:
    """Parse whole lines; features and labels of a row come out sorted.

    Parameters
    ----------
    chunk : bytes
        Whole lines; only the last one may lack its newline.
    name, first_line : str, int
        Where the chunk comes from, for messages.
    n_features, n_labels : int, optional
        Exclusive upper bounds of the indices; unbounded if None.
    """
    rows = _parse_fast(chunk)
    if rows is None or _above(rows.features, n_features) or _above(rows.labels, n_labels):
        return parse_slowly(chunk, name, first_line, n_features, n_labels)
    return rows


def parse_slowly(
    chunk: bytes, name: str, first_line: int, n_features: int | None = None, n_labels: int | None = None
) -> Rows:
    """Do what `parse` does, line by line: the specification, and the source of every error sentence."""
    label_ptr, feature_ptr = [0], [0]
    labels: list[int] = []
    features: list[int] = []
    values: list[float] = []
    lines = chunk.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for at, line in enumerate(lines, first_line):
        tokens = line.split()
        row_labels: list[int] = []
        if tokens and not line[:1].isspace() and b":" not in tokens[0]:
            row_labels = [_index(t, "label", "L", n_labels, name, at) for t in tokens.pop(0).split(b",")]
        row_features: dict[int, float] = {}
        for token in tokens:
            index, colon, value = token.partition(b":")
            if not colon:
                raise fault(name, at, f"{_show(token)} is not feature:value.")
            feature = _index(index, "feature", "d", n_features, name, at)
            if feature in row_features:
                raise fault(name, at, f"feature {feature} is given twice.")
            row_features[feature] = _value(value, feature, name, at)
        if len(set(row_labels)) < len(row_labels):
            twice = next(label for label in row_labels if row_labels.count(label) > 1)
            raise fault(name, at, f"label {twice} is given twice.")
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
    if not abs(value) <= MAX_FLOAT32:
        raise fault(name, line, f"value {_plain(token)} of feature {feature} is not a finite float32 number.")
    return value


def _plain(token: bytes) -> str:
    text = token.decode("utf-8", "backslashreplace")
    return text if len(text) <= 40 else text[:40] + "…"


def _show(token: bytes) -> str:
    return f"'{_plain(token)}'"


def _above(indices: Ints, bound: int | None) -> bool:
    return bound is not None and len(indices) > 0 and int(indices.max()) >= bound


# --- The fast parse. Byte classes: a digit, the five separators, the other bytes of numbers, anything else. ---

_SEPARATORS: Final = b"\n ,:."
_NEWLINE, _SPACE, _COMMA, _COLON, _DOT = range(5)
_DIGIT, _OTHER_NUMBER_BYTE, _FOREIGN = 5, 6, 7
_CLASSES: Final = bytes(
    _SEPARATORS.index(c)
    if c in _SEPARATORS
    else _DIGIT
    if c in b"0123456789"
    else _OTHER_NUMBER_BYTE
    if c in b"eE+-"
    else _FOREIGN
    for c in range(256)
)

# A token is what stands between two separators; the two and its emptiness say what it is.
_BAD, _NOTHING, _LABEL, _FEATURE, _WHOLE, _WHOLE_BEFORE_DOT, _FRACTION = range(7)
_KINDS: Final = np.full((2, 5, 5), _BAD, np.uint8)  # [is empty, separator on the left, separator on the right]
_KINDS[0, [_NEWLINE, _COMMA], :3] = _LABEL
_KINDS[0, [_NEWLINE, _SPACE], _COLON] = _FEATURE
_KINDS[0, _COLON, [_NEWLINE, _SPACE]] = _WHOLE
_KINDS[0, _COLON, _DOT] = _WHOLE_BEFORE_DOT
_KINDS[0, _DOT, [_NEWLINE, _SPACE]] = _FRACTION
_KINDS[1, [_NEWLINE, _SPACE], :2] = _NOTHING
_KIND_OF: Final = _KINDS.ravel()

# 10¹⁵ < 2⁵³: a number of 15 digits is exact, and its quotient by a power of ten up to 10²² rounds as float() does.
_EXACT_DIGITS: Final = 15
_POWERS_OF_TEN: Final = 10.0 ** np.arange(_EXACT_DIGITS + 1)
_PAD: Final = 16  # bytes before the chunk, so that the two words that end in its first byte can be read


def _parse_fast(chunk: bytes) -> Rows | None:
    """Parse a chunk of canonical lines; None where anything is unusual, be it legal or not."""
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
    kinds = _KIND_OF[around[:-1] * np.uint8(5) + around[1:] + (lengths == 0) * np.uint8(25)]
    if kinds.min() == _BAD:
        return None
    lines = np.flatnonzero(around[1:] == _NEWLINE)  # the last token of each line
    labels_at = np.flatnonzero(kinds == _LABEL)
    features_at = np.flatnonzero(kinds == _FEATURE)
    whole_at = features_at + 1  # by _KINDS a colon is followed by a value, and only there is one
    has_fraction = kinds[whole_at] == _WHOLE_BEFORE_DOT
    fraction_at = whole_at[has_fraction] + 1

    # Values too long for exact arithmetic, or with a sign or exponent, are left to float().
    odd = lengths[whole_at] > _EXACT_DIGITS
    odd[has_fraction] = lengths[whole_at[has_fraction]] + lengths[fraction_at] > _EXACT_DIGITS
    signs_at = np.searchsorted(ends, np.flatnonzero(classes == _OTHER_NUMBER_BYTE))
    if len(signs_at):
        signed = np.zeros(len(kinds), bool)
        signed[signs_at] = True
        if signed[labels_at].any() or signed[features_at].any():
            return None
        odd |= signed[whole_at]
        odd[has_fraction] |= signed[fraction_at]
    if max(lengths[labels_at].max(initial=0), lengths[features_at].max(initial=0)) > _EXACT_DIGITS:
        return None

    words: NDArray[np.uint64] = np.ndarray(len(buffer) - 7, "<u8", buffer, strides=(1,))
    labels = _digits(words, ends[labels_at], lengths[labels_at])
    features = _digits(words, ends[features_at], lengths[features_at])
    values = _digits(words, ends[whole_at], lengths[whole_at]).astype(np.float64)
    if len(fraction_at):
        scale = _POWERS_OF_TEN[np.minimum(lengths[fraction_at], _EXACT_DIGITS)]
        fraction = _digits(words, ends[fraction_at], lengths[fraction_at])
        values[has_fraction] = (values[has_fraction] * scale + fraction) / scale
    odd_at = np.flatnonzero(odd)
    if len(odd_at):
        starts = (ends - lengths)[whole_at[odd_at]].tolist()
        stops = ends[whole_at[odd_at] + has_fraction[odd_at]].tolist()
        try:
            values[odd_at] = [float(buffer[i:j]) for i, j in zip(starts, stops, strict=True)]
        except ValueError:
            return None
        if not np.abs(values[odd_at]).max() <= MAX_FLOAT32:
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
    return Rows(label_ptr, labels, feature_ptr, features, values.astype(np.float32))


def _digits(words: NDArray[np.uint64], ends: Ints, lengths: Ints) -> Ints:
    """Return the numbers written in digits [end - length, end), 1 to 16 digits each."""
    numbers = _eight_digits(words[ends - 8], lengths)
    long = np.flatnonzero(lengths > 8)
    if len(long):
        numbers[long] += 10**8 * _eight_digits(words[ends[long] - 16], lengths[long] - 8)
    return numbers


def _eight_digits(words: NDArray[np.uint64], lengths: Ints) -> Ints:
    """Return the numbers in the last min(length, 8) bytes of each word; the first digit is in the lowest byte.

    Neighbouring digits, then pairs, then fours are joined: (10 a + b) for all of them in one multiplication.
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
    return words.view(np.int64)


def _increasing(indices: Ints, indptr: Ints) -> bool:
    """Whether the indices strictly increase within each row."""
    falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1
    return bool(np.isin(falls, indptr).all())


def _row_order(indices: Ints, indptr: Ints) -> Ints:
    """Return the permutation that sorts the indices within each row."""
    return np.lexsort((indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))))


# --- Writing. ---


def format_rows(dataset: Dataset, first_feature: int) -> Iterator[bytes]:
    """Yield lines for all rows of a data set that has features; its column 0 is written as `first_feature`."""
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
