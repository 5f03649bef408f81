"""Mulan's ARFF with its label XML."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from realdata import data_folder, needs_data
from scipy.sparse import csr_array

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import Dataset, read, write

XML = b"""<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels"><label name="warm"><label name="tall"/></label></labels>"""
HEADER = """% a comment
@RELATION 'my data'
@attribute height NUMERIC
@attribute tall {0,1}

@Attribute 'is it \\'red\\'' {'0', '1'}
@attribute warm{0, 1}
@attribute "grade" {1,2,3.5}
@data
% another
"""


def arff(rows: str, header: str = HEADER, xml: bytes = XML) -> Dataset:
    return read(io.BytesIO((header + rows).encode()), "arff", xml=io.BytesIO(xml))


def test_labels_may_be_anywhere_and_are_in_the_order_of_the_xml() -> None:
    data = arff("1.5, 1, '0', 0, 2\n0,0,1,1,3.5\n{0 -2, 3 1, 4 1}\n{1 1,2 '1',4 1}\n")
    assert data.label_names == ["warm", "tall"]
    assert data.feature_names == ["height", "is it 'red'", "grade"]
    assert data.Y.toarray().tolist() == [[0, 1], [1, 0], [1, 0], [0, 1]]
    assert data.X.toarray().tolist() == [[1.5, 0, 2], [0, 1, 3.5], [-2, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("1,0,0", r"^<file>:11: there are 3 values, but 5 attributes\.$"),
        ("?,0,0,0,1", r"^<file>:11: the value of 'height' is missing \('\?'\); fill it in first\.$"),
        ("{0 ?,4 1}", r"^<file>:11: the value of 'height' is missing"),
        ("x,0,0,0,1", r"^<file>:11: value 'x' of 'height' is not a number\.$"),
        ("nan,0,0,0,1", r"^<file>:11: value nan of 'height' is not a finite float32 number\.$"),
        ("1,0.5,0,0,1", r"^<file>:11: label 'tall' must be 0 or 1; got 0\.5\.$"),
        ("1,0,0,0,7", r"^<file>:11: value 7 of 'grade' is not one of its declared values\.$"),
        ("1,0,'0,0,1", r"^<file>:11: quotes do not match in 1,0,'0,0,1\.$"),
        ("{0 1,4 1", r"^<file>:11: a sparse row must end with '}'\.$"),
        ("{0 1,0 2,4 1}", r"^<file>:11: attribute 0 is given twice\.$"),
        ("{5 1,4 1}", r"^<file>:11: attribute 5 is not below 5, the number of attributes\.$"),
        ("{-1 1,4 1}", r"^<file>:11: '-1 1' is not 'attribute value', attributes counted from 0\.$"),
        ("{0,4 1}", r"^<file>:11: '0' is not 'attribute value'"),
        ("{0 1,,4 1}", r"^<file>:11: '' is not 'attribute value'"),
        ("{0 1}", r"^<file>:11: 'grade' is left out of a sparse row, but its first value is not 0\.$"),
    ],
)
def test_a_bad_row_is_named_with_file_line_and_value(row: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        arff(f"{row}\n")


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("@relation x\n@data\n", r"^<file>:2: there is no @attribute before @data\.$"),
        ("@relation x\n@attribute a numeric\n", r"^<file>: there is no @data line\.$"),
        (
            "@attribute a string\n",
            r"^<file>:1: attribute 'a' is of type 'string'; only numbers and \{0,1\} can be read\.$",
        ),
        ("@attribute a {red,blue}\n", r"^<file>:1: attribute 'a' has values {red,blue} that are not numbers"),
        ("@attribute a\n", r"^<file>:1: '@attribute a' is not '@attribute name type'\.$"),
        ("@attribute a numeric\n@attribute a real\n", r"^<file>:2: attribute 'a' is declared twice\.$"),
        ("1,2,3\n", r"^<file>:1: '1,2,3' is not @relation, @attribute or @data\.$"),
        (
            "@attribute walm {0,1}\n@data\n",
            r"label 'warm' of the XML is not an attribute \(the closest is 'walm'\); correct",
        ),
    ],
)
def test_a_bad_header_is_explained(header: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        arff("", header)


@pytest.mark.parametrize(
    ("xml", "sentence"),
    [
        (b"<labels", r"this is not XML \(.*\)\.$"),
        (b"<labels/>", r'there must be labels, each as <label name="…">\.$'),
        (b"<labels><label/></labels>", r'there must be labels, each as <label name="…">\.$'),
        (b'<labels><label name="a"/><label name="a"/></labels>', r"a label is named twice\.$"),
        (b'<!DOCTYPE l [<!ENTITY a "b">]><labels/>', r"must not contain DOCTYPE or ENTITY; remove them\.$"),
    ],
)
def test_a_bad_label_file_is_explained(xml: bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        arff("", xml=xml)


def test_text_that_is_not_utf8_is_an_error() -> None:
    with pytest.raises(DataError, match=r"^<file>:1: byte 13 of the line is not UTF-8; save the file as UTF-8\.$"):
        read(io.BytesIO(b"@attribute a\xe4 numeric\n"), "arff", xml=io.BytesIO(XML))


def test_the_label_file_is_looked_for_beside_the_arff(tmp_path: Path) -> None:
    (tmp_path / "set-train.arff").write_text(HEADER + "{4 1}\n")
    with pytest.raises(
        DataError, match=r"set-train\.arff: the label file set-train\.xml is not beside it; pass its path"
    ):
        read(tmp_path / "set-train.arff")
    (tmp_path / "set.xml").write_bytes(XML)
    assert read(tmp_path / "set-train.arff").label_names == ["warm", "tall"]


def test_the_writer_needs_different_names_on_one_line_each(tmp_path: Path) -> None:
    X, Y = csr_array(np.eye(2)), csr_array(np.eye(2))
    with pytest.raises(DataError, match=r"^'f1' names two attributes; ARFF needs different names"):
        write(Dataset(X=X, Y=Y, label_names=["f1", "b"]), tmp_path / "x.arff")
    with pytest.raises(DataError, match="cannot be a name in ARFF; it is empty or contains a control character"):
        write(Dataset(X=X, Y=Y, label_names=["a\nb", "b"]), tmp_path / "x.arff")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ParameterError, match="ARFF has its labels in a second file; pass where to write it with xml="):
        write(Dataset(X=X, Y=Y, label_names=["a", "b"]), io.BytesIO(), "arff")


@needs_data
def test_the_original_of_delicious_equals_its_xmc_text() -> None:
    folder = data_folder() / "delicious"
    original = (folder / "delicious.xml").read_bytes()
    with pytest.raises(DataError, match=r"label 'TTAG_m.*' of the XML is not an attribute \(the closest is 'TAG_m"):
        read(folder / "delicious-test.arff.gz")  # Mulan's own slip
    for split in ("train", "test"):
        xml = io.BytesIO(original.replace(b'"TTAG_m', b'"TAG_m'))
        ours = read(folder / f"delicious-{split}.arff.gz", xml=xml)
        text = read(folder / f"{split}.txt.gz")
        assert (ours.X != text.X).nnz == 0
        assert (ours.Y != text.Y).nnz == 0
        assert ours.label_names == (folder / "labels.txt").read_text().splitlines()
        assert ours.feature_names == (folder / "features.txt").read_text().splitlines()


def test_a_label_file_in_an_unknown_encoding_is_refused_by_its_name() -> None:
    xml = io.BytesIO(b"<?xml version='1.0' encoding='utf-10'?><labels><label name='tall'/></labels>")
    with pytest.raises(DataError, match=r"^<file>: this is not XML \(unknown encoding: utf-10\)\.$"):
        read(io.BytesIO(b"@relation t\n@attribute tall {0,1}\n@data\n1\n"), "arff", xml=xml)


def test_a_message_that_quotes_a_long_name_is_shortened() -> None:
    content = b"@relation t\n@attribute " + b"a" * 9000 + b" {x}\n@data\n"
    with pytest.raises(
        DataError, match=r"^<file>:2: attribute 'a{200,300}…a{200,300}' has values .* as numbers\.$"
    ) as raised:
        read(io.BytesIO(content), "arff", xml=io.BytesIO(b"<labels><label name='a'/></labels>"))
    assert len(str(raised.value)) < 700
