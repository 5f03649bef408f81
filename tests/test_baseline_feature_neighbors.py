"""Neighbours in feature space against a search written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import worlds

from ripml.base.errors import ParameterError
from ripml.baselines import FeatureNeighbors, feature_neighbors

ZIPF = worlds.zipf()


@pytest.mark.parametrize("k", [1, 3, 10, 150])
def test_scores_are_those_of_a_search_row_by_row(k: int) -> None:
    scores = FeatureNeighbors(n_neighbors=k, random_state=0).fit(ZIPF.X, ZIPF.Y).decision_function(ZIPF.X_new)
    Y = ZIPF.Y.toarray()
    for row, found in zip(ZIPF.X_new, scores.toarray(), strict=True):
        cosine = ZIPF.X @ row / np.linalg.norm(ZIPF.X, axis=1) / np.linalg.norm(row)
        nearest = np.argsort(-cosine.astype(np.float32), kind="stable")[:k]
        expected = cosine[nearest] @ Y[nearest] / cosine[nearest].sum()
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_size_of_blocks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FeatureNeighbors(random_state=0).fit(scipy.sparse.csr_array(ZIPF.X), ZIPF.Y)
    expected = model.decision_function(ZIPF.X_new)
    monkeypatch.setattr(feature_neighbors, "_BLOCK_CELLS", 1000)
    np.testing.assert_allclose(model.decision_function(ZIPF.X_new).toarray(), expected.toarray(), atol=1e-9)


def test_of_rows_that_are_alike_the_earlier_ones_vote() -> None:
    X, Y = np.ones((9, 2)), np.eye(9)
    model = FeatureNeighbors(n_neighbors=3, random_state=0).fit(X, Y)
    np.testing.assert_allclose(model.decision_function([[0.3, 0.3]]).toarray()[0], [1 / 3] * 3 + [0] * 6)


def test_a_row_without_features_has_no_scores() -> None:
    model = FeatureNeighbors(random_state=0).fit(ZIPF.X, ZIPF.Y)
    assert model.decision_function(np.zeros((2, 60))).nnz == 0
    assert model.decision_function(scipy.sparse.csr_array((2, 60))).nnz == 0


def test_rows_without_a_feature_in_common_do_not_vote() -> None:
    model = FeatureNeighbors(n_neighbors=3).fit([[1, 0], [0, 1], [-1, 0]], [["a"], ["b"], ["c"]])
    assert model.recommend([[1, 0]]) == [[("a", 1.0)]]


def test_the_length_of_rows_does_not_matter() -> None:
    lengths = np.random.default_rng(0).uniform(0.1, 10, (len(ZIPF.X), 1))
    scores = [
        FeatureNeighbors(random_state=0).fit(X, ZIPF.Y).decision_function(ZIPF.X_new).toarray()
        for X in (ZIPF.X, lengths * ZIPF.X)
    ]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)


def test_neighbors_must_be_a_count() -> None:
    with pytest.raises(ParameterError, match=r"`n_neighbors` must be an integer ≥ 1; got 0\."):
        FeatureNeighbors(n_neighbors=0).fit(ZIPF.X, ZIPF.Y)
