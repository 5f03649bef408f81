"""Fits from blocks of rows: the model of one fit, in bounded memory, and it goes on where it was interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import clone

from ripml import RIPML, load
from ripml.base.errors import DataError, NoLabelsError, ParameterError
from ripml.base.products import column_counts
from ripml.base.workspace import DiskWorkspace, map_file, release
from ripml.decoding.decoders import Blend
from ripml.lab.generated import generate
from ripml.labels.encoding import LabelColumns
from ripml.labels.ensembles import Gaussian
from ripml.labels.projection import Embedder, Projection
from ripml.model import streaming
from ripml.model.cluster import Cluster
from ripml.model.streaming import RowFiles
from ripml.neighbors import Exact
from ripml.neighbors.exact import BlockwiseExact
from ripml.regression import ConjugateGradient, Local
from ripml.regression.regression import LinearRegression

X, Y = generate(700, n_features=12, n_labels=90, labels_per_row=4.0, n_topics=5)
Y.indices = Y.indices.astype(np.int32)
MANY = generate(700, n_features=12, n_labels=3000, labels_per_row=4.0, n_topics=5)[1]
MEMORY = 1 << 20


def cut(X: Any, Y: Any, size: int = 130) -> Iterator[tuple[Any, Any]]:
    for start in range(0, X.shape[0], size):
        yield X[start : start + size], Y[start : start + size]


def paper(**settings: Any) -> RIPML:
    return RIPML.paper(**{"n_dims": 16, "n_neighbors": 3, "random_state": 0, **settings})


def psi(cluster: Cluster) -> NDArray[Any]:
    """The coefficients of a cluster's linear regression, (d, M)."""
    assert isinstance(cluster.regression, LinearRegression)
    return cluster.regression.Psi


def same_model(streamed: RIPML, whole: RIPML, tolerance: float = 1e-5) -> None:
    assert streamed.classes_.tolist() == whole.classes_.tolist()
    assert (streamed.n_rows_, streamed.n_unlabelled_) == (whole.n_rows_, whole.n_unlabelled_)
    for cluster, other in zip(streamed.clusters_, whole.clusters_, strict=True):
        for one, two in ((psi(cluster), psi(other)), (cluster.index.Z, other.index.Z)):
            assert np.abs(one - two).max() <= tolerance * np.abs(two).max()
        np.testing.assert_array_equal(cluster.index.counts, other.index.counts)
        np.testing.assert_array_equal(cluster.index.sets.toarray(), other.index.sets.toarray())
    assert streamed.threshold_ == pytest.approx(whole.threshold_, rel=1e-5)
    difference = streamed.decision_function(X[:100]) - whole.decision_function(X[:100])
    assert abs(difference).max() <= tolerance


@pytest.mark.parametrize("settings", [{"ridge": 1.0}, {}, {"n_clusters": 4}, {"solver": "cg"}, {"n_learners": 1}])
@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_give_the_model_of_one_fit(tmp_path: Path, settings: dict[str, Any], sparse: bool) -> None:
    rows = scipy.sparse.csr_array(X) if sparse else X
    streamed = paper(**settings).fit_blocks(cut(rows, Y), tmp_path / "work", memory=MEMORY)
    same_model(streamed, paper(**settings).fit(rows, Y))


WORDS = scipy.sparse.csr_array(np.hstack([np.where(X > 0.8, X, 0), np.where(X < -0.8, -X, 0)]))
CG: dict[str, Any] = {"solver": ConjugateGradient(tol=0.01), "ensemble": "gaussian", "n_dims": 64}
LOCAL: dict[str, Any] = {"kernel": Local(0.5, 0.3, 20)}
LINEAR: dict[str, Any] = {"kernel": "linear", "decoder": Blend(n_similar=0)}


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (X, {}),
        (X, LOCAL),
        (X, LINEAR),
        (WORDS, LOCAL),
        (WORDS, LINEAR),
        (WORDS, {**LOCAL, **CG}),
        (WORDS, {**LINEAR, **CG, "n_learners": 2}),
        (X, {**LINEAR, "n_clusters": 3}),
        (WORDS, {**LOCAL, "n_clusters": 3}),
        (WORDS, {"solver": "dual", **LINEAR}),
        (X, {**LINEAR, "views": (7, 5)}),
        (X, {**LINEAR, "normalize": True, "decoder": "weighted"}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else type(value).__name__,
)
def test_other_settings_learn_from_blocks_too(tmp_path: Path, rows: Any, settings: dict[str, Any]) -> None:
    model = RIPML(random_state=0, **settings)
    streamed = clone(model).fit_blocks(cut(rows, MANY), tmp_path / "work", memory=MEMORY)
    whole = clone(model).fit(rows, MANY)
    assert streamed.solutions_[0]["solver"] == whole.solutions_[0]["solver"]
    expected = whole.decision_function(rows[:50]).toarray()
    np.testing.assert_allclose(streamed.decision_function(rows[:50]).toarray(), expected, atol=1e-4)
    streamed.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").decision_function(rows[:50]).toarray(),
        streamed.decision_function(rows[:50]).toarray(),
    )


def test_sparse_rows_by_conjugate_gradients_give_the_same_model_to_the_bit(tmp_path: Path) -> None:
    model = RIPML(random_state=0, **LOCAL, **CG)
    streamed = clone(model).fit_blocks(cut(WORDS, MANY), tmp_path / "work", memory=MEMORY)
    whole = clone(model).fit(WORDS, MANY)
    np.testing.assert_array_equal(
        streamed.decision_function(WORDS[:50]).toarray(), whole.decision_function(WORDS[:50]).toarray()
    )


@pytest.mark.parametrize(
    ("settings", "step"), [({**LOCAL, **CG}, "solution"), (LINEAR, "sums"), (LOCAL, "X-changed"), (LOCAL, "searched")]
)
def test_a_fit_that_was_interrupted_does_not_repeat_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], step: str
) -> None:
    model, original = RIPML(random_state=0, **settings), DiskWorkspace.save_checkpoint
    expected = clone(model).fit_blocks(cut(WORDS, MANY), tmp_path / "whole", memory=MEMORY)
    saved: list[str] = []

    def save(self: DiskWorkspace, at: list[Any], arrays: Any) -> None:
        original(self, at, arrays)
        saved.append(at[0])
        if at[0].startswith(step) and len(saved) == saved.index(at[0]) + 1:
            raise Interrupted

    def save_and_note(self: DiskWorkspace, at: list[Any], arrays: Any) -> None:
        original(self, at, arrays)
        saved.append(at[0])

    with monkeypatch.context() as patch:
        patch.setattr(DiskWorkspace, "save_checkpoint", save)
        with pytest.raises(Interrupted):
            clone(model).fit_blocks(cut(WORDS, MANY), tmp_path / "work", memory=MEMORY)
        before = set(saved)
        saved.clear()
        patch.setattr(DiskWorkspace, "save_checkpoint", save_and_note)
        again = clone(model).fit_blocks(cut(WORDS, MANY), tmp_path / "work", memory=MEMORY)
    assert not before & set(saved)
    np.testing.assert_array_equal(
        again.decision_function(WORDS[:50]).toarray(), expected.decision_function(WORDS[:50]).toarray()
    )


def test_names_are_sorted_whatever_block_they_first_appear_in(tmp_path: Path) -> None:
    names = [[f"label {j}" for j in Y.indices[Y.indptr[i] : Y.indptr[i + 1]]] for i in range(len(X))]
    streamed = paper().fit_blocks(cut(X, names), tmp_path / "work")
    same_model(streamed, paper().fit(X, names))


def test_given_names_and_rows_without_labels_are_as_in_one_fit(tmp_path: Path) -> None:
    some = Y.toarray()
    some[::7] = 0
    names = [f"n{j}" for j in range(Y.shape[1])]
    streamed = paper().fit_blocks(cut(X, some), tmp_path / "work", label_names=names)
    assert streamed.n_unlabelled_ == 100
    same_model(streamed, paper().fit(X, some, label_names=names))


def test_a_saved_model_needs_the_folder_no_longer(tmp_path: Path) -> None:
    streamed = paper(n_clusters=3).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY)
    expected = streamed.decision_function(X[:40]).toarray()
    streamed.save(tmp_path / "model")
    paper(n_clusters=3).fit(X, Y).save(tmp_path / "whole")
    for path in sorted((tmp_path / "work").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X[:40]).toarray(), expected)
    sizes = [sorted(file.stat().st_size for file in (tmp_path / name).glob("*.npy")) for name in ("model", "whole")]
    assert sizes[0] == sizes[1]


class Interrupted(Exception):
    pass


def test_an_interrupted_run_goes_on_after_its_last_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def some() -> Iterator[tuple[Any, Any]]:
        for number, block in enumerate(cut(X, Y)):
            if number == 3:
                raise Interrupted
            yield block

    model = paper(ridge=1.0)
    with pytest.raises(Interrupted):
        model.fit_blocks(some(), tmp_path / "work", memory=MEMORY)
    assert not hasattr(model, "classes_")
    assert RowFiles(tmp_path / "work" / "rows", "normalize=True").resumed == 3

    written: list[int] = []
    original = RowFiles._commit

    def commit(self: RowFiles, journal: Any) -> None:
        written.append(journal.blocks)
        original(self, journal)

    monkeypatch.setattr(RowFiles, "_commit", commit)
    same_model(model.fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY), paper(ridge=1.0).fit(X, Y))
    assert written == [4, 5, 6]


def test_an_interrupted_pass_goes_on_after_its_last_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskWorkspace, "rows_per_block", lambda self, row_bytes, most: 100)
    original, calls = streaming.sums_by_cluster, []

    def failing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise Interrupted
        return original(*args)

    monkeypatch.setattr(streaming, "sums_by_cluster", failing)
    with pytest.raises(Interrupted):
        paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY)
    same_model(paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY), paper(ridge=1.0).fit(X, Y))
    assert len(calls) == 4 + 4 + 1  # of seven blocks three were summed before; the fit in memory has one block


def test_what_was_kept_for_another_seed_is_not_used(tmp_path: Path) -> None:
    paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY)
    again = paper(ridge=1.0, random_state=1).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY)
    same_model(again, paper(ridge=1.0, random_state=1).fit(X, Y))


def test_other_blocks_than_before_are_refused(tmp_path: Path) -> None:
    paper().fit_blocks(cut(X, Y), tmp_path / "work")
    with pytest.raises(DataError, match="not those given now; remove the folder"):
        paper().fit_blocks(cut(X[::-1], Y), tmp_path / "work")
    with pytest.raises(DataError, match="6 blocks are here, but only 1 were given"):
        paper().fit_blocks([(X[:130], Y[:130])], tmp_path / "work")
    with pytest.raises(DataError, match="prepared for other settings"):
        paper(normalize=False).fit_blocks(cut(X, Y), tmp_path / "work")


def test_rows_are_written_again_after_a_restart_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ripml.base import workspace

    paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY)
    for module in (workspace, streaming):
        monkeypatch.setattr(module, "boot_id", lambda: "another")
    assert RowFiles(tmp_path / "work" / "rows", "normalize=True").resumed == 0
    same_model(paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work"), paper(ridge=1.0).fit(X, Y))


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="holds other files; choose a new or empty one"):
        paper().fit_blocks(cut(X, Y), tmp_path)
    assert (tmp_path / "rows" / "letter.txt").read_text() == "dear"
    (tmp_path / "rows" / "journal.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read; remove the folder"):
        paper().fit_blocks(cut(X, Y), tmp_path)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([(X[:9], Y[:8])], "a block has 9 rows of X and 8 of Y"),
        ([(X[:9], Y[:9]), (X[:9, :5], Y[:9])], "block 2 has 5 features, but the blocks before have 12"),
        (
            [(X[:9], Y[:9]), (scipy.sparse.csr_array(X[:9]), Y[:9])],
            "block 2 has X dense where the blocks before have it sparse, or the reverse",
        ),
        ([(X[:9], Y[:9]), (X[:9], Y[:9, :7])], "have 7 columns, but earlier blocks have 90"),
        ([(X[:2], Y[:2]), (X[:2], [["a"], ["b"]])], "labels of this block are names, but those of earlier blocks"),
        ([(X[:2], [["a"], ["b"]]), (X[:2], [[1], [2]])], "all strings or all integers"),
    ],
)
def test_blocks_that_do_not_fit_together_are_refused(tmp_path: Path, blocks: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        paper().fit_blocks(blocks, tmp_path / "work")


def test_no_blocks_and_too_little_memory_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(NoLabelsError, match="nothing to learn"):
        paper().fit_blocks([(X[:5], np.zeros((5, 3)))], tmp_path / "a")
    with pytest.raises(NoLabelsError, match="nothing to learn"):
        paper().fit_blocks([], tmp_path / "b")
    with pytest.raises(ParameterError, match="`memory` must be an integer ≥ 1048576; got 10"):
        paper().fit_blocks(cut(X, Y), tmp_path / "c", memory=10)


def test_sparse_blocks_may_grow(tmp_path: Path) -> None:
    rows = scipy.sparse.csr_array(X)
    rows.data[rows.indices > 8] = 0
    rows = scipy.sparse.csr_array(rows.toarray())
    narrow = scipy.sparse.csr_array(rows.toarray()[:, :9])
    wide = scipy.sparse.csr_array(np.hstack([narrow.toarray()[300:], X[300:, 9:]]))
    streamed = paper().fit_blocks([(narrow[:300], Y[:300]), (wide, Y[300:])], tmp_path / "work")
    whole = np.zeros_like(X)
    whole[:300, :9], whole[300:] = narrow.toarray()[:300], wide.toarray()
    same_model(streamed, paper().fit(scipy.sparse.csr_array(whole), Y))


def test_columns_made_anew_are_those_of_the_table() -> None:
    projection, keys = Projection(Gaussian(), 8, 3, seed=5), np.arange(90, dtype=np.uint64)
    expected = projection.embed(Y, keys)
    for table_bytes in (1, 1000, 4000, 1 << 20):
        Z = np.empty_like(expected)
        Embedder(projection, keys, column_counts(Y), table_bytes).fill(Z, Y)
        np.testing.assert_allclose(Z, expected, atol=1e-6)
    for f in range(3):
        np.testing.assert_array_equal(projection.learner(f).embed(Y, keys), expected[:, 8 * f : 8 * f + 8])


def test_a_file_searched_in_blocks_gives_what_exact_search_gives(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rng.integers(0, 3, (500, 4)).astype(np.float32).tofile(tmp_path / "Z.bin")  # many distances tie
    Z, Q = map_file(tmp_path / "Z.bin", np.float32, (500, 4)), rng.standard_normal((9, 4)).astype(np.float32)
    for k in (1, 7, 500):
        ids, distances = Exact().build(Z).query(Q, k)
        found, at = BlockwiseExact(64).build(Z).query(Q, k)
        np.testing.assert_array_equal(found, ids)
        np.testing.assert_array_equal(at, distances)


def test_what_was_written_to_pages_that_are_let_go_is_still_there(tmp_path: Path) -> None:
    array = DiskWorkspace(folder=tmp_path).empty("a", (100_000,), np.int64)
    array[:] = np.arange(100_000)
    release(array[70_000:], array)
    np.testing.assert_array_equal(array, np.arange(100_000))


def test_label_columns_of_tables_keep_their_order() -> None:
    pandas = pytest.importorskip("pandas")
    columns = LabelColumns()
    columns.encode(pandas.DataFrame([[1, 0]], columns=["z", "b"]))
    later = columns.encode(pandas.DataFrame([[1, 1]], columns=["a", "z"]))
    assert columns.names.tolist() == ["z", "b", "a"]
    assert later.toarray().tolist() == [[1, 0, 1]]


@pytest.mark.parametrize(
    "later",
    [
        {"n_clusters": 3},
        {"n_learners": 4},
        {"n_dims": 8},
        {"ensemble": "bernoulli"},
        {"random_state": 5},
        {"relevance": 0.5},
    ],
    ids=str,
)
def test_a_folder_that_was_used_for_other_settings_gives_the_model_of_these(
    tmp_path: Path, later: dict[str, Any]
) -> None:
    before = paper(ridge=1.0, n_learners=3).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY)
    expected = before.decision_function(X[:30]).toarray()
    settings = {"ridge": 1.0, "n_learners": 3, **later}
    same_model(paper(**settings).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY), paper(**settings).fit(X, Y))
    np.testing.assert_array_equal(before.decision_function(X[:30]).toarray(), expected)  # what it maps is still there


def test_other_names_of_the_same_labels_give_their_own_model(tmp_path: Path) -> None:
    for prefix in ("a", "b"):
        names = [f"{prefix}{j}" for j in range(Y.shape[1])]
        streamed = paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY, label_names=names)
        same_model(streamed, paper(ridge=1.0).fit(X, Y, label_names=names))


def test_a_run_that_ended_in_its_first_block_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: RowFiles, name: str, array: Any, at: int) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(RowFiles, "_write", fails)
        with pytest.raises(Interrupted):
            paper().fit_blocks(cut(X, Y), tmp_path / "work")
    same_model(paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work"), paper(ridge=1.0).fit(X, Y))


def test_torn_files_of_an_interrupted_run_are_not_used(tmp_path: Path) -> None:
    paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY)
    for file in (tmp_path / "work").glob("*.npz"):
        file.write_bytes(file.read_bytes()[:40])
    same_model(paper(ridge=1.0).fit_blocks(cut(X, Y), tmp_path / "work", memory=MEMORY), paper(ridge=1.0).fit(X, Y))


def test_tables_with_their_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:40], columns=[f"f{j}" for j in range(12)])
    with pytest.raises(
        DataError, match="a block has other feature names than the first one, or the same in another order"
    ):
        paper().fit_blocks([(frame, Y[:40]), (frame[frame.columns[::-1]], Y[:40])], tmp_path / "work")


def test_what_was_written_to_a_private_mapping_stays(tmp_path: Path) -> None:
    np.ones(5000, np.float32).tofile(tmp_path / "a.bin")
    private = np.memmap(tmp_path / "a.bin", np.float32, "c")
    private[:] = 7
    release(private, private[2000:])
    assert (private == 7).all()


def test_a_file_that_became_too_short_is_not_mapped(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(8))
    with pytest.raises(DataError, match=r"rows\.bin: this file has 8 bytes instead of 12; remove the folder"):
        map_file(path, np.float32, (3,))
