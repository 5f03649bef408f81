"""One-vs-all models against scikit-learn, label by label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import worlds
from sklearn.linear_model import LogisticRegression, Ridge

from ripml.base.errors import MemoryLimitError, ParameterError
from ripml.baselines import OneVsAllLogistic, OneVsAllRidge, one_vs_all

ZIPF = worlds.zipf()
SMALL = worlds.zipf(n=80, d=20, n_labels=10)


@pytest.mark.parametrize("world", [ZIPF, worlds.zipf(n=40, d=90)], ids=["primal", "dual"])
def test_ridge_equals_that_of_scikit_learn(world: worlds.World) -> None:
    X, X_new = (np.hstack([np.ones((len(part), 1)), part]) for part in (world.X, world.X_new))
    expected = Ridge(alpha=0.7, fit_intercept=False).fit(X, world.Y.toarray()).predict(X_new)
    model = OneVsAllRidge(ridge=0.7, random_state=0).fit(world.X, world.Y)
    np.testing.assert_allclose(model.decision_function(world.X_new).toarray(), expected, atol=1e-6)


def test_logistic_equals_that_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_vs_all, "_TOLERANCE", 1e-6)
    scores = OneVsAllLogistic(ridge=0.5, random_state=0).fit(SMALL.X, SMALL.Y).decision_function(SMALL.X_new).toarray()
    Y = SMALL.Y.toarray()
    for label in np.flatnonzero(Y.any(axis=0) & ~Y.all(axis=0)):
        model = LogisticRegression(C=2, tol=1e-8, max_iter=10_000).fit(SMALL.X, Y[:, label])
        np.testing.assert_allclose(scores[:, label], model.predict_proba(SMALL.X_new)[:, 1], atol=1e-4)


def test_logistic_scores_are_the_probabilities_of_a_planted_world() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3))
    weights = np.array([[1.0, 0.0], [0.0, -1.0], [2.0, 0.5]])
    chance = 1 / (1 + np.exp(-(X @ weights)))
    Y = np.hstack([rng.random(chance.shape) < chance, np.ones((4000, 1))])  # the last so that no row is empty
    scores = OneVsAllLogistic(ridge=1, random_state=0).fit(X, Y).decision_function(X).toarray()
    assert np.abs(scores[:, :2] - chance).max() < 0.1


def test_a_label_that_all_rows_or_none_carry_has_its_smoothed_share() -> None:
    Y = scipy.sparse.csr_array(np.hstack([np.ones((80, 1)), np.zeros((80, 1)), SMALL.Y.toarray()]))
    scores = OneVsAllLogistic(ridge=1, random_state=0).fit(SMALL.X, Y).decision_function(SMALL.X_new).toarray()
    np.testing.assert_allclose(scores[:, :2], np.broadcast_to([80.5 / 81, 0.5 / 81], (80, 2)))


def test_heavy_regularisation_leaves_the_shares_of_labels() -> None:
    model = OneVsAllLogistic(ridge=1e8, random_state=0).fit(SMALL.X, SMALL.Y)
    shares = SMALL.Y.toarray().mean(axis=0)
    np.testing.assert_allclose(model.decision_function(SMALL.X_new).toarray()[0], shares, atol=0.01)


def test_logistic_regression_needs_a_ridge_above_zero() -> None:
    with pytest.raises(ParameterError, match=r"`ridge` must be 'auto' or a finite number > 0 .*; got 0\."):
        OneVsAllLogistic(ridge=0).fit(ZIPF.X, ZIPF.Y)


@pytest.mark.parametrize("method", [OneVsAllRidge, OneVsAllLogistic])
def test_weights_that_do_not_fit_are_refused_before_they_are_made(method: Any) -> None:
    Y = scipy.sparse.csr_array((np.ones(6), np.arange(6), np.arange(7)), shape=(6, 1_000_000))
    with pytest.raises(MemoryLimitError, match=r"the weights of all labels would be a dense array of 301 × 1,000,000"):
        method(random_state=0).fit(np.ones((6, 300)), Y)
