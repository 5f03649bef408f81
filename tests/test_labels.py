"""Y in every shape a user has it, its names and keys, and the distinct label sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st

from ripml.base.errors import DataError
from ripml.labels.encoding import (
    align_columns,
    check_names,
    encode_labels,
    label_keys,
    names_from_arrays,
    names_to_arrays,
)
from ripml.labels.label_sets import distinct_sets

DENSE = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])


def names(*values: str) -> Any:
    """An array of names as the library keeps them."""
    return np.array([*values, None], object)[:-1]


# ------------------------------------------------------------------------------------------------------ indicators


@pytest.mark.parametrize(
    "Y",
    [
        DENSE,
        DENSE.astype(bool),
        DENSE.astype(np.int8),
        DENSE.astype(np.uint64),
        DENSE.astype(float),
        DENSE.astype(np.float32),
        DENSE.astype(object),
        np.asfortranarray(DENSE),
        np.asmatrix(DENSE),
        scipy.sparse.csr_array(DENSE),
        scipy.sparse.csr_matrix(DENSE),
        scipy.sparse.csr_array(DENSE.astype(bool)),
        scipy.sparse.csc_array(DENSE),
        scipy.sparse.coo_array(DENSE),
        scipy.sparse.lil_array(DENSE),
        scipy.sparse.csr_array((np.array([1, 1, 0, 1]), np.array([2, 0, 1, 1]), np.array([0, 3, 3, 4]))),
        pandas.DataFrame(DENSE),
        pandas.DataFrame(DENSE.astype(bool)),
    ],
    ids=lambda Y: f"{type(Y).__name__} of {getattr(Y, 'dtype', 'columns')}",
)
def test_an_indicator_is_read_whatever_it_is_made_of(Y: Any) -> None:
    encoded, found = encode_labels(Y)
    assert isinstance(encoded, scipy.sparse.csr_array)
    assert encoded.dtype == np.float32
    assert encoded.has_canonical_format
    np.testing.assert_array_equal(encoded.toarray(), DENSE)
    assert encoded.nnz == 3
    np.testing.assert_array_equal(found, [0, 1, 2])
    assert found.dtype == np.int64


def test_the_callers_matrix_stays_as_it_was() -> None:
    Y = scipy.sparse.csr_array((np.array([1.0, 1, 0, 1]), np.array([2, 0, 1, 1]), np.array([0, 3, 3, 4])))
    encode_labels(Y)
    assert Y.indices.tolist() == [2, 0, 1, 1]
    assert Y.nnz == 4


def test_the_columns_of_a_data_frame_are_the_names() -> None:
    encoded, found = encode_labels(pandas.DataFrame(DENSE, columns=["tea", "茶", ""]))
    np.testing.assert_array_equal(encoded.toarray(), DENSE)
    assert found.tolist() == ["tea", "茶", ""]
    assert found.dtype == object
    _, found = encode_labels(pandas.DataFrame(DENSE, columns=[30, -4, 7]))
    assert found.tolist() == [30, -4, 7]
    assert found.dtype == np.int64


def test_a_data_frame_is_matched_by_name_with_labels_that_are_known() -> None:
    Y = pandas.DataFrame(DENSE, columns=["b", "new", "a"])
    encoded, found = encode_labels(Y, known=names("a", "b"))
    assert found.tolist() == ["a", "b", "new"]
    np.testing.assert_array_equal(encoded.toarray(), DENSE[:, [2, 0, 1]])
    encoded, found = encode_labels(Y[["b"]], known=names("a", "b"))
    assert found.tolist() == ["a", "b"]
    np.testing.assert_array_equal(encoded.toarray(), [[0, 1], [0, 0], [0, 0]])


@pytest.mark.parametrize("Y", [DENSE, scipy.sparse.csr_array(DENSE)], ids=["dense", "sparse"])
def test_an_indicator_without_names_takes_the_known_ones(Y: Any) -> None:
    _, found = encode_labels(Y, known=names("a", "b", "c"))
    assert found.tolist() == ["a", "b", "c"]
    with pytest.raises(DataError, match=r"^Y has 3 columns, but the model knows 2 labels\.$"):
        encode_labels(Y, known=names("a", "b"))


@pytest.mark.parametrize(
    ("wrong", "value"),
    [(DENSE * 2, "2"), (-DENSE, "-1"), (DENSE / 2, "0.5"), (DENSE * np.nan, "nan"), (DENSE.astype(float) * 1e30, "1e")],
    ids=["two", "negative", "half", "NaN", "huge"],
)
def test_an_indicator_with_another_value_than_0_and_1_is_refused(wrong: Any, value: str) -> None:
    sentence = f"a two-dimensional Y must be an indicator of 0s and 1s; got the value {value}"
    for Y in (wrong, scipy.sparse.csr_array(wrong), pandas.DataFrame(wrong)):
        with pytest.raises(DataError, match=sentence):
            encode_labels(Y)


def test_cells_stored_twice_add_up_and_are_refused() -> None:
    Y = scipy.sparse.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    with pytest.raises(DataError, match=r"got the value 2\."):
        encode_labels(Y)


def test_a_table_of_words_is_refused() -> None:
    with pytest.raises(DataError, match="must be an indicator of 0s and 1s; got values that are not numbers"):
        encode_labels(np.array([["a", "b"], ["c", "d"]]))


def test_columns_of_one_name_or_of_mixed_kinds_are_refused() -> None:
    with pytest.raises(DataError, match="the label name 'a' stands for more than one column"):
        encode_labels(pandas.DataFrame(DENSE, columns=["a", "b", "a"]))
    with pytest.raises(DataError, match="two columns of Y have the same name"):
        encode_labels(pandas.DataFrame(DENSE, columns=[1, 2, 1]))
    with pytest.raises(DataError, match="label names must be all strings or all integers; got both"):
        encode_labels(pandas.DataFrame(DENSE, columns=["a", "b", 1]))
    with pytest.raises(DataError, match="label names must be all strings or all integers; got both"):
        encode_labels(pandas.DataFrame(DENSE), known=names("a"))


# ------------------------------------------------------------------------------------------------------ label names


@pytest.mark.parametrize(
    "Y",
    [
        [["b", "a"], [], ["c"]],
        [("b", "a"), (), ("c",)],
        [{"b", "a"}, set(), frozenset("c")],
        (["b", "a", "b"], [], "c"),
        [np.array(["b", "a"]), np.array([]), ["c"]],
        [iter(["b", "a"]), iter(()), iter(["c"])],
        np.array([["b", "a"], [], ["c"]], dtype=object),
        pandas.Series([["b", "a"], [], ["c"]]),
        [[np.str_("b"), np.str_("a")], [], [np.str_("c")]],
    ],
    ids=["lists", "tuples", "sets", "mixed", "arrays", "iterators", "object array", "series", "NumPy strings"],
)
def test_names_are_read_from_every_kind_of_collection(Y: Any) -> None:
    encoded, found = encode_labels(Y)
    assert isinstance(encoded, scipy.sparse.csr_array)
    assert encoded.dtype == np.float32
    np.testing.assert_array_equal(encoded.toarray(), [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert found.tolist() == ["a", "b", "c"]
    assert [type(name) for name in found] == [str] * 3


@pytest.mark.parametrize(
    "Y",
    [
        ["b", "a", "b"],
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], dtype=object),
        pandas.Series(["b", "a", "b"]),
        pandas.Series(["b", "a", "b"], dtype="category"),
    ],
    ids=["list", "array", "object array", "series", "categories"],
)
def test_one_name_a_row_may_stand_alone(Y: Any) -> None:
    encoded, found = encode_labels(Y)
    np.testing.assert_array_equal(encoded.toarray(), [[0, 1], [1, 0], [0, 1]])
    assert found.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "Y",
    [
        [5, -3, 5],
        np.array([5, -3, 5]),
        np.array([5, -3, 5], np.int8),
        np.array([5.0, -3.0, 5.0]),
        [[5], [-3], [5]],
        [[np.int16(5)], [np.int64(-3)], [5.0]],
        pandas.Series([5, -3, 5]),
    ],
    ids=["list", "array", "int8", "floats", "lists", "NumPy integers", "series"],
)
def test_names_may_be_integers(Y: Any) -> None:
    encoded, found = encode_labels(Y)
    np.testing.assert_array_equal(encoded.toarray(), [[0, 1], [1, 0], [0, 1]])
    assert found.tolist() == [-3, 5]
    assert found.dtype == np.int64


def test_names_may_be_anything_that_can_be_written() -> None:
    odd = ["", " ", "é", "e\u0301", "海", "👩‍👩‍👧", "\ud800", "a\0b", "a\nb"]
    encoded, found = encode_labels([odd])
    assert found.tolist() == sorted(odd)
    assert encoded.nnz == len(odd)


def test_integers_of_64_bits_are_names() -> None:
    _, found = encode_labels([[2**63 - 1, -(2**63)]])
    assert found.tolist() == [-(2**63), 2**63 - 1]


def test_known_names_come_first_and_new_ones_follow_sorted() -> None:
    encoded, found = encode_labels([["z", "c"], ["b"], ["a", "c"]], known=names("c", "q", "a"))
    assert found.tolist() == ["c", "q", "a", "b", "z"]
    np.testing.assert_array_equal(encoded.toarray(), [[1, 0, 0, 0, 1], [0, 0, 0, 1, 0], [1, 0, 1, 0, 0]])
    assert encoded.has_sorted_indices
    encoded, found = encode_labels([[], []], known=names("c"))
    assert encoded.shape == (2, 1)
    assert found.tolist() == ["c"]
    _, found = encode_labels([[7, 1]], known=np.array([4, 7]))
    assert found.tolist() == [4, 7, 1]


def test_no_rows_and_no_names_are_an_empty_indicator() -> None:
    cases: list[tuple[Any, tuple[int, int]]] = [([], (0, 0)), ([[], []], (2, 0))]
    for Y, shape in cases:
        encoded, found = encode_labels(Y)
        assert encoded.shape == shape
        assert len(found) == 0


@pytest.mark.parametrize(
    ("Y", "sentence"),
    [
        ([["a"], [1]], "label names must be all strings or all integers; got both"),
        (["a", 1], "label names must be all strings or all integers; got both"),
        ([["a"], [None]], "row 1 has the label None; a label name is a string or a 64-bit integer"),
        ([["a"], None], "the labels of row 1 must be a name or a collection of names; got None"),
        ([["a"], [float("nan")]], "row 1 has the label nan; a label name is"),
        ([float("nan")], "row 0 has the label nan; a label name is"),
        (np.array([1.0, np.nan]), "row 1 has the label nan; a label name is"),
        ([[float("inf")]], "row 0 has the label inf; a label name is"),
        ([[0.5]], r"row 0 has the label 0\.5; a label name is"),
        ([[True]], "row 0 has the label True; a label name is"),
        ([True, False], "row 0 has the label True; a label name is"),
        (np.array([True, False]), "row 0 has the label True; a label name is"),
        ([[np.bool_(True)]], "row 0 has the label .*True.*; a label name is"),
        ([[b"a"]], "row 0 has the label b'a'; a label name is"),
        ([b"abc"], "row 0 has the label b'abc'; a label name is"),
        ([[2**63]], "row 0 has the label 9223372036854775808; a label name is a string or a 64-bit integer"),
        ([[["a"]]], r"row 0 has the label \['a'\]; a label name is"),
        ([[1 + 2j]], r"row 0 has the label \(1\+2j\); a label name is"),
        (np.zeros((2, 2, 2)), "row 0 has the label .*; a label name is"),
        ([["a"], 3.7, ["b"]], r"row 1 has the label 3\.7; a label name is"),
        ([["a"], object()], "the labels of row 1 must be a name or a collection of names; got <object"),
        ("words", "a sequence of label names for each row; got str"),
        (b"words", "a sequence of label names for each row; got bytes"),
        (7, "a sequence of label names for each row; got int"),
        (np.array(7), "a sequence of label names for each row; got ndarray"),
        ({"a", "b"}, "a sequence of label names for each row; got set"),
        ({"a": 1}, "a sequence of label names for each row; got dict"),
        (scipy.sparse.coo_array(np.ones(3)), "a sequence of label names for each row; got coo_array"),
        (None, "requires y to be passed, but the target y is None; give the labels of each row"),
    ],
)
def test_what_cannot_be_labels_is_refused_in_a_sentence(Y: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        encode_labels(Y)


def test_names_of_another_kind_than_the_known_ones_are_refused() -> None:
    for Y, known in (([["a"]], np.array([1, 2])), ([[1]], names("a", "b"))):
        with pytest.raises(DataError, match="label names must be all strings or all integers; got both"):
            encode_labels(Y, known)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.text(max_size=3), max_size=4), max_size=8))
def test_encoding_loses_nothing(rows: list[set[str]]) -> None:
    encoded, found = encode_labels(rows)
    assert encoded.shape == (len(rows), len(set().union(*rows)))
    for row, expected in enumerate(rows):
        assert set(found[encoded.indices[encoded.indptr[row] : encoded.indptr[row + 1]]]) == expected


def test_given_names_must_fit_the_columns() -> None:
    assert check_names(["b", "a"], 2).tolist() == ["b", "a"]
    for wrong, sentence in (
        (["a"], "there are 1 label names for 2 columns of Y"),
        (["a", "a"], "the label name 'a' stands for more than one column"),
        (["a", 1], "label names must be strings"),
        ("ab", "label names must be strings"),
    ):
        with pytest.raises(DataError, match=sentence):
            check_names(wrong, 2)  # type: ignore[arg-type]


def test_columns_are_moved_to_the_known_names() -> None:
    moved, found = align_columns(scipy.sparse.csr_array(DENSE), ["x", "b", "a"], ["a", "b", "c"])
    assert found == ["a", "b", "c", "x"]
    np.testing.assert_array_equal(moved.toarray(), [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]])
    assert moved.has_sorted_indices


# ------------------------------------------------------------------------------------------------------------- keys


def test_keys_are_those_of_every_other_machine_and_version() -> None:
    golden = {
        "tea": 10431608578837538234,
        "": 13020603013274838756,
        "海": 18027281880112192258,
        "👩‍👩‍👧": 11876076796942251918,
        "\ud800": 7497787021708494914,
    }
    assert label_keys(names(*golden)).tolist() == list(golden.values())
    assert label_keys(np.array([0, 1, 2**63 - 1, -1])).tolist() == [0, 1, 2**63 - 1, 2**64 - 1]


def test_a_key_depends_on_the_name_alone() -> None:
    many = names(*(f"label {number}" for number in range(5000)))
    keys = label_keys(many)
    assert keys.dtype == np.uint64
    assert len(np.unique(keys)) == 5000
    np.testing.assert_array_equal(label_keys(many[::-7]), keys[::-7])
    assert label_keys(names()).shape == (0,)


# ------------------------------------------------------------------------------------------------------------- sets


def sets_of(Y: Any) -> list[frozenset[int]]:
    return [frozenset(np.flatnonzero(row).tolist()) for row in Y.toarray()]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_distinct_sets_are_those_of_a_dictionary_whatever_the_order_of_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Y = scipy.sparse.csr_array((rng.random((60, 5)) < 0.4).astype(np.float32))  # rows without labels among them
    keys = label_keys(names("a", "b", "c", "d", "e"))
    found = distinct_sets(Y, keys)
    rows = sets_of(Y)
    distinct = sets_of(Y[found.first])
    assert len(distinct) == len(set(distinct)) == len(set(rows))
    assert [distinct[number] for number in found.of_row] == rows
    assert found.counts.tolist() == [rows.count(one) for one in distinct]
    shuffled = rng.permutation(60)
    again = distinct_sets(Y[shuffled], keys)
    assert sets_of(Y[shuffled][again.first]) == distinct
    np.testing.assert_array_equal(again.counts, found.counts)
    np.testing.assert_array_equal(again.of_row, found.of_row[shuffled])


def test_sets_that_only_sums_of_keys_would_confuse_are_told_apart() -> None:
    keys = np.array([1, 2, 3, 4], np.uint64)  # 1 + 4 = 2 + 3
    Y = scipy.sparse.csr_array(np.array([[1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 1, 0], [1, 1, 0, 0]], np.float32))
    assert len(distinct_sets(Y, keys).counts) == 4


def test_many_rows_are_grouped() -> None:
    Y = worlds.zipf_labels(5000, 30)
    found = distinct_sets(Y, np.arange(30, dtype=np.uint64))
    assert len(found.counts) == len(set(sets_of(Y)))
    np.testing.assert_array_equal(Y[found.first][found.of_row].toarray(), Y.toarray())


# ----------------------------------------------------------------------------------------------------------- arrays


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec=None), max_size=4), max_size=6))
def test_names_survive_as_plain_arrays(values: list[str]) -> None:
    arrays = names_to_arrays(names(*values))
    assert all(array.dtype != object for array in arrays.values())
    again = names_from_arrays(arrays)
    assert again.tolist() == values
    assert again.dtype == object


@pytest.mark.parametrize("values", [[""], ["", ""], ["👩‍👩‍👧", "\ud800", "\udfff\ud800", "a\0"], []], ids=repr)
def test_odd_names_survive_as_plain_arrays(values: list[str]) -> None:
    assert names_from_arrays(names_to_arrays(names(*values))).tolist() == values


def test_integer_names_survive_as_plain_arrays() -> None:
    values = np.array([-(2**63), 0, 2**63 - 1])
    again = names_from_arrays(names_to_arrays(values))
    np.testing.assert_array_equal(again, values)
    assert again.dtype == np.int64


@pytest.mark.parametrize("ends", [[2, 1, 3], [1, 2], [4], [-1, 3], []], ids=str)
def test_arrays_that_hold_no_names_are_refused(ends: list[int]) -> None:
    arrays: dict[str, Any] = {"names": np.frombuffer(b"abc", np.uint8), "name_ends": np.array(ends, np.int64)}
    with pytest.raises(ValueError, match="the array 'name_ends' "):
        names_from_arrays(arrays)
