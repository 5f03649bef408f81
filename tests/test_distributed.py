"""Fits on the workers of a Dask cluster: the model of one fit, whoever dies on the way, and little on the client."""

from __future__ import annotations

import gzip
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ripml import RIPML, datasets, load
from ripml.base.errors import DataError, MemoryLimitError, MissingExtraError, NoLabelsError, ParameterError
from ripml.cli import main
from ripml.datasets import Dataset
from ripml.decoding import Blend
from ripml.decoding.signals import FittedBlend
from ripml.distributed import decision_function, fit, tasks, train_files
from ripml.distributed import label_sets as index_module
from ripml.distributed import partitions as partitions_module
from ripml.distributed.partitions import Head, merged_heads
from ripml.distributed.workers import Workers, reused_memory
from ripml.lab.generated import generate
from ripml.model.cluster import Cluster
from ripml.model.model import Model
from ripml.regression import ConjugateGradient, GradientDescent, Local
from ripml.regression.regression import LinearRegression
from ripml.tagging.documents import DocumentModel

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

X, Y = generate(700, n_features=12, n_labels=90, labels_per_row=4.0, n_topics=5)
NAMES = [[f"label {j}" for j in Y.indices[Y.indptr[i] : Y.indptr[i + 1]]] for i in range(len(X))]
EDGES = (0, 90, 90, 100, 430, 700)  # partitions of different sizes, one of them empty


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        # A cluster closes a worker that is being restarted this long after it was lost before.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 h"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="2GB"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def cut(X: Any, Y: Any, edges: tuple[int, ...] = EDGES) -> list[Any]:
    return [dask.delayed((X[a:b], Y[a:b])) for a, b in pairwise(edges)]


def paper(**settings: Any) -> RIPML:
    return RIPML.paper(**{"n_dims": 16, "n_neighbors": 3, "ridge": 1.0, "random_state": 0, **settings})


def psi(cluster: Cluster) -> NDArray[Any]:
    """The coefficients of a cluster's linear regression, (d, M)."""
    assert isinstance(cluster.regression, LinearRegression)
    return cluster.regression.Psi


def same_model(spread: Any, whole: Any, rows: Any = X) -> None:
    assert spread.classes_.tolist() == whole.classes_.tolist()
    assert (spread.n_rows_, spread.n_unlabelled_) == (whole.n_rows_, whole.n_unlabelled_)
    np.testing.assert_array_equal(spread.frequency_, whole.frequency_)
    np.testing.assert_allclose(spread.centres_, whole.centres_, rtol=1e-6)
    np.testing.assert_allclose(spread.ridge_, whole.ridge_)
    for cluster, other in zip(spread.clusters_, whole.clusters_, strict=True):
        for one, two in ((psi(cluster), psi(other)), (cluster.index.Z, other.index.Z)):
            assert np.abs(one - two).max() <= 1e-5 * np.abs(two).max()
        np.testing.assert_array_equal(cluster.index.counts, other.index.counts)
        np.testing.assert_array_equal(cluster.index.sets.toarray(), other.index.sets.toarray())
    assert spread.threshold_ == pytest.approx(whole.threshold_, rel=1e-5)
    assert spread.left_out_precision_ == pytest.approx(whole.left_out_precision_)
    difference = spread.decision_function(rows[:100]) - whole.decision_function(rows[:100])
    assert abs(difference).max() <= 1e-5
    # Isotonic steps and bins move where two scores that all but tie change places.
    assert spread.calibration_error_ == pytest.approx(whole.calibration_error_, abs=2e-3)


# ------------------------------------------------------------------------------------------------- the same model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ridge": "auto"},
        {"n_clusters": 4},
        {"n_clusters": 3, "ridge": "auto", "n_learners": 2},
        {"ensemble": "deterministic", "n_dims": 40},
        {"n_dims": "auto", "n_learners": 1, "ensemble": "auto", "normalize": False},
        {"views": [5, 7]},
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_workers_learn_the_model_of_one_fit(
    tmp_path: Path, client: Any, settings: dict[str, Any], sparse: bool
) -> None:
    rows = scipy.sparse.csr_array(X) if sparse else X
    model = paper(**settings)
    assert fit(model, cut(rows, Y), client, tmp_path) is model
    same_model(model, paper(**settings).fit(rows, Y))


def test_names_are_sorted_whatever_partition_they_are_in(tmp_path: Path, client: Any) -> None:
    same_model(fit(paper(), cut(X, NAMES), client, tmp_path), paper().fit(X, NAMES))


def test_names_that_are_numbers_stay_numbers(tmp_path: Path, client: Any) -> None:
    numbers = [[int(name[6:]) + 7 for name in row] for row in NAMES]
    same_model(fit(paper(), cut(X, numbers), client, tmp_path), paper().fit(X, numbers))


def test_given_names_and_rows_without_labels_are_as_in_one_fit(tmp_path: Path, client: Any) -> None:
    some = Y.toarray()
    some[::7] = 0
    some[90:100] = 0  # a whole partition
    names = [f"n{j}" for j in range(Y.shape[1])]
    spread = fit(paper(n_clusters=2), cut(X, some), client, tmp_path, label_names=names)
    assert spread.n_unlabelled_ == 108
    same_model(spread, paper(n_clusters=2).fit(X, some, label_names=names))


def test_dask_arrays_are_learnt_from_chunk_by_chunk(tmp_path: Path, client: Any) -> None:
    array = pytest.importorskip("dask.array")
    features, labels = array.from_array(X, chunks=(200, -1)), array.from_array(Y.toarray(), chunks=(200, -1))
    whole = paper().fit(X, Y)
    same_model(fit(paper(), (features, labels), client, tmp_path / "dense"), whole)
    sparse = labels.map_blocks(scipy.sparse.csr_array, dtype=np.float32)
    same_model(fit(paper(), (features, sparse), client, tmp_path / "sparse"), whole)
    scores = scipy.sparse.vstack(list(decision_function(whole, features, client)))
    assert abs(scores - whole.decision_function(X)).max() <= 1e-6


def test_tables_keep_the_order_and_the_names_of_their_columns(tmp_path: Path, client: Any) -> None:
    pandas = pytest.importorskip("pandas")
    features = pandas.DataFrame(X, columns=[f"f{j}" for j in range(12)])
    labels = pandas.DataFrame(Y.toarray(), columns=[f"l{90 - j}" for j in range(90)])
    spread, whole = fit(paper(), cut(features, labels), client, tmp_path), paper().fit(features, labels)
    assert spread.feature_names_in_.tolist() == whole.feature_names_in_.tolist()
    same_model(spread, whole, features)


def test_label_sets_that_many_rows_share_are_counted_once(tmp_path: Path, client: Any) -> None:
    few = [NAMES[i % 9] for i in range(700)]
    spread = fit(paper(n_clusters=2), cut(X, few), client, tmp_path)
    assert spread.clusters_[0].n_sets <= 9
    same_model(spread, paper(n_clusters=2).fit(X, few))


def test_clusters_of_fewer_rows_than_features_and_empty_ones_are_as_in_one_fit(tmp_path: Path, client: Any) -> None:
    rows = np.repeat(X[:3], [20, 20, 4], axis=0)  # of five clusters two have no row
    spread = fit(paper(n_clusters=5), cut(rows, NAMES[:44], (0, 10, 44)), client, tmp_path)
    assert len(spread.clusters_) == 3
    assert spread.solutions_[-1]["solver"] == "primal"
    same_model(spread, paper(n_clusters=5).fit(rows, NAMES[:44]), rows)


def test_centres_are_learnt_from_the_rows_that_one_fit_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    from ripml.model import clustering as clusters

    monkeypatch.setattr(clusters, "_SAMPLE", 150)
    centres, cluster = clusters.partition(X, 3, seed=5)
    sizes = (300, 400)
    blocks = [tasks.Block(X[:300], None, Head((300,))), tasks.Block(X[300:], None, Head((400,)))]
    drawn = tasks.drawn(5, sizes)
    assert sum(len(rows) for rows in drawn if rows is not None) == 150
    found = tasks.centres([tasks.sample(block, drawn, p) for p, block in enumerate(blocks)], 700, 3, 5)
    np.testing.assert_array_equal(found, centres)
    np.testing.assert_array_equal(np.concatenate([tasks.assigned(block, found) for block in blocks]), cluster)


def test_a_saved_model_needs_neither_the_folder_nor_the_workers(tmp_path: Path, client: Any) -> None:
    spread = fit(paper(n_clusters=2), cut(X, Y), client, tmp_path / "work")
    expected = spread.decision_function(X[:40]).toarray()
    spread.save(tmp_path / "model")
    for path in (tmp_path / "work").iterdir():
        path.unlink()
    loaded = DocumentModel.load(tmp_path / "model").model
    np.testing.assert_array_equal(loaded.decision_function(X[:40]).toarray(), expected)


# ------------------------------------------------------------------------------------------- default and linear models

MANY = generate(700, n_features=12, n_labels=3000, labels_per_row=4.0, n_topics=5)[1]
WORDS = scipy.sparse.csr_array(np.hstack([np.where(X > 0.8, X, 0), np.where(X < -0.8, -X, 0)]))
LOCAL: dict[str, Any] = {"kernel": Local(0.5, 0.3, 20)}
LINEAR: dict[str, Any] = {"kernel": "linear", "decoder": Blend(n_similar=0)}
CG: dict[str, Any] = {"solver": ConjugateGradient(max_steps=8), "ensemble": "gaussian", "n_dims": 64}


def with_trees_of(whole: RIPML, spread: RIPML) -> Model:
    """A model that weighs its own signals by the trees of another.

    Labels are random here, so that splits all but tie: other trees are grown where a last bit of the rows changes.
    """
    model, decoder = spread.model_, whole.model_.decoder
    if not isinstance(decoder, FittedBlend):
        return model
    assert isinstance(model.decoder, FittedBlend)
    return replace(model, decoder=replace(model.decoder, trees=decoder.trees))


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (X, {}),
        (X, LOCAL),
        (X, LINEAR),
        (WORDS, LOCAL),
        (WORDS, LINEAR),
        (WORDS, {**LINEAR, **CG}),
        (WORDS, {**LOCAL, **CG, "n_learners": 2}),
        (X, {**LINEAR, **CG, "decoder": "least-squares"}),
        (WORDS, {**LINEAR, **CG, "solver": GradientDescent(max_steps=5)}),
        (X, {**LINEAR, "n_clusters": 3}),
        (WORDS, {"n_clusters": 3, "decoder": "weighted"}),
        (X, {**LINEAR, "views": (7, 5)}),
        (X, {**LINEAR, "normalize": True, "decoder": "weighted"}),
        (X, {**LINEAR, "normalize": False, "relevance": 0.5}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else type(value).__name__,
)
@pytest.mark.filterwarnings("ignore:solver=.* stopped after")
def test_workers_sum_what_one_fit_of_another_decoder_sums(
    tmp_path: Path, client: Any, rows: Any, settings: dict[str, Any]
) -> None:
    model = RIPML(random_state=0, **settings)
    spread, whole = fit(clone(model), cut(rows, MANY), client, tmp_path / "work"), clone(model).fit(rows, MANY)
    assert spread.classes_.tolist() == whole.classes_.tolist()
    assert spread.chosen_ == whole.chosen_
    np.testing.assert_array_equal(spread.frequency_, whole.frequency_)
    for one, other in zip(spread.clusters_, whole.clusters_, strict=True):
        expected = other.regression.arrays()["Psi"]
        assert np.abs(one.regression.arrays()["Psi"] - expected).max() <= 1e-5 * np.abs(expected).max()
        np.testing.assert_array_equal(one.index.sets.toarray(), other.index.sets.toarray())
    expected = whole.decision_function(rows[:50]).toarray()
    np.testing.assert_allclose(with_trees_of(whole, spread).scores(rows[:50]).toarray(), expected, atol=1e-4)
    assert spread.left_out_precision_ == pytest.approx(whole.left_out_precision_, abs=0.02)
    spread.save(tmp_path / "model")
    loaded = load(tmp_path / "model").decision_function(rows[:50]).toarray()
    np.testing.assert_array_equal(loaded, spread.decision_function(rows[:50]).toarray())


def test_sparse_rows_by_conjugate_gradients_give_the_model_of_one_fit_to_the_bit(tmp_path: Path, client: Any) -> None:
    model = RIPML(random_state=0, **LOCAL, **{**CG, "solver": ConjugateGradient(tol=0.01)})
    spread, whole = fit(clone(model), cut(WORDS, MANY), client, tmp_path), clone(model).fit(WORDS, MANY)
    one, other = (some.decision_function(WORDS[:50]).toarray() for some in (spread, whole))
    np.testing.assert_array_equal(one, other)


def test_features_are_not_held_in_the_memory_of_the_client(tmp_path: Path, client: Any) -> None:
    spread = fit(RIPML(random_state=0, **LOCAL), cut(X, MANY), client, tmp_path)
    rows = spread.clusters_[0].rows
    assert rows is not None
    assert isinstance(rows.X.X, np.memmap)
    assert str(tmp_path) in str(rows.X.X.filename)


# ---------------------------------------------------------------------------------------------------------- input


def test_data_frames_bags_futures_and_lists_of_parts_are_learnt_from(tmp_path: Path, client: Any) -> None:
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    features, labels = pandas.DataFrame(X, columns=[f"f{j}" for j in range(12)]), pandas.DataFrame(Y.toarray())
    whole = paper().fit(features, labels)
    spread_features = frames.from_pandas(features, npartitions=3)
    pair = spread_features, frames.from_pandas(labels, npartitions=3)
    same_model(fit(paper(), pair, client, tmp_path / "frames"), whole, features)
    scores = scipy.sparse.vstack(list(decision_function(whole, spread_features, client)))
    assert abs(scores - whole.decision_function(features)).max() <= 1e-6
    with dask.config.set({"dataframe.convert-string": False}):
        names = frames.from_pandas(pandas.Series(NAMES), npartitions=3)
        named = fit(paper(), (spread_features, names), client, tmp_path / "names")
    same_model(named, paper().fit(features, NAMES), features)
    parts = [X[:300], X[300:]], [NAMES[:300], NAMES[300:]]
    bag = pytest.importorskip("dask.bag").from_delayed([dask.delayed(part) for part in parts[1]])
    for number, given in enumerate(
        [
            ([dask.delayed(part) for part in parts[0]], [dask.delayed(part) for part in parts[1]]),
            ([dask.delayed(part) for part in parts[0]], bag),
            client.scatter(list(zip(*parts, strict=True))),
        ]
    ):
        same_model(fit(paper(), given, client, tmp_path / str(number)), paper().fit(X, NAMES))


def test_lists_of_labels_that_dask_made_strings_are_refused(tmp_path: Path, client: Any) -> None:
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    with dask.config.set({"dataframe.convert-string": True}):
        names = frames.from_pandas(pandas.Series(NAMES), npartitions=2)
        features = frames.from_pandas(pandas.DataFrame(X), npartitions=2)
        with pytest.raises(DataError, match="lists of labels as strings; make it inside dask"):
            fit(paper(), (features, names), client, tmp_path)


def test_the_address_of_a_scheduler_stands_for_a_client(tmp_path: Path, client: Any) -> None:
    address = client.scheduler.address
    same_model(fit(paper(), cut(X, Y), address, tmp_path), whole := paper().fit(X, Y))
    scores = scipy.sparse.vstack(list(decision_function(whole, cut(X, Y), address)))
    assert abs(scores - whole.decision_function(X)).max() <= 1e-6


def test_collections_of_dask_are_not_computed_in_this_process() -> None:
    array = pytest.importorskip("dask.array")
    features, labels = array.from_array(X, chunks=(200, -1)), array.from_array(Y.toarray(), chunks=(200, -1))
    for learn in (RIPML().fit, RIPML().partial_fit):
        with pytest.raises(DataError, match=r"X is a collection of Dask.*use ripml\.distributed\.fit to learn"):
            learn(features, labels)
    with pytest.raises(DataError, match="Y is a collection of Dask"):
        RIPML().fit(X, labels)
    with pytest.raises(DataError, match=r"ripml\.distributed\.decision_function to score it"):
        paper().fit(X, Y).predict(features)


@pytest.mark.parametrize(("found", "message"), [("0.0.1", "has ripml 0.0.1, and"), (None, "has no ripml, and")])
def test_another_version_on_a_worker_is_a_clear_error(tmp_path: Path, found: str | None, message: str) -> None:
    class Client:
        @staticmethod
        def get_versions(packages: list[str]) -> dict[str, Any]:
            of_worker = {"packages": {"ripml": found}}
            return {"client": {"packages": {"ripml": "0.1.0"}}, "workers": {"tcp://worker:1": of_worker}}

    with pytest.raises(ParameterError, match=f"the worker tcp://worker:1 {message} this process has ripml 0.1.0"):
        fit(paper(), cut(X, Y), Client(), tmp_path)


@pytest.mark.filterwarnings("ignore:solver=.* stopped after")
def test_dashboards_show_what_tasks_do(tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: set[str] = set()
    each, one = Workers.each, Workers.one

    def noted(self: Workers, function: Any, *arguments: Any, name: str | None = None) -> Any:
        futures = each(self, function, *arguments, name=name)
        shown.update(dask.utils.key_split(future.key) for future in futures)
        return futures

    def noted_one(self: Workers, function: Any, *arguments: Any, name: str | None = None) -> Any:
        future = one(self, function, *arguments, name=name)
        shown.add(dask.utils.key_split(future.key))
        return future

    monkeypatch.setattr(Workers, "each", noted)
    monkeypatch.setattr(Workers, "one", noted_one)
    fit(RIPML(random_state=0, **LINEAR), cut(WORDS, MANY), client, tmp_path / "sums")
    assert shown >= {"rows", "rows to files", "relevance", "features", "features to files", "sums"}
    shown.clear()
    fit(RIPML(random_state=0, **LINEAR, **CG), cut(WORDS, MANY), client, tmp_path / "steps")
    assert shown >= {"relevance", "features by frequency", "moment", "product"}


# ---------------------------------------------------------------------------------------------------------- files


def data_set(X: Any = X) -> Dataset:
    rows = scipy.sparse.csr_array(X.round(3))
    names = [f"label {(j * 7) % 90}" for j in range(90)]
    return Dataset(X=rows, Y=scipy.sparse.csr_array(Y), label_names=names, feature_names=[f"f{j}" for j in range(12)])


@pytest.mark.parametrize("suffix", ["xmc", "svm", "jsonl", "arff"])
@pytest.mark.parametrize("packed", [False, True])
def test_files_cut_at_line_ends_give_the_model_of_the_whole_file(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch, suffix: str, packed: bool
) -> None:
    path = tmp_path / (f"rows.{suffix}" + (".gz" if packed and suffix != "arff" else ""))
    datasets.write(data_set(), path)
    monkeypatch.setattr(partitions_module, "_PIECE_BYTES", 20_000)
    pieces = partitions_module.pieces_of([str(path)])
    assert (len(pieces) > 3) == (path.suffix in (".xmc", ".svm", ".jsonl"))
    whole = DocumentModel.fit(*DocumentModel.read_training(path), paper())
    address = client.scheduler.address
    spread = train_files(paper(), path, None, address, tmp_path / "work")
    assert (spread.feature_names, spread.first_feature) == (whole.feature_names, whole.first_feature)
    asked = whole.features(whole.read(path))
    same_model(spread.model, whole.model, asked)
    spread.save(tmp_path / "model")
    scores = scipy.sparse.vstack(list(decision_function(tmp_path / "model", path, client)))
    assert abs(scores - whole.scores(whole.read(path))).max() <= 1e-5


def test_features_of_svmlight_files_count_from_zero_if_any_piece_says_so(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = X.copy()
    rows[:600, 0] = 0  # feature 0 occurs in the last piece only, and the last feature in the first one only
    rows[100:, 11] = 0
    path = tmp_path / "rows.svm"
    datasets.write(data_set(rows), path)
    text = path.read_text().splitlines()
    zero_based = [" ".join([_lower(word) for word in line.split(" ")]) for line in text]
    path.write_text("\n".join(zero_based))
    monkeypatch.setattr(partitions_module, "_PIECE_BYTES", 20_000)
    whole = DocumentModel.fit(*DocumentModel.read_training(path), paper())
    spread = train_files(paper(), [path], "svmlight", client.scheduler.address, tmp_path / "work")
    assert spread.first_feature == whole.first_feature == 0
    same_model(spread.model, whole.model, whole.features(whole.read(path)))


def _lower(word: str) -> str:
    feature, colon, value = word.partition(":")
    return f"{int(feature) - 1}:{value}" if colon else word


def test_a_piece_in_which_no_line_begins_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("0 1:1 2:2 3:3 4:4\n1 1:1\n")
    middle = partitions_module.Piece(str(path), "svmlight", 3, 9)
    assert middle.read() is None
    last = partitions_module.Piece(str(path), "svmlight", 9, 24).read()
    assert last is not None
    assert last.X.shape[0] == 1


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("3 2 2\n0 0:1\n1 1:1\n", "a.xmc", "headers say N = 3 rows, but the files have 2"),
        ("x y\n0 0:1\n", "a.xmc", "'x y' is not a header"),
        ("0 1:1\n0 1:x\n", "a.svm", r"a\.svm:2"),
        ('{"labels": ["a"], "text": "t"}\n', "a.jsonl", "only texts"),
        ("", "a.jsonl", "the file is empty"),
    ],
)
def test_files_that_cannot_be_learnt_from_are_clear_errors(
    tmp_path: Path, client: Any, text: str, name: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        fit(paper(), tmp_path / name, client, tmp_path / "work")


def test_compressed_files_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm.gz"
    path.write_bytes(gzip.compress(b"0 1:1\n"))
    assert partitions_module.pieces_of([str(path)]) == [partitions_module.Piece(str(path), "svmlight")]


# --------------------------------------------------------------------------------------------------------- scores


def test_scores_come_in_the_order_of_the_partitions(tmp_path: Path, client: Any) -> None:
    whole = paper(n_clusters=2).fit(X, Y)
    whole.save(tmp_path / "model")
    for model in (whole, tmp_path / "model"):
        for parts in (cut(X, Y), [dask.delayed(X[a : a + 70]) for a in range(0, 700, 70)]):
            scores = list(decision_function(model, parts, client))
            assert len(scores) == len(parts)
            assert abs(scipy.sparse.vstack(scores) - whole.decision_function(X)).max() <= 1e-6


# ----------------------------------------------------------------------------------------------------- robustness


class Killing(Workers):
    """Kills a worker, once, when the first of the tasks of a function is done and the others are not."""

    at = ""
    killed = 0
    lock = threading.Lock()  # clusters ask for their neighbours at the same time

    def each(self, function: Any, *arguments: Any, name: str | None = None) -> list[Any]:
        futures = super().each(function, *arguments, name=name)
        with Killing.lock:
            if getattr(function, "func", function).__name__ == Killing.at and not Killing.killed:
                distributed.wait(futures, return_when="FIRST_COMPLETED")
                Killing.killed = next(iter(self._client.run(os.getpid).values()))
                os.kill(Killing.killed, signal.SIGKILL)
        return futures


@pytest.mark.parametrize("at", ["one_pass", "bucket_of", "settled", "nearest"])
def test_a_worker_that_is_killed_changes_nothing(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    from ripml.distributed import fitting as engine

    monkeypatch.setattr(engine, "Workers", Killing)
    monkeypatch.setattr(Killing, "at", at)
    monkeypatch.setattr(Killing, "killed", 0)
    spread = fit(paper(n_clusters=2), cut(X, Y), client, tmp_path)
    assert Killing.killed
    same_model(spread, paper(n_clusters=2).fit(X, Y))


class KillingByName(Workers):
    """Kills a worker, once, when the first task that dashboards show by a name is done."""

    at = ""
    killed = 0
    lock = threading.Lock()

    def each(self, function: Any, *arguments: Any, name: str | None = None) -> list[Any]:
        return self._kill(super().each(function, *arguments, name=name))

    def one(self, function: Any, *arguments: Any, name: str | None = None) -> Any:
        return self._kill([super().one(function, *arguments, name=name)])[0]

    def _kill(self, futures: list[Any]) -> list[Any]:
        with KillingByName.lock:
            if dask.utils.key_split(futures[0].key) == KillingByName.at and not KillingByName.killed:
                distributed.wait(futures, return_when="FIRST_COMPLETED")
                KillingByName.killed = next(iter(self._client.run(os.getpid).values()))
                os.kill(KillingByName.killed, signal.SIGKILL)
        return futures


@pytest.mark.parametrize(
    "at", ["rows", "rows to files", "relevance", "features", "features to files", "moment", "product"]
)
def test_a_worker_that_is_killed_in_any_step_of_another_decoder_changes_nothing(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    from ripml.distributed import fitting as engine

    monkeypatch.setattr(engine, "Workers", KillingByName)
    monkeypatch.setattr(KillingByName, "at", at)
    monkeypatch.setattr(KillingByName, "killed", 0)
    model = RIPML(random_state=0, **LINEAR, **CG)
    with pytest.warns(ConvergenceWarning, match="stopped after 8 steps"):
        spread, whole = fit(clone(model), cut(WORDS, MANY), client, tmp_path), clone(model).fit(WORDS, MANY)
    assert KillingByName.killed
    one, other = (some.decision_function(WORDS[:50]).toarray() for some in (spread, whole))
    np.testing.assert_array_equal(one, other)


def test_nothing_of_the_size_of_the_rows_reaches_the_client(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, labels = generate(4000, n_features=12, n_labels=90, labels_per_row=4.0, n_topics=5)
    sizes = []
    fetched = Workers.fetched

    def measured(self: Workers, futures: Any) -> Any:
        result = fetched(self, futures)
        sizes.append(sum(map(_size, result)) if isinstance(futures, list) else _size(result))
        return result

    from ripml.distributed import fitting as engine

    monkeypatch.setattr(Workers, "fetched", measured)
    monkeypatch.setattr(engine, "BUCKET_BYTES", 1 << 16)
    spread = fit(paper(), cut(rows, labels, (0, 1000, 2000, 3000, 4000)), client, tmp_path)
    bucket = 4 * 5 * 16 * spread.clusters_[0].n_sets / 16  # embeddings of a sixteenth of the label sets
    most_left_out, sums = 500 * (12 + 10) * 8, 8 * 12 * (12 + 80)
    assert max(sizes) <= max(1.5 * bucket, most_left_out, sums) < spread.clusters_[0].index.Z.nbytes / 8
    same_model(spread, paper().fit(rows, labels), rows)


def _size(result: Any) -> int:
    if isinstance(result, (tuple, list)):
        return sum(map(_size, result))
    if scipy.sparse.issparse(result):
        return int(result.data.nbytes + result.indices.nbytes + result.indptr.nbytes)
    return sys.getsizeof(result)


def test_columns_of_phi_are_let_go_of_after_the_fit(tmp_path: Path, client: Any) -> None:
    fit(paper(), cut(X, Y), client, tmp_path)
    from ripml.distributed import label_sets as passing

    held = client.run(lambda: len(passing._embedders))
    assert set(held.values()) == {0}


def test_free_memory_is_kept_only_while_a_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    class Library:
        @staticmethod
        def mallopt(option: int, value: int) -> None:
            calls.append((option, value))

    monkeypatch.setattr("ctypes.CDLL", lambda name: Library)
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    with reused_memory():
        assert not calls
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    with reused_memory():
        assert calls == [(-1, 1 << 28), (-3, 1 << 25)]
    assert calls[2:] == [(-1, 65536), (-3, 1 << 17)]


# --------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"relevance": "auto"}, "got relevance='auto'"),
        ({"solver": "cg"}, "got solver='cg'"),
        ({"solver": "dual"}, "as in RIPML.paper; got solver='dual'"),
        ({"n_dims": 0}, "`n_dims` must be"),
        ({"n_neighbors": 701}, "`n_neighbors` = 701 is more than the 700 rows"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, client: Any, settings: dict[str, Any], message: str) -> None:
    model = paper(**settings)
    with pytest.raises(ParameterError, match=message):
        fit(model, cut(X, Y), client, tmp_path)
    assert not hasattr(model, "classes_")


def test_too_many_features_for_sums_are_refused(tmp_path: Path, client: Any) -> None:
    wide = scipy.sparse.csr_array((np.ones(6), np.arange(6) * 2400, np.arange(7)), shape=(6, 12_001))
    with pytest.raises(ParameterError, match="d = 12,001 features are too many"):
        fit(paper(n_dims=1, n_neighbors=1), cut(wide, NAMES[:6], (0, 3, 6)), client, tmp_path)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(X[:9], Y[:8])], "a partition has 9 rows of X and 8 of Y"),
        ([(X[:9], Y[:9]), (X[:9, :5], Y[:9])], "a partition has 5 features, but others have 12"),
        ([(X[:9], Y[:9]), (scipy.sparse.csr_array(X[:9]), Y[:9])], "X dense where others have it sparse"),
        ([(X[:9], Y[:9]), (X[:9], Y[:9, :7])], "have 7 columns, but those of others have 90"),
        ([(X[:2], Y[:2]), (X[:2], [["a"], ["b"]])], "of a partition are names, but those of others are an indicator"),
        ([(X[:2], [["a"], ["b"]]), (X[:2], [[1], [2]])], "all strings or all integers"),
        ([np.ones(3)], r"must give a pair \(X, Y\); got ndarray"),
    ],
)
def test_partitions_that_do_not_fit_together_are_refused(tmp_path: Path, client: Any, pairs: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit(paper(), [dask.delayed(pair) for pair in pairs], client, tmp_path)


def test_features_in_lists_and_objects_do_not_go_together() -> None:
    heads = [Head((1,), sparse=True, features=names) for names in (None, ["a"])]
    with pytest.raises(DataError, match="in lists, but those of others in objects"):
        merged_heads(heads)
    with pytest.raises(DataError, match="other names in a partition"):
        merged_heads([Head((1,), sparse=False, frame=[name]) for name in "ab"])


@pytest.mark.parametrize("given", [3, [], "-", [X]])
def test_what_is_no_partition_is_refused(tmp_path: Path, client: Any, given: Any) -> None:
    with pytest.raises(ParameterError, match=r"`partitions` must be a pair|workers cannot read standard input"):
        fit(paper(), given, client, tmp_path)


def test_chunks_that_do_not_fit_together_are_refused(tmp_path: Path, client: Any) -> None:
    array = pytest.importorskip("dask.array")
    labels = array.from_array(Y.toarray(), chunks=(350, -1))
    with pytest.raises(DataError, match="X has 4 chunks of rows and Y has 2; rechunk"):
        fit(paper(), (array.from_array(X, chunks=(200, -1)), labels), client, tmp_path)
    with pytest.raises(DataError, match="whole rows in a chunk"):
        fit(paper(), (array.from_array(X, chunks=(350, 6)), labels), client, tmp_path)


def test_no_labels_and_names_of_what_has_names_are_clear_errors(tmp_path: Path, client: Any) -> None:
    with pytest.raises(NoLabelsError, match="none of the 5 rows"):
        fit(paper(), cut(X[:5], np.zeros((5, 3)), (0, 2, 5)), client, tmp_path)
    with pytest.raises(NoLabelsError, match="none of the 0 rows"):
        fit(paper(), cut(X[:0], Y[:0], (0, 0)), client, tmp_path)
    with pytest.raises(DataError, match="the labels given here have names"):
        fit(paper(), cut(X, NAMES), client, tmp_path, label_names=["a"])


def test_too_little_memory_is_said_before_the_work(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workers, "memory", lambda self: (1e5, 1, 2))
    with pytest.raises(MemoryLimitError, match=r"on a worker of 1 threads, which has 0\.0 GB; make smaller partitions"):
        fit(paper(), cut(X, Y), client, tmp_path)


def _dies(pair: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_every_worker_dies_of_is_too_large(tmp_path: Path) -> None:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(MemoryLimitError, match="workers died at the same task again and again"),
    ):
        fit(paper(), [dask.delayed(_dies)((X, Y))], client, tmp_path)


def test_a_missing_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ripml\[dask\]'"):
        fit(paper(), [], None, tmp_path)


def test_a_scheduler_that_does_not_answer_is_a_clear_error(tmp_path: Path) -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "100ms"}),
        pytest.raises(ParameterError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"),
    ):
        train_files(paper(), tmp_path / "rows.svm", None, "tcp://127.0.0.1:9", tmp_path)


def test_the_index_of_a_label_set_is_found_where_half_of_its_fingerprint_is_shared() -> None:
    from ripml.distributed.label_sets import Bucket

    marks = (np.array([3, 5, 5, 5], np.uint64), np.array([9, 1, 2, 2], np.uint64))
    labels = scipy.sparse.csr_array(np.tri(4))
    bucket = Bucket(np.zeros(4, np.int64), marks, np.ones(4, np.int64), labels, np.empty((1, 4, 1), np.float32))
    asked = [np.array([5, 5, 3], np.uint64), np.array([2, 1, 9], np.uint64), np.array([4, 2, 1])]
    assert index_module._places(bucket, slice(0, 4), asked).tolist() == [3, 1, 0]


def test_the_shell_trains_on_the_workers(tmp_path: Path, client: Any) -> None:
    Y_sparse = scipy.sparse.csr_array(Y)
    data = Dataset(
        X=scipy.sparse.csr_array(X), Y=Y_sparse, label_names=[str(j) for j in range(Y_sparse.shape[1])], name="rows"
    )
    datasets.write(data, tmp_path / "train.txt")
    words = ["train", str(tmp_path / "train.txt"), "", "--preset", "paper", "--dims", "16", "--ridge", "1", "--json"]
    for name, more in (("whole", []), ("spread", ["--dask", client.scheduler.address])):
        with pytest.raises(SystemExit) as stop:
            main([*words[:2], str(tmp_path / name), *words[3:], *more])
        assert stop.value.code == 0
    one, other = (load(tmp_path / name) for name in ("whole", "spread"))
    np.testing.assert_allclose(psi(other.clusters_[0]), psi(one.clusters_[0]), atol=1e-5)
    np.testing.assert_array_equal(other.decision_function(X[:20]).toarray(), one.decision_function(X[:20]).toarray())
    assert not (tmp_path / "spread.work").exists()


@pytest.mark.parametrize("preset", ["default", "linear"])
def test_the_shell_trains_any_preset_on_the_workers(tmp_path: Path, client: Any, preset: str) -> None:
    datasets.write(data_set(), tmp_path / "train.txt")
    words = ["train", str(tmp_path / "train.txt"), "", "--preset", preset, "--json"]
    for name, more in (("whole", []), ("spread", ["--dask", client.scheduler.address])):
        with pytest.raises(SystemExit) as stop:
            main([*words[:2], str(tmp_path / name), *words[3:], *more])
        assert stop.value.code == 0
    rows = data_set().X[:50]
    one, other = (load(tmp_path / name).decision_function(rows).toarray() for name in ("whole", "spread"))
    np.testing.assert_allclose(other, one, atol=1e-4)
    assert not (tmp_path / "spread.work").exists()
