"""RIPML: the estimator, its settings, and the walk through the stages.

fit      read → validate once → `ripml.model.fitting.learn`
predict  validate → weigh features → assign → ẑ → neighbours and values of candidates → scores → top
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ripml.base.errors import (
    DataError,
    ModelFolderError,
    NoLabelsError,
    ParameterError,
    check_count,
    check_ridge,
    is_number,
)
from ripml.base.parallel import blocks as row_blocks
from ripml.base.parallel import map_blocks, one_blas_thread
from ripml.base.products import column_counts
from ripml.base.registry import resolve
from ripml.base.workspace import DiskWorkspace, Workspace
from ripml.decoding import blend as blending
from ripml.decoding import scores as decoding
from ripml.decoding.decoders import Blend, Decoder, Votes, resolve_decoder
from ripml.labels.encoding import LabelColumns, check_names, label_keys
from ripml.labels.ensembles import Ensemble
from ripml.labels.label_sets import distinct_sets
from ripml.labels.propensity import weigh
from ripml.labels.vocabulary import Vocabulary
from ripml.model import state as model_state
from ripml.model.clustering import nearest_centres
from ripml.model.explain import Explanation, explain
from ripml.model.features import weighted
from ripml.model.fitting import Learnt, Settings, learn
from ripml.model.online import Online, no_changes
from ripml.model.part import Decode, Part
from ripml.model.probing import probed_votes
from ripml.model.settings import setting_from_json
from ripml.model.spool import Spool
from ripml.neighbors import Index
from ripml.regression import RidgeSolver, resolve_solver
from ripml.regression.kernels import Kernel, Local, resolve_kernel

__all__ = ["RIPML"]

_QUERY_BLOCK = 8192


class RIPML(Online):
    """Multilabel learning by label embeddings, ridge regression and nearest neighbours.

    Every "auto" is chosen on training rows that were left out, never on anything else.

    Parameters
    ----------
    n_dims : int or "auto"
        m, the dimensions that each learner squeezes the labels into. "auto" gives each label a dimension of its own
        where that is cheap (up to 4,096 labels), else takes 1,024 (768 with a kernel, 512 with conjugate
        gradients).
    n_neighbors : int or "auto"
        k, the nearest label sets (rows, for "votes") that vote in each learner.
    n_learners : int
        F, the number of independent embeddings.
    n_clusters : int
        C, k-means clusters of the features with one model each; 1 for none.
    n_probe : int
        The nearest clusters whose rows may vote, with decoder="votes"; a row's embedding is that of the nearest one.
    kernel : {"auto", "linear", "rbf", "local"} or Kernel
        How alike feature rows are. "auto" is "rbf" up to 20,000 rows (a cluster), else "local": linear for all rows,
        "rbf" on those most alike to a query.
    relevance : float or "auto"
        The power of a feature's relevance to the labels that it is multiplied by; 0 leaves features as they are.
    ridge : float or "auto"
        The regularisation, in the sense of scikit-learn's `alpha` (twice the paper's λ).
    ensemble : {"auto", "gaussian", "bernoulli", "sparse", "structured", "deterministic", "identity"} or Ensemble
        The family of random matrices. "auto" is "identity" where `n_dims` allows it, else "gaussian".
    solver : {"auto", "primal", "dual", "cg", "gd"} or RidgeSolver
        How a linear regression is solved; see `ripml.regression.choose_solver` for the rule of "auto".
    index : {"exact"} or Index
        How neighbours are searched.
    decoder : {"blend", "votes", "weighted", "sketch", "least-squares"} or Decoder
        How a predicted embedding becomes scores; see `ripml.decoding.decoders`.
    tail : float
        How much rare labels are put forward: `decision_function` and `recommend` multiply the score of a label by
        p^(−tail), p its propensity (Jain et al. 2016), scaled to stay in [0, 1]. It raises PSP@k at a price in P@k, and
        leaves `predict` and `predict_proba` as they are. 0 for none.
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
    chosen_ : dict
        What was chosen, as plain numbers: `relevance`, `n_neighbors`, `temperature`, `epsilon` and so on.
    kernel_, ensemble_, n_dims_
        The kernel with its width, the family of matrices and m in use.
    ridge_ : ndarray of shape (C,)
        The regularisation in use in each cluster.
    threshold_ : float
        The score from which `predict` says yes: the best for micro F1 on rows left out.
    left_out_precision_ : dict
        P@1, P@3 and P@5 on a sample of training rows, each left out in turn: what to expect on new rows.
    calibration_error_ : float
        The expected calibration error of `predict_proba` on rows left out.
    solutions_ : list of dict
        For each cluster: the solver and the reason for it, whether it converged, steps and residual.
    n_rows_, n_unlabelled_, n_seen_ : int
        Rows learnt from, rows left out because they carry no label, and rows ever learnt, numbered as they came.
    warm_ : dict
        What was learnt and forgotten since the fit, the drift of the regression, and whether a new fit pays.

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
        index: str | Index = "exact",
        decoder: str | Decoder = "blend",
        tail: float = 0.0,
        normalize: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
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
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def paper(cls, n_dims: int = 100, n_neighbors: int = 5, **settings: Any) -> RIPML:
        """The paper's algorithm to the letter: Gaussian Phi, F = 5, exact neighbours in each learner, equal votes.

        The paper leaves the regularisation and the scaling of features open; here they are `ridge="auto"` and rows of
        length 1, and can be set like everything else.

        >>> RIPML.paper(n_dims=50, n_neighbors=3).decoder
        'votes'
        """
        paper = {"n_learners": 5, "kernel": "linear", "relevance": 0.0, "ensemble": "gaussian", "decoder": "votes"}
        return cls(n_dims=n_dims, n_neighbors=n_neighbors, **{**paper, **settings})

    @classmethod
    def linear(cls, **settings: Any) -> RIPML:
        """Linear ridge regression, no rows stored: trains and answers several times as fast as the default, with a P@1
        that was one to three points lower on Bibtex, Delicious, EUR-Lex and Wikispeedia. For tens of thousands of
        labels with a few rows each take the default.

        >>> RIPML.linear(random_state=0).kernel
        'linear'
        """
        return cls(**{"kernel": "linear", "decoder": Blend(n_similar=0), **settings})

    # -------------------------------------------------------------------------------------------------------- fit

    def fit_blocks(
        self,
        blocks: Iterable[tuple[Any, Any]],
        folder: str | PathLike[str],
        memory: int = 1 << 30,
        label_names: Sequence[str] | Callable[[], Sequence[str] | None] | None = None,
    ) -> RIPML:
        """Learn from blocks of rows, (X, Y) each, which in all may be larger than memory; the model is that of `fit`.

        Rows are written to `folder` as they come, and so is the index. With the paper's settings (`RIPML.paper`, up to
        12,000 features) about `memory` bytes are held beside a block, XᵀX and some 50 bytes a row; others read X
        into memory. A run that was interrupted goes on after its last block if it is called
        again with the same blocks. The fitted model reads the folder: `save` it before the folder is removed.

        X of a block is as for `fit`; Y is an indicator with the same columns in every block, or label names. Where they
        are CSR, later blocks may have more columns. `label_names` may be a function, asked after the last block.

        >>> import tempfile
        >>> X, Y = np.eye(4, dtype=np.float32), [["tea"], ["tea", "hot"], ["ice"], ["ice", "cold"]]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model = RIPML.paper(n_dims=8, n_neighbors=1).fit_blocks([(X[:2], Y[:2]), (X[2:], Y[2:])], folder)
        >>> model.classes_.tolist()
        ['cold', 'hot', 'ice', 'tea']
        """
        with self._unchanged_on_failure():
            self.check_settings()
            check_count("memory", memory, least=1 << 20)
            place = Path(folder)
            spool, columns = Spool(place / "rows", f"normalize={bool(self.normalize)}"), LabelColumns()
            names: list[Any] = []
            for X, Y in blocks:
                n_rows, n_labelled = (part.shape[0] if hasattr(part, "shape") else len(part) for part in (X, Y))
                if n_rows == n_labelled == 0:
                    continue
                valid, labels = self._validated(X, reset=True), columns.encode(Y)
                names.append(getattr(self, "feature_names_in_", None))
                if not np.array_equal(names[0], names.pop() if len(names) > 1 else names[0]):
                    raise DataError("the feature names of a block are not those of the first one, in its order.")
                if valid.shape[0] != labels.shape[0]:
                    raise DataError(
                        f"a block has {valid.shape[0]} rows of X and {labels.shape[0]} of Y; they must be as many."
                    )
                spool.append(valid, labels)
            workspace = DiskWorkspace.in_folder(place, memory)
            self._learn_spooled(spool, columns, workspace, label_names() if callable(label_names) else label_names)
        return self

    def _learn_spooled(
        self, spool: Spool, columns: LabelColumns, workspace: DiskWorkspace, label_names: Sequence[str] | None
    ) -> None:
        X, Y = spool.matrices()
        self.n_features_in_ = X.shape[1]
        self.n_rows_, self.n_unlabelled_ = X.shape[0], spool.n_unlabelled
        if not self.n_rows_:
            raise NoLabelsError(
                f"none of the {self.n_unlabelled_:,} rows carries a label, so there is nothing to learn."
            )
        self.classes_ = columns.names
        if columns.named:
            order = np.argsort(self.classes_, kind="stable")
            column = np.empty(len(order), np.int64)
            column[order] = np.arange(len(order))
            Y, self.classes_ = workspace.move_columns(Y, column, "labels"), self.classes_[order]
        if label_names is not None:
            self.classes_ = check_names(label_names, Y.shape[1])
        self.frequency_ = column_counts(Y)
        apart = ("n_jobs", "ridge", "index", "n_probe", "n_neighbors", "tail")  # what the passes do not depend on
        fixed = {name: value for name, value in self.get_params(deep=False).items() if name not in apart}
        workspace = replace(workspace, work_id=f"{fixed} {X.shape} {zlib.crc32(label_keys(self.classes_).tobytes())}")
        workspace.discard_stale_files()
        self._learn(X, Y, workspace)

    def _learn(self, X: Any, Y: Any, workspace: Workspace | None = None) -> None:
        if not isinstance(self.n_neighbors, str):
            self._require_rows("n_neighbors", self.n_neighbors)
        self._require_rows("n_clusters", self.n_clusters)
        random = check_random_state(self.random_state)
        self.seed_ = int(random.randint(2**62, dtype=np.int64))
        sets = distinct_sets(Y, label_keys(self.classes_))
        self._adopt(learn(self._settings(), X, Y, self.classes_, sets, self.seed_, workspace))

    def _adopt(self, learnt: Learnt) -> None:
        """Take over all that was learnt."""
        self.parts_, self.centres_, self.weights_ = learnt.parts, learnt.centres, learnt.weights
        self.kernel_, self.ensemble_, self.n_dims_ = learnt.choice.kernel, learnt.ensemble, learnt.n_dims
        self.chosen_, self.solutions_ = learnt.chosen(), learnt.solutions
        decided = learnt.decided
        self.decode_, self.trees_, self.steps_ = decided.how, decided.trees, decided.steps
        self.threshold_, self.left_out_precision_ = decided.threshold, decided.precision
        self.calibration_error_ = decided.calibration_error
        self.ridge_ = np.array([solution["ridge"] for solution in self.solutions_])
        self.labels_, self.n_seen_, self._writers = Vocabulary.of(self.classes_), self.n_rows_, {}
        self.changes_ = no_changes(self.n_rows_, len(self.classes_))
        self.structure_ = self._structure()

    def _require_rows(self, name: str, value: Any) -> None:
        """Raise if a number of neighbours or clusters is above that of the rows learnt from."""
        if value > self.n_rows_:
            raise ParameterError(
                f"`{name}` = {value} is more than the {self.n_rows_} rows that carry labels "
                f"(n_samples = {self.n_rows_ + self.n_unlabelled_})."
            )

    def _settings(self) -> Settings:
        """The settings with "auto" as None and words as stages."""
        return Settings(
            n_dims=None if self.n_dims == "auto" else int(self.n_dims),
            n_neighbors=None if self.n_neighbors == "auto" else int(self.n_neighbors),
            n_learners=self.n_learners,
            n_clusters=self.n_clusters,
            kernel=resolve_kernel(self.kernel),
            relevance=None if self.relevance == "auto" else float(self.relevance),
            ridge=None if self.ridge == "auto" else float(self.ridge),
            ensemble=None if self.ensemble == "auto" else resolve("ensemble", self.ensemble),
            solver=self.solver,
            index=resolve("index", self.index),
            decoder=resolve_decoder(self.decoder),
            normalize=bool(self.normalize),
            n_jobs=self.n_jobs,
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
        super().check_settings()
        if self.ensemble != "auto":
            resolve("ensemble", self.ensemble)
        kernel, decoder = resolve_kernel(self.kernel), resolve_decoder(self.decoder)
        resolve("index", self.index)
        resolve_solver(self.solver, 1, 1)
        if isinstance(kernel, Local) and not isinstance(decoder, Blend):
            raise ParameterError(
                f"kernel='local' is a signal among others, with decoder='blend'; got decoder={self.decoder!r}."
            )
        if self.n_probe > 1 and not isinstance(decoder, Votes):
            raise ParameterError(
                f"`n_probe` > 1 is for decoder='votes'; got n_probe={self.n_probe} and decoder={self.decoder!r}."
            )
        if isinstance(decoder, Votes) and kernel is not None and kernel.word != "linear":
            raise ParameterError(
                f"decoder='votes' is the paper's, with kernel='linear'; got kernel={self.kernel!r}: use 'weighted'."
            )

    def _check_unchanged(self) -> None:
        """Raise if `set_params` made a fitted model contradict itself."""
        self.check_settings()
        changed = [name for name, value in self._structure().items() if value != self.structure_.get(name)]
        if changed:
            raise ParameterError(f"{', '.join(f'`{n}`' for n in changed)} was changed after the fit; fit again.")

    def _structure(self) -> dict[str, str]:
        """The settings that a fitted model cannot change, as text."""
        names = ["n_dims", "n_learners", "n_clusters", "kernel", "relevance", "ensemble", "decoder", "normalize"]
        if not isinstance(resolve_decoder(self.decoder), Votes):  # votes alone can be counted anew for another k
            names.append("n_neighbors")
        values = {name: getattr(self, name) for name in names}
        return {name: repr(value.item() if isinstance(value, np.generic) else value) for name, value in values.items()}

    # ---------------------------------------------------------------------------------------------------- predict

    def decision_function(self, X: Any) -> Any:
        """Scores, CSR (n, L): of the candidate labels of each row only, in [0, 1].

        With decoder="blend" a score is the probability that the label is right; with "votes" it is the share of votes,
        a ten-thousandth of which is nearness to break ties. A row whose features are all zero says nothing, so it has
        no score at all.
        """
        scores = self._plain_scores(X)
        if self.tail and (p := self.propensities()) is not None:
            least = p.min(where=self.frequency_ > 0, initial=1.0)  # a label that no row carries has no score
            scores = weigh(scores, p, float(self.tail)) * least ** float(self.tail)
        return scores

    def _plain_scores(self, X: Any) -> Any:
        """Scores before rare labels are put forward: of one version of the model, whoever changes it meanwhile."""
        check_is_fitted(self, "parts_")
        with one_blas_thread():  # once for all blocks
            return copy.copy(self)._scores_of_version(X)

    def _scores_of_version(self, X: Any) -> Any:
        self._check_unchanged()
        X = self._seen(self._validated(X, reset=False))
        if not self.n_rows_:  # all of them were forgotten
            return scipy.sparse.csr_array((X.shape[0], len(self.classes_)))
        decoder = resolve_decoder(self.decoder)
        near = self._nearest_clusters(X)
        cluster = near[:, 0].copy()
        cluster[np.asarray((X != 0).sum(axis=1)).ravel() == 0] = -1
        silent = np.flatnonzero(cluster == -1)
        found, order = [], []
        if len(silent):
            found, order = [scipy.sparse.csr_array((len(silent), len(self.classes_)))], [silent]
        how = self._how()
        if near.shape[1] > 1:
            rows = np.flatnonzero(cluster >= 0)
            for block in row_blocks(len(rows), _QUERY_BLOCK):
                own = rows[block]
                found.append(probed_votes(self.parts_, X[own], near[own], how.n_neighbors, self.n_jobs))
                order.append(own)
        else:
            asked = [
                (part, rows[block])
                for c, part in enumerate(self.parts_)
                for rows in [np.flatnonzero(cluster == c)]
                for block in row_blocks(len(rows), _QUERY_BLOCK)
            ]
            if len(asked) == 1:
                found.append(self._scores(asked[0][0], X[asked[0][1]], how, decoder))
            else:  # each on a thread, with what they share made before
                for part, _ in asked:
                    part.prepare(isinstance(decoder, Votes))
                alone = replace(how, n_jobs=1)
                found += map_blocks(lambda ask: self._scores(ask[0], X[ask[1]], alone, decoder), asked, self.n_jobs)
            order += [rows for _, rows in asked]
        scores = scipy.sparse.vstack(found, format="csr")
        if len(found) > 1:
            scores = scores[np.argsort(np.concatenate(order), kind="stable")]
        return decoding.without_labels(scores, self.labels_.retired) if self.labels_.retired.any() else scores

    def _seen(self, X: Any) -> Any:
        """Valid features as the regression sees them: float32 but for the paper's votes, and weighed."""
        if not isinstance(resolve_decoder(self.decoder), Votes):
            X = X.astype(np.float32, copy=False)
        return X if self.weights_ is None else weighted(X, self.weights_, bool(self.normalize))

    def _how(self) -> Decode:
        """How embeddings are read, with the number of neighbours and threads as they are set now."""
        how = replace(self.decode_, n_jobs=self.n_jobs)
        return how if isinstance(self.n_neighbors, str) else replace(how, n_neighbors=int(self.n_neighbors))

    def _nearest_clusters(self, X: Any) -> NDArray[np.int64]:
        """The clusters whose rows are asked, (n, p), nearest first, of those that have rows at all."""
        there = np.flatnonzero([part.n_sets > 0 for part in self.parts_])
        if len(there) == len(self.parts_):
            return nearest_centres(X, self.centres_, self.n_probe, self.n_jobs)
        return there[nearest_centres(X, self.centres_[there], self.n_probe, self.n_jobs)]

    def _scores(self, part: Part, X: Any, how: Decode, decoder: Decoder) -> Any:
        if isinstance(decoder, Votes):
            return part.votes(part.embed(X, how.n_jobs), how.n_neighbors, how.n_jobs)
        candidates = part.candidates(X, how)
        if isinstance(decoder, Blend):
            values = candidates.scores(self.trees_, how.n_jobs)
        else:
            values = np.clip(candidates.signals[decoder.signal], 0, 1)
        return decoding.as_scores(candidates.labels, values, len(self.classes_))

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities, CSR (n, L): of a label that is no candidate it is 0.

        The line from scores to probabilities is the isotonic regression on rows left out; `calibration_error_` is what
        it is off by on average.
        """
        probabilities = self._plain_scores(X)
        probabilities.data = blending.in_steps(probabilities.data, self.steps_)
        return probabilities

    def explain(self, X: Any, n: int = 5, n_examples: int = 5, n_features: int = 10) -> list[list[Explanation]]:
        """For each row, why its n best labels have their scores.

        Of each label the `n_examples` stored examples with the largest shares of the score, and the `n_features`
        features that pulled most towards it or away; see `ripml.model.explain.Explanation`. Shares add up to the score.

        >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]]
        >>> model = RIPML(random_state=0).fit(X, [["tea"], ["tea", "hot"], ["ice"], ["ice", "cold"]])
        >>> why = model.explain([[1, 0.05]], n=1)[0][0]
        >>> why.label, "tea" in why.examples[0].labels, why.features[0][0]
        ('tea', True, 0)
        """
        check_is_fitted(self, "parts_")
        return explain(
            copy.copy(self), X, n, n_examples, n_features
        )  # one version throughout, whoever writes meanwhile

    # ------------------------------------------------------------------------------------------------ save and load

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All that was learnt, as JSON values and arrays."""
        return model_state.to_state(self)

    @classmethod
    def from_state(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> RIPML:
        """The inverse of `to_state`; arrays may be memory-mapped and are not copied."""
        try:
            settings = {name: setting_from_json(value) for name, value in parameters["settings"].items()}
            model = cls(**settings)
            model.check_settings()
            model.structure_ = model._structure()
            model_state.restore(model, parameters, arrays)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, UnicodeDecodeError) as error:
            raise ModelFolderError(f"the model's parameters and arrays do not fit together: {error}.") from error
        return model
