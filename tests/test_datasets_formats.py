"""read, iter_blocks and write over all formats: round trips, streams, compressed and standard input, detection."""

from __future__ import annotations

import gzip
import io
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from ripml.base import registry
from ripml.base.errors import DataError, MemoryLimitError, ParameterError
from ripml.datasets import Dataset, iter_blocks, read, source, write

FORMATS = ["xmc", "svmlight", "arff", "jsonl"]
names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1, max_size=8
)


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    n, d, n_labels = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    all_names = draw(st.lists(names, min_size=d + n_labels, max_size=d + n_labels, unique=True))
    cells = st.one_of(st.just(0.0), st.floats(width=32, allow_nan=False, allow_infinity=False))
    X = np.array(draw(st.lists(cells, min_size=n * d, max_size=n * d)), np.float32).reshape(n, d)
    Y = np.array(draw(st.lists(st.booleans(), min_size=n * n_labels, max_size=n * n_labels)), np.float32)
    label_names, feature_names = all_names[d:], all_names[:d]
    Y = Y.reshape(n, n_labels)
    return Dataset(X=csr_array(X), Y=csr_array(Y), label_names=label_names, feature_names=feature_names)


def written(dataset: Dataset, format: str) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a file and the options that read it back with the same columns."""
    file, xml = io.BytesIO(), io.BytesIO()
    write(dataset, file, format, **({"xml": xml} if format == "arff" else {}))
    d, n_labels = dataset.X.shape[1], dataset.Y.shape[1]
    return file.getvalue(), {
        "xmc": {},
        "svmlight": {"n_features": d, "n_labels": n_labels},
        "arff": {"xml": io.BytesIO(xml.getvalue())},
        "jsonl": {"label_names": dataset.label_names, "feature_names": dataset.feature_names},
    }[format]


def assert_same(left: Dataset, right: Dataset) -> None:
    for a, b in ((left.X, right.X), (left.Y, right.Y)):
        assert a.shape == b.shape
        assert a.dtype == b.dtype == np.float32
        assert a.indices.dtype == np.int32
        assert (a != b).nnz == 0


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=30, deadline=None)
@given(dataset=datasets())
def test_written_data_reads_back_the_same(format: str, dataset: Dataset) -> None:
    data, options = written(dataset, format)
    back = read(io.BytesIO(data), format, **options)
    assert_same(back, dataset)
    if format in ("arff", "jsonl"):
        assert back.label_names == dataset.label_names
        assert back.feature_names == dataset.feature_names


@pytest.fixture
def dataset() -> Dataset:
    rng = np.random.default_rng(0)
    X = csr_array((rng.random((300, 40)) * (rng.random((300, 40)) < 0.2)).astype(np.float32))
    Y = csr_array((rng.random((300, 20)) < 0.1).astype(np.float32))
    return Dataset(
        X=X,
        Y=Y,
        label_names=[f"label {j}" for j in range(20)],
        feature_names=[f"feature {j}" for j in range(40)],
        texts=[f"text {i} ü" for i in range(300)],
        ids=[str(i) for i in range(300)],
    )


@pytest.mark.parametrize("format", FORMATS)
def test_blocks_of_a_stream_put_together_are_the_whole(
    format: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 700)
    monkeypatch.setattr("ripml.datasets.formats.arff._ROWS_PER_BLOCK", 64)
    data, options = written(dataset, format)
    if format == "svmlight":
        options["zero_based"] = False
    blocks = list(iter_blocks(io.BytesIO(data), format, **options))
    assert len(blocks) > 3
    first = itertools.accumulate((len(block) for block in blocks), initial=0)
    for start, block in zip(first, blocks, strict=False):
        rows = slice(start, start + len(block))
        assert_same(block, Dataset(X=dataset.X[rows], Y=dataset.Y[rows], label_names=dataset.label_names))
    assert sum(len(block) for block in blocks) == len(dataset)


SAMPLES = {
    "xmc": b"3 5 4\n0,2 0:1 3:0.25\n 1:0.5\n3\n",
    "svmlight": b"0,2 1:1 4:0.25 # why\n 2:0.5\n3\n",
    "arff": b"@relation x\n@attribute 'a b' numeric\n@attribute l {0,1}\n@data\n1.5,1\n{0 2,1 1}\n{}\n",
    "jsonl": b'{"labels": ["a", "b"], "features": {"x": 1.5}, "text": "t"}\n{"labels": [], "features": {}, "text": ""}',
}


def refusal_of(content: bytes, format: str) -> str | None:
    """Return the sentence that refuses the file, or None if it is read."""
    options = {"xml": io.BytesIO(b'<labels><label name="l"/></labels>')} if format == "arff" else {}
    try:
        data = read(io.BytesIO(content), format, **options)
    except DataError as error:
        return str(error)
    assert data.X is None or np.isfinite(data.X.data).all()
    return None


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_content_is_read_or_refused_in_one_sentence(format: str, data: st.DataObject) -> None:
    content = bytearray(SAMPLES[format])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        piece = data.draw(
            st.one_of(st.binary(max_size=3), st.sampled_from([b"\n", b"{", b"'", b'"', b",", b"@data", b"9"]))
        )
        content[at : at + data.draw(st.integers(0, 5))] = piece
    refusal = refusal_of(bytes(content), format)
    assert refusal is None or (refusal.startswith("<file>:") and refusal.endswith("."))


def test_a_line_longer_than_the_chunk_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 4)
    assert read(io.BytesIO(b"2 30 4\n0,3 0:1 12:0.5\n1 21:2.125")).X.data.tolist() == [1, 0.5, 2.125]


@pytest.mark.parametrize("format", ["xmc", "svmlight", "jsonl", "csv", "annif"])
def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb: gzip makes a thousandth of a line of zeros."""
    monkeypatch.setattr(source, "CHUNK_BYTES", 1000)
    monkeypatch.setenv("RIPML_MAX_LINE_BYTES", "100000")
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"0" * 10_000_000))
    options = {"zero_based": True} if format == "svmlight" else {}
    with pytest.raises(DataError, match=r"bomb\.gz:1: the line has more than the 100,000 bytes that a line may have;"):
        read(path, format, **options)
    monkeypatch.setenv("RIPML_MAX_LINE_BYTES", "much")
    with pytest.raises(ParameterError, match="RIPML_MAX_LINE_BYTES must be a whole number of bytes > 0; got 'much'"):
        read(path, format, **options)


def test_a_file_that_is_read_whole_is_refused_if_memory_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "available_memory", lambda: 60)
    with pytest.raises(DataError, match=r"^<file>: this has more than 30 bytes, which do not fit into memory\.$"):
        read(io.BytesIO(SAMPLES["arff"]), "arff", xml=io.BytesIO(b"<labels><label name='a'/></labels>"))


@pytest.mark.parametrize(("format", "content"), [("xmc", b"1 2 40000000\n0 0:1\n"), ("svmlight", b"39999999 1:1\n")])
def test_a_number_of_labels_that_does_not_fit_into_memory_is_refused(
    format: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ripml.base.parallel.available_memory", lambda: 10**8)
    sentence = r"^<file>: names for 40,000,000 labels would need 2\.6 GB and 0\.1 GB are free; number the labels from 0"
    with pytest.raises(MemoryLimitError, match=sentence):
        read(io.BytesIO(content), format)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_path_decides_format_and_compression(format: str, suffix: str, dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / f"data.{'txt' if format == 'xmc' else format}{suffix}"
    write(dataset, path)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == bool(suffix)
    back = read(path)
    assert len(back) == len(dataset)
    assert back.Y.sum() == dataset.Y.sum()
    assert back.name == str(path)


def test_compressed_files_are_the_same_bytes_every_time(dataset: Dataset, tmp_path: Path) -> None:
    write(dataset, tmp_path / "a.txt.gz")
    write(dataset, tmp_path / "b.txt.gz")
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()


XMC = b"2 3 4\n0,3 0:1 2:0.5\n1 1:2\n"


def test_gzip_is_known_by_its_first_bytes_whatever_the_name(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_bytes(gzip.compress(XMC))
    (tmp_path / "odd.gz").write_bytes(XMC)
    assert_same(read(tmp_path / "plain.txt"), read(tmp_path / "odd.gz"))


def test_a_dash_is_standard_input_and_output(monkeypatch: pytest.MonkeyPatch) -> None:
    class Standard:
        def __init__(self, data: bytes = b"") -> None:
            self.buffer = io.BytesIO(data)

    monkeypatch.setattr(sys, "stdin", Standard(gzip.compress(XMC)))
    output = Standard()
    monkeypatch.setattr(sys, "stdout", output)
    whole = read("-")
    write(whole, "-", "xmc")
    assert output.buffer.getvalue() == XMC


def test_the_callers_file_stays_open() -> None:
    for data in (XMC, gzip.compress(XMC)):
        file = io.BytesIO(data)
        read(file)
        assert not file.closed


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (XMC, "xmc"),
        (b"0,3 1:1 3:0.5\n", "svmlight"),
        (b'{"labels": ["a"], "text": "b"}\n', "jsonl"),
    ],
)
def test_the_first_line_tells_the_format(data: bytes, format: str) -> None:
    assert repr(read(io.BytesIO(data))) == repr(read(io.BytesIO(data), format))


def test_a_slow_pipe_that_gives_a_byte_at_a_time_is_read_as_any_file() -> None:
    class Slow(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self.data = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return self.data.readinto(memoryview(buffer)[:1])

    assert_same(read(Slow(XMC)), read(io.BytesIO(XMC)))  # type: ignore[arg-type]


def test_an_unrecognised_format_must_be_named(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"^<file>: neither the name nor the first line 'hello' tells the format; pass one of svmlight, xmc",
    ):
        read(io.BytesIO(b"hello\n"))
    with pytest.raises(ParameterError, match=r"`format` must be one of svmlight, xmc, arff, jsonl, .*; got 'docx'\."):
        read(io.BytesIO(XMC), "docx")
    with pytest.raises(ParameterError, match=r"the name 'x\.docx' does not tell the format; pass format="):
        write(dataset, "x.docx")


def test_an_option_of_another_format_is_refused(dataset: Dataset) -> None:
    with pytest.raises(ParameterError, match=r"`zero_based` is not an option of the format xmc; its options: none\."):
        read(io.BytesIO(XMC), zero_based=True)
    with pytest.raises(ParameterError, match=r"`xml` is not an option of the format jsonl"):
        write(dataset, io.BytesIO(), "jsonl", xml="x")


@pytest.fixture
def toy_format(monkeypatch: pytest.MonkeyPatch) -> str:
    """A format that is one module, registered by one call: `!label text` on each line."""

    def recognises(opened: source.Source) -> bool:
        return opened.first_line().startswith(b"!")

    def iter_blocks(opened: source.Source, *, upper: bool = False) -> Iterator[Dataset]:
        lines = [line.decode()[1:].partition(" ") for _, line in opened.lines()]
        names = [label.upper() if upper else label for label, _, _ in lines]
        label_names = sorted(set(names))
        Y = csr_array(np.array([[name == label for label in label_names] for name in names], np.float32))
        yield Dataset(X=None, Y=Y, label_names=label_names, texts=[text for _, _, text in lines])

    def write_lines(data: Dataset, file: IO[bytes]) -> None:
        for row, text in enumerate(data.texts or []):
            file.write(f"!{data.label_names[data.Y.indices[row]]} {text}\n".encode())

    module = ModuleType("toy_format")
    contents = {"SUFFIXES": (".toy",), "CONTENT": "texts", "recognises": recognises}
    for name, value in {**contents, "iter_blocks": iter_blocks, "write": write_lines}.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "toy_format", module)
    monkeypatch.setitem(registry._STAGES, "format", dict(registry._STAGES["format"]))  # undone after the test
    registry.register("format", "toy", "toy_format")
    return "toy"


def test_a_new_format_is_one_module_and_one_registry_line(toy_format: str, dataset: Dataset, tmp_path: Path) -> None:
    rows = b"!sport The match was won.\n!news The vote: lost.\n"
    data = read(io.BytesIO(rows))  # recognised by its first line
    assert (data.label_names, data.texts) == (["news", "sport"], ["The match was won.", "The vote: lost."])
    assert read(io.BytesIO(rows), toy_format, upper=True).label_names == ["NEWS", "SPORT"]
    write(data, tmp_path / "x.toy.gz")  # chosen by its suffix
    assert gzip.decompress((tmp_path / "x.toy.gz").read_bytes()) == rows
    assert [block.texts for block in iter_blocks(tmp_path / "x.toy.gz")] == [data.texts]
    with pytest.raises(ParameterError, match=r"`lower` is not an option of the format toy; its options: upper\.$"):
        read(io.BytesIO(rows), lower=True)
    features_only = Dataset(X=dataset.X, Y=dataset.Y, label_names=dataset.label_names)
    with pytest.raises(DataError, match="the format toy needs texts, but this data set has only features"):
        write(features_only, tmp_path / "y.toy")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("A folder of another format.")
    assert read(tmp_path / "corpus").ids == ["a"]


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: cannot be read \(no such file\)\.$"):
        read(tmp_path / "none.txt")
    with pytest.raises(DataError, match="there is no document in this folder"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"x\.txt: cannot be written \(No such file or directory\)\.$"):
        write(read(io.BytesIO(XMC)), tmp_path / "none" / "x.txt")


def test_a_text_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="a file open in binary mode; got StringIO"):
        read(io.StringIO("1"))  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="a file open in binary mode; got int"):
        read(5)  # type: ignore[arg-type]


def test_truncated_and_damaged_gzip_have_different_errors(tmp_path: Path) -> None:
    packed = gzip.compress(XMC * 1000)
    (tmp_path / "short.txt.gz").write_bytes(packed[:-12])
    with pytest.raises(DataError, match=r"short\.txt\.gz: the gzip data ends too early; the file is truncated\.$"):
        read(tmp_path / "short.txt.gz", "xmc")
    (tmp_path / "bad.txt.gz").write_bytes(packed[:20] + b"\xff\xff\xff" + packed[23:])
    with pytest.raises(DataError, match=r"bad\.txt\.gz: the gzip data is damaged\.$"):
        read(tmp_path / "bad.txt.gz", "xmc")


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_file_is_an_error(format: str, tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text('<labels><label name="a"/></labels>')
    (tmp_path / "x.arff").write_bytes(b"")
    with pytest.raises(DataError, match="the file is empty"):
        read(tmp_path / "x.arff", format)


def test_a_data_set_that_a_format_cannot_hold_is_not_written(tmp_path: Path) -> None:
    Y = csr_array(np.eye(2, dtype=np.float32))
    texts = Dataset(X=None, Y=Y, label_names=["a", "b"], texts=["x", "y"])
    with pytest.raises(DataError, match="the format xmc needs features, but this data set has only texts"):
        write(texts, tmp_path / "x.txt")
    with pytest.raises(DataError, match="X has a value that is not finite"):
        write(Dataset(X=csr_array([[np.nan], [1.0]]), Y=Y, label_names=["a", "b"]), tmp_path / "x.txt")
    with pytest.raises(DataError, match="Y must be an indicator"):
        write(Dataset(X=Y, Y=2 * Y, label_names=["a", "b"]), tmp_path / "x.txt")
    assert not (tmp_path / "x.txt").exists()


def test_a_data_set_whose_parts_do_not_fit_is_refused() -> None:
    Y = csr_array(np.eye(2, dtype=np.float32))
    with pytest.raises(DataError, match="there are 1 label names but 2 columns of Y"):
        Dataset(X=None, Y=Y, label_names=["a"])
    with pytest.raises(DataError, match="there are 3 rows of X but 2 rows of Y"):
        Dataset(X=csr_array(np.eye(3)), Y=Y, label_names=["a", "b"])
    with pytest.raises(DataError, match="there are 1 feature names but 2 columns of X"):
        Dataset(X=Y, Y=Y, label_names=["a", "b"], feature_names=["x"])
    with pytest.raises(DataError, match="there are 0 texts but 2 rows of Y"):
        Dataset(X=Y, Y=Y, label_names=["a", "b"], texts=[])
