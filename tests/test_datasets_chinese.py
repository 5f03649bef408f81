"""The Chinese relevance set: from documents to a folder that `load` reads, complete or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from realdata import data_folder, needs_data
from scipy.sparse import csr_array

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import Dataset, available, load, read, write
from ripml.lab import chinese
from ripml.lab.chinese import build, clean, random_splits, read_documents, stock_news
from ripml.text import Doc2Vec, TfIdf

DOCUMENTS = {
    "a.txt": ("茅台 涨停", ["SH600519"]),
    "b.txt": ("茅台 发布 财报", ["SH600519", "00700"]),
    "c.txt": ("腾讯 发布 财报", ["00700"]),
    "d.txt": ("腾讯  发布\n财报", ["SH600519"]),
    "e.txt": (" \n", ["00700"]),
    "f.txt": ("特斯拉 降价", ["TSLA"]),
    "g.txt": ("无关 新闻", []),
    "h.txt": ("腾讯 涨停", ["00700"]),
}
COUNTS = chinese.Counts(n_read=8, n_empty=1, n_duplicates=1, n_unlabelled=2, n_kept=4, n_rare_labels=1, n_labels=2)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder RIPML_DATA beside a folder of documents."""
    source = tmp_path / "documents"
    source.mkdir()
    for name, (text, _) in DOCUMENTS.items():
        (source / name).write_text(text, encoding="utf-8")
    lines = [",".join((name, *tickers)) for name, (_, tickers) in DOCUMENTS.items() if name != "g.txt"]
    (source / "labels.csv").write_text("\n".join(lines), encoding="utf-8-sig")
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("RIPML_DATA", str(tmp_path / "data"))
    return tmp_path


def features() -> TfIdf:
    return TfIdf(tokens="chars", min_df=1)


def names(part: Dataset, row: int) -> set[str]:
    return {part.label_names[j] for j in part.Y[[row]].indices}


def test_a_folder_of_documents_becomes_a_set_that_loads(home: Path) -> None:
    assert build(home / "documents", home / "data" / "zh", features=features(), n_test=1) == COUNTS
    assert available() == ["numpydoc", "zh"]
    train, test = load("zh")
    assert (len(train), len(test)) == (3, 1)
    assert train.label_names == ["00700", "SH600519"]
    found = {
        i: (t, names(part, row))
        for part in (train, test)
        for row, (i, t) in enumerate(zip(part.ids or (), part.texts or (), strict=True))
    }
    both = {"00700", "SH600519"}
    assert found == {
        "a.txt": ("茅台 涨停", {"SH600519"}),
        "b.txt": ("茅台 发布 财报", both),
        "c.txt": ("腾讯 发布 财报", both),
        "h.txt": ("腾讯 涨停", {"00700"}),
    }


def test_the_features_are_learnt_from_the_training_texts_only(home: Path) -> None:
    build(home / "documents", home / "data" / "zh", features=features(), n_test=1)
    train, test = load("zh")
    tfidf = features()
    expected = tfidf.fit_transform(train.texts or [])
    assert train.feature_names == test.feature_names == tfidf.feature_names
    assert np.array_equal(train.X.toarray(), expected.toarray())
    assert np.array_equal(test.X.toarray(), tfidf.transform(test.texts or []).toarray())


def test_doc2vec_features_are_dense_rows(home: Path) -> None:
    doc2vec = Doc2Vec(n_dims=6, min_count=1)
    build(home / "documents", home / "data" / "zh", features=doc2vec, n_test=1)
    train, test = load("zh")
    assert train.X.shape == (3, 6)
    assert train.feature_names is None
    assert np.array_equal(test.X.toarray(), doc2vec.transform(test.texts or []))


def test_jsonl_and_folder_give_the_same_set(home: Path) -> None:
    lines = [{"id": name, "labels": tickers, "text": text} for name, (text, tickers) in DOCUMENTS.items()]
    source = home / "documents.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert build(source, home / "data" / "lines", features=features(), n_test=1) == COUNTS
    build(home / "documents", home / "data" / "files", features=features(), n_test=1)
    for left, right in zip(load("lines"), load("files"), strict=True):
        assert (left.ids, left.texts) == (right.ids, right.texts)
        assert [names(left, i) for i in range(len(left))] == [names(right, i) for i in range(len(right))]
        assert np.array_equal(left.X.toarray(), right.X.toarray())


def test_the_same_seed_gives_the_same_bytes_and_another_one_another_test_part(home: Path) -> None:
    for name, seed in (("first", 0), ("again", 0), *((f"other{i}", i) for i in range(1, 6))):
        build(home / "documents", home / "data" / name, features=features(), n_test=1, random_state=seed)
    content = {
        folder.name: {file.name: file.read_bytes() for file in folder.iterdir()} for folder in (home / "data").iterdir()
    }
    assert set(content["first"]) == {"train.txt", "test.txt", "labels.txt", "features.txt", "docs.jsonl"}
    assert content["first"] == content["again"]
    assert any(content[f"other{i}"] != content["first"] for i in range(1, 6))


@pytest.mark.parametrize("last", ["train.txt", "test.txt", "labels.txt", "docs.jsonl"])
def test_an_interrupted_build_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    def interrupted(path: Path) -> None:
        assert available() == ["numpydoc"]  # so that even a killed process leaves nothing that loads
        if path.name == last:
            raise KeyboardInterrupt

    write_lines = chinese._write_lines

    def first_write(part: Any, path: Any) -> None:
        write(part, path)
        interrupted(path)

    def first_lines(path: Path, lines: Any) -> None:
        write_lines(path, lines)
        interrupted(path)

    monkeypatch.setattr(chinese, "write", first_write)
    monkeypatch.setattr(chinese, "_write_lines", first_lines)
    with pytest.raises(KeyboardInterrupt):
        build(home / "documents", home / "data" / "zh", features=features(), n_test=1)
    assert list((home / "data").iterdir()) == []


def test_an_existing_folder_is_kept(home: Path) -> None:
    with pytest.raises(DataError, match=r"data: already exists; remove it or choose another name\.$"):
        build(home / "documents", home / "data", features=features())


def test_a_place_that_cannot_be_written_is_named(home: Path) -> None:
    with pytest.raises(DataError, match=r"a\.txt/zh: cannot be written \((Not a directory|File exists)\)\.$"):
        build(home / "documents", home / "documents" / "a.txt" / "zh", features=features(), n_test=1)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("a.txt,X\nz.txt,X\n", r"labels\.csv: there is no document 'z\.txt' in the folder\.$"),
        ("../a.txt,X\n", r"labels\.csv: there is no document '\.\./a\.txt' in the folder\.$"),
        ("a.txt,X\n\na.txt,Y\n", r"labels\.csv:3: 'a\.txt' is given twice\.$"),
        ('a.txt,"X\n', r"labels\.csv:1: this is not CSV \(unexpected end of data\)\.$"),
        ("a.txt\nb.txt, ,\n", r"^no label occurs in 2 documents; lower `min_count` or pass more documents\.$"),
    ],
)
def test_bad_labels_are_reported_with_their_line(home: Path, labels: str, message: str) -> None:
    (home / "documents" / "labels.csv").write_text(labels)
    with pytest.raises(DataError, match=message):
        build(home / "documents", home / "data" / "zh", features=features(), n_test=1)
    assert list((home / "data").iterdir()) == []


def test_bad_documents_are_reported_by_name(home: Path) -> None:
    (home / "documents" / "c.txt").write_bytes("腾讯".encode("gbk"))
    with pytest.raises(DataError, match=r"c\.txt: byte 1 is not UTF-8; save the file as UTF-8\.$"):
        read_documents(home / "documents")
    (home / "documents" / "labels.csv").unlink()
    with pytest.raises(DataError, match=r"labels\.csv: cannot be read \(no such file\)\.$"):
        read_documents(home / "documents")
    with pytest.raises(
        DataError, match=r"data: there are no documents; the folder must have files \*\.txt and a labels\.csv"
    ):
        read_documents(home / "data")
    with pytest.raises(DataError, match=r"none: cannot be read \(no such file\)\.$"):
        read_documents(home / "none")


def test_a_label_that_labels_txt_cannot_hold_is_refused(home: Path) -> None:
    source = home / "odd.jsonl"
    source.write_text('{"labels": ["a\\tb"], "text": "x"}\n{"labels": ["a\\tb"], "text": "y"}\n')
    with pytest.raises(DataError, match=r"^label 'a\\tb' is empty or contains a tab or line break, which labels\.txt"):
        build(source, home / "data" / "zh", features=features(), n_test=1)


def test_lines_without_text_are_refused(home: Path) -> None:
    (home / "odd.jsonl").write_text('{"labels": ["a"], "features": [1]}\n')
    with pytest.raises(DataError, match=r"odd\.jsonl: these documents have no text\.$"):
        build(home / "odd.jsonl", home / "data" / "zh", features=features(), n_test=1)


def test_settings_are_checked(home: Path) -> None:
    with pytest.raises(
        ParameterError, match=r"`features` must be 'doc2vec', 'tfidf', a Doc2Vec or a TfIdf; got 'bert'\."
    ):
        build(home / "documents", home / "data" / "zh", features="bert")
    with pytest.raises(ParameterError, match=r"`min_count` must be an integer ≥ 1; got 0\."):
        build(home / "documents", home / "data" / "zh", min_count=0)
    with pytest.raises(DataError, match=r"`n_test` = 4 leaves none of 4 documents to train on; lower it\."):
        build(home / "documents", home / "data" / "zh", n_test=4)
    with pytest.raises(ParameterError, match=r"`n_splits` must be an integer ≥ 1; got 0\."):
        random_splits(5, 1, 0)


def test_splits_are_disjoint_whole_and_independent_of_their_number() -> None:
    five, two = random_splits(50, 7, 5, random_state=3), random_splits(50, 7, 2, random_state=3)
    for train, test in five:
        assert (len(train), len(test)) == (43, 7)
        assert sorted([*train, *test]) == list(range(50))
    assert len({tuple(test) for _, test in five}) == 5
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(two, five, strict=False))
    assert not np.array_equal(random_splits(50, 7, 1)[0][1], five[0][1])


def test_cleaning_twice_changes_nothing_more() -> None:
    random = np.random.default_rng(0)
    texts = [" ".join(map(str, random.integers(0, 3, 2))) for _ in range(30)] + ["", " "]
    Y = csr_array((random.random((32, 6)) < 0.2).astype(np.float32))
    data = Dataset(X=None, Y=Y, label_names=list("abcdef"), texts=texts)
    once, counts = clean(data, 3)
    assert counts.n_read == counts.n_kept + counts.n_empty + counts.n_duplicates + counts.n_unlabelled
    assert counts.n_empty == 2
    twice, again = clean(once, 3)
    assert again.n_kept == again.n_read == len(once)
    assert np.array_equal(once.Y.toarray(), twice.Y.toarray())
    assert once.Y.sum(axis=0).min() >= 3
    for text, row in zip(once.texts or (), once.Y.toarray(), strict=True):
        merged = Y.toarray()[[other == text for other in texts]].any(axis=0)
        assert row.tolist() == [merged["abcdef".index(name)] for name in once.label_names]


@needs_data
def test_the_substitute_has_its_known_size() -> None:
    data = stock_news()
    assert data.Y.shape == (5545, 230)
    assert data.Y.sum() / 5545 == pytest.approx(1.08, abs=0.01)
    assert len(set(data.texts or ())) == 5545
    assert stock_news(min_count=2).Y.shape == (5543, 120)


def test_without_the_substitute_the_error_names_its_place(home: Path) -> None:
    with pytest.raises(DataError, match=r"there is no zh_stock_news/docs\.jsonl\.gz in the folder RIPML_DATA; set"):
        stock_news()


@needs_data
@pytest.mark.parametrize("made", [TfIdf(tokens="chars"), Doc2Vec(n_dims=8, epochs=2)], ids=["tfidf", "doc2vec"])
def test_real_documents_become_a_set_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    documents = read(data_folder() / "zh_stock_news" / "docs.jsonl.gz")
    source = tmp_path / "some.jsonl"
    with source.open("w") as file:
        for i in range(1500, 1650):
            labels = [documents.label_names[j] for j in documents.Y[[i]].indices]
            file.write(json.dumps({"id": str(i), "labels": labels, "text": (documents.texts or [])[i][:300]}) + "\n")
    counts = build(source, tmp_path / "zh", features=made, n_test=20)
    monkeypatch.setenv("RIPML_DATA", str(tmp_path))
    train, test = load("zh")
    assert (len(train), len(test)) == (counts.n_kept - 20, 20)
    assert (np.diff(train.Y.indptr) > 0).all()
    assert (np.diff(test.X.indptr) > 0).all()
