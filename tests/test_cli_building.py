"""The shell's data set builders: on gensim's excerpt of Wikipedia, and on a few Chinese documents."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ripml import datasets
from ripml.base.errors import DataError, ParameterError
from ripml.cli.app import app

EXCERPT = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"


def run(*words: str) -> str:
    answer = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.stdout


def test_a_dump_becomes_a_named_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mwxml", reason="the extra `text` is not installed")
    dump = str(resources.files("gensim.test") / "test_data" / EXCERPT)
    words = ["--targets", "any", "--features", "tfidf", "--test", "5", "--documents", "12", "--min-count", "2"]
    found = json.loads(run("datasets", "wikipedia", dump, str(tmp_path / "wiki"), *words, "--jobs", "1", "--json"))
    assert found["sampled"] == 12
    assert found["train"] + found["test"] + found["without_text"] + found["without_labels"] == 12
    monkeypatch.setenv("RIPML_DATA", str(tmp_path))
    train, test = datasets.load("wiki")
    assert (len(train), len(test), train.Y.shape[1]) == (found["train"], found["test"], found["labels"])
    assert train.texts is not None
    with pytest.raises(ParameterError, match="already exists; remove it, or build into another folder"):
        run("datasets", "wikipedia", dump, str(tmp_path / "wiki"))


def test_chinese_documents_become_a_named_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rjieba", reason="the extra `text` is not installed")
    news = tmp_path / "news"
    news.mkdir()
    for i in range(12):
        (news / f"{i}.txt").write_text(
            f"贵州茅台发布财报第{i}号" if i % 2 else f"腾讯控股游戏业务第{i}号", encoding="utf-8"
        )
    lines = [f"{i}.txt,{'SH600519' if i % 2 else '00700'}" for i in range(12)]
    (news / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
    made = str(tmp_path / "set")
    found = json.loads(run("datasets", "chinese", str(news), made, "--features", "tfidf", "--test", "3", "--json"))
    assert (found["kept"], found["labels"]) == (12, 2)
    monkeypatch.setenv("RIPML_DATA", str(tmp_path))
    train, test = datasets.load("set")
    assert (len(train), len(test)) == (9, 3)
    assert train.label_names == ["00700", "SH600519"]
    assert "labels" in run(
        "datasets", "chinese", str(news), str(tmp_path / "other"), "--features", "tfidf", "--test", "3"
    )
    with pytest.raises(DataError, match="already exists"):
        run("datasets", "chinese", str(news), made)
