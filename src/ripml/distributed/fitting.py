"""The client's part of a fit: send tasks to the workers, solve the regressions from their sums, write the index."""

from __future__ import annotations

import logging
import operator
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripml.base.errors import DataError, MemoryLimitError, NoLabelsError, ParameterError
from ripml.base.products import IndexedEmbedding, dense
from ripml.base.workspace import DiskWorkspace, row_slice
from ripml.decoding.decoders import DecoderParts
from ripml.decoding.label_set_index import PointIndex
from ripml.distributed import label_sets, tasks
from ripml.distributed.label_sets import BUCKET_BYTES, Buckets
from ripml.distributed.partitions import Head, dask_modules, delayed_partitions, finished, merged_heads
from ripml.distributed.rows import ClusterWorkspace, Shards
from ripml.distributed.workers import Workers, connected
from ripml.labels.encoding import check_names
from ripml.labels.projection import Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.model.estimator import RIPML
from ripml.model.fitting import ClusterFit, Settings, VotesFitting, assemble, choose_embedding
from ripml.model.streaming import RowFiles
from ripml.model.tuning import Choice
from ripml.regression import Dual, Primal, RidgeSolver, Sums, resolve_solver
from ripml.regression.kernels import Linear
from ripml.tagging.documents import DocumentModel

__all__ = ["fit", "train_files"]

_log = logging.getLogger("ripml")

Ints = NDArray[np.int64]

_TABLE_BYTES = 1 << 30  # columns of Phi that a worker keeps, at most a quarter of its memory
_PIECE_BYTES = 1 << 25  # of rows on their way to the client
_MEMORY = 1 << 30  # memory of the client's workspace, in addition to one bucket
_CLUSTERS_AT_A_TIME = 4  # clusters fitted at the same time: most of that is waiting for workers


def fit(
    model: RIPML,
    partitions: Any,
    client: Any,
    folder: str | PathLike[str],
    label_names: Sequence[str] | None = None,
) -> RIPML:
    """Fit a model on the workers of `client`; the result is the model that `RIPML.fit` finds.

    Parameters
    ----------
    model : RIPML
        Of any preset, with any solver but "dual". With `decoder="votes"`, as in `RIPML.paper`, only `kernel="linear"`,
        `relevance=0` and closed-form ridge on at most 12,000 features. It is fitted in place and returned.
    partitions : pair of Dask collections, list of dask.delayed or futures, or paths
        Dask arrays, data frames or bags (X, Y) with the same partitions of rows, where Y has dense or CSR indicators,
        or label names; or delayed objects or futures that give one pair (X, Y) each, as for `RIPML.fit`, or two lists
        of them, of X and of Y; or files that all workers see, in a format of `ripml.datasets`. Each partition is one
        task and must fit into a worker's memory several times.
    client : distributed.Client or str
        Or the address of a scheduler, such as "tcp://10.0.0.5:8786".
    folder : path
        Where the client writes the index and, unless the decoder is "votes", all rows, which answers need. The fitted
        model reads it from there: call `save` before you delete it.
    label_names : sequence of str, optional
        Names of the columns of an indicator.

    Examples
    --------
    >>> import dask, tempfile
    >>> from distributed import Client
    >>> from ripml import RIPML
    >>> rows = [([[1, 0], [0.9, 0.1]], [["tea"], ["tea", "hot"]]), ([[0, 1], [0.1, 0.9]], [["ice"], ["ice", "cold"]])]
    >>> with Client(processes=False, dashboard_address=":0") as client, tempfile.TemporaryDirectory() as folder:
    ...     model = fit(RIPML(random_state=0), [dask.delayed(pair) for pair in rows], client, folder)
    ...     model.recommend([[1, 0.05]], n=1)[0][0][0]
    'tea'
    """
    _fit(model, partitions, client, Path(folder), label_names, None)
    return model


def train_files(
    model: RIPML,
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    format: str | None,
    address: str,
    folder: str | PathLike[str],
) -> DocumentModel:
    """Fit from files on the workers of the scheduler at `address`; the result knows the columns of the files.

    >>> train_files(RIPML(solver="dual"), "rows.svm", None, "tcp://127.0.0.1:8786", "work")
    Traceback (most recent call last):
    ripml.base.errors.ParameterError: solver='dual' factorises XXᵀ of all rows, ...; use solver='auto', ...
    """
    dask_modules()
    _check_settings(model)
    head = _fit(model, path, address, Path(folder), None, format)
    return DocumentModel(model, None, head.features, head.first_feature)


def _fit(
    model: RIPML, partitions: Any, client: Any, folder: Path, label_names: Sequence[str] | None, format: str | None
) -> Head:
    _check_settings(model)
    with _plain_errors(), connected(client) as opened:
        folder.mkdir(parents=True, exist_ok=True)
        fitted = model._unfitted()  # a copy, so that a fit that fails leaves the model unchanged
        fitting = _Fit(fitted, opened, folder)
        try:
            head = fitting.run(partitions, label_names, format)
        finally:
            fitting.workers.run(label_sets.forget, fitting.token)
        model._adopt(fitted)
        return head


def _check_settings(model: RIPML) -> None:
    model.check_settings()
    settings = model.stages()
    solver = resolve_solver(settings.solver, 1, 1)[0]
    if settings.decoder.tunes_ridge:
        if solver.word == Dual.word:
            raise ParameterError(
                "solver='dual' factorises XXᵀ of all rows, which no worker holds; use solver='auto', 'primal' or 'cg'."
            )
        return
    supported = {
        "kernel": settings.kernel is None or settings.kernel.linear,
        "relevance": settings.relevance == 0,
        "solver": solver == Primal(),
    }
    for name, is_supported in supported.items():
        if not is_supported:
            raise ParameterError(
                "with decoder='votes', workers fit the paper's model only: kernel='linear', relevance=0 and solver "
                f"'auto' or 'primal', as in RIPML.paper; got {name}={getattr(model, name)!r}."
            )


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Turn Dask's error about a task that kills its workers into one that says what to do."""
    _, distributed = dask_modules()
    try:
        yield
    except distributed.KilledWorker as error:
        raise MemoryLimitError(
            f"workers died at the same task again and again ({error.task}), most likely because memory ran out; make "
            "smaller partitions, use fewer `n_dims`, or give workers more memory."
        ) from error


class _Fit:
    """One fit. A future is deleted as soon as all tasks that use it are submitted, so that workers can free memory."""

    def __init__(self, model: RIPML, client: Any, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.settings = model.stages()
        self.workers = Workers(client)
        self.token = uuid.uuid4().hex

    def run(self, partitions: Any, label_names: Sequence[str] | None, format: str | None) -> Head:
        """Fit the model, and return the description of its rows."""
        # Load the partitions, and find the columns of all.
        head, names, loaded, columns = self._rows(partitions, label_names, format)
        if self.settings.decoder.tunes_ridge:
            self._fit_shards(head, names, loaded, columns)
        else:
            self._fit_votes(head, names, loaded, columns)
        return head

    def _fit_shards(self, head: Head, names: NDArray[Any], loaded: list[Any], columns: Any) -> None:
        """Fit as from files, which the client writes; what is summed over rows is summed by the workers."""
        shards = Shards.of(self.workers, loaded, columns, head)
        # Write the rows to files of the client.
        _log.info("writing %s rows to files, in %d parts on the workers", f"{head.n_rows:,}", len(shards.futures))
        settings = self.settings
        about = f"normalize={settings.scales_at_once} shards={shards.starts.tolist()}"
        files = RowFiles(self.folder / "rows", about)
        width = max(1, head.n_bytes // max(head.rows))
        for _, (X, Y) in shards.pieces(max(1, _PIECE_BYTES // width), "rows to files"):
            files.append(X, Y)
        X, Y = files.matrices()
        workspace = ClusterWorkspace(3 * _MEMORY // 4, self.folder, _MEMORY)
        workspace.hold(X, shards, "X")
        workspace.hold(Y, shards, "Y")
        del shards
        self.model._fit_mapped(X, Y, names, head.n_unlabelled, workspace)

    def _fit_votes(self, head: Head, names: NDArray[Any], loaded: list[Any], columns: Any) -> None:
        """Fit the paper's model, of which the client never has an array with a line for each row."""
        settings, workers = self.settings, self.workers
        seed = self.model._seed(head.n_rows, head.n_unlabelled)
        rows = workers.each(tasks.settled, loaded, [columns] * len(loaded))
        loaded.clear()
        sizes = [size for size in head.rows if size]
        n, d, L, P = head.n_rows, head.n_features, len(names), len(sizes)
        _log.info("reading %s rows, in %d partitions", f"{n:,}", P)

        # Choose the embedding, and make the decoder before its options are tuned.
        choice = Choice(0.0, Linear(), 1.0 if settings.ridge is None else settings.ridge)
        ensemble, n_dims = choose_embedding(settings, choice.kernel, (n, d), L)
        projection = Projection(ensemble, n_dims, settings.n_learners, seed)
        projection.check_capacity(L)
        vocabulary, plan = Vocabulary.of(names), self._plan(head, projection)
        frequency = workers.together(tasks.added, workers.each(tasks.frequency_of, rows))
        choices = settings.decoder.start(choice.kernel, ensemble.exact, L, head.n_entries / n, settings.n_neighbors)
        embedding = settings.decoder.embedding(projection, vocabulary, choices.n_neighbors)
        draft = settings.decoder.fitted(DecoderParts(embedding, choices, workers.fetched(frequency), L, choice.kernel))

        # Assign rows to clusters, and draw the held-out rows of each.
        centres, cluster, counts = self._clusters(rows, sizes, head, seed)
        plan = replace(plan, n_clusters=len(centres))
        solvers = [_primal(settings, int(count), d) for count in counts]
        limits = np.array([VotesFitting.most_left_out(settings, int(count), d, Primal()) for count in counts])
        set_keys = keys = workers.sent(vocabulary.keys)
        if ensemble.capacity(n_dims) is not None:
            keys = workers.sent(embedding.columns.keys)
        ranks = workers.one(tasks.rank_slices, seed, sizes)
        rank = workers.each(operator.getitem, [ranks] * P, range(P))
        drawn = workers.together(
            partial(tasks.merged_left_out, limits=limits),
            workers.each(partial(tasks.left_out, limits=limits), rows, cluster, rank, [set_keys] * P),
        )

        # One pass over the rows embeds them (the paper's step 1) and sums them for the regression (step 2).
        passed = workers.each(
            partial(label_sets.one_pass, plan=plan), rows, cluster, [keys] * P, [set_keys] * P, [frequency] * P
        )
        sums = workers.together(tasks.added, workers.each(label_sets.sums_of, passed))
        buckets = Buckets.of(workers, passed, plan)
        del rows, cluster, rank, passed

        # Write the index.
        left_out = workers.fetched(drawn)
        written = buckets.write(DiskWorkspace.in_folder(self.folder, _MEMORY), L, left_out)
        _log.info("%s label sets are known", f"{len(written.counts):,}")
        gram, moment, _ = workers.fetched(sums)
        del sums

        def fit_cluster(c: int) -> ClusterFit:
            """Solve the regression of a cluster from its sums; workers search the neighbours of held-out rows."""
            entries, cluster_sums = written.of_cluster(c), Sums(gram[c], moment[c], int(counts[c]))
            index = PointIndex.of(
                row_slice(written.sets, entries),
                written.counts[entries],
                written.Z[:, entries],
                settings.index,
                made=buckets.searchers(c),
            )
            held_out = np.flatnonzero(left_out.cluster == c)
            sets = written.entries[held_out]
            x, z = dense(left_out.X[held_out]), IndexedEmbedding(index.Z, sets).toarray()
            solver, reason = solvers[c]
            solve = solver.of_sums(cluster_sums, lambda numbers: (x[numbers], z[numbers]))
            fair = left_out.rank[held_out] < limits[c]
            mean_square = float(np.trace(gram[c])) / int(counts[c])
            numbers = np.arange(len(held_out))
            return VotesFitting.solved(
                settings, draft, index, None, cluster_sums, solve, numbers, sets, fair, mean_square, reason
            )

        with ThreadPoolExecutor(_CLUSTERS_AT_A_TIME) as pool:
            fits = list(pool.map(fit_cluster, range(len(centres))))
        self.model._settings_at_fit = self.model._settings()
        scaling = self.model._scaling_of_parts()
        self.model.model_ = assemble(
            settings, choice, draft, fits, centres, scaling, vocabulary, n, head.n_unlabelled, seed, written.workspace
        )

    def _rows(
        self, partitions: Any, label_names: Sequence[str] | None, format: str | None
    ) -> tuple[Head, NDArray[Any], list[Any], Any]:
        """The merged head, the label names, the loaded partitions that have rows, and the future of the head."""
        workers, model = self.workers, self.model
        checker = model.cloned().set_params(n_jobs=1, random_state=0)
        loaded = workers.computed(delayed_partitions(partitions, tasks.load, checker, format))
        future = workers.one(finished, workers.together(merged_heads, workers.each(tasks.head_of, loaded)))
        head: Head = workers.fetched(future)
        model.n_features_in_ = head.n_features
        if head.frame is not None:
            model.feature_names_in_ = np.array(head.frame, object)
        if head.n_missing:
            n = head.n_rows + head.n_unlabelled
            raise DataError(f"the headers say N = {n + head.n_missing} rows, but the files have {n}.")
        if not head.n_rows:
            raise NoLabelsError(
                f"none of the {head.n_unlabelled:,} rows carries a label, so there is nothing to learn."
            )
        if label_names is not None and head.names is not None:
            raise DataError("`label_names` names the columns of an indicator; the labels given here have names.")
        names = head.classes() if label_names is None else check_names(label_names, head.n_labels)
        return head, names, [one for one, size in zip(loaded, head.rows, strict=True) if size], future

    def _plan(self, head: Head, projection: Projection) -> label_sets.Plan:
        """The settings of the pass over the rows; MemoryLimitError if a worker has too little memory for it."""
        d, n_targets = head.n_features, projection.n_learners * projection.n_dims
        limit, threads, all_threads = self.workers.memory()
        table = int(min(_TABLE_BYTES, limit / 4, max(4 * head.n_labels * n_targets, 1)))
        sums = 8 * d * (d + n_targets) * self.settings.n_clusters
        needed = threads * (head.n_bytes + 2 * 4 * max(head.rows) * n_targets + sums) + table
        if needed > limit:
            raise MemoryLimitError(
                f"a partition of {max(head.rows):,} rows with {n_targets:,} targets would need {needed / 1e9:,.1f} GB "
                f"on a worker of {threads} threads, which has {limit / 1e9:,.1f} GB; make smaller partitions, use "
                "fewer `n_dims` or `n_clusters`, or give workers more memory."
            )
        pieces = max(4 * head.n_rows * n_targets / BUCKET_BYTES, all_threads)
        return label_sets.Plan(self.token, projection, 1, int(np.ceil(np.log2(pieces))), table)

    def _clusters(
        self, rows: list[Any], sizes: list[int], head: Head, seed: int
    ) -> tuple[NDArray[Any], list[Any], Ints]:
        """Centres, the cluster of each row (futures), and the size of each, as `clustering.partition` finds them."""
        workers, C, P = self.workers, self.settings.n_clusters, len(rows)
        centres = np.zeros((1, head.n_features), head.dtype)
        if C > 1:
            drawn = workers.one(tasks.drawn, seed, sizes)
            samples = workers.each(tasks.sample, rows, [drawn] * P, range(P))
            centres = workers.fetched(workers.one(tasks.centres, samples, head.n_rows, C, seed))
        cluster = workers.each(tasks.assigned, rows, [workers.sent(centres)] * P)
        counts = np.sum(workers.fetched(workers.each(partial(np.bincount, minlength=C), cluster)), axis=0)
        occupied = np.flatnonzero(counts)
        if len(occupied) < C:  # clusters without rows are left out, and the others renumbered
            cluster = workers.each(partial(np.searchsorted, occupied), cluster)
        return centres[occupied], cluster, counts[occupied]


def _primal(settings: Settings, n: int, d: int) -> tuple[RidgeSolver, str]:
    """The solver of a cluster of n rows and the reason; it must be one that needs only sums over rows."""
    solver, reason = resolve_solver(settings.solver, n, d)
    if settings.solver == "auto" and not solver.solves_sums:
        solver, reason = (
            resolve_solver("auto", d, d)[0],
            f"n = {n:,} < d = {d:,}, but rows are on workers: factorise XᵀX",
        )
    if not solver.solves_sums:
        raise ParameterError(
            f"d = {d:,} features are too many for solver='auto' on workers, which factorise XᵀX only; use fewer "
            "features, or solver='primal' if memory allows it."
        )
    return solver, reason
