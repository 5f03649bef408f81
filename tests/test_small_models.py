"""Small model folders: what they leave out and make again, and numbers in few bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import ripml
from ripml import RIPML
from ripml.base import model_folder
from ripml.base.arrays import LazyArray, narrowed
from ripml.base.errors import ModelFolderError
from ripml.model import state
from ripml.neighbors import Exact
from tests import laws, worlds

ZIPF = worlds.zipf()
MODELS = {
    "default": {},
    "linear": {"kernel": "linear"},
    "local": {"kernel": "local"},
    "clusters": {"n_clusters": 3},
    "paper": {"ensemble": "gaussian", "n_dims": 20, "decoder": "votes", "kernel": "linear", "n_learners": 3},
}


def fitted(name: str) -> RIPML:
    return RIPML(random_state=0, **MODELS[name]).fit(scipy.sparse.csr_array(ZIPF.X), ZIPF.Y)


class TestWhatFollowsFromTheRest:
    def test_a_lazy_array_is_made_once_and_only_when_it_is_needed(self) -> None:
        made = []
        array = LazyArray((2, 3), lambda: made.append(0) or np.ones((2, 3)))  # type: ignore[func-returns-value]
        assert (array.shape, made) == ((2, 3), [])
        assert array.get() is array.get()
        assert made == [0]

    @pytest.mark.parametrize("name", MODELS)
    def test_embeddings_of_label_sets_are_made_again_to_the_last_bit(self, name: str, tmp_path: Path) -> None:
        model = fitted(name)
        laws.saved_equals_loaded(model, ZIPF.X_new, tmp_path / "model")
        assert "Z" not in model_folder.load(tmp_path / "model").arrays

    @pytest.mark.parametrize("name", MODELS)
    def test_they_are_made_again_after_rows_came_and_went(self, name: str, tmp_path: Path) -> None:
        model = fitted(name)
        model.partial_fit(ZIPF.X_new[:20], ZIPF.Y_new[:20]).forget(ZIPF.X[:10], ZIPF.Y[:10])
        model.save(tmp_path / "model")
        loaded = ripml.load(tmp_path / "model")
        expected = model.decision_function(ZIPF.X_new).toarray()
        # Rows that were learnt later are compared apart from the others, which may change the last bits of products.
        np.testing.assert_allclose(loaded.decision_function(ZIPF.X_new).toarray(), expected, atol=5e-6)
        assert "Z" not in model_folder.load(tmp_path / "model").arrays

    def test_embeddings_in_another_type_are_stored(self, tmp_path: Path) -> None:
        fitted("default").set_params(index=Exact(storage="int8")).fit(ZIPF.X, ZIPF.Y).save(tmp_path / "model")
        assert model_folder.load(tmp_path / "model").arrays["Z"].dtype == np.int8

    def test_many_embeddings_are_stored(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model = fitted("default")
        monkeypatch.setattr(state, "_REMADE_BYTES", 1000)
        laws.saved_equals_loaded(model, ZIPF.X_new, tmp_path / "model")
        assert model_folder.load(tmp_path / "model").arrays["Z"].dtype == np.float32

    @pytest.mark.parametrize("missing", ["int8", "many"])
    def test_a_folder_without_embeddings_that_are_not_made_again_is_refused(
        self, missing: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = fitted("default")
        if missing == "int8":
            model = RIPML(random_state=0, index=Exact(storage="int8")).fit(ZIPF.X, ZIPF.Y)
        parameters, arrays = model.to_state()
        arrays.pop("Z", None)
        if missing == "many":
            monkeypatch.setattr(state, "_REMADE_BYTES", 1000)
        with pytest.raises(ModelFolderError, match="'Z' is missing, and the embeddings are not among those"):
            RIPML.from_state(parameters, arrays)


class TestWholeNumbers:
    @pytest.mark.parametrize("name", MODELS)
    def test_they_are_stored_in_as_few_bytes_as_hold_them(self, name: str) -> None:
        parameters, arrays = fitted(name).to_state()
        narrow = {"counts", "sets_indices", "sets_indptr", "part_ends", "frequency"}
        narrow |= {"rows_indices", "set_of_row", "row_numbers", "kept_indices", "kept_set_of_row"} & arrays.keys()
        assert {arrays[name].dtype.name for name in narrow} <= {"uint8", "uint16"}
        wide = {name: array.astype(np.int64) if name in narrow else array for name, array in arrays.items()}
        scores = [RIPML.from_state(parameters, some).decision_function(ZIPF.X_new) for some in (arrays, wide)]
        laws.assert_same_scores(*scores)

    def test_the_smallest_type_holds_the_largest_number(self) -> None:
        for largest, name in ((255, "uint8"), (256, "uint16"), (65535, "uint16"), (65536, "uint32"), (2**32, "int64")):
            array = np.array([0, largest])
            assert narrowed(array).dtype.name == name
            assert narrowed(array).tolist() == array.tolist()
        assert narrowed(np.array([-1, 3])).dtype == np.int64
        assert narrowed(np.empty(0, np.int64)).dtype == np.uint8
