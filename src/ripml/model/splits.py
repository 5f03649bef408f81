"""Labels whose rows fall into two clearly separate groups, and might be two labels.

Any rows can be cut in two, so a cut alone says nothing. Here one half of the rows of a label is cut by 2-means, and the
other half, which had no part in that, is projected on the line between the two means. Where the label is one cloud, of
whatever shape, these numbers have one mode; where it is two, they have two. The excess mass says which (Müller and
Sawitzki 1991; it is twice the dip of Hartigan and Hartigan 1985):

    E_k(λ) = max over k disjoint intervals I of Σ P(I) − λ|I|        Δ = max_λ E_2(λ) − E_1(λ)

Δ is compared with what samples of the uniform distribution show, which has the largest Δ of all with one mode: a label
that is one cloud is named less often than the level says. Both halves take both parts, and twice the mean of their two
p-values, which is a p-value whatever their dependence (Rüschendorf 1982), must not exceed the level. Copies count once,
else a document that occurs often would be a group.

One word that half of the rows have makes two modes as well. So the held-out rows are divided twice, by each half of the
features alone: groups that only a few features know do not agree, and are not named.

Groups are of features alone. What other labels they carry is told with them: it names the groups, but a label of which
some rows carry another one is not for that reason two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.model.left_out import LeftOutRows
from ripml.model.model import Model

__all__ = ["LabelGroup", "SplitLabel", "find_splits"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVEL = 0.001  # of a label that is one cloud: at most so often is it named
LEAST_ROWS = 60  # distinct ones, of a label that is looked at
_MOST_ROWS = 400  # of a label that are compared
_SMALLEST = 0.1  # the share of the rows that the smaller group has at least
_AGREEMENT = 0.5  # the correlation of the groups of two halves of the features, at least
_SIZES = (30, 40, 50, 70, 100, 140, 200)  # of samples of the uniform distribution
_SAMPLES = 3999
_DENSITIES = np.geomspace(0.1, 4, 24)  # λ, where 1 is the mean density of the middle nine tenths
_STARTS, _STEPS = 3, 30  # of 2-means
_WORDS = 8
_LABELS = 3
_TELLING = 0.2  # by how much the shares of two groups that carry a label differ for it to be told


@dataclass(frozen=True)
class LabelGroup:
    """One of the two groups of rows of a label, and what tells it from the other."""

    share: float  # of the rows of the label that were compared
    words: tuple[int | str, ...]  # the features, by their numbers or names, that tell it most
    labels: tuple[tuple[Any, float], ...]  # other labels that more of its rows carry, and how many of them do
    examples: tuple[int | str, ...]  # the rows that are most typical


@dataclass(frozen=True)
class SplitLabel:
    """A label whose rows are in two clearly separate groups."""

    label: Any
    rows: int
    separation: float  # the distance of the groups on the line between them, in standard deviations within them
    agreement: float  # the correlation of the groups that two halves of the features make
    p: float  # at most the probability that a label of one cloud shows as much
    groups: tuple[LabelGroup, LabelGroup]  # the larger first

    def with_groups(self, change: Callable[[LabelGroup], LabelGroup]) -> SplitLabel:
        """With both groups changed."""
        return replace(self, groups=(change(self.groups[0]), change(self.groups[1])))


def find_splits(model: Model, left_out: LeftOutRows, labels: Ints, n_examples: int) -> tuple[SplitLabel, ...]:
    """Which of these labels might be two, the most clearly separated first."""
    by_label = scipy.sparse.csr_array(left_out.Y.T)
    found = []
    for label in labels.tolist():
        carriers = by_label.indices[slice(*by_label.indptr[label : label + 2])].astype(np.int64)
        _, first = np.unique(left_out.group[carriers], return_index=True)
        rows = carriers[first]
        if len(rows) < LEAST_ROWS:
            continue
        random = np.random.default_rng(0)
        if len(rows) > _MOST_ROWS:
            rows = np.sort(random.choice(rows, _MOST_ROWS, False))
        X = _features(model, left_out, rows)
        halves = halves_of(X, random)
        G = halves.sum(axis=0)
        p, separation, agreement = two_groups_are_there(halves, random)
        if p > LEVEL or agreement < _AGREEMENT:
            continue
        second = _two_means(G)
        if second.mean() > 0.5:
            second = ~second
        if second.mean() < _SMALLEST:
            continue
        groups = tuple(_group(model, left_out, label, rows, X, G, mine, n_examples) for mine in (~second, second))
        name = model.vocabulary.names[label]
        found.append(
            SplitLabel(
                name.item() if isinstance(name, np.generic) else name,
                len(carriers),
                round(separation, 2),
                round(agreement, 2),
                round(p, 5),
                (groups[0], groups[1]),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.separation))


def _features(model: Model, left_out: LeftOutRows, rows: Ints) -> Any:
    """The features of rows, as the regression sees them, with length 1."""
    parts, order = [], []
    for c, cluster in enumerate(model.clusters):
        mine = np.flatnonzero(left_out.cluster[rows] == c)
        if len(mine):
            assert cluster.rows is not None
            parts.append(scipy.sparse.csr_array(cluster.rows.X.take(left_out.place[rows[mine]])))
            order.append(mine)
    X = scipy.sparse.vstack(parts, format="csr")[np.argsort(np.concatenate(order), kind="stable")].astype(np.float64)
    lengths = np.sqrt(np.bincount(np.repeat(np.arange(len(rows)), np.diff(X.indptr)), X.data**2, len(rows)))
    X.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(X.indptr))
    return X


def halves_of(X: Any, random: np.random.Generator) -> Floats:
    """The products of rows X (n, d) by each half of the features, (2, n, n); together they are X Xᵀ."""
    first = random.permutation(X.shape[1]) % 2 == 0
    parts = (X[:, np.flatnonzero(some)] for some in (first, ~first))
    return np.stack([np.asarray((part @ part.T).toarray(), np.float64) for part in parts])


def two_groups_are_there(halves_of_G: Floats, random: np.random.Generator) -> tuple[float, float, float]:
    """A p-value for rows that are one cloud, how far two groups of them are apart, and the agreement of their features.

    `halves_of_G` are the products of the rows by each half of the features.

    >>> random = np.random.default_rng(0)
    >>> one = random.normal(size=(200, 6))
    >>> two = one + 4 * np.repeat([0, 1], 100)[:, None]
    >>> two_groups_are_there(halves_of(scipy.sparse.csr_array(one), random), random)[0] > 0.05
    True
    >>> p, separation, agreement = two_groups_are_there(halves_of(scipy.sparse.csr_array(two), random), random)
    >>> p < 0.001, separation > 4, agreement > 0.9
    (True, True, True)
    """
    G = halves_of_G.sum(axis=0)
    order = random.permutation(len(G))
    halves = order[: len(G) // 2], order[len(G) // 2 :]
    ps, apart, agree = [], [], []
    for cut, held in (halves, halves[::-1]):
        second = _two_means(G[np.ix_(cut, cut)])
        if second.all() or not second.any():
            return 1.0, 0.0, 0.0
        line = second / second.sum() - ~second / (~second).sum()
        on_line = G[np.ix_(held, cut)] @ line
        ps.append(_p_value(on_line))
        mine = _nearer_second(G, held, cut, second)
        if min(mine.sum(), (~mine).sum()) < 2:
            return 1.0, 0.0, 0.0
        agree.append(_correlation(*(_nearer_second(half, held, cut, second) for half in halves_of_G)))
        spread = np.sqrt((on_line[mine].var() * mine.sum() + on_line[~mine].var() * (~mine).sum()) / len(mine))
        apart.append((on_line[mine].mean() - on_line[~mine].mean()) / max(spread, 1e-12))
    return min(1.0, float(np.sum(ps))), float(np.mean(apart)), float(np.mean(agree))


def _nearer_second(G: Floats, held: Ints, cut: Ints, second: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the rows `held` are nearer to the mean of the rows that are `second` of those that were cut."""
    on_line = G[np.ix_(held, cut)] @ (second / second.sum() - ~second / (~second).sum())
    lengths = [float(G[np.ix_(cut[some], cut[some])].mean()) for some in (second, ~second)]
    return np.asarray(on_line > (lengths[0] - lengths[1]) / 2)


def _correlation(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """That of two divisions; 0 where one of them divides nothing."""
    if one.all() or not one.any() or other.all() or not other.any():
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _p_value(values: Floats) -> float:
    """How often samples of the uniform distribution have so large an excess of mass, at most."""
    n = max(size for size in _SIZES if size <= len(values))
    larger = len(_null(n)) - np.searchsorted(_null(n), excess_mass(np.sort(values)[None])[0])
    return float((larger + 1) / (_SAMPLES + 1))


@cache
def _null(n: int) -> Floats:
    """Δ of samples of n numbers of the uniform distribution, rising."""
    samples = np.sort(np.random.default_rng(n).random((_SAMPLES, n)), axis=1)
    return np.sort(np.concatenate([excess_mass(some) for some in np.array_split(samples, 40)]))


def excess_mass(values: Floats) -> Floats:
    """Δ of samples, rising numbers (s, n): how much more two intervals hold than one at the same price of length.

    >>> one, two = np.linspace(0, 1, 100), np.concatenate([np.linspace(0, 0.2, 50), np.linspace(0.8, 1, 50)])
    >>> excess_mass(np.array([one, two])).round(2)
    array([0.01, 0.36])
    """
    n = values.shape[1]
    width = np.quantile(values, 0.95, axis=1) - np.quantile(values, 0.05, axis=1)
    price = _DENSITIES / np.maximum(width, 1e-12)[:, None]
    level = np.arange(n) / n - price[:, :, None] * values[:, None, :]  # (s, λ, n): what [a, b] holds is a difference
    ending = level - np.minimum.accumulate(level, axis=2) + 1 / n
    starting = np.maximum.accumulate(level[:, :, ::-1], axis=2)[:, :, ::-1] - level + 1 / n
    left = np.maximum.accumulate(ending, axis=2)
    right = np.maximum.accumulate(starting[:, :, ::-1], axis=2)[:, :, ::-1]
    two = (left[:, :, :-1] + right[:, :, 1:]).max(axis=2)
    return np.asarray((two - left[:, :, -1]).max(axis=1))


def _two_means(G: Floats) -> NDArray[np.bool_]:
    """Which of the rows with products G (n, n) are in the second of two groups, by 2-means from the first axes."""
    n = len(G)
    centred = G - G.mean(axis=0) - G.mean(axis=1)[:, None] + G.mean()
    axes = np.linalg.eigh(centred)[1][:, ::-1][:, :_STARTS]
    best, least = np.zeros(n, bool), np.inf
    for axis in axes.T:
        second = axis > 0
        for _ in range(_STEPS):
            sizes = np.array([(~second).sum(), second.sum()])
            if not sizes.all():
                break
            mean = np.column_stack([~second, second]) / sizes
            distance = (mean * (centred @ mean)).sum(axis=0) - 2 * centred @ mean
            again = distance[:, 1] < distance[:, 0]
            within = float(distance.min(axis=1).sum())
            if within < least:
                best, least = again, within
            if (again == second).all():
                break
            second = again
    return best


def _group(
    model: Model,
    left_out: LeftOutRows,
    label: int,
    rows: Ints,
    X: Any,
    G: Floats,
    mine: NDArray[np.bool_],
    n_examples: int,
) -> LabelGroup:
    """What tells the rows that are `mine` from the others."""
    n = np.array([mine.sum(), (~mine).sum()])
    weights = mine / n[0] - ~mine / n[1]
    gain = np.asarray(weights @ X)
    words = np.argsort(-gain, kind="stable")[:_WORDS]
    Y = left_out.Y[rows]
    ones = scipy.sparse.csr_array((np.ones(Y.nnz), Y.indices, Y.indptr), shape=Y.shape)
    share, others = ((mine / n[0]) @ ones, (~mine / n[1]) @ ones)
    more = share - others
    more[label] = 0
    telling = [other for other in np.argsort(-more, kind="stable")[:_LABELS].tolist() if more[other] >= _TELLING]
    names = model.vocabulary.names[telling].tolist()
    typical = np.argsort(-np.where(mine, G @ weights, -np.inf), kind="stable")[: min(n_examples, n[0])]
    return LabelGroup(
        share=round(float(n[0] / n.sum()), 4),
        words=tuple(words[gain[words] > 0].tolist()),
        labels=tuple((name, round(float(share[other]), 4)) for name, other in zip(names, telling, strict=True)),
        examples=tuple(left_out.numbers[rows[typical]].tolist()),
    )
