"""RIPML: the estimator, its settings, and the walk through the stages.

fit      read → validate once → Phi → Z → partition → Psi and index per cluster
predict  validate → assign → ẑ = x Psi → neighbours → votes → top
"""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ripml import decoding, metrics, model_folder
from ripml.clusters import assign, partition
from ripml.ensembles import Ensemble, Projection, resolve_ensemble
from ripml.errors import DataError, ModelFolderError, NoLabelsError, ParameterError
from ripml.features import unit_rows
from ripml.labels import check_names, distinct_sets, encode_labels, label_keys, names_from_arrays, names_to_arrays
from ripml.neighbors import Index, resolve_index
from ripml.part import Part, parts_from_arrays, parts_to_arrays
from ripml.resources import blocks, require_memory, thread_count
from ripml.ridge import RidgeSolver, Solution, resolve_solver
from ripml.settings import setting_from_json, setting_to_json

__all__ = ["RIPML", "column_keys", "load"]

_log = logging.getLogger("ripml")  # what fit is doing, for those who listen

# ridge="auto" starts here (times the mean squared length of a row) and walks by half decades while precision rises.
_RIDGE_START, _RIDGE_STEP, _RIDGE_MOST_STEPS = 0.3, 10**0.5, 8
# Training rows that are left out one by one: to choose `ridge`, and where only the threshold needs them. Each costs a
# solve, so there are more of them where the factorised matrix is small.
_LEFT_OUT_TO_TUNE, _LEFT_OUT_TO_TUNE_SMALL, _SMALL, _LEFT_OUT_TO_CUT = 2000, 5000, 2500, 500
_LEFT_OUT_ITERATIVE = 200  # where the leverage of a row costs as much as a target
_QUERY_BLOCK = 8192


@dataclass(frozen=True)
class _Attempt:
    """A regularisation tried, and what it gave on the rows left out."""

    ridge: float
    quality: float
    solution: Solution
    scores: Any


def _climb(attempt: Callable[[float], _Attempt], start: float) -> _Attempt:
    """The best of the values met on a walk by factors of `_RIDGE_STEP` from `start`, first up, else down."""
    best = attempt(start)
    for factor in (_RIDGE_STEP, 1 / _RIDGE_STEP):
        for _ in range(_RIDGE_MOST_STEPS):
            candidate = attempt(best.ridge * factor)
            if candidate.quality <= best.quality:
                break
            best = candidate
        if best.ridge > start:
            break
    return best


class RIPML(BaseEstimator):  # type: ignore[misc]
    """Multilabel learning by random label embeddings, ridge regression and nearest neighbours.

    Parameters
    ----------
    n_dims : int
        m, the dimensions that each learner squeezes the labels into.
    n_neighbors : int
        k, the nearest training rows that vote in each learner.
    n_learners : int
        F, the number of independent embeddings whose votes are averaged.
    n_clusters : int
        C, k-means clusters of the features with one model each; 1 for none.
    ridge : float or "auto"
        The regularisation, in the sense of scikit-learn's `alpha` (twice the paper's λ). "auto" walks by half decades
        from 0.3 times the mean squared length of a row as long as exact leave-one-out precision rises.
    ensemble : {"gaussian", "bernoulli", "sparse", "structured", "deterministic"} or Ensemble
        The family of random matrices.
    solver : {"auto", "primal", "dual", "cg", "gd"} or RidgeSolver
        How the regression is solved; see `ripml.ridge.choose_solver` for the rule of "auto".
    index : {"exact"} or Index
        How neighbours are searched.
    normalize : bool
        Scale feature rows to length 1 first.
    n_jobs : int or None
        Threads; None or -1 for all cores. Results do not depend on it.
    random_state : int, RandomState or None
        Draws Phi, the clusters and the rows left out for tuning.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Label names, strings or integers.
    n_features_in_ : int
        d, the number of features.
    ridge_ : ndarray of shape (C,)
        The regularisation in use in each cluster.
    threshold_ : float
        The score from which `predict` says yes: the best for micro F1 on rows left out.
    left_out_precision_ : dict
        P@1, P@3 and P@5 on a sample of training rows, each left out in turn: what to expect on new rows.
    solutions_ : list of dict
        For each cluster: the solver and the reason for it, whether it converged, steps and residual.
    n_rows_, n_unlabelled_ : int
        Training rows learnt from, and rows left out because they carry no label.

    Examples
    --------
    >>> from ripml import RIPML
    >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]]
    >>> model = RIPML(n_neighbors=2, random_state=0).fit(X, [["tea"], ["tea", "hot"], ["ice"], ["ice", "cold"]])
    >>> model.recommend([[1, 0.05]], n=1)
    [[('tea', 1.0)]]
    """

    def __init__(
        self,
        n_dims: int = 100,
        n_neighbors: int = 5,
        n_learners: int = 5,
        n_clusters: int = 1,
        ridge: float | str = "auto",
        ensemble: str | Ensemble = "gaussian",
        solver: str | RidgeSolver = "auto",
        index: str | Index = "exact",
        normalize: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_dims = n_dims
        self.n_neighbors = n_neighbors
        self.n_learners = n_learners
        self.n_clusters = n_clusters
        self.ridge = ridge
        self.ensemble = ensemble
        self.solver = solver
        self.index = index
        self.normalize = normalize
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def paper(cls, n_dims: int = 100, n_neighbors: int = 5, **settings: Any) -> RIPML:
        """The paper's algorithm to the letter: Gaussian Phi, F = 5, exact neighbours in each learner, equal votes.

        The paper leaves the regularisation and the scaling of features open; here they are `ridge="auto"` and rows of
        length 1, and can be set like everything else.

        >>> RIPML.paper(n_dims=50, n_neighbors=3, random_state=0)
        RIPML(n_dims=50, n_neighbors=3, random_state=0)
        """
        paper = {"ensemble": "gaussian", "n_learners": 5, "n_clusters": 1, "index": "exact"}
        return cls(n_dims=n_dims, n_neighbors=n_neighbors, **{**paper, **settings})

    # -------------------------------------------------------------------------------------------------------- fit

    def fit(self, X: Any, Y: Any, label_names: Sequence[str] | None = None) -> RIPML:
        """Learn from features X (n, d) and labels Y.

        X is dense, CSR or a DataFrame. Y is a CSR or dense indicator (n, L), or a sequence with the label names of each
        row (strings or integers). `label_names` names the L columns of an indicator; without it they are 0 … L − 1.
        Rows without labels are left out and counted in `n_unlabelled_`. A fit that fails leaves the model as it was.
        """
        before = dict(self.__dict__)
        try:
            self._learn(X, Y, label_names)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _learn(self, X: Any, Y: Any, label_names: Sequence[str] | None) -> None:
        self.check_settings()
        X = self._validated(X, reset=True)
        if label_names is not None and getattr(Y, "ndim", 1) != 2:
            raise DataError("`label_names` names the columns of an indicator; the labels given here have names.")
        Y, self.classes_ = encode_labels(Y)
        if label_names is not None:
            self.classes_ = check_names(label_names, n_labels=Y.shape[1])
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}; they must have the same number.")
        X, Y = self._labelled_rows(X, Y)
        random = check_random_state(self.random_state)
        self.seed_ = int(random.randint(2**62, dtype=np.int64))
        projection = self._projection()
        projection.check_capacity(len(self.classes_))
        n_targets = self.n_learners * self.n_dims
        require_memory(
            8.0 * X.shape[0] * n_targets, f"{n_targets:,} targets for {X.shape[0]:,} rows", "use fewer `n_dims`"
        )

        keys = column_keys(projection.ensemble, self.n_dims, self.classes_)
        sets = distinct_sets(Y, keys)
        _log.info("embedding %s label sets into %s dimensions", f"{len(sets.counts):,}", f"{n_targets:,}")
        Z = projection.embed(sets.sets, keys, self.n_jobs)
        self.centres_, cluster = partition(X, self.n_clusters, self.seed_, self.n_jobs)
        rank = np.random.default_rng(self.seed_).permutation(len(sets.of_row))  # the order in which rows are left out
        self.parts_, self.solutions_, left_out = [], [], []
        for c in range(len(self.centres_)):
            rows = slice(None) if len(self.centres_) == 1 else np.flatnonzero(cluster == c)
            used, of_row, counts = np.unique(sets.of_row[rows], return_inverse=True, return_counts=True)
            _log.info("cluster %d of %d: %s rows", c + 1, len(self.centres_), f"{len(of_row):,}")
            unsolved = np.empty((X.shape[1], 0), np.float32)
            draft = Part(unsolved, Z[used], sets.sets[used], counts, resolve_index(self.index), self.n_learners)
            part, solution, truth_and_scores = self._solve_part(draft, X[rows], of_row, rank[rows])
            self.parts_.append(part)
            self.solutions_.append(solution)
            left_out.append(truth_and_scores)
        self.ridge_ = np.array([solution["ridge"] for solution in self.solutions_])
        truth, scores = (scipy.sparse.vstack(part, format="csr") for part in zip(*left_out, strict=True))
        self.threshold_ = decoding.best_threshold(truth, scores)
        self.left_out_precision_ = _precision(truth, scores)

    def _solve_part(
        self, draft: Part, X: Any, of_row: NDArray[np.int64], rank: NDArray[np.int64]
    ) -> tuple[Part, dict[str, Any], tuple[Any, Any]]:
        """Fit the regression of one cluster whose row i carries label set `of_row[i]`, with the best `ridge`.

        Also returned are the true labels and the scores of those rows left out that are a fair sample of all clusters.
        """
        solver, reason = resolve_solver(self.solver, *X.shape)
        targets = draft.Z[of_row]
        _log.info("%s", reason if reason != "given" else f"solver='{solver.word}'")
        solve = solver.prepare(X, targets, self.n_jobs)
        most = _LEFT_OUT_TO_TUNE_SMALL if min(X.shape) <= _SMALL else _LEFT_OUT_TO_TUNE
        most = most if self.ridge == "auto" else _LEFT_OUT_TO_CUT
        most = most if solver.exact else _LEFT_OUT_ITERATIVE
        asked = np.sort(np.argsort(rank)[:most])
        truth = draft.sets[of_row[asked]]

        def attempt(ridge: float) -> _Attempt:
            solution = solve(ridge)
            scores = draft.votes(solution.left_out(asked), self.n_neighbors, self.n_jobs, left_out=of_row[asked])
            quality = float(np.mean(list(_precision(truth, scores).values())))
            _log.info("ridge %.3g: mean P@1, 3, 5 on rows left out %.2f %%", ridge, 100 * quality)
            return _Attempt(ridge, quality, solution, scores)

        if self.ridge == "auto":
            squares = X.multiply(X) if scipy.sparse.issparse(X) else np.square(X)
            best = _climb(attempt, _RIDGE_START * (float(squares.sum()) / X.shape[0] or 1.0))
        else:
            best = attempt(float(self.ridge))
        facts = {
            "ridge": best.ridge,
            "solver": best.solution.solver,
            "reason": reason,
            "converged": best.solution.converged,
            "steps": best.solution.steps,
            "residual": best.solution.residual,
        }
        fair = np.flatnonzero(rank[asked] < most)  # the first rows of all, which are among the first of each cluster
        return replace(draft, Psi=best.solution.Psi.astype(np.float32)), facts, (truth[fair], best.scores[fair])

    def _labelled_rows(self, X: Any, Y: Any) -> tuple[Any, Any]:
        labelled = np.diff(Y.indptr) > 0
        self.n_rows_ = int(labelled.sum())
        self.n_unlabelled_ = int(len(labelled) - self.n_rows_)
        if not self.n_rows_:
            raise NoLabelsError(f"none of the {len(labelled):,} rows carries a label, so there is nothing to learn.")
        if self.n_neighbors > self.n_rows_:
            raise ParameterError(
                f"`n_neighbors` = {self.n_neighbors} is more than the {self.n_rows_} rows that carry labels "
                f"(n_samples = {len(labelled)})."
            )
        if self.n_clusters > self.n_rows_:
            raise ParameterError(
                f"`n_clusters` = {self.n_clusters} is more than the {self.n_rows_} rows that carry labels."
            )
        # z = 0 would be the nearest neighbour of every shrunken prediction, so empty rows must not be in the index.
        return (X, Y) if not self.n_unlabelled_ else (X[labelled], Y[labelled])

    def _projection(self) -> Projection:
        return Projection(resolve_ensemble(self.ensemble), self.n_dims, self.n_learners, self.seed_)

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        for name in ("n_dims", "n_neighbors", "n_learners", "n_clusters"):
            _positive(name, getattr(self, name))
        if self.ridge != "auto" and not (_is_number(self.ridge) and 0 <= float(self.ridge) < np.inf):
            raise ParameterError(f"`ridge` must be 'auto' or a finite number ≥ 0; got {self.ridge!r}.")
        if not isinstance(self.normalize, (bool, np.bool_)):
            raise ParameterError(f"`normalize` must be True or False; got {self.normalize!r}.")
        resolve_ensemble(self.ensemble)
        resolve_index(self.index)
        resolve_solver(self.solver, 1, 1)
        thread_count(self.n_jobs)

    def _check_unchanged(self) -> None:
        """Raise if `set_params` made a fitted model contradict itself."""
        self.check_settings()
        if self.parts_[0].Psi.shape[1] != self.n_dims * self.n_learners or len(self.parts_) > self.n_clusters:
            raise ParameterError("`n_dims`, `n_learners` or `n_clusters` was changed after the fit; fit again.")

    def _validated(self, X: Any, reset: bool) -> Any:
        """X as a CSR or dense float array, with rows of length 1 if so set."""
        X = validate_data(self, X=X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        if scipy.sparse.issparse(X):
            X = scipy.sparse.csr_array(X)
            if not X.has_canonical_format:  # the caller's arrays stay as they are
                X = X.copy()
                X.sum_duplicates()
        return unit_rows(X) if self.normalize else X

    # ---------------------------------------------------------------------------------------------------- predict

    def decision_function(self, X: Any) -> Any:
        """Scores, CSR (n, L): the share of votes for each label that any of the neighbours carries.

        A ten-thousandth of it is nearness, which breaks ties. A row whose features are all zero says nothing, so it has
        no score at all.
        """
        check_is_fitted(self, "parts_")
        self._check_unchanged()
        X = self._validated(X, reset=False)
        cluster = assign(X, self.centres_, self.n_jobs)
        cluster[np.asarray((X != 0).sum(axis=1)).ravel() == 0] = -1
        silent = np.flatnonzero(cluster == -1)
        found, order = [], []
        if len(silent):
            found, order = [scipy.sparse.csr_array((len(silent), len(self.classes_)))], [silent]
        for c, part in enumerate(self.parts_):
            rows = np.flatnonzero(cluster == c)
            for block in blocks(len(rows), _QUERY_BLOCK):
                found.append(part.scores(X[rows[block]], self.n_neighbors, self.n_jobs))
                order.append(rows[block])
        scores = scipy.sparse.vstack(found, format="csr")
        return scores if len(found) == 1 else scores[np.argsort(np.concatenate(order), kind="stable")]

    def recommend(self, X: Any, n: int = 5) -> list[list[tuple[Any, float]]]:
        """The n best labels of each row as (name, score), best first; fewer where fewer have a vote."""
        _positive("n", n)
        best = decoding.top(self.decision_function(X), n)
        names, values = self.classes_[best.indices].tolist(), best.data.tolist()
        pairs = list(zip(names, values, strict=True))
        return [pairs[start:end] for start, end in zip(best.indptr[:-1], best.indptr[1:], strict=True)]

    def predict(self, X: Any) -> Any:
        """The label sets, CSR indicator (n, L): labels whose score reaches `threshold_`."""
        return decoding.keep_above(self.decision_function(X), self.threshold_)

    def score(self, X: Any, Y: Any) -> float:
        """P@1: the share of rows whose best label is right. Rows without labels are not counted."""
        scores = self.decision_function(X)
        Y, names = encode_labels(Y, known=self.classes_)
        if scores.shape[0] != Y.shape[0]:
            raise DataError(f"X has {scores.shape[0]} rows and Y has {Y.shape[0]}; they must have the same number.")
        scores.resize((Y.shape[0], len(names)))  # labels the model never saw can only be missed
        return metrics.precision_at_k(Y, scores, k=1)

    def training_labels(self) -> Any:
        """The label sets that were learnt from, CSR (n_rows_, L), one a training row, in no particular order."""
        check_is_fitted(self, "parts_")
        rows = [part.sets[np.repeat(np.arange(len(part.counts)), part.counts)] for part in self.parts_]
        return scipy.sparse.vstack(rows, format="csr")

    # ------------------------------------------------------------------------------------------------ save and load

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model into a folder of JSON and plain arrays; see docs/model-folder.md."""
        check_is_fitted(self, "parts_")
        self._check_unchanged()
        parameters, arrays = self.to_state()
        model_folder.save(path, "RIPML", parameters, arrays)

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that was learnt, as JSON values and arrays."""
        settings = {name: setting_to_json(name, value) for name, value in self.get_params(deep=False).items()}
        parameters = {
            "settings": settings,
            **{name: getattr(self, f"{name}_") for name in _SAVED_VALUES},
            "n_features": int(self.n_features_in_),
            "feature_names": [str(name) for name in getattr(self, "feature_names_in_", [])],
        }
        arrays = {**parts_to_arrays(self.parts_), "centres": self.centres_, **names_to_arrays(self.classes_)}
        return parameters, arrays

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> RIPML:
        """The inverse of `to_state`; arrays may be memory-mapped and are not copied."""
        try:
            settings = {name: setting_from_json(value) for name, value in parameters["settings"].items()}
            model = cls(**settings)
            model.check_settings()
            for name in _SAVED_VALUES:
                setattr(model, f"{name}_", parameters[name])
            model.ridge_ = np.array([solution["ridge"] for solution in model.solutions_], np.float64)
            model.n_features_in_ = parameters["n_features"]
            if parameters["feature_names"]:
                model.feature_names_in_ = np.array(parameters["feature_names"], object)
            model.classes_ = names_from_arrays(arrays)
            model.centres_ = arrays["centres"]
            model.parts_ = parts_from_arrays(arrays, len(model.classes_), resolve_index(model.index), model.n_learners)
            model._check_loaded(parameters["feature_names"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, UnicodeDecodeError) as error:
            raise ModelFolderError(f"the model's parameters and arrays do not fit together: {error}.") from error
        return model

    def _check_loaded(self, feature_names: list[Any]) -> None:
        """Raise ValueError where what was loaded contradicts itself."""
        d = self.n_features_in_
        numbers_of = (self.seed_, self.n_rows_, self.n_unlabelled_, d)
        consistent = (
            all(type(number) is int and number >= 0 for number in numbers_of)
            and all(type(value) is float for value in (self.threshold_, *self.left_out_precision_.values()))
            and type(feature_names) is list
            and len(feature_names) in (0, d)
            and all(type(name) is str for name in feature_names)
            and len(set(self.classes_.tolist())) == len(self.classes_)
            and self.centres_.dtype.kind == "f"
            and self.centres_.shape == (len(self.solutions_), d)
            and self.parts_[0].Psi.shape == (d, self.n_learners * self.n_dims)
            and sum(part.counts.sum(dtype=np.float64) for part in self.parts_) == self.n_rows_
        )
        if not consistent:
            raise ValueError("types, shapes or sums disagree")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


def column_keys(ensemble: Ensemble, n_dims: int, names: NDArray[Any]) -> NDArray[np.uint64]:
    """The key of each label's column of Phi; families with a capacity number the labels instead."""
    return label_keys(names) if ensemble.capacity(n_dims) is None else np.arange(len(names), dtype=np.uint64)


_SAVED_VALUES = ("seed", "threshold", "n_rows", "n_unlabelled", "left_out_precision", "solutions")


def load(path: str | PathLike[str]) -> RIPML:
    """Load a saved model; its arrays stay on disk and are read as they are needed.

    >>> load("no/such/model")
    Traceback (most recent call last):
    ripml.errors.ModelFolderError: no/such/model: this model folder cannot be opened (No such file or directory).
    """
    contents = model_folder.load(path)
    if contents.kind != "RIPML":
        raise ModelFolderError(f"{path}: holds a model of kind {contents.kind!r}, not RIPML.")
    return RIPML.from_state(contents.parameters, contents.arrays)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ParameterError(f"`{name}` must be an integer ≥ 1; got {value!r}.")


def _precision(truth: Any, scores: Any) -> dict[str, float]:
    return {f"P@{k}": metrics.precision_at_k(truth, scores, k=k) for k in (1, 3, 5)}
