"""What rows left out decide: how neighbours vote, the blend, the threshold and the calibration.

Each of these rows has its true labels, and an embedding that was predicted without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml import metrics
from ripml.base.parallel import blocks, map_blocks
from ripml.decoding import blend as blending
from ripml.decoding import scores as decoding
from ripml.decoding.blend import Candidates, Trees
from ripml.decoding.decoders import Blend, Decoder, LeastSquares, Votes, WeightedVotes
from ripml.model.part import Decode, Part
from ripml.regression.kernels import Local, squared_lengths

__all__ = ["Answer", "Decisions", "decide", "fitted_nearby", "mean_precision"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_GAMMAS, _RIDGES = (0.25, 0.5, 1.0, 2.0), (0.03, 0.1, 0.3, 1.0)  # tried for kernel ridge near a query
_EPSILONS = (0.1, 0.3, 1.0)
_ASKED_FOR_VOTES = 300  # rows left out that numbers of neighbours and temperatures are chosen on
_ASKED_NEARBY = 1000  # and the kernel near a query


@dataclass(frozen=True)
class Answer:
    """Rows of one cluster that were left out: their labels (CSR), and their scores or what predicts them."""

    truth: Any
    scores: Any = None  # CSR, of the paper's votes
    X: Any = None  # features, and
    Z: Any = None  # embeddings predicted without each row
    rows: Any = None  # numbers in the cluster


@dataclass(frozen=True)
class Decisions:
    """How to read embeddings, the blend, and what it comes to on rows left out."""

    how: Decode
    trees: Trees | None
    steps: tuple[NDArray[np.float64], NDArray[np.float64]]  # from score to probability
    threshold: float
    precision: dict[str, float]
    calibration_error: float


def mean_precision(truth: Any, scores: Any) -> float:
    """The mean of P@1, P@3 and P@5."""
    return float(np.mean(list(_precision(truth, scores).values())))


def _precision(truth: Any, scores: Any) -> dict[str, float]:
    return {f"P@{k}": metrics.precision_at_k(truth, scores, k=k) for k in (1, 3, 5)}


def decide(
    decoder: Decoder, n_neighbors: int | None, how: Decode, parts: Sequence[Part], answers: Sequence[Answer], seed: int
) -> Decisions:
    """Decide on the rows left out of all clusters; `n_neighbors` is None where it may be chosen."""
    asked = [(part, answer) for part, answer in zip(parts, answers, strict=True) if answer.truth.shape[0]]
    parts, answers = [part for part, _ in asked], [answer for _, answer in asked]
    truth = scipy.sparse.vstack([answer.truth for answer in answers], format="csr")
    trees = None
    if isinstance(decoder, Votes):
        scores = scipy.sparse.vstack([answer.scores for answer in answers], format="csr")
    else:
        largest = int(np.argmax([answer.truth.shape[0] for answer in answers]))
        how = _tuned_decode(decoder, n_neighbors, how, parts[largest], answers[largest])
        candidates = Candidates.joined(
            [part.candidates(a.X, how, a.Z, a.rows) for part, a in zip(parts, answers, strict=True)]
        )
        if isinstance(decoder, Blend):
            trees, values = _blend(candidates, truth, seed, how.n_jobs)
        else:
            values = np.clip(candidates.signals[decoder.signal], 0, 1)
        scores = decoding.as_scores(candidates.labels, values, truth.shape[1])
    steps, error = _calibrated(scores.data, decoding.outcomes(truth, scores), np.diff(scores.indptr))
    threshold = decoding.best_threshold(truth, scores)
    return Decisions(how, trees, steps, threshold, _precision(truth, scores), error)


def fitted_nearby(kernel: Local, how: Decode, parts: Sequence[Part], answers: Sequence[Answer]) -> Local:
    """The kernel with the γ and the ridge that are best on rows left out of the cluster that has most of them."""
    gammas = _GAMMAS if kernel.gamma == "auto" else (kernel.gamma,)
    ridges = _RIDGES if kernel.ridge == "auto" else (kernel.ridge,)
    options = [replace(kernel, gamma=gamma, ridge=ridge) for gamma in gammas for ridge in ridges]
    largest = int(np.argmax([answer.truth.shape[0] for answer in answers]))
    part, answer = parts[largest], answers[largest]
    most = int(np.clip(_ASKED_NEARBY * (200 / kernel.n_rows) ** 2, 100, _ASKED_NEARBY))  # each is solved n_rows wide
    X, own, truth = (array[:most] for array in (answer.X, answer.rows, answer.truth))
    if len(options) == 1 or not truth.shape[0]:
        return replace(kernel, gamma=gammas[len(gammas) // 2], ridge=ridges[len(ridges) // 2])

    def of_block(block: slice) -> list[Any]:
        ids, likeness = part.alike(part.likeness(X[block], 1), kernel.n_rows, own[block])
        return part.solved_nearby(ids, likeness, squared_lengths(X[block]), options)

    found = map_blocks(of_block, blocks(X.shape[0], part.rows_at_a_time), how.n_jobs)
    scores = [scipy.sparse.vstack(of_option, format="csr") for of_option in zip(*found, strict=True)]
    return options[int(np.argmax([mean_precision(truth, score) for score in scores]))]


def _tuned_decode(decoder: Decoder, n_neighbors: int | None, how: Decode, part: Part, answer: Answer) -> Decode:
    """The number of neighbours, the temperature and ε that are best on rows left out of one cluster.

    The first two are those of a decoder that does nothing but vote; in the blend the trees weigh the votes, and to
    choose there as well was measured to add more noise than precision.
    """
    X, Z, own, truth = (array[:_ASKED_FOR_VOTES] for array in (answer.X, answer.Z, answer.rows, answer.truth))
    if not truth.shape[0]:
        return how

    def best(options: list[Decode], scores: Iterable[Any]) -> Decode:
        return options[int(np.argmax([mean_precision(truth, of_option) for of_option in scores]))]

    if isinstance(decoder, WeightedVotes):
        ks = (10, 20, 50) if n_neighbors is None else (n_neighbors,)
        temperatures = (0.03, 0.1, 0.3) if decoder.temperature == "auto" else (how.temperature,)
        options = [replace(how, n_neighbors=k, temperature=t) for k in ks for t in temperatures]
        nearest = part.nearest(Z, replace(how, n_neighbors=max(ks)), part.set_of_row[own])
        how = best(options, (part.vote(nearest, option.n_neighbors, option.temperature) for option in options))
    if how.epsilon is not None and decoder != LeastSquares(how.epsilon):
        labels = part.candidates(X, replace(how, epsilon=None), Z, own).labels
        solved = decoding.least_squares(Z, labels, how.columns, _EPSILONS, how.n_jobs)
        options = [replace(how, epsilon=epsilon) for epsilon in _EPSILONS]
        how = best(options, (decoding.as_scores(labels, values, truth.shape[1]) for values in solved))
    return how


def _blend(candidates: Candidates, truth: Any, seed: int, n_jobs: int | None) -> tuple[Trees | None, Floats]:
    """The mean of trees learnt on each half of the rows, and the scores of each half by those of the other."""
    right = decoding.carried(truth, candidates.labels)
    half = np.arange(len(right)) % 2 == 0
    first, second = map_blocks(
        lambda rows: blending.fit_trees(candidates[rows], right[rows], seed), (half, ~half), n_jobs
    )
    values = candidates.simple_score()
    if first is None or second is None:
        return None, values
    values[~half] = candidates[~half].scores(first, n_jobs)
    values[half] = candidates[half].scores(second, n_jobs)
    return first.averaged(second), values


def _calibrated(
    scores: NDArray[Any], outcome: NDArray[np.bool_], lengths: Ints
) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], float]:
    """The line from score to probability, and its expected error: that of each half's line on the other half."""
    if not len(scores):
        return (np.array([0.0, 1.0]), np.array([0.0, 1.0])), 0.0
    half = np.repeat(np.arange(len(lengths)) % 2, lengths)
    probabilities = np.zeros(len(scores))
    for part in (0, 1):
        if (half == part).any() and (half != part).any():
            line = blending.fit_steps(scores[half != part], outcome[half != part])
            probabilities[half == part] = blending.in_steps(scores[half == part], line)
    error = blending.expected_calibration_error(probabilities, outcome)
    return blending.fit_steps(scores, outcome), error
