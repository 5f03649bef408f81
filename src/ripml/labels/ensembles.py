"""Phi: random and deterministic matrices with the restricted isometry property (the paper's "Background").

A matrix Phi (m × L) has the (s, δ) property when (1 − δ)‖y‖² ≤ ‖Phi y‖² ≤ (1 + δ)‖y‖² for every s-sparse y, so that
distances between sparse label vectors survive in m ≪ L dimensions. Here Phi is never a matrix but a rule: column j is
a pure function of (seed, key of label j). A new label is a new column, old columns never change, and a saved ensemble
is a name and a seed. Columns are made from integer hashes and table look-ups, so they are the same on every machine.

In arrays, a column of Phi is a *row* (label-major, contiguous): `columns(keys, m, seed)` has shape (len(keys), m).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import ParameterError, check_count
from ripml.base.parallel import blocks, map_blocks

__all__ = [
    "COLUMN_BLOCK",
    "GOLDEN",
    "Bernoulli",
    "Ensemble",
    "Gaussian",
    "Identity",
    "PolynomialPhase",
    "SparseSign",
    "Structured",
    "check_capacity",
    "mix",
]

Keys = NDArray[np.uint64]
Floats = NDArray[np.float32]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio: the step of a Weyl sequence
COLUMN_BLOCK = 1024  # columns made at a time: the hashes of a block stay in the cache


def mix(x: Keys) -> Keys:
    """A bijection of 64-bit integers whose outputs pass for random (the finaliser of SplitMix64).

    >>> int(mix(np.array([1], np.uint64))[0])
    6238072747940578789
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = x ^ (x >> np.uint64(31))
    return mixed


def _hashes(keys: Keys, n_words: int, seed: int) -> Keys:
    """(len(keys), n_words) pseudo-random words, word (j, i) a function of (seed, keys[j], i) alone."""
    start = mix(keys ^ mix(np.array([seed], np.uint64)))
    return mix(start[:, None] + np.arange(1, n_words + 1, dtype=np.uint64) * GOLDEN)


@functools.cache
def _byte_signs() -> Floats:
    """(256, 8): the bits of each byte as +1 (bit clear) and −1 (bit set)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return 1 - 2 * bits.astype(np.float32)


def _signs(packed: NDArray[np.uint8], n_dims: int) -> Floats:
    """Bits (n, ≥ n_dims / 8) to signs (n, n_dims)."""
    signs: Floats = _byte_signs()[packed].reshape(len(packed), -1)
    return signs[:, :n_dims]


@dataclass(frozen=True)
class Ensemble(ABC):
    """A family of matrices, given by a rule for each column."""

    exact: ClassVar[bool] = False  # whether every label has a separate dimension

    def capacity(self, n_dims: int) -> int | None:
        """How many labels the family has columns for at m = `n_dims`; None for any 64-bit key."""
        return None

    @abstractmethod
    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`, (len(keys), n_dims), scaled so that E‖column‖² = 1."""

    def columns(self, keys: Keys, n_dims: int, seed: int, n_jobs: int | None = None) -> Floats:
        """The columns of `keys`, (len(keys), n_dims) float32, made in blocks on threads.

        >>> Bernoulli().columns(np.array([0, 7], np.uint64), 4, seed=1)
        array([[...0.5, ...0.5, ...0.5, ...0.5],
               [...0.5, ...0.5, ...0.5, ...0.5]], dtype=float32)
        """
        out = np.empty((len(keys), n_dims), np.float32)

        def fill(rows: slice) -> None:
            out[rows] = self.rule(keys[rows], n_dims, seed)

        map_blocks(fill, blocks(len(keys), COLUMN_BLOCK), n_jobs)
        return out


def check_capacity(ensemble: Ensemble, n_dims: int, n_labels: int) -> None:
    """Raise if the ensemble has fewer columns than there are labels."""
    capacity = ensemble.capacity(n_dims)
    if capacity is not None and n_labels > capacity:
        raise ParameterError(
            f"{ensemble} holds {capacity:,} labels at n_dims = {n_dims}; got {n_labels:,}: raise `n_dims`, or use "
            "ensemble='gaussian', which has no limit."
        )


@functools.cache
def _normal_quantiles() -> Floats:
    """The 65,536 quantiles of N(0, 1) at (i + ½) / 65,536, scaled to variance 1 (kurtosis 2.999, largest 4.3 σ)."""
    from scipy.special import ndtri

    quantiles = ndtri((np.arange(65536) + 0.5) / 65536)
    return np.asarray(quantiles / np.sqrt(np.mean(quantiles**2)), np.float32)


@dataclass(frozen=True)
class Gaussian(Ensemble):
    """Entries N(0, 1/m), the paper's choice: the normal quantile of a 16-bit hash, four to a 64-bit word."""

    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`."""
        words = _hashes(keys, -(-n_dims // 4), seed).astype("<u8", copy=False)
        # mode="clip" takes straight into the result; every 16-bit number is a valid index anyway.
        columns: Floats = np.take(_normal_quantiles(), words.view("<u2")[:, :n_dims], mode="clip")
        columns *= np.float32(n_dims**-0.5)
        return columns


@dataclass(frozen=True)
class Identity(Ensemble):
    """Every label has a separate dimension: nothing is compressed, and the regression solves for Y itself."""

    exact: ClassVar[bool] = True

    def capacity(self, n_dims: int) -> int | None:
        """One label per dimension."""
        return n_dims

    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`, numbers below `n_dims`."""
        check_capacity(self, n_dims, int(keys.max(initial=0)) + 1)
        columns = np.zeros((len(keys), n_dims), np.float32)
        columns[np.arange(len(keys)), keys.astype(np.intp)] = 1
        return columns


@dataclass(frozen=True)
class Bernoulli(Ensemble):
    """Entries ±1/√m with equal probability, the bits of a hash."""

    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`."""
        words = _hashes(keys, -(-n_dims // 64), seed).astype("<u8", copy=False)
        columns: Floats = _signs(words.view(np.uint8), n_dims) * np.float32(n_dims**-0.5)
        return columns


@dataclass(frozen=True)
class SparseSign(Ensemble):
    """s = `n_nonzeros` entries ±1/√s per column, one in each of s stripes of the m rows (Kane and Nelson, 2014)."""

    n_nonzeros: int = 8

    def __post_init__(self) -> None:
        check_count("n_nonzeros", self.n_nonzeros)

    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`."""
        s = min(self.n_nonzeros, n_dims)
        # Stripe i is edges[i]:edges[i + 1].
        edges = np.arange(s + 1, dtype=np.uint64) * np.uint64(n_dims) // np.uint64(s)
        words = _hashes(keys, s, seed)
        position = edges[:-1] + (words >> np.uint64(1)) % np.diff(edges)
        columns = np.zeros((len(keys), n_dims), np.float32)
        sign = 1 - 2 * (words & np.uint64(1)).astype(np.float32)
        np.put_along_axis(columns, position.astype(np.intp), sign * np.float32(s**-0.5), axis=1)
        return columns


@dataclass(frozen=True)
class Structured(Ensemble):
    """m rows of a Walsh–Hadamard matrix with random column signs (the subsampled randomised Hadamard transform).

    Entry (i, c) is ±(−1)^popcount(rᵢ & c)/√m for row number rᵢ and label key c. The row numbers come from a bijection
    that is one on every power of two, so that at each order 2^q the rows are drawn without replacement: for keys below
    2^q ≤ m the columns are orthogonal up to the rows that m leaves over.
    """

    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`."""
        parities = _hadamard_parities(n_dims, seed)
        key_bytes = np.ascontiguousarray(keys, "<u8").view(np.uint8).reshape(-1, 8)
        # popcount(r & c) mod 2 is linear over XOR, so the parity of a key is the XOR of the parities of its bytes.
        packed = parities[0][key_bytes[:, 0]]
        for byte in range(1, 8):
            packed ^= parities[byte][key_bytes[:, byte]]
        flip = (_hashes(keys, 1, seed) & np.uint64(1)).astype(np.float32)
        columns: Floats = _signs(packed, n_dims) * ((1 - 2 * flip) * np.float32(n_dims**-0.5))
        return columns


@functools.lru_cache(maxsize=64)
def _hadamard_parities(n_dims: int, seed: int) -> NDArray[np.uint8]:
    """(8, 256, ⌈m/8⌉): for byte position b and value v, the packed bits popcount(rᵢ & (v << 8b)) mod 2 over rows i."""
    offset, *factors = (int(word) for word in _hashes(np.array([seed], np.uint64), 5, seed)[0])
    rows = np.arange(n_dims, dtype=np.uint64) + np.uint64(offset)
    for factor in factors:
        # Multiplying by an odd number and XOR with an even multiple of itself are bijections modulo every 2^q.
        rows *= np.uint64(factor | 1)
        rows ^= rows * np.uint64(factor & ~1)
    row_bytes = rows.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    parity_of_byte = (np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1) & 1).astype(np.uint8)
    values = np.arange(256, dtype=np.uint8)
    return np.stack(
        [np.packbits(parity_of_byte[row_bytes[:, b] & values[:, None]], axis=1, bitorder="little") for b in range(8)]
    )


@dataclass(frozen=True)
class PolynomialPhase(Ensemble):
    """Deterministic: column f is (cos 2πf(t)/p, sin 2πf(t)/p)/√p over t = 0 … p − 1, for p the largest prime ≤ m/2.

    f runs over the polynomials of degree ≤ D = `degree` without constant term, so there are p^D columns; by Weil's
    bound any two have an inner product of at most (D − 1)/√p, which is what a guarantee needs and chance only gives
    with high probability. The seed only renumbers the labels, so that learners differ. Rows past 2p stay zero.
    """

    degree: int = 3

    def __post_init__(self) -> None:
        check_count("degree", self.degree)

    def capacity(self, n_dims: int) -> int | None:
        """p^D labels, none where no prime above D is at most m/2.

        >>> PolynomialPhase(degree=2).capacity(100)
        2209
        """
        return int(min(self._prime(n_dims) ** self.degree, 2**63))

    def coherence(self, n_dims: int) -> float:
        """Weil's bound on the inner product of two columns: (D − 1)/√p."""
        return float((self.degree - 1) / np.sqrt(self._prime(n_dims) or np.nan))

    def _prime(self, n_dims: int) -> int:
        candidates = range(n_dims // 2, self.degree, -1)
        return next((p for p in candidates if all(p % q for q in range(2, int(p**0.5) + 1))), 0)

    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`, which must be below the capacity."""
        check_capacity(self, n_dims, int(keys.max(initial=0)) + 1)
        p = self._prime(n_dims)
        capacity = p**self.degree
        multiplier, offset = (int(word) for word in _hashes(np.array([seed], np.uint64), 2, seed)[0])
        multiplier += multiplier % p == 0  # coprime to p^D, so that the renumbering is a bijection
        # Python integers: key · multiplier does not fit 64 bits.
        numbers = [(int(key) * multiplier + offset) % capacity for key in keys]
        t = np.arange(p)
        phase = np.zeros((len(keys), p), np.int64)
        for _ in range(self.degree):
            digits = np.array([number % p for number in numbers], np.int64)
            phase = (phase + digits[:, None]) * t % p  # Horner, from the highest power down
            numbers = [number // p for number in numbers]
        angle = 2 * np.pi * t / p
        columns = np.zeros((len(keys), n_dims), np.float32)
        columns[:, :p] = (np.cos(angle) / np.sqrt(p)).astype(np.float32)[phase]
        columns[:, p : 2 * p] = (np.sin(angle) / np.sqrt(p)).astype(np.float32)[phase]
        return columns
