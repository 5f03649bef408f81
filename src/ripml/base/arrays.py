"""Arrays that grow at their end or are made when they are needed, and specifications of the arrays of a model folder.

A model that learns while others read it appends rows to its arrays. `GrowingArray` writes new rows behind the last one,
into spare capacity, so that views handed out before never change. A model folder leaves out what follows from the rest
of it: `LazyArray` makes it again.

A folder may come from a stranger: a wrong index or shape would read past an array or give wrong scores. `ArraySpec`
states what an array must be, `check_arrays` compares all arrays of a model with their specifications, and `csr_from`
builds sparse matrices from checked arrays. What does not fit is a `ValueError` that names the array.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.compiled import loops
from ripml.base.parallel import blocks

__all__ = [
    "ArraySpec",
    "GrowingArray",
    "LazyArray",
    "as_array",
    "as_bytes",
    "as_half",
    "check_arrays",
    "csr_from",
    "csr_of",
    "from_bytes",
    "from_half",
    "narrowed",
    "packed_indices",
    "unpacked_indices",
]

_SPARE, _LEAST = 8, 64  # spare capacity: an eighth of the size, and 64 rows at least
_LARGEST_HALF = 2.0**14  # of numbers stored as float16, in their unit
_LEAST_UNIT = np.float32(1e-36)  # of a line in 8 bits
_LINES = 4096  # lines rounded at a time
_ENTRIES = 1 << 19  # indices packed at a time
_MOST_BYTES = 5  # of a step between indices, which are below 2³²
_KINDS = set("biuf")  # NumPy's letters for bool, int, unsigned int and float


class GrowingArray:
    """An array that grows along one axis; views handed out before, and arrays appended to, never change.

    >>> array = GrowingArray(np.array([1, 2]))
    >>> longer = array.appended(np.array([3]))
    >>> longer.view.tolist(), array.view.tolist()
    ([1, 2, 3], [1, 2])
    """

    def __init__(self, array: NDArray[Any], axis: int = 0) -> None:
        """Start with this array, which is copied only when it has to grow."""
        self._buffer, self._axis = _Buffer(array, array.shape[axis]), axis
        self.size = array.shape[axis]
        self.view = array  # the whole array as it is now

    def append(self, more: NDArray[Any]) -> NDArray[Any]:
        """Write these entries behind the last one and return the view of the whole array."""
        size = self.size + more.shape[self._axis]
        if size == self.size:  # the first array may be read-only, so an empty append must not write
            return self.view
        buffer = self._buffer
        # Behind the last entry there may be those of another array that was appended to this one.
        if buffer.used > self.size or size > buffer.array.shape[self._axis]:
            shape = list(buffer.array.shape)
            shape[self._axis] = size + max(size // _SPARE, _LEAST)
            buffer = _Buffer(np.empty(shape, buffer.array.dtype), self.size)
            buffer.array[self._part(0, self.size)] = self.view
        buffer.array[self._part(self.size, size)] = more
        buffer.used = size
        self._buffer, self.size = buffer, size
        self.view = buffer.array[self._part(0, size)]
        return self.view

    def appended(self, more: NDArray[Any]) -> GrowingArray:
        """Another array with these entries behind the last; it shares memory with this one, which stays as it is."""
        longer = copy(self)
        longer.append(more)
        return longer

    def _part(self, start: int, stop: int) -> tuple[slice, ...]:
        return (*(slice(None),) * self._axis, slice(start, stop))


@dataclass
class _Buffer:
    """Memory with spare capacity behind the entries in use."""

    array: NDArray[Any]
    used: int


class LazyArray:
    """An array of a known shape that is made when it is first needed, once for all threads.

    >>> array = LazyArray((2,), lambda: np.array([1, 2]))
    >>> array.shape, array.get().tolist()
    ((2,), [1, 2])
    """

    def __init__(self, shape: tuple[int, ...], make: Callable[[], NDArray[Any]]) -> None:
        self.shape = shape
        self._make = make
        self._made: NDArray[Any] | None = None
        self._lock = threading.Lock()

    def get(self) -> NDArray[Any]:
        """The array itself."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


def as_array(array: NDArray[Any] | LazyArray) -> NDArray[Any]:
    """The array itself, made now if it is lazy and was not needed before."""
    return array.get() if isinstance(array, LazyArray) else array


@dataclass(frozen=True)
class ArraySpec:
    """What an array must be.

    `dtype` is a name ("float32") or NumPy's letters for kinds of numbers: "f" for floats, "b" for bool, "iu" for whole
    numbers. Each entry of `shape` is a number, a symbol that stands for the same number wherever it is used, or None
    for any number. Bounds are numbers or symbols: `least` and `most` include the bound, `above` and `below` exclude it.
    """

    dtype: str
    shape: tuple[int | str | None, ...]
    least: float | str | None = None
    most: float | str | None = None
    above: float | str | None = None
    below: float | str | None = None
    finite: bool = False  # neither NaN nor infinity
    rising: bool = False  # no entry is smaller than the one before it along the last axis
    distinct: bool = False  # no two entries are equal
    optional: bool = False  # the array may be missing


def check_arrays(
    specs: Mapping[str, ArraySpec],
    arrays: Mapping[str, NDArray[Any]],
    sizes: dict[str, int] | None = None,
    wide: bool = True,
) -> dict[str, NDArray[Any]]:
    """The arrays that `specs` names, checked in the order of `specs`; an optional array that is missing is left out.

    `sizes` maps symbols to their numbers. A symbol that it does not know is bound by its first use in a shape and added
    to it. Whole numbers ("iu") are returned as int64 if `wide`, other arrays as they are. Arrays that `specs` does not
    name are ignored. ValueError for the first array that does not fit.

    >>> specs = {"Psi": ArraySpec("f", ("d", "M")), "intercept": ArraySpec("f", ("M",), finite=True)}
    >>> sizes = {"d": 3}
    >>> sorted(check_arrays(specs, {"Psi": np.ones((3, 2)), "intercept": np.zeros(2)}, sizes)), sizes
    (['Psi', 'intercept'], {'d': 3, 'M': 2})
    >>> check_arrays(specs, {"Psi": np.ones((3, 2)), "intercept": np.zeros(5)})
    Traceback (most recent call last):
    ValueError: the array 'intercept' has shape (5,), but (M) with M = 2 is expected
    """
    sizes = {} if sizes is None else sizes
    checked = {}
    for name, spec in specs.items():
        if name in arrays:
            _check(name, spec, arrays[name], sizes)
            whole = wide and spec.dtype == "iu"
            checked[name] = arrays[name].astype(np.int64, copy=False) if whole else arrays[name]
        elif not spec.optional:
            raise ValueError(f"the array {name!r} is missing")
    return checked


def _check(name: str, spec: ArraySpec, array: NDArray[Any], sizes: dict[str, int]) -> None:
    found = array.dtype
    if not (found.kind in spec.dtype if set(spec.dtype) <= _KINDS else found.name == spec.dtype):
        raise ValueError(f"the array {name!r} has dtype {found.name}, but {_dtype_name(spec)} is expected")
    fits = array.ndim == len(spec.shape)
    for symbol, length in zip(spec.shape, array.shape, strict=False) if fits else ():
        expected = sizes.setdefault(symbol, length) if isinstance(symbol, str) else symbol
        fits = fits and expected in (None, length)
    if not fits:
        raise ValueError(f"the array {name!r} has shape {array.shape}, but {_shape_text(spec, sizes)} is expected")
    if spec.dtype == "iu" and not np.can_cast(found, np.int64, "safe"):
        raise ValueError(f"the array {name!r} has dtype {found.name}, which int64 does not hold")
    bounds = (
        (spec.least, operator.ge, "at least"),
        (spec.most, operator.le, "at most"),
        (spec.above, operator.gt, "above"),
        (spec.below, operator.lt, "below"),
    )
    for bound, holds, words in bounds:
        limit = sizes[bound] if isinstance(bound, str) else bound
        if limit is not None and not np.all(holds(array, limit)):
            raise ValueError(f"the array {name!r} has values that are not {words} {limit}")
    if spec.finite and not np.isfinite(array).all():
        raise ValueError(f"the array {name!r} has values that are not finite")
    if spec.rising and not (array[..., 1:] >= array[..., :-1]).all():
        raise ValueError(f"the array {name!r} has values that are smaller than the one before")
    if spec.distinct and len(np.unique(array)) < array.size:
        raise ValueError(f"the array {name!r} has the same value twice")


def _dtype_name(spec: ArraySpec) -> str:
    return {"f": "a float", "b": "bool", "iu": "a whole number"}.get(spec.dtype, spec.dtype)


def _shape_text(spec: ArraySpec, sizes: Mapping[str, int]) -> str:
    known = [f"{symbol} = {sizes[symbol]}" for symbol in spec.shape if isinstance(symbol, str) and symbol in sizes]
    shape = ", ".join("any" if symbol is None else str(symbol) for symbol in spec.shape)
    return f"({shape})" + (f" with {', '.join(dict.fromkeys(known))}" if known else "")


def csr_from(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, int], data: NDArray[Any] | None = None
) -> Any:
    """The CSR matrix (n, m) of `{name}_indices`, `{name}_indptr` and `data`, which is `{name}_data` by default.

    ValueError unless every index lies within the matrix: SciPy itself does not check, and would read past an array.

    >>> arrays = {"sets_indices": np.array([1, 0]), "sets_indptr": np.array([0, 1, 2])}
    >>> csr_from(arrays, "sets", (2, 2), data=np.ones(2)).toarray().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    n, m = shape
    ends_name, indices_name, data_name = (f"{name}_{part}" for part in ("indptr", "indices", "data"))
    specs = {
        ends_name: ArraySpec("iu", (n + 1,), least=0, rising=True),
        indices_name: ArraySpec("iu", ("entries",), least=0, below=m),
    }
    check_arrays(specs, arrays, wide=False)
    ends, indices = arrays[ends_name], arrays[indices_name]
    if max(m, len(indices)) < 2**31:  # as SciPy has them itself; mapped as they were saved, if they have 32 bits
        ends, indices = (
            array.view(np.int32) if array.itemsize == 4 else array.astype(np.int32) for array in (ends, indices)
        )
    else:
        ends, indices = ends.astype(np.int64, copy=False), indices.astype(np.int64, copy=False)
    if ends[0] != 0 or ends[-1] != len(indices):
        raise ValueError(f"the array {ends_name!r} must run from 0 to the {len(indices)} entries of {indices_name!r}")
    if data is None:
        data = check_arrays({data_name: ArraySpec("biuf", (len(indices),))}, arrays)[data_name]
    elif data.shape != indices.shape:
        raise ValueError(f"`data` has shape {data.shape}, but {indices_name!r} has {len(indices)} entries")
    return scipy.sparse.csr_array((data, indices, ends), shape=shape)


def csr_of(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], n_columns: int) -> Any:
    """A CSR matrix of these arrays. SciPy's constructor would read all numbers to see how few bits they need."""
    matrix = copy(_empty_csr(len(indptr) - 1, n_columns))
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix


@lru_cache(maxsize=64)
def _empty_csr(n: int, m: int) -> Any:
    """A CSR matrix (n, m) without entries, to be copied: that takes a tenth of the time of making one."""
    return scipy.sparse.csr_array((n, m))


def narrowed(array: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in the smallest unsigned type that holds them; as they are where that is none of up to 32 bits.

    >>> narrowed(np.array([3, 70_000])).dtype, narrowed(np.array([-1])).dtype
    (dtype('uint32'), dtype('int64'))
    """
    largest = int(array.max(initial=0))
    return array if array.min(initial=0) < 0 or largest >= 2**32 else array.astype(np.min_scalar_type(largest))


def as_half(values: NDArray[Any], unit: float | None = None) -> tuple[NDArray[np.float16], float]:
    """An array as float16, in units of a power of two that brings large or small numbers into its range.

    With `unit`, in units of that.

    >>> as_half(np.array([[1.0, 3.0]]))
    (array([[1., 3.]], dtype=float16), 1.0)
    """
    if unit is None:
        largest, unit = max(float(values.max(initial=0)), -float(values.min(initial=0))), 1.0
        if largest > _LARGEST_HALF or 0 < largest < 2.0**-6:
            unit = float(2.0 ** np.clip(np.ceil(np.log2(largest / _LARGEST_HALF)), -960, 960))
    compiled = loops()
    if compiled is None:
        return (values / values.dtype.type(unit)).astype(np.float16), unit
    out = np.empty(values.shape, np.float16)
    compiled.to_half(values, 1 / unit, out.view(np.uint16))
    return out, unit


def from_half(values: NDArray[np.float16]) -> NDArray[np.float32]:
    """float32 of float16. NumPy takes five times as long to widen float16 as these integer operations."""
    # The sign to bit 31, exponent and fraction to where those of float32 end; exponents count from 2⁻¹⁵, not 2⁻¹²⁷.
    bits = values.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)
    wide = bits.view(np.float32)
    wide *= np.float32(2.0**112)
    return wide


def as_bytes(values: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Lines (n, M) in 8 bits: whole numbers from −127 to 127, and the unit (n,) of each line.

    >>> as_bytes(np.array([[127.0, -1.0], [254.0, 2.0]]))
    (array([[127,  -1], [127,   1]], dtype=int8), array([1., 2.], dtype=float32))
    """
    rounded, units = np.empty(values.shape, np.int8), np.empty(len(values), np.float32)
    for some in blocks(len(values), _LINES):
        lines = np.asarray(values[some], np.float32)
        unit = np.maximum(lines.max(axis=1, initial=0), -lines.min(axis=1, initial=0)) / np.float32(127)
        # Sixteen bits, so that 127 units are exact, and lines that were rounded once are rounded to themselves.
        unit = ((unit.view(np.int32) + 0xFF) & ~0xFF).view(np.float32)
        units[some] = np.where(unit > _LEAST_UNIT, unit, np.float32(1))
        rounded[some] = np.rint(lines / units[some, None])
    return rounded, units


def from_bytes(lines: NDArray[np.int8], units: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 of lines that `as_bytes` rounded."""
    wide = lines.astype(np.float32)
    wide *= units[:, None]
    return wide


def packed_indices(indices: NDArray[Any], indptr: NDArray[Any]) -> NDArray[np.uint8] | None:
    """The indices of CSR rows as the steps between them; None unless they rise within each row.

    A step is how many columns are left out before an entry. It has seven bits in each byte, the lowest first; all bytes
    but its last have the highest bit set (LEB128).

    >>> packed_indices(np.array([2, 3, 300]), np.array([0, 2, 3])).tolist()
    [2, 0, 172, 2]
    """
    first = indptr[:-1][np.diff(indptr) > 0]
    parts = []
    for some in blocks(len(indices), _ENTRIES):
        before = indices[some.start - 1] if some.start else -1
        step = np.asarray(np.diff(indices[some].astype(np.int64), prepend=before) - 1, np.int64)
        begin = first[slice(*np.searchsorted(first, [some.start, some.stop]))]
        step[begin - some.start] = indices[begin]
        if not 0 <= step.min() <= step.max() < 2**32:
            return None
        lengths = np.ones(len(step), np.int64)
        for more in range(1, _MOST_BYTES):
            lengths += step >= 1 << 7 * more
        ends = np.cumsum(lengths)
        part = np.empty(int(ends[-1]), np.uint8)
        for place in range(_MOST_BYTES):
            has = np.flatnonzero(lengths > place)
            high = np.where(lengths[has] > place + 1, 128, 0)
            part[(ends - lengths)[has] + place] = (step[has] >> 7 * place) & 127 | high
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def unpacked_indices(packed: NDArray[np.uint8], indptr: NDArray[Any], n_columns: int) -> NDArray[np.int32]:
    """The indices that `packed_indices` packed, of rows of `n_columns` columns; ValueError where they cannot be that.

    >>> unpacked_indices(np.array([2, 0, 172, 2], np.uint8), np.array([0, 2, 3]), 301).tolist()
    [2, 3, 300]
    """
    last = packed < 128
    if np.count_nonzero(last) != indptr[-1] or (len(packed) and not last[-1]):
        raise ValueError("the packed indices are not as many as the entries of the rows")
    out = np.empty(int(indptr[-1]), np.int32)
    compiled = loops()
    if compiled is not None:
        fits = compiled.unpack_indices(packed, indptr, n_columns, out)
    else:
        fits = _unpack_indices(packed, np.flatnonzero(last), indptr, n_columns, out)
    if not fits:
        raise ValueError(f"the packed indices are not those of {n_columns} columns")
    return out


def _unpack_indices(
    packed: NDArray[np.uint8], ends: NDArray[Any], indptr: NDArray[Any], n_columns: int, out: NDArray[np.int32]
) -> bool:
    """Whether the steps, whose last bytes are at `ends`, lead to columns; then `out` has these."""
    lengths = np.diff(ends, prepend=-1)
    if lengths.max(initial=0) > _MOST_BYTES:
        return False
    steps = np.ones(len(ends), np.int64)
    for place in range(_MOST_BYTES):
        has = np.flatnonzero(lengths > place)
        steps[has] += (packed[ends[has] - lengths[has] + 1 + place].astype(np.int64) & 127) << 7 * place
    total = np.concatenate([[0], np.cumsum(steps)])
    indices = total[1:] - np.repeat(total[indptr[:-1]], np.diff(indptr)) - 1
    out[:] = np.minimum(indices, n_columns)
    return bool((indices < n_columns).all())
