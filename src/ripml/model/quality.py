"""Quality by label, from training rows that were left out: what is found, what is confused, what belongs together.

A label counts as predicted where its score reaches the threshold of the model. Every figure is about rows that the
model had not seen, with their copies left out as well, see `ripml.model.left_out`. Of a model of fewer than
`ENOUGH_ROWS` rows nothing is measured: its figures are None, and it has neither bands nor labels.

`recall_with_twice` is read off labels that are twice as frequent today: with r(f) the rising line of recall over the
logarithm of the frequency, a label of f rows would have the recall r(2f). Frequent labels are also easier, so that this
is more than twice the rows bring, which `ripml.model.learning_curve` measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml import metrics
from ripml.base.errors import check_count
from ripml.datasets.checks import alike_names
from ripml.decoding.calibration import expected_calibration_error, fit_steps, in_steps
from ripml.decoding.evidence import Evidence
from ripml.decoding.scores import keep_above, outcomes
from ripml.model.learning_curve import LearningCurve
from ripml.model.left_out import ENOUGH_ROWS, LeftOutRows, leave_out_rows
from ripml.model.model import Model
from ripml.model.splits import LabelGroup, SplitLabel, find_splits

__all__ = ["BANDS", "Band", "LabelPair", "LabelQuality", "Quality", "Reliability", "quality"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BANDS = (1, 2, 6, 21, 101, 1001)  # rows of a label from which a band begins
_SUBSUMED = 0.95  # share of the rows of a label that carry another one
_SAME = 0.8  # share of rows with either label that have both
_LEAST = 5  # rows of a label of which this is said
_BINS = 10  # of probabilities


@dataclass(frozen=True)
class LabelQuality:
    """How well one label is predicted."""

    label: Any
    rows: int  # that carry it
    predicted: int
    precision: float | None  # None where it was never predicted
    recall: float
    expected: float  # the sum of its probabilities: about `rows` where they are calibrated
    confused_with: tuple[tuple[Any, int], ...]  # labels that were predicted in its place, and how often
    missed: tuple[int | str, ...]  # the rows that carry it with the lowest scores
    mistaken: tuple[int | str, ...]  # the rows that do not carry it with the highest scores


@dataclass(frozen=True)
class Band:
    """All labels of about the same frequency together."""

    least: int
    most: int | None
    labels: int
    pairs: int  # of a row and a label that it carries
    precision: float | None
    recall: float
    calibration_error: float
    recall_with_twice: float  # the recall of labels that are twice as frequent


@dataclass(frozen=True)
class Reliability:
    """Candidates of about the same probability together: calibrated ones are right as often as that."""

    probability: float  # their mean
    right: float  # the share of them that their rows carry
    pairs: int  # of a row and a candidate


@dataclass(frozen=True)
class LabelPair:
    """Two labels that may be one, or of which one says the other."""

    # "same": both have about the same rows; "subsumed": rows with `label` nearly always have `other`; "alike": their
    # names differ only in case, marks, accents or a plural.
    kind: str
    label: Any
    other: Any
    rows: int
    other_rows: int
    together: int


@dataclass(frozen=True)
class Quality:
    """The quality of a model on its own training rows, left out one by one; None for too few rows to measure."""

    rows: int
    copies: int
    precision: dict[str, float] | None  # P@1, P@3 and P@5
    micro_precision: float | None
    micro_recall: float | None
    micro_f1: float | None
    macro_f1: float | None
    calibration_error: float | None
    recall_with_twice: float | None
    bands: tuple[Band, ...]
    labels: tuple[LabelQuality, ...]  # most frequent first
    pairs: tuple[LabelPair, ...]
    splits: tuple[SplitLabel, ...] = ()  # labels that may be two, the most clearly separated first
    reliability: tuple[Reliability, ...] = ()
    automation: dict[str, dict[str, list[float]]] | None = None  # see `RIPML.automation_curves`; None in early models
    fits: tuple[dict[str, Any], ...] = ()  # of a store: the figures of each fit, see `Store.fits`
    drift: dict[str, Any] | None = None  # of a store: see `Store.drift`

    @property
    def enough(self) -> bool:
        """Whether there are enough rows to measure anything."""
        return self.precision is not None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "enough": self.enough}

    def to_html(self, title: str = "Quality", curve: LearningCurve | None = None) -> str:
        """As one HTML page with charts and tables, which loads nothing else and can be opened from the disk.

        With the learning curve, if it is given.

        >>> X = np.repeat(np.eye(2), 50, axis=0) + np.random.default_rng(0).random((100, 2)) / 5
        >>> from ripml import RIPML
        >>> page = RIPML(random_state=0).fit(X, [["tea"]] * 50 + [["ice"]] * 50).quality().to_html("Drinks")
        >>> page[:15], "<title>Drinks</title>" in page
        ('<!doctype html>', True)
        """
        from ripml.model.report_page import report_page

        return report_page(title, self.to_json() | ({} if curve is None else {"curve": curve.to_json()}))

    @property
    def examples(self) -> set[int]:
        """The numbers of all rows that are named."""
        named = [row for label in self.labels for row in (*label.missed, *label.mistaken)]
        named += [row for split in self.splits for group in split.groups for row in group.examples]
        return {row for row in named if isinstance(row, int)}

    def renamed(self, names: Mapping[int, int | str]) -> Quality:
        """With other names of rows, where they have one."""

        def named(rows: tuple[int | str, ...]) -> tuple[int | str, ...]:
            return tuple(names[row] for row in rows if isinstance(row, int) and row in names)

        labels = [replace(label, missed=named(label.missed), mistaken=named(label.mistaken)) for label in self.labels]
        splits = tuple(
            split.with_groups(lambda group: replace(group, examples=named(group.examples))) for split in self.splits
        )
        return replace(self, labels=tuple(labels), splits=splits)

    def with_words(self, words: Sequence[str]) -> Quality:
        """With the names of features in place of their numbers."""

        def named(group: LabelGroup) -> LabelGroup:
            return replace(group, words=tuple(words[j] if isinstance(j, int) else j for j in group.words))

        return replace(self, splits=tuple(split.with_groups(named) for split in self.splits))


def quality(
    model: Model, limit: int = 1000, n_examples: int = 3, n_jobs: int | None = None, evidence: Evidence | None = None
) -> Quality:
    """The quality of the `limit` most frequent labels and of all together; `evidence` is as for `audit`."""
    check_count("limit", limit)
    check_count("n_examples", n_examples, least=0)
    left_out = leave_out_rows(model, n_jobs, evidence)
    measured = _Measured(model, left_out)
    found = measured.quality(limit, n_examples)
    if found.precision is None:
        return found
    return replace(found, splits=find_splits(model, left_out, measured.most_frequent(limit), n_examples))


class _Measured:
    """Counts of all labels."""

    def __init__(self, model: Model, left_out: LeftOutRows) -> None:
        self.left_out, self.names, self.guarantees = left_out, model.vocabulary.names, model.calibration.guarantees
        Y, scores = left_out.Y, left_out.scores
        self.L = Y.shape[1]
        self.Y = scipy.sparse.csr_array((np.ones(Y.nnz), Y.indices, Y.indptr), shape=Y.shape)
        self.outcome = outcomes(Y, scores)
        self.probabilities = model.calibration.probabilities(scores.data)
        self.predicted = keep_above(scores, model.calibration.threshold).astype(np.float64)
        self.frequency = np.bincount(Y.indices, minlength=self.L)
        self.times_predicted = np.bincount(self.predicted.indices, minlength=self.L)
        is_right = outcomes(Y, self.predicted)
        self.right = np.bincount(self.predicted.indices[is_right], minlength=self.L)
        self.expected = np.bincount(scores.indices, self.probabilities, self.L)
        self.recall = self.right / np.maximum(self.frequency, 1)

    def quality(self, limit: int, n_examples: int) -> Quality:
        rows, copies = len(self.left_out.group), int((np.bincount(self.left_out.group) > 1)[self.left_out.group].sum())
        if rows < ENOUGH_ROWS:
            return Quality(rows, copies, None, None, None, None, None, None, None, (), (), self._pairs(limit))
        scores, carried = self.left_out.scores, self.frequency > 0
        right, predicted, truth = self.right.sum(), self.times_predicted.sum(), self.frequency.sum()
        f1 = 2 * self.right / np.maximum(self.frequency + self.times_predicted, 1)
        with_twice = self._with_twice()
        shown = self.most_frequent(limit)
        return Quality(
            rows=rows,
            copies=copies,
            precision={f"P@{k}": _rounded(metrics.precision_at_k(self.Y, scores, k=k)) for k in (1, 3, 5)},
            micro_precision=_rounded(right / max(predicted, 1)),
            micro_recall=_rounded(right / max(truth, 1)),
            micro_f1=_rounded(2 * right / max(predicted + truth, 1)),
            macro_f1=_rounded(f1[carried].mean()),
            calibration_error=_rounded(expected_calibration_error(self.probabilities, self.outcome)),
            recall_with_twice=_rounded((with_twice * self.frequency).sum() / max(truth, 1)),
            bands=self._bands(with_twice),
            labels=self._labels(shown, n_examples),
            pairs=self._pairs(limit),
            reliability=self._reliability(),
            automation=None if self.guarantees is None else self.guarantees.curves(),
        )

    def most_frequent(self, limit: int) -> Ints:
        """The most frequent labels."""
        return np.argsort(-self.frequency, kind="stable")[: min(limit, int((self.frequency > 0).sum()))]

    def _with_twice(self) -> Floats:
        """The recall that each label would have if it did as well as those that are twice as frequent, (L,)."""
        order = np.log2(np.maximum(self.frequency, 1))
        carried = np.flatnonzero(self.frequency)
        times = self.frequency[carried]
        line = fit_steps(np.repeat(order[carried], times), np.repeat(self.recall[carried], times))
        gain = in_steps(order + 1, line) - in_steps(order, line)
        return np.minimum(self.recall + gain, 1)

    def _reliability(self) -> tuple[Reliability, ...]:
        """Candidates by their probability, in bins of equal width; those that nothing falls into are left out."""
        place = np.minimum((self.probabilities * _BINS).astype(np.int64), _BINS - 1)
        pairs = np.bincount(place, minlength=_BINS)
        probability = np.bincount(place, self.probabilities, _BINS)
        right = np.bincount(place, self.outcome, _BINS)
        return tuple(
            Reliability(_rounded(probability[i] / pairs[i]), _rounded(right[i] / pairs[i]), int(pairs[i]))
            for i in np.flatnonzero(pairs).tolist()
        )

    def _bands(self, with_twice: Floats) -> tuple[Band, ...]:
        found = []
        of_score = self.frequency[self.left_out.scores.indices]
        for least, below in zip(BANDS, (*BANDS[1:], None), strict=True):
            most = np.iinfo(np.int64).max if below is None else below - 1
            mine = (self.frequency >= least) & (self.frequency <= most)
            if not mine.any():
                continue
            some = (of_score >= least) & (of_score <= most)
            pairs, predicted = int(self.frequency[mine].sum()), int(self.times_predicted[mine].sum())
            right = int(self.right[mine].sum())
            found.append(
                Band(
                    least=least,
                    most=None if below is None else below - 1,
                    labels=int(mine.sum()),
                    pairs=pairs,
                    precision=_rounded(right / predicted) if predicted else None,
                    recall=_rounded(right / pairs),
                    calibration_error=_rounded(
                        expected_calibration_error(self.probabilities[some], self.outcome[some])
                    ),
                    recall_with_twice=_rounded((with_twice * self.frequency)[mine].sum() / pairs),
                )
            )
        return tuple(found)

    def _labels(self, shown: Ints, n_examples: int) -> tuple[LabelQuality, ...]:
        """The quality of these labels; what is predicted where a label is missed is confused with it."""
        hits = self.predicted.multiply(self.Y).tocsr()
        confused = ((self.Y - hits)[:, shown].T @ (self.predicted - hits)).tocsr()
        confused.eliminate_zeros()
        by_label, carriers = self.left_out.scores.tocsc()[:, shown], self.Y.tocsc()[:, shown]
        found = []
        for i, label in enumerate(shown.tolist()):
            others = slice(*confused.indptr[i : i + 2])
            order = np.argsort(-confused.data[others], kind="stable")[:n_examples]
            mistaken_for = zip(confused.indices[others][order].tolist(), confused.data[others][order], strict=True)
            stored, mine = slice(*by_label.indptr[i : i + 2]), slice(*carriers.indptr[i : i + 2])
            rows, values, carrying = by_label.indices[stored], by_label.data[stored], carriers.indices[mine]
            score = dict(zip(rows.tolist(), values.tolist(), strict=True))
            missed = sorted(carrying.tolist(), key=lambda row: (score.get(row, 0.0), row))[:n_examples]
            wrong = ~np.isin(rows, carrying)
            mistaken = rows[wrong][np.argsort(-values[wrong], kind="stable")[:n_examples]]
            predicted = int(self.times_predicted[label])
            found.append(
                LabelQuality(
                    label=_plain(self.names[label]),
                    rows=int(self.frequency[label]),
                    predicted=predicted,
                    precision=_rounded(self.right[label] / predicted) if predicted else None,
                    recall=_rounded(self.recall[label]),
                    expected=round(float(self.expected[label]), 1),
                    confused_with=tuple((_plain(self.names[other]), int(n)) for other, n in mistaken_for),
                    missed=tuple(self.left_out.numbers[missed].tolist()),
                    mistaken=tuple(self.left_out.numbers[mistaken].tolist()),
                )
            )
        return tuple(found)

    def _pairs(self, limit: int) -> tuple[LabelPair, ...]:
        """Labels with names that are alike, of the same rows, and whose rows nearly all have another one.

        Of each kind the most frequent first.
        """
        return (*self._alike()[:limit], *self._together()[:limit])

    def _alike(self) -> list[LabelPair]:
        """The less frequent label of each pair first."""
        columns = {str(self.names[column]): column for column in np.flatnonzero(self.frequency).tolist()}
        by_column, pairs = self.Y.tocsc(), []
        for group in alike_names(columns):
            most, *others = sorted((columns[name] for name in group), key=lambda column: -self.frequency[column])
            rows = by_column.indices[slice(*by_column.indptr[most : most + 2])]
            for other in others:
                mine = by_column.indices[slice(*by_column.indptr[other : other + 2])]
                n = len(np.intersect1d(rows, mine, assume_unique=True))
                names = _plain(self.names[other]), _plain(self.names[most])
                pairs.append(LabelPair("alike", *names, len(mine), len(rows), n))
        return sorted(pairs, key=lambda pair: -pair.rows)

    def _together(self) -> list[LabelPair]:
        """Labels of the same rows, and labels whose rows nearly all have another one."""
        together = (self.Y.T @ self.Y).tocoo()
        one, other, both = together.row, together.col, together.data
        f, g = self.frequency[one], self.frequency[other]
        same = (both >= _SAME * (f + g - both)) & (one < other)
        subsumed = (both >= _SUBSUMED * f) & (both < _SAME * (f + g - both))
        kept = np.flatnonzero((one != other) & (np.minimum(f, g) >= _LEAST) & (same | subsumed))
        kept = kept[np.lexsort((other[kept], one[kept], -both[kept]))]
        return [
            LabelPair(
                "same" if same[i] else "subsumed",
                _plain(self.names[one[i]]),
                _plain(self.names[other[i]]),
                int(f[i]),
                int(g[i]),
                int(both[i]),
            )
            for i in kept.tolist()
        ]


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name


def _rounded(value: Any) -> float:
    return round(float(value), 4)
