"""One cluster that learns and forgets rows: its regression by rank updates, its label sets by adding and removing.

    learn    (XᵀX + xxᵀ, XᵀZ + xzᵀ), another row of its label set, which is added if it is the first
    forget   the same, subtracted; a set that no row carries any more is not found any more
    relabel  XᵀZ + x(z' − z)ᵀ

A `PartWriter` belongs to one writer and holds what reading does not need: sums or factors in float64 (see
`linear_memory` and `kernel_memory`), and where each label set is. It makes a new `Part` of every change;
parts made before stay as they are, so that others read them meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import GrowingArray
from ripml.base.errors import DataError, ParameterError
from ripml.base.parallel import blocks
from ripml.base.products import dense
from ripml.labels.label_sets import fingerprints
from ripml.model.features import with_ones
from ripml.model.part import KeptRows, Part, as_stored, unit
from ripml.model.part_shapes import compacted, csr_of, wide
from ripml.regression import PackedSums, Sums
from ripml.regression.kernel_memory import DualMemory, KernelMemory
from ripml.regression.kernels import Linear, Rows
from ripml.regression.linear_memory import LinearMemory

__all__ = ["Change", "Embedding", "Labelled", "PartWriter"]

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
Memory = LinearMemory | KernelMemory
Mark = tuple[int, int, int]

_LIMIT = 12_000  # the side of the largest system, as for solver="auto"
_SMALL = 2_000  # features up to which sums are kept however few the rows are
_ALIKE = 1e-5  # by which the features of a row that is to be forgotten may differ from those that were learnt
_COMPARED = 1024  # rows at a time
_DEAD = 1024  # places of what was forgotten that are given back once they are more, and the greater part


@dataclass(frozen=True)
class Labelled:
    """Rows of one cluster: features (r, d) as the regression sees them, labels, CSR (r, L), and numbers (r,) among all
    rows ever learnt, −1 where they are not known."""

    X: Any
    Y: Any
    numbers: Ints

    def __len__(self) -> int:
        return int(self.Y.shape[0])


@dataclass(frozen=True)
class Change:
    """What happens to the rows of one cluster at once."""

    forgotten: Labelled
    relabelled: Labelled
    new_labels: Any  # CSR, of the relabelled rows
    learnt: Labelled


@dataclass(frozen=True)
class _Plan:
    """Where the rows that are there already are: their label sets, and their places where rows are kept."""

    forgotten: Ints
    relabelled: Ints
    forgotten_rows: Ints
    relabelled_rows: Ints


@dataclass(frozen=True)
class Embedding:
    """What labels become: targets of the regression, and what is searched."""

    keys: Keys  # of all labels
    targets: Callable[[Any], Any]  # labels, CSR ↦ (r, M), dense or CSR or factors
    searched: Callable[[Any], NDArray[np.float32]]  # label sets, CSR ↦ (F, r, m)


class PartWriter:
    """The one who changes a cluster; `plain` for the paper's votes: one searcher a learner, no intercept."""

    def __init__(self, part: Part, plain: bool, ridge: float, n_jobs: int | None) -> None:
        self._plain, self._ridge, self._n_jobs = plain, ridge, n_jobs
        self._memory: Memory | None = None
        self.half_way = False  # in a change, or left by one that failed
        self._turn = threading.RLock()  # of those who change it or look into it
        self._start(part)

    def _start(self, part: Part) -> None:
        """Take over a part in which nothing is forgotten."""
        self.part = part
        self._rows, self._set_of_row = part.rows, GrowingArray(part.set_of_row)
        if self._rows is None and isinstance(part.kept, KeptRows):
            self._rows, self._set_of_row = Rows(part.kept.X), GrowingArray(part.kept.set_of_row)
        self._row_numbers = GrowingArray(part.row_numbers)
        self._alive = np.ones(len(self._set_of_row.view), bool)
        self._Z = GrowingArray(part.Z if self._plain else unit(part.Z, part.index.storage), axis=1)
        self._ends, self._labels = (
            GrowingArray(part.sets.indptr.astype(np.int64)),
            GrowingArray(part.sets.indices.astype(np.int64)),
        )
        self._ones = GrowingArray(part.sets.data)
        self._recent: dict[Mark, int] = {}  # sets that came since, by their fingerprints
        self._known: tuple[Keys, Ints, Keys, Ints] | None = None  # fingerprints of the others, sorted, and numbers

    # ------------------------------------------------------------------------------------------------- where things are

    def _sets_of(self, marks: Sequence[Mark], keys: Keys) -> Ints:
        """The number of the label set of each fingerprint, −1 if no row of the part carries it."""
        if not marks:
            return np.empty(0, np.int64)
        if self._known is None:
            first, others, sizes = fingerprints(self.part.sets, keys)
            order = np.argsort(first, kind="stable")
            self._known = first[order], order, others[order], sizes[order]
        first, order, others, sizes = self._known
        counts = self.part.counts
        found = np.full(len(marks), -1, np.int64)
        for row, mark in enumerate(marks):
            number = self._recent.get(mark, -1)
            at = int(np.searchsorted(first, np.uint64(mark[0])))
            while number < 0 and at < len(first) and int(first[at]) == mark[0]:
                if int(others[at]) == mark[1] and int(sizes[at]) == mark[2] and counts[order[at]]:
                    number = int(order[at])
                at += 1
            found[row] = number if number >= 0 and counts[number] else -1
        return found

    def plan(self, change: Change, keys: Keys) -> _Plan:
        """Find the rows that are to be forgotten or relabelled; raises if one of them was never learnt."""
        away, moved = (self._sets_of(_marks(rows.Y, keys), keys) for rows in (change.forgotten, change.relabelled))
        numbers, counts = np.unique(np.concatenate([away, moved]), return_counts=True)
        if (numbers < 0).any() or (counts > self.part.counts[numbers]).any():
            raise DataError("a row to be forgotten or relabelled was never learnt: no row is left with these labels.")
        nothing = np.empty(0, np.int64)
        if self._rows is None:
            return _Plan(away, moved, nothing, nothing)
        taken: set[int] = set()
        places = [
            np.array([self._place(rows, i, number, taken) for i, number in enumerate(numbers)], np.int64)
            for rows, numbers in ((change.forgotten, away.tolist()), (change.relabelled, moved.tolist()))
        ]
        return _Plan(away, moved, *places)

    def _place(self, rows: Labelled, i: int, number: int, taken: set[int]) -> int:
        """The place of a row: with its features and label set, not taken, and of its number if that is known."""
        assert self._rows is not None
        there = (self._set_of_row.view == number) & self._alive
        if rows.numbers[i] >= 0 and self.part.rows is not None:
            there &= self._row_numbers.view == rows.numbers[i]
        x = rows.X[i : i + 1]
        allowed = _ALIKE * float(abs(x).max())
        candidates = np.flatnonzero(there)
        for some in blocks(len(candidates), _COMPARED):
            off = _distances(self._rows.take(candidates[some]), x)
            for place in candidates[some][np.argsort(off, kind="stable")[: np.count_nonzero(off <= allowed)]].tolist():
                if place not in taken:
                    taken.add(place)
                    return int(place)
        raise DataError(
            "a row to be forgotten or relabelled was never learnt: no row with these labels has its features."
        )

    # -------------------------------------------------------------------------------------------------------- changing

    def change(self, change: Change, plan: _Plan, embedding: Embedding, n_labels: int) -> Part:
        """The part after a change that was planned; one that shows to be impossible leaves everything as it was."""
        with self._turn:
            growing = (self._labels, self._ones, self._ends, self._Z)
            sizes = [array.size for array in growing]
            self.half_way = True
            try:
                part = self._changed(change, plan, embedding, n_labels)
            except DataError:  # by sums, before anything but these was touched
                for array, size in zip(growing, sizes, strict=True):
                    array.truncate(size)
                known = len(self.part.counts)
                self._recent = {mark: number for mark, number in self._recent.items() if number < known}
                self.half_way = not isinstance(self._memory, LinearMemory)
                raise
            self.half_way = False
            return part

    def _changed(self, change: Change, plan: _Plan, embedding: Embedding, n_labels: int) -> Part:
        part = self.part
        later = _joined(change.new_labels, change.learnt.Y)
        arriving, fresh = self._arrivals(later, embedding.keys)
        counts = np.concatenate([part.counts, np.zeros(len(fresh), np.int64)])
        leaving = np.concatenate([plan.forgotten, plan.relabelled])
        np.subtract.at(counts, leaving, 1)
        np.add.at(counts, arriving, 1)
        dead = np.unique(leaving)
        dead = dead[counts[dead] == 0]
        fresh_sets = later if len(fresh) == later.shape[0] else later[fresh]
        sets, Z, searchers = self._sets(fresh_sets, dead, embedding, n_labels)
        self._regress(change, plan, arriving, embedding)
        rows, alive = self._keep_rows(change, plan, arriving)
        Psi, intercept = self._coefficients(embedding)
        self.part = replace(
            part,
            Psi=Psi,
            intercept=intercept,
            Z=Z,
            sets=sets,
            counts=counts,
            rows=rows if part.rows is not None else None,
            set_of_row=self._set_of_row.view if part.rows is not None else part.set_of_row,
            row_numbers=self._row_numbers.view,
            alive=alive if part.rows is not None else None,
            kept=None,
            index_arrays=(),
        )
        made = {"searchers": searchers} if self._plain else {"searcher": searchers[0]} if searchers else {}
        vars(self.part).update(made, n_sets=part.n_sets + len(fresh) - len(dead))
        self._give_back(embedding)
        return self.part

    def _arrivals(self, later: Any, keys: Keys) -> tuple[Ints, Ints]:
        """The set of each row that arrives, and which of these rows are the first of their set."""
        marks = _marks(later, keys)
        found = self._sets_of(marks, keys)
        fresh: list[int] = []
        for row in np.flatnonzero(found < 0).tolist():
            number = self._recent.get(marks[row], -1)
            if number < len(self.part.counts):  # not one of those that came just now
                number = self._recent[marks[row]] = len(self.part.counts) + len(fresh)
                fresh.append(row)
            found[row] = number
        return found, np.array(fresh, np.int64)

    def _sets(self, new: Any, dead: Ints, embedding: Embedding, n_labels: int) -> tuple[Any, Any, list[Any]]:
        """All label sets, their embeddings and the searchers of these, with new sets and without dead ones."""
        part = self.part
        before = part.searchers if self._plain else [part.searcher] if part.Z.shape[2] else []
        if not new.shape[0] and not len(dead) and part.sets.shape[1] == n_labels:
            return part.sets, part.Z, before
        labels, ones = self._labels.append(new.indices), self._ones.append(new.data)
        sets = csr_of(ones, labels, self._ends.append(self._ends.view[-1] + new.indptr[1:]), n_labels)
        Z = embedding.searched(new)
        storage = part.index.storage
        Z = as_stored(Z, part.scale, storage)
        Z = self._Z.append(Z if self._plain else unit(Z, storage))  # as those that were fitted
        return sets, Z, [searcher.changed(of, dead) for searcher, of in zip(before, Z, strict=False)]

    def _keep_rows(self, change: Change, plan: _Plan, arriving: Ints) -> tuple[Rows | None, NDArray[np.bool_] | None]:
        if self._rows is None:
            return None, None
        n_moved = len(plan.relabelled)
        if n_moved:
            of = self._set_of_row.view.copy()
            of[plan.relabelled_rows] = arriving[:n_moved]
            self._set_of_row = GrowingArray(of)
        alive = np.concatenate([self._alive, np.ones(len(change.learnt), bool)])
        alive[plan.forgotten_rows] = False
        self._alive = alive
        if len(change.learnt):
            X = change.learnt.X
            sparse = scipy.sparse.issparse(self._rows.X)
            X = X if scipy.sparse.issparse(X) == sparse else scipy.sparse.csr_array(X) if sparse else X.toarray()
            self._rows = self._rows.followed_by(X.astype(self._rows.X.dtype))  # a copy: these may be the caller's
            self._set_of_row.append(arriving[n_moved:])
            if self.part.rows is not None:
                self._row_numbers.append(change.learnt.numbers)
        return self._rows, None if alive.all() else alive

    # ------------------------------------------------------------------------------------------------------ regression

    def prepare(self, embedding: Embedding) -> None:
        """Solve what has to be solved before the first change."""
        with self._turn:
            self._coefficients(embedding)

    def memory(self, embedding: Embedding) -> Memory:
        """What the regression is made of, from what the part kept of its rows."""
        if self._memory is None:
            self._memory = self._made_memory(embedding)
        return self._memory

    def _made_memory(self, embedding: Embedding) -> Memory:
        part = self.part
        n_targets = part.Psi.shape[1]
        if isinstance(part.kept, (Sums, PackedSums)):
            kept = part.kept if isinstance(part.kept, PackedSums) else PackedSums.of(part.kept)
            memory = LinearMemory(kept.unpacked(), self._ridge, kept.added_up)
            memory.widen(n_targets)
            return memory
        if self._rows is None:
            raise ParameterError(
                "this version of the model has nothing to learn on from; take the newest one, or fit again."
            )
        X, Y = self._rows.all(), wide(part.sets, len(embedding.keys))[self._set_of_row.view]
        if not isinstance(part.kernel, Linear):
            return KernelMemory(part.kernel, X, dense(embedding.targets(Y)), self._ridge, self._n_jobs)
        X = X if self._plain else with_ones(X)
        n, d = X.shape
        if d <= _LIMIT and (d <= n or d <= _SMALL):
            if part.rows is None:  # the sums are enough
                self._rows, self._set_of_row = None, GrowingArray(np.empty(0, np.int64))
            return LinearMemory.of(X, embedding.targets(Y), self._ridge, self._n_jobs)
        if n <= _LIMIT:
            return DualMemory(Linear(), X, dense(embedding.targets(Y)), self._ridge, self._n_jobs)
        raise ParameterError(
            f"n = {n:,} rows and d = {d:,} features are both above {_LIMIT:,}, too many to learn on exactly; use "
            "n_clusters, fewer features, or fit again."
        )

    def _regress(self, change: Change, plan: _Plan, arriving: Ints, embedding: Embedding) -> None:
        memory, Z, n_moved = self.memory(embedding), self._Z.view, len(plan.relabelled)
        with_intercept = isinstance(memory, (LinearMemory, DualMemory)) and not self._plain

        def targets(Y: Any, sets: Ints) -> Any:
            if self._plain and Z.dtype == np.float32:  # what is searched is what is learnt
                return Z[:, sets].transpose(1, 0, 2).reshape(len(sets), -1)
            return dense(embedding.targets(Y))

        def told(rows: Labelled, sets: Ints) -> tuple[Any, Any] | None:
            if not len(rows):
                return None
            return with_ones(rows.X) if with_intercept else rows.X, targets(rows.Y, sets)

        learnt = told(change.learnt, arriving[n_moved:])
        if isinstance(memory, LinearMemory):
            memory.change(learnt, told(change.forgotten, plan.forgotten))
        elif len(change.forgotten):
            memory.forget(plan.forgotten_rows)
        if before := told(change.relabelled, plan.relabelled):
            after = targets(change.new_labels, arriving[:n_moved])
            if isinstance(memory, LinearMemory):
                memory.retarget(before[0], after - before[1])
            else:
                memory.retarget(plan.relabelled_rows, after)
        if learnt is not None and not isinstance(memory, LinearMemory):
            memory.learn(*learnt)

    def adopt(self, part: Part) -> None:
        """Take the same part with more labels or targets for the one so far."""
        if part.Z is not self.part.Z:
            self._Z = GrowingArray(part.Z if self._plain else unit(part.Z, part.index.storage), axis=1)
        self.part = part

    def widen(self, n_targets: int) -> None:
        """Make room for more targets, which are zero so far."""
        with self._turn:
            if self._memory is not None:
                self._memory.widen(n_targets)

    def _coefficients(self, embedding: Embedding) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        memory = self.memory(embedding)
        if isinstance(memory, (LinearMemory, DualMemory)):
            Psi = memory.Psi.astype(np.float32)
            if not self._plain:
                return Psi[:-1], Psi[-1]
            return Psi, self.part.intercept
        return memory.coefficients.astype(np.float32), np.zeros(memory.coefficients.shape[1], np.float32)

    # ----------------------------------------------------------------------------------------------------- giving back

    def _give_back(self, embedding: Embedding) -> None:
        """Give back the places of what was forgotten, once they are the greater part."""
        n_sets, n_rows = len(self.part.counts), len(self._alive)
        few_sets = n_sets - self.part.n_sets > max(_DEAD, n_sets // 2)
        few_rows = self._rows is not None and n_rows - np.count_nonzero(self._alive) > max(_DEAD, n_rows // 2)
        if not (few_sets or few_rows):
            return
        memory = self.memory(embedding)
        part = compacted(replace(self.part, kept=self.kept()))
        if isinstance(memory, KernelMemory):
            memory.compact()
        self._start(part)
        self.part = replace(part, kept=None)
        self.part.prepare(self._plain)

    def kept(self) -> Sums | PackedSums | KeptRows | None:
        """What the newest part can go on learning from after it is saved, where that is not its rows."""
        if isinstance(self._memory, LinearMemory):
            with self._turn:
                self._memory.settle()
                return None if self.part.rows is not None else PackedSums.of(self._memory.sums, self._memory.added_up)
        if self.part.rows is None and self._rows is not None:
            return KeptRows(self._rows.take(np.flatnonzero(self._alive)), self._set_of_row.view[self._alive])
        return self.part.kept

    @property
    def drift(self) -> float:
        """How far the regression is off its equations, relative to their right side."""
        with self._turn:
            return 0.0 if self._memory is None or self.half_way else self._memory.drift()

    @property
    def n_refactorised(self) -> int:
        """How often the regression was factorised anew."""
        return 0 if self._memory is None else self._memory.n_refactorised


def _marks(Y: Any, keys: Keys) -> list[Mark]:
    """The fingerprint of each row's labels."""
    return list(zip(*(array.tolist() for array in fingerprints(Y, keys)), strict=True)) if Y.shape[0] else []


def _joined(one: Any, other: Any) -> Any:
    """Rows one after the other; SciPy takes its time to put nothing before something."""
    if not one.shape[0] or not other.shape[0]:
        return one if one.shape[0] else other
    return scipy.sparse.vstack([one, other], format="csr")


def _distances(X: Any, x: Any) -> NDArray[Any]:
    """max |x_j − x'_j| of each row of X with the one row x."""
    if scipy.sparse.issparse(X):
        difference = X - scipy.sparse.csr_array(scipy.sparse.vstack([scipy.sparse.csr_array(x)] * X.shape[0]))
        return np.asarray(abs(difference).max(axis=1).toarray(), np.float64).ravel()
    return np.asarray(abs(X - dense(x)).max(axis=1), np.float64)
