"""What every estimator has in common: how rows and labels come in, and how scores go out.

fit      validate once → leave out rows without labels → `_fit`
predict  validate → `_raw_scores` (CSR, candidates only) → top, threshold, P@1
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml import metrics
from ripml.base import model_folder
from ripml.base.errors import DataError, NoLabelsError, ParameterError, check_count
from ripml.base.estimator import Estimator, check_fitted
from ripml.base.parallel import exclusive, thread_count
from ripml.base.products import column_counts
from ripml.decoding import scores as scoring
from ripml.decoding.evidence import FeatureRows
from ripml.labels.encoding import check_names, encode_labels
from ripml.model.features import unit_rows

__all__ = ["Multilabel", "TrainingData"]

Self = TypeVar("Self", bound="Multilabel")


@dataclass(frozen=True)
class TrainingData:
    """Valid features (n, d), labels, CSR (n, L), with a label in every row, and the rows that were left out."""

    X: Any
    Y: Any
    names: NDArray[Any]  # (L,)
    frequency: NDArray[np.int64]  # (L,) rows of each label
    n_unlabelled: int


class Multilabel(Estimator, ABC):
    """An estimator of label sets by scikit-learn's rules, with `classes_`, `threshold_` and counts of rows."""

    normalize: bool | str
    n_jobs: int | None

    if TYPE_CHECKING:  # attributes of an estimator, or properties of the model that it holds

        @property
        def classes_(self) -> NDArray[Any]:
            """The names of the labels."""

        @property
        def threshold_(self) -> float:
            """The score from which a label is predicted."""

        @property
        def n_rows_(self) -> int:
            """Rows learnt from."""

        @property
        def frequency_(self) -> NDArray[np.int64]:
            """Training rows of each label."""

    @exclusive
    def fit(self: Self, X: Any, Y: Any, label_names: Sequence[str] | None = None) -> Self:
        """Learn from features X (n, d) and labels Y.

        X is dense, CSR or a DataFrame. Y is a CSR or dense indicator (n, L), or a sequence with the label names of each
        row (strings or integers). `label_names` names the L columns of an indicator; without it they are 0 … L − 1.
        Rows without labels are left out and counted in `n_unlabelled_`. A fit that fails leaves the model as it was.
        """
        self.check_settings()
        # Everything happens in another estimator of the same settings: a fit that fails changes nothing here.
        fitted = self._unfitted()
        fitted._fit(fitted._training_data(X, Y, label_names))
        return self._adopt(fitted)

    def _unfitted(self: Self) -> Self:
        """Another estimator with the same settings."""
        return type(self)(**self.get_params(deep=False))

    def _adopt(self: Self, fitted: Self) -> Self:
        """Take over all that another estimator of the same settings learnt."""
        settings = self.get_params(deep=False)
        for name in set(vars(self)) - set(vars(fitted)) - set(settings):
            if name.endswith("_") and not name.startswith("_"):  # scikit-learn has private notes here during a fit
                delattr(self, name)
        for name, value in vars(fitted).items():
            if name not in settings:
                setattr(self, name, value)
        return self

    @abstractmethod
    def _fit(self, data: TrainingData) -> None:
        """Learn from valid rows."""

    @abstractmethod
    def _raw_scores(self, X: Any) -> Any:
        """Scores of candidates, CSR (n, L), before rare labels are put forward."""

    @abstractmethod
    def to_state(self, compact: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that was learnt, as JSON values and arrays; `compact`, only what answers need."""

    @classmethod
    @abstractmethod
    def from_state(cls: type[Self], parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The inverse of `to_state`; arrays may be memory-mapped and are not copied."""

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        if not isinstance(self.normalize, (bool, np.bool_)):
            raise ParameterError(f"`normalize` must be True or False; got {self.normalize!r}.")
        thread_count(self.n_jobs)

    def _training_data(self, X: Any, Y: Any, label_names: Sequence[str] | None) -> TrainingData:
        X = self._validated(X, reset=True)
        if label_names is not None and getattr(Y, "ndim", 1) != 2:
            raise DataError("`label_names` names the columns of an indicator; the labels given here have names.")
        _refuse_dask(Y, "Y")
        Y, names = encode_labels(Y)
        if label_names is not None:
            names = check_names(label_names, n_labels=Y.shape[1])
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}; they must have the same number.")
        labelled = np.diff(Y.indptr) > 0
        if not labelled.any():
            raise NoLabelsError(f"none of the {len(labelled):,} rows carries a label, so there is nothing to learn.")
        # z = 0 would be the nearest neighbour of every shrunken prediction, so empty rows must not be in the index.
        n_unlabelled = int(np.count_nonzero(~labelled))
        frequency = column_counts(Y)
        if n_unlabelled:
            X, Y = X[labelled], Y[labelled]
        return TrainingData(X, Y, names, frequency, n_unlabelled)

    def _validated(self, X: Any, reset: bool) -> Any:
        """X as a CSR or dense float array, scaled; evidence comes along."""
        if isinstance(X, FeatureRows):
            return X.with_features(self._validated(X.X, reset))
        _refuse_dask(X, "X")
        if reset or not self._is_plain(X):
            from sklearn.utils.validation import validate_data

            X = validate_data(self, X=X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        if scipy.sparse.issparse(X):
            X = X if isinstance(X, scipy.sparse.csr_array) else scipy.sparse.csr_array(X)
            if not X.has_canonical_format:  # the caller's arrays stay as they are
                X = X.copy()
                X.sum_duplicates()
        return self._scaled(X)

    def _scaled(self, X: Any) -> Any:
        """Valid rows X with length 1, if so set."""
        return unit_rows(X, self.n_jobs) if self.normalize else X

    def _is_plain(self, X: Any) -> bool:
        """Whether X is a CSR matrix that scikit-learn's checks, which take longer than many an answer, would accept."""
        return bool(
            isinstance(X, (scipy.sparse.csr_array, scipy.sparse.csr_matrix))
            and X.ndim == 2
            and X.shape[0] > 0
            and X.shape[1] == self.n_features_in_
            and X.dtype in (np.float32, np.float64)
            and not hasattr(self, "feature_names_in_")
            and np.isfinite(X.data).all()
        )

    def decision_function(self, X: Any) -> Any:
        """Scores, CSR (n, L): of the candidate labels of each row only."""
        return self._raw_scores(X)

    def recommend(self, X: Any, n: int = 5) -> list[list[tuple[Any, float]]]:
        """The n best labels of each row as (name, score), best first; fewer where there are fewer candidates."""
        check_count("n", n)
        best = scoring.top(self.decision_function(X), n)
        names, values = self.classes_[best.indices].tolist(), best.data.tolist()
        pairs = list(zip(names, values, strict=True))
        return [pairs[start:end] for start, end in zip(best.indptr[:-1], best.indptr[1:], strict=True)]

    def predict(self, X: Any) -> Any:
        """The label sets, CSR indicator (n, L): labels whose score reaches `threshold_`."""
        return scoring.keep_above(self._raw_scores(X), self.threshold_)

    def covered(self, scores: Any, X: Any, coverage: float, per_label: bool = False) -> Any:
        """The label sets of rows X, with scores, that hold this share of the right labels; see `RIPML.predict`."""
        raise ParameterError(f"`coverage` needs a RIPML model; {type(self).__name__} keeps no scores of left-out rows.")

    def score(self, X: Any, Y: Any) -> float:
        """P@1: the share of rows whose best label is right. Rows without labels are not counted."""
        scores = self.decision_function(X)
        Y, names = encode_labels(Y, known=self.classes_)
        if scores.shape[0] != Y.shape[0]:
            raise DataError(f"X has {scores.shape[0]} rows and Y has {Y.shape[0]}; they must have the same number.")
        scores.resize((Y.shape[0], len(names)))  # labels the model never saw can only be missed
        return metrics.precision_at_k(Y, scores, k=1)

    def propensities(self) -> NDArray[np.float64] | None:
        """The propensity of each label by its frequency (see `ripml.metrics`); None for fewer than three rows."""
        check_fitted(self, "frequency_")
        return None if self.n_rows_ < 3 else metrics.propensities_of_counts(self.frequency_, self.n_rows_)

    def save(self, path: str | PathLike[str], compact: bool = False) -> None:
        """Write the model into a folder of JSON and plain arrays; see docs/model-folder.md.

        With `compact`, only what answers need is written: such a model cannot learn or forget.
        """
        check_fitted(self, "classes_")
        parameters, arrays = self.to_state(compact)
        model_folder.save(path, type(self).__name__, parameters, arrays)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


def _refuse_dask(rows: Any, name: str) -> None:
    """Raise `DataError` for a collection of Dask, which would be computed in this process."""
    if hasattr(rows, "__dask_graph__"):
        raise DataError(
            f"{name} is a collection of Dask, which would be computed in this process; use ripml.distributed.fit to "
            f"learn from it on its workers, ripml.distributed.decision_function to score it, or give {name}.compute()."
        )
