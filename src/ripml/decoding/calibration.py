"""Calibration on left-out rows: from scores to probabilities, and the threshold from which a label is predicted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml import metrics
from ripml.decoding.beyond import Others
from ripml.decoding.guarantees import Guarantees
from ripml.decoding.scores import outcomes

__all__ = [
    "Calibration", "best_threshold", "errors_by_frequency", "expected_calibration_error", "fit_steps", "in_steps",
    "mean_precision",
]  # fmt: skip

_RARE = 5  # rows that carry a label, up to which it is rare

Corners = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Calibration:
    """What scores mean, learnt from the scores of left-out rows."""

    steps: Corners  # from score to probability
    threshold: float  # the score with the best micro F1
    precision: dict[str, float]  # P@1, P@3 and P@5
    error: float  # the expected calibration error of the probabilities
    errors: dict[str, float] = field(default_factory=dict)  # the same for labels by how often other rows carry them
    guarantees: Guarantees | None = None  # what these rows promise of sets; models of early versions have none

    @classmethod
    def fit(cls, truth: Any, scores: Any, frequency: NDArray[np.int64], others: Others | None = None) -> Calibration:
        """From the labels and the scores of left-out rows, both CSR (n, L); `frequency` (L,) counts these rows too.

        `others` says what is known of labels that were no candidates.
        """
        outcome = outcomes(truth, scores)
        steps, probabilities = _calibrated(scores.data, outcome, np.diff(scores.indptr))
        error = expected_calibration_error(probabilities, outcome)
        errors = errors_by_frequency(probabilities, outcome, frequency[scores.indices] - outcome)
        threshold = best_threshold(truth, scores)
        guarantees = Guarantees.fit(truth, scores, frequency, threshold, probabilities, others)
        return cls(steps, threshold, _precision(truth, scores), error, errors, guarantees)

    def kept(self, labels: NDArray[np.int64]) -> Calibration:
        """For these labels alone, in this order."""
        return self if self.guarantees is None else replace(self, guarantees=self.guarantees.kept(labels))

    def probabilities(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        """The probability that belongs to each score."""
        return in_steps(scores, self.steps)


def errors_by_frequency(
    probabilities: NDArray[Any], outcome: NDArray[Any], seen: NDArray[np.int64]
) -> dict[str, float]:
    """The expected calibration error apart for labels that `seen` rows carry: 0 ("unseen"), up to 5 ("rare"), more.

    >>> errors_by_frequency(np.array([0.5, 0.25]), np.array([1, 0]), np.array([0, 9]))
    {'unseen': 0.5, 'frequent': 0.25}
    """
    groups = {"unseen": seen <= 0, "rare": (seen > 0) & (seen <= _RARE), "frequent": seen > _RARE}
    return {
        name: expected_calibration_error(probabilities[group], outcome[group])
        for name, group in groups.items()
        if group.any()
    }


def mean_precision(truth: Any, scores: Any) -> float:
    """The mean of P@1, P@3 and P@5."""
    return float(np.mean(list(_precision(truth, scores).values())))


def _precision(truth: Any, scores: Any) -> dict[str, float]:
    return {f"P@{k}": metrics.precision_at_k(truth, scores, k=k) for k in (1, 3, 5)}


def best_threshold(Y: Any, scores: Any) -> float:
    """The threshold on scores with the best micro F1 = 2·hits/(predicted + true) against Y.

    >>> import scipy.sparse
    >>> Y = scipy.sparse.csr_array([[1, 0, 1]])
    >>> best_threshold(Y, scipy.sparse.csr_array([[0.9, 0.2, 0.6]]))
    0.6
    """
    if not scores.nnz:
        return 1.0
    hit = outcomes(Y, scores)
    order = np.argsort(-scores.data, kind="stable")
    values = scores.data[order]
    f1 = 2 * np.cumsum(hit[order]) / (np.arange(1, len(order) + 1) + Y.nnz)
    last_of_its_value = np.append(values[1:] != values[:-1], True)
    return float(values[last_of_its_value][np.argmax(f1[last_of_its_value])])


def _calibrated(
    scores: NDArray[Any], outcome: NDArray[np.bool_], lengths: NDArray[np.int64]
) -> tuple[Corners, NDArray[np.float64]]:
    """The line from score to probability, and the probabilities of each half of the rows by the line of the other."""
    if not len(scores):
        return (np.array([0.0, 1.0]), np.array([0.0, 1.0])), np.zeros(0)
    half = np.repeat(np.arange(len(lengths)) % 2, lengths)
    probabilities = np.zeros(len(scores))
    for part in (0, 1):
        if (half == part).any() and (half != part).any():
            line = fit_steps(scores[half != part], outcome[half != part])
            probabilities[half == part] = in_steps(scores[half == part], line)
    return fit_steps(scores, outcome), probabilities


def fit_steps(scores: NDArray[Any], outcome: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Isotonic regression of outcome on score: the corners (x, y) of a rising line, to be read by `in_steps`.

    >>> fit_steps(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0, 1, 0, 1]))
    (array([0.1, 0.2, 0.3, 0.4]), array([0. , 0.5, 0.5, 1. ]))
    """
    from sklearn.isotonic import IsotonicRegression

    line = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    line.fit(np.asarray(scores, np.float64), np.asarray(outcome, np.float64))
    return np.asarray(line.X_thresholds_), np.asarray(line.y_thresholds_)


def in_steps(scores: NDArray[Any], corners: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[np.float64]:
    """The probability that belongs to each score."""
    return np.asarray(np.interp(scores, *corners))


def expected_calibration_error(probabilities: NDArray[Any], outcome: NDArray[Any], n_bins: int = 15) -> float:
    """Σ_b n_b/n |mean outcome − mean probability| over bins b of equal numbers of probabilities.

    >>> round(expected_calibration_error(np.array([0.2, 0.2, 0.8, 0.8]), np.array([0, 0, 1, 0]), n_bins=2), 3)
    0.25
    """
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, n_bins) if len(part)]
    gaps = [len(part) * abs(float(np.mean(outcome[part]) - np.mean(probabilities[part]))) for part in parts]
    return float(sum(gaps) / max(len(order), 1))
