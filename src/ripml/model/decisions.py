"""Decisions on some labels of a row: accepted and rejected labels are learnt, all others of the row stay unknown.

With P_l the rows with a decision on label l, and y = 1 where it was accepted and 0 where it was rejected,

    s_l(x) ← s_l(x) + k̃(x, P_l) (k̃(P_l, P_l) + alpha I)⁻¹ (y − s_l(P_l)),

where s_l is the score without decisions and k̃ the posterior covariance of the ridge regression given the training rows,
see `Regression.posterior`. Where the score is the value of the regression itself, that is the ridge regression in which
the undecided labels of P are missing values, in the form of a Gaussian process that is conditioned on the decisions
after the training rows. The residual is that of the score, because a decision is about the score that a person saw.

Decisions are a set: what follows from them is computed from those that are there and from the training rows that are
there, so that neither the order nor what was withdrawn or forgotten since leaves a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.arrays import csr_of
from ripml.base.errors import DataError
from ripml.base.parallel import blocks, map_blocks, one_blas_thread
from ripml.base.products import dense
from ripml.decoding.evidence import Evidence, FeatureRows
from ripml.model.cluster import Cluster
from ripml.model.features import is_empty
from ripml.regression.kernels import Rows

__all__ = ["Decisions"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

_QUERIES = 256  # rows that are answered at a time
_LEAST = 1e-3  # score from which a label becomes a candidate by decisions alone
_SAME = 1e-5  # by which the features of a row may differ from those of the decision that is withdrawn


@dataclass(frozen=True)
class Decisions:
    """Rows (p, d) as the regression sees them; those of row i are decisions on labels[ends[i]:ends[i + 1]]."""

    X: Any
    evidence: Evidence | None
    ends: Ints  # (p + 1,)
    labels: Ints  # (pairs,) columns
    accepted: NDArray[np.bool_]  # (pairs,)
    cluster: Ints  # (p,) the nearest one
    scores: Doubles  # (pairs,) s_l of each row without decisions
    weights: Doubles  # (pairs,) (k̃ + alpha I)⁻¹(y − s)
    terms: tuple[Floats, ...] = ()  # of each cluster, what k̃ with its rows is made of

    @classmethod
    def of(cls, X: Any, evidence: Evidence | None, accepted: Any, rejected: Any) -> Decisions:
        """Rows X with labels, CSR (p, L), of which nothing follows yet."""
        signs = scipy.sparse.csr_array(accepted - rejected)
        signs.sort_indices()
        p, nothing = X.shape[0], np.zeros(signs.nnz)
        ends, labels = signs.indptr.astype(np.int64), signs.indices.astype(np.int64)
        own = X.copy()  # these may be the caller's
        return cls(own, evidence, ends, labels, signs.data > 0, np.zeros(p, np.int64), nothing, nothing)

    def __len__(self) -> int:
        return len(self.cluster)

    @property
    def rows(self) -> FeatureRows | Any:
        """The rows with their evidence."""
        return self.X if self.evidence is None else FeatureRows(self.X, self.evidence)

    # ------------------------------------------------------------------------------------------------- as a set

    def followed_by(self, other: Decisions) -> Decisions:
        """These and others; weights are those of each before."""
        sparse = scipy.sparse.issparse(self.X)
        X = _stacked(self.X, other.X) if sparse else np.vstack([self.X, dense(other.X)])
        evidence = self.evidence
        if evidence is not None and other.evidence is not None:
            evidence = evidence.followed_by(other.evidence)
        pairs = ("labels", "accepted", "cluster", "scores", "weights")
        joined: dict[str, Any] = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in pairs}
        return replace(
            self,
            X=X,
            evidence=evidence,
            ends=np.concatenate([self.ends, self.ends[-1] + other.ends[1:]]),
            terms=tuple(np.hstack(both) for both in zip(self.terms, other.terms, strict=True)),
            **joined,
        )

    def only(self, kept: NDArray[np.bool_]) -> Decisions:
        """Those on the rows of a mask; weights are those of all."""
        lengths = np.diff(self.ends)
        pairs = np.repeat(kept, lengths)
        left: dict[str, Any] = {
            name: getattr(self, name)[pairs] for name in ("labels", "accepted", "scores", "weights")
        }
        return replace(
            self,
            X=self.X[np.flatnonzero(kept)],
            evidence=None if self.evidence is None else self.evidence[np.flatnonzero(kept)],
            ends=np.concatenate([[0], np.cumsum(lengths[kept])]),
            cluster=self.cluster[kept],
            terms=tuple(terms[:, kept[self.cluster == c]] for c, terms in enumerate(self.terms)),
            **left,
        )

    def without(self, others: Decisions) -> Decisions:
        """Without these; DataError if one of them is not there."""
        kept = np.ones(len(self), bool)
        for i in range(len(others)):
            pairs = slice(*others.ends[i : i + 2])
            equal = (
                j
                for j, (start, end) in enumerate(pairwise(self.ends.tolist()))
                if kept[j]
                and np.array_equal(self.labels[start:end], others.labels[pairs])
                and np.array_equal(self.accepted[start:end], others.accepted[pairs])
                and _alike(self.X[j : j + 1], others.X[i : i + 1])
            )
            place = next(equal, None)
            if place is None:
                raise DataError(
                    f"decision {i} cannot be withdrawn: no such decision on a row of these features is known."
                )
            kept[place] = False
        return self.only(kept)

    def renumbered(self, column: Ints) -> Decisions:
        """With label l in the column `column[l]`, −1 for one that is dropped, which no decision names."""
        evidence = self.evidence
        if evidence is not None:
            evidence = evidence.only(column[evidence.labels] >= 0).renumbered(column)
        return replace(self, labels=column[self.labels], evidence=evidence)

    # ------------------------------------------------------------------------------------------- what follows from them

    def measured(self, clusters: Sequence[Cluster], nearest: Ints, scores: Any) -> Decisions:
        """Compared with the training rows: with the nearest cluster of each row, −1 for none, and its scores, CSR.

        Terms that are there already are those of these training rows.
        """
        row, cluster = np.repeat(np.arange(len(self)), np.diff(self.ends)), np.maximum(nearest, 0)
        terms = self.terms
        if not terms or not np.array_equal(cluster, self.cluster):
            parts = [np.flatnonzero(cluster == c) for c in range(len(clusters))]
            pairs = zip(clusters, parts, strict=True)
            terms = tuple(one.regression.posterior_terms(self.X[mine]) for one, mine in pairs)
        return replace(self, cluster=cluster, scores=_entries(scores, row, self.labels), terms=terms)

    def moved(self, c: int, cluster: Cluster, mark: Any) -> Decisions:
        """After a change of the training rows of cluster c, at whose begin its regression had this mark."""
        mine, terms = np.flatnonzero(self.cluster == c), list(self.terms)
        terms[c] = cluster.regression.followed_terms(self.X[mine], terms[c], mark)
        return replace(self, terms=tuple(terms))

    def without_rows(self) -> Decisions:
        """Where there is no training row, nothing follows from decisions."""
        return replace(self, weights=np.zeros(len(self.labels)), terms=())

    def weighed(self, clusters: Sequence[Cluster], n_jobs: int | None) -> Decisions:
        """With the weights that belong to these decisions together."""
        row, weights = np.repeat(np.arange(len(self)), np.diff(self.ends)), np.zeros(len(self.labels))
        filled = ~is_empty(self.X)
        for c in np.unique(self.cluster[filled]).tolist():
            mine = np.flatnonzero((self.cluster == c) & filled)
            place = np.full(len(self), -1)
            place[mine] = np.arange(len(mine))
            K = self._covariance(clusters[c], c, self.X[mine], n_jobs).astype(np.float64)[:, filled[self.cluster == c]]
            K = (K + K.T) / 2
            K[np.arange(len(K)), np.arange(len(K))] += clusters[c].regression.ridge
            pairs = np.flatnonzero(place[row] >= 0)
            pairs = pairs[np.argsort(self.labels[pairs], kind="stable")]
            for same in np.split(pairs, np.flatnonzero(np.diff(self.labels[pairs])) + 1):
                at = place[row[same]]
                weights[same] = np.linalg.solve(K[np.ix_(at, at)], self.accepted[same] - self.scores[same])
        return replace(self, weights=weights)

    def compacted(self, before: Sequence[Cluster], after: Sequence[Cluster]) -> Decisions:
        """For the same clusters `after` places of forgotten rows were given back."""
        terms = list(self.terms)
        for c, (old, new) in enumerate(zip(before, after, strict=True) if terms else ()):
            if new.regression.n_posterior_terms < old.regression.n_posterior_terms and old.rows is not None:
                terms[c] = terms[c][old.rows.alive]
        return replace(self, terms=tuple(terms))

    def corrected(self, scores: Any, clusters: Sequence[Cluster], X: Any, nearest: Ints, n_jobs: int | None) -> Any:
        """Scores, CSR (n, L), with what the decisions change; `nearest` is the cluster of each row, −1 for none."""
        data, place = scores.data.copy(), np.full(scores.shape[1], -1)
        place[self._columns] = np.arange(len(self._columns))
        parts = [(int(c), rows) for c in np.unique(self.cluster) for rows in [np.flatnonzero(nearest == c)]]
        tasks = [(c, rows[block]) for c, rows in parts for block in blocks(len(rows), _QUERIES)]

        def correct(task: tuple[int, Ints]) -> tuple[Ints, Ints, Doubles]:
            """Change the scores of some rows that are there; the row, label and score of others."""
            c, rows = task
            covariance = self._covariance(clusters[c], c, X if len(rows) == X.shape[0] else X[rows], 1)
            steps = np.ascontiguousarray((self._weights[c] @ covariance.T).T)
            lengths = np.diff(scores.indptr)[rows]
            row = np.repeat(np.arange(len(rows)), lengths)
            at = np.arange(len(row)) + np.repeat(scores.indptr[rows] - np.cumsum(lengths) + lengths, lengths)
            label = place[scores.indices[at]]
            row, at, label = row[label >= 0], at[label >= 0], label[label >= 0]
            data[at] = _in_range(data[at] + steps[row, label])
            steps[row, label] = 0
            more, column = np.nonzero(steps >= _LEAST)
            return rows[more], self._columns[column], _in_range(steps[more, column])

        _ = self._rows, self._weights  # made before threads need them
        with one_blas_thread():
            added = map_blocks(correct, tasks, n_jobs)
        row, label, values = (np.concatenate([part[i] for part in added]) if added else np.empty(0) for i in range(3))
        if not len(row):
            return csr_of(data, scores.indices, scores.indptr, scores.shape[1])
        row = np.concatenate([np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr)), row])
        label, values = np.concatenate([scores.indices, label]), np.concatenate([data, values])
        order = np.lexsort((label, row))
        ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=scores.shape[0]))])
        return scipy.sparse.csr_array((values[order], label[order], ends), shape=scores.shape)

    def _covariance(self, cluster: Cluster, c: int, X: Any, n_jobs: int | None) -> Floats:
        """k̃ of rows X with the rows of this cluster, (n, p_c)."""
        rows = None if cluster.rows is None else cluster.rows.X
        return cluster.regression.posterior(X, self._rows[c], self.terms[c], rows, n_jobs)

    @cached_property
    def _rows(self) -> list[Rows]:
        """The rows of each cluster."""
        return [Rows(self.X[np.flatnonzero(self.cluster == c)]) for c in range(len(self.terms))]

    @cached_property
    def _columns(self) -> Ints:
        """The labels that decisions name."""
        return np.unique(self.labels)

    @cached_property
    def _weights(self) -> list[Any]:
        """The weights in each cluster, CSR (labels, p_c)."""
        whole = csr_of(self.weights, np.searchsorted(self._columns, self.labels), self.ends, len(self._columns))
        return [whole[np.flatnonzero(self.cluster == c)].T.tocsr() for c in range(len(self.terms))]

    # ---------------------------------------------------------------------------------------------------------- state

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays."""
        found: dict[str, NDArray[Any]] = {
            "decided_ends": self.ends, "decided_labels": self.labels, "decided_accepted": self.accepted,
            "decided_cluster": self.cluster, "decided_scores": self.scores, "decided_weights": self.weights,
            "decided_terms": np.concatenate([np.empty(0, np.float32), *(terms.ravel() for terms in self.terms)]),
        }  # fmt: skip
        if scipy.sparse.issparse(self.X):
            found |= {f"decided_rows_{part}": getattr(self.X, part) for part in ("data", "indices", "indptr")}
        else:
            found["decided_rows"] = self.X
        if self.evidence is not None:
            found |= {f"decided_names_{part}": getattr(self.evidence, part) for part in ("ends", "labels", "signals")}
        return found


def _stacked(one: Any, other: Any) -> Any:
    """Rows one after the other, CSR."""
    return scipy.sparse.vstack([scipy.sparse.csr_array(one), scipy.sparse.csr_array(other)], format="csr")


def _in_range(scores: Doubles) -> Doubles:
    return np.clip(np.round(scores.astype(np.float64), 6), 0, 1)


def _entries(scores: Any, row: Ints, label: Ints) -> Doubles:
    """The scores, CSR with sorted indices, at these places, 0 where there is none."""
    L = max(scores.shape[1], 1)
    places = np.repeat(np.arange(scores.shape[0], dtype=np.int64), np.diff(scores.indptr)) * L + scores.indices
    found = np.searchsorted(places, row * L + label)
    there = found < len(places)
    there[there] = places[found[there]] == (row * L + label)[there]
    values = np.zeros(len(row))
    values[there] = scores.data[found[there]]
    return values


def _alike(x: Any, other: Any) -> bool:
    """Whether two rows (1, d) have the same features up to rounding."""
    one, two = dense(x), dense(other)
    return bool((np.abs(one - two) <= _SAME * np.abs(two).max()).all())
