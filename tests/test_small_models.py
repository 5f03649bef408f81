"""Small model folders: what they leave out and make again, numbers in few bytes, and models that only answer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import laws
import numpy as np
import pytest
import scipy.sparse
import worlds

import ripml
from ripml import RIPML, Tagger
from ripml.base import model_folder, products
from ripml.base.arrays import LazyArray, narrowed
from ripml.base.errors import ModelFolderError, ParameterError
from ripml.model import state
from ripml.neighbors import Exact
from ripml.regression.kernels import RBF

ZIPF = worlds.zipf()
MODELS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"kernel": "linear"},
    "local": {"kernel": "local"},
    "clusters": {"n_clusters": 3},
    "paper": {"ensemble": "gaussian", "n_dims": 20, "decoder": "votes", "kernel": "linear", "n_learners": 3},
}


def fitted(name: str) -> RIPML:
    return RIPML(**{"normalize": True, "relevance": 0.25, "random_state": 0, **MODELS[name]}).fit(
        scipy.sparse.csr_array(ZIPF.X), ZIPF.Y
    )


def test_rows_that_stay_mapped_are_learnt_and_forgotten_like_those_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((320, 70_000), density=0.004, format="csr", rng=rng, dtype=np.float32)
    Y = rng.random((320, 6)) < 0.4
    Y[:, 0] = True
    model = RIPML(n_dims=8, kernel="rbf", n_neighbors=3, ridge=1.0, random_state=0).fit(X[:300], Y[:300])
    model.save(tmp_path / "model")
    loaded = ripml.load(tmp_path / "model")
    assert not loaded.model_.clusters[0].rows.X.X.data.flags.writeable
    for some in (model, loaded):
        some.partial_fit(X[300:310], Y[300:310]).forget(X[:5], Y[:5]).relabel(X[10:12], Y[10:12], Y[20:22])
    np.testing.assert_array_equal(*(some.decision_function(X[310:]).toarray() for some in (model, loaded)))


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


class TestCompact:
    @pytest.mark.parametrize("name", MODELS)
    def test_a_compact_model_gives_nearly_the_same_answers_and_is_smaller(self, name: str, tmp_path: Path) -> None:
        model = fitted(name)
        model.save(tmp_path / "whole")
        model.save(tmp_path / "compact", compact=True)
        compact = ripml.load(tmp_path / "compact")
        expected = model.decision_function(ZIPF.X_new).toarray()
        found = compact.decision_function(ZIPF.X_new).toarray()
        # Rounded coefficients may bring another neighbour, or lead another way through a tree.
        assert np.mean(np.abs(found - expected).max(axis=1) > 0.01) <= 0.05
        whole, small = (model_folder.load(tmp_path / folder).arrays for folder in ("whole", "compact"))
        only_for_updates = {"summed", "gram", "moment", "added_up", "row_signatures"}
        assert not small.keys() & only_for_updates
        assert not [name for name in small if name.startswith("kept")]
        assert small["Psi"].dtype == np.float16 or small["Psi"].nbytes == whole["Psi"].nbytes
        sizes = [sum(array.nbytes for array in arrays.values()) for arrays in (small, whole)]
        assert sizes[0] < sizes[1] or small.keys() == whole.keys()

    @pytest.mark.parametrize("name", MODELS)
    def test_the_laws_of_models_hold_for_it(self, name: str, tmp_path: Path) -> None:
        fitted(name).save(tmp_path / "compact", compact=True)
        compact = ripml.load(tmp_path / "compact")
        laws.saved_equals_loaded(compact, ZIPF.X_new, tmp_path / "model")
        laws.one_by_one_equals_batch(compact, ZIPF.X_new[:20])
        expected = compact.decision_function(ZIPF.X_new)
        laws.assert_same_scores(pickle.loads(pickle.dumps(compact)).decision_function(ZIPF.X_new), expected)
        sparse = compact.decision_function(scipy.sparse.csr_array(ZIPF.X_new))
        laws.assert_scores_agree(compact, sparse, expected)
        assert compact.explain(ZIPF.X_new[:1])

    @pytest.mark.parametrize("name", ["linear", "paper"])
    def test_it_answers_the_same_with_and_without_compiled_loops(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fitted(name).save(tmp_path / "compact", compact=True)
        compact, X = ripml.load(tmp_path / "compact"), scipy.sparse.csr_array(ZIPF.X_new)
        expected = compact.decision_function(X).toarray()
        monkeypatch.setattr(products, "loops", lambda: None)
        np.testing.assert_allclose(compact.decision_function(X).toarray(), expected, atol=5e-6)

    @pytest.mark.parametrize("name", MODELS)
    def test_it_cannot_learn_or_forget_and_says_why(self, name: str, tmp_path: Path) -> None:
        fitted(name).save(tmp_path / "compact", compact=True)
        compact = ripml.load(tmp_path / "compact")
        X, Y = ZIPF.X[:2], ZIPF.Y[:2]
        changes: list[Callable[[], Any]] = [
            lambda: compact.partial_fit(X, Y),
            lambda: compact.forget(X, Y),
            lambda: compact.relabel(X, Y, ZIPF.Y[2:4]),
            compact.warm_up,
            compact.without_rows,
        ]
        for change in changes:
            with pytest.raises(ParameterError, match="was saved compact, for answers only, so it cannot learn"):
                change()
        assert compact.decision_function(ZIPF.X_new).nnz

    def test_the_slope_of_a_far_field_is_made_again_if_it_is_small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = RIPML(kernel=RBF(n_near=20), random_state=0).fit(scipy.sparse.csr_array(ZIPF.X), ZIPF.Y)
        parameters, arrays = model.to_state(compact=True)
        assert "far_clusters" in arrays
        assert "far_slope" not in arrays
        monkeypatch.setattr(state, "_REMADE_BYTES", 100)
        with pytest.raises(ModelFolderError, match="'far_slope' is missing, and it is too large"):
            RIPML.from_state(parameters, arrays | {"Z": model.clusters_[0].index.Z})
        assert "far_slope" in model.to_state(compact=True)[1]

    def test_the_slope_of_a_fit_follows_to_the_last_bit_and_is_stored_once_rows_were_learnt(
        self, tmp_path: Path
    ) -> None:
        model = RIPML(kernel=RBF(n_near=20), normalize=True, random_state=0)
        model.fit(scipy.sparse.csr_array(ZIPF.X), ZIPF.Y)
        laws.saved_equals_loaded(model, ZIPF.X_new, tmp_path / "model")
        arrays = model_folder.load(tmp_path / "model").arrays
        assert "far_clusters" in arrays
        assert "far_slope" not in arrays
        loaded = ripml.load(tmp_path / "model")
        slopes = [cast(Any, some.clusters_[0].regression).far.slope for some in (loaded, model)]
        assert np.array_equal(*slopes)
        loaded.partial_fit(ZIPF.X_new[:5], ZIPF.Y_new[:5]).save(tmp_path / "model")
        assert "far_slope" in model_folder.load(tmp_path / "model").arrays
        laws.saved_equals_loaded(loaded, ZIPF.X_new, tmp_path / "other")

    def test_a_fit_makes_it_a_whole_model_again(self, tmp_path: Path) -> None:
        fitted("linear").save(tmp_path / "compact", compact=True)
        compact = ripml.load(tmp_path / "compact").fit(ZIPF.X, ZIPF.Y)
        assert compact.partial_fit(ZIPF.X_new[:2], ZIPF.Y_new[:2]).n_rows_ == len(ZIPF.X) + 2

    def test_a_compact_tagger_suggests_and_neither_learns_nor_forgets(self, tmp_path: Path) -> None:
        texts, tags = ["tea with milk", "ice and snow", "hot tea"] * 2, [["drinks"], ["winter"], ["drinks"]] * 2
        tagger = Tagger().fit(texts, tags)
        tagger.save(tmp_path / "compact", compact=True)
        compact = ripml.load(tmp_path / "compact")
        ((tag, score),), ((expected, whole),) = (some.suggest("a cup of tea", n=1) for some in (compact, tagger))
        assert (tag, score) == (expected, pytest.approx(whole, abs=1e-3))
        assert not [name for name in model_folder.load(tmp_path / "compact").arrays if name.startswith("tagger")]
        changes: list[Callable[[], Any]] = [
            lambda: compact.learn(["snow"], [["winter"]]),
            lambda: compact.forget(["hot tea"]),
        ]
        for change in changes:
            with pytest.raises(ParameterError, match="was saved compact"):
                change()

    @pytest.mark.parametrize("hostile", [1, "true", None])
    def test_a_folder_that_does_not_say_whether_it_is_compact_is_refused(self, hostile: Any) -> None:
        parameters, arrays = fitted("linear").to_state(compact=True)
        with pytest.raises(ModelFolderError, match="`compact` must be true or false"):
            RIPML.from_state({**parameters, "compact": hostile}, arrays)
        del arrays["unit"]
        with pytest.raises(ModelFolderError, match="the array 'unit' is missing"):
            RIPML.from_state(parameters, arrays)


class TestWhatOnlyUpdatesNeed:
    @pytest.mark.parametrize("sparse", [True, False])
    def test_it_stays_on_disk_until_the_first_change(self, sparse: bool, tmp_path: Path) -> None:
        X = scipy.sparse.csr_array(ZIPF.X) if sparse else ZIPF.X
        RIPML.linear(random_state=0).fit(X, ZIPF.Y).save(tmp_path / "model")
        (cluster,) = ripml.load(tmp_path / "model").clusters_
        if cluster.rows is not None:
            rows = cluster.rows.X.X
            assert laws.is_memory_mapped(rows.data if sparse else rows)
        else:
            assert laws.is_memory_mapped(cluster.regression.sums.triangle)
            assert laws.is_memory_mapped(cluster.regression.sums.moment)

    def test_sums_stay_on_disk(self, tmp_path: Path) -> None:
        fitted("paper").save(tmp_path / "model")
        (cluster,) = ripml.load(tmp_path / "model").clusters_
        assert cluster.rows is None
        assert laws.is_memory_mapped(cluster.regression.sums.triangle)
        assert laws.is_memory_mapped(cluster.regression.sums.moment)
