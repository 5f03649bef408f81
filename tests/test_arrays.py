"""Growing arrays keep the views they gave; arrays that do not fit their specification are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ripml.base.arrays import ArraySpec, GrowingArray, check_arrays, csr_from

# ------------------------------------------------------------------------------------------------- growing arrays


@pytest.mark.parametrize("axis", [0, 1])
def test_a_view_keeps_its_values_while_the_array_grows(axis: int) -> None:
    start = np.arange(6.0).reshape(2, 3) if axis else np.arange(6.0).reshape(3, 2)
    start.setflags(write=False)
    growing = GrowingArray(start, axis)
    views, copies = [growing.view], [start.copy()]
    for size in (0, 1, 100, 3):
        shape = (2, size) if axis else (size, 2)
        more = np.full(shape, float(size))
        views.append(growing.append(more))
        copies.append(np.concatenate([copies[-1], more], axis=axis))
    for view, copy in zip(views, copies, strict=True):
        np.testing.assert_array_equal(view, copy)


def test_one_more_row_does_not_copy_the_array() -> None:
    growing = GrowingArray(np.zeros((1000, 3)))
    first = growing.append(np.ones((1, 3)))
    assert np.shares_memory(first, growing.append(np.ones((1, 3))))


def test_two_arrays_appended_to_one_share_nothing_that_differs() -> None:
    start = GrowingArray(np.array([1, 2]))
    one, other = start.appended(np.array([3])), start.appended(np.array([4, 5]))
    longer = one.appended(np.array([6]))
    assert (one.view.tolist(), other.view.tolist()) == ([1, 2, 3], [1, 2, 4, 5])
    assert (longer.view.tolist(), start.view.tolist()) == ([1, 2, 3, 6], [1, 2])
    assert np.shares_memory(one.view, longer.view)


# ------------------------------------------------------------------------------------------------- specifications


def check(spec: ArraySpec, array: Any, **sizes: int) -> Any:
    return check_arrays({"a": spec}, {"a": np.asarray(array)}, sizes)["a"]


def test_a_symbol_is_bound_by_its_first_use_and_verified_by_the_next() -> None:
    specs = {"Psi": ArraySpec("f", ("C", "d", "M")), "intercept": ArraySpec("f", ("C", "M"))}
    arrays = {"Psi": np.ones((2, 3, 4)), "intercept": np.ones((2, 4))}
    sizes = {"d": 3}
    assert check_arrays(specs, arrays, sizes)["Psi"] is arrays["Psi"]
    assert sizes == {"d": 3, "C": 2, "M": 4}
    with pytest.raises(ValueError, match=r"'Psi' has shape \(2, 3, 4\), but \(C, d, M\) with C = 2, d = 5, M = 4 is"):
        check_arrays(specs, arrays, {"d": 5})
    with pytest.raises(ValueError, match=r"'intercept' has shape \(2, 5\), but \(C, M\) with C = 2, M = 4 is expected"):
        check_arrays(specs, arrays | {"intercept": np.ones((2, 5))})


def test_a_symbol_that_occurs_twice_in_a_shape_is_one_number() -> None:
    assert check(ArraySpec("f", ("d", "d")), np.eye(3)).shape == (3, 3)
    with pytest.raises(ValueError, match=r"'a' has shape \(2, 3\), but \(d, d\) with d = 2 is expected"):
        check(ArraySpec("f", ("d", "d")), np.ones((2, 3)))


def test_numbers_in_a_shape_are_verified_and_none_is_any_number() -> None:
    assert check(ArraySpec("f", (2, None)), np.ones((2, 7))).shape == (2, 7)
    with pytest.raises(ValueError, match=r"'a' has shape \(3, 7\), but \(2, any\) is expected"):
        check(ArraySpec("f", (2, None)), np.ones((3, 7)))
    with pytest.raises(ValueError, match=r"'a' has shape \(2,\), but \(2, any\) is expected"):
        check(ArraySpec("f", (2, None)), np.ones(2))


def test_a_missing_array_is_refused_unless_it_is_optional() -> None:
    assert check_arrays({"a": ArraySpec("f", (1,), optional=True)}, {}) == {}
    with pytest.raises(ValueError, match="the array 'a' is missing"):
        check_arrays({"a": ArraySpec("f", (1,))}, {})
    with pytest.raises(ValueError, match="the array 'a' has dtype int64, but a float is expected"):
        check_arrays({"a": ArraySpec("f", (1,), optional=True)}, {"a": np.ones(1, np.int64)})


def test_arrays_without_a_specification_are_ignored() -> None:
    assert list(check_arrays({"a": ArraySpec("f", (1,))}, {"a": np.ones(1), "b": np.ones(9, object)})) == ["a"]


@pytest.mark.parametrize(
    ("dtype", "fits", "wrong", "message"),
    [
        ("f", "float16", "int64", "a float is expected"),
        ("b", "bool", "uint8", "bool is expected"),
        ("iu", "uint32", "float64", "a whole number is expected"),
        ("iu", "int8", "uint64", "which int64 does not hold"),
        ("float32", "float32", "float64", "float32 is expected"),
        ("uint64", "uint64", "int64", "uint64 is expected"),
    ],
)
def test_a_dtype_is_a_name_or_a_kind(dtype: str, fits: str, wrong: str, message: str) -> None:
    spec = ArraySpec(dtype, (2,))
    assert check(spec, np.ones(2, fits)).dtype == ("int64" if dtype == "iu" else fits)
    with pytest.raises(ValueError, match=f"'a' has dtype {wrong}, .*{message}"):
        check(spec, np.ones(2, wrong))


@pytest.mark.parametrize(
    ("rule", "fits", "wrong", "message"),
    [
        ({"least": 0}, [0, 2], [-1, 2], "not at least 0"),
        ({"most": 1}, [0, 1], [0, 2], "not at most 1"),
        ({"above": 0}, [1, 2], [0, 2], "not above 0"),
        ({"below": 3}, [0, 2], [0, 3], "not below 3"),
        ({"below": "L"}, [0, 4], [0, 5], "not below 5"),
        ({"least": 0}, [0, np.inf], [0, np.nan], "not at least 0"),
        ({"finite": True}, [-1, 2], [0, np.inf], "not finite"),
        ({"rising": True}, [0, 0, 2], [0, 2, 1], "smaller than the one before"),
        ({"rising": True}, [[3, 4], [0, 1]], [[0, 1], [4, 3]], "smaller than the one before"),
        ({"rising": True}, [-np.inf, np.inf, np.inf], [0, np.nan], "smaller than the one before"),
        ({"distinct": True}, [1, 2], [2, 2], "the same value twice"),
    ],
)
def test_values_keep_to_their_rules(rule: dict[str, Any], fits: Any, wrong: Any, message: str) -> None:
    spec = ArraySpec("float64", (None,) * np.ndim(fits), **rule)
    check(spec, np.array(fits, float), L=5)
    with pytest.raises(ValueError, match=f"the array 'a' has .*{message}"):
        check(spec, np.array(wrong, float), L=5)


def test_an_empty_array_keeps_to_every_rule() -> None:
    spec = ArraySpec("f", ("n",), least=0, below=1, finite=True, rising=True, distinct=True)
    assert len(check(spec, np.empty(0))) == 0


# ------------------------------------------------------------------------------------------------- sparse matrices

ENTRIES = {
    "rows_data": np.array([2.0, 3.0, 4.0]),
    "rows_indices": np.array([0, 2, 1]),
    "rows_indptr": np.array([0, 2, 3]),
}


def test_a_sparse_matrix_comes_from_its_three_arrays() -> None:
    assert csr_from(ENTRIES, "rows", (2, 3)).toarray().tolist() == [[2, 0, 3], [0, 4, 0]]
    assert csr_from(ENTRIES, "rows", (2, 3), data=np.ones(3)).toarray().tolist() == [[1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_indices_of_four_bytes_are_used_where_they_are(dtype: Any) -> None:
    entries = {name: array.astype(dtype) for name, array in ENTRIES.items()}
    found = csr_from(entries, "rows", (2, 3), data=np.ones(3))
    assert found.indices.dtype == found.indptr.dtype == np.int32
    assert np.shares_memory(found.indices, entries["rows_indices"])
    assert np.shares_memory(found.indptr, entries["rows_indptr"])
    assert found.toarray().tolist() == [[1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows_indices": np.array([0, 3, 1])}, "'rows_indices' has values that are not below 3"),
        ({"rows_indices": np.array([0, -1, 1])}, "'rows_indices' has values that are not at least 0"),
        ({"rows_indices": np.array([0.0, 2.0, 1.0])}, "'rows_indices' has dtype float64"),
        ({"rows_indices": np.array([0, 2])}, "'rows_indptr' must run from 0 to the 2 entries of 'rows_indices'"),
        ({"rows_indptr": np.array([1, 2, 3])}, "'rows_indptr' must run from 0"),
        ({"rows_indptr": np.array([0, 4, 3])}, "'rows_indptr' has values that are smaller than the one before"),
        ({"rows_indptr": np.array([0, 3])}, r"'rows_indptr' has shape \(2,\)"),
        ({"rows_data": np.ones(2)}, r"'rows_data' has shape \(2,\)"),
        ({"rows_data": np.ones(3, complex)}, "'rows_data' has dtype complex128"),
    ],
)
def test_a_sparse_matrix_whose_arrays_do_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        csr_from(ENTRIES | change, "rows", (2, 3))


def test_values_whose_number_is_not_that_of_the_entries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`data` has shape \(2,\), but 'rows_indices' has 3 entries"):
        csr_from(ENTRIES, "rows", (2, 3), data=np.ones(2))
