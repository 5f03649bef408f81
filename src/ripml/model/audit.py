"""Which labels of training rows are probably wrong, and which are probably missing.

Every row is scored by a model of all others, see `ripml.model.left_out`, and isotonic regression on the other half of
the rows turns its scores into probabilities. Labels that a row does not carry are ranked by these alone.

A label that a row carries is not wrong because its probability is low: that of a rare label always is. So wrong labels
are imitated: a label of a row is replaced by one drawn by frequency, and boosted trees learn to tell imitations from
labels that are carried, each half of the rows by the other. They see the score and what the regression says of the
label, which do not know the row's own labels; what other rows with the label get, and how many there are; and how often
rows with the other labels of this row carry the label as well. The row itself counts for none of these.

With w the share of carried labels that are wrong, and g the odds of an imitation, a label is wrong with probability
w·g. As no g exceeds 1/w, the largest ones tell w. If m of all labels are missing, one that is carried with probability
p is there with p/(1 − m), and as that does not exceed 1, the highest probabilities tell m.

Copies, and texts that are nearly the same (but for a date or a heading), are compared with each other: where their
labels differ, one of both may be wrong.

Of many rows, all this is read off `quick` scores. Those in which labels are missing most probably are then scored by
all signals, which puts the missing labels in order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import check_count
from ripml.base.parallel import blocks
from ripml.datasets.checks import near_duplicates
from ripml.decoding.blend import boosted_trees
from ripml.decoding.boosting import Boosting
from ripml.decoding.calibration import fit_steps, in_steps
from ripml.decoding.evidence import Evidence
from ripml.decoding.scores import outcomes, values_at
from ripml.model.left_out import ENOUGH_ROWS, LeftOutRows, leave_out_rows
from ripml.model.model import Model
from ripml.regression.kernels import squared_lengths

__all__ = ["Audit", "Conflict", "Finding", "NearCopy", "audit", "find_doubtful"]

_log = logging.getLogger("ripml")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Findings that are doubted less say nothing to whoever reads them: of 3,000 rows of bibtex with one label in ten wrong
# or missing, 6 % and 13 % of those between 0.02 and 0.05 were right, and 17 % and 25 % of those up to 0.1.
_LEAST_DOUBT = 0.05

_IMITATIONS = Boosting(n_trees=100, depth=5, leaf=100)
# Of the signals of a pair, those of which more never makes a label more doubtful.
_RISING = np.array([True, True, True, False, False, True, True])
_LEARNT = 200_000  # carried labels, and as many imitations, that trees are learnt from
_LEAST = 1000  # carried labels from which there is something to learn
_EXPECTED = 3  # the place of this signal
_TINY = 1e-3
_SURE = 100  # one in so many of all carried labels: the most doubtful pairs tell the share of wrong and missing ones
_NEAR = 100  # similar rows among which carriers of a label and others are looked for
_RESCORED = 24  # rows that are scored by all signals where scores are quick, for each label to be found
# The similarity of texts from which a difference of labels is more often an error than below: about half of such
# differences were, in three sets of texts with one label in ten wrong or missing, and a third or less at 0.8.
_NEAR_COPY = 0.9
_PRIOR = 2.0  # rows that stand for what labels of the same frequency get


Near = tuple[tuple[int | str, float], ...]


@dataclass(frozen=True)
class Finding:
    """A label that a row carries and probably should not ("wrong"), or should carry and does not ("missing")."""

    kind: Literal["wrong", "missing"]
    document: int | str  # the number of the training row among all ever learnt; in a store, the id of its document
    label: Any
    doubt: float  # the probability that the label is wrong, or missing
    probability: float  # of the label, as all other rows have it
    expected: float  # the mean of this probability over the other rows that carry the label
    carriers: Near  # of the rows most similar to this one, those that carry the label, and how similar they are
    others: Near  # and those that do not

    def to_json(self) -> dict[str, Any]:
        """As JSON values.

        >>> Finding("wrong", 3, "tea", 0.9, 0.01, 0.8, ((7, 0.5),), ()).to_json()
        {'kind': 'wrong', 'document': 3, 'label': 'tea', 'doubt': 0.9, 'probability': 0.01, 'expected': 0.8,
         'carriers': [{'document': 7, 'similarity': 0.5}], 'others': []}
        """
        near = {
            name: [{"document": document, "similarity": similarity} for document, similarity in getattr(self, name)]
            for name in ("carriers", "others")
        }
        return asdict(self) | near

    def renamed(self, names: Mapping[int, int | str]) -> Finding:
        """With other names of rows; near rows without one are left out."""
        assert isinstance(self.document, int)
        carriers, others = (
            tuple((names[row], similarity) for row, similarity in near if isinstance(row, int) and row in names)
            for near in (self.carriers, self.others)
        )
        return replace(self, document=names[self.document], carriers=carriers, others=others)


@dataclass(frozen=True)
class Conflict:
    """Documents of the same features that carry different labels."""

    documents: tuple[int | str, ...]
    labels: tuple[Any, ...]  # that some of them carry, and others do not

    def to_json(self) -> dict[str, Any]:
        """As JSON values.

        >>> Conflict((3, 7), ("tea",)).to_json()
        {'documents': [3, 7], 'labels': ['tea']}
        """
        return {name: list(values) for name, values in asdict(self).items()}


@dataclass(frozen=True)
class NearCopy:
    """Two documents of nearly the same text that carry different labels."""

    documents: tuple[int | str, int | str]
    similarity: float  # of their texts, see `near_duplicates`
    only: tuple[tuple[Any, ...], tuple[Any, ...]]  # the labels that only the first carries, and only the second

    def to_json(self) -> dict[str, Any]:
        """As JSON values.

        >>> NearCopy((3, 7), 0.93, (("tea",), ())).to_json()
        {'documents': [3, 7], 'similarity': 0.93, 'only': [['tea'], []]}
        """
        return {"documents": list(self.documents), "similarity": self.similarity, "only": [*map(list, self.only)]}


@dataclass(frozen=True)
class Audit:
    """What is doubtful about the labels of training rows, the most doubtful first."""

    wrong: list[Finding]
    missing: list[Finding]
    n_rows: int
    n_labels: int  # pairs of a row and a label that it carries
    n_copies: int  # rows that were left out together with others of the same features
    conflicts: list[Conflict]  # copies that carry different labels
    wrong_share: float | None  # about the share of carried labels that are wrong, at most
    missing_share: float | None  # about the share of labels that are missing, at most
    near_copies: list[NearCopy] = field(default_factory=list)  # the most similar first; of models of texts alone

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        lists = ("wrong", "missing", "conflicts", "near_copies")
        found = {name: [one.to_json() for one in getattr(self, name)] for name in lists}
        return asdict(self) | found | {"enough": self.enough}

    @property
    def enough(self) -> bool:
        """Whether there are enough rows to doubt labels by: what fewer show is mostly chance."""
        return self.n_rows >= ENOUGH_ROWS

    def worth_reading(self) -> Audit:
        """What people are shown: without findings that say nothing, and of too few rows without findings and shares.

        Copies that carry different labels stay, which are so in any number of rows.
        """
        if not self.enough:
            return replace(self, wrong=[], missing=[], wrong_share=None, missing_share=None)
        wrong, missing = (
            [finding for finding in findings if finding.doubt >= _LEAST_DOUBT]
            for findings in (self.wrong, self.missing)
        )
        return replace(self, wrong=wrong, missing=missing)

    @property
    def rows(self) -> set[int]:
        """The numbers of all rows that findings speak of."""
        findings = [*self.wrong, *self.missing]
        named = [finding.document for finding in findings]
        named += [row for finding in findings for row, _ in (*finding.carriers, *finding.others)]
        named += [row for conflict in self.conflicts for row in conflict.documents]
        named += [row for copy in self.near_copies for row in copy.documents]
        return {row for row in named if isinstance(row, int)}

    def renamed(self, names: Mapping[int, int | str]) -> Audit:
        """With other names of rows; findings about rows without one are left out."""
        wrong, missing = (
            [finding.renamed(names) for finding in findings if finding.document in names]
            for findings in (self.wrong, self.missing)
        )
        conflicts = [
            replace(one, documents=tuple(names[row] for row in one.documents if isinstance(row, int) and row in names))
            for one in self.conflicts
        ]
        near = [
            replace(one, documents=(names[a], names[b]))
            for one in self.near_copies
            for a, b in [one.documents]
            if isinstance(a, int) and isinstance(b, int) and a in names and b in names
        ]
        return replace(self, wrong=wrong, missing=missing, conflicts=conflicts, near_copies=near)


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a row and a label, the most doubtful first."""

    rows: Ints  # places in `LeftOutRows`
    labels: Ints
    doubt: Floats
    probability: Floats
    expected: Floats
    share: float  # of all pairs, about how many are wrong, or missing, at most


class _Evidence:
    """What the left-out rows say of pairs of a row and a label."""

    def __init__(self, left_out: LeftOutRows) -> None:
        self.left_out, Y = left_out, left_out.Y
        self.n, self.L = Y.shape
        self.row = np.repeat(np.arange(self.n), np.diff(Y.indptr))
        self.label = Y.indices.astype(np.int64)
        self.half = left_out.group % 2
        self.frequency = np.bincount(self.label, minlength=self.L)
        scores = left_out.scores
        self.outcome = outcomes(Y, scores)
        self.of_candidate = np.repeat(np.arange(self.n), np.diff(scores.indptr))
        half = self.half[self.of_candidate]
        self.probabilities = np.zeros(len(scores.data))
        for part in (0, 1):
            if (half == part).any() and (half != part).any():
                line = fit_steps(scores.data[half != part], self.outcome[half != part])
                self.probabilities[half == part] = in_steps(scores.data[half == part], line)
        keys = self.of_candidate * self.L + scores.indices
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self.probability = self.at(self.row, self.label)[1]  # of carried labels
        # What carriers of a label get, and carriers of labels of about the same frequency.
        self._sums = np.bincount(self.label, self.probability, self.L)
        octave = np.log2(np.maximum(self.frequency, 1)).astype(np.int64)
        carriers = np.maximum(np.bincount(octave, self.frequency), 1)
        self._usual = (np.bincount(octave, self._sums) / carriers)[octave]
        ones = scipy.sparse.csr_array((np.ones(Y.nnz), Y.indices, Y.indptr), shape=Y.shape)
        together = (ones.T @ ones).tocsr()
        together.sort_indices()
        first = np.repeat(np.arange(self.L, dtype=np.int64), np.diff(together.indptr))
        self._together = first * self.L + together.indices, together.data

    @property
    def n_sure(self) -> int:
        """How many pairs are taken for certain."""
        return -(-len(self.row) // _SURE)

    def at(self, rows: Ints, labels: Ints) -> tuple[Floats, Floats]:
        """The scores and the probabilities of pairs; 0 for labels that are not candidates."""
        keys = rows * self.L + labels
        place = np.minimum(np.searchsorted(self._keys, keys), max(len(self._keys) - 1, 0))
        if not len(self._keys):
            return np.zeros(len(keys)), np.zeros(len(keys))
        there, found = self._keys[place] == keys, self._order[place]
        scores = self.left_out.scores.data[found]
        return np.where(there, scores, 0.0), np.where(there, self.probabilities[found], 0.0)

    def expected(self, labels: Ints, own: Floats | None = None) -> Floats:
        """The mean probability of rows that carry these labels, without one of them, of probability `own`."""
        others = np.zeros(len(labels)) if own is None else own
        sums = np.maximum(self._sums[labels] - others, 0)
        counts = self.frequency[labels] - (own is not None)
        return np.asarray((sums + _PRIOR * self._usual[labels]) / (counts + _PRIOR))

    def company(self, rows: Ints, labels: Ints, replaced: Ints, carries: bool) -> tuple[Floats, Floats]:
        """How labels go with the other labels of their rows, without those that they `replaced`: the largest share of
        rows with another label that carry the label, and the mean log of how many times as often they do as all rows.

        Of rows that carry the labels, `carries`, the row itself does not count.
        """
        ends = self.left_out.Y.indptr.astype(np.int64)
        counts = np.diff(ends)[rows]
        pair = np.repeat(np.arange(len(rows)), counts)
        other = self.label[np.arange(len(pair)) + np.repeat(ends[rows] - (np.cumsum(counts) - counts), counts)]
        kept = (other != labels[pair]) & (other != replaced[pair])
        pair, other = pair[kept], other[kept]
        both = self._counted(other, labels[pair]) - carries
        alone, overall = self.frequency[other] - 1, (self.frequency[labels] - 1)[pair] / max(self.n - 1, 1)
        share = np.zeros(len(rows))
        np.maximum.at(share, pair, both / (alone + _PRIOR))
        lift = np.log((both + 0.5) / (alone * overall + 0.5))
        n_others = np.maximum(np.bincount(pair, minlength=len(rows)), 1)
        return share, np.bincount(pair, lift, len(rows)) / n_others

    def _counted(self, one: Ints, other: Ints) -> Floats:
        """How many rows carry both labels."""
        stored, counts = self._together
        keys = one * self.L + other
        place = np.minimum(np.searchsorted(stored, keys), len(stored) - 1)
        return np.asarray(np.where(stored[place] == keys, counts[place], 0.0))

    def carried(self) -> NDArray[np.float32]:
        """What trees see of all pairs that are carried, (p, 7)."""
        replaced = np.full(len(self.row), -1)
        return self._signals(self.row, self.label, replaced, self.probability, True)

    def imitated(self, places: Ints, donors: Ints) -> NDArray[np.float32]:
        """The same of the carried pairs at `places` whose label is replaced by that of the pair at `donors`.

        The label is as frequent as it would be, and expected as much as it would be, without the donor.
        """
        own = self.probability[donors]
        return self._signals(self.row[places], self.label[donors], self.label[places], own, False)

    def _signals(self, rows: Ints, labels: Ints, replaced: Ints, own: Floats, carries: bool) -> NDArray[np.float32]:
        scores, probabilities = self.at(rows, labels)
        value, expected = self.left_out.values(rows, labels), self.expected(labels, own)
        share, lift = self.company(rows, labels, replaced, carries)
        frequency = np.log1p(self.frequency[labels] - 1)
        return np.column_stack([scores, value, probabilities, expected, frequency, share, lift]).astype(np.float32)


def audit(
    model: Model,
    limit: int = 1000,
    n_examples: int = 3,
    n_jobs: int | None = None,
    evidence: Evidence | None = None,
    texts: Sequence[str] = (),
) -> Audit:
    """The `limit` labels of training rows that are most probably wrong, and as many that are most probably missing.

    Of the rows most similar to that of a finding, `n_examples` are given that carry the label, and as many that do not.
    `texts` are those of all rows, in their order, where there are any; `evidence` is theirs, where the model reads the
    names of labels in them.
    """
    check_count("limit", limit)
    check_count("n_examples", n_examples, least=0)
    left_out = leave_out_rows(model, n_jobs, evidence, quick=_RESCORED * limit < model.n_rows)
    return find_doubtful(model, left_out, limit, n_examples, n_jobs, texts)


def find_doubtful(
    model: Model,
    left_out: LeftOutRows,
    limit: int,
    n_examples: int = 3,
    n_jobs: int | None = None,
    texts: Sequence[str] = (),
) -> Audit:
    """What `audit` finds in rows that are left out already."""
    seen = _Evidence(left_out)
    wrong, missing = _wrong(seen), _missing(seen)
    if left_out.quick:
        missing = _rescored(model, seen, missing, limit, n_jobs)
    return Audit(
        wrong=_findings(model, left_out, "wrong", wrong, limit, n_examples),
        missing=_findings(model, left_out, "missing", missing, limit, n_examples),
        n_rows=len(left_out.numbers),
        n_labels=len(seen.row),
        n_copies=int((np.bincount(left_out.group) > 1)[left_out.group].sum()) if len(left_out.group) else 0,
        conflicts=_conflicts(model, left_out)[:limit],
        wrong_share=wrong.share,
        missing_share=missing.share,
        near_copies=_near_copies(model, left_out, texts)[:limit],
    )


def _conflicts(model: Model, left_out: LeftOutRows) -> list[Conflict]:
    """Copies that carry different labels, those of most documents first."""
    order = np.argsort(left_out.group, kind="stable")
    starts = np.flatnonzero(np.diff(left_out.group[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    found = []
    for start, size in zip(starts[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        rows = order[start : start + size]
        labels, counts = np.unique(left_out.Y[rows].indices, return_counts=True)
        some = labels[counts < size]
        if len(some):
            names = tuple(model.vocabulary.names[some].tolist())
            found.append(Conflict(tuple(left_out.numbers[rows].tolist()), names))
    return sorted(found, key=lambda conflict: -len(conflict.documents))


def _near_copies(model: Model, left_out: LeftOutRows, texts: Sequence[str]) -> list[NearCopy]:
    """Rows of nearly the same text that carry different labels, but for copies, the most similar first."""
    if not texts:
        return []
    _log.info("comparing %s texts", f"{len(texts):,}")
    Y, names, found = left_out.Y, model.vocabulary.names, []
    for a, b, similarity in near_duplicates(texts, _NEAR_COPY):
        one, other = (Y.indices[slice(*Y.indptr[row : row + 2])] for row in (a, b))
        only = np.setdiff1d(one, other), np.setdiff1d(other, one)
        if left_out.group[a] != left_out.group[b] and any(map(len, only)):
            documents = int(left_out.numbers[a]), int(left_out.numbers[b])
            mine, theirs = (tuple(names[some].tolist()) for some in only)
            found.append(NearCopy(documents, round(similarity, 4), (mine, theirs)))
    return sorted(found, key=lambda copy: -copy.similarity)


def _missing(evidence: _Evidence) -> _Pairs:
    """Candidates that rows do not carry, by their scores."""
    absent, scores = np.flatnonzero(~evidence.outcome), evidence.left_out.scores
    rows, labels = evidence.of_candidate[absent], scores.indices[absent].astype(np.int64)
    probability = evidence.probabilities[absent]
    order = np.lexsort((labels, rows, -scores.data[absent]))
    # Of labels that are there, 1 − m are carried: what is carried with probability p is there with p/(1 − m).
    highest = np.sort(evidence.probabilities)[-evidence.n_sure :]
    share = float(min((np.sum(1 - highest) + 1) / (len(highest) + 2), 0.5))
    return _absent(evidence, rows[order], labels[order], probability[order], share)


def _absent(evidence: _Evidence, rows: Ints, labels: Ints, probability: Floats, share: float) -> _Pairs:
    """Labels that rows do not carry, with the doubt that follows from their probabilities."""
    odds = share / (1 - share) * probability
    doubt = np.minimum(odds / np.maximum(1 - probability, 1e-9), 1)
    return _Pairs(rows, labels, doubt, probability, evidence.expected(labels), share)


def _rescored(model: Model, evidence: _Evidence, quick: _Pairs, limit: int, n_jobs: int | None) -> _Pairs:
    """Missing labels of the rows in which quick scores find the first, by all signals."""
    _, first = np.unique(quick.rows, return_index=True)
    chosen = np.sort(quick.rows[np.sort(first)[: _RESCORED * limit]])
    scores = evidence.left_out.scored(model, chosen, n_jobs)
    absent = np.flatnonzero(~outcomes(evidence.left_out.Y[chosen], scores))
    rows = np.repeat(chosen, np.diff(scores.indptr))[absent]
    labels, values = scores.indices[absent].astype(np.int64), scores.data[absent]
    order = np.lexsort((labels, rows, -values))
    probability = np.asarray(model.calibration.probabilities(values[order]), np.float64)
    return _absent(evidence, rows[order], labels[order], probability, quick.share)


def _wrong(evidence: _Evidence) -> _Pairs:
    """Labels that rows carry, by the odds of imitations."""
    rows, labels, seen = evidence.row, evidence.label, evidence.carried()
    random = np.random.default_rng(0)
    places, donors = random.permutation(len(labels)), random.permutation(len(labels))
    is_wrong = values_at(evidence.left_out.Y[rows[places]], labels[donors][:, None]).ravel() == 0
    places, donors = places[is_wrong], donors[is_wrong]
    imitated = evidence.imitated(places, donors)
    half, imitated_half = evidence.half[rows], evidence.half[rows[places]]
    chance = np.zeros(len(rows))
    for part in (0, 1):
        a, b = np.flatnonzero(half != part), np.flatnonzero(imitated_half != part)
        a, b = (some if len(some) <= _LEARNT else np.sort(random.choice(some, _LEARNT, False)) for some in (a, b))
        mine = half == part
        if min(len(a), len(b)) < _LEAST:
            p, expected = evidence.probability[mine], seen[mine, _EXPECTED].astype(np.float64)
            chance[mine] = expected * (1 - p) / (expected * (1 - p) + p + _TINY)
            continue
        table, outcome = np.concatenate([seen[a], imitated[b]]), np.repeat([True, False], [len(a), len(b)])
        found = 1 - boosted_trees(table, outcome, _RISING, _IMITATIONS).probabilities(seen[mine]).astype(np.float64)
        chance[mine] = found / (found + (1 - found) * len(b) / max(len(a), 1))
    g = chance / np.maximum(1 - chance, 1e-9)
    highest = np.sort(g)[-evidence.n_sure :]
    share = float(np.clip(1 / max(highest.mean(), 1e-9), 1 / (len(g) + 2), 0.5))
    doubt, probability = np.minimum(share * g, 1), evidence.probability
    order = np.lexsort((labels, rows, probability, -g))
    return _Pairs(
        rows[order],
        labels[order],
        doubt[order],
        probability[order],
        evidence.expected(labels, probability)[order],
        share,
    )


def _findings(
    model: Model,
    left_out: LeftOutRows,
    kind: Literal["wrong", "missing"],
    pairs: _Pairs,
    limit: int,
    n_examples: int,
) -> list[Finding]:
    """The first pairs, each with the rows most similar to it."""
    rows, names = pairs.rows[:limit], model.vocabulary.names
    near = _near_rows(model, left_out, np.unique(rows)) if n_examples else {}
    found = []
    for i, row in enumerate(rows.tolist()):
        label, carriers, others = int(pairs.labels[i]), list[tuple[int | str, float]](), list[tuple[int | str, float]]()
        for number, similarity, labels in near.get(row, ()):
            (carriers if label in labels else others).append((number, similarity))
        found.append(
            Finding(
                kind=kind,
                document=int(left_out.numbers[row]),
                label=names[label].item() if isinstance(names[label], np.generic) else names[label],
                doubt=round(float(pairs.doubt[i]), 4),
                probability=round(float(pairs.probability[i]), 4),
                expected=round(float(pairs.expected[i]), 4),
                carriers=tuple(carriers[:n_examples]),
                others=tuple(others[:n_examples]),
            )
        )
    return found


def _near_rows(model: Model, left_out: LeftOutRows, rows: Ints) -> dict[int, list[tuple[int, float, set[int]]]]:
    """The rows most similar to each of these, without itself: their numbers, how similar they are, and their labels."""
    found = {}
    for c, cluster in enumerate(model.clusters):
        kept, sets = cluster.rows, cluster.index.sets
        mine = rows[left_out.cluster[rows] == c]
        if kept is None or not len(mine):
            continue
        for block in blocks(len(mine), kept.rows_at_a_time):
            places = left_out.place[mine[block]]
            X = kept.X.take(places)
            ids, likeness = kept.nearest(X, _NEAR, places)
            similarity = kept.kernel.of_likeness(likeness, squared_lengths(X))
            for row, near, values, there in zip(
                mine[block].tolist(), ids, similarity, np.isfinite(likeness), strict=True
            ):
                found[row] = [
                    (
                        int(kept.numbers[place]),
                        round(float(value), 4),
                        set(sets.indices[slice(*sets.indptr[kept.set_of_row[place] :][:2])].tolist()),
                    )
                    for place, value in zip(near[there].tolist(), values[there].tolist(), strict=True)
                ]
    return found
