"""Documents in tables and in memory: CSV, TSV, Parquet, lists, DataFrames, and how all of them agree."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from realdata import data_folder, needs_data
from scipy.sparse import csr_array

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.datasets import Dataset, documents_given, iter_blocks, read, source, write

TEXTS = ["The match, won.", "", 'He said "no";\r\nthey\tdid | not.', "足球 比赛 😀 كرة القدم"]
TAGS = [["sport", "news"], [], ["news", "odd|name"], ["球 类", "sport"]]
IDS = ["a", "b", "c d", "7"]
NO_NUL = "" if sys.version_info >= (3, 11) else "\0"  # the csv module of Python 3.10 cannot read it


def facts(data: Dataset) -> tuple[Any, ...]:
    """All that a data set of texts holds, for comparison."""
    assert data.X is None
    assert data.Y.dtype == np.float32
    return data.texts, data.label_names, data.Y.toarray().tolist(), data.ids


def csv(text: str | bytes, **options: Any) -> Dataset:
    return read(io.BytesIO(text.encode() if isinstance(text, str) else text), "csv", **options)


class FakeHuggingFace:
    """What a Dataset of Hugging Face has that matters here; a column is no list but can be gone through."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns
        self.column_names = list(columns)

    def __getitem__(self, name: str) -> Iterator[Any]:
        return iter(self._columns[name])


class FakeStream:
    """An IterableDataset: it has columns, but gives rows only."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self.column_names = list(rows[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)


COLUMNS: dict[str, list[Any]] = {"id": IDS, "text": TEXTS, "labels": TAGS, "year": [1, 2, 3, 4]}
ROWS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
CELLS = {**COLUMNS, "labels": ["sport; news;", "", '["news", "odd|name"]', "球 类 | sport"]}


def files() -> Iterator[tuple[str, bytes]]:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    yield "jsonl", lines.encode()
    yield "csv", pd.DataFrame(CELLS).to_csv(index=False).encode()
    yield "csv", pd.DataFrame(CELLS).to_csv(index=False, sep=";", encoding="utf-8").encode("utf-8-sig")
    yield "csv", gzip.compress(pl.DataFrame(CELLS).write_csv(separator="\t").encode())
    for table in (COLUMNS, CELLS):
        file = io.BytesIO()
        pl.DataFrame(table).write_parquet(file)
        yield "parquet", file.getvalue()


SOURCES: list[Callable[[], Any]] = [
    lambda: ROWS,
    lambda: iter(ROWS),
    lambda: FakeStream(ROWS),
    lambda: FakeHuggingFace(COLUMNS),
    lambda: FakeHuggingFace(CELLS),
    lambda: pd.DataFrame(COLUMNS),
    lambda: pd.DataFrame({**CELLS, "labels": [np.array(names) for names in TAGS]}),
    lambda: pl.DataFrame(COLUMNS),
    lambda: pl.DataFrame(CELLS),
    lambda: pa.table(COLUMNS),
    lambda: pa.table({**COLUMNS, "text": pa.array(TEXTS).dictionary_encode()}),
    *(lambda content=content: io.BytesIO(content) for _, content in files()),
]


@pytest.mark.parametrize("number", range(len(SOURCES)))
def test_the_same_documents_are_the_same_data_set_from_every_source(number: int) -> None:
    data = documents_given(SOURCES[number]())
    assert data.texts == TEXTS
    assert data.label_names == ["sport", "news", "odd|name", "球 类"]
    assert data.Y.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]]
    assert data.ids == IDS


@pytest.mark.parametrize("kind", [list, tuple, iter, np.array, pd.Series, pl.Series, pa.array])
def test_texts_and_tags_may_be_any_kind_of_list(kind: Callable[[Any], Any]) -> None:
    tags = pd.Series(TAGS) if kind is pd.Series else kind(TAGS) if kind in (list, tuple, iter) else TAGS
    data = documents_given(kind(TEXTS), tags)
    assert facts(data) == (*facts(documents_given(ROWS))[:3], None)


def test_a_data_set_and_a_path_are_taken_as_they_are(tmp_path: Path) -> None:
    data = documents_given(ROWS)
    assert documents_given(data) is data
    write(data, tmp_path / "x.csv")
    assert facts(documents_given(tmp_path / "x.csv")) == facts(documents_given(str(tmp_path / "x.csv"))) == facts(data)
    features = Dataset(X=csr_array(np.eye(1)), Y=csr_array(np.eye(1)), label_names=["a"], name="x")
    with pytest.raises(DataError, match=r"^x has features but no texts\.$"):
        documents_given(features)


def test_missing_values_are_empty_texts_or_no_labels() -> None:
    frame = pd.DataFrame({"text": ["a", None, float("nan"), pd.NA], "labels": [None, ["x"], float("nan"), pd.NA]})
    data = documents_given(frame)
    assert data.texts == ["a", "", "", ""]
    assert data.Y.toarray().tolist() == [[0], [1], [0], [0]]
    assert documents_given(["a", None], [None, {"y", "x"}]).label_names == ["x", "y"]
    assert documents_given(["a"]).Y.shape == (1, 0)
    assert documents_given([], []).Y.shape == (0, 0)
    assert documents_given(pl.DataFrame({"text": ["a", None], "labels": [None, ["x"]]})).texts == ["a", ""]


def test_numbers_are_labels_by_what_they_print_as_and_a_label_counts_once() -> None:
    frame = pd.DataFrame({"text": ["a", "b", "c"], "labels": [3, None, 10]})  # pandas makes them 3.0, NaN, 10.0
    assert documents_given(frame).label_names == ["3", "10"]
    data = documents_given(["a"], [np.array([3, 4, 3])])
    assert data.label_names == ["3", "4"]
    assert data.Y.toarray().tolist() == [[1, 1]]
    assert documents_given(["a"], [[0.5, "x"]]).label_names == ["0.5", "x"]


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    frame = pd.DataFrame({"body": ["a"], "tags": ["x|y"], "key": [7]})
    expected = (["a"], ["x", "y"], [[1, 1]], ["7"])
    names = {"text": "body", "labels": "tags", "id": "key"}
    assert facts(documents_given(frame, **names)) == expected
    assert facts(documents_given(frame.to_dict("records"), **names)) == expected
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    for name in ("x.csv", "x.parquet"):
        assert facts(documents_given(tmp_path / name, **names)) == expected
    with pytest.raises(DataError, match=r"^the documents: there is no column 'text' among body, tags, key; name the"):
        documents_given(frame)
    with pytest.raises(DataError, match=r"there is no column 'no' among body, tags, key; .* labels=….$"):
        documents_given(frame, text="body", labels="no")


@pytest.mark.parametrize(
    ("texts", "tags", "sentence"),
    [
        (["a", "b"], [["x"], "x"], r"row 1: the tags of a text must be a list of names; got 'x', write \['x'\]\.$"),
        (["a"], [5], r"row 0: the tags of a text must be a list of names; got 5, write \[5\]\.$"),
        (["a"], [[None]], r"row 0: a label must be a string or a number; got 'None'\.$"),
        (["a"], [[True]], r"row 0: a label must be a string or a number; got 'True'\.$"),
        (["a"], [{"x": 1}], r"row 0: a label must be a string or a number; got \"{'x': 1}\"\.$"),
        (["a", "b"], [["x"]], r"there are 2 texts but 1 lists of tags; there must be one for each text\.$"),
        (["a"], "x", r"`tags` must have a list of names for each text; got 'x' \(str\)\.$"),
        (["a", 5], None, r"row 1: a text must be a string; got '5' \(int\)\.$"),
        ([b"a"], None, r"row 0: a text must be a string; got \"b'a'\" \(bytes\)\.$"),
        ([{"text": "a"}, {"labels": []}], None, r"row 1: there is no 'text' in \"{'labels': \[\]}\"\.$"),
        ([{"text": "a"}, "b"], None, r"row 1: there is no 'text' in 'b'\.$"),
        ([{"text": "a", "id": 1}, {"text": "b"}], None, r"row 1: the id is missing, but there is a column of ids\.$"),
        ([{"text": "a", "labels": "['x']"}], None, r"row 0: the labels \"\['x'\]\" are not a JSON list; write them as"),
        (5, None, r"expected a list of texts, dictionaries, a table or a path; got '5' \(int\)\.$"),
        ({"train": ["a"]}, None, r"expected a list of texts, .*; got \"{'train': \['a'\]}\" \(dict\)\.$"),
    ],
)
def test_other_objects_are_refused_in_one_sentence(texts: Any, tags: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=f"^{sentence}"):
        documents_given(texts, tags)


def test_tags_beside_a_table_several_tables_and_lazy_ones_are_refused() -> None:
    for table in (pd.DataFrame(COLUMNS), ROWS, documents_given(ROWS), "a text"):
        with pytest.raises(ParameterError, match=r"^`tags` go with a list of texts; "):
            documents_given(table, TAGS)
    several = FakeHuggingFace(COLUMNS)
    several.column_names = {"train": ["text"], "test": ["text"]}  # type: ignore[assignment]
    with pytest.raises(DataError, match=r"^this holds several tables: train, test; pass one of them\.$"):
        documents_given(several)
    with pytest.raises(DataError, match=r"^LazyFrame is a table that is not computed yet"):
        documents_given(pl.LazyFrame(COLUMNS))


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NO_NUL), max_size=30) | st.sampled_from(
    ['"', '""', "\n", "\r", "\r\n", "\t", "a\tb", "[", "|", "\ufeff", "\u2028", "שלום", "👩‍👩‍👧", '", "', "a" * 200_000]
)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NO_NUL), max_size=8)


@st.composite
def documents(draw: st.DrawFn) -> Dataset:
    rows = draw(st.lists(st.tuples(texts, st.lists(names, unique=True, max_size=3), texts), min_size=1, max_size=4))
    its_texts, tags, ids = map(list, zip(*rows, strict=True))
    given = {"text": its_texts, "labels": tags} | ({"id": ids} if draw(st.booleans()) else {})
    return documents_given(pa.table({**given, "labels": pa.array(tags, pa.list_(pa.string()))}))


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.tsv", "x.csv.gz", "x.parquet", "x.parquet.gz"])
@settings(max_examples=40, deadline=None)
@given(data=documents())
def test_written_data_reads_back_the_same(name: str, data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / name
    write(data, path)
    assert facts(read(path)) == facts(data)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_given_names_fix_the_columns(format: str) -> None:
    file = io.BytesIO()
    write(documents_given(["a"], [["y"]]), file, format)
    assert read(io.BytesIO(file.getvalue()), label_names=["x", "y"]).Y.toarray().tolist() == [[0, 1]]
    with pytest.raises(DataError, match=r"label 'y' is not among the 1 names given\.$"):
        read(io.BytesIO(file.getvalue()), label_names=["x"])


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_blocks_of_a_stream_put_together_are_the_whole(
    format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 700)
    data = documents_given([f"text {i}\n" * 3 for i in range(300)], [[str(i % 7)] for i in range(300)])
    write(data, tmp_path / "x", format)
    blocks = list(iter_blocks(tmp_path / "x"))
    assert len(blocks) > 10
    assert list(itertools.chain(*(block.texts or [] for block in blocks))) == data.texts
    assert [block.Y.shape[1] for block in blocks] == [7] * len(blocks)


def test_a_table_without_rows_has_none_and_one_without_labels_has_no_columns() -> None:
    assert csv("text,labels\n").Y.shape == (0, 0)
    data = csv("text\n\nRain\n\n")
    assert (data.texts, data.Y.shape, data.ids) == (["Rain"], (1, 0), None)
    file = io.BytesIO()
    write(csv("text,labels\n"), file, "parquet")
    assert len(read(io.BytesIO(file.getvalue()))) == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", r"<file>: the file is empty\.$"),
        ("title,labels\na,b\n", r"<file>:1: there is no column 'text' among title, labels; name the right one with"),
        ("text,text\na,b\n", r"<file>:1: there are 2 columns 'text'\.$"),
        (
            'text,labels\n"a\nb",x\nc\n',
            r"<file>:4: there are 1 cells, but 2 columns; quote cells that contain ",
        ),
        ("text,labels\na,x,y\n", r"<file>:2: there are 3 cells, but 2 columns"),
        ("text,labels\na,x|x\n", r"<file>:2: label 'x' is given twice\.$"),
        (
            "text,labels\na,[x]\n",
            r"<file>:2: the labels '\[x\]' are not a JSON list; write them as ",
        ),
        ('text,labels\na,"[[""x""]]"\n', r"<file>:2: a label must be a string or a number; got \"\['x'\]\"\.$"),
        ('text,labels\n"a" b,x\n', r"<file>:2: this is not CSV \(',' expected after '\"'\)\.$"),
        ('text,labels\na,x\n"b\n\n', r"<file>:3: this is not CSV \(unexpected end of data\)\.$"),
        (
            b"text,labels\na,\xff\n",
            r"<file>:2: the line is neither UTF-8 nor, as it seems, Windows-1252; save .* encoding=….$",
        ),
    ],
)
def test_a_bad_row_is_explained_with_its_line(content: str | bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=f"^{sentence}"):
        csv(content)


def test_bad_parquet_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for content in (b"PAR1 and no more", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.parquet: this is not a readable Parquet file \(.*\)\.$"):
            read(path)
    pa.parquet.write_table(pa.table({"text": ["a", "b"], "labels": ["x", "[x"]}), path)
    with pytest.raises(DataError, match=r"x\.parquet: row 1: the labels '\[x' are not a JSON list"):
        read(path)
    pa.parquet.write_table(pa.table({"text": [1]}), path)
    with pytest.raises(DataError, match=r"x\.parquet: row 0: a text must be a string; got '1' \(int\)\.$"):
        read(path)


def test_without_pyarrow_the_error_has_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pyarrow is needed .* pip install 'ripml\[parquet\]'"):
        read(io.BytesIO(b"PAR1"))


SAMPLES = {
    "csv": b'\xef\xbb\xbfid,text,labels\n1,"a ""b""\nc",x|y\n2,d,"[""z""]"\n',
    "annif": b'text,subject_uris\n"a, b",<http://a/1> <http://a/2>\nc,\n',
}


@pytest.mark.parametrize("format", SAMPLES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_content_is_read_or_refused_in_one_sentence(format: str, data: st.DataObject) -> None:
    content = bytearray(SAMPLES[format])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        piece = data.draw(st.binary(max_size=3) | st.sampled_from([b"\n", b"\r", b'"', b",", b"\t", b";", b"[", b"<"]))
        content[at : at + data.draw(st.integers(0, 5))] = piece
    refusal = ""
    try:
        read(io.BytesIO(bytes(content)), format)
    except DataError as error:
        refusal = str(error)
    assert refusal == "" or (refusal.startswith("<file>:") and refusal.endswith("."))


def test_features_cannot_be_written_as_texts(tmp_path: Path) -> None:
    X = csr_array(np.eye(2, dtype=np.float32))
    with pytest.raises(DataError, match=r"^the format csv needs texts, but this data set has only features"):
        write(Dataset(X=X, Y=X, label_names=["a", "b"]), tmp_path / "x.csv")
    assert not (tmp_path / "x.csv").exists()


def test_half_of_a_surrogate_pair_is_refused() -> None:
    for format in ("csv", "parquet", "annif"):
        with pytest.raises(DataError, match=r"^row 1 contains half of a surrogate pair"):
            write(documents_given(["a", "\ud800"]), io.BytesIO(), format)


@needs_data
def test_documents_of_eur_lex_go_through_every_format(tmp_path: Path) -> None:
    with gzip.open(data_folder() / "eurlex" / "docs.jsonl.gz") as file:
        lines = b"".join(itertools.islice(file, 200))
    data = read(io.BytesIO(lines))
    rows = [json.loads(line) for line in lines.splitlines()]
    assert facts(documents_given(pd.DataFrame(rows))) == facts(data)
    assert facts(documents_given(pl.DataFrame(rows))) == facts(data)
    for name in ("x.jsonl", "x.csv", "x.tsv.gz", "x.parquet"):
        write(data, tmp_path / name)
        assert facts(read(tmp_path / name)) == facts(data)
    write(data, tmp_path / "annif.csv", "annif")
    assert facts(read(tmp_path / "annif.csv")) == facts(data)
