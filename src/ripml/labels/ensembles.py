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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripml.base.errors import DataError, ParameterError, check_count
from ripml.base.parallel import blocks, map_blocks, thread_count
from ripml.base.products import column_counts

__all__ = [
    "Bernoulli",
    "Embedder",
    "Ensemble",
    "Gaussian",
    "Identity",
    "Isometry",
    "PolynomialPhase",
    "Projection",
    "SparseSign",
    "Structured",
    "measure_isometry",
    "mix",
    "resolve_ensemble",
    "smallest_dims",
]

Keys = NDArray[np.uint64]
Floats = NDArray[np.float32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio: the step of a Weyl sequence
_COLUMN_BLOCK = 1024  # columns made at a time: the hashes of a block stay in the cache
_TABLE_BYTES = 1 << 30  # columns held at a time while embedding
_MULTIPLIED = 2048  # rows embedded at a time by a thread


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
    return mix(start[:, None] + np.arange(1, n_words + 1, dtype=np.uint64) * _GOLDEN)


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
    """A family of matrices, as a rule for a column."""

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

        map_blocks(fill, blocks(len(keys), _COLUMN_BLOCK), n_jobs)
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
    """Every label has a dimension of its own: nothing is squeezed, and the regression solves for Y itself."""

    def capacity(self, n_dims: int) -> int | None:
        """One label a dimension."""
        return n_dims

    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`, numbers below `n_dims`."""
        check_capacity(self, n_dims, int(keys.max(initial=0)) + 1)
        columns = np.zeros((len(keys), n_dims), np.float32)
        columns[np.arange(len(keys)), keys.astype(np.intp)] = 1
        return columns


@dataclass(frozen=True)
class Bernoulli(Ensemble):
    """Entries ±1/√m with equal chance, the bits of a hash."""

    def rule(self, keys: Keys, n_dims: int, seed: int) -> Floats:
        """The columns of `keys`."""
        words = _hashes(keys, -(-n_dims // 64), seed).astype("<u8", copy=False)
        columns: Floats = _signs(words.view(np.uint8), n_dims) * np.float32(n_dims**-0.5)
        return columns


@dataclass(frozen=True)
class SparseSign(Ensemble):
    """s = `n_nonzeros` entries ±1/√s a column, one in each of s stripes of the m rows (Kane and Nelson, 2014)."""

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


_WORDS: dict[str, type[Ensemble]] = {
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "sparse": SparseSign,
    "structured": Structured,
    "deterministic": PolynomialPhase,
    "identity": Identity,
}


def resolve_ensemble(ensemble: str | Ensemble) -> Ensemble:
    """An ensemble from its word, or itself.

    >>> resolve_ensemble("sparse")
    SparseSign(n_nonzeros=8)
    """
    if isinstance(ensemble, Ensemble):
        return ensemble
    if isinstance(ensemble, str) and ensemble in _WORDS:
        return _WORDS[ensemble]()
    raise ParameterError(f"`ensemble` must be one of {', '.join(_WORDS)} or an Ensemble; got {ensemble!r}.")


@dataclass(frozen=True)
class Projection:
    """F matrices of one ensemble, stacked: y ↦ (Phi₁ y, …, Phi_F y), F·m numbers."""

    ensemble: Ensemble
    n_dims: int
    n_learners: int
    seed: int

    def check_capacity(self, n_labels: int) -> None:
        """Raise if the ensemble has fewer columns than there are labels."""
        check_capacity(self.ensemble, self.n_dims, n_labels)

    def learner(self, f: int) -> Projection:
        """Matrix f alone."""
        # Learner f has the seed mix(seed + f·golden), so that F learners are the first F of any larger number.
        return Projection(self.ensemble, self.n_dims, 1, (self.seed + f * int(_GOLDEN)) % 2**64)

    def columns(self, keys: Keys, n_jobs: int | None = None) -> Floats:
        """The stacked columns of `keys`, (len(keys), F·m)."""
        out = np.empty((len(keys), self.n_learners * self.n_dims), np.float32)
        steps = [self.learner(f).seed for f in range(self.n_learners)]
        seeds = mix(np.array(steps, np.uint64)).tolist()

        def fill(rows: slice) -> None:
            for learner, seed in enumerate(seeds):
                part = slice(learner * self.n_dims, (learner + 1) * self.n_dims)
                out[rows, part] = self.ensemble.rule(keys[rows], self.n_dims, seed)

        map_blocks(fill, blocks(len(keys), _COLUMN_BLOCK), n_jobs)
        return out

    def embed(self, Y: Any, keys: Keys, n_jobs: int | None = None) -> Floats:
        """Z = Y Phiᵀ with each row of Y scaled to length 1: (n, F·m) float32, in O(nnz(Y)·F·m).

        `Y` is CSR (n, L) with `keys[j]` the key of column j; a row without labels becomes zero.
        """
        Z = np.empty((Y.shape[0], self.n_learners * self.n_dims), np.float32)
        if Y.nnz < len(keys):  # so that the work depends on the labels that occur, and not on L
            used, place = np.unique(Y.indices, return_inverse=True)
            Y, keys = csr_array((Y.data, place, Y.indptr), shape=(Y.shape[0], len(used))), keys[used]
        Embedder(self, keys, column_counts(Y), n_jobs=n_jobs).fill(Z, Y)
        return Z


class Embedder:
    """Labels to embeddings, block by block.

    At most `table_bytes` of columns are held at a time: of all labels that occur, as `counts` (L,) has it, or of the
    most frequent ones throughout and of the others anew for every block of rows.
    """

    def __init__(
        self,
        projection: Projection,
        keys: Keys,
        counts: NDArray[np.int64],
        table_bytes: int = _TABLE_BYTES,
        n_jobs: int | None = None,
    ) -> None:
        self._projection, self._keys, self._n_jobs = projection, keys, n_jobs
        room = max(2, table_bytes // (4 * projection.n_learners * projection.n_dims))
        kept = np.flatnonzero(counts)
        self._most: int | None = None  # entries of a block, where columns are made anew
        if len(kept) > room:
            kept = np.sort(kept[np.argsort(-counts[kept], kind="stable")[: 3 * room // 4]])
            self._most = max(1, room // 4 // thread_count(n_jobs))
        self._table = projection.columns(keys[kept], n_jobs)
        self._place = np.full(len(keys), -1, np.int32)
        self._place[kept] = np.arange(len(kept), dtype=np.int32)

    def fill(self, Z: Floats, Y: Any) -> None:
        """Write the embeddings of the rows of Y, CSR (n, L), to Z: (n, F·m), or (F, n, m) with the learners apart."""
        most = Y.nnz if self._most is None else self._most

        def fill(rows: slice) -> None:
            z = self._of_rows(Y, rows)
            if Z.ndim == 2:
                Z[rows] = z
            else:
                Z[:, rows] = z.reshape(len(z), len(Z), -1).transpose(1, 0, 2)

        map_blocks(fill, _row_blocks(Y.indptr, most), self._n_jobs)

    def _of_rows(self, Y: Any, rows: slice) -> Floats:
        ends = Y.indptr[rows.start : rows.stop + 1] - Y.indptr[rows.start]
        labels = Y.indices[Y.indptr[rows.start] : Y.indptr[rows.stop]]
        lengths = np.diff(ends)
        weights = np.repeat(np.maximum(lengths, 1) ** -0.5, lengths).astype(np.float32)
        at = self._place[labels]
        if self._most is None:
            return _weighted_sums(weights, at, ends, self._table)
        known = at >= 0
        known_ends = np.concatenate([[0], np.cumsum(known)])[ends]
        others, other = np.unique(labels[~known], return_inverse=True)
        made = self._projection.columns(self._keys[others], 1)
        out = _weighted_sums(weights[known], at[known], known_ends, self._table)
        out += _weighted_sums(weights[~known], other, ends - known_ends, made)
        return out


def _weighted_sums(weights: Floats, at: NDArray[Any], ends: NDArray[Any], table: Floats) -> Floats:
    return np.asarray(csr_array((weights, at, ends), shape=(len(ends) - 1, len(table))) @ table)


def _row_blocks(indptr: NDArray[Any], most: int) -> Iterator[slice]:
    """Consecutive blocks of at most `_MULTIPLIED` rows, and of at most `most` entries or of one row."""
    start, n = 0, len(indptr) - 1
    while start < n:
        limit = indptr.dtype.type(min(int(indptr[start]) + most, int(indptr[-1])))
        end = int(np.searchsorted(indptr, limit, side="right")) - 1
        end = min(max(end, start + 1), start + _MULTIPLIED, n)
        yield slice(start, end)
        start = end


# ----------------------------------------------------------------------------------------------------- diagnostics


@dataclass(frozen=True)
class Isometry:
    """How well Phi keeps distances: ‖Phi(u − v)‖²/‖u − v‖² over pairs of label rows u, v scaled to length 1."""

    n_dims: int
    ratios: NDArray[np.float64]

    def delta(self, quantile: float = 0.95) -> float:
        """The δ with 1 − δ ≤ ratio ≤ 1 + δ for this share of the pairs."""
        return float(np.quantile(np.abs(self.ratios - 1), quantile))


def measure_isometry(
    ensemble: Ensemble, n_dims: int, Y: Any, keys: Keys, n_pairs: int = 2000, seed: int = 0
) -> Isometry:
    """The distribution of ‖Phi(u − v)‖²/‖u − v‖² over random pairs of rows of Y (CSR) with different labels.

    >>> import scipy.sparse
    >>> Y = scipy.sparse.csr_array(np.eye(50))
    >>> measure_isometry(Gaussian(), 1000, Y, np.arange(50, dtype=np.uint64)).delta(0.5) < 0.1
    True
    """
    left, right = _different_pairs(Y, n_pairs, seed)
    rows, where = np.unique(np.concatenate([left, right]), return_inverse=True)
    Z = Projection(ensemble, n_dims, 1, seed).embed(Y[rows], keys).astype(np.float64)
    difference = Z[where[: len(left)]] - Z[where[len(left) :]]
    sizes = np.diff(Y.indptr).astype(np.float64)
    shared = np.asarray(Y[left].multiply(Y[right]).sum(axis=1)).ravel()
    distance = 2 - 2 * shared / np.sqrt(sizes[left] * sizes[right])  # ‖u − v‖² of rows of length 1
    return Isometry(n_dims, np.einsum("ij,ij->i", difference, difference) / distance)


def smallest_dims(
    ensemble: Ensemble, delta: float, Y: Any, keys: Keys, quantile: float = 0.95, n_pairs: int = 2000, seed: int = 0
) -> int:
    """The smallest m (within 2 %) at which the measured δ of this share of pairs is at most `delta`.

    δ falls like 1/√m but not evenly (by chance, and from prime to prime in the deterministic family), so a search by
    halves could end past the mark: m is doubled until δ is reached, and the last octave is walked through. Where the
    ensemble does not hold all labels, δ counts as not reached.
    """
    if not 0 < delta < 1:
        raise ParameterError(f"`delta` must be between 0 and 1; got {delta}.")

    def reached(m: int) -> bool:
        capacity = ensemble.capacity(m)
        if capacity is not None and int(keys.max(initial=0)) >= capacity:
            return False
        return measure_isometry(ensemble, m, Y, keys, n_pairs, seed).delta(quantile) <= delta

    high = 1
    while not reached(high):
        high *= 2
        if high > _MOST_DIMS:
            raise ParameterError(f"δ = {delta} is not reached with {_MOST_DIMS:,} dimensions; ask for a larger δ.")
    return next((m for m in range(high // 2 + 1, high, max(1, high // 100)) if reached(m)), high)


_MOST_DIMS = 16384


def _different_pairs(Y: Any, n_pairs: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random pairs of labelled rows that do not carry the same label set."""
    labelled = np.flatnonzero(np.diff(Y.indptr) > 0)
    if len(labelled) < 2:
        raise DataError(f"the isometry needs two rows with labels; got {len(labelled)}.")
    rng = np.random.default_rng(seed)
    left, right = rng.choice(labelled, n_pairs), rng.choice(labelled, n_pairs)
    sizes = np.diff(Y.indptr)
    shared = np.asarray(Y[left].multiply(Y[right]).sum(axis=1)).ravel()
    different = (shared < sizes[left]) | (shared < sizes[right])
    if not different.any():
        raise DataError("the isometry needs rows with different labels; all rows met carry the same.")
    return left[different], right[different]
