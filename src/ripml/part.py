"""The RIPML of one cluster (the paper's inference): ẑ = x Psi, the nearest label sets in each learner, their votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml import decoding
from ripml.neighbors import Index, Searcher
from ripml.ridge import predict_embedding

__all__ = ["Part", "parts_from_arrays", "parts_to_arrays"]


@dataclass(frozen=True)
class Part:
    """The RIPML of one cluster: a regression into the embedding, and the label sets to be found there."""

    Psi: NDArray[np.float32]  # (d, F·m)
    Z: NDArray[np.float32]  # (u, F·m), the embeddings of the distinct label sets
    sets: Any  # CSR (u, L)
    counts: NDArray[np.int64]  # (u,) training rows that carry each set
    index: Index
    n_learners: int

    @cached_property
    def searchers(self) -> list[Searcher]:
        """One a learner, over its m columns of Z."""
        return [self.index.build(block) for block in np.split(self.Z, self.n_learners, axis=1)]

    def scores(self, X: Any, k: int, n_jobs: int | None) -> Any:
        """Votes for feature rows X, CSR (n, L)."""
        return self.votes(predict_embedding(X, self.Psi, n_jobs), k, n_jobs)

    def votes(self, embedding: Any, k: int, n_jobs: int | None, left_out: NDArray[np.int64] | None = None) -> Any:
        """Votes for predicted embeddings (n, F·m); `left_out` has the set of each query's own training row, if any."""
        reach = min(k if left_out is None else k + 1, len(self.Z))  # leaving a row out may empty one set
        queries = np.split(embedding.astype(np.float32, copy=False), self.n_learners, axis=1)
        ids, weights = [], []
        for searcher, query in zip(self.searchers, queries, strict=True):
            nearest, _ = searcher.query(query, reach, n_jobs)
            ids.append(nearest)
            weights.append(decoding.vote_weights(nearest, self.counts, k, self.n_learners, left_out))
        return decoding.tally(np.hstack(ids), np.hstack(weights) / self.n_learners, self.sets)


def parts_to_arrays(parts: Sequence[Part]) -> dict[str, NDArray[Any]]:
    """The parts of a model end to end: Psi (C, d, F·m), the rest with `part_ends` marking where each part ends."""
    sets = scipy.sparse.vstack([part.sets for part in parts], format="csr")
    return {
        "Psi": np.stack([part.Psi for part in parts]),
        "Z": np.concatenate([part.Z for part in parts]),
        "counts": np.concatenate([part.counts for part in parts]),
        "part_ends": np.cumsum([len(part.Z) for part in parts], dtype=np.int64),
        "sets_indices": sets.indices,
        "sets_indptr": sets.indptr,
    }


def parts_from_arrays(arrays: Mapping[str, NDArray[Any]], n_labels: int, index: Index, n_learners: int) -> list[Part]:
    """The inverse of `parts_to_arrays`; Psi and Z are not copied. Arrays that contradict each other: ValueError."""
    Psi, Z = arrays["Psi"], arrays["Z"]
    counts, ends, indices, indptr = (
        arrays[name].astype(np.int64, casting="safe") for name in ("counts", "part_ends", "sets_indices", "sets_indptr")
    )
    consistent = (
        Psi.dtype.kind == Z.dtype.kind == "f"
        and Psi.ndim == 3
        and ends.shape == (len(Psi),)
        and (np.diff(ends, prepend=0) > 0).all()
        and Z.shape == (int(ends[-1]), Psi.shape[2])
        and Psi.shape[2] % n_learners == 0
        and counts.shape == (len(Z),)
        and (counts > 0).all()
        and indptr.shape == (len(Z) + 1,)
        and indptr[0] == 0
        and (np.diff(indptr) >= 0).all()
        and indices.shape == (int(indptr[-1]),)
        and ((indices >= 0) & (indices < n_labels)).all()
    )
    if not consistent:
        raise ValueError("shapes or ranges of the arrays disagree")
    sets = scipy.sparse.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(Z), n_labels))
    bounds = zip([0, *ends[:-1]], ends, strict=True)
    return [
        Part(Psi[c], Z[start:end], sets[start:end], counts[start:end], index, n_learners)
        for c, (start, end) in enumerate(bounds)
    ]
