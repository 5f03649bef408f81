"""The walk of fit: labels, tuning, clusters, the regression and index of each cluster, and what left-out rows decide.

    labels → embeddings → relevance of features → settings on a sample → clusters → regression and index of each
           → left-out rows → neighbours, blend, threshold, calibration

Everything chosen here is chosen on training rows, each left out of the model that predicts it. The two families of
decoders fit their clusters in two ways: `VotesFitting` chooses the ridge, which the paper leaves open, by the votes;
`SignalsFitting` takes the ridge that was tuned on a sample.
"""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ripml.base import progress
from ripml.base.parallel import blocks, map_blocks
from ripml.base.products import IndexedEmbedding, column_counts, dense, predict_embedding
from ripml.base.workspace import RowBlocks, Workspace, read_rows, release, release_rows, row_slice
from ripml.decoding.beyond import fit_others
from ripml.decoding.calibration import Calibration, mean_precision
from ripml.decoding.decoders import Decoder, DecoderParts
from ripml.decoding.embedding import LabelEmbedding, SketchEmbedding
from ripml.decoding.evidence import Evidence, FeatureRows, apart
from ripml.decoding.fitted import FittedDecoder, LeftOut
from ripml.decoding.label_set_index import DirectionIndex, LabelSetIndex, as_stored, storage_scale, wide
from ripml.decoding.names import NameModel
from ripml.decoding.training_rows import TrainingRows
from ripml.decoding.votes import tally
from ripml.labels.encoding import label_keys
from ripml.labels.ensembles import Ensemble, Gaussian, Identity
from ripml.labels.label_sets import distinct_sets
from ripml.labels.projection import Embedder, Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.model.cluster import Cluster, LabelledRows
from ripml.model.clustering import partition
from ripml.model.copies import Copies
from ripml.model.features import FILLED, Scaling, is_filled, relevance
from ripml.model.forecast import Forecast
from ripml.model.model import Change, Model, no_changes
from ripml.model.streaming import ClusterSets, embed_and_sum
from ripml.model.tuning import Choice, choose
from ripml.neighbors import Exact, Index
from ripml.neighbors.exact import BlockwiseExact
from ripml.regression import RidgeSolver, Solution, Solve, Sums, resolve_solver
from ripml.regression.kernel_ridge import require_kernel_memory, solve_kernel
from ripml.regression.kernels import Kernel, Linear, Local, Rows, squared_lengths
from ripml.regression.regression import KernelRegression, LinearRegression, with_ones
from ripml.regression.signatures import RowSignatures
from ripml.regression.solver import CLOSED_FORM_LIMIT

__all__ = [
    "ClusterFit",
    "Settings",
    "VotesFitting",
    "assemble",
    "choose_embedding",
    "fit",
    "kernel_for",
    "most_features",
]

_log = logging.getLogger("ripml")

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

# Training rows that are left out one by one. Each costs a solve, so there are more of them where the side of the
# factorised matrix is _SMALL.
_LEFT_OUT_TO_BLEND = {"kernel": 5000, "local": 3000, "primal": 1000, "dual": 2000, "small": 1500}
_LEFT_OUT_TO_TUNE, _LEFT_OUT_TO_TUNE_SMALL, _LEFT_OUT_TO_CUT = 2000, 5000, 500
_SIGNED = 8192  # rows whose signatures are made at a time
_LEFT_OUT_ITERATIVE = 200  # where the leverage of a row costs as much as a target
_SMALL = 2500
_ROWS_TO_MEASURE_RECALL = 200
_HELD_OUT = 3000  # of the regression altogether, where leaving out one by one would cost a solve for each row
# A ridge that is chosen by votes starts here (times the mean squared length of a row) and walks by half decades.
_RIDGE_START, _RIDGE_STEP, _RIDGE_MOST_STEPS = 0.3, 10**0.5, 8

_KERNEL_ROWS = 20_000  # the most rows whose kernel matrix "auto" factorises: 1.6 GB, half a minute on two cores
_SAMPLE = {True: 1000, False: 3000}  # rows that settings are tuned on: linear, or with a kernel
_POWER = 0.25  # of the relevance of words, from which the search for a better one starts
_LEAST_DISTINCT = 100  # distinct rows for each cluster, from which a model is fitted to them alone at first
_SAMPLE_TO_SCALE = 1000  # rows that a scaling of features is chosen on
_EXACT_LABELS = 4096  # "auto" solves for Y itself up to here, and up to so many operations, linear or not:
_EXACT_FLOPS = {True: 1.2e11, False: 1e12}
_CG_STEPS = 12  # of conjugate gradients: six times as many were measured to add nothing to precision
_DIMS, _DIMS_ITERATIVE = 768, 512  # of the embedding otherwise
_RELEVANCE_DIMS = 64
_NAMED_CANDIDATES = 130  # kept for each row where labels have names
_ROWS_TO_LEARN_NAMES = 5000  # whose names say how often names are right
_SUMS_BYTES = 1 << 30  # of the sums of all clusters, to have them in one pass
_ROW_BLOCK = 65536  # rows that are read from files at a time, at most
_PREDICTED, _LINES = 64, 8192  # columns of coefficients in files, and lines of them, that are in memory at a time
_GAMMAS, _RIDGES = (0.25, 0.5, 1.0, 2.0), (0.03, 0.1, 0.3, 1.0)  # tried for kernel ridge near a query
_ROWS_TO_TUNE_LOCAL = 1000  # left-out rows that these are chosen on


@dataclass(frozen=True)
class Settings:
    """The settings of an estimator with words turned into stages; None for "auto"."""

    n_dims: int | None
    n_neighbors: int | None
    n_learners: int
    n_clusters: int
    kernel: Kernel | None
    relevance: float | None
    ridge: float | None
    ensemble: Ensemble | None
    solver: str | RidgeSolver
    index: Index
    decoder: Decoder
    normalize: bool | None
    views: tuple[int, ...]  # columns of each view of the features; empty for one
    n_jobs: int | None
    structure: dict[str, str]  # the settings that a fitted model cannot change, as text

    @property
    def scales_at_once(self) -> bool:
        """Whether rows get length 1 whatever they are: there is nothing to choose."""
        return self.normalize is True or (self.normalize is None and not self.decoder.tunes_ridge)


@dataclass(frozen=True)
class ClusterFit:
    """A fitted cluster, how its regression was solved, and what it says of left-out rows."""

    cluster: Cluster
    solution: dict[str, Any]
    left_out: LeftOut


def fit(
    settings: Settings, X: Any, Y: Any, names: NDArray[Any], n_unlabelled: int, seed: int, workspace: Workspace
) -> Model:
    """Fit rows X (n, d) to their labels Y, CSR (n, L), of which every row has at least one.

    X may come with evidence, see `FeatureRows`.
    `workspace` is where arrays of the size of the data are made, and how much else may be held at a time.

    No row is left out while a copy of it is learnt. Where enough rows occur once, only these are left out; else the
    model is fitted to the first of all equal rows, and then learns the others. (Where few rows are distinct, equal rows
    are not copies, but all there is.)
    """
    copies, n = Copies.of(apart(X)[0]), X.shape[0]
    arguments = names, n_unlabelled, seed, workspace
    if not copies.n_repeated:
        return _fit(settings, X, Y, None, *arguments)
    enough = np.count_nonzero(copies.single) >= _most_asked(n)
    _log.info("%s of %s rows repeat another one", f"{copies.n_repeated:,}", f"{n:,}")
    if not enough and workspace.in_memory and len(copies.first) >= _LEAST_DISTINCT * settings.n_clusters:
        settings = replace(settings, kernel=kernel_for(settings, n))
        model = _fit(settings, X[copies.first], Y[copies.first], None, *arguments)
        model = _with_repeated(model, X, Y, copies, settings.n_jobs)
    else:
        if not (enough or workspace.in_memory):
            _log.warning(
                "%s of %s rows repeat another one: what this fit says about new rows is too good; leave out repeated "
                "rows, or fit in memory.",
                f"{copies.n_repeated:,}",
                f"{n:,}",
            )
        model = _fit(settings, X, Y, copies, *arguments)
    return replace(model, n_repeated=copies.n_repeated)


def _with_repeated(model: Model, X: Any, Y: Any, copies: Copies, n_jobs: int | None) -> Model:
    """A model of the first of all equal rows after it learnt the others, with the numbers of all in their order."""
    order, n = np.concatenate([copies.first, copies.repeated]), Y.shape[0]
    if model.exact:
        before, _ = apart(X[copies.repeated[:0]])
        labels = wide(Y[copies.repeated], len(model.vocabulary))
        nothing = LabelledRows(model.features(before), labels[:0], copies.repeated[:0])
        more = LabelledRows(model.features(X[copies.repeated]), labels, copies.repeated)
        model = model.changed(Change(nothing, more, model.vocabulary), n_jobs)
    else:
        _log.warning(
            "%s rows repeat others, and are not learnt: the solver %r cannot learn rows after the fit.",
            f"{copies.n_repeated:,}",
            model.solutions[0]["solver"],
        )
    return replace(model.renumbered(order), n_seen=n, changes=no_changes(model.n_rows, Y.shape[1]))


def _fit(
    settings: Settings,
    X: Any,
    Y: Any,
    copies: Copies | None,
    names: NDArray[Any],
    n_unlabelled: int,
    seed: int,
    workspace: Workspace,
) -> Model:
    """Fit rows, of which those that occur once are left out before those that are among `copies`."""
    decoder, n_jobs = settings.decoder, settings.n_jobs
    n, L = Y.shape
    unseen = X.unseen if isinstance(X, FeatureRows) else ()
    X, evidence = apart(X)
    vocabulary = Vocabulary.of(names)
    forecast = _forecast(settings, X, L)
    rank = np.random.default_rng(seed).permutation(n)  # the order in which rows are left out
    if copies is not None:
        rank = copies.singles_first(rank)
    # The kernel, the ridge, and how features are scaled and weighted: given, or chosen on a sample.
    is_scaled = settings.scales_at_once and not workspace.in_memory  # as the rows were written
    sampled = f"choosing settings on a sample of {min(n, _SAMPLE[kernel_for(settings, n).linear]):,} rows"
    forecast.step("settings", sampled)
    given, (choice, scaling, X) = X, _tuned(settings, X, Y, names, rank, seed, is_scaled, workspace)
    if X is given and decoder.embedding_type.feature_type is not None and workspace.in_memory:
        X = X.copy()  # rows are kept, and these may be the caller's
    # What labels become, and the decoder before anything of it is chosen.
    ensemble, n_dims = choose_embedding(settings, choice.kernel, X.shape, L)
    projection = Projection(ensemble, n_dims, settings.n_learners, seed)
    projection.check_capacity(L)
    frequency = column_counts(Y)
    choices = decoder.start(choice.kernel, ensemble.exact, L, float(Y.nnz / n), settings.n_neighbors)
    embedding = decoder.embedding(projection, vocabulary, choices.n_neighbors)
    parts = DecoderParts(embedding, choices, frequency, L, choice.kernel)
    draft = decoder.fitted(parts)
    # The regression and the index of each cluster.
    centres, cluster = partition(X, settings.n_clusters, seed, n_jobs)
    groups = ClusterSets.of(distinct_sets(Y, label_keys(names)), cluster, len(centres))
    askable = n if scaling.weights is None else _most_asked(n)
    family = SignalsFitting if decoder.tunes_ridge else VotesFitting
    fitting: ClusterFitting = family(settings, choice, draft, X, Y, groups, cluster, rank, askable, workspace, evidence)
    fits = []
    for c in range(len(centres)):
        rows = np.arange(n) if len(centres) == 1 else np.flatnonzero(cluster == c)
        number = f"cluster {c + 1} of {len(centres)}: " if len(centres) > 1 else ""
        forecast.step(f"cluster {c}", f"{number}fitting the regression of {len(rows):,} rows")
        fits.append(fitting.fit(c, rows))
        workspace.trim_memory()
    # What left-out rows decide.
    asked = sum(one.left_out.truth.shape[0] for one in fits)
    forecast.step("left out", f"learning from {asked:,} left-out rows how far to trust a score")
    if choice.kernel.nearby is not None:
        local = _tuned_local(choice.kernel.nearby, fits, n_jobs, choice.spread)
        choice = replace(choice, kernel=local)
        fits = [replace(one, cluster=_compared_by(one.cluster, local)) for one in fits]
        draft = decoder.fitted(replace(parts, kernel=local))
    elif choice.kernel.n_near == "auto":
        chosen = max((one.cluster.regression.kernel for one in fits), key=lambda kernel: cast(int, kernel.n_near))
        choice = replace(choice, kernel=chosen)
        fits = [replace(one, cluster=_compared_by(one.cluster, chosen)) for one in fits]
    if evidence is not None and settings.decoder.reads_evidence:
        vocabulary = vocabulary.added(unseen)
        learnt = np.argsort(rank)[_most_asked(n) :][:_ROWS_TO_LEARN_NAMES]  # rows that the blend does not learn from
        draft, fits = _with_names(draft, fits, vocabulary, evidence, Y, np.sort(learnt))
    model = assemble(settings, choice, draft, fits, centres, scaling, vocabulary, n, n_unlabelled, seed, workspace)
    return replace(model, changes=no_changes(n, L))


def _forecast(settings: Settings, X: Any, L: int) -> Forecast:
    """How long the steps take for rows X (n, d) with L labels."""
    n = X.shape[0]
    kernel = kernel_for(settings, n)
    kernel = kernel.start() if kernel.tunable else kernel
    _, n_dims = choose_embedding(settings, kernel, X.shape, L)
    iterative = kernel.linear and not resolve_solver(settings.solver, n // settings.n_clusters, X.shape[1])[0].exact
    given = settings.relevance is not None and settings.ridge is not None and not kernel.tunable
    return Forecast.of(
        X,
        n_targets=n_dims * settings.n_learners,
        n_clusters=settings.n_clusters,
        linear=kernel.linear,
        steps=_CG_STEPS if iterative else 0,
        n_sample=0 if given else min(n, _SAMPLE[kernel.linear]),
        n_left_out=_LEFT_OUT_TO_BLEND["local" if kernel.nearby else "primal" if kernel.linear else "kernel"],
    )


def _solving(solver: RidgeSolver, n: int, d: int) -> str:
    """What a solver does for n rows of d features, in plain words."""
    if solver.word in ("primal", "dual"):
        side = d if solver.word == "primal" else n
        return f"factorising {side:,} × {side:,}"
    method = {"cg": "conjugate gradients", "gd": "gradient descent"}.get(solver.word, solver.word)
    return f"solving for {n:,} rows and {d:,} features by {method}"


def _with_names(
    draft: FittedDecoder,
    fits: Sequence[ClusterFit],
    vocabulary: Vocabulary,
    evidence: Evidence,
    Y: Any,
    learnt: Ints,
) -> tuple[FittedDecoder, list[ClusterFit]]:
    """The decoder and the clusters for all labels of which evidence speaks, also those that no row carries.

    What names are worth is counted in all rows, and learnt from the rows `learnt`.
    """
    n_labels = len(vocabulary)
    frequency = np.zeros(n_labels, np.int64)
    frequency[: len(draft.frequency)] = draft.frequency
    choices = replace(draft.choices, n_candidates=max(draft.choices.n_candidates, _NAMED_CANDIDATES))
    counted = NameModel.empty(n_labels)
    for rows in blocks(Y.shape[0], _ROW_BLOCK):
        counted = counted.changed(evidence[rows], row_slice(Y, rows), 1)
        release(evidence.labels, evidence.signals)
    names = counted.fitted(evidence[learnt], Y[learnt], frequency)
    grown = replace(draft.grown(vocabulary, frequency, 0), choices=choices).with_names(names)
    return grown, [
        replace(
            one,
            cluster=replace(one.cluster, index=one.cluster.index.with_labels(n_labels)),
            left_out=replace(one.left_out, truth=wide(one.left_out.truth, n_labels)),
        )
        for one in fits
    ]


def assemble(
    settings: Settings,
    choice: Choice,
    draft: FittedDecoder,
    fits: Sequence[ClusterFit],
    centres: NDArray[Any],
    scaling: Scaling,
    vocabulary: Vocabulary,
    n_rows: int,
    n_unlabelled: int,
    seed: int,
    workspace: Workspace,
) -> Model:
    """The model of fitted clusters, with the decoder and the calibration that their left-out rows decide."""
    asked = [one for one in fits if one.left_out.truth.shape[0]]
    clusters, left_out = [one.cluster for one in asked], [one.left_out for one in asked]
    decoder, scores = settings.decoder.fit(draft, settings.n_neighbors, clusters, left_out, settings.n_jobs)
    truth = scipy.sparse.vstack([rows.truth for rows in left_out], format="csr")
    others = fit_others(decoder, clusters, left_out, truth, scores, decoder.frequency, settings.n_jobs)
    return Model(
        vocabulary=vocabulary,
        scaling=scaling,
        centres=centres,
        clusters=tuple(store_embeddings([one.cluster for one in fits], settings.index, workspace)),
        decoder=decoder,
        calibration=Calibration.fit(truth, scores, decoder.frequency, others),
        kernel=choice.kernel,
        relevance=choice.power,
        solutions=tuple(one.solution for one in fits),
        seed=seed,
        n_rows=n_rows,
        n_unlabelled=n_unlabelled,
        n_seen=n_rows,
        changes=no_changes(n_rows, len(vocabulary)),
        structure=settings.structure,
    )


def store_embeddings(clusters: Sequence[Cluster], index: Index, workspace: Workspace) -> list[Cluster]:
    """The clusters with their embeddings as the index stores them, all in one array."""
    if index.storage == "float32" and workspace.in_memory:
        return list(clusters)
    indexes = [cluster.index for cluster in clusters]
    if index.storage == "float32":
        stored = [(one.Z, 1.0) for one in indexes]
    else:
        n_learners, _, m = indexes[0].Z.shape
        ends = np.cumsum([0, *(one.Z.shape[1] for one in indexes)])
        out = workspace.empty(f"Z-{index.storage}", (n_learners, int(ends[-1]), m), index.storage)
        scale = storage_scale(max(_largest(Z) for one in indexes for Z in one.Z), index.storage)
        places = [slice(start, end) for start, end in pairwise(ends.tolist())]
        stored = [
            (as_stored(one.Z, scale, index.storage, out[:, place]), scale)
            for one, place in zip(indexes, places, strict=True)
        ]
    return [
        replace(cluster, index=type(one).of(one.sets, one.counts, Z, index, scale))
        for cluster, one, (Z, scale) in zip(clusters, indexes, stored, strict=True)
    ]


def _largest(Z: NDArray[Any]) -> float:
    """The largest absolute value of an array, a block at a time."""
    found = 0.0
    for rows in blocks(len(Z), 65536):
        found = max(found, float(Z[rows].max(initial=0)), -float(Z[rows].min(initial=0)))
        release(Z[rows])
    return found


# ------------------------------------------------------------------------------------------------- before regression


def _tuned(
    settings: Settings,
    X: Any,
    Y: Any,
    names: NDArray[Any],
    rank: Ints,
    seed: int,
    is_scaled: bool,
    workspace: Workspace,
) -> tuple[Choice, Scaling, Any]:
    """The kernel, the ridge, and how features are scaled and weighted: given, or chosen on a sample. And X scaled.

    The relevance of features is learnt from rows that are never left out: a rare feature's relevance is high where the
    labels of its few rows agree, which would tell a left-out row about its own labels.

    In a workspace on disk, rows are scaled block by block where they are used, and those that the regression sees are
    written to files.
    """
    kernel, n_jobs = kernel_for(settings, X.shape[0]), settings.n_jobs
    free = ["power"] if settings.relevance is None else []
    if kernel.tunable:
        kernel, free = kernel.start(), [*free, "kernel"]
    linear = kernel.linear
    # Conjugate gradients need many steps at a small ridge, so there it stays at 1.
    iterative = linear and not resolve_solver(settings.solver, *X.shape)[0].exact
    if settings.ridge is None and settings.decoder.tunes_ridge and not iterative:
        free.append("ridge")
    ridge = settings.ridge if settings.ridge is not None else (1.0 if linear else 0.1)
    views = tuple(1.0 for _ in settings.views)
    if views and settings.decoder.tunes_ridge:
        free.append("views")
    power = settings.relevance
    if power is None:  # words are weighted, unless that does not pay; measurements and embeddings only if it does
        power = 0.0 if not views and is_filled(X) else _POWER
    start = Choice(power, kernel, ridge, views)
    options = [Scaling(settings.normalize is not False, views=settings.views, shares=start.shares)]
    if settings.normalize is None and settings.decoder.tunes_ridge and not settings.views:
        options = Scaling.options(X)
    dtype = settings.decoder.embedding_type.feature_type
    asked = rank < _most_asked(X.shape[0])
    seen, askable = np.flatnonzero(~asked), np.flatnonzero(asked)
    weighs = bool(free or start.power)
    height = rows_at_a_time(X, workspace)
    if weighs:
        projection = Projection(Gaussian(), _RELEVANCE_DIMS, 1, seed)
        small = _relevance_targets(projection, Y, label_keys(names), seen, height, workspace, n_jobs)

    def chosen(scaling: Scaling, n_rows: int) -> tuple[Choice, Scaling, Any]:
        written = Scaling(unit=False) if is_scaled else scaling
        scaled: Any = (
            written.unweighted(X, dtype, n_jobs)
            if workspace.in_memory
            else workspace.row_blocks(X, height, None, lambda part: written.unweighted(part, dtype, n_jobs))
        )
        choice = start
        if weighs:
            learnt = scaled[seen] if workspace.in_memory else workspace.row_blocks(scaled, height, seen)
            relevant = _relevance(learnt, small, scaling, n_jobs, workspace)
            if settings.relevance is None and views:
                filled = _filled_views(scaled, scaling)
                relevant = np.where(np.repeat(filled, settings.views), np.float32(1), relevant)
            choice = choose(scaled, Y, relevant, start, free, askable, n_rows, scaling, seed, n_jobs)
            scaling = scaling.with_weights(relevant, choice.power, choice.shares)
        return choice, scaling, scaled

    best = 0
    if len(options) > 1:
        precisions = [chosen(scaling, _SAMPLE_TO_SCALE)[0].precision for scaling in options]
        best = int(np.argmax(precisions))
    choice, scaling, scaled = chosen(options[best], _SAMPLE[linear])
    if free:
        found = choice.power, choice.kernel, choice.ridge
        _log.info("on a sample, these were best: %s scaled, relevance %.3g, kernel %s, ridge %.3g", scaling, *found)
    if workspace.in_memory:
        return choice, scaling, scaling.weighted(scaled)
    if is_scaled and scaling.weights is None and not views and dtype in (None, X.dtype):
        return choice, scaling, X  # as they were written
    unweighted = Scaling(unit=False) if is_scaled else scaling
    weighted = workspace.changed_rows("X", X, lambda part: scaling.weighted(unweighted.unweighted(part, dtype, n_jobs)))
    return choice, scaling, weighted


def rows_at_a_time(X: Any, workspace: Workspace) -> int:
    """Rows of X, dense or CSR, that are worked on at a time; in memory, all."""
    n, d = X.shape
    width = 8 * (len(X.data) // max(n, 1)) if scipy.sparse.issparse(X) else d * X.dtype.itemsize
    return workspace.rows_per_block(4 * width, max(n, 1) if workspace.in_memory else _ROW_BLOCK)


def _relevance_targets(
    projection: Projection,
    Y: Any,
    keys: NDArray[np.uint64],
    seen: Ints,
    height: int,
    workspace: Workspace,
    n_jobs: int | None,
) -> Any:
    """The embeddings of the labels Y of the rows `seen`: written once, or made where these rows are."""
    labels = workspace.row_blocks(Y, max(len(seen), 1) if workspace.in_memory else _ROW_BLOCK, seen)
    if labels.elsewhere:
        return workspace.row_blocks(labels, height, None, partial(projection.embed, keys=keys, n_jobs=n_jobs))
    small = workspace.empty("relevance-targets", (len(seen), projection.n_dims), np.float32)
    embedder = Embedder(projection, keys, column_counts(Y), workspace.table_bytes, n_jobs)
    for rows, part in labels.blocks():
        embedder.fill(small[rows], part)
        release(small[rows])
    return small if workspace.in_memory else RowBlocks(small, height)


def _relevance(X: Any, Z: Any, scaling: Scaling, n_jobs: int | None, workspace: Workspace) -> NDArray[np.float32]:
    """The relevance of features, which a workspace on disk keeps."""
    step = ["relevance", str(scaling), *X.shape]
    kept = workspace.load_checkpoint(step)
    if kept is not None:
        return np.asarray(kept["relevance"], np.float32)
    found = relevance(X, Z, n_jobs)
    workspace.save_checkpoint(step, {"relevance": found})
    return found


def _filled_views(X: Any, scaling: Scaling) -> list[bool]:
    """Whether most features of each view of rows are not 0."""
    if not isinstance(X, RowBlocks):
        return [is_filled(view) for view in scaling.of_views(X)]
    filled = np.zeros(len(scaling.views), np.int64)
    for _, part in X.blocks():
        filled += [
            view.nnz if scipy.sparse.issparse(view) else np.count_nonzero(view) for view in scaling.of_views(part)
        ]
    return [bool(share >= FILLED) for share in filled / (X.shape[0] * np.array(scaling.views))]


def _most_asked(n: int) -> int:
    """The most of n rows that are left out where features are weighted: the others are enough to learn weights from."""
    return min(max(_LEFT_OUT_TO_BLEND.values()), -(-n // 2))


def kernel_for(settings: Settings, n: int) -> Kernel:
    """The kernel for n rows: as given, or by their number."""
    if settings.kernel is not None:
        return settings.kernel
    return settings.decoder.default_kernel(n <= _KERNEL_ROWS * settings.n_clusters)


def most_features(settings: Settings, n: int) -> int | None:
    """The most features with which a fit on n rows can learn and forget exactly; None if there may be any number."""
    closed = n // settings.n_clusters <= CLOSED_FORM_LIMIT or not kernel_for(settings, n).linear
    return None if closed or settings.solver != "auto" else CLOSED_FORM_LIMIT - 1  # one is the intercept


def choose_embedding(settings: Settings, kernel: Kernel, shape: tuple[int, int], L: int) -> tuple[Ensemble, int]:
    """The ensemble and m: Y itself where that is given or cheap enough, else random dimensions."""
    n, d = shape[0] / settings.n_clusters, shape[1]
    side = min(n, d) if kernel.linear else n
    iterative = kernel.linear and not resolve_solver(settings.solver, int(n), d)[0].exact
    dims = _DIMS_ITERATIVE if iterative else _DIMS
    given = settings.ensemble
    if given is not None and not given.exact:
        return given, settings.n_dims or dims
    affordable = L <= _EXACT_LABELS and 2 * side**2 * L <= _EXACT_FLOPS[kernel.linear] and not iterative
    fits = affordable if settings.n_dims is None else settings.n_dims * settings.n_learners >= L
    if given is not None or (fits and settings.n_learners == 1):
        return Identity(), settings.n_dims if settings.n_dims and given is not None else L
    return Gaussian(), settings.n_dims or dims


# -------------------------------------------------------------------------------------------------------- regression


@dataclass(frozen=True)
class ClusterFitting(ABC):
    """Fits the clusters of one model, one after the other."""

    settings: Settings
    choice: Choice
    draft: Any  # the decoder before anything of it is chosen
    X: Any  # (n, d)
    Y: Any  # CSR (n, L)
    groups: ClusterSets  # the label sets of all clusters, end to end
    cluster_of_row: Ints  # (n,)
    rank: Ints  # (n,), the order in which rows are left out
    askable: int  # rows of a lower rank may be left out
    workspace: Workspace
    evidence: Evidence | None = None

    @abstractmethod
    def fit(self, c: int, rows: Ints) -> ClusterFit:
        """The cluster c, which has these rows of X."""

    @property
    def embedding(self) -> LabelEmbedding:
        """What labels become."""
        embedding: LabelEmbedding = self.draft.embedding
        return embedding

    @property
    def index(self) -> Index:
        """How label sets are searched while the model is fitted."""
        return self.settings.index if self.workspace.in_memory else BlockwiseExact()

    @cached_property
    def sets(self) -> Any:
        """The label sets of all clusters, CSR, end to end."""
        return self.workspace.take_rows(self.Y, self.groups.first, "sets")

    def _sets_of(self, c: int, rows: Ints) -> tuple[Any, Ints, Ints, slice]:
        """The label sets of a cluster, how many rows carry each, the set of each row, and their place among all."""
        place = slice(int(self.groups.ends[c]), int(self.groups.ends[c + 1]))
        return row_slice(self.sets, place), self.groups.counts[place], self.groups.of_row[rows] - place.start, place


class VotesFitting(ClusterFitting):
    """The paper's regression from sums over rows, with the ridge at which left-out rows get the best votes."""

    @cached_property
    def _embedded(self) -> tuple[Floats, list[Sums | None]]:
        """The embeddings of all label sets, (F, e, m), and the sums of each cluster that is solved from sums."""
        projection, e, n_targets = self.embedding.projection, len(self.groups.first), self.embedding.n_targets
        self.workspace.require_memory(4.0 * e * n_targets, f"{n_targets:,} targets of {e:,} label sets")
        _log.info("embedding %s label sets into %s dimensions", f"{e:,}", f"{n_targets:,}")
        Z = self.workspace.empty("Z", (projection.n_learners, e, projection.n_dims), np.float32)
        summed = self._summed(np.bincount(self.cluster_of_row), self.X.shape[1])
        sums = embed_and_sum(
            self.X, self.Y, self.sets, projection, self.embedding.columns.keys, self.draft.frequency, self.groups,
            self.cluster_of_row, summed, Z, self.workspace, self.settings.n_jobs,
        )  # fmt: skip
        return Z, sums

    def _summed(self, sizes: Ints, d: int) -> list[bool]:
        """The clusters, of these sizes, whose regression is solved from sums; all that fit into memory together."""
        solvers = [resolve_solver(self.settings.solver, int(size), d)[0] for size in sizes]
        fits = 8 * d * (d + self.embedding.n_targets) * len(sizes) <= _SUMS_BYTES or len(sizes) == 1
        return [fits and solver.solves_sums for solver in solvers]

    def fit(self, c: int, rows: Ints) -> ClusterFit:
        """From the sums of its rows where they are known, else from the rows."""
        X, settings = self.X, self.settings
        Z, all_sums = self._embedded
        sets, counts, of_row, place = self._sets_of(c, rows)
        index = self.embedding.index_type.of(sets, counts, Z[:, place], self.index)
        solver, reason = resolve_solver(settings.solver, len(rows), X.shape[1])
        targets = IndexedEmbedding(index.Z, of_row)
        progress.step(_solving(solver, *X.shape))
        sums, kept = all_sums[c], None
        if sums is not None:
            solve = solver.of_sums(sums, lambda some: (dense(read_rows(X, rows[some])), dense(targets[some])))
            mean_square = float(np.trace(sums.gram)) / len(rows)
            parts = (read_rows(X, rows[some]) for some in blocks(len(rows), _SIGNED))
            sums = replace(sums, signatures=RowSignatures.of_blocks(parts).values)
        else:
            mine = X[rows]
            if solver.exact:
                kept = TrainingRows(Rows(mine), of_row, of_row[:0], Linear(), searched=False)
            solve = solver.prepare(mine, targets, settings.n_jobs)
            mean_square = float(np.square(mine.data if scipy.sparse.issparse(mine) else mine).sum()) / len(rows)
        most = self.most_left_out(settings, len(rows), X.shape[1], solver)
        asked = np.sort(np.argsort(self.rank[rows])[:most])
        fair = self.rank[rows][asked] < most  # the first rows of all, which are among the first of each cluster
        return self.solved(
            settings, self.draft, index, kept, sums, solve, asked, of_row[asked], fair, mean_square, reason
        )

    @staticmethod
    def most_left_out(settings: Settings, n: int, d: int, solver: RidgeSolver) -> int:
        """How many of n rows are left out: more where the ridge is to be chosen."""
        if not solver.exact:
            return _LEFT_OUT_ITERATIVE
        if settings.ridge is not None:
            return _LEFT_OUT_TO_CUT
        return _LEFT_OUT_TO_TUNE_SMALL if min(n, d) <= _SMALL else _LEFT_OUT_TO_TUNE

    @staticmethod
    def solved(
        settings: Settings,
        draft: Any,
        index: LabelSetIndex,
        kept: TrainingRows | None,
        sums: Sums | None,
        solve: Solve,
        asked: Ints,
        asked_sets: Ints,
        fair: NDArray[np.bool_],
        mean_square: float,
        reason: str,
    ) -> ClusterFit:
        """The cluster at the given ridge, or the best one, and the votes of those left-out rows that are `fair`.

        `asked` are the rows to leave out, by their numbers as the solution knows them; `mean_square` is that of a row.
        """
        truth = index.sets[asked_sets]
        nothing, intercept = np.empty((0, 0), np.float32), np.zeros(draft.embedding.n_targets, np.float32)
        unsolved = LinearRegression(Linear(), 0.0, nothing, intercept, False, sums=sums)
        found = Cluster(unsolved, index, kept)

        def attempt(ridge: float) -> _Attempt:
            solution = solve(ridge)
            release(index.sets.indices, index.sets.data)
            scores = draft.votes(found, solution.left_out(asked), settings.n_jobs, left_out=asked_sets)
            quality = mean_precision(truth, scores)
            _log.info("ridge %.3g: precision of %.1f %% on left-out rows", ridge, 100 * quality)
            return _Attempt(ridge, quality, solution, scores)

        if settings.ridge is not None:
            best = attempt(settings.ridge)
        else:
            best = _climb(attempt, _RIDGE_START * (mean_square or 1.0))
        Psi = np.ascontiguousarray(best.solution.Psi.astype(np.float32))
        regression = replace(unsolved, ridge=best.ridge, Psi=Psi)
        rows = np.flatnonzero(fair)
        left_out = LeftOut(truth[rows], best.scores[rows])
        return ClusterFit(replace(found, regression=regression), best.solution.facts(best.ridge, reason), left_out)


@dataclass(frozen=True)
class _Attempt:
    """A ridge, and what it gave on the left-out rows."""

    ridge: float
    quality: float
    solution: Solution
    scores: Any  # CSR


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


class SignalsFitting(ClusterFitting):
    """The regression at the ridge that was tuned, and what it predicts for left-out rows.

    Left out are rows whose `rank` among all is below `askable`, as many of them as the solver can afford.
    """

    def fit(self, c: int, rows: Ints) -> ClusterFit:
        """By a linear solver, or by kernel."""
        n, n_targets = len(self.rank), self.settings.n_learners * self.embedding.projection.n_dims
        self.workspace.require_memory(8.0 * n * n_targets, f"{n_targets:,} targets for {n:,} rows")
        sets, counts, of_row, place = self._sets_of(c, rows)
        if self.workspace.in_memory:
            searched, labels = self.embedding.searched(sets), sets[of_row]
            X = self.X if len(rows) == n else self.X[rows]
        else:
            searched, whole = self._searched[:, place], len(rows) == n
            labels = self.Y if whole else self.workspace.take_rows(self.Y, rows, f"labels-{c}")
            X = self.X if whole else self._rows_of(c, rows)
        index = self.embedding.index_type.of(sets, counts, searched, self.index)
        targets = self.embedding.targets(labels, self.settings.n_jobs)
        if self.choice.kernel.linear:
            return self._linear(index, X, targets, of_row, rows, self.rank[rows])
        return self._by_kernel(index, X, targets, of_row, rows, self.rank[rows])

    @cached_property
    def _searched(self) -> Floats:
        """What is searched of the label sets of all clusters, (F, e, m), in files."""
        n_searches, width = self.embedding.search_shape
        shape = (n_searches, self.sets.shape[0], width)
        out = np.asarray(self.workspace.empty("searched", shape, np.float32))
        step = ["searched", *shape]
        if self.workspace.load_checkpoint(step) is None:
            _log.info("embedding %s label sets", f"{shape[1]:,}")
            self.embedding.index_type.fill_searched(out, self.embedding.searched, self.sets)
            self.workspace.save_checkpoint(step, {})
        return out

    @property
    def index(self) -> Index:
        """The one that is given; on disk an exact one, by blocks where even its summary would take too much memory."""
        if self.workspace.in_memory:
            return self.settings.index
        n_searches, width = self.embedding.search_shape
        rounded = n_searches * len(self.groups.first) * width  # bytes of a copy in 8 bits
        return Exact() if 4 * rounded <= self.workspace.table_bytes else BlockwiseExact()

    def _rows_of(self, c: int, rows: Ints) -> Any:
        """The features of the rows of a cluster, in files."""
        X, workspace = self.X, self.workspace
        if scipy.sparse.issparse(X):
            ends = np.concatenate([[0], np.cumsum(np.diff(X.indptr)[rows])])
            values = workspace.empty(f"X-{c}-values", (int(ends[-1]),), X.dtype)
            columns = workspace.empty(f"X-{c}-columns", (int(ends[-1]),), X.indices.dtype)
            out = workspace.csr(f"X-{c}", values, columns, ends, X.shape[1])
        else:
            out = workspace.empty(f"X-{c}", (len(rows), X.shape[1]), X.dtype)
        for block, part in RowBlocks(X, rows_at_a_time(X, workspace), rows).blocks():
            if scipy.sparse.issparse(X):
                entries = slice(int(ends[block.start]), int(ends[block.stop]))
                values[entries], columns[entries] = part.data, part.indices
            else:
                out[block] = part
            release_rows(out)
        return out

    def _linear(
        self, index: LabelSetIndex, X: Any, targets: Any, of_row: Ints, numbers: Ints, rank: Ints
    ) -> ClusterFit:
        settings, kernel, ridge = self.settings, self.choice.kernel, self.choice.ridge
        workspace, height = self.workspace, rows_at_a_time(X, self.workspace)
        solver, reason = resolve_solver(settings.solver, *X.shape)
        if settings.solver == "auto":
            solver = replace(solver, **({"precision": "float32"} if solver.exact else {"max_steps": _CG_STEPS}))
            reason += "" if solver.exact else f", stopped after {_CG_STEPS} steps, which regularises"
        progress.step(_solving(solver, *X.shape))
        # Rows are left out one by one where that is cheap, and held out of the regression together where it is not.
        most = min(_HELD_OUT, -(-len(rank) // 10))
        if solver.exact:
            kind = "local" if kernel.nearby else "small" if min(X.shape) <= _SMALL else solver.word
            most = min(_LEFT_OUT_TO_BLEND.get(kind, _LEFT_OUT_TO_BLEND["primal"]), self.askable)
        asked = np.flatnonzero(rank < most)
        seen = None if solver.exact else np.flatnonzero(rank >= most)
        if workspace.in_memory:
            wide = with_ones(X)
            to_learn = (wide, targets) if seen is None else (wide[seen], targets[seen])
        else:
            wide = RowBlocks(X, height, None, with_ones)
            rows_of = workspace.row_blocks
            to_learn = rows_of(X, height, seen, with_ones), rows_of(targets, height, seen)
        with warnings.catch_warnings():
            if settings.solver == "auto":  # stopped on purpose
                from sklearn.exceptions import ConvergenceWarning

                warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solver.prepare(*to_learn, settings.n_jobs, True, workspace)(ridge)
        left_out = np.zeros((0, targets.shape[1]), np.float32)
        if len(asked) and solver.exact:
            left_out = solution.left_out(asked).astype(np.float32, copy=False)
        elif len(asked):
            left_out = _predicted(wide[asked], solution.Psi, settings.n_jobs, workspace)
        Psi = solution.Psi.astype(np.float32, copy=False)
        regression = LinearRegression.of(kernel, ridge, Psi[:-1], np.array(Psi[-1]))
        release(Psi)
        # Rows are kept where answers need them, or where the regression can go on learning from them.
        rows = None
        if self.draft.choices.n_similar or kernel.nearby:
            rows = TrainingRows(Rows.in_workspace(X, workspace), of_row, numbers, kernel)
        elif solver.exact:
            rows = TrainingRows(Rows(X), of_row, of_row[:0], kernel, searched=False)
        said = None if self.evidence is None else self.evidence[numbers[asked]]
        held = LeftOut(index.sets[of_row[asked]], None, X[asked], left_out, asked, of_row[asked], said)
        facts = {**solution.facts(ridge, reason), **self._recall(index, rows, held)}
        return ClusterFit(Cluster(regression, index, rows), facts, held)

    def _recall(self, index: LabelSetIndex, rows: TrainingRows | None, held: LeftOut) -> dict[str, float]:
        """How many of the rows most similar to a row that is left out are found, and of the label sets nearest to what
        is predicted for it, where some may be missed."""
        local, choices, few, facts = (
            self.choice.kernel.nearby,
            self.draft.choices,
            held[:_ROWS_TO_MEASURE_RECALL],
            dict[str, float](),
        )
        if rows is not None and rows.searched:
            k = local.n_rows if local else choices.n_similar
            recall = rows.recall(few.X, k, few.rows)
            if recall is not None:
                _log.info("of the %d most similar of %s rows, %.1f %% are found", k, f"{len(rows):,}", 100 * recall)
                facts["similar_recall"] = round(recall, 4)
        if not choices.n_neighbors:
            return facts
        queries = cast(SketchEmbedding, self.embedding).queries(few.Z, index.search_shape[1])
        recall = cast(DirectionIndex, index).recall(queries, choices.n_neighbors, self.settings.n_jobs)
        if recall is not None:
            found = choices.n_neighbors, f"{index.n_sets:,}", 100 * recall
            _log.info("of the %d nearest of %s label sets, %.1f %% are found", *found)
            facts["set_recall"] = round(recall, 4)
        return facts

    def _by_kernel(
        self, index: LabelSetIndex, X: Any, targets: Any, of_row: Ints, numbers: Ints, rank: Ints
    ) -> ClusterFit:
        kernel, ridge, n = self.choice.kernel, self.choice.ridge, X.shape[0]
        require_kernel_memory(n, targets.shape[1])
        most = min(_LEFT_OUT_TO_BLEND["kernel"], self.askable)
        order = np.argsort(-rank, kind="stable")  # the rows to be left out come last
        X, of_row, rank, numbers = X[order], of_row[order], rank[order], numbers[order]
        asked = np.arange(n - np.count_nonzero(rank < most), n)
        reason = f"{kernel} of n = {n:,} rows: factorise K"
        progress.step(f"factorising {n:,} × {n:,} similarities of rows")
        K = kernel.lower_triangle(X, self.settings.n_jobs)
        solution = solve_kernel(K, dense(targets[order]).astype(np.float32, copy=False), ridge, len(asked))
        rows = TrainingRows(Rows(X), of_row, numbers, kernel)
        regression = KernelRegression.of(kernel, ridge, solution.coefficients, rows.X, asked, solution.left_out)
        facts = {"ridge": ridge, "solver": "kernel", "reason": reason, "converged": True, "steps": 0, "residual": 0.0}
        said = None if self.evidence is None else self.evidence[numbers[asked]]
        held = LeftOut(index.sets[of_row[asked]], None, X[asked], solution.left_out, asked, of_row[asked], said)
        return ClusterFit(Cluster(regression, index, rows), facts, held)


def _predicted(X: Any, Psi: Floats, n_jobs: int | None, workspace: Workspace) -> Floats:
    """X Psi; of coefficients in files, some columns in memory at a time."""
    if workspace.in_memory or not scipy.sparse.issparse(X):
        return np.asarray(predict_embedding(X, Psi, n_jobs), np.float32)
    out = np.empty((X.shape[0], Psi.shape[1]), np.float32)
    for columns in blocks(Psi.shape[1], _PREDICTED):
        part = np.empty((len(Psi), columns.stop - columns.start), Psi.dtype)
        for lines in blocks(len(Psi), _LINES):
            part[lines] = Psi[lines, columns]
            release(Psi[lines])
        out[:, columns] = predict_embedding(X, part, n_jobs)
    return out


def _tuned_local(kernel: Local, fits: Sequence[ClusterFit], n_jobs: int | None, spread: float = 1.0) -> Local:
    """The local kernel with the γ and the ridge that are best on left-out rows of the cluster that has most of them."""
    gammas = tuple(gamma / spread for gamma in _GAMMAS) if kernel.gamma == "auto" else (kernel.gamma,)
    ridges = _RIDGES if kernel.ridge == "auto" else (kernel.ridge,)
    options = [replace(kernel, gamma=gamma, ridge=ridge) for gamma in gammas for ridge in ridges]
    largest = fits[int(np.argmax([one.left_out.truth.shape[0] for one in fits]))]
    most = int(np.clip(_ROWS_TO_TUNE_LOCAL * (200 / kernel.n_rows) ** 2, 100, _ROWS_TO_TUNE_LOCAL))
    rows, sample, sets = largest.cluster.rows, largest.left_out[:most], largest.cluster.index.sets
    if len(options) == 1 or not sample.truth.shape[0]:
        return replace(kernel, gamma=gammas[len(gammas) // 2], ridge=ridges[len(ridges) // 2])
    assert rows is not None

    def of_block(block: slice) -> list[Any]:
        ids, similarity = rows.nearest(sample.X[block], kernel.n_rows, sample.rows[block])
        weights = rows.local_weights(ids, similarity, squared_lengths(sample.X[block]), options)
        return [tally(rows.set_of_row[ids], some, sets) for some in weights]

    found = map_blocks(of_block, blocks(sample.X.shape[0], rows.rows_at_a_time), n_jobs)
    scores = [scipy.sparse.vstack(of_option, format="csr") for of_option in zip(*found, strict=True)]
    return options[int(np.argmax([mean_precision(sample.truth, score) for score in scores]))]


def _compared_by(cluster: Cluster, kernel: Kernel) -> Cluster:
    """The cluster with another local kernel."""
    rows = None if cluster.rows is None else replace(cluster.rows, kernel=kernel)
    return replace(cluster, regression=replace(cluster.regression, kernel=kernel), rows=rows)
