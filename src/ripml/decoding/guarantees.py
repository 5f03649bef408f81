"""What left-out rows promise: sets that hold a given share of the right labels, and the precision of labels that are
applied unseen.

Scores order the labels of a row; behind its candidates come all other labels by a level below 0 of their own: how
likely they are by what is near to the row (`ripml.decoding.beyond`), or, where nothing is known about that, by their
frequency, written as −1/(f + u) of a label of f rows, where u in [0, 1) depends on its column alone and parts labels of
the same frequency. So one number λ gives a set for every row, and a smaller λ a larger set. Conformal risk control
(Angelopoulos et al. 2022) picks λ: with n left-out rows, of whose labels the share found(λ) is in their sets on
average, the expected share for a new row is at least c if

    n/(n + 1) · (1 − found(λ)) + 1/(n + 1) ≤ 1 − c,

where the new row and those left out are exchangeable. Labels that no other row carries are not counted. For one label,
split conformal prediction does the same with the rows that carry it: of r of them, the ⌊(r + 1)(1 − c)⌋-th smallest
level is its threshold, and a new row that carries the label has it in its set with probability at least c.

What is applied unseen is another matter: the precision at a threshold is an estimate from some hundreds or thousands of
labels, and the threshold is the one of many where it came out best. So a precision is promised where the lower end of
its confidence interval is at least that (Wilson's, with the variance of a ratio over rows: labels of one row are right
or wrong together).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import ArraySpec, check_arrays, csr_of
from ripml.base.errors import ParameterError, is_number
from ripml.base.parallel import blocks
from ripml.decoding import scores as scoring
from ripml.decoding.beyond import N_WEIGHTS, Others

__all__ = ["GUARANTEE_SPECS", "Curve", "Guarantees", "check_coverage", "sets_above"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_POINTS = 1000  # of a curve
_BLOCK = 256  # rows whose levels of all labels are held at a time
_FEW, _FEW_ROWS = 300, 100  # labels that are applied, and their rows, below which their precision is mostly chance
_CONFIDENT = 1.645  # standard deviations below which one in twenty is
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Curve:
    """The precision of what is applied unseen from a level on, and its share of all: (p,) each, levels falling.

    `least` is what the precision of new rows is at least, with a confidence of 95 %.
    """

    level: Floats
    precision: Floats
    share: Floats
    least: Floats

    @classmethod
    def of(
        cls,
        level: Floats,
        right: Floats,
        applied: Floats,
        counted: Floats,
        total: float,
        fewest: int = 1,
        row: Ints | None = None,
    ) -> Curve:
        """Things of these levels: how many labels of each are right, of how many that are applied.

        The share of all is that of what is `counted`; at least so many things are needed. `row` is that of each thing,
        rows of their own by default.
        """
        order = np.argsort(-level, kind="stable")
        level, right, applied = level[order], right[order], applied[order]
        n, hits = np.cumsum(applied), np.cumsum(right)
        precision = hits / np.maximum(n, 1)
        spread = _spread_over_rows(right, applied, precision, np.arange(len(order)) if row is None else row[order])
        least = _lower_bound(precision, n, spread)
        share = np.cumsum(counted[order]) / max(total, 1)
        places = np.flatnonzero(np.append(level[1:] != level[:-1], True)) if len(level) else np.arange(0)
        places = places[(n[places] >= _FEW) & (places >= fewest - 1)]
        places = places[np.unique(np.linspace(0, len(places) - 1, min(_POINTS, len(places))).round().astype(int))]
        return cls(level[places], precision[places], share[places], least[places])

    def at(self, precision: float) -> dict[str, float] | None:
        """The level with the largest share that has at least this precision with confidence; None without one."""
        good = np.flatnonzero(self.least >= precision)
        if not len(good):
            return None
        place = good[-1]
        return {
            "threshold": float(self.level[place]),
            "precision": float(self.precision[place]),
            "least": float(self.least[place]),
            "share": float(self.share[place]),
        }

    def to_json(self) -> dict[str, list[float]]:
        """All of it as JSON values, confidence falling, rounded to what a reader of a chart can see."""
        values = {"threshold": self.level, "precision": self.precision, "least": self.least, "share": self.share}
        return {name: np.round(value, 6).tolist() for name, value in values.items()}

    def to_array(self) -> Floats:
        """(4, p)."""
        return np.stack([self.level, self.precision, self.share, self.least])

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> Curve:
        """The inverse. Folders of earlier versions have no lower bounds: there the precision itself is promised."""
        if len(array) not in (3, 4):
            raise ValueError(f"a curve of {len(array)} lines does not have a level, a precision and a share")
        return cls(array[0], array[1], array[2], array[-1] if len(array) == 4 else array[1])


@dataclass(frozen=True)
class Guarantees:
    """The levels of the right labels of left-out rows, and the precision of what is applied unseen.

    `level`, `found` and `size` (p,) are levels, falling, with the mean share of the labels of a row that are in its
    set, and the mean number of labels in it. `carried_levels` has the levels of each label in the rows that carry it,
    rising, end to end.
    """

    n_rows: int  # left-out rows
    level: Floats
    found: Floats
    size: Floats
    carried_levels: NDArray[np.float16]
    carried_ends: Ints  # (L + 1,)
    tags: Curve
    documents: Curve
    beyond: Floats = field(default_factory=lambda: np.zeros(0))  # the weights of `levels_of_labels`; none for frequency

    @classmethod
    def fit(
        cls,
        truth: Any,
        scores: Any,
        frequency: Ints,
        threshold: float,
        probabilities: NDArray[np.float64],
        others: Others | None = None,
    ) -> Guarantees:
        """From the labels and scores of left-out rows, CSR (n, L); `frequency` (L,) counts these rows too.

        `probabilities` are those of the scores; `threshold` is that of `predict`; `others` has the levels of labels
        that were no candidates.
        """
        n, L = truth.shape
        known = scoring.only(truth, frequency[truth.indices] > 1)  # to the model without the row
        row = np.repeat(np.arange(n), np.diff(known.indptr))
        level = _levels(known, scores, row, frequency, others)
        # Sets of all rows, at each level of a right label.
        _, row_of_label, lengths = np.unique(row, return_inverse=True, return_counts=True)
        order = np.argsort(-level, kind="stable")
        falling = level[order]
        found = np.cumsum((1 / (max(len(lengths), 1) * lengths[row_of_label]))[order])
        places = np.flatnonzero(np.append(falling[1:] != falling[:-1], True)[: len(falling)])
        wanted = np.linspace(0, 1, _POINTS) * found.max(initial=0)
        places = np.unique(places[np.searchsorted(found[places], wanted - 1e-12)]) if len(places) else places
        # Right levels by label.
        by_label = np.lexsort((level, known.indices))
        ends = np.concatenate([[0], np.cumsum(np.bincount(known.indices, minlength=L))])
        # What is applied unseen: single tags by their score, or the whole set of a document by its mean probability.
        right = scoring.outcomes(truth, scores).astype(np.float64)
        of_row, kept = np.repeat(np.arange(n), np.diff(scores.indptr)), scores.data >= threshold
        tags = Curve.of(scores.data.astype(np.float64), right, np.ones(scores.nnz), right, truth.nnz, row=of_row)
        in_set = np.bincount(of_row[kept], minlength=n).astype(np.float64)
        sure = np.bincount(of_row[kept], probabilities[kept], minlength=n)
        good = np.bincount(of_row[kept], right[kept], minlength=n).astype(np.float64)
        some = in_set > 0
        documents = Curve.of(sure[some] / in_set[some], good[some], in_set[some], np.ones(some.sum()), n, _FEW_ROWS)
        return cls(
            len(lengths),
            falling[places],
            found[places],
            _sizes(scores, falling[places], frequency, others),
            _rounded_down(level[by_label]),
            ends,
            tags,
            documents,
            np.zeros(0) if others is None else others.weights,
        )

    # ------------------------------------------------------------------------------------------------------------ sets

    def level_for(self, coverage: float) -> tuple[float, float]:
        """The level of sets that hold this share of the labels of a new row, and their mean size on left-out rows."""
        check_coverage(coverage)
        risk = (self.n_rows * (1 - self.found) + 1) / (self.n_rows + 1)
        good = np.flatnonzero(risk <= 1 - coverage + 1e-12)
        if not len(good):
            most = max(0.0, 1 - float(risk.min(initial=1.0)))
            raise ParameterError(
                f"coverage={coverage:g} cannot be guaranteed with {self.n_rows:,} left-out rows; the most is "
                f"{np.floor(1000 * most) / 1000:g}. Give a smaller one, or learn more rows."
            )
        return float(self.level[good[0]]), float(self.size[good[0]])

    def label_levels(self, coverage: float, frequency: Ints) -> tuple[Floats, NDArray[np.int8]]:
        """The level of each label from which it is in a set, (L,), and what is guaranteed of it, (L,).

        2, with enough left-out rows: in a set with probability ≥ `coverage` where it is right. 1: the same on average
        over labels of similar frequency. 0: nothing, as too few of their left-out rows had the label as a candidate;
        these have the level of sets for documents.
        """
        check_coverage(coverage)
        counts, own = np.diff(self.carried_ends), self.carried_levels.astype(np.float64)
        levels, kind = np.full(len(frequency), self.level.min(initial=0.0)), np.zeros(len(frequency), np.int8)
        with suppress(ParameterError):
            levels[:] = self.level_for(coverage)[0]
        enough = np.array([_place(int(count), coverage) >= 0 for count in counts], bool)
        for label in np.flatnonzero(enough):
            level = own[self.carried_ends[label] + _place(int(counts[label]), coverage)]
            if level >= 0:
                levels[label], kind[label] = level, 2
        groups = np.where(np.append(enough, np.zeros(len(frequency) - len(enough), bool)), -1, _groups(frequency))
        group_of_row = np.repeat(groups[: len(counts)], counts)
        for group in np.unique(group_of_row[group_of_row >= 0]):
            pooled = np.sort(own[group_of_row == group])
            place = _place(len(pooled), coverage)
            if place >= 0 and pooled[place] >= 0:
                levels[groups == group], kind[groups == group] = pooled[place], 1
        return levels, kind

    def curves(self) -> dict[str, dict[str, list[float]]]:
        """What is applied unseen at every level: "labels" one by one, and all labels of "rows", as JSON values."""
        return {"labels": self.tags.to_json(), "rows": self.documents.to_json()}

    # ----------------------------------------------------------------------------------------------- labels come and go

    def kept(self, labels: Ints) -> Guarantees:
        """For these labels alone, in this order; labels that came after the fit have nothing."""
        counts = np.concatenate([np.diff(self.carried_ends), np.zeros(int(labels.max(initial=-1)) + 1, np.int64)])
        known = np.minimum(labels, len(self.carried_ends) - 1)
        lengths = counts[labels]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(ends[-1]) + np.repeat(self.carried_ends[known] - ends[:-1], lengths)
        return replace(self, carried_levels=self.carried_levels[places], carried_ends=ends)

    # ------------------------------------------------------------------------------------------------------ save, load

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays."""
        return {
            "guarantee_rows": np.array([self.n_rows]),
            "guarantee_sets": np.stack([self.level, self.found, self.size]),
            "guarantee_levels": self.carried_levels,
            "guarantee_ends": self.carried_ends,
            "guarantee_tags": self.tags.to_array(),
            "guarantee_documents": self.documents.to_array(),
            **({"guarantee_beyond": self.beyond} if len(self.beyond) else {}),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Guarantees | None:
        """The inverse; None where a folder has none. ValueError where they contradict each other."""
        if "guarantee_sets" not in arrays:
            return None
        found = check_arrays(GUARANTEE_SPECS, arrays)
        ends = found["guarantee_ends"].astype(np.int64)
        if not len(ends) or ends[0] != 0 or ends[-1] != len(found["guarantee_levels"]):
            raise ValueError("the levels of left-out rows do not fit to the labels")
        rows = int(found["guarantee_rows"][0])
        level, mean_found, size = found["guarantee_sets"]
        tags, documents = (Curve.from_array(found[f"guarantee_{name}"]) for name in ("tags", "documents"))
        beyond = found.get("guarantee_beyond", np.zeros(0))
        if len(beyond) not in (0, N_WEIGHTS):
            raise ValueError(f"there are {len(beyond)} weights of labels beyond the candidates, and not {N_WEIGHTS}")
        return cls(rows, level, mean_found, size, found["guarantee_levels"], ends, tags, documents, beyond)


GUARANTEE_SPECS = {
    "guarantee_rows": ArraySpec("iu", (1,), least=0, optional=True),
    "guarantee_sets": ArraySpec("f", (3, "levels"), finite=True, optional=True),
    "guarantee_levels": ArraySpec("f", ("left-out labels",), finite=True, optional=True),
    "guarantee_ends": ArraySpec("iu", ("label ends",), least=0, rising=True, optional=True),
    "guarantee_beyond": ArraySpec("f", ("weights of other labels",), finite=True, optional=True),
    "guarantee_tags": ArraySpec("f", (None, "tag levels"), finite=True, optional=True),
    "guarantee_documents": ArraySpec("f", (None, "document levels"), finite=True, optional=True),
}


def sets_above(
    scores: Any, levels: float | Floats, frequency: Ints, others: Callable[[slice], Floats] | None = None
) -> Any:
    """The labels of each row at or above a level, or above that of each label: CSR (n, L), with their scores.

    `others` gives the levels of all labels for a block of rows, (n, L): labels that are no candidates of a row have the
    probability as their score that they are levels of. Without it, such labels are in every set by their frequency,
    with a score of 0, or in none.
    """
    of_label = np.broadcast_to(levels, frequency.shape)
    kept = scoring.only(scores, scores.data >= of_label[scores.indices])
    if others is not None and (of_label < 0).any():
        parts = [
            _with_others(scores[rows], kept[rows], others(rows), of_label) for rows in blocks(scores.shape[0], _BLOCK)
        ]
        return scipy.sparse.vstack(parts, format="csr") if parts else kept
    everywhere = np.flatnonzero(_own_level(frequency, np.arange(len(frequency))) >= of_label)
    if not len(everywhere):
        return kept
    n, L = scores.shape
    rows = np.repeat(np.arange(n, dtype=np.int64), np.diff(kept.indptr))
    keys = rows * L + kept.indices
    more = (np.arange(n, dtype=np.int64)[:, None] * L + everywhere).ravel()
    more = more[~np.isin(more, keys)]
    keys, data = np.concatenate([keys, more]), np.concatenate([kept.data, np.zeros(len(more), kept.data.dtype)])
    order = np.argsort(keys, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(keys // L, minlength=n))])
    return csr_of(data[order], (keys % L)[order], ends, L)


def _with_others(scores: Any, kept: Any, levels: Floats, of_label: Floats) -> Any:
    """What is kept of a block of scores, and the other labels whose levels (n, L) reach those of sets."""
    n, L = scores.shape
    levels[np.repeat(np.arange(n), np.diff(scores.indptr)), scores.indices] = -np.inf
    # No label is in a set that no row carries, not even where everything is.
    row, label = np.nonzero((levels >= of_label) & np.isfinite(levels))
    probability = np.round(np.exp(levels[row, label]), 6)
    rows = np.concatenate([np.repeat(np.arange(n), np.diff(kept.indptr)), row])
    labels, data = np.concatenate([kept.indices, label]), np.concatenate([kept.data, probability])
    order = np.lexsort((labels, rows))
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return csr_of(data[order], labels[order], ends, L)


def check_coverage(coverage: Any) -> None:
    """Raise `ParameterError` unless it is between 0 and 1."""
    if not (is_number(coverage) and 0 < coverage < 1):
        raise ParameterError(f"`coverage` must be a number between 0 and 1; got {coverage!r}.")


def _place(n: int, coverage: float) -> int:
    """The place of the threshold among n rising levels; −1 where these are too few.

    >>> _place(9, 0.9), _place(8, 0.9), _place(100, 0.95)
    (0, -1, 4)
    """
    return int(np.floor((n + 1) * (1 - coverage) + 1e-9)) - 1


def _levels(truth: Any, scores: Any, row: Ints, frequency: Ints, others: Others | None) -> Floats:
    """The level of each right label: its score, or that of `others`, or by frequency, where it is no candidate."""
    L = truth.shape[1]
    stored = np.repeat(np.arange(scores.shape[0], dtype=np.int64), np.diff(scores.indptr)) * L + scores.indices
    wanted, order = row.astype(np.int64) * L + truth.indices, np.argsort(stored, kind="stable")
    place = np.minimum(np.searchsorted(stored, wanted, sorter=order), max(len(stored) - 1, 0))
    if others is None:
        level = _own_level(frequency[truth.indices] - 1, truth.indices)
    else:
        level = scoring.at_pairs(others.right, row, truth.indices)
    if not len(stored):
        return level
    place = order[place]
    return np.asarray(np.where(stored[place] == wanted, scores.data[place], level), np.float64)


def _sizes(scores: Any, levels: Floats, frequency: Ints, others: Others | None) -> Floats:
    """The mean number of labels of a row at or above each of these levels."""
    n = max(scores.shape[0], 1)
    rising = np.sort(scores.data)
    sizes = (len(rising) - np.searchsorted(rising, levels, "left")) / n
    if others is not None:
        return np.asarray(sizes + np.where(levels < 0, others.more(levels), 0))
    own = _own_level(frequency, np.arange(len(frequency)))
    every, among = np.sort(own), np.sort(own[scores.indices])
    more = (
        len(every) - np.searchsorted(every, levels, "left") - (len(among) - np.searchsorted(among, levels, "left")) / n
    )
    return np.asarray(np.where(levels < 0, sizes + more, sizes), np.float64)


def _own_level(frequency: Ints, columns: Ints) -> Floats:
    """The levels of labels that are no candidates; below all others for those that no row carries."""
    part = columns * _GOLDEN % 1
    return np.asarray(np.where(frequency > 0, -1 / (np.maximum(frequency, 1) + part), -np.inf), np.float64)


def _spread_over_rows(right: Floats, applied: Floats, precision: Floats, row: Ints) -> Floats:
    """Σ_rows (hits − p·applied)² of the first 1, 2, … things: labels of one row are often right or wrong together."""
    by_row = np.argsort(row, kind="stable")
    first = np.searchsorted(row[by_row], row[by_row], "left")

    def before(count: Floats) -> Floats:
        """What the row of each thing has before it."""
        total, out = np.concatenate([[0.0], np.cumsum(count[by_row])]), np.empty(len(count))
        out[by_row] = total[:-1] - total[first]
        return out

    hits, tried = before(right), before(applied)
    squares = np.cumsum(right * (2 * hits + right)), np.cumsum(applied * (2 * tried + applied))
    both = np.cumsum(hits * applied + tried * right + right * applied)
    return np.asarray(squares[0] - 2 * precision * both + precision**2 * squares[1])


def _lower_bound(precision: Floats, n: Floats, spread: Floats) -> Floats:
    """Wilson's lower bound of shares of n, of as many labels as would vary as much if they were independent.

    >>> _lower_bound(np.array([0.95, 0.95]), np.array([400, 400]), np.array([19.0, 38.0])).round(3).tolist()
    [0.929, 0.918]
    """
    variance = np.maximum(precision * (1 - precision), 1e-9)
    n = n / np.maximum(spread / (np.maximum(n, 1) * variance), 1)
    square = _CONFIDENT**2 / np.maximum(n, 1e-9)
    return np.asarray(
        (precision + square / 2 - np.sqrt(square * (precision * (1 - precision) + square / 4))) / (1 + square)
    )


def _rounded_down(level: Floats) -> NDArray[np.float16]:
    half = level.astype(np.float16)
    return np.where(half > level, np.nextafter(half, np.float16(-np.inf)), half)


def _groups(frequency: Ints) -> Ints:
    """Labels of similar frequency: 1, 2 to 3, 4 to 7, …

    >>> _groups(np.array([1, 2, 3, 4, 100])).tolist()
    [1, 2, 2, 3, 7]
    """
    groups: Ints = np.ceil(np.log2(frequency + 1.0)).astype(np.int64)
    return groups
