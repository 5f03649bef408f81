"""How embeddings are read: columns of Phi for labels, the searched part of an embedding, and the decoder's numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.products import FactoredEmbedding
from ripml.decoding.decoders import Blend, Decoder, LeastSquares, Sketch, Votes, WeightedVotes
from ripml.labels.ensembles import Gaussian, Identity
from ripml.labels.projection import LabelVectors, Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.model.part import DENSE_LABELS, SEARCHED, Decode

__all__ = ["decode_of", "for_more_labels", "searchable", "start_of", "targets_of"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_CANDIDATES = 32  # kept of a row, or three times the mean number of labels


def _squeezed(projection: Projection, keys: NDArray[np.uint64]) -> Floats | None:
    """Where the embedding is Y itself: the columns (L, m) that squeeze it for the search, if it is wider than that."""
    if projection.n_dims <= SEARCHED:
        return None
    return Projection(Gaussian(), SEARCHED, 1, projection.seed).columns(keys)


def searchable(sets: Any, how: Decode, n_targets: int | None = None) -> Floats:
    """The first dimensions of the embeddings of these label sets, which are searched; none without neighbours.

    Where the embedding is Y itself, it has `n_targets` labels: all, or those that rows ever carried.
    """
    if not how.n_neighbors:
        return np.empty((sets.shape[0], 0), np.float32)
    if how.searched is not None:
        return np.asarray(sets @ how.searched, np.float32)
    if how.exact:
        return np.asarray(sets[:, :n_targets].toarray(), np.float32)
    width = min(SEARCHED, how.columns(slice(0, 1)).shape[1])
    return FactoredEmbedding(sets, lambda labels: how.columns(labels)[:, :width], width, how.n_jobs).toarray()


def targets_of(Y: Any, how: Decode, n_targets: int) -> Any:
    """What the regression is asked for, of rows with these labels, CSR (n, L): Y itself, or Y Phiᵀ."""
    return Y if how.exact else FactoredEmbedding(Y, how.columns, n_targets, how.n_jobs)


def decode_of(
    chosen: dict[str, Any], projection: Projection, labels: Vocabulary, frequency: Ints, labels_at_fit: int
) -> Decode:
    """How to read embeddings, from the numbers that were chosen."""
    exact = isinstance(projection.ensemble, Identity)
    return Decode(
        n_neighbors=chosen["n_neighbors"],
        temperature=chosen["temperature"],
        n_similar=chosen["n_similar"],
        similar_temperature=chosen["similar_temperature"],
        epsilon=chosen["epsilon"],
        n_candidates=chosen["n_candidates"],
        exact=exact,
        dense=labels_at_fit <= DENSE_LABELS,
        columns=LabelVectors(projection, labels.column_keys(projection.ensemble, projection.n_dims)),
        searched=_squeezed(projection, labels.keys) if exact else None,
        frequency=frequency,
        n_jobs=None,
    )


def for_more_labels(how: Decode, labels: Vocabulary, frequency: Ints) -> Decode:
    """The same way to read embeddings once there are more labels; nothing changes for those there were."""
    projection = how.columns.projection
    searched = how.searched
    if searched is not None and len(searched) < len(labels):
        more = Projection(Gaussian(), SEARCHED, 1, projection.seed).columns(labels.keys[len(searched) :])
        searched = np.concatenate([searched, more])
    columns = how.columns.extended(labels.column_keys(projection.ensemble, projection.n_dims))
    return replace(how, columns=columns, searched=searched, frequency=frequency)


def start_of(
    decoder: Decoder,
    n_neighbors: int | None,
    projection: Projection,
    names: NDArray[Any],
    frequency: Ints,
    labels: float,
    n_jobs: int | None,
) -> Decode:
    """How embeddings are read before anything was chosen; `labels` is the mean number of a row."""
    similar = decoder.n_similar if isinstance(decoder, Blend) else 0
    temperature = decoder.temperature if isinstance(decoder, WeightedVotes) else "auto"
    epsilon = decoder.epsilon if isinstance(decoder, LeastSquares) else "auto"
    exact = isinstance(projection.ensemble, Identity)
    squares = not exact and not isinstance(decoder, (Sketch, WeightedVotes))
    # The values of a sketch of few labels propose candidates alone: neighbours would cost as much as all the rest.
    alone = not exact and len(names) <= DENSE_LABELS and decoder == Blend(n_similar=0)
    k = 5 if isinstance(decoder, Votes) else 0 if alone else 50
    chosen = {
        "n_neighbors": n_neighbors or k,
        "temperature": 0.1 if temperature == "auto" else float(temperature),
        "n_similar": 50 if similar == "auto" else int(similar),
        "similar_temperature": 0.1,
        "epsilon": (0.3 if epsilon == "auto" else float(epsilon)) if squares else None,
        "n_candidates": max(_CANDIDATES, int(3 * labels)),
    }
    return replace(decode_of(chosen, projection, Vocabulary.of(names), frequency, len(names)), n_jobs=n_jobs)
