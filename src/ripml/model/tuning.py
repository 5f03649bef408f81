"""Choosing settings without test data: the weight of features, the kernel and the ridge, on left-out training rows.

All three are chosen together on a sample of rows that is small enough for a few dozen closed-form fits to cost less
than the one fit that follows. Each of them is judged by the mean of P@1, P@3 and P@5 on rows that are left out exactly
(see `kernel_ridge`). The sample keeps rows that share labels together: in rows drawn one by one from a large set, most
labels would occur once, and nothing could be learnt about them.

The search changes one setting at a time, from its usual value by fixed steps as long as precision rises by more than a
small share and by more than the standard error of the rise: first the weights of views, where there are several,
then the weight of features, the ridge, the width of the kernel, and the weight of features and of views once more. No
weight of a view is the usual one, so of all these the best is taken; a view whose weight is 0 is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.arrays import csr_of
from ripml.base.parallel import blocks, one_blas_thread
from ripml.base.workspace import release, row_slice
from ripml.model.features import Scaling
from ripml.regression.kernel_ridge import leave_out
from ripml.regression.kernels import Kernel, Linear, squared_lengths

__all__ = ["Choice", "choose"]

_ROW_BLOCK = 65536  # rows whose labels are read at a time
_LABELS = 500  # the most frequent of the sample
_POWERS = (0.0, 0.25, 0.5, 0.75)
_GAMMAS = (0.125, 0.25, 0.5, 1.0, 2.0)
_VIEWS = (0.0, 1 / 9, 1 / 3, 1.0, 3.0, 9.0)  # weights of a view, where the first has 1
_ALPHAS = tuple(float(f"{10**exponent:.3g}") for exponent in np.arange(-2.5, 2.01, 0.5))
_ONE_THREAD = 1000  # rows of a sample up to which the threads of BLAS wait for each other longer than they work
_WORTH = 5e-3  # relative gain in precision up to which the earlier value is kept
# The more rows, the narrower a kernel and the smaller a ridge they bear. A sample has fewer rows than the set, so a
# step to the wider kernel or the larger ridge (the direction given here) has to gain more than that.
_SIMPLER, _WORTH_SIMPLER = {"power": 0, "kernel": -1, "ridge": 1}, 2e-2


@dataclass(frozen=True)
class Choice:
    """Settings, and the mean of P@1, P@3 and P@5 that they gave on left-out rows of the sample."""

    power: float  # of the relevance of features
    kernel: Kernel
    ridge: float
    views: tuple[float, ...] = ()  # the weight of each view; empty where there is one
    spread: float = 1.0  # the mean squared distance of rows from their mean, where they do not have length 1
    precision: float = 0.0
    tried: list[tuple[Any, ...]] = field(default_factory=list, repr=False)

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights of views, scaled to add up to 1."""
        return tuple(weight / sum(self.views) for weight in self.views)


def choose(
    X: Any,
    Y: Any,
    relevance: NDArray[Any],
    start: Choice,
    free: Sequence[str],
    askable: NDArray[np.int64],
    n_rows: int,
    scaling: Scaling,
    seed: int,
    n_jobs: int | None = None,
) -> Choice:
    """The best settings on a walk from `start` along those that are `free`: "power", "kernel", "ridge", "views".

    A sample of at most `n_rows` rows is fitted again and again; rows among those of these numbers (`askable`) are asked
    about, which must not have had a part in `relevance`.

    X (n, d) has rows as `scaling` makes them, unweighted; Y is CSR (n, L); `relevance` (d,) is that of the features.
    Where rows do not have length 1, widths and ridges are tried in proportion to their spread.
    """
    rows, n_asked = _sample(Y, askable, n_rows, seed)
    X, truth = X[rows].astype(np.float32), Y[rows]
    counts = np.bincount(truth.indices, minlength=Y.shape[1])
    kept = np.sort(np.argsort(-counts, kind="stable")[:_LABELS])
    kept = kept[counts[kept] > 1]

    def features(power: float) -> Any:
        equal = tuple(1.0 for _ in scaling.views)
        return scaling.with_weights(relevance, power, equal).weighted(X)

    def absolute(choice: Choice) -> Choice:
        """The choice with the width and the ridge, where they are free, by the spread of rows."""
        if scaling.unit:
            return choice
        if choice.power not in spreads:
            spreads[choice.power] = _spread(features(choice.power))
        spread, ridge = spreads[choice.power], choice.ridge
        kernel: Any = choice.kernel
        if "kernel" in free:
            kernel = replace(kernel, gamma=kernel.gamma / spread)
        if "ridge" in free and kernel.linear:
            ridge *= spread
        return replace(choice, kernel=kernel, ridge=ridge, spread=spread)

    spreads: dict[float, float] = {}
    targets = truth[:, kept].toarray().astype(np.float32)
    if not len(kept) or not n_asked or not free or not targets[-n_asked:].any():
        return absolute(start)
    products: dict[float, list[NDArray[np.float32]]] = {}
    precisions: dict[tuple[Any, ...], NDArray[np.float64]] = {}

    def precision(choice: Choice) -> NDArray[np.float64]:
        key = (choice.power, choice.kernel, choice.ridge, choice.views)
        if key not in precisions:
            if choice.power not in products:
                views = scaling.of_views(features(choice.power))
                products[choice.power] = [Linear().lower_triangle(view, n_jobs) for view in views]
            parts = products[choice.power]
            K = parts[0].copy()
            if choice.views:
                K = np.asarray(np.tensordot(np.array(choice.shares, np.float32), np.array(parts), 1), np.float32)
            squares, choice = K.diagonal().copy(), absolute(choice)
            choice.kernel.of_products(K, squares, squares)
            if choice.kernel.linear:
                K += 1  # the intercept
            with one_blas_thread() if len(rows) <= _ONE_THREAD else nullcontext():
                left_out = leave_out(K, targets, choice.ridge, n_asked)
            precisions[key] = _precisions(targets[-n_asked:], left_out)
        return precisions[key]

    best = start
    order = ["power", "ridge", "kernel", "power"] if "kernel" in free else ["power", "ridge"]
    if "views" in free:
        views = [f"view {v}" for v in range(1, len(start.views))]
        order, free = [*views, *order, *views], [*free, *views]
    for name in [name for name in order if name in free]:
        if name.startswith("view "):
            best = max(_steps(best, name)[0], key=lambda choice: float(precision(choice).mean()))
        else:
            best = _walk(*_steps(best, name), precision, 0 if len(rows) == Y.shape[0] else _SIMPLER.get(name, 0))
    tried = [(*key, float(value.mean())) for key, value in precisions.items()]
    return replace(absolute(best), precision=float(precision(best).mean()), tried=tried)


def _steps(choice: Choice, name: str) -> tuple[list[Choice], int]:
    """All values of one setting in their order, and the place of the present one."""
    if name == "power":
        powers = sorted({*_POWERS, choice.power})
        return [replace(choice, power=power) for power in powers], powers.index(choice.power)
    if name == "ridge":
        alphas = sorted({*_ALPHAS, choice.ridge})
        return [replace(choice, ridge=alpha) for alpha in alphas], alphas.index(choice.ridge)
    if name.startswith("view "):
        view = int(name.removeprefix("view "))
        before, after = choice.views[:view], choice.views[view + 1 :]
        return [replace(choice, views=(*before, weight, *after)) for weight in _VIEWS], _VIEWS.index(choice.views[view])
    kernel: Any = choice.kernel  # one that has a width
    gammas = sorted({*_GAMMAS, float(kernel.gamma)})
    return [replace(choice, kernel=replace(kernel, gamma=gamma)) for gamma in gammas], gammas.index(float(kernel.gamma))


def _walk(
    choices: list[Choice], start: int, precision: Callable[[Choice], NDArray[np.float64]], simpler: int
) -> Choice:
    """From the present value up while that pays, else down; in the direction of `simpler` it has to pay more."""
    place = start
    for direction in (1, -1):
        worth = _WORTH_SIMPLER if direction == simpler else _WORTH
        while 0 <= place + direction < len(choices):
            here = precision(choices[place])
            gain = precision(choices[place + direction]) - here
            if gain.mean() <= max(worth * here.mean(), gain.std() / len(gain) ** 0.5):
                break
            place += direction
        if place != start:
            break
    return choices[place]


def _spread(X: Any) -> float:
    """The mean squared distance of rows from their mean; 1 where they are all equal."""
    mean = np.asarray(X.mean(axis=0), np.float64).ravel()
    return float(squared_lengths(X).mean(dtype=np.float64) - mean @ mean) or 1.0


def _precisions(truth: NDArray[np.float32], scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean of P@1, P@3 and P@5 of each row that has a label among those of the sample."""
    k = min(5, scores.shape[1])
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    hits = np.take_along_axis(truth, np.take_along_axis(best, order, axis=1), axis=1)[truth.any(axis=1)]
    return np.asarray(np.mean([hits[:, :n].sum(axis=1) / n for n in (1, 3, 5)], axis=0), np.float64)


def _sample(Y: Any, askable: NDArray[np.int64], n_rows: int, seed: int) -> tuple[NDArray[np.int64], int]:
    """At most `n_rows` rows, and how many of them, at the end, are to be asked: up to half, after their companions.

    A companion is a row that shares one of the labels of a row to be asked.
    """
    random = np.random.default_rng(seed)
    drawn = random.permutation(askable)[: n_rows // 2]
    others = np.setdiff1d(np.arange(Y.shape[0]), drawn)
    if len(others) > n_rows - len(drawn):
        label = _one_of_each(Y, drawn, random)
        by_label, place = _rows_of(Y, label)
        companions = np.setdiff1d(_one_of_each(by_label, place, random), drawn)
        more = np.setdiff1d(random.permutation(others)[:n_rows], companions)
        others = np.concatenate([random.permutation(companions), random.permutation(more)])[: n_rows - len(drawn)]
    return np.concatenate([others, drawn]), len(drawn)


def _rows_of(Y: Any, labels: NDArray[np.int64]) -> tuple[Any, NDArray[np.int64]]:
    """The rows that carry some labels, CSR (some, n), and the place of each of `labels` in it."""
    some, place = np.unique(labels, return_inverse=True)
    line = np.full(Y.shape[1], -1, np.int64)
    line[some] = np.arange(len(some))
    found: list[NDArray[np.int64]] = []
    for rows in blocks(Y.shape[0], _ROW_BLOCK):
        part = row_slice(Y, rows)
        lines = line[part.indices]
        kept = np.flatnonzero(lines >= 0)
        row = rows.start + np.searchsorted(part.indptr, kept, side="right") - 1
        found.append(np.stack([lines[kept], row]))
        release(part.indices)
    of_label, row = np.concatenate(found, axis=1)
    order = np.argsort(of_label, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(of_label, minlength=len(some)))])
    return csr_of(np.ones(len(order), bool), row[order], ends, Y.shape[0]), place


def _one_of_each(matrix: Any, rows: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """A random column of those that each of these rows of a CSR matrix has."""
    first, length = matrix.indptr[:-1][rows], np.diff(matrix.indptr)[rows]
    return np.asarray(matrix.indices[first + random.integers(1 << 30, size=len(rows)) % length], np.int64)
