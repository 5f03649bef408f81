"""The partition: every cluster has rows, every row the nearest centre, the same for any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ripml.model import clustering as clusters
from ripml.model.clustering import assign, partition

KINDS: list[Any] = [np.asarray, scipy.sparse.csr_array, lambda X: X.astype(np.float32)]


def naive_assign(X: NDArray[Any], centres: NDArray[Any]) -> NDArray[Any]:
    return np.array([int(np.argmin([np.square(x - c).sum() for c in centres])) for x in X.astype(np.float64)])


@pytest.mark.parametrize("kind", KINDS, ids=["dense", "sparse", "float32"])
class TestPartition:
    def test_separable_clusters_are_found(self, kind: Any) -> None:
        world = worlds.separable_clusters(n_clusters=4)
        centres, cluster = partition(kind(world.X), 4, seed=3)
        truth = world.Y.toarray().argmax(axis=1)
        assert centres.shape == (4, world.X.shape[1])
        assert len({(int(found), int(true)) for found, true in zip(cluster, truth, strict=True)}) == 4

    @pytest.mark.parametrize("n_clusters", [1, 2, 7, 60])
    def test_no_cluster_is_empty_and_every_row_is_with_its_nearest_centre(self, kind: Any, n_clusters: int) -> None:
        X = np.random.default_rng(0).standard_normal((60, 5))
        centres, cluster = partition(kind(X), n_clusters, seed=1)
        assert 1 <= len(centres) <= n_clusters
        assert np.unique(cluster).tolist() == list(range(len(centres)))
        if n_clusters > 1:
            np.testing.assert_array_equal(cluster, naive_assign(X, centres))

    def test_fewer_distinct_rows_than_clusters_give_fewer_clusters(self, kind: Any) -> None:
        X = np.repeat(np.eye(3, 4), 6, axis=0)
        centres, cluster = partition(kind(X), 8, seed=0)
        assert len(centres) == 3
        assert len({(int(found), row // 6) for row, found in enumerate(cluster)}) == 3

    def test_rows_that_are_all_the_same_are_one_cluster(self, kind: Any) -> None:
        centres, cluster = partition(kind(np.ones((10, 2))), 3, seed=0)
        np.testing.assert_allclose(centres, np.ones((1, 2)))
        assert cluster.tolist() == [0] * 10

    def test_one_cluster_holds_everything(self, kind: Any) -> None:
        centres, cluster = partition(kind(np.random.default_rng(0).random((9, 3))), 1, seed=0)
        assert centres.shape == (1, 3)
        assert cluster.tolist() == [0] * 9

    def test_threads_and_repetition_do_not_matter_but_the_seed_does(self, kind: Any) -> None:
        X = kind(np.random.default_rng(0).standard_normal((9000, 6)))
        one = partition(X, 9, seed=5, n_jobs=1)
        for n_jobs in (1, 2, 3):
            again = partition(X, 9, seed=5, n_jobs=n_jobs)
            np.testing.assert_array_equal(again[0], one[0])
            np.testing.assert_array_equal(again[1], one[1])
        assert not np.array_equal(partition(X, 9, seed=6)[0], one[0])

    def test_a_sample_is_enough_to_find_the_centres(self, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clusters, "_SAMPLE", 30)
        world = worlds.separable_clusters(n_clusters=3, rows=50)
        centres, cluster = partition(kind(world.X), 3, seed=2)
        assert len(centres) == 3
        assert len(cluster) == 150
        np.testing.assert_array_equal(cluster, naive_assign(world.X, centres))

    def test_rows_go_to_the_nearest_centre(self, kind: Any) -> None:
        rng = np.random.default_rng(0)
        X, centres = rng.standard_normal((5000, 4)), rng.standard_normal((11, 4))
        found = assign(kind(X), centres)
        np.testing.assert_array_equal(found, naive_assign(X, centres))
        for n_jobs in (1, 2, 3):
            np.testing.assert_array_equal(assign(kind(X), centres, n_jobs), found)

    def test_ties_go_to_the_lower_number(self, kind: Any) -> None:
        assert assign(kind(np.array([[0.0, 0.0], [1.0, 1.0]])), np.array([[1.0, 0], [0, 1.0], [-1.0, 0]])).tolist() == [
            0,
            0,
        ]


def test_sparse_features_with_wide_indices_are_clustered() -> None:
    X = scipy.sparse.csr_array(worlds.separable_clusters().X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    assert len(partition(X, 3, seed=0)[0]) == 3


def test_any_seed_is_accepted() -> None:
    for seed in (0, 2**32, 2**62):
        assert len(partition(worlds.separable_clusters().X, 3, seed)[0]) == 3


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_the_threads_of_the_libraries_below_do_not_matter(kind: Any) -> None:
    X = kind(np.random.default_rng(0).standard_normal((6000, 6)))
    centres = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads):
            centres.append(partition(X, 9, seed=5)[0])
    np.testing.assert_array_equal(centres[1], centres[0])
    np.testing.assert_array_equal(centres[2], centres[0])
