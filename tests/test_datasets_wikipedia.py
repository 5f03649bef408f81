"""The Wikipedia builder on small made-up dumps: what is built, laws, broken input."""

from __future__ import annotations

import bz2
import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pytest

from ripml.base.errors import DataError, MissingExtraError, ParameterError
from ripml.datasets import load
from ripml.lab.wikipedia import Summary, build, builder
from ripml.lab.wikipedia.dump import open_dump
from ripml.lab.wikipedia.titles import key_of

pytest.importorskip("mwxml", reason="the extra `text` is not installed")
pytest.importorskip("mwparserfromhell", reason="the extra `text` is not installed")

SPACES = {0: "", 1: "Talk", 4: "Wikipedia", 6: "File", 14: "Category"}


# Dumps


def page(title: str, text: str | None, *, namespace: int = 0, redirect: str | None = None, id: int = 0) -> str:
    inside = "<text />" if text is None else f"<text>{escape(text)}</text>"
    leads = "" if redirect is None else f"<redirect title={quoteattr(redirect)} />"
    return (
        f"<page><title>{escape(title)}</title><ns>{namespace}</ns><id>{id or abs(key_of(title)) % 10**6}</id>{leads}"
        f"<revision><id>1</id><timestamp>2020-01-01T00:00:00Z</timestamp>{inside}</revision></page>"
    )


def xml(*pages: str) -> bytes:
    spaces = "".join(f'<namespace key="{key}" case="first-letter">{name}</namespace>' for key, name in SPACES.items())
    info = f"<siteinfo><dbname>enwiki</dbname><case>first-letter</case><namespaces>{spaces}</namespaces></siteinfo>"
    return f"<mediawiki>{info}{''.join(pages)}</mediawiki>".encode()


def world() -> list[str]:
    """40 articles that link to each other by number, some through redirects, and pages of all other kinds."""
    pages = [
        page(
            f"Article {i}",
            f"Number {i} is {'even' if i % 2 == 0 else 'odd'}, near [[article {(i + 1) % 40}]], [[To {i % 5}]] "
            f"and [[Red {i % 3}]]. [[Self {i}]] [[Loop A]] [[Meanings]] [[Category:Numbers]] word{i % 7} word{i % 3}",
        )
        for i in range(40)
    ]
    pages += [page(f"To {i}", f"#REDIRECT [[Chain {i}]]", redirect=f"Chain {i}") for i in range(5)]
    pages += [page(f"Chain {i}", f"#ПРЕНАСОЧВАНЕ [[Article {i}#x]]") for i in range(5)]
    pages += [page(f"Self {i}", "#REDIRECT", redirect=f"Article {i}") for i in range(40)]
    pages += [page("Loop A", "", redirect="Loop B"), page("Loop B", "", redirect="Loop A")]
    pages += [page("Meanings", "[[Article 1]] {{disambig}}"), page("Blank", None), page("No links", "Only words.")]
    pages += [page("Talk:Article 1", "[[Article 2]]", namespace=1), page("File:A.jpg", "x", namespace=6)]
    return pages


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "small-pages-articles.xml.bz2"
    path.write_bytes(bz2.compress(xml(*world())))
    return path


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_BATCH_PAGES", 6)


def made(dump: Path, folder: Path, **options: Any) -> Summary:
    return build(dump, folder, **{"min_count": 2, "n_test": 5, "features": "tfidf", "n_jobs": 1, **options})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read_docs(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "docs.jsonl").read_text("utf-8").splitlines()
    return {document["title"]: document for document in map(json.loads, lines)}


def test_the_folder_is_a_data_set(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = made(dump, tmp_path / "wiki")
    monkeypatch.setenv("RIPML_DATA", str(tmp_path))
    train, test = load("wiki")
    # Labels are Article 0 to 4; Article 4 links only to itself and to Article 5, so it is no document.
    assert (len(train), len(test)) == (summary.train, summary.test) == (34, 5)
    assert train.texts is not None
    assert train.texts[0].startswith("Number ")
    assert train.feature_names is not None
    assert "even" in train.feature_names
    assert len(train.label_names) == summary.labels == 5
    assert (summary.articles, summary.redirects, summary.disambiguation_pages) == (41, 52, 1)
    assert not (tmp_path / "wiki.part").exists()


def test_labels_are_articles_behind_redirects_and_never_the_article_itself(dump: Path, tmp_path: Path) -> None:
    made(dump, tmp_path / "wiki", min_count=1, features=None)
    docs = read_docs(tmp_path / "wiki")
    assert len(docs) == 40
    for i in range(40):
        assert set(docs[f"Article {i}"]["labels"]) == {f"Article {(i + 1) % 40}", f"Article {i % 5}"} - {f"Article {i}"}


def test_missing_pages_are_labels_if_any_target_counts(dump: Path, tmp_path: Path) -> None:
    made(dump, tmp_path / "wiki", min_count=8, targets="any", features=None)
    labels = (tmp_path / "wiki" / "labels.txt").read_text().splitlines()
    assert labels == ["Article 0", "Article 1", "Article 2", "Article 3", "Article 4", "Red 0", "Red 1", "Red 2"]


def test_a_label_needs_min_count_documents(dump: Path, tmp_path: Path) -> None:
    # Article 0 is linked by 5, 10, … 35 through a redirect and by 39; Article 1 by 6, …, 36 and by 0; and so on.
    made(dump, tmp_path / "wiki", min_count=8, features=None)
    docs = read_docs(tmp_path / "wiki").values()
    counts = [sum(f"Article {i}" in doc["labels"] for doc in docs) for i in range(5)]
    assert counts == [8, 8, 8, 8, 8]
    with pytest.raises(
        DataError, match=r"small-pages.*min_count = 9 of the documents; the most is 8: lower `min_count`"
    ):
        made(dump, tmp_path / "none", min_count=9)
    assert not (tmp_path / "none").exists()


def test_without_features_the_matrices_have_no_columns(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(dump, tmp_path / "wiki", features=None)
    monkeypatch.setenv("RIPML_DATA", str(tmp_path))
    train, _ = load("wiki")
    assert train.X.shape == (34, 0)


def test_features_are_learnt_from_the_training_texts_only(dump: Path, tmp_path: Path) -> None:
    class Recorder:
        def fit_transform(self, texts: Iterator[str]) -> Any:
            self.seen = list(texts)
            return np.ones((len(self.seen), 3), np.float32)

        def transform(self, texts: Iterator[str]) -> Any:
            return np.zeros((len(list(texts)), 3), np.float32)

    recorder = Recorder()
    made(dump, tmp_path / "wiki", features=recorder)
    docs = read_docs(tmp_path / "wiki").values()
    assert recorder.seen == [doc["text"] for doc in docs if doc["split"] == "train"]
    assert (tmp_path / "wiki" / "test.txt").read_text().startswith("5 3 5\n")


def test_doc2vec_gives_dense_rows(dump: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="the extra `text` is not installed")
    made(dump, tmp_path / "wiki", features="doc2vec", n_dims=7)
    assert (tmp_path / "wiki" / "train.txt").read_text().startswith("34 7 5\n")


def test_a_sample_is_drawn_by_the_seed(dump: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        summary = made(dump, tmp_path / name, n_documents=20, min_count=1, random_state=seed, features=None)
        assert summary.sampled == 20
    a, b, c = (read_docs(tmp_path / name) for name in "abc")
    assert a == b
    assert set(a) != set(c)


# Laws


def test_any_number_of_processes_gives_the_same_bytes(dump: Path, tmp_path: Path) -> None:
    made(dump, tmp_path / "one", n_documents=30, n_jobs=1)
    made(dump, tmp_path / "three", n_documents=30, n_jobs=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


@pytest.mark.parametrize("suffix", [".xml", ".xml.gz"])
def test_any_compression_gives_the_same_documents(dump: Path, tmp_path: Path, suffix: str) -> None:
    raw = bz2.decompress(dump.read_bytes())
    other = tmp_path / f"other{suffix}"
    other.write_bytes(gzip.compress(raw) if suffix.endswith(".gz") else raw)
    made(dump, tmp_path / "a")
    made(other, tmp_path / "b")
    a, b = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert {name: a[name] for name in a if name != "about.json"} == {
        name: b[name] for name in b if name != "about.json"
    }


class Stop(Exception):
    pass


def stop_at(call: int) -> Callable[[str, int, int], None]:
    calls = iter(range(call))

    def progress(step: str, done: int, total: int) -> None:
        assert 0 < done <= total
        if next(calls, None) is None:
            raise Stop(step)

    return progress


def test_a_build_interrupted_anywhere_resumes_to_the_same_bytes(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ripml.lab.wikipedia.dump._PAGES_PER_CALL", 30)
    made(dump, tmp_path / "whole")
    steps = []
    for call in range(100):
        folder = tmp_path / f"stopped {call}"
        try:
            made(dump, folder, progress=stop_at(call))
        except Stop as stop:
            steps.append(str(stop))
            assert not folder.exists()
            made(dump, folder)
        assert contents(folder) == contents(tmp_path / "whole")
        if not steps or len(steps) <= call:
            break
    # 98 pages of all kinds in the dump, 41 documents in batches of 6.
    assert steps == ["list"] * 3 + ["parse"] * 7 + ["labels"] * 7 + ["write"] * 7


def test_an_interrupted_build_does_not_parse_finished_batches_again(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Stop, match=r"^parse$"):
        made(dump, tmp_path / "wiki", progress=stop_at(3))
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "wiki.part").glob("batch-*")}
    assert len(done) == 4
    with pytest.raises(Stop, match=r"^labels$"):
        made(dump, tmp_path / "wiki", progress=stop_at(7))
    assert all(path.stat().st_mtime_ns == time for path, time in done.items())


def test_processes_can_be_interrupted_too(dump: Path, tmp_path: Path) -> None:
    made(dump, tmp_path / "whole")
    with pytest.raises(Stop, match=r"^parse$"):
        made(dump, tmp_path / "wiki", n_jobs=2, progress=stop_at(2))
    made(dump, tmp_path / "wiki", n_jobs=2)
    assert contents(tmp_path / "wiki") == contents(tmp_path / "whole")


def test_the_remains_of_another_build_are_not_used(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"^parse$"):
        made(dump, tmp_path / "wiki", progress=stop_at(2))
    with pytest.raises(DataError, match=r"wiki\.part' was left by a build with a different `n_documents`; remove it"):
        made(dump, tmp_path / "wiki", n_documents=7)
    dump.write_bytes(bz2.compress(xml(*world()[1:])))
    with pytest.raises(DataError, match=r"was left by a build with a different `dump`; remove it to start again\.$"):
        made(dump, tmp_path / "wiki")


# Broken input


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (bz2.compress(xml(*world()))[:-40], r"the compressed data ends too early; the file is truncated: download it"),
        (gzip.compress(xml(*world()))[:-40], r"the compressed data ends too early; the file is truncated: download it"),
        (b"BZh9" + b"x" * 100, r"the compressed data is damaged \(.*\); download it again\.$"),
        (xml(*world())[:-400], r"this is not well-formed XML \(.*\); download the dump again\.$"),
        (xml("<page><title>A</page>"), r"this is not well-formed XML \(.*\); download the dump again\.$"),
        (b"", r"this is not well-formed XML \(no element found.*\); download the dump again\.$"),
        (b"<html><body>Not found</body></html>", r"(not a pages-articles dump of MediaWiki|there is no <siteinfo>)"),
        (b"<mediawiki></mediawiki>", r"(not a pages-articles dump of MediaWiki|there is no <siteinfo>)"),
        (xml(), r"no page has any text; use a pages-articles dump, not one of stubs\.$"),
        (
            xml(page("A", None), page("B", None)),
            r"no page has any text; use a pages-articles dump, not one of stubs\.$",
        ),
        (xml(page("Talk:A", "x", namespace=1)), r"it contains no article; use a pages-articles dump\.$"),
        (xml("<page><ns>0</ns><id>1</id></page>"), r"this is not a pages-articles dump of MediaWiki \(.*\)\.$"),
        (xml(page("A", "No links."), page("B", "None.")), r"no article is linked from at least min_count = 2"),
        (xml(page("A", "[[B]]"), page("B", "None.")), r"no article is linked .* the most is 1: lower `min_count`"),
    ],
)
def test_a_broken_dump_is_named_and_nothing_that_loads_is_left(
    content: bytes, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broken.xml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"broken\.xml: .*{complaint}"):
        made(path, tmp_path / "wiki", features=None)
    assert not (tmp_path / "wiki").exists()
    monkeypatch.setenv("RIPML_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"there is no data set 'wiki.part'"):
        load("wiki.part")
    # A good dump in its place is taken without complaint where nothing of use was left.
    if "no article is linked" not in complaint:
        path.write_bytes(xml(*world()))
        assert made(path, tmp_path / "wiki", features=None).train == 34


def test_one_document_is_too_few(tmp_path: Path) -> None:
    path = tmp_path / "two.xml"
    path.write_bytes(xml(page("A", "[[B]]"), page("B", "None.")))
    with pytest.raises(DataError, match=r"two\.xml: only 1 document has labels, but at least two are needed"):
        made(path, tmp_path / "wiki", min_count=1, features=None)


def test_a_dump_of_many_revisions_gives_the_last(tmp_path: Path) -> None:
    path = tmp_path / "history.xml"
    old = "<revision><id>1</id><timestamp>2019-01-01T00:00:00Z</timestamp><text>old</text></revision>"
    path.write_bytes(xml(page("A", "new").replace("<revision>", old + "<revision>", 1)))
    with open_dump(path) as (_, pages):
        assert [found.text for found in pages] == ["new"]


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"min_count": 0}, r"^`min_count` must be an integer ≥ 1; got 0\.$"),
        ({"n_test": True}, r"^`n_test` must be an integer ≥ 1; got True\.$"),
        ({"n_documents": 0}, r"^`n_documents` must be an integer ≥ 1; got 0\.$"),
        ({"random_state": -1}, r"^`random_state` must be an integer ≥ 0; got -1\.$"),
        ({"targets": "all"}, r"^`targets` must be 'articles' or 'any'; got 'all'\.$"),
        ({"features": "bert"}, r"^`features` must be 'doc2vec', 'tfidf', None or an object .*; got 'bert'\.$"),
        ({"n_jobs": 0}, r"^`n_jobs` must be None, an integer ≥ 1, or negative"),
    ],
)
def test_settings_out_of_range_are_refused(option: dict[str, Any], complaint: str, dump: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=complaint):
        made(dump, tmp_path / "wiki", **option)
    assert not (tmp_path / "wiki.part").exists()


def test_a_folder_that_exists_and_a_dump_that_does_not_are_refused(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"' already exists; remove it, or build into another folder\.$"):
        made(dump, tmp_path)
    with pytest.raises(DataError, match=r"none\.bz2: cannot be read \(no such file\)\.$"):
        made(tmp_path / "none.bz2", tmp_path / "wiki")


@pytest.mark.parametrize("package", ["mwxml", "mwparserfromhell"])
def test_a_missing_package_is_answered_with_its_extra(
    package: str, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"^{package} is needed .* pip install 'ripml\[text\]'$"):
        made(dump, tmp_path / "wiki")
