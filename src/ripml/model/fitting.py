"""The walk of fit: what is tuned, the regression of each cluster, and what rows left out say about it all.

    labels → embeddings → relevance of features → settings on a sample → clusters → regression and index of each
           → rows left out → neighbours, blend, threshold, calibration

Everything chosen here is chosen on training rows, each left out of the model that is asked about it.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripml.base.parallel import blocks
from ripml.base.products import IndexedEmbedding, column_counts, dense, predict_embedding
from ripml.base.workspace import Workspace, read_rows, release, row_slice
from ripml.decoding.decoders import Blend, Decoder, Votes
from ripml.labels.encoding import label_keys
from ripml.labels.ensembles import Ensemble, Gaussian, Identity
from ripml.labels.label_sets import LabelSets
from ripml.labels.projection import Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.model.clustering import partition
from ripml.model.decisions import Answer, Decisions, decide, fitted_nearby
from ripml.model.features import relevance, weighted, with_ones
from ripml.model.part import Decode, KeptRows, Part, as_stored, storage_scale
from ripml.model.passes import Entries, embed_and_sum
from ripml.model.reading import searchable, start_of, targets_of
from ripml.model.tuning import Choice, choose
from ripml.model.voting import SMALL, Asked, most_left_out, vote
from ripml.neighbors import Index
from ripml.neighbors.exact import BlockwiseExact
from ripml.regression import Primal, RidgeSolver, Solve, Sums, resolve_solver
from ripml.regression.kernel_ridge import require_room, solve_kernel
from ripml.regression.kernels import RBF, Kernel, Linear, Local, Rows

__all__ = ["Learnt", "Settings", "answered", "embedding_of", "learn", "stored"]

_log = logging.getLogger("ripml")  # what fit is doing, for those who listen

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_LEFT_OUT_TO_BLEND = {"kernel": 5000, "local": 3000, "primal": 1000, "dual": 2000, "small": 1500}
_HELD_OUT = 3000  # of the regression altogether, where leaving out one by one would cost a solve a row

_KERNEL_ROWS = 20_000  # the most rows whose kernel matrix "auto" factorises: 1.6 GB, half a minute on two cores
_SAMPLE = {True: 600, False: 3000}  # rows that settings are tuned on: linear, or with a kernel
_EXACT_LABELS = 4096  # "auto" solves for Y itself up to here, and up to so many operations, linear or not:
_EXACT_FLOPS = {True: 1.2e11, False: 1e12}
_CG_STEPS = 12  # of conjugate gradients: six times as many were measured to add nothing to precision
_DIMS, _DIMS_ITERATIVE = 768, 512  # of the embedding otherwise
_RELEVANCE_DIMS = 64
_SUMS_BYTES = 1 << 30  # of the sums of all clusters, to have them in one pass


@dataclass(frozen=True)
class Settings:
    """The settings of an estimator with words turned into stages."""

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
    normalize: bool
    n_jobs: int | None


@dataclass(frozen=True)
class Learnt:
    """All that fit finds out."""

    parts: list[Part]
    centres: NDArray[Any]
    weights: Floats | None  # (d,) of features
    choice: Choice
    ensemble: Ensemble
    n_dims: int
    decided: Decisions
    solutions: list[dict[str, Any]]  # of each cluster

    def chosen(self) -> dict[str, Any]:
        """What was chosen, as plain numbers that can be printed and saved."""
        names = ("n_neighbors", "temperature", "n_similar", "similar_temperature", "epsilon", "n_candidates")
        return {"relevance": self.choice.power, **{name: getattr(self.decided.how, name) for name in names}}


def learn(
    settings: Settings,
    X: Any,
    Y: Any,
    names: NDArray[Any],
    sets: LabelSets,
    seed: int,
    workspace: Workspace | None = None,
) -> Learnt:
    """Fit rows X (n, d), each with labels, to the label sets they carry; Y is CSR (n, L).

    `workspace` is where arrays of the size of the data are made, and how much else may be held at a time.
    """
    workspace = workspace or Workspace()
    plain = isinstance(settings.decoder, Votes)
    if not plain:
        X = X.astype(np.float32, copy=False)
    rank = np.random.default_rng(seed).permutation(X.shape[0])  # the order in which rows are left out
    choice, weights = _tuned(settings, X, Y, names, sets, rank, seed)
    if weights is not None:
        X = weighted(X, weights, settings.normalize)
    elif not plain and not settings.normalize and workspace.in_memory:
        X = X.copy()  # rows are kept, and these may be the caller's
    n, L = Y.shape
    ensemble, n_dims = embedding_of(settings, choice.kernel, X.shape, L)
    projection = Projection(ensemble, n_dims, settings.n_learners, seed)
    projection.check_capacity(L)
    n_targets = settings.n_learners * n_dims
    centres, cluster = partition(X, settings.n_clusters, seed, settings.n_jobs)
    entries = Entries.of(sets, cluster, len(centres))
    labels = workspace.take_rows(Y, entries.first, "sets")
    frequency = column_counts(Y)
    Z: Floats | None = None
    sums: list[Sums | None] = [None] * len(centres)
    if plain:
        e = len(entries.first)
        workspace.require_memory(4.0 * e * n_targets, f"{n_targets:,} targets of {e:,} label sets")
        _log.info("embedding %s label sets into %s dimensions", f"{e:,}", f"{n_targets:,}")
        Z = workspace.empty("Z", (settings.n_learners, e, n_dims), np.float32)
        keys = Vocabulary.of(names).column_keys(ensemble, n_dims)
        summed = _summed(settings, np.bincount(cluster), X.shape[1], n_targets)
        sums = embed_and_sum(
            X, Y, labels, projection, keys, frequency, entries, cluster, summed, Z, workspace, settings.n_jobs
        )
    else:
        workspace.require_memory(8.0 * n * n_targets, f"{n_targets:,} targets for {n:,} rows")
    how = start_of(
        settings.decoder, settings.n_neighbors, projection, names, frequency, float(Y.nnz / n), settings.n_jobs
    )
    parts, facts, answers = [], [], []
    for c in range(len(centres)):
        rows = np.arange(n) if len(centres) == 1 else np.flatnonzero(cluster == c)
        own = slice(int(entries.ends[c]), int(entries.ends[c + 1]))
        of_row = entries.of_row[rows] - own.start
        _log.info("cluster %d of %d: %s rows", c + 1, len(centres), f"{len(rows):,}")
        sub = row_slice(labels, own)
        draft = Part(
            Psi=np.empty((0, 0), np.float32),
            intercept=np.zeros(n_targets, np.float32),
            Z=Z[:, own] if Z is not None else searchable(sub, how)[None],
            sets=sub,
            counts=entries.counts[own],
            index=settings.index if workspace.in_memory else BlockwiseExact(),
            n_learners=settings.n_learners,
            kernel=choice.kernel,
        )
        if plain:
            part, solution, answer = _vote(settings, draft, X, rows, of_row, rank[rows], sums[c])
        else:
            all_of_them = rows if len(centres) > 1 else slice(None)
            labels_of_rows = sub[of_row]
            targets = targets_of(labels_of_rows, how, n_targets)
            askable = n if weights is None else most_asked(n)
            part, solution, answer = _regress(
                settings, choice, how, draft, X[all_of_them], targets, of_row, rows, rank[rows], askable
            )
        parts.append(part)
        facts.append(solution)
        answers.append(answer)
    if isinstance(choice.kernel, Local):
        choice = replace(choice, kernel=fitted_nearby(choice.kernel, how, parts, answers))
        parts = [replace(part, kernel=choice.kernel) for part in parts]
    decided = decide(settings.decoder, settings.n_neighbors, how, parts, answers, seed)
    parts = stored([_without_sets_of_rows(part) for part in parts], settings.index, workspace)
    return Learnt(parts, centres, weights, choice, ensemble, n_dims, decided, facts)


def _without_sets_of_rows(part: Part) -> Part:
    """The part once no row is left out any more: of rows that are not stored nothing is known one by one."""
    if part.rows is not None:
        return part
    nothing = np.empty(0, np.int64)
    return replace(part, set_of_row=nothing, row_numbers=nothing).with_searchers_of(part)


def _largest(Z: NDArray[Any]) -> float:
    """The largest absolute value of an array, a block at a time."""
    found = 0.0
    for rows in blocks(len(Z), 65536):
        found = max(found, float(Z[rows].max(initial=0)), -float(Z[rows].min(initial=0)))
        release(Z[rows])
    return found


def stored(parts: list[Part], index: Index, workspace: Workspace) -> list[Part]:
    """The parts with their embeddings as the index stores them, all in one array."""
    if index.storage == "float32":
        return parts if workspace.in_memory else [replace(part, index=index) for part in parts]
    parts = [replace(part, index=index) for part in parts]
    n_learners, _, m = parts[0].Z.shape
    ends = np.cumsum([0, *(part.n_sets for part in parts)])
    out = workspace.empty(f"Z-{index.storage}", (n_learners, int(ends[-1]), m), index.storage)
    scale = storage_scale(max(_largest(Z) for part in parts for Z in part.Z), index.storage)
    owns = [slice(start, end) for start, end in pairwise(ends.tolist())]
    return [
        replace(part, Z=as_stored(part.Z, scale, index.storage, out[:, own]), scale=scale)
        for part, own in zip(parts, owns, strict=True)
    ]


# ------------------------------------------------------------------------------------------------- before regression


def _tuned(
    settings: Settings, X: Any, Y: Any, names: NDArray[Any], sets: LabelSets, rank: Ints, seed: int
) -> tuple[Choice, Floats | None]:
    """The kernel, the ridge and the weights of features: given, or chosen on a sample.

    The relevance of features is learnt from rows that are never asked about: a rare feature's relevance is high where
    the labels of its few rows agree, which would tell a row that is left out about its own labels.
    """
    kernel = settings.kernel
    if kernel is None:
        few = X.shape[0] <= _KERNEL_ROWS * settings.n_clusters and not isinstance(settings.decoder, Votes)
        kernel = RBF() if few else Local() if isinstance(settings.decoder, Blend) else Linear()
    free = ["power"] if settings.relevance is None else []
    if isinstance(kernel, RBF) and kernel.gamma == "auto":
        kernel, free = RBF(0.5), [*free, "kernel"]
    linear = isinstance(kernel, Linear)
    # Conjugate gradients need many steps at a small ridge, so there it stays at 1.
    iterative = linear and not resolve_solver(settings.solver, *X.shape)[0].exact
    if settings.ridge is None and not isinstance(settings.decoder, Votes) and not iterative:
        free.append("ridge")
    ridge = settings.ridge if settings.ridge is not None else (1.0 if linear else 0.1)
    start = Choice(0.25 if settings.relevance is None else settings.relevance, kernel, ridge)
    if not free and not start.power:
        return start, None
    asked = rank < most_asked(X.shape[0])
    seen = np.flatnonzero(~asked)
    small = Projection(Gaussian(), _RELEVANCE_DIMS, 1, seed).embed(Y[seen], label_keys(names), settings.n_jobs)
    relevant = relevance(X[seen], small, settings.n_jobs)
    if free:
        askable = np.flatnonzero(asked)
        choice = choose(
            X, Y, relevant, start, free, askable, _SAMPLE[linear], settings.normalize, seed, settings.n_jobs
        )
        _log.info("on a sample: relevance %.3g, %s, ridge %.3g", choice.power, choice.kernel, choice.ridge)
        start = choice
    return start, relevant**start.power if start.power else None


def most_asked(n: int) -> int:
    """The most of n rows that are left out where features are weighed: the others are enough to learn weights from."""
    return min(max(_LEFT_OUT_TO_BLEND.values()), -(-n // 2))


def embedding_of(settings: Settings, kernel: Kernel, shape: tuple[int, int], L: int) -> tuple[Ensemble, int]:
    """The ensemble and m: Y itself where that is given or cheap enough, else random dimensions."""
    n, d = shape[0] / settings.n_clusters, shape[1]
    side = n if not isinstance(kernel, Linear) else min(n, d)
    iterative = isinstance(kernel, Linear) and not resolve_solver(settings.solver, int(n), d)[0].exact
    dims = _DIMS_ITERATIVE if iterative else _DIMS
    if settings.ensemble is not None and not isinstance(settings.ensemble, Identity):
        return settings.ensemble, settings.n_dims or dims
    affordable = L <= _EXACT_LABELS and 2 * side**2 * L <= _EXACT_FLOPS[isinstance(kernel, Linear)] and not iterative
    fits = affordable if settings.n_dims is None else settings.n_dims * settings.n_learners >= L
    if isinstance(settings.ensemble, Identity) or (fits and settings.n_learners == 1):
        return Identity(), settings.n_dims if settings.n_dims and isinstance(settings.ensemble, Identity) else L
    return Gaussian(), settings.n_dims or dims


# -------------------------------------------------------------------------------------------------------- regression


def _summed(settings: Settings, sizes: Ints, d: int, n_targets: int) -> list[bool]:
    """The clusters, of these sizes, whose regression is solved from sums, as many as fit into memory together."""
    solvers = [resolve_solver(settings.solver, int(size), d)[0] for size in sizes]
    fits = 8 * d * (d + n_targets) * len(sizes) <= _SUMS_BYTES or len(sizes) == 1
    return [fits and isinstance(solver, Primal) and solver.precision == "float64" for solver in solvers]


def _vote(
    settings: Settings, draft: Part, X: Any, rows: Ints, of_row: Ints, rank: Ints, sums: Sums | None
) -> tuple[Part, dict[str, Any], Answer]:
    """The paper's regression of one cluster, the `rows` of X, with the best ridge.

    `sums` are those of its rows, if they are known; row i carries label set `of_row[i]`.
    """
    solver, reason = resolve_solver(settings.solver, len(rows), X.shape[1])
    targets = IndexedEmbedding(draft.Z, of_row)
    _log.info("%s", reason if reason != "given" else f"solver='{solver.word}'")
    if sums is not None and isinstance(solver, Primal):
        solve = solver.of_sums(sums, lambda asked: (dense(read_rows(X, rows[asked])), dense(targets[asked])))
        mean_square = float(np.trace(sums.gram)) / len(rows)
        draft = replace(draft, kept=sums)
    else:
        own = X[rows]
        draft = replace(draft, kept=KeptRows(own, of_row) if solver.exact else None)
        solve = solver.prepare(own, targets, settings.n_jobs)
        mean_square = float(np.square(own.data if scipy.sparse.issparse(own) else own).sum()) / len(rows)
    most = most_left_out(len(rows), X.shape[1], settings.ridge, solver)
    asked = np.sort(np.argsort(rank)[:most])
    fair = rank[asked] < most  # the first rows of all, which are among the first of each cluster
    return answered(settings, draft, solve, Asked(asked, of_row[asked]), fair, mean_square, reason)


def answered(
    settings: Settings,
    draft: Part,
    solve: Solve,
    asked: Asked,
    fair: NDArray[np.bool_],
    mean_square: float,
    reason: str,
) -> tuple[Part, dict[str, Any], Answer]:
    """The regression of a cluster at the best ridge, how it was found, and what it says of the `fair` of the rows."""
    k = settings.n_neighbors or 5
    voted = vote(draft, solve, asked, settings.ridge, mean_square, k, settings.n_jobs)
    part = replace(draft, Psi=voted.solution.Psi.astype(np.float32)).with_searchers_of(draft)
    rows = np.flatnonzero(fair)
    return part, voted.solution.facts(voted.ridge, reason), Answer(voted.truth[rows], voted.scores[rows])


def _regress(
    settings: Settings,
    choice: Choice,
    how: Decode,
    draft: Part,
    X: Any,
    targets: Any,
    of_row: Ints,
    numbers: Ints,
    rank: Ints,
    askable: int,
) -> tuple[Part, dict[str, Any], Answer]:
    """The regression of one cluster at the ridge that was chosen, and what it says of rows left out.

    `numbers` are those of its rows among all. Left out are rows whose `rank` among all is below `askable`, as many as
    the solver can afford.
    """
    n = X.shape[0]
    rows = kept = None
    if isinstance(choice.kernel, Linear):
        wide = with_ones(X)
        solver, reason = resolve_solver(settings.solver, *X.shape)
        if settings.solver == "auto":
            solver = replace(solver, **({"precision": "float32"} if solver.exact else {"max_steps": _CG_STEPS}))
            reason += "" if solver.exact else f", stopped after {_CG_STEPS} steps, which regularises"
        _log.info("%s", reason if reason != "given" else f"solver='{solver.word}'")
        local = isinstance(choice.kernel, Local)
        most = min(_HELD_OUT, -(-len(rank) // 10))
        if solver.exact:
            kind = "local" if local else "small" if min(X.shape) <= SMALL else solver.word
            most = min(_LEFT_OUT_TO_BLEND[kind], askable)
        asked = np.flatnonzero(rank < most)
        seen = slice(None) if solver.exact else np.flatnonzero(rank >= most)
        with warnings.catch_warnings():
            if settings.solver == "auto":  # stopped on purpose
                warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solver.prepare(wide[seen], targets[seen], settings.n_jobs, once=True)(choice.ridge)
        left_out = np.zeros((0, targets.shape[1]), np.float32)
        if len(asked) and solver.exact:
            left_out = solution.left_out(asked).astype(np.float32, copy=False)
        elif len(asked):
            left_out = np.asarray(predict_embedding(wide[asked], solution.Psi, settings.n_jobs), np.float32)
        Psi, intercept = solution.Psi[:-1].astype(np.float32), solution.Psi[-1].astype(np.float32)
        rows = Rows(X) if how.n_similar or local else None
        kept = KeptRows(X, of_row) if solver.exact and rows is None else None
        facts = solution.facts(choice.ridge, reason)
    else:
        require_room(n, targets.shape[1])
        most = min(_LEFT_OUT_TO_BLEND["kernel"], askable)
        order = np.argsort(-rank, kind="stable")  # the rows to be asked come last
        X, of_row, rank, numbers = X[order], of_row[order], rank[order], numbers[order]
        asked = np.arange(n - np.count_nonzero(rank < most), n)
        reason = f"{choice.kernel} of n = {n:,} rows: factorise K"
        _log.info("%s", reason)
        K = choice.kernel.lower_triangle(X, settings.n_jobs)
        kernel_solution = solve_kernel(
            K, dense(targets[order]).astype(np.float32, copy=False), choice.ridge, len(asked)
        )
        Psi, left_out, rows = kernel_solution.coefficients, kernel_solution.left_out, Rows(X)
        intercept = np.zeros(Psi.shape[1], np.float32)
        facts = {"ridge": choice.ridge, "solver": "kernel", "reason": reason, "converged": True, "steps": 0,
                 "residual": 0.0}  # fmt: skip
    part = replace(draft, Psi=Psi, intercept=intercept, rows=rows, set_of_row=of_row, row_numbers=numbers, kept=kept)
    truth = draft.sets[of_row[asked]]
    return part, facts, Answer(truth, X=X[asked], Z=left_out, rows=asked)
