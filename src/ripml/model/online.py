"""Learning, forgetting and new labels while a model is in use: each exactly as if all rows had been fitted at once.

What a fit *chooses* stays as it was, the frozen parts: the centres of clusters, the weights of features, the kernel and
the ridge, how neighbours are searched and how many vote, the blend, the threshold and the calibration. What it *learns*
from rows follows every change: the regression, the label sets with their counts, the stored rows, how often each label
was seen. A new fit refreshes the frozen parts; `warm_` says when that pays.

Every version of a model stays as it is: an update gives the model new arrays and never writes into old ones, and all of
them at once, so that others read the model, or a copy of it (`copy.copy`), meanwhile. One writer at a time changes a
model, and only its newest version can learn on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ripml.base.errors import DataError, ParameterError, RipmlError
from ripml.base.parallel import one_blas_thread
from ripml.decoding.decoders import Votes, resolve_decoder
from ripml.labels.ensembles import Ensemble, Identity
from ripml.labels.projection import Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.model.clustering import assign
from ripml.model.multilabel import Multilabel
from ripml.model.part import Decode, KeptRows, Part, unit
from ripml.model.part_shapes import cleared, compacted, csr_of, emptied, smaller_as_sums, wide, widened, with_targets
from ripml.model.reading import decode_of, for_more_labels, searchable, targets_of
from ripml.model.updating import Change, Embedding, Labelled, PartWriter
from ripml.regression.kernels import Linear

__all__ = ["Online", "no_changes"]

Ints = NDArray[np.int64]
Self = TypeVar("Self", bound="Online")

_FEW = 16  # rows
_CHANGED = 0.25  # share of the rows at the fit that came or went since from which a new fit is advised


def no_changes(n_rows: int, n_labels: int) -> dict[str, int]:
    """What has changed since a fit on so many rows and labels, right after it."""
    counted = dict.fromkeys(("learnt", "forgotten", "relabelled", "labels_added"), 0)
    return {"rows_at_fit": n_rows, "labels_at_fit": n_labels, **counted}


class Online(Multilabel):
    """An estimator whose parts change with every row that is learnt or forgotten."""

    n_learners: int
    decoder: Any
    parts_: list[Part]
    labels_: Vocabulary
    decode_: Decode
    centres_: NDArray[Any]
    ridge_: NDArray[np.float64]
    solutions_: list[dict[str, Any]]
    ensemble_: Ensemble
    n_dims_: int
    seed_: int
    n_seen_: int
    chosen_: dict[str, Any]
    changes_: dict[str, int]
    _writers: Mapping[int, PartWriter]

    # ------------------------------------------------------------------------------------------ learning and forgetting

    def partial_fit(self: Self, X: Any, Y: Any, label_names: Sequence[str] | None = None) -> Self:
        """Learn more rows: the model is that of a fit on all rows, with the frozen parts as they were.

        X and Y are as for `fit`; label names that are new become labels. A model that was never fitted is fitted. A
        call that fails leaves the model as it was.

        >>> from ripml import RIPML
        >>> model = RIPML.paper(n_dims=50, n_neighbors=1, random_state=0).fit(np.eye(3), [["tea"], ["ice"], ["hot"]])
        >>> model = model.partial_fit([[1, 1, 0]], [["tea", "cold"]])
        >>> sorted(name for name, score in model.recommend([[1, 1, 0]])[0])
        ['cold', 'tea']
        """
        if not hasattr(self, "parts_"):
            return self.fit(X, Y, label_names)
        if label_names is not None:
            raise ParameterError("`label_names` names the columns at the first fit; later labels come by name in Y.")
        return self._change(None, (X, Y))

    def forget(self: Self, X: Any, Y: Any, rows: Sequence[int] | None = None) -> Self:
        """Forget rows that were learnt: the model is that of a fit that never saw them.

        X and Y are the features and labels they were learnt with. Rows that were never learnt are an error, as far as
        that can be told: a model that keeps sums only knows the label sets of its rows and not their features. Where
        rows are stored, `rows` may say by their numbers which of several equal ones are meant; see `n_seen_`.

        >>> from ripml import RIPML
        >>> X, Y = np.eye(3), [["tea"], ["ice"], ["hot"]]
        >>> model = RIPML.paper(n_dims=50, n_neighbors=1, ridge=0.1, random_state=0).fit(X, Y).forget(X[2:], Y[2:])
        >>> model.n_rows_, "hot" in dict(model.recommend(X[2:])[0])
        (2, False)
        """
        return self._change((X, Y), None, rows=rows)

    def relabel(self: Self, X: Any, Y: Any, new_Y: Any, rows: Sequence[int] | None = None) -> Self:
        """Give other labels to rows that were learnt with labels Y; `rows` as for `forget`.

        >>> from ripml import RIPML
        >>> X, Y = np.eye(3), [["tea"], ["ice"], ["hot"]]
        >>> model = RIPML.paper(n_dims=50, n_neighbors=1, ridge=0.1, random_state=0).fit(X, Y)
        >>> model.relabel(X[2:], Y[2:], [["cold"]]).recommend(X[2:])
        [[('cold', 1.0)]]
        """
        return self._change((X, Y), (X, new_Y), together=True, rows=rows)

    def _change(self: Self, before: Any, after: Any, together: bool = False, rows: Sequence[int] | None = None) -> Self:
        """Forget the rows (X, Y) `before` and learn those `after`; `together`, they are the same rows."""
        check_is_fitted(self, "parts_")
        # A few rows change by small products, which threads do not speed up.
        n_rows = sum(_length(given[1]) for given in (before, after) if given is not None)
        few = n_rows <= _FEW and all(isinstance(part.kernel, Linear) for part in self.parts_)
        with self._next_version() as model, one_blas_thread() if few else nullcontext():
            model._check_unchanged()
            model._check_exact()
            X_old, Y_old, labels = model._rows(before)
            if len(labels) > len(model.labels_):
                name = labels.names[len(model.labels_)]
                raise DataError(f"a row with the label {name!r} was never learnt: the model does not know that label.")
            X_new, Y_new, labels = model._rows(after)
            if together and Y_old.shape[0] != Y_new.shape[0]:
                raise DataError(
                    f"Y has {Y_old.shape[0]} rows and new_Y has {Y_new.shape[0]}; they must have the same number."
                )
            known = np.full(Y_old.shape[0], -1) if rows is None else np.asarray(rows)
            if known.shape != (Y_old.shape[0],) or known.dtype.kind not in "iu":
                raise DataError(f"`rows` must be one whole number for each of the {Y_old.shape[0]} rows; got {rows!r}.")
            old = (X_old, wide(Y_old, len(labels)), known.astype(np.int64))
            model._apply(old, (X_new, Y_new), labels, together)
        return self

    @contextmanager
    def _next_version(self: Self) -> Iterator[Self]:
        """A copy to be changed, which then takes the place of what is here, all at once and only if nothing failed."""
        check_is_fitted(self, "parts_")
        model = self.__copy__()
        yield model
        self.__dict__ = model.__dict__

    def _rows(self, given: Any) -> tuple[Any, Any, Vocabulary]:
        """Features as the regression sees them, labels (CSR), and all labels, also those that are new."""
        labels = self.labels_
        if given is None:
            nothing = scipy.sparse.csr_array((0, self.n_features_in_), dtype=np.float32)
            return nothing, scipy.sparse.csr_array((0, len(labels)), dtype=np.float32), labels
        X, Y = given
        X = self._seen(self._validated(X, reset=False))
        encoded, labels = labels.encode(Y)
        if X.shape[0] != encoded.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and Y has {encoded.shape[0]}; they must have the same number.")
        return X, encoded, labels

    def _apply(self, old: tuple[Any, Any, Ints], new: tuple[Any, Any], labels: Vocabulary, together: bool) -> None:
        """Take rows from what they were to what they are; `together`, row i of both is the same row.

        Rows as they were come with their numbers, −1 where these are not known.
        """
        L = len(labels)
        n_targets = self.parts_[0].Psi.shape[1]
        Y_old, Y_new = old[1], new[1]
        leaves, arrives = np.diff(Y_old.indptr) > 0, np.diff(Y_new.indptr) > 0
        moves = leaves & arrives if together else np.zeros(0, bool)
        away = np.flatnonzero(leaves & ~moves if together else leaves)
        more = np.flatnonzero(arrives & ~moves if together else arrives)
        moved = np.flatnonzero(moves)
        self.n_unlabelled_ = max(0, self.n_unlabelled_ + int((~arrives).sum()) - int((~leaves).sum()))
        frequency = np.zeros(L, np.int64)
        frequency[: len(self.frequency_)] = self.frequency_
        np.add.at(frequency, Y_new.indices, 1)
        np.subtract.at(frequency, Y_old.indices, 1)
        numbers = self.n_seen_ + np.arange(len(more))
        cluster_old, cluster_new = (assign(X, self.centres_, self.n_jobs) for X in (old[0], new[0]))
        work, writers, before = [], dict(self._writers), self._embedding(n_targets)
        for c in np.union1d(cluster_old[np.concatenate([away, moved])], cluster_new[more]).tolist():
            gone, same = away[cluster_old[away] == c], moved[cluster_old[moved] == c]
            came = more[cluster_new[more] == c]
            change = Change(
                Labelled(_taken(old[0], gone), _taken(Y_old, gone), old[2][gone]),
                Labelled(_taken(old[0], same), _taken(Y_old, same), old[2][same]),
                _taken(Y_new, same),
                Labelled(_taken(new[0], came), _taken(Y_new, came), numbers[cluster_new[more] == c]),
            )
            writers[c] = self._writer(c, writers)
            work.append((c, change, writers[c].plan(change, labels.keys)))
            writers[c].memory(before)
        # What can be wrong with rows or labels was found by now; from here on writers change.
        self._writers = writers
        self._grow(labels, frequency, int(Y_new.indices.max(initial=-1)) + 1)
        embedding = self._embedding(self.parts_[0].Psi.shape[1])
        if self.parts_[0].Psi.shape[1] > n_targets:
            for c, writer in writers.items():
                if writer.part is self.parts_[c]:
                    writer.widen(self.parts_[0].Psi.shape[1])
        parts = list(self.parts_)
        for c, change, plan in work:
            parts[c] = writers[c].change(change, plan, embedding, L)
        self.parts_ = parts
        self.n_rows_ += len(more) - len(away)
        self.n_seen_ += len(more)
        for name, count in (("learnt", len(more)), ("forgotten", len(away)), ("relabelled", len(moved))):
            self.changes_ = {**self.changes_, name: self.changes_[name] + count}

    def _writer(self, c: int, writers: Mapping[int, PartWriter]) -> PartWriter:
        writer = self._current(c, writers)
        if writer is None:
            part = compacted(self.parts_[c])
            writer = PartWriter(part, self._plain, float(self.ridge_[c]), self.n_jobs)
            self.parts_ = [*self.parts_[:c], part, *self.parts_[c + 1 :]]
        return writer

    def _current(self, c: int, writers: Mapping[int, PartWriter]) -> PartWriter | None:
        """Who wrote the part of a cluster, if it is the newest; one that failed half way is none."""
        writer = writers.get(c)
        return None if writer is None or writer.part is not self.parts_[c] or writer.half_way else writer

    @property
    def _plain(self) -> bool:
        return isinstance(resolve_decoder(self.decoder), Votes)

    def _embedding(self, n_targets: int) -> Embedding:
        how, labels = self.decode_, self.labels_
        if not self._plain:
            return Embedding(
                labels.keys,
                lambda Y: targets_of(Y[:, :n_targets] if how.exact else Y, how, n_targets).astype(np.float64),
                lambda sets: searchable(sets, how, n_targets)[None],
            )
        projection = how.columns.projection
        keys = labels.column_keys(projection.ensemble, projection.n_dims)

        def searched(sets: Any) -> NDArray[np.float32]:
            Z = projection.embed(sets, keys, 1)
            return np.ascontiguousarray(Z.reshape(len(Z), projection.n_learners, projection.n_dims).transpose(1, 0, 2))

        return Embedding(labels.keys, lambda Y: projection.embed(Y, keys, self.n_jobs), searched)

    def warm_up(self: Self) -> Self:
        """Make now what the first change needs, so that it is as quick as the others; no answer changes.

        Of a kernel on n rows that is the factor of its matrix: n³/3 multiplications, and 8n² bytes.
        """
        with self._next_version() as model:
            model._check_exact()
            embedding, writers = model._embedding(model.parts_[0].Psi.shape[1]), dict(model._writers)
            for c in range(len(model.parts_)):
                writers[c] = model._writer(c, writers)
                writers[c].prepare(embedding)
            model._writers = writers
        return self

    def _check_exact(self) -> None:
        """Raise where the regression was not solved to the end: then nothing can be added to it exactly."""
        for solution, part in zip(self.solutions_, self.parts_, strict=True):
            if solution["solver"] in ("cg", "gd") and isinstance(part.kernel, Linear):
                raise ParameterError(
                    f"solver={solution['solver']!r} stops short of the exact solution, so that rows cannot be learnt "
                    "or forgotten exactly; fit with solver='primal' or 'dual', or kernel='rbf', which do."
                )

    # ----------------------------------------------------------------------------------------------------------- labels

    def add_labels(self: Self, names: Iterable[Any], keys: Sequence[int] | None = None) -> Self:
        """Add labels that no row carries yet; no score of any other label changes by a bit.

        `keys` are 64-bit numbers that their columns of Phi are made from, in place of those made of their names.

        >>> from ripml import RIPML
        >>> model = RIPML(random_state=0).fit(np.eye(3), [["tea"], ["ice"], ["hot"]]).add_labels(["cold"])
        >>> model.classes_.tolist()
        ['hot', 'ice', 'tea', 'cold']
        """
        with self._next_version() as model:
            labels = self.labels_.added(names if isinstance(names, str) else list(names), keys)
            frequency = np.concatenate([self.frequency_, np.zeros(len(labels) - len(self.labels_), np.int64)])
            model._grow(labels, frequency, 0)
        return self

    def rename_label(self: Self, old: Any, new: Any) -> Self:
        """Give a label another name; it stays the same label, and no score changes."""
        with self._next_version() as model:
            model.labels_ = self.labels_.renamed(old, new)
            model.classes_ = model.labels_.names
        return self

    def retire_label(self: Self, name: Any) -> Self:
        """Suggest a label no more. Rows keep it, and other scores stay as they are."""
        check_is_fitted(self, "parts_")
        self.labels_ = self.labels_.with_retired(name, True)
        return self

    def reinstate_label(self: Self, name: Any) -> Self:
        """Suggest a retired label again."""
        check_is_fitted(self, "parts_")
        self.labels_ = self.labels_.with_retired(name, False)
        return self

    def drop_labels(self: Self, names: Iterable[Any]) -> Self:
        """Drop labels that no row carries, so that nothing is left of them."""
        check_is_fitted(self, "parts_")
        places = np.array([self.labels_.column_of(name) for name in names], np.int64)
        carried = [place for place in places.tolist() if self.frequency_[place]]
        if carried:
            name, count = self.labels_.names[carried[0]], int(self.frequency_[carried[0]])
            raise DataError(f"the label {name!r} is carried by {count:,} rows; relabel or forget them first.")
        with self._next_version() as model:
            model._keep_labels(np.setdiff1d(np.arange(len(self.labels_)), places))
        return self

    def clear_features(self: Self, features: NDArray[np.bool_]) -> Self:
        """Let nothing be left of features (d,), True for those that no row has any more, in what the rows add up to."""
        with self._next_version() as model:
            model.parts_ = [cleared(part, features) for part in self.settled_parts()]
            model.centres_ = np.where(features, self.centres_.dtype.type(0), self.centres_)
            model._writers = {}
        return self

    def _keep_labels(self, kept: Ints) -> None:
        column = np.full(len(self.labels_), -1, np.int64)
        column[kept] = np.arange(len(kept))
        parts = [
            replace(part, sets=csr_of(part.sets.data, column[part.sets.indices], part.sets.indptr, len(kept)))
            for part in self.settled_parts()
        ]
        self.labels_, self.frequency_ = self.labels_.kept(kept), self.frequency_[kept]
        self.classes_ = self.labels_.names
        exact = self.decode_.exact and not self._plain
        if exact:
            targets = kept[kept < parts[0].Psi.shape[1]]
            parts = [with_targets(part, targets) for part in parts]
            self.n_dims_ = len(targets)
        projection = Projection(self.ensemble_, self.n_dims_, self.n_learners, self.seed_)
        self.decode_ = self._decode_of(projection)
        self.parts_ = [self._searched_anew(part) for part in parts] if exact else parts
        self._writers = {}

    def _grow(self, labels: Vocabulary, frequency: Ints, n_targets: int) -> None:
        """Take in labels that are new, and where the embedding is Y itself, targets for those that rows carry now."""
        added, L = len(labels) - len(self.labels_), len(labels)
        how, parts, writers = self.decode_, self.parts_, dict(self._writers)
        exact = how.exact and not self._plain
        before = parts[0].Psi.shape[1]
        if added:
            self.changes_ = {**self.changes_, "labels_added": self.changes_["labels_added"] + added}
            if not exact:  # the one thing that may be wrong
                how.columns.projection.check_capacity(int(labels.slots.max()) + 1)
            parts = [replace(part, sets=wide(part.sets, L)).with_searchers_of(part) for part in parts]
        how = for_more_labels(how, labels, frequency) if added else replace(how, frequency=frequency)
        self.labels_, self.classes_, self.frequency_, self.decode_ = labels, labels.names, frequency, how
        if exact and n_targets > before:
            self.n_dims_ = max(self.n_dims_, L)
            if how.searched is None:  # what is searched is Y itself, or the squeezed Y, as wide as it is now
                projection = Projection(Identity(), self.n_dims_, self.n_learners, self.seed_)
                self.decode_ = self._decode_of(projection)
                parts = [self._searched_anew(widened(part, L)) for part in parts]
            else:
                columns = replace(how.columns, projection=replace(how.columns.projection, n_dims=self.n_dims_))
                self.decode_ = replace(how, columns=columns)
                parts = [widened(part, L).with_searchers_of(part) for part in parts]
        for c, writer in writers.items():
            if writer.part is self.parts_[c]:
                writer.adopt(parts[c])
        self.parts_ = parts

    def _decode_of(self, projection: Projection) -> Decode:
        at_fit = self.changes_["labels_at_fit"]
        return decode_of(self.chosen_, projection, self.labels_, self.frequency_, at_fit)

    def _searched_anew(self, part: Part) -> Part:
        """The part with the embeddings of its label sets made again."""
        part = replace(part, Z=searchable(part.sets, self.decode_, part.Psi.shape[1])[None], index_arrays=())
        dead = np.flatnonzero(part.counts == 0)
        if len(dead) and part.Z.shape[2]:
            vars(part)["searcher"] = part.searcher.changed(unit(part.Z, part.index.storage)[0], dead)
        return part

    # ------------------------------------------------------------------------------------------------------------ state

    def without_rows(self: Self) -> Self:
        """A copy with the same frozen parts that has seen no row: what it learns is what a fit would have learnt."""
        check_is_fitted(self, "parts_")
        model = self.__copy__()
        model.parts_ = [emptied(part) for part in self.settled_parts()]
        model._writers = {}
        model.frequency_ = np.zeros(len(self.labels_), np.int64)
        model.decode_ = replace(self.decode_, frequency=model.frequency_)
        model.n_rows_ = model.n_unlabelled_ = model.n_seen_ = 0
        model.changes_ = no_changes(0, self.changes_["labels_at_fit"])
        return model

    @property
    def warm_(self) -> dict[str, Any]:
        """What was learnt since the fit.

        `rows_at_fit` and `labels_at_fit`, and since then rows `learnt`, `forgotten`, `relabelled` and `labels_added`;
        `changed`, the share of these rows in those at the fit; `drift`, by how much the regression is off its
        equations, relative to their right side, as measured now; `refactorised`, how often it was solved anew;
        `refit_pays`, whether so much has changed that a fit should choose the frozen parts anew.
        """
        check_is_fitted(self, "parts_")
        rows = {name: self.changes_[name] for name in ("learnt", "forgotten", "relabelled")}
        share = sum(rows.values()) / max(self.changes_["rows_at_fit"], 1)
        current = [writer for c in self._writers if (writer := self._current(c, self._writers)) is not None]
        return {
            **self.changes_,
            "changed": share,
            "drift": max((writer.drift for writer in current), default=0.0),
            "refactorised": sum(writer.n_refactorised for writer in current),
            "refit_pays": share > _CHANGED,
        }

    def training_labels(self) -> Any:
        """The label sets that were learnt from, CSR (n_rows_, L), one a training row, in no particular order."""
        check_is_fitted(self, "parts_")
        rows = [part.sets[np.repeat(np.arange(len(part.counts)), part.counts)] for part in self.parts_]
        return scipy.sparse.vstack(rows, format="csr")

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model into a folder of JSON and plain arrays; see docs/model-folder.md."""
        check_is_fitted(self, "parts_")
        self._check_unchanged()
        super().save(path)

    def settled_parts(self) -> list[Part]:
        """The parts without the places of what was forgotten, and with all that they need to learn on."""
        parts = []
        for c, part in enumerate(self.parts_):
            kept, writer = part.kept, self._current(c, self._writers)
            if writer is not None:
                kept = writer.kept()
            elif isinstance(kept, KeptRows) and smaller_as_sums(part):
                writer = PartWriter(part, self._plain, float(self.ridge_[c]), self.n_jobs)
                with suppress(RipmlError):  # else the rows will do
                    writer.memory(self._embedding(part.Psi.shape[1]))
                    kept = writer.kept()
            parts.append(compacted(replace(part, kept=kept).with_searchers_of(part)))
        return parts

    def __copy__(self: Self) -> Self:
        model = type(self).__new__(type(self))
        model.__dict__.update(self.__dict__)
        return model

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "parts_" in state:
            state = {**state, "parts_": self.settled_parts(), "_writers": {}}
        return state

    @abstractmethod
    def _check_unchanged(self) -> None:
        """Raise if `set_params` made a fitted model contradict itself."""

    @abstractmethod
    def _seen(self, X: Any) -> Any:
        """Valid features as the regression sees them."""


def _length(Y: Any) -> int:
    return int(Y.shape[0]) if hasattr(Y, "shape") else len(Y) if hasattr(Y, "__len__") else 0


def _taken(array: Any, rows: Ints) -> Any:
    """These rows, which are in order; all of them are not copied."""
    return array if len(rows) == array.shape[0] else array[rows]
