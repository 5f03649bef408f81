"""JSONL with texts or features."""

from __future__ import annotations

import io

import numpy as np
import pytest
from scipy.sparse import csr_array

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import Dataset, read, write


def jsonl(lines: str | bytes, **options: list[str] | str) -> Dataset:
    return read(io.BytesIO(lines.encode() if isinstance(lines, str) else lines), "jsonl", **options)


def test_texts_have_no_matrix() -> None:
    data = jsonl('{"labels": ["b", "a"], "text": "ä x", "id": 7, "more": null}\n{"labels": [], "text": "", "id": "z"}')
    assert data.X is None
    assert data.texts == ["ä x", ""]
    assert data.ids == ["7", "z"]
    assert data.label_names == ["b", "a"]
    assert data.Y.toarray().tolist() == [[1, 1], [0, 0]]


def test_features_come_by_name_or_as_lists() -> None:
    named = jsonl('{"labels": ["a"], "features": {"x": 1, "y": 0.5}}\n{"labels": ["b"], "features": {"z": -2}}\n')
    assert named.feature_names == ["x", "y", "z"]
    assert named.X.toarray().tolist() == [[1, 0.5, 0], [0, 0, -2]]
    listed = jsonl('{"labels": ["a"], "features": [1, 0, 2]}\n{"labels": ["b"], "features": [0, 0, 0.25]}\n')
    assert listed.feature_names is None
    assert listed.X.toarray().tolist() == [[1, 0, 2], [0, 0, 0.25]]
    assert listed.X.nnz == 3


def test_given_names_fix_the_columns() -> None:
    line = '{"labels": ["b"], "features": {"y": 1}}\n'
    data = jsonl(line, label_names=["a", "b"], feature_names=["x", "y", "z"])
    assert data.Y.toarray().tolist() == [[0, 1]]
    assert data.X.toarray().tolist() == [[0, 1, 0]]
    with pytest.raises(DataError, match=r"^<file>:1: label 'b' is not among the 1 names given\.$"):
        jsonl(line, label_names=["a"])
    with pytest.raises(DataError, match=r"^<file>:1: feature 'y' is not among the 0 names given\.$"):
        jsonl(line, feature_names=[])
    with pytest.raises(ParameterError, match=r"^`label_names` must not contain a name twice\.$"):
        jsonl(line, label_names=["b", "b"])


def test_lines_without_labels_are_allowed_if_no_line_has_any() -> None:
    assert jsonl('{"text": "a"}\n{"text": "b"}\n').Y.shape == (2, 0)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", r"this is not JSON \(.* at column 2\)\.$"),
        ("[1]", r"the line must be a JSON object such as"),
        ('{"labels": 5, "text": "b"}', r"'labels' must be a list; got 5\.$"),
        ('{"labels": [1], "text": "b"}', r"a label must be a string; got 1\.$"),
        ('{"labels": ["a", "a"], "text": "b"}', r"label 'a' is given twice\.$"),
        ('{"labels": [], "text": 5}', r"'text' must be a string; got 5\.$"),
        ('{"labels": [], "text": "b", "text": "c"}', r"'text' is given twice in one object\.$"),
        ('{"labels": []}', r"'text' is missing, but the lines before have it\.$"),
        ('{"text": "b"}', r"'labels' is missing, but the lines before have it\.$"),
        ('{"labels": [], "text": "b", "id": 1}', r"there is 'id', but the lines before do not have it\.$"),
        ('{"labels": [], "text": "b", "id": true}', r"'id' must be a string; got true\.$"),
        ('{"labels": [], "text": "\\ud800"}', r"a \\u escape is half of a surrogate pair\.$"),
        ("[" * 100_000, r"the JSON is nested too deeply\.$"),
    ],
)
def test_a_bad_line_among_texts_is_explained(line: str, sentence: str) -> None:
    with pytest.raises(DataError, match=rf"^<file>:2: {sentence}"):
        jsonl('{"labels": ["a"], "text": "x"}\n' + line + '\n{"labels": ["a"], "text": "x"}\n')


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        ("[1]", r"there are 1 features, but 2 on the lines before\.$"),
        ('{"x": 1}', r"'features' is an object, but a list on the lines before\.$"),
        ('[1, "2"]', r"feature '1' must be a number; got \"2\"\.$"),
        ("[1, true]", r"feature '1' must be a number; got true\.$"),
        ("[1, null]", r"feature '1' must be a number; got null\.$"),
        ("[1, NaN]", r"NaN is not a finite number\.$"),
        ("[1, 1e39]", r"feature '1' is not a finite float32 number; got 1e\+39\.$"),
        ("[1, 1e999]", r"feature '1' is not a finite float32 number; got inf\.$"),
        (f"[1, {'9' * 50}]", r"feature '1' is not a finite float32 number; got 9{40}\.$"),
        ("5", r"'features' must be an object or a list; got 5\.$"),
    ],
)
def test_a_bad_line_among_features_is_explained(features: str, sentence: str) -> None:
    with pytest.raises(DataError, match=rf"^<file>:2: {sentence}"):
        jsonl(f'{{"labels": ["a"], "features": [1, 2]}}\n{{"labels": [], "features": {features}}}\n')


def test_a_byte_order_mark_and_blank_lines_are_not_part_of_the_rows() -> None:
    data = jsonl(b'\xef\xbb\xbf\n{"text": "a"}\r\n\n \t\n{"text": "b"}\n\n')
    assert data.texts == ["a", "b"]
    sniffed = read(io.BytesIO(b'\xef\xbb\xbf{"text": "a"}\n'))
    assert sniffed.texts == ["a"]
    with pytest.raises(DataError, match=r"^<file>:4: 'text' must be a string; got 5\.$"):
        jsonl('\n{"text": "a"}\n\n{"text": 5}\n')
    with pytest.raises(DataError, match=r"^<file>: the file is empty\.$"):
        jsonl("\n\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_read(encoding: str) -> None:
    content = '{"text": "Čeština"}\n{"text": "b"}\n'.encode(encoding)
    assert jsonl(content).texts == read(io.BytesIO(content)).texts == ["Čeština", "b"]
    with pytest.raises(DataError, match=r"^<file>: the text is not utf-16.* near byte \d+; save the file as UTF-8\.$"):
        jsonl(content[:-1])


def test_labels_may_be_one_string() -> None:
    lines = '{"text": "a", "labels": "tea, red"}\n{"text": "b", "labels": "red"}\n{"text": "c", "labels": "red, tea"}\n'
    assert jsonl(lines).label_names == ["tea", "red"]
    assert jsonl(lines, tag_separator=";").label_names == ["tea, red", "red", "red, tea"]
    assert jsonl('{"text": "a", "labels": "x|y, z"}\n').label_names == ["x", "y, z"]
    with pytest.raises(DataError, match=r"^<file>:1: the labels '\[x' are not a JSON list"):
        jsonl('{"text": "a", "labels": "[x"}\n')


def test_several_keys_of_texts_are_joined_with_the_first_as_the_title() -> None:
    data = jsonl('{"title": "Refund", "body": "Paid twice."}\n{"title": "Fax"}\n', text=["title", "body"])
    assert data.texts == ["Refund\nPaid twice.", "Fax"]
    with pytest.raises(DataError, match=r"^<file>:1: there is no 'lead' among the keys 'title'; .* text=….$"):
        jsonl('{"title": "Fax"}\n', text=["title", "lead"])
    with pytest.raises(DataError, match=r"^<file>:1: 'lead' must be a string; got 5\.$"):
        jsonl('{"title": "Fax", "lead": 5}\n', text=["title", "lead"])


@pytest.mark.parametrize("array", ['[{"text": "a"}]', '[{"text": "a"},\n{"text": "b"}]', '[\n{"text": "a"}\n]', "{\n}"])
def test_an_array_of_objects_is_refused_as_jsonl_has_one_object_per_line(array: str) -> None:
    with pytest.raises(DataError, match=r"^<file>:1: JSONL has one object per line, such as .*, and no array around"):
        read(io.BytesIO(array.encode()))


def test_other_keys_are_named_and_can_be_given() -> None:
    rows = '{"body": "a", "tags": ["x"], "nr": 1}\n{"body": "b", "tags": [], "nr": 2}\n'
    sentence = r"^<file>:1: there is neither 'text' nor 'features' among the keys 'body', 'tags', 'nr'; name the key of"
    with pytest.raises(DataError, match=sentence):
        jsonl(rows)
    data = jsonl(rows, text="body", labels="tags", id="nr")
    assert (data.texts, data.label_names, data.ids) == (["a", "b"], ["x"], ["1", "2"])
    with pytest.raises(DataError, match=r"^<file>:1: there is no 'labels ' among the keys .*; name the right one with"):
        jsonl(rows, text="body", labels="labels ")
    with pytest.raises(DataError, match=r"^<file>:2: 'body' must be a string; got 5\.$"):
        jsonl('{"body": "a"}\n{"body": 5}\n', text="body")
    with pytest.raises(DataError, match=r"^<file>:2: 'tags' is missing, but the lines before have it\.$"):
        jsonl('{"body": "a", "tags": []}\n{"body": "b"}\n', text="body", labels="tags")
    assert jsonl('{"labels": ["a"]}\n').texts is None


def test_a_feature_given_twice_is_an_error() -> None:
    with pytest.raises(DataError, match=r"^<file>:1: 'x' is given twice in one object\.$"):
        jsonl('{"labels": [], "features": {"x": 1, "x": 2}}\n')


def test_text_that_is_not_utf8_is_an_error() -> None:
    with pytest.raises(DataError, match=r"^<file>:2: byte 24 of the line is not UTF-8; save the file as UTF-8\.$"):
        jsonl(b'{"labels": [], "text": "a"}\n{"labels": [], "text": \xe4"a"}\n')


def test_features_without_names_are_written_as_lists_and_texts_with_ids() -> None:
    X = csr_array(np.array([[0, 0.1], [2, 0]], np.float32))
    data = Dataset(X=X, Y=csr_array(np.eye(2)), label_names=["ü", "b"], texts=["line\nbreak", "x"], ids=["1", "2"])
    file = io.BytesIO()
    write(data, file, "jsonl")
    first = '{"id": "1", "labels": ["ü"], "text": "line\\nbreak", "features": [0, 0.1]}\n'
    assert file.getvalue().decode().startswith(first)
    back = jsonl(file.getvalue())
    assert (back.texts, back.ids, back.label_names) == (data.texts, data.ids, data.label_names)
    assert (back.X != X).nnz == 0
