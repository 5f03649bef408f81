"""Labels are added, renamed, retired and removed; the columns of the others stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.typing import NDArray

from ripml.base.errors import DataError
from ripml.labels.encoding import label_keys
from ripml.labels.ensembles import Gaussian, PolynomialPhase
from ripml.labels.projection import LabelVectors, Projection
from ripml.labels.vocabulary import Vocabulary
from ripml.regression import PackedSums, Sums


def words(*names: str) -> NDArray[Any]:
    return np.array([*names, None], object)[:-1]


# -------------------------------------------------------------------------------------------------------------- labels


def test_a_label_keeps_its_key_under_another_name() -> None:
    labels = Vocabulary.of(words("a", "b")).renamed("a", "z").added(["c"])
    assert labels.names.tolist() == ["z", "b", "c"]
    np.testing.assert_array_equal(labels.keys, label_keys(words("a", "b", "c")))
    assert (labels.column_of("z"), labels.column_of("c")) == (0, 2)
    assert "a" not in labels


def test_a_name_given_twice_has_two_keys() -> None:
    labels = Vocabulary.of(words("a")).renamed("a", "b").added(["a"]).renamed("a", "c").added(["a"])
    assert len(np.unique(labels.keys)) == 3
    numbers = Vocabulary.of(np.array([7])).renamed(7, 8).added([7])
    assert len(np.unique(numbers.keys)) == 2


def test_labels_are_added_to_an_older_version_as_if_there_were_no_newer_one() -> None:
    base = Vocabulary.of(words("a"))
    one, other = base.added(["b", "c"]), base.added(["c"])
    assert (one.column_of("c"), other.column_of("c")) == (2, 1)
    assert "b" not in other
    assert "c" not in base
    with pytest.raises(DataError, match=r"^the model has no label 'c'\.$"):
        base.column_of("c")


def test_slots_of_dropped_labels_are_free_again() -> None:
    labels = Vocabulary.of(words("a", "b", "c")).kept(np.array([0, 2]))
    assert labels.slots.tolist() == [0, 2]
    assert labels.added(["d", "e"]).slots.tolist() == [0, 2, 1, 3]
    assert labels.column_keys(PolynomialPhase(degree=2), 10).tolist() == [0, 2]
    np.testing.assert_array_equal(labels.column_keys(Gaussian(), 10), label_keys(words("a", "c")))


def test_arrays_give_the_same_labels_back() -> None:
    plain = Vocabulary.of(words("a", "b"))
    assert set(plain.arrays()) == {"names", "name_ends"}
    changed = plain.renamed("a", "z").added(["c", "d"]).with_retired("b", True).kept(np.array([0, 1, 3]))
    for labels in (plain, changed, Vocabulary.of(np.array([4, -2]))):
        again = Vocabulary.from_arrays(labels.arrays())
        assert again.names.tolist() == labels.names.tolist()
        for name in ("keys", "slots", "retired"):
            np.testing.assert_array_equal(getattr(again, name), getattr(labels, name))


@pytest.mark.parametrize(
    "wrong",
    [
        {"names": np.array([1, 1])},
        {"label_keys": np.array([5, 5], np.uint64)},
        {"label_keys": np.array([5, 6])},
        {"label_slots": np.array([0, 0], np.uint64)},
        {"label_slots": np.array([0], np.uint64)},
        {"label_retired": np.array([1, 0])},
        {"label_retired": np.array([True])},
    ],
)
def test_arrays_that_contradict_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^the array '(names|label_keys|label_slots|label_retired)' has "):
        Vocabulary.from_arrays({"names": np.array([1, 2]), **wrong})


def test_labels_are_read_in_every_shape() -> None:
    labels = Vocabulary.of(words("a", "b"))
    for given in ([["b", "new"], "a"], [{"new", "b"}, ("a",)], pd.DataFrame({"new": [1, 0], "b": [1, 0], "a": [0, 1]})):
        Y, grown = labels.encode(given)
        assert grown.names.tolist() == ["a", "b", "new"]
        assert Y.toarray().tolist() == [[0, 1, 1], [1, 0, 0]]
    Y, same = labels.encode(scipy.sparse.csr_array([[1, 0]]))
    assert same is labels
    with pytest.raises(DataError, match=r"^Y has 3 columns, but the model knows 2 labels\.$"):
        labels.encode(np.ones((1, 3)))
    with pytest.raises(DataError, match=r"^label names must be all strings or all integers; got both\.$"):
        labels.encode([[3]])
    numbered, grown = Vocabulary.of(np.arange(2)).encode(np.array([[0, 1, 1]]))
    assert grown.names.tolist() == [0, 1, 2]
    assert numbered.indices.tolist() == [1, 2]


# -------------------------------------------------------------------------------------------------------- label vectors


@pytest.mark.parametrize("n_labels", [1, 511, 512, 513, 1100])
def test_the_value_of_a_label_does_not_depend_on_how_many_there_are(n_labels: int) -> None:
    keys = np.arange(1500, dtype=np.uint64)
    Z = np.random.default_rng(0).normal(size=(7, 24)).astype(np.float32)
    all_of_them = LabelVectors(Projection(Gaussian(), 24, 1, 3), keys)
    few = LabelVectors(Projection(Gaussian(), 24, 1, 3), keys[:n_labels])
    np.testing.assert_array_equal(few.values(Z), all_of_them.values(Z)[:, :n_labels])
    np.testing.assert_allclose(few.values(Z), Z @ few(slice(None)).T, atol=1e-5)


def test_vectors_of_more_labels_are_those_made_at_once() -> None:
    keys = np.arange(40, dtype=np.uint64)
    projection = Projection(Gaussian(), 8, 2, 3)
    base = LabelVectors(projection, keys[:10])
    assert base.table is not None
    one, other = base.extended(keys[:20]), base.extended(keys[[*range(10), *range(30, 40)]])
    more = one.extended(keys[:30])
    np.testing.assert_array_equal(more(slice(None)), projection.columns(keys[:30]))
    np.testing.assert_array_equal(one(slice(None)), projection.columns(keys[:20]))
    np.testing.assert_array_equal(other(slice(10, None)), projection.columns(keys[30:]))
    fresh = LabelVectors(projection, keys[:10]).extended(keys[:12])
    np.testing.assert_array_equal(fresh(np.array([11, 0])), projection.columns(keys[[11, 0]]))


def test_vectors_of_many_labels_are_kept_in_half_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    projection, keys = Projection(Gaussian(), 16, 1, 3), np.arange(40, dtype=np.uint64)
    exact = LabelVectors(projection, keys)(slice(None))
    monkeypatch.setattr("ripml.labels.projection._TABLE_BYTES", 2 * 40 * 16)
    vectors = LabelVectors(projection, keys[:30]).extended(keys)
    assert vectors.kept is not None
    assert vectors.kept.dtype == np.uint16
    assert vectors.table is None
    np.testing.assert_allclose(vectors(slice(None)), exact, rtol=2**-11)
    np.testing.assert_array_equal(
        vectors.extended(np.arange(41, dtype=np.uint64))(np.array([3])), vectors(np.array([3]))
    )
    Z = np.random.default_rng(0).normal(size=(2, 16)).astype(np.float32)
    np.testing.assert_allclose(vectors.values(Z), Z @ exact.T, atol=5e-3)
    monkeypatch.setattr("ripml.labels.projection._TABLE_BYTES", 2 * 40 * 16 - 1)
    assert LabelVectors(projection, keys).kept is None


# ---------------------------------------------------------------------------------------------------- arrays that grow


def test_packed_sums_are_the_same_sums() -> None:
    X, Z = np.random.default_rng(0).normal(size=(9, 4)), np.ones((9, 2))
    sums = Sums.of(X, Z)
    again = PackedSums.of(sums).unpacked()
    np.testing.assert_array_equal(again.gram, sums.gram)
    np.testing.assert_array_equal(again.moment, sums.moment)
    assert again.n_rows == 9
    assert not np.shares_memory(again.moment, sums.moment)
    assert PackedSums.of(sums).triangle.shape == (10,)
