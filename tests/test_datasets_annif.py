"""Annif's corpora: a TSV, a CSV and a folder of texts with subjects beside them, with and without a vocabulary."""

from __future__ import annotations

import gzip
import io
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from realdata import data_folder, needs_data

from ripml.base.errors import DataError, ParameterError
from ripml.datasets import Dataset, documents_given, iter_blocks, read, source, write

SPORT, NEWS, BANK = "http://example.org/s1", "http://example.org/s2", "http://example.org/b"
VOCABULARY = f"\ufeff<{SPORT}>\tball games\n<{NEWS}>\tnews\tN2\n\n{BANK}\tbank\n<http://example.org/c>\n"


def corpus(text: str | bytes, **options: Any) -> Dataset:
    return read(io.BytesIO(text.encode() if isinstance(text, str) else text), "annif", **options)


def vocabulary(text: str = VOCABULARY) -> io.BytesIO:
    return io.BytesIO(text.encode())


def facts(data: Dataset) -> tuple[Any, ...]:
    return data.texts, data.label_names, data.Y.toarray().tolist(), data.ids


def filled(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content.encode())
    return folder


def test_a_line_is_a_text_and_the_uris_of_its_subjects() -> None:
    content = f"\ufeffThe match\t<{SPORT}> <{NEWS}> <{NEWS}>\r\nNothing\t\nThe vote\t{NEWS}\n"
    expected = (["The match", "Nothing", "The vote"], [SPORT, NEWS], [[1, 1], [0, 0], [0, 1]], None)
    assert facts(read(io.BytesIO(content.encode()))) == expected
    assert facts(read(io.BytesIO(gzip.compress(content.encode())))) == expected
    named = corpus(content, vocabulary=vocabulary())
    assert named.label_names == ["ball games", "news"]
    fixed = corpus(content, vocabulary=vocabulary(), label_names=["bank", "news", "ball games"])
    assert fixed.Y.toarray().tolist() == [[0, 1, 1], [0, 0, 0], [0, 1, 0]]


def test_a_csv_has_columns_for_text_uris_and_perhaps_an_id() -> None:
    content = f'document_id,title,text,subject_uris\n7,t,"a,\nb",<{SPORT}> {NEWS}\n8,t,c,\n'
    expected = (["a,\nb", "c"], [SPORT, NEWS], [[1, 1], [0, 0]], ["7", "8"])
    assert facts(read(io.BytesIO(content.encode()))) == expected
    assert read(io.BytesIO(f"text,subject_uris\na,{NEWS}\n".encode())).ids is None


def test_our_tables_are_distinguished_from_annifs(tmp_path: Path) -> None:
    (tmp_path / "ours.tsv").write_text("text\tlabels\nThe match\tsport\n")
    (tmp_path / "theirs.tsv").write_text(f"The match\t<{SPORT}>\n")
    (tmp_path / "both.csv").write_text(f"text,labels,subject_uris\nThe match,sport,<{SPORT}>\n")
    assert [read(tmp_path / f"{name}").label_names for name in ("ours.tsv", "theirs.tsv", "both.csv")] == [
        ["sport"],
        [SPORT],
        ["sport"],
    ]


def test_a_folder_has_one_text_per_file_and_its_subjects_beside_it(tmp_path: Path) -> None:
    folder = filled(
        tmp_path / "corpus",
        {
            "b.2.txt": "The vote\r\nwas lost.\n",
            "b.2.key": "news\n\nodd <name>\n",
            "a.txt": "\ufeffThe match",
            "a.tsv": f"<{SPORT}>\tgames with a ball\tmore\n<{NEWS}>\n<{SPORT}>\tother\n",
            "a.key": "not looked at",
            "c.txt": "",
            ".hidden.txt": "x",
            "d.json": "{}",
        },
    )
    data = read(folder)
    assert data.ids == ["a", "b.2", "c"]
    assert data.texts == ["The match", "The vote\r\nwas lost.\n", ""]
    assert data.label_names == ["games with a ball", NEWS, "news", "odd <name>"]
    assert data.Y.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]
    named = read(str(folder), vocabulary=vocabulary())
    assert named.label_names == ["ball games", "news", "odd <name>"]
    assert facts(documents_given(folder)) == facts(data)


def test_a_folder_is_a_stream_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 30)
    data = documents_given([f"text {i:03}\n" for i in range(20)], [[str(i % 3)] for i in range(20)])
    write(data, tmp_path / "corpus", "annif")
    blocks = list(iter_blocks(tmp_path / "corpus"))
    assert [len(block) for block in blocks] == [4] * 5
    assert list(itertools.chain(*(block.texts or [] for block in blocks))) == data.texts


def test_labels_are_written_as_uris_with_a_vocabulary_and_read_back_by_name(tmp_path: Path) -> None:
    data = documents_given([{"text": "The match", "labels": ["ball games", "news"], "id": "m"}])
    for name in ("x.tsv", "x.tsv.gz", "x.csv", "folder"):
        write(data, tmp_path / name, "annif", vocabulary=vocabulary())
        back = read(tmp_path / name, vocabulary=vocabulary())
        assert facts(back)[:3] == facts(data)[:3]
        assert back.ids == (None if "tsv" in name else ["m"])
    assert (tmp_path / "x.tsv").read_bytes() == f"The match\t<{SPORT}> <{NEWS}>\n".encode()
    assert (tmp_path / "folder" / "m.tsv").read_bytes() == f"<{SPORT}>\tball games\n<{NEWS}>\tnews\n".encode()
    file = io.BytesIO()
    write(data, file, "annif", vocabulary=vocabulary(), kind="csv")
    assert file.getvalue() == f"document_id,text,subject_uris\r\nm,The match,<{SPORT}> <{NEWS}>\r\n".encode()


def test_names_that_two_subjects_share_are_distinguished_by_their_uris() -> None:
    shared = f"<{BANK}>\tbank\n<{BANK}2>\tbank\n"
    data = corpus(f"River\t<{BANK}>\nMoney\t<{BANK}2>\n", vocabulary=vocabulary(shared))
    assert data.label_names == [f"bank ({BANK})", f"bank ({BANK}2)"]
    file = io.BytesIO()
    write(data, file, "annif", vocabulary=vocabulary(shared))
    assert file.getvalue() == f"River\t<{BANK}>\nMoney\t<{BANK}2>\n".encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", r"<file>: the file is empty\.$"),
        (f"a\t<{NEWS}>\nb\n", r"<file>:2: there is no tab between text and subjects in 'b'\.$"),
        (f"a\tmore text\t<{NEWS}>\n", r"<file>:1: the subject 'more' is not a URI; write it as <more>"),
        (b"a\t\nb\xff\t\n", r"<file>:2: byte 2 of the line is not UTF-8; save the file as UTF-8\.$"),
        (f"subject_uris,title\n<{NEWS}>,a\n", r"<file>:1: there is no column 'text' among subject_uris, title"),
        (f"text,subject_uris\na,<{NEWS}>,b\n", r"<file>:2: there are 3 cells, but 2 columns"),
    ],
)
def test_a_bad_line_is_explained(content: str | bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=f"^{sentence}"):
        corpus(content)


def test_a_bad_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"none: there is no \.txt file in the folder\.$"):
        read(tmp_path / "none", "annif")
    folder = filled(tmp_path / "some", {"a.txt": "x", "a.tsv": f"<{BANK}>\tbank\n<{NEWS}>\tbank\n"})
    with pytest.raises(DataError, match=r"a\.tsv:2: 'bank' is the label of <.*/b> and of <.*/s2>; give them different"):
        read(folder)
    (folder / "a.tsv").write_bytes(b"")
    (folder / "a.txt").write_bytes(b"x\n\xff")
    with pytest.raises(DataError, match=r"a\.txt:2: byte 1 of the line is not UTF-8"):
        read(folder)
    with pytest.raises(DataError, match=r"some: cannot be read \(Is a directory\)\.$"):
        read(folder, "csv")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("no uri here\n", r"<file>:1: 'no uri here' is not a line '<uri> tab label' of a vocabulary\.$"),
        (f"<{NEWS}>\ta\n<{NEWS}>\tb\n", r"<file>:2: <http://example\.org/s2> is listed twice\.$"),
    ],
)
def test_a_bad_vocabulary_is_explained(content: str, sentence: str) -> None:
    with pytest.raises(DataError, match=f"^{sentence}"):
        corpus("a\t\n", vocabulary=vocabulary(content))


def refused(texts: list[str], tags: Iterable[list[str]], place: Any, **options: Any) -> str:
    with pytest.raises(DataError, match=r"\.$") as caught:
        write(documents_given(texts, tags), place, "annif", **options)
    return str(caught.value)


def test_data_that_a_corpus_cannot_hold_is_not_written(tmp_path: Path) -> None:
    message = refused(["a", "b\tc"], [[], []], tmp_path / "x.tsv")
    assert message.startswith("row 1: the text contains a tab or a line break")
    message = refused(["a"], [["two words"]], io.BytesIO())
    assert message == "row 0: the label 'two words' cannot be written as a URI; give its URI with vocabulary=…."
    message = refused(["a"], [["two words"]], io.BytesIO(), vocabulary=vocabulary())
    assert message == "row 0: the label 'two words' cannot be written as a URI; add it to the vocabulary."
    message = refused(["a"], [["<x>"]], tmp_path / "new")
    assert message == "row 0: the label '<x>' on a line of its own would not read back the same."
    assert refused(["a"], [[]], filled(tmp_path / "old", {"x": ""})).endswith(
        "the folder is not empty; choose a new one."
    )
    assert "cannot be written (No such file" in refused(["a"], [[]], tmp_path / "no" / "where")
    for ids, sentence in (
        (["a/b"], r"^row 0: the id 'a/b' cannot be a file name"),
        (["a", "a"], "^two rows have the id 'a'"),
    ):
        with pytest.raises(DataError, match=sentence):
            write(documents_given([{"text": "", "id": id} for id in ids]), tmp_path / "ids", "annif")
    with pytest.raises(
        ParameterError, match=r"^`kind` is not an option of the format annif; its options: vocabulary\.$"
    ):
        write(documents_given(["a"]), tmp_path / "kinds", "annif", kind="tsv")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["\ufeffmark", "שלום", "👩‍👩‍👧", "\0", "\u2028", '"quoted"', "\x0b"]
)
words = st.text(st.characters(categories=["L", "N", "P", "So"]), min_size=1, max_size=8)


@st.composite
def documents(draw: st.DrawFn) -> Dataset:
    rows = draw(st.lists(st.tuples(texts, st.lists(words, unique=True, max_size=3)), min_size=1, max_size=4))
    its_texts, tags = map(list, zip(*rows, strict=True))
    return documents_given(its_texts, tags)


@settings(max_examples=60, deadline=None)
@given(data=documents())
def test_written_data_reads_back_the_same(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("corpora")
    for name in ("x.tsv", "x.csv", "folder"):
        try:
            write(data, folder / name, "annif")
        except DataError as error:
            assert "contains a tab or a line break" in str(error) or "would not read back" in str(error)  # noqa: PT017
            continue
        back = read(folder / name, "annif")
        assert facts(back)[:3] == facts(data)[:3]


@needs_data
def test_documents_of_eur_lex_go_through_every_corpus_and_come_back_with_the_names_of_eurovoc(tmp_path: Path) -> None:
    with gzip.open(data_folder() / "eurlex" / "docs.jsonl.gz") as file:
        data = read(io.BytesIO(b"".join(itertools.islice(file, 200))))
    concepts = (data_folder() / "eurlex" / "labels.txt").read_text(encoding="utf-8").splitlines()
    names = dict(concept.split("\t") for concept in concepts)
    (tmp_path / "eurovoc.tsv").write_text(
        "".join(f"<http://eurovoc.europa.eu/{number}>\t{name}\n" for number, name in names.items()), encoding="utf-8"
    )
    named = Dataset(
        X=None, Y=data.Y, label_names=[names[number] for number in data.label_names], texts=data.texts, ids=data.ids
    )
    for name in ("x.tsv.gz", "x.csv", "folder"):
        write(named, tmp_path / name, "annif", vocabulary=tmp_path / "eurovoc.tsv")
        back = read(tmp_path / name, vocabulary=tmp_path / "eurovoc.tsv", label_names=named.label_names)
        order = sorted(range(200), key=lambda i: (named.ids or [])[i]) if name == "folder" else list(range(200))
        assert back.texts == [(named.texts or [])[i] for i in order]
        assert (named.Y[order] != back.Y).nnz == 0
