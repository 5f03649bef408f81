"""What the baselines share: the choice of regularisation and threshold, candidate labels, saving.

The rule for `ridge="auto"` is the same for every method. A fifth of the training rows, at most 2,000, is held out at
random. The method is fitted to the other rows with ridge 1, then with larger values (steps of half a power of ten) as
long as the mean of P@1, P@3 and P@5 on the held-out rows rises; if the first step up does not help, it goes down in the
same way. The best value is used to fit all rows. The scores of the held-out rows also give the threshold of `predict`
(the best for micro F1) and `left_out_precision_`.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from ripml import metrics
from ripml.base import registry
from ripml.base.errors import MemoryLimitError, ModelFolderError, ParameterError, check_count, check_ridge
from ripml.base.estimator import check_fitted
from ripml.base.parallel import blocks, map_blocks
from ripml.decoding.calibration import best_threshold, mean_precision
from ripml.decoding.scores import largest
from ripml.labels.encoding import names_from_arrays, names_to_arrays
from ripml.model.multilabel import Multilabel, TrainingData
from ripml.regression import Solve, resolve_solver

Arrays = Mapping[str, Any]  # everything that a method learns: dense and CSR arrays by name
FitAtRidge = Callable[[float], Arrays]
Self = TypeVar("Self", bound="Baseline")

RIDGES = tuple(float(f"{10 ** (exponent / 2):.3g}") for exponent in range(-8, 9))  # 0.0001 … 10,000
_MAX_HELD_OUT = 2000
_N_CANDIDATES = 100  # best labels kept of each dense row of scores
_BLOCK_CELLS = 1 << 23  # of a dense block of scores: 64 MB
_DENSE_LIMIT = 2e9  # bytes
_SAVED_VALUES = ("seed", "ridge", "threshold", "left_out_precision", "tried", "n_rows", "n_unlabelled")
_CSR_PARTS = ("data", "indices", "indptr")


@dataclass(eq=False, repr=False, kw_only=True)
class Baseline(Multilabel):
    """A method of the related work, following scikit-learn's rules and with RIPML's interface.

    A subclass is a dataclass of its other parameters that implements `_prepare` (learning), `_score` (prediction) and
    `_expected_shapes` (a check of loaded arrays). A method with a regularisation has a parameter `ridge`. To add one,
    write its file and add a line of kind "estimator" to `ripml.base.registry`. Scores are in the units of the method,
    not probabilities; the candidates of a row are its 100 best labels.

    Parameters
    ----------
    ridge : float or "auto"
        The regularisation, scikit-learn's `alpha` unless the method says otherwise; "auto" chooses it on held-out rows.
    normalize : bool
        Scale feature rows to length 1 first. Off by default where the authors do not scale them.
    n_jobs : int or None
        Threads; None or -1 for all cores.
    random_state : int, RandomState or None
        Draws the held-out rows and everything else that the method draws.

    Attributes
    ----------
    classes_, n_features_in_, n_rows_, n_unlabelled_
        As in RIPML.
    ridge_ : float
        The regularisation in use; 0 for a method without one.
    threshold_ : float
        The lowest score at which `predict` assigns a label: the best for micro F1 on the held-out rows.
    left_out_precision_ : dict
        P@1, P@3 and P@5 on the held-out rows.
    tried_ : list of [ridge, precision]
        The values that "auto" tried, in order, with the mean of P@1, P@3 and P@5.
    """

    counts: ClassVar[tuple[str, ...]] = ()  # parameters that are integers ≥ 1, or "auto" if that is their default

    normalize: bool = False
    n_jobs: int | None = None
    random_state: Any = None

    if TYPE_CHECKING:  # attributes here, where the base class has properties
        classes_: NDArray[Any] = field(init=False)
        threshold_: float = field(init=False)
        n_rows_: int = field(init=False)
        frequency_: NDArray[np.int64] = field(init=False)

    @abstractmethod
    def _prepare(self, X: Any, Y: Any, seed: int) -> FitAtRidge:
        """Do the work that does not depend on the ridge, and return the function that does the rest.

        X is dense or CSR (n, d), Y CSR (n, L) with at least one label in every row.
        """

    @abstractmethod
    def _score(self, arrays: Arrays, X: Any) -> Any:
        """The scores of some rows X (b, d): dense (b, L), or CSR with the candidates only."""

    @abstractmethod
    def _expected_shapes(self, arrays: Arrays, d: int, L: int) -> dict[str, tuple[int, ...]]:
        """The shape that each array of a model folder must have, for d features and L labels.

        May raise ValueError for values that cannot occur, and any of KeyError, IndexError for missing arrays.
        """

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first parameter that is out of range."""
        for name in self.counts:
            value, may_be_auto = getattr(self, name), getattr(type(self), name) == "auto"
            if not (may_be_auto and value == "auto"):
                check_count(name, value, "'auto' or " if may_be_auto else "")
        super().check_settings()
        if hasattr(self, "ridge"):
            check_ridge("ridge", self.ridge)

    def _fit(self, data: TrainingData) -> None:
        X, Y = data.X, data.Y
        self.classes_, self.frequency_ = data.names, data.frequency
        self.n_rows_, self.n_unlabelled_, self.n_labels_ = X.shape[0], data.n_unlabelled, Y.shape[1]
        self.seed_ = draw_seed(self.random_state)
        train, held_out = held_out_rows(X.shape[0], self.seed_)
        fit_at = self._prepare(X[train], Y[train], self.seed_)
        truth = Y[held_out]

        @functools.cache
        def scores_at(ridge: float) -> Any:
            return self._candidates(fit_at(ridge), X[held_out])

        # Choose the ridge, the threshold and the expected precision on the held-out rows …
        ridge = getattr(self, "ridge", 0.0)
        if ridge == "auto":
            self.ridge_, self.tried_ = choose_ridge(lambda value: mean_precision(truth, scores_at(value)))
        else:
            self.ridge_, self.tried_ = float(ridge), []
        scores = scores_at(self.ridge_)
        self.threshold_ = best_threshold(truth, scores)
        self.left_out_precision_ = {f"P@{k}": metrics.precision_at_k(truth, scores, k=k) for k in (1, 3, 5)}
        # … and fit all rows. With fewer than five rows nothing was held out, and the first fit serves.
        if len(train) < X.shape[0]:
            del fit_at
            scores_at.cache_clear()
            fit_at = self._prepare(X, Y, self.seed_)
        self.learnt_ = dict(fit_at(self.ridge_))
        self.fitted_with_ = self._fixed_settings()

    def _candidates(self, arrays: Arrays, X: Any) -> Any:
        """Scores of the best labels of each row, CSR (n, L) float64."""
        parts = [scipy.sparse.csr_array((0, self.n_labels_))]
        for rows in blocks(X.shape[0], max(1, _BLOCK_CELLS // max(self.n_labels_, 1))):
            scores = self._score(arrays, X[rows])
            parts.append(scores if scipy.sparse.issparse(scores) else best_candidates(scores))
        return scipy.sparse.vstack(parts, format="csr", dtype=np.float64)

    def _raw_scores(self, X: Any) -> Any:
        X = self._validated_queries(X)
        return self._candidates(self.learnt_, X)

    def _validated_queries(self, X: Any) -> Any:
        """Rows to predict, for a fitted model whose parameters have not been changed since the fit."""
        check_fitted(self, "learnt_")
        self.check_settings()
        current = self._fixed_settings()
        if changed := [name for name, value in current.items() if value != self.fitted_with_[name]]:
            raise ParameterError(f"{', '.join(f'`{n}`' for n in changed)} was changed after the fit; fit again.")
        return self._validated(X, reset=False)

    def _fixed_settings(self) -> dict[str, Any]:
        """The parameters that must not change after the fit."""
        settings = self.get_params(deep=False).items()
        return {name: value for name, value in settings if name not in ("n_jobs", "random_state")}

    @property
    def chosen_(self) -> dict[str, Any]:
        """The values that were chosen for parameters set to "auto", as plain numbers."""
        check_fitted(self, "learnt_")
        return {"ridge": self.ridge_} if hasattr(self, "ridge") else {}

    # ------------------------------------------------------------------------------------------------ save and load

    def to_state(self, compact: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything that was learnt, as JSON values and arrays: answers need all of it."""
        parameters = {
            "settings": {name: registry.to_json(name, value) for name, value in self.get_params(deep=False).items()},
            "n_features": int(self.n_features_in_),
            "feature_names": [str(name) for name in getattr(self, "feature_names_in_", [])],
            "sparse": {name: list(value.shape) for name, value in self.learnt_.items() if scipy.sparse.issparse(value)},
            **{name: getattr(self, f"{name}_") for name in _SAVED_VALUES},
        }
        arrays = {**names_to_arrays(self.classes_), "frequency": self.frequency_}
        for name, value in self.learnt_.items():
            if scipy.sparse.issparse(value):
                arrays |= {f"learnt_{name}_{part}": getattr(value, part) for part in _CSR_PARTS}
            else:
                arrays[f"learnt_{name}"] = np.asarray(value)
        return parameters, arrays

    @classmethod
    def from_state(cls: type[Self], parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The inverse of `to_state`; arrays may be memory-mapped and are not copied."""
        try:
            if any(array.dtype.kind not in "fiu" for array in arrays.values()):
                raise ValueError("an array has neither integers nor real numbers")
            model = cls(**{name: registry.from_json(value) for name, value in parameters["settings"].items()})
            model.check_settings()
            for name in _SAVED_VALUES:
                setattr(model, f"{name}_", parameters[name])
            model.n_features_in_ = parameters["n_features"]
            if parameters["feature_names"]:
                model.feature_names_in_ = np.array(parameters["feature_names"], object)
            model.classes_ = names_from_arrays(arrays)
            model.n_labels_ = len(model.classes_)
            model.frequency_ = arrays["frequency"].astype(np.int64, casting="safe")
            model.learnt_ = {
                name.removeprefix("learnt_"): array for name, array in arrays.items() if name.startswith("learnt_")
            }
            for name, shape in parameters["sparse"].items():
                parts = [model.learnt_.pop(f"{name}_{part}") for part in _CSR_PARTS]
                model.learnt_[name] = scipy.sparse.csr_array(tuple(parts), shape=tuple(shape))
                model.learnt_[name].check_format(full_check=True)
            model.fitted_with_ = model._fixed_settings()
            model._check_state(parameters["feature_names"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, UnicodeDecodeError) as error:
            raise ModelFolderError(f"the model's parameters and arrays do not fit together: {error}.") from error
        return model

    def _check_state(self, feature_names: Any) -> None:
        """Raise ValueError if the loaded values contradict each other."""
        d, L = self.n_features_in_, self.n_labels_
        counts = (d, self.n_rows_, self.n_unlabelled_, self.seed_)
        numbers = (self.ridge_, self.threshold_, *self.left_out_precision_.values())
        consistent = (
            all(type(count) is int and count >= 0 for count in counts)
            and all(type(number) is float for number in numbers)
            and all(type(value) is float for pair in self.tried_ for value in pair)
            and type(feature_names) is list
            and len(feature_names) in (0, d)
            and all(type(name) is str for name in feature_names)
            and len(set(self.classes_.tolist())) == L == len(self.frequency_)
            and self.frequency_.min(initial=0) >= 0
            and all(
                self.learnt_[name].shape == shape for name, shape in self._expected_shapes(self.learnt_, d, L).items()
            )
        )
        if not consistent:
            raise ValueError("types or shapes disagree")


def draw_seed(random_state: Any) -> int:
    """The seed of everything that a method draws.

    >>> draw_seed(0)
    209652396
    """
    return int(check_random_state(random_state).randint(2**31))


def held_out_rows(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training rows and held-out rows, each ascending; with fewer than five rows, all rows are both.

    >>> train, held_out = held_out_rows(10, seed=0)
    >>> len(train), len(held_out)
    (8, 2)
    """
    n_held_out = min(n // 5, _MAX_HELD_OUT)
    if not n_held_out:
        return np.arange(n), np.arange(n)
    shuffled = np.random.default_rng(seed).permutation(n)
    return np.sort(shuffled[n_held_out:]), np.sort(shuffled[:n_held_out])


def choose_ridge(precision: Callable[[float], float]) -> tuple[float, list[list[float]]]:
    """The ridge by the rule at the top of this module, and every value tried with its precision.

    >>> choose_ridge(lambda ridge: -abs(ridge - 10))[0]
    10.0
    """
    start = best = RIDGES.index(1.0)
    tried = {1.0: precision(1.0)}
    for direction in (1, -1):
        while 0 <= best + direction < len(RIDGES):
            candidate = RIDGES[best + direction]
            tried[candidate] = precision(candidate)
            if tried[candidate] <= tried[RIDGES[best]]:
                break
            best += direction
        if best != start:
            break
    return RIDGES[best], [[ridge, value] for ridge, value in tried.items()]


def best_candidates(scores: NDArray[Any]) -> Any:
    """The best labels of each row of dense scores (n, L), CSR (n, L).

    >>> best_candidates(np.array([[0.5, -0.25]])).toarray().tolist()
    [[0.5, -0.25]]
    """
    labels = np.sort(largest(scores, _N_CANDIDATES), axis=1)
    values = np.take_along_axis(scores, labels, axis=1).astype(np.float64)
    n, k = labels.shape
    return scipy.sparse.csr_array((values.ravel(), labels.ravel(), np.arange(n + 1) * k), shape=scores.shape)


def at_cells(
    cells: Any, values: Callable[[slice, NDArray[Any], NDArray[Any]], Any], height: int, n_jobs: int | None
) -> Any:
    """A CSR matrix with the cells of another and other values, which are computed on threads in blocks of rows.

    `values` gets a block of at most `height` rows, and the row within the block and the column of each of its cells.
    """
    data = np.empty(cells.nnz)

    def fill(rows: slice) -> None:
        ends = cells.indptr[rows.start : rows.stop + 1]
        row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        data[ends[0] : ends[-1]] = values(rows, row, cells.indices[ends[0] : ends[-1]])

    map_blocks(fill, blocks(cells.shape[0], height), n_jobs)
    return scipy.sparse.csr_array((data, cells.indices, cells.indptr), shape=cells.shape)


def require_dense(shape: tuple[int, int], what: str, remedy: str) -> None:
    """Raise `MemoryLimitError` before an array of float64 is made that would take more than 2 GB.

    >>> require_dense((100_000, 100_000), "the products of all rows", "use fewer rows")
    Traceback (most recent call last):
    ripml.base.errors.MemoryLimitError: the products of all rows would be a dense array of 100,000 × 100,000,
    80.0 GB, but a baseline may use at most 2 GB; use fewer rows.
    """
    needed = 8.0 * shape[0] * shape[1]
    if needed > _DENSE_LIMIT:
        raise MemoryLimitError(
            f"{what} would be a dense array of {shape[0]:,} × {shape[1]:,}, {needed / 1e9:.1f} GB, but a baseline may "
            f"use at most 2 GB; {remedy}."
        )


def with_constant(X: Any) -> Any:
    """X with a column of ones in front: the intercept, penalised like any other weight."""
    ones = np.ones((X.shape[0], 1), X.dtype)
    if scipy.sparse.issparse(X):
        return scipy.sparse.hstack([ones, X], format="csr")
    return np.hstack([ones, X])


def prepare_ridge(X: Any, Z: Any, n_jobs: int | None) -> Solve:
    """Ridge regression with an intercept from X (n, d) to Z (n, m), by the solver that suits the size.

    Returns the function from alpha to the solution, whose Psi is (1 + d, m).
    """
    features = with_constant(X)
    return resolve_solver("auto", *features.shape)[0].prepare(features, Z, n_jobs)
