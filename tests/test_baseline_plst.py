"""PLST against the singular value decomposition and the regression written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import worlds
from numpy.typing import NDArray

from ripml.base.errors import ParameterError
from ripml.baselines import PLST

ZIPF = worlds.zipf()


def written_out(world: worlds.World, m: int, alpha: float) -> NDArray[Any]:
    """Scores for the new rows, from the dense decomposition of centred labels."""
    Y = world.Y.toarray().astype(np.float64)
    mean = Y.mean(axis=0)
    V = np.linalg.svd(Y - mean, full_matrices=False)[2][:m].T
    X, X_new = (np.hstack([np.ones((len(part), 1)), part]) for part in (world.X, world.X_new))
    weights = np.linalg.inv(X.T @ X + alpha * np.eye(X.shape[1])) @ X.T @ (Y - mean) @ V
    return np.asarray(mean + X_new @ weights @ V.T)


@pytest.mark.parametrize("world", [ZIPF, worlds.zipf(n=40, d=90)], ids=["primal", "dual"])
@pytest.mark.parametrize("m", [1, 7, 40])
def test_scores_are_those_of_the_dense_formulas(world: worlds.World, m: int) -> None:
    model = PLST(n_dims=m, ridge=0.5, random_state=0).fit(world.X, world.Y)
    np.testing.assert_allclose(model.decision_function(world.X_new).toarray(), written_out(world, m, 0.5), atol=1e-5)


def test_the_embedding_spans_the_leading_singular_vectors() -> None:
    model = PLST(n_dims=5, ridge=1, random_state=0).fit(ZIPF.X, ZIPF.Y)
    centred = ZIPF.Y.toarray() - ZIPF.Y.toarray().mean(axis=0)
    V, expected = model.learnt_["V"], np.linalg.svd(centred)[2][:5].T
    np.testing.assert_allclose(V.T @ V, np.eye(5), atol=1e-10)
    np.testing.assert_allclose(V @ V.T, expected @ expected.T, atol=1e-5)


def test_more_dimensions_than_labels_are_all_labels() -> None:
    some, more = (PLST(n_dims=m, ridge=1, random_state=0).fit(ZIPF.X, ZIPF.Y) for m in (40, 1000))
    assert more.learnt_["V"].shape == (40, 40)
    np.testing.assert_allclose(more.decision_function(ZIPF.X_new).data, some.decision_function(ZIPF.X_new).data)


@pytest.mark.parametrize("n_dims", [0, 2.5, True])
def test_dimensions_must_be_a_count(n_dims: Any) -> None:
    with pytest.raises(ParameterError, match=rf"`n_dims` must be an integer ≥ 1; got {n_dims}\."):
        PLST(n_dims=n_dims).fit(ZIPF.X, ZIPF.Y)
