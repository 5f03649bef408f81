"""RIPML: the estimator. It holds the settings, validates rows and labels, and delegates to its model, a value.

fit      validate → `ripml.model.fitting.fit` → `model_`
scores   validate → `model_.scores`
learn    validate → `model_ = model_.changed(change)`
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base import progress, registry
from ripml.base.errors import (
    DataError,
    ModelFolderError,
    NoLabelsError,
    ParameterError,
    check_count,
    check_ridge,
    is_number,
)
from ripml.base.parallel import exclusive, thread_count
from ripml.base.workspace import DiskWorkspace, Workspace
from ripml.decoding import scores as scoring
from ripml.decoding.decoders import Blend, Decoder
from ripml.decoding.evidence import apart
from ripml.decoding.guarantees import Guarantees, sets_above
from ripml.labels.encoding import LabelColumns, check_names, encode_labels, label_keys
from ripml.labels.ensembles import Ensemble
from ripml.labels.propensity import weigh
from ripml.labels.vocabulary import Vocabulary
from ripml.model import state
from ripml.model.audit import Audit, audit
from ripml.model.budget import Sizes, held_bytes, working_bytes
from ripml.model.cluster import Cluster
from ripml.model.explain import Explanation, explain
from ripml.model.features import Scaling
from ripml.model.fitting import Settings, fit
from ripml.model.left_out import leave_out_rows
from ripml.model.model import Model
from ripml.model.multilabel import TrainingData
from ripml.model.plots import plot_quality
from ripml.model.quality import Quality, quality
from ripml.model.shown import fitted_html
from ripml.model.streaming import RowFiles
from ripml.model.update import Updatable
from ripml.neighbors import Index
from ripml.regression import RidgeSolver, resolve_solver
from ripml.regression.kernels import Kernel

__all__ = ["AUTOMATION", "RIPML"]

AUTOMATION = (0.8, 0.85, 0.9, 0.95, 0.98, 0.99)  # precisions that `automation` is asked for


class RIPML(Updatable):
    """Multilabel learning by label embeddings, ridge regression and nearest neighbours.

    Every "auto" is chosen on left-out training rows and on nothing else.

    Parameters
    ----------
    n_dims : int or "auto"
        m, the dimensions of the label embedding of each learner. "auto" gives each label a dimension of its own where
        that is cheap (up to 4,096 labels), and otherwise uses 768 (512 with conjugate gradients).
    n_neighbors : int or "auto"
        k, the nearest label sets (rows, for "votes") that vote in each learner.
    n_learners : int
        F, the number of independent embeddings.
    n_clusters : int
        C, the number of k-means clusters of the features, with one regression and index each; 1 for none.
    n_probe : int
        With decoder="votes", the number of nearest clusters whose rows vote. The embedding of a row is predicted by
        the nearest one.
    kernel : {"auto", "linear", "rbf", "local"} or Kernel
        How similar feature rows are. "auto" is "rbf" up to 20,000 rows per cluster, else "local": linear for all rows
        and "rbf" on the rows most similar to a query.
    relevance : float or "auto"
        Features are multiplied by this power of their relevance to the labels; 0 leaves them as they are.
    ridge : float or "auto"
        The regularisation, as scikit-learn's `alpha` (twice the paper's λ).
    ensemble : {"auto", "gaussian", "bernoulli", "sparse", "structured", "deterministic", "identity"} or Ensemble
        The family of random matrices. "auto" is "identity" where `n_dims` allows it, else "gaussian".
    solver : {"auto", "primal", "dual", "cg", "gd"} or RidgeSolver
        How a linear regression is solved; see `ripml.regression.choose_solver` for the rule of "auto".
    index : {"auto", "exact", "bits", "ivf", "hnsw", "lsh"} or Index
        How neighbours among label sets are searched. "auto" compares a query with all of them up to 30,000,000 numbers
        (117,000 label sets of 256 dimensions), and past that scans two bits per dimension; see `solutions_`.
    decoder : {"blend", "votes", "weighted", "sketch", "least-squares"} or Decoder
        How a predicted embedding becomes scores; see `ripml.decoding.decoders`.
    tail : float
        How much rare labels are favoured: `decision_function` and `recommend` multiply the score of a label by
        p^(−tail), where p is its propensity (Jain et al. 2016), scaled to stay in [0, 1]. This raises PSP@k at the
        expense of P@k, and does not affect `predict` and `predict_proba`. 0 for none.
    normalize : bool or "auto"
        How features are scaled. True scales rows to length 1, False leaves them as they are. "auto" is True
        where most features are 0, as in texts; else it chooses among rows of length 1, columns divided by their
        standard deviations, both, and centred rows of length 1. See `scaling_`.
    views : sequence of int or None
        For rows that are several kinds of features side by side, such as words and an embedding: the number of columns
        of each. The part of each view is scaled to length 1 and weighted by a share that is chosen on left-out rows.
    n_jobs : int or None
        Threads; None or -1 for all cores. Results do not depend on it.
    random_state : int, RandomState or None
        Determines Phi, the clusters and the left-out rows.
    verbose : int
        1 shows the steps of a fit with the time that is left: as a bar in a notebook and on a terminal, else in lines
        on standard error. 0 shows nothing. It is not saved.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Label names, strings or integers.
    n_features_in_ : int
        d, the number of features.
    chosen_ : dict
        What was chosen, as plain numbers: `relevance`, `n_neighbors`, `temperature`, `epsilon` and so on.
    kernel_, ensemble_, n_dims_
        The kernel with its width, the family of matrices and m in use.
    ridge_ : ndarray of shape (C,)
        The regularisation in use in each cluster.
    threshold_ : float
        The lowest score at which `predict` assigns a label: the best for micro F1 on left-out rows.
    left_out_precision_ : dict
        P@1, P@3 and P@5 on left-out training rows: an estimate for new rows.
    calibration_error_ : float
        The expected calibration error of `predict_proba` on left-out rows.
    solutions_ : list of dict
        For each cluster: the solver and the reason for it, whether it converged, steps and residual; and for very
        many rows and label sets `similar_recall` and `set_recall`, the shares of the most similar rows and of the
        nearest label sets that are found, on left-out rows.
    n_rows_, n_unlabelled_, n_seen_ : int
        Training rows, rows that were skipped because they have no label, and all rows ever learnt, in whose order
        rows are numbered.
    n_repeated_ : int
        Rows of the fit whose features repeat those of an earlier one. No row is left out while a copy of it is learnt.
    warm_ : dict
        What was learnt and forgotten since the fit, the drift of the regression, and whether a new fit is advised.

    Examples
    --------
    >>> from ripml import RIPML
    >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]]
    >>> model = RIPML(random_state=0).fit(X, [["tea"], ["tea", "hot"], ["ice"], ["ice", "cold"]])
    >>> [name for name, score in model.recommend([[1, 0.05]], n=2)[0]]
    ['tea', 'hot']
    """

    def __init__(
        self,
        n_dims: int | str = "auto",
        n_neighbors: int | str = "auto",
        n_learners: int = 1,
        n_clusters: int = 1,
        n_probe: int = 1,
        kernel: str | Kernel = "auto",
        relevance: float | str = "auto",
        ridge: float | str = "auto",
        ensemble: str | Ensemble = "auto",
        solver: str | RidgeSolver = "auto",
        index: str | Index = "auto",
        decoder: str | Decoder = "blend",
        tail: float = 0.0,
        normalize: bool | str = "auto",
        views: Sequence[int] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_dims = n_dims
        self.n_neighbors = n_neighbors
        self.n_learners = n_learners
        self.n_clusters = n_clusters
        self.n_probe = n_probe
        self.kernel = kernel
        self.relevance = relevance
        self.ridge = ridge
        self.ensemble = ensemble
        self.solver = solver
        self.index = index
        self.decoder = decoder
        self.tail = tail
        self.normalize = normalize
        self.views = views
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, n_dims: int = 100, n_neighbors: int = 5, **settings: Any) -> RIPML:
        """The paper's algorithm to the letter: Gaussian Phi, F = 5, exact neighbours in each learner, equal votes.

        The paper leaves the regularisation and the scaling of features open; here they are `ridge="auto"` and rows of
        length 1, and can be set like everything else.

        >>> RIPML.paper(n_dims=50, n_neighbors=3).decoder
        'votes'
        """
        paper = {"n_learners": 5, "kernel": "linear", "relevance": 0.0, "ensemble": "gaussian", "index": "exact"}
        paper["decoder"] = "votes"
        return cls(n_dims=n_dims, n_neighbors=n_neighbors, **{**paper, **settings})

    @classmethod
    def linear(cls, **settings: Any) -> RIPML:
        """Linear ridge regression that stores no rows, several times as fast as the default.

        Its P@1 was one to three points lower on Bibtex, Delicious, EUR-Lex and Wikispeedia. For tens of thousands of
        labels with a few rows each, use the default.

        >>> RIPML.linear(random_state=0).kernel
        'linear'
        """
        return cls(**{"kernel": "linear", "decoder": Blend(n_similar=0), **settings})

    # -------------------------------------------------------------------------------------------------------- fit

    @exclusive
    def fit_blocks(
        self,
        blocks: Iterable[tuple[Any, Any]],
        folder: str | PathLike[str],
        memory: int = 1 << 30,
        label_names: Sequence[str] | Callable[[], Sequence[str] | None] | None = None,
    ) -> RIPML:
        """Learn from blocks (X, Y) that together may be larger than memory; the model is the same as that of `fit`.

        Rows and the index are written to `folder`. About `memory` bytes are held besides a block, if that is enough for
        the factorised matrix, if any, and for some 120 bytes per row and 250 per label; `ripml.model.budget` estimates
        what is enough. An interrupted run continues after its last block when it is called again with the same blocks.
        The fitted model reads the folder: `save` it before you remove the folder.

        X of a block is as for `fit`; Y is an indicator with the same columns in every block, or label names. CSR blocks
        may have more columns than those before. `label_names` may be a function, called after the last block.

        >>> import tempfile
        >>> X, Y = np.eye(4, dtype=np.float32), [["tea"], ["tea", "hot"], ["ice"], ["ice", "cold"]]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model = RIPML.paper(n_dims=8, n_neighbors=1).fit_blocks([(X[:2], Y[:2]), (X[2:], Y[2:])], folder)
        >>> model.classes_.tolist()
        ['cold', 'hot', 'ice', 'tea']
        """
        self.check_settings()
        check_count("memory", memory, least=1 << 20)
        place, fitted = Path(folder), self._unfitted()
        scaled = self.stages().scales_at_once
        files, columns = RowFiles(place / "rows", f"normalize={scaled}"), LabelColumns()
        names: list[Any] = []
        for X, Y in blocks:
            n_rows, n_labelled = (part.shape[0] if hasattr(part, "shape") else len(part) for part in (X, Y))
            if n_rows == n_labelled == 0:
                continue
            valid, labels = fitted._validated(X, reset=True), columns.encode(Y)
            names.append(getattr(fitted, "feature_names_in_", None))
            if not np.array_equal(names[0], names.pop() if len(names) > 1 else names[0]):
                raise DataError("a block has other feature names than the first one, or the same in another order.")
            if valid.shape[0] != labels.shape[0]:
                raise DataError(
                    f"a block has {valid.shape[0]} rows of X and {labels.shape[0]} of Y; the numbers must be the same."
                )
            files.append(fitted._scaled_part(valid), labels)
        fitted._fit_files(files, columns, place, memory, label_names() if callable(label_names) else label_names)
        return self._adopt(fitted)

    def _fit_files(
        self, files: RowFiles, columns: LabelColumns, place: Path, memory: int, label_names: Sequence[str] | None
    ) -> None:
        rows, Y = files.matrices()
        X, _ = apart(rows)
        held = held_bytes(self.stages(), Sizes(X.shape[0], X.shape[1], Y.shape[1]))
        workspace = DiskWorkspace.in_folder(place, working_bytes(memory, held))
        self.n_features_in_ = X.shape[1]
        if not X.shape[0]:
            raise NoLabelsError(
                f"none of the {files.n_unlabelled:,} rows carries a label, so there is nothing to learn."
            )
        names = columns.names
        if columns.named:
            order = np.argsort(names, kind="stable")
            column = np.empty(len(order), np.int64)
            column[order] = np.arange(len(order))
            Y, names = workspace.move_columns(Y, column, "labels"), names[order]
        if label_names is not None:
            names = check_names(label_names, Y.shape[1])
        self._fit_mapped(rows, Y, names, files.n_unlabelled, workspace)

    def _fit_mapped(self, X: Any, Y: Any, names: NDArray[Any], n_unlabelled: int, workspace: DiskWorkspace) -> None:
        """Learn from rows in files."""
        # Files of an interrupted run are used again only where the passes would be the same.
        independent = ("n_jobs", "ridge", "index", "n_probe", "n_neighbors", "tail", "verbose")
        fixed = {name: value for name, value in self.get_params(deep=False).items() if name not in independent}
        workspace = replace(workspace, work_id=f"{fixed} {X.shape} {zlib.crc32(label_keys(names).tobytes())}")
        workspace.discard_stale_files()
        workspace.trim_memory()  # of what rows were read and made with
        self._fit_rows(X, Y, names, n_unlabelled, workspace)

    def _fit(self, data: TrainingData) -> None:
        self._fit_rows(data.X, data.Y, data.names, data.n_unlabelled, Workspace())

    def _fit_rows(self, X: Any, Y: Any, names: NDArray[Any], n_unlabelled: int, workspace: Workspace) -> None:
        seed = self._seed(X.shape[0], n_unlabelled)
        self._settings_at_fit = self._settings()
        with progress.shown("training", self.verbose):
            self.model_ = fit(self.stages(), X, Y, names, n_unlabelled, seed, workspace)

    def _scaled(self, X: Any) -> Any:
        """X: the model scales rows, by what its fit chose."""
        return X

    def _scaling_of_parts(self) -> Scaling:
        """How rows are scaled that come in parts: not at all where the fit chooses that."""
        stages = self.stages()
        shares = tuple(1 / len(stages.views) for _ in stages.views)
        return Scaling(stages.scales_at_once, views=stages.views, shares=shares)

    def _scaled_part(self, X: Any) -> Any:
        """Valid rows that come in parts, scaled."""
        self._check_views(X.shape[1])
        features, evidence = apart(X)
        scaled = self._scaling_of_parts().unweighted(features, None, self.n_jobs)
        return scaled if evidence is None else X.with_features(scaled)

    def _check_views(self, n_features: int) -> None:
        """Raise unless the views have all columns of the features between them."""
        widths = self.stages().views
        if widths and sum(widths) != n_features:
            raise ParameterError(f"`views` has {sum(widths)} columns in all, and X has {n_features}.")

    def _seed(self, n_rows: int, n_unlabelled: int) -> int:
        """What everything random is drawn from, once the settings are known to fit to the rows."""
        self._check_views(self.n_features_in_)
        for name in ("n_neighbors", "n_clusters"):
            value = getattr(self, name)
            if not isinstance(value, str) and value > n_rows:
                raise ParameterError(
                    f"`{name}` = {value} is more than the {n_rows} rows that carry labels "
                    f"(n_samples = {n_rows + n_unlabelled})."
                )
        from sklearn.utils import check_random_state

        return int(check_random_state(self.random_state).randint(2**62, dtype=np.int64))

    def stages(self) -> Settings:
        """The settings with "auto" as None and words turned into stages."""
        return Settings(
            n_dims=None if self.n_dims == "auto" else int(self.n_dims),
            n_neighbors=None if self.n_neighbors == "auto" else int(self.n_neighbors),
            n_learners=self.n_learners,
            n_clusters=self.n_clusters,
            kernel=None if self.kernel == "auto" else registry.resolve("kernel", self.kernel, ("auto",)),
            relevance=None if self.relevance == "auto" else float(self.relevance),
            ridge=None if self.ridge == "auto" else float(self.ridge),
            ensemble=None if self.ensemble == "auto" else registry.resolve("ensemble", self.ensemble, ("auto",)),
            solver=self.solver,
            index=registry.resolve("index", self.index),
            decoder=registry.resolve("decoder", self.decoder),
            normalize=None if self.normalize == "auto" else bool(self.normalize),
            views=() if self.views is None else tuple(int(width) for width in self.views),
            n_jobs=self.n_jobs,
            structure=self._structure(),
        )

    def check_settings(self) -> None:
        """Raise `ParameterError` for the first setting that is out of its range."""
        for name in ("n_dims", "n_neighbors"):
            if getattr(self, name) != "auto":
                check_count(name, getattr(self, name), "'auto' or ")
        for name in ("n_learners", "n_clusters", "n_probe"):
            check_count(name, getattr(self, name))
        for name in ("relevance", "ridge"):
            check_ridge(name, getattr(self, name))
        if not (is_number(self.tail) and 0 <= float(self.tail) < np.inf):
            raise ParameterError(f"`tail` must be a finite number ≥ 0; got {self.tail!r}.")
        if self.normalize != "auto" and not isinstance(self.normalize, (bool, np.bool_)):
            raise ParameterError(f"`normalize` must be 'auto', True or False; got {self.normalize!r}.")
        for width in () if self.views is None else self.views:
            check_count("views", width)
        check_count("verbose", int(self.verbose) if isinstance(self.verbose, bool) else self.verbose, least=0)
        thread_count(self.n_jobs)
        if self.ensemble != "auto":
            registry.resolve("ensemble", self.ensemble, ("auto",))
        registry.resolve("index", self.index)
        resolve_solver(self.solver, 1, 1)
        kernel = None if self.kernel == "auto" else registry.resolve("kernel", self.kernel, ("auto",))
        registry.resolve("decoder", self.decoder).check(kernel, self.n_probe)

    def _check_unchanged(self) -> None:
        """Raise if `set_params` made a fitted model contradict itself."""
        if self._settings_at_fit == self._settings():
            return
        self.check_settings()
        fitted = self.model_.structure
        changed = [name for name, value in self._structure().items() if value != fitted.get(name)]
        if changed:
            raise ParameterError(f"{', '.join(f'`{n}`' for n in changed)} was changed after the fit; fit again.")

    def _settings(self) -> list[Any]:
        return [getattr(self, name) for name in _SETTINGS]

    def _structure(self) -> dict[str, str]:
        """The settings that a fitted model cannot change, as text."""
        names = ["n_dims", "n_learners", "n_clusters", "kernel", "relevance", "ensemble", "decoder", "normalize"]
        names += ["views"] if self.views is not None else []
        if not registry.resolve("decoder", self.decoder).recounts:
            names.append("n_neighbors")
        values = {name: getattr(self, name) for name in names}
        return {name: repr(value.item() if isinstance(value, np.generic) else value) for name, value in values.items()}

    # ---------------------------------------------------------------------------------------------------- predict

    def decision_function(self, X: Any) -> Any:
        """Scores, CSR (n, L): of the candidate labels of each row only, in [0, 1].

        With decoder="blend" a score is the probability that the label is right; with "votes" it is the share of votes,
        a ten-thousandth of which is nearness to break ties. A row whose features are all zero has no score at all,
        unless columns are centred (see `normalize`).
        """
        return self._favour_rare_labels(self._raw_scores(X))

    def _favour_rare_labels(self, scores: Any) -> Any:
        if self.tail and (p := self.propensities()) is not None:
            least = p.min(where=self.frequency_ > 0, initial=1.0)
            # A label that only decisions name counts as one of the rarest.
            scores = weigh(scores, np.maximum(p, least), float(self.tail)) * least ** float(self.tail)
        return scores

    def _raw_scores(self, X: Any) -> Any:
        """Scores before rare labels are put forward: of one version of the model, even if it is changed meanwhile."""
        return self._scores_of(self._answering(), X)

    def _scores_of(self, model: Model, X: Any) -> Any:
        return model.scores(self._validated(X, reset=False), self.n_jobs, self.n_probe)

    def _answering(self) -> Model:
        """The model, with the number of neighbours as it is set now."""
        model = self._fitted_model()
        self._check_unchanged()
        if isinstance(self.n_neighbors, str):
            return model
        return replace(model, decoder=model.decoder.with_neighbors(int(self.n_neighbors)))

    def predict(self, X: Any, coverage: float | None = None, per_label: bool = False) -> Any:
        """The label sets, CSR indicator (n, L): labels whose score reaches `threshold_`, or sets with a guarantee.

        With `coverage`, the set of a new row holds on average at least this share of its labels (conformal risk
        control on left-out rows). With `per_label`, a label that is right is in the set with at least this probability,
        for each label with enough left-out rows, and on average for groups of rarer ones; see `guarantee` and
        docs/how-to/guarantees.md. ParameterError where left-out rows do not allow the guarantee.

        >>> X = np.eye(40)[np.repeat(np.arange(4), 25)] + 0.01 * np.random.default_rng(0).random((100, 40))
        >>> Y = [[name] for name in np.repeat(["tea", "ice", "hot", "cold"], 25)]
        >>> model = RIPML(random_state=0).fit(X, Y)
        >>> model.classes_[model.predict(X[:1], coverage=0.9).indices].tolist()
        ['tea']
        """
        if coverage is None:
            return super().predict(X)
        sets = self.covered(self._raw_scores(X), X, coverage, per_label)
        sets.data = np.ones(len(sets.data), np.float32)
        return sets

    def covered(self, scores: Any, X: Any, coverage: float, per_label: bool = False) -> Any:
        """The label sets of rows X by their scores, CSR (n, L), as `predict` gives them, with scores of their labels.

        Labels beyond the candidates of a row have the probability that they are right by what is near to the row, or
        the score 0 where nothing is known about that, see `ripml.decoding.beyond`.
        """
        if self.tail:
            raise ParameterError(f"`coverage` is a guarantee for scores with tail=0; got tail={self.tail:g}.")
        model, guarantees = self._fitted_model(), self._guarantees()
        level: Any = guarantees.label_levels(coverage, model.frequency)[0] if per_label else None
        if level is None:
            level = guarantees.level_for(coverage)[0]
        retired = model.vocabulary.retired
        others = None
        if len(guarantees.beyond) and model.n_rows:
            rows = self._validated(X, reset=False)
            others = lambda block: model.levels(rows[block], guarantees.beyond)  # noqa: E731
        sets = sets_above(scores, level, model.frequency, others)
        return scoring.without_labels(sets, retired) if retired.any() else sets

    def guarantee(self, coverage: float) -> dict[str, Any]:
        """What `predict` with this coverage promises, by left-out rows.

        `labels_per_set`, the mean size of a set; `left_out`, the number of left-out rows; and for `per_label` the
        numbers of labels with a guarantee of their own (`labels_alone`), on average over labels of similar frequency
        (`labels_by_frequency`), and without one (`labels_without`).
        """
        guarantees = self._guarantees()
        kinds = np.bincount(guarantees.label_levels(coverage, self.frequency_)[1], minlength=3).tolist()
        size = guarantees.level_for(coverage)[1]
        names = ("labels_without", "labels_by_frequency", "labels_alone")
        return {
            "coverage": float(coverage),
            "left_out": guarantees.n_rows,
            "labels_per_set": round(size, 2),
            **dict(zip(reversed(names), reversed(kinds), strict=True)),
        }

    def automation(self, precision: Sequence[float] = AUTOMATION) -> dict[str, list[dict[str, float]]]:
        """How much can be applied unseen with at least each of these precisions, by left-out rows.

        "labels": all labels with a score of at least `threshold` are applied; `share` is that of all right labels that
        are found so. "rows": a row gets all labels of its set (`predict`) if their mean probability is at least
        `threshold`; `share` is that of all rows. `precision` is that of left-out rows, and `least` what that of new
        rows is at least with a confidence of 95 %: that is what reaches the precision that was asked for. One that too
        few left-out rows show is left out.
        """
        guarantees = self._guarantees()
        curves = {"labels": guarantees.tags, "rows": guarantees.documents}
        return {name: [found for p in precision if (found := curve.at(p))] for name, curve in curves.items()}

    def automation_curves(self) -> dict[str, dict[str, list[float]]]:
        """`automation` at every threshold: lists of "threshold", falling, "precision", "least" and "share".

        They end where fewer than 300 labels, or 100 rows, would be applied; of few left-out rows they are empty.
        """
        return self._guarantees().curves()

    def _guarantees(self) -> Guarantees:
        found = self._fitted_model().calibration.guarantees
        if found is None:
            raise ParameterError(
                "this model was fitted by a version that kept no scores of left-out rows, so it can promise nothing; "
                "fit it again."
            )
        return found

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities, CSR (n, L); 0 for labels that are not candidates.

        They come from the scores by isotonic regression on left-out rows; `calibration_error_` is the expected error.
        """
        return self.scores_and_probabilities(X)[1]

    def scores_and_probabilities(self, X: Any) -> tuple[Any, Any]:
        """`decision_function` and `predict_proba`, computed together: two CSR matrices with the same entries."""
        model = self._answering()
        scores = self._scores_of(model, X)
        probabilities = scores.copy()
        probabilities.data = model.calibration.probabilities(scores.data)
        return self._favour_rare_labels(scores), probabilities

    def explain(self, X: Any, n: int = 5, n_examples: int = 5, n_features: int = 10) -> list[list[Explanation]]:
        """For each row, why its n best labels have their scores.

        For each label the `n_examples` stored examples with the largest shares of the score, and the `n_features`
        features that pulled most towards it or away; see `ripml.model.explain.Explanation`. Shares add up to the score.

        >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]]
        >>> model = RIPML(random_state=0).fit(X, [["tea"], ["tea", "hot"], ["ice"], ["ice", "cold"]])
        >>> why = model.explain([[1, 0.05]], n=1)[0][0]
        >>> why.label, "tea" in why.examples[0].labels, why.features[0][0]
        ('tea', True, 0)
        """
        self._fitted_model()
        return explain(self.__copy__(), X, n, n_examples, n_features)  # one version throughout

    def audit(self, limit: int = 1000, n_examples: int = 3) -> Audit:
        """The labels of training rows that are most probably wrong and missing, at most `limit` of each.

        Each row is scored by a model of all others but its copies, the rows of the same features. Rows are numbered in
        the order in which they were learnt, see `n_seen_`; those without labels do not count. See `ripml.model.audit`
        for how findings are ranked, and for the up to `n_examples` similar rows for and against each.

        >>> X = np.repeat(np.eye(2), 20, axis=0) + np.random.default_rng(0).random((40, 2)) / 5
        >>> Y = [["tea"]] * 20 + [["ice"]] * 19 + [["tea"]]
        >>> found = RIPML(random_state=0).fit(X, Y).audit(limit=1)
        >>> [(finding.kind, finding.document, finding.label) for finding in (*found.wrong, *found.missing)]
        [('wrong', 39, 'tea'), ('missing', 39, 'ice')]
        """
        return audit(self._fitted_model(), limit, n_examples, self.n_jobs)

    def quality(self, limit: int = 1000, n_examples: int = 3) -> Quality:
        """How well labels are predicted for training rows, each left out with its copies.

        Overall, by label frequency, and for each of the `limit` most frequent labels: precision, recall, calibration,
        confusions and the worst `n_examples`; labels that belong together, and labels that may be two. Figures
        are None where there are too few rows to measure. See `ripml.model.quality`.

        >>> X = np.repeat(np.eye(2), 50, axis=0) + np.random.default_rng(0).random((100, 2)) / 5
        >>> found = RIPML(random_state=0).fit(X, [["tea"]] * 50 + [["ice"]] * 50).quality()
        >>> found.micro_f1, [(label.label, label.recall) for label in found.labels]
        (1.0, [('ice', 1.0), ('tea', 1.0)])
        """
        return quality(self._fitted_model(), limit, n_examples, self.n_jobs)

    def plot(self, X: Any = None, Y: Any = None) -> Any:
        """A figure of calibration, of precision and recall by label frequency, and of what can be applied unseen.

        It is about rows X with labels Y that the model has not learnt; without them, about the training rows, each left
        out with its copies. Needs matplotlib, the extra `plot`. See `ripml.model.plots`.

        >>> X = np.repeat(np.eye(2), 20, axis=0) + np.random.default_rng(0).random((40, 2)) / 5
        >>> figure = RIPML(random_state=0).fit(X, [["tea"]] * 20 + [["ice"]] * 20).plot()
        >>> [axes.get_title(loc="left").strip() for axes in figure.axes]
        ['Calibration', 'By frequency of the label', 'Automation']
        """
        model = self._fitted_model()
        if X is None:
            left_out = leave_out_rows(model, self.n_jobs)
            return plot_quality(model, left_out.Y, left_out.scores, f"{len(left_out.group):,} training rows, left out")
        if Y is None:
            raise DataError("the labels of the rows are needed, too: plot(X, Y).")
        scores = self._raw_scores(X)
        truth, names = encode_labels(Y, known=self.classes_)
        if scores.shape[0] != truth.shape[0]:
            raise DataError(f"X has {scores.shape[0]} rows and Y has {truth.shape[0]}; they must have the same number.")
        scores.resize((truth.shape[0], len(names)))
        return plot_quality(model, truth, scores, f"{truth.shape[0]:,} rows that were not learnt")

    # ------------------------------------------------------------------------------------------------- what was learnt

    @property
    def vocabulary_(self) -> Vocabulary:
        """The labels: names, keys, and which are retired."""
        return self.model_.vocabulary

    @property
    def classes_(self) -> NDArray[Any]:
        """Label names, strings or integers."""
        return self.model_.vocabulary.names

    @property
    def clusters_(self) -> tuple[Cluster, ...]:
        """For each cluster its regression, index and rows."""
        return self.model_.clusters

    @property
    def centres_(self) -> NDArray[Any]:
        """The centres of the clusters, (C, d)."""
        return self.model_.centres

    @property
    def scaling_(self) -> Scaling:
        """How features are scaled and weighted."""
        return self.model_.scaling

    @property
    def chosen_(self) -> dict[str, Any]:
        """What was chosen, as plain numbers."""
        views = {"views": self.model_.scaling.shares} if self.model_.scaling.views else {}
        return {"relevance": self.model_.relevance, **views, **asdict(self.model_.decoder.choices)}

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its width."""
        return self.model_.kernel

    @property
    def ensemble_(self) -> Ensemble:
        """The family of random matrices in use."""
        return self.model_.decoder.embedding.projection.ensemble

    @property
    def n_dims_(self) -> int:
        """m in use."""
        return self.model_.decoder.embedding.projection.n_dims

    @property
    def ridge_(self) -> NDArray[np.float64]:
        """The regularisation in use in each cluster, (C,)."""
        return np.array([solution["ridge"] for solution in self.model_.solutions], np.float64)

    @property
    def solutions_(self) -> list[dict[str, Any]]:
        """For each cluster how its regression was solved."""
        return list(self.model_.solutions)

    @property
    def threshold_(self) -> float:
        """The score from which `predict` says yes."""
        return self.model_.calibration.threshold

    @property
    def left_out_precision_(self) -> dict[str, float]:
        """P@1, P@3 and P@5 on left-out training rows."""
        return self.model_.calibration.precision

    @property
    def calibration_error_(self) -> float:
        """The expected calibration error of `predict_proba` on left-out rows."""
        return self.model_.calibration.error

    @property
    def calibration_errors_(self) -> dict[str, float]:
        """The same apart for labels that no other row carries ("unseen"), up to five ("rare") and more ("frequent")."""
        return self.model_.calibration.errors

    @property
    def frequency_(self) -> NDArray[np.int64]:
        """Training rows of each label, (L,)."""
        return self.model_.frequency

    @property
    def n_rows_(self) -> int:
        """Rows learnt from."""
        return self.model_.n_rows

    @property
    def n_unlabelled_(self) -> int:
        """Rows left out because they carry no label."""
        return self.model_.n_unlabelled

    @property
    def n_repeated_(self) -> int:
        """Rows of the fit that repeated the features of an earlier one."""
        return self.model_.n_repeated

    @property
    def n_seen_(self) -> int:
        """Rows ever learnt, numbered in their order."""
        return self.model_.n_seen

    @property
    def seed_(self) -> int:
        """What everything random was drawn from."""
        return self.model_.seed

    # ------------------------------------------------------------------------------------------------------- notebooks

    def _repr_html_(self) -> str:
        """The diagram of scikit-learn before the fit, and what was learnt after it."""
        if not hasattr(self, "model_"):
            return super()._repr_html_()
        counts = {"rows": self.n_rows_, "labels": len(self.classes_), "features": int(self.n_features_in_)}
        counts |= {"rows without labels": self.n_unlabelled_, "repeated rows": self.n_repeated_}
        return fitted_html("RIPML", self, counts, self.get_params(deep=False))

    # ------------------------------------------------------------------------------------------------ save and load

    def settings_to_json(self) -> dict[str, Any]:
        """The settings that are saved, as JSON: all but how much a fit shows."""
        settings = self.get_params(deep=False)
        return {name: registry.to_json(name, value) for name, value in settings.items() if name != "verbose"}

    def to_state(self, compact: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that was learnt, as JSON values and arrays; `compact`, only what answers need."""
        settings = self.settings_to_json()
        values, arrays = state.to_state(self._fitted_model(), self.n_jobs, compact)
        feature_names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        return {"settings": settings, **values, "feature_names": feature_names}, arrays

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> RIPML:
        """The inverse of `to_state`; arrays may be memory-mapped and are not copied."""
        try:
            settings = {name: registry.from_json(value) for name, value in parameters["settings"].items()}
            estimator = cls(**settings)
            estimator.check_settings()
            estimator._restore(parameters, arrays)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, UnicodeDecodeError) as error:
            raise ModelFolderError(f"the model's parameters and arrays do not fit together: {error}.") from error
        return estimator

    def _restore(self, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.model_ = state.from_state(self.stages(), parameters, arrays)
        self._settings_at_fit = self._settings()
        self.n_features_in_ = self.model_.n_features
        names = parameters["feature_names"]
        if type(names) is not list or not all(type(name) is str for name in names):
            raise ValueError("the feature names are not a list of strings")
        if len(names) not in (0, self.n_features_in_):
            raise ValueError(f"there are {len(names)} feature names for {self.n_features_in_} features")
        if names:
            self.feature_names_in_ = np.array(names, object)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled as the arrays of a model folder, which hold no threads or objects of other libraries."""
        pickled: dict[str, Any] = super().__getstate__()
        if "model_" in pickled:
            pickled = {**pickled, "model_": state.to_state(self.model_, self.n_jobs)}
        return pickled

    def __setstate__(self, pickled: dict[str, Any]) -> None:
        learnt = pickled.pop("model_", None)
        super().__setstate__(pickled)
        if learnt is not None:
            self.model_ = state.from_state(self.stages(), *learnt)


_SETTINGS = RIPML._get_param_names()
