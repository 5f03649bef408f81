"""Files as people have them: each is read rightly or refused in one sentence, and nothing is changed silently."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from broken_files import BODY, COLUMNS, DOCUMENTS, TABLES, Case, docx, pdf, xlsx

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.datasets import Dataset, documents_given, read, write
from ripml.datasets.document_files import document_text
from ripml.datasets.source import open_source


def labels_of(data: Dataset) -> list[list[str]]:
    return [sorted(data.row_labels(row)) for row in range(len(data))]


def test_there_are_sixty_broken_files_and_more() -> None:
    names = [[case.name for case in cases] for cases in (TABLES, DOCUMENTS)]
    assert all(len(set(some)) == len(some) for some in names)
    assert sum(bool(case.sentence) for case in (*TABLES, *DOCUMENTS)) >= 60


@pytest.mark.parametrize("case", TABLES, ids=[case.name for case in TABLES])
def test_a_table_is_read_rightly_or_refused_in_one_sentence(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / case.name).write_bytes(case.content)
    caplog.set_level(logging.INFO, "ripml.reading")
    if case.sentence:
        with pytest.raises((DataError, ParameterError), match=case.sentence) as refused:
            read(tmp_path / case.name, **case.options)
        assert str(refused.value).endswith((".", "…"))
        assert "\n" not in str(refused.value)
        return
    data = read(tmp_path / case.name, **case.options)
    assert data.texts == list(case.texts)
    assert labels_of(data) == [sorted(names) for names in case.labels]
    assert all(note in caplog.text for note in case.notes), caplog.text


@pytest.mark.parametrize("case", DOCUMENTS, ids=[case.name for case in DOCUMENTS])
def test_a_document_is_read_rightly_or_refused_in_one_sentence(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / case.name).write_bytes(case.content)
    caplog.set_level(logging.INFO, "ripml.reading")
    with open_source(tmp_path / case.name) as source:
        if case.sentence:
            with pytest.raises(DataError, match=case.sentence) as refused:
                document_text(source)
            assert str(refused.value).endswith(".")
            return
        assert document_text(source) == case.texts[0]
    assert all(note in caplog.text for note in case.notes), caplog.text


def test_a_folder_of_documents_has_labels_beside_them_or_in_the_names_of_folders(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "a.pdf").write_bytes(pdf("Refund"))
    (tmp_path / "b.docx").write_bytes(docx("Fax"))
    (tmp_path / "c.txt").write_text("Rain")
    (tmp_path / "c.key").write_text("one\n\ntwo\none\n")
    (tmp_path / "d.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.txt").write_text("no")
    caplog.set_level(logging.INFO, "ripml.reading")
    data = read(tmp_path)
    assert (data.ids, data.texts) == (["b.docx", "billing/a.pdf", "c.txt"], ["Fax", "Refund", "Rain"])
    assert labels_of(data) == [[], ["billing"], ["one", "two"]]
    assert "left out, because they are not documents: d.png" in caplog.text
    assert "the names of folders are labels" in caplog.text
    (tmp_path / "e.pdf").write_bytes(pdf())
    with pytest.raises(DataError, match=r"e\.pdf: this PDF has no text"):
        read(tmp_path)


def test_a_single_document_is_a_data_set_of_one_row(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>Rain")
    assert read(tmp_path / "a.html").texts == documents_given(tmp_path / "a.html").texts == ["Rain"]
    with pytest.raises(ParameterError, match=r"^`text` is not an option of the format files; its options: label_names"):
        read(tmp_path / "a.html", text="body")


@pytest.mark.parametrize("package", ["pypdf", "python_calamine"])
def test_a_missing_extra_gives_its_install_line(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    name, content = ("a.pdf", pdf("Refund")) if package == "pypdf" else ("a.xlsx", xlsx([["text"]]))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MissingExtraError, match=r"is needed for this; install it with: pip install 'ripml\[files\]'$"):
        read(tmp_path / name)


def test_formats_that_are_only_read_cannot_be_written(tmp_path: Path) -> None:
    data = documents_given(["a"], [["x"]])
    with pytest.raises(ParameterError, match=r"^the format xlsx can only be read; write jsonl, csv or parquet\.$"):
        write(data, tmp_path / "a.xlsx", "xlsx")
    assert not list(tmp_path.iterdir())


def test_all_sources_join_several_columns_and_find_the_separator(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({
        "Title": ["Refund", "Fax", "Tea"], "Body": ["Paid twice.", "It is old.", None], "Tags": ["a, b", "b", "b, a"],
    })  # fmt: skip
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.xlsx").write_bytes(xlsx([list(frame), *frame.fillna("").values.tolist()]))
    for source in (frame, frame.to_dict("records"), *(tmp_path / f"a.{name}" for name in ("csv", "parquet", "xlsx"))):
        data = documents_given(source, **COLUMNS)
        assert data.texts == [*BODY, "Tea"]
        assert np.array_equal(data.Y.toarray(), [[1, 1], [0, 1], [1, 1]])
        assert documents_given(source, **COLUMNS, tag_separator="; ").label_names == ["a, b", "b", "b, a"]
    with pytest.raises(ParameterError, match=r"^`encoding` is an option for files; leave it out\.$"):
        documents_given(frame, **COLUMNS, encoding="cp1252")
