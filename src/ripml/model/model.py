"""A fitted model as a value: vocabulary, feature weights, centres, clusters, decoder and calibration.

`scores` answers; `changed` and the methods for labels give the next value and never write into this one: readers keep
the version they hold, and undo, snapshots and rollback need no code of their own. What a fit *chooses* stays as it was
(the frozen parts): the centres, the weights of features, the kernel and the ridge, how neighbours are searched and how
many vote, the blend, the threshold and the calibration. What it *learns* from rows follows every change: the
regression, the label sets with their counts, the stored rows and the label frequencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base import registry
from ripml.base.errors import DataError, ParameterError
from ripml.base.workspace import release
from ripml.decoding import scores as scoring
from ripml.decoding.beyond import levels_of_labels
from ripml.decoding.calibration import Calibration
from ripml.decoding.evidence import FeatureRows, apart
from ripml.decoding.fitted import FittedDecoder
from ripml.decoding.label_set_index import wide
from ripml.labels.vocabulary import Vocabulary
from ripml.model.cluster import Cluster, ClusterChange, LabelledRows
from ripml.model.clustering import assign, nearest_centres
from ripml.model.decisions import Decisions
from ripml.model.features import Scaling, is_empty
from ripml.regression.kernels import Kernel

__all__ = ["Change", "Model", "no_changes"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_REFIT = 0.25  # share of the rows at the fit that came or went since from which a new fit is advised


def no_changes(n_rows: int, n_labels: int) -> dict[str, int]:
    """What has changed since a fit on so many rows and labels, right after it."""
    counted = dict.fromkeys(("learnt", "forgotten", "relabelled", "labels_added"), 0)
    return {"rows_at_fit": n_rows, "labels_at_fit": n_labels, **counted}


@dataclass(frozen=True)
class Change:
    """Rows as they were and as they are to be: features as the regression sees them, labels, CSR, and numbers.

    `together`, row i of both is the same row with other labels; else the first are forgotten and the second learnt.
    """

    before: LabelledRows
    after: LabelledRows
    vocabulary: Vocabulary  # all labels, also those that are new
    together: bool = False

    def reordered(self, order: Ints) -> Change:
        """With the labels in another order, which gives itself if it is applied twice."""
        vocabulary = self.vocabulary.kept(order)
        before, after = (rows.reordered(order) for rows in (self.before, self.after))
        return replace(self, before=before, after=after, vocabulary=vocabulary)


@dataclass(frozen=True)
class Model:
    """All that a fit found out."""

    vocabulary: Vocabulary
    scaling: Scaling
    centres: NDArray[Any]  # (C, d)
    clusters: tuple[Cluster, ...]
    decoder: FittedDecoder
    calibration: Calibration
    kernel: Kernel
    relevance: float  # the power of the features' relevance
    solutions: tuple[dict[str, Any], ...]  # for each cluster, how its regression was solved
    seed: int
    n_rows: int
    n_unlabelled: int
    n_seen: int  # rows ever learnt
    changes: dict[str, int]
    structure: dict[str, str]  # settings that the fit depends on, as text
    compact: bool = False  # it has only what answers need
    n_repeated: int = 0  # rows of the fit that repeated the features of an earlier one
    decisions: Decisions | None = None  # on some labels of further rows

    @property
    def frequency(self) -> Ints:
        """(L,) training rows of each label."""
        return self.decoder.frequency

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.centres.shape[1])

    @property
    def has_fixed_columns(self) -> bool:
        """Whether Phi has a fixed number of columns, so that a new label may take the column of one that is gone."""
        embedding = self.decoder.embedding
        fixed = embedding.projection.ensemble.capacity(embedding.projection.n_dims) is not None
        return fixed and not embedding.own_dimensions

    # ---------------------------------------------------------------------------------------------------------- answers

    def features(self, X: Any) -> Any:
        """Valid feature rows as the regression sees them: in its type, scaled and weighted."""
        X, evidence = apart(X)
        X = self.scaling(X, self.decoder.embedding.feature_type)
        return X if evidence is None or self.decoder.names is None else FeatureRows(X, evidence)

    def nearest_clusters(self, X: Any, n_probe: int, n_jobs: int | None) -> Ints:
        """The clusters near to each row, (n, p), nearest first, of those that have rows."""
        if len(self.clusters) == 1:
            return np.zeros((X.shape[0], 1), np.int64)
        occupied = np.flatnonzero([cluster.n_sets > 0 for cluster in self.clusters])
        if len(occupied) == len(self.clusters):
            return nearest_centres(X, self.centres, n_probe, n_jobs)
        return np.asarray(occupied[nearest_centres(X, self.centres[occupied], n_probe, n_jobs)])

    def scores(self, X: Any, n_jobs: int | None = None, n_probe: int = 1) -> Any:
        """Scores, CSR (n, L), of valid feature rows: of the candidate labels of each row only.

        A row whose features are all zero says nothing, so it has no score at all.
        """
        if not self.n_rows:  # all of them were forgotten
            return scipy.sparse.csr_array((X.shape[0], len(self.vocabulary)))
        X = self.features(X)
        scores, nearest = self._undecided(X, n_jobs, n_probe)
        if self.decisions is not None:
            scores = self.decisions.corrected(scores, self.clusters, apart(X)[0], nearest, n_jobs)
        retired = self.vocabulary.retired
        return scoring.without_labels(scores, retired) if retired.any() else scores

    def levels(self, X: Any, weights: Any) -> NDArray[np.float64]:
        """How likely each label is beyond the candidates of a few valid feature rows, (n, L); see `decoding.beyond`."""
        X, _ = apart(self.features(X))
        near = self.nearest_clusters(X, 1, 1)[:, 0]
        levels = np.empty((X.shape[0], len(self.vocabulary)))
        for c in np.unique(near):
            rows = np.flatnonzero(near == c)
            around = self.decoder.surroundings(self.clusters[c], X[rows])
            levels[rows] = levels_of_labels(weights, around, self.frequency)
        return levels

    def _undecided(self, X: Any, n_jobs: int | None, n_probe: int = 1) -> tuple[Any, Ints]:
        """The scores, CSR (n, L), of features as the regression sees them without decisions, and the nearest clusters.

        A row without features has no cluster, −1.
        """
        features, _ = apart(X)
        near = self.nearest_clusters(features, n_probe, n_jobs)
        near[is_empty(features)] = -1
        return self.decoder.scores(self.clusters, X, near, n_jobs), near[:, 0]

    # ------------------------------------------------------------------------------------------------------- decisions

    def decided(self, decisions: Decisions, vocabulary: Vocabulary, n_jobs: int | None) -> Model:
        """The model with more decisions, on labels of this vocabulary."""
        if not all(cluster.regression.ridge > 0 for cluster in self.clusters):
            raise ParameterError("`ridge` must be above 0 for decisions on some labels; fit again with a larger one.")
        model = self.grown(vocabulary, np.pad(self.frequency, (0, len(vocabulary) - len(self.frequency))), 0)
        model = model.prepared(n_jobs) if model.n_rows else model
        added = model._measured(decisions, n_jobs)
        known = added if model.decisions is None else model.decisions.followed_by(added)
        return replace(model, decisions=known.weighed(model.clusters, n_jobs) if model.n_rows else known)

    def undecided(self, decisions: Decisions, n_jobs: int | None) -> Model:
        """The model without these decisions."""
        known = self.decisions
        if known is None:
            raise DataError("there is no decision that could be withdrawn.")
        left = known.without(decisions)
        if not len(left):
            return replace(self, decisions=None)
        return replace(self, decisions=left.weighed(self.clusters, n_jobs) if self.n_rows else left)

    def _measured(self, decisions: Decisions, n_jobs: int | None) -> Decisions:
        """Decisions compared with the training rows that there are now."""
        if not self.n_rows:
            return decisions.without_rows()
        scores, nearest = self._undecided(decisions.rows, n_jobs)
        return decisions.measured(self.clusters, nearest, scores)

    # ------------------------------------------------------------------------------------------------- rows come and go

    def check_exact(self) -> None:
        """Raise where a change cannot be exact: the regression was not solved to the end, or is all that is left."""
        if self.compact:
            raise ParameterError(
                "this model was saved compact, for answers only, so it cannot learn or forget; "
                "load one that was saved without compact, or fit again."
            )
        word = self._inexact_solver
        if word is not None:
            raise ParameterError(
                f"solver={word!r} stops short of the exact solution, so rows cannot be learnt or forgotten exactly; "
                "fit with solver='primal' or 'dual', or kernel='rbf', which do. Of many texts, keep the most frequent "
                "words, as a Store does by itself: features=TfIdf(max_features=4000)."
            )

    @property
    def exact(self) -> bool:
        """Whether the regression was solved to the end, so that changes are exact."""
        return self._inexact_solver is None

    @property
    def _inexact_solver(self) -> str | None:
        words = [str(solution["solver"]) for solution in self.solutions]
        known = registry.words("solver")
        return next((word for word in words if word in known and not registry.named("solver", word).exact), None)

    def renumbered(self, order: Ints) -> Model:
        """With the row of number i as that of number `order[i]`."""
        return replace(self, clusters=tuple(cluster.renumbered(order) for cluster in self.clusters))

    def changed(self, change: Change, n_jobs: int | None = None) -> Model:
        """The model after rows were learnt, forgotten or relabelled: that of a fit on the rows there are now.

        Where labels that no row carries have names, the labels that rows carry now take columns before all of these.
        """
        self.check_exact()
        order = self._carried_first(change)
        if order is not None:
            return self._reordered(change.vocabulary, order).changed(change.reordered(order), n_jobs)
        vocabulary = change.vocabulary
        before, said_before = change.before.apart()
        after, said_after = change.after.apart()
        Y_before, Y_after = wide(before.Y, len(vocabulary)), after.Y
        leaves, arrives = np.diff(Y_before.indptr) > 0, np.diff(Y_after.indptr) > 0
        moves = leaves & arrives if change.together else np.zeros(0, bool)
        forgotten = np.flatnonzero(leaves & ~moves if change.together else leaves)
        learnt = np.flatnonzero(arrives & ~moves if change.together else arrives)
        moved = np.flatnonzero(moves)
        frequency = np.zeros(len(vocabulary), np.int64)
        frequency[: len(self.frequency)] = self.frequency
        np.add.at(frequency, Y_after.indices, 1)
        np.subtract.at(frequency, Y_before.indices, 1)
        numbers = self.n_seen + np.arange(len(learnt))
        old, new = (assign(rows.X, self.centres, n_jobs) for rows in (before, after))
        # First everything is found that can be wrong with rows or labels.
        planned, clusters = [], list(self.clusters)
        for c in np.union1d(old[np.concatenate([forgotten, moved])], new[learnt]).tolist():
            gone, same = forgotten[old[forgotten] == c], moved[old[moved] == c]
            came = learnt[new[learnt] == c]
            part = ClusterChange(
                LabelledRows(_taken(before.X, gone), _taken(Y_before, gone), before.numbers[gone]),
                LabelledRows(_taken(before.X, same), _taken(Y_before, same), before.numbers[same]),
                _taken(Y_after, same),
                LabelledRows(_taken(after.X, came), _taken(Y_after, came), numbers[new[learnt] == c]),
            )
            located = clusters[c].located(vocabulary.keys)
            planned.append((c, part, located.plan(part, vocabulary.keys)))
            clusters[c] = located.prepared(self.decoder.embedding, n_jobs)
        model = replace(self, clusters=tuple(clusters)).grown(
            vocabulary, frequency, int(Y_after.indices.max(initial=-1)) + 1
        )
        decoder = model.decoder
        if decoder.names is not None:
            names = decoder.names.changed(said_after, Y_after, 1).changed(said_before, Y_before, -1)
            decoder = decoder.with_names(names)
        clusters, decisions = list(model.clusters), self._with_clusters(model.clusters).decisions
        for c, part, plan in planned:
            mark = None if decisions is None else clusters[c].regression.mark()
            clusters[c] = clusters[c].changed(part, plan, model.decoder.embedding, n_jobs)
            if decisions is not None and decisions.terms and clusters[c].n_sets:
                decisions = decisions.moved(c, clusters[c], mark)
        counts = {"learnt": len(learnt), "forgotten": len(forgotten), "relabelled": len(moved)}
        changed = replace(
            model,
            clusters=tuple(clusters),
            decoder=decoder,
            n_rows=self.n_rows + len(learnt) - len(forgotten),
            n_seen=self.n_seen + len(learnt),
            n_unlabelled=max(0, self.n_unlabelled + int((~arrives).sum()) - int((~leaves).sum())),
            changes={name: count + counts.get(name, 0) for name, count in model.changes.items()},
        )
        if decisions is None or not changed.n_rows:
            return replace(changed, decisions=None if decisions is None else changed._measured(decisions, n_jobs))
        changed = replace(changed, decisions=None).prepared(n_jobs)  # also the clusters where no row came or went
        return replace(changed, decisions=changed._measured(decisions, n_jobs).weighed(changed.clusters, n_jobs))

    def _carried_first(self, change: Change) -> Ints | None:
        """The order of columns in which labels that get their first row follow the others that have a target.

        They have a target of their own where the embedding is Y itself, and all labels before them have one, too: that
        would be as many as a vocabulary has. None where the order is right.
        """
        embedding = self.decoder.embedding
        if self.decoder.names is None or not embedding.own_dimensions:
            return None
        carried = np.unique(change.after.Y.indices).astype(np.int64)
        new = carried[carried >= embedding.n_targets]
        places = embedding.n_targets + np.arange(len(new))
        moved, free = np.setdiff1d(new, places), np.setdiff1d(places, new)
        if not len(moved):
            return None
        order = np.arange(len(change.vocabulary))
        order[free], order[moved] = moved, free
        return order

    def _reordered(self, vocabulary: Vocabulary, order: Ints) -> Model:
        """For the labels of a vocabulary in another order, in which only labels without a target change places."""
        more = np.zeros(len(vocabulary) - len(self.vocabulary), np.int64)
        grown = self.grown(vocabulary, np.concatenate([self.frequency, more]), 0)
        vocabulary, embedding = vocabulary.kept(order), grown.decoder.embedding
        decoder = grown.decoder.kept(embedding.reordered(order), order)
        decisions = None if self.decisions is None else self.decisions.renumbered(order)
        calibration = grown.calibration.kept(order)
        return replace(grown, vocabulary=vocabulary, decoder=decoder, decisions=decisions, calibration=calibration)

    def prepared(self, n_jobs: int | None) -> Model:
        """The same model with all that its first change needs made now."""
        self.check_exact()
        clusters = tuple(cluster.prepared(self.decoder.embedding, n_jobs) for cluster in self.clusters)
        for cluster in clusters:
            cluster.regression.warm()
        return self._with_clusters(clusters)

    def _with_clusters(self, clusters: tuple[Cluster, ...]) -> Model:
        """With the same clusters in another state."""
        decisions = None if self.decisions is None else self.decisions.compacted(self.clusters, clusters)
        return replace(self, clusters=clusters, decisions=decisions)

    def prepare_rows(self) -> None:
        """Make now what answers need of sparse rows, and drop the memory pages of the rows if they are mapped."""
        for cluster in self.clusters:
            rows = cluster.searched_rows
            if rows is not None and scipy.sparse.issparse(X := rows.X.X):
                rows.X.prepare()
                release(X.data, X.indices)

    @property
    def n_unprepared(self) -> int:
        """The number of equations of the largest system that the next change would have to solve first."""
        waiting = [cluster.regression for cluster in self.clusters if cluster.regression.in_use is None]
        return max((regression.n_equations for regression in waiting), default=0)

    def emptied(self, n_jobs: int | None) -> Model:
        """The same frozen parts, and no row."""
        self.check_exact()
        return replace(
            self,
            clusters=tuple(cluster.emptied() for cluster in self.settled(n_jobs).clusters),
            decoder=self.decoder.emptied(),
            n_rows=0,
            n_unlabelled=0,
            n_repeated=0,
            n_seen=0,
            changes=no_changes(0, self.changes["labels_at_fit"]),
            decisions=None,
        )

    def settled(self, n_jobs: int | None) -> Model:
        """The same model at rest: without places of what was forgotten, and with all it needs to go on learning."""
        if self.compact:
            return self.answering()
        return self._with_clusters(tuple(cluster.settled(self.decoder.embedding, n_jobs) for cluster in self.clusters))

    def answering(self) -> Model:
        """The same model with only what answers need."""
        answering = self._with_clusters(tuple(cluster.answering() for cluster in self.clusters))
        return replace(answering, compact=True)

    def training_labels(self) -> Any:
        """The label sets that were learnt from, CSR (n_rows, L), one for each training row, in no particular order."""
        indexes = [cluster.index for cluster in self.clusters]
        rows = [index.sets[np.repeat(np.arange(len(index.counts)), index.counts)] for index in indexes]
        return scipy.sparse.vstack(rows, format="csr")

    @property
    def warm(self) -> dict[str, Any]:
        """What was learnt since the fit, and how far the regression is off its equations."""
        rows = sum(self.changes[name] for name in ("learnt", "forgotten", "relabelled"))
        share = rows / max(self.changes["rows_at_fit"], 1)
        regressions = [cluster.regression for cluster in self.clusters]
        return {
            **self.changes,
            "decided": 0 if self.decisions is None else len(self.decisions),
            "changed": share,
            "drift": max((regression.drift for regression in regressions), default=0.0),
            "refactorised": sum(regression.n_refactorised for regression in regressions),
            "refit_pays": share > _REFIT,
        }

    # ----------------------------------------------------------------------------------------------------------- labels

    def grown(self, vocabulary: Vocabulary, frequency: Ints, n_carried: int) -> Model:
        """With more labels; where the embedding is Y itself, with targets for the first `n_carried` labels at least."""
        added = len(vocabulary) - len(self.vocabulary)
        embedding = self.decoder.embedding
        if not embedding.own_dimensions:
            n_carried = 0
        elif n_carried > embedding.n_targets and self.decoder.names is None:
            n_carried = len(vocabulary)
        decoder = self.decoder.grown(vocabulary, frequency, n_carried)
        clusters, changes = self.clusters, self.changes
        if added:
            changes = {**changes, "labels_added": changes["labels_added"] + added}
            clusters = tuple(replace(c, index=c.index.with_labels(len(vocabulary))) for c in clusters)
        if decoder.embedding.n_targets > embedding.n_targets:
            clusters = tuple(cluster.widened(decoder.embedding.n_targets) for cluster in clusters)
            if embedding.searches_targets:
                clusters = tuple(cluster.embedded_again(decoder.embedding) for cluster in clusters)
        return replace(self, vocabulary=vocabulary, decoder=decoder, clusters=clusters, changes=changes)

    def with_labels(self, names: Any, keys: Sequence[int] | None = None, slots: Sequence[int] | None = None) -> Model:
        """With labels that no row carries yet; `keys` and `slots` as for `Vocabulary.added`."""
        vocabulary = self.vocabulary.added(names, keys, slots)
        more = np.zeros(len(vocabulary) - len(self.vocabulary), np.int64)
        return self.grown(vocabulary, np.concatenate([self.frequency, more]), 0)

    def without_labels(self, columns: Iterable[int], n_jobs: int | None) -> Model:
        """Without the labels of these columns, which no row carries, so that nothing is left of them."""
        places = np.array([*columns], np.int64)
        for place in places.tolist():
            if self.frequency[place]:
                name, count = self.vocabulary.names[place], int(self.frequency[place])
                raise DataError(f"the label {name!r} is carried by {count:,} rows; relabel or forget them first.")
        settled = self.settled(n_jobs)
        decisions = settled.decisions
        if decisions is not None and (named := np.intersect1d(places, decisions.labels)).size:
            name = self.vocabulary.names[named[0]]
            raise DataError(f"a decision names the label {name!r}; withdraw it first.")
        kept = np.setdiff1d(np.arange(len(self.vocabulary)), places)
        column = np.full(len(self.vocabulary), -1, np.int64)
        column[kept] = np.arange(len(kept))
        vocabulary, before = self.vocabulary.kept(kept), self.decoder.embedding
        decoder = self.decoder.kept(before.kept(vocabulary, kept), kept)
        clusters = [replace(cluster, index=cluster.index.renumbered(column, len(kept))) for cluster in settled.clusters]
        if before.own_dimensions:
            targets = kept[kept < before.n_targets]
            clusters = [
                replace(cluster, regression=cluster.regression.with_targets(targets)).embedded_again(decoder.embedding)
                for cluster in clusters
            ]
        decisions = None if decisions is None else decisions.renumbered(column)
        calibration = self.calibration.kept(kept)
        return replace(
            self,
            vocabulary=vocabulary,
            decoder=decoder,
            clusters=tuple(clusters),
            decisions=decisions,
            calibration=calibration,
        )

    def without_features(self, features: NDArray[np.bool_], n_jobs: int | None) -> Model:
        """With nothing left of features (d,), True for those that no row has any more, in what the rows add up to.

        Where columns are centred, all rows have all features.
        """
        if self.scaling.centre is not None:
            return replace(self)
        settled = self.settled(n_jobs)
        clusters = tuple(
            replace(cluster, regression=cluster.regression.cleared(features)) for cluster in settled.clusters
        )
        centres = np.where(features, self.centres.dtype.type(0), self.centres)
        return replace(settled, clusters=clusters, centres=centres)


def _taken(array: Any, rows: Ints) -> Any:
    """These rows, which are in order; all of them are not copied."""
    return array if len(rows) == array.shape[0] else array[rows]
