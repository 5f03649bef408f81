"""Scores of rows on the workers, by a model that is sent to them or that they read from its folder."""

from __future__ import annotations

import copy
import os
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike
from typing import Any

from scipy.sparse import csr_array

from ripml.distributed.partitions import Piece, dask_modules, delayed_partitions
from ripml.distributed.workers import Workers, alone, connected
from ripml.model.estimator import RIPML
from ripml.tagging.documents import DocumentModel

__all__ = ["decision_function"]

_lock = threading.Lock()
_models: dict[tuple[str, str], DocumentModel] = {}  # the last model read by this worker, by path and call


def decision_function(model: RIPML | str | PathLike[str], partitions: Any, client: Any) -> Iterator[Any]:
    """Yield the scores of each partition in order, CSR (n, L); see `RIPML.decision_function` for their meaning.

    Parameters
    ----------
    model : RIPML or path
        A fitted model, which is sent to all workers, or the folder of a saved model, which workers read themselves.
        All workers must see the folder; use it for large models.
    partitions : Dask array or data frame, list of dask.delayed or futures, or paths
        A Dask array or data frame of rows (or a pair with labels, which are ignored), delayed objects or futures that
        give X or (X, Y) each, or files.
    client : distributed.Client or str
        Or the address of a scheduler, such as "tcp://10.0.0.5:8786".

    Examples
    --------
    >>> import dask
    >>> from distributed import Client
    >>> from ripml import RIPML
    >>> X, Y = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], [["tea"], ["tea"], ["ice"], ["ice"]]
    >>> model = RIPML(random_state=0).fit(X, Y)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     scores = list(decision_function(model, [dask.delayed([[1, 0.05]]), dask.delayed([[0, 1]])], client))
    >>> [model.classes_[partition.argmax()] for partition in scores]
    ['tea', 'ice']
    """
    dask_modules()
    source: Any = None
    if isinstance(model, (str, PathLike)):
        DocumentModel.load(model)  # report a bad folder here, not on every worker
        source = os.path.abspath(model), uuid.uuid4().hex
    with ExitStack() as stack:
        opened = stack.enter_context(connected(client))
        if isinstance(model, RIPML):
            source = opened.scatter(DocumentModel(model), broadcast=True, hash=False)
        delayed = delayed_partitions(partitions, _scores, source)
        return _closing(stack.pop_all(), _in_order(delayed, Workers(opened)))


def _closing(stack: ExitStack, results: Iterator[Any]) -> Iterator[Any]:
    """The results; the stack is closed after the last one."""
    with stack:
        yield from results


def _in_order(delayed: list[Any], workers: Workers) -> Iterator[Any]:
    """Results in order, with two tasks per thread submitted ahead."""
    ahead = 2 * workers.memory()[2]
    pending: deque[Any] = deque()
    for task in delayed:
        pending += workers.computed([task])
        if len(pending) > ahead:
            yield workers.fetched(pending.popleft())
    while pending:
        yield workers.fetched(pending.popleft())


@alone
def _scores(partition: Any, source: DocumentModel | tuple[str, str]) -> Any:
    """The task of one partition; `source` is a model, or its folder and the call."""
    if isinstance(source, DocumentModel):
        trained = source
    else:
        with _lock:
            if source not in _models:
                _models.clear()
                _models[source] = DocumentModel.load(source[0])
            trained = _models[source]
    X = _features(partition, trained)
    if X is None or (X.shape[0] if hasattr(X, "shape") else len(X)) == 0:
        return csr_array((0, len(trained.model.classes_)))
    model = copy.copy(trained.model).set_params(n_jobs=1)
    return model.decision_function(X)


def _features(partition: Any, trained: DocumentModel) -> Any:
    if not isinstance(partition, Piece):
        return partition[0] if isinstance(partition, tuple) else partition
    source, _ = partition.opened()
    return None if source is None else trained.features(trained.read(source, partition.format))
