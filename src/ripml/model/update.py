"""Learning, forgetting and new labels while a model is in use: each exactly as if all rows had been fitted at once.

Every version of a model is a value (`ripml.model.model.Model`). A change makes the next one and puts it in the place of
the one before with a single assignment, so others may read the estimator, or a copy of it (`copy.copy`), meanwhile. One
thread at a time changes an estimator, which refuses a second one; only the newest version can go on learning. `warm_`
says when a new fit, which chooses the frozen parts again, is worth it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError, ParameterError
from ripml.base.estimator import check_fitted
from ripml.base.parallel import exclusive, one_blas_thread
from ripml.decoding.evidence import Evidence, apart
from ripml.decoding.label_set_index import wide
from ripml.labels.vocabulary import Vocabulary
from ripml.model.cluster import LabelledRows
from ripml.model.decisions import Decisions
from ripml.model.model import Change, Model
from ripml.model.multilabel import Multilabel

__all__ = ["Updatable"]

Self = TypeVar("Self", bound="Updatable")

_FEW = 16  # rows


class Updatable(Multilabel):
    """An estimator whose model changes with every row that is learnt or forgotten."""

    model_: Model

    # ------------------------------------------------------------------------------------------ learning and forgetting

    @exclusive
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
        if not hasattr(self, "model_"):
            return self.fit(X, Y, label_names)
        if label_names is not None:
            raise ParameterError("`label_names` names the columns at the first fit; later labels come by name in Y.")
        return self._change(None, (X, Y))

    @exclusive
    def forget(self: Self, X: Any, Y: Any, rows: Sequence[int] | None = None) -> Self:
        """Forget rows that were learnt: the model is that of a fit that never saw them.

        X and Y are the features and labels they were learnt with. Rows that were never learnt are an error, also where
        a model keeps only sums, unless it was fitted with Dask or by an early version: then it knows the label sets of
        its rows and not their features. Where rows are stored, `rows` may say by their numbers which of several equal
        ones are meant; see `n_seen_`.

        >>> from ripml import RIPML
        >>> X, Y = np.eye(3), [["tea"], ["ice"], ["hot"]]
        >>> model = RIPML.paper(n_dims=50, n_neighbors=1, ridge=0.1, random_state=0).fit(X, Y).forget(X[2:], Y[2:])
        >>> model.n_rows_, "hot" in dict(model.recommend(X[2:])[0])
        (2, False)
        """
        return self._change((X, Y), None, rows=rows)

    @exclusive
    def relabel(self: Self, X: Any, Y: Any, new_Y: Any, rows: Sequence[int] | None = None) -> Self:
        """Give other labels to rows that were learnt with labels Y; `rows` as for `forget`.

        >>> from ripml import RIPML
        >>> X, Y = np.eye(3), [["tea"], ["ice"], ["hot"]]
        >>> model = RIPML.paper(n_dims=50, n_neighbors=1, ridge=0.1, random_state=0).fit(X, Y)
        >>> model.relabel(X[2:], Y[2:], [["cold"]]).recommend(X[2:])
        [[('cold', 1.0)]]
        """
        return self._change((X, Y), (X, new_Y), together=True, rows=rows)

    # -------------------------------------------------------------------------------------------------------- decisions

    @exclusive
    def decide(self: Self, X: Any, accepted: Any = None, rejected: Any = None) -> Self:
        """Learn decisions on some labels of rows X, each accepted or rejected; nothing is learnt of other labels.

        `accepted` and `rejected` are as Y for `fit`, None for no labels. The score of an accepted label rises for rows
        like these, that of a rejected one falls, and the scores of labels that no decision names do not change by a
        bit. It is exactly the regression in which the undecided labels are missing values, see `ripml.model.decisions`.
        Decisions are a set: their order has no influence, and `withdraw` takes each back. Labels that are accepted may
        be new. A row whose features are all zero teaches nothing. Rows with all their labels are for `partial_fit`.

        >>> from ripml import RIPML
        >>> model = RIPML(random_state=0).fit(np.eye(3), [["tea"], ["ice"], ["hot"]])
        >>> model = model.decide([[1, 1, 0]], accepted=[["cold"]], rejected=[["tea"]])
        >>> "cold" in dict(model.recommend([[1, 1, 0]])[0])
        True
        """
        model = self._fitted_model()
        model.check_exact()
        self._check_unchanged()
        decisions, vocabulary = self._decisions(model, X, accepted, rejected)
        self.model_ = model.decided(decisions, vocabulary, self.n_jobs)
        return self

    @exclusive
    def withdraw(self: Self, X: Any, accepted: Any = None, rejected: Any = None) -> Self:
        """Take back decisions, given as for `decide`: the model is the one that never had them."""
        model = self._fitted_model()
        decisions, vocabulary = self._decisions(model, X, accepted, rejected)
        if len(vocabulary) > len(model.vocabulary):
            name = vocabulary.names[len(model.vocabulary)]
            raise DataError(f"there is no decision on the label {name!r}: the model does not know that label.")
        self.model_ = model.undecided(decisions, self.n_jobs)
        return self

    @property
    def n_decided_(self) -> int:
        """Rows of which some labels are decided."""
        decisions = self._fitted_model().decisions
        return 0 if decisions is None else len(decisions)

    def _decisions(self, model: Model, X: Any, accepted: Any, rejected: Any) -> tuple[Decisions, Vocabulary]:
        """Valid decisions, and all labels, also those that are new."""
        X, evidence = apart(model.features(self._validated(X, reset=False)))
        if evidence is None and model.decoder.names is not None:
            evidence = Evidence.none(X.shape[0])
        nothing = scipy.sparse.csr_array((X.shape[0], len(model.vocabulary)), dtype=np.float32)
        yes, vocabulary = (nothing, model.vocabulary) if accepted is None else model.vocabulary.encode(accepted)
        no, known = (nothing, vocabulary) if rejected is None else vocabulary.encode(rejected)
        if len(known) > len(vocabulary):
            name = known.names[len(vocabulary)]
            raise DataError(f"the label {name!r} cannot be rejected: the model does not know it.")
        yes, no = wide(yes, len(vocabulary)), wide(no, len(vocabulary))
        for name, Y in {"accepted": yes, "rejected": no}.items():
            if Y.shape[0] != X.shape[0]:
                raise DataError(
                    f"X has {X.shape[0]} rows and `{name}` has {Y.shape[0]}; they must have the same number."
                )
        both = yes.multiply(no)
        if both.nnz:
            name = vocabulary.names[scipy.sparse.csr_array(both).indices[0]]
            raise DataError(f"the label {name!r} is both accepted and rejected for the same row.")
        undecided = np.diff(scipy.sparse.csr_array(yes + no).indptr) == 0
        if undecided.any():
            problem = "has no decision: name a label that is accepted or rejected"
            raise DataError(f"row {int(np.argmax(undecided))} {problem}.")
        return Decisions.of(X, evidence, yes, no), vocabulary

    # ------------------------------------------------------------------------------------------------------------------

    def _change(self: Self, before: Any, after: Any, together: bool = False, rows: Sequence[int] | None = None) -> Self:
        """Forget the rows (X, Y) `before` and learn those `after`; `together`, they are the same rows."""
        model = self._fitted_model()
        # A few rows change by small products, which threads do not speed up.
        n_rows = sum(_length(given[1]) for given in (before, after) if given is not None)
        few = n_rows <= _FEW and model.kernel.linear
        with one_blas_thread() if few else nullcontext():
            self._check_unchanged()
            model.check_exact()
            old, vocabulary = self._labelled(model, before, rows)
            if len(vocabulary) > len(model.vocabulary):
                name = vocabulary.names[len(model.vocabulary)]
                raise DataError(f"a row with the label {name!r} was never learnt: the model does not know that label.")
            new, vocabulary = self._labelled(model, after, None)
            if together and len(old) != len(new):
                raise DataError(f"Y has {len(old)} rows and new_Y has {len(new)}; they must have the same number.")
            self.model_ = model.changed(Change(old, new, vocabulary, together), self.n_jobs)
        return self

    def _labelled(
        self, model: Model, given: tuple[Any, Any] | None, rows: Sequence[int] | None
    ) -> tuple[LabelledRows, Vocabulary]:
        """Rows as the regression sees them, with their numbers, and all labels, also those that are new."""
        vocabulary = model.vocabulary
        if given is None:
            X = scipy.sparse.csr_array((0, model.n_features), dtype=np.float32)
            Y = scipy.sparse.csr_array((0, len(vocabulary)), dtype=np.float32)
        else:
            X = model.features(self._validated(given[0], reset=False))
            Y, vocabulary = vocabulary.encode(given[1])
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}; they must have the same number.")
        numbers = np.full(Y.shape[0], -1) if rows is None else np.asarray(rows)
        if numbers.shape != (Y.shape[0],) or numbers.dtype.kind not in "iu":
            raise DataError(f"`rows` must be one whole number for each of the {Y.shape[0]} rows; got {rows!r}.")
        return LabelledRows(X, Y, numbers.astype(np.int64)), vocabulary

    @exclusive
    def warm_up(self: Self) -> Self:
        """Make now what the first change needs, so that it is as quick as the others; no answer changes.

        For a kernel on n rows that is the factor of its matrix: n³/3 multiplications, and 4n² bytes.
        """
        self.model_ = self._fitted_model().prepared(self.n_jobs)
        return self

    def without_rows(self: Self) -> Self:
        """A copy with the same frozen parts that has seen no row: what it learns is what a fit would have learnt."""
        emptied = self._fitted_model().emptied(self.n_jobs)
        other = self.__copy__()
        other.model_ = emptied
        return other

    @property
    def warm_(self) -> dict[str, Any]:
        """What was learnt since the fit.

        `rows_at_fit` and `labels_at_fit`, and since then rows `learnt`, `forgotten`, `relabelled` and `labels_added`;
        `decided`, the rows with decisions on some labels; `changed`, the share of rows learnt, forgotten and relabelled
        in those at the fit; `drift`, how far the regression is off its equations, relative to their right side, as
        measured now; `refactorised`, how often it was factorised again; `refit_pays`, whether so much has changed that
        a new fit should choose the frozen parts again.
        """
        return self._fitted_model().warm

    def training_labels(self) -> Any:
        """The label sets that were learnt from, CSR (n_rows_, L), one for each training row, in no particular order."""
        return self._fitted_model().training_labels()

    # ----------------------------------------------------------------------------------------------------------- labels

    @exclusive
    def add_labels(self: Self, names: Iterable[Any], keys: Sequence[int] | None = None) -> Self:
        """Add labels that no row carries yet; no score of any other label changes by a bit.

        `keys` are 64-bit numbers that their columns of Phi are made from, in place of those made from their names.

        >>> from ripml import RIPML
        >>> model = RIPML(random_state=0).fit(np.eye(3), [["tea"], ["ice"], ["hot"]]).add_labels(["cold"])
        >>> model.classes_.tolist()
        ['hot', 'ice', 'tea', 'cold']
        """
        self.model_ = self._fitted_model().with_labels(names if isinstance(names, str) else list(names), keys)
        return self

    @exclusive
    def rename_label(self: Self, old: Any, new: Any) -> Self:
        """Give a label another name; it stays the same label, and no score changes."""
        return self._with_vocabulary(self._fitted_model().vocabulary.renamed(old, new))

    @exclusive
    def retire_label(self: Self, name: Any) -> Self:
        """Stop suggesting a label. Rows keep it, and other scores stay as they are."""
        return self._with_vocabulary(self._fitted_model().vocabulary.with_retired(name, True))

    @exclusive
    def reinstate_label(self: Self, name: Any) -> Self:
        """Suggest a retired label again."""
        return self._with_vocabulary(self._fitted_model().vocabulary.with_retired(name, False))

    def _with_vocabulary(self: Self, vocabulary: Vocabulary) -> Self:
        self.model_ = replace(self.model_, vocabulary=vocabulary)
        return self

    @exclusive
    def drop_labels(self: Self, names: Iterable[Any]) -> Self:
        """Drop labels that no row carries, so that nothing is left of them."""
        model = self._fitted_model()
        self.model_ = model.without_labels([model.vocabulary.column_of(name) for name in names], self.n_jobs)
        return self

    @exclusive
    def clear_features(self: Self, features: NDArray[np.bool_]) -> Self:
        """Clear what is left of features (d,), True for those that no row has any more, in the sums over rows."""
        self.model_ = self._fitted_model().without_features(features, self.n_jobs)
        return self

    # ------------------------------------------------------------------------------------------------------------ state

    def save(self, path: str | PathLike[str], compact: bool = False) -> None:
        """Write the model into a folder of JSON and plain arrays; see docs/model-folder.md.

        With `compact`, only what answers need is written, and the coefficients of a linear model in 16 bits. Such a
        model cannot learn or forget, and its scores differ a little.
        """
        self._fitted_model()
        self._check_unchanged()
        super().save(path, compact)

    def __copy__(self: Self) -> Self:
        return self._unfitted()._adopt(self)

    def _fitted_model(self) -> Model:
        """The newest version."""
        check_fitted(self, "model_")
        return self.model_

    @abstractmethod
    def _check_unchanged(self) -> None:
        """Raise if `set_params` made a fitted model contradict itself."""


def _length(Y: Any) -> int:
    return int(Y.shape[0]) if hasattr(Y, "shape") else len(Y) if hasattr(Y, "__len__") else 0
