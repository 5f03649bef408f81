"""What the baselines share: the choice of their regularisation and threshold, candidates, saving.

The rule for `ridge="auto"`, the same for every method: a fifth of the training rows, at most 2,000, is held out at
random; the method learns from the others with ridge 1, then with half a power of ten more for as long as the mean of
P@1, P@3 and P@5 on the rows held out rises, or else less; the best learns from all rows. The scores on the rows held
out also give the threshold of `predict` (the best for micro F1) and `left_out_precision_`.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ripml import metrics
from ripml.base.errors import MemoryLimitError, ModelFolderError, ParameterError, check_ridge
from ripml.base.parallel import blocks
from ripml.base.registry import from_json, to_json
from ripml.decoding import scores as decoding
from ripml.decoding.calibration import best_threshold, mean_precision
from ripml.labels.encoding import names_from_arrays, names_to_arrays
from ripml.model.multilabel import Multilabel, TrainingData

__all__ = [
    "Baseline",
    "Learner",
    "Learnt",
    "best_candidates",
    "choose_ridge",
    "drawn_seed",
    "held_out_rows",
    "require_dense",
    "with_constant",
]

Learnt = Mapping[str, Any]  # arrays and CSR arrays by name: all that a method keeps
Learner = Callable[[float], Learnt]  # ridge ↦ what is learnt with it
Self = TypeVar("Self", bound="Baseline")

RIDGES = tuple(float(f"{10 ** (exponent / 2):.3g}") for exponent in range(-8, 9))  # 0.0001 … 10,000
_HELD_OUT = 2000
_CANDIDATES = 100  # labels a row that a dense row of scores keeps, the best
_BLOCK_CELLS = 1 << 23  # of a dense block of scores: 64 MB
_DENSE_LIMIT = 2e9  # bytes


class Baseline(Multilabel):
    """A method of the related work, by scikit-learn's rules and with RIPML's interface.

    A method says two things: `_prepare`, what it learns from rows, and `_ask`, what that says of other rows. Scores are
    the method's own numbers, not probabilities. The 100 best labels of a row are its candidates.

    Attributes
    ----------
    classes_, n_features_in_, n_rows_, n_unlabelled_
        As of RIPML.
    ridge_ : float
        The regularisation in use; 0 where the method has none.
    threshold_ : float
        The score from which `predict` says yes: the best for micro F1 on the rows held out.
    left_out_precision_ : dict
        P@1, P@3 and P@5 on the rows held out.
    tried_ : list of [ridge, precision]
        What the rule tried, in its order, with the mean of P@1, P@3 and P@5.
    """

    regularised: ClassVar[bool] = True  # has a setting `ridge`
    ridge: float | str
    random_state: Any

    @abstractmethod
    def _prepare(self, X: Any, Y: Any, seed: int) -> Learner:
        """Do what does not depend on the ridge, and return the function that does the rest.

        X is dense or CSR (n, d), Y CSR (n, L) with a label in every row.
        """

    @abstractmethod
    def _ask(self, learnt: Learnt, X: Any) -> Any:
        """The scores of some rows X (b, d): dense (b, L), or CSR of the candidates."""

    @abstractmethod
    def _fits(self, learnt: Learnt, d: int, L: int) -> bool:
        """Whether arrays that come from a folder can be what this method learnt from d features and L labels.

        An array that is missing or of another rank may raise KeyError, IndexError or ValueError.
        """

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        super().check_settings()
        if self.regularised:
            check_ridge("ridge", self.ridge)

    def _fit(self, data: TrainingData) -> None:
        self.classes_, self.frequency_ = data.names, data.frequency
        self.n_rows_, self.n_unlabelled_ = data.X.shape[0], data.n_unlabelled
        self._learn(data.X, data.Y)

    def _learn(self, X: Any, Y: Any) -> None:
        """Learn from valid features (n, d) and labels, CSR (n, L) with a label in every row."""
        self.seed_ = drawn_seed(self.random_state)
        self.n_labels_ = Y.shape[1]
        seen, asked = held_out_rows(X.shape[0], self.seed_)
        given = self.ridge if self.regularised else 0.0
        learner = self._prepare(X[seen], Y[seen], self.seed_)

        @functools.cache
        def scores_at(ridge: float) -> Any:
            return self._candidates(learner(ridge), X[asked])

        truth = Y[asked]
        if given == "auto":
            self.ridge_, self.tried_ = choose_ridge(lambda ridge: mean_precision(truth, scores_at(ridge)))
        else:
            self.ridge_, self.tried_ = float(given), []
        scores = scores_at(self.ridge_)
        self.threshold_ = best_threshold(truth, scores)
        self.left_out_precision_ = {f"P@{k}": metrics.precision_at_k(truth, scores, k=k) for k in (1, 3, 5)}
        if len(seen) < X.shape[0]:
            del learner
            scores_at.cache_clear()
            learner = self._prepare(X, Y, self.seed_)
        self.learnt_ = dict(learner(self.ridge_))
        self.fitted_with_ = self._fixed_settings()

    def _candidates(self, learnt: Learnt, X: Any) -> Any:
        """Scores of the best labels of each row, CSR (n, L) float64."""
        found = [scipy.sparse.csr_array((0, self.n_labels_))]
        size = max(1, _BLOCK_CELLS // max(self.n_labels_, 1))
        for block in blocks(X.shape[0], size):
            scores = self._ask(learnt, X[block])
            found.append(scores if scipy.sparse.issparse(scores) else best_candidates(scores))
        return scipy.sparse.vstack(found, format="csr", dtype=np.float64)

    def _raw_scores(self, X: Any) -> Any:
        X = self._valid_question(X)
        return self._candidates(self.learnt_, X)

    def _valid_question(self, X: Any) -> Any:
        """Rows to be asked about, as a fitted model that was not changed takes them."""
        check_is_fitted(self, "learnt_")
        self.check_settings()
        now = self._fixed_settings()
        if changed := [name for name, value in now.items() if value != self.fitted_with_[name]]:
            raise ParameterError(f"{', '.join(f'`{n}`' for n in changed)} was changed after the fit; fit again.")
        return self._validated(X, reset=False)

    def _fixed_settings(self) -> dict[str, Any]:
        """The settings that a fitted model cannot change."""
        settings = self.get_params(deep=False).items()
        return {name: value for name, value in settings if name not in ("n_jobs", "random_state")}

    @property
    def chosen_(self) -> dict[str, Any]:
        """Settings that were "auto" or chosen otherwise, as plain numbers."""
        check_is_fitted(self, "learnt_")
        return {"ridge": self.ridge_} if self.regularised else {}

    # ------------------------------------------------------------------------------------------------ save and load

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that was learnt, as JSON values and arrays."""
        parameters = {
            "settings": {name: to_json(name, value) for name, value in self.get_params(deep=False).items()},
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
            model = cls(**{name: from_json(value) for name, value in parameters["settings"].items()})
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
        """Raise ValueError where what was loaded contradicts itself."""
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
            and self._fits(self.learnt_, d, L)
        )
        if not consistent:
            raise ValueError("types or shapes disagree")


_SAVED_VALUES = ("seed", "ridge", "threshold", "left_out_precision", "tried", "n_rows", "n_unlabelled")
_CSR_PARTS = ("data", "indices", "indptr")


def drawn_seed(random_state: Any) -> int:
    """The seed of all that a method draws.

    >>> drawn_seed(0)
    209652396
    """
    return int(check_random_state(random_state).randint(2**31))


def held_out_rows(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to learn from and rows to ask about, in order; of fewer than five rows all are both.

    >>> seen, asked = held_out_rows(10, seed=0)
    >>> len(seen), len(asked)
    (8, 2)
    """
    n_asked = min(n // 5, _HELD_OUT)
    if not n_asked:
        return np.arange(n), np.arange(n)
    shuffled = np.random.default_rng(seed).permutation(n)
    return np.sort(shuffled[n_asked:]), np.sort(shuffled[:n_asked])


def choose_ridge(precision: Callable[[float], float]) -> tuple[float, list[list[float]]]:
    """The ridge by the rule above, and all that were tried with their precision.

    >>> choose_ridge(lambda ridge: -abs(ridge - 10))[0]
    10.0
    """
    tried: dict[float, float] = {}
    best = RIDGES.index(1.0)
    tried[RIDGES[best]] = precision(RIDGES[best])
    for direction in (1, -1):
        while 0 <= best + direction < len(RIDGES):
            here, there = RIDGES[best], RIDGES[best + direction]
            tried[there] = precision(there)
            if tried[there] <= tried[here]:
                break
            best += direction
        if best != RIDGES.index(1.0):
            break
    return RIDGES[best], [[ridge, value] for ridge, value in tried.items()]


def best_candidates(scores: NDArray[Any]) -> Any:
    """The best labels of each row of dense scores (n, L), CSR (n, L).

    >>> best_candidates(np.array([[0.5, -0.25]])).toarray().tolist()
    [[0.5, -0.25]]
    """
    labels = np.sort(decoding.largest(scores, _CANDIDATES), axis=1)
    values = np.take_along_axis(scores, labels, axis=1).astype(np.float64)
    n, k = labels.shape
    return scipy.sparse.csr_array((values.ravel(), labels.ravel(), np.arange(n + 1) * k), shape=scores.shape)


def require_dense(shape: tuple[int, int], what: str, remedy: str, itemsize: int = 8) -> None:
    """Raise before an array of size n × n, n × L or L × L is made that takes more than 2 GB.

    >>> require_dense((100_000, 100_000), "the products of all rows", "take fewer rows")
    Traceback (most recent call last):
    ripml.base.errors.MemoryLimitError: the products of all rows would be a dense array of 100,000 × 100,000,
    80.0 GB of the 2 GB that a baseline may take; take fewer rows.
    """
    needed = float(itemsize) * shape[0] * shape[1]
    if needed > _DENSE_LIMIT:
        raise MemoryLimitError(
            f"{what} would be a dense array of {shape[0]:,} × {shape[1]:,}, {needed / 1e9:.1f} GB of the 2 GB that a "
            f"baseline may take; {remedy}."
        )


def with_constant(X: Any) -> Any:
    """X with a column of ones in front: the intercept, penalised like any other weight."""
    ones = np.ones((X.shape[0], 1), X.dtype)
    if scipy.sparse.issparse(X):
        return scipy.sparse.hstack([ones, X], format="csr")
    return np.hstack([ones, X])
