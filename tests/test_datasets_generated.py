"""Generated rows have the requested shape, and rows that are close share labels."""

from __future__ import annotations

import numpy as np
import pytest

from ripml import RIPML
from ripml.base.errors import ParameterError
from ripml.baselines import Popularity
from ripml.lab.generated import generate


def test_the_shape_is_the_requested_one() -> None:
    X, Y = generate(3000, n_features=16, n_labels=5000, labels_per_row=12.5, random_state=1)
    assert X.shape == (3000, 16)
    assert X.dtype == np.float32
    assert Y.shape == (3000, 5000)
    assert Y.nnz / 3000 == pytest.approx(12.5, rel=0.02)
    assert np.diff(Y.indptr).min() >= 1
    assert (Y.data == 1).all()
    Y.check_format(full_check=True)


def test_a_few_labels_are_frequent_and_most_are_rare() -> None:
    counts = np.sort(np.bincount(generate(5000, 8, 2000, 10.0)[1].indices, minlength=2000))[::-1]
    assert counts[0] > 20 * max(1, np.median(counts))


def test_the_same_seed_gives_the_same_rows() -> None:
    (X, Y), (X_again, Y_again), (other, _) = (generate(300, 5, 60, 3.0, random_state=seed) for seed in (2, 2, 3))
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(Y.toarray(), Y_again.toarray())
    assert not np.array_equal(X, other)


def test_near_rows_share_labels() -> None:
    X, Y = generate(2200, n_features=50, n_labels=3000, labels_per_row=8.0, n_topics=4)
    model = RIPML.paper(n_dims=50, random_state=0).fit(X[:2000], Y[:2000])
    popular = Popularity(random_state=0).fit(X[:2000], Y[:2000])
    assert model.score(X[2000:], Y[2000:]) > 1.3 * popular.score(X[2000:], Y[2000:]) > 0


@pytest.mark.parametrize("wrong", [{"n_rows": 0}, {"labels_per_row": 0.5}, {"labels_per_row": 90.0, "n_labels": 100}])
def test_impossible_shapes_are_refused(wrong: dict[str, float]) -> None:
    settings = {"n_rows": 10, "n_features": 3, "n_labels": 100, "labels_per_row": 2.0} | wrong
    with pytest.raises(ParameterError, match="must be ≥ 1 and `labels_per_row` from 1 to a quarter of the labels"):
        generate(**settings)  # type: ignore[arg-type]
