"""Several clusters probed, embeddings in few bits, approximate indexes: what they change in a model, and what not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ripml import RIPML, load, metrics
from ripml.base.errors import ModelFolderError, ParameterError
from ripml.lab.generated import generate
from ripml.neighbors import HNSW, IVF, LSH, Exact, Index

X, Y = generate(3300, n_features=16, n_labels=300, labels_per_row=5.0, n_topics=12)
X, Y, X_NEW, Y_NEW = X[:3000], Y[:3000], X[3000:], Y[3000:]


def paper(**settings: Any) -> RIPML:
    return RIPML.paper(**{"n_dims": 40, "ridge": 1.0, "random_state": 0, **settings})


def precision(model: RIPML) -> float:
    return metrics.precision_at_k(Y_NEW, model.decision_function(X_NEW), k=1)


def test_probing_all_clusters_with_one_regression_is_searching_all_rows() -> None:
    """With one cluster's Psi everywhere, neighbours of all clusters are those of the whole."""
    whole = paper().fit(X, Y)
    cut = paper(n_clusters=5, n_probe=5).fit(X, Y)
    regression = whole.clusters_[0].regression
    clusters = tuple(replace(cluster, regression=regression) for cluster in cut.clusters_)
    cut.model_ = replace(cut.model_, clusters=clusters)
    np.testing.assert_allclose(
        cut.decision_function(X_NEW).toarray(), whole.decision_function(X_NEW).toarray(), atol=1e-5
    )


def test_probing_one_cluster_is_not_probing_and_more_than_there_are_is_all() -> None:
    model = paper(n_clusters=4).fit(X, Y)
    one = model.decision_function(X_NEW).toarray()
    four = model.set_params(n_probe=4).decision_function(X_NEW).toarray()
    np.testing.assert_array_equal(model.set_params(n_probe=9).decision_function(X_NEW).toarray(), four)
    np.testing.assert_array_equal(model.set_params(n_probe=1).decision_function(X_NEW).toarray(), one)
    assert not np.array_equal(one, four)


def test_scores_of_probed_clusters_are_shares_of_votes() -> None:
    scores = paper(n_clusters=6, n_probe=3, n_neighbors=4).fit(X, Y).decision_function(X_NEW)
    assert scores.data.min() > 0
    assert scores.data.max() <= 1 + 1e-12
    rows = paper(n_clusters=6, n_probe=3, n_neighbors=4).fit(X, Y)
    alone = [rows.decision_function(X_NEW[i : i + 1]).toarray()[0] for i in range(20)]
    np.testing.assert_allclose(np.array(alone), scores[:20].toarray(), atol=1e-6)


def test_a_silent_row_stays_silent_when_clusters_are_probed() -> None:
    scores = paper(n_clusters=4, n_probe=2).fit(X, Y).decision_function(np.vstack([X_NEW[:2], np.zeros((1, 16))]))
    assert np.diff(scores.indptr)[2] == 0
    assert (np.diff(scores.indptr)[:2] > 0).all()


def test_probing_is_for_votes() -> None:
    with pytest.raises(ParameterError, match="`n_probe` > 1 is for decoder='votes'; got n_probe=2"):
        RIPML(n_clusters=3, n_probe=2).fit(X, Y)


@pytest.mark.parametrize("storage", ["float16", "int8"])
@pytest.mark.parametrize("settings", [{}, {"n_clusters": 4}, {"n_clusters": 4, "n_probe": 2}])
def test_few_bits_are_kept_in_memory_and_on_disk_and_hardly_change_precision(
    storage: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    plain = paper(**settings).fit(X, Y)
    short = paper(index=Exact(storage=storage), **settings).fit(X, Y)
    assert {cluster.index.Z.dtype.name for cluster in short.clusters_} == {storage}
    assert abs(precision(short) - precision(plain)) <= 0.03
    short.save(tmp_path / "short")
    size = next((tmp_path / "short").glob("Z-*.npy")).stat().st_size
    full = sum(cluster.index.Z.nbytes for cluster in plain.clusters_)
    assert size - 128 == full * {"float16": 0.5, "int8": 0.25}[storage]
    np.testing.assert_array_equal(
        load(tmp_path / "short").decision_function(X_NEW).toarray(), short.decision_function(X_NEW).toarray()
    )


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_few_bits_work_with_other_decoders(storage: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"kernel": "linear", "n_dims": 64, "ensemble": "gaussian", "decoder": "weighted"}
    plain = RIPML(random_state=0, ridge=1.0, relevance=0.0, **settings).fit(X, Y)
    short = RIPML(random_state=0, ridge=1.0, relevance=0.0, index=Exact(storage=storage), **settings).fit(X, Y)
    assert abs(precision(short) - precision(plain)) <= 0.03
    short.save(tmp_path / "m")
    np.testing.assert_array_equal(
        load(tmp_path / "m").decision_function(X_NEW).toarray(), short.decision_function(X_NEW).toarray()
    )


INDEXES: list[Index] = [LSH(), IVF(), HNSW(), IVF(storage="float16")]


@pytest.mark.parametrize("index", INDEXES, ids=repr)
@pytest.mark.parametrize("clusters", [1, 3])
def test_a_model_with_an_approximate_index_is_as_precise_and_comes_back_from_disk(
    index: Index, clusters: int, tmp_path: Path
) -> None:
    if not isinstance(index, LSH):
        pytest.importorskip("faiss")
    # Two learners: probing hundreds of buckets for each row left out is what takes the time.
    model = paper(index=index, n_clusters=clusters, n_learners=2).fit(X, Y)
    scores = model.decision_function(X_NEW)
    exact = precision(paper(n_clusters=clusters, n_learners=2).fit(X, Y))
    assert metrics.precision_at_k(Y_NEW, scores, k=1) >= exact - 0.05
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.decision_function(X_NEW).toarray(), scores.toarray())
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(load(tmp_path / "again").decision_function(X_NEW).toarray(), scores.toarray())


def test_index_arrays_that_do_not_fit_are_refused_when_loading() -> None:
    pytest.importorskip("faiss")
    parameters, arrays = paper(index=HNSW(), n_clusters=1).fit(X, Y).to_state()
    names = [name for name in arrays if name.startswith("index_")]
    assert names
    for name in names:
        broken = {**arrays, name: arrays[name].ravel()[:-1]}
        with pytest.raises(ModelFolderError, match="do not fit together"):
            RIPML.from_state(parameters, broken)


def test_embeddings_of_another_type_than_the_index_says_are_refused() -> None:
    model = paper().fit(X, Y)
    parameters, arrays = model.to_state()
    with pytest.raises(ModelFolderError, match="do not fit together"):
        RIPML.from_state(parameters, {**arrays, "Z": model.clusters_[0].index.Z.astype(np.float16)})
    with pytest.raises(ModelFolderError, match="do not fit together"):
        RIPML.from_state(parameters, {**arrays, "scale": np.array([np.inf])})


def test_models_saved_with_learners_side_by_side_still_load() -> None:
    model = paper(n_clusters=2).fit(X, Y)
    parameters, arrays = model.to_state()
    Z = np.concatenate([cluster.index.Z for cluster in model.clusters_], axis=1)
    n_learners, u, m = Z.shape
    old = {**arrays, "Z": np.ascontiguousarray(Z.transpose(1, 0, 2)).reshape(u, n_learners * m)}
    np.testing.assert_array_equal(
        RIPML.from_state(parameters, old).decision_function(X_NEW).toarray(),
        model.decision_function(X_NEW).toarray(),
    )
