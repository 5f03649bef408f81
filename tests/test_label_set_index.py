"""The index of label sets: what the tests of models do not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ripml import RIPML, load
from ripml.neighbors import Exact


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_a_model_with_clusters_and_short_storage_can_be_saved_after_a_new_label(storage: str, tmp_path: Path) -> None:
    """Where the embedding is Y itself, a new label makes all embeddings again, and these are stored like the first."""
    random = np.random.RandomState(0)
    X, Y = random.rand(60, 8), [[f"label {i % 7}", f"label {i % 3}"] for i in range(60)]
    settings: dict[str, Any] = {"index": Exact(storage=storage), "n_neighbors": 5, "ensemble": "identity"}
    model = RIPML.linear(n_clusters=3, random_state=0, **settings).fit(X, Y).partial_fit(X[:1], [["new"]])
    model.save(tmp_path / "model")
    scores, loaded = model.decision_function(X), load(tmp_path / "model").decision_function(X)
    np.testing.assert_allclose(loaded.toarray(), scores.toarray(), atol=2e-6)
