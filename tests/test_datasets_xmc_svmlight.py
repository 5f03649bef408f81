"""XMC-repository text and SVMLight: what is around the rows."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import Dataset, iter_blocks, read


def xmc(text: str) -> Dataset:
    return read(io.BytesIO(text.encode()), "xmc")


def svm(text: str, **options: object) -> Dataset:
    return read(io.BytesIO(text.encode()), "svmlight", **options)


def test_rows_may_lack_labels_features_or_both() -> None:
    data = xmc("5 3 4\n0,2 0:1 2:0.25\n 1:0.5\n3\n \n\n")
    assert data.Y.toarray().tolist() == [[1, 0, 1, 0], [0] * 4, [0, 0, 0, 1], [0] * 4, [0] * 4]
    assert data.X.toarray().tolist() == [[1, 0, 0.25], [0, 0.5, 0], [0] * 3, [0] * 3, [0] * 3]
    assert data.label_names == ["0", "1", "2", "3"]


def test_a_stored_zero_stays_stored() -> None:
    assert xmc("1 3 4\n0 1:0\n").X.nnz == 1


@pytest.mark.parametrize("header", ["", "a b c", "3 4", "1 2 3 4", "1 2 -3", "1.0 2 3", "0 0:1", "١ 2 3"])
def test_a_bad_header_is_shown(header: str) -> None:
    with pytest.raises(
        DataError, match=rf"^<file>:1: '{header}' is not a header; it must be three integers 'N d L'\.$"
    ):
        xmc(f"{header}\n0 0:1\n")


def test_a_header_beyond_all_bounds_is_refused_before_memory_is_allocated() -> None:
    with pytest.raises(
        DataError, match=r"^<file>:1: L = 999999999999 is above 50000000, the largest number that can be read\.$"
    ):
        xmc("1 2 999999999999\n")
    with pytest.raises(
        DataError, match=r"^<file>:1: d = 999999999999 is above 2147483647, the largest number that can be read\.$"
    ):
        xmc("1 999999999999 2\n")


def test_the_number_of_rows_must_be_that_of_the_header() -> None:
    with pytest.raises(DataError, match=r"^<file>:1: the header says N = 3 rows, but the file has 2\.$"):
        xmc("3 3 4\n0 0:1\n1 0:1\n")
    with pytest.raises(DataError, match=r"^<file>:4: the header says N = 2 rows, but there are more\.$"):
        xmc("2 3 4\n0 0:1\n1 0:1\n2 0:1\n3 1:1\n")
    with pytest.raises(DataError, match=r"^<file>:4: the header says N = 2 rows, but there are more\.$"):
        xmc("2 3 4\n0 0:1\n1 0:1\n\n")
    with pytest.raises(DataError, match=r"^<file>:1: the header says N = 1 rows, but the file has 0\.$"):
        xmc("1 3 4")
    assert len(xmc("0 3 4\n")) == 0


def test_the_line_of_a_bad_row_counts_the_header() -> None:
    with pytest.raises(DataError, match=r"^<file>:3: label 4 is not below L = 4\.$"):
        xmc("2 3 4\n0 0:1\n4 0:1\n")


def test_comments_are_not_rows_and_blank_lines_are_empty_rows() -> None:
    data = svm("# head\n0,2 1:1 # why\n\n  # more\n1 2:0.5\n#end")
    assert data.Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert data.X.toarray().tolist() == [[1, 0], [0, 0], [0, 0.5]]


def test_the_line_of_a_bad_row_counts_comments() -> None:
    with pytest.raises(DataError, match=r"^<file>:3: value 'x' of feature 2 is not a number\.$"):
        svm("# one\n0 1:1\n0 2:x\n")
    with pytest.raises(DataError, match=r"^<file>:3: feature 0 is below 1; pass zero_based=True"):
        svm("# one\n0 1:1\n0 0:1\n", zero_based=False)


def test_features_count_from_one_unless_feature_zero_occurs() -> None:
    assert svm("0 1:1 3:2\n").X.toarray().tolist() == [[1, 0, 2]]
    assert svm("0 0:1 3:2\n").X.toarray().tolist() == [[1, 0, 0, 2]]
    assert svm("0 1:1 3:2\n", zero_based=True).X.toarray().tolist() == [[0, 1, 0, 2]]
    assert svm("0 1:1 3:2\n", zero_based=False).X.toarray().tolist() == [[1, 0, 2]]


def test_widths_may_be_given_and_are_then_bounds() -> None:
    for base in ("auto", False):
        data = svm("0 1:1 3:2\n", zero_based=base, n_features=5, n_labels=7)
        assert (data.X.shape, data.Y.shape) == ((1, 5), (1, 7))
    assert svm("0 0:1 3:2\n", n_features=4).X.shape == (1, 4)
    with pytest.raises(DataError, match=r"^<file>: feature 3 is not below d = 3, and feature 0 occurs\.$"):
        svm("0 0:1 3:2\n", n_features=3)
    with pytest.raises(DataError, match=r"^<file>:1: feature 3 is not below d = 3\.$"):
        svm("0 0:1 3:2\n", zero_based=True, n_features=3)
    with pytest.raises(DataError, match=r"^<file>:1: label 7 is not below L = 7\.$"):
        svm("7 1:1\n", n_labels=7)


def test_a_stream_needs_to_know_where_features_begin() -> None:
    with pytest.raises(
        ParameterError, match=r"zero_based='auto' needs the whole file; to stream, pass True or False\."
    ):
        next(iter_blocks(io.BytesIO(b"0 1:1\n"), "svmlight"))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_files_of_scikit_learn_read_as_scikit_learn_reads_them(seed: int, zero_based: bool) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.random((8, 6)) * (rng.random((8, 6)) < 0.5)).astype(np.float32)
    X[0] = 1
    X[:, 1] = 1  # scikit-learn loses rows with neither labels nor features
    Y = (rng.random((8, 4)) < 0.5).astype(int)
    Y[0] = 1
    file = io.BytesIO()
    dump_svmlight_file(X, Y, file, multilabel=True, zero_based=zero_based, comment="made by scikit-learn")
    theirs, their_labels = load_svmlight_file(io.BytesIO(file.getvalue()), multilabel=True, dtype=np.float32)
    ours = read(io.BytesIO(file.getvalue()), "svmlight")
    difference = ours.X - theirs
    assert abs(difference).max() == 0
    assert np.array_equal(ours.Y.toarray(), MultiLabelBinarizer(classes=range(4)).fit_transform(their_labels))
