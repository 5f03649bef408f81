"""CSSP against its formulas written out, and the labels that it draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.baselines import CSSP, OneVsAllRidge

ZIPF = worlds.zipf()


def drawn(Y: Any, m: int, seed: int) -> NDArray[np.int64]:
    chosen: NDArray[np.int64] = CSSP(n_dims=m)._prepare(np.ones((Y.shape[0], 1)), Y, seed)(1.0)["chosen"]
    return chosen


@pytest.mark.parametrize("world", [ZIPF, worlds.zipf(n=40, d=90)], ids=["primal", "dual"])
def test_scores_are_those_of_the_dense_formulas(world: worlds.World) -> None:
    model = CSSP(n_dims=8, ridge=0.5, random_state=0).fit(world.X, world.Y)
    chosen = model.learnt_["chosen"]
    Y = world.Y.toarray().astype(np.float64)
    mean = Y.mean(axis=0)
    X, X_new = (np.hstack([np.ones((len(part), 1)), part]) for part in (world.X, world.X_new))
    weights = np.linalg.inv(X.T @ X + 0.5 * np.eye(X.shape[1])) @ X.T @ Y[:, chosen]
    decoded = (X_new @ weights - mean[chosen]) @ np.linalg.pinv((Y - mean)[:, chosen]) @ (Y - mean)
    np.testing.assert_allclose(model.decision_function(world.X_new).toarray(), mean + decoded, atol=1e-5)


def test_with_all_labels_it_is_one_vs_all_ridge() -> None:
    model = CSSP(n_dims=1000, ridge=2, random_state=0).fit(ZIPF.X, ZIPF.Y)
    expected = OneVsAllRidge(ridge=2, random_state=0).fit(ZIPF.X, ZIPF.Y).decision_function(ZIPF.X_new)
    np.testing.assert_array_equal(model.learnt_["chosen"], np.arange(40))
    np.testing.assert_allclose(model.decision_function(ZIPF.X_new).toarray(), expected.toarray(), atol=1e-5)


def test_a_label_is_drawn_as_often_as_its_leverage_says() -> None:
    Y = worlds.zipf_labels(n=100, n_labels=6)
    centred = Y.toarray() - Y.toarray().mean(axis=0)
    leverage = np.linalg.svd(centred)[2][0] ** 2
    often = np.bincount([drawn(Y, 1, seed)[0] for seed in range(100)], minlength=6) / 100
    assert (np.abs(often - leverage) <= 4 * np.sqrt(leverage / 100) + 1e-9).all()


def test_labels_are_drawn_once_each_by_the_seed() -> None:
    for seed in range(3):
        chosen = drawn(ZIPF.Y, 30, seed)
        assert len(set(chosen.tolist())) == 30
        np.testing.assert_array_equal(chosen, drawn(ZIPF.Y, 30, seed))
    assert len({tuple(drawn(ZIPF.Y, 5, seed)) for seed in range(3)}) > 1


def test_a_label_that_all_rows_or_none_carry_is_predicted_by_its_mean() -> None:
    Y = scipy.sparse.csr_array(np.hstack([np.ones((150, 1)), np.zeros((150, 1)), ZIPF.Y.toarray()]))
    model = CSSP(n_dims=10, ridge=1, random_state=0).fit(ZIPF.X, Y)
    assert not {0, 1} & set(model.learnt_["chosen"].tolist())
    scores = model.decision_function(ZIPF.X_new).toarray()
    np.testing.assert_allclose(scores[:, :2], np.broadcast_to([1.0, 0.0], (150, 2)), atol=1e-9)


def test_labels_that_always_come_together_are_scored_alike() -> None:
    Y = scipy.sparse.hstack([ZIPF.Y, ZIPF.Y], format="csr")
    scores = CSSP(n_dims=15, ridge=1, random_state=0).fit(ZIPF.X, Y).decision_function(ZIPF.X_new).toarray()
    np.testing.assert_allclose(scores[:, :40], scores[:, 40:], atol=1e-5)


def test_dimensions_must_be_a_count() -> None:
    with pytest.raises(ParameterError, match=r"`n_dims` must be an integer ≥ 1; got 0\."):
        CSSP(n_dims=0).fit(ZIPF.X, ZIPF.Y)
