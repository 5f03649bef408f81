"""load and available: the folder RIPML_DATA, and the data set built from docstrings."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from realdata import data_folder, needs_data

from ripml.base.errors import DataError
from ripml.datasets import Dataset, available, load
from ripml.datasets.numpydoc import _link_names, _reproducible, _resolve, _split_see_also

DOCS = [
    {"id": "a", "split": "train", "labels": ["k1", "rare"], "text": "first"},
    {"id": "b", "split": "test", "labels": ["k0"], "text": "second"},
    {"id": "c", "split": "valid", "labels": ["k0"], "text": "belongs to no file"},
    {"id": "d", "split": "train", "labels": ["k0", "k1"], "text": "third"},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a small set called `tiny`."""
    monkeypatch.setenv("RIPML_DATA", str(tmp_path))
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    (tiny / "train.txt.gz").write_bytes(gzip.compress(b"2 3 2\n1 0:1\n0,1 2:0.5\n"))
    (tiny / "test.txt").write_bytes(b"1 3 2\n0 1:1\n")
    return tiny


def write_docs(folder: Path, docs: Sequence[Mapping[str, object]]) -> None:
    (folder / "docs.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))


def test_matrices_alone_make_a_set(folder: Path) -> None:
    (folder.parent / "not a set").mkdir()
    assert available() == ["numpydoc", "tiny"]
    train, test = load("tiny")
    assert train.X.toarray().tolist() == [[1, 0, 0], [0, 0, 0.5]]
    assert test.Y.toarray().tolist() == [[1, 0]]
    assert train.label_names == test.label_names == ["0", "1"]
    assert (train.texts, train.ids, train.feature_names) == (None, None, None)
    assert (train.name, test.name) == ("tiny train", "tiny test")


def test_names_and_texts_come_along(folder: Path) -> None:
    (folder / "labels.txt").write_text("k0\tfirst label\nk1\tsecond label\n")
    (folder / "features.txt").write_text("x\ny\nz\n")
    write_docs(folder, DOCS)
    train, test = load("tiny")
    assert train.label_names == test.label_names == ["first label", "second label"]
    assert train.feature_names == ["x", "y", "z"]
    assert (train.texts, train.ids) == (["first", "third"], ["a", "d"])
    assert (test.texts, test.ids) == (["second"], ["b"])


def test_label_names_that_are_not_unique_give_way_to_their_keys(folder: Path) -> None:
    (folder / "labels.txt").write_text("k0\tsame\nk1\tsame\n")
    assert load("tiny")[0].label_names == ["k0", "k1"]


def test_documents_without_a_split_belong_to_no_row(folder: Path) -> None:
    write_docs(folder, [{"labels": ["1"], "text": "first"}])
    assert load("tiny")[0].texts is None


def test_texts_are_never_misaligned(folder: Path) -> None:
    (folder / "labels.txt").write_text("k0\nk1\n")
    write_docs(folder, [DOCS[3], DOCS[1], DOCS[0]])
    with pytest.raises(DataError, match=r"docs\.jsonl:1: this document does not match row 0 of train\.txt\.$"):
        load("tiny")
    write_docs(folder, DOCS[:2])
    with pytest.raises(DataError, match=r"docs\.jsonl: there are 1 texts for 2 rows of train\.txt\.$"):
        load("tiny")
    write_docs(folder, [DOCS[1], DOCS[1]])
    with pytest.raises(DataError, match=r"docs\.jsonl:2: this document does not match row 1 of test\.txt\.$"):
        load("tiny")
    (folder / "docs.jsonl").write_text("[]\n")
    with pytest.raises(DataError, match=r"docs\.jsonl:1: the line must be a JSON object with 'labels' and 'text'\.$"):
        load("tiny")


def test_there_must_be_one_name_per_column(folder: Path) -> None:
    (folder / "labels.txt").write_text("k0\n")
    with pytest.raises(DataError, match=r"labels\.txt: there are 1 names, but the matrices have 2 columns\.$"):
        load("tiny")


def test_train_and_test_must_have_the_same_columns(folder: Path) -> None:
    (folder / "test.txt").write_bytes(b"1 4 2\n0 1:1\n")
    with pytest.raises(DataError, match=r"train\.txt and test\.txt differ in d or L\.$"):
        load("tiny")


def test_an_unknown_name_is_answered_with_the_known_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"^there is no data set 'huge' in .*; available are numpydoc, tiny\.$"):
        load("huge")
    monkeypatch.setenv("RIPML_DATA", str(folder / "none"))
    with pytest.raises(DataError, match=r"^RIPML_DATA is '.*none', which is not a folder\.$"):
        available()
    monkeypatch.delenv("RIPML_DATA")
    with pytest.raises(
        DataError, match=r"^data set 'tiny' needs RIPML_DATA, the folder of data sets; without it there"
    ):
        load("tiny")
    assert available() == ["numpydoc"]


@needs_data
@pytest.mark.parametrize(
    ("name", "rows", "d", "n_labels", "nnz", "labels", "texts"),
    [
        ("bibtex", (4880, 2515), 1836, 159, 68.7, 2.40, False),
        ("delicious", (12920, 3185), 500, 983, 18.3, 19.0, False),
        ("eurlex", (17383, 1931), 5000, 3675, 119.8, 5.18, True),
        ("wikispeedia", (3668, 917), 20000, 3692, 657.7, 26.1, True),
        ("zh_stock_news", (4441, 1111), 20000, 230, 187.6, 1.08, False),
        ("acl_authors", (91818, 10203), 32956, 45576, 42.6, 3.05, False),
    ],
)
def test_the_real_sets_have_their_known_sizes(
    name: str, rows: tuple[int, int], d: int, n_labels: int, nnz: float, labels: float, texts: bool
) -> None:
    assert (data_folder() / name).is_dir()
    train, test = load(name)
    assert (len(train), len(test)) == rows
    assert train.X.shape[1] == test.X.shape[1] == d
    assert train.Y.shape[1] == test.Y.shape[1] == len(train.label_names) == n_labels
    assert (train.X.nnz + test.X.nnz) / sum(rows) == pytest.approx(nnz, abs=0.06)
    assert (train.Y.nnz + test.Y.nnz) / sum(rows) == pytest.approx(labels, abs=0.06)
    assert (train.texts is not None) == (test.texts is not None) == texts


@pytest.fixture(scope="module")
def numpydoc() -> tuple[Dataset, Dataset]:
    return load("numpydoc")


def test_numpydoc_is_there_without_a_download(numpydoc: tuple[Dataset, Dataset]) -> None:
    train, test = numpydoc
    assert 1000 < len(train) < 3000
    assert 0.15 < len(test) / (len(train) + len(test)) < 0.25
    assert 1000 < len(train.label_names) < 3000
    assert train.label_names == test.label_names == sorted(train.label_names)
    assert (train.Y.sum(axis=1) > 0).all()
    assert (test.Y.sum(axis=1) > 0).all()
    assert train.ids is not None
    assert test.ids is not None
    assert not set(train.ids) & set(test.ids)


def test_numpydoc_labels_are_the_links_and_are_not_in_the_text(numpydoc: tuple[Dataset, Dataset]) -> None:
    rows = {name: (part, i) for part in numpydoc for i, name in enumerate(part.ids or ())}
    part, i = rows["numpy.sin"]
    assert {part.label_names[j] for j in part.Y[[i]].indices} == {"numpy.arcsin", "numpy.sinh", "numpy.cos"}
    for part in numpydoc:
        for name, text in zip(part.ids or (), part.texts or (), strict=True):
            assert text.startswith(f"{name} ")
            assert "\nSee Also\n" not in text
        own = [part.label_names.index(name) if name in part.label_names else -1 for name in part.ids or ()]
        assert not any(j >= 0 and part.Y[i, j] for i, j in enumerate(own))


def test_numpydoc_features_come_from_the_training_texts_only(numpydoc: tuple[Dataset, Dataset]) -> None:
    train, test = numpydoc
    assert train.X.shape[1] == test.X.shape[1]
    assert (np.asarray((train.X > 0).sum(axis=0)).ravel() >= 2).all()


def digest(parts: tuple[Dataset, Dataset]) -> str:
    """Return a checksum of everything in a data set."""
    content = hashlib.sha256()
    for part in parts:
        content.update(repr((part.ids, part.texts, part.label_names, part.feature_names)).encode())
        for array in (part.Y.indptr, part.Y.indices, part.X.indptr, part.X.indices, part.X.data):
            content.update(array.tobytes())
    return content.hexdigest()


def test_numpydoc_is_the_same_in_every_process(numpydoc: tuple[Dataset, Dataset]) -> None:
    imports = "from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer"
    code = f"{imports}; from test_datasets_load import digest, load; print(digest(load('numpydoc')))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest(numpydoc)


def test_the_section_goes_and_its_names_are_found() -> None:
    doc = (
        "sin(x, /)\n\nSine.\n\nSee Also\n--------\nnumpy.cos, tan : Others.\n:func:`sinh`\n    Not this: one.\n\n"
        "Prose is no name here.\n\nNotes\n-----\nKept.\n\nSee also this paragraph\nof two lines.\n\nEnd."
    )
    text, section = _split_see_also(doc)
    assert text == "Sine.\n\nNotes\n-----\nKept.\n\n\nEnd."
    assert list(_link_names(section)) == ["numpy.cos", "tan", "sinh"]


def test_a_printed_set_or_address_does_not_make_a_docstring_differ() -> None:
    assert _reproducible("of {'b', 'a'} and <f at 0x7f00a1>") == "of {'a', 'b'} and <f>"


def test_links_are_resolved_from_the_inside_out_to_one_name() -> None:
    aliases = {name: name for name in ("numpy.dot", "numpy.linalg.norm", "scipy.linalg.norm")} | {
        "np2.dot": "numpy.dot"
    }
    assert _resolve("norm", "scipy.linalg.svd", aliases) == "scipy.linalg.norm"
    assert _resolve("linalg.norm", "numpy.fft.fft", aliases) == "numpy.linalg.norm"
    assert _resolve("np.dot", "scipy.linalg.svd", aliases) == "numpy.dot"
    assert _resolve("np2.dot", "scipy.linalg.svd", aliases) == "numpy.dot"
    assert _resolve("dot", "scipy.linalg.svd", aliases) is None
