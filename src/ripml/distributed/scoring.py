"""Scores of rows that workers hold, by a model that is sent to them or that they read from its folder."""

from __future__ import annotations

import copy
import os
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from os import PathLike
from typing import Any

from scipy.sparse import csr_array

from ripml.distributed.memory import alone
from ripml.distributed.partitions import Piece, dask_modules, delayed_partitions
from ripml.distributed.workers import Workers
from ripml.model.estimator import RIPML
from ripml.tagging.documents import DocumentModel

__all__ = ["decision_function"]

_lock = threading.Lock()
_models: dict[tuple[str, str], DocumentModel] = {}  # the latest one that was read on this worker


def decision_function(model: RIPML | str | PathLike[str], partitions: Any, client: Any) -> Iterator[Any]:
    """Yield the scores of each partition, CSR (n, L), in order; `RIPML.decision_function` has what they mean.

    Parameters
    ----------
    model : RIPML or path
        Any fitted model, which is sent to all workers, or the folder of a saved one, which all workers must see and
        read as they need it: the better way for large models.
    partitions : Dask array, list of dask.delayed, or paths
        A Dask array of rows (or a pair with labels, which are not looked at), delayed objects that give X or (X, Y)
        each, or files.
    client : distributed.Client

    Examples
    --------
    >>> import dask
    >>> from distributed import Client
    >>> from ripml import RIPML
    >>> X, Y = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], [["tea"], ["tea"], ["ice"], ["ice"]]
    >>> model = RIPML(random_state=0).fit(X, Y)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     scores = list(decision_function(model, [dask.delayed([[1, 0.05]]), dask.delayed([[0, 1]])], client))
    >>> [model.classes_[of_partition.argmax()] for of_partition in scores]
    ['tea', 'ice']
    """
    dask_modules()
    if isinstance(model, (str, PathLike)):
        path = os.path.abspath(model)
        DocumentModel.load(path)  # an error here rather than on every worker
        return _in_order(delayed_partitions(partitions, _scores, (path, uuid.uuid4().hex)), Workers(client))
    sent = client.scatter(DocumentModel(model), broadcast=True, hash=False)
    return _in_order(delayed_partitions(partitions, _scores, sent), Workers(client))


def _in_order(delayed: list[Any], workers: Workers) -> Iterator[Any]:
    """The results of delayed objects, of which a few are under way at a time."""
    ahead = 2 * workers.memory()[2]
    under_way: deque[Any] = deque()
    for one in delayed:
        under_way += workers.computed([one])
        if len(under_way) > ahead:
            yield workers.fetched(under_way.popleft())
    while under_way:
        yield workers.fetched(under_way.popleft())


@alone
def _scores(given: Any, trained: DocumentModel | tuple[str, str]) -> Any:
    if not isinstance(trained, DocumentModel):
        with _lock:
            if trained not in _models:
                _models.clear()
                _models[trained] = DocumentModel.load(trained[0])
            trained = _models[trained]
    X = _features(given, trained)
    if X is None or (X.shape[0] if hasattr(X, "shape") else len(X)) == 0:
        return csr_array((0, len(trained.model.classes_)))
    model = copy.copy(trained.model).set_params(n_jobs=1)
    return model.decision_function(X)


def _features(given: Any, trained: DocumentModel) -> Any:
    if not isinstance(given, Piece):
        return given[0] if isinstance(given, tuple) else given
    place, _ = given.opened()
    return None if place is None else trained.features(trained.read(place, given.format))
